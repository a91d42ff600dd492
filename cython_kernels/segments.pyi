from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MASK_CHUNK_ROWS: int

class SegmentTable:
    """Where each row of one or more columns lives: the table that every gather walks.

    See the class docstring in segments.pyx and the NumPy twin in ``colstore_io.kernels_numpy``.
    """

    n_columns: int
    n_segments: int
    n_rows: int
    uniform_rows: int

    def __init__(
        self,
        row_start: NDArray[np.int64],
        row_stop: NDArray[np.int64],
        base: NDArray[np.int64],
        itemsize: NDArray[np.int64],
        n_rows: int,
        uniform_rows: int = 0,
    ) -> None: ...
    def take(
        self,
        indices: NDArray[np.int64],
        out: NDArray[Any] | Sequence[NDArray[Any]],
        *,
        threads: int = 1,
        prefetch: int = -1,
        route: str | None = None,
    ) -> int: ...
    def copy_strided(
        self,
        start: int,
        step: int,
        count: int,
        out: NDArray[Any] | Sequence[NDArray[Any]],
        *,
        threads: int = 1,
    ) -> None: ...
    def compress(
        self,
        mask: NDArray[np.bool_],
        offsets: NDArray[np.int64],
        out: NDArray[Any] | Sequence[NDArray[Any]],
        *,
        threads: int = 1,
        route: str | None = None,
    ) -> None: ...

def mask_offsets(mask: NDArray[np.bool_], *, threads: int = 1) -> NDArray[np.int64]: ...
def first_out_of_range(indices: NDArray[np.int64], n_rows: int, *, threads: int = 1) -> int: ...
def openmp_enabled() -> bool: ...
def instruction_sets() -> tuple[str, ...]: ...
