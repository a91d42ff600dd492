"""Headers, frames and bounds of many logs at once, and of files that are one message.

Opening takes one round of reads for headers that are longer than the first bytes and for the ends of all files, one
more for indexes that are longer than that, and a walk over the messages of files that have no index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...fields import Schema
from ...storage import ByteFile, read_ranges
from .. import ReadOptions, ShardMeta, Statistics
from .decoder import LogDecoder, _decompressed, cut_segments, root_is_k8
from .layout import list_fields, parsed_section
from .log import (
    MAGIC,
    TRAILER_BYTES,
    Frames,
    LogHeader,
    header_size,
    index_place,
    parse_header,
    read_index,
    scan,
)
from .logtable import LogTable, log_table
from .schema import MAX_ROWS
from .tables import find_list, split_message
from .tail import look_behind

__all__ = ["LogColumn", "LogInfo", "frames_of", "inspect_file", "read_metadata"]

_TAIL_BYTES = 64 << 10
"""Bytes at the end of a file that are read with its header: most indexes are smaller."""


def read_metadata(
    files: Sequence[ByteFile], heads: Sequence[memoryview], options: ReadOptions | None = None
) -> list[ShardMeta]:
    """Return what the files hold.

    Parameters
    ----------
    files : sequence of ByteFile
    heads : sequence of memoryview
        The first bytes of each, as opened.
    options : ReadOptions, optional
        `table` chooses the rows, see `logtable.log_table`.

    Raises
    ------
    FormatError
        For damaged headers. A damaged index is passed over, a torn tail is cut off.
    """
    chosen = options or ReadOptions()
    logs = [number for number, head in enumerate(heads) if bytes(head[:8]) == MAGIC]
    frames = dict(zip(logs, frames_of([files[n] for n in logs], [heads[n] for n in logs]), strict=True))
    return [
        _log_meta(file, *frames[number], chosen)
        if number in frames
        else _message_meta(file, heads[number], chosen)
        for number, file in enumerate(files)
    ]


def frames_of(files: Sequence[ByteFile], heads: Sequence[memoryview]) -> list[tuple[LogHeader, Frames]]:
    """Return header and frames of each log; by its index where there is one, else by a walk."""
    sizes = [header_size(head, file.spelling) for file, head in zip(files, heads, strict=True)]
    requests = []
    for file, head, wanted in zip(files, heads, sizes, strict=True):
        requests.append((file, 0, min(wanted, file.size) if wanted > len(head) else 0))
        near = min(_TAIL_BYTES, file.size)
        # The whole file may be in its first bytes.
        requests.append((file, file.size - near, near if file.size > len(head) else 0))
    read = read_ranges(requests)
    parsed, tails = [], []
    for number, (file, head) in enumerate(zip(files, heads, strict=True)):
        parsed.append(parse_header(read[2 * number] or head, file.spelling))
        tails.append(read[2 * number + 1] or head[-_TAIL_BYTES:])
    places = [
        index_place(tail[-TRAILER_BYTES:], file.size) if len(tail) >= TRAILER_BYTES else None
        for file, tail in zip(files, tails, strict=True)
    ]
    far = [
        (file, *place)
        for file, tail, place in zip(files, tails, places, strict=True)
        if place is not None and place[1] + TRAILER_BYTES > len(tail)
    ]
    fetched = iter(read_ranges(far))
    results = []
    for file, header, tail, place in zip(files, parsed, tails, places, strict=True):
        frames = None
        if place is not None and place[0] >= header.end:
            at_hand = place[1] + TRAILER_BYTES <= len(tail)
            index = tail[len(tail) - TRAILER_BYTES - place[1] : -TRAILER_BYTES] if at_hand else next(fetched)
            frames = read_index(index, tail[-TRAILER_BYTES:], header.end)
        elif place is not None and place[1] + TRAILER_BYTES > len(tail):
            next(fetched)
        results.append((header, scan(file, header.end) if frames is None else frames))
    return results


def _log_meta(file: ByteFile, header: LogHeader, frames: Frames, options: ReadOptions) -> ShardMeta:
    path = file.spelling
    table = log_table(header, options.table, path, strict=options.strict)
    limit = _max_rows(options)
    stored = frames.rows
    default = log_table(header, None, path) if options.table is not None else table
    same = default.field == table.field
    if table.field is None:
        rows = np.ones_like(stored)
    elif same:
        rows = stored
        if len(rows) and int(rows.max()) > limit:
            bad = int(np.argmax(rows > limit))
            raise FormatError(
                f"message {bad} claims {rows[bad]} rows; at most {limit} are read unless max_rows says otherwise",
                path=path,
                offset=int(frames.offset[bad]),
                section="frames",
            )
    else:
        rows = _count_rows(file, frames, table)
    cuts = cut_segments(frames.size, rows)
    decoder = LogDecoder(
        path,
        header.section,
        table.number,
        table.field,
        tuple(range(len(table.columns))),
        _dtypes(table.schema),
        frames.offset,
        frames.size,
        stored,
        rows,
        cuts,
        header=header.stored,
        errors=options.errors,
        max_rows=limit,
    )
    starts = np.concatenate([frames.offset, [frames.end]])[cuts[:-1]]
    return ShardMeta(
        format="colbin",
        layout="log",
        path=path,
        columns=(),
        schema=table.schema,
        record_rows=_per_segment(rows, cuts),
        body_start=starts.astype(np.int64),
        committed_end=frames.end,
        statistics=_statistics(table, frames, cuts) if same else None,
        fingerprint=hashlib.blake2b(repr((header.section, header.columns, header.attrs)).encode()).digest(),
        file_size=file.size,
        decoder=decoder,
    )


def _message_meta(file: ByteFile, head: memoryview, options: ReadOptions) -> ShardMeta:
    """What a file holds that is one message with its own section."""
    path = file.spelling
    data = head if len(head) == file.size else file.read(0, file.size)
    try:
        section, body, k8 = split_message(data, None)
    except FormatError as exc:
        raise FormatError(exc.message, path=path, offset=exc.offset, section=exc.section) from exc
    table = log_table(LogHeader(section), options.table, path, strict=options.strict)
    rows, limit = 1, _max_rows(options)
    if table.field is not None:
        field = next(f for f in list_fields(parsed_section(section)) if f.name == table.field)
        rows = find_list(data, body, len(data), k8, section, field, path).rows
        if rows > limit:
            raise FormatError(f"the message claims {rows} rows; at most {limit} are read", path=path)
    counts = np.array([rows], np.int64)
    decoder = LogDecoder(
        path,
        section,
        table.number,
        table.field,
        tuple(range(len(table.columns))),
        _dtypes(table.schema),
        np.zeros(1, np.int64),
        np.array([file.size], np.int64),
        counts,
        counts,
        np.array([0, 1], np.int64),
        body=body,
        errors=options.errors,
        max_rows=limit,
    )
    return ShardMeta(
        format="colbin",
        layout="message",
        path=path,
        columns=(),
        schema=table.schema,
        record_rows=counts,
        body_start=np.zeros(1, np.int64),
        committed_end=file.size,
        statistics=None,
        fingerprint=hashlib.blake2b(bytes(data)).digest(),
        file_size=file.size,
        decoder=decoder,
    )


def _max_rows(options: ReadOptions) -> int:
    """The format's own bound (colbin.md 14) unless the caller asked for another one."""
    return MAX_ROWS if options.max_rows == ReadOptions().max_rows else options.max_rows


def _dtypes(schema: Schema) -> tuple[str, ...]:
    return tuple("" if field.variable else field.native_dtype.str for field in schema)


def _per_segment(rows: NDArray[np.int64], cuts: NDArray[np.int64]) -> NDArray[np.int64]:
    ends = np.concatenate([[0], np.cumsum(rows)])[cuts]
    return np.diff(ends).astype(np.int64)


def _count_rows(file: ByteFile, frames: Frames, table: LogTable) -> NDArray[np.int64]:
    """Rows of a list that frames do not count: found by reading every message."""
    field = next(f for f in list_fields(parsed_section(table.section)) if f.name == table.field)
    rows = np.zeros(len(frames.size), np.int64)
    for number in range(len(rows)):
        frame = file.read(int(frames.offset[number]), int(frames.size[number]))
        word = int.from_bytes(frame[:4], "little")
        payload = frame[12 if word >> 29 & 1 else 8 :]
        message = _decompressed(payload, number) if word >> 28 & 1 else payload
        k8 = root_is_k8(message, 0, len(message))
        rows[number] = find_list(message, 1, len(message), k8, table.section, field, file.spelling).rows
    return rows


def _statistics(table: LogTable, frames: Frames, cuts: NDArray[np.int64]) -> Statistics | None:
    """Bounds and null counts of segments from those of their messages."""
    minimum, maximum, usable, nulls = {}, {}, {}, {}
    starts = cuts[:-1]
    if not len(starts):
        return None
    for number, counts in frames.nulls.items():
        if number >= len(table.columns) or not table.columns[number].optional:
            continue
        if (counts > frames.rows).any():
            continue  # it contradicts itself
        known = np.logical_and.reduceat(counts >= 0, starts)
        name = table.schema.fields[number].name
        nulls[name] = np.where(known, np.add.reduceat(counts, starts), -1)
    for number, found in frames.bounds.items():
        if number >= len(table.columns):
            continue
        field, column = table.schema.fields[number], table.columns[number]
        if column.dtype is None or column.dtype != found.minimum.dtype:
            continue
        minimum[field.name] = np.minimum.reduceat(found.minimum, starts).view(field.native_dtype)
        maximum[field.name] = np.maximum.reduceat(found.maximum, starts).view(field.native_dtype)
        usable[field.name] = np.logical_and.reduceat(found.usable, starts)
        if field.dtype.kind in "Mm":
            usable[field.name] &= ~np.isnat(minimum[field.name])  # a missing time is the smallest integer
    return Statistics(minimum, maximum, usable, nulls) if minimum or nulls else None


@dataclass(frozen=True, slots=True)
class LogColumn:
    """One column as the file describes it: `manifest` has its name, type, and whether rows may be null."""

    name: str
    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogInfo:
    """What a log says about itself.

    Attributes
    ----------
    path : str
    layout : str
        ``"log"`` or ``"message"`` (a file that is one message).
    format_version, n_records, committed_rows, file_size : int
        Version, messages, rows, bytes.
    columns : tuple of LogColumn
    schema : Schema
    fingerprint : bytes
        As `ShardMeta.fingerprint`.
    skipped : tuple of str
        Fields of the records that no table can show.
    lists : tuple of str
        Lists of records that ``table=`` can choose.
    indexed : bool
        Whether it was closed with an index.
    torn : str
        What stands behind the last whole message and is no valid index; empty when nothing does.
    needs_compaction : bool
        False: nothing is rewritten.
    """

    path: str
    layout: str
    format_version: int
    n_records: int
    committed_rows: int
    file_size: int
    columns: tuple[LogColumn, ...]
    schema: Schema
    fingerprint: bytes
    skipped: tuple[str, ...]
    lists: tuple[str, ...]
    indexed: bool
    torn: str
    needs_compaction: bool = False

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def inspect_file(file: ByteFile, head: memoryview, options: ReadOptions | None = None) -> LogInfo:
    """Return what one file says about itself; no message of a log is decoded."""
    chosen = options or ReadOptions()
    (meta,) = read_metadata([file], [head], chosen)
    assert isinstance(meta.decoder, LogDecoder)
    indexed, torn, header = False, "", LogHeader(meta.decoder.section)
    if meta.layout == "log":
        ((header, frames),) = frames_of([file], [head])
        counted = log_table(header, None, file.spelling).field is not None
        tail = look_behind(file, frames, counted=counted, search=False)
        indexed, torn = frames.indexed, "" if tail is None else tail.text
    table = log_table(header, chosen.table, file.spelling)
    columns = tuple(
        LogColumn(
            f.name,
            {
                "name": f.name,
                "dtype": (f.logical or "object") if f.variable else f.dtype.str,
                "optional": f.optional,
            },
        )
        for f in table.schema
    )
    return LogInfo(
        file.spelling,
        meta.layout,
        1,
        len(meta.decoder.size),
        meta.n_rows,
        file.size,
        columns,
        meta.schema,
        meta.fingerprint,
        table.skipped,
        tuple(f.name for f in list_fields(parsed_section(header.section))),
        indexed,
        torn,
    )
