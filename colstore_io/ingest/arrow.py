"""Arrow columns as stored values: what Arrow tables, Polars, DuckDB and Arrow-backed pandas dtypes hand us.

The reverse of `arrays.py`, with the same rule: whole buffers, no Python object per value. Which Arrow type
becomes which stored dtype is the table of cstore-behaviour.md 6.1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..arrays import is_utf8, row_blocks
from ..errors import SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CATEGORIES_JSON_BYTES",
    "ImportedColumn",
    "TextTarget",
    "arrow_type_error",
    "check_width",
    "fixed_text",
    "refuse_trailing_nul",
    "storable_categories",
    "values_from_arrow",
    "whole_columns",
]

CATEGORIES_JSON_BYTES = 64 << 10
"""Longest JSON text of a ``categories`` member (cstore.md 4.2)."""

_MAX_ITEM_BYTES = 2**31 - 1  # of a NumPy dtype


@dataclass(frozen=True, slots=True)
class TextTarget:
    """How variable-length text and bytes become fixed-width columns (cstore-behaviour.md 6.1).

    Attributes
    ----------
    strings : "unicode" or "bytes"
        ``<Un``, or UTF-8 in ``|Sn``.
    width : int, optional
        Fixed width: characters, or bytes for ``|S``. ``None``: the longest value, at least 1.
    advice : str
        Ends the error message for a longer value, after ``string_width={name: longest}``.
    """

    strings: Literal["unicode", "bytes"] = "unicode"
    width: int | None = None
    advice: str = "would hold it"

    def too_long(self, name: str, longest: int, unit: str) -> SchemaMismatchError:
        """Build the error for a value of `longest` units."""
        return SchemaMismatchError(
            f"column {name!r}: a value of {longest} {unit} does not fit the fixed width of {self.width}; "
            f"string_width={{{name!r}: {longest}}} {self.advice}"
        )


@dataclass(frozen=True, slots=True)
class ImportedColumn:
    """One Arrow column as stored values.

    Attributes
    ----------
    values : ndarray, shape (n,)
        Of a storable dtype; shares the Arrow buffer (read-only) when there is one chunk without nulls and the
        layout allows. Null slots hold zero bytes.
    validity : ndarray of bool, shape (n,), or None
        ``None`` when there are no nulls.
    logical, tz, categories, ordered
        As in `colstore_io.fields.Field`.
    """

    values: NDArray[Any]
    validity: NDArray[np.bool_] | None = None
    logical: str | None = None
    tz: str | None = None
    categories: tuple[Any, ...] | None = None
    ordered: bool | None = None


def storable_categories(dictionary: pa.Array) -> tuple[Any, ...] | None:
    """Return the entries of a dictionary for `Field.categories`, or None when they may not be stored.

    Only strings, integers and booleans whose JSON text has at most 64 KiB are stored (cstore.md 4.2).
    """
    # Each entry takes at least three bytes of JSON, so longer dictionaries need not be looked at.
    if (
        dictionary.null_count
        or not _listable(dictionary.type)
        or len(dictionary) > CATEGORIES_JSON_BYTES // 3
    ):
        return None
    categories = dictionary.to_pylist()
    return tuple(categories) if len(json.dumps(categories)) <= CATEGORIES_JSON_BYTES else None


def _bits(buffer: pa.Buffer, offset: int, length: int) -> NDArray[np.bool_]:
    first = offset // 8
    packed = np.frombuffer(buffer, np.uint8)[first : (offset + length + 7) // 8]
    skip = offset - 8 * first
    return np.unpackbits(packed, bitorder="little", count=skip + length)[skip:].view(np.bool_)


def _chunk_validity(chunk: pa.Array) -> NDArray[np.bool_] | None:
    if chunk.null_count == 0:
        return None
    return _bits(chunk.buffers()[0], chunk.offset, len(chunk))


def _chunk_values(chunk: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """View the value buffer of a fixed-width chunk; the slots of nulls hold anything."""
    if len(chunk) == 0:
        return np.empty(0, dtype)
    buffer = chunk.buffers()[1]
    if dtype.kind == "b":
        return _bits(buffer, chunk.offset, len(chunk))
    start, size = chunk.offset * dtype.itemsize, len(chunk) * dtype.itemsize
    return np.frombuffer(buffer, np.uint8, count=size, offset=start).view(dtype)


def _fixed_dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    """Return the dtype of an Arrow type's value buffer, None when it has no fixed-width values we store."""
    import pyarrow as pa

    types = pa.types
    if types.is_boolean(kind):
        return np.dtype(np.bool_)
    if types.is_integer(kind) or types.is_floating(kind):
        number: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return number
    if types.is_timestamp(kind):
        return np.dtype(f"M8[{kind.unit}]")
    if types.is_duration(kind):
        return np.dtype(f"m8[{kind.unit}]")
    if types.is_date32(kind):
        return np.dtype(np.int32)
    if types.is_date64(kind):
        return np.dtype("M8[ms]")
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind) and kind.byte_width > 0:
        return np.dtype(f"S{kind.byte_width}")
    return None


def _import_fixed(chunks: list[pa.Array], kind: pa.DataType, dtype: np.dtype[Any]) -> ImportedColumn:
    import pyarrow as pa

    stored, logical, tz = dtype, None, None
    if pa.types.is_date32(kind):
        stored, logical = np.dtype("M8[D]"), "date32"
    elif pa.types.is_date64(kind):
        logical = "date64"
    elif pa.types.is_timestamp(kind):
        tz = kind.tz
    if len(chunks) == 1 and chunks[0].null_count == 0 and stored == dtype:
        values = np.require(_chunk_values(chunks[0], dtype), requirements="A")
        return ImportedColumn(values, None, logical, tz)
    out = np.empty(sum(map(len, chunks)), stored)
    validity = _joined_validity(chunks)
    row = 0
    for chunk in chunks:
        # Plain bytes for the fixed-size kind: NumPy's string copy would be slower and means the same.
        part = _chunk_values(chunk, dtype)
        out[row : row + len(chunk)] = part.astype(np.int64).view(stored) if stored != dtype else part
        row += len(chunk)
    _blank(out, validity)
    return ImportedColumn(out, validity, logical, tz)


def _joined_validity(chunks: list[pa.Array]) -> NDArray[np.bool_] | None:
    if not any(chunk.null_count for chunk in chunks):
        return None
    validity = np.ones(sum(map(len, chunks)), np.bool_)
    row = 0
    for chunk in chunks:
        part = _chunk_validity(chunk)
        if part is not None:
            validity[row : row + len(chunk)] = part
        row += len(chunk)
    return validity


def _blank(values: NDArray[Any], validity: NDArray[np.bool_] | None) -> None:
    """Put zero bytes under the nulls of an owned, contiguous array (cstore-behaviour.md 6.1)."""
    if validity is not None and len(values):
        values.view(np.uint8).reshape(len(values), -1)[~validity] = 0


def _variable_parts(chunk: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return absolute offsets (length n + 1) and the data bytes of a string or binary chunk without nulls."""
    import pyarrow as pa

    wide = pa.types.is_large_string(chunk.type) or pa.types.is_large_binary(chunk.type)
    dtype = np.dtype(np.int64 if wide else np.int32)
    if len(chunk) == 0:
        return np.zeros(1, dtype), np.empty(0, np.uint8)
    _, offset_buffer, data_buffer = chunk.buffers()
    offsets = np.frombuffer(offset_buffer, dtype, count=len(chunk) + 1, offset=chunk.offset * dtype.itemsize)
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return offsets, data


def _character_lengths(chunk: pa.Array) -> NDArray[np.int64]:
    import pyarrow.compute as pc

    return np.asarray(pc.utf8_length(chunk)).astype(np.int64, copy=False)


def _fill_rows(
    out: NDArray[Any], offsets: NDArray[Any], data: NDArray[np.uint8], lengths: NDArray[np.int64]
) -> None:
    """Write variable-length values into zeroed rows, shape (k, n), of uint32 characters or uint8 bytes.

    `lengths` counts items of `out`. Does not validate: `data` is UTF-8 when the items are characters.
    """
    columns = np.arange(out.shape[1])
    for rows in row_blocks(*out.shape):
        block = data[offsets[rows.start] : offsets[rows.stop]]
        if out.itemsize == 4 and block.max(initial=0) >= 0x80:
            block = np.frombuffer(block.tobytes().decode("utf-8").encode("utf-32-le"), "<u4")
        out[rows][columns < lengths[rows, None]] = block


def refuse_trailing_nul(name: str) -> NoReturn:
    """Raise the error for a value that ends in a NUL character (cstore-behaviour.md 6.1)."""
    raise ValueError(
        f"column {name!r}: a value ends in a NUL character and cannot be told from its padding; "
        "strip or replace trailing NULs first"
    )


def check_width(name: str, width: int, character_bytes: int) -> None:
    """Raise ValueError for a fixed width whose items no NumPy dtype can have (2 GiB)."""
    if width * character_bytes > _MAX_ITEM_BYTES:
        raise ValueError(
            f"column {name!r}: a fixed width of {width} is more than the {_MAX_ITEM_BYTES // character_bytes} "
            "that an item can hold; choose a smaller string_width"
        )


def fixed_text(name: str, chunks: list[pa.Array], target: TextTarget, *, text: bool = True) -> NDArray[Any]:
    """Turn variable-length Arrow text or bytes into one fixed-width array.

    Parameters
    ----------
    name : str
        Column name, for messages.
    chunks : list of pyarrow.Array
        ``string``, ``large_string``, ``binary`` or ``large_binary``; nulls become empty values.
    target : TextTarget
        Unicode or bytes, and the width.
    text : bool, default True
        False for bytes: always ``|Sn``, never decoded.

    Returns
    -------
    ndarray of ``<Un`` or ``|Sn``, shape (sum of lengths,)
        NUL-padded; n is `target.width`, or the longest value and at least 1.

    Raises
    ------
    SchemaMismatchError
        If a value is longer than `target.width`.
    ValueError
        If a value ends in a NUL character (it could not be told from padding), or text is not UTF-8.
    """
    import pyarrow.compute as pc

    unicode = text and target.strings == "unicode"
    empty = "" if text else b""
    chunks = [pc.fill_null(chunk, empty) if chunk.null_count else chunk for chunk in chunks]
    parts = [_variable_parts(chunk) for chunk in chunks]
    lengths = [
        _character_lengths(chunk) if unicode else np.diff(offsets).astype(np.int64, copy=False)
        for chunk, (offsets, _) in zip(chunks, parts, strict=True)
    ]
    for offsets, data in parts:
        last = offsets[1:][offsets[1:] > offsets[:-1]] - 1
        if len(last) and not data[last].all():
            refuse_trailing_nul(name)
        if text and not is_utf8(data.data, offsets):
            raise ValueError(f"column {name!r} holds text that is not valid UTF-8; store it as bytes")
    longest = max((int(part.max(initial=0)) for part in lengths), default=0)
    width = max(longest, 1) if target.width is None else target.width
    if longest > width:
        raise target.too_long(name, longest, "characters" if unicode else "bytes")
    check_width(name, width, 4 if unicode else 1)
    n_rows = sum(map(len, lengths))
    matrix = np.zeros((n_rows, width), np.uint32 if unicode else np.uint8)
    row = 0
    for part, (offsets, data) in zip(lengths, parts, strict=True):
        _fill_rows(matrix[row : row + len(part)], offsets, data, part)
        row += len(part)
    return matrix.reshape(-1).view(f"<U{width}" if unicode else f"S{width}")


def _without_views(chunk: pa.Array, wide: pa.DataType) -> list[pa.Array]:
    import pyarrow as pa

    try:
        return [chunk.cast(wide)]
    except (
        pa.ArrowNotImplementedError
    ):  # older pyarrow: through objects, but only some rows of them at a time
        rows = 1 << 16
        starts = range(0, max(len(chunk), 1), rows)
        return [pa.array(chunk.slice(start, rows).to_pylist(), wide) for start in starts]


def _import_variable(
    name: str, chunks: list[pa.Array], kind: pa.DataType, target: TextTarget
) -> ImportedColumn:
    import pyarrow as pa

    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    view = types.is_string_view(kind) or types.is_binary_view(kind)
    if view:  # views have no single data buffer
        wide = pa.large_string() if text else pa.large_binary()
        chunks = [part for chunk in chunks for part in _without_views(chunk, wide)]
    values = fixed_text(name, chunks, target, text=text)
    large = types.is_large_string(kind) or types.is_large_binary(kind)
    logical = ("large_" if large else "") + ("string" if text else "binary")
    if values.dtype.kind == "U" and logical == "string":
        return ImportedColumn(values, _joined_validity(chunks))  # the dtype tells it
    return ImportedColumn(values, _joined_validity(chunks), logical)


def _import_dictionary(
    name: str, array: pa.ChunkedArray, kind: pa.DataType, target: TextTarget
) -> ImportedColumn:
    import pyarrow as pa

    chunks = array.unify_dictionaries().chunks
    dictionary = chunks[0].dictionary if chunks else pa.array([], kind.value_type)
    codes = values_from_arrow(pa.chunked_array([c.indices for c in chunks], kind.index_type), name)
    used = np.zeros(len(dictionary), np.bool_)
    positions = codes.values if codes.validity is None else codes.values[codes.validity]
    used[positions] = True
    # A fixed width binds the values, not categories that no row uses.
    entries = dictionary if target.width is None or used.all() else _without(dictionary, ~used)
    values = values_from_arrow(entries, name, target)
    listed = storable_categories(dictionary)
    validity = codes.validity
    if dictionary.null_count:
        present = np.asarray(dictionary.is_valid())
        validity = present[codes.values] if validity is None else validity & present[codes.values]
    if len(dictionary):
        out = values.values[codes.values]
        _blank(out, validity)
    else:
        out = np.zeros(len(array), values.values.dtype)
    return ImportedColumn(out, validity, values.logical, values.tz, listed, bool(kind.ordered))


def _without(dictionary: pa.Array, unused: NDArray[np.bool_]) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pa.array(unused), pa.scalar(None, dictionary.type), dictionary)


def _listable(kind: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
    )


def values_from_arrow(
    array: pa.Array | pa.ChunkedArray, name: str = "", target: TextTarget | None = None
) -> ImportedColumn:
    """Turn one Arrow column into stored values (cstore-behaviour.md 6.1).

    Parameters
    ----------
    array : pyarrow.Array or pyarrow.ChunkedArray
        The column; one without nulls in one chunk is shared where the layout allows.
    name : str
        Column name, for messages.
    target : TextTarget, optional
        What text and variable-length bytes become; default ``<Un`` of the longest value.

    Returns
    -------
    ImportedColumn

    Raises
    ------
    TypeError
        For nested types, decimals, times of day, intervals, unions and extension types, naming the column.
    ValueError, SchemaMismatchError
        As in `fixed_text`.
    """
    import pyarrow as pa

    target = TextTarget() if target is None else target
    if isinstance(array, pa.Array):
        array = pa.chunked_array([array], array.type)
    kind, types = array.type, pa.types
    if types.is_run_end_encoded(kind):
        import pyarrow.compute as pc

        array = pa.chunked_array([pc.run_end_decode(chunk) for chunk in array.chunks], kind.value_type)
        kind = array.type
    if types.is_null(kind):
        return ImportedColumn(np.full(len(array), np.nan))
    chunks = array.chunks
    if len(chunks) > 1:
        chunks = [chunk for chunk in chunks if len(chunk)] or chunks[:1]
    chunks = chunks or [pa.array([], kind)]
    dtype = None if isinstance(kind, pa.BaseExtensionType) else _fixed_dtype(kind)
    if dtype is not None:
        return _import_fixed(chunks, kind, dtype)
    if types.is_dictionary(kind):
        return _import_dictionary(name, pa.chunked_array(chunks, kind), kind, target)
    variable = (
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
    )
    if any(test(kind) for test in variable):
        return _import_variable(name, chunks, kind, target)
    if (
        types.is_fixed_size_binary(kind)
        and not types.is_decimal(kind)
        and not isinstance(kind, pa.BaseExtensionType)
    ):
        return ImportedColumn(np.zeros(len(array), "S1"), _joined_validity(chunks))  # width 0 is not storable
    raise arrow_type_error(name, kind)


def arrow_type_error(name: str, kind: pa.DataType) -> TypeError:
    """Build the error for an Arrow type that has no stored form."""
    return TypeError(f"column {name!r} has Arrow type {kind}, which cannot be stored; {_advice(kind)}")


def whole_columns(
    table: pa.Table, strings: Literal["unicode", "bytes"]
) -> tuple[pa.Table, dict[str, int], set[str]]:
    """Look at all chunks of a table for what its first batch would otherwise decide alone.

    Parameters
    ----------
    table : pyarrow.Table
    strings : "unicode" or "bytes"
        As in `TextTarget`.

    Returns
    -------
    table : pyarrow.Table
        With one dictionary per column; everything else is shared.
    widths : dict of str to int
        Longest value, at least 1, of the columns of variable-length text and bytes.
    with_nulls : set of str
        Columns that hold a null; those of dictionaries need not be told.
    """
    import pyarrow as pa

    types = pa.types
    widths: dict[str, int] = {}
    with_nulls: set[str] = set()
    for i, field in enumerate(table.schema):
        column, kind = table.column(i), field.type
        if column.num_chunks < 2:
            continue
        if types.is_dictionary(kind):
            try:
                table = table.set_column(i, field, column.unify_dictionaries())
            except pa.ArrowException:  # of a kind, or too many for the index: each batch for itself
                continue
        elif not types.is_nested(kind) or types.is_run_end_encoded(kind):
            found = [_longest_and_nulls(chunk, strings) for chunk in column.chunks]
            longest = [length for length, _ in found if length is not None]
            if longest:
                widths[field.name] = max(1, *longest)
            if any(has_null for _, has_null in found):
                with_nulls.add(field.name)
    return table, widths, with_nulls


def _longest_and_nulls(chunk: pa.Array, strings: str) -> tuple[int | None, bool]:
    """Return the longest value of variable-length text or bytes (None for other kinds), and whether nulls are there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    if types.is_run_end_encoded(chunk.type):
        chunk = pc.run_end_decode(chunk)
    kind, has_null = chunk.type, bool(chunk.null_count)
    parts = [chunk]
    if types.is_string_view(kind):
        parts = _without_views(chunk, pa.large_string())
    elif types.is_binary_view(kind):
        parts = _without_views(chunk, pa.large_binary())
    kind = parts[0].type
    text = types.is_string(kind) or types.is_large_string(kind)
    if not (text or types.is_binary(kind) or types.is_large_binary(kind)):
        return None, has_null
    measure = pc.utf8_length if text and strings == "unicode" else pc.binary_length
    return max(pc.max(measure(part)).as_py() or 0 for part in parts), has_null


def _advice(kind: pa.DataType) -> str:
    import pyarrow as pa

    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return f"cast it to its storage type {kind.storage_type} first"
    if types.is_decimal(kind):
        return "cast it to float64, or to scaled integers, first"
    if types.is_time(kind):
        return "cast it to int64 (ticks since midnight) or to a duration first"
    if types.is_nested(kind):
        return "flatten it into plain columns first"
    return "cast it to a number, text, date, timestamp or duration first"
