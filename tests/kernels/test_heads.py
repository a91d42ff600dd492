"""Heads of many files: the compiled loop against its twin."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import colstore_io as cs
from colstore_io import kernels_numpy
from colstore_io.kernels import heads as compiled

FAMILIES = [compiled, kernels_numpy]
ROOM = 2048
ROW_BYTES = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        data = {"a": np.arange(number + 2.0), "b": np.ones(number + 2, "i4")}
        cs.store(data, tmp_path / f"{number}.cstore").close()
    return tmp_path


def named(paths: list[Path]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def read(family, paths: list[Path], room: int = ROOM) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    heads = np.zeros((len(paths), room), np.uint8)
    states = np.empty((len(paths), compiled.HEAD_FIELDS), np.int64)
    family.read_heads(named(paths), heads, states)
    return heads, states


def test_both_families_read_the_same(folder: Path) -> None:
    (folder / "empty").touch()
    os.mkfifo(folder / "pipe")
    paths = [*sorted(folder.glob("*.cstore")), folder / "empty", folder, folder / "pipe", folder / "gone"]
    (heads, states), (twin_heads, twin_states) = (read(family, paths) for family in FAMILIES)
    np.testing.assert_array_equal(states, twin_states)
    np.testing.assert_array_equal(heads, twin_heads)
    for path, state in zip(paths[:5], states, strict=False):
        found = path.stat()
        assert state.tolist() == [
            0, min(ROOM, found.st_size), found.st_size, found.st_mtime_ns, found.st_ino
        ]  # fmt: skip
    assert states[5:, 0].tolist() == [-1, -1, 2]


@pytest.mark.parametrize("family", FAMILIES)
def test_arguments_that_do_not_fit_are_refused(family, folder: Path) -> None:
    heads, states = np.zeros((2, 8), np.uint8), np.zeros((2, compiled.HEAD_FIELDS), np.int64)
    with pytest.raises(ValueError):
        family.read_heads(b"one\0two", heads, states)
    with pytest.raises(ValueError):
        family.read_heads(b"one\0two\0", heads, states[:1])
    rows = np.zeros(2, np.int64)
    for text_end, record, row_bytes in ((71, 80, 1), (90, 80, 1), (80, 2000, 1), (80, 80, 0)):
        with pytest.raises(ValueError):
            family.alike(np.zeros((2, 100), np.uint8), states, text_end, record, row_bytes, rows)


def layout_of(head: NDArray[np.uint8]) -> tuple[int, int]:
    text_end = 80 + int.from_bytes(head[72:80].tobytes(), "little")
    return text_end, -(-text_end // 64) * 64


def test_both_families_accept_the_same_heads(folder: Path) -> None:
    heads, states = read(compiled, sorted(folder.glob("*.cstore")))
    text_end, record = layout_of(heads[0])
    found = []
    for family in FAMILIES:
        rows = np.zeros(4, np.int64)
        assert family.alike(heads, states, text_end, record, ROW_BYTES, rows) == 4
        found.append(rows.tolist())
    assert found == [[2, 3, 4, 5]] * 2


def test_every_flipped_byte_is_judged_alike(folder: Path) -> None:
    heads, states = read(compiled, sorted(folder.glob("*.cstore"))[:2])
    text_end, record = layout_of(heads[0])
    for at in range(record + 32):
        damaged = heads.copy()
        damaged[1, at] ^= 0x41
        verdicts = []
        for family in FAMILIES:
            rows = np.zeros(2, np.int64)
            family.alike(damaged, states, text_end, record, ROW_BYTES, rows)
            verdicts.append(rows.tolist())
        assert verdicts[0] == verdicts[1]
        # What no checksum covers and no reader looks at: the rest of the counters, and padding.
        free = 36 <= at < 72 or text_end <= at < record
        assert (verdicts[0][1] == 3) == free, at


@pytest.mark.parametrize("n_rows", [-1, 4, 1 << 40, (1 << 63) - 1])
def test_rows_that_the_file_does_not_hold_are_refused(folder: Path, n_rows: int) -> None:
    """With checksums that fit."""
    heads, states = read(compiled, sorted(folder.glob("*.cstore"))[:2])
    text_end, record = layout_of(heads[0])
    head = bytearray(heads[1].tobytes())
    head[16:24] = struct.pack("<q", n_rows)
    head[32:36] = struct.pack("<I", zlib.crc32(head[8:32]))
    head[record + 12 : record + 20] = struct.pack("<q", n_rows)
    head[record + 28 : record + 32] = struct.pack("<I", zlib.crc32(head[record : record + 28]))
    heads[1] = np.frombuffer(head, np.uint8)
    for family in FAMILIES:
        rows = np.zeros(2, np.int64)
        assert family.alike(heads, states, text_end, record, ROW_BYTES, rows) == 1
        assert rows.tolist() == [2, -1]
