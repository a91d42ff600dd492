"""Statistics exclude segments that cannot match, and never one that does."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colstore_io.fields import Field, Schema
from colstore_io.predicate import ColumnStatistics, ColumnValues, Expr, bind, col

SCHEMA = Schema(
    (
        Field("i", np.dtype("i4")),
        Field("u", np.dtype("u8")),
        Field("f", np.dtype("f8")),
        Field("b", np.dtype("?")),
        Field("d", np.dtype("M8[ns]")),
        Field("w", np.dtype("U2")),
        Field("r", np.dtype("S2")),
        Field("I", np.dtype("i8"), validity="I.valid"),
        Field("B", np.dtype("?"), validity="B.valid"),
        Field("F", np.dtype("f8"), validity="F.valid"),
        Field("t", np.dtype("U2"), validity="t.valid"),
    )
)
SMALL = st.integers(-3, 3)
DAYS = [np.datetime64("2020-01-01") + day for day in range(5)]
WORDS = ["a", "b", "bc", "d"]
CELLS: dict[str, st.SearchStrategy[Any]] = {
    "i": SMALL,
    "u": st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]),
    "f": st.sampled_from([-1.5, -0.0, 0.0, 1.0, 2.0, np.inf, np.nan, np.nan]),
    "b": st.booleans(),
    "d": st.sampled_from([*DAYS, np.datetime64("NaT")]),
    "w": st.sampled_from(WORDS),
    "r": st.sampled_from([word.encode() for word in WORDS]),
    "I": SMALL,
    "B": st.booleans(),
    "F": st.sampled_from([-1.5, 0.0, 1.0, np.nan]),
    "t": st.sampled_from(WORDS),
}
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "i": st.sampled_from([-4, -1, 0, 0.5, 2, 4, np.nan, 2**40, None]),
    "u": st.sampled_from([-1, 0, 1.5, 2, 2**63, 2**64]),
    "f": st.sampled_from([-1.5, -0.0, 0.0, 0.5, 2, np.inf, np.nan, 10**400]),
    "b": st.sampled_from([True, False, 0.5]),
    "d": st.sampled_from(
        ["2019-12-31", "2020-01-02", "2020-01-03T12", "9999-01-01", "0001-01-01", np.datetime64("NaT")]
    ),
    "w": st.sampled_from(WORDS),
    "r": st.sampled_from(WORDS),
    "I": st.sampled_from([-4, 0, 0.5, 2, None, np.nan]),
    "B": st.sampled_from([True, False]),
    "F": st.sampled_from([-1.5, 0, 0.5, np.nan]),
    "t": st.sampled_from([*WORDS, None]),
}
OPERATORS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@st.composite
def predicates(draw: st.DrawFn, names: tuple[str, ...], depth: int = 2) -> Expr:
    if depth == 0 or draw(st.sampled_from([True, False] if depth == 1 else [True, False, False, False])):
        name = draw(st.sampled_from(names))
        kind = draw(st.sampled_from(["compare", "flipped", "isin", "between", "isna", "bool", "arithmetic"]))
        if kind == "bool":
            return col(draw(st.sampled_from(["b", "B"])))
        if kind == "isna":
            return draw(st.sampled_from([col(name).isna(), col(name).notna()]))
        if kind == "isin":
            return col(name).isin(draw(st.lists(LITERALS[name], max_size=4)))
        if kind == "between":
            return col(name).between(draw(LITERALS[name]), draw(LITERALS[name]))
        if kind == "arithmetic":
            return col(draw(st.sampled_from(["i", "I", "F"]))) + 1 > draw(SMALL)
        op, literal = draw(st.sampled_from(OPERATORS)), draw(LITERALS[name])
        if kind == "flipped" and not isinstance(literal, np.datetime64):
            return op(literal, col(name))
        return op(col(name), literal)
    left = draw(predicates(names, depth=depth - 1))
    kind = draw(st.sampled_from(["and", "or", "xor", "not", "not"]))
    if kind == "not":
        return ~left
    right = draw(predicates(names, depth=depth - 1))
    return {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[kind](left, right)


@st.composite
def segments(draw: st.DrawFn, names: tuple[str, ...], rule: Any) -> list[dict[str, ColumnValues]]:
    result = []
    for _ in range(draw(st.integers(1, 4))):
        n_rows = draw(st.integers(0, 3))
        columns = {}
        for field in (SCHEMA[name] for name in names):
            cells = draw(st.lists(CELLS[field.name], min_size=n_rows, max_size=n_rows))
            values = np.array(cells, dtype=field.dtype)
            validity = None
            if field.nullable:
                validity = np.array(
                    draw(st.lists(st.booleans(), min_size=n_rows, max_size=n_rows)), dtype=bool
                )
                values[~validity] = np.zeros(1, field.dtype)[0]
            columns[field.name] = ColumnValues(values, validity, rule if field.nullable else "nan")
        result.append(columns)
    return result


def bounds(values: np.ndarray) -> tuple[Any, Any, bool]:
    """The widest that a footer may claim: full text bounds, and float bounds that pass over NaN in silence."""
    zero = np.zeros(1, values.dtype)[0]
    kind = values.dtype.kind
    if kind == "f":
        values = values[~np.isnan(values)]
    if len(values) == 0 or kind == "S" or (kind == "M" and np.isnat(values).any()):
        return zero, zero, False
    ordered = np.sort(values)
    return ordered[0], ordered[-1], True


def statistics(
    parts: list[dict[str, ColumnValues]], draw: Callable[[st.SearchStrategy[Any]], Any], rule: Any
) -> dict[str, ColumnStatistics]:
    """True statistics of the segments; what may be missing from a file is missing at random."""
    result = {}
    for name in parts[0]:
        field = SCHEMA[name]
        low, high, usable = zip(*(bounds(part[name].values) for part in parts), strict=True)
        some = st.lists(st.integers(0, 3).map(bool), min_size=len(parts), max_size=len(parts)).map(np.array)
        extra: dict[str, Any] = {}
        if field.nullable:
            extra["nulls"] = draw(st.sampled_from([rule, None]))
            if draw(st.booleans()):
                vlow, vhigh, vusable = zip(*(bounds(part[name].validity) for part in parts), strict=True)
                extra["validity_minimum"], extra["validity_maximum"] = (
                    np.array(vlow, bool),
                    np.array(vhigh, bool),
                )
                extra["validity_usable"] = np.array(vusable, bool) & draw(some)
        result[name] = ColumnStatistics(
            np.array(low, field.dtype),
            np.array(high, field.dtype),
            np.array(usable, bool) & draw(some),
            **extra,
        )
    return result


@pytest.mark.parametrize("name", SCHEMA.names)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rule=st.sampled_from(["nan", "na"]), data=st.data())
def test_a_segment_with_a_matching_row_is_never_excluded(name: str, rule: Any, data: st.DataObject) -> None:
    """Whatever the null rule, and whether or not the statistics say which one it is."""
    expr = data.draw(predicates((name, name, name, "I")))
    predicate = bind(expr, SCHEMA)
    parts = data.draw(segments(expr.columns, rule))
    may = predicate.may_match(statistics(parts, data.draw, rule), len(parts))
    matches = np.array([predicate.mask(part).any() for part in parts])
    assert not (matches & ~may).any(), f"{expr!r}"


# ---- clear misses are excluded ---------------------------------------------------------------------------------------


def stats(low: list[Any], high: list[Any], dtype: str, **extra: Any) -> ColumnStatistics:
    usable = extra.pop("usable", np.ones(len(low), bool))
    return ColumnStatistics(np.array(low, dtype), np.array(high, dtype), np.array(usable), **extra)


# Two segments: the first holds 0..9, the second 10..19 (days, words and floats alike).
TWO = {
    "i": stats([0, 10], [9, 19], "i4"),
    "u": stats([0, 10], [9, 19], "u8"),
    "f": stats([0, 10], [9, 19], "f8"),
    "b": stats([False, True], [False, True], "?"),
    "d": stats(["2020-01-01", "2020-01-11"], ["2020-01-10", "2020-01-20"], "M8[ns]"),
    "w": stats(["a", "k"], ["j", "z"], "U2"),
    "r": stats([b"a", b"k"], [b"j", b"z"], "S2"),
    "I": stats(
        [0, 10],
        [9, 19],
        "i8",
        validity_minimum=np.array([True, True]),
        validity_maximum=np.array([True, True]),
    ),
}


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("i") > 9, [False, True]),
        (col("i") >= 10, [False, True]),
        (col("i") < 10, [True, False]),
        (col("i") <= 9, [True, False]),
        (col("i") == 5, [True, False]),
        (5 == col("i"), [True, False]),  # noqa: SIM300
        (9 < col("i"), [False, True]),  # noqa: SIM300
        (col("i") > 9.5, [False, True]),
        (col("i") > 2**40, [False, False]),
        (col("u") < -1, [False, False]),
        (col("i") > np.nan, [False, False]),
        (col("i") == None, [False, False]),  # noqa: E711
        (~(col("i") < 10), [False, True]),
        (~(col("i") >= 10), [True, False]),
        (~~(col("i") < 10), [True, False]),
        ((col("i") > 3) & (col("i") < 8), [True, False]),
        ((col("i") > 30) | (col("i") == 15), [False, True]),
        (~((col("i") < 10) | (col("u") > 100)), [False, True]),
        (col("i").between(12, 14), [False, True]),
        (~col("i").between(0, 9), [False, True]),
        (col("i").isin([1, 2, 30]), [True, False]),
        (col("i").isin([30, 40]), [False, False]),
        (col("i").isin([]), [False, False]),
        (col("i").isin(["x"]), [False, False]),
        (col("i").isna(), [False, False]),
        (~col("i").notna(), [False, False]),
        (col("b"), [False, True]),
        (~col("b"), [True, False]),
        (col("b") == False, [True, False]),  # noqa: E712
        (col("b") ^ (col("i") >= 10), [False, False]),
        (col("d") > "2020-01-10", [False, True]),
        (col("d") > "2020-01-10T12", [False, True]),
        (col("d").isin(["2020-01-02"]), [True, False]),
        (col("d").isna(), [False, False]),
        (col("w") < "k", [True, False]),
        (col("w").isin(["b", "c"]), [True, False]),
        (col("f") > 9, [False, True]),
        (col("f") == 15, [False, True]),
        (col("f").between(11, 12), [False, True]),
        (col("f").isin([3.0]), [True, False]),
        (col("I") > 9, [False, True]),
        (col("I").isna(), [False, False]),
        (~(col("I") < 10), [False, True]),
        (col("I") != 5, [True, True]),
    ],
    ids=repr,
)
def test_clear_misses_are_excluded(expr: Expr, expected: list[bool]) -> None:
    assert bind(expr, SCHEMA).may_match(TWO, 2).tolist() == expected


def test_constant_segments_are_excluded_for_unequal_and_not_in() -> None:
    constant = {"i": stats([5, 5], [5, 6], "i4")}
    assert bind(col("i") != 5, SCHEMA).may_match(constant, 2).tolist() == [False, True]
    assert bind(~col("i").isin([5, 7]), SCHEMA).may_match(constant, 2).tolist() == [False, True]


@pytest.mark.parametrize(
    "expr",
    [
        col("f") != 5,
        ~(col("f") == 5),
        ~(col("f") < 100),
        col("f").isna(),
        ~col("f").notna(),
        ~col("f").isin([5.0]),
        ~(col("f") != 4),
        col("f").isin([np.nan]),
    ],
    ids=repr,
)
def test_nothing_is_excluded_for_unequal_not_and_null_tests_on_floats(expr: Expr) -> None:
    """A NaN may hide behind any bounds (cstore.md section 7)."""
    assert bind(expr, SCHEMA).may_match({"f": stats([5], [5], "f8")}, 1).all()


@pytest.mark.parametrize("literal", [0.0, -0.0])
@pytest.mark.parametrize("bound", [0.0, -0.0])
def test_a_zero_bound_stands_for_both_zeros(literal: float, bound: float) -> None:
    known = {"f": stats([bound], [bound], "f8")}
    for expr in (col("f") == literal, col("f") >= literal, col("f") <= literal, col("f").isin([literal])):
        assert bind(expr, SCHEMA).may_match(known, 1).all(), expr


@pytest.mark.parametrize(
    ("low", "high"), [(np.nan, 1.0), (0.0, np.nan), (np.nan, np.nan)], ids=["low", "high", "both"]
)
def test_a_nan_bound_says_nothing(low: float, high: float) -> None:
    assert bind(col("f") > 100, SCHEMA).may_match({"f": stats([low], [high], "f8")}, 1).all()


def test_contradicting_and_nat_bounds_say_nothing() -> None:
    assert bind(col("i") > 100, SCHEMA).may_match({"i": stats([9], [0], "i4")}, 1).all()
    assert (
        bind(col("d") > "2030-01-01", SCHEMA)
        .may_match({"d": stats(["NaT"], ["2020-01-01"], "M8[ns]")}, 1)
        .all()
    )


def test_unusable_bounds_say_nothing() -> None:
    known = {"i": stats([0, 0], [0, 0], "i4", usable=[False, True])}
    assert bind(col("i") > 5, SCHEMA).may_match(known, 2).tolist() == [True, False]


def test_bounds_of_bytes_are_never_used() -> None:
    assert bind(col("r") == "zz", SCHEMA).may_match(TWO, 2).all()


def test_statistics_of_another_type_are_not_compared() -> None:
    assert bind(col("i") > 100, SCHEMA).may_match({"i": stats(["a"], ["b"], "U1")}, 1).all()
    assert bind(col("i") > 100, SCHEMA).may_match({"i": stats([0], [1], "i8")}, 1).all()
    assert bind(col("d") > "2030-01-01", SCHEMA).may_match({"d": stats([0], [1], "M8[s]")}, 1).all()


def test_columns_without_statistics_and_arithmetic_are_unknown() -> None:
    assert bind(col("i") > 100, SCHEMA).may_match({}, 3).tolist() == [True] * 3
    assert bind(col("i") + 1 > 100, SCHEMA).may_match(TWO, 2).all()
    assert bind(col("i") > col("u"), SCHEMA).may_match(TWO, 2).all()
    assert bind((col("i") + 1 > 100) & (col("i") > 9), SCHEMA).may_match(TWO, 2).tolist() == [False, True]


def test_null_tests_are_decided_by_the_companions_own_entry() -> None:
    known = {
        "I": stats(
            [0, 0, 0],
            [0, 9, 9],
            "i8",
            validity_minimum=np.array([False, False, True]),
            validity_maximum=np.array([False, True, True]),
            nulls="na",
        )
    }
    assert bind(col("I").isna(), SCHEMA).may_match(known, 3).tolist() == [True, True, False]
    assert bind(col("I").notna(), SCHEMA).may_match(known, 3).tolist() == [False, True, True]
    assert bind(col("I") == 0, SCHEMA).may_match(known, 3).tolist() == [False, True, True]
    assert bind(col("I") != 0, SCHEMA).may_match(known, 3).tolist() == [False, True, True]
    assert bind(~(col("I") <= 9), SCHEMA).may_match(known, 3).tolist() == [False, False, False]


def test_zeros_under_nulls_never_prove_that_all_rows_match() -> None:
    """The bounds of a nullable column include the null slots: [0, 0] may be all nulls."""
    known = {"I": stats([0], [0], "i8")}  # no entry of the companion
    for expr in (~(col("I") == 0), col("I") != 0, ~col("I").isin([0]), col("I").isna()):
        assert bind(expr, SCHEMA).may_match(known, 1).all(), expr


def test_times_whose_bounds_are_unknown_may_hide_nat() -> None:
    """Beyond the range of nanoseconds every present time compares alike, but NaT compares differently."""
    unusable = {"d": stats(["2020-01-01"], ["2020-01-02"], "M8[ns]", usable=[False])}
    usable = {"d": stats(["2020-01-01"], ["2020-01-02"], "M8[ns]")}
    for expr in (~(col("d") < "9999-01-01"), ~(col("d") > "0001-01-01"), col("d").isna()):
        assert bind(expr, SCHEMA).may_match(unusable, 1).all(), expr
        assert bind(expr, SCHEMA).may_match({}, 1).all(), expr
        assert not bind(expr, SCHEMA).may_match(usable, 1).any(), expr


def test_unusable_bounds_prove_nothing_about_membership() -> None:
    known = {"i": stats([5], [5], "i4", usable=[False])}
    for expr in (col("i").isin([7]), ~col("i").isin([5])):
        assert bind(expr, SCHEMA).may_match(known, 1).all(), expr


def test_membership_of_nulls_under_both_rules() -> None:
    companion = {"validity_minimum": np.array([False]), "validity_maximum": np.array([True])}
    for rule, missing_matches in (("na", True), ("nan", False), (None, True)):
        known = {"I": stats([1], [1], "i8", nulls=rule, **companion)}
        assert bind(col("I").isin([7, pd.NA]), SCHEMA).may_match(known, 1).tolist() == [missing_matches]
        outside = bind(~col("I").isin([1, pd.NA]), SCHEMA).may_match(known, 1)
        assert outside.tolist() == [rule != "na"]
        assert not bind(col("I").isin([7]), SCHEMA).may_match(known, 1).any()
        assert bind(~col("I").isin([1]), SCHEMA).may_match(known, 1).all()


def test_null_literals_follow_the_rule_of_the_column() -> None:
    """``!= None`` holds for the values of a masked number, and for every row under the "nan" rule."""
    only_null = {"validity_minimum": np.array([False]), "validity_maximum": np.array([False])}
    for rule, expected in (("na", [False]), ("nan", [True]), (None, [True])):
        known = {"I": stats([0], [0], "i8", nulls=rule, **only_null)}
        assert bind(col("I") != None, SCHEMA).may_match(known, 1).tolist() == expected  # noqa: E711
        assert bind(~(col("I") == None), SCHEMA).may_match(known, 1).tolist() == expected  # noqa: E711
        assert not bind(col("I") == None, SCHEMA).may_match(known, 1).any()  # noqa: E711
    some = {"I": stats([0], [0], "i8", nulls="na")}
    assert bind(col("I") != None, SCHEMA).may_match(some, 1).all()  # noqa: E711
    assert not bind(col("I") != pd.NA, SCHEMA).may_match(some, 1).any()


def test_statistics_are_built_from_physical_columns() -> None:
    low, high = (
        {"I": np.array([0]), "I.valid": np.array([True])},
        {"I": np.array([5]), "I.valid": np.array([True])},
    )
    usable = {"I": np.array([True]), "I.valid": np.array([True])}
    known = ColumnStatistics.from_physical(SCHEMA["I"], low, high, usable)
    assert known is not None
    assert not bind(col("I").isna(), SCHEMA).may_match({"I": known}, 1).any()
    assert ColumnStatistics.from_physical(SCHEMA["i"], low, high, usable) is None


def test_statistics_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(ValueError, match="'i' have shape"):
        bind(col("i") > 1, SCHEMA).may_match(TWO, 3)


def test_no_segments_give_an_empty_answer() -> None:
    assert bind((col("i") > 1) & ~col("b"), SCHEMA).may_match({}, 0).shape == (0,)
