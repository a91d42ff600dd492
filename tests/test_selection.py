"""Row keys agree with NumPy, compose, and are refused as documented."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colstore_io.selection import Index, Mask, Range, compose, normalise

N = 11
ROWS = np.arange(100, 100 + N)


def positions(selection, n=N):
    return selection.positions(n)


slices = st.builds(
    slice,
    st.none() | st.integers(-15, 15),
    st.none() | st.integers(-15, 15),
    st.none() | st.integers(-4, 4).filter(bool),
)


def keys_for(n):
    rows = st.integers(-n, n - 1) if n else st.nothing()
    return st.one_of(
        slices,
        st.none(),
        rows,
        st.lists(rows, max_size=8 if n else 0).map(lambda x: np.array(x, np.int64)),
        st.lists(st.booleans(), min_size=n, max_size=n).map(lambda x: np.array(x, bool)),
    )


def numpy_rows(data, key):
    if key is None:
        return data
    picked = data[key]
    return picked.reshape(1) if np.ndim(picked) == 0 else picked


@given(st.data())
def test_keys_select_what_numpy_selects_and_compose(data):
    expected = np.arange(N)
    selection = Range(0, 1, N)
    for _ in range(data.draw(st.integers(1, 4))):
        key = data.draw(keys_for(len(expected)))
        selection = compose(selection, key, N)
        expected = numpy_rows(expected, key)
        assert selection.count == len(expected)
        np.testing.assert_array_equal(positions(selection), expected)


@pytest.mark.parametrize("dtype", ["i1", ">i4", "u8", "<u2", ">i8"])
def test_any_integer_dtype_and_byte_order_is_an_index(dtype):
    key = np.array([3, 0, 3], dtype)
    np.testing.assert_array_equal(positions(normalise(key, N)), [3, 0, 3])


def test_strided_index_is_made_contiguous():
    selection = normalise(np.arange(10)[::-3], N)
    assert isinstance(selection, Index)
    assert selection.rows.flags.c_contiguous


def test_slice_of_slice_stays_a_slice_and_mask_of_mask_a_mask():
    assert isinstance(compose(compose(Range(0, 1, N), slice(2, 9, 2), N), slice(None, None, -1), N), Range)
    mask = np.arange(N) % 2 == 0
    inner = compose(Mask(mask), np.array([True, False] * 3), N)
    assert isinstance(inner, Mask)
    np.testing.assert_array_equal(positions(inner), [0, 4, 8])


def test_empty_sequences_select_no_rows():
    for key in ([], np.array([], "f8"), np.array([], "U3"), (), range(0)):
        assert normalise(key, N).count == 0


def test_mixed_bool_and_int_list_is_integers():
    np.testing.assert_array_equal(positions(normalise([True, 2], N)), [1, 2])


def test_range_object_folds_negatives_once():
    np.testing.assert_array_equal(positions(normalise(range(-2, 2), N)), [9, 10, 0, 1])
    np.testing.assert_array_equal(positions(normalise(range(-3, 0), N)), [8, 9, 10])


@pytest.mark.parametrize(
    "key",
    [
        True,
        np.True_,
        np.array(True),
        Ellipsis,
        1.0,
        np.float64(1),
        "a",
        b"a",
        1j,
        N,
        -N - 1,
        2**70,
        [0.5],
        ["a"],
        [None],
        [[1, 2], [3]],
        np.zeros((2, 2), int),
        np.ones((N, 1), bool),
        np.ones(N - 1, bool),
        np.zeros(0, bool),
        [2**70],
        {1, 2},
        {"a": 1},
        range(N + 1),
        range(-N - 1, 0),
        np.array([2**64 - 1], "u8"),
        np.array([2**63], "u8"),
    ],
    ids=repr,
)
def test_keys_that_are_no_rows_raise_index_error(key):
    with pytest.raises(IndexError):
        normalise(key, N)


def test_index_entries_out_of_range_are_found_when_positions_are_asked_for():
    for bad in ([N], [-N - 1], [0, np.iinfo(np.int64).min]):
        with pytest.raises(IndexError, match="out of bounds"):
            normalise(np.array(bad), N).positions(N)


def test_bad_slices_raise_what_python_raises():
    with pytest.raises(ValueError, match="zero"):
        normalise(slice(None, None, 0), N)
    with pytest.raises(TypeError):
        normalise(slice(0.5, 2), N)


def test_start_past_stop_is_empty():
    selection = normalise(slice(8, 2), N)
    assert selection.count == 0
    assert positions(selection).shape == (0,)
