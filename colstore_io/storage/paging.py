"""Pages of mappings: are they in memory, and how do they get there? Linux; elsewhere every function does nothing.

All of it is advice: a call that fails changes how long a read takes, never what it returns.
"""

from __future__ import annotations

import ctypes
import mmap as _mmap
import os
import sys
from typing import TYPE_CHECKING

import numpy as np

from .mapping import _LIBC

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AVAILABLE", "PAGE_BYTES", "is_resident", "memory_limit", "populate", "willneed", "willneed_runs"]

PAGE_BYTES = _mmap.PAGESIZE

_MADV_WILLNEED, _MADV_HUGEPAGE, _MADV_POPULATE_READ = 3, 14, 22
_SYS_PROCESS_MADVISE = 440  # the same number on every architecture
_VECTOR = 1024  # entries that one call may have (UIO_MAXIOV)

AVAILABLE = sys.platform == "linux" and _LIBC is not None
"""Whether residency can be asked for and steered here."""

if AVAILABLE:
    _LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    _LIBC.syscall.restype = ctypes.c_long


def is_resident(address: int) -> bool:
    """Return whether the page at `address` is in memory; True where the system does not tell.

    Linux tells only owners and writers of a file, and says "resident" to others.
    """
    if not AVAILABLE:
        return True
    state = ctypes.c_ubyte(1)
    failed = _LIBC.mincore(address - address % PAGE_BYTES, PAGE_BYTES, ctypes.byref(state))
    return bool(failed) or bool(state.value & 1)


def willneed(address: int, length: int) -> None:
    """Have `length` bytes from page-aligned `address` on read in the background."""
    if AVAILABLE:
        _LIBC.madvise(address, length, _MADV_WILLNEED)


def willneed_runs(address: NDArray[np.int64], length: NDArray[np.int64]) -> None:
    """Have many page-aligned ranges read in the background.

    Parameters
    ----------
    address, length : ndarray of int64, shape (k,)

    Notes
    -----
    1024 ranges a system call where Linux allows it (``process_madvise``, of one's own process since 5.13), else one.
    """
    if not AVAILABLE or not address.shape[0]:
        return
    done = 0
    if address.shape[0] > 1 and hasattr(os, "pidfd_open"):
        done = _willneed_vector(address, length)
    for start, size in zip(address[done:].tolist(), length[done:].tolist(), strict=True):
        _LIBC.madvise(start, size, _MADV_WILLNEED)


def _willneed_vector(address: NDArray[np.int64], length: NDArray[np.int64]) -> int:
    """Advise by ``process_madvise``; returns how many ranges are done with."""
    try:
        process = os.pidfd_open(os.getpid())
    except OSError:
        return 0
    try:
        vector = np.ascontiguousarray(np.stack([address, length], axis=1))
        done = 0
        while done < vector.shape[0]:
            part = vector[done : done + _VECTOR]
            moved = _LIBC.syscall(
                ctypes.c_long(_SYS_PROCESS_MADVISE),
                ctypes.c_int(process),
                ctypes.c_void_p(part.ctypes.data),
                ctypes.c_size_t(part.shape[0]),
                ctypes.c_int(_MADV_WILLNEED),
                ctypes.c_uint(0),
            )
            if moved != int(
                part[:, 1].sum()
            ):  # refused (an old kernel, a sandbox), or a range with a hole in it
                return done
            done += part.shape[0]
        return done
    finally:
        os.close(process)


def populate(address: int, length: int) -> bool:
    """Have page-aligned bytes read and mapped before this returns, in huge pages where possible.

    Returns
    -------
    bool
        False where the system cannot (before Linux 5.14), or an error struck: the pages are then read when touched.
    """
    if not AVAILABLE:
        return False
    _LIBC.madvise(address, length, _MADV_HUGEPAGE)
    return bool(_LIBC.madvise(address, length, _MADV_POPULATE_READ) == 0)


def memory_limit() -> int:
    """Return the bytes that may be brought in at once: a quarter of what machine and control group have left."""
    available = _field("/proc/meminfo", "MemAvailable:")
    left = [64 << 20] if available is None else [available << 10]
    for folder, limit, used in _memory_groups():
        try:
            with open(f"{folder}/{limit}", encoding="ascii") as handle:
                most = int(handle.read())  # "max" is a ValueError
            with open(f"{folder}/{used}", encoding="ascii") as handle:
                # Page cache of earlier reads counts as used, yet gives way: no less than a quarter is left.
                left.append(max(most - int(handle.read()), most // 4))
        except (OSError, ValueError):
            continue
    return min(left) // 4


def _memory_groups() -> list[tuple[str, str, str]]:
    """Return the control groups that may hold this process's memory: folder, file of the limit, file of the use.

    A container often sees its own group at the root, so that is asked too.
    """
    v1, v2 = ("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")
    groups = [("/sys/fs/cgroup", *v2), ("/sys/fs/cgroup/memory", *v1)]
    try:
        with open("/proc/self/cgroup", encoding="ascii", errors="replace") as handle:
            for line in handle:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                if not controllers:
                    groups.append((f"/sys/fs/cgroup{path}", *v2))
                elif "memory" in controllers.split(","):
                    groups.append((f"/sys/fs/cgroup/memory{path}", *v1))
    except (OSError, ValueError):
        pass
    return groups


def _field(path: str, name: str) -> int | None:
    try:
        with open(path, encoding="ascii") as handle:
            for line in handle:
                if line.startswith(name):
                    return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return None
