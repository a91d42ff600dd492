"""Definitions, keys, and the schema section (colbin.md 3, 4, 10, 15)."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colstore_io.errors import FormatError
from colstore_io.formats.colbin.schema import (
    COLUMN_CODES,
    FieldDef,
    FieldType,
    Section,
    SectionBuilder,
    StructDef,
    TypeCode,
    assign_keys,
    fnv8,
)


def vectors(shared, name):
    return json.loads((shared / f"vectors/colbin/{name}.json").read_text())


def sections_of(shared):
    for name in ("messages", "random", "dynamic", "infer", "fieldkeys"):
        data = vectors(shared, name)
        yield from (case["section"] for case in data.get("cases") or data["types"] if "section" in case)


def test_golden_hashes(shared):
    cases = vectors(shared, "fieldkeys")["fnv8"]
    assert [fnv8(case["name"]) for case in cases] == [case["fnv8"] for case in cases]


def test_golden_sections_come_back(shared):
    sections = {bytes.fromhex(text) for text in sections_of(shared)}
    assert len(sections) > 200
    for data in sections:
        assert Section.from_bytes(data).to_bytes() == data


def test_golden_refusals_and_odd_sections(shared):
    cases = [c for c in vectors(shared, "hostile")["cases"] if c["name"].startswith("section ")]
    refused = 0
    for case in cases:
        data = bytes.fromhex(case["section"])
        if (case.get("refusal") or "").startswith("section"):
            refused += 1
            with pytest.raises(FormatError, match="schema section"):
                Section.from_bytes(data)
        else:
            Section.from_bytes(data)
    assert refused >= 15


PLAIN = st.sampled_from([c for c in TypeCode if c <= TypeCode.STRINGS or c in (25, 26)]).map(FieldType.scalar)
KEYED = st.tuples(
    st.sampled_from([TypeCode.I64, TypeCode.U64, TypeCode.STRING]),
    st.sampled_from([*range(TypeCode.BYTES), TypeCode.DYNAMIC]),
).map(lambda codes: FieldType.map(*codes).on_wire)
OPTIONAL = st.sampled_from(sorted(COLUMN_CODES)).map(FieldType.optional)


NAMES = st.text("aZ_ñ€😀", max_size=6) | st.just("n" * 300)


@st.composite
def sections(draw):
    count = draw(st.integers(1, 4))
    structs = []
    for number in range(count):
        anywhere = st.integers(0, count - 1)
        kinds = [
            PLAIN,
            KEYED,
            OPTIONAL,
            anywhere.map(FieldType.records),
            anywhere.map(FieldType.optional_record),
        ]
        if number + 1 < count:  # by value only downwards: no cycle
            kinds.append(st.integers(number + 1, count - 1).map(FieldType.record))
        keys = draw(st.lists(st.integers(0, 255), unique=True, max_size=6))
        fields = tuple(
            FieldDef(
                draw(NAMES),
                key,
                draw(st.one_of(kinds)),
            )
            for key in keys
        )
        envelope = number == 0 and len(fields) == 1 and draw(st.booleans())
        structs.append(StructDef("", fields, draw(st.booleans()), envelope))
    return Section(tuple(structs))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(sections())
def test_sections_come_back(section):
    data = section.to_bytes()
    again = Section.from_bytes(data)
    assert again == section
    assert hash(again) == hash(section)
    assert again.to_bytes() == data


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(sections(), st.data())
def test_cut_and_changed_sections_are_refused_or_read(section, data):
    whole = section.to_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(FormatError):
        Section.from_bytes(whole[:cut])
    changed = bytearray(whole)
    changed[cut] = data.draw(st.integers(0, 255))
    try:
        Section.from_bytes(changed)
    except FormatError:
        pass


def test_bytes_behind_a_section_are_refused():
    section = Section((StructDef("", (FieldDef("a", 0, FieldType.scalar(4)),), False),))
    with pytest.raises(FormatError, match="follow"):
        Section.from_bytes(section.to_bytes() + b"\0")
    assert Section.read(b"xx" + section.to_bytes() + b"yy", 2) == (section, 2 + len(section.to_bytes()))


def test_claims_are_checked_before_anything_is_allocated():
    with pytest.raises(FormatError, match="definitions"):
        Section.from_bytes(b"\x05\xff\xff\xff\xff\xff")
    with pytest.raises(FormatError, match="fields"):
        Section.from_bytes(b"\x08\x01\x00\xff\xff\xff\xff\xff\x00")


def test_explicit_ids_reserve_their_keys_first():
    keys = assign_keys(["CompanyID", "User", "Pinned"], [None, None, 203])
    assert keys == [203, 106, 202]  # the hash of CompanyID is 202, which the id 203 took
    assert assign_keys(["a", "b"], [256, 1]) == [255, 0]


def test_full_records_wrap_around():
    names = [f"f{number}" for number in range(256)]
    assert sorted(assign_keys(names, [None] * 256)) == list(range(256))


@pytest.mark.parametrize(
    ("names", "ids", "message"),
    [
        ([], [], "at least one"),
        (["a"] * 257, [None] * 257, "at most 256"),
        (["a"], [0], "id 0"),
        (["a"], [257], "id 257"),
        (["a", "b"], [3, 3], "same id 3"),
    ],
)
def test_impossible_keys_are_refused(names, ids, message):
    with pytest.raises(ValueError, match=message):
        assign_keys(names, ids)


def test_exact_map_types_are_not_on_the_wire():
    exact = Section((StructDef("R", (FieldDef("m", 0, FieldType.map(TypeCode.U8, TypeCode.I16)),), False),))
    again = Section.from_bytes(exact.to_bytes())
    assert exact != again
    assert exact.on_wire == again
    assert exact.is_prefix_of(again)
    assert again.is_prefix_of(Section((*again.structs, *again.structs)))
    assert not Section((*again.structs, *again.structs)).is_prefix_of(again)


def test_builder_numbers_in_pre_order_and_refuses_values_inside_themselves():
    builder = SectionBuilder()

    def inner():
        return StructDef("Inner", (FieldDef("up", 0, FieldType.records(builder.add("outer", None))),), False)

    def outer():
        first = FieldDef("a", 0, FieldType.record(builder.add("inner", inner)))
        return StructDef(
            "Outer", (first, FieldDef("b", 1, FieldType.records(builder.add("inner", inner)))), False
        )

    assert builder.add("outer", outer) == 0
    assert [s.name for s in builder.section().structs] == ["Outer", "Inner"]
    bad = SectionBuilder()
    bad.add("self", lambda: StructDef("Self", (FieldDef("a", 0, FieldType.record(0)),), False))
    with pytest.raises(ValueError, match="'Self' contains itself"):
        bad.section()


def test_long_chains_of_records_need_no_stack():
    structs = [StructDef("", (FieldDef("a", 0, FieldType.record(n + 1)),), False) for n in range(20_000)]
    section = Section((*structs, StructDef("", (FieldDef("a", 0, FieldType.scalar(4)),), False)))
    assert Section.from_bytes(section.to_bytes()) == section
