"""Times compare exactly across units and zones."""

from __future__ import annotations

import datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicates import OPERATORS, rows

from colstore_io.errors import QueryError
from colstore_io.fields import Field, Schema
from colstore_io.predicate import ColumnValues, Expr, bind, col
from colstore_io.predicate.compare import compare_times
from colstore_io.predicate.times import days_from_civil, month_start, months_floor

UNITS = ["W", "D", "h", "m", "s", "ms", "us", "ns", "25s", "M", "Y", "3M"]


@given(st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31)))
def test_the_calendar_is_numpys(date: datetime.date) -> None:
    days = days_from_civil(date.year, date.month, date.day)
    assert days == int(np.datetime64(date, "D").astype(np.int64))
    months = int(np.datetime64(date, "M").astype(np.int64))
    assert months_floor(days) == months
    assert month_start(months) == int(np.datetime64(date, "M").astype("M8[D]").astype(np.int64))


@settings(max_examples=200, deadline=None)
@given(
    unit=st.sampled_from(UNITS),
    steps=st.lists(st.integers(-2000, 2000), max_size=4),
    literal=st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)),
    coarse=st.sampled_from(["us", "s", "h", "D", "M"]),
    name=st.sampled_from(list(OPERATORS)),
)
def test_times_compare_exactly_across_units(
    unit: str, steps: list[int], literal: datetime.datetime, coarse: str, name: str
) -> None:
    stored = np.array(steps, dtype=f"M8[{unit}]")
    bound = np.datetime64(literal, "us").astype(f"M8[{coarse}]")
    stored = np.append(stored, [bound.astype(stored.dtype), np.datetime64("NaT")]).astype(stored.dtype)
    op = OPERATORS[name]
    expected = np.flatnonzero(op(stored.astype("M8[us]"), bound.astype("M8[us]"))).tolist()
    assert rows(op(col("x"), bound), x=stored) == expected
    if coarse != "M":
        assert rows(op(col("x"), str(bound)), x=stored) == expected
    if coarse == "us":
        assert rows(op(col("x"), literal), x=stored) == expected


@pytest.mark.parametrize(
    ("stored", "expr", "expected"),
    [
        # NumPy casts each of these to the finer unit, wraps, and answers wrongly.
        (np.array(["3000-01-01"], "M8[D]"), col("x") > np.datetime64("2020-01-01", "ns"), [0]),
        (np.array(["1000-01-01"], "M8[D]"), col("x") < np.datetime64("2020-01-01", "ns"), [0]),
        (np.array(["2020-01-01"], "M8[ns]"), col("x") < "9999-01-01", [0]),
        (np.array(["2020-01-01"], "M8[ns]"), col("x") != "9999-01-01", [0]),
        (np.array(["2020-01-01", "NaT"], "M8[ns]"), col("x") < "9999-01-01", [0]),
        (np.array(["2020-01-01", "NaT"], "M8[ns]"), col("x") != "9999-01-01", [0, 1]),
        (np.array(["2020-01-01"], "M8[ns]"), col("x") < "2020-01-01T00:00:00.000000000001", [0]),
        (np.array([10**15], "m8[D]"), col("x") > np.timedelta64(1, "ns"), [0]),
        (np.array([1, 2], "m8[h]"), col("x") > datetime.timedelta(minutes=90), [1]),
        (np.array([1, 2], "m8[h]"), col("x") == pd.Timedelta(hours=2), [1]),
        (np.array([13, 11], "m8[M]"), col("x") > np.timedelta64(1, "Y"), [0]),
        (np.array([3, 5], "m8"), col("x") > np.timedelta64(4, "s"), [1]),
    ],
    ids=repr,
)
def test_times_beyond_the_range_of_a_unit(stored: np.ndarray, expr: Expr, expected: list[int]) -> None:
    assert rows(expr, x=stored) == expected


@settings(max_examples=200, deadline=None)
@given(
    left=st.sampled_from(["W", "D", "h", "s", "ns", "25s", "10s", "as"]),
    right=st.sampled_from(["W", "D", "h", "s", "ns", "25s", "10s", "as"]),
    data=st.data(),
    name=st.sampled_from(list(OPERATORS)),
)
def test_two_time_columns_compare_exactly_across_units(
    left: str, right: str, data: st.DataObject, name: Any
) -> None:
    from colstore_io.predicate.times import linear_step

    cells = st.one_of(st.integers(-(2**63) + 1, 2**63 - 1), st.integers(-50, 50), st.just(None))
    pairs = data.draw(st.lists(st.tuples(cells, cells), max_size=5))
    nat = -(2**63)
    a = np.array([nat if p is None else p for p, _ in pairs], "i8").view(f"m8[{left}]")
    b = np.array([nat if q is None else q for _, q in pairs], "i8").view(f"m8[{right}]")
    steps = linear_step(a.dtype), linear_step(b.dtype)
    assert all(isinstance(step, Fraction) for step in steps)
    expected = [
        name == "not_equal" if p is None or q is None else OPERATORS[name](p * steps[0], q * steps[1])  # type: ignore[operator]
        for p, q in pairs
    ]
    assert compare_times(name, a, b).tolist() == expected


def test_dates_compare_with_months() -> None:
    days = np.array(["2020-01-31", "2020-02-01", "NaT"], "M8[D]")
    months = np.array(["2020-02", "2020-02", "2020-02"], "M8[M]")
    assert rows(col("d") < col("m"), d=days, m=months) == [0]
    assert rows(col("d") == col("m"), d=days, m=months) == [1]
    assert rows(col("d") != col("m"), d=days, m=months) == [0, 2]


@pytest.mark.parametrize(
    ("tz", "literal", "message"),
    [
        (None, pd.Timestamp("2020-01-01", tz="UTC"), "has a time zone"),
        (None, "2020-01-01T00:00+01:00", "has a time zone"),
        ("Europe/Prague", datetime.datetime(2020, 1, 1), "no time zone"),
        ("Europe/Prague", pd.Timestamp("2020-01-01"), "no time zone"),
        ("Nowhere/Land", "2020-01-01", "UTC offset"),
        ("../../etc/passwd", "2020-01-01", "UTC offset"),
    ],
)
def test_times_with_and_without_a_zone_do_not_mix(tz: str | None, literal: object, message: str) -> None:
    schema = Schema((Field("x", np.dtype("M8[us]"), tz=tz),))
    with pytest.raises(QueryError, match=message):
        bind(col("x") > literal, schema)


@pytest.mark.parametrize(
    ("tz", "literal"),
    [
        ("Europe/Prague", np.datetime64("2020-07-01")),  # NumPy's times are UTC, as the stored values are
        ("Europe/Prague", "2020-07-01T02:00"),
        ("Europe/Prague", "2020-06-30T19:00-05"),
        ("+02:00", "2020-07-01T02:00"),
        ("UTC", "2020-07-01"),
        ("Nowhere/Land", "2020-07-01T00:00Z"),
        ("UTC", pd.Timestamp("2020-07-01T02:00", tz="Europe/Prague")),
        ("UTC", datetime.datetime(2020, 7, 1, tzinfo=datetime.UTC)),
    ],
    ids=repr,
)
def test_zoned_columns_compare_in_utc(tz: str, literal: object) -> None:
    schema = Schema((Field("x", np.dtype("M8[s]"), tz=tz),))
    values = np.array(["2020-07-01T00:00:00", "2020-07-01T00:00:01"], "M8[s]")
    assert bind(col("x") == literal, schema).mask({"x": ColumnValues(values)}).tolist() == [True, False]


def test_unitless_times_and_mixed_months_are_refused() -> None:
    with pytest.raises(QueryError, match="months have no length"):
        rows(col("x") > np.timedelta64(1, "M"), x=np.array([1], "m8[D]"))
    with pytest.raises(QueryError, match="cannot be compared"):
        rows(col("x") > col("y"), x=np.array([1], "m8[D]"), y=np.array([1], "m8[M]"))
