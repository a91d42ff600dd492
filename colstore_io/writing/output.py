"""How do bytes reach a file? In large pieces at aligned offsets, whole or not at all.

`AlignedOutput` is the tail of an open file that a writer appends to (cstore.md 8.1 and 8.2).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import config
from ..storage import numa
from .uncopyable import Uncopyable

__all__ = [
    "PIECE_BYTES",
    "AlignedOutput",
    "is_syncing",
    "start_writing_back",
    "sync",
    "sync_directory",
    "write_at",
]

PIECE_BYTES = 2 << 20
"""Alignment and least size of a piece. The page cache keeps such pieces in huge pages: a gather from them runs
1.5 times as fast, the first touch 11 times (performance.md section 5)."""

_FLUSH_BYTES = 2 * PIECE_BYTES
"""Small appends wait until this much has come together."""

_DIRECT_BYTES = PIECE_BYTES // 2
"""From this size on, an append is handed to the kernel as it is instead of being copied first."""

_MAX_WAITING = 512
"""Tiny appends are joined when so many wait, so that one gathered write takes them all."""

_ANNOUNCED_BYTES = 4 << 20
"""So many bytes are announced to the system as soon as they are written, so that the sync does not wait for them."""

_ANNOUNCED_CALL_BYTES = 8 << 20
"""Bytes per system call while bytes are announced: what one call writes can only be announced behind it."""

_INTERLEAVED_BYTES = 1 << 16
"""From this size on, the pages of a write are spread over the memory nodes (`storage.numa`)."""

_CALL_BYTES = 1 << 30
"""Linux moves at most 2 GiB - 4 KiB per call; an own, round limit keeps the following pieces aligned."""

Progress = Callable[[int], None]
Transfer = Callable[[int, Sequence[memoryview], int], int]
Part = bytes | memoryview | NDArray[Any]


def _iov_max() -> int:
    try:
        return max(16, os.sysconf("SC_IOV_MAX"))
    except (AttributeError, ValueError, OSError):
        return 1024


_IOV_MAX = _iov_max()
_HAS_PWRITEV = hasattr(os, "pwritev")


def _pwritev(fd: int, views: Sequence[memoryview], offset: int) -> int:
    if _HAS_PWRITEV:
        return os.pwritev(fd, views, offset)
    if hasattr(os, "pwrite"):
        return os.pwrite(fd, views[0], offset)
    os.lseek(fd, offset, os.SEEK_SET)
    return os.write(fd, views[0])


def _fill_mapping(fd: int, views: Sequence[memoryview], offset: int) -> int:
    """Bring all of `views` into the file through a mapping; by a write where the space cannot be reserved first.

    A full disk under an unreserved page of a mapping ends the process instead of raising an error.
    """
    if not hasattr(os, "posix_fallocate"):  # Windows, macOS
        return _pwritev(fd, views, offset)
    end = offset + sum(map(len, views))
    try:
        os.posix_fallocate(fd, offset, end - offset)  # lengthens the file, never shortens it
    except OSError as exc:
        if exc.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV):
            return _pwritev(fd, views, offset)
        raise
    base = offset - offset % mmap.ALLOCATIONGRANULARITY
    try:
        mapping = mmap.mmap(fd, end - base, access=mmap.ACCESS_WRITE, offset=base)
    except OSError as exc:
        if exc.errno != errno.ENODEV:
            raise
        return _pwritev(fd, views, offset)
    with mapping:
        position = offset - base
        for view in views:
            mapping[position : position + len(view)] = view
            position += len(view)
    return end - offset


def write_at(
    fd: int,
    views: Sequence[memoryview],
    offset: int,
    *,
    progress: Progress | None = None,
    limit: int = _CALL_BYTES,
    transfer: Transfer = _pwritev,
) -> None:
    """Write all of `views`, one after the other, at `offset`.

    One gathered write where the platform has it; partial writes are resumed, and lists beyond ``IOV_MAX`` are
    split. Interrupted calls are repeated by Python itself.

    Parameters
    ----------
    views : sequence of memoryview
        Byte views (format ``B``).
    progress : callable, optional
        Called with the number of bytes after each system call.
    limit : int
        Bytes per system call.
    transfer : callable
        Brings views into ``fd`` at an offset and returns how many bytes it moved.

    Raises
    ------
    OSError
        As the system gives it; an unknown number of the bytes is then in the file.
    """
    queue = [view for view in views if len(view)]
    ends = list(accumulate(map(len, queue)))
    total = ends[-1] if ends else 0
    done = first = 0
    # Headers and counters are not worth two system calls.
    with numa.interleaved() if total >= _INTERLEAVED_BYTES else contextlib.nullcontext():
        while done < total:
            end = min(total, done + limit, ends[min(first + _IOV_MAX, len(ends)) - 1])
            if end < total:  # more calls follow: let the next one begin at a boundary
                aligned = (offset + end) // PIECE_BYTES * PIECE_BYTES - offset
                end = aligned if aligned > done else end
            written = transfer(fd, _cut(queue, ends, first, done, end), offset + done)
            if written <= 0:
                raise OSError(errno.EIO, "write made no progress")
            if progress is not None:
                progress(written)
            done += written
            first = bisect_right(ends, done, first)


def _cut(views: list[memoryview], ends: list[int], first: int, start: int, stop: int) -> list[memoryview]:
    """Return bytes [start, stop) of the concatenated `views`, of which number `first` holds byte `start`.

    `ends` holds the offset behind each view; none is empty, and start < stop.
    """
    last = bisect_left(ends, stop, first)
    part = views[first : last + 1]
    if ends[last] > stop:
        part[-1] = part[-1][: len(part[-1]) - (ends[last] - stop)]
    begin = ends[first] - len(views[first])
    if start > begin:
        part[0] = part[0][start - begin :]
    return part


class AlignedOutput(Uncopyable):
    """The tail of an open file: appends go out in pieces that end at multiples of `PIECE_BYTES`.

    Small appends are gathered in memory, large ones go to the file straight from where they are; only the bytes
    behind the last multiple of `PIECE_BYTES` wait for what follows, or for `flush`.

    Parameters
    ----------
    fd : int
        Borrowed; open for reading and writing. Its position is not used. Bytes are brought to it in the way that
        ``config.get_write_method()`` names when the output is made.
    end : int
        File offset of the first byte to append.
    keep : bool
        The file will be synced: bytes are announced to the system as they are written (`start_writing_back`). Not for
        a spool, which never has to reach the disk.
    """

    __slots__ = (
        "_announced",
        "_dirty",
        "_fill",
        "_keep",
        "_transfer",
        "_waiting",
        "_written",
        "fd",
        "limit",
        "progress",
    )

    def __init__(self, fd: int, end: int = 0, *, keep: bool = True) -> None:
        self.fd = fd
        self._keep = keep
        self._announced = end
        self.progress: Progress | None = None
        self.limit = _CALL_BYTES
        self._transfer: Transfer = _fill_mapping if config.get_write_method() == "mmap" else _pwritev
        self._written = end  # [0, _written) is in the file, the _fill bytes that follow are in _waiting
        self._fill = 0
        self._waiting: list[bytes] = []
        self._dirty = False  # a failed write may have left bytes behind _written

    @property
    def end(self) -> int:
        """File offset behind the last appended byte, written or not."""
        return self._written + self._fill

    @property
    def written(self) -> int:
        """File offset up to which the bytes are in the file."""
        return self._written

    def append(self, parts: Sequence[bytes | memoryview]) -> None:
        """Append byte buffers as a whole or not at all; see `append_arrays`."""
        self.append_arrays(parts, sum(map(len, parts)))

    def append_arrays(self, parts: Sequence[Part], nbytes: int) -> None:
        """Append the bytes of `parts`, `nbytes` in all, as a whole or not at all.

        Parameters
        ----------
        parts : sequence of bytes, byte views, or C-contiguous arrays
            Not kept: small ones are copied, large ones written at once except for a tail.

        Notes
        -----
        After an error the file is cut back, earlier appends are all still there (in the file or in memory), and
        the next append takes the place of the failed one (cstore.md 8.2).
        """
        fill = self._fill + nbytes
        if nbytes < _DIRECT_BYTES:
            # One join is the only copy on the way to the kernel; each further call would cost more than it moves.
            joined = b"".join(parts)  # type: ignore[arg-type]  # arrays are buffers, their stubs say so from 3.12 on
            if len(joined) != nbytes:
                raise ValueError(f"expected {nbytes} bytes, got {len(joined)}")
            if fill < _FLUSH_BYTES:
                self._waiting.append(joined)
                self._fill = fill
                if len(self._waiting) >= _MAX_WAITING:
                    self._waiting = [b"".join(self._waiting)]
                return
            parts = [joined]
        end = self._written + fill
        boundary = end - end % PIECE_BYTES
        head = boundary - self._written
        if head <= 0:
            self._waiting.append(b"".join(map(_bytes_of, parts)))
            self._fill = fill
            return
        views = [view for view in (*map(_bytes_of, self._waiting), *map(_bytes_of, parts)) if len(view)]
        ends = list(accumulate(map(len, views)))
        tail = b""
        if head < fill:
            tail = b"".join(_cut(views, ends, bisect_right(ends, head), head, fill))
        self._write(_cut(views, ends, 0, 0, head))
        self._waiting = [tail]
        self._fill = len(tail)

    def flush(self, end: int | None = None) -> None:
        """Write what waits, all of it or up to file offset `end`.

        On an error nothing is lost: the file is cut back, and the bytes wait on.
        """
        if self._dirty:
            self._cut_back()
        count = self._fill if end is None else min(self._fill, end - self._written)
        if count <= 0:
            return
        waiting = memoryview(b"".join(self._waiting))
        self._write([waiting[:count]])
        self._waiting = [bytes(waiting[count:])]
        self._fill = len(waiting) - count

    def truncate(self, end: int) -> None:
        """Forget everything behind file offset `end` and cut the file there."""
        kept = b"".join(self._waiting)[: max(0, end - self._written)]
        self._waiting, self._fill = [kept], len(kept)
        self._written = min(self._written, end)
        self._dirty = True
        self._cut_back()

    def _write(self, views: Sequence[memoryview]) -> None:
        announce = self._keep and is_syncing()
        done = self._written

        def progress(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            if announce and done - self._announced >= _ANNOUNCED_BYTES:
                start_writing_back(self.fd, self._announced, done - self._announced)
                self._announced = done
            if self.progress is not None:
                self.progress(nbytes)

        try:
            write_at(
                self.fd,
                views,
                self._written,
                progress=progress,
                limit=min(self.limit, _ANNOUNCED_CALL_BYTES) if announce else self.limit,
                transfer=self._transfer,
            )
        except BaseException:
            self._dirty = True
            with contextlib.suppress(OSError):
                self._cut_back()
            raise
        self._written = done

    def _cut_back(self) -> None:
        self._announced = min(self._announced, self._written)
        os.ftruncate(self.fd, self._written)
        self._dirty = False


def _bytes_of(part: Part) -> memoryview:
    if type(part) is memoryview:
        return part
    if isinstance(part, np.ndarray):
        return part.view(np.uint8).data if part.size else memoryview(b"")  # datetimes have no buffer format
    return memoryview(part)


def is_syncing() -> bool:
    """Whether commits wait for the disk: what ``config.set_durability`` says."""
    return config.get_durability() == "full"


def sync(fd: int) -> None:
    """Make the contents of `fd` durable; nothing where the setting does not ask for it.

    Every file that this library makes durable on this machine goes through here, every name through `sync_directory`.
    """
    if is_syncing():
        os.fsync(fd)


@functools.cache
def _sync_file_range() -> Any:
    """Return Linux's function of that name; None elsewhere."""
    try:
        call = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return call


_SYNC_FILE_RANGE_WRITE = 2


def start_writing_back(fd: int, offset: int, nbytes: int) -> None:
    """Ask the system to begin bringing this part of a file to the disk, and do not wait; nothing is durable by it.

    A file that is synced when it is complete waits for all of it otherwise: 259 MB took 220 ms to write and 260 ms to
    sync, and 235 ms and 10 ms when every 4 MiB were announced so. Does nothing where nothing will be synced.
    """
    call = _sync_file_range() if is_syncing() else None
    if call is not None:
        call(fd, offset, nbytes, _SYNC_FILE_RANGE_WRITE)  # an error says that the file system does not do it


def sync_directory(directory: str) -> None:
    """Make the names in `directory` durable. Platforms and file systems that cannot are passed over."""
    if sys.platform == "win32" or not is_syncing():
        return
    try:
        fd = os.open(directory, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except PermissionError:  # a directory that may be written but not listed
        return
    try:
        os.fsync(fd)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    finally:
        os.close(fd)
