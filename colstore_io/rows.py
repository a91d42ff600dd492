"""Which rows has the user asked for, so far?

A `Rows` chain records keys and predicates without looking at them; it is resolved to one selection when something is
read. Resolving a predicate reads only the columns that it names, only in segments that can match, block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import predicate as predicates
from . import threads
from .dataset import Source
from .fields import Schema
from .materialise import as_validity, read_fields
from .ranges import mask_in_place, ranges_in_place
from .segments import distinct
from .selection import Mask, Range, RowSelection, compose, normalise

if TYPE_CHECKING:
    from .predicate import ColumnValues, Predicate

__all__ = [
    "Rows",
    "SourceHolder",
    "matching_runs",
    "matching_segments",
    "narrow",
    "predicate_mask",
    "select_matching",
]

BLOCK_ROWS = 1 << 18
"""Rows whose predicate columns are brought together at once when they are not addressable in place."""

DECODED_BLOCK_ROWS = 1 << 22
"""The same where chunks are decoded whole."""


_Runs: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Numbers of segments, and global rows [start, stop) of runs within them."""


class SourceHolder(Protocol):
    """What a view needs of the table it was made from."""

    @property
    def source(self) -> Source: ...
    def readable_source(self) -> Source: ...


class Rows:
    """A chain of row keys, resolved on first use and remembered.

    Parameters
    ----------
    parent : Rows or None
        What `key` selects within; ``None`` is the whole table.
    key : object
        A row key, or a bound `Predicate`.
    """

    __slots__ = ("_resolved", "key", "parent")

    def __init__(self, parent: Rows | None, key: Any) -> None:
        self.parent = parent
        self.key = key
        self._resolved: RowSelection | None = None

    @property
    def pending_predicate(self) -> bool:
        """True while resolving would read data."""
        if self._resolved is not None:
            return False
        return predicates.is_predicate(self.key) or (
            self.parent is not None and self.parent.pending_predicate
        )

    def resolve(self, source: Source) -> RowSelection:
        """Return the selection over all rows of `source`."""
        if self._resolved is None:
            n = source.n_rows
            if self.parent is None and not predicates.is_predicate(self.key):
                self._resolved = normalise(self.key, n)
                return self._resolved
            outer = self.parent.resolve(source) if self.parent is not None else Range(0, 1, n)
            if predicates.is_predicate(self.key):
                if isinstance(outer, Range) and outer.covers(n):
                    self._resolved = _select_of_all(source, self.key)
                    return self._resolved
                key = predicate_mask(source, self.key, outer)
            else:
                key = self.key
            self._resolved = compose(outer, key, n)
        return self._resolved

    def __getstate__(self) -> tuple[Any, ...]:
        return (
            self.parent,
            self.key,
        )  # what the chain says, not the mask over all rows that it may have become

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.parent, self.key = state
        self._resolved = None

    def describe(self) -> str:
        """Return the chain as text, for representations that must not read data."""
        prefix = self.parent.describe() if self.parent is not None else ""
        if predicates.is_predicate(self.key):
            return f"{prefix}[{self.key!r}]"
        return f"{prefix}[{_short(self.key)}]"


def narrow(rows: Rows | None, key: Any, holder: SourceHolder) -> Rows:
    """Extend a chain by `key`. One row of a view is checked at once, which costs nothing; other keys when read."""
    if rows is not None and isinstance(key, (int, np.integer)) and not rows.pending_predicate:
        count = rows.resolve(holder.readable_source()).count
        if not -count <= key < count:
            raise IndexError(f"row {key} is out of bounds for the view, which has {count} rows")
    return Rows(rows, key)


def _short(key: Any) -> str:
    if isinstance(key, slice):
        parts = ["" if p is None else str(p) for p in (key.start, key.stop, key.step)]
        return ":".join(parts[:2] if key.step is None else parts)
    if isinstance(key, np.ndarray):
        return f"array of {key.shape[0] if key.ndim else 0} {'booleans' if key.dtype == bool else 'rows'}"
    text = repr(key)
    return text if len(text) <= 40 else f"{type(key).__name__} of {len(key)}"


def predicate_mask(source: Source, predicate: Predicate, rows: RowSelection) -> NDArray[np.bool_]:
    """Return which of `rows` satisfy `predicate`, shape (rows.count,).

    Over all rows, segments that cannot match by their statistics are not read.
    """
    if isinstance(rows, Range) and rows.covers(source.n_rows):
        return _select_of_all(source, predicate).mask
    mask = np.empty(rows.count, np.bool_)
    # Each block decodes the chunks that it touches: fewer of them there.
    step = DECODED_BLOCK_ROWS if source.encoded else BLOCK_ROWS
    for first in range(0, rows.count, step):
        stop = min(first + step, rows.count)
        block = compose(rows, slice(first, stop), source.n_rows)
        mask[first:stop] = predicate.mask(_gathered(source, predicate, block))
    return mask


def select_matching(source: Source, predicate: Predicate, runs: Sequence[tuple[int, int]]) -> Mask:
    """Return the rows of `runs` that satisfy `predicate`.

    Parameters
    ----------
    runs : sequence of (start, stop)
        Rows to look at, half-open, in order, none empty, not touching each other. Nothing else is read.

    Notes
    -----
    Mapped columns are compared in place. Of other files the predicate's columns are fetched in one round, so callers
    keep the runs of one call to what fits into memory.
    """
    n = source.n_rows
    if len(runs) == 1 and runs[0] == (0, n):
        return _select_of_all(source, predicate)
    mask = np.zeros(n, np.bool_)
    if not runs:
        return Mask(mask)
    if not source.mapped:
        rows: RowSelection = Range(runs[0][0], 1, runs[0][1] - runs[0][0])
        if len(runs) > 1:
            for start, stop in runs:
                mask[start:stop] = True
            rows = Mask(mask)
        found = predicate.mask(_gathered(source, predicate, rows))
        if isinstance(rows, Range):
            mask[rows.start : rows.stop] = found
        else:
            mask[mask] = found
        return Mask(mask)
    segments = source.plan.segments
    edges = np.array(runs, np.int64)
    cuts = distinct(np.concatenate([edges.ravel(), segments.row_start]))
    starts, stops = cuts[:-1], cuts[1:]
    run = np.searchsorted(edges[:, 0], starts, side="right") - 1
    inside = (run >= 0) & (starts < edges[run, 1])
    starts, stops = starts[inside], stops[inside]
    numbers = segments.locate(starts)
    ranges = ranges_in_place(source, predicate)
    if ranges is not None and 2 * int((stops - starts).sum()) >= n:
        touched = np.zeros(segments.n_segments, np.bool_)
        touched[numbers] = True
        whole = mask_in_place(source, ranges, touched).mask
        for start, stop in runs:
            mask[start:stop] = whole[start:stop]
        return Mask(mask)
    return Mask(_mask_of_runs(source, predicate, (numbers, starts, stops)))


def _select_of_all(source: Source, predicate: Predicate) -> Mask:
    runs = matching_runs(source, predicate)
    ranges = ranges_in_place(source, predicate)
    numbers, starts, stops = runs
    if ranges is not None and (source.blocks is None or 2 * int((stops - starts).sum()) >= source.n_rows):
        # The kernel looks at whole segments: where an index leaves out most of their rows, the runs are less work.
        matching = np.zeros(source.plan.segments.n_segments, np.bool_)
        matching[numbers] = True
        return mask_in_place(source, ranges, matching)
    return Mask(_mask_of_runs(source, predicate, runs))


def _mask_of_runs(source: Source, predicate: Predicate, runs: _Runs) -> NDArray[np.bool_]:
    segments = source.plan.segments
    mask = np.zeros(source.n_rows, np.bool_)
    numbers, starts, stops = (column.tolist() for column in runs)
    jobs: list[tuple[int, int, Callable[[int, int], dict[str, ColumnValues]]]] = []
    position = 0
    while position < len(numbers):
        number, first, stop = numbers[position], starts[position], stops[position]
        origin = int(segments.row_start[number])
        columns = _in_place(source, predicate, number) if stop - first >= BLOCK_ROWS // 8 else None
        position += 1
        if columns is None:  # small or unmapped: take its neighbours along, up to one block
            while position < len(numbers):
                if starts[position] != stop or stops[position] - first > BLOCK_ROWS:
                    break
                stop = stops[position]
                position += 1
        if source.encoded:  # a chunk is decoded once
            jobs.append((first, stop, _reader(source, predicate)))
            continue
        jobs.extend(
            (
                low,
                min(low + BLOCK_ROWS, stop),
                _slicer(columns, origin) if columns else _reader(source, predicate),
            )
            for low in range(first, stop, BLOCK_ROWS)
        )

    def run(job: tuple[int, int, Callable[[int, int], dict[str, ColumnValues]]]) -> None:
        low, high, columns_of = job
        mask[low:high] = predicate.mask(columns_of(low, high))

    with threads.lease(min(len(jobs), threads.wanted_threads(mask.shape[0], source.thread_cap()))) as granted:
        if granted == 1:
            for job in jobs:
                run(job)
        else:
            threads.map_with_helpers(run, jobs, granted - 1)
    return mask


def _in_place(source: Source, predicate: Predicate, segment: int) -> dict[str, ColumnValues] | None:
    """Return views of the predicate's columns over one mapped segment, or None where one is not addressable."""
    columns = {}
    for name in predicate.columns:
        position = source.schema.index(name)
        field = source.schema.fields[position]
        values = source.segment_view((position, False), segment)
        if values is None or not field.dtype.isnative:
            return None
        validity = None
        if field.nullable:
            flags = source.segment_view((position, True), segment)
            if flags is not None:
                validity = as_validity(flags)
            else:
                validity = np.ones(values.shape[0], np.bool_)
        columns[name] = predicates.ColumnValues(values, validity, field.nulls)
    return columns


def _slicer(columns: dict[str, ColumnValues], first: int) -> Callable[[int, int], dict[str, ColumnValues]]:
    def cut(low: int, high: int) -> dict[str, ColumnValues]:
        window = slice(low - first, high - first)
        return {
            name: predicates.ColumnValues(
                c.values[window], None if c.validity is None else c.validity[window], c.nulls
            )
            for name, c in columns.items()
        }

    return cut


def _reader(source: Source, predicate: Predicate) -> Callable[[int, int], dict[str, ColumnValues]]:
    return lambda low, high: _gathered(source, predicate, Range(low, 1, high - low))


def _gathered(source: Source, predicate: Predicate, rows: RowSelection) -> dict[str, ColumnValues]:
    positions = [source.schema.index(name) for name in predicate.columns]
    columns = {}
    for name, data in zip(predicate.columns, read_fields(source, rows, positions), strict=True):
        values: Any
        values, validity = data if isinstance(data, tuple) else (data, None)
        if not isinstance(values, np.ndarray):
            validity = np.asarray(values.is_valid()) if values.null_count else None
            values = predicates.ArrowText(values)
        columns[name] = predicates.ColumnValues(values, validity, source.schema[name].nulls)
    return columns


def matching_segments(source: Source, predicate: Predicate) -> NDArray[np.bool_]:
    """Return which segments can hold a matching row, by the statistics alone; all of them where there are none."""
    possible = _possible(source, predicate)
    segments = source.plan.segments
    if source.blocks is None:
        return possible
    mask = segments.rows == 0  # nothing to skip there
    mask[_runs(source, predicate, possible)[0]] = True
    matching: NDArray[np.bool_] = mask & possible
    return matching


def _possible(source: Source, predicate: Predicate) -> NDArray[np.bool_]:
    """Return what the statistics of segments say, of segments whose rows are known if it matters."""
    segments = source.plan.segments
    possible = _may_match(
        predicate,
        source.schema,
        source.statistics_of,
        segments.n_segments,
        source.null_counts_of,
        segments.rows,
    )
    if not possible.all():  # else it does not matter which rows a segment has
        source.look_at(possible)
    return possible


def matching_runs(source: Source, predicate: Predicate) -> _Runs:
    """Return the runs of rows that can hold a matching row, by the statistics of segments and of indexed blocks.

    Returns
    -------
    (segment, start, stop) : arrays of int64
        Number of the segment and global rows [start, stop) of each run; none empty, in row order, no two adjacent
        ones in one segment.
    """
    possible = _possible(source, predicate)
    segments = source.plan.segments
    if source.blocks is None:
        numbers = np.flatnonzero(possible & (segments.rows > 0))
        return numbers, segments.row_start[numbers], segments.row_start[numbers + 1]
    return _runs(source, predicate, possible)


def _runs(source: Source, predicate: Predicate, possible: NDArray[np.bool_]) -> _Runs:
    segments, blocks = source.plan.segments, source.blocks
    assert blocks is not None
    in_block = _may_match(predicate, source.schema, blocks.statistics_of, blocks.n_blocks)
    edges = distinct(np.concatenate([segments.row_start, blocks.row_start]))
    starts, stops = edges[:-1], edges[1:]
    number = segments.locate(starts)
    kept = possible[number] & in_block[np.searchsorted(blocks.row_start, starts, side="right") - 1]
    number, starts, stops = number[kept], starts[kept], stops[kept]
    # Neighbours in one segment are one run: fewer and longer calls.
    fresh = np.ones(len(starts), np.bool_)
    fresh[1:] = (number[1:] != number[:-1]) | (starts[1:] != stops[:-1])
    last = np.ones(len(starts), np.bool_)
    last[:-1] = fresh[1:]
    return number[fresh], starts[fresh], stops[last]


def _may_match(
    predicate: Predicate,
    schema: Schema,
    statistics_of: Callable[[str], Mapping[str, NDArray[Any]] | None],
    n: int,
    null_counts_of: Callable[[str], NDArray[np.int64] | None] | None = None,
    rows: NDArray[np.int64] | None = None,
) -> NDArray[np.bool_]:
    statistics = {}
    for name in predicate.columns:
        found = statistics_of(name)
        field = schema[name]
        companion = None if field.validity is None else statistics_of(field.validity)
        if companion is None and field.optional and null_counts_of is not None:
            companion = _as_companion(null_counts_of(name), rows)
        if found is None:
            if companion is None:
                continue
            found = {"minimum": np.zeros(n), "maximum": np.zeros(n), "usable": np.zeros(n, np.bool_)}
        elif field.variable:
            found = _text_bounds(found)
        statistics[name] = predicates.ColumnStatistics(
            found["minimum"],
            found["maximum"],
            found["usable"],
            None if companion is None else companion["minimum"],
            None if companion is None else companion["maximum"],
            None if companion is None else companion["usable"],
            field.nulls,
        )
    if not statistics:
        return np.ones(n, np.bool_)
    return predicate.may_match(statistics, n)


_LONGEST_BOUND = 256


def _text_bounds(found: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    """Return bounds of text as NumPy text; those that are long, or that NumPy would shorten, say nothing."""
    bounds: dict[str, NDArray[Any]] = {}
    usable = found["usable"].copy()
    for side in ("minimum", "maximum"):
        values = found[side].tolist()
        kept = [
            v if isinstance(v, str) and len(v) <= _LONGEST_BOUND and v[-1:] != "\0" else None for v in values
        ]
        usable &= np.array([v is not None for v in kept], np.bool_)
        bounds[side] = np.array([v or "" for v in kept], dtype=np.str_)
    width = max(bounds["minimum"].dtype.itemsize, bounds["maximum"].dtype.itemsize) // 4
    return {**{side: values.astype(f"U{max(width, 1)}") for side, values in bounds.items()}, "usable": usable}


def _as_companion(
    nulls: NDArray[np.int64] | None, rows: NDArray[np.int64] | None
) -> Mapping[str, NDArray[Any]] | None:
    """Return what counts of nulls say in the form of a validity companion's bounds."""
    if nulls is None or rows is None:
        return None
    return {"minimum": nulls == 0, "maximum": nulls < rows, "usable": nulls >= 0}
