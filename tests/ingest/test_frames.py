"""pandas frames become plain columns: which dtype gets a companion, and what is lost goes into the field."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from storable import assert_storable, one

from colstore_io.errors import SchemaMismatchError
from colstore_io.ingest import ingest

MODERN = int(pd.__version__.split(".")[0]) >= 3  # in 2.x "str" makes objects
DATE = datetime.date(2024, 2, 29)


@pytest.mark.parametrize(
    ("series", "dtype", "companion", "with_null"),
    [
        (pd.Series([1, 2]), "<i8", False, None),
        (pd.Series([1, 2], dtype="uint8"), "|u1", False, None),
        (pd.Series([True, False]), "|b1", False, None),
        (pd.Series([1.5, np.nan]), "<f8", False, False),
        (pd.Series(np.array([1, "NaT"], "M8[ns]")), "<M8[ns]", False, False),
        (pd.Series(np.array([1, "NaT"], "m8[s]")), "<m8[s]", False, False),
        (pd.Series(["a", "bc"], dtype="str"), "<U2", MODERN, True),
        (pd.Series(["a", "bc"], dtype="string"), "<U2", True, True),
        (pd.Series(["a", "bc"], dtype="string[python]"), "<U2", True, True),
        (pd.Series(["a", "bc"], dtype=object), "<U2", False, True),
        (pd.Series([1, 2], dtype=object), "<i8", False, None),
        (pd.Series([DATE, DATE], dtype=object), "<M8[D]", False, True),
        (pd.Series([b"a", b"bc"], dtype=object), "|S2", False, True),
        (pd.Series([1, 2], dtype="Int16"), "<i2", True, True),
        (pd.Series([1, 2], dtype="UInt64"), "<u8", True, True),
        (pd.Series([True, False], dtype="boolean"), "|b1", True, True),
        (pd.Series([1.5, 2], dtype="Float32"), "<f4", False, True),
        (pd.Series([1, 2], dtype="int32[pyarrow]"), "<i4", True, True),
        (pd.Series([True, False], dtype="bool[pyarrow]"), "|b1", True, True),
        (pd.Series([1.5, 2], dtype="double[pyarrow]"), "<f8", False, True),
        (pd.Series(["a", "bc"], dtype=pd.ArrowDtype(pa.string())), "<U2", True, True),
        (pd.Series([b"a", b"bc"], dtype=pd.ArrowDtype(pa.binary())), "|S2", True, True),
        (pd.Series([DATE, DATE], dtype=pd.ArrowDtype(pa.date32())), "<M8[D]", False, True),
        (pd.Series(["a", "bc"], dtype="category"), "<U2", True, True),
        (pd.Series([2.5, 1.5], dtype="category"), "<f8", True, True),
        (pd.Series(pd.to_datetime(["2024", "2025"]).as_unit("us"), dtype="category"), "<M8[us]", True, True),
        (pd.Series(pd.to_datetime(["2024", None]).as_unit("ms").tz_localize("UTC")), "<M8[ms]", False, False),
        (pd.Series(pd.to_timedelta([1, None], unit="s").as_unit("s")), "<m8[s]", False, False),
    ],
    ids=lambda v: str(getattr(v, "dtype", "")),
)
def test_dtypes(series, dtype, companion, with_null):
    field, _, valid = one(series)
    assert field.dtype.str == dtype
    assert field.nullable is companion
    assert valid is None or valid.all()
    if with_null is None:
        return
    holey = series.reindex([0, 1, 9])
    assert holey.dtype == series.dtype
    field, _values, valid = one(holey)
    assert field.nullable is with_null
    assert valid is None or valid.tolist() == [True, True, False]
    frame = ingest(pd.DataFrame({"x": holey}))
    assert_storable(frame)
    assert frame.schema.fields == (field,)


def test_index_is_ignored_and_labels_go_through_str():
    frame = pd.DataFrame({1: [1, 2], ("a", "b"): [3, 4]}, index=[7, 7])
    batch = ingest(frame)
    assert batch.schema.names == ["1", "('a', 'b')"]
    assert batch.arrays[0].tolist() == [1, 2]


def test_duplicate_labels_are_refused():
    for labels in (["a", "a"], [1, "1"]):
        with pytest.raises(ValueError, match="two columns have the name"):
            ingest(pd.DataFrame([[1, 2]], columns=labels))


def test_frame_without_columns_is_refused():
    with pytest.raises(ValueError, match="no columns"):
        ingest(pd.DataFrame(index=[1, 2]))


def test_numpy_columns_are_shared():
    values = np.arange(5.0)
    assert np.shares_memory(ingest(pd.DataFrame({"x": values}, copy=False)).arrays[0], values)
    masked = pd.arrays.IntegerArray(np.arange(5), np.zeros(5, bool))
    assert np.shares_memory(ingest({"x": masked}).arrays[0], masked.to_numpy(dtype="i8"))


def test_series_index_and_extension_arrays_in_a_dict():
    batch = ingest(
        {
            "a": pd.Series([1, 2], index=[5, 6]),
            "b": pd.Index(["x", "y"]),
            "c": pd.array([1, None], dtype="Int64"),
            "d": pd.RangeIndex(2),
            "e": pd.Categorical(["x", None]),
        }
    )
    assert_storable(batch)
    assert batch.n_rows == 2


def test_zone_is_kept_and_values_are_utc():
    times = pd.to_datetime(["2024-01-01 01:00", None]).as_unit("us").tz_localize("Europe/Prague")
    field, values, _ = one(pd.Series(times))
    assert (field.tz, field.dtype.str, field.validity) == ("Europe/Prague", "<M8[us]", None)
    assert values[0] == np.datetime64("2024-01-01T00:00")
    assert np.isnat(values[1])
    fixed = pd.Series(times.tz_convert(datetime.timezone(datetime.timedelta(hours=2))))
    assert one(fixed)[0].tz == "+02:00"


def test_timestamps_in_objects_keep_their_nanoseconds():
    stamp = pd.Timestamp("2024-01-01 00:00:00.123456789", tz="Europe/Prague")
    field, values, valid = one(pd.Series([stamp, None], dtype=object))
    assert (field.dtype.str, field.tz) == ("<M8[ns]", "Europe/Prague")
    assert values[0] == np.datetime64("2023-12-31T23:00:00.123456789")
    assert valid.tolist() == [True, False]
    field, values, valid = one(np.array([pd.Timedelta(5, "ns"), pd.NaT], object))
    assert values[0] == np.timedelta64(5, "ns")
    assert valid.tolist() == [True, False]


def test_missing_markers_of_pandas_in_objects():
    for marker in (pd.NA, pd.NaT, None, np.nan):
        _field, _values, valid = one(np.array(["a", marker], object))
        assert valid.tolist() == [True, False]


def test_categories_and_order():
    data = pd.Categorical(["b", None, "a"], categories=["b", "a", "unused"], ordered=True)
    field, values, valid = one(pd.Series(data))
    assert (field.categories, field.ordered, field.dtype.str) == (("b", "a", "unused"), True, "<U6")
    assert values.tolist() == ["b", "", "a"]
    assert valid.tolist() == [True, False, True]
    assert one(data, string_width={"x": 1})[1].tolist() == ["b", "", "a"]
    field, _, _ = one(pd.Categorical([1, 2]))
    assert (field.categories, field.ordered) == ((1, 2), False)
    assert one(pd.Categorical([1.5]))[0].categories is None
    assert one(pd.Categorical([None, None]))[2].tolist() == [False, False]


def test_requested_companion_takes_nan_for_null():
    frame = pd.DataFrame({"f": [1.0, np.nan], "t": pd.to_datetime(["2024", None]).as_unit("s")})
    assert not any(f.nullable for f in ingest(frame, nullable=True).schema)
    batch = ingest(frame, nullable=["f", "t"])
    assert_storable(batch)
    assert [a.tolist() for a in batch.arrays[1::2]] == [[True, False], [True, False]]


def test_frames_are_appended_to_nullable_floats():
    like = ingest(pd.DataFrame({"f": pd.array([1.5, None], dtype="Float64")})).schema
    batch = ingest(pd.DataFrame({"f": [np.nan, 2.0]}), like=like)
    assert_storable(batch)
    assert batch.arrays[1].tolist() == [False, True]
    # In NumPy NaN is a value.
    assert ingest({"f": np.array([np.nan])}, like=like).arrays[1].tolist() == [True]


def test_naive_frame_does_not_fit_an_aware_table():
    aware = pd.DataFrame({"t": pd.to_datetime(["2024"]).tz_localize("UTC")})
    naive = pd.DataFrame({"t": pd.to_datetime(["2024"])})
    for data, like in ((naive, aware), (aware, naive)):
        with pytest.raises(SchemaMismatchError, match="time zone"):
            ingest(data, like=ingest(like).schema)


def test_bytes_option():
    field, _values, _ = one(pd.Series(["é", None], dtype="str"), strings="bytes")
    assert (field.dtype.str, field.logical) == ("|S2", "string")


@pytest.mark.parametrize(
    ("series", "advice"),
    [
        (pd.Series([1, 0], dtype="Sparse[int]"), "to_dense"),
        (pd.Series(pd.period_range("2024", periods=1, freq="D")), "to_timestamp"),
        (pd.Series(pd.interval_range(0, 1)), "left and right"),
        (pd.Series([1, "a"], dtype=object), "mixes"),
        (pd.Series([1j]), "real and imaginary"),
        (pd.Series([[1]]), "list"),
        (pd.Series(["a", 1], dtype="category"), "mixes"),
        (pd.Series([[1]], dtype=pd.ArrowDtype(pa.list_(pa.int8()))), "flatten"),
    ],
    ids=lambda v: str(getattr(v, "dtype", "")),
)
def test_dtypes_without_a_place_are_refused_by_name(series, advice):
    with pytest.raises(TypeError, match=f"'x'.*{advice}"):
        ingest(pd.DataFrame({"x": series}))


def test_multi_index_is_no_column():
    with pytest.raises(TypeError, match="'x' is a MultiIndex"):
        one(pd.MultiIndex.from_tuples([(1, 2)]))


def test_series_is_no_table():
    with pytest.raises(TypeError, match="it is one column"):
        ingest(pd.Series([1]))
