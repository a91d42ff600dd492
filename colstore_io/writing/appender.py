"""Batches in, shards out: one whenever enough rows have come together (cstore-behaviour.md 5.1)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import CommitConflictError, FormatError
from ..fields import PhysicalColumn, Schema
from ..formats import ShardMeta
from ..ingest import Batch, ingest
from ..ingest.variable import ColumnBatch
from . import finalisers
from .batch_schema import Attributes, batch_columns, check_columns
from .blocks import FinishedWhenDropped
from .encoded_shards import check_encoded_options, ingest_like, write_encoded_shard
from .progress import parse_byte_size
from .publish import Destination
from .shard_directory import DEFAULT_STEM, ShardDirectory, ShardName
from .storing import write_table

__all__ = ["DEFAULT_NAME", "Appender", "ingest_options"]

DEFAULT_NAME = f"{DEFAULT_STEM}.cstore"


def ingest_options(
    first: ShardMeta | None, strings: str, string_width: Mapping[str, int] | None, nullable: Any
) -> dict[str, Any]:
    options: dict[str, Any] = {"strings": strings, "string_width": string_width, "nullable": nullable}
    if first is not None:
        options["like"] = first.schema
    return options


class _Records:
    """Batches of a directory of `.cstore` files."""

    def __init__(
        self,
        place: ShardDirectory,
        statistics: bool,
        strings: str,
        string_width: Mapping[str, int] | None,
        nullable: Any,
        attributes: Attributes,
    ) -> None:
        self._place = place
        self._statistics = statistics
        self._attributes = attributes
        self._options = ingest_options(place.first, strings, string_width, nullable)

    def take(self, data: Any, waiting: Sequence[Batch]) -> Batch:
        """Return `data` in memory of our own, if they fit the shards and the batches that wait."""
        batch = ingest(data, **self._options)
        self._place.check_batch(batch)
        if waiting:
            _check_same(waiting[0], batch)
        self._options["like"] = self._options.get("like", batch.schema)
        return Batch(batch.schema, tuple(np.array(a) for a in batch.arrays), batch.n_rows)

    @staticmethod
    def row_bytes(batch: Batch) -> float:
        return sum(array.dtype.itemsize for array in batch.arrays)

    def write(self, batches: Sequence[Batch], make: Callable[[], Destination]) -> None:
        """Write batches as one shard."""
        write_table(
            _joined(batches),
            make,
            name=self._place.name.template,
            statistics=self._statistics,
            options={},
            attributes=self._attributes,
            show_progress=False,
        )


class _EncodedColumns:
    """Batches of a directory of files of an encoded format."""

    def __init__(self, place: ShardDirectory, nullable: Any, options: Mapping[str, Any]) -> None:
        self._place = place
        self._nullable = nullable
        self._options = options
        self._schema: Schema | None = None if place.first is None else place.first.schema
        self._where = "" if place.first is None else place.first.path

    def take(self, data: Any, waiting: Sequence[ColumnBatch]) -> ColumnBatch:
        """Return `data` in memory of our own, if they fit the shards and the batches that wait."""
        batch = ingest_like(data, self._schema, self._nullable, self._where)
        self._schema = batch.schema
        return batch.owned()

    @staticmethod
    def row_bytes(batch: ColumnBatch) -> float:
        return sum(column.nbytes for column in batch.columns) / max(1, batch.n_rows)

    def write(self, batches: Sequence[ColumnBatch], make: Callable[[], Destination]) -> None:
        """Write batches as one shard."""
        write_encoded_shard(
            iter(batches),
            make,
            path=self._place.target.spelling,
            kind=self._place.format,
            first=self._schema,
            where=self._where,
            options=self._options,
        )


class Appender(FinishedWhenDropped):
    """Collects batches and writes a new shard whenever enough rows have come together.

    Parameters
    ----------
    directory : path or URL
        Made if it does not exist. Its lock is held until `close`.
    name : str, optional
        Template with an ``{index}`` field; a literal name allows one shard, and no `shard_size`. Default:
        ``shard_00000`` and so on, with the suffix of the format.
    shard_size : int or str, optional
        Rows, or a size such as ``"256 MiB"`` (the rows that fit into it, before compression). A shard holds everything
        that is buffered when the size is reached, so it may be larger. None writes on `flush` and `close` only.
    format : {"cstore", "columns", "colbin"}, optional
        Of the shards. Default: that of the files that there are, else what `name` says, else "cstore".
    statistics, strings, string_width, nullable, attrs, column_attrs
        As in `append`; of these only `nullable` for other formats than "cstore".
    **encoder_options
        As in `append`.

    Raises
    ------
    ValueError
        If `name` is no shard name, or literal together with a `shard_size`; if the directory holds another format.
    WriterLockedError
        If another writer holds the directory.

    Notes
    -----
    Not thread-safe. Memory: the buffered batches (copies). `BlockWriter` says what a
    ``with`` block does that raises. An appender that is dropped unclosed flushes from its finaliser with a
    `ResourceWarning`.
    """

    _finishing = "flushing"

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        name: str | None = None,
        shard_size: int | str | None = None,
        format: str | None = None,
        statistics: bool = False,
        strings: Literal["unicode", "bytes"] = "unicode",
        string_width: Mapping[str, int] | None = None,
        nullable: bool | Sequence[str] | None = None,
        attrs: Mapping[str, Any] | None = None,
        column_attrs: Mapping[str, Mapping[str, Any]] | None = None,
        storage_options: Any = None,
        filesystem: Any = None,
        **encoder_options: Any,
    ) -> None:
        self._closed = True
        self._row_budget, self._byte_budget = _shard_budget(shard_size)
        if shard_size is not None and name is not None and ShardName(name).literal:
            raise ValueError(
                f"a literal name ({name!r}) cannot have a shard_size; use a template with {{index}}"
            )
        self._pending: list[Any] = []
        self._pending_rows = 0
        self._n_shards = 0
        self._place = ShardDirectory(directory, name, storage_options, filesystem, format)
        self._shards: Any
        try:
            cstore = {
                "statistics": statistics,
                "strings": strings,
                "string_width": string_width,
                "attrs": attrs,
                "column_attrs": column_attrs,
            }
            check_encoded_options(self._place.format, cstore, encoder_options)
            if self._place.format == "cstore":
                attributes = Attributes(attrs, column_attrs)
                self._shards = _Records(self._place, statistics, strings, string_width, nullable, attributes)
            else:
                self._shards = _EncodedColumns(self._place, nullable, encoder_options)
        except BaseException:
            self._place.release()
            raise
        self._closed = False
        finalisers.watch(self)

    @property
    def directory(self) -> Path | str:
        return self._place.target.result

    @property
    def n_shards(self) -> int:
        """Shards written so far."""
        return self._n_shards

    @property
    def pending_rows(self) -> int:
        """Rows that wait for the next shard."""
        return self._pending_rows

    def __repr__(self) -> str:
        state = "closed " if self._closed else ""
        counts = f"shards={self._n_shards} pending_rows={self._pending_rows}"
        return f"<{state}Appender {self._place.target.spelling!r} {counts}>"

    def write(self, data: Any) -> None:
        """Buffer `data`, and write a shard if enough has come together.

        Raises
        ------
        ValueError
            If the appender is closed.
        SchemaMismatchError
            If `data` do not fit the shards or the batches before; they are not buffered then.
        OSError
            If a shard could not be written; its rows are still buffered.
        """
        if self._closed:
            raise ValueError(f"the appender of {self._place.target.spelling} is closed")
        if isinstance(data, Mapping) and not data:
            return
        batch = self._shards.take(data, self._pending)  # copies: the caller may reuse its arrays
        self._pending.append(batch)
        self._pending_rows += batch.n_rows
        if self._pending_rows >= self._rows_per_shard(batch):
            self.flush()

    def _rows_per_shard(self, batch: Any) -> float:
        if self._row_budget is not None:
            return self._row_budget
        if self._byte_budget is not None:
            row_bytes: float = self._shards.row_bytes(batch)
            return max(1.0, self._byte_budget // max(row_bytes, 1 / 64))
        return float("inf")

    def flush(self) -> None:
        """Write everything that is buffered as one shard; does nothing when there are no rows.

        Raises
        ------
        ValueError
            If the appender is closed, or a literal name has been used already.
        """
        if self._closed:
            raise ValueError(f"the appender of {self._place.target.spelling} is closed")
        self._flush()

    def _flush(self) -> None:
        if not self._pending_rows:
            return
        if self._n_shards and self._place.name.literal:
            raise ValueError(f"the literal name {self._place.name.template!r} can be written once only")
        destinations: list[Destination] = []

        def make() -> Destination:
            destinations.append(self._place.new_shard())
            return destinations[-1]

        self._shards.write(self._pending, make)
        waiting = self._pending, self._pending_rows
        self._pending, self._pending_rows = [], 0
        self._n_shards += 1
        try:
            self._place.published(destinations[-1])
        except (CommitConflictError, FormatError):  # the shard was taken away again, so its rows wait on
            self._pending, self._pending_rows = waiting
            self._n_shards -= 1
            raise

    def close(self) -> None:
        """Flush, and give the lock of the directory back; does nothing the second time."""
        if not self._end():
            return
        try:
            self._flush()
        finally:
            self._place.release()

    def _let_go(self) -> None:
        self._place.release()


def _shard_budget(shard_size: int | str | None) -> tuple[int | None, int | None]:
    """Return (rows, bytes), at most one of them set."""
    if shard_size is None:
        return None, None
    if isinstance(shard_size, str):
        return None, parse_byte_size(shard_size)
    if isinstance(shard_size, bool) or not isinstance(shard_size, (int, np.integer)):
        raise TypeError(f"shard_size must be rows, a size such as '256 MiB', or None, got {shard_size!r}")
    if shard_size < 1:
        raise ValueError(f"shard_size must be at least 1 row, got {shard_size}")
    return int(shard_size), None


def _check_same(first: Batch, batch: Batch) -> None:
    columns = [PhysicalColumn(name, dtype) for name, dtype in batch_columns(first.schema)]
    check_columns(columns, batch, "the batches before")


def _joined(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    arrays = tuple(np.concatenate(parts) for parts in zip(*(b.arrays for b in batches), strict=True))
    return Batch(batches[0].schema, arrays, sum(b.n_rows for b in batches))
