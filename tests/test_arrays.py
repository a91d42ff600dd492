"""Stored columns become Arrow arrays from their buffers: same values, shared memory, no object per value."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colstore_io.arrays import arrow_array, arrow_type, is_utf8
from colstore_io.fields import Field

# Anything that <U and Arrow can both hold: no surrogates, and no NUL at the end (that is padding).
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(lambda s: s.rstrip("\0"))


def field_of(values: np.ndarray, **members: object) -> Field:
    return replace(Field("x", values.dtype), **members)  # type: ignore[arg-type]


def address_of(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
def test_numbers_are_shared_with_arrow(dtype):
    values = np.arange(10).astype(dtype)
    array = arrow_array(field_of(values), values)
    assert array.type == pa.from_numpy_dtype(values.dtype)
    assert array.buffers()[1].address == address_of(values)
    assert array.buffers()[0] is None
    assert array.to_pylist() == values.tolist()


@pytest.mark.parametrize(
    "dtype", ["M8[s]", "M8[ms]", "M8[us]", "M8[ns]", "m8[s]", "m8[ms]", "m8[us]", "m8[ns]"]
)
def test_times_are_shared_and_nat_is_null(dtype):
    values = np.array([0, 1, "NaT", 3], dtype)
    array = arrow_array(field_of(values), values)
    assert array.buffers()[1].address == address_of(values)
    assert array.is_null().to_pylist() == [False, False, True, False]
    assert array.equals(pa.array(values))


def test_fixed_bytes_are_shared_and_keep_their_nuls():
    values = np.array([b"a", b"bc\0d", b""], "S4")
    array = arrow_array(field_of(values), values)
    assert array.type == pa.binary(4)
    assert array.buffers()[1].address == address_of(values)
    assert array.to_pylist() == [b"a\0\0\0", b"bc\0d", b"\0\0\0\0"]


def test_arrow_keeps_the_values_alive():
    values = np.arange(1000)
    array = arrow_array(field_of(values), values)
    del values
    np.full(1000, -1)
    assert array.to_pylist() == list(range(1000))


def test_unaligned_and_big_endian_values_are_copied():
    raw = np.zeros(8 * 4 + 1, np.uint8)
    unaligned = raw[1:].view("<i8")
    unaligned[:] = [1, -2, 3, 4]
    for values in (unaligned, np.array([1, -2, 3, 4], ">i8"), np.arange(8)[::2]):
        array = arrow_array(field_of(values), values)
        array.validate(full=True)
        assert array.to_pylist() == values.tolist()


def test_time_zone_reaches_the_arrow_type():
    field = Field("t", np.dtype("M8[us]"), tz="Europe/Prague")
    assert arrow_type(field) == pa.timestamp("us", "Europe/Prague")


def test_logical_dates_become_dates():
    days = np.array(["1969-12-31", "2024-02-29", "NaT"], "M8[D]")
    array = arrow_array(field_of(days, logical="date32"), days)
    assert array.equals(pa.array(days.tolist(), pa.date32()))
    milliseconds = days.astype("M8[ms]")
    array = arrow_array(field_of(milliseconds, logical="date64"), milliseconds)
    assert array.equals(pa.array(days.tolist(), pa.date64()))


def test_day_beyond_date32_is_an_error_naming_the_column():
    days = np.array([2**40], "M8[D]")
    with pytest.raises(ValueError, match="'x' holds a day"):
        arrow_array(field_of(days, logical="date32"), days)


@pytest.mark.parametrize("dtype", ["M8[D]", "M8[h]", "m8[m]", "M8[25s]", "m8"])
def test_other_time_units_say_to_cast(dtype):
    values = np.zeros(2, dtype)
    with pytest.raises(TypeError, match=r"'x'.*cast to one of the units s, ms, us, ns"):
        arrow_array(field_of(values), values)


def test_long_double_says_to_cast():
    with pytest.raises(TypeError, match="cast to float64"):
        arrow_type(Field("x", np.dtype(np.longdouble)))


@pytest.mark.parametrize("logical", ["date32", "string", "nonsense", "list<item: int8>"])
def test_logical_type_that_does_not_fit_the_dtype_is_ignored(logical):
    assert arrow_type(Field("x", np.dtype("<f8"), logical=logical)) == pa.float64()


@given(st.lists(st.booleans(), max_size=40), st.data())
def test_booleans_and_validity_are_packed_to_bits(flags, data):
    values = np.array(flags, np.bool_)
    validity = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(flags), max_size=len(flags))), np.bool_
    )
    array = arrow_array(field_of(values, validity="x.valid"), values, validity)
    array.validate(full=True)
    assert array.to_pylist() == [f if v else None for f, v in zip(flags, validity, strict=True)]


def test_any_nonzero_companion_byte_is_a_value():
    validity = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    array = arrow_array(Field("x", np.dtype("<i4"), validity="x.valid"), np.arange(4, dtype="<i4"), validity)
    assert array.to_pylist() == [None, 1, 2, 3]


def test_no_nulls_need_no_bitmap():
    array = arrow_array(
        Field("x", np.dtype("<i4"), validity="x.valid"), np.arange(4, dtype="<i4"), np.ones(4, bool)
    )
    assert array.buffers()[0] is None
    assert array.null_count == 0


@given(st.lists(TEXT | st.none(), max_size=12), st.integers(0, 3), st.sampled_from([None, "large_string"]))
def test_unicode_becomes_text(values, extra, logical):
    width = max([len(v) for v in values if v] + [1]) + extra
    stored = np.array([v or "" for v in values], f"U{width}")
    validity = np.array([v is not None for v in values], np.bool_)
    field = Field("x", stored.dtype, validity="x.valid", logical=logical)
    array = arrow_array(field, stored, validity)
    array.validate(full=True)
    assert array.type == (pa.large_string() if logical else pa.string())
    assert array.to_pylist() == values


@given(st.lists(st.binary(max_size=5).map(lambda b: b.rstrip(b"\0")), max_size=12))
def test_bytes_with_a_variable_type_lose_their_padding(values):
    stored = np.array(values, "S6")
    for logical, kind in (("binary", pa.binary()), ("large_binary", pa.large_binary())):
        array = arrow_array(field_of(stored, logical=logical), stored)
        array.validate(full=True)
        assert array.type == kind
        assert array.to_pylist() == values


@given(st.lists(TEXT, max_size=12))
def test_utf8_bytes_become_text(values):
    stored = np.array([v.encode() for v in values], "S24")
    array = arrow_array(field_of(stored, logical="string"), stored)
    array.validate(full=True)
    assert array.to_pylist() == values


def test_text_in_many_blocks_equals_the_input():
    words = np.array([f"{'é' if i % 7 == 0 else ''}{i}" for i in range(70_000)], "U12")
    words[12_345] = "😀\0b"  # a NUL inside is part of the value
    assert arrow_array(field_of(words), words).to_pylist() == words.tolist()


@pytest.mark.parametrize("bad", [0xD800, 0x110000, 0xFFFFFFFF])
def test_code_point_that_is_no_character_is_an_error_naming_the_column(bad):
    values = np.array([0x61, bad], np.uint32).view("<U1")
    with pytest.raises(ValueError, match="'x' holds a lone surrogate"):
        arrow_array(field_of(values), values)


def test_bytes_marked_as_text_must_be_utf8():
    # The second is UTF-8 only when the two values are taken together.
    for rows in ([b"ok", b"\xff"], [b"\xc3", b"\xa9"]):
        values = np.array(rows)
        with pytest.raises(ValueError, match="'x' is marked as text but its bytes are not UTF-8"):
            arrow_array(field_of(values, logical="string"), values)


def test_what_lies_under_a_null_is_never_seen():
    words = np.array(["ab", "xyz", "c\0\0\0d"], "U5")
    codes = words.view(np.uint32).reshape(3, 5)
    validity = np.array([True, False, True])
    field = Field("x", words.dtype, validity="x.valid")
    assert arrow_array(field, words, validity).to_pylist() == ["ab", None, "c\0\0\0d"]
    codes[1, 0] = 0xD800
    assert arrow_array(field, words, validity).to_pylist() == ["ab", None, "c\0\0\0d"]
    raw = np.array([b"ab", b"\xff\xff\xff", b"c\0\0\0d"])
    field = Field("x", raw.dtype, validity="x.valid", logical="string")
    assert arrow_array(field, raw, validity).to_pylist() == ["ab", None, "c\0\0\0d"]


def test_a_million_strings_make_no_objects():
    words = np.arange(1_000_000).astype("U7")
    field = field_of(words)
    tracemalloc.start()
    array = arrow_array(field, words)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert array[999_999].as_py() == "999999"
    # int64 offsets, then their int32 form, and the text; a million str objects would be 55 MB more.
    assert peak < 25e6


def test_empty_columns_have_their_type():
    for dtype in ("i4", "?", "U3", "S2", "M8[us]", "f2"):
        values = np.empty(0, dtype)
        array = arrow_array(Field("x", values.dtype, validity="x.valid"), values, np.empty(0, bool))
        array.validate(full=True)
        assert len(array) == 0


class TestDictionaries:
    FIELD = Field("x", np.dtype("U3"), validity="x.valid", categories=("lo", "mid", "hi"), ordered=True)

    def test_stored_categories_are_the_dictionary(self):
        values = np.array(["hi", "", "lo"], "U3")
        array = arrow_array(self.FIELD, values, np.array([True, False, True]), categories=True)
        assert array.type == arrow_type(self.FIELD, categories=True)
        assert array.dictionary.to_pylist() == ["lo", "mid", "hi"]
        assert array.to_pylist() == ["hi", None, "lo"]
        assert array.type.ordered

    def test_values_only_on_request(self):
        values = np.array(["hi"], "U3")
        assert arrow_array(self.FIELD, values, np.ones(1, bool)).type == pa.string()

    def test_values_outside_the_categories_are_kept(self):
        values = np.array(["hi", "new", "", "new"], "U3")
        array = arrow_array(self.FIELD, values, np.array([True, True, False, True]), categories=True)
        assert array.dictionary.to_pylist() == ["lo", "mid", "hi", "new"]
        assert array.to_pylist() == ["hi", "new", None, "new"]

    def test_without_stored_categories_the_values_tell(self):
        field = replace(self.FIELD, categories=None, ordered=False, dtype=np.dtype("i4"))
        array = arrow_array(field, np.array([7, 3, 7], "i4"), np.ones(3, bool), categories=True)
        assert array.dictionary.to_pylist() == [7, 3]
        assert not array.type.ordered

    @pytest.mark.parametrize("categories", [("a", "b"), (None, 1), ([1],), ({"a": 1},), (2**70,), (1, 1, 3)])
    def test_strange_categories_of_a_file_do_no_harm(self, categories):
        field = replace(self.FIELD, categories=categories, dtype=np.dtype("i4"))
        array = arrow_array(field, np.array([7, 3, 7], "i4"), np.ones(3, bool), categories=True)
        assert array.to_pylist() == [7, 3, 7]


def test_utf8_is_checked_value_by_value():
    data = "aé".encode()
    assert is_utf8(data, np.array([0, 1, 3]))
    assert not is_utf8(data, np.array([0, 2, 3]))
    assert is_utf8(data, np.array([0, 1, 1]))
    assert is_utf8(b"", np.array([0]))
