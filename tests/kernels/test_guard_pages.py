"""No kernel reads outside a segment or a mask, or writes outside an output.

Memory is fenced by pages that may not be touched, so an overrun ends the process.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import sys
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from colstore_io.kernels import compare, copy, records, segments

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses mprotect")

PAGE = mmap.PAGESIZE
WIDTHS = [1, 2, 3, 4, 5, 8, 12, 16, 20, 33]
FENCES = ["before", "after"]


_STAYS: list[NDArray[np.uint8]] = []


SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
"""An object that ends at a fence begins anywhere: the processor does not mind, UndefinedBehaviorSanitizer does."""


class Fence:
    """Arrays that begin right after, or end right before, a page without access."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.kept: list[tuple[mmap.mmap, list[int]]] = []

    def array(self, nbytes: int, side: str) -> NDArray[np.uint8]:
        pages = -(-max(nbytes, 1) // PAGE) + 2
        area = mmap.mmap(-1, pages * PAGE)
        whole = np.frombuffer(area, np.uint8)
        fences = [whole.ctypes.data, whole.ctypes.data + (pages - 1) * PAGE]
        at = PAGE if side == "before" else (pages - 1) * PAGE - nbytes
        for address in fences:
            assert self.libc.mprotect(ctypes.c_void_p(address), PAGE, 0) == 0
        self.kept.append((area, fences))
        return whole[at : at + nbytes]

    def bytes(self, data: bytes, side: str) -> bytes:
        """A bytes object of its own: header, `data` and the zero behind it, and nothing more that may be touched."""
        header = bytes.__basicsize__ - 1
        size = header + len(data) + 1
        area = self.array(size + (-size % 8 if SANITIZED else 0), side)[:size]
        area[:header] = np.frombuffer((ctypes.c_ubyte * header).from_address(id(data)), np.uint8)
        area[:8] = np.frombuffer((1 << 28).to_bytes(8, sys.byteorder), np.uint8)  # is never freed
        area[header:-1] = np.frombuffer(data, np.uint8)
        area[-1] = 0
        _STAYS.append(area)  # somebody may hold the object longer than the fence
        made: bytes = ctypes.cast(area.ctypes.data, ctypes.py_object).value
        return made

    def close(self) -> None:
        for _, fences in self.kept:
            for address in fences:
                self.libc.mprotect(ctypes.c_void_p(address), PAGE, mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.fixture
def fence() -> Fence:
    made = Fence()
    yield made
    made.close()


def fenced_table(
    fence: Fence, lengths: list[int], width: int, side: str
) -> tuple[segments.SegmentTable, NDArray[np.void]]:
    """Build one column in fenced segments of `lengths` rows, and the expected values."""
    generator = np.random.default_rng(width)
    base, parts, row = [], [], 0
    for length in lengths:
        memory = fence.array(length * width, side)
        memory[:] = generator.integers(0, 256, memory.size, dtype=np.uint8)
        base.append(memory.ctypes.data - row * width)
        parts.append(memory)
        row += length
    stop = np.cumsum(lengths)
    table = segments.SegmentTable(
        stop - lengths, stop, np.array([base], np.int64), np.array([width], np.int64), row, 0
    )
    return table, np.concatenate(parts).view(f"V{width}")


LAYOUTS = [[1], [7], [64], [65], [127], [200], [1000], [3, 64, 1, 130, 0, 63]]


@pytest.mark.parametrize("side", FENCES)
@pytest.mark.parametrize("width", WIDTHS)
def test_compress_stays_inside_segments_masks_and_outputs(fence: Fence, side: str, width: int) -> None:
    generator = np.random.default_rng(0)
    for lengths in LAYOUTS:
        table, values = fenced_table(fence, lengths, width, side)
        n = sum(lengths)
        mask = fence.array(n, side).view(np.bool_)
        for density in (0.05, 0.3, 0.5, 0.9, 1.0):
            mask[:] = generator.random(n) < density
            offsets = segments.mask_offsets(mask)
            for route in segments.instruction_sets():
                out = fence.array(int(offsets[-1]) * width, side).view(f"V{width}")
                table.compress(mask, offsets, out, route=route)
                np.testing.assert_array_equal(out, values[mask])


@pytest.mark.parametrize("side", FENCES)
@pytest.mark.parametrize("code", ["u1", "i2", "f4", "f8", "u8"])
def test_comparison_stays_inside_segments_and_mask(fence: Fence, side: str, code: str) -> None:
    for lengths in LAYOUTS:
        table, values = fenced_table(fence, lengths, int(code[1]), side)
        want = values.view(code) >= 1
        for route in segments.instruction_sets():
            mask = fence.array(sum(lengths), side).view(np.bool_)
            compare.mask_of_ranges(table, [(code, 1, True, None, False)], mask, route=route)
            np.testing.assert_array_equal(mask, want)


@pytest.mark.parametrize("side", FENCES)
@pytest.mark.parametrize("width", WIDTHS)
def test_take_and_copy_stay_inside_segments_and_outputs(fence: Fence, side: str, width: int) -> None:
    for lengths in LAYOUTS:
        table, values = fenced_table(fence, lengths, width, side)
        n = sum(lengths)
        indices = fence.array(n * 8, side).view(np.int64)
        indices[:] = np.random.default_rng(1).permutation(n)
        for route, isa in itertools.product(
            ("search", "bucket", "cursor", None), segments.gather_instruction_sets()
        ):
            out = fence.array(n * width, side).view(f"V{width}")
            assert table.take(indices, out, route=route, isa=isa) == -1
            np.testing.assert_array_equal(out, values[indices])
        for step in (1, -1, 3, -2):
            wanted = range(n)[::step]
            out = fence.array(len(wanted) * width, side).view(f"V{width}")
            table.copy_strided(wanted.start, step, len(wanted), out)
            np.testing.assert_array_equal(out, values[::step])


@pytest.mark.parametrize("bad", [10**6, -(10**6), 2**63 - 1, -(2**63), 2**62, 1000, -1001])
@pytest.mark.parametrize("route", ["affine", "search", "bucket", "cursor"])
def test_no_address_comes_from_a_bad_index(fence: Fence, bad: int, route: str) -> None:
    table, _ = fenced_table(fence, [1000], 8, "after")
    for position, isa in itertools.product((0, 1, 63, 64, 100, 299), segments.gather_instruction_sets()):
        indices = np.arange(300)
        indices[position] = bad
        assert table.take(indices, np.empty(300), route=route, isa=isa) == position


@pytest.mark.parametrize("side", FENCES)
def test_byte_kernels_stay_inside_their_memory(fence: Fence, side: str) -> None:
    for nbytes in (1, 63, 64, 5000):
        source, target = fence.array(nbytes, side), fence.array(nbytes, side)
        source[:] = 7
        copy.copy_runs(
            np.array([source.ctypes.data], np.uint64),
            np.array([target.ctypes.data], np.uint64),
            np.array([nbytes]),
        )
        assert (target == 7).all()
    sizes = [8, 1, 3]
    columns = [fence.array(100 * size, side) for size in sizes]
    out = fence.array(100 * sum(sizes), side)
    addresses = np.array([column.ctypes.data for column in columns], np.uint64)
    copy.interleave(addresses, np.array(sizes), out, 100)


@pytest.mark.parametrize("length", [0, 1, 31, 32, 40])
def test_record_walk_reads_only_the_buffer(fence: Fence, length: int) -> None:
    buffer = fence.array(length, "after")
    buffer[:] = 0
    rows = np.zeros(2, np.int64)
    assert records.walk_records(buffer, 0, 8, 10**9, rows, rows.copy())[0] == 0


@pytest.mark.parametrize("side", FENCES)
def test_counting_reads_only_the_mask(fence: Fence, side: str) -> None:
    for n in (1, 63, 64, 65, 4095, 20_000):
        mask = fence.array(n, side).view(np.bool_)
        mask[:] = True
        assert segments.mask_offsets(mask)[-1] == n
        count: Callable[..., int] = segments.first_out_of_range
        indices = fence.array(n * 8, side).view(np.int64)
        assert count(indices, 1) == -1
