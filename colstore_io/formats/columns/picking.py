"""Some rows of a chunk: windows of rows, and which of their values are there.

Rows are decoded in windows of `WINDOW_ROWS`, in memory that is used again; those without a wanted row are passed over
where the encoding lets a reader do so. So a read holds its result, the block in work of a stream and a window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import decode as kernel
from ...taking import Take
from .chunk import Chunk, ChunkFacts
from .tags import Codec

__all__ = ["WINDOW_ROWS", "Windows"]

WINDOW_ROWS = 1 << 14
"""Rows at a time: 128 KiB of the widest values, and so many that a window costs more than the calls it takes.
Whole bytes of a null bitmap."""


_LEAST_ROWS = 1 << 8


class Windows:
    """The windows of a chunk that hold a wanted row.

    Parameters
    ----------
    chunk : Chunk
    facts : ChunkFacts
    take : Take

    Attributes
    ----------
    size : int
        Rows of a window, the last one less.
    wanted : list of int
        Numbers of these windows, ascending.
    """

    def __init__(self, chunk: Chunk, facts: ChunkFacts, take: Take) -> None:
        self.take = take
        # About as many as a block holds: a row asks for little more than its block.
        in_block = facts.n_rows // len(chunk.raw) if chunk.codec is not Codec.NONE else facts.n_rows
        self.size = min(WINDOW_ROWS, max(_LEAST_ROWS, in_block // 8 * 8))
        self.n_rows = facts.n_rows
        self.bitmap = chunk.bitmap
        self.wanted = take.windows(self.size)
        self._before = [0]  # values before each window up to the last wanted one
        if self.bitmap is not None and self.wanted:
            for window in range(self.wanted[-1] + 1):
                first, stop = self.rows(window)
                nulls = kernel.count_nulls(self.nulls(first, stop), stop - first)
                self._before.append(self._before[-1] + stop - first - nulls)

    def rows(self, window: int) -> tuple[int, int]:
        """Return the rows [first, stop) of a window."""
        first = window * self.size
        return first, min(first + self.size, self.n_rows)

    def values(self, window: int) -> tuple[int, int]:
        """Return the values [first, stop) of a window."""
        if self.bitmap is None:
            return self.rows(window)
        return self._before[window], self._before[window + 1]

    def nulls(self, first: int, stop: int) -> memoryview:
        """Return the null bitmap of the rows of a window, one that has not more bits than rows."""
        assert self.bitmap is not None
        return self.bitmap[first // 8 : (stop + 7) // 8]

    def there(self, window: int) -> NDArray[np.bool_]:
        """Return which rows of a window have a value; of a chunk that has nulls."""
        first, stop = self.rows(window)
        found = np.empty(stop - first, np.bool_)
        kernel.validity(self.nulls(first, stop), found.view(np.uint8))
        return found

    def selector(self, window: int) -> Any:
        """Return what picks the wanted rows, in order and with repeats, out of an array of the rows of a window."""
        return self.take.window(*self.rows(window))[1]

    def chosen(self, window: int) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """Return which values of a window are wanted, in order and with repeats.

        Returns
        -------
        (values, validity)
            Numbers of the values within the window, ascending; and which of the wanted rows have one, None for all.
        """
        selector = self.selector(window)
        if isinstance(selector, slice):
            rows = np.arange(selector.start, selector.stop)
        else:
            rows = np.flatnonzero(selector) if selector.dtype == np.bool_ else selector
        if self.bitmap is None:
            return rows, None
        there = self.there(window)
        if there.all():
            return rows, None
        validity = there[rows]
        return (np.cumsum(there) - 1)[rows[validity]], validity
