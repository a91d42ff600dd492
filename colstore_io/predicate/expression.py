"""Column expressions: an immutable tree that operators build and nothing evaluates here.

`col("x") > 3` makes a tree; `predicate.bind` resolves its names against a schema. Every elementwise operation is one
`Call` whose name is that of the NumPy ufunc, so ``col("x") + 1``, ``np.add(col("x"), 1)`` and the text ``x + 1`` are
the same tree. Trees compare with `Expr.equals`, because ``==`` builds a comparison.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import numpy as np

from ..errors import QueryError
from .literals import Scalar, as_scalar, scalar_key

__all__ = [
    "MAX_DEPTH",
    "MAX_NODES",
    "Call",
    "Cast",
    "Column",
    "Constant",
    "Expr",
    "IsIn",
    "IsNull",
    "call",
    "col",
]

MAX_DEPTH = 100
"""Deepest tree; and/or chains are flat and count once. Keeps every recursive walk below Python's own limit."""

MAX_NODES = 100_000
"""Largest tree. An expression that doubles itself in a loop is stopped here and not by the memory of the machine."""

ASSOCIATIVE = frozenset({"logical_and", "logical_or", "bitwise_and", "bitwise_or"})
COMPARISONS = {
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
    "equal": "equal",
    "not_equal": "not_equal",
}
"""The comparisons, each with its name after the sides are swapped."""

Inclusive = Literal["both", "neither", "left", "right"]


class _TruthValueError(QueryError, TypeError):
    """A column expression was used where Python needs True or False."""


class Expr:
    """A value or condition of each row, not computed yet.

    Supports ``+ - * / // % **``, unary ``- + ~`` and `abs`, comparisons, ``& | ^``, one-output elementwise NumPy
    ufuncs, ``np.where``, ``np.clip``, ``np.round``, and the methods below. It has no truth value: combine conditions
    with ``& | ~`` and parentheses. Immutable; hashable by structure; pickles; deterministic under dask's tokenize.
    """

    __slots__ = ()
    depth: int
    size: int

    # ---- structure ----

    def children(self) -> tuple[Expr, ...]:
        """Return the operands."""
        return ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns used, each once, in order of appearance."""
        names: dict[str, None] = {}
        stack: list[Expr] = [self]
        while stack:
            node = stack.pop()
            if isinstance(node, Column):
                names.setdefault(node.name)
            stack.extend(reversed(node.children()))
        return tuple(names)

    def _label(self) -> str:
        raise NotImplementedError

    def token(self) -> str:
        """Return a hexadecimal digest of the structure, the same in every process."""
        digest = hashlib.blake2b(self._label().encode("utf-8", "surrogatepass"), digest_size=16)
        for child in self.children():
            digest.update(child.token().encode())
        return digest.hexdigest()

    def equals(self, other: object) -> bool:
        """Return True when `other` is the same expression (``==`` would build a comparison)."""
        return isinstance(other, Expr) and self.token() == other.token()

    def __hash__(self) -> int:
        return hash(self.token())

    def __dask_tokenize__(self) -> tuple[str, str]:
        return ("colstore_io.Expr", self.token())

    def __repr__(self) -> str:
        from .text import to_python

        return to_python(self)

    def __str__(self) -> str:
        from .text import to_query

        text = to_query(self)
        return repr(self) if text is None else text

    # ---- what an expression is not ----

    def __bool__(self) -> NoReturn:
        raise _TruthValueError(
            "a column expression has no truth value; combine conditions with & | ~ and parentheses (not with "
            "and / or / not or a chained comparison), and apply them with ds[expr] or ds.where(expr)"
        )

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a column expression cannot be iterated; it holds no data")

    def __contains__(self, value: object) -> NoReturn:
        raise TypeError("a column expression holds no data to search in; use col(...).isin([...])")

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError("a column expression holds no data; read it with ds.where(expr) or ds[expr]")

    # ---- operators ----

    def __add__(self, other: object) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: object) -> Expr:
        return call("add", other, self)

    def __sub__(self, other: object) -> Expr:
        return call("subtract", self, other)

    def __rsub__(self, other: object) -> Expr:
        return call("subtract", other, self)

    def __mul__(self, other: object) -> Expr:
        return call("multiply", self, other)

    def __rmul__(self, other: object) -> Expr:
        return call("multiply", other, self)

    def __truediv__(self, other: object) -> Expr:
        return call("divide", self, other)

    def __rtruediv__(self, other: object) -> Expr:
        return call("divide", other, self)

    def __floordiv__(self, other: object) -> Expr:
        return call("floor_divide", self, other)

    def __rfloordiv__(self, other: object) -> Expr:
        return call("floor_divide", other, self)

    def __mod__(self, other: object) -> Expr:
        return call("remainder", self, other)

    def __rmod__(self, other: object) -> Expr:
        return call("remainder", other, self)

    def __pow__(self, other: object) -> Expr:
        return call("power", self, other)

    def __rpow__(self, other: object) -> Expr:
        return call("power", other, self)

    def __and__(self, other: object) -> Expr:
        return call("bitwise_and", self, other)

    def __rand__(self, other: object) -> Expr:
        return call("bitwise_and", other, self)

    def __or__(self, other: object) -> Expr:
        return call("bitwise_or", self, other)

    def __ror__(self, other: object) -> Expr:
        return call("bitwise_or", other, self)

    def __xor__(self, other: object) -> Expr:
        return call("bitwise_xor", self, other)

    def __rxor__(self, other: object) -> Expr:
        return call("bitwise_xor", other, self)

    def __neg__(self) -> Expr:
        return call("negative", self)

    def __pos__(self) -> Expr:
        return call("positive", self)

    def __invert__(self) -> Expr:
        return call("invert", self)

    def __abs__(self) -> Expr:
        return call("absolute", self)

    def __lt__(self, other: object) -> Expr:
        return call("less", self, other)

    def __le__(self, other: object) -> Expr:
        return call("less_equal", self, other)

    def __gt__(self, other: object) -> Expr:
        return call("greater", self, other)

    def __ge__(self, other: object) -> Expr:
        return call("greater_equal", self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return call("equal", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return call("not_equal", self, other)

    # ---- methods ----

    def isin(self, values: object) -> Expr:
        """Return the condition that the value is one of `values`.

        Parameters
        ----------
        values : iterable of scalars, or one scalar
            List, tuple, set, range, 1-D array, pandas Series or Index. Members of another type never match; a
            missing value in the list matches missing values where pandas says so.

        Returns
        -------
        Expr
            Never missing: a missing value that is not in the list gives False.
        """
        return IsIn(self, members_of(values))

    def between(self, lower: object, upper: object, inclusive: Inclusive = "both") -> Expr:
        """Return the condition ``lower <= value <= upper``; `inclusive` is both, neither, left or right."""
        if inclusive not in ("both", "neither", "left", "right"):
            raise ValueError(f"inclusive must be 'both', 'neither', 'left' or 'right', got {inclusive!r}")
        low = call("greater_equal" if inclusive in ("both", "left") else "greater", self, lower)
        high = call("less_equal" if inclusive in ("both", "right") else "less", self, upper)
        return call("bitwise_and", low, high)

    def isna(self) -> Expr:
        """Return the condition that the value is missing (NaN, NaT, or null)."""
        return IsNull(self)

    def notna(self) -> Expr:
        """Return the condition that the value is not missing."""
        return call("invert", IsNull(self))

    def round(self, decimals: int = 0) -> Expr:
        """Return the value rounded to `decimals` digits, as `numpy.round`."""
        if isinstance(decimals, bool) or not isinstance(decimals, int | np.integer):
            raise TypeError(f"decimals must be an integer, got {decimals!r}")
        return call("round", self, int(decimals))

    def clip(self, lower: object = None, upper: object = None) -> Expr:
        """Return the value limited to ``[lower, upper]``, as `numpy.clip`; None is no limit."""
        return call("clip", self, lower, upper)

    def astype(self, dtype: object) -> Expr:
        """Return the value cast to a NumPy dtype."""
        try:
            return Cast(self, np.dtype(dtype))  # type: ignore[call-overload]
        except (TypeError, ValueError):
            raise TypeError(f"astype() takes a dtype of NumPy, such as 'float64', got {dtype!r}") from None

    def where(self, condition: object, other: object = math.nan) -> Expr:
        """Return the value where `condition` is true, else `other`."""
        return call("where", condition, self, other)

    # ---- NumPy protocols ----

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object) -> Expr:
        if method != "__call__":
            raise TypeError(
                f"{ufunc.__name__}.{method} is a reduction or accumulation; column expressions support only "
                "elementwise operations"
            )
        if ufunc.signature is not None:
            raise TypeError(
                f"{ufunc.__name__!r} is a generalized ufunc that mixes rows; column expressions support only "
                "elementwise operations"
            )
        if ufunc.nout != 1:
            raise TypeError(
                f"ufunc {ufunc.__name__!r} has {ufunc.nout} outputs; use one with a single output"
            )
        if kwargs:
            raise TypeError(
                f"{', '.join(f'{k}=' for k in kwargs)} is not supported when building a column expression; leave it out"
            )
        return call(_ufunc_name(ufunc), *inputs)

    def __array_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Expr:
        builder = _ARRAY_FUNCTIONS.get(func)
        if builder is None:
            raise TypeError(
                f"numpy.{func.__name__} is not supported in a column expression; build it from elementwise operations"
            )
        return builder(*args, **kwargs)


def _set_extent(node: Expr, children: tuple[Expr, ...]) -> None:
    depth = 1 + max((child.depth for child in children), default=0)
    size = 1 + sum(child.size for child in children)
    if depth > MAX_DEPTH:
        raise QueryError(
            f"the expression is nested more than {MAX_DEPTH} levels deep; split it, or use .isin(...)"
        )
    if size > MAX_NODES:
        raise QueryError(
            f"the expression has more than {MAX_NODES} operations; use .isin(...) for long lists"
        )
    object.__setattr__(node, "depth", depth)
    object.__setattr__(node, "size", size)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Column(Expr):
    """The values of the column `name`."""

    name: str
    depth: int = field(init=False, default=1)
    size: int = field(init=False, default=1)

    def _label(self) -> str:
        return f"column:{self.name}"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Constant(Expr):
    """A literal, one of the types of `predicate_literals.as_scalar`."""

    value: Scalar
    depth: int = field(init=False, default=1)
    size: int = field(init=False, default=1)

    def _label(self) -> str:
        return f"constant:{scalar_key(self.value)}"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Call(Expr):
    """An elementwise function of the operands: a ufunc name, ``"where"``, ``"clip"`` or ``"round"``."""

    function: str
    args: tuple[Expr, ...]
    depth: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        _set_extent(self, self.args)

    def children(self) -> tuple[Expr, ...]:
        return self.args

    def _label(self) -> str:
        return f"call:{self.function}:{len(self.args)}"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class IsIn(Expr):
    """Membership of the operand's value in `members`."""

    operand: Expr
    members: tuple[Scalar, ...]
    depth: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        _set_extent(self, (self.operand,))

    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def _label(self) -> str:
        return "isin:" + "\x1f".join(f"{len(key)}:{key}" for key in map(scalar_key, self.members))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class IsNull(Expr):
    """True where the operand is missing."""

    operand: Expr
    depth: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        _set_extent(self, (self.operand,))

    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def _label(self) -> str:
        return "isnull"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Cast(Expr):
    """The operand cast to a NumPy dtype."""

    operand: Expr
    dtype: np.dtype[Any]
    depth: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        _set_extent(self, (self.operand,))

    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def _label(self) -> str:
        return f"cast:{self.dtype.str}"


# ---- building --------------------------------------------------------------------------------------------------------


def col(name: str) -> Expr:
    """Return the expression for the values of the column `name` (any text, spaces included).

    >>> (col("x") > 3) & col("flag")
    (col('x') > 3) & col('flag')
    """
    if not isinstance(name, str):
        raise TypeError(f"a column name must be a string, got {name!r}")
    return Column(str(name))


def lift(value: object) -> Expr:
    """Return `value` itself when it is an expression, else a `Constant`; TypeError for what is neither."""
    return value if isinstance(value, Expr) else Constant(as_scalar(value))


def call(function: str, *operands: object) -> Expr:
    """Build a `Call` in its canonical form.

    Chains of one associative and/or are flat, so that long ones stay shallow; a constant compared with an expression
    stands on the right, as Python itself arranges it for ``3 < col("x")``.
    """
    args = tuple(map(lift, operands))
    if function in COMPARISONS and isinstance(args[0], Constant) and not isinstance(args[1], Constant):
        function, args = COMPARISONS[function], (args[1], args[0])
    if function in ASSOCIATIVE:
        args = tuple(
            part
            for arg in args
            for part in (arg.args if isinstance(arg, Call) and arg.function == function else (arg,))
        )
    return Call(function, args)


def members_of(values: object) -> tuple[Scalar, ...]:
    """Return the members of a membership test as scalars.

    Raises
    ------
    TypeError
        For mappings, nested lists, arrays with more than one dimension, and column expressions.
    """
    if isinstance(values, Expr):
        raise TypeError("the values of a membership test must be constants, not a column expression")
    if isinstance(values, Mapping):
        raise TypeError(
            "the values of a membership test must be a list, not a mapping; pass its keys as a list"
        )
    if getattr(values, "ndim", 1) > 1:
        raise TypeError("the values of a membership test must be one-dimensional")
    if isinstance(values, str | bytes) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        return (as_scalar(values),)
    members = [as_scalar(value) for value in values]
    if isinstance(values, set | frozenset):
        members.sort(key=scalar_key)  # the order of a set differs between processes, the token must not
    return tuple(members)


def _ufunc_name(ufunc: np.ufunc) -> str:
    """Return a name by which any process finds the ufunc again."""
    name = ufunc.__name__
    if getattr(np, name, None) is ufunc:
        return name
    module = pickle.whichmodule(ufunc, name)  # type: ignore[attr-defined]
    if getattr(sys.modules.get(module), name, None) is not ufunc:
        raise TypeError(f"ufunc {name!r} cannot be imported by name; use NumPy ufuncs and operators")
    return f"{module}:{name}"


def ufunc_by_name(function: str) -> Callable[..., Any]:
    """Return the callable of a `Call` name."""
    if ":" in function:
        import importlib

        module, name = function.split(":")
        return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]
    return getattr(np, function)  # type: ignore[no-any-return]


def _np_where(condition: object, *branches: object) -> Expr:
    if len(branches) != 2:
        raise TypeError("numpy.where on a column expression needs both branches: np.where(condition, x, y)")
    return call("where", condition, *branches)


def _np_clip(
    a: object, a_min: object = None, a_max: object = None, *, min: object = None, max: object = None
) -> Expr:
    return call("clip", a, a_min if a_min is not None else min, a_max if a_max is not None else max)


def _np_isin(element: Expr, test_elements: object, *, invert: bool = False) -> Expr:
    found = IsIn(element, members_of(test_elements))
    return call("invert", found) if invert else found


def _np_round(a: Expr, decimals: int = 0) -> Expr:
    return a.round(decimals)


_ARRAY_FUNCTIONS: dict[Callable[..., Any], Callable[..., Expr]] = {
    np.where: _np_where,
    np.clip: _np_clip,
    np.isin: _np_isin,
    np.round: _np_round,
    np.around: _np_round,
}
