"""What did the user select?

Views are lazy: making and composing them reads nothing. `TableOps` holds what every table-like object offers (readers,
datasets and table views alike); it needs only the source, the column positions and the row chain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from . import config, convert, convert_pandas, ready
from . import predicate as predicates
from .arguments import check_column_names, check_mapping, check_name
from .column import ColumnView
from .decoding import read_segments
from .errors import ColumnNotFoundError
from .feeding import stored_batches
from .fields import Field, Schema
from .materialise import materialise, read_borrowed, read_fields, refuse_nullable, view_without_copy
from .preview import Preview, html_of, text_of
from .rows import Rows, SourceHolder, narrow
from .selection import Range, RowSelection

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from .ingest import Batch
    from .predicate import Expr
__all__ = ["ColumnView", "TableOps", "TableView"]

ByName: TypeAlias = dict[str, Any]  # the methods called `dict` hide the built-in name inside their class


def dict_of(names: Sequence[str], values: Sequence[Any]) -> ByName:
    return dict(zip(names, values, strict=True))


def _is_names(key: Any, kinds: tuple[type[list[Any]] | type[tuple[Any, ...]], ...]) -> bool:
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
    def dtypes(self) -> ByName:
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

    def _ipython_key_completions_(self) -> list[str]:
        return self.columns

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    # -- selecting

    def _position(self, name: str) -> int:
        part = self._holder.source.parts_by_name.get(name)
        if part is None or part[1] or part[0] not in self._positions:
            raise ColumnNotFoundError.for_name(name, self.columns)
        return part[0]

    def _column(self, name: str, rows: Rows | None) -> ColumnView:
        part = self._holder.source.parts_by_name.get(name)
        if part is None or part[0] not in self._positions:
            raise ColumnNotFoundError.for_name(name, self.columns)
        return ColumnView(self._holder, part, rows)

    def _narrow(self, key: Any) -> Rows | None:
        """Extend the row chain by `key`."""
        if key is None:
            return self._rows
        if predicates.is_expression(key):
            key = predicates.bind(key, self._holder.source.schema)
        return narrow(self._rows, key, self._holder)

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
                raise IndexError(f"a key tuple has 2 elements (rows, columns), got {len(key)}")
            rows, columns = key
            if isinstance(columns, str):
                return self._column(str(columns), self._narrow(rows))
            if columns is None:
                return TableView(self._holder, self._positions, self._narrow(rows))
            if isinstance(columns, (list, tuple)) and all(isinstance(name, str) for name in columns):
                return TableView(self._holder, self._pick(columns), self._narrow(rows))
            raise IndexError(
                f"columns are named by a string or a list of strings, got {type(columns).__name__}; a key of two is "
                "(rows, columns)"
            )
        if _is_names(key, (list,)):
            return TableView(self._holder, self._pick(key), self._rows)
        return TableView(self._holder, self._positions, self._narrow(key))

    def _pick(self, names: Sequence[str]) -> list[int]:
        parts, own = self._holder.source.parts_by_name, self._positions
        picked = []
        for name in names:
            part = parts.get(name)
            if part is None or part[1] or part[0] not in own:
                raise ColumnNotFoundError.for_name(name, self.columns)
            picked.append(part[0])
        return picked

    def select(self, *names: str) -> TableView:
        """Return these columns, in this order.

        Raises
        ------
        KeyError
            If a name is unknown.
        ValueError
            If a name is repeated, or none is given.
        """
        if len(names) == 1 and isinstance(names[0], (list, tuple)):
            raise TypeError(
                f"select() takes names one by one: select({', '.join(map(repr, names[0]))}), or table[names]"
            )
        if not names:
            raise ValueError("select() needs at least one column name; drop() leaves columns out")
        check_column_names("names", names)
        if len(set(names)) != len(names):
            raise ValueError(f"Duplicate column names in select(): {list(names)}")
        return TableView(self._holder, self._pick(names), self._rows)

    def drop(self, *names: str) -> TableView:
        """Return all columns but these, in stored order."""
        out = {self._position(n) for n in check_column_names("names", names)}
        return TableView(self._holder, [p for p in self._positions if p not in out], self._rows)

    def where(self, predicate: Expr) -> TableView:
        """Return the rows where a `col` expression is true, lazily.

        Raises
        ------
        QueryError
            If the expression does not fit the columns.
        """
        if not predicates.is_expression(predicate):
            raise TypeError(
                f"where() takes a col() expression, got {type(predicate).__name__}; use query() for text, and "
                "table[mask] for a mask"
            )
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
            expression = predicates.parse_query(
                predicate, columns=self._holder.source.schema.names, params=params
            )
        elif predicates.is_expression(predicate):
            expression = predicate
        else:
            raise TypeError(f"query() takes text or a col() expression, got {type(predicate).__name__}")
        view = TableView(
            self._holder,
            self._positions if columns is None else self._pick(list(check_column_names("columns", columns))),
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
        return self._column(check_name("name", name), self._rows).array(copy=copy, out=out)

    def dict(self, *, copy: bool = True, out: Mapping[str, NDArray[Any]] | None = None) -> ByName:
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
            return {
                n: view_without_copy(source, rows, (p, False))
                for n, p in zip(names, self._positions, strict=True)
            }
        targets = None
        if out is None:
            chain = self._rows
            if chain is not None and chain.parent is None and chain.key.__class__ in (slice, np.ndarray):
                parts = tuple([(position, False) for position in self._positions])
                quick = self._holder.readable_source().quick_columns_of(parts, chain.key)
                if quick is not None:
                    return dict_of(names, quick)
        else:
            if set(check_mapping("out", out)) != set(names):
                raise ValueError(f"out must have exactly the columns {names}, got {list(out)}")
            targets = [out[n] for n in names]
            for name, target in zip(names, targets, strict=True):
                if not isinstance(target, np.ndarray):
                    raise TypeError(f"out[{name!r}] must be a numpy.ndarray, got {type(target).__name__}")
        rows = self._resolved()
        values = materialise(self._holder.readable_source(), rows, self._positions, targets)
        return dict_of(names, values)

    @contextlib.contextmanager
    def scoped(self) -> Iterator[ByName]:
        """Lend the selected columns by name, for the length of a ``with`` block.

        Results live in memory that the next `scoped` read of this table uses again: no allocation, no page faults,
        for loops over many selections of one size. After the block they may show other values; copy what must stay.

        Yields
        ------
        dict of str to ndarray or pyarrow.Array
            As `dict` would give them.
        """
        source, rows = self._holder.readable_source(), self._resolved()
        with source.arena() as arena:
            yield dict_of(self.columns, read_borrowed(source, rows, self._positions, arena))

    def recarray(self) -> NDArray[Any]:
        """Return the selection as one packed structured array; item size = sum of the columns' item sizes."""
        names = self.columns
        if len(set(names)) != len(names):
            raise ValueError(f"a record array cannot repeat a field, got {names}; select each column once")
        if "" in names:
            raise KeyError("a record array cannot have a field with an empty name; select the other columns")
        for field in self._fields():
            refuse_nullable(field, "recarray()")
        rows = self._resolved()
        columns = materialise(self._holder.readable_source(), rows, self._positions)
        return convert.recarray(names, columns, n_rows=rows.count)

    def frame(
        self,
        *,
        copy: bool = True,
        dtype_backend: str | None = None,
        categories: bool | Collection[str] = False,
    ) -> pandas.DataFrame:
        """Return the selection as a pandas DataFrame with one block per column.

        Parameters
        ----------
        copy : bool, default True
            False: read-only views of the mapped file, or `ValueError`.
        dtype_backend : {"numpy_nullable", "pyarrow"}, optional
            As in pandas. Default: NumPy dtypes, masked dtypes for nullable integers and booleans.
        categories : bool or collection of str, default False
            Give categorical columns, or the text columns named, the ``category`` dtype.
        """
        names = self.columns
        if len(set(names)) != len(names):
            raise ValueError(f"a frame cannot repeat a column, got {names}; select each column once")
        source, rows = self._holder.readable_source(), self._resolved()
        chosen = () if isinstance(categories, bool) else check_column_names("categories", categories)
        for name in chosen:
            self._position(name)
        if copy:
            values = read_fields(source, rows, self._positions, dictionaries=chosen)
        else:
            values = [view_without_copy(source, rows, (p, False)) for p in self._positions]
        return convert_pandas.frame(
            names,
            self._fields(),
            values,
            n_rows=rows.count,
            dtype_backend=dtype_backend,
            categories=categories,
            copy=copy,
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a table cannot become an array without copying; leave out copy=False")
        records = self.recarray()
        return records if dtype is None else records.astype(dtype)

    # -- feeding other tables

    def __colstore_schema__(self) -> Schema:
        """Return the selected columns and the attributes of the table."""
        return Schema(tuple(self._fields()), self._holder.source.schema.attrs)

    def __colstore_batches__(self) -> Iterator[Batch]:
        """Yield the selection as it is stored: how `store` and `append` take a reader, dataset or view.

        One batch per segment of a whole table, blocks of about 64 MiB of a selection.
        """
        yield from stored_batches(self._holder.readable_source(), self._resolved(), self._positions)

    # -- Arrow

    def arrow(self, *, categories: bool | Collection[str] = ()) -> pyarrow.Table:
        """Return the selection as an Arrow table: zero-copy for whole aligned columns of mapped files.

        Parameters
        ----------
        categories : bool or collection of str, optional
            Columns to give as dictionary arrays, True for the categorical ones; chunks that are stored as dictionaries
            are not expanded.
        """
        if isinstance(categories, bool):
            categories = [f.name for f in self._fields() if categories and f.categories is not None]
        else:
            categories = check_column_names("categories", categories)
        if not categories and self._rows is None:
            table = ready.arrow_table(self._holder.readable_source(), self._positions, self._arrow_schema)
            if table is not None:
                return table
        for name in categories:
            self._position(name)
        schema = convert.with_dictionaries(self._arrow_schema(), categories)
        return convert.arrow_table(schema, self._fields(), self._arrow_batches(categories))

    def _arrow_schema(self) -> pyarrow.Schema:
        return convert.arrow_schema(self._fields())

    def _arrow_batches(self, categories: Collection[str] = ()) -> Iterator[list[Any]]:
        """Yield one list of arrays per segment (whole table), or per block of rows (a selection)."""
        source, rows = self._holder.readable_source(), self._resolved()
        fields = self._fields()
        segments = source.plan.segments
        if source.encoded and isinstance(rows, Range) and rows.covers(source.n_rows):
            yield from read_segments(source, self._positions, dictionaries=categories, share=True)
        elif isinstance(rows, Range) and rows.covers(source.n_rows):
            for s in np.flatnonzero(segments.rows > 0).tolist():
                first = int(segments.row_start[s])
                count = int(segments.rows[s])
                batch: list[Any] = []
                for position, field in zip(self._positions, fields, strict=True):
                    view = None if field.nullable else source.segment_view((position, False), s)
                    if view is None or not convert.arrow_can_share(view):
                        batch.extend(read_fields(source, Range(first, 1, count), [position]))
                    else:
                        batch.append(view)
                yield batch
        elif rows.count:
            yield read_fields(source, rows, self._positions, dictionaries=categories)

    def __arrow_c_schema__(self) -> object:
        return self._arrow_schema().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export as an Arrow stream; every call starts a fresh one."""
        return convert.arrow_stream(
            self._arrow_schema(), self._fields(), self._arrow_batches, requested_schema
        )

    # -- looking

    def head(self, n: int | None = None) -> Preview:
        """Return the first `n` rows (default 10) as a printable `Preview`."""
        window = self._window(slice(0, config.preview_row_count(n)))
        return Preview(window, first=0, total=len(self), fields=self._fields())

    def tail(self, n: int | None = None) -> Preview:
        """Return the last `n` rows (default 10) as a printable `Preview`."""
        total = len(self)
        first = max(0, total - config.preview_row_count(n))
        return Preview(self._window(slice(first, total)), first=first, total=total, fields=self._fields())

    def _repr_html_(self) -> str | None:
        return html_of(self, self._rows)

    def _window(self, key: slice) -> TableView:
        return TableView(self._holder, self._positions, Rows(self._rows, key))


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
        return text_of(self, self._rows)
