"""Many messages of one record type as columns, and columns as messages, without a Python object per row.

The record type is flat for this: scalars, optional scalars, strings, bytes, lists of integers or strings, and records
in records, whose fields are columns under dotted names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ColumnNotFoundError, FormatError
from .buffers import Buffer, ColumnBuffers
from .layout import SCALAR_DTYPES, ListColumns, RecordColumn, list_columns, parsed_section
from .schema import TypeCode
from .sources import ColumnSource, column_source, named_columns
from .tables import MAX_CELLS, as_array, check_size

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["decode_columns", "encode_rows"]


def decode_columns(
    section: bytes,
    messages: Sequence[Buffer] | tuple[Buffer, NDArray[np.integer[Any]]],
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
    messages : sequence of bytes-like, or (buffer, offsets)
        Messages that begin with D0 or D8. In the second form message i is ``buffer[offsets[i]:offsets[i + 1]]``.
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
        If no `columns` were chosen and the type has fields that cannot be columns.
    ColumnNotFoundError
        For unknown names.
    """
    from ...kernels import record_columns as kernel

    chosen = _chosen(section, columns)
    data, offsets = _joined(messages)
    rows = len(offsets) - 1
    check_size(rows, len(chosen.columns), max_rows=1 << 62, max_cells=max_cells)
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
    for name in columns:
        if name not in names:
            raise ColumnNotFoundError.for_name(name, names)
    return list_columns(section, 0, tuple(sorted({names[name] for name in columns})))


def _joined(
    messages: Sequence[Buffer] | tuple[Buffer, NDArray[np.integer[Any]]],
) -> tuple[Buffer, NDArray[np.int64]]:
    """Return all messages in one buffer, and their offsets in it, checked."""
    if isinstance(messages, tuple) and len(messages) == 2 and isinstance(messages[1], np.ndarray):
        data, offsets = messages[0], np.ascontiguousarray(messages[1], np.int64)
        if offsets.ndim != 1 or not len(offsets):
            raise ValueError("offsets has one element more than there are messages")
        size = memoryview(data).nbytes
        if offsets[0] < 0 or offsets[-1] > size or (np.diff(offsets) < 0).any():
            raise ValueError("offsets must ascend inside the buffer")
        return data, offsets
    from ...kernels import colbin as kernel

    offsets = np.empty(len(messages) + 1, np.int64)
    try:
        return kernel.join(messages, offsets), offsets  # type: ignore[arg-type]
    except TypeError:  # views and byte arrays among them
        return kernel.join([bytes(message) for message in messages], offsets), offsets


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
