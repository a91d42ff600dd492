"""Tables for the measurements of Dask: the same rows as `.cstore`, as columns files, and as Parquet."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import colstore_io as cs
from colstore_io.integrations.dask import read_colstore

__all__ = ["CODECS", "FORMATS", "SMALL_FILES", "Frames", "frames", "make"]

SMALL_FILES = 1000
CODECS = ("none", "zstd")
FORMATS = {"cstore": ".cstore", "columns": ".abcd"}

Frames = dict[str, Callable[[], Any]]
"""Ways to make the same Dask frame, by name."""


def make(n: int, parts: int, root: Path, *, small: bool = True) -> pd.DataFrame:
    """Write the data as one file of `parts` records or row groups, as `parts` files, and as many small ones."""
    rng = np.random.default_rng(0)
    data = {
        "a": rng.standard_normal(n),
        "b": rng.standard_normal(n),
        "c": rng.standard_normal(n),
        "i": np.arange(n),
        "k": rng.integers(0, 100, n),
        "f": rng.standard_normal(n, np.float32),
        "j": rng.integers(0, 1000, n).astype("i4"),
        "h": rng.integers(0, 50, n).astype("i2"),
    }
    words = {"x": data["a"], "s": [f"word {k}" for k in data["k"].tolist()]}
    _one_of_each(root, "data", pa.table(data), parts)
    _one_of_each(root, "text", pa.table(words), parts)
    if small:
        few = min(n, 200_000) // SMALL_FILES
        _small_files(root, {name: data[name][: few * SMALL_FILES] for name in ("a", "i")}, few)
    return pd.DataFrame(data)


def _one_of_each(root: Path, name: str, table: pa.Table, parts: int) -> None:
    rows = -(-table.num_rows // parts)
    pieces = [table.slice(first, rows) for first in range(0, table.num_rows, rows)]
    width: dict[str, Any] = {"string_width": {"s": 7}} if "s" in table.column_names else {}
    for kind, statistics in (("stats", True), ("plain", False)):
        with cs.recreate(root / f"{name}-{kind}.cstore", statistics=statistics, **width) as writer:
            for piece in pieces:
                writer.write(piece)
    cs.store(table, root / f"{name}.abcd", mode="recreate", row_group_size=rows).close()
    for codec in CODECS:
        pq.write_table(table, root / f"{name}-{codec}.parquet", compression=codec, row_group_size=rows)
    pq.write_table(
        table, root / f"{name}-bare.parquet", compression="none", row_group_size=rows, write_statistics=False
    )
    for number, piece in enumerate(pieces):
        path = root / f"{name}-bare_files" / f"part.{number:04d}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(piece, path, compression="none", write_statistics=False)
        for codec in CODECS:
            path = root / f"{name}-{codec}_files" / f"part.{number:04d}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(piece, path, compression=codec)
        for kind, suffix in FORMATS.items():
            path = root / f"{name}-{kind}_files" / f"part{number:04d}{suffix}"
            path.parent.mkdir(exist_ok=True)
            options = {"statistics": True, **width} if kind == "cstore" else {}
            cs.store(piece, path, mode="recreate", **options).close()


def _small_files(root: Path, data: dict[str, Any], rows: int) -> None:
    for number in range(SMALL_FILES):
        piece = {name: values[number * rows : (number + 1) * rows] for name, values in data.items()}
        for kind, suffix in FORMATS.items():
            path = root / f"many-{kind}" / f"p{number}{suffix}"
            path.parent.mkdir(exist_ok=True)
            cs.store(piece, path, mode="recreate").close()
        for codec in CODECS:
            path = root / f"many-{codec}" / f"p{number}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(pa.table(piece), path, compression=codec)


def frames(base: str, name: str, *, options: dict[str, Any] | None = None, arrow: Any = "arrow") -> Frames:
    """Return every way to read one of the tables.

    Parameters
    ----------
    base : str
        Directory or URL that holds what `make` wrote.
    name : {"data", "text"}
    options : dict, optional
        Storage options of a URL.
    arrow : str or pyarrow file system
        What read_parquet reads fastest through. A file system takes paths without protocol.
    """
    given = {} if options is None else {"storage_options": options}
    bare = base if isinstance(arrow, str) else base.partition("://")[2]
    found: Frames = {
        "ours": lambda: read_colstore(f"{base}/{name}-stats.cstore", blocksize=None, **given),
        "ours plain": lambda: read_colstore(f"{base}/{name}-plain.cstore", blocksize=None, **given),
        "ours columns": lambda: read_colstore(f"{base}/{name}.abcd", blocksize=None, **given),
    }
    for codec in CODECS:
        found[codec] = lambda codec=codec: dd.read_parquet(  # type: ignore[misc]
            f"{base}/{name}-{codec}.parquet", split_row_groups=True, **given
        )
        found[f"{codec} best"] = lambda codec=codec: dd.read_parquet(  # type: ignore[misc]
            f"{bare}/{name}-{codec}_files", filesystem=arrow, index=False
        )
    return found


def upload(root: Path, fs: Any, bucket: str) -> None:
    """Copy what `make` wrote into a bucket."""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            with path.open("rb") as source, fs.open(f"{bucket}/{path.relative_to(root)}", "wb") as target:
                shutil.copyfileobj(source, target, 8 << 20)
