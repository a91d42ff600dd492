"""Which table is in a log of messages? The choice of rows and columns, and what the user sees of them.

Rows are the records of the messages' one list of records, or, where messages have no such list or several, the
messages themselves. What the wire does not know about a column (time units, zones, categories) is in the header.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import FormatError
from ...fields import Field, Schema
from ..cstore.attributes import decode_attributes, encode_attributes
from .layout import RecordColumn, list_columns, list_fields, parsed_section
from .log import LogHeader
from .schema import TypeCode
from .tables import choose_list

__all__ = ["LogTable", "column_of", "describe", "log_table"]


@dataclass(frozen=True)
class LogTable:
    """The table of a log.

    Attributes
    ----------
    section : bytes
    number : int
        Record type of the rows.
    field : str or None
        Name of the list of records in the root record; None when each message is a row.
    columns : tuple of RecordColumn
    schema : Schema
        Of the same columns.
    skipped : tuple of str
        Fields that are no columns.
    """

    section: bytes
    number: int
    field: str | None
    columns: tuple[RecordColumn, ...]
    schema: Schema
    skipped: tuple[str, ...]


def log_table(header: LogHeader, table: str | None, path: str, *, strict: bool = False) -> LogTable:
    """Return the table that a log of this header holds.

    Parameters
    ----------
    header : LogHeader
    table : str or None
        Name of a list of records; ``""`` for one row per message; None: the only list, else one row per message.
    strict : bool
        Refuse types that have fields which are no columns.

    Raises
    ------
    FormatError
        If there is no such list, or no column at all.
    """
    section = header.section
    lists = list_fields(parsed_section(section))
    try:
        chosen = choose_list(section, table) if table or (table is None and len(lists) == 1) else None
        found = list_columns(section, 0 if chosen is None else chosen.type.index)
    except FormatError as exc:
        raise FormatError(exc.message, path=path, section="section") from exc
    if not found.columns or (strict and found.skipped):
        what = ", ".join(map(repr, found.skipped)) or "none"
        raise FormatError(
            f"fields that a table cannot show: {what}"
            + (
                f"; lists of records to choose by table=: {', '.join(repr(f.name) for f in lists)}"
                if lists
                else ""
            ),
            path=path,
            section="section",
        )
    fields = []
    for column in found.columns:
        try:
            fields.append(_field(column, header.columns.get(column.name, {})))
        except (ValueError, TypeError) as exc:
            raise FormatError(
                f"the description of column {column.name!r} is damaged: {exc}", path=path, section="header"
            ) from exc
    try:
        attrs = decode_attributes(dict(header.attrs))
    except ValueError as exc:
        raise FormatError(str(exc), path=path, section="header") from exc
    return LogTable(
        section,
        0 if chosen is None else chosen.type.index,
        None if chosen is None else chosen.name,
        found.columns,
        Schema(tuple(fields), attrs),
        found.skipped,
    )


def _field(column: RecordColumn, extra: Mapping[str, Any]) -> Field:
    """What the user sees of a column; `extra` is its description in the header."""
    dtype, logical = column.dtype, extra.get("logical")
    if dtype is None:
        dtype, logical = np.dtype(object), column.arrow_name
    elif "dtype" in extra:
        wanted = extra["dtype"]
        if not isinstance(wanted, str) or wanted[:3] not in ("<M8", "<m8") or column.code != TypeCode.I64:
            raise ValueError(f"dtype {wanted!r} for type code {column.code}")
        dtype = np.dtype(wanted)
    if logical is not None and not isinstance(logical, str):
        raise ValueError(f"logical type {logical!r}")
    tz, ordered, categories = extra.get("tz"), extra.get("ordered"), extra.get("categories")
    if not (tz is None or isinstance(tz, str)) or not (ordered is None or isinstance(ordered, bool)):
        raise ValueError("tz or ordered")
    if not (
        categories is None or (isinstance(categories, list) and all(isinstance(c, str) for c in categories))
    ):
        raise ValueError("categories")
    return Field(
        column.name,
        dtype,
        logical=logical,
        tz=tz,
        categories=None if categories is None else tuple(categories),
        ordered=ordered,
        attrs=decode_attributes(extra.get("attrs", {})),
        optional=column.optional,
    )


_TEXT = {"string": TypeCode.STRING, "large_string": TypeCode.STRING}
_VARIABLE = {
    **_TEXT,
    "binary": TypeCode.BYTES,
    "large_binary": TypeCode.BYTES,
    "list<string>": TypeCode.STRINGS,
    "list<int8>": TypeCode.LIST_I8,
    "list<int16>": TypeCode.LIST_I16,
    "list<int32>": TypeCode.LIST_I32,
    "list<int64>": TypeCode.LIST_I64,
    "list<uint16>": TypeCode.LIST_U16,
    "list<uint32>": TypeCode.LIST_U32,
    "list<uint64>": TypeCode.LIST_U64,
}


def column_of(field: Field) -> RecordColumn:
    """Return how a column of the user's is written.

    Raises
    ------
    TypeError
        For types that the format does not have, naming the column.
    """
    kind, optional = field.dtype.kind, field.nullable
    if kind in "Mm":
        return RecordColumn(field.name, TypeCode.I64, optional)
    if kind == "O":
        code = _VARIABLE.get(field.logical or "")
    elif kind == "U":
        code = TypeCode.STRING
    elif kind == "S":
        code = _TEXT.get(field.logical or "", TypeCode.BYTES)
    else:
        from .sources import scalar_code

        return RecordColumn(field.name, scalar_code(field.name, field.dtype), optional)
    if code is None:
        raise TypeError(f"column {field.name!r}: colbin has no type for {field.logical}; convert it first")
    if optional and code != TypeCode.STRING:
        raise TypeError(
            f"column {field.name!r}: colbin has optional scalars and text, no optional {field.logical}"
        )
    return RecordColumn(field.name, code, optional)


def describe(schema: Schema) -> dict[str, dict[str, Any]]:
    """Return what the header must say of the columns, for `LogHeader.columns`; columns that need nothing left out."""
    described: dict[str, dict[str, Any]] = {}
    for field in schema:
        extra: dict[str, Any] = {}
        if field.dtype.kind in "Mm":
            extra["dtype"] = field.dtype.newbyteorder("<").str
            if field.logical is not None:
                extra["logical"] = field.logical
        if field.tz is not None:
            extra["tz"] = field.tz
        if field.ordered is not None:
            extra["ordered"] = field.ordered
            if field.categories is not None and all(isinstance(c, str) for c in field.categories):
                extra["categories"] = list(field.categories)
        if field.attrs:
            extra["attrs"] = encode_attributes(field.attrs, f"column {field.name!r}")
        if extra:
            described[field.name] = extra
    return described
