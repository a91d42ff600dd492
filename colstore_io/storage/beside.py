"""Small files that stand beside a local data file and help to read it; whoever has none loses nothing."""

from __future__ import annotations

import contextlib
import os
import stat as _stat
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .copies import CopiedFile
from .files import ByteFile, IOStats
from .local import LocalFile

__all__ = ["Beside", "LocalState", "beside_path", "listed_beside", "local_state", "open_beside"]

_LIST_FROM = 16
"""Files of one directory from which on it is listed: 1000 vain opens take 3 to 7 ms, a listing of 1000 names 0.5 ms."""

# A name may have become a named pipe, whose open must not wait.
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK


class LocalState(NamedTuple):
    """Which version of a local file was opened."""

    size: int
    modified_ns: int
    inode: int


class Beside:
    """A file beside another, open for reading. An error of the file system reads as no bytes."""

    def __init__(self, fd: int, size: int, io: IOStats) -> None:
        self._fd = fd
        self.size = size
        self._io = io

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes, never more than the file had when it was opened."""
        begin = time.perf_counter()
        length = max(0, min(length, self.size - offset))
        parts: list[bytes] = []
        try:
            while length and (part := os.pread(self._fd, length, offset)):
                parts.append(part)
                offset += len(part)
                length -= len(part)
        except OSError:
            return b""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._io.add(requests=1, bytes=len(data), seconds=time.perf_counter() - begin)
        return data


def local_state(file: ByteFile) -> LocalState | None:
    """Return the version that an opened file of this machine has; None for all other files."""
    if not isinstance(file, LocalFile) or isinstance(file, CopiedFile):
        return None
    parts = file.token.split(":")
    if len(parts) != 4 or parts[0] != "stat":
        return None
    return LocalState(int(parts[1]), int(parts[2]), int(parts[3]))


def beside_path(path: str, suffix: str) -> str:
    """Return the path ``.NAME<suffix>`` in the directory of `path`."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}{suffix}")


def _place_of(file: ByteFile) -> tuple[str, str] | None:
    """Return folder (with its slash) and name of a file of this machine. Cheap: it is asked for thousands."""
    if not isinstance(file, LocalFile) or isinstance(file, CopiedFile) or file.location is None:
        return None
    path = file.location.local_path
    if path is None:
        return None
    name = path.rpartition(os.sep)[2]
    return path[: len(path) - len(name)], name


@contextlib.contextmanager
def open_beside(file: ByteFile, suffix: str) -> Iterator[Beside | None]:
    """Open ``.NAME<suffix>`` beside a local file for a ``with`` block; None when there is no such regular file."""
    place = _place_of(file)
    try:
        fd = -1 if place is None else os.open(f"{place[0]}.{place[1]}{suffix}", _OPEN_FLAGS)
    except OSError:
        fd = -1
    if fd < 0:
        yield None
        return
    try:
        stat = os.fstat(fd)
        yield Beside(fd, stat.st_size, file.io) if _stat.S_ISREG(stat.st_mode) else None
    finally:
        os.close(fd)


def listed_beside(files: Sequence[ByteFile]) -> Callable[[ByteFile, str], bool]:
    """Return a function that tells whether a file may have another beside it, from one listing per directory.

    Directories of few files are not listed: then the answer is yes, and the open tells.
    """
    count: dict[str, int] = {}
    for file in files:
        place = _place_of(file)
        if place is not None:
            count[place[0]] = count.get(place[0], 0) + 1
    names: dict[str, set[str]] = {}
    for folder, n_files in count.items():
        if n_files >= _LIST_FROM:
            try:
                names[folder] = set(os.listdir(folder or os.curdir))
            except OSError:
                names[folder] = set()

    def exists(file: ByteFile, suffix: str) -> bool:
        place = _place_of(file)
        if place is None:
            return False
        folder, name = place
        return folder not in names or f".{name}{suffix}" in names[folder]

    return exists
