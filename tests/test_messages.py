"""What errors say of what a user gave: the thing itself, what there is instead, and what to do. One table."""

from __future__ import annotations

import decimal
import re

import numpy as np
import pytest

import colstore_io as cs
from colstore_io import col
from colstore_io.predicate.query import from_dnf


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("messages") / "a.cstore"
    columns = {"x": np.arange(5), "f": np.arange(5.0), "name": np.array(list("abcde"))}
    cs.store({**columns, "t": np.arange(5).astype("M8[s]"), "d": np.arange(5).astype("m8[s]")}, path)
    with cs.open(path) as opened:
        yield opened


QUERIES = [
    ("x << 2 > 1", r"operator << is not supported; there are \+ - \*"),
    ("x @ 2 > 1", r"operator @ is not supported; there are"),
    ("x is None", r"comparison 'is' is not supported; use == or !=, .*isna\(\)"),
    ("x is not None", r"comparison 'is not' is not supported; use == or !="),
    ("x > 3j", r"constant 3j is not supported; use a number"),
    ("x > ...", r"constant \.\.\. is not supported; use a number"),
    ("x > 0 and not 'a'", r"cannot apply not to the constant 'a'; it takes True and False"),
    ("x > -'a'", r"cannot apply - to the constant 'a'; it takes numbers"),
    ("x == ~1.5", r"cannot apply ~ to the constant 1.5; it takes integers"),
    ("x > 1.5 & 2", r"& \| \^ take integers, got 1.5 and 2"),
    ("x > 'a' + 'b'", r"constants 'a' and 'b' is not supported, only between numbers; write the result"),
    ("x > 1 / 0", r"division by zero; write its value"),
    ("x = 3", r"write '==' to compare"),
    ("x <> 3", r"write '!=' for '<>'"),
    ("x === 3", r"write '==' for '==='"),
    ("x > 3 && x < 5", r"write 'and' for '&&'"),
    ("x > 3 || x < 5", r"write 'or' for '\|\|'"),
    ("!x", r"write 'not' for '!'"),
    ("x > 3 AND f > 2", r"'and', 'or', 'not' and 'in' in small letters"),
    ("x between 1 and 3", r"write low <= x <= high"),
    ("name like 'a'", r"no patterns of text; compare with =="),
    ("x is missing", r"isna\(\)"),
    ("x > ", r"a query is a condition such as"),
    ("  ", r"the text is empty; a query is a condition such as"),
    ("x == null", r"unknown name 'null'; for missing values use .*isna\(\)"),
    ("x == true", r"unknown name 'true'; write True"),
    ("nme == 'a'", r"unknown name 'nme'; did you mean 'name'"),
    ("(y for y in x)", r"a comprehension is not supported: .*a query is made of"),
    ("abs(x) > 3", r"a call is not supported: abs\(x\); .*where\(\) with col\(\)"),
    ("x in name", r"must hold constants, not columns; compare columns with =="),
    ("3 in x", r"left side of 'in' must reference a column: x in \[1, 2\]"),
    ("x", r"x evaluates to int64: compare it with something"),
    ("x > 1 and name", r"name is text \(<U1\), not a condition; compare it with something"),
    ("x + name > 3", r"add is not defined for number \(int64\) and text \(<U1\); .*astype\('float64'\)"),
    ("-name == 'a'", r"negative is not defined for text \(<U1\)"),
    ("f & x > 1", r"bitwise_and is not defined for number \(float64\) .*compare first"),
    ("t > 3", r"datetime64\[s\]\) cannot be compared with number 3; write a date such as"),
    ("d > 3", r"timedelta64\[s\]\) cannot be compared with number 3; use datetime.timedelta"),
]


@pytest.mark.parametrize(("text", "message"), QUERIES)
def test_refused_query_says_what_is_wrong_and_what_to_write(table, text, message):
    with pytest.raises(cs.QueryError, match=message) as caught:
        len(table.query(text))
    assert text.strip()[:1] in str(caught.value)
    # Names of Python's syntax tree and of NumPy's classes are nobody's business.
    assert not re.search(
        r"MatMult|[LR]Shift|USub|UAdd|IsNot|Ellipsis|\bast\b|numpy\.dtypes|<class|ufunc", str(caught.value)
    )


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: col("x") > [1, 2], TypeError, r"\[1, 2\] of type list .*use \.isin"),
        (
            lambda: col("x") > decimal.Decimal("1.5"),
            TypeError,
            r"Decimal\('1.5'\).*convert it with float\(\)",
        ),
        (lambda: col("x") > np.complex64(1), TypeError, r"complex64 .*use a number"),
        (lambda: col("x").astype("foo") > 1, TypeError, r"astype\(\) takes a dtype of NumPy.*got 'foo'"),
        (
            lambda: col("x").astype(object) > 1,
            cs.QueryError,
            r"cannot cast to object; a predicate takes numbers",
        ),
        (lambda: 3 in col("x"), TypeError, r"use col\(\.\.\.\)\.isin"),
        (lambda: np.sin(col("name")) > 1, cs.QueryError, r"sin is not defined for text"),
        (lambda: np.where(col("x") > 3, col("x"), col("name")) > 1, cs.QueryError, r"must be of one kind"),
        (lambda: from_dnf([("x", "=~", 3)]), cs.QueryError, r"'=~'; use one of =, =="),
        (lambda: from_dnf([]), cs.QueryError, r"non-empty list of .*got \[\]"),
    ],
)
def test_refused_expression_says_what_was_given_and_what_is_taken(table, make, error, message):
    with pytest.raises(error, match=message):
        len(table.where(make()))


@pytest.mark.parametrize("suffix", [".cstore", ".abcd"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "a"], r"'x' mixes objects of the kinds integer, text; .*convert all to one"),
        ([b"a", "a"], r"'x' mixes objects of the kinds bytes, text; .*convert all to one"),
        ([1.5, "a"], r"'x' mixes objects of the kinds float.* text; .*convert all to one"),
        (np.zeros(2, complex), r"'x'.*complex128.*real and imaginary parts as two columns"),
        (np.zeros(2, [("a", "i4")]), r"'x'.*store each of its fields as a column"),
        (np.zeros((2, 2)), r"'x' has 2 dimensions.*split it into several"),
        ([object(), object()], r"'x' holds objects of type object.*convert them"),
        (
            [decimal.Decimal(1)],
            r"'x' holds objects of type decimal.Decimal.*convert them to float64, to text",
        ),
        ((i for i in [1]), r"'x' holds objects of type generator.*make a list of what it yields"),
        ({1, 2}, r"'x' holds objects of type set.*make a list of it"),
        ([2**63 + 1, -1], r"'x' holds integers that do not fit 64 bits; store them as text"),
        ([2**70], r"'x' holds integers that do not fit 64 bits; store them as text"),
        (["\ud800"], r"'x'.*lone surrogate.*replace it|'x'.*lone surrogate.*rename|'x'.*UTF-8"),
    ],
)
def test_refused_data_name_the_column_and_say_what_to_do(tmp_path, suffix, values, message):
    with pytest.raises((TypeError, ValueError), match=message):
        cs.store({"x": values}, tmp_path / f"a{suffix}")
    assert not (tmp_path / f"a{suffix}").exists()


@pytest.mark.parametrize("suffix", [".cstore", ".abcd"])
def test_integers_beyond_int64_keep_their_digits(tmp_path, suffix):
    cs.store({"x": [2**63 + 1, 1]}, tmp_path / f"a{suffix}")
    with cs.open(tmp_path / f"a{suffix}") as opened:
        assert opened["x"].array().tolist() == [2**63 + 1, 1]


@pytest.mark.parametrize("suffix", [".cstore", ".abcd"])
def test_home_directory_is_the_same_for_reading_and_writing(tmp_path, monkeypatch, suffix):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    cs.store({"x": [1]}, f"~/a{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == [f"a{suffix}"]
    with cs.open(f"~/a{suffix}") as opened:
        assert len(opened) == 1


@pytest.mark.parametrize("suffix", [".cstore", ".abcd"])
def test_array_of_pandas_is_stored_like_the_series_around_it(tmp_path, suffix):
    pd = pytest.importorskip("pandas")
    cs.store({"x": pd.array([2**60 + 1, None], dtype="Int64")}, tmp_path / f"a{suffix}")
    with cs.open(tmp_path / f"a{suffix}") as opened:
        assert opened["x"].array().to_pylist() == [2**60 + 1, None]
        assert opened["x"].isin([2**60 + 1, 0.5]).tolist() == [True, False]


@pytest.mark.parametrize("suffix", [".cstore", ".abcd"])
def test_fraction_is_in_no_column_of_integers(tmp_path, suffix):
    pd = pytest.importorskip("pandas")
    cs.store({"x": pd.array([1, None, 2], dtype="Int64")}, tmp_path / f"a{suffix}")
    with cs.open(tmp_path / f"a{suffix}") as opened:
        assert opened["x"].isin([1.5, 2.0, np.inf]).tolist() == [False, False, True]
        with pytest.raises(TypeError, match=r"'x' of type int64 takes values of this type, got 'a'"):
            opened["x"].isin([1, "a"])


def test_refused_selections_say_what_else_there_is(table):
    with pytest.raises(TypeError, match=r"got ndarray; use query\(\) for text, and table\[mask\] for a mask"):
        table.where(np.ones(5, bool))
    with pytest.raises(IndexError, match=r"got int; a key of two is \(rows, columns\)"):
        table["x", 3]
