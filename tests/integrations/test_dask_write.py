"""A Dask frame becomes a directory in one commit: all of it, or nothing that anybody reads."""

from __future__ import annotations

import os
import pickle

import dask
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest
from servers import CountingFileSystem, new_store

import colstore_io as cs
from colstore_io.errors import SchemaMismatchError
from colstore_io.integrations import _dask_write
from colstore_io.integrations.dask import read_colstore, to_colstore
from colstore_io.writing import generations, manifest

N = 40


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "x": np.arange(N) / 4,
            "k": np.arange(N) % 3,
            "s": ["a" * (i // 8) for i in range(N)],
            "n": pd.array([1, None] * (N // 2), dtype="Int64"),
            "b": pd.array([True, None, False, None] * (N // 4), dtype="boolean"),
            "t": pd.date_range("2024", periods=N, tz="Europe/Berlin", unit="us"),
            "d": pd.date_range("2024", periods=N, unit="ms"),
            "c": pd.Categorical(["u", "v"] * (N // 2), categories=["v", "u"]),
        }
    )


def shards(folder):
    return sorted(n for n in os.listdir(folder) if n.endswith(".cstore"))


def read(folder, **options):
    return read_colstore(str(folder), **options).compute()


# ----------------------------------------------------------------------------------------------------------
# What is written is read


def test_what_is_written_is_read(tmp_path, frame):
    ddf = dd.from_pandas(frame, npartitions=4)
    found = to_colstore(ddf, tmp_path / "out")
    assert (found.generation, found.n_rows, len(found.files)) == (1, N, 4)
    pd.testing.assert_frame_equal(read(tmp_path / "out", categories=["c"]), ddf.compute())
    with cs.open(tmp_path / "out") as table:
        assert table.source.statistics_of("k") is not None


def test_accessor_and_pandas_frames_do_the_same(tmp_path, frame):
    ddf = dd.from_pandas(frame, npartitions=2)
    ddf.colstore.to_colstore(tmp_path / "a")
    to_colstore(frame, tmp_path / "b")
    to_colstore(frame["x"], tmp_path / "c")
    pd.testing.assert_frame_equal(read(tmp_path / "a"), read(tmp_path / "b"))
    assert len(shards(tmp_path / "b")) == 1
    assert read(tmp_path / "c").x.tolist() == frame.x.tolist()


def test_text_has_the_width_of_the_longest_value_of_all_partitions(tmp_path, frame):
    to_colstore(dd.from_pandas(frame, npartitions=5), tmp_path / "out")
    dtypes = set()
    for name in shards(tmp_path / "out"):
        with cs.open(tmp_path / "out" / name) as table:
            dtypes.add(table.schema["s"].dtype.str)
    assert dtypes == {"<U4"}
    to_colstore(dd.from_pandas(frame, npartitions=5), tmp_path / "wide", string_width={"s": 9})
    with cs.open(tmp_path / "wide") as table:
        assert table.schema["s"].dtype.str == "<U9"


def test_bytes_and_objects_are_told_apart_by_their_values(tmp_path):
    frame = pd.DataFrame({"raw": [b"a", None, b"ccc", b""], "text": ["a", None, "ccc", ""]}).astype(object)
    with dask.config.set({"dataframe.convert-string": False}):
        to_colstore(dd.from_pandas(frame, npartitions=2, sort=False), tmp_path / "out")
    got = read(tmp_path / "out")
    assert got.raw.tolist()[0] == b"a"
    assert got.text.tolist()[2] == "ccc"
    assert got.isna().sum().tolist() == [1, 1]


def test_values_of_two_kinds_in_one_column_are_refused_before_anything_is_written(tmp_path):
    frame = pd.DataFrame({"o": [b"a", b"b", "c", "d"]}, dtype=object)
    with (
        dask.config.set({"dataframe.convert-string": False}),
        pytest.raises(cs.SchemaMismatchError, match="'o'"),
    ):
        to_colstore(dd.from_pandas(frame, npartitions=2, sort=False), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_index_is_stored_when_it_says_something(tmp_path, frame):
    to_colstore(dd.from_pandas(frame, npartitions=2), tmp_path / "rows")
    assert "index" not in read(tmp_path / "rows").columns
    indexed = frame.set_index("d")
    to_colstore(dd.from_pandas(indexed, npartitions=2), tmp_path / "named")
    pd.testing.assert_frame_equal(
        read(tmp_path / "named", index="d", categories=["c"]), indexed.astype({"s": "string"})
    )
    to_colstore(indexed, tmp_path / "without", write_index=False)
    assert "d" not in read(tmp_path / "without").columns
    to_colstore(frame[["x"]], tmp_path / "asked", write_index=True)
    assert read(tmp_path / "asked")["index"].tolist() == list(range(N))


def test_unnamed_index_that_is_no_range_is_stored_too(tmp_path):
    frame = pd.DataFrame({"x": np.arange(6) / 2}, index=[3, 1, 4, 11, 5, 9])
    for number, data in enumerate((frame, dd.from_pandas(frame, npartitions=2, sort=False))):
        to_colstore(data, tmp_path / f"{number}")
        got = read(tmp_path / f"{number}", index="index")
        assert got.index.name == "index"
        pd.testing.assert_frame_equal(got.rename_axis(None), frame)
    to_colstore(frame.reset_index(drop=True), tmp_path / "0", mode="append")
    assert read(tmp_path / "0")["index"].tolist() == [*frame.index, *range(6)]


def test_rows_of_any_index_are_appended_to_a_table_without_one(tmp_path):
    frame = pd.DataFrame({"x": np.arange(6) / 2})
    to_colstore(frame, tmp_path / "out")
    to_colstore(frame[frame.x > 1], tmp_path / "out", mode="append")
    got = read(tmp_path / "out")
    assert got.columns.tolist() == ["x"]
    assert got.x.tolist() == [*frame.x, *frame.x[3:]]


def test_index_and_folders_go_round_together(tmp_path, frame):
    indexed = frame.set_index("d").drop(columns=["t", "c"])
    ddf = dd.from_pandas(indexed, npartitions=3)
    to_colstore(ddf, tmp_path / "out", partition_on="k")
    got = read_colstore(str(tmp_path / "out"), index="d")
    assert got.columns.tolist() == indexed.columns.tolist()
    pd.testing.assert_frame_equal(got.compute().sort_index(), ddf.compute())
    with cs.open(tmp_path / "out") as table:
        assert {p["k"] for p in table.source.partitions} == {0, 1, 2}
    again = to_colstore(got, tmp_path / "again", partition_on="k")
    assert again.partition_on == ("k",)
    pd.testing.assert_frame_equal(read(tmp_path / "again", index="d").sort_index(), ddf.compute())


def test_empty_partitions_and_empty_frames_keep_the_columns(tmp_path, frame):
    ddf = dd.from_pandas(frame, npartitions=4)
    to_colstore(ddf[ddf.x > 7], tmp_path / "some")
    assert read(tmp_path / "some").x.tolist() == frame.x[frame.x > 7].tolist()
    to_colstore(ddf[ddf.x > 1e9], tmp_path / "none")
    got = read(tmp_path / "none")
    assert len(got) == 0
    assert list(got.columns) == list(frame.columns)


def test_records_are_cut_where_asked(tmp_path, frame):
    to_colstore(frame, tmp_path / "out", rows_per_record=16)
    with cs.open(tmp_path / "out") as table:
        assert table.source.plan.segments.rows.tolist() == [16, 16, 8]


def test_attributes_are_stored(tmp_path, frame):
    to_colstore(frame, tmp_path / "out", attrs={"run": 7})
    with cs.open(tmp_path / "out") as table:
        assert table.attrs == {"run": 7}


# ----------------------------------------------------------------------------------------------------------
# Modes and commits


def test_create_refuses_a_table_and_accepts_what_an_interrupted_job_left(tmp_path, frame):
    ddf = dd.from_pandas(frame, npartitions=3)
    plan = generations.plan_generation(tmp_path / "out", mode="create")
    left = generations.write_shard(plan, frame[["x"]], 0)
    to_colstore(ddf, tmp_path / "out")
    assert len(read(tmp_path / "out")) == N
    with pytest.raises(FileExistsError):
        to_colstore(ddf, tmp_path / "out")
    assert manifest.vacuum(tmp_path / "out", older_than_seconds=0) == [left.path]
    cs.store({"x": np.arange(3)}, tmp_path / "plain.cstore")
    with pytest.raises(FileExistsError):
        to_colstore(ddf, tmp_path)


def test_append_adds_a_generation_and_old_readers_stay(tmp_path, frame):
    ddf = dd.from_pandas(frame, npartitions=2)
    to_colstore(ddf, tmp_path / "out")
    before = read_colstore(str(tmp_path / "out"))
    found = to_colstore(ddf, tmp_path / "out", append=True)
    assert (found.generation, found.n_rows) == (2, 2 * N)
    assert len(before.compute()) == N
    got = read(tmp_path / "out", categories=["c"])
    pd.testing.assert_frame_equal(got, pd.concat([ddf.compute()] * 2, ignore_index=True))


def test_append_to_a_directory_without_a_manifest_keeps_its_files(tmp_path):
    cs.append(tmp_path, {"x": np.arange(5), "s": np.array(["abc"] * 5)})
    more = pd.DataFrame({"s": ["d"], "x": [7]})
    found = to_colstore(more, tmp_path, mode="append")
    assert [f.rows for f in found.files] == [5, 1]
    assert read(tmp_path).x.tolist() == [0, 1, 2, 3, 4, 7]


def test_append_that_does_not_fit_writes_nothing(tmp_path, frame):
    to_colstore(frame, tmp_path / "out")
    before = sorted(os.listdir(tmp_path / "out"))
    longer = frame.assign(s="far too long")
    for wrong in (longer, frame.drop(columns="x"), frame.assign(more=1), frame.assign(k="text")):
        with pytest.raises(cs.SchemaMismatchError):
            to_colstore(wrong, tmp_path / "out", mode="append")
    assert sorted(os.listdir(tmp_path / "out")) == before


def test_overwrite_leaves_readers_of_the_old_generation_alone(tmp_path, frame):
    to_colstore(frame, tmp_path / "out")
    old = read_colstore(str(tmp_path / "out"))
    to_colstore(frame[["x"]].head(3), tmp_path / "out", mode="overwrite")
    assert len(read(tmp_path / "out")) == 3
    assert old.k.compute().tolist() == frame.k.tolist()
    first = read_colstore(str(tmp_path / "out" / "_colstore-00000001.json"))
    assert len(first) == N
    assert len(manifest.vacuum(tmp_path / "out", older_than_seconds=0)) == 1


def test_overwriting_what_is_read_and_the_working_directory_are_refused(tmp_path, frame, monkeypatch):
    to_colstore(frame, tmp_path / "out")
    df = read_colstore(str(tmp_path / "out"))
    with pytest.raises(ValueError, match="read by this frame"):
        to_colstore(df[df.x > 1], tmp_path / "out", overwrite=True)
    monkeypatch.chdir(tmp_path / "out")
    with pytest.raises(ValueError, match="working directory"):
        to_colstore(frame, ".", overwrite=True)


def test_second_committer_of_a_generation_gets_a_conflict(tmp_path, frame):
    to_colstore(frame, tmp_path / "out")
    first = to_colstore(dd.from_pandas(frame, 2), tmp_path / "out", mode="append", compute=False)
    second = to_colstore(dd.from_pandas(frame, 2), tmp_path / "out", mode="append", compute=False)
    assert first.compute().generation == 2
    with pytest.raises(cs.CommitConflictError):
        second.compute()
    assert len(read(tmp_path / "out")) == 2 * N
    assert len(shards(tmp_path / "out")) == 3  # those of the loser are gone


def test_commit_that_runs_twice_finds_itself(tmp_path, frame):
    plan = generations.plan_generation(tmp_path / "out", mode="create")
    shard = generations.write_shard(plan, frame[["x"]], 0)
    first = generations.commit(plan, [shard])
    again = generations.commit(pickle.loads(pickle.dumps(plan)), [shard])
    assert again.commit_id == first.commit_id
    assert len(read(tmp_path / "out")) == N


def test_task_that_runs_twice_is_harmless(tmp_path, frame, monkeypatch):
    real = _dask_write.write_partition

    def twice(*arguments):
        real(*arguments)
        return real(*arguments)

    monkeypatch.setattr(_dask_write, "write_partition", twice)
    to_colstore(dd.from_pandas(frame, npartitions=3), tmp_path / "out")
    assert len(read(tmp_path / "out")) == N
    assert len(shards(tmp_path / "out")) == 6
    assert len(manifest.vacuum(tmp_path / "out", older_than_seconds=0)) == 3


def test_failing_partition_publishes_nothing(tmp_path, frame):
    def fails(part, partition_info=None):
        if partition_info is not None and partition_info["number"] == 2:
            raise RuntimeError("boom")
        return part

    ddf = dd.from_pandas(frame[["x", "k"]], npartitions=3)
    broken = ddf.map_partitions(fails, meta=frame[["x", "k"]].iloc[:0])
    with pytest.raises(RuntimeError, match="boom"):
        to_colstore(broken, tmp_path / "out")
    assert manifest.newest_generation(manifest.directory_location(tmp_path / "out")) is None
    to_colstore(ddf, tmp_path / "out")
    assert len(read(tmp_path / "out")) == N


def test_arguments_are_checked_at_once(tmp_path, frame):
    out = tmp_path / "out"
    for options, message in [
        ({"append": True, "overwrite": True}, "exclude"),
        ({"mode": "append", "overwrite": True}, "contradicts"),
        ({"mode": "update"}, "mode must be"),
        ({"format": "parquet"}, "format must be"),
        ({"partition_on": "nope"}, "nope"),
        ({"string_width": {"nope": 3}}, "nope"),
        ({"rows_per_record": 0}, "rows_per_record"),
    ]:
        with pytest.raises(ValueError, match=message):
            to_colstore(frame, out, **options)
    with pytest.raises(ValueError, match="strings"):
        to_colstore(frame.rename(columns={"x": 3}), out)
    with pytest.raises(ValueError, match="repeated"):
        to_colstore(frame.rename(columns={"x": "k"}), out)
    with pytest.raises(TypeError):
        to_colstore({"x": [1]}, out)
    assert not out.exists()


def test_names_of_users_are_part_of_the_names_of_files(tmp_path, frame):
    out = tmp_path / "out"
    ddf = dd.from_pandas(frame, npartitions=3)
    to_colstore(ddf, out, name_function=lambda i: f"day{i}.cstore")
    names = sorted(name for name in os.listdir(out) if name.endswith(".cstore"))
    assert [name.rpartition("-")[0] for name in names] == [
        "part-00000-day0",
        "part-00001-day1",
        "part-00002-day2",
    ]
    to_colstore(ddf, out, name_function=lambda i: f"day{i}", overwrite=True)  # no file is written over
    assert len([name for name in os.listdir(out) if name.endswith(".cstore")]) == 6
    assert sorted(cs.vacuum(out, older_than_seconds=0)) == names
    assert len(read(out)) == N
    for function, error, message in [
        (lambda i: "same", ValueError, "several"),
        (lambda i: f"a/{i}", ValueError, "letters"),
        (lambda i: i, TypeError, "text"),
    ]:
        with pytest.raises(error, match=message):
            to_colstore(ddf, tmp_path / "other", name_function=function)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "pyarrow"}, "leave it out"),
        ({"write_metadata_file": True}, "manifest"),
        ({"custom_metadata": {"a": "b"}}, "use attrs="),
        ({"schema": None}, "df.astype"),
        ({"ignore_divisions": True}, "leave it out"),
        ({"index": False}, "use write_index"),
        ({"partition_cols": ["k"]}, "use partition_on"),
        ({"row_group_size": 5}, "use rows_per_record"),
        ({"compression": "zstd"}, "format='columns'"),
        ({"colour": 3}, "colour"),
        ({"format": "columns", "colour": 3}, "options are"),
        ({"format": "columns", "attrs": {"a": 1}}, "attrs="),
        ({"format": "colbin", "string_width": {"s": 3}}, "string_width="),
    ],
)
def test_options_of_other_writers_are_refused_with_what_to_use(tmp_path, frame, options, message):
    with pytest.raises(TypeError, match=message):
        to_colstore(frame, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_options_of_the_encoder_go_through(tmp_path, frame):
    frame = frame.drop(columns=["t", "d", "c"])
    for compression in ("none", "zstd"):
        to_colstore(frame, tmp_path / compression, format="columns", compression=compression)
        pd.testing.assert_frame_equal(
            read(tmp_path / compression).reset_index(drop=True),
            read(tmp_path / "none").reset_index(drop=True),
        )
    sizes = [sum(p.stat().st_size for p in (tmp_path / c).glob("*.abcd")) for c in ("none", "zstd")]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("kind", ["columns", "colbin"])
def test_appends_take_the_format_of_the_table_and_check_columns_first(tmp_path, kind):
    out = tmp_path / "out"
    frame = pd.DataFrame({"x": np.arange(6), "s": list("abcdef")})
    ddf = dd.from_pandas(frame, npartitions=2)
    to_colstore(ddf, out, format=kind)
    to_colstore(ddf, out, append=True)
    assert read(out).x.tolist() == [*range(6), *range(6)]
    before = sorted(os.listdir(out))
    for bad in (ddf[["x"]], ddf.assign(z=1), ddf.assign(x=ddf.x * 0.5), ddf.assign(s=ddf.x)):
        with pytest.raises(SchemaMismatchError):
            to_colstore(bad, out, append=True)
    with pytest.raises(ValueError, match="holds"):
        to_colstore(ddf, out, append=True, format="cstore")
    assert sorted(os.listdir(out)) == before


@pytest.mark.parametrize("kind", ["columns", "colbin", "cstore"])
def test_files_of_a_directory_without_a_manifest_are_appended_to(tmp_path, kind):
    out = tmp_path / "out"
    frame = pd.DataFrame({"x": np.arange(6), "s": list("abcdef")})
    cs.append(out, frame, format=kind)
    to_colstore(dd.from_pandas(frame, npartitions=2), out, append=True)
    assert read(out).x.tolist() == [*range(6), *range(6)]
    with cs.open(out) as table:
        assert table.n_rows == 12


# ----------------------------------------------------------------------------------------------------------
# Folders


def test_folders_are_named_after_values_and_prune(tmp_path, frame):
    ddf = dd.from_pandas(frame, npartitions=3)
    found = to_colstore(ddf, tmp_path / "out", partition_on=["k", "b"])
    assert found.partition_on == ("k", "b")
    assert (tmp_path / "out" / "k=1" / "b=__HIVE_DEFAULT_PARTITION__").is_dir()
    assert {tuple(f.partition.items()) for f in found.files} >= {(("k", 0), ("b", True))}
    got = read(tmp_path / "out", categories=["c"])
    assert got.k.dtype == np.int64
    want = ddf.compute()
    pd.testing.assert_frame_equal(
        got.sort_values("x", ignore_index=True), want.sort_values("x", ignore_index=True)
    )
    df = read_colstore(str(tmp_path / "out"), blocksize=None)
    one = df[df.k == 1].optimize(fuse=False)
    assert one.npartitions == sum(f.partition["k"] == 1 for f in found.files)
    assert sorted(one.x.compute()) == frame.x[frame.k == 1].tolist()


def test_folders_of_text_prune_too(tmp_path):
    frame = pd.DataFrame({"day": ["mon", "tue", "wed/ö"] * 4, "x": np.arange(12)})
    to_colstore(frame, tmp_path / "out", partition_on="day")
    df = read_colstore(str(tmp_path / "out"), blocksize=None)
    assert df.npartitions == 3
    for day in ("mon", "wed/ö"):
        chosen = df[df.day == day]
        assert chosen.optimize(fuse=False).npartitions == 1
        assert chosen.x.compute().tolist() == frame.x[frame.day == day].tolist()
    assert (
        read_colstore(str(tmp_path / "out"), filters=[("day", "in", ["tue"])], blocksize=None).npartitions
        == 1
    )


def test_append_keeps_the_folders(tmp_path, frame):
    to_colstore(frame, tmp_path / "out", partition_on="k")
    found = to_colstore(frame, tmp_path / "out", mode="append")
    assert all("k" in f.partition for f in found.files)


# ----------------------------------------------------------------------------------------------------------
# Object stores


def test_object_store_gets_one_upload_per_shard_and_a_manifest(frame):
    name, store = new_store()
    fs = CountingFileSystem(store=name)
    to_colstore(dd.from_pandas(frame, npartitions=3), "bucket/out", filesystem=fs)
    assert store.count("write") == 4
    assert "bucket/out/_colstore-00000001.json" in store.objects
    df = read_colstore("bucket/out", filesystem=fs)
    assert df.x.compute().tolist() == frame.x.tolist()
    to_colstore(frame, "bucket/out", filesystem=fs, mode="append")
    assert len(read_colstore("bucket/out", filesystem=fs)) == 2 * N


def test_memory_urls_work(frame):
    fsspec.filesystem("memory")
    to_colstore(frame, "memory://dask_write/out")
    assert len(read_colstore("memory://dask_write/out")) == N


def test_a_directory_of_a_store_may_be_called_like_a_file(frame):
    url = "memory://dask_write_named/out.cstore"
    to_colstore(frame, url)
    to_colstore(frame, url, mode="append")
    assert len(read_colstore(url + "/")) == 2 * N
    with pytest.raises(IsADirectoryError, match="end its name with '/'"):
        read_colstore(url)


# ----------------------------------------------------------------------------------------------------------
# Encoded formats


def test_columns_files_are_written_read_filtered_and_reduced(tmp_path, frame):
    plain = frame.drop(columns=["c", "t", "d"])
    ddf = dd.from_pandas(plain, npartitions=4)
    found = to_colstore(ddf, tmp_path / "out", format="columns")
    assert (found.format, found.n_rows, len(found.files)) == ("columns", N, 4)
    df = read_colstore(str(tmp_path / "out"), blocksize=None)
    whole = df.compute()
    pd.testing.assert_frame_equal(whole, ddf.compute(), check_dtype=False)
    assert len(df) == N
    for mask in (
        lambda f: f.k == 1,
        lambda f: f.s > "aa",
        lambda f: ~(f.n == 1),
        lambda f: f.b | (f.x > 8),
        lambda f: f.s.isin(["a", "aaaa"]) & f.n.isna(),
    ):
        pd.testing.assert_frame_equal(df[mask(df)].compute(), whole[mask(whole)])
        assert df[mask(df)].x.sum().compute() == whole[mask(whole)].x.sum()
        assert df[mask(df)].n.count().compute() == whole[mask(whole)].n.count()
        assert df[mask(df)].s.count().compute() == whole[mask(whole)].s.count()
    for how in ("sum", "mean", "min", "max", "count"):
        pd.testing.assert_series_equal(
            getattr(df[["x", "k", "n"]], how)().compute(), getattr(whole[["x", "k", "n"]], how)()
        )
    one = df[df.x < 2].optimize(fuse=False)
    assert one.npartitions == 1
    again = to_colstore(ddf, tmp_path / "out", mode="append", format="columns")
    assert again.n_rows == 2 * N
    with pytest.raises(ValueError, match="format"):
        to_colstore(ddf, tmp_path / "out", mode="append", format="cstore")


def test_logs_of_messages_are_written_and_read(tmp_path, frame):
    plain = frame[["x", "k", "s"]]
    found = to_colstore(dd.from_pandas(plain, npartitions=2), tmp_path / "out", format="colbin")
    assert (found.n_rows, len(found.files)) == (N, 2)
    df = read_colstore(str(tmp_path / "out"))
    assert len(df) == N
    assert df[df.k == 1].x.sum().compute() == plain.x[plain.k == 1].sum()
    assert df.s.compute().tolist() == plain.s.tolist()


def test_an_append_keeps_the_folders_of_the_table(tmp_path):
    frame = pd.DataFrame({"k": ["a", "b"], "i": [1, 2]})
    to_colstore(frame, tmp_path / "t", partition_on="k")
    with pytest.raises(ValueError, match=r"partitioned on \['k'\].*overwrite"):
        to_colstore(frame, tmp_path / "t", mode="append", partition_on="i")
    to_colstore(frame, tmp_path / "t", mode="append", partition_on=["k"])
    assert len(cs.open(tmp_path / "t")) == 4


def test_another_format_may_replace_a_table(tmp_path):
    frame = pd.DataFrame({"i": [1, 2]})
    to_colstore(frame, tmp_path / "t", format="columns")
    to_colstore(frame, tmp_path / "t", mode="overwrite", format="cstore")
    assert cs.open(tmp_path / "t")["i"].array().tolist() == [1, 2]
    with pytest.raises(ValueError, match="format"):
        cs.open(tmp_path / "t", ignore_manifest=True)


@pytest.mark.parametrize("mode", ["create", "overwrite", "append"])
def test_a_grid_container_is_no_place_for_a_table(tmp_path, mode):
    xr = pytest.importorskip("xarray")
    pytest.importorskip("colstore_io.integrations.xarray")
    xr.Dataset({"a": ("x", np.arange(3.0))}).colstore.to_colstore(tmp_path / "g")
    with pytest.raises(FileExistsError, match="grid container"):
        to_colstore(pd.DataFrame({"i": [1]}), tmp_path / "g", mode=mode)
    assert xr.open_dataset(tmp_path / "g", engine="colstore").a.sum() == 3
