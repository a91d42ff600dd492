"""The systems that are measured, each behind the same few methods.

A method that a system does not have is ``None``: the workload leaves the system out.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from grid_family import START as GRID_START

Columns = Mapping[str, np.ndarray]


class System:
    """Base: nothing is supported."""

    name = ""
    suffix = ""
    files_of = ""  # whose files it reads, if not its own

    write: Any = None
    write_records: Any = None
    open: Any = None
    open_many: Any = None
    read_all: Any = None
    read_one: Any = None
    rows: Any = None
    rows_many: Any = None
    filter: Any = None
    between: Any = None
    compact: Any = None
    dask_frame: Any = None
    xarray_dataset: Any = None
    rows_out: Any = None
    read_all_out: Any = None
    mean: Any = None
    raw_read: Any = None
    raw_rows: Any = None
    encode: Any = None
    open_encoded: Any = None
    read_encoded: Any = None
    open_schema: Any = None
    open_dataset: Any = None
    optimize: Any = None
    optimized: Any = None
    write_grid: Any = None
    open_grid: Any = None
    append_grid: Any = None
    reads: Any = True  # None: takes part where something is written, and nowhere else
    is_durable = False  # what `write`, `write_grid` and `append_grid` did survives a loss of power
    as_shipped: Any = True  # None: made not to wait for the disk, so it has no part where everybody does
    unsynced: Any = None  # True: the same, and has a part where nobody waits
    grid_suffix = ""  # of the files or folders that `write_grid` makes
    encoded_suffix = ""  # of the files that `encode` makes the bytes of
    imported = ""  # the package that a program imports to use it
    xarray_engine = ""  # the engine that its plug-in adds

    def close(self, handle: Any) -> None:
        if hasattr(handle, "close"):
            handle.close()


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


class NumpyMemmap(System):
    """A directory of .npy files, memory-mapped."""

    name = "numpy_mmap"
    suffix = ".npydir"

    def write(self, columns: Columns, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        for name, values in columns.items():
            np.save(f"{path}/{name}.npy", values)

    def open(self, path: str) -> Any:
        return {
            file.stem: np.load(file, mmap_mode="r").view(np.ndarray)
            for file in sorted(Path(path).glob("*.npy"))
        }

    def read_all(self, handle: Any) -> Any:
        return {name: np.array(values) for name, values in handle.items()}

    def read_one(self, handle: Any, name: str) -> Any:
        return np.array(handle[name])

    def rows(self, handle: Any, key: Any, name: str) -> Any:
        return np.array(handle[name][key]) if isinstance(key, slice) else handle[name][key]

    def rows_many(self, handle: Any, key: Any, names: list[str]) -> Any:
        return {name: self.rows(handle, key, name) for name in names}

    def filter(self, handle: Any, name: str, threshold: float, out: str) -> Any:
        return handle[out][handle[name] > threshold]

    def between(self, handle: Any, name: str, low: int, high: int, out: str) -> Any:
        return handle[out][(handle[name] >= low) & (handle[name] < high)]


class Hdf5(System):
    """Contiguous HDF5 data sets, one for each column, through h5py."""

    name = "h5py"
    suffix = ".h5"

    def __init__(self) -> None:
        import h5py

        self.h5py = h5py

    def write(self, columns: Columns, path: str) -> None:
        with self.h5py.File(path, "w") as file:
            for name, values in columns.items():
                file.create_dataset(name, data=values)

    def open(self, path: str) -> Any:
        return self.h5py.File(path, "r")

    def read_all(self, handle: Any) -> Any:
        return {name: handle[name][:] for name in handle}

    def read_one(self, handle: Any, name: str) -> Any:
        return handle[name][:]

    def rows(self, handle: Any, key: Any, name: str) -> Any:
        if isinstance(key, slice):
            return handle[name][key] if (key.step or 1) > 0 else handle[name][:][key]
        if key.dtype == np.bool_ or len(key) > 100_000:
            return handle[name][:][key]  # its selections by list are slower than reading everything
        ordered, places = np.unique(key, return_inverse=True)
        return handle[name][ordered][places]


class RawFile(System):
    """The bytes of all columns, read into memory that nobody has touched yet: what the device and the system allow."""

    name = "raw"
    suffix = ".rawdir"

    def write(self, columns: Columns, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        with open(f"{path}/data", "wb") as file:
            for values in columns.values():
                file.write(memoryview(values).cast("B"))
        kept = {name: (values.dtype.str, len(values)) for name, values in columns.items()}
        Path(path, "columns.json").write_text(json.dumps(kept))

    def open(self, path: str) -> Any:
        return open(f"{path}/data", "rb", buffering=0), json.loads(Path(path, "columns.json").read_text())

    def close(self, handle: Any) -> None:
        handle[0].close()

    def raw_read(self, handle: Any) -> Any:
        file, columns = handle
        found = {name: np.empty(n, dtype) for name, (dtype, n) in columns.items()}
        for values in found.values():
            view = memoryview(values).cast("B")
            while len(view):
                view = view[file.readinto(view) :]
        return found

    def raw_rows(self, handle: Any, key: slice, names: list[str]) -> Any:
        file, columns = handle
        found, begin = {}, 0
        for name, (dtype, n) in columns.items():
            if name in names:
                found[name] = np.empty(key.stop - key.start, dtype)
                file.seek(begin + key.start * np.dtype(dtype).itemsize)
                view = memoryview(found[name]).cast("B")
                while len(view):
                    view = view[file.readinto(view) :]
            begin += n * np.dtype(dtype).itemsize
        return found


class Parquet(System):
    """Uncompressed Parquet through pyarrow."""

    name = "parquet"
    suffix = ".parquet"

    def __init__(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.dataset as pads
        import pyarrow.parquet as pq

        self.pa, self.pc, self.pads, self.pq = pa, pc, pads, pq

    def write(self, columns: Columns, path: str) -> None:
        self.pq.write_table(self.pa.table(dict(columns)), path, compression="none")

    def open(self, path: str) -> Any:
        return self.pads.dataset(path, format="parquet")

    def open_many(self, paths: list[str]) -> Any:
        return self.pads.dataset(list(paths), format="parquet")

    def read_all(self, handle: Any) -> Any:
        table = handle.to_table()
        return {name: np.array(table.column(name).to_numpy()) for name in table.column_names}

    def read_one(self, handle: Any, name: str) -> Any:
        return np.array(handle.to_table(columns=[name]).column(name).to_numpy())

    def rows(self, handle: Any, key: Any, name: str) -> Any:
        return self.read_one(handle, name)[key]

    def filter(self, handle: Any, name: str, threshold: float, out: str) -> Any:
        return handle.to_table(columns=[out], filter=self.pc.field(name) > threshold).column(out).to_numpy()

    def between(self, handle: Any, name: str, low: int, high: int, out: str) -> Any:
        column = self.pc.field(name)
        return handle.to_table(columns=[out], filter=(column >= low) & (column < high)).column(out).to_numpy()

    def dask_frame(self, path: str) -> Any:
        import dask.dataframe as dd

        return dd.read_parquet(path)


class Vortex(System):
    """Vortex files, whose zone maps let a filter skip what cannot match. Left out where the package is not there."""

    name = "vortex"
    suffix = ".vortex"

    def __init__(self) -> None:
        import pyarrow as pa
        import vortex
        import vortex.expr

        self.pa, self.vortex, self.expr = pa, vortex, vortex.expr

    def write(self, columns: Columns, path: str) -> None:
        self.vortex.io.write(self.pa.table(dict(columns)), path)

    def open(self, path: str) -> Any:
        return self.vortex.open(path)

    def _filtered(self, handle: Any, condition: Any, out: str) -> Any:
        return handle.to_arrow([out], expr=condition).read_all().column(out).to_numpy()

    def filter(self, handle: Any, name: str, threshold: float, out: str) -> Any:
        return self._filtered(handle, self.expr.column(name) > threshold, out)

    def between(self, handle: Any, name: str, low: int, high: int, out: str) -> Any:
        column = self.expr.column(name)
        return self._filtered(handle, self.expr.and_(column >= low, column < high), out)


class ParquetNone(System):
    """Arrow tables as Parquet in memory, and back; subclasses compress."""

    name = "parquet_none"
    codec = "none"
    level: int | None = None
    encoded_suffix = ".parquet"

    def __init__(self) -> None:
        import pyarrow as pa
        import pyarrow.dataset as pads
        import pyarrow.parquet as pq

        self.pa, self.pads, self.pq = pa, pads, pq

    def encode(self, table: Any) -> Any:
        sink = self.pa.BufferOutputStream()
        self.pq.write_table(table, sink, compression=self.codec, compression_level=self.level)
        return memoryview(sink.getvalue())

    def open_encoded(self, data: Any) -> Any:
        return self.pq.ParquetFile(self.pa.BufferReader(data))

    def read_encoded(self, handle: Any, names: list[str] | None) -> Any:
        return handle.read(columns=names)

    def values_encoded(self, handle: Any, name: str) -> np.ndarray:
        return handle.read(columns=[name]).column(0).to_numpy()

    def open_and_read(self, path: str, name: str) -> np.ndarray:
        return self.pq.read_table(path, columns=[name]).column(0).to_numpy()

    def open_schema(self, path: str) -> Any:
        with self.pq.ParquetFile(path) as file:
            return file.schema_arrow

    def open_dataset(self, path: str) -> Any:
        return self.pads.dataset(path, format="parquet").schema


class ParquetSnappy(ParquetNone):
    name, codec = "parquet_snappy", "snappy"


class ParquetZstd1(ParquetNone):
    """The yardstick of the columns format; it has nothing to optimize, and writes instead."""

    name, codec, level = "parquet_zstd1", "zstd", 1

    def optimize(self, table: Any) -> Any:
        self.encode(table)

    def optimized(self, table: Any) -> Any:
        return self.encode(table)


class ParquetZstd3(ParquetNone):
    name, codec, level = "parquet_zstd3", "zstd", 3


class ParquetZstd9(ParquetNone):
    name, codec, level = "parquet_zstd9", "zstd", 9


class Zarr(System):
    """Uncompressed Zarr arrays (format 3), tables in chunks of a million rows; read through xarray."""

    name = "zarr"
    suffix = ".zarr"
    grid_suffix = ".zarr"
    codec: dict[str, Any] = {"compressors": None}  # noqa: RUF012

    def __init__(self) -> None:
        import xarray
        import zarr

        self.xr, self.zarr = xarray, zarr

    def write(self, columns: Columns, path: str) -> None:
        n = len(next(iter(columns.values())))
        self._write(_as_dataset(columns), path, {name: (min(n, 1 << 20),) for name in columns})

    def _write(self, dataset: Any, path: str, chunks: Mapping[str, tuple[int, ...]]) -> None:
        shutil.rmtree(path, ignore_errors=True)
        encoding = {name: {"chunks": own, **self.codec} for name, own in chunks.items()}
        dataset.to_zarr(path, encoding=encoding, zarr_format=3, consolidated=False)

    def xarray_dataset(self, path: str, chunks: Any) -> Any:
        return self.xr.open_zarr(path, chunks=chunks, consolidated=False)

    def write_grid(self, dataset: Any, path: str, chunks: tuple[int, ...], *, growing: bool = False) -> None:
        self._write(dataset, path, {"t": chunks})

    def append_grid(self, dataset: Any, path: str) -> None:
        dataset.to_zarr(path, append_dim="time", consolidated=False)

    def open_grid(self, path: str, chunks: Any) -> Any:
        return self.xarray_dataset(path, chunks)


class ZarrDefault(Zarr):
    """Zarr arrays with the codec that Zarr chooses."""

    name = "zarr_default"
    codec: dict[str, Any] = {}  # noqa: RUF012
    write = None


class _NetCdf(System):
    """netCDF-4 files in the chunks of the others, uncompressed, read through xarray."""

    grid_suffix = ".nc"

    def __init__(self) -> None:
        import xarray

        self.xr = xarray

    def _write(self, dataset: Any, path: str, chunks: Mapping[str, tuple[int, ...]], **options: Any) -> None:
        encoding = {name: {"chunksizes": own} for name, own in chunks.items()}
        dataset.to_netcdf(path, engine=self.name, encoding=encoding, **options)

    def write_grid(self, dataset: Any, path: str, chunks: tuple[int, ...], *, growing: bool = False) -> None:
        self._write(dataset, path, {"t": chunks}, unlimited_dims=["time"] if growing else [])

    def open_grid(self, path: str, chunks: Any) -> Any:
        return self.xr.open_dataset(path, engine=self.name, chunks=chunks)

    def _append(self, file: Any, dataset: Any) -> None:
        """xarray cannot append to netCDF: values are encoded by hand, in the units that it had chosen."""
        time = file.variables["time"]
        units = time.attrs["units"] if hasattr(time, "attrs") else time.units
        step, _, start = units.partition(" since ")
        origin = np.datetime64(start.replace(" ", "T"), "ns")
        end = int((dataset["time"].values[0] - GRID_START) // np.timedelta64(1, "h")) + 1
        time[end - 1 : end] = ((dataset["time"].values - origin) // np.timedelta64(1, step[0])).astype(
            time.dtype
        )
        file.variables["t"][end - 1 : end] = dataset["t"].values


class NetCdf4(_NetCdf):
    name = "netcdf4"

    def __init__(self) -> None:
        super().__init__()
        import netCDF4

        self.netcdf = netCDF4

    def append_grid(self, dataset: Any, path: str) -> None:
        with self.netcdf.Dataset(path, "a") as file:
            self._append(file, dataset)


class H5NetCdf(_NetCdf):
    name = "h5netcdf"
    suffix = ".nc"

    def __init__(self) -> None:
        super().__init__()
        import h5netcdf

        self.h5netcdf = h5netcdf

    def write(self, columns: Columns, path: str) -> None:
        n = len(next(iter(columns.values())))
        self._write(_as_dataset(columns), path, {name: (min(n, 1 << 20),) for name in columns})

    def xarray_dataset(self, path: str, chunks: Any) -> Any:
        return self.open_grid(path, chunks)

    def append_grid(self, dataset: Any, path: str) -> None:
        with self.h5netcdf.File(path, "a") as file:
            file.resize_dimension("time", file.dimensions["time"].size + 1)
            self._append(file, dataset)


class XarrayLimit(System):
    """xarray, and Dask, over what ours stored, all of it in memory: what is left when an engine costs nothing."""

    name = "limit_xarray"
    files_of = "ours"

    def xarray_dataset(self, path: str, chunks: Any) -> Any:
        import xarray as xr
        from xarray_limit import InMemory

        return xr.open_dataset(path, engine=InMemory, chunks=chunks)

    def open_grid(self, path: str, chunks: Any) -> Any:
        return self.xarray_dataset(path, chunks)


def _as_dataset(columns: Columns) -> Any:
    import xarray as xr

    return xr.Dataset({name: ("row", values) for name, values in columns.items()})


SYSTEMS: dict[str, type[System]] = {
    system.name: system
    for system in (
        Ours,
        OursFast,
        OursIndexed,
        OursSameFile,
        OursUnsynced,
        Reference,
        ReferenceUnsynced,
        NumpyMemmap,
        Hdf5,
        RawFile,
        Parquet,
        Vortex,
        ParquetNone,
        ParquetSnappy,
        ParquetZstd1,
        ParquetZstd3,
        ParquetZstd9,
        Zarr,
        ZarrDefault,
        NetCdf4,
        H5NetCdf,
        XarrayLimit,
    )
}
