"""Writing the index beside a file (cstore.md 10, docs/cstore-index.md)."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any

from .. import formats, storage
from ..errors import UnsupportedFeatureError
from ..formats.cstore.reader import read_metadata
from ..formats.cstore.sidecar import INDEX_SUFFIX, block_bounds, encode_sidecar, key_of
from ..storage import ByteFile, IOStats, Location, beside_path
from .publish import write_small_file

__all__ = ["index"]

_SETTLED_NS = 50_000_000
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
    the file that comes of it, and is ignored.
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


def _index_file(location: Location) -> Path:
    assert location.local_path is not None
    age = time.time_ns() - os.stat(location.local_path).st_mtime_ns
    if 0 <= age < _SETTLED_NS:
        time.sleep((_SETTLED_NS - age) / 1e9)
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
    return encode_sidecar(key, meta.record_rows, meta.columns, list(block_bounds(meta.columns, meta, memory)))
