"""Directories that grow by whole files: append, appender, names, locks, generations."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disks import Disk, full, read_back

from colstore_io.errors import CommitConflictError, FormatError, SchemaMismatchError, WriterLockedError
from colstore_io.storage import locate
from colstore_io.writing import manifest
from colstore_io.writing.appender import Appender
from colstore_io.writing.locks import DIRECTORY_LOCK_NAME
from colstore_io.writing.manifest_json import GenerationManifest, new_commit_id
from colstore_io.writing.manifest_layout import file_entry, schema_objects
from colstore_io.writing.merging import open_sources
from colstore_io.writing.shard_directory import ShardName
from colstore_io.writing.shards import append
from colstore_io.writing.writer import Writer, store_file


def shards(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.endswith(".cstore"))


def rows(start: int, stop: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(start, stop)}


def all_rows(directory: Path) -> list[int]:
    return [value for name in shards(directory) for value in read_back(directory / name)["x"]]


class TestNames:
    def test_next_index_is_one_more_than_the_largest(self) -> None:
        name = ShardName("run_{index:03d}.cstore")
        assert name.next_index([]) == 0
        assert name.next_index(["run_000.cstore", "run_7.cstore", "run_0012.cstore", "run_x.cstore"]) == 13
        assert name.next_index(["run_5.cstore.tmp", "a_run_9.cstore", "run_²3.cstore"]) == 0
        assert name.name(4) == "run_004.cstore"
        assert not name.literal
        assert ShardName("a{{b}}.cstore").literal

    @pytest.mark.parametrize("template", ["a[1]*?_{index}.cstore", "a+(b)|{index}.cstore"])
    def test_characters_of_patterns_are_plain_ones(self, tmp_path: Path, template: str) -> None:
        for i in range(2):
            assert append(tmp_path / "d[0]*?", rows(i, i + 1), name=template).name == template.format(index=i)  # type: ignore[union-attr]
        assert all_rows(tmp_path / "d[0]*?") == [0, 1]

    @pytest.mark.parametrize(
        "name",
        [
            *("a.bin", "shard_{index}", "a.cstore.gz", "_x.cstore", ".x.cstore", "a/b.cstore", "{i}.cstore"),
            *(
                "{index.real}.cstore",
                "{index:x}.cstore",
                "{}.cstore",
                "{index!r:>5}.cstore",
                "{index",
                "a\\b.cstore",
            ),
        ],
    )
    def test_bad_names_are_refused_before_anything_is_made(self, tmp_path: Path, name: str) -> None:
        for call in (
            lambda: append(tmp_path / "d", rows(0, 1), name=name),
            lambda: Appender(tmp_path / "d", name=name),
        ):
            with pytest.raises(ValueError):
                call()
        assert not (tmp_path / "d").exists()


class TestAppend:
    def test_shards_are_numbered_and_gaps_stay(self, tmp_path: Path) -> None:
        for i in range(4):
            path = append(tmp_path / "new" / "dir", rows(i, i + 1))
            assert path == tmp_path / "new" / "dir" / f"shard_{i:05d}.cstore"
        os.remove(tmp_path / "new" / "dir" / "shard_00001.cstore")
        assert Path(append(tmp_path / "new" / "dir", rows(4, 5))).name == "shard_00004.cstore"
        assert all_rows(tmp_path / "new" / "dir") == [0, 2, 3, 4]

    def test_bytes_are_those_of_a_store(self, tmp_path: Path) -> None:
        for statistics in (False, True):
            shard = append(tmp_path / "d", rows(0, 9), statistics=statistics)
            whole = store_file(rows(0, 9), tmp_path / "w.cstore", mode="recreate", statistics=statistics)
            assert Path(shard).read_bytes() == Path(whole).read_bytes()

    def test_stream_makes_one_shard_of_one_record_per_batch(self, tmp_path: Path) -> None:
        shard = append(tmp_path, iter([rows(0, 3), rows(3, 5)]))
        assert open_sources([shard])[0].meta.record_rows.tolist() == [3, 2]

    def test_literal_name_is_used_once(self, tmp_path: Path) -> None:
        append(tmp_path, rows(0, 1), name="one.cstore")
        with pytest.raises(FileExistsError):
            append(tmp_path, rows(1, 2), name="one.cstore")
        assert all_rows(tmp_path) == [0]

    @pytest.mark.parametrize("bad", [{"x": np.arange(3.0)}, {"y": np.arange(3)}, {"x": [1], "y": [2]}])
    def test_data_that_do_not_fit_leave_the_directory_unchanged(self, tmp_path: Path, bad: Any) -> None:
        append(tmp_path, rows(0, 3))
        before = sorted(os.listdir(tmp_path))
        for data in (bad, iter([bad])):
            with pytest.raises(SchemaMismatchError):
                append(tmp_path, data)
        assert sorted(os.listdir(tmp_path)) == before

    def test_order_of_columns_matters(self, tmp_path: Path) -> None:
        append(tmp_path, {"a": [1], "b": [2]})
        with pytest.raises(SchemaMismatchError):
            append(tmp_path, {"b": [2], "a": [1]})

    def test_text_is_padded_to_the_first_shard_or_refused(self, tmp_path: Path) -> None:
        append(tmp_path, {"s": np.array(["abc"])})
        append(tmp_path, {"s": np.array(["d"])})
        with pytest.raises(SchemaMismatchError):
            append(tmp_path, {"s": np.array(["toolong"])})
        assert [c.dtype.str for c in open_sources([tmp_path])[1].meta.columns] == ["<U3"]

    def test_companion_of_the_first_shard_is_always_written_and_a_new_one_never(self, tmp_path: Path) -> None:
        append(tmp_path / "a", {"n": np.array([1, None], object)})
        append(tmp_path / "a", {"n": np.array([3, 4])})
        assert read_back(tmp_path / "a" / "shard_00001.cstore") == {"n": [3, 4], "n.valid": [True, True]}
        append(tmp_path / "b", {"n": np.array([3, 4])})
        with pytest.raises(SchemaMismatchError):
            append(tmp_path / "b", {"n": np.array([1, None], object)})

    def test_damaged_or_empty_first_shard_is_an_error_that_frees_the_lock(self, tmp_path: Path) -> None:
        (tmp_path / "a.cstore").write_bytes(b"")
        for _ in range(2):
            with pytest.raises(FormatError):
                append(tmp_path, rows(0, 1))
        os.remove(tmp_path / "a.cstore")
        append(tmp_path, rows(0, 1))

    def test_second_writer_is_refused(self, tmp_path: Path) -> None:
        with Appender(tmp_path):
            with pytest.raises(WriterLockedError):
                append(tmp_path, rows(0, 1))
            with pytest.raises(OSError, match="lock"):
                Appender(tmp_path)
        append(tmp_path, rows(0, 1))
        assert (tmp_path / DIRECTORY_LOCK_NAME).exists()

    def test_failed_append_leaves_no_shard(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        append(tmp_path, rows(0, 3))
        before = sorted(os.listdir(tmp_path))
        with monkeypatch.context() as patch:
            Disk(patch).fail = full(100)
            with pytest.raises(OSError, match="No space"):
                append(tmp_path, rows(3, 6))
        assert sorted(os.listdir(tmp_path)) == before
        append(tmp_path, rows(3, 6))
        assert all_rows(tmp_path) == [0, 1, 2, 3, 4, 5]


class TestAppendFiles:
    def test_one_file_is_copied_byte_for_byte(self, tmp_path: Path) -> None:
        source = tmp_path / "s.cstore"
        with Writer(source, statistics=True) as writer:
            for i in range(3):
                writer.write(rows(i, i + 1))
        for data in (source, str(source)):
            assert Path(append(tmp_path / "d", data)).read_bytes() == source.read_bytes()

    def test_several_files_become_one_record(self, tmp_path: Path) -> None:
        for i in range(3):
            append(tmp_path / "s", rows(i, i + 1))
        shard = append(tmp_path / "d", tmp_path / "s")
        whole = store_file(rows(0, 3), tmp_path / "w.cstore")
        assert Path(shard).read_bytes() == Path(whole).read_bytes()

    def test_statistics_rewrite_the_file_as_one_record(self, tmp_path: Path) -> None:
        store_file(iter([rows(0, 2), rows(2, 5)]), tmp_path / "s.cstore")
        shard = append(tmp_path / "d", tmp_path / "s.cstore", statistics=True)
        whole = store_file(rows(0, 5), tmp_path / "w.cstore", statistics=True)
        assert Path(shard).read_bytes() == Path(whole).read_bytes()

    def test_file_that_lacks_a_companion_gets_it(self, tmp_path: Path) -> None:
        append(tmp_path / "d", {"n": np.array([1, None], object)})
        store_file({"n": [3, 4]}, tmp_path / "s.cstore")
        shard = append(tmp_path / "d", tmp_path / "s.cstore")
        assert read_back(shard) == {"n": [3, 4], "n.valid": [True, True]}
        assert (
            open_sources([tmp_path / "d"])[1].meta.columns == open_sources([tmp_path / "d"])[0].meta.columns
        )

    def test_schema_is_checked_before_anything_is_written(self, tmp_path: Path) -> None:
        append(tmp_path / "d", rows(0, 3))
        store_file({"x": np.arange(3.0)}, tmp_path / "bad.cstore")
        for _ in range(2):
            with pytest.raises(ValueError, match="schema"):
                append(tmp_path / "d", tmp_path / "bad.cstore")
        assert shards(tmp_path / "d") == ["shard_00000.cstore"]

    @pytest.mark.parametrize("statistics", [False, True])
    def test_directory_is_not_appended_to_itself(self, tmp_path: Path, statistics: bool) -> None:
        for i in range(2):
            append(tmp_path, rows(i, i + 1))
        for data in (tmp_path, tmp_path / "shard_00000.cstore", str(tmp_path / "*.cstore")):
            with pytest.raises(ValueError, match="itself"):
                append(tmp_path, data, statistics=statistics)
        assert len(shards(tmp_path)) == 2

    def test_open_tables_are_sources(self, tmp_path: Path) -> None:
        tables = pytest.importorskip("colstore_io.tables")
        for i in range(2):
            append(tmp_path / "s", rows(i, i + 1))
        with tables.Reader(tmp_path / "s" / "shard_00000.cstore") as reader:
            shard = append(tmp_path / "d", reader)
            assert Path(shard).read_bytes() == (tmp_path / "s" / "shard_00000.cstore").read_bytes()
        with tables.Dataset([tmp_path / "s"]) as dataset:
            append(tmp_path / "d", dataset)
        assert all_rows(tmp_path / "d") == [0, 0, 1]

    def test_missing_source_makes_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            append(tmp_path / "d", tmp_path / "no.cstore")
        assert shards(tmp_path / "d") == []


class TestAppender:
    def test_rolls_when_the_rows_are_reached_and_never_splits(self, tmp_path: Path) -> None:
        with Appender(tmp_path, shard_size=25) as appender:
            assert (appender.directory, appender.closed) == (tmp_path, False)
            for i in range(4):
                appender.write(rows(10 * i, 10 * i + 10))
            assert (appender.n_shards, appender.pending_rows) == (1, 10)
        assert (appender.n_shards, appender.pending_rows, appender.closed) == (2, 0, True)
        assert [s.meta.record_rows.tolist() for s in open_sources([tmp_path])] == [[30], [10]]
        assert all_rows(tmp_path) == list(range(40))

    def test_rolls_by_bytes_of_a_row(self, tmp_path: Path) -> None:
        with Appender(tmp_path, shard_size="1 KiB", statistics=True) as appender:
            for i in range(20):
                appender.write(rows(100 * i, 100 * i + 100))  # 128 rows fit
        assert len(shards(tmp_path)) == 10
        assert all_rows(tmp_path) == list(range(2000))
        assert open_sources([tmp_path])[0].meta.statistics is not None

    def test_without_a_size_only_flush_and_close_write(self, tmp_path: Path) -> None:
        appender = Appender(tmp_path)
        appender.write({})
        appender.flush()
        for i in range(3):
            appender.write(rows(i, i + 1))
        assert shards(tmp_path) == []
        appender.flush()
        assert (appender.n_shards, appender.pending_rows) == (1, 0)
        appender.close()
        appender.close()
        assert len(shards(tmp_path)) == 1
        for use in (appender.flush, lambda: appender.write(rows(0, 1))):
            with pytest.raises(ValueError, match="closed"):
                use()

    def test_literal_name_allows_one_shard(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="literal"):
            Appender(tmp_path, name="one.cstore", shard_size=5)
        appender = Appender(tmp_path, name="one.cstore")
        appender.write(rows(0, 1))
        appender.flush()
        appender.write(rows(1, 2))
        with pytest.raises(ValueError, match="once"):
            appender.flush()
        with pytest.raises(ValueError, match="once"):
            appender.close()
        assert all_rows(tmp_path) == [0]

    @pytest.mark.parametrize("size", [0, -1, "x", "0 B", "", True, 1.5])
    def test_bad_sizes_are_refused(self, tmp_path: Path, size: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            Appender(tmp_path / "d", shard_size=size)
        assert not (tmp_path / "d").exists()

    def test_batch_that_does_not_fit_is_refused_and_the_others_stay(self, tmp_path: Path) -> None:
        with Appender(tmp_path) as appender:
            appender.write(rows(0, 3))
            with pytest.raises(SchemaMismatchError):
                appender.write({"x": np.arange(3.0)})
            appender.write(rows(3, 4))
        assert all_rows(tmp_path) == [0, 1, 2, 3]

    def test_caller_may_reuse_its_arrays(self, tmp_path: Path) -> None:
        buffer = np.arange(3)
        with Appender(tmp_path) as appender:
            for _ in range(2):
                appender.write({"x": buffer})
                buffer += 10
        assert all_rows(tmp_path) == [0, 1, 2, 10, 11, 12]

    def test_exception_inside_a_with_block_flushes(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError), Appender(tmp_path) as appender:  # noqa: PT012 - the block is what is tested
            appender.write(rows(0, 3))
            raise RuntimeError
        assert all_rows(tmp_path) == [0, 1, 2]

    def test_dropped_appender_flushes_with_a_warning(self, tmp_path: Path) -> None:
        appender = Appender(tmp_path)
        appender.write(rows(0, 3))
        with pytest.warns(ResourceWarning, match="unclosed"):  # noqa: PT031
            del appender
            gc.collect()
        assert all_rows(tmp_path) == [0, 1, 2]
        append(tmp_path, rows(3, 4))

    def test_failed_roll_keeps_the_rows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with Appender(tmp_path, shard_size=5) as appender:
            appender.write(rows(0, 3))
            with monkeypatch.context() as patch:
                Disk(patch).fail = full(100)
                with pytest.raises(OSError, match="No space"):
                    appender.write(rows(3, 6))
            assert appender.pending_rows == 6
        assert all_rows(tmp_path) == [0, 1, 2, 3, 4, 5]


def first_generation(directory: Path) -> GenerationManifest:
    sources = open_sources([directory])
    schema = schema_objects(sources[0].meta)
    entries = tuple(file_entry(s.meta, os.path.basename(s.meta.path), schema=schema) for s in sources)
    made = GenerationManifest(1, new_commit_id(), entries, sum(e.rows for e in entries), schema)
    manifest.publish(locate(str(directory)), made)
    return made


class TestGenerations:
    def test_append_publishes_the_next_generation(self, tmp_path: Path) -> None:
        append(tmp_path, rows(0, 3))
        first = first_generation(tmp_path)
        shard = append(tmp_path, rows(3, 5), statistics=True)
        newest = manifest.newest_generation(locate(str(tmp_path)))
        assert newest is not None
        assert (newest.generation, newest.n_rows) == (2, 5)
        assert newest.files[:1] == first.files
        assert newest.files[1].path == Path(shard).name
        assert newest.commit_id != first.commit_id

    def test_appender_publishes_at_each_roll(self, tmp_path: Path) -> None:
        append(tmp_path, rows(0, 3))
        first_generation(tmp_path)
        with Appender(tmp_path, shard_size=2) as appender:
            for i in range(3):
                appender.write(rows(i, i + 2))
        newest = manifest.newest_generation(locate(str(tmp_path)))
        assert newest is not None
        assert (newest.generation, newest.n_rows, len(newest.files)) == (4, 9, 4)

    def test_schema_is_that_of_the_first_file_of_the_generation(self, tmp_path: Path) -> None:
        append(tmp_path, rows(0, 3), name="b.cstore")
        first_generation(tmp_path)
        store_file({"z": [1.5]}, tmp_path / "a.cstore")  # no part of the dataset
        append(tmp_path, rows(3, 4))
        with pytest.raises(SchemaMismatchError):
            append(tmp_path, {"z": [1.5]})

    def test_lost_race_raises_and_takes_the_shard_away(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(tmp_path, rows(0, 3))
        first = first_generation(tmp_path)
        real = manifest.publish

        def late(place: Any, generation: GenerationManifest) -> Any:
            real(place, first.successor([]))  # somebody who takes no lock is faster
            return real(place, generation)

        monkeypatch.setattr(manifest, "publish", late)
        with pytest.raises(CommitConflictError):
            append(tmp_path, rows(3, 5))
        assert shards(tmp_path) == ["shard_00000.cstore"]


APPEND_MANY = """
import sys, time
import numpy as np
from colstore_io.writing.shards import append
from colstore_io.errors import WriterLockedError
directory, who = sys.argv[1], int(sys.argv[2])
done = 0
while done < 6:
    try:
        append(directory, {"x": np.array([100 * who + done])})
    except WriterLockedError:
        time.sleep(0.002)
    else:
        done += 1
"""


@pytest.mark.slow
def test_concurrent_appends_lose_nothing(tmp_path: Path) -> None:
    append(tmp_path, rows(0, 1))
    first_generation(tmp_path)
    processes = [
        subprocess.Popen([sys.executable, "-c", APPEND_MANY, str(tmp_path), str(who)]) for who in (1, 2)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert sorted(all_rows(tmp_path)) == [0, *range(100, 106), *range(200, 206)]
    newest = manifest.newest_generation(locate(str(tmp_path)))
    assert newest is not None
    assert (newest.generation, newest.n_rows) == (13, 13)
    assert sorted(entry.path for entry in newest.files) == shards(tmp_path)


class TestObjectStore:
    @pytest.fixture
    def url(self) -> Any:
        import fsspec

        fs = fsspec.filesystem("memory")
        yield "memory://shards/d"
        if fs.exists("/shards"):
            fs.rm("/shards", recursive=True)

    def test_shards_are_whole_objects_under_the_next_number(self, url: str) -> None:
        assert append(url, rows(0, 2)) == f"{url}/shard_00000.cstore"
        assert append(url, iter([rows(2, 3), rows(3, 4)])) == f"{url}/shard_00001.cstore"
        with Appender(url, shard_size=2) as appender:
            appender.write(rows(4, 7))
        assert read_back(f"{url}/shard_00002.cstore") == {"x": [4, 5, 6]}
        with pytest.raises(SchemaMismatchError):
            append(url, {"x": [1.5]})

    def test_number_that_somebody_took_meanwhile_is_passed_over(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from colstore_io import storage

        append(url, rows(0, 1))
        real = storage.write_object
        raced = []

        def write_object(location: Any, chunks: Any, **options: Any) -> None:
            if not raced:
                raced.append(location.path)
                real(location, [b"".join(chunks)])  # the other appender's object
            real(location, chunks, **options)

        monkeypatch.setattr(storage, "write_object", write_object)
        assert append(url, rows(1, 2)) == f"{url}/shard_00002.cstore"

    def test_local_files_are_uploaded(self, url: str, tmp_path: Path) -> None:
        source = store_file(rows(0, 3), tmp_path / "s.cstore")
        append(url, source)
        assert read_back(f"{url}/shard_00000.cstore") == {"x": [0, 1, 2]}
