"""Files that differ in row counts alone: arrays of what differs, and a `ShardMeta` where somebody asks for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from . import ShardMeta

__all__ = ["Siblings"]


@dataclass(frozen=True)
class Siblings(Sequence[ShardMeta]):
    """What files of equal columns and one record each say, without statistics.

    Attributes
    ----------
    model : ShardMeta
        Of the first file.
    paths : sequence of str
        The files as the user spelled them.
    rows, committed_end, stats_offset, file_size : ndarray of int64, shape (n,)
        As in `ShardMeta`, of each file.
    counters : ndarray of uint8, shape (n, 64)
    """

    model: ShardMeta
    paths: Sequence[str]
    rows: NDArray[np.int64]
    committed_end: NDArray[np.int64]
    stats_offset: NDArray[np.int64]
    file_size: NDArray[np.int64]
    counters: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def may_have_statistics(self) -> bool:
        """Whether some file names a footer behind its data."""
        return bool((self.stats_offset >= self.committed_end).any())

    @overload
    def __getitem__(self, key: int) -> ShardMeta: ...
    @overload
    def __getitem__(self, key: slice) -> list[ShardMeta]: ...
    def __getitem__(self, key: int | slice) -> ShardMeta | list[ShardMeta]:
        if isinstance(key, slice):
            return [self[i] for i in range(*key.indices(len(self)))]
        rows = int(self.rows[key])
        return self.model.sibling(
            path=self.paths[key],
            record_rows=np.array([rows], np.int64),
            n_rows=rows,
            committed_end=int(self.committed_end[key]),
            stats_offset=int(self.stats_offset[key]),
            file_size=int(self.file_size[key]),
            counters=self.counters[key].tobytes(),
            statistics=None,
        )
