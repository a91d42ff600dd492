"""The streaming `Writer`: records go into a file one by one, and count when they are committed (cstore.md 8.1)."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import SchemaMismatchError, UnsupportedFeatureError
from ..fields import Schema
from ..formats import ShardMeta
from ..ingest import Batch, ingest
from ..ingest.columns import refuse_surrogates
from . import finalisers
from .batch_schema import Attributes, check_columns
from .blocks import FinishedWhenDropped
from .indexing import KnownIndex, known_index
from .locks import open_locked
from .merging import open_sources
from .publish import Destination, InPlace, Replacement, Target, Upload, resolve_target, unappendable
from .recordlog import RecordLog
from .storing import store_file

__all__ = ["Writer", "WriterMode", "store_file"]

WriterMode = Literal["create", "recreate", "update"]


def _open_destination(target: Target, mode: WriterMode) -> Destination:
    if target.location is not None:
        if mode != "recreate":
            raise unappendable(target.spelling, mode)
        return Upload(target.location)
    assert target.local_path is not None
    if mode == "create":
        try:
            file = open_locked(target.local_path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            hint = "the file exists; recreate() replaces it, update() appends to it"
            raise FileExistsError(errno.EEXIST, hint, target.local_path) from None
        return InPlace(file, created=True)
    if mode == "recreate":
        return Replacement(target.local_path)
    return InPlace(open_locked(target.local_path), created=False)


class _Plain(NamedTuple):
    """Names and dtypes of a file whose columns are all what they seem: no companions, no foreign byte order."""

    names: list[str]
    dtypes: list[np.dtype[Any]]
    texts: list[str]


class Writer(FinishedWhenDropped):
    """A `.cstore` file being written record by record.

    Parameters
    ----------
    path : path or URL
    mode : {"create", "recreate", "update"}
        ``"create"`` makes a new file and writes in it from the start. ``"recreate"`` writes a temporary file that
        replaces the target at the first commit; until then readers see the old file, and it stays untouched when
        nothing is written. ``"update"`` appends records to an existing file.
    statistics : bool
        Keep smallest and largest value per record and column in a footer. ``"update"`` without it drops an
        existing footer.
    strings, string_width, nullable
        How values that are not NumPy arrays become columns; see `ingest.ingest`.
    attrs, column_attrs : mapping, optional
        Attributes of the table, and of columns by name (cstore.md 4.2), besides those that the first data bring. Not
        with ``"update"``.
    storage_options, filesystem
        For URLs. An object store takes ``"recreate"`` only, as one upload per commit.

    Raises
    ------
    FileExistsError, FileNotFoundError
        ``"create"`` of what exists, ``"update"`` of what does not.
    WriterLockedError
        Another writer holds the lock; nothing was changed.
    FormatError
        ``"update"`` of a damaged file, or of one in an older layout; nothing was changed.
    ValueError
        ``"update"`` with `statistics` of a file whose column names cannot stand in a footer (cstore.md 7); nothing
        was changed.
    io.UnsupportedOperation
        ``"create"`` and ``"update"`` on an object store.

    Notes
    -----
    What was written counts when `commit` or `close` returns, and nothing of it before (cstore.md 8.1 and 8.2);
    `BlockWriter` says what a ``with`` block does that raises. A writer that is dropped unclosed commits from its
    finaliser with a `ResourceWarning`. Two ``"recreate"`` of a name that does not exist yet do not see each other, as
    there is no file that one could lock: both go on, and the one that is closed last has the name, whole. When one of
    them has committed and is not closed yet, a commit of the other raises `WriterLockedError`. Not thread-safe;
    cannot be pickled or copied (`TypeError`). In a forked child the writer is dead: file and lock are the parent's.

    Examples
    --------
    >>> import numpy as np, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "log.cstore")
    >>> with Writer(path) as writer:
    ...     writer.write({"x": np.arange(3)})
    ...     writer.write({"x": np.arange(2)})
    ...     len(writer)
    5
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: WriterMode = "create",
        *,
        statistics: bool = False,
        strings: Literal["unicode", "bytes"] = "unicode",
        string_width: Mapping[str, int] | None = None,
        nullable: bool | Sequence[str] | None = None,
        attrs: Mapping[str, Any] | None = None,
        column_attrs: Mapping[str, Mapping[str, Any]] | None = None,
        storage_options: Any = None,
        filesystem: Any = None,
    ) -> None:
        self._closed = True  # until the file is open, there is nothing for a finaliser to commit
        if mode not in ("create", "recreate", "update"):
            raise ValueError(f"mode must be 'create', 'recreate' or 'update', got {mode!r}")
        self._attributes = Attributes(attrs, column_attrs)
        if self._attributes and mode == "update":
            raise ValueError("mode 'update' cannot set attributes: the header of a file is never rewritten")
        self._target = resolve_target(path, storage_options=storage_options, filesystem=filesystem)
        self._mode: WriterMode = mode
        self._options: dict[str, Any] = {
            "strings": strings,
            "string_width": string_width,
            "nullable": nullable,
        }
        self._schema: Schema | None = None
        self._plain: _Plain | None = None
        destination = _open_destination(self._target, mode)
        self._log = RecordLog(destination, statistics=statistics, path=self._target.spelling)
        if mode == "update":
            try:
                meta, index = _read_for_update(self._target)
                self._log.resume(meta, index)
                self._set_schema(meta.schema)
            except BaseException:
                destination.close()
                raise
        self._closed = False
        finalisers.watch(self)

    @property
    def path(self) -> Path | str:
        """Where the file will be: a `Path`, or the URL as it was given."""
        return self._target.result

    @property
    def mode(self) -> str:
        return self._mode

    @property
    def n_records(self) -> int:
        """Records in the file so far, those that are not yet committed included."""
        return self._log.n_records

    @property
    def committed_rows(self) -> int:
        """Rows in the file so far: what the counter of this name will say at the next commit."""
        return self._log.n_rows

    @property
    def schema(self) -> Schema | None:
        """The columns; None before the first write to a new file."""
        return self._schema

    def __len__(self) -> int:
        return self._log.n_rows

    def __bool__(self) -> bool:
        return True  # an empty writer is still a writer

    def __repr__(self) -> str:
        state = "closed " if self._closed else ""
        return f"<{state}Writer {self._target.spelling!r} mode={self._mode} records={self.n_records} rows={len(self)}>"

    def write(self, data: Any) -> None:
        """Append `data` as one record.

        Parameters
        ----------
        data : mapping, DataFrame, structured array, Arrow table, Batch, ...
            Anything that `ingest.ingest` takes. An empty mapping does nothing; columns of zero rows make a record of
            zero rows. The first data fix names, order and dtypes; later data must match. Nothing is kept of it.

        Raises
        ------
        ValueError
            If the writer is closed.
        SchemaMismatchError
            If `data` do not fit the columns; nothing was written, the writer stays usable.
        OSError
            If the disk is full, ...: the file ends behind the last good record again, the writer stays usable.
        """
        self._check_open()
        plain = self._plain
        if plain is not None and type(data) is dict and list(data) == plain.names:
            for name in plain.texts:  # no ingest will look at these
                if (
                    type(data[name]) is np.ndarray
                    and data[name].dtype.str[:2] == "<U"
                    and data[name].flags.c_contiguous
                ):
                    refuse_surrogates(name, data[name].reshape(-1))
            if self._log.append_plain(list(data.values()), plain.dtypes):
                return
        arrays = self._plain_arrays(data)
        if arrays is not None:
            self._log.append(arrays, len(arrays[0]))
            return
        if isinstance(data, Mapping) and not data:
            return
        if isinstance(data, Mapping) and self._schema is not None:
            _check_names([str(name) for name in data], self._schema.names, self._target.spelling)
        # NumPy strings of another width are another dtype here, as in every streaming writer of the format.
        batch = ingest(data, like=self._schema, exact_numpy_strings=True, **self._options)
        self._append(batch)

    def _append(self, batch: Batch) -> None:
        if self._schema is None:
            schema = self._attributes.added_to(batch.schema)
            self._log.begin(schema)
            self._log.append(batch.arrays, batch.n_rows)
            self._set_schema(schema)
        else:
            check_columns(self._log.columns, batch, self._target.spelling)
            self._log.append(batch.arrays, batch.n_rows)

    def _set_schema(self, schema: Schema) -> None:
        self._schema = schema
        # Dicts of arrays that are already what is stored need no ingest: most streams are such.
        columns = self._log.columns
        simple = len(columns) == len(schema) and all(c.dtype.str[0] != ">" for c in columns)
        self._plain = (
            _Plain(
                [c.name for c in columns],
                [c.dtype for c in columns],
                [c.name for c in columns if c.dtype.kind == "U"],
            )
            if simple and columns
            else None
        )

    def _plain_arrays(self, data: Any) -> list[NDArray[Any]] | None:
        """Return the arrays of `data` when they can be written as they stand, None when they need a closer look."""
        plain = self._plain
        if plain is None or type(data) is not dict or list(data) != plain.names:
            return None
        values = list(data.values())
        if type(values[0]) is not np.ndarray:
            return None
        shape = values[0].shape
        if len(shape) != 1:
            return None
        for array, dtype in zip(values, plain.dtypes, strict=True):
            if (
                type(array) is not np.ndarray
                or array.shape != shape
                or (array.dtype is not dtype and array.dtype != dtype)
                or not array.flags.c_contiguous
            ):
                return None
        return values

    def commit(self) -> None:
        """Make what was written so far durable and visible, and go on writing.

        The bytes are synced, then the counters rewritten and synced; the first commit of a ``"recreate"`` also
        renames the file over the target. No footer is written before `close` (cstore.md 8.1 step 7).

        Raises
        ------
        ValueError
            If the writer is closed.
        OSError
            As the system gives it; the records wait on, and the next `commit` or `close` tries again.
        """
        self._check_open()
        self._log.commit()

    def close(self) -> None:
        """Commit and close; does nothing the second time. A new file that nothing was written to is removed.

        Raises
        ------
        OSError
            As the system gives it. The writer is closed nevertheless.

        Warns
        -----
        RuntimeWarning
            If only the statistics could not be written: the rows are committed without them.
        """
        if not self._end():
            return
        self._log.finish()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"the writer of {self._target.spelling} is closed")

    def _let_go(self) -> None:
        self._log.destination.abandon()


def _check_names(names: list[str], expected: list[str], where: str) -> None:
    if names == expected:
        return
    if len(names) != len(expected):
        raise SchemaMismatchError(
            f"Schema mismatch: {where} has {len(expected)} columns, the data have {len(names)}: {names}"
        )
    at = next(i for i, pair in enumerate(zip(names, expected, strict=True)) if pair[0] != pair[1])
    raise SchemaMismatchError(
        f"Column name mismatch: column {at} of {where} is {expected[at]!r}, the data have {names[at]!r} there"
    )


def _read_for_update(target: Target) -> tuple[ShardMeta, KnownIndex | None]:
    """Read and validate a file that is about to be appended to, and its index if it has one. Changes nothing."""
    assert target.local_path is not None
    source = open_sources([Path(target.local_path)])[0]
    with source.file:
        index = known_index(source.file, source.meta)
    if source.meta.layout != "C":
        raise UnsupportedFeatureError(
            f"header layout {source.meta.layout} of an old release cannot be appended to; convert the file with "
            "colstore_io.compact(path) first",
            path=target.spelling,
        )
    return replace(source.meta, path=target.spelling), index
