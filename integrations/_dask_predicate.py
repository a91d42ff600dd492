"""Conditions that Dask's optimizer pushes down, as our column expressions.

`translate` gives an expression that keeps exactly the rows that pandas would keep with the frames of this collection,
or None. None is always right: the filter then stays where it is. What decides is what a column is *handed out* as,
because missing values follow the rules of that dtype (integrations.md 0): a nullable float becomes NumPy with NaN, so
``!=`` keeps its missing rows, although the file has a validity companion. Where pandas' rules and ours differ (members
that are missing, times as text in ``isin``, text against bytes), the condition is not pushed.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from dask.dataframe.dask_expr import _expr
from dask.dataframe.dask_expr._expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    Between,
    Elemwise,
    Invert,
    Isin,
    IsNa,
    NotNull,
    Or,
    Projection,
    _DelayedExpr,
)
from dask.dataframe.dask_expr._expr import Expr as DaskExpr

from colstore_io.arrays import TEXT_LOGICAL
from colstore_io.errors import QueryError
from colstore_io.fields import Field, Schema
from colstore_io.predicate import Expr, bind, col
from colstore_io.predicate.expression import call

from ._dask_folders import FolderColumns, terms
from ._dask_frame import FrameTypes, has_categories

__all__ = ["SWAPPED", "Translator"]

_COMPARISONS: dict[type, str] = {
    EQ: "equal",
    NE: "not_equal",
    LT: "less",
    LE: "less_equal",
    GT: "greater",
    GE: "greater_equal",
}
_METHODS = {
    getattr(_expr, f"{kind.__name__}Series"): name
    for kind, name in _COMPARISONS.items()
    if hasattr(_expr, f"{kind.__name__}Series")
}
SWAPPED = {
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
    "equal": "equal",
    "not_equal": "not_equal",
}
_EXACT = 1 << 53  # beyond it, comparisons of integers with floats round in NumPy, and do not here
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?", re.ASCII)

Rule = Literal["as stored", "nan"]
"""How missing values behave in a frame: as our predicates have it, or as NaN although the file has a companion."""


class Translator:
    """Translates conditions over the columns of one reading expression.

    Parameters
    ----------
    read : dask expression
        What the columns must come from.
    schema : Schema
        Of its source.
    types : FrameTypes
        As what its columns are handed out.
    folders : FolderColumns, optional
        Columns that are in no file. They are categorical in frames, which can be asked for equality.
    """

    def __init__(
        self, read: DaskExpr, schema: Schema, types: FrameTypes, folders: FolderColumns | None = None
    ) -> None:
        self._name = read._name
        self._names = frozenset(read.columns)
        self._series = read.columns[0] if read.ndim == 1 else None
        self._folders = folders
        self._categorical = () if folders is None else folders.names
        extra = () if folders is None else tuple(field for field in folders.fields if not field.optional)
        self._schema = Schema((*schema, *extra)) if extra else schema
        self._types = types

    def whole(self, node: Any) -> Expr | None:
        """Return the whole condition, None where a part of it has no translation."""
        return self.checked(self._condition(node))

    def checked(self, found: Expr | None) -> Expr | None:
        """Return a condition that fits the columns, None for another: pandas is to say what it thinks of it."""
        if found is None:
            return None
        try:
            bind(found, self._schema)
            terms(found, self._folders)
        except (QueryError, TypeError, ValueError):
            return None
        return found

    def present(self, names: Sequence[Any] | None) -> Expr | None:
        """Return the condition that none of some columns is missing; None where it has no translation."""
        found: Expr | None = None
        for name in names or ():
            field = self.field(name)
            if field is None:
                return None
            if not field.nullable and field.dtype.kind in "biuUS":
                continue  # nothing to ask
            there = ~self.missing(field)
            found = there if found is None else found & there
        return self.checked(found)

    def split(self, node: Any) -> tuple[Expr | None, Any]:
        """Return what of a conjunction has a translation, and the rest of it (None if nothing is left)."""
        found = self.whole(node)
        if found is not None:
            return found, None
        if not isinstance(node, And):
            return None, node
        left, left_rest = self.split(node.left)
        right, right_rest = self.split(node.right)
        rest = (
            left_rest
            if right_rest is None
            else right_rest
            if left_rest is None
            else And(left_rest, right_rest)
        )
        if left is None or right is None:
            return (left if right is None else right), rest
        return left & right, rest

    def is_rowwise(self, node: Any) -> bool:
        """Tell whether a condition looks at the rows of the reading expression one by one."""
        stack = [node]
        while stack:
            e = stack.pop()
            if e._name == self._name:
                continue
            if not isinstance(e, Elemwise | _DelayedExpr):
                return False
            stack.extend(e.dependencies())  # type: ignore[no-untyped-call]
        return True

    # -- conditions

    def _condition(self, node: Any) -> Expr | None:
        if isinstance(node, And | Or):
            left, right = self._condition(node.left), self._condition(node.right)
            if left is None or right is None:
                return None
            return left & right if isinstance(node, And) else left | right
        if isinstance(node, Invert):
            operand = self._condition(node.frame)
            return None if operand is None else ~operand
        operation = _METHODS.get(type(node))
        if operation is not None:  # df.x.gt(3)
            field = self._field(node.operands[0])
            if field is None or node.operand("fill_value") is not None:
                return None
            return self.compared(field, operation, node.operands[1])
        operation = _COMPARISONS.get(type(node))
        if operation is not None:
            field = self._field(node.left)
            if field is not None:
                return self.compared(field, operation, node.right)
            field = self._field(node.right)
            return None if field is None else self.compared(field, SWAPPED[operation], node.left)
        if isinstance(node, Between):
            return self._between(node)
        if isinstance(node, Isin):
            return self._membership(node)
        if isinstance(node, IsNa | NotNull):
            field = self._field(node.frame)
            if field is None:
                return None
            missing = self.missing(field)
            return missing if isinstance(node, IsNa) else ~missing
        return self.flag(self._field(node))

    def _field(self, node: Any) -> Field | None:
        """Return the field that `node` is a column of, if conditions on it can be pushed."""
        if not isinstance(node, DaskExpr):
            return None
        if isinstance(node, Projection) and node.frame._name == self._name and self._series is None:
            name = node.operand("columns")
        elif node._name == self._name and self._series is not None:
            name = self._series
        else:
            return None
        return self.field(name)

    def field(self, name: Any) -> Field | None:
        """Return the column of this name, if conditions on it can be pushed."""
        if not isinstance(name, str) or name not in self._schema or name not in self._names:
            return None
        field = self._schema[name]
        if name in self._types.categories:
            # Each partition would find other categories among fewer rows, unless the file says which there are.
            return field if _is_text(field) and has_categories(field) else None
        kind, backend = field.dtype.kind, self._types.dtype_backend
        if kind not in "biufmMUS" and not _is_text(field):
            return None
        if kind == "f" and field.dtype.itemsize not in (4, 8):
            return None
        if backend is not None and kind in "fmM":
            return None  # NaN and NaT become missing there, or do not, by rules of each library
        if kind == "S" and not _is_text(field) and (field.nullable or backend is not None):
            return None
        return field

    def flag(self, field: Field | None) -> Expr | None:
        """Return the condition that a boolean column by itself is."""
        if field is not None and field.dtype.kind == "b":
            return col(field.name) == True  # noqa: E712 - builds an expression
        return None

    def _rule(self, field: Field) -> Rule:
        if field.name in self._types.categories:
            return "nan"
        if not field.nullable or self._types.dtype_backend is not None:
            return "as stored"
        if field.dtype.kind == "f" or (_is_text(field) and self._types.text is None):
            return "nan"
        return "as stored"

    def missing(self, field: Field) -> Expr:
        """Return the condition that a column is missing, as frames of this collection understand it."""
        column = col(field.name)
        if field.nullable and field.dtype.kind == "f":
            return column.isna() | (column != column)  # a stored NaN is missing in NumPy too
        return column.isna()

    def compared(self, field: Field, operation: str, literal: Any) -> Expr | None:
        """Return a comparison of a column with a constant; None where ours is not that of pandas."""
        if isinstance(literal, DaskExpr) or not _comparable(field, literal, operation):
            return None
        column = col(field.name)
        unordered = field.name in self._categorical or field.name in self._types.categories
        if unordered and operation not in ("equal", "not_equal"):
            return None
        found = call(operation, column, literal)
        if self._rule(field) == "nan":
            return found | column.isna() if operation == "not_equal" else found & column.notna()
        return found

    def _between(self, node: Any) -> Expr | None:
        field = self._field(node.frame)
        inclusive = node.operand("inclusive")
        if field is None or inclusive not in ("both", "neither", "left", "right"):
            return None
        low = "greater_equal" if inclusive in ("both", "left") else "greater"
        high = "less_equal" if inclusive in ("both", "right") else "less"
        lower = self.compared(field, low, node.operand("left"))
        upper = self.compared(field, high, node.operand("right"))
        return None if lower is None or upper is None else lower & upper

    def _membership(self, node: Any) -> Expr | None:
        return self.member(self._field(node.frame), _members(node.operand("values")))

    def member(self, field: Field | None, values: list[Any] | None) -> Expr | None:
        """Return the condition that a column has one of some values; None where ours is not that of pandas."""
        if field is None or values is None or not all(_is_member(field, value) for value in values):
            return None
        return col(field.name).isin(values)


def _is_text(field: Field) -> bool:
    return field.dtype.kind == "U" or (field.dtype.kind in "SO" and field.logical in TEXT_LOGICAL)


def _is_number(literal: Any) -> bool:
    return isinstance(literal, int | float | np.integer | np.floating) and not isinstance(
        literal, bool | np.timedelta64
    )


def _is_exact(number: Any) -> bool:
    return bool(abs(number) < _EXACT)  # False for NaN


def _comparable(field: Field, literal: Any, operation: str) -> bool:
    """Tell whether pandas and our predicates mean the same by a comparison of `field` with `literal`."""
    kind = field.dtype.kind
    if kind == "b":
        return isinstance(literal, bool | np.bool_) and operation in ("equal", "not_equal")
    if kind in "iu":
        if isinstance(literal, float | np.floating):
            return _is_exact(literal)
        return _is_number(literal)
    if kind == "f":
        if not _is_number(literal) or literal != literal:
            return False
        # A NumPy scalar of another precision decides over the precision of the comparison; leave that to NumPy.
        return _is_exact(literal) and (
            field.dtype.itemsize == 8 or float(np.float32(literal)) == float(literal)
        )
    if _is_text(field):
        return isinstance(literal, str) and _is_plain_text(literal)
    if kind == "S":
        return isinstance(literal, bytes) and not literal.endswith(b"\0")
    return _is_time(field, literal)


def _is_plain_text(text: str) -> bool:
    """Tell whether text is Unicode and does not end in the padding of fixed widths."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return not text.endswith("\0")


def _is_time(field: Field, literal: Any) -> bool:
    if literal is pd.NaT or (isinstance(literal, np.datetime64 | np.timedelta64) and np.isnat(literal)):
        return False
    if field.dtype.kind == "m":
        return isinstance(literal, datetime.timedelta) or (
            isinstance(literal, np.timedelta64) and np.datetime_data(literal)[0] in ("s", "ms", "us", "ns")
        )
    if isinstance(literal, str):
        return field.tz is None and not field.nullable and _ISO.fullmatch(literal) is not None
    if isinstance(literal, np.datetime64):
        return field.tz is None and np.datetime_data(literal)[0] in ("s", "ms", "us", "ns")
    return isinstance(literal, datetime.datetime)


def _members(values: Any) -> list[Any] | None:
    """Return the list that a user gave to ``isin``, which Dask hides in a delayed object."""
    if not isinstance(values, _DelayedExpr):
        return None
    delayed = values.obj
    found = dict(delayed.dask).get(delayed.key)
    found = getattr(found, "value", found)
    if isinstance(found, np.ndarray | pd.Index | pd.Series):
        return list(found)
    if isinstance(found, Iterable) and not isinstance(found, str | bytes | dict):
        return list(found)
    return None


def _is_member(field: Field, value: Any) -> bool:
    kind = field.dtype.kind
    if kind == "b":
        return isinstance(value, bool | np.bool_)
    if kind in "iu":
        if isinstance(value, bool | np.bool_ | np.timedelta64) or not isinstance(value, int | np.integer):
            return False
        return -(1 << 63) <= int(value) < 1 << 63 and (kind == "i" or int(value) >= 0)
    if kind == "f":
        return _is_number(value) and _is_exact(value)
    if _is_text(field):
        return isinstance(value, str) and _is_plain_text(value)
    return kind in "mM" and _is_whole_time(field, value)


def _is_whole_time(field: Field, value: Any) -> bool:
    """Tell whether a column of times can hold `value` exactly: pandas rounds members to the unit of the column."""
    if isinstance(value, str) or not _is_time(field, value):
        return False
    if field.dtype.kind == "M" and (field.tz is None) != (getattr(value, "tzinfo", None) is None):
        return False
    stamp: Any = pd.Timestamp(value) if field.dtype.kind == "M" else pd.Timedelta(value)
    given = stamp.to_numpy() if field.tz is None else stamp.tz_convert("UTC").tz_localize(None).to_numpy()
    unit = f"{field.dtype.kind}8[{np.datetime_data(field.dtype)[0]}]"
    return bool(given.astype(unit) == given)
