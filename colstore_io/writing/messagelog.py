"""Appending messages to a log, one process at a time (docs/format-colbin-log.md).

A `LogWriter` holds the file's lock. Opening cuts off what a crash left behind the last whole message, and the index; a
damaged message with others behind it is no work of a crash, and refused. Messages go to the end of the file; `commit`
makes them durable; closing writes a new index. A crash at any byte leaves every committed message readable.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..arguments import check_path
from ..errors import FormatError, SchemaMismatchError
from ..fields import Schema
from ..formats.colbin.arguments import schema_bytes
from ..formats.colbin.encoder import FrameStatistics, header_of, storable
from ..formats.colbin.layout import RecordColumn, list_columns
from ..formats.colbin.log import (
    Frames,
    LogHeader,
    check_frames,
    encode_frame,
    encode_index,
    parse_header,
)
from ..formats.colbin.logtable import LogTable, log_table
from ..formats.colbin.reader import frames_of
from ..formats.colbin.schema import Section
from ..formats.colbin.sources import column_source, named_columns
from ..formats.colbin.table_encoding import encode_rows
from ..formats.colbin.tables import choose_list, find_list, split_message
from ..formats.colbin.tail import look_behind
from ..storage import ByteFile, IOStats, open_files, resolve
from .blocks import BlockWriter
from .locks import LockedFile, open_locked
from .output import sync, sync_directory

__all__ = ["LogWriter"]

_CHECKED_AT_ONCE = 64
"""Messages that recovery checks in one read."""


class LogWriter(BlockWriter):
    """Appends messages to a log; makes the log if it is not there.

    Parameters
    ----------
    path : path-like
        A local file.
    types : Section, bytes, Schema or None
        What the messages are: a section, or the schema of tables for `write_table`. May be None when the log exists.
    encode : callable, optional
        Turns a record into a message (a codec's ``encode``): then `write` takes records.
    compress : bool
        Compress messages with zstd where that makes them smaller.
    exclusive : bool
        Refuse a file that exists (`FileExistsError`).

    Raises
    ------
    WriterLockedError
        Another writer has the log.
    SchemaMismatchError
        The log holds messages of other types. Nothing was changed.
    FormatError
        The file is no log, its header is damaged, or a message that others stand behind. Nothing was changed.

    Notes
    -----
    A writer that is garbage-collected or dropped at exit without `close` leaves what it wrote, without an index.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        types: Section | bytes | Schema | None = None,
        *,
        encode: Callable[[Any], bytes] | None = None,
        compress: bool = False,
        exclusive: bool = False,
    ) -> None:
        self.path = check_path("path", path)
        if encode is not None and not callable(encode):
            raise TypeError(f"encode must be a function that returns bytes, got {encode!r}")
        self._encode = encode
        self._compress = compress
        header = _header(types)
        flags = os.O_RDWR | (os.O_CREAT if header is not None or exclusive else 0)
        self._file = open_locked(self.path, flags | (os.O_EXCL if exclusive else 0))
        self._finaliser = weakref.finalize(self, _let_go, self._file)
        try:
            self._open(header)
        except BaseException:
            self._finaliser()
            raise

    def _open(self, header: LogHeader | None) -> None:
        size = os.fstat(self._file.fd).st_size
        self._sizes: list[int] = []
        self._rows: list[int] = []
        if size == 0 or (header is not None and self._never_begun(size, header)):
            if header is None:
                raise FormatError("the file is empty, and no types were given for a new log", path=self.path)
            self._table = log_table(header, None, self.path)
            self._statistics = FrameStatistics(self._table.columns)
            text = header.to_bytes()
            os.ftruncate(self._file.fd, 0)
            _write_at(self._file.fd, 0, [text])
            sync(self._file.fd)
            sync_directory(os.path.dirname(os.path.realpath(self.path)))
            self._header, self._end = parse_header(text, self.path), len(text)
            return
        ((file, head),) = open_files([*resolve(self.path).locations], io=IOStats(), mmap=False)
        with file:
            ((found, frames),) = frames_of([file], [head])
            if header is not None and (found.section, found.columns) != (header.section, header.columns):
                raise SchemaMismatchError(f"{self.path} holds messages of other types; nothing was written")
            self._header = found
            self._table = log_table(found, None, self.path)
            self._statistics = FrameStatistics(self._table.columns)
            if not frames.indexed:
                _refuse_damage(file, frames, counted=self._table.field is not None)
        self._end = frames.end
        self._sizes = frames.size.tolist()
        self._rows = frames.rows.tolist()
        self._statistics.add_known(frames.bounds, frames.nulls, len(frames.size))
        if self._end < size:
            # Before anything is written: the rest of an index behind a new message would look like one.
            os.ftruncate(self._file.fd, self._end)
            sync(self._file.fd)

    def _never_begun(self, size: int, header: LogHeader) -> bool:
        """Whether a crash left only the beginning of this very header."""
        text = header.to_bytes()
        return size < len(text) and os.pread(self._file.fd, size, 0) == text[:size]

    @property
    def section(self) -> bytes:
        """The schema section of the messages."""
        return self._header.section

    @property
    def n_messages(self) -> int:
        """Messages in the log, those written here included."""
        return len(self._sizes)

    @property
    def n_rows(self) -> int:
        """Rows of all messages."""
        return sum(self._rows)

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, message: bytes | bytearray | memoryview | Any) -> None:
        """Append one message.

        Parameters
        ----------
        message : buffer of bytes, or record
            D0 or D8; or D4 or DC with the log's own section, which is taken off. Records need `encode`.

        Raises
        ------
        FormatError
            If it is no message, or its list cannot be found in it. Fields are not decoded.
        SchemaMismatchError
            If it carries another section.
        """
        self._check_open()
        if not isinstance(message, (bytes, bytearray, memoryview)):
            if self._encode is None:
                raise TypeError(
                    "records need LogWriter(..., encode=codec.encode); pass messages as bytes otherwise"
                )
            message = self._encode(message)
        section, body, k8 = split_message(message, self.section)
        if body > 1:
            own = bytes(memoryview(message)[1:body])
            if own != self.section or section != self.section:
                raise SchemaMismatchError(
                    "the message carries another section than the log; nothing was written"
                )
            message = bytes((0xD8 if k8 else 0xD0,)) + bytes(memoryview(message)[body:])
        rows = None
        if self._table.field is not None:
            field = choose_list(self.section, self._table.field)
            rows = find_list(message, 1, len(message), k8, self.section, field).rows
        self._append(bytes(message), rows)
        self._statistics.add(None)

    def write_table(self, data: Any) -> None:
        """Append the rows of a table as one message: Arrow, pandas, a structured array, a mapping of columns.

        The log must be one of tables (`types` a `Schema`, or a section that `encode_table` made).

        Raises
        ------
        SchemaMismatchError, TypeError, ValueError
            If the columns do not fit; nothing was written.
        """
        self._check_open()
        table: LogTable = self._table
        if table.field != "rows" or table.number != 1:
            raise SchemaMismatchError("the messages of this log are no tables")
        given: Mapping[str, Any] = dict(named_columns(data))
        if set(given) != {column.name for column in table.columns}:
            raise SchemaMismatchError(
                f"columns {sorted(given)} were given, the log has {sorted(c.name for c in table.columns)}"
            )
        columns = list_columns(self.section, 1).columns
        sources = [column_source(c.name, _storable(given[c.name], c), like=c) for c in columns]
        self._append(b"\xd0" + encode_rows(self.section, sources), sources[0].rows)
        self._statistics.add(sources)

    def _append(self, message: bytes | memoryview, rows: int | None) -> None:
        frame = encode_frame(message, rows, compress=self._compress)
        size = sum(map(len, frame))
        try:
            _write_at(self._file.fd, self._end, frame)
        except BaseException:
            os.ftruncate(self._file.fd, self._end)  # half a message would hide those written after it
            raise
        self._end += size
        self._sizes.append(size)
        self._rows.append(1 if rows is None else rows)

    def commit(self) -> None:
        """Return when everything written so far is on the disk."""
        self._check_open()
        sync(self._file.fd)

    def close(self) -> None:
        """Commit, write the index, give the lock back; does nothing the second time."""
        if self._file.closed:
            return
        try:
            sync(self._file.fd)
            size, rows = np.array(self._sizes, np.int64), np.array(self._rows, np.int64)
            offset = self._end - int(size.sum()) + np.cumsum(size) - size
            frames = Frames(
                offset,
                size,
                rows,
                self._end,
                self._statistics.bounds(),
                nulls=self._statistics.nulls(),
            )
            _write_at(self._file.fd, self._end, [encode_index(frames)])
            sync(self._file.fd)
        finally:
            self._finaliser()

    def _check_open(self) -> None:
        if self._file.closed:
            raise ValueError(f"the writer of {self.path} is closed")

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.n_messages} messages"
        return f"LogWriter({self.path!r}, {state})"


def _storable(data: Any, column: RecordColumn) -> Any:
    """Return a column as the wire has it; values without a type of their own take that of the column."""
    if isinstance(data, np.ndarray) or hasattr(data, "type"):
        return storable(data)
    import pyarrow as pa

    array = storable(pa.array(data))
    try:
        return array.cast(column.arrow_type())  # exact, or not at all
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return array


def _header(types: Section | bytes | Schema | None) -> LogHeader | None:
    if types is None:
        return None
    if isinstance(types, Schema):
        return header_of(types)
    return LogHeader(schema_bytes(types))


def _refuse_damage(file: ByteFile, frames: Frames, *, counted: bool) -> None:
    """Raise `FormatError` if a message is damaged that others stand behind: cutting it off would lose those."""
    count = len(frames.size)
    for low in range(0, count, _CHECKED_AT_ONCE):
        bad = check_frames(file, frames, low, min(count, low + _CHECKED_AT_ONCE))
        if bad is not None:
            number, why = bad
            first = int(frames.rows[:number].sum())
            after = first + int(frames.rows[number])
            raise FormatError(
                f"message {number} is damaged: {why}, and whole messages stand behind it; nothing was changed. "
                "Restore the file from a copy, or write what can be read of it, "
                f"open(path)[:{first}] and open(path)[{after}:], to another log",
                path=file.spelling,
                offset=int(frames.offset[number]),
                section="frames",
            )
    tail = look_behind(file, frames, counted=counted)
    if tail is not None and tail.kind == "damage":
        raise FormatError(
            f"{tail.text}; nothing was changed. Restore the file from a copy, or write what can be read of it, "
            f"open(path)[:{int(frames.rows.sum())}], to another log. Truncating the file to {tail.offset} bytes gives "
            "up what is behind it",
            path=file.spelling,
            offset=tail.offset,
            section="frames",
        )


def _write_at(fd: int, offset: int, parts: list[Any]) -> None:
    data = memoryview(b"".join(parts))
    while data:
        done = os.pwrite(fd, data, offset)
        data, offset = data[done:], offset + done


def _let_go(file: LockedFile) -> None:
    file.release()
