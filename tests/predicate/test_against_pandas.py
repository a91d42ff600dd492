"""Predicates give the rows that pandas gives, missing values included."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colstore_io.fields import Field, Schema
from colstore_io.predicate import ColumnValues, Expr, bind, col

STRINGS = ["", "a", "ab", "b", "é", "zz", "\U0001f600"]
INTS = [-(2**62), -7, -1, 0, 1, 2, 3, 9, 2**62]
FLOATS = [-np.inf, -2.5, -0.0, 0.0, 0.5, 1.0, 3.0, np.inf]
TIMES = ["1969-12-31T23:59:59", "1970-01-01", "2020-02-29T12:00:00.000001", "2021-01-01", "2262-01-01"]

SCHEMA = Schema(
    (
        Field("f", np.dtype("f8")),
        Field("g", np.dtype("f4")),
        Field("i", np.dtype("i8")),
        Field("u", np.dtype("u8")),
        Field("b", np.dtype("?")),
        Field("d", np.dtype("M8[us]")),
        Field("I", np.dtype("i8"), validity="I.valid"),
        Field("B", np.dtype("?"), validity="B.valid"),
        Field("F", np.dtype("f8"), validity="F.valid"),
        Field("s", np.dtype("U2"), validity="s.valid", logical="string"),
        Field("t", np.dtype("U2"), validity="t.valid", logical="string"),
    )
)


def some(values: list[Any], missing: object) -> st.SearchStrategy[Any]:
    return st.one_of(st.sampled_from(values), st.just(missing))


ROW = st.tuples(
    some(FLOATS, np.nan),
    some([0.1, 1.0, 16777216.0, -3.5], np.nan),
    st.sampled_from(INTS),
    st.sampled_from([0, 1, 3, 2**63, 2**64 - 1]),
    st.booleans(),
    some(TIMES, None),
    some(INTS, pd.NA),
    some([True, False], pd.NA),
    some([-2.5, 0.0, 1.0, np.inf], pd.NA),
    some(STRINGS, pd.NA),
    some(STRINGS, None),
)


def frame_of(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    f, g, i, u, b, d, nullable_i, nullable_b, nullable_f, s, t = columns
    return pd.DataFrame(
        {
            "f": np.array(f, "f8"),
            "g": np.array(g, "f4"),
            "i": np.array(i, "i8"),
            "u": np.array(u, "u8"),
            "b": np.array(b, "?"),
            "d": np.array([np.datetime64("NaT") if x is None else np.datetime64(x) for x in d], "M8[us]"),
            "I": pd.array(list(nullable_i), dtype="Int64"),
            "B": pd.array(list(nullable_b), dtype="boolean"),
            "F": pd.array(list(nullable_f), dtype="Float64"),
            "s": pd.array(list(s), dtype="string[pyarrow]"),
            "t": pd.array(list(t), dtype="str"),
        }
    )


def values_of(frame: pd.DataFrame) -> dict[str, ColumnValues]:
    """The buffers a reader would hand over: zeros under nulls."""
    result = {}
    for field in SCHEMA:
        series = frame[field.name]
        if not field.nullable:
            result[field.name] = ColumnValues(series.to_numpy())
            continue
        valid = series.notna().to_numpy(dtype=bool)
        filler: Any = "" if field.dtype.kind == "U" else 0
        data = [value if ok else filler for value, ok in zip(series, valid, strict=True)]
        rule: Any = "nan" if field.name == "t" else "na"
        result[field.name] = ColumnValues(np.array(data, dtype=field.dtype), valid, rule)
    return result


@dataclass
class Case:
    """The same predicate twice."""

    expr: Expr
    pandas: Callable[[pd.DataFrame], pd.Series]


LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "f": st.sampled_from([*FLOATS, 0, 3, True, np.float32(0.5), np.nan, -1]),
    "g": st.sampled_from([0.1, np.float64(0.1), np.float32(0.1), 1, 16777217, np.int64(16777217), np.nan]),
    "i": st.sampled_from(
        [*INTS, 2.5, -0.5, np.nan, np.inf, -np.inf, 2**70, -(2**70), True, np.int8(3), np.uint64(2)]
    ),
    "u": st.sampled_from([-1, 0, 3, 2**63, 2**64 - 1, 2**64, 1.5, np.nan, np.int64(-5)]),
    "b": st.sampled_from([True, False, 0, 1, 2, 0.5, -1]),
    "d": st.one_of(
        st.sampled_from(TIMES),
        st.sampled_from(TIMES).map(pd.Timestamp),
        st.sampled_from(TIMES).map(lambda text: pd.Timestamp(text).to_pydatetime()),
        st.sampled_from(["2020-02-29T12:00:00.000001", "2021-01-01T00", "1600-01-01"]).map(np.datetime64),
    ),
    "I": st.sampled_from([*INTS, 2.5, np.nan, 2**70, -(2**70), True]),
    "B": st.sampled_from([True, False, 0, 1]),
    "F": st.sampled_from([-2.5, 0.0, 0, 1, 0.5, np.nan, np.inf]),
    "s": st.sampled_from(STRINGS),
    "t": st.sampled_from(STRINGS),
}
OPERATORS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
PAIRS = [
    ("f", "i"),
    ("g", "f"),
    ("i", "u"),
    ("I", "i"),
    ("F", "F"),
    ("s", "s"),
    ("t", "t"),
    ("d", "d"),
    ("I", "I"),
]


@st.composite
def leaves(draw: st.DrawFn) -> Case:
    kind = draw(
        st.sampled_from(
            ["compare", "flipped", "pair", "isin", "between", "isna", "bool", "arithmetic", "ufunc"]
        )
    )
    if kind == "bool":
        name = draw(st.sampled_from(["b", "B"]))
        return Case(col(name), lambda frame: frame[name])
    if kind == "pair":
        a, b = draw(st.sampled_from(PAIRS))
        op = draw(st.sampled_from(OPERATORS))
        return Case(op(col(a), col(b)), lambda frame: op(frame[a], frame[b]))
    if kind == "arithmetic":
        name = draw(st.sampled_from(["f", "i", "I", "F"]))
        op = draw(st.sampled_from(OPERATORS))
        function = draw(
            st.sampled_from(
                [
                    lambda x: x + 1,
                    lambda x: 2 - x,
                    lambda x: x * 3,
                    lambda x: x / 2,
                    lambda x: abs(x),
                    lambda x: -x,
                    lambda x: x**0,
                    lambda x: x - x,
                    lambda x: x / x,
                ]
            )
        )
        bound = draw(st.sampled_from([-1, 0, 1, 2.5]))
        return Case(op(function(col(name)), bound), lambda frame: op(function(frame[name]), bound))
    if kind == "ufunc":
        name = draw(st.sampled_from(["f", "I", "F"]))
        function = draw(st.sampled_from([np.sqrt, np.floor, np.sign, np.abs, np.isnan, np.log1p]))
        op = draw(st.sampled_from(OPERATORS))
        return Case(op(function(col(name)), 1), lambda frame: op(function(frame[name]), 1))
    name = draw(st.sampled_from(list(LITERALS)))
    if kind == "isna":
        if draw(st.booleans()):
            return Case(col(name).isna(), lambda frame: frame[name].isna())
        return Case(col(name).notna(), lambda frame: frame[name].notna())
    if kind == "isin":
        names = [n for n in LITERALS if n not in "d"]  # text dates in isin are an extension over pandas
        name = draw(st.sampled_from(names))
        members = draw(st.lists(LITERALS[name], max_size=12))
        if name in "uiIg":  # beyond these pandas goes through float64 and is not exact
            members = [m for m in members if not isinstance(m, float | np.floating) and abs(m) < 2**63 - 1]
        members = draw(st.sampled_from([members, [*members, pd.NA]] if name != "g" else [members]))
        return Case(col(name).isin(members), lambda frame: frame[name].isin(members))
    if kind == "between":
        low, high = draw(LITERALS[name]), draw(LITERALS[name])
        inclusive: Any = draw(st.sampled_from(["both", "neither", "left", "right"]))
        return Case(
            col(name).between(low, high, inclusive),
            lambda frame: frame[name].between(low, high, inclusive=inclusive),
        )
    op = draw(st.sampled_from(OPERATORS))
    literal = draw(LITERALS[name])
    if kind == "flipped" and not isinstance(literal, np.datetime64):
        return Case(op(literal, col(name)), lambda frame: op(literal, frame[name]))
    return Case(op(col(name), literal), lambda frame: op(frame[name], literal))


def three_valued(result: pd.Series) -> pd.Series:
    """Bring bool, boolean and bool[pyarrow] together, so that they combine by Kleene's rules."""
    return pd.Series(
        pd.array(result.array.to_numpy(dtype=object, na_value=pd.NA), dtype="boolean"), index=result.index
    )


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Case:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        leaf = draw(leaves())
        return Case(leaf.expr, lambda frame: three_valued(leaf.pandas(frame)))
    kind = draw(st.sampled_from(["and", "or", "xor", "not"]))
    left = draw(trees(depth=depth - 1))
    if kind == "not":
        return Case(~left.expr, lambda frame: ~left.pandas(frame))
    right = draw(trees(depth=depth - 1))
    op = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[kind]
    return Case(op(left.expr, right.expr), lambda frame: op(left.pandas(frame), right.pandas(frame)))


@pytest.mark.filterwarnings(
    "ignore::RuntimeWarning"
)  # pandas: overflow in casts, invalid values in functions
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=trees(), rows=st.lists(ROW, max_size=12))
def test_random_predicates_select_the_rows_of_pandas(case: Case, rows: list[tuple[Any, ...]]) -> None:
    frame = frame_of(rows)
    expected = case.pandas(frame).fillna(False).to_numpy(dtype=bool)
    got = bind(case.expr, SCHEMA).mask(values_of(frame))
    assert got.tolist() == expected.tolist(), f"{case.expr!r}\n{frame}"


FRAME = frame_of(
    [
        (1.0, 0.1, 1, 0, True, "2020-02-29", 1, True, 1.0, "a", "a"),
        (np.nan, np.nan, 2, 1, False, None, pd.NA, pd.NA, pd.NA, pd.NA, None),
        (2.5, 1.0, 3, 3, True, "2021-01-01", 3, False, 2.5, "b", "b"),
    ]
)


def rows_of(expr: Expr) -> list[int]:
    return np.flatnonzero(bind(expr, SCHEMA).mask(values_of(FRAME))).tolist()


def pandas_rows(result: pd.Series) -> list[int]:
    return np.flatnonzero(three_valued(result).fillna(False).to_numpy(dtype=bool)).tolist()


@pytest.mark.parametrize("op", [operator.eq, operator.ne], ids=["eq", "ne"])
@pytest.mark.parametrize("null", [None, pd.NA, pd.NaT, np.nan], ids=repr)
@pytest.mark.parametrize("name", SCHEMA.names)
def test_equality_with_a_null_literal_agrees_with_pandas(
    name: str, null: object, op: Callable[..., Any]
) -> None:
    assert rows_of(op(col(name), null)) == pandas_rows(op(FRAME[name], null))
    assert rows_of(~op(col(name), null)) == pandas_rows(~three_valued(op(FRAME[name], null)))


@pytest.mark.parametrize(
    "op", [operator.lt, operator.le, operator.gt, operator.ge], ids=lambda op: op.__name__
)
@pytest.mark.parametrize("null", [None, pd.NA, pd.NaT, np.nan], ids=repr)
@pytest.mark.parametrize("name", SCHEMA.names)
def test_order_against_a_null_literal_is_never_true(name: str, null: object, op: Callable[..., Any]) -> None:
    assert rows_of(op(col(name), null)) == []
    try:
        expected = pandas_rows(~three_valued(op(FRAME[name], null)))
    except TypeError:
        return  # pandas refuses some of these
    assert rows_of(~op(col(name), null)) == expected


@pytest.mark.parametrize("null", [None, pd.NA, pd.NaT, np.nan], ids=repr)
@pytest.mark.parametrize("name", SCHEMA.names)
def test_null_members_of_isin_match_what_pandas_matches(name: str, null: object) -> None:
    member = FRAME[name][0]
    for members in ([null], [member, null]):
        assert rows_of(col(name).isin(members)) == pandas_rows(FRAME[name].isin(members)), members
        assert rows_of(~col(name).isin(members)) == pandas_rows(~FRAME[name].isin(members)), members


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("i", ["1", 2, 3.0, 2.5]),
        ("i", [True, b"x"]),
        ("i", ["a", "b"]),
        ("i", [2**70, 1]),
        ("f", ["1", 2.5]),
        ("f", [True]),
        ("g", [0.1, 1]),
        ("g", [np.float32(0.1)]),
        ("b", [1]),
        ("b", [1.0, "True"]),
        ("I", [1.0, 2.5, "3"]),
        ("I", [True]),
        ("B", [0]),
        ("u", [-1, 3]),
        ("s", ["1", b"a"]),
        ("t", ["b", "zz"]),
        ("i", []),
        ("f", []),
        ("d", []),
        ("s", []),
        ("t", []),
        ("d", [pd.Timestamp("2020-02-29"), pd.Timestamp("1999-01-01")]),
    ],
    ids=repr,
)
def test_isin_with_mixed_members_agrees_with_pandas(name: str, members: list[object]) -> None:
    if name == "s" and b"a" in members:
        # Bytes are coerced to the kind of a text column here, as in comparisons; pandas does so in comparisons only.
        assert rows_of(col(name).isin(members)) == [0]
        return
    assert rows_of(col(name).isin(members)) == pandas_rows(FRAME[name].isin(members))


def test_timezone_aware_times_compare_as_in_pandas() -> None:
    field = Field("z", np.dtype("M8[us]"), tz="Europe/Prague")
    stored = np.array(["2020-06-30T21:59:59", "2020-06-30T22:00:00", "2020-07-01T00:00:00", "NaT"], "M8[us]")
    series = pd.Series(stored).dt.tz_localize("UTC").dt.tz_convert("Europe/Prague")
    for literal in (
        "2020-07-01",  # no zone: wall-clock time of the column's zone
        "2020-07-01T00:00:00Z",
        "2020-07-01 02:00+02:00",
        pd.Timestamp("2020-07-01", tz="Europe/Prague"),
        pd.Timestamp("2020-06-30T18:00", tz="America/New_York").to_pydatetime(),
    ):
        for op in OPERATORS:
            got = bind(op(col("z"), literal), Schema((field,))).mask({"z": ColumnValues(stored)})
            assert got.tolist() == op(series, literal).tolist(), (op, literal)
