"""A directory that grows by whole files: `append` writes one shard.

A shard is written under the lock of the directory, appears whole or not at all, and is never changed afterwards
(cstore.md 10.1, cstore-behaviour.md 5.1). In a directory with a generation manifest the next generation is published
behind it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ..fields import PhysicalColumn, Schema
from ..storage import ByteFile
from .appender import DEFAULT_NAME, Appender, ingest_options
from .batch_schema import Attributes, batch_columns
from .compaction import concat_files, copy_file, finishing, merged_schema, same_target, write_concatenation
from .encoded_shards import check_encoded_options, write_encoded_shard
from .members import format_of_name
from .merging import SourceFile, open_sources, read_sources
from .progress import check_batch_size
from .publish import Destination, Target
from .shard_directory import ShardDirectory
from .storing import write_table

__all__ = ["DEFAULT_NAME", "Appender", "append", "concat_table"]


def append(
    directory: str | os.PathLike[str],
    data: Any,
    *,
    name: str | None = None,
    format: str | None = None,
    statistics: bool = False,
    strings: Literal["unicode", "bytes"] = "unicode",
    string_width: Mapping[str, int] | None = None,
    nullable: bool | Sequence[str] | None = None,
    batch_size: int | str | None = "auto",
    show_progress: bool | None = None,
    compact: bool = False,
    attrs: Mapping[str, Any] | None = None,
    column_attrs: Mapping[str, Mapping[str, Any]] | None = None,
    storage_options: Any = None,
    filesystem: Any = None,
    open_table: Callable[..., Any] | None = None,
    **encoder_options: Any,
) -> Path | str:
    """Write `data` as one new shard of a directory.

    Parameters
    ----------
    directory : path or URL
        Made if it does not exist. Its lock is held for the duration (object stores have none).
    data : table, stream, path, or open reader or dataset
        Anything that `store` takes. Among `.cstore` files, what is backed by one of them is copied byte for byte,
        several become one record.
    name : str, optional
        File name, or a template with an ``{index}`` field: the next number is used. Default: ``shard_00000`` and so on
        with the suffix of the format, or, of encoded formats in a directory with a manifest, a name of its own.
    format : {"cstore", "columns", "colbin"}, optional
        Default: that of the files that there are, else what `name` says, else "cstore".
    statistics : bool
        Add smallest and largest value per record and column. Files are rewritten as one record then.
    strings, string_width, nullable
        How values become columns; see `ingest.ingest`. An existing first shard decides over all of it.
    batch_size, show_progress, compact, attrs, column_attrs
        As in `store`. Like `statistics`, `strings` and `string_width` of `.cstore` files alone.
    open_table : callable, optional
        Opens a path that is not that of a `.cstore` file, or that of one among files of another format.
    **encoder_options
        Of an encoded format: ``row_group_size``, ``compression``, ...; see `encoding.encoder_for`.

    Returns
    -------
    Path or str
        The new shard.

    Raises
    ------
    SchemaMismatchError
        If `data` do not have the columns of the first shard; nothing was written.
    FileExistsError
        If `name` is no template and exists.
    ValueError
        If `name` is no shard name, the directory holds another format, or it would be appended to itself.
    WriterLockedError
        If another writer holds the directory.
    CommitConflictError
        If another writer published the next generation of a directory with manifests; nothing was added.
    """
    batch_size = check_batch_size(batch_size)
    place = ShardDirectory(directory, name, storage_options, filesystem, format)
    destinations: list[Destination] = []

    def make() -> Destination:
        destinations.append(place.new_shard())
        return destinations[-1]

    try:
        cstore = {
            "statistics": statistics,
            "strings": strings,
            "string_width": string_width,
            "attrs": attrs,
            "column_attrs": column_attrs,
            "compact": compact,
        }
        check_encoded_options(place.format, cstore, encoder_options)
        with contextlib.ExitStack() as stack:
            if open_table is not None and _must_be_opened(data, place.format):
                data = stack.enter_context(
                    open_table(data, storage_options=storage_options, filesystem=filesystem)
                )
            if place.format != "cstore":
                _refuse_own_files(data, place)
                write_encoded_shard(
                    data,
                    make,
                    path=place.target.spelling,
                    kind=place.format,
                    first=None if place.first is None else place.first.schema,
                    where="" if place.first is None else place.first.path,
                    nullable=nullable,
                    options=encoder_options,
                )
                return place.published(destinations[-1])
            sources = _file_sources(data, stack, storage_options, filesystem)
            if sources is not None:
                _append_files(place, sources, make, statistics, show_progress)
            else:
                write_table(
                    data,
                    make,
                    name=place.name.template,
                    statistics=statistics,
                    options=ingest_options(place.first, strings, string_width, nullable),
                    attributes=Attributes(attrs, column_attrs),
                    batch_size=batch_size,
                    show_progress=show_progress,
                    compact=compact,
                    check=place.check_batch,
                )
        return place.published(destinations[-1])
    finally:
        place.release()


def _must_be_opened(data: Any, kind: str) -> bool:
    """Tell whether `data` names files whose bytes cannot be copied into a file of format `kind`."""
    if not isinstance(data, (str, os.PathLike)):
        return False
    return kind != "cstore" or format_of_name(os.fspath(data).lower()) not in (None, "cstore")


def _refuse_own_files(data: Any, place: ShardDirectory) -> None:
    if hasattr(data, "readable_source") and hasattr(data, "paths"):
        _refuse_self(data.readable_source().files, place)


def _refuse_self(files: Iterable[ByteFile], place: ShardDirectory) -> None:
    """Raise `ValueError` if one of `files` lies in the directory that they are to be appended to."""
    for file in files:
        location = file.location
        if location is None:
            continue
        parent = location.parent()
        if same_target(Target("", parent.local_path, parent), place.target):
            raise ValueError(
                f"cannot append {place.target.spelling} to itself: {location.spelling} is one of its files"
            )


def _file_sources(
    data: Any, stack: contextlib.ExitStack, storage_options: Any, filesystem: Any
) -> list[SourceFile] | None:
    """Return the files behind `data`, or None when it is data in memory or a stream."""
    if isinstance(data, (str, os.PathLike)):
        sources = open_sources([data], storage_options=storage_options, filesystem=filesystem)
        for source in sources:
            stack.callback(source.file.close)
        if not sources:
            raise ValueError(f"nothing to append: {os.fspath(data)!r} holds no files")
        return sources
    if hasattr(data, "readable_source") and hasattr(data, "paths"):  # a reader or dataset of a higher floor
        source = data.readable_source()
        files: Sequence[ByteFile] = source.files
        if not files:
            raise ValueError("nothing to append: the dataset has no files")
        return read_sources(files) if source.plan.format == "cstore" else None
    return None


def _append_files(
    place: ShardDirectory,
    sources: list[SourceFile],
    make: Callable[[], Destination],
    statistics: bool,
    show_progress: bool | None,
) -> None:
    _refuse_self((source.file for source in sources), place)
    first = place.first
    schema = merged_schema([source.meta for source in sources])
    copied = len(sources) == 1 and not statistics and sources[0].meta.layout == "C"
    if first is not None:
        if copied and _columns(sources[0].meta.columns) != _columns(first.columns):
            copied = False  # it may only lack a companion that the first shard has
        schema = _like_first(schema, first.schema)
        place.check(batch_columns(schema), "the source")
    destination = make()
    with finishing(destination):
        if copied:
            copy_file(sources[0], destination)
        else:
            write_concatenation(
                sources, destination, schema, statistics=statistics, show_progress=show_progress
            )


def _columns(columns: Sequence[PhysicalColumn]) -> list[tuple[str, str]]:
    return [(column.name, column.dtype.str) for column in columns]


def _like_first(schema: Schema, first: Schema) -> Schema:
    """Give fields the companions that the first shard has for them: the sources' rows are all valid then."""
    fields = []
    for field in schema.fields:
        if field.name in first and first[field.name].validity is not None:
            field = replace(field, validity=first[field.name].validity)
        fields.append(field)
    return Schema(tuple(fields), schema.attrs)


def concat_table(
    table: Any,
    out: str | os.PathLike[str],
    *,
    memory_budget: int | None = None,
    storage_options: Any = None,
    filesystem: Any = None,
) -> Path | str:
    """Write an open reader or dataset as one single-record file; see `compaction.concat_files`.

    `memory_budget` is accepted for symmetry: bytes are copied in pieces of 8 MiB whatever it says.
    """
    source = table.readable_source()
    if not source.files:
        raise ValueError("nothing to write: concat needs at least one source with a file")
    return concat_files(
        read_sources(source.files),
        out,
        schema=source.schema,
        storage_options=storage_options,
        filesystem=filesystem,
    )
