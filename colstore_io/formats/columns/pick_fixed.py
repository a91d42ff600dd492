"""Some rows of columns of fixed width: Plain, Delta, RLEBitpack, Dict (columns.md 6.1 to 6.4).

Of Plain, RLEBitpack and Dict blocks without a wanted row are not decompressed; of Delta those after the last one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import decode as kernel
from ...taking import Take
from ...threads import map_with_helpers
from .. import DecodedColumn
from .chunk import Chunk, ChunkFacts, Place
from .decode_fixed import plain_view
from .dictionary import Dictionary
from .picking import Windows
from .sinks import Request
from .stream import Stream
from .tags import NUMPY_TYPES, Encoding, Type

__all__ = ["pick_fixed"]

_WORD_MASK = (1 << 64) - 1


class _Values(ABC):
    """Values of a chunk, window by window."""

    def __init__(self, stream: Stream, facts: ChunkFacts) -> None:
        self.stream = stream
        self.stored = NUMPY_TYPES[facts.type]
        self.bool = facts.type is Type.BOOL

    @abstractmethod
    def read(self, low: int, high: int, out: NDArray[Any]) -> None:
        """Fill `out` with the values [low, high); windows come in order."""


class _Plain(_Values):
    """Values back to back (6.1)."""

    def read(self, low: int, high: int, out: NDArray[Any]) -> None:
        width = self.stored.itemsize
        raw = self.stream.read(low * width, high * width)
        if self.bool:
            np.not_equal(raw, 0, out=out)
        else:
            out[:] = raw.view(self.stored)


class _Bits(_Values):
    """RLEBitpack: a bit per boolean (6.2)."""

    def read(self, low: int, high: int, out: NDArray[Any]) -> None:
        first = low // 8 * 8
        values = np.empty(high - first, np.bool_)
        kernel.bools(self.stream.read(first // 8, (high + 7) // 8), values.view(np.uint8))
        out[:] = values[low - first :]


class _Delta(_Values):
    """Differences of 8 bytes (6.3), which are summed up from the first value on."""

    def __init__(self, stream: Stream, facts: ChunkFacts) -> None:
        super().__init__(stream, facts)
        self.sum = self.at = 0

    def read(self, low: int, high: int, out: NDArray[Any]) -> None:
        while self.at < low:
            raw, begin = self.stream.block(8 * self.at)
            n = min(low - self.at, (begin + len(raw)) // 8 - self.at)
            if n:
                part = raw[8 * self.at - begin : 8 * (self.at + n) - begin]
            else:  # a difference that the end of a block cuts
                n, part = 1, self.stream.read(8 * self.at, 8 * self.at + 8)
            self.sum = (self.sum + int(np.frombuffer(part, "<u8").sum(dtype=np.uint64))) & _WORD_MASK
            self.at += n
        raw = self.stream.read(8 * low, 8 * high)
        self.sum = kernel.delta(raw, out.view(np.uint8), out.itemsize, self.sum)
        self.at = high


class _Dict(_Values):
    """A dictionary of values of fixed width; entries are their Plain bytes (6.4)."""

    def __init__(
        self, stream: Stream, facts: ChunkFacts, dictionary: Dictionary, entries: NDArray[np.uint8]
    ) -> None:
        super().__init__(stream, facts)
        self.dictionary, self.entries = dictionary, entries

    def read(self, low: int, high: int, out: NDArray[Any]) -> None:
        memory = out.view(np.uint8)
        self.dictionary.indices(self.stream, low, memory, self.entries, out.itemsize)
        if self.bool:
            np.not_equal(memory, 0, out=out)


def pick_fixed(
    chunk: Chunk, facts: ChunkFacts, request: Request, take: Take, place: Place, threads: int
) -> DecodedColumn:
    """Decode the wanted rows of a chunk of fixed width.

    Parameters
    ----------
    request : Request
        Where they go: ``out``, or new memory.
    threads : int
        Each holds a block.
    """
    windows = Windows(chunk, facts, take)
    dtype = NUMPY_TYPES[facts.type].newbyteorder("=")
    out = request.out
    if out is None:
        out = request.bytes(take.count * dtype.itemsize).view(dtype)
    if not windows.wanted:
        return DecodedColumn(out)
    view = plain_view(chunk, facts.type) if chunk.bitmap is None else None
    if view is not None:
        take.put(0, view, out)
        return DecodedColumn(out)
    validity = None if chunk.bitmap is None else np.ones(take.count, np.bool_)
    dictionary = entries = None
    if chunk.encoding is Encoding.DICT:
        dictionary = Dictionary(chunk, facts, place)
        dictionary.fill(Stream(chunk, place))
        entries = dictionary.even_entries(dtype.itemsize)

    def pick(wanted: Sequence[int], helpers: int) -> None:
        stream = Stream(chunk, place, helpers)
        values: _Values
        if dictionary is not None and entries is not None:
            values = _Dict(stream, facts, dictionary, entries)
        else:
            values = _KINDS[chunk.encoding](stream, facts)
        scratch = np.empty(min(windows.size, facts.n_rows), dtype)
        try:
            for window in wanted:
                first, stop = windows.rows(window)
                low, high = windows.values(window)
                rows = scratch[: stop - first]
                values.read(low, high, rows[len(rows) - (high - low) :])
                if validity is not None and high - low < stop - first:
                    kernel.expand(rows.view(np.uint8), dtype.itemsize, windows.nulls(first, stop))
                    begin, end = take.span(first, stop)
                    validity[begin:end] = windows.there(window)[windows.selector(window)]
                take.put(first, rows, out)
        finally:
            stream.close()

    if threads == 1 or chunk.encoding is Encoding.DELTA or len(windows.wanted) < 2 * threads:
        pick(windows.wanted, threads - 1)
    else:
        size = -(-len(windows.wanted) // threads)
        parts = [windows.wanted[at : at + size] for at in range(0, len(windows.wanted), size)]
        map_with_helpers(lambda part: pick(part, 0), parts, threads - 1)
    return DecodedColumn(out, None if validity is None or validity.all() else validity)


_KINDS: dict[Encoding, type[_Values]] = {
    Encoding.PLAIN: _Plain,
    Encoding.DELTA: _Delta,
    Encoding.RLE_BITPACK: _Bits,
}
