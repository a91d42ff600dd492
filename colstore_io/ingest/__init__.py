"""What did the user hand us?

`ingest` turns in-memory data of any accepted kind into a `Batch`: a logical schema and the plain arrays of the
physical columns, values and validity companions, ready to be written (cstore-behaviour.md 6 and 6.1).
`ingest_stream` does so batch by batch (6.2). Everything that can be wrong with the data is raised here, before a
byte is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..arguments import check_column_names, loaded_module
from ..errors import ColumnNotFoundError, SchemaMismatchError
from ..fields import Field, Schema
from .arrow import TextTarget, arrow_type_error, whole_columns
from .columns import Column, arrow_column, column_of, fit_text, refuse_polars_dtype, rule_of
from .fit import check_names, fit_column, with_companion
from .frames import frame_columns, is_frame, is_pandas

__all__ = ["Batch", "companion_name", "ingest", "ingest_stream", "is_stream"]

_KNOWN_LATER = "when the data were first written would have held it"


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are ready to be written.

    Attributes
    ----------
    schema : Schema
        The logical columns.
    arrays : tuple of ndarray
        The physical columns in file order: for each field its values, then, if it is nullable, its ``|b1``
        companion. Each has shape (n_rows,), is C-contiguous, little-endian and of a storable dtype. They may
        share memory with the data they were made from.
    n_rows : int
        Rows of every array.
    """

    schema: Schema
    arrays: tuple[NDArray[Any], ...]
    n_rows: int


@dataclass(frozen=True, slots=True)
class _Options:
    strings: Literal["unicode", "bytes"]
    string_width: Mapping[str, int]
    nullable: bool | AbstractSet[str]
    like: Schema | None
    exact_numpy_strings: bool


@dataclass(frozen=True, slots=True)
class _Source:
    """One column before conversion. `nullable` is False for an Arrow field declared so."""

    name: str
    data: Any
    nullable: bool = True


# ------------------------------------------------------------------------------------------------------ options


def _checked_options(
    strings: str,
    string_width: Mapping[str, int] | None,
    nullable: bool | str | Sequence[str] | None,
    like: Schema | None,
    exact_numpy_strings: bool,
) -> _Options:
    if strings not in ("unicode", "bytes"):
        raise ValueError(f"strings must be 'unicode' or 'bytes', got {strings!r}")
    widths: dict[str, int] = {}
    if string_width is not None:
        if not isinstance(string_width, Mapping):
            raise TypeError(
                f"string_width must map column names to widths, got {type(string_width).__name__}"
            )
        for name, width in string_width.items():
            if isinstance(width, bool) or not isinstance(width, (int, np.integer)):
                raise TypeError(f"string_width of column {name!r} must be an int, got {width!r}")
            if width < 1:
                raise ValueError(f"string_width of column {name!r} must be at least 1, got {width}")
            if width >= 2**31:
                raise ValueError(
                    f"string_width of column {name!r} must be less than 2**31, the size of an item, got {width}"
                )
            widths[str(name)] = int(width)
    names: bool | frozenset[str]
    if nullable is None or isinstance(nullable, (bool, np.bool_)):
        names = bool(nullable)
    else:
        names = frozenset(check_column_names("nullable", nullable))
    return _Options("bytes" if strings == "bytes" else "unicode", widths, names, like, exact_numpy_strings)


# ------------------------------------------------------------------------------------- the columns of the data


def _refuse(data: Any) -> TypeError:
    kind = f"{type(data).__module__}.{type(data).__qualname__}".removeprefix("builtins.")
    if isinstance(data, np.ndarray):
        hint = f"it is a plain ndarray of dtype {data.dtype}: pass {{'name': array}} or a structured array"
    elif is_stream(data):
        hint = "it is a stream: it is stored batch by batch"
    elif hasattr(data, "__dask_graph__"):
        hint = (
            "it is a Dask collection: colstore_io.integrations.dask.to_colstore(frame, directory) writes it"
        )
    elif isinstance(data, (list, tuple)):
        hint = "pass a dict of columns; a list of frames, or of Arrow batches, belongs into iter(...)"
    elif isinstance(data, (str, os.PathLike)):
        hint = (
            "a path is not opened here: pass colstore_io.open(path), pandas.read_csv(path), or the batches of "
            "pyarrow.dataset.dataset(path).to_batches() for Parquet"
        )
    elif kind.startswith("pyarrow.") and hasattr(data, "to_batches"):
        hint = "pass its batches, .to_batches(): they are stored one by one"
    elif hasattr(data, "__array__"):
        hint = "it is one column: pass {'name': data}"
    else:
        hint = "pass a dict of columns, a structured array, a pandas DataFrame or an Arrow table"
    return TypeError(f"cannot store an object of type {kind}: store() does not know how to handle it; {hint}")


def _refuse_polars(data: Any) -> None:
    """Look for dtypes of a Polars frame that its Arrow stream spoils or that make it unreadable."""
    if type(data).__module__.startswith("polars.") and isinstance(getattr(data, "schema", None), Mapping):
        for name, dtype in data.schema.items():
            refuse_polars_dtype(name, dtype)


def _arrow_sources(data: Any) -> list[_Source]:
    import pyarrow as pa

    _refuse_polars(data)
    try:
        if isinstance(data, pa.RecordBatchReader):
            table = data.read_all()
        elif isinstance(data, (pa.Table, pa.RecordBatch)):
            table = data
        elif hasattr(data, "__arrow_c_stream__"):
            table = pa.RecordBatchReader.from_stream(data).read_all()
        else:
            table = pa.record_batch(data)
    except (pa.ArrowInvalid, TypeError, ValueError) as error:
        if "struct" not in str(error):
            raise
        raise TypeError(
            f"cannot store an object of type {type(data).__qualname__}: "
            "it is one column, pass {'name': data} instead"
        ) from error
    return [
        _Source(field.name, table.column(i), bool(field.nullable)) for i, field in enumerate(table.schema)
    ]


def _sources(data: Any) -> list[_Source]:
    """List the columns of any accepted kind of table, names through ``str()``, none of them converted."""
    if isinstance(data, Mapping):
        sources = [_Source(str(key), value) for key, value in data.items()]
    elif isinstance(data, np.ndarray) and data.dtype.names is not None:
        if data.ndim > 1:
            raise ValueError(
                f"a structured array must be one-dimensional to be a table, got shape {data.shape}"
            )
        table = data.reshape(-1)
        sources = [_Source(name, table[name]) for name in data.dtype.names]
    elif is_frame(data):
        sources = [_Source(name, series) for name, series in frame_columns(data)]
    elif isinstance(data, np.ndarray) or isinstance(getattr(data, "dtype", None), np.dtype):
        raise _refuse(data)
    elif hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        sources = _arrow_sources(data)
    else:
        raise _refuse(data)
    if not sources:
        raise ValueError("the data are empty: no columns, nothing to store")
    seen: set[str] = set()
    for source in sources:
        if source.name in seen:
            raise ValueError(
                f"two columns have the name {source.name!r} (names are compared as text); rename one"
            )
        seen.add(source.name)
    return sources


# -------------------------------------------------------------------------------------------------- conversion


def _target(name: str, field: Field | None, options: _Options, data: Any) -> TextTarget:
    """Say what text in column `name` has to become."""
    if field is None:
        return TextTarget(options.strings, options.string_width.get(name))
    if field.dtype.kind not in "US":
        return TextTarget(options.strings)
    strings: Literal["unicode", "bytes"] = "bytes" if field.dtype.kind == "S" else "unicode"
    if options.exact_numpy_strings and isinstance(data, np.ndarray) and data.dtype.kind in "US":
        return TextTarget(strings)  # no width: its dtype is compared as it is
    characters = field.dtype.itemsize // (1 if strings == "bytes" else 4)
    return TextTarget(strings, characters, _KNOWN_LATER)


def _convert(source: _Source, target: TextTarget) -> Column:
    if source.nullable:
        column = column_of(source.name, source.data, target)
    else:
        column = arrow_column(source.name, source.data, target, nullable=False)
    if column.values.dtype.kind in "US":
        return replace(column, values=fit_text(source.name, column.values, target))
    return column


def _same_length(names: Sequence[str], columns: Sequence[Column]) -> int:
    n_rows = len(columns[0].values)
    for name, column in zip(names, columns, strict=True):
        if len(column.values) != n_rows:
            raise ValueError(
                f"columns differ in length: {names[0]!r} has {n_rows} rows, {name!r} has {len(column.values)}"
            )
    return n_rows


def companion_name(name: str, taken: AbstractSet[str]) -> str:
    """Return the name of the validity companion of column `name` (cstore.md 4.2): the first that is free."""
    number = 1
    while (candidate := f"{name}.valid{number if number > 1 else ''}") in taken:
        number += 1
    return candidate


def _new_batch(sources: list[_Source], options: _Options) -> Batch:
    """Convert the columns of the first data of a table: they decide its schema."""
    names = [source.name for source in sources]
    for asked in [*options.string_width, *([] if isinstance(options.nullable, bool) else options.nullable)]:
        if asked not in names:
            raise ColumnNotFoundError.for_name(asked, names)
    columns = [_convert(source, _target(source.name, None, options, source.data)) for source in sources]
    n_rows = _same_length(names, columns)
    taken = set(names)
    fields: list[Field] = []
    arrays: list[NDArray[Any]] = []
    for name, column in zip(names, columns, strict=True):
        if name in options.string_width and column.values.dtype.kind not in "US":
            raise ValueError(
                f"string_width names column {name!r}, which holds {column.values.dtype}, not text"
            )
        validity_name = None
        if isinstance(options.nullable, bool):
            asked_for = options.nullable and column.rule == "if_null"
        else:
            asked_for = name in options.nullable
        if column.rule == "always" or asked_for or (column.rule == "if_null" and column.validity is not None):
            validity_name = companion_name(name, taken)
            taken.add(validity_name)
            arrays += with_companion(name, column)
        else:
            arrays.append(column.values)
        fields.append(
            Field(
                name,
                column.values.dtype,
                validity=validity_name,
                logical=column.logical,
                tz=column.tz,
                categories=column.categories,
                ordered=column.ordered,
            )
        )
    return Batch(Schema(tuple(fields)), tuple(arrays), n_rows)


# ------------------------------------------------------------------------------------- fitting an existing table


def _fitted_batch(sources: list[_Source], options: _Options, like: Schema) -> Batch:
    names = [source.name for source in sources]
    check_names(names, like)
    columns = [
        _convert(source, _target(source.name, field, options, source.data))
        for source, field in zip(sources, like, strict=True)
    ]
    n_rows = _same_length(names, columns)
    arrays: list[NDArray[Any]] = []
    for column, field in zip(columns, like, strict=True):
        arrays += fit_column(field.name, column, field)
    return Batch(like, tuple(arrays), n_rows)


# ------------------------------------------------------------------------------------------------------ entries


def ingest(
    data: Any,
    *,
    strings: str = "unicode",
    string_width: Mapping[str, int] | None = None,
    nullable: bool | str | Sequence[str] | None = None,
    like: Schema | None = None,
    exact_numpy_strings: bool = False,
) -> Batch:
    """Convert in-memory data of any accepted kind to plain columns.

    Parameters
    ----------
    data : mapping, structured array, DataFrame, or Arrow data
        A mapping of names to array-likes (scalars have length 1), a structured array (one column per field), a
        pandas DataFrame (the index is ignored), or anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``
        (all of it becomes one batch). Names go through ``str()``.
    strings : {"unicode", "bytes"}
        What text becomes: ``<Un``, or UTF-8 in ``|Sn``. NumPy ``U`` and ``S`` arrays stay as they are.
    string_width : mapping of str to int, optional
        Fixed width of text and binary columns, in characters (bytes for ``|S``); default the longest value.
    nullable : bool or sequence of str, optional
        True: a companion for every column that would have one if it held a null. Names: for these columns
        in any case; NaN and NaT that pandas takes for missing, and NaT of NumPy, are nulls there.
    like : Schema, optional
        Schema of the table appended to. The result has exactly this schema: text is padded to its widths,
        companions are as it has them, and `string_width` and `nullable` are ignored.
    exact_numpy_strings : bool, default False
        With `like`: NumPy ``U`` and ``S`` arrays must have its dtype exactly, as in a streaming writer
        (cstore-behaviour.md 6), instead of being padded.

    Returns
    -------
    Batch
        Native contiguous NumPy columns are the caller's own arrays, not copies.

    Raises
    ------
    TypeError
        For data that are no table, and columns that cannot be stored; names the column.
    ValueError
        For no columns, equal names, ragged lengths, more than one dimension, text that ends in NUL.
    ColumnNotFoundError
        If `string_width` or `nullable` name a column that is not there.
    SchemaMismatchError
        If the data do not fit `string_width` or `like`.
    """
    options = _checked_options(strings, string_width, nullable, like, exact_numpy_strings)
    if isinstance(data, Batch):
        return _refit(data, options)
    return _ingest(data, options)


def _ingest(data: Any, options: _Options) -> Batch:
    sources = _sources(data)
    if options.like is None:
        return _new_batch(sources, options)
    return _fitted_batch(sources, options, options.like)


def _refit(batch: Batch, options: _Options) -> Batch:
    """Take a finished batch as it is, or fit it to another schema."""
    like = options.like
    if like is None or like is batch.schema:
        return batch
    check_names(batch.schema.names, like)
    arrays = iter(batch.arrays)
    fitted: list[NDArray[Any]] = []
    for old, new in zip(batch.schema, like, strict=True):
        values = next(arrays)
        validity: NDArray[Any] | None = next(arrays) if old.nullable else None
        if validity is not None and validity.all():
            validity = None
        if values.dtype.kind in "US":
            values = fit_text(old.name, values, _target(old.name, new, options, None))
        rule: Literal["always", "never"] = "always" if old.nullable else "never"
        column = Column(
            values,
            validity,
            rule,
            in_band=values.dtype.kind in "mM",
            logical=old.logical,
            tz=old.tz,
            categories=old.categories,
            ordered=old.ordered,
        )
        fitted += fit_column(old.name, column, new)
    return Batch(like, tuple(fitted), batch.n_rows)


def is_stream(data: Any) -> bool:
    """Tell whether `data` is read batch by batch (cstore-behaviour.md 6.2).

    True for iterators and generators, record batch readers, and everything else with ``__arrow_c_stream__``:
    tables that are in memory as a whole too. False for pandas objects, arrays, mappings, lists, tuples, text.
    """
    if isinstance(data, (Batch, Mapping, np.ndarray, str, bytes, bytearray, memoryview, list, tuple)):
        return False
    if is_pandas(data):
        return False
    return hasattr(data, "__arrow_c_stream__") or isinstance(data, Iterator)


def ingest_stream(
    data: Any,
    *,
    strings: str = "unicode",
    string_width: Mapping[str, int] | None = None,
    nullable: bool | str | Sequence[str] | None = None,
    like: Schema | None = None,
    exact_numpy_strings: bool = False,
) -> Iterator[Batch]:
    """Convert a stream batch by batch, lazily.

    Parameters
    ----------
    data : stream
        What `is_stream` accepts. Items of an iterator are anything that `ingest` accepts.
    strings, string_width, nullable, like, exact_numpy_strings
        As in `ingest`.

    Yields
    ------
    Batch
        All of one schema: `like`, else that of the first batch with rows, whose data decide text widths and
        companions; all chunks of a `pyarrow.Table` decide them. Batches without rows are skipped; a stream of none
        but such gives one batch of zero rows if its schema is known.

    Raises
    ------
    SchemaMismatchError
        If a batch does not fit; names batch and column, and the option that would have helped.
    ValueError
        If the stream has no rows and no schema.

    Notes
    -----
    The next item is asked for when the next batch is; nothing of the one before is held then. The stream is
    closed when the generator ends, is closed, or fails.
    """
    options = _checked_options(strings, string_width, nullable, like, exact_numpy_strings)
    if not is_stream(data):
        raise _refuse(data)
    return _stream(data, options)


def _open_stream(data: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
    """Return the items of a stream and the call that releases it."""
    own = getattr(data, "__colstore_batches__", None)
    if own is not None:  # one of our tables: its columns as they are stored
        batches = own()
        return batches, batches.close
    if not hasattr(data, "__arrow_c_stream__"):
        return data, getattr(data, "close", lambda: None)
    import pyarrow as pa

    _refuse_polars(data)
    try:
        reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid as error:
        raise TypeError(
            f"cannot store an object of type {type(data).__qualname__}: "
            "it is one column, pass {'name': data} instead"
        ) from error
    return _record_batches(reader), reader.close


def _record_batches(reader: Any) -> Iterator[Any]:
    import pyarrow as pa

    for field in reader.schema:
        if pa.types.is_union(field.type):  # has no empty array in pyarrow
            raise arrow_type_error(field.name, field.type)
    yield reader.schema.empty_table()  # the schema is known even if no batch comes
    yield from reader


def _look_ahead(data: Any, options: _Options) -> tuple[Any, _Options]:
    """Let the whole of an in-memory Arrow table decide text widths, companions and categories.

    Data in memory need not be guessed from their first chunk. Other streams, and tables that go into a table with a
    schema, are returned as they are.
    """
    pyarrow = loaded_module("pyarrow")
    if pyarrow is None or not isinstance(data, pyarrow.Table) or options.like is not None:
        return data, options
    data, widths, with_nulls = whole_columns(data, options.strings)
    nullable = options.nullable
    if not isinstance(nullable, bool) or not nullable:
        rules = {field.name: (rule_of(field.type), field.nullable) for field in data.schema}
        found = {name for name in with_nulls if rules[name] == ("if_null", True)}
        nullable = found if isinstance(nullable, bool) else nullable | found
    return data, replace(options, string_width={**widths, **options.string_width}, nullable=nullable or False)


def _stream(data: Any, options: _Options) -> Iterator[Batch]:
    data, options = _look_ahead(data, options)
    items, release = _open_stream(data)
    # The extra first item of an Arrow stream carries its schema only; batches are numbered without it.
    from_arrow = hasattr(data, "__arrow_c_stream__") and not hasattr(data, "__colstore_batches__")
    number = -1 if from_arrow else 0
    del data
    empty: Batch | None = None
    any_rows = False
    try:
        while True:
            try:
                item = next(items)
            except StopIteration:
                break
            known = options.like is not None
            if not (isinstance(item, Mapping) and not item) and not (known and _is_empty_frame(item)):
                batch = _ingest_item(item, options, number)
                if batch.n_rows:
                    if options.like is None:
                        options = replace(options, like=batch.schema)
                    any_rows = True
                    del item
                    yield batch
                else:
                    empty = empty or batch
                del batch
            number += 1
        if any_rows:
            return
        if empty is None and options.like is not None:
            empty = _no_rows(options.like)
        if empty is None:
            raise ValueError(
                "the stream gave no rows and has no schema; there is nothing to store, give it a schema"
            )
        yield empty
    finally:
        release()


def _is_empty_frame(item: Any) -> bool:
    """Tell a pandas frame without rows, whose object columns say nothing of what they would hold."""
    return is_frame(item) and len(item) == 0


def _no_rows(schema: Schema) -> Batch:
    arrays: list[NDArray[Any]] = []
    for field in schema:
        arrays.append(np.empty(0, field.dtype))
        if field.nullable:
            arrays.append(np.empty(0, np.bool_))
    return Batch(schema, tuple(arrays), 0)


def _ingest_item(item: Any, options: _Options, number: int) -> Batch:
    place = f"batch {number} of the stream (counted from 0)" if number >= 0 else "schema of the stream"
    try:
        return _refit(item, options) if isinstance(item, Batch) else _ingest(item, options)
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"{place}: {error}") from error
    except (TypeError, ValueError, KeyError) as error:
        error.add_note(f"in {place}")
        raise
