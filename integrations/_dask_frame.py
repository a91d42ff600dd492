"""One partition of a Dask DataFrame: what a task receives, and how it becomes a pandas frame.

Nothing of Dask is imported here. `FramePart` is address-complete: URL, version token, byte offsets and dtypes of its
segments; a worker maps the file or issues one batch of range reads, and never reads a header again
(integrations.md 0 and 7).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from colstore_io import arrays, convert
from colstore_io.dataset import Source
from colstore_io.fields import Field, Schema
from colstore_io.materialise import materialise, view_without_copy
from colstore_io.predicate import Predicate
from colstore_io.rows import select_matching
from colstore_io.selection import Index, Mask, Range, RowSelection
from colstore_io.storage import ByteFile, LocalFile

from ._dask_folders import FolderColumns

__all__ = [
    "FramePart",
    "FrameReader",
    "FrameTypes",
    "has_categories",
    "index_bounds",
    "selected_rows",
    "shared_file",
]


@dataclass(frozen=True, slots=True)
class FramePart:
    """Rows for one task.

    Attributes
    ----------
    source : Source
        Restricted to the segments and columns of this partition.
    runs : tuple of (start, stop)
        Rows within `source`, half-open, in order, none empty. More than one, or none, where statistics exclude the
        rest for a filter.
    first_row : int
        Global number of row 0 of `source`.
    codes : ndarray of int32, shape (columns, files), or None
        What the folders of the files of `source` are called; see `Folders`.
    """

    source: Source
    runs: tuple[tuple[int, int], ...]
    first_row: int
    codes: NDArray[np.int32] | None = None

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        codes = None if self.codes is None else self.codes.tobytes()
        return ("colstore_io.FramePart", self.source.token, self.runs, self.first_row, codes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_part, (self.source, self.runs, self.first_row, self.codes)

    def codes_of(self, column: int, rows: RowSelection) -> NDArray[np.int32]:
        """Return the code of a column of folders for each of the selected rows."""
        assert self.codes is not None
        codes = self.codes[column]
        if codes.size == 1:
            return np.full(rows.count, codes[0])
        segments = self.source.plan.segments
        every = np.repeat(codes[segments.file], segments.rows) if codes.size else codes
        if isinstance(rows, Mask):
            return every[rows.mask]
        return every[rows.start : rows.stop] if isinstance(rows, Range) else every[rows.rows]


_SHARED_FILES = 256
_shared: OrderedDict[tuple[Any, ...], LocalFile] = OrderedDict()
_shared_lock = threading.Lock()  # guards `_shared`; no other lock is taken under it


def _rebuild_part(
    source: Source, runs: tuple[tuple[int, int], ...], first_row: int, codes: NDArray[np.int32] | None
) -> FramePart:
    """Make a part of what a process received. Parts of one file share it: it is opened, and looked at, once.

    Nobody closes the files of a part. A file that was replaced meanwhile has another token, or is the old one that is
    still open, whose contents are those that were planned.
    """
    source.files = tuple(shared_file(file) for file in source.files)
    return FramePart(source, runs, first_row, codes)


def shared_file(file: ByteFile) -> ByteFile:
    """Return the file of this process that is `file`, of local ones."""
    if not isinstance(file, LocalFile):
        return file
    key = file.__reduce__()[1][1:]  # type: ignore[index]  # path, size, token and options
    with _shared_lock:
        known = _shared.setdefault(key, file)
        _shared.move_to_end(key)
        if len(_shared) > _SHARED_FILES:
            _shared.popitem(last=False)
    return known


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

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("colstore_io.FrameTypes", self.dtype_backend, self.text, self.categories)

    def frame(
        self, fields: Sequence[Field], values: Sequence[Any], n_rows: int, *, copy: bool = True
    ) -> pd.DataFrame:
        """Return columns as a frame in these types, rows numbered from 0."""
        frame = convert.frame(
            [field.name for field in fields],
            fields,
            values,
            n_rows=n_rows,
            dtype_backend=self.dtype_backend,
            categories=[f.name for f in fields if f.name in self.categories and _is_categorical(f)],
            na_text=self.text is not None,
            copy=copy,
        )
        changes: dict[str, Any] = {}
        for field in fields:
            if field.name in self.categories:
                if not _is_categorical(field):
                    changes[field.name] = "category"  # each partition finds its own
            elif field.dtype.kind in "USO":
                dtype = frame[field.name].dtype
                if self.text is not None and _is_nan_text(dtype):
                    changes[field.name] = pd.StringDtype("pyarrow")
                elif dtype.kind == "S":
                    changes[field.name] = object  # a fixed width survives few pandas operations
        return frame.astype(changes) if changes else frame


def selected_rows(part: FramePart, predicate: Predicate | None) -> RowSelection:
    """Return the rows of `part` that satisfy `predicate`, by reading only the columns that it names."""
    if predicate is not None:
        return select_matching(part.source, predicate, part.runs) if part.runs else Range(0, 1, 0)
    if len(part.runs) > 1:  # the names of folders exclude what lies between
        mask = np.zeros(part.source.n_rows, np.bool_)
        for start, stop in part.runs:
            mask[start:stop] = True
        return Mask(mask)
    start, stop = part.runs[0] if part.runs else (0, 0)
    return Range(start, 1, stop - start)


_EMPTY_FRAMES = 256
_empty_frames: dict[Any, Any] = {}
"""Frames without rows by what they are made of; under `_shared_lock`."""


def _is_simple(field: Field) -> bool:
    """Tell whether its types say all that a column without rows has."""
    return field.categories is None and field.ordered is None and not field.variable


_NAMES = pd.Index(["x"]).dtype
"""What pandas calls columns by: `df[[]]` has it too."""


@dataclass(frozen=True, slots=True)
class FrameReader:
    """Reads parts as pandas frames: the function that tasks call.

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
    series : bool
        Give the only column as a Series.
    folders : FolderColumns or None
        Columns that are in no file.
    """

    names: tuple[str, ...]
    index: str | None
    predicate: Predicate | None
    types: FrameTypes
    copy: bool = True
    series: bool = False
    folders: FolderColumns | None = None

    def __call__(self, part: FramePart, columns: Sequence[str] | None = None) -> Any:
        """Read one part. `columns` is the projection that ``from_map`` asks for; None means all of `names`."""
        names = self.names if columns is None else tuple(columns)
        source = part.source
        rows = selected_rows(part, self.predicate)
        if isinstance(rows, Mask):
            numbers: pd.Index[Any] = pd.Index(np.flatnonzero(rows.mask) + part.first_row)
        elif self.predicate is not None:
            numbers = pd.Index(np.empty(0, np.int64))
        else:
            assert isinstance(rows, Range)
            first = part.first_row + rows.start
            numbers = pd.RangeIndex(first, first + rows.count)
        wanted = self._stored(names)
        positions = [source.schema.index(name) for name in wanted]
        if not part.runs:
            values = [no_values(source.schema.fields[position]) for position in positions]
        elif self.copy:
            values = materialise(source, rows, positions, dictionaries=self.types.categories)
        else:
            values = [view_without_copy(source, rows, (position, False)) for position in positions]
        codes = {} if self.folders is None else self._codes(names, part, rows)
        return self._frame(names, [source.schema.fields[p] for p in positions], values, numbers, codes)

    def take(self, part: FramePart, rows: NDArray[np.int64]) -> Any:
        """Read rows by their numbers in `part`, in the order given; there is no predicate."""
        source, names = part.source, self.names
        positions = [source.schema.index(name) for name in self._stored(names)]
        picked = Index(np.ascontiguousarray(rows))
        values = materialise(source, picked, positions, dictionaries=self.types.categories)
        codes = {} if self.folders is None else self._codes(names, part, picked)
        fields = [source.schema.fields[p] for p in positions]
        return self._frame(names, fields, values, pd.Index(rows + part.first_row), codes)

    def _stored(self, names: Sequence[str]) -> list[str]:
        """Return the columns that are read, the index last."""
        absent = () if self.folders is None else self.folders.names
        found = [name for name in names if name not in absent]
        return found if self.index is None else [*found, self.index]

    def _codes(
        self, names: Sequence[str], part: FramePart | None, rows: RowSelection | None
    ) -> dict[str, NDArray[np.int32]]:
        assert self.folders is not None
        return {
            name: np.empty(0, np.int32) if part is None or rows is None else part.codes_of(number, rows)
            for number, name in enumerate(self.folders.names)
            if name in names
        }

    def empty(self, schema: Schema) -> Any:
        """Return the frame without rows that every partition agrees with: Dask's ``meta``. Reads nothing.

        Expressions ask for it again and again, and pandas takes longer to make it than most files to be opened.
        """
        fields = [schema[name] for name in self._stored(self.names)]
        if self.folders is not None or not all(map(_is_simple, fields)):
            return self._empty(fields)
        key = (self.names, self.index, self.predicate is None, self.types, self.copy, self.series)
        kinds = tuple(
            f.dtype.str + ("?" if f.nullable else "") + (f.logical or "") + f"{f.tz}" for f in fields
        )
        with _shared_lock:
            known = _empty_frames.get((key, kinds))
        if known is None:
            known = self._empty(fields)
            with _shared_lock:
                if len(_empty_frames) >= _EMPTY_FRAMES:
                    _empty_frames.clear()
                _empty_frames[key, kinds] = known
        return known.copy(deep=False)

    def _empty(self, fields: Sequence[Field]) -> Any:
        numbers: pd.Index[Any] = (
            pd.RangeIndex(0) if self.predicate is None else pd.Index(np.empty(0, np.int64))
        )
        codes = {} if self.folders is None else self._codes(self.names, None, None)
        return self._frame(self.names, fields, [no_values(field) for field in fields], numbers, codes)

    def _frame(
        self,
        names: Sequence[str],
        fields: Sequence[Field],
        values: Sequence[Any],
        numbers: pd.Index[Any],
        codes: Mapping[str, NDArray[np.int32]],
    ) -> Any:
        frame = self.types.frame(fields, values, len(numbers), copy=self.copy)
        if self.index is not None:
            frame = frame.set_index(self.index)
        else:
            frame.index = numbers
        if not len(frame.columns):
            frame.columns = pd.Index([], dtype=_NAMES)
        for position, name in enumerate(names) if codes else ():
            if name in codes and self.folders is not None:
                frame.insert(position, name, self.folders.column(name, codes[name]))
        return frame[names[0]] if self.series else frame

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (
            "colstore_io.FrameReader",
            self.names,
            self.index,
            None if self.predicate is None else self.predicate.__dask_tokenize__(),
            self.types.__dask_tokenize__(),
            self.copy,
            self.series,
            None if self.folders is None else self.folders.__dask_tokenize__(),
        )


def has_categories(field: Field) -> bool:
    """Return True when the file stores the categories, so that all partitions have the same."""
    return field.ordered is not None and field.categories is not None


def _is_categorical(field: Field) -> bool:
    """Return True when `convert.frame` makes the field categorical by itself."""
    return field.variable or has_categories(field)


def _is_nan_text(dtype: Any) -> bool:
    """Return True for pandas' ``str``: text whose missing value is NaN."""
    return isinstance(dtype, pd.StringDtype) and dtype.na_value is not pd.NA


def no_values(field: Field) -> Any:
    """Return a column of zero rows, in the form in which columns are read."""
    if field.variable:
        import pyarrow as pa

        return pa.array([], arrays.arrow_type(field))
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
