"""Comparisons are exact: of integers with any number, of text, of literals that do not fit a column."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicates import OPERATORS, rows

from colstore_io.errors import QueryError
from colstore_io.fields import Field, Schema
from colstore_io.predicate import Expr, bind, col
from colstore_io.predicate.query import parse_query

# ---- exact comparison ------------------------------------------------------------------------------------------------

INTEGERS = ["i1", "u1", "i4", "u4", "i8", "u8"]


@settings(max_examples=300, deadline=None)
@given(
    dtype=st.sampled_from(INTEGERS),
    data=st.data(),
    literal=st.one_of(
        st.integers(-(2**70), 2**70),
        st.integers(-300, 300),
        st.floats(),
        st.floats(-300, 300).map(lambda v: round(v * 2) / 2),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1).map(np.int64),
        st.integers(0, 2**64 - 1).map(np.uint64),
        st.floats(width=32).map(np.float32),
    ),
    name=st.sampled_from(list(OPERATORS)),
)
def test_integers_compare_exactly_with_any_number(
    dtype: str, data: st.DataObject, literal: Any, name: str
) -> None:
    """Like Python's own exact comparison of integers and floats, NaN and infinities included."""
    info = np.iinfo(dtype)
    near = [int(literal) + k for k in (-1, 0, 1)] if math.isfinite(literal) else []
    cells = st.one_of(
        st.integers(int(info.min), int(info.max)), st.sampled_from([info.min, info.max, 0, *near]).map(int)
    ).filter(lambda v: info.min <= v <= info.max)
    values = data.draw(st.lists(cells, max_size=5))
    exact = literal.item() if isinstance(literal, np.generic) else literal
    op = OPERATORS[name]
    expected = [k for k, value in enumerate(values) if op(value, exact)]
    assert rows(op(col("x"), literal), x=np.array(values, dtype)) == expected
    member = [k for k, value in enumerate(values) if value == exact]
    assert rows(col("x").isin([literal, "other"]), x=np.array(values, dtype)) == member


@pytest.mark.parametrize(
    ("values", "expr", "expected"),
    [
        (np.array([2**53 + 1, 2**53]), col("x") == float(2**53), [1]),
        (np.array([2**64 - 1, 0], "u8"), col("x") > -1, [0, 1]),
        (np.array([2**64 - 1, 0], "u8"), col("x") == -1, []),
        (np.array([2**64 - 1, 0], "u8"), col("x") == np.int64(-1), []),
        (np.array([-(2**63), 2**63 - 1]), col("x") < 2**70, [0, 1]),
        (np.array([-(2**63), 2**63 - 1]), col("x") > 2**70, []),
        (np.array([1, 2]), col("x") != np.nan, [0, 1]),
        (np.array([1, 2]), col("x") < np.nan, []),
        (np.array([1.0, np.inf, -np.inf, np.nan]), col("x") < 10**400, [0, 2]),
        (np.array([1.0, np.inf, -np.inf, np.nan]), col("x") > -(10**400), [0, 1]),
        (np.array([1.0, np.inf, -np.inf, np.nan]), col("x") != 10**400, [0, 1, 2, 3]),
        (np.array([1.0, np.inf, -np.inf, np.nan]), col("x") >= 10**400, [1]),
        (np.array([1.0, np.inf], "f4"), col("x") < np.float64(1e300), [0]),
        (np.array([0.1, 0.2], "f4"), col("x") == 0.1, [0]),
        (np.array([0.1, 0.2], "f4"), col("x") == np.float64(0.1), []),
        (np.array([0.1, 0.2], "f4"), col("x") > np.float64(0.1), [0, 1]),
        (np.array([0.1, 0.2], "f4"), col("x").isin([0.1]), []),
        (np.array([0.1, 0.2], "f2"), col("x") <= np.float64(0.1), [0]),
        (np.array([1, 2], "f2"), col("x") < 1e6, [0, 1]),
        (np.array([1.5, 2], "g"), col("x") > 1.75, [1]),
        (np.array([0.0, -0.0]), col("x") == -0.0, [0, 1]),
        (np.array([2**53], "f8"), col("x").isin([2**53 + 1]), []),
        (np.array([True, False]), col("x") < 0.5, [1]),
        (np.array([True, False]), col("x") == 2, []),
        (np.array([True, False]), col("x") <= 1, [0, 1]),
    ],
    ids=repr,
)
def test_numbers_at_the_edges(values: np.ndarray, expr: Expr, expected: list[int]) -> None:
    assert rows(expr, x=values) == expected


def test_two_integer_columns_of_different_sign_compare_exactly() -> None:
    assert rows(col("a") > col("b"), a=np.array([2**63, 0], "u8"), b=np.array([-1, -1])) == [0, 1]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=3).map(lambda t: t.rstrip("\0")), max_size=5), st.text(max_size=3))
def test_text_compares_by_code_points_in_both_kinds(values: list[str], literal: str) -> None:
    values = [v for v in values if not any("\ud800" <= c <= "\udfff" for c in v)]
    literal = "".join(c for c in literal if not "\ud800" <= c <= "\udfff")
    unicode = np.array(values, dtype="U4")
    raw = np.array([v.encode() for v in values], dtype="S16")
    for name, op in OPERATORS.items():
        expected = [k for k, v in enumerate(values) if op(v, literal)]
        assert rows(op(col("x"), literal), x=unicode) == expected, name
        assert rows(op(col("x"), literal.encode()), x=unicode) == expected, name
        assert rows(op(col("x"), literal), x=raw) == expected, name
    both = rows(col("a") == col("b"), a=unicode, b=raw)
    assert both == list(range(len(values)))


def test_trailing_nul_characters_of_a_literal_are_not_padding() -> None:
    values = np.array(["a", "b"])
    assert rows(col("x") == "a\0", x=values) == []
    assert rows(col("x") < "a\0", x=values) == [0]
    assert rows(col("x") >= "a\0", x=values) == [1]
    assert rows(col("x").isin(["a\0"]), x=values) == []


def test_bytes_that_are_no_utf8_do_not_compare_with_text() -> None:
    with pytest.raises(QueryError, match="not UTF-8"):
        rows(col("x") == b"\xff", x=np.array(["a"]))
    assert rows(col("x") == b"\xff", x=np.array([b"\xff", b"a"])) == [0]


# ---- literals that do not fit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i8", "u1", "f4", "f8", "?"])
@pytest.mark.parametrize("literal", [np.timedelta64(3, "Y"), np.timedelta64(3), datetime.timedelta(3)])
@pytest.mark.parametrize(
    "condition",
    [
        lambda x, v: x > v,
        lambda x, v: x == v,
        lambda x, v: x != v,
        lambda x, v: x.isin([v]),
        lambda x, v: x.between(v, v),
    ],
)
def test_a_timedelta_is_no_number(condition: Any, literal: Any, dtype: str) -> None:
    with pytest.raises(QueryError, match="timedelta"):
        rows(condition(col("x"), literal), x=np.zeros(3, dtype))


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime.max.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-5))),
        datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=5))),
        datetime.timedelta.max,
    ],
)
def test_a_time_out_of_range_is_a_query_error(value: Any) -> None:
    for use in (lambda: col("x") > value, lambda: col("x").isin([value])):
        with pytest.raises(QueryError, match="out of range"):
            use()
    with pytest.raises(QueryError, match="out of range"):
        parse_query("x > @v", columns=["x"], params={"v": value})


def test_the_masked_constant_is_a_missing_value() -> None:
    assert (col("x") > np.ma.masked).equals(col("x") > pd.NA)
    assert col("x").isin([1, np.ma.masked]).equals(col("x").isin([1, pd.NA]))
    assert rows(col("x") > np.ma.masked, x=[1, 2]) == []


def test_naive_and_aware_datetime_columns_cannot_be_compared() -> None:
    schema = Schema(
        (
            Field("naive", np.dtype("<M8[us]")),
            Field("utc", np.dtype("<M8[us]"), tz="UTC"),
            Field("paris", np.dtype("<M8[ns]"), tz="Europe/Paris"),
        )
    )
    hour = np.timedelta64(1, "h")
    for expr in (
        col("naive") > col("utc"),
        col("paris") == col("naive"),
        col("naive") + hour < col("utc"),
        col("utc") - hour != col("naive") + hour,
    ):
        with pytest.raises(QueryError, match="time zone"):
            bind(expr, schema)
    bind(col("utc") + hour > col("paris"), schema)
    bind(col("naive") + hour > col("naive"), schema)
