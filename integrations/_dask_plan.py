"""Which rows make which partition, and which of them can a filter skip?

Nothing of Dask is imported here, and nothing is read but statistics, once, where a filter is made. A `FramePlan` and
a `RowFilter` are operands of the expression (`_dask_expr`): immutable, picklable, named by tokens. The plan that
travels has no statistics in it; what they excluded travels in the filter (integrations.md 7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colstore_io.dataset import Source
from colstore_io.predicate import Expr, Predicate, bind
from colstore_io.rows import matching_segments

from ._dask_folders import FolderColumns, Folders, conjunction, terms
from ._dask_frame import FramePart

__all__ = ["FramePlan", "RowFilter"]


@dataclass(frozen=True, eq=False)
class RowFilter:
    """A predicate, and the segments in which a row can match.

    Attributes
    ----------
    expression : Expr
        The whole condition.
    predicate : Predicate or None
        What of it is asked of each row: what names columns of files.
    matching : ndarray of bool, shape (S,)
        By the statistics of the files and the names of their folders; all True where neither says anything.
    """

    expression: Expr
    predicate: Predicate | None
    matching: NDArray[np.bool_]

    @classmethod
    def of(cls, expression: Expr, source: Source, folders: Folders | None = None) -> RowFilter:
        """Bind `expression` and ask the statistics, which are fetched now if they were not yet.

        Raises
        ------
        QueryError
            If the expression does not fit the columns.
        """
        of_files, of_folders = terms(expression, None if folders is None else folders.columns)
        rows, files = conjunction(of_files), conjunction(of_folders)
        predicate = None if rows is None else bind(rows, source.schema)
        segments = source.plan.segments
        matching = segments.rows > 0
        if predicate is not None:
            matching = matching & matching_segments(source, predicate)
        if files is not None and folders is not None:
            matching = matching & folders.matching(files)[segments.file]
        return cls(expression, predicate, matching)

    def __repr__(self) -> str:
        return f"Predicate({str(self.expression)!r})"

    def narrowed(self, expression: Expr, source: Source, folders: Folders | None = None) -> RowFilter:
        """Return the filter that also asks for `expression`."""
        return RowFilter.of(self.expression & expression, source, folders)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of files that are read to find the rows."""
        return () if self.predicate is None else self.predicate.columns

    def __getstate__(self) -> tuple[Any, ...]:
        return self.expression, self.predicate, len(self.matching), np.packbits(self.matching).tobytes()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        expression, predicate, count, packed = state
        object.__setattr__(self, "expression", expression)
        matching = np.unpackbits(np.frombuffer(packed, np.uint8), count=count).astype(np.bool_)
        object.__setattr__(self, "predicate", predicate)
        object.__setattr__(self, "matching", matching)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # The files, whose token is the plan's, decide over `matching`.
        rows = None if self.predicate is None else self.predicate.__dask_tokenize__()
        return ("colstore_io.RowFilter", self.expression.__dask_tokenize__(), rows)


@dataclass(frozen=True, eq=False)
class FramePlan:
    """A source cut into partitions.

    Attributes
    ----------
    source : Source
    bounds : ndarray of int64, shape (P + 1,)
        Row boundaries of the partitions.
    divisions : tuple or None
        Of the index, one more than partitions; None where they are unknown.
    block_bytes : int
        What the partitions aim at, for whoever wants to join some of them.
    folders : Folders or None
        Columns that stand in the names of folders.
    """

    source: Source
    bounds: NDArray[np.int64]
    divisions: tuple[Any, ...] | None
    block_bytes: int
    folders: Folders | None = None

    @property
    def folder_columns(self) -> FolderColumns | None:
        return None if self.folders is None else self.folders.columns

    def row_bytes(self, names: Iterable[str]) -> int:
        """Return what a row takes in the files; columns of folders take nothing."""
        schema = self.source.schema
        return self.source.plan.row_bytes([name for name in names if name in schema])

    @property
    def n_partitions(self) -> int:
        return len(self.bounds) - 1

    def __repr__(self) -> str:
        return f"<FramePlan {self.n_partitions} partitions, {self.token[:7]}>"

    @cached_property
    def token(self) -> str:
        """Hash of files, their versions, and the boundaries. Never of data."""
        hasher = hashlib.blake2b(self.source.token.encode(), digest_size=16)
        hasher.update(self.bounds.tobytes())
        hasher.update(repr(self.divisions).encode("utf-8", "surrogatepass"))
        if self.folders is not None:
            named = self.folders.columns.__dask_tokenize__()
            hasher.update(repr(named).encode("utf-8", "surrogatepass"))
            hasher.update(self.folders.codes.tobytes())
        return hasher.hexdigest()

    def __dask_tokenize__(self) -> tuple[str, str]:
        return ("colstore_io.FramePlan", self.token)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.source, self.bounds.tobytes(), self.divisions, self.block_bytes, self.folders

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        source, bounds, divisions, block_bytes, folders = state
        for name, value in (
            ("source", source),
            ("bounds", np.frombuffer(bounds, np.int64)),
            ("divisions", divisions),
            ("block_bytes", block_bytes),
            ("folders", folders),
        ):
            object.__setattr__(self, name, value)

    def lengths(self, partitions: Iterable[int]) -> tuple[int, ...]:
        """Return the row counts of partitions."""
        counts = np.diff(self.bounds)
        return tuple(int(counts[number]) for number in partitions)

    def value_counts(self, first: int, stop: int, names: Sequence[str]) -> tuple[int, ...] | None:
        """Return how many values of each column partitions [first, stop) hold, as far as files say; None if not all do.

        Files count nulls, not NaN and NaT, which are no values either.
        """
        segments = self.source.plan.segments
        begin, end = int(self.bounds[first]), int(self.bounds[stop])
        low, high = segments.span(begin, end)
        if (int(segments.row_start[low]), int(segments.row_start[high])) != (begin, end):
            return None
        found = []
        for name in names:
            field = self.source.schema[name]
            nulls = 0
            if field.dtype.kind in "fmM":
                return None
            if field.nullable:
                counts = self.source.null_counts_of(name) if field.optional else None
                if counts is None or (counts[low:high] < 0).any():
                    return None
                nulls = int(counts[low:high].sum())
            found.append(end - begin - nulls)
        return tuple(found)

    def surviving(self, row_filter: RowFilter, partitions: Sequence[int]) -> list[int]:
        """Return those of `partitions` in which a row can match; at least one, for Dask has no empty collections."""
        matching = np.concatenate([[0], np.cumsum(row_filter.matching)])
        segments = self.source.plan.segments
        kept = []
        for number in partitions:
            low, high = segments.span(int(self.bounds[number]), int(self.bounds[number + 1]))
            if matching[high] > matching[low]:
                kept.append(number)
        return kept or list(partitions[:1])

    def part(
        self,
        first: int,
        stop: int,
        names: Sequence[str],
        row_filter: RowFilter | None,
        *,
        categories: Collection[str] = (),
    ) -> FramePart:
        """Return what a task needs to read partitions [first, stop).

        Parameters
        ----------
        names : sequence of str
            Columns to read, besides those of the filter.
        categories : collection of str
            Columns whose stored categories go along.
        """
        row_start = self.source.plan.segments.row_start
        begin, end = int(self.bounds[first]), int(self.bounds[stop])
        columns = [name for name in names if name in self.source.schema]
        runs = [(begin, end)] if end > begin else []
        if row_filter is not None:
            columns = list(dict.fromkeys([*columns, *row_filter.columns]))
            runs = self._matching_runs(row_filter, begin, end)
        if not runs:
            nothing = self.source.restrict(0, 0, columns, categories=categories)
            return FramePart(nothing, (), begin, None if self.folders is None else self.folders.codes[:, :0])
        low, high = self.source.plan.segments.span(runs[0][0], runs[-1][1])
        if low > 0:
            # Headers of remote records that were assumed are looked at here, in one round, and not again by each task.
            self.source.look_at(self.source.plan.segments.rows > 0)
            row_start = self.source.plan.segments.row_start
            low, high = self.source.plan.segments.span(runs[0][0], runs[-1][1])
        origin = int(row_start[low])
        restricted = self.source.restrict(low, high, columns, categories=categories)
        codes = None
        if self.folders is not None:
            file = self.source.plan.segments.file
            codes = self.folders.codes[:, int(file[low]) : int(file[high - 1]) + 1]
        return FramePart(restricted, tuple((a - origin, b - origin) for a, b in runs), origin, codes)

    def _matching_runs(self, row_filter: RowFilter, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the rows of [begin, end) in segments that can match; neighbours are one run."""
        segments = self.source.plan.segments
        low, high = segments.span(begin, end)
        flags = np.zeros(high - low + 2, np.int8)
        flags[1:-1] = row_filter.matching[low:high]
        # Segments without rows neither match nor stand between two that do.
        steps = np.flatnonzero(np.diff(flags)) + low
        runs: list[tuple[int, int]] = []
        for a, b in pairwise(steps.tolist()):
            if not row_filter.matching[a]:
                continue
            first, stop = max(begin, int(segments.row_start[a])), min(end, int(segments.row_start[b]))
            if runs and runs[-1][1] == first:
                runs[-1] = (runs[-1][0], stop)
            else:
                runs.append((first, stop))
        return runs
