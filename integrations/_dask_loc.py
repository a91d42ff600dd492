"""Rows by number: ``df.loc[a:b]`` and ``df.loc[[3, 1, 4]]`` of a reader whose index numbers the rows.

Where a label is a row, nothing else has to be read: a slice becomes a plan of fewer rows, a list becomes one small
gather per partition that it touches. Results, their order (Dask sorts the labels) and divisions are Dask's own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dask._task_spec import Task
from dask.dataframe.dask_expr._expr import Projection
from dask.dataframe.dask_expr._indexing import LocList, LocSlice
from dask.dataframe.dask_expr._util import _convert_to_list
from dask.dataframe.dask_expr.io.io import BlockwiseIO
from numpy.typing import NDArray

from ._dask_frame import FramePart, FrameReader, FrameTypes, has_categories
from ._dask_plan import FramePlan

__all__ = ["LocList", "LocSlice", "TakeColstore", "located"]


@dataclass(frozen=True, eq=False)
class PickedRows:
    """Global row numbers, and where the partitions of the result begin in them.

    Attributes
    ----------
    rows : ndarray of int64, shape (n,)
        Not decreasing.
    starts : tuple of int
        Position of the first row of each partition, and n.
    parts : tuple of int
        Partitions of the plan that the rows lie in.
    """

    rows: NDArray[np.int64]
    starts: tuple[int, ...]
    parts: tuple[int, ...]

    @classmethod
    def of(cls, labels: Sequence[int], plan: FramePlan) -> PickedRows:
        rows = np.sort(np.asarray(labels, np.int64))
        parts = np.searchsorted(plan.bounds, rows, side="right") - 1
        first = np.flatnonzero(np.diff(parts, prepend=-1))
        return cls(rows, (*first.tolist(), len(rows)), tuple(parts[first].tolist()))

    @property
    def divisions(self) -> tuple[int, ...]:
        return (*(int(self.rows[first]) for first in self.starts[:-1]), int(self.rows[-1]))

    def __dask_tokenize__(self) -> tuple[str, bytes]:
        return ("colstore_io.PickedRows", self.rows.tobytes())  # the plan decides over the rest


class TakeColstore(BlockwiseIO):
    """Rows of a `FramePlan` by number; operands as in `ReadColstore`."""

    _parameters = [  # noqa: RUF012 - as Dask has it
        "plan",
        "picked",
        "select",
        "columns",
        "dtype_options",
        "_series",
    ]
    _defaults = {"columns": None, "dtype_options": FrameTypes(), "_series": False}  # noqa: RUF012
    _absorb_projections = True
    _pickle_functools_cache = False

    plan: FramePlan
    picked: PickedRows
    select: tuple[str, ...]
    dtype_options: FrameTypes
    _series: bool

    @functools.cached_property
    def _funcname(self) -> str:
        return "read_colstore-loc"

    @property
    def columns(self) -> list[str]:
        found = self.operand("columns")  # type: ignore[no-untyped-call]
        return list(self.select) if found is None else list(_convert_to_list(found) or ())

    @functools.cached_property
    def _meta(self) -> Any:
        return self.reader.empty(self.plan.source.schema)

    @functools.cached_property
    def reader(self) -> FrameReader:
        types, folders = self.dtype_options, self.plan.folder_columns
        return FrameReader(tuple(self.columns), None, None, types, series=self._series, folders=folders)

    def _divisions(self) -> tuple[int, ...]:
        return self.picked.divisions

    def _task(self, name: Any, index: int) -> Task:
        picked, number = self.picked, self.picked.parts[index]
        categories = self.dtype_options.categories
        part = self.plan.part(number, number + 1, self.columns, None, categories=categories)
        rows = picked.rows[picked.starts[index] : picked.starts[index + 1]]
        return Task(name, take, self.reader, part, rows - part.first_row, _data_producer=True)


def take(reader: FrameReader, part: FramePart, rows: NDArray[np.int64]) -> Any:
    """Read rows of a part by their numbers in it; what tasks call."""
    return reader.take(part, rows)


def located(read: Any, parent: Any) -> Any:
    """Return the reader of the rows that ``loc`` asks for; None where Dask has to find them among labels."""
    plan: FramePlan = read.plan
    types: FrameTypes = read.dtype_options
    if read.filters is not None or read.index_name is not None or not read.copy or read._filtered:
        return None
    if not all(has_categories(plan.source.schema[name]) for name in types.categories):
        return None  # each partition finds its own categories
    found = _slice(read, parent) if isinstance(parent, LocSlice) else _list(read, parent)
    if found is None or parent.cindexer is None:
        return found
    names = parent.cindexer
    plain = isinstance(names, str) or (isinstance(names, list) and all(isinstance(n, str) for n in names))
    return Projection(found, names) if plain and read.ndim == 2 else None


def _slice(read: Any, parent: Any) -> Any:
    """Return the reader of the rows of a slice, whose both ends are included."""
    plan: FramePlan = read.plan
    begin, end = parent.istart, parent.istop
    if not _is_row(begin) or not _is_row(end) or parent.iindexer.step not in (None, 1):
        return None
    first, last = parent.start, parent.stop
    bounds = plan.bounds[first : last + 2].copy()
    bounds[0], bounds[-1] = max(bounds[0], int(begin)), min(bounds[-1], int(end) + 1)
    if len(bounds) < 2 or not (bounds[1:] > bounds[:-1]).all() or parent.npartitions != len(bounds) - 1:
        return None
    divisions = tuple(parent.divisions)
    return read.substitute_parameters({"plan": replace(plan, bounds=bounds, divisions=divisions)})


def _list(read: Any, parent: Any) -> Any:
    plan: FramePlan = read.plan
    labels = parent.iindexer
    if not isinstance(labels, list | np.ndarray) or not len(labels) or not all(map(_is_row, labels)):
        return None
    if min(labels) < plan.bounds[0] or max(labels) >= plan.bounds[-1]:
        return None  # pandas says what it thinks of unknown labels
    return TakeColstore(
        plan=plan,
        picked=PickedRows.of(labels, plan),
        select=read.select,
        columns=read.operand("columns"),
        dtype_options=read.dtype_options,
        _series=read._series,
    )


def _is_row(label: Any) -> bool:
    return isinstance(label, int | np.integer) and not isinstance(label, bool)
