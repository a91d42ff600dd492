"""Values of variable length of several segments, decoded into one pair of buffers.

Where the file tells how many bytes each segment will have (Plain, OffsetBytes, Affix), all of them are decoded side by
side, each into its part of the result. Else one segment comes after the other, and the bytes grow, by a quarter at most
and no further than what is expected. Either way a read of many segments holds its result and the blocks in work.

Offsets of a segment count from its own first byte until all are there; each segment has a place of its own for the last
one, so that no two of them write to the same word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import buffers
from .errors import FormatError
from .formats import Allocate

if TYPE_CHECKING:
    import pyarrow as pa

    from .kernels.tokens import GrownBytes

__all__ = ["Joiner", "buffer_of", "grown_bytes", "text_array"]

_INT32_MAX = (1 << 31) - 1
_STEP = 1 << 16  # offsets that are moved at once


class Joiner:
    """One column of a read of several segments.

    Parameters
    ----------
    rows : sequence of int
        Of each segment; at least one.
    sizes : sequence of int, optional
        Bytes of the values of each. Without them segments must be decoded in order, one at a time.
    allocate : callable, optional
        Memory of the result; what grows does not come from there.
    left_out : (int, int)
        Rows at the begin of the first segment and at the end of the last one that are decoded, and no part of the
        result: values of variable length cannot be reached in another way.
    """

    def __init__(
        self,
        rows: Sequence[int],
        sizes: Sequence[int] | None,
        allocate: Allocate | None = None,
        *,
        left_out: tuple[int, int] = (0, 0),
    ) -> None:
        self.rows = list(rows)
        self.left_out = left_out
        self.n_rows = sum(self.rows)
        self._first_slot = np.concatenate([[0], np.cumsum(np.array(self.rows) + 1)]).tolist()
        total = 0 if sizes is None else sum(sizes)
        self._allocate = allocate
        self._slots = self._memory(
            np.dtype(np.int64 if total > _INT32_MAX else np.int32), self.n_rows + len(rows)
        )
        self._sizes = [0] * len(self.rows) if sizes is None else list(sizes)
        self._nulls: list[tuple[NDArray[np.uint8] | None, int]] = [(None, 0)] * len(self.rows)
        self._wide: dict[int, NDArray[np.int64]] = {}  # offsets of segments that 32 bits do not reach over
        self.ordered = sizes is None
        self.grown = grown_bytes()
        self._data = np.empty(0, np.uint8) if sizes is None else self._memory(np.dtype(np.uint8), total)
        self._data_start = np.concatenate([[0], np.cumsum(self._sizes)]).tolist()
        self.text = False

    def _memory(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        if self._allocate is None:
            return buffers.empty(count, dtype)
        return self._allocate(count * dtype.itemsize).view(dtype)

    def room(self, number: int) -> _Room:
        """Return the place of segment `number`."""
        return _Room(self, number)

    def finish(self) -> pa.Array:
        """Return the column, when all segments are there."""

        starts = np.concatenate([[0], np.cumsum(self._sizes)]).tolist()
        offsets = self._slots
        if starts[-1] > _INT32_MAX and offsets.dtype.itemsize == 4:
            offsets = self._memory(np.dtype(np.int64), self.n_rows + 1)
        first, stop = self._byte_bounds(starts)
        place = 0
        for number, (begin, end) in enumerate(self._kept()):
            source: NDArray[Any] = self._wide.pop(number, self._slots[self._first_slot[number] :])
            for at in range(begin, end, _STEP):
                count = min(_STEP, end - at)
                # The source lies at its target or behind it: what is overwritten was moved before.
                moved = source[at : at + count].astype(offsets.dtype)
                np.add(moved, starts[number] - first, out=offsets[place : place + count])
                place += count
        offsets[place] = stop - first
        if self.ordered:
            self.grown.fit()
        data = np.frombuffer(memoryview(self.grown), np.uint8) if self.ordered else self._data
        nulls = sum(count for _, count in self._nulls) if self.left_out == (0, 0) else -1
        return text_array(self.text, offsets[: place + 1], data[first:stop], self._validity(), nulls)

    def _kept(self) -> list[tuple[int, int]]:
        """Return the rows of each segment that are part of the result."""
        kept = [(0, rows) for rows in self.rows]
        skipped, dropped = self.left_out
        kept[0] = (skipped, kept[0][1])
        kept[-1] = (kept[-1][0], kept[-1][1] - dropped)
        return kept

    def _byte_bounds(self, starts: Sequence[int]) -> tuple[int, int]:
        """Return where the values of the result begin and end among those that were decoded."""
        kept, last = self._kept(), len(self.rows) - 1
        bounds = []
        for number, row in ((0, kept[0][0]), (last, kept[last][1])):
            own = self._wide.get(number, self._slots[self._first_slot[number] :])
            # The last offset of a segment may not be written where it is its size.
            size = starts[number + 1] - starts[number]
            bounds.append(starts[number] + (size if row == self.rows[number] else int(own[row])))
        return bounds[0], bounds[1]

    def _validity(self) -> pa.Buffer | None:
        """Return the bitmaps of all segments as one."""
        import pyarrow as pa

        if not any(count for _, count in self._nulls):
            return None
        parts = [
            pa.repeat(pa.scalar(True), end - begin)
            if bitmap is None
            else pa.Array.from_buffers(
                pa.bool_(), end - begin, [None, buffer_of(bitmap)], null_count=0, offset=begin
            )
            for (begin, end), (bitmap, _) in zip(self._kept(), self._nulls, strict=True)
        ]
        return pa.concat_arrays(parts).buffers()[1]


class _Room:
    """The place of one segment; see `colstore_io.formats.ValueRoom`."""

    __slots__ = ("_joiner", "_number")

    def __init__(self, joiner: Joiner, number: int) -> None:
        self._joiner, self._number = joiner, number

    @property
    def grown(self) -> tuple[GrownBytes, float] | None:
        joiner = self._joiner
        if not joiner.ordered:
            return None
        rows = joiner._first_slot[self._number + 1] - self._number - 1  # up to the end of this segment
        return joiner.grown, joiner.n_rows / max(1, rows)

    def offsets(self, size: int) -> NDArray[Any]:
        joiner, number = self._joiner, self._number
        rows = joiner.rows[number]
        if size > _INT32_MAX and joiner._slots.dtype.itemsize == 4:
            wide = joiner._wide[number] = np.empty(rows + 1, np.int64)
            return wide
        slot = joiner._first_slot[number]
        return joiner._slots[slot : slot + rows + 1]

    def bytes(self, size: int) -> NDArray[np.uint8]:
        joiner, number = self._joiner, self._number
        if joiner.ordered:
            grown, ahead = self.grown or (joiner.grown, 1.0)
            before = len(grown)
            grown.extend(size, ahead)
            return np.frombuffer(memoryview(grown), np.uint8)[before:]
        if size != joiner._sizes[number]:
            raise FormatError("the chunk was changed while it was read")
        start = joiner._data_start[number]
        return joiner._data[start : start + size]

    def put(self, size: int, bitmap: NDArray[np.uint8] | None, null_count: int, text: bool) -> None:
        joiner, number = self._joiner, self._number
        joiner._sizes[number] = size
        joiner._nulls[number] = (bitmap, null_count)
        joiner.text = text


def text_array(
    text: bool,
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    validity: pa.Buffer | None,
    null_count: int = -1,
) -> pa.Array:
    """Return text, or bytes, of these buffers: a ``large_`` type for offsets of 64 bits. Nothing is copied."""
    import pyarrow as pa

    wide = offsets.dtype.itemsize == 8
    if text:
        kind = pa.large_string() if wide else pa.string()
    else:
        kind = pa.large_binary() if wide else pa.binary()
    return pa.Array.from_buffers(
        kind, len(offsets) - 1, [validity, buffer_of(offsets), buffer_of(data)], null_count=null_count
    )


def grown_bytes() -> GrownBytes:
    """Return memory that grows, empty."""
    from .kernels.tokens import GrownBytes  # which a first read of other columns need not load

    return GrownBytes()


def buffer_of(values: NDArray[Any]) -> pa.Buffer:
    """Return the memory of an array as Arrow has it."""
    import pyarrow as pa

    return pa.py_buffer(values.view(np.uint8) if values.size else np.empty(0, np.uint8))
