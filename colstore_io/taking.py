"""Which rows of one segment are wanted, and where they go.

What decodes a segment does so in windows: some thousand consecutive rows at a time, in memory that is used again. A
`Take` picks the wanted rows out of each window, so that a scattered read holds its result and the windows in work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Run", "Take"]

_MASK_STEP = 1 << 16
"""Rows of a mask between two counts that are kept of it: a window counts fewer than these to know its place."""


_STEP = 1 << 16
"""Rows that are picked or placed at once: so much is held besides."""


class Take:
    """Rows of a segment, picked window by window; stateless, so windows may come from any thread in any order.

    Parameters
    ----------
    start : int
        The row of the segment that `rows` and `mask` count from.
    rows : ndarray of integers, optional
        Ascending, not negative; a row may be wanted more than once. 32 bits where they reach are half the memory.
    mask : ndarray of bool, optional
        Instead of `rows`.
    base : int, optional
        What `rows` say for row `start`: rows of a whole dataset need not be copied to count from a segment.
    places : ndarray of integers, optional
        Where in the target each wanted row goes, in the order of the rows. Default: one after the other from 0.

    Attributes
    ----------
    start, stop : int
        The wanted rows lie in [start, stop).
    count : int
        How many rows are wanted, repeats counted.
    """

    __slots__ = ("_base", "_before", "_mask", "_places", "_rows", "count", "start", "stop")

    def __init__(
        self,
        start: int,
        *,
        rows: NDArray[np.integer[Any]] | None = None,
        mask: NDArray[np.bool_] | None = None,
        places: NDArray[np.integer[Any]] | None = None,
        base: int = 0,
    ) -> None:
        self.start, self._base = start, base
        self._rows, self._mask, self._places = rows, mask, places
        self._before: NDArray[np.int64] | None = None
        if rows is not None:
            self.count = len(rows)
            self.stop = start + (int(rows[-1]) - base + 1 if len(rows) else 0)
            return
        if mask is None:
            raise TypeError("Take wants rows or a mask")
        counts = [int(np.count_nonzero(mask[at : at + _MASK_STEP])) for at in range(0, len(mask), _MASK_STEP)]
        self._before = np.concatenate([[0], np.cumsum(np.array(counts, np.int64))])
        self.count = int(self._before[-1])
        self.stop = start + len(mask)

    def _span(self, first: int, stop: int) -> tuple[int, int]:
        """Return which of the wanted rows, as positions among them, lie in the segment's rows [first, stop)."""
        low, high = max(first, self.start) - self.start, min(stop, self.stop) - self.start
        if low >= high:
            return 0, 0
        if self._rows is not None:
            return self._bounds(low, high)
        assert self._mask is not None
        assert self._before is not None
        step = low // _MASK_STEP
        begin = int(self._before[step]) + int(np.count_nonzero(self._mask[step * _MASK_STEP : low]))
        return begin, begin + int(np.count_nonzero(self._mask[low:high]))

    def _bounds(self, low: int, high: int) -> tuple[int, int]:
        """Return which of `rows` lie in [low, high)."""
        assert self._rows is not None
        # Bounds of another type would have all rows converted.
        begin, end = np.searchsorted(
            self._rows, np.array([low + self._base, high + self._base], self._rows.dtype)
        )
        return int(begin), int(end)

    def wants(self, first: int, stop: int) -> bool:
        """Tell whether a row of [first, stop) is wanted."""
        low, high = max(first, self.start) - self.start, min(stop, self.stop) - self.start
        if low >= high:
            return False
        if self._rows is not None:
            begin, end = self._bounds(low, high)
            return begin < end
        assert self._mask is not None
        return bool(self._mask[low:high].any())

    def window(self, first: int, stop: int) -> tuple[slice | NDArray[np.int64], NDArray[Any] | slice]:
        """Return what a window of the rows [first, stop) has that is wanted.

        Returns
        -------
        (target, source)
            ``out[target] = window[source]`` puts the rows where they belong; `source` is a mask or positions within
            the window, or an empty slice.
        """
        begin, end = self._span(first, stop)
        if begin == end:
            return slice(0, 0), slice(0, 0)
        target: slice | NDArray[np.int64] = slice(begin, end)
        if self._places is not None:
            target = self._places[begin:end].astype(np.int64, copy=False)
        return target, self._source(first, stop, begin, end)

    def _source(self, first: int, stop: int, begin: int, end: int) -> NDArray[Any]:
        """Return where in a window of the rows [first, stop) the wanted rows number [begin, end) are."""
        if self._rows is not None:
            positions: NDArray[Any] = np.subtract(
                self._rows[begin:end], first - self.start + self._base, dtype=np.int64
            )
            return positions
        assert self._mask is not None
        low, high = max(first, self.start), min(stop, self.stop)
        mask = self._mask[low - self.start : high - self.start]
        if (low, high) != (first, stop):
            whole = np.zeros(stop - first, np.bool_)
            whole[low - first : high - first] = mask
            mask = whole
        return mask

    def put(self, first: int, values: NDArray[Any], out: NDArray[Any]) -> None:
        """Copy the wanted rows of a window, `values`, whose first row is row `first` of the segment, to `out`."""
        for begin, end, part in self._parts(first, values):
            out[self.places(begin, end)] = part

    def pick(self, first: int, values: NDArray[Any]) -> NDArray[Any]:
        """Return the wanted rows, in their order, of values that begin with row `first` and hold all of them.

        Returns
        -------
        ndarray, shape (count,)
        """
        out = np.empty(self.count, values.dtype)
        for begin, end, part in self._parts(first, values):
            out[begin:end] = part
        return out

    def _parts(self, first: int, values: NDArray[Any]) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Yield the wanted rows of a window, some at once: which of all they are, and their values."""
        stop = first + len(values)
        if self._rows is not None:
            low, high = max(first, self.start) - self.start, min(stop, self.stop) - self.start
            begin, end = self._bounds(low, high) if low < high else (0, 0)
            for at in range(begin, end, _STEP):
                until = min(end, at + _STEP)
                yield at, until, values[self._source(first, stop, at, until)]
            return
        begin, last = self._span(first, stop)
        stop = min(stop, self.stop)
        # A window may be far larger than what is wanted of it.
        for row in range(max(first, self.start), stop, _STEP):
            if begin == last:
                return
            after = min(row + _STEP, stop)
            part = values[row - first : after - first]
            found = part[self.window(row, after)[1] if self._mask is None else self._source(row, after, 0, 0)]
            if len(found):
                yield begin, begin + len(found), found
                begin += len(found)

    def span(self, first: int, stop: int) -> tuple[int, int]:
        """Return which of the wanted rows, number begin to number end, lie in the segment's rows [first, stop)."""
        return self._span(first, stop)

    def windows(self, size: int) -> list[int]:
        """Return which windows of `size` rows of the segment hold a wanted row, ascending."""
        first, last = self.start // size, -(-self.stop // size)
        if self.count == 0:
            return []
        if self._rows is not None:
            edges = np.maximum(np.arange(first, last + 1) * size - self.start, 0) + self._base
            if (
                edges[-1] <= np.iinfo(self._rows.dtype).max
            ):  # bounds of another type would have all rows converted
                edges = edges.astype(self._rows.dtype)
            bounds = np.searchsorted(self._rows, edges)
            found: list[int] = (np.flatnonzero(np.diff(bounds)) + first).tolist()
            return found
        return [window for window in range(first, last) if self.wants(window * size, (window + 1) * size)]

    def row(self, number: int) -> int:
        """Return the row of the segment that is wanted as number `number`."""
        return self.start + (
            int(self.positions()[number]) if self._rows is None else int(self._rows[number]) - self._base
        )

    @property
    def mask(self) -> NDArray[np.bool_] | None:
        """The mask of the rows from `start`, if there is one."""
        return self._mask

    def positions(self) -> NDArray[np.integer[Any]]:
        """Return the wanted rows, counted from `start`, ascending; not to be written to."""
        if self._rows is not None:
            return self._rows - self._base if self._base else self._rows
        assert self._mask is not None
        return np.flatnonzero(self._mask)

    def places(self, begin: int, end: int) -> slice | NDArray[np.int64]:
        """Return where in the target the wanted rows number [begin, end) go."""
        if self._places is None:
            return slice(begin, end)
        return self._places[begin:end].astype(np.int64, copy=False)

    def spread(self, picked: NDArray[Any], out: NDArray[Any]) -> None:
        """Copy what there is for each wanted row, in their order, to its place in `out`."""
        if self._places is None:
            out[: self.count] = picked
            return
        for at in range(0, self.count, _STEP):
            out[self.places(at, at + _STEP)] = picked[at : at + _STEP]


class Run(Take):
    """All rows [start, stop) of a segment, as a `Take`."""

    __slots__ = ()

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop, self.count = start, stop, stop - start
        self._base = 0
        self._rows = self._mask = self._places = self._before = None

    def _span(self, first: int, stop: int) -> tuple[int, int]:
        low, high = max(first, self.start), min(stop, self.stop)
        return (low - self.start, high - self.start) if low < high else (0, 0)

    def wants(self, first: int, stop: int) -> bool:
        return max(first, self.start) < min(stop, self.stop)

    def window(self, first: int, stop: int) -> tuple[slice, slice]:
        begin, end = self._span(first, stop)
        shift = self.start - first
        return slice(begin, end), slice(begin + shift, end + shift)

    def positions(self) -> NDArray[np.int64]:
        return np.arange(self.count)
