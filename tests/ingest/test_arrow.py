"""Arrow data of any library become plain columns, nulls included, without an object per value."""

from __future__ import annotations

import datetime
import tracemalloc

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storable import assert_storable, one

from colstore_io.arrays import arrow_array
from colstore_io.errors import SchemaMismatchError
from colstore_io.ingest import ingest, ingest_stream
from colstore_io.ingest.arrow import values_from_arrow

DATE = datetime.date(2024, 2, 29)
TIME = datetime.datetime(2024, 2, 29, 12)

# Arrow type, a value, stored dtype, companion ("always", or only "if null"), logical
TABLE = [
    (pa.int8(), -1, "|i1", "always", None),
    (pa.int32(), -1, "<i4", "always", None),
    (pa.int64(), -1, "<i8", "always", None),
    (pa.uint16(), 1, "<u2", "always", None),
    (pa.uint64(), 2**64 - 1, "<u8", "always", None),
    (pa.bool_(), True, "|b1", "always", None),
    (pa.string(), "żółw", "<U4", "always", None),
    (pa.large_string(), "żółw", "<U4", "always", "large_string"),
    (pa.string_view(), "żółw", "<U4", "always", None),
    (pa.binary(), b"a\0b", "|S3", "always", "binary"),
    (pa.large_binary(), b"ab", "|S2", "always", "large_binary"),
    (pa.binary_view(), b"ab", "|S2", "always", "binary"),
    (pa.binary(3), b"ab\0", "|S3", "always", None),
    (pa.float16(), np.float16(1.5), "<f2", "if null", None),
    (pa.float32(), 1.5, "<f4", "if null", None),
    (pa.float64(), 1.5, "<f8", "if null", None),
    (pa.date32(), DATE, "<M8[D]", "if null", "date32"),
    (pa.date64(), DATE, "<M8[ms]", "if null", "date64"),
    (pa.timestamp("s"), TIME, "<M8[s]", "if null", None),
    (pa.timestamp("ns"), TIME, "<M8[ns]", "if null", None),
    (pa.duration("ms"), datetime.timedelta(1), "<m8[ms]", "if null", None),
]


@pytest.mark.parametrize(("kind", "value", "dtype", "companion", "logical"), TABLE, ids=lambda v: str(v))
class TestTypes:
    def test_stored_dtype_and_companion(self, kind, value, dtype, companion, logical):
        full = pa.array([value, value], kind)
        field, _, valid = one(full)
        assert (field.dtype.str, field.logical) == (dtype, logical)
        assert field.validity == ("x.valid" if companion == "always" else None)
        assert valid is None or valid.all()

        holey = pa.array([None, value, value, None], kind)
        field, _values, valid = one(holey)
        assert field.validity == "x.valid"
        assert valid.tolist() == [False, True, True, False]

    def test_companion_on_request(self, kind, value, dtype, companion, logical):
        assert one(pa.array([value], kind), nullable=True)[0].validity == "x.valid"

    def test_declared_not_null_has_no_companion(self, kind, value, dtype, companion, logical):
        schema = pa.schema([pa.field("x", kind, nullable=False)])
        batch = ingest(pa.table([pa.array([value], kind)], schema=schema))
        assert_storable(batch)
        assert not batch.schema["x"].nullable
        with pytest.raises(ValueError, match="'x' is declared not nullable"):
            ingest(pa.table([pa.array([value, None], kind)], schema=schema))

    def test_round_trip(self, kind, value, dtype, companion, logical):
        whole = pa.array([value, None, value, value, None, None, value, value, value, value, None], kind)
        for array in (whole, whole.slice(3, 7), whole.slice(9), whole.slice(2, 0), whole.slice(2, 2)):
            field, values, valid = one(array)
            back = arrow_array(field, values, valid)
            back.validate(full=True)
            assert back.to_pylist() == array.to_pylist()
            if kind not in (pa.string_view(), pa.binary_view()):
                assert back.type == kind

    def test_chunks_are_put_together(self, kind, value, dtype, companion, logical):
        chunked = pa.chunked_array([[value, None], [], [value]], kind)
        field, values, valid = one(chunked)
        assert arrow_array(field, values, valid).to_pylist() == [value, None, value]
        assert one(pa.chunked_array([], kind))[1].shape == (0,)

    def test_an_all_null_column_keeps_its_type(self, kind, value, dtype, companion, logical):
        field, values, valid = one(pa.nulls(3, kind))
        assert not valid.any()
        assert field.dtype.kind == np.dtype(dtype).kind
        back = arrow_array(field, values, valid)
        assert back.null_count == 3


def test_full_numbers_share_the_arrow_buffer():
    array = pa.array(range(10)).slice(2, 5)
    _, values, _ = one(array)
    assert values.tolist() == [2, 3, 4, 5, 6]
    assert values.ctypes.data == array.buffers()[1].address + 16


def test_null_type_is_nan():
    field, values, valid = one(pa.nulls(2))
    assert (field.dtype.str, valid) == ("<f8", None)
    assert np.isnan(values).all()
    field, values, valid = one(pa.nulls(2), like=ingest({"x": ["a", None]}).schema)
    assert valid.tolist() == [False, False]


def test_time_zone_is_kept():
    assert one(pa.array([TIME], pa.timestamp("us", "Europe/Prague")))[0].tz == "Europe/Prague"


def test_run_end_encoded_is_decoded():
    array = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None]))
    _field, values, valid = one(array)
    assert values.tolist() == ["a", "a", ""]
    assert valid.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (pa.decimal128(5, 2), "float64"),
        (pa.decimal256(5, 2), "float64"),
        (pa.time32("s"), "int64"),
        (pa.time64("ns"), "int64"),
        (pa.list_(pa.int8()), "flatten"),
        (pa.struct([("a", pa.int8())]), "flatten"),
        (pa.map_(pa.int8(), pa.int8()), "flatten"),
        (pa.month_day_nano_interval(), "cast"),
        (pa.fixed_shape_tensor(pa.int8(), [2]), "storage type"),
        (pa.dictionary(pa.int8(), pa.decimal128(5, 2)), "float64"),
    ],
    ids=str,
)
def test_types_without_a_place_are_refused_by_name(kind, advice):
    with pytest.raises(TypeError, match=f"'x' has Arrow type .*{advice}"):
        ingest(pa.schema([("x", kind)]).empty_table())


def test_zero_width_binary_is_widened():
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(0), 2, [None, pa.py_buffer(b"")])
    assert one(array)[0].dtype.str == "|S1"


def test_trailing_nul_is_refused_except_in_fixed_size_binary():
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view()):
        array = (
            pa.array([b"a\0"], pa.binary()).cast(kind) if kind == pa.string() else pa.array([b"a\0"], kind)
        )
        with pytest.raises(ValueError, match="'x': a value ends in a NUL"):
            one(array)
    assert one(pa.array([b"a\0"], pa.binary(2)))[1].tolist() == [b"a"]


def test_text_that_is_not_utf8_is_refused_by_name():
    for data, offsets in ((b"a\xff", [0, 1, 2]), ("é".encode(), [0, 1, 2])):
        array = pa.Array.from_buffers(
            pa.string(), 2, [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(data)]
        )
        for strings in ("unicode", "bytes"):
            with pytest.raises(ValueError, match="'x' holds text that is not valid UTF-8"):
                one(array, strings=strings)


def test_bytes_behind_a_null_do_not_matter():
    # Null slots of non-zero length, as some writers leave them.
    validity = pa.py_buffer(np.array([0b101], np.uint8))
    offsets = pa.py_buffer(np.array([0, 1, 9, 11], np.int32))
    array = pa.Array.from_buffers(
        pa.string(), 3, [validity, offsets, pa.py_buffer(b"a\xff\xff\xff\xff\xff\xff\xff\0bc")]
    )
    field, values, valid = one(array)
    assert (field.dtype.str, values.tolist(), valid.tolist()) == ("<U2", ["a", "", "bc"], [True, False, True])


def test_width_of_the_table_binds_arrow_text():
    like = ingest({"x": np.array(["abc", None], object)}).schema
    assert one(pa.array(["é", None]), like=like)[1].dtype.str == "<U3"
    with pytest.raises(SchemaMismatchError, match=r"'x': a value of 4 characters"):
        one(pa.array(["abcd"]), like=like)
    like = ingest({"x": pa.array([b"abc"])}).schema
    with pytest.raises(SchemaMismatchError, match=r"'x': a value of 4 bytes"):
        one(pa.array([b"abcd"]), like=like)


class TestDictionaries:
    def test_values_categories_and_order(self):
        array = pa.DictionaryArray.from_arrays(
            pa.array([1, None, 0], pa.int8()), ["lo", "high"], ordered=True
        )
        field, values, valid = one(array)
        assert (field.dtype.str, field.validity) == ("<U4", "x.valid")
        assert (field.categories, field.ordered) == (("lo", "high"), True)
        assert values.tolist() == ["high", "", "lo"]
        back = arrow_array(field, values, valid, categories=True)
        assert back.to_pylist() == ["high", None, "lo"]
        assert back.dictionary.to_pylist() == ["lo", "high"]

    @pytest.mark.parametrize(
        ("entries", "listed"),
        [
            (pa.array([3, 1], pa.uint8()), (3, 1)),
            (pa.array([True, False]), (True, False)),
            (pa.array(["a"], pa.string_view()), ("a",)),
            (pa.array([1.5]), None),
            (pa.array([DATE]), None),
            (pa.array([b"a"]), None),
            (pa.array(["a", None]), None),
        ],
        ids=lambda v: str(getattr(v, "type", "")),
    )
    def test_strings_integers_and_booleans_are_listed(self, entries, listed):
        field, _values, _valid = one(pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.uint32()), entries))
        assert field.categories == listed
        assert field.ordered is False
        assert field.validity == "x.valid"

    def test_more_than_64_kib_are_not_listed(self):
        small = pa.array([f"{i:08}" for i in range(5461)])  # 5461 * 12 = 65532 characters of JSON
        large = pa.array([f"{i:08}" for i in range(5462)])
        assert one(pa.DictionaryArray.from_arrays(pa.array([0]), small))[0].categories is not None
        field, values, _ = one(pa.DictionaryArray.from_arrays(pa.array([5461]), large))
        assert (field.categories, field.ordered) == (None, False)
        assert values.tolist() == ["00005461"]

    def test_null_in_the_dictionary_is_null(self):
        array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([None, 5]))
        _field, values, valid = one(array)
        assert valid.tolist() == [False, True, False]
        assert values.tolist() == [0, 5, 0]

    def test_empty_dictionary(self):
        array = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
        _field, _values, valid = one(array)
        assert valid.tolist() == [False, False]
        assert one(array.slice(0, 0))[1].shape == (0,)

    def test_chunks_with_other_dictionaries(self):
        chunks = [pa.array(["b", "a"]).dictionary_encode(), pa.array(["c", None, "a"]).dictionary_encode()]
        field, values, _valid = one(pa.chunked_array(chunks))
        assert field.categories == ("b", "a", "c")
        assert values.tolist() == ["b", "a", "c", "", "a"]

    def test_fixed_width_does_not_bind_unused_categories(self):
        array = pa.DictionaryArray.from_arrays(pa.array([0]), ["ab", "longer"])
        assert one(array)[0].dtype.str == "<U6"
        assert one(array, string_width={"x": 2})[1].tolist() == ["ab"]
        with pytest.raises(SchemaMismatchError):
            one(array, string_width={"x": 1})

    def test_value_outside_the_categories_of_the_table_is_refused(self):
        like = ingest({"x": pa.array(["a", "bc"]).dictionary_encode()}).schema
        assert one(pa.array(["bc", None]), like=like)[1].tolist() == ["bc", ""]
        for data in (pa.array(["b"]), pa.array(["b"]).dictionary_encode(), ["b"]):
            with pytest.raises(SchemaMismatchError, match="'x' holds 'b', which is none of the 2 categories"):
                one(data, like=like)


class TestOtherLibraries:
    def test_polars(self):
        frame = pl.DataFrame(
            {
                "s": ["a", None, "é"],
                "c": pl.Series(["x", "y", None], dtype=pl.Categorical),
                "e": pl.Series(["x", "y", "x"], dtype=pl.Enum(["y", "x"])),
                "d": [DATE, None, DATE],
                "t": [TIME, None, TIME],
                "b": [b"a", None, b"bc"],
                "n": [1, 2, None],
                "u": [None, None, None],
            }
        )
        batch = ingest(frame)
        assert_storable(batch)
        assert [f.dtype.str for f in batch.schema] == [
            "<U1",
            "<U1",
            "<U1",
            "<M8[D]",
            "<M8[us]",
            "|S2",
            "<i8",
            "<f8",
        ]
        assert batch.schema["e"].categories == ("y", "x")
        assert batch.schema["e"].ordered

    def test_polars_series_in_a_dict(self):
        _field, values, _valid = one(pl.Series(["a", None]))
        assert values.tolist() == ["a", ""]
        with pytest.raises(TypeError, match="'x' has Arrow type time64"):
            one(pl.Series([datetime.time(1)]))

    def test_duckdb(self):
        relation = duckdb.sql("select i::int as i, 'v' || i as s, date '2024-02-29' as d from range(5) t(i)")
        batch = ingest(relation)
        assert_storable(batch)
        assert batch.arrays[0].tolist() == [0, 1, 2, 3, 4]
        assert batch.schema.names == ["i", "s", "d"]
        with pytest.raises(TypeError, match="'x' has Arrow type decimal"):
            ingest(duckdb.sql("select 1.5 as x"))

    def test_record_batch_struct_array_and_reader(self):
        table = pa.table({"a": [1, None], "b": ["x", "y"]})
        for data in (
            table,
            table.to_batches()[0],
            table.to_struct_array().combine_chunks(),
            table.to_reader(),
        ):
            batch = ingest(data)
            assert_storable(batch)
            assert [a.tolist() for a in batch.arrays] == [[1, 0], [True, False], ["x", "y"], [True, True]]

    @pytest.mark.parametrize(
        "data", [pa.array([1]), pa.chunked_array([[1]]), pl.Series([1])], ids=lambda v: type(v)
    )
    def test_a_single_column_is_no_table(self, data):
        with pytest.raises(TypeError, match=r"it is one column, pass \{'name': data\}"):
            ingest(data)

    def test_duplicate_names_are_refused(self):
        with pytest.raises(ValueError, match="two columns have the name 'a'"):
            ingest(pa.table([[1], [2]], names=["a", "a"]))


SCALARS = st.one_of(
    st.tuples(st.just(pa.int64()), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20)),
    st.tuples(st.just(pa.bool_()), st.lists(st.none() | st.booleans(), max_size=20)),
    st.tuples(st.just(pa.float64()), st.lists(st.none() | st.floats(allow_nan=False), max_size=20)),
    st.tuples(
        st.sampled_from([pa.string(), pa.large_string()]),
        st.lists(
            st.none()
            | st.text(st.characters(exclude_categories=["Cs"]), max_size=5).filter(lambda s: s[-1:] != "\0"),
            max_size=20,
        ),
    ),
    st.tuples(
        st.just(pa.binary()), st.lists(st.none() | st.binary(max_size=5).filter(lambda s: s[-1:] != b"\0"))
    ),
    st.tuples(st.just(pa.date32()), st.lists(st.none() | st.dates(), max_size=20)),
)


@settings(deadline=None)
@given(SCALARS, st.integers(0, 5), st.integers(0, 20), st.sampled_from([1, 2, 3]), st.booleans())
def test_any_arrow_column_survives(column, offset, length, chunks, encoded):
    kind, data = column
    array = pa.array(data, kind)
    if encoded and not pa.types.is_floating(kind):
        array = array.dictionary_encode()
    array = array.slice(offset, length)
    chunked = pa.chunked_array([array] * chunks)
    field, values, valid = one(chunked)
    back = arrow_array(field, values, valid)
    back.validate(full=True)
    assert back.type == kind
    assert back.to_pylist() == chunked.to_pylist()


def test_a_million_strings_make_no_objects():
    array = pa.array(np.arange(1_000_000).astype("U7"))
    tracemalloc.start()
    column = values_from_arrow(array)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert column.values[-1] == "999999"
    # 24 MB of values, 8 of lengths, one block; a million str objects would be 55 MB more.
    assert peak < 24e6 + 16e6


class NoNumber:
    pass


def both(data):
    """Return the two ways of taking `data`."""
    return [lambda: ingest(data), lambda: list(ingest_stream(data))]


@pytest.mark.parametrize("dtype", [pl.Object, pl.Int128])
def test_polars_types_that_arrow_cannot_carry_are_refused_by_name(dtype):
    values = [NoNumber()] if dtype == pl.Object else [1]
    frame = pl.DataFrame({"k": [1], "o": pl.Series(values, dtype=dtype)})
    for take in [*both(frame), lambda: ingest({"o": frame["o"]})]:
        with pytest.raises(TypeError, match=f"'o' has Polars type {dtype}"):
            take()


def test_unions_are_refused_by_name():
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    for data in (pa.table({"u": union}), pa.table({"u": pa.chunked_array([union, union])})):
        for take in both(data):
            with pytest.raises(TypeError, match="column 'u' has Arrow type sparse_union"):
                take()


def test_bytes_of_width_zero_keep_rows_and_nulls():
    table = pa.table({"a": pa.chunked_array([[b""], [None, b""]], pa.binary(0))})
    for batch in (ingest(table), *ingest_stream(table.combine_chunks())):
        assert [array.tolist() for array in batch.arrays] == [[b""] * 3, [True, False, True]]
    assert [batch.n_rows for batch in ingest_stream(table)] == [1, 2]


@pytest.mark.parametrize("width", [2**40, 2**31, 2**31 - 1])
@pytest.mark.parametrize("data", [["a"], np.array(["a"]), pa.array(["a"])], ids=["list", "numpy", "arrow"])
def test_a_width_that_no_item_can_have_is_refused_before_memory_is_asked_for(data, width):
    with pytest.raises(ValueError, match="column 's'"):
        ingest({"s": data}, string_width={"s": width})
