import numpy as np
from numpy.typing import NDArray

HEAD_FIELDS: int
"""Fields of a file's state: error, length of its head, size, modification time in nanoseconds, inode."""

def read_heads(names: bytes, heads: NDArray[np.uint8], states: NDArray[np.int64]) -> None:
    """Read the first bytes of many files, and their state after that.

    Parameters
    ----------
    names : bytes
        Names of n files as the system takes them, each ended by a zero byte.
    heads : ndarray of uint8, shape (n, room)
        Filled with up to ``room`` >= 1 bytes of each file; what lies behind those is undefined.
    states : ndarray of int64, shape (n, HEAD_FIELDS)
        Filled: error (0 fine, > 0 the ``errno`` of the open, -1 no regular file, or one that cannot be read or is
        being cut), bytes in the head (the whole file if it is shorter), size, mtime_ns, inode (as a signed number).

    Raises
    ------
    ValueError
        If shapes differ or there are fewer names.
    """

def alike(
    heads: NDArray[np.uint8],
    states: NDArray[np.int64],
    text_end: int,
    record: int,
    row_bytes: int,
    rows: NDArray[np.int64],
) -> int:
    """Find the files of layout C and one record that have the columns of the first one (cstore.md 1, 2, 6, 11).

    Parameters
    ----------
    heads, states
        As `read_heads` filled them. The first head holds a sound header.
    text_end, record : int
        Where its manifest ends and its record 0 begins, ``72 <= text_end <= record <= room - 32``.
    row_bytes : int
        Sum of the item sizes, at least 1.
    rows : ndarray of int64, shape (n,)
        Filled with the rows of each file, or -1: another manifest, another number of records, a wrong checksum, a
        header longer than the head, or a body that runs past the end of the file.

    Returns
    -------
    int
        How many are alike, the first one included.
    """
