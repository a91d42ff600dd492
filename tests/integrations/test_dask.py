"""A table in Dask is the same table: same rows, same types, read only where it is needed."""

from __future__ import annotations

import os
import pickle
import shutil
import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from servers import CountingFileSystem, new_store
from tables import LAYOUTS, columns, write_files

import colstore_io as cs
from colstore_io import StaleDatasetError, col
from colstore_io.integrations import dask as integration
from colstore_io.integrations.dask import read_colstore, read_colstore_array
from colstore_io.storage import LocalFiles

DATA = columns()
N = len(DATA["id"])
ROW_BYTES = sum(values.dtype.itemsize for values in DATA.values())
TEXT = pd.StringDtype("pyarrow")


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module", params=list(LAYOUTS))
def paths(request, tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("dask"), DATA, LAYOUTS[request.param])


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """One file of 10 records of 100 rows, with statistics; `t` increases, `k` does not."""
    path = tmp_path_factory.mktemp("records") / "r.cstore"
    rng = np.random.default_rng(3)
    with cs.create(path, statistics=True) as writer:
        for r in range(10):
            first = 100 * r
            writer.write(
                {
                    "t": np.arange(first, first + 100) * 10,
                    "k": rng.integers(0, 5, 100),
                    "x": rng.standard_normal(100),
                    "when": np.datetime64("2024-01-01", "us") + np.arange(first, first + 100).astype("m8[s]"),
                    "name": np.array([f"n{i % 3}" for i in range(100)]),
                }
            )
    return path


def expected(data=DATA):
    """Return the frame as Dask should give it."""
    return pd.DataFrame(
        {
            name: pd.array(values.tolist(), dtype=TEXT)
            if values.dtype.kind == "U"
            else pd.Series(list(values), dtype=object)
            if values.dtype.kind == "S"
            else values
            for name, values in data.items()
        }
    )


def open_frame(path):
    """The whole file as pandas gives it, computed without any of the code under test."""
    with cs.open(path) as table:
        data = {name: table.array(name) for name in table.columns}
    return expected(data)


# ----------------------------------------------------------------------------------------------------------
# The same table


def test_frame_equals_the_table(paths):
    df = read_colstore([str(p) for p in paths])
    result = df.compute()
    pd.testing.assert_frame_equal(result, expected())
    assert list(result.index) == list(range(N))


@pytest.mark.parametrize("blocksize", [1, ROW_BYTES * 7, ROW_BYTES * 30, "1 MiB", None, "default"])
def test_any_block_size_gives_the_same_rows_and_known_row_number_divisions(paths, blocksize):
    df = read_colstore([str(p) for p in paths], blocksize=blocksize)
    assert df.known_divisions
    assert df.divisions[0] == 0
    assert df.divisions[-1] == N - 1
    starts = [*df.divisions[:-1], N]
    for number in range(df.npartitions):
        part = df.get_partition(number).compute()
        assert list(part.index) == list(range(starts[number], starts[number + 1]))
        assert isinstance(part.index, pd.RangeIndex)
    pd.testing.assert_frame_equal(df.compute(), expected())


def test_threads_give_the_same_rows(paths):
    df = read_colstore([str(p) for p in paths], blocksize=ROW_BYTES * 5)
    pd.testing.assert_frame_equal(df.compute(scheduler="threads", num_workers=4), expected())


@pytest.mark.parametrize(
    "way", ["file", "path", "list", "pattern", "directory", "open reader", "open file", "url"]
)
def test_every_spelling_of_a_path(tmp_path, way):
    paths = write_files(tmp_path, DATA, LAYOUTS["uniform files"])
    one, some = DATA["id"][:33], DATA["id"]
    cases = {
        "file": (str(paths[0]), one),
        "path": (paths[0], one),
        "list": (paths, some),
        "pattern": (str(tmp_path / "part_*.cstore"), some),
        "directory": (str(tmp_path), some),
        "open reader": (cs.open(paths[0]), one),
        "open file": (fsspec.open(str(paths[0])), one),
        "url": (f"file://{paths[0]}", one),
    }
    path, want = cases[way]
    np.testing.assert_array_equal(read_colstore(path).id.compute().to_numpy(), want)


def test_remote_files_are_read(tmp_path):
    memory = fsspec.filesystem("memory")
    for path in write_files(tmp_path, DATA, LAYOUTS["uniform files"]):
        memory.pipe_file(f"/dask_remote/{path.name}", path.read_bytes())
    df = dd.read_colstore("memory://dask_remote/part_*.cstore", blocksize=1000)
    pd.testing.assert_frame_equal(df.compute(), expected())


def test_storage_options_and_filesystem_exclude_each_other(tmp_path):
    (path,) = write_files(tmp_path, DATA, [[97]])
    local = fsspec.filesystem("file")
    assert len(read_colstore(str(path), filesystem=local)) == N
    with pytest.raises(ValueError, match="not both"):
        read_colstore(str(path), filesystem=local, storage_options={})
    with pytest.raises(ValueError, match="arrow"):
        read_colstore(str(path), filesystem="arrow")


def test_open_tables_take_no_options_of_open(records):
    with cs.open(records) as table:
        for options in ({"mmap": False}, {"storage_options": {}}, {"filesystem": fsspec.filesystem("file")}):
            with pytest.raises(ValueError, match="open table"):
                read_colstore(table, **options)


def test_table_without_rows_is_one_empty_partition(tmp_path):
    path = tmp_path / "empty.cstore"
    cs.store({name: values[:0] for name, values in DATA.items()}, path)
    df = read_colstore(path)
    assert df.npartitions == 1
    assert len(df) == 0
    pd.testing.assert_frame_equal(
        df.compute(), expected({n: v[:0] for n, v in DATA.items()}), check_index_type=False
    )
    assert df.id.sum().compute() == 0


def test_small_files_share_partitions_unless_told_otherwise(tmp_path):
    write_files(tmp_path, DATA, [[1] for _ in range(97)])
    assert read_colstore(str(tmp_path)).npartitions == 1
    assert read_colstore(str(tmp_path), aggregate_files=False).npartitions == 97


def test_records_are_cut_only_when_allowed(tmp_path):
    (path,) = write_files(tmp_path, DATA, [[97]])
    assert read_colstore(path, blocksize=ROW_BYTES * 10).npartitions == 10
    assert read_colstore(path, blocksize=ROW_BYTES * 10, split_records=False).npartitions == 1


def test_blocks_are_measured_in_the_selected_columns(tmp_path):
    (path,) = write_files(tmp_path, DATA, [[97]])
    assert read_colstore(path, columns=["u1"], blocksize=40).npartitions == 3
    assert read_colstore(path, columns=["x"], blocksize=40).npartitions == 20


# ----------------------------------------------------------------------------------------------------------
# Columns


def test_selected_columns_come_in_the_order_asked_for(records):
    assert list(read_colstore(records, columns=["x", "t"]).compute().columns) == ["x", "t"]


def test_a_single_name_gives_a_series(records):
    series = read_colstore(records, columns="x")
    assert isinstance(series, dd.Series)
    assert series.name == "x"
    pd.testing.assert_series_equal(series.compute(), open_frame(records)["x"])


def test_no_columns_keep_the_rows(records):
    assert len(read_colstore(records, columns=[]).compute()) == 1000


def test_unknown_names_are_refused_at_once_with_close_matches(records):
    for arguments in (
        {"columns": ["x", "wen"]},
        {"columns": "wen"},
        {"index": "wen"},
        {"filters": [("wen", "<", 3)]},
    ):
        with pytest.raises(KeyError, match="when"):
            read_colstore(records, **arguments)


def test_projection_reads_only_the_columns_it_needs(tmp_path):
    path = tmp_path / "wide.cstore"
    cs.store({f"c{i}": np.arange(50_000) + i for i in range(10)}, path)
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/wide.cstore", path.read_bytes())
    with cs.open("memory://wide.cstore") as table:
        df = read_colstore(table)
        before = table.io.bytes
        assert df["c3"].sum().compute() == np.sum(np.arange(50_000) + 3)
        assert table.io.bytes - before == 50_000 * 8


def test_making_a_collection_reads_no_data(tmp_path):
    path = tmp_path / "lazy.cstore"
    cs.store({"x": np.arange(100_000)}, path)
    fsspec.filesystem("memory").pipe_file("/lazy.cstore", path.read_bytes())
    with cs.open("memory://lazy.cstore") as table:
        before = table.io.as_dict()
        df = read_colstore(table, blocksize=1000)
        assert (df.npartitions, df.dtypes["x"], df.divisions[1]) == (800, np.dtype("i8"), 125)
        repr(df)
        assert table.io.as_dict() == before


# ----------------------------------------------------------------------------------------------------------
# Types


def assert_meta_holds(df):
    """The meta of a collection and every one of its partitions have the same types."""
    assert len(df._meta) == 0
    for number in range(df.npartitions):
        part = df.get_partition(number).compute()
        pd.testing.assert_series_equal(part.dtypes, df._meta.dtypes)
        assert part.index.dtype == df._meta.index.dtype
        assert part.index.name == df._meta.index.name


@pytest.fixture(scope="module")
def nullable(tmp_path_factory):
    path = tmp_path_factory.mktemp("nullable") / "n.cstore"
    table = pa.table(
        {
            "i": pa.array([1, None, 3, None], pa.int64()),
            "b": pa.array([True, None, False, True]),
            "f": pa.array([1.5, None, 2.5, 3.5]),
            "s": pa.array(["a", None, "ccc", ""]),
            "raw": pa.array([b"\xff\x00a", None, b"b", b""], pa.binary()),
            "d": pa.array([0, None, 1, 2], pa.date32()),
            "t": pa.array([0, None, 1, 2], pa.timestamp("us", tz="Europe/Berlin")),
        }
    )
    cs.store(table, path)
    return path


@pytest.mark.parametrize("backend", [None, "numpy_nullable", "pyarrow"])
def test_types_are_those_of_the_frame(nullable, records, backend):
    for path in (nullable, records):
        df = read_colstore(path, dtype_backend=backend)
        assert_meta_holds(df)
        with cs.open(path) as table:
            frame = table.frame(dtype_backend=backend)
        text = {
            n: TEXT
            for n, d in frame.dtypes.items()
            if isinstance(d, pd.StringDtype) and d.na_value is not pd.NA
        }
        if backend is None:
            frame = frame.astype(text)
        pd.testing.assert_frame_equal(df.compute(), frame)


@pytest.mark.parametrize("backend", [None, "numpy_nullable", "pyarrow"])
@pytest.mark.parametrize("index", ["k", "x", "when", "name"])
def test_types_hold_with_any_index_and_with_filters(records, index, backend):
    for filters in (None, [("t", ">", 1500)], [("t", "<", 0)]):
        df = read_colstore(records, index=index, filters=filters, dtype_backend=backend, blocksize=8000)
        assert_meta_holds(df)
        assert df.index.name == index


def test_text_is_what_dask_uses_and_bytes_stay_bytes(tmp_path):
    (path,) = write_files(tmp_path, DATA, [[97]])
    df = read_colstore(path)
    assert df.dtypes["name"] == TEXT
    assert df.dtypes["code"] == np.dtype(object)
    assert df.code.compute().tolist() == DATA["code"].tolist()
    assert df.name.str.upper().compute().tolist() == [t.upper() for t in DATA["name"].tolist()]


def test_text_is_pandas_own_when_conversion_is_off(tmp_path):
    (path,) = write_files(tmp_path, DATA, [[97]])
    with dask.config.set({"dataframe.convert-string": False}):
        df = read_colstore(path)
    assert df.dtypes["name"] == pd.Series(["a"], dtype="str").dtype
    assert_meta_holds(df)  # computed after the setting changed back


def test_categories_are_known_where_the_file_stores_them(tmp_path):
    path = tmp_path / "c.cstore"
    stored = pd.Categorical(["b", "a", "b"], categories=["a", "b", "z"], ordered=True)
    cs.store(pd.DataFrame({"c": stored, "s": ["u", "v", "u"]}), path)
    assert read_colstore(path).dtypes["c"] == TEXT
    df = read_colstore(path, categories=["c", "s"])
    assert df.c.cat.known
    assert df.dtypes["c"] == stored.dtype
    assert not df.s.cat.known
    result = df.compute()
    assert result.c.tolist() == ["b", "a", "b"]
    assert result.s.cat.categories.tolist() == ["u", "v"]
    with pytest.raises(KeyError):
        read_colstore(path, categories=["nope"])


# ----------------------------------------------------------------------------------------------------------
# Index and divisions


def test_loc_touches_one_partition(records):
    df = read_colstore(records, blocksize=None)
    assert df.npartitions == 10
    part = df[["x"]].loc[310:320]
    assert part.npartitions == 1
    pd.testing.assert_frame_equal(part.compute(), open_frame(records)[["x"]].loc[310:320])


def test_joins_on_row_numbers_align(records):
    left = read_colstore(records, columns=["x"], blocksize=None)
    right = read_colstore(records, columns=["t"], blocksize=2400)
    joined = left.join(right).compute()
    pd.testing.assert_frame_equal(joined, open_frame(records)[["x", "t"]])


@pytest.mark.parametrize("index", ["t", "when"])
def test_sorted_column_as_index_gets_divisions_from_statistics(records, index):
    df = read_colstore(records, index=index, blocksize=None)
    assert df.known_divisions
    assert df.npartitions == 10
    want = open_frame(records).set_index(index)
    assert df.divisions == (*want.index[::100], want.index[-1])
    pd.testing.assert_frame_equal(df.compute(), want)
    part = df.loc[want.index[250] : want.index[260]]
    assert part.npartitions == 1
    pd.testing.assert_frame_equal(part.compute(), want.iloc[250:261])


def test_unsorted_or_unproven_index_has_unknown_divisions(records, tmp_path):
    assert not read_colstore(records, index="k").known_divisions
    assert not read_colstore(records, index="x").known_divisions
    assert not read_colstore(records, index="t", calculate_divisions=False).known_divisions
    (path,) = write_files(tmp_path, DATA, [[50, 47]])
    assert not read_colstore(path, index="id").known_divisions
    pd.testing.assert_frame_equal(read_colstore(path, index="id").compute(), expected().set_index("id"))


def test_divisions_are_read_when_asked_for(tmp_path):
    (path,) = write_files(tmp_path, DATA, [[50, 47]])
    df = read_colstore(path, index="id", calculate_divisions=True, blocksize=None)
    assert df.divisions == (0, 50, 96)
    assert not read_colstore(path, index="x", calculate_divisions=True).known_divisions


def test_the_index_cannot_be_a_column_too(records):
    with pytest.raises(ValueError, match="both"):
        read_colstore(records, index="t", columns=["t", "x"])
    assert list(read_colstore(records, index="t").columns) == ["k", "x", "when", "name"]
    assert read_colstore(records, index=False).divisions[-1] == 999


# ----------------------------------------------------------------------------------------------------------
# Filters

FILTERS = [
    [("x", ">", 0.5)],
    [("k", "==", 3), ("x", "<=", 0)],
    [[("k", "in", [1, 2]), ("x", ">", 1)], [("k", "not in", [0, 1, 2])]],
    [("name", "==", "n1")],
    [("t", ">=", 2500), ("t", "<", 4100)],
    [("t", "<", -1)],
    col("x") * 2 > col("k"),
    (col("t") > 9000) | (col("t") < 500),
]
MASKS = [
    lambda f: f.x > 0.5,
    lambda f: (f.k == 3) & (f.x <= 0),
    lambda f: (f.k.isin([1, 2]) & (f.x > 1)) | ~f.k.isin([0, 1, 2]),
    lambda f: f.name == "n1",
    lambda f: (f.t >= 2500) & (f.t < 4100),
    lambda f: f.t < -1,
    lambda f: f.x * 2 > f.k,
    lambda f: (f.t > 9000) | (f.t < 500),
]


@pytest.mark.parametrize("blocksize", [None, 2000, "default"])
@pytest.mark.parametrize("case", range(len(FILTERS)))
def test_filters_keep_exactly_the_matching_rows(records, case, blocksize):
    df = read_colstore(records, filters=FILTERS[case], blocksize=blocksize)
    frame = open_frame(records)
    want = frame[MASKS[case](frame)]
    pd.testing.assert_frame_equal(df.compute(), want)
    assert df.divisions[0] is not None
    only = read_colstore(records, filters=FILTERS[case], columns=["when"], blocksize=blocksize)
    pd.testing.assert_frame_equal(only.compute(), want[["when"]])


def test_partitions_that_cannot_match_are_left_out(records):
    df = read_colstore(records, filters=[("t", ">=", 2500), ("t", "<", 4100)], blocksize=None)
    assert df.npartitions == 3
    assert df.divisions == (200, 300, 400, 500)  # as of `df.partitions[2:5]`
    assert read_colstore(records, filters=[("t", "<", -1)], blocksize=None).npartitions == 1


def test_excluded_records_at_the_ends_of_a_partition_are_not_read(records):
    fsspec.filesystem("memory").pipe_file("/filtered.cstore", records.read_bytes())
    with cs.open("memory://filtered.cstore") as table:
        df = read_colstore(table, columns=["x"], filters=[("t", "<", 900)])
        assert df.npartitions == 1
        before = table.io.bytes
        assert len(df.compute()) == 90
        # `t` and `x` of one record, read together with what lies between them, and `x` once more for the result
        assert table.io.bytes - before < 20_000


def test_filters_and_index_together(records):
    df = read_colstore(records, index="t", filters=[("t", ">", 5005)], blocksize=None)
    frame = open_frame(records)
    pd.testing.assert_frame_equal(df.compute(), frame[frame.t > 5005].set_index("t"))
    assert df.divisions[0] == 5000


def test_filters_on_nulls(nullable):
    assert read_colstore(nullable, filters=[("i", "!=", 1)]).f.compute().tolist() == [2.5]
    assert len(read_colstore(nullable, filters=col("s").isna()).compute()) == 1


# ----------------------------------------------------------------------------------------------------------
# What travels


def test_descriptors_are_small_and_hold_no_statistics(tmp_path):
    path = tmp_path / "ten.cstore"
    with cs.create(path, statistics=True) as writer:
        for r in range(200):
            writer.write({f"column_{i}": np.arange(100) + r for i in range(10)})
    df = read_colstore(path, blocksize=None)
    assert df.npartitions == 200
    sizes = [len(pickle.dumps(df.expr.part(number))) for number in range(200)]
    assert max(sizes) < 1024
    whole = read_colstore(path)
    part = whole.expr.part(0)
    assert len(pickle.dumps(part)) < 1024 + 200 * 24


def test_a_task_reads_no_header_again(records):
    fsspec.filesystem("memory").pipe_file("/task.cstore", records.read_bytes())
    df = read_colstore("memory://task.cstore", columns=["x"], blocksize=None)
    part = pickle.loads(pickle.dumps(df.expr.part(7)))
    frame = df.expr.reader(part)
    assert list(frame.index) == list(range(700, 800))
    assert part.source.io.requests == 1
    assert part.source.io.bytes == 800
    assert (
        part.source.io.metadata_requests == 1
    )  # is it still the version of the plan? asked once in a process
    after = pickle.loads(pickle.dumps(df.expr.part(8)))
    df.expr.reader(after)
    assert after.source.io.requests == 1
    assert after.source.io.metadata_requests == 0


def test_names_are_the_same_for_the_same_call(records):
    arguments = {"columns": ["x", "k"], "filters": [("k", ">", 1)], "blocksize": 3000}
    first, second = read_colstore(records, **arguments), read_colstore(str(records), **arguments)
    assert first._name == second._name
    assert list(first.__dask_graph__()) == list(second.__dask_graph__())
    others = [
        {},
        {"columns": ["x"]},
        {"filters": [("k", ">", 2)]},
        {"blocksize": 4000},
        {"dtype_backend": "pyarrow"},
    ]
    names = {read_colstore(records, **{**arguments, **other})._name for other in others}
    assert len(names) == len(others)


def test_changed_file_gets_new_names(tmp_path):
    path = tmp_path / "change.cstore"
    cs.store({"x": np.arange(5)}, path)
    before = read_colstore(path)
    cs.store({"x": np.arange(5) + 1}, path, mode="recreate")
    after = read_colstore(path)
    assert before._name != after._name
    assert after.x.compute().tolist() == [1, 2, 3, 4, 5]


def test_file_that_only_grew_is_read_as_planned(tmp_path):
    path = tmp_path / "grows.cstore"
    cs.store({"x": np.arange(5)}, path)
    df = read_colstore(path)
    part = pickle.dumps(df.expr.part(0))
    with cs.update(path) as writer:
        writer.write({"x": np.arange(3)})
    assert df.expr.reader(pickle.loads(part)).x.tolist() == [0, 1, 2, 3, 4]
    assert len(read_colstore(path)) == 8


def test_file_that_changes_under_a_task_is_noticed(tmp_path):
    path = tmp_path / "stale.cstore"
    cs.store({"x": np.arange(5)}, path)
    part = pickle.dumps(read_colstore(path).expr.part(0))
    reader = read_colstore(path).expr.reader
    cs.store({"x": np.arange(6) + 1}, path, mode="recreate")
    with pytest.raises(cs.StaleDatasetError):
        reader(pickle.loads(part))


def test_opening_many_remote_files_is_one_listing_and_one_round(tmp_path):
    name, store = new_store()
    for path in write_files(tmp_path, DATA, [[1] for _ in range(97)]):
        store.put(f"bucket/{path.name}", path.read_bytes())
    fs = CountingFileSystem(store=name)
    df = read_colstore("bucket/part_*.cstore", filesystem=fs, columns=["x"])
    assert df.npartitions == 1
    assert (store.count("list"), store.count("info"), store.count("range")) == (1, 0, 97)
    store.log.clear()
    np.testing.assert_array_equal(df.x.compute().to_numpy(), DATA["x"])
    assert (store.count("list"), store.count("info"), store.count("range")) == (0, 0, 97)
    assert store.bytes_asked() == 97 * 8


@pytest.mark.service
def test_pattern_on_s3_is_grouped(tmp_path, moto_s3):
    prefix = moto_s3.prefix()
    rng = np.random.default_rng(0)
    client, frames = moto_s3.client(), []
    for run in (1, 2, 10):
        data = {"carrier": rng.choice(["AA", "UA", "DL"], 500), "delay": rng.integers(-10, 90, 500)}
        cs.store(data, tmp_path / f"run_{run}.cstore")
        client.pipe_file(f"{prefix}/run_{run}.cstore", (tmp_path / f"run_{run}.cstore").read_bytes())
        frames.append(pd.DataFrame(data))
    df = dd.read_colstore(f"s3://{prefix}/run_*.cstore", storage_options=moto_s3.options, blocksize="8 KiB")
    whole = pd.concat(frames, ignore_index=True)
    want = whole.groupby("carrier").delay.mean()
    with dask.config.set(scheduler="threads"):
        got = df.groupby("carrier").delay.mean().compute()
    np.testing.assert_allclose(got.sort_index().to_numpy(), want.to_numpy())
    assert got.sort_index().index.tolist() == want.index.tolist()
    assert df.delay.compute().tolist() == whole.delay.tolist()


@pytest.mark.slow
def test_processes_give_the_same_result(tmp_path):
    from distributed import Client, LocalCluster

    paths = write_files(tmp_path, DATA, LAYOUTS["irregular files"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # distributed's own: ports, unclosed sockets at shutdown
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            df = read_colstore([os.path.relpath(p) for p in paths], blocksize=ROW_BYTES * 10)
            result = client.compute(df).result(timeout=60)
            pd.testing.assert_frame_equal(result, expected())
            kept = client.compute(read_colstore(paths, filters=[("id", ">", 50)]).x.sum()).result(timeout=60)
            assert kept == pytest.approx(DATA["x"][51:].sum())
            array = client.compute(read_colstore_array(paths, "id", blocksize=80).sum()).result(timeout=60)
            assert array == DATA["id"].sum()
            budgets = client.run(lambda: __import__("colstore_io.threads", fromlist=["budget"]).budget())
            assert set(budgets.values()) == {1}


# ----------------------------------------------------------------------------------------------------------
# dask.array


@pytest.mark.parametrize("name", list(DATA))
def test_array_of_a_column(paths, name):
    array = read_colstore_array([str(p) for p in paths], name, blocksize=200)
    assert isinstance(array, da.Array)
    assert array.dtype == DATA[name].dtype
    assert array.shape == (N,)
    np.testing.assert_array_equal(array.compute(), DATA[name])
    np.testing.assert_array_equal(array[5:60:3].compute(), DATA[name][5:60:3])
    np.testing.assert_array_equal(array[[3, 90, 4]].compute(), DATA[name][[3, 90, 4]])
    assert array[7].compute() == DATA[name][7]


def test_array_chunks_are_the_partitions_of_the_frame(paths):
    files = [str(p) for p in paths]
    array = read_colstore_array(files, "x", blocksize=160)
    df = read_colstore(files, columns=["x"], blocksize=160)
    assert array.numblocks == (df.npartitions,)
    assert np.cumsum((0, *array.chunks[0][:-1])).tolist() == list(df.divisions[:-1])


def test_array_of_several_columns(paths):
    array = read_colstore_array([str(p) for p in paths], ["id", "x", "u1"], blocksize=300)
    want = np.column_stack([DATA["id"], DATA["x"], DATA["u1"]])
    assert array.dtype == np.float64
    assert array.chunks[1] == (3,)
    np.testing.assert_array_equal(array.compute(), want)
    np.testing.assert_array_equal(array[10:20, 1].compute(), want[10:20, 1])
    np.testing.assert_array_equal(array[:, [2, 0]].compute(), want[:, [2, 0]])
    np.testing.assert_array_equal(array[4].compute(), want[4])
    assert array[4, 2].compute() == want[4, 2]
    with pytest.raises(TypeError, match="common dtype"):
        read_colstore_array([str(p) for p in paths], ["id", "when"])


def test_array_of_nullable_columns_marks_the_missing(nullable):
    np.testing.assert_array_equal(read_colstore_array(nullable, "i").compute(), [1.0, np.nan, 3.0, np.nan])
    assert read_colstore_array(nullable, "s").compute().tolist()[2:] == ["ccc", ""]
    assert np.isnat(read_colstore_array(nullable, "d").compute()).tolist() == [False, True, False, False]


def test_array_names_follow_the_file(tmp_path):
    path = tmp_path / "a.cstore"
    cs.store({"x": np.arange(5)}, path)
    first, second = read_colstore_array(path, "x"), read_colstore_array(path, "x")
    assert first.name == second.name
    cs.store({"x": np.arange(5) + 1}, path, mode="recreate")
    assert read_colstore_array(path, "x").name != first.name


def test_array_reads_only_the_rows_it_needs(tmp_path):
    path = tmp_path / "rows.cstore"
    cs.store({"x": np.arange(100_000)}, path)
    fsspec.filesystem("memory").pipe_file("/rows.cstore", path.read_bytes())
    with cs.open("memory://rows.cstore") as table:
        array = read_colstore_array(table, "x")
        before = table.io.bytes
        assert array[1000:1010].compute().tolist() == list(range(1000, 1010))
        assert table.io.bytes - before == 80


# ----------------------------------------------------------------------------------------------------------
# Being found


def test_views_share_the_mapping_or_are_refused_at_once(records, tmp_path):
    df = read_colstore(records, columns=["t", "x", "when"], blocksize=None, copy=False)
    part = df.get_partition(3).compute()
    assert not part["x"].to_numpy().flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        part["x"].to_numpy()[0] = 1
    pd.testing.assert_frame_equal(df.compute(), open_frame(records)[["t", "x", "when"]])
    assert df._name != read_colstore(records, columns=["t", "x", "when"], blocksize=None)._name
    fsspec.filesystem("memory").pipe_file("/views.cstore", records.read_bytes())
    for path, arguments, message in [
        (records, {"columns": ["name"], "blocksize": None}, "name"),
        (records, {"columns": ["x"]}, "one record"),
        (records, {"columns": ["x"], "blocksize": None, "filters": [("x", ">", 0)]}, "filters"),
        (records, {"columns": ["x"], "blocksize": None, "mmap": False}, "mapped"),
        ("memory://views.cstore", {"columns": ["x"], "blocksize": None}, "mapped"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_colstore(path, copy=False, **arguments)


def test_a_table_without_columns_is_one_partition(tmp_path):
    path = tmp_path / "none.cstore"
    cs.store({"x": np.arange(5)}, path)
    assert read_colstore(path, columns=[], blocksize=1).npartitions == 1


def test_importing_the_integration_adds_the_function_to_dask():
    assert dd.read_colstore is read_colstore


def test_a_foreign_attribute_is_left_alone(monkeypatch):
    def foreign():
        pass

    monkeypatch.setattr(dd, "read_colstore", foreign)
    integration._attach()
    assert dd.read_colstore is foreign


def test_a_directory_is_planned_without_an_object_for_each_file(tmp_path):
    for number in range(20):
        cs.store({"x": np.arange(5) + 5 * number}, tmp_path / f"p{number}.cstore").close()
    df = read_colstore(str(tmp_path), blocksize=None, aggregate_files=False)
    files = df.expr.plan.source.files
    assert (df.npartitions, len(df)) == (20, 100)
    assert type(files) is LocalFiles
    assert [number for number, _ in files.made()] in (
        [],
        [0],
    )  # the first one tells what to expect of the others
    assert df.partitions[1:].compute().x.tolist() == list(range(5, 100))
    shutil.copy(tmp_path / "p1.cstore", tmp_path / "p0.new")
    os.replace(tmp_path / "p0.new", tmp_path / "p0.cstore")
    elsewhere = pickle.loads(pickle.dumps(df))
    with pytest.raises(StaleDatasetError, match=r"p0\.cstore"):
        elsewhere.partitions[0].compute()
