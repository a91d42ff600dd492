"""Grid containers as references for fsspec's ``reference`` file system: equal to what our own engine opens."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from zarr_views import about, assert_same, open_references, read_by_hand

import colstore_io as cs
import colstore_io.integrations.xarray
from colstore_io.errors import FormatError
from colstore_io.integrations.zarr import check_references, kerchunk_references

pytestmark = pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks")


def ours(path: object, **options: object) -> xr.Dataset:
    return xr.open_dataset(path, engine="colstore", **options)


def climate(n_times: int = 6) -> xr.Dataset:
    rng = np.random.default_rng(1)
    return xr.Dataset(
        {
            "t": (("time", "lat", "lon"), rng.normal(size=(n_times, 5, 8)).astype("f4"), {"units": "K"}),
            "p": (("time", "lat"), rng.integers(0, 9, (n_times, 5)).astype(">i2")),
            "flag": ("lon", np.arange(8) % 2 == 0),
            "took": ("lat", np.arange(5).astype("m8[s]")),
            "one": ((), 4.5),
            "none": (("lat", "empty"), np.zeros((5, 0))),
        },
        {
            "time": pd.date_range("2001-01-01", periods=n_times, freq="6h", unit="s"),
            "lat": np.linspace(-60, 60, 5),
            "lon": np.arange(8.0),
            "aux": ("lat", np.arange(5)),
        },
        {"title": "made up", "levels": np.array([1, 2], "i2")},
    )


def chunks_of(refs: dict, name: str) -> list[int]:
    return json.loads(refs["refs"][f"{name}/.zarray"])["chunks"]


def stored(folder: Path, ds: xr.Dataset, **options: object) -> Path:
    ds.colstore.to_colstore(folder / "g", **options)
    return folder / "g"


# ----------------------------------------------------------------------------------------------------------
# Equal to our own engine


@pytest.mark.parametrize(
    "chunks", [{}, {"time": 2}, {"time": 4}, {"time": 1, "lat": 1, "lon": 1}, {"lat": 3, "lon": 5}]
)
def test_container_opens_equal(tmp_path, chunks):
    path = stored(tmp_path, climate(), chunks=chunks)
    refs = kerchunk_references(path)
    view = open_references(json.loads(json.dumps(refs)))
    assert set(view.coords) == {"time", "lat", "lon", "aux"}
    assert_same(view, ours(path))
    for name in view.variables:
        assert read_by_hand(refs, name).shape == view[name].shape


def test_stored_chunks_are_the_chunks_of_the_view(tmp_path):
    path = stored(tmp_path, climate(), encoding={"t": {"chunks": (2, 5, 4)}})
    refs = kerchunk_references(path)
    assert chunks_of(refs, "t") == [2, 5, 4]
    assert isinstance(refs["refs"]["t/1.0.1"], list)
    assert chunks_of(refs, "one") == []
    assert isinstance(refs["refs"]["one/0"], list)


def test_manifest_names_a_generation(tmp_path):
    path = stored(tmp_path, climate())
    climate(3).colstore.to_colstore(path)
    first = path / "_colstore-00000001.json"
    assert_same(open_references(kerchunk_references(first)), climate())
    assert_same(open_references(kerchunk_references(path)), climate(3))


def test_later_member_wins_for_each_chunk(tmp_path):
    path = stored(tmp_path, climate(), chunks={"time": 2})
    part = climate().isel(time=slice(2, 4)).drop_vars(["lat", "lon", "aux", "one", "took", "flag", "none"])
    (part * 2).colstore.to_colstore(path, region={"time": slice(2, 4)})
    view = open_references(kerchunk_references(path))
    np.testing.assert_array_equal(view.t[2:4], climate().t[2:4] * 2)
    assert_same(view, ours(path))


def test_appended_chunks_of_other_lengths_are_cut_to_what_they_have_in_common(tmp_path):
    path = stored(tmp_path, climate(6).drop_vars("none"), chunks={"time": 6})
    for _ in range(2):
        climate(4).drop_vars("none").colstore.to_colstore(path, append_dim="time")
    refs = kerchunk_references(path)
    assert chunks_of(refs, "t") == [2, 5, 8]
    assert_same(open_references(refs), ours(path))


def test_uneven_end_is_read_past_its_end_or_copied(tmp_path):
    ds = xr.Dataset({"a": ("x", np.arange(10.0)), "b": ("x", np.arange(10.0) * 3)})
    path = stored(tmp_path, ds, chunks={"x": 4})
    refs = kerchunk_references(path)
    assert chunks_of(refs, "a") == [4]
    assert isinstance(refs["refs"]["a/2"], list)
    assert refs["refs"]["b/2"].startswith("base64:")
    assert_same(open_references(refs), ours(path))


def test_groups_become_groups(tmp_path):
    path = stored(tmp_path, climate())
    ocean = climate() + 1
    ocean.colstore.to_colstore(path, group="model/ocean", mode="a")
    refs = kerchunk_references(path)
    assert_same(open_references(refs, group="model/ocean"), ours(path, group="model/ocean"))
    tree = xr.open_datatree("reference://", engine="zarr", backend_kwargs={"storage_options": {"fo": refs}})
    assert {node.path for node in tree.subtree} == {"/", "/model", "/model/ocean"}
    alone = kerchunk_references(path, group="model/ocean")
    assert_same(open_references(alone), ocean)
    with pytest.raises(KeyError, match="no group '/model/land'"):
        kerchunk_references(path, group="model/land")


def test_cf_encoding_is_decoded_alike(tmp_path):
    ds = climate().drop_vars("none")
    ds["t"][0, 0, 0] = np.nan
    encoding = {
        "t": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 0.5, "_FillValue": -99},
        "time": {"units": "hours since 2000-01-01", "dtype": "i4", "calendar": "standard"},
    }
    path = stored(tmp_path, ds, encoding=encoding)
    view = open_references(kerchunk_references(path))
    assert view.t.encoding["_FillValue"] == -99
    assert_same(view, ours(path))


def test_float32_packing_is_unpacked_as_float64(tmp_path):
    """What JSON makes of a number: equal to within rounding, and not of the same dtype."""
    encoding = {
        "dtype": "i2",
        "scale_factor": np.float32(0.01),
        "add_offset": np.float32(0.5),
        "_FillValue": -99,
    }
    path = stored(tmp_path, climate()[["t"]], encoding={"t": encoding})
    view = open_references(kerchunk_references(path))
    assert (view.t.dtype, ours(path).t.dtype) == ("f8", "f4")
    np.testing.assert_allclose(view.t, ours(path).t, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["coads_climatology.nc", "monthly_navy_winds_1982_1983.nc"])
def test_real_data_open_equal(tmp_path, shared, name):
    pytest.importorskip("netCDF4")
    source = shared / "data" / name
    if not source.exists():
        pytest.skip(f"{name} is not here")
    with xr.open_dataset(source, decode_times="navy" in name) as ds:
        path = stored(tmp_path, ds)
    view = open_references(kerchunk_references(path), decode_times="navy" in name)
    assert_same(view, ours(path, decode_times="navy" in name))


kinds = st.sampled_from(["u1", "<i2", "f4", "f8", "?", "M8[s]", "m8[ms]"]).map(np.dtype)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7),
    dtype=kinds,
    data=st.data(),
)
def test_any_grid_opens_equal(tmp_path_factory, shape, dtype, data):
    path = tmp_path_factory.mktemp("grid") / "g"
    dims = ("x", "y", "z")[: len(shape)]
    lengths = [
        data.draw(
            st.lists(st.integers(1, max(n, 1)), min_size=1, max_size=4).filter(lambda c, n=n: sum(c) >= n)
            if d == 0
            else st.integers(1, max(n, 1)).map(lambda c: [c])
        )
        for d, n in enumerate(shape)
    ]
    count = int(np.prod(shape))
    values = np.random.default_rng(3).integers(0, 2, count).astype(dtype).reshape(shape)
    ds = xr.Dataset({"v": (dims, values), "w": (dims, values)})
    chunks = {dim: _fill(own, n) for dim, own, n in zip(dims, lengths, shape, strict=True)}
    ds.colstore.to_colstore(path, chunks=chunks)
    refs = kerchunk_references(path)
    for name in ("v", "w"):
        assert read_by_hand(refs, name).tobytes() == np.ascontiguousarray(values).tobytes()
    assert_same(open_references(refs), ds)


def _fill(lengths: list[int], n: int) -> object:
    """Return chunk lengths that add up to `n`, or the one that all have."""
    if len(lengths) == 1:
        return lengths[0]
    found, left = [], n
    for length in lengths:
        found.append(min(length, left))
        left -= found[-1]
    return tuple(length for length in found if length) or 1


# ----------------------------------------------------------------------------------------------------------
# What cannot be said


def test_what_zarr_has_no_layout_for_is_left_out_and_named(tmp_path):
    ds = climate().assign(
        name=("lat", np.array(["a", "bb", "", "é", "long"], object)),
        raw=("lat", np.array([b"a", b"", b"c", b"d", b"e"], object)),
        z=("lat", np.arange(5) + 1j),
        fixed=("lat", np.array(["a", "b", "c", "d", "ef"])),
    )
    path = stored(tmp_path, ds)
    with pytest.warns(UserWarning, match="left out") as caught:
        refs = kerchunk_references(path)
    skipped = about(refs)["skipped"]
    assert set(skipped) == {"name", "raw", "z", "fixed"}
    assert all("engine='colstore'" in skipped[name] for name in ("name", "raw", "z"))
    assert all(name in str(caught[0].message) for name in skipped)
    assert_same(open_references(refs), climate())
    for name in ("name", "raw", "z"):
        with pytest.raises(
            ValueError, match=f"variable '{name}' cannot be shown as a Zarr array: .*engine='colstore'"
        ):
            kerchunk_references(path, columns=["t", name])
    view = open_references(kerchunk_references(path, columns=["fixed", "t"]))
    assert_same(view, ours(path, columns=["fixed", "t"]).drop_vars(["time", "lon", "lat", "aux"]))
    with pytest.raises(KeyError, match="no variable 'nothing'"):
        kerchunk_references(path, columns=["nothing"])


def test_irregular_chunks_behind_the_leading_dimension_are_named(tmp_path):
    ds = xr.Dataset({"v": (("x", "y"), np.arange(40.0).reshape(4, 10))})
    path = stored(tmp_path, ds, chunks={"x": 2, "y": (3, 4, 3)})
    with pytest.warns(
        UserWarning, match="v: its chunks along 'y' are of different lengths.*engine='colstore'"
    ):
        refs = kerchunk_references(path)
    assert "v/.zarray" not in refs["refs"]


def test_copies_of_edges_have_a_limit(tmp_path):
    ds = xr.Dataset({"v": (("x", "y"), np.arange(40.0).reshape(4, 10))})
    path = stored(tmp_path, ds, chunks={"x": 2, "y": 4})
    with pytest.warns(UserWarning, match="v: some of its chunks at the edges.*copies of 128 bytes"):
        kerchunk_references(path, inline_bytes=100)
    refs = kerchunk_references(path)
    assert refs["refs"]["v/0.2"].startswith("base64:")
    assert isinstance(refs["refs"]["v/0.1"], list)
    assert_same(open_references(refs), ds)


# ----------------------------------------------------------------------------------------------------------
# Files


def test_missing_and_shortened_members_are_named_with_their_variable(tmp_path):
    path = stored(tmp_path, climate()[["t"]].drop_vars(["time", "lat", "lon", "aux"]))
    (member,) = [name for name in os.listdir(path) if name.endswith(".cstore")]
    refs = kerchunk_references(path)
    check_references(refs)
    data = (path / member).read_bytes()
    (path / member).write_bytes(data[:-8])
    with pytest.raises(FormatError, match=f"variable 't' needs {member}, which was cut short"):
        kerchunk_references(path)
    (path / member).unlink()
    with pytest.raises(FormatError, match=f"variable 't' needs {member}, which is not there"):
        kerchunk_references(path)
    with pytest.raises(FileNotFoundError):
        check_references(refs)


def test_directory_of_tables_is_a_table(tmp_path):
    cs.store({"x": np.arange(5)}, tmp_path / "a.cstore")
    assert_same(open_references(kerchunk_references(tmp_path)), ours(tmp_path))


def test_columns_of_a_compacted_container(tmp_path):
    path = stored(tmp_path, climate(), chunks={"time": 2})
    cs.compact(path)
    assert_same(open_references(kerchunk_references(path)), climate())


def test_hostile_manifests_cost_no_memory(tmp_path):
    """Lengths that a small manifest can claim without a value behind them."""
    path = stored(tmp_path, xr.Dataset({"v": (("x", "y"), np.zeros((0, 3)))}))
    manifest = path / "_colstore-00000001.json"
    found = json.loads(manifest.read_text())
    found["dims"]["/"]["y"]["length"] = 10**15
    found["variables"]["/"]["variables"]["v"]["chunks"][1] = [[1, 10**15]]
    for entry in found["files"]:
        entry["layout"]["chunks"][1] = [[1, 10**15]]
        entry["partition"]["counts"][1] = 10**15
    del found["crc32"]
    found["crc32"] = zlib.crc32(json.dumps(found, sort_keys=True).encode())
    manifest.write_text(json.dumps(found))
    refs = kerchunk_references(path)
    assert json.loads(refs["refs"]["v/.zarray"])["shape"] == [0, 10**15]


def test_a_million_chunks_have_a_limit(tmp_path, monkeypatch):
    from colstore_io.integrations import _zarr_grids, _zarr_model

    path = stored(tmp_path, climate()[["t", "one"]], chunks={"time": 1, "lat": 1, "lon": 1})
    monkeypatch.setattr(_zarr_grids, "MAX_CHUNKS", 100)
    with pytest.warns(UserWarning, match="t: it would have 240 chunks, more than 100"):
        kerchunk_references(path)
    monkeypatch.undo()
    monkeypatch.setattr(_zarr_model, "MAX_CHUNKS", 100)
    with pytest.raises(ValueError, match=r"this would be 2\d\d chunks, more than 100"):
        kerchunk_references(path)
