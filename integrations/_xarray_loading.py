"""Load many variables with one round of requests: those of tables, and those of grid containers.

A variable that was opened is a chain of xarray's lazy wrappers around a `GridArray`: selections, and functions of CF
decoding that work element by element. Such functions give the same result before and after a selection, so the chain is
taken apart, the parts of all variables are read together, and the functions are applied to what came back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.coding.common import _ElementwiseFunctionArray
from xarray.core import indexing

from ._xarray_column import ColumnArray, Wanted, grouped
from ._xarray_grid import GridArray

__all__ = ["load_columns", "load_grids"]


def load_columns(dataset: xr.Dataset, rows: Any = None) -> dict[Hashable, xr.Variable]:
    """Return those variables that are still in tables, in memory; `rows` selects within the rows of each."""
    loaded = {}
    for group in grouped(_pending(dataset)):
        for name, values in group.read(rows).items():
            variable = dataset.variables[name]
            loaded[name] = xr.Variable(variable.dims, values, variable.attrs, variable.encoding)
    return loaded


def _pending(dataset: xr.Dataset) -> Iterator[Wanted]:
    """Find the variables that are still in their files, each a plain selection of one column."""
    for name, variable in dataset.variables.items():
        if name in dataset.xindexes:
            continue
        data: Any = variable._data
        while isinstance(data, (indexing.MemoryCachedArray, indexing.CopyOnWriteArray)):
            data = data.array
        if (
            type(data) is indexing.LazilyIndexedArray
            and isinstance(data.array, ColumnArray)
            and variable.ndim == 1
        ):
            yield Wanted(name, data.array, data.key.tuple[0])


@dataclass(frozen=True, slots=True)
class _Chain:
    """One variable taken apart: what to read, and what to do with it."""

    array: Any
    key: indexing.ExplicitIndexer
    functions: tuple[Callable[[Any], Any], ...]


def load_grids(dataset: xr.Dataset) -> dict[Hashable, xr.Variable]:
    """Return those variables that are still in grid containers, in memory; the files of all are read together."""
    from colstore_io.grid.jobs import read_jobs

    chains = {}
    for name, variable in dataset.variables.items():
        chain = _chain_of(variable._data)
        if chain is not None and name not in dataset.xindexes:
            chains[name] = chain
    values = read_jobs([chain.array.job(chain.key) for chain in chains.values()])
    loaded = {}
    for (name, chain), found in zip(chains.items(), values, strict=True):
        result: NDArray[Any] = chain.array.finish(found)
        for function in chain.functions:
            result = np.asarray(function(result))
        variable = dataset.variables[name]
        loaded[name] = xr.Variable(variable.dims, result, variable.attrs, variable.encoding)
    return loaded


def _chain_of(data: Any) -> _Chain | None:
    """Take a lazy variable apart; None when it is not one of ours, or selected more than once in a way that matters."""
    functions: list[Callable[[Any], Any]] = []
    key: indexing.ExplicitIndexer | None = None
    while True:
        if isinstance(data, (indexing.MemoryCachedArray, indexing.CopyOnWriteArray)):
            data = data.array
        elif isinstance(data, (indexing.LazilyIndexedArray, indexing.LazilyVectorizedIndexedArray)):
            if key is None or _is_everything(key, data.array.shape):
                key = data.key
            elif not _is_everything(data.key, data.array.shape):
                return None
            data = data.array
        elif isinstance(data, _ElementwiseFunctionArray):
            functions.append(data.func)
            data = data.array
        elif isinstance(data, GridArray) and key is not None:
            return _Chain(data, key, tuple(reversed(functions)))
        else:
            return None


def _is_everything(key: indexing.ExplicitIndexer, shape: tuple[int, ...]) -> bool:
    return all(
        isinstance(k, slice) and k.indices(n) == (0, n, 1) for k, n in zip(key.tuple, shape, strict=True)
    )
