"""What is asked of a store, and what happens to answers that are none: counted on file systems in memory."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import threading
from typing import Any

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import CountingFileSystem, Request, SerialCountingFileSystem, new_store

from colstore_io.errors import StaleDatasetError, StorageError, TruncatedFileError
from colstore_io.storage import (
    IOStats,
    RemoteFile,
    current_token,
    list_names,
    open_file,
    open_files,
    read_ranges,
    reopen,
    resolve,
    write_object,
)
from colstore_io.storage.ranges import SPLIT_BYTES

DATA = bytes(range(256)) * 1000
FILES = {f"b/d/s_{number}.cstore": DATA[number:] for number in (1, 2, 10)}


@pytest.fixture(params=["counting", "counting-serial"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Store:
    """A store with its URL options, as tests want them."""

    def __init__(self, kind: str, **objects: bytes) -> None:
        name, self.store = new_store()
        self.kind = kind
        self.options = {"store": name}
        for path, data in {**FILES, **objects}.items():
            self.store.put(path, data)

    def resolve(self, path: str) -> Any:
        return resolve(f"{self.kind}://{path}", storage_options=self.options)

    def opened(self, path: str = "b/d/s_1.cstore", io: IOStats | None = None) -> RemoteFile:
        file, _ = open_file(self.resolve(path).locations[0], io=io)
        assert isinstance(file, RemoteFile)
        return file

    def kinds(self) -> tuple[int, int, int]:
        """Return how many ranges, infos and listings were asked for since the last call."""
        counts = tuple(self.store.count(kind) for kind in ("range", "info", "list"))
        self.store.log.clear()
        return counts  # type: ignore[return-value]


# -- how much is asked


def test_opening_a_file_costs_one_read_and_one_question(kind: str) -> None:
    store = Store(kind)
    io = IOStats()
    file = store.opened(io=io)
    assert (file.size, file.location.size) == (len(DATA) - 1, len(DATA) - 1)
    assert store.store.bytes_asked() == 65536
    assert store.store.not_found() == 0
    assert store.kinds() == (1, 1, 0)
    assert (io.requests, io.bytes, io.metadata_requests) == (1, 65536, 1)


def test_a_range_costs_one_request_and_its_bytes(kind: str) -> None:
    store = Store(kind)
    io = IOStats()
    file = store.opened(io=io)
    store.kinds()
    assert bytes(file.read(100_000, 8000)) == FILES["b/d/s_1.cstore"][100_000:108_000]
    assert store.store.bytes_asked() == 8000
    assert store.kinds() == (1, 0, 0)
    assert (io.requests, io.bytes, io.metadata_requests) == (2, 65536 + 8000, 1)


def test_small_files_are_not_read_past_their_end_when_a_listing_told_the_size() -> None:
    store = Store("counting", **{"b/d/s_0.cstore": b"tiny"})
    open_files(store.resolve("b/d/s_?.cstore").locations)
    stops = {request.path: request.stop for request in store.store.log if request.kind == "range"}
    assert stops["b/d/s_0.cstore"] == 4


@pytest.mark.parametrize("spelling", ["b/d/", "b/d", "b/d/s_*.cstore", "b/*/s_*.cstore", "**/*.cstore"])
def test_after_a_listing_no_file_is_asked_for_its_size(kind: str, spelling: str) -> None:
    store = Store(kind)
    found = store.resolve(spelling)
    assert [item.path for item in found.locations] == ["b/d/s_1.cstore", "b/d/s_2.cstore", "b/d/s_10.cstore"]
    listings = store.kinds()
    assert listings[0] == 0
    assert listings[1] <= (spelling == "b/d")  # a name without a slash or suffix has to be looked up
    assert listings[2] <= 3
    opened = open_files(found.locations)
    assert store.kinds() == (3, 0, 0)
    assert [file.size for file, _ in opened] == [len(DATA) - number for number in (1, 2, 10)]
    assert store.store.not_found() == 0


def test_a_name_that_a_listing_has_shown_costs_no_question() -> None:
    store = Store("counting")
    fs = fsspec.filesystem("counting", **store.options)
    fs.ls("b/d")
    store.kinds()
    store.opened("b/d/s_2.cstore")
    assert store.kinds() == (1, 0, 0)


def test_tokens_of_a_listing_and_of_a_question_agree(kind: str) -> None:
    store = Store(kind)
    (first, *_) = store.resolve("b/d/").locations
    assert current_token(first) == (first.size, first.token)
    assert store.opened(first.path).token == first.token


def test_many_files_are_opened_in_one_concurrent_round() -> None:
    store = Store("counting", **{f"b/many/{number}.cstore": DATA[:100] for number in range(500)})
    found = [store.resolve(f"b/many/{number}.cstore").locations[0] for number in range(500)]
    assert store.kinds() == (0, 0, 0)
    opened = open_files(found)
    assert all(bytes(head) == DATA[:100] for _, head in opened)
    assert 32 <= store.store.most_in_flight <= 128  # 64 reads, and 64 questions beside them
    ranges, infos, listings = store.kinds()
    assert ranges == 500
    assert infos + listings <= 500


def test_a_long_list_with_one_parent_is_listed_instead_of_asked() -> None:
    store = Store("counting", **{f"b/many/{number}.cstore": DATA[:100] for number in range(200)})
    found = [store.resolve(f"b/many/{number}.cstore").locations[0] for number in range(200)]
    io = IOStats()
    opened = open_files(found, io=io)
    assert all(file.size == 100 for file, _ in opened)
    assert store.kinds() == (200, 0, 1)
    assert io.metadata_requests == 1


def test_ranges_of_many_files_are_fetched_together_and_coalesced(kind: str) -> None:
    store = Store(kind)
    files = [file for file, _ in open_files(store.resolve("b/d/").locations)]
    store.kinds()
    wanted = [(file, offset, 100) for offset in (200_000, 0, 500, 210_000) for file in files]
    for (file, offset, length), data in zip(wanted, read_ranges(wanted, spare_bytes=0), strict=True):
        assert bytes(data) == FILES[file.location.path][offset : offset + length]
        assert data.readonly
    assert store.store.bytes_asked() == 3 * (600 + 10_100)
    assert store.kinds() == (6, 0, 0)


def test_gaps_that_cost_less_than_requests_are_read_as_far_as_that_is_spared(kind: str) -> None:
    store = Store(kind)
    files = [file for file, _ in open_files(store.resolve("b/d/").locations)]
    wanted = [(file, offset, 100) for offset in (200_000, 0) for file in files]
    for spare, requests in ((0, 6), (3 * 199_899, 6), (3 * 199_900, 3)):
        store.kinds()
        for (file, offset, length), data in zip(wanted, read_ranges(wanted, spare_bytes=spare), strict=True):
            assert bytes(data) == FILES[file.location.path][offset : offset + length]
        assert store.kinds() == (requests, 0, 0)
    store.kinds()
    read_ranges(wanted)
    assert store.kinds() == (3, 0, 0)


def test_no_request_is_made_for_nothing(kind: str) -> None:
    store = Store(kind)
    file = store.opened()
    store.kinds()
    assert bytes(file.read(5, 0)) == b""
    assert [bytes(data) for data in read_ranges([(file, file.size, 0), (file, 0, 0)])] == [b"", b""]
    assert read_ranges([]) == []
    assert open_files([]) == []
    for offset, length in ((file.size, 1), (file.size - 1, 2), (10**12, 5)):
        with pytest.raises(TruncatedFileError, match=r"s_1\.cstore"):
            file.read(offset, length)
    for offset, length in ((-1, 1), (0, -5)):
        with pytest.raises(ValueError):
            read_ranges([(file, offset, length)])
    assert store.kinds() == (0, 0, 0)


def test_a_very_long_range_is_fetched_in_parallel_parts() -> None:
    data = os.urandom(1 << 20) * ((SPLIT_BYTES >> 20) + 5)
    store = Store("counting", **{"b/long.cstore": data})
    file = store.opened("b/long.cstore")
    store.kinds()
    (answer,) = read_ranges([(file, 7, len(data) - 7)])
    assert answer == memoryview(data)[7:]
    lengths = [request.stop - request.start for request in store.store.log]  # type: ignore[operator]
    assert max(lengths) <= 16 << 20
    assert sum(lengths) == len(data) - 7
    assert store.store.most_in_flight > 1


range_sets = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 600)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(range_sets, st.integers(0, 300), st.integers(1, 2000))
def test_any_set_of_ranges_gives_exactly_the_bytes(
    ranges: list[tuple[int, int]], gap_bytes: int, max_block: int
) -> None:
    data = os.urandom(5000)
    store = Store("counting", **{"b/x.cstore": data})
    file = store.opened("b/x.cstore")
    store.kinds()
    answers = read_ranges(
        [(file, *pair) for pair in ranges], gap_bytes=gap_bytes, spare_bytes=0, max_block=max_block
    )
    for (offset, length), answer in zip(ranges, answers, strict=True):
        assert bytes(answer) == data[offset : offset + length]
    asked = {pair for pair in ranges if pair[1]}
    assert store.store.count("range") <= len(asked)
    union = len({byte for offset, length in asked for byte in range(offset, offset + length)})
    longest = max((length for _, length in asked), default=0)
    # At worst every block repeats the overlap with its neighbour, and holds gaps between its ranges.
    assert store.store.bytes_asked() <= union + len(asked) * (gap_bytes + longest)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(range_sets, min_size=1, max_size=3),
    st.integers(0, 300),
    st.integers(0, 5000),
    st.integers(1, 4000),
)
def test_joined_gaps_cost_no_more_bytes_than_allowed_and_no_request(
    sets: list[list[tuple[int, int]]], gap_bytes: int, spare_bytes: int, max_block: int
) -> None:
    data = os.urandom(5000)
    store = Store("counting", **{f"b/{number}.cstore": data for number in range(len(sets))})
    files = [store.opened(f"b/{number}.cstore") for number in range(len(sets))]
    wanted = [(file, *pair) for file, pairs in zip(files, sets, strict=True) for pair in pairs]
    asked: list[tuple[int, int]] = []
    for spare in (0, spare_bytes):
        store.kinds()
        answers = read_ranges(wanted, gap_bytes=gap_bytes, spare_bytes=spare, max_block=max_block)
        for (_, offset, length), answer in zip(wanted, answers, strict=True):
            assert bytes(answer) == data[offset : offset + length]
        asked.append((store.store.count("range"), store.store.bytes_asked()))
    (requests, nbytes), (fewer, more) = asked
    assert fewer <= requests <= len({(id(file), *pair) for file, *pair in wanted if pair[1]})
    assert more <= nbytes + spare_bytes
    if more > nbytes:  # bytes are read in vain for a request less
        assert fewer < requests


# -- empty, missing and forbidden


def test_an_empty_object_has_an_empty_head(kind: str) -> None:
    store = Store(kind, **{"b/empty.cstore": b""})
    for path in ("b/empty.cstore", "b/*.cstore"):
        (pair,) = open_files(store.resolve(path).locations)
        assert (pair[0].size, bytes(pair[1])) == (0, b"")


def test_an_empty_object_does_not_fail_the_others(kind: str) -> None:
    store = Store(kind, **{"b/d/s_0.cstore": b""})
    spellings = ["b/d/s_0.cstore", *FILES]
    opened = open_files([store.resolve(spelling).locations[0] for spelling in spellings])
    assert [file.size for file, _ in opened] == [0, *map(len, FILES.values())]


def test_a_missing_object_is_named(kind: str) -> None:
    store = Store(kind)
    with pytest.raises(FileNotFoundError, match="gone"):
        store.opened("b/gone.cstore")
    for spelling in ("b/gone", "b/gone/", "b/gone*", "nowhere/*.cstore"):
        with pytest.raises(FileNotFoundError, match=re.escape(spelling)):
            store.resolve(spelling)


def test_a_directory_named_like_a_file_says_so(kind: str) -> None:
    store = Store(kind, **{"b/set.cstore/s_1.cstore": DATA})
    with pytest.raises(IsADirectoryError, match=r"set\.cstore"):
        store.opened("b/set.cstore")
    assert len(store.resolve("b/set.cstore/").locations) == 1


@pytest.mark.parametrize(
    "error", [PermissionError("denied"), OSError(5, "broken"), RuntimeError("odd"), ValueError("x")]
)
def test_errors_of_the_store_are_ours_and_name_the_file(kind: str, error: Exception) -> None:
    store = Store(kind)
    file = store.opened()
    store.store.tamper = lambda request, data: error
    expected = PermissionError if isinstance(error, PermissionError) else StorageError
    with pytest.raises(expected, match=r"s_1\.cstore"):
        file.read(0, 10)
    with pytest.raises(expected, match=r"s_1\.cstore"):
        store.opened()


@pytest.mark.parametrize("error", [PermissionError("denied"), FileNotFoundError("?"), OSError(5, "broken")])
def test_an_error_is_put_down_to_the_file_that_caused_it(kind: str, error: Exception) -> None:
    store = Store(kind)
    locations = store.resolve("b/d/").locations
    files = [file for file, _ in open_files(locations)]
    store.store.tamper = lambda request, data: error if request.path.endswith("s_10.cstore") else data
    with pytest.raises((OSError, StorageError), match=r"s_10\.cstore"):
        open_files(locations)
    with pytest.raises((OSError, StorageError), match=r"s_10\.cstore"):
        read_ranges([(file, 0, 10) for file in files])


# -- answers that are none


def test_a_request_that_fails_once_is_asked_again(kind: str) -> None:
    store = Store(kind)
    file = store.opened()
    failures = [ConnectionResetError("reset")]
    store.store.tamper = lambda request, data: failures.pop() if failures else data
    assert bytes(file.read(5, 100)) == FILES["b/d/s_1.cstore"][5:105]
    failures.append(ConnectionResetError("reset"))
    assert store.opened().size == file.size


@pytest.mark.parametrize("wrong", [b"", b"short", "text", None, 7, DATA[:1000]])
def test_an_answer_of_the_wrong_length_or_kind_is_never_data(kind: str, wrong: Any) -> None:
    store = Store(kind)
    file = store.opened()
    store.store.tamper = lambda request, data: wrong
    with pytest.raises((TruncatedFileError, StorageError), match=r"s_1\.cstore"):
        file.read(10, 100)
    with pytest.raises((TruncatedFileError, StorageError), match=r"s_1\.cstore"):
        read_ranges([(file, 10, 100), (file, 200_000, 9)])


def test_exceptions_as_list_elements_are_errors() -> None:
    name, store = new_store()
    store.put("b/x.cstore", DATA)
    fs = CountingFileSystem(name, ignores_on_error=True)
    file, _ = open_file(resolve("b/x.cstore", filesystem=fs).locations[0])
    store.tamper = lambda request, data: OSError("odd")
    with pytest.raises(StorageError, match=r"x\.cstore.*odd"):
        file.read(0, 10)


def test_the_whole_object_instead_of_a_range_is_cut_to_the_range(kind: str) -> None:
    store = Store(kind)
    whole = FILES["b/d/s_1.cstore"]
    store.store.tamper = lambda request, data: whole
    file = store.opened()
    assert file.size == len(whole)
    store.kinds()
    assert bytes(file.read(1234, 56)) == whole[1234:1290]
    assert store.kinds() == (0, 0, 0)  # it is kept, not fetched once per range


def test_a_replaced_object_is_stale_when_a_read_fails_or_is_short(kind: str) -> None:
    store = Store(kind)
    file = store.opened()
    store.store.put("b/d/s_1.cstore", DATA[:1000])
    for offset in (500, 100_000):
        with pytest.raises(StaleDatasetError, match=r"s_1\.cstore was changed"):
            file.read(offset, 10_000)
    assert file.stat_changed()
    with pytest.raises(StaleDatasetError):
        file.refresh()
    del store.store.objects["b/d/s_1.cstore"]
    with pytest.raises(StaleDatasetError, match="removed"):
        file.read(0, 10)


def test_an_unchanged_object_is_not_stale(kind: str) -> None:
    file = Store(kind).opened()
    file.refresh()
    assert not file.stat_changed()


def test_a_listing_that_is_out_of_date_is_noticed_at_open() -> None:
    store = Store("counting")
    fs = fsspec.filesystem("counting", **store.options)
    fs.ls("b/d")
    store.store.put("b/d/s_1.cstore", DATA[:50])
    with pytest.raises(StaleDatasetError):
        store.opened("b/d/s_1.cstore")
    store.store.put("b/d/s_20.cstore", DATA)  # a directory is listed anew each time
    assert len(store.resolve("b/d/").locations) == 4


# -- pickles, threads, forks


def test_a_pickle_carries_no_data_and_asks_nothing_before_the_first_read(kind: str) -> None:
    store = Store(kind)
    file = store.opened()
    text = pickle.dumps(file)
    assert len(text) < 700
    store.kinds()
    copy = pickle.loads(text)
    assert (copy.size, copy.token, copy.spelling) == (file.size, file.token, file.spelling)
    assert store.kinds() == (0, 0, 0)
    assert bytes(copy.read(7, 3)) == FILES["b/d/s_1.cstore"][7:10]
    assert store.kinds() == (1, 1, 0)  # it was planned elsewhere: its version is compared, once
    assert bytes(copy.read(9, 3)) == FILES["b/d/s_1.cstore"][9:12]
    assert store.kinds() == (1, 0, 0)
    assert (copy.io.requests, copy.io.metadata_requests) == (2, 1)


def test_a_file_is_reopened_from_its_address(kind: str) -> None:
    store = Store(kind)
    file = store.opened()
    options = dict(store.options)
    copy = reopen(file.location.url, size=file.size, token=file.token, storage_options=options)
    assert options == store.options
    assert bytes(copy.read(7, 3)) == FILES["b/d/s_1.cstore"][7:10]
    wrong = reopen(file.location, size=file.size, token="etag:other")
    assert wrong.stat_changed()
    store.store.tamper = lambda request, data: data[:-1]
    with pytest.raises(StaleDatasetError):
        wrong.read(0, 10)


def test_threads_may_share_a_file() -> None:
    store = Store("counting")
    file = store.opened()
    results: list[bool] = []

    def work(seed: int) -> None:
        for step in range(20):
            offset = (seed * 7919 + step * 104729) % 250_000
            results.append(bytes(file.read(offset, 64)) == FILES["b/d/s_1.cstore"][offset : offset + 64])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 160


def test_a_running_event_loop_does_not_disturb() -> None:
    store = Store("counting")

    async def inside() -> bytes:
        return bytes(store.opened().read(0, 4))

    assert asyncio.run(inside()) == FILES["b/d/s_1.cstore"][:4]


def test_an_instance_made_for_a_running_loop_gets_a_blocking_twin() -> None:
    name, store = new_store()
    store.put("b/x.cstore", DATA)
    fs = CountingFileSystem(name, asynchronous=True)
    file, head = open_file(resolve("b/x.cstore", filesystem=fs).locations[0])
    assert bytes(head) == DATA[:65536]
    assert bytes(file.read(1, 2)) == DATA[1:3]


# From Python 3.12 on a fork in a process with threads warns; that it works is what is tested.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("fresh", [True, False])
def test_a_forked_child_gets_file_systems_of_its_own(fresh: bool) -> None:
    store = Store("counting")
    file = store.opened()
    location = file.location
    unseen = CountingFileSystem(store.options["store"], skip_instance_cache=True)
    child = os.fork()
    if child == 0:
        try:
            if fresh:
                good = bytes(open_file(location)[1][:4]) == FILES["b/d/s_1.cstore"][:4]
                found = resolve("b/d/s_1.cstore", filesystem=unseen).locations[0]
                good = good and bytes(open_file(found)[0].read(0, 4)) == FILES["b/d/s_1.cstore"][:4]
            else:
                good = bytes(file.read(9, 4)) == FILES["b/d/s_1.cstore"][9:13]
                good = good and bytes(file.read(9, 4)) == FILES["b/d/s_1.cstore"][9:13]
                good = good and len(resolve("b/d/", filesystem=location.fs).locations) == 3
        except BaseException:
            import traceback

            traceback.print_exc()
            good = False
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bytes(file.read(9, 4)) == FILES["b/d/s_1.cstore"][9:13]


# -- chains and other file systems


def test_chains_that_keep_local_copies_are_mapped(tmp_path: Any) -> None:
    kind = "counting"
    store = Store(kind)
    for cache in ("simplecache", "filecache"):
        options = {kind: dict(store.options), cache: {"cache_storage": str(tmp_path / cache)}}
        found = resolve(f"{cache}::{kind}://b/d/s_1.cstore", storage_options=options)
        file, head = open_file(found.locations[0])
        assert bytes(head) == FILES["b/d/s_1.cstore"][: len(head)]
        array = file.map(1000)
        assert array is not None
        assert array.tobytes() == FILES["b/d/s_1.cstore"][:1000]
        assert file.token == store.opened().token
        copy = pickle.loads(pickle.dumps(file))
        assert bytes(copy.read(3, 3)) == FILES["b/d/s_1.cstore"][3:6]
        many = resolve(f"{cache}::{kind}://b/d/s_*.cstore", storage_options=options)
        assert [item.url for item in many.locations] == [f"{cache}::{kind}://{path}" for path in FILES]
        assert [file.size for file, _ in open_files(many.locations)] == [len(data) for data in FILES.values()]


def test_members_of_archives_are_files(tmp_path: Any) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("in/s_2.cstore", "in/s_10.cstore"):
            archive.writestr(name, DATA)
    found = resolve(f"zip://in/s_*.cstore::{tmp_path}/a.zip")
    assert [item.spelling for item in found.locations] == [
        f"zip://in/s_2.cstore::{tmp_path}/a.zip",
        f"zip://in/s_10.cstore::{tmp_path}/a.zip",
    ]
    file, head = open_file(found.locations[1])
    assert bytes(head) == DATA[:65536]
    assert bytes(file.read(100_000, 5)) == DATA[100_000:100_005]
    copy = reopen(found.locations[1].url, size=file.size, token=file.token)
    assert bytes(copy.read(100_000, 5)) == DATA[100_000:100_005]


@pytest.mark.parametrize("name", ["run[1]", "all*", "what?", "a b", "ü²"])
def test_names_with_special_characters_are_literal_where_they_exist(kind: str, name: str) -> None:
    store = Store(kind, **{f"b/{name}/{name}.cstore": DATA, "b/run1/run1.cstore": DATA})
    (location,) = store.resolve(f"b/{name}/{name}.cstore").locations
    assert location.path == f"b/{name}/{name}.cstore"
    assert bytes(open_file(location)[1]) == DATA[:65536]
    found = store.resolve(f"b/{name}/")
    assert found.kind == "directory"
    assert [item.path for item in found.locations] == [f"b/{name}/{name}.cstore"]


def test_partition_folders_are_entered_and_others_are_not(kind: str) -> None:
    names = [
        "year=10/a.cstore",
        "year=9/k=1/a.cstore",
        "other/a.cstore",
        "_tmp=1/a.cstore",
        "a.cstore.crc",
        "_colstore-00000001.json",
    ]
    store = Store(kind, **{f"b/set/{name}": DATA for name in names})
    found = store.resolve("b/set/")
    assert [item.path for item in found.locations] == ["b/set/year=9/k=1/a.cstore", "b/set/year=10/a.cstore"]
    assert [item.path for item in found.hidden] == ["b/set/_colstore-00000001.json"]
    assert found.root is not None
    assert found.root.child("year=10/a.cstore").path == "b/set/year=10/a.cstore"
    assert found.root.child("year=10/a.cstore").url == f"{kind}://b/set/year=10/a.cstore"
    assert found.locations[0].parent().path == "b/set/year=9/k=1"


def test_memory_files_have_tokens_that_follow_their_contents() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/token_test/a.cstore", DATA)
    location = resolve("memory://token_test/a.cstore").locations[0]
    file, _ = open_file(location)
    assert current_token(location) == (file.size, file.token)
    (listed,) = resolve("memory://token_test/*.cstore").locations
    assert listed.token == file.token
    fs.pipe_file("/token_test/a.cstore", DATA[::-1])
    assert file.stat_changed()


def test_a_store_that_tells_no_version_warns_once() -> None:
    class Silent(SerialCountingFileSystem):
        protocol = "silent"

        def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
            return {key: value for key, value in super().info(path).items() if key != "ETag"}

    name, store = new_store()
    store.put("b/x.cstore", DATA)
    found = resolve("b/x.cstore", filesystem=Silent(name)).locations[0]
    with pytest.warns(RuntimeWarning, match="silent"):
        file, _ = open_file(found)
    assert file.token == f"size:{len(DATA)}"
    open_file(found)


def test_a_store_that_tells_no_size_is_refused() -> None:
    class Sizeless(SerialCountingFileSystem):
        protocol = "sizeless"

        def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
            return {**super().info(path), "size": None}

    name, store = new_store()
    store.put("b/x.cstore", DATA)
    with pytest.raises(StorageError, match="size"):
        open_file(resolve("b/x.cstore", filesystem=Sizeless(name)).locations[0])


# -- credentials


def test_credentials_are_in_no_repr_and_no_error(kind: str) -> None:
    store = Store(kind)
    secret = "hunter2"

    def failing(request: Request, data: bytes) -> Any:
        return OSError(f"cannot reach https://user:{secret}@host/x?sig={secret} with secret_key={secret}")

    location = resolve(f"{kind}://b/d/s_1.cstore", storage_options=store.options).locations[0]
    file, _ = open_file(location)
    store.store.tamper = failing
    with pytest.raises(StorageError) as caught:
        file.read(0, 10)
    assert secret not in str(caught.value)
    assert caught.value.__suppress_context__
    url = f"https://user:{secret}@127.0.0.1/f.cstore?sig={secret}"
    shown = resolve(url)
    assert secret not in repr(shown)
    assert secret not in repr(reopen(shown.locations[0], size=1, token=None))
    with pytest.raises((ValueError, ImportError)) as wrong:
        resolve(f"nosuch://user:{secret}@host/x")
    assert secret not in str(wrong.value)


# -- writing


def test_an_object_is_written_whole_and_listings_notice(kind: str) -> None:
    store = Store(kind)
    root = store.resolve("b/d/").root
    target = root.child("s_11.cstore")
    write_object(target, [b"abc", bytearray(b"def"), memoryview(b"ghi")])
    assert store.store.objects["b/d/s_11.cstore"] == b"abcdefghi"
    assert [entry.name for entry in list_names(root)] == [
        "s_1.cstore",
        "s_2.cstore",
        "s_10.cstore",
        "s_11.cstore",
    ]
    write_object(f"{kind}://b/d/s_12.cstore", iter([b"x"]), storage_options=store.options)
    assert len(store.resolve("b/d/").locations) == 5


def test_an_exclusive_write_refuses_an_existing_object(kind: str) -> None:
    store = Store(kind)
    target = store.resolve("b/d/").root.child("s_1.cstore")
    with pytest.raises(FileExistsError, match=r"s_1\.cstore"):
        write_object(target, [b"abc"], exclusive=True)
    assert store.store.objects["b/d/s_1.cstore"] == FILES["b/d/s_1.cstore"]
    write_object(target.parent().child("s_3.cstore"), [b"abc"], exclusive=True)
    assert store.store.objects["b/d/s_3.cstore"] == b"abc"


def test_a_failing_source_writes_nothing(kind: str) -> None:
    store = Store(kind)

    def chunks() -> Any:
        yield b"abc"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_object(store.resolve("b/d/").root.child("s_3.cstore"), chunks())
    assert "b/d/s_3.cstore" not in store.store.objects
