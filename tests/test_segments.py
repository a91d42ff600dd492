"""The segment table finds rows, and partitions cover every row once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colstore_io.segments import Segments, partition_rows


def table(rows, files=None):
    rows = np.array(rows, np.int64)
    files = np.zeros(len(rows), np.int32) if files is None else np.array(files, np.int32)
    return Segments(
        files,
        np.concatenate([[0], np.cumsum(rows)]).astype(np.int64),
        np.arange(len(rows), dtype=np.int64) * 100,
    )


@pytest.mark.parametrize(
    ("rows", "uniform"),
    [
        ([5, 5, 5], 5),
        ([5, 5, 3], 5),
        ([5, 5, 6], 0),
        ([5], 0),
        ([5, 0, 5], 0),
        ([0, 0], 0),
        ([], 0),
        ([5, 5, 0], 0),
    ],
)
def test_uniform_grid_is_recognised(rows, uniform):
    assert table(rows).uniform_rows == uniform


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12), st.data())
def test_span_and_locate_agree_with_a_loop(rows, data):
    segments = table(rows)
    owner = np.repeat(np.arange(len(rows)), rows)
    np.testing.assert_array_equal(segments.locate(np.arange(segments.n_rows)), owner)
    first = data.draw(st.integers(0, segments.n_rows))
    stop = data.draw(st.integers(first, segments.n_rows))
    low, high = segments.span(first, stop)
    assert set(owner[first:stop]) <= set(range(low, high))
    if stop > first:
        assert low == owner[first]
        assert high - 1 == owner[stop - 1]


def test_take_renumbers_rows_and_files():
    part = table([3, 4, 5, 6], [0, 1, 1, 2]).take(1, 3)
    np.testing.assert_array_equal(part.row_start, [0, 4, 9])
    np.testing.assert_array_equal(part.file, [0, 0])
    np.testing.assert_array_equal(part.body_start, [100, 200])


def test_concatenate_stacks_rows_and_files():
    joined = Segments.concatenate([table([2, 3], [0, 1]), table([4])], [2, 1])
    np.testing.assert_array_equal(joined.row_start, [0, 2, 5, 9])
    np.testing.assert_array_equal(joined.file, [0, 1, 2])


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=15),
    st.integers(1, 20),
    st.integers(1, 400),
    st.none() | st.integers(0, 300),
    st.booleans(),
)
def test_partitions_cover_every_row_once_and_respect_segments(
    rows, row_bytes, blocksize, merge_below, addressable
):
    starts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
    bounds = partition_rows(
        starts, row_bytes, blocksize=blocksize, merge_below=merge_below, addressable=addressable
    )
    assert bounds[0] == 0
    assert bounds[-1] == starts[-1]
    if starts[-1]:
        assert (np.diff(bounds) > 0).all()
    else:
        assert list(bounds) == [0, 0]
    if not addressable:
        assert set(bounds) <= set(starts)


def test_large_addressable_segment_is_cut_evenly_and_small_ones_are_merged():
    np.testing.assert_array_equal(partition_rows(np.array([0, 100]), 1, blocksize=30), [0, 25, 50, 75, 100])
    np.testing.assert_array_equal(partition_rows(np.array([0, 10, 20, 30, 40]), 1, blocksize=20), [0, 20, 40])
    np.testing.assert_array_equal(
        partition_rows(np.array([0, 10, 20, 30]), 1, blocksize=100, merge_below=5), [0, 10, 20, 30]
    )
