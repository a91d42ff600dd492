"""Columns as Dask arrays whose graph is as large for a million chunks as for ten.

``dask.array.from_array`` keeps the borders of all chunks in its graph. Where chunks come in runs of one length, as
partitions do, `ChunkRows` works out the rows of each from its number.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import dask.array as da
import numpy as np
from dask.array.core import getter
from dask.blockwise import BlockwiseDep, blockwise
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

__all__ = ["ChunkRows", "array_of"]


class ChunkRows(BlockwiseDep):
    """Which rows (and all columns) chunk number i has, as slices.

    Parameters
    ----------
    bounds : ndarray of int64, shape (P + 1,)
        Row boundaries of the chunks.
    others : tuple of int
        Lengths of the dimensions behind the rows, which are not cut.
    """

    produces_tasks = False

    def __init__(self, bounds: NDArray[np.int64], others: tuple[int, ...] = ()) -> None:
        lengths = np.diff(bounds)
        first = np.flatnonzero(np.diff(lengths, prepend=lengths[0] - 1 if len(lengths) else 0))
        self._set(len(lengths), others, first, bounds[first], lengths[first])

    def _set(
        self,
        count: int,
        others: tuple[int, ...],
        chunks: NDArray[np.int64],
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> None:
        self.numblocks = (count, *(1 for _ in others))
        self._others = others
        # Of each run of chunks of one length: its first chunk, that chunk's first row, and the length.
        self._chunks: list[int] = chunks.tolist()
        self._rows: list[int] = rows.tolist()
        self._lengths: list[int] = lengths.tolist()

    def __getitem__(self, idx: tuple[int, ...]) -> tuple[slice, ...]:
        number = idx[0]
        if not 0 <= number < self.numblocks[0]:
            raise KeyError(idx)
        run = bisect_right(self._chunks, number) - 1
        length = self._lengths[run]
        start = self._rows[run] + (number - self._chunks[run]) * length
        return (slice(start, start + length, None), *(slice(0, n, None) for n in self._others))

    def __reduce__(self) -> tuple[Any, ...]:
        packed = tuple(_packed(values) for values in (self._chunks, self._rows, self._lengths))
        return _rebuild, (self.numblocks[0], self._others, *packed)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (
            "colstore_io.ChunkRows",
            self.numblocks,
            self._others,
            self._chunks,
            self._rows,
            self._lengths,
        )


def _packed(values: list[int]) -> tuple[str, bytes]:
    """Return numbers in as few bytes as the largest takes."""
    dtype = np.min_scalar_type(max(values, default=0)).newbyteorder("<")
    return dtype.str, np.array(values, dtype).tobytes()


def _rebuild(count: int, others: tuple[int, ...], *packed: tuple[str, bytes]) -> ChunkRows:
    found = ChunkRows.__new__(ChunkRows)
    chunks, rows, lengths = (np.frombuffer(data, dtype).astype(np.int64) for dtype, data in packed)
    found._set(count, others, chunks, rows, lengths)
    return found


def array_of(lazy: Any, bounds: NDArray[np.int64], name: str) -> da.Array:
    """Return a Dask array of `lazy`, cut along its rows.

    Parameters
    ----------
    lazy : array-like
        Has ``shape``, ``dtype`` and ``__getitem__``, and a small pickle; goes into every task.
    bounds : ndarray of int64, shape (P + 1,)
        Row boundaries of the chunks.
    name : str
        Of the array; the names of tasks begin with it.
    """
    others = tuple(lazy.shape[1:])
    chunks = (tuple(np.diff(bounds).tolist()), *((n,) for n in others))
    meta = np.empty((0,) * len(lazy.shape), lazy.dtype)
    if da.array_expr_enabled():  # those have no layers
        found: da.Array = da.from_array(
            lazy, chunks=chunks, name=name, inline_array=True, asarray=False, meta=meta
        )
        return found
    # As from_array has it: `getter` is what the optimizer looks for to read no more than a slice of a chunk.
    axes = tuple(range(len(lazy.shape)))
    layer = blockwise(
        getter,
        name,
        axes,
        lazy,
        None,
        ChunkRows(bounds, others),
        axes,
        numblocks={},
        _data_producer=True,
        asarray=False,
        lock=False,
    )
    array: da.Array = da.Array(HighLevelGraph.from_collections(name, layer), name, chunks, meta=meta)
    if layer.collection_annotations is not None:
        layer.collection_annotations["chunks"] = None  # for pictures alone; they would travel with the graph
    return array
