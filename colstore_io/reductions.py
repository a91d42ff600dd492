"""Reductions of columns that lie in several records or files, without bringing them together.

Runs of rows are reduced where they are mapped, short ones a block at a time in memory that stays in the cache; the
partial results are then reduced. Integers, booleans, minima and maxima come out as NumPy gives them for the whole
array, bit for bit; sums and means of floats within the same bound, for blocks and partial results are both added
pairwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dataset import Source
from .gather import read_part
from .plan import Part
from .selection import Range

__all__ = ["reduce_range"]

BLOCK_ROWS = 1 << 16
"""Rows brought together at once where segments are short: they stay in the second-level cache."""

LONG_ROWS = 1 << 14
"""From this mean length on, segments are reduced in place."""


def reduce_range(source: Source, rows: Range, part: Part, name: str) -> Any:
    """Return a reduction of a contiguous range of rows, or None: then it is to be done on the whole array.

    Parameters
    ----------
    source : Source
    rows : Range
    part : Part
    name : {"sum", "mean", "min", "max"}, or another, which gives None

    Returns
    -------
    numpy scalar or None
        None for ranges that are short, stepped or not mapped, and for times, text and half floats.

    Raises
    ------
    FormatError
        As `gather.read`.
    """
    if source.encoded:
        return None
    dtype = source.part_dtype(part)
    if name not in ("sum", "mean", "min", "max") or rows.step != 1 or rows.count <= 2 * BLOCK_ROWS:
        return None
    if dtype.kind not in "iubf" or (dtype.itemsize < 4 and dtype.kind == "f") or not source.mapped:
        return None
    blocks = _blocks(source, rows, part)
    if name in ("min", "max"):
        found = np.array([getattr(block, name)() for block in blocks])
        return getattr(found, name)()
    # The type that NumPy adds in: a mean of integers is one of float64 sums.
    adding = np.dtype(np.float64) if name == "mean" and dtype.kind in "iub" else None
    total = np.array([block.sum(dtype=adding) for block in blocks]).sum()
    return total if name == "sum" else (total / rows.count).astype(total.dtype)


def _blocks(source: Source, rows: Range, part: Part) -> Iterator[NDArray[Any]]:
    """Yield the rows as arrays, none empty; each is valid until the next one is asked for."""
    segments = source.plan.segments
    low, high = segments.span(*rows.extent)
    if rows.count >= LONG_ROWS * (high - low) and source.part_dtype(part).isnative:
        source.check_sizes(*rows.extent)
        starts = segments.row_start
        for number in range(low, high):
            first = int(starts[number])
            begin, stop = max(rows.start, first), min(rows.stop, int(starts[number + 1]))
            if stop <= begin:
                continue
            view = source.segment_view(part, number)
            if view is not None:
                yield view[begin - first : stop - first]
            else:
                yield read_part(source, Range(begin, 1, stop - begin), part)
        return
    block = np.empty(BLOCK_ROWS, source.part_dtype(part).newbyteorder("="))
    for first in range(rows.start, rows.stop, BLOCK_ROWS):
        count = min(BLOCK_ROWS, rows.stop - first)
        yield read_part(source, Range(first, 1, count), part, block[:count])
