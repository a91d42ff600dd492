"""Tables and grid containers as Zarr, without copying: references to byte ranges of the files as they are.

A column of a ``.cstore`` file, and a chunk of a grid container, are plain values one after the other, which is what an
uncompressed chunk of Zarr is. So a list of places (URL, offset, length) makes an array of Zarr of them, for every tool
that reads Zarr: `kerchunk_references` writes the list down for fsspec's ``reference`` file system, `ColstoreParser`
hands it to VirtualiZarr. Limits, and when to use something else: docs/zarr.md.

What the arrays are is decided in `_zarr_tables` and `_zarr_grids`; here are the entry points.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ._kerchunk import reference_dict
from ._zarr_grids import describe_grid
from ._zarr_model import (
    CHUNK_BYTES,
    FILES_ATTRIBUTE,
    INLINE_BYTES,
    SMALLEST_CHUNK,
    Description,
    OnSkipped,
    Options,
    check_count,
)
from ._zarr_tables import describe_table

if TYPE_CHECKING:
    from virtualizarr.manifests import ManifestStore

__all__ = ["ColstoreParser", "check_references", "kerchunk_references", "write_references"]


# ----------------------------------------------------------------------------------------------------------
# References


def kerchunk_references(
    url: Any,
    *,
    columns: str | Iterable[str] | None = None,
    chunk_rows: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    smallest_chunk: int = SMALLEST_CHUNK,
    text: bool = False,
    row_dim: str = "row",
    group: str | None = None,
    inline_bytes: int = INLINE_BYTES,
    on_skipped: OnSkipped = "warn",
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    ignore_manifest: bool = False,
) -> dict[str, Any]:
    """Return references to the values of a table or a grid container, as a dictionary that JSON can hold.

    Only headers are read, or the manifest, and the few chunks that must be copied (see `inline_bytes`). Neither zarr,
    kerchunk nor VirtualiZarr is needed.

    Parameters
    ----------
    url : path, URL, pattern, directory, list of paths, Reader or Dataset
        As for `colstore_io.open`; a directory may be a grid container, and so may a manifest of one. Many files are
        one table.
    columns : str or iterable of str, optional
        Columns or variables, in this order. Default: all that can be described; what was left out is named by a
        warning, and in the attribute ``colstore_io_references``.
    chunk_rows : int, optional
        Rows of a chunk of a table. Every record must begin with a chunk. Default: about `chunk_bytes`.
    chunk_bytes : int, default 8 MiB
        Bytes that chunks of the widest column aim at; chunks have between a half and twice of it where the number of
        rows allows. All columns have the same number of rows in a chunk.
    smallest_chunk : int, default 4096
        If records have different lengths, what they have in common must be at least this many values.
    text : bool, default False
        Include columns of text and bytes of fixed width. Columns named in `columns` are always included.
    row_dim : str, default "row"
        Name of the dimension of a table.
    group : str, optional
        Of a grid container: only this group, as the root, and those below it.
    inline_bytes : int, default 32 MiB
        Bytes that may be copied into the references for one array: chunks at the edge of a grid, and the last chunk
        of a file's last column, are shorter than Zarr needs them.
    on_skipped : {"warn", "raise", "ignore"}
        What to do if something cannot be described.
    storage_options, filesystem, ignore_manifest
        As in `colstore_io.open`. Options are used now; they are not written into the references.

    Returns
    -------
    dict
        Kerchunk's version 1, with metadata of Zarr 2. Open it with ``xarray.open_dataset("reference://",
        engine="zarr", backend_kwargs={"storage_options": {"fo": references}})``.

    Raises
    ------
    ColumnNotFoundError, KeyError
        If a column, variable or group is unknown.
    ValueError
        If something that was named in `columns` cannot be described, or rows cannot be cut into chunks of one length.
        It says why, and what to use instead.
    UnsupportedFeatureError
        If the files hold encoded columns.
    FileNotFoundError, FormatError
        As `colstore_io.open`; the files of a grid container are looked for where the store lists them.

    Notes
    -----
    References hold URLs and offsets. A file that is replaced afterwards makes them wrong without a sign: see
    `check_references`. A file that is appended to keeps its old rows where they are.
    """
    options = Options(
        names=_names(columns),
        chunk_rows=chunk_rows,
        chunk_bytes=chunk_bytes,
        smallest_chunk=smallest_chunk,
        text=text,
        row_dim=row_dim,
        group=group,
        inline_bytes=inline_bytes,
    )
    described = _describe(
        url,
        options,
        on_skipped,
        storage_options=storage_options,
        filesystem=filesystem,
        ignore_manifest=ignore_manifest,
    )
    return reference_dict(described)


def write_references(
    url: Any, path: Any, *, target_options: Mapping[str, Any] | None = None, **options: Any
) -> None:
    """Write the references to a JSON file, in one step: readers see the old file or the new one.

    Parameters
    ----------
    url : as in `kerchunk_references`
    path : path or URL
        Of the JSON file. ``xarray.open_dataset("reference://", engine="zarr", backend_kwargs={"storage_options":
        {"fo": path}})`` opens it.
    target_options : mapping, optional
        Options of the file system of `path`.
    **options
        As in `kerchunk_references`; ``storage_options`` are those of `url`.

    Raises
    ------
    ValueError
        If `path` is one of the data files, or has the name of one.
    """
    from colstore_io import storage
    from colstore_io.writing.publish import resolve_target, write_small_file

    references = kerchunk_references(url, **options)
    target = resolve_target(path, storage_options=target_options)
    _refuse_target(target, references)
    data = json.dumps(references).encode()
    if target.local_path is not None:
        write_small_file(target.local_path, data, exclusive=False)
    else:
        assert target.location is not None
        storage.write_object(target.location, [data])


def _refuse_target(target: Any, references: Mapping[str, Any]) -> None:
    """Raise `ValueError` if writing to `target` would replace data: a file referred to, or one named like data."""
    from colstore_io.storage import DATA_SUFFIXES

    place = target.local_path if target.local_path is not None else target.location.url
    name = os.path.basename(str(place))
    if name.startswith("_colstore-") or name.endswith(tuple(DATA_SUFFIXES)):
        raise ValueError(
            f"{target.spelling} is the name of a data file; references go into a file of their own, .json"
        )
    for url, _, _ in _files_of(references):
        same = (
            os.path.realpath(url) == os.path.realpath(place)
            if target.local_path is not None
            else url == place
        )
        if same:
            raise ValueError(f"{target.spelling} is one of the files that the references point to")
    if target.local_path is not None and os.path.isdir(target.local_path):
        raise IsADirectoryError(21, "references are one file, this is a directory", target.spelling)


def check_references(
    references: Mapping[str, Any] | str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> None:
    """Check that the files behind references are those that they were made from: one request for each.

    Parameters
    ----------
    references : mapping, path or URL
        What `kerchunk_references` returned or `write_references` wrote.
    storage_options : mapping, optional
        Of the data files.
    target_options : mapping, optional
        Of the file system of `references`.

    Raises
    ------
    StaleDatasetError
        For the first file whose size or version is another; a file that was only appended to counts as well.
    FileNotFoundError
        If a file is gone.
    ValueError
        If these are no references of ours.
    """
    from colstore_io import storage
    from colstore_io.errors import StaleDatasetError
    from colstore_io.writing.publish import resolve_target

    if not isinstance(references, Mapping):
        target = resolve_target(references, storage_options=target_options)
        location = target.location
        if location is None:
            assert target.local_path is not None
            location = storage.locate(target.local_path)
        file, head = storage.open_file(location)
        data = bytes(head) if len(head) == file.size else bytes(file.read(0, file.size))
        file.close()
        references = _parsed(data)
    for url, size, token in _files_of(references):
        now = storage.current_token(storage.locate(url, storage_options=storage_options))
        if now[0] != size or (token is not None and now[1] != token):
            raise StaleDatasetError(
                f"{url} has changed since the references were made: {now[0]} bytes now, {size} then. Make them again"
            )


def _parsed(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _files_of(references: Mapping[str, Any]) -> list[tuple[str, int, str | None]]:
    """Return what references say about their files, checked."""
    try:
        attrs = json.loads(references["refs"][".zattrs"])
        files = json.loads(attrs[FILES_ATTRIBUTE])["files"]
        found = [(url, size, token) for url, size, token in files]
    except (KeyError, TypeError, ValueError, RecursionError):
        found = [(None, None, None)]
    for url, size, token in found:
        if not isinstance(url, str) or not isinstance(size, int) or not isinstance(token, (str, type(None))):
            raise ValueError(
                f"these references do not say which files they were made from: they have no attribute {FILES_ATTRIBUTE}"
            )
    return found


# ----------------------------------------------------------------------------------------------------------
# VirtualiZarr


@dataclass(frozen=True, kw_only=True)
class ColstoreParser:
    """Parser for VirtualiZarr: ``open_virtual_dataset(url, registry=registry, parser=ColstoreParser())``.

    Parameters
    ----------
    columns, chunk_rows, chunk_bytes, smallest_chunk, text, row_dim, group, on_skipped
        As in `kerchunk_references`.
    storage_options : mapping, optional
        Headers are read with the stores of the registry; with these options they are read by fsspec instead.

    Notes
    -----
    Needs the package ``virtualizarr``, and instances need nothing before they are called: they are values, and pickle.
    VirtualiZarr's stores hold no copies of chunks. What needs one (see ``inline_bytes`` of `kerchunk_references`) is
    cut differently, or else skipped.
    """

    columns: str | Iterable[str] | None = None
    chunk_rows: int | None = None
    chunk_bytes: int = CHUNK_BYTES
    smallest_chunk: int = SMALLEST_CHUNK
    text: bool = False
    row_dim: str = "row"
    group: str | None = None
    on_skipped: OnSkipped = "warn"
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)  # may hold passwords

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "columns", _names(self.columns)
        )  # an iterator would be used up by the first call
        self._options()

    def _options(self) -> Options:
        return Options(
            names=_names(self.columns),
            chunk_rows=self.chunk_rows,
            chunk_bytes=self.chunk_bytes,
            smallest_chunk=self.smallest_chunk,
            text=self.text,
            row_dim=self.row_dim,
            group=self.group,
            inline_bytes=0,
        )

    def __call__(self, url: str, registry: Any) -> ManifestStore:
        """Read the headers of a table, or the manifest of a grid container, and return its chunks as a store of Zarr.

        Parameters
        ----------
        url : str
            With a scheme; a table's file, a pattern or directory of them, a container's directory or manifest.
        registry : obspec_utils.registry.ObjectStoreRegistry
            Stores from which the chunks will be read.

        Raises
        ------
        ImportError
            If VirtualiZarr is not installed.
        ValueError
            If the registry has no store for the URL.
        Exception
            As `kerchunk_references`.
        """
        try:
            from ._virtualizarr import RegistryFileSystem, manifest_store
        except ImportError as exc:
            raise ImportError(
                f"ColstoreParser needs virtualizarr ({exc}); install it with 'pip install colstore_io[zarr]', or use "
                "kerchunk_references, which needs nothing"
            ) from exc
        path, filesystem = url, None
        if url.startswith("file://") or "://" not in url:
            path = _local_path(url)
        elif self.storage_options is None:
            registry.resolve(url)  # says that it has no store before a file system wraps the error
            filesystem = RegistryFileSystem(registry)
        described = _describe(
            path,
            self._options(),
            self.on_skipped,
            storage_options=self.storage_options,
            filesystem=filesystem,
        )
        store: ManifestStore = manifest_store(described, registry)
        return store


def _local_path(url: str) -> str:
    """Return the path that a ``file:`` URL means; VirtualiZarr escapes characters, fsspec does not."""
    path = url.removeprefix("file://")
    plain = unquote(path)
    return plain if plain != path and not os.path.lexists(path) else path


# ----------------------------------------------------------------------------------------------------------
# What both do

_LISTED = 20
"""Names of what was left out in one message."""


def _names(columns: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"names of columns must be str, got {name!r}")
    return tuple(dict.fromkeys(names))


def _describe(
    url: Any,
    options: Options,
    on_skipped: OnSkipped,
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    ignore_manifest: bool = False,
) -> Description:
    from colstore_io.api import reading
    from colstore_io.grid.container import container_at
    from colstore_io.tables import Table

    if on_skipped not in ("warn", "raise", "ignore"):
        raise ValueError(f"on_skipped must be 'warn', 'raise' or 'ignore', got {on_skipped!r}")
    if isinstance(url, Table):
        described = describe_table(url.readable_source(), options, _spelling(url))
    else:
        container = None
        if not ignore_manifest:
            container = container_at(url, storage_options=storage_options, filesystem=filesystem)
        if container is not None:
            try:
                described = describe_grid(container, options)
            finally:
                container.close()
        else:
            with reading.open(
                url,
                storage_options=storage_options,
                filesystem=filesystem,
                ignore_manifest=ignore_manifest,
            ) as table:
                described = describe_table(table.readable_source(), options, _spelling(table))
    chunks = sum(a.file.size for group in described.groups.values() for a in group.arrays.values())
    check_count(chunks, "this")
    if described.skipped and on_skipped != "ignore":
        listed = [f"{item.path}: {item.reason}" for item in described.skipped]
        if len(listed) > _LISTED:
            listed[_LISTED:] = [f"and {len(listed) - _LISTED} more"]
        message = f"cannot be shown as Zarr and left out: {'; '.join(listed)}"
        if on_skipped == "raise":
            raise ValueError(message)
        warnings.warn(message, UserWarning, stacklevel=3)
    return described


def _spelling(table: Any) -> str:
    return str(table.paths[0]) if table.paths else ""
