"""Columns of variable length, from every format: operators, previews, and Arrow's other users."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from encoded import ENCODED, random_table, write

import colstore_io as cs

N = 500


@pytest.fixture(scope="module", params=ENCODED)
def data(request, tmp_path_factory):
    """A file of several row groups, and its table; colbin needs long values for several segments."""
    folder = tmp_path_factory.mktemp("tables")
    table = random_table(3, N, nulls=0.3)
    long = pa.array([f"{n:04}" * (1500 if request.param == ".colbin" else 2) for n in range(N)])
    table = table.append_column(pa.field("long", pa.string(), nullable=False), long)
    path = write(table, folder / f"t{request.param}", 90)
    with cs.open(path) as ds:
        assert ds.source.plan.segments.n_segments > 2
    return path, table


# -- operators and reductions


def test_comparisons_of_text_are_arrow_booleans_with_nulls(data):
    path, table = data
    with cs.open(path) as ds:
        for found, name, function in (
            (ds["text"] == "a", "text", lambda v: v == "a"),
            (ds["note"] == "a", "note", lambda v: v == "a"),
            (ds["note"] != "a", "note", lambda v: v != "a"),
            (ds["text"] < "b", "text", lambda v: v < "b"),
            (ds["text"] >= "b", "text", lambda v: v >= "b"),
            (ds["raw"] == b"a", "raw", lambda v: v == b"a"),
        ):
            assert isinstance(found, pa.BooleanArray)
            assert found.to_pylist() == [None if v is None else function(v) for v in table[name].to_pylist()]
        assert (ds["text"] == ds["note"]).null_count == table["note"].null_count


def test_such_a_comparison_selects_rows(data):
    path, table = data
    with cs.open(path) as ds:
        for name in ("text", "note"):
            wanted = [n for n, v in enumerate(table[name].to_pylist()) if v == "a"]
            assert ds[ds[name] == "a"].array("n").tolist() == wanted
            assert ds[ds[name] == "a"][name].array().to_pylist() == ["a"] * len(wanted)
            assert ds[ds[name].isin(["a"])].array("n").tolist() == wanted
        view = ds[100:300]
        inside = [n for n, v in enumerate(table["text"].to_pylist()) if v == "a" and 100 <= n < 300]
        assert view[view["text"] == "a"].array("n").tolist() == inside


def test_text_has_a_smallest_and_a_largest_value(data):
    path, table = data
    with cs.open(path) as ds:
        for name in ("text", "note", "raw"):
            values = [v for v in table[name].to_pylist() if v is not None]
            assert ds[name].min() == min(values)
            assert np.max(ds[name]) == max(values)
        assert np.isnan(ds["text"][:0].max())
        assert len(ds["text"]) == ds["text"].size == N


def test_what_text_has_not_is_a_type_error_that_names_the_column(data):
    path, _ = data
    with cs.open(path) as ds:
        for attempt in (
            lambda: ds["text"] + 1,
            lambda: ds["text"] + "x",
            lambda: ds["text"] == 5,
            lambda: -ds["text"],
            lambda: np.sin(ds["text"]),
            lambda: ds["text"].sum(),
            lambda: ds["note"].mean(),
            lambda: ds["raw"].std(),
            lambda: ds["text"].isin([1, 2]),
        ):
            with pytest.raises(TypeError, match=r"text|note|raw"):
                attempt()


def test_iteration_gives_every_value(data):
    path, table = data
    with cs.open(path) as ds:
        assert [value.as_py() for value in ds["note"]] == table["note"].to_pylist()
        assert list(ds["n"]) == list(range(N))
        assert [value.as_py() for value in ds["text"][100:200]] == table["text"].to_pylist()[100:200]


# -- previews


def test_previews_show_columns_of_variable_length(data):
    path, table = data
    with cs.open(path) as ds:
        for shown in (ds.head(), ds[["text", "n"]], ds[["text"]], ds["text"].head(), ds["raw"], ds.tail(3)):
            assert "cannot be shown" not in repr(shown)
            assert "<table>" in shown._repr_html_()
        head = ds[["n", "text"]].head(3)
        assert head["text"].to_pylist() == table["text"].to_pylist()[:3]
        assert isinstance(
            ds[["n", "x"]].head(3).values, np.ndarray
        )  # records, where every column can be in them
        with pytest.raises(TypeError, match="variable length"):
            np.asarray(head)


def test_a_preview_decodes_the_first_segment_alone(data):
    path, _ = data
    with cs.open(path, mmap=False) as ds:
        before = ds.source.io.bytes
        repr(ds[["long"]])
        assert ds.source.io.bytes - before <= path.stat().st_size // 2


# -- Arrow and who reads it


def test_a_table_is_an_arrow_stream_of_a_batch_per_segment(data):
    path, table = data
    with cs.open(path) as ds:
        found = pa.table(ds)
        assert found.column("text").num_chunks == ds.source.plan.segments.n_segments
        np.testing.assert_array_equal(found["x"].to_numpy(), table["x"].to_numpy())
        names = [name for name in table.column_names if name != "x"]  # has NaN
        assert found.select(names).to_pydict() == table.select(names).to_pydict()
        assert (
            pa.table(ds[["note", "n"]][50:120]).to_pydict()
            == table.select(["note", "n"]).slice(50, 70).to_pydict()
        )
        assert pa.table(ds[::-7]).column("note").to_pylist() == table["note"].to_pylist()[::-7]
        reader = pa.RecordBatchReader.from_stream(ds)
        assert sum(batch.num_rows for batch in reader) == N
        assert pa.array(ds["note"]).to_pylist() == table["note"].to_pylist()
        assert pa.chunked_array(ds["raw"]).to_pylist() == table["raw"].to_pylist()


def test_a_requested_schema_of_wider_types_is_honoured(data):
    path, table = data
    wide = pa.schema([("text", pa.large_string()), ("maybe", pa.int64())])
    with cs.open(path) as ds:
        stream = ds[["text", "maybe"]].__arrow_c_stream__(wide.__arrow_c_schema__())
        found = pa.RecordBatchReader._import_from_c_capsule(stream).read_all()
    assert found.schema.types == [pa.large_string(), pa.int64()]
    assert found["text"].to_pylist() == table["text"].to_pylist()


def test_text_and_bytes_of_one_segment_may_have_64_bit_offsets(tmp_path):
    table = pa.table(
        {
            "s": pa.array(["a", None, "bb"], pa.large_string()),
            "b": pa.array([b"", b"x", b"yy"], pa.large_binary()),
        }
    )
    cs.store(table, tmp_path / "l.abcd").close()
    with cs.open(tmp_path / "l.abcd") as ds:
        assert pa.table(ds).to_pydict() == table.to_pydict()


def test_polars_duckdb_and_pandas_read_it(data):
    path, table = data
    names = [name for name in table.column_names if name != "x"]  # has NaN
    with cs.open(path) as ds:
        frame = pl.DataFrame(ds)
        assert frame.select(names).to_dict(as_series=False) == table.select(names).to_pydict()
        wanted = sum(v == "a" for v in table["note"].to_pylist())
        assert frame.filter(pl.col("note") == "a").height == wanted
        assert duckdb.sql("select count(*) from ds where note = 'a'").fetchall() == [(wanted,)]
        rows = duckdb.sql("select n, text, raw from ds order by n").fetchall()
        assert rows == list(zip(*(table[c].to_pylist() for c in ("n", "text", "raw")), strict=True))
        pandas = pd.DataFrame.from_arrow(ds)
        assert pandas["text"].tolist() == table["text"].to_pylist()
        assert ds.frame()["note"].isna().tolist() == [v is None for v in table["note"].to_pylist()]
