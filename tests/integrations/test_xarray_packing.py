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


@pytest.mark.parametrize(
    ("values", "encoding"),
    [
        (np.array([1.0, -1e39, 2.0]), {"dtype": "float32"}),
        (np.array([1.0, np.inf, 1e300]), {"dtype": "float32"}),
        (np.array([1, 70_000]), {"dtype": "float16"}),
        (np.array([1.0, np.nan, 3e38]), {"dtype": "float32", "scale_factor": 0.01}),
        (np.array([1, 30_000], "i2"), {"dtype": "int16", "scale_factor": 0.5}),
        (np.array([0.0, 2.0**63]), {"dtype": "int64", "_FillValue": -1}),
        (np.array([0.0, 2.0**31], "f4"), {"dtype": "int32", "_FillValue": -1}),
    ],
)
def test_value_beyond_the_stored_number_is_refused_with_its_place(tmp_path, values, encoding, chunks):
    at = len(values) - 1 if abs(values[-1]) > 1e4 else 1
    with pytest.raises(cs.SchemaMismatchError, match=rf"'t' has the value .* does not fit .*at x={at}\)"):
        write(tmp_path / "a", values, encoding, chunks)


@pytest.mark.parametrize(
    ("values", "encoding"),
    [
        (np.array([1.0, np.inf, -np.inf, np.nan, 3e38]), {"dtype": "float32"}),
        (np.array([2.0, 65_000.0]), {"dtype": "float16"}),
        (np.array([10, 20]), {"dtype": "int8", "scale_factor": 0.5, "_FillValue": -1}),
        (np.array([0.0, -(2.0**63)]), {"dtype": "int64", "_FillValue": 1}),
    ],
)
def test_numbers_that_fit_come_back(tmp_path, values, encoding, chunks):
    write(tmp_path / "a", values, encoding, chunks)
    np.testing.assert_allclose(read(tmp_path / "a"), values, rtol=1e-3)


@settings(deadline=None, max_examples=60)
@given(
    codes=st.lists(st.integers(-100, 100), min_size=1, max_size=5),
    shift=st.floats(-0.49, 0.49),
    scale=st.sampled_from([0.01, 0.1, 3.0, -0.7]),
    offset=st.sampled_from([0.0, 1e6, -273.15]),
    dtype=st.sampled_from(["f8", "f4"]),
    fill=st.integers(-100, 100),
)
def test_value_is_refused_exactly_when_it_is_encoded_as_the_fill_value(
    chunks, codes, shift, scale, offset, dtype, fill
):
    from xarray.conventions import encode_cf_variable

    from colstore_io.integrations._xarray_packing import checked_packing

    values = ((np.array(codes) + shift) * scale + offset).astype(dtype)
    encoding = {"dtype": "int32", "scale_factor": scale, "add_offset": offset, "_FillValue": fill}
    variable = xr.Variable("x", values, {}, encoding)
    met = (encode_cf_variable(variable.copy(), name="t").values == fill).any()
    if chunks is not None:
        variable = variable.chunk({"x": chunks})
    try:
        checked_packing(variable, "t").compute()
    except cs.SchemaMismatchError:
        assert met
    else:
        assert not met


@pytest.mark.parametrize("order", ["C", "F", "steps"])
def test_place_is_the_first_in_the_order_of_the_dimensions(tmp_path, order, chunks):
    values = np.arange(6.0).reshape(2, 3)
    values[1, 0] = values[0, 2] = 300
    values = np.repeat(values, 2, axis=1)[:, ::2] if order == "steps" else np.array(values, order=order)
    dataset = xr.Dataset({"t": (("y", "x"), values)})
    dataset = dataset if chunks is None else dataset.chunk({"y": 1, "x": chunks})
    with pytest.raises(
        cs.SchemaMismatchError, match=r"y=0, x=2\)" if chunks is None else r"y=0, x=2\)|y=1, x=0\)"
    ):
        dataset.colstore.to_colstore(tmp_path / "a", encoding={"t": {"dtype": "int8", "_FillValue": -1}})


def test_memory_of_a_check_is_bounded(chunks):
    import tracemalloc

    from colstore_io.integrations._xarray_packing import checked_packing

    values = np.arange(1 << 20, dtype="f8") % 200
    values[values == 7] = 8
    variable = xr.Variable("x", values, {}, {"dtype": "int16", "_FillValue": 7})
    tracemalloc.start()
    checked_packing(variable, "t")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < values.nbytes / 4


@pytest.mark.parametrize(
    ("values", "encoding", "message"),
    [
        (TIMES, {**DAYS, "units": "fortnights since 2000-01-01"}, "unknown unit 'fortnights'"),
        (TIMES, {**DAYS, "units": "days"}, "hours since 2000-01-01"),
        (TIMES, {**DAYS, "units": "days since 2000-13-01"}, "2000-13-01"),
        (TIMES, {**DAYS, "calendar": "marsian"}, "marsian"),
        (
            TIMES - TIMES[0],
            {"dtype": "int16", "units": "fortnights"},
            "unknown unit 'fortnights'; write .*'hours'",
        ),
    ],
)
def test_unknown_unit_or_calendar_is_refused_at_the_call(tmp_path, values, encoding, message, chunks):
    with pytest.raises(ValueError, match=rf"encoding of variable 't': units .*{message}"):
        write(tmp_path / "a", values, encoding, chunks, compute=False)


@pytest.mark.parametrize("key", ["_FillValue", "missing_value"])
def test_text_cannot_stand_for_missing_numbers(tmp_path, key, chunks):
    with pytest.raises(
        TypeError, match=rf"encoding of variable 't': {key} must be a number, .*float64, got 'NA'"
    ):
        write(tmp_path / "a", np.array([1.0]), {key: "NA"}, chunks, compute=False)


def test_fill_value_between_integers_is_refused_where_it_is_scaled(tmp_path, chunks):
    with pytest.raises(cs.SchemaMismatchError, match=r"_FillValue 3.5, which does not fit int16"):
        write(
            tmp_path / "a",
            np.array([1.0]),
            {"dtype": "int16", "scale_factor": 0.1, "_FillValue": 3.5},
            chunks,
        )


@pytest.mark.parametrize("calendar", ["noleap", "360_day"])
def test_dates_of_other_calendars_beyond_the_integer_are_refused(tmp_path, calendar, chunks):
    cftime = pytest.importorskip("cftime")
    dates = np.array([cftime.datetime(year, 1, 1, calendar=calendar) for year in (2000, 2001, 2200)])
    encoding = {"dtype": "int16", "units": "days since 2000-01-01", "calendar": calendar}
    with pytest.raises(
        cs.SchemaMismatchError, match=r"'t' has the value 2200-01-01 .* does not fit int16 \(at x=2"
    ):
        write(tmp_path / "a", dates, encoding, chunks)
    with pytest.raises(
        cs.SchemaMismatchError, match=r"'t' has the value 2000-01-01 .* missing ones, 0 \(at x=0"
    ):
        write(tmp_path / "a", dates[:2], {**encoding, "_FillValue": 0}, chunks)
    write(tmp_path / "a", dates[:2], encoding, chunks)
    assert read(tmp_path / "a").tolist() == dates[:2].tolist()


def test_bounds_are_counted_like_their_times(tmp_path, chunks):
    dataset = xr.Dataset(
        {"edges": (("x", "side"), np.stack([TIMES[:2], TIMES[:2]], -1))},
        {"x": ("x", TIMES[:2].astype("M8[ns]"), {"bounds": "edges"})},
    )
    dataset = dataset if chunks is None else dataset.chunk({"x": 1})
    dataset["edges"].encoding = {"dtype": "int32"}
    dataset["x"].encoding = dict(DAYS)
    dataset.colstore.to_colstore(tmp_path / "a")
    with xr.open_dataset(tmp_path / "a", engine="colstore", decode_times=False) as raw:
        assert raw["edges"].values.tolist() == [[0, 0], [31, 31]]
    with xr.open_dataset(tmp_path / "a", engine="colstore") as back:
        np.testing.assert_array_equal(back["x"].values, TIMES[:2])


def test_text_in_dask_blocks_is_not_computed_by_the_check(chunks):
    pytest.importorskip("cftime")
    import dask.array as da

    from colstore_io.integrations._xarray_packing import checked_packing

    def refused(block):
        raise AssertionError("computed")

    lazy = da.zeros(4, chunks=2).map_blocks(refused, dtype=object, meta=np.empty(0, object))
    for encoding in ({}, {"dtype": str}):
        assert checked_packing(xr.Variable("x", lazy, {}, encoding), "t")._data is lazy
