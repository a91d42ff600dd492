"""Files of this machine: opened late, mapped once, and never one descriptor per file.

Three bounded stores belong to the process:

* descriptors: a file keeps the one it was opened with while at most `DESCRIPTOR_CAPACITY` files do, so that
  a reader goes on with the old contents when its file is replaced by rename. Past the bound the least
  recently used are closed, and opened again when needed.
* mappings: the `MAPPING_CAPACITY` least recently used stay mapped, keyed by (path, version token). One that
  falls out lives on while an array over it does. A mapping holds no descriptor: it is made by ``mmap(2)``
  directly, since Python's ``mmap`` object keeps a duplicate of the descriptor for its lifetime.
* nothing else.
"""

from __future__ import annotations

import ctypes
import mmap as _mmap
import os
import stat as _stat
import threading
import time
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import StaleDatasetError, StorageError, TruncatedFileError
from .storage_files import ByteFile, IOStats
from .storage_filesystems import local_token

if TYPE_CHECKING:
    from .storage_resolve import Location

__all__ = ["DESCRIPTOR_CAPACITY", "MAPPING_CAPACITY", "LocalFile", "open_local"]

MAPPING_CAPACITY = 128
"""Mappings that the process keeps although nobody uses them at the moment."""

DESCRIPTOR_CAPACITY = 64
"""Descriptors that local files may hold between calls."""

_MAX_READ = 1 << 30  # one pread moves at most 2 GiB - 4 KiB on Linux

_lock = threading.Lock()  # guards the two stores below; never held during I/O


# ---------------------------------------------------------------------------------------------------
# Mappings


def _libc() -> Any:
    """Return the C library with ``mmap`` declared, or ``None`` where that is not safe to assume."""
    if os.name != "posix" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int64,
        )
        for name in ("munmap", "mlock"):
            getattr(libc, name).argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    except (OSError, AttributeError):
        return None
    return libc


_LIBC = _libc()
_MAP_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """A read-only mapping of the first `length` bytes of a file; unmapped when nobody refers to it."""

    __slots__ = ("__array_interface__", "__weakref__", "_address", "length")

    def __init__(self, fd: int, length: int) -> None:
        self._address = 0
        self.length = length
        address = _LIBC.mmap(None, length, _mmap.PROT_READ, _mmap.MAP_SHARED, fd, 0)
        if address is None or address == _MAP_FAILED:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self._address = address
        # NumPy takes this object as the base of the array, so the array keeps the mapping alive. The flag says
        # read-only, and no buffer protocol is offered, so nobody can switch the array to writable.
        self.__array_interface__ = {
            "version": 3,
            "shape": (length,),
            "typestr": "|u1",
            "data": (address, True),
        }

    def __del__(self) -> None:
        if self._address:
            _LIBC.munmap(self._address, self.length)
            self._address = 0


def _map_descriptor(fd: int, length: int) -> tuple[NDArray[np.uint8], Any]:
    """Map `length` > 0 bytes; returns the array and the object whose lifetime is the mapping's."""
    if _LIBC is not None:
        mapping = Mapping(fd, length)
        return np.asarray(mapping), mapping
    fallback = _mmap.mmap(fd, length, access=_mmap.ACCESS_READ)
    return np.frombuffer(fallback, np.uint8), fallback


def _advise(array: NDArray[np.uint8], madvise: str | None, mlock: bool, spelling: str) -> None:
    if _LIBC is None:
        return
    address, length = array.ctypes.data, array.nbytes
    if madvise is not None:
        code = getattr(_mmap, f"MADV_{madvise.upper()}", None)
        if code is not None:
            _LIBC.madvise(address, length, code)  # advice: a failure changes nothing
    if mlock and _LIBC.mlock(address, length) != 0:
        reason = os.strerror(ctypes.get_errno())
        warnings.warn(
            f"mlock of {spelling} failed ({reason}); its pages may be swapped out", RuntimeWarning, 3
        )


class _MappingStore:
    """Least-recently-used mappings by (path, token); weak references find those that users keep alive."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._recent: OrderedDict[tuple[str, str], NDArray[np.uint8]] = OrderedDict()
        self._alive: weakref.WeakValueDictionary[tuple[str, str], Any] = weakref.WeakValueDictionary()

    def get(self, key: tuple[str, str], end: int) -> NDArray[np.uint8] | None:
        with _lock:
            array = self._recent.get(key)
            if array is None:
                owner = self._alive.get(key)
                if owner is None:
                    return None
                array = np.asarray(owner) if isinstance(owner, Mapping) else np.frombuffer(owner, np.uint8)
            if len(array) < end:
                return None
            self._recent[key] = array
            self._recent.move_to_end(key)
            evicted = self._trim()
        del evicted  # unmapped here, outside the lock
        return array[:end]

    def put(self, key: tuple[str, str], array: NDArray[np.uint8], owner: Any) -> None:
        with _lock:
            self._recent[key] = array
            self._recent.move_to_end(key)
            self._alive[key] = owner
            evicted = self._trim()
        del evicted

    def discard(self, key: tuple[str, str]) -> None:
        with _lock:
            dropped = self._recent.pop(key, None)
        del dropped

    def _trim(self) -> list[NDArray[np.uint8]]:
        evicted = []
        while len(self._recent) > self.capacity:
            evicted.append(self._recent.popitem(last=False)[1])
        return evicted

    def __len__(self) -> int:
        return len(self._recent)


mappings = _MappingStore(MAPPING_CAPACITY)


# ---------------------------------------------------------------------------------------------------
# Descriptors


class _Descriptor:
    """An open file descriptor, closed when the last user lets go: a read in another thread keeps it open."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            try:
                os.close(fd)
            except OSError:
                pass


class _DescriptorStore:
    """Which files hold a descriptor, least recently used first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._holders: OrderedDict[int, weakref.ref[LocalFile]] = OrderedDict()

    def hold(self, file: LocalFile, descriptor: _Descriptor) -> None:
        released = []
        with _lock:
            file._descriptor = descriptor
            self._holders[id(file)] = weakref.ref(file)
            self._holders.move_to_end(id(file))
            while len(self._holders) > self.capacity:
                holder = self._holders.popitem(last=False)[1]()
                if holder is not None:
                    released.append(holder._descriptor)
                    holder._descriptor = None
                    del holder
        del released  # closed here, outside the lock

    def release(self, file: LocalFile) -> None:
        with _lock:
            self._holders.pop(id(file), None)
            descriptor, file._descriptor = file._descriptor, None
        del descriptor

    def __len__(self) -> int:
        return len(self._holders)


descriptors = _DescriptorStore(DESCRIPTOR_CAPACITY)


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # mappings and descriptors themselves are the child's own and stay good


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# ---------------------------------------------------------------------------------------------------


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
        "_known",
        "_madvise",
        "_mlock",
        "_mmap",
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
        io: IOStats | None,
        *,
        known: tuple[int, int, int] | None,
        token: str | None = None,
        mmap: bool = True,
        madvise: str | None = None,
        mlock: bool = False,
        planned: bool = False,
    ) -> None:
        super().__init__(location, location.spelling, size, io)
        self._path = path
        self._known = (
            known  # (size, mtime_ns, inode) last seen; None before the first look of a reopened file
        )
        self._token = token
        self._mmap = mmap
        self._madvise = madvise
        self._mlock = mlock
        self._planned = planned  # true until a reopened file has been compared with its token
        self._descriptor: _Descriptor | None = None
        self._closed = False
        self.on_change: Callable[[LocalFile], bool] | None = None

    @property
    def token(self) -> str:
        if self._token is None:
            assert self._known is not None
            size, mtime_ns, inode = self._known
            self._token = f"stat:{size}:{mtime_ns}:{inode}"
        return self._token

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

    def _open(self) -> _Descriptor:
        """Return a descriptor of the file that was opened; the caller's reference keeps it open."""
        descriptor = self._descriptor
        if descriptor is not None:
            return descriptor
        if self._closed:
            raise ValueError(f"{self.spelling} is closed.")
        try:
            descriptor = _Descriptor(os.open(self._path, os.O_RDONLY))
        except FileNotFoundError:
            raise self._stale("was removed") from None
        token = self.token  # fixed before _verify adopts what it sees now
        stat = os.fstat(descriptor.fd)
        descriptors.hold(self, descriptor)
        if self._planned or self._known is None or self._differs(stat):
            try:
                self._verify(stat)
            except BaseException:
                descriptors.release(self)
                raise
        self._token = token
        return descriptor

    # -- bytes

    def read(self, offset: int, length: int) -> memoryview:
        self._check_range(offset, length)
        if length == 0:
            return memoryview(b"")
        descriptor = self._open()
        begin = time.perf_counter()
        data = _pread(descriptor.fd, offset, length, self.spelling)
        self.io.add(requests=1, bytes=length, seconds=time.perf_counter() - begin)
        if len(data) != length:
            raise TruncatedFileError(
                f"the file was cut short: {len(data)} of {length} bytes are left here. Restore it and open it again.",
                path=self.spelling,
                offset=offset,
            )
        return memoryview(data)

    def map(self, end: int) -> NDArray[np.uint8] | None:
        if not self._mmap:
            return None
        self._check_range(0, end)
        if end == 0:
            return np.frombuffer(b"", np.uint8)
        if self._planned:
            self._open()
        key = (self._path, self.token)
        array = mappings.get(key, end)
        if array is not None:
            return array
        descriptor = self._open()
        self._require(os.fstat(descriptor.fd), end)
        try:
            array, owner = _map_descriptor(descriptor.fd, end)
        except (OSError, ValueError) as exc:
            raise StorageError(f"cannot map {self.spelling}: {exc}. Try mmap=False.") from exc
        _advise(array, self._madvise, self._mlock, self.spelling)
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
        descriptors.release(self)
        if self._known is not None or self._token is not None:
            mappings.discard((self._path, self.token))

    def __del__(self) -> None:
        try:
            if self._descriptor is not None:
                descriptors.release(self)
        except AttributeError:  # __init__ failed, or the interpreter is going down
            pass

    def __reduce__(self) -> tuple[object, ...]:
        options = (self._mmap, self._madvise, self._mlock)
        return (_rebuild_local_file, (self.location, self._path, self.size, self.token, *options))


def _rebuild_local_file(
    location: Location, path: str, size: int, token: str, mmap: bool, madvise: str | None, mlock: bool
) -> LocalFile:
    return LocalFile(
        location,
        path,
        size,
        None,
        known=None,
        token=token,
        mmap=mmap,
        madvise=madvise,
        mlock=mlock,
        planned=True,
    )


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
    locations: list[Location],
    head_bytes: int,
    io: IOStats,
    *,
    mmap: bool = True,
    madvise: str | None = None,
    mlock: bool = False,
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
            descriptor = _Descriptor(os.open(path, os.O_RDONLY))
        except FileNotFoundError:
            raise FileNotFoundError(2, "No such file", location.spelling) from None
        except OSError as exc:
            raise type(exc)(exc.errno, exc.strerror, location.spelling) from None
        stat = os.fstat(descriptor.fd)
        if not _stat.S_ISREG(stat.st_mode):
            if _stat.S_ISDIR(stat.st_mode):
                raise IsADirectoryError(21, "Is a directory, not a file", location.spelling)
            raise StorageError(f"{location.spelling} is not a regular file")
        size = stat.st_size
        wanted = min(head_bytes, size)
        try:
            head = os.pread(descriptor.fd, wanted, 0) if wanted else b""
        except OSError as exc:
            raise StorageError(f"cannot read {location.spelling}: {exc.strerror or exc}") from exc
        if len(head) != wanted:
            head = _pread(descriptor.fd, 0, wanted, location.spelling)
            if len(head) != wanted:
                raise TruncatedFileError(
                    "the file is being cut short while it is read", path=location.spelling
                )
        file = LocalFile(
            location,
            path,
            size,
            io,
            known=(size, stat.st_mtime_ns, stat.st_ino),
            mmap=mmap,
            madvise=madvise,
            mlock=mlock,
        )
        if keep:
            descriptors.hold(file, descriptor)
        bytes_read += wanted
        result.append((file, memoryview(head)))
    io.add(requests=len(locations), bytes=bytes_read, seconds=time.perf_counter() - begin)
    return result
