"""Column expressions: how they are built, what they equal, how they travel, how deep they may be."""

from __future__ import annotations

import operator
import pickle
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from predicates import rows, schema_of

from colstore_io.errors import QueryError
from colstore_io.fields import Field, Schema
from colstore_io.predicate import ColumnValues, Expr, bind, col
from colstore_io.predicate.expression import MAX_DEPTH
from colstore_io.predicate.query import parse_query

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
