"""One column of some rows: lazy until a result is asked for, then a plain array."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from . import config, convert
from . import predicate as predicates
from .arguments import check_integer
from .dataset import Source
from .fields import Field
from .gather import read_part
from .kernels.shortcuts import ColumnShortcut
from .materialise import materialise, refuse_nullable, view_without_copy
from .plan import Part
from .preview import Preview, html_of, text_of
from .ready import read_whole
from .reductions import reduce_range
from .rows import Rows, SourceHolder, narrow
from .selection import Range, RowSelection

if TYPE_CHECKING:
    import pyarrow

    from .views import TableView

__all__ = ["ColumnView"]

ITERATION_ROWS = 1 << 16
"""Values that iterating over a column brings into memory at once; of encoded files one segment."""

_ARROW_FUNCTIONS = {
    **{
        name: name
        for name in (
            "add",
            "subtract",
            "multiply",
            "divide",
            "power",
            "sqrt",
            "exp",
            "log10",
            "log2",
            "log1p",
        )
    },
    **{name: name for name in ("sin", "cos", "tan", "floor", "ceil", "sign", "invert")},
    **{name: name for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")},
    "negative": "negate",
    "absolute": "abs",
    "log": "ln",
    "bitwise_and": "and_kleene",
    "bitwise_or": "or_kleene",
    "bitwise_xor": "xor",
    "logical_and": "and_kleene",
    "logical_or": "or_kleene",
    "logical_not": "invert",
}
"""NumPy ufuncs and the Arrow functions that do the same on nullable columns, and on those of variable length."""

_ORDERED_TYPES = ("string", "large_string", "binary", "large_binary")
"""Types, besides numbers and times, that have a smallest and a largest value: by their bytes, which for text is by code
points, as in Python."""


def _plain(argument: Any) -> Any:
    """Replace columns by arrays, inside lists and tuples too: ``numpy.concatenate([a, b])``."""
    if isinstance(argument, ColumnView):
        return np.asarray(argument)
    if isinstance(argument, (list, tuple)):
        return type(argument)(_plain(x) for x in argument)
    return argument


class ColumnView(ColumnShortcut, NDArrayOperatorsMixin):
    """One column of some rows. Lazy until a result is asked for.

    Operators and NumPy ufuncs compute at once and return plain arrays (Arrow arrays for columns that are nullable or of
    variable length, `TypeError` where Arrow has nothing like it).
    """

    __slots__ = ("_made",)

    _holder: SourceHolder
    _part: Part
    _chain: Rows | slice | NDArray[Any] | None
    """A key that nobody has looked at yet stands for a chain of that key alone."""

    _made: Rows

    @property
    def _rows(self) -> Rows | None:
        chain = self._chain
        if chain is None or isinstance(chain, Rows):
            return chain
        try:
            return self._made
        except AttributeError:
            rows = self._made = Rows(None, chain)
            return rows

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnView, (self._holder, self._part, self._chain)

    @property
    def _field(self) -> Field:
        return self._holder.source.schema.fields[self._part[0]]

    @property
    def _nullable(self) -> bool:
        position, validity = self._part
        return not validity and self._holder.source.nullable[position]

    @property
    def column(self) -> str:
        """Name of the column."""
        return (self._field.validity or "") if self._part[1] else self._field.name

    @property
    def dtype(self) -> Any:
        """NumPy dtype of the values; the Arrow type for a nullable column."""
        return np.dtype(np.bool_) if self._part[1] else convert.dtype_of(self._field)

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes stored with the column (a copy)."""
        return copy.deepcopy({**self._field.attrs})

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
        for first, stop in self._iteration_blocks():
            yield from self[first:stop].array()

    def _iteration_blocks(self) -> Iterator[tuple[int, int]]:
        source = self._holder.readable_source()
        if self._rows is None and source.encoded:  # a segment is decoded whole, so it is decoded once
            yield from pairwise(source.plan.segments.row_start.tolist())
            return
        for first in range(0, len(self), ITERATION_ROWS):
            yield first, first + ITERATION_ROWS

    def _selected(self, key: Any) -> ColumnView:
        """Return the rows that `key` selects within this view; slices and arrays of all rows do not come here."""
        if isinstance(key, (str, tuple)):
            raise IndexError(f"a column is indexed by rows, got {key!r}")
        if key is None:
            return self
        if predicates.is_expression(key):
            key = predicates.bind(key, self._holder.source.schema)
        return ColumnView(self._holder, self._part, narrow(self._rows, key, self._holder))

    # -- materialising

    def _array(self, copy: bool, out: NDArray[Any] | None) -> Any:
        """Do what `array` says, for the keys that no `QuickRows` is ready for."""
        source = self._holder.readable_source()
        key = self._chain
        if out is not None and not isinstance(out, np.ndarray):
            raise TypeError(f"out must be a numpy.ndarray, got {type(out).__name__}")
        if key is None and copy and source.encoded:
            whole = read_whole(source, self._part, out)
            if whole is not None:
                return whole
        if (key.__class__ is slice or key.__class__ is np.ndarray) and copy and out is None:
            quick: NDArray[Any] | None = source.quick_rows(self._part, key)
            if quick is not None:
                return quick
        rows = self._resolved(source)
        if not copy:
            if out is not None:
                raise ValueError("out= and copy=False exclude each other; leave one of them out")
            return view_without_copy(source, rows, self._part)
        position, validity = self._part
        if out is not None and source.schema.fields[position].variable:
            refuse_nullable(source.schema.fields[position], "out=")
        if validity or not source.nullable[position]:
            return read_part(source, rows, self._part, out)
        return materialise(source, rows, [position], None if out is None else [out])[0]

    def evaluate(self) -> ColumnView:
        """Resolve the row selection now and return the view."""
        if self._rows is not None:
            self._rows.resolve(self._holder.readable_source())
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            view: NDArray[Any] = self.array(copy=False)
            if dtype is not None and np.dtype(dtype) != view.dtype:
                raise ValueError(
                    f"casting {view.dtype} to {np.dtype(dtype)} requires a copy; it is not possible without copying: "
                    "leave out copy=False"
                )
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
        from .views import TableView  # views are made of columns: the import would be circular at the top

        return TableView(self._holder, [self._part[0]], self._rows)

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        column = self._as_table().arrow().column(0)
        whole = (
            column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        )  # one chunk is not copied
        pair: tuple[object, object] = whole.__arrow_c_array__(requested_schema)
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

        members = list(wanted)
        if pa.types.is_integer(data.type):
            # Arrow cuts 1.5 to 1, which would then be found.
            members = [v for v in members if not isinstance(v, (float, np.floating)) or v.is_integer()]
        refused = (pa.ArrowNotImplementedError, pa.ArrowInvalid, TypeError, OverflowError)
        try:
            found = pc.is_in(data, value_set=pa.array(members, data.type))
        except refused as error:
            other = [value for value in members if not _fits(value, data.type, refused)]
            why = f"takes values of this type, got {other[0]!r:.60}" if other else str(error)
            raise TypeError(f"isin() of column {self.column!r} of type {data.type} {why}") from None
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
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            return pc.call_function(name, operands)
        except (pa.ArrowNotImplementedError, TypeError) as error:
            kinds = " and ".join(
                f"column {x.column!r} of type {x.dtype}" if isinstance(x, ColumnView) else type(x).__name__
                for x in inputs
            )
            raise TypeError(f"numpy.{ufunc.__name__} is not defined for {kinds}: {error}") from None

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = {"amin": "min", "amax": "max"}.get(func.__name__, func.__name__)
        if (
            func.__module__ == "numpy"
            and name in ("sum", "mean", "min", "max", "std", "var")
            and args[0] is self
        ):
            return getattr(self, name)(*args[1:], **kwargs)
        return func(*_plain(args), **{key: _plain(value) for key, value in kwargs.items()})

    def _spread(self, name: str, axis: Any, unsupported: Mapping[str, Any], ddof: Any) -> Any:
        if check_integer("ddof", ddof) >= 2**31:
            raise ValueError(f"ddof must be less than 2**31, got {ddof}")
        return self._reduce(name, axis, unsupported, ddof=ddof)

    def _reduce(self, name: str, axis: Any, unsupported: Mapping[str, Any], **options: Any) -> Any:
        if axis not in (None, 0):
            raise TypeError(f"{name}() of a column takes no axis but 0, got {axis!r}")
        for parameter, value in unsupported.items():
            if (
                value is not None and value is not np._NoValue
            ):  # numpy.sum(view) passes its own defaults along
                raise TypeError(f"{name}() of a column takes no {parameter!r}; use NumPy on array()")
        if self._nullable:
            return self._reduce_nullable(name, options)
        try:
            values = self.array(copy=False)
        except ValueError:
            source = self._holder.readable_source()
            rows = self._resolved(source)
            if isinstance(rows, Range) and not options:
                reduced = reduce_range(source, rows, self._part, name)
                if reduced is not None:
                    return reduced
            values = self.array()
        kind = values.dtype.kind
        if kind in "SU" or (kind in "mM" and name in ("var", "std")) or (kind == "M" and name == "sum"):
            raise TypeError(f"{name}() is not defined for column {self.column!r} of dtype {values.dtype}")
        if values.shape[0] == 0:
            return np.float64("nan") if name != "sum" else values.sum()
        return getattr(values, name)(**options)

    def _reduce_nullable(self, name: str, options: Mapping[str, Any]) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        data = self.array()
        kinds = pa.types
        numeric = kinds.is_integer(data.type) or kinds.is_floating(data.type) or kinds.is_boolean(data.type)
        ordered = kinds.is_temporal(data.type) or str(data.type) in _ORDERED_TYPES
        if not numeric and not (name in ("min", "max") and ordered):
            raise TypeError(f"{name}() is not defined for column {self.column!r} of type {data.type}")
        function = {"std": "stddev", "var": "variance"}.get(name, name)
        arguments = pc.VarianceOptions(**options) if options else None
        result = pc.call_function(function, [data], arguments).as_py()
        if result is None:
            return 0 if name == "sum" else float("nan")
        return result

    def sum(self, axis: Any = None, **unsupported: Any) -> Any:
        """Return the sum; nulls are skipped, no rows give 0."""
        return self._reduce("sum", axis, unsupported)

    def mean(self, axis: Any = None, **unsupported: Any) -> Any:
        """Return the mean; nulls are skipped, no rows give NaN."""
        return self._reduce("mean", axis, unsupported)

    def min(self, axis: Any = None, **unsupported: Any) -> Any:
        """Return the smallest value; nulls are skipped, no rows give NaN."""
        return self._reduce("min", axis, unsupported)

    def max(self, axis: Any = None, **unsupported: Any) -> Any:
        """Return the largest value; nulls are skipped, no rows give NaN."""
        return self._reduce("max", axis, unsupported)

    def std(self, axis: Any = None, *, ddof: int = 0, **unsupported: Any) -> Any:
        """Return the standard deviation, `ddof` degrees of freedom taken off; nulls are skipped."""
        return self._spread("std", axis, unsupported, ddof)

    def var(self, axis: Any = None, *, ddof: int = 0, **unsupported: Any) -> Any:
        """Return the variance, `ddof` degrees of freedom taken off; nulls are skipped."""
        return self._spread("var", axis, unsupported, ddof)

    # -- looking

    def head(self, n: int | None = None) -> Preview:
        """Return the first `n` values (default 10) as a printable `Preview`."""
        window = self[: config.preview_row_count(n)]
        return Preview(window, first=0, total=len(self), fields=[self._shown_field])

    def tail(self, n: int | None = None) -> Preview:
        """Return the last `n` values (default 10) as a printable `Preview`."""
        total = len(self)
        first = max(0, total - config.preview_row_count(n))
        return Preview(self[first:total], first=first, total=total, fields=[self._shown_field])

    @property
    def _shown_field(self) -> Field:
        """The column on its own: a validity companion is a plain column of booleans."""
        return Field(self.column, np.dtype(np.bool_)) if self._part[1] else self._field

    def __repr__(self) -> str:
        return text_of(self, self._rows)

    def _repr_html_(self) -> str | None:
        return html_of(self, self._rows)


def _fits(value: Any, kind: Any, refused: tuple[type[Exception], ...]) -> bool:
    """Whether a value can be among those of an Arrow type."""
    import pyarrow as pa

    try:
        pa.scalar(value, kind)
    except refused:
        return False
    return True
