"""What may a user call to write: `store`, `create`, `append`, `compact`, ...

Thin functions: they check arguments, choose the piece that does the work, and open the result.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .. import storage
from ..opening import OpenOptions
from ..tables import Dataset, Reader
from ..writing import compaction, manifest, shards
from ..writing import encoding as encoded
from ..writing import writer as writing
from ..writing.appender import Appender
from ..writing.directory_compaction import compact_directory
from ..writing.indexing import index
from ..writing.manifest import vacuum
from ..writing.progress import parse_byte_size
from ..writing.publish import resolve_target
from .reading import open

if TYPE_CHECKING:
    from ..writing import encoded_update

__all__ = [
    "append",
    "appender",
    "compact",
    "concat",
    "create",
    "index",
    "recreate",
    "store",
    "update",
    "vacuum",
]


FORMATS = ("cstore", "columns", "colbin")
"""What `store` and `create` can write."""


def store(
    data: Any,
    path: Any,
    *,
    mode: Literal["create", "recreate"] = "create",
    format: str | None = None,
    statistics: bool = False,
    strings: Literal["unicode", "bytes"] = "unicode",
    string_width: Mapping[str, int] | None = None,
    nullable: Sequence[str] | bool | None = None,
    attrs: Mapping[str, Any] | None = None,
    column_attrs: Mapping[str, Mapping[str, Any]] | None = None,
    compact: bool = False,
    batch_size: int | str | None = "auto",
    show_progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Reader:
    """Write a table to one file, whole or not at all, and open it.

    Parameters
    ----------
    data : mapping of arrays, structured array, DataFrame, Arrow table or stream, or iterator of these
        Streams are written one record per batch, in bounded memory.
    path : str or PathLike
        Local path or fsspec URL.
    mode : {"create", "recreate"}, default "create"
        "create" raises `FileExistsError` if the file exists, "recreate" replaces it.
    format : {"cstore", "columns", "colbin"}, optional
        Default: what the suffix says (``.abcd``, ``.colbin``), else "cstore". The arguments from `statistics` to
        `batch_size`, but for `nullable`, belong to "cstore"; the other formats keep neither attributes of the data nor
        categories, only the values of these.
    statistics : bool, default False
        Add minimum and maximum per record and column, which lets predicates skip records.
    strings : {"unicode", "bytes"}, default "unicode"
        Store text as fixed-width UCS-4 (readable everywhere) or as fixed-width UTF-8.
    string_width : mapping of str to int, optional
        Width of text columns in characters (bytes for ``strings="bytes"``). Default: the longest value.
    nullable : list of str or True, optional
        Columns that get a validity companion even without nulls in the (first batch of the) data.
    attrs : mapping, optional
        Attributes of the table.
    column_attrs : mapping of str to mapping, optional
        Attributes of columns.
    compact : bool, default False
        Merge the records of a stream into one at the end.
    batch_size, show_progress
        Steps of the progress bar; the bytes written do not depend on them.
    storage_options : mapping, optional
        Passed to fsspec for URLs.
    **options
        Of the format's encoder (``compression=``, ``encoding=``, ``optimize=``, ``row_group_size=``, ... of
        "columns"); all others are passed to `open` for the returned reader.

    Returns
    -------
    Reader

    Raises
    ------
    FileExistsError
        If the file exists and mode is "create".
    TypeError, ValueError
        If the data cannot be stored; nothing is written then.
    WriterLockedError
        If another writer holds the file.
    """
    kind = _format_of_new(path, format)
    if kind != "cstore":
        _refuse_options(
            kind,
            statistics=statistics,
            strings=strings != "unicode",
            string_width=string_width,
            attrs=attrs,
            column_attrs=column_attrs,
            compact=compact,
        )
        encoding, open_options = _split_options(kind, options)
        encoded.store_encoded(
            data,
            path,
            format=kind,
            mode=mode,
            nullable=nullable,
            storage_options=storage_options,
            **encoding,
        )
        return Reader(path, storage_options=storage_options, **open_options)
    open_options = options
    _refuse_encoder_options("store", options)
    OpenOptions.checked(**open_options)
    writing.store_file(
        data,
        path,
        mode=mode,
        statistics=statistics,
        strings=strings,
        string_width=string_width,
        nullable=nullable,
        attrs=attrs,
        column_attrs=column_attrs,
        compact=compact,
        batch_size=batch_size,
        show_progress=show_progress,
        storage_options=storage_options,
    )
    return Reader(path, storage_options=storage_options, **open_options)


_FOREIGN_SUFFIXES = frozenset(
    {
        ".arrow",
        ".csv",
        ".feather",
        ".h5",
        ".hdf5",
        ".json",
        ".nc",
        ".npy",
        ".npz",
        ".orc",
        ".parquet",
        ".zarr",
    }
)


def _format_name(path: Any, given: str | None) -> str:
    """Return the format to write: the one asked for, else the one that the suffix means."""
    if given is not None:
        if given not in FORMATS:
            raise ValueError(f"format must be one of {', '.join(map(repr, FORMATS))}, got {given!r}")
        return given
    suffix = os.path.splitext(os.fspath(path))[1].lower() if isinstance(path, (str, os.PathLike)) else ""
    return encoded.SUFFIXES.get(suffix, "cstore")


def _format_of_new(path: Any, given: str | None) -> str:
    """Return the format of a file to make; a name that means another format has to come with `format=`."""
    kind = _format_name(path, given)
    suffix = os.path.splitext(os.fspath(path))[1].lower() if isinstance(path, (str, os.PathLike)) else ""
    if given is None and suffix in _FOREIGN_SUFFIXES:
        raise ValueError(
            f"{suffix} is the suffix of another format, which is not written here; .cstore, .abcd and .colbin are. "
            "format='cstore' writes such a file under this name all the same"
        )
    return kind


def _refuse_options(kind: str, **options: Any) -> None:
    for name, value in options.items():
        if value:
            raise TypeError(f"{name}= is an option of .cstore files; the {kind} format has nothing like it")


def _refuse_encoder_options(function: str, options: Mapping[str, Any]) -> None:
    """Refuse options that other formats have and `.cstore` files have not."""
    for name in options:
        for kind in encoded.ENCODERS:
            if name in encoded.encoder_options(kind):
                suffix = next(s for s, known in encoded.SUFFIXES.items() if known == kind)
                raise TypeError(
                    f"{name}= is an option of the {kind} format ({suffix}), and this is a .cstore file: "
                    f"{function}() it with that suffix or format={kind!r}, or leave the option out"
                )


def _refuse_mode(function: str, options: Mapping[str, Any]) -> None:
    if "mode" in options:
        raise TypeError(
            f"{function}() takes no mode=: create() makes a new file, recreate() replaces one, update() appends to one"
        )


def _split_options(kind: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the format's encoder, and those of `open`."""
    known = encoded.encoder_options(kind)
    encoding = {name: value for name, value in options.items() if name in known}
    opening = {name: value for name, value in options.items() if name not in known}
    try:
        OpenOptions.checked(**opening)
    except TypeError as exc:
        raise TypeError(f"{exc}; the options of the {kind} format are {', '.join(known)}") from None
    return encoding, opening


def create(
    path: Any,
    *,
    format: str | None = None,
    statistics: bool = False,
    strings: Literal["unicode", "bytes"] = "unicode",
    string_width: Mapping[str, int] | None = None,
    nullable: Sequence[str] | bool | None = None,
    attrs: Mapping[str, Any] | None = None,
    column_attrs: Mapping[str, Mapping[str, Any]] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> writing.Writer | encoded.EncodedWriter:
    """Start a new file and return its streaming writer; `FileExistsError` if the file exists.

    The options are those of `store`. Files of encoded formats appear when the writer is closed; only the writers of
    `.cstore` files, and those that `update` gives, have a `commit`.
    """
    return _new_writer(
        path,
        "create",
        format,
        options,
        statistics=statistics,
        strings=strings,
        string_width=string_width,
        nullable=nullable,
        attrs=attrs,
        column_attrs=column_attrs,
        storage_options=storage_options,
    )


def recreate(
    path: Any,
    *,
    format: str | None = None,
    statistics: bool = False,
    strings: Literal["unicode", "bytes"] = "unicode",
    string_width: Mapping[str, int] | None = None,
    nullable: Sequence[str] | bool | None = None,
    attrs: Mapping[str, Any] | None = None,
    column_attrs: Mapping[str, Mapping[str, Any]] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> writing.Writer | encoded.EncodedWriter:
    """Replace a file by a new one and return its streaming writer.

    Readers see the old file until the first commit; open ones keep it after that too. The options are those of `store`.
    """
    return _new_writer(
        path,
        "recreate",
        format,
        options,
        statistics=statistics,
        strings=strings,
        string_width=string_width,
        nullable=nullable,
        attrs=attrs,
        column_attrs=column_attrs,
        storage_options=storage_options,
    )


def _new_writer(
    path: Any,
    mode: Literal["create", "recreate"],
    format: str | None,
    options: Mapping[str, Any],
    *,
    strings: Literal["unicode", "bytes"],
    nullable: Sequence[str] | bool | None,
    storage_options: Mapping[str, Any] | None,
    **table: Any,
) -> writing.Writer | encoded.EncodedWriter:
    """Return the writer of a new file; `table` are the options of `.cstore` files alone."""
    _refuse_mode(mode, options)
    kind = _format_of_new(path, format)
    if kind != "cstore":
        _refuse_options(kind, strings=strings != "unicode", **table)
        return encoded.EncodedWriter(
            path, kind, mode=mode, nullable=nullable, storage_options=storage_options, **options
        )
    _refuse_encoder_options(mode, options)
    if options:
        raise TypeError(f"{mode}() of a .cstore file takes no option {next(iter(options))!r}")
    return writing.Writer(
        path, mode=mode, strings=strings, nullable=nullable, storage_options=storage_options, **table
    )


def update(
    path: Any,
    *,
    statistics: bool = False,
    strings: Literal["unicode", "bytes"] = "unicode",
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> writing.Writer | encoded_update.Update:
    """Append to an existing file and return its streaming writer; `FileNotFoundError` if there is none.

    `path` names one file and is never a pattern. Columns, text widths and attributes are those of the file. Without
    ``statistics=True`` an existing statistics footer of a `.cstore` file is dropped; `statistics` and `strings` concern
    these alone. `options` are those of the format's encoder.
    """
    if _is_encoded(path):
        _refuse_options(_format_name(path, None), statistics=statistics, strings=strings != "unicode")
        from ..writing import encoded_update  # brings in the other formats

        return encoded_update.Update(path, **options)
    if options:
        raise TypeError(f"update() of a .cstore file takes no option {next(iter(options))!r}")
    return writing.Writer(
        path, mode="update", statistics=statistics, strings=strings, storage_options=storage_options
    )


def append(directory: Any, data: Any, **options: Any) -> Path | str:
    """Write `data` as one new shard of a directory, or behind the rows of a ``.abcd`` or ``.colbin`` file.

    Parameters
    ----------
    directory : path or URL
        Of a directory, which is made if it does not exist, or of an existing local file of an encoded format. The shard
        is of the format of the files that are there; in a new directory, of the one that ``format=`` or ``name=`` say.
    data : table, stream, path, or open reader or dataset
        Anything that `store` takes.
    **options
        Of `writing.shards.append` for a directory (``name=``, ``format=``, ``statistics=``, ``strings=``, ... and those
        of the format's encoder); of the format's encoder for a file.

    Returns
    -------
    Path or str
        The new shard, or the file.

    Raises
    ------
    SchemaMismatchError
        If `data` do not have the columns that are there; nothing was written.
    WriterLockedError
        If another writer is at work.
    """
    if _is_encoded(directory):
        from ..writing import encoded_update

        return encoded_update.append_encoded(directory, data, **options)
    return shards.append(directory, data, open_table=open, **options)


def _is_encoded(path: Any) -> bool:
    """Return True for the name of a file of an encoded format."""
    return _format_name(path, None) != "cstore" and not os.path.isdir(path)


def compact(
    path: Any,
    out: Any = None,
    *,
    shard_bytes: int | str | None = None,
    show_progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **encoder_options: Any,
) -> Path | str:
    """Merge the records of a file into one, in place or into `out`, or small files of a directory into few.

    Parameters
    ----------
    path : path or URL
        A `.cstore` file, or a directory of files of any format.
    out : path or URL, optional
        Write here and leave `path` as it is. Of a directory this makes one file, as `concat` does.
    shard_bytes : int or str, optional
        Of a directory: files are merged up to this size, 256 MiB by default.
    show_progress : bool, optional
    storage_options : mapping, optional
    **encoder_options
        Of the format of the files of a directory, if it is an encoded one.

    Returns
    -------
    Path or str
        The path written.

    Raises
    ------
    WriterLockedError
        If a writer is at work on the file or directory.
    CommitConflictError
        If somebody else has replaced the files of the directory that were being merged.

    Notes
    -----
    Of a file, statistics are dropped and attributes stay; open readers keep the old file. The merged files of a
    directory are its next generation: no file is removed before `vacuum`, and open readers go on reading the
    old generation. Of a grid container (N-D data) see `colstore_io.grid.compact_grid`.
    """
    directory = _directory(path, storage_options)
    if directory is None:
        for name in ("shard_bytes", *encoder_options):
            if name != "shard_bytes" or shard_bytes is not None:
                raise TypeError(f"{name}= is about directories, and {path} is a file")
        return compaction.compact_file(
            path, out, show_progress=show_progress, storage_options=storage_options
        )
    newest = manifest.newest_generation(directory)
    if out is not None:
        if encoder_options or shard_bytes is not None:
            raise TypeError(
                "one file of a directory is what concat() and store() make; they take options of formats"
            )
        concat([path], out, storage_options=storage_options).close()
        return resolve_target(out, storage_options=storage_options).result
    if newest is not None and newest.kind == "grid":
        from ..grid import compact_grid

        compact_grid(path, storage_options=storage_options)
        return resolve_target(path, storage_options=storage_options).result
    options: dict[str, Any] = dict(encoder_options)
    if shard_bytes is not None:
        options["shard_bytes"] = shard_bytes if isinstance(shard_bytes, int) else parse_byte_size(shard_bytes)
    compact_directory(path, _opened, storage_options=storage_options, **options)
    return resolve_target(path, storage_options=storage_options).result


def _directory(path: Any, storage_options: Mapping[str, Any] | None) -> storage.Location | None:
    """Return the location of a directory, None for what is none."""
    if not isinstance(path, (str, os.PathLike)):
        return None
    target = resolve_target(path, storage_options=storage_options)
    if target.local_path is not None:
        return manifest.directory_location(target.local_path) if os.path.isdir(target.local_path) else None
    if storage.resolve(path, storage_options=storage_options).kind != "directory":
        return None
    return target.location


def _opened(locations: Sequence[storage.Location]) -> Dataset:
    """Open the files of a directory that are to be merged."""
    if locations[0].local_path is not None:
        return Dataset([f"{location.local_path}" for location in locations])
    return Dataset([location.path for location in locations], filesystem=locations[0].filesystem())


def concat(
    sources: Any, out: Any = None, *, memory_budget: int | None = None, **open_options: Any
) -> Reader | Dataset:
    """Join tables row-wise: lazily as a dataset, or into the file `out`.

    Parameters
    ----------
    sources : list of paths, readers and datasets
    out : path, optional
        Written whole or not at all, as one record, and replaced if it exists. Must not be one of the sources. Where
        these are files of an encoded format, or the suffix of `out` names one, it is what `store` makes of the dataset.
    memory_budget : int, optional
        Bytes held at once where the data cannot be copied as byte ranges.

    Returns
    -------
    Dataset, or Reader on `out`
    """
    dataset = Dataset(sources if isinstance(sources, (list, tuple)) else [sources], **open_options)
    if out is None:
        return dataset
    if dataset.source.plan.format != "cstore" or _format_name(out, None) != "cstore":
        with dataset:
            target = resolve_target(
                out,
                storage_options=open_options.get("storage_options"),
                filesystem=open_options.get("filesystem"),
            )
            compaction.refuse_own_target(dataset.readable_source().files, target)
            return store(dataset, out, mode="recreate", **open_options)
    try:
        shards.concat_table(
            dataset,
            out,
            memory_budget=memory_budget,
            storage_options=open_options.get("storage_options"),
            filesystem=open_options.get("filesystem"),
        )
    finally:
        dataset.close()
    return Reader(out, **open_options)


appender = Appender
"""Start a streaming appender to a directory; see `Appender`."""
