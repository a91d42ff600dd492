"""Streams of tokenized columns to values, a block at a time (columns.md 6.7 with the strict rules of 12.2).

Boundaries go to where the offsets of their values will be, which have as many bytes: an offset replaces the number of
ids as soon as these are known. Escape bytes are the last of the stream and are needed first, so the blocks that hold
them are taken first, and wait at the end of the memory that the values grow into: each of them takes the place of one
byte there. So nothing is held besides the result (which grows by at most a quarter, and no further than what is
expected), the table of ids, and two blocks: the one in work and the one in which ids end and escapes begin.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...kernels import tokens as kernels
from .sinks import Regions
from .tokenizer import Tokenizer

__all__ = [
    "HEADER_BYTES",
    "TokenLayout",
    "TokenizedReader",
    "decode_tokenized",
    "token_layout",
    "too_large",
    "wrong_boundaries",
    "wrong_ids",
]

_HEADER = struct.Struct("<BBIIII")
HEADER_BYTES = _HEADER.size

_INT32_MAX = (1 << 31) - 1
_REMAP, _BITS = 1, 2
_POSITION, _SURPLUS, _BAD_ID, _TOO_LARGE, _ESCAPES, _WIDE = 1, 2, 3, 4, 5, -2


class TokenLayout(NamedTuple):
    """What the header of a stream says, checked.

    Attributes
    ----------
    representation : {0, 1, 2}
        Of ids: raw, remap, bits.
    boundary : {0, 1, 2}
        Of values: numbers of ids, offsets, zigzag differences of numbers.
    n_values, n_ids, n_escapes, n_table : int
    counts_start, ids_start, ids_stop : int
        Where boundaries and ids begin in the stream, and escapes.
    max_bytes : int
    """

    representation: int
    boundary: int
    n_values: int
    n_ids: int
    n_escapes: int
    n_table: int
    counts_start: int
    ids_start: int
    ids_stop: int
    max_bytes: int

    def id_width(self, table: NDArray[np.uint8]) -> int:
        """Check the length of the id stream; return the bits of an id, 0 for remap.

        Raises
        ------
        FormatError
        """
        there, n_ids = self.ids_stop - self.ids_start, self.n_ids
        width = 16
        if self.representation == _REMAP:
            if there < n_ids:
                raise FormatError(f"id stream of {there} bytes cannot hold {n_ids} ids")
            return 0
        if self.representation == _BITS:
            width = int(table.view("<u2").max()).bit_length() if len(table) else 0
        needed = -(-n_ids * width // 8)
        if there != needed:
            raise FormatError(f"id stream has {there} bytes, but {n_ids} ids of {width} bits need {needed}")
        return width


def token_layout(head: bytes, size: int, n_expected: int, max_bytes: int) -> TokenLayout:
    """Read and check the header of a stream of `size` bytes; see `TokenizedReader`."""
    if size < _HEADER.size:
        raise FormatError(f"tokenized stream of {size} bytes is shorter than its header of {_HEADER.size}")
    representation, boundary, n_values, n_ids, n_escapes, n_table = _HEADER.unpack(head[: _HEADER.size])
    if representation > 2 or boundary > 2:
        raise FormatError(
            f"unknown layout of a tokenized stream: representation {representation}, boundary {boundary}"
        )
    if n_values != n_expected:
        raise FormatError(f"tokenized stream has {n_values} values, expected {n_expected}")
    counts_start = _HEADER.size + 2 * n_table
    ids_start, ids_stop = counts_start + 4 * n_values, size - n_escapes
    if ids_start > ids_stop:
        raise FormatError(
            f"tokenized stream of {size} bytes cannot hold {n_table} table entries, {n_values} values and "
            f"{n_escapes} escape bytes"
        )
    if n_escapes > n_ids:
        raise FormatError(f"{n_ids} ids cannot take {n_escapes} escape bytes of the tokenized stream")
    max_bytes = min(max(max_bytes, 0), 1 << 48)
    if n_escapes > max_bytes:
        raise too_large(max_bytes)
    return TokenLayout(
        representation,
        boundary,
        n_values,
        n_ids,
        n_escapes,
        n_table,
        counts_start,
        ids_start,
        ids_stop,
        max_bytes,
    )


def wrong_boundaries(code: int, n_ids: int) -> FormatError:
    """Return the error for a code of `token_counts`."""
    problem = (
        f"do not add up to its {n_ids} ids",
        "decrease, or are negative",
        "leave ids before the first value",
    )[code - 1]
    return FormatError(f"boundaries of the tokenized stream {problem}")


def wrong_ids(
    code: int, reader: kernels.TokenReader, n_tokens: int, n_escapes: int, max_bytes: int
) -> FormatError:
    """Return the error for a code of ``TokenReader.feed``."""
    if code == _BAD_ID:
        return FormatError(
            f"token id {reader.bad_id} is neither in the vocabulary of {n_tokens} tokens nor the escape id"
        )
    if code == _TOO_LARGE:
        return too_large(max_bytes)
    if code == _ESCAPES:
        return FormatError(f"more ids take an escape byte than there are escape bytes ({n_escapes})")
    problem = {_POSITION: "has a position outside its table", _SURPLUS: "goes on after its last id"}[code]
    return FormatError(f"id stream {problem}")


def too_large(max_bytes: int) -> FormatError:
    """Return the error for values of more than `max_bytes`."""
    return FormatError(f"tokenized values have more than {max_bytes} bytes together, the limit of this read")


class TokenizedReader:
    """Takes the blocks of a stream, in its own order.

    Parameters
    ----------
    head : bytes
        The first `HEADER_BYTES` of the stream, fewer only if it has no more.
    size : int
        Bytes of the stream.
    tokenizer : Tokenizer
    n_expected : int
        Number of values that the chunk must have.
    max_bytes : int
        Bytes that the values may have together.
    offsets : callable
        ``offsets(wide)`` returns a new array of shape (n_expected + 1,): int32, or int64 where values have more than
        2^31 - 1 bytes together. Called once, and once more in that case.
    grown : (GrownBytes, float), optional
        Memory that the values go behind, and how many times all its bytes will be those with these values, about.

    Attributes
    ----------
    offsets : ndarray of int32 or int64, shape (n_expected + 1,)
        After `finish`: value i is ``data[offsets[i] : offsets[i + 1]]``.

    Raises
    ------
    FormatError
        Without a place, here and in the methods: if the stream breaks a rule, or its values have more than `max_bytes`.

    Notes
    -----
    A first offset above 0 is refused, as ids before it would belong to no value. Varints may be longer than they need
    to be. The bits that pad the last byte are not looked at.
    """

    def __init__(
        self,
        head: bytes,
        size: int,
        tokenizer: Tokenizer,
        n_expected: int,
        *,
        max_bytes: int,
        offsets: Callable[[bool], NDArray[Any]],
        grown: tuple[kernels.GrownBytes, float] | None = None,
    ) -> None:
        self._layout = layout = token_layout(head, size, n_expected, max_bytes)
        n_table, n_values = layout.n_table, layout.n_values
        representation, n_ids, n_escapes = layout.representation, layout.n_ids, layout.n_escapes
        self._ids_start, self._ids_stop = layout.ids_start, layout.ids_stop
        self._max_bytes = layout.max_bytes
        self._n_ids, self._n_escapes = n_ids, n_escapes
        self._n_tokens = tokenizer.table.n_tokens
        self._first_token = tokenizer.token_bytes[0] if tokenizer.token_bytes else b""
        self._make_offsets = offsets
        self.offsets = offsets(False)
        self._counts: NDArray[np.uint32] = self.offsets[1:].view(np.uint32)
        self._table = np.empty(2 * n_table if representation else 0, np.uint8)  # raw ids have no use for one
        self._regions = Regions(
            [(_HEADER.size, self._table), (layout.counts_start, self._counts.view(np.uint8))]
        )
        self._alone = grown is None
        memory, ahead = (kernels.GrownBytes(), 1.0) if grown is None else grown
        self._skip = len(memory)
        self._reader = kernels.TokenReader(
            tokenizer.table,
            representation,
            self._table,
            n_values,
            n_ids,
            n_escapes,
            self._max_bytes,
            memory,
            ahead,
        )
        self._begun = self._zeros = False
        self._kept: tuple[Any, int] | None = None

    def order(self, starts: Sequence[int]) -> list[int]:
        """Return which blocks are to be fed, in which order; `starts` are their places in the stream."""
        numbers = list(range(len(starts)))
        if not self._n_escapes:
            return numbers
        border = bisect_right(starts, self._ids_stop) - 1  # the block with the first escape byte
        return numbers[border:] + numbers[:border]

    def target(self, at: int, n: int) -> NDArray[np.uint8] | None:
        """See `Sink.target`."""
        return self._regions.target(at, n)

    def feed(self, raw: Any, at: int) -> None:
        """Take the next block of `order`, whose first byte is byte `at` of the stream."""
        border, stop = self._ids_stop, at + len(raw)
        if stop > border:
            low = max(at, border)
            part = np.frombuffer(raw, np.uint8)
            self._reader.put_escapes(part[low - at :], low - border)
            if at < border:
                self._kept = part[: border - at], at
            return
        self._take(raw, at)

    def finish(self) -> NDArray[np.uint8]:
        """Return the bytes of all values, when all blocks were fed; the caller's."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._take(*kept)
        if not self._begun:
            self._begin()
        reader, n_escapes = self._reader, self._n_escapes
        if self._zeros:
            self._make_zeros()
        elif reader.ids < self._n_ids:
            raise FormatError("id stream ends too early")
        if reader.escapes != n_escapes:
            raise FormatError(f"{reader.escapes} ids take an escape byte, but there are {n_escapes}")
        grown = reader.take()
        if self._alone:
            grown.fit()
        return np.frombuffer(memoryview(grown), np.uint8)[self._skip :]

    def _take(self, raw: Any, at: int) -> None:
        self._regions.put(raw, at)
        low = self._ids_start - at
        if low >= len(raw) or not len(raw):
            return
        block = np.frombuffer(raw, np.uint8)[max(0, low) :]
        if not self._begun:
            self._begin()
        if self._zeros:
            return  # there is no such byte: lengths were compared
        while True:
            code = self._reader.feed(block, self.offsets)
            if code != _WIDE:
                break
            block = block[self._reader.position :]
            self._widen()
        if code:
            self._refuse(code)

    def _begin(self) -> None:
        """Check boundaries and the length of the id stream, both of which are there now."""
        self._begun = True
        width = self._layout.id_width(self._table)
        code = kernels.token_counts(self._counts, self._layout.boundary, self._n_ids)
        if code:
            raise wrong_boundaries(code, self._n_ids)
        self._zeros = self._layout.representation == _BITS and width == 0
        if self._zeros:
            if self._n_escapes:  # the escape id is never 0
                raise FormatError(f"{self._n_escapes} escape bytes of the tokenized stream are left over")
            return
        self._reader.begin(self.offsets, width if self._layout.representation == _BITS else 0)

    def _make_zeros(self) -> None:
        """Make the values of ids of no bits: all are token 0, and there may be any number of them."""
        size = self._n_ids * len(self._first_token)
        if size > self._max_bytes:
            raise self._too_large()
        if size > _INT32_MAX:
            self._widen()
        self._reader.zeros(self.offsets)

    def _widen(self) -> None:
        """Go on with offsets of 64 bits; what stands behind the last offset are numbers of ids."""
        wide = self._make_offsets(True)
        wide[:] = self.offsets.view(np.uint32)
        self.offsets = wide
        self._regions = Regions([])  # all of it is there
        del self._counts

    def _refuse(self, code: int) -> None:
        raise wrong_ids(code, self._reader, self._n_tokens, self._n_escapes, self._max_bytes)

    def _too_large(self) -> FormatError:
        return too_large(self._max_bytes)


def decode_tokenized(
    stream: memoryview | bytes, tokenizer: Tokenizer, n_expected: int, *, max_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Decode a whole stream.

    Parameters
    ----------
    stream : memoryview or bytes
        Decompressed.
    tokenizer : Tokenizer
        The one that the column names.
    n_expected : int
        Number of values that the chunk must have: rows less nulls.
    max_bytes : int
        Bytes that the values may have together.

    Returns
    -------
    offsets : ndarray of int64, shape (n_expected + 1,)
    data : ndarray of uint8
        New arrays.

    Raises
    ------
    FormatError
        As `TokenizedReader`.
    """
    reader = TokenizedReader(
        bytes(stream[:HEADER_BYTES]),
        len(stream),
        tokenizer,
        n_expected,
        max_bytes=max_bytes,
        offsets=lambda wide: np.empty(n_expected + 1, np.int64 if wide else np.int32),
    )
    reader.feed(stream, 0)
    data = reader.finish()
    return reader.offsets.astype(np.int64), data
