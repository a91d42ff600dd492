"""N-D Datasets in grid containers: round trips, appends, regions, groups, Dask, bad input."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import colstore_io as cs
import colstore_io.integrations.xarray
from colstore_io.errors import CommitConflictError, FormatError, SchemaMismatchError
from colstore_io.grid import open_container
from colstore_io.integrations._xarray_grid import GridArray

# What is in these tests on purpose, and what xarray has to say about it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:variable .* has data in the form of a dask array"),
    pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks"),
]


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
# Append


@pytest.mark.parametrize("through_dask", [False, True])
def test_append_extends_the_dimension(tmp_path, through_dask):
    ds = climate(9)
    parts = [ds.isel(time=slice(0, 4)), ds.isel(time=slice(4, 5)), ds.isel(time=slice(5, 9))]
    parts[0].colstore.to_colstore(tmp_path / "a", chunks={"time": 3}, unlimited_dims=["time"])
    for part in parts[1:]:
        source = part.chunk({"time": 2, "lon": 3}) if through_dask else part
        source.drop_vars("name").colstore.to_colstore(tmp_path / "a", append_dim="time")
    back = opened(tmp_path / "a")
    assert back.encoding["unlimited_dims"] == {"time"}
    xr.testing.assert_identical(back.load(), ds)


def test_append_keeps_the_encoding_of_the_file(tmp_path):
    ds = climate(4)[["t"]]
    encoding = {
        "time": {"units": "hours since 2000-01-01", "dtype": "i4"},
        "t": {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -999},
    }
    ds.isel(time=slice(0, 2)).colstore.to_colstore(tmp_path / "a", encoding=encoding)
    ds.isel(time=slice(2, 4)).colstore.to_colstore(tmp_path / "a", append_dim="time")
    back = opened(tmp_path / "a", decode_times=False, mask_and_scale=False)
    assert back["time"].dtype == np.dtype("i4")
    assert back["t"].dtype == np.dtype("i2")
    np.testing.assert_allclose(opened(tmp_path / "a")["t"], ds["t"], atol=0.006)
    assert (opened(tmp_path / "a")["time"].values == ds["time"].values).all()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda ds: ds.assign(t=ds["t"].astype("f8")), "'t'"),
        (lambda ds: ds.assign(t=ds["t"].transpose("lat", "time", "lon")), "'t'"),
        (lambda ds: ds.isel(lon=slice(0, 3)), "'t'|'lon'"),
        (lambda ds: ds.assign_coords(lat=ds["lat"] + 1), "'lat'"),
        (lambda ds: ds.assign(extra=("time", np.arange(6))), "'extra'"),
        (lambda ds: ds.drop_vars("p"), "'p'"),
        (lambda ds: ds.assign(name=("lat", np.array(["x"] * 5, object))), "'name'"),
    ],
    ids=["dtype", "dimension order", "shape", "coordinate", "new variable", "left out", "other values"],
)
def test_append_that_does_not_fit_names_the_variable_and_changes_nothing(tmp_path, change, named):
    climate().colstore.to_colstore(tmp_path / "a")
    before = files_of(tmp_path / "a")
    with pytest.raises(SchemaMismatchError, match=named):
        change(climate()).colstore.to_colstore(tmp_path / "a", append_dim="time")
    assert files_of(tmp_path / "a") == before


# ----------------------------------------------------------------------------------------------------------
# Regions


@pytest.mark.parametrize("through_dask", [False, True])
def test_region_replaces_whole_chunks(tmp_path, through_dask):
    ds = climate(8)
    ds.colstore.to_colstore(tmp_path / "a", chunks={"time": 2, "lon": 4})
    part = ds[["t"]].isel(time=slice(2, 8), lon=slice(4, 8)).drop_vars(["time", "lat", "lon"]) * 0 + 7
    (part.chunk({"time": 3}) if through_dask else part).colstore.to_colstore(
        tmp_path / "a", region={"time": slice(2, 8), "lon": slice(4, 8)}
    )
    expected = ds["t"].copy(deep=True)
    expected[2:8, :, 4:8] = 7
    xr.testing.assert_equal(opened(tmp_path / "a")["t"], expected)


def test_region_auto_finds_its_place(tmp_path):
    ds = climate(6)
    ds.colstore.to_colstore(tmp_path / "a", chunks={"time": 2})
    part = (ds[["t"]] * 2).isel(time=slice(2, 4))
    part.colstore.to_colstore(tmp_path / "a", region={"time": "auto"})
    assert (opened(tmp_path / "a")["t"][2:4] == ds["t"][2:4] * 2).all()
    assert (opened(tmp_path / "a")["t"][4:] == ds["t"][4:]).all()


@pytest.mark.parametrize(
    ("region", "size", "named"),
    [
        (slice(1, 3), 2, "cuts chunks of variable 't'.*are 0:4"),
        (slice(6, 10), 4, "outside variable 't'"),
        (slice(0, 4), 3, "variable 't' has 3 indices"),
    ],
)
def test_region_that_does_not_fit_names_the_variable_and_changes_nothing(tmp_path, region, size, named):
    ds = climate(8).drop_vars(["time", "lat", "lon"])
    ds.colstore.to_colstore(tmp_path / "a", chunks={"time": 2})
    before = files_of(tmp_path / "a")
    with pytest.raises(SchemaMismatchError, match=named):
        ds[["t"]].isel(time=slice(0, size)).colstore.to_colstore(tmp_path / "a", region={"time": region})
    assert files_of(tmp_path / "a") == before


# ----------------------------------------------------------------------------------------------------------
# Two writers


def delayed_region(path: Path, ds: xr.Dataset, where: slice, value: float) -> object:
    part = xr.full_like(ds[["t"]].isel(time=where), value).drop_vars(["time", "lat", "lon"])
    return part.chunk().colstore.to_colstore(path, region={"time": where}, compute=False)


def test_writers_of_other_chunks_are_joined(tmp_path):
    ds = climate(6)
    ds.colstore.to_colstore(tmp_path / "a", chunks={"time": 2})
    first = delayed_region(tmp_path / "a", ds, slice(0, 2), 1)
    second = delayed_region(tmp_path / "a", ds, slice(2, 4), 2)
    dask.compute(second)
    dask.compute(first)
    found = opened(tmp_path / "a")["t"]
    assert (found[0:2] == 1).all()
    assert (found[2:4] == 2).all()
    assert (found[4:] == ds["t"][4:]).all()


def test_writers_of_the_same_chunk_conflict(tmp_path):
    ds = climate(6)
    ds.colstore.to_colstore(tmp_path / "a", chunks={"time": 2})
    first = delayed_region(tmp_path / "a", ds, slice(0, 4), 1)
    second = delayed_region(tmp_path / "a", ds, slice(2, 4), 2)
    dask.compute(second)
    with pytest.raises(CommitConflictError, match="variable 't'"):
        dask.compute(first)
    assert (opened(tmp_path / "a")["t"][2:4] == 2).all()


def test_two_appends_conflict(tmp_path):
    climate(4).colstore.to_colstore(tmp_path / "a")
    jobs = [
        climate(2).chunk().colstore.to_colstore(tmp_path / "a", append_dim="time", compute=False)
        for _ in "12"
    ]
    dask.compute(jobs[0])
    with pytest.raises(CommitConflictError):
        dask.compute(jobs[1])
    assert opened(tmp_path / "a").sizes["time"] == 6


def test_many_writers_at_once_lose_nothing(tmp_path):
    ds = climate(8)
    ds.colstore.to_colstore(tmp_path / "a", chunks={"time": 1})
    errors = []

    def write(i: int) -> None:
        try:
            part = xr.full_like(ds[["t"]].isel(time=slice(i, i + 1)), i).drop_vars(["time", "lat", "lon"])
            part.colstore.to_colstore(tmp_path / "a", region={"time": slice(i, i + 1)})
        except Exception as exc:
            errors.append(exc)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (opened(tmp_path / "a")["t"].values == np.arange(8)[:, None, None]).all()


# ----------------------------------------------------------------------------------------------------------
# Dask


def test_nothing_is_visible_before_compute(tmp_path):
    job = climate().chunk({"time": 2}).colstore.to_colstore(tmp_path / "a", compute=False)
    with pytest.raises((FileNotFoundError, ValueError)):
        opened(tmp_path / "a")
    job.compute()
    xr.testing.assert_identical(opened(tmp_path / "a").load(), climate())


def test_compute_false_works_without_dask_arrays(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a", compute=False).compute()
    xr.testing.assert_identical(opened(tmp_path / "a").load(), climate())


def test_task_that_runs_twice_does_no_harm(tmp_path):
    calls = []

    def flaky(block):
        calls.append(1)
        return block

    data = da.ones((4, 4), chunks=(2, 4)).map_blocks(flaky, meta=np.empty((0, 0)))
    job = xr.Dataset({"v": (("x", "y"), data)}).colstore.to_colstore(tmp_path / "a", mode="w", compute=False)
    job.compute()
    job.compute()
    assert (opened(tmp_path / "a")["v"] == 1).all()


@pytest.mark.slow
def test_tasks_run_in_other_processes(tmp_path):
    with dask.config.set(scheduler="processes", num_workers=2):
        climate(4).drop_vars("name").chunk({"time": 2}).colstore.to_colstore(tmp_path / "a")
        back = opened(tmp_path / "a", chunks={})
        xr.testing.assert_identical(back.load(), climate(4).drop_vars("name"))


def test_append_of_undecoded_times_compares_numbers(tmp_path):
    ds = xr.Dataset({"v": ("t", [1, 2])}, {"t": ("t", [0.0, 1.0], {"units": "months since 0000-01-01"})})
    ds.colstore.to_colstore(tmp_path / "a")
    ds.assign_coords(t=ds["t"] + 2).assign_coords(t=("t", [2.0, 3.0], ds["t"].attrs)).colstore.to_colstore(
        tmp_path / "a", append_dim="t"
    )
    back = opened(tmp_path / "a", decode_times=False)
    assert back["t"].values.tolist() == [0, 1, 2, 3]


def test_blocks_that_cut_chunks_are_joined(tmp_path):
    ds = climate(8).chunk({"time": 3, "lon": 3})
    ds.colstore.to_colstore(tmp_path / "a", encoding={"t": {"chunks": (2, 5, 4)}})
    back = opened(tmp_path / "a", chunks={})
    assert back["t"].chunks == ((2, 2, 2, 2), (5,), (4, 4))
    xr.testing.assert_identical(back.load(), climate(8))


def test_dataset_may_be_rewritten_from_itself(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    (opened(tmp_path / "a", chunks={"time": 2}) * 2).colstore.to_colstore(tmp_path / "a")
    xr.testing.assert_equal(opened(tmp_path / "a")["t"], climate()["t"] * 2)


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
# Compaction and vacuum


def test_compaction_merges_files_and_keeps_values(tmp_path):
    ds = climate(8)
    ds.isel(time=slice(0, 4)).chunk({"time": 1}).colstore.to_colstore(tmp_path / "a")
    ds.isel(time=slice(4, 8)).colstore.to_colstore(tmp_path / "a", append_dim="time")
    before = open_container(tmp_path / "a")
    n_before = len(before.group().members)
    early = opened(tmp_path / "a")
    assert cs.compact(tmp_path / "a") == tmp_path / "a"
    assert len(open_container(tmp_path / "a").group().members) < n_before
    after = opened(tmp_path / "a")
    xr.testing.assert_identical(after.load(), ds)
    xr.testing.assert_identical(early.load(), ds)
    assert after["t"].encoding["preferred_chunks"]["time"] == 1


def test_vacuum_removes_what_no_generation_names(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    (climate() * 2).colstore.to_colstore(tmp_path / "a")
    assert cs.vacuum(tmp_path / "a", older_than_seconds=0)
    xr.testing.assert_equal(opened(tmp_path / "a")["t"], climate()["t"] * 2)


# ----------------------------------------------------------------------------------------------------------
# Damage


def change_manifest(path: Path, change) -> None:
    file = path / "_colstore-00000001.json"
    members = json.loads(file.read_text())
    change(members)
    members.pop("crc32")
    members["crc32"] = zlib.crc32(json.dumps(members, sort_keys=True).encode())
    file.write_text(json.dumps(members))


def variables(members: dict) -> dict:
    return members["variables"]["/"]["variables"]


def set_length(members, length):
    members["dims"]["/"]["time"]["length"] = length
    for value in variables(members).values():
        if "time" in value["dims"]:
            value["chunks"][value["dims"].index("time")] = [[length, 1]]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["dims"]["/"]["time"].update(length=-1),
        lambda m: m["dims"]["/"]["time"].update(length=7),
        lambda m: m["dims"]["/"]["time"].update(length=2**80),
        lambda m: m["dims"]["/"].pop("time"),
        lambda m: set_length(m, 2**62),
        lambda m: set_length(m, 600),
        lambda m: variables(m)["t"].update(chunks=[[[-2, -3]], [[5, 1]], [[8, 1]]]),
        lambda m: variables(m)["t"].update(chunks=[[[4, 1], [2, 1]], [[5, 1]], [[8, 1]]]),
        lambda m: variables(m)["t"].update(chunks=[[[6, 1]], [[5, 1]]]),
        lambda m: variables(m)["t"].update(chunks=[[[1, 2**60]], [[5, 1]], [[8, 1]]]),
        lambda m: variables(m)["t"].update(chunks=None),
        lambda m: variables(m)["t"].update(dtype="<f8"),
        lambda m: variables(m)["t"].update(dtype="O"),
        lambda m: variables(m)["t"].update(kind="new"),
        lambda m: variables(m)["t"].update(kind=["plain"]),
        lambda m: variables(m)["t"].update(dims=["time", "time", "lon"]),
        lambda m: variables(m)["t"].update(attrs={"a": {"data": "zz", "dtype": "<f4", "shape": []}}),
        lambda m: [
            f["partition"].update(first=[9] * len(f["partition"].get("first", []))) for f in m["files"]
        ],
        lambda m: [f["layout"].update(begin=10**9) for f in m["files"]],
        lambda m: [f["layout"].update(begin=0) for f in m["files"]],
        lambda m: [f["partition"].update(counts=[2**60]) for f in m["files"]],
        lambda m: [f["layout"].update(columns=[["t", "", 0]]) for f in m["files"]],
        lambda m: [f.update(rows=2**50) for f in m["files"]],
        lambda m: m.update(files=[]),
        lambda m: m.update(dims={}),
        lambda m: m.update(variables={"/": 5}),
    ],
)
def test_manifest_that_contradicts_itself_is_refused(tmp_path, change):
    climate().colstore.to_colstore(tmp_path / "a")
    change_manifest(tmp_path / "a", change)
    with pytest.raises(FormatError):
        opened(tmp_path / "a").load()


def test_error_about_more_rows_than_exist_names_the_variable(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a", chunks={"time": 2})

    def change(m):
        m["dims"]["/"]["time"]["length"] = 8
        for value in variables(m).values():
            if "time" in value["dims"]:
                value["chunks"][value["dims"].index("time")] = [[2, 4]]

    change_manifest(tmp_path / "a", change)
    with pytest.raises(FormatError, match=r"variable 't' has 4 chunks, its files hold 3"):
        opened(tmp_path / "a")


def member_of(path: Path, variable: str) -> Path:
    return path / open_container(path).group().members_of[variable][0].path


@pytest.mark.parametrize(
    "options", [{}, {"mmap": False}, {"backend": "numpy"}], ids=["mapped", "read", "numpy"]
)
def test_torn_member_is_an_error_that_names_the_variable(tmp_path, options):
    climate().drop_vars(["time", "lat", "lon"]).colstore.to_colstore(tmp_path / "a")
    file = member_of(tmp_path / "a", "t")
    os.truncate(file, file.stat().st_size - 100)
    back = opened(tmp_path / "a", **options)
    with pytest.raises(FormatError, match=r"variable 't' needs part-.*was cut short"):
        back["t"].load()
    assert back["one"] == 4.5


def test_member_with_other_contents_is_an_error(tmp_path):
    climate().drop_vars(["time", "lat", "lon"]).colstore.to_colstore(tmp_path / "a")
    file = member_of(tmp_path / "a", "t")
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(FormatError, match="variable 't'"):
        opened(tmp_path / "a")["t"].load()


def test_text_that_is_no_utf8_is_an_error(tmp_path):
    xr.Dataset({"v": ("x", np.array(["abc", "def"], object))}).colstore.to_colstore(tmp_path / "a")
    (text,) = open_container(tmp_path / "a").group().texts.values()
    with open(tmp_path / "a" / text.path, "r+b") as file:
        file.seek(text.begin)
        file.write(b"\xff\xff")
    with pytest.raises(FormatError, match="'v'"):
        opened(tmp_path / "a")["v"].load()


def test_incomplete_manifest_is_passed_over(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    (tmp_path / "a" / "_colstore-00000002.json").write_text('{"colstore_manifest": 1')
    xr.testing.assert_identical(opened(tmp_path / "a").load(), climate())
    (climate() * 2).colstore.to_colstore(tmp_path / "a")
    assert (tmp_path / "a" / "_colstore-00000003.json").exists()
    xr.testing.assert_equal(opened(tmp_path / "a")["t"], climate()["t"] * 2)


def test_member_opens_alone_as_a_table(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    with cs.open(member_of(tmp_path / "a", "t")) as table:
        assert np.asarray(table["t"]).tolist() == climate()["t"].values.reshape(-1).tolist()


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
