"""Files of this machine: opened late, mapped once or read by ``pread``, and never one descriptor per file."""

from __future__ import annotations

import contextlib
import os
import stat as _stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import StaleDatasetError, StorageError, TruncatedFileError
from . import numa
from .files import ByteFile, IOStats
from .filesystems import local_token
from .mapping import Descriptor, advise, descriptors, map_descriptor, mappings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .resolve import Location

__all__ = ["LocalFile", "LocalOptions", "open_local"]

# Held while a changed file is verified, `on_change` included: other threads wait for the verdict. Re-entrant, since
# that function reads from the file. Taken before the locks of the stores below.
_verify_lock = threading.RLock()


def _after_fork_in_child() -> None:
    global _verify_lock
    _verify_lock = threading.RLock()  # a thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

# Without O_NONBLOCK the open of a named pipe waits for a writer; for regular files the flag means nothing.
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK

_MAX_READ = 1 << 30  # one pread moves at most 2 GiB - 4 KiB on Linux


class LocalOptions(NamedTuple):
    """How local files are read: mapped or not, and what the kernel is told about the mappings."""

    mmap: bool = True
    madvise: str | None = None
    mlock: bool = False


class LocalFile(ByteFile):
    """A regular file of this machine, mapped on demand or read by ``pread``.

    Attributes
    ----------
    on_change : callable or None
        Asked when the file turns out to be changed, but to be the same inode: ``on_change(file) -> bool``, True
        if it was only appended to. The function may read from the file. See *Notes*.

    Notes
    -----
    What happens when the path no longer is what `token` says, found out when a descriptor has to be opened:

    * another inode: `StaleDatasetError` (a file that still holds its descriptor or mapping goes on with the old
      contents instead, and never notices);
    * the same inode, with `on_change` set: its answer decides between going on and `StaleDatasetError`;
    * the same inode without `on_change`: a file opened in this process goes on, reads beyond its end fail; a
      file that came from `reopen` or a pickle raises `StaleDatasetError` on its first read.
    """

    __slots__ = (
        "_closed",
        "_descriptor",
        "_doubtful",
        "_known",
        "_options",
        "_path",
        "_planned",
        "_token",
        "on_change",
    )

    def __init__(
        self,
        location: Location,
        path: str,
        size: int,
        io: IOStats,
        *,
        known: tuple[int, int, int] | None,
        options: LocalOptions,
        token: str | None = None,
        planned: bool = False,
    ) -> None:
        # Plain assignments, no super().__init__: a dataset of thousands of files makes one of these for each.
        self.location = location
        self.spelling = location.spelling
        self.size = size
        self.io = io
        self._path = path
        self._known = (
            known  # (size, mtime_ns, inode) last seen; None before the first look of a reopened file
        )
        self._token = token
        self._options = options
        self._planned = planned  # true until a reopened file has been compared with its token
        self._doubtful = False  # true while a descriptor is held that is still being verified
        self._descriptor: Descriptor | None = None
        self._closed = False
        self.on_change: Callable[[LocalFile], bool] | None = None

    @property
    def token(self) -> str:
        if self._token is None:
            assert self._known is not None
            size, mtime_ns, inode = self._known
            self._token = f"stat:{size}:{mtime_ns}:{inode}"
        return self._token

    @property
    def local_path(self) -> str:
        return self._path

    @property
    def madvise(self) -> str | None:
        """What the user told the kernel about the mapping."""
        return self._options.madvise

    # -- is it still the file that was opened?

    def stat_changed(self) -> bool:
        """Whether size, modification time or inode of the path differ from `token` now (one ``stat``)."""
        try:
            return self._differs(os.stat(self._path))
        except FileNotFoundError:
            return True

    def inode_changed(self) -> bool:
        """Whether the path now names another inode than `token` does: the file was replaced, not appended to."""
        inode = self._planned_inode()
        try:
            return inode is not None and os.stat(self._path).st_ino != inode
        except FileNotFoundError:
            return True

    def _planned_inode(self) -> int | None:
        if self._known is not None:
            return self._known[2]
        parts = self.token.split(":")
        return int(parts[3]) if parts[0] == "stat" and len(parts) == 4 and parts[3].isdecimal() else None

    def _differs(self, stat: os.stat_result) -> bool:
        if self._known is not None:
            return (stat.st_size, stat.st_mtime_ns, stat.st_ino) != self._known
        return self.token.startswith("stat:") and local_token(stat) != self.token

    def _stale(self, what: str) -> StaleDatasetError:
        return StaleDatasetError(f"{self.spelling} {what} since it was opened. Open the dataset again.")

    def _verify(self, stat: os.stat_result) -> None:
        """Decide whether the file behind a fresh look may be used; see the class notes."""
        if self._differs(stat):
            if stat.st_ino != self._planned_inode():
                raise self._stale("was replaced")
            check = self.on_change
            if check is None and self._planned:
                raise self._stale("was changed")
            if check is not None:
                self.on_change = None  # the function may read: no question within the question
                try:
                    if not check(self):
                        raise self._stale("was changed, and not only appended to,")
                finally:
                    self.on_change = check
        self._known = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        self._planned = False

    def _open(self) -> Descriptor:
        """Return a descriptor of the file that was opened; the caller's reference keeps it open."""
        descriptor = self._descriptor
        if descriptor is not None and not self._doubtful:
            return descriptor
        if descriptor is None and not self._planned:
            descriptor, stat = self._open_path()
            if not self._differs(stat):
                descriptors.hold(self, descriptor)
                return descriptor
        with _verify_lock:
            held = self._descriptor
            if held is not None:  # another thread has verified it, or this one is just doing so
                return held
            descriptor, stat = self._open_path()
            self._token = self.token  # fixed before _verify adopts what it sees now
            self._doubtful = True
            descriptors.hold(self, descriptor)
            try:
                self._verify(stat)
            except BaseException:
                descriptors.release(self)
                raise
            finally:
                self._doubtful = False
            return descriptor

    def _open_path(self) -> tuple[Descriptor, os.stat_result]:
        if self._closed:
            raise ValueError(f"{self.spelling} is closed.")
        try:
            descriptor = Descriptor(os.open(self._path, _OPEN_FLAGS))
        except FileNotFoundError:
            raise self._stale("was removed") from None
        except OSError as exc:
            raise StorageError(f"cannot open {self.spelling}: {exc.strerror or exc}") from exc
        return descriptor, os.fstat(descriptor.fd)

    def adopt(self, fd: int) -> None:
        """Take over the descriptor that this file was opened with; -1 is none."""
        if fd >= 0:
            descriptors.hold(self, Descriptor(fd))

    # -- bytes

    @contextlib.contextmanager
    def descriptor(self) -> Iterator[int]:
        """Lend the descriptor for a ``with`` block, to compiled code that reads by itself (not counted)."""
        held = self._open()
        yield held.fd

    def read(self, offset: int, length: int) -> memoryview:
        self._check_range(offset, length)
        if length == 0:
            return memoryview(b"")
        descriptor = self._open()
        begin = time.perf_counter()
        data = _pread(descriptor.fd, offset, length, self.spelling)
        self.io.add(requests=1, bytes=length, seconds=time.perf_counter() - begin)
        if len(data) != length:
            raise self._cut_short(len(data), length, offset)
        return memoryview(data)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target`, writable bytes, from `offset` on.

        Raises
        ------
        TruncatedFileError, StaleDatasetError, StorageError
            As `read` does; part of `target` may be written by then.
        """
        self._check_range(offset, len(target))
        descriptor = self._open()
        begin = time.perf_counter()
        done, length = 0, len(target)
        try:
            while done < length:
                count = os.preadv(descriptor.fd, [target[done : done + _MAX_READ]], offset + done)
                if not count:
                    raise self._cut_short(done, length, offset)
                done += count
        except OSError as exc:
            raise StorageError(f"cannot read {self.spelling}: {exc.strerror or exc}") from exc
        self.io.add(requests=1, bytes=length, seconds=time.perf_counter() - begin)

    def will_read(self, offset: int, length: int) -> None:
        """Have bytes read in the background, where the system can be asked for that."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._open().fd, offset, length, os.POSIX_FADV_WILLNEED)

    def _cut_short(self, done: int, length: int, offset: int) -> TruncatedFileError:
        return TruncatedFileError(
            f"the file was cut short: {done} of {length} bytes are left here. Restore it and open it again.",
            path=self.spelling,
            offset=offset,
        )

    def map(self, end: int) -> NDArray[np.uint8] | None:
        if not self._options.mmap:
            return None
        self._check_range(0, end)
        if end == 0:
            return np.frombuffer(b"", np.uint8)
        if self._planned or self._doubtful:
            self._open()
        key = (self._path, self.token)
        array = mappings.get(key, end)
        if array is not None:
            return array
        descriptor = self._open()
        self._require(os.fstat(descriptor.fd), end)
        try:
            array, owner = map_descriptor(descriptor.fd, end)
        except (OSError, ValueError) as exc:
            raise StorageError(f"cannot map {self.spelling}: {exc}. Try mmap=False.") from exc
        numa.interleave_mapping(
            array.ctypes.data, end
        )  # before the advice: that may bring in the first pages
        advise(array, self._options.madvise, self._options.mlock, self.spelling)
        mappings.put(key, array, owner)
        return array

    def _require(self, stat: os.stat_result, end: int) -> None:
        if stat.st_size < end:
            raise TruncatedFileError(
                f"the file has {stat.st_size} bytes now, {end} are needed. "
                "Another program cut it short; restore it and open it again.",
                path=self.spelling,
            )

    def check_size(self, end: int) -> None:
        """Raise `TruncatedFileError` (a `FormatError`) if the file is now shorter than `end` (cstore.md 10)."""
        descriptor = self._descriptor
        if descriptor is not None:
            # lseek tells the size at a third of the price of fstat; nothing here uses the file offset.
            if os.lseek(descriptor.fd, 0, os.SEEK_END) < end:
                self._require(os.fstat(descriptor.fd), end)
            return
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            return  # removed: a mapping outlives that, and a read will say so
        if stat.st_ino == self._planned_inode():
            self._require(stat, end)

    def close(self) -> None:
        self._closed = True
        if self._descriptor is not None:
            descriptors.release(self)
        if self._token is not None:  # no mapping was made without it
            mappings.discard((self._path, self._token))

    def __del__(self) -> None:
        try:
            if self._descriptor is not None:
                descriptors.release(self)
        except AttributeError:  # __init__ failed, or the interpreter is going down
            pass

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_local_file, (self.location, self._path, self.size, self.token, tuple(self._options)))


def _rebuild_local_file(
    location: Location, path: str, size: int, token: str, options: tuple[bool, str | None, bool]
) -> LocalFile:
    chosen = LocalOptions(*options)
    return LocalFile(location, path, size, IOStats(), known=None, options=chosen, token=token, planned=True)


def _pread(fd: int, offset: int, length: int, spelling: str) -> bytes:
    """Read up to `length` bytes; shorter only at the end of the file."""
    try:
        data = os.pread(fd, min(length, _MAX_READ), offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        done = len(data)
        while done < length:
            data = os.pread(fd, min(length - done, _MAX_READ), offset + done)
            if not data:
                break
            parts.append(data)
            done += len(data)
        return b"".join(parts)
    except OSError as exc:
        raise StorageError(f"cannot read {spelling}: {exc.strerror or exc}") from exc


def open_local(
    locations: Sequence[Location], head_bytes: int, io: IOStats, options: LocalOptions
) -> list[tuple[ByteFile, memoryview]]:
    """Open local files and read their heads: one open, one fstat, one pread each.

    The descriptors of the first `DESCRIPTOR_CAPACITY` files at most stay open.
    """
    result: list[tuple[ByteFile, memoryview]] = []
    keep = len(locations) <= descriptors.capacity
    bytes_read = 0
    begin = time.perf_counter()
    for location in locations:
        path = location.local_path
        assert path is not None
        try:
            fd = os.open(path, _OPEN_FLAGS)
        except OSError as exc:
            raise type(exc)(exc.errno, exc.strerror, location.spelling) from None
        descriptor = Descriptor(fd) if keep else None
        try:
            head, stat = _head_and_stat(fd, head_bytes, location.spelling)
        finally:
            if descriptor is None:
                os.close(fd)
        size = stat.st_size
        file = LocalFile(
            location, path, size, io, known=(size, stat.st_mtime_ns, stat.st_ino), options=options
        )
        if descriptor is not None:
            descriptors.hold(file, descriptor)
        bytes_read += len(head)
        result.append((file, memoryview(head)))
    io.add(requests=len(locations), bytes=bytes_read, seconds=time.perf_counter() - begin)
    return result


def _head_and_stat(fd: int, head_bytes: int, spelling: str) -> tuple[bytes, os.stat_result]:
    """Return the first bytes of a regular file, and its state after they were read.

    After: what a commit in between has put into the head must not lie behind the end that is believed in.
    """
    try:
        head = os.pread(fd, min(head_bytes, _MAX_READ), 0)
        stat = os.fstat(fd)
        if len(head) == min(head_bytes, stat.st_size) and _stat.S_ISREG(stat.st_mode):
            return head, stat
    except OSError:  # a directory, a pipe; or a read that fails, which is tried once more below
        pass
    stat = os.fstat(fd)
    head = _read_head(fd, stat, min(head_bytes, stat.st_size), spelling)
    return head, os.fstat(fd)


def _read_head(fd: int, stat: os.stat_result, length: int, spelling: str) -> bytes:
    if not _stat.S_ISREG(stat.st_mode):
        if _stat.S_ISDIR(stat.st_mode):
            raise IsADirectoryError(21, "Is a directory, not a file", spelling)
        raise StorageError(f"{spelling} is not a regular file")
    if not length:
        return b""
    head = _pread(fd, 0, length, spelling)
    if len(head) != length:
        raise TruncatedFileError("the file is being cut short while it is read", path=spelling)
    return head
