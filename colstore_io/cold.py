"""What if the data is not in memory?

A read over a mapping is at the mercy of page faults: each brings in the read-ahead of the device around it, up to 8
MiB, whether the selection needs that or not. Here the selection says which pages it needs, before the copy:

* scattered rows: the pages are asked for one by one, in one call for a thousand of them. 1000 rows of a cold 200 MB
  column take 18 ms instead of 262 (63 with ``MADV_RANDOM`` alone, which adds nothing to this);
* long ranges: of tables larger than the memory to spare read past the mapping, straight into the result
  (`streaming`), where segments are long enough; else left to the read-ahead of the system, unless a setting or
  calibration says to have them read and mapped piece by piece just before they are copied (`tuning.populate_policy`).

``MADV_SEQUENTIAL`` is never used: it made a cold read 30 times slower (performance.md section 5). Data in memory pays a
look at a few pages, and only for reads that are long, or scattered over a large column.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import config, streaming, tuning
from .dataset import Source
from .plan import Part
from .segments import Segments, distinct
from .selection import Index, Mask, Range, RowSelection
from .storage import LocalFile, paging

__all__ = ["Runs", "byte_runs", "page_runs", "read_past_mapping", "row_runs", "steps", "suspect"]

LONG_BYTES = 4 << 20
"""Shorter ranges are left to page faults: one read-ahead brings most of them."""

SCATTERED_ROWS = 2
SCATTERED_BYTES = 1 << 20
"""Rows out of less than this are left to page faults too."""

PIECE_BYTES = 32 << 20
"""A long range is brought in and copied in pieces of this size, so that it need not fit into memory."""

BATCH_ROWS = 1 << 16
"""Scattered values whose pages are asked for together: at most 256 MiB of them."""

GAP_PAGES = 2
"""A request for one more page costs about as much as reading so many in passing. With 1000 of 8000 pages wanted, gaps
of 0 took 8 ms, of 5 10 ms, of 11 18 ms, the whole in one request 34 ms."""

GROUP_ROWS = 512
"""Rows of a mask that are looked at together: a page of 8-byte values."""

WARM_SECONDS = 0.1
"""How long scattered reads of columns that were found in memory go on without another look."""

_SAMPLES = 4

LIMIT_SECONDS = 0.005
"""How long an answer about the memory to spare is believed: to find it takes 0.1 ms, in files of the system."""

_limit = (-math.inf, 0)
"""Up to when the answer holds, and the answer."""


class Runs(NamedTuple):
    """Half-open ranges in ascending order that do not touch: shape (k,) each."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]


# ----------------------------------------------------------------------------------------------------------
# Which pages? Pure functions


def _merged(start: NDArray[np.int64], stop: NDArray[np.int64], gap: int) -> Runs:
    """Merge ranges, sorted by start, that overlap or lie at most `gap` apart."""
    if not start.shape[0]:
        return Runs(start, stop)
    reach = np.maximum.accumulate(stop)
    breaks = np.flatnonzero(start[1:] - reach[:-1] > gap) + 1
    return Runs(start[np.concatenate([[0], breaks])], reach[np.concatenate([breaks - 1, [-1]])])


def row_runs(rows: RowSelection, n_rows: int, gap: int = 0) -> Runs:
    """Return the rows that a selection needs as runs; a run may hold up to `gap` rows in a row that it does not.

    Parameters
    ----------
    rows : RowSelection
        Indices need not be checked: one out of range is taken for the nearest row.
    n_rows : int
    gap : int

    Notes
    -----
    A mask is looked at in groups of `GROUP_ROWS` and needs no index array.
    """
    if isinstance(rows, Range):
        first, stop = rows.extent
        if first == stop:
            return Runs(np.empty(0, np.int64), np.empty(0, np.int64))
        if abs(rows.step) - 1 <= gap:
            return Runs(np.array([first]), np.array([stop]))
        start = np.arange(first, stop, abs(rows.step), dtype=np.int64)
        return Runs(start, start + 1)
    if isinstance(rows, Mask):
        whole = n_rows // GROUP_ROWS * GROUP_ROWS
        groups = rows.mask[:whole].reshape(-1, GROUP_ROWS).any(axis=1)
        start = np.flatnonzero(groups).astype(np.int64) * GROUP_ROWS
        if rows.mask[whole:].any():
            start = np.append(start, whole)
        return _merged(start, np.minimum(start + GROUP_ROWS, n_rows), gap)
    numbers = rows.rows
    if not numbers.shape[0] or not n_rows:
        return Runs(np.empty(0, np.int64), np.empty(0, np.int64))
    if not rows.checked:
        numbers = np.clip(np.where(numbers < 0, numbers + n_rows, numbers), 0, n_rows - 1)
    start = distinct(numbers)
    return _merged(start, start + 1, gap)


def byte_runs(
    runs: Runs, segments: Segments, base: NDArray[np.int64], itemsize: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the addresses of rows as ranges [start, stop), in no particular order.

    Parameters
    ----------
    runs : Runs
        Of rows within the table.
    segments : Segments
    base : ndarray of int64, shape (C, S)
        Row i of column c in segment s is at ``base[c, s] + i * itemsize[c]``.
    itemsize : ndarray of int64, shape (C,)
    """
    first = segments.locate(runs.start)
    last = segments.locate(runs.stop - 1)
    pieces = last - first + 1
    total = int(pieces.sum())
    number = np.repeat(first, pieces) + np.arange(total) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = np.maximum(np.repeat(runs.start, pieces), segments.row_start[number])
    stop = np.minimum(np.repeat(runs.stop, pieces), segments.row_start[number + 1])
    filled = stop > start
    number, start, stop = number[filled], start[filled], stop[filled]
    at = base[:, number]
    size = itemsize[:, None]
    return (at + start * size).ravel(), (at + stop * size).ravel()


def page_runs(start: NDArray[np.int64], stop: NDArray[np.int64], page: int, gap: int = GAP_PAGES) -> Runs:
    """Return the pages that hold the bytes [start, stop) as page-aligned runs.

    Parameters
    ----------
    start, stop : ndarray of int64, shape (k,)
        Non-empty ranges in any order; they may overlap.
    page : int
        Bytes of a page.
    gap : int
        Pages nobody needs that are cheaper to read than to leave out.
    """
    start = start // page * page
    stop = -(-stop // page) * page
    order = np.argsort(start, kind="stable")
    return _merged(start[order], stop[order], gap * page)


# ----------------------------------------------------------------------------------------------------------
# Is it worth it?


def _steerable(source: Source) -> bool:
    """Return whether these are mappings of files about which the user gave no advice: an explicit one stands."""
    file = source.files[0] if source.files else None
    return isinstance(file, LocalFile) and file.madvise is None


def suspect(source: Source, rows: RowSelection, parts: tuple[Part, ...]) -> bool:
    """Return whether a read of mapped columns should go through `steps`: it is large enough, and not in memory.

    Parameters
    ----------
    source : Source
        Mapped as a whole.
    rows : RowSelection
        Not empty; unchecked indices are fine.
    parts : tuple of Part

    Notes
    -----
    ``source.warm`` holds the `time.monotonic` up to which scattered reads of some parts need no look. Callers that
    count microseconds ask it first (a gather of 1000 rows takes 8).
    """
    if not paging.AVAILABLE or config.get_populate_policy() == "none":
        return False
    if isinstance(rows, Range) and rows.step == 1:
        row_bytes = sum(source.part_dtype(part).itemsize for part in parts)
        if (
            rows.count * row_bytes < LONG_BYTES
            or tuning.populate_policy() == "none"
            or not _steerable(source)
        ):
            return False
        return not _looks_resident(source, rows, parts)
    now = time.monotonic()
    if now <= source.warm.get(parts, 0.0):
        return False
    largest = source.n_rows * max(source.part_dtype(part).itemsize for part in parts)
    if not _steerable(source) or largest < SCATTERED_BYTES:
        source.warm[parts] = math.inf
        return False
    if not isinstance(rows, Mask) and rows.count < SCATTERED_ROWS:
        return False
    if _looks_resident(source, rows, parts):
        source.warm[parts] = now + WARM_SECONDS
        return False
    return True


def _looks_resident(source: Source, rows: RowSelection, parts: tuple[Part, ...]) -> bool:
    """Look at the pages of a few of the rows, of every column."""
    n = source.n_rows
    sample = np.arange(_SAMPLES) * (1 / (_SAMPLES - 1))
    if isinstance(rows, Range):
        numbers = rows.start + (sample * (rows.count - 1)).astype(np.int64) * rows.step
    elif isinstance(rows, Index):
        numbers = rows.rows[(sample * (rows.count - 1)).astype(np.int64)]
        numbers = np.clip(np.where(numbers < 0, numbers + n, numbers), 0, n - 1)
    else:
        numbers = (sample * (n - 1)).astype(np.int64)
    base = source.addresses(parts)
    number = source.plan.segments.locate(numbers)
    for position, part in enumerate(parts):
        at = base[position, number] + numbers * source.part_dtype(part).itemsize
        if not all(map(paging.is_resident, at.tolist())):
            return False
    return True


# ----------------------------------------------------------------------------------------------------------
# Bringing it in


def _memory_limit() -> int:
    """Return `paging.memory_limit`, as it was some milliseconds ago at most."""
    global _limit
    until, limit = _limit
    if time.monotonic() >= until:
        limit = paging.memory_limit()
        _limit = time.monotonic() + LIMIT_SECONDS, limit  # one assignment: other threads see both or none
    return limit


def _policy(source: Source) -> str:
    policy = tuning.populate_policy()
    if policy != "auto":
        return policy
    return "read" if sum(entry.committed_end for entry in source.plan.files) > _memory_limit() else "none"


def read_past_mapping(
    source: Source, rows: Range, parts: tuple[Part, ...], targets: Sequence[NDArray[np.generic]]
) -> bool:
    """Read a cold range from its files into `targets` where that is the policy; see `streaming.read_range`."""
    if rows.step != 1 or _policy(source) != "read":
        return False
    return streaming.read_range(source, rows, parts, targets)


def steps(
    source: Source, rows: RowSelection, parts: tuple[Part, ...]
) -> Iterator[tuple[RowSelection, slice]]:
    """Cut a cold read into steps; when one is handed out, its pages are on their way.

    Yields
    ------
    rows : RowSelection
        What to read in this step.
    place : slice
        Where it belongs in the outputs.
    """
    itemsize = np.array([source.part_dtype(part).itemsize for part in parts], np.int64)
    if isinstance(rows, Range) and rows.step == 1:
        yield from _range_steps(source, rows, parts, itemsize)
        return
    if isinstance(rows, Index):
        yield from _index_steps(source, rows, parts, itemsize)
        return
    _ask_for(source, rows, parts, itemsize)
    yield rows, slice(None)


def _index_steps(
    source: Source, rows: Index, parts: tuple[Part, ...], itemsize: NDArray[np.int64]
) -> Iterator[tuple[RowSelection, slice]]:
    size = max(1, BATCH_ROWS // len(parts))

    def cut(first: int, stop: int | None) -> Index:
        return Index(rows.rows[first:stop], checked=rows.checked)

    _ask_for(source, cut(0, size), parts, itemsize)
    for first in range(0, rows.count, size):
        stop = first + size
        rest = cut(stop, None)
        if rest.count and _looks_resident(source, rest, parts):
            # The pages of some batches are often those of all; what remains can go to all threads at once.
            yield cut(first, stop), slice(first, stop)
            yield rest, slice(stop, None)
            return
        if rest.count:  # asked for before this batch is handed out, so that the device never idles
            _ask_for(source, cut(stop, stop + size), parts, itemsize)
        yield cut(first, stop), slice(first, stop)


def _range_steps(
    source: Source, rows: Range, parts: tuple[Part, ...], itemsize: NDArray[np.int64]
) -> Iterator[tuple[RowSelection, slice]]:
    policy = _policy(source)
    if policy in ("read", "none"):  # segments too short for calls of their own; the system's read-ahead
        yield rows, slice(None)
        return
    step = max(1, PIECE_BYTES // int(itemsize.sum()))
    ahead = rows.start  # rows before this one have been asked for
    for first in range(0, rows.count, step):
        piece = Range(rows.start + first, 1, min(step, rows.count - first))
        if policy == "populate":
            _populate(_pages(source, piece, parts, itemsize))
        else:
            stop = min(piece.stop + step, rows.stop)
            if stop > ahead:
                pages = _pages(source, Range(ahead, 1, stop - ahead), parts, itemsize)
                paging.willneed_runs(pages.start, pages.stop - pages.start)
                ahead = stop
        yield piece, slice(first, first + piece.count)


def _pages(source: Source, rows: RowSelection, parts: Sequence[Part], itemsize: NDArray[np.int64]) -> Runs:
    gap = GAP_PAGES * paging.PAGE_BYTES // int(itemsize.max())
    runs = row_runs(rows, source.n_rows, gap)
    if not runs.start.shape[0]:
        return runs
    start, stop = byte_runs(runs, source.plan.segments, source.addresses(tuple(parts)), itemsize)
    return page_runs(start, stop, paging.PAGE_BYTES)


def _populate(pages: Runs) -> None:
    for start, stop in zip(pages.start.tolist(), pages.stop.tolist(), strict=True):
        if not paging.populate(start, stop - start):
            paging.willneed(start, stop - start)


def _ask_for(
    source: Source, rows: RowSelection, parts: tuple[Part, ...], itemsize: NDArray[np.int64]
) -> None:
    pages = _pages(source, rows, parts, itemsize)
    length = pages.stop - pages.start
    # Long runs are what the system's read-ahead is good at: it fills larger pages than a request does.
    short = length < LONG_BYTES
    if int(length[short].sum()) <= _memory_limit():
        paging.willneed_runs(pages.start[short], length[short])
    if tuning.populate_policy() == "populate" and int(length[~short].sum()) <= _memory_limit():
        _populate(Runs(pages.start[~short], pages.stop[~short]))
