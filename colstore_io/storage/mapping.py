"""Mappings and descriptors of local files: two bounded stores of the process.

* descriptors: a file keeps the one it was opened with while at most `DESCRIPTOR_CAPACITY` files do, so that
  a reader goes on with the old contents when its file is replaced by rename. Past the bound the least
  recently used are closed, and opened again when needed.
* mappings: the `MAPPING_CAPACITY` least recently used stay mapped, keyed by (path, version token). One that
  falls out lives on while an array over it does. A mapping holds no descriptor: it is made by ``mmap(2)``
  directly, since Python's ``mmap`` object keeps a duplicate of the descriptor for its lifetime, and a dataset
  of 10,000 files must not need 10,000 of them.
"""

from __future__ import annotations

import ctypes
import mmap as _mmap
import os
import threading
import warnings
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DESCRIPTOR_CAPACITY",
    "MAPPING_CAPACITY",
    "Descriptor",
    "advise",
    "descriptors",
    "map_descriptor",
    "mappings",
]

MAPPING_CAPACITY = 128
"""Mappings that the process keeps although nobody uses them at the moment."""


def _descriptor_capacity() -> int:
    """Return a quarter of what the process may open, from 64 to 256: small reads of files without one take longer."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, OSError, ValueError):  # Windows
        return 64
    return 256 if soft == resource.RLIM_INFINITY else max(64, min(256, soft // 4))


DESCRIPTOR_CAPACITY = _descriptor_capacity()
"""Descriptors that local files may hold between calls."""

# Guards the two stores below; never held during I/O. Re-entrant, since garbage collection may finalise a file
# (which gives back its descriptor) in the middle of a locked section.
_lock = threading.RLock()


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
        libc = _LIBC
        if (
            self._address and libc is not None
        ):  # None while the interpreter goes down: the process ends anyway
            libc.munmap(self._address, self.length)
            self._address = 0


def map_descriptor(fd: int, length: int) -> tuple[NDArray[np.uint8], Any]:
    """Map `length` > 0 bytes; returns the array and the object whose lifetime is the mapping's."""
    if _LIBC is not None:
        mapping = Mapping(fd, length)
        return np.asarray(mapping), mapping
    fallback = _mmap.mmap(fd, length, access=_mmap.ACCESS_READ)
    return np.frombuffer(fallback, np.uint8), fallback


def advise(array: NDArray[np.uint8], madvise: str | None, mlock: bool, spelling: str) -> None:
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


class Descriptor:
    """An open file descriptor, closed when the last user lets go: a read in another thread keeps it open."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            try:
                os.close(fd)
            except (OSError, AttributeError):  # AttributeError: the interpreter is going down
                pass


class Holder(Protocol):
    """A file that may hold a descriptor."""

    _descriptor: Descriptor | None


class _DescriptorStore:
    """Which files hold a descriptor, least recently used first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._holders: OrderedDict[int, weakref.ref[Holder]] = OrderedDict()

    def hold(self, file: Holder, descriptor: Descriptor) -> None:
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

    def release(self, file: Holder) -> None:
        with _lock:
            self._holders.pop(id(file), None)
            descriptor, file._descriptor = file._descriptor, None
        del descriptor

    def __len__(self) -> int:
        return len(self._holders)


descriptors = _DescriptorStore(DESCRIPTOR_CAPACITY)


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # mappings and descriptors themselves are the child's own and stay good


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
