"""A disk that fails: fault injection for the tests of the writing side."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

CALLS = ("pwritev", "fsync", "ftruncate", "replace", "link", "unlink", "fchmod")
"""Every call by which the writing side changes what is on disk, opening files aside."""


class Crash(BaseException):
    """The process ends here: nothing that would follow happens."""


class Disk:
    """Counts the calls that change the disk, and lets one of them fail.

    Parameters
    ----------
    crash_at : int, optional
        The call of this number, and every one after it, raises `Crash`. A write of that number still puts half of its
        bytes into the file.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, crash_at: int | None = None) -> None:
        self.log: list[str] = []
        self.crash_at = crash_at
        self.crashed = False
        self.fail: Callable[[str, tuple[Any, ...]], OSError | None] = lambda name, args: None
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.crashed:
                raise Crash
            self.log.append(name)
            if self.crash_at is not None and len(self.log) > self.crash_at:
                self.crashed = True
                if name == "pwritev":
                    fd, views, offset = args
                    data = b"".join(views)
                    os.pwrite(fd, data[: len(data) // 2], offset)
                raise Crash
            error = self.fail(name, args)
            if error is not None:
                raise error
            return real(*args, **kwargs)

        return call


def full(capacity: int) -> Callable[[str, tuple[Any, ...]], OSError | None]:
    """Return a failure: no byte at or behind offset `capacity` can be written; those before it are."""

    def fail(name: str, args: tuple[Any, ...]) -> OSError | None:
        if name != "pwritev":
            return None
        fd, views, offset = args
        data = b"".join(views)
        if offset + len(data) <= capacity:
            return None
        os.pwrite(fd, data[: max(0, capacity - offset)], offset)
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return fail


def read_back(path: Any) -> dict[str, list[Any]]:
    """Return the physical columns of a file as lists, read by walking the file's own metadata."""
    import numpy as np

    from colstore_io.writing.merging import open_sources

    source = open_sources([path])[0]
    try:
        meta = source.meta
        data = bytes(source.file.read(0, meta.committed_end)) if meta.committed_end else b""
        columns: dict[str, list[Any]] = {}
        for column in meta.columns:
            parts = [
                np.frombuffer(
                    data, column.dtype, int(rows), int(start + rows * meta.column_prefix(column.name))
                )
                for rows, start in zip(meta.record_rows, meta.body_start, strict=True)
            ]
            columns[column.name] = np.concatenate(parts).tolist() if parts else []
        return columns
    finally:
        source.file.close()
