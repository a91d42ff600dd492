"""What did the user hand us, for formats with nulls and values of variable length of their own?

`ingest_columns` is to encoded formats what `ingest` is to `.cstore`: any table becomes a `ColumnBatch`. Text and bytes
stay as Arrow arrays, nulls stay in Arrow's bitmaps, plain numbers are NumPy arrays; nothing is padded, and there are
no companions. What a format cannot hold is refused by its encoder, which knows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..arguments import check_column_names, loaded_module
from ..arrays import arrow_array, without_views
from ..errors import ColumnNotFoundError, SchemaMismatchError
from ..fields import Field, Schema
from . import _is_empty_frame, _open_stream, _Source, _sources, is_stream
from .arrow import TextTarget, arrow_type_error
from .columns import _arrow_array, _kind_of, column_of
from .fit import check_names
from .frames import is_pandas_column

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ColumnBatch", "ColumnData", "field_of_arrow", "ingest_columns", "ingest_columns_stream"]

ColumnData: TypeAlias = "NDArray[Any] | pa.Array | pa.ChunkedArray"
Nullable: TypeAlias = bool | str | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Rows that an encoder can take.

    Attributes
    ----------
    schema : Schema
    columns : tuple of ndarray, pyarrow.Array or pyarrow.ChunkedArray
        One per field, of length `n_rows`. Fixed-width columns without nulls are NumPy arrays (contiguous,
        little-endian, perhaps the caller's own); all others are Arrow. Dictionaries stay dictionaries of
        the field's type.
    n_rows : int
    """

    schema: Schema
    columns: tuple[ColumnData, ...]
    n_rows: int

    def owned(self) -> ColumnBatch:
        """Return these rows in memory that is nobody else's: copies of the NumPy columns. Arrow arrays never change."""
        columns = tuple(c.copy() if isinstance(c, np.ndarray) else c for c in self.columns)
        return replace(self, columns=columns)


def ingest_columns(data: Any, *, nullable: Nullable = None, like: Schema | None = None) -> ColumnBatch:
    """Convert in-memory data of any accepted kind.

    Parameters
    ----------
    data : mapping, structured array, DataFrame, Arrow data, or ColumnBatch
        As in `ingest.ingest`; an index is ignored.
    nullable : bool, or name or sequence of names, optional
        Columns that may hold nulls besides those that do: all, or the named ones. Streams and later appends need
        this when their first rows have none.
    like : Schema, optional
        The schema of the table that the rows go into: names, order and types must be its.

    Raises
    ------
    TypeError, ValueError
        For what is no table, or has ragged, nested or mixed columns; names the column.
    SchemaMismatchError
        If the data do not fit `like`.

    Notes
    -----
    NaN is a value in columns of numbers, and "missing" among Python text and bytes. Categories and dictionaries are
    columns of their values. A column of nothing but None takes the type that `like` says, and is text without it.
    """
    if isinstance(data, ColumnBatch):
        return data if like is None or like is data.schema else _fitted(list(data.columns), data.schema, like)
    sources = _sources(data)
    for source in sources:
        _refuse_lone_surrogates(source.name)
    asked = _asked(nullable, [source.name for source in sources])
    columns, fields = [], []
    for source in sources:
        column, field = _column(source)
        wanted = asked if isinstance(asked, bool) else source.name in asked
        if wanted and not field.optional and (not isinstance(asked, bool) or source.nullable):
            field = replace(field, optional=True)
        columns.append(column)
        fields.append(field)
    n_rows = len(columns[0])
    for source, column in zip(sources, columns, strict=True):
        if len(column) != n_rows:
            raise ValueError(
                f"columns differ in length: {sources[0].name!r} has {n_rows} rows, {source.name!r} has {len(column)}"
            )
    schema = Schema(tuple(fields))
    return ColumnBatch(schema, tuple(columns), n_rows) if like is None else _fitted(columns, schema, like)


def ingest_columns_stream(
    data: Any, *, nullable: Nullable = None, like: Schema | None = None
) -> Iterator[ColumnBatch]:
    """Convert a stream (`ingest.is_stream`) batch by batch, lazily.

    Yields
    ------
    ColumnBatch
        All of one schema: `like`, else that of the first batch with rows. Batches without rows are skipped; a stream
        of none but such gives one batch of zero rows if its schema is known.

    Raises
    ------
    SchemaMismatchError
        If a batch does not fit; names batch and column.
    ValueError
        If the stream has neither rows nor a schema.
    """
    if not is_stream(data):
        raise TypeError(f"expected a stream of tables, got {type(data).__name__}")
    pyarrow = loaded_module("pyarrow")
    if pyarrow is not None and isinstance(data, (pyarrow.Table, pyarrow.RecordBatch)):  # in memory: one batch
        yield ingest_columns(data, nullable=nullable, like=like)
        return
    if hasattr(data, "__colstore_batches__"):  # a table of ours: not in the fixed widths of a `.cstore` file
        import pyarrow as pa

        own = data.__colstore_schema__()
        asked = _asked(nullable, own.names)
        nullable = (
            asked if asked is True else [f.name for f in own if f.nullable or (asked and f.name in asked)]
        )
        data = _unpadded(pa.RecordBatchReader.from_stream(data), own)
    items, release = _open_stream(data)
    empty: ColumnBatch | None = None
    any_rows = False
    try:
        for number, item in enumerate(items):
            if (like is not None and _is_empty_frame(item)) or (isinstance(item, dict) and not item):
                continue
            try:
                batch = ingest_columns(item, nullable=nullable, like=like)
            except (TypeError, ValueError, KeyError) as error:
                error.add_note(f"in item {number} of the stream (counted from 0)")
                raise
            if not batch.n_rows:
                empty = empty or batch
                continue
            like, any_rows = batch.schema, True
            yield batch
    finally:
        release()
    if any_rows:
        return
    if empty is None:
        raise ValueError(
            "the stream gave no rows and has no schema; there is nothing to store, give it a schema"
        )
    yield empty


def _unpadded(batches: pa.RecordBatchReader, own: Schema) -> Iterator[pa.RecordBatch]:
    """Give NumPy's bytes of fixed width as values of their own lengths: what fills them up is not part of them."""
    import pyarrow as pa

    padded = [p for p, field in enumerate(own) if field.dtype.kind == "S" and field.logical is None]
    for batch in batches:
        columns = batch.columns
        for p in padded:
            found, field = columns[p], replace(own.fields[p], logical="binary")
            buffer = found.buffers()[1]
            values = np.ndarray((len(found),), field.dtype, buffer, found.offset * field.dtype.itemsize)
            valid = np.asarray(found.is_valid()) if found.null_count else None
            columns[p] = arrow_array(field, values, valid)
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if padded else batch


def _asked(nullable: Nullable, names: Sequence[str]) -> bool | AbstractSet[str]:
    if nullable is None or isinstance(nullable, (bool, np.bool_)):
        return bool(nullable)
    asked = frozenset(check_column_names("nullable", nullable))
    for name in asked:
        if name not in names:
            raise ColumnNotFoundError.for_name(name, names)
    return asked


# ------------------------------------------------------------------------------------------------- one column


def _column(source: _Source) -> tuple[ColumnData, Field]:
    """Return one column as an encoder takes it, and its field."""
    name, data = source.name, source.data
    import pyarrow as pa

    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        return _from_arrow(name, data)
    if is_pandas_column(data):
        return _from_pandas(name, data)
    if isinstance(data, (list, tuple)):
        return _from_sequence(name, data)
    numpy_like = isinstance(data, np.ndarray) or isinstance(getattr(data, "dtype", None), np.dtype)
    if not numpy_like and (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")):
        return _from_arrow(name, _arrow_array(name, data))
    return _from_numpy(name, np.asanyarray(data))


def _from_numpy(name: str, data: NDArray[Any]) -> tuple[ColumnData, Field]:
    import pyarrow as pa

    if data.ndim == 0:
        data = data.reshape(1)
    if data.ndim != 1:
        raise ValueError(f"column {name!r} has {data.ndim} dimensions; a column is 1D: split it into several")
    if data.dtype.kind == "O":
        return _from_objects(name, np.ma.filled(data, None) if isinstance(data, np.ma.MaskedArray) else data)
    mask = np.ma.getmaskarray(data) if isinstance(data, np.ma.MaskedArray) else None
    plain = np.asarray(data.data) if isinstance(data, np.ma.MaskedArray) else data
    if plain.dtype.kind in "USTV" or mask is not None:
        if plain.dtype.kind == "V":
            raise TypeError(f"column {name!r} has dtype {plain.dtype}; store each of its fields as a column")
        try:
            if plain.dtype.kind == "T":
                native = plain.astype(object)
            else:
                # A copy where Arrow would take the values as they are: the array is the caller's.
                native = plain.astype(plain.dtype.newbyteorder("="), copy=mask is not None)
            return _from_arrow(name, pa.array(native, mask=mask))
        except UnicodeError:
            raise _lone_surrogate(name) from None
        except pa.ArrowNotImplementedError:
            raise TypeError(
                f"column {name!r} has dtype {plain.dtype}, which cannot be stored; cast it to numbers, text or "
                "times first"
            ) from None
    if plain.dtype.kind not in "biufmM":
        advice = (
            "store its real and imaginary parts as two columns"
            if plain.dtype.kind == "c"
            else "cast it to numbers, text or times first"
        )
        raise TypeError(f"column {name!r} has dtype {plain.dtype}, which cannot be stored; {advice}")
    stored = np.ascontiguousarray(plain, plain.dtype.newbyteorder("<"))
    return stored, Field(name, stored.dtype)


def _from_objects(name: str, objects: NDArray[Any]) -> tuple[ColumnData, Field]:
    """Convert objects of one kind; NaN among text and bytes is a null, as in pandas."""
    import pyarrow as pa

    kinds = {_kind_of(cls) for cls in set(map(type, objects))} - {"null"}
    text = [kind for kind in ("text", "bytes") if kind in kinds]
    if len(text) == 1 and kinds <= {text[0], "float"}:
        if "float" in kinds and any(isinstance(v, (float, np.floating)) and v == v for v in objects):
            raise TypeError(
                f"column {name!r} mixes objects of the kinds float and {text[0]}; a column holds one kind: "
                "convert all to one, to text for example by map(str, ...)"
            )
        kind = pa.string() if text[0] == "text" else pa.binary()
        try:
            return _from_arrow(name, pa.array(objects, kind, from_pandas=True))
        except UnicodeError:
            raise _lone_surrogate(name) from None
    if not kinds:
        return _from_arrow(name, pa.nulls(len(objects)))
    column = column_of(name, objects, TextTarget())
    return _from_values(name, column.values, column.validity, column.tz, column.logical)


def _from_sequence(name: str, data: Sequence[Any]) -> tuple[ColumnData, Field]:
    if any(isinstance(value, (list, tuple, np.ndarray)) for value in data):
        import pyarrow as pa

        try:
            return _from_arrow(name, pa.array(data))
        except (pa.ArrowException, TypeError) as error:
            raise TypeError(
                f"column {name!r} is nested and not a column of lists of one type: {error}"
            ) from None
    objects = np.empty(len(data), object)
    objects[:] = data
    return _from_objects(name, objects)


def _from_pandas(name: str, data: Any) -> tuple[ColumnData, Field]:
    import pyarrow as pa

    pandas: Any = sys.modules["pandas"]
    dtype = data.dtype
    if isinstance(dtype, np.dtype):
        return _from_numpy(name, data.to_numpy())
    if isinstance(dtype, (pandas.StringDtype, pandas.CategoricalDtype, pandas.ArrowDtype)):
        array = data if isinstance(data, pandas.api.extensions.ExtensionArray) else data.array
        try:
            return _from_arrow(name, pa.array(array, from_pandas=True))
        except UnicodeError:
            raise _lone_surrogate(name) from None
    column = column_of(name, data, TextTarget())  # masked numbers, times with zones; refuses the others
    return _from_values(name, column.values, column.validity, column.tz, column.logical)


def _from_values(
    name: str, values: NDArray[Any], validity: NDArray[np.bool_] | None, tz: str | None, logical: str | None
) -> tuple[ColumnData, Field]:
    import pyarrow as pa

    field = Field(name, values.dtype, tz=tz, logical=logical if values.dtype.kind in "mM" else None)
    if validity is None:
        return values, field
    return pa.array(values, mask=~validity), replace(field, optional=True)


def _from_arrow(name: str, array: pa.Array | pa.ChunkedArray) -> tuple[ColumnData, Field]:
    """Take an Arrow column: as it is, or as a NumPy array where that says the same."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    array = without_views(array)
    if pa.types.is_null(array.type):
        array = array.cast(pa.string())
        return array, Field(name, np.dtype(object), logical="string", optional=True)
    kind = array.type
    value_type = kind.value_type if pa.types.is_dictionary(kind) else kind
    field = field_of_arrow(name, value_type)
    has_nulls = array.null_count > 0
    if pa.types.is_dictionary(kind):
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        has_nulls = has_nulls or any(chunk.dictionary.null_count for chunk in chunks)
    elif not has_nulls and not field.variable:
        values = (
            array.to_numpy() if isinstance(array, pa.ChunkedArray) else array.to_numpy(zero_copy_only=False)
        )
        return np.ascontiguousarray(values, field.dtype), field
    return array, replace(field, optional=has_nulls)


def field_of_arrow(name: str, kind: pa.DataType) -> Field:
    """Return the field of values of an Arrow type, without nulls.

    Raises
    ------
    TypeError
        For types without a column form.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_boolean(kind):
        return Field(name, np.dtype("?"))
    if types.is_integer(kind) or types.is_floating(kind):
        return Field(name, np.dtype(kind.to_pandas_dtype()).newbyteorder("<"))
    variable = np.dtype(object)
    if types.is_string(kind) or types.is_large_string(kind) or _is(types, "is_string_view", kind):
        return Field(name, variable, logical="string")
    if types.is_binary(kind) or types.is_large_binary(kind) or _is(types, "is_binary_view", kind):
        return Field(name, variable, logical="binary")
    if types.is_fixed_size_binary(kind):
        return Field(name, variable, logical="binary")
    if types.is_timestamp(kind):
        return Field(name, np.dtype(f"<M8[{kind.unit}]"), tz=kind.tz)
    if types.is_duration(kind):
        return Field(name, np.dtype(f"<m8[{kind.unit}]"))
    if types.is_date32(kind):
        return Field(name, np.dtype("<M8[D]"), logical="date32")
    if types.is_list(kind) or types.is_large_list(kind):
        inner = field_of_arrow(name, kind.value_type)
        if inner.logical in (None, "string", "binary") and inner.dtype.kind != "M":
            return Field(name, variable, logical=f"list<{inner.logical or pa.from_numpy_dtype(inner.dtype)}>")
    raise arrow_type_error(name, kind)


def _is(types: Any, test: str, kind: pa.DataType) -> bool:
    return hasattr(types, test) and bool(getattr(types, test)(kind))


def _refuse_lone_surrogates(name: str) -> None:
    """Refuse names that no UTF-8 stands for; U+DC80 to U+DCFF stand for bytes of a file that were none."""
    try:
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(
            f"the name of column {name!r} holds a lone surrogate, which cannot be encoded as UTF-8; rename the column"
        ) from None


def _lone_surrogate(name: str) -> ValueError:
    return ValueError(f"column {name!r} holds a lone surrogate, which cannot be encoded as UTF-8")


# ------------------------------------------------------------------------------------------ fitting a schema


def _fitted(columns: list[ColumnData], schema: Schema, like: Schema) -> ColumnBatch:
    """Check that columns fit the schema of a table; only columns of nothing but nulls are given its types."""
    check_names(schema.names, like)
    fitted = []
    for column, field, target in zip(columns, schema, like, strict=True):
        if field.optional and not target.optional and _null_count(column):
            raise SchemaMismatchError(
                f"column {field.name!r} holds nulls, but the column of the table cannot; "
                f"nullable=[{field.name!r}] when the data were first written would have allowed them"
            )
        same = field.native_dtype == target.native_dtype and _family(field) == _family(target)
        if not same:
            if _null_count(column) < len(column):
                raise SchemaMismatchError(
                    f"column {field.name!r} holds {field.logical or field.dtype}, the table has "
                    f"{target.logical or target.dtype} there; cast it first"
                )
            column = _all_null(len(column), target)
        fitted.append(column)
    return ColumnBatch(like, tuple(fitted), len(columns[0]) if columns else 0)


def _family(field: Field) -> tuple[str, str | None]:
    return (field.logical or "").removeprefix("large_"), field.tz


def _null_count(column: ColumnData) -> int:
    return 0 if isinstance(column, np.ndarray) else int(column.null_count)


def _all_null(n: int, field: Field) -> ColumnData:
    import pyarrow as pa

    if not field.variable:
        kind = pa.from_numpy_dtype(field.native_dtype)
    elif field.logical in ("binary", "large_binary"):
        kind = pa.binary()
    elif field.logical in (None, "string", "large_string"):
        kind = pa.string()
    else:
        return pa.nulls(n)
    if n == 0 and not field.optional and not field.variable:
        return np.empty(0, field.dtype)
    return pa.nulls(n, kind)
