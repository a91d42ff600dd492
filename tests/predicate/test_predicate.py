"""Column expressions, their exact evaluation on buffers, and what they survive."""

from __future__ import annotations

import datetime
import math
import operator
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.errors import QueryError
from colstore_io.fields import Field, Schema
from colstore_io.predicate import ColumnRange, ColumnValues, Expr, Predicate, bind, bind_value, col
from colstore_io.predicate.compare import compare_times
from colstore_io.predicate.expression import MAX_DEPTH
from colstore_io.predicate.query import parse_query
from colstore_io.predicate.times import days_from_civil, month_start, months_floor
from colstore_io.predicate.values import BLOCK_ROWS

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}


def schema_of(**columns: Any) -> Schema:
    return Schema(tuple(Field(name, np.asarray(values).dtype) for name, values in columns.items()))


def rows(expr: Expr, **columns: Any) -> list[int]:
    """Return the positions of the rows of plain columns that match."""
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    mask = bind(expr, schema_of(**arrays)).mask({name: ColumnValues(array) for name, array in arrays.items()})
    assert mask.dtype == np.bool_
    return np.flatnonzero(mask).tolist()


# ---- building --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use", [bool, lambda e: e and True, lambda e: not e, lambda e: e in [1], lambda e: 1 < e < 3]
)
def test_an_expression_has_no_truth_value(use: Callable[[Expr], object]) -> None:
    for kind in (TypeError, QueryError):
        with pytest.raises(kind, match="no truth value"):
            use(col("x"))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda e: col(3), "must be a string"),
        (lambda e: e + np.arange(3), "raw array"),
        (lambda e: np.arange(3) + e, "raw array"),
        (lambda e: e > np.arange(3), "raw array"),
        (lambda e: np.add(e, np.arange(3)), "raw array"),
        (lambda e: e == [1, 2], "list"),
        (lambda e: e == object(), "object"),
        (lambda e: e == 1j, "complex"),
        (lambda e: e.isin({1: 2}), "mapping"),
        (lambda e: e.isin(col("y")), "constants"),
        (lambda e: e.isin([[1]]), "list"),
        (lambda e: np.add.reduce(e), "reduction or accumulation"),
        (lambda e: np.add.outer(e, 1), "reduction or accumulation"),
        (lambda e: np.matmul(e, e), "generalized ufunc"),
        (lambda e: np.modf(e), "2 outputs"),
        (lambda e: np.add(e, 1, out=np.zeros(3)), "out="),
        (lambda e: np.sum(e), "numpy.sum is not supported"),
        (lambda e: np.where(e), "both branches"),
        (lambda e: np.frompyfunc(lambda v: v, 1, 1)(e), "imported by name"),
        (lambda e: np.asarray(e), "holds no data"),
        (lambda e: list(e), "cannot be iterated"),
        (lambda e: e.round(1.5), "must be an integer"),
        (lambda e: e << 1, "unsupported operand"),
    ],
)
def test_what_is_not_elementwise_is_a_type_error(use: Callable[[Expr], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        use(col("x"))


def test_operators_ufuncs_and_reflected_forms_build_the_same_tree() -> None:
    x = col("x")
    assert (x + 1).equals(np.add(x, 1))
    assert (np.float64(2) * x).equals(np.multiply(np.float64(2), x))
    assert abs(x).equals(np.abs(x))
    assert (x > 3).equals(x > 3)  # Python flips it
    assert np.less(3, x).equals(parse_query("3 < x", columns=["x"]))
    assert np.isin(x, [1]).equals(x.isin([1]))
    assert np.isin(x, [1], invert=True).equals(~x.isin([1]))
    assert np.round(x, 2).equals(x.round(2))
    assert np.clip(x, 0, 1).equals(x.clip(0, 1))
    assert not (x + 1).equals(x + 1.0)
    assert not (x + 1).equals(3)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (100 - col("x") > 97, [0, 1, 2]),
        (6 // (col("x") + 1) == 3, [1]),
        (7 % (col("x") + 1) == 1, [1, 2, 5]),
        (2 ** col("x") > 8, [4, 5]),
        (1 / (col("x") + 1) == 0.5, [1]),
        (abs(col("x") - 3) <= 1, [2, 3, 4]),
        (+col("x") > -col("x"), [1, 2, 3, 4, 5]),
        (col("x").between(1, 3), [1, 2, 3]),
        (col("x").between(1, 3, inclusive="neither"), [2]),
        (col("x").between(1, 3, inclusive="left"), [1, 2]),
        (col("x").between(1, 3, "right"), [2, 3]),
        (np.where(col("x") > 2, col("x"), -1) == -1, [0, 1, 2]),
        (np.clip(col("x"), 2, None) == 2, [0, 1, 2]),
        (np.clip(col("x"), max=3) == 3, [3, 4, 5]),
        (np.sqrt(col("x")) > 2, [5]),
        (np.maximum(col("x"), 4) == 4, [0, 1, 2, 3, 4]),
        ((col("x") / 4).round() == 1, [3, 4, 5]),
        (col("x").astype("f4") / 2 == 1.5, [3]),
        (col("x").where(col("x") > 2, 0) == 0, [0, 1, 2]),
        (col("x").where(col("x") > 2).isna(), [0, 1, 2]),
        (np.logical_and(col("x"), col("x") < 3), [1, 2]),
        (np.logical_xor(col("x") > 1, col("x") > 3), [2, 3]),
        ((col("x") & 1) == 1, [1, 3, 5]),
        ((col("x") & 5 & 4) == 4, [4, 5]),
        ((col("x") > 1) == (col("x") > 3), [0, 1, 4, 5]),
        ((col("x") > 3) == True, [4, 5]),  # noqa: E712
        ((col("x") > 3) & True, [4, 5]),
        ((col("x") > 3) | np.True_, [0, 1, 2, 3, 4, 5]),
        ((col("x") > 3) & (col("x") < 5) & (col("x") != 9), [4]),
        (col("x") + np.array(0) > 4, [5]),
    ],
    ids=repr,
)
def test_expressions_select_rows(expr: Expr, expected: list[int]) -> None:
    assert rows(expr, x=np.arange(6)) == expected


def test_between_refuses_another_word() -> None:
    with pytest.raises(ValueError, match="inclusive"):
        col("x").between(1, 2, "all")  # type: ignore[arg-type]


def test_expressions_are_immutable() -> None:
    with pytest.raises(AttributeError):
        col("x").name = "y"  # type: ignore[attr-defined]


# ---- structure, tokens, text -----------------------------------------------------------------------------------------

SOME = [
    col("x") > 3,
    col("a b") == "it's",
    (col("x") > 3) & ~col("b") | (col("y") != -2.5),
    col("x").isin([1, None, "a", -1.5, b"x", True]),
    ~col("x").isin([np.int64(1), pd.NA, pd.NaT, float("nan")]),
    col("x").isna(),
    col("x").notna() ^ col("b"),
    np.sqrt(abs(col("x") - 1) ** 2) / 3 // 2 % 7 > np.float32(0.1),
    np.where(col("b"), col("x"), 0).round(2).clip(None, 3) <= float("inf"),
    col("d") >= np.datetime64("2020-01-01T12", "s"),
    col("d") < pd.Timestamp("2020-01-01", tz="Europe/Prague"),
    col("d") - np.datetime64("2020-01-01") > np.timedelta64(3, "D"),
    col("x").astype("<f4") == 0.1,
    parse_query("0 < x <= 5 and not b or x in [1, 2] and y not in ('a',)", columns=["x", "b", "y"]),
    parse_query("-x ** 2 < -3 and ~(x & 3) == 1", columns=["x"]),
]


@pytest.mark.parametrize("expr", SOME, ids=repr)
def test_repr_rebuilds_the_expression(expr: Expr) -> None:
    rebuilt = eval(repr(expr), {"col": col, "np": np, "pd": pd})
    assert repr(rebuilt) == repr(expr)
    if "Z'" not in repr(expr):  # an aware time is printed as text
        assert rebuilt.equals(expr)


@pytest.mark.parametrize("expr", [SOME[0], SOME[2], SOME[13], SOME[14]], ids=str)
def test_str_is_query_text_where_the_grammar_suffices(expr: Expr) -> None:
    text = str(expr)
    assert "col(" not in text
    assert parse_query(text, columns=expr.columns).equals(expr)


def test_structure_decides_hash_and_token() -> None:
    tokens = {expr.token() for expr in SOME}
    assert len(tokens) == len(SOME)
    again = (col("x") > 3) & ~col("b") | (col("y") != -2.5)
    assert hash(again) == hash(SOME[2])
    assert (col("x") == 0.0).token() != (col("x") == -0.0).token()
    assert (col("x") == 1).token() != (col("x") == True).token()  # noqa: E712
    assert col("x").isin({"a", "b", "c"}).equals(col("x").isin({"c", "a", "b"}))
    assert not col("x").isin(["a", "b"]).equals(col("x").isin(["a\x1fb"]))


def test_tokens_are_the_same_in_another_process() -> None:
    code = (
        "from colstore_io.predicate import col; import numpy as np;"
        "print(((col('x') > 3) & col('y').isin({'a', 'b', 'c', 'd'}) | (np.sqrt(col('z')) < np.float32(2))).token())"
    )
    here = (
        (col("x") > 3) & col("y").isin({"a", "b", "c", "d"}) | (np.sqrt(col("z")) < np.float32(2))
    ).token()
    path = str(__import__("pathlib").Path(__import__("colstore_io").__file__).parents[1])
    out = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "77"},
    )
    assert out.stdout.strip() == here


def test_dask_tokenizes_expressions_and_predicates_by_structure() -> None:
    base = pytest.importorskip("dask.base")
    schema = schema_of(x=np.arange(3))
    assert base.tokenize(col("x") > 3) == base.tokenize(col("x") > 3)
    assert base.tokenize(col("x") > 3) != base.tokenize(col("x") > 4)
    assert base.tokenize(bind(col("x") > 3, schema)) == base.tokenize(bind(col("x") > 3, schema))
    other = schema_of(x=np.arange(3.0))
    assert base.tokenize(bind(col("x") > 3, schema)) != base.tokenize(bind(col("x") > 3, other))


@pytest.mark.parametrize("expr", SOME, ids=repr)
def test_expressions_pickle(expr: Expr) -> None:
    assert pickle.loads(pickle.dumps(expr)).equals(expr)


def test_predicates_pickle_small_and_compare_by_structure() -> None:
    attrs = {"note": "x" * 10_000}
    schema = Schema(
        (Field("x", np.dtype("i8"), attrs=attrs), *(Field(f"c{i}", np.dtype("f8")) for i in range(500)))
    )
    predicate = bind((col("x") > 3) & (col("c7") < 1), schema)
    payload = pickle.dumps(predicate)
    assert len(payload) < 1000
    copy = pickle.loads(payload)
    assert copy == predicate
    assert hash(copy) == hash(predicate)
    assert copy != bind(col("x") > 3, schema)
    assert predicate.columns == ("x", "c7")
    values = {"x": ColumnValues(np.array([3, 4])), "c7": ColumnValues(np.array([0.0, 0.0]))}
    assert copy.mask(values).tolist() == [False, True]
    assert repr(copy) == "Predicate('(x > 3) & (c7 < 1)')"


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_deep_expressions_are_refused_and_the_deepest_allowed_works() -> None:
    expr = col("x")
    for _ in range(MAX_DEPTH - 2):
        expr = expr + 1
    predicate = bind(expr > 0, schema_of(x=np.arange(3)))
    assert pickle.loads(pickle.dumps(predicate)) == predicate
    assert predicate.mask({"x": ColumnValues(np.array([-200, 0]))}).tolist() == [False, True]
    assert "x" in repr(predicate)
    with pytest.raises(QueryError, match="levels deep"):
        (expr + 1) + 1 > 0  # noqa: B015


def test_long_chains_are_flat() -> None:
    expr = col("x") == 0
    for value in range(2, 3000, 2):
        expr = expr | (col("x") == value)
    assert rows(expr, x=np.arange(6)) == [0, 2, 4]


def test_an_expression_that_doubles_itself_is_refused() -> None:
    def double(expr: Expr, op: Callable[[Expr, Expr], Expr]) -> None:
        for _ in range(40):
            expr = op(expr, expr)

    for expr, op in ((col("x") + 1, operator.add), (col("b") & col("c"), operator.and_)):
        with pytest.raises(QueryError, match="operations"):
            double(expr, op)


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


# ---- times -----------------------------------------------------------------------------------------------------------

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


# ---- buffers ---------------------------------------------------------------------------------------------------------


def test_foreign_byte_order_strides_and_unaligned_values_are_read() -> None:
    schema = Schema(
        (Field("x", np.dtype(">i4")), Field("d", np.dtype(">M8[s]")), Field("t", np.dtype(">U2")))
    )
    packed = np.zeros(6, np.dtype([("pad", "u1"), ("x", ">i4"), ("d", ">M8[s]"), ("t", ">U2")]))
    packed["x"], packed["d"], packed["t"] = np.arange(6), np.arange(6), list("abcdef")
    values = {name: ColumnValues(packed[name]) for name in ("x", "d", "t")}
    for expr in (
        col("x") > 3,
        col("x").isin(range(4, 40)),
        col("x").isin([4, 5, 10**7, *range(20, 40)]),
        (col("x") >= 4) & (col("t") != "z"),
        col("d") > np.datetime64(3, "s"),
        col("d").isin([np.datetime64(4, "s"), np.datetime64(5, "s")]),
        col("t") > "d",
        col("t").isin(["e", "f"]),
        col("x") * 1 > 3,
    ):
        assert bind(expr, schema).mask(values).tolist() == [False] * 4 + [True] * 2, expr


def test_bools_of_a_file_may_hold_any_byte() -> None:
    flags = np.array([0, 1, 2, 255], "u1").view(np.bool_)
    values = {"b": ColumnValues(flags), "n": ColumnValues(np.arange(4), flags, "na")}
    schema = Schema((Field("b", np.dtype("?")), Field("n", np.dtype("i8"), validity="n.valid")))
    for expr, expected in (
        (col("b"), [1, 2, 3]),
        (~col("b"), [0]),
        (col("b") == True, [1, 2, 3]),  # noqa: E712
        (col("b") & col("b"), [1, 2, 3]),
        (col("b").isin([True]), [1, 2, 3]),
        (col("n") >= 0, [1, 2, 3]),
        (col("n").isna(), [0]),
    ):
        mask = bind(expr, schema).mask(values)
        assert np.flatnonzero(mask).tolist() == expected, expr
        assert set(mask.view("u1").tolist()) <= {0, 1}


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({}, ValueError, "'x' are missing"),
        ({"x": np.arange(3.0), "y": np.arange(3)}, TypeError, "bound to int64"),
        ({"x": np.arange(3, dtype="i4"), "y": np.arange(3)}, TypeError, "bound to int64"),
        ({"x": np.arange(3), "y": np.arange(4)}, ValueError, "'y' has shape"),
        ({"x": np.zeros((3, 1), "i8"), "y": np.arange(3)}, ValueError, "'x' has shape"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(
    values: dict[str, np.ndarray], error: type[Exception], message: str
) -> None:
    predicate = bind((col("x") > 1) & (col("y") > 1), schema_of(x=np.arange(1), y=np.arange(1)))
    with pytest.raises(error, match=message):
        predicate.mask({name: ColumnValues(array) for name, array in values.items()})


def test_a_validity_of_the_wrong_length_is_refused() -> None:
    predicate = bind(col("x") > 1, Schema((Field("x", np.dtype("i8"), validity="x.valid"),)))
    with pytest.raises(ValueError, match="validity of column 'x'"):
        predicate.mask({"x": ColumnValues(np.arange(3), np.ones(2, bool), "na")})


def test_values_are_not_modified_and_masks_are_new() -> None:
    values = np.arange(5)
    values.setflags(write=False)
    flags = np.array([True, False, True, False, True])
    flags.setflags(write=False)
    predicate = bind(col("b"), schema_of(b=flags))
    mask = predicate.mask({"b": ColumnValues(flags)})
    assert mask.flags.writeable
    assert not np.shares_memory(mask, flags)


def test_no_rows_give_an_empty_mask() -> None:
    for expr in (col("x") > 1, (col("x") > 1) & ~(col("x") == 2), col("x").isin([1]), col("x") + 1 > 2):
        assert rows(expr, x=np.empty(0, "i8")) == []


def test_errors_that_only_values_reveal_are_query_errors() -> None:
    with pytest.raises(QueryError, match="negative integer powers"):
        rows(2 ** col("x") > 0, x=np.array([-1]))


def test_arithmetic_is_silent_about_zero_and_overflow() -> None:
    assert rows(1 / col("x") > 10, x=np.array([0, 1])) == [0]
    assert rows(np.log(col("x")) < 0, x=np.array([0.0, -1.0])) == [0]


def test_blocks_join_without_a_seam() -> None:
    n_rows = 2 * BLOCK_ROWS + 17
    x, y = np.arange(n_rows), np.arange(n_rows)[::-1]
    expr = (col("x") % 3 == 0) & (col("y") % 2 == 0) | (col("x") == n_rows - 1)
    expected = np.flatnonzero((x % 3 == 0) & (y % 2 == 0) | (x == n_rows - 1)).tolist()
    assert rows(expr, x=x, y=y) == expected


@pytest.mark.parametrize(
    "expr",
    [
        col("x") > 2.5,
        (col("x") > 5) & (col("y") < 3) & (col("x") * 2 + 1 > col("y")),
        col("x").isin(list(range(0, 10**6, 1000))) | ~(col("y") == 3),
    ],
    ids=repr,
)
def test_memory_does_not_grow_with_the_rows(expr: Expr) -> None:
    """Beyond the mask itself a fixed number of blocks is in use."""
    n_rows = 4_000_000
    values = {"x": ColumnValues(np.arange(n_rows)), "y": ColumnValues(np.ones(n_rows))}
    predicate = bind(expr, schema_of(x=np.empty(0, "i8"), y=np.empty(0)))
    predicate.mask({name: ColumnValues(column.values[:10]) for name, column in values.items()})
    tracemalloc.start()
    try:
        predicate.mask(values)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - n_rows < 24 * BLOCK_ROWS * 8 / 4


# ---- nulls by rule ---------------------------------------------------------------------------------------------------

NULLABLE = Schema(
    (Field("a", np.dtype("?"), validity="a.valid"), Field("b", np.dtype("?"), validity="b.valid"))
)
TRUTH = [True, False, None]


@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_kleene_logic(name: str) -> None:
    """``na & False`` is false, ``na | True`` is true, and NA rows are dropped, also after a negation."""
    pairs = [(a, b) for a in TRUTH for b in TRUTH]
    values = {
        key: ColumnValues(
            np.array([bool(pair[k]) for pair in pairs]),
            np.array([pair[k] is not None for pair in pairs]),
            "na",
        )
        for k, key in enumerate("ab")
    }

    def kleene(a: bool | None, b: bool | None) -> bool | None:
        if name == "xor":
            return None if a is None or b is None else a ^ b
        dominant = name == "or"
        if dominant in (a, b):
            return dominant
        return None if None in (a, b) else not dominant

    op = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[name]
    expr = op(col("a"), col("b"))
    assert bind(expr, NULLABLE).mask(values).tolist() == [kleene(*pair) is True for pair in pairs]
    assert bind(~expr, NULLABLE).mask(values).tolist() == [kleene(*pair) is False for pair in pairs]
    assert bind(~~expr, NULLABLE).mask(values).tolist() == [kleene(*pair) is True for pair in pairs]
    assert bind((~expr) | expr, NULLABLE).mask(values).tolist() == [
        kleene(*pair) is not None for pair in pairs
    ]


def test_where_is_missing_where_its_condition_is() -> None:
    schema = Schema((Field("a", np.dtype("?"), validity="a.valid"), Field("x", np.dtype("i8"))))
    values = {
        "a": ColumnValues(np.array([True, False, False]), np.array([True, True, False]), "na"),
        "x": ColumnValues(np.array([1, 2, 3])),
    }
    expr = np.where(col("a"), col("x"), -1)
    assert bind(expr == -1, schema).mask(values).tolist() == [False, True, False]
    assert bind(expr != -1, schema).mask(values).tolist() == [True, False, False]
    assert bind(expr.isna(), schema).mask(values).tolist() == [False, False, True]


# ---- ranges ----------------------------------------------------------------------------------------------------------


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


# ---- values ----------------------------------------------------------------------------------------------------------


def test_value_expressions_are_computed_with_their_nulls() -> None:
    schema = Schema((Field("x", np.dtype("f8")), Field("n", np.dtype("i8"), validity="n.valid")))
    bound = bind_value(col("x") * 2 + col("n"), schema)
    assert bound.dtype == np.dtype("f8")
    assert bound.columns == ("x", "n")
    values = {
        "x": ColumnValues(np.array([1.0, 2.0])),
        "n": ColumnValues(np.array([5, 0]), np.array([True, False]), "na"),
    }
    result = bound.evaluate(values)
    assert result.values[0] == 7
    assert result.validity is not None
    assert result.validity.tolist() == [True, False]
    assert result.nulls == "na"


def test_binding_needs_an_expression_with_a_column() -> None:
    with pytest.raises(TypeError, match="expected a column expression"):
        bind("x > 3", schema_of(x=np.arange(1)))  # type: ignore[arg-type]
    assert isinstance(bind(col("x") > 0, schema_of(x=np.arange(1))), Predicate)


def test_predicates_import_no_optional_library() -> None:
    code = (
        "import sys; import colstore_io.predicate.query, colstore_io.predicate;"
        "print([m for m in ('pandas', 'pyarrow', 'dask', 'xarray') if m in sys.modules])"
    )
    path = str(__import__("pathlib").Path(__import__("colstore_io").__file__).parents[1])
    out = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == "[]"


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
