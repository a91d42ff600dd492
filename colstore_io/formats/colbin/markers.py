"""How a Python class says what the wire needs to know: exact integer types, ids, wire names (colbin.md 3, 4.1).

Type checkers see plain ``int`` and ``float``::

    @record
    class Charge:
        CompanyID: Annotated[u32, 1]
        Note: Annotated[str, "note"]
        Amount: Annotated[i64 | None, field(id=20, name="amount")]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from .schema import TypeCode

__all__ = [
    "FieldOptions",
    "ScalarType",
    "f32",
    "f64",
    "field",
    "i8",
    "i16",
    "i32",
    "i64",
    "parse_tag",
    "u8",
    "u16",
    "u32",
    "u64",
]


@dataclass(frozen=True, slots=True)
class ScalarType:
    """Which scalar type of the wire an ``int`` or ``float`` is."""

    code: TypeCode


i8: TypeAlias = Annotated[int, ScalarType(TypeCode.I8)]
i16: TypeAlias = Annotated[int, ScalarType(TypeCode.I16)]
i32: TypeAlias = Annotated[int, ScalarType(TypeCode.I32)]
i64: TypeAlias = Annotated[int, ScalarType(TypeCode.I64)]
u8: TypeAlias = Annotated[int, ScalarType(TypeCode.U8)]
u16: TypeAlias = Annotated[int, ScalarType(TypeCode.U16)]
u32: TypeAlias = Annotated[int, ScalarType(TypeCode.U32)]
u64: TypeAlias = Annotated[int, ScalarType(TypeCode.U64)]
f32: TypeAlias = Annotated[float, ScalarType(TypeCode.F32)]
f64: TypeAlias = Annotated[float, ScalarType(TypeCode.F64)]


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """What a field says about itself beyond its type.

    Attributes
    ----------
    id : int or None
        From 1; None: the key comes from the name's hash (colbin.md 4.2).
    name : str or None
        Wire name; None: the field's own name.
    dropped : bool
        Whether the field stays out of messages.
    optional_record : bool
        Whether an absent record is None instead of a record of zeros (type code 27, which older readers refuse).
    """

    id: int | None = None
    name: str | None = None
    dropped: bool = False
    optional_record: bool = False

    def merged(self, other: FieldOptions) -> FieldOptions:
        """Return both together; `ValueError` when they say different things about the id or the name."""
        for mine, theirs, what in ((self.id, other.id, "ids"), (self.name, other.name, "wire names")):
            if mine is not None and theirs is not None and mine != theirs:
                raise ValueError(f"it has two {what}, {mine!r} and {theirs!r}")
        return FieldOptions(
            other.id if self.id is None else self.id,
            other.name if self.name is None else self.name,
            self.dropped or other.dropped,
            self.optional_record or other.optional_record,
        )


def field(
    *, id: int | None = None, name: str | None = None, drop: bool = False, optional_record: bool = False
) -> FieldOptions:
    """Return options for ``Annotated[type, field(...)]``.

    Parameters
    ----------
    id : int, optional
        1..256. The key is ``id - 1``; an id above 16 makes the record one of eight-bit keys (colbin.md 4.3).
        Without an id the key comes from the wire name, and the record has eight-bit keys as well.
    name : str, optional
        Wire name. Default: the name of the field.
    drop : bool, optional
        Keep the field out of messages; it needs a default then.
    optional_record : bool, optional
        For a field of type ``Record | None``: write nothing for None, and read None where nothing is. The type code
        of such fields, 27, is not known to every reader of the format (colbin.md 19.5).
    """
    return FieldOptions(id, name, drop, optional_record)


_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


def parse_tag(tag: str) -> FieldOptions:
    """Read a field tag, ``8,Name`` or ``cb:"8,Name"`` (colbin.md 4.1).

    Tokens are separated by commas; empty ones count for nothing. The last integer is the id, the first other token
    the wire name; ``-`` alone drops the field.
    """
    if tag.startswith('cb:"') and tag.endswith('"'):
        tag = tag[4:-1]
    if tag == "-":
        return FieldOptions(dropped=True)
    number: int | None = None
    name: str | None = None
    for token in tag.split(","):
        if _INTEGER.fullmatch(token):
            number = int(token)
        elif token and name is None:
            name = token
    return FieldOptions(number, name)
