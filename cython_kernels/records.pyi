from typing import Any

import numpy as np
from numpy.typing import NDArray

def walk_records(
    buffer: NDArray[np.uint8],
    first_offset: int,
    row_bytes: int,
    end: int,
    rows: NDArray[np.int64],
    body_start: NDArray[np.int64],
) -> tuple[int, int]:
    """Validate ``len(rows)`` record headers, one after the other (cstore.md 6 and 11).

    Parameters
    ----------
    buffer : ndarray of uint8
        Bytes ``[0, len(buffer))`` of the file.
    first_offset : int
        Offset of the header of record 0.
    row_bytes : int
        Sum of the item sizes of all columns.
    end : int
        End of the bytes that may be used: headers and padded bodies lie before it.
    rows, body_start : ndarray of int64, shape (n,)
        Filled with the row count of each good record and the offset of its body.

    Returns
    -------
    good : int
        Number of records that passed.
    code : int
        Why the walk stopped: 0 it did not, 1 header truncated, 2 wrong magic, 3 wrong index, 4 wrong CRC,
        5 row count negative or too large for 64 bits, 6 body runs past `end`. Checked in this order.

    Raises
    ------
    ValueError
        If lengths differ or an offset is negative.
    """

def walk_records_fd(
    fd: int,
    first_offset: int,
    row_bytes: int,
    end: int,
    rows: NDArray[np.int64],
    body_start: NDArray[np.int64],
) -> tuple[int, int]:
    """Validate record headers as `walk_records` does, reading them from a descriptor.

    Far apart, headers are read by ``pread`` of 32 bytes each; near each other, through a sliding buffer of 1
    MiB. The file position is not used. Interrupted and short reads are continued.

    Raises
    ------
    OSError
        If a read fails.
    ValueError
        If lengths differ or an offset is negative.
    """

def encode_record(arrays: list[Any], dtypes: list[np.dtype[Any]], index: int, most: int) -> bytes | None:
    """Return a small record as it stands in a file (cstore.md 6): header, columns, padding.

    Parameters
    ----------
    arrays : list
        One column each.
    dtypes : list of numpy.dtype
        Their stored dtypes.
    index : int
        Number of the record in the file.
    most : int
        Bytes of the largest record that is made here, padding apart.

    Returns
    -------
    bytes or None
        None when this is somebody else's business: more bytes or more than 64 columns, none at all, or something
        that is not a one-dimensional, contiguous array of the stored dtype and the length of the others.
    """
