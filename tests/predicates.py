"""Conditions on plain columns, for the tests of predicates."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from colstore_io.fields import Field, Schema
from colstore_io.predicate import ColumnValues, Expr, bind

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}


def schema_of(**columns: Any) -> Schema:
    return Schema(tuple(Field(name, np.asarray(values).dtype) for name, values in columns.items()))


def rows(expr: Expr, **columns: Any) -> list[int]:
    """Return the positions of the rows of plain columns that match."""
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    mask = bind(expr, schema_of(**arrays)).mask({name: ColumnValues(array) for name, array in arrays.items()})
    assert mask.dtype == np.bool_
    return np.flatnonzero(mask).tolist()
