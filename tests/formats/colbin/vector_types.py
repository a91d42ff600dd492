"""The types of the golden vectors as Python classes and values."""

from __future__ import annotations

import dataclasses
import keyword
from typing import Annotated, Any

from colstore_io.formats.colbin import markers
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


def root_type(case: dict[str, Any]) -> Any:
    """Return the Python type of a vector's root."""
    classes = python_types(case["types"])
    root = case["root"]
    if isinstance(root, str):
        return SCALARS[root]
    ((kind, of),) = root.items()
    if kind == "struct":
        return classes[of]
    if kind == "structs":
        return list[classes[of]]
    return list[SCALARS[of]] if kind == "vec" else dict[SCALARS[of[0]], SCALARS[of[1]]]
