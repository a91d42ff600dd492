"""Batches of columns to a log: messages that are tables, and the index at the end.

A batch is cut into messages of up to 64 Ki rows, so that a reader that wants a few rows decodes one of them, and
filters can skip messages by the bounds that the index keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...arguments import check_integer
from ...errors import SchemaMismatchError
from ...fields import Schema
from ..cstore.attributes import encode_attributes
from .decoder import SEGMENT_ROWS
from .layout import RecordColumn, list_columns
from .log import Bounds, Frames, LogHeader, encode_frame, encode_index
from .logtable import column_of, describe
from .sources import ColumnSource, column_source, rows_section
from .table_encoding import encode_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FrameStatistics", "LogEncoder", "header_of"]


def header_of(schema: Schema) -> LogHeader:
    """Return the header of a log of tables of `schema`.

    Raises
    ------
    TypeError, ValueError
        For columns that the format cannot hold, naming them.
    """
    section = rows_section([column_of(field) for field in schema])
    attrs = encode_attributes(schema.attrs, "the table") if schema.attrs else {}
    return LogHeader(section, describe(schema), attrs)


class FrameStatistics:
    """Collects what the index says about the columns of each message.

    That is the smallest and largest value of each fixed-width column, and the number of nulls of each optional one.

    Parameters
    ----------
    columns : sequence of RecordColumn
    """

    def __init__(self, columns: Sequence[RecordColumn]) -> None:
        self._dtypes = {n: c.dtype for n, c in enumerate(columns) if c.dtype is not None}
        self._found: dict[int, list[tuple[Any, Any, bool]]] = {n: [] for n in self._dtypes}
        self._nulls: dict[int, list[int]] = {n: [] for n, c in enumerate(columns) if c.optional}

    def add(self, sources: Sequence[ColumnSource] | None) -> None:
        """Take the next message's columns; None when they are not known."""
        for number, found in self._found.items():
            found.append((0, 0, False) if sources is None else _bounds_of(sources[number]))
        for number, counts in self._nulls.items():
            counts.append(-1 if sources is None else _nulls_of(sources[number]))

    def add_known(
        self, bounds: Mapping[int, Bounds], nulls: Mapping[int, NDArray[np.int64]], count: int
    ) -> None:
        """Take what an index says of `count` messages."""
        for number, found in self._found.items():
            known = bounds.get(number)
            if known is None or known.minimum.dtype != self._dtypes[number]:
                found += [(0, 0, False)] * count
            else:
                found += zip(
                    known.minimum.tolist(), known.maximum.tolist(), known.usable.tolist(), strict=True
                )
        for number, counts in self._nulls.items():
            known_counts = nulls.get(number)
            counts += [-1] * count if known_counts is None else known_counts.tolist()

    def nulls(self) -> dict[int, NDArray[np.int64]]:
        """Return the number of nulls by column number, -1 where it is not known; columns of which nothing is known are
        left out."""
        return {
            number: np.array(counts, np.int64)
            for number, counts in self._nulls.items()
            if any(count >= 0 for count in counts)
        }

    def bounds(self) -> dict[int, Bounds]:
        """Return the bounds by column number; columns that have none anywhere are left out."""
        result = {}
        for number, found in self._found.items():
            if any(usable for _, _, usable in found):
                low, high, usable = zip(*found, strict=True)
                dtype = self._dtypes[number]
                result[number] = Bounds(
                    np.array(low, dtype), np.array(high, dtype), np.array(usable, np.bool_)
                )
        return result


def _bounds_of(source: ColumnSource) -> tuple[Any, Any, bool]:
    values = source.values
    assert values is not None
    if source.validity is not None:
        values = values[source.validity.view(np.bool_)]
    if not len(values):
        return 0, 0, False
    low, high = values.min(), values.max()
    if low != low or high != high:  # a NaN is in no order: nothing may be skipped
        return 0, 0, False
    return low.item(), high.item(), True


def _nulls_of(source: ColumnSource) -> int:
    return 0 if source.validity is None else source.rows - int(np.count_nonzero(source.validity))


class LogEncoder:
    """Encodes one log, front to back; see `colstore_io.formats.FileEncoder`.

    Parameters
    ----------
    schema : Schema
        Of the columns. Fixed-width text becomes text of variable length; time units, zones and attributes go into
        the header.
    compress : bool
        Compress each message with zstd where that makes it smaller.
    threads : int
        Threads that encode the columns of a message.

    Raises
    ------
    TypeError, ValueError
        For columns that the format cannot hold, naming them.
    """

    def __init__(self, schema: Schema, *, compress: bool = False, threads: int = 1) -> None:
        # Without a column there is nothing to write, but options can be checked.
        self.header = header_of(schema) if len(schema) else LogHeader(b"")
        self.columns = list_columns(self.header.section, 1).columns if len(schema) else ()
        self._schema = schema
        self._compress = compress
        self._threads = check_integer("threads", threads, 1)
        self._sizes: list[int] = []
        self._rows: list[int] = []
        self._statistics = FrameStatistics(self.columns)

    def begin(self) -> bytes:
        """Return the header; `ValueError` for a schema without columns."""
        if not self.columns:
            raise ValueError("a log of tables needs at least one column")
        return self.header.to_bytes()

    def segment(self, columns: Sequence[NDArray[Any] | pa.Array]) -> list[bytes | memoryview]:
        """Return the frames of one batch, in parts.

        Parameters
        ----------
        columns : sequence of ndarray or pyarrow.Array
            In schema order, of equal length.

        Raises
        ------
        SchemaMismatchError, TypeError, ValueError
            If they do not fit the schema; nothing of the batch is remembered then.
        """
        if len(columns) != len(self.columns):
            raise SchemaMismatchError(f"{len(self.columns)} columns are written, {len(columns)} were given")
        n_rows = len(columns[0]) if columns else 0
        for column, data in zip(self.columns, columns, strict=True):
            if len(data) != n_rows:
                raise ValueError(f"column {column.name!r} has {len(data)} rows, the first one {n_rows}")
        encoded = []
        for low in range(0, n_rows, SEGMENT_ROWS):
            high = min(n_rows, low + SEGMENT_ROWS)
            sources = [
                column_source(column.name, storable(data[low:high]), like=column)
                for column, data in zip(self.columns, columns, strict=True)
            ]
            message = b"\xd0" + encode_rows(self.header.section, sources, threads=self._threads)
            encoded.append((encode_frame(message, high - low, compress=self._compress), high - low, sources))
        parts: list[bytes | memoryview] = []
        for frame, rows, sources in encoded:
            parts += frame
            self._sizes.append(sum(map(len, frame)))
            self._rows.append(rows)
            self._statistics.add(sources)
        return parts

    def finish(self) -> bytes:
        """Return index and trailer."""
        size, rows = np.array(self._sizes, np.int64), np.array(self._rows, np.int64)
        begin = len(self.begin())
        frames = Frames(
            begin + np.cumsum(size) - size,
            size,
            rows,
            begin + int(size.sum()),
            self._statistics.bounds(),
            nulls=self._statistics.nulls(),
        )
        return encode_index(frames)


def storable(data: NDArray[Any] | pa.Array) -> Any:
    """Return a column without what the wire lacks: times as their integers, fixed-width text as Arrow text."""
    if isinstance(data, np.ndarray):
        if data.dtype.kind in "mM":
            return data.astype(data.dtype.newbyteorder("="), copy=False).view(np.int64)
        return data
    import pyarrow as pa

    kind = data.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_date64(kind):
        return data.cast(pa.int64())
    if pa.types.is_date32(kind):
        return data.cast(pa.int32()).cast(pa.int64())
    return data
