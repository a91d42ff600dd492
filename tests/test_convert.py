"""Tables as frames, Arrow tables, capsules and record arrays: equal values, shared memory."""

from __future__ import annotations

import datetime
from dataclasses import replace

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.arrays import arrow_array
from colstore_io.convert import (
    arrow_can_share,
    arrow_column,
    arrow_schema,
    arrow_stream,
    arrow_table,
    dtype_of,
    frame,
    recarray,
)
from colstore_io.fields import Field
from colstore_io.ingest import Batch, ingest

MODERN = int(pd.__version__.split(".")[0]) >= 3
TEXT = "str" if MODERN else "string"  # how the dtype prints
TEXT_DTYPE = "str" if MODERN else "string[pyarrow]"
DATE = datetime.date(2024, 2, 29)
TIME = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)


def columns_of(batch: Batch, *, pairs: bool = False) -> list:
    """The columns of a batch as a reader hands them to `convert`."""
    arrays = iter(batch.arrays)
    out = []
    for field in batch.schema:
        values = next(arrays)
        if not field.nullable:
            out.append(values)
            continue
        validity = next(arrays)
        out.append((values, validity) if pairs else arrow_array(field, values, validity))
    return out


def as_frame(data, *, pairs: bool = False, **options) -> pd.DataFrame:
    batch = ingest(data)
    fields = list(batch.schema)
    return frame(batch.schema.names, fields, columns_of(batch, pairs=pairs), n_rows=batch.n_rows, **options)


def as_table(data, **options) -> pa.Table:
    batch = ingest(data)
    schema = arrow_schema(batch.schema, **options)
    return arrow_table(schema, list(batch.schema), [columns_of(batch)])


def address_of(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


class TestDtypes:
    def test_plain_fields_show_their_native_dtype(self):
        assert dtype_of(Field("x", np.dtype(">i4"))) == np.dtype("=i4")
        assert dtype_of(Field("x", np.dtype("<U3"))) == np.dtype("<U3")

    def test_nullable_fields_show_their_arrow_type(self):
        assert dtype_of(Field("x", np.dtype("<U3"), validity="v")) == pa.string()
        assert dtype_of(Field("x", np.dtype("<M8[us]"), validity="v", tz="UTC")) == pa.timestamp("us", "UTC")
        assert dtype_of(Field("x", np.dtype("<M8[D]"), validity="v")) == pa.date32()

    def test_listing_never_fails(self):
        assert dtype_of(Field("x", np.dtype("<M8[h]"), validity="v")) == np.dtype("<M8[h]")


class TestRecordArrays:
    def test_records_are_packed_in_order(self):
        columns = [
            np.array([1, 2], "i1"),
            np.array([1.5, 2.5]),
            np.array(["a", "bc"]),
            np.array([1, 2], "M8[s]"),
        ]
        records = recarray(["a", "b", "c", "d"], columns)
        assert records.dtype == np.dtype([("a", "i1"), ("b", "f8"), ("c", "U2"), ("d", "M8[s]")])
        assert records.dtype.itemsize == 1 + 8 + 8 + 8
        assert records.flags.writeable
        assert records.flags.owndata
        for name, column in zip("abcd", columns, strict=True):
            np.testing.assert_array_equal(records[name], column)

    @given(
        st.lists(st.sampled_from(["i1", "f8", "U3", "?", "S5", "m8[ns]"]), min_size=1, max_size=5),
        st.integers(0, 9),
    )
    def test_any_columns(self, dtypes, n_rows):
        columns = [np.arange(n_rows * 2).astype(d)[::2] for d in dtypes]
        records = recarray([str(i) for i in range(len(dtypes))], columns)
        assert records.shape == (n_rows,)
        for i, column in enumerate(columns):
            np.testing.assert_array_equal(records[str(i)], column)

    def test_big_table_uses_several_threads_worth_of_work(self):
        columns = [np.arange(200_000), np.arange(200_000, dtype="i4")]
        records = recarray(["a", "b"], columns)
        np.testing.assert_array_equal(records["b"], columns[1])

    def test_empty_name_and_no_columns(self):
        assert recarray([""], [np.zeros(2)]).dtype.names == ("",)
        assert recarray([], [], n_rows=3).shape == (3,)

    def test_refusals(self):
        with pytest.raises(ValueError, match="name"):
            recarray(["a", "a"], [np.zeros(2), np.zeros(2)])
        with pytest.raises(ValueError, match="different lengths"):
            recarray(["a", "b"], [np.zeros(2), np.zeros(3)])
        with pytest.raises(ValueError, match="'a' is nullable"):
            recarray(["a"], [pa.array([1])])


class TestFrames:
    def test_numpy_columns_are_shared_one_block_each(self):
        values = {c: np.arange(4.0) for c in "abc"}
        result = frame(list("abc"), [Field(c, values[c].dtype) for c in "abc"], list(values.values()))
        assert isinstance(result.index, pd.RangeIndex)
        assert list(result.columns) == ["a", "b", "c"]
        for c in "abc":
            assert address_of(result[c].to_numpy()) == address_of(values[c])
        result.loc[1, "b"] = 7.0
        assert values["b"][1] == 7.0

    def test_default_dtypes(self):
        result = as_frame(
            {
                "i": pd.array([1, None], dtype="Int32"),
                "u": pd.array([1, None], dtype="UInt8"),
                "b": pd.array([True, None], dtype="boolean"),
                "f": pd.array([1.5, None], dtype="Float64"),
                "s": pd.array(["a", None], dtype="string"),
                "y": pa.array([b"a", None]),
                "d": pa.array([DATE, None]),
                "t": pa.array([TIME, None], pa.timestamp("us", "Europe/Prague")),
                "U": np.array(["a", "b"]),
                "S": np.array([b"a", b"b"]),
                "z": pd.to_datetime(["2024", None]).as_unit("us").tz_localize("Europe/Prague"),
                "n": np.array(["2024", "NaT"], "M8[s]"),
            }
        )
        assert result.dtypes.astype(str).to_dict() == {
            "i": "Int32",
            "u": "UInt8",
            "b": "boolean",
            "f": "float64",
            "s": TEXT,
            "y": "binary[pyarrow]",
            "d": "date32[day][pyarrow]",
            "t": "timestamp[us, tz=Europe/Prague][pyarrow]",
            "U": TEXT if MODERN else "object",
            "S": "|S1",
            "z": "datetime64[us, Europe/Prague]",
            "n": "datetime64[s]",
        }
        assert result.isna().loc[1].to_dict() == {c: c not in "US" for c in result}
        assert result["z"][0] == pd.Timestamp("2024", tz="Europe/Prague")

    def test_numpy_nullable_backend(self):
        data = {
            "i": np.array([1, 2]),
            "f": np.array([1.5, np.nan]),
            "b": np.array([True, False]),
            "s": ["a", None],
        }
        result = as_frame(data, dtype_backend="numpy_nullable")
        assert result.dtypes.astype(str).tolist() == ["Int64", "Float64", "boolean", "string"]
        assert result["s"].isna().tolist() == [False, True]

    def test_pyarrow_backend(self):
        data = {
            "i": np.array([1, 2]),
            "s": ["a", None],
            "t": np.array([1, "NaT"], "M8[us]"),
            "h": np.zeros(2, "m8[h]"),
        }
        result = as_frame(data, dtype_backend="pyarrow")
        assert result.dtypes.astype(str).tolist() == [
            "int64[pyarrow]",
            "string[pyarrow]",
            "timestamp[us][pyarrow]",
            "timedelta64[s]",
        ]
        assert result["t"].isna().tolist() == [False, True]

    @pytest.mark.parametrize("pairs", [False, True])
    def test_pairs_and_arrow_arrays_give_the_same_frame(self, pairs):
        data = pd.DataFrame(
            {
                "i": pd.array([1, None, 3], dtype="Int64"),
                "b": pd.array([True, None, False], dtype="boolean"),
                "s": pd.array(["a", None, "é"], dtype=TEXT_DTYPE),
            }
        )
        result = as_frame(data, pairs=pairs)
        pd.testing.assert_frame_equal(result, data)
        result.loc[0, "i"] = 9
        result.loc[0, "b"] = pd.NA
        assert result["i"].tolist()[0] == 9

    def test_pairs_share_their_values_with_the_frame(self):
        values, validity = np.arange(3), np.array([True, False, True])
        result = frame(["x"], [Field("x", values.dtype, validity="v")], [(values, validity)])
        assert address_of(result["x"].array.to_numpy(dtype="i8", na_value=0)) != 0
        result.loc[0, "x"] = 7
        assert values[0] == 7
        assert result["x"].isna().tolist() == [False, True, False]

    def test_any_nonzero_companion_byte_is_a_value(self):
        validity = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
        for kind in ("i8", "?", "f8"):
            values = np.ones(4, kind)
            result = frame(["x"], [Field("x", values.dtype, validity="v")], [(values, validity)])
            assert result["x"].isna().tolist() == [True, False, False, False]

    def test_arrow_text_is_shared_with_the_frame(self):
        field = Field("s", np.dtype("<U3"), validity="v", logical="large_string")
        array = arrow_array(field, np.array(["a", "bcd"]), np.ones(2, bool))
        result = frame(["s"], [field], [array])
        held = result["s"].array.__arrow_array__().chunk(0)
        assert held.buffers()[2].address == array.buffers()[2].address

    def test_text_that_is_not_unicode_stays_as_objects(self):
        values = np.array(["a", "\ud800"])  # as another library may have stored it: ours refuses such text
        result = frame(["x"], [Field("x", values.dtype)], [values])
        assert result["x"].tolist() == ["a", "\ud800"]

    def test_labels(self):
        names = ["a", "", "\ud800", "é😀"]
        result = frame(names, [Field(n, np.dtype("i8")) for n in names], [np.arange(1)] * 4)
        assert list(result.columns) == names

    def test_no_columns_keeps_the_rows(self):
        assert frame([], [], [], n_rows=3).shape == (3, 0)

    def test_categories_on_request(self):
        data = {
            "c": pd.Categorical(["b", None, "a"], categories=["b", "a", "z"], ordered=True),
            "n": pd.Categorical([3, 1, 3]),
            "f": pd.Categorical([2.5, None, 1.5]),
            "p": np.arange(3),
        }
        result = as_frame(data, categories=True)
        pd.testing.assert_frame_equal(result[["c", "n"]], pd.DataFrame({"c": data["c"], "n": data["n"]}))
        assert result["f"].tolist()[::2] == [2.5, 1.5]
        assert result["f"].isna().tolist() == [False, True, False]
        assert result["p"].dtype == np.int64
        assert as_frame(data, categories=["n"]).dtypes.astype(str).tolist() == [
            TEXT,
            "category",
            "float64",
            "int64",
        ]

    def test_copy_false_is_kept_or_refused(self):
        values = np.arange(3.0)
        values.flags.writeable = False
        result = frame(["x"], [Field("x", values.dtype)], [values], copy=False)
        assert address_of(result["x"].to_numpy()) == address_of(values)
        with pytest.raises(ValueError, match="read-only"):
            result.loc[0, "x"] = 1.0
        for field in (
            Field("x", np.dtype("<U3")),
            Field("x", np.dtype("<M8[D]")),
            Field("x", np.dtype("<M8[us]"), tz="UTC"),
            Field("x", np.dtype("<i8"), validity="v"),
        ):
            with pytest.raises(ValueError, match="'x' cannot be in a frame without a copy"):
                frame(["x"], [field], [np.zeros(1, field.dtype)], copy=False)

    def test_refusals(self):
        field = Field("x", np.dtype("i8"))
        with pytest.raises(ValueError, match="cannot repeat"):
            frame(["x", "x"], [field, field], [np.arange(1)] * 2)
        with pytest.raises(ValueError, match="dtype_backend"):
            frame(["x"], [field], [np.arange(1)], dtype_backend="polars")
        with pytest.raises(ValueError, match="'t': pandas does not know the time zone"):
            frame(["t"], [Field("t", np.dtype("M8[us]"), tz="Mars/Base")], [np.zeros(1, "M8[us]")])

    def test_float16_passes_through(self):
        assert as_frame({"h": np.array([1.5], "f2")})["h"].dtype == np.float16


VALUES = {
    "Int64": st.integers(-(2**63), 2**63 - 1),
    "boolean": st.booleans(),
    "Float64": st.floats(allow_nan=False),
    TEXT_DTYPE: st.text(st.characters(exclude_categories=["Cs"]), max_size=4).filter(
        lambda s: s[-1:] != "\0"
    ),
    "date32[day][pyarrow]": st.dates(),
}


@settings(deadline=None)
@given(
    st.sampled_from(sorted(VALUES)).flatmap(lambda d: st.tuples(st.just(d), st.lists(st.none() | VALUES[d])))
)
def test_nullable_pandas_columns_survive(column):
    dtype, data = column
    dtype = pd.ArrowDtype(pa.date32()) if dtype.startswith("date") else dtype
    original = pd.DataFrame({"x": pd.array(data, dtype=dtype)})
    backend = "numpy_nullable" if dtype == "Float64" else None
    result = as_frame(original, dtype_backend=backend)
    if isinstance(dtype, pd.ArrowDtype) and not result["x"].isna().any():
        result = result.astype(dtype)  # a date column without nulls has no companion: it is NumPy
    pd.testing.assert_frame_equal(result, original)


class TestArrow:
    DATA = pa.table(
        {
            "i": pa.array([1, None, 3]),
            "s": pa.array(["a", None, "é😀"]),
            "b": pa.array([True, None, False]),
            "t": pa.array([TIME, None, TIME], pa.timestamp("ms", "Europe/Prague")),
            "d": pa.array([DATE, None, DATE]),
            "y": pa.array([b"a", None, b""]),
            "f": pa.array([1.5, None, 2.5]),
            "c": pa.array(["x", None, "x"]).dictionary_encode(),
        }
    )

    def test_table_survives(self):
        assert as_table(self.DATA).equals(self.DATA)

    def test_numpy_columns_are_shared(self):
        values = np.arange(5)
        table = as_table({"x": values})
        assert table["x"].chunk(0).buffers()[1].address == address_of(values)
        assert table.equals(pa.table({"x": values}))

    def test_nat_is_null(self):
        table = as_table({"t": np.array([1, "NaT"], "M8[us]")})
        assert table["t"].null_count == 1

    def test_one_chunk_per_batch(self):
        batch = ingest(self.DATA)
        fields = list(batch.schema)
        schema = arrow_schema(fields)
        table = arrow_table(schema, fields, [columns_of(batch), columns_of(batch, pairs=True)])
        assert table["i"].num_chunks == 2
        assert table.equals(pa.concat_tables([self.DATA, self.DATA]))
        assert arrow_table(schema, fields, []).equals(self.DATA.slice(0, 0))

    def test_categories_are_values_on_request(self):
        assert as_table(self.DATA, categories=False).schema.field("c").type == pa.string()

    def test_declared_not_null_comes_back_without_companions(self):
        batch = ingest({"i": [1], "s": ["a"], "n": [None, 1][1:], "t": np.zeros(1, "M8[s]")})
        fields = [*batch.schema, replace(batch.schema["i"], name="m", validity="v")]
        schema = arrow_schema(fields, declare_not_null=True)
        assert [f.nullable for f in schema] == [False, False, False, True, True]
        table = arrow_table(schema, fields, [[*columns_of(batch), pa.array([None], pa.int64())]])
        assert [f.nullable for f in ingest(table).schema] == [False, False, False, False, True]

    def test_wide_text_is_cut_before_offsets_overflow(self, monkeypatch):
        monkeypatch.setattr("colstore_io.convert._OFFSET_BYTES", 10)
        batch = ingest({"s": ["ab", None, "c", "d"], "i": [1, 2, 3, 4]})
        fields = list(batch.schema)
        for pairs in (False, True):
            table = arrow_table(arrow_schema(fields), fields, [columns_of(batch, pairs=pairs)])
            assert table["s"].num_chunks == 4
            assert table.to_pydict() == {"s": ["ab", None, "c", "d"], "i": [1, 2, 3, 4]}

    def test_type_without_an_arrow_twin_names_the_cast(self):
        with pytest.raises(TypeError, match=r"'x'.*cast"):
            as_table({"x": np.zeros(1, "M8[D]")})

    def test_name_that_is_not_unicode_is_refused(self):
        with pytest.raises(ValueError, match=r"name of column .* holds a lone surrogate"):
            arrow_schema([Field("\ud800", np.dtype("i8"))])

    def test_arrow_column_takes_every_form(self):
        field = Field("x", np.dtype("<i8"), validity="v", ordered=False)
        values, validity = np.array([1, 0]), np.array([True, False])
        for data in ((values, validity), arrow_array(field, values, validity)):
            assert arrow_column(field, data).to_pylist() == [1, None]
            assert pa.types.is_dictionary(arrow_column(field, data, categories=True).type)

    def test_what_can_be_shared(self):
        raw = np.zeros(17, np.uint8)
        assert arrow_can_share(raw[:16].view("i8"))
        assert not arrow_can_share(raw[1:].view("i8"))
        assert not arrow_can_share(np.zeros(2, ">i8"))
        assert not arrow_can_share(np.zeros(4)[::2])


class Exported:
    """What a reader is to other libraries: an object with a stream."""

    def __init__(self, data, n=2):
        self.batch = ingest(data)
        self.fields = list(self.batch.schema)
        self.schema = arrow_schema(self.fields)
        self.n = n
        self.read = 0

    def batches(self):
        for _ in range(self.n):
            self.read += 1
            yield columns_of(self.batch)

    def __arrow_c_schema__(self):
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema=None):
        return arrow_stream(self.schema, self.fields, self.batches, requested_schema)


class TestStreams:
    def test_accepted_by_the_libraries(self):
        exported = Exported(TestArrow.DATA)
        both = pa.concat_tables([TestArrow.DATA, TestArrow.DATA])
        assert pa.table(exported).equals(both)
        assert pa.RecordBatchReader.from_stream(exported).read_all().equals(both)
        assert pl.DataFrame(exported)["s"].to_list() == both["s"].to_pylist()
        if MODERN:
            assert pd.DataFrame.from_arrow(exported)["i"].isna().sum() == 2
        relation = duckdb.from_arrow(exported)
        assert relation.aggregate("sum(i), count(s)").fetchall() == [(8, 4)]
        assert relation.aggregate("sum(i), count(s)").fetchall() == [(8, 4)]

    def test_every_call_gives_a_fresh_stream(self):
        exported = Exported({"a": [1]})
        assert pa.table(exported).num_rows == pa.table(exported).num_rows == 2

    def test_batches_are_read_as_they_are_asked_for(self):
        exported = Exported({"a": [1]}, n=3)
        reader = pa.RecordBatchReader.from_stream(exported)
        assert exported.read == 0
        reader.read_next_batch()
        assert exported.read == 1

    def test_ingests_again(self):
        batch = ingest(Exported(TestArrow.DATA, n=1))
        first = ingest(TestArrow.DATA)
        assert batch.schema == first.schema
        for a, b in zip(batch.arrays, first.arrays, strict=True):
            np.testing.assert_array_equal(a, b)

    @pytest.mark.parametrize(
        ("have", "wish", "granted"),
        [
            (pa.string(), pa.large_string(), True),
            (pa.string(), pa.int64(), False),
            (pa.int32(), pa.int64(), True),
            (pa.uint32(), pa.int64(), True),
            (pa.int64(), pa.int32(), False),
            (pa.int32(), pa.uint64(), False),
            (pa.float32(), pa.float64(), True),
            (pa.int32(), pa.float64(), False),
            (pa.binary(3), pa.binary(), True),
            (pa.binary(), pa.binary(3), False),
            (pa.dictionary(pa.int32(), pa.string()), pa.string(), True),
            (pa.dictionary(pa.int32(), pa.string()), pa.large_string(), True),
            (pa.string(), pa.dictionary(pa.int32(), pa.string()), True),
            (pa.string(), pa.dictionary(pa.int8(), pa.int64()), False),
            (pa.date32(), pa.timestamp("s"), False),
        ],
        ids=str,
    )
    def test_requested_types_are_granted_when_nothing_is_lost(self, have, wish, granted):
        text, number = ("a", 3) if not pa.types.is_floating(have) else ("a", 1.5)
        binary = pa.types.is_binary(have) or pa.types.is_fixed_size_binary(have)
        textual = pa.types.is_string(have) or pa.types.is_dictionary(have)
        value = b"abc" if binary else text if textual else DATE if pa.types.is_date(have) else number
        exported = Exported(
            pa.table({"x": pa.array([value, None]).cast(have) if textual else pa.array([value, None], have)}),
            n=1,
        )
        assert exported.schema.field("x").type == have
        wanted = pa.schema([("x", wish)]).__arrow_c_schema__()
        reader = pa.RecordBatchReader._import_from_c_capsule(exported.__arrow_c_stream__(wanted))
        table = reader.read_all()
        assert table.schema.field("x").type == (wish if granted else have)
        assert table["x"].to_pylist() == [value, None]

    def test_request_for_other_columns_is_ignored(self):
        exported = Exported({"a": [1]}, n=1)
        wanted = pa.schema([("b", pa.int8())]).__arrow_c_schema__()
        reader = pa.RecordBatchReader._import_from_c_capsule(exported.__arrow_c_stream__(wanted))
        assert reader.read_all().to_pydict() == {"a": [1]}

    def test_error_of_a_batch_reaches_the_consumer(self):
        exported = Exported({"a": ["x"]})
        exported.batches = lambda: iter([[np.array(["\ud800"])]])
        with pytest.raises(Exception, match="lone surrogate"):
            pa.table(exported)


def test_import_of_the_package_brings_neither_pandas_nor_pyarrow():
    import subprocess
    import sys

    code = (
        "import sys; import colstore_io.convert, colstore_io.ingest, colstore_io.arrays; "
        "print([m for m in ('pandas', 'pyarrow', 'dask', 'xarray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
