from typing import Any

import numpy as np
from numpy.typing import NDArray

def empty(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a new array of shape (count,), contents undefined, in huge-page-advised memory.

    The array owns its data (NumPy calls our allocator for it). When it and its last view are gone, the memory goes to a
    list of freed regions, from which later calls are served first; see `set_limit`. Meant for arrays of 1 MiB and more;
    smaller ones come from malloc.

    Raises
    ------
    MemoryError
        If the system has no memory, or allows no further mapping.
    """

def set_limit(limit: int) -> None:
    """Keep at most `limit` bytes of freed memory; what is over it goes back to the system now, the oldest first."""

def state() -> dict[str, int]:
    """Return ``limit``, ``bytes`` freed and kept, and how many large arrays were ``reused`` and ``made`` so far."""

def available() -> bool:
    """Return whether this platform has the allocator; without it, `empty` is ``numpy.empty``."""
