"""Writing one data file of a container: whole or not at all, and durable before it is named.

The size of such a file is known before its first byte is written. So its counters are right from the beginning,
threads may fill parts of it at their own offsets, and one sync makes it durable. It gets its name, which is random,
when it is complete; nobody reads it before a manifest names it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import config, threads
from ..fields import Field, Schema
from ..formats.cstore.extras import column_objects, top_level_extra
from ..formats.cstore.header import encode_header
from ..formats.cstore.manifest import encode_manifest
from ..formats.cstore.records import BODY_ALIGNMENT, RECORD_HEADER_SIZE, encode_record_header
from ..storage import Location
from ..writing.output import AlignedOutput, is_syncing, sync, sync_directory
from ..writing.publish import Upload, temporary_path

__all__ = ["Scratch", "Unsynced", "machine_id", "write_file"]

_PART_BYTES = 16 << 20
"""Bytes of a file that one thread writes at a time."""

_AHEAD_BYTES = 256 << 10
"""From this size on, the largest record of a file is worth being made by another thread."""

_MOST_SYNCS = 16
"""Syncs under way at once. They wait for the disk, not for a core, and those that meet share one commit of the file
system's journal."""

_MOST_OPEN = 256

_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Scratch:
    """Memory of one thread for the values of one record: taken again for the next one, whose pages are there then."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._used = 0

    def begin(self) -> None:
        """Begin a record: what was handed out for the one before may be overwritten."""
        self._used = 0

    def contiguous(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return `values` in C order, flat: themselves, or a copy that lives until the next `begin`."""
        if values.flags.c_contiguous or values.dtype.hasobject:
            return np.ascontiguousarray(values).reshape(-1)
        begin = -(-self._used // 64) * 64
        self._used = begin + values.nbytes
        if self._used > len(self._memory):
            self._memory = np.empty(self._used, np.uint8)  # what was handed out keeps its own memory
        copy = self._memory[begin : begin + values.nbytes].view(values.dtype)
        np.copyto(copy.reshape(values.shape), values)
        return copy


Record = Callable[[int, Scratch], Sequence[NDArray[Any]]]


class _Handle:
    """A descriptor that is closed when nobody needs it any more."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


class Unsynced:
    """Complete local files that may not be on the disk yet. Not for several threads at once.

    A manifest that names such files is published after `sync`, and after nothing less.
    """

    def __init__(self) -> None:
        self._open: list[_Handle] = []
        self._closed: list[str] = []
        self._directories: set[str] = set()

    def take(self, path: str, file: _Handle) -> None:
        """Take a file that was just written, and its descriptor; a closed one says that its bytes are durable."""
        self.add_directory(os.path.dirname(path))
        if file.fd < 0:
            return
        if len(self._open) < _MOST_OPEN:
            self._open.append(file)
        else:
            sync(file.fd)
            file.close()

    def add_file(self, path: str) -> None:
        """Add a file that somebody else wrote on this machine."""
        self._closed.append(path)
        self.add_directory(os.path.dirname(path))

    def add_directory(self, path: str) -> None:
        """Add a directory in which files got their names."""
        self._directories.add(path)

    def sync(self, *others: int) -> None:
        """Make all files durable, then their names.

        Parameters
        ----------
        *others : int
            More descriptors to sync, borrowed.

        Raises
        ------
        OSError
            As the system gives it. Nothing must be published then.
        """
        if is_syncing():
            waiting: list[_Handle | str | int] = [*self._open, *self._closed, *others]
            threads.map_with_helpers(_sync_one, waiting, _MOST_SYNCS - 1)
            for directory in self._directories:
                sync_directory(directory)
        self.leave()

    def leave(self) -> None:
        """Let go of all files: somebody else on this machine syncs them before anybody names them, or nobody has to."""
        for file in self._open:
            file.close()
        self._open, self._closed, self._directories = [], [], set()


@functools.cache
def machine_id() -> str | None:
    """Return what processes that share one page cache have in common; None where the system does not tell.

    Of two such processes, either can make durable what the other wrote.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def _sync_one(file: _Handle | str | int) -> None:
    if isinstance(file, int):
        sync(file)
        return
    if isinstance(file, _Handle):
        sync(file.fd)
        file.close()
        return
    # Whichever descriptor wrote the pages, this makes them durable, and reports errors that nobody has seen yet.
    opened = _Handle(os.open(file, os.O_RDWR | _FLAGS))
    sync(opened.fd)
    opened.close()


def write_file(
    location: Location,
    fields: Sequence[tuple[str, np.dtype[Any]]],
    rows: NDArray[np.int64],
    record: Record,
    unsynced: Unsynced | None = None,
    *,
    parallel: bool = False,
    ahead: bool = False,
) -> tuple[int, int]:
    """Write a `.cstore` file of records whose lengths are known.

    Parameters
    ----------
    location : Location
        A name that nobody else uses.
    fields : sequence of (str, dtype)
        Its columns, little-endian.
    rows : ndarray of int64, shape (R,)
        Rows of each record; at least one record.
    record : callable
        ``record(k, scratch)`` returns the columns of record number k, as they stand in a file; they may live in the
        scratch memory. Called in any order, by several threads.
    unsynced : Unsynced, optional
        Takes the file, so that it can be made durable later. Without it the bytes are durable on return; the name
        is not, until the directory is synced. Of no meaning for an object store.
    parallel : bool
        Records take time to make: several threads do, each a part of the file. What is in memory is written faster by
        one, as Linux lets one at a time write to a file: 259 MB of tiles took 0.7 s instead of 1.1 s on a busy machine,
        0.46 s instead of 0.41 s on an idle one.
    ahead : bool
        Records are in memory but have to be put together: another thread does so with the next one while one is
        written.

    Returns
    -------
    begin : int
        Offset of the body of the first record.
    size : int
        Bytes of the file.
    """
    objects = column_objects(Schema(tuple(Field(name, dtype) for name, dtype in fields)))
    header = encode_header(encode_manifest(objects, top_level_extra({})), len(rows), int(rows.sum()))
    plan = _Plan(header, rows, sum(dtype.itemsize for _, dtype in fields), record, parallel, ahead)
    if location.local_path is None:
        upload = Upload(location)
        try:
            plan.fill(upload.fd, keep=False)
            upload.publish()
        finally:
            upload.close()
    else:
        _write_local(location.local_path, plan, unsynced)
    return plan.begin, plan.size


def _write_local(target: str, plan: _Plan, unsynced: Unsynced | None) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    temporary = temporary_path(target)
    later = unsynced is not None and sys.platform != "win32"  # there, open files cannot be renamed
    file = _Handle(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666))
    try:
        plan.fill(file.fd)
        if not later:
            sync(file.fd)
            file.close()
        os.rename(temporary, target)
    except BaseException:
        file.close()
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if unsynced is not None:
        unsynced.take(target, file)


class _Plan:
    """Where the bytes of a file stand."""

    def __init__(
        self,
        header: bytes,
        rows: NDArray[np.int64],
        row_bytes: int,
        record: Record,
        parallel: bool,
        ahead: bool,
    ) -> None:
        self._header, self._rows, self._row_bytes, self._record = header, rows, row_bytes, record
        self._parallel = parallel
        self._ahead = ahead and not parallel and len(rows) > 1 and int(rows.max()) * row_bytes >= _AHEAD_BYTES
        values = rows * row_bytes
        self._ends = len(header) + np.cumsum(RECORD_HEADER_SIZE + values + -values % BODY_ALIGNMENT)

    @property
    def begin(self) -> int:
        """Offset of the body of the first record."""
        return len(self._header) + RECORD_HEADER_SIZE

    @property
    def size(self) -> int:
        return int(self._ends[-1])

    def fill(self, fd: int, *, keep: bool = True) -> None:
        """Write everything. Parts are runs of records; several threads may write one each.

        `keep` as in `AlignedOutput`.
        """
        parts = self._parts() if self._parallel else [(0, len(self._rows))]
        wanted = 2 if self._ahead else min(len(parts), config.get_max_workers() or threads.budget())
        with threads.lease(wanted) as granted:
            if self._ahead:
                self._write(fd, *parts[0], keep, granted - 1)
            else:
                threads.map_with_helpers(lambda part: self._write(fd, *part, keep), parts, granted - 1)

    def _parts(self) -> list[tuple[int, int]]:
        count = max(1, self.size // _PART_BYTES)
        bounds = np.searchsorted(self._ends, np.arange(1, count) * (self.size // count)) + 1
        edges = np.unique(np.concatenate(([0], bounds, [len(self._rows)]))).tolist()
        return list(itertools.pairwise(edges))

    def _write(self, fd: int, first: int, stop: int, keep: bool, helpers: int = 0) -> None:
        output = AlignedOutput(fd, int(self._ends[first - 1]) if first else 0, keep=keep)
        if not first:
            output.append([self._header])
        scratches = (Scratch(), Scratch())

        def made(number: int) -> Sequence[NDArray[Any]]:
            scratch = scratches[number % 2 if helpers else 0]
            scratch.begin()
            return self._record(number, scratch)

        rows = self._rows[first:stop].tolist()
        records = threads.made_ahead(made, range(first, stop), helpers)
        with contextlib.closing(records):
            for number, n_rows, columns in zip(range(first, stop), rows, records, strict=True):
                values = n_rows * self._row_bytes
                padding = -values % BODY_ALIGNMENT
                parts: list[Any] = [encode_record_header(number, n_rows), *columns]
                if padding:
                    parts.append(bytes(padding))
                output.append_arrays(parts, RECORD_HEADER_SIZE + values + padding)
        output.flush()
