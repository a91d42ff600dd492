"""Does this column fit the table? Companions, and the schema that new data have to match.

The rules of an append (cstore-behaviour.md 5.1, 6): same names in the same order, same dtypes, text no longer than
the table's width, nulls only where there is a companion. Errors say which column does not fit and what would help.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import ARROW_UNITS, TEXT_LOGICAL
from ..errors import SchemaMismatchError
from ..fields import Field, Schema
from .columns import Column

__all__ = ["check_names", "fit_column", "with_companion"]


def _missing_in_band(column: Column) -> NDArray[np.bool_] | None:
    """Mark NaN or NaT where they mean "missing"; None when nothing is missing."""
    if not column.in_band:
        return None
    missing = np.isnan(column.values) if column.values.dtype.kind == "f" else np.isnat(column.values)
    return missing if missing.any() else None


def with_companion(name: str, column: Column) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return values and companion of a column that gets one.

    NaN and NaT that mean "missing" become nulls (zero bytes); without any null the companion is all true.

    Raises
    ------
    TypeError
        If Arrow has no type for the column, so that it could not be handed out as a nullable one.
    """
    dtype = column.values.dtype
    unit, count = np.datetime_data(dtype) if dtype.kind in "mM" else ("s", 1)
    dated = dtype.kind == "M" and unit == "D"
    if count != 1 or not (unit in ARROW_UNITS or dated) or (dtype.kind == "f" and dtype.itemsize > 8):
        raise TypeError(
            f"column {name!r} of dtype {dtype} cannot be nullable, since Arrow has no such type; "
            "cast it to float64 or to one of the time units s, ms, us, ns"
        )
    values, validity = column.values, column.validity
    missing = _missing_in_band(column)
    if missing is not None:
        validity = ~missing if validity is None else validity & ~missing
        values = np.where(validity, values, np.zeros((), dtype))
    return values, np.ones(len(values), np.bool_) if validity is None else validity


def check_names(names: Sequence[str], like: Schema) -> None:
    """Check that `names` are those of `like`, in its order.

    Raises
    ------
    SchemaMismatchError
        Naming the number of columns, or the first name that differs.
    """
    expected = like.names
    if list(names) == expected:
        return
    missing = [name for name in expected if name not in set(names)]
    unexpected = [name for name in names if name not in like]
    details = []
    if missing:
        details.append(f"missing: {', '.join(map(repr, missing[:5]))}")
    if unexpected:
        details.append(f"unexpected: {', '.join(map(repr, unexpected[:5]))}")
    ending = f" ({'; '.join(details)})" if details else ""
    if len(names) != len(expected):
        raise SchemaMismatchError(
            f"the data have {len(names)} columns, the table has {len(expected)}{ending}"
        )
    at = next(i for i, (a, b) in enumerate(zip(names, expected, strict=True)) if a != b)
    if not details:
        ending = "; the names are the same, in another order: reorder the columns"
    raise SchemaMismatchError(f"column {at} is {names[at]!r}, the table has {expected[at]!r} there{ending}")


def _no_companion(name: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {name!r} holds nulls, but the table has no validity companion for it; "
        f"nullable=[{name!r}] when the data were first written would have made one"
    )


def _fit_untyped(name: str, column: Column, field: Field) -> list[NDArray[Any]]:
    """Values without a type (all null) take the type of the table's column."""
    n_rows = len(column.values)
    values = np.zeros(n_rows, field.dtype)
    if field.nullable:
        return [values, np.zeros(n_rows, np.bool_)]
    if field.dtype.kind == "f":
        values[:] = np.nan
    elif n_rows:
        raise _no_companion(name)
    return [values]


def _check_categories(name: str, column: Column, validity: NDArray[np.bool_] | None, field: Field) -> None:
    """A value outside the stored categories would have no place in the column's dictionary."""
    if field.categories is None or column.categories == field.categories or not len(column.values):
        return
    values = np.unique(column.values if validity is None else column.values[validity])
    if values.dtype.kind == "S":
        known = np.array([str(c).encode() for c in field.categories] or [b""], dtype="S")
    else:
        known = np.array(list(field.categories) or [""])
    unknown = values[~np.isin(values, known)]
    if len(unknown):
        raise SchemaMismatchError(
            f"column {name!r} holds {unknown[0].item()!r}, which is none of the {len(field.categories)} "
            "categories of the table; give all batches the same categories, or store the column as plain values"
        )


def fit_column(name: str, column: Column, field: Field) -> list[NDArray[Any]]:
    """Return the physical arrays of one column as the table has them: values, and companion if it has one.

    Raises
    ------
    SchemaMismatchError
        If dtype, kind of text, time zone or categories differ, or nulls have no companion to stand in.
    """
    if column.untyped:
        return _fit_untyped(name, column, field)
    if column.values.dtype.str != field.dtype.str:
        raise SchemaMismatchError(
            f"column {name!r} has dtype {column.values.dtype.str}, the table has {field.dtype.str}; "
            "cast it with astype, or store it under another name"
        )
    if column.logical in TEXT_LOGICAL and field.dtype.kind == "S" and field.logical not in TEXT_LOGICAL:
        raise SchemaMismatchError(f"column {name!r} holds text, the table has bytes ({field.dtype.str})")
    # A NumPy array cannot tell its zone: it is taken for the stored values, which are UTC.
    if (column.tz is None) != (field.tz is None) and not (column.plain and field.tz is not None):
        has, lacks = ("the data have", "the table has") if column.tz else ("the table has", "the data have")
        raise SchemaMismatchError(
            f"column {name!r}: {has} the time zone {column.tz or field.tz!r}, {lacks} none; "
            "convert or localise the times first"
        )
    if not field.nullable:
        if column.validity is not None:
            raise _no_companion(name)
        _check_categories(name, column, None, field)
        return [column.values]
    values, validity = with_companion(name, column)
    _check_categories(name, column, validity, field)
    return [values, validity]
