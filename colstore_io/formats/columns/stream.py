"""The stream of a chunk from any place to any place, decompressed a block at a time as it is asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...threads import made_ahead
from .chunk import Chunk, Place
from .decompress import decompress
from .tags import Codec

__all__ = ["Stream"]


class Stream:
    """A cursor: holds one block, and with `helpers` the next one when blocks are read one after the other.

    Parameters
    ----------
    chunk : Chunk
    place : Place
    helpers : int
        Other threads that may be used.

    Notes
    -----
    A block between two that are read is not decompressed if it is passed over.
    """

    def __init__(self, chunk: Chunk, place: Place, helpers: int = 0) -> None:
        self._chunk, self._place, self._helpers = chunk, place, helpers
        self.size = chunk.raw_length
        self._whole = chunk.codec is Codec.NONE
        self._number = -1
        self._ahead: Generator[NDArray[np.uint8], None, None] | None = None
        if self._whole:
            self._raw = np.frombuffer(chunk.data, np.uint8, chunk.raw_length)
            return
        self._raw = np.empty(0, np.uint8)
        self._starts = list(accumulate(chunk.raw, initial=0))
        self._stored_starts = list(accumulate(chunk.stored, initial=0))

    def block(self, at: int) -> tuple[NDArray[np.uint8], int]:
        """Return the block that holds byte `at` of the stream, and where it begins.

        Of a stream that is not compressed it is all of it.
        """
        if self._whole:
            return self._raw, 0
        # Blocks may be empty: the last one that begins here holds the byte.
        number = min(bisect_right(self._starts, at), len(self._chunk.raw)) - 1
        if number != self._number:
            self._raw = self._next(number)
            self._number = number
        return self._raw, self._starts[number]

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Return the bytes [start, stop), which must be there: a view of a block, or a copy of what lies in several."""
        if start >= stop:
            return np.empty(0, np.uint8)
        raw, at = self.block(start)
        if stop <= at + len(raw):
            return raw[start - at : stop - at]
        out = np.empty(stop - start, np.uint8)
        self.read_into(start, out)
        return out

    def read_into(self, start: int, out: NDArray[np.uint8]) -> None:
        """Fill `out` with the bytes from `start` on."""
        filled = 0
        while filled < len(out):
            raw, at = self.block(start + filled)
            part = raw[start + filled - at : start + len(out) - at]
            out[filled : filled + len(part)] = part
            filled += len(part)

    def close(self) -> None:
        """Wait for what is being decompressed ahead."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _next(self, number: int) -> NDArray[np.uint8]:
        del self._raw  # not to be held while the next one is made
        if self._helpers and number == self._number + 1:
            if self._ahead is None:
                self._ahead = made_ahead(
                    self._decompressed, range(number, len(self._chunk.raw)), self._helpers
                )
            return next(self._ahead)
        self.close()
        return self._decompressed(number)

    def _decompressed(self, number: int) -> NDArray[np.uint8]:
        begin = self._stored_starts[number]
        data = self._chunk.data[begin : begin + self._chunk.stored[number]]
        raw: Any = decompress(self._chunk.codec, data, self._chunk.raw[number], self._place, number)
        return np.frombuffer(raw, np.uint8)
