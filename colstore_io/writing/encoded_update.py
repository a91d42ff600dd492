"""Append to files of encoded formats: what `update` and `append` give for them.

Rows are gathered until `Update.commit`, which makes them durable in one step: row groups and a new footer
(docs/columns-append.md), or one message of a log (docs/format-colbin-log.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from .. import formats, storage
from ..errors import SchemaMismatchError
from ..fields import Schema
from ..ingest import is_stream
from ..ingest.variable import ColumnBatch, ingest_columns, ingest_columns_stream
from ..storage import IOStats
from .encoded_append import append_row_groups
from .encoding import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from .messagelog import LogWriter
from .uncopyable import Uncopyable

__all__ = ["Update", "append_encoded"]


def _append_columns(path: str, batches: list[ColumnBatch], options: dict[str, Any]) -> None:
    append_row_groups(iter(batches), path, **options)


def _append_log(path: str, batches: list[ColumnBatch], options: dict[str, Any]) -> None:
    with LogWriter(path, **options) as log:
        for batch in batches:
            log.write_table(dict(zip(batch.schema.names, batch.columns, strict=True)))
        log.commit()


_APPENDERS: dict[str, Callable[[str, list[ColumnBatch], dict[str, Any]], None]] = {
    "columns": _append_columns,
    "colbin": _append_log,
}


class Update(Uncopyable):
    """Appends rows to an existing file of an encoded format.

    Parameters
    ----------
    path : path
        A local file.
    **options
        Of the format: `append_row_groups` or `LogWriter`.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is an object of a store, which nobody can append to.

    Notes
    -----
    `commit` makes what was written since the last one durable and visible. A full row group is committed by itself.
    Closing commits; leaving a ``with`` block by an exception does not. Not thread-safe.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self.path = os.fspath(path)
        self._options = options
        self._pending: list[ColumnBatch] = []
        self._closed = False
        found = storage.resolve(path)
        if found.kind != "file":
            raise ValueError(f"{self.path} is a {found.kind}; name one file")
        if found.locations[0].local_path is None:
            raise ValueError(f"{self.path}: objects of a store cannot be appended to; write another file")
        ((file, head),) = storage.open_files(found.locations, io=IOStats())
        with file:
            kind = formats.detect(head, file.spelling)
            (meta,) = kind.read_metadata([file], [head])
        if kind.name not in _APPENDERS:
            raise ValueError(f"{self.path} is a {kind.name} file, which has a writer of its own")
        self._append = _APPENDERS[kind.name]
        self._schema = meta.schema

    @property
    def schema(self) -> Schema:
        """Columns of the file."""
        return self._schema

    @property
    def closed(self) -> bool:
        return self._closed

    def write(self, data: Any) -> None:
        """Take rows; nothing is in the file before the next commit.

        Parameters
        ----------
        data : table or stream
            Columns with the names and types of the file.

        Raises
        ------
        SchemaMismatchError
            If they do not fit; nothing of `data` is taken then.
        ValueError
            If closed.
        """
        if self._closed:
            raise ValueError(f"the writer of {self.path} is closed")
        for batch in self._batches(data):
            self._pending.append(batch)
            rows = sum(pending.n_rows for pending in self._pending)
            if rows >= ROW_GROUP_ROWS or _nbytes(self._pending) >= ROW_GROUP_BYTES:
                self.commit()

    def _batches(self, data: Any) -> Iterator[ColumnBatch]:
        if is_stream(data):
            yield from ingest_columns_stream(data, like=self._schema)
        else:
            yield ingest_columns(data, like=self._schema)

    def commit(self) -> None:
        """Append what was written since the last commit; durable when it returns."""
        if self._pending:
            self._append(self.path, self._pending, dict(self._options))
            self._pending = []

    def close(self) -> None:
        """Commit, and end. Idempotent."""
        if not self._closed:
            self.commit()
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._pending, self._closed = [], True

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{sum(b.n_rows for b in self._pending)} rows pending"
        return f"<Update {self.path}: {state}>"


def append_encoded(path: str | os.PathLike[str], data: Any, **options: Any) -> str:
    """Append rows to a file in one commit, and return its path; all of `data` or nothing is in the file afterwards.

    Raises
    ------
    SchemaMismatchError
        If the rows do not fit.
    """
    with Update(path, **options) as update:
        batches = list(update._batches(data))
        if any(batch.schema.names != update.schema.names for batch in batches):
            raise SchemaMismatchError(f"{update.path} has columns {update.schema.names}")
        update._pending.extend(batches)
    return update.path


def _nbytes(batches: list[ColumnBatch]) -> int:
    return sum(column.nbytes for batch in batches for column in batch.columns)
