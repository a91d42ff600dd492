"""Many messages of one record type as columns, and columns as messages, without a Python object per row.

The record type is flat for this: scalars, optional scalars, strings, bytes, lists of integers or strings, and records
in records, whose fields are columns under dotted names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...arguments import check_column_names, check_integer
from ...errors import ColumnNotFoundError, FormatError
from .buffers import Buffer, ColumnBuffers
from .layout import SCALAR_DTYPES, ListColumns, RecordColumn, list_columns, parsed_section
from .schema import TypeCode
from .sources import ColumnSource, column_source, named_columns
from .tables import MAX_CELLS, as_array, check_size

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Messages", "decode_columns", "encode_rows"]

Messages: TypeAlias = "Sequence[Buffer] | tuple[Buffer, NDArray[np.integer[Any]] | Sequence[int] | pa.Array]"
"""Messages to decode: one by one, or a buffer with their offsets in it."""


def decode_columns(
    section: bytes,
    messages: Messages,
    *,
    columns: Sequence[str] | None = None,
    errors: str = "strict",
    max_cells: int = MAX_CELLS,
) -> dict[str, NDArray[Any] | pa.Array]:
    """Decode many messages of one record type, one row each, into columns.

    Parameters
    ----------
    section : bytes
        The record type is its root.
    messages : sequence of bytes-like, or tuple (buffer, offsets)
        Messages that begin with D0 or D8. In the second form message i is ``buffer[offsets[i]:offsets[i + 1]]``; the
        offsets are integers in an array, NumPy's or Arrow's, a list or a tuple.
    columns : sequence of str, optional
        Which ones, by wire name; dotted for records in records. Default: all fields.
    errors : {"strict", "surrogateescape"}, optional
        Text that is not UTF-8 is an error, or makes its column one of bytes.
    max_cells : int, optional
        Bound of rows times columns.

    Returns
    -------
    dict of str to ndarray or Arrow array
        In the order of `columns`, or of the definition: NumPy arrays of the field's own type, owned by the caller;
        Arrow arrays of optionals, of text, bytes and lists. An absent field is zero, an absent optional null.

    Raises
    ------
    FormatError
        For bytes that are not such messages; `offset` is that in the messages joined.
    TypeError
        If no `columns` were chosen and the type has fields that cannot be columns; for messages that have no bytes, and
        offsets that are no integers.
    ValueError
        For offsets that do not ascend inside the buffer.
    ColumnNotFoundError
        For unknown names.
    """
    from ...kernels import record_columns as kernel

    chosen = _chosen(section, columns)
    data, offsets = _joined(messages)
    rows = len(offsets) - 1
    check_size(rows, len(chosen.columns), max_rows=1 << 62, max_cells=check_integer("max_cells", max_cells))
    buffers = ColumnBuffers(chosen, rows)
    wrong, at = kernel.read_records(chosen.layout, data, offsets[:-1], np.diff(offsets), buffers.targets)
    if wrong:
        row = int(np.searchsorted(offsets, at, "right")) - 1
        raise FormatError(kernel.WRONG[wrong], offset=at, section=f"message {max(0, min(row, rows - 1))}")
    decoded = buffers.finish(data, errors=errors)
    shown = {column.name: as_array(part) for column, part in zip(chosen.columns, decoded, strict=True)}
    return shown if columns is None else {name: shown[name] for name in columns}


def encode_rows(section: bytes, data: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Encode each row of columns as a message of its own.

    Parameters
    ----------
    section : bytes
        The record type is its root; all of its fields can be columns.
    data : mapping of str to columns, Arrow table or record batch, pandas DataFrame, structured array
        One column per field, by wire name (dotted for records in records). Integers of another width are converted
        when all values fit; optional fields may have nulls.

    Returns
    -------
    (buffer, offsets) : ndarray of uint8, ndarray of int64
        Message i is ``buffer[offsets[i]:offsets[i + 1]]``. The bytes are those that encoding objects one by one gives.

    Raises
    ------
    TypeError
        For fields that cannot be columns.
    ColumnNotFoundError
        For missing columns and unknown names.
    SchemaMismatchError, OverflowError, ValueError
        For columns of another type, values outside their field's type, and columns of different lengths.
    """
    from ...kernels import record_columns as kernel

    chosen = _chosen(section, None)
    given = dict(named_columns(data))
    names = [column.name for column in chosen.columns]
    for name in [*(n for n in names if n not in given), *(n for n in given if n not in names)]:
        raise ColumnNotFoundError.for_name(name, names if name in given else given)
    sources = [_source(column, given[column.name]) for column in chosen.columns]
    rows = sources[0].rows
    for source in sources:
        if source.rows != rows:
            raise ValueError(
                f"columns differ in length: {names[0]!r} has {rows} rows, {source.column.name!r} {source.rows}"
            )
    # root byte, and for each record in a record its key, descriptor and five bytes of length; eight bytes of slack
    nested = len(chosen.columns) + len(parsed_section(section).structs)
    room = np.empty(64 + rows * (1 + 8 * nested) + sum(s.worst_bytes for s in sources), np.uint8)
    offsets = np.zeros(rows + 1, np.int64)
    size = kernel.write_records(
        chosen.layout, [source.for_kernel for source in sources], 0, rows, offsets[1:], room
    )
    return room[:size].copy(), offsets


def _chosen(section: bytes, columns: Sequence[str] | None) -> ListColumns:
    known = list_columns(section, 0)
    if columns is None:
        if known.skipped:
            raise TypeError(f"fields that cannot be columns: {', '.join(map(repr, known.skipped))}")
        return known
    names = {column.name: number for number, column in enumerate(known.columns)}
    wanted = check_column_names("columns", columns)
    for name in wanted:
        if name not in names:
            raise ColumnNotFoundError.for_name(name, names)
    return list_columns(section, 0, tuple(sorted({names[name] for name in wanted})))


def _joined(messages: Messages) -> tuple[Buffer, NDArray[np.int64]]:
    """Return all messages in one buffer, and their offsets in it, checked."""
    if isinstance(messages, tuple) and len(messages) == 2 and not _is_message(messages[1]):
        return _cut(*messages)
    if isinstance(messages, str) or _is_message(messages) or not hasattr(messages, "__len__"):
        raise TypeError(
            "messages is a sequence of messages, or a tuple of a buffer and offsets, not "
            f"{type(messages).__name__}"
        )
    from ...kernels import colbin as kernel

    offsets = np.empty(len(messages) + 1, np.int64)
    try:
        return kernel.join(messages, offsets), offsets  # type: ignore[arg-type]
    except TypeError:  # views and byte arrays among them
        found = [_message_bytes(message, number) for number, message in enumerate(messages)]
        return kernel.join(found, offsets), offsets


def _is_message(data: Any) -> bool:
    """Whether this has the bytes of a message. A NumPy array of bytes has them, but counts as numbers in `_joined`."""
    if isinstance(data, (bytes, bytearray)):
        return True
    if isinstance(data, (np.ndarray, np.generic)):
        return False
    try:
        with memoryview(data) as view:
            return view.itemsize == 1 and view.ndim == 1
    except TypeError:
        return False


def _message_bytes(message: Any, number: int) -> bytes:
    if isinstance(message, np.ndarray) and message.dtype == np.uint8 and message.ndim == 1:
        return message.tobytes()
    # Never `bytes` of anything else: of an integer it is that many zeros.
    if _is_message(message) or hasattr(type(message), "__bytes__"):
        return bytes(message)
    hint = "; a buffer and its offsets go into a tuple" if isinstance(message, (list, np.ndarray)) else ""
    raise TypeError(f"messages[{number}]: a message is bytes, not {type(message).__name__}{hint}")


def _cut(data: Any, given: Any) -> tuple[Buffer, NDArray[np.int64]]:
    """Return a buffer and the offsets of the messages in it, checked."""
    if isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 1:
        data = np.ascontiguousarray(data)
    elif not _is_message(data):
        raise TypeError(
            f"messages is a tuple of a buffer and offsets, and the buffer is bytes, not {type(data).__name__}"
        )
    elif not isinstance(data, (bytes, bytearray)):
        data = np.frombuffer(data, np.uint8)
    try:
        found = np.asarray(given)
    except ValueError:  # lists in it, of different lengths
        found = np.empty(0, object)
    whole = found.dtype.kind in "iu" or (found.shape == (0,) and found.dtype.kind == "f")
    if isinstance(given, (list, tuple)):  # True among integers would become one of them
        whole = whole and not any(isinstance(item, (bool, np.bool_)) for item in given)
    if not whole or not found.ndim:
        what = type(given).__name__ + (f" of {found.dtype}" if found.ndim and found.dtype.kind != "O" else "")
        raise TypeError(
            f"messages is a tuple of a buffer and offsets, and the offsets are integers, not {what}"
        )
    if found.ndim != 1 or not len(found):
        raise ValueError("offsets has one element more than there are messages")
    size = memoryview(data).nbytes
    if int(found[0]) < 0 or int(found.max()) > size or (found[1:] < found[:-1]).any():
        raise ValueError("offsets must ascend inside the buffer")
    return data, np.ascontiguousarray(found, np.int64)


def _source(column: RecordColumn, data: Any) -> ColumnSource:
    """Return a column as the kernel takes it, converted to the type of its field."""
    if column.code <= TypeCode.F64:
        wanted = SCALAR_DTYPES[column.code]
        if not hasattr(data, "type"):
            data = np.asarray(data) if not column.optional else data
        if isinstance(data, np.ndarray):
            data = _cast(column.name, data, wanted)
        elif hasattr(data, "cast") and hasattr(data, "type"):
            import pyarrow as pa

            try:
                data = data.cast(pa.from_numpy_dtype(wanted))
            except pa.ArrowInvalid as exc:
                raise OverflowError(f"column {column.name!r}: {exc}") from None
        else:
            import pyarrow as pa

            try:
                data = pa.array(data, pa.from_numpy_dtype(wanted))
            except (pa.ArrowInvalid, OverflowError) as exc:
                raise OverflowError(f"column {column.name!r}: {exc}") from None
    return column_source(column.name, data, like=column)


def _cast(name: str, data: NDArray[Any], wanted: np.dtype[Any]) -> NDArray[Any]:
    """Return integers in another width, floats in another precision; `OverflowError` for values that do not fit."""
    if data.dtype == wanted:
        return data
    if data.dtype.kind in "iu" and wanted.kind in "iu":
        limits = np.iinfo(wanted)
        if len(data) and (int(data.min()) < limits.min or int(data.max()) > limits.max):
            raise OverflowError(f"column {name!r} has values outside the range of {wanted}")
        return data.astype(wanted)
    if data.dtype.kind in "iuf" and wanted.kind == "f":
        with np.errstate(over="ignore"):
            changed = data.astype(wanted)
        if (np.isinf(changed) & ~np.isinf(data)).any():
            raise OverflowError(f"column {name!r} has values outside the range of {wanted}")
        return changed
    return data
