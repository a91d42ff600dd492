"""Where large outputs live.

A result of many megabytes costs more to put into fresh memory than to read: every new page is a fault and a zeroing.
So the memory of outputs that nobody can see any more is kept, up to a bound, and used again
(`config.set_output_pool_bytes`).

Measured on calls whose result is dropped at once (10 million rows of 50 bytes, 2 threads, medians of interleaved
rounds on a busy machine), `numpy.empty` against the pool: one column of 80 MB 44.5 and 23.7 ms, a mask of 50 % of it
39.5 and 30.4 ms (1.6 times, round by round), all 500 MB 303 and 259 ms with the default bound of 256 MiB and 2.0 times
with enough; a gather of 16 MB gains nothing, it waits for its reads.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import config
from .kernels import outputs

__all__ = ["POOLED_BYTES", "Arena", "empty"]

POOLED_BYTES = 1 << 20
"""Outputs of at least this size come from the pool; malloc has its own lists for smaller ones."""


def empty(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a new array of shape (count,) whose contents are undefined; it owns its data, like that of `numpy.empty`.

    Whoever calls this writes every element before the array is handed out.
    """
    if count * dtype.itemsize < POOLED_BYTES or config.get_output_pool_bytes() == 0:
        return np.empty(count, dtype)
    try:
        return outputs.empty(count, dtype)
    except MemoryError:  # the number of mappings of a process is limited too; malloc may still have memory
        return np.empty(count, dtype)


class Arena:
    """Memory for the results of one read after another: what `TableOps.scoped` borrows from.

    Results are cut from blocks that are kept. `reset` makes all of them free again at once, so arrays of an earlier
    read will show other values once the next one runs; they never become invalid memory, since they hold the block.

    Parameters
    ----------
    block_bytes : int
        Size of a block; larger results get a block of their own.
    """

    __slots__ = ("_block_bytes", "_blocks", "_lock", "_used")

    def __init__(self, block_bytes: int = 4 << 20) -> None:
        self._block_bytes = block_bytes
        self._blocks: list[NDArray[np.uint8]] = []
        self._used: list[int] = []
        self._lock = threading.Lock()

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        """Return `nbytes` of memory, aligned to 64 bytes, whose contents are undefined. Safe in threads."""
        rounded = -(-nbytes // 64) * 64
        with self._lock:
            for number, block in enumerate(self._blocks):
                first = self._used[number]
                if first + rounded <= block.shape[0]:
                    self._used[number] = first + rounded
                    return block[first : first + nbytes]
            size = max(rounded, self._block_bytes)
            whole = empty(size + 64, np.dtype(np.uint8))
            skip = -whole.ctypes.data % 64
            self._blocks.append(whole[skip : skip + size])
            self._used.append(rounded)
            return self._blocks[-1][:nbytes]

    def reset(self) -> None:
        """Make all memory free for the next read."""
        with self._lock:
            self._used = [0] * len(self._blocks)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(block.shape[0] for block in self._blocks)
