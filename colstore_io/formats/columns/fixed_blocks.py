"""Whole chunks of fixed width without nulls: block by block to the place of the values, as often as they are wanted.

The shortest road for what most columns of numbers are: Plain or Delta, not compressed or under Flate. Where a block is
damaged the answer is only that; the ordinary way, which is tried next, says which block and why.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import decode as kernel
from ...threads import run_with_helpers
from .chunk import Chunk
from .decompress import inflated
from .tags import NUMPY_TYPES, Codec, Encoding, Type

__all__ = ["FixedBlocks", "fixed_blocks"]

WORTH_SHARING_BYTES = 1 << 16
"""Stored bytes below which inflating stays in its thread: 0.2 ms, no more than it takes to call another one."""

WORTH_COPYING_BYTES = 4 << 20
"""Bytes below which a copy stays in its thread."""

_COPY_PIECE = 1 << 20


class FixedBlocks:
    """The blocks of one chunk.

    Parameters
    ----------
    data : memoryview
        Stored bytes of the blocks, back to back; held, and not copied.
    stored, raw : sequence of int
        Lengths of the blocks after and before compression.
    width : {1, 2, 4, 8}
        Bytes of a value.
    deflated : bool
        Raw DEFLATE, else not compressed.
    differences : bool
        Delta (columns.md 6.3) in blocks of whole differences, else Plain.

    Attributes
    ----------
    raw_bytes : int
        Of all blocks.
    shared : bool
        Whether several threads are of use.
    """

    __slots__ = ("_data", "_deflated", "_delta", "_places", "_stored_bytes", "_width", "raw_bytes", "shared")

    def __init__(
        self,
        data: memoryview,
        stored: Sequence[int],
        raw: Sequence[int],
        width: int,
        *,
        deflated: bool,
        differences: bool,
    ) -> None:
        self._width, self._deflated, self._delta = width, deflated, differences
        starts = itertools.accumulate(stored, initial=0)
        values = itertools.accumulate((n // 8 * width if differences else n for n in raw), initial=0)
        # Of each block: where its stored bytes are, its raw bytes, and where its values begin and end.
        self._places = [
            (data[start : start + size], n, at, at + (n // 8 * width if differences else n))
            for start, size, n, at in zip(starts, stored, raw, values)  # noqa: B905 (sums have one more)
        ]
        self._stored_bytes = sum(stored)
        self.raw_bytes = sum(raw)
        self._data = data[: self._stored_bytes]
        self.shared = self._stored_bytes >= (WORTH_SHARING_BYTES if deflated else WORTH_COPYING_BYTES)

    def read(self, out: NDArray[np.uint8], threads: int) -> bool:
        """Fill `out` with the bytes of all values on up to `threads` threads; False when a block is damaged.

        Threads that do not come in time are called off.
        """
        if not self._deflated:
            self._copy(out, threads if len(out) >= WORTH_COPYING_BYTES else 1)
            return True
        helpers = min(threads, len(self._places)) - 1 if self._stored_bytes >= WORTH_SHARING_BYTES else 0
        if self._delta and helpers <= 0:
            total = 0
            for stored, n, begin, end in self._places:
                raw = inflated(stored, n)
                if len(raw) != n or isinstance(raw, str):
                    return False
                total = kernel.delta(raw, out[begin:end], self._width, total)
                del raw  # before there is another one
            return True
        return self._read_shared(out, max(0, helpers))

    def _copy(self, out: NDArray[np.uint8], threads: int) -> None:
        if self._delta:
            kernel.delta(self._data, out, self._width)
            return
        source = np.frombuffer(self._data, np.uint8)
        if threads == 1:
            out[:] = source
            return
        turns = itertools.count(0, _COPY_PIECE)

        def take_part() -> None:
            for at in iter(turns.__next__, None):
                if at >= len(out):
                    return
                out[at : at + _COPY_PIECE] = source[at : at + _COPY_PIECE]

        run_with_helpers(take_part, threads - 1)

    def _read_shared(self, out: NDArray[np.uint8], helpers: int) -> bool:
        """Read blocks side by side; differences are summed up block by block, and across blocks in the end."""
        turns = itertools.count()
        sums = [0] * len(self._places)
        damaged: list[int] = []

        def take_part() -> None:
            for number in iter(turns.__next__, None):
                if number >= len(sums) or damaged:
                    return
                stored, n, begin, end = self._places[number]
                raw: Any = inflated(stored, n)
                if len(raw) != n or isinstance(raw, str):
                    damaged.append(number)
                elif self._delta:
                    sums[number] = kernel.delta(raw, out[begin:end], self._width)
                else:
                    out[begin:end] = np.frombuffer(raw, np.uint8)
                del raw

        run_with_helpers(take_part, helpers)
        if damaged:
            return False
        if self._delta:
            before = 0
            for (_, _, begin, end), own in zip(self._places, sums, strict=True):
                values = out[begin:end].view(f"u{self._width}")
                values += values.dtype.type(before & ((1 << 8 * self._width) - 1))
                before += own
        return True


def fixed_blocks(chunk: Chunk, kind: Type) -> FixedBlocks | None:
    """Return the blocks of a chunk of Plain or Delta, not compressed or under Flate, other than bool; else None.

    Of Delta, blocks must hold whole differences.
    """
    if chunk.codec not in (Codec.NONE, Codec.FLATE) or kind is Type.BOOL or not kind.fixed:
        return None
    differences = chunk.encoding is Encoding.DELTA
    if not differences and chunk.encoding is not Encoding.PLAIN:
        return None
    if differences and any(raw % 8 for raw in chunk.raw):
        return None
    return FixedBlocks(
        chunk.data,
        chunk.stored,
        chunk.raw,
        NUMPY_TYPES[kind].itemsize,
        deflated=chunk.codec is Codec.FLATE,
        differences=differences,
    )
