"""What Dask's optimizer moves into the reader changes what is read, and never what comes out."""

from __future__ import annotations

import pickle
import warnings

import dask
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.dataframe.dask_expr._expr import Filter, Literal
from dask_conditions import CONDITIONS, LITERALS, RandomTables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io.integrations._dask_expr import ReadColstore
from colstore_io.integrations._dask_reduce import ReduceColstore
from colstore_io.integrations.dask import read_colstore

SETTINGS = settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return RandomTables(tmp_path_factory.mktemp("push"))


def filters_left(df):
    return [e for e in df.optimize(fuse=False).expr.walk() if isinstance(e, Filter)]


@pytest.mark.parametrize("text", [True, False])
@given(number=st.integers(0, 200), condition=CONDITIONS, blocksize=st.sampled_from([None, 300, "1 MiB"]))
@SETTINGS
def test_conditions_select_the_rows_that_pandas_selects(tables, text, number, condition, blocksize):
    described, mask = condition
    with dask.config.set({"dataframe.convert-string": text}):
        df = read_colstore(tables[number], blocksize=blocksize)
        whole = df.compute()
        try:
            want = whole[mask(whole)]
        except TypeError:
            return  # pandas has no such comparison
        pd.testing.assert_frame_equal(df[mask(df)].compute(), want, obj=described)
        pd.testing.assert_series_equal(df[mask(df)]["i"].compute(), want["i"], obj=described)


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
@given(number=st.integers(0, 200), condition=CONDITIONS)
@settings(SETTINGS, max_examples=25)
def test_conditions_select_the_same_rows_of_other_backends(tables, backend, number, condition):
    described, mask = condition
    df = read_colstore(tables[number], dtype_backend=backend, blocksize=None)
    whole = df.compute()
    try:
        want = whole[mask(whole)]
    except (TypeError, ValueError, pa.ArrowException):
        return
    pd.testing.assert_frame_equal(df[mask(df)].compute(), want, obj=described)


PUSHED = {
    "greater": lambda f: f.i > 1,
    "literal first": lambda f: 1 < f.i,  # noqa: SIM300
    "and, or, not": lambda f: ((f.i > 1) & ~(f.f <= 2.5)) | (f.u == 3),
    "between": lambda f: f.i.between(0, 11, inclusive="left"),
    "isin": lambda f: f.i.isin([1, 12, 31]),
    "isin of text": lambda f: f.s.isin(["a", "é"]),
    "isna": lambda f: f.f.isna(),
    "isnull of a nullable": lambda f: f.ns.isnull(),
    "notnull": lambda f: f.nt.notnull(),
    "flag": lambda f: f.b & (f.i > 0),
    "text": lambda f: f.s == "a",
    "time": lambda f: f.when >= pd.Timestamp("2024-01-03"),
    "time as text": lambda f: f.when < "2024-01-03",
    "nullable": lambda f: (f.ni > 0) | (f.nf != 1.0),
}


@pytest.mark.parametrize("case", list(PUSHED))
def test_condition_is_moved_into_the_reader(tables, case):
    df = read_colstore(tables[1], blocksize=None)
    filtered = df[PUSHED[case](df)]
    assert isinstance(filtered.optimize(fuse=False).expr, ReadColstore)
    whole = df.compute()
    pd.testing.assert_frame_equal(filtered.compute(), whole[PUSHED[case](whole)])


STAYS = {
    "two columns": lambda f: f.i > f.u,
    "a reduction": lambda f: f.f > f.f.mean(),
    "arithmetic": lambda f: f.i * 2 > 3,
    "text of a time in isin": lambda f: f.when.isin(["2024-01-03"]),
    "a missing member": lambda f: f.f.isin([1.0, np.nan]),
    "a large integer against a float": lambda f: f.i < 2.0**60,
}


@pytest.mark.parametrize("case", list(STAYS))
def test_condition_that_has_no_translation_stays_a_filter(tables, case):
    df = read_colstore(tables[1], blocksize=None)
    filtered = df[STAYS[case](df)]
    assert len(filters_left(filtered)) == 1
    whole = df.compute()
    pd.testing.assert_frame_equal(filtered.compute(), whole[STAYS[case](whole)])


def test_half_of_a_conjunction_is_moved_and_no_half_of_a_disjunction(tables):
    df = read_colstore(tables[1], blocksize=None)
    whole = df.compute()
    both = df[(df.i >= 30) & (df.i * 2 > 62)]
    (left,) = filters_left(both)
    assert left.frame.operand("filters") is not None
    assert left.frame.npartitions < df.npartitions
    pd.testing.assert_frame_equal(both.compute(), whole[(whole.i >= 30) & (whole.i * 2 > 62)])
    either = df[(df.i >= 30) | (df.i * 2 > 62)]
    (left,) = filters_left(either)
    assert left.frame.operand("filters") is None
    pd.testing.assert_frame_equal(either.compute(), whole[(whole.i >= 30) | (whole.i * 2 > 62)])


def test_condition_on_a_reduction_of_all_rows_keeps_all_rows_for_it(tables):
    df = read_colstore(tables[1], blocksize=None)
    whole = df.compute()
    got = df[(df.i > 10) & (df.f < df.f.mean())].compute()
    pd.testing.assert_frame_equal(got, whole[(whole.i > 10) & (whole.f < whole.f.mean())])


def test_filtered_and_whole_frame_together_keep_their_rows(tables):
    df = read_colstore(tables[1], blocksize=None)
    whole = df.compute()
    part = df[df.i > 20]
    pd.testing.assert_frame_equal(dd.concat([part, df]).compute(), pd.concat([whole[whole.i > 20], whole]))
    pd.testing.assert_series_equal((part.f + df.f).compute(), whole[whole.i > 20].f + whole.f)
    other = read_colstore(tables[1], columns=["i", "u"], blocksize=None)
    joined = part[["f"]].join(other[other.u > 1]).compute()
    pd.testing.assert_frame_equal(
        joined, whole.loc[whole.i > 20, ["f"]].join(whole.loc[whole.u > 1, ["i", "u"]])
    )
    twice = df[df.i > 5][["i", "f"]]
    twice = twice[twice.i < 25]
    pd.testing.assert_frame_equal(twice.compute(), whole.loc[(whole.i > 5) & (whole.i < 25), ["i", "f"]])


def test_divisions_reach_as_far_as_before(tables):
    df = read_colstore(tables[1], blocksize=None)
    whole = df.compute()
    for condition in (lambda f: f.i > 1000, lambda f: f.i.between(10, 30)):
        rows, kept = df[condition(df)], whole[condition(whole)]
        assert rows.optimize(fuse=False).npartitions < df.npartitions
        again = rows.repartition(divisions=df.divisions)
        assert again.npartitions == df.npartitions
        pd.testing.assert_frame_equal(again.compute(), kept, check_index_type=False)
        pd.testing.assert_series_equal(
            rows["f"].repartition(divisions=(0, df.divisions[-1])).compute(),
            kept["f"],
            check_index_type=False,
        )
        pd.testing.assert_frame_equal(rows.loc[3:9].compute(), kept.loc[3:9], check_index_type=False)


def test_functions_of_users_see_every_partition(tables):
    df = read_colstore(tables[1], blocksize=None)
    whole = df.compute()
    rows, kept = df[df.i > 25], whole[whole.i > 25]
    counts = rows.map_partitions(len).compute()
    assert (len(counts), sum(counts)) == (df.npartitions, len(kept))
    assert df["i"].map_partitions(len).compute().tolist() == list(df.map_partitions(len).compute())
    array = rows["f"].to_dask_array(lengths=True)
    np.testing.assert_array_equal(array.compute(), kept["f"])


def test_condition_that_matches_nothing_reads_nothing(tables):
    df = read_colstore(tables[1], blocksize=None)
    none = df[df.i > 1000]
    assert none.optimize(fuse=False).npartitions == 1
    pd.testing.assert_frame_equal(none.compute(), df.compute().iloc[:0], check_index_type=False)


def test_filters_argument_and_condition_add_up(tables):
    df = read_colstore(tables[1], filters=[("i", ">=", 10)], blocksize=None)
    whole = read_colstore(tables[1]).compute()
    pd.testing.assert_frame_equal(df[df.i < 25].compute(), whole[(whole.i >= 10) & (whole.i < 25)])


def test_series_is_filtered_too(tables):
    series = read_colstore(tables[1], columns="i", blocksize=None)
    whole = series.compute()
    filtered = series[series > 20]
    assert isinstance(filtered.optimize(fuse=False).expr, ReadColstore)
    pd.testing.assert_series_equal(filtered.compute(), whole[whole > 20])


def test_fused_partitions_have_the_same_rows(tables):
    df = read_colstore(tables[1], blocksize=None)
    whole = df.compute()
    plus = df["i"] + 1
    assert plus.optimize().npartitions < df.npartitions
    pd.testing.assert_series_equal(plus.compute(), whole["i"] + 1)
    kept = df[df.i > 5]["u"] + 1
    pd.testing.assert_series_equal(kept.compute(), whole[whole.i > 5]["u"] + 1)


def test_expression_travels_and_keeps_its_name(tables):
    df = read_colstore(tables[1], blocksize=None)
    filtered = df[df.i > 20].optimize(fuse=False)
    expression = pickle.loads(pickle.dumps(filtered.expr))
    assert expression._name == filtered.expr._name
    assert expression.npartitions == filtered.npartitions
    pd.testing.assert_frame_equal(dd.dask_expr.new_collection(expression).compute(), filtered.compute())


# ----------------------------------------------------------------------------------------------------------
# What is known without reading


@pytest.fixture
def counted(tables):
    """A table whose requests are counted, cut into one partition per record."""
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/push/t.cstore", tables[1].read_bytes())
    with cs.open("memory://push/t.cstore") as table:
        yield table


def test_lengths_are_known_without_reading_columns(counted):
    df = read_colstore(counted, blocksize=None)
    before = counted.io.bytes
    n = counted.n_rows
    assert len(df) == n
    assert len(df["f"]) == n
    assert dask.compute(df.shape)[0] == (n, 13)
    assert df.size.compute() == n * 13
    assert isinstance(df.i.size.optimize().expr, Literal)
    assert len(df.partitions[2]) == int(counted.source.plan.segments.rows[2])
    assert df.index.compute().tolist() == list(range(n))
    assert df.index.min().compute() == 0
    assert counted.io.bytes == before


def test_one_partition_reads_one_record(counted):
    df = read_colstore(counted, blocksize=None)
    before = counted.io.bytes
    df.partitions[3].compute()
    read = counted.io.bytes - before
    rows = int(counted.source.plan.segments.rows[3])
    assert read <= rows * counted.source.plan.row_bytes()
    pd.testing.assert_frame_equal(df.head(1), df.compute().head(1))
    assert df.partitions[2:].f.head(1).index.tolist() == [int(counted.source.plan.segments.row_start[2])]


def test_head_reads_the_rows_that_it_shows(tmp_path):
    path = tmp_path / "head.cstore"
    cs.store({"x": np.arange(100_000), "y": np.arange(100_000.0)}, path)
    fsspec.filesystem("memory").pipe_file("/push/head.cstore", path.read_bytes())
    with cs.open("memory://push/head.cstore") as table:
        df = read_colstore(table, blocksize=200_000)
        before = table.io.bytes
        assert df.x.head(7).tolist() == list(range(7))
        assert (df.x + 1).head(0).tolist() == []
        assert df.partitions[1].x.head(2).tolist() == [df.divisions[1], df.divisions[1] + 1]
        assert table.io.bytes - before == 9 * 8
        frame = df.head()
        pd.testing.assert_frame_equal(frame, df.compute().head())
        assert df.x.head(3, npartitions=2).tolist() == [0, 1, 2]
        with pytest.warns(UserWarning, match="Insufficient"):
            assert len(df.head(20_000)) < 20_000
        assert df[df.x > 5].x.head(2).tolist() == [6, 7]


def test_query_for_one_segment_in_a_thousand_reads_one(tmp_path):
    path = tmp_path / "thousand.cstore"
    with cs.create(path, statistics=True) as writer:
        for r in range(1000):
            writer.write({"t": np.arange(50) + 50 * r, "x": np.full(50, r / 7.0), "y": np.arange(50.0)})
    fsspec.filesystem("memory").pipe_file("/thousand.cstore", path.read_bytes())
    for blocksize in (None, "default"):
        with cs.open("memory://thousand.cstore") as table:
            df = read_colstore(table, blocksize=blocksize)
            chosen = df[(df.t >= 31_010) & (df.t < 31_020)]
            # Of remote records that were assumed to be equal, headers are looked at once: a chain says where they are.
            source = table.readable_source()
            source.look_at(source.plan.segments.rows > 0)
            before = table.io.as_dict()
            got = chosen.compute()
            after = table.io.as_dict()
        assert got.index.tolist() == list(range(31_010, 31_020))
        assert got.x.tolist() == [620 / 7.0] * 10
        # the footer with the statistics, the header of one record, then its `t`, then all columns of the rows found
        record = 50 * 24 + 64
        footer = path.stat().st_size - table.source.plan.files[0].committed_end
        assert after["bytes"] - before["bytes"] <= footer + 2 * record
        assert after["requests"] <= 5  # the first bytes included


def test_scattered_segments_are_one_partition_and_only_they_are_read(tmp_path):
    path = tmp_path / "scattered.cstore"
    with cs.create(path, statistics=True) as writer:
        for r in range(100):
            writer.write({"k": np.full(20_000, r % 10), "x": np.arange(20_000.0) + r})
    fsspec.filesystem("memory").pipe_file("/scattered.cstore", path.read_bytes())
    with cs.open("memory://scattered.cstore") as table:
        df = read_colstore(table)
        assert df.npartitions == 1
        before = table.io.bytes
        got = df[df.k == 3].x.compute()
        assert len(got) == 10 * 20_000
        assert got.index[[0, -1]].tolist() == [60_000, 93 * 20_000 + 19_999]
        assert table.io.bytes - before < 10 * 20_000 * 16 + (64 << 10)


# ----------------------------------------------------------------------------------------------------------
# Reductions

HOW = ["sum", "mean", "min", "max", "count"]
NUMERIC = ["i", "u", "f", "g", "ni", "nf"]


def same(got, want, exact):
    if isinstance(want, pd.Series):
        pd.testing.assert_series_equal(got, want, check_exact=exact, rtol=1e-6)
        return
    if want is pd.NA or want is pd.NaT:
        assert got is want
        return
    assert type(got) is type(want) or np.asarray(got).dtype == np.asarray(want).dtype
    if exact:
        assert got == want or (got != got and want != want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-6)


@given(
    number=st.integers(0, 200), condition=CONDITIONS, how=st.sampled_from(HOW), name=st.sampled_from(NUMERIC)
)
@SETTINGS
def test_reductions_of_the_rows_of_any_condition_are_those_of_pandas(tables, number, condition, how, name):
    _, mask = condition
    df = read_colstore(tables[number], blocksize=None)
    whole = df.compute()
    try:
        want = getattr(whole[mask(whole)][name], how)()
    except TypeError:
        return
    reduction = getattr(df[mask(df)][name], how)()
    pushed = list(reduction.optimize(fuse=False).expr.find_operations(ReduceColstore))
    if not pushed and (want is pd.NA or isinstance(want, np.float32)):
        return  # left to Dask, which says NaN of no rows, and counts in 64 bits
    same(reduction.compute(), want, exact=how not in ("sum", "mean"))


CONDITIONS_ON_I = [
    None,
    lambda f: f.i > 12,
    lambda f: f.i > 1000,
    lambda f: f.f.isna(),
    lambda f: f.ni.isna(),
]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("number", [0, 1])
def test_reductions_are_those_of_pandas(tables, how, number):
    df = read_colstore(tables[number], blocksize=None)
    whole = df.compute()
    for condition in CONDITIONS_ON_I:
        rows, kept = (df, whole) if condition is None else (df[condition(df)], whole[condition(whole)])
        names = list(LITERALS) if how == "count" else [*NUMERIC, "b", "nb"]
        if how in ("min", "max"):
            names = [*NUMERIC, "when", "lag", "nt"]
        for name in names:
            lazy = getattr(rows[name], how)()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                want = getattr(kept[name], how)()
            assert isinstance(lazy.optimize().expr, ReduceColstore)
            same(
                lazy.compute(), want, exact=how not in ("sum", "mean") or name in ("i", "u", "ni", "b", "nb")
            )
        for group in (NUMERIC, ["i", "u"], ["f", "g"], ["ni"], ["i", "ni"]):
            lazy = getattr(rows[group], how)()
            assert isinstance(lazy.optimize().expr, ReduceColstore)
            same(lazy.compute(), getattr(kept[group], how)(), exact=how in ("min", "max", "count"))


def test_reductions_of_no_rows_at_all(tmp_path):
    path = tmp_path / "none.cstore"
    cs.store({"x": np.empty(0), "i": np.empty(0, np.int32), "b": np.empty(0, np.bool_)}, path)
    df = read_colstore(path)
    whole = df.compute()
    for how in HOW:
        for name in ["x", "i"] if how in ("min", "max") else ["x", "i", "b"]:
            same(getattr(df[name], how)().compute(), getattr(whole[name], how)(), exact=True)
        same(getattr(df[["x", "i"]], how)().compute(), getattr(whole[["x", "i"]], how)(), exact=True)


def test_reductions_read_only_what_they_reduce(counted):
    df = read_colstore(counted, blocksize=None)
    before = counted.io.bytes
    assert df.i.count().compute() == counted.n_rows
    assert df.s.count().compute() == counted.n_rows
    assert counted.io.bytes == before


def test_other_reductions_and_results_in_expressions_still_work(tables):
    df = read_colstore(tables[0], blocksize=None)
    whole = df.compute()
    assert df.i.prod().compute() == whole.i.prod()
    assert df.u.std().compute() == pytest.approx(whole.u.std())
    assert (df.i.sum() + df.u.max()).compute() == whole.i.sum() + whole.u.max()
    pd.testing.assert_series_equal((df.i - df.i.mean()).compute(), whole.i - whole.i.mean())
    pd.testing.assert_series_equal(df[["i", "u"]].mean().compute(), whole[["i", "u"]].mean())
    pd.testing.assert_series_equal(df[["i", "f"]].sum()["i":"i"].compute(), whole[["i", "f"]].sum()["i":"i"])
    assert df.f.sum(skipna=False).compute() is np.nan or np.isnan(df.f.sum(skipna=False).compute())
    pd.testing.assert_series_equal(df[["i", "u"]].sum(axis=1).compute(), whole[["i", "u"]].sum(axis=1))
    assert df.f.sum(min_count=10_000).compute() is np.nan or np.isnan(df.f.sum(min_count=10_000).compute())


def test_integer_sums_wrap_as_in_pandas(tmp_path):
    path = tmp_path / "wrap.cstore"
    cs.store({"i": np.full(4, 2**62), "u": np.full(4, 2**63, np.uint64)}, path)
    df = read_colstore(path, blocksize=16)
    whole = df.compute()
    assert df.i.sum().compute() == whole.i.sum()
    assert df.u.sum().compute() == whole.u.sum()
    assert df.i.mean().compute() == whole.i.mean()


# ----------------------------------------------------------------------------------------------------------
# Without the expression


def test_fallback_gives_the_same_frames_partitions_and_divisions(tables):
    arguments = [
        {},
        {"columns": ["f", "i"]},
        {"columns": "f"},
        {"filters": [("i", ">", 15)]},
        {"index": "i", "filters": [("i", ">", 15)]},
        {"categories": ["s"]},
    ]
    for options in arguments:
        df = read_colstore(tables[1], blocksize=None, **options)
        with dask.config.set({"colstore-io.dask-expression": False}):
            plain = read_colstore(tables[1], blocksize=None, **options)
        assert not isinstance(plain.expr, ReadColstore)
        assert plain.divisions == df.divisions
        compare = pd.testing.assert_series_equal if df.ndim == 1 else pd.testing.assert_frame_equal
        compare(plain._meta, df._meta)
        compare(plain.compute(), df.compute())
