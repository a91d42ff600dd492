"""Predicates that are one range per column."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicates import OPERATORS, schema_of

from colstore_io.predicate import ColumnRange, ColumnValues, Expr, bind, col


def test_simple_ranges_of_a_conjunction() -> None:
    schema = schema_of(x=np.arange(1), f=np.zeros(1), d=np.zeros(1, "M8[D]"), b=np.zeros(1, "?"))
    ranges = bind((col("x") > 2.5) & (col("f") <= 1) & (col("x") < 9) & (col("x") >= 3) & col("b"), schema)
    assert ranges.simple_ranges() == (
        ColumnRange("x", np.int64(3), True, np.int64(9), False),
        ColumnRange("f", None, False, np.float64(1), True),
        ColumnRange("b", np.True_, True, np.True_, True),
    )
    (only,) = bind(col("x") == 4, schema).simple_ranges() or ()
    assert only == ("x", 4, True, 4, True)
    (time,) = bind(col("d") < "2020-01-01", schema).simple_ranges() or ()
    assert time.lo == np.datetime64(-(2**63) + 1, "D")  # NaT, the least integer, is outside
    assert time.lo_inclusive


@pytest.mark.parametrize(
    "expr",
    [
        col("x") != 3,
        ~(col("x") > 3),
        (col("x") > 3) | (col("x") < 1),
        col("x").isin([3]),
        col("x") + 1 > 3,
        col("x") > col("y"),
        col("t") == "a",
        col("x") > np.nan,
        col("x") == None,  # noqa: E711
        col("x").isna(),
    ],
    ids=repr,
)
def test_other_predicates_have_no_simple_ranges(expr: Expr) -> None:
    schema = schema_of(x=np.arange(1), y=np.arange(1), t=np.array(["a"]))
    assert bind(expr, schema).simple_ranges() is None


@settings(max_examples=150, deadline=None)
@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from(["x", "f"]),
            st.sampled_from([name for name in OPERATORS if name != "not_equal"]),
            st.sampled_from([-1, 0, 0.5, 1, 2, 3]),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_simple_ranges_select_the_rows_of_the_mask(parts: list[tuple[str, str, float]]) -> None:
    x, f = np.arange(-2, 5), np.array([-1.0, 0.0, 0.5, np.nan, 1.0, 2.0, 3.0])
    expr = OPERATORS[parts[0][1]](col(parts[0][0]), parts[0][2])
    for name, op, literal in parts[1:]:
        expr = expr & OPERATORS[op](col(name), literal)
    predicate = bind(expr, schema_of(x=x, f=f))
    values = {"x": ColumnValues(x), "f": ColumnValues(f)}
    ranges = predicate.simple_ranges()
    if ranges is None:  # x == 0.5 is never true, which is no range
        assert not predicate.mask(values).any()
        return
    expected = np.ones(len(x), bool)
    for name, lo, lo_inclusive, hi, hi_inclusive in ranges:
        column = values[name].values
        if lo is not None:
            expected &= (column >= lo) if lo_inclusive else (column > lo)
        if hi is not None:
            expected &= (column <= hi) if hi_inclusive else (column < hi)
    assert predicate.mask(values).tolist() == expected.tolist()
