"""Columns in the names of folders alone come back, as read_parquet has them, and prune exactly."""

from __future__ import annotations

import pickle

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import colstore_io as cs
from colstore_io.integrations._dask_folders import Folders
from colstore_io.integrations.dask import read_colstore


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def hive(tmp_path):
    """Two files per folder, three rows each; the same as Parquet beside it."""
    root = tmp_path / "data"
    for year in ("2023", "2024"):
        for tag in ("a", "b%20c"):
            for file in range(2):
                frame = pd.DataFrame({"x": np.arange(3.0) + int(year) + file})
                for base, suffix in ((root, "cstore"), (tmp_path / "parquet", "parquet")):
                    folder = base / f"year={year}" / f"tag={tag}"
                    folder.mkdir(parents=True, exist_ok=True)
                    if suffix == "cstore":
                        cs.store(frame, folder / f"p{file}.cstore").close()
                    else:
                        frame.to_parquet(folder / f"p{file}.parquet")
    return root


SIZES = [{"blocksize": None, "aggregate_files": False}, {"blocksize": "100 B"}, {}]


@pytest.mark.parametrize("sizes", SIZES)
def test_columns_of_folders_are_what_read_parquet_makes_of_them(hive, sizes):
    df = read_colstore(str(hive), **sizes)
    want = dd.read_parquet(str(hive.parent / "parquet"))
    assert df.columns.tolist() == ["x", "year", "tag"]
    pd.testing.assert_series_equal(df.dtypes, want.dtypes)
    pd.testing.assert_frame_equal(df.compute(), want.compute().reset_index(drop=True), check_index_type=False)
    for n in range(df.npartitions):
        pd.testing.assert_series_equal(df.partitions[n].compute().dtypes, df.dtypes)


@pytest.mark.parametrize("sizes", SIZES)
def test_conditions_on_folders_choose_files_and_rows_stay_exact(hive, sizes):
    df = read_colstore(str(hive), **sizes)
    whole = df.compute()
    for condition in (
        lambda d: d.year == 2024,
        lambda d: d.year != 2024,
        lambda d: d.tag == "b c",
        lambda d: d.tag.isin(["b c", "?"]),
        lambda d: (d.tag == "b c") & (d.year == 2023) & (d.x > 2023.5),
        lambda d: (d.tag == "b c") | (d.year == 2023),
        lambda d: (d.tag == "b c") | (d.x > 2024.5),
        lambda d: ~(d.tag == "b c"),
        lambda d: d.year == 1,
    ):
        want = whole[condition(whole)]
        pd.testing.assert_frame_equal(df[condition(df)].compute(), want, check_index_type=False)
        assert len(df[condition(df)]) == len(want)
        assert df[condition(df)].x.sum().compute() == want.x.sum()


def test_files_of_other_folders_are_not_read(hive):
    df = read_colstore(str(hive), blocksize=None, aggregate_files=False)
    assert df.npartitions == 8
    chosen = df[(df.year == 2024) & (df.tag == "a") & (df.x > 0)]
    assert chosen.optimize(fuse=False).npartitions == 2
    filtered = read_colstore(
        str(hive), filters=[("year", ">", 2023), ("x", "<", 2025)], blocksize=None, aggregate_files=False
    )
    assert filtered.npartitions == 4
    assert filtered.compute().x.tolist() == [2024.0, 2024.0]
    with pytest.raises(cs.QueryError, match="year"):
        read_colstore(str(hive), filters=[[("year", "==", 2023)], [("x", "<", 2025), ("tag", "==", "a")]])


def test_any_choice_of_columns(hive):
    df = read_colstore(str(hive), columns=["tag", "x"])
    assert df.compute().columns.tolist() == ["tag", "x"]
    assert read_colstore(str(hive), columns="year").compute().tolist() == [2023] * 12 + [2024] * 12
    assert df[["tag"]].compute().tag.astype(str).tolist() == df.tag.compute().tolist()
    assert df.groupby("tag", observed=True).x.count().compute().to_dict() == {"a": 12, "b c": 12}
    assert len(df) == 24
    assert df.loc[[5, 20]].tag.compute().tolist() == ["a", "b c"]
    assert df.loc[5:7].tag.compute().tolist() == ["a", "b c", "b c"]
    assert df.head(2).tag.tolist() == ["a", "a"]
    with pytest.raises(KeyError, match="year"):
        read_colstore(str(hive), columns=["yaer"])


def test_fallback_and_pickles_have_them_too(hive):
    df = read_colstore(str(hive))
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(df)).compute(), df.compute())
    with dask.config.set({"colstore-io.dask-expression": False}):
        other = read_colstore(str(hive), filters=[("year", "==", 2024)])
    assert other.compute().year.tolist() == [2024] * 12
    assert read_colstore(str(hive))._name == df._name


def test_columns_that_files_hold_and_folders_that_say_nothing_stay_as_they_are(tmp_path):
    for year in (1, 2):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        cs.store({"x": [1.0], "year": [float(year)]}, folder / "p.cstore").close()
    df = read_colstore(str(tmp_path))
    assert df.dtypes.to_dict() == {"x": np.dtype("f8"), "year": np.dtype("f8")}
    with cs.open(tmp_path) as table:
        assert Folders.of(str(tmp_path), table.source) is None
        assert Folders.of(str(tmp_path / "*"), table.source) is None
        assert Folders.of([str(tmp_path)], table.source) is None


@pytest.mark.parametrize(
    ("values", "dtype", "want"),
    [
        (["007", "12"], np.int32, [7, 12]),
        (["-3", "2"], np.int32, [-3, 2]),
        (["3000000000", "1"], str, ["1", "3000000000"]),
        (["1.5", "2"], str, ["1.5", "2"]),
        (["1", "__HIVE_DEFAULT_PARTITION__"], np.int32, [1]),
    ],
)
def test_values_are_integers_where_all_are(tmp_path, values, dtype, want):
    for value in values:
        folder = tmp_path / f"k={value}"
        folder.mkdir()
        cs.store({"x": [1.0, 2.0]}, folder / "p.cstore").close()
    df = read_colstore(str(tmp_path))
    categories = df._meta.k.cat.categories
    assert categories.tolist() == want
    assert categories.dtype == (np.int32 if dtype is np.int32 else pd.Index(["a"]).dtype)
    got = df.compute()
    assert got.k.isna().sum() == (2 if "__HIVE" in values[-1] else 0)
    if dtype is np.int32:
        whole = got[got.k == want[0]]
        pd.testing.assert_frame_equal(df[df.k == want[0]].compute(), whole, check_index_type=False)
        pd.testing.assert_frame_equal(
            df[df.k != want[0]].compute(), got[got.k != want[0]], check_index_type=False
        )
