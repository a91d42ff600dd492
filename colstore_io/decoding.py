"""Rows of segments that are decoded: which road?

The counterpart of `gather` for formats without addresses. Whole columns may have a short road (`ready`); everything
else is put together of pieces (`assembly`, which is imported with the first of them).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .dataset import Source
from .formats import Allocate
from .ready import ready_column
from .selection import Index, Mask, Range, RowSelection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Columns", "read_columns", "read_segments"]

Columns: TypeAlias = "list[NDArray[Any] | tuple[NDArray[Any], NDArray[np.bool_]] | pa.Array]"
"""For each field an array; for a nullable one of fixed width (values, validity); for variable length an Arrow array."""


def read_columns(
    source: Source,
    rows: RowSelection,
    positions: Sequence[int],
    out: Sequence[NDArray[Any] | None] | None = None,
    *,
    dictionaries: Collection[str] = (),
    allocate: Allocate | None = None,
) -> Columns:
    """Read the selected rows of fields.

    Parameters
    ----------
    source : Source
        With decoders.
    rows : RowSelection
    positions : sequence of int
        Of fields in the schema; repeats allowed.
    out : sequence of ndarray or None, optional
        Targets of fixed-width fields: shape (rows.count,), native dtype.
    dictionaries : collection of str
        Columns that may come as Arrow dictionary arrays.
    allocate : callable, optional
        Memory of the results of a contiguous range.

    Raises
    ------
    IndexError
        If a row is out of range; nothing was read or written then.
    FormatError
        If a chunk is damaged, naming file, segment and column. A given `out` is unspecified then.
    ValueError
        If `out` overlaps memory that is read from; nothing is written then.

    Notes
    -----
    Peak memory: the result, and for each thread what is in work. That is one block where a decoder picks rows while it
    decodes (`TakingDecoder`), else the wanted range of rows of one segment; of text and dictionaries in order also the
    wanted rows of a few segments that wait for their turn, at most `jobs.AHEAD` a thread. Besides:

    * of files that are not mapped the stored bytes of one wave (`loading.WAVE_BYTES`);
    * of an index in no order 4 bytes for each of its rows, and 16 for each that it wants of the segments in work; of
      text in no order at most `scattering.KEPT_BYTES`, as a large result is decoded twice: once for the lengths, once
      for the bytes. A byte a row for nulls of such text, until they are bits;
    * of a range of text the rest of the segments that it cuts;
    * of lists, what is read is held twice while it becomes one array;
    * what the source keeps of chunks that are read in part again and again (``config.get_decoded_cache_bytes()``).
    """
    if out is not None:
        given = [target for target in out if target is not None]
        source.refuse_overlap(given)
        rows = _apart(rows, given)
    if isinstance(rows, Range) and rows.covers(source.n_rows):
        found = _ready_columns(source, positions, out, allocate)
        rest = [number for number in range(len(positions)) if number not in found]
        if found:
            if rest:
                left = None if out is None else [out[number] for number in rest]
                others = [positions[number] for number in rest]
                read = _assembled(source, rows, others, left, dictionaries, allocate)
                found.update(zip(rest, read, strict=True))
            return [found[number] for number in range(len(positions))]
    return _assembled(source, rows, positions, out, dictionaries, allocate)


def _ready_columns(
    source: Source,
    positions: Sequence[int],
    out: Sequence[NDArray[Any] | None] | None,
    allocate: Allocate | None,
) -> dict[int, Any]:
    """Return all rows of the fields that have a short road, by their number among `positions`."""
    found: dict[int, Any] = {}
    checked = False
    for number, position in enumerate(positions):
        ready = ready_column(source, (position, False))
        if ready is None:
            continue
        if not checked:
            source.check_sizes()
            checked = True
        target = None if out is None else out[number]
        if target is None and allocate is not None:
            target = allocate(source.n_rows * ready.dtype.itemsize).view(ready.dtype)
        values = ready.read(source, target)
        if values is not None:
            found[number] = values
    return found


def _assembled(
    source: Source,
    rows: RowSelection,
    positions: Sequence[int],
    out: Sequence[NDArray[Any] | None] | None,
    dictionaries: Collection[str],
    allocate: Allocate | None,
) -> Columns:
    from .assembly import assemble

    return assemble(source, rows, positions, out, dictionaries, allocate)


def _apart(rows: RowSelection, out: Sequence[NDArray[Any]]) -> RowSelection:
    """Return `rows`, copied if they share memory with an output: else they would change while they are read."""
    if isinstance(rows, Index) and any(np.may_share_memory(target, rows.rows) for target in out):
        return Index(rows.rows.copy(), checked=rows.checked)
    if isinstance(rows, Mask) and any(np.may_share_memory(target, rows.mask) for target in out):
        return Mask(rows.mask.copy())
    return rows


def read_segments(
    source: Source, positions: Sequence[int], *, dictionaries: Collection[str] = (), share: bool = False
) -> Iterator[Columns]:
    """Yield the fields of each segment that has rows, in order; a few segments are decoded at once.

    Parameters
    ----------
    source : Source
    positions : sequence of int
    dictionaries : collection of str
        As in `read_columns`.
    share : bool, default False
        Give read-only views of mapped files where values are stored as they are in memory.
    """
    table = source.plan.segments
    numbers = np.flatnonzero(table.rows > 0).tolist()
    roads = [ready_column(source, (position, False)) for position in positions]
    slow = [number for number, road in enumerate(roads) if road is None]
    if slow:
        from .assembly import decoded_segments

        decoded = decoded_segments(source, numbers, [positions[number] for number in slow], dictionaries)
    for index, s in enumerate(numbers):
        if index == 0 and len(slow) < len(roads):
            source.check_sizes()
        columns: Columns = [
            None if road is None else road.segment(source, index, share=share) for road in roads
        ]
        if slow:
            for number, column in zip(slow, next(decoded), strict=True):
                columns[number] = column
        for number, column in enumerate(columns):
            if column is None:  # damaged: the ordinary way says where
                rows = Range(int(table.row_start[s]), 1, int(table.rows[s]))
                (columns[number],) = _assembled(source, rows, [positions[number]], None, (), None)
        yield columns
