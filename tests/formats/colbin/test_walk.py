"""Messages as JSON text: golden texts, refusals, bounds (colbin.md 12 to 15)."""

from __future__ import annotations

import hashlib
import json
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colstore_io.errors import FormatError
from colstore_io.formats.colbin import walk
from colstore_io.formats.colbin.codec import decode
from colstore_io.formats.colbin.json_text import quote_bytes, spell_base64, spell_f32, spell_f64
from colstore_io.formats.colbin.schema import FieldDef, FieldType, Section, StructDef, TypeCode
from colstore_io.formats.colbin.walk import to_json

CORPUS = ("users", "products", "categories", "stores", "sales", "events", "metrics")


def cases_of(shared, name):
    return json.loads((shared / f"vectors/colbin/{name}.json").read_text())["cases"]


def test_golden_spellings(shared):
    spell = {
        "f64": lambda c: spell_f64(struct.unpack(">d", bytes.fromhex(c["bits"]))[0]),
        "f32": lambda c: spell_f32(np.uint32(int(c["bits"], 16)).view(np.float32)),
        "str": lambda c: quote_bytes(bytes.fromhex(c["bytes"])),
        "blob": lambda c: spell_base64(bytes.fromhex(c["bytes"])),
    }
    for case in cases_of(shared, "json_text"):
        assert spell[case["kind"]](case) == case["text"], case


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_read_back(value):
    text = spell_f64(value)
    assert float(text) == value
    assert ("e" in text) == (value != 0 and (abs(value) < 1e-6 or abs(value) >= 1e21))
    assert len(text.partition("e")[0].replace("-", "").replace(".", "").strip("0")) <= 17


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_single_floats_read_back(value):
    text = spell_f32(np.float32(value))
    assert np.float32(text) == np.float32(value)
    assert len(text.partition("e")[0].replace("-", "").replace(".", "").strip("0")) <= 9


FLOATS = Section(
    (
        StructDef(
            "",
            (FieldDef("a", 0, FieldType.scalar(TypeCode.F64)), FieldDef("b", 1, FieldType.scalar(9))),
            False,
        ),
    )
)


@given(
    st.floats()
    | st.integers(-(10**6), 10**6).map(lambda n: n / 100)
    | st.integers(-(2**60), 2**60).map(float),
    st.floats(width=32) | st.integers(-9999, 9999).map(lambda n: float(np.float32(n / 10))),
)
def test_kernel_and_twin_spell_floats_alike(double, single):
    message = b"\xd0\x0f" + struct.pack(">d", double) + b"\x1b" + struct.pack(">f", single)
    by_kernel, by_twin = both(FLOATS, message)
    assert by_kernel == by_twin


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_json_has_no_such_float(value):
    with pytest.raises(ValueError, match="JSON has no"):
        spell_f64(value)
    with pytest.raises(ValueError, match="JSON has no"):
        spell_f32(np.float32(value))


def check(section, message, want, fails):
    if fails:
        with pytest.raises(FormatError, match="JSON has no"):
            to_json(section, message)
    else:
        assert to_json(section, message) == want


@pytest.mark.parametrize("name", ["messages", "random", "dynamic"])
def test_golden_messages(shared, name):
    for case in cases_of(shared, name):
        section = bytes.fromhex(case["section"])
        described = bytes.fromhex(case["self_describing"])
        fails = case.get("json_error", False)
        check(section, bytes.fromhex(case["message"]), case.get("json"), fails)
        fails = case.get("sd_json_error", fails and "sd_json" not in case)
        for schema, message in ((section, "message"), (None, "self_describing")):
            by_kernel, by_twin = both(schema, bytes.fromhex(case[message]))
            assert by_kernel == by_twin, case
        for given_schema in (None, section, Section.from_bytes(section)):
            check(given_schema, described, case.get("sd_json", case.get("json")), fails)


@pytest.mark.parametrize(("name", "count"), [("hostile", 136), ("mutated", 391)])
def test_golden_verdicts(shared, name, count):
    cases = cases_of(shared, name)
    assert len(cases) == count
    for case in cases:
        section = bytes.fromhex(case["section"]) if case.get("section") else None
        message = bytes.fromhex(case["message"])
        by_kernel, by_twin = both(section, message)
        assert by_kernel == by_twin, case
        if case["must"] == "accept":
            assert to_json(section, message) == case["json"], case
        else:
            with pytest.raises(FormatError):
                to_json(section, message)


def without_nothing(value):
    """Return `value` with null for each empty list: the corpus has both (its README)."""
    if isinstance(value, dict):
        return {name: without_nothing(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_nothing(item) for item in value] or None
    return value


@pytest.mark.parametrize("name", CORPUS)
def test_golden_corpus(shared, name):
    data = json.loads((shared / f"vectors/colbin/corpus/{name}.json").read_text())
    rows = [json.loads(to_json(bytes.fromhex(data["section"]), bytes.fromhex(row))) for row in data["rows"]]
    assert rows == without_nothing(data["rows_json"])
    table = to_json(bytes.fromhex(data["table_section"]), bytes.fromhex(data["table_message"]))
    assert json.loads(table) == without_nothing(data["rows_json"])
    if name in ("users", "products", "categories", "stores", "metrics"):  # tables list all columns in order
        assert hashlib.sha256(table.encode()).hexdigest() == data["json_sha256"]


def section_of(*structs):
    return Section(tuple(structs))


def test_a_message_without_a_section_needs_one():
    with pytest.raises(ValueError, match=r"pass it, as in colbin\.to_json"):
        to_json(None, b"\xd0")


def test_absent_records_are_objects_of_zeros():
    inner = StructDef("", (FieldDef("x", 0, FieldType.scalar(TypeCode.I32)),), False)
    outer = StructDef(
        "", (FieldDef("a", 0, FieldType.record(1)), FieldDef("b", 1, FieldType.record(1))), False
    )
    assert to_json(section_of(outer, inner), b"\xd0\x10\x00") == '{"b":{"x":0},"a":{"x":0}}'


def test_what_is_there_with_length_zero_is_empty():
    kinds = [
        FieldType.scalar(TypeCode.BYTES),
        FieldType.scalar(TypeCode.LIST_I8),
        FieldType.scalar(TypeCode.STRINGS),
    ]
    kinds += [FieldType.records(0), FieldType.map(TypeCode.STRING, TypeCode.I8)]
    fields = tuple(
        FieldDef(name, key, kind) for key, (name, kind) in enumerate(zip("abcde", kinds, strict=True))
    )
    message = b"\xd0\x00\x00\x18\x00\x20\x00\x30\x01\x00\x40\x01\x00"
    assert (
        to_json(section_of(StructDef("", fields, False)), message) == '{"a":"","b":[],"c":[],"d":[],"e":{}}'
    )


def test_zeros_that_grow_or_nest_without_end_are_refused():
    def chain(length, width):
        structs = [
            StructDef("", tuple(FieldDef("f", key, FieldType.record(n + 1)) for key in range(width)), False)
            for n in range(length)
        ]
        return section_of(*structs, StructDef("", (FieldDef("x", 0, FieldType.scalar(4)),), False))

    with pytest.raises(FormatError, match="max_text"):
        to_json(chain(60, 4), b"\xd0")
    with pytest.raises(FormatError, match="nested too deeply"):
        to_json(chain(128, 1), b"\xd0")
    assert to_json(chain(127, 1), b"\xd0").count("{") == 128


def table_of(rows, columns):
    row = StructDef("", tuple(FieldDef(f"c{n}", n, FieldType.scalar(4)) for n in range(columns)), False)
    section = section_of(
        StructDef("", (FieldDef("rows", 0, FieldType.records(1)),), False, envelope=True), row
    )
    return section, b"\xd0\x08\x05\xff" + rows.to_bytes(4, "little")


def test_tables_are_bounded():
    assert to_json(*table_of(3, 2)) == '[{"c0":0,"c1":0},{"c0":0,"c1":0},{"c0":0,"c1":0}]'
    with pytest.raises(FormatError, match="max_rows"):
        to_json(*table_of((1 << 22) + 1, 1))
    with pytest.raises(FormatError, match="max_cells"):
        to_json(*table_of(1 << 22, 15))
    with pytest.raises(FormatError, match="max_rows 5"):
        to_json(*table_of(6, 1), max_rows=5)
    with pytest.raises(FormatError, match="max_text"):
        to_json(*table_of(50_000, 15), max_text=1000)


def test_rows_pay_for_long_names():
    row = StructDef("", (FieldDef("n" * 10_000, 0, FieldType.scalar(4)),), False)
    section = section_of(
        StructDef("", (FieldDef("rows", 0, FieldType.records(1)),), False, envelope=True), row
    )
    message = (
        b"\xd0\x02"
        + (255 * 256).to_bytes(4, "little")
        + b"\xff"
        + (65275).to_bytes(4, "little")
        + bytes(65275)
    )
    with pytest.raises(FormatError, match="max_text"):
        to_json(section, message)


def test_deep_stacks_of_the_caller_are_no_recursion_error(shared, monkeypatch):
    (case,) = (c for c in cases_of(shared, "hostile") if c["name"] == "dynamic lists, depth 127")

    def descend(levels):
        return (
            descend(levels - 1)
            if levels
            else to_json(bytes.fromhex(case["section"]), bytes.fromhex(case["message"]))
        )

    assert descend(700) == case["json"]
    monkeypatch.setattr(walk, "_by_kernel", lambda *args: None)
    with pytest.raises(FormatError, match="Python stack"):
        descend(700)


@given(st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_messages_are_read_or_refused(shared_messages, data):
    section, message = data.draw(st.sampled_from(shared_messages))
    changed = bytearray(message)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(
            st.integers(0, 255) | st.sampled_from([0, 0x7F, 0xF7, 0xFF, changed[place] ^ 8])
        )
    cut = data.draw(st.integers(1, len(changed)))
    for damaged in (bytes(changed), bytes(changed[:cut])):
        by_kernel, by_twin = both(section, damaged)
        assert by_kernel == by_twin
        if by_twin is not None:
            json.loads(by_twin)


def both(section, message):
    """Return the texts of kernel and twin, None where they refuse."""
    seen = []

    def watched(*args):
        seen.append(kernel(*args))

    kernel = walk._by_kernel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "_by_kernel", watched)
        try:
            text = to_json(section, message, max_rows=1 << 12, max_cells=1 << 14, max_text=1 << 18)
        except FormatError:
            text = None
    return (seen[0] if seen else text), text


@pytest.fixture(scope="module")
def shared_messages(shared):
    found = []
    for name in ("messages", "random", "dynamic"):
        for case in cases_of(shared, name)[::3]:
            found.append((bytes.fromhex(case["section"]), bytes.fromhex(case["message"])))
            found.append((None, bytes.fromhex(case["self_describing"])))
    return found


def doubling(levels: int) -> bytes:
    """A section whose record type n holds two records of type n + 1."""
    records = [
        b"\1\2" + b"".join(bytes([key, 1, 97 + key, 21, n + 1]) for key in (0, 1)) for n in range(levels)
    ]
    body = bytes([levels + 1]) + b"".join(records) + b"\1\0"
    return b"\xff" + len(body).to_bytes(4, "little") + body


def test_zeros_that_double_at_each_level_end_at_max_text():
    with pytest.raises(FormatError, match="max_text"):
        to_json(None, b"\xdc" + doubling(100), max_text=1 << 20)


def test_values_that_double_at_each_level_end_at_max_cells():
    with pytest.raises(FormatError, match="max_cells"):
        decode(None, b"\xdc" + doubling(100), max_cells=1 << 16)
