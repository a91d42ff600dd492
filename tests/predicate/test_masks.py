"""What a predicate makes of buffers: masks, nulls by rule, values."""

from __future__ import annotations

import operator
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from predicates import rows, schema_of

from colstore_io.errors import QueryError
from colstore_io.fields import Field, Schema
from colstore_io.predicate import ColumnValues, Expr, Predicate, bind, bind_value, col
from colstore_io.predicate.values import BLOCK_ROWS

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
