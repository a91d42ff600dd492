"""What `to_colstore` says to arguments and variables that it cannot use."""

from __future__ import annotations

import decimal

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from climate import climate, files_of, opened

from colstore_io.integrations._xarray_arguments import check_chunk


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"chunks": 5}, TypeError, "chunks must be a mapping of dimensions.*got 5"),
        ({"chunks": {"foo": 3}}, ValueError, r"chunks names 'foo'.*\['time', 'lat', 'lon'\]"),
        ({"chunks": {"time": "a"}}, TypeError, r"chunks\['time'\] must be a number.*got 'a'"),
        ({"chunks": {"time": None}}, TypeError, r"chunks\['time'\] must be"),
        ({"chunks": {"time": True}}, TypeError, r"chunks\['time'\] must be"),
        ({"chunks": {"time": 0}}, ValueError, r"chunks\['time'\] must be at least 1, got 0"),
        ({"chunks": {"time": (4, -1)}}, ValueError, r"chunks\['time'\] holds a negative length"),
        ({"encoding": [1]}, TypeError, r"encoding must be a mapping of variables.*got \[1\]"),
        ({"encoding": {"t": 5}}, ValueError, r"encoding\['t'\] must be castable to a dictionary.*got 5"),
        ({"encoding": {"foo": {}}}, KeyError, "encoding names 'foo'.*'t'"),
        (
            {"encoding": {"t": {"chunks": "x"}}},
            TypeError,
            r"encoding\['t'\]\['chunks'\] must be a tuple.*'lat'",
        ),
        ({"encoding": {"t": {"chunks": 5}}}, TypeError, r"encoding\['t'\]\['chunks'\] must be a tuple"),
        (
            {"encoding": {"t": {"chunksizes": (1.5, 1, 1)}}},
            TypeError,
            r"encoding\['t'\]\['chunksizes'\]\[0\] must be.*1\.5",
        ),
        ({"encoding": {"t": {"chunks": {"foo": 1}}}}, ValueError, r"\['chunks'\] names 'foo'.*'lat'"),
        ({"encoding": {"t": {"chunks": (1, 1)}}}, ValueError, "'t'.*3 dimensions"),
        (
            {"append_dim": ["time"]},
            TypeError,
            r"append_dim must be the name of one dimension, got \['time'\]",
        ),
        ({"append_dim": "foo"}, ValueError, "append_dim='foo' is no dimension"),
        ({"group": 3}, TypeError, "group must be a path such as 'model/ocean', got 3"),
        ({"group": 0}, TypeError, "group must be a path"),
        (
            {"region": {"time": slice("a", "b")}},
            TypeError,
            "region of 'time' must be a slice between two indices",
        ),
        ({"region": {"time": [1]}}, TypeError, "region of 'time' must be a slice or 'auto'"),
        ({"region": {"time": "auto"}}, ValueError, "'time' needs a coordinate of this name"),
    ],
    ids=str,
)
def test_wrong_argument_is_named_and_nothing_is_written(tmp_path, options, error, message):
    ds = climate().drop_vars(["time", "lat", "lon"])
    ds.colstore.to_colstore(tmp_path / "a")
    before = files_of(tmp_path / "a")
    with pytest.raises(error, match=message):
        ds.colstore.to_colstore(tmp_path / "a", **options)
    assert files_of(tmp_path / "a") == before


def test_group_of_a_wrong_type_is_named_when_reading(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    with pytest.raises(TypeError, match="group must be a path"):
        opened(tmp_path / "a", group=3)


@pytest.mark.parametrize("chunk", [1, -1, np.int64(7), (3, 3), [2, 4], np.array([6]), (6, 0), ()], ids=repr)
def test_chunks_that_can_be_are_taken(chunk):
    check_chunk(chunk, "chunks")


@pytest.mark.parametrize(
    "chunks",
    [{"lat": 2}, (2, 5, 4), [2, -1, (4, 4)], np.array([2, 5, 4])],
    ids=["mapping", "tuple", "list", "array"],
)
def test_every_form_of_chunks_in_encoding_is_taken(tmp_path, chunks):
    climate().colstore.to_colstore(tmp_path / "a", encoding={"t": {"chunks": chunks}})
    xr.testing.assert_identical(opened(tmp_path / "a").load(), climate())


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, {}, "a"], object),
        np.array(["a", 1], object),
        np.array(["a", b"b"], object),
        np.array([decimal.Decimal(1)], object),
        np.array([{}, None], object),
        pd.period_range("2000", periods=3, freq="M"),
        pd.Categorical(["a", "b"]),
        pd.array([1, None], dtype="Int64"),
        np.zeros(2, "i4,f8"),
    ],
    ids=[
        "mixed",
        "text and int",
        "text and bytes",
        "Decimal",
        "dict",
        "Period",
        "Categorical",
        "Int64",
        "structured",
    ],
)
@pytest.mark.parametrize("coordinate", [False, True])
def test_values_that_cannot_be_stored_are_a_type_error_that_names_the_variable(tmp_path, values, coordinate):
    ds = xr.Dataset(coords={"v": ("x", values)}) if coordinate else xr.Dataset({"v": ("x", values)})
    with pytest.raises(TypeError, match="variable 'v'"):
        ds.colstore.to_colstore(tmp_path / "a")
    assert not (tmp_path / "a").exists() or not files_of(tmp_path / "a")


@pytest.mark.parametrize("value", [{"a": 1}, [[1]], [{}]], ids=repr)
def test_fill_value_that_is_no_value_is_refused_when_writing(tmp_path, value):
    with pytest.raises(TypeError, match="attribute '_FillValue' of variable 'v'"):
        xr.Dataset({"v": ("x", [1.0], {"_FillValue": value})}).colstore.to_colstore(tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        (pd.date_range("2020", periods=2, tz="UTC"), r"v.*datetime64.*UTC.*tz_localize\(None\)"),
        (pd.date_range("2020", periods=2, tz="UTC").astype(object), r"v.*Timestamp.*drop their zone"),
        (pd.array([1, None], dtype="Int64"), r"v.*Int64.*astype\(float\)"),
        (pd.Categorical(["a", "b"]), r"v.*category.*astype\(str\)"),
        (np.array([[1, 2], None], object), r"v.*\(list\).*another dimension"),
        (np.zeros(2, [("a", "i4")]), r"v.*each of its fields as a variable"),
        (np.zeros(2, "g"), r"v.*cast it to float64"),
    ],
)
def test_values_that_cannot_be_stored_are_refused_with_what_to_do(tmp_path, values, advice):
    if getattr(values, "dtype", None) == np.dtype("f8"):
        pytest.skip("long doubles are doubles here")
    with pytest.raises(TypeError, match=advice):
        xr.Dataset({"v": ("x", values)}).colstore.to_colstore(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_home_directory_is_where_a_dataset_is_written_and_opened(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    xr.Dataset({"v": 1}).colstore.to_colstore("~/a.grid")
    assert [path.name for path in tmp_path.iterdir()] == ["a.grid"]
    with xr.open_dataset("~/a.grid", engine="colstore") as dataset:
        assert dataset["v"] == 1


def test_an_index_of_several_levels_is_refused_as_xarray_does(tmp_path):
    ds = xr.Dataset(coords={"y": ("x", [1, 2]), "z": ("x", ["a", "b"])}).set_index(x=["y", "z"])
    with pytest.raises(NotImplementedError, match="reset_index"):
        ds.colstore.to_colstore(tmp_path / "grid")
    ds.reset_index("x").colstore.to_colstore(tmp_path / "grid")
