"""Which rows match, and which segments can.

`bind` checks an expression against a schema, once, and gives a `Predicate`: ``bound`` has both, ``expression`` what
users build, ``query`` the text form.

All of it is imported with the first expression: most tables are opened without one. Code that a plain read passes
through asks `is_expression` and `is_predicate`, which import nothing: without their modules, no value is one.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from .arrowtext import ArrowText
    from .bound import BoundExpression, ColumnRange, Predicate, bind, bind_value
    from .expression import Expr, col
    from .query import parse_query
    from .statistics import ColumnStatistics
    from .values import ColumnValues

__all__ = [
    "ArrowText",
    "BoundExpression",
    "ColumnRange",
    "ColumnStatistics",
    "ColumnValues",
    "Expr",
    "Predicate",
    "bind",
    "bind_value",
    "col",
    "is_expression",
    "is_predicate",
    "parse_query",
]

_EXPRESSION, _BOUND = f"{__name__}.expression", f"{__name__}.bound"

_HOMES = {
    "ArrowText": "arrowtext",
    "ColumnStatistics": "statistics",
    "ColumnValues": "values",
    "Expr": "expression",
    "col": "expression",
    "parse_query": "query",
}


def is_expression(value: object) -> TypeGuard[Expr]:
    """Whether `value` is an `Expr`."""
    kind = getattr(sys.modules.get(_EXPRESSION), "Expr", None)  # another thread may be importing it just now
    return kind is not None and isinstance(value, kind)


def is_predicate(value: object) -> TypeGuard[Predicate]:
    """Whether `value` is a `Predicate`."""
    kind = getattr(sys.modules.get(_BOUND), "Predicate", None)
    return kind is not None and isinstance(value, kind)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES.get(name, 'bound')}", __name__), name)
    globals()[name] = value
    return value
