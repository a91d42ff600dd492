"""Encoded files are Datasets as any other: found by name and content, chunked by row groups, read in one pass."""

from __future__ import annotations

import asyncio
import pickle

import numpy as np
import pytest
import xarray as xr
from encoded import ENCODED, random_table, write

import colstore_io as cs
from colstore_io.integrations.xarray import ColstoreBackendEntrypoint

N = 600


@pytest.fixture(scope="module", params=ENCODED)
def data(request, tmp_path_factory):
    table = random_table(3, N, nulls=0.3)
    return write(table, tmp_path_factory.mktemp("xarray") / f"t{request.param}", 100), table


def text(values):
    return [value if isinstance(value, str) else None for value in values]


def test_files_are_recognised_by_suffix_and_by_their_first_bytes(data, tmp_path):
    path, _ = data
    engine = ColstoreBackendEntrypoint()
    assert engine.guess_can_open(path)
    assert engine.guess_can_open(f"nowhere/x{path.suffix}")
    assert engine.guess_can_open(path.parent)
    assert engine.guess_can_open(path.read_bytes())
    other = tmp_path / "unnamed"
    other.write_bytes(path.read_bytes())
    assert engine.guess_can_open(other)
    assert not engine.guess_can_open(tmp_path / "none")
    assert xr.open_dataset(path).sizes == xr.open_dataset(other).sizes == {"row": N}


def test_values_are_those_of_the_table(data):
    path, table = data
    ds = xr.open_dataset(path, engine="colstore")
    assert ds["n"].dtype == np.int64
    assert ds["text"].dtype == ds["note"].dtype == ds["raw"].dtype == object
    assert ds["maybe"].dtype == np.float64
    assert ds["text"].values.tolist() == table["text"].to_pylist()
    assert text(ds["note"].values) == table["note"].to_pylist()
    assert ds["raw"].values.tolist() == table["raw"].to_pylist()
    np.testing.assert_array_equal(ds["maybe"].values, table["maybe"].to_pandas().to_numpy(float))
    rows = [5, 3, 3, N - 1]
    assert text(ds["note"][rows].values) == [table["note"].to_pylist()[k] for k in rows]
    assert ds["text"][::-7].values.tolist() == table["text"].to_pylist()[::-7]
    assert ds["text"][-1].item() == table["text"].to_pylist()[-1]


def test_masks_can_be_variables_of_their_own(data):
    path, table = data
    ds = xr.open_dataset(path, engine="colstore", mask="variable").load()
    assert ds["maybe"].dtype == np.int32
    null = [value is None for value in table["maybe"].to_pylist()]
    assert ds["maybe_mask"].values.tolist() == null
    assert ds["note_mask"].values.tolist() == [value is None for value in table["note"].to_pylist()]
    assert "text_mask" not in ds


def test_chunks_are_runs_of_whole_segments(tmp_path):
    n = 3000
    table = {"n": np.arange(n), "s": ["x" * 1500 + str(k) for k in range(n)]}
    for suffix in ENCODED:
        cs.store(table, tmp_path / f"c{suffix}", row_group_size=1000).close()
        with cs.open(tmp_path / f"c{suffix}") as ds:
            starts = set(ds.source.plan.segments.row_start.tolist())
        chunked = xr.open_dataset(tmp_path / f"c{suffix}", engine="colstore", chunks={})
        lengths = chunked.chunks["row"]
        assert len(lengths) > 1
        assert set(np.cumsum(lengths).tolist()) <= starts
        assert chunked["n"].sum().compute() == n * (n - 1) // 2
        assert chunked["s"].compute().values.tolist() == table["s"]
        assert chunked.isel(row=slice(990, 1010))["n"].values.tolist() == list(range(990, 1010))


def test_a_column_can_be_the_index(data):
    path, table = data
    ds = xr.open_dataset(path, engine="colstore", index="n")
    assert ds.sel(n=17)["text"].item() == table["text"].to_pylist()[17]
    assert ds.sel(n=slice(10, 12))["n"].values.tolist() == [10, 11, 12]


def test_the_accessor_reads_all_variables_in_one_pass(data):
    path, table = data
    ds = xr.open_dataset(path, engine="colstore")
    taken = ds.colstore.take([7, 3, N - 1])
    assert taken["n"].values.tolist() == [7, 3, N - 1]
    assert taken["text"].values.tolist() == [table["text"].to_pylist()[k] for k in (7, 3, N - 1)]
    some = ds.colstore.load(columns=["note", "x"], rows=slice(5, 50))
    assert text(some["note"].values) == table["note"].to_pylist()[5:50]


def test_asynchronous_loading_and_pickles_give_the_same(data):
    path, table = data
    ds = xr.open_dataset(path, engine="colstore")
    again = pickle.loads(pickle.dumps(ds))
    assert len(pickle.dumps(ds)) < 60_000
    assert text(again["note"].values) == table["note"].to_pylist()
    loaded = asyncio.run(xr.open_dataset(path, engine="colstore").load_async())
    xr.testing.assert_identical(loaded, ds.load())


def test_options_of_encoded_formats_reach_open(tmp_path):
    cs.store({"a": np.arange(1000)}, tmp_path / "a.abcd").close()
    with pytest.raises(cs.FormatError, match="rows"):
        xr.open_dataset(tmp_path / "a.abcd", engine="colstore", max_rows=10)
    cs.store({"s": ["a", "b"]}, tmp_path / "s.abcd").close()
    ds = xr.open_dataset(tmp_path / "s.abcd", engine="colstore", errors="surrogateescape")
    assert ds["s"].values.tolist() == [b"a", b"b"]
