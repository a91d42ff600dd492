"""Tables for tests: the same rows laid out as one record, several records, several files, near and far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np

import colstore_io as cs
from colstore_io.writing.writer import Writer

LAYOUTS: dict[str, list[list[int]]] = {
    "one record": [[97]],
    "uniform records": [[24, 24, 24, 24, 1]],
    "irregular records": [[10, 0, 40, 1, 46]],
    "uniform files": [[33], [33], [31]],
    "irregular files": [[5, 20], [0], [41], [1, 0, 30]],
}
"""Rows of each record of each file; 97 rows in all."""

WAYS = ("mapped", "pread", "numpy kernels", "remote", "bytes")


def columns(n: int = 97, seed: int = 0) -> dict[str, np.ndarray]:
    """Return columns of every storable kind; the first is one byte wide, so that the others are unaligned."""
    rng = np.random.default_rng(seed)
    return {
        "flag": rng.random(n) < 0.5,
        "x": rng.standard_normal(n),
        "i2": rng.integers(-1000, 1000, n).astype("i2"),
        "f4": rng.standard_normal(n).astype("f4"),
        "id": np.arange(n),
        "u1": rng.integers(0, 200, n).astype("u1"),
        "when": np.datetime64("2024-01-01", "us") + rng.integers(0, 10**9, n).astype("m8[us]"),
        "took": rng.integers(0, 10**6, n).astype("m8[ms]"),
        "name": np.array([f"näme{k % 7}" for k in range(n)]),
        "code": np.array([b"ab", b"c", b"def"])[rng.integers(0, 3, n)],
        "long": rng.standard_normal(n).astype("f2"),
    }


def write_files(folder: Path, data: dict[str, np.ndarray], layout: Sequence[Sequence[int]]) -> list[Path]:
    """Write `data` as one file per entry of `layout`, one record per number."""
    first = 0
    paths = []
    for number, records in enumerate(layout):
        path = folder / f"part_{number}.cstore"
        with Writer(path, mode="create") as writer:
            for rows in records:
                writer.write({name: values[first : first + rows] for name, values in data.items()})
                first += rows
        paths.append(path)
    return paths


def open_way(paths: Sequence[Path], way: str) -> Any:
    """Open files in one of `WAYS`; a reader for one file, a dataset for several."""
    options: dict[str, Any] = {"pread": {"mmap": False}, "numpy kernels": {"backend": "numpy"}}.get(way, {})
    sources: list[Any] = [str(path) for path in paths]
    if way == "remote":
        memory = fsspec.filesystem("memory")
        for path in paths:
            memory.pipe_file(f"/tables{path}", path.read_bytes())
        sources = [f"memory://tables{path}" for path in paths]
    elif way == "bytes":
        sources = [path.read_bytes() for path in paths]
    return cs.open(sources[0] if len(sources) == 1 else sources, **options)


Opener = Callable[[Sequence[Path], str], Any]
