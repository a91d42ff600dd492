"""Whatever the layout and wherever the files are, a table reads like one NumPy array per column."""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import LAYOUTS, WAYS, columns, open_way, write_files

import colstore_io as cs
from colstore_io import ColumnNotFoundError, Dataset, Reader, SchemaMismatchError, StaleDatasetError

DATA = columns()
N = len(DATA["id"])


@pytest.fixture(scope="module", params=[(layout, way) for layout in LAYOUTS for way in WAYS], ids=": ".join)
def table(request, tmp_path_factory):
    layout, way = request.param
    folder = tmp_path_factory.mktemp("files")
    with open_way(write_files(folder, DATA, LAYOUTS[layout]), way) as opened:
        yield opened


def assert_same(got, want):
    assert got.dtype == want.dtype
    assert got.dtype.isnative
    np.testing.assert_array_equal(got, want)


KEYS = [
    None,
    0,
    -1,
    96,
    np.int16(40),
    slice(None),
    slice(10, 60),
    slice(60, 10),
    slice(None, None, -1),
    slice(90, 3, -7),
    slice(1, None, 13),
    [],
    [5, 5, -1, 0, 96, 33],
    np.arange(N)[::-1],
    np.arange(0, N, 3, dtype=">i4"),
    np.arange(N) % 3 == 0,
    np.zeros(N, bool),
    np.ones(N, bool),
    range(90, 10, -5),
]


NUMPY_KEYS = {
    id(key): slice(None) if key is None else np.atleast_1d(np.arange(N)[np.asarray(key, int)])
    for key in KEYS
    if key is None or isinstance(key, (list, int, np.integer))
}


@pytest.mark.parametrize("key", KEYS, ids=lambda k: str(k)[:30])
def test_rows_are_what_numpy_gives(table, key):
    for name, values in DATA.items():
        want = values[NUMPY_KEYS.get(id(key), key)]
        assert_same(table[key, name].array(), want)
    together = table[key].dict()
    assert list(together) == list(DATA)
    for name in DATA:
        np.testing.assert_array_equal(together[name], table[key, name].array())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.data())
def test_any_index_array_and_mask(table, data):
    rows = np.array(data.draw(st.lists(st.integers(-N, N - 1), max_size=60)), np.int64)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=N, max_size=N)), bool)
    start, step = data.draw(st.integers(-N, N)), data.draw(st.integers(-40, 40).filter(bool))
    names = data.draw(st.lists(st.sampled_from(list(DATA)), min_size=1, max_size=5, unique=True))
    for key in (rows, mask, slice(start, None, step)):
        got = table[key, names].dict()
        assert list(got) == names
        for name in names:
            assert_same(got[name], DATA[name][key])


def test_shape_names_and_membership(table):
    assert table.shape == (N, len(DATA))
    assert len(table) == table.n_rows == table.count() == N
    assert list(table) == table.columns == list(DATA)
    assert "x" in table
    assert "y" not in table
    assert table.dtypes == {name: values.dtype for name, values in DATA.items()}


def test_views_have_length_shape_and_end_when_iterated(table):
    column = table[10:20, "id"]
    assert len(column) == 10
    assert column.shape == (10,)
    assert list(column) == list(range(10, 20))
    assert table[10:20].shape == (10, len(DATA))
    assert list(table[10:20]) == list(DATA)


def test_views_compose(table):
    np.testing.assert_array_equal(table["id"][10:50][::-1][[0, -1]].array(), [49, 10])
    np.testing.assert_array_equal(table[20:30][["x", "id"]][2:4]["id"].array(), [22, 23])
    mask = np.arange(N) % 2 == 0
    np.testing.assert_array_equal(table[mask]["id"][np.arange(49) % 2 == 1].array(), np.arange(N)[mask][1::2])
    np.testing.assert_array_equal(table[2:8][[0, -1], "id"].array(), [2, 7])


def test_selectors_are_checked_against_the_length_of_the_view(table):
    with pytest.raises(IndexError):
        table[2:8][6, "id"].array()
    with pytest.raises(IndexError):
        table[2:8][np.ones(N, bool)].dict()


def test_bad_rows_raise_when_read_and_not_before(table):
    view = table[[0, N]]
    with pytest.raises(IndexError, match="out of bounds"):
        view.dict()
    for key in ([-N - 1], np.array([2**63], "u8"), 1.5, [0.5], True, np.ones(3, bool), np.ones((N, 1), bool)):
        with pytest.raises(IndexError):
            table[key].dict()


def test_key_shapes(table):
    for key in [(), (1,), (1, "id", 2), (1, 2), (1, np.array(["id"]))]:
        with pytest.raises(IndexError):
            table[key]
    assert table[[]].shape == (0, len(DATA))
    assert table[:, []].dict() == {}
    assert table[3:9, []].count() == 6
    assert table[:, ("id", "x")].columns == ["id", "x"]
    assert table[:5, None].columns == list(DATA)
    with pytest.raises(IndexError):
        table["id", "x"].array()


def test_unknown_names_raise_at_once_with_close_matches(table):
    with pytest.raises(ColumnNotFoundError, match="'when'"):
        table["whn"]
    with pytest.raises(KeyError, match="Unknown column"):
        table[:, ["id", "nope"]]
    with pytest.raises(KeyError):
        table.select("nope")
    with pytest.raises(ValueError, match="Duplicate"):
        table.select("id", "id")
    with pytest.raises(ValueError, match="at least one"):
        table.select()
    assert table.drop().columns == list(DATA)
    assert table.drop("id").columns == [n for n in DATA if n != "id"]


def test_recarray_is_packed(table):
    records = table[[3, 1], ["flag", "x", "name"]].recarray()
    assert records.dtype.itemsize == 1 + 8 + DATA["name"].dtype.itemsize
    assert records.dtype.names == ("flag", "x", "name")
    for name in records.dtype.names:
        np.testing.assert_array_equal(records[name], DATA[name][[3, 1]])
    np.testing.assert_array_equal(np.asarray(table[:4, ["id"]]), table[:4, ["id"]].recarray())
    with pytest.raises(ValueError, match="repeat"):
        table[:, ["id", "id"]].recarray()


def test_frame_has_every_column_and_a_range_index(table):
    frame = table[5:15].frame()
    assert list(frame.columns) == list(DATA)
    assert list(frame.index) == list(range(10))
    np.testing.assert_array_equal(frame["x"].to_numpy(), DATA["x"][5:15])
    np.testing.assert_array_equal(frame["name"].to_numpy(), DATA["name"][5:15])


def test_results_are_owned_and_writable(table):
    for key in (slice(0, 10), [1, 2], np.arange(N) < 4):
        values = table[key, "x"].array()
        values[0] = -1.0
        assert table[key, "x"].array()[0] == DATA["x"][key][0]


def test_out_is_filled_and_left_alone_on_error(table):
    out = np.full(3, 7.0)
    assert table[[1, 2, 3], "x"].array(out=out) is out
    np.testing.assert_array_equal(out, DATA["x"][1:4])
    with pytest.raises(IndexError):
        table[[1, 2, N], "x"].array(out=out)
    np.testing.assert_array_equal(out, DATA["x"][1:4])
    mask = np.arange(N) < 3
    np.testing.assert_array_equal(table[mask, "x"].array(out=out), DATA["x"][:3])
    for wrong in (np.empty(4), np.empty(3, "f4"), np.empty(6)[::2]):
        with pytest.raises(ValueError, match="out must"):
            table[[1, 2, 3], "x"].array(out=wrong)
    both = {"x": np.empty(2), "id": np.empty(2, "i8")}
    table[:2, ["x", "id"]].dict(out=both)
    np.testing.assert_array_equal(both["id"], [0, 1])


def test_operators_and_ufuncs_give_plain_arrays(table):
    view = table["x"]
    np.testing.assert_array_equal(view * 2 + table["id"], DATA["x"] * 2 + DATA["id"])
    np.testing.assert_array_equal(view > 0, DATA["x"] > 0)
    np.testing.assert_array_equal(np.exp(view), np.exp(DATA["x"]))
    np.testing.assert_array_equal(table[table["x"] > 0, "id"].array(), DATA["id"][DATA["x"] > 0])
    with pytest.raises(TypeError):
        np.add(view, 1, out=np.empty(N))
    with pytest.raises(TypeError):
        np.add.reduce(view)


def test_reductions(table):
    x = DATA["x"]
    view = table["x"]
    assert view.sum() == pytest.approx(x.sum())
    assert view.mean() == pytest.approx(x.mean())
    assert view.min() == x.min()
    assert view.max() == x.max()
    assert view.std(ddof=1) == pytest.approx(x.std(ddof=1))
    assert np.var(view) == pytest.approx(x.var())
    assert np.max(table["when"]) == DATA["when"].max()
    assert table[:0, "x"].sum() == 0
    assert np.isnan(table[:0, "x"].mean())
    for bad in ({"axis": 1}, {"dtype": "f4"}, {"keepdims": True}):
        with pytest.raises(TypeError, match=next(iter(bad))):
            view.sum(**bad)
    with pytest.raises(TypeError):
        table["name"].mean()


def test_isin_takes_sets_and_lists(table):
    np.testing.assert_array_equal(table["id"].isin({3, 5}), np.isin(DATA["id"], [3, 5]))


def test_where_and_query_agree_with_numpy(table):
    want = (DATA["x"] > 0.1) & np.isin(DATA["u1"], DATA["u1"][:5])
    expression = (cs.col("x") > 0.1) & cs.col("u1").isin(DATA["u1"][:5].tolist())
    np.testing.assert_array_equal(table.where(expression)["id"].array(), DATA["id"][want])
    np.testing.assert_array_equal(table[expression, "id"].array(), DATA["id"][want])
    got = table.query("x > 0.1 and u1 in @some", params={"some": DATA["u1"][:5]}, columns=["id"]).dict()
    np.testing.assert_array_equal(got["id"], DATA["id"][want])
    np.testing.assert_array_equal(
        table[10:50].where(cs.col("x") > 0)["id"].array(), np.arange(10, 50)[DATA["x"][10:50] > 0]
    )
    np.testing.assert_array_equal(
        table.query("flag").query("x > 0")["id"].array(), DATA["id"][DATA["flag"] & (DATA["x"] > 0)]
    )
    np.testing.assert_array_equal(
        table.query("x > 0")[::-1][:3]["id"].array(), DATA["id"][DATA["x"] > 0][::-1][:3]
    )
    np.testing.assert_array_equal(table.query("name == 'näme3'")["id"].array(), np.arange(3, N, 7))


def test_repr_of_a_lazy_view_reads_nothing(table):
    view = table.query("x > 0.5")
    before = table.io.as_dict()
    assert "not evaluated" in repr(view)
    assert table.io.as_dict() == before
    assert "rows 0 to" in repr(view.evaluate())


def test_head_and_tail(table):
    assert "rows 0 to 3 of 97" in repr(table.head(3))
    np.testing.assert_array_equal(table["id"].tail(2).values, [95, 96])
    assert "<table>" in table.tail()._repr_html_()
    assert table["id"].head(4).dtype == np.int64


def test_close_is_idempotent_and_metadata_survives(tmp_path):
    (path,) = write_files(tmp_path, DATA, [[N]])
    reader = cs.open(path)
    view = reader["id"]
    array = reader["id"].array(copy=False)
    reader.close()
    reader.close()
    assert reader.columns == list(DATA)
    assert view.dtype == np.int64
    with pytest.raises(ValueError, match="is closed"):
        view.array()
    np.testing.assert_array_equal(array, DATA["id"])


def test_pickle_carries_paths_not_data(table):
    blob = pickle.dumps(table)
    if not any(isinstance(p, str) and p.startswith("<") for p in table.paths):
        assert len(blob) < 6000
    with pickle.loads(blob) as again:
        assert again.columns == table.columns
        np.testing.assert_array_equal(again[::7, "x"].array(), DATA["x"][::7])
    lazy = table.query("x > 0")["id"]
    unread = pickle.dumps(lazy)
    np.testing.assert_array_equal(pickle.loads(unread).array(), DATA["id"][DATA["x"] > 0])
    lazy.array()
    assert len(pickle.dumps(lazy)) <= len(unread) + 50  # the mask over all rows stays here


def test_reads_from_several_threads(table):
    failures = []

    def work(seed):
        rows = np.random.default_rng(seed).integers(0, N, 50)
        for _ in range(10):
            if not np.array_equal(table[rows, "x"].array(), DATA["x"][rows]):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# -- zero copy


@pytest.fixture
def files(tmp_path):
    return {name: write_files(tmp_path_of(tmp_path, name), DATA, layout) for name, layout in LAYOUTS.items()}


def tmp_path_of(tmp_path, name):
    folder = tmp_path / name.replace(" ", "_")
    folder.mkdir()
    return folder


def test_zero_copy_is_a_read_only_view_or_an_error(files):
    with cs.open(files["one record"][0]) as ds:
        for key in (None, 3, slice(5, 50, 3), slice(None, None, -1), slice(4, 4)):
            view = ds[key, "x"].array(copy=False)
            assert type(view) is np.ndarray
            assert not view.flags.writeable
            want = DATA["x"] if key is None else np.atleast_1d(DATA["x"][key])
            np.testing.assert_array_equal(view, want)
        assert np.shares_memory(ds["x"].array(copy=False), ds["x"].array(copy=False))
        for key in ([1, 2], np.ones(N, bool)):
            with pytest.raises(ValueError, match="fancy and boolean"):
                ds[key, "x"].array(copy=False)
        assert set(ds[10:20].dict(copy=False)) == set(DATA)
        with pytest.raises(ValueError, match="without copying"):
            np.array(ds["x"], dtype="f4", copy=False)
    with cs.open([str(p) for p in files["irregular files"]]) as ds:
        np.testing.assert_array_equal(ds[6:20, "id"].array(copy=False), np.arange(6, 20))
        with pytest.raises(ValueError, match="spans multiple files"):
            ds[20:40, "id"].array(copy=False)
        with pytest.raises(ValueError, match="not contiguous"):
            ds["id"].array(copy=False)
    with cs.open(files["one record"][0], mmap=False) as ds, pytest.raises(ValueError, match="copy=True"):
        ds["id"].array(copy=False)


# -- datasets


def test_dataset_borrows_readers_and_owns_paths(files):
    first, second, third = (str(p) for p in files["uniform files"])
    with cs.open(first) as reader:
        both = cs.open([reader, second])
        assert isinstance(both, Dataset)
        both.close()
        assert not reader.closed
        assert reader["id"].array()[0] == 0
        joined = reader | cs.open(second)
        joined |= cs.open(third)
        np.testing.assert_array_equal(joined["id"].array(), DATA["id"])
        with pytest.raises(TypeError, match="Unsupported operand"):
            joined |= third
        with pytest.raises(TypeError, match="Unsupported operand"):
            _ = reader | third
        assert joined.append(first).n_rows == N + 33


def test_empty_dataset_has_no_rows_and_no_columns(tmp_path):
    with cs.open([]) as empty:
        assert empty.shape == (0, 0)
        assert empty.dict() == {}
        with pytest.raises(KeyError, match="Unknown column"):
            empty["x"]
    with cs.open(tmp_path) as folder:
        assert folder.shape == (0, 0)


def test_schema_differences_are_named_and_can_be_dropped(tmp_path):
    paths = [str(tmp_path / name) for name in ("a.cstore", "b.cstore", "c.cstore")]
    cs.store({"x": np.arange(3.0), "k": np.arange(3)}, paths[0]).close()
    cs.store({"k": np.arange(3), "x": np.arange(3.0)}, paths[1]).close()
    cs.store({"x": np.arange(3.0), "k": np.arange(3, dtype="i4")}, paths[2]).close()
    with cs.open(paths[:2]) as ds:
        assert ds.columns == ["x", "k"]
        np.testing.assert_array_equal(ds["k"].array(), [0, 1, 2, 0, 1, 2])
    with pytest.raises(SchemaMismatchError, match=r"c\.cstore.*'k'.*<i4"):
        cs.open(paths)
    with pytest.warns(RuntimeWarning, match="dropped column.*k"), cs.open(paths, on_mismatch="drop") as ds:
        assert ds.columns == ["x"]
    with pytest.raises(ValueError, match="on_mismatch"):
        cs.open(paths, on_mismatch="raise")
    with cs.open(paths[0]) as ds:
        with pytest.raises(SchemaMismatchError):
            cs.open([ds]).append(paths[2])


def test_failed_append_leaves_the_dataset_as_it_was(files, tmp_path):
    other = tmp_path / "other.cstore"
    cs.store({"y": np.arange(3)}, other).close()
    with cs.open([str(files["one record"][0])]) as ds:
        with pytest.raises(ValueError, match="Schema mismatch"):
            ds.append(other)
        with pytest.raises(FileNotFoundError):
            ds.append(tmp_path / "missing.cstore")
        assert ds.shape == (N, len(DATA))
        np.testing.assert_array_equal(ds["id"].array(), DATA["id"])


def test_open_takes_patterns_directories_and_literal_brackets(tmp_path):
    for number in (10, 2, 1):
        cs.store({"n": np.array([number])}, tmp_path / f"run_{number}.cstore").close()
    odd = tmp_path / "odd[1]*.cstore"
    with cs.open(tmp_path / "run_2.cstore") as reader:
        assert isinstance(reader, Reader)
    for spelling in (str(tmp_path / "run_*.cstore"), str(tmp_path), f"file://{tmp_path}/run_?*.cstore"):
        with cs.open(spelling) as ds:
            assert isinstance(ds, Dataset)
            assert ds["n"].array().tolist() == [1, 2, 10]
    cs.store({"n": np.array([7])}, odd).close()
    with cs.open(str(odd)) as reader:
        assert reader["n"].array().tolist() == [7]
    with pytest.raises(FileNotFoundError):
        cs.open(str(tmp_path / "none_*.cstore"))
    with pytest.raises(FileNotFoundError):
        cs.open(tmp_path / "missing.cstore")
    with pytest.raises(TypeError):
        cs.open(42)
    with pytest.raises(ValueError, match="madvise"):
        cs.open(odd, madvise="often")
    with pytest.raises(ValueError, match="backend"):
        cs.open(odd, backend="rust")


def test_open_takes_bytes_and_file_objects(files):
    path = files["irregular records"][0]
    with open(path, "rb") as handle, cs.open(handle) as ds:
        np.testing.assert_array_equal(ds[::-1, "id"].array(), DATA["id"][::-1])
    with cs.open(memoryview(path.read_bytes())) as ds:
        np.testing.assert_array_equal(ds["id"].array(copy=True), DATA["id"])


def test_info_and_schema_read_the_header_only(files):
    info = cs.info(files["irregular records"][0])
    assert (info.n_rows, info.n_records, info.needs_compaction) == (N, 5, True)
    assert [column["name"] for column in info.columns] == list(DATA)
    assert cs.schema(files["one record"][0])[1] == {
        "name": "x",
        "dtype": "<f8",
        "encoding": "raw",
        "nullable": False,
    }


def test_big_endian_and_mixed_order_columns_read_native(shared):
    with cs.open(shared / "vectors/cstore/foreign_bigendian.cstore") as ds:
        for name in ds.columns:
            whole = ds[name].array()
            assert whole.dtype.isnative
            np.testing.assert_array_equal(ds[::-1, name].array(), whole[::-1])
            with pytest.raises(ValueError, match="byte order"):
                ds[name].array(copy=False)


def test_misspelt_options_are_named_with_the_right_spelling(files):
    path = files["one record"][0]
    with pytest.raises(TypeError, match="mmapp"):
        cs.open(path, mmapp=False)
    with pytest.raises(TypeError, match="did you mean 'on_mismatch'"):
        cs.Dataset([path], on_mismatsh="drop")
    with pytest.raises(TypeError, match="one by one"):
        cs.open(path).select(["x", "id"])
    with pytest.raises(FileExistsError, match="recreate"):
        cs.store(DATA, path)


@pytest.mark.parametrize(
    "key",
    [slice(-N - 10, None, -1), slice(-N - 10, None, -7), slice(-N - 10, -N - 5, -2), slice(5, 9, -1)],
    ids=str,
)
def test_empty_slices_with_negative_steps_are_empty(table, key):
    assert len(DATA["x"][key]) == 0
    assert len(table[key]) == 0
    for got in (
        table[key]["x"].array(),
        table[key, "x"].array(),
        table[key].dict()["x"],
        table[key]["x"] + 1,
    ):
        assert got.shape == (0,)


def test_unaligned_index_arrays_are_copied(table):
    raw = np.zeros(8 * 4 + 1, np.uint8)
    index = raw[1:].view(np.int64)
    index[:] = [3, 1, -1, 3]
    assert not index.flags.aligned
    np.testing.assert_array_equal(table[index, "id"].array(), DATA["id"][[3, 1, -1, 3]])


def test_out_may_overlap_the_index(table):
    index = np.array([5, 1, 9, 2, 96], np.int64)
    want = {"id": DATA["id"][index], "x": DATA["x"][index]}
    got = table[index, ["id", "x"]].dict(out={"id": index, "x": np.empty(5)})
    np.testing.assert_array_equal(got["id"], want["id"])
    np.testing.assert_array_equal(got["x"], want["x"])


def test_views_keep_seeing_the_files_that_they_were_made_from(tmp_path):
    paths = [tmp_path / "a.cstore", tmp_path / "b.cstore"]
    cs.store({"x": np.arange(3), "y": np.arange(3) * 10, "z": np.arange(3) * 100}, paths[0]).close()
    cs.store({"y": np.arange(2) * 10, "z": np.arange(2) * 100}, paths[1]).close()
    with cs.open([paths[0]], on_mismatch="drop") as ds:
        column, both, evens = ds["y"], ds[["x", "y"]], ds.query("x > 0")
        with pytest.warns(RuntimeWarning, match="dropped"):
            ds.append(paths[1])
        assert column.column == "y"
        np.testing.assert_array_equal(column.array(), [0, 10, 20])
        assert both.columns == ["x", "y"]
        np.testing.assert_array_equal(evens["y"].array(), [10, 20])
        np.testing.assert_array_equal(ds["y"].array(), [0, 10, 20, 0, 10])


def test_a_pickled_reader_goes_on_after_an_append_that_drops_the_footer(tmp_path):
    path = tmp_path / "grown.cstore"
    cs.store({"k": np.arange(10), "x": np.arange(10.0)}, path, statistics=True).close()
    with cs.open(path) as table:
        blob = pickle.dumps(table)
    with cs.update(path) as writer:
        writer.write({"k": np.arange(1), "x": np.arange(1.0)})
    with pickle.loads(blob) as again:
        np.testing.assert_array_equal(again["k"].array(), np.arange(10))


def test_other_contents_in_the_same_inode_are_stale(tmp_path):
    path, other = tmp_path / "a.cstore", tmp_path / "b.cstore"
    for target, sizes in ((path, [10, 5]), (other, [3, 30])):
        with cs.create(target) as writer:
            for size in sizes:
                writer.write({"k": np.arange(size)})
    with cs.open(path) as table:
        blob = pickle.dumps(table)
    path.write_bytes(other.read_bytes())
    with pickle.loads(blob) as again, pytest.raises(StaleDatasetError):
        again["k"].array()


def test_scoped_columns_equal_those_of_dict(tmp_path: Path) -> None:
    data = columns()
    with open_way(write_files(tmp_path, data, LAYOUTS["irregular files"]), "mapped") as ds:
        for key in (slice(None), slice(90, 3, -2), [5, 1, 5]):
            with ds[key].scoped() as lent:
                for name, values in data.items():
                    np.testing.assert_array_equal(lent[name], values[key])


@pytest.mark.parametrize("read", ["gather", "mask", "reverse", "small"])
def test_a_close_in_another_thread_takes_no_memory_from_a_read(tmp_path, read):
    """What a kernel runs over stays mapped until it is done; a read gives its rows, or says: closed."""
    n = 500_000
    path = tmp_path / "t.cstore"
    cs.store({"x": np.arange(n)}, path).close()
    rows = np.random.default_rng(0).integers(0, n, 2 * n)
    keys = {"gather": rows, "mask": rows[:n] % 2 == 0, "reverse": slice(None, None, -1), "small": slice(3, 8)}
    want = np.arange(n)[keys[read]]
    for wait in range(8):
        table = cs.open(path)
        wrong = []

        def work(table=table, wrong=wrong):
            with contextlib.suppress(ValueError):
                for _ in range(100 if read == "small" else 3):
                    if not np.array_equal(table[keys[read], "x"].array(), want):
                        wrong.append(read)

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.001 * wait)
        table.close()
        thread.join()
        assert not wrong


@pytest.mark.parametrize("protocol", ["", "memory:/"])
def test_a_directory_of_other_files_is_no_empty_table(tmp_path, protocol):
    root = f"{protocol}{tmp_path}/data/"
    with fsspec.open(f"{root}a.parquet", "wb", auto_mkdir=True) as file:
        file.write(b"PAR1")
    for look in (cs.open, cs.verify):
        with pytest.raises(FileNotFoundError, match=r"holds no \.cstore.*a\.parquet"):
            look(root)
    cs.append(root, {"x": np.arange(3)})
    assert len(cs.open(root)) == 3
    assert list(cs.verify(root).values()) == [[]]


def test_files_whose_text_has_other_widths_say_how_to_write_them(tmp_path):
    for number, text in enumerate(("a", "bbb")):
        cs.store({"t": np.array([text])}, tmp_path / f"{number}.cstore")
    with pytest.raises(SchemaMismatchError, match=r"<U3, expected <U1; .*string_width=\{'t': n\}"):
        cs.open(tmp_path)


def test_create_says_what_to_do_about_a_file_that_is_there(tmp_path):
    cs.store({"x": np.arange(3)}, tmp_path / "t.cstore")
    with pytest.raises(FileExistsError, match=r"recreate\(\) replaces it, update\(\) appends"):
        cs.create(tmp_path / "t.cstore")


def created(data, path, **options):
    with cs.create(path, **options) as writer:
        writer.write(data)


@pytest.mark.parametrize("write", [cs.store, created])
def test_a_suffix_of_another_format_is_no_name_for_ours(tmp_path, write):
    with pytest.raises(ValueError, match=r"\.parquet is the suffix of another format"):
        write({"x": np.arange(3)}, tmp_path / "t.parquet")
    assert not list(tmp_path.iterdir())
    write({"x": np.arange(3)}, tmp_path / "t.parquet", format="cstore")
    with cs.update(tmp_path / "t.parquet") as writer:
        writer.write({"x": np.arange(3)})
    cs.append(tmp_path / "d.zarr", {"x": np.arange(3)})
