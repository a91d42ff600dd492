"""A small Dataset with variables of every shape, and what tests of grid containers do with it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

import colstore_io.integrations.xarray  # noqa: F401 - registers ds.colstore

__all__ = ["climate", "files_of", "opened"]


def climate(n_times: int = 6) -> xr.Dataset:
    rng = np.random.default_rng(1)
    return xr.Dataset(
        {
            "t": (("time", "lat", "lon"), rng.normal(size=(n_times, 5, 8)).astype("f4"), {"units": "K"}),
            "p": (("time", "lat"), rng.integers(0, 9, (n_times, 5)).astype(">i2")),
            "name": ("lat", np.array(["a", "bb", "", "é", "long name"], object)),
            "one": ((), 4.5),
        },
        {
            "time": pd.date_range("2001-01-01", periods=n_times, freq="6h", unit="s"),
            "lat": np.linspace(-60, 60, 5),
            "lon": np.arange(8.0),
        },
        {"title": "made up", "levels": np.array([1, 2], "i2")},
    )


def opened(path: object, **options: object) -> xr.Dataset:
    return xr.open_dataset(path, engine="colstore", **options)


def files_of(path: Path) -> set[str]:
    return set(os.listdir(path))
