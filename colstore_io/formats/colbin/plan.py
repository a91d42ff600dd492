"""How are the records of a type reached? Compiled plans for the record kernel, from definitions.

`typed_plans` compiles the definitions of Python classes: fields are read and written at the offset of their slot where
the class has slots, by attribute, by position, or by key. `schema_plans` compiles a bare section: its records are
dicts. Both give one plan per definition, in the section's order.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from ...kernels import colbin as kernel
from .annotations import Definitions, RecordSource
from .schema import FieldDef, MapKind, Section, StructDef, TypeCode

__all__ = ["schema_plans", "typed_plans"]

_SCALAR_ZERO: dict[int, object] = {
    TypeCode.BOOL: False,
    **dict.fromkeys(range(TypeCode.I8, TypeCode.U64 + 1), 0),
    TypeCode.F32: 0.0,
    TypeCode.F64: 0.0,
    TypeCode.STRING: "",
}
_CODE_OF_KIND = {
    MapKind.STRING: TypeCode.STRING,
    MapKind.SIGNED: TypeCode.I64,
    MapKind.UNSIGNED: TypeCode.U64,
    MapKind.F64: TypeCode.F64,
    MapKind.BOOL: TypeCode.BOOL,
    MapKind.F32: TypeCode.F32,
    MapKind.DYNAMIC: TypeCode.DYNAMIC,
}


def typed_plans(defs: Definitions) -> tuple[kernel.Plan, ...]:
    """Compile the definitions of Python types.

    Parameters
    ----------
    defs : Definitions

    Returns
    -------
    tuple of Plan
        One per definition of ``defs.section``. Lists, maps and byte strings that are absent in a message read as
        empty, or as None where their annotation allows it.
    """
    plans = tuple(
        kernel.Plan(kernel.ENVELOPE, None, k8=struct.k8)
        if source is None
        else kernel.Plan(_mode(source), _class_of(source), k8=struct.k8, post=_post(source))
        for struct, source in zip(defs.section.structs, defs.records, strict=True)
    )
    for plan, struct, source in zip(plans, defs.section.structs, defs.records, strict=True):
        fields = []
        for position, item in enumerate(struct.fields):
            if source is None:
                attribute, nullable, left_out, offset = item.name, defs.root_nullable, False, -1
            else:
                side = source.fields[position]
                attribute, nullable, left_out = side.attribute, side.nullable, not side.required
                offset = _offset(source, attribute)
            fields.append(_field(item, attribute, plans, nullable=nullable, left_out=left_out, offset=offset))
        plan.define(fields)
    return plans


def schema_plans(section: Section) -> tuple[kernel.Plan, ...]:
    """Compile a section without Python types: records are dicts by wire name, absent lists and bytes are None."""
    plans = tuple(
        kernel.Plan(kernel.ENVELOPE if struct.envelope else kernel.DICT, None, k8=struct.k8)
        for struct in section.structs
    )
    for plan, struct in zip(plans, section.structs, strict=True):
        plan.define(_schema_fields(struct, plans))
    return plans


def _schema_fields(struct: StructDef, plans: tuple[kernel.Plan, ...]) -> list[tuple[Any, ...]]:
    return [_field(item, item.name, plans, nullable=True) for item in struct.fields]


def _field(
    item: FieldDef,
    name: str,
    plans: tuple[kernel.Plan, ...],
    *,
    nullable: bool,
    left_out: bool = False,
    offset: int = -1,
) -> tuple[Any, ...]:
    """Return a field as `Plan.define` takes it."""
    kind = item.type
    code = kind.code
    zero: object = None
    shares_zero = True
    if code in _SCALAR_ZERO:
        zero = _SCALAR_ZERO[code]
    elif code == TypeCode.RECORD:
        shares_zero = False
    elif code not in (TypeCode.OPTIONAL, TypeCode.DYNAMIC, TypeCode.OPTIONAL_RECORD) and not nullable:
        zero, shares_zero = (b"", True) if code == TypeCode.BYTES else (None, False)
    map_key = map_value = int(TypeCode.I64)
    if code == TypeCode.MAP:
        map_key = kind.key_code if kind.key_code >= 0 else _CODE_OF_KIND[MapKind(kind.key_kind)]
        map_value = kind.value_code if kind.value_code >= 0 else _CODE_OF_KIND[MapKind(kind.value_kind)]
    child = plans[kind.index] if kind.index >= 0 else None
    pointee = max(kind.pointee, 0)
    return (
        item.key, int(code), pointee, int(map_key), int(map_value), left_out, offset, sys.intern(name), item.name,
        shares_zero, zero, child,
    )  # fmt: skip


def _class_of(source: RecordSource) -> type | None:
    return None if source.kind == "typeddict" else source.cls


def _mode(source: RecordSource) -> int:
    if source.kind == "typeddict":
        return kernel.DICT
    if source.kind == "namedtuple":
        return kernel.TUPLE
    has_slots = any(_offset(source, side.attribute) >= 0 for side in source.fields)
    return kernel.SLOTS if has_slots else kernel.ATTRIBUTES


def _offset(source: RecordSource, attribute: str) -> int:
    """Return where a field is: position in the tuple, or offset of the slot, -1 when it has neither."""
    cls = source.cls
    if source.kind == "namedtuple":
        position: int = cls._fields.index(attribute)  # type: ignore[attr-defined]
        return position
    if source.kind == "typeddict":
        return -1
    for base in cls.__mro__:
        if attribute in vars(base):
            # the first class of the order is the one that attribute access finds; a property there hides the slot
            return kernel.slot_offset(cls, vars(base)[attribute])
    return -1


def _post(source: RecordSource) -> Callable[[Any], object] | None:
    """Return what completes a decoded object: defaults of the fields that messages do not have, ``__post_init__``."""
    cls = source.cls
    if source.kind not in ("dataclass", "attrs", "msgspec"):
        return None
    defaults = _unsent_defaults(source)
    last = getattr(cls, "__attrs_post_init__" if source.kind == "attrs" else "__post_init__", None)
    if not defaults:
        return last

    def complete(item: Any) -> None:
        for name, make in defaults:
            object.__setattr__(item, name, make())
        if last is not None:
            last(item)

    return complete


def _unsent_defaults(source: RecordSource) -> list[tuple[str, Callable[[], object]]]:
    """Return how the fields of a class that are on no wire get their values."""
    sent = {side.attribute for side in source.fields}
    found: list[tuple[str, Callable[[], object]]] = []
    if source.kind == "dataclass":
        for each in dataclasses.fields(source.cls):
            if each.name in sent:
                continue
            if each.default_factory is not dataclasses.MISSING:
                found.append((each.name, each.default_factory))
            elif each.default is not dataclasses.MISSING:
                found.append((each.name, _constant(each.default)))
    elif source.kind == "attrs":
        for each in source.cls.__attrs_attrs__:  # type: ignore[attr-defined]
            if each.name in sent or each.default is None:
                if each.name not in sent:
                    found.append((each.name, _constant(None)))
                continue
            factory = getattr(each.default, "factory", None)
            if factory is not None and not each.default.takes_self:
                found.append((each.name, factory))
            elif factory is None and not _is_nothing(each.default):
                found.append((each.name, _constant(each.default)))
    return found


def _is_nothing(value: object) -> bool:
    return type(value).__name__ == "_Nothing"


def _constant(value: object) -> Callable[[], object]:
    return lambda: value
