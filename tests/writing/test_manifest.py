"""Generation manifests: what they say, who wins, what vacuum deletes (architecture.md 7)."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import colstore_io
from colstore_io import storage
from colstore_io.errors import CommitConflictError, FormatError, UnsupportedFeatureError
from colstore_io.storage import Location, locate
from colstore_io.writing import manifest
from colstore_io.writing.appender import Appender
from colstore_io.writing.locks import DIRECTORY_LOCK_NAME
from colstore_io.writing.manifest import newest_generation, next_number, publish, read_generation, vacuum
from colstore_io.writing.manifest_json import (
    FileEntry,
    GenerationManifest,
    generation_of_name,
    manifest_name,
    new_commit_id,
)
from colstore_io.writing.manifest_layout import file_entry, schema_objects, shard_meta
from colstore_io.writing.merging import open_sources
from colstore_io.writing.shards import append
from colstore_io.writing.writer import Writer, store_file


def generation(number: int, *names: str, **members: Any) -> GenerationManifest:
    files = tuple(FileEntry(name, 100, 1, 5) for name in names)
    members.setdefault("n_rows", 5 * len(files))
    return GenerationManifest(number, new_commit_id(), files, **members)


def place(directory: Path) -> Location:
    return locate(str(directory))


class TestText:
    def test_members_stand_in_their_order_and_the_checksum_covers_them_sorted(self) -> None:
        made = generation(3, "a.cstore", schema=({"name": "x", "dtype": "<i8"},), attrs={"t": 1.5})
        parsed = json.loads(made.to_bytes())
        assert list(parsed) == [
            *("colstore_manifest", "generation", "commit_id", "kind", "format", "n_rows", "schema"),
            *("partition_on", "files", "attrs", "dims", "variables", "crc32"),
        ]
        stored = parsed.pop("crc32")
        assert stored == zlib.crc32(json.dumps(parsed, sort_keys=True).encode())
        assert GenerationManifest.from_bytes(made.to_bytes(), path="_colstore-00000003.json") == made

    @given(
        st.dictionaries(
            st.text(max_size=5), st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.text(max_size=5))
        )
    )
    def test_attributes_survive(self, attrs: dict[str, Any]) -> None:
        made = generation(1, attrs=attrs)
        back = GenerationManifest.from_bytes(made.to_bytes(), path="x")
        assert repr(back.attrs) == repr(attrs)

    def test_names_have_exactly_eight_digits(self) -> None:
        assert manifest_name(3) == "_colstore-00000003.json"
        assert generation_of_name("_colstore-00000003.json") == 3
        for name in (
            "_colstore-3.json",
            "_colstore-000000003.json",
            "_colstore-0000000².json",
            "x_colstore-00000003.json",
        ):
            assert generation_of_name(name) is None
        with pytest.raises(ValueError):
            manifest_name(10**8)

    @pytest.mark.parametrize(
        "change",
        [
            {"colstore_manifest": 2},
            {"colstore_manifest": True},
            {"generation": 4},
            {"generation": "3"},
            {"generation": -1},
            {"kind": "other"},
            {"commit_id": 5},
            {"format": None},
            {"n_rows": 4},
            {"n_rows": -1},
            {"n_rows": 2**70},
            {"schema": {}},
            {"schema": [{"name": "x"}]},
            {"partition_on": [1]},
            {"files": {}},
            {"files": [5]},
            {"attrs": []},
            *(
                {"files": [{"path": path, "size": 1, "records": 1, "rows": 5}]}
                for path in ("", "/x", "../x", "a/../x", "a//b")
            ),
            *(
                {"files": [{"path": path, "size": 1, "records": 1, "rows": 5}]}
                for path in ("a\\b", "C:/x", "./x", "a\0", 5)
            ),
            {"files": [{"path": "a", "size": 1, "records": -1, "rows": 5}]},
            {"files": [{"path": "a", "size": 1.5, "records": 1, "rows": 5}]},
            {"files": [{"path": "a", "size": 1, "records": 1, "rows": 5, "layout": []}]},
        ],
    )
    def test_complete_text_that_says_what_it_may_not_is_refused(self, change: dict[str, Any]) -> None:
        members = json.loads(generation(3, "a.cstore").to_bytes())
        del members["crc32"]
        members.update(change)
        members["crc32"] = zlib.crc32(json.dumps(members, sort_keys=True).encode())
        with pytest.raises(FormatError):
            GenerationManifest.from_bytes(json.dumps(members).encode(), path="d/_colstore-00000003.json")

    def test_every_truncation_and_flip_is_refused(self) -> None:
        data = generation(3, "a.cstore").to_bytes()
        for end in range(len(data)):
            with pytest.raises(FormatError):
                GenerationManifest.from_bytes(data[:end], path="x")
        for position in range(len(data)):
            flipped = bytearray(data)
            flipped[position] ^= 0x01
            try:
                back = GenerationManifest.from_bytes(bytes(flipped), path="x")
            except FormatError:
                continue
            assert back == GenerationManifest.from_bytes(data, path="x")  # white space

    @pytest.mark.parametrize(
        "data", [b"", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000, b"null", b"{}"]
    )
    def test_hostile_texts_are_refused(self, data: bytes) -> None:
        with pytest.raises(FormatError):
            GenerationManifest.from_bytes(data, path="x")


class TestNewest:
    def test_newest_complete_generation_wins(self, tmp_path: Path) -> None:
        assert newest_generation(place(tmp_path)) is None
        assert newest_generation(place(tmp_path / "missing")) is None
        for number in (1, 2, 10):
            publish(place(tmp_path), generation(number, f"{number}.cstore"))
        (tmp_path / "_colstore-00000011.json").write_bytes(b'{"torn')
        (tmp_path / "_colstore-00000012.json").write_bytes(
            (tmp_path / "_colstore-00000010.json").read_bytes().replace(b"10.cstore", b"12.cstore")
        )
        newest = newest_generation(place(tmp_path))
        assert newest is not None
        assert newest.generation == 10
        assert next_number(place(tmp_path)) == 13

    def test_members_are_beside_the_manifest(self, tmp_path: Path) -> None:
        made = generation(1, "b.cstore", "k=1/a.cstore")
        location = publish(place(tmp_path), made)
        for where in (location, place(tmp_path)):
            paths = [member.local_path for member in manifest.member_locations(made, where)]
            assert paths == [str(tmp_path / "b.cstore"), str(tmp_path / "k=1" / "a.cstore")]
        assert read_generation(location) == made


NOT_UNDERSTOOD: list[dict[str, Any]] = [
    {"colstore_manifest": 2},
    {"colstore_manifest": "1"},
    {"kind": "other"},
    {"generation": 1},
    {"schema": {}},
    {"n_rows": 10**6},
    {"files": [{"path": "../x.cstore", "size": 1, "records": 1, "rows": 5}]},
    {"files": [{"path": 5, "size": 1, "records": 1, "rows": 5}]},
]


@pytest.mark.parametrize("change", NOT_UNDERSTOOD, ids=repr)
class TestCompleteButNotUnderstood:
    """Such a manifest is the newest generation, so falling back on an older one would be wrong (cstore.md 10.1)."""

    @pytest.fixture
    def directory(self, tmp_path: Path, change: dict[str, Any]) -> Path:
        """Generation 1 names part-0-a, generation 2, changed, part-1-b as well; both are old."""
        paths = [tmp_path / "part-0-a.cstore", tmp_path / "part-1-b.cstore"]
        for path in paths:
            store_file({"x": np.arange(5)}, path)
            os.utime(path, (0, 0))
        sources = open_sources(paths)
        schema = schema_objects(sources[0].meta)
        entries = [file_entry(s.meta, os.path.basename(s.meta.path), schema=schema) for s in sources]
        first = GenerationManifest(1, new_commit_id(), (entries[0],), 5, schema)
        publish(place(tmp_path), first)
        members = json.loads(first.successor([entries[1]]).to_bytes())
        del members["crc32"]
        members.update(change)
        members["crc32"] = zlib.crc32(json.dumps(members, sort_keys=True).encode())
        (tmp_path / "_colstore-00000002.json").write_text(json.dumps(members))
        return tmp_path

    def test_open_refuses_and_says_what_to_do(self, directory: Path) -> None:
        with pytest.raises(UnsupportedFeatureError, match=r"_colstore-00000002\.json.*ignore_manifest=True"):
            colstore_io.open(directory)
        with pytest.raises(UnsupportedFeatureError):
            colstore_io.open(directory / "_colstore-00000002.json")
        with colstore_io.open(directory / "_colstore-00000001.json") as older:
            assert len(older) == 5
        with colstore_io.open(directory, ignore_manifest=True) as everything:
            assert len(everything) == 10

    def test_vacuum_deletes_nothing(self, directory: Path) -> None:
        before = sorted(os.listdir(directory))
        for keep in (1, 2):
            with pytest.raises(UnsupportedFeatureError, match="_colstore-00000002"):
                vacuum(directory, older_than_seconds=0, keep=keep)
        assert sorted(os.listdir(directory)) == before

    def test_nothing_is_added(self, directory: Path) -> None:
        before = sorted(os.listdir(directory))
        with pytest.raises(UnsupportedFeatureError):
            append(directory, {"x": np.arange(2)})
        with pytest.raises(UnsupportedFeatureError):
            Appender(directory)
        for number in (2, 3):
            with pytest.raises(UnsupportedFeatureError):
                publish(place(directory), generation(number, "part-0-a.cstore"))
        assert sorted(name for name in os.listdir(directory) if name != DIRECTORY_LOCK_NAME) == before

    def test_one_that_appears_meanwhile_costs_no_rows(self, directory: Path) -> None:
        newest, aside = directory / "_colstore-00000002.json", directory / "aside"
        newest.rename(aside)
        before = sorted(name for name in os.listdir(directory) if name.endswith(".cstore"))
        appender = Appender(directory)
        appender.write({"x": np.arange(2)})
        aside.rename(newest)
        with pytest.raises(UnsupportedFeatureError):
            appender.flush()
        assert appender.pending_rows == 2
        assert sorted(name for name in os.listdir(directory) if name.endswith(".cstore")) == before
        newest.unlink()
        appender.close()
        assert len(before) + 1 == sum(name.endswith(".cstore") for name in os.listdir(directory))


class TestPublish:
    @pytest.fixture(params=["local", "memory"])
    def directory(self, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
        if request.param == "local":
            yield place(tmp_path)
            assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
            return
        import fsspec

        fs = fsspec.filesystem("memory")
        yield locate("memory://manifest/d")
        if fs.exists("/manifest"):
            fs.rm("/manifest", recursive=True)

    def test_second_publisher_gets_a_conflict(self, directory: Location) -> None:
        first, second = generation(1, "a.cstore"), generation(1, "b.cstore")
        publish(directory, first)
        with pytest.raises(CommitConflictError, match="another writer") as info:
            publish(directory, second)
        assert isinstance(info.value, FileExistsError)
        assert newest_generation(directory) == first

    def test_repeated_commit_of_the_same_is_a_success(self, directory: Location) -> None:
        made = generation(1, "a.cstore")
        for _ in range(2):
            publish(directory, made)
        assert newest_generation(directory) == made

    def test_error_after_arrival_is_a_success(
        self, directory: Location, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A request that arrived but whose answer was lost is read back and recognised."""
        for module, name in ((storage, "write_object"), (manifest, "write_small_file")):
            monkeypatch.setattr(module, name, failing_after(getattr(module, name)))
        made = generation(1, "a.cstore")
        publish(directory, made)
        assert newest_generation(directory) == made

    def test_error_before_arrival_is_raised(
        self, directory: Location, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*args: Any, **kwargs: Any) -> None:
            raise OSError(5, "lost")

        with monkeypatch.context() as patch:
            for module, name in ((storage, "write_object"), (manifest, "write_small_file")):
                patch.setattr(module, name, fail)
            with pytest.raises(OSError, match="lost"):
                publish(directory, generation(1, "a.cstore"))
        assert newest_generation(directory) is None

    def test_incomplete_manifest_of_that_number_is_a_conflict(self, tmp_path: Path) -> None:
        (tmp_path / "_colstore-00000001.json").write_bytes(b"{")
        with pytest.raises(CommitConflictError, match="incomplete"):
            publish(place(tmp_path), generation(1, "a.cstore"))
        assert (tmp_path / "_colstore-00000001.json").read_bytes() == b"{"


def failing_after(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        raise OSError(5, "the answer was lost")

    return call


PUBLISH_MANY = """
import sys
from colstore_io.errors import CommitConflictError
from colstore_io.writing.manifest import newest_generation, publish
from colstore_io.writing.manifest_json import FileEntry
from colstore_io.storage import locate
place, who = locate(sys.argv[1]), sys.argv[2]
won = 0
while won < 15:
    newest = newest_generation(place)
    try:
        publish(place, newest.successor([FileEntry(f"{who}-{won}.cstore", 100, 1, 1)]))
    except CommitConflictError:
        continue
    won += 1
"""


@pytest.mark.slow
def test_concurrent_publishers_lose_no_commit(tmp_path: Path) -> None:
    publish(place(tmp_path), generation(1))
    processes = [subprocess.Popen([sys.executable, "-c", PUBLISH_MANY, str(tmp_path), who]) for who in "ab"]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    newest = newest_generation(place(tmp_path))
    assert newest is not None
    assert newest.generation == 31
    assert sorted(entry.path for entry in newest.files) == sorted(
        f"{who}-{i}.cstore" for who in "ab" for i in range(15)
    )


class TestLayout:
    @pytest.mark.parametrize("lengths", [[3], [0], [5, 5, 5, 2], [1, 0, 7, 7, 7, 0]])
    @pytest.mark.parametrize("statistics", [False, True])
    def test_entry_says_what_the_header_says(
        self, tmp_path: Path, lengths: list[int], statistics: bool
    ) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path, statistics=statistics, column_attrs={"x": {"u": "m"}}) as writer:
            for n in lengths:
                writer.write({"x": np.arange(n, dtype="i2"), "s": np.array(["ab"] * n, "U2")})
        meta = open_sources([path])[0].meta
        made = GenerationManifest(
            1,
            "id",
            (file_entry(meta, "a.cstore", schema=schema_objects(meta)),),
            meta.n_rows,
            schema_objects(meta),
        )
        back = GenerationManifest.from_bytes(made.to_bytes(), path="x")
        told = shard_meta(back.files[0], back, path=meta.path)
        assert told is not None
        for name in ("layout", "columns", "committed_end", "fingerprint", "file_size"):
            assert getattr(told, name) == getattr(meta, name)
        assert told.schema.fields == meta.schema.fields
        np.testing.assert_array_equal(told.record_rows, meta.record_rows)
        np.testing.assert_array_equal(told.body_start, meta.body_start)
        assert (told.statistics is None) == (meta.statistics is None)
        if told.statistics is not None and meta.statistics is not None:
            for name, usable in meta.statistics.usable.items():
                np.testing.assert_array_equal(told.statistics.usable[name], usable)
                np.testing.assert_array_equal(told.statistics.maximum[name], meta.statistics.maximum[name])

    def test_file_with_other_column_objects_carries_its_own(self, tmp_path: Path) -> None:
        store_file({"x": [1]}, tmp_path / "a.cstore", column_attrs={"x": {"u": "m"}})
        meta = open_sources([tmp_path / "a.cstore"])[0].meta
        made = generation(1, schema=({"name": "x", "dtype": "<i8"},))
        entry = file_entry(meta, "a.cstore", schema=made.schema)
        told = shard_meta(entry, made, path="a.cstore")
        assert told is not None
        assert told.schema["x"].attrs == {"u": "m"}

    @pytest.mark.parametrize("name", ["layout_a", "layout_b_020"])
    def test_older_layouts(self, shared: Path, name: str) -> None:
        meta = open_sources([shared / "vectors" / "cstore" / "legacy" / f"{name}.cstore"])[0].meta
        made = generation(1, schema=schema_objects(meta))
        told = shard_meta(file_entry(meta, "a.cstore", schema=made.schema), made, path="a.cstore")
        assert told is not None
        np.testing.assert_array_equal(told.body_start, meta.body_start)
        assert told.committed_end == meta.committed_end

    @pytest.mark.parametrize(
        "change",
        [
            *(
                {"version": "Z"},
                {"rows": [[2**61, 1]]},
                {"rows": [[3, 2**61]]},
                {"rows": 5},
                {"rows": [[3]]},
                {"rows": [[-3, 1]]},
            ),
            *(
                {"begin": -1},
                {"begin": 2**65},
                {"end": None},
                {"end": 1},
                {"fingerprint": "zz"},
                {"fingerprint": 5},
            ),
            *({"columns": 5}, {"columns": [{}]}, {"columns": [{"name": "x", "dtype": "|O"}]}),
        ],
    )
    def test_entry_that_contradicts_itself_is_refused(self, tmp_path: Path, change: dict[str, Any]) -> None:
        store_file({"x": np.arange(3)}, tmp_path / "a.cstore")
        meta = open_sources([tmp_path / "a.cstore"])[0].meta
        made = generation(1, schema=schema_objects(meta))
        entry = file_entry(meta, "a.cstore", schema=made.schema)
        assert entry.layout is not None
        broken = dataclasses.replace(entry, layout={**entry.layout, **change})
        with pytest.raises(FormatError):
            shard_meta(broken, made, path="a.cstore")


class TestVacuum:
    OLD = 30 * 24 * 3600.0

    def fill(self, directory: Path, *names: str, age: float = OLD) -> None:
        for name in names:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"data")
            os.utime(path, (time.time() - age, time.time() - age))

    def test_only_old_unnamed_files_of_our_pattern_go(self, tmp_path: Path) -> None:
        self.fill(
            tmp_path,
            *(
                "part-00000-aa.cstore",
                "part-00001-bb.cstore",
                "k=1/part-00002-cc.cstore",
                "k=1/part-00003-dd.cstore",
            ),
            *(
                "other/part-00009-xx.cstore",
                "_part-1-x.cstore",
                ".part-1-x.cstore",
                "part-1.cstore",
                "part-x-y.cstore",
            ),
            "notes.txt",
        )
        self.fill(tmp_path, "part-00004-young.cstore", age=60)
        publish(place(tmp_path), generation(1, "part-00000-aa.cstore", "k=1/part-00002-cc.cstore"))
        before = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
        with pytest.warns(RuntimeWarning, match=r"part-1\.cstore, part-x-y\.cstore"):
            deleted = vacuum(tmp_path)
        assert sorted(deleted) == ["k=1/part-00003-dd.cstore", "part-00001-bb.cstore"]
        after = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
        assert after == before - set(deleted)

    def test_what_is_no_directory_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        (tmp_path / "empty").mkdir()
        with pytest.raises(FileNotFoundError, match="absent"):
            vacuum(tmp_path / "absent")
        with pytest.raises(NotADirectoryError, match="vacuum takes the directory"):
            vacuum(tmp_path / "file")
        with pytest.raises(FileNotFoundError):
            vacuum("memory://vacuum/absent")
        assert vacuum(tmp_path / "empty") == []

    def test_superseded_generations_are_kept_as_asked(self, tmp_path: Path) -> None:
        self.fill(tmp_path, *(f"part-0000{i}-a.cstore" for i in range(4)))
        for number in (1, 2, 3):
            publish(place(tmp_path), generation(number, f"part-0000{number}-a.cstore"))
        assert vacuum(tmp_path, keep=3) == ["part-00000-a.cstore"]
        assert vacuum(tmp_path, keep=2) == ["part-00001-a.cstore"]
        assert vacuum(tmp_path) == ["part-00002-a.cstore"]
        assert vacuum(tmp_path, older_than_seconds=0) == []
        assert len([name for name in os.listdir(tmp_path) if name.startswith("_colstore")]) == 3

    def test_directory_without_a_complete_manifest_is_left_alone(self, tmp_path: Path) -> None:
        self.fill(tmp_path, "part-00000-aa.cstore")
        (tmp_path / "_colstore-00000001.json").write_bytes(b"{")
        assert vacuum(tmp_path, older_than_seconds=0) == []
        assert (tmp_path / "part-00000-aa.cstore").exists()

    @pytest.mark.parametrize("options", [{"keep": 0}, {"keep": True}, {"older_than_seconds": -1}])
    def test_bad_arguments_are_refused(self, tmp_path: Path, options: dict[str, Any]) -> None:
        with pytest.raises((TypeError, ValueError), match=next(iter(options))):
            vacuum(tmp_path, **options)

    def test_object_store(self) -> None:
        import fsspec

        fs = fsspec.filesystem("memory")
        try:
            for name in ("part-0-a.cstore", "part-1-b.cstore", "k=1/part-2-c.cstore"):
                fs.pipe(f"/vacuum/d/{name}", b"data")
            publish(locate("memory://vacuum/d"), generation(1, "part-0-a.cstore"))
            assert vacuum("memory://vacuum/d") == []
            time.sleep(0.01)
            assert vacuum("memory://vacuum/d", older_than_seconds=0) == [
                "k=1/part-2-c.cstore",
                "part-1-b.cstore",
            ]
            assert fs.exists("/vacuum/d/part-0-a.cstore")
        finally:
            fs.rm("/vacuum", recursive=True)
