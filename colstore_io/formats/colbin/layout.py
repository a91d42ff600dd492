"""Which columns does a list of records have? Record types of a section as columns, for the kernels.

A record type becomes columns field by field. A record inside a record contributes its own fields under dotted names.
Fields that a table cannot show (lists of records, maps, dynamic values, optional records) get no column; the
kernels check them and step over them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import FormatError
from .schema import FieldDef, Section, StructDef, TypeCode

if TYPE_CHECKING:
    import pyarrow as pa

    from ...kernels.record_columns import Layout

__all__ = [
    "MAX_COLUMNS",
    "MAX_NAME_CHARACTERS",
    "SCALAR_DTYPES",
    "ListColumns",
    "RecordColumn",
    "list_columns",
    "list_fields",
    "parsed_section",
    "root_layout",
]

MAX_COLUMNS = 4096
"""Columns that nested records may unfold to: a few bytes of section could ask for 2**128."""

MAX_NAME_CHARACTERS = 1 << 20
"""Characters of the dotted names together: records inside records repeat the names of those around them."""

SCALAR_DTYPES: tuple[np.dtype[Any], ...] = tuple(
    map(np.dtype, ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"))
)
"""In memory, by type code 0 to 10."""

_ELEMENTS = {13: 1, 14: 2, 15: 3, 16: 4, 17: 6, 18: 7, 19: 8}
"""Type code of the elements of each list of integers."""


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """One column that a record type unfolds to.

    Attributes
    ----------
    name : str
        The field's wire name; of a field of a nested record, dotted (``"Customer.SKU"``).
    code : int
        Type code 0 to 20; of an optional, that of its value.
    optional : bool
        Whether rows may have no value.
    """

    name: str
    code: int
    optional: bool = False

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """In memory, native byte order; None where values have no fixed width."""
        return SCALAR_DTYPES[self.code] if self.code <= TypeCode.F64 else None

    @property
    def element_dtype(self) -> np.dtype[Any] | None:
        """Of the elements of a list of integers, else None."""
        element = _ELEMENTS.get(self.code)
        return None if element is None else SCALAR_DTYPES[element]

    @property
    def arrow_name(self) -> str:
        """Name of the Arrow type of a column of variable length: ``"string"``, ``"binary"``, ``"list<int32>"``, ..."""
        if self.code == TypeCode.STRING:
            return "string"
        if self.code == TypeCode.BYTES:
            return "binary"
        element = self.element_dtype
        return "list<string>" if element is None else f"list<{element.name}>"

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        if self.dtype is not None:
            return pa.from_numpy_dtype(self.dtype)
        if self.code == TypeCode.STRING:
            return pa.string()
        if self.code == TypeCode.BYTES:
            return pa.binary()
        element = self.element_dtype
        return pa.list_(pa.string() if element is None else pa.from_numpy_dtype(element))


@dataclass(frozen=True, eq=False, slots=True)
class ListColumns:
    """A record type as columns, or some of them.

    Attributes
    ----------
    struct : StructDef
        The record type.
    columns : tuple of RecordColumn
    places : tuple of int
        Number of each of `columns` among all columns of the type.
    skipped : tuple of str
        Fields that got no column, dotted like columns.
    layout : Layout
        The same for the kernels.
    dtypes : tuple of dtype or None
        Of `columns`.
    tabular : bool
        Whether a table can hold records of this type.
    """

    struct: StructDef
    columns: tuple[RecordColumn, ...]
    places: tuple[int, ...]
    skipped: tuple[str, ...]
    layout: Layout
    dtypes: tuple[np.dtype[Any] | None, ...]
    tabular: bool


@lru_cache(maxsize=256)
def parsed_section(data: bytes) -> Section:
    """Return the section that `data` holds; remembered, because a reader meets the same one again and again."""
    return Section.from_bytes(data)


@lru_cache(maxsize=1024)
def list_columns(section: bytes, number: int, wanted: tuple[int, ...] | None = None) -> ListColumns:
    """Return record type `number` of a section as columns.

    Parameters
    ----------
    section : bytes
        Rather than a `Section`, whose hash takes longer than decoding a small table.
    number : int
        Of the record type.
    wanted : tuple of int, optional
        Numbers of the columns to read, ascending; the kernels step over the others.

    Raises
    ------
    FormatError
        If nested records unfold to more than `MAX_COLUMNS` columns or `MAX_NAME_CHARACTERS`, or two of the dotted
        names are equal.
    """
    from ...kernels.record_columns import Layout

    structs = parsed_section(section).structs
    columns: list[RecordColumn] = []
    skipped: list[str] = []
    types: list[tuple[bool, list[tuple[int, int, bool, int]]]] = []
    characters = 0

    def unfold(index: int, prefix: str, depth: int) -> int:
        nonlocal characters
        struct = structs[index]
        place = len(types)
        fields: list[tuple[int, int, bool, int]] = []
        types.append((struct.k8, fields))
        if depth > 100 or len(columns) + len(types) > MAX_COLUMNS:
            raise FormatError(f"nested records unfold to more than {MAX_COLUMNS} columns", section="section")
        for item in struct.fields:
            name, kind = prefix + item.name, item.type
            characters += len(name)
            if characters > MAX_NAME_CHARACTERS:
                raise FormatError(
                    f"the dotted names of nested records have more than {MAX_NAME_CHARACTERS} characters",
                    section="section",
                )
            if kind.code == TypeCode.RECORD:
                fields.append((item.key, kind.code, False, unfold(kind.index, name + ".", depth + 1)))
            elif kind.code <= TypeCode.STRINGS or kind.code == TypeCode.OPTIONAL:
                optional = kind.code == TypeCode.OPTIONAL
                code = int(kind.pointee if optional else kind.code)
                target = len(columns)
                if wanted is not None:
                    target = wanted.index(target) if target in wanted else -1
                fields.append((item.key, code, optional, target))
                columns.append(RecordColumn(name, code, optional))
            else:
                fields.append((item.key, kind.code, False, -1))
                skipped.append(name)
        return place

    unfold(number, "", 0)
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        double = Counter(names).most_common(1)[0][0]
        raise FormatError(f"two columns have the name {double!r}", section="section")
    places = tuple(range(len(columns))) if wanted is None else wanted
    shown = tuple(columns[place] for place in places)
    dtypes = tuple(column.dtype for column in shown)
    struct = structs[number]
    return ListColumns(struct, shown, places, tuple(skipped), Layout(types), dtypes, struct.tabular)


@lru_cache(maxsize=256)
def root_layout(section: bytes) -> Layout:
    """Return the kernels' layout of the root record for finding fields in it: every field is stepped over."""
    from ...kernels.record_columns import Layout

    root = parsed_section(section).root
    fields = []
    for item in root.fields:
        optional = item.type.code == TypeCode.OPTIONAL
        fields.append((item.key, int(item.type.pointee if optional else item.type.code), optional, -1))
    return Layout([(root.k8, fields)])


def list_fields(section: Section) -> list[FieldDef]:
    """Return the fields of the root record that are lists of records: what can be read as a table."""
    return [item for item in section.root.fields if item.type.code == TypeCode.RECORDS]
