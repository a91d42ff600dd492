"""Does this batch fit that file? Physical columns of a schema, and what a caller adds to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arguments import check_mapping
from ..errors import SchemaMismatchError
from ..fields import Field, PhysicalColumn, Schema
from ..ingest import Batch

__all__ = ["Attributes", "batch_columns", "check_columns"]


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes that a caller adds to those that the data bring, of the table and by column."""

    table: Mapping[str, Any] | None = None
    columns: Mapping[str, Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        if self.table is not None:
            check_mapping("attrs", self.table)
        if self.columns is not None:
            for name, attrs in check_mapping("column_attrs", self.columns).items():
                check_mapping(f"column_attrs[{name!r}]", attrs)

    def __bool__(self) -> bool:
        return bool(self.table or self.columns)

    def added_to(self, schema: Schema) -> Schema:
        """Return `schema` with these attributes; `ColumnNotFoundError` if there is no such column."""
        fields = {field.name: field for field in schema.fields}
        for name, attrs in (self.columns or {}).items():
            field: Field = schema[name]
            fields[name] = replace(field, attrs={**field.attrs, **attrs})
        return Schema(tuple(fields.values()), {**schema.attrs, **(self.table or {})})


def check_columns(columns: Sequence[PhysicalColumn], batch: Batch, where: str) -> None:
    """Raise `SchemaMismatchError` unless `batch` has exactly the physical columns `columns`: names, order, dtypes."""
    names = [name for name, _ in batch_columns(batch.schema)]
    expected = [column.name for column in columns]
    if len(names) != len(expected):
        raise SchemaMismatchError(
            f"Schema mismatch: {where} has {len(expected)} columns {expected}, got {len(names)}: {names}"
        )
    for column, name, array in zip(columns, names, batch.arrays, strict=True):
        if name != column.name:
            raise SchemaMismatchError(
                f"Column name mismatch: expected {column.name!r}, got {name!r} ({where})"
            )
        if array.dtype != column.dtype:
            raise SchemaMismatchError(
                f"dtype of column {name!r} is {array.dtype.str}, expected {column.dtype.str} as in {where}"
            )


def batch_columns(schema: Schema) -> list[tuple[str, np.dtype[Any]]]:
    """Return name and dtype of the physical columns of `schema`, companions right behind their columns."""
    columns: list[tuple[str, np.dtype[Any]]] = []
    for field in schema.fields:
        columns.append((field.name, field.dtype))
        if field.validity is not None:
            columns.append((field.validity, np.dtype(np.bool_)))
    return columns
