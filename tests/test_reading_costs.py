"""Opening reads headers, reading reads what was asked for, and statistics skip the rest: counted, not timed."""

from __future__ import annotations

import itertools

import fsspec
import numpy as np
import pytest

import colstore_io as cs
from colstore_io import col

ROWS, RECORDS = 40_000, 8  # records too far apart for a gap to be read along
ROW_BYTES = 8 + 8 + 4
names = (f"costs/{number}" for number in itertools.count())


def data_of(record: int) -> dict[str, np.ndarray]:
    first = record * ROWS
    return {
        "k": np.arange(first, first + ROWS),
        "x": np.random.default_rng(record).random(ROWS) + record,
        "u": np.full(ROWS, record, "i4"),
    }


@pytest.fixture
def urls(tmp_path):
    """A file of 8 records with statistics, and the same rows as 8 files, in memory://."""
    store = fsspec.filesystem("memory")
    folder = next(names)
    with cs.create(tmp_path / "records.cstore", statistics=True) as writer:
        for record in range(RECORDS):
            writer.write(data_of(record))
    store.pipe_file(f"/{folder}/records.cstore", (tmp_path / "records.cstore").read_bytes())
    for record in range(RECORDS):
        path = tmp_path / f"part_{record}.cstore"
        cs.store(data_of(record), path, statistics=True).close()
        store.pipe_file(f"/{folder}/parts/part_{record}.cstore", path.read_bytes())
    return {"one": f"memory://{folder}/records.cstore", "many": f"memory://{folder}/parts/part_*.cstore"}


def cost(table, read):
    before = table.io.as_dict()
    result = read()
    after = table.io.as_dict()
    return result, {key: after[key] - before[key] for key in before}


def test_open_reads_headers_and_no_column_bytes(urls):
    with cs.open(urls["one"]) as table:
        assert table.io.metadata_requests <= 1
        assert table.io.bytes <= (64 << 10) + RECORDS * 4096 + 4096
    with cs.open(urls["many"]) as table:
        assert table.io.requests <= 2 * RECORDS  # a head each, and the footers that lie beyond it
        assert table.io.metadata_requests <= 1  # the listing told sizes and versions
        assert table.n_rows == ROWS * RECORDS


@pytest.mark.parametrize("kind", ["one", "many"])
def test_head_reads_a_few_rows(urls, kind):
    with cs.open(urls[kind]) as table:
        view, spent = cost(table, lambda: table.head(5).values)
        np.testing.assert_array_equal(view["k"], np.arange(5))
        assert spent["bytes"] <= ROWS * ROW_BYTES  # one record at most: its three columns lie close together
        assert spent["requests"] <= 3
        assert spent["metadata_requests"] == 0


@pytest.mark.parametrize("kind", ["one", "many"])
def test_one_column_costs_its_bytes_and_no_metadata(urls, kind):
    with cs.open(urls[kind]) as table:
        values, spent = cost(table, lambda: table["x"].array())
        assert values.shape == (ROWS * RECORDS,)
        assert spent["bytes"] <= ROWS * RECORDS * 8 + RECORDS * 64 + (768 << 10)  # gaps read along
        assert (
            spent["requests"] <= 2 * RECORDS - 1
        )  # of one file: each record's header and its values, in one round
        assert spent["metadata_requests"] == 0


PREDICATES = {
    "point": (col("k") == 5 * ROWS + 7, lambda c: c["k"] == 5 * ROWS + 7, 1),
    "conjunction": (
        (col("k") >= ROWS) & (col("k") < 2 * ROWS),
        lambda c: (c["k"] >= ROWS) & (c["k"] < 2 * ROWS),
        1,
    ),
    "between": (col("k").between(ROWS - 1, ROWS), lambda c: (c["k"] >= ROWS - 1) & (c["k"] <= ROWS), 2),
    "isin": (col("u").isin([2, 6]), lambda c: np.isin(c["u"], [2, 6]), 2),
    "or": ((col("u") == 3) | (col("k") < 10), lambda c: (c["u"] == 3) | (c["k"] < 10), 2),
    "not": (~(col("u") >= 2), lambda c: c["u"] < 2, 2),
    "two columns": ((col("x") > 6.5) & (col("u") != 7), lambda c: (c["x"] > 6.5) & (c["u"] != 7), 1),
    "nothing": (col("k") < 0, lambda c: c["k"] < 0, 0),
}


@pytest.mark.parametrize("kind", ["one", "many"])
@pytest.mark.parametrize("form", PREDICATES)
def test_every_predicate_form_reads_only_segments_that_can_match(urls, kind, form):
    predicate, mask, segments = PREDICATES[form]
    everything = {
        name: np.concatenate([data_of(r)[name] for r in range(RECORDS)]) for name in ("k", "x", "u")
    }
    with cs.open(urls[kind]) as table:
        got, spent = cost(table, lambda: table.where(predicate).dict())
        for name, values in everything.items():
            np.testing.assert_array_equal(got[name], values[mask(everything)])
        footers = RECORDS * 400  # fetched with the first predicate
        assert spent["bytes"] <= 2 * segments * ROWS * ROW_BYTES + footers
        _, again = cost(table, lambda: table.where(predicate).dict())
        assert again["bytes"] <= 2 * segments * ROWS * ROW_BYTES
        if segments == 0:
            assert again["requests"] == 0


def test_query_result_does_not_depend_on_statistics(urls, tmp_path):
    path = tmp_path / "plain.cstore"
    with cs.create(path) as writer:
        for record in range(RECORDS):
            writer.write(data_of(record))
    with cs.open(path) as plain, cs.open(urls["one"]) as pruned:
        for text in ("k > 9000 and x < 4.5", "u in [1, 5] or not x > 0.5", "-1 < k <= 4096", "u != 3"):
            want, got = plain.query(text).dict(), pruned.query(text).dict()
            for name, values in want.items():
                np.testing.assert_array_equal(got[name], values)


def test_scattered_rows_of_a_large_remote_column_cost_their_neighbourhood(tmp_path):
    n = 400_000
    cs.store({"a": np.arange(n), "b": np.arange(n) * 2.0}, tmp_path / "wide.cstore").close()
    url = f"memory://{next(names)}/wide.cstore"
    fsspec.filesystem("memory").pipe_file(
        url.removeprefix("memory:/"), (tmp_path / "wide.cstore").read_bytes()
    )
    with cs.open(url) as table:
        rows = np.array([399_999, 5, 200_000, 5])
        values, spent = cost(table, lambda: table[rows, "b"].array())
        np.testing.assert_array_equal(values, rows * 2.0)
        assert spent["requests"] == 3
        assert spent["bytes"] == 24
        _, spent = cost(table, lambda: table[1000:2000, "a"].array())
        assert (spent["requests"], spent["bytes"]) == (1, 8000)
