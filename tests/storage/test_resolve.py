"""Which files a path of this machine names: patterns, directories, objects of fsspec."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path

import fsspec
import pytest
from local_files import write

from colstore_io.storage import (
    current_token,
    list_names,
    open_file,
    resolve,
)


def test_a_path_is_a_file_with_its_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.cstore")
    monkeypatch.chdir(tmp_path)
    found = resolve("a.cstore")
    assert found.kind == "file"
    (location,) = found.locations
    assert location.spelling == "a.cstore"
    assert location.url == location.local_path == str(tmp_path / "a.cstore")
    assert resolve(f"file://{tmp_path}/a.cstore").locations[0].local_path == location.local_path


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for spelling in ("gone.cstore", "gone_*.cstore"):
        with pytest.raises(FileNotFoundError, match="gone"):
            resolve(str(tmp_path / spelling))
    with pytest.raises(FileNotFoundError):
        resolve(tmp_path / "a.cstore" / "b")
    with pytest.raises(FileNotFoundError):
        resolve("a\0b")


def test_a_pattern_gives_its_files_in_natural_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("run_10.cstore", "run_2.cstore", "run_1.cstore", "other.cstore", ".run_3.cstore"):
        write(tmp_path / "d" / name)
    monkeypatch.chdir(tmp_path)
    found = resolve("d/run_*.cstore")
    assert found.kind == "pattern"
    assert [item.spelling for item in found.locations] == [
        "d/run_1.cstore",
        "d/run_2.cstore",
        "d/run_10.cstore",
    ]
    assert [item.spelling for item in resolve("d/run_?.cstore").locations] == [
        "d/run_1.cstore",
        "d/run_2.cstore",
    ]
    assert [item.spelling for item in resolve("d/run_[12].cstore").locations] == [
        "d/run_1.cstore",
        "d/run_2.cstore",
    ]


def test_two_stars_match_folders_of_any_depth(tmp_path: Path) -> None:
    for name in ("a.cstore", "x/b.cstore", "x/y/c.cstore", "x/y/c.txt"):
        write(tmp_path / name)
    found = resolve(f"{tmp_path}/**/*.cstore")
    assert [item.spelling.removeprefix(f"{tmp_path}/") for item in found.locations] == [
        "a.cstore",
        "x/b.cstore",
        "x/y/c.cstore",
    ]


@pytest.mark.parametrize(
    "name", ["run[1].cstore", "run*.cstore", "what?.cstore", "a b.cstore", "ü²٣.cstore", "a::b.cstore"]
)
def test_what_is_there_literally_wins_over_a_pattern(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    write(tmp_path / "run1.cstore", b"other")
    found = resolve(str(tmp_path / name))
    assert found.kind == "file"
    assert [item.local_path for item in found.locations] == [str(tmp_path / name)]


def test_a_path_object_is_never_a_pattern(tmp_path: Path) -> None:
    write(tmp_path / "run1.cstore")
    with pytest.raises(FileNotFoundError):
        resolve(tmp_path / "run*.cstore")


@pytest.mark.parametrize("name", ["plain", "data[1]", "all*", "what?"])
def test_a_directory_lists_its_members_without_globbing(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    for member in ("s_10.cstore", "s_9.cstore", "_x.cstore", ".s.cstore", "s_9.cstore.crc", "notes.txt"):
        write(folder / member)
    write(folder / "plain_folder" / "no.cstore")
    write(folder / "year=2" / "k=1" / "a.cstore")
    write(folder / "year=10" / "a.cstore")
    write(folder / "_colstore-00000001.json", b"{}")
    (folder / "folder.cstore").mkdir()
    found = resolve(str(folder))
    assert found.kind == "directory"
    assert found.root is not None
    assert found.root.local_path == str(folder)
    assert [item.spelling.removeprefix(f"{folder}/") for item in found.locations] == [
        "s_9.cstore",
        "s_10.cstore",
        "year=2/k=1/a.cstore",
        "year=10/a.cstore",
    ]
    assert [Path(item.path).name for item in found.hidden] == ["_colstore-00000001.json", "_x.cstore"]


def test_members_of_a_flat_directory_are_those_of_any_other(tmp_path: Path) -> None:
    flat, nested = tmp_path / "flat", tmp_path / "nested"
    for folder in (flat, nested):
        for name in ("s_9.cstore", "s_10.cstore", "s_02.cstore", "_colstore-00000001.json", ".s.cstore"):
            write(folder / name)
        for name in ("a.crc", "notes.txt", "_SUCCESS"):
            write(folder / name)
        (folder / "other.cstore").mkdir()
        (folder / "s_3.cstore").symlink_to(folder / "s_9.cstore")
    (nested / "key=1").mkdir()  # looked into, and empty
    one, other = resolve(str(flat)), resolve(str(nested))
    assert one.kind == other.kind == "directory"
    assert [item.url.replace(str(flat), str(nested)) for item in one.locations] == [
        item.url for item in other.locations
    ]
    assert [Path(item.spelling).name for item in one.locations] == [
        "s_02.cstore",
        "s_3.cstore",
        "s_9.cstore",
        "s_10.cstore",
    ]
    assert [item.path.replace(str(flat), str(nested)) for item in one.hidden] == [
        item.path for item in other.hidden
    ]
    assert [item.local_path for item in one.locations] == [item.path for item in one.locations]


def test_an_empty_directory_has_no_members(tmp_path: Path) -> None:
    assert resolve(tmp_path).locations == ()


def test_two_formats_in_a_directory_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.cstore")
    write(tmp_path / "b.abcd")
    with pytest.raises(ValueError, match=r"\.abcd, \.cstore"):
        resolve(tmp_path)


def test_a_pattern_over_a_dataset_skips_what_is_no_member(tmp_path: Path) -> None:
    for name in ("a.cstore", "_colstore-00000001.json", "a.cstore.crc"):
        write(tmp_path / name)
    assert [item.spelling for item in resolve(f"{tmp_path}/*").locations] == [f"{tmp_path}/a.cstore"]
    assert len(resolve(f"{tmp_path}/_*").locations) == 1


def test_what_is_no_path_is_refused(tmp_path: Path) -> None:
    for value in (b"bytes are contents", 3, None, io.BytesIO(b""), ["a"]):
        with pytest.raises(TypeError):
            resolve(value)
    with pytest.raises(TypeError):
        resolve("x", filesystem="file")
    with pytest.raises(ValueError, match="nosuchprotocol"):
        resolve("nosuchprotocol://x")


def test_special_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.cstore")
    with pytest.raises(OSError, match="regular"):
        resolve(tmp_path / "pipe.cstore")


def test_fsspec_objects_name_their_file(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a[1].cstore"))
    waiting = fsspec.open(f"file://{path}", expand=False)
    assert resolve(waiting).locations[0].local_path == path
    with waiting as handle:
        assert resolve(handle).locations[0].local_path == path
    with pytest.raises(ValueError, match="compressed"):
        resolve(fsspec.open(f"file://{path}.gz", compression="gzip"))


def test_a_filesystem_of_the_caller_is_used(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    found = resolve(str(path), filesystem=fsspec.filesystem("file"))
    assert found.locations[0].local_path == str(path)


def test_a_listing_has_names_sizes_and_tokens(tmp_path: Path) -> None:
    for name in ("b_10.cstore", "b_2.cstore", ".lock", "_colstore-00000001.json"):
        write(tmp_path / name, b"123")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    root = resolve(tmp_path).root
    assert root is not None
    entries = list_names(root)
    assert [entry.name for entry in entries] == [
        ".lock",
        "_colstore-00000001.json",
        "b_2.cstore",
        "b_10.cstore",
    ]
    for entry in entries:
        location = root.child(entry.name)
        assert current_token(location) == (3, entry.token)
        assert location.parent().local_path == str(tmp_path)


def test_a_pipe_among_the_members_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.cstore")
    (location,) = resolve(tmp_path).locations
    with pytest.raises(OSError, match="regular"):
        open_file(location)


def test_a_link_to_itself_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "loop.cstore").symlink_to("loop.cstore")
    (location,) = resolve(tmp_path).locations
    with pytest.raises(OSError, match="loop"):
        open_file(location)


def test_a_pickled_location_is_small_and_the_same(tmp_path: Path) -> None:
    (location,) = resolve(write(tmp_path / "a.cstore")).locations
    text = pickle.dumps(location)
    assert len(text) < 100 + 2 * len(str(tmp_path / "a.cstore"))
    assert pickle.loads(text) == location
