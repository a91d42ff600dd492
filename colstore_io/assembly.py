"""A selection, decoded and put together.

It is cut into pieces (`pieces`); these are fetched and decoded in parallel (`loading`, `jobs`); and what is wanted of
them goes to its place in the result of its column (`results`, `joining`, `scattering`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

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
from .selection import RowSelection

if TYPE_CHECKING:
    from .decoding import Columns

__all__ = ["assemble", "decoded_segments"]

LEAST_JOINED = 4
"""A range is decoded with the rest of the segments that it cuts if that is no more than a fourth of all."""


def assemble(
    source: Source,
    rows: RowSelection,
    positions: Sequence[int],
    out: Sequence[NDArray[Any] | None] | None,
    dictionaries: Collection[str],
    allocate: Allocate | None,
) -> Columns:
    """Read the selected rows of fields; see `decoding.read_columns`."""
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


def decoded_segments(
    source: Source, numbers: Sequence[int], positions: Sequence[int], dictionaries: Collection[str]
) -> Iterator[Columns]:
    """Yield the fields of segments, one segment after the other; see `decoding.read_segments`."""
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
