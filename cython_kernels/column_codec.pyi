from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]

WRONG: tuple[str, ...]
"""What each error code says; 0 is no error."""

def best_isa() -> int:
    """Return the best version of the loops that this machine runs: 0 portable, 1 AVX2, 2 AVX-512."""

def encode(values: NDArray[Any], *, isa: int | None = None) -> bytes:
    """Return `values` as a column (colbin.md section 8).

    Parameters
    ----------
    values : ndarray, shape (n,), C-contiguous, native byte order
        Booleans (0 and 1), integers, or floats, whose bit patterns are the values. 64-bit unsigned integers and
        doubles are taken for the signed integers of the same bits.
    isa : int, optional
        Which version of the loops, at most `best_isa()`; for tests.

    Raises
    ------
    ValueError
        For other types and shapes.
    """

def decode(data: Buffer, out: NDArray[Any], *, isa: int | None = None) -> int:
    """Decode the column `data` into all of `out`; return 0, or the place in `WRONG` of what is wrong with `data`.

    Every value is checked against the type of `out` (booleans: 0 and 1). After an error `out` is unspecified.

    Parameters
    ----------
    data : buffer of bytes
        Exactly one column.
    out : ndarray, shape (n,), C-contiguous, native byte order, writable
        Its length is the element count, which the bytes do not have. Types as in `encode`.
    """

def encode_columns(
    arrays: Sequence[NDArray[Any]],
    bounds: NDArray[np.int64] | None = None,
    *,
    threads: int = 1,
    isa: int | None = None,
) -> list[bytes]:
    """Return each of `arrays` as a column, as `encode`; threads take one array at a time.

    Parameters
    ----------
    arrays : sequence of ndarray
    bounds : ndarray of int64, shape (len(arrays), 2), optional
        Gets the smallest and the largest value of each as the codec saw them (bit patterns of floats); 0 and 0 of
        an empty one.
    threads : int, optional
        Threads to use; 1 stays in the calling thread.
    """

def decode_columns(
    data: Buffer,
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    outs: Sequence[NDArray[Any]],
    *,
    threads: int = 1,
    isa: int | None = None,
) -> tuple[int, int]:
    """Decode the columns at ``data[start[c] : start[c] + length[c]]`` into ``outs[c]``, as `decode`.

    Returns
    -------
    (column, code)
        The first column that is wrong and its code; (-1, 0) when all are right.

    Raises
    ------
    ValueError
        If a column lies outside `data`, or lengths differ.
    """
