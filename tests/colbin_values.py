"""The types and values of the golden vectors as Python classes of every kind, and objects of them."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import struct
import sys
import types
import typing
from typing import Annotated, Any

import attrs
import msgspec
import numpy as np

from colstore_io.formats.colbin import markers
from colstore_io.formats.colbin.codec import Codec
from colstore_io.formats.colbin.encode import RecordRun
from colstore_io.formats.colbin.markers import field
from colstore_io.formats.colbin.schema import MapKind, Section, TypeCode

KINDS = ("slots", "dataclass", "attrs", "attrs-dict", "msgspec", "namedtuple", "typeddict")
_NUMBERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64")
SCALARS: dict[str, Any] = {
    **{name: getattr(markers, name) for name in _NUMBERS},
    "bool": bool,
    "str": str,
    "bytes": bytes,
    "any": Any,
    "strs": list[str],
    "anys": list[Any],
}
_numbers = itertools.count()


class VectorTypes:
    """The record types of one case as classes of one kind.

    The classes live in a module of their own, as a user's do: string annotations are looked up there.
    """

    def __init__(self, kinds: dict[str, Any], kind: str = "slots") -> None:
        self.kind = kind
        self.types = kinds
        self.module = types.ModuleType(f"vector_types_{next(_numbers)}")
        sys.modules[self.module.__name__] = self.module
        self.attributes: dict[str, dict[str, str]] = {}
        for name, definition in kinds.items():
            names = {}
            hints = {}
            for place, item in enumerate(definition["fields"]):
                attribute = item["name"] if kind == "typeddict" else f"field{place}"
                names[item["name"]] = attribute
                options = field(
                    id=item["id"],
                    name=item["name"],
                    optional_record=isinstance(item["t"], dict) and "ptrstruct" in item["t"],
                )
                hints[attribute] = Annotated[self.hint(item["t"]), options]
            self.attributes[name] = names
            setattr(self.module, name, self._make(name, hints))

    def _make(self, name: str, hints: dict[str, Any]) -> type:
        module = self.module.__name__
        if self.kind in ("slots", "dataclass"):
            cls = dataclasses.make_dataclass(name, list(hints.items()), slots=self.kind == "slots")
        elif self.kind in ("attrs", "attrs-dict"):
            body = {"__annotations__": hints, "__module__": module}
            cls = attrs.define(slots=self.kind == "attrs")(type(name, (), body))
        elif self.kind == "msgspec":
            # without a module it is asked for type hints at once, which other classes of the module are not ready for
            cls = msgspec.defstruct(name, list(hints.items()), module=module)
        elif self.kind == "namedtuple":
            cls = typing.NamedTuple(name, list(hints.items()))
        else:
            cls = typing.TypedDict(name, hints)
        cls.__module__ = module
        return cls

    def hint(self, expression: Any) -> Any:
        if isinstance(expression, str):
            return SCALARS[expression]
        ((kind, of),) = expression.items()
        if kind == "vec":
            return list[SCALARS[of]]
        if kind == "ptr":
            return typing.Optional[SCALARS[of]]  # noqa: UP045
        if kind == "map":
            return dict[SCALARS[of[0]], SCALARS[of[1]]]
        if kind == "struct":
            return typing.ForwardRef(of)
        return list[typing.ForwardRef(of)] if kind == "structs" else typing.Optional[of]  # noqa: UP045

    def codec(self, root: Any) -> Codec[Any]:
        if isinstance(root, dict) and "struct" in root:
            return Codec(self.cls(root["struct"]))
        if isinstance(root, dict) and "structs" in root:
            return Codec(list[self.cls(root["structs"])])
        return Codec(self.hint(root))

    def cls(self, name: str) -> Any:
        return getattr(self.module, name)

    def value(self, expression: Any, value: Any) -> Any:
        """Return a value of the vectors as Python has it."""
        if value is None:
            return None
        if isinstance(expression, str):
            return _scalar(expression, value, self)
        ((kind, of),) = expression.items()
        if kind == "ptr":
            return _scalar(of, value, self)
        if kind == "vec":
            return value
        if kind == "map":
            return {_scalar(of[0], k, self): self.value(of[1], v) for k, v in value}
        if kind in ("struct", "ptrstruct"):
            return self.record(of, value)
        return [self.record(of, row) for row in value]

    def record(self, name: str, value: dict[str, Any]) -> Any:
        arguments = {
            self.attributes[name][item["name"]]: self.value(item["t"], value[item["name"]])
            for item in self.types[name]["fields"]
        }
        return self.cls(name)(**arguments)

    def dynamic(self, value: Any) -> Any:
        if value is None:
            return None
        if "rec" in value:
            return self.record(value["rec"], value["v"])
        if "recs" in value:
            return RecordRun(self.cls(value["recs"]), [self.record(value["recs"], row) for row in value["v"]])
        ((tag, inner),) = value.items()
        if tag == "f32":
            return np.float32(_float(inner, "f32"))
        if tag == "f64":
            return _float(inner, "f64")
        if tag == "x":
            return bytes.fromhex(inner)
        if tag == "s":
            return _text(inner)
        if tag == "l":
            return [self.dynamic(item) for item in inner]
        if tag == "m":
            return {self.dynamic(k): self.dynamic(v) for k, v in inner}
        return inner


def _scalar(name: str, value: Any, owner: VectorTypes) -> Any:
    if name in ("f32", "f64"):
        return _float(value, name)
    if name == "str":
        return _text(value)
    if name == "bytes":
        return bytes.fromhex(value["$hex"]) if isinstance(value, dict) else value.encode()
    if name == "strs":
        return [_text(item) for item in value]
    if name == "any":
        return owner.dynamic(value)
    if name == "anys":
        return [owner.dynamic(item) for item in value]
    return value


def _float(bits: str, name: str) -> float:
    return float(struct.unpack(">f" if name == "f32" else ">d", bytes.fromhex(bits))[0])


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return bytes.fromhex(value["$hex"]).decode("utf-8", "surrogateescape")
    return str(value)


def has_dynamic(types: dict[str, Any], root: Any) -> bool:
    """Whether a case has a dynamic value anywhere: then decoding loses what its records were."""
    found = collections.deque([root, *(f["t"] for t in types.values() for f in t["fields"])])
    for expression in found:
        if expression in ("any", "anys"):
            return True
        if isinstance(expression, dict) and "any" in expression.get("map", ()):
            return True
    return False


_KIND_NAMES = {
    MapKind.STRING: "str",
    MapKind.SIGNED: "i64",
    MapKind.UNSIGNED: "u64",
    MapKind.F64: "f64",
    MapKind.BOOL: "bool",
    MapKind.F32: "f32",
    MapKind.DYNAMIC: "any",
}


def types_of_section(section: Section) -> tuple[dict[str, Any], Any]:
    """Return a section as the vectors spell types, and its root; names are made up, keys are explicit ids."""

    def expression(kind: Any) -> Any:
        code = TypeCode(kind.code)
        if code <= TypeCode.F64:
            return code.name.lower()
        if TypeCode.LIST_I8 <= code <= TypeCode.LIST_U64:
            return {"vec": code.name.removeprefix("LIST_").lower()}
        simple = {
            TypeCode.STRING: "str",
            TypeCode.BYTES: "bytes",
            TypeCode.STRINGS: "strs",
            TypeCode.DYNAMIC: "any",
            TypeCode.DYNAMICS: "anys",
        }
        if code in simple:
            return simple[code]
        if code == TypeCode.MAP:
            return {"map": [_KIND_NAMES[MapKind(kind.key_kind)], _KIND_NAMES[MapKind(kind.value_kind)]]}
        if code == TypeCode.OPTIONAL:
            return {"ptr": "str" if kind.pointee == TypeCode.STRING else TypeCode(kind.pointee).name.lower()}
        word = {TypeCode.RECORD: "struct", TypeCode.RECORDS: "structs"}.get(code, "ptrstruct")
        return {word: f"T{kind.index}"}

    types = {
        f"T{index}": {
            "fields": [
                {"name": f"{place}:{item.name}", "id": item.key + 1, "t": expression(item.type)}
                for place, item in enumerate(struct.fields)
            ]
        }
        for index, struct in enumerate(section.structs)
    }
    if section.root.envelope:
        root = types["T0"]["fields"][0]["t"]
        return types, root
    return types, {"struct": "T0"}
