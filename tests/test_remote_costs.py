"""What remote reads ask for: requests and bytes, counted where they arrive, beside what Parquet asks for.

How long they take is measured by ``benchmarks/dask_frames.py --remote``; here nothing is timed.
"""

from __future__ import annotations

import io
import math
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import CountingFileSystem, ObjectStore, new_store

import colstore_io as cs
from colstore_io.integrations.dask import read_colstore, to_colstore

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")  # of Dask's reader of Parquet

N = 320_000
LONG = 1_200_000
PARTS = 16
MIB = 1 << 20


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One table as objects: a file of one record, of a record per partition, a directory that Dask wrote, Parquet."""
    rng = np.random.default_rng(0)
    data = {"a": rng.standard_normal(N), "b": rng.standard_normal(N), "i": np.arange(N)}
    name, store = new_store()
    fs = CountingFileSystem(store=name)

    from colstore_io.writing.storing import store_file
    from colstore_io.writing.writer import Writer

    store_file({"a": rng.standard_normal(LONG)}, "b/long/one.cstore", filesystem=fs)
    rows = N // PARTS
    for kind, statistics in (("stats", True), ("plain", False)):
        with Writer(f"b/{kind}.cstore", "recreate", statistics=statistics, filesystem=fs) as writer:
            for first in range(0, N, rows):
                writer.write({key: values[first : first + rows] for key, values in data.items()})
    with dask.config.set(scheduler="synchronous"):
        to_colstore(dd.from_pandas(pd.DataFrame(data), npartitions=PARTS), "b/written", filesystem=fs)
    table = pa.table(data)
    for kind, statistics in (("stats", True), ("plain", False)):
        target = io.BytesIO()
        pq.write_table(table, target, compression="none", row_group_size=rows, write_statistics=statistics)
        store.put(f"b/{kind}.parquet", target.getvalue())
    local = tmp_path_factory.mktemp("columns") / "stats.abcd"
    cs.store(data, local, row_group_size=rows).close()
    store.put("b/stats.abcd", local.read_bytes())
    return dict(store.objects)


@pytest.fixture
def store(objects: dict[str, bytes]) -> tuple[CountingFileSystem, ObjectStore]:
    name, store = new_store()
    for path, data in objects.items():
        store.put(path, data)
    return CountingFileSystem(store=name, skip_instance_cache=True), store


def counted(store: ObjectStore) -> tuple[int, int]:
    """Return the requests and bytes since the last call."""
    found = len(store.log), store.bytes_asked()
    assert store.not_found() == 0
    store.log.clear()
    return found


def test_a_column_of_one_record(store: Any) -> None:
    fs, log = store
    with cs.open("b/long/one.cstore", filesystem=fs) as table:
        assert (log.count("info"), log.count("range"), log.count("list")) == (1, 1, 0)
        counted(log)
        assert len(table["a"].array()) == LONG
    assert log.count("info") == 0
    requests, nbytes = counted(log)
    assert requests <= math.ceil(8 * LONG / (8 * MIB))
    assert nbytes <= 8 * LONG + 65536


def test_a_thousand_rows_with_opening(store: Any) -> None:
    fs, log = store
    with cs.open("b/long/one.cstore", filesystem=fs) as table:
        assert len(table["a"][500_000:501_000].array()) == 1000
    requests, nbytes = counted(log)
    assert requests <= 3
    assert nbytes <= 80_000


def test_no_sizes_are_asked_for_after_a_listing(store: Any) -> None:
    fs, log = store
    with cs.open("b/*.cstore", filesystem=fs) as table:
        assert table.n_rows == 2 * N
    assert (log.count("info"), log.count("list")) == (0, 1)


def test_a_column_of_a_columns_file(store: Any) -> None:
    fs, log = store
    with cs.open("b/stats.abcd", filesystem=fs) as table:
        assert (log.count("info"), log.count("range"), log.count("list")) == (1, 2, 0)  # size and both ends
        counted(log)
        assert len(table["a"].array()) == N
    assert log.count("info") == 0
    requests, nbytes = counted(log)
    # A chunk each: what lies between belongs to other columns, and is read along where that costs less than a request.
    assert requests <= PARTS
    assert nbytes <= 8 * N + (768 << 10)


def test_a_thousand_rows_of_a_columns_file_with_opening(store: Any) -> None:
    fs, log = store
    with cs.open("b/stats.abcd", filesystem=fs) as table:
        assert len(table["a"][150_500:151_500].array()) == 1000
    requests, nbytes = counted(log)
    assert requests <= 4  # size, both ends, and the chunk, of which no part can be decoded alone
    assert nbytes <= 8 * (N // PARTS) + 81_920


LOW, HIGH = N // 3, N // 3 + N // 100
ROWS = np.sort(np.random.default_rng(1).choice(N, 1000, replace=False)).tolist()
WORK = {
    "column": lambda df: df.a.sum().compute(),
    "one percent": lambda df: df[(df.i >= LOW) & (df.i < HIGH)].a.sum().compute(),
    "a column of one percent": lambda df: df.a[(df.i >= LOW) & (df.i < HIGH)].sum().compute(),
    "a thousand rows": lambda df: df[(df.i >= LOW) & (df.i < LOW + 1000)].a.sum().compute(),
    "length": len,
    "opening": lambda df: df.npartitions,
    "the first rows": lambda df: df.head().b.sum(),
    "mean": lambda df: df.a.mean().compute(),
    "mean of some": lambda df: df[df.b > 0.5].a.mean().compute(),
    "everything": lambda df: df.compute().b.sum(),
    "rows here and there": lambda df: (
        (df.a.loc[ROWS] if df.known_divisions else df[df.i.isin(ROWS)].a).sum().compute()
    ),
}


@pytest.mark.parametrize("name", ["stats.cstore", "plain.cstore", "stats.abcd"])
@pytest.mark.parametrize("work", list(WORK))
def test_dask_asks_for_less_than_for_parquet(store: Any, work: str, name: str) -> None:
    fs, log = store
    statistics = name.partition(".")[0]
    with dask.config.set(scheduler="synchronous"):
        found = WORK[work](read_colstore(f"b/{name}", filesystem=fs, blocksize=None))
        ours = counted(log)
        want = WORK[work](dd.read_parquet(f"b/{statistics}.parquet", filesystem=fs, split_row_groups=True))
        parquet = counted(log)
    assert found == pytest.approx(want)
    assert ours[0] < parquet[0]
    assert ours[1] < parquet[1]


def test_a_directory_that_dask_wrote_is_cheaper_still(store: Any) -> None:
    fs, log = store
    with dask.config.set(scheduler="synchronous"):
        df = read_colstore("b/written", filesystem=fs)
        assert counted(log)[0] == 2  # a listing, and the manifest
        WORK["one percent"](df)
        requests, nbytes = counted(log)
    assert requests <= 4  # of one file, or two neighbours: the condition, and the column
    assert nbytes <= 2 * 16 * (N // PARTS)
