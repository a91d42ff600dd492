"""Files of encoded row groups: any `FileEncoder` writes a file that appears whole or not at all.

`EncodedWriter` gathers rows to row groups, has them encoded, and publishes the file with the machinery of all writers:
a temporary name, fsync, rename; one upload to an object store. `store_encoded` does that in one call. Memory is one row
group and its encoded form.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import inspect
import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from ..arguments import check_integer
from ..fields import Schema
from ..formats import FileEncoder
from ..ingest import is_stream
from ..ingest.variable import ColumnBatch, ColumnData, ingest_columns, ingest_columns_stream
from . import finalisers
from .blocks import BlockWriter
from .output import AlignedOutput
from .publish import EXISTS, Destination, Replacement, Target, Upload, resolve_target

__all__ = [
    "EncodedMode",
    "EncodedWriter",
    "RowGroups",
    "encoder_for",
    "encoder_options",
    "format_of_path",
    "store_encoded",
]

EncodedMode = Literal["create", "recreate"]

ROW_GROUP_ROWS = 1 << 20
"""Rows of a row group, unless they take more than `ROW_GROUP_BYTES`."""

ROW_GROUP_BYTES = 64 << 20
"""Bytes of a row group before compression."""


# ------------------------------------------------------------------------------------------------- the registry


def _columns_encoder() -> Callable[..., FileEncoder]:
    from ..formats.columns.encoder import ColumnsEncoder

    return ColumnsEncoder


def _colbin_encoder() -> Callable[..., FileEncoder]:
    from ..formats.colbin.encoder import LogEncoder

    return LogEncoder


ENCODERS: dict[str, Callable[[], Callable[..., FileEncoder]]] = {
    "columns": _columns_encoder,
    "colbin": _colbin_encoder,
}
"""Encoders by format name; each is imported when it is first used."""

SUFFIXES = {".abcd": "columns", ".colbin": "colbin"}


def format_of_path(path: str | os.PathLike[str]) -> str:
    """Return the encoded format that a file's suffix names.

    Raises
    ------
    ValueError
        For another suffix.
    """
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    raise ValueError(
        f"{suffix or 'no suffix'!r} does not tell the format; say format='columns' or 'colbin', or use .abcd or .colbin"
    )


def encoder_for(format_name: str, schema: Schema, **options: Any) -> FileEncoder:
    """Return a new encoder.

    Parameters
    ----------
    format_name : str
        ``"columns"``, ...
    schema : Schema
    **options
        Of the format's encoder.

    Raises
    ------
    ValueError
        For an unknown format; by the encoder, for values of options.
    TypeError
        For an unknown option, naming those that there are.
    """
    if format_name not in ENCODERS:
        raise ValueError(
            f"unknown format {format_name!r}; encoded formats are {', '.join(map(repr, ENCODERS))}"
        )
    make = ENCODERS[format_name]()
    known = _keywords(make)
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(
            f"the {format_name} format has no option {unknown[0]!r}; options are {', '.join(known)}"
        )
    return make(schema, **options)


@functools.cache
def _keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the options of an encoder; `inspect` takes longer for that than a small table to write."""
    return tuple(n for n, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY)


def encoder_options(format_name: str) -> list[str]:
    """Return the names of the options that writing a file of this format takes."""
    if format_name not in ENCODERS:
        raise ValueError(
            f"unknown format {format_name!r}; encoded formats are {', '.join(map(repr, ENCODERS))}"
        )
    return ["row_group_size", *_keywords(ENCODERS[format_name]())]


# ----------------------------------------------------------------------------------------------- row groups


class RowGroups:
    """Gathers batches and cuts them into row groups.

    Parameters
    ----------
    row_group_size : int, optional
        Rows of each row group but the last. Default: `ROW_GROUP_ROWS`, fewer when they have many bytes.
    """

    def __init__(self, row_group_size: int | None = None) -> None:
        if row_group_size is not None:
            check_integer("row_group_size", row_group_size, 1)
        self._size = row_group_size
        self._waiting: list[ColumnBatch] = []
        self._n_kept = 0  # of these, copied already
        self.n_waiting = 0

    def add(self, batch: ColumnBatch) -> Iterator[list[ColumnData]]:
        """Take a batch; yields the row groups that are full now."""
        if batch.n_rows == 0:
            return
        limit = self._size or self._limit(batch)
        start = 0
        while self.n_waiting + batch.n_rows - start >= limit:
            stop = start + limit - self.n_waiting
            if stop < start:  # more waits than this batch's rows, which are wider, allow
                stop = start
            self._push(batch, start, stop)
            yield self._joined()
            start = stop
        self._push(batch, start, batch.n_rows)

    def keep(self) -> None:
        """Copy what waits and may be the caller's own memory, which changes with the next batch that goes into it."""
        for number in range(self._n_kept, len(self._waiting)):
            self._waiting[number] = self._waiting[number].owned()
        self._n_kept = len(self._waiting)

    def rest(self) -> list[ColumnData] | None:
        """Return the last row group; None when nothing waits."""
        return self._joined() if self.n_waiting else None

    @staticmethod
    def _limit(batch: ColumnBatch) -> int:
        row_bytes = sum(column.nbytes for column in batch.columns) / batch.n_rows
        return max(1, min(ROW_GROUP_ROWS, int(ROW_GROUP_BYTES / max(row_bytes, 1 / 64))))

    def _push(self, batch: ColumnBatch, start: int, stop: int) -> None:
        if stop > start:
            columns = tuple(column[start:stop] for column in batch.columns)
            self._waiting.append(ColumnBatch(batch.schema, columns, stop - start))
            self.n_waiting += stop - start

    def _joined(self) -> list[ColumnData]:
        waiting, self._waiting, self.n_waiting, self._n_kept = self._waiting, [], 0, 0
        return [
            _concatenated([batch.columns[i] for batch in waiting]) for i in range(len(waiting[0].columns))
        ]


def _concatenated(parts: Sequence[ColumnData]) -> ColumnData:
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    import pyarrow as pa

    chunks: list[Any] = []
    for part in parts:
        if isinstance(part, np.ndarray):
            chunks.append(pa.array(part))
        else:
            chunks += part.chunks if isinstance(part, pa.ChunkedArray) else [part]
    kinds = {chunk.type for chunk in chunks}
    if len(kinds) > 1:  # dictionaries beside plain values, or text in several layouts
        chunks = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in chunks]
        kinds = {chunk.type for chunk in chunks}
        if len(kinds) > 1:
            text = any(pa.types.is_large_string(k) or pa.types.is_string(k) for k in kinds)
            chunks = [c.cast(pa.large_string() if text else pa.large_binary()) for c in chunks]
    return pa.chunked_array(chunks)


# ---------------------------------------------------------------------------------------------------- writing


class EncodedWriter(BlockWriter):
    """A file of an encoded format being written; it appears when it is closed, whole or not at all.

    Parameters
    ----------
    path : path or URL
    format : str, optional
        Name of the format. Default: by the suffix.
    schema : Schema, optional
        Default: what the first data say.
    mode : {"create", "recreate"}
        Whether an existing file is an error or replaced, under its lock.
    row_group_size : int, optional
        Rows of a row group. Default: 2**20, fewer when they have more than 64 MiB before compression.
    nullable : bool, or name or sequence of names, optional
        Columns that may hold nulls besides those whose first rows do.
    storage_options, filesystem
        For URLs. An object store gets one upload, at the end.
    destination : callable, optional
        Gives the `Destination` of the bytes, once all options are known to be good; `path` is for messages then.
    **encoder_options
        Of the format's encoder; see `encoder_for`.

    Raises
    ------
    FileExistsError
        With ``"create"``, if the path exists.
    WriterLockedError
        With ``"recreate"``, if a writer is at work on the target.

    Notes
    -----
    Data that do not fit raise and change nothing: the next `write` may follow. An error of the disk ends the writer.
    Rows that `write` has taken count when the writer is closed; `BlockWriter` says what a ``with`` block does that
    raises. No file appears when a writer is dropped unclosed (`ResourceWarning`), and after `abort`. Not thread-safe;
    cannot be pickled; dead in a forked child.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        schema: Schema | None = None,
        *,
        mode: EncodedMode = "create",
        row_group_size: int | None = None,
        nullable: bool | str | Sequence[str] | None = None,
        storage_options: Any = None,
        filesystem: Any = None,
        destination: Callable[[], Destination] | None = None,
        **encoder_options: Any,
    ) -> None:
        self._closed = True
        if mode not in ("create", "recreate"):
            raise ValueError(f"mode must be 'create' or 'recreate', got {mode!r}")
        self._target = resolve_target(path, storage_options=storage_options, filesystem=filesystem)
        self._format = format_of_path(path) if format is None else format
        self._options = encoder_options
        self._nullable = nullable
        self._groups = RowGroups(row_group_size)
        self._encoder: FileEncoder | None = None
        self._schema = schema
        self._n_rows = 0
        if schema is not None:
            self._encoder = encoder_for(self._format, schema, **encoder_options)
        else:
            encoder_for(self._format, Schema(()), **_without_columns(encoder_options))
        self._destination = _destination(self._target, mode) if destination is None else destination()
        self._output = AlignedOutput(self._destination.fd, keep=not self._destination.is_spool)
        self._closed = False
        finalisers.watch(self)
        if self._encoder is not None:
            self._append([self._encoder.begin()])

    @property
    def path(self) -> Path | str:
        """Where the file will be."""
        return self._target.result

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def schema(self) -> Schema | None:
        """The columns; None before the first write."""
        return self._schema

    @property
    def encoder(self) -> FileEncoder | None:
        """The encoder at work; None before the first write."""
        return self._encoder

    def __len__(self) -> int:
        return self._n_rows

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        state = "closed " if self._closed else ""
        return f"<{state}EncodedWriter {self._target.spelling!r} format={self._format!r} rows={self._n_rows}>"

    def write(self, data: Any) -> None:
        """Append rows: any table or stream of tables that `ingest_columns` takes.

        Raises
        ------
        SchemaMismatchError, TypeError, ValueError
            If the data do not fit; nothing of them was taken, except the earlier batches of a stream.
        OSError
            If the disk fails; the writer is closed then, and no file appears.
        """
        if self._closed:
            raise ValueError("write to a closed writer")
        options: Mapping[str, Any] = {"nullable": self._nullable, "like": self._schema}
        if is_stream(data):
            for batch in ingest_columns_stream(data, **options):
                self.take(batch)
                self._groups.keep()
        else:
            self.take(ingest_columns(data, **options))
            self._groups.keep()

    def take(self, batch: ColumnBatch) -> None:
        """Append rows of the file's schema that stay as they are until the file is closed: they are not copied."""
        if self._encoder is None:
            self._encoder = encoder_for(self._format, batch.schema, **self._options)
            self._schema = batch.schema
            self._append([self._encoder.begin()])
        self._n_rows += batch.n_rows
        for columns in self._groups.add(batch):
            self._write_group(columns)

    def _write_group(self, columns: list[ColumnData]) -> None:
        assert self._encoder is not None
        try:
            parts = self._encoder.segment(columns)
        except BaseException:
            self.abort()  # rows of earlier calls may be among them, which cannot be given back
            raise
        self._append(parts)

    def _append(self, parts: Sequence[bytes | memoryview]) -> None:
        try:
            self._output.append(parts)
        except BaseException:
            self.abort()
            raise

    def commit(self) -> NoReturn:
        """Raise `io.UnsupportedOperation`: the file appears when the writer is closed, not in parts."""
        raise io.UnsupportedOperation(
            f"a new {self._format} file appears when its writer is closed and has no commits before; close it, and "
            "go on with update(), which commits"
        )

    def close(self) -> None:
        """Write what waits and the end of the file, and publish it. Does nothing the second time.

        Raises
        ------
        ValueError
            If there is no schema: nothing was written, and none was given. No file appears.
        """
        if self._closed:
            return
        try:
            if self._encoder is None:
                raise ValueError("nothing was written, and no schema was given: there is no table to store")
            rest = self._groups.rest()
            if rest is not None:
                self._append(self._encoder.segment(rest))
            self._append([self._encoder.finish()])
            self._output.flush()
            self._destination.sync()
            self._destination.publish()
        except BaseException:
            self.abort()
            raise
        self._end()
        self._destination.close()

    def abort(self) -> None:
        """Close without a file: what was written goes."""
        if not self._closed:
            self._end()
            self._destination.give_up()

    def _end(self) -> None:
        self._closed = True
        finalisers.forget(self)

    def abandon_in_child(self) -> None:
        """Let go of everything in a forked child: it is the parent's."""
        self._closed = True
        self._destination.abandon()

    def _is_untouched(self) -> bool:
        return not self._n_rows

    def _give_up(self) -> None:
        self.abort()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"{self!r} was never closed; nothing was stored", ResourceWarning, stacklevel=2)
            self.abort()


@contextlib.contextmanager
def whole(writer: EncodedWriter) -> Iterator[EncodedWriter]:
    """Close `writer` when the block ends; abort it when the block raises: for calls that write all or nothing."""
    try:
        yield writer
    except BaseException:
        writer.abort()
        raise
    writer.close()


def _without_columns(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that can be checked before the columns are known."""
    return {name: value for name, value in options.items() if not isinstance(value, Mapping)}


def _destination(target: Target, mode: EncodedMode) -> Destination:
    exclusive = mode == "create"
    if target.location is not None:
        return Upload(target.location, exclusive=exclusive)
    assert target.local_path is not None
    return Replacement(target.local_path, exclusive=exclusive)


def store_encoded(
    data: Any,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    mode: EncodedMode = "create",
    row_group_size: int | None = None,
    nullable: bool | str | Sequence[str] | None = None,
    storage_options: Any = None,
    filesystem: Any = None,
    **encoder_options: Any,
) -> Path | str:
    """Write a table, or a stream of tables, to a file of an encoded format.

    Parameters
    ----------
    data : table or stream
        Data in memory are checked before a file is made; of a stream, one row group is in memory at a time.
    path, format, mode, row_group_size, nullable, storage_options, filesystem, **encoder_options
        As in `EncodedWriter`.

    Returns
    -------
    Path or str
        `path`.
    """
    schema = None
    if not is_stream(data):
        target = resolve_target(path, storage_options=storage_options, filesystem=filesystem)
        if mode == "create" and target.local_path is not None and os.path.lexists(target.local_path):
            raise FileExistsError(errno.EEXIST, EXISTS, target.spelling)
        data = ingest_columns(data, nullable=nullable)
        schema = data.schema
    new = EncodedWriter(
        path,
        format,
        schema,
        mode=mode,
        row_group_size=row_group_size,
        nullable=nullable,
        storage_options=storage_options,
        filesystem=filesystem,
        **encoder_options,
    )
    with whole(new) as writer:
        if schema is None:
            writer.write(data)
        else:
            writer.take(data)  # it is the caller's until the file is closed, and need not be copied
    return writer.path
