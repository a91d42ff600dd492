"""Sinks of columns of fixed width: Plain, Delta, RLEBitpack, Dict (columns.md 6.1 to 6.4).

Values go straight to their place in the result; a read holds nothing besides but the blocks in work, and of Dict the
dictionary.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import decode as kernel
from .. import DecodedColumn
from .chunk import Chunk, ChunkFacts, Place
from .dictionary import Dictionary
from .fixed_blocks import FixedBlocks, fixed_blocks
from .sinks import Request, Sink
from .tags import NUMPY_TYPES, Codec, Encoding, Type

__all__ = ["Bits", "Delta", "DictFixed", "PlainFixed", "plain_view"]


def plain_view(chunk: Chunk, kind: Type) -> NDArray[Any] | None:
    """Return the values of a chunk where they are, read-only; None unless they are there as in memory, and aligned."""
    if (
        chunk.codec is not Codec.NONE
        or chunk.encoding is not Encoding.PLAIN
        or kind is Type.BOOL
        or not kind.fixed
    ):
        return None
    dtype = NUMPY_TYPES[kind]
    view = np.frombuffer(chunk.data, dtype, chunk.raw_length // dtype.itemsize)
    if not (view.flags.aligned and dtype.isnative):
        return None
    view.flags.writeable = False
    return view


class _Fixed(Sink):
    """Columns of fixed width: where their values go, and where their nulls."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        self.dtype = NUMPY_TYPES[facts.type].newbyteorder("=")
        self.width = self.dtype.itemsize
        self.partial = (
            request.n_rows != facts.n_rows
        )  # of Plain and Dict without nulls alone: see `decodes_parts`
        n, out = request.n_rows, request.out
        if out is not None and out.flags.c_contiguous and out.dtype == self.dtype:
            self.values: NDArray[Any] = out
            self.memory: NDArray[np.uint8] = out.view(np.uint8) if n else np.empty(0, np.uint8)
        else:
            self.memory = request.bytes(n * self.width)
            self.values = self.memory.view(self.dtype)
        # Values stand at the end until the nulls are put between them.
        self.dense = self.memory[self.nulls * self.width :]

    def blocks(self) -> tuple[FixedBlocks, NDArray[np.uint8]] | None:
        if self.partial:
            return None
        found = fixed_blocks(self.chunk, self.facts.type)
        return None if found is None else (found, self.dense)

    def finish(self) -> DecodedColumn:
        """Return the column, once `dense` is filled."""
        bitmap, request = self.chunk.bitmap, self.request
        validity = None
        if bitmap is not None:
            kernel.expand(self.memory, self.width, bitmap)
            validity = np.empty(self.facts.n_rows, np.bool_)
            kernel.validity(bitmap, validity.view(np.uint8))
        values = self.values
        if request.out is not None and values is not request.out:
            request.out[...] = values
            values = request.out
        return DecodedColumn(values=values, validity=validity)


class PlainFixed(_Fixed):
    """Values back to back (6.1)."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        # Bytes of the stream that are wanted.
        self.low = request.start * self.width if self.partial else 0
        self.high = self.low + len(self.dense)

    def order(self, starts: Sequence[int]) -> list[int]:
        if self.low == self.high:
            return []
        first = max(0, bisect_right(starts, self.low) - 1)
        return list(range(first, bisect_right(starts, self.high - 1)))

    def target(self, at: int, n: int) -> NDArray[np.uint8] | None:
        if self.low <= at and at + n <= self.high:
            return self.dense[at - self.low : at - self.low + n]
        return None

    def feed(self, raw: Any, at: int) -> None:
        low, high = max(at, self.low), min(at + len(raw), self.high)
        if low >= high:
            return
        source = np.frombuffer(raw, np.uint8, high - low, low - at)
        target = self.dense[low - self.low : high - self.low]
        if self.facts.type is Type.BOOL:
            np.not_equal(source, 0, out=target.view(np.bool_))
        elif source.ctypes.data != target.ctypes.data:
            target[:] = source


class Delta(_Fixed):
    """Differences of 8 bytes (6.3)."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        self.sum = 0
        self.filled = 0
        self.rest = b""  # of a difference that the end of a block cut

    def feed(self, raw: Any, at: int) -> None:
        if self.rest:
            missing = 8 - len(self.rest)
            self.rest += bytes(raw[:missing])
            if len(self.rest) < 8:
                return
            raw = raw[missing:]
            self._add(self.rest)
            self.rest = b""
        whole = len(raw) // 8 * 8
        self._add(raw[:whole])
        if whole < len(raw):
            self.rest = bytes(raw[whole:])

    def _add(self, differences: Any) -> None:
        stop = self.filled + len(differences) // 8 * self.width
        self.sum = kernel.delta(differences, self.dense[self.filled : stop], self.width, self.sum)
        self.filled = stop


class Bits(_Fixed):
    """RLEBitpack: a bit per boolean (6.2)."""

    def feed(self, raw: Any, at: int) -> None:
        kernel.bools(raw, self.dense[8 * at : 8 * (at + len(raw))])


class DictFixed(_Fixed):
    """A dictionary of values of fixed width; entries are their Plain bytes (6.4)."""

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        super().__init__(chunk, facts, request, place)
        self.first = request.start if self.partial else 0
        self.dictionary = Dictionary(chunk, facts, place)
        self.reader: kernel.PackedReader | None = None

    def order(self, starts: Sequence[int]) -> list[int]:
        return self.dictionary.order(starts, self.first, self.first + len(self.dense) // self.width)

    def target(self, at: int, n: int) -> NDArray[np.uint8] | None:
        return self.dictionary.target(at, n)

    def feed(self, raw: Any, at: int) -> None:
        part = self.dictionary.feed(raw, at)
        if part is not None:
            self._decode(*part)

    def _decode(self, part: Any, position: int) -> None:
        if self.reader is None:
            self._begin(position)
        assert self.reader is not None
        self._check(self.reader.feed(part))

    def _begin(self, position: int) -> None:
        parts = self.dictionary
        entries = parts.even_entries(self.width)
        skip = self.first * parts.width - 8 * position
        self.reader = kernel.PackedReader(
            parts.width, parts.n_entries, self.dense, max(0, skip), entries, self.width
        )

    def _check(self, bad: int) -> None:
        if bad >= 0:
            self.dictionary.refuse_index(self.first + bad)

    def finish(self) -> DecodedColumn:
        part = self.dictionary.kept()
        if part is not None:
            self._decode(*part)
        if self.reader is None:
            self._begin(0)
        assert self.reader is not None
        if self.dictionary.width == 0:
            self._check(self.reader.zeros())
        self.dictionary.check_number(self.reader.numbers, len(self.dense) // self.width)
        if self.facts.type is Type.BOOL:
            np.not_equal(self.dense, 0, out=self.dense.view(np.bool_))
        return super().finish()
