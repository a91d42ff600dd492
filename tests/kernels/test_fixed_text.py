"""Text of fixed width becomes UTF-8 without its padding, whatever the rows hold."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colstore_io import kernels_numpy_text
from colstore_io.kernels import fixed_text

PAGE = mmap.PAGESIZE
FAMILIES = [fixed_text, kernels_numpy_text]

CODES = st.sampled_from([0, 0x41, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF])
BAD = st.sampled_from([0xD800, 0xDFFF, 0x110000, 0xFFFFFFFF])


def converted(family: Any, rows: np.ndarray, present: Any = None, threads: int = 1) -> Any:
    """Return offsets and bytes, or the bad row."""
    n, width = rows.shape
    offsets = np.full(n + 1, -7, np.int64)
    flat = rows.reshape(-1).view(np.uint8)
    bad = family.text_offsets(flat, width, rows.itemsize, offsets, present, threads=threads)
    if bad >= 0:
        return bad
    data = np.full(int(offsets[-1]) + 3, 0xEE, np.uint8)
    family.write_text(flat, width, rows.itemsize, offsets, data, threads=threads)
    assert (data[int(offsets[-1]) :] == 0xEE).all()
    return offsets.tolist(), data[: int(offsets[-1])].tobytes()


@given(st.data(), st.integers(1, 6), st.integers(0, 9), st.booleans())
def test_both_families_give_what_python_gives(data, width, n, flags):
    codes = data.draw(st.lists(st.lists(CODES | BAD, min_size=width, max_size=width), min_size=n, max_size=n))
    rows = np.array(codes, np.uint32).reshape(n, width)
    present = (
        np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), np.uint8) if flags else None
    )
    texts: list[bytes | None] = []
    for number, row in enumerate(codes):
        while row and row[-1] == 0:
            row = row[:-1]
        if present is not None and present[number] == 0:
            row = []
        try:
            texts.append("".join(map(chr, row)).encode())
        except (UnicodeEncodeError, ValueError, OverflowError):
            texts.append(None)
    for family in FAMILIES:
        found = converted(family, rows, present)
        if None in texts:
            assert texts[found] is None
        else:
            ends = np.cumsum([0, *map(len, texts)]).tolist()  # type: ignore[arg-type]
            assert found == (ends, b"".join(texts))  # type: ignore[arg-type]


@given(st.lists(st.binary(min_size=3, max_size=3), max_size=9))
def test_bytes_are_kept_as_they_are(values):
    rows = np.frombuffer(b"".join(values), np.uint8).reshape(-1, 3)
    stripped = [v.rstrip(b"\0") for v in values]
    for family in FAMILIES:
        assert converted(family, rows) == (np.cumsum([0, *map(len, stripped)]).tolist(), b"".join(stripped))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_share_the_rows(threads):
    rng = np.random.default_rng(1)
    rows = rng.choice(np.array([0, 65, 0xE9, 0x4E2D, 0x1F600], np.uint32), (100_000, 4))
    assert converted(fixed_text, rows, threads=threads) == converted(kernels_numpy_text, rows)
    rows[77_777, 0] = 0xD800
    assert converted(fixed_text, rows, threads=threads) == 77_777


class Fence:
    """Arrays beside a page that may not be touched."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.kept: list[tuple[mmap.mmap, int]] = []

    def array(self, nbytes: int, side: str) -> np.ndarray:
        pages = -(-max(nbytes, 1) // PAGE) + 1
        area = mmap.mmap(-1, pages * PAGE)
        whole = np.frombuffer(area, np.uint8)
        fence = whole.ctypes.data + (0 if side == "before" else (pages - 1) * PAGE)
        assert self.libc.mprotect(ctypes.c_void_p(fence), PAGE, 0) == 0
        self.kept.append((area, fence))
        at = PAGE if side == "before" else (pages - 1) * PAGE - nbytes
        return whole[at : at + nbytes]

    def close(self) -> None:
        for _, fence in self.kept:
            self.libc.mprotect(ctypes.c_void_p(fence), PAGE, mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.fixture
def fence():
    made = Fence()
    yield made
    made.close()


@pytest.mark.skipif(sys.platform != "linux", reason="uses mprotect")
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("width", [1, 2, 3, 7, 16])
def test_no_byte_outside_is_touched(fence: Fence, side: str, width: int) -> None:
    for codes in ([0x41], [0x1F600], [0x4E2D, 0x41], [0x41, 0], [0xE9, 0x1F600, 0x41]):
        wanted = np.resize(np.array(codes, np.uint32), (50, width))
        rows = fence.array(wanted.nbytes, side)
        rows[:] = wanted.reshape(-1).view(np.uint8)
        offsets = fence.array(51 * 8, side).view(np.int64)
        assert fixed_text.text_offsets(rows, width, 4, offsets) == -1
        data = fence.array(int(offsets[-1]), side)
        fixed_text.write_text(rows, width, 4, offsets, data)
        assert data.tobytes().decode() == "".join(
            "".join(map(chr, row)).rstrip("\0") for row in wanted.tolist()
        )
        # Rows that changed after they were measured: other bytes, none outside.
        rows[:] = np.full(wanted.shape, 0x1F600, np.uint32).reshape(-1).view(np.uint8)
        fixed_text.write_text(rows, width, 4, offsets, data)


@pytest.mark.parametrize("family", FAMILIES)
def test_lengths_that_do_not_fit_are_refused(family):
    rows, offsets = np.zeros(24, np.uint8), np.zeros(3, np.int64)
    assert family.text_offsets(rows, 3, 4, offsets) == -1
    for arguments in [(rows, 3, 2, offsets), (rows, 0, 4, offsets), (rows, 4, 4, offsets), (rows[:23], 3, 4, offsets),
                      (rows, 3, 4, offsets[:0]), (rows, 3, 4, offsets, np.zeros(3, np.uint8))]:  # fmt: skip
        with pytest.raises(ValueError):
            family.text_offsets(*arguments)
    for bad in ([0, 5, 4], [0, 2, 9], [-1, 2, 3]):
        with pytest.raises(ValueError):
            family.write_text(rows, 3, 4, np.array(bad, np.int64), np.zeros(8, np.uint8))
