"""Where do decoded columns go? Outputs that kernels fill, and how they become arrays.

`ColumnBuffers` holds the memory of all columns of some rows: fixed-width values in their place from the start; of
values of variable length, where each stands in the bytes of the messages and how large it is, until `finish`
copies them behind each other into Arrow's layout. No Python object is made per value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import is_utf8
from ...buffers import empty
from ...errors import FormatError
from .. import DecodedColumn
from .layout import ListColumns, RecordColumn
from .schema import TypeCode

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ColumnBuffers", "text_array"]

_INT32_MAX = (1 << 31) - 1

Buffer = bytes | bytearray | memoryview


class ColumnBuffers:
    """Outputs for `rows` rows of records of one type.

    Parameters
    ----------
    columns : ListColumns
    rows : int
        Checked against limits by the caller: this allocates.
    out : sequence of ndarray or None, optional
        One per column: where fixed-width values go, C-contiguous, native, of `rows` rows.
    """

    def __init__(
        self, columns: ListColumns, rows: int, out: Sequence[NDArray[Any] | None] | None = None
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.targets: list[tuple[Any, Any, Any, Any]] = []
        self.values: list[NDArray[Any] | None] = []
        for number, column in enumerate(columns.columns):
            given = None if out is None else out[number]
            validity = np.zeros(rows, np.uint8) if column.optional else None
            if column.dtype is None:
                # What is not found stays at 0, which is what an absent field means.
                self.values.append(None)
                self.targets.append((None, validity, np.zeros(rows, np.int64), np.zeros(rows, np.int64)))
                continue
            if given is None:
                given = np.zeros(rows, column.dtype)
            else:
                given[:] = np.zeros((), given.dtype)
            self.values.append(given)
            self.targets.append((given.view(np.uint8), validity, None, None))

    def finish(self, data: Buffer, *, errors: str = "strict", path: str | None = None) -> list[DecodedColumn]:
        """Return the columns; `data` is the buffer that all records were read from.

        Raises
        ------
        FormatError
            For malformed packed text, list elements outside their type, and text that is not UTF-8 (unless `errors`
            is ``"surrogateescape"``: then the column comes as binary).
        """
        results = []
        for column, values, target in zip(self.columns.columns, self.values, self.targets, strict=True):
            validity = None if target[1] is None else target[1].view(np.bool_)
            if values is not None:
                results.append(DecodedColumn(values, validity))
                continue
            array = _variable(column, data, target[2], target[3], validity, errors, path)
            results.append(DecodedColumn(array=array))
        return results


def _bitmap(validity: NDArray[np.bool_] | None) -> tuple[pa.Buffer | None, int]:
    import pyarrow as pa

    if validity is None:
        return None, 0
    nulls = len(validity) - int(np.count_nonzero(validity))
    return (pa.py_buffer(np.packbits(validity, bitorder="little")) if nulls else None), nulls


def _buffer(array: NDArray[Any]) -> pa.Buffer:
    import pyarrow as pa

    return pa.py_buffer(array if array.size else b"")


def _offsets(size: NDArray[np.int64]) -> NDArray[Any]:
    """Where each value begins, and the end of the last: int32 where that suffices."""
    offsets = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    return offsets if offsets[-1] > _INT32_MAX else offsets.astype(np.int32)


def text_array(
    column: RecordColumn,
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    validity: NDArray[np.bool_] | None,
    errors: str,
    path: str | None,
) -> pa.Array:
    """Return text or bytes as an Arrow array over `offsets` (int32 or int64, shape (n + 1,)) and `data`."""
    import pyarrow as pa

    binary = column.code == TypeCode.BYTES
    if not binary and not is_utf8(data.data, offsets):
        if errors != "surrogateescape":
            raise FormatError(
                f"column {column.name!r} holds text that is not UTF-8; errors='surrogateescape' reads it as binary",
                path=path,
            )
        binary = True
    wide = offsets.dtype.itemsize == 8
    small = pa.binary() if binary else pa.string()
    large = pa.large_binary() if binary else pa.large_string()
    bitmap, nulls = _bitmap(validity)
    return pa.Array.from_buffers(
        large if wide else small, len(offsets) - 1, [bitmap, _buffer(offsets), _buffer(data)], nulls
    )


def _variable(
    column: RecordColumn,
    data: Buffer,
    place: NDArray[np.int64],
    size: NDArray[np.int64],
    validity: NDArray[np.bool_] | None,
    errors: str,
    path: str | None,
) -> pa.Array:
    import pyarrow as pa

    from ...kernels import record_columns as kernel

    def damaged(message: str, row: int) -> FormatError:
        return FormatError(f"column {column.name!r}, row {row}: {message}", path=path, section="record")

    rows = len(place)
    if column.code in (TypeCode.STRING, TypeCode.BYTES):
        text = empty(int(size.sum()), np.dtype(np.uint8))
        total, bad = kernel.texts(data, place, size, column.code, text)
        if bad >= 0:
            raise damaged("packed text is malformed", bad)
        return text_array(column, _offsets(size), text[:total], validity, errors, path)
    offsets = _offsets(size)
    wide = offsets.dtype.itemsize == 8
    if column.element_dtype is not None:
        elements = np.empty(int(offsets[-1]), column.element_dtype)
        bad = kernel.integer_lists(data, place, size, column.code, elements.view(np.uint8))
        if bad >= 0:
            raise damaged("a list element is outside the range of its type", bad)
        child = pa.array(elements)
    else:
        inner = np.empty(int(offsets[-1]) + 1, np.int64)
        text = np.empty(kernel.string_lists_bytes(data, place), np.uint8)
        bad = kernel.string_lists(data, place, size, inner, text)
        if bad >= 0:
            raise damaged("the bytes changed while they were read", bad)
        if inner[-1] <= _INT32_MAX:
            inner = inner.astype(np.int32)
        child = text_array(RecordColumn(column.name, TypeCode.STRING), inner, text, None, errors, path)
    kind = pa.large_list(child.type) if wide else pa.list_(child.type)
    return pa.Array.from_buffers(kind, rows, [None, _buffer(offsets)], 0, children=[child])
