"""Golden messages: every case is encoded from objects and decoded into them, byte for byte."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from colbin_values import KINDS, VectorTypes, has_dynamic, types_of_section

from colstore_io.errors import FormatError
from colstore_io.formats.colbin.codec import decode, encode
from colstore_io.formats.colbin.schema import Section


def cases(shared: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((shared / "vectors" / "colbin" / f"{name}.json").read_text())[
        "cases"
    ]
    return found


def refused(read: Callable[[], Any]) -> bool:
    try:
        read()
    except FormatError:
        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["messages", "dynamic", "random"])
def test_objects_of_every_kind_encode_to_the_golden_bytes(shared, name, kind):
    for case in cases(shared, name):
        if kind == "typeddict" and '"rec"' in json.dumps(case["value"]):
            continue  # nothing says of a dict inside a dynamic value that it is a record
        classes = VectorTypes(case["types"], kind)
        codec = classes.codec(case["root"])
        value = classes.value(case["root"], case["value"])
        packed5 = case.get("packed5", False)
        label = case["name"]
        assert codec.schema.to_bytes().hex() == case["section"], label
        message = codec.encode(value, packed5=packed5, errors="surrogateescape")
        assert message.hex() == case["message"], label
        described = codec.encode_self_describing(value, packed5=packed5, errors="surrogateescape")
        assert described.hex() == case["self_describing"], label


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["messages", "random"])
def test_decoded_objects_of_every_kind_encode_to_the_same_bytes(shared, name, kind):
    for case in cases(shared, name):
        if has_dynamic(case["types"], case["root"]):
            continue
        classes = VectorTypes(case["types"], kind)
        codec = classes.codec(case["root"])
        message = bytes.fromhex(case["message"])
        for data in (message, bytes.fromhex(case["self_describing"])):
            value = codec.decode(data, errors="surrogateescape")
            again = codec.encode(value, packed5=case["packed5"], errors="surrogateescape")
            assert again == message, case["name"]


@pytest.mark.parametrize("name", ["messages", "random"])
def test_dicts_of_a_bare_section_encode_to_the_same_bytes(shared, name):
    for case in cases(shared, name):
        section, message = bytes.fromhex(case["section"]), bytes.fromhex(case["message"])
        value = decode(section, message, errors="surrogateescape")
        if has_dynamic(case["types"], case["root"]):
            continue
        assert encode(section, value, packed5=case["packed5"], errors="surrogateescape") == message, case[
            "name"
        ]
        described = decode(None, bytes.fromhex(case["self_describing"]), errors="surrogateescape")
        assert repr(described) == repr(value), case["name"]


@pytest.mark.parametrize("name", ["dynamic", "random"])
def test_messages_with_and_without_their_section_decode_to_equal_dicts(shared, name):
    for case in cases(shared, name):
        plain = decode(
            bytes.fromhex(case["section"]), bytes.fromhex(case["message"]), errors="surrogateescape"
        )
        described = decode(None, bytes.fromhex(case["self_describing"]), errors="surrogateescape")
        if "nan" not in repr(plain):
            assert described == plain, case["name"]


@pytest.mark.parametrize("name", ["hostile", "mutated"])
def test_bytes_get_the_verdict_of_the_specification(shared, name):
    for case in cases(shared, name):
        message = bytes.fromhex(case["message"])
        section = bytes.fromhex(case["section"]) if case.get("section") else None
        label = f"{case.get('name')} {case.get('why')} {case['message'][:80]}"
        if case["must"] == "accept":
            decode(section, message, errors="surrogateescape")
            continue
        assert refused(partial(decode, section, message, errors="surrogateescape")), label


@pytest.mark.parametrize("name", ["hostile", "mutated"])
def test_typed_codecs_give_the_same_verdict(shared, name):
    """The dicts of a bare section and slots of a class are filled by different code."""
    for case in cases(shared, name):
        message = bytes.fromhex(case["message"])
        if not case.get("section"):
            continue
        try:
            section = Section.from_bytes(bytes.fromhex(case["section"]))
        except FormatError:
            continue
        if not all(struct.fields for struct in section.structs) or (
            section.root.fields[0].key and section.root.envelope
        ):
            continue
        types, root = types_of_section(section)
        try:
            codec = VectorTypes(types).codec(root)
        except TypeError:  # a K4 record with a dynamic field, for one, is nothing that a class can say
            continue
        if case["must"] == "accept":
            codec.decode(message, errors="surrogateescape")
            continue
        assert refused(partial(codec.decode, message, errors="surrogateescape")), case


@pytest.mark.parametrize("table", ["users", "products", "categories", "stores", "sales", "events", "metrics"])
def test_the_corpus_round_trips_row_by_row_and_as_one_list(shared, table):
    data = json.loads((shared / "vectors" / "colbin" / "corpus" / f"{table}.json").read_text())
    classes = VectorTypes(data["types"])
    codec, lists = classes.codec(data["root"]), classes.codec({"structs": data["root"]["struct"]})
    assert codec.schema.to_bytes().hex() == data["section"]
    assert lists.schema.to_bytes().hex() == data["table_section"]
    rows = [codec.decode(bytes.fromhex(row)) for row in data["rows"]]
    assert [codec.encode(row).hex() for row in rows] == data["rows"]
    assert lists.encode(rows).hex() == data["table_message"]
    assert lists.decode(bytes.fromhex(data["table_message"])) == rows


def test_rows_of_the_corpus_have_the_sizes_of_the_reference(shared):
    sizes = {"users": 6187, "products": 12876, "sales": 26856, "metrics": 21680}
    for table, size in sizes.items():
        data = json.loads((shared / "vectors" / "colbin" / "corpus" / f"{table}.json").read_text())
        assert sum(len(row) // 2 for row in data["rows"]) == size


@pytest.mark.parametrize("name", ["hostile", "mutated"])
def test_bad_bytes_ask_for_little_memory(shared, name):
    found = [(case.get("section"), bytes.fromhex(case["message"])) for case in cases(shared, name)]
    tracemalloc.start()
    try:
        for section, message in found:
            with contextlib.suppress(FormatError):
                decode(bytes.fromhex(section) if section else None, message, errors="surrogateescape")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
