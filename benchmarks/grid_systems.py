"""Peers that store N-D arrays, read through xarray: Zarr and netCDF, and what xarray itself costs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np
from grid_family import START as GRID_START
from system import Columns, System

__all__ = ["H5NetCdf", "NetCdf4", "XarrayLimit", "Zarr", "ZarrDefault"]


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
