"""Bound nodes: what an expression does to a block of values, and what statistics say about it.

The two halves of each rule stand side by side, because pruning is sound only as long as they agree. `evaluate` is exact
and gives a `Vector`; `select` writes just "is it true", without the bookkeeping of missing results; `outcome` is
conservative. Nodes are made by `predicate_binding` and live inside a `Predicate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import QueryError
from .arrowtext import ArrowText
from .compare import UFUNCS, compare_constant, compare_times, encode_text, set_where
from .expression import Expr
from .literals import Operator
from .statistics import Outcome, SegmentStatistics
from .text import brief
from .values import Block, BoolArray, Vector, union

__all__ = [
    "AlwaysComparison",
    "And",
    "ColumnNode",
    "Compare",
    "CompareScalar",
    "Condition",
    "ConstantNode",
    "Function",
    "MaybeNull",
    "Membership",
    "Node",
    "Not",
    "NullLiteral",
    "Or",
    "Where",
    "Xor",
]

BOOL = np.dtype(np.bool_)
_FEW_MEMBERS = 8
"""Up to here one comparison per member is faster than a binary search per row."""


class Node:
    """A typed operand or condition."""

    dtype: np.dtype[Any]

    def evaluate(self, block: Block) -> Vector:
        """Return the values of the rows of `block`."""
        raise NotImplementedError

    def select(self, block: Block, out: BoolArray) -> None:
        """Write where the condition is true into `out`, shape (block.n_rows,)."""
        out[...] = self.evaluate(block).values

    def outcome(self, segments: SegmentStatistics) -> Outcome:
        """Return what the statistics prove; unknown unless a node knows better."""
        return segments.unknown()


class Condition(Node):
    """A node of bool whose Vector is False where it is missing, and missing under the "na" rule only."""

    dtype = BOOL


@dataclass(frozen=True, slots=True)
class ColumnNode(Node):
    """The values of a column."""

    name: str
    dtype: np.dtype[Any]
    tz: str | None = None

    def evaluate(self, block: Block) -> Vector:
        return block.column(self.name)


@dataclass(frozen=True, slots=True)
class ConstantNode(Node):
    """A literal operand; `values` of its Vector is a scalar."""

    value: Any
    dtype: np.dtype[Any]

    def evaluate(self, block: Block) -> Vector:
        return Vector(self.value)

    def select(self, block: Block, out: BoolArray) -> None:
        out[...] = bool(self.value)

    def outcome(self, segments: SegmentStatistics) -> Outcome:
        return segments.constant(bool(self.value)) if self.dtype == BOOL else segments.unknown()


# ---- comparisons -----------------------------------------------------------------------------------------------------


def _finish(
    truth: BoolArray, hard: BoolArray | None, soft: BoolArray | None, *, null_is_true: bool
) -> Vector:
    """Apply the rules for missing operands to a comparison; `truth` is modified."""
    if soft is not None:
        set_where(truth, soft, null_is_true)
    if hard is not None:
        set_where(truth, hard, False)
    return Vector(truth, hard, hard is not None)


def _text_of(operand: Node, block: Block) -> tuple[ArrowText, BoolArray | None, bool] | None:
    """Return a bare column of variable-length text as it lies; None for any other operand."""
    return (
        block.text(operand.name) if isinstance(operand, ColumnNode) and operand.dtype.kind in "US" else None
    )


@dataclass(frozen=True, slots=True)
class CompareScalar(Condition):
    """``operand OP value`` with `value` in the operand's own domain."""

    operand: Node
    op: Operator
    value: np.generic

    def evaluate(self, block: Block) -> Vector:
        found = _text_of(self.operand, block)
        if found is not None:
            text, null, na = found
            truth = text.compare(self.op, self.value)
            if truth is not None:
                hard, soft = (null, None) if na else (None, null)
                return _finish(truth, hard, soft, null_is_true=self.op == "not_equal")
        operand = self.operand.evaluate(block)
        truth = _rows(compare_constant(self.op, operand.values, self.value), block)
        return _finish(truth, operand.hard_null(), operand.soft_null(), null_is_true=self.op == "not_equal")

    def select(self, block: Block, out: BoolArray) -> None:
        if _text_of(self.operand, block) is not None:
            out[...] = self.evaluate(block).values
            return
        operand = self.operand.evaluate(block)
        compare_constant(self.op, operand.values, self.value, out)
        if operand.null is not None:
            set_where(out, operand.null, self.op == "not_equal" and not operand.na)

    def outcome(self, segments: SegmentStatistics) -> Outcome:
        if isinstance(self.operand, ColumnNode):
            return segments.compare(self.operand.name, self.op, self.value)
        return segments.unknown()


@dataclass(frozen=True, slots=True)
class AlwaysComparison(Condition):
    """A comparison that has one result for every present value: ``uint8 column < 1000``."""

    operand: Node
    value: bool
    null_is_true: bool

    def evaluate(self, block: Block) -> Vector:
        operand = self.operand.evaluate(block)
        values = operand.values
        truth = np.full(block.n_rows, self.value)
        if self.value != self.null_is_true and values.dtype.kind in "fmM":
            truth[np.isnan(values)] = self.null_is_true
        return _finish(truth, operand.hard_null(), operand.soft_null(), null_is_true=self.null_is_true)

    def outcome(self, segments: SegmentStatistics) -> Outcome:
        if isinstance(self.operand, ColumnNode):
            return segments.constant_comparison(self.operand.name, self.value, null_is_true=self.null_is_true)
        return segments.unknown()


@dataclass(frozen=True, slots=True)
class NullLiteral(Condition):
    """A comparison with None, NA or NaT.

    Under "nan" every row gives `null_is_true`. Under "na" present values give `present`, or NA when it is None.
    """

    operand: Node
    present: bool | None
    null_is_true: bool

    def evaluate(self, block: Block) -> Vector:
        operand = self.operand.evaluate(block)
        if not operand.na:
            return Vector(np.full(block.n_rows, self.null_is_true))
        if self.present is None:
            return Vector(np.zeros(block.n_rows, np.bool_), np.ones(block.n_rows, np.bool_), True)
        return _finish(
            np.full(block.n_rows, self.present), operand.null, None, null_is_true=self.null_is_true
        )

    def outcome(self, segments: SegmentStatistics) -> Outcome:
        if isinstance(self.operand, ColumnNode):
            return segments.null_literal(
                self.operand.name, present=self.present, null_is_true=self.null_is_true
            )
        return segments.unknown()


@dataclass(frozen=True, slots=True)
class Compare(Condition):
    """``left OP right`` between two operands of comparable types."""

    left: Node
    op: Operator
    right: Node

    def evaluate(self, block: Block) -> Vector:
        left, right = self.left.evaluate(block), self.right.evaluate(block)
        a, b = left.values, right.values
        if a.dtype.kind in "mM" and a.dtype != b.dtype:
            truth = compare_times(self.op, a, b)
        else:
            if a.dtype.kind != b.dtype.kind and a.dtype.kind in "US":
                a, b = encode_text(a), encode_text(b)
            truth = UFUNCS[self.op](a, b)
        return _finish(
            _rows(truth, block),
            union(left.hard_null(), right.hard_null()),
            union(left.soft_null(), right.soft_null()),
            null_is_true=self.op == "not_equal",
        )


def _rows(truth: Any, block: Block) -> BoolArray:
    """Return a comparison's result as an array of its own (constants may have made a scalar)."""
    if isinstance(truth, np.ndarray) and truth.shape == (block.n_rows,):
        return truth
    return np.full(block.n_rows, bool(truth))


@dataclass(frozen=True, slots=True)
class Membership(Condition):
    """``operand in members``; never missing.

    Attributes
    ----------
    members : ndarray
        Sorted, without repeats, in the operand's dtype; no NaN or NaT.
    nan : bool
        NaN is a member: matches NaN values.
    na_matches, soft_null_matches : bool
        Whether a missing value under the "na" / "nan" rule (NaT included) is a member.
    """

    operand: Node
    members: NDArray[Any]
    nan: bool
    na_matches: bool
    soft_null_matches: bool

    def evaluate(self, block: Block) -> Vector:
        text = _text_of(self.operand, block)
        if text is not None:
            found = text[0].isin(self.members)
            if found is not None:
                if text[1] is not None:
                    set_where(found, text[1], self.na_matches if text[2] else self.soft_null_matches)
                return Vector(found)
        operand = self.operand.evaluate(block)
        values = operand.values
        truth = _rows(self._find(values), block)
        if self.nan:
            truth |= np.isnan(values)
        if self.soft_null_matches and values.dtype.kind in "mM" and not operand.na:
            truth |= np.isnat(values)
        if operand.null is not None:
            set_where(truth, operand.null, self.na_matches if operand.na else self.soft_null_matches)
        return Vector(truth)

    def _find(self, values: NDArray[Any]) -> BoolArray:
        members = self.members
        if len(members) <= _FEW_MEMBERS:
            truth = np.zeros(values.shape, np.bool_)
            for member in members:
                truth |= values == member
            return truth
        if values.dtype.kind in "iu" and int(members[-1]) - int(members[0]) < 1 << 18:
            in_table: BoolArray = np.isin(values, members)  # NumPy's table lookup
            return in_table
        position = np.searchsorted(members, values)
        position[position == len(members)] = 0
        found: BoolArray = members[position] == values
        return found

    def outcome(self, segments: SegmentStatistics) -> Outcome:
        if not isinstance(self.operand, ColumnNode):
            return segments.unknown()
        return segments.membership(
            self.operand.name,
            self.members,
            nan=self.nan,
            na_matches=self.na_matches,
            soft_null_matches=self.soft_null_matches,
        )


@dataclass(frozen=True, slots=True)
class MaybeNull(Condition):
    """``operand is missing``; never missing itself."""

    operand: Node

    def evaluate(self, block: Block) -> Vector:
        text = _text_of(self.operand, block)
        if text is not None:
            return Vector(np.zeros(block.n_rows, np.bool_) if text[1] is None else text[1])
        operand = self.operand.evaluate(block)
        kind = self.operand.dtype.kind
        truth = None
        if kind in "mM" or (kind == "f" and not operand.na):
            truth = _rows(np.isnan(operand.values), block)
        elif operand.null is None:
            truth = np.zeros(block.n_rows, np.bool_)
        return Vector(union(truth, operand.null))

    def outcome(self, segments: SegmentStatistics) -> Outcome:
        if isinstance(self.operand, ColumnNode):
            return segments.missing(self.operand.name)
        return segments.unknown()


# ---- logic -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class And(Condition):
    """Kleene conjunction."""

    parts: tuple[Node, ...]

    def evaluate(self, block: Block) -> Vector:
        return _fold_logic(self.parts, block, conjunction=True)

    def select(self, block: Block, out: BoolArray) -> None:
        # True only where every part is true: NA needs no bookkeeping, and a block without a hit is left early.
        self.parts[0].select(block, out)
        scratch = np.empty_like(out)
        for part in self.parts[1:]:
            if not out.any():
                return
            part.select(block, scratch)
            out &= scratch

    def outcome(self, segments: SegmentStatistics) -> Outcome:
        result = self.parts[0].outcome(segments)
        for part in self.parts[1:]:
            result &= part.outcome(segments)
        return result


@dataclass(frozen=True, slots=True)
class Or(Condition):
    """Kleene disjunction."""

    parts: tuple[Node, ...]

    def evaluate(self, block: Block) -> Vector:
        return _fold_logic(self.parts, block, conjunction=False)

    def select(self, block: Block, out: BoolArray) -> None:
        self.parts[0].select(block, out)
        scratch = np.empty_like(out)
        for part in self.parts[1:]:
            if out.all():
                return
            part.select(block, scratch)
            out |= scratch

    def outcome(self, segments: SegmentStatistics) -> Outcome:
        result = self.parts[0].outcome(segments)
        for part in self.parts[1:]:
            result |= part.outcome(segments)
        return result


def _fold_logic(parts: tuple[Node, ...], block: Block, *, conjunction: bool) -> Vector:
    first = parts[0].evaluate(block)
    truth, null = _rows(first.values, block), first.null
    for part in parts[1:]:
        other = part.evaluate(block)
        if conjunction:
            both = truth & other.values
            if null is not None or other.null is not None:  # NA unless true, or one side is definitely false
                false = _is_false(truth, null) | _is_false(_rows(other.values, block), other.null)
                null = ~(both | false)
            truth = both
        else:
            either = truth | other.values
            if null is not None or other.null is not None:
                missing = union(null, other.null)
                assert missing is not None
                null = missing & ~either
            truth = either
    return Vector(truth, null, null is not None)


def _is_false(truth: BoolArray, null: BoolArray | None) -> BoolArray:
    return ~truth if null is None else ~(truth | null)


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """Kleene negation: NA stays NA."""

    part: Node

    def evaluate(self, block: Block) -> Vector:
        vector = self.part.evaluate(block)
        return Vector(_is_false(_rows(vector.values, block), vector.null), vector.null, vector.na)

    def outcome(self, segments: SegmentStatistics) -> Outcome:
        return ~self.part.outcome(segments)


@dataclass(frozen=True, slots=True)
class Xor(Condition):
    """Exclusive or; NA when a side is."""

    left: Node
    right: Node

    def evaluate(self, block: Block) -> Vector:
        left, right = self.left.evaluate(block), self.right.evaluate(block)
        null = union(left.null, right.null)
        truth = _rows(left.values, block) ^ right.values
        if null is not None:
            truth &= ~null
        return Vector(truth, null, null is not None)

    def outcome(self, segments: SegmentStatistics) -> Outcome:
        return self.left.outcome(segments) ^ self.right.outcome(segments)


# ---- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Function(Node):
    """An elementwise function of the operands; missing where an operand is."""

    function: Callable[..., Any]
    args: tuple[Node, ...]
    dtype: np.dtype[Any]
    expr: Expr  # for messages
    power: bool = False

    def evaluate(self, block: Block) -> Vector:
        args = [arg.evaluate(block) for arg in self.args]
        try:
            values = self.function(*(arg.values for arg in args))
        except (TypeError, ValueError, OverflowError) as exc:
            raise QueryError(f"cannot compute {brief(self.expr)}: {exc}") from exc
        null = None
        for arg in args:
            null = union(null, arg.null)
        na = any(arg.na for arg in args)
        if na and self.power and null is not None:  # x ** 0 and 1 ** x are 1 whatever the missing value is
            certain = _equals(args[1], 0, block) | _equals(args[0], 1, block)
            values = np.where(certain, self.dtype.type(1), values)
            null = null & ~certain
        if na and self.dtype.kind == "f":  # pandas: a NaN that arithmetic on nullable columns makes is NA
            nan = np.isnan(values)
            null = union(null, nan) if nan.any() else null
        if self.dtype == BOOL and null is not None:
            values = values & ~null
        return Vector(values, null, na)


def _equals(vector: Vector, number: int, block: Block) -> BoolArray:
    truth = _rows(vector.values == number, block)
    return truth if vector.null is None else truth & ~vector.null


@dataclass(frozen=True, slots=True)
class Where(Node):
    """``values`` where the condition is true, else ``other``; missing where the condition is."""

    condition: Node
    values: Node
    other: Node
    dtype: np.dtype[Any]

    def evaluate(self, block: Block) -> Vector:
        condition = self.condition.evaluate(block)
        a, b = self.values.evaluate(block), self.other.evaluate(block)
        choose = _rows(condition.values, block)
        result = np.where(choose, a.values, b.values)
        null = condition.null
        if a.null is not None:
            null = union(null, a.null & choose)
        if b.null is not None:
            null = union(null, b.null & ~choose)
        if self.dtype == BOOL and null is not None:
            result &= ~null
        return Vector(result, null, condition.na or a.na or b.na)
