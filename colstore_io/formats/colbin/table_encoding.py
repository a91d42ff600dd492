"""Columns to lists of records (colbin.md 7): as a table where the format wants one, else row by row.

Which form a list takes is not a choice: eight rows and more of column types are a table, everything else goes row by
row. Integer columns go through the column codec, rows through a kernel; there is no Python object per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...buffers import empty
from ...kernels import column_codec
from ...kernels import record_columns as kernel
from .layout import list_columns
from .schema import MAX_ROWS, TypeCode, write_len
from .sources import ColumnSource, column_source, named_columns, plain_columns, rows_section

__all__ = ["TABLE_ROWS", "column_parts", "encode_rows", "encode_table"]

TABLE_ROWS = 8
"""Rows from which a list of records is a table (colbin.md 7)."""


def encode_table(data: Any, *, self_describing: bool = True, threads: int = 1) -> bytes:
    """Return a message that holds the rows of `data`.

    Parameters
    ----------
    data : Arrow table or record batch, pandas DataFrame, structured array, or mapping of str to columns
        Booleans, integers, float32, float64 and text, nullable or not; bytes, lists of integers and of strings,
        without nulls. Columns with nulls become optional fields.
    self_describing : bool
        Put the schema section into the message.
    threads : int
        Threads to use, one column each.

    Returns
    -------
    bytes
        A record with the one field ``rows`` (key 0), the list. Its row type has keys 0 to n - 1. A table without
        rows leaves the field out.

    Raises
    ------
    TypeError, ValueError
        For columns that the format cannot hold, naming them; columns of different lengths; more than 2**22 rows,
        which readers refuse.
    """
    named = named_columns(data)
    plain = plain_columns(named)
    if plain is not None and TABLE_ROWS <= len(plain.values[0]) <= MAX_ROWS:
        section, parts = plain.section, _plain_parts(plain.values, threads)
    else:
        sources = [column_source(name, column) for name, column in named]
        section = rows_section([source.column for source in sources])
        parts = _row_parts(section, sources, threads)
    return b"".join((b"\xd4", section, *parts) if self_describing else (b"\xd0", *parts))


def _plain_parts(values: Sequence[NDArray[Any]], threads: int) -> list[Any]:
    """`_row_parts` of columns of one length that the kernel takes as they are: small tables are mostly overhead."""
    head = bytearray()
    write_len(head, len(values[0]))
    parts = [bytes(head)]
    k8 = len(values) > 16
    for place, coded in enumerate(_coded(values, threads)):
        if coded is not None:
            parts += (_column_head(place, len(coded), k8), coded)
    return [_length(8, sum(map(len, parts))), *parts]


def encode_rows(section: bytes, sources: Sequence[ColumnSource], *, threads: int = 1) -> bytes:
    """Return the body of a message of `rows_section`: its one field, or nothing when there are no rows."""
    return b"".join(_row_parts(section, sources, threads))


def _row_parts(section: bytes, sources: Sequence[ColumnSource], threads: int) -> list[Any]:
    """The body as buffers in order: a large one is copied once, into the message."""
    rows = sources[0].rows
    for source in sources:
        if source.rows != rows:
            raise ValueError(
                f"columns differ in length: {sources[0].column.name!r} has {rows} rows, "
                f"{source.column.name!r} {source.rows}"
            )
    if rows == 0:
        return []
    if rows > MAX_ROWS:
        raise ValueError(f"a message holds at most {MAX_ROWS} rows, not {rows}: write several messages")
    head = bytearray()
    write_len(head, rows)
    if rows >= TABLE_ROWS and all(
        source.column.code <= TypeCode.STRING and not source.column.optional for source in sources
    ):
        parts = [bytes(head), *column_parts(sources, k8=len(sources) > 16, threads=threads)]
        flag = 8
    else:
        room = empty(6 * rows + 64 + sum(source.worst_bytes for source in sources), np.dtype(np.uint8))
        parts = [bytes(head), room[: _rows(section, sources, rows, room)].data]
        flag = 0
    return [_length(flag, sum(map(len, parts))), *parts]


def _length(code: int, size: int) -> bytes:
    """A code with flag bits and the length of a composite behind it (colbin.md 5.6)."""
    if size < 255:
        return bytes((code, size))
    if size >> 32:
        raise ValueError(f"a list of {size} bytes is too large for one message: write several")
    return bytes((code | 2,)) + size.to_bytes(4, "little")


def _rows(section: bytes, sources: Sequence[ColumnSource], rows: int, room: NDArray[np.uint8]) -> int:
    layout = list_columns(section, 1).layout
    return kernel.write_list(layout, [source.for_kernel for source in sources], 0, rows, room)


def _coded(values: Sequence[NDArray[Any]], threads: int) -> list[bytes | None]:
    """Columns of fixed width through the codec; None for one of zeros, which a table leaves out."""
    bounds = np.empty((len(values), 2), np.int64)
    coded = column_codec.encode_columns(list(values), bounds, threads=threads)
    return [
        None if low == 0 == high else data for (low, high), data in zip(bounds.tolist(), coded, strict=True)
    ]


def _column_head(place: int, size: int, k8: bool) -> bytes:
    """What stands before the `size` bytes of the column codec of column `place`."""
    return bytes((place,)) + _length(0xB0, size) if k8 else _length(place << 4, size)


def column_parts(sources: Sequence[ColumnSource], *, k8: bool, threads: int = 1) -> list[Any]:
    """Return the columns of a table as buffers in order (colbin.md 7), under four- or eight-bit keys 0 to n - 1."""
    fixed = {place: source.values for place, source in enumerate(sources) if source.values is not None}
    columns = dict(zip(fixed, _coded(list(fixed.values()), threads), strict=True))
    parts: list[Any] = []
    for place, source in enumerate(sources):
        if place in columns:
            coded = columns[place]
            if coded is not None:
                parts += (_column_head(place, len(coded), k8), coded)
            continue
        assert source.offsets is not None
        assert source.data is not None
        size = int(source.offsets[-1] - source.offsets[0])
        if k8 and size == 0:
            continue  # under four-bit keys a column of empty strings is written (colbin.md 7)
        room = empty(size + 5 * source.rows + 16, np.dtype(np.uint8))
        used = kernel.write_string_column(k8, place, source.offsets, source.data, room)
        parts.append(room[:used].data)
    return parts
