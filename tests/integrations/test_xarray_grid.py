"""N-D Datasets in grid containers: round trips, modes, groups, real data."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from climate import climate, files_of, opened

import colstore_io as cs
import colstore_io.integrations.xarray
from colstore_io.errors import FormatError
from colstore_io.grid import open_container
from colstore_io.integrations._xarray_grid import GridArray

# What is in these tests on purpose, and what xarray has to say about it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:variable .* has data in the form of a dask array"),
    pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks"),
]

# ----------------------------------------------------------------------------------------------------------
# Round trips


def test_dataset_comes_back_identical_and_lazy(tmp_path):
    ds = climate()
    ds.colstore.to_colstore(tmp_path / "a")
    with opened(tmp_path / "a") as back:
        assert isinstance(back["t"].variable._data.array.array, object)
        assert not back["t"].variable._in_memory
        xr.testing.assert_identical(back, ds)
        assert back["p"].dtype == np.dtype("i2")
        assert back["time"].dtype == np.dtype("M8[s]")


def test_path_without_engine_is_recognised(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    xr.testing.assert_identical(xr.open_dataset(tmp_path / "a").load(), climate())


EVERY_KIND = {
    "bool": np.array([[True, False], [False, True]]),
    "complex64": np.array([[1 + 2j, np.nan], [0, -1j]], "c8"),
    "complex128": np.array([[1 + 2j, 0], [0, -1j]]),
    "seconds": np.array([["2001-01-01", "NaT"], ["1960-05-05", "2200-01-01"]], "M8[s]"),
    "nanoseconds": np.array([["2001-01-01T00:00:00.000000001", "NaT"], ["1970", "1971"]], "M8[ns]"),
    "durations": np.array([[1, -5], [0, 10**6]], "m8[ms]"),
    "half": np.array([[1.5, 2], [3, 4]], "f2"),
    "u8": np.array([[0, 2**64 - 1], [1, 2]], "u8"),
    "big": np.array([[1, 2], [3, 4]], ">i4"),
    "fixed": np.array([["a", "bcd"], ["", "é"]]),
    "fixed bytes": np.array([[b"a", b"bcd"], [b"", b"xy"]]),
    "text": np.array([["a\0b\0", "x" * 1000], ["", "\U0010ffff"]], object),
    "text with gaps": np.array([["a", np.nan], [None, "b"]], object),
    "bytes": np.array([[b"\0\xff\0", b""], [b"b", b"c" * 300]], object),
    "bytes with gaps": np.array([[b"\0", np.nan], [None, b""]], object),
}


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("through_dask", [False, True])
def test_every_kind_of_value_comes_back(tmp_path, kind, through_dask):
    ds = xr.Dataset({"v": (("x", "y"), EVERY_KIND[kind])})
    (ds.chunk({"x": 1}) if through_dask else ds).colstore.to_colstore(tmp_path / "a")
    back = opened(tmp_path / "a").load()
    xr.testing.assert_identical(back, ds)
    if EVERY_KIND[kind].dtype != object:
        assert back["v"].dtype == EVERY_KIND[kind].dtype.newbyteorder("=")
    else:
        assert [type(x) for x in back["v"].values.flat] == [type(x) for x in ds["v"].values.flat]


@pytest.mark.parametrize(
    "value",
    [
        "text",
        5,
        2.5,
        True,
        None,
        [1, 2],
        ["a", "b"],
        np.float32(1.5),
        np.int8(3),
        np.array([1.5, np.nan], "f4"),
        np.array(["a", "bc"]),
        np.datetime64("2001-01-01"),
        {"a": 1},
        float("inf"),
    ],
    ids=repr,
)
def test_attributes_keep_their_exact_types(tmp_path, value):
    ds = xr.Dataset({"v": ("x", [1, 2], {"own": value})}, attrs={"whole": value})
    ds.colstore.to_colstore(tmp_path / "a")
    back = opened(tmp_path / "a")
    for found in (back.attrs["whole"], back["v"].attrs["own"]):
        assert type(found) is type(value)
        np.testing.assert_equal(found, value)
        if isinstance(value, (np.generic, np.ndarray)):
            assert found.dtype == value.dtype


def test_attribute_that_has_no_form_names_the_variable_and_writes_nothing(tmp_path):
    ds = xr.Dataset({"v": ("x", [1, 2], {"own": object()})})
    with pytest.raises(TypeError, match="attribute 'own' of variable 'v'"):
        ds.colstore.to_colstore(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_dtype_that_cannot_be_stored_names_the_variable(tmp_path):
    with pytest.raises(TypeError, match="'v'"):
        xr.Dataset({"v": ("x", np.ones(2, "g"))}).colstore.to_colstore(tmp_path / "a")


def test_empty_and_scalar_variables_come_back(tmp_path):
    ds = xr.Dataset(
        {
            "none": (("x", "y"), np.zeros((0, 4), "f4")),
            "scalar": ((), np.datetime64("2001-01-01", "ns")),
            "word": ((), "a word"),
            "nothing": ("x", np.array([], object)),
        }
    )
    ds["nothing"] = ds["nothing"].astype("U1")
    ds.colstore.to_colstore(tmp_path / "a")
    xr.testing.assert_identical(opened(tmp_path / "a").load(), ds)


def test_unlimited_dimensions_are_remembered(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a", unlimited_dims=["time"])
    assert opened(tmp_path / "a").encoding["unlimited_dims"] == {"time"}


def test_chunks_of_the_file_are_the_chunks_of_dask(tmp_path):
    climate(10).colstore.to_colstore(tmp_path / "a", encoding={"t": {"chunks": (4, 5, 3)}})
    back = opened(tmp_path / "a", chunks={})
    assert back["t"].chunks == ((4, 4, 2), (5,), (3, 3, 2))
    xr.testing.assert_identical(back, climate(10))


def test_chunk_lengths_may_differ(tmp_path):
    ds = climate(10).chunk({"time": (3, 1, 6), "lon": (2, 5, 1)})
    ds.colstore.to_colstore(tmp_path / "a")
    back = opened(tmp_path / "a", chunks={})
    assert back["t"].chunks == ((3, 1, 6), (5,), (2, 5, 1))
    xr.testing.assert_identical(back, climate(10))


def test_opening_reads_one_manifest_and_no_data(tmp_path):
    climate().drop_vars(["time", "lat", "lon"]).colstore.to_colstore(tmp_path / "a")
    for name in files_of(tmp_path / "a"):
        if name.startswith("part-"):
            os.unlink(tmp_path / "a" / name)
    back = opened(tmp_path / "a")
    assert back["t"].shape == (6, 5, 8)
    with pytest.raises(FormatError, match=r"variable 't' needs part-.*is not there"):
        back["t"].load()


def test_dataset_pickles_without_its_data(tmp_path):
    ds = xr.Dataset({"v": (("x", "y"), np.zeros((500, 500)))})
    ds.colstore.to_colstore(tmp_path / "a")
    data = pickle.dumps(opened(tmp_path / "a"))
    assert len(data) < 6000
    xr.testing.assert_identical(pickle.loads(data), ds)


def test_rewritten_dataset_is_seen_by_the_next_open_and_not_by_an_earlier_one(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    early = opened(tmp_path / "a")
    (climate() * 2).colstore.to_colstore(tmp_path / "a")
    xr.testing.assert_equal(opened(tmp_path / "a")["t"], climate()["t"] * 2)
    xr.testing.assert_identical(early.load(), climate())


def test_earlier_generation_opens_by_its_manifest(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    climate(3).colstore.to_colstore(tmp_path / "a")
    xr.testing.assert_identical(opened(tmp_path / "a" / "_colstore-00000001.json").load(), climate())


def test_dropped_variables_are_not_opened(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    assert "p" not in opened(tmp_path / "a", drop_variables="p")
    assert list(opened(tmp_path / "a", columns="p").data_vars) == ["p"]


def test_open_mfdataset_joins_containers(tmp_path):
    climate().isel(time=slice(0, 3)).colstore.to_colstore(tmp_path / "a")
    climate().isel(time=slice(3, 6)).colstore.to_colstore(tmp_path / "b")
    with xr.open_mfdataset(
        [tmp_path / "a", tmp_path / "b"],
        engine="colstore",
        data_vars="minimal",
        coords="minimal",
        compat="equals",
    ) as both:
        xr.testing.assert_identical(both.load(), climate())


def test_load_async_reads_the_same(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    back = opened(tmp_path / "a")
    asyncio.run(back.load_async())
    xr.testing.assert_identical(back, climate())


def test_accessor_loads_and_takes_points(tmp_path):
    ds = climate()
    ds.colstore.to_colstore(tmp_path / "a")
    back = opened(tmp_path / "a")
    xr.testing.assert_identical(back.colstore.load(), ds)
    xr.testing.assert_identical(back.isel(time=slice(1, 4)).colstore.load(), ds.isel(time=slice(1, 4)))
    xr.testing.assert_identical(back.colstore.load("t"), ds[["t"]])
    points = {"time": [5, 0, 0], "lat": [1, 1, 4], "lon": [7, 2, 0]}
    expected = ds.isel({dim: ("points", index) for dim, index in points.items()})
    xr.testing.assert_identical(back.colstore.take(**points), expected)
    with pytest.raises(TypeError, match="either"):
        back.colstore.take()


def test_cf_decoding_follows_the_options(tmp_path):
    ds = xr.Dataset({"v": ("x", [1.5, np.nan])})
    encoding = {"v": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}}
    ds.colstore.to_colstore(tmp_path / "a", encoding=encoding)
    xr.testing.assert_identical(opened(tmp_path / "a").load(), ds)
    raw = opened(tmp_path / "a", mask_and_scale=False)
    assert raw["v"].values.tolist() == [3, -1]
    assert raw["v"].attrs["_FillValue"].dtype == np.dtype("i2")
    xr.testing.assert_identical(opened(tmp_path / "a").colstore.load(), ds)


# ----------------------------------------------------------------------------------------------------------
# Modes


def test_mode_w_minus_refuses_what_exists(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a", mode="w-")
    with pytest.raises(FileExistsError):
        climate().colstore.to_colstore(tmp_path / "a", mode="w-")


def test_mode_a_adds_and_replaces_variables(tmp_path):
    ds = climate()
    ds.colstore.to_colstore(tmp_path / "a")
    more = xr.Dataset({"t": ds["t"].astype("f8") * 2, "new": ("lat", np.arange(5))}).drop_vars(
        ["time", "lat", "lon"]
    )
    more.colstore.to_colstore(tmp_path / "a", mode="a")
    back = opened(tmp_path / "a").load()
    xr.testing.assert_equal(back, ds.assign(more))
    assert back["t"].dtype == np.float64


def test_table_is_not_overwritten_by_a_grid(tmp_path):
    cs.append(tmp_path / "a", {"x": np.arange(3)})
    with pytest.raises(FormatError, match="is a table"):
        climate().colstore.to_colstore(tmp_path / "a")


def test_file_is_not_overwritten_by_a_grid(tmp_path):
    (tmp_path / "a").write_text("precious")
    with pytest.raises(NotADirectoryError):
        climate().colstore.to_colstore(tmp_path / "a")


def test_grid_does_not_open_as_a_table_and_takes_no_shard(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    with pytest.raises(FormatError, match="N-D"):
        cs.open(tmp_path / "a")
    with pytest.raises(FormatError, match="N-D"):
        cs.append(tmp_path / "a", {"x": np.arange(3)})


def test_unknown_encoding_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unexpected encoding"):
        climate().colstore.to_colstore(tmp_path / "a", encoding={"t": {"zlib": True}})


# ----------------------------------------------------------------------------------------------------------
# Groups


def test_groups_open_as_a_tree(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    climate(3).colstore.to_colstore(tmp_path / "a", group="model/ocean")
    (climate(3) * 2).colstore.to_colstore(tmp_path / "a", group="/model/air")
    xr.testing.assert_identical(opened(tmp_path / "a").load(), climate())
    xr.testing.assert_identical(opened(tmp_path / "a", group="model/ocean").load(), climate(3))
    groups = xr.open_groups(tmp_path / "a", engine="colstore")
    assert list(groups) == ["/", "/model", "/model/air", "/model/ocean"]
    with pytest.raises(KeyError, match="no group '/else'"):
        opened(tmp_path / "a", group="else")


def test_datatree_opens_and_closes(tmp_path):
    xr.Dataset({"v": ("x", [1, 2])}).colstore.to_colstore(tmp_path / "a")
    xr.Dataset({"w": ("x", [3, 4])}).colstore.to_colstore(tmp_path / "a", group="deep/er")
    with xr.open_datatree(tmp_path / "a", engine="colstore") as tree:
        assert tree["/deep/er/w"].values.tolist() == [3, 4]
    with xr.open_datatree(tmp_path / "a", engine="colstore", group="deep") as tree:
        assert tree["/er/w"].values.tolist() == [3, 4]


def test_rewritten_group_leaves_others_alone(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    climate(3).colstore.to_colstore(tmp_path / "a", group="b")
    climate(2).colstore.to_colstore(tmp_path / "a", group="b", mode="w")
    xr.testing.assert_identical(opened(tmp_path / "a").load(), climate())
    xr.testing.assert_identical(opened(tmp_path / "a", group="b").load(), climate(2))


# ----------------------------------------------------------------------------------------------------------
# Real data


@pytest.mark.parametrize("name", ["coads_climatology.nc", "monthly_navy_winds_1982_1983.nc"])
@pytest.mark.parametrize("through_dask", [False, True])
def test_real_data_come_back_identical(tmp_path, shared, name, through_dask):
    pytest.importorskip("netCDF4")
    path = shared / "data" / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    with xr.open_dataset(path, decode_times="navy" in name, chunks={} if through_dask else None) as ds:
        ds.colstore.to_colstore(tmp_path / "a")
        with opened(tmp_path / "a", decode_times="navy" in name) as back:
            xr.testing.assert_identical(back.load(), ds.load())


def test_repr_says_what_is_read(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    array = GridArray(open_container(tmp_path / "a").variable("t"))
    assert repr(array) == "GridArray('t', dtype=float32, shape=(6, 5, 8))"


def test_climate_example_runs(tmp_path, shared):
    pytest.importorskip("netCDF4")
    source = shared / "data" / "coads_climatology.nc"
    example = Path(__file__).parents[2] / "examples" / "climate.py"
    if not source.exists() or not example.exists():
        pytest.skip("the example or its data are not here")
    done = subprocess.run(
        [sys.executable, example, source, tmp_path], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "converted and identical" in done.stdout
    if "no map" not in done.stdout:
        assert (tmp_path / "sst.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("engine", ["colstore", None])
def test_a_container_may_be_called_like_a_file(tmp_path, engine):
    wanted = climate()
    wanted.colstore.to_colstore(tmp_path / "climate.cstore")
    with xr.open_dataset(tmp_path / "climate.cstore", engine=engine) as back:
        xr.testing.assert_identical(back.load(), wanted)
