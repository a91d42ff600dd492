"""As a frame, an Arrow table, a capsule, a record array.

Columns arrive here as they were read: a NumPy array for a plain field; for a nullable one an Arrow array
(`arrays.arrow_array`), or the pair (values, validity) that it would be made of. This module gives whole tables in the
form that other libraries want, sharing memory wherever both layouts allow. `frame` lives in `convert_pandas.py`.
pyarrow and pandas are imported when a function first needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import buffers, threads
from .arrays import arrow_array, arrow_type, as_dictionary
from .convert_pandas import frame
from .errors import UnsupportedFeatureError
from .fields import Field

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ColumnData",
    "arrow_can_share",
    "arrow_column",
    "arrow_schema",
    "arrow_stream",
    "arrow_table",
    "dtype_of",
    "frame",
    "recarray",
    "record_batches",
    "with_dictionaries",
]

ColumnData: TypeAlias = Any
"""One column as it was read: ndarray, `pyarrow.Array`, or a pair (values, validity or None)."""

_OFFSET_BYTES = (1 << 31) - 1


def dtype_of(field: Field) -> np.dtype[Any] | pa.DataType:
    """Return the type of a column as users see it (cstore-behaviour.md 3).

    Returns
    -------
    numpy.dtype or pyarrow.DataType
        The stored dtype in native byte order; for nullable fields the Arrow type that `array` hands out, so that
        pandas is not needed to say it. (A pandas user gets the same by ``pandas.ArrowDtype(dtype)``.) A nullable
        field for which Arrow has no type keeps its NumPy dtype.
    """
    if field.nullable or field.variable:
        try:
            return arrow_type(field)
        except TypeError:
            pass  # such a column can be listed, though not read as a nullable one
    return field.native_dtype


# ------------------------------------------------------------------------------------------------ record arrays


def recarray(
    names: Sequence[str], columns: Sequence[NDArray[Any]], *, n_rows: int | None = None
) -> NDArray[np.void]:
    """Pack columns into records without padding.

    Parameters
    ----------
    names : sequence of str
        Field names; no two equal.
    columns : sequence of ndarray, shape (n,)
        Values, any native dtype.
    n_rows : int, optional
        Rows; needed only when there are no columns.

    Returns
    -------
    ndarray of a structured dtype, shape (n,)
        Owned and writable. The item size is the sum of the item sizes, fields are in the order given.

    Raises
    ------
    ValueError
        If names repeat, lengths differ, or a column is nullable (records have no place for nulls).
    """
    plain: list[NDArray[Any]] = []
    for name, column in zip(names, columns, strict=True):
        if not isinstance(column, np.ndarray):
            raise ValueError(
                f"column {name!r} is nullable or of variable length: a record array has no form for it; "
                "use array() or frame()"
            )
        plain.append(np.ascontiguousarray(column))
    lengths = {len(column) for column in plain}
    if n_rows is not None:
        lengths.add(n_rows)
    if len(lengths) > 1:
        raise ValueError(f"the columns of a record array have different lengths: {sorted(lengths)}")
    count = lengths.pop() if lengths else 0
    # The dict form keeps an empty name; a list of pairs would turn it into "f0".
    record = np.dtype({"names": list(names), "formats": [column.dtype for column in plain]})
    out = buffers.empty(count, record)
    if count and plain:
        addresses = np.array([column.ctypes.data for column in plain], np.uint64)
        sizes = np.array([column.dtype.itemsize for column in plain], np.int64)
        with threads.lease(threads.wanted_threads(out.nbytes, 0)) as granted:
            _interleave(addresses, sizes, out.view(np.uint8), count, granted)
    return out


def _interleave(
    addresses: NDArray[np.uint64], sizes: NDArray[np.int64], out: NDArray[np.uint8], count: int, granted: int
) -> None:
    try:
        from .kernels.copy import interleave
    except ImportError:  # an installation without compiled kernels
        from .kernels_numpy import interleave
    interleave(addresses, sizes, out, count, threads=granted)


# -------------------------------------------------------------------------------------------------------- Arrow


def arrow_can_share(values: NDArray[Any]) -> bool:
    """Tell whether Arrow can use the memory of `values` as it is: native, aligned, contiguous."""
    return bool(values.dtype.isnative and values.flags.aligned and values.flags.c_contiguous)


def arrow_column(field: Field, data: ColumnData, *, categories: bool = False) -> pa.Array:
    """Return one column as an Arrow array, whatever form it was read in.

    Parameters
    ----------
    field : Field
        What the column is.
    data : ndarray, pyarrow.Array, or (values, validity)
        The column.
    categories : bool, default False
        Give a categorical field as a dictionary array.

    Raises
    ------
    TypeError, ValueError
        As in `arrays.arrow_array`.
    """
    if isinstance(data, tuple):
        return arrow_array(field, data[0], data[1], categories=categories)
    if isinstance(data, np.ndarray):
        return arrow_array(field, data, categories=categories)
    return as_dictionary(field, data) if categories and field.ordered is not None else data


def arrow_schema(
    fields: Iterable[Field], *, categories: bool = True, declare_not_null: bool = False
) -> pa.Schema:
    """Return the Arrow schema of a table (cstore-behaviour.md 11).

    Parameters
    ----------
    fields : iterable of Field
        A `Schema` will do. Companions are no columns of it.
    categories : bool, default True
        Categorical fields are dictionary types.
    declare_not_null : bool, default False
        Declare as not nullable the columns that cannot hold nulls: those without a companion, times (NaT) apart.
        Off by default, since Arrow compares the declaration when tables are compared or concatenated.

    Raises
    ------
    TypeError
        If Arrow has no type for a column, naming it and the cast.
    ValueError
        If a column name is not valid Unicode.
    """
    import pyarrow as pa

    members = []
    for field in fields:
        kind = arrow_type(field, categories=categories)
        nullable = not declare_not_null or field.nullable or field.dtype.kind in "mM"
        try:
            members.append(pa.field(field.name, kind, nullable=nullable))
        except UnicodeError:
            raise UnsupportedFeatureError(
                f"the name of column {field.name!r} holds a lone surrogate, which Arrow cannot hold; rename the column"
            ) from None
    return pa.schema(members)


def with_dictionaries(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return `schema` with the columns `names` as dictionaries of their type."""
    import pyarrow as pa

    for name in names:
        position = schema.get_field_index(name)
        field = schema.field(position)
        if not pa.types.is_dictionary(field.type):
            schema = schema.set(position, field.with_type(pa.dictionary(pa.int32(), field.type)))
    return schema


def _as_type(array: pa.Array, target: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if array.type == target:
        return array
    if pa.types.is_dictionary(target) and not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    return array if array.type == target else array.cast(target)


def _slices(fields: Sequence[Field], n_rows: int) -> Iterator[slice]:
    """Cut rows so that the text of no slice can outgrow the 32-bit offsets of ``string``."""
    widest = max((field.dtype.itemsize for field in fields if field.dtype.kind in "US"), default=1)
    step = max(1, _OFFSET_BYTES // widest)
    yield from (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


def _slice_of(data: ColumnData, rows: slice) -> ColumnData:
    if isinstance(data, tuple):
        return data[0][rows], None if data[1] is None else data[1][rows]
    return data[rows]


def record_batches(
    schema: pa.Schema, fields: Sequence[Field], batches: Iterable[Sequence[ColumnData]]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for columns in batches:
        first = columns[0] if len(columns) else ()
        n_rows = len(first[0] if isinstance(first, tuple) and first else first)
        for rows in _slices(fields, n_rows):
            whole = rows == slice(0, n_rows)
            arrays = []
            for field, target, column in zip(fields, schema, columns, strict=True):
                array = arrow_column(
                    field,
                    column if whole else _slice_of(column, rows),
                    categories=pa.types.is_dictionary(target.type),
                )
                arrays.append(_as_type(array, target.type))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def arrow_table(
    schema: pa.Schema, fields: Sequence[Field], batches: Iterable[Sequence[ColumnData]]
) -> pa.Table:
    """Put batches of columns together as an Arrow table with one chunk per batch.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of `arrow_schema`.
    fields : sequence of Field
        The columns, in the order of `schema`.
    batches : iterable of sequences
        Each the columns of one batch: ndarrays, Arrow arrays, or pairs (values, validity). Shared with the table
        where the layouts agree.

    Returns
    -------
    pyarrow.Table
    """
    import pyarrow as pa

    return pa.Table.from_batches(list(record_batches(schema, fields, batches)), schema=schema)


def _can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether every value of type `source` survives a cast to `target`."""
    import pyarrow as pa

    types = pa.types
    if source == target:
        return True
    if types.is_dictionary(source) and not types.is_dictionary(target):
        return _can_cast(source.value_type, target)
    if types.is_dictionary(target):
        value = source.value_type if types.is_dictionary(source) else source
        return not types.is_dictionary(source) and _can_cast(value, target.value_type)
    text = (types.is_string, types.is_large_string, types.is_string_view)
    binary = (types.is_binary, types.is_large_binary, types.is_binary_view)
    for family in (text, (*binary, types.is_fixed_size_binary)):
        if any(test(source) for test in family):
            return any(test(target) for test in family) and not types.is_fixed_size_binary(target)
    if types.is_integer(source) and types.is_integer(target):
        wider = target.bit_width > source.bit_width
        return bool(wider and (types.is_signed_integer(target) or types.is_unsigned_integer(source)))
    floats = types.is_floating(source) and types.is_floating(target)
    return bool(floats and target.bit_width > source.bit_width)


def _casts(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether this pyarrow has the cast."""
    import pyarrow as pa

    try:
        pa.array([], source).cast(target)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, TypeError):
        return False
    return True


def _requested(schema: pa.Schema, capsule: object | None) -> pa.Schema:
    """Return `schema` with those types of a requested schema that lose nothing; the rest is ignored."""
    import pyarrow as pa

    if capsule is None:
        return schema
    wanted = pa.Schema._import_from_c_capsule(capsule)
    if wanted.names != schema.names:
        return schema
    return pa.schema(
        [
            field.with_type(wish.type)
            if _can_cast(field.type, wish.type) and _casts(field.type, wish.type)
            else field
            for field, wish in zip(schema, wanted, strict=True)
        ]
    )


def arrow_stream(
    schema: pa.Schema,
    fields: Sequence[Field],
    batches: Callable[[], Iterable[Sequence[ColumnData]]],
    requested_schema: object | None = None,
) -> object:
    """Return a fresh Arrow C stream capsule over batches that are read as the consumer asks for them.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of `arrow_schema`.
    fields : sequence of Field
        The columns, in the order of `schema`.
    batches : callable
        Gives the batches, each as in `arrow_table`; called once per stream, when its first batch is asked for.
        (DuckDB asks one relation for several streams, so each needs an iterator of its own.)
    requested_schema : PyCapsule, optional
        Types that the consumer would like (``__arrow_c_stream__``); casts that keep every value are done, other
        wishes are ignored.

    Returns
    -------
    PyCapsule named ``arrow_array_stream``
    """
    import pyarrow as pa

    target = _requested(schema, requested_schema)

    def generate() -> Iterator[pa.RecordBatch]:
        for batch in record_batches(schema, fields, batches()):
            if target.equals(schema):
                yield batch
            else:
                columns = zip(batch.columns, target, strict=True)
                yield pa.RecordBatch.from_arrays(
                    [column.cast(t.type) for column, t in columns], schema=target
                )

    capsule: object = pa.RecordBatchReader.from_batches(target, generate()).__arrow_c_stream__()
    return capsule
