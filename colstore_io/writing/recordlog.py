"""How is a commit made? Records appended to a file, and the counters that make them count (cstore.md section 8).

A `RecordLog` appends records to a file whose counters do not know of them yet; a commit makes the bytes durable, then
rewrites the counters, then makes those durable. A crash at any byte leaves the last commit.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fields import PhysicalColumn, Schema
from ..formats import ShardMeta
from ..formats.cstore.extras import column_objects, top_level_extra
from ..formats.cstore.footer import (
    Bounds,
    check_statistics_columns,
    empty_statistics,
    encode_statistics,
    record_statistics,
    statistics_entries,
)
from ..formats.cstore.header import COUNTERS_OFFSET, encode_counters, encode_header
from ..formats.cstore.manifest import encode_manifest, physical_columns
from ..formats.cstore.records import BODY_ALIGNMENT, RECORD_HEADER_SIZE, encode_record_header
from ..kernels.records import encode_record
from .indexing import KnownIndex, keep_index
from .output import AlignedOutput, write_at
from .publish import Destination
from .uncopyable import Uncopyable

__all__ = ["RecordLog"]

_MAX_MARKS = 4096

_PLAIN_BYTES = 256 << 10
"""Larger records go to the output column by column: there, the copy is what takes the time."""


class RecordLog(Uncopyable):
    """Records appended to one file, and the commits that make them count. Knows nothing of names and locks.

    Parameters
    ----------
    destination : Destination
        Owned: closed by `finish`, `discard` and `give_up`.
    statistics : bool
        Write a footer when finishing.
    path : str
        The file as the user spells it, for messages.
    """

    def __init__(self, destination: Destination, *, statistics: bool, path: str = "the file") -> None:
        self.destination = destination
        self._path = path
        self._footer_error: Exception | None = None
        self.output = AlignedOutput(destination.fd, keep=not destination.is_spool)
        self.columns: tuple[PhysicalColumn, ...] = ()
        self.has_header = False
        self.n_records = 0
        self.n_rows = 0
        self._entries: list[list[Bounds]] | None = [] if statistics else None
        self._end = 0  # behind the last complete record (or the header)
        self._committed = (0, 0, 0)  # the counters as they are on disk
        # Since the last commit: (end, records, rows) behind each record that may not be in the file yet.
        self._waiting: list[tuple[int, int, int]] = []
        self._most_marks = _MAX_MARKS
        self._header = b""
        self._row_bytes = 0
        self._appended: list[int] | None = None
        self._index: KnownIndex | None = None

    def resume(self, meta: ShardMeta, index: KnownIndex | None = None) -> None:
        """Go on behind the last committed record of an existing file, cutting off whatever follows it.

        Parameters
        ----------
        meta : ShardMeta
            What the file says.
        index : KnownIndex, optional
            The index beside it, which `finish` keeps true.

        Raises
        ------
        ValueError
            If statistics are wanted and a footer cannot name the columns; nothing was changed.
        """
        if self._entries is not None:
            check_statistics_columns(meta.columns)
        if index is not None:
            self._index, self._appended = index, []
        self._set_columns(meta.columns)
        self.has_header = True
        self.n_records, self.n_rows = meta.n_records, meta.n_rows
        self._end = meta.committed_end
        self._committed = (meta.n_records, meta.n_rows, meta.stats_offset)
        if self._entries is not None:
            if meta.statistics is not None:
                self._entries = statistics_entries(meta.statistics, meta.columns, meta.n_records)
            else:
                self._entries = [empty_statistics(meta.columns)] * meta.n_records
        self.output = AlignedOutput(self.destination.fd, meta.committed_end)
        if meta.file_size > meta.committed_end:
            self.output.truncate(meta.committed_end)

    def begin(self, schema: Schema) -> None:
        """Fix the columns. Nothing is written before the first record is (cstore.md 8.1 step 4).

        Raises
        ------
        TypeError, ValueError
            If a name, a dtype or an attribute cannot be stored.
        """
        objects = column_objects(schema)
        if not objects:
            raise ValueError("nothing to write: no columns")
        columns = physical_columns(objects)
        if self._entries is not None:
            check_statistics_columns(columns)
        self._header = encode_header(encode_manifest(objects, top_level_extra(schema.attrs)), 0, 0)
        self._set_columns(columns)

    def _set_columns(self, columns: tuple[PhysicalColumn, ...]) -> None:
        self.columns = columns
        self._row_bytes = sum(column.itemsize for column in columns)

    @property
    def header_size(self) -> int:
        """Bytes in front of the first record's header; 0 before `begin`."""
        return len(self._header)

    @property
    def end(self) -> int:
        """Offset behind the last record."""
        return self._end

    def append(self, arrays: Sequence[NDArray[Any]], n_rows: int) -> None:
        """Append one record, whole or not at all.

        Parameters
        ----------
        arrays : sequence of ndarray, shape (n_rows,)
            In the order and the stored dtypes of `columns`. Not kept, and not modified.

        Raises
        ------
        OSError
            As the system gives it. The file ends behind the last good record again, and the log stays usable.
        """
        # Most streams are many small records: this is written for few calls, not for few lines.
        entries = self._entries
        entry = None if entries is None else record_statistics(arrays)
        output = self.output
        values = n_rows * self._row_bytes
        padding = -values % BODY_ALIGNMENT
        size = RECORD_HEADER_SIZE + values + padding
        parts: list[bytes | NDArray[Any]] = [encode_record_header(self.n_records, n_rows), *arrays]
        if padding:
            parts.append(bytes(padding))
        if not self.has_header:
            parts.insert(0, self._header)
            size += len(self._header)
        if output.end != self._end:  # an interrupt struck between a write and its account
            output.truncate(self._end)
        output.append_arrays(parts, size)
        self.has_header = True
        if entry is not None and entries is not None:
            entries.append(entry)
        self._account(size, n_rows)

    def append_plain(self, values: list[Any], dtypes: list[np.dtype[Any]]) -> bool:
        """Append a small record of arrays that can be written as they stand; False when these are not such.

        Parameters
        ----------
        values : list
            In the order of `columns`.
        dtypes : list of numpy.dtype
            Of `columns`.

        Raises
        ------
        OSError
            As `append`.
        """
        if self._entries is not None or not self.has_header:
            return False
        record = encode_record(values, dtypes, self.n_records, _PLAIN_BYTES)
        if record is None:
            return False
        output = self.output
        if output.end != self._end:
            output.truncate(self._end)
        size = len(record)
        output.append_arrays((record,), size)
        self._account(size, len(values[0]))
        return True

    def _account(self, size: int, n_rows: int) -> None:
        """Count a record that `output` has taken."""
        output = self.output
        self._end += size
        self.n_records += 1
        self.n_rows += n_rows
        waiting = self._waiting
        waiting.append((self._end, self.n_records, self.n_rows))
        if self._appended is not None:
            self._appended.append(n_rows)
        if len(waiting) > self._most_marks:
            # Of those that are in the file, the last one is enough.
            first = sum(end <= output.written for end, _, _ in waiting)
            del waiting[: max(0, first - 1)]
            # Tiny records may all wait still: looking again at each of the next ones would take quadratic time.
            self._most_marks = max(_MAX_MARKS, 2 * len(waiting))

    def commit(self) -> None:
        """Make all records durable, then count them, then make that durable, then publish (cstore.md 8.1).

        Raises
        ------
        OSError
            As the system gives it. The records wait on: another `commit` or `finish` tries again.
        """
        if not self.has_header:
            return
        self._flush()
        self._count(0)

    def finish(self, *, whole: bool = False) -> None:
        """Write the footer if there is one, commit, and close. Without a header nothing is left behind.

        Parameters
        ----------
        whole : bool
            Treat a footer that cannot be written as any other error: for one-shot writes, whose caller has the data
            still.

        Raises
        ------
        OSError
            As the system gives it. In a file that is public already, the records that did reach it are committed
            nevertheless, and a note says how many; a file that is not stays unpublished.

        Warns
        -----
        RuntimeWarning
            If only the footer could not be written: all records are committed without it.
        """
        if not self.has_header:
            self.discard()
            return
        try:
            self._finish(whole)
            if self._index is not None and self._appended:
                keep_index(self._index, self.destination.fd, self._appended)
        except BaseException:
            self.destination.give_up()
            raise
        self.destination.close()
        if self._footer_error is not None:  # now that nothing can be lost where warnings are errors
            warnings.warn(
                f"{self._path}: the rows are committed, but without statistics, which could not be written "
                f"({self._footer_error}). Readers find all rows, but cannot skip any by their bounds.",
                RuntimeWarning,
                stacklevel=3,
            )

    def _finish(self, whole: bool) -> None:
        try:
            self._flush()
        except OSError as exc:
            if self.destination.is_public:
                self._commit_what_fits(exc)
            raise
        if self._entries is None or not self.n_records:
            self._count(0)
            return
        try:
            footer = encode_statistics(self.columns, self._entries)
            self.output.append([footer])
            self.output.flush()
        except Exception as exc:
            if whole:
                raise
            # The data matter more than their statistics, which are advisory (cstore.md 7).
            self._footer_error = exc
            with contextlib.suppress(OSError):  # bytes behind the committed end are nobody's
                self.output.truncate(self._end)
            self._count(0)
            return
        self._count(self._end)

    def seal(self) -> bytes:
        """Make the file readable without publishing it; return the footer of its rows taken as one record."""
        self._flush()
        write_at(
            self.destination.fd, [memoryview(encode_counters(self.n_records, self.n_rows))], COUNTERS_OFFSET
        )
        if self._entries is None:
            return b""
        return encode_statistics(self.columns, [merged_bounds(self.columns, self._entries)])

    def _flush(self) -> None:
        if self.output.end != self._end:  # see append
            self.output.truncate(self._end)
        self.output.flush()

    def _count(self, stats_offset: int) -> None:
        counters = (self.n_records, self.n_rows, stats_offset)
        if counters != self._committed:
            self.destination.sync()
            write_at(self.destination.fd, [memoryview(encode_counters(*counters))], COUNTERS_OFFSET)
            self.destination.sync()
            self._committed = counters
        self.destination.publish()
        self._waiting.clear()

    def _commit_what_fits(self, exc: OSError) -> None:
        kept: tuple[int, int, int] | None = None
        for mark in self._waiting:
            try:
                self.output.flush(mark[0])
            except OSError:
                break
            kept = mark
        if kept is None:
            return
        lost = self.n_records - kept[1]
        with contextlib.suppress(OSError):
            self.output.truncate(kept[0])
            self._end, self.n_records, self.n_rows = kept
            self._count(0)
            exc.add_note(
                f"the first {self.n_records} records ({self.n_rows} rows) are committed, the last {lost} are lost"
            )

    def discard(self) -> None:
        """Close, leaving no trace; for a log without a header."""
        self.destination.discard()


def merged_bounds(columns: Sequence[PhysicalColumn], entries: Sequence[Sequence[Bounds]]) -> list[Bounds]:
    """Return the bounds of non-empty records taken together: what `record_statistics` would say of all rows."""
    merged: list[Bounds] = []
    for position, column in enumerate(columns):
        own = [entry[position] for entry in entries]
        if all(bounds.prunable for bounds in own):
            low = np.frombuffer(b"".join(bounds.minimum for bounds in own), column.dtype).argmin()
            high = np.frombuffer(b"".join(bounds.maximum for bounds in own), column.dtype).argmax()
            merged.append(Bounds(own[low].minimum, own[high].maximum, True))
        else:
            merged.append(Bounds(bytes(column.itemsize), bytes(column.itemsize), False))
    return merged
