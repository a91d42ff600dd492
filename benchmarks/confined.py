"""Hold a process, and the pages of files that it reads, to so much memory: a control group of Linux, either version.

It is how a file comes to be larger than memory on any machine. Making a group needs the right to (root in most
containers); `available` says whether there is one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Group", "available", "confined"]

ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Group:
    """A control group with a limit of memory.

    Attributes
    ----------
    path : Path
    peak_file : Path or None
        Where the system says how many bytes it held at most; None on kernels that do not.
    """

    path: Path
    peak_file: Path | None

    def add(self, pid: int) -> None:
        """Hold process `pid` to the limit: what it has stays uncounted, what it takes from now on counts."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def peak(self) -> int | None:
        """Return the most bytes that it held, pages of files among them."""
        return None if self.peak_file is None else int(self.peak_file.read_text())


def _make(nbytes: int) -> Group:
    name = f"colstore_io-{os.getpid()}-{secrets.token_hex(4)}"
    unified = (ROOT / "cgroup.controllers").exists()
    path = (ROOT if unified else ROOT / "memory") / name
    path.mkdir()
    try:
        (path / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(str(nbytes))
        if unified:
            (path / "memory.swap.max").write_text("0")
    except OSError:
        path.rmdir()
        raise
    peak = path / ("memory.peak" if unified else "memory.max_usage_in_bytes")
    return Group(path, peak if peak.exists() else None)


def _remove(group: Group) -> None:
    for _ in range(50):  # its processes have ended, but the system takes a moment to see that
        try:
            group.path.rmdir()
        except OSError:
            time.sleep(0.02)
        else:
            return


@contextlib.contextmanager
def confined(nbytes: int) -> Iterator[Group]:
    """Make a group that holds `nbytes`; it goes when the block ends, when its processes must have ended.

    Raises
    ------
    OSError
        Where groups cannot be made.
    """
    group = _make(nbytes)
    try:
        yield group
    finally:
        _remove(group)


@functools.cache
def available() -> bool:
    """Return whether this process may make such groups."""
    try:
        with confined(64 << 20):
            return True
    except OSError:
        return False
