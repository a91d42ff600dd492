"""Local files: opening, mapping, and how little the process holds for them."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from local_files import DATA, open_descriptors, opened, write

from colstore_io.errors import TruncatedFileError
from colstore_io.storage import (
    IOStats,
    open_file,
    open_files,
    read_ranges,
    resolve,
)
from colstore_io.storage import mapping as storage_mapping


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
