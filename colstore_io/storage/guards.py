"""Bytes that are looked at together with the first bytes that depend on them.

Where a range of a remote file is may follow from something that nobody has looked at yet. A `Guard` of the file tells
what has to be looked at; `storage.read_ranges` fetches it in the same round and lets the guard judge it, before it
hands out a byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..errors import ColstoreError

__all__ = ["Guard", "PlacesMovedError"]


class PlacesMovedError(ColstoreError, OSError):
    """Bytes are not where they were assumed to be: the places have to be looked up. Never leaves the library."""


class Guard(Protocol):
    """Judges assumptions about one file. Picklable, small, safe in threads."""

    def wanted(self, start: int, stop: int) -> Sequence[tuple[int, int]]:
        """Return the (offset, length) of what has to be looked at before bytes [start, stop) are believed.

        Wants are nested: what a range wants holds what each range that ends before it wants, or is empty where it
        depends on nothing. Callers ask for the last range alone.
        """
        ...

    def look(self, offset: int, data: memoryview) -> bool:
        """Tell whether the bytes of one of the ranges `wanted` are as assumed, and remember it."""
        ...

    def failed(self) -> bool:
        """Tell whether `look` was ever told otherwise, here or where this guard comes from."""
        ...

    def rows_before(self, offset: int) -> int | None:
        """Return how many rows were assumed before those at `offset`; None where none were assumed to begin."""
        ...
