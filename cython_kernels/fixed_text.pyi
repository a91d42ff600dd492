import numpy as np
from numpy.typing import NDArray

def text_offsets(
    rows: NDArray[np.uint8],
    width: int,
    itemsize: int,
    offsets: NDArray[np.int64],
    present: NDArray[np.uint8] | None = None,
    *,
    threads: int = 1,
) -> int:
    """Fill `offsets` with where each row begins among the UTF-8 bytes of all.

    Parameters
    ----------
    rows : ndarray of uint8, shape (n * width * itemsize,)
        Items of the rows, aligned: codes in native order (`itemsize` 4), or bytes that are counted as they are (1).
        Zeros at the end of a row are padding, others belong to it.
    width : int
        Items of a row.
    offsets : ndarray of int64, shape (n + 1,)
        Written; undefined after a bad row.
    present : ndarray of uint8, shape (n,), optional
        Rows whose flag is 0 have no bytes, whatever they hold.

    Returns
    -------
    int
        -1, or a row with a code that UTF-8 cannot hold: a surrogate, or one above U+10FFFF.

    Raises
    ------
    ValueError
        If lengths do not fit together.
    """

def write_text(
    rows: NDArray[np.uint8],
    width: int,
    itemsize: int,
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    *,
    threads: int = 1,
) -> None:
    """Write the UTF-8 bytes of all rows to ``data[offsets[i] : offsets[i + 1]]``.

    `offsets` are those of `text_offsets` for these rows; rows without bytes there are not looked at. Not a byte outside
    is written, also if rows or offsets are others.

    Raises
    ------
    ValueError
        If lengths do not fit together, or offsets do not ascend within `data`.
    """
