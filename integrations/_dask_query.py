"""The text of ``df.query("...")`` as one of our conditions, where pandas and we mean the same by it.

pandas parses such text as Python, after `&` and `|` have become `and` and `or`, so that comparisons bind more tightly
than these. The same is done here; nothing is evaluated. None is always right: the query then stays with Dask.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Mapping
from typing import Any

from colstore_io.fields import Field
from colstore_io.predicate import Expr

from ._dask_predicate import SWAPPED, Translator

__all__ = ["condition_of_query"]

_OPERATIONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
_LOCAL = "__colstore_local_"


class _Untranslatable(Exception):
    """A part of the text that stays with pandas."""


def condition_of_query(text: Any, kwargs: Any, translator: Translator) -> Expr | None:
    """Return the condition of a query, None if a part of it has no translation.

    Parameters
    ----------
    text : str
    kwargs : mapping
        Of ``DataFrame.query``; only ``local_dict``, whose values ``@name`` stands for, is understood.
    translator : Translator
        Of the frame that is asked.
    """
    if not isinstance(text, str) or not isinstance(kwargs, Mapping) or set(kwargs) - {"local_dict"}:
        return None
    try:
        tree = ast.parse(_as_python(text), mode="eval")
        found = _Reading(translator, kwargs.get("local_dict") or {}).condition(tree.body)
    except (_Untranslatable, SyntaxError, ValueError, RecursionError, tokenize.TokenError):
        return None
    return translator.checked(found)


def _as_python(text: str) -> str:
    words: list[tuple[int, str]] = []
    local = False
    for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline):
        kind, word = token.type, token.string
        if word in ("&", "|") and kind == tokenize.OP:
            kind, word = tokenize.NAME, "and" if word == "&" else "or"
        elif word == "`" or word in ("=", ":=", ";", "^"):
            raise _Untranslatable
        elif word == "@":
            local = True
            continue
        if local:
            if kind != tokenize.NAME:
                raise _Untranslatable
            word, local = _LOCAL + word, False
        words.append((kind, word))
    return tokenize.untokenize(words).strip()


class _Reading:
    def __init__(self, translator: Translator, local: Mapping[str, Any]) -> None:
        self._translator = translator
        self._local = local

    def condition(self, node: ast.AST) -> Expr:
        if isinstance(node, ast.BoolOp):
            parts = [self.condition(value) for value in node.values]
            found = parts[0]
            for part in parts[1:]:
                found = found & part if isinstance(node.op, ast.And) else found | part
            return found
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
            return ~self.condition(node.operand)
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            pairs = [
                self._pair(left, operation, right)
                for left, operation, right in zip(sides[:-1], node.ops, sides[1:], strict=True)
            ]
            found = pairs[0]
            for pair in pairs[1:]:
                found = found & pair
            return found
        if isinstance(node, ast.Call):
            return self._method(node)
        return self._known(self._translator.flag(self._field(node)))

    def _pair(self, left: ast.AST, operation: ast.cmpop, right: ast.AST) -> Expr:
        if isinstance(operation, ast.In | ast.NotIn):
            found = self._known(self._translator.member(self._field(left), self._values(right)))
            return ~found if isinstance(operation, ast.NotIn) else found
        name = _OPERATIONS.get(type(operation))
        if name is None:
            raise _Untranslatable
        if not self._is_field(left):
            left, name, right = right, SWAPPED[name], left
        field, value = self._field(left), self._value(right)
        if isinstance(value, str) and name in ("equal", "not_equal"):
            # pandas makes a membership of it, which no value that is missing has, and no time.
            found = self._known(self._translator.member(field, [value]))
            return ~found if name == "not_equal" else found
        return self._known(self._translator.compared(field, name, value))

    def _method(self, node: ast.Call) -> Expr:
        """Return the condition of ``x.isna()`` and its like, and of ``x.isin([...])``."""
        function = node.func
        if not isinstance(function, ast.Attribute) or node.keywords:
            raise _Untranslatable
        field = self._field(function.value)
        if function.attr in ("isna", "isnull") and not node.args:
            return self._translator.missing(field)
        if function.attr in ("notna", "notnull") and not node.args:
            return ~self._translator.missing(field)
        if function.attr == "isin" and len(node.args) == 1:
            return self._known(self._translator.member(field, self._values(node.args[0])))
        raise _Untranslatable

    def _is_field(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and not node.id.startswith(_LOCAL)

    def _field(self, node: ast.AST) -> Field:
        field = self._translator.field(node.id) if isinstance(node, ast.Name) else None
        if field is None:
            raise _Untranslatable
        return field

    def _value(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and type(node.value) in (bool, int, float, str):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self._value(node.operand)
            if type(value) in (int, float):
                return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.Name) and node.id.startswith(_LOCAL):
            name = node.id.removeprefix(_LOCAL)
            if name in self._local and type(self._local[name]) in (bool, int, float, str):
                return self._local[name]
        raise _Untranslatable

    def _values(self, node: ast.AST) -> list[Any]:
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [self._value(element) for element in node.elts]
        if isinstance(node, ast.Name) and node.id.startswith(_LOCAL):
            values = self._local.get(node.id.removeprefix(_LOCAL))
            if isinstance(values, list | tuple) and all(type(v) in (bool, int, float, str) for v in values):
                return list(values)
        raise _Untranslatable

    @staticmethod
    def _known(found: Expr | None) -> Expr:
        if found is None:
            raise _Untranslatable
        return found
