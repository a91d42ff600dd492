"""The exact place of a literal among the values of a column.

`fold` moves a literal into the *domain of a column*: ``int64 column > 2.5`` becomes ``> 2`` in int64, ``uint64 column >
-1`` becomes "always", a date column against a time of day becomes a comparison of days. The comparison then runs in the
stored dtype, exactly, without a temporary in a wider type, and the same folded bound is compared with segment
statistics (cstore-behaviour.md 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy as np

from .literals import (
    IncompatibleTypesError,
    Instant,
    Operator,
    Scalar,
    is_float,
    is_nan,
    is_null,
    is_number,
    kind_name,
    show,
)
from .times import (
    SECONDS,
    datetime64_seconds,
    iso_seconds,
    month_start,
    months_floor,
    unit_of,
)

__all__ = ["Always", "Bound", "fold", "fold_member"]

INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bound:
    """Compare the values of the column with `value`, a scalar of the column's own dtype."""

    op: Operator
    value: np.generic


@dataclass(frozen=True, slots=True)
class Always:
    """The comparison has this result for every value that is not missing."""

    value: bool


def fold(op: Operator, literal: Scalar, dtype: np.dtype[Any], tz: str | None = None) -> Bound | Always:
    """Move ``values OP literal`` into the domain of `dtype`.

    Parameters
    ----------
    op : Operator
    literal : Scalar
        Not a missing value (`is_null`); a float NaN is allowed.
    dtype : numpy.dtype
        Native dtype of the values.
    tz : str, optional
        Time zone of a datetime field whose stored values are UTC.

    Returns
    -------
    Bound or Always
        Equivalent to the comparison for every value of `dtype`; NaN and NaT values compare as in NumPy.

    Raises
    ------
    IncompatibleTypesError
        If the two can never be compared (a date with a number, a number with text).

    Notes
    -----
    Integers and times are exact, whatever the literal is. Floats agree with NumPy: a Python number is first brought
    to the precision of the column (``float32 column == 0.1`` can be true), a NumPy scalar is not.
    """
    kind = dtype.kind
    if kind in "biu" and is_number(literal):
        return _fold_integer(op, literal, dtype)
    if kind == "f" and is_number(literal):
        return _fold_float(op, literal, dtype)
    if kind in "US" and isinstance(literal, str | bytes):
        return _fold_text(op, literal, dtype)
    if kind == "M" and isinstance(literal, str | np.datetime64 | Instant):
        return _fold_datetime(op, literal, dtype, tz)
    if kind == "m" and isinstance(literal, np.timedelta64):
        return _fold_timedelta(op, literal, dtype)
    raise IncompatibleTypesError(
        f"{kind_name(dtype)} ({dtype}) cannot be compared with {kind_name(literal)} {show(literal)}"
        + {
            "M": "; write a date such as '2020-01-31'",
            "m": "; use datetime.timedelta or numpy.timedelta64",
        }.get(kind, "")
    )


def fold_member(literal: Scalar, dtype: np.dtype[Any], tz: str | None = None) -> np.generic | None:
    """Return the value of `dtype` that equals `literal`, or None when no value does.

    Membership follows pandas: types that do not fit never match, and ``0.1`` is not a float32. Text that is no ISO
    date raises `IncompatibleTypesError` against a datetime column, because it is a misspelling and not a value; so
    does a timedelta against numbers, whose unit would be lost.
    """
    if is_null(literal) or is_nan(literal):
        return None
    if dtype.kind == "f" and is_number(literal):
        if isinstance(literal, int | np.integer):  # exact: 2**53 + 1 equals no float64
            with np.errstate(all="ignore"):
                try:
                    nearest = dtype.type(int(literal))
                except OverflowError:
                    return None
            return nearest if np.isfinite(nearest) and int(nearest) == int(literal) else None
        literal = np.float64(literal) if isinstance(literal, float) else literal
    try:
        folded = fold("equal", literal, dtype, tz)
    except IncompatibleTypesError:
        misspelt = dtype.kind == "M" and isinstance(literal, str)
        if misspelt or (dtype.kind in "biuf" and isinstance(literal, np.timedelta64)):
            raise
        return None
    return folded.value if isinstance(folded, Bound) else None


_OUTSIDE_BELOW: dict[Operator, bool] = {
    "less": False,
    "less_equal": False,
    "equal": False,
    "greater": True,
    "greater_equal": True,
    "not_equal": True,
}
"""Result of ``x OP bound`` when the bound lies below every x."""

_INEXACT_FROM_BELOW: dict[Operator, Operator] = {
    "less": "less_equal",
    "less_equal": "less_equal",
    "greater": "greater",
    "greater_equal": "greater",
}
"""``x OP literal`` as ``x OP' floor`` when the literal lies strictly between two neighbouring values of the domain."""

_INEXACT_FROM_ABOVE: dict[Operator, Operator] = {
    "less": "less",
    "less_equal": "less",
    "greater": "greater_equal",
    "greater_equal": "greater_equal",
}


def _fold_floor(
    op: Operator, floor: int, exact: bool, lowest: int, highest: int
) -> tuple[Operator, int] | Always:
    """Fold into the integers of [lowest, highest]; the literal is `floor`, or between it and the next integer."""
    if not exact:
        if op in ("equal", "not_equal"):
            return Always(op == "not_equal")
        op = _INEXACT_FROM_BELOW[op]
    if floor < lowest:
        return Always(_OUTSIDE_BELOW[op])
    if floor > highest:
        return Always((not _OUTSIDE_BELOW[op]) if op not in ("equal", "not_equal") else op == "not_equal")
    return op, floor


def _fold_integer(op: Operator, literal: Scalar, dtype: np.dtype[Any]) -> Bound | Always:
    if dtype.kind == "b":
        lowest, highest = 0, 1
    else:
        info = np.iinfo(dtype)
        lowest, highest = int(info.min), int(info.max)
    exact = True
    if is_float(literal):
        number = cast("Any", literal)
        if np.isnan(number):
            return Always(op == "not_equal")
        if np.isinf(number):
            floor = highest + 1 if number > 0 else lowest - 1
        else:
            floor = int(np.floor(number)) if isinstance(number, np.longdouble) else math.floor(number)
            exact = bool(number == np.floor(number))
    else:
        floor = int(cast("int", literal))
    folded = _fold_floor(op, floor, exact, lowest, highest)
    return folded if isinstance(folded, Always) else Bound(folded[0], dtype.type(folded[1]))


def _fold_float(op: Operator, literal: Scalar, dtype: np.dtype[Any]) -> Bound | Always:
    number = cast("Any", literal)
    with np.errstate(all="ignore"):
        if isinstance(number, np.generic):
            wide = np.result_type(dtype, number.dtype).type
            try:
                target = wide(number)
            except OverflowError:  # pragma: no cover - NumPy integers fit every float
                target = wide(np.inf)
        else:
            wide = dtype.type
            try:
                target = wide(number)
            except OverflowError:  # a Python int beyond every float
                if op in ("equal", "not_equal"):
                    return Always(op == "not_equal")
                ops = _INEXACT_FROM_ABOVE if number > 0 else _INEXACT_FROM_BELOW
                return Bound(ops[op], dtype.type(np.inf if number > 0 else -np.inf))
        if np.isnan(target):
            return Always(op == "not_equal")
        nearest = dtype.type(target)
        back = wide(nearest)
    if back == target:
        return Bound(op, nearest)
    if op in ("equal", "not_equal"):
        return Always(op == "not_equal")
    return Bound((_INEXACT_FROM_BELOW if back < target else _INEXACT_FROM_ABOVE)[op], nearest)


def _fold_text(op: Operator, literal: str | bytes, dtype: np.dtype[Any]) -> Bound | Always:
    """Coerce text to the kind of the column. NUL padding is no content, so no stored value ends in NUL."""
    scalar: np.generic
    if dtype.kind == "U":
        try:
            text = literal if isinstance(literal, str) else literal.decode()
        except UnicodeDecodeError:
            raise IncompatibleTypesError(
                f"text ({dtype}) cannot be compared with bytes {literal!r}, which are not UTF-8"
            ) from None
        stripped, padded = text.rstrip("\0"), text.endswith("\0")
        scalar = np.str_(stripped)
    else:
        raw = literal if isinstance(literal, bytes) else literal.encode("utf-8", "surrogatepass")
        padded = raw.endswith(b"\0")
        scalar = np.bytes_(raw.rstrip(b"\0"))
    if not padded:
        return Bound(op, scalar)
    if op in ("equal", "not_equal"):
        return Always(op == "not_equal")
    return Bound(_INEXACT_FROM_BELOW[op], scalar)


def _fold_datetime(
    op: Operator, literal: str | np.datetime64 | Instant, dtype: np.dtype[Any], tz: str | None
) -> Bound | Always:
    unit, count = unit_of(dtype)
    if unit == "generic":
        raise IncompatibleTypesError(
            "a datetime column without a unit cannot be compared; give it one with astype('M8[s]')"
        )
    if isinstance(literal, str):
        seconds = iso_seconds(literal, tz)
    elif isinstance(literal, Instant):
        if literal.aware != (tz is not None):
            raise IncompatibleTypesError(
                f"datetime {show(literal)} has no time zone, the column has {tz!r}; add one to the literal"
                if tz is not None
                else f"datetime {show(literal)} has a time zone, the column has none; remove it from the literal"
            )
        seconds = datetime64_seconds(literal.value)
    else:
        seconds = datetime64_seconds(literal)  # NumPy's times have no zone: UTC, as the stored values are
    if unit == "M":
        months = months_floor(math.floor(seconds / 86400))
        floor = months // count
        exact = Fraction(month_start(floor * count) * 86400) == seconds
    else:
        steps = seconds / (SECONDS[unit] * count)
        floor = math.floor(steps)
        exact = steps.denominator == 1
    folded = _fold_floor(op, floor, exact, -INT64_MAX, INT64_MAX)  # the lowest int64 is NaT
    if isinstance(folded, Always):
        return folded
    return Bound(folded[0], np.int64(folded[1]).view(dtype))


def _fold_timedelta(op: Operator, literal: np.timedelta64, dtype: np.dtype[Any]) -> Bound | Always:
    unit, count = unit_of(dtype)
    literal_unit, literal_count = unit_of(literal.dtype)
    steps = Fraction(int(literal.astype(np.int64)))
    if "generic" not in (
        unit,
        literal_unit,
    ):  # a unit-less timedelta counts the other side's steps, as in NumPy
        if (unit == "M") != (literal_unit == "M"):
            raise IncompatibleTypesError(
                f"timedelta ({dtype}) cannot be compared with {literal!r}: months have no length; use days"
            )
        if unit == "M":
            steps *= Fraction(literal_count, count)
        else:
            steps *= SECONDS[literal_unit] * literal_count / (SECONDS[unit] * count)
    folded = _fold_floor(op, math.floor(steps), steps.denominator == 1, -INT64_MAX, INT64_MAX)
    if isinstance(folded, Always):
        return folded
    return Bound(folded[0], np.int64(folded[1]).view(dtype))
