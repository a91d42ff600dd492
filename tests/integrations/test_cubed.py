"""Cubed instead of Dask behind xarray's lazy arrays: results equal NumPy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tables import LAYOUTS, columns, write_files

import colstore_io as cs
import colstore_io.integrations.xarray

cubed = pytest.importorskip("cubed")
pytest.importorskip("cubed_xarray")


def opened(path: Any, folder: Path, **options: Any) -> xr.Dataset:
    """Open with cubed; what it computes on the way goes into a folder of the test."""
    spec = cubed.Spec(work_dir=str(folder / "cubed"), allowed_mem="200MB")
    return xr.open_dataset(
        path,
        engine="colstore",
        chunks=options.pop("chunks", {}),
        chunked_array_type="cubed",
        from_array_kwargs={"spec": spec},
        **options,
    )


@pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks")  # they do, at no cost
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tables(tmp_path, layout):
    data = columns()
    paths = [str(path) for path in write_files(tmp_path, data, LAYOUTS[layout])]
    ds = opened(paths, tmp_path, columns=["x", "i2", "flag", "when"], chunks={"row": 24})
    assert isinstance(ds.x.data, cubed.Array)
    np.testing.assert_array_equal(ds.x.compute(), data["x"])
    np.testing.assert_array_equal(ds.when.compute(), data["when"])
    np.testing.assert_array_equal(
        (ds.x[10:80:3] * 2 + ds.i2[10:80:3]).compute(), data["x"][10:80:3] * 2 + data["i2"][10:80:3]
    )
    assert int(ds.i2.astype("i8").sum()) == int(data["i2"].sum())
    np.testing.assert_allclose(float(ds.x.mean()), data["x"].mean())


def test_stored_chunks_of_encoded_files(tmp_path):
    data = {"x": np.arange(1000.0), "n": np.arange(1000) % 7}
    cs.store(data, tmp_path / "t.abcd")
    ds = opened(tmp_path / "t.abcd", tmp_path)
    np.testing.assert_array_equal((ds.x + ds.n).compute(), data["x"] + data["n"])


def test_grid_containers(tmp_path):
    values = np.random.default_rng(1).normal(size=(12, 5, 8))
    made = xr.Dataset(
        {"t": (("time", "lat", "lon"), values), "p": (("time", "lat"), values[..., 0].astype("f4"))}
    )
    made.colstore.to_colstore(tmp_path / "g", chunks={"time": 4})
    ds = opened(tmp_path / "g", tmp_path)
    assert isinstance(ds.t.data, cubed.Array)
    assert ds.t.chunks == ((4, 4, 4), (5,), (8,))
    np.testing.assert_array_equal(ds.t.compute(), values)
    np.testing.assert_allclose(ds.t.mean("time").compute(), values.mean(0))
    np.testing.assert_array_equal(
        (ds.t.isel(lon=0) - ds.p)[3:9].compute(), (values[..., 0] - values[..., 0].astype("f4"))[3:9]
    )
    assert float(ds.t.max()) == values.max()
