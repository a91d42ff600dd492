"""Text in no order, each value straight to its place.

Where a value goes follows from the lengths of all that come before it in the result, which are known when every piece
was decoded once. As long as there are few, decoded pieces are kept for the time when places are known; of the others
nothing is kept but the lengths, and they are decoded once more. So a large read takes two passes, and holds its result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import buffers
from .errors import FormatError
from .fields import Field
from .formats import Allocate, DecodedColumn
from .joining import buffer_of, text_array
from .pieces import Cut, Piece
from .results import INT32_MAX, STEP, WIDTHS, Result, arrow_parts, holds_text, no_rows
from .taking import Take

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KEPT_BYTES", "Room", "ScatteredText"]

KEPT_BYTES = 32 << 20
"""Decoded text in no order that a read keeps instead of decoding it twice."""


class Room:
    """How many bytes of decoded pieces a read may still keep; shared by its columns."""

    def __init__(self, nbytes: int) -> None:
        self._left = nbytes
        self._lock = threading.Lock()

    def grant(self, nbytes: int) -> bool:
        """Take bytes from the room if there are as many."""
        with self._lock:
            if nbytes > self._left:
                return False
            self._left -= nbytes
            return True


class ScatteredText(Result):
    """Text or bytes of a selection in no order.

    Parameters
    ----------
    cut : Cut
    field : Field
    room : Room
    copy_runs : callable
        The kernel; see ``kernels/copy.pyi``.
    allocate : callable, optional
        Memory of the result.
    """

    def __init__(
        self,
        cut: Cut,
        field: Field,
        room: Room,
        copy_runs: Callable[..., None],
        allocate: Allocate | None = None,
    ) -> None:
        self._cut, self._field, self._room = cut, field, room
        self._copy_runs, self._allocate = copy_runs, allocate
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[pa.Array, Take]] = {}
        # The length of the value that goes to place k is entry k + 1, until all are there.
        self._offsets: NDArray[Any] = self._memory(np.dtype(np.int32), cut.count + 1)
        self._offsets[0] = 0
        self._valid: NDArray[np.bool_] | None = None
        self._long: dict[int, int] = {}
        self._total = 0
        self._kind = 0
        self._data: NDArray[np.uint8] | None = None

    def put(self, piece: Piece, take: Take | None, column: DecodedColumn, *, shared: bool = False) -> None:
        """In the first pass note how long values are, in the second put them to their places."""
        assert take is not None
        array: Any = column.array
        column.array = None
        if self._data is not None:
            self._scatter(array, take)
            return
        ends, _ = arrow_parts(array)
        size = int(ends[-1] - ends[0])
        with self._lock:
            self._kind = max(self._kind, WIDTHS[str(array.type)])
            self._total += size
            if array.null_count and self._valid is None:
                self._valid = np.ones(self._cut.count, np.bool_)
        for at in range(0, take.count, STEP):
            places = take.places(at, at + STEP)
            part = ends[at : at + STEP + 1]
            lengths = part[1:] - part[:-1]
            if lengths.dtype.itemsize == 8 and int(lengths.max()) > INT32_MAX:
                self._note_long(places, lengths)
            self._offsets[1:][places] = lengths
            if array.null_count:
                assert self._valid is not None
                self._valid[places] = array.slice(at, STEP).is_valid().to_numpy(zero_copy_only=False)
        # The array may be larger than its values, and a take as large as its rows.
        if self._room.grant(array.get_total_buffer_size() + 8 * take.count):
            self._kept[piece.number] = array, take

    def _note_long(self, places: slice | NDArray[np.int64], lengths: NDArray[Any]) -> None:
        """Note the lengths that 32 bits do not hold, and make them 0."""
        long = np.flatnonzero(lengths > INT32_MAX)
        at = places.start + long if isinstance(places, slice) else places[long]
        with self._lock:
            self._long.update(zip(at.tolist(), lengths[long].tolist(), strict=True))
        lengths[long] = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all values, when every piece was decoded once."""
        return self._total

    def begin(self) -> tuple[list[Callable[[], None]], list[Piece]]:
        """Make places for all values.

        Returns
        -------
        (calls, again)
            Calls put values to their places that were kept, in any order and from any thread. The pieces in `again`
            are to be decoded once more.
        """
        if self._total > INT32_MAX:
            wide = self._memory(np.dtype(np.int64), self._cut.count + 1)
            wide[:] = self._offsets
            for place, length in self._long.items():
                wide[1 + place] = length
            self._offsets = wide
        before = 0
        for at in range(1, self._cut.count + 1, STEP):
            part = self._offsets[at : at + STEP]
            part[:] = np.cumsum(part, dtype=np.int64) + before
            before = int(part[-1])
        self._data = self._memory(np.dtype(np.uint8), self._total)
        again = [piece for piece in self._cut.pieces if piece.number not in self._kept]
        return [partial(self._scatter_kept, number) for number in self._kept], again

    def _scatter_kept(self, number: int) -> None:
        self._scatter(*self._kept.pop(number))

    def _scatter(self, array: pa.Array, take: Take) -> None:
        assert self._data is not None
        ends, data = arrow_parts(array)
        if len(data) == 0:
            return
        source, target = data.ctypes.data - int(ends[0]), self._data.ctypes.data
        for at in range(0, take.count, STEP):
            places = take.places(at, at + STEP)
            part = ends[at : at + STEP + 1]
            lengths = np.subtract(part[1:], part[:-1], dtype=np.int64)
            starts = self._offsets[:-1][places].astype(np.int64)
            if not np.array_equal(self._offsets[1:][places] - starts, lengths):
                raise FormatError("the chunk was changed while it was read")
            self._copy_runs(
                (part[:-1].astype(np.int64) + source).view(np.uint64),
                (starts + target).view(np.uint64),
                lengths,
            )

    def _memory(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        if self._allocate is None:
            return buffers.empty(count, dtype)
        return self._allocate(count * dtype.itemsize).view(dtype)

    def finish(self) -> Any:
        if self._data is None:
            return no_rows(self._field)
        bits = None if self._valid is None else buffer_of(np.packbits(self._valid, bitorder="little"))
        return text_array(holds_text(self._kind), self._offsets, self._data, bits)
