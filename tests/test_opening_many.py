"""Opening many files: what is done once for all of them, and that it finds the same as opening each alone."""

from __future__ import annotations

import os
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import colstore_io as cs
from colstore_io import storage
from colstore_io.formats.cstore import manifest, reader
from colstore_io.storage import mapping

N_FILES = 12


def facts(table):
    return [
        (
            meta.path, meta.layout, meta.columns, meta.schema.names, meta.record_rows.tolist(),
            meta.body_start.tolist(), meta.committed_end, meta.fingerprint, meta.stats_offset, meta.file_size,
            meta.extra, meta.counters, meta.manifest_crc32, meta.n_rows, meta.n_records,
            None if meta.statistics is None else {k: v.tolist() for k, v in meta.statistics.minimum.items()},
        )
        for meta in table.source.metas
    ]  # fmt: skip


@pytest.fixture(params=["each", "block"], autouse=True)
def road(request, monkeypatch):
    """Few files are opened one by one, many as one block: everything here holds on both roads."""
    if request.param == "block":
        monkeypatch.setattr(storage, "_MANY_FILES", 1)
        monkeypatch.setattr(mapping.descriptors, "capacity", 1)
    return request.param


@pytest.fixture
def alike_files(tmp_path):
    paths = []
    for number in range(N_FILES):
        path = tmp_path / f"alike{number}.cstore"
        cs.store({"a": np.arange(3 + number % 2) + number}, path).close()
        paths.append(str(path))
    return paths


@pytest.fixture
def files(tmp_path):
    paths = []
    for number in range(N_FILES):
        path = tmp_path / f"p{number}.cstore"
        rows = (3, 3, 0, 5)[number % 4]
        data = {"a": np.arange(rows) + number, "b": np.ones(rows, "f4")}
        if number == 5:  # another order of columns, so another manifest
            data = dict(reversed(data.items()))
        cs.store(data, path, statistics=number % 3 == 0).close()
        if number == 7:
            with cs.update(path) as writer:
                writer.write(data)
        paths.append(str(path))
    return paths


def test_files_alike_are_read_as_each_alone_would_be(files, monkeypatch):
    with cs.open(files) as table:
        together, values = facts(table), table["a"].array()
    monkeypatch.setattr(reader, "_ALIKE_FROM", 10**9)
    with cs.open(files) as table:
        assert facts(table) == together
        np.testing.assert_array_equal(table["a"].array(), values)
    alone = []
    for path in files:
        with cs.open(path) as table:
            alone += facts(table)
    assert alone == together


def test_equal_manifests_are_parsed_once(files, monkeypatch):
    parsed = []
    original = manifest.parse_manifest
    monkeypatch.setattr(
        "colstore_io.formats.cstore.header.parse_manifest",
        lambda text, **more: (parsed.append(text), original(text, **more))[1],
    )
    cs.open(files).close()
    assert len(parsed) == len(set(parsed)) == 2


def test_a_list_of_files_is_opened_without_asking_for_each(files, monkeypatch):
    asked = []
    original = os.stat
    monkeypatch.setattr(
        os, "stat", lambda path, *rest, **more: (asked.append(path), original(path, *rest, **more))[1]
    )
    with cs.open(files) as table:
        assert table.io.requests == N_FILES  # a head each: the footers lie in them
    assert [path for path in asked if str(path).endswith(".cstore")] == []


@pytest.mark.parametrize("spelled", ["pattern", "directory", "relative", "repeated", "pathlike"])
def test_names_that_are_no_plain_files_are_resolved_as_ever(files, tmp_path, monkeypatch, spelled):
    folder = tmp_path / "folder.cstore"
    folder.mkdir()
    cs.store({"a": np.arange(2), "b": np.ones(2, "f4")}, folder / "x.cstore").close()
    monkeypatch.chdir(tmp_path)
    given = {
        "pattern": [str(tmp_path / "p[12].cstore"), files[0]],
        "directory": [str(folder), files[0]],
        "relative": ["p1.cstore", "./p2.cstore", "folder.cstore/../p0.cstore"],
        "repeated": [files[0], files[0]],
        "pathlike": [tmp_path / "p1.cstore", files[0]],
    }[spelled]
    with cs.open(given) as table:
        expected = {"relative": 3}.get(spelled, 3 if spelled == "pattern" else 2)
        assert len(table.paths) == expected
        assert table.n_rows == sum(meta.n_rows for meta in table.source.metas)
        assert all(os.path.exists(path) for path in table.paths)


def test_a_missing_file_is_named(files, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.cstore"):
        cs.open([*files, str(tmp_path / "gone.cstore")])


def sealed(head: bytearray) -> bytearray:
    head[32:36] = struct.pack("<I", zlib.crc32(head[8:32]))
    return head


@pytest.mark.parametrize(
    "damage",
    [
        "magic",
        "counters",
        "manifest",
        "rows",
        "record magic",
        "record index",
        "record crc",
        "cut",
        "negative",
    ],
)
def test_damage_in_one_of_many_is_found_and_named(files, damage, monkeypatch):
    path = files[8]
    data = bytearray(Path(path).read_bytes())
    record = 128 + data[128:].index(b"REC\x01")
    if damage == "magic":
        data[0] ^= 1
    elif damage == "counters":
        data[9] ^= 1
    elif damage == "manifest":
        data[100] ^= 1
    elif damage == "rows":
        data[16:24] = struct.pack("<q", 4)
        sealed(data)
    elif damage == "record magic":
        data[record] ^= 1
    elif damage in ("record index", "record crc"):
        data[record + (4 if damage == "record index" else 28)] ^= 1
    elif damage == "cut":
        data = data[: record + 40]
    else:
        data[16:24] = struct.pack("<q", -1)
        data[record + 12 : record + 20] = struct.pack("<q", -1)
        data[record + 28 : record + 32] = struct.pack("<I", zlib.crc32(data[record : record + 28]))
        sealed(data)
    Path(path).write_bytes(data)
    with pytest.raises(cs.FormatError) as together:
        cs.open(files)
    monkeypatch.setattr(reader, "_ALIKE_FROM", 10**9)
    with pytest.raises(cs.FormatError) as alone:
        cs.open(files)
    assert str(together.value) == str(alone.value)
    assert "p8.cstore" in str(alone.value)


def test_a_directory_without_manifest_is_listed_once(files, tmp_path, monkeypatch):
    listed = []
    for name in ("listdir", "scandir"):
        original = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda path, original=original: (listed.append(path), original(path))[1]
        )
    with cs.open(tmp_path) as table:
        assert len(table.paths) == N_FILES
    assert len(listed) == 1


def test_the_first_file_costs_no_round_of_its_own(files):
    import fsspec

    store = fsspec.filesystem("memory")
    for number in range(6):  # headers far longer than what an open fetches of a file
        data = {f"{'column' * 20}{i}": np.arange(3) for i in range(500)}
        store.pipe_file(f"/wide/p{number}.cstore", encoded(data))
    with cs.open("memory://wide/") as table:
        assert table.io.requests == 2 * 6
    with cs.open("memory://wide/") as table:
        assert table.n_rows == 18


def encoded(data):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.cstore"
        cs.store(data, path).close()
        return path.read_bytes()


class TestBlock:
    """Files of equal columns, without statistics: no object for a file before somebody asks for it."""

    @pytest.fixture(autouse=True)
    def only_blocks(self, road):
        if road != "block":
            pytest.skip("one road is enough")

    def test_opening_makes_no_object_for_most_files(self, alike_files):
        with cs.open(alike_files) as table:
            assert isinstance(table.source.files, storage.LocalFiles)
            before = table.source.files.made()
            assert len(before) <= 1  # the model of the others
            assert len(table) == sum(3 + number % 2 for number in range(N_FILES))
            assert table.source.files.made() == before

    def test_values_and_metadata_are_those_of_each_file(self, alike_files):
        with cs.open(alike_files) as table:
            expected = np.concatenate([np.arange(3 + n % 2) + n for n in range(N_FILES)])
            np.testing.assert_array_equal(table["a"].array(), expected)
            together = facts(table)
        alone = []
        for path in alike_files:
            with cs.open(path) as table:
                alone += facts(table)
        assert together == alone

    def test_a_pattern_takes_the_same_road(self, alike_files, tmp_path):
        with cs.open(str(tmp_path / "alike*.cstore")) as table:
            assert isinstance(table.source.files, storage.LocalFiles)
            assert len(table.paths) == N_FILES

    def test_a_file_replaced_after_the_open_is_noticed(self, alike_files):
        table = cs.open(alike_files)
        cs.store({"a": np.arange(9)}, alike_files[4], mode="recreate").close()
        with pytest.raises(cs.StaleDatasetError, match="alike4"):
            table["a"].array()

    def test_a_file_appended_to_after_the_open_is_read_as_it_was(self, alike_files):
        table = cs.open(alike_files)
        before = len(table)
        with cs.update(alike_files[4]) as writer:
            writer.write({"a": np.arange(9)})
        assert len(table["a"].array()) == before

    def test_a_closed_dataset_has_closed_files(self, alike_files):
        table = cs.open(alike_files)
        files = table.source.files
        table.close()
        with pytest.raises(ValueError, match="closed"):
            files[3].read(0, 8)

    def test_pickles_and_slices(self, alike_files):
        with cs.open(alike_files) as table:
            again = pickle.loads(pickle.dumps(table))
            np.testing.assert_array_equal(again["a"].array(), table["a"].array())
            part = table.source.restrict(2, 5, ["a"])
            assert [file.spelling for file in part.files] == alike_files[2:5]
            assert table.source.files[-1].spelling == alike_files[-1]
            with pytest.raises(IndexError):
                table.source.files[N_FILES]

    def test_one_other_file_sends_all_to_the_general_reader(self, alike_files, tmp_path):
        other = tmp_path / "other.cstore"
        cs.store({"a": np.arange(2)}, other, statistics=True).close()
        with cs.open([*alike_files, str(other)]) as table:
            assert table.source.statistics[-1] is not None
            assert len(table["a"].array()) == len(table)

    def test_an_empty_file_is_refused_or_skipped(self, alike_files, tmp_path):
        (tmp_path / "empty.cstore").touch()
        paths = [*alike_files, str(tmp_path / "empty.cstore")]
        with pytest.raises(cs.FormatError, match=r"empty\.cstore"):
            cs.open(paths)
        with pytest.warns(RuntimeWarning, match="skipped"), cs.open(paths, on_empty_file="skip") as table:
            assert len(table["a"].array()) == len(table)

    def test_a_pipe_among_them_is_named(self, alike_files, tmp_path):
        pipe = tmp_path / "pipe.cstore"
        os.mkfifo(pipe)
        with pytest.raises(OSError, match=r"pipe\.cstore"):
            cs.open([*alike_files, str(pipe)])


@pytest.fixture
def columns_folder(tmp_path):
    folder = tmp_path / "columns"
    folder.mkdir()
    for number in range(N_FILES):
        data = {"a": np.arange(4 + number % 3) + number, "s": [f"{number}"] * (4 + number % 3)}
        cs.store(data, folder / f"p{number}.abcd", row_group_size=2).close()
    return folder


def columns_facts(table):
    return [
        (
            meta.path, meta.layout, meta.schema.names, meta.record_rows.tolist(), meta.body_start.tolist(),
            meta.committed_end, meta.fingerprint, meta.file_size,
            {name: values.tolist() for name, values in meta.statistics.minimum.items()},
        )
        for meta in table.source.metas
    ]  # fmt: skip


def test_columns_files_of_a_directory_are_opened_by_one_call_each(columns_folder, monkeypatch):
    alone = []
    for number in range(N_FILES):
        with cs.open(str(columns_folder / f"p{number}.abcd")) as table:
            alone += columns_facts(table)
    heads = []
    original = storage.open_many
    monkeypatch.setattr(storage, "open_many", lambda *a, **k: (heads.append(a), original(*a, **k))[1])
    with cs.open(str(columns_folder)) as table:
        assert columns_facts(table) == alone
        assert len({id(meta.schema) for meta in table.source.metas}) == 1
        assert table["a"].array().sum() == sum(
            sum(range(number, number + 4 + number % 3)) for number in range(N_FILES)
        )
    assert heads == []


@pytest.mark.parametrize("damage", ["cut", "empty", "magic"])
def test_a_columns_file_that_is_not_sound_is_named(columns_folder, damage):
    path = columns_folder / "p7.abcd"
    content = path.read_bytes()
    path.write_bytes({"cut": content[:-9], "empty": b"", "magic": b"XXXX" + content[4:]}[damage])
    with pytest.raises(
        cs.FormatError if damage != "magic" else (cs.FormatError, ValueError), match=r"p7\.abcd"
    ):
        cs.open(str(columns_folder))


def test_columns_files_of_other_columns_are_refused(columns_folder):
    cs.store({"b": np.arange(3)}, columns_folder / "p7.abcd", mode="recreate").close()
    with pytest.raises(cs.SchemaMismatchError, match=r"p7\.abcd"):
        cs.open(str(columns_folder))


def test_manifests_are_understood_once_and_warn_each_time(tmp_path, monkeypatch):
    understood = []
    original = reader._understand
    monkeypatch.setattr(reader, "_kept_tables", {})
    monkeypatch.setattr(reader, "_understand", lambda *a: (understood.append(a), original(*a))[1])
    cs.store({"only": np.arange(3.0)}, tmp_path / "one.cstore").close()
    cs.store({"only": np.arange(5.0)}, tmp_path / "two.cstore").close()
    understood.clear()
    reader._kept_tables.clear()
    for name in ("one", "two", "one"):
        with cs.open(str(tmp_path / f"{name}.cstore")) as table:
            assert table.columns == ["only"]
    assert len(understood) == 1
    with cs.create(tmp_path / "noted.cstore", attrs={"by": ["me"]}) as writer:
        writer.write({"only": np.arange(2.0)})
    understood.clear()
    for _ in range(2):  # attributes may be changed by whoever has them
        cs.open(str(tmp_path / "noted.cstore")).close()
    assert len(understood) == 2
