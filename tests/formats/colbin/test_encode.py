"""Messages written by definitions alone (colbin.md 5 to 7, 9, 11)."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any, TypedDict

import numpy as np
import pyarrow as pa
import pytest
from formats.colbin.vector_types import python_types, python_value, root_type

from colstore_io.formats.colbin.annotations import definitions, record
from colstore_io.formats.colbin.encode import encode_self_describing, encode_value
from colstore_io.formats.colbin.markers import i32, u8
from colstore_io.formats.colbin.schema import FieldDef, FieldType, Section, StructDef, TypeCode
from colstore_io.formats.colbin.walk import to_json


@pytest.mark.parametrize(("name", "count"), [("messages", 193), ("random", 214), ("dynamic", 41)])
def test_golden_messages(shared, name, count):
    cases = json.loads((shared / f"vectors/colbin/{name}.json").read_text())["cases"]
    assert len(cases) == count
    for case in cases:
        if case["name"] == "strings" and name == "dynamic":
            continue  # a dynamic string that is no UTF-8: Python has no such string
        classes = python_types(case["types"])
        types = definitions(root_type(case, classes))
        value = python_value(case, classes)
        for described, key in ((False, "message"), (True, "self_describing")):
            message = encode_value(types, value, packed5=case["packed5"], self_describing=described)
            assert message.hex() == case[key], case["name"]


@record
class Row:
    id: Annotated[i32, 1]
    name: Annotated[str, 2]


@pytest.mark.parametrize("count", [1, 7, 8, 300])
def test_records_in_a_document_are_one_typed_run(count):
    rows = [Row(n, f"row {n}") for n in range(count)]
    message = encode_self_describing({"rows": rows, "total": count, "page": 1})
    assert message.count(b"name") == 1
    document = json.loads(to_json(None, message))
    assert document == {"page": 1, "rows": [dataclasses.asdict(row) for row in rows], "total": count}


def test_documents_of_plain_values():
    document = {
        "none": None, "yes": True, "no": False, "int": -5, "big": 2**64 - 1, "float": 1.5, "text": "ñ",
        "list": [1, "a", [2.5, {}]], "map": {"b": 1, "a": [None]},
    }  # fmt: skip
    assert json.loads(to_json(None, encode_self_describing(document))) == document
    assert (
        to_json(None, encode_self_describing({"b": 1, "a": {2: "x", 1: "y"}}))
        == '{"a":{"1":"y","2":"x"},"b":1}'
    )
    assert to_json(None, encode_self_describing([1, "a", None])) == '[1,"a",null]'
    assert to_json(None, encode_self_describing({3: 1, 2: b"\0"})) == '{"2":"AA==","3":1}'
    assert (
        to_json(None, encode_self_describing({"a": np.float32(0.1), "b": np.arange(2)}))
        == '{"a":0.1,"b":[0,1]}'
    )


def test_a_record_as_document_has_its_own_type():
    message = encode_self_describing(Row(7, "a"))
    assert message[0] == 0xD4
    assert to_json(None, message) == '{"id":7,"name":"a"}'


def test_mixed_records_keep_tags_of_their_own():
    @record
    class Other:
        x: Annotated[u8, 1]

    document = encode_self_describing({"all": [Row(1, "a"), Other(2), None, Row(3, "")]})
    assert json.loads(to_json(None, document)) == {
        "all": [{"id": 1, "name": "a"}, {"x": 2}, None, {"id": 3, "name": ""}]
    }
    assert len(Section.read(document, 1)[0].structs) == 3


@pytest.mark.parametrize("count", [0, 3, 8, 1000])
def test_tables_in_a_document_are_typed_runs(count):
    arrow = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "name": pa.array([f"row {n}" for n in range(count)], pa.string()),
        }
    )
    array = np.zeros(count, [("id", "i4"), ("x", "f8")])
    array["x"] = 0.5
    document = {"arrow": arrow, "array": array, "total": count}
    message = encode_self_describing(document)
    assert json.loads(to_json(None, message)) == {
        "arrow": arrow.to_pylist(),
        "array": [{"id": 0, "x": 0.5}] * count,
        "total": count,
    }
    if count == 1000:
        assert len(message) < 12 * count


def test_tables_with_nulls_and_frames_go_in_row_by_row():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": range(9), "b": ["x"] * 9})
    nulls = pa.table({"a": [1, None] * 5})
    back = json.loads(to_json(None, encode_self_describing({"frame": frame, "nulls": nulls})))
    assert back == {"frame": frame.to_dict("records"), "nulls": nulls.to_pylist()}
    assert json.loads(to_json(None, encode_self_describing(nulls))) == {"rows": nulls.to_pylist()}


class Note(TypedDict):
    text: Annotated[str, "t"]


def test_typed_dictionaries_are_read_by_their_keys():
    assert to_json(None, encode_value(definitions(Note), {"text": "x"}, self_describing=True)) == '{"t":"x"}'


def section(kind, *more):
    return Section((StructDef("Charge", (FieldDef("a", 0, kind),), kind.is_dynamic), *more))


@pytest.mark.parametrize(
    ("kind", "value", "error", "message"),
    [
        (FieldType.scalar(TypeCode.U8), 256, ValueError, r"Charge\.a: 256 is outside of u8"),
        (FieldType.scalar(TypeCode.I64), 1.5, TypeError, "an integer is expected, not float"),
        (FieldType.scalar(TypeCode.I64), True, TypeError, "an integer is expected, not bool"),
        (FieldType.scalar(TypeCode.BOOL), 1, TypeError, "a bool is expected"),
        (FieldType.scalar(TypeCode.F32), 1e39, ValueError, "too large"),
        (FieldType.scalar(TypeCode.F64), "1", TypeError, "a number is expected"),
        (FieldType.scalar(TypeCode.STRING), 5, TypeError, "a string is expected"),
        (FieldType.scalar(TypeCode.STRING), "\ud800", ValueError, "lone surrogates"),
        (FieldType.scalar(TypeCode.BYTES), "a", TypeError, "bytes are expected"),
        (FieldType.scalar(TypeCode.LIST_U16), [1, -1], ValueError, "outside of u16"),
        (FieldType.scalar(TypeCode.LIST_U16), np.zeros((2, 2)), TypeError, "one-dimensional"),
        (FieldType.map(TypeCode.STRING, TypeCode.I8), {"k": 128}, ValueError, "outside of i8"),
        (FieldType.map(TypeCode.U8, TypeCode.I8), {-1: 1}, ValueError, "outside of u8"),
        (FieldType.scalar(TypeCode.DYNAMIC), object(), TypeError, "no form in a document"),
        (FieldType.scalar(TypeCode.DYNAMIC), 2**64, ValueError, "64 bits"),
        (FieldType.scalar(TypeCode.DYNAMIC), {1.5: 1}, TypeError, "keys of a map"),
        (FieldType.records(0), [5], TypeError, "is not a record"),
    ],
)
def test_values_that_do_not_fit_are_refused(kind, value, error, message):
    with pytest.raises(error, match=message):
        encode_value(section(kind), {"a": value})


def test_nesting_is_bounded():
    value: Any = []
    for _ in range(126):
        value = [value]
    kind = section(FieldType.scalar(TypeCode.DYNAMIC))
    assert to_json(kind, encode_value(kind, {"a": value})).count("[") == 127
    with pytest.raises(ValueError, match="128 levels"):
        encode_value(kind, {"a": [value]})


def test_equal_keys_and_values_of_a_map_are_written_by_their_own_types():
    kind = section(FieldType.map(TypeCode.I64, TypeCode.F64))
    assert to_json(kind, encode_value(kind, {"a": {5: 5}})) == '{"a":{"5":5}}'


@pytest.mark.parametrize(
    ("document", "error", "message"),
    [
        (
            {"rows": [{"x": {1}}]},
            TypeError,
            r"\['rows'\]\[0\]\['x'\]: values of type set have no form in a document",
        ),
        ({"a": {2: [None, 1j]}}, TypeError, r"\['a'\]\[2\]\[1\]: values of type complex"),
        ([1, np.zeros((2, 2))], TypeError, r"\[1\]: arrays of 2 dimensions"),
        ({"s": pa.chunked_array([[1]])}, TypeError, r"\['s'\]: values of type ChunkedArray"),
        ({"n": [1 << 64]}, OverflowError, r"\['n'\]\[0\]: 18446744073709551616 is outside"),
        ({"m": {1.5: 2}}, TypeError, r"\['m'\]: the keys of a map are strings or integers, not float"),
        ({1: 2, "a": 3}, TypeError, "keys of a document are all strings or all integers; 1 is of type int"),
        ({True: 1}, TypeError, "True is of type bool"),
        (
            {"t": {"w": pa.table({"t": pa.array([1], pa.timestamp("s"))})}},
            TypeError,
            r"\['t'\]\['w'\]: column 't'",
        ),
        (5, TypeError, "root of a document is a mapping, list, table or record, not int"),
    ],
)
def test_what_a_document_cannot_hold_is_named_with_its_place(document, error, message):
    with pytest.raises(error, match=f"^.*{message}"):
        encode_self_describing(document)


def test_the_place_of_an_error_stays_short():
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nest") as caught:
        encode_self_describing(endless)
    assert len(str(caught.value)) < 600
