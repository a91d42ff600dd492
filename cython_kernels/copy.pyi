import numpy as np
from numpy.typing import NDArray

def copy_runs(
    source: NDArray[np.uint64],
    target: NDArray[np.uint64],
    nbytes: NDArray[np.int64],
    *,
    threads: int = 1,
) -> None: ...
def interleave(
    columns: NDArray[np.uint64],
    itemsize: NDArray[np.int64],
    out: NDArray[np.uint8],
    n_rows: int,
    *,
    threads: int = 1,
) -> None: ...
