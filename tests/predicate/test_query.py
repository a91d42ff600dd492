"""The query grammar: what it reads, what it refuses, and DNF filters."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.errors import ColumnNotFoundError, QueryError
from colstore_io.fields import Field, Schema
from colstore_io.predicate import ColumnValues, bind, col
from colstore_io.predicate.query import MAX_QUERY_LENGTH, from_dnf, parse_query

DATA: dict[str, np.ndarray] = {
    "x": np.arange(-3, 7),
    "f": np.array([1.0, np.nan, 2, 3, -0.0, np.inf, -np.inf, 5, 6, 7]),
    "u": np.arange(10, dtype="u8") + 2**63,
    "flag": np.arange(10) % 2 == 0,
    "s": np.array(list("abcdefghij"), dtype="S2"),
    "t": np.array(list("abcdefghij"), dtype="U2"),
    "d": np.arange("2020-01-01", "2020-01-11", dtype="M8[D]"),
    "größe": np.arange(10),
    "with space": np.arange(10),
}
SCHEMA = Schema(tuple(Field(name, values.dtype) for name, values in DATA.items()))
VALUES = {name: ColumnValues(values) for name, values in DATA.items()}


def select(text: str, params: Any = None) -> list[int]:
    """Return the x of the rows that match."""
    predicate = bind(parse_query(text, columns=SCHEMA.names, params=params), SCHEMA)
    return DATA["x"][predicate.mask(VALUES)].tolist()


ALL = list(range(-3, 7))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 3", [4, 5, 6]),
        ("3 < x", [4, 5, 6]),
        ("  x > 3  ", [4, 5, 6]),
        ("x > 3 # a comment", [4, 5, 6]),
        ("x > 1_0 / 0x5", [3, 4, 5, 6]),
        ("-1 < x < 2", [0, 1]),
        ("-1 < x < 4 < 5", [0, 1, 2, 3]),
        ("x > 1 > 0", [2, 3, 4, 5, 6]),
        ("x == 2 or x == 4 or x == 6", [2, 4, 6]),
        ("x > 0 and f < 7 and flag", [1, 3, 5]),
        ("not x > 0", [-3, -2, -1, 0]),
        ("not not flag", [-3, -1, 1, 3, 5]),
        ("not x", [0]),
        ("flag and x", [-3, -1, 1, 3, 5]),
        ("x > 4 and True", [5, 6]),
        ("(x > 4) | (x < -2)", [-3, 5, 6]),
        ("(x > 4) ^ flag", [-3, -1, 1, 3, 6]),
        ("~flag & (x > 0)", [2, 4, 6]),
        ("x & 1 == 1", [-3, -1, 1, 3, 5]),
        ("~x > 1", [-3]),
        ("-x > 2", [-3]),
        ("+x > 5", [6]),
        ("x + 1 > 6", [6]),
        ("x - 1 == 2", [3]),
        ("x * 2 == 4", [2]),
        ("x / 2 == 2.5", [5]),
        ("x // 2 == 1", [2, 3]),
        ("x % 3 == 1", [-2, 1, 4]),
        ("x ** 2 == 9", [-3, 3]),
        ("2 ** x == 8.0 and x >= 0", None),
        ("x > -2 ** 2", ALL),
        ("x in (1, 2)", [1, 2]),
        ("x in [1, 2.5, 'a', None]", [1]),
        ("x in ()", []),
        ("x in 3", [3]),
        ("x not in [0, 1]", [-3, -2, -1, 2, 3, 4, 5, 6]),
        ("x + 1 in (2,)", [1]),
        ("x not in [-1, -(2)] and x < 0", [-3]),
        ("flag == True", [-3, -1, 1, 3, 5]),
        ("flag", [-3, -1, 1, 3, 5]),
        ("flag in (False,)", [-2, 0, 2, 4, 6]),
        ("x == None", []),
        ("x != None", ALL),
        ("f != f", [-2]),
        ("s == 'b'", [-2]),
        ("t == 'b'", [-2]),
        ("t == b'b'", [-2]),
        ("s in ('a', 'c')", [-3, -1]),
        ("t not in ['a', 'b'] and x < 0", [-1]),
        ("s < 'c'", [-3, -2]),
        ("s == t", ALL),
        ("s != t", []),
        ("s < t", []),
        ("s + s == 'bb'", [-2]),
        ("t + 'x' == 'bx'", [-2]),
        ("'@x' == t", []),
        ("größe == 4", [1]),
        ("d > '2020-01-09'", [6]),
        ("d in ['2020-01-02', '2020-01-03']", [-2, -1]),
        ("f > 1e400", []),
    ],
)
def test_the_grammar_reads(text: str, expected: list[int] | None) -> None:
    if expected is None:
        with pytest.raises(QueryError):
            select(text)  # integers to negative powers fail when computed, as a query error
    else:
        assert select(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`my col` > 3", "col('my col') > 3"),
        ("`é x`*2 == @t", "(col('é x') * 2) == 1"),
        ("`x`<4", "col('x') < 4"),
        ("`if` != '`x` isn\\'t'", "col('if') != \"`x` isn't\""),
    ],
)
def test_names_between_backticks_are_any_text(text: str, expected: str) -> None:
    assert repr(parse_query(text, columns=["my col", "é x", "x", "if"], params={"t": 1})) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("`x > 3", "a backtick is not closed"),
        ("`zz` > 3", "unknown name 'zz'"),
        ("`x``y` > 3", "stands alone"),
        ("x`y` > 3", "stands alone"),
        ("missing > 5", "unknown name 'missing'"),
        ("xx > 5", "unknown name 'xx'; did you mean 'x'"),
        ("len(x) > 0", r"a call is not supported: len\(x\); a query is made of columns"),
        ("x.size > 0", "an attribute is not supported: x.size"),
        ("len(`with space`) > 0", r"a call is not supported: len\(`with space`\); a query"),
        ("x[0] > 0", "an index is not supported"),
        ("(lambda: x) == 1", "a lambda is not supported"),
        ("(x := 3) > 2", "an assignment is not supported"),
        ("x > 2 if flag else flag", "is not supported: x > 2 if flag else flag"),
        ("f'{x}' == 'a'", "an f-string is not supported"),
        ("x in {1, 2}", "a set is not supported"),
        ("{1: x} == 1", "a dictionary is not supported"),
        ("[y for y in x]", "a comprehension is not supported"),
        ("x in [*x]", r"unpacking is not supported: \*x; a query"),
        ("x is None", "comparison 'is' is not supported"),
        ("x is not None", "comparison 'is not' is not supported"),
        ("x << 2 > 1", "operator << is not supported"),
        ("x >> 2 > 1", "operator >> is not supported"),
        ("x @ x", "operator @ is not supported"),
        ("x == 1j", "constant 1j is not supported"),
        ("x == ...", "constant ... is not supported"),
        ("x >", "could not parse"),
        ("", "could not parse"),
        ("   ", "could not parse"),
        ("x; flag", "could not parse"),
        ("x = 3", "could not parse"),
        ("x >\n3", "one line"),
        ("x > 3 # hidden\n and x < 2", "one line"),
        ("x > @", "could not parse"),
        ("flag @p", "could not parse"),
        ("x > \0", "could not parse"),
        ("x == '\ud800'", "could not parse"),
        ("x > @undef", "undefined parameter @undef"),
        ("1 < 2", "at least one column"),
        ("True", "at least one column"),
        ("@p", "at least one column"),
        ("'x' == 'x'", "at least one column"),
        ("1 < 'a' < x", "cannot compare the constants"),
        ("[x] == 2", "only right of 'in'"),
        ("(x, 1) == 2", "only right of 'in'"),
        ("x in [1, [2]]", "must hold constants, not lists"),
        ("x in [x]", "must hold constants, not columns"),
        ("x in [1, f + 1]", "must hold constants, not columns"),
        ("3 in [x]", "left side of 'in' must reference a column"),
        ("'a' in s", "left side of 'in' must reference a column"),
        ("(x, 1) in [2]", "left side of 'in' must reference a column"),
        ("x > 9 ** 9 ** 9", "4096 bits"),
        ("x > 1 / 0", "division by zero"),
        ("x > 'a' * 100000000", "only between numbers"),
        ("t == 'a' + 'b'", "only between numbers"),
        ("x > -'a'", "cannot apply - to"),
        ("x > ~1.5", "cannot apply ~"),
    ],
)
def test_everything_else_is_refused_when_parsing(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        parse_query(text, columns=SCHEMA.names, params={"p": 3})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x + 1", "boolean condition"),
        ("x", "boolean condition"),
        ("t", "boolean condition"),
        ("x & 1", "boolean condition"),
        ("flag - flag", "boolean subtract"),
        ("x and t", "not a condition"),
        ("not d", "not a condition"),
        ("t * 2 == 'aa'", "multiply"),
        ("d + d > '2020-01-01'", "add"),
    ],
)
def test_results_and_operands_of_the_wrong_type_are_refused_when_binding(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        bind(parse_query(text, columns=SCHEMA.names), SCHEMA)


# ---- the fixes of cstore-behaviour.md 8 over the reference -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x == '3'", "cannot be compared with text '3'"),
        ("x > 'a'", "cannot be compared with text 'a'"),
        ("t == 3", "cannot be compared with number 3"),
        ("s > 1.5", "cannot be compared with number 1.5"),
        ("d > 3", "cannot be compared with number 3"),
        ("d == True", "cannot be compared with bool"),
        ("d > 'soon'", "no ISO date"),
        ("d > '2020-13-01'", "not a valid date"),
        ("d > '2020-02-30'", "not a valid date"),
        ("d > 'NaT'", "no ISO date"),
        ("d > '20200101'", "no ISO date"),
        ("d > '2020-01-01T00:00Z'", "has a time zone"),
        ("d in ['2020-01-01', 'soon']", "no ISO date"),
        ("flag == 'True'", "cannot be compared with text"),
        ("f > 3 & flag & f", "bitwise_and"),
        ("x == d", "cannot be compared with datetime"),
        ("t == x", "cannot be compared with number"),
    ],
)
def test_fix_incompatible_types_raise_query_errors_not_numpy_errors(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        bind(parse_query(text, columns=SCHEMA.names), SCHEMA)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("d == '2020-01-04'", [0]),
        ("d >= '2020-01-09T00:00:00'", [5, 6]),
        ("d > '2020-01-09 23:59:59.999999999999'", [6]),
        ("d == '2020-01-04T12:00'", []),
        ("d != '2020-01-04T12:00'", ALL),
        ("d < '2020-01'", []),
        ("d < '2021'", ALL),
        ("d < '+12000-01-01'", ALL),
        ("'2020-01-02' <= d < '2020-01-04'", [-2, -1]),
    ],
)
def test_fix_iso_strings_compare_with_datetime_columns(text: str, expected: list[int]) -> None:
    assert select(text) == expected


def test_fix_a_column_inside_a_list_is_refused_when_parsing() -> None:
    with pytest.raises(QueryError, match="constants, not columns"):
        parse_query("x in [f]", columns=SCHEMA.names)


def test_fix_bitwise_operators_bind_tighter_than_comparisons() -> None:
    """``a > 3 & b`` means ``a > (3 & b)``: fine for bool b, an error for float b, never a NumPy traceback."""
    assert select("x > 3 & flag") == [
        x for x, flag in zip(DATA["x"], DATA["flag"], strict=True) if x > (3 & int(flag))
    ]
    with pytest.raises(QueryError):
        select("x > 3 & f")


def test_unknown_columns_are_query_errors_and_key_errors() -> None:
    with pytest.raises(QueryError, match="unknown column 'missing'"):
        bind(col("missing") > 5, SCHEMA)
    with pytest.raises(ColumnNotFoundError):
        bind(col("missing") > 5, SCHEMA)


# ---- messages --------------------------------------------------------------------------------------------------------


def test_errors_point_at_the_place_in_the_text() -> None:
    with pytest.raises(QueryError) as caught:
        parse_query("größe > 1 and missing < 3", columns=SCHEMA.names)
    lines = str(caught.value).splitlines()
    assert "(at position 14)" in lines[0]
    assert lines[2].index("^") == lines[1].index("missing")


def test_errors_in_long_texts_show_a_window() -> None:
    text = " or ".join(f"x == {i}" for i in range(500)) + " or missing"
    with pytest.raises(QueryError) as caught:
        parse_query(text, columns=["x"])
    assert len(str(caught.value)) < 600
    assert "missing" in str(caught.value)


# ---- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "x" + " + x" * 16000 + " > 1",
        "-" * 60000 + "x > 2",
        "not " * 16000 + "flag",
        "(" * 30000 + "x" + ")" * 30000,
        "[x, " * 16000,
        "x > " + "9" * 60000,
        "x" + " ** x" * 13000,
        "x > 2" + "L" * 60000,
        "'" + "a" * 60000,
        "@" * 60000,
        "@p" * 30000,
        "x" * (MAX_QUERY_LENGTH + 1),
    ],
    ids=[
        "sum",
        "minus",
        "not",
        "parens",
        "lists",
        "digits",
        "powers",
        "suffix",
        "quote",
        "at",
        "params",
        "length",
    ],
)
def test_hostile_texts_give_query_errors(text: str) -> None:
    with pytest.raises(QueryError):
        parse_query(text, columns=["x", "flag"], params={"p": 1})


def test_long_chains_of_or_are_not_deep() -> None:
    assert select(" or ".join(f"x == {i}" for i in range(2000))) == [0, 1, 2, 3, 4, 5, 6]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="xft @p()[]'\"<>=!&|~+-*/%,.0123456789andornti\\#:{}\n", max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        expr = parse_query(text, columns=["x", "f", "t"], params={"p": 3})
    except QueryError:
        return
    assert parse_query(str(expr), columns=["x", "f", "t"]).equals(expr) or "col(" in str(expr)


# ---- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("x > @p", 4, [5, 6]),
        ("x > @p + 1", 4, [6]),
        ("x > @p", np.float32(4.5), [5, 6]),
        ("x > @p", np.array(4), [5, 6]),
        ("x >@p", 4, [5, 6]),
        ("d > @p", np.datetime64("2020-01-09"), [6]),
        ("d > @p", datetime.date(2020, 1, 9), [6]),
        ("d > @p", datetime.datetime(2020, 1, 9, 12), [6]),
        ("d > @p", pd.Timestamp("2020-01-09"), [6]),
        ("t == @p", "b", [-2]),
        ("t == @p", np.str_("b"), [-2]),
        ("x in @p", [1, 2], [1, 2]),
        ("x in @p", (1, 2), [1, 2]),
        ("x in @p", {1, 2}, [1, 2]),
        ("x in @p", range(3), [0, 1, 2]),
        ("x in @p", np.array([1, 2]), [1, 2]),
        ("x in @p", pd.Series([1, 2]), [1, 2]),
        ("x in @p", pd.Index([1, 2]), [1, 2]),
        ("x in @p", 3, [3]),
        ("x in [1, @p]", 3, [1, 3]),
        ("x not in @p and x < 0", [-1], [-3, -2]),
        ("x == @p", None, []),
        ("x == @p", pd.NA, []),
        ("t == '@p'", 1, []),
    ],
    ids=repr,
)
def test_parameters(text: str, value: object, expected: list[int]) -> None:
    assert select(text, {"p": value}) == expected


def test_a_parameter_may_have_the_name_of_a_column() -> None:
    assert select("x == @x", {"x": 1}) == [1]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x == @p", np.array([1, 2])),
        ("x == @p", [1]),
        ("x == @p", object()),
        ("x == @p", 1j),
        ("x in @p", {1: 2}),
        ("x in @p", np.ones((2, 2))),
        ("x in @p", [[1]]),
        ("x in @p", [object()]),
    ],
    ids=repr,
)
def test_parameters_that_are_no_scalars_are_type_errors(text: str, value: object) -> None:
    with pytest.raises(TypeError):
        select(text, {"p": value})


def test_a_query_must_be_text() -> None:
    with pytest.raises(TypeError, match="must be text"):
        parse_query(3, columns=["x"])  # type: ignore[arg-type]


def test_identifiers_are_not_normalised() -> None:
    """Python folds the ligature of this name to "fi"; the column keeps it."""
    assert parse_query("\ufb01x > 1", columns=["\ufb01x", "fix"]).columns == ("\ufb01x",)


# ---- filters ---------------------------------------------------------------------------------------------------------


def filtered(filters: object) -> list[int]:
    return DATA["x"][bind(from_dnf(filters), SCHEMA).mask(VALUES)].tolist()


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("x", ">", 4)], [5, 6]),
        ([("x", ">", 0), ("x", "<", 3)], [1, 2]),
        ([[("x", ">", 5)], [("x", "<", -2)]], [-3, 6]),
        ([[("x", ">", 3), ("flag", "==", True)], [("x", "=", -3)]], [-3, 5]),
        ((("x", ">=", 5), ("x", "<=", 5)), [5]),
        (((("x", ">", 5),), (("x", "<", -2),)), [-3, 6]),
        (("x", "==", 2), [2]),
        ([["x", "==", 2]], [2]),
        ([("x", "in", [1, 2])], [1, 2]),
        ([("x", "in", {1, 2})], [1, 2]),
        ([("x", "not in", (1, 2)), ("x", ">", 0)], [3, 4, 5, 6]),
        ([("f", "is", None)], [-2]),
        ([("f", "is", np.nan), ("x", "<", 0)], [-2]),
        ([("f", "is not", None), ("x", "<", 0)], [-3, -1]),
        ([("f", "!=", 1.0), ("x", "<", 0)], [-2, -1]),
        ([("with space", ">", 8)], [6]),
        (col("x") > 5, [6]),
    ],
    ids=repr,
)
def test_dnf_filters(filters: object, expected: list[int]) -> None:
    assert filtered(filters) == expected


@pytest.mark.parametrize(
    "filters",
    [
        [],
        [[]],
        None,
        "x > 3",
        [("x", ">")],
        [("x", "~", 3)],
        [("x", ">", 3), 5],
        [[("x", ">", 3), "y"]],
        [("x", "in", 3)],
        [("x", "in", "abc")],
        [("x", "is", 3)],
        {"x": 3},
    ],
    ids=repr,
)
def test_malformed_filters_are_query_errors(filters: object) -> None:
    with pytest.raises(QueryError):
        from_dnf(filters)


def test_dnf_unequal_and_not_in_follow_the_null_rule() -> None:
    schema = Schema((Field("n", np.dtype("i8"), validity="n.valid"),))
    values, validity = np.array([1, 0, 3]), np.array([True, False, True])
    for rule, unequal in (("na", [False, False, True]), ("nan", [False, True, True])):
        column = {"n": ColumnValues(values, validity, rule)}  # type: ignore[arg-type]
        assert bind(from_dnf([("n", "!=", 1)]), schema).mask(column).tolist() == unequal
        assert bind(from_dnf([("n", "not in", [1])]), schema).mask(column).tolist() == [False, True, True]


@pytest.mark.parametrize("text", ["x@x>1", "x @a@b > 1", "x + @a@x > 1", "@x@ > 1"])
def test_messages_show_the_text_as_it_was_written(text: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_query(text, columns=["x"])
    assert str(caught.value).isascii()
