"""The reader as an expression that Dask's optimizer can talk to.

Columns, conditions and reductions move into it, partitions that cannot match go away, lengths are known
(integrations.md 1.2). Whoever imports this module must be ready for an error: it uses names that Dask does not promise
to keep, and `dask.read_colstore` then falls back to ``from_map``.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
from dask._task_spec import Task
from dask.dataframe.dask_expr._expr import (
    DropnaFrame,
    DropnaSeries,
    Elemwise,
    Filter,
    Head,
    Index,
    Lengths,
    Literal,
    MapPartitions,
    PartitionsFiltered,
    Projection,
    Query,
    _DelayedExpr,
    determine_column_projection,
)
from dask.dataframe.dask_expr._indexing import Loc
from dask.dataframe.dask_expr._merge import Merge
from dask.dataframe.dask_expr._reductions import ApplyConcatApply, Count, Len, Max, Mean, Min, Sum
from dask.dataframe.dask_expr._repartition import Repartition
from dask.dataframe.dask_expr._util import _convert_to_list
from dask.dataframe.dask_expr.io.io import BlockwiseIO
from dask.dataframe.utils import clear_known_categories
from dask.typing import no_default

from ._dask_frame import FramePart, FrameReader, FrameTypes, has_categories
from ._dask_loc import LocList, LocSlice, located
from ._dask_plan import FramePlan, RowFilter
from ._dask_predicate import Translator
from ._dask_query import condition_of_query
from ._dask_reduce import ReduceColstore, can_reduce

__all__ = ["ReadColstore"]

JOIN_BYTES = 4 << 30
"""Partitions of up to this many bytes that are wanted as one frame are read by one task."""

_REDUCTIONS = {Sum: "sum", Mean: "mean", Min: "min", Max: "max", Count: "count"}


class ReadColstore(PartitionsFiltered, BlockwiseIO):
    """Frames of a `FramePlan`.

    Operands
    --------
    plan : FramePlan
    select : tuple of str
        What the user asked for. Not `columns`: Dask takes reads that differ in `columns` alone for one source cut in
        one way, which is not so when the user's choice decides over the size of partitions.
    columns : list of str or None
        What the optimizer found to be needed.
    index_name : str or None
    filters : RowFilter or None
    dtype_options : FrameTypes
    copy : bool
    _partitions : list of int or None
        Into all partitions of the plan.
    _series : bool
    _span : (first, stop) or None
        Partitions that divisions reach over, where conditions that the optimizer found excluded some: whoever looked at
        the divisions before finds the same first and last one.
    """

    _parameters = [  # noqa: RUF012 - as Dask has it
        "plan",
        "select",
        "columns",
        "index_name",
        "filters",
        "dtype_options",
        "copy",
        "_partitions",
        "_series",
        "_span",
    ]
    _defaults = {  # noqa: RUF012
        "columns": None,
        "index_name": None,
        "filters": None,
        "dtype_options": FrameTypes(),
        "copy": True,
        "_partitions": None,
        "_series": False,
        "_span": None,
    }
    _absorb_projections = True
    _filter_passthrough = True
    _pickle_functools_cache = False  # cached properties need not travel to the scheduler

    plan: FramePlan  # Dask gives operands as attributes
    select: tuple[str, ...]
    index_name: str | None
    filters: RowFilter | None
    dtype_options: FrameTypes
    copy: bool
    _series: bool
    _span: tuple[int, int] | None

    @functools.cached_property
    def _funcname(self) -> str:
        return "read_colstore"

    @property
    def columns(self) -> list[str]:
        found = self.operand("columns")  # type: ignore[no-untyped-call]
        return list(self.select) if found is None else list(_convert_to_list(found) or ())

    @functools.cached_property
    def reader(self) -> FrameReader:
        """What the tasks call."""
        row_filter: RowFilter | None = self.filters
        return FrameReader(
            tuple(self.columns),
            self.index_name,
            None if row_filter is None else row_filter.predicate,
            self.dtype_options,
            self.copy,
            self._series,
            self.plan.folder_columns,
        )

    @functools.cached_property
    def _meta(self) -> Any:
        meta = self.reader.empty(self.plan.source.schema)
        schema, categories = self.plan.source.schema, self.dtype_options.categories
        unknown = [n for n in categories if n in self.columns and not has_categories(schema[n])]
        if not unknown:
            return meta
        return clear_known_categories(meta) if self._series else clear_known_categories(meta, cols=unknown)

    def _divisions(self) -> tuple[Any, ...]:
        plan: FramePlan = self.plan
        return (None,) * (plan.n_partitions + 1) if plan.divisions is None else plan.divisions

    @functools.cached_property
    def divisions(self) -> tuple[Any, ...]:
        """Divisions of the partitions that are left."""
        everything = self._divisions()
        if not self._filtered:
            return everything
        kept = self._partitions
        found = [everything[number] for number in kept]
        last = everything[kept[-1] + 1]
        if self._span is not None:
            found[0], last = everything[self._span[0]], everything[self._span[1]]
        return (*found, last)

    def part(self, index: int) -> FramePart:
        """Return the descriptor of partition `index` of the plan."""
        types: FrameTypes = self.dtype_options
        index_name = self.index_name
        names = self.columns if index_name is None else [*self.columns, index_name]
        plan: FramePlan = self.plan
        return plan.part(index, index + 1, names, self.filters, categories=types.categories)

    def _filtered_task(self, name: Any, index: int) -> Task:
        return Task(name, self.reader, self.part(index), _data_producer=True)

    @functools.cached_property
    def _fusion_compression_factor(self) -> float:
        """Bytes of the columns to be read by those that the partitions were cut for."""
        if len(self._partitions) <= 1 or not self.copy or self._span is not None:
            return 1.0
        plan = self.plan
        whole, needed = plan.row_bytes(self.select), plan.row_bytes(self.columns)
        return 1.0 if whole == 0 else min(1.0, max(0.001, needed / whole))

    # -- what the optimizer asks

    @functools.cached_property
    def _translator(self) -> Translator:
        plan: FramePlan = self.plan
        return Translator(self, plan.source.schema, self.dtype_options, plan.folder_columns)

    def _filter_passthrough_available(self, parent: Any, dependents: Any) -> bool:
        if not self.copy:
            return False
        if not super()._filter_passthrough_available(parent, dependents):  # type: ignore[no-untyped-call]
            return False
        found, rest = self._translator.split(parent.predicate)
        return found is not None and (rest is None or self._translator.is_rowwise(rest))

    def _simplify_up(self, parent: Any, dependents: Any) -> Any:
        if isinstance(parent, Index):
            return self._for_index(parent, dependents)
        if isinstance(parent, Projection):
            return self._for_projection(parent, dependents)
        if isinstance(parent, Filter) and parent.frame._name == self._name:
            if self._filter_passthrough_available(parent, dependents):
                return self._filtered_by(parent, dependents)
            return self._one_of_several(parent, dependents)
        if isinstance(parent, Query | DropnaFrame | DropnaSeries) and parent.frame._name == self._name:
            return self._for_rows(parent, dependents)
        if _is_mask(parent) and parent.frame._name == self._name:
            return Filter(self, parent.iindexer)
        if self.filters is None and isinstance(parent, Lengths | Len):
            lengths = self.plan.lengths(self._partitions)
            return Literal(lengths) if isinstance(parent, Lengths) else Literal(sum(lengths))
        if isinstance(parent, Len):
            return ReduceColstore(self, "len", parent._meta)  # reads the columns of the condition alone
        if type(parent) in (LocSlice, LocList) and parent.frame._name == self._name:
            return located(self, parent)
        if type(parent) is Head and self.filters is None:
            return self._first_rows(parent)
        if type(parent) is Repartition and parent.frame._name == self._name:
            return self._joined(parent, dependents)
        how = _REDUCTIONS.get(type(parent))
        if how is not None and can_reduce(self, parent, how):
            return ReduceColstore(self, how, parent._meta)
        return None

    def _first_rows(self, parent: Any) -> Any:
        """Return the reader of so many rows of the first partition, if it has as many (else Dask warns)."""
        plan: FramePlan = self.plan
        first = self._partitions[0]
        begin, end = int(plan.bounds[first]), int(plan.bounds[first + 1])
        if parent.operand("npartitions") != 1 or not 0 <= parent.n <= end - begin:
            return None
        divisions = None if plan.divisions is None else plan.divisions[first : first + 2]
        few = replace(plan, bounds=np.array([begin, begin + parent.n], np.int64), divisions=divisions)
        return self.substitute_parameters({"plan": few, "_partitions": None, "_span": None})

    def _joined(self, parent: Any, dependents: Any) -> Any:
        """Return the reader of all partitions as one, where one frame is all that is wanted: ``compute`` asks so.

        Every value is then read into its final place by all threads; Dask would read partitions and copy them together,
        in one process too. 100 MB in 16 partitions on a busy machine: by partitions 1.8 to 2.3 times as long as
        from partitions in memory, in one task 0.7 times (`benchmarks/dask_frames.py`).
        """
        plan, partitions = self.plan, list(self._partitions)
        first, stop = partitions[0], partitions[-1] + 1
        rows = int(plan.bounds[stop] - plan.bounds[first])
        if (
            parent.operand("new_partitions") != 1
            or len(partitions) < 2
            or stop - first != len(partitions)
            or self.filters is not None  # rows are dropped where they are read, in parallel
            or not self.copy
            or rows * plan.row_bytes(self.columns) > JOIN_BYTES
            or not all(has_categories(plan.source.schema[name]) for name in self.dtype_options.categories)
        ):
            return None
        for reference in dependents[self._name]:
            other = reference()
            if other is not None and other._name != parent._name:
                return None  # somebody needs the partitions: they are read once for both
        divisions = None if plan.divisions is None else (plan.divisions[first], plan.divisions[stop])
        whole = replace(plan, bounds=plan.bounds[[first, stop]], divisions=divisions)
        return self.substitute_parameters({"plan": whole, "_partitions": None, "_span": None})

    def _for_index(self, parent: Any, dependents: Any) -> Any:
        needed: Any = determine_column_projection(self, parent, dependents)
        columns = [name for name in self.columns if name in needed]
        if set(columns) == set(self.columns) and not self._series:
            return None if isinstance(parent, _ReadIndex) else _ReadIndex(self)  # type: ignore[no-untyped-call]
        if self._series and columns:
            return None
        found = self.substitute_parameters({"columns": columns, "_series": False})
        return _ReadIndex(found)  # type: ignore[no-untyped-call]

    def _for_projection(self, parent: Any, dependents: Any) -> Any:
        found = super()._simplify_up(parent, dependents)  # type: ignore[no-untyped-call]
        if found is not None or self.ndim == 1:
            return found
        if not isinstance(parent, _ReadColumns) and self.copy:
            above = [reference() for reference in dependents[parent._name]]
            chosen = [n for n in above if n is not None and (isinstance(n, Filter) or _is_mask(n))]
            if any(n.frame._name == parent._name for n in chosen):
                return _ReadColumns(self, parent.operand("columns"))  # type: ignore[no-untyped-call]
        name = parent.operand("columns")
        if not isinstance(name, str) or self.columns != [name]:
            return None
        # The one column that is left: as a Series, if nobody needs the frame.
        above = [reference() for reference in dependents[self._name]]
        if all(n is None or (isinstance(n, Projection) and n.operand("columns") == name) for n in above):
            return self.substitute_parameters({"columns": [name], "_series": True})
        return None

    def _tune_up(self, parent: Any) -> Any:
        if isinstance(parent, MapPartitions):
            return None  # the function of a user may count partitions
        return super()._tune_up(parent)  # type: ignore[no-untyped-call]

    def counted(self, condition: Any) -> Any:
        """Return a frame without columns of the rows that satisfy `condition`, None if it has no translation."""
        expression = self._translator.whole(condition)
        if expression is None:
            return None
        plan, old = self.plan, self.filters
        new = (
            RowFilter.of(expression, plan.source, plan.folders)
            if old is None
            else old.narrowed(expression, plan.source, plan.folders)
        )
        kept = plan.surviving(new, list(self._partitions))
        return self.substitute_parameters(
            {"filters": new, "columns": [], "_partitions": kept, "_series": False}
        )

    def _filtered_by(self, parent: Any, dependents: Any) -> Any:
        expression, rest = self._translator.split(parent.predicate)
        assert expression is not None
        result = self._narrowed(expression, parent, dependents)
        return result if rest is None else Filter(result, rest.substitute(self, result))

    def _narrowed(self, expression: Any, parent: Any, dependents: Any) -> Any:
        """Return the reader of the rows that satisfy `expression` too, in place of the filter `parent`."""
        plan: FramePlan = self.plan
        old: RowFilter | None = self.filters
        new = (
            RowFilter.of(expression, plan.source, plan.folders)
            if old is None
            else old.narrowed(expression, plan.source, plan.folders)
        )
        before = list(self._partitions)
        # Where a user's function sees the partitions none is dropped; those that cannot match are read as empty.
        kept = before if _is_mapped(parent, dependents) else plan.surviving(new, before)
        span = self._span
        if span is None and len(kept) < len(before):
            span = (before[0], before[-1] + 1)
        return self.substitute_parameters({"filters": new, "_partitions": kept, "_span": span})

    def _for_rows(self, parent: Any, dependents: Any) -> Any:
        """Return the reader of what ``query`` or ``dropna`` keep, None where these have no translation."""
        if not self.copy or not _leads_to(self, parent, dependents):
            return None
        if isinstance(parent, Query):
            found = condition_of_query(
                parent.operand("_expr"), parent.operand("expr_kwargs"), self._translator
            )
        else:
            found = self._translator.present(_columns_without_missing(parent))
        return None if found is None else self._narrowed(found, parent, dependents)

    def filtered_columns(self, columns: Any, parent: Any, dependents: Any) -> Any:
        """Return some columns of the rows that the filter `parent` keeps of the projection `columns`.

        None where the condition has no translation, or others need the rows that it drops.
        """
        found, rest = self._translator.split(parent.predicate)
        if found is None or (rest is not None and not self._translator.is_rowwise(rest)):
            return None
        if _leads_to(self, parent, dependents):
            result = self._filtered_by(parent, dependents)
        else:
            result = self._one_of_several(parent, dependents)
        return None if result is None else Projection(result, columns)

    def _one_of_several(self, parent: Any, dependents: Any) -> Any:
        """Return the reader of what the filter `parent` keeps, where other filters ask for other rows of this reader.

        Then the same file is read more than once, which pays where statistics leave at most half of the rows.
        Partitions differ from those that the other filters leave: nothing may put the two side by side later.
        """
        if self.copy and _leads_to(self, parent, dependents, beside_others=True):
            found, rest = self._translator.split(parent.predicate)
            if found is not None and (rest is None or self._translator.is_rowwise(rest)):
                result = self._filtered_by(parent, dependents)
                read = result if rest is None else result.frame
                if 2 * sum(self.plan.lengths(read._partitions)) <= sum(self.plan.lengths(self._partitions)):
                    return result
        return None


def _columns_of(frame: Any, columns: Any) -> Any:
    return frame[columns]


class _ReadColumns(Projection):
    """Columns of a `ReadColstore` that a condition on other columns chooses rows of: ``df.x[df.y > 0]``.

    Dask moves a condition below a projection that it finds above it, and leaves it where it finds it above the
    projection.
    """

    # Some versions of Dask make the expression's name of this, which must be one of its own.
    operation = staticmethod(_columns_of)  # type: ignore[assignment]

    def _simplify_up(self, parent: Any, dependents: Any) -> Any:
        read = self.frame
        if isinstance(read, ReadColstore) and getattr(parent, "frame", None) is not None:
            if _is_mask(parent) and parent.frame._name == self._name:
                return Filter(self, parent.iindexer)
            if isinstance(parent, Filter) and parent.frame._name == self._name:
                found = read.filtered_columns(self.operand("columns"), parent, dependents)  # type: ignore[no-untyped-call]
                if found is not None:
                    return found
        return super()._simplify_up(parent, dependents)  # type: ignore[no-untyped-call]


class _ReadIndex(Index):
    """The index of a `ReadColstore`, through which a condition goes too when only rows are counted.

    Dask makes of ``len(df[condition])`` the length of ``df.index[condition]``.
    """

    def _simplify_up(self, parent: Any, dependents: Any) -> Any:
        read = self.frame
        if (
            not isinstance(read, ReadColstore)  # fused by now
            or not isinstance(parent, Filter)
            or parent.frame._name != self._name
            or not read.copy
        ):
            return super()._simplify_up(parent, dependents)  # type: ignore[no-untyped-call]
        above = [reference() for reference in dependents[parent._name]]
        if not all(node is None or isinstance(node, Len) for node in above):
            return None  # whoever looks at the rows finds the partitions that it knows
        return read.counted(parent.predicate)


def _is_mapped(node: Any, dependents: Any) -> bool:
    """Tell whether the partitions of `node` reach a function of ``map_partitions``."""
    stack, seen = [node], set()
    while stack:
        current = stack.pop()
        if isinstance(current, MapPartitions):
            return True
        for reference in dependents[current._name]:
            above = reference()
            if above is not None and above._name not in seen:
                seen.add(above._name)
                stack.append(above)
    return False


def _is_mask(node: Any) -> bool:
    """Tell whether `node` is ``loc`` of a condition, which keeps the rows that ``[]`` keeps."""
    return type(node) is Loc and node.cindexer is None


def _leads_to(read: Any, node: Any, dependents: Any, *, beside_others: bool = False) -> bool:
    """Tell whether all that becomes of the rows of `read` goes through `node`, row by row up to there.

    With `beside_others` also through other filters, if nothing above puts their rows beside those of `node`.
    """
    stack = [read]
    seen: set[str] = set()
    others = []
    while stack:
        above = _above(stack.pop(), dependents)
        if not above:
            return False  # a result
        for other in above:
            if other._name == node._name or other._name in seen:
                continue
            seen.add(other._name)
            if beside_others and isinstance(other, Filter):
                others.append(other)
            elif isinstance(other, Elemwise | _DelayedExpr):
                stack.append(other)
            else:
                return False
    if not others:
        return True
    own = _joined_above(node, dependents)
    return all(own.isdisjoint(_joined_above(other, dependents)) for other in others)


def _above(node: Any, dependents: Any) -> list[Any]:
    return [found for found in (reference() for reference in dependents[node._name]) if found is not None]


def _joined_above(node: Any, dependents: Any) -> set[str]:
    """Return `node` and what is made of it up to joins and reductions, which take partitions as they come."""
    found = {node._name}
    stack = [node]
    while stack:
        for other in _above(stack.pop(), dependents):
            if other._name not in found and not isinstance(other, Merge | ApplyConcatApply):
                found.add(other._name)
                stack.append(other)
    return found


def _columns_without_missing(node: Any) -> list[Any] | None:
    """Return the columns in which a row that ``dropna`` keeps has values; None for its other forms."""
    if isinstance(node, DropnaSeries):
        return list(node.frame.columns)
    if node.operand("how") not in (no_default, "any") or node.operand("thresh") is not no_default:
        return None
    subset = node.operand("subset")
    if subset is None:
        return list(node.frame.columns)
    return list(_convert_to_list(subset) or ())
