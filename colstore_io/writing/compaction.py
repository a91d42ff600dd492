"""Many records, or many files, become one single-record file (cstore.md 8.5; cstore-behaviour.md 5, "concat")."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SchemaMismatchError
from ..fields import Field, Schema
from ..formats import ShardMeta
from ..formats.cstore.encode import stored_dtype
from ..formats.cstore.extras import column_objects, companion_name, top_level_extra
from ..formats.cstore.footer import check_statistics_columns
from ..formats.cstore.header import COUNTERS_OFFSET, encode_counters
from ..formats.cstore.manifest import encode_manifest, physical_columns
from ..storage import ByteFile
from ..storage.filesystems import local_token
from .locks import LockedFile, open_locked
from .merging import OutputColumn, SourceFile, add_statistics, open_sources, write_single_record
from .output import AlignedOutput, start_writing_back, write_at
from .progress import report_writes
from .publish import Destination, Replacement, Target, Upload, resolve_target

__all__ = [
    "compact_file",
    "concat_files",
    "copy_file",
    "finishing",
    "merge_records",
    "merged_schema",
    "refuse_own_target",
    "same_target",
    "write_concatenation",
]

_COPY_BYTES = 16 << 20
_COUNTED_BYTES = 28
"""The part of the counters block that means something: three integers and their checksum."""


def compact_file(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    show_progress: bool | None = None,
    storage_options: Any = None,
    filesystem: Any = None,
) -> Path | str:
    """Merge the records of a `.cstore` file into one (cstore.md 8.5).

    Parameters
    ----------
    path : path or URL
        The file. Its lock is held for the duration.
    out : path or URL, optional
        Where to write the result, replacing what is there. Without it, or when it is `path` itself, the file is
        replaced in place: through ``<name>.compacting`` beside it and a rename, so that readers keep the old one.
    show_progress : bool, optional
        None shows a bar on a terminal.

    Returns
    -------
    Path or str
        What was written: `out`, or `path`.

    Raises
    ------
    FileNotFoundError
        If `path` does not exist.
    WriterLockedError
        If a writer is at work on `path`, or on `out`.
    FormatError
        If `path` is damaged; nothing was changed.

    Notes
    -----
    A file with one record or none in the current layout is left alone in place, and copied byte for byte to `out`
    (statistics included). Otherwise the statistics footer is dropped; column objects and the extra key of
    cstore.md 4.2 stay. Files in the two older layouts come out in the current one. Memory use is constant.
    """
    source_target = resolve_target(path, storage_options=storage_options, filesystem=filesystem)
    target = source_target
    if out is not None:
        target = resolve_target(out, storage_options=storage_options, filesystem=filesystem)
    in_place = same_target(source_target, target)
    with contextlib.ExitStack() as stack:
        lock: LockedFile | None = None
        if source_target.local_path is not None:
            lock = _lock_source(source_target.local_path, needs_write=in_place)
            stack.callback(lock.release)
        location = source_target.local_path and Path(source_target.local_path)
        source = open_sources([location or path], storage_options=storage_options, filesystem=filesystem)[0]
        stack.callback(source.file.close)
        finished = len(source.meta.record_rows) <= 1 and source.meta.layout == "C"
        if finished and in_place:
            return target.result
        if not in_place or lock is None:
            destination = _destination(target)
        else:
            work = os.path.realpath(lock.path)
            destination = Replacement(lock.path, lock=lock, work_path=f"{work}.compacting")
        with finishing(destination):
            if finished:
                copy_file(source, destination)
            else:
                merge_records(source, destination, show_progress=show_progress)
    return target.result


def _lock_source(path: str, *, needs_write: bool) -> LockedFile:
    try:
        return open_locked(path)
    except PermissionError:
        if needs_write:
            raise
        return open_locked(path, os.O_RDONLY)  # a read-only file may be compacted to another place


def _destination(target: Target) -> Destination:
    if target.location is not None:
        return Upload(target.location)
    assert target.local_path is not None
    return Replacement(target.local_path)


@contextlib.contextmanager
def finishing(destination: Destination) -> Iterator[None]:
    """Sync and publish when the block succeeds; remove the work file when it fails."""
    try:
        yield
        destination.sync()
        destination.publish()
    except BaseException:
        destination.give_up()
        raise
    destination.close()


def merge_records(
    source: SourceFile, destination: Destination, *, show_progress: bool | None = None, footer: bytes = b""
) -> None:
    """Write the records of `source` as one record into the (empty) `destination`, without a sync.

    Parameters
    ----------
    footer : bytes, optional
        Statistics footer that describes the one record.
    """
    columns = [OutputColumn(c.dtype, (c.name,)) for c in source.meta.columns]
    manifest = encode_manifest([c.manifest for c in source.meta.columns], source.meta.extra)
    output = AlignedOutput(destination.fd, keep=not destination.is_spool)
    with _bar(output, columns, [source], show_progress, "compact"):
        write_single_record(output, manifest, columns, [source], footer)


def _bar(
    output: AlignedOutput,
    columns: Sequence[OutputColumn],
    sources: Sequence[SourceFile],
    show_progress: bool | None,
    description: str,
) -> contextlib.AbstractContextManager[None]:
    row_bytes = sum(column.dtype.itemsize for column in columns)
    n_rows = sum(source.meta.n_rows for source in sources)
    return report_writes(
        output,
        show_progress,
        total=n_rows * row_bytes,
        row_bytes=row_bytes,
        n_columns=len(columns),
        batch_size="auto",
        description=description,
    )


def copy_file(source: SourceFile, destination: Destination) -> None:
    """Copy a file byte for byte into the (empty) `destination`, without a sync; by the kernel where it can."""
    file, meta = source.file, source.meta
    if not _copy_by_kernel(file, destination.fd, keep=not destination.is_spool):
        output = AlignedOutput(destination.fd, keep=not destination.is_spool)
        offset = 0
        while offset < file.size:
            length = min(_COPY_BYTES, file.size - offset)
            output.append([memoryview(file.read(offset, length))])
            offset += length
        output.flush()
    # A writer may have committed while its file was copied: the copy then says what was there when we opened it.
    counters = encode_counters(meta.n_records, meta.n_rows, meta.stats_offset)
    if (
        meta.layout == "C"
        and os.pread(destination.fd, _COUNTED_BYTES, COUNTERS_OFFSET) != counters[:_COUNTED_BYTES]
    ):
        write_at(destination.fd, [memoryview(counters)], COUNTERS_OFFSET)


def _copy_by_kernel(file: ByteFile, fd: int, *, keep: bool) -> bool:
    path = None if file.location is None else file.location.local_path
    if path is None or not hasattr(os, "copy_file_range"):
        return False
    try:
        with open(path, "rb") as handle:
            if local_token(os.fstat(handle.fileno())) != file.token:
                return False  # not the file that was opened
            done = 0
            while done < file.size:
                wanted = min(_COPY_BYTES, file.size - done)
                copied = os.copy_file_range(handle.fileno(), fd, wanted, done, done)
                if copied == 0:
                    return False
                if keep and copied == _COPY_BYTES:
                    start_writing_back(fd, done, copied)
                done += copied
    except OSError:  # not on this file system, or not between these two
        return False
    return True


# ----------------------------------------------------------------------------------------------------------
# Concatenation


def concat_files(
    sources: Sequence[SourceFile | str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    schema: Schema | None = None,
    show_progress: bool | None = None,
    storage_options: Any = None,
    filesystem: Any = None,
) -> Path | str:
    """Write the rows of several `.cstore` files, one after the other, as one single-record file.

    Parameters
    ----------
    sources : sequence of paths, URLs or SourceFile
        In row order; a file may occur more than once.
    out : path or URL
        Replaced atomically; the lock of an existing file is held meanwhile.
    schema : Schema, optional
        Columns of the result, by name among those of the sources. Default: `merged_schema`.
    show_progress : bool, optional
        None shows a bar on a terminal.

    Returns
    -------
    Path or str
        `out`.

    Raises
    ------
    ValueError
        If there is nothing to write, or `out` is one of the sources.
    SchemaMismatchError
        If the sources do not have the same columns.
    WriterLockedError
        If a writer is at work on `out`.

    Notes
    -----
    Equal data give equal bytes, however they were split before (cstore.md 8.6). Column and table attributes are
    those of the first source. A nullable column gets all-valid entries for sources without its companion.
    """
    target = resolve_target(out, storage_options=storage_options, filesystem=filesystem)
    with contextlib.ExitStack() as stack:
        opened: list[SourceFile] = []
        for source in sources:
            if isinstance(source, SourceFile):
                opened.append(source)
                continue
            for own in open_sources([source], storage_options=storage_options, filesystem=filesystem):
                stack.callback(own.file.close)
                opened.append(own)
        if not opened:
            raise ValueError("nothing to write: concat needs at least one source with a file")
        refuse_own_target([source.file for source in opened], target)
        if schema is None:
            schema = merged_schema([source.meta for source in opened])
        destination = _destination(target)
        with finishing(destination):
            write_concatenation(opened, destination, schema, show_progress=show_progress)
    return target.result


def write_concatenation(
    sources: Sequence[SourceFile],
    destination: Destination,
    schema: Schema,
    *,
    statistics: bool = False,
    show_progress: bool | None = None,
) -> None:
    """Write the rows of `sources` as one record into the (empty) `destination`, without a sync.

    Parameters
    ----------
    schema : Schema
        Columns of the result, by name among those of the sources.
    statistics : bool
        Add the bounds of the record in a footer.
    """
    if not schema.fields:
        raise ValueError("nothing to write: no columns")
    schema = _storable(schema)
    objects = column_objects(schema)
    columns = _output_columns(schema, [source.meta for source in sources])
    manifest = encode_manifest(objects, top_level_extra(schema.attrs))
    if statistics:
        check_statistics_columns(physical_columns(objects))
    output = AlignedOutput(destination.fd, keep=not destination.is_spool)
    with _bar(output, columns, sources, show_progress, "concat"):
        write_single_record(output, manifest, columns, sources)
    if statistics:
        add_statistics(
            output, manifest, physical_columns(objects), sum(source.meta.n_rows for source in sources)
        )


def _storable(schema: Schema) -> Schema:
    fields = tuple(replace(f, dtype=stored_dtype(f.dtype)) for f in schema.fields)
    return Schema(fields, schema.attrs)


def _output_columns(schema: Schema, metas: Sequence[ShardMeta]) -> list[OutputColumn]:
    columns: list[OutputColumn] = []
    for field in schema.fields:
        columns.append(OutputColumn(field.dtype, tuple(field.name for _ in metas)))
        if field.validity is not None:
            names = tuple(meta.schema[field.name].validity for meta in metas)
            columns.append(OutputColumn(np.dtype(np.bool_), names))
    return columns


def merged_schema(metas: Sequence[ShardMeta]) -> Schema:
    """Return the common schema of files, in the order and with the attributes of the first.

    A companion that only some of them have is no mismatch (cstore-behaviour.md 5).

    Raises
    ------
    SchemaMismatchError
        Naming the file and the columns or dtypes that differ.
    """
    first = metas[0].schema
    fields = list(first.fields)
    taken = {column.name for column in metas[0].columns}
    for meta in metas[1:]:
        own = meta.schema
        if own is first:
            continue
        missing = [name for name in first.names if name not in own]
        unexpected = [name for name in own.names if name not in first]
        if missing or unexpected:
            raise SchemaMismatchError(
                f"schema mismatch in {meta.path}: missing columns {missing}, unexpected columns {unexpected}"
            )
        for position, field in enumerate(fields):
            other = own[field.name]
            if stored_dtype(other.dtype) != stored_dtype(field.dtype) or other.tz != field.tz:
                raise SchemaMismatchError(
                    f"schema mismatch in {meta.path}: dtype of column {field.name!r} is {_type_text(other)}, "
                    f"expected {_type_text(field)} as in {metas[0].path}"
                )
            if field.validity is None and other.validity is not None:
                fields[position] = replace(field, validity=companion_name(field.name, taken))
                taken.add(f"{fields[position].validity}")
    return Schema(tuple(fields), first.attrs)


def _type_text(field: Field) -> str:
    return f"{field.dtype.str} ({field.tz})" if field.tz else field.dtype.str


def same_target(a: Target, b: Target) -> bool:
    if a.local_path is not None and b.local_path is not None:
        if os.path.realpath(a.local_path) == os.path.realpath(b.local_path):
            return True
        with contextlib.suppress(OSError):
            return os.path.samefile(a.local_path, b.local_path)
        return False
    return a.location is not None and b.location is not None and a.location.url == b.location.url


def refuse_own_target(files: Iterable[ByteFile], target: Target) -> None:
    """Raise `ValueError` if `target` is one of `files`, which are to be joined into it."""
    for file in files:
        if _is_target(file, target):
            raise ValueError(f"out ({target.spelling}) is also one of the sources")


def _is_target(file: ByteFile, target: Target) -> bool:
    if file.location is None:
        return False
    return same_target(Target(file.spelling, file.location.local_path, file.location), target)
