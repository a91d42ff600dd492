"""What is not sent through xarray's CF decoding is what the decoding would have given back."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from climate import climate, opened
from xarray.coding.strings import create_vlen_dtype
from xarray.core import indexing

import colstore_io as cs
from colstore_io.integrations import _xarray_opening

pytestmark = [
    pytest.mark.filterwarnings("ignore:In a future version, xarray will not decode timedelta"),
    pytest.mark.filterwarnings("ignore:Variable.s. referenced in .* not in variables"),
]

ATTRS = [
    {},
    {"units": "K"},
    {"units": "m s-1", "long_name": "wind"},
    {"units": "days"},
    {"units": "Seconds"},
    {"units": "hours since 2000-01-01"},
    {"units": "days since 2000-01-01", "calendar": "noleap", "bounds": "other"},
    {"units": 1},
    {"_FillValue": 3},
    {"_FillValue": np.float32("nan")},
    {"_FillValue": float("nan"), "units": "m"},
    {"_FillValue": float("nan"), "units": "days"},
    {"_FillValue": "nan"},
    {"_FillValue": np.array([np.nan])},
    {"_FillValue": float("nan"), "missing_value": 2.0},
    {"missing_value": 3, "units": "K"},
    {"scale_factor": 2.0},
    {"add_offset": 1.0},
    {"coordinates": "x other"},
    {"coordinates": "nothing"},
    {"grid_mapping": "other"},
    {"ancillary_variables": "other"},
    {"_Unsigned": "true"},
    {"valid_range": np.array([1, 2])},
]
VALUES = {
    "int": np.arange(4, dtype="i4"),
    "float": np.arange(4.0),
    "bool": np.array([True, False, True, True]),
    "chars": np.array([b"a", b"b", b"", b"d"], "S1"),
    "bytes": np.array([b"ab", b"c", b"", b"d"]),
    "fixed": np.array(["ab", "c", "", "d"]),
    "text": np.array(["ab", "c", "", "d"], object),
    "time": np.arange(4).astype("M8[s]"),
    "span": np.arange(4).astype("m8[ms]"),
}


def variables_of(kind, attrs):
    """Return fresh lazy variables, as a store gives them."""
    found = {
        "v": xr.Variable("x", VALUES[kind], attrs),
        "other": xr.Variable(("x", "n"), np.arange(8).reshape(4, 2), {"units": "K"}),
        "x": xr.Variable("x", np.arange(4)),
    }
    if kind == "text":
        found["v"] = found["v"].astype(create_vlen_dtype(str))
    return {
        name: xr.Variable(v.dims, indexing.LazilyIndexedArray(v.values), dict(v.attrs), {"chunks": (2,)})
        for name, v in found.items()
    }


def outcome(function, *args):
    """Return all that there is to see of a result, or the type of the error."""
    try:
        variables, attrs, coord_names = function(*args)
        shown = {name: (v.dims, v.dtype, repr(v.values), repr(v.attrs)) for name, v in variables.items()}
    except Exception as exc:  # a warning, or whatever xarray makes of attributes that make no sense
        return type(exc), str(exc)
    encodings = {name: sorted(map(repr, v.encoding.items())) for name, v in variables.items()}
    return shown, encodings, attrs, coord_names


@pytest.mark.parametrize("attrs", ATTRS, ids=str)
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("of_dataset", [{"title": "t"}, {"coordinates": "other"}], ids=str)
def test_variables_come_back_as_if_all_were_decoded(kind, attrs, of_dataset):
    off = dict.fromkeys(
        ("mask_and_scale", "decode_times", "concat_characters", "decode_coords", "decode_timedelta"), False
    )
    for dropped, options in (
        ((), {}),
        ((), off),
        ((), {"decode_coords": "all"}),
        (("other",), {}),
        ((), {"mask_and_scale": {"v": False}}),
        ((), {"decode_timedelta": True, "mask_and_scale": False}),
    ):
        arguments = (dict(of_dataset), dropped, options)
        expected = outcome(_xarray_opening._decoded, variables_of(kind, attrs), *arguments)
        assert outcome(_xarray_opening.decode, variables_of(kind, attrs), *arguments) == expected


def test_nothing_is_decoded_that_asks_for_nothing(tmp_path, monkeypatch):
    climate().drop_vars("p").colstore.to_colstore(tmp_path / "a")
    monkeypatch.setattr(_xarray_opening, "_decoded", None)
    xr.testing.assert_identical(opened(tmp_path / "a").load(), climate().drop_vars("p"))
    assert np.isnan(opened(tmp_path / "a")["t"].encoding["_FillValue"])


@pytest.mark.parametrize("default_indexes", [True, False])
def test_dataset_is_the_one_that_xarray_would_construct(tmp_path, monkeypatch, default_indexes):
    two = xr.Variable(("time", "level"), np.ones((6, 3)))  # a coordinate: there is a dimension of this name
    climate().set_coords(["one", "name"]).assign(level=two).colstore.to_colstore(tmp_path / "a")

    def shown():
        ds = opened(tmp_path / "a", create_default_indexes=default_indexes)
        kinds = {name: (type(v), type(v._data), v.encoding, v.attrs) for name, v in ds.variables.items()}
        return (
            list(map(str, kinds)),
            repr(kinds),
            dict(ds.sizes),
            sorted(map(str, ds.coords)),
            list(ds.indexes),
            ds.attrs,
        )

    found = shown()
    monkeypatch.setattr(_xarray_opening, "_construct", None)  # as if xarray had no such function
    assert repr(found) == repr(shown())


def test_attributes_of_one_opening_are_not_those_of_the_next(tmp_path):
    attrs = {"list": [1, 2], "array": np.array([1, 2]), "map": {"a": {"b": 1}}, "text": "x"}
    given = xr.Dataset({"v": ("x", np.arange(3), attrs)}, attrs=attrs)
    given.colstore.to_colstore(tmp_path / "a")
    before = opened(tmp_path / "a")
    for one in (before, before["v"]):
        one.attrs["list"].append(3)
        one.attrs["array"][:] = 0
        one.attrs["map"]["a"]["b"] = 2
        one.attrs["text"] = "y"
    xr.testing.assert_identical(opened(tmp_path / "a").load(), given)


def test_factor_of_text_is_refused_by_name_and_opens_undecoded(tmp_path):
    xr.Dataset({"v": ("x", [1.0, 2.0], {"scale_factor": "2"})}).colstore.to_colstore(tmp_path / "a")
    with pytest.raises(cs.FormatError, match=r"'v' has an attribute 'scale_factor' that is no number: '2'"):
        xr.open_dataset(tmp_path / "a", engine="colstore")
    with xr.open_dataset(tmp_path / "a", engine="colstore", mask_and_scale=False) as dataset:
        assert dataset["v"].values.tolist() == [1.0, 2.0]
