"""The forms in which users write conditions: all reach the reader, and none changes what comes out."""

from __future__ import annotations

import re

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.dataframe.dask_expr._expr import DropnaFrame, DropnaSeries, Filter, Query
from dask.dataframe.dask_expr._indexing import Loc
from dask_conditions import CONDITIONS, LITERALS, RandomTables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io.integrations._dask_expr import ReadColstore
from colstore_io.integrations.dask import read_colstore

SETTINGS = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return RandomTables(tmp_path_factory.mktemp("forms"))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Six records of ten rows, with statistics; `i` numbers the rows."""
    path = tmp_path_factory.mktemp("forms") / "t.cstore"
    with cs.create(path, statistics=True) as writer:
        for record in range(6):
            n = np.arange(10)
            writer.write(
                {
                    "i": n + 10 * record,
                    "a": n * 0.5 + record,
                    "f": np.where(n % 3 == 0, np.nan, record),
                    "k": n % 3,
                    "s": np.array(["ab", "c", "d", "e", "f", "g", "h", "i", "j", "k"]),
                    "b": n % 2 == 0,
                    "when": np.datetime64("2024-01-01", "us") + n.astype("m8[D]"),
                }
            )
    return path


def left(expression):
    return [e for e in expression.walk() if isinstance(e, Filter | Query | Loc | DropnaFrame | DropnaSeries)]


def reads(expression):
    return [e for e in expression.walk() if isinstance(e, ReadColstore)]


def check(got, want):
    if isinstance(want, pd.DataFrame):
        pd.testing.assert_frame_equal(got, want)
    elif isinstance(want, pd.Series):
        pd.testing.assert_series_equal(got, want)
    else:
        assert np.isclose(got, want)


# ----------------------------------------------------------------------------------------------------------
# What is moved, in how many partitions it leaves, and which columns are read

FORMS = {
    "df[c]": (lambda f: f[f.i < 5], 1, None),
    "df[c].a": (lambda f: f[f.i < 5].a, 1, ["a"]),
    "df.a[c]": (lambda f: f.a[f.i < 5], 1, ["a"]),
    "df.a[c on a]": (lambda f: f.a[f.a > 8], 2, ["a"]),
    "df[columns][c]": (lambda f: f[["a", "k"]][f.i < 5], 1, ["a", "k"]),
    "df.loc[c]": (lambda f: f.loc[f.i < 5], 1, None),
    "df.loc[c, a]": (lambda f: f.loc[f.i < 5, "a"], 1, ["a"]),
    "df.loc[c, columns]": (lambda f: f.loc[f.i < 5, ["a", "k"]], 1, ["a", "k"]),
    "df.a.loc[c]": (lambda f: f.a.loc[f.i < 5], 1, ["a"]),
    "conjunction": (lambda f: f.a[(f.i < 25) & f.b & ~(f.k == 1)], 3, ["a"]),
    "disjunction": (lambda f: f.a[(f.i < 5) | (f.i >= 55)], 2, ["a"]),
    "twice": (lambda f: (lambda g: g[g.k > 1])(f[f.i < 25]).a, 3, ["a"]),
    "methods": (lambda f: f[f.i.ge(50) & f.k.ne(1)].a, 1, ["a"]),
    "between": (lambda f: f.a[f.i.between(12, 15)], 1, ["a"]),
    "isin": (lambda f: f.a[f.i.isin([3, 4, 55])], 2, ["a"]),
    "isin of times": (lambda f: f.a[f.when.isin([pd.Timestamp("2024-01-03")])], 6, ["a"]),
    "not in": (lambda f: f.a[~f.s.isin(["ab", "c"])], 6, ["a"]),
    "text": (lambda f: f.a[f.s == "ab"], 6, ["a"]),
    "time": (lambda f: f.a[f.when > pd.Timestamp("2024-01-09")], 6, ["a"]),
    "time as text": (lambda f: f.a[f.when <= "2024-01-02"], 6, ["a"]),
    "notnull": (lambda f: f.a[f.f.notnull()], 6, ["a"]),
    "dropna of a subset": (lambda f: f.dropna(subset=["f"]), 6, None),
    "dropna": (lambda f: f[["i", "f"]].dropna(), 6, ["i", "f"]),
    "dropna of a column": (lambda f: f.f.dropna(), 6, ["f"]),
    "query": (lambda f: f.query("i < 5"), 1, None),
    "query and a column": (lambda f: f.query("i < 5 and s == 'ab'").a, 1, ["a"]),
    "query with signs": (lambda f: f.query("i < 15 & k > 1 | i == 30").a, 3, ["a"]),
    "query of a range": (lambda f: f.query("5 < i <= 17").a, 2, ["a"]),
    "query with in": (lambda f: f.query("i in [3, 55] and not b").a, 2, ["a"]),
    "query with not in": (lambda f: f.query("s not in ('ab', 'c') and i < 10").a, 1, ["a"]),
    "query with methods": (lambda f: f.query("f.notnull() and i < 10").a, 1, ["a"]),
    "query of a time": (lambda f: f.query("when < '2024-01-03' and i >= 50").a, 1, ["a"]),
    "query with a local name": (lambda f: f.query("i < @top", local_dict={"top": 5}).a, 1, ["a"]),
    "grouped": (lambda f: f[f.i < 15].groupby("k").a.mean(), 2, ["a", "k"]),
    "mapped": (
        lambda f: (
            f[f.i < 15].k.map(lambda k: k + 1, meta=("k", "i8")) if hasattr(f, "dask") else f[f.i < 15].k + 1
        ),
        2,
        ["k"],
    ),
    "changed": (lambda f: f[f.i < 15].assign(z=lambda g: g.a + 1).z, 2, ["a"]),
}


@pytest.mark.parametrize("form", list(FORMS))
def test_conditions_reach_the_reader_in_whatever_form(path, form):
    make, partitions, columns = FORMS[form]
    df = read_colstore(path, blocksize=None)
    made = make(df)
    expression = made.optimize(fuse=False).expr
    assert left(expression) == []
    (read,) = reads(expression)
    assert len(read._partitions) == partitions
    assert columns is None or read.columns == columns
    check(made.compute(), make(df.compute()))


@pytest.mark.parametrize(
    "make",
    [
        lambda f: f.a[f.i < 5].sum(),
        lambda f: f[["a", "k"]][f.i < 25].mean(),
        lambda f: f.loc[f.i < 5, "a"].max(),
        lambda f: f.query("i > 45").a.count(),
        lambda f: len(f.a[f.i < 5]),
        lambda f: len(f.query("i < 5")),
        lambda f: f.a[f.i < 5].sum() + f.k[f.i > 50].sum(),
    ],
)
def test_reductions_of_filtered_columns(path, make):
    df = read_colstore(path, blocksize=None)
    got = make(df)
    check(got.compute() if hasattr(got, "compute") else got, make(df.compute()))


STAYS = {
    "two columns": "i > k",
    "arithmetic": "k * 2 > 3",
    "a list that is equal": "k == [1, 2]",
    "the index": "index > 3",
    "a method of text": "s.str.startswith('a')",
}


@pytest.mark.parametrize("form", list(STAYS))
def test_queries_that_have_no_translation_stay(path, form):
    df = read_colstore(path, blocksize=None)
    made = df.query(STAYS[form])
    assert len(left(made.optimize(fuse=False).expr)) == 1
    pd.testing.assert_frame_equal(made.compute(), df.compute().query(STAYS[form]))


def test_rows_that_others_need_are_not_dropped(path):
    df = read_colstore(path, blocksize=None)
    whole = df.compute()
    for make in (
        lambda f: f.a[f.i < 25] + f.k,
        lambda f: f.a[f.i < 25] + f.k[f.i < 25],
        lambda f: f.a[f.i < 5] + f.k[f.i > 45],
        lambda f: f.a[f.i < 5].sum() + f.a.sum(),
        lambda f: f.a[f.a > f.a.mean()],
        lambda f: f.query("i < 5").a.sum() + f.a.sum(),
    ):
        check(make(df).compute(), make(whole))
    made = df.a[df.i < 5] + df.k[df.i > 45]
    assert len({e._name for e in reads(made.optimize(fuse=False).expr)}) <= 1


def test_both_sides_of_a_join_are_filtered(path):
    df = read_colstore(path, blocksize=None)
    other = read_colstore(path, columns=["i", "k"], blocksize=None)
    for frames in ((df, df), (df, other)):
        left_side, right_side = frames[0][["i", "a"]], frames[1][["i", "k"]]
        made = left_side[left_side.i < 15].merge(right_side[right_side.i > 12], on="i")
        assert [e for e in made.optimize(fuse=False).expr.walk() if isinstance(e, Filter)] == []
        assert made.compute().sort_values("i").i.tolist() == [13, 14]
    joined = df[["i", "a"]].merge(other, on="i")
    made = joined[joined.i < 12]
    found = reads(made.optimize(fuse=False).expr)
    assert {len(e._partitions) for e in found} == {2}
    assert made.compute().sort_values("i").i.tolist() == list(range(12))


def test_a_concatenation_of_two_selections_keeps_both(path):
    df = read_colstore(path, blocksize=None)
    got = dd.concat([df.a[df.i < 5], df.a[df.i >= 55]]).compute()
    whole = df.compute()
    pd.testing.assert_series_equal(got, pd.concat([whole.a[whole.i < 5], whole.a[whole.i >= 55]]))


def test_conditions_on_categories_that_the_file_knows(tmp_path):
    names = pd.Categorical(["x", "y", None, "x"], categories=["x", "y", "z"])
    cs.store(pd.DataFrame({"c": names, "n": np.arange(4)}), tmp_path / "t.cstore").close()
    df = read_colstore(tmp_path / "t.cstore", categories=["c"])
    whole = df.compute()
    for make in (
        lambda f: f[f.c == "x"],
        lambda f: f[f.c != "x"],
        lambda f: f[f.c == "absent"],
        lambda f: f[f.c.isin(["y"])],
        lambda f: f[f.c.isna()],
    ):
        assert left(make(df).optimize(fuse=False).expr) == []
        pd.testing.assert_frame_equal(make(df).compute(), make(whole))


# ----------------------------------------------------------------------------------------------------------
# Laws

MAKERS = {
    "column": lambda f, c: f["i"][c],
    "other column": lambda f, c: f["nf"][c],
    "columns": lambda f, c: f[["i", "ns"]][c],
    "loc": lambda f, c: f.loc[c],
    "loc of a column": lambda f, c: f.loc[c, "u"],
}


@given(
    number=st.integers(0, 200),
    condition=CONDITIONS,
    form=st.sampled_from(list(MAKERS)),
    blocksize=st.sampled_from([None, 300]),
)
@SETTINGS
def test_every_form_selects_the_rows_that_pandas_selects(tables, number, condition, form, blocksize):
    described, mask = condition
    df = read_colstore(tables[number], blocksize=blocksize)
    whole = df.compute()
    try:
        want = MAKERS[form](whole, mask(whole))
    except TypeError:
        return  # pandas has no such comparison
    got = MAKERS[form](df, mask(df)).compute()
    if isinstance(want, pd.DataFrame):
        pd.testing.assert_frame_equal(got, want, obj=described)
    else:
        pd.testing.assert_series_equal(got, want, obj=described)


@st.composite
def comparisons(draw):
    name = draw(st.sampled_from(["i", "u", "f", "g", "b", "s", "ni", "nf", "ns", "when"]))
    kind = draw(st.sampled_from(["compare", "flipped", "range", "in", "flag", "missing"]))
    if kind == "flag":
        return "b"
    if kind == "missing":
        return f"{name}.{draw(st.sampled_from(['isna', 'notnull']))}()"
    if name == "when":
        literals = st.sampled_from(["2024-01-03", "2024-01-02 12:00:00"])
    else:
        literals = LITERALS[name].map(lambda v: v.item() if isinstance(v, np.generic) else v)
    first, second = draw(literals), draw(literals)
    operator = draw(st.sampled_from(["==", "!="] if name == "b" else ["<", "<=", ">", ">=", "==", "!="]))
    if kind == "in" and name not in ("b", "when"):
        return f"{name} {draw(st.sampled_from(['in', 'not in']))} [{first!r}, {second!r}]"
    if kind == "range" and name not in ("b", "s", "ns"):
        return f"{first!r} <= {name} < {second!r}"
    if kind == "flipped" and name not in ("b",):
        return f"{first!r} {operator} {name}"
    return f"{name} {operator} {first!r}"


QUERIES = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or", "&", "|"]), inner).map(
            lambda t: f"({t[0]}) {t[1]} ({t[2]})"
        ),
        st.tuples(st.sampled_from(["not ", "~"]), inner).map(lambda t: f"{t[0]}({t[1]})"),
    ),
    max_leaves=4,
)


@given(number=st.integers(0, 200), text=QUERIES)
@SETTINGS
def test_queries_select_the_rows_that_pandas_selects(tables, number, text):
    df = read_colstore(tables[number], blocksize=None)
    whole = df.compute()
    try:
        want = whole.query(text)
    except (TypeError, ValueError, NotImplementedError, AttributeError, KeyError):
        return  # pandas cannot answer it
    pd.testing.assert_frame_equal(df.query(text).compute(), want, obj=text)


@given(text=st.text(alphabet="ikab <>=&|~()@`'1.,[]notr", max_size=30))
@SETTINGS
def test_texts_that_are_no_query_are_left_to_pandas(path, text):
    from colstore_io.integrations._dask_query import condition_of_query

    read = read_colstore(path, blocksize=None).optimize(fuse=False).expr
    found = condition_of_query(text, {}, read._translator)
    assert found is None or re.search("[a-z]", text)
