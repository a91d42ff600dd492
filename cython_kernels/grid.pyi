import numpy as np
from numpy.typing import NDArray

def take_points(
    bases: NDArray[np.uint64],
    counts: NDArray[np.int64],
    edges: NDArray[np.int64],
    uniform: NDArray[np.int64],
    index: NDArray[np.uint64],
    index_step: NDArray[np.int64],
    n_points: int,
    itemsize: int,
    out: NDArray[np.uint8],
    *,
    threads: int = 1,
) -> int:
    """Copy scattered values out of a box of chunks.

    Parameters
    ----------
    bases : ndarray of uint64, shape (prod(counts),)
        Address of each chunk of the box, in C order of the box; none may be 0. Addresses are not validated: callers
        guarantee that each chunk is there whole.
    counts : ndarray of int64, shape (D,)
        Chunks of the box along each dimension, at least 1.
    edges : ndarray of int64, shape (sum(counts + 1),)
        Dimension after dimension: first index of each chunk, and the end of the last one; increasing.
    uniform : ndarray of int64, shape (D,)
        Length of all chunks but the last along a dimension; 0: they differ.
    index : ndarray of uint64, shape (D,)
        Address of the int64 indices of each dimension.
    index_step : ndarray of int64, shape (D,)
        Bytes between indices; 0 when all points share one.
    n_points, itemsize : int
    out : ndarray of uint8, shape (n_points * itemsize,)

    Returns
    -------
    int
        -1, or the position of a point that lies outside the box; `out` is then unspecified. No address is formed from
        an index that was not checked.

    Raises
    ------
    ValueError
        If lengths do not fit together.
    """

def copy_slab(
    bases: NDArray[np.uint64],
    counts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    runs: NDArray[np.int64],
    run_counts: NDArray[np.int64],
    out_shape: NDArray[np.int64],
    itemsize: int,
    out: NDArray[np.uint8],
    *,
    threads: int = 1,
) -> None:
    """Copy the outer product of one selection per dimension out of a box of chunks.

    Parameters
    ----------
    bases, counts
        As in `take_points`.
    lengths : ndarray of int64, shape (sum(counts),)
        Length of each chunk, dimension after dimension.
    runs : ndarray of int64, shape (sum(run_counts), 5)
        Dimension after dimension: first position in the output, how many indices, chunk of the box, first index in that
        chunk, step (at least 1). No two runs of a dimension may share a position of the output.
    run_counts, out_shape : ndarray of int64, shape (D,)
    itemsize : int
    out : ndarray of uint8, shape (prod(out_shape) * itemsize,)
        C order.

    Raises
    ------
    ValueError
        If lengths do not fit together, or a run leaves its chunk or the output; nothing was written.
    """
