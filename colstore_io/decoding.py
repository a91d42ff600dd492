"""Rows of segments that are decoded.

The counterpart of `gather` for formats without addresses: a selection is cut into pieces (`pieces`), these are fetched
and decoded in parallel (`loading`), and what is wanted of them goes to its place in the result (`results`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import buffers, threads
from .dataset import Source
from .fields import Field, native
from .formats import Allocate, JoiningDecoder
from .jobs import Job, run_all
from .joining import Joiner
from .loading import Loader
from .pieces import Cut, Piece, cut, whole_segments
from .ready import ready_column
from .results import (
    ArrowResult,
    CodesResult,
    Collected,
    FixedResult,
    JoinedResult,
    MixedPartsError,
    Result,
    TextResult,
    is_text,
)
from .scattering import KEPT_BYTES, Room, ScatteredText
from .selection import Index, Mask, Range, RowSelection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Columns", "read_columns", "read_segments"]

LEAST_JOINED = 4
"""A range is decoded with the rest of the segments that it cuts if that is no more than a fourth of all."""

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
                read = _read_columns(source, rows, others, left, dictionaries, allocate)
                found.update(zip(rest, read, strict=True))
            return [found[number] for number in range(len(positions))]
    return _read_columns(source, rows, positions, out, dictionaries, allocate)


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


def _apart(rows: RowSelection, out: Sequence[NDArray[Any]]) -> RowSelection:
    """Return `rows`, copied if they share memory with an output: else they would change while they are read."""
    if isinstance(rows, Index) and any(np.may_share_memory(target, rows.rows) for target in out):
        return Index(rows.rows.copy(), checked=rows.checked)
    if isinstance(rows, Mask) and any(np.may_share_memory(target, rows.mask) for target in out):
        return Mask(rows.mask.copy())
    return rows


def _read_columns(
    source: Source,
    rows: RowSelection,
    positions: Sequence[int],
    out: Sequence[NDArray[Any] | None] | None,
    dictionaries: Collection[str],
    allocate: Allocate | None,
) -> Columns:
    chosen = cut(source, rows)
    loader = Loader(source, positions, dictionaries, allocate)
    results = _Results(loader, chosen, allocate).of_fields(out)
    while True:
        try:
            loader.run(chosen, results)
            break
        except MixedPartsError:
            # Rare, and only of dictionaries in no order: how their text is stored differs between segments.
            loader = Loader(source, positions, (), allocate)
            results = _Results(loader, chosen, allocate).of_fields(out)
    for number, result in enumerate(results):
        if isinstance(result, ScatteredText):
            _scatter(loader, chosen, number, result)
    columns: Columns = []
    for number in range(len(results)):
        columns.append(results[number].finish())
        results[number] = Collected()  # nothing is held that is not needed for the next one
    return columns


def _scatter(loader: Loader, chosen: Cut, number: int, result: ScatteredText) -> None:
    """Put the text of all pieces to its place, when the lengths of all are known."""
    source = loader.source
    calls, again = result.begin()
    work = result.nbytes
    with threads.lease(threads.wanted_threads(work, source.thread_cap())) as granted:
        run_all([Job(1, lambda _, call=call: call()) for call in calls], granted)  # type: ignore[misc]
    if again:
        second = Loader(source, [loader.positions[number]], caching=False)
        second.fetched = loader.fetched
        second.run(chosen, [result], again)


def _copy_kernel(source: Source) -> Callable[..., None]:
    if source.backend == "numpy":
        from .kernels_numpy import copy_runs
    else:
        from .kernels.copy import copy_runs
    return copy_runs


class _Results:
    """Makes the results of a read."""

    def __init__(self, loader: Loader, chosen: Cut, allocate: Allocate | None) -> None:
        self.loader, self.source, self.cut = loader, loader.source, chosen
        self.allocate = allocate
        self.room = Room(KEPT_BYTES)

    def of_fields(self, out: Sequence[NDArray[Any] | None] | None) -> list[Result]:
        """Return a result for each field of the loader.

        Raises
        ------
        ValueError
            If an array of `out` does not fit.
        """
        fields = self.loader.fields
        targets = [
            self._target(field, None if out is None else out[number]) for number, field in enumerate(fields)
        ]
        joiners = self._joiners()
        results: list[Result] = []
        for number, (field, target) in enumerate(zip(fields, targets, strict=True)):
            if target is not None:
                results.append(FixedResult(self.cut, target, field.nullable))
            elif number in joiners:
                results.append(JoinedResult(joiners.pop(number)))
            elif not is_text(field):
                results.append(ArrowResult(self.cut, field))
            elif number in self.loader.categorical:
                results.append(CodesResult(self.cut, field, self.allocate))
            elif self.cut.in_order:
                results.append(TextResult(self.cut, field, self.allocate))
            else:
                results.append(
                    ScatteredText(self.cut, field, self.room, _copy_kernel(self.source), self.allocate)
                )
        return results

    def _target(self, field: Field, given: NDArray[Any] | None) -> NDArray[Any] | None:
        count = self.cut.count
        if field.variable:
            if given is not None:
                raise ValueError(f"column {field.name!r} has no fixed width: out= has no form for it")
            return None
        dtype = native(field.dtype)
        if given is None:
            if self.allocate is None:
                return buffers.empty(count, dtype)
            return self.allocate(count * dtype.itemsize).view(dtype)
        if given.dtype != dtype or given.shape != (count,):
            raise ValueError(
                f"out must have dtype {dtype} and shape ({count},), got {given.dtype} and {given.shape}"
            )
        if not (given.flags.c_contiguous and given.flags.writeable):
            raise ValueError("out must be C-contiguous and writable")
        return given

    def _joiners(self) -> dict[int, Joiner]:
        """Return a `Joiner` for each field of variable length whose segments are all read whole.

        A contiguous range may cut the first and the last one: they are decoded whole where that is little.
        """
        plan, pieces = self.source.plan, self.cut.pieces
        if len(pieces) < 2 or any(self.cut.picks(piece) for piece in pieces):
            return {}
        rows = [int(plan.segments.rows[piece.segment]) for piece in pieces]
        left_out = pieces[0].rows[0], rows[-1] - pieces[-1].rows[1]
        first = [left_out[0], *([0] * (len(rows) - 1))]
        stop = [*rows[:-1], rows[-1] - left_out[1]]
        if [piece.rows for piece in pieces] != list(zip(first, stop, strict=True)):
            return {}
        if sum(left_out) * LEAST_JOINED > sum(rows):
            return {}
        if not all(decoder.independent and isinstance(decoder, JoiningDecoder) for decoder in plan.decoders):
            return {}
        joiners = {}
        for number, field in enumerate(self.loader.fields):
            if not field.variable or number in self.loader.categorical:
                continue
            try:
                joiners[number] = Joiner(
                    rows, self._value_bytes(pieces, number), self.allocate, left_out=left_out
                )
            except MemoryError:  # reading one after the other says which it is that asks for so much
                continue
        return joiners

    def _value_bytes(self, pieces: Sequence[Piece], number: int) -> list[int] | None:
        """Return how many bytes the values of a field have in each piece, if the files say so and are at hand."""
        plan, maps = self.source.plan, self.source.mappings()
        sizes = []
        for piece in pieces:
            file = int(plan.segments.file[piece.segment])
            mapping, decoder = maps[file], plan.decoders[file]
            if mapping is None or not isinstance(decoder, JoiningDecoder):
                return None
            column = self.loader.columns(file)[number]
            local = piece.segment - int(self.loader.first_segment[file])
            ((offset, length),) = decoder.ranges(local, [column])
            size = decoder.value_bytes(local, column, mapping.data[offset : offset + length])
            if size is None:
                return None
            sizes.append(size)
        return sizes


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
    decoded = _decoded_segments(source, numbers, [positions[number] for number in slow], dictionaries)
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
                (columns[number],) = _read_columns(source, rows, [positions[number]], None, (), None)
        yield columns


def _decoded_segments(
    source: Source, numbers: Sequence[int], positions: Sequence[int], dictionaries: Collection[str]
) -> Iterator[Columns]:
    chosen = whole_segments(source.plan.segments, numbers)
    loader = Loader(source, positions, dictionaries)
    fields = loader.fields
    for pieces, decoded in loader.in_groups(chosen):
        for piece in pieces:
            columns: Columns = []
            for field, found in zip(fields, decoded, strict=True):
                column = found.columns.pop(piece.number)
                if column.array is not None:
                    columns.append(column.array)
                elif field.nullable:
                    mask = np.ones(piece.count, np.bool_) if column.validity is None else column.validity
                    columns.append((column.values, mask))
                else:
                    columns.append(column.values)
            yield columns
