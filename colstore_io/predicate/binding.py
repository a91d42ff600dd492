"""Bind an expression to a schema: resolve names, check types on zero rows, fold literals into column domains."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ..errors import ColumnNotFoundError, QueryError
from ..fields import Schema
from . import nodes
from .expression import COMPARISONS, Call, Cast, Column, Constant, Expr, IsIn, IsNull, ufunc_by_name
from .folding import Bound, fold, fold_member
from .literals import (
    IncompatibleTypesError,
    Instant,
    Null,
    Operator,
    Scalar,
    is_nan,
    is_null,
    kind_name,
    show,
)
from .text import brief

__all__ = ["Binder"]

BOOL = nodes.BOOL
NUMERIC = "biuf"


class _UnknownColumnError(QueryError, ColumnNotFoundError):
    """An expression names a column that the table does not have: a bad query, and a `KeyError`."""


class Binder:
    """Makes nodes of expressions over one schema. Recursion is bounded by `predicate_expression.MAX_DEPTH`."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    # ---- values ----

    def value(self, expr: Expr) -> nodes.Node:
        """Return the node of `expr`, whatever its type.

        Raises
        ------
        QueryError
            For an unknown column (also a `ColumnNotFoundError`) or types that do not fit.
        """
        if isinstance(expr, Column):
            return self._column(expr.name)
        if isinstance(expr, Constant):
            return _constant(expr)
        if isinstance(expr, IsIn):
            return self._membership(expr)
        if isinstance(expr, IsNull):
            return nodes.MaybeNull(self.value(expr.operand))
        if isinstance(expr, Cast):
            return self._cast(expr)
        assert isinstance(expr, Call)
        function = expr.function
        if function in COMPARISONS:
            return self._comparison(expr, cast("Operator", function), *expr.args)
        if function in ("logical_and", "logical_or"):
            parts = tuple(self.condition(arg) for arg in expr.args)
            return nodes.And(parts) if function == "logical_and" else nodes.Or(parts)
        if function == "logical_not":
            return nodes.Not(self.condition(expr.args[0]))
        if function == "logical_xor":
            return nodes.Xor(self.condition(expr.args[0]), self.condition(expr.args[1]))
        if function == "where":
            return self._where(expr)
        args = (
            tuple(self.value(arg) for arg in expr.args) if function != "clip" else self._clip_operands(expr)
        )
        if all(arg.dtype == BOOL for arg in args):
            logic = self._bitwise_logic(function, args)
            if logic is not None:
                return logic
        return self._function(expr, args)

    def condition(self, expr: Expr) -> nodes.Node:
        """Return the node of `expr` as a condition: a bool column is one by itself, a number is true unless 0."""
        return _truth(self.value(expr), expr)

    def _column(self, name: str) -> nodes.ColumnNode:
        if name not in self._schema:
            text = str(ColumnNotFoundError.for_name(name, self._schema.names))
            raise _UnknownColumnError(text[:1].lower() + text[1:])
        field = self._schema[name]
        return nodes.ColumnNode(name, field.native_dtype, field.tz if field.dtype.kind == "M" else None)

    # ---- comparisons ----

    def _comparison(self, expr: Expr, op: Operator, left: Expr, right: Expr) -> nodes.Node:
        if isinstance(left, Constant):  # `call` puts the only constant on the right
            raise QueryError(f"{brief(expr)} compares two constants; one side must be made of columns")
        operand = self.value(left)
        if isinstance(right, Constant):
            return _compare_literal(expr, op, operand, right.value)
        other = self.value(right)
        if not _comparable(operand.dtype, other.dtype):
            raise QueryError(
                f"{brief(expr)}: {kind_name(operand.dtype)} ({operand.dtype}) cannot be compared with "
                f"{kind_name(other.dtype)} ({other.dtype})"
            )
        zones = {_aware(operand), _aware(other)}
        if zones == {True, False}:
            raise QueryError(
                f"{brief(expr)}: a datetime without a time zone cannot be compared with one that has a time zone"
            )
        return nodes.Compare(operand, op, other)

    def _membership(self, expr: IsIn) -> nodes.Node:
        operand = self.value(expr.operand)
        dtype = operand.dtype
        tz = _tz(operand)
        try:
            found = [fold_member(member, dtype, tz) for member in expr.members]
        except IncompatibleTypesError as exc:
            raise QueryError(f"{brief(expr)}: {exc}") from None
        present = [member for member in found if member is not None]
        if present:
            members = np.unique(np.array(present, dtype=dtype if dtype.kind not in "US" else None))
        else:
            members = np.empty(0, dtype=dtype)
        nan = any(is_nan(member) for member in expr.members)
        any_null = nan or any(is_null(member) for member in expr.members)
        na = Null.NA in expr.members
        # Which missing values a null in the list matches differs by dtype in pandas: Arrow-backed text and times take
        # any null, masked numbers and bools only pandas.NA, NumPy floats only NaN. NumPy times take NaT, and other
        # nulls in a list of times.
        arrow = dtype.kind in "USmM"
        if dtype.kind in "US":
            soft = any_null
        elif arrow:
            others = [member for member in expr.members if not (is_null(member) or is_nan(member))]
            all_times = bool(others) and all(
                isinstance(m, Instant | np.datetime64 | np.timedelta64) for m in others
            )
            soft = Null.NAT in expr.members or (any_null and all_times)
        else:
            soft = nan
        return nodes.Membership(
            operand,
            members,
            nan=nan and dtype.kind == "f",
            na_matches=any_null if arrow else na,
            soft_null_matches=soft,
        )

    # ---- logic ----

    def _bitwise_logic(self, function: str, args: tuple[nodes.Node, ...]) -> nodes.Node | None:
        if function == "invert":
            return nodes.Not(_truth(args[0]))
        parts = tuple(_truth(arg) for arg in args)
        if function == "bitwise_and":
            return nodes.And(parts)
        if function == "bitwise_or":
            return nodes.Or(parts)
        return nodes.Xor(*parts) if function == "bitwise_xor" else None

    # ---- functions ----

    def _function(self, expr: Call, args: tuple[nodes.Node, ...]) -> nodes.Node:
        kinds = {arg.dtype.kind for arg in args if not isinstance(arg, nodes.ConstantNode)}
        if "S" in kinds and "U" not in kinds:  # text literals take the kind of the column
            args = tuple(_as_bytes(arg) for arg in args)
        function = _FUNCTIONS.get(expr.function) or ufunc_by_name(expr.function)
        if expr.function in ("bitwise_and", "bitwise_or") and len(args) > 2:
            function = _Chained(function)
        samples = [
            arg.value if isinstance(arg, nodes.ConstantNode) else np.empty(0, arg.dtype) for arg in args
        ]
        try:
            with np.errstate(all="ignore"):
                dtype = np.asarray(function(*samples)).dtype
        except TypeError as exc:
            raise QueryError(f"{brief(expr)}: {_undefined(expr.function, args, exc)}") from exc
        except (ValueError, OverflowError) as exc:
            raise QueryError(f"{brief(expr)}: {_first_line(exc)}") from exc
        if dtype.kind not in "biufmMUS":
            raise QueryError(f"{brief(expr)} gives {dtype}, which a predicate cannot use; it takes {_USABLE}")
        return nodes.Function(function, args, dtype, expr, power=expr.function == "power")

    def _clip_operands(self, expr: Call) -> tuple[nodes.Node, ...]:
        return tuple(
            nodes.ConstantNode(None, np.dtype(object))
            if position and isinstance(arg, Constant) and arg.value is None
            else self.value(arg)
            for position, arg in enumerate(expr.args)
        )

    def _cast(self, expr: Cast) -> nodes.Node:
        operand = self.value(expr.operand)
        if expr.dtype.kind not in "biufmMUS":
            raise QueryError(f"{brief(expr)}: cannot cast to {expr.dtype}; a predicate takes {_USABLE}")
        caster = _Caster(expr.dtype)
        try:
            dtype = caster(np.empty(0, operand.dtype)).dtype
        except (TypeError, ValueError) as exc:
            raise QueryError(f"{brief(expr)}: {_first_line(exc)}") from exc
        return nodes.Function(caster, (operand,), dtype, expr)

    def _where(self, expr: Call) -> nodes.Node:
        condition = self.condition(expr.args[0])
        values, other = self.value(expr.args[1]), self.value(expr.args[2])
        mixed_text = values.dtype.kind in "US" and values.dtype.kind != other.dtype.kind
        if mixed_text or not _comparable(values.dtype, other.dtype):
            raise QueryError(
                f"{brief(expr)}: the two branches are {kind_name(values.dtype)} ({values.dtype}) and "
                f"{kind_name(other.dtype)} ({other.dtype}), they must be of one kind"
            )
        samples = [
            branch.value if isinstance(branch, nodes.ConstantNode) else np.empty(0, branch.dtype)
            for branch in (values, other)
        ]
        try:
            dtype = np.where(np.empty(0, np.bool_), *samples).dtype
        except (TypeError, ValueError, OverflowError) as exc:
            raise QueryError(f"{brief(expr)}: {_first_line(exc)}") from exc
        return nodes.Where(condition, values, other, dtype)


class _Caster:
    """``values.astype(dtype)`` as a function of one argument."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    def __call__(self, values: Any) -> Any:
        return np.asarray(values).astype(self.dtype)


class _Chained:
    """A binary ufunc over a flat chain of operands."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, first: Any, *rest: Any) -> Any:
        for value in rest:
            first = self.function(first, value)
        return first


_FUNCTIONS: dict[str, Any] = {"clip": np.clip, "round": np.round}


def _constant(expr: Constant) -> nodes.ConstantNode:
    value: Any = expr.value
    if is_null(value):
        raise QueryError(
            f"the missing value {show(value)} can only be compared or tested with isin, isna or notna"
        )
    if isinstance(value, Instant):
        if value.aware:
            raise QueryError(
                f"{show(value)} has a time zone and can only be compared with a column that has one"
            )
        value = value.value
    return nodes.ConstantNode(value, np.asarray(value).dtype)


def _as_bytes(node: nodes.Node) -> nodes.Node:
    if isinstance(node, nodes.ConstantNode) and isinstance(node.value, str):
        raw = node.value.encode("utf-8", "surrogatepass")
        return nodes.ConstantNode(raw, np.asarray(raw).dtype)
    return node


def _compare_literal(expr: Expr, op: Operator, operand: nodes.Node, literal: Scalar) -> nodes.Node:
    arrow = operand.dtype.kind in "USmM"
    if is_null(literal) or (arrow and is_nan(literal)):
        # Masked numbers and bools know one missing value, NA; to them None is a value that equals nothing. Arrow-backed
        # text and times, and NA everywhere, make the comparison missing.
        present = None if arrow or literal is Null.NA else op == "not_equal"
        return nodes.NullLiteral(operand, present, null_is_true=op == "not_equal")
    try:
        folded = fold(op, literal, operand.dtype, _tz(operand))
    except IncompatibleTypesError as exc:
        raise QueryError(f"{brief(expr)}: {exc}") from None
    if isinstance(folded, Bound):
        return nodes.CompareScalar(operand, folded.op, folded.value)
    return nodes.AlwaysComparison(operand, folded.value, null_is_true=op == "not_equal")


def _truth(node: nodes.Node, expr: Expr | None = None) -> nodes.Node:
    """Return `node` as a condition, with False for missing values that are not NA."""
    if node.dtype == BOOL:
        if isinstance(node, nodes.Condition | nodes.ConstantNode):
            return node
        return nodes.CompareScalar(node, "equal", np.True_)
    if node.dtype.kind in NUMERIC:
        if isinstance(node, nodes.ConstantNode):
            return nodes.ConstantNode(bool(node.value), BOOL)
        return nodes.CompareScalar(node, "not_equal", node.dtype.type(0))
    what = "the operand" if expr is None else brief(expr)
    raise QueryError(
        f"{what} is {kind_name(node.dtype)} ({node.dtype}), not a condition; compare it with something"
    )


def _tz(node: nodes.Node) -> str | None:
    return node.tz if isinstance(node, nodes.ColumnNode) else None


def _aware(node: nodes.Node) -> bool | None:
    """Return whether datetimes have a time zone; None when it cannot be told, or for other values."""
    if node.dtype.kind != "M":
        return None
    if isinstance(node, nodes.ColumnNode):
        return node.tz is not None
    operands: tuple[nodes.Node, ...] = ()
    if isinstance(node, nodes.Function):
        operands = node.args
    elif isinstance(node, nodes.Where):
        operands = (node.values, node.other)
    known = {_aware(operand) for operand in operands} - {None}
    return known.pop() if len(known) == 1 else None


def _comparable(left: np.dtype[Any], right: np.dtype[Any]) -> bool:
    if left.kind in NUMERIC and right.kind in NUMERIC:
        return True
    if left.kind in "US" and right.kind in "US":
        return True
    if left.kind != right.kind:
        return False
    try:
        np.promote_types(left, right)
    except TypeError:  # timedeltas in months against those in seconds
        return False
    return True


_USABLE = "numbers, booleans, text, bytes, datetimes and timedeltas"


def _undefined(function: str, args: tuple[nodes.Node, ...], exc: Exception) -> str:
    """Return a message for operands that a function is not defined for: NumPy's names its own classes."""
    given = [
        "bool" if arg.dtype == BOOL else f"{kind_name(arg.dtype)} ({arg.dtype})"
        for arg in args
        if arg.dtype.kind in "biufmMUS"
    ]
    if "ufunc" not in str(exc) or len(given) != len(args):
        return _first_line(exc)
    advice = ""
    if function.startswith("bitwise_") or function == "invert":
        advice = "; it combines conditions and integers: compare first, with each comparison in parentheses"
    elif any(arg.dtype.kind in "US" for arg in args):
        advice = "; text can be compared and joined, and becomes numbers by col(...).astype('float64')"
    return f"{function.rpartition(':')[2]} is not defined for {' and '.join(given)}{advice}"


def _first_line(exc: Exception) -> str:
    return str(exc).splitlines()[0] if str(exc) else type(exc).__name__
