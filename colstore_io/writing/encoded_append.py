"""Append row groups to a columns file that is finished, so that a crash at any byte loses nothing.

The steps and what a reader sees between them are in docs/columns-append.md; the bytes in `formats.columns.append`.
Files of the format's own library can be appended to, and it reads the result.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..arguments import check_path
from ..formats.columns.append import (
    MARKER_BYTES,
    MARKER_MAGIC,
    Guard,
    find_last_footer,
    marker_bytes,
    padding,
)
from ..formats.columns.encoder import ColumnsEncoder
from ..formats.columns.gob_write import ChunkEntry, GroupEntry
from ..formats.columns.tags import TRAILER_BYTES
from ..ingest import is_stream
from ..ingest.variable import ColumnData, ingest_columns, ingest_columns_stream
from .encoding import RowGroups, encoder_for
from .locks import LockedFile, open_locked
from .output import AlignedOutput, sync
from .publish import Replacement, resolve_target, unappendable

__all__ = ["append_row_groups", "recover_columns_file"]

_COPY_BYTES = 4 << 20


class _Descriptor:
    """An open file as `find_last_footer` reads it."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        pieces = []
        while length:
            piece = os.pread(self.fd, min(length, 1 << 30), offset)
            if not piece:
                raise EOFError(f"{self.path}: the file ends at byte {offset}")
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
        return b"".join(pieces)


def recover_columns_file(path: str | os.PathLike[str]) -> int:
    """Cut off what an append that did not end has left behind the last footer.

    Returns
    -------
    int
        Bytes that were cut off; 0 for a file that is whole.

    Raises
    ------
    WriterLockedError
        An append is at work; nothing was changed.
    FormatError
        If no append explains the end of the file.
    """
    spelling = check_path("path", path)
    with open_locked(spelling) as locked:
        file = _Descriptor(locked.fd, spelling)
        size = file.size
        end = find_last_footer(file, prologue_end=_prologue(file).end, path=spelling)
        if end < size:
            os.ftruncate(locked.fd, end)
            sync(locked.fd)
        return size - end


def append_row_groups(
    data: Any,
    path: str | os.PathLike[str],
    *,
    row_group_size: int | None = None,
    locked: LockedFile | None = None,
    **encoder_options: Any,
) -> int:
    """Append rows to a columns file as new row groups.

    Parameters
    ----------
    data : table or stream
        Columns with the names, order and types of the file.
    path : path
        A local file. What an earlier append left unfinished in it is cut off first.
    row_group_size : int, optional
        As in `EncodedWriter`.
    locked : LockedFile, optional
        The file, locked by the caller already, whose it stays. Default: it is locked for the call.
    **encoder_options
        Of `ColumnsEncoder`; only tokenizers that the file names already can be used.

    Returns
    -------
    int
        Rows appended.

    Raises
    ------
    SchemaMismatchError, TypeError, ValueError
        If the data or options do not fit. The file is as it was then, as after any other error.
    WriterLockedError
        Another writer is at work.

    Notes
    -----
    Each append leaves the footer before it as dead bytes, so many small ones grow the file by the square of their
    number: gather rows, or rewrite the file now and then. Data that hold the bytes of a columns file uncompressed,
    which a crash could expose as the end of this one, make the append go through a temporary copy of the file.
    """
    target = resolve_target(path)
    if target.local_path is None:
        raise unappendable(target.spelling, "update")
    if locked is not None:
        return _Append(locked, target.local_path, encoder_options).run(data, row_group_size)
    locked = open_locked(target.local_path)
    try:
        return _Append(locked, target.local_path, encoder_options).run(data, row_group_size)
    finally:
        locked.release()


class _Append:
    """One append to a locked file."""

    def __init__(self, locked: LockedFile, path: str, options: dict[str, Any]) -> None:
        self._locked = locked
        self._path = path
        file = _Descriptor(locked.fd, path)
        prologue = _prologue(file)
        self._end = end = find_last_footer(file, prologue_end=prologue.end, path=path)
        if end < file.size:
            os.ftruncate(locked.fd, end)
        from ..formats.columns.footer import parse_footer, schema_of
        from ..formats.columns.frame import footer_start

        trailer = memoryview(file.read(end - TRAILER_BYTES, TRAILER_BYTES))
        start = footer_start(trailer, size=end, prologue_end=prologue.end, path=path)
        raw = file.read(start, end - TRAILER_BYTES - start)
        footer = parse_footer(memoryview(raw), start=start, prologue=prologue, path=path, max_rows=1 << 32)
        self._schema = schema_of(footer)
        encoder = encoder_for("columns", self._schema, **options)
        assert isinstance(encoder, ColumnsEncoder)
        encoder.resume(_groups(footer), prologue.digests, end + MARKER_BYTES, footer.names)
        self._encoder = encoder
        self._marker = marker_bytes(end, raw)
        self._guard: Guard | None = Guard(end + len(MARKER_MAGIC), prologue.end)
        self._output = AlignedOutput(locked.fd, end)
        self._copy: Replacement | None = None

    def run(self, data: Any, row_group_size: int | None) -> int:
        groups = RowGroups(row_group_size)
        stream = is_stream(data)
        batches = (
            ingest_columns_stream(data, like=self._schema)
            if stream
            else iter([ingest_columns(data, like=self._schema)])
        )
        n_rows = 0
        try:
            self._begin()
            for batch in batches:
                n_rows += batch.n_rows
                for columns in groups.add(batch):
                    self._group(columns)
                if stream:
                    groups.keep()
            rest = groups.rest()
            if rest is not None:
                self._group(rest)
            if n_rows == 0:
                self._undo()
            else:
                self._commit()
        except BaseException:
            self._undo()
            raise
        return n_rows

    def _begin(self) -> None:
        """Write the marker, alone and durably: what follows it is then known to be unfinished."""
        if self._guard is not None and self._guard.feed([self._marker[len(MARKER_MAGIC) :]]):
            self._change_to_copy()
        self._output.append([self._marker])
        self._sync()

    def _group(self, columns: Sequence[ColumnData]) -> None:
        self._put(self._encoder.segment(columns))

    def _put(self, parts: Sequence[bytes | memoryview]) -> None:
        if self._guard is not None and self._guard.feed(parts):
            self._change_to_copy()
        self._output.append(parts)

    def _change_to_copy(self) -> None:
        """Go on in a copy that will replace the file: these bytes must never stand at its end after a crash."""
        self._guard = None
        self._output.flush()
        copy = Replacement(self._path, lock=self._locked)
        self._copy = copy
        source, written = _Descriptor(self._locked.fd, self._path), self._output.written
        output = AlignedOutput(copy.fd)
        for at in range(0, written, _COPY_BYTES):
            output.append([source.read(at, min(_COPY_BYTES, written - at))])
        os.ftruncate(self._locked.fd, self._end)
        self._output = output

    def _sync(self) -> None:
        self._output.flush()
        sync(self._output.fd)

    def _commit(self) -> None:
        end = self._encoder.finish()
        footer, trailer = end[:-TRAILER_BYTES], end[-TRAILER_BYTES:]
        gap = bytes(padding(self._output.end + len(footer)))
        self._put([gap, footer] if gap else [footer])
        if self._copy is None:
            self._sync()  # all but the last 8 bytes are durable before these say that they are there
        self._output.append([trailer])
        self._sync()
        if self._copy is not None:
            self._copy.publish()
            self._copy.close()

    def _undo(self) -> None:
        if self._copy is not None:
            self._copy.give_up()  # the file itself was cut back already
            return
        os.ftruncate(self._locked.fd, self._end)
        sync(self._locked.fd)


def _prologue(file: _Descriptor) -> Any:
    from ..formats.columns.frame import parse_prologue, prologue_bytes

    size = file.size
    head = memoryview(file.read(0, min(size, 9)))
    length = prologue_bytes(head, size=size, path=file.path)
    return parse_prologue(memoryview(file.read(0, length)), length)


def _groups(footer: Any) -> list[GroupEntry]:
    """Return what a parsed footer says, to be said again by the next one."""
    data = footer.data
    names = ("byte_length", "null_count", "min_start", "min_bytes", "max_start", "max_bytes", "min_len", "max_len",
             "encoding", "codec", "tokenizer")  # fmt: skip
    groups = []
    for n_rows, offset, row in zip(
        footer.n_rows.tolist(), footer.group_start.tolist(), footer.chunks, strict=True
    ):
        fields = [row[name].tolist() for name in names]
        chunks = tuple(
            ChunkEntry(
                length,
                nulls,
                bytes(data[a : a + n]),
                bytes(data[b : b + m]),
                shortest,
                longest,
                encoding,
                codec,
                model,
            )
            for length, nulls, a, n, b, m, shortest, longest, encoding, codec, model in zip(
                *fields, strict=True
            )
        )
        groups.append(GroupEntry(n_rows, offset, chunks))
    return groups
