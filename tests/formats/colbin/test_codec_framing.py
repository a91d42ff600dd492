"""Golden framing of single fields, and golden keys of types, through the typed codec (colbin.md 4, 5, 6)."""

from __future__ import annotations

import dataclasses
import json
import struct
from functools import cache
from typing import Annotated, Any

import numpy as np
import pytest
from formats.colbin.vector_types import root_type

from colstore_io.formats.colbin import markers as cs
from colstore_io.formats.colbin.annotations import record
from colstore_io.formats.colbin.codec import Codec

UNSIGNED = {cs.u8: 8, cs.u16: 16, cs.u32: 32, cs.u64: 64}
SIGNED = {cs.i8: 8, cs.i16: 16, cs.i32: 32, cs.i64: 64}
ROOTS = {False: b"\xd0", True: b"\xd8"}


@cache
def class_of(hint: Any, k8: bool) -> Any:
    """A record whose field `value` has key 3; with eight-bit keys, a second field with an id above 16 is the reason."""
    hints = {"value": Annotated[hint, 4]} | ({"wide": Annotated[cs.u8, 17]} if k8 else {})
    return record(type("Single", (), {"__annotations__": hints}))


@cache
def codec_of(hint: Any, k8: bool) -> Codec:
    return Codec(class_of(hint, k8))


def single(hint: Any, k8: bool, value: Any) -> Any:
    cls = class_of(hint, k8)
    return cls(value, 0) if k8 else cls(value)


def check(hint: Any, k8: bool, value: Any, field: bytes) -> None:
    """The field is exactly these bytes, and these bytes are the field."""
    codec = codec_of(hint, k8)
    message = codec.encode(single(hint, k8, value))
    assert message == ROOTS[k8] + field
    again = codec.decode(message)
    assert codec.encode(again) == message
    if not isinstance(value, float):  # a NaN is not equal to itself; its bytes are
        assert again.value == value


def cases(shared, kind):
    found = json.loads((shared / "vectors/colbin/framing.json").read_text())["cases"]
    return [case for case in found if case["kind"] == kind]


@pytest.mark.parametrize(("kind", "types"), [("uint", UNSIGNED), ("int", SIGNED)])
def test_integers_have_the_golden_bytes_in_every_type_that_holds_them(shared, kind, types):
    checked = 0
    for case in cases(shared, kind):
        value = case["value"]
        for hint, bits in types.items():
            low, high = (0, 2**bits - 1) if kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            if not low <= value <= high:
                continue
            checked += 1
            for k8, name in ((False, "k4"), (True, "k8")):
                check(hint, k8, value, bytes.fromhex(case[name]))
                # an entry of a map is two elements: the composite's header, one entry, the key, the value
                element = bytes.fromhex(case["elem_" + name])
                body = b"\x01" + element + element
                head = b"\x03\xe0" if k8 else b"\x30"
                check(dict[hint, hint], k8, {value: value}, head + bytes((len(body),)) + body)
    assert checked > 100


def test_bools_have_the_golden_bytes_of_zero_and_one(shared):
    for case in cases(shared, "uint"):
        if case["value"] < 2:
            for k8, name in ((False, "k4"), (True, "k8")):
                check(bool, k8, bool(case["value"]), bytes.fromhex(case[name]))


@pytest.mark.parametrize(("kind", "hint", "form"), [("f64", float, ">d"), ("f32", cs.f32, ">f")])
def test_floats_have_the_golden_bytes(shared, kind, hint, form):
    for case in cases(shared, kind):
        bits = bytes.fromhex(case["bits"])
        (value,) = struct.unpack(form, bits)
        for k8, name in ((False, "k4"), (True, "k8")):
            check(hint, k8, value, bytes.fromhex(case[name]))
        dynamic = np.frombuffer(bits, ">f4").astype("<f4")[0] if kind == "f32" else value
        codec = codec_of(Any, True)
        assert codec.encode(single(Any, True, dynamic)) == b"\xd8\x03" + bytes.fromhex(case["dyn"])


def test_text_and_bytes_have_the_golden_headers(shared):
    for case in cases(shared, "blob"):
        content = b"q" * case["size"]
        for k8, name in ((False, "k4"), (True, "k8")):
            head = bytes.fromhex(case[name])
            check(str, k8, content.decode(), head + content)
            check(bytes, k8, content, head + content)
            element = bytes.fromhex(case["elem_" + name]) + content
            message = codec_of(dict[str, str], k8).encode(single(dict[str, str], k8, {content.decode(): ""}))
            assert message.endswith(b"\x01" + element + (b"\x90\x00" if k8 else b"\x00\x00"))
        check(Any, True, content, b"\x03" + bytes.fromhex(case["dyn_bytes"]) + content)


def test_lists_of_strings_have_the_golden_headers(shared):
    for case in cases(shared, "strings_of_empty"):
        for k8, name in ((False, "k4"), (True, "k8")):
            check(list[str], k8, [""] * case["count"], bytes.fromhex(case[name]) + bytes(case["count"]))


def test_lists_of_integers_have_the_golden_headers(shared):
    for case in cases(shared, "vec"):
        first, count = case["first"], case["count"]
        for k8, name in ((False, "k4"), (True, "k8")):
            for value, head in ((first, case[name]), (-first, case[name + "_neg"])):
                values = [value] + [0] * (count - 1)
                codec = codec_of(list[cs.i64], k8)
                message = codec.encode(single(list[cs.i64], k8, values))
                assert message.startswith(ROOTS[k8] + bytes.fromhex(head))
                assert codec.decode(message).value == values


@record
class Text:
    content: Annotated[str, 1]


def test_lengths_stand_before_the_elements_of_a_list_of_strings(shared):
    for case in cases(shared, "length"):
        content = "q" * case["value"]
        message = codec_of(list[str], False).encode(single(list[str], False, [content]))
        assert message[:3] == b"\xd0\x30\x01"
        assert message[3:] == bytes.fromhex(case["hex"]) + content.encode()


def test_records_inside_records_have_the_golden_headers(shared):
    checked = 0
    for case in cases(shared, "composite"):
        size = case["body"]
        # a text whose field, header included, has that many bytes; there is none of 1 and 2
        room = next((n for n in range(max(0, size - 9), size + 1) if text_bytes(n) == size), None)
        if room is None:
            continue
        checked += 1
        inner = Text("q" * room)
        for k8, name in ((False, "k4"), (True, "k8")):
            message = codec_of(Text, k8).encode(single(Text, k8, inner))
            head = ROOTS[k8] + bytes.fromhex(case[name])
            assert message.startswith(head)
            assert len(message) == len(head) + size
            assert codec_of(Text, k8).decode(message).value == inner
        message = codec_of(list[Text], False).encode(single(list[Text], False, [inner]))
        assert message.endswith(b"\x01" + bytes.fromhex(case["k4_element"]) + message[len(message) - size :])
    assert checked >= 6


def text_bytes(n: int) -> int:
    return len(codec_of(str, False).encode(single(str, False, "q" * n))) - 1


def test_types_encode_under_their_golden_keys(shared):
    """A field that is not zero is alone in its message, whose second byte has its key."""
    ones = {int: 1, float: 1.0, bool: True, str: "q", bytes: b"q"}
    checked = 0
    for case in json.loads((shared / "vectors/colbin/fieldkeys.json").read_text())["types"]:
        cls = root_type(case)
        codec = Codec(cls)
        assert codec.schema.to_bytes().hex() == case["section"]
        definition = codec.schema.structs[0]
        root = ROOTS[definition.k8]
        zeros = codec.decode(root)
        if codec.encode(zeros) != root:
            continue  # records inside are always written
        for field, known in zip(dataclasses.fields(cls), definition.fields, strict=True):
            value = ones.get(type(getattr(zeros, field.name)))
            if value is None:
                continue
            one = dataclasses.replace(zeros, **{field.name: value})
            message = codec.encode(one)
            assert message[:1] == root
            assert known.key == (message[1] if definition.k8 else message[1] >> 4)
            assert codec.decode(message) == one
            checked += 1
    assert checked > 50
