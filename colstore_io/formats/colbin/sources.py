"""What does a column of the user's look like to the kernels that write? Arrow and NumPy columns as plain buffers.

A `ColumnSource` is one column ready to be written: fixed-width values as bytes, text and lists as offsets and data,
nulls as a byte per row. Nothing is copied where the layout fits already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import without_views
from ...errors import SchemaMismatchError
from ...fields import native
from .layout import SCALAR_DTYPES, RecordColumn
from .schema import FieldDef, FieldType, Section, StructDef, TypeCode

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ColumnSource",
    "PlainColumns",
    "column_source",
    "named_columns",
    "plain_columns",
    "rows_section",
    "scalar_code",
]

_CODE_OF = {dtype: code for code, dtype in enumerate(SCALAR_DTYPES)}
_LIST_CODES = {"i1": 13, "i2": 14, "i4": 15, "i8": 16, "u2": 17, "u4": 18, "u8": 19}
_NO_BYTES: NDArray[np.uint8] = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """One column to be written.

    Attributes
    ----------
    column : RecordColumn
    rows : int
    values : ndarray or None
        Native, C-contiguous: of a scalar column by row; of lists of integers, their elements.
    validity : ndarray of uint8, shape (rows,), or None
        0 where there is no value; None: every row has one.
    offsets : ndarray of int64, shape (rows + 1,), or None
        Text and bytes: into `data`. Lists: into `values` or `inner`.
    inner : ndarray of int64 or None
        Lists of strings: offsets of the elements into `data`.
    data : ndarray of uint8 or None
    """

    column: RecordColumn
    rows: int
    values: NDArray[Any] | None = None
    validity: NDArray[np.uint8] | None = None
    offsets: NDArray[np.int64] | None = None
    inner: NDArray[np.int64] | None = None
    data: NDArray[np.uint8] | None = None

    @property
    def for_kernel(self) -> tuple[Any, Any, Any, Any, Any]:
        values = None if self.values is None else self.values.view(np.uint8)
        return values, self.validity, self.offsets, self.inner, self.data

    @property
    def worst_bytes(self) -> int:
        """Upper bound of what all rows of the column take on the wire, keys and headers included."""
        if self.offsets is None:
            return 12 * self.rows
        items = int(self.offsets[-1] - self.offsets[0])
        if self.inner is not None:
            return 20 * self.rows + 5 * items + int(self.inner[-1] - self.inner[0])
        return 16 * self.rows + items * (1 if self.values is None else 8)


def named_columns(data: Any) -> list[tuple[str, Any]]:
    """Return the columns of a table of whatever kind: Arrow, pandas, a structured array, a mapping of columns.

    Raises
    ------
    TypeError
        For data of other kinds.
    """
    if isinstance(data, Mapping):
        return [(str(name), column) for name, column in data.items()]
    if isinstance(data, np.ndarray):
        if data.dtype.names is None:
            raise TypeError("an array must have named fields to be a list of records")
        return [(name, data[name]) for name in data.dtype.names]
    import pyarrow as pa

    if isinstance(data, (pa.Table, pa.RecordBatch)):
        return list(zip(data.schema.names, data.columns, strict=True))
    if hasattr(data, "__arrow_c_stream__") or (hasattr(data, "iloc") and hasattr(data, "columns")):
        table = _of_frame(data)
    else:
        raise TypeError(
            f"cannot take columns from {type(data).__name__}; pass an Arrow table, a DataFrame or a mapping"
        )
    return list(zip(table.schema.names, table.columns, strict=True))


def _of_frame(data: Any) -> pa.Table:
    import pyarrow as pa

    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        return pa.Table.from_pandas(data, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as exc:
        raise TypeError(
            f"a column of the table has values of no one type that the format has: {exc}"
        ) from None


@dataclass(frozen=True, slots=True)
class PlainColumns:
    """Columns of NumPy scalars that need nothing done to them: the section of their rows, and `values`, native and
    C-contiguous, of one length."""

    section: bytes
    values: list[NDArray[Any]]


def plain_columns(named: Sequence[tuple[str, Any]]) -> PlainColumns | None:
    """Return the columns when all are plain, else None: then `column_source` takes them, or says what is wrong.

    A `ColumnSource` costs 2 microseconds, as much as the codec takes for two thousand values.
    """
    shape: list[tuple[str, int, bool]] = []
    values: list[NDArray[Any]] = []
    for name, data in named:
        if type(data) is not np.ndarray or data.ndim != 1 or not data.flags.c_contiguous:
            return None
        code = _CODE_OF.get(data.dtype)  # keys are native
        if code is None or (values and len(data) != len(values[0])):
            return None
        shape.append((name, code, False))
        values.append(data)
    return PlainColumns(_section_of(tuple(shape)), values) if values else None


def column_source(name: str, data: Any, *, like: RecordColumn | None = None) -> ColumnSource:
    """Return `data` ready to be written.

    Parameters
    ----------
    name : str
    data : ndarray or Arrow array or sequence
        One-dimensional. Values without a type of their own (lists, object arrays) go through Arrow's inference.
    like : RecordColumn, optional
        What the column must be; without it, the type follows from the data, and it is optional where it has nulls.

    Raises
    ------
    TypeError
        For types the format does not have.
    SchemaMismatchError
        If it is not `like`.
    ValueError
        For nulls where the format has none: bytes, lists, elements of lists.
    """
    if isinstance(data, np.ndarray) and data.dtype.kind in "biuf":
        source = _of_numpy(name, data)
    else:
        source = _of_arrow(name, data)
    if like is None:
        return source
    column = source.column
    if column.code != like.code or (source.validity is not None and not like.optional):
        what = "has nulls" if column.code == like.code else f"has type code {column.code}, not {like.code}"
        raise SchemaMismatchError(f"column {name!r} {what}: the messages are of another type")
    return ColumnSource(
        like, source.rows, source.values, source.validity, source.offsets, source.inner, source.data
    )


def scalar_code(name: str, dtype: np.dtype[Any]) -> int:
    """Return the type code of a column of booleans, integers, float32 or float64; `TypeError` for other dtypes."""
    code = _CODE_OF.get(dtype)
    if code is None:
        code = _CODE_OF.get(native(dtype))
    if code is None:
        raise TypeError(f"column {name!r}: colbin has no type for {dtype}; convert it first")
    return code


def _of_numpy(name: str, data: NDArray[Any]) -> ColumnSource:
    if data.ndim != 1:
        raise ValueError(f"column {name!r} has {data.ndim} dimensions, not 1")
    code = scalar_code(name, data.dtype)
    values = np.ascontiguousarray(data, SCALAR_DTYPES[code])
    return ColumnSource(RecordColumn(name, code), len(values), values)


def _of_arrow(name: str, data: Any) -> ColumnSource:
    import pyarrow as pa

    array = without_views(data if isinstance(data, (pa.Array, pa.ChunkedArray)) else _inferred(name, data))
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # no chunk, or too large for one
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    kind, rows = array.type, len(array)
    validity = None
    if array.null_count:
        validity = np.frombuffer(array.is_valid().cast(pa.uint8()).buffers()[1], np.uint8, rows)
    if pa.types.is_boolean(kind):
        flags = array.cast(pa.uint8())
        values = np.frombuffer(flags.buffers()[1], np.uint8, rows, flags.offset).view(np.bool_)
        return ColumnSource(RecordColumn(name, 0, validity is not None), rows, values, validity)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        dtype = np.dtype(kind.to_pandas_dtype())
        code = scalar_code(name, dtype)
        values = _values(array, dtype)
        return ColumnSource(RecordColumn(name, code, validity is not None), rows, values, validity)
    if pa.types.is_null(kind):
        raise TypeError(f"column {name!r} has no type: cast it to the type it would have")
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        if validity is not None and not text:
            raise ValueError(
                f"column {name!r}: bytes cannot be null, an empty value reads back as null or empty alike"
            )
        offsets, content = _text_buffers(array)
        column = RecordColumn(name, TypeCode.STRING if text else TypeCode.BYTES, validity is not None)
        return ColumnSource(column, rows, None, validity, offsets, None, content)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _of_lists(name, array)
    raise TypeError(f"column {name!r}: colbin has no type for {kind}; cast it first")


def _inferred(name: str, data: Any) -> pa.Array:
    """Return values without a type of their own as Arrow has them."""
    import pyarrow as pa

    if not hasattr(data, "__iter__") or isinstance(data, (str, bytes)):
        raise TypeError(f"column {name!r}: {type(data).__name__} is no sequence of values")
    try:
        return pa.array(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as exc:
        raise TypeError(f"column {name!r} has values of no one type that the format has: {exc}") from None


def _values(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def _offsets(array: pa.Array) -> NDArray[np.int64]:
    import pyarrow as pa

    kind = array.type
    wide = pa.types.is_large_list(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    dtype = np.dtype(np.int64 if wide else np.int32)
    buffer = array.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(len(array) + 1, np.int64)
    return np.frombuffer(buffer, dtype, len(array) + 1, array.offset * dtype.itemsize).astype(
        np.int64, copy=False
    )


def _text_buffers(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    offsets, buffer = _offsets(array), array.buffers()[2]
    return offsets, _NO_BYTES if buffer is None else np.frombuffer(buffer, np.uint8)


def _of_lists(name: str, array: pa.Array) -> ColumnSource:
    import pyarrow as pa

    kind, rows = array.type.value_type, len(array)
    if array.null_count or array.values.null_count:
        raise ValueError(
            f"column {name!r}: lists and their elements cannot be null; an empty list and none are alike"
        )
    offsets, child = _offsets(array), array.values
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        inner, content = _text_buffers(child)
        return ColumnSource(RecordColumn(name, TypeCode.STRINGS), rows, None, None, offsets, inner, content)
    dtype = np.dtype(kind.to_pandas_dtype()) if pa.types.is_integer(kind) else None
    code = None if dtype is None else _LIST_CODES.get(dtype.str[1:])
    if dtype is None or code is None:
        raise TypeError(
            f"column {name!r}: colbin has lists of integers and of strings, not of {kind}"
            + (" (bytes are binary)" if pa.types.is_uint8(kind) else "")
        )
    return ColumnSource(RecordColumn(name, code), rows, _values(child, dtype), None, offsets)


def rows_section(columns: Sequence[RecordColumn]) -> bytes:
    """Return the section of a list of records of `columns` at the root: an envelope and the row type (colbin.md 10).

    Keys are 0 to n - 1 in order; up to 16 fields they have four bits.

    Raises
    ------
    ValueError
        For no column, more than 256, and names that occur twice.
    """
    return _section_of(tuple((column.name, column.code, column.optional) for column in columns))


@lru_cache(maxsize=256)
def _section_of(shape: tuple[tuple[str, int, bool], ...]) -> bytes:
    columns = [RecordColumn(*column) for column in shape]
    if not 0 < len(columns) <= 256:
        raise ValueError(f"a record has 1 to 256 fields, not {len(columns)}")
    names = {column.name for column in columns}
    if len(names) != len(columns):
        raise ValueError("column names must differ")
    fields = tuple(
        FieldDef(
            column.name,
            key,
            FieldType.optional(column.code) if column.optional else FieldType.scalar(column.code),
        )
        for key, column in enumerate(columns)
    )
    envelope = StructDef("", (FieldDef("rows", 0, FieldType.records(1)),), k8=False, envelope=True)
    return Section((envelope, StructDef("", fields, k8=len(fields) > 16))).to_bytes()
