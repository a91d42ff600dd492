"""Small reads take a road of their own; what they give is what every other road gives."""

from __future__ import annotations

import os
import pickle
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io.dataset import SIZES_GOOD_SECONDS
from colstore_io.kernels import segments as compiled
from colstore_io.kernels import shortcuts

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
        time.sleep(2 * SIZES_GOOD_SECONDS)
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


class TestQuickColumn:
    @pytest.fixture
    def column(self, tmp_path):
        values = np.arange(100.0)
        one = np.zeros(1, np.int64)
        table = compiled.SegmentTable(one, one + 100, np.array([[values.ctypes.data]]), np.array([8]), 100, 0)
        with open(tmp_path / "file", "w+b") as file:
            file.write(bytes(800))
            file.flush()
            quick = shortcuts.QuickColumn(table, None, values.dtype, 800, 10)
            assert quick.look(file.fileno(), 1000, 1000)
            yield quick, file.fileno(), values

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
        quick, fd, _ = column
        assert quick.rows(slice(0, 5)) is not None
        os.ftruncate(fd, 799)
        assert not quick.look(fd, 1000, 1000)
        assert quick.rows(slice(0, 5)) is None

    def test_reads_nothing_before_a_look_or_when_the_last_is_too_old(self, column):
        quick, fd, _ = column
        assert not quick.look(-1, 1000, 1000)
        assert quick.rows(slice(0, 5)) is None
        assert quick.look(fd, 0, 1000)
        assert quick.rows(slice(0, 5)) is None

    def test_scattered_rows_are_left_to_others_while_the_column_may_be_cold(self, column):
        quick, fd, _ = column
        assert quick.look(fd, 1000, -5)
        assert quick.rows(slice(0, 5)) is not None
        assert quick.rows(np.arange(3)) is None
        assert quick.look(fd, float("inf"), float("inf"))
        assert quick.rows(np.arange(3)) is not None

    def test_refuses_tables_of_another_shape(self, column):
        table = compiled.SegmentTable(
            np.zeros(1, np.int64), np.array([5]), np.zeros((1, 1), np.int64), np.array([8]), 9, 0
        )
        with pytest.raises(ValueError):
            shortcuts.QuickColumn(table, None, np.dtype("f8"), 0, 10)

    def test_cannot_be_pickled(self, column):
        with pytest.raises(TypeError):
            pickle.dumps(column[0])
