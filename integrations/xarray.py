"""Tables and N-D grid containers as xarray Datasets: the ``colstore`` engine and the ``ds.colstore`` accessor.

What is opened is decided elsewhere: tables in `_xarray_table`, grid containers in `_xarray_grid`, `_xarray_opening` and
`_xarray_write`. xarray imports this module whenever it lists its engines: all other modules of ours are imported when
something is opened, or one of the accessor's methods called.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from xarray.backends import BackendEntrypoint

if TYPE_CHECKING:
    from ._xarray_column import ColumnArray

__all__ = ["ColstoreAccessor", "ColstoreBackendEntrypoint", "ColstoreTreeAccessor", "ColumnArray"]


def __getattr__(name: str) -> Any:
    if (
        name == "ColumnArray"
    ):  # for who asks what a lazy variable is; no need to make its class before one is opened
        from ._xarray_column import ColumnArray

        return ColumnArray
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_SUFFIXES = (".cstore", ".abcd", ".colbin")

# ----------------------------------------------------------------------------------------------------------
# The engine


class ColstoreBackendEntrypoint(BackendEntrypoint):
    """Opens tables and grid containers as Datasets: ``xr.open_dataset(path, engine="colstore")``."""

    description = (
        "Open .cstore, .abcd and .colbin files in xarray: tables and grid containers, local files and URLs"
    )
    supports_groups = True
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
        "on_empty_file",
        "mmap",
        "backend",
        "max_workers",
        "strict",
        "table",
        "errors",
        "max_rows",
        "max_decoded_bytes",
        "group",
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
        on_empty_file: Literal["error", "skip"] = "error",
        mmap: bool = True,
        backend: str | None = None,
        max_workers: int | None = None,
        strict: bool = False,
        table: str | None = None,
        errors: Literal["strict", "surrogateescape"] = "strict",
        max_rows: int | None = None,
        max_decoded_bytes: int | None = None,
        group: str | None = None,
    ) -> xr.Dataset:
        """Open a table, or an N-D grid container, lazily: only headers are read, or the manifest.

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
        storage_options, filesystem, ignore_manifest, on_mismatch, on_empty_file, mmap, backend, max_workers, strict, \
        table, errors, max_rows, max_decoded_bytes
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
        group : str, optional
            Of a grid container: path of the group to open, such as ``"model/ocean"``.

        Returns
        -------
        xarray.Dataset

        Raises
        ------
        KeyError
            If a column or a group is unknown, listing close matches.
        FormatError, FileNotFoundError, SchemaMismatchError
            As in `colstore_io.open`.

        Notes
        -----
        Of the options for tables, a grid container knows `columns`. Its preferred chunks are the stored ones.
        """
        from ._xarray_grid import ColstoreDataStore
        from ._xarray_opening import open_store

        store = filename_or_obj if isinstance(filename_or_obj, ColstoreDataStore) else None
        if store is None and not ignore_manifest:
            store = ColstoreDataStore.of_grid(
                filename_or_obj,
                group,
                storage_options=storage_options,
                filesystem=filesystem,
                mmap=mmap,
                backend=backend,
                max_workers=max_workers,
            )
            if store is not None and (index is not None or mask is not None):
                raise ValueError("index= and mask= are for tables; a grid container has its own coordinates")
        if store is None and group is not None:
            raise ValueError("group= is for grid containers, and this is none")
        if store is not None:
            opened = open_store(
                store,
                drop_variables=drop_variables,
                mask_and_scale=mask_and_scale,
                decode_times=decode_times,
                concat_characters=concat_characters,
                decode_coords=decode_coords,
                use_cftime=use_cftime,
                decode_timedelta=decode_timedelta,
            )
            return (
                opened
                if columns is None
                else opened[[columns] if isinstance(columns, str) else list(columns)]
            )
        from colstore_io.api import reading
        from colstore_io.tables import Table

        from ._xarray_table import asks_for_decoding, table_dataset

        if mask not in (None, "variable"):
            raise ValueError(f"mask must be 'variable' or None, got {mask!r}")
        if isinstance(filename_or_obj, Table):
            held, owned = filename_or_obj, False
        else:
            held = reading.open(
                filename_or_obj,
                storage_options=storage_options,
                filesystem=filesystem,
                ignore_manifest=ignore_manifest,
                on_mismatch=on_mismatch,
                on_empty_file=on_empty_file,
                mmap=mmap,
                backend=backend,
                max_workers=max_workers,
                strict=strict,
                table=table,
                errors=errors,
                max_rows=max_rows,
                max_decoded_bytes=max_decoded_bytes,
            )
            owned = True
        try:
            dataset = table_dataset(held.readable_source(), columns, drop_variables, row_dim, index, mask)
            if asks_for_decoding(dataset):
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
                dataset = dataset.set_coords(index).set_xindex(index)
        except BaseException:
            if owned:
                held.close()
            raise
        dataset.set_close(held.close if owned else None)
        return dataset

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
        mmap: bool = True,
        backend: str | None = None,
        max_workers: int | None = None,
        **decoders: Any,
    ) -> dict[str, xr.Dataset]:
        """Open all groups of a grid container with one read of its manifest.

        Parameters
        ----------
        group : str, optional
            Only this group and those below it, as if it were the root.

        Returns
        -------
        dict of str to xarray.Dataset
            By path, ``"/"`` first.
        """
        from colstore_io.grid import open_container
        from colstore_io.grid.parsing import group_path

        from ._xarray_grid import ColstoreDataStore
        from ._xarray_opening import open_store

        container = open_container(
            filename_or_obj,
            storage_options=storage_options,
            filesystem=filesystem,
            mmap=mmap,
            backend=backend,
            max_workers=max_workers,
        )
        root = group_path(group)
        container.group(root)
        found = {}
        for name in container.model.groups:
            if name != root and not name.startswith(root.rstrip("/") + "/"):
                continue
            store = ColstoreDataStore.of_container(container, name)
            relative = group_path(name.removeprefix(root) if root != "/" else name)
            found[relative] = open_store(store, drop_variables=drop_variables, **decoders)
        return found

    def open_datatree(
        self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None, **options: Any
    ) -> xr.DataTree:
        """Open a grid container as a tree of its groups; options as `open_groups_as_dict`."""
        groups = self.open_groups_as_dict(filename_or_obj, drop_variables=drop_variables, **options)
        tree = xr.DataTree.from_dict(groups)
        tree.set_close(groups["/"].close)
        return tree

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return True for names with a suffix of ours, for local files and bytes that begin like such files, and for
        local directories with a manifest or with such files."""
        tables = sys.modules.get("colstore_io.tables")  # a table of ours cannot exist without it
        if tables is not None and isinstance(filename_or_obj, tables.Table):
            return True
        if isinstance(filename_or_obj, (bytes, bytearray, memoryview)):
            return _is_magic(bytes(filename_or_obj[:8]))
        if isinstance(filename_or_obj, (list, tuple)):
            return len(filename_or_obj) > 0 and all(self.guess_can_open(item) for item in filename_or_obj)
        if not isinstance(filename_or_obj, (str, os.PathLike)):
            return False
        path = os.fspath(filename_or_obj)
        if path.endswith(_SUFFIXES):
            return True
        if "://" in path:
            return False
        try:
            if os.path.isdir(path):
                return any(
                    name.endswith(_SUFFIXES) or _GENERATION.fullmatch(name) for name in os.listdir(path)
                )
            with open(path, "rb") as file:
                return _is_magic(file.read(8))
        except OSError:
            return False


_GENERATION = re.compile(r"_colstore-\d{8}\.json", re.ASCII)


def _is_magic(head: bytes) -> bool:
    from colstore_io.formats import known_formats

    return any(head.startswith(one.magic) for one in known_formats())


# ----------------------------------------------------------------------------------------------------------
# The accessor


@xr.register_dataset_accessor("colstore")
class ColstoreAccessor:
    """``ds.colstore``: write a dataset as a grid container, read many variables of an opened one in one pass.

    ``Dataset.load`` reads variable after variable; these methods locate the rows once for all columns, and read
    remote files in one round of requests.
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def take(self, rows: Any = None, **points: Any) -> xr.Dataset:
        """Return the given rows of all variables of a table, or scattered points of a grid, in memory.

        Parameters
        ----------
        rows : sequence of int, slice, or boolean mask
            Along the dimension of the table; any order, repeats allowed.
        **points : sequence of int
            For each dimension that points are given in: their indices, any order. All sequences have one length; the
            result has a dimension ``points`` in place of these dimensions.

        Raises
        ------
        TypeError
            If both are given, or none.
        ValueError
            If a dimension is unknown, or lengths differ.
        """
        if (rows is None) == (not points):
            raise TypeError("take() needs either rows, or index sequences by dimension")
        if rows is not None:
            return self.load(rows=rows)
        indexers = {dim: xr.Variable("points", np.asarray(index)) for dim, index in points.items()}
        return ColstoreAccessor(self._dataset.isel(indexers)).load()

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
        from ._xarray_loading import load_columns, load_grids

        loaded = load_columns(dataset, rows)
        if rows is None:
            loaded.update(load_grids(dataset))
        others = dataset.drop_vars(list(loaded))
        if rows is not None:
            (dim,) = dataset.sizes
            taken = rows if isinstance(rows, slice) else np.atleast_1d(np.asarray(rows))
            others = others.isel({dim: taken}) if dim in others.dims else others
        coords = {name: variable for name, variable in loaded.items() if name in dataset.coords}
        data = {name: variable for name, variable in loaded.items() if name not in coords}
        complete = others.compute().assign_coords(coords).assign(data)
        order = list(dataset.data_vars)
        return complete if list(complete.data_vars) == order else complete[order]

    def to_colstore(
        self,
        path: Any,
        *,
        mode: Literal["w", "w-", "a", "r+"] | None = None,
        append_dim: Hashable | None = None,
        region: Mapping[Any, Any] | Literal["auto"] | None = None,
        encoding: Mapping[Any, Mapping[str, Any]] | None = None,
        unlimited_dims: Iterable[Hashable] | str | None = None,
        compute: bool = True,
        chunks: Mapping[Any, Any] | None = None,
        group: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
    ) -> Any:
        """Write the dataset as a grid container: a directory that `xarray.open_dataset` reads lazily.

        Readers see the dataset as it was before, or as it is after, never a mix: new files are complete before one
        manifest names them all.

        Parameters
        ----------
        path : path or URL
            The directory.
        mode : {"w", "w-", "a", "r+"}, optional
            ``"w"`` (the default) replaces what is there, ``"w-"`` refuses to. ``"a"`` adds variables, and replaces
            those of the same names. ``"r+"`` (the default with `region`) changes values of variables that exist.
        append_dim : hashable, optional
            The data follow those that exist along this dimension; variables without it must be equal.
        region : mapping of hashable to slice or "auto", or "auto", optional
            Where to write in what exists. ``"auto"`` finds the place by the values of the coordinate. A region is made
            of whole chunks.
        encoding : mapping of variable to mapping, optional
            ``chunks`` (or ``chunksizes``), ``dtype`` and xarray's CF encoding, by variable.
        unlimited_dims : iterable of hashable, optional
            Remembered, and in ``ds.encoding`` again.
        compute : bool
            False returns a `dask.delayed.Delayed`: files are written, and published, when it is computed.
        chunks : mapping of hashable to int or sequence of int, optional
            How to cut dimensions, in all variables. Default: the blocks of Dask arrays, the chunks of the file that
            a variable comes from, or pieces of 16 MiB.
        group : str, optional
            Write into this group; other groups stay.
        storage_options, filesystem
            For URLs.

        Returns
        -------
        None or dask.delayed.Delayed

        Raises
        ------
        SchemaMismatchError
            If an append or a region does not fit, naming the variable; nothing was published. It is a `ValueError`.
            Text that is longer than the stored variable is wide does not fit, and is not cut. Nor does a value fit
            that is beyond the range of the integer that its encoding asks for.
        CommitConflictError
            If another writer changed the same chunks meanwhile. Changes of other chunks are joined.
        FileExistsError
            With ``"w-"``, if there is a dataset.
        TypeError
            If a variable or an attribute cannot be stored, naming it, or an argument is of a wrong type.
        ValueError
            If an argument names a dimension or variable that there is not, or a chunk length that cannot be.
        """
        from ._xarray_write import to_colstore

        return to_colstore(
            self._dataset,
            path,
            mode=mode,
            append_dim=append_dim,
            region=region,
            encoding=encoding,
            unlimited_dims=unlimited_dims,
            compute=compute,
            chunks=chunks,
            group=group,
            storage_options=storage_options,
            filesystem=filesystem,
        )


@xr.register_datatree_accessor("colstore")
class ColstoreTreeAccessor:
    """``tree.colstore``: write a tree of groups as one grid container."""

    def __init__(self, tree: xr.DataTree) -> None:
        self._tree = tree

    def to_colstore(
        self,
        path: Any,
        *,
        mode: Literal["w", "w-", "a"] = "w",
        encoding: Mapping[Any, Mapping[Any, Mapping[str, Any]]] | None = None,
        unlimited_dims: Mapping[Any, Iterable[Hashable] | str] | None = None,
        compute: bool = True,
        chunks: Mapping[Any, Any] | None = None,
        group: str | None = None,
        write_inherited_coords: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
    ) -> Any:
        """Write all groups as one grid container: a directory that `xarray.open_datatree` reads lazily.

        One manifest names the files of all groups. Until it is published, readers see what was there before; then they
        see the whole tree.

        Parameters
        ----------
        path : path or URL
            The directory.
        mode : {"w", "w-", "a"}, default "w"
            ``"w"`` replaces what is there, ``"w-"`` refuses to. ``"a"`` adds groups and variables, and replaces
            variables of the same names.
        encoding, unlimited_dims : mapping of group to what `ColstoreAccessor.to_colstore` takes, optional
            Groups are named by their path in this tree, such as ``"/model/ocean"``.
        compute, storage_options, filesystem
            As in `ColstoreAccessor.to_colstore`.
        chunks : mapping of hashable to int or sequence of int, optional
            How to cut dimensions, in all groups that have them.
        group : str, optional
            Write the tree into this group; groups that are not below it stay.
        write_inherited_coords : bool, default False
            Write coordinates that groups have from those above into these groups too.

        Returns
        -------
        None or dask.delayed.Delayed

        Raises
        ------
        ValueError
            If an argument names a group or dimension that there is not.
        Exception
            As `ColstoreAccessor.to_colstore`, with the group in a note; nothing was published.

        Notes
        -----
        Values that are not in arrays of Dask are held in memory, of all groups, until they are written.
        """
        from ._xarray_write import tree_to_colstore

        return tree_to_colstore(
            self._tree,
            path,
            mode=mode,
            encoding=encoding,
            unlimited_dims=unlimited_dims,
            compute=compute,
            chunks=chunks,
            group=group,
            write_inherited_coords=write_inherited_coords,
            storage_options=storage_options,
            filesystem=filesystem,
        )
