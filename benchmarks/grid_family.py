"""The family ``grid``: N-D data through xarray, cut by time and by tile, beside Zarr and netCDF.

Every system stores the same Dataset in the same chunks. What it stored is read back and compared when its file is
made; what a read returns is compared before anything is timed. Reads begin with an open Dataset: `open` and
`open_chunks` are what opening costs. Ours makes durable what it writes, the others leave that to the system. So in
`write` and `append` nobody waits for the disk: ours is `ours_unsynced` there, and `ours`, which waits, stands beside
it. In `write_durable` and `append_durable` everybody waits: the files that the others wrote are synced behind it. All
dirty pages are written back before each sample.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["GOALS", "LAYOUTS", "GridData", "GridWorkload", "durable", "grid_workloads"]

LAYOUTS = ("time", "tile")
POINTS = 10_000
START = np.datetime64("2000-01-01T00", "ns")
HOUR = np.timedelta64(1, "h")

PEERS = ("zarr", "zarr_default", "netcdf4", "h5netcdf")
GOALS = {"open": 3.0, "points": 3.0, "series": 3.0}
"""Times faster than each peer that these should be; the others should be faster at all."""


class GridData:
    """The Dataset of one run, what is picked from it, and its files.

    Parameters
    ----------
    shape : tuple of int
        Steps of time, latitudes, longitudes.
    root : Path
        The folder of the files.
    """

    def __init__(self, shape: tuple[int, int, int], root: Path) -> None:
        self.shape, self.root = shape, root
        self._appended: dict[str, int] = {}

    @cached_property
    def values(self) -> np.ndarray:
        """Waves with a little noise: floats that a codec makes somewhat smaller, as it does with weather."""
        times, lats, lons = (np.arange(n, dtype="f4") for n in self.shape)
        rng = np.random.default_rng(7)
        values = np.empty(self.shape, "f4")
        for k, step in enumerate(times):
            wave = np.sin(lats[:, None] / 20 + step / 50) * np.cos(lons[None, :] / 30 - step / 70)
            values[k] = 280 + 15 * wave + 0.25 * rng.standard_normal(self.shape[1:], "f4")
        return values

    def chunks(self, layout: str) -> tuple[int, int, int]:
        """Return a hundred slabs of time, or a hundred tiles with all of it: 2.6 MB each in the whole grid."""
        times, lats, lons = self.shape
        if layout == "time":
            return max(1, times // 100), lats, lons
        return times, max(1, lats // 10), max(1, lons // 10)

    @cached_property
    def dataset(self) -> Any:
        return self._dataset(0, self.shape[0])

    def _dataset(self, first: int, stop: int) -> Any:
        import xarray as xr

        _, lats, lons = self.shape
        return xr.Dataset(
            {"t": (("time", "lat", "lon"), self.values[np.arange(first, stop) % self.shape[0]])},
            {
                "time": START + np.arange(first, stop) * HOUR,
                "lat": np.linspace(-90, 90, lats),
                "lon": np.linspace(0, 360, lons, endpoint=False),
            },
            {"title": "waves"},
        )

    # ---- what is picked

    @cached_property
    def points(self) -> dict[str, Any]:
        import xarray as xr

        rng = np.random.default_rng(8)
        return {
            name: xr.Variable("point", rng.integers(0, n, POINTS))
            for name, n in zip(("time", "lat", "lon"), self.shape, strict=True)
        }

    @property
    def step(self) -> int:
        return self.shape[0] // 3

    @property
    def place(self) -> tuple[int, int]:
        return self.shape[1] // 3, self.shape[2] // 3

    @property
    def box(self) -> tuple[slice, slice]:
        _, lats, lons = self.shape
        return slice(lats // 4, lats // 4 + max(1, lats // 5)), slice(
            lons // 4, lons // 4 + max(1, lons // 5)
        )

    # ---- files

    def file(self, system: Any, layout: str) -> str:
        """Return the path of the whole Dataset as `system` writes it; it is read back when it is made."""
        path = self.root / f"grid_{system.name}_{'x'.join(map(str, self.shape))}_{layout}{system.grid_suffix}"
        done = path.with_name(path.name + ".done")
        if not done.exists():
            system.write_grid(self.dataset, str(path), self.chunks(layout))
            with system.open_grid(str(path), None) as found:
                assert found.identical(self.dataset) or found.equals(self.dataset), "what was written differs"
            done.touch()
        return str(path)

    def growing_file(self, system: Any, layout: str) -> str:
        """Return the path of a Dataset of its own that `append` makes longer; its first append is read back."""
        path = str(self.root / f"grid_growing_{system.name}_{layout}{system.grid_suffix}")
        if path not in self._appended:
            _remove(path)
            system.write_grid(self.dataset, path, self.chunks(layout), growing=True)
            self._appended[path] = 0
            self.append(system, path)
            with system.open_grid(path, None) as found:
                last = found["t"].isel(time=-1)
                assert found.sizes["time"] == self.shape[0] + 1, "a step was not appended"
                assert np.array_equal(last.values, self.values[0]), "what was appended differs"
                assert last["time"].values == START + self.shape[0] * HOUR, "its time differs"
        return path

    def append(self, system: Any, path: str) -> None:
        """Append one step to a file of `growing_file`."""
        at = self.shape[0] + self._appended[path]
        system.append_grid(self._dataset(at, at + 1), path)
        self._appended[path] += 1

    def scratch(self, name: str) -> str:
        return str(self.root / name)


def _remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


def _cleared(system: Any, data: GridData) -> None:
    _remove(data.scratch("grid_written" + system.grid_suffix))
    os.sync()


def durable(system: Any, path: str, write: Callable[[], None]) -> None:
    """Write to `path`, and make durable what was written, names too, as ours does by itself."""
    begin = time.time_ns() - 20_000_000  # times of files are those of the last tick
    write()
    if system.is_durable:
        return
    folders = [os.path.dirname(path)]
    names = [path]
    for folder, _, files in os.walk(path):
        folders.append(folder)
        names += [os.path.join(folder, name) for name in files]
    for name in [*names, *reversed(folders)]:
        if name in folders or os.stat(name).st_mtime_ns >= begin:
            fd = os.open(name, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


@dataclass(frozen=True)
class GridWorkload:
    """One thing to measure.

    Attributes
    ----------
    source : {"grid", "grid_open", "grid_dask", "grid_growing", "none"}
        What `call` gets: a path, an open Dataset, one of Dask arrays, the path of a file to append to, nothing.
    call : callable (system, source, data) -> result
    want, limit : callable (data) -> result, or None
    prepare : callable (system, data) or None
    needs : str
    """

    source: str
    call: Callable[[Any, Any, GridData], Any]
    want: Callable[[GridData], Any] | None = None
    limit: Callable[[GridData], Any] | None = None
    prepare: Callable[[Any, GridData], Any] | None = None
    needs: str = "open_grid reads"

    @staticmethod
    def read(call: Callable[[Any, GridData], Any], want: Callable[[GridData], Any]) -> GridWorkload:
        return GridWorkload("grid_open", lambda s, ds, d: call(ds["t"], d), want, lambda d: want(d).copy())


def _of_points(data: GridData) -> Any:
    return data.values[tuple(index.values for index in data.points.values())]


def _opened(chunks: Any) -> Callable[[Any, Any, GridData], None]:
    return lambda system, path, data: system.open_grid(path, chunks).close()


def _mean(dataset: Any) -> Any:
    import dask

    with dask.config.set(scheduler="threads", num_workers=len(os.sched_getaffinity(0))):
        return dataset["t"].mean("time").compute().values


def _limit_write(values: Any, data: GridData, durable: bool = False) -> None:
    with open(data.scratch("grid_limit.raw"), "wb", buffering=0) as file:
        file.write(memoryview(values).cast("B"))
        if durable:
            os.fsync(file.fileno())


def grid_workloads() -> Iterator[tuple[str, str, GridWorkload]]:
    """Return name, layout and workload of everything in the family."""
    for layout in LAYOUTS:
        chunks = dict.fromkeys(("time", "lat", "lon"))

        def want_mean(data: GridData, layout: str = layout, chunks: Any = chunks) -> Any:
            return _mean(data.dataset.chunk(dict(zip(chunks, data.chunks(layout), strict=True))))

        def write(system: Any, _: Any, data: GridData, layout: str = layout) -> None:
            path = data.scratch("grid_written" + system.grid_suffix)
            system.write_grid(data.dataset, path, data.chunks(layout))

        def write_durable(system: Any, _: Any, data: GridData, write: Any = write) -> None:
            path = data.scratch("grid_written" + system.grid_suffix)
            durable(system, path, lambda: write(system, _, data))

        found = {
            "open": GridWorkload("grid", _opened(None)),
            "open_chunks": GridWorkload("grid", _opened({})),
            "slice": GridWorkload.read(
                lambda t, d: t.isel(time=d.step).values, lambda d: d.values[d.step]
            ),
            "series": GridWorkload.read(
                lambda t, d: t.isel(lat=d.place[0], lon=d.place[1]).values,
                lambda d: d.values[:, d.place[0], d.place[1]],
            ),
            "box": GridWorkload.read(
                lambda t, d: t.isel(lat=d.box[0], lon=d.box[1]).values, lambda d: d.values[:, *d.box]
            ),
            "points": GridWorkload.read(lambda t, d: t.isel(d.points).values, _of_points),
            "mean": GridWorkload(
                "grid_dask", lambda s, ds, d: _mean(ds), want_mean, lambda d: d.values.mean(0)
            ),
            "write": GridWorkload(
                "none", write, None, lambda d: _limit_write(d.values, d), _cleared, "write_grid"
            ),
            "write_durable": GridWorkload(
                "none", write_durable, None, lambda d: _limit_write(d.values, d, True), _cleared,
                "write_grid as_shipped",
            ),
        }  # fmt: skip
        if layout == "time":
            found["append"] = GridWorkload(
                "grid_growing",
                lambda s, path, d: d.append(s, path),
                None,
                lambda d: _limit_write(d.values[0], d),
                lambda s, d: os.sync(),
                "append_grid",
            )
            found["append_durable"] = GridWorkload(
                "grid_growing",
                lambda s, path, d: durable(s, path, lambda: d.append(s, path)),
                None,
                lambda d: _limit_write(d.values[0], d, True),
                lambda s, d: os.sync(),
                "append_grid as_shipped",
            )
        for name, workload in found.items():
            yield name, layout, workload
