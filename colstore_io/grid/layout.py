"""Where are the chunks? Arithmetic of a chunk grid, one dimension at a time.

An `Axis` says how one dimension is cut. A chunk grid is the product of its axes; chunks are counted, and stored, in C
order. Nothing here reads or allocates in proportion to a dimension, or to chunks that nobody asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DEFAULT_CHUNK_BYTES", "MAX_CHUNKS", "Axis", "Box", "chunk_shape_for", "product"]

MAX_CHUNKS = 1 << 26
"""Chunks that a dimension, or a grid, may have: a hostile manifest must not make tables longer than this."""

DEFAULT_CHUNK_BYTES = 16 << 20
"""Bytes of a chunk when nobody says how to cut. Reading a part of a chunk costs nothing locally, and remotely only
the ranges that are needed are fetched; the size matters for Dask, where a chunk is a task."""

Run = tuple[int, int]


def product(numbers: Iterable[int]) -> int:
    """Return the product of Python integers, which does not overflow; 1 of nothing."""
    return math.prod(numbers)


@dataclass(frozen=True)
class Axis:
    """How one dimension is cut into chunks.

    Attributes
    ----------
    runs : tuple of (int, int)
        Chunk length and how many chunks in a row have it; lengths and counts are at least 1. No runs: length 0.
    """

    runs: tuple[Run, ...]

    @classmethod
    def regular(cls, length: int, chunk: int) -> Axis:
        """Return the axis of `length` whose chunks have `chunk` indices, the last one perhaps fewer."""
        if length == 0:
            return cls(())
        chunk = min(max(chunk, 1), length)
        full, rest = divmod(length, chunk)
        return cls(((chunk, full), (rest, 1)) if rest else ((chunk, full),))

    @classmethod
    def of_lengths(cls, lengths: Iterable[int]) -> Axis:
        """Return the axis with these chunk lengths; chunks of length 0 are left out."""
        return cls.of_runs((length, 1) for length in lengths)

    @classmethod
    def of_runs(cls, runs: Iterable[Run]) -> Axis:
        """Return the axis with these runs, neighbours of equal length joined."""
        joined: list[Run] = []
        for length, count in runs:
            if not length or not count:
                continue
            if joined and joined[-1][0] == length:
                joined[-1] = (length, joined[-1][1] + count)
            else:
                joined.append((length, count))
        return cls(tuple(joined))

    @cached_property
    def length(self) -> int:
        return sum(length * count for length, count in self.runs)

    @cached_property
    def count(self) -> int:
        """Number of chunks."""
        return sum(count for _, count in self.runs)

    @cached_property
    def uniform(self) -> int:
        """Length of all chunks but the last, which is not longer; 0 when they differ otherwise, or there are none."""
        if len(self.runs) == 1:
            return self.runs[0][0]
        if len(self.runs) == 2 and self.runs[1][1] == 1 and self.runs[1][0] < self.runs[0][0]:
            return self.runs[0][0]
        return 0

    @cached_property
    def _table(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of each run: its first index, the number of its first chunk, the length of its chunks."""
        lengths = np.array([length for length, _ in self.runs], np.int64)
        counts = np.array([count for _, count in self.runs], np.int64)
        return np.cumsum(lengths * counts) - lengths * counts, np.cumsum(counts) - counts, lengths

    def starts(self, chunks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first index of each of `chunks`, numbers in ``[0, count]``; of `count`, the end of the axis."""
        if self.uniform:
            return np.minimum(chunks * self.uniform, self.length)
        if not self.runs:
            return np.zeros(len(chunks), np.int64)
        index, chunk, length = self._table
        run = np.searchsorted(chunk, chunks, side="right") - 1
        return np.asarray(index[run] + (chunks - chunk[run]) * length[run], np.int64)

    def edges(self, first: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """Return the first index of chunks ``[first, stop)``, and the end of the last of them."""
        stop = self.count if stop is None else stop
        return self.starts(np.arange(first, stop + 1, dtype=np.int64))

    def lengths(self) -> tuple[int, ...]:
        """Return the length of every chunk."""
        found: list[int] = []
        for length, count in self.runs:
            found.extend([length] * count)
        return tuple(found)

    def chunk_at(self, index: int) -> tuple[int, int, int]:
        """Return number, first index and length of the chunk that holds `index`, which lies in ``[0, length)``."""
        if self.uniform:
            number = index // self.uniform
            first = number * self.uniform
            return number, first, min(self.uniform, self.length - first)
        first = number = 0
        for length, count in self.runs:
            if index < first + length * count:
                within = (index - first) // length
                return number + within, first + within * length, length
            first += length * count
            number += count
        raise IndexError(f"index {index} lies outside the {self.length} of this axis")

    def chunk_of(self, index: Any) -> Any:
        """Return the number of the chunk that holds `index`, an int or an array of them in ``[0, length)``."""
        if self.uniform:
            return index // self.uniform
        start, chunk, length = self._table
        run = np.searchsorted(start, index, side="right") - 1
        found = chunk[run] + (index - start[run]) // length[run]
        return int(found) if np.ndim(index) == 0 else found

    def followed_by(self, other: Axis) -> Axis:
        """Return this axis with the chunks of `other` behind its own."""
        return Axis.of_runs((*self.runs, *other.runs))

    def part(self, first: int, stop: int) -> Axis:
        """Return the axis of chunks ``[first, stop)``."""
        found: list[Run] = []
        at = 0
        for length, count in self.runs:
            low, high = max(first, at), min(stop, at + count)
            if low < high:
                found.append((length, high - low))
            at += count
        return Axis(tuple(found))

    def span(self, start: int, stop: int) -> tuple[int, int] | None:
        """Return which chunks make up indices ``[start, stop)``; None when that cuts a chunk.

        The last chunk may be shorter than the others and counts as whole.
        """
        if start == stop:
            return (0, 0)
        first, last = self.chunk_of(start), self.chunk_of(stop - 1)
        edges = self.edges(first, first + 1), self.edges(last, last + 1)
        if int(edges[0][0]) != start or int(edges[1][1]) != stop:
            return None
        return int(first), int(last) + 1


@dataclass(frozen=True, slots=True)
class Box:
    """A box of chunks in a chunk grid: half-open along each dimension.

    Attributes
    ----------
    first, stop : tuple of int
    """

    first: tuple[int, ...]
    stop: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(b - a for a, b in zip(self.first, self.stop, strict=True))

    def meets(self, other: Box) -> bool:
        """Whether the two have a chunk in common."""
        return all(
            a < d and c < b for a, b, c, d in zip(self.first, self.stop, other.first, other.stop, strict=True)
        )


def chunk_shape_for(
    shape: Sequence[int], itemsize: int, chunk_bytes: int = DEFAULT_CHUNK_BYTES
) -> tuple[int, ...]:
    """Return how to cut an array of which nobody said how: the leading dimensions first, so that a chunk is a slab."""
    chunk = [max(n, 1) for n in shape]
    for dimension in range(len(chunk)):
        rest = product(chunk[dimension + 1 :]) * max(itemsize, 1)
        chunk[dimension] = max(1, min(chunk[dimension], chunk_bytes // max(rest, 1)))
        if chunk[dimension] * rest <= chunk_bytes and chunk[dimension] > 1:
            break
    return tuple(chunk)
