"""Whole frames, rows by number, and counts: read in one piece, in few rows, or not at all; results stay Dask's own."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io.integrations._dask_expr import ReadColstore
from colstore_io.integrations._dask_loc import TakeColstore
from colstore_io.integrations._dask_reduce import ReduceColstore
from colstore_io.integrations.dask import read_colstore

N = 90
SETTINGS = settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module", params=["cstore", "columns"])
def path(request, tmp_path_factory):
    frame = pd.DataFrame(
        {
            "i": np.arange(N),
            "f": np.arange(N) / 4,
            "s": [f"text {n % 7}" for n in range(N)],
            "n": pd.array([1, None, 3] * (N // 3), dtype="Int64"),
        }
    )
    found = tmp_path_factory.mktemp("rows") / f"data.{request.param}"
    options = {"string_width": {"s": 6}} if request.param == "cstore" else {}
    with cs.create(found, nullable=["n"], statistics=True, **options) as writer:
        for start in range(0, N, 10):
            writer.write(frame.iloc[start : start + 10])
    return str(found)


def optimized(collection):
    return collection.optimize(fuse=False).expr


# ----------------------------------------------------------------------------------------------------------
# Whole frames


def test_a_frame_that_is_wanted_whole_is_read_by_one_task(path):
    df = read_colstore(path, blocksize=None)
    assert df.npartitions == 9
    whole = df.repartition(npartitions=1)
    expr = optimized(whole)
    assert isinstance(expr, ReadColstore)
    assert expr.divisions == (0, N - 1)
    pieces = pd.concat([df.partitions[n].compute() for n in range(9)])
    got = df.compute()
    pd.testing.assert_frame_equal(got, pieces)
    assert isinstance(got.index, pd.RangeIndex)
    pd.testing.assert_series_equal(df.f.compute(), pieces.f)
    pd.testing.assert_frame_equal(df.partitions[2:5].compute(), pieces.iloc[20:50])
    pd.testing.assert_frame_equal(df.partitions[[0, 5]].compute(), pieces.iloc[[*range(10), *range(50, 60)]])
    one, two = dask.compute(df, df.f + 1)
    pd.testing.assert_frame_equal(one, pieces)
    pd.testing.assert_series_equal(two, pieces.f + 1)
    assert len(df.repartition(npartitions=3).compute()) == N


def test_categories_that_partitions_find_are_put_together_by_dask(path):
    df = read_colstore(path, blocksize=None, categories=["s"])
    assert df.compute().s.astype(str).tolist() == [f"text {n % 7}" for n in range(N)]
    assert df.loc[[3, 70]].s.compute().astype(str).tolist() == ["text 3", "text 0"]


# ----------------------------------------------------------------------------------------------------------
# Rows by number


@SETTINGS
@given(st.lists(st.integers(0, N - 1), min_size=1, max_size=12), st.sampled_from([None, "25 B", "1 kB"]))
def test_loc_of_rows_is_what_dask_makes_of_it(path, rows, blocksize):
    df = read_colstore(path, blocksize=blocksize)
    frame = df.compute()
    expr = optimized(df.loc[rows])
    assert isinstance(expr, TakeColstore)
    assert expr.divisions == df.loc[rows].divisions
    pd.testing.assert_frame_equal(df.loc[rows].compute(), frame.loc[sorted(rows)], check_index_type=False)
    pd.testing.assert_frame_equal(
        df.loc[np.array(rows), ["s", "f"]].compute(),
        frame.loc[sorted(rows), ["s", "f"]],
        check_index_type=False,
    )
    pd.testing.assert_series_equal(
        df.s.loc[rows].compute(), frame.s.loc[sorted(rows)], check_index_type=False
    )


@SETTINGS
@given(
    st.one_of(st.none(), st.integers(-5, N + 5)),
    st.one_of(st.none(), st.integers(-5, N + 5)),
    st.sampled_from([None, "25 B", "1 kB"]),
)
def test_loc_of_a_slice_is_what_dask_makes_of_it(path, begin, end, blocksize):
    df = read_colstore(path, blocksize=blocksize)
    frame = df.compute()
    rows = slice(begin, end)
    if (begin is None and end is None) or (begin is not None and end is not None and begin > end):
        return  # Dask refuses them
    pd.testing.assert_frame_equal(df.loc[rows].compute(), frame.loc[rows], check_index_type=False)
    pd.testing.assert_series_equal(df.loc[rows, "f"].compute(), frame.loc[rows, "f"], check_index_type=False)
    assert df.loc[rows].f.sum().compute() == frame.loc[rows].f.sum()
    assert len(df.loc[rows]) == len(frame.loc[rows])
    assert df.loc[rows].optimize().divisions == df.loc[rows].divisions


def test_labels_that_are_no_rows_are_left_to_pandas(path):
    df = read_colstore(path, blocksize=None)
    with pytest.raises(KeyError):
        df.loc[[3, N + 100]].compute()
    even = df[df.i % 2 == 0]
    assert even.loc[4:8].i.compute().tolist() == [4, 6, 8]
    indexed = read_colstore(path, index="f", blocksize=None, calculate_divisions=True)
    assert indexed.loc[1.0:1.5].i.compute().tolist() == [4, 5, 6]


def test_rows_of_a_slice_are_read_and_no_others(path):
    df = read_colstore(path, blocksize=None)
    expr = optimized(df.loc[42:57])
    assert isinstance(expr, ReadColstore)
    assert [part.runs for part in (expr.part(0), expr.part(1))] == [((2, 10),), ((0, 8),)]


# ----------------------------------------------------------------------------------------------------------
# Counts


@pytest.mark.parametrize("kind", ["frame", "series", "and"])
def test_rows_of_a_condition_are_counted_where_they_can_be(path, kind):
    df = read_colstore(path, blocksize=None)
    condition = (df.i >= 42) & (df.i < 57)
    counted = {
        "frame": df[condition],
        "series": df[condition].s,
        "and": df[condition & (df.f > 0)],
    }[kind]
    assert len(counted) == 15
    from dask.dataframe.dask_expr._reductions import Len

    expr = Len(counted.expr).optimize(fuse=False)
    assert isinstance(expr, ReduceColstore)
    assert set(expr.read.reading.filters.columns) == {"i", "f"} if kind == "and" else {"i"}
    # Two of nine records can match; they are neighbours and one task.
    assert sum(1 for key in expr.__dask_graph__() if "part" in str(key)) == 1
    assert list(expr.read.reading._partitions) == [4, 5]


def test_counts_of_conditions_that_stay_filters(path):
    df = read_colstore(path, blocksize=None)
    assert len(df[df.i % 2 == 0]) == N // 2
    assert len(df[(df.i % 2 == 0) & (df.i < 10)]) == 5
    assert len(df[df.f > df.f.mean()]) == N // 2
    assert len(df[df.i < 10].index) == 10
    assert df[df.i < 10].index.compute().tolist() == list(range(10))
    assert df.index[df.i > 85].compute().tolist() == [86, 87, 88, 89]
    assert len(df[df.i < 0]) == 0
    assert df[df.i < 25].shape[0].compute() == 25
    frame = dd.concat([df[df.i < 5], df[df.i > 85]])
    assert len(frame) == 9
