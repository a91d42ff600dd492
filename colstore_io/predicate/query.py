"""Predicates from text and from lists of tuples.

`parse_query` reads the query grammar of cstore-behaviour.md 8 from Python's own syntax tree and evaluates nothing:
every node it does not know is refused, with the place in the text. `from_dnf` reads the ``filters=`` lists of
``read_parquet``.
"""

from __future__ import annotations

import ast
import difflib
import io
import itertools
import operator
import re
import tokenize
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from ..arguments import check_mapping
from ..errors import QueryError
from .expression import MAX_DEPTH, Column, Constant, Expr, IsIn, IsNull, call, col, lift, members_of
from .literals import Scalar, as_scalar, is_nan, is_null, is_number

__all__ = ["MAX_QUERY_LENGTH", "from_dnf", "parse_query"]

MAX_QUERY_LENGTH = 1 << 16
"""Longest query text in characters; longer lists belong into a parameter."""

MAX_POWER_BITS = 4096
"""Largest integer that constant arithmetic in a query may produce."""

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "power",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.USub: "negative",
    ast.UAdd: "positive",
    ast.Invert: "invert",
    ast.Not: "logical_not",
    ast.And: "logical_and",
    ast.Or: "logical_or",
}

_REFUSED: dict[type[ast.AST], str] = {
    ast.Call: "a call",
    ast.Attribute: "an attribute",
    ast.Subscript: "an index",
    ast.Lambda: "a lambda",
    ast.NamedExpr: "an assignment",
    ast.IfExp: "'if' ... 'else'",
    ast.JoinedStr: "an f-string",
    ast.Set: "a set",
    ast.Dict: "a dictionary",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.Await: "'await'",
    ast.Yield: "'yield'",
    ast.YieldFrom: "'yield'",
    ast.Starred: "unpacking",
}
"""What users call the parts of Python that a query does not have."""

_SIGNS: dict[type[ast.AST], str] = {
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.MatMult: "@",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.Not: "not",
    ast.USub: "-",
    ast.UAdd: "+",
}
"""How operators are written, for messages."""

_FOREIGN = (
    (r"&&", "write 'and' for '&&'"),
    (r"\|\|", "write 'or' for '||'"),
    (r"===", "write '==' for '==='"),
    (r"<>", "write '!=' for '<>'"),
    (r"(?<![=!<>])=(?!=)", "write '==' to compare"),
    (r"!(?!=)", "write 'not' for '!'"),
    (r"\b(AND|OR|NOT|IN)\b", "write 'and', 'or', 'not' and 'in' in small letters"),
    (r"(?i)\bbetween\b", "write low <= x <= high for 'between'"),
    (r"(?i)\bi?like\b", "there are no patterns of text; compare with ==, in, < and >"),
    (r"(?i)\bis\b", "for missing values use where(col('x').isna())"),
)
"""What other languages write, as regular expressions, and what a query has for it."""

_ELSEWHERE = {
    **dict.fromkeys(("null", "nan", "na", "nat", "nil"), "for missing values use where(col('x').isna())"),
    **dict.fromkeys(("true", "false"), "write True and False with a capital letter"),
    "inf": "pass infinity in params=",
}
"""What a name in small letters may be meant for, if it is no column."""


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}
"""What constants in the text are computed with, once the types are known to be harmless."""


def parse_query(text: str, *, columns: Sequence[str], params: Mapping[str, object] | None = None) -> Expr:
    """Parse a query text into an expression. Nothing is evaluated.

    Parameters
    ----------
    text : str
        Comparisons (chained too), ``and or not``, ``& | ^ ~``, ``+ - * / // % **``, ``in`` and ``not in`` over column
        names, ``@name`` parameters, numbers, strings, ``True``, ``False``, ``None`` and lists or tuples of them.
        Bitwise operators bind tighter than comparisons: parenthesise.
    columns : sequence of str
        The names that may stand in the text. One that is no Python name stands between backticks, as in pandas.
    params : mapping of str to object, optional
        Values of the ``@name`` parameters: scalars, or, right of ``in``, lists, tuples, sets and 1-D arrays.

    Returns
    -------
    Expr
        To be bound with `predicate.bind`.

    Raises
    ------
    QueryError
        For everything outside the grammar, unknown names, undefined parameters, and text without a column. The
        message shows the text and the position.
    TypeError
        If `text` is no string, or a parameter is an array where a scalar belongs.

    Examples
    --------
    >>> parse_query("0 < x <= @top and name in ['a', 'b']", columns=["x", "name"], params={"top": 5})
    np.logical_and(np.logical_and(col('x') > 0, col('x') <= 5), col('name').isin(['a', 'b']))
    """
    if not isinstance(text, str):
        raise TypeError(f"a query must be text, got {type(text).__name__}")
    return _Parser(text, columns, check_mapping("params", params or {})).parse()


class _Parser:
    def __init__(self, text: str, columns: Sequence[str], params: Mapping[str, object]) -> None:
        self._text = text
        self._columns = set(columns)
        self._params = params
        self._encoded = b""  # of what Python parses; ast counts in UTF-8 bytes
        self._mark = ""  # stands for the @ of parameters in the text that Python parses
        self._quoted: dict[int, str] = {}  # names between backticks, by their position
        self._filler = ""  # what stands for each character of these in the text that Python parses
        self._offset = len(text) - len(text.lstrip())

    def parse(self) -> Expr:
        if len(self._text) > MAX_QUERY_LENGTH:
            raise QueryError(
                f"the query has {len(self._text)} characters, at most {MAX_QUERY_LENGTH} are allowed; pass long lists "
                "as a parameter: x in @values"
            )
        source = self._text.strip()
        try:
            source = self._mark_parameters(self._mark_quoted(source))
            tree = ast.parse(source, mode="eval")
        except (tokenize.TokenError, SyntaxError) as exc:
            reason, position = self._describe(exc)
            raise self._error("could not parse query", reason, position) from None
        except (ValueError, MemoryError, RecursionError, OverflowError) as exc:
            raise self._error("could not parse query", str(exc) or "too deeply nested", None) from None
        self._encoded = source.encode("utf-8", "surrogatepass")
        expr = self._convert(tree.body, 1)
        if not expr.columns:
            raise self._error("query", "must reference at least one column of the table", None)
        return expr

    # ---- text ----

    def _mark_quoted(self, source: str) -> str:
        """Replace each name between backticks by a Python name of equal length; positions stay the same."""
        if "`" not in source:
            return source
        self._filler = next(chr(code) for code in range(0x10330, 0x10340) if chr(code) not in source)
        characters = list(source)
        at, quote = 0, ""
        while at < len(source):
            letter = source[at]
            if quote:
                if letter == "\\":
                    at += 1
                elif letter == quote:
                    quote = ""
            elif letter in "'\"":
                quote = letter
            elif letter == "`":
                end = source.find("`", at + 1)
                if end < 0:
                    raise SyntaxError("a backtick is not closed", ("", 1, at + 1, source))
                self._quoted[at] = source[at + 1 : end]
                characters[at : end + 1] = self._filler * (end + 1 - at)
                at = end
            at += 1
        return "".join(characters)

    def _mark_parameters(self, source: str) -> str:
        """Replace the ``@`` of each ``@name`` by a letter that the text does not contain; positions stay the same."""
        if "\n" in source or "\r" in source:
            raise SyntaxError("a query must be one line; put spaces in the place of line breaks")
        if "@" not in source:
            return source
        self._mark = next(chr(code) for code in range(0x10400, 0x10450) if chr(code) not in source)
        characters = list(source)
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        for token, following in itertools.pairwise(tokens):
            adjacent = token.end == following.start and following.type == tokenize.NAME
            if token.type == tokenize.OP and token.string == "@" and adjacent:
                characters[token.start[1]] = self._mark
        return "".join(characters)

    def _describe(self, exc: Exception) -> tuple[str, int | None]:
        if isinstance(exc, SyntaxError):
            column = exc.offset
            return self._hint(exc.msg or "invalid syntax"), None if column is None else max(column - 1, 0)
        return str(exc.args[0]), None

    def _hint(self, reason: str) -> str:
        """Return what Python says of the text with what a query has in its place."""
        if not self._text.strip():
            return "the text is empty; a query is a condition such as 0 < x <= 3"
        if not reason.startswith("invalid syntax"):
            return reason
        bare = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "''", self._text)
        for pattern, advice in _FOREIGN:
            if re.search(pattern, bare):
                return f"invalid syntax; {advice}"
        return "invalid syntax; a query is a condition such as 0 < x <= 3 and name in ['a', 'b']"

    def _position(self, node: ast.AST) -> int:
        """Return the position of a node in characters."""
        return len(self._encoded[: getattr(node, "col_offset", 0)].decode("utf-8", "surrogatepass"))

    def _error(self, what: str, reason: str, position: int | None) -> QueryError:
        text = self._text
        if self._mark:
            reason = reason.replace(self._mark, "@")
        message = f"{what} {_shorten(text)}: {reason}"
        if position is not None:
            position = min(position + self._offset, len(text))
            first = max(0, position - 40)
            window = text[first : position + 40].replace("\n", " ").replace("\r", " ").replace("\t", " ")
            message += f" (at position {position})\n  {window}\n  {' ' * (position - first)}^"
        return QueryError(message)

    def _error_at(self, node: ast.AST, reason: str) -> QueryError:
        return self._error("in query", reason, self._position(node))

    # ---- tree ----

    def _convert(self, node: ast.expr, depth: int) -> Expr:
        if depth > MAX_DEPTH:
            raise self._error_at(
                node,
                f"nested more than {MAX_DEPTH} levels deep; leave out parentheses, or use 'in' with a list",
            )
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Constant):
            return self._literal(node)
        if isinstance(node, ast.BoolOp):
            return call(
                _OPERATORS[type(node.op)], *(self._convert(value, depth + 1) for value in node.values)
            )
        if isinstance(node, ast.UnaryOp):
            return self._unary(node, self._convert(node.operand, depth + 1))
        if isinstance(node, ast.BinOp):
            if type(node.op) not in _OPERATORS:
                raise self._error_at(
                    node,
                    f"the operator {_SIGNS.get(type(node.op), '')} is not supported; there are + - * / // % ** & | ^ "
                    "~, comparisons, 'in', 'and', 'or' and 'not'",
                )
            return self._binary(node, depth)
        if isinstance(node, ast.Compare):
            return self._comparison(node, depth)
        if isinstance(node, ast.List | ast.Tuple):
            raise self._error_at(node, "a list is allowed only right of 'in' and 'not in': x in [1, 2]")
        end = len(self._encoded[: node.end_col_offset].decode("utf-8", "surrogatepass"))
        written = " ".join(self._text[self._position(node) + self._offset : end + self._offset].split())
        what = _REFUSED.get(type(node), "an expression")
        shown = written if len(written) <= 60 else written[:57] + "..."
        raise self._error_at(
            node,
            f"unsupported expression element, {what} is not supported: {shown}; a query is made of "
            "columns, constants, arithmetic, comparisons, 'in', 'and', 'or' and 'not'. Compute other values before and "
            "pass them in params=, or use where() with col(), which takes NumPy's functions",
        )

    def _spelling(self, node: ast.Name) -> str:
        """Return the name as written: Python normalises identifiers (NFKC), column names are not normalised."""
        return self._encoded[node.col_offset : node.end_col_offset].decode("utf-8", "surrogatepass")

    def _parameter(self, node: ast.expr) -> tuple[bool, object]:
        """Return whether `node` is a parameter, and its value."""
        if not isinstance(node, ast.Name) or not self._mark:
            return False, None
        name = self._spelling(node)
        if not name.startswith(self._mark):
            return False, None
        name = name[1:]
        if name not in self._params:
            raise self._error_at(node, f"undefined parameter @{name}; pass params={{{name!r}: ...}}")
        return True, self._params[name]

    def _name(self, node: ast.Name) -> Expr:
        is_parameter, value = self._parameter(node)
        if is_parameter:
            if isinstance(value, list | tuple | set | frozenset):
                name = self._spelling(node)[1:]
                raise TypeError(
                    f"parameter @{name} is a {type(value).__name__}, which stands only right of 'in'; here a number, "
                    "text, date or time is needed"
                )
            return lift(value)
        spelling = self._spelling(node)
        quoted = self._quoted.get(self._position(node)) if self._quoted else None
        if quoted is not None and len(quoted) + 2 == len(spelling):
            spelling = quoted
        elif self._filler and self._filler in spelling:
            raise self._error_at(node, "a name between backticks stands alone")
        for name in (spelling, node.id):
            if name in self._columns:
                return Column(name)
        close = difflib.get_close_matches(spelling, self._columns, n=3)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        if not close and spelling.lower() in _ELSEWHERE:
            hint = f"; {_ELSEWHERE[spelling.lower()]}"
        raise self._error_at(
            node,
            f"unknown name {spelling!r}{hint} (columns are written as they are or between backticks, parameters as "
            "@name)",
        )

    def _literal(self, node: ast.Constant) -> Constant:
        if node.value is None or isinstance(node.value, bool | int | float | str | bytes):
            return Constant(node.value)
        written = "..." if node.value is ... else repr(node.value)
        raise self._error_at(
            node, f"the constant {written} is not supported; use a number, text, bytes, True, False or None"
        )

    def _unary(self, node: ast.UnaryOp, operand: Expr) -> Expr:
        function = _OPERATORS[type(node.op)]
        if not isinstance(operand, Constant):
            return call(function, operand)
        value = operand.value
        if function == "logical_not" and isinstance(value, bool):
            return Constant(not value)
        if not _is_plain_number(value) or function == "logical_not":
            takes = "True and False" if function == "logical_not" else "numbers"
            raise self._error_at(
                node,
                f"cannot apply {_SIGNS.get(type(node.op), '~')} to the constant {value!r}; it takes {takes}",
            )
        number = cast("Any", value)
        if function == "invert":
            if isinstance(number, bool | float):
                raise self._error_at(
                    node,
                    f"cannot apply ~ to the constant {value!r}; it takes integers, and conditions of columns",
                )
            return Constant(~number)
        return Constant(-number if function == "negative" else +number)

    def _binary(self, node: ast.BinOp, depth: int) -> Expr:
        left, right = self._convert(node.left, depth + 1), self._convert(node.right, depth + 1)
        function = _OPERATORS[type(node.op)]
        if not (isinstance(left, Constant) and isinstance(right, Constant)):
            return call(function, left, right)
        if not (_is_plain_number(left.value) and _is_plain_number(right.value)):
            raise self._error_at(
                node,
                f"arithmetic between the constants {left.value!r} and {right.value!r} is not supported, only between "
                "numbers; write the result",
            )
        try:
            return Constant(_fold_constants(function, left.value, right.value))
        except TypeError:
            raise self._error_at(
                node,
                f"cannot compute the constant: & | ^ take integers, got {left.value!r} and {right.value!r}",
            ) from None
        except (ArithmeticError, ValueError) as exc:
            raise self._error_at(node, f"cannot compute the constant: {exc}; write its value") from exc

    def _comparison(self, node: ast.Compare, depth: int) -> Expr:
        parts: list[Expr] = []
        left_node = node.left
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, ast.In | ast.NotIn):
                parts.append(self._membership(left_node, op, right_node, depth))
            elif type(op) in _OPERATORS:
                left, right = self._convert(left_node, depth + 1), self._convert(right_node, depth + 1)
                if isinstance(left, Constant) and isinstance(right, Constant):
                    parts.append(self._constant_comparison(left_node, type(op), left.value, right.value))
                else:
                    parts.append(call(_OPERATORS[type(op)], left, right))
            else:
                raise self._error_at(
                    node,
                    f"the comparison '{_SIGNS[type(op)]}' is not supported; use == or !=, and for missing values "
                    "where(col('x').isna()) or notna()",
                )
            left_node = right_node
        return parts[0] if len(parts) == 1 else call("logical_and", *parts)

    def _constant_comparison(
        self, node: ast.expr, op: type[ast.cmpop], left: Scalar, right: Scalar
    ) -> Constant:
        """Compute a link of a chain that has no column: the ``4 < 5`` of ``x < 4 < 5``."""
        alike = (_is_plain_number(left) and _is_plain_number(right)) or (
            isinstance(left, str | bytes) and type(left) is type(right)
        )
        if not alike:
            raise self._error_at(
                node,
                f"cannot compare the constants {left!r} and {right!r}; a chain compares values of one kind",
            )
        return Constant(bool(_ARITHMETIC[_OPERATORS[op]](left, right)))

    def _membership(self, left: ast.expr, op: ast.cmpop, right: ast.expr, depth: int) -> Expr:
        if isinstance(left, ast.List | ast.Tuple):
            raise self._error_at(left, "the left side of 'in' must reference a column: x in [1, 2]")
        operand = self._convert(left, depth + 1)
        if not operand.columns:
            raise self._error_at(left, "the left side of 'in' must reference a column: x in [1, 2]")
        is_parameter, value = self._parameter(right)
        members: Iterable[Scalar]
        if is_parameter:
            members = members_of(value)
        elif isinstance(right, ast.List | ast.Tuple):
            members = [self._member(element, depth + 1) for element in right.elts]
        else:
            members = [self._member(right, depth + 1)]
        found = IsIn(operand, tuple(members))
        return call("logical_not", found) if isinstance(op, ast.NotIn) else found

    def _member(self, node: ast.expr, depth: int) -> Scalar:
        if isinstance(node, ast.List | ast.Tuple):
            raise self._error_at(node, "the list right of 'in' must hold constants, not lists: x in [1, 2]")
        element = self._convert(node, depth)
        if not isinstance(element, Constant):
            raise self._error_at(
                node, "the list right of 'in' must hold constants, not columns; compare columns with =="
            )
        return element.value


def _is_plain_number(value: object) -> bool:
    return is_number(cast("Scalar", value))


def _fold_constants(function: str, left: Any, right: Any) -> Scalar:
    """Compute ``left OP right`` of two numbers, without letting a power grow beyond `MAX_POWER_BITS`."""
    if function == "power" and isinstance(left, int) and isinstance(right, int):
        grows = abs(left) > 1 and right > 0
        if grows and left.bit_length() * right > MAX_POWER_BITS:
            raise ValueError(f"the power has more than {MAX_POWER_BITS} bits")
    with np.errstate(all="raise"):
        result = _ARITHMETIC[function](left, right)
    return as_scalar(result)


def _shorten(text: str) -> str:
    return repr(text) if len(text) <= 120 else f"{text[:100]!r}... ({len(text)} characters)"


# ---- filters in disjunctive normal form ------------------------------------------------------------------------------

_DNF_COMPARISONS = {
    "=": "equal",
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def from_dnf(filters: object) -> Expr:
    """Return a ``filters=`` argument as an expression.

    Parameters
    ----------
    filters : list of tuples, list of lists of tuples, one tuple, or Expr
        ``(column, op, value)`` with op one of ``= == != < <= > >= in "not in" is "is not"``. Tuples in one list are
        combined with "and", the inner lists of a list of lists with "or". Tuples may stand for lists. An `Expr` is
        returned as it is.

    Returns
    -------
    Expr
        Missing values follow the same rules as everywhere; ``is`` and ``is not`` take None, NaN or NaT only.

    Raises
    ------
    QueryError
        If the structure or an operator is something else, or a list is empty.
    """
    if isinstance(filters, Expr):
        return filters
    if _is_condition(filters):
        return _condition(cast("Sequence[object]", filters))
    groups = _as_list(filters)
    if all(_is_condition(group) for group in groups):
        return _join("bitwise_and", [_condition(cast("Sequence[object]", group)) for group in groups])
    alternatives = []
    for group in groups:
        if isinstance(group, Expr):
            alternatives.append(group)
            continue
        conditions = _as_list(group)
        for condition in conditions:
            if not _is_condition(condition):
                raise QueryError(f"a filter must be a tuple (column, op, value), got {condition!r}")
        alternatives.append(
            _join("bitwise_and", [_condition(cast("Sequence[object]", c)) for c in conditions])
        )
    return _join("bitwise_or", alternatives)


def _is_condition(value: object) -> bool:
    return (
        isinstance(value, tuple | list)
        and len(value) == 3
        and isinstance(value[0], str)
        and isinstance(value[1], str)
    )


def _as_list(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple) or not value:
        raise QueryError(
            "filters must be a non-empty list of (column, op, value) tuples, or a list of such lists, or an expression "
            f"of colstore_io.col such as col('x') > 3, got {value!r}"
        )
    return value


def _join(function: str, parts: list[Expr]) -> Expr:
    return parts[0] if len(parts) == 1 else call(function, *parts)


def _condition(condition: Sequence[object]) -> Expr:
    name, op, value = cast("str", condition[0]), cast("str", condition[1]), condition[2]
    operand = col(name)
    op = " ".join(op.lower().split())
    if op in _DNF_COMPARISONS:
        return call(_DNF_COMPARISONS[op], operand, value)
    if op in ("in", "not in"):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise QueryError(f"the value of a filter with {op!r} must be a list, got {value!r}")
        found = operand.isin(value)
        return call("invert", found) if op == "not in" else found
    if op in ("is", "is not"):
        scalar = as_scalar(value)
        if not (is_null(scalar) or is_nan(scalar)):
            raise QueryError(f"a filter with {op!r} takes None, NaN or NaT, got {value!r}; use '==' or '!='")
        return IsNull(operand) if op == "is" else operand.notna()
    raise QueryError(
        f"unknown filter operator {op!r}; use one of {', '.join(_DNF_COMPARISONS)}, in, not in, is, is not"
    )
