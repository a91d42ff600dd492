"""Local files that change after they were opened, and files that travel to other processes."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from local_files import DATA, opened, write

from colstore_io.errors import FormatError, StaleDatasetError, TruncatedFileError
from colstore_io.storage import (
    LocalFile,
    current_token,
    reopen,
    resolve,
)
from colstore_io.storage import mapping as storage_mapping


def test_chmod_and_links_do_not_change_the_token(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    file = opened(path)
    os.chmod(path, 0o600)
    os.link(path, tmp_path / "b.cstore")
    assert current_token(resolve(path).locations[0]) == (len(DATA), file.token)
    assert not file.stat_changed()
    os.utime(path, ns=(1, 1))
    assert file.stat_changed()
    assert not file.inode_changed()


@pytest.mark.parametrize("mmap", [True, False])
def test_an_open_file_goes_on_with_the_old_contents_after_a_replacement(tmp_path: Path, mmap: bool) -> None:
    path = write(tmp_path / "a.cstore")
    file = opened(path, mmap=mmap)
    write(tmp_path / "new", DATA[::-1])
    os.replace(tmp_path / "new", path)
    assert bytes(file.read(1, 9)) == DATA[1:10]
    assert file.stat_changed()
    assert file.inode_changed()
    file.check_size(len(DATA))
    if mmap:
        array = file.map(100)
        assert array is not None
        assert array.tobytes() == DATA[:100]


def test_a_file_whose_descriptor_was_given_up_notices_a_replacement(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    file = opened(path)
    storage_mapping.descriptors.release(file)
    assert bytes(file.read(1, 9)) == DATA[1:10]
    storage_mapping.descriptors.release(file)
    write(tmp_path / "new", DATA[::-1])
    os.replace(tmp_path / "new", path)
    with pytest.raises(StaleDatasetError, match=r"a\.cstore was replaced"):
        file.read(1, 9)
    os.remove(path)
    with pytest.raises(StaleDatasetError, match=r"a\.cstore was removed"):
        file.map(10)


def test_a_file_opened_here_may_grow(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    file = opened(path)
    token = file.token
    storage_mapping.descriptors.release(file)
    with open(path, "ab") as handle:
        handle.write(b"more")
    assert bytes(file.read(0, 10)) == DATA[:10]
    assert file.token == token
    assert file.size == len(DATA)


def test_a_file_cut_short_is_noticed_by_size_check_and_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    for release in (False, True):
        write(path)
        file = opened(path, mmap=False)
        file.check_size(len(DATA))
        if release:
            storage_mapping.descriptors.release(file)
        os.truncate(path, 1000)
        with pytest.raises(FormatError, match=r"a\.cstore"):
            file.check_size(len(DATA))
        file.check_size(1000)
        with pytest.raises(TruncatedFileError, match=r"a\.cstore"):
            file.read(990, 20)
        mapped = opened(path)
        os.truncate(path, 10)
        with pytest.raises(TruncatedFileError):
            mapped.map(1000)


def test_a_pickle_carries_no_data_and_reopens_without_a_look(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    file = opened(path, mmap=False)
    text = pickle.dumps(file)
    assert len(text) < 600
    os.rename(path, tmp_path / "away")
    copy = pickle.loads(text)  # nothing is asked yet
    os.rename(tmp_path / "away", path)
    assert (copy.size, copy.token, copy.spelling) == (file.size, file.token, file.spelling)
    assert copy.map(10) is None
    assert bytes(copy.read(3, 4)) == DATA[3:7]
    assert copy.io.requests == 1


@pytest.mark.parametrize("mmap", [True, False])
def test_a_reopened_file_compares_its_token_before_the_first_byte(tmp_path: Path, mmap: bool) -> None:
    path = write(tmp_path / "a.cstore")
    size, token = current_token(resolve(path).locations[0])
    with open(path, "ab") as handle:
        handle.write(b"more")
    copy = reopen(str(path), size=size, token=token, mmap=mmap)
    assert copy.stat_changed()
    with pytest.raises(StaleDatasetError, match=r"a\.cstore was changed"):
        copy.read(0, 1)
    if mmap:
        with pytest.raises(StaleDatasetError):
            copy.map(1)


@pytest.mark.parametrize("answer", [True, False])
def test_the_caller_decides_whether_a_changed_file_was_only_appended_to(tmp_path: Path, answer: bool) -> None:
    path = write(tmp_path / "a.cstore")
    size, token = current_token(resolve(path).locations[0])
    with open(path, "ab") as handle:
        handle.write(b"more")
    copy = reopen(str(path), size=size, token=token)
    assert isinstance(copy, LocalFile)
    asked: list[bytes] = []

    def only_appended(file: LocalFile) -> bool:
        asked.append(bytes(file.read(0, 8)))
        return answer

    copy.on_change = only_appended
    if answer:
        array = copy.map(100)
        assert array is not None
        assert bytes(copy.read(5, 5)) == DATA[5:10]
        assert copy.token == token
    else:
        for _ in range(2):
            with pytest.raises(StaleDatasetError, match="not only appended"):
                copy.read(5, 5)
    assert set(asked) == {DATA[:8]}
    assert len(asked) == (1 if answer else 2)


def test_a_reopened_file_on_another_inode_is_stale_whatever_the_caller_says(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    size, token = current_token(resolve(path).locations[0])
    write(tmp_path / "new")
    os.replace(tmp_path / "new", path)
    copy = reopen(str(path), size=size, token=token)
    assert isinstance(copy, LocalFile)
    copy.on_change = lambda file: True
    with pytest.raises(StaleDatasetError, match="replaced"):
        copy.read(0, 1)


# From Python 3.12 on a fork in a process with threads warns; that it works is what is tested.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_reads_what_the_parent_opened(tmp_path: Path) -> None:
    file = opened(write(tmp_path / "a.cstore"))
    array = file.map(1000)
    child = os.fork()
    if child == 0:
        good = array is not None and array.tobytes() == DATA[:1000] and bytes(file.read(5, 5)) == DATA[5:10]
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
