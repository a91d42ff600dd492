"""Which kernel?

`read` brings the selected rows of some column parts into arrays. Mapped files are read in place; of the others only
the byte ranges that the selection needs are fetched, coalesced, in one round, into buffers which then take the
place of the mapping: the same kernels run over both (architecture: "remote and local differ only in who fills the
buffers").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import buffers, cold, streaming, threads, tuning
from .dataset import QUICK_ROWS, Source
from .decoding import read_columns
from .fields import native
from .plan import NO_VALIDITY, Part
from .ready import read_whole
from .segments import distinct
from .selection import Index, Mask, Range, RowSelection, out_of_range
from .storage import PlacesMovedError, read_ranges

__all__ = ["read", "read_part"]

GAP_BYTES = 64 << 10
"""Bytes between two needed ranges of a remote file that are cheaper to read than to skip (integrations.md 4.2)."""

FETCH_BYTES = 256 << 20
"""Bytes of remote data held at once while a long range is copied into its place."""


def read_part(
    source: Source, rows: RowSelection, part: Part, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return the selected rows of one part; see `read`.

    Small selections of a single-record file take the shortest road: microseconds count there.
    """
    if source.encoded:
        if isinstance(rows, Range) and rows.covers(source.n_rows):
            whole = read_whole(source, part, out)
            if whole is not None:
                return whole
        found: NDArray[Any] = _decoded(source, rows, (part,), None if out is None else (out,))[0]
        return found
    if out is None and rows.__class__ is not Mask and rows.count <= QUICK_ROWS:
        view = source.column_view(part)
        if view is not None:
            source.check_sizes()
            if isinstance(rows, Range):
                if rows.step == 1 and rows.count:
                    return view[rows.start : rows.start + rows.count].copy()
                return view[_as_slice(rows)].copy()
            target = np.empty(rows.count, view.dtype)
            if rows.count:
                parts = (part,)
                if source.warm.get(parts, 0.0) < monotonic() and cold.suspect(source, rows, parts):
                    return read(source, rows, parts)[0]
                _call(source, source.table(parts), rows, None, target, 1)
            return target
        parts = (part,)
        if rows.count and source.mapped and source.part_dtype(part).isnative:
            # The same road over several segments.
            if isinstance(rows, Range):
                source.check_sizes(*rows.extent)
            else:
                source.check_sizes()
            if source.warm.get(parts, 0.0) >= monotonic() or not cold.suspect(source, rows, parts):
                target = np.empty(rows.count, source.part_dtype(part))
                _call(source, source.table(parts), rows, None, target, 1)
                return target
    return read(source, rows, (part,), None if out is None else (out,))[0]


def read(
    source: Source, rows: RowSelection, parts: Sequence[Part], out: Sequence[NDArray[Any]] | None = None
) -> list[NDArray[Any]]:
    """Copy the selected rows of `parts` into arrays.

    Parameters
    ----------
    source : Source
    rows : RowSelection
        Over ``source.n_rows`` rows.
    parts : sequence of Part
        Any number; the rows are located once for all of them.
    out : sequence of ndarray, optional
        C-contiguous targets of shape (rows.count,) and the parts' native dtypes. Allocated when omitted.

    Returns
    -------
    list of ndarray, shape (rows.count,)
        In native byte order, owning their memory (or `out`).

    Raises
    ------
    IndexError
        If a row is out of range. A given `out` is untouched then.
    FormatError
        If a file is shorter than its committed size by now.
    ValueError
        If `out` does not fit, or overlaps memory that is read from; nothing is written then.

    Notes
    -----
    Beside the outputs at most O(segments) memory is used for mapped files, also for masks; for remote files the
    fetched bytes come on top.
    """
    parts = tuple(parts)
    if source.encoded:
        return _decoded(source, rows, parts, out)
    if out is not None:
        source.refuse_overlap(out)
    if isinstance(rows, Index) and out is not None:
        if any(np.may_share_memory(target, rows.rows) for target in out):
            rows = Index(rows.rows.copy(), checked=rows.checked)  # else it would change while it is read
        if not rows.checked:
            _check_rows(source, rows)
    offsets = _mask_offsets(source, rows) if isinstance(rows, Mask) else None
    count = rows.count if offsets is None else int(offsets[-1])
    targets = _targets(source, parts, count, out)
    if count == 0 or not parts:
        return targets
    if source.mapped:
        if isinstance(rows, Range):
            source.check_sizes(*rows.extent)
        else:
            source.check_sizes()
        table = source.table(parts)
        if not cold.suspect(source, rows, parts):
            _run(source, table, rows, offsets, targets)
        elif not (isinstance(rows, Range) and cold.read_past_mapping(source, rows, parts, targets)):
            for piece, place in cold.steps(source, rows, parts):
                _run(source, table, piece, offsets, [target[place] for target in targets])
    else:
        try:
            _read_fetched(source, rows, parts, targets)
        except PlacesMovedError:
            whole, first = source.walked()
            _read_fetched(whole, _shifted(rows, first, source.n_rows), parts, targets)
    for position, part in enumerate(parts):
        dtype = source.part_dtype(part)
        if not dtype.isnative:
            target = targets[position]
            target.view(dtype).byteswap(inplace=True)
    return targets


def _decoded(
    source: Source, rows: RowSelection, parts: Sequence[Part], out: Sequence[NDArray[Any]] | None
) -> list[Any]:
    """Read parts of fields whose chunks are decoded; values of variable length are Arrow arrays."""
    positions = list(dict.fromkeys(position for position, _ in parts))
    given: list[NDArray[Any] | None] | None = None
    if out is not None:
        by_part = dict(zip(parts, out, strict=True))
        given = [by_part.get((position, False)) for position in positions]
    columns = dict(zip(positions, read_columns(source, rows, positions, given), strict=True))
    found: list[Any] = []
    for position, validity in parts:
        column = columns[position]
        if isinstance(column, tuple):
            found.append(column[1] if validity else column[0])
        elif validity:
            found.append(np.asarray(column.is_valid()) if source.schema.fields[position].variable else None)  # type: ignore[union-attr]
        else:
            found.append(column)
    return found


def _as_slice(rows: Range) -> slice:
    if rows.count == 0:
        return slice(0, 0)
    stop: int | None = rows.start + rows.count * rows.step
    if rows.step < 0 and stop is not None and stop < 0:
        stop = None
    return slice(rows.start, stop, rows.step)


def _targets(
    source: Source, parts: tuple[Part, ...], count: int, out: Sequence[NDArray[Any]] | None
) -> list[NDArray[Any]]:
    if out is None:
        return [buffers.empty(count, native(source.part_dtype(part))) for part in parts]
    if len(out) != len(parts):
        raise ValueError(f"out has {len(out)} arrays for {len(parts)} columns")
    for target, part in zip(out, parts, strict=True):
        dtype = native(source.part_dtype(part))
        if target.dtype != dtype or target.shape != (count,):
            raise ValueError(
                f"out must have dtype {dtype} and shape ({count},), got {target.dtype} and {target.shape}"
            )
        if not (target.flags.c_contiguous and target.flags.writeable):
            raise ValueError("out must be C-contiguous and writable")
    return list(out)


def _check_rows(source: Source, rows: Index) -> None:
    # At memory speed, like counting a mask: eight indices are about as much work as one gathered element.
    with threads.lease(threads.wanted_threads(rows.count // 8, source.thread_cap())) as granted:
        bad = source.kernel_module().first_out_of_range(rows.rows, source.n_rows, threads=granted)
    if bad >= 0:
        raise out_of_range(int(rows.rows[bad]), source.n_rows)


def _mask_offsets(source: Source, rows: Mask) -> NDArray[np.int64]:
    if rows.offsets is not None:
        return rows.offsets
    # Counting runs at memory speed: 64 mask bytes are about as much work as one gathered element.
    wanted = threads.wanted_threads(rows.mask.shape[0] // 64, source.thread_cap())
    count: Callable[..., NDArray[np.int64]] = source.kernel_module().mask_offsets
    if wanted == 1:
        return count(rows.mask)
    with threads.lease(wanted) as granted:
        return count(rows.mask, threads=granted)


def _run(
    source: Source,
    table: Any,
    rows: RowSelection,
    offsets: NDArray[np.int64] | None,
    targets: Sequence[NDArray[Any]],
) -> None:
    """Run the kernel that fits `rows` over `table`, with as many threads as the work justifies and are free."""
    count = targets[0].shape[0] * len(targets)
    if isinstance(rows, Mask):
        work = rows.mask.shape[0] // 16 + count
    elif isinstance(rows, Range) and rows.step == 1:
        work = sum(t.nbytes for t in targets) // 8
    else:
        work = count
    out = targets[0] if len(targets) == 1 else targets
    wanted = threads.wanted_threads(work, source.thread_cap())
    if wanted == 1:
        _call(source, table, rows, offsets, out, 1)
        return
    with threads.lease(wanted) as granted:
        _call(source, table, rows, offsets, out, granted)


def _call(
    source: Source, table: Any, rows: RowSelection, offsets: NDArray[np.int64] | None, out: Any, granted: int
) -> None:
    if isinstance(rows, Range):
        table.copy_strided(rows.start, rows.step, rows.count, out, threads=granted)
    elif isinstance(rows, Mask):
        table.compress(rows.mask, offsets, out, threads=granted)
    else:
        bad = table.take(
            rows.rows, out, threads=granted, prefetch=tuning.prefetch_distance(source.n_rows, rows.rows, out)
        )
        if bad >= 0:
            raise out_of_range(int(rows.rows[bad]), source.n_rows)


# ----------------------------------------------------------------------------------------------------------
# Files that are not mapped


def _read_fetched(
    source: Source, rows: RowSelection, parts: tuple[Part, ...], targets: Sequence[NDArray[Any]]
) -> None:
    if isinstance(rows, Range) and rows.step == 1:
        if not streaming.read_range(source, rows, parts, targets):
            _read_long_range(source, rows, parts, targets)
    else:
        positions = rows.positions(source.n_rows)
        _run(source, *_fetch(source, positions, parts), None, targets)


def _shifted(rows: RowSelection, first: int, n_rows: int) -> RowSelection:
    """Return the same rows of a source in which they are numbered from `first`."""
    if isinstance(rows, Range):
        return Range(rows.start + first, rows.step, rows.count)
    return Index(rows.positions(n_rows) + first, checked=True)


def _read_long_range(
    source: Source, rows: Range, parts: tuple[Part, ...], targets: Sequence[NDArray[Any]]
) -> None:
    """Read a contiguous range piece by piece, so that at most `FETCH_BYTES` are held beside the outputs."""
    row_bytes = max(1, sum(source.part_dtype(part).itemsize for part in parts))
    step = max(1, FETCH_BYTES // row_bytes)
    for first in range(0, rows.count, step):
        piece = Range(rows.start + first, 1, min(step, rows.count - first))
        table = _fetch_runs(source, _segment_runs(source, piece.start, piece.stop), parts)
        _run(source, table, piece, None, [t[first : first + piece.count] for t in targets])


_Runs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""First rows, one-past-last rows, and segments of runs of rows."""


def _segment_runs(source: Source, first: int, stop: int) -> _Runs:
    """Split rows [first, stop) at segment borders."""
    segments = source.plan.segments
    low, high = segments.span(first, stop)
    numbers = np.arange(low, high)
    starts = np.maximum(segments.row_start[low:high], first)
    stops = np.minimum(segments.row_start[low + 1 : high + 1], stop)
    filled = stops > starts
    return starts[filled], stops[filled], numbers[filled]


def _fetch(
    source: Source, positions: NDArray[np.int64], parts: tuple[Part, ...]
) -> tuple[_FetchedTable, Index]:
    """Fetch what the rows at `positions` need, and return the table over the buffers with the rows."""
    ordered = distinct(positions)
    gap_rows = max(1, GAP_BYTES // max(source.part_dtype(part).itemsize for part in parts))
    number = source.plan.segments.locate(ordered)
    breaks = np.flatnonzero((np.diff(ordered) > gap_rows) | (np.diff(number) != 0)) + 1
    first = np.concatenate([[0], breaks])
    last = np.concatenate([breaks, [ordered.shape[0]]]) - 1
    table = _fetch_runs(source, (ordered[first], ordered[last] + 1, number[first]), parts)
    return table, Index(np.ascontiguousarray(positions, np.int64), checked=True)


def _fetch_runs(source: Source, runs: _Runs, parts: tuple[Part, ...]) -> _FetchedTable:
    """Fetch runs of rows and return a segment table over the buffers.

    The table has gaps between its runs; no row that the caller asks for lies in one.
    """
    starts, stops, numbers = runs
    segments = source.plan.segments
    file_of = segments.file[numbers]
    maps = source.mappings()
    base = np.empty((len(parts), starts.shape[0]), np.int64)
    requests: list[tuple[Any, int, int]] = []
    slots: list[tuple[int, int]] = []
    buffers: list[Any] = []

    def place(p: int, r: int, buffer: NDArray[np.uint8]) -> None:
        buffers.append(buffer)
        base[p, r] = buffer.ctypes.data - int(starts[r]) * source.part_dtype(parts[p]).itemsize

    for p, part in enumerate(parts):
        itemsize = source.part_dtype(part).itemsize
        chunk = source.chunk_offsets(part)[numbers]
        offset = chunk + (starts - segments.row_start[:-1][numbers]) * itemsize
        length = (stops - starts) * itemsize
        for r in range(starts.shape[0]):
            mapping = maps[file_of[r]]
            if chunk[r] == NO_VALIDITY:
                place(p, r, np.ones(int(length[r]), np.uint8))
            elif mapping is not None:
                place(p, r, mapping[int(offset[r]) : int(offset[r] + length[r])])
            else:
                requests.append((source.files[file_of[r]], int(offset[r]), int(length[r])))
                slots.append((p, r))
    for (p, r), data in zip(slots, read_ranges(requests, gap_bytes=GAP_BYTES), strict=True):
        place(p, r, np.frombuffer(data, np.uint8))
    table = source.kernel_module().SegmentTable(
        np.ascontiguousarray(starts),
        np.ascontiguousarray(stops),
        base,
        np.array([source.part_dtype(part).itemsize for part in parts], np.int64),
        source.n_rows,
        0,
    )
    return _FetchedTable(table, buffers)


class _FetchedTable:
    """A segment table that keeps the fetched buffers alive while its kernels run."""

    __slots__ = ("_buffers", "copy_strided", "take")

    def __init__(self, table: Any, buffers: list[Any]) -> None:
        self._buffers = buffers
        self.take = table.take
        self.copy_strided = table.copy_strided
