"""Tables as Dask collections.

Importing this module also makes ``dask.dataframe.read_colstore`` available. Partitions are planned by the dataset's
plan (`DatasetPlan.partitions`), read by `FrameReader`; here they become collections with known divisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.base import compute
from dask.dataframe.utils import clear_known_categories, pyarrow_strings_enabled
from dask.delayed import delayed
from dask.utils import parse_bytes
from numpy.typing import NDArray

from colstore_io import api
from colstore_io.dataset import Source
from colstore_io.errors import ColumnNotFoundError
from colstore_io.plain import LazyColumn, LazyColumns
from colstore_io.predicate import Expr, Predicate, bind
from colstore_io.predicate.query import from_dnf
from colstore_io.rows import matching_segments
from colstore_io.tables import Table

from ._dask_frame import FramePart, FrameReader, FrameTypes, has_categories, index_bounds

__all__ = ["read_colstore", "read_colstore_array"]

DEFAULT_BLOCKSIZE = 128 << 20
"""Bytes of the selected columns that a partition aims at (integrations.md 1.3)."""

UNLIMITED = 1 << 62


# ----------------------------------------------------------------------------------------------------------
# Arguments


def _open(
    path: Any, storage_options: Mapping[str, Any] | None, filesystem: Any, options: dict[str, Any]
) -> Source:
    if storage_options is not None and filesystem is not None:
        raise ValueError("give storage_options or filesystem, not both")
    if isinstance(filesystem, str):
        if filesystem != "fsspec":
            raise ValueError(f"filesystem must be an fsspec file system or 'fsspec', got {filesystem!r}")
        filesystem = None
    if isinstance(path, Table):
        given = sorted({**options, **({} if storage_options is None else {"storage_options": None})})
        if given or filesystem is not None:
            raise ValueError(
                f"an open table takes no options of open(), got {', '.join(given) or 'filesystem'}"
            )
        return path.readable_source()
    return api.open(path, storage_options=storage_options, filesystem=filesystem, **options).readable_source()


def _column_list(columns: Any, index: str | None, source: Source) -> list[str]:
    names = source.schema.names
    if columns is None:
        return [name for name in names if name != index]
    wanted = [columns] if isinstance(columns, str) else list(columns)
    for name in wanted:
        if name not in source.schema:
            raise ColumnNotFoundError.for_name(name, names)
    if len(set(wanted)) != len(wanted):
        raise ValueError(f"columns are repeated: {wanted}")
    if index in wanted:
        raise ValueError(f"column {index!r} cannot be both the index and a column")
    return wanted


def _index_name(index: Any, source: Source) -> str | None:
    if index is None or index is False:
        return None
    if isinstance(index, (list, tuple)) and len(index) == 1:
        index = index[0]
    if not isinstance(index, str):
        raise ValueError(f"index must be the name of one column, None or False, got {index!r}")
    if index not in source.schema:
        raise ColumnNotFoundError.for_name(index, source.schema.names)
    return index


def _predicate(filters: Any, source: Source) -> Predicate | None:
    if filters is None or (isinstance(filters, (list, tuple)) and len(filters) == 0):
        return None
    expression = filters if isinstance(filters, Expr) else from_dnf(filters)
    return bind(expression, source.schema)


def _categories(categories: Any, names: Sequence[str], source: Source) -> tuple[str, ...]:
    if categories is None:
        return ()
    listed = [categories] if isinstance(categories, str) else list(categories)
    for name in listed:
        if name not in source.schema:
            raise ColumnNotFoundError.for_name(name, source.schema.names)
    return tuple(name for name in names if name in listed)


@dataclass(frozen=True, slots=True)
class _Sizing:
    """How rows are cut into partitions; the arguments of `DatasetPlan.partitions`."""

    blocksize: int
    merge_below: int
    split: bool
    across_files: bool

    @classmethod
    def checked(cls, blocksize: Any, split_records: Any, aggregate_files: Any) -> _Sizing:
        if split_records not in (True, False, "infer"):
            raise ValueError(f"split_records must be 'infer', True or False, got {split_records!r}")
        if aggregate_files not in (True, False):
            raise ValueError(f"aggregate_files must be True or False, got {aggregate_files!r}")
        if blocksize is None:  # one partition per record
            return cls(UNLIMITED, 0, False, bool(aggregate_files))
        size = DEFAULT_BLOCKSIZE if blocksize == "default" else parse_bytes(blocksize)
        if size < 1:
            raise ValueError(f"blocksize must be at least one byte, got {blocksize!r}")
        return cls(size, size, bool(split_records), bool(aggregate_files))

    def bounds(self, source: Source, names: Sequence[str]) -> NDArray[np.int64]:
        return source.plan.partitions(
            names,
            blocksize=self.blocksize,
            merge_below=self.merge_below,
            split=self.split,
            across_files=self.across_files,
        )


# ----------------------------------------------------------------------------------------------------------
# Planning


@dataclass(frozen=True, slots=True)
class _Partitioning:
    """Parts of a collection, and the rows between whose numbers each one lies.

    Attributes
    ----------
    parts : list of FramePart
        At least one.
    starts, stops : ndarray of int64, shape (len(parts),)
        Global rows of each partition; its part may hold fewer, where statistics exclude the rest.
    """

    parts: list[FramePart]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]


def _partition(
    source: Source,
    bounds: NDArray[np.int64],
    names: Sequence[str],
    predicate: Predicate | None,
    categories: Collection[str],
) -> _Partitioning:
    """Make one part for each partition in which a row can match; at least one part."""
    segments = source.plan.segments
    first_row, row_stop = segments.row_start[:-1], segments.row_start[1:]
    matching: NDArray[np.int64] | None = None
    if predicate is not None:
        matching = np.flatnonzero(matching_segments(source, predicate) & (segments.rows > 0))
    columns = list(dict.fromkeys([*names, *(() if predicate is None else predicate.columns)]))
    parts: list[FramePart] = []

    def add(low: int, high: int, first: int, stop: int) -> None:
        restricted = source.restrict(low, high, columns, categories=categories)
        origin = int(segments.row_start[low])
        token = hashlib.blake2b(f"{source.token}:{first}:{stop}:{columns}".encode(), digest_size=12)
        parts.append(FramePart(restricted, first - origin, stop - first, first, token.hexdigest()))

    kept: list[tuple[int, int]] = []
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        low, high = segments.span(start, stop)
        first, last = start, stop
        if matching is not None:  # leave out what statistics exclude at either end
            inside = matching[np.searchsorted(matching, low) : np.searchsorted(matching, high)]
            if inside.size == 0:
                continue
            low, high = int(inside[0]), int(inside[-1]) + 1
            first, last = max(start, int(first_row[low])), min(stop, int(row_stop[high - 1]))
        add(low, high, first, last)
        kept.append((start, stop))
    if not parts:  # Dask has no collection without partitions: an empty one that reads nothing
        first = int(bounds[0])
        add(0, 0, first, first)
        kept.append((first, first))
    starts, stops = np.array(kept, np.int64).T
    return _Partitioning(parts, starts, stops)


def _check_views(source: Source, partitioning: _Partitioning, predicate: Predicate | None) -> None:
    """Raise `ValueError` now if a task could not give views; `FrameReader.empty` has looked at the dtypes."""
    if predicate is not None:
        raise ValueError("copy=False is not possible with filters; use copy=True")
    if not source.mapped:
        raise ValueError("copy=False needs mapped local files; use copy=True")
    for part in partitioning.parts:
        if np.count_nonzero(part.source.plan.segments.rows) > 1:
            raise ValueError(
                "copy=False needs partitions within one record each: use blocksize=None, or compact the files"
            )


# ----------------------------------------------------------------------------------------------------------
# Divisions


def _row_divisions(partitioning: _Partitioning) -> tuple[Any, ...]:
    """Return row numbers; the last one is inclusive, as Dask wants it."""
    last = max(int(partitioning.stops[-1]) - 1, int(partitioning.starts[-1]))
    return (*partitioning.starts.tolist(), last)


def _statistics_divisions(
    source: Source, index: str, partitioning: _Partitioning, meta: pd.DataFrame
) -> tuple[Any, ...] | None:
    """Return divisions of the index column if statistics prove all segments sorted and disjoint, else None."""
    field = source.schema[index]
    segments = source.plan.segments
    # Floats may hide NaN behind any bounds; text and bytes have none (cstore.md 7).
    if field.dtype.kind not in "iubmM" or segments.n_rows == 0:
        return None
    found = source.statistics_of(index)
    if found is None:
        return None
    filled = np.flatnonzero(segments.rows > 0)
    if field.validity is not None:  # bounds include what lies under nulls, so there must be none
        flags = source.statistics_of(field.validity)
        if (
            flags is None
            or not (flags["usable"][filled] & (flags["minimum"][filled].view(np.uint8) != 0)).all()
        ):
            return None
    minimum, maximum = found["minimum"][filled], found["maximum"][filled]
    if not found["usable"][filled].all() or not (maximum[:-1] < minimum[1:]).all():
        return None
    starts, stops = segments.row_start[:-1][filled], segments.row_start[1:][filled]
    if not (np.isin(partitioning.starts, starts).all() and np.isin(partitioning.stops, stops).all()):
        return None  # a record was cut: nothing is known of its pieces
    values = [
        *minimum[np.searchsorted(starts, partitioning.starts)],
        maximum[np.searchsorted(stops, partitioning.stops[-1])],
    ]
    return _as_index_values(np.array(values), meta)


def _as_index_values(values: NDArray[Any], meta: pd.DataFrame) -> tuple[Any, ...]:
    index = pd.Index(values)
    if isinstance(meta.index, pd.DatetimeIndex) and meta.index.tz is not None:
        index = pd.DatetimeIndex(index, tz="UTC").tz_convert(meta.index.tz)
    return tuple(index.tolist())


def _scanned_divisions(reader: FrameReader, parts: Sequence[FramePart]) -> tuple[Any, ...] | None:
    """Read the index column of all partitions in parallel and return its divisions, None if it is not sorted."""
    found = compute(*(delayed(index_bounds, pure=True)(reader, part) for part in parts))
    if not all(bounds.sorted for bounds in found) or any(bounds.minimum is None for bounds in found):
        return None
    if not all(a.maximum < b.minimum for a, b in pairwise(found)):
        return None
    return (*(bounds.minimum for bounds in found), found[-1].maximum)


# ----------------------------------------------------------------------------------------------------------
# Collections


def read_colstore(
    path: Any,
    columns: str | Sequence[str] | None = None,
    filters: Any = None,
    index: str | Literal[False] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    dtype_backend: Literal["numpy_nullable", "pyarrow"] | None = None,
    calculate_divisions: bool | None = None,
    blocksize: int | str | None = "default",
    split_records: bool | Literal["infer"] = "infer",
    aggregate_files: bool = True,
    categories: Any = None,
    filesystem: Any = None,
    ignore_manifest: bool = False,
    on_mismatch: Literal["strict", "drop"] = "strict",
    *,
    copy: bool = True,
    **open_options: Any,
) -> Any:
    """Read a table into a Dask DataFrame. Only headers are read now.

    Parameters
    ----------
    path : str, PathLike, list of them, OpenFile, Reader or Dataset
        A file, directory, pattern, any fsspec URL of these, or an open table, which is borrowed and must stay open.
    columns : str or list of str, optional
        A single name gives a Series. Default: all columns.
    filters : list of tuples, list of lists of tuples, or col() expression, optional
        Rows to keep, as in ``dask.dataframe.read_parquet``: tuples in a list are joined by "and", lists in a list by
        "or". Applied to rows, exactly; partitions that statistics exclude are left out of the collection.
    index : str, False or None
        Column that becomes the index. Default (and False): global row numbers, with known divisions.
    storage_options : mapping, optional
        Passed to fsspec for URLs; not together with `filesystem`.
    dtype_backend : {"numpy_nullable", "pyarrow"}, optional
        As in pandas.
    calculate_divisions : bool, optional
        With `index`: None takes divisions from statistics where these prove the column sorted; True reads the column
        (in parallel, now) where they do not; False leaves divisions unknown.
    blocksize : int or str, default "default"
        Bytes of the selected columns per partition, 128 MiB by default. None: one partition per record.
    split_records : {"infer", True, False}
        Whether records of more than twice the block size are cut by rows, which costs nothing.
    aggregate_files : bool, default True
        Whether a partition may span several files.
    categories : list of str or mapping, optional
        Columns that become categorical; categories are known where the file stores them.
    filesystem : fsspec file system, optional
    ignore_manifest : bool, default False
        Read all members of a directory, as if it had no generation manifest.
    on_mismatch : {"strict", "drop"}
        As in `colstore_io.open`.
    copy : bool, default True
        False: partitions are read-only views of mapped local files. For the threaded scheduler, numbers and times
        only, and partitions that lie within one record each; on a cluster views cost more than they save.
    **open_options
        Passed to `colstore_io.open`.

    Returns
    -------
    dask.dataframe.DataFrame, or Series if `columns` is a str

    Raises
    ------
    KeyError
        If a name is unknown, listing close matches.
    QueryError
        If a filter does not fit the columns.
    ValueError
        If ``copy=False`` cannot be kept.

    Notes
    -----
    Names of tasks follow from URLs, version tokens and arguments: the same call gives the same names, and a changed
    file gives new ones. Text columns are ``string[pyarrow]`` as everywhere in Dask, or pandas' ``str`` if Dask's
    ``dataframe.convert-string`` is off when the collection is made; bytes stay bytes.

    Examples
    --------
    >>> import colstore_io.integrations.dask
    >>> import dask.dataframe as dd
    >>> df = dd.read_colstore("run_*.cstore", columns=["run", "energy"])  # doctest: +SKIP
    >>> df.groupby("run").energy.mean().compute()  # doctest: +SKIP
    """
    if dtype_backend not in (None, "numpy_nullable", "pyarrow"):
        raise ValueError(f"dtype_backend must be 'numpy_nullable', 'pyarrow' or None, got {dtype_backend!r}")
    sizing = _Sizing.checked(blocksize, split_records, aggregate_files)
    if not isinstance(path, Table):
        open_options = {"ignore_manifest": ignore_manifest, "on_mismatch": on_mismatch, **open_options}
    source = _open(path, storage_options, filesystem, open_options)
    index_name = _index_name(index, source)
    names = _column_list(columns, index_name, source)
    stored = names if index_name is None else [*names, index_name]
    predicate = _predicate(filters, source)
    types = FrameTypes(
        dtype_backend,
        "string[pyarrow]" if dtype_backend is None and pyarrow_strings_enabled() else None,
        _categories(categories, stored, source),
    )
    reader = FrameReader(tuple(names), index_name, predicate, types, copy)
    meta = reader.empty(source.schema)
    unknown = [n for n in types.categories if n in meta and not has_categories(source.schema[n])]
    if unknown:
        meta = clear_known_categories(meta, cols=unknown)
    partitioning = _partition(source, sizing.bounds(source, stored), stored, predicate, types.categories)
    if not copy:
        _check_views(source, partitioning, predicate)
    divisions: tuple[Any, ...] | None
    if index_name is None:
        divisions = _row_divisions(partitioning)
    elif calculate_divisions is False:
        divisions = None
    else:
        divisions = _statistics_divisions(source, index_name, partitioning, meta)
        if divisions is None and calculate_divisions:
            divisions = _scanned_divisions(reader, partitioning.parts)
    # from_map would turn every object column into text, bytes included (integrations.md 1.4); `reader` has made
    # the text columns what Dask wants already.
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_map(reader, partitioning.parts, meta=meta, divisions=divisions, label="read_colstore")
    return frame[columns] if isinstance(columns, str) else frame


def read_colstore_array(
    path: Any,
    column: str | Sequence[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    blocksize: int | str | None = "default",
    split_records: bool | Literal["infer"] = "infer",
    aggregate_files: bool = True,
    filesystem: Any = None,
    **open_options: Any,
) -> da.Array:
    """Read a column as a Dask array, or several as one array of rows by columns. Only headers are read now.

    Parameters
    ----------
    path
        As in `read_colstore`.
    column : str or list of str
        A list gives a two-dimensional array of the columns' common dtype; each task reads all columns of its rows.
    storage_options, blocksize, split_records, aggregate_files, filesystem, **open_options
        As in `read_colstore`.

    Returns
    -------
    dask.array.Array, shape (n_rows,) or (n_rows, n_columns)
        Chunks are the partitions that `read_colstore` makes. Nullable columns take NumPy's form: integers become
        floats with NaN, text becomes objects.

    Raises
    ------
    KeyError
        If a name is unknown.
    TypeError
        If several columns have no common dtype.
    """
    sizing = _Sizing.checked(blocksize, split_records, aggregate_files)
    source = _open(path, storage_options, filesystem, open_options)
    names = [column] if isinstance(column, str) else list(column)
    restricted = source.restrict(0, source.plan.segments.n_segments, names)
    lazy: LazyColumn | LazyColumns = (
        LazyColumn(restricted, 0) if isinstance(column, str) else LazyColumns(restricted)
    )
    row_counts = tuple(np.diff(sizing.bounds(source, names)).tolist())
    chunks = (row_counts,) if lazy.ndim == 1 else (row_counts, (len(names),))
    array: da.Array = da.from_array(
        lazy,
        chunks=chunks,
        name=f"colstore-{restricted.token}",
        inline_array=True,
        asarray=False,
        meta=np.empty((0,) * lazy.ndim, lazy.dtype),
    )
    return array


def _attach() -> None:
    """Offer `read_colstore` where users look for it; an attribute of somebody else stays as it is."""
    present = getattr(dd, "read_colstore", None)
    if present is None or getattr(present, "__module__", "").startswith("colstore_io."):
        setattr(dd, "read_colstore", read_colstore)  # noqa: B010 - no attribute that type checkers know


_attach()
