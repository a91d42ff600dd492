"""The extra key: what goes in comes out, other libraries are not disturbed, damage is noticed."""

from __future__ import annotations

import json
import math
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
from formats.cstore_builder import build, header_of, names, read
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.errors import FormatError
from colstore_io.fields import Field, Schema
from colstore_io.formats.cstore.attributes import decode_attributes, encode_attributes
from colstore_io.formats.cstore.extras import (
    column_objects,
    companion_name,
    file_columns,
    schema_from_columns,
    top_level_extra,
)
from colstore_io.formats.cstore.header import encode_header, encode_manifest
from colstore_io.formats.cstore.manifest import physical_columns
from colstore_io.writing.manifest_json import GenerationManifest, new_commit_id


def column(dtype: str = "<i4", **members: Any) -> Field:
    return Field("n", np.dtype(dtype), **members)


def reread(schema: Schema) -> Schema:
    text = encode_manifest(column_objects(schema), top_level_extra(schema.attrs))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read(encode_header(text, 0, 0)).schema


# ----------------------------------------------------------------------------------------------------------
# Column objects


def test_companion_stands_right_behind_its_column() -> None:
    objects = column_objects(Schema((column(validity="n.valid"), Field("x", np.dtype("f8")))))
    assert json.dumps(objects) == (
        '[{"name": "n", "dtype": "<i4", "encoding": "raw", "nullable": false, '
        '"colstore_io": {"validity": "n.valid", "crc32": 2161057233}}, '
        '{"name": "n.valid", "dtype": "|b1", "encoding": "raw", "nullable": false}, '
        '{"name": "x", "dtype": "<f8", "encoding": "raw", "nullable": false}]'
    )


def test_checksum_covers_the_members_in_sorted_order() -> None:
    assert zlib.crc32(b'{"validity": "n.valid"}') == 2161057233
    field = column(
        "M8[ns]",
        validity="n.valid",
        tz="Europe/Prague",
        logical="l",
        categories=("b", "a"),
        ordered=True,
        attrs={"z": 1, "a": 2},
    )
    extra = column_objects(Schema((field,)))[0]["colstore_io"]
    assert list(extra) == ["attrs", "categories", "logical", "ordered", "tz", "validity", "crc32"]
    assert list(extra["attrs"]) == ["a", "z"]
    crc = extra.pop("crc32")
    assert crc == zlib.crc32(json.dumps(extra).encode())


def test_plain_data_need_no_extra_key() -> None:
    assert "colstore_io" not in column_objects(Schema((column(),)))[0]
    assert top_level_extra({}) is None
    assert b"colstore_io" not in build([{"n": np.zeros(1)}])


def test_companion_names_avoid_what_is_there() -> None:
    assert companion_name("n", []) == "n.valid"
    assert companion_name("n", {"n.valid", "n.valid2"}) == "n.valid3"


def test_equal_names_are_refused_on_write() -> None:
    with pytest.raises(ValueError, match=r"two columns are named 'n\.valid'"):
        column_objects(Schema((column(validity="n.valid"), Field("n.valid", np.dtype("f8")))))
    with pytest.raises(TypeError, match="strings"):
        column_objects(Schema((Field(3, np.dtype("f8")),)))  # type: ignore[arg-type]


def test_long_lists_of_categories_are_left_out() -> None:
    """``ordered`` still says that the column is categorical."""
    short = reread(Schema((column("<U9", categories=tuple("abc"), ordered=False),))).fields[0]
    assert (short.categories, short.ordered) == (("a", "b", "c"), False)
    long = reread(Schema((column("<U9", categories=tuple(map(str, range(20_000))), ordered=True),))).fields[0]
    assert (long.categories, long.ordered) == (None, True)


def test_categories_at_the_limit_are_kept() -> None:
    for length, kept in (((64 << 10) - 4, True), ((64 << 10) - 3, False)):
        field = reread(Schema((column("<U9", categories=("c" * length,), ordered=False),))).fields[0]
        assert (field.categories is not None) == kept


def test_numpy_categories_come_back_as_python_values() -> None:
    field = column(categories=(np.int64(3), np.int64(1)), ordered=False)
    assert reread(Schema((field,))).fields[0].categories == (3, 1)
    with pytest.raises(TypeError, match="categories"):
        column_objects(Schema((column(categories=(1.5,), ordered=False),)))
    with pytest.raises(ValueError, match="ordered"):
        column_objects(Schema((column(categories=("a",)),)))


def test_time_zones_belong_to_datetimes() -> None:
    field = reread(Schema((column("<M8[ns]", tz="+02:00"),))).fields[0]
    assert field.tz == "+02:00"
    with pytest.raises(ValueError, match="time zone"):
        column_objects(Schema((column("<m8[ns]", tz="UTC"),)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float):
        return isinstance(b, float) and (a == b or (math.isnan(a) and math.isnan(b)))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


@settings(max_examples=150, deadline=None)
@given(
    attrs=st.dictionaries(names, json_values, max_size=3),
    table=st.dictionaries(names, json_values, max_size=3),
    members=st.fixed_dictionaries(
        {},
        optional={
            "validity": st.just("n.valid"),
            "logical": names,
            "tz": names,
            "ordered": st.booleans(),
        },
    ),
)
def test_schemas_come_back(attrs: dict[str, Any], table: dict[str, Any], members: dict[str, Any]) -> None:
    schema = Schema((column("<M8[us]", attrs=attrs, **members), Field("other", np.dtype("f8"))), table)
    back = reread(schema)
    assert same(dict(attrs), dict(back.fields[0].attrs))
    assert same(dict(table), dict(back.attrs))
    assert [f.name for f in back] == ["n", "other"]
    for name in ("validity", "logical", "tz", "ordered", "dtype"):
        assert getattr(back.fields[0], name) == getattr(schema.fields[0], name)


def test_two_nullable_columns_and_a_plain_one() -> None:
    fields = tuple(Field(name, np.dtype("<i2"), validity=f"{name}.valid") for name in "ab")
    schema = reread(Schema((*fields, Field("a.valid2", np.dtype("|b1")))))
    assert [(f.name, f.validity) for f in schema] == [("a", "a.valid"), ("b", "b.valid"), ("a.valid2", None)]
    assert [c.name for c in file_columns(schema)] == ["a", "a.valid", "b", "b.valid", "a.valid2"]


# ----------------------------------------------------------------------------------------------------------
# Attribute values

VALUES = [
    np.float32(1.5),
    np.float64("nan"),
    np.int64(-3),
    np.bool_(True),
    np.str_("é"),
    np.str_(""),
    np.bytes_(b"x\0y"),
    np.datetime64("2024-01-01", "D"),
    np.timedelta64("NaT"),
    np.complex64(1 + 2j),
    np.array([[1, 2], [3, 4]], "<u2"),
    np.array([], "f4"),
    np.array(["a", "bc"]),
    np.zeros((0, 3)),
    np.arange(3, dtype=">i4"),
    np.arange(6).reshape(2, 3).T,
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_numpy_values_come_back_with_their_dtype(value: Any) -> None:
    encoded = json.loads(json.dumps(encode_attributes({"v": value}, "the table")))
    back = decode_attributes(encoded)["v"]
    assert type(back) is type(value)
    assert np.shape(back) == np.shape(value)
    assert back.dtype == value.dtype.newbyteorder("=")
    assert back.dtype.isnative
    np.testing.assert_array_equal(back, value)


def test_the_forms_of_the_specification() -> None:
    attrs = {"f": math.inf, "n": math.nan, "m": -math.inf, "a": np.array([1, 2], "<f4"), "d": {"x": (1, 2.5)}}
    assert encode_attributes(attrs, "the table") == {
        "f": {"float": "inf"},
        "n": {"float": "nan"},
        "m": {"float": "-inf"},
        "a": {"data": "0000803f00000040", "dtype": "<f4", "shape": [2]},
        "d": {"map": {"x": [1, 2.5]}},
    }
    assert encode_attributes({"s": np.float32(1)}, "t")["s"]["shape"] == []


@pytest.mark.parametrize(
    "value",
    [object(), {1}, b"bytes", 1j, {1: 2}, np.array([None]), np.zeros(1, "i4,f8"), 1 << 20_000],
    ids=range(8),
)
def test_other_values_are_refused_naming_the_attribute(value: Any) -> None:
    for attrs in ({"bad": value}, {"bad": [value]}, {"bad": {"inner": value}}):
        with pytest.raises(TypeError, match="'bad'"):
            encode_attributes(attrs, "column 'x'")
        with pytest.raises(TypeError, match="column 'n'"):
            column_objects(Schema((column(attrs=attrs),)))
        with pytest.raises(TypeError, match="the table"):
            top_level_extra(attrs)


def test_endless_nesting_and_other_keys_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="nested"):
        encode_attributes({"bad": loop}, "the table")
    with pytest.raises(TypeError, match="names must be strings"):
        encode_attributes({1: 2}, "the table")  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "value",
    [
        {"data": "00", "dtype": "<f4", "shape": []},
        {"data": "zz", "dtype": "|u1", "shape": []},
        {"data": "00000000", "dtype": "<f4", "shape": [2**62, 2**62]},
        {"data": "", "dtype": "<f4", "shape": [0, 2**63]},
        {"data": "", "dtype": "<f4", "shape": [0] * 100},
        {"data": "00", "dtype": "|u1", "shape": [True]},
        {"data": "00", "dtype": "|u1", "shape": [-1, -1]},
        {"data": "00", "dtype": "|u1", "shape": 1},
        {"data": 0, "dtype": "|u1", "shape": [1]},
        {"data": "00" * 8, "dtype": "|O", "shape": [1]},
        {"data": "00" * 8, "dtype": "V8", "shape": [1]},
        {"data": "ffffffff", "dtype": "<U1", "shape": 0},
        {"data": "00", "dtype": ["|u1"], "shape": [1]},
        {"data": "ffffffff", "dtype": "<U1", "shape": []},
        {"data": "ffffffff", "dtype": "<U1", "shape": [1]},
        {"data": "4100000000001100", "dtype": "<U2", "shape": []},
        {"data": "4100000000001100", "dtype": "<U1", "shape": [2]},
        {"data": "00110000", "dtype": ">U1", "shape": [1]},
        {"data": "00" * 8, "dtype": "<M8[D/0]", "shape": [1]},
        {"data": "00" * 8, "dtype": "<m8[25s/00]", "shape": []},
        {"data": "00" * 8, "dtype": "<M8[D/4294967296]", "shape": [1]},
    ],
    ids=repr,
)
def test_inconsistent_numpy_values_are_a_format_error(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        decode_attributes({"bad": value})
    with pytest.raises(FormatError, match="'bad'"):
        read(header_of([sealed_column({"attrs": {"bad": value}})]))


@pytest.mark.parametrize(
    "value",
    [
        {"data": "ffffffff", "dtype": "<U1", "shape": [1]},
        {"data": "00001100", "dtype": "<U1", "shape": []},
        {"data": "00" * 8, "dtype": "<M8[D/0]", "shape": [1]},
    ],
    ids=repr,
)
def test_so_they_are_in_a_generation_manifest(value: dict[str, Any]) -> None:
    members = json.loads(GenerationManifest(1, new_commit_id(), (), 0).to_bytes())
    del members["crc32"]
    members["attrs"] = {"bad": value}
    members["crc32"] = zlib.crc32(json.dumps(members, sort_keys=True).encode())
    with pytest.raises(FormatError, match="'bad'"):
        GenerationManifest.from_bytes(json.dumps(members).encode(), path="_colstore-00000001.json")


@pytest.mark.parametrize("dtype", ["<U1", ">U1"])
def test_the_last_code_point_is_text(dtype: str) -> None:
    data = np.array(["\U0010ffff"], dtype).tobytes().hex()
    decoded = decode_attributes({"a": {"data": data, "dtype": dtype, "shape": [1]}})
    assert decoded["a"].tolist() == ["\U0010ffff"]


def test_forms_of_later_versions_come_back_as_they_are() -> None:
    later = {"uuid": "0", "float": "nan"}
    assert decode_attributes({"v": later, "w": {"float": "big"}}) == {"v": later, "w": {"float": "big"}}


# ----------------------------------------------------------------------------------------------------------
# What a reader makes of a key


def seal(members: dict[str, Any]) -> dict[str, Any]:
    return members | {"crc32": zlib.crc32(json.dumps(members, sort_keys=True).encode())}


def sealed_column(members: dict[str, Any], name: str = "n", dtype: str = "<i4") -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "encoding": "raw", "nullable": False, "colstore_io": seal(members)}


PLAIN = {"name": "n.valid", "dtype": "|b1", "encoding": "raw", "nullable": False}


def test_members_that_are_not_known_are_ignored() -> None:
    data = header_of([sealed_column({"future": {"x": [1]}, "validity": "n.valid"}), PLAIN])
    meta = read(data)
    assert meta.schema.fields[0].validity == "n.valid"
    assert meta.columns[0].manifest["colstore_io"]["future"] == {"x": [1]}


def test_the_checksum_does_not_depend_on_key_order() -> None:
    column = sealed_column({"validity": "n.valid", "attrs": {"b": 1, "a": 2}})
    column["colstore_io"] = dict(reversed(column["colstore_io"].items()))
    assert read(header_of([column, PLAIN])).schema.fields[0].nullable


@pytest.mark.parametrize(
    "key",
    [
        {"validity": "n.valid"},
        {"validity": "n.valid", "crc32": 5},
        {"validity": "n.valid", "crc32": "2161057233"},
        {"validity": "n.valid", "crc32": 2161057233.0},
        {"validity": "n.valid", "crc32": None},
        {"validity": "n.valid", "nan": math.nan, "crc32": 0},
        None,
        5,
        [],
        "text",
        {},
    ],
    ids=repr,
)
def test_a_key_without_matching_checksum_makes_all_columns_plain(key: Any) -> None:
    other = [sealed_column({"validity": "m.valid"}, "m"), PLAIN | {"name": "m.valid"}]
    data = header_of([PLAIN | {"name": "n", "colstore_io": key}, PLAIN, *other])
    with pytest.warns(RuntimeWarning, match=r"t\.cstore: .*'n'"):
        meta = read(data)
    assert meta.schema.names == ["n", "n.valid", "m", "m.valid"]
    assert not any(field.nullable for field in meta.schema)


def test_a_damaged_top_level_key_costs_the_attributes_alone() -> None:
    columns = [sealed_column({"validity": "n.valid"}), PLAIN]
    for extra in ({"attrs": {"a": 1}}, {"attrs": {"a": 1}, "crc32": 1}, [], 0):
        with pytest.warns(RuntimeWarning, match="top-level"):
            schema = read(encode_header(encode_manifest(columns, extra), 0, 0)).schema
        assert schema.names == ["n"]
        assert schema.attrs == {}


@pytest.mark.parametrize(
    "behind",
    [
        [],
        [PLAIN | {"name": "other"}],
        [PLAIN | {"dtype": "|u1"}],
        [PLAIN | {"name": "x"}, PLAIN],
        [sealed_column({"validity": "z"}, "n.valid", "|b1"), PLAIN | {"name": "z"}],
    ],
    ids=range(5),
)
def test_a_companion_that_is_not_there_is_a_format_error(behind: list[dict[str, Any]]) -> None:
    with pytest.raises(FormatError, match="validity"):
        read(header_of([sealed_column({"validity": "n.valid"}), *behind]))


@pytest.mark.parametrize(
    "members",
    [
        {"validity": 5},
        {"validity": None},
        {"validity": ["n.valid"]},
        {"tz": 5},
        {"tz": "UTC"},
        {"logical": None},
        {"ordered": 1},
        {"categories": "abc"},
        {"categories": [1.5]},
        {"categories": [None]},
        {"attrs": []},
        {"attrs": None},
    ],
    ids=repr,
)
def test_members_of_the_wrong_kind_are_a_format_error(members: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="extra key of column 'n'"):
        read(header_of([sealed_column(members), PLAIN]))


def test_deeply_nested_keys_are_not_trusted() -> None:
    nested: Any = 1
    for _ in range(400):
        nested = {"map": {"a": nested}}
    with pytest.raises(FormatError, match="nested"):
        read(header_of([sealed_column({"attrs": {"a": nested}})]))


def test_big_endian_columns_keep_their_order_in_the_schema() -> None:
    columns = physical_columns([{"name": "a", "dtype": ">i4"}])
    assert schema_from_columns(columns).schema.fields[0].dtype.str == ">i4"
