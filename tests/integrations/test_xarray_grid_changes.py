"""Changing grid containers: appends, regions, writers that meet, compaction."""

from __future__ import annotations

import threading
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from climate import climate, files_of, opened

import colstore_io as cs
import colstore_io.integrations.xarray
from colstore_io.errors import CommitConflictError, SchemaMismatchError
from colstore_io.grid import open_container

# What is in these tests on purpose, and what xarray has to say about it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:variable .* has data in the form of a dask array"),
    pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks"),
]

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
# Widths of text, units of time

NARROW = np.array([b"ab", b"c"])
WIDE = np.array([b"abcdef", b"x"])
WIDE_DTYPE_ONLY = np.array([b"yz", b"x"], "S6")


def series(values: np.ndarray) -> xr.Dataset:
    return xr.Dataset({"v": ("t", values)})


HOW_TO_CHANGE = {
    "append": {"append_dim": "t"},
    "region": {"region": {"t": slice(0, 2)}},
    "r+": {"mode": "r+"},
}


@pytest.mark.parametrize("how", HOW_TO_CHANGE)
@pytest.mark.parametrize("kind", ["S", "U"])
@pytest.mark.parametrize("through_dask", [False, True])
def test_longer_text_is_refused_and_never_cut(tmp_path, how, kind, through_dask):
    series(NARROW.astype(f"{kind}2")).colstore.to_colstore(tmp_path / "a")
    before = files_of(tmp_path / "a")
    longer = series(WIDE.astype(f"{kind}6"))
    with pytest.raises(SchemaMismatchError, match=rf"'v' is .{kind}6, the dataset has .{kind}2: longer text"):
        (longer.chunk() if through_dask else longer).colstore.to_colstore(
            tmp_path / "a", **HOW_TO_CHANGE[how]
        )
    assert files_of(tmp_path / "a") == before


@pytest.mark.parametrize("how", HOW_TO_CHANGE)
@pytest.mark.parametrize("kind", ["S", "U"])
def test_wide_text_whose_values_fit_is_written(tmp_path, how, kind):
    series(NARROW.astype(f"{kind}2")).colstore.to_colstore(tmp_path / "a")
    fitting = WIDE_DTYPE_ONLY.astype(f"{kind}6")
    series(fitting).colstore.to_colstore(tmp_path / "a", **HOW_TO_CHANGE[how])
    back = opened(tmp_path / "a")["v"]
    assert back.dtype == f"{kind}2"
    assert back.values[-2:].tolist() == fitting.tolist()


@pytest.mark.parametrize("through_dask", [False, True])
@pytest.mark.parametrize("encoding", [None, {"v": {"dtype": "S1"}}], ids=["fixed", "characters"])
def test_shorter_text_is_padded(tmp_path, through_dask, encoding):
    series(NARROW).colstore.to_colstore(tmp_path / "a", encoding=encoding)
    shorter = series(np.array([b"q", b""]))
    (shorter.chunk() if through_dask else shorter).colstore.to_colstore(tmp_path / "a", append_dim="t")
    back = opened(tmp_path / "a").load()["v"]
    assert back.dtype == "S2"
    assert back.values.tolist() == [b"ab", b"c", b"q", b""]


@pytest.mark.parametrize("through_dask", [False, True])
def test_longer_text_along_a_dimension_of_characters_is_an_error_about_its_width(tmp_path, through_dask):
    series(NARROW).colstore.to_colstore(tmp_path / "a", encoding={"v": {"dtype": "S1"}})
    longer = series(WIDE)
    with pytest.raises(SchemaMismatchError, match=r"'v' is \|S6, the dataset has text of 2 characters"):
        (longer.chunk() if through_dask else longer).colstore.to_colstore(tmp_path / "a", append_dim="t")


def test_text_that_follows_single_characters_is_an_error_about_its_width(tmp_path):
    series(np.array([b"q", b"w"])).colstore.to_colstore(tmp_path / "a")
    with pytest.raises(SchemaMismatchError, match=r"'v' is \|S6, the dataset has \|S1: longer text"):
        series(WIDE).colstore.to_colstore(tmp_path / "a", append_dim="t")


def test_coordinate_that_only_begins_alike_is_not_equal(tmp_path):
    def named(values):
        return xr.Dataset({"v": (("t", "x"), np.zeros((1, 2)))}, {"x": values})

    named(NARROW).colstore.to_colstore(tmp_path / "a")
    with pytest.raises(SchemaMismatchError, match="'x'"):
        named(np.array([b"abcdef", b"c"])).colstore.to_colstore(tmp_path / "a", append_dim="t")


def test_blocks_that_are_wider_than_their_dask_array_says_are_not_cut(tmp_path):
    series(NARROW).colstore.to_colstore(tmp_path / "a")
    lying = da.from_array(NARROW).map_blocks(lambda block: WIDE[: len(block)], dtype="S2", meta=NARROW[:0])
    with pytest.raises(SchemaMismatchError, match=r"'v' is \|S6"):
        series(lying).colstore.to_colstore(tmp_path / "a", append_dim="t")
    assert opened(tmp_path / "a").sizes["t"] == 2


@pytest.mark.parametrize("through_dask", [False, True])
def test_times_that_the_stored_unit_cannot_hold_are_refused(tmp_path, through_dask):
    series(np.array(["2000-01-01"] * 2, "M8[ns]")).colstore.to_colstore(tmp_path / "a")
    late = series(np.array(["9999-01-01", "2000-01-01"], "M8[s]"))
    with pytest.raises(SchemaMismatchError, match=r"'v' is datetime64\[s\].*times would be changed"):
        (late.chunk() if through_dask else late).colstore.to_colstore(tmp_path / "a", append_dim="t")
    assert opened(tmp_path / "a").sizes["t"] == 2


def test_times_in_another_unit_are_joined_if_all_fit(tmp_path):
    series(np.array(["2000-01-01", "NaT"], "M8[s]")).colstore.to_colstore(tmp_path / "a")
    series(np.array(["NaT", "2001-01-01"], "M8[ns]")).colstore.to_colstore(tmp_path / "a", append_dim="t")
    back = opened(tmp_path / "a")["v"]
    assert back.dtype == "M8[s]"
    np.testing.assert_array_equal(back, np.array(["2000-01-01", "NaT", "NaT", "2001-01-01"], "M8[s]"))


# ----------------------------------------------------------------------------------------------------------
# Text that is missing everywhere


@pytest.mark.parametrize("stored", [["a", "b"], [b"a", b"b"]], ids=["text", "bytes"])
@pytest.mark.parametrize(
    "values",
    [np.array([None, None], object), np.array([np.nan, None], object), np.array([np.nan, np.nan])],
    ids=["None", "objects", "floats"],
)
def test_part_that_is_all_missing_follows_text(tmp_path, stored, values):
    series(np.array(stored, object)).colstore.to_colstore(tmp_path / "a")
    series(values).colstore.to_colstore(tmp_path / "a", append_dim="t")
    found = opened(tmp_path / "a")["v"].values.tolist()
    assert found[:2] == stored
    np.testing.assert_equal(found[2:], values.tolist())


def test_dask_part_that_is_all_missing_follows_text(tmp_path):
    series(np.array(["a", "b"], object)).colstore.to_colstore(tmp_path / "a")
    series(np.array([None, None], object)).chunk().colstore.to_colstore(tmp_path / "a", append_dim="t")
    assert opened(tmp_path / "a")["v"].values.tolist() == ["a", "b", None, None]


def test_numbers_do_not_follow_text(tmp_path):
    series(np.array(["a", "b"], object)).colstore.to_colstore(tmp_path / "a")
    with pytest.raises(SchemaMismatchError, match="'v' is float64, the dataset has text"):
        series(np.array([np.nan, 1])).colstore.to_colstore(tmp_path / "a", append_dim="t")


def test_new_variable_that_is_all_missing_is_text_if_somebody_says_so(tmp_path):
    ds = series(np.array([None, None], object))
    ds.colstore.to_colstore(tmp_path / "floats")
    assert opened(tmp_path / "floats")["v"].dtype == np.float64
    ds.colstore.to_colstore(tmp_path / "text", encoding={"v": {"dtype": str}})
    assert opened(tmp_path / "text")["v"].values.tolist() == [None, None]


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
        (slice(0, 8, 2), 4, "region 0:8:2 along 'time' of variable '.*' has a step"),
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
    assert set(after["t"].encoding["preferred_chunks"]["time"]) == {1}


def test_vacuum_removes_what_no_generation_names(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    (climate() * 2).colstore.to_colstore(tmp_path / "a")
    assert cs.vacuum(tmp_path / "a", older_than_seconds=0)
    xr.testing.assert_equal(opened(tmp_path / "a")["t"], climate()["t"] * 2)
