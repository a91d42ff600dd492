"""On which memory node does a page go? Linux machines with several nodes; elsewhere nothing happens.

A file that one thread writes or touches first lies on that thread's node, and a gather by all threads then waits for
that node's memory alone. Interleaved, its pages are spread over all nodes that this process may use
(cstore-behaviour.md 12, "NUMA").
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap as _mmap
import os
import platform
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from .. import config

__all__ = ["allowed_nodes", "interleave_mapping", "interleaved", "parse_nodes"]

MPOL_INTERLEAVE = 3
WORD_BITS = 64

SAVED_WORDS = 16
"""Words of a saved node mask: 1024 nodes, the most that Linux can be built for."""

_NUMBERS = {  # mbind, set_mempolicy, get_mempolicy
    "x86_64": (237, 238, 239),
    "aarch64": (235, 237, 236),
    "ppc64le": (259, 261, 260),
    "s390x": (268, 270, 269),
}

Policy = tuple[int, tuple[int, ...]]
"""Mode with its flags, and the words of the node mask."""


class Calls(Protocol):
    """The three system calls. Each returns an error number, 0 for success."""

    def get_mempolicy(self) -> tuple[int, Policy]: ...
    def set_mempolicy(self, policy: Policy) -> int: ...
    def mbind(self, address: int, length: int, policy: Policy) -> int: ...


def maxnode(words: int) -> int:
    """Return the size of a node mask as the system calls count it.

    They subtract one: without the ``+ 1`` the last node of a full mask would silently be left out.
    """
    return WORD_BITS * words + 1


class LinuxCalls:
    """The calls by number: libnuma need not be installed."""

    def __init__(self, numbers: tuple[int, int, int]) -> None:
        self._mbind, self._set, self._get = map(ctypes.c_long, numbers)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.syscall.restype = ctypes.c_long

    def _call(self, *arguments: Any) -> int:
        return ctypes.get_errno() if self._libc.syscall(*arguments) < 0 else 0

    @staticmethod
    def _mask(policy: Policy) -> tuple[Any, ctypes.c_ulong]:
        words = policy[1]
        return (ctypes.c_uint64 * max(1, len(words)))(*words), ctypes.c_ulong(maxnode(len(words)))

    def get_mempolicy(self) -> tuple[int, Policy]:
        mode, words = ctypes.c_int(0), (ctypes.c_uint64 * SAVED_WORDS)()
        error = self._call(
            self._get,
            ctypes.byref(mode),
            words,
            ctypes.c_ulong(maxnode(SAVED_WORDS)),
            ctypes.c_void_p(None),
            ctypes.c_ulong(0),
        )
        return error, (mode.value, tuple(words))

    def set_mempolicy(self, policy: Policy) -> int:
        mask, size = self._mask(policy)
        return self._call(self._set, ctypes.c_int(policy[0]), mask, size)

    def mbind(self, address: int, length: int, policy: Policy) -> int:
        mask, size = self._mask(policy)
        return self._call(
            self._mbind,
            ctypes.c_void_p(address),
            ctypes.c_ulong(length),
            ctypes.c_ulong(policy[0]),
            mask,
            size,
            ctypes.c_uint(0),
        )


def parse_nodes(text: str) -> tuple[int, ...]:
    """Return the nodes of a list as the kernel prints it: ``"0-3,8"``.

    Raises
    ------
    ValueError
        If it is none.
    """
    nodes: list[int] = []
    for piece in filter(None, text.strip().split(",")):
        first, dash, last = piece.partition("-")
        low = int(first)
        high = int(last) if dash else low
        if not 0 <= low <= high < WORD_BITS * SAVED_WORDS:
            raise ValueError(f"not a list of nodes: {text!r}")
        nodes.extend(range(low, high + 1))
    return tuple(nodes)


def allowed_nodes() -> tuple[int, ...]:
    """Return the memory nodes that this process may use; empty where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as handle:
            for line in handle:
                if line.startswith("Mems_allowed_list:"):
                    return parse_nodes(line.partition(":")[2])
    except (OSError, ValueError):
        pass
    return ()


def interleave_policy(nodes: Sequence[int]) -> Policy:
    """Return the policy that spreads pages over `nodes` (at least one)."""
    words = [0] * (max(nodes) // WORD_BITS + 1)
    for node in nodes:
        words[node // WORD_BITS] |= 1 << node % WORD_BITS
    return MPOL_INTERLEAVE, tuple(words)


@functools.cache
def _system() -> tuple[Calls, Policy] | None:
    """Return the calls and the policy to make with them; ``None`` on machines with nothing to choose from."""
    numbers = _NUMBERS.get(platform.machine())
    if sys.platform != "linux" or numbers is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    nodes = allowed_nodes()
    return (LinuxCalls(numbers), interleave_policy(nodes)) if len(nodes) > 1 else None


_warned: set[str] = set()


def _warn(call: str, error: int) -> None:
    if call in _warned:
        return
    _warned.add(call)
    warnings.warn(
        f"{call} failed ({os.strerror(error)}); pages stay where the system puts them. "
        "config.set_numa_policy('local') silences this.",
        RuntimeWarning,
        stacklevel=4,
    )


@contextlib.contextmanager
def interleaved() -> Iterator[bool]:
    """Spread the pages that this thread allocates inside a ``with`` block; yields whether that took effect.

    The policy from before, ``numactl``'s say, is in force again afterwards, exactly as it was. Blocks nest.
    """
    system = None if config.get_numa_policy() == "local" else _system()
    if system is None:
        yield False
        return
    calls, policy = system
    error, before = calls.get_mempolicy()
    if error:
        _warn("get_mempolicy", error)
        yield False
        return
    error = calls.set_mempolicy(policy)
    if error:
        _warn("set_mempolicy", error)
        yield False
        return
    try:
        yield True
    finally:
        error = calls.set_mempolicy(before)
        if error:
            _warn("set_mempolicy", error)


def interleave_mapping(address: int, length: int) -> bool:
    """Spread the pages of a new mapping over the allowed nodes; returns whether that took effect.

    Parameters
    ----------
    address : int
        Page-aligned.
    length : int
        Bytes; the last page counts whole.
    """
    if length == 0 or config.get_numa_policy() == "local":
        return False
    system = _system()
    if system is None:
        return False
    calls, policy = system
    page = _mmap.PAGESIZE
    error = calls.mbind(address, -(-length // page) * page, policy)
    if error:
        _warn("mbind", error)
    return not error
