"""Blocks of one chunk to one column: a sink for each way that a stream can be read (columns.md section 6).

A stream is cut into blocks without regard to values (3.2). Where values are told apart on the way (fixed widths, Delta,
length-prefixed values, Affix) a block is decoded while it is still in the cache, and the whole stream never exists; the other
encodings have tables that must be there first, so their blocks are put together.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ... import buffers
from ...errors import FormatError
from ...kernels import decode as kernel
from .. import Allocate, DecodedColumn
from .chunk import Chunk, ChunkFacts, Place
from .decompress import decompress
from .tags import NUMPY_TYPES, Codec, Encoding, Type
from .variable import VariableValues, dictionary_column, offset_type, variable_column

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

__all__ = ["ColumnWork", "Request"]

_WORD = 4
_DICT_HEADER = struct.Struct("<III")


class Request:
    """What a caller wants of one column.

    Parameters
    ----------
    start, stop : int
        Rows.
    out : ndarray or None
        Where values of fixed width go.
    dictionary : bool
        Whether a dictionary stays one.
    text : bool
        Whether a column of type string must be UTF-8.
    allocate : callable or None
    tokenizer : Tokenizer or None
        The one that the column names.
    """

    __slots__ = ("allocate", "dictionary", "out", "start", "stop", "text", "tokenizer")

    def __init__(
        self,
        start: int,
        stop: int,
        *,
        out: NDArray[Any] | None = None,
        dictionary: bool = False,
        text: bool = True,
        allocate: Allocate | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.start, self.stop = start, stop
        self.out, self.dictionary, self.text = out, dictionary, text
        self.allocate = allocate
        self.tokenizer = tokenizer

    @property
    def n_rows(self) -> int:
        return self.stop - self.start

    def bytes(self, count: int) -> NDArray[np.uint8]:
        """Return memory for a result."""
        if self.allocate is not None:
            return self.allocate(count)
        return buffers.empty(count, np.dtype(np.uint8))

    def offsets(self, n_values: int, size: int) -> NDArray[Any]:
        """Return places for the offsets of values that have `size` bytes together."""
        dtype = offset_type(size)
        return self.bytes(dtype.itemsize * (n_values + 1)).view(dtype)


class ColumnWork:
    """One column of one row group, as work for `pipeline.run`.

    Attributes
    ----------
    n_blocks : int
        Blocks that must be looked at; a chunk that is not compressed is one block.
    result : DecodedColumn
        After `finish`.
    """

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        self._chunk, self._place = chunk, place
        self._sink = _sink_for(chunk, facts, request, place)
        self.result = DecodedColumn()
        if chunk.codec is Codec.NONE:
            self._blocks = [(0, chunk.raw_length, chunk.raw_length)]
            self._first = 0
        else:
            starts = np.cumsum([0, *chunk.stored[:-1]]).tolist()
            self._blocks = list(zip(starts, chunk.stored, chunk.raw, strict=True))
            self._first, stop = self._sink.needed(chunk.raw)
            self._blocks = self._blocks[self._first : stop]
        self.n_blocks = len(self._blocks)
        self.raw_bytes = sum(raw for _, _, raw in self._blocks)

    def prepare(self, block: int) -> Any:
        start, stored, raw = self._blocks[block]
        data = self._chunk.data[start : start + stored]
        if self._chunk.codec is Codec.NONE:
            return data
        return decompress(self._chunk.codec, data, raw, self._place, self._first + block)

    def consume(self, block: int, raw: Any) -> None:
        self._sink.feed(raw)

    def finish(self) -> None:
        self.result = self._sink.finish()
        del self._sink


class _Sink(ABC):
    """Takes the blocks of a stream in order and makes a column of them."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        self.chunk, self.facts, self.request, self.place = chunk, facts, request, place

    def needed(self, raw: list[int]) -> tuple[int, int]:
        """Return which blocks (half-open) are needed, from their raw lengths."""
        return 0, len(raw)

    @abstractmethod
    def feed(self, raw: Any) -> None:
        """Take the next block."""

    @abstractmethod
    def finish(self) -> DecodedColumn:
        """Return the column."""


def _sink_for(chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> _Sink:
    encoding = chunk.encoding
    if encoding is Encoding.PLAIN:
        return (_PlainFixed if facts.type.fixed else _PlainVariable)(chunk, facts, request, place)
    if encoding is Encoding.DELTA and all(raw % 8 == 0 for raw in chunk.raw[:-1]):
        return _Delta(chunk, facts, request, place)
    if encoding is Encoding.AFFIX:
        return _Affix(chunk, facts, request, place)
    if encoding is Encoding.DICT:
        return (_DictFixed if facts.type.fixed else _DictVariable)(chunk, facts, request, place)
    return _WHOLE[encoding](chunk, facts, request, place)


# ----------------------------------------------------------------------------------------------------------
# Fixed width


class _Fixed(_Sink):
    """Columns of fixed width: where their values go, and where their nulls."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        self.dtype = NUMPY_TYPES[facts.type].newbyteorder("=")
        self.width = self.dtype.itemsize
        # A part of the rows is decoded apart, unless the values of the part alone can be.
        self.partial = request.n_rows != facts.n_rows
        self.direct = not self.partial or (chunk.bitmap is None and self.can_skip())
        n = request.n_rows if self.direct else facts.n_rows
        out = request.out
        if out is not None and self.direct and out.flags.c_contiguous and out.dtype == self.dtype:
            self.values: NDArray[Any] = out
            self.memory: NDArray[np.uint8] = out.view(np.uint8) if n else np.empty(0, np.uint8)
        else:
            self.memory = request.bytes(n * self.width) if self.direct else np.empty(n * self.width, np.uint8)
            self.values = self.memory.view(self.dtype)
        # Values stand at the end until the nulls are put between them.
        nulls = facts.null_count if chunk.bitmap is not None else 0
        self.dense = self.memory[nulls * self.width :]

    def can_skip(self) -> bool:
        """Whether the values of a part of the rows can be decoded without the others."""
        return False

    def column(self) -> DecodedColumn:
        """Return the column, once `dense` is filled."""
        bitmap, request = self.chunk.bitmap, self.request
        validity = None
        if bitmap is not None:
            kernel.expand(self.memory, self.width, bitmap)
            validity = np.empty(self.facts.n_rows, np.bool_)
            kernel.validity(bitmap, validity.view(np.uint8))
        values = self.values
        if not self.direct:
            values = values[request.start : request.stop]
            if validity is not None:
                validity = validity[request.start : request.stop]
                if validity.all():
                    validity = None
        if request.out is not None and values is not request.out:
            request.out[...] = values
            values = request.out
        return DecodedColumn(values=values, validity=validity)


class _PlainFixed(_Fixed):
    """Values back to back (6.1)."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        # Bytes of the stream that are wanted, and the place of the next block in it.
        self.low = request.start * self.width if self.direct and self.partial else 0
        self.high = self.low + len(self.dense)
        self.at = 0

    def can_skip(self) -> bool:
        return True

    def needed(self, raw: list[int]) -> tuple[int, int]:
        if not (self.direct and self.partial):
            return 0, len(raw)
        ends = np.cumsum(raw)
        first = int(np.searchsorted(ends, self.low, side="right"))
        stop = int(np.searchsorted(ends, self.high, side="left")) + 1 if self.high > self.low else first
        self.at = int(ends[first - 1]) if first else 0
        return first, min(stop, len(raw))

    def feed(self, raw: Any) -> None:
        start, stop = self.at, self.at + len(raw)
        low, high = max(start, self.low), min(stop, self.high)
        if low < high:
            source = np.frombuffer(raw, np.uint8, high - low, low - start)
            target = self.dense[low - self.low : high - self.low]
            if self.facts.type is Type.BOOL:
                np.not_equal(source, 0, out=target.view(np.bool_))
            else:
                target[:] = source
        self.at = stop

    def finish(self) -> DecodedColumn:
        return self.column()


class _Delta(_Fixed):
    """Differences of 8 bytes, in blocks that hold whole ones (6.3)."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        self.sum = 0
        self.at = 0

    def feed(self, raw: Any) -> None:
        stop = self.at + len(raw) // 8 * self.width
        self.sum = kernel.delta(raw, self.dense[self.at : stop], self.width, self.sum)
        self.at = stop

    def finish(self) -> DecodedColumn:
        return self.column()


class _Whole(_Sink):
    """Streams that must be there from end to end."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        self.stream: Any = b""
        self.owned = chunk.codec is not Codec.NONE  # else it is a view of the file
        self.at = 0

    def feed(self, raw: Any) -> None:
        if len(raw) == 0:
            return
        if len(raw) == self.chunk.raw_length:
            self.stream = raw
            return
        if self.at == 0:
            self.stream = np.empty(self.chunk.raw_length, np.uint8)
        self.stream[self.at : self.at + len(raw)] = np.frombuffer(raw, np.uint8)
        self.at += len(raw)

    def finish(self) -> DecodedColumn:
        return self.decode(np.frombuffer(self.stream, np.uint8))

    @abstractmethod
    def decode(self, stream: NDArray[np.uint8]) -> DecodedColumn:
        """Decode the whole stream."""


class _WholeFixed(_Fixed, _Whole):
    """Columns of fixed width whose streams must be whole."""


class _WholeDelta(_WholeFixed):
    """Delta in blocks that cut through values."""

    def decode(self, stream: NDArray[np.uint8]) -> DecodedColumn:
        kernel.delta(stream, self.dense, self.width)
        return self.column()


class _Bits(_WholeFixed):
    """RLEBitpack: a bit per boolean (6.2)."""

    def decode(self, stream: NDArray[np.uint8]) -> DecodedColumn:
        kernel.bools(stream, self.dense)
        return self.column()


class _Dictionary:
    """The parts of a Dict stream (6.4): header, indices, entries."""

    __slots__ = ("area", "bounds", "indices", "n_entries", "place", "width")

    def __init__(self, stream: NDArray[np.uint8], n_values: int, place: Place) -> None:
        size = len(stream)
        if size < _DICT_HEADER.size + _WORD:
            place.fail(f"a dictionary of {size} bytes; its header alone has {_DICT_HEADER.size + _WORD}")
        n, n_entries, width = _DICT_HEADER.unpack(stream[: _DICT_HEADER.size].tobytes())
        if n != n_values:
            place.fail(f"a dictionary of {n} values, the row group has {n_values}")
        if width > 32:
            place.fail(f"dictionary indices of {width} bits; at most 32 are possible")
        entries = _DICT_HEADER.size + (n * width + 7) // 8
        if entries + _WORD * (1 + n_entries) > size:
            place.fail(f"{n} indices of {width} bits and {n_entries} entries do not fit into {size} bytes")
        count = int.from_bytes(stream[entries : entries + _WORD].tobytes(), "little")
        if count != n_entries:
            place.fail(f"the dictionary's header says {n_entries} entries, its table has {count}")
        self.place = place
        self.n_entries, self.width = n_entries, width
        self.indices = stream[_DICT_HEADER.size : entries]
        table_end = entries + _WORD * (1 + count)
        self.area = stream[table_end:]
        self.bounds = _bounds(stream[entries + _WORD : table_end], len(self.area), place)

    def unpack(self, first: int, count: int) -> NDArray[np.uint32]:
        """Return indices `first` to `first + count`, all below the number of entries."""
        indices = np.empty(count, np.uint32)
        bad = kernel.unpack(self.indices, self.width, first, indices, self.n_entries)
        if bad >= 0:
            self.place.fail(
                f"value {first + bad} has dictionary index {indices[bad]}, there are {self.n_entries} entries"
            )
        return indices


def _bounds(table: NDArray[np.uint8], area: int, place: Place) -> NDArray[np.int64]:
    """Return the offsets of an OffsetBytes table with its end, checked."""
    bounds = np.empty(len(table) // _WORD + 1, np.int64)
    bad = kernel.offset_table(table, area, bounds)
    if bad >= 0:
        place.fail(f"the offset of entry {bad} decreases or lies outside the {area} bytes of values")
    if len(bounds) == 1 and area:
        place.fail(f"{area} bytes of values that no entry owns")
    return bounds


class _DictFixed(_WholeFixed):
    """A dictionary of values of fixed width; entries are their Plain bytes."""

    def can_skip(self) -> bool:
        return True

    def decode(self, stream: NDArray[np.uint8]) -> DecodedColumn:
        parts = _Dictionary(stream, self.facts.n_values, self.place)
        if (np.diff(parts.bounds) != self.width).any():
            self.place.fail(f"a dictionary entry that has not {self.width} bytes")
        first = self.request.start if self.direct and self.partial else 0
        indices = parts.unpack(first, len(self.dense) // self.width)
        entries = parts.area[int(parts.bounds[0]) :]
        kernel.take_entries(indices, entries, self.width, self.dense)
        if self.facts.type is Type.BOOL:
            np.not_equal(self.dense, 0, out=self.dense.view(np.bool_))
        return self.column()


# ----------------------------------------------------------------------------------------------------------
# Variable length


class _PlainVariable(_Sink):
    """Length-prefixed values, a block at a time (6.1)."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        n = facts.n_values
        size = chunk.raw_length - _WORD * n
        # Offsets of values alone; under nulls they are spread later.
        self.offsets = request.offsets(n, size)
        self.data = request.bytes(size)
        self.reader = kernel.PlainReader(self.offsets, self.data)

    def feed(self, raw: Any) -> None:
        code = self.reader.feed(raw)
        if code:
            n = self.facts.n_values
            self.place.fail(
                f"more than {n} values"
                if code == 1
                else f"value {self.reader.values} is longer than what is left of the stream"
            )

    def finish(self) -> DecodedColumn:
        if not self.reader.complete:
            self.place.fail(
                f"{self.reader.values} of {self.facts.n_values} values, or the last one is cut short"
            )
        values = VariableValues(self.offsets, self.data)
        return variable_column(values, self.chunk.bitmap, self.facts, self.request, self.place)


class _WholeVariable(_Whole):
    """Values of variable length from a whole stream."""

    def decode(self, stream: NDArray[np.uint8]) -> DecodedColumn:
        return variable_column(self.values(stream), self.chunk.bitmap, self.facts, self.request, self.place)

    @abstractmethod
    def values(self, stream: NDArray[np.uint8]) -> VariableValues:
        """Return the values that are not null."""

    def memory(self, size: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Return places for the offsets and bytes of all values."""
        return self.request.offsets(self.facts.n_values, size), self.request.bytes(size)

    def too_large(self) -> None:
        self.place.fail(
            f"the values have more than {self.facts.max_decoded_bytes} bytes together (max_decoded_bytes)"
        )


class _OffsetBytes(_WholeVariable):
    """A table of offsets, then all values (6.5): what Arrow wants, but for the end."""

    def values(self, stream: NDArray[np.uint8]) -> VariableValues:
        n = self.facts.n_values
        if len(stream) < _WORD:
            self.place.fail(f"an offset table of {len(stream)} bytes")
        count = int.from_bytes(stream[:_WORD].tobytes(), "little")
        if count != n:
            self.place.fail(f"an offset table of {count} values, the row group has {n}")
        table_end = _WORD * (1 + n)
        if table_end > len(stream):
            self.place.fail(f"{n} offsets do not fit into {len(stream)} bytes")
        area = stream[table_end:]
        offsets = self.request.offsets(n, len(area))
        bad = kernel.offset_table(stream[_WORD:table_end], len(area), offsets)
        if bad >= 0:
            self.place.fail(
                f"the offset of value {bad} decreases or lies outside the {len(area)} bytes of values"
            )
        if n == 0 and len(area):
            self.place.fail(f"{len(area)} bytes of values, but no value")
        if not self.owned:  # results never look into the file
            data = self.request.bytes(len(area))
            data[:] = area
            area = data
        return VariableValues(offsets, area)


class _Affix(_Sink):
    """A common prefix and suffix, and the middles, length-prefixed (6.6): a block at a time."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        self.head = b""  # what came before the first middle, until it is whole
        self.reader: kernel.PlainReader | None = None

    def feed(self, raw: Any) -> None:
        if self.reader is None:
            self.head += bytes(raw) if self.head or len(raw) < self.chunk.raw_length else b""
            stream = np.frombuffer(self.head or raw, np.uint8)
            at = self._begin(stream)
            if at < 0:
                return
            raw = stream[at:]
            self.head = b""
        assert self.reader is not None
        code = self.reader.feed(raw)
        if code == 1:
            self._wrong_count()
        if code:
            self.place.fail(f"the length of value {self.reader.values} reaches past the end of the stream")

    def _begin(self, stream: NDArray[np.uint8]) -> int:
        """Read prefix and suffix; return where the middles begin, -1 if that needs more of the stream."""
        prefix, at = self._affix(stream, 0, "prefix")
        suffix, at = self._affix(stream, at, "suffix") if at >= 0 else (b"", -1)
        if at < 0:
            return -1
        n = self.facts.n_values
        middles = self.chunk.raw_length - at - _WORD * n
        if middles < 0:
            self._wrong_count()
        size = middles + n * (len(prefix) + len(suffix))
        if size > self.facts.max_decoded_bytes:
            self.place.fail(
                f"the values have more than {self.facts.max_decoded_bytes} bytes together (max_decoded_bytes)"
            )
        self.offsets, self.data = self.request.offsets(n, size), self.request.bytes(size)
        self.reader = kernel.PlainReader(self.offsets, self.data, prefix, suffix)
        return at

    def _affix(self, stream: NDArray[np.uint8], at: int, what: str) -> tuple[bytes, int]:
        """Return a prefix or suffix and where it ends; -1 if it is not there yet."""
        left = self.chunk.raw_length - at
        if left < _WORD:
            self.place.fail(f"the stream ends before its {what}")
        if len(stream) - at < _WORD:
            return b"", -1
        length = int.from_bytes(stream[at : at + _WORD].tobytes(), "little")
        if length > left - _WORD:
            self.place.fail(f"the {what} of {length} bytes reaches past the end of the stream")
        start, stop = at + _WORD, at + _WORD + length
        return (stream[start:stop].tobytes(), stop) if stop <= len(stream) else (b"", -1)

    def _wrong_count(self) -> None:
        self.place.fail(f"the stream does not hold exactly {self.facts.n_values} values")

    def finish(self) -> DecodedColumn:
        if self.reader is None or not self.reader.complete:
            self._wrong_count()
        values = VariableValues(self.offsets, self.data)
        return variable_column(values, self.chunk.bitmap, self.facts, self.request, self.place)


class _DictVariable(_WholeVariable):
    """A dictionary of texts or bytes."""

    def decode(self, stream: NDArray[np.uint8]) -> DecodedColumn:
        parts = _Dictionary(stream, self.facts.n_values, self.place)
        request = self.request
        if request.dictionary and parts.n_entries < 1 << 31:
            return dictionary_column(
                parts.unpack(0, self.facts.n_values),
                parts.bounds,
                parts.area,
                self.chunk.bitmap,
                self.facts,
                request,
                self.place,
            )
        indices = parts.unpack(0, self.facts.n_values)
        size = kernel.measure_entries(indices, parts.bounds, self.facts.max_decoded_bytes)
        if size < 0:
            self.too_large()
        offsets, data = self.memory(size)
        kernel.take_variable(indices, parts.bounds, parts.area, offsets, data)
        # Entries are few: valid entries make valid values.
        checked = not (request.text and self.facts.type is Type.STRING) or (
            kernel.first_not_utf8(parts.area, parts.bounds) < 0
        )
        values = VariableValues(offsets, data, checked=checked)
        return variable_column(values, self.chunk.bitmap, self.facts, request, self.place)

    def values(self, stream: NDArray[np.uint8]) -> VariableValues:
        raise NotImplementedError


class _Tokenized(_WholeVariable):
    """Token ids (6.7)."""

    def values(self, stream: NDArray[np.uint8]) -> VariableValues:
        if self.request.tokenizer is None:
            self.place.fail("the chunk is tokenized, but its column names no tokenizer")
        from .tokenized import decode_tokenized

        try:
            offsets, data = decode_tokenized(
                stream.data,
                self.request.tokenizer,
                self.facts.n_values,
                max_bytes=self.facts.max_decoded_bytes,
            )
        except FormatError as exc:
            self.place.fail(exc.message)
        return VariableValues(offsets.astype(offset_type(len(data)), copy=False), data)


_WHOLE: dict[Encoding, type[_Whole]] = {
    Encoding.DELTA: _WholeDelta,
    Encoding.RLE_BITPACK: _Bits,
    Encoding.OFFSET_BYTES: _OffsetBytes,
    Encoding.TOKENIZED: _Tokenized,
}
