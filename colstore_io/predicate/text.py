"""Expressions as text: Python source that rebuilds them, and query text where its grammar suffices."""

from __future__ import annotations

import keyword
import math

import numpy as np

from .expression import Call, Cast, Column, Constant, Expr, IsIn, IsNull
from .literals import Instant, Null, Scalar

__all__ = ["brief", "to_python", "to_query"]

COMPARISONS: dict[str, str] = {
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
}
BINARY: dict[str, str] = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "power": "**",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
}
UNARY: dict[str, str] = {"negative": "-", "positive": "+", "invert": "~"}
LOGICAL: dict[str, str] = {"logical_and": "and", "logical_or": "or"}


def to_python(expr: Expr) -> str:
    """Return Python source that rebuilds `expr`, given ``col`` and ``np`` (and ``pd`` for ``pd.NA``)."""
    if isinstance(expr, Column):
        return f"col({expr.name!r})"
    if isinstance(expr, Constant):
        return _python_literal(expr.value)
    if isinstance(expr, IsIn):
        return f"{_python_operand(expr.operand)}.isin([{', '.join(map(_python_literal, expr.members))}])"
    if isinstance(expr, IsNull):
        return f"{_python_operand(expr.operand)}.isna()"
    if isinstance(expr, Cast):
        return f"{_python_operand(expr.operand)}.astype({expr.dtype.str!r})"
    assert isinstance(expr, Call)
    function, args = expr.function, expr.args
    if function in UNARY:
        return f"{UNARY[function]}{_python_operand(args[0])}"
    operator = COMPARISONS.get(function) or BINARY.get(function)
    if operator is not None and any(not isinstance(arg, Constant) for arg in args[:2]):
        return f" {operator} ".join(map(_python_operand, args))
    if function in LOGICAL:
        text = to_python(args[0])
        for arg in args[1:]:
            text = f"np.{function}({text}, {to_python(arg)})"
        return text
    return f"np.{function.replace(':', '.')}({', '.join(map(to_python, args))})"


def _python_operand(expr: Expr) -> str:
    text = to_python(expr)
    plain = isinstance(expr, Column | IsIn | IsNull | Cast) or (isinstance(expr, Constant) and text[0] != "-")
    return text if plain or text.startswith("np.") else f"({text})"


def _python_literal(value: Scalar) -> str:
    if isinstance(value, Null):
        return "pd.NA" if value is Null.NA else "np.datetime64('NaT')"
    if isinstance(
        value, Instant
    ):  # text with a zone is the same instant; without one the same wall-clock time
        return repr(f"{value.value}Z") if value.aware else repr(str(value.value))
    if isinstance(value, np.datetime64 | np.timedelta64):
        unit, count = np.datetime_data(value.dtype)
        step = unit if count == 1 else f"{count}{unit}"
        inner = str(value) if isinstance(value, np.datetime64) else str(int(value.astype(np.int64)))
        return (
            f"np.{type(value).__name__}({inner!r}, {step!r})"
            if isinstance(value, np.datetime64)
            else (f"np.timedelta64({inner}, {step!r})")
        )
    if isinstance(value, np.generic):
        return (
            f"np.{value.dtype.name}({str(value)!r})"
            if value.dtype.kind == "f"
            else f"np.{value.dtype.name}({value})"
        )
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)


def to_query(expr: Expr) -> str | None:
    """Return the text that `query.parse_query` reads as `expr`, or None when the grammar cannot say it."""
    if isinstance(expr, Column):
        return expr.name if expr.name.isidentifier() and not keyword.iskeyword(expr.name) else None
    if isinstance(expr, Constant):
        return _query_literal(expr.value)
    if isinstance(expr, IsIn):
        return _query_membership(expr, "in")
    if not isinstance(expr, Call):
        return None
    function, args = expr.function, expr.args
    if function == "logical_not":
        if isinstance(args[0], IsIn):
            return _query_membership(args[0], "not in")
        text = _query_operand(args[0])
        return None if text is None else f"not {text}"
    if function in UNARY:
        text = _query_operand(args[0])
        return None if text is None else f"{UNARY[function]}{text}"
    operator = COMPARISONS.get(function) or BINARY.get(function) or LOGICAL.get(function)
    if operator is None:
        return None
    texts = [_query_operand(arg, comparison=function in COMPARISONS) for arg in args]
    return None if None in texts else f" {operator} ".join(text for text in texts if text is not None)


def _query_membership(expr: IsIn, operator: str) -> str | None:
    left = _query_operand(expr.operand)
    members = [_query_literal(member) for member in expr.members]
    if left is None or None in members:
        return None
    return f"{left} {operator} [{', '.join(member for member in members if member is not None)}]"


def _query_operand(expr: Expr, *, comparison: bool = False) -> str | None:
    text = to_query(expr)
    if text is None or isinstance(expr, Column):
        return text
    if isinstance(expr, Constant):
        return text if comparison or text[0] != "-" else f"({text})"
    return f"({text})"


def _query_literal(value: Scalar) -> str | None:
    if value is None or isinstance(value, bool | int | str | bytes):
        return repr(value)
    if isinstance(value, float) and not isinstance(value, np.generic) and math.isfinite(value):
        return repr(value)
    return None


def brief(expr: Expr, limit: int = 200) -> str:
    """Return `expr` as text for a message, cut to `limit` characters."""
    text = str(expr)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
