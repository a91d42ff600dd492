"""Values that CF encoding turns into integers come back as they were, or are refused by name."""

from __future__ import annotations

import numpy as np
import pytest

xr = pytest.importorskip("xarray")
pytest.importorskip("dask.array")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import colstore_io as cs  # noqa: E402
import colstore_io.integrations.xarray  # noqa: E402  # registers ds.colstore

PACKED = {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -32768}

pytestmark = [
    pytest.mark.parametrize("chunks", [None, 2]),
    pytest.mark.filterwarnings("ignore:saving variable t with floating:xarray.SerializationWarning"),
]


def write(path, values, encoding, chunks, **options):
    dataset = xr.Dataset({"t": ("x", values)})
    dataset = dataset if chunks is None else dataset.chunk({"x": chunks})
    dataset.colstore.to_colstore(path, encoding={"t": encoding} if encoding else None, **options)


def read(path):
    with xr.open_dataset(path, engine="colstore") as dataset:
        return dataset["t"].values


@pytest.mark.parametrize(
    ("values", "encoding"),
    [
        ([0.0, 327.68, 1.0], PACKED),
        ([0.0, np.nan, -327.70], PACKED),
        ([np.inf, 0.0], PACKED),
        ([0, 40_000], {"dtype": "int16"}),
        ([-1, 0], {"dtype": "uint8"}),
        ([0.0, 1e30], {"dtype": "int32", "_FillValue": -1}),
        ([0.0, 70_000.0], {"dtype": "int16", "_Unsigned": "true", "_FillValue": 0}),
        ([np.nan, 0.0], {"dtype": "int8", "scale_factor": 1.0, "_FillValue": -9999.0}),
        ([0, 20], {"dtype": "int8", "scale_factor": 0.1}),
    ],
)
def test_value_beyond_the_stored_integer_is_refused_by_name(tmp_path, values, encoding, chunks):
    with pytest.raises(cs.SchemaMismatchError, match=r"'t' .* does not fit u?int\d+"):
        write(
            tmp_path / "a", np.array(values, None if isinstance(values[0], int) else "f8"), encoding, chunks
        )
    with pytest.raises(FileNotFoundError):
        xr.open_dataset(tmp_path / "a", engine="colstore")


@pytest.mark.parametrize(
    ("values", "encoding"),
    [
        ([0.0, 327.67, np.nan, -327.67], PACKED),
        ([np.nan, np.nan, np.nan], PACKED),
        ([], PACKED),
        ([1.0, 65_535.0], {"dtype": "int16", "_Unsigned": "true", "_FillValue": 0}),
        ([-128.0, 127.0], {"dtype": "uint8", "_Unsigned": "false", "_FillValue": 1}),
        ([-32768.0, 32767.0], {"dtype": "int16", "_FillValue": 5}),
    ],
)
def test_values_within_the_stored_integer_come_back(tmp_path, values, encoding, chunks):
    values = np.array(values, "f8")
    write(tmp_path / "a", values, encoding, chunks)
    np.testing.assert_allclose(read(tmp_path / "a"), values, rtol=0, atol=0.006)


@pytest.mark.parametrize("mode", [{"append_dim": "x"}, {"region": {"x": slice(0, 2)}}])
def test_refused_change_leaves_what_was_there(tmp_path, mode, chunks):
    write(tmp_path / "a", np.array([1.0, 2.0]), PACKED, chunks)
    new = xr.Dataset({"t": ("x", np.array([3.0, 400.0]))})
    new["t"].encoding = dict(PACKED)
    new = new if chunks is None else new.chunk({"x": chunks})
    with pytest.raises(cs.SchemaMismatchError, match="'t'"):
        new.colstore.to_colstore(tmp_path / "a", **mode)
    np.testing.assert_allclose(read(tmp_path / "a"), [1.0, 2.0])


@settings(deadline=None, max_examples=30)
@given(
    values=st.lists(st.floats(-400, 400, width=32), min_size=1, max_size=4),
    scale=st.sampled_from([0.01, 0.02, 1.0, -0.01]),
    offset=st.sampled_from([0.0, 100.0, -300.0]),
)
def test_nothing_that_was_written_is_read_as_something_else(tmp_path_factory, chunks, values, scale, offset):
    path = tmp_path_factory.mktemp("packed") / "a"
    encoding = {"dtype": "int16", "scale_factor": scale, "add_offset": offset, "_FillValue": -32768}
    try:
        write(path, np.array(values), encoding, chunks)
    except cs.SchemaMismatchError:
        assert max(abs((np.array(values) - offset) / scale)) > 32_767
        return
    np.testing.assert_allclose(read(path), values, rtol=0, atol=abs(scale) * 0.51)


DAYS = {"dtype": "int16", "units": "days since 2000-01-01"}
TIMES = np.array(["2000-01-01", "2000-02-01", "NaT", "2100-01-01"], "M8[s]")


@pytest.mark.parametrize(
    ("values", "encoding", "message"),
    [
        (TIMES[[0, 3]], DAYS, r"2100-01-01T00:00:00, .* 36525 and does not fit int16"),
        (TIMES, {**DAYS, "_FillValue": -1}, r"2100-01-01T00:00:00"),
        (TIMES[:3], DAYS, r"missing value \(NaT\)"),
        (TIMES[:2], {**DAYS, "_FillValue": 31}, r"2000-02-01T00:00:00, .* stands for missing ones, 31"),
        (TIMES[[0, 3]], {**DAYS, "scale_factor": 0.5}, r"73050"),
        (np.array([1, 10**6], "m8[s]"), {"dtype": "int16", "units": "seconds"}, r"1000000 seconds"),
        (np.array([1.0, np.nan]), {"dtype": "int16"}, r"missing value \(NaN\)"),
        (np.array([1.0, np.nan]), {"dtype": "int16", "_FillValue": np.nan}, r"_FillValue nan, .* fit int16"),
        (np.array([3.0, -1.0, 4.0]), {"dtype": "int16", "_FillValue": 3}, r"value 3.0, .* missing ones, 3"),
        (np.array([3.0, 1.0, -9.0]), {"dtype": "int8", "missing_value": 1}, r"value 1.0, .* missing ones, 1"),
        (np.array([3.0, 65_535.0]), {"dtype": "i2", "_Unsigned": "true", "_FillValue": -1}, r"value 65535.0"),
    ],
)
def test_value_that_would_be_read_as_another_is_refused(tmp_path, values, encoding, message, chunks):
    with pytest.raises(cs.SchemaMismatchError, match=f"'t' has the .*{message}"):
        write(tmp_path / "a", values, encoding, chunks)
    assert not (tmp_path / "a").exists() or not list((tmp_path / "a").glob("_colstore-*.json"))


@pytest.mark.parametrize("encoding", [{**DAYS, "_FillValue": -1}, {**DAYS, "dtype": "int64"}])
def test_times_within_the_stored_integer_come_back(tmp_path, encoding, chunks):
    write(tmp_path / "a", TIMES[:3], encoding, chunks)
    np.testing.assert_array_equal(read(tmp_path / "a"), TIMES[:3])


@pytest.mark.parametrize("mode", [{"append_dim": "x"}, {"region": {"x": slice(0, 2)}}])
def test_times_that_do_not_fit_a_change_are_refused(tmp_path, mode, chunks):
    write(tmp_path / "a", TIMES[:2], DAYS, chunks)
    with pytest.raises(cs.SchemaMismatchError, match="'t'"):
        write(tmp_path / "a", TIMES[[0, 3]], None, chunks, **mode)
    np.testing.assert_array_equal(read(tmp_path / "a"), TIMES[:2])


@pytest.mark.parametrize(
    ("encoding", "error", "message"),
    [
        ({"scale_factor": 0}, ValueError, "scale_factor must be a finite number other than 0"),
        ({"scale_factor": np.inf}, ValueError, "scale_factor must be a finite number"),
        ({"add_offset": np.nan}, ValueError, "add_offset must be a finite number"),
        ({"scale_factor": [1, 2]}, TypeError, "scale_factor must be one number"),
        ({"scale_factor": [1, [2]]}, TypeError, "scale_factor must be one number"),
        ({"add_offset": "a"}, TypeError, "add_offset must be one number"),
        ({"dtype": "-i2"}, TypeError, "dtype must be one of NumPy"),
        ({"dtype": object()}, TypeError, "dtype must be one of NumPy"),
        ({"_FillValue": [1, 2]}, TypeError, "_FillValue must be one value"),
        ({"units": 5}, TypeError, "units must be text"),
        ({"foo": 1}, ValueError, "unexpected encoding"),
    ],
)
def test_odd_encoding_is_refused_by_name(tmp_path, encoding, error, message, chunks):
    with pytest.raises(error, match=rf"'t'.*{message}|{message}.*'t'"):
        write(tmp_path / "a", np.array([1.5, 2.0]), encoding, chunks)


def test_whole_scale_factor_is_taken(tmp_path, chunks):
    write(tmp_path / "a", np.array([2.0, 4.0]), {"dtype": "int8", "scale_factor": 2}, chunks)
    assert read(tmp_path / "a").tolist() == [2.0, 4.0]
