"""Definitions as Python modules."""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import pytest
from colbin_values import VectorTypes, has_dynamic

from colstore_io.formats.colbin.generate import generate_source
from colstore_io.formats.colbin.schema import FieldDef, FieldType, Section, StructDef, TypeCode


def imported(source: str, name: str) -> Any:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, name, "exec"), vars(module))
    return module


@pytest.mark.parametrize("name", ["messages", "random", "dynamic"])
def test_generated_modules_have_the_section_and_write_the_bytes_of_the_plan(shared, name):
    cases = json.loads((shared / "vectors" / "colbin" / f"{name}.json").read_text())["cases"]
    modules: dict[str, Any] = {}
    for case in cases:
        if case["packed5"]:
            continue
        module = modules.get(case["section"])
        if module is None:
            codec = VectorTypes(case["types"]).codec(case["root"])
            module = imported(codec.generate_source(), f"generated_{name}_{len(modules)}")
            modules[case["section"]] = module
            assert module.CODEC.schema.to_bytes() == module.SECTION == bytes.fromhex(case["section"])
        if has_dynamic(case["types"], case["root"]):
            continue
        message = bytes.fromhex(case["message"])
        try:
            value = module.decode(message)
        except ValueError:  # text that is no UTF-8: the functions have no option for it
            continue
        assert module.encode(value) == message


def test_sections_of_others_become_classes(shared):
    cases = json.loads((shared / "vectors" / "colbin" / "messages.json").read_text())["cases"]
    for number, case in enumerate({case["section"]: case for case in cases}.values()):
        section = Section.from_bytes(bytes.fromhex(case["section"]))
        module = imported(generate_source(section), f"generated_bare_{number}")
        assert module.SECTION.hex() == case["section"] == module.CODEC.schema.to_bytes().hex()


def test_names_that_python_does_not_have_are_options():
    names = ("class", "two words", "i32", "ok", "field_0", "9")
    fields = tuple(FieldDef(name, key, FieldType.scalar(TypeCode.STRING)) for key, name in enumerate(names))
    section = Section((StructDef("Codec", fields, False),))
    source = generate_source(section)
    module = imported(source, "generated_names")
    assert module.CODEC.schema.to_bytes() == section.to_bytes()
    assert "field(id=2, name='two words')" in source


def test_what_annotations_cannot_say_is_refused():
    any_field = FieldDef("x", 0, FieldType.scalar(TypeCode.DYNAMIC))
    plain = FieldDef("x", 0, FieldType.scalar(TypeCode.I8))
    for struct, text in (
        (StructDef("", (any_field,), False), "four-bit keys"),
        (StructDef("", (plain,), True), "eight-bit keys"),
        (StructDef("", (), False), "no fields"),
        (StructDef("", (plain, FieldDef("x", 1, plain.type)), False), "one name"),
        (StructDef("", (FieldDef("", 1, plain.type),), False), "empty name"),
    ):
        with pytest.raises(ValueError, match=text):
            generate_source(Section((struct,)))
