"""Chunks whose bytes must be fetched: which ranges of them, and an address under which kernels find what came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage import ByteFile
from .jobs import Request
from .selecting import Outer

__all__ = ["Chunks", "Ranges", "merged", "outer_ranges", "place_answers", "requests_of"]

_GAP_BYTES = 64 << 10
"""Ranges of one chunk at most this far apart are fetched as one."""

Ranges = tuple[int, ByteFile, int, NDArray[np.int64]]
"""Chunk, file, byte offset of its values, and the byte ranges wanted, shape (n, 2): begin and end in the chunk."""


@dataclass
class Chunks:
    """The touched chunks of one column, and where their values are.

    Attributes
    ----------
    bases : ndarray of uint64
        Address of each chunk's values; of a chunk that must be fetched, 0 until it was.
    files : list
        For each chunk to fetch: (number, file, byte offset of its values).
    keep : list
        What owns the memory behind `bases`.
    """

    bases: NDArray[np.uint64]
    fetched: list[tuple[int, ByteFile, int]] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)


def merged(offsets: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """Return ranges of bytes, shape (n, 2), that cover `width` bytes at each of the sorted `offsets`."""
    breaks = np.flatnonzero(np.diff(offsets) > width + _GAP_BYTES)
    found = np.empty((len(breaks) + 1, 2), np.int64)
    found[:, 0] = offsets[np.concatenate(([0], breaks + 1))]
    found[:, 1] = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + width
    return found


def outer_ranges(selection: Outer, position: int, itemsize: int) -> NDArray[np.int64]:
    """Return the byte ranges that a selection needs of touched chunk `position`: rows of the last dimension, merged."""
    lengths, wanted = [], []
    for pick in reversed(selection.picks):
        position, own = divmod(position, len(pick.chunks))
        lengths.append(int(pick.lengths[own]))
        runs = pick.runs[pick.runs[:, 2] == own]
        parts = [np.arange(a, a + n * s, s, dtype=np.int64) for _, n, _, a, s in runs.tolist()]
        wanted.append(np.unique(np.concatenate(parts)))
    offsets = np.zeros(1, np.int64)
    width = stride = itemsize
    for length, local in zip(lengths, wanted, strict=True):
        if width == stride:  # everything behind this dimension is wanted, or there is nothing behind it
            gaps = (np.diff(local) - 1) * stride
            if gaps.max(initial=0) <= _GAP_BYTES:
                offsets = local[:1] * stride
                width = int(local[-1] - local[0]) * stride + width
            else:
                offsets = local * stride
        else:
            offsets = (local[:, None] * stride + offsets[None, :]).reshape(-1)
        stride *= length
    return merged(np.sort(offsets), width)


def requests_of(ranges: Sequence[Ranges]) -> list[Request]:
    return [
        (file, place + begin, end - begin)
        for _, file, place, wanted in ranges
        for begin, end in wanted.tolist()
    ]


def place_answers(ranges: Sequence[Ranges], answers: Sequence[memoryview], chunks: Chunks) -> None:
    """Give each fetched chunk a base: an address from which the kernels find every byte that was asked for."""
    at = 0
    for position, _, _, wanted in ranges:
        own = answers[at : at + len(wanted)]
        at += len(wanted)
        first = int(wanted[0, 0])
        if len(own) == 1:
            memory = np.frombuffer(own[0], np.uint8)
        else:
            # Pages that no range reaches are never touched, so this takes no more memory than the ranges.
            memory = np.empty(int(wanted[-1, 1]) - first, np.uint8)
            for (begin, end), answer in zip(wanted.tolist(), own, strict=True):
                memory[begin - first : end - first] = np.frombuffer(answer, np.uint8)
        chunks.keep.append(memory)
        chunks.bases[position] = (memory.ctypes.data - first) % 2**64
