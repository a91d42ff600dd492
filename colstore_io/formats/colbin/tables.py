"""Lists of records between messages and columns (colbin.md 7), without a Python object per row.

`decode_list` reads the one list of records of a message, table or row by row, into arrays; `decode_table` is the
same for a whole message at hand. `colstore_io.formats.colbin.table_encoding` goes the other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...arguments import check_column_names, check_integer, check_name
from ...buffers import empty
from ...errors import ColumnNotFoundError, FormatError
from ...kernels import column_codec
from ...kernels import record_columns as kernel
from .. import DecodedColumn
from .arguments import check_message, schema_bytes
from .buffers import Buffer, ColumnBuffers, text_array
from .layout import ListColumns, list_columns, list_fields, parsed_section, root_layout
from .schema import MAX_ROWS, FieldDef, Section

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAX_CELLS", "ListSpan", "decode_list", "decode_table", "find_list", "split_message"]

MAX_CELLS = 1 << 26
"""Rows times columns that one list may claim unless the caller allows more: a few bytes claim a table of constants."""


_PARALLEL_VALUES = 1 << 16
"""Values from which on threads share the columns of a table."""


@dataclass(frozen=True, slots=True)
class ListSpan:
    """Where a list of records stands in a buffer.

    Attributes
    ----------
    table : bool
        Table form; else row by row.
    k8 : bool
        Keys of the columns of a table, or of the run that holds a list of rows, have eight bits.
    rows : int
    begin, end : int
        Its body behind the count.
    """

    table: bool
    k8: bool
    rows: int
    begin: int
    end: int


def _wrong(code: int, offset: int, path: str | None) -> FormatError:
    return FormatError(kernel.WRONG[code], path=path, offset=offset, section="message")


def split_message(message: Buffer, section: bytes | None) -> tuple[bytes, int, bool]:
    """Return the section of a message, where its body begins, and whether that is a run of eight-bit keys.

    Parameters
    ----------
    message : buffer
        The whole message.
    section : bytes or None
        The caller's; wanted for D0 and D8. A message's own is used when the caller's is a prefix of it
        (colbin.md 15).

    Raises
    ------
    FormatError
        For other root bytes and a damaged section.
    ValueError
        For D0 and D8 without a section.
    """
    if not len(message):
        raise FormatError("no root byte: the message is empty", offset=0, section="message")
    root = message[0]
    if root not in (0xD0, 0xD4, 0xD8, 0xDC):
        raise FormatError(
            f"not a colbin message: it begins with {root:02X}, expected D0, D4, D8 or DC",
            offset=0,
            section="message",
        )
    if not root & 4:
        if section is None:
            raise ValueError(
                f"the message does not carry its schema (root byte {root:02X}): pass section=, the bytes of it"
            )
        return section, 1, root == 0xD8
    size, at = _read_len(message, 1, len(message))
    if size > len(message) - at:
        raise FormatError(
            f"the section claims {size} bytes, {len(message) - at} are there", offset=1, section="section"
        )
    own = bytes(message[1 : at + size])
    if (
        section is not None
        and section != own
        and not parsed_section(section).is_prefix_of(parsed_section(own))
    ):
        own = section
    return own, at + size, root == 0xDC


def _read_len(data: Buffer, at: int, end: int) -> tuple[int, int]:
    if at < end and data[at] < 255:
        return int(data[at]), at + 1  # an element of a mapping is a NumPy scalar
    if end - at < 5:
        raise FormatError("a length runs past the end", offset=at, section="message")
    return int.from_bytes(data[at + 1 : at + 5], "little"), at + 5


@lru_cache(maxsize=256)
def choose_list(section: bytes, table: str | None) -> FieldDef:
    """Return the field of the root record that is the table: the named one, or the only list of records."""
    fields = list_fields(parsed_section(section))
    if table is not None:
        for item in fields:
            if item.name == table:
                return item
        raise FormatError(
            f"the messages have no list of records {table!r}; lists: {', '.join(f.name for f in fields) or 'none'}"
        )
    if not fields:
        root = parsed_section(section).root
        what = "a document of dynamic values" if root.has_dynamic else "one record"
        raise FormatError(
            f"the message has no list of records, it is {what}: colbin.decode(schema, message) reads it, with None for "
            "the schema of a message that carries its own"
        )
    if len(fields) != 1:
        raise FormatError(
            f"the message has {len(fields)} lists of records: choose one with table=, of "
            + ", ".join(repr(f.name) for f in fields)
        )
    return fields[0]


def find_list(
    data: Buffer, begin: int, end: int, k8: bool, section: bytes, field: FieldDef, path: str | None = None
) -> ListSpan:
    """Find the list of records `field` in the run ``data[begin:end]`` of the root record; absent means no rows."""
    wrong, code, start, stop = kernel.locate(root_layout(section), data, begin, end, k8, field.key)
    if wrong:
        raise _wrong(wrong, code, path)
    if code < 0:
        return ListSpan(False, k8, 0, end, end)
    if not k8:
        table = bool(code & 8)
    elif 0xC0 <= code <= 0xC7:
        table = False
    elif 0xE8 <= code <= 0xEF:
        table = True
    else:
        raise FormatError("the field is no list of records", path=path, offset=start, section="message")
    rows, at = _read_len(data, start, stop)
    if not table:
        # A row takes its length byte at least: rows that cannot be there are not believed.
        if rows > (stop - at) >> k8:
            raise FormatError(
                f"the list claims {rows} rows in {stop - at} bytes",
                path=path,
                offset=start,
                section="message",
            )
        return ListSpan(False, k8, rows, at, stop)
    # Columns of a table in a four-bit run have the row type's own width (colbin.md 7).
    return ListSpan(True, k8 or list_columns(section, field.type.index).struct.k8, rows, at, stop)


def check_size(rows: int, columns: int, *, max_rows: int, max_cells: int, path: str | None = None) -> None:
    """Refuse lists that claim more than the caller allows, before anything is allocated."""
    if rows > max_rows:
        raise FormatError(
            f"the list claims {rows} rows; at most {max_rows} are read unless max_rows says otherwise",
            path=path,
        )
    if rows * columns > max_cells:
        raise FormatError(
            f"{rows} rows of {columns} columns are more than {max_cells} values; max_cells allows more",
            path=path,
        )


def decode_list(
    data: Buffer,
    span: ListSpan,
    columns: ListColumns,
    out: Sequence[NDArray[Any] | None] | None = None,
    *,
    errors: str = "strict",
    threads: int = 1,
    path: str | None = None,
) -> list[DecodedColumn]:
    """Decode the list at `span`; the caller has checked its size.

    Parameters
    ----------
    data : buffer
    span : ListSpan
    columns : ListColumns
        Which columns to decode.
    out : sequence of ndarray or None, optional
        One per column: where values of fixed width go.
    """
    if span.table:
        return _decode_columns(data, span, columns, out, errors, threads, path)
    buffers = ColumnBuffers(columns, span.rows, out)
    wrong, at = kernel.read_list(
        columns.layout, data, span.begin, span.end, 0, span.rows, span.k8, buffers.targets
    )
    if wrong:
        raise _wrong(wrong, at, path)
    return buffers.finish(data, errors=errors, path=path)


def _decode_columns(
    data: Buffer,
    span: ListSpan,
    columns: ListColumns,
    out: Sequence[NDArray[Any] | None] | None,
    errors: str,
    threads: int,
    path: str | None,
) -> list[DecodedColumn]:
    if not columns.tabular:
        raise FormatError("a table of a record type that cannot be one", path=path, offset=span.begin)
    rows, n_fields = span.rows, len(columns.struct.fields)
    start, length = np.empty((2, n_fields), np.int64)
    outs: list[NDArray[Any] | None] = [None] * n_fields
    # All text of a table is less than its bytes, so that they are room for every column's.
    room = span.end - span.begin
    text = None
    for number, place in enumerate(columns.places):
        dtype = columns.dtypes[number]
        if dtype is None:
            outs[place] = empty(rows + 1, np.dtype(np.int32 if room <= 0x7FFFFFFF else np.int64))
            text = empty(room, np.dtype(np.uint8)) if text is None else text
            continue
        given = None if out is None else out[number]
        outs[place] = empty(rows, dtype) if given is None else given
    arguments = (columns.layout, data, span.begin, span.end, rows, span.k8, outs, text, start, length)
    if threads > 1 and rows * n_fields >= _PARALLEL_VALUES:
        bad = _decode_side_by_side(arguments, columns, threads)
    else:
        bad = kernel.read_table(*arguments)
    code, at, field = bad
    if code and field < 0:
        raise _wrong(code, at, path)
    if code:
        name = columns.struct.fields[field].name
        raise FormatError(
            f"column {name!r}: {column_codec.WRONG[code]}", path=path, offset=at, section="table"
        )
    if text is None:
        return [DecodedColumn(outs[place]) for place in columns.places]
    decoded = []
    for number, place in enumerate(columns.places):
        values = outs[place]
        assert values is not None
        if columns.dtypes[number] is not None:
            decoded.append(DecodedColumn(values))
            continue
        begin = int(start[place])
        if begin < 0:
            values[:] = begin = length[place] = 0
        own = text[begin : begin + int(length[place])]
        array = text_array(columns.columns[number], values, own, None, errors, path)
        decoded.append(DecodedColumn(array=array))
    return decoded


def _decode_side_by_side(arguments: Any, columns: ListColumns, threads: int) -> tuple[int, int, int]:
    """What `read_table` of the kernel does with these arguments, a column of fixed width per thread."""
    data, outs, start, length = arguments[1], arguments[6], arguments[8], arguments[9]
    wrong, at = kernel.table_columns(*arguments)
    if wrong:
        return wrong, at, -1
    coded: list[int] = []
    present: list[NDArray[Any]] = []
    for number, place in enumerate(columns.places):
        if columns.dtypes[number] is None:
            continue
        if start[place] < 0:
            outs[place][:] = np.zeros((), outs[place].dtype)
        else:
            coded.append(place)
            present.append(outs[place])
    bad, code = column_codec.decode_columns(
        data,
        start[coded],
        length[coded],
        present,
        threads=threads,
    )
    return (0, 0, -1) if bad < 0 else (code, int(start[coded[bad]]), coded[bad])


def decode_table(
    message: Buffer,
    *,
    section: bytes | Section | None = None,
    table: str | None = None,
    columns: str | Sequence[str] | None = None,
    max_rows: int = MAX_ROWS,
    max_cells: int = MAX_CELLS,
    errors: str = "strict",
    threads: int = 1,
) -> dict[str, NDArray[Any] | pa.Array]:
    """Return the list of records of a message as columns.

    Parameters
    ----------
    message : buffer of bytes
        A whole message; with D0 and D8 `section` must be given.
    section : bytes or Section, optional
        The schema section, if the message does not carry it.
    table : str, optional
        Which field of the root record; needed when it has several lists of records.
    columns : str or sequence of str, optional
        Only these, in this order.
    max_rows, max_cells : int
        Limits of what a message may claim (colbin.md 14).
    errors : str
        ``"surrogateescape"`` reads text that is not UTF-8 as binary; ``"strict"`` raises.
    threads : int
        Threads to use, one column each.

    Returns
    -------
    dict of str to ndarray or pyarrow.Array
        NumPy arrays of the exact type, shape (rows,), for columns of fixed width without nulls; Arrow arrays for
        optional fields, text, bytes and lists. The arrays own their memory. Fields of nested records have dotted
        names; fields that no column can show (lists of records, maps, dynamic values) are left out.

    Raises
    ------
    FormatError
        For everything that colbin.md 15 refuses, and lists above the limits.
    ColumnNotFoundError
    """
    check_message(message)
    check_integer("max_rows", max_rows)
    check_integer("max_cells", max_cells)
    if table is not None:
        check_name("table", table)
    own, body, k8 = split_message(message, None if section is None else schema_bytes(section))
    field = choose_list(own, table)
    chosen = list_columns(own, field.type.index)
    if columns is not None:
        chosen, order = _select(own, field, chosen, check_column_names("columns", columns))
    span = find_list(message, body, len(message), k8, own, field)
    check_size(span.rows, len(chosen.struct.fields), max_rows=max_rows, max_cells=max_cells)
    decoded = decode_list(message, span, chosen, errors=errors, threads=threads)
    shown = {column.name: as_array(part) for column, part in zip(chosen.columns, decoded, strict=True)}
    return shown if columns is None else {name: shown[name] for name in order}


def _select(
    section: bytes, field: FieldDef, known: ListColumns, columns: Sequence[str]
) -> tuple[ListColumns, list[str]]:
    names = {column.name: number for number, column in enumerate(known.columns)}
    for name in columns:
        if name not in names:
            raise ColumnNotFoundError.for_name(name, names)
    wanted = tuple(sorted({names[name] for name in columns}))
    return list_columns(section, field.type.index, wanted), list(columns)


def as_array(part: DecodedColumn) -> NDArray[Any] | pa.Array:
    """Return a decoded column as NumPy where it has a value in every row, else as Arrow."""
    if part.array is not None:
        return part.array
    assert part.values is not None
    if part.validity is None:
        return part.values
    import pyarrow as pa

    return pa.array(part.values, mask=~part.validity)
