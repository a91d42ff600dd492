"""Sinks: what makes a column of the blocks of a stream, and what a caller wants of it (columns.md 3.2 and 6).

A stream is cut into blocks without regard to values. A sink takes the blocks in an order that it chooses and decodes
each while it is in the cache, so a read holds its result and the blocks in work, never a stream; what an encoding
forces to hold besides says its own sink.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ... import buffers
from .. import Allocate, DecodedColumn, ValueRoom
from .chunk import Chunk, ChunkFacts, Place
from .decompress import prefix
from .tags import Codec
from .variable import offset_type

if TYPE_CHECKING:
    from .fixed_blocks import FixedBlocks
    from .tokenizer import Tokenizer

__all__ = ["Regions", "Request", "Sink", "stream_prefix"]


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
    room : ValueRoom or None
        Where all values of variable length go.
    """

    __slots__ = ("allocate", "dictionary", "out", "room", "start", "stop", "text", "tokenizer")

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
        room: ValueRoom | None = None,
    ) -> None:
        self.start, self.stop = start, stop
        self.out, self.dictionary, self.text = out, dictionary, text
        self.allocate = allocate
        self.tokenizer = tokenizer
        self.room = room

    @property
    def n_rows(self) -> int:
        return self.stop - self.start

    def bytes(self, count: int) -> NDArray[np.uint8]:
        """Return memory for the bytes of all values."""
        if self.room is not None:
            return self.room.bytes(count)
        return self._memory(count)

    def _memory(self, count: int) -> NDArray[np.uint8]:
        if self.allocate is not None:
            return self.allocate(count)
        return buffers.empty(count, np.dtype(np.uint8))

    def offsets(self, n_values: int, size: int) -> NDArray[Any]:
        """Return places for the offsets of values that have `size` bytes together."""
        if self.room is not None:
            return self.room.offsets(size)
        dtype = offset_type(size)
        return self._memory(dtype.itemsize * (n_values + 1)).view(dtype)


class Sink(ABC):
    """Takes the blocks of a stream and makes a column of them.

    Parameters
    ----------
    chunk : Chunk
    facts : ChunkFacts
    request : Request
    place : Place
    """

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        self.chunk, self.facts, self.request, self.place = chunk, facts, request, place
        self.nulls = facts.null_count if chunk.bitmap is not None else 0

    def order(self, starts: Sequence[int]) -> list[int]:
        """Return which blocks are wanted, in which order; `starts` are their places in the stream."""
        return list(range(len(starts)))

    def target(self, at: int, n: int) -> NDArray[np.uint8] | None:
        """Return the place of the stream's bytes [at, at + n) in the result, None where they have none.

        Called from any thread.
        """
        return None

    @abstractmethod
    def feed(self, raw: Any, at: int) -> None:
        """Take the next block, whose first byte is byte `at` of the stream; `raw` may be its `target`."""

    @abstractmethod
    def finish(self) -> DecodedColumn:
        """Return the column."""

    def blocks(self) -> tuple[FixedBlocks, NDArray[np.uint8]] | None:
        """Return what reads the whole chunk at once, and the place of its values; None if there is none."""
        return None


class Regions:
    """Parts of a stream that belong to memory of their own.

    Parameters
    ----------
    parts : sequence of (int, ndarray of uint8)
        Where each begins in the stream, and its memory.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[tuple[int, NDArray[np.uint8]]]) -> None:
        self._parts = [(start, start + len(memory), memory) for start, memory in parts]

    def target(self, at: int, n: int) -> NDArray[np.uint8] | None:
        """See `Sink.target`."""
        for start, stop, memory in self._parts:
            if start <= at and at + n <= stop:
                return memory[at - start : at - start + n]
        return None

    def put(self, raw: Any, at: int) -> None:
        """Copy what belongs here of a block, unless it was decompressed into its place."""
        n = len(raw)
        if n == 0 or (isinstance(raw, np.ndarray) and _same(raw, self.target(at, n))):
            return
        data = np.frombuffer(raw, np.uint8)
        for start, stop, memory in self._parts:
            low, high = max(start, at), min(stop, at + n)
            if low < high:
                memory[low - start : high - start] = data[low - at : high - at]


def _same(one: NDArray[np.uint8], other: NDArray[np.uint8] | None) -> bool:
    return other is not None and one.ctypes.data == other.ctypes.data


def stream_prefix(chunk: Chunk, n: int, place: Place) -> bytes:
    """Return the first `n` bytes of a chunk's stream, or all that it has, without decompressing more of it."""
    if chunk.codec is Codec.NONE:
        return bytes(chunk.data[: min(n, chunk.raw_length)])
    found = b""
    at = 0
    for number, (stored, raw) in enumerate(zip(chunk.stored, chunk.raw, strict=True)):
        if len(found) >= n:
            break
        found += prefix(chunk.codec, chunk.data[at : at + stored], raw, n - len(found), place, number)
        at += stored
    return found
