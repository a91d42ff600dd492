"""What segment statistics prove about a condition.

An `Outcome` says, for each segment, whether some row *can* make a condition true and whether some row can make it
false; a row can also be missing, which is neither. Keeping both sides makes pruning sound under ``not``: negation only
swaps them. Unknown is (True, True). The trust rules are those of cstore.md section 7 and cstore-behaviour.md 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fields import Field, Nulls
from .literals import Operator
from .values import BoolArray

__all__ = ["ColumnStatistics", "Outcome", "SegmentStatistics"]


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Bounds of one column for each segment.

    Attributes
    ----------
    minimum, maximum : ndarray, shape (n_segments,)
        In the column's dtype. Under a validity companion they may include the zeros of null slots.
    usable : ndarray of bool, shape (n_segments,)
        False = the bounds of this segment say nothing.
    validity_minimum, validity_maximum : ndarray of bool, shape (n_segments,), optional
        Bounds of the validity companion: minimum True = no nulls, maximum False = only nulls.
    validity_usable : ndarray of bool, shape (n_segments,), optional
        Where the companion's bounds may be believed; everywhere when omitted.
    nulls : {"nan", "na"}, optional
        The rule under which the column will be evaluated. When omitted both are allowed for, which prunes a little
        less (``!=`` and ``not`` on segments that hold nulls).
    """

    minimum: NDArray[Any]
    maximum: NDArray[Any]
    usable: BoolArray
    validity_minimum: BoolArray | None = None
    validity_maximum: BoolArray | None = None
    validity_usable: BoolArray | None = None
    nulls: Nulls | None = None

    @classmethod
    def from_physical(
        cls,
        field: Field,
        minimum: Mapping[str, NDArray[Any]],
        maximum: Mapping[str, NDArray[Any]],
        usable: Mapping[str, BoolArray],
        *,
        nulls: Nulls | None = None,
    ) -> ColumnStatistics | None:
        """Build the statistics of `field` from those of its physical columns, keyed by physical name.

        None when the value column has none. Statistics of the companion are optional.
        """
        if field.name not in minimum:
            return None
        companion = field.validity if field.validity in minimum else None
        return cls(
            minimum[field.name],
            maximum[field.name],
            usable[field.name],
            validity_minimum=None if companion is None else minimum[companion],
            validity_maximum=None if companion is None else maximum[companion],
            validity_usable=None if companion is None else usable[companion],
            nulls=nulls,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """For each segment: may a row make the condition true, may a row make it false. Arrays are not modified."""

    can_be_true: BoolArray
    can_be_false: BoolArray

    def __and__(self, other: Outcome) -> Outcome:
        return Outcome(self.can_be_true & other.can_be_true, self.can_be_false | other.can_be_false)

    def __or__(self, other: Outcome) -> Outcome:
        return Outcome(self.can_be_true | other.can_be_true, self.can_be_false & other.can_be_false)

    def __xor__(self, other: Outcome) -> Outcome:
        return Outcome(
            (self.can_be_true & other.can_be_false) | (self.can_be_false & other.can_be_true),
            (self.can_be_true & other.can_be_true) | (self.can_be_false & other.can_be_false),
        )

    def __invert__(self) -> Outcome:
        return Outcome(self.can_be_false, self.can_be_true)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known about one column: bounds where `known`, and which segments hold masked nulls."""

    lower: NDArray[Any] | None
    upper: NDArray[Any] | None
    known: BoolArray
    some_null: BoolArray  # a null is possible
    only_null: BoolArray  # every row is a null
    nulls: Nulls | None


class SegmentStatistics:
    """Statistics of all columns a predicate uses, checked once; makes outcomes of the elementary conditions."""

    def __init__(
        self, fields: Mapping[str, Field], statistics: Mapping[str, ColumnStatistics], n_segments: int
    ) -> None:
        self._fields = fields
        self._statistics = statistics
        self._facts: dict[str, _Facts] = {}
        self.n_segments = n_segments

    def everywhere(self, value: bool) -> BoolArray:
        return np.full(self.n_segments, value)

    def unknown(self) -> Outcome:
        return Outcome(self.everywhere(True), self.everywhere(True))

    def constant(self, value: bool) -> Outcome:
        return Outcome(self.everywhere(value), self.everywhere(not value))

    # ---- elementary conditions on one column ----

    def compare(self, name: str, op: Operator, value: np.generic) -> Outcome:
        """Outcome of ``column OP value``; `value` is in the column's domain (`predicate_literals.Bound`)."""
        facts = self._of(name)
        if facts.lower is None or facts.upper is None:
            can_be_true, can_be_false = self.everywhere(True), self.everywhere(True)
        else:
            low, high = facts.lower, facts.upper
            if op == "less":
                can_be_true, can_be_false = low < value, high >= value
            elif op == "less_equal":
                can_be_true, can_be_false = low <= value, high > value
            elif op == "greater":
                can_be_true, can_be_false = high > value, low <= value
            elif op == "greater_equal":
                can_be_true, can_be_false = high >= value, low < value
            else:
                inside, all_equal = (low <= value) & (high >= value), (low == value) & (high == value)
                can_be_true, can_be_false = inside, ~all_equal
                if op == "not_equal":
                    can_be_true, can_be_false = can_be_false, can_be_true
            can_be_true = can_be_true | ~facts.known
            can_be_false = can_be_false | ~facts.known
        if self._fields[name].dtype.kind == "f":
            # A NaN may hide behind any bounds: it makes `!=` true and everything else false. `!=` and what `not`
            # turns around are left alone altogether.
            can_be_false = self.everywhere(True)
            if op == "not_equal":
                can_be_true = self.everywhere(True)
        return self._with_nulls(facts, can_be_true, can_be_false, null_is_true=op == "not_equal")

    def constant_comparison(self, name: str, value: bool, *, null_is_true: bool) -> Outcome:
        """Outcome of a comparison that has one result for every present value."""
        facts = self._of(name)
        can_be_true, can_be_false = self.everywhere(value), self.everywhere(not value)
        if self._fields[name].dtype.kind in "fmM" and null_is_true != value:
            hidden = self.everywhere(True) if self._fields[name].dtype.kind == "f" else ~facts.known
            can_be_true, can_be_false = can_be_true | hidden, can_be_false | hidden
        return self._with_nulls(facts, can_be_true, can_be_false, null_is_true=null_is_true)

    def membership(
        self, name: str, members: NDArray[Any], *, nan: bool, na_matches: bool, soft_null_matches: bool
    ) -> Outcome:
        """Outcome of ``column in members``; `members` are sorted and in the column's dtype."""
        facts = self._of(name)
        kind = self._fields[name].dtype.kind
        if facts.lower is None or facts.upper is None:
            can_be_true, can_be_false = self.everywhere(True), self.everywhere(True)
        elif len(members) == 0:
            can_be_true, can_be_false = ~facts.known, self.everywhere(True)
        else:
            first = np.minimum(np.searchsorted(members, facts.lower), len(members) - 1)
            candidate = members[first]  # the least member >= the lower bound, if there is one
            can_be_true = (candidate >= facts.lower) & (candidate <= facts.upper) | ~facts.known
            single = (facts.lower == facts.upper) & (candidate == facts.lower)
            can_be_false = ~single | ~facts.known
        if len(members) == 0 and kind not in "fmM":
            can_be_true = self.everywhere(False)
        if kind == "f":
            can_be_false = self.everywhere(True)
            if nan:
                can_be_true = self.everywhere(True)
            elif len(members) == 0:
                can_be_true = self.everywhere(False)
        can_be_true, can_be_false = can_be_true & ~facts.only_null, can_be_false & ~facts.only_null
        null_true = null_false = facts.some_null
        if facts.nulls is not None or na_matches == soft_null_matches:
            matches = na_matches if facts.nulls != "nan" else soft_null_matches
            null_true, null_false = facts.some_null & matches, facts.some_null & (not matches)
        return Outcome(can_be_true | null_true, can_be_false | null_false)

    def missing(self, name: str) -> Outcome:
        """Outcome of ``column is missing``."""
        facts = self._of(name)
        kind = self._fields[name].dtype.kind
        some, present = facts.some_null, ~facts.only_null
        if kind == "f" and facts.nulls != "na":
            some = self.everywhere(True)
        elif kind in "mM":
            some = some | ~facts.known  # usable bounds of times exclude NaT
        return Outcome(some, present)

    def null_literal(self, name: str, *, present: bool | None, null_is_true: bool) -> Outcome:
        """Outcome of a comparison with a missing-value literal.

        `present` is the result for present values under the "na" rule (None = missing); under "nan" every row gives
        `null_is_true`.
        """
        facts = self._of(name)
        if facts.nulls != "na":  # when the rule is not known: what "na" allows, "nan" allows too
            return self.constant(null_is_true)
        if present is None:
            return Outcome(self.everywhere(False), self.everywhere(False))
        some = ~facts.only_null
        return Outcome(some & present, some & (not present))

    # ---- inside ----

    def _with_nulls(
        self, facts: _Facts, can_be_true: BoolArray, can_be_false: BoolArray, *, null_is_true: bool
    ) -> Outcome:
        can_be_true, can_be_false = can_be_true & ~facts.only_null, can_be_false & ~facts.only_null
        if facts.nulls != "na":  # under "na" a null makes the comparison missing: neither true nor false
            if null_is_true:
                can_be_true = can_be_true | facts.some_null
            else:
                can_be_false = can_be_false | facts.some_null
        return Outcome(can_be_true, can_be_false)

    def _of(self, name: str) -> _Facts:
        facts = self._facts.get(name)
        if facts is None:
            facts = self._facts[name] = self._examine(self._fields[name], self._statistics.get(name))
        return facts

    def _examine(self, field: Field, statistics: ColumnStatistics | None) -> _Facts:
        nothing = self.everywhere(False)
        some_null, only_null = self.everywhere(field.nullable), nothing
        if statistics is None:
            return _Facts(None, None, nothing, some_null, only_null, None if field.nullable else "nan")
        low, high = statistics.validity_minimum, statistics.validity_maximum
        if field.nullable and low is not None and high is not None:
            believed = (
                self.everywhere(True) if statistics.validity_usable is None else statistics.validity_usable
            )
            self._check(field, low, high, believed)
            believed = believed & (low <= high)
            some_null = ~(believed & low)
            only_null = believed & ~high
        nulls = statistics.nulls if field.nullable or statistics.nulls is not None else "nan"
        lower, upper = statistics.minimum, statistics.maximum
        self._check(field, lower, upper, statistics.usable)
        if (
            field.dtype.kind == "S"
            or not _same_domain(lower.dtype, field.dtype)
            or lower.dtype != upper.dtype
        ):
            return _Facts(None, None, nothing, some_null, only_null, nulls)
        # False for NaN and NaT bounds, and for bounds that contradict each other: they say nothing.
        known = np.asarray(statistics.usable, dtype=np.bool_) & (lower <= upper)
        return _Facts(lower, upper, known, some_null, only_null, nulls)

    def _check(self, field: Field, *arrays: NDArray[Any]) -> None:
        for array in arrays:
            if array.shape != (self.n_segments,):
                raise ValueError(
                    f"statistics of column {field.name!r} have shape {array.shape}, expected ({self.n_segments},)"
                )


def _same_domain(bounds: np.dtype[Any], values: np.dtype[Any]) -> bool:
    """Return True when bounds of dtype `bounds` can be compared with literals folded into the dtype `values`."""
    if bounds.kind != values.kind:
        return False
    if bounds.kind in "mM":
        return np.datetime_data(bounds) == np.datetime_data(values)
    return bounds.kind == "U" or bounds.itemsize == values.itemsize
