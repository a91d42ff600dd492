"""Local files: resolving, opening, mapping, staleness, and how little the process holds for them."""

from __future__ import annotations

import ctypes
import gc
import io
import os
import pickle
import threading
import weakref
from pathlib import Path

import fsspec
import numpy as np
import pytest

from colstore_io.errors import FormatError, StaleDatasetError, TruncatedFileError
from colstore_io.storage import (
    IOStats,
    LocalFile,
    current_token,
    list_names,
    open_file,
    open_files,
    read_ranges,
    reopen,
    resolve,
)
from colstore_io.storage import mapping as storage_mapping

DATA = bytes(range(256)) * 1000


def write(path: Path, data: bytes = DATA) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def opened(path: Path, **options: object) -> LocalFile:
    file, _ = open_file(resolve(path).locations[0], **options)
    assert isinstance(file, LocalFile)
    return file


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- resolving


def test_a_path_is_a_file_with_its_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.cstore")
    monkeypatch.chdir(tmp_path)
    found = resolve("a.cstore")
    assert found.kind == "file"
    (location,) = found.locations
    assert location.spelling == "a.cstore"
    assert location.url == location.local_path == str(tmp_path / "a.cstore")
    assert resolve(f"file://{tmp_path}/a.cstore").locations[0].local_path == location.local_path


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for spelling in ("gone.cstore", "gone_*.cstore"):
        with pytest.raises(FileNotFoundError, match="gone"):
            resolve(str(tmp_path / spelling))
    with pytest.raises(FileNotFoundError):
        resolve(tmp_path / "a.cstore" / "b")
    with pytest.raises(FileNotFoundError):
        resolve("a\0b")


def test_a_pattern_gives_its_files_in_natural_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("run_10.cstore", "run_2.cstore", "run_1.cstore", "other.cstore", ".run_3.cstore"):
        write(tmp_path / "d" / name)
    monkeypatch.chdir(tmp_path)
    found = resolve("d/run_*.cstore")
    assert found.kind == "pattern"
    assert [item.spelling for item in found.locations] == [
        "d/run_1.cstore",
        "d/run_2.cstore",
        "d/run_10.cstore",
    ]
    assert [item.spelling for item in resolve("d/run_?.cstore").locations] == [
        "d/run_1.cstore",
        "d/run_2.cstore",
    ]
    assert [item.spelling for item in resolve("d/run_[12].cstore").locations] == [
        "d/run_1.cstore",
        "d/run_2.cstore",
    ]


def test_two_stars_match_folders_of_any_depth(tmp_path: Path) -> None:
    for name in ("a.cstore", "x/b.cstore", "x/y/c.cstore", "x/y/c.txt"):
        write(tmp_path / name)
    found = resolve(f"{tmp_path}/**/*.cstore")
    assert [item.spelling.removeprefix(f"{tmp_path}/") for item in found.locations] == [
        "a.cstore",
        "x/b.cstore",
        "x/y/c.cstore",
    ]


@pytest.mark.parametrize(
    "name", ["run[1].cstore", "run*.cstore", "what?.cstore", "a b.cstore", "ü²٣.cstore", "a::b.cstore"]
)
def test_what_is_there_literally_wins_over_a_pattern(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    write(tmp_path / "run1.cstore", b"other")
    found = resolve(str(tmp_path / name))
    assert found.kind == "file"
    assert [item.local_path for item in found.locations] == [str(tmp_path / name)]


def test_a_path_object_is_never_a_pattern(tmp_path: Path) -> None:
    write(tmp_path / "run1.cstore")
    with pytest.raises(FileNotFoundError):
        resolve(tmp_path / "run*.cstore")


@pytest.mark.parametrize("name", ["plain", "data[1]", "all*", "what?"])
def test_a_directory_lists_its_members_without_globbing(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    for member in ("s_10.cstore", "s_9.cstore", "_x.cstore", ".s.cstore", "s_9.cstore.crc", "notes.txt"):
        write(folder / member)
    write(folder / "plain_folder" / "no.cstore")
    write(folder / "year=2" / "k=1" / "a.cstore")
    write(folder / "year=10" / "a.cstore")
    write(folder / "_colstore-00000001.json", b"{}")
    (folder / "folder.cstore").mkdir()
    found = resolve(str(folder))
    assert found.kind == "directory"
    assert found.root is not None
    assert found.root.local_path == str(folder)
    assert [item.spelling.removeprefix(f"{folder}/") for item in found.locations] == [
        "s_9.cstore",
        "s_10.cstore",
        "year=2/k=1/a.cstore",
        "year=10/a.cstore",
    ]
    assert [Path(item.path).name for item in found.hidden] == ["_colstore-00000001.json", "_x.cstore"]


def test_an_empty_directory_has_no_members(tmp_path: Path) -> None:
    assert resolve(tmp_path).locations == ()


def test_two_formats_in_a_directory_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.cstore")
    write(tmp_path / "b.abcd")
    with pytest.raises(ValueError, match=r"\.abcd, \.cstore"):
        resolve(tmp_path)


def test_a_pattern_over_a_dataset_skips_what_is_no_member(tmp_path: Path) -> None:
    for name in ("a.cstore", "_colstore-00000001.json", "a.cstore.crc"):
        write(tmp_path / name)
    assert [item.spelling for item in resolve(f"{tmp_path}/*").locations] == [f"{tmp_path}/a.cstore"]
    assert len(resolve(f"{tmp_path}/_*").locations) == 1


def test_what_is_no_path_is_refused(tmp_path: Path) -> None:
    for value in (b"bytes are contents", 3, None, io.BytesIO(b""), ["a"]):
        with pytest.raises(TypeError):
            resolve(value)
    with pytest.raises(TypeError):
        resolve("x", filesystem="file")
    with pytest.raises(ValueError, match="nosuchprotocol"):
        resolve("nosuchprotocol://x")


def test_special_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.cstore")
    with pytest.raises(OSError, match="regular"):
        resolve(tmp_path / "pipe.cstore")


def test_fsspec_objects_name_their_file(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a[1].cstore"))
    waiting = fsspec.open(f"file://{path}", expand=False)
    assert resolve(waiting).locations[0].local_path == path
    with waiting as handle:
        assert resolve(handle).locations[0].local_path == path
    with pytest.raises(ValueError, match="compressed"):
        resolve(fsspec.open(f"file://{path}.gz", compression="gzip"))


def test_a_filesystem_of_the_caller_is_used(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    found = resolve(str(path), filesystem=fsspec.filesystem("file"))
    assert found.locations[0].local_path == str(path)


def test_a_listing_has_names_sizes_and_tokens(tmp_path: Path) -> None:
    for name in ("b_10.cstore", "b_2.cstore", ".lock", "_colstore-00000001.json"):
        write(tmp_path / name, b"123")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    root = resolve(tmp_path).root
    assert root is not None
    entries = list_names(root)
    assert [entry.name for entry in entries] == [
        ".lock",
        "_colstore-00000001.json",
        "b_2.cstore",
        "b_10.cstore",
    ]
    for entry in entries:
        location = root.child(entry.name)
        assert current_token(location) == (3, entry.token)
        assert location.parent().local_path == str(tmp_path)


# -- opening and reading


def test_opening_reads_the_head_and_knows_the_size(tmp_path: Path) -> None:
    io_stats = IOStats()
    file, head = open_file(resolve(write(tmp_path / "a.cstore")).locations[0], io=io_stats)
    assert file.size == len(DATA)
    assert len(head) == 4096
    assert bytes(head) == DATA[:4096]
    assert (io_stats.requests, io_stats.bytes, io_stats.metadata_requests) == (1, 4096, 0)
    assert len(open_file(resolve(tmp_path / "a.cstore").locations[0], head_bytes=100_000)[1]) == 100_000


def test_an_empty_file_has_an_empty_head(tmp_path: Path) -> None:
    file, head = open_file(resolve(write(tmp_path / "a.cstore", b"")).locations[0])
    assert bytes(head) == b""
    assert file.size == 0
    mapped = file.map(0)
    assert mapped is not None
    assert mapped.shape == (0,)


def test_a_missing_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    write(tmp_path / "a.cstore")
    location = resolve(tmp_path / "a.cstore").locations[0]
    os.remove(tmp_path / "a.cstore")
    with pytest.raises(FileNotFoundError, match=r"a\.cstore"):
        open_file(location)
    (tmp_path / "a.cstore").mkdir()
    with pytest.raises(IsADirectoryError, match=r"a\.cstore"):
        open_file(location)


@pytest.mark.parametrize("mmap", [True, False])
def test_reads_are_exact(tmp_path: Path, mmap: bool) -> None:
    file = opened(write(tmp_path / "a.cstore"), mmap=mmap)
    assert bytes(file.read(1000, 50)) == DATA[1000:1050]
    assert file.read(1000, 50).readonly
    assert bytes(file.read(len(DATA), 0)) == b""
    with pytest.raises(TruncatedFileError, match=r"a\.cstore.*offset"):
        file.read(len(DATA) - 1, 2)
    for offset, length in ((-1, 5), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            file.read(offset, length)
    wanted = [(5, 10), (100_000, 1), (7, 4), (0, 0), (len(DATA) - 3, 3)]
    for (offset, length), data in zip(wanted, read_ranges([(file, *pair) for pair in wanted]), strict=True):
        assert bytes(data) == DATA[offset : offset + length]


def test_a_mapping_is_read_only_and_outlives_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    file = opened(path)
    array = file.map(1000)
    assert array is not None
    assert array.dtype == np.uint8
    assert array.tobytes() == DATA[:1000]
    assert not array.flags.writeable
    with pytest.raises(ValueError):
        array.flags.writeable = True
    view = array[10:20]
    file.close()
    del array, file
    gc.collect()
    os.remove(path)
    assert view.tobytes() == DATA[10:20]
    (path.parent / "b").write_bytes(b"")


def test_without_mmap_there_is_no_mapping(tmp_path: Path) -> None:
    assert opened(write(tmp_path / "a.cstore"), mmap=False).map(10) is None


def test_a_file_is_mapped_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    first, second = opened(path), opened(path)
    one, two = first.map(2000), second.map(1000)
    assert one is not None
    assert two is not None
    assert one.ctypes.data == two.ctypes.data
    longer = first.map(5000)
    assert longer is not None
    assert longer.tobytes() == DATA[:5000]


def test_a_changed_file_gets_a_mapping_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    old = opened(path).map(100)
    write(tmp_path / "new", DATA[::-1])
    os.replace(tmp_path / "new", path)
    new = opened(path).map(100)
    assert old is not None
    assert new is not None
    assert old.tobytes() == DATA[:100]
    assert new.tobytes() == DATA[::-1][:100]


def test_mappings_past_the_capacity_are_dropped_unless_used(tmp_path: Path) -> None:
    store = storage_mapping.mappings
    files = [opened(write(tmp_path / f"{number}.cstore")) for number in range(store.capacity + 10)]
    kept = files[0].map(100)
    owners = []
    for file in files:
        array = file.map(100)
        assert array is not None
        owners.append(weakref.ref(array.base.base if isinstance(array.base, np.ndarray) else array.base))
    del array
    gc.collect()
    assert len(store) <= store.capacity
    assert kept is not None
    assert kept.tobytes() == DATA[:100]
    again = files[0].map(100)
    assert again is not None
    assert again.ctypes.data == kept.ctypes.data  # found again although it fell out
    assert sum(owner() is None for owner in owners) >= 9


def test_two_thousand_files_need_no_descriptors(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / f"f{number}.cstore").write_bytes(DATA[:500])
    before = open_descriptors()
    files = open_files(resolve(tmp_path).locations)
    assert open_descriptors() <= before + 1
    arrays = [file.map(500) for file, _ in files]
    assert open_descriptors() <= before + storage_mapping.DESCRIPTOR_CAPACITY + 1
    assert all(array is not None and array[255] == 255 for array in arrays)
    for file, _ in files:
        assert bytes(file.read(255, 1)) == b"\xff"
    assert open_descriptors() <= before + storage_mapping.DESCRIPTOR_CAPACITY + 1
    for file, _ in files:
        file.close()
    assert open_descriptors() <= before


def test_a_forgotten_file_gives_its_descriptor_back(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    before = open_descriptors()
    file = opened(path)
    assert open_descriptors() == before + 1
    del file
    gc.collect()
    assert open_descriptors() == before


def test_a_closed_file_cannot_be_read(tmp_path: Path) -> None:
    file = opened(write(tmp_path / "a.cstore"))
    with file:
        file.read(0, 1)
    file.close()
    with pytest.raises(ValueError, match="is closed"):
        file.read(0, 1)
    with pytest.raises(ValueError, match="is closed"):
        file.map(10)


def test_advice_and_locking_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, advice in enumerate(("normal", "sequential", "random", "willneed", "dontneed", None)):
        file = opened(write(tmp_path / f"{number}.cstore"), madvise=advice)
        array = file.map(1000)
        assert array is not None
        assert array.tobytes() == DATA[:1000]
    with pytest.raises(ValueError, match="madvise"):
        opened(tmp_path / "0.cstore", madvise="wrong")

    class Refusing:
        def mlock(self, *_: object) -> int:
            ctypes.set_errno(12)
            return -1

        def __getattr__(self, name: str) -> object:
            return getattr(libc, name)

    libc = storage_mapping._LIBC
    monkeypatch.setattr(storage_mapping, "_LIBC", Refusing())
    file = opened(write(tmp_path / "locked.cstore"), mlock=True)
    with pytest.warns(RuntimeWarning, match="mlock of .*locked"):
        file.map(1000)


def test_mapping_works_without_the_c_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_mapping, "_LIBC", None)
    array = opened(write(tmp_path / "a.cstore")).map(1000)
    assert array is not None
    assert array.tobytes() == DATA[:1000]
    assert not array.flags.writeable


def test_many_threads_read_one_file(tmp_path: Path) -> None:
    file = opened(write(tmp_path / "a.cstore"), mmap=False)
    errors: list[object] = []

    def work(seed: int) -> None:
        for step in range(200):
            offset = (seed * 7919 + step * 104729) % (len(DATA) - 64)
            if bytes(file.read(offset, 64)) != DATA[offset : offset + 64]:
                errors.append(offset)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


# -- changes behind our back


def test_chmod_and_links_do_not_change_the_token(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    file = opened(path)
    os.chmod(path, 0o600)
    os.link(path, tmp_path / "b.cstore")
    assert current_token(resolve(path).locations[0]) == (len(DATA), file.token)
    assert not file.stat_changed()
    os.utime(path, ns=(1, 1))
    assert file.stat_changed()
    assert not file.inode_changed()


@pytest.mark.parametrize("mmap", [True, False])
def test_an_open_file_goes_on_with_the_old_contents_after_a_replacement(tmp_path: Path, mmap: bool) -> None:
    path = write(tmp_path / "a.cstore")
    file = opened(path, mmap=mmap)
    write(tmp_path / "new", DATA[::-1])
    os.replace(tmp_path / "new", path)
    assert bytes(file.read(1, 9)) == DATA[1:10]
    assert file.stat_changed()
    assert file.inode_changed()
    file.check_size(len(DATA))
    if mmap:
        array = file.map(100)
        assert array is not None
        assert array.tobytes() == DATA[:100]


def test_a_file_whose_descriptor_was_given_up_notices_a_replacement(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    file = opened(path)
    storage_mapping.descriptors.release(file)
    assert bytes(file.read(1, 9)) == DATA[1:10]
    storage_mapping.descriptors.release(file)
    write(tmp_path / "new", DATA[::-1])
    os.replace(tmp_path / "new", path)
    with pytest.raises(StaleDatasetError, match=r"a\.cstore was replaced"):
        file.read(1, 9)
    os.remove(path)
    with pytest.raises(StaleDatasetError, match=r"a\.cstore was removed"):
        file.map(10)


def test_a_file_opened_here_may_grow(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    file = opened(path)
    token = file.token
    storage_mapping.descriptors.release(file)
    with open(path, "ab") as handle:
        handle.write(b"more")
    assert bytes(file.read(0, 10)) == DATA[:10]
    assert file.token == token
    assert file.size == len(DATA)


def test_a_file_cut_short_is_noticed_by_size_check_and_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    for release in (False, True):
        write(path)
        file = opened(path, mmap=False)
        file.check_size(len(DATA))
        if release:
            storage_mapping.descriptors.release(file)
        os.truncate(path, 1000)
        with pytest.raises(FormatError, match=r"a\.cstore"):
            file.check_size(len(DATA))
        file.check_size(1000)
        with pytest.raises(TruncatedFileError, match=r"a\.cstore"):
            file.read(990, 20)
        mapped = opened(path)
        os.truncate(path, 10)
        with pytest.raises(TruncatedFileError):
            mapped.map(1000)


def test_a_pickle_carries_no_data_and_reopens_without_a_look(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    file = opened(path, mmap=False)
    text = pickle.dumps(file)
    assert len(text) < 600
    os.rename(path, tmp_path / "away")
    copy = pickle.loads(text)  # nothing is asked yet
    os.rename(tmp_path / "away", path)
    assert (copy.size, copy.token, copy.spelling) == (file.size, file.token, file.spelling)
    assert copy.map(10) is None
    assert bytes(copy.read(3, 4)) == DATA[3:7]
    assert copy.io.requests == 1


@pytest.mark.parametrize("mmap", [True, False])
def test_a_reopened_file_compares_its_token_before_the_first_byte(tmp_path: Path, mmap: bool) -> None:
    path = write(tmp_path / "a.cstore")
    size, token = current_token(resolve(path).locations[0])
    with open(path, "ab") as handle:
        handle.write(b"more")
    copy = reopen(str(path), size=size, token=token, mmap=mmap)
    assert copy.stat_changed()
    with pytest.raises(StaleDatasetError, match=r"a\.cstore was changed"):
        copy.read(0, 1)
    if mmap:
        with pytest.raises(StaleDatasetError):
            copy.map(1)


@pytest.mark.parametrize("answer", [True, False])
def test_the_caller_decides_whether_a_changed_file_was_only_appended_to(tmp_path: Path, answer: bool) -> None:
    path = write(tmp_path / "a.cstore")
    size, token = current_token(resolve(path).locations[0])
    with open(path, "ab") as handle:
        handle.write(b"more")
    copy = reopen(str(path), size=size, token=token)
    assert isinstance(copy, LocalFile)
    asked: list[bytes] = []

    def only_appended(file: LocalFile) -> bool:
        asked.append(bytes(file.read(0, 8)))
        return answer

    copy.on_change = only_appended
    if answer:
        array = copy.map(100)
        assert array is not None
        assert bytes(copy.read(5, 5)) == DATA[5:10]
        assert copy.token == token
    else:
        for _ in range(2):
            with pytest.raises(StaleDatasetError, match="not only appended"):
                copy.read(5, 5)
    assert set(asked) == {DATA[:8]}
    assert len(asked) == (1 if answer else 2)


def test_a_reopened_file_on_another_inode_is_stale_whatever_the_caller_says(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    size, token = current_token(resolve(path).locations[0])
    write(tmp_path / "new")
    os.replace(tmp_path / "new", path)
    copy = reopen(str(path), size=size, token=token)
    assert isinstance(copy, LocalFile)
    copy.on_change = lambda file: True
    with pytest.raises(StaleDatasetError, match="replaced"):
        copy.read(0, 1)


# From Python 3.12 on a fork in a process with threads warns; that it works is what is tested.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_reads_what_the_parent_opened(tmp_path: Path) -> None:
    file = opened(write(tmp_path / "a.cstore"))
    array = file.map(1000)
    child = os.fork()
    if child == 0:
        good = array is not None and array.tobytes() == DATA[:1000] and bytes(file.read(5, 5)) == DATA[5:10]
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- memory and file objects


@pytest.mark.parametrize(
    "data", [DATA, bytearray(DATA), memoryview(DATA), np.frombuffer(DATA, "<u4"), io.BytesIO(DATA)]
)
def test_contents_in_memory_are_a_file(data: object) -> None:
    file, head = open_file(data)
    assert file.size == len(DATA)
    assert bytes(head) == DATA[: len(head)]
    assert bytes(file.read(10, 5)) == DATA[10:15]
    array = file.map(100)
    assert array is not None
    assert array.tobytes() == DATA[:100]
    assert not array.flags.writeable
    with pytest.raises(TruncatedFileError):
        file.read(len(DATA), 1)
    with pytest.raises(FormatError):
        file.check_size(len(DATA) + 1)
    copy = pickle.loads(pickle.dumps(file))
    assert copy.token == file.token
    assert bytes(copy.read(0, 10)) == DATA[:10]
    assert file.token != open_file(DATA + b"x")[0].token


def test_empty_contents_are_an_empty_file() -> None:
    file, head = open_file(b"")
    assert (file.size, bytes(head)) == (0, b"")


def test_what_is_no_contents_is_refused() -> None:
    for value in (3, "text", None, np.zeros((4, 4))[:, ::2]):
        with pytest.raises((TypeError, ValueError)):
            open_file(value)


def test_a_file_object_is_read_in_turns_by_many_threads(tmp_path: Path) -> None:
    with open(write(tmp_path / "a.cstore"), "rb") as handle:
        handle.seek(17)
        file, head = open_file(handle)
        assert bytes(head) == DATA[: len(head)]
        assert file.map(10) is None
        results: list[bool] = []

        def work(seed: int) -> None:
            for step in range(100):
                offset = (seed * 7919 + step * 104729) % (len(DATA) - 64)
                results.append(bytes(file.read(offset, 64)) == DATA[offset : offset + 64])

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [True] * 400
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(file)
        file.close()
        assert not handle.closed
        with pytest.raises(ValueError, match="closed"):
            file.read(0, 1)


def test_a_file_object_that_is_cut_short_is_truncated(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    with open(path, "rb", buffering=0) as handle:
        file, _ = open_file(handle)
        os.truncate(path, 100)
        with pytest.raises(TruncatedFileError):
            file.read(90, 20)


def test_text_and_unseekable_file_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="binary"):
        open_file(io.StringIO("text"))
    read_end, write_end = os.pipe()
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe, pytest.raises(TypeError, match="seekable"):
        open_file(pipe)


# -- counters


def test_counters_add_up_over_threads_and_survive_pickling() -> None:
    stats = IOStats()

    def work() -> None:
        for _ in range(1000):
            stats.add(requests=1, bytes=2, metadata_requests=3)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (stats.requests, stats.bytes, stats.metadata_requests) == (4000, 8000, 12000)
    copy = pickle.loads(pickle.dumps(stats))
    assert copy.as_dict() == stats.as_dict()
    assert "requests=4000" in repr(copy)
    stats.reset()
    assert stats.as_dict() == {"requests": 0, "bytes": 0, "metadata_requests": 0, "seconds": 0.0}


def test_a_pipe_among_the_members_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.cstore")
    (location,) = resolve(tmp_path).locations
    with pytest.raises(OSError, match="regular"):
        open_file(location)


def test_a_link_to_itself_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "loop.cstore").symlink_to("loop.cstore")
    (location,) = resolve(tmp_path).locations
    with pytest.raises(OSError, match="loop"):
        open_file(location)


def test_a_pickled_location_is_small_and_the_same(tmp_path: Path) -> None:
    (location,) = resolve(write(tmp_path / "a.cstore")).locations
    text = pickle.dumps(location)
    assert len(text) < 100 + 2 * len(str(tmp_path / "a.cstore"))
    assert pickle.loads(text) == location
