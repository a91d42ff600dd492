"""Peers that store tables: NumPy, HDF5, Parquet, Vortex, and plain files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from system import Columns, System

__all__ = [
    "Hdf5",
    "NumpyMemmap",
    "Parquet",
    "ParquetNone",
    "ParquetSnappy",
    "ParquetZstd1",
    "ParquetZstd3",
    "ParquetZstd9",
    "RawFile",
    "Vortex",
]


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
