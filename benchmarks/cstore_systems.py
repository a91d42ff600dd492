"""colstore_io and the reference, on files of their own, on each other's, and made not to wait for the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from system import Columns, System

__all__ = [
    "Ours",
    "OursFast",
    "OursIndexed",
    "OursSameFile",
    "OursUnsynced",
    "Reference",
    "ReferenceUnsynced",
]


class _Cstore(System):
    """What colstore_io and the reference have in common."""

    suffix = ".cstore"
    module: Any = None

    def write(self, columns: Columns, path: str) -> None:
        self.module.store(dict(columns), path, mode="recreate", show_progress=False).close()

    def write_records(self, records: Iterable[Columns], path: str) -> None:
        with self.module.recreate(path) as writer:
            for record in records:
                writer.write(dict(record))

    def open(self, path: str) -> Any:
        return self.module.open(path)

    def open_many(self, paths: list[str]) -> Any:
        return self.module.open(list(paths))

    def read_all(self, handle: Any) -> Any:
        return handle.dict()

    def read_one(self, handle: Any, name: str) -> Any:
        return handle[name].array()

    def rows(self, handle: Any, key: Any, name: str) -> Any:
        return handle[key, name].array()

    def rows_many(self, handle: Any, key: Any, names: list[str]) -> Any:
        return handle[key, names].dict()

    # The reference has no out=: its fresh results are what ours are compared with.
    def rows_out(self, handle: Any, key: Any, name: str, out: np.ndarray) -> Any:
        return handle[key, name].array()

    def read_all_out(self, handle: Any, out: dict[str, np.ndarray]) -> Any:
        return handle.dict()

    def mean(self, handle: Any, name: str) -> Any:
        return float(handle[name].mean())

    def filter(self, handle: Any, name: str, threshold: float, out: str) -> Any:
        return handle.query(f"{name} > {threshold!r}").select(out).dict()[out]

    def between(self, handle: Any, name: str, low: int, high: int, out: str) -> Any:
        return handle.query(f"{name} >= {low} and {name} < {high}").select(out).dict()[out]

    def compact(self, path: str, out: str) -> None:
        self.module.compact(path, out=out, show_progress=False)


class Ours(_Cstore):
    """colstore_io on files that it wrote."""

    name = "ours"
    imported = "colstore_io"
    xarray_engine = "colstore"

    def __init__(self) -> None:
        import colstore_io

        self.module = colstore_io

    def rows_out(self, handle: Any, key: Any, name: str, out: np.ndarray) -> Any:
        return handle[key, name].array(out=out)

    def read_all_out(self, handle: Any, out: dict[str, np.ndarray]) -> Any:
        return handle.dict(out=out)

    def dask_frame(self, path: str) -> Any:
        from colstore_io.integrations.dask import read_colstore

        return read_colstore(path)

    def xarray_dataset(self, path: str, chunks: Any) -> Any:
        import xarray as xr

        return xr.open_dataset(path, engine="colstore", chunks=chunks)

    # N-D data: what `write_grid` takes, and `open_grid` returns, are Datasets of xarray.

    grid_suffix = ".grid"
    is_durable = True  # unlike what the reference writes by `store`

    def write_grid(self, dataset: Any, path: str, chunks: tuple[int, ...], *, growing: bool = False) -> None:
        import colstore_io.integrations.xarray  # noqa: F401  # registers ds.colstore

        dataset.colstore.to_colstore(path, encoding={"t": {"chunks": chunks}})

    def append_grid(self, dataset: Any, path: str) -> None:
        dataset.colstore.to_colstore(path, append_dim="time")

    def open_grid(self, path: str, chunks: Any) -> Any:
        return self.xarray_dataset(path, chunks)

    # The columns format: what `encode` takes and `read_encoded` returns are Arrow tables.

    encoded_suffix = ".abcd"
    mode = "exact"

    def encode(self, table: Any, **options: Any) -> bytes:
        from colstore_io.formats.columns.encoder import ColumnsEncoder
        from colstore_io.ingest.variable import ingest_columns

        batch = ingest_columns(table)
        encoder = ColumnsEncoder(batch.schema, **options)
        return b"".join([encoder.begin(), *encoder.segment(batch.columns), encoder.finish()])

    def open_encoded(self, data: Any) -> Any:
        return self.module.open(data)

    def read_encoded(self, handle: Any, names: list[str] | None) -> Any:
        return (handle if names is None else handle[names]).arrow()

    def values_encoded(self, handle: Any, name: str) -> np.ndarray:
        """Return a column of an open file as a NumPy array of its own memory."""
        return handle[name].array()

    def open_and_read(self, path: str, name: str) -> np.ndarray:
        with self.module.open(path) as handle:
            return handle[name].array()

    def open_schema(self, path: str) -> Any:
        with self.module.open(path) as handle:
            return handle.schema

    open_dataset = open_schema

    def optimize(self, table: Any) -> Any:
        """Choose the smallest layouts; nothing is written."""
        from colstore_io.formats.columns.encoder import ColumnsEncoder
        from colstore_io.ingest.variable import ingest_columns

        batch = ingest_columns(table)
        ColumnsEncoder(batch.schema, optimize=self.mode).optimize(batch.columns)

    def optimized(self, table: Any) -> bytes:
        """Write with the layouts that `optimize` chooses."""
        return self.encode(table, optimize=self.mode)


class OursFast(Ours):
    """The cheap way to choose layouts of the columns format, on samples."""

    name = "ours_fast"
    write = write_records = compact = open = open_many = None
    encode = open_encoded = read_encoded = values_encoded = open_and_read = open_schema = open_dataset = None
    write_grid = open_grid = append_grid = None
    imported = ""
    xarray_engine = ""
    mode = "fast"

    def optimized(self, table: Any) -> bytes:
        return Ours.encode(self, table, optimize=self.mode)


class OursIndexed(Ours):
    """colstore_io on files that have an index beside them."""

    name = "ours_indexed"
    compact = None
    encode = open_schema = open_dataset = optimize = optimized = None
    write_grid = open_grid = append_grid = None
    imported = ""
    xarray_engine = ""

    def write(self, columns: Columns, path: str) -> None:
        super().write(columns, path)
        self.module.index(path)

    def write_records(self, records: Iterable[Columns], path: str) -> None:
        super().write_records(records, path)
        self.module.index(path)


class OursSameFile(Ours):
    """colstore_io on the files that the reference wrote: reading apart from the writer's page layout."""

    name = "ours_samefile"
    files_of = "colstore"
    write = write_records = compact = None
    encode = open_schema = open_dataset = optimize = optimized = None
    write_grid = open_grid = append_grid = None
    imported = ""
    xarray_engine = ""


class Reference(_Cstore):
    """colstore 0.5.1 with its thread cap raised to all cores."""

    name = "colstore"
    imported = "colstore"

    def __init__(self) -> None:
        import colstore

        colstore.set_gather_thread_cap(len(os.sched_getaffinity(0)))
        self.module = colstore


class _Unsynced(System):
    """A system made not to wait for the disk: it writes, and nothing else."""

    suffix = ".cstore"
    reads = as_shipped = None
    unsynced = True
    system: Any = None

    @contextlib.contextmanager
    def _without_waiting(self) -> Iterator[None]:
        yield

    def write_records(self, records: Iterable[Columns], path: str) -> None:
        with self._without_waiting():
            self.system.write_records(records, path)

    def compact(self, path: str, out: str) -> None:
        with self._without_waiting():
            self.system.compact(path, out)


class OursUnsynced(_Unsynced):
    """colstore_io with durability "process": it writes as most peers do, who leave the rest to the system."""

    name = "ours_unsynced"
    grid_suffix = ".grid"

    def __init__(self) -> None:
        self.system = Ours()

    @contextlib.contextmanager
    def _without_waiting(self) -> Iterator[None]:
        from colstore_io import config

        before = config.get_durability()
        config.set_durability("process")
        try:
            yield
        finally:
            config.set_durability(before)

    def write(self, columns: Columns, path: str) -> None:
        with self._without_waiting():
            self.system.write(columns, path)

    def write_grid(self, dataset: Any, path: str, chunks: tuple[int, ...], *, growing: bool = False) -> None:
        with self._without_waiting():
            self.system.write_grid(dataset, path, chunks, growing=growing)

    def append_grid(self, dataset: Any, path: str) -> None:
        with self._without_waiting():
            self.system.append_grid(dataset, path)

    def open_grid(self, path: str, chunks: Any) -> Any:
        return self.system.open_grid(path, chunks)


class ReferenceUnsynced(_Unsynced):
    """colstore with its syncs taken away; its `store` has none."""

    name = "colstore_unsynced"
    files_of = "colstore"

    def __init__(self) -> None:
        self.system = Reference()

    @contextlib.contextmanager
    def _without_waiting(self) -> Iterator[None]:
        real = os.fsync
        os.fsync = lambda fd: None
        try:
            yield
        finally:
            os.fsync = real
