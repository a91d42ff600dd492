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

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import config
from .kernels import outputs

__all__ = ["POOLED_BYTES", "empty"]

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
