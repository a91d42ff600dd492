"""The reference's ``colstore.testing``: reproducible synthetic stores, built on our public calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

import colstore_io

__all__ = ["make_columns", "make_store", "uniform_record_rows", "write_columns"]


def make_columns(
    rows: int,
    cols: int,
    *,
    dtype: str | Sequence[str] = "float64",
    seed: int = 0,
    names: Sequence[str] | None = None,
    rng: np.random.Generator | None = None,
) -> dict[str, NDArray[Any]]:
    """Return `cols` columns of random values, the same for the same arguments."""
    kinds = [np.dtype(name) for name in ([dtype] if isinstance(dtype, str) else dtype)]
    if rows < 0 or cols < 1 or not kinds or any(kind.kind not in "fiu" for kind in kinds):
        raise ValueError("needs rows >= 0, cols >= 1 and dtypes of floats or integers")
    labels = [f"c{i}" for i in range(cols)] if names is None else list(names)
    if len(set(labels)) != cols or len(labels) != cols:
        raise ValueError(f"needs {cols} different names")
    rng = np.random.default_rng(seed) if rng is None else rng
    columns = {}
    for i, label in enumerate(labels):
        kind = kinds[i % len(kinds)]
        if kind.kind == "f":
            columns[label] = rng.standard_normal(rows).astype(kind)
        else:
            limits = np.iinfo(kind)
            columns[label] = rng.integers(limits.min // 2, limits.max // 2, rows, dtype=np.int64).astype(kind)
    return columns


def uniform_record_rows(total: int, records: int) -> list[int]:
    """Split `total` rows evenly; the last record takes the rest."""
    if total < 0 or records < 1:
        raise ValueError("needs total >= 0 and records >= 1")
    each = total // records
    return [each] * (records - 1) + [total - each * (records - 1)]


def write_columns(
    path: str | PathLike[str], columns: Mapping[str, NDArray[Any]], *, records: int | Sequence[int] = 1
) -> Any:
    """Write a file with one record per entry of `records` and return a reader of it."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise ValueError("needs columns, all of one length")
    total = lengths.pop()
    sizes = uniform_record_rows(total, records) if isinstance(records, int) else list(records)
    if sum(sizes) != total or min(sizes, default=0) < 0:
        raise ValueError(f"record sizes {sizes} do not add up to {total} rows")
    with colstore_io.create(path) as writer:
        first = 0
        for size in sizes:
            writer.write({name: values[first : first + size] for name, values in columns.items()})
            first += size
    return colstore_io.open(path)


def make_store(
    path: str | PathLike[str],
    *,
    rows: int,
    cols: int = 1,
    records: int | Sequence[int] = 1,
    dtype: str | Sequence[str] = "float64",
    seed: int = 0,
) -> Any:
    """Write random columns and return a reader of them."""
    return write_columns(path, make_columns(rows, cols, dtype=dtype, seed=seed), records=records)
