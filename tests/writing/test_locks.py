"""One writer at a time: locks of files and directories (cstore.md 10)."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from colstore_io.errors import WriterLockedError
from colstore_io.writing.locks import (
    DIRECTORY_LOCK_NAME,
    DirectoryLock,
    lock_exclusive_nonblocking,
    open_locked,
)
from colstore_io.writing.merging import open_sources
from colstore_io.writing.writer import Writer

fcntl = pytest.importorskip("fcntl", reason="Windows locks by msvcrt")

TRY_UPDATE = """
import sys, numpy as np
from colstore_io.writing.writer import Writer
try:
    Writer(sys.argv[1], "update").close()
except OSError as exc:
    print(type(exc).__name__, exc)
else:
    print("granted")
"""


def other_process(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


@pytest.fixture
def some_file(tmp_path: Path) -> str:
    path = str(tmp_path / "file.cstore")
    with Writer(path) as writer:
        writer.write({"x": np.arange(3)})
    return path


def test_second_lock_is_refused_with_an_os_error(some_file: str) -> None:
    with open_locked(some_file), pytest.raises(OSError, match="another writer holds the lock") as info:
        open_locked(some_file)
    assert isinstance(info.value, WriterLockedError)
    assert isinstance(info.value, BlockingIOError)
    assert info.value.errno == errno.EWOULDBLOCK


def test_lock_is_free_again_after_release(some_file: str) -> None:
    for _ in range(2):
        file = open_locked(some_file)
        file.release()
        file.release()
        assert file.closed


def test_lock_keeps_other_processes_out(some_file: str) -> None:
    with Writer(some_file, "update"):
        assert "another writer holds the lock" in other_process(TRY_UPDATE, some_file)
    assert other_process(TRY_UPDATE, some_file) == "granted"


@pytest.mark.parametrize("code", [524, errno.EOPNOTSUPP, errno.ENOLCK])
def test_file_system_without_locks_warns_and_goes_on(
    some_file: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(fd: int, operation: int) -> None:
        raise OSError(code, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(RuntimeWarning, match="not supported"):
        file = open_locked(some_file)
    file.release()


def test_unexpected_error_of_the_lock_call_is_raised_and_leaks_no_descriptor(
    some_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, operation: int) -> None:
        raise OSError(errno.EACCES, "denied")

    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="denied"):
        open_locked(some_file)
    if before is not None:
        assert set(os.listdir("/proc/self/fd")) == before


def test_contention_is_reported_with_the_lock_call_alone(some_file: str) -> None:
    with open(some_file, "rb") as a, open(some_file, "rb") as b:
        assert lock_exclusive_nonblocking(a.fileno())
        with pytest.raises(BlockingIOError):
            lock_exclusive_nonblocking(b.fileno())


def test_lock_on_a_file_that_was_renamed_over_is_not_trusted(
    some_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between open and lock another writer renames a new file over the name: the new file is what gets locked."""
    replacement = tmp_path / "new.cstore"
    replacement.write_bytes(b"new")
    real = fcntl.flock
    renamed = []

    def flock(fd: int, operation: int) -> None:
        if not renamed:
            renamed.append(os.fstat(fd).st_ino)
            os.replace(replacement, some_file)
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with open_locked(some_file) as file:
        assert os.fstat(file.fd).st_ino == os.stat(some_file).st_ino != renamed[0]
        assert file.is_current()


def test_lock_on_a_file_that_is_gone_is_file_not_found(
    some_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def flock(fd: int, operation: int) -> None:
        if os.path.exists(some_file):
            os.unlink(some_file)
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(FileNotFoundError):
        open_locked(some_file)


def test_directory_lock_is_an_empty_file_that_stays(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        with DirectoryLock(str(tmp_path)):
            with pytest.raises(WriterLockedError):
                DirectoryLock(str(tmp_path))
            other_process(
                "import sys; from colstore_io.writing.locks import *; " + TRY_DIRECTORY, str(tmp_path)
            )
    finally:
        os.umask(old)
    lock = tmp_path / DIRECTORY_LOCK_NAME
    assert lock.read_bytes() == b""
    assert stat.S_IMODE(lock.stat().st_mode) == 0o640
    DirectoryLock(str(tmp_path)).release()


TRY_DIRECTORY = """
try:
    DirectoryLock(sys.argv[1])
except OSError:
    pass
else:
    raise SystemExit("granted")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_does_not_release_the_lock_of_its_parent(some_file: str) -> None:
    with Writer(some_file, "update") as writer:
        writer.write({"x": np.arange(2)})
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    writer.write({"x": np.arange(1)})
                except ValueError:  # the writer is the parent's
                    del writer
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(WriterLockedError):
            open_locked(some_file)
        writer.write({"x": np.arange(4)})
    with Writer(some_file, "update") as again:
        assert again.n_records == 3
        assert len(again) == 9


def test_of_two_writers_of_a_new_name_the_last_one_has_it(tmp_path: Path) -> None:
    path = tmp_path / "new.cstore"
    first, second = Writer(path, "recreate"), Writer(path, "recreate")
    first.write({"x": np.arange(3)})
    second.write({"x": np.arange(5)})
    first.commit()
    with pytest.raises(WriterLockedError):  # now there is a file, and the first one has it locked
        second.commit()
    first.close()
    assert len(open_sources([path])[0].meta.record_rows) == 1
    second.close()
    assert open_sources([path])[0].meta.n_rows == 5
    assert [name for name in os.listdir(tmp_path) if name.endswith(".tmp")] == []
