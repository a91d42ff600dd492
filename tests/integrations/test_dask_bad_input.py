"""Wrong arguments fail at the call, and files that change under a collection fail in the task, by name."""

from __future__ import annotations

import gc
import os
import pickle

import dask
import numpy as np
import pandas as pd
import pytest
from servers import CountingFileSystem, new_store

import colstore_io as cs
from colstore_io import col
from colstore_io.integrations.dask import read_colstore, read_colstore_array, to_colstore


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def write(path, first, **more):
    cs.store({"x": np.arange(first, first + 10), "s": np.array(["a"] * 10), **more}, path)


@pytest.fixture
def folder(tmp_path):
    for number in range(3):
        write(tmp_path / f"part_{number}.cstore", 10 * number)
    return tmp_path


def planned(folder):
    """A collection as another process would receive it: nothing open."""
    data = pickle.dumps(read_colstore(str(folder), blocksize=None))
    gc.collect()  # Dask gives the same object again while it lives
    return pickle.loads(data)


def test_missing_shard_is_named(folder):
    df = planned(folder)
    (folder / "part_1.cstore").unlink()
    with pytest.raises(cs.StaleDatasetError, match="part_1"):
        df.compute()


def test_replaced_shard_is_noticed(folder):
    df = planned(folder)
    write(folder / "new.tmp", 500)
    (folder / "new.tmp").replace(folder / "part_1.cstore")
    with pytest.raises(cs.StaleDatasetError, match="part_1"):
        df.x.sum().compute()


def test_truncated_shard_is_noticed(folder):
    df = planned(folder)
    os.truncate(folder / "part_2.cstore", (folder / "part_2.cstore").stat().st_size - 300)
    with pytest.raises((cs.StaleDatasetError, cs.FormatError), match="part_2"):
        df[df.x > 5].compute()


def test_shard_of_another_schema_is_refused_at_the_call_or_dropped_to_what_is_common(folder):
    write(folder / "part_3.cstore", 0, more=np.arange(10))
    with pytest.raises(cs.SchemaMismatchError, match="part_3"):
        read_colstore(str(folder))
    with pytest.warns(RuntimeWarning, match="more"):
        df = read_colstore(str(folder), on_mismatch="drop")
    assert list(df.columns) == ["x", "s"]


def test_shard_replaced_by_another_schema_after_planning_is_noticed(folder):
    df = planned(folder)
    cs.store({"other": np.arange(3.0)}, folder / "part_0.cstore", mode="recreate")
    with pytest.raises(cs.StaleDatasetError, match="part_0"):
        df.compute()


def test_object_replaced_after_planning_is_noticed(tmp_path):
    name, store = new_store()
    write(tmp_path / "a.cstore", 0)
    store.put("bucket/a.cstore", (tmp_path / "a.cstore").read_bytes())
    df = pickle.loads(
        pickle.dumps(read_colstore("bucket/a.cstore", filesystem=CountingFileSystem(store=name)))
    )
    write(tmp_path / "b.cstore", 7)
    store.put("bucket/a.cstore", (tmp_path / "b.cstore").read_bytes())
    with pytest.raises(cs.StaleDatasetError):
        df.compute()


def test_listing_that_is_out_of_date_is_looked_up_again(tmp_path):
    name, store = new_store()
    write(tmp_path / "a.cstore", 0)
    for member in ("a", "b"):
        store.put(f"bucket/d/{member}.cstore", (tmp_path / "a.cstore").read_bytes())
    fs = CountingFileSystem(store=name)
    fs.ls("bucket/d")
    del store.objects["bucket/d/b.cstore"]
    assert len(read_colstore("bucket/d", filesystem=fs)) == 10


def test_files_without_rows_are_fine_and_files_without_bytes_are_named(folder):
    cs.store({"x": np.arange(0), "s": np.array([], "U1")}, folder / "part_0a.cstore")
    df = read_colstore(str(folder), blocksize=None)
    assert df.x.compute().tolist() == list(range(30))
    assert len(df) == 30
    (folder / "part_5.cstore").touch()
    with pytest.raises(cs.FormatError, match="part_5"):
        read_colstore(str(folder))
    with pytest.warns(RuntimeWarning, match="part_5"):
        assert len(read_colstore(str(folder), on_empty_file="skip")) == 30


def test_hidden_files_markers_and_checksums_are_no_members(folder):
    for name in ("_SUCCESS", "_metadata.cstore", ".part_9.cstore", "part_0.cstore.crc", "notes.txt"):
        (folder / name).write_bytes(b"nothing of ours")
    assert len(read_colstore(str(folder))) == 30


@pytest.mark.parametrize(
    ("filters", "error"),
    [
        ([("y", ">", 1)], KeyError),
        (col("y") > 1, KeyError),
        ([("x", ">", "text")], cs.QueryError),
        ([("s", "==", 3)], cs.QueryError),
        (col("x") > np.datetime64("2024-01-01"), cs.QueryError),
        ([("x", "~", 1)], cs.QueryError),
        ([("x", "in", 3)], cs.QueryError),
        ([("x",)], cs.QueryError),
        ("x > 1", cs.QueryError),
        (col("x") + 1, cs.QueryError),
    ],
)
def test_filters_that_do_not_fit_are_refused_at_the_call(folder, filters, error):
    with pytest.raises(error):
        read_colstore(str(folder), filters=filters)


def test_comparison_that_pandas_refuses_is_left_to_pandas(folder):
    df = read_colstore(str(folder))
    with pytest.raises(TypeError):
        df[df.x > "text"].compute()
    assert len(df[df.x == "text"].compute()) == 0


def test_arguments_are_checked_at_the_call(folder):
    for options in (
        {"columns": ["x", "x"]},
        {"columns": [3]},
        {"index": 3},
        {"index": ["x", "s"]},
        {"blocksize": "many"},
        {"blocksize": 0},
        {"split_records": "maybe"},
        {"aggregate_files": "all"},
        {"dtype_backend": "numpy"},
        {"categories": ["z"]},
    ):
        with pytest.raises((ValueError, KeyError)):
            read_colstore(str(folder), **options)
    with pytest.raises(TypeError, match="memory_map"):
        read_colstore(str(folder), memory_map=True)
    with pytest.raises(FileNotFoundError):
        read_colstore(str(folder / "none.cstore"))


def test_names_that_a_file_cannot_have_are_refused_before_writing(tmp_path):
    for frame in (
        pd.DataFrame({0: [1]}),
        pd.DataFrame({("a", "b"): [1]}),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame(index=range(3)),
    ):
        with pytest.raises(ValueError, match=r"name|column"):
            to_colstore(frame, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_graph_of_an_array_does_not_grow_with_its_chunks(tmp_path):
    write(tmp_path / "a.cstore", 0)
    cs.store({"x": np.arange(100_000)}, tmp_path / "b.cstore")
    sizes = []
    for blocksize in (80_000, 8_000, 800):
        array = read_colstore_array(tmp_path / "b.cstore", "x", blocksize=blocksize)
        (layer,) = array.__dask_graph__().layers.values()
        assert not layer.is_materialized()
        sizes.append(len(pickle.dumps(layer)) - len(pickle.dumps(array.chunks)))
        task = dict(layer)[(array.name, 0)]
        assert len(pickle.dumps(task)) < 2048
    assert max(sizes) < 8192  # at most a few bytes a chunk


@pytest.mark.parametrize("paths", [[], ()])
def test_no_paths_at_all_are_refused_with_advice(paths):
    for read in (read_colstore, lambda path: read_colstore_array(path, "x")):
        with pytest.raises(ValueError, match="list of paths is empty: name at least one file"):
            read(paths)


@pytest.mark.parametrize(
    "filters", [[("enrgy", ">", 1)], [[("x", ">", 1)], [("enrgy", ">", 1)]], col("enrgy") > 1]
)
def test_a_filter_of_an_unknown_column_names_it_and_its_neighbours(tmp_path, filters):
    cs.store({"x": np.arange(3.0), "energy": np.arange(3.0)}, tmp_path / "e.cstore").close()
    with pytest.raises(cs.ColumnNotFoundError, match="'enrgy'; did you mean 'energy'") as caught:
        read_colstore(tmp_path / "e.cstore", filters=filters)
    assert type(caught.value) is cs.ColumnNotFoundError
