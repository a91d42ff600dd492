"""Reads columns files in tests, below the layers that plan and gather."""

from __future__ import annotations

from typing import Any

from colstore_io.fields import Field
from colstore_io.formats import DecodedColumn, ReadOptions, ShardMeta
from colstore_io.formats.columns import FORMAT
from colstore_io.storage import open_file


def opened(data: bytes, **options: Any) -> ShardMeta:
    file, head = open_file(data)
    (meta,) = FORMAT.read_metadata([file], [head], ReadOptions(**options))
    return meta


def decoded(
    data: bytes, meta: ShardMeta, group: int, columns: list[int], **options: Any
) -> list[DecodedColumn]:
    ranges = meta.decoder.ranges(group, columns, options.get("rows"))
    views = [memoryview(data)[at : at + length] for at, length in ranges]
    return meta.decoder.decode(group, columns, views, **options)


def everything(data: bytes, **options: Any) -> list[list[DecodedColumn]]:
    """Return all columns of all row groups."""
    meta = opened(data, **options)
    columns = list(range(len(meta.schema)))
    return [decoded(data, meta, group, columns) for group in range(meta.n_records)]


def raw_values(column: DecodedColumn, field: Field) -> list[Any]:
    """Return values as the manifest helper gives them: floats as integers of their bits, text as bytes."""
    if column.array is not None:
        values = column.array.to_pylist()
        return [value.encode() if isinstance(value, str) else value for value in values]
    values = column.values
    if field.dtype.kind == "f":
        values = values.view(f"u{values.dtype.itemsize}")
    items = values.tolist()
    if column.validity is None:
        return items
    return [item if there else None for item, there in zip(items, column.validity.tolist(), strict=True)]
