"""The parts of a Dict stream (columns.md 6.4): header, indices, entries.

Indices come before the entries that they mean. So the blocks with entries are decompressed first, and the indices go
through one block at a time: a read holds the dictionary, and of the block in which both meet the part with indices.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import decode as kernel
from .chunk import Chunk, ChunkFacts, Place
from .sinks import Regions, stream_prefix
from .stream import Stream

__all__ = ["Dictionary"]

_HEADER = struct.Struct("<III")
_WORD = 4
_PADDING = 32
"""Bytes behind the entries: short ones are copied as whole words."""


class Dictionary:
    """The dictionary of a chunk.

    Parameters
    ----------
    chunk : Chunk
        Its header alone is decompressed here.
    facts : ChunkFacts
    place : Place

    Attributes
    ----------
    n_entries : int
    width : int
        Bits of an index.
    bounds : ndarray of uint32, shape (n_entries + 1,)
        Entry i is ``area[bounds[i] : bounds[i + 1]]``; once all blocks with entries were fed, and `complete` called.
    area : ndarray of uint8
        With some bytes more behind the last entry.

    Raises
    ------
    FormatError
        If header, length of the stream and row group do not fit together.
    """

    def __init__(self, chunk: Chunk, facts: ChunkFacts, place: Place) -> None:
        size, n_values = chunk.raw_length, facts.n_values
        if size < _HEADER.size + _WORD:
            place.fail(f"a dictionary of {size} bytes; its header alone has {_HEADER.size + _WORD}")
        n, n_entries, width = _HEADER.unpack(stream_prefix(chunk, _HEADER.size, place))
        if n != n_values:
            place.fail(f"a dictionary of {n} values, the row group has {n_values}")
        if width > 32:
            place.fail(f"dictionary indices of {width} bits; at most 32 are possible")
        begin = _HEADER.size + (n * width + 7) // 8
        area = begin + _WORD * (1 + n_entries)
        if area > size:
            place.fail(f"{n} indices of {width} bits and {n_entries} entries do not fit into {size} bytes")
        self.n_entries, self.width = n_entries, width
        self._place = place
        self._begin = begin  # of the entries, in the stream
        self._count = np.empty(_WORD, np.uint8)
        self.bounds = np.empty(n_entries + 1, np.uint32)
        self.area = np.empty(size - area + _PADDING, np.uint8)
        self._area_bytes = size - area
        self._parts = [
            (begin, self._count),
            (begin + _WORD, self.bounds[:-1].view(np.uint8)),
            (area, self.area[: size - area]),
        ]
        self._regions = Regions(self._parts)
        self._kept: tuple[Any, int] | None = None
        self._complete = False

    def fill(self, stream: Stream) -> None:
        """Read and check the entries: instead of feeding blocks."""
        for start, memory in self._parts:
            stream.read_into(start, memory)
        self.complete()

    def indices(
        self,
        stream: Stream,
        first: int,
        out: NDArray[np.uint8],
        entries: NDArray[np.uint8] | None = None,
        item: int = _WORD,
    ) -> None:
        """Read the indices of values from `first` on, or what they mean.

        Parameters
        ----------
        out : ndarray of uint8
            Filled with uint32, or with entries of `item` bytes.
        entries : ndarray of uint8, optional
            Of `even_entries`.
        """
        n = len(out) // item
        reader = kernel.PackedReader(self.width, self.n_entries, out, first * self.width % 8, entries, item)
        if self.width == 0:
            bad = reader.zeros()
        else:
            low, high = first * self.width // 8, ((first + n) * self.width + 7) // 8
            bad = reader.feed(stream.read(_HEADER.size + low, _HEADER.size + high))
        if bad >= 0:
            self.refuse_index(first + bad)
        self.check_number(reader.numbers, n)

    def order(self, starts: Sequence[int], first: int, stop: int) -> list[int]:
        """Return the blocks to feed, those with entries first, for values [first, stop)."""
        border = max(0, bisect_right(starts, self._begin) - 1)
        if stop <= first or self.width == 0:
            early = range(0)
        else:
            low = _HEADER.size + first * self.width // 8
            high = _HEADER.size + (stop * self.width + 7) // 8
            early = range(max(0, bisect_right(starts, low) - 1), min(border, bisect_right(starts, high - 1)))
        return [*range(border, len(starts)), *early]

    def target(self, at: int, n: int) -> NDArray[np.uint8] | None:
        """See `Sink.target`."""
        return self._regions.target(at, n)

    def feed(self, raw: Any, at: int) -> tuple[Any, int] | None:
        """Take a block; return its indices and how many bytes of them came before. Those beside entries are kept."""
        stop = at + len(raw)
        part = None
        low, high = max(at, _HEADER.size), min(stop, self._begin)
        if low < high:
            part = raw[low - at : high - at], low - _HEADER.size
        if stop > self._begin:
            self._regions.put(raw, at)
            self._kept = self._kept or part
            return None
        return part

    def kept(self) -> tuple[Any, int] | None:
        """Return the indices of the block in which they end, when all others were decoded."""
        part, self._kept = self._kept, None
        return part

    def complete(self) -> None:
        """Check the entries, all of which are there."""
        if self._complete:
            return
        self._complete = True
        count = int.from_bytes(self._count.tobytes(), "little")
        if count != self.n_entries:
            self._place.fail(f"the dictionary's header says {self.n_entries} entries, its table has {count}")
        bounds, area = self.bounds, self._area_bytes
        if not np.little_endian:
            bounds[:-1].byteswap(inplace=True)
        bounds[-1] = area
        wrong = bounds[:-1] > bounds[1:]
        if wrong.any():
            bad = np.flatnonzero(wrong)
            self._place.fail(
                f"the offset of entry {int(bad[0]) + 1} decreases or lies outside the {area} bytes of values"
            )
        if self.n_entries == 0 and area:
            self._place.fail(f"{area} bytes of values that no entry owns")

    def even_entries(self, item: int) -> NDArray[np.uint8]:
        """Return the bytes of the entries, each of which must have `item`."""
        self.complete()
        if (np.diff(self.bounds) != item).any():
            self._place.fail(f"a dictionary entry that has not {item} bytes")
        return self.area[int(self.bounds[0]) :]

    def refuse_index(self, value: int) -> None:
        """Raise `FormatError` for an index that is too large."""
        self._place.fail(
            f"value {value} has a dictionary index that is not below the {self.n_entries} entries"
        )

    def check_number(self, found: int, wanted: int) -> None:
        """Raise `FormatError` unless all indices came: results are never handed out half filled."""
        if found != wanted:
            self._place.fail(f"{found} of {wanted} dictionary indices")
