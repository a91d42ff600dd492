"""What did the user select?

Views are lazy: making and composing them reads nothing. `ColumnView` is one column of some rows, `TableView` several.
`TableOps` holds what every table-like object offers (readers, datasets and table views alike); it needs only the
source, the column positions and the row chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from . import arrays, config, convert
from .dataset import Part, Source
from .errors import ColumnNotFoundError
from .gather import read, read_part
from .predicate import Expr, bind
from .preview import Preview
from .query import parse_query
from .rows import Rows
from .schema import Field
from .selection import Range, RowSelection

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["ColumnView", "TableOps", "TableView"]

ITERATION_ROWS = 1 << 16
"""Values that iterating over a column brings into memory at once."""


class SourceHolder(Protocol):
    """What a view needs of the table it was made from."""

    @property
    def source(self) -> Source: ...
    def readable_source(self) -> Source: ...


# ----------------------------------------------------------------------------------------------------------
# Reading fields


def _parts_of(source: Source, positions: Sequence[int]) -> list[Part]:
    parts: list[Part] = []
    for position in positions:
        parts.append((position, False))
        if source.schema.fields[position].nullable:
            parts.append((position, True))
    return parts


def _materialise(
    source: Source, rows: RowSelection, positions: Sequence[int], out: Sequence[NDArray[Any]] | None = None
) -> list[Any]:
    """Read fields: NumPy arrays, Arrow arrays for nullable ones."""
    fields = [source.schema.fields[p] for p in positions]
    if out is not None:
        for field in fields:
            _refuse_nullable(field, "out=")
    values = iter(read(source, rows, _parts_of(source, positions), out))
    return [_assemble(field, values) for field in fields]


def _assemble(field: Field, values: Iterator[NDArray[Any]]) -> Any:
    data = next(values)
    if not field.nullable:
        return data
    # A companion byte other than 0 counts as 1 (cstore.md 4.2).
    return arrays.arrow_array(field, data, next(values).view(np.uint8) != 0)


def _refuse_nullable(field: Field, what: str) -> None:
    if field.nullable:
        raise ValueError(f"column {field.name!r} is nullable: {what} has no form for it; use array() or frame()")


def _view_without_copy(source: Source, rows: RowSelection, part: Part) -> NDArray[Any]:
    """Return a read-only view of the mapping, or raise `ValueError` (cstore-behaviour.md 4)."""
    field = source.schema.fields[part[0]]
    if not part[1]:
        _refuse_nullable(field, "copy=False")
    if not source.mapped:
        raise ValueError("copy=False needs a mapped local file; this one is read without mapping (use copy=True)")
    if not source.part_dtype(part).isnative:
        raise ValueError(f"column {field.name!r} is not in native byte order: copy=False is not possible")
    if not isinstance(rows, Range):
        raise ValueError("copy=False is not possible for fancy and boolean selections; use copy=True")
    source.check_sizes()
    segments = source.plan.segments
    if segments.n_segments == 1:
        low = 0
    else:
        first, last = sorted((rows.start, rows.start + (rows.count - 1) * rows.step)) if rows.count else (0, -1)
        low, high = segments.span(first, last + 1)
        if rows.count == 0:
            raise ValueError("an empty selection of several segments is not contiguous in memory; use copy=True")
        if high - low != 1:
            many_files = segments.file[low] != segments.file[high - 1]
            what = "spans multiple files and" if many_files else "spans multiple records and"
            raise ValueError(f"the selection {what} is not contiguous in memory; use copy=True")
    view = source.segment_view(part, low)
    if view is None:
        raise ValueError(f"column {field.name!r} is not stored in this file: copy=False is not possible")
    start = rows.start - int(segments.row_start[low])
    stop: int | None = start + rows.count * rows.step
    if stop is not None and stop < 0:
        stop = None
    return view[start : stop : rows.step] if rows.count else view[:0]


# ----------------------------------------------------------------------------------------------------------
# Keys


def _is_names(key: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(key, kinds) and len(key) > 0 and all(isinstance(name, str) for name in key)


class TableOps:
    """What readers, datasets and table views have in common."""

    __slots__ = ()

    # Set by subclasses.
    _holder: SourceHolder
    _positions: Sequence[int]
    _rows: Rows | None

    # -- shape

    def _fields(self) -> list[Field]:
        fields = self._holder.source.schema.fields
        return [fields[p] for p in self._positions]

    def _resolved(self) -> RowSelection:
        source = self._holder.readable_source()
        return Range(0, 1, source.n_rows) if self._rows is None else self._rows.resolve(source)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order; validity companions are not among them."""
        return [f.name for f in self._fields()]

    @property
    def n_columns(self) -> int:
        return len(self._positions)

    @property
    def dtypes(self) -> dict[str, Any]:
        """Type of each column as it is handed out: a NumPy dtype, for nullable columns an Arrow type."""
        return {f.name: convert.dtype_of(f) for f in self._fields()}

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return len(self), self.n_columns

    def count(self) -> int:
        """Return the number of selected rows."""
        if self._rows is None:
            return self._holder.source.n_rows
        return self._rows.resolve(self._holder.readable_source()).count

    def __len__(self) -> int:
        return self.count()

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    # -- selecting

    def _position(self, name: str) -> int:
        schema = self._holder.source.schema
        position = schema.index(name) if name in schema else -1
        if position not in self._positions:
            raise ColumnNotFoundError.for_name(name, self.columns)
        return position

    def _column(self, name: str, rows: Rows | None) -> ColumnView:
        if name in self._holder.source.schema:
            return ColumnView(self._holder, (self._position(name), False), rows)
        for position in self._positions:
            if self._holder.source.schema.fields[position].validity == name:
                return ColumnView(self._holder, (position, True), rows)
        raise ColumnNotFoundError.for_name(name, self.columns)

    def _narrow(self, key: Any) -> Rows | None:
        """Extend the row chain by `key`."""
        if key is None:
            return self._rows
        if isinstance(key, Expr):
            key = bind(key, self._holder.source.schema)
        return Rows(self._rows, key)

    @overload
    def __getitem__(self, key: str) -> ColumnView: ...
    @overload
    def __getitem__(self, key: tuple[Any, str]) -> ColumnView: ...
    @overload
    def __getitem__(self, key: Any) -> TableView: ...
    def __getitem__(self, key: Any) -> ColumnView | TableView:
        """Select rows, columns or both; see the README for every kind of key."""
        if isinstance(key, str):
            return self._column(str(key), self._rows)
        if isinstance(key, tuple):
            if len(key) != 2:
                raise IndexError(f"a key has one or two parts (rows, columns), got {len(key)}")
            rows, columns = key
            if isinstance(columns, str):
                return self._column(str(columns), self._narrow(rows))
            if columns is None:
                return TableView(self._holder, self._positions, self._narrow(rows))
            if isinstance(columns, (list, tuple)) and all(isinstance(name, str) for name in columns):
                return TableView(self._holder, [self._position(n) for n in columns], self._narrow(rows))
            raise IndexError(f"columns are named by a string or a list of strings, got {type(columns).__name__}")
        if _is_names(key, (list,)):
            return TableView(self._holder, self._pick(key), self._rows)
        return TableView(self._holder, self._positions, self._narrow(key))

    def _pick(self, names: Sequence[str]) -> list[int]:
        return [self._position(n) for n in names]

    def select(self, *names: str) -> TableView:
        """Return these columns, in this order.

        Raises
        ------
        KeyError
            If a name is unknown.
        ValueError
            If a name is repeated, or none is given.
        """
        if not names:
            raise ValueError("select() needs at least one column name")
        if len(set(names)) != len(names):
            raise ValueError(f"Duplicate column names in select(): {list(names)}")
        return TableView(self._holder, self._pick(names), self._rows)

    def drop(self, *names: str) -> TableView:
        """Return all columns but these, in stored order."""
        out = {self._position(n) for n in names}
        return TableView(self._holder, [p for p in self._positions if p not in out], self._rows)

    def where(self, predicate: Expr) -> TableView:
        """Return the rows where a `col` expression is true, lazily.

        Raises
        ------
        QueryError
            If the expression does not fit the columns.
        """
        if not isinstance(predicate, Expr):
            raise TypeError(f"where() takes a col() expression, got {type(predicate).__name__}; use query() for text")
        return TableView(self._holder, self._positions, self._narrow(predicate))

    def query(
        self,
        predicate: str | Expr,
        columns: Sequence[str] | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        lazy: bool = True,
    ) -> TableView:
        """Return the rows where `predicate` is true.

        Parameters
        ----------
        predicate : str or expression
            Text such as ``"energy > 0.9 and run in [3, 7]"``, or a `col` expression. Text is parsed, never evaluated
            as Python.
        columns : sequence of str, optional
            Columns of the result; default all.
        params : mapping, optional
            Values of ``@name`` in the text.
        lazy : bool, default True
            False reads the predicate's columns at once.

        Raises
        ------
        QueryError
            If the text cannot be parsed or does not fit the columns.
        """
        if isinstance(predicate, str):
            expression = parse_query(predicate, columns=self._holder.source.schema.names, params=params)
        elif isinstance(predicate, Expr):
            expression = predicate
        else:
            raise TypeError(f"query() takes text or a col() expression, got {type(predicate).__name__}")
        view = TableView(
            self._holder,
            self._positions if columns is None else self._pick(list(columns)),
            self._narrow(expression),
        )
        return view if lazy else view.evaluate()

    # -- materialising

    def array(self, name: str, *, copy: bool = True, out: NDArray[Any] | None = None) -> Any:
        """Return one column.

        Parameters
        ----------
        name : str
        copy : bool, default True
            False returns a read-only view of the mapped file, or raises `ValueError`; never a silent copy.
        out : ndarray, optional
            C-contiguous target of the column's native dtype and the number of selected rows; left untouched when
            a row is out of range.

        Returns
        -------
        ndarray, shape (rows,), or pyarrow.Array for a nullable column
        """
        return self._column(name, self._rows).array(copy=copy, out=out)

    def dict(self, *, copy: bool = True, out: Mapping[str, NDArray[Any]] | None = None) -> dict[str, Any]:
        """Return the selected columns by name, as `array` would give them.

        Parameters
        ----------
        copy : bool, default True
            False: all columns as views of the mapped file, or `ValueError`.
        out : mapping of str to ndarray, optional
            Targets by column name, one for every column.
        """
        names = self.columns
        if not copy:
            rows = self._resolved()
            source = self._holder.readable_source()
            return {n: _view_without_copy(source, rows, (p, False)) for n, p in zip(names, self._positions, strict=True)}
        targets = None
        if out is not None:
            if set(out) != set(names):
                raise ValueError(f"out must have exactly the columns {names}, got {list(out)}")
            targets = [out[n] for n in names]
        rows = self._resolved()
        return dict(
            zip(names, _materialise(self._holder.readable_source(), rows, self._positions, targets), strict=True)
        )

    def recarray(self) -> NDArray[Any]:
        """Return the selection as one packed structured array; item size = sum of the columns' item sizes."""
        names = self.columns
        if len(set(names)) != len(names):
            raise ValueError(f"a record array cannot repeat a field: {names}")
        for field in self._fields():
            _refuse_nullable(field, "recarray()")
        rows = self._resolved()
        if not names:
            return np.empty(rows.count, np.dtype([]))
        return convert.recarray(names, _materialise(self._holder.readable_source(), rows, self._positions))

    def frame(self, *, copy: bool = True, dtype_backend: str | None = None, categories: bool = False) -> pandas.DataFrame:
        """Return the selection as a pandas DataFrame with one block per column.

        Parameters
        ----------
        copy : bool, default True
            False: read-only views of the mapped file, or `ValueError`.
        dtype_backend : {"numpy_nullable", "pyarrow"}, optional
            As in pandas. Default: NumPy dtypes, masked dtypes for nullable integers and booleans.
        categories : bool, default False
            Give categorical columns the ``category`` dtype.
        """
        names = self.columns
        if len(set(names)) != len(names):
            raise ValueError(f"a frame cannot repeat a column: {names}")
        source, rows = self._holder.readable_source(), self._resolved()
        if copy:
            values = _materialise(source, rows, self._positions)
        else:
            values = [_view_without_copy(source, rows, (p, False)) for p in self._positions]
        return convert.frame(
            names, self._fields(), values, n_rows=rows.count, dtype_backend=dtype_backend, categories=categories
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a table cannot become an array without copying")
        records = self.recarray()
        return records if dtype is None else records.astype(dtype)

    # -- Arrow

    def arrow(self) -> pyarrow.Table:
        """Return the selection as an Arrow table: zero-copy for whole aligned columns of mapped files."""
        return convert.arrow_table(self._arrow_schema(), self._arrow_batches())

    def _arrow_schema(self) -> pyarrow.Schema:
        return convert.arrow_schema(self._fields())

    def _arrow_batches(self) -> Iterator[list[Any]]:
        """Yield one list of arrays per segment (whole table), or per block of rows (a selection)."""
        source, rows = self._holder.readable_source(), self._resolved()
        fields = self._fields()
        segments = source.plan.segments
        if isinstance(rows, Range) and rows.covers(source.n_rows):
            for s in np.flatnonzero(segments.rows > 0).tolist():
                first = int(segments.row_start[s])
                count = int(segments.rows[s])
                batch: list[Any] = []
                for position, field in zip(self._positions, fields, strict=True):
                    view = None if field.nullable else source.segment_view((position, False), s)
                    if view is None or not convert.arrow_can_share(view):
                        batch.extend(_materialise(source, Range(first, 1, count), [position]))
                    else:
                        batch.append(view)
                yield batch
        elif rows.count:
            yield _materialise(source, rows, self._positions)

    def __arrow_c_schema__(self) -> object:
        return self._arrow_schema().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export as an Arrow stream; every call starts a fresh one."""
        return convert.arrow_stream(self._arrow_schema(), self._fields(), self._arrow_batches, requested_schema)

    # -- looking

    def head(self, n: int | None = None) -> Preview:
        """Return the first `n` rows (default 10) as a printable `Preview`."""
        return Preview(self._window(slice(0, self._preview_rows(n))), first=0, total=len(self))

    def tail(self, n: int | None = None) -> Preview:
        """Return the last `n` rows (default 10) as a printable `Preview`."""
        total = len(self)
        first = max(0, total - self._preview_rows(n))
        return Preview(self._window(slice(first, total)), first=first, total=total)

    def _window(self, key: slice) -> TableView:
        return TableView(self._holder, self._positions, Rows(self._rows, key))

    @staticmethod
    def _preview_rows(n: int | None) -> int:
        rows = config.get_preview_rows() if n is None else n
        if rows < 0:
            raise ValueError(f"the number of rows must not be negative, got {rows}")
        return rows


class TableView(TableOps):
    """Some rows and columns of a table. Lazy: nothing is read until a result is asked for.

    Indexing a view selects within it: ``ds[2:8][[0, -1], "a"]`` reads rows 2 and 7.
    """

    __slots__ = ("_holder", "_positions", "_rows")

    def __init__(self, holder: SourceHolder, positions: Sequence[int], rows: Rows | None) -> None:
        self._holder = holder
        self._positions = positions
        self._rows = rows

    def __getitem__(self, key: Any) -> Any:
        if _is_names(key, (list, tuple)) and not (isinstance(key, tuple) and len(key) == 1):
            names = list(key)
            if len(set(names)) != len(names):
                raise ValueError(f"Duplicate column names: {names}")
            return TableView(self._holder, self._pick(names), self._rows)
        return super().__getitem__(key)

    def evaluate(self) -> TableView:
        """Resolve the row selection now (reading the columns of a predicate) and return the view."""
        if self._rows is not None:
            self._rows.resolve(self._holder.readable_source())
        return self

    def __repr__(self) -> str:
        if self._rows is not None and self._rows.pending_predicate:
            names = self.columns
            shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            return f"<TableView {self._rows.describe()}: {len(names)} columns ({shown}), rows not evaluated yet>"
        return repr(self.head())

    def _repr_html_(self) -> str | None:
        if self._rows is not None and self._rows.pending_predicate:
            return None
        return self.head()._repr_html_()


# ----------------------------------------------------------------------------------------------------------
# One column

_ARROW_FUNCTIONS = {
    "add": "add", "subtract": "subtract", "multiply": "multiply", "divide": "divide", "power": "power",
    "negative": "negate", "absolute": "abs", "equal": "equal", "not_equal": "not_equal", "less": "less",
    "less_equal": "less_equal", "greater": "greater", "greater_equal": "greater_equal", "bitwise_and": "and_kleene",
    "bitwise_or": "or_kleene", "bitwise_xor": "xor", "invert": "invert", "sqrt": "sqrt", "exp": "exp", "log": "ln",
    "log10": "log10", "log2": "log2", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "floor": "floor",
    "ceil": "ceil", "sign": "sign", "logical_and": "and_kleene", "logical_or": "or_kleene", "logical_not": "invert",
}  # fmt: skip
"""NumPy ufuncs and the Arrow functions that do the same on nullable columns."""


class ColumnView(NDArrayOperatorsMixin):
    """One column of some rows. Lazy until a result is asked for.

    Operators and NumPy ufuncs compute at once and return plain arrays (Arrow arrays for nullable columns).
    """

    __slots__ = ("_holder", "_part", "_rows")

    def __init__(self, holder: SourceHolder, part: Part, rows: Rows | None) -> None:
        self._holder = holder
        self._part = part
        self._rows = rows

    @property
    def _field(self) -> Field:
        return self._holder.source.schema.fields[self._part[0]]

    @property
    def _nullable(self) -> bool:
        return not self._part[1] and self._field.nullable

    @property
    def column(self) -> str:
        """Name of the column."""
        return (self._field.validity or "") if self._part[1] else self._field.name

    @property
    def dtype(self) -> Any:
        """NumPy dtype of the values; the Arrow type for a nullable column."""
        return np.dtype(np.bool_) if self._part[1] else convert.dtype_of(self._field)

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes stored with the column."""
        return self._field.attrs

    def _resolved(self, source: Source) -> RowSelection:
        return Range(0, 1, source.n_rows) if self._rows is None else self._rows.resolve(source)

    def count(self) -> int:
        """Return the number of selected rows, nulls included."""
        if self._rows is None:
            return self._holder.source.n_rows
        return self._rows.resolve(self._holder.readable_source()).count

    def __len__(self) -> int:
        return self.count()

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    @property
    def ndim(self) -> int:
        return 1

    @property
    def size(self) -> int:
        return len(self)

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, len(self), ITERATION_ROWS):
            yield from self[first : first + ITERATION_ROWS].array()

    def __getitem__(self, key: Any) -> ColumnView:
        """Select rows within this view."""
        if isinstance(key, (str, tuple)):
            raise IndexError(f"a column is indexed by rows, got {key!r}")
        if key is None:
            return self
        if isinstance(key, Expr):
            key = bind(key, self._holder.source.schema)
        return ColumnView(self._holder, self._part, Rows(self._rows, key))

    # -- materialising

    def array(self, *, copy: bool = True, out: NDArray[Any] | None = None) -> Any:
        """Return the values.

        Parameters
        ----------
        copy : bool, default True
            False returns a read-only view of the mapped file, or raises `ValueError`; never a silent copy.
        out : ndarray, optional
            C-contiguous target of the column's native dtype; untouched when a row is out of range.

        Returns
        -------
        ndarray, shape (rows,), or pyarrow.Array for a nullable column
            Owned by the caller unless ``copy=False``.
        """
        source = self._holder.readable_source()
        rows = self._resolved(source)
        if not copy:
            if out is not None:
                raise ValueError("out= and copy=False exclude each other")
            return _view_without_copy(source, rows, self._part)
        if self._nullable:
            return _materialise(source, rows, [self._part[0]], None if out is None else [out])[0]
        return read_part(source, rows, self._part, out)

    def evaluate(self) -> ColumnView:
        """Resolve the row selection now and return the view."""
        if self._rows is not None:
            self._rows.resolve(self._holder.readable_source())
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            view: NDArray[Any] = self.array(copy=False)
            if dtype is not None and np.dtype(dtype) != view.dtype:
                raise ValueError(f"a column of dtype {view.dtype} cannot become {np.dtype(dtype)} without copying")
            return view
        values = self.array()
        if self._nullable:
            values = values.to_numpy(zero_copy_only=False)
        return np.asarray(values, dtype=dtype)

    def arrow(self) -> pyarrow.Array | pyarrow.ChunkedArray:
        """Return the values as an Arrow array, chunked when they come from several segments."""
        column = self._as_table().arrow().column(0)
        return column.chunk(0) if column.num_chunks == 1 else column

    def _as_table(self) -> TableView:
        if self._part[1]:
            raise ValueError(f"the validity companion {self.column!r} has no table form of its own")
        return TableView(self._holder, [self._part[0]], self._rows)

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        column = self._as_table().arrow().column(0).combine_chunks()
        pair: tuple[object, object] = column.__arrow_c_array__(requested_schema)
        return pair

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._as_table().arrow().column(0).__arrow_c_stream__(requested_schema)

    # -- computing

    def isin(self, values: Any) -> NDArray[np.bool_]:
        """Return for each row whether its value is among `values`; nulls are not."""
        wanted = list(values) if isinstance(values, (set, frozenset)) else values
        data = self.array()
        if not self._nullable:
            return np.isin(data, wanted)
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pc.is_in(data, value_set=pa.array(list(wanted), data.type))
        return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), dtype=np.bool_)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs.get("out") is not None:
            return NotImplemented
        operands = [x.array() if isinstance(x, ColumnView) else x for x in inputs]
        if not any(isinstance(x, ColumnView) and x._nullable for x in inputs):
            return ufunc(*operands, **kwargs)
        name = _ARROW_FUNCTIONS.get(ufunc.__name__)
        if name is None or kwargs:
            raise TypeError(
                f"numpy.{ufunc.__name__} has no counterpart for nullable columns; use pyarrow.compute on array()"
            )
        import pyarrow.compute as pc

        return pc.call_function(name, operands)

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = {"amin": "min", "amax": "max"}.get(func.__name__, func.__name__)
        if func.__module__ == "numpy" and name in ("sum", "mean", "min", "max", "std", "var") and args[0] is self:
            return getattr(self, name)(*args[1:], **kwargs)
        plain = [np.asarray(x) if isinstance(x, ColumnView) else x for x in args]
        return func(*plain, **{k: np.asarray(v) if isinstance(v, ColumnView) else v for k, v in kwargs.items()})

    def _reduce(self, name: str, refused: Mapping[str, Any], **options: Any) -> Any:
        for parameter, value in refused.items():
            if value is not None and value is not np._NoValue and not (parameter == "axis" and value == 0):
                raise TypeError(f"{name}() of a column takes no {parameter}; use numpy on array()")
        if not self._nullable:
            try:
                values = self.array(copy=False)
            except ValueError:
                values = self.array()
            kind = values.dtype.kind
            if kind in "SU":
                raise TypeError(f"{name}() is not defined for the text column {self.column!r}")
            if kind in "mM" and name in ("var", "std"):
                raise TypeError(f"{name}() is not defined for the time column {self.column!r}")
            if values.shape[0] == 0:
                return values.dtype.type(0) if name == "sum" and kind != "M" else np.float64("nan")
            return getattr(values, name)(**options)
        import pyarrow as pa
        import pyarrow.compute as pc

        data = self.array()
        if pa.types.is_string(data.type) or pa.types.is_large_string(data.type) or pa.types.is_binary(data.type):
            raise TypeError(f"{name}() is not defined for the text column {self.column!r}")
        function = {"std": "stddev", "var": "variance"}.get(name, name)
        result = (
            pc.call_function(function, [data], pc.VarianceOptions(**options)) if options else pc.call_function(function, [data])
        ).as_py()
        if result is None:
            return 0 if name == "sum" else float("nan")
        return result

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = None, initial: Any = None, where: Any = None) -> Any:
        """Return the sum; nulls are skipped, no rows give 0."""
        return self._reduce("sum", {"axis": axis, "dtype": dtype, "out": out, "keepdims": keepdims, "initial": initial, "where": where})

    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = None, where: Any = None) -> Any:
        """Return the mean; nulls are skipped, no rows give NaN."""
        return self._reduce("mean", {"axis": axis, "dtype": dtype, "out": out, "keepdims": keepdims, "where": where})

    def min(self, axis: Any = None, out: Any = None, keepdims: Any = None, initial: Any = None, where: Any = None) -> Any:
        """Return the smallest value; nulls are skipped, no rows give NaN."""
        return self._reduce("min", {"axis": axis, "out": out, "keepdims": keepdims, "initial": initial, "where": where})

    def max(self, axis: Any = None, out: Any = None, keepdims: Any = None, initial: Any = None, where: Any = None) -> Any:
        """Return the largest value; nulls are skipped, no rows give NaN."""
        return self._reduce("max", {"axis": axis, "out": out, "keepdims": keepdims, "initial": initial, "where": where})

    def std(self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: Any = None, where: Any = None) -> Any:
        """Return the standard deviation with `ddof` degrees of freedom taken off."""
        return self._reduce("std", {"axis": axis, "dtype": dtype, "out": out, "keepdims": keepdims, "where": where}, ddof=ddof)

    def var(self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: Any = None, where: Any = None) -> Any:
        """Return the variance with `ddof` degrees of freedom taken off."""
        return self._reduce("var", {"axis": axis, "dtype": dtype, "out": out, "keepdims": keepdims, "where": where}, ddof=ddof)

    # -- looking

    def head(self, n: int | None = None) -> Preview:
        """Return the first `n` values (default 10) as a printable `Preview`."""
        rows = TableOps._preview_rows(n)
        return Preview(self[:rows], first=0, total=len(self))

    def tail(self, n: int | None = None) -> Preview:
        """Return the last `n` values (default 10) as a printable `Preview`."""
        total = len(self)
        first = max(0, total - TableOps._preview_rows(n))
        return Preview(self[first:total], first=first, total=total)

    def __repr__(self) -> str:
        if self._rows is not None and self._rows.pending_predicate:
            return f"<ColumnView {self.column!r} {self._rows.describe()}: {self.dtype}, rows not evaluated yet>"
        return repr(self.head())

    def _repr_html_(self) -> str | None:
        if self._rows is not None and self._rows.pending_predicate:
            return None
        return self.head()._repr_html_()
