"""Many small shards of a directory become few: a new generation that holds the same rows.

No file is changed and none is removed. Runs of neighbours are written as new files under names of their own, then one
manifest names these in their place (integrations.md 2.4). Whoever reads the old generation goes on reading it, a crash
at any moment leaves one of the two, and `manifest.vacuum` removes what no generation names any more.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from .. import storage
from ..errors import CommitConflictError, FormatError
from ..formats import ShardMeta
from ..storage import Location
from . import manifest
from .compaction import finishing, merged_schema, write_concatenation
from .encoding import EncodedWriter, whole
from .locks import DirectoryLock
from .manifest import FileEntry, GenerationManifest
from .manifest_layout import file_entry, schema_objects
from .members import SUFFIX_OF, format_of_table, member_entries, member_meta, plain_members
from .merging import SourceFile, read_sources
from .publish import Destination, Replacement, Upload
from .shard_directory import part_name, remove_file

__all__ = ["SHARD_BYTES", "Group", "OpenTable", "compact_directory", "plan_groups"]

SHARD_BYTES = 256 << 20
"""Bytes of files that are merged into one, at most."""

ATTEMPTS = 5

OpenTable: TypeAlias = "Callable[[Sequence[Location]], AbstractContextManager[Any]]"
"""Opens data files as one table that can be written as a stream."""


@dataclass(frozen=True, slots=True)
class Group:
    """Files that become one.

    Attributes
    ----------
    first : int
        Where the new file stands among the files of the old generation.
    members : tuple of int
        Their positions in the old generation, ascending.
    """

    first: int
    members: tuple[int, ...]


def plan_groups(files: Sequence[FileEntry], shard_bytes: int, *, by_folder: bool) -> list[Group]:
    """Return which files to merge.

    Parameters
    ----------
    files : sequence of FileEntry
        In row order.
    shard_bytes : int
        Files of a group have at most this many bytes together. Larger ones are left alone.
    by_folder : bool
        Merge files of one folder also where files of others stand between them, which moves rows; else neighbours only.

    Returns
    -------
    list of Group
        Every file is in at most one, and a file that would be alone in none, unless it has several records.
    """
    runs: dict[Any, list[list[int]]] = {}
    last: Any = None
    for number, entry in enumerate(files):
        folder = entry.path.rpartition("/")[0], repr(sorted((entry.partition or {}).items()))
        known = runs.setdefault(folder, [])
        adjacent = by_folder or folder == last
        last = folder
        if known and adjacent and sum(files[n].size for n in known[-1]) + entry.size <= shard_bytes:
            known[-1].append(number)
        else:
            known.append([number])
    groups = [
        Group(run[0], tuple(run))
        for of_folder in runs.values()
        for run in of_folder
        if len(run) > 1 or (files[run[0]].records > 1 and files[run[0]].size <= shard_bytes)
    ]
    return sorted(groups, key=lambda group: group.first)


def compact_directory(
    directory: Any,
    open_table: OpenTable,
    *,
    shard_bytes: int = SHARD_BYTES,
    storage_options: Any = None,
    filesystem: Any = None,
    **encoder_options: Any,
) -> GenerationManifest | None:
    """Merge small shards of a directory and publish the result as its next generation.

    Parameters
    ----------
    directory : path or URL
        Its lock is held for the duration (object stores have none).
    open_table : callable
        Opens shards of encoded formats; see `OpenTable`. Files of `.cstore` are copied by byte ranges.
    shard_bytes : int
        See `plan_groups`.
    **encoder_options
        Of an encoded format.

    Returns
    -------
    GenerationManifest or None
        None if there was nothing to merge.

    Raises
    ------
    FileNotFoundError
        If there are no shards.
    WriterLockedError
        If an appender is at work on the directory.
    CommitConflictError
        If other writers took away, or replaced, files that were merged here. Those who only add files are no conflict.

    Notes
    -----
    Rows keep their order, but for tables with `partition_on`, where the rows of a folder come together. A directory
    without a manifest gets one of its files as they are first.
    """
    place = manifest.directory_location(directory, storage_options=storage_options, filesystem=filesystem)
    lock: DirectoryLock | None = None
    if place.local_path is not None:
        if not os.path.isdir(place.local_path):
            raise FileNotFoundError(2, os.strerror(2), place.spelling)
        lock = DirectoryLock(place.local_path)
    try:
        return _compact(place, open_table, shard_bytes, encoder_options)
    finally:
        if lock is not None:
            lock.release()


def _compact(
    place: Location, open_table: OpenTable, shard_bytes: int, options: dict[str, Any]
) -> GenerationManifest | None:
    newest = manifest.newest_table(place)
    members = plain_members(place) if newest is None else manifest.member_locations(newest, place)
    if not members:
        raise FileNotFoundError(2, "the directory has no shards", place.spelling)
    old = _described(place, members) if newest is None else newest
    groups = plan_groups(old.files, shard_bytes, by_folder=bool(old.partition_on))
    if not groups:
        return None
    if newest is None:
        # From now on new files in the directory are no members before a manifest names them.
        manifest.publish(place, old)
    written: dict[int, FileEntry] = {}
    try:
        for number, group in enumerate(groups):
            written[group.first] = _merged(place, old, group, number, open_table, options)
        return _publish(place, old, groups, written)
    except BaseException:
        for entry in written.values():
            with contextlib.suppress(OSError):
                remove_file(place.child(entry.path))
        raise


def _described(place: Location, members: Sequence[Location]) -> GenerationManifest:
    """Return the first generation of a directory that has none: its members as they are."""
    kind = format_of_table(None, members)
    assert kind is not None
    schema = schema_objects(member_meta(members[0])) if kind == "cstore" else ()
    entries = member_entries(place, members, schema)
    return GenerationManifest(
        generation=manifest.next_number(place),
        commit_id=manifest.new_commit_id(),
        files=tuple(entries),
        n_rows=sum(entry.rows for entry in entries),
        schema=schema,
        format=kind,
    )


def _publish(
    place: Location, old: GenerationManifest, groups: Sequence[Group], written: dict[int, FileEntry]
) -> GenerationManifest:
    """Publish `old` with the merged files in place of their sources, or what others have made of `old` meanwhile."""
    gone = {old.files[n].path for group in groups for n in group.members}
    instead = {old.files[group.first].path: written[group.first] for group in groups}
    base = old
    for attempt in range(ATTEMPTS):
        number = manifest.next_number(place)  # taken first: who publishes from now on takes this one too
        kept = [
            instead.get(entry.path, entry)
            for entry in base.files
            if entry.path not in gone or entry.path in instead
        ]
        following = replace(
            base,
            generation=number,
            commit_id=manifest.new_commit_id(),
            files=tuple(kept),
            n_rows=sum(entry.rows for entry in kept),
        )
        try:
            _check_newest(place, base)
            manifest.publish(place, following)
            return following
        except CommitConflictError:
            newest = manifest.newest_table(place)
            if (
                attempt == ATTEMPTS - 1
                or newest is None
                or not gone <= {entry.path for entry in newest.files}
            ):
                raise
            base = newest
    raise AssertionError("unreachable")


def _check_newest(place: Location, base: GenerationManifest) -> None:
    """Raise `CommitConflictError` if another generation came after `base`, whose files would be lost."""
    newest = manifest.newest_table(place)
    if newest is None or newest.commit_id != base.commit_id:
        raise CommitConflictError(17, "another writer has published a generation meanwhile", place.spelling)


def _merged(
    place: Location,
    old: GenerationManifest,
    group: Group,
    number: int,
    open_table: OpenTable,
    options: dict[str, Any],
) -> FileEntry:
    """Write the rows of a group as one file beside its sources, and describe it."""
    entries = [old.files[n] for n in group.members]
    folder = entries[0].path.rpartition("/")[0]
    name = part_name(number, SUFFIX_OF[old.format])
    relative = f"{folder}/{name}" if folder else name
    location, sources = place.child(relative), [place.child(entry.path) for entry in entries]

    def destination() -> Destination:
        if location.local_path is None:
            return Upload(location)  # nobody else draws this name
        return Replacement(location.local_path, exclusive=True)

    if old.format == "cstore":
        _concatenate(sources, destination)
    else:
        with (
            open_table(sources) as table,
            whole(EncodedWriter(location.spelling, old.format, destination=destination, **options)) as writer,
        ):
            writer.write(table)
    try:
        meta = member_meta(location)
        _check_rows(meta, sum(entry.rows for entry in entries))
    except BaseException:
        with contextlib.suppress(OSError):
            remove_file(location)
        raise
    return file_entry(meta, relative, schema=old.schema, partition=entries[0].partition)


def _check_rows(meta: ShardMeta, n_rows: int) -> None:
    if meta.n_rows != n_rows:  # a shard does not hold what its manifest says, or changed while it was read
        raise FormatError(
            f"holds {meta.n_rows} rows after merging; the manifest has {n_rows} for its sources",
            path=meta.path,
        )


def _concatenate(locations: Sequence[Location], destination: Callable[[], Destination]) -> None:
    opened = storage.open_files(list(locations))
    try:
        sources: list[SourceFile] = read_sources([f for f, _ in opened], heads=[head for _, head in opened])
        metas = [source.meta for source in sources]
        bounded = all(meta.statistics is not None or meta.n_records == 0 for meta in metas)
        target = destination()
        with finishing(target):
            write_concatenation(
                sources, target, merged_schema(metas), statistics=bounded, show_progress=False
            )
    finally:
        for file, _ in opened:
            file.close()
