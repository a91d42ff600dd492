"""Arrow arrays from the buffers of stored columns.

Arrow lays out a column as a validity bitmap plus value buffers; a stored column is one run of fixed-width
values plus, when it is nullable, one byte per row of validity (cstore.md 4.2). Everything here goes from the
second to the first with whole-buffer operations: fixed-width values are shared, booleans and validity are
packed to bits, text is transcoded by a kernel. No Python object is made per value. The other direction
is `ingest_arrow.py`. pyarrow is imported when a function first needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import threads
from .errors import UnsupportedFeatureError
from .fields import Field, native
from .kernels import fixed_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ARROW_UNITS",
    "TEXT_LOGICAL",
    "arrow_array",
    "arrow_type",
    "as_dictionary",
    "is_utf8",
    "row_blocks",
    "variable_type",
    "without_views",
]

TEXT_LOGICAL = frozenset({"string", "large_string"})
"""Values of `Field.logical` that make a ``|S`` column UTF-8 text."""

ARROW_UNITS = frozenset({"s", "ms", "us", "ns"})
"""Time units that Arrow timestamps and durations have."""

_BLOCK_ITEMS = 1 << 18
"""Characters transcoded at a time: temporaries stay inside a few MiB of cache."""

_INT32_MAX = (1 << 31) - 1


def _value_type(field: Field) -> pa.DataType:
    import pyarrow as pa

    dtype, logical = field.dtype, field.logical
    kind = dtype.kind
    if kind == "O":
        return variable_type(logical or "")
    if kind == "b":
        return pa.bool_()
    if kind in "iu" or (kind == "f" and dtype.itemsize in (2, 4, 8)):
        return pa.from_numpy_dtype(native(dtype))
    if kind == "U":
        return pa.large_string() if logical == "large_string" else pa.string()
    if kind == "S":
        variable = {
            "string": pa.string,
            "large_string": pa.large_string,
            "binary": pa.binary,
            "large_binary": pa.large_binary,
        }.get(logical or "")
        return pa.binary(dtype.itemsize) if variable is None else variable()
    if kind in "mM":
        unit, count = np.datetime_data(dtype)
        if count == 1:
            if kind == "M" and unit == "D" and (logical == "date32" or field.nullable):
                return pa.date32()
            if kind == "M" and unit == "ms" and logical == "date64":
                return pa.date64()
            if unit in ARROW_UNITS:
                return pa.timestamp(unit, tz=field.tz) if kind == "M" else pa.duration(unit)
        raise TypeError(
            f"column {field.name!r}: Arrow has second-to-nanosecond units only, none for {dtype.str!r}; "
            "cast to one of the units s, ms, us, ns first"
        )
    raise TypeError(f"column {field.name!r}: Arrow has no type for {dtype.str!r}; cast to float64 first")


_ITEMS = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double", "string",
    "binary",
)  # fmt: skip


def variable_type(logical: str) -> pa.DataType:
    """Return the Arrow type of a field of variable length (`Field.logical`).

    Raises
    ------
    TypeError
        For a name that is none.
    """
    import pyarrow as pa

    plain = {
        "string": pa.string,
        "large_string": pa.large_string,
        "binary": pa.binary,
        "large_binary": pa.large_binary,
    }.get(logical)
    if plain is not None:
        return plain()
    if logical.startswith("list<") and logical[5:-1] in _ITEMS:
        return pa.list_(pa.type_for_alias(logical[5:-1]))
    raise TypeError(f"no Arrow type is called {logical!r}")


def arrow_type(field: Field, *, categories: bool = False) -> pa.DataType:
    """Return the Arrow type of a column.

    Parameters
    ----------
    field : Field
        The column; its name is for messages only.
    categories : bool, default False
        Give categorical fields (``field.ordered is not None``) a dictionary type with int32 indices.

    Returns
    -------
    pyarrow.DataType
        ``|S`` columns without a `logical` type are fixed-size binary (NULs kept); with ``"string"``,
        ``"binary"`` and their ``large_`` forms they have variable length (cstore-behaviour.md 11,
        cstore.md 4.2). A ``logical`` text that does not fit the dtype is ignored.

    Raises
    ------
    TypeError
        For time units other than s, ms, us, ns (days only as a date) and for long double, naming the cast.
    """
    import pyarrow as pa

    value = _value_type(field)
    if categories and field.ordered is not None:
        return pa.dictionary(pa.int32(), value, ordered=field.ordered)
    return value


def _byte_buffer(values: NDArray[Any]) -> pa.Buffer:
    """Share the bytes of a C-contiguous array; the buffer keeps the array alive."""
    import pyarrow as pa

    # datetime64 has no buffer protocol and float16 not everywhere: plain bytes always have.
    return pa.py_buffer(values.view(np.uint8) if values.size else np.empty(0, np.uint8))


def _pack_bits(flags: NDArray[Any]) -> pa.Buffer:
    # As uint8: a companion byte other than 0 counts as 1 (cstore.md 4.2).
    return _byte_buffer(np.packbits(np.ascontiguousarray(flags).view(np.uint8), bitorder="little"))


def _as_arrow_ready(values: NDArray[Any]) -> NDArray[Any]:
    """Return `values` native, aligned and contiguous: itself when it is so already."""
    return np.require(values, dtype=native(values.dtype), requirements=["C", "A"])


def row_blocks(n_rows: int, width: int) -> Iterator[slice]:
    """Cut `n_rows` rows of `width` items into blocks of a few MiB at most."""
    rows = max(1, _BLOCK_ITEMS // width)
    for start in range(0, n_rows, rows):
        yield slice(start, min(n_rows, start + rows))


def _text_buffers(
    field: Field, values: NDArray[Any], present: NDArray[Any] | None
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return offsets (int64, length n + 1) and data of a fixed-width text column without its padding.

    Whatever a foreign writer left under a null is not a value.
    """
    n_rows = len(values)
    offsets = np.zeros(n_rows + 1, np.int64)
    itemsize = 4 if values.dtype.kind == "U" else 1
    width = values.dtype.itemsize // itemsize
    if not n_rows or not width:
        return offsets, np.empty(0, np.uint8)
    rows = values.view(np.uint8)
    with threads.lease(threads.wanted_threads(rows.size // 8, 0)) as granted:
        bad = fixed_text.text_offsets(rows, width, itemsize, offsets, present, threads=granted)
        if bad >= 0:
            raise UnsupportedFeatureError(
                f"column {field.name!r} holds a lone surrogate or a code point above U+10FFFF, "
                "which UTF-8 (Arrow, pandas) cannot hold"
            )
        data = np.empty(int(offsets[-1]), np.uint8)
        fixed_text.write_text(rows, width, itemsize, offsets, data, threads=granted)
    return offsets, data


def _plain_array(field: Field, values: NDArray[Any], validity: NDArray[Any] | None) -> pa.Array:
    """Build the array of a field in its value type (no dictionary)."""
    import pyarrow as pa

    target = _value_type(field)
    n_rows = len(values)
    present = None if validity is None else np.ascontiguousarray(validity).view(np.uint8)
    if values.dtype.kind in "mM":
        missing = np.isnat(values)
        if missing.any():
            present = ~missing if present is None else (present != 0) & ~missing
    null_count = 0 if present is None else n_rows - int(np.count_nonzero(present))
    bitmap = _pack_bits(present) if null_count and present is not None else None

    if values.dtype.kind == "U" or (values.dtype.kind == "S" and not pa.types.is_fixed_size_binary(target)):
        values = _as_arrow_ready(values)
        offsets, data = _text_buffers(field, values, present if null_count else None)
        if pa.types.is_string(target) or pa.types.is_binary(target):
            if offsets[-1] <= _INT32_MAX:
                offsets = offsets.astype(np.int32)
            else:  # 32-bit offsets do not reach: hand out the wide twin rather than fail
                target = pa.large_string() if pa.types.is_string(target) else pa.large_binary()
        array = pa.Array.from_buffers(
            target, n_rows, [bitmap, _byte_buffer(offsets), _byte_buffer(data)], null_count=null_count
        )
        if values.dtype.kind == "S" and field.logical in TEXT_LOGICAL and not is_utf8(data, offsets):
            # An invalid array would crash or mislead whatever reads it later.
            raise ValueError(f"column {field.name!r} is marked as text but its bytes are not UTF-8")
        return array
    if values.dtype.kind == "b":
        body = _pack_bits(values)
    elif pa.types.is_date32(target):
        days = _as_arrow_ready(values).view(np.int64)
        if null_count:
            days = np.where(np.isnat(values) if present is None else present == 0, 0, days)
        if n_rows and (days.max() > _INT32_MAX or days.min() < -_INT32_MAX - 1):
            raise ValueError(f"column {field.name!r} holds a day that Arrow's date32 cannot hold")
        body = _byte_buffer(days.astype(np.int32))
    else:
        body = _byte_buffer(_as_arrow_ready(values))
    return pa.Array.from_buffers(target, n_rows, [bitmap, body], null_count=null_count)


def is_utf8(data: bytes | bytearray | memoryview | NDArray[np.uint8], offsets: NDArray[Any]) -> bool:
    """Tell whether every value ``data[offsets[i] : offsets[i + 1]]`` is UTF-8 on its own.

    Offsets are absolute positions in `data`, shape (n + 1,), non-decreasing.
    """
    if not len(offsets):
        return True
    codes = np.frombuffer(data, np.uint8)
    part = codes[offsets[0] : offsets[-1]]
    if part.max(initial=0) < 0x80:
        return True
    try:
        part.tobytes().decode("utf-8")
    except UnicodeDecodeError:
        return False
    # The whole is valid; a value is too unless a cut falls inside a character.
    starts = offsets[:-1][offsets[1:] > offsets[:-1]]
    return not bool(((codes[starts] & 0xC0) == 0x80).any())


def as_dictionary(field: Field, plain: pa.Array) -> pa.DictionaryArray:
    """Return a categorical field's values as a dictionary array with int32 indices.

    Parameters
    ----------
    field : Field
        Its `categories` become the dictionary, in their order; without them, the values as they appear.
    plain : pyarrow.Array
        The values, in the type of the categories.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    ordered = bool(field.ordered)
    dictionary = None
    if field.categories is not None:
        try:
            dictionary = pc.unique(pa.array(list(field.categories), type=plain.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            dictionary = None  # categories of another kind than the column: a foreign file; the values decide
    if dictionary is None or dictionary.null_count:
        encoded = pc.dictionary_encode(plain)
        return pa.DictionaryArray.from_arrays(encoded.indices, encoded.dictionary, ordered=ordered)
    indices = pc.index_in(plain, value_set=dictionary)
    if indices.null_count != plain.null_count:
        # Values that the stored categories do not list (appended by another library) are added behind them.
        unlisted = pc.unique(plain.filter(pc.and_(indices.is_null(), plain.is_valid())))
        dictionary = pa.concat_arrays([dictionary, unlisted])
        indices = pc.index_in(plain, value_set=dictionary)
    return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=ordered)


def arrow_array(
    field: Field,
    values: NDArray[Any],
    validity: NDArray[Any] | None = None,
    *,
    categories: bool = False,
) -> pa.Array:
    """Build the Arrow array of one column from its stored values.

    Parameters
    ----------
    field : Field
        What the column is: `dtype`, `logical`, `tz` and `categories` decide the Arrow type.
    values : ndarray, shape (n,)
        Values in the field's dtype. Shared with the result when native, aligned and contiguous (the array is
        kept alive), else copied first; must not be changed afterwards.
    validity : ndarray of bool, shape (n,), optional
        1 = a value, 0 = null; any non-zero byte counts as 1. NaT is null too; NaN is a value.
    categories : bool, default False
        Make a dictionary array of a categorical field, with the stored categories if there are any.

    Returns
    -------
    pyarrow.Array
        Of type `arrow_type(field)`; a text column whose data exceed 2 GiB comes as ``large_string``
        (``large_binary``), because 32-bit offsets cannot address it.

    Raises
    ------
    TypeError
        If Arrow has no type for the dtype (`arrow_type`).
    ValueError
        If text holds lone surrogates or bytes that are not UTF-8, or a day does not fit ``date32``.

    Notes
    -----
    Zero-copy for numbers, times and fixed-size bytes; booleans and the validity are packed to bits; text is
    transcoded block by block, so the only large allocation is the result. For a million ``<U12`` values
    this takes half the time of `pyarrow.array`, which also lacks a way to take the validity without a copy.
    """
    plain = _plain_array(field, values, validity)
    return as_dictionary(field, plain) if categories and field.ordered is not None else plain


def without_views(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return an Arrow array without views of text or bytes: what Polars hands out, and few of pyarrow's functions take.

    Parameters
    ----------
    array : pyarrow.Array or pyarrow.ChunkedArray
        Of any type.

    Returns
    -------
    pyarrow.Array or pyarrow.ChunkedArray
        `array` itself where there are none, also as values of a dictionary or of lists. Otherwise the same values as
        ``large_string`` or ``large_binary``, in new memory.
    """
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        kind = _type_without_views(array.type)
        if kind == array.type:
            return array
        return pa.chunked_array([without_views(chunk) for chunk in array.chunks], kind)
    kind = _type_without_views(array.type)
    if kind == array.type:
        return array
    if pa.types.is_dictionary(kind):
        values = without_views(array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, values, ordered=kind.ordered)
    try:
        return array.cast(kind)
    except pa.ArrowNotImplementedError:  # pyarrow before 18
        return pa.array(array.to_pylist(), kind)


def _type_without_views(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_dictionary(kind):
        values = _type_without_views(kind.value_type)
        return kind if values == kind.value_type else pa.dictionary(kind.index_type, values, kind.ordered)
    if types.is_list(kind) or types.is_large_list(kind):
        values = _type_without_views(kind.value_type)
        if values != kind.value_type:
            return pa.list_(values) if types.is_list(kind) else pa.large_list(values)
    return kind
