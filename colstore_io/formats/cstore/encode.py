"""Arrays to the bytes of a record (cstore.md sections 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .manifest import stored_dtype
from .records import body_bytes, encode_record_header

__all__ = ["record_buffers", "record_size", "stored_array", "stored_dtype"]


def stored_array(values: NDArray[Any]) -> NDArray[Any]:
    """Return `values` as they stand in a file: 1-D, C-contiguous, little-endian, no zero-width strings.

    `values` itself when it already is all that, else a new array.

    Raises
    ------
    TypeError
        If values of this dtype cannot be stored.
    ValueError
        If the array is not one-dimensional.
    """
    if values.ndim != 1:
        raise ValueError(f"a column must be one-dimensional, got shape {values.shape}")
    dtype = stored_dtype(values.dtype)
    if dtype.itemsize != values.dtype.itemsize:  # S0 and U0: NumPy casts between widths
        return np.zeros(len(values), dtype)
    contiguous = np.ascontiguousarray(values)
    if contiguous.dtype.str == dtype.str:
        return contiguous
    # Not astype: NumPy 2 leaves big-endian timedelta64 without a unit as it is, and says otherwise.
    return contiguous.byteswap().view(dtype)


def record_buffers(
    index: int, arrays: Sequence[NDArray[Any]], n_rows: int
) -> list[NDArray[np.uint8] | bytes]:
    """Return the buffers that make up record `index`, in file order: header, columns, padding.

    Parameters
    ----------
    index : int
        Position of the record in the file.
    arrays : sequence of ndarray, shape (n_rows,)
        Columns in file order, as `stored_array` gives them. Not copied: the buffers are views of them.
    n_rows : int
        Rows; given by the caller because a table may have no columns.

    Raises
    ------
    ValueError
        If an array has another length, or is not stored form.
    """
    buffers: list[NDArray[np.uint8] | bytes] = [encode_record_header(index, n_rows)]
    row_bytes = 0
    for array in arrays:
        if array.shape != (n_rows,) or not array.flags.c_contiguous:
            raise ValueError(f"expected a contiguous array of {n_rows} rows, got shape {array.shape}")
        row_bytes += array.dtype.itemsize
        if n_rows:
            buffers.append(array.view(np.uint8))  # datetimes do not speak the buffer protocol
    padding = body_bytes(n_rows, row_bytes) - n_rows * row_bytes
    if padding:
        buffers.append(bytes(padding))
    return buffers


def record_size(n_rows: int, row_bytes: int) -> int:
    """Return the bytes that a record takes in the file, header and padding included."""
    return 32 + body_bytes(n_rows, row_bytes)
