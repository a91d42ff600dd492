"""Files planned elsewhere are compared with their versions before they are read; outages are not changes."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fsspec
import numpy as np
import pytest
from servers import ObjectStore, new_store

from colstore_io.errors import StaleDatasetError, StorageError
from colstore_io.storage import (
    MemoryFile,
    RemoteFile,
    open_file,
    open_files,
    read_ranges,
    reopen,
    resolve,
    write_object,
)
from colstore_io.storage import planned as storage_planned

DATA = bytes(range(256)) * 1000
OTHER = DATA[::-1]


@pytest.fixture(params=["counting", "counting-serial"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(kind: str, count: int = 1) -> tuple[ObjectStore, list[Any]]:
    name, store = new_store()
    for number in range(count):
        store.put(f"b/s_{number}.cstore", DATA)
    found = resolve(f"{kind}://b/", storage_options={"store": name})
    files = [file for file, _ in open_files(found.locations)]
    store.log.clear()
    return store, files


def through_pickle(files: list[Any]) -> list[Any]:
    return [pickle.loads(pickle.dumps(file)) for file in files]


# -- replaced by an object of the same size


@pytest.mark.parametrize("way", ["pickle", "reopen"])
def test_an_object_replaced_by_one_of_the_same_size_is_stale(kind: str, way: str) -> None:
    store, (file,) = opened(kind)
    if way == "pickle":
        (copy,) = through_pickle([file])
    else:
        copy = reopen(file.location, size=file.size, token=file.token)
    store.put("b/s_0.cstore", OTHER)
    for _ in range(2):
        with pytest.raises(StaleDatasetError, match=r"s_0\.cstore was changed"):
            copy.read(10, 20)
        with pytest.raises(StaleDatasetError, match=r"s_0\.cstore was changed"):
            read_ranges([(copy, 10, 20)])


def test_a_replaced_object_of_the_memory_file_system_is_stale() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/versions/a.cstore", DATA)
    file, _ = open_file(resolve("memory://versions/a.cstore").locations[0])
    text = pickle.dumps(file)
    fs.pipe_file("/versions/a.cstore", OTHER)
    with pytest.raises(StaleDatasetError, match=r"a\.cstore"):
        pickle.loads(text).read(0, 10)


def test_a_removed_object_is_stale(kind: str) -> None:
    store, files = opened(kind)
    (copy,) = through_pickle(files)
    del store.objects["b/s_0.cstore"]
    with pytest.raises(StaleDatasetError, match=r"s_0\.cstore was removed"):
        copy.read(0, 10)


def test_each_file_is_asked_for_once_and_all_of_a_round_together() -> None:
    store, files = opened("counting", 20)
    copies = through_pickle(files)
    for _ in range(2):
        read_ranges([(copy, offset, 10) for copy in copies for offset in (0, 200_000)])
    assert (store.count("info"), store.count("range"), store.count("list")) == (20, 80, 0)
    assert [copy.io.metadata_requests for copy in copies] == [1] * 20
    read_ranges([(copy, 0, 10) for copy in through_pickle(files)])  # a moment later: another task
    assert store.count("info") == 20
    assert store.most_in_flight > 10


def test_a_comparison_is_good_for_a_moment_only(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_planned, "TRUST_SECONDS", 0.0)
    store, files = opened(kind)
    for copy in through_pickle(files * 3):
        copy.read(0, 10)
    assert store.count("info") == 3


def test_a_write_of_this_process_ends_the_trust(kind: str) -> None:
    _, files = opened(kind)
    first, second = through_pickle(files * 2)
    first.read(0, 10)
    write_object(files[0].location, [OTHER])
    with pytest.raises(StaleDatasetError):
        second.read(0, 10)


def test_threads_share_one_question(kind: str) -> None:
    store, files = opened(kind)
    copies = through_pickle(files * 8)
    answers: list[bytes] = []
    threads = [
        threading.Thread(target=lambda copy=copy: answers.append(bytes(copy.read(5, 9)))) for copy in copies
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [DATA[5:14]] * 8
    assert store.count("info") == 1


def test_nothing_is_compared_without_a_token(kind: str) -> None:
    store, (file,) = opened(kind)
    reopen(file.location, size=file.size, token=None).read(0, 10)
    assert store.count("info") == 0


# -- HTTP: outages


class Server(ThreadingHTTPServer):
    status = 0
    get_status = 0  # once, for the next GET
    head_tells = get_tells = True
    etag = "1"
    data = DATA


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: Any) -> None:
        pass

    def _answer(self, body: bytes, status: int, tells: bool, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if tells:
            self.send_header("Last-Modified", f"Mon, 01 Jan 2024 00:00:0{self.server.etag} GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self) -> None:
        server = self.server
        once, server.get_status = (server.get_status, 0) if self.command == "GET" else (0, server.get_status)
        if server.status or once:
            self._answer(b"no", server.status or once, False)
        elif self.command == "HEAD":
            self._answer(server.data, 200, server.head_tells, Accept_Ranges="bytes")
        else:
            start, _, last = self.headers.get("Range", f"bytes=0-{len(server.data)}")[6:].partition("-")
            part = server.data[int(start) : int(last) + 1]
            span = f"bytes {start}-{int(start) + len(part) - 1}/{len(server.data)}"
            self._answer(part, 206, server.get_tells, Content_Range=span)

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def server() -> Iterator[Server]:
    pytest.importorskip("aiohttp")
    made = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def http_file(server: Server) -> RemoteFile:
    file, _ = open_file(resolve(f"http://127.0.0.1:{server.server_port}/a.cstore").locations[0])
    assert isinstance(file, RemoteFile)
    return file


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("status", [503, 500, 429, 412, 416, 401, 403, 404, 410])
def test_an_outage_is_not_a_change(server: Server, status: int, planned: bool) -> None:
    file = http_file(server)
    if planned:
        (file,) = through_pickle([file])
    server.status = status
    expected: type[Exception] = StorageError
    if status in (401, 403):
        expected = PermissionError
    elif status in (404, 410):
        expected = StaleDatasetError
    with pytest.raises(expected, match=r"a\.cstore") as caught:
        file.read(100_000, 10)
    assert type(caught.value) is expected
    if expected is not StaleDatasetError:
        with pytest.raises(expected):
            file.refresh()
    server.status = 0
    assert bytes(file.read(100_000, 10)) == DATA[100_000:100_010]


@pytest.mark.filterwarnings("ignore:the http.* file system tells neither:RuntimeWarning")
def test_a_version_that_only_one_kind_of_answer_tells_is_not_a_change(server: Server) -> None:
    server.get_tells = False
    file = http_file(server)
    server.get_status = 503
    assert bytes(file.read(100_000, 10)) == DATA[100_000:100_010]
    assert not file.stat_changed()


def test_a_replaced_file_is_noticed_by_the_headers_of_the_first_answer(server: Server) -> None:
    (copy,) = through_pickle([http_file(server)])
    server.data, server.etag = OTHER, "2"
    with pytest.raises(StaleDatasetError, match=r"a\.cstore was changed"):
        copy.read(0, 10)
    assert copy.io.metadata_requests == 0


def test_a_planned_file_is_asked_for_where_the_headers_tell_nothing(server: Server) -> None:
    (copy,) = through_pickle([http_file(server)])
    server.data, server.etag, server.get_tells = OTHER, "2", False
    with pytest.raises(StaleDatasetError, match=r"a\.cstore was changed"):
        copy.read(0, 10)


# -- read-only arrays


@pytest.mark.parametrize("end", [0, 8])
def test_mapped_arrays_can_not_be_made_writable(tmp_path: Any, end: int) -> None:
    (tmp_path / "a.cstore").write_bytes(b"12345678")
    local, _ = open_file(resolve(str(tmp_path / "a.cstore")).locations[0])
    for file in (local, MemoryFile(bytearray(b"12345678"))):
        array = file.map(end)
        assert isinstance(array, np.ndarray)
        assert (array.dtype, len(array), array.flags.writeable) == (np.uint8, end, False)
        with pytest.raises(ValueError):
            array.flags.writeable = True
