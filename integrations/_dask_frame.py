"""One partition of a Dask DataFrame: what a task receives, and how it becomes a pandas frame.

Nothing of Dask is imported here. `FramePart` is address-complete: URL, version token, byte offsets and dtypes of its
segments; a worker maps the file or issues one batch of range reads, and never reads a header again
(integrations.md 0 and 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from colstore_io import arrays, convert
from colstore_io.dataset import Source
from colstore_io.fields import Field, Schema
from colstore_io.materialise import materialise, view_without_copy
from colstore_io.predicate import Predicate
from colstore_io.rows import predicate_mask
from colstore_io.selection import Range, RowSelection, compose

__all__ = ["FramePart", "FrameReader", "FrameTypes", "has_categories", "index_bounds"]


@dataclass(frozen=True, slots=True)
class FramePart:
    """A run of rows for one task.

    Attributes
    ----------
    source : Source
        Restricted to the segments and columns of this partition.
    start, count : int
        The rows within `source`.
    first_row : int
        Global number of row `start`.
    token : str
        Names this part among all others; made from version tokens, never from data.
    """

    source: Source
    start: int
    count: int
    first_row: int
    token: str

    def __dask_tokenize__(self) -> str:
        return self.token


@dataclass(frozen=True, slots=True)
class FrameTypes:
    """In which pandas types columns are handed out; fixed when the collection is made.

    Attributes
    ----------
    dtype_backend : {"numpy_nullable", "pyarrow"} or None
    text : {"string[pyarrow]"} or None
        The dtype of text columns instead of pandas' ``str``: what Dask frames use, with NA as the missing value.
    categories : tuple of str
        Columns that become categorical.
    """

    dtype_backend: str | None = None
    text: str | None = None
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FrameReader:
    """Reads parts as pandas frames; the function that ``dask.dataframe.from_map`` calls in each task.

    Attributes
    ----------
    names : tuple of str
        The columns of the collection.
    index : str or None
        Column that becomes the index; None numbers the rows.
    predicate : Predicate or None
        Rows where it is true are kept, exactly.
    types : FrameTypes
    copy : bool
        False: columns are read-only views of the mapped file.
    """

    names: tuple[str, ...]
    index: str | None
    predicate: Predicate | None
    types: FrameTypes
    copy: bool = True

    def __call__(self, part: FramePart, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read one part. `columns` is the projection that Dask's optimizer found; None means all of `names`."""
        names = self.names if columns is None else tuple(columns)
        source = part.source
        rows: RowSelection = Range(part.start, 1, part.count)
        numbers: pd.Index[Any] = pd.RangeIndex(part.first_row, part.first_row + part.count)
        if self.predicate is not None:
            mask = predicate_mask(source, self.predicate, rows)
            rows = compose(rows, mask, source.n_rows)
            numbers = pd.Index(np.flatnonzero(mask) + part.first_row)
        wanted = names if self.index is None else (*names, self.index)
        positions = [source.schema.index(name) for name in wanted]
        if self.copy:
            values = materialise(source, rows, positions)
        else:
            values = [view_without_copy(source, rows, (position, False)) for position in positions]
        fields = [source.schema.fields[p] for p in positions]
        return self._frame(names, fields, values, numbers)

    def empty(self, schema: Schema) -> pd.DataFrame:
        """Return the frame without rows that every partition agrees with: Dask's ``meta``. Reads nothing."""
        wanted = self.names if self.index is None else (*self.names, self.index)
        fields = [schema[name] for name in wanted]
        numbers: pd.Index[Any] = (
            pd.RangeIndex(0) if self.predicate is None else pd.Index(np.empty(0, np.int64))
        )
        return self._frame(self.names, fields, [_no_values(field) for field in fields], numbers)

    def _frame(
        self, names: Sequence[str], fields: Sequence[Field], values: Sequence[Any], numbers: pd.Index[Any]
    ) -> pd.DataFrame:
        labels = [field.name for field in fields]
        categories = self.types.categories
        frame = convert.frame(
            labels,
            fields,
            values,
            n_rows=len(numbers),
            dtype_backend=self.types.dtype_backend,
            categories=[field.name for field in fields if field.name in categories and has_categories(field)],
            copy=self.copy,
        )
        changes: dict[str, Any] = {}
        for field in fields:
            if field.name in categories:
                if not has_categories(field):
                    changes[field.name] = "category"  # each partition finds its own
            elif field.dtype.kind in "US":
                dtype = frame[field.name].dtype
                if self.types.text is not None and _is_nan_text(dtype):
                    changes[field.name] = pd.StringDtype("pyarrow")
                elif dtype.kind == "S":
                    changes[field.name] = object  # a fixed width survives few pandas operations
        if changes:
            frame = frame.astype(changes)
        if self.index is not None:
            return frame.set_index(self.index)
        frame.index = numbers
        return frame

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        types = self.types
        return (
            "colstore_io.FrameReader",
            self.names,
            self.index,
            None if self.predicate is None else self.predicate.__dask_tokenize__(),
            (types.dtype_backend, types.text, types.categories),
            self.copy,
        )


def has_categories(field: Field) -> bool:
    """Return True when the file stores the categories, so that all partitions have the same."""
    return field.ordered is not None and field.categories is not None


def _is_nan_text(dtype: Any) -> bool:
    """Return True for pandas' ``str``: text whose missing value is NaN."""
    return isinstance(dtype, pd.StringDtype) and dtype.na_value is not pd.NA


def _no_values(field: Field) -> Any:
    values = np.empty(0, field.native_dtype)
    return arrays.arrow_array(field, values, np.empty(0, np.bool_)) if field.nullable else values


@dataclass(frozen=True, slots=True)
class IndexBounds:
    """What one partition says of the column that is to be the index.

    Attributes
    ----------
    sorted : bool
        Values never decrease and none is missing.
    minimum, maximum : object
        None for a partition without rows.
    """

    sorted: bool
    minimum: Any
    maximum: Any


def index_bounds(reader: FrameReader, part: FramePart) -> IndexBounds:
    """Read the index column of one part and return its bounds."""
    index = reader(part, columns=()).index
    if len(index) == 0:
        return IndexBounds(True, None, None)
    return IndexBounds(
        bool(index.is_monotonic_increasing) and not bool(index.isna().any()), index[0], index[-1]
    )
