"""Append to files of encoded formats: what `update` and `append` give for them.

Rows are gathered until `Update.commit`, which makes them durable in one step: row groups and a new footer
(docs/columns-append.md), or one message of a log (docs/format-colbin-log.md).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from .. import formats, storage
from ..errors import SchemaMismatchError
from ..fields import Schema
from ..ingest import is_stream
from ..ingest.variable import ColumnBatch, ingest_columns, ingest_columns_stream
from ..storage import IOStats
from .blocks import BlockWriter
from .encoded_append import append_row_groups
from .encoding import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from .locks import open_locked
from .messagelog import LogWriter
from .publish import resolve_target, unappendable

__all__ = ["Update", "append_encoded"]


class _Appendable(Protocol):
    """A locked file that takes batches."""

    def append(self, batches: list[ColumnBatch]) -> None:
        """Append in one commit."""
        ...

    def close(self) -> None: ...


class _ColumnsFile:
    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self._path, self._options = path, options
        self._locked = open_locked(path)
        self.close = weakref.finalize(self, self._locked.release)

    def append(self, batches: list[ColumnBatch]) -> None:
        append_row_groups(iter(batches), self._path, locked=self._locked, **self._options)
        if (
            not self._locked.is_current()
        ):  # the append went through a copy: the lock goes along to the new file
            self.close()
            self._locked = open_locked(self._path)
            self.close = weakref.finalize(self, self._locked.release)


class _Log:
    def __init__(self, path: str, options: dict[str, Any]) -> None:
        for name in options.keys() - {"compress"}:
            raise TypeError(
                f"update() of a log of messages takes no {name}=; of the options of its encoder, compress="
            )
        self._log = LogWriter(path, **options)

    def append(self, batches: list[ColumnBatch]) -> None:
        for batch in batches:
            self._log.write_table(dict(zip(batch.schema.names, batch.columns, strict=True)))
        self._log.commit()

    def close(self) -> None:
        self._log.close()


_FILES: dict[str, Callable[[str, dict[str, Any]], _Appendable]] = {"columns": _ColumnsFile, "colbin": _Log}


class Update(BlockWriter):
    """Appends rows to an existing file of an encoded format.

    Parameters
    ----------
    path : path
        A local file; never a pattern.
    **options
        Of the format: `append_row_groups` or `LogWriter`.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    io.UnsupportedOperation
        A `ValueError` and an `OSError`: if it is an object of a store, which nobody can append to.
    WriterLockedError
        If another writer is at work on it.

    Notes
    -----
    Holds the lock of the file until it is closed.
    `commit` makes what was written since the last one durable and visible. A full row group is committed by itself.
    Closing commits; `BlockWriter` says what a ``with`` block does that raises. Not thread-safe.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self.path = os.fspath(path)
        self._pending: list[ColumnBatch] = []
        self._closed = False
        target = resolve_target(path)  # a name to write to is never a pattern
        if target.local_path is None:
            raise unappendable(self.path, "update")
        found = storage.resolve(Path(target.local_path))
        if found.kind != "file":
            raise ValueError(f"{self.path} is a {found.kind}; name one file")
        ((file, head),) = storage.open_files(found.locations, io=IOStats())
        with file:
            kind = formats.detect(head, file.spelling)
            (meta,) = kind.read_metadata([file], [head])
        if kind.name not in _FILES:
            raise ValueError(f"{self.path} is a {kind.name} file, which has a writer of its own")
        self._schema = meta.schema
        self._file = _FILES[kind.name](target.local_path, options)

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
            self._pending.append(batch.owned())  # the caller may fill its arrays anew before the commit
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
            self._file.append(self._pending)
            self._pending = []

    def close(self) -> None:
        """Commit, and end. Idempotent."""
        if not self._closed:
            self.commit()
            self._give_up()

    def _give_up(self) -> None:
        self._pending, self._closed = [], True
        self._file.close()

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
        # A stream may fill the same arrays anew for each of its batches.
        batches = [batch.owned() if is_stream(data) else batch for batch in update._batches(data)]
        if any(batch.schema.names != update.schema.names for batch in batches):
            raise SchemaMismatchError(f"{update.path} has columns {update.schema.names}")
        update._pending.extend(batches)
    return update.path


def _nbytes(batches: list[ColumnBatch]) -> int:
    return sum(column.nbytes for batch in batches for column in batch.columns)
