"""Where the columns of a read go, piece by piece.

A job hands what it decoded to the result of its column, in its own thread, and forgets it. Values of fixed width are
in their place by then. Text of a selection in order is put behind the text of the pieces before (`TextResult`), text
in no order to the place that its length and those of all others give it (`scattering.ScatteredText`), so that neither
is held twice.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import buffers
from .fields import Field
from .formats import Allocate, DecodedColumn
from .joining import Joiner, buffer_of, grown_bytes, text_array
from .pieces import Cut, Piece
from .taking import Take

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ArrowResult",
    "CodesResult",
    "Collected",
    "FixedResult",
    "InOrder",
    "JoinedResult",
    "MixedPartsError",
    "Result",
    "TextResult",
    "arrow_parts",
    "holds_text",
    "is_text",
    "no_rows",
    "own",
]

INT32_MAX = (1 << 31) - 1
STEP = 1 << 16
"""Offsets, codes or texts that are moved at once: so much is held besides."""

WIDTHS = {"string": 1, "large_string": 2, "binary": 3, "large_binary": 4}
"""Which type of text holds the values of the others."""


class Result(ABC):
    """One column of a read. Pieces come from any thread, in any order, unless said otherwise."""

    whole_segments = False
    """Whether pieces are decoded whole, whatever their rows."""

    def out(self, piece: Piece) -> Any:
        """Return where a piece is decoded to that is taken whole, None for memory of the decoder's."""
        return None

    def target(self, piece: Piece, take: Take) -> NDArray[Any] | None:
        """Return where values of fixed width are picked to; None for columns of variable length."""
        return None

    @abstractmethod
    def put(self, piece: Piece, take: Take | None, column: DecodedColumn, *, shared: bool = False) -> None:
        """Take over what was decoded of a piece: all wanted rows, in ascending order.

        Parameters
        ----------
        piece : Piece
        take : Take or None
            Where rows go that were picked.
        column : DecodedColumn
            Its values are in `out` or `target` already.
        shared : bool
            Whether its array is part of one that others use.
        """

    def settled(self) -> int | None:
        """Return up to which piece all have their place; None if a piece has when `put` is through."""
        return None

    @abstractmethod
    def finish(self) -> Any:
        """Return the column, when all pieces are there."""


class FixedResult(Result):
    """Values of fixed width.

    Parameters
    ----------
    cut : Cut
    values : ndarray, shape (cut.count,)
    nullable : bool
    """

    def __init__(self, cut: Cut, values: NDArray[Any], nullable: bool) -> None:
        self._cut, self._values, self._nullable = cut, values, nullable
        self._validity: NDArray[np.bool_] | None = None
        self._lock = threading.Lock()

    def out(self, piece: Piece) -> Any:
        return self._values[piece.place]

    def target(self, piece: Piece, take: Take) -> NDArray[Any] | None:
        return self._values[piece.place] if self._cut.in_order else self._values

    def put(self, piece: Piece, take: Take | None, column: DecodedColumn, *, shared: bool = False) -> None:
        validity = column.validity
        if validity is None or not self._nullable:
            return
        with self._lock:
            if self._validity is None:
                if take is None and not shared and len(validity) == self._cut.count:
                    self._validity = validity
                    return
                self._validity = np.ones(self._cut.count, np.bool_)
        if take is None or self._cut.in_order:
            self._validity[piece.place] = validity
        else:
            take.spread(validity, self._validity)

    def finish(self) -> Any:
        if not self._nullable:
            return self._values
        if self._validity is None:
            self._validity = np.ones(self._cut.count, np.bool_)
        return self._values, self._validity


class JoinedResult(Result):
    """Values of variable length of whole segments: the decoder puts them into their place; see `joining`."""

    whole_segments = True

    def __init__(self, joiner: Joiner) -> None:
        self._joiner: Joiner | None = joiner
        self.ordered = joiner.ordered

    def out(self, piece: Piece) -> Any:
        assert self._joiner is not None
        return self._joiner.room(piece.number)

    def put(self, piece: Piece, take: Take | None, column: DecodedColumn, *, shared: bool = False) -> None:
        pass

    def finish(self) -> Any:
        joiner, self._joiner = self._joiner, None
        assert joiner is not None
        return joiner.finish()


class Collected(Result):
    """Columns of pieces as they are decoded, each for itself."""

    def __init__(self) -> None:
        self.columns: dict[int, DecodedColumn] = {}

    def put(self, piece: Piece, take: Take | None, column: DecodedColumn, *, shared: bool = False) -> None:
        self.columns[piece.number] = column

    def finish(self) -> Any:
        return self.columns


class InOrder(Result):
    """Arrow arrays that are put one behind the other, in the order of their pieces.

    Whoever brings a piece waits for nobody: a piece whose turn has not come is kept, and the one who brings the piece
    before it puts both in their place.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[Piece, Take | None, pa.Array]] = {}
        self._next = 0
        self._busy = False

    def put(self, piece: Piece, take: Take | None, column: DecodedColumn, *, shared: bool = False) -> None:
        array, column.array = column.array, None
        with self._lock:
            self._kept[piece.number] = piece, take, self.keep(array, shared)
            del array
            if self._busy:
                return
            self._busy = True
        while True:
            with self._lock:
                turn = self._kept.pop(self._next, None)
                if turn is None:
                    self._busy = False
                    return
            self.append(*turn)
            del turn
            with self._lock:
                self._next += 1

    def settled(self) -> int | None:
        return self._next

    def keep(self, array: pa.Array, shared: bool) -> pa.Array:
        """Return what is held of an array until it is appended."""
        return array

    @abstractmethod
    def append(self, piece: Piece, take: Take | None, array: pa.Array) -> None:
        """Put the next piece behind those before."""


class TextResult(InOrder):
    """Text or bytes of a selection in order, in one pair of buffers that grows.

    Parameters
    ----------
    cut : Cut
    field : Field
    allocate : callable, optional
        Memory of the offsets.
    """

    def __init__(self, cut: Cut, field: Field, allocate: Allocate | None = None) -> None:
        super().__init__()
        self._cut, self._field, self._allocate = cut, field, allocate
        self._only: pa.Array | None = None  # of a single piece
        self._offsets: NDArray[Any] | None = None
        self._data: Any = None
        self._rows = 0
        self._kind = 0
        self._bits: NDArray[np.uint8] | None = None
        self._nulls = 0

    def keep(self, array: pa.Array, shared: bool) -> pa.Array:
        return own(array) if shared and len(self._cut.pieces) == 1 else array

    def append(self, piece: Piece, take: Take | None, array: pa.Array) -> None:
        if len(self._cut.pieces) == 1:
            self._only = array
        else:
            self.extend(array)

    def extend(self, array: pa.Array) -> None:
        """Put any number of texts behind those that are there."""
        if self._offsets is None:
            self._offsets, self._data = self._memory(np.dtype(np.int32)), grown_bytes()
        self._kind = max(self._kind, WIDTHS[str(array.type)])
        ends, data = arrow_parts(array)
        n, size, before = len(array), int(ends[-1] - ends[0]), len(self._data)
        if before + size > INT32_MAX and self._offsets.dtype.itemsize == 4:
            wide = self._memory(np.dtype(np.int64))
            wide[: self._rows + 1] = self._offsets[: self._rows + 1]
            self._offsets = wide
        self._data.extend(size, self._cut.count / max(1, self._rows + n))
        if size:
            np.frombuffer(memoryview(self._data), np.uint8)[before:] = data
        self._offsets[0] = 0
        for at in range(0, n, STEP):
            part = ends[1 + at : 1 + min(n, at + STEP)]
            np.add(
                part,
                before - int(ends[0]),
                out=self._offsets[self._rows + 1 + at :][: len(part)],
                dtype=np.int64,
                casting="unsafe",
            )
        if array.null_count:
            if self._bits is None:
                self._bits = np.full(-(-self._cut.count // 8), 255, np.uint8)
            self._nulls += array.null_count
            for at in range(0, n, STEP):
                valid = array.slice(at, STEP).is_valid().to_numpy(zero_copy_only=False)
                _write_bits(self._bits, self._rows + at, valid)
        self._rows += n

    def _memory(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        if self._allocate is None:
            return buffers.empty(self._cut.count + 1, dtype)
        return self._allocate((self._cut.count + 1) * dtype.itemsize).view(dtype)

    def finish(self) -> Any:
        if self._only is not None:
            return self._only
        if self._offsets is None:
            return no_rows(self._field)
        self._data.fit()
        data = np.frombuffer(memoryview(self._data), np.uint8)
        bits = None if self._bits is None else buffer_of(self._bits)
        return text_array(holds_text(self._kind), self._offsets, data, bits, self._nulls)


class MixedPartsError(Exception):
    """Only some chunks are dictionaries: the column is to be read as plain text."""


class CodesResult(InOrder):
    """Dictionary arrays as one: codes in their place, and one dictionary of all entries.

    Text of a selection in order goes on as plain text where a chunk is no dictionary; of one in no order,
    `MixedPartsError` is raised.
    """

    def __init__(self, cut: Cut, field: Field, allocate: Allocate | None = None) -> None:
        super().__init__()
        self._cut, self._field, self._allocate = cut, field, allocate
        self._only: pa.Array | None = None
        self._codes: NDArray[np.int32] | None = None
        self._valid: NDArray[np.bool_] | None = None
        self._entries: pa.Array | None = None
        self._text: TextResult | None = None

    def keep(self, array: pa.Array, shared: bool) -> pa.Array:
        return own(array) if shared and len(self._cut.pieces) == 1 else array

    def append(self, piece: Piece, take: Take | None, array: pa.Array) -> None:
        import pyarrow as pa

        if len(self._cut.pieces) == 1 and self._cut.in_order:
            self._only = array
            return
        fits = isinstance(array, pa.DictionaryArray) and (
            self._entries is None or self._entries.type == array.dictionary.type
        )
        if self._text is not None or not fits:
            self._go_on_as_text(piece, array)
            return
        moved = self._unify(array.dictionary)
        if self._codes is None:
            self._codes = self._memory()
        codes = np.asarray(array.indices.fill_null(0) if array.null_count else array.indices)
        if array.null_count and self._valid is None:
            self._valid = np.ones(self._cut.count, np.bool_)
        for at in range(0, len(codes), STEP):
            part = codes[at : at + STEP]
            if moved is not None and len(moved):
                part = moved[part]
            self._codes[self._places(piece, take, at, len(part))] = part
        if array.null_count:
            assert self._valid is not None
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            for at in range(0, len(valid), STEP):
                part = valid[at : at + STEP]
                self._valid[self._places(piece, take, at, len(part))] = part

    def _places(self, piece: Piece, take: Take | None, at: int, n: int) -> Any:
        if take is None or self._cut.in_order:
            return slice(piece.place.start + at, piece.place.start + at + n)
        return take.places(at, at + n)

    def _unify(self, entries: pa.Array) -> NDArray[np.int32] | None:
        """Take up the entries of a dictionary; return what its codes become, None if nothing else."""
        import pyarrow as pa

        if self._entries is None:
            self._entries = entries
        if self._entries is entries or self._entries.equals(entries):
            return None
        none, all_ = np.empty(0, np.int32), np.arange(len(entries), dtype=np.int32)
        both = pa.chunked_array(
            [
                pa.DictionaryArray.from_arrays(pa.array(none), self._entries),
                pa.DictionaryArray.from_arrays(pa.array(all_), entries),
            ]
        ).unify_dictionaries()
        self._entries = both.chunk(1).dictionary
        moved: NDArray[np.int32] = np.asarray(both.chunk(1).indices)
        return moved

    def _go_on_as_text(self, piece: Piece, array: pa.Array) -> None:
        import pyarrow as pa

        if not self._cut.in_order:
            raise MixedPartsError
        if self._text is None:
            self._text = TextResult(self._cut, self._field, self._allocate)
            for at in range(0, piece.place.start, STEP):
                part = self._array(slice(at, min(piece.place.start, at + STEP)))
                self._text.extend(part.dictionary_decode())
            self._codes = self._valid = self._entries = None
        self._text.extend(array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array)

    def _memory(self) -> NDArray[np.int32]:
        if self._allocate is None:
            return buffers.empty(self._cut.count, np.dtype(np.int32))
        return self._allocate(self._cut.count * 4).view(np.int32)

    def _array(self, rows: slice) -> pa.Array:
        import pyarrow as pa

        assert self._codes is not None
        bits = None
        if self._valid is not None:
            bits = buffer_of(np.packbits(self._valid[rows], bitorder="little"))
        codes = self._codes[rows]
        keys = pa.Array.from_buffers(pa.int32(), len(codes), [bits, buffer_of(codes)])
        return pa.DictionaryArray.from_arrays(keys, self._entries, safe=False)

    def finish(self) -> Any:
        if self._only is not None:
            return self._only
        if self._text is not None:
            return self._text.finish()
        if self._codes is None:
            return no_rows(self._field)
        return self._array(slice(0, self._cut.count))


class ArrowResult(InOrder):
    """Lists, and what else is neither of fixed width nor text: the arrays of all pieces become one."""

    def __init__(self, cut: Cut, field: Field) -> None:
        super().__init__()
        self._cut, self._field = cut, field
        self._parts: list[pa.Array] = []
        self._order: list[Any] = []

    def keep(self, array: pa.Array, shared: bool) -> pa.Array:
        return own(array) if shared else array

    def append(self, piece: Piece, take: Take | None, array: pa.Array) -> None:
        self._parts.append(array)
        if take is not None and not self._cut.in_order:
            self._order.append(take.places(0, take.count))

    def finish(self) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        parts, self._parts = self._parts, []
        if not parts:
            return no_rows(self._field)
        array = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        if self._order:
            places = np.empty(self._cut.count, np.int64)
            places[np.concatenate(self._order)] = np.arange(self._cut.count)
            array = pc.take(array, pa.array(places))
        return array


def holds_text(kind: int) -> bool:
    """Tell whether the widest of `WIDTHS` that was met is text."""
    return kind <= WIDTHS["large_string"]


def is_text(field: Field) -> bool:
    """Tell whether a field of variable length is text or bytes."""
    return field.logical in WIDTHS


def own(array: pa.Array) -> pa.Array:
    """Return a copy of a slice of an array: a view would keep the whole array alive."""
    import pyarrow as pa

    return pa.concat_arrays([array])


def arrow_parts(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return the offsets of an array of text, shape (n + 1,), and its bytes from the first of them to the last."""
    buffers_ = array.buffers()
    dtype = np.dtype(np.int64 if str(array.type).startswith("large") else np.int32)
    n = len(array)
    if n == 0:
        return np.zeros(1, dtype), np.empty(0, np.uint8)
    ends = np.frombuffer(buffers_[1], dtype, n + 1, array.offset * dtype.itemsize)
    first, stop = int(ends[0]), int(ends[-1])
    if first == stop:
        return ends, np.empty(0, np.uint8)
    return ends, np.frombuffer(buffers_[2], np.uint8, stop - first, first)


def _write_bits(bits: NDArray[np.uint8], at: int, valid: NDArray[np.bool_]) -> None:
    """Write booleans as bits number `at` and so on; all others stay."""
    low, high = at // 8, -(-(at + len(valid)) // 8)
    whole = np.unpackbits(bits[low:high], bitorder="little")
    whole[at - 8 * low : at - 8 * low + len(valid)] = valid
    bits[low:high] = np.packbits(whole, bitorder="little")


def no_rows(field: Field) -> pa.Array:
    """Return a column of no rows."""
    import pyarrow as pa

    from .arrays import arrow_type

    return pa.array([], arrow_type(field))
