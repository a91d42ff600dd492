"""An expression, checked against a schema.

`bind` checks it once, and gives a `Predicate` with two operations: `Predicate.mask`, exact, on the buffers of the
columns it names; and `Predicate.may_match`, conservative, on statistics of segments. A segment that `may_match`
excludes holds no row that `mask` would select (cstore-behaviour.md 8, integrations.md 0).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import QueryError
from ..fields import Field, Schema
from . import nodes
from .binding import Binder
from .expression import Expr
from .literals import Operator
from .statistics import ColumnStatistics, SegmentStatistics
from .text import brief
from .values import BLOCK_ROWS, Block, BoolArray, ColumnValues, is_plain

__all__ = ["BoundExpression", "ColumnRange", "Predicate", "bind", "bind_value"]


class ColumnRange(NamedTuple):
    """Rows of `column` between `lo` and `hi`; missing values (NaN, NaT, nulls) are outside. None is no bound.

    The bounds are scalars of the column's dtype. A datetime or timedelta range without a lower bound in the predicate
    gets the least time that is not NaT, so that integer comparisons on the stored values are right.
    """

    column: str
    lo: np.generic | None
    lo_inclusive: bool
    hi: np.generic | None
    hi_inclusive: bool


def bind(expr: Expr, schema: Schema) -> Predicate:
    """Check `expr` against `schema` and return it as a predicate. No data are read.

    Parameters
    ----------
    expr : Expr
        From `col`, `query.parse_query` or `query.from_dnf`.
    schema : Schema
        Logical schema of the table; only the fields that `expr` names are kept.

    Returns
    -------
    Predicate

    Raises
    ------
    QueryError
        If a column is unknown (then also `ColumnNotFoundError`), types do not fit, no column is named, or the result
        is not a condition.
    TypeError
        If `expr` is not an expression.
    """
    fields, root = _bind(expr, schema)
    if root.dtype != nodes.BOOL:
        raise QueryError(
            f"a query must be a boolean condition; {brief(expr)} evaluates to {root.dtype}: compare it with something"
        )
    return Predicate(expr, fields)


def bind_value(expr: Expr, schema: Schema) -> BoundExpression:
    """Check `expr` against `schema` like `bind`, but allow any type of result."""
    fields, root = _bind(expr, schema)
    return BoundExpression(expr, fields, root.dtype)


def _bind(expr: Expr, schema: Schema) -> tuple[tuple[Field, ...], nodes.Node]:
    if not isinstance(expr, Expr):
        raise TypeError(f"expected a column expression such as col('x') > 3, got {type(expr).__name__}")
    known = {name: _essentials(schema[name]) for name in expr.columns if name in schema}
    visible = Schema(tuple(known.get(field.name, field) for field in schema))
    root = Binder(visible).value(expr)
    if not expr.columns:
        raise QueryError(f"a query must reference at least one column; {brief(expr)} does not")
    return tuple(known[name] for name in expr.columns), root


def _essentials(field: Field) -> Field:
    """Keep what evaluation needs: predicates travel inside every task, attributes and categories need not.

    Text and bytes of variable length are text and bytes of any width here.
    """
    dtype = field.dtype
    if field.variable:
        letter = {"string": "U", "large_string": "U", "binary": "S", "large_binary": "S"}.get(
            field.logical or ""
        )
        if letter is None:
            raise QueryError(f"column {field.name!r} holds {field.logical}: a predicate cannot look into it")
        dtype = np.dtype(f"{letter}1")
    return replace(field, dtype=dtype, attrs={}, categories=None, ordered=None, logical=None)


@dataclass(frozen=True)
class _Bound:
    expr: Expr
    fields: tuple[Field, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns needed, each once."""
        return tuple(field.name for field in self.fields)

    def _prepare(self, values: Mapping[str, ColumnValues]) -> int:
        """Check the buffers and return their number of rows."""
        n_rows = -1
        for field in self.fields:
            try:
                column = values[field.name]
            except KeyError:
                raise ValueError(f"the values of column {field.name!r} are missing") from None
            dtype, expected = column.values.dtype, field.native_dtype
            fits = dtype.kind == expected.kind and (dtype.kind in "US" or dtype.newbyteorder("=") == expected)
            if not fits:
                raise TypeError(
                    f"column {field.name!r} has dtype {dtype}, the predicate was bound to {expected}"
                )
            length = len(column.values)
            if column.values.ndim != 1 or (n_rows >= 0 and length != n_rows):
                raise ValueError(
                    f"column {field.name!r} has shape {column.values.shape}, expected ({n_rows},)"
                )
            if column.validity is not None and (
                column.validity.shape != (length,) or column.validity.dtype.itemsize != 1
            ):
                raise ValueError(f"the validity of column {field.name!r} must be {length} bools")
            n_rows = length
        return n_rows

    def _token(self) -> str:
        digest = hashlib.blake2b(self.expr.token().encode(), digest_size=16)
        for field in self.fields:
            digest.update(
                repr((field.name, field.dtype.str, field.nullable, field.tz)).encode("utf-8", "replace")
            )
        return digest.hexdigest()

    def __dask_tokenize__(self) -> tuple[str, str]:
        return (f"colstore_io.{type(self).__name__}", self._token())

    def __hash__(self) -> int:
        return hash(self._token())

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, _Bound) and self._token() == other._token()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({brief(self.expr, 2000)!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Predicate(_Bound):
    """An expression bound to the fields it names; made by `bind`.

    Immutable; equal and hashable by structure; its pickle holds the expression and the essentials of the fields.

    Attributes
    ----------
    expr : Expr
    fields : tuple of Field
        Fields of the columns named, in order of appearance.
    """

    def __post_init__(self) -> None:
        binder = Binder(Schema(self.fields))
        object.__setattr__(self, "_root", binder.condition(self.expr))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.expr, self.fields))

    @property
    def _node(self) -> nodes.Node:
        return self.__dict__["_root"]  # type: ignore[no-any-return]

    def mask(self, values: Mapping[str, ColumnValues]) -> BoolArray:
        """Return which rows match.

        Parameters
        ----------
        values : mapping of str to ColumnValues
            At least the columns of the predicate, all of one length n, in the dtypes of the schema (any byte order;
            text of any width).

        Returns
        -------
        ndarray of bool, shape (n,)
            New. False where the predicate is NA.

        Raises
        ------
        ValueError, TypeError
            If columns are missing, or lengths or dtypes do not fit.
        QueryError
            If an operation fails on the values (an integer to a negative power).

        Notes
        -----
        O(n); temporaries take a few blocks of `BLOCK_ROWS` rows, whatever n is. One comparison of a plain column with
        a constant is a single NumPy pass.
        """
        n_rows = self._prepare(values)
        out = np.empty(n_rows, np.bool_)
        root = self._node
        leaf = root.operand if isinstance(root, nodes.CompareScalar) else None
        single_pass = isinstance(leaf, nodes.ColumnNode) and is_plain(values[leaf.name])
        step = max(n_rows, 1) if single_pass else BLOCK_ROWS
        with np.errstate(all="ignore"):
            for start in range(0, n_rows, step):
                stop = min(start + step, n_rows)
                root.select(Block(values, start, stop), out[start:stop])
        return out

    def may_match(self, stats: Mapping[str, ColumnStatistics], n_segments: int) -> BoolArray:
        """Return which segments can hold a matching row.

        Parameters
        ----------
        stats : mapping of str to ColumnStatistics
            Statistics by field name; fields without any are unknown.
        n_segments : int

        Returns
        -------
        ndarray of bool, shape (n_segments,)
            New. False = no row of the segment matches.

        Raises
        ------
        ValueError
            If an array does not have `n_segments` elements.
        """
        segments = SegmentStatistics({field.name: field for field in self.fields}, stats, n_segments)
        return np.array(self._node.outcome(segments).can_be_true, dtype=np.bool_)

    def simple_ranges(self) -> tuple[ColumnRange, ...] | None:
        """Return the predicate as one range per column, if it is a conjunction of comparisons with constants.

        Returns
        -------
        tuple of ColumnRange, or None
            The rows that lie in all ranges are exactly the rows of `mask`. None for any other predicate, and for text
            columns.
        """
        root = self._node
        ranges: dict[str, ColumnRange] = {}
        for part in _conjuncts(root):
            if not isinstance(part, nodes.CompareScalar) or not isinstance(part.operand, nodes.ColumnNode):
                return None
            name, dtype = part.operand.name, part.operand.dtype
            if part.op == "not_equal" or dtype.kind in "US":
                return None
            ranges[name] = _narrow(ranges.get(name, _unbounded(name, dtype)), part.op, part.value)
        return tuple(ranges.values())


def _conjuncts(node: nodes.Node) -> list[nodes.Node]:
    if isinstance(node, nodes.And):
        return [leaf for part in node.parts for leaf in _conjuncts(part)]
    return [node]


def _unbounded(name: str, dtype: np.dtype[Any]) -> ColumnRange:
    if dtype.kind in "mM":
        return ColumnRange(name, np.int64(-(2**63) + 1).view(dtype), True, None, False)
    return ColumnRange(name, None, False, None, False)


def _narrow(current: ColumnRange, op: Operator, value: Any) -> ColumnRange:
    column, lo, lo_inclusive, hi, hi_inclusive = current
    if op in ("greater", "greater_equal", "equal"):
        inclusive = op != "greater"
        if lo is None or value > lo:
            lo, lo_inclusive = value, inclusive
        elif value == lo:
            lo_inclusive = lo_inclusive and inclusive
    if op in ("less", "less_equal", "equal"):
        inclusive = op != "less"
        if hi is None or value < hi:
            hi, hi_inclusive = value, inclusive
        elif value == hi:
            hi_inclusive = hi_inclusive and inclusive
    return ColumnRange(column, lo, lo_inclusive, hi, hi_inclusive)


@dataclass(frozen=True, eq=False, repr=False)
class BoundExpression(_Bound):
    """A value expression bound to the fields it names; made by `bind_value`.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the result.
    """

    dtype: np.dtype[Any]

    def evaluate(self, values: Mapping[str, ColumnValues]) -> ColumnValues:
        """Compute the expression for all rows of `values`, in one piece; call it per batch.

        Returns
        -------
        ColumnValues
            `values` of shape (n,); they may be those of the input when the expression is a bare column. Under a
            False validity the values have no meaning.
        """
        n_rows = self._prepare(values)
        with np.errstate(all="ignore"):
            vector = Binder(Schema(self.fields)).value(self.expr).evaluate(Block(values, 0, n_rows))
        result = np.asarray(vector.values)
        if result.shape != (n_rows,):
            result = np.full(n_rows, vector.values, dtype=self.dtype)
        validity = None if vector.null is None else ~vector.null
        return ColumnValues(result, validity, "na" if vector.na else "nan")
