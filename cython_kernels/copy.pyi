import numpy as np
from numpy.typing import NDArray

def copy_runs(
    source: NDArray[np.uint64],
    target: NDArray[np.uint64],
    nbytes: NDArray[np.int64],
    *,
    threads: int = 1,
) -> None:
    """Copy ``nbytes[r]`` bytes from address ``source[r]`` to address ``target[r]`` for every run r.

    Work is shared among threads by bytes: long runs are split, short ones bundled. Does not validate
    addresses; callers guarantee that the memory exists and that no target overlaps another run. ``threads=1``
    stays in the calling thread.

    Raises
    ------
    ValueError
        If lengths differ, or a run has a negative length or the total passes 2^63.
    """

def interleave(
    columns: NDArray[np.uint64],
    itemsize: NDArray[np.int64],
    out: NDArray[np.uint8],
    n_rows: int,
    *,
    threads: int = 1,
) -> None:
    """Pack columns into records: row i of column c goes to ``out[i * sum(itemsize) + sum(itemsize[:c])]``.

    Parameters
    ----------
    columns : ndarray of uint64, shape (C,)
        Address of each column's `n_rows` contiguous values. Does not validate them.
    itemsize : ndarray of int64, shape (C,)
        Bytes per value.
    out : ndarray of uint8, shape (n_rows * sum(itemsize),)
        Target.
    n_rows : int
        Number of records.
    threads : int, optional
        Threads to use; 1 stays in the calling thread.

    Raises
    ------
    ValueError
        If a length or size does not fit.
    """
