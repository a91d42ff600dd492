"""Columns as Dask arrays: what travels does not grow with the number of chunks, and results are those of the table."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io.integrations._dask_array import ChunkRows
from colstore_io.integrations.dask import read_colstore_array
from colstore_io.plain import LazyColumn

N = 100_000


@pytest.fixture(scope="module")
def one_record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("array") / "t.cstore"
    cs.store({"x": np.arange(N, dtype=np.float64), "y": np.arange(N) % 7}, path).close()
    return path


def graph_bytes(array: Any) -> int:
    return len(cloudpickle.dumps(array.dask))


def test_a_graph_does_not_grow_with_the_number_of_chunks(one_record: Path) -> None:
    sizes = {}
    for chunks in (10, 1000, 100_000):
        array = read_colstore_array(one_record, "x", blocksize=8 * N // chunks)
        assert array.numblocks == (chunks,)
        sizes[chunks] = graph_bytes(array)
    assert sizes[100_000] <= sizes[10] + 16
    assert sizes[100_000] < 2000
    both = read_colstore_array(one_record, ["x", "y"], blocksize=16)
    assert both.numblocks == (N, 1)
    assert graph_bytes(both) < 2000


def test_a_graph_of_many_records_is_as_large_as_their_plan(tmp_path: Path) -> None:
    path = tmp_path / "t.cstore"
    with cs.recreate(path) as writer:
        for number in range(1000):
            writer.write({"x": np.arange(20 + number % 2, dtype=np.float64)})
    array = read_colstore_array(path, "x", blocksize=None)
    assert array.numblocks == (1000,)
    assert graph_bytes(array) < 40 * 1000 + 2000
    finer = read_colstore_array(path, "x", blocksize=8, split_records=True)
    assert graph_bytes(finer) < 40 * 1000 + 2000


def test_chunks_hold_their_rows(one_record: Path) -> None:
    array = read_colstore_array(one_record, "x", blocksize=7000)
    assert sum(array.chunks[0]) == N
    assert array.blocks[3].compute().tolist() == list(
        range(sum(array.chunks[0][:3]), sum(array.chunks[0][:4]))
    )
    assert array.sum().compute() == N * (N - 1) / 2
    assert array[5:11].compute().tolist() == [5, 6, 7, 8, 9, 10]
    assert (array + array[::-1]).compute().tolist() == [N - 1] * N
    both = read_colstore_array(one_record, ["x", "y"], blocksize=7000)
    assert both.compute().shape == (N, 2)
    assert both[-2:, 1].compute().tolist() == [(N - 2) % 7, (N - 1) % 7]
    again = pickle.loads(pickle.dumps(array))
    assert again[9].compute() == 9


def test_a_slice_of_a_chunk_reads_no_more(one_record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    read = LazyColumn.__getitem__
    monkeypatch.setattr(LazyColumn, "__getitem__", lambda self, key: (asked.append(key), read(self, key))[1])
    array = read_colstore_array(one_record, "x", blocksize="default")
    assert array[10:13].compute(scheduler="synchronous").tolist() == [10, 11, 12]
    assert asked == [(slice(10, 13, None),)]


def test_arrays_that_are_cut_in_other_ways_have_other_tasks(one_record: Path) -> None:
    fine, coarse = (read_colstore_array(one_record, "x", blocksize=size) for size in (80, 8000))
    assert fine.name != coarse.name
    assert fine.name == read_colstore_array(one_record, "x", blocksize=80).name
    found = dask.compute(fine[:20].sum(), coarse[:2000].sum())
    assert found == (190, 2000 * 1999 / 2)


def test_a_column_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.cstore"
    cs.store({"x": np.empty(0, np.int32)}, path).close()
    array = read_colstore_array(path, "x")
    assert (array.shape, array.dtype) == ((0,), np.int32)
    assert array.compute().tolist() == []


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.sampled_from([(), (3,)]))
def test_chunk_rows_are_the_bounds(lengths: list[int], others: tuple[int, ...]) -> None:
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = ChunkRows(bounds, others)
    for known in (rows, pickle.loads(pickle.dumps(rows))):
        assert known.numblocks == (len(lengths), *(1 for _ in others))
        for number in range(len(lengths)):
            want = (
                slice(int(bounds[number]), int(bounds[number + 1]), None),
                *(slice(0, n, None) for n in others),
            )
            assert known[(number, *(0 for _ in others))] == want
    with pytest.raises(KeyError):
        rows[(len(lengths),)]
