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
def objects() -> dict[str, bytes]:
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


LOW, HIGH = N // 3, N // 3 + N // 100
WORK = {
    "column": lambda df: df.a.sum().compute(),
    "one percent": lambda df: df[(df.i >= LOW) & (df.i < HIGH)].a.sum().compute(),
    "a column of one percent": lambda df: df.a[(df.i >= LOW) & (df.i < HIGH)].sum().compute(),
    "a thousand rows": lambda df: df[(df.i >= LOW) & (df.i < LOW + 1000)].a.sum().compute(),
    "length": len,
    "opening": lambda df: df.npartitions,
    "the first rows": lambda df: df.head().b.sum(),
}


@pytest.mark.parametrize("statistics", ["stats", "plain"])
@pytest.mark.parametrize("work", list(WORK))
def test_dask_asks_for_less_than_for_parquet(store: Any, work: str, statistics: str) -> None:
    fs, log = store
    with dask.config.set(scheduler="synchronous"):
        found = WORK[work](read_colstore(f"b/{statistics}.cstore", filesystem=fs, blocksize=None))
        ours = counted(log)
        want = WORK[work](dd.read_parquet(f"b/{statistics}.parquet", filesystem=fs, split_row_groups=True))
        parquet = counted(log)
    assert found == pytest.approx(want)
    assert ours[0] <= parquet[0]
    assert ours[1] < parquet[1] + 64 * (parquet[0] == ours[0])


def test_a_directory_that_dask_wrote_is_cheaper_still(store: Any) -> None:
    fs, log = store
    with dask.config.set(scheduler="synchronous"):
        df = read_colstore("b/written", filesystem=fs)
        assert counted(log)[0] == 2  # a listing, and the manifest
        WORK["one percent"](df)
        requests, nbytes = counted(log)
    assert requests <= 4  # of one file, or two neighbours: the condition, and the column
    assert nbytes <= 2 * 16 * (N // PARTS)
