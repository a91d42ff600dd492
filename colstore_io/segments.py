"""Where is row i?

A `Segments` table lists the runs of rows of a dataset through all its files. It holds no addresses and no open
file, so it travels to other processes: at most 24 bytes a segment (cstore-behaviour.md 13.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Segments", "distinct", "partition_rows"]


@dataclass(frozen=True)
class Segments:
    """Runs of rows, in row order.

    Attributes
    ----------
    file : ndarray of int32, shape (S,)
        Number of the file that holds the segment.
    row_start : ndarray of int64, shape (S + 1,)
        First global row of each segment; the last entry is the row count of the dataset.
    body_start : ndarray of int64, shape (S,)
        File offset of the segment's first column value.
    """

    file: NDArray[np.int32]
    row_start: NDArray[np.int64]
    body_start: NDArray[np.int64]

    @classmethod
    def of_files(cls, rows: Sequence[NDArray[np.int64]], body_start: Sequence[NDArray[np.int64]]) -> Segments:
        """Return the table of the records of at least one file: row counts and body starts of each."""
        return cls(
            np.repeat(np.arange(len(rows), dtype=np.int32), [len(own) for own in rows]),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(rows), dtype=np.int64)]),
            np.concatenate(body_start),
        )

    @property
    def n_segments(self) -> int:
        return int(self.file.shape[0])

    @property
    def n_rows(self) -> int:
        return int(self.row_start[-1])

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Row count of each segment, shape (S,)."""
        return np.diff(self.row_start)

    @cached_property
    def uniform_rows(self) -> int:
        """Rows of every segment but the last, which has no more; 0 when the table is no uniform grid.

        Then row i is in segment ``min(i // U, S - 1)`` without a search (cstore.md section 14).
        """
        if self.n_segments < 2:
            return 0
        rows = self.rows
        first = int(rows[0])
        if first > 0 and 0 < rows[-1] <= first and bool((rows[:-1] == first).all()):
            return first
        return 0

    def span(self, first_row: int, row_stop: int) -> tuple[int, int]:
        """Return the half-open range of segments that hold rows [first_row, row_stop)."""
        if row_stop <= first_row:
            return 0, 0
        low = int(np.searchsorted(self.row_start, first_row, side="right")) - 1
        high = int(np.searchsorted(self.row_start, row_stop, side="left"))
        return low, high

    def locate(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the segment of each row; rows must lie in [0, n_rows)."""
        return np.searchsorted(self.row_start, rows, side="right") - 1

    def take(self, low: int, high: int) -> Segments:
        """Return segments [low, high) as a table of its own: rows from 0, files renumbered from 0."""
        file = self.file[low:high]
        first = int(file[0]) if high > low else 0
        return Segments(
            (file - first).astype(np.int32),
            self.row_start[low : high + 1] - self.row_start[low],
            self.body_start[low:high].copy(),
        )

    @classmethod
    def concatenate(cls, tables: Sequence[Segments], files: Sequence[int]) -> Segments:
        """Stack at least one table row-wise; `files` is the number of files that each one counts."""
        file_base = np.concatenate([[0], np.cumsum(files)])
        row_base = np.concatenate([[0], np.cumsum([t.n_rows for t in tables])])
        starts = [t.row_start[:-1] + row_base[i] for i, t in enumerate(tables)]
        return cls(
            np.concatenate([t.file + file_base[i] for i, t in enumerate(tables)]).astype(np.int32),
            np.concatenate([*starts, row_base[-1:]]).astype(np.int64),
            np.concatenate([t.body_start for t in tables]),
        )


def distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the different numbers among `numbers`, ascending.

    As ``numpy.unique``, whose first call in a process imports ``numpy.ma``: 15 ms, as long as a cold read of 1000 rows.
    """
    ordered = np.sort(numbers)
    if ordered.shape[0] < 2:
        return ordered
    new = np.empty(ordered.shape[0], np.bool_)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def partition_rows(
    row_start: NDArray[np.int64],
    row_bytes: int,
    *,
    blocksize: int,
    merge_below: int | None = None,
    addressable: bool = True,
) -> NDArray[np.int64]:
    """Cut the rows of a dataset into partitions (Dask) or chunks (xarray).

    Parameters
    ----------
    row_start : ndarray of int64, shape (S + 1,)
        Segment boundaries.
    row_bytes : int
        Bytes a row of the columns that will be read.
    blocksize : int
        Bytes that a partition aims at.
    merge_below : int, optional
        Neighbouring segments smaller than this many bytes are merged until they reach it; 0 keeps every segment
        apart. Default: `blocksize`.
    addressable : bool, default True
        Segments may be cut at any row; encoded ones are never cut.

    Returns
    -------
    ndarray of int64, shape (P + 1,)
        Increasing row boundaries, first 0, last the row count; P >= 1, and P = 1 with an empty partition when
        there are no rows.

    Notes
    -----
    A partition is a run of whole segments, or a row range inside one addressable segment of more than twice the
    block size; cuts inside a segment are equal but for the last.
    """
    if merge_below is None:
        merge_below = blocksize
    n_rows = int(row_start[-1])
    if n_rows == 0:
        return np.array([0, 0], dtype=np.int64)
    if row_bytes == 0:  # nothing to read, however many rows there are
        return np.array([0, n_rows], dtype=np.int64)
    block_rows = max(1, blocksize // row_bytes)
    merge_rows = merge_below // row_bytes
    bounds = [0]
    for stop in distinct(row_start)[1:].tolist():
        begin = bounds[-1]
        rows = stop - begin
        if addressable and rows > 2 * block_rows:
            pieces = -(-rows // block_rows)
            step = -(-rows // pieces)
            bounds.extend(range(begin + step, stop, step))
            bounds.append(stop)
        elif rows >= merge_rows or stop == n_rows:
            bounds.append(stop)
    return np.array(bounds, dtype=np.int64)
