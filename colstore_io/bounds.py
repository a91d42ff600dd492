"""Smallest and largest values through all files of a dataset, per segment or per block of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import formats
from .formats import Statistics

__all__ = ["BlockTable", "joined_statistics"]


@dataclass(frozen=True)
class BlockTable:
    """Bounds of blocks of rows through all files, finer than segments or coarser.

    Attributes
    ----------
    row_start : ndarray of int64, shape (B + 1,)
        First global row of each block. A file without an index is one block of which nothing is known.
    files : tuple
        Statistics of each file, or None, and its number of blocks.
    """

    row_start: NDArray[np.int64]
    files: tuple[tuple[Statistics | None, int], ...]

    @classmethod
    def of(cls, known: Sequence[Statistics | None], rows: Sequence[int]) -> BlockTable:
        starts: list[NDArray[np.int64]] = []
        files = []
        first = 0
        for statistics, n_rows in zip(known, rows, strict=True):
            step = formats.BLOCK_ROWS if statistics is not None else max(n_rows, 1)
            own = np.arange(first, first + n_rows, step, dtype=np.int64)
            starts.append(own)
            files.append((statistics, len(own)))
            first += n_rows
        return cls(np.concatenate([*starts, np.array([first], np.int64)]), tuple(files))

    @property
    def n_blocks(self) -> int:
        return len(self.row_start) - 1

    def statistics_of(self, name: str) -> Mapping[str, NDArray[Any]] | None:
        """As `Source.statistics_of`, per block."""
        return joined_statistics([known for known, _ in self.files], [count for _, count in self.files], name)


def joined_statistics(
    known: Sequence[Statistics | None], counts: Sequence[int], name: str
) -> Mapping[str, NDArray[Any]] | None:
    """Put together what files say about a column; where one says nothing, `counts` entries that are not usable."""
    if not any(s is not None and name in s.minimum for s in known):
        return None
    dtype = np.result_type(*(s.minimum[name].dtype for s in known if s is not None and name in s.minimum))
    minimum, maximum, usable = [], [], []
    for statistics, count in zip(known, counts, strict=True):
        if statistics is None or name not in statistics.minimum:
            minimum.append(np.zeros(count, dtype))
            maximum.append(np.zeros(count, dtype))
            usable.append(np.zeros(count, np.bool_))
        else:
            minimum.append(statistics.minimum[name].astype(dtype, copy=False))
            maximum.append(statistics.maximum[name].astype(dtype, copy=False))
            usable.append(statistics.usable[name])
    return {
        "minimum": np.concatenate(minimum),
        "maximum": np.concatenate(maximum),
        "usable": np.concatenate(usable),
    }
