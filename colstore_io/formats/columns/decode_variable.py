"""Sinks of text and bytes: Plain, OffsetBytes, Affix, Dict, Tokenized (columns.md 6.1 and 6.4 to 6.7).

Offsets and bytes go straight to their place in the result. A read holds nothing besides but the blocks in work; of Dict
the dictionary, of Affix a prefix and a suffix, of Tokenized the table of ids and a quarter of the result at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...kernels import decode as kernel
from .. import DecodedColumn
from .chunk import Chunk, ChunkFacts, Place
from .dictionary import Dictionary
from .sinks import Regions, Request, Sink, stream_prefix
from .tags import Encoding, Type
from .variable import (
    INT32_MAX,
    VariableValues,
    dictionary_column,
    entries_are_utf8,
    offset_type,
    variable_column,
)

__all__ = ["Affix", "DictVariable", "OffsetBytes", "PlainVariable", "Tokenized", "encoded_bytes"]

_WORD = 4


class _Variable(Sink):
    """Columns of text or bytes.

    `offsets` has one place for each row and one more. Those of the values that are not null stand at its end, `dense`,
    until the nulls are put between them.
    """

    offsets: NDArray[Any]
    data: NDArray[np.uint8]

    def places(self, size: int) -> None:
        """Make places for the offsets and the `size` bytes of all values."""
        self.offsets = self.request.offsets(self.facts.n_rows, size)
        self.data = self.request.bytes(size)

    @property
    def dense(self) -> NDArray[Any]:
        return self.offsets[self.nulls :]

    def column(self, *, checked: bool = False) -> DecodedColumn:
        values = VariableValues(self.offsets, self.data, checked=checked)
        return variable_column(values, self.chunk.bitmap, self.facts, self.request, self.place)

    def too_large(self) -> None:
        self.place.fail(
            f"the values have more than {self.facts.max_decoded_bytes} bytes together (max_decoded_bytes)"
        )


_LONG_AFFIX = 1 << 16


def encoded_bytes(chunk: Chunk, n_values: int, place: Place) -> int | None:
    """Return how many bytes the values of a chunk have, None where that takes more than a look at its beginning."""
    if chunk.encoding is Encoding.PLAIN:
        return chunk.raw_length - _WORD * n_values
    if chunk.encoding is Encoding.OFFSET_BYTES:
        return chunk.raw_length - _WORD * (1 + n_values)
    if chunk.encoding is not Encoding.AFFIX or chunk.raw_length < 2 * _WORD:
        return None
    n_prefix = int.from_bytes(stream_prefix(chunk, _WORD, place)[:_WORD], "little")
    if n_prefix > _LONG_AFFIX or chunk.raw_length < 2 * _WORD + n_prefix:
        return None
    at = _WORD + n_prefix
    n_suffix = int.from_bytes(stream_prefix(chunk, at + _WORD, place)[at : at + _WORD], "little")
    return (
        chunk.raw_length
        - 2 * _WORD
        - n_prefix
        - n_suffix
        - _WORD * n_values
        + n_values * (n_prefix + n_suffix)
    )


class PlainVariable(_Variable):
    """Length-prefixed values (6.1)."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        self.places(chunk.raw_length - _WORD * facts.n_values)
        self.reader = kernel.PlainReader(self.dense, self.data)

    def feed(self, raw: Any, at: int) -> None:
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
        return self.column(checked=self.reader.ascii)


class OffsetBytes(_Variable):
    """A table of offsets, then all values (6.5): what Arrow wants, but for the end."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        n = facts.n_values
        if chunk.raw_length < _WORD * (1 + n):
            place.fail(f"{n} offsets do not fit into {chunk.raw_length} bytes")
        self.area = chunk.raw_length - _WORD * (1 + n)
        if n == 0 and self.area:
            place.fail(f"{self.area} bytes of values, but no value")
        self.places(self.area)
        self.count = np.empty(_WORD, np.uint8)
        # Offsets of 4 bytes stand where they will stay, those that become 8 bytes at the end of their memory.
        memory = self.dense.view(np.uint8)
        first = 0 if self.offsets.dtype.itemsize == _WORD else len(memory) - _WORD * n
        self.table = memory[first : first + _WORD * n]
        self.regions = Regions([(0, self.count), (_WORD, self.table), (_WORD * (1 + n), self.data)])

    def target(self, at: int, n: int) -> NDArray[np.uint8] | None:
        return self.regions.target(at, n)

    def feed(self, raw: Any, at: int) -> None:
        self.regions.put(raw, at)

    def finish(self) -> DecodedColumn:
        count, n = int.from_bytes(self.count.tobytes(), "little"), self.facts.n_values
        if count != n:
            self.place.fail(f"an offset table of {count} values, the row group has {n}")
        bad = kernel.offset_table(self.table, self.area, self.dense)
        if bad >= 0:
            self.place.fail(
                f"the offset of value {bad} decreases or lies outside the {self.area} bytes of values"
            )
        return self.column()


class Affix(_Variable):
    """A common prefix and suffix, and the middles, length-prefixed (6.6)."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        self.head = b""  # what came before the first middle, until it is whole
        self.reader: kernel.PlainReader | None = None

    def feed(self, raw: Any, at: int) -> None:
        if self.reader is None:
            self.head += bytes(raw) if self.head or len(raw) < self.chunk.raw_length else b""
            stream = np.frombuffer(self.head or raw, np.uint8)
            begin = self._begin(stream)
            if begin < 0:
                return
            raw = stream[begin:]
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
            self.too_large()
        self.places(size)
        self.reader = kernel.PlainReader(self.dense, self.data, prefix, suffix)
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
        assert self.reader is not None
        return self.column(checked=self.reader.ascii)


class DictVariable(_Variable):
    """A dictionary of texts or bytes (6.4).

    Indices take the places of the offsets that will be made of them: both have 4 bytes.
    """

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        self.dictionary = Dictionary(chunk, facts, place)
        self.stays = request.dictionary and self.dictionary.n_entries < 1 << 31
        self.offsets = request.offsets(facts.n_rows - self.stays, 0)
        self.codes = self.dense[len(self.dense) - facts.n_values :].view(np.uint32)
        self.reader = kernel.PackedReader(
            self.dictionary.width, self.dictionary.n_entries, self.codes.view(np.uint8)
        )

    def order(self, starts: Sequence[int]) -> list[int]:
        return self.dictionary.order(starts, 0, self.facts.n_values)

    def target(self, at: int, n: int) -> NDArray[np.uint8] | None:
        return self.dictionary.target(at, n)

    def feed(self, raw: Any, at: int) -> None:
        part = self.dictionary.feed(raw, at)
        if part is not None:
            self._check(self.reader.feed(part[0]))

    def _check(self, bad: int) -> None:
        if bad >= 0:
            self.dictionary.refuse_index(bad)

    def finish(self) -> DecodedColumn:
        parts, request = self.dictionary, self.request
        part = parts.kept()
        if part is not None:
            self._check(self.reader.feed(part[0]))
        if parts.width == 0:
            self._check(self.reader.zeros())
        parts.check_number(self.reader.numbers, self.facts.n_values)
        parts.complete()
        if self.stays:
            return dictionary_column(
                self.offsets.view(np.uint32), parts, self.chunk.bitmap, self.facts, request, self.place
            )
        size = kernel.measure_entries(self.codes, parts.bounds, self.facts.max_decoded_bytes)
        if size < 0:
            self.too_large()
        if offset_type(size) != self.offsets.dtype:
            narrow = self.codes
            self.offsets = request.offsets(self.facts.n_rows, size)
            self.codes = self.dense.view(np.uint32)[2 * len(self.dense) - len(narrow) :]
            self.codes[:] = narrow
            del narrow
        self.data = request.bytes(size)
        kernel.take_variable(self.codes, parts.bounds, parts.area, self.dense, self.data)
        # Entries are few: valid entries make valid values.
        text = request.text and self.facts.type is Type.STRING
        return self.column(checked=not text or entries_are_utf8(parts) < 0)


class Tokenized(_Variable):
    """Token ids (6.7). The size of the result is told by its last id, so its memory grows: it is never the caller's."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        if request.tokenizer is None:
            place.fail("the chunk is tokenized, but its column names no tokenizer")
        from .detokenize import HEADER_BYTES, TokenizedReader

        try:
            self.reader = TokenizedReader(
                stream_prefix(chunk, HEADER_BYTES, place),
                chunk.raw_length,
                request.tokenizer,
                facts.n_values,
                max_bytes=facts.max_decoded_bytes,
                offsets=self._make_offsets,
                grown=None if request.room is None else request.room.grown,
            )
        except FormatError as exc:
            place.fail(exc.message)

    def _make_offsets(self, wide: bool) -> NDArray[Any]:
        self.offsets = self.request.offsets(self.facts.n_rows, INT32_MAX + 1 if wide else 0)
        return self.dense

    def order(self, starts: Sequence[int]) -> list[int]:
        return self.reader.order(starts)

    def target(self, at: int, n: int) -> NDArray[np.uint8] | None:
        return self.reader.target(at, n)

    def feed(self, raw: Any, at: int) -> None:
        try:
            self.reader.feed(raw, at)
        except FormatError as exc:
            self.place.fail(exc.message)

    def finish(self) -> DecodedColumn:
        reader = self.reader
        del self.reader  # which knows this object
        try:
            self.data = reader.finish()
        except FormatError as exc:
            self.place.fail(exc.message)
        return self.column()
