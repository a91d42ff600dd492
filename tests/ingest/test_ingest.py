"""What users hand in becomes plain columns, row by row of the table of cstore-behaviour.md 6.1."""

from __future__ import annotations

import datetime
import decimal
import pathlib
import tracemalloc

import numpy as np
import pandas
import pyarrow
import pyarrow.dataset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storable import assert_storable, one

from colstore_io.errors import ColumnNotFoundError, SchemaMismatchError
from colstore_io.fields import Field, Schema
from colstore_io.ingest import companion_name, ingest

STRING = np.dtypes.StringDType


class TestNumPy:
    DTYPES = (
        "f2",
        "f4",
        "f8",
        "g",
        "i1",
        "i8",
        "u1",
        "u8",
        "?",
        "M8[s]",
        "M8[25s]",
        "m8[ns]",
        "m8",
        "S3",
        "U2",
    )

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_native_contiguous_array_passes_through_without_a_copy(self, dtype):
        values = np.zeros(5, dtype)
        field, stored, companion = one(values)
        assert np.shares_memory(stored, values)
        assert (field.dtype, companion) == (values.dtype, None)
        assert field == Field("x", values.dtype)

    def test_big_endian_becomes_little_endian(self):
        for dtype in (">i4", ">f8", ">M8[us]", ">U3"):
            values = np.array([1, 2, 3]).astype(dtype)
            field, stored, _ = one(values)
            assert field.dtype.str == "<" + dtype[1:]
            assert stored.tolist() == values.tolist()

    def test_strided_and_readonly_arrays(self):
        values = np.arange(10)[::-2]
        assert one(values)[1].tolist() == [9, 7, 5, 3, 1]
        values.flags.writeable = False
        assert one(values)[1].tolist() == [9, 7, 5, 3, 1]

    def test_zero_width_text_is_widened_to_one(self):
        assert one(np.array(["", ""], "U0"))[0].dtype.str == "<U1"
        assert one(np.array([b"", b""]).astype("S0"))[0].dtype.str == "|S1"
        assert one(np.zeros(3, np.dtype([("a", "S0")]))["a"])[0].dtype.str == "|S1"

    @pytest.mark.parametrize("bad", ["a\ud800", "\udfff", "\U0001f600\udc80b"])
    def test_lone_surrogates_are_refused_by_column_and_row(self, bad):
        for values in (
            np.array(["ok", "\ufb01", bad, bad]),
            ["ok", "", bad],
            np.array(["ok", "a", bad], ">U9"),
        ):
            with pytest.raises(ValueError, match="column 'x' holds a lone surrogate in row 2"):
                one(values)
        many = np.full(2_000_000, "\uffff")
        many[1_500_000] = bad[0] if len(bad) == 1 else "\ud800"
        with pytest.raises(ValueError, match="lone surrogate in row 1500000"):
            one(many)
        good = ["\ud7ff", "\ue000", "\U0010ffff", "\U0001d800"]
        assert one(np.array(good))[1].tolist() == good

    @pytest.mark.parametrize(
        "values",
        [
            np.zeros(2, complex),
            np.zeros(2, "V4"),
            np.zeros(2, [("a", "i4")]),
        ],
    )
    def test_kinds_that_no_file_holds_are_refused_by_name(self, values):
        with pytest.raises(TypeError, match="'x'"):
            one(values)

    def test_more_than_one_dimension_is_a_value_error(self):
        for values in (
            np.zeros((2, 2)),
            [[1, 2], [3, 4]],
            np.zeros((1, 1), object),
            np.zeros((2, 1), STRING()),
        ):
            with pytest.raises(ValueError, match="'x' has 2 dimensions"):
                one(values)


class TestMaskedArrays:
    def test_integers_bools_and_text_always_have_a_companion(self):
        for data in ([1, 2], [True, False], ["a", "b"], [b"a", b"b"]):
            field, values, companion = one(np.ma.masked_array(data))
            assert field.validity == "x.valid"
            assert companion.tolist() == [True, True]
            field, values, companion = one(np.ma.masked_array(data, mask=[True, False]))
            assert companion.tolist() == [False, True]
            assert values[1] == data[1]

    def test_floats_and_times_have_one_if_something_is_masked(self):
        for data in ([1.5, np.nan], np.array([1, 2], "M8[s]")):
            assert one(np.ma.masked_array(data))[2] is None
            assert one(np.ma.masked_array(data, mask=[True, False]))[2].tolist() == [False, True]

    def test_the_array_of_the_user_is_not_changed(self):
        data = np.ma.masked_array([7, 8], mask=[True, False])
        one(data)
        assert data.data.tolist() == [7, 8]

    def test_structured(self):
        data = np.ma.masked_array([(1, 2.0), (3, 4.0)], mask=[(True, False), (False, False)], dtype="i4,f4")
        batch = ingest(data)
        assert_storable(batch)
        assert [f.validity for f in batch.schema] == ["f0.valid", None]
        assert batch.arrays[0].tolist() == [0, 3]

    def test_objects(self):
        _field, values, companion = one(np.ma.masked_array(["a", 3], mask=[False, True], dtype=object))
        assert values.tolist() == ["a", ""]
        assert companion.tolist() == [True, False]


class TestStringDType:
    def test_text_of_variable_width_always_has_a_companion(self):
        field, values, companion = one(np.array(["a", "", "żółw😀"], STRING()))
        assert (field.dtype.str, field.validity, field.logical) == ("<U5", "x.valid", None)
        assert values.tolist() == ["a", "", "żółw😀"]
        assert companion.tolist() == [True, True, True]

    @pytest.mark.parametrize("na", [None, np.nan])
    def test_its_missing_value_is_null(self, na):
        _field, values, companion = one(np.array(["a", na], STRING(na_object=na)))
        assert values.tolist() == ["a", ""]
        assert companion.tolist() == [True, False]

    def test_trailing_nul_is_refused(self):
        with pytest.raises(ValueError, match="'x': a value ends in a NUL"):
            one(np.array(["a", "b\0"], STRING()))

    def test_bytes(self):
        field, values, _ = one(np.array(["é"], STRING()), strings="bytes")
        assert (field.dtype.str, field.logical) == ("|S2", "string")
        assert values[0] == "é".encode()


class TestSequencesAndScalars:
    def test_lists_are_what_numpy_makes_of_them(self):
        batch = ingest({"i": [1, 2], "f": (1.5, 2), "b": [True, False], "s": ["a", "bcd"], "y": [b"a", b""]})
        assert_storable(batch)
        assert [f.dtype.str for f in batch.schema] == ["<i8", "<f8", "|b1", "<U3", "|S1"]
        # Nothing but plain columns: the file has the bytes that the reference writes.
        assert all(f == Field(f.name, f.dtype) for f in batch.schema)

    def test_scalars_become_length_one(self):
        batch = ingest(
            {"i": 5, "s": "abc", "f": np.float32(1.5), "t": np.datetime64("2024-01-01", "s"), "y": b"xy"}
        )
        assert batch.n_rows == 1
        assert [f.dtype.str for f in batch.schema] == ["<i8", "<U3", "<f4", "<M8[s]", "|S2"]

    def test_anything_with_an_array_interface(self):
        class Lazy:
            def __array__(self, dtype=None, copy=None):
                return np.arange(3)

        assert one(Lazy())[1].tolist() == [0, 1, 2]
        assert one(range(3))[1].tolist() == [0, 1, 2]
        assert one(memoryview(b"ab"))[1].tolist() == [97, 98]

    @pytest.mark.parametrize("text", ["b\0", b"b\0"])
    def test_trailing_nul_is_refused_before_numpy_cuts_it(self, text):
        with pytest.raises(ValueError, match="'x': a value ends in a NUL"):
            one([type(text)(), text] if isinstance(text, bytes) else ["", text])
        with pytest.raises(ValueError, match="'x': a value ends in a NUL"):
            one(text)

    def test_ragged_list_is_a_value_error(self):
        with pytest.raises(ValueError, match="'x' is a ragged"):
            one([[1], [2, 3]])

    def test_numbers_and_text_do_not_mix(self):
        with pytest.raises(TypeError, match="'x' mixes"):
            one([1, "a"])


class TestObjects:
    """Row 3 of the table: objects of one kind, a companion only where one is missing."""

    TZ = datetime.timezone(datetime.timedelta(hours=2))
    CASES = (
        (["a", "bcd"], "<U3", None),
        ([b"a", b"b\0d"], "|S3", "binary"),
        ([1, -5], "<i8", None),
        ([1, 2**63], "<u8", None),
        ([True, False], "|b1", None),
        ([1.5, np.nan], "<f8", None),
        ([1, 2.5], "<f8", None),
        ([datetime.date(1, 1, 1), datetime.date(9999, 12, 31)], "<M8[D]", "date32"),
        ([datetime.datetime(2024, 1, 1, 1), datetime.datetime(1, 1, 1)], "<M8[us]", None),
        ([datetime.timedelta(1), datetime.timedelta(-1)], "<m8[us]", None),
        ([np.datetime64("2024", "Y"), np.datetime64("2024-01-01", "D")], "<M8[D]", None),
    )

    @pytest.mark.parametrize(("data", "dtype", "logical"), CASES)
    def test_one_kind(self, data, dtype, logical):
        objects = np.empty(len(data), object)
        objects[:] = data
        field, values, companion = one(objects)
        assert (field.dtype.str, field.logical, companion) == (dtype, logical, None)
        np.testing.assert_array_equal(values, np.array(data, dtype))

    @pytest.mark.parametrize(("data", "dtype", "logical"), CASES)
    def test_with_none(self, data, dtype, logical):
        field, values, companion = one([None, *data])
        assert (field.dtype.str, field.logical, field.validity) == (dtype, logical, "x.valid")
        assert companion.tolist() == [False] + [True] * len(data)
        np.testing.assert_array_equal(values[1:], np.array(data, dtype))

    def test_nan_is_missing_among_everything_but_numbers(self):
        for value in ("a", b"a", True, datetime.date(2024, 1, 1)):
            assert one(np.array([value, np.nan], object))[2].tolist() == [True, False]
        field, _values, companion = one(np.array([1, np.nan], object))
        assert field.dtype.str == "<f8"
        assert companion is None

    def test_aware_datetimes_keep_their_zone_and_are_stored_as_utc(self):
        field, values, _ = one([datetime.datetime(2024, 1, 1, 1, tzinfo=self.TZ), None])
        assert (field.tz, field.dtype.str) == ("+02:00", "<M8[us]")
        assert values[0] == np.datetime64("2023-12-31T23:00")

    def test_all_missing_without_a_type_is_nan(self):
        for data in ([None, None], [None, np.nan], None):
            field, values, companion = one(data)
            assert (field.dtype.str, companion) == ("<f8", None)
            assert np.isnan(values).all()

    def test_no_rows_is_text(self):
        assert one(np.array([], object))[0].dtype.str == "<U1"

    def test_companion_of_a_list_on_request(self):
        assert one([1, 2], nullable=True)[0].validity == "x.valid"
        assert one(["a"], nullable=["x"])[0].validity == "x.valid"
        assert one(np.array([1, 2]), nullable=True)[0].validity is None

    @pytest.mark.parametrize(
        "data",
        [
            [1, "a"],
            ["a", b"a"],
            [True, 1],
            ["a", 1.5],
            [datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1)],
            [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=TZ)],
            [decimal.Decimal("1.5")],
            [datetime.time(1)],
            [{"a": 1}],
            [object()],
            [1j, None],
            [2**64],
            [-1, 2**63],
            [2**60 + 1, 0.5],
        ],
    )
    def test_mixed_and_other_objects_are_refused_by_name(self, data):
        objects = np.empty(len(data), object)
        objects[:] = data
        with pytest.raises(TypeError, match="'x'"):
            one(objects)
        with pytest.raises(TypeError, match="'x'"):
            one(objects, nullable=True)

    def test_lists_in_objects_are_refused(self):
        objects = np.empty(1, object)
        objects[0] = [1]
        with pytest.raises(TypeError, match=r"'x' holds objects of type list"):
            one(objects)

    def test_lone_surrogate_is_an_error_naming_the_column(self):
        with pytest.raises(ValueError, match="'x' holds a lone surrogate in row 1"):
            one(np.array(["a", "\ud800"], object))
        with pytest.raises(ValueError, match="'x' holds a lone surrogate in row 1"):
            one(["a", "\ud800", None])


class TestTextOptions:
    def test_bytes_are_utf8(self):
        field, values, _ = one(np.array(["a", "é😀"], object), strings="bytes")
        assert (field.dtype.str, field.logical) == ("|S6", "string")
        assert [v.decode() for v in values] == ["a", "é😀"]
        assert one(["é"], strings="bytes")[0].dtype.str == "|S2"
        assert one(np.array(["é"]), strings="bytes")[0].dtype.str == "<U1"

    def test_width_is_at_least_one(self):
        assert one(np.array(["", None], object))[0].dtype.str == "<U1"

    @pytest.mark.parametrize("data", [["é", "ab"], np.array(["é", "ab"]), np.array(["é", "ab"], object)])
    def test_string_width_fixes_the_width(self, data):
        assert one(data, string_width={"x": 7})[0].dtype.str == "<U7"
        assert one(data, string_width={"x": 2})[1].tolist() == ["é", "ab"]
        with pytest.raises(
            SchemaMismatchError, match=r"'x': a value of 2 characters.*string_width=\{'x': 2\}"
        ):
            one(data, string_width={"x": 1})

    def test_string_width_counts_bytes_of_bytes(self):
        assert one(["é"], strings="bytes", string_width={"x": 2})[0].dtype.str == "|S2"
        with pytest.raises(SchemaMismatchError, match="2 bytes"):
            one(["é"], strings="bytes", string_width={"x": 1})
        assert one([b"ab"], string_width={"x": 4})[0].dtype.str == "|S4"

    @pytest.mark.parametrize(
        ("width", "error"),
        [({"x": 0}, ValueError), ({"x": True}, TypeError), ({"x": 1.5}, TypeError), (3, TypeError)],
    )
    def test_bad_widths(self, width, error):
        with pytest.raises(error, match="string_width"):
            one(["a"], string_width=width)

    def test_options_that_name_no_column(self):
        for options in ({"string_width": {"y": 3}}, {"nullable": ["y"]}):
            with pytest.raises(ColumnNotFoundError, match="'y'"):
                one(["a"], **options)
        with pytest.raises(ValueError, match="string_width names column 'x', which holds int64"):
            one([1], string_width={"x": 3})
        with pytest.raises(ValueError, match="strings must be"):
            one(["a"], strings="utf8")


class TestTables:
    def test_structured_array_gives_a_column_per_field(self):
        data = np.array([(1, "a", 2.5), (2, "bc", 3.5)], [("i", ">i2"), ("s", "U2"), ("f", "f8")])
        batch = ingest(data)
        assert_storable(batch)
        assert batch.schema.names == ["i", "s", "f"]
        assert [a.tolist() for a in batch.arrays] == [[1, 2], ["a", "bc"], [2.5, 3.5]]
        assert ingest(data[0:1].reshape(())).n_rows == 1
        assert ingest(data.view(np.recarray)).n_rows == 2

    def test_sub_array_field_is_a_value_error(self):
        with pytest.raises(ValueError, match="'a' has 2 dimensions"):
            ingest(np.zeros(3, [("a", "f4", (2,))]))

    def test_two_dimensional_structured_array_is_a_value_error(self):
        with pytest.raises(ValueError, match="one-dimensional"):
            ingest(np.zeros((2, 2), [("a", "f4")]))

    def test_names_go_through_str_and_may_not_collide(self):
        assert ingest({1: [1], None: [2]}).schema.names == ["1", "None"]
        with pytest.raises(ValueError, match="two columns have the name '1'"):
            ingest({1: [1], "1": [2]})

    def test_no_columns_is_a_value_error(self):
        for data in ({}, np.zeros(3, np.dtype([]))):
            with pytest.raises(ValueError, match="no columns"):
                ingest(data)

    def test_ragged_lengths_are_a_value_error(self):
        with pytest.raises(ValueError, match="'a' has 2 rows, 'c' has 1"):
            ingest({"a": [1, 2], "b": [1, 2], "c": 1})

    def test_no_rows(self):
        batch = ingest({"a": np.empty(0, "f4"), "b": []})
        assert batch.n_rows == 0

    @pytest.mark.parametrize(
        "data", [5, "abc", b"abc", None, [1, 2], ({"a": [1]},), np.arange(3), object(), {1, 2}]
    )
    def test_what_is_no_table_is_a_type_error(self, data):
        with pytest.raises(TypeError, match="cannot store"):
            ingest(data)

    def test_a_stream_is_no_table(self):
        with pytest.raises(TypeError, match="stream"):
            ingest(iter([{"a": [1]}]))

    def test_a_batch_passes_through(self):
        batch = ingest({"a": [1]})
        assert ingest(batch) is batch

    def test_companion_takes_the_first_free_name(self):
        batch = ingest({"n": [1, None], "n.valid": [1, 2], "n.valid2": [None, 1]})
        assert [f.validity for f in batch.schema] == ["n.valid3", None, "n.valid2.valid"]
        assert companion_name("n", {"n"}) == "n.valid"

    def test_requested_companion_takes_nat_for_null(self):
        _field, values, companion = one(np.array(["NaT", "2024"], "M8[s]"), nullable=["x"])
        assert companion.tolist() == [False, True]
        assert values.view("i8")[0] == 0

    @pytest.mark.parametrize("dtype", ["M8[h]", "m8[m]", "g", "M8[10us]"])
    def test_companion_of_a_type_that_arrow_lacks_is_refused(self, dtype):
        with pytest.raises(TypeError, match=r"'x' of dtype .* cannot be nullable"):
            one(np.zeros(2, dtype), nullable=["x"])


class TestFittingATable:
    def like(self, **columns):
        return ingest(columns).schema

    def test_result_has_exactly_the_schema_of_the_table(self):
        like = ingest({"s": np.array(["abcde", None], object), "n": [1, None], "f": [1.5, 2]}).schema
        batch = ingest({"s": ["x"], "n": np.array([3]), "f": [2.0]}, like=like)
        assert_storable(batch)
        assert batch.schema is like
        assert [a.tolist() for a in batch.arrays] == [["x"], [True], [3], [True], [2.0]]
        assert batch.arrays[0].dtype.str == "<U5"

    def test_longer_text_names_the_column_and_the_option(self):
        like = self.like(s=["ab"])
        for data in (["abc"], np.array(["abc"]), np.array(["abc"], object), np.array(["abc"], STRING())):
            with pytest.raises(
                SchemaMismatchError, match=r"'s': a value of 3 characters.*string_width=\{'s': 3\}"
            ):
                ingest({"s": data}, like=like)

    def test_wider_numpy_dtype_with_short_values_fits(self):
        like = self.like(s=["ab"])
        assert ingest({"s": np.array(["a"], "U9")}, like=like).arrays[0].dtype.str == "<U2"

    def test_streaming_writers_compare_numpy_text_exactly(self):
        like = self.like(s=["ab"])
        for width in (1, 3):
            with pytest.raises(SchemaMismatchError, match=f"'s' has dtype <U{width}, the table has <U2"):
                ingest({"s": np.array(["a"], f"U{width}")}, like=like, exact_numpy_strings=True)
        for data in (["a"], np.array(["a"], object), np.array(["a"], "U2"), np.array(["a"], ">U2")):
            assert ingest({"s": data}, like=like, exact_numpy_strings=True).n_rows == 1

    def test_utf8_tables_take_text(self):
        like = ingest({"s": ["éé"]}, strings="bytes").schema
        assert ingest({"s": ["é"]}, like=like).arrays[0].tolist() == ["é".encode()]
        with pytest.raises(SchemaMismatchError, match="5 bytes"):
            ingest({"s": ["éé!"]}, like=like)

    def test_text_is_not_put_into_bytes(self):
        like = self.like(s=[b"abcd"])
        with pytest.raises(SchemaMismatchError, match="'s' holds text"):
            ingest({"s": np.array(["ab"], object)}, like=like)

    def test_nulls_without_a_companion_name_the_option(self):
        like = self.like(n=[1, 2])
        for data in ([1, None], np.ma.masked_array([1, 2], mask=[True, False])):
            with pytest.raises(SchemaMismatchError, match=r"'n' holds nulls.*nullable=\['n'\]"):
                ingest({"n": data}, like=like)
        batch = ingest({"n": np.ma.masked_array([1, 2])}, like=like)
        assert len(batch.arrays) == 1

    def test_values_without_a_type_take_the_type_of_the_table(self):
        like = ingest(
            {"s": ["ab", None], "n": [1, None], "f": [0.5, 1.0], "t": [datetime.date(2024, 1, 1), None]}
        )
        batch = ingest({"s": [None], "n": None, "f": [None], "t": np.array([None])}, like=like.schema)
        assert_storable(batch)
        assert [a.tolist() for a in batch.arrays[1::2][:1]] == [[False]]
        with pytest.raises(SchemaMismatchError, match="'n' holds nulls"):
            ingest({"n": [None]}, like=self.like(n=[1]))
        assert ingest({"n": np.array([], object)}, like=self.like(n=[1])).arrays[0].dtype.str == "<i8"

    def test_dtypes_must_agree(self):
        with pytest.raises(SchemaMismatchError, match=r"'n' has dtype <f8, the table has <i8; cast"):
            ingest({"n": [1.5]}, like=self.like(n=[1]))
        with pytest.raises(SchemaMismatchError, match=r"'n' has dtype <i4, the table has <i8"):
            ingest({"n": np.zeros(1, "i4")}, like=self.like(n=[1]))
        assert ingest({"n": np.zeros(1, ">i8")}, like=self.like(n=[1])).n_rows == 1

    def test_big_endian_tables_cannot_be_appended_to(self):
        like = Schema((Field("n", np.dtype(">i4")),))
        with pytest.raises(SchemaMismatchError, match="<i4, the table has >i4"):
            ingest({"n": np.zeros(1, ">i4")}, like=like)

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ({"a": [1]}, "the data have 1 columns, the table has 2 .missing: 'b'"),
            ({"a": [1], "b": [1], "c": [1]}, "the data have 3 columns, the table has 2 .unexpected: 'c'"),
            ({"a": [1], "c": [1]}, "column 1 is 'c', the table has 'b' there"),
            ({"b": [1], "a": [1]}, "column 0 is 'b', the table has 'a' there; .*another order"),
        ],
    )
    def test_names_must_agree_in_number_and_order(self, data, message):
        with pytest.raises(SchemaMismatchError, match=message):
            ingest(data, like=self.like(a=[1], b=[2]))

    def test_zones_do_not_mix_with_naive_times(self):
        aware = [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)]
        naive = [datetime.datetime(2024, 1, 1)]
        with pytest.raises(
            SchemaMismatchError, match="the table has the time zone 'UTC', the data have none"
        ):
            ingest({"t": naive}, like=self.like(t=aware))
        with pytest.raises(
            SchemaMismatchError, match="the data have the time zone 'UTC', the table has none"
        ):
            ingest({"t": aware}, like=self.like(t=naive))
        # A NumPy array is what is stored: UTC.
        assert ingest({"t": np.array(["2024"], "M8[us]")}, like=self.like(t=aware)).n_rows == 1

    def test_a_batch_is_fitted_too(self):
        like = ingest({"s": ["abc", None], "n": [1, None]}).schema
        batch = ingest({"s": ["a"], "n": [1]})
        fitted = ingest(batch, like=like)
        assert_storable(fitted)
        assert fitted.schema is like
        with pytest.raises(SchemaMismatchError, match="'n' holds nulls"):
            ingest(ingest({"n": [None, 1]}), like=self.like(n=[1]))


@settings(deadline=None)  # the first example imports pyarrow
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5).map(lambda s: s.rstrip("\0"))
        | st.none(),
        max_size=15,
    ),
    st.sampled_from(["unicode", "bytes"]),
)
def test_text_survives_ingest(values, strings):
    objects = np.array(values, object)
    field, stored, companion = one(objects, strings=strings)
    if field.dtype.kind == "f":
        assert all(v is None for v in values)
        return
    texts = [v.decode() if isinstance(v, bytes) else v for v in stored.tolist()]
    valid = [True] * len(values) if companion is None else companion.tolist()
    assert [t if v else None for t, v in zip(texts, valid, strict=True)] == values


def test_a_million_strings_make_no_objects_of_their_own():
    words = np.arange(1_000_000).astype("U7").astype(STRING())
    tracemalloc.start()
    batch = ingest({"s": words})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert batch.schema["s"].dtype.str == "<U6"
    # 24 MB of values, the lengths, one block; a million str objects would be 55 MB more.
    assert peak < 24e6 + 24e6


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ("t.parquet", r"colstore_io\.open\(path\)"),
        (pathlib.Path("t.parquet"), r"to_batches\(\) for Parquet"),
        (pyarrow.dataset.dataset(pyarrow.table({"x": [1]})), r"\.to_batches\(\)"),
        ([pyarrow.table({"x": [1]})], r"iter\(\.\.\.\)"),
    ],
)
def test_what_is_not_stored_says_what_is(data, hint):
    with pytest.raises(TypeError, match=hint):
        ingest(data)


def test_dask_frames_are_sent_to_their_writer():
    dd = pytest.importorskip("dask.dataframe")
    with pytest.raises(TypeError, match=r"dask\.to_colstore\(frame, directory\)"):
        ingest(dd.from_pandas(pandas.DataFrame({"x": [1]}), npartitions=1))
