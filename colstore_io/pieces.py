"""Which rows of which segments does a selection want?

A selection is cut at the borders of segments. What a piece wants of its segment in detail, as a `Take`, is computed by
whoever decodes it, and dies with that: beside the selection itself, only an index in no order costs memory for each
row, 4 bytes, for the order in which segments are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dataset import Source
from .segments import Segments
from .selection import Index, Mask, Range, RowSelection, out_of_range
from .taking import Take

__all__ = ["Cut", "Piece", "cut", "whole_segments"]

_BLOCK = 1 << 17
"""Rows of an index that are looked at, or sorted, at once."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one segment that are wanted.

    Attributes
    ----------
    number : int
        Of the piece, among all pieces of a selection.
    segment : int
    rows : (int, int)
        The wanted rows lie in this range of the segment's rows.
    place : slice
        Which of the wanted rows of all pieces, one piece after the other, these are. They belong there in the result
        too if the selection is in order (`Cut.in_order`).
    """

    number: int
    segment: int
    rows: tuple[int, int]
    place: slice

    @property
    def count(self) -> int:
        """How many rows are wanted."""
        return int(self.place.stop - self.place.start)


class Cut:
    """A selection, cut at the borders of segments.

    Attributes
    ----------
    pieces : sequence of Piece
        In segment order; none without rows.
    in_order : bool
        Whether the rows of the pieces, one after the other, are the result.
    count : int
        Rows of the result.
    """

    pieces: Sequence[Piece]
    in_order = True
    count = 0

    def take(self, piece: Piece) -> Take | None:
        """Return which rows of the segment are wanted, and where they go in the result; None when all of its range are.

        Of a selection in order, places count from ``piece.place.start``. Called from any thread.
        """
        return None

    def picks(self, piece: Piece) -> bool:
        """Tell whether `take` gives something."""
        return False


def cut(source: Source, rows: RowSelection) -> Cut:
    """Cut a selection over the rows of `source`.

    Raises
    ------
    IndexError
        If a row is out of range.
    """
    table = source.plan.segments
    if isinstance(rows, Mask):
        return _Masked(table, rows.mask)
    if isinstance(rows, Range):
        if rows.step == 1 or rows.count < 2:
            return _Run(table, rows.start, rows.start + rows.count)
        low, high = table.span(*rows.extent)
        if high - low <= rows.count:
            return _Strided(table, rows, low, high)
        rows = Index(rows.positions(source.n_rows), checked=True)  # most segments have none of so few
    if rows.count == 0:
        return _Run(table, 0, 0)
    if not rows.checked:
        bad = source.kernel_module().first_out_of_range(rows.rows, source.n_rows)
        if bad >= 0:
            raise out_of_range(int(rows.rows[bad]), source.n_rows)
    positions = rows.positions(source.n_rows)
    return (_Ascending if _ascends(positions) else _Scattered)(table, positions)


def whole_segments(table: Segments, numbers: Sequence[int]) -> Cut:
    """Return segments as pieces, all of their rows."""
    found = Cut()
    rows = table.rows
    found.pieces = [
        Piece(number, s, (0, int(rows[s])), slice(0, int(rows[s]))) for number, s in enumerate(numbers)
    ]
    return found


class _Run(Cut):
    """Rows [start, stop)."""

    def __init__(self, table: Segments, start: int, stop: int) -> None:
        self.count = max(0, stop - start)
        pieces: list[Piece] = []
        self.pieces = pieces
        for s in range(*table.span(start, stop)):
            origin = int(table.row_start[s])
            first, end = max(start, origin), min(stop, int(table.row_start[s + 1]))
            if end > first:
                place = slice(first - start, end - start)
                pieces.append(Piece(len(pieces), s, (first - origin, end - origin), place))


class _Picked(Cut):
    """Rows that are not all of a range."""

    def picks(self, piece: Piece) -> bool:
        return True


class _Masked(_Picked):
    """Rows where a mask is true."""

    def __init__(self, table: Segments, mask: NDArray[np.bool_]) -> None:
        self._mask, self._row_start = mask, table.row_start
        pieces: list[Piece] = []
        self.pieces = pieces
        done = 0
        for s in range(table.n_segments):
            own = mask[int(table.row_start[s]) : int(table.row_start[s + 1])]
            count = int(np.count_nonzero(own))
            if count == 0:
                continue
            first = int(own.argmax())
            stop = _last(own) + 1
            pieces.append(Piece(len(pieces), s, (first, stop), slice(done, done + count)))
            done += count
        self.count = done

    def picks(self, piece: Piece) -> bool:
        return piece.count < piece.rows[1] - piece.rows[0]

    def take(self, piece: Piece) -> Take | None:
        if not self.picks(piece):
            return None
        origin = int(self._row_start[piece.segment])
        first, stop = piece.rows
        # NumPy counts what is true and then copies: the mask must not change in between.
        taken = Take(first, mask=self._mask[origin + first : origin + stop].copy())
        if taken.count != piece.count:
            raise _changed()
        return taken


class _Ascending(_Picked):
    """Rows by position, in order; `positions` is not copied."""

    def __init__(self, table: Segments, positions: NDArray[np.int64]) -> None:
        self._positions, self._row_start = positions, table.row_start
        self.count = len(positions)
        pieces: list[Piece] = []
        self.pieces = pieces
        for s, begin, end in zip(*_runs(table, positions), strict=True):
            origin = int(table.row_start[s])
            rows = int(positions[begin]) - origin, int(positions[end - 1]) - origin + 1
            if not 0 <= rows[0] < rows[1] <= int(table.rows[s]):
                raise _changed()
            pieces.append(Piece(len(pieces), s, rows, slice(begin, end)))

    def take(self, piece: Piece) -> Take | None:
        first, stop = piece.rows
        origin = int(self._row_start[piece.segment]) + first
        # What is checked is what is used: kernels and Arrow look at these rows again, whoever changes the index.
        rows = np.empty(piece.count, _narrow(stop - first))
        np.subtract(self._positions[piece.place], origin, out=rows, casting="unsafe")
        if rows[0] != 0 or rows[-1] != stop - first - 1 or not _ascends(rows):
            raise _changed()
        return Take(first, rows=rows)


class _Strided(_Picked):
    """Every so many rows, forwards or backwards."""

    def __init__(self, table: Segments, rows: Range, low: int, high: int) -> None:
        self.count, self.in_order = rows.count, rows.step > 0
        first, self._step = rows.extent[0], abs(rows.step)
        pieces: list[Piece] = []
        self.pieces = pieces
        done = 0
        for s in range(low, high):
            origin, end = int(table.row_start[s]), int(table.row_start[s + 1])
            stop = min(self.count, max(done, -((first - end) // self._step)))
            if stop > done:
                start = first + done * self._step - origin
                own = start, start + (stop - done - 1) * self._step + 1
                pieces.append(Piece(len(pieces), s, own, slice(done, stop)))
            done = stop

    def take(self, piece: Piece) -> Take | None:
        first, stop = piece.rows
        rows = np.arange(0, stop - first, self._step, dtype=_narrow(stop - first))
        places = None
        if not self.in_order:
            last = self.count - 1
            places = np.arange(
                last - piece.place.start, last - piece.place.stop, -1, dtype=_narrow(self.count)
            )
        return Take(first, rows=rows, places=places)


class _Scattered(_Picked):
    """Rows by position, in no order.

    Blocks of the index are sorted one by one, and nothing is kept of them but the order, 4 bytes a row: a segment's
    rows are a run of each block.
    """

    in_order = False

    def __init__(self, table: Segments, positions: NDArray[np.int64]) -> None:
        self._positions, self._row_start = positions, table.row_start
        self.count = n = len(positions)
        self._order = np.empty(n, _narrow(n))
        self._ordered: NDArray[np.int64] | None = None
        # At least as many rows as segments: the borders of blocks take no more memory than the order then.
        block = max(_BLOCK, 2 << table.n_segments.bit_length())
        numbers: NDArray[np.int64] | range
        if n <= block:
            ordered = self._sort(table, 0, n)
            found, begin, end = _runs(table, ordered)
            self._ordered = ordered  # few
            self._edges, self._size = np.array([[*begin, n]], np.int64), n
            numbers = np.array(found, np.int64)
            low, high = ordered[np.array(begin)], ordered[np.array(end) - 1]
        else:
            numbers = range(table.n_segments)
            low = np.full(table.n_segments, np.iinfo(np.int64).max)
            high = np.full(table.n_segments, -1)
            self._edges = np.empty((-(-n // block), table.n_segments + 1), np.int32)
            self._size = block
            for k, at in enumerate(range(0, n, block)):
                ordered = self._sort(table, at, min(n, at + block))
                edges = np.searchsorted(ordered, table.row_start)
                some = edges[1:] > edges[:-1]
                low[some] = np.minimum(low[some], ordered[edges[:-1][some]])
                high[some] = np.maximum(high[some], ordered[edges[1:][some] - 1])
                self._edges[k] = edges
        pieces: list[Piece] = []
        self.pieces = pieces
        self._column: list[int] = []
        done = 0
        counts = np.diff(self._edges, axis=1).sum(axis=0).tolist()
        for column, (s, count) in enumerate(zip(numbers, counts, strict=True)):
            if count:
                origin = int(table.row_start[s])
                rows = int(low[column]) - origin, int(high[column]) - origin + 1
                pieces.append(Piece(len(pieces), int(s), rows, slice(done, done + count)))
                self._column.append(column)
                done += count

    def _sort(self, table: Segments, at: int, stop: int) -> NDArray[np.int64]:
        """Put down the order of the rows number [at, stop), and return them in it."""
        part, order = self._positions[at:stop], self._order[at:stop]
        bits = (stop - at).bit_length()
        if table.n_rows >> (62 - bits):
            found = np.argsort(part, kind="stable")
            order[:] = found
            order += at
            ordered: NDArray[np.int64] = part[found]
            return ordered
        # One array of numbers is sorted in a tenth of the time that it takes to sort what they point to.
        packed = part << bits
        packed |= np.arange(stop - at)
        packed.sort()
        np.bitwise_and(packed, (1 << bits) - 1, out=order, casting="unsafe")
        order += at
        packed >>= bits
        return packed

    def take(self, piece: Piece) -> Take | None:
        if self._ordered is not None:
            origin = int(self._row_start[piece.segment]) + piece.rows[0]
            rows, places = self._ordered[piece.place], self._order[piece.place]
            return Take(piece.rows[0], rows=rows, places=places, base=origin)
        column = self._column[piece.number]
        runs = [
            self._order[k * self._size + begin : k * self._size + end]
            for k, (begin, end) in enumerate(self._edges[:, column : column + 2].tolist())
            if begin < end
        ]
        places = runs[0] if len(runs) == 1 else np.concatenate(runs)
        first, stop = piece.rows
        rows = np.empty(len(places), np.int64)
        for at in range(0, len(places), _BLOCK):
            rows[at : at + _BLOCK] = self._positions[places[at : at + _BLOCK]]
        rows -= int(self._row_start[piece.segment]) + first
        if int(rows.min()) < 0 or int(rows.max()) >= stop - first:
            raise _changed()
        dtype, bits = _narrow(stop - first), self.count.bit_length()
        if len(runs) == 1:  # sorted already; not to be written to, as it is the order itself
            return Take(first, rows=rows.astype(dtype), places=places)
        if (stop - first) >> (62 - bits):
            by_row = np.argsort(rows, kind="stable")
            return Take(first, rows=rows[by_row], places=places[by_row])
        rows <<= bits
        rows |= places
        rows.sort()
        np.bitwise_and(rows, (1 << bits) - 1, out=places, casting="unsafe")
        rows >>= bits
        return Take(first, rows=rows.astype(dtype), places=places)


def _narrow(n: int) -> np.dtype[Any]:
    """Return the smallest type of numbers below `n`."""
    return np.dtype(np.int32 if n <= 1 << 31 else np.int64)


def _last(mask: NDArray[np.bool_]) -> int:
    """Return where the last entry is true; one is. Backwards, NumPy looks at one entry at a time."""
    step = 64
    stop: int = mask.shape[0]
    while not mask[max(0, stop - step) : stop].any():
        stop -= step
        step *= 2
    first = max(0, stop - step)
    return stop - 1 - int(mask[first:stop][::-1].argmax())


def _ascends(positions: NDArray[np.integer[Any]]) -> bool:
    for at in range(0, len(positions) - 1, _BLOCK):
        part = positions[at : at + _BLOCK + 1]
        if not bool((part[1:] >= part[:-1]).all()):
            return False
    return True


def _runs(table: Segments, ordered: NDArray[np.int64]) -> tuple[list[int], list[int], list[int]]:
    """Return the segments that ascending rows lie in, and where among these rows the rows of each begin and end."""
    if len(ordered) < table.n_segments:
        numbers = table.locate(ordered)
        begin = np.concatenate([[0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1])
        found = numbers[begin]
        end = np.append(begin[1:], len(ordered))
    else:
        edges = np.searchsorted(ordered, table.row_start)
        found = np.flatnonzero(edges[1:] > edges[:-1])
        begin, end = edges[:-1][found], edges[1:][found]
    return found.tolist(), begin.tolist(), end.tolist()


def _changed() -> RuntimeError:
    return RuntimeError("the rows were changed by somebody while they were read")
