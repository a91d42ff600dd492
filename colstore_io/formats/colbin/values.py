"""Python values as the wire has them: checked against their types, which errors name (colbin.md 3, 15)."""

from __future__ import annotations

import operator
import struct as _struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import elements
from .cursor import INTEGER_RANGE
from .schema import FieldDef, StructDef, TypeCode

__all__ = [
    "Place",
    "bytes_of",
    "column_of",
    "encoded",
    "integers_of",
    "is_integer",
    "located",
    "no_dynamic_form",
    "step_from",
    "text_of",
    "wire_integer",
]

_NUMPY: dict[int, np.dtype[Any]] = {
    code: np.dtype(name)
    for code, name in {
        TypeCode.I8: "i1",
        TypeCode.I16: "i2",
        TypeCode.I32: "i4",
        TypeCode.I64: "i8",
        TypeCode.U8: "u1",
        TypeCode.U16: "u2",
        TypeCode.U32: "u4",
        TypeCode.U64: "u8",
    }.items()
}


@dataclass(frozen=True, slots=True)
class Place:
    """A field, for messages."""

    struct: StructDef
    field: FieldDef

    def __str__(self) -> str:
        return f"{self.struct.name}.{self.field.name}" if self.struct.name else f"field {self.field.name!r}"


def step_from(exc: Exception, step: object) -> None:
    """Note that `exc` came from inside the value at `step`, a key of a map or a position in a list."""
    steps = getattr(exc, "colbin_steps", ())
    exc.colbin_steps = (step, *steps)  # type: ignore[attr-defined]


def located(exc: Exception) -> Exception:
    """Return `exc` with the way to the value that it is about in front of its message: ``['rows'][3]['x']: ...``."""
    steps = getattr(exc, "colbin_steps", ())
    if not steps:
        return exc
    shown = (repr(step) for step in steps)
    way = "".join(f"[{text if len(text) <= 64 else text[:60] + '...'}]" for text in shown)
    kind = next(each for each in (OverflowError, TypeError, ValueError) if isinstance(exc, each))
    return kind(f"{way if len(way) <= 400 else way[:400] + '...'}: {exc}")


def no_dynamic_form(value: Any) -> TypeError:
    """Return the error for a value that a document cannot hold."""
    what = f"values of type {type(value).__name__}"
    if isinstance(value, np.ndarray):
        what = f"arrays of {value.ndim} dimensions"
    return TypeError(
        f"{what} have no form in a document, which holds None, bool, int of 64 bits, float, str, bytes, lists, "
        "mappings with str or int keys, records and tables: convert them first (times: integers or isoformat())"
    )


def is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def encoded(text: str, place: object) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{place}: text with lone surrogates is no UTF-8") from None


def text_of(value: Any, place: Place) -> bytes:
    if isinstance(value, str):
        return encoded(value, place)
    if isinstance(
        value, bytes
    ):  # strings are bytes on the wire; a reader may hand out ones that are no UTF-8
        return value
    raise TypeError(f"{place}: a string is expected, not {type(value).__name__}")


def bytes_of(value: Any, place: Place) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{place}: bytes are expected, not {type(value).__name__}")


def wire_integer(code: int, value: Any, place: Place) -> int:
    """Return a scalar as the integer that the wire has for it; range checked."""
    if code == TypeCode.BOOL:
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{place}: a bool is expected, not {type(value).__name__}")
        return int(value)
    if code >= TypeCode.F32:
        if not isinstance(value, (float, int, np.floating, np.integer)) or isinstance(value, bool):
            raise TypeError(f"{place}: a number is expected, not {type(value).__name__}")
        try:
            if code == TypeCode.F64:
                return elements.reversed_f64(float(value))
            if isinstance(value, np.float32):
                return elements.reversed_f32(value)
            return int.from_bytes(_struct.pack(">f", value), "little")
        except OverflowError:
            raise ValueError(f"{place}: {value} is too large") from None
    if not is_integer(value):
        raise TypeError(f"{place}: an integer is expected, not {type(value).__name__}")
    low, high = INTEGER_RANGE[code]
    if not low <= value <= high:
        raise ValueError(f"{place}: {value} is outside of {TypeCode(code).name.lower()}")
    return operator.index(value)


def integers_of(code: int, values: Any, place: Place) -> NDArray[np.generic]:
    """Return a list of integers as an array of its element type, each one range checked."""
    wanted = _NUMPY[code]
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "iu" or values.ndim != 1:
            raise TypeError(f"{place}: a one-dimensional array of integers is expected")
        values = values.tolist() if values.dtype != wanted else values
    if isinstance(values, np.ndarray):
        return np.ascontiguousarray(values)
    return np.array([wire_integer(code, value, place) for value in values], wanted)


def column_of(code: TypeCode, values: list[Any], place: Place) -> NDArray[Any]:
    """Return a column as the integers that the column codec gets: floats as their bit patterns (colbin.md 7)."""
    zero = False if code == TypeCode.BOOL else 0
    checked = [wire_integer(code, zero if value is None else value, place) for value in values]
    if code == TypeCode.F64:
        return np.array(checked, "<u8").byteswap().view(np.int64)
    if code == TypeCode.F32:
        return np.array(checked, "<u4").byteswap().astype(np.int64)
    if code == TypeCode.U64:
        return np.array(checked, np.uint64).view(np.int64)
    return np.array(checked, np.int64)
