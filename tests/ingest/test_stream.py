"""Streams are read lazily, one batch at a time, agree with their first batch, and are always released."""

from __future__ import annotations

import gc
import weakref

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from storable import assert_storable

from colstore_io.errors import SchemaMismatchError
from colstore_io.ingest import ingest, ingest_stream, is_stream


def rows(batches):
    return [batch.n_rows for batch in batches]


class Source:
    """An iterator that counts what was asked of it, and whether it was released."""

    def __init__(self, items):
        self.items = iter(items)
        self.asked = 0
        self.closed = False

    def __iter__(self):
        return self

    def __next__(self):
        self.asked += 1
        item = next(self.items)
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self):
        self.closed = True


class TestWhatIsAStream:
    @pytest.mark.parametrize(
        "data",
        [
            iter([]),
            (x for x in ()),
            map(dict, []),
            pa.table({"a": [1]}),
            pa.table({"a": [1]}).to_reader(),
            pl.DataFrame({"a": [1]}),
            duckdb.sql("select 1 as a"),
        ],
        ids=lambda v: type(v).__name__,
    )
    def test_streams(self, data):
        assert is_stream(data)

    @pytest.mark.parametrize(
        "data",
        [
            "abc",
            b"abc",
            bytearray(b"abc"),
            {"a": [1]},
            [{"a": [1]}],
            ({"a": [1]},),
            np.arange(3),
            pd.DataFrame({"a": [1]}),
            pd.Series([1]),
            pd.Index([1]),
            ingest({"a": [1]}),
            None,
            5,
        ],
        ids=lambda v: type(v).__name__,
    )
    def test_no_streams(self, data):
        assert not is_stream(data)
        with pytest.raises(TypeError, match="cannot store"):
            ingest_stream(data)

    def test_chunked_pandas_reader_is_a_stream(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text("a,b\n1,x\n2,y\n3,z\n")
        reader = pd.read_csv(path, chunksize=2)
        assert is_stream(reader)
        assert rows(ingest_stream(reader)) == [2, 1]
        assert reader.handles.handle.closed

    def test_options_are_checked_before_anything_is_read(self):
        source = Source([{"a": [1]}])
        with pytest.raises(ValueError, match="strings must be"):
            ingest_stream(source, strings="latin")
        assert source.asked == 0


class TestOneBatchAtATime:
    def test_next_is_asked_for_when_the_next_is_wanted(self):
        source = Source([{"a": [1]}, {"a": [2, 3]}])
        stream = ingest_stream(source)
        assert source.asked == 0
        assert next(stream).n_rows == 1
        assert source.asked == 1
        assert next(stream).n_rows == 2
        assert source.asked == 2
        assert not source.closed
        assert list(stream) == []
        assert source.closed

    def test_no_batch_is_held_while_the_next_is_made(self):
        alive = []

        def source():
            for _ in range(3):
                gc.collect()
                assert not any(ref() is not None for ref in alive)
                values = np.arange(100.0)
                alive.append(weakref.ref(values))
                frame = {"a": values}
                del values
                yield frame
                del frame

        count = 0
        for batch in ingest_stream(source()):
            count += 1
            del batch
        assert count == 3

    def test_items_may_be_of_any_kind(self):
        items = [
            {"a": np.array([1])},
            pa.table({"a": [2, 3]}),
            pa.record_batch({"a": [4]}),
            pd.DataFrame({"a": [5]}),
            pl.DataFrame({"a": [6]}),
            np.array([(7,)], [("a", "i8")]),
            ingest({"a": [8]}),
        ]
        batches = list(ingest_stream(iter(items)))
        assert [v for b in batches for v in b.arrays[0].tolist()] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert len({id(b.schema) for b in batches}) == 1

    def test_one_batch_per_chunk_of_a_table(self):
        table = pa.table(
            {"a": pa.chunked_array([[1, 2], [], [3]]), "b": pa.chunked_array([["x"], ["y", "z"]])}
        )
        batches = list(ingest_stream(table))
        assert rows(batches) == [1, 1, 1]
        assert all(b.schema.names == ["a", "b"] for b in batches)

    def test_other_libraries(self):
        assert sum(rows(ingest_stream(pl.DataFrame({"a": range(10)})))) == 10
        assert sum(rows(ingest_stream(duckdb.sql("select range as a from range(5000)")))) == 5000


class TestAgreement:
    def test_first_batch_with_rows_decides_the_schema(self):
        source = iter(
            [{}, {"s": np.array([], object)}, {"s": ["abc"]}, {"s": ["a"]}, {"s": np.array([], object)}]
        )
        batches = list(ingest_stream(source))
        assert rows(batches) == [1, 1]
        assert [b.arrays[0].dtype.str for b in batches] == ["<U3", "<U3"]
        for batch in batches:
            assert_storable(batch)

    @pytest.mark.parametrize(
        ("later", "message"),
        [
            ({"s": ["abc"], "n": [1]}, r"batch 1 of the stream.*'s'.*string_width=\{'s': 3\}"),
            ({"s": ["a"], "n": [None]}, r"batch 1 of the stream.*'n' holds nulls.*nullable=\['n'\]"),
            ({"s": ["a"], "n": [1.5]}, r"batch 1 of the stream.*'n' has dtype <f8"),
            ({"n": [1], "s": ["a"]}, r"batch 1 of the stream.*column 0 is 'n'"),
        ],
    )
    def test_later_batch_that_does_not_fit_names_batch_column_and_option(self, later, message):
        stream = ingest_stream(iter([{"s": ["ab"], "n": [1]}, later]))
        next(stream)
        with pytest.raises(SchemaMismatchError, match=message):
            next(stream)

    def test_the_options_named_do_help(self):
        items = [{"s": ["ab"], "n": [1]}, {"s": ["abc"], "n": [None]}]
        batches = list(ingest_stream(iter(items), string_width={"s": 3}, nullable=["n"]))
        assert [b.arrays[2].tolist() for b in batches] == [[True], [False]]
        items = [pd.DataFrame({"n": [1]}), pd.DataFrame({"n": pd.array([None], dtype="Int64")})]
        assert rows(ingest_stream(iter(items), nullable=["n"])) == [1, 1]

    def test_arrow_dictionaries_must_stay_within_the_first(self):
        field = pa.schema([("c", pa.dictionary(pa.int8(), pa.string()))])

        def batch(*values):
            return pa.record_batch([pa.array(values).dictionary_encode().cast(field[0].type)], schema=field)

        reader = pa.RecordBatchReader.from_batches(field, iter([batch("a", "b"), batch("b")]))
        assert rows(ingest_stream(reader)) == [2, 1]
        reader = pa.RecordBatchReader.from_batches(field, iter([batch("a", "b"), batch("c")]))
        with pytest.raises(
            SchemaMismatchError, match=r"batch 1.*'c' holds 'c', which is none of the 2 categories"
        ):
            list(ingest_stream(reader))

    def test_like_decides_before_the_first_batch(self):
        like = ingest({"s": ["abc", None]}).schema
        (batch,) = ingest_stream(iter([{"s": ["a"]}]), like=like)
        assert batch.schema is like
        with pytest.raises(SchemaMismatchError, match="batch 0"):
            list(ingest_stream(iter([{"s": ["abcd"]}]), like=like))


class TestNoRows:
    def test_schema_of_an_arrow_stream_is_known(self):
        schema = pa.schema([("a", pa.int32()), ("s", pa.string())])
        reader = pa.RecordBatchReader.from_batches(schema, iter([]))
        (batch,) = ingest_stream(reader)
        assert_storable(batch)
        assert (batch.n_rows, [f.dtype.str for f in batch.schema]) == (0, ["<i4", "<U1"])

    def test_schema_of_an_empty_frame_is_known(self):
        (batch,) = ingest_stream(iter([pd.DataFrame({"a": np.empty(0, "f4")})]))
        assert (batch.n_rows, batch.schema.names) == (0, ["a"])

    def test_schema_of_the_table_is_known(self):
        like = ingest({"a": [1, None]}).schema
        (batch,) = ingest_stream(iter([]), like=like)
        assert_storable(batch)
        assert (batch.n_rows, batch.schema) == (0, like)

    def test_nothing_is_known_of_nothing(self):
        for items in ([], [{}]):
            with pytest.raises(ValueError, match="no rows and has no schema"):
                list(ingest_stream(iter(items)))


class TestRelease:
    @pytest.mark.parametrize(
        "bad", [{"a": [1j]}, {"a": [[1], [2, 3]]}, {"a": ["x"]}, 5, RuntimeError("from the source")]
    )
    def test_after_an_error(self, bad):
        source = Source([{"a": [1]}, bad, {"a": [2]}])
        stream = ingest_stream(source)
        next(stream)
        with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
            next(stream)
        assert source.closed
        assert source.asked == 2
        assert "batch 1" in "".join(
            [str(caught.value), *getattr(caught.value, "__notes__", [])]
        ) or isinstance(bad, RuntimeError)
        assert list(stream) == []

    def test_after_close_and_after_being_dropped(self):
        for end in (lambda s: s.close(), lambda s: None):
            source = Source([{"a": [1]}, {"a": [2]}])
            stream = ingest_stream(source)
            next(stream)
            end(stream)
            del stream
            gc.collect()
            assert source.closed

    def test_generator_is_closed(self):
        ended = []

        def source():
            try:
                yield {"a": [1]}
                yield {"a": ["x"]}
            finally:
                ended.append(True)

        with pytest.raises(SchemaMismatchError):
            list(ingest_stream(source()))
        assert ended == [True]

    def test_arrow_stream_is_released(self):
        ended = []

        def batches():
            try:
                for text in ("x", "abc", "y"):
                    yield pa.record_batch({"a": [text]})
            finally:
                ended.append(True)

        schema = pa.schema([("a", pa.string())])
        reader = pa.RecordBatchReader.from_batches(schema, batches())
        stream = ingest_stream(pa.RecordBatchReader.from_stream(reader))
        del reader
        with pytest.raises(SchemaMismatchError):
            list(stream)
        gc.collect()
        assert ended == [True]

    def test_a_single_column_is_no_stream_of_tables(self):
        with pytest.raises(TypeError, match="it is one column"):
            list(ingest_stream(pa.chunked_array([[1]])))

    def test_schema_that_cannot_be_stored_is_refused_before_the_first_batch(self):
        def batches():
            raise AssertionError("asked for a batch")
            yield

        reader = pa.RecordBatchReader.from_batches(pa.schema([("x", pa.list_(pa.int8()))]), batches())
        with pytest.raises(TypeError, match="'x' has Arrow type list"):
            list(ingest_stream(reader))


class TestTablesInMemory:
    """All chunks of a table decide what the first batch of a stream decides alone."""

    def columns(self):
        return {
            "s": pa.chunked_array([["a"], ["żółwie", None]]),
            "v": pa.chunked_array([["a"], ["abc", "d"]], pa.string_view()),
            "b": pa.chunked_array([[b"a"], [b"abcd", b""]]),
            "f": pa.chunked_array([[1.5], [None, 2.5]]),
            "g": pa.chunked_array([[1.5], [3.5, 2.5]]),
            "t": pa.chunked_array([[0], [None, 1]], pa.timestamp("us", "UTC")),
            "c": pa.chunked_array(
                [pa.array(["x"]).dictionary_encode(), pa.array(["longer", "x"]).dictionary_encode()]
            ),
        }

    def test_decisions_equal_those_of_one_chunk(self):
        table = pa.table(self.columns())
        batches = list(ingest_stream(table))
        assert rows(batches) == [1, 2]
        schema = batches[0].schema
        assert schema == ingest(table).schema
        dtypes = [schema[name].dtype.str for name in "svbc"]
        assert dtypes == ["<U6", "<U3", "|S4", "<U6"]
        assert [schema[name].nullable for name in "ftg"] == [True, True, False]
        assert schema["c"].categories == ("x", "longer")
        for batch in batches:
            assert_storable(batch)
        whole = ingest(table)
        for position, values in enumerate(whole.arrays):
            joined = np.concatenate([batch.arrays[position] for batch in batches])
            np.testing.assert_array_equal(joined, values)

    def test_text_as_bytes_is_measured_in_bytes(self):
        batches = list(ingest_stream(pa.table(self.columns()), strings="bytes"))
        assert batches[0].schema["s"].dtype.str == "|S9"

    def test_options_of_the_caller_stay(self):
        table = pa.table(self.columns())
        first = next(ingest_stream(table, string_width={"s": 9}, nullable=["g"]))
        assert first.schema["s"].dtype.str == "<U9"
        assert [first.schema[name].nullable for name in "ftg"] == [True, True, True]
        with pytest.raises(SchemaMismatchError, match=r"string_width=\{'s': 6\}"):
            list(ingest_stream(table, string_width={"s": 2}))
        assert next(ingest_stream(table, nullable=True)).schema["g"].nullable

    def test_run_ends_and_fields_that_are_not_nullable(self):
        import pyarrow.compute as pc

        parts = [pc.run_end_encode(pa.array(part)) for part in (["a"], ["bcd", "bcd"])]
        field = pa.field("f", pa.float64(), nullable=False)
        table = pa.table({"r": pa.chunked_array(parts), "f": pa.chunked_array([[1.0], [None, 2.0]])})
        assert rows(ingest_stream(table)) == [1, 2]
        declared = pa.Table.from_arrays(table.columns, schema=pa.schema([table.schema[0], field]))
        with pytest.raises(ValueError, match="declared not nullable"):
            list(ingest_stream(declared))

    def test_a_stream_of_the_same_batches_is_still_decided_by_its_first(self):
        stream = ingest_stream(pa.table(self.columns()).to_reader())
        next(stream)
        with pytest.raises(SchemaMismatchError, match="batch 1 of the stream"):
            next(stream)

    def test_a_table_without_rows(self):
        assert rows(ingest_stream(pa.table(self.columns()).slice(0, 0))) == [0]
