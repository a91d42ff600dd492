from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .segments import SegmentTable

def mask_of_ranges(
    table: SegmentTable,
    tests: Sequence[tuple[str, Any, bool, Any, bool]],
    mask: NDArray[np.bool_],
    *,
    segments: NDArray[np.bool_] | None = None,
    threads: int = 1,
    route: str | None = None,
) -> NDArray[np.int64]:
    """Find the rows that lie in one range per column, and count them.

    Parameters
    ----------
    table : SegmentTable
        Where the C >= 1 columns live; it must outlive the call.
    tests : sequence of C tuples (code, lo, lo_inclusive, hi, hi_inclusive)
        `code` is what the column holds: ``b1``, ``i1`` to ``i8``, ``u1`` to ``u8``, ``f4`` or ``f8``, native. Bounds
        are numbers; None is no bound. NaN lies in no range. A ``b1`` column holds false in bytes 0 and true in all
        others. A row is selected when its value of every column lies in that column's range.
    mask : ndarray of bool, shape (n_rows,)
        C-contiguous and writable; every entry is written.
    segments : ndarray of bool, shape (S,), optional
        Segments that are looked at; rows of the others, and of none, are false, and not read. Default: all.
    threads : int, optional
        Threads to use; 1 stays in the calling thread and enters no OpenMP region.
    route : {"avx512", "avx2", "portable"}, optional
        Forces an instruction set of ``segments.instruction_sets()``, for tests.

    Returns
    -------
    ndarray of int64, shape (ceil(n_rows / MASK_CHUNK_ROWS) + 1,)
        ``mask_offsets(mask)``: the prefix counts that ``SegmentTable.compress`` wants.

    Raises
    ------
    ValueError
        If the number of ranges, a code, an array or a setting does not fit. Nothing is written.

    Notes
    -----
    One pass: blocks of rows are compared column by column while their mask stays in the cache, and a column is not read
    where the ones before it leave no row of a block.
    """
