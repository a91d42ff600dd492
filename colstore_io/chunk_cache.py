"""Decoded chunks that are kept for the next read.

A segment of an encoded file is decoded whole for one row of it, so loops over small selections would decode the same
chunk again and again. Of a chunk that is read in part for the second time everything is decoded and kept, as long as
there is room; reads of whole segments, and what is read in part only once, pass by.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeAlias

from . import config

if TYPE_CHECKING:
    from .formats import DecodedColumn

__all__ = ["ChunkCache", "Key"]

Key: TypeAlias = "tuple[int, int, bool]"
"""Segment, position of the field in the schema, whether as an Arrow dictionary."""

_REMEMBERED = 4096
"""Chunks of which reads in part are counted."""

_PATIENCE = 4
"""How many times more often a chunk has to be asked for after it was kept in vain."""

_NEVER = 1 << 30


class ChunkCache:
    """The decoded chunks of one source that are asked for again and again.

    Notes
    -----
    Holds at most ``config.get_decoded_cache_bytes()``; the least recently used goes first. Safe in threads.
    What is kept is read-only, and callers hand out copies of it.
    """

    __slots__ = ("_asked", "_bytes", "_kept", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards everything here; no other lock is taken under it
        self._kept: OrderedDict[Key, tuple[DecodedColumn, int, bool]] = (
            OrderedDict()
        )  # column, bytes, was it used?
        self._asked: OrderedDict[Key, tuple[int, int]] = (
            OrderedDict()
        )  # times read in part, and how many it takes
        self._bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes that are kept now."""
        return self._bytes

    def get(self, key: Key) -> DecodedColumn | None:
        """Return a whole chunk if it is here."""
        if not self._kept:
            return None
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            column, size, _ = found
            self._kept[key] = (column, size, True)
            self._kept.move_to_end(key)
            return column

    def wants(self, key: Key) -> bool:
        """Note that a part of a chunk is read; True when it is time to decode all of it and `put` it here."""
        with self._lock:
            times, needed = self._asked.pop(key, (0, 2))
            self._asked[key] = (times + 1, needed)
            if len(self._asked) > _REMEMBERED:
                self._asked.popitem(last=False)
            return times + 1 >= needed

    def put(self, key: Key, column: DecodedColumn) -> None:
        """Keep a chunk, which nobody else may write to, unless it takes more than all the room there is."""
        limit = config.get_decoded_cache_bytes()
        size = _size_of(column)
        with self._lock:
            if size > limit:
                self._asked[key] = (0, _NEVER)
                return
            self._drop(key)
            self._kept[key] = (column, size, False)
            self._bytes += size
            while self._bytes > limit:
                oldest = next(iter(self._kept))
                used = self._kept[oldest][2]
                self._drop(oldest)
                # Decoding more than was asked for did not pay: more chunks take turns than there is room for.
                _, needed = self._asked.get(oldest, (0, 2))
                self._asked[oldest] = (0, needed if used else min(needed * _PATIENCE, _NEVER))

    def _drop(self, key: Key) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._bytes -= found[1]


def _size_of(column: DecodedColumn) -> int:
    size = sum(part.nbytes for part in (column.values, column.validity) if part is not None)
    if column.array is not None:
        size += column.array.get_total_buffer_size()
    return int(size)
