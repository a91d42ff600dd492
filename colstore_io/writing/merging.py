"""One record out of many: a copy of bytes, never of values.

The body of a single-record file is, column by column, the runs of all records of all sources in order. So merging is
a list of (address, length) runs over mapped sources, copied into one file piece by piece in constant memory
(cstore.md 8.5).
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import formats, storage
from ..errors import UnsupportedFeatureError
from ..fields import PhysicalColumn
from ..formats import ShardMeta
from ..formats.cstore import FORMAT as CSTORE
from ..formats.cstore.encode import record_size
from ..formats.cstore.footer import encode_statistics, record_statistics
from ..formats.cstore.header import encode_header
from ..formats.cstore.reader import read_metadata
from ..formats.cstore.records import RECORD_HEADER_SIZE, body_bytes, encode_record_header
from ..kernels.copy import copy_runs
from ..storage import ByteFile
from .output import PIECE_BYTES, AlignedOutput, write_at

__all__ = [
    "OutputColumn",
    "SourceFile",
    "add_statistics",
    "open_sources",
    "read_sources",
    "write_single_record",
]

_CHUNK_BYTES = 4 * PIECE_BYTES
_SPOOL_BYTES = 16 << 20
_BATCH_RUNS = 1 << 16
_LONG_RUN_BYTES = 1 << 10
"""Runs of this mean length are written straight from the mapping, shorter ones are gathered in a buffer first: one
more copy then costs less than one more entry of a gathered write."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One opened `.cstore` file and what its header says.

    Attributes
    ----------
    file : storage.ByteFile
        Borrowed.
    meta : formats.ShardMeta
    """

    file: ByteFile
    meta: ShardMeta


def open_sources(
    paths: Sequence[Any], *, storage_options: Any = None, filesystem: Any = None
) -> list[SourceFile]:
    """Open `.cstore` files, directories or patterns, headers and record indexes of all of them at once.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FormatError
        If a file is damaged; all of them are closed then.
    """
    locations: list[storage.Location] = []
    for path in paths:
        found = storage.resolve(path, storage_options=storage_options, filesystem=filesystem)
        locations.extend(found.locations)
    opened = storage.open_files(locations)
    try:
        return read_sources([file for file, _ in opened], heads=[head for _, head in opened])
    except BaseException:
        for file, _ in opened:
            file.close()
        raise


def read_sources(files: Sequence[ByteFile], *, heads: Sequence[memoryview] | None = None) -> list[SourceFile]:
    """Return the sources that opened files make; `heads` are their first bytes, read here when not given.

    Raises
    ------
    FormatError
        If a file is damaged, or of another format.
    """
    if heads is None:
        heads = [file.read(0, min(file.size, storage.HEAD_BYTES)) for file in files]
    for file, head in zip(files, heads, strict=True):
        kind = formats.detect(head, file.spelling)
        if kind is not CSTORE:
            raise UnsupportedFeatureError(
                f"is a {kind.name} file, expected a .cstore file. To write it again use store(open(path), new_path)",
                path=file.spelling,
            )
    metas = read_metadata(files, heads, statistics="all")
    return [SourceFile(file, meta) for file, meta in zip(files, metas, strict=True)]


# ----------------------------------------------------------------------------------------------------------
# Runs


def _mapped(source: SourceFile) -> NDArray[np.uint8]:
    """Return the committed bytes of a source as an array over a mapping.

    A source that cannot be mapped (an object store, ``mmap=False``) is spooled to an anonymous local file first:
    all of it is needed, and reading it front to back is the cheapest way to get it.
    """
    end = source.meta.committed_end
    source.file.check_size(end)
    array = source.file.map(end)
    if array is not None:
        return array
    with tempfile.TemporaryFile() as spool:
        offset = 0
        while offset < end:
            length = min(_SPOOL_BYTES, end - offset)
            spool.write(source.file.read(offset, length))
            offset += length
        spool.flush()
        return np.memmap(spool, np.uint8, mode="r", shape=(end,)) if end else np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Pieces of memory to be written one after the other.

    `keep` owns the memory; `made` says that it was made for this and is no part of a mapping.
    """

    address: NDArray[np.uint64]
    nbytes: NDArray[np.int64]
    keep: Any
    made: bool = False


def _write_runs(output: AlignedOutput, runs: _Runs, scratch: NDArray[np.uint8]) -> None:
    """Append the bytes of `runs` to `output`. `scratch` (`_CHUNK_BYTES`) is overwritten."""
    filled = runs.nbytes > 0
    address, nbytes = runs.address[filled], runs.nbytes[filled]
    stop = np.cumsum(nbytes)
    total = int(stop[-1]) if len(stop) else 0
    position = 0
    while position < total:
        first = int(np.searchsorted(stop, position, side="right"))
        rest = int(stop[first]) - position
        end = min(position + len(scratch), total)
        last = int(np.searchsorted(stop, end, side="left"))
        source = address[first : last + 1].copy()
        length = nbytes[first : last + 1].copy()
        skipped = int(nbytes[first]) - rest
        source[0] += np.uint64(skipped)
        length[0] -= skipped
        length[-1] -= int(stop[last]) - end
        target = np.uint64(scratch.ctypes.data) + (np.cumsum(length) - length).astype(np.uint64)
        size = end - position
        # One thread: the write takes several times as long, and a second one that has to wait for its core makes both
        # wait. On a busy machine two took 0.4 to 2 s for 250 MB, one takes 0.15 to 0.3 s.
        copy_runs(source, target, length, threads=1)
        output.append([scratch[:size].data])
        position = end


def _write_views(output: AlignedOutput, mapping: NDArray[np.uint8], runs: _Runs) -> None:
    """Append long runs of one mapping straight from where they are, many with one gathered write."""
    base = mapping.data
    views: list[memoryview] = []
    size = 0
    starts = (runs.address - np.uint64(mapping.ctypes.data)).astype(np.int64)
    for start, stop in zip(starts.tolist(), (starts + runs.nbytes).tolist(), strict=True):
        views.append(base[start:stop])
        size += stop - start
        if size >= _CHUNK_BYTES:
            output.append(views)
            views = []
            size = 0
    output.append(views)


def _column_runs(
    source: SourceFile, mapping: NDArray[np.uint8], column: str | None, dtype: np.dtype[Any]
) -> Iterator[_Runs]:
    """Yield the runs of one column of one source; ``None`` as column means "all valid"."""
    rows = source.meta.record_rows
    if column is None:
        yield from _all_valid(source.meta.n_rows)
        return
    physical = source.meta.physical(column)
    offset = source.meta.body_start + rows * source.meta.column_prefix(column)
    nbytes = rows * physical.itemsize
    if physical.dtype != dtype:  # a foreign big-endian column
        yield from _swapped(mapping, offset, rows, physical.dtype, dtype)
        return
    yield _Runs((mapping.ctypes.data + offset).astype(np.uint64), nbytes.astype(np.int64), mapping)


def _all_valid(n_rows: int) -> Iterator[_Runs]:
    ones = np.ones(min(n_rows, _CHUNK_BYTES), np.uint8)
    while n_rows:
        count = min(n_rows, len(ones))
        yield _Runs(np.array([ones.ctypes.data], np.uint64), np.array([count], np.int64), ones, made=True)
        n_rows -= count


def _swapped(
    mapping: NDArray[np.uint8],
    offset: NDArray[np.int64],
    rows: NDArray[np.int64],
    stored: np.dtype[Any],
    wanted: np.dtype[Any],
) -> Iterator[_Runs]:
    step = max(1, _CHUNK_BYTES // stored.itemsize)
    for start, count in zip(offset.tolist(), rows.tolist(), strict=True):
        for low in range(0, count, step):
            size = min(step, count - low)
            values = np.frombuffer(mapping, stored, size, start + low * stored.itemsize).astype(wanted)
            yield _Runs(
                np.array([values.ctypes.data], np.uint64),
                np.array([values.nbytes], np.int64),
                values,
                made=True,
            )


# ----------------------------------------------------------------------------------------------------------
# One record out of many


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A physical column of the result: its stored dtype, and its name in each source (None: all valid there)."""

    dtype: np.dtype[Any]
    names: tuple[str | None, ...]


def write_single_record(
    output: AlignedOutput,
    manifest: bytes,
    columns: Sequence[OutputColumn],
    sources: Sequence[SourceFile],
    footer: bytes = b"",
) -> None:
    """Write a complete single-record file to the (empty) `output`, without a sync.

    Parameters
    ----------
    manifest : bytes
        Text of the manifest, describing `columns`.
    columns : sequence of OutputColumn
    sources : sequence of SourceFile
        In row order.
    """
    n_rows = sum(source.meta.n_rows for source in sources)
    row_bytes = sum(column.dtype.itemsize for column in columns)
    header = encode_header(manifest, 1, n_rows)
    if footer:
        end = len(header) + record_size(n_rows, row_bytes)
        header = encode_header(manifest, 1, n_rows, end)
    output.append([memoryview(header), memoryview(encode_record_header(0, n_rows))])
    mappings = [_mapped(source) for source in sources]
    scratch = np.empty(min(_CHUNK_BYTES, max(1, n_rows * row_bytes)), np.uint8)
    for column in columns:
        batch: list[_Runs] = []
        waiting = 0
        for source, mapping, name in zip(sources, mappings, column.names, strict=True):
            for runs in _column_runs(source, mapping, name, column.dtype):
                if not runs.made and runs.nbytes.sum() >= _LONG_RUN_BYTES * max(1, len(runs.nbytes)):
                    _write_batch(output, batch, scratch)
                    _write_views(output, mapping, runs)
                    continue
                batch.append(runs)
                waiting += len(runs.nbytes)
                # Runs of small files are copied together; values made on the way must not pile up.
                if runs.made or waiting > _BATCH_RUNS:
                    _write_batch(output, batch, scratch)
                    waiting = 0
        _write_batch(output, batch, scratch)
    padding = body_bytes(n_rows, row_bytes) - n_rows * row_bytes
    output.append([bytes(padding), footer])
    output.flush()


def _write_batch(output: AlignedOutput, batch: list[_Runs], scratch: NDArray[np.uint8]) -> None:
    if batch:
        address = np.concatenate([runs.address for runs in batch])
        nbytes = np.concatenate([runs.nbytes for runs in batch])
        _write_runs(output, _Runs(address, nbytes, [runs.keep for runs in batch]), scratch)
        batch.clear()


def add_statistics(
    output: AlignedOutput, manifest: bytes, columns: Sequence[PhysicalColumn], n_rows: int
) -> None:
    """Append a footer to a single-record file that `output` has just written, and name it in the counters.

    The bounds are taken from the file itself, through a mapping: no column is held in memory.
    """
    end = output.end
    header = encode_header(manifest, 1, n_rows, end)
    offset = len(header) + RECORD_HEADER_SIZE
    entry = []
    with mmap.mmap(output.fd, end, access=mmap.ACCESS_READ) as mapping:
        for column in columns:
            entry += record_statistics([np.frombuffer(mapping, column.dtype, n_rows, offset)])
            offset += n_rows * column.itemsize
    output.append([memoryview(encode_statistics(columns, [entry]))])
    output.flush()
    write_at(output.fd, [memoryview(header)], 0)
