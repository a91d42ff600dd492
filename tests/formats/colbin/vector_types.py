"""The types of the golden vectors as Python classes and values."""

from __future__ import annotations

import dataclasses
import keyword
import struct
from typing import Annotated, Any

import numpy as np

from colstore_io.formats.colbin import markers
from colstore_io.formats.colbin.encode import RecordRun
from colstore_io.formats.colbin.markers import field

SCALARS = {
    **{
        name: getattr(markers, name)
        for name in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64")
    },
    "bool": bool,
    "str": str,
    "bytes": bytes,
    "any": Any,
    "strs": list[str],
    "anys": list[Any],
}


def python_types(types: dict[str, Any]) -> dict[str, type]:
    """Return one dataclass per vector type; wire names are options where they are no identifiers."""
    classes: dict[str, type] = {}

    def hint(expression: Any) -> Any:
        if isinstance(expression, str):
            return SCALARS[expression]
        ((kind, of),) = expression.items()
        if kind == "vec":
            return list[SCALARS[of]]
        if kind == "ptr":
            return SCALARS[of] | None
        if kind == "map":
            return dict[SCALARS[of[0]], SCALARS[of[1]]]
        if kind == "struct":
            return make(of)
        return list[make(of)] if kind == "structs" else make(of) | None

    def make(name: str) -> Any:
        if name in classes:
            return classes[name]
        # a class of its own for every name first: types may refer to themselves
        cls = classes[name] = type(name, (), {"__module__": __name__, "__annotations__": {}})
        for place, item in enumerate(types[name]["fields"]):
            attribute = item["name"]
            if not attribute.isidentifier() or keyword.iskeyword(attribute):
                attribute = f"field{place}"
            options = field(
                id=item["id"],
                name=item["name"],
                optional_record=isinstance(item["t"], dict) and "ptrstruct" in item["t"],
            )
            cls.__annotations__[attribute] = Annotated[hint(item["t"]), options]
        return dataclasses.dataclass(cls)

    for name in types:
        make(name)
    return classes


def root_type(case: dict[str, Any], classes: dict[str, type] | None = None) -> Any:
    """Return the Python type of a vector's root."""
    classes = python_types(case["types"]) if classes is None else classes
    root = case["root"]
    if isinstance(root, str):
        return SCALARS[root]
    ((kind, of),) = root.items()
    if kind == "struct":
        return classes[of]
    if kind == "structs":
        return list[classes[of]]
    return list[SCALARS[of]] if kind == "vec" else dict[SCALARS[of[0]], SCALARS[of[1]]]


def f64(bits: str) -> float:
    return struct.unpack(">d", bytes.fromhex(bits))[0]


def f32(bits: str) -> np.float32:
    return np.frombuffer(bytes.fromhex(bits), ">f4").astype("<f4")[0]


def python_value(case: dict[str, Any], classes: dict[str, type]) -> Any:
    """Return the value of a vector: records as instances, strings that are no UTF-8 as bytes."""

    def of(expression: Any, value: Any) -> Any:
        if isinstance(expression, str):
            return scalar(expression, value)
        ((kind, inner),) = expression.items()
        if value is None and kind != "struct":
            return None
        if kind == "vec":
            return value
        if kind == "ptr":
            return scalar(inner, value)
        if kind == "map":
            return {scalar(inner[0], k): scalar(inner[1], v) for k, v in value}
        if kind == "structs":
            return [record(inner, row) for row in value]
        return record(inner, value)

    def record(name: str, value: dict[str, Any]) -> Any:
        fields = case["types"][name]["fields"]
        return classes[name](*[of(item["t"], value[item["name"]]) for item in fields])

    def scalar(name: str, value: Any) -> Any:
        if value is None:
            return None
        if name == "any":
            return dynamic(value)
        if name == "anys":
            return [dynamic(item) for item in value]
        if name == "strs":
            return [scalar("str", item) for item in value]
        if name == "f64":
            return f64(value)
        if name == "f32":
            return f32(value)
        return bytes.fromhex(value["$hex"]) if isinstance(value, dict) else value

    def dynamic(value: Any) -> Any:
        if value is None:
            return None
        if "rec" in value:
            return record(value["rec"], value["v"])
        if "recs" in value:
            return RecordRun(classes[value["recs"]], [record(value["recs"], row) for row in value["v"]])
        ((kind, inner),) = value.items()
        if kind == "l":
            return [dynamic(item) for item in inner]
        if kind == "m":
            return {dynamic(k): dynamic(v) for k, v in inner}
        if kind == "s":
            return scalar("str", inner)
        return {"f64": f64, "f32": f32, "x": bytes.fromhex}.get(kind, lambda v: v)(inner)

    return of(case["root"], case["value"])
