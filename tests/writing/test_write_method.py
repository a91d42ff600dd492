"""`config.set_write_method`: another way to the same bytes, with the same answer to a full disk."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colstore_io as cs
from colstore_io import config
from colstore_io.writing import output
from colstore_io.writing.writer import Writer

ROWS = 400_000  # 5 MB: some pieces in the middle, and ends that are no multiple of anything


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = config.get_write_method()
    yield
    config.set_write_method(before)


def rows(start: int, n: int = ROWS) -> dict[str, np.ndarray]:
    return {"x": np.arange(start, start + n) * 0.5, "k": np.arange(n, dtype="i4"), "f": np.arange(n) % 3 == 0}


def write_every_way(folder: Path) -> dict[str, bytes]:
    """Write by every kind of writer; return the files."""
    folder.mkdir()
    cs.store(rows(0), folder / "store.cstore", statistics=True).close()
    cs.store(iter([rows(0, 7), rows(7)]), folder / "stream.cstore", compact=True).close()
    with Writer(folder / "writer.cstore", mode="create") as writer:
        writer.write(rows(0))
        writer.commit()
        writer.write(rows(5, 3))
    with Writer(folder / "writer.cstore", mode="update") as writer:
        writer.write(rows(8))
    cs.concat([folder / "store.cstore", folder / "stream.cstore"], folder / "concat.cstore")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def writable_mappings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the length of every writable mapping."""
    lengths: list[int] = []
    real = mmap.mmap

    def counted(fd: int, length: int, **options: Any) -> mmap.mmap:
        if options.get("access") == mmap.ACCESS_WRITE:
            lengths.append(length)
        return real(fd, length, **options)

    monkeypatch.setattr(output.mmap, "mmap", counted)
    return lengths


needs_reservation = pytest.mark.skipif(
    not hasattr(os, "posix_fallocate"), reason="the system cannot reserve space for a mapping"
)


@needs_reservation
def test_every_method_writes_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = writable_mappings(monkeypatch)
    expected = write_every_way(tmp_path / "auto")
    config.set_write_method("pwrite")
    assert write_every_way(tmp_path / "pwrite") == expected
    assert not lengths
    config.set_write_method("mmap")
    assert write_every_way(tmp_path / "mmap") == expected
    assert sum(lengths) > ROWS * 13 * 5


@needs_reservation
@pytest.mark.parametrize("offset", [0, 1, mmap.ALLOCATIONGRANULARITY - 1, 3 * mmap.ALLOCATIONGRANULARITY + 5])
def test_mapping_leaves_the_rest_of_the_file_alone(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "f"
    before = os.urandom(2 * mmap.ALLOCATIONGRANULARITY)
    path.write_bytes(before)
    with path.open("r+b") as file:
        assert output._fill_mapping(file.fileno(), [memoryview(b"abc"), memoryview(b"de")], offset) == 5
    want = before.ljust(offset, b"\0")
    assert path.read_bytes() == want[:offset] + b"abcde" + want[offset + 5 :]


@needs_reservation
def test_full_disk_is_an_error_and_the_target_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.set_write_method("mmap")
    path = tmp_path / "t.cstore"
    cs.store(rows(0, 10), path).close()
    before = path.read_bytes()

    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="full"):
        cs.store(rows(0), path, mode="recreate")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("obstacle", ["no such call", "not on this file system", "no mappings"])
def test_files_that_cannot_be_filled_through_a_mapping_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise OSError(errno.ENODEV if obstacle == "no mappings" else errno.EOPNOTSUPP, "refused")

    if obstacle == "no such call":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    elif obstacle == "no mappings":
        monkeypatch.setattr(output.mmap, "mmap", refuse)
    else:
        monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    path = tmp_path / "f"
    with path.open("w+b") as file:
        assert output._fill_mapping(file.fileno(), [memoryview(b"ab"), memoryview(b"cd")], 3) == 4
    assert path.read_bytes() == b"\0\0\0abcd"


def test_method_is_checked() -> None:
    assert config.get_write_method() == "auto"
    with pytest.raises(ValueError, match="auto, pwrite, mmap"):
        config.set_write_method("bogus")  # type: ignore[arg-type]
