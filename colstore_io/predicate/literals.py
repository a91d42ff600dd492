"""Literals of predicates: one spelling for each constant.

`as_scalar` brings whatever a caller wrote (NumPy, pandas, pyarrow, datetime objects) to a small closed set of types, so
that expressions can be compared, hashed and pickled without pandas. `predicate_folding` says what they mean beside a
column.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from ..errors import QueryError

__all__ = [
    "IncompatibleTypesError",
    "Instant",
    "Null",
    "Operator",
    "Scalar",
    "as_scalar",
    "is_float",
    "is_nan",
    "is_null",
    "is_number",
    "kind_name",
    "scalar_key",
    "show",
]

Operator = Literal["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]
"""Names of the six comparisons; they are the names of the NumPy ufuncs."""


class Null(Enum):
    """Missing-value literals other than None: ``pandas.NA`` and NaT."""

    NA = "NA"
    NAT = "NaT"


@dataclass(frozen=True, slots=True)
class Instant:
    """A datetime object as a literal.

    Attributes
    ----------
    value : numpy.datetime64
        In UTC when `aware`, else the wall-clock time that was given.
    aware : bool
        True when the object carried a time zone.
    """

    value: np.datetime64
    aware: bool


Scalar: TypeAlias = "bool | int | float | str | bytes | np.generic | Null | Instant | None"


class IncompatibleTypesError(TypeError):
    """A literal cannot be compared with the values of a column. Becomes a `QueryError` when bound."""


def as_scalar(value: object) -> Scalar:
    """Return `value` as one of the literal types.

    Parameters
    ----------
    value : object
        None, bool, number, text, bytes, date, datetime, timedelta; a NumPy scalar or 0-d array; ``pandas.NA``, NaT,
        Timestamp, Timedelta; ``numpy.ma.masked`` (as ``pandas.NA``); a pyarrow scalar.

    Returns
    -------
    Scalar
        Python numbers stay Python numbers (weak under NumPy's promotion rules), NumPy numbers stay NumPy scalars.

    Raises
    ------
    TypeError
        For arrays, containers, complex numbers and other objects.
    QueryError
        For a time beyond the range of its type.
    """
    if value is None or type(value) in (bool, int, float, str, bytes, Null, Instant):
        return cast("Scalar", value)
    if value is np.ma.masked:  # indexing it gives itself
        return Null.NA
    if isinstance(value, np.ndarray):
        if value.ndim:
            raise TypeError(
                "cannot use a raw array as an operand in a col() expression; use a scalar, another col() "
                "expression, or .isin(...) for membership"
            )
        return as_scalar(value[()])
    if isinstance(value, np.generic):
        return _numpy_scalar(value)
    name = type(value).__name__
    if name == "NAType":
        return Null.NA
    if name == "NaTType":
        return Null.NAT
    if isinstance(value, datetime.date | datetime.timedelta):
        try:
            return _time_scalar(value)
        except (OverflowError, ValueError) as exc:
            raise QueryError(f"the {name} {value} is out of range: {exc}") from exc
    if isinstance(value, int):  # IntEnum and other subclasses
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(value)
    if hasattr(value, "as_py"):  # pyarrow.Scalar
        return as_scalar(value.as_py())
    advice = {
        "list": "; for membership use .isin(...)",
        "tuple": "; for membership use .isin(...)",
        "Decimal": "; convert it with float() or int()",
        "Fraction": "; convert it with float()",
    }.get(name, "")
    raise TypeError(
        f"cannot use {value!r:.60} of type {name} as an operand in a column expression; use a number, text, bytes, a "
        f"date or time, or another col() expression{advice}"
    )


def _time_scalar(value: datetime.date | datetime.timedelta) -> Scalar:
    if isinstance(value, datetime.datetime):
        aware = value.tzinfo is not None and value.utcoffset() is not None
        if hasattr(value, "to_datetime64"):  # pandas.Timestamp: keeps nanoseconds, already in UTC
            return Instant(value.to_datetime64(), aware)
        naive = value.astimezone(datetime.UTC).replace(tzinfo=None) if aware else value.replace(tzinfo=None)
        return Instant(np.datetime64(naive, "us"), aware)
    if isinstance(value, datetime.date):
        return Instant(np.datetime64(value, "D"), False)
    if hasattr(value, "to_timedelta64"):
        return cast("np.timedelta64", value.to_timedelta64())
    steps = value // datetime.timedelta(microseconds=1)
    if abs(steps) >= 2**63:  # NumPy would wrap
        raise OverflowError("it has more than 2**63 microseconds")
    return np.timedelta64(steps, "us")


def _numpy_scalar(value: np.generic) -> Scalar:
    kind = value.dtype.kind
    if kind in "iuf":
        return value
    if kind == "b":
        return bool(value)
    if kind in "mM":
        return Null.NAT if np.isnat(cast("Any", value)) else value
    if kind == "U":
        return str(value)
    if kind == "S":
        return bytes(cast("Any", value))
    raise TypeError(
        f"cannot use a NumPy scalar of type {value.dtype} as an operand in a column expression; use a number, text, "
        "bytes, a date or time, or another col() expression"
    )


def is_null(value: Scalar) -> bool:
    """Return True for None, NA and NaT. A float NaN is a number here."""
    return value is None or isinstance(value, Null)


def is_float(value: Scalar) -> bool:
    return isinstance(value, float | np.floating)


def is_number(value: Scalar) -> bool:
    # timedelta64 is a signed integer to NumPy, a time to us
    return isinstance(value, bool | int | float | np.integer | np.floating) and not isinstance(
        value, np.timedelta64
    )


def is_nan(value: Scalar) -> bool:
    """Return True for a float NaN."""
    return is_float(value) and bool(np.isnan(cast("Any", value)))


def scalar_key(value: Scalar) -> str:
    """Return text that is equal for equal literals of the same type only, in every process."""
    if isinstance(value, Instant):
        return f"instant:{value.value.dtype.str}:{int(value.value.astype(np.int64))}:{value.aware}"
    if isinstance(value, np.generic):
        if value.dtype == np.longdouble and value.dtype.itemsize > 8:
            return f"{value.dtype.str}:{value!r}"  # the filler bytes of an extended float have no content
        return f"{value.dtype.str}:{value.tobytes().hex()}"
    if isinstance(value, float):
        return f"float:{value.hex()}"
    return f"{type(value).__name__}:{value!r}"


def kind_name(value: Scalar | np.dtype[Any]) -> str:
    """Return what a user would call the type of a literal or of a column: ``"number"``, ``"text"``, ``"time"`` ..."""
    if isinstance(value, np.dtype):
        return {"b": "bool", "U": "text", "S": "bytes text", "M": "datetime", "m": "timedelta"}.get(
            value.kind, "number"
        )
    if isinstance(value, bool):
        return "bool"
    if is_number(value):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes):
        return "bytes text"
    if isinstance(value, Instant | np.datetime64):
        return "datetime"
    if isinstance(value, np.timedelta64):
        return "timedelta"
    return "missing value"


def show(literal: Scalar) -> str:
    """Return a literal as a user would write it."""
    if isinstance(literal, Instant):
        return repr(f"{literal.value}Z" if literal.aware else str(literal.value))
    if isinstance(literal, Null):
        return literal.value
    return repr(literal)
