"""What is this column?

Two levels. A **physical column** (`PhysicalColumn`) is a run of fixed-width values in a file. A **field**
(`Field`) is what a user sees: one physical column, or a value column and its validity companion shown as one
nullable column (cstore.md 4.2). A `Schema` is an ordered tuple of fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from .errors import ColumnNotFoundError

__all__ = ["EXTRA_KEY", "STORABLE_KINDS", "Field", "Nulls", "PhysicalColumn", "Schema", "native"]

STORABLE_KINDS = "fiubMmSU"
"""NumPy kinds that may stand in a file (cstore.md section 5)."""

EXTRA_KEY = "colstore_io"
"""The one extra manifest key this library uses, in column objects and at top level (cstore.md 4.2)."""

VARIABLE_ROW_BYTES = 32
"""Bytes that a value of variable length is taken to have where a plan must weigh rows before they are read."""

Nulls = Literal["nan", "na"]


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return `dtype` in the byte order of this machine."""
    # Not newbyteorder: NumPy 2 leaves big-endian timedelta64 without a unit as it is.
    return dtype if dtype.isnative else np.dtype(f"={dtype.str[1:]}")


@dataclass(frozen=True, slots=True)
class PhysicalColumn:
    """One run of fixed-width values in a file.

    Attributes
    ----------
    name : str
    dtype : numpy.dtype
        As stored: little-endian in files of this library, big-endian possible in foreign ones.
    manifest : dict
        The column object of the manifest exactly as parsed (extra keys included), key order kept.
    """

    name: str
    dtype: np.dtype[Any]
    manifest: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Field:
    """One column as the user sees it.

    Attributes
    ----------
    name : str
    dtype : numpy.dtype
        Stored dtype of the value column (byte order as in the file).
    validity : str or None
        Name of the companion column (``|b1``, 1 = a value) of a nullable field (cstore.md 4.2).
    logical : str or None
        Arrow type that dtype and companion do not tell: ``"string"``, ``"large_string"``, ``"binary"``, ``"date32"``.
    tz : str or None
        Time zone of a datetime field; stored values are UTC.
    categories : tuple or None
        Categories in their order, when they were small enough to be stored.
    ordered : bool or None
        Present (not None) for every categorical field.
    attrs : Mapping
        Attributes of this column.
    optional : bool
        Whether rows may be null without a companion column: the format has null bitmaps of its own.

    Notes
    -----
    A column of values of variable length (text, bytes, lists, of the formats that have them) has the dtype ``object``,
    which never means Python objects here, and its Arrow type's name in `logical`: ``"string"``, ``"binary"``,
    ``"large_string"``, ``"large_binary"``, ``"list<int32>"``, ``"list<string>"``.
    """

    name: str
    dtype: np.dtype[Any]
    validity: str | None = None
    logical: str | None = None
    tz: str | None = None
    categories: tuple[Any, ...] | None = None
    ordered: bool | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False

    @property
    def nullable(self) -> bool:
        """True when rows may be null; the field is then handed out as an Arrow array."""
        return self.validity is not None or self.optional

    @property
    def variable(self) -> bool:
        """True when values have no fixed width; the field is then handed out as an Arrow array."""
        return self.dtype.kind == "O"

    @property
    def native_dtype(self) -> np.dtype[Any]:
        return native(self.dtype)

    @property
    def nulls(self) -> Nulls:
        """Which rule missing values follow: ``"na"`` under a companion, else NumPy's ``"nan"``."""
        return "na" if self.nullable else "nan"

    @property
    def row_bytes(self) -> int:
        """Stored bytes per row, companion included; of a field of variable length, a guess."""
        if self.variable:
            return VARIABLE_ROW_BYTES
        return self.dtype.itemsize + (1 if self.nullable else 0)

    def without_validity(self) -> Field:
        return replace(self, validity=None, optional=False)


@dataclass(frozen=True)
class Schema:
    """Ordered fields of a table, and the attributes of the whole table."""

    fields: tuple[Field, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        return [f.name for f in self.fields]

    @cached_property
    def _position(self) -> dict[str, int]:
        return {f.name: i for i, f in enumerate(self.fields)}

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self._position

    def __getitem__(self, name: str) -> Field:
        return self.fields[self.index(name)]

    def index(self, name: str) -> int:
        """Return the position of `name`; `ColumnNotFoundError` with close matches if there is none."""
        try:
            return self._position[name]
        except (KeyError, TypeError):
            raise ColumnNotFoundError.for_name(name, self.names) from None

    def select(self, names: Sequence[str]) -> Schema:
        """Return the schema of the columns `names`, in that order."""
        return Schema(tuple(self[name] for name in names), self.attrs)
