"""Definitions as a Python module: record classes that anybody can read, check in and import.

What comes out says the same as the definitions that went in: the module's codec has their section, byte for byte. It
is the way from a section that somebody else wrote to classes of one's own.
"""

from __future__ import annotations

import keyword
import re

from .schema import FieldDef, FieldType, MapKind, Section, StructDef, TypeCode, assign_keys

__all__ = ["generate_source"]

_SCALARS = {
    TypeCode.BOOL: ("bool", "False"),
    **{code: (code.name.lower(), "0") for code in map(TypeCode, range(TypeCode.I8, TypeCode.U64 + 1))},
    TypeCode.F32: ("f32", "0.0"),
    TypeCode.F64: ("f64", "0.0"),
    TypeCode.STRING: ("str", '""'),
    TypeCode.BYTES: ("bytes", 'b""'),
    TypeCode.DYNAMIC: ("Any", "None"),
}
_LISTS = {
    **{
        code: f"list[{code.name.removeprefix('LIST_').lower()}]"
        for code in map(TypeCode, range(TypeCode.LIST_I8, TypeCode.LIST_U64 + 1))
    },
    TypeCode.STRINGS: "list[str]",
    TypeCode.DYNAMICS: "list[Any]",
}
_KINDS = {
    MapKind.STRING: TypeCode.STRING,
    MapKind.SIGNED: TypeCode.I64,
    MapKind.UNSIGNED: TypeCode.U64,
    MapKind.F64: TypeCode.F64,
    MapKind.BOOL: TypeCode.BOOL,
    MapKind.F32: TypeCode.F32,
    MapKind.DYNAMIC: TypeCode.DYNAMIC,
}
_MARKERS = ("f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
_TAKEN = {
    "Annotated",
    "Any",
    "CODEC",
    "Codec",
    "SECTION",
    "dataclasses",
    "decode",
    "encode",
    "field",
    "record",
}


def generate_source(section: Section) -> str:
    """Return the text of a module with the record classes of a section and its codec.

    Parameters
    ----------
    section : Section
        From annotations (exact types of map entries are kept) or from bytes (they are the widest then).

    Returns
    -------
    str
        A module with one class per record type, ``SECTION``, ``CODEC``, ``encode`` and ``decode``. Every field has the
        zero of its type as default.

    Raises
    ------
    ValueError
        For what annotations cannot say: record types without fields, two fields of one name, an empty name, a type
        whose runs have eight-bit keys although neither its fields nor their names ask for them, dynamic fields under
        four-bit keys.
    """
    return _Module(section).text()


class _Module:
    def __init__(self, section: Section) -> None:
        self.section = section
        self.classes = self._class_names()

    def _class_names(self) -> list[str]:
        names: list[str] = []
        for index, struct in enumerate(self.section.structs):
            name = _identifier(struct.name, f"Record{index}")
            while name in names or name in _TAKEN or name in _MARKERS:
                name += "_"
            names.append(name)
        return names

    def text(self) -> str:
        root = self.section.root
        blocks = [
            self._class(index, struct)
            for index, struct in enumerate(self.section.structs)
            if not struct.envelope
        ]
        tp = self._hint(root.fields[0].type) if root.envelope else self.classes[0]
        body = "\n\n\n".join(blocks)
        used = [marker for marker in _MARKERS if re.search(rf"\b{marker}\b", body + tp)]
        names = ", ".join([*(["Codec", "field", "record"]), *used])
        tail = (
            f"SECTION = bytes.fromhex(\n{_wrapped(self.section.to_bytes().hex())})\n"
            '"""The schema section: what a reader without these classes needs."""\n\n'
            f"CODEC: Codec[{tp}] = Codec({tp})\n\n\n"
            f"def encode(value: {tp}) -> bytes:\n    return CODEC.encode(value)\n\n\n"
            f"def decode(data: bytes) -> {tp}:\n    value: {tp} = CODEC.decode(data)\n    return value\n"
        )
        head = (
            '"""Records as colbin messages. Generated: change the definitions that it came from."""\n\n'
            "from __future__ import annotations\n\n"
            "import dataclasses\n"
            "from typing import Annotated, Any\n\n"
            f"from colstore_io.colbin import {names}\n"
        )
        return "\n\n".join([head, *([body + "\n"] if blocks else []), tail])

    def _class(self, index: int, struct: StructDef) -> str:
        if not struct.fields:
            raise ValueError(f"record type {index} has no fields, and a class needs one")
        attributes = _attributes(struct)
        ids = _ids(struct, index)
        lines = ["@record", f"class {self.classes[index]}:"]
        for item, attribute, number in zip(struct.fields, attributes, ids, strict=True):
            optional_record = item.type.code == TypeCode.OPTIONAL_RECORD
            options: list[str] = []
            if number is not None:
                options.append(f"id={number}")
            if attribute != item.name:
                options.append(f"name={item.name!r}")
            if optional_record:
                options.append("optional_record=True")
            hint = self._hint(item.type)
            if options == [f"id={number}"]:
                hint = f"Annotated[{hint}, {number}]"
            elif options:
                hint = f"Annotated[{hint}, field({', '.join(options)})]"
            lines.append(f"    {attribute}: {hint} = {self._default(item)}")
        return "\n".join(lines)

    def _hint(self, kind: FieldType) -> str:
        code = kind.code
        if code in _SCALARS:
            return _SCALARS[code][0]
        if code in _LISTS:
            return _LISTS[code]
        if code == TypeCode.OPTIONAL:
            return f"{_SCALARS[TypeCode(kind.pointee)][0]} | None"
        if code == TypeCode.MAP:
            key = kind.key_code if kind.key_code >= 0 else _KINDS[MapKind(kind.key_kind)]
            value = kind.value_code if kind.value_code >= 0 else _KINDS[MapKind(kind.value_kind)]
            return f"dict[{_SCALARS[TypeCode(key)][0]}, {_SCALARS[TypeCode(value)][0]}]"
        cls = self.classes[kind.index]
        if code == TypeCode.RECORDS:
            return f"list[{cls}]"
        return f"{cls} | None" if code == TypeCode.OPTIONAL_RECORD else cls

    def _default(self, item: FieldDef) -> str:
        code = item.type.code
        if code in _SCALARS:
            return _SCALARS[code][1]
        if code in (TypeCode.OPTIONAL, TypeCode.OPTIONAL_RECORD):
            return "None"
        if code == TypeCode.RECORD:
            return f"dataclasses.field(default_factory=lambda: {self.classes[item.type.index]}())"
        return f"dataclasses.field(default_factory={'dict' if code == TypeCode.MAP else 'list'})"


def _identifier(name: str, otherwise: str) -> str:
    return (
        name
        if name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")
        else otherwise
    )


def _attributes(struct: StructDef) -> list[str]:
    """Return one attribute name per field: the wire name where Python allows it."""
    if len({item.name for item in struct.fields}) != len(struct.fields):
        raise ValueError(f"record type {struct.name!r} has two fields of one name")
    if any(not item.name for item in struct.fields):
        raise ValueError(f"record type {struct.name!r} has a field with an empty name")
    taken = {item.name for item in struct.fields} | {"dataclasses"}
    names = []
    for place, item in enumerate(struct.fields):
        name = _identifier(item.name, "")
        if not name or name in _TAKEN or name in _MARKERS or name in ("bool", "str", "bytes", "list", "dict"):
            name = f"field_{place}"
            while name in taken:
                name += "_"
        taken.add(name)
        names.append(name)
    return names


def _ids(struct: StructDef, index: int) -> list[int | None]:
    """Return the id of each field; None where the width of the keys needs a field whose key is its name's hash."""
    ids: list[int | None] = [item.key + 1 for item in struct.fields]
    asked = struct.has_dynamic or any(item.key >= 16 for item in struct.fields)
    if struct.k8 == asked:
        return ids
    if not struct.k8:
        raise ValueError(f"record type {index} has four-bit keys, which its fields rule out")
    keys = [item.key for item in struct.fields]
    for place in range(len(ids)):
        tried = [*ids[:place], None, *ids[place + 1 :]]
        if assign_keys([item.name for item in struct.fields], tried) == keys:
            return tried
    raise ValueError(f"record type {index} has eight-bit keys that no id and no name asks for")


def _wrapped(text: str) -> str:
    lines = [text[at : at + 96] for at in range(0, len(text), 96)] or [""]
    return "".join(f'    "{line}"\n' for line in lines)
