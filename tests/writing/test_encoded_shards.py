"""Directories of columns files and logs grow by shards and are compacted; a commit is one step, whatever happens."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from disks import Crash, Disk
from hypothesis import given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io.errors import CommitConflictError, FormatError, SchemaMismatchError, WriterLockedError
from colstore_io.storage import locate
from colstore_io.writing import manifest
from colstore_io.writing.directory_compaction import plan_groups
from colstore_io.writing.manifest import FileEntry, GenerationManifest

SUFFIXES = {"columns": ".abcd", "colbin": ".colbin", "cstore": ".cstore"}
ENCODED = ["columns", "colbin"]


def rows(start: int, stop: int) -> dict[str, Any]:
    return {"x": np.arange(start, stop), "s": [f"row {i}" for i in range(start, stop)]}


def cells(directory: Any, **options: Any) -> list[int]:
    with cs.open(directory, **options) as table:
        data = table.arrow()
    assert data["s"].to_pylist() == [f"row {i}" for i in data["x"].to_pylist()]
    found: list[int] = data["x"].to_pylist()
    return found


def members(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.endswith(tuple(SUFFIXES.values())))


def newest(directory: Any) -> GenerationManifest:
    found = manifest.newest_generation(locate(str(directory)))
    assert found is not None
    return found


def width(kind: str) -> dict[str, Any]:
    """Text of `.cstore` files must fit the first shard."""
    return {"string_width": {"s": 12}} if kind == "cstore" else {}


def with_manifest(directory: Any, kind: str) -> None:
    """Make a directory of three shards under a manifest."""
    for i in range(3):
        cs.append(directory, rows(10 * i, 10 * i + 10), **({"format": kind} if i == 0 else {}), **width(kind))
    cs.compact(directory, shard_bytes=1)  # nothing is that small
    with pytest.raises(FileNotFoundError):
        manifest.read_generation(locate(str(directory)).child("_colstore-00000001.json"))
    cs.compact(directory)


@pytest.mark.parametrize("kind", ENCODED)
class TestAppend:
    def test_shards_are_numbered_and_take_the_format_of_the_directory(
        self, tmp_path: Path, kind: str
    ) -> None:
        suffix = SUFFIXES[kind]
        assert cs.append(tmp_path / "d", rows(0, 3), format=kind) == tmp_path / "d" / f"shard_00000{suffix}"
        assert cs.append(tmp_path / "d", rows(3, 5)) == tmp_path / "d" / f"shard_00001{suffix}"
        assert cs.append(tmp_path / "d", rows(5, 6), name="z{index}" + suffix).name == f"z0{suffix}"
        assert cells(tmp_path / "d") == [0, 1, 2, 3, 4, 5]

    def test_a_name_tells_the_format(self, tmp_path: Path, kind: str) -> None:
        cs.append(tmp_path, rows(0, 3), name="run_{index}" + SUFFIXES[kind])
        assert members(tmp_path) == [f"run_0{SUFFIXES[kind]}"]

    def test_streams_and_open_tables_and_paths_are_taken(self, tmp_path: Path, kind: str) -> None:
        cs.append(tmp_path / "d", iter([rows(0, 2), rows(2, 3)]), format=kind)
        cs.store(rows(3, 5), tmp_path / "one.cstore")
        with cs.open(tmp_path / "one.cstore") as table:
            cs.append(tmp_path / "d", table)
        cs.append(tmp_path / "d", tmp_path / "one.cstore")
        cs.append(tmp_path / "d", pa.table(rows(5, 7)))
        assert cells(tmp_path / "d") == [0, 1, 2, 3, 4, 3, 4, 5, 6]

    def test_files_of_this_format_go_into_cstore_directories(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / f"one{SUFFIXES[kind]}"
        cs.store(rows(0, 3), path)
        cs.append(tmp_path / "d", rows(5, 7))
        cs.append(tmp_path / "d", path)
        with cs.open(path) as table:
            cs.append(tmp_path / "d", table)
        assert cells(tmp_path / "d") == [5, 6, 0, 1, 2, 0, 1, 2]

    def test_data_that_do_not_fit_leave_the_directory_unchanged(self, tmp_path: Path, kind: str) -> None:
        cs.append(tmp_path, rows(0, 3), format=kind)
        before = sorted(os.listdir(tmp_path))
        for bad in ({"x": [1]}, {"s": ["a"], "x": [1]}, {"x": [1.5], "s": ["a"]}, {"x": [1], "s": [None]}):
            for data in (bad, iter([bad])):
                with pytest.raises(SchemaMismatchError):
                    cs.append(tmp_path, data)
        assert sorted(os.listdir(tmp_path)) == before

    def test_formats_are_not_mixed(self, tmp_path: Path, kind: str) -> None:
        cs.append(tmp_path, rows(0, 3), format=kind)
        with pytest.raises(ValueError, match=f"holds {kind} files"):
            cs.append(tmp_path, rows(3, 4), format="cstore")
        with pytest.raises(ValueError, match=f"holds {kind} files"):
            cs.append(tmp_path, rows(3, 4), name="a.cstore")
        with pytest.raises(ValueError, match="is that of a cstore file"):
            cs.append(tmp_path / "e", rows(3, 4), name="a.cstore", format=kind)
        assert not (tmp_path / "e").exists()

    def test_options_of_other_formats_are_refused(self, tmp_path: Path, kind: str) -> None:
        with pytest.raises(TypeError, match="statistics"):
            cs.append(tmp_path, rows(0, 3), format=kind, statistics=True)
        with pytest.raises(TypeError, match="no option 'colour'"):
            cs.append(tmp_path, rows(0, 3), format=kind, colour=1)
        with pytest.raises(TypeError, match="row_group_size"):
            cs.append(tmp_path, rows(0, 3), row_group_size=2)
        with pytest.raises(TypeError, match="string_width"):
            cs.appender(tmp_path, format=kind, string_width={"s": 2})
        assert members(tmp_path) == []
        cs.append(tmp_path, rows(0, 3), format=kind, row_group_size=2)
        assert cells(tmp_path) == [0, 1, 2]

    def test_a_directory_is_not_appended_to_itself(self, tmp_path: Path, kind: str) -> None:
        cs.append(tmp_path, rows(0, 3), format=kind)
        for data in (tmp_path, cs.open(tmp_path)):
            with pytest.raises(ValueError, match="itself"):
                cs.append(tmp_path, data)

    def test_second_writer_is_refused(self, tmp_path: Path, kind: str) -> None:
        with cs.appender(tmp_path, format=kind) as appender:
            appender.write(rows(0, 2))
            for call in (lambda: cs.append(tmp_path, rows(0, 1), format=kind), lambda: cs.compact(tmp_path)):
                with pytest.raises(WriterLockedError):
                    call()
        assert cells(tmp_path) == [0, 1]

    def test_a_stream_that_fails_leaves_no_shard(self, tmp_path: Path, kind: str) -> None:
        def stream() -> Any:
            yield rows(0, 3)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            cs.append(tmp_path, stream(), format=kind)
        assert members(tmp_path) == []


@pytest.mark.parametrize("kind", ENCODED)
class TestAppender:
    def test_rolls_when_the_rows_are_reached(self, tmp_path: Path, kind: str) -> None:
        with cs.appender(tmp_path, format=kind, shard_size=5) as appender:
            for i in range(3):
                appender.write(rows(2 * i, 2 * i + 2))
            assert (appender.n_shards, appender.pending_rows) == (1, 0)
            appender.write(rows(6, 7))
        assert len(members(tmp_path)) == 2
        assert cells(tmp_path) == list(range(7))

    def test_rolls_by_bytes(self, tmp_path: Path, kind: str) -> None:
        with cs.appender(tmp_path, format=kind, shard_size="2 KiB") as appender:
            for i in range(4):
                appender.write(rows(100 * i, 100 * i + 100))
        assert len(members(tmp_path)) in (2, 3, 4)
        assert cells(tmp_path) == list(range(400))

    def test_caller_may_reuse_its_arrays_and_bad_batches_are_refused(self, tmp_path: Path, kind: str) -> None:
        buffer = np.arange(3)
        with cs.appender(tmp_path, format=kind) as appender:
            appender.write({"x": buffer})
            with pytest.raises(SchemaMismatchError):
                appender.write({"x": buffer * 0.5})
            buffer += 3
            appender.write({"x": buffer})
        with cs.open(tmp_path) as table:
            assert table.dict()["x"].tolist() == [0, 1, 2, 3, 4, 5]

    def test_publishes_at_each_roll(self, tmp_path: Path, kind: str) -> None:
        with_manifest(tmp_path, kind)
        before = newest(tmp_path)
        with cs.appender(tmp_path, shard_size=2) as appender:
            for i in range(3):
                appender.write(rows(30 + 2 * i, 32 + 2 * i))
        after = newest(tmp_path)
        assert after.generation == before.generation + 3
        assert after.files[:1] == before.files
        assert cells(tmp_path) == list(range(36))

    def test_lost_race_keeps_the_rows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        with_manifest(tmp_path, kind)
        with cs.appender(tmp_path) as appender:
            appender.write(rows(30, 33))
            with monkeypatch.context() as patch:
                race(patch)
                with pytest.raises(CommitConflictError):
                    appender.flush()
            assert appender.pending_rows == 3
        assert cells(tmp_path) == list(range(33))


def race(patch: pytest.MonkeyPatch, added: Any = ()) -> None:
    """Let somebody who takes no lock publish first, once."""
    real = manifest.publish
    done: list[int] = []

    def late(place: Any, generation: GenerationManifest) -> Any:
        if not done:
            done.append(1)
            current = manifest.newest_generation(place)
            assert current is not None
            real(place, current.successor(list(added)))
        return real(place, generation)

    patch.setattr(manifest, "publish", late)


@pytest.mark.parametrize("kind", list(SUFFIXES))
class TestGenerations:
    def test_append_publishes_the_next_one_and_old_readers_stay(self, tmp_path: Path, kind: str) -> None:
        with_manifest(tmp_path, kind)
        before = newest(tmp_path)
        with cs.open(tmp_path) as old:
            shard = cs.append(tmp_path, rows(30, 33))
            assert old.n_rows == len(old.arrow()) == 30
        after = newest(tmp_path)
        assert (after.generation, after.n_rows) == (before.generation + 1, 33)
        assert after.files[:-1] == before.files
        assert after.files[-1].path == Path(shard).name
        assert cells(tmp_path) == list(range(33))

    def test_lost_race_takes_the_shard_away(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        with_manifest(tmp_path, kind)
        before = members(tmp_path)
        race(monkeypatch)
        with pytest.raises(CommitConflictError, match="published by another"):
            cs.append(tmp_path, rows(30, 33))
        assert members(tmp_path) == before
        assert cells(tmp_path) == list(range(30))

    def test_generation_that_appears_while_a_shard_is_described_is_no_ground_to_lose_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        with_manifest(tmp_path, kind)
        before = newest(tmp_path)
        real = manifest.newest_table
        calls: list[int] = []

        def newest_table(place: Any) -> Any:
            found = real(place)
            calls.append(1)
            if len(calls) == 2:  # behind the look at the newest one, before the next number is used
                manifest.publish(place, before.successor([]))
            return found

        monkeypatch.setattr(manifest, "newest_table", newest_table)
        with pytest.raises(CommitConflictError):
            cs.append(tmp_path, rows(30, 33))
        assert newest(tmp_path).generation == before.generation + 1


@pytest.mark.parametrize("kind", list(SUFFIXES))
class TestCompact:
    def test_shards_become_one_and_vacuum_removes_ours(self, tmp_path: Path, kind: str) -> None:
        with_manifest(tmp_path, kind)
        own = cs.append(tmp_path, rows(30, 33)) if kind != "cstore" else None
        before = newest(tmp_path)
        with cs.open(tmp_path) as old:
            assert cs.compact(tmp_path) == tmp_path
            assert len(old.arrow()) == before.n_rows
        after = newest(tmp_path)
        if own is None:  # one file already
            assert after == before
            return
        assert (len(after.files), after.n_rows) == (1, 33)
        assert cells(tmp_path) == list(range(33))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # shard_00000 and so on are not ours to remove
            deleted = cs.vacuum(tmp_path, older_than_seconds=0)
        assert Path(own).name in deleted
        assert after.files[0].path in members(tmp_path)
        assert cells(tmp_path) == list(range(33))

    def test_sizes_are_respected_and_row_order_stays(self, tmp_path: Path, kind: str) -> None:
        for i in range(6):
            options = {"format": kind} if i == 0 else {}
            cs.append(tmp_path, rows(10 * i, 10 * i + 10), **options, **width(kind))
        sizes = [(tmp_path / name).stat().st_size for name in members(tmp_path)]
        cs.compact(tmp_path, shard_bytes=max(sizes) * 2)
        assert len(newest(tmp_path).files) == 3
        assert cells(tmp_path) == list(range(60))
        cs.compact(tmp_path, shard_bytes="1 MiB")
        assert len(newest(tmp_path).files) == 1
        assert cells(tmp_path) == list(range(60))

    def test_one_file_of_a_directory(self, tmp_path: Path, kind: str) -> None:
        with_manifest(tmp_path / "d", kind)
        out = tmp_path / f"out{SUFFIXES[kind]}"
        assert cs.compact(tmp_path / "d", out) == out
        assert cells(out) == list(range(30))

    def test_who_appends_meanwhile_is_no_conflict(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        for i in range(3):
            options = {"format": kind} if i == 0 else {}
            cs.append(tmp_path, rows(10 * i, 10 * i + 10), **options, **width(kind))
        cs.compact(tmp_path, shard_bytes=2 * (tmp_path / members(tmp_path)[0]).stat().st_size + 64)
        cs.store(rows(30, 32), tmp_path / f"other{SUFFIXES[kind]}", **width(kind)).close()
        size = (tmp_path / f"other{SUFFIXES[kind]}").stat().st_size
        race(monkeypatch, [FileEntry(f"other{SUFFIXES[kind]}", size, 1, 2)])
        cs.compact(tmp_path)
        assert len(newest(tmp_path).files) == 2
        assert cells(tmp_path) == list(range(32))

    def test_who_replaces_files_meanwhile_is_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        for i in range(3):
            options = {"format": kind} if i == 0 else {}
            cs.append(tmp_path, rows(10 * i, 10 * i + 10), **options, **width(kind))
        cs.compact(tmp_path, shard_bytes=2 * (tmp_path / members(tmp_path)[0]).stat().st_size + 64)
        real = manifest.publish
        done: list[int] = []

        def late(place: Any, generation: GenerationManifest) -> Any:
            if not done:
                done.append(1)
                current = newest(tmp_path)
                real(place, GenerationManifest(current.generation + 1, "other", current.files[:1], 20, current.schema,
                                               format=kind))  # fmt: skip
            return real(place, generation)

        before = members(tmp_path)
        monkeypatch.setattr(manifest, "publish", late)
        with pytest.raises(CommitConflictError):
            cs.compact(tmp_path)
        assert members(tmp_path) == before  # what was merged went again

    def test_damage_is_told_and_changes_nothing(self, tmp_path: Path, kind: str) -> None:
        for i in range(3):
            options = {"format": kind} if i == 0 else {}
            cs.append(tmp_path, rows(10 * i, 10 * i + 10), **options, **width(kind))
        path = tmp_path / members(tmp_path)[1]
        path.write_bytes(b"damaged!" + path.read_bytes()[8:])
        before = sorted(os.listdir(tmp_path))
        with pytest.raises(FormatError, match=path.name):
            cs.compact(tmp_path)
        assert sorted(os.listdir(tmp_path)) == before

    def test_shard_with_fewer_rows_than_its_manifest_says_is_no_source(
        self, tmp_path: Path, kind: str
    ) -> None:
        with_manifest(tmp_path, kind)
        (entry,) = newest(tmp_path).files
        cs.append(tmp_path, rows(30, 33))
        (tmp_path / entry.path).unlink()
        cs.store(rows(0, 20), tmp_path / entry.path, **width(kind)).close()
        before = sorted(os.listdir(tmp_path))
        with pytest.raises(FormatError, match="the manifest has 33"):
            cs.compact(tmp_path)
        assert sorted(os.listdir(tmp_path)) == before

    def test_nothing_to_compact(self, tmp_path: Path, kind: str) -> None:
        with pytest.raises(FileNotFoundError):
            cs.compact(tmp_path)
        cs.append(tmp_path, rows(0, 3), format=kind)
        before = sorted(os.listdir(tmp_path))
        cs.compact(tmp_path)
        assert sorted(os.listdir(tmp_path)) == before
        with pytest.raises(TypeError, match="shard_bytes"):
            cs.compact(tmp_path / members(tmp_path)[0], shard_bytes=10)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2), st.integers(1, 2)), max_size=12),
    st.integers(1, 20),
    st.booleans(),
)
def test_groups_are_disjoint_ascending_and_small(
    described: list[tuple[int, int, int]], limit: int, by_folder: bool
) -> None:
    files = [FileEntry(f"k={k}/{n}", size, records, 1) for n, (size, k, records) in enumerate(described)]
    groups = plan_groups(files, limit, by_folder=by_folder)
    seen = [n for group in groups for n in group.members]
    assert len(set(seen)) == len(seen)
    assert [group.first for group in groups] == sorted(group.first for group in groups)
    for group in groups:
        assert list(group.members) == sorted(group.members)
        assert group.first == group.members[0]
        assert sum(files[n].size for n in group.members) <= limit
        assert len({files[n].path.partition("/")[0] for n in group.members}) == 1
        assert len(group.members) > 1 or files[group.first].records > 1
        if not by_folder:
            assert list(group.members) == list(range(group.members[0], group.members[-1] + 1))


class TestEveryCrashPoint:
    """Whichever call a process dies in, the directory holds one of its two states, and the next writer can go on."""

    def run(self, monkeypatch: pytest.MonkeyPatch, prepare: Any, act: Any, check: Any) -> None:
        prepare()
        with monkeypatch.context() as patch:
            disk = Disk(patch)
            act()
            points = len(disk.log)
        assert points >= 5
        for point in range(points):
            prepare()
            with monkeypatch.context() as patch:
                Disk(patch, crash_at=point)
                with pytest.raises(Crash):
                    act()
            check()

    @pytest.mark.parametrize("kind", ENCODED)
    @pytest.mark.parametrize("manifests", [False, True])
    def test_append(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, manifests: bool
    ) -> None:
        numbers = iter(range(1000))
        directory = tmp_path

        def prepare() -> None:
            nonlocal directory
            directory = tmp_path / f"d{next(numbers)}"
            if manifests:
                with_manifest(directory, kind)
            else:
                cs.append(directory, rows(0, 30), format=kind)

        def check() -> None:
            found = cells(directory)
            assert found in (list(range(30)), list(range(33)))
            cs.append(directory, rows(40, 41))
            assert cells(directory) == [*found, 40]

        self.run(monkeypatch, prepare, lambda: cs.append(directory, rows(30, 33)), check)

    @pytest.mark.parametrize("kind", list(SUFFIXES))
    def test_compact(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        numbers = iter(range(1000))
        directory = tmp_path

        def prepare() -> None:
            nonlocal directory
            directory = tmp_path / f"d{next(numbers)}"
            for i in range(4):
                options = {"format": kind} if i == 0 else {}
                cs.append(directory, rows(10 * i, 10 * i + 10), **options, **width(kind))

        def check() -> None:
            assert cells(directory) == list(range(40))
            cs.append(directory, rows(40, 41))
            cs.compact(directory)
            assert cells(directory) == list(range(41))

        def act() -> None:
            size = (directory / members(directory)[0]).stat().st_size
            cs.compact(directory, shard_bytes=2 * size + 64)

        self.run(monkeypatch, prepare, act, check)


class TestObjectStore:
    @pytest.fixture
    def url(self) -> Any:
        fs = fsspec.filesystem("memory")
        yield "memory://encoded-shards/d"
        if fs.exists("/encoded-shards"):
            fs.rm("/encoded-shards", recursive=True)

    @pytest.mark.parametrize("kind", list(SUFFIXES))
    def test_shards_generations_and_compaction(self, url: str, kind: str) -> None:
        suffix = SUFFIXES[kind]
        assert cs.append(url, rows(0, 2), format=kind, **width(kind)) == f"{url}/shard_00000{suffix}"
        assert cs.append(url, rows(2, 4)) == f"{url}/shard_00001{suffix}"
        with cs.appender(url, shard_size=2) as appender:
            appender.write(rows(4, 7))
        assert cells(url) == list(range(7))
        assert cs.compact(url) == url
        found = newest_of(url)
        assert (found.generation, len(found.files), found.n_rows) == (2, 1, 7)
        cs.append(url, rows(7, 9))
        assert newest_of(url).generation == 3
        cs.compact(url)
        assert len(newest_of(url).files) == 1
        assert cells(url) == list(range(9))

    @pytest.mark.parametrize("kind", ENCODED)
    def test_lost_race_takes_the_object_away(
        self, url: str, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        for i in range(2):
            cs.append(url, rows(i, i + 1), **({"format": kind} if i == 0 else {}))
        cs.compact(url)
        before = fsspec.filesystem("memory").find("/encoded-shards")
        race(monkeypatch)
        with pytest.raises(CommitConflictError):
            cs.append(url, rows(2, 3))
        after = fsspec.filesystem("memory").find("/encoded-shards")
        assert set(after) - set(before) == {"/encoded-shards/d/_colstore-00000003.json"}


def newest_of(url: str) -> GenerationManifest:
    found = manifest.newest_generation(manifest.directory_location(url))
    assert found is not None
    return found


@pytest.mark.service
@pytest.mark.parametrize("kind", ENCODED)
@pytest.mark.parametrize("server", ["moto_s3", "seaweed_s3"])
def test_a_bucket(request: pytest.FixtureRequest, server: str, kind: str) -> None:
    running = request.getfixturevalue(server)
    options = running.options
    url = f"s3://{running.prefix()}/encoded"
    cs.append(url, rows(0, 2), format=kind, storage_options=options)
    with cs.appender(url, shard_size=2, storage_options=options) as appender:
        for i in range(3):
            appender.write(rows(2 + 2 * i, 4 + 2 * i))
    cs.compact(url, storage_options=options)
    cs.append(url, rows(8, 9), storage_options=options)
    assert cells(url, storage_options=options) == list(range(9))
    cs.compact(url, storage_options=options)
    found = manifest.newest_generation(locate(url, storage_options=options))
    assert found is not None
    assert (found.generation, len(found.files), found.n_rows) == (4, 1, 9)
    assert cells(url, storage_options=options) == list(range(9))
