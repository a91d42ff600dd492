"""Any table becomes columns for encoded formats: nothing is padded, nulls stay nulls."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from colstore_io.errors import ColumnNotFoundError, SchemaMismatchError
from colstore_io.fields import Schema
from colstore_io.ingest.variable import ColumnBatch, ingest_columns, ingest_columns_stream


def kinds(batch):
    return [(f.name, f.logical or f.dtype.str, f.optional) for f in batch.schema]


def lists(batch):
    return [
        column.tolist() if isinstance(column, np.ndarray) else column.to_pylist() for column in batch.columns
    ]


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        ([1, 2], ("<i8", False), [1, 2]),
        ([1, None], ("<i8", True), [1, None]),
        ([2**63, 1], ("<u8", False), [2**63, 1]),
        ([1.5, 2], ("<f8", False), [1.5, 2.0]),
        ([True, None], ("|b1", True), [True, None]),
        (["x", "yy"], ("string", False), ["x", "yy"]),
        (["x", None, float("nan")], ("string", True), ["x", None, None]),
        ([b"\xff", b"a\0"], ("binary", False), [b"\xff", b"a\0"]),
        ([None, None], ("string", True), [None, None]),
        ([], ("string", True), []),
        ([[1, 2], [3]], ("list<int64>", False), [[1, 2], [3]]),
        (np.array([1, 2], ">i2"), ("<i2", False), [1, 2]),
        (np.arange(6)[::3], ("<i8", False), [0, 3]),
        (np.array(["x", "yy"]), ("string", False), ["x", "yy"]),
        (np.array([b"x", b"yy"]), ("binary", False), [b"x", b"yy"]),
        (np.array(["x", None], object), ("string", True), ["x", None]),
        (np.ma.array([1, 2], mask=[True, False]), ("<i8", True), [None, 2]),
        (np.ma.array([1.0, 2.0]), ("<f8", False), [1.0, 2.0]),
        (pd.Series([1, 2], dtype="Int16"), ("<i2", False), [1, 2]),
        (pd.Series([1, None], dtype="Int16"), ("<i2", True), [1, None]),
        (pd.Series(["x", None]), ("string", True), ["x", None]),
        (pd.Series(["x", None], dtype=object), ("string", True), ["x", None]),
        (pd.Categorical(["u", "v", "u"]), ("string", False), ["u", "v", "u"]),
        (pd.Series([1, 2], dtype="int64[pyarrow]"), ("<i8", False), [1, 2]),
        (pl.Series(["x", None]), ("string", True), ["x", None]),
        (pl.Series([1, 2], dtype=pl.UInt8), ("|u1", False), [1, 2]),
        (pa.array([True, False]), ("|b1", False), [True, False]),
        (pa.chunked_array([[1], [2, None]]), ("<i8", True), [1, 2, None]),
        (pa.array(["u", "v", None]).dictionary_encode(), ("string", True), ["u", "v", None]),
        (pa.array(["x"], pa.large_string()), ("string", False), ["x"]),
        (pa.array([b"xy"], pa.binary(2)), ("binary", False), [b"xy"]),
        (pa.nulls(2), ("string", True), [None, None]),
        (pa.array([1, 1], pa.timestamp("us", "UTC")), ("<M8[us]", False), None),
        (np.array(["2020-01-01"], "M8[D]"), ("<M8[D]", False), [datetime.date(2020, 1, 1)]),
    ],
    ids=lambda v: repr(v)[:30],
)
def test_a_column_of_any_kind(column, kind, values):
    batch = ingest_columns({"c": column})
    assert kinds(batch) == [("c", *kind)]
    assert batch.n_rows == len(column)
    if values is not None:
        assert lists(batch) == [values]


def test_numpy_columns_are_not_copied():
    column = np.arange(3)
    assert np.shares_memory(ingest_columns({"c": column}).columns[0], column)


@pytest.mark.parametrize(
    ("column", "error"),
    [
        ([1, "x"], TypeError),
        ([1.5, "x"], TypeError),
        (np.zeros((2, 2)), ValueError),
        (np.zeros(2, "c8"), TypeError),
        (np.zeros(2, "i4,i4"), TypeError),
        ([Decimal(1)], TypeError),
        (pa.array([Decimal(1)]), TypeError),
        (pa.array([{"a": 1}]), TypeError),
        ([[1], "x"], TypeError),
        (["\ud800"], ValueError),
        ([2**64], TypeError),
    ],
    ids=lambda v: repr(v)[:30],
)
def test_columns_that_cannot_be_stored_are_named(column, error):
    with pytest.raises(error, match="'c'"):
        ingest_columns({"c": column})


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": [1, 2], "s": ["x", "y"]}),
        pl.DataFrame({"a": [1, 2], "s": ["x", "y"]}),
        pa.table({"a": [1, 2], "s": ["x", "y"]}),
        pa.record_batch({"a": [1, 2], "s": ["x", "y"]}),
        {"a": [1, 2], "s": ["x", "y"]},
        np.array([(1, "x"), (2, "y")], [("a", "<i8"), ("s", "<U1")]),
    ],
    ids=lambda t: type(t).__name__,
)
def test_a_table_of_any_kind(table):
    batch = ingest_columns(table)
    assert kinds(batch) == [("a", "<i8", False), ("s", "string", False)]
    assert lists(batch) == [[1, 2], ["x", "y"]]
    assert ingest_columns(batch) is batch


@pytest.mark.parametrize("data", [{}, [1, 2], np.arange(3), 5, {"a": [1], "b": [1, 2]}, pl.Series([1])])
def test_what_is_no_table_is_refused(data):
    with pytest.raises((TypeError, ValueError)):
        ingest_columns(data)


def test_nullable_columns_can_be_asked_for():
    data = {"a": [1], "s": ["x"]}
    assert kinds(ingest_columns(data, nullable="s"))[1] == ("s", "string", True)
    assert [k[2] for k in kinds(ingest_columns(data, nullable=True))] == [True, True]
    with pytest.raises(ColumnNotFoundError, match="'t'"):
        ingest_columns(data, nullable=["t"])


def test_data_fit_a_schema_or_are_refused():
    like = ingest_columns({"a": np.array([1], "i2"), "s": ["x"], "n": pa.array([None], pa.int64())}).schema
    good = ingest_columns({"a": np.array([5], "i2"), "s": ["y"], "n": [None]}, like=like)
    assert good.schema is like
    assert good.columns[2].type == pa.int64()
    for bad, match in [
        ({"a": [5], "s": ["y"], "n": [1]}, "'a' holds int64, the table has int16"),
        ({"a": np.array([5], "i2"), "s": [None], "n": [1]}, "'s' holds nulls"),
        ({"a": np.array([5], "i2"), "s": [b"y"], "n": [1]}, "'s' holds binary"),
        ({"a": np.array([5], "i2"), "n": [1], "s": ["y"]}, "another order"),
        ({"a": np.array([5], "i2")}, "missing"),
    ]:
        with pytest.raises(SchemaMismatchError, match=match):
            ingest_columns(bad, like=like)


def test_streams_have_one_schema():
    batches = list(ingest_columns_stream(iter([{"a": []}, {"a": [1.5]}, {}, {"a": [2.5, 3.5]}])))
    assert [batch.n_rows for batch in batches] == [1, 2]
    with pytest.raises(SchemaMismatchError) as caught:
        list(ingest_columns_stream(iter([{"a": [1]}, {"a": ["x"]}])))
    assert caught.value.__notes__ == ["in item 1 of the stream (counted from 0)"]
    with pytest.raises(ValueError, match="no rows and has no schema"):
        list(ingest_columns_stream(iter([])))
    with pytest.raises(TypeError, match="stream"):
        list(ingest_columns_stream({"a": [1]}))


def test_an_arrow_stream_without_rows_has_its_schema():
    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int8()}), [])
    (batch,) = ingest_columns_stream(reader)
    assert kinds(batch) == [("a", "|i1", False)]
    assert isinstance(batch, ColumnBatch)
    assert isinstance(batch.schema, Schema)
