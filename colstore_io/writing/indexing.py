"""Writing the index beside a file, and keeping it (cstore.md 10, docs/cstore-index.md)."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import formats, storage
from ..errors import UnsupportedFeatureError
from ..formats import BLOCK_ROWS, ShardMeta, Statistics
from ..formats.cstore.header import COUNTERS_OFFSET, COUNTERS_SIZE
from ..formats.cstore.reader import read_metadata
from ..formats.cstore.records import RECORD_HEADER_SIZE, index_of_rows
from ..formats.cstore.sidecar import (
    INDEX_SUFFIX,
    SidecarKey,
    block_bounds,
    encode_sidecar,
    key_of,
    read_block_statistics,
    sample_of,
)
from ..storage import ByteFile, IOStats, Location, beside_path
from .publish import write_small_file

__all__ = ["KnownIndex", "index", "keep_index", "known_index"]

_SETTLED_NS = 25_000_000
"""Age that the modification time must have before a file is read. Clocks of file systems tick up to every 10 ms: a file
that is rewritten within the tick of its last change would keep its time, and its index."""


def index(path: Any) -> Path | list[Path]:
    """Write the index ``.NAME.cstore.idx`` beside a local file, so that it opens and filters faster.

    The index holds the places of all records, and minimum and maximum per 64 Ki rows and column. It is a copy of what
    the file says: results never depend on it, and it may be deleted at any time. Any change of the file, and any copy
    that does not keep the modification time, makes it void until it is written again.

    Parameters
    ----------
    path : str or PathLike
        A local file; or a directory or pattern, of which every member gets an index.

    Returns
    -------
    Path, or list of Path
        The index written; a list for a directory or pattern.

    Raises
    ------
    io.UnsupportedOperation
        If `path` is not on this machine.
    FileNotFoundError
        If there is no such file.
    FormatError
        If a file is damaged. `UnsupportedFeatureError` if it has a layout of releases before 0.4 (compact it first), or
        is of another format than `.cstore`.

    Notes
    -----
    Reads all columns but text once, by mapping. Takes no lock: an index made while a writer is at work does not fit
    the file that comes of it, and is ignored. `Writer` in mode ``"update"`` keeps an index that fits.
    """
    found = storage.resolve(path)
    for location in found.locations:
        if not storage.is_local(location):
            raise io.UnsupportedOperation(
                f"an index stands beside a file of this machine, {location!r} is none. "
                "Index the file before it is uploaded or after it was fetched."
            )
    written = [_index_file(location) for location in found.locations]
    return written[0] if found.kind == "file" else written


def _settle(modified_ns: int) -> None:
    """Wait until another change would get another modification time."""
    age = time.time_ns() - modified_ns
    if 0 <= age < _SETTLED_NS:
        time.sleep((_SETTLED_NS - age) / 1e9)


def _index_file(location: Location) -> Path:
    assert location.local_path is not None
    _settle(os.stat(location.local_path).st_mtime_ns)
    ((file, head),) = storage.open_files([location], io=IOStats())
    with file:
        kind = formats.detect(head, file.spelling).name
        if kind != "cstore":
            raise UnsupportedFeatureError(
                f"{file.spelling} is a {kind} file, and only .cstore files have an index beside them: "
                "its bounds stand in the file itself"
            )
        data = _encoded(file, head)
    write_small_file(beside_path(location.local_path, INDEX_SUFFIX), data, exclusive=False)
    return Path(beside_path(location.spelling, INDEX_SUFFIX))


def _encoded(file: ByteFile, head: memoryview) -> bytes:
    (meta,) = read_metadata([file], [head], statistics="none")
    key = key_of(file, meta.counters, meta.manifest_crc32)
    if key is None:
        raise UnsupportedFeatureError(
            f"layout {meta.layout} has no index; compact the file first", path=file.spelling
        )
    memory = file.map(meta.committed_end)
    assert memory is not None
    file.check_size(meta.committed_end)
    sample = sample_of(meta, memory) if meta.n_records else 0
    return encode_sidecar(key, meta.record_rows, meta.columns, block_bounds(meta, memory), sample)


# ----------------------------------------------------------------------------------------------------------
# Keeping the index of a file that is appended to


@dataclass(frozen=True, slots=True)
class KnownIndex:
    """The index of a file as a writer found it, before it changed anything.

    Attributes
    ----------
    path : str
        Of the index.
    meta : ShardMeta
        Of the file then.
    bounds : Statistics
        Of its blocks; the last one may grow.
    """

    path: str
    meta: ShardMeta
    bounds: Statistics


def known_index(file: ByteFile, meta: ShardMeta) -> KnownIndex | None:
    """Return the index of a file that is about to be appended to; None when there is none that fits."""
    bounds = read_block_statistics(file, meta) if meta.n_records else None
    if bounds is None or file.location is None or file.location.local_path is None:
        return None
    return KnownIndex(beside_path(file.location.local_path, INDEX_SUFFIX), meta, bounds)


def keep_index(known: KnownIndex, fd: int, appended: Sequence[int]) -> None:
    """Write the index of a file that was appended to. Reads what is new, and the block that it begins in.

    Parameters
    ----------
    known : KnownIndex
    fd : int
        The file, committed and locked: nobody changes it before this returns, and what `known` says still holds.
    appended : sequence of int
        Rows of each record that is new.

    Notes
    -----
    Waits until the modification time of the file is old enough to tell it from any later state. An index that cannot be
    written is left as it was, which fits no more: whoever has none loses time and nothing else.
    """
    before = known.meta
    with contextlib.suppress(OSError, MemoryError, ValueError):  # the rows are committed, come what may
        state = os.fstat(fd)
        rows = np.concatenate([before.record_rows, np.array(appended, np.int64)])
        records = index_of_rows(
            rows,
            committed_rows=int(rows.sum()),
            data_offset=int(before.body_start[0]) - RECORD_HEADER_SIZE,
            row_bytes=before.row_bytes,
            size=state.st_size,
        )
        if records is None:
            return
        meta = before.sibling(record_rows=records.rows, body_start=records.body_start, n_rows=int(rows.sum()))
        with mmap.mmap(fd, records.end, access=mmap.ACCESS_READ) as mapping:
            memory = np.frombuffer(mapping, np.uint8)
            bounds = block_bounds(meta, memory, known.bounds, before.n_rows // BLOCK_ROWS)
            sample = sample_of(meta, memory)
            del memory  # it borrows the mapping
        counters = os.pread(fd, COUNTERS_SIZE, COUNTERS_OFFSET)
        key = SidecarKey(state.st_size, counters, before.manifest_crc32, state.st_mtime_ns)
        _settle(state.st_mtime_ns)
        after = os.fstat(fd)
        if (after.st_size, after.st_mtime_ns) == (state.st_size, state.st_mtime_ns):
            data = encode_sidecar(key, records.rows, before.columns, bounds, sample)
            write_small_file(known.path, data, exclusive=False)
