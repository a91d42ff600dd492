"""The extra key ``colstore_io``: nulls, time zones, categories and attributes (cstore.md 4.2).

The columns of a file stay plain, so that any library can read them. What they cannot say stands under one extra
key, in column objects and at top level, protected by a checksum of its own.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import FormatError
from ...fields import EXTRA_KEY, Field, PhysicalColumn, Schema
from .attributes import decode_attributes, encode_attributes
from .manifest import column_object, physical_columns, sorted_json

__all__ = [
    "CRC_KEY",
    "MAX_CATEGORIES_BYTES",
    "SchemaReading",
    "column_objects",
    "companion_name",
    "file_columns",
    "schema_from_columns",
    "top_level_extra",
]

CRC_KEY = "crc32"
MAX_CATEGORIES_BYTES = 64 << 10
"""Longer lists of categories are left out; ``ordered`` alone then says that the column is categorical."""

_COMPANION_DTYPE = np.dtype("|b1")


def companion_name(name: str, taken: Collection[str]) -> str:
    """Return the name of the validity companion of column `name`: ``.valid``, ``.valid2`` … as `taken` allows."""
    candidate = f"{name}.valid"
    number = 2
    while candidate in taken:
        candidate = f"{name}.valid{number}"
        number += 1
    return candidate


def _sealed(members: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return `members` sorted at every level with their checksum as last member; None when there are none."""
    if not members:
        return None
    text = sorted_json(members)
    sealed: dict[str, Any] = json.loads(text)
    sealed[CRC_KEY] = zlib.crc32(text)
    return sealed


def top_level_extra(attrs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the top-level value of the extra key that holds the attributes of a table; None without attributes.

    Raises
    ------
    TypeError
        Naming the attribute, if a value has no stored form.
    """
    return _sealed({"attrs": encode_attributes(attrs, "the table")} if attrs else {})


def column_objects(schema: Schema) -> list[dict[str, Any]]:
    """Return the column objects of a file that holds `schema`, companions right behind their columns.

    Raises
    ------
    TypeError
        If a name is no string, a dtype cannot be stored, or an attribute has no stored form.
    ValueError
        If a name occurs twice, or a member does not fit its column.
    """
    objects: list[dict[str, Any]] = []
    for field in schema.fields:
        column = column_object(field.name, field.dtype)
        extra = _sealed(_members(field))
        if extra is not None:
            column[EXTRA_KEY] = extra
        objects.append(column)
        if field.validity is not None:
            objects.append(column_object(field.validity, _COMPANION_DTYPE))
    seen: set[str] = set()
    for column in objects:
        if column["name"] in seen:
            raise ValueError(f"two columns are named {column['name']!r}; names must be different")
        seen.add(column["name"])
    return objects


def file_columns(schema: Schema) -> tuple[PhysicalColumn, ...]:
    """Return the physical columns of a new file that holds `schema` (`column_objects`, parsed)."""
    return physical_columns(column_objects(schema))


def _members(field: Field) -> dict[str, Any]:
    members: dict[str, Any] = {}
    if field.attrs:
        members["attrs"] = encode_attributes(field.attrs, f"column {field.name!r}")
    if field.categories is not None and field.ordered is None:
        raise ValueError(f"column {field.name!r} has categories, but 'ordered' is not set")
    if field.categories is not None:
        categories = [_category(value, field.name) for value in field.categories]
        if len(json.dumps(categories)) <= MAX_CATEGORIES_BYTES:
            members["categories"] = categories
    if field.logical is not None:
        members["logical"] = field.logical
    if field.ordered is not None:
        members["ordered"] = bool(field.ordered)
    if field.tz is not None:
        if field.dtype.kind != "M":
            raise ValueError(f"column {field.name!r} has a time zone, but its dtype is {field.dtype}")
        members["tz"] = field.tz
    if field.validity is not None:
        members["validity"] = field.validity
    return members


def _category(value: Any, name: str) -> str | int | bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, np.integer)) and -(1 << 63) <= value < 1 << 64:
        return int(value)
    raise TypeError(f"column {name!r}: categories must be strings, integers or booleans, got {value!r}")


@dataclass(frozen=True, slots=True)
class SchemaReading:
    """What the extra keys of a manifest made of its columns.

    Attributes
    ----------
    schema : Schema
        Companions hidden behind their columns.
    warnings : tuple of str
        Keys that were ignored because their checksum is missing or wrong, one sentence each.
    """

    schema: Schema
    warnings: tuple[str, ...]


def schema_from_columns(
    columns: Sequence[PhysicalColumn],
    extra: Any = None,
    *,
    path: str | None = None,
    offset: int | None = None,
) -> SchemaReading:
    """Return the logical schema of a file's columns.

    Parameters
    ----------
    columns : sequence of PhysicalColumn
        In file order, companions included.
    extra : object
        The top-level value of the extra key, unchecked; ``None`` when there is none.
    path, offset
        For messages.

    Raises
    ------
    FormatError
        If a key with a right checksum says something that the columns do not bear out.

    Notes
    -----
    One column key without a right checksum makes all columns plain, since its pair could be anywhere. A wrong
    top-level key costs the attributes of the table, nothing else.
    """
    warnings: list[str] = []
    members: list[dict[str, Any]] = []
    for column in columns:
        if EXTRA_KEY not in column.manifest:
            members.append({})
            continue
        opened = _opened(column.manifest[EXTRA_KEY])
        if opened is None:
            warnings.append(
                f"the extra key {EXTRA_KEY!r} of column {column.name!a} has no matching checksum and is "
                "ignored; all columns are shown as plain ones"
            )
        members.append(opened or {})
    if warnings:
        members = [{} for _ in columns]

    attrs: dict[str, Any] = {}
    if extra is not None:
        opened = _opened(extra)
        if opened is None:
            warnings.append(
                f"the top-level extra key {EXTRA_KEY!r} has no matching checksum and is ignored; the table has "
                "no attributes"
            )
        elif "attrs" in opened:
            try:
                attrs = decode_attributes(opened["attrs"])
            except ValueError as exc:
                raise FormatError(
                    f"extra key of the table: {exc}", path=path, offset=offset, section="manifest"
                ) from None

    fields: list[Field] = []
    position = 0
    while position < len(columns):
        own = members[position]
        try:
            fields.append(_field(columns, position, own, members))
        except ValueError as exc:
            raise FormatError(
                f"extra key of column {columns[position].name!a}: {exc}",
                path=path,
                offset=offset,
                section="manifest",
            ) from None
        position += 2 if "validity" in own else 1
    return SchemaReading(Schema(tuple(fields), attrs), tuple(warnings))


def _opened(value: Any) -> dict[str, Any] | None:
    """Return the members of an extra key without its checksum, or None when that is missing or does not fit."""
    if not isinstance(value, dict):
        return None
    stored = value.get(CRC_KEY)
    members = {key: member for key, member in value.items() if key != CRC_KEY}
    try:
        text = json.dumps(members, sort_keys=True, allow_nan=False).encode("ascii")
    except (ValueError, RecursionError):
        return None
    if isinstance(stored, bool) or not isinstance(stored, int) or stored != zlib.crc32(text):
        return None
    return members


def _field(
    columns: Sequence[PhysicalColumn],
    position: int,
    own: Mapping[str, Any],
    members: Sequence[Mapping[str, Any]],
) -> Field:
    column = columns[position]
    if not own:
        return Field(name=column.name, dtype=column.dtype)
    if "validity" in own:
        behind = columns[position + 1] if position + 1 < len(columns) else None
        if (
            behind is None
            or behind.name != own["validity"]
            or behind.dtype != _COMPANION_DTYPE
            or "validity" in members[position + 1]
        ):
            raise ValueError(
                f"'validity' is {ascii(own['validity'])[:200]}, which is not the |b1 column right behind"
            )
    categories = own.get("categories")
    if categories is not None and not (
        isinstance(categories, list) and all(isinstance(value, (str, int)) for value in categories)
    ):
        raise ValueError("'categories' is no array of strings, integers or booleans")
    ordered = own.get("ordered", None if categories is None else False)
    if ordered is not None and not isinstance(ordered, bool):
        raise ValueError("'ordered' is neither true nor false")
    for member in ("tz", "logical"):
        if not isinstance(own.get(member, ""), str):
            raise ValueError(f"{member!r} is no string")
    if "tz" in own and column.dtype.kind != "M":
        raise ValueError(f"'tz' stands in a column of dtype {column.dtype}")
    return Field(
        name=column.name,
        dtype=column.dtype,
        validity=own.get("validity"),
        logical=own.get("logical"),
        tz=own.get("tz"),
        categories=None if categories is None else tuple(categories),
        ordered=ordered,
        attrs=decode_attributes(own.get("attrs", {})),
    )
