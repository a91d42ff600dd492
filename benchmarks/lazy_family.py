"""Tables through Dask and through xarray."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from bench import Bench
from system import System
from workload import Family

__all__ = ["WORKLOADS"]

WORKLOADS = Family()


def _threads(call: Callable[[], Any]) -> Any:
    import dask

    with dask.config.set(scheduler="threads", num_workers=len(os.sched_getaffinity(0))):
        return call()


def _add_dask(name: str, call: Callable[[Any, Bench], Any], want: Any, limit: Any) -> None:
    WORKLOADS.add(
        "dask_" + name,
        "dask",
        "dask_frame",
        "path",
        lambda s, path, b: _threads(lambda: call(s.dask_frame(path), b)),
        want,
        limit,
    )


_add_dask(
    "mean",
    lambda df, b: float(df["a"].mean().compute()),
    lambda b: float(b.columns["a"].mean()),
    lambda b: b.columns["a"].mean(),
)
_add_dask(
    "filter_mean",
    lambda df, b: float(df[df["p"] > b.threshold]["a"].mean().compute()),
    lambda b: float(b.columns["a"][b.columns["p"] > b.threshold].mean()),
    lambda b: b.columns["a"][b.columns["p"] > b.threshold].mean(),
)
_add_dask(
    "groupby",
    lambda df, b: df.groupby("cat")["q"].sum().compute().sort_index().to_numpy().astype("i8"),
    lambda b: np.bincount(b.columns["cat"], b.columns["q"]).astype("i8"),
    lambda b: np.bincount(b.columns["cat"], b.columns["q"]),
)
_add_dask(
    "compute",
    lambda df, b: {c: v.to_numpy() for c, v in df.compute().items()},
    lambda b: b.columns,
    lambda b: [v.copy() for v in b.columns.values()],
)


def _add_xarray(
    name: str,
    call: Callable[[Any, Bench], Any],
    want: Any,
    limit: Any = None,
    chunks: Any = None,
    **goals: float,
) -> None:
    def run(system: System, path: str, bench: Bench) -> Any:
        with system.xarray_dataset(path, chunks) as dataset:
            return _threads(lambda: call(dataset, bench))

    WORKLOADS.add("xarray_" + name, "xarray", "xarray_dataset", "path", run, want, limit, goals=goals)


_add_xarray("open", lambda ds, b: None, None, zarr=2.5)
_add_xarray("open_chunks", lambda ds, b: None, None, None, {}, zarr=3.0)
_add_xarray(
    "slice",
    lambda ds, b: ds["a"].isel(row=slice(b.low, b.high)).values,
    lambda b: b.columns["a"][b.low : b.high],
    lambda b: b.columns["a"][b.low : b.high].copy(),
    zarr=3.0,
)
_add_xarray(
    "point",
    lambda ds, b: float(ds["a"].isel(row=b.low).values),
    lambda b: float(b.columns["a"][b.low]),
    zarr=4.0,
)
_add_xarray(
    "points",
    lambda ds, b: ds["a"].isel(row=b.many_points).values,
    lambda b: b.columns["a"][b.many_points],
    lambda b: b.columns["a"][b.many_points],
    zarr=7.0,
    h5netcdf=100.0,
)
_add_xarray(
    "mean",
    lambda ds, b: float(ds["a"].mean().compute()),
    lambda b: float(b.columns["a"].mean()),
    lambda b: b.columns["a"].mean(),
    {},
    zarr=1.8,
)
