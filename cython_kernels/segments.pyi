from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MASK_CHUNK_ROWS: int
"""Rows that one entry of `mask_offsets` accounts for (16384)."""

class SegmentTable:
    """Where each row of one or more columns lives: the table that every gather walks.

    Row ``i`` (global) of column ``c`` is at address ``base[c, s] + i * itemsize[c]`` (wrapping; only the sum
    is an address), ``s`` being the last segment with ``row_start[s] <= i`` (cstore.md 14). One segment stands
    for one record of one file, or for one fetched range; rows between ``row_stop[s]`` and ``row_start[s +
    1]`` are absent. Immutable and safe to use from several threads at once.

    Parameters
    ----------
    row_start, row_stop : ndarray of int64, shape (S,)
        Half-open row ranges in ascending order; zero-row segments and S = 0 are allowed.
    base : ndarray of int64, shape (C, S), C-contiguous
        Byte bases. The memory behind them is borrowed: it must outlive the table, stay readable from
        row_start to row_stop, and need not be aligned. No byte outside those rows is read.
    itemsize : ndarray of int64, shape (C,)
        Bytes per value; 1, 2, 4, 8 and 16 have typed loops, any other width is copied as bytes.
    n_rows : int
        Rows of the whole table, at least ``row_stop[-1]``; what negative indices count from. At most 2^62.
    uniform_rows : int, optional
        U > 0 promises ``row_start[s] == s * U`` and a last segment of at most U rows, which makes the segment
        a division; 0 promises nothing.

    Raises
    ------
    ValueError
        If shapes disagree, segments overlap or end after `n_rows`, a size is impossible, or the uniform
        promise does not hold.

    Notes
    -----
    Copies its inputs: 16 bytes a segment and 8 a segment and column. A search table of at most 16 bytes a
    segment is built once the table has been asked about as many rows as it has segments. Cannot be pickled
    (it holds addresses).
    """

    n_columns: int
    n_segments: int
    n_rows: int
    uniform_rows: int
    keep: object

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
        isa: str | None = None,
    ) -> int:
        """Copy the rows named by `indices` into `out`.

        Parameters
        ----------
        indices : ndarray of int64, shape (k,), C-contiguous
            Row numbers in any order, repeats allowed; negative ones count from the end, once.
        out : ndarray, shape (k,), or list or tuple of C of them
            C-contiguous and writable, any dtype of the column's item size. One array is enough for one
            column.
        threads : int, optional
            Threads to use; 1 stays in the calling thread and enters no OpenMP region.
        prefetch : int, optional
            Rows between prefetch and load: 0 for none, -1 for the default (96). Rounded up to a multiple of 8; at most
            256 are used, shared by the columns where segments are so short that all columns of a row are read together.
        route : {"affine", "uniform", "bucket", "search", "cursor"}, optional
            Forces a way from rows to segments, for tests; chosen by the table and the indices when omitted.
        isa : {"avx512", "portable"}, optional
            Forces a version of the loop, for tests; the best one of this machine when omitted. Sorted rows that are
            looked up by a cursor, and uniform tables of 2^31 rows or more, have the portable one alone.

        Returns
        -------
        int
            -1, or the position of one index that lies outside ``[-n_rows, n_rows)`` or in a gap. `out` is
            unspecified then; no address is formed from an index before it has been checked.

        Raises
        ------
        TypeError
            If `indices` is not a 1-D native int64 array.
        ValueError
            If an output has the wrong shape or item size, is not C-contiguous or not writable, or the route
            does not fit the table. Nothing is
            written.
        """

    def copy_strided(
        self,
        start: int,
        step: int,
        count: int,
        out: NDArray[Any] | Sequence[NDArray[Any]],
        *,
        threads: int = 1,
    ) -> None:
        """Copy the rows ``start + k * step`` for 0 <= k < `count` into `out`.

        `step` may be negative but not 0. Step 1 is one memory copy a segment, shared among threads by bytes.

        Raises
        ------
        ValueError
            If a row lies outside ``[0, n_rows)`` or an output has the wrong shape (nothing is written), or if
            a row lies in a gap (`out` is unspecified then).
        """

    def compress(
        self,
        mask: NDArray[np.bool_],
        offsets: NDArray[np.int64],
        out: NDArray[Any] | Sequence[NDArray[Any]],
        *,
        threads: int = 1,
        route: str | None = None,
    ) -> None:
        """Copy the rows where `mask` is true into `out`, without an index array.

        Parameters
        ----------
        mask : ndarray of bool, shape (n_rows,), C-contiguous
            Bytes other than 0 and 1 count as true.
        offsets : ndarray of int64
            ``mask_offsets(mask)``; its last entry is the length of the outputs.
        out : ndarray, or list or tuple of C of them
            As in `take`.
        threads : int, optional
            As in `take`.
        route : {"avx512", "avx2", "portable"}, optional
            Forces an instruction set of `instruction_sets`, for tests.

        Raises
        ------
        ValueError
            If a length is wrong or the mask selects a row in a gap (nothing is written), or if the mask is
            not the one that was counted (`out` is unspecified then; nothing outside it is written).
        """
    def _capsule(self) -> object:
        """Return the address of the C table, for other kernel modules; valid while the table lives."""

def mask_offsets(mask: NDArray[np.bool_], *, threads: int = 1) -> NDArray[np.int64]:
    """Count the true rows of `mask` (n,) in chunks of `MASK_CHUNK_ROWS`.

    Returns
    -------
    ndarray of int64, shape (ceil(n / MASK_CHUNK_ROWS) + 1,)
        Prefix counts: starts with 0, ends with the number of true rows.
    """

def first_out_of_range(indices: NDArray[np.int64], n_rows: int, *, threads: int = 1) -> int:
    """Return the position of an index outside ``[-n_rows, n_rows)``, or -1 (the first when `threads` is 1)."""

def openmp_enabled() -> bool:
    """Return whether the kernels were built with OpenMP; without it, `threads` has no effect."""

def instruction_sets() -> tuple[str, ...]:
    """Return the code paths that ``compress(route=...)`` can force on this machine, the default one first."""

def gather_instruction_sets() -> tuple[str, ...]:
    """Return the versions that ``take(isa=...)`` can force on this machine, the widest first."""

def _divide(n: int, d: int, *, portable: bool = False) -> int:
    """Return ``n // d`` as the uniform route computes it; for tests of exactness."""
