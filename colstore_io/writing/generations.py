"""Many shards, one commit: how a job of many tasks adds a generation to a directory (integrations.md 2.4).

`plan_generation` looks at the directory once and decides which generation the job will publish. Tasks write shards
under names that nobody else draws, so that a task may run twice. `commit` publishes the manifest, exclusively; what the
job is called (`commit_id`) is drawn with the plan, so that a commit that runs twice finds itself and is content.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import quote

from .. import storage
from ..errors import CommitConflictError, FormatError, SchemaMismatchError
from ..fields import Schema
from ..formats import ShardMeta
from ..ingest import Batch, ingest
from ..ingest.variable import ingest_columns
from ..storage import Location
from . import manifest
from .batch_schema import Attributes
from .encoding import EncodedWriter, whole
from .manifest import FileEntry, GenerationManifest
from .manifest_layout import file_entry, schema_objects
from .members import SUFFIX_OF, format_of_table, member_entries, member_meta, plain_members
from .publish import Destination, Replacement, Upload, resolve_target
from .shard_directory import part_name
from .storing import write_table

__all__ = [
    "GenerationPlan",
    "Shard",
    "WriteMode",
    "commit",
    "discard",
    "forget_listings",
    "plan_generation",
    "write_shard",
]

WriteMode = Literal["create", "overwrite", "append"]

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""What other tools call the folder of missing values."""

_OWN_NAME = re.compile(r"part-[0-9]+-[^.]+\..+", re.ASCII)


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """What every task of a job knows. Picklable, no handle.

    Attributes
    ----------
    place : Location
        The directory.
    format : {"cstore", "columns", "colbin"}
    generation : int
        Number that the job will publish.
    commit_id : str
        Names the job.
    base : int or None
        Generation whose files stay in front of the new ones (append); 0 stands for the members of a directory without
        a manifest, None for nothing.
    like : Schema or None
        Columns of the shards. None: they are those of the data.
    partition_on : tuple of str
    statistics : bool
    rows_per_record : int or None
    attrs : mapping
    nullable : tuple of str
        Columns of encoded formats that may hold nulls.
    options : mapping
        Of the encoder.
    labels : sequence of str or None
        What the names of files say besides number and random part, by the number of the partition.
    """

    place: Location
    format: str
    generation: int
    commit_id: str
    base: int | None
    like: Schema | None = None
    partition_on: tuple[str, ...] = ()
    statistics: bool = True
    rows_per_record: int | None = None
    attrs: Mapping[str, Any] | None = None
    nullable: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    labels: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Shard:
    """A file that a task has written.

    Attributes
    ----------
    path : str
        Relative to the directory.
    rows : int
    partition : mapping or None
        Values of the columns that its folders are named after.
    meta : ShardMeta or None
        Its header; None of formats that tell it themselves.
    size : int
    records : int
    schema : Schema or None
        Its columns, where there is no `meta`.
    layout : mapping or None
        What a manifest says of it, where there is no `meta`.
    """

    path: str
    rows: int
    partition: Mapping[str, Any] | None
    meta: ShardMeta | None
    size: int
    records: int
    schema: Schema | None = None
    layout: Mapping[str, Any] | None = None


def plan_generation(
    directory: Any,
    *,
    mode: WriteMode,
    format: str | None = None,
    storage_options: Any = None,
    filesystem: Any = None,
) -> GenerationPlan:
    """Look at a directory, which need not exist, and decide which generation comes next. Nothing is written.

    `format` is by default that of the files that are appended to, else "cstore".

    Raises
    ------
    FileExistsError
        With ``"create"``, if there is a table already. What an interrupted job left is no table.
    ValueError
        If the mode or the format is unknown, the format is not that of the files there, or ``"overwrite"`` is asked of
        the working directory.
    """
    if mode not in ("create", "overwrite", "append"):
        raise ValueError(f"mode must be 'create', 'overwrite' or 'append', got {mode!r}")
    if format is not None and format not in SUFFIX_OF:
        raise ValueError(f"format must be one of {', '.join(SUFFIX_OF)}, got {format!r}")
    target = resolve_target(directory, storage_options=storage_options, filesystem=filesystem)
    if target.local_path is not None:
        if mode == "overwrite" and os.path.realpath(target.local_path) == os.path.realpath(os.getcwd()):
            raise ValueError(
                "mode='overwrite' is refused for the working directory; write into a folder of it"
            )
        if os.path.exists(target.local_path) and not os.path.isdir(target.local_path):
            raise FileExistsError(
                17, "there is a file of this name; shards go into a directory", target.spelling
            )
        place = manifest.directory_location(target.local_path)
    else:
        place = manifest.directory_location(directory, storage_options=storage_options, filesystem=filesystem)
    number = manifest.next_number(
        place
    )  # before the look at the newest: who publishes meanwhile takes it too
    newest = manifest.newest_generation(place)
    if newest is not None and newest.kind != "table":
        raise FileExistsError(
            17,
            "there is a grid container (N-D data); remove it, or write into another directory",
            target.spelling,
        )
    members = [] if newest is not None else plain_members(place)
    if mode == "create" and (
        newest is not None or any(not _OWN_NAME.fullmatch(_base_name(m)) for m in members)
    ):
        raise FileExistsError(
            17, "there is a table already; use mode='overwrite' or mode='append'", target.spelling
        )
    base: int | None = None
    like: Schema | None = None
    partition_on: tuple[str, ...] = ()
    if mode == "append":
        base = 0 if newest is None else newest.generation
        if newest is not None:
            members = manifest.member_locations(newest, place)
            partition_on = newest.partition_on
        there = format_of_table(newest, members)
        if format is not None and there not in (None, format):
            raise ValueError(f"the directory holds {there} files, got format={format!r}")
        format = there or format
        if members:
            like = member_meta(members[0]).schema
    return GenerationPlan(
        place,
        format or "cstore",
        number,
        manifest.new_commit_id(),
        base,
        like,
        partition_on,
    )


def _base_name(location: Location) -> str:
    return location.path.rstrip("/").rpartition("/")[2]


# ----------------------------------------------------------------------------------------------------------
# Shards


def write_shard(
    plan: GenerationPlan, data: Any, index: int, partition: Mapping[str, Any] | None = None
) -> Shard:
    """Write one shard under a name of its own; what a task calls, as often as it is told to.

    Parameters
    ----------
    data : anything that `ingest` takes
    index : int
        Place of the task's shards among those of the job.
    partition : mapping, optional
        Values of the columns that folders are named after; `data` hold these columns as well.

    Raises
    ------
    SchemaMismatchError, TypeError, ValueError
        If the data do not fit the columns of the job; nothing was written.
    """
    folder = "".join(f"{_folder(name, value)}/" for name, value in (partition or {}).items())
    label = "" if plan.labels is None else f"{plan.labels[index]}-"
    relative = folder + part_name(index, SUFFIX_OF[plan.format], label)
    location = plan.place.child(relative)
    if plan.format != "cstore":
        return _write_encoded(plan, data, location, relative, partition)
    batch = ingest(data, like=plan.like)

    def destination() -> Destination:
        if location.local_path is None:
            return Upload(location)  # nobody else draws this name
        os.makedirs(os.path.dirname(location.local_path), exist_ok=True)
        return Replacement(location.local_path, exclusive=True)

    write_table(
        _records(batch, plan.rows_per_record),
        destination,
        name=relative,
        statistics=plan.statistics,
        options={"like": batch.schema},
        attributes=Attributes(plan.attrs),
        show_progress=False,
    )
    meta = member_meta(location)
    return Shard(relative, meta.n_rows, partition, meta, meta.file_size, meta.n_records)


def _folder(name: str, value: Any) -> str:
    text = NULL_FOLDER if value is None else str(value)
    return f"{quote(name, safe='')}={quote(text, safe=' :,')}"


def _records(batch: Batch, rows_per_record: int | None) -> Any:
    if rows_per_record is None or batch.n_rows <= rows_per_record:
        return batch

    def pieces() -> Iterator[Batch]:
        for first in range(0, batch.n_rows, rows_per_record):
            stop = min(first + rows_per_record, batch.n_rows)
            yield Batch(batch.schema, tuple(a[first:stop] for a in batch.arrays), stop - first)

    return pieces()


def _write_encoded(
    plan: GenerationPlan, data: Any, location: Location, relative: str, partition: Mapping[str, Any] | None
) -> Shard:
    # All shards have the same nullable columns, whichever of them hold nulls.
    nullable, like = list(plan.nullable), plan.like
    if like is not None:  # files of one table may differ in this
        like = Schema(tuple(replace(f, optional=f.optional or f.name in nullable) for f in like), like.attrs)
    batch = ingest_columns(data, nullable=nullable if like is None else None, like=like)
    options = dict(plan.options)
    if plan.rows_per_record is not None:
        options["row_group_size"] = plan.rows_per_record
    where: dict[str, Any] = {"path": location.path, "filesystem": None}
    if location.local_path is not None:
        os.makedirs(os.path.dirname(location.local_path), exist_ok=True)
        where["path"] = location.local_path
    else:
        where["filesystem"] = location.filesystem()
    with whole(EncodedWriter(format=plan.format, schema=batch.schema, **where, **options)) as writer:
        writer.take(batch)
    if plan.format != "columns":
        size, _ = storage.current_token(location)
        return Shard(relative, batch.n_rows, partition, None, size, 1, batch.schema)
    entry = file_entry(member_meta(location), relative, schema=())
    return Shard(relative, batch.n_rows, partition, None, entry.size, 1, batch.schema, entry.layout)


# ----------------------------------------------------------------------------------------------------------
# Commit


def commit(plan: GenerationPlan, shards: Iterable[Shard]) -> GenerationManifest:
    """Publish the generation of a job: its shards in the order given, behind what it appends to.

    Returns
    -------
    GenerationManifest

    Raises
    ------
    CommitConflictError
        Another job has published this generation; the shards are removed again.
    SchemaMismatchError
        If shards do not have the same columns; likewise.
    """
    added = list(shards)
    try:
        generation = _generation(plan, added)
        manifest.publish(plan.place, generation)
    except (CommitConflictError, SchemaMismatchError, FormatError):
        discard(plan, added)
        raise
    return generation


def discard(plan: GenerationPlan, shards: Iterable[Shard]) -> None:
    """Remove the shards of a job that will not be committed, as far as that is possible."""
    for shard in shards:
        location = plan.place.child(shard.path)
        with contextlib.suppress(OSError):
            if location.local_path is not None:
                os.unlink(location.local_path)
            else:
                location.filesystem().rm_file(location.path)


def forget_listings(plan: GenerationPlan) -> None:
    """Make this process look again at what other processes wrote: file systems remember listings."""
    if plan.place.local_path is None:
        plan.place.filesystem().invalidate_cache()


def _generation(plan: GenerationPlan, added: Sequence[Shard]) -> GenerationManifest:
    base: GenerationManifest | None = None
    if plan.base:
        base = manifest.read_generation(plan.place.child(manifest.manifest_name(plan.base)))
    metas = [shard.meta for shard in added if shard.meta is not None]
    expected = [(c.name, c.dtype.str) for c in metas[0].columns] if metas else []
    for meta in metas[1:]:
        if [(c.name, c.dtype.str) for c in meta.columns] != expected:
            raise SchemaMismatchError(
                f"the shards of this job do not have the same columns: {meta.path} differs from {metas[0].path}"
            )
    _check_same_columns(added)
    schema: tuple[Mapping[str, Any], ...]
    if base is not None and base.schema:
        schema = base.schema
    else:
        schema = schema_objects(metas[0]) if metas else ()
    entries = list(base.files) if base is not None else []
    if plan.base == 0:
        entries = _plain_entries(plan, schema)
    entries += [
        FileEntry(s.path, s.size, s.records, s.rows, s.layout, s.partition)
        if s.meta is None
        else file_entry(s.meta, s.path, schema=schema, partition=s.partition)
        for s in added
    ]
    return GenerationManifest(
        generation=plan.generation,
        commit_id=plan.commit_id,
        files=tuple(entries),
        n_rows=sum(entry.rows for entry in entries),
        schema=schema,
        format=plan.format,
        partition_on=plan.partition_on,
        attrs={**({} if base is None else base.attrs), **(plan.attrs or {})},
    )


def _check_same_columns(added: Sequence[Shard]) -> None:
    """Raise `SchemaMismatchError` unless the shards of an encoded format have the same columns."""
    known: tuple[Shard, list[Any]] | None = None
    for shard in added:
        if shard.schema is None:
            continue
        columns = [
            (f.name, f.native_dtype.str, (f.logical or "").removeprefix("large_"), f.tz) for f in shard.schema
        ]
        if known is None:
            known = shard, columns
        elif columns != known[1]:
            raise SchemaMismatchError(
                f"the shards of this job do not have the same columns: {shard.path} differs from {known[0].path}"
            )


def _plain_entries(plan: GenerationPlan, schema: Sequence[Mapping[str, Any]]) -> list[FileEntry]:
    """Describe the members of a directory that had no manifest; shards of this job are not among them."""
    members = plain_members(plan.place)  # but for those of this job, or of one that was interrupted
    return member_entries(plan.place, [m for m in members if not _OWN_NAME.fullmatch(_base_name(m))], schema)
