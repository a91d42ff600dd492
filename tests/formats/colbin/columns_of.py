"""Values of the vectors of colbin as columns, and messages as columns, for tests."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from colstore_io.formats.colbin.buffers import ColumnBuffers
from colstore_io.formats.colbin.layout import RecordColumn, list_columns, list_fields, parsed_section
from colstore_io.formats.colbin.schema import Section
from colstore_io.formats.colbin.tables import as_array, decode_table

UNSIGNED_PATTERN = {9: ("<I", 4), 10: ("<Q", 8)}


def vectors(shared: Path, name: str) -> list[dict[str, Any]]:
    return json.loads((shared / "vectors/colbin" / name).read_text())["cases"]


def value_of(row: Any, path: list[str]) -> Any:
    for name in path:
        row = None if row is None else row.get(name)
    return row


def as_text(value: Any) -> bytes:
    if isinstance(value, dict):
        return bytes.fromhex(value["$hex"])
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else b""


def expected(column: RecordColumn, rows: list[Any]) -> list[Any]:
    """What the vectors say, in the form of `found`: floats as bit patterns, text as bytes, absent lists as empty."""
    result: list[Any] = []
    for row in rows:
        value = value_of(row, column.name.split("."))
        if value is None and column.optional:
            result.append(None)
        elif column.code in (9, 10):
            result.append(0 if value is None else int(value, 16))
        elif column.code == 0:
            result.append(bool(value))
        elif column.code <= 8:
            result.append(value or 0)
        elif column.code in (11, 12):
            result.append(as_text(value))
        elif column.code == 20:
            result.append([as_text(item) for item in value or []])
        else:
            result.append(list(value or []))
    return result


def found(column: RecordColumn, part: Any) -> list[Any]:
    import pyarrow as pa

    if part.array is None and column.code in (9, 10):
        text, size = UNSIGNED_PATTERN[column.code]
        bits = part.values.view(f"u{size}").tolist()
        assert struct.calcsize(text) == size
        # The zero of an optional float loses its sign (colbin.md 5.8).
        if part.validity is None:
            return bits
        return [value if ok else None for value, ok in zip(bits, part.validity.tolist(), strict=True)]
    array = as_array(part)
    if isinstance(array, np.ndarray):
        return array.tolist()
    if column.code == 20:
        binary = array.cast(pa.list_(pa.binary()))
        return binary.to_pylist()
    if column.code == 11:
        return array.cast(pa.binary()).to_pylist()
    return array.to_pylist()


def read_root(message: bytes, section: bytes) -> list[Any]:
    """The root record of a D0 or D8 message as one row of columns."""
    from colstore_io.errors import FormatError
    from colstore_io.kernels import record_columns as kernel

    columns = list_columns(section, 0)
    buffers = ColumnBuffers(columns, 1)
    where = np.array([0], np.int64), np.array([len(message)], np.int64)
    wrong, at = kernel.read_records(columns.layout, message, *where, buffers.targets)
    if wrong:
        raise FormatError(kernel.WRONG[wrong], offset=at)
    return list(zip(columns.columns, buffers.finish(message, errors="surrogateescape"), strict=True))


def lists_of(section: bytes) -> list[str]:
    return [item.name for item in list_fields(parsed_section(section))]


def read_everything(message: bytes, section: bytes | None) -> None:
    """Read whatever of a message can be read as columns; for messages that may be damaged."""
    from colstore_io.formats.colbin.tables import split_message

    own, body, k8 = split_message(message, section)
    parsed: Section = parsed_section(own)
    if list_columns(own, 0).columns or list_columns(own, 0).skipped:
        read_root(bytes((0xD8 if k8 else 0xD0,)) + message[body:], own)
    for item in list_fields(parsed):
        if list_columns(own, item.type.index).columns:
            decode_table(message, section=section, table=item.name, errors="surrogateescape")
