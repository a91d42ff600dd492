"""Sums, means, smallest and largest values and counts, computed where the columns are read.

No frame is made of the rows: each task gives a few numbers per column (`Partial`), and the last one puts them
together. What remains is a column of one row, which pandas itself reduces, so that the type of the result, NaN, and
the result of no rows are pandas' own. Integers, bounds and counts are exact, float sums and means
within n·eps (integrations.md 1.2).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.dataframe.dask_expr._expr import Expr
from dask.dataframe.dispatch import make_meta
from numpy.typing import NDArray

from colstore_io import arrays
from colstore_io.dataset import Source
from colstore_io.fields import Field, Schema
from colstore_io.materialise import as_validity, read_fields
from colstore_io.predicate import Predicate
from colstore_io.selection import Range, RowSelection

from ._dask_frame import FramePart, FrameTypes, selected_rows

__all__ = ["ReduceColstore", "can_reduce"]

TASK_BYTES = 16 << 20
"""Neighbouring partitions of fewer bytes than this together are reduced by one task: a task costs as much as reading
some megabytes."""

KINDS = {"sum": "biuf", "mean": "biuf", "min": "iufmM", "max": "iufmM", "count": "biufmMUSO"}


@dataclass(frozen=True, slots=True)
class Partial:
    """What is known of a column after some rows.

    Attributes
    ----------
    rows : int
        Rows looked at.
    count : int
        Values among them that are not missing.
    value : numpy scalar or None
        Their sum, or smallest or largest value; None for counts, and where there is no value.
    """

    rows: int
    count: int
    value: Any


@dataclass(frozen=True, slots=True)
class PartReducer:
    """Reduces the columns of one part, or counts its rows (``how="len"``, one `Partial`); what tasks call."""

    how: str
    names: tuple[str, ...]
    predicate: Predicate | None

    def __call__(self, part: FramePart) -> list[Partial]:
        if not part.runs:
            return [Partial(0, 0, None) for _ in self.names or ("",)]
        source, rows = part.source, selected_rows(part, self.predicate)
        if self.how == "len":
            return [Partial(rows.count, rows.count, None)]
        return [self._column(source, source.schema.index(name), rows) for name in self.names]

    def _column(self, source: Source, position: int, rows: RowSelection) -> Partial:
        field = source.schema.fields[position]
        if self.how == "count" and not field.nullable and field.dtype.kind in "biuUS":
            return Partial(rows.count, rows.count, None)  # nothing can be missing
        pieces = _views(source, position, rows)
        if pieces is None:
            (data,) = read_fields(source, rows, [position])
            if field.variable:
                return Partial(len(data), len(data) - data.null_count, None)
            pieces = [data if isinstance(data, tuple) else (data, None)]
        return functools.reduce(
            lambda a, b: joined(self.how, a, b),
            (_reduced(self.how, values, valid) for values, valid in pieces),
            Partial(0, 0, None),
        )


def _views(
    source: Source, position: int, rows: RowSelection
) -> list[tuple[NDArray[Any], NDArray[np.bool_] | None]] | None:
    """Return a range of a mapped column where it lies, segment by segment; None where it has to be copied together."""
    field = source.schema.fields[position]
    if not isinstance(rows, Range) or not source.mapped or not field.dtype.isnative:
        return None
    source.check_sizes(*rows.extent)
    segments = source.plan.segments
    low, high = segments.span(*rows.extent)
    if high - low > 64:
        return None
    pieces = []
    for number in range(low, high):
        first = int(segments.row_start[number])
        window = slice(
            max(rows.start - first, 0), min(rows.stop, int(segments.row_start[number + 1])) - first
        )
        values = source.segment_view((position, False), number)
        if values is None:
            return None
        valid = None
        if field.nullable:
            flags = source.segment_view((position, True), number)
            valid = None if flags is None else as_validity(flags[window])
        pieces.append((values[window], valid))
    return pieces


def _reduced(how: str, values: NDArray[Any], valid: NDArray[np.bool_] | None) -> Partial:
    rows = len(values)
    kind = values.dtype.kind
    if valid is not None and not valid.all():
        values = values[valid]
    if how == "count" and kind not in "fmM":
        return Partial(rows, len(values), None)
    if kind == "b":
        values = values.view(np.uint8) != 0  # a file may hold other bytes than 0 and 1
    if kind == "f" and how in ("sum", "mean"):
        total = np.sum(values, dtype=np.float64)
        if not np.isnan(total):
            return Partial(rows, len(values), total)
    if kind in "fmM":
        present = ~(np.isnan(values) if kind == "f" else np.isnat(values))
        if not present.all():
            values = values[present]
    count = len(values)
    if how == "count":
        return Partial(rows, count, None)
    if how in ("sum", "mean"):
        wide = np.float64 if how == "mean" or kind == "f" else np.uint64 if kind == "u" else np.int64
        with np.errstate(all="ignore"):
            return Partial(rows, count, np.sum(values, dtype=wide))
    if not count:
        return Partial(rows, 0, None)
    return Partial(rows, count, values.min() if how == "min" else values.max())


def joined(how: str, a: Partial, b: Partial) -> Partial:
    """Return what is known after the rows of both."""
    rows, count = a.rows + b.rows, a.count + b.count
    if a.value is None or b.value is None:
        return Partial(rows, count, b.value if a.value is None else a.value)
    with np.errstate(all="ignore"):
        if how in ("sum", "mean"):
            return Partial(rows, count, a.value + b.value)
        return Partial(rows, count, min(a.value, b.value) if how == "min" else max(a.value, b.value))


@dataclass(frozen=True, slots=True)
class Finisher:
    """Puts partial results together as pandas would give them."""

    how: str
    fields: tuple[Field, ...]
    types: FrameTypes
    series: bool

    def __call__(self, parts: Sequence[Sequence[Partial]]) -> Any:
        columns = [
            functools.reduce(lambda a, b: joined(self.how, a, b), column, Partial(0, 0, None))
            for column in zip(*parts, strict=True)
        ]
        if self.how == "len":
            return columns[0].rows
        if self.how == "count":
            counts = [column.count for column in columns]
            if self.series:
                return np.int64(counts[0])
            return pd.Series(counts, index=pd.Index([f.name for f in self.fields]), dtype=np.int64)
        frame = self._row(columns)
        return getattr(frame[self.fields[0].name] if self.series else frame, self.how)()

    def _row(self, columns: Sequence[Partial]) -> pd.DataFrame:
        """Return a frame of one row, or none if there were none, that reduces to the result."""
        n_rows = min(columns[0].rows, 1)
        pairs = list(zip(self.fields, columns, strict=True))
        if self.how in ("min", "max"):
            return self.types.frame(self.fields, [_bound(f, c, n_rows) for f, c in pairs], n_rows)
        totals = {
            number: _masked(self.how, field, column, n_rows)
            if field.nullable and field.dtype.kind != "f"
            else _total(self.how, field, column, n_rows)
            for number, (field, column) in enumerate(pairs)
        }
        frame = pd.DataFrame(totals, index=pd.RangeIndex(n_rows))
        frame.columns = pd.Index([field.name for field in self.fields])
        return frame


def _bound(field: Field, column: Partial, n_rows: int) -> Any:
    """Return the smallest or largest value, or what marks a missing one."""
    dtype = field.native_dtype
    if column.value is not None:
        values = np.full(n_rows, column.value, dtype)
    elif dtype.kind == "f":
        values = np.full(n_rows, np.nan, dtype)
    else:
        values = np.full(n_rows, np.array("NaT", dtype)) if dtype.kind in "mM" else np.zeros(n_rows, dtype)
    if field.nullable:
        return arrays.arrow_array(field, values, np.full(n_rows, column.value is not None))
    return values


def _total(how: str, field: Field, column: Partial, n_rows: int) -> NDArray[Any]:
    """Return the sum or mean of NumPy values."""
    kind = field.dtype.kind
    if how == "mean":
        value = column.value / column.count if column.count else np.nan
        dtype = field.native_dtype if kind == "f" else np.dtype(np.float64)
    else:
        value = 0 if column.value is None else column.value
        dtype = field.native_dtype if kind == "f" else np.dtype(np.uint64 if kind == "u" else np.int64)
    with np.errstate(all="ignore"):
        return np.full(n_rows, value).astype(dtype)


def _masked(how: str, field: Field, column: Partial, n_rows: int) -> Any:
    """Return a total of masked integers or booleans as a masked column."""
    if how == "sum":
        dtype = np.uint64 if field.dtype.kind == "u" else np.int64
        values = np.full(n_rows, 0 if column.value is None else column.value, dtype)
        return pd.arrays.IntegerArray(values, np.zeros(n_rows, np.bool_))
    value = column.value / column.count if column.count else 0.0
    return pd.arrays.FloatingArray(np.full(n_rows, value, np.float64), np.full(n_rows, column.count == 0))


def can_reduce(read: Any, parent: Any, how: str) -> bool:
    """Tell whether ``how`` of all columns of `read`, as `parent` asks for it, can be computed from the buffers."""
    types: FrameTypes = read.operand("dtype_options")
    if types.dtype_backend is not None or not read.operand("copy") or not read.columns:
        return False
    if how != "count" and (parent.operand("skipna") is not True or parent.operand("axis") not in (0, None)):
        return False
    if how != "count" and read.ndim == 2 and parent.operand("axis") is None:
        return False
    if parent.operand("numeric_only") not in (False, None):
        return False
    schema: Schema = read.operand("plan").source.schema
    for name in read.columns:
        if name not in schema:
            return False  # in the names of folders
        field = schema[name]
        kind = field.dtype.kind
        if name in types.categories or kind not in KINDS[how]:
            return False
        if kind == "f" and field.dtype.itemsize not in (4, 8):
            return False
        if kind in "mM" and np.datetime_data(field.dtype)[0] not in ("s", "ms", "us", "ns"):
            return False
    return True


class ReduceColstore(Expr):
    """A reduction of all columns of a `ReadColstore`, which is no dependency: its frames are never made.

    Operands
    --------
    read : _Reading
        Wraps the `ReadColstore`, so that Dask does not look into it.
    how : str
        A reduction, or "len": the number of rows.
    meta : object
        Dask's meta of the result.
    """

    _parameters = ["read", "how", "meta"]  # noqa: RUF012 - as Dask has it
    _pickle_functools_cache = False

    read: _Reading
    how: str
    meta: Any

    def __new__(cls, read: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(read, Expr):
            read = _Reading(read)
        return super().__new__(cls, read, *args, **kwargs)  # type: ignore[no-untyped-call]

    @functools.cached_property
    def _funcname(self) -> str:
        return f"read_colstore-{self.how}"

    @functools.cached_property
    def _meta(self) -> Any:
        return make_meta(self.meta)

    def _divisions(self) -> tuple[Any, ...]:
        if self.ndim == 0:
            return (None, None)
        names = self.read.reading.columns
        return (min(names), max(names))

    def _layer(self) -> dict[Any, Any]:
        read, how = self.read.reading, self.how
        plan, row_filter, types = read.operand("plan"), read.operand("filters"), read.operand("dtype_options")
        names = () if how == "len" else tuple(read.columns)
        reducer = PartReducer(how, names, None if row_filter is None else row_filter.predicate)
        partial = f"{self._name}-part"
        tasks: dict[Any, Any] = {}
        for number, (first, stop) in enumerate(self._groups(read)):
            key = (partial, number)
            known = plan.value_counts(first, stop, names) if how == "count" and row_filter is None else None
            if known is not None:
                rows = sum(plan.lengths(range(first, stop)))
                tasks[key] = DataNode(key, [Partial(rows, count, None) for count in known])
                continue
            tasks[key] = Task(key, reducer, plan.part(first, stop, names, row_filter), _data_producer=True)
        schema = plan.source.schema
        finisher = Finisher(how, tuple(_bare(schema[name]) for name in names), types, read.ndim == 1)
        key = (self._name, 0)
        tasks[key] = Task(key, finisher, List(*(TaskRef(k) for k in tasks)))
        return tasks

    def _groups(self, read: Any) -> list[tuple[int, int]]:
        """Return runs of neighbouring partitions, each of which one task reduces."""
        plan, row_filter = read.operand("plan"), read.operand("filters")
        needed = [] if self.how == "len" else list(read.columns)
        if row_filter is not None:
            needed = list(dict.fromkeys([*needed, *row_filter.columns]))
        row_bytes = plan.row_bytes(needed)
        partitions = list(read._partitions)
        groups: list[tuple[int, int]] = []
        size = 0
        for number, rows in zip(partitions, plan.lengths(partitions), strict=True):
            if groups and groups[-1][1] == number and size + rows * row_bytes <= TASK_BYTES:
                groups[-1] = (groups[-1][0], number + 1)
                size += rows * row_bytes
            else:
                groups.append((number, number + 1))
                size = rows * row_bytes
        return groups


@dataclass(frozen=True, eq=False)
class _Reading:
    reading: Any  # not `expr`: Dask takes objects that have one for collections

    def __dask_tokenize__(self) -> tuple[str, str]:
        return ("colstore_io.Reading", self.reading._name)


def _bare(field: Field) -> Field:
    return Field(field.name, field.dtype, field.validity, field.logical, field.tz, optional=field.optional)
