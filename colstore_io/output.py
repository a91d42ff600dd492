"""How do bytes reach a file? In large pieces at aligned offsets, whole or not at all.

`AlignedOutput` is the tail of an open file that a writer appends to (cstore.md 8.1 and 8.2).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["PIECE_BYTES", "AlignedOutput", "sync", "sync_directory", "write_at"]

PIECE_BYTES = 2 << 20
"""Alignment and least size of a piece. The page cache keeps such pieces in huge pages: a gather from them runs
1.5 times as fast, the first touch 11 times (performance.md section 5)."""

_BUFFER_BYTES = 4 * PIECE_BYTES
_DIRECT_BYTES = PIECE_BYTES // 2
"""From this size on, an append is handed to the kernel as it is instead of being copied into the buffer."""

_CALL_BYTES = 1 << 30
"""Linux moves at most 2 GiB - 4 KiB per call; an own, round limit keeps the following pieces aligned."""

Progress = Callable[[int], None]


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


def write_at(
    fd: int,
    views: Sequence[memoryview],
    offset: int,
    *,
    progress: Progress | None = None,
    limit: int = _CALL_BYTES,
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

    Raises
    ------
    OSError
        As the system gives it; an unknown number of the bytes is then in the file.
    """
    queue = [view for view in views if len(view)]
    first = 0
    while first < len(queue):
        batch: list[memoryview] = []
        size = 0
        for view in queue[first : first + _IOV_MAX]:
            if size + len(view) > limit:
                batch.append(view[: limit - size])
                break
            batch.append(view)
            size += len(view)
        written = _pwritev(fd, batch, offset)
        if written <= 0:
            raise OSError(errno.EIO, "write made no progress")
        offset += written
        if progress is not None:
            progress(written)
        while written:
            if written < len(queue[first]):
                queue[first] = queue[first][written:]
                break
            written -= len(queue[first])
            first += 1


class AlignedOutput:
    """The tail of an open file: appends go out in pieces that end at multiples of `PIECE_BYTES`.

    Small appends are gathered in a buffer, large ones go to the file straight from where they are; only the
    bytes behind the last multiple of `PIECE_BYTES` wait for what follows, or for `flush`.

    Parameters
    ----------
    fd : int
        Borrowed. Only positional writes are made.
    end : int
        File offset of the first byte to append.
    """

    __slots__ = ("_buffer", "_dirty", "_fill", "_written", "fd", "limit", "progress")

    def __init__(self, fd: int, end: int = 0) -> None:
        self.fd = fd
        self.progress: Progress | None = None
        self.limit = _CALL_BYTES
        self._written = end  # [0, _written) is in the file, the buffer holds the _fill bytes that follow
        self._fill = 0
        self._buffer: memoryview | None = None
        self._dirty = False  # a failed write may have left bytes behind _written

    @property
    def end(self) -> int:
        """File offset behind the last appended byte, written or not."""
        return self._written + self._fill

    @property
    def written(self) -> int:
        """File offset up to which the bytes are in the file."""
        return self._written

    def append(self, parts: Sequence[memoryview]) -> None:
        """Append `parts` (byte views) as a whole or not at all.

        After an error the file is cut back, earlier appends are all still there (in the file or in the buffer),
        and the next append takes the place of the failed one (cstore.md 8.2).
        """
        size = sum(map(len, parts))
        if size < _DIRECT_BYTES and self._fill + size <= _BUFFER_BYTES:
            self._fill += self._copy(parts, self._fill)
            return
        end = self._written + self._fill + size
        boundary = end - end % PIECE_BYTES
        if boundary <= self._written:
            self._fill += self._copy(parts, self._fill)
            return
        head = boundary - self._written
        now: list[memoryview] = []
        later: list[memoryview] = []
        for view in (self._pending(), *parts):
            if head >= len(view):
                now.append(view)
                head -= len(view)
            else:
                now.append(view[:head])
                later.append(view[head:])
                head = 0
        if later and self._buffer is not None and later[0].obj is self._buffer.obj:
            later[0] = memoryview(bytes(later[0]))  # its place is about to be overwritten
        self._write(now)
        self._fill = self._copy(later, 0)

    def flush(self, end: int | None = None) -> None:
        """Write what waits, all of it or up to file offset `end`.

        On an error nothing is lost: the file is cut back, and the bytes wait on.
        """
        if self._dirty:
            self._cut_back()
        count = self._fill if end is None else min(self._fill, end - self._written)
        if count <= 0:
            return
        pending = self._pending()
        rest = bytes(pending[count:])
        self._write([pending[:count]])
        self._fill = self._copy([memoryview(rest)], 0)

    def truncate(self, end: int) -> None:
        """Forget everything behind file offset `end` and cut the file there."""
        if end < self._written:
            self._written = end
            self._fill = 0
            self._dirty = True
        else:
            self._fill = min(self._fill, end - self._written)
        self._cut_back()

    def _pending(self) -> memoryview:
        return memoryview(b"") if self._buffer is None else self._buffer[: self._fill]

    def _copy(self, parts: Sequence[memoryview], place: int) -> int:
        """Copy `parts` into the buffer at `place`; return how many bytes."""
        start = place
        buffer = self._buffer
        for view in parts:
            if buffer is None:
                # Large blocks of this allocator are aligned, and their pages cost nothing until they are used.
                buffer = self._buffer = np.empty(_BUFFER_BYTES, np.uint8).data
            stop = place + len(view)
            buffer[place:stop] = view
            place = stop
        return place - start

    def _write(self, views: Sequence[memoryview]) -> None:
        try:
            write_at(self.fd, views, self._written, progress=self.progress, limit=self.limit)
        except BaseException:
            self._dirty = True
            with contextlib.suppress(OSError):
                self._cut_back()
            raise
        self._written += sum(map(len, views))

    def _cut_back(self) -> None:
        os.ftruncate(self.fd, self._written)
        self._dirty = False


def sync(fd: int) -> None:
    """Make the contents of `fd` durable."""
    os.fsync(fd)


def sync_directory(directory: str) -> None:
    """Make the names in `directory` durable. Platforms and file systems that cannot are passed over."""
    if sys.platform == "win32":
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
