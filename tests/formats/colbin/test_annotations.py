"""Python types to definitions (colbin.md 3, 4)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, NotRequired, Required, TypedDict

import attrs
import msgspec
import pytest
from formats.colbin.vector_types import root_type

from colstore_io.formats.colbin import markers as cs
from colstore_io.formats.colbin.annotations import definitions, record, record_kind
from colstore_io.formats.colbin.markers import FieldOptions, field, parse_tag
from colstore_io.formats.colbin.schema import MapKind, TypeCode


def fields_of(cls, index=0):
    return {f.name: f for f in definitions(cls).section.structs[index].fields}


def codes_of(cls):
    return {name: f.type.code for name, f in fields_of(cls).items()}


def test_golden_types_give_golden_sections(shared):
    count = 0
    for name in ("messages", "random", "dynamic", "fieldkeys"):
        data = json.loads((shared / f"vectors/colbin/{name}.json").read_text())
        for case in data.get("cases") or data["types"]:
            assert definitions(root_type(case)).section.to_bytes().hex() == case["section"], case
            count += 1
    assert count == 459


@record
class Line:
    SKU: Annotated[str, 1]
    Quantity: Annotated[cs.i32, 2]


@record
class Everything:
    a: Annotated[bool, 1]
    b: Annotated[int, 2]
    c: Annotated[float, 3]
    d: Annotated[str, "4,Delta"]
    e: Annotated[bytes, field(id=5)]
    f: Annotated[cs.u8 | None, 6]
    g: Annotated[str | None, 7]
    h: Annotated[list[cs.u16], 8]
    i: Annotated[list[int], 9]
    j: Annotated[Sequence[str], 10]
    k: Annotated[Line, 11]
    m: Annotated[list[Line], 12]
    n: Annotated[dict[str, cs.f32], 13]
    o: Annotated[Mapping[cs.u8, bool], 14]
    p: Annotated[Line | None, field(id=15, optional_record=True)]
    q: Annotated[list[str] | None, 16]


def test_every_type_has_its_code():
    assert list(codes_of(Everything).values()) == [
        0,
        4,
        10,
        11,
        12,
        24,
        24,
        17,
        16,
        20,
        21,
        22,
        23,
        23,
        27,
        20,
    ]
    struct = definitions(Everything).section.root
    assert not struct.k8
    assert [f.key for f in struct.fields] == list(range(16))
    assert struct.fields[3].name == "Delta"
    kind = struct.fields[13].type
    assert (kind.key_kind, kind.value_kind) == (MapKind.UNSIGNED, MapKind.BOOL)
    assert (kind.key_code, kind.value_code) == (TypeCode.U8, TypeCode.BOOL)
    assert [s.name for s in definitions(Everything).section.structs] == ["Everything", "Line"]


def test_the_python_side_is_beside_the_definitions():
    everything, line = definitions(Everything).records
    assert (line.cls, line.kind, line.complete) == (Line, "dataclass", True)
    assert [f.nullable for f in everything.fields].count(True) == 4
    assert everything.fields[3].attribute == "d"
    assert definitions(Everything).record_of(Line) == 1
    with pytest.raises(KeyError):
        definitions(Line).record_of(Everything)


def test_what_needs_eight_bit_keys():
    @record
    class Hashed:
        a: int

    @record
    class Far:
        a: Annotated[int, 17]

    @record
    class Dynamic:
        a: Annotated[Any, 1]

    @record
    class DynamicMap:
        a: Annotated[dict[str, Any], 1]

    @record
    class DynamicList:
        a: Annotated[list[Any], 1]

    for cls in (Hashed, Far, Dynamic, DynamicMap, DynamicList):
        assert definitions(cls).section.root.k8, cls
    assert codes_of(DynamicList) == {"a": TypeCode.DYNAMICS}


class Tree(TypedDict, total=False):
    name: Required[str]
    size: cs.u32
    note: Annotated[NotRequired[str], 40]
    children: list[Tree]


class Point(NamedTuple):
    x: float
    y: Annotated[cs.f32, "why"]
    tags: list[str] = []  # noqa: RUF012


def test_typed_dictionaries_and_named_tuples():
    assert codes_of(Tree) == {"name": 11, "size": 24, "note": 24, "children": 22}
    assert [f.required for f in definitions(Tree).records[0].fields] == [True, False, False, False]
    assert fields_of(Tree)["children"].type.index == 0
    assert fields_of(Tree)["note"].key == 39
    assert codes_of(Point) == {"x": 10, "why": 9, "tags": 20}
    assert (record_kind(Tree), record_kind(Point), record_kind(int)) == ("typeddict", "namedtuple", None)


def test_attrs_and_msgspec_classes():
    @attrs.define
    class A:
        _hidden: cs.i8 = attrs.field(metadata={"cb": "3,Shown"})
        rest: list[str] = attrs.field(factory=list, kw_only=True)

    (source,) = definitions(A).records
    assert codes_of(A) == {"Shown": 1, "rest": 20}
    assert (source.kind, source.fields[0].attribute, source.fields[0].argument) == (
        "attrs",
        "_hidden",
        "hidden",
    )
    assert not source.complete

    class M(msgspec.Struct, rename="camel"):
        first_name: str
        age: Annotated[cs.u8, msgspec.Meta(ge=0, extra={"cb": "9"})] = 0

    assert codes_of(M) == {"firstName": 11, "age": 5}
    assert definitions(M).records[0].kind == "msgspec"
    assert fields_of(M)["age"].key == 8


def test_tags_in_metadata_and_dropped_fields():
    @dataclasses.dataclass
    class Tagged:
        a: int = dataclasses.field(metadata={"cb": "8,Name"})
        b: int = dataclasses.field(default=0, metadata={"cb": "-"})
        c: Annotated[set[int], field(drop=True)] = dataclasses.field(default_factory=set)

    assert {name: f.key for name, f in fields_of(Tagged).items()} == {"Name": 7}
    assert not definitions(Tagged).records[0].complete


@pytest.mark.parametrize(
    ("tag", "options"),
    [
        ("8", FieldOptions(8)),
        ("Name", FieldOptions(None, "Name")),
        ("8,Name,9,Other", FieldOptions(9, "Name")),
        (",,x,", FieldOptions(None, "x")),
        ("-", FieldOptions(dropped=True)),
        ("-,3", FieldOptions(3, "-")),
        ('cb:"4,omitempty"', FieldOptions(4, "omitempty")),
        ("", FieldOptions()),
    ],
)
def test_tags(tag, options):
    assert parse_tag(tag) == options


def test_roots_that_are_no_records_travel_in_an_envelope():
    for root, code in (
        (list[Line], 22),
        (list[cs.i16], 14),
        (bytes, 12),
        (dict[str, int], 23),
        (list[Any], 26),
    ):
        section = definitions(root).section
        assert section.root.envelope
        assert [(f.name, f.key, f.type.code) for f in section.root.fields] == [("rows", 0, code)]
        assert section.root.k8 == (code == 26)
    with pytest.raises(TypeError, match="root of a message is a record, list, map or bytes, not int"):
        definitions(int)


def one_field(hint):
    return dataclasses.make_dataclass("Order", [("Lines", hint)])


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (list[float], "no list of float; put each value into a record"),
        (list[bool], "no list of bool"),
        (list[bytes], "no list of bytes"),
        (list[cs.u8], "use bytes"),
        (list[list[int]], "no list of lists"),
        (list[dict[str, int]], "no list of dict"),
        (list[int | None], "no list of"),
        (list[Annotated[int, 3]], "belong to the field"),
        (dict[str, Line], "no map of records"),
        (dict[float, int], "keys of a map are strings or integers, not float"),
        (dict[str, bytes], "values of a map"),
        (dict[str, list[int]], "values of a map"),
        (int | str, "of unions the wire has only"),
        (Line | None, "optional_record=True"),
        (Annotated[Line, field(optional_record=True)], "annotated Line | None"),
        (set[int], "set.* has no wire type"),
        (complex, "complex has no wire type"),
        (tuple[int, ...], "tuple.* has no wire type"),
        (Annotated[str, 0], "id 0 is not in 1..256"),
        (Annotated[str, 1, field(id=2)], "two ids, 1 and 2"),
        (Annotated[str, cs.ScalarType(TypeCode.I8)], "i8 is a number"),
        ("Nowhere", "names 'Nowhere'"),
    ],
)
def test_what_the_wire_lacks_is_a_type_error_that_names_class_and_field(hint, message):
    with pytest.raises(TypeError, match=message) as caught:
        definitions(one_field(hint))
    assert str(caught.value).startswith("Order")


def test_a_required_record_key_cannot_be_missing():
    class Loose(TypedDict):
        line: NotRequired[Line]

    with pytest.raises(TypeError, match=r"Loose\.line: a record is always written"):
        definitions(Loose)


def test_a_record_inside_itself_by_value_is_refused():
    @dataclasses.dataclass
    class Node:
        inner: Node

    with pytest.raises(TypeError, match="'Node' contains itself by value"):
        definitions(Node)


def test_names_of_a_function_come_from_a_namespace():
    @record
    class Item:
        a: int

    @record
    class Basket:
        items: list[Item]

    with pytest.raises(TypeError, match="namespace"):
        definitions(Basket)
    assert len(definitions(Basket, namespace={"Item": Item}).section.structs) == 2


def test_record_makes_a_dataclass_with_slots_and_checks_it_at_once():
    with pytest.raises(TypeError, match=r"Bad\.x"):

        @record
        class Bad:
            x: list[float]

    @record(frozen=True, kw_only=True)
    class Good:
        x: cs.i32 = 3

    assert Good().x == 3
    assert Good.__slots__ == ("x",)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Good().x = 4
    assert not definitions(Good).records[0].complete
    assert record(Good) is Good


def test_options_as_a_default_are_refused():
    with pytest.raises(TypeError, match=r"Misplaced\.a: field\(\) belongs into the annotation"):

        @record
        class Misplaced:
            a: Annotated[cs.i32, 1] = field(drop=True)
