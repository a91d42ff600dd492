"""What is not sent through xarray's CF decoding is what the decoding would have given back."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from climate import opened

from colstore_io.integrations import _xarray_opening
from colstore_io.integrations._xarray_grid import ColstoreDataStore

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


def stored(path, variables, attrs):
    """Write variables as they are, past xarray's encoding."""
    from colstore_io.integrations._xarray_grid import _typed

    with ColstoreDataStore(path, "w") as store:
        for name, variable in variables.items():
            store.set_dimensions({name: variable}, None)
            store.prepare_variable(name, _typed(variable, name))
        store.set_attributes(attrs)


def decoded(path, monkeypatch, everything, **options):
    with monkeypatch.context() as patch:
        if everything:
            patch.setattr(_xarray_opening, "_is_as_stored", lambda variable: False)
            patch.setattr(_xarray_opening, "_name_others", lambda *args: True)
        try:
            return opened(path, **options).load()
        except (ValueError, TypeError, AttributeError) as exc:
            return type(exc)


@pytest.mark.parametrize("attrs", ATTRS, ids=str)
@pytest.mark.parametrize("kind", VALUES)
def test_variables_come_back_as_if_all_were_decoded(tmp_path, monkeypatch, kind, attrs):
    variables = {
        "v": xr.Variable("x", VALUES[kind], attrs),
        "other": xr.Variable(("x", "n"), np.arange(8).reshape(4, 2), {"units": "K"}),
        "x": xr.Variable("x", np.arange(4)),
    }
    stored(tmp_path / "a", variables, {"coordinates": "other"} if kind == "bool" else {"title": "t"})
    for options in (
        {},
        {"decode_cf": False},
        {"decode_coords": "all"},
        {"drop_variables": "other"},
        {"decode_timedelta": True, "mask_and_scale": False},
    ):
        expected = decoded(tmp_path / "a", monkeypatch, True, **options)
        found = decoded(tmp_path / "a", monkeypatch, False, **options)
        if isinstance(expected, type):
            assert found is expected
            continue
        xr.testing.assert_identical(found, expected)
        assert set(found.coords) == set(expected.coords)
        for name in expected.variables:
            assert found[name].dtype == expected[name].dtype
            assert found[name].encoding == expected[name].encoding
