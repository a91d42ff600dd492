"""Small reads take a road of their own; what they give is what every other road gives."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io.kernels import segments as compiled
from colstore_io.kernels import shortcuts
from colstore_io.storage.mapping import Descriptor

N = 6000
DTYPES = ["f8", "i2", "u1", "?", "M8[ns]", "S5", "U3"]


@pytest.fixture(scope="module", params=["one record", "many records"])
def path(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "t.cstore"
    data = {f"c{k}": np.arange(N).astype("i8").astype(dtype) for k, dtype in enumerate(DTYPES)}
    with cs.create(path) as writer:
        for part in np.array_split(np.arange(N), 1 if request.param == "one record" else 40):
            writer.write({name: values[part] for name, values in data.items()})
    return path


@pytest.fixture(scope="module")
def table(path):
    with cs.open(path) as table:
        for name in table.columns:
            table[:20000:7, name].array()  # so that the pages have been looked at
        yield table


bounds = st.none() | st.integers(-N - 50, N + 50) | st.sampled_from([1 << 70, -(1 << 70)])
slices = st.builds(slice, bounds, bounds, st.none() | st.sampled_from([1, 2, -1, -3]))
arrays = st.lists(st.integers(-N, N - 1), max_size=60).map(lambda rows: np.array(rows, np.int64))


@settings(max_examples=200, deadline=None)
@given(key=slices | arrays, name=st.integers(0, len(DTYPES) - 1))
def test_small_reads_are_those_of_numpy(table, key, name):
    values = table[f"c{name}"].array()
    for got in (table[key, f"c{name}"].array(), table[f"c{name}"][key].array()):
        assert got.dtype == values.dtype
        np.testing.assert_array_equal(got, values[key])
        assert got.base is None
        assert got.flags.writeable


@pytest.mark.parametrize("dtype", ["i4", "u8", ">i8", "u1"])
def test_other_integers_select_the_same_rows(table, dtype):
    rows = np.array([5, 0, 200], dtype)
    np.testing.assert_array_equal(table[rows, "c0"].array(), [5, 0, 200])


def test_strided_unaligned_and_read_only_index_arrays(table):
    np.testing.assert_array_equal(table[np.arange(40)[::3], "c0"].array(), np.arange(40)[::3])
    shifted = np.frombuffer(b"\0" + np.arange(9).tobytes(), np.uint8)[1:].view(np.int64)
    np.testing.assert_array_equal(table[shifted, "c0"].array(), np.arange(9))


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (np.array([3, N]), IndexError),
        (np.array([-N - 1]), IndexError),
        (np.zeros((2, 2), np.int64), IndexError),
        (np.zeros(3), IndexError),
        (np.zeros(3, np.bool_), IndexError),
        (np.array(["a"]), IndexError),
        (np.array([None]), IndexError),
        (np.array(["2020"], "M8[D]"), IndexError),
        (slice("a", None), TypeError),
        (slice(None, None, 0), ValueError),
    ],
)
def test_bad_keys_raise_what_they_raise_elsewhere(table, key, error):
    with pytest.raises(error):
        table[key, "c0"].array()


def test_masks_and_unknown_names(table):
    mask = np.zeros(N, np.bool_)
    mask[[4, 9]] = True
    np.testing.assert_array_equal(table[mask, "c0"].array(), [4, 9])
    with pytest.raises(cs.ColumnNotFoundError):
        table[:5, "c"]
    with pytest.raises(cs.ColumnNotFoundError):
        table["c"]


@pytest.mark.parametrize("key", [slice(10, 20), np.arange(10)], ids=["range", "gather"])
def test_a_file_cut_between_two_reads_is_an_error(tmp_path, key):
    path = tmp_path / "cut.cstore"
    cs.store({"a": np.arange(50_000)}, path).close()
    with cs.open(path) as table:
        for _ in range(3):
            assert len(table[key, "a"].array()) == 10
        os.truncate(path, os.path.getsize(path) - 8)
        with pytest.raises(cs.FormatError):
            table[key, "a"].array()


def test_closed_tables_and_views_of_them_raise(path):
    table = cs.open(path)
    view, column = table[:5, "c0"], table["c0"]
    assert view.array().tolist() == [0, 1, 2, 3, 4]
    table.close()
    for read in (view.array, column[:5].array, lambda: table[:5, "c0"].array()):
        with pytest.raises(ValueError, match="closed"):
            read()


def test_views_keep_their_selection_in_every_use(table):
    view = table[np.array([7, 3]), "c0"]
    again = pickle.loads(pickle.dumps(view))
    assert len(view) == 2
    assert view.array().tolist() == again.array().tolist() == view[:].array().tolist() == [7, 3]
    assert "2 rows" in repr(table[np.array([7, 3]), "c0"])


def test_both_kernel_families_agree(path):
    with cs.open(path) as fast, cs.open(path, backend="numpy") as slow:
        for key in (slice(5, 90), np.array([4, -1, 800])):
            np.testing.assert_array_equal(fast[key, "c1"].array(), slow[key, "c1"].array())


class TestQuickRows:
    @pytest.fixture
    def column(self, tmp_path):
        values = np.arange(100.0)
        with open(tmp_path / "file", "w+b") as file:
            file.write(bytes(800))
            file.flush()
            quick = quick_of([values], [0, 100])
            held = Descriptor(os.dup(file.fileno()))
            assert quick.look([held], 1000, 1000)
            yield quick, held, values

    def test_reads_up_to_its_limit(self, column):
        quick, _, values = column
        np.testing.assert_array_equal(quick.rows(slice(-10, None)), values[-10:])
        np.testing.assert_array_equal(quick.rows(np.array([1, -1])), values[[1, -1]])

    @pytest.mark.parametrize(
        "key",
        [slice(0, 11), slice(3, 3), slice(0, 8, 2), np.arange(11), np.array([100]), np.empty(0, np.int64)],
        ids=str,
    )
    def test_leaves_the_rest_to_others(self, column, key):
        assert column[0].rows(key) is None

    def test_a_look_at_a_file_that_was_cut_ends_the_reads(self, column):
        quick, held, _ = column
        assert quick.rows(slice(0, 5)) is not None
        os.ftruncate(held.fd, 799)
        assert not quick.look([held], 1000, 1000)
        assert quick.rows(slice(0, 5)) is None

    def test_reads_nothing_before_a_look_or_when_the_last_is_too_old(self, column):
        quick, held, _ = column
        assert not quick.look([None], 1000, 1000)
        assert quick.rows(slice(0, 5)) is None
        assert quick.look([held], 0, 1000)
        assert quick.rows(slice(0, 5)) is None

    def test_scattered_rows_are_left_to_others_while_the_column_may_be_cold(self, column):
        quick, held, _ = column
        assert quick.look([held], 1000, -5)
        assert quick.rows(slice(0, 5)) is not None
        assert quick.rows(np.arange(3)) is None
        assert quick.look([held], float("inf"), float("inf"))
        assert quick.rows(np.arange(3)) is not None

    def test_several_columns_are_a_list_of_arrays(self, tmp_path):
        columns = [np.arange(60.0), np.arange(60, dtype="i2"), np.arange(60).astype("U3")]
        quick = quick_of(columns, [0, 25, 25, 60])
        with open(tmp_path / "file", "w+b") as file:
            file.write(bytes(800))
            file.flush()
            held = Descriptor(os.dup(file.fileno()))
            assert quick.look([held], 1000, 1000)
            for key in (slice(20, 30), np.array([59, -60, 25, 24])):
                got = quick.rows(key)
                assert [part.dtype for part in got] == [values.dtype for values in columns]
                for part, values in zip(got, columns, strict=True):
                    np.testing.assert_array_equal(part, values[key])

    @pytest.mark.parametrize("files", [2, 20])
    def test_ranges_ask_the_files_that_they_touch(self, tmp_path, files):
        values = np.arange(10.0 * files)
        quick = quick_of([values], range(0, 10 * files + 1, 10), files=np.arange(files, dtype=np.int32))
        paths = [tmp_path / str(number) for number in range(files)]
        for path in paths:
            path.write_bytes(bytes(800))
        held = [Descriptor(os.open(path, os.O_RDONLY)) for path in paths]
        assert quick.look(held, 1000, 1000)
        assert quick.rows(slice(5, 15)).tolist() == list(range(5, 15))
        os.truncate(paths[1], 799)
        assert quick.rows(slice(0, 10)) is not None
        assert quick.rows(slice(5, 15)) is None
        assert quick.rows(np.array([0])) is None  # scattered rows may be in any file
        os.truncate(paths[1], 800)
        assert quick.rows(np.array([0])) is not None
        os.truncate(paths[1], 799)
        assert quick.rows(np.array([0])) is None
        assert quick.look([None, *held[1:]], 1000, 1000)
        assert quick.rows(slice(0, 10)) is None

    def test_a_number_that_went_to_another_file_is_not_asked(self, tmp_path):
        """Its descriptor was closed between a look and a read: the position of that file stays where it is."""
        values = np.arange(100.0)
        quick = quick_of([values], [0, 100])
        (tmp_path / "file").write_bytes(bytes(800))
        held = Descriptor(os.open(tmp_path / "file", os.O_RDONLY))
        number = held.fd
        assert quick.look([held], 1000, 1000)
        del held
        other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
        if other != number:
            os.dup2(other, number)
            os.close(other)
        try:
            os.write(number, bytes(900))
            os.lseek(number, 3, os.SEEK_SET)
            assert quick.rows(slice(0, 5)) is None
            assert os.lseek(number, 0, os.SEEK_CUR) == 3
        finally:
            os.close(number)

    def test_refuses_what_does_not_fit_together(self):
        values = np.arange(100.0)
        with pytest.raises(ValueError, match="descriptors"):
            quick_of([values], [0, 100]).look([None, None], 1, 1)
        with pytest.raises(ValueError, match="order"):
            quick_of([values], [0, 10, 100], files=np.array([1, 0], np.int32))
        with pytest.raises(ValueError, match="dtype"):
            quick_of([values], [0, 100], dtypes=(np.dtype("f4"),))
        with pytest.raises(ValueError, match="gaps"):
            quick_of([values], [0, 100], dtypes=(values.dtype, values.dtype))
        with pytest.raises(ValueError, match="32"):
            quick_of([values] * 33, [0, 100])

    def test_refuses_tables_with_gaps(self):
        table = compiled.SegmentTable(
            np.zeros(1, np.int64), np.array([5]), np.zeros((1, 1), np.int64), np.array([8]), 9, 0
        )
        with pytest.raises(ValueError, match="gaps"):
            shortcuts.QuickRows(
                table, None, (np.dtype("f8"),), np.zeros(1, np.int64), np.zeros(1, np.int32), 10
            )

    def test_cannot_be_pickled(self, column):
        with pytest.raises(TypeError):
            pickle.dumps(column[0])


def quick_of(columns, bounds, files=None, dtypes=None):
    """Return quick rows over arrays, whose files must have 800 bytes each."""
    starts = np.array(bounds, np.int64)
    segments = len(starts) - 1
    table = compiled.SegmentTable(
        starts[:-1],
        starts[1:],
        np.array([[values.ctypes.data] * segments for values in columns]),
        np.array([values.itemsize for values in columns]),
        int(starts[-1]),
        0,
    )
    files = np.zeros(segments, np.int32) if files is None else files
    ends = np.full(int(files.max()) + 1, 800)
    dtypes = tuple(values.dtype for values in columns) if dtypes is None else dtypes
    return shortcuts.QuickRows(table, columns, dtypes, ends, files, 10)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    data = {"a": np.arange(N), "b": np.arange(N) / 7, "s": np.arange(N).astype("S5")}
    paths = []
    for number, part in enumerate(np.array_split(np.arange(N), 11)):
        paths.append(str(folder / f"{number:02d}.cstore"))
        cs.store({name: values[part] for name, values in data.items()}, paths[-1]).close()
    return paths, data


class TestManyColumnsAndFiles:
    @settings(max_examples=100, deadline=None)
    @given(key=slices | arrays, names=st.lists(st.sampled_from(["a", "b", "s"]), min_size=1, unique=True))
    def test_tables_of_many_files_give_the_rows_of_numpy(self, shards, key, names):
        paths, data = shards
        with cs.open(paths) as table:
            for _ in range(3):  # the first one looks at the files, the last ones need not
                for got in (table[key, names].dict(), {n: table[key, n].array() for n in names}):
                    assert list(got) == names
                    for name in names:
                        np.testing.assert_array_equal(got[name], data[name][key])
                        assert got[name].flags.writeable
                        assert got[name].base is None

    @pytest.mark.parametrize("names", [["a", "b"], ["b"]])
    def test_bad_rows_raise_what_they_raise_elsewhere(self, shards, names):
        with cs.open(shards[0]) as table:
            table[:5, names].dict()
            with pytest.raises(IndexError, match="out of bounds"):
                table[np.array([1, N]), names].dict()
            with pytest.raises(TypeError):
                table["a":"b", names].dict()

    def test_a_file_cut_between_two_reads_is_an_error_where_it_is_touched(self, shards, tmp_path):
        copies = []
        for path in shards[0][:3]:
            copies.append(str(tmp_path / os.path.basename(path)))
            with open(path, "rb") as source, open(copies[-1], "wb") as target:
                target.write(source.read())
        with cs.open(copies) as table:
            for _ in range(3):
                table[:9, "a"].array(), table[:9, ["a", "b"]].dict()
            os.truncate(copies[1], os.path.getsize(copies[1]) - 8)
            first = N // 11
            assert table[:9, "a"].array().tolist() == list(range(9))
            for read in (
                table[first + 5 : first + 9, "a"].array,
                table[first + 5 : first + 9, ["a", "b"]].dict,
                table[np.array([0, 1]), "a"].array,
                table[np.array([0, 1]), ["a"]].dict,
            ):
                with pytest.raises(cs.FormatError):
                    read()

    def test_files_added_later_are_not_seen_by_earlier_views(self, shards):
        paths, data = shards
        table = cs.Dataset(paths[:2])
        with table:
            n = len(table)
            view, several = table[-3:, "a"], table[-3:, ["a"]]
            table.append(paths[2])
            for _ in range(3):
                assert view.array().tolist() == data["a"][:n][-3:].tolist()
                assert several.dict()["a"].tolist() == data["a"][:n][-3:].tolist()
                assert table[-3:, "a"].array().tolist() == data["a"][: len(table)][-3:].tolist()

    def test_closed_datasets_and_views_of_them_raise(self, shards):
        table = cs.open(shards[0])
        view, several = table[:5, "a"], table[:5, ["a"]]
        assert view.array().tolist() == [0, 1, 2, 3, 4] == several.dict()["a"].tolist()
        again = pickle.loads(pickle.dumps(view))
        table.close()
        for read in (view.array, several.dict, lambda: table[:5, "a"].array()):
            with pytest.raises(ValueError, match="closed"):
                read()
        assert again.array().tolist() == [0, 1, 2, 3, 4]
        again._holder.table.close()

    def test_nullable_columns_among_them_keep_their_nulls(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        path = tmp_path / "nulls.cstore"
        cs.store(pa.table({"a": [1, None, 3], "b": [1.0, 2.0, 3.0]}), path).close()
        with cs.open(path) as table:
            for _ in range(2):
                assert table[:2, ["a", "b"]].dict()["a"].to_pylist() == [1, None]
                assert table[np.array([1, 0]), ["b", "a"]].dict()["a"].to_pylist() == [None, 1]
