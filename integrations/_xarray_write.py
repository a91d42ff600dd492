"""``ds.colstore.to_colstore``: a Dataset becomes a grid container, or a part of one.

Arrays in memory are written by this process. Blocks of Dask arrays are written by the tasks that compute them, each
into a file under a name of its own, so a task may run twice: the commit names the file of one run, and `vacuum` removes
the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends.writers import _sanitize_unlimited_dims, _validate_dataset_names, dump_to_store
from xarray.coding.strings import create_vlen_dtype

from ._xarray_arguments import check_append_dim, check_dtypes, check_encoding, checked_chunks
from ._xarray_grid import ColstoreDataStore
from ._xarray_opening import check_attributes
from ._xarray_values import all_missing, as_characters, is_character_array, of_any_length

if TYPE_CHECKING:
    from colstore_io.grid import GridWriter
    from colstore_io.grid.commit import Part
    from colstore_io.grid.layout import Axis
    from colstore_io.storage import Location

__all__ = ["to_colstore", "tree_to_colstore"]

_KEPT_ENCODING = (
    "dtype",
    "units",
    "calendar",
    "scale_factor",
    "add_offset",
    "_FillValue",
    "missing_value",
    "_Unsigned",
)


def to_colstore(
    dataset: xr.Dataset,
    path: Any,
    *,
    mode: str | None,
    append_dim: Hashable | None,
    region: Mapping[Any, Any] | str | None,
    encoding: Mapping[Any, Mapping[str, Any]] | None,
    unlimited_dims: Iterable[Hashable] | str | None,
    compute: bool,
    chunks: Mapping[Any, Any] | None,
    group: str | None,
    storage_options: Mapping[str, Any] | None,
    filesystem: Any,
) -> Any:
    """Write `dataset`; see `ColstoreAccessor.to_colstore`."""
    options = {"storage_options": storage_options, "filesystem": filesystem}
    store = _dumped(dataset, path, mode, append_dim, region, encoding, unlimited_dims, chunks, group, options)
    return _finished([store], compute=compute)


def tree_to_colstore(
    tree: xr.DataTree,
    path: Any,
    *,
    mode: str,
    encoding: Mapping[Any, Any] | None,
    unlimited_dims: Mapping[Any, Any] | None,
    compute: bool,
    chunks: Mapping[Any, Any] | None,
    group: str | None,
    write_inherited_coords: bool,
    storage_options: Mapping[str, Any] | None,
    filesystem: Any,
) -> Any:
    """Write all groups of `tree`, published as one generation; see `ColstoreTreeAccessor.to_colstore`."""
    from colstore_io.grid.parsing import group_path

    if mode not in ("w", "w-", "a"):
        raise ValueError(
            f"mode of a tree must be 'w', 'w-' or 'a', got {mode!r}; change values group by group"
        )
    nodes = {("/" if node is tree else "/" + node.relative_to(tree)): node for node in tree.subtree}
    encodings = _by_group("encoding", encoding, nodes)
    unlimited = _by_group("unlimited_dims", unlimited_dims, nodes)
    options = {"storage_options": storage_options, "filesystem": filesystem}
    top = group_path(group)
    stores = []
    cuts = checked_chunks(chunks, {dim for node in nodes.values() for dim in node.dims})
    for (
        name,
        node,
    ) in nodes.items():  # what is above comes first: to replace a group is to replace those below
        dataset = node.to_dataset(inherit=write_inherited_coords or node is tree)
        own = {dim: chunk for dim, chunk in cuts.items() if dim in dataset.dims}
        where = group_path(top.rstrip("/") + name)
        try:
            store = _dumped(
                dataset, path, mode, None, None, encodings.get(name), unlimited.get(name), own, where, options
            )
        except Exception as exc:
            exc.add_note(f"in group {name!r} of the tree")
            raise
        stores.append(store)
    return _finished(stores, compute=compute)


def _by_group(argument: str, given: Any, nodes: Mapping[str, Any]) -> dict[str, Any]:
    """Return an argument that is given by group with full paths, ``"/model"`` for ``"model"``."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{argument} of a tree must be a mapping of groups, got {given!r}")
    found = {}
    for name, own in given.items():
        path = "/" + str(name).strip("/")
        if path not in nodes:
            raise ValueError(f"{argument} names group {name!r}, the tree has {list(nodes)}")
        found[path] = own
    return found


def _dumped(
    dataset: xr.Dataset,
    path: Any,
    mode: str | None,
    append_dim: Hashable | None,
    region: Mapping[Any, Any] | str | None,
    encoding: Mapping[Any, Mapping[str, Any]] | None,
    unlimited_dims: Iterable[Hashable] | str | None,
    chunks: Mapping[Any, Any] | None,
    group: str | None,
    options: Mapping[str, Any],
) -> ColstoreDataStore:
    """Return a store that has taken the encoded variables of `dataset`, and written none of them yet."""
    _validate_dataset_names(dataset)
    mode = _mode(mode, append_dim, region)
    check_append_dim(append_dim, dataset)
    encoding = check_encoding(encoding, dataset)
    check_dtypes(dataset.variables.items())
    changes = append_dim is not None or region is not None or mode == "r+"
    unlimited = _sanitize_unlimited_dims(dataset, None if changes else unlimited_dims)
    store = ColstoreDataStore(
        path,
        mode,
        append_dim=None if append_dim is None else str(append_dim),
        chunks=checked_chunks(chunks, dataset.dims),
        group=group,
        **options,
    )
    if changes:
        existing = _existing(store, dataset)
        store.region = _region(dataset, existing, region)
        dataset = _encoded_alike(dataset, existing, encoding)
    dump_to_store(dataset, store, encoding=encoding, unlimited_dims=unlimited)
    store.check_complete()
    store.let_go()
    return store


def _finished(stores: Sequence[ColstoreDataStore], *, compute: bool) -> Any:
    """Write what the stores took, and publish it all at once; with Dask if there is anything lazy."""
    from colstore_io.grid.commit import commit_together

    writers = [store.writer for store in stores if store.writer is not None]
    lazy = [(number, *own) for number, store in enumerate(stores) for own in store.lazy]
    if compute and not lazy:
        commit_together(writers)
        return None
    return _with_dask(writers, lazy, compute=compute)


def _mode(mode: str | None, append_dim: Any, region: Any) -> str:
    if mode is None:
        return "r+" if region is not None else "a" if append_dim is not None else "w"
    if append_dim is not None and (mode != "a" or region is not None):
        raise ValueError(f"append_dim needs mode='a' and no region, got mode={mode!r}")
    if region is not None and mode not in ("a", "r+"):
        raise ValueError(f"region needs mode='r+' or 'a', got {mode!r}")
    return "r+" if region is not None else mode


def _existing(store: ColstoreDataStore, dataset: xr.Dataset) -> dict[Any, xr.Variable]:
    """Return those variables of the file that `dataset` has too, lazily, decoded as far as those of `dataset` are.

    Who opened a dataset with ``decode_times=False`` or ``mask_and_scale=False`` has numbers, and appends numbers.
    """
    found = {}
    for name, stored in store.existing_variables(dataset.variables).items():
        new = dataset.variables[name]
        if stored.dtype.kind == "O":
            found[name] = stored
            continue
        check_attributes(name, stored.attrs, store.path)
        found[name] = xr.conventions.decode_cf_variable(
            name,
            stored,
            concat_characters=False,
            mask_and_scale=not {"_FillValue", "missing_value", "scale_factor", "add_offset"} & set(new.attrs),
            decode_times=new.dtype.kind in "MmO",
            decode_timedelta=new.dtype.kind == "m",
        )
    return found


def _region(dataset: xr.Dataset, existing: Mapping[Any, xr.Variable], region: Any) -> dict[str, slice] | None:
    """Return where to write: slices by dimension; ``"auto"`` looks the coordinate's values up in the dataset."""
    from colstore_io.errors import SchemaMismatchError

    if region is None:
        return None
    if region == "auto":
        region = dict.fromkeys((dim for dim in dataset.dims if dim in dataset.coords), "auto")
    if not isinstance(region, Mapping):
        raise TypeError(f"region must be a mapping of dimensions to slices, or 'auto', got {region!r}")
    found: dict[str, slice] = {}
    for dim, where in region.items():
        if dim not in dataset.dims:
            raise ValueError(
                f"region names {dim!r}, which is no dimension of the dataset {list(dataset.dims)}"
            )
        if isinstance(where, str) and where == "auto":
            if dim not in dataset.indexes or dim not in existing:
                raise ValueError(
                    f"region 'auto' of {dim!r} needs a coordinate of this name, in the data and in the dataset"
                )
            own, stored = dataset.indexes[dim], existing[dim].to_index_variable().to_index()
            start = int(stored.get_indexer(own[:1])[0]) if len(own) else 0
            if start < 0 or not stored[start : start + len(own)].equals(own):
                raise SchemaMismatchError(
                    f"values of coordinate {dim!r} do not follow each other in the dataset"
                )
            where = slice(start, start + len(own))
        if not isinstance(where, slice):
            raise TypeError(f"region of {dim!r} must be a slice or 'auto', got {where!r}")
        if not all(n is None or isinstance(n, (int, np.integer)) for n in (where.start, where.stop)):
            raise TypeError(f"region of {dim!r} must be a slice between two indices, got {where!r}")
        found[str(dim)] = where
    return found


def _encoded_alike(
    dataset: xr.Dataset, existing: Mapping[Any, xr.Variable], encoding: dict[Any, Mapping[str, Any]]
) -> xr.Dataset:
    """Return `dataset` with the encoding that its variables have in the file, after comparing their dtypes."""
    from colstore_io.errors import SchemaMismatchError

    dataset = dataset.copy()
    for name, variable in list(dataset.variables.items()):
        if name in encoding:
            raise ValueError(f"variable {name!r} exists already, its encoding cannot be given again")
        if name not in existing:
            continue
        old = existing[name]
        kinds = variable.dtype.kind + old.dtype.kind
        missing = of_any_length(old.dtype) is not None and all_missing(variable)
        alike = (
            variable.dtype.newbyteorder("=") == old.dtype
            or kinds in ("MM", "mm", "UU", "SS", "OO")
            or set(kinds) <= set("UOT")
            or missing
            # Packed values decode to whatever float xarray finds wide enough.
            or (kinds == "ff" and {"scale_factor", "add_offset"} & set(old.encoding))
        )
        if not alike:
            names: dict[type | None, str] = {str: "text", bytes: "bytes of any length", None: str(old.dtype)}
            raise SchemaMismatchError(
                f"variable {name!r} is {variable.dtype}, the dataset has {names[of_any_length(old.dtype)]}"
            )
        kept = {key: old.encoding[key] for key in _KEPT_ENCODING if key in old.encoding}
        if old.dtype.kind in "OUS":
            # xarray would cut text to the width of the file's without a word; the store compares them instead.
            kept.pop("dtype", None)
            if of_any_length(old.dtype) is str:
                kept["dtype"] = str  # what is missing everywhere is missing text
            if missing:
                # Of None and NaN both stay what they are.
                dataset[name] = variable.astype(object).astype(old.dtype)
            elif old.dtype.kind == "O" and variable.dtype.kind in "UT":
                dataset[name] = variable.astype(create_vlen_dtype(str))
            elif is_character_array(variable, old):
                dataset[name] = as_characters(variable, old, name)
                kept["dtype"], kept["char_dim_name"] = np.dtype("S1"), str(old.dims[-1])
        # What the file does not fill must not get xarray's default fill value.
        kept.setdefault("_FillValue", None)
        if variable.dtype.kind in "Mmb" and "units" not in kept:
            kept.pop("_FillValue")
        dataset.variables[name].encoding = kept  # of the copy; to assign a variable would align all
    return dataset


# ----------------------------------------------------------------------------------------------------------
# Dask


GROUP_BYTES = 16 << 20
"""Blocks of Dask arrays that are smaller are written in groups of about this size: each file is an entry of the
manifest, which every reader reads, and a file to make durable."""


def _with_dask(writers: Sequence[GridWriter], lazy: Sequence[tuple[int, Part, Any]], *, compute: bool) -> Any:
    """Write the blocks of `lazy`, which are given with the number of their writer, and publish."""
    import dask.base
    from dask.delayed import delayed

    from colstore_io.grid.files import machine_id

    # Of what other processes of this machine write, the one that publishes makes all files durable together.
    here = machine_id() if compute else None
    arrays = []
    for number, part, data in lazy:
        writer = writers[number]
        blocks = _blocks(data, part)
        arrays.append(
            blocks.map_blocks(
                _write_block,
                writer.place,
                writer.group,
                part,
                dtype=object,
                chunks=tuple((1,) * len(own) for own in blocks.chunks),
                meta=np.empty((0,) * data.ndim, object),
                starts=_starts(blocks.chunks),
                here=here,
            )
        )
    numbers = [number for number, _, _ in lazy]
    if compute:
        _publish(writers, numbers, list(dask.base.compute(*arrays)))
        return None
    return delayed(_publish)(writers, numbers, arrays)


def _starts(chunks: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(n) for n in np.cumsum((0, *own[:-1]))) for own in chunks)


def _blocks(data: Any, part: Part) -> Any:
    """Return `data` in blocks of whole chunks, so that no two tasks write parts of one chunk; small ones joined."""
    wanted = []
    for own, axis in zip(data.chunks, part.axes, strict=True):
        edges = np.cumsum((0, *own))
        whole = not axis.length or bool(np.isin(edges, axis.edges()).all())
        wanted.append(tuple(own) if whole else axis.lengths())
    wanted = _joined(wanted, data.dtype.itemsize)
    return data if tuple(wanted) == tuple(data.chunks) else data.rechunk(tuple(wanted), method="tasks")


def _joined(chunks: Sequence[tuple[int, ...]], itemsize: int) -> list[tuple[int, ...]]:
    """Return lengths of blocks such that neighbours are joined up to `GROUP_BYTES`, along the last dimensions first."""
    found = list(chunks)
    for d in reversed(range(len(found))):
        others = itemsize
        for other, own in enumerate(found):
            others *= 1 if other == d else max(own, default=1)
        most = GROUP_BYTES // max(others, 1)
        lengths: list[int] = []
        for length in found[d]:
            if lengths and lengths[-1] + length <= most:
                lengths[-1] += length
            else:
                lengths.append(length)
        found[d] = tuple(lengths)
    return found


def _write_block(
    block: NDArray[Any],
    place: Location,
    group: str,
    part: Part,
    starts: Sequence[Sequence[int]] = (),
    here: str | None = None,
    block_id: tuple[int, ...] = (),
) -> NDArray[Any]:
    """Write one block into a file of its own. Runs in a task, perhaps more than once.

    Parameters
    ----------
    here : str, optional
        The machine of the process that publishes, if it is known. On any other, this task makes its file durable.

    Returns
    -------
    ndarray of object, one element
        The member, its texts, and whether they are durable; None for an empty block.
    """
    from colstore_io.grid.files import Unsynced, machine_id
    from colstore_io.grid.fitting import fitted
    from colstore_io.grid.members import write_member

    out = np.empty((1,) * block.ndim, object)
    if block.size == 0:
        return out
    axes: list[Axis] = []
    first = []
    for axis, own, number, n, base in zip(part.axes, starts, block_id, block.shape, part.first, strict=True):
        span = axis.span(own[number], own[number] + n)
        assert span is not None, "blocks are whole chunks"
        axes.append(axis.part(*span))
        first.append(base + span[0])
    values = fitted(np.asarray(block), part.spec)
    spec = replace(part.spec, axes=tuple(axes))
    flat = int(np.ravel_multi_index(block_id, [len(own) for own in starts])) if block_id else 0
    unsynced = Unsynced()
    member, texts = write_member(
        place, group, [spec], {spec.name: values}, first, number=flat, unsynced=unsynced
    )
    left = here is not None and here == machine_id()
    if left:
        unsynced.leave()
    else:
        unsynced.sync()
    out[(0,) * block.ndim] = (member, texts, not left)
    return out


def _publish(writers: Sequence[GridWriter], numbers: Sequence[int], results: Sequence[NDArray[Any]]) -> int:
    """Publish the files that the tasks wrote; `numbers` are those of the writers that they are for."""
    from colstore_io.grid.commit import commit_together

    for number, array in zip(numbers, results, strict=True):
        for written in np.asarray(array, object).reshape(-1).tolist():
            if written is not None:
                member, texts, synced = written
                writers[number].add(member, texts, synced=synced)
    return commit_together(writers)
