"""Real servers: S3 (moto, SeaweedFS), HTTP with ranges (nginx) and without (http.server), and broken connections."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import pytest
from servers import Fault, FaultProxy, HttpServer, NginxServer, S3Server

from colstore_io.errors import StaleDatasetError, StorageError, TruncatedFileError
from colstore_io.storage import (
    IOStats,
    current_token,
    list_names,
    open_file,
    open_files,
    read_ranges,
    reopen,
    resolve,
    write_object,
)
from colstore_io.storage import filesystems as storage_filesystems
from colstore_io.storage import http as storage_http
from colstore_io.storage import write as storage_write

pytestmark = pytest.mark.service

DATA = os.urandom(300_000)
OURS = (StorageError, StaleDatasetError, TruncatedFileError)


@pytest.fixture(params=["moto_s3", "seaweed_s3"])
def s3(request: pytest.FixtureRequest) -> S3Server:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.fixture
def http_files(nginx_server: NginxServer) -> NginxServer:
    nginx_server.put("d/s_2.cstore", DATA)
    nginx_server.put("d/s_10.cstore", DATA[1:])
    nginx_server.requests()
    return nginx_server


# -- S3


def test_a_directory_on_s3_is_opened_by_one_listing_and_one_round(s3: S3Server) -> None:
    prefix, fs = s3.prefix(), s3.client()
    for name in ("s_10.cstore", "s_2.cstore", "_colstore-00000001.json", "k=1/s_1.cstore", "sub/x.cstore"):
        fs.pipe_file(f"{prefix}/{name}", DATA)
    fs.pipe_file(f"{prefix}/s_3.cstore", b"")
    io = IOStats()
    found = resolve(f"s3://{prefix}/", storage_options=s3.options)
    assert [item.spelling.removeprefix(f"s3://{prefix}/") for item in found.locations] == [
        "k=1/s_1.cstore",
        "s_2.cstore",
        "s_3.cstore",
        "s_10.cstore",
    ]
    assert [item.path for item in found.hidden] == [f"{prefix}/_colstore-00000001.json"]
    opened = open_files(found.locations, io=io)
    assert [file.size for file, _ in opened] == [len(DATA), len(DATA), 0, len(DATA)]
    assert [bytes(head) for _, head in opened] == [DATA[:65536], DATA[:65536], b"", DATA[:65536]]
    assert (io.requests, io.metadata_requests) == (3, 0)
    wanted = [(file, offset, 50) for file, _ in opened if file.size for offset in (299_950, 7)]
    assert [bytes(data) for data in read_ranges(wanted)] == [DATA[299_950:], DATA[7:57]] * 3
    assert io.metadata_requests == 0


@pytest.mark.parametrize("pattern", ["s_?.cstore", "s_[12].cstore", "**/s_?.cstore"])
def test_patterns_on_s3(s3: S3Server, pattern: str) -> None:
    prefix, fs = s3.prefix(), s3.client()
    for name in ("s_10.cstore", "s_2.cstore", "s_1.cstore"):
        fs.pipe_file(f"{prefix}/{name}", DATA[:100])
    found = resolve(f"s3://{prefix}/{pattern}", storage_options=s3.options)
    assert [item.spelling for item in found.locations] == [
        f"s3://{prefix}/s_{number}.cstore" for number in (1, 2)
    ]
    assert all(item.size == 100 and item.token for item in found.locations)


@pytest.mark.parametrize("name", ["run[1]*?.cstore", "a b+c&d.cstore", "ü²٣.cstore"])
def test_special_names_on_s3(s3: S3Server, name: str) -> None:
    prefix, fs = s3.prefix(), s3.client()
    fs.pipe_file(f"{prefix}/{name}", DATA)
    fs.pipe_file(f"{prefix}/run1xx.cstore", b"")
    for spelling in (f"s3://{prefix}/{name}", f"s3://{prefix}/"):
        found = resolve(spelling, storage_options=s3.options)
        location = next(item for item in found.locations if item.path.endswith(name))
        file, head = open_file(location)
        assert bytes(head) == DATA[:65536]
        assert bytes(file.read(70_000, 3)) == DATA[70_000:70_003]


def test_tokens_on_s3_agree_and_follow_the_object(s3: S3Server) -> None:
    prefix, fs = s3.prefix(), s3.client()
    fs.pipe_file(f"{prefix}/a.cstore", DATA)
    (listed,) = resolve(f"s3://{prefix}/*.cstore", storage_options=s3.options).locations
    file, _ = open_file(resolve(f"s3://{prefix}/a.cstore", storage_options=s3.options).locations[0])
    assert file.token == listed.token
    assert current_token(listed) == (len(DATA), file.token)
    copy = pickle.loads(pickle.dumps(file))
    fs.pipe_file(f"{prefix}/a.cstore", DATA[:100])
    assert file.stat_changed()
    for each in (file, copy):
        with pytest.raises(StaleDatasetError, match=r"a\.cstore"):
            each.read(90, 100)
    fs.rm_file(f"{prefix}/a.cstore")
    with pytest.raises(StaleDatasetError):
        file.read(0, 10)


def test_missing_things_on_s3_are_named(s3: S3Server) -> None:
    prefix = s3.prefix()
    s3.client().pipe_file(f"{prefix}/a.cstore", DATA)
    with pytest.raises(FileNotFoundError, match="gone"):
        open_file(resolve(f"s3://{prefix}/gone.cstore", storage_options=s3.options).locations[0])
    for spelling in ("gone", "gone/", "gone*.cstore"):
        with pytest.raises(FileNotFoundError, match="gone"):
            resolve(f"s3://{prefix}/{spelling}", storage_options=s3.options)
    assert resolve(f"s3://{prefix}", storage_options=s3.options).kind == "directory"


def test_writing_on_s3(s3: S3Server, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix, fs = s3.prefix(), s3.client()
    fs.pipe_file(f"{prefix}/a.cstore", DATA)
    root = resolve(f"s3://{prefix}/", storage_options=s3.options).root
    assert root is not None
    write_object(root.child("b.cstore"), [DATA[:10], DATA[10:]])
    with pytest.raises(FileExistsError, match=r"b\.cstore"):
        write_object(root.child("b.cstore"), [b"other"], exclusive=True)
    write_object(root.child("_colstore-00000001.json"), [b"{}"], exclusive=True)
    (tmp_path / "local").write_bytes(DATA)
    write_object(root.child("c.cstore"), str(tmp_path / "local"))
    with pytest.raises(FileExistsError):
        write_object(root.child("c.cstore"), tmp_path / "local", exclusive=True)
    monkeypatch.setattr(storage_write, "ONE_REQUEST_LIMIT", 1 << 20)
    long = [os.urandom(1 << 20) for _ in range(12)]
    write_object(f"s3://{prefix}/d.cstore", iter(long), storage_options=s3.options)

    def failing() -> Iterator[bytes]:
        yield from long
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_object(root.child("never.cstore"), failing())
    assert [(entry.name, entry.size) for entry in list_names(root)] == [
        ("_colstore-00000001.json", 2),
        ("a.cstore", len(DATA)),
        ("b.cstore", len(DATA)),
        ("c.cstore", len(DATA)),
        ("d.cstore", 12 << 20),
    ]
    assert all(entry.token and entry.modified for entry in list_names(root))
    assert fs.cat_file(f"{prefix}/d.cstore") == b"".join(long)
    assert fs.cat_file(f"{prefix}/b.cstore") == DATA


def test_an_exclusive_write_loses_against_a_writer_that_was_faster(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store itself refuses, not only the look before."""
    prefix = s3.prefix()
    s3.client().pipe_file(f"{prefix}/m.json", b"first")
    look = storage_write._exists
    answers = [False]  # the look before the write comes too early
    monkeypatch.setattr(storage_write, "_exists", lambda *args: answers.pop() if answers else look(*args))
    with pytest.raises(FileExistsError):
        write_object(f"s3://{prefix}/m.json", [b"second"], storage_options=s3.options, exclusive=True)
    assert s3.client().cat_file(f"{prefix}/m.json") == b"first"


# From Python 3.12 on a fork in a process with threads warns; that it works is what is tested.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_reads_s3_with_a_client_of_its_own(s3: S3Server) -> None:
    prefix = s3.prefix()
    s3.client().pipe_file(f"{prefix}/a.cstore", DATA)
    file, _ = open_file(resolve(f"s3://{prefix}/a.cstore", storage_options=s3.options).locations[0])
    child = os.fork()
    if child == 0:
        good = False
        try:
            good = bytes(file.read(100_000, 10)) == DATA[100_000:100_010]
            good = good and bytes(open_file(file.location)[1]) == DATA[:65536]
        finally:
            os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bytes(file.read(100_000, 10)) == DATA[100_000:100_010]


# blockcache itself leaves its file open for the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("cache", ["simplecache", "filecache", "blockcache"])
def test_caches_over_s3(s3: S3Server, cache: str, tmp_path: Any) -> None:
    prefix = s3.prefix()
    s3.client().pipe_file(f"{prefix}/a.cstore", DATA)
    options = {"s3": s3.options, cache: {"cache_storage": str(tmp_path)}}
    (location,) = resolve(f"{cache}::s3://{prefix}/a.cstore", storage_options=options).locations
    file, head = open_file(location)
    assert bytes(head) == DATA[: len(head)]
    assert bytes(file.read(100_000, 10)) == DATA[100_000:100_010]
    assert (file.map(10) is not None) == (cache != "blockcache")
    assert (
        file.token
        == current_token(resolve(f"s3://{prefix}/a.cstore", storage_options=s3.options).locations[0])[1]
    )
    copy = pickle.loads(pickle.dumps(file))
    assert bytes(copy.read(100_000, 10)) == DATA[100_000:100_010]


def test_wrong_keys_are_no_permission_and_are_not_shown(seaweed_s3: S3Server) -> None:
    prefix = seaweed_s3.prefix()
    seaweed_s3.client().pipe_file(f"{prefix}/a.cstore", DATA)
    options = {**seaweed_s3.options, "key": "wrongkey", "secret": "hunter2hunter2"}
    with pytest.raises(PermissionError) as caught:
        open_file(resolve(f"s3://{prefix}/a.cstore", storage_options=options).locations[0])
    assert "hunter2" not in str(caught.value)


# -- HTTP with ranges


def test_opening_over_http_takes_one_request(http_files: NginxServer) -> None:
    io = IOStats()
    url = f"{http_files.url}/d/s_2.cstore"
    file, head = open_file(resolve(url).locations[0], io=io)
    assert bytes(head) == DATA[:65536]
    assert file.size == len(DATA)
    assert bytes(file.read(250_000, 8000)) == DATA[250_000:258_000]
    assert http_files.requests() == ["GET /d/s_2.cstore 206"] * 2
    assert (io.requests, io.metadata_requests, io.bytes) == (2, 0, 65536 + 8000)
    assert current_token(file.location) == (len(DATA), file.token)
    assert file.token.startswith("etag:")


def test_files_over_http_are_opened_and_read_together(http_files: NginxServer) -> None:
    locations = [resolve(f"{http_files.url}/d/s_{number}.cstore").locations[0] for number in (2, 10)] * 100
    opened = open_files(locations)
    assert [bytes(head) for _, head in opened] == [DATA[:65536], DATA[1:65537]] * 100
    wanted = [(file, 100_000, 10) for file, _ in opened]
    assert [bytes(data) for data in read_ranges(wanted)] == [
        DATA[100_000:100_010],
        DATA[100_001:100_011],
    ] * 100
    assert len(http_files.requests()) == 400


def test_an_index_page_is_a_directory(http_files: NginxServer) -> None:
    for spelling in (f"{http_files.url}/d/", f"{http_files.url}/d/s_*.cstore"):
        found = resolve(spelling)
        assert [item.path.rpartition("/")[2] for item in found.locations] == ["s_2.cstore", "s_10.cstore"]
    assert [file.size for file, _ in open_files(found.locations)] == [len(DATA), len(DATA) - 1]
    assert not any(line.endswith(" 404") for line in http_files.requests())


def test_redirects_queries_and_spaces(http_files: NginxServer) -> None:
    http_files.put("d/a b#é.cstore", DATA)
    for path in ("redirect/d/s_2.cstore", "d/s_2.cstore?sig=[*]&x=1", "d/a%20b%23%C3%A9.cstore"):
        file, head = open_file(resolve(f"{http_files.url}/{path}").locations[0])
        assert bytes(head) == DATA[:65536]
        assert bytes(file.read(299_990, 10)) == DATA[-10:]


def test_an_empty_file_over_http(http_files: NginxServer) -> None:
    url = http_files.put("empty.cstore", b"")
    file, head = open_file(resolve(url).locations[0])
    assert (file.size, bytes(head)) == (0, b"")


def test_missing_forbidden_and_broken_over_http(http_files: NginxServer) -> None:
    for path, error in (
        ("gone", FileNotFoundError),
        ("private/x", PermissionError),
        ("broken/x", StorageError),
    ):
        with pytest.raises(error, match=r"(gone|x)\.cstore"):
            open_file(resolve(f"{http_files.url}/{path}.cstore").locations[0])


def test_a_file_replaced_between_two_reads_is_noticed_by_its_version(http_files: NginxServer) -> None:
    url = http_files.put("v.cstore", DATA)
    file, _ = open_file(resolve(url).locations[0])
    os.utime(http_files.root / "v.cstore", (1, 1))  # same size, another entity tag
    with pytest.raises(StaleDatasetError, match=r"v\.cstore"):
        file.read(100, 10)
    http_files.put("v.cstore", DATA[:50])
    with pytest.raises(StaleDatasetError):
        file.read(100, 10)
    (http_files.root / "v.cstore").unlink()
    with pytest.raises(StaleDatasetError, match="removed"):
        file.read(100, 10)


def test_servers_that_tell_less(http_files: NginxServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_filesystems, "_warned_weak", set())
    for path, start in (("noetag", "modified:"), ("gzip", "etag:")):
        file, head = open_file(resolve(f"{http_files.url}/{path}/d/s_2.cstore").locations[0])
        assert file.token.startswith(start)
        assert current_token(file.location)[1] == file.token
        assert bytes(head) == DATA[:65536]
        assert bytes(file.read(100_000, 9)) == DATA[100_000:100_009]
    with pytest.warns(RuntimeWarning, match="neither version nor modification time"):
        file, _ = open_file(resolve(f"{http_files.url}/noversion/d/s_2.cstore").locations[0])
    assert file.token == f"size:{len(DATA)}"


# -- HTTP without ranges


@pytest.fixture(params=["http.server", "nginx"])
def rangeless(request: pytest.FixtureRequest) -> tuple[HttpServer, str]:
    if request.param == "nginx":
        return request.getfixturevalue("nginx_server"), "norange/"
    return request.getfixturevalue("plain_http_server"), ""


def test_a_small_file_of_a_server_without_ranges_is_fetched_once(rangeless: tuple[HttpServer, str]) -> None:
    server, folder = rangeless
    server.put("w.cstore", DATA)
    io = IOStats()
    file, head = open_file(resolve(f"{server.url}/{folder}w.cstore").locations[0], io=io)
    assert bytes(head) == DATA[:65536]
    wanted = [(250_000, 1000), (0, 10), (299_999, 1)]
    answers = read_ranges([(file, *pair) for pair in wanted])
    assert [bytes(data) for data in answers] == [DATA[start : start + length] for start, length in wanted]
    assert (io.requests, io.metadata_requests) == (1, 0)
    copy = reopen(file.location, size=file.size, token=file.token)
    assert bytes(copy.read(5, 5)) == DATA[5:10]
    tiny = server.put("t.cstore", b"tiny")
    assert bytes(open_file(resolve(tiny).locations[0])[1]) == b"tiny"
    empty = server.put("e.cstore", b"")
    assert bytes(open_file(resolve(empty).locations[0])[1]) == b""


def test_a_long_file_of_a_server_without_ranges_is_not_downloaded(
    rangeless: tuple[HttpServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = rangeless
    with open(server.root / "long.cstore", "wb") as handle:
        handle.write(DATA)
        handle.truncate(1 << 30)
    try:
        tracemalloc.start()
        file, head = open_file(resolve(f"{server.url}/{folder}long.cstore").locations[0])
        assert bytes(head) == DATA[:65536]
        assert file.size == 1 << 30
        with pytest.raises(StorageError, match=r"long\.cstore.*ignores byte ranges.*simplecache"):
            file.read(100_000, 10)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
        (server.root / "long.cstore").unlink()


def test_a_missing_file_on_a_plain_server(plain_http_server: HttpServer) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.cstore"):
        open_file(resolve(f"{plain_http_server.url}/gone.cstore").locations[0])


# -- faults

FAULTS = [
    Fault(refuse=True),
    Fault(cut=0),
    Fault(reset=0),
    Fault(cut=50),
    Fault(cut=400),
    Fault(cut=5000),
    Fault(reset=5000),
    Fault(cut=40_000),
    Fault(reset=70_000),
]


def attempt(action: Callable[[], Any], *, must_work: bool) -> Any:
    """Return the result of `action`, or ``None`` after one of our errors that names the file."""
    if must_work:
        return action()
    try:
        return action()
    except OURS as error:
        message = str(error)
    assert "s_2.cstore" in message
    return None


@pytest.mark.parametrize("broken", [1, 1000])
@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("folder", ["", "norange/"])
def test_broken_http_connections_give_right_bytes_or_an_error(
    http_files: NginxServer, fault: Fault, broken: int, folder: str
) -> None:
    """One broken connection is made good by asking again; if all break, there is an error and never wrong data."""

    def rule(number: int) -> Fault:
        return fault if number < broken else Fault()

    good, _ = open_file(resolve(f"{http_files.url}/{folder}d/s_2.cstore").locations[0])
    with FaultProxy(http_files.port, rule) as proxy:
        fs = fsspec.filesystem("http", skip_instance_cache=True)
        location = resolve(f"{proxy.url}/{folder}d/s_2.cstore", filesystem=fs).locations[0]
        opened = attempt(lambda: open_file(location), must_work=broken == 1)
        assert opened is None or bytes(opened[1]) == DATA[:65536]
    with FaultProxy(http_files.port, rule) as proxy:
        fs = fsspec.filesystem("http", skip_instance_cache=True)
        location = resolve(f"{proxy.url}/{folder}d/s_2.cstore", filesystem=fs).locations[0]
        file = reopen(location, size=good.size, token=good.token)
        answers = attempt(lambda: read_ranges([(file, 100_000, 90_000), (file, 5, 5)]), must_work=broken == 1)
        assert answers is None or [bytes(data) for data in answers] == [DATA[100_000:190_000], DATA[5:10]]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [FAULTS[0], FAULTS[4], FAULTS[5], FAULTS[8]], ids=str)
def test_broken_s3_connections_give_right_bytes_or_an_error(moto_s3: S3Server, fault: Fault) -> None:
    prefix = moto_s3.prefix()
    moto_s3.client().pipe_file(f"{prefix}/a.cstore", DATA)
    with FaultProxy(moto_s3.port, lambda number: fault if number < 2 else Fault()) as proxy:
        fs = moto_s3.client(proxy.url)
        file, head = open_file(resolve(f"{prefix}/a.cstore", filesystem=fs).locations[0])
        assert bytes(head) == DATA[:65536]
    with FaultProxy(moto_s3.port, lambda number: fault if number < 2 else Fault()) as proxy:
        fs = moto_s3.client(proxy.url)
        location = resolve(f"{prefix}/a.cstore", filesystem=fs).locations[0]
        copy = reopen(location, size=file.size, token=file.token)
        answers = read_ranges([(copy, 100_000, 90_000), (copy, 5, 5)])
        assert [bytes(data) for data in answers] == [DATA[100_000:190_000], DATA[5:10]]


def test_a_server_that_is_not_there_is_an_error_without_the_query() -> None:
    with pytest.raises(StorageError) as caught:
        open_file(resolve("http://name:hunter2@127.0.0.1:9/x.cstore?sig=hunter2").locations[0])
    assert "x.cstore" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_requests_over_a_slow_line_overlap(http_files: NginxServer) -> None:
    with FaultProxy(http_files.port, lambda number: Fault(delay_seconds=0.01)) as proxy:
        fs = fsspec.filesystem("http", skip_instance_cache=True)
        locations = [resolve(f"{proxy.url}/d/s_2.cstore", filesystem=fs).locations[0]] * 50
        opened = open_files(locations, head_bytes=100)
        assert [bytes(head) for _, head in opened] == [DATA[:100]] * 50
        assert proxy.connections > 10


def test_the_limit_for_whole_bodies_is_the_one_documented() -> None:
    assert storage_http.WHOLE_BODY_LIMIT == 64 << 20
