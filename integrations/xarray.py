"""Tables as xarray Datasets: the ``colstore`` engine and the ``ds.colstore`` accessor.

One dimension, one lazy variable per column. Index arrays go straight into the gather kernels (integrations.md 3.3).
Everything that decides lies elsewhere: chunks in `DatasetPlan.partitions`, the form of nullable columns in `plain`.
xarray imports this module whenever it lists its engines, so colstore_io itself is imported when a file is opened.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

if TYPE_CHECKING:
    from colstore_io.dataset import Source
    from colstore_io.schema import Field

__all__ = ["ColstoreAccessor", "ColstoreBackendEntrypoint", "ColumnArray"]

CHUNK_BYTES = 128 << 20
"""Bytes of all variables per preferred chunk; larger segments are cut, which costs nothing."""

MERGE_BELOW_BYTES = 1 << 20
"""Segments smaller than this share a chunk with their neighbours."""

ASYNC_READS = 64
"""Remote variables in flight at once under ``load_async``; asyncio's own pool has a few threads only."""

_DECODED_ATTRS = frozenset(
    {
        "_FillValue",
        "missing_value",
        "scale_factor",
        "add_offset",
        "_Unsigned",
        "units",
        "dtype",
        "coordinates",
    }
)
"""Attributes by which xarray's CF decoding changes a variable."""

Form = Literal["plain", "stored", "missing"]


# ----------------------------------------------------------------------------------------------------------
# One variable


def _time_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which xarray keeps `dtype`: times in s, ms, us or ns."""
    if dtype.kind not in "mM":
        return dtype
    unit, count = np.datetime_data(dtype)
    if unit in ("s", "ms", "us", "ns") and count == 1:
        return dtype
    if unit not in ("ms", "us"):
        unit = "ns" if unit in ("ns", "ps", "fs", "as") else "s"
    return np.dtype(f"{dtype.kind}8[{unit}]")


class ColumnArray(BackendArray):
    """One column, read when it is indexed. Pickling carries addresses, no data.

    Parameters
    ----------
    source : Source
        Shared by all variables of a dataset.
    position : int
        Position of the field in the schema.
    form : {"plain", "stored", "missing"}
        Nulls marked in NumPy's own way, values as stored, or a mask that is True where the value is missing.

    Attributes
    ----------
    shape : tuple of int, (n_rows,)
    dtype : numpy.dtype
        Of every array that indexing returns, exactly.
    """

    __slots__ = ("dtype", "form", "position", "shape", "source")

    def __init__(self, source: Source, position: int, form: Form = "plain") -> None:
        from colstore_io.plain import plain_dtype

        field = source.schema.fields[position]
        self.source = source
        self.position = position
        self.form = form
        self.shape = (source.n_rows,)
        if form == "missing":
            self.dtype = np.dtype(np.bool_)
        else:
            self.dtype = _time_dtype(plain_dtype(field) if form == "plain" else field.native_dtype)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> NDArray[Any]:
        # No `explicit_indexing_adapter`: there is nothing to decompose, since slices of either direction and index
        # arrays of any shape go to the kernels as they are; and it fails on empty slices with a negative step.
        (rows,) = key.tuple
        if isinstance(rows, slice):
            return self._read(rows)
        rows = np.asarray(rows)
        if not isinstance(key, indexing.VectorizedIndexer) and rows.size and rows.min() < 0:
            # xarray has added the length to what was negative, once. What still is was out of range.
            from colstore_io.selection import out_of_range

            raise out_of_range(int(rows.min()) - self.shape[0], self.shape[0])
        return self._read(rows.reshape(-1)).reshape(rows.shape)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> NDArray[Any]:
        # Reads of fsspec wait for fsspec's own event loop, so they may not run in this one (integrations.md 3.6).
        if self.source.mapped:
            return await asyncio.to_thread(self.__getitem__, key)
        return await asyncio.get_running_loop().run_in_executor(_pool(), self.__getitem__, key)

    def _read(self, rows: Any) -> NDArray[Any]:
        """Return the rows that a slice or a one-dimensional index array names; entries may be negative."""
        from colstore_io.selection import normalise

        return self.finish(_read_forms(self.source, normalise(rows, self.shape[0]), [self])[0])

    def finish(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return `values`, as stored or plain, in the dtype of this variable."""
        return values.astype(self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"ColumnArray({self.source.schema.fields[self.position].name!r}, dtype={self.dtype}, shape={self.shape})"


def _read_forms(source: Source, rows: Any, wanted: Sequence[ColumnArray]) -> list[NDArray[Any]]:
    """Read several variables over the same rows: all plain ones in one pass."""
    from colstore_io.plain import read_missing, read_plain, read_stored

    plain = [array.position for array in wanted if array.form == "plain"]
    found = iter(read_plain(source, rows, plain) if plain else [])
    values = []
    for array in wanted:
        if array.form == "plain":
            values.append(next(found))
        elif array.form == "stored":
            values.append(read_stored(source, rows, array.position))
        else:
            values.append(read_missing(source, rows, array.position))
    return values


_executor: ThreadPoolExecutor | None = None


def _pool() -> ThreadPoolExecutor:
    global _executor
    if _executor is None:
        _executor = ThreadPoolExecutor(ASYNC_READS, thread_name_prefix="colstore-read")
    return _executor


def _after_fork_in_child() -> None:
    global _executor
    _executor = None  # its threads are the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# ----------------------------------------------------------------------------------------------------------
# The engine


class ColstoreBackendEntrypoint(BackendEntrypoint):
    """Opens tables as Datasets: ``xr.open_dataset(path, engine="colstore")``."""

    description = "Open column stores (.cstore) in xarray: local files, directories, patterns and URLs"
    url = "https://colstore-io.readthedocs.io"
    supports_groups = False
    open_dataset_parameters = (
        "filename_or_obj",
        "drop_variables",
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "use_cftime",
        "decode_timedelta",
        "storage_options",
        "filesystem",
        "columns",
        "row_dim",
        "index",
        "mask",
        "ignore_manifest",
        "on_mismatch",
        "mmap",
        "backend",
        "max_workers",
    )

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        mask_and_scale: bool = True,
        decode_times: Any = True,
        concat_characters: bool = True,
        decode_coords: Any = True,
        use_cftime: bool | None = None,
        decode_timedelta: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
        columns: str | Sequence[str] | None = None,
        row_dim: str = "row",
        index: str | None = None,
        mask: Literal["variable"] | None = None,
        ignore_manifest: bool = False,
        on_mismatch: Literal["strict", "drop"] = "strict",
        mmap: bool = True,
        backend: str | None = None,
        max_workers: int | None = None,
    ) -> xr.Dataset:
        """Open a table lazily: only headers are read.

        Parameters
        ----------
        filename_or_obj : str, PathLike, list, bytes, file object, OpenFile, Reader or Dataset
            Anything that `colstore_io.open` takes, patterns and directories included. An open table is borrowed.
            URLs need ``engine="colstore"``, as xarray guesses netCDF for all of them.
        drop_variables : str or iterable of str, optional
            Columns to leave out; names that do not exist are ignored.
        mask_and_scale, decode_times, decode_coords, use_cftime, decode_timedelta
            xarray's CF decoding, for variables whose attributes ask for it. Native times need none.
        concat_characters
            Without effect: the columns of a table have no character dimension.
        storage_options, filesystem, ignore_manifest, on_mismatch, mmap, backend, max_workers
            As in `colstore_io.open`.
        columns : str or sequence of str, optional
            Columns to open, in this order. Default: all.
        row_dim : str, default "row"
            Name of the dimension. It has no coordinate unless `index` names one, or a column has its name: xarray
            then reads that column into an index at once.
        index : str, optional
            Column that becomes the coordinate of the dimension, which takes its name unless `row_dim` is given; its
            values are read now.
        mask : {"variable"}, optional
            How nulls are shown. By default in the values: NaN, NaT; integers become floats. With ``"variable"``
            values keep their stored dtype, and ``NAME_mask`` is True where there is none.

        Returns
        -------
        xarray.Dataset

        Raises
        ------
        KeyError
            If a column is unknown, listing close matches.
        FormatError, FileNotFoundError, SchemaMismatchError
            As in `colstore_io.open`.
        """
        from colstore_io import api
        from colstore_io.tables import Table

        if mask not in (None, "variable"):
            raise ValueError(f"mask must be 'variable' or None, got {mask!r}")
        if isinstance(filename_or_obj, Table):
            table, owned = filename_or_obj, False
        else:
            table = api.open(
                filename_or_obj,
                storage_options=storage_options,
                filesystem=filesystem,
                ignore_manifest=ignore_manifest,
                on_mismatch=on_mismatch,
                mmap=mmap,
                backend=backend,
                max_workers=max_workers,
            )
            owned = True
        try:
            dataset = _dataset(table.readable_source(), columns, drop_variables, row_dim, index, mask)
            if _asks_for_decoding(dataset):
                dataset = xr.decode_cf(
                    dataset,
                    concat_characters=False,  # would join the rows of one-byte columns
                    mask_and_scale=mask_and_scale,
                    decode_times=decode_times,
                    decode_coords=decode_coords,
                    use_cftime=use_cftime,
                    decode_timedelta=decode_timedelta,
                )
            if index is not None:
                dataset = _with_index(dataset, index)
        except BaseException:
            if owned:
                table.close()
            raise
        dataset.set_close(table.close if owned else None)
        return dataset

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return True for names that end in ``.cstore``, and for local files and bytes that begin like one."""
        from colstore_io.formats.cstore.header import MAGIC
        from colstore_io.tables import Table

        if isinstance(filename_or_obj, Table):
            return True
        if isinstance(filename_or_obj, (bytes, bytearray, memoryview)):
            return bytes(filename_or_obj[: len(MAGIC)]) == MAGIC
        if isinstance(filename_or_obj, (list, tuple)):
            return len(filename_or_obj) > 0 and all(self.guess_can_open(item) for item in filename_or_obj)
        if not isinstance(filename_or_obj, (str, os.PathLike)):
            return False
        path = os.fspath(filename_or_obj)
        if path.endswith(".cstore"):
            return True
        if "://" in path:
            return False
        try:
            if os.path.isdir(path):
                return any(name.endswith(".cstore") for name in os.listdir(path))
            with open(path, "rb") as file:
                return file.read(len(MAGIC)) == MAGIC
        except OSError:
            return False


def _names(source: Source, columns: Any, drop_variables: Any, index: str | None) -> list[str]:
    from colstore_io.errors import ColumnNotFoundError

    dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
    wanted = (
        source.schema.names if columns is None else [columns] if isinstance(columns, str) else list(columns)
    )
    if index is not None and index not in wanted:
        wanted = [*wanted, index]
    for name in wanted:
        if name not in source.schema:
            raise ColumnNotFoundError.for_name(name, source.schema.names)
    return [name for name in wanted if name not in dropped or name == index]


def _dataset(
    source: Source, columns: Any, drop_variables: Any, row_dim: str, index: str | None, mask: str | None
) -> xr.Dataset:
    names = _names(source, columns, drop_variables, index)
    dim = index if index is not None and row_dim == "row" else row_dim
    chunks = _preferred_chunks(source, names)
    variables: dict[str, xr.Variable] = {}
    for name in names:
        position = source.schema.index(name)
        field = source.schema.fields[position]
        separate = mask == "variable" and field.nullable
        forms: list[tuple[str, Form]] = [(name, "stored" if separate else "plain")]
        if separate:
            forms.append((f"{name}_mask", "missing"))
        for variable, form in forms:
            if variable in variables or (form == "missing" and variable in source.schema):
                raise ValueError(f"two variables would be named {variable!r}; choose columns= or mask=None")
            attrs = dict(field.attrs) if form != "missing" else {}
            array = indexing.LazilyIndexedArray(ColumnArray(source, position, form))
            variables[variable] = xr.Variable(
                (dim,), array, attrs, _encoding(field, form, dim, chunks), fastpath=True
            )
    # Whether a variable named like its dimension is read into an index now is for `open_dataset` to say.
    coords = xr.Coordinates({dim: variables.pop(dim)}, indexes={}) if dim in variables else None
    return xr.Dataset(variables, coords, dict(source.schema.attrs))


def _encoding(field: Field, form: Form, dim: str, chunks: int | tuple[int, ...] | None) -> dict[str, Any]:
    encoding: dict[str, Any] = {} if chunks is None else {"preferred_chunks": {dim: chunks}}
    if field.tz is not None and form != "missing":
        encoding["timezone"] = field.tz  # values are UTC
    return encoding


def _preferred_chunks(source: Source, names: Sequence[str]) -> int | tuple[int, ...] | None:
    """Return the chunk lengths that all variables share: one number for a uniform grid."""
    bounds = source.plan.partitions(names, blocksize=CHUNK_BYTES, merge_below=MERGE_BELOW_BYTES)
    lengths = np.diff(bounds)
    if lengths[0] == 0:
        return None
    if (lengths[:-1] == lengths[0]).all() and lengths[-1] <= lengths[0]:
        return int(lengths[0])
    return tuple(lengths.tolist())


def _asks_for_decoding(dataset: xr.Dataset) -> bool:
    return "coordinates" in dataset.attrs or any(
        not _DECODED_ATTRS.isdisjoint(variable.attrs) for variable in dataset.variables.values()
    )


def _with_index(dataset: xr.Dataset, index: str) -> xr.Dataset:
    return dataset.set_coords(index).set_xindex(index)


# ----------------------------------------------------------------------------------------------------------
# The accessor


@dataclass(frozen=True, slots=True)
class _Pending:
    """A variable that is still in its file, and the rows of it that were selected so far."""

    array: ColumnArray
    key: Any


def _pending(variable: xr.Variable) -> _Pending | None:
    """Look through xarray's lazy wrappers; None for anything that is not a plain selection of one column."""
    data: Any = variable._data
    while isinstance(data, (indexing.MemoryCachedArray, indexing.CopyOnWriteArray)):
        data = data.array
    if (
        type(data) is indexing.LazilyIndexedArray
        and isinstance(data.array, ColumnArray)
        and variable.ndim == 1
    ):
        return _Pending(data.array, data.key.tuple[0])
    return None


def _same_rows(a: Any, b: Any) -> bool:
    if isinstance(a, slice) or isinstance(b, slice):
        return isinstance(a, slice) and isinstance(b, slice) and a == b
    return a is b or bool(np.array_equal(a, b))


@xr.register_dataset_accessor("colstore")
class ColstoreAccessor:
    """``ds.colstore``: read many variables of an opened table in one pass.

    ``Dataset.load`` reads variable after variable; these methods locate the rows once for all columns, and read
    remote files in one round of requests.
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def take(self, rows: Any) -> xr.Dataset:
        """Return the given rows of all variables, in memory.

        Parameters
        ----------
        rows : sequence of int, slice, or boolean mask
            Along the dimension of the table; any order, repeats allowed.
        """
        return self.load(rows=rows)

    def load(self, columns: str | Sequence[str] | None = None, rows: Any = None) -> xr.Dataset:
        """Return variables in memory; those still in the file are read together.

        Parameters
        ----------
        columns : str or sequence of str, optional
            Default: all variables.
        rows : sequence of int, slice, or boolean mask, optional
            Default: all rows of the dataset.

        Raises
        ------
        KeyError
            If a variable is unknown.
        ValueError
            If `rows` is given and the dataset has not exactly one dimension.
        """
        dataset = self._dataset
        if columns is not None:
            dataset = dataset[[columns] if isinstance(columns, str) else list(columns)]
        if rows is not None and len(dataset.sizes) != 1:
            raise ValueError(f"rows= needs one dimension, this dataset has {dict(dataset.sizes)}")
        loaded: dict[Hashable, xr.Variable] = {}
        for group in _groups(dataset):
            for name, values in group.read(rows).items():
                variable = dataset.variables[name]
                loaded[name] = xr.Variable(variable.dims, values, variable.attrs, variable.encoding)
        others = dataset.drop_vars(list(loaded))
        if rows is not None:
            (dim,) = dataset.sizes
            taken = rows if isinstance(rows, slice) else np.atleast_1d(np.asarray(rows))
            others = others.isel({dim: taken}) if dim in others.dims else others
        coords = {name: variable for name, variable in loaded.items() if name in dataset.coords}
        data = {name: variable for name, variable in loaded.items() if name not in coords}
        complete = others.load().assign_coords(coords).assign(data)
        return complete[list(dataset.data_vars)]  # in the order they had


@dataclass(frozen=True, slots=True)
class _Group:
    """Variables in the same files of which the same rows are selected so far."""

    source: Source
    key: Any
    members: dict[Hashable, ColumnArray]

    def read(self, rows: Any) -> dict[Hashable, NDArray[Any]]:
        from colstore_io.selection import compose, normalise

        n_rows = self.source.n_rows
        selection = normalise(self.key, n_rows)
        if rows is not None:
            selection = compose(selection, rows, n_rows)
        found = _read_forms(self.source, selection, list(self.members.values()))
        return {
            name: array.finish(values)
            for (name, array), values in zip(self.members.items(), found, strict=True)
        }


def _groups(dataset: xr.Dataset) -> list[_Group]:
    groups: list[_Group] = []
    for name, variable in dataset.variables.items():
        pending = None if name in dataset.xindexes else _pending(variable)
        if pending is None:
            continue
        for group in groups:
            if group.source is pending.array.source and _same_rows(group.key, pending.key):
                group.members[name] = pending.array
                break
        else:
            groups.append(_Group(pending.array.source, pending.key, {name: pending.array}))
    return groups
