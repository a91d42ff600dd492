"""A directory that grows by whole files: `append` writes one shard.

A shard is written under the lock of the directory, appears whole or not at all, and is never changed afterwards
(cstore.md 10.1, cstore-behaviour.md 5.1). In a directory with a generation manifest the next generation is published
behind it.
"""

from __future__ import annotations

import contextlib
import os
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import manifest, storage
from .compaction import copy_file, finishing, merged_schema, same_target, write_concatenation
from .errors import CommitConflictError, SchemaMismatchError
from .formats import ShardMeta
from .ingest import Batch
from .locks import DirectoryLock
from .manifest_layout import file_entry
from .merging import SourceFile, open_sources, read_sources
from .progress import check_batch_size
from .publish import Destination, Replacement, Target, Upload, resolve_target
from .schema import PhysicalColumn, Schema
from .storage import ByteFile, Location
from .writing import Attributes, batch_columns, check_columns, write_table

__all__ = ["DEFAULT_NAME", "ShardDirectory", "ShardName", "append", "concat_table", "ingest_options"]

DEFAULT_NAME = "shard_{index:05d}.cstore"


@dataclass(frozen=True, slots=True)
class ShardName:
    """A literal shard name, or a template with an ``{index}`` field.

    Raises
    ------
    ValueError
        If the name does not end in ``.cstore``, begins with ``_`` or ``.`` (such files are no members, cstore.md
        10.1), holds a path separator, or has a field other than ``index``.
    """

    template: str

    def __post_init__(self) -> None:
        if not isinstance(self.template, str):
            raise TypeError(f"a shard name must be a string, got {self.template!r}")
        if not self.template.endswith(".cstore"):
            raise ValueError(f"a shard name must end in .cstore, got {self.template!r}")
        if self.template.startswith(("_", ".")):
            raise ValueError(
                f"names that begin with '_' or '.' are no members of a dataset, got {self.template!r}"
            )
        try:
            fields = [
                field for _, field, _, _ in string.Formatter().parse(self.template) if field is not None
            ]
            example = self.name(7)
        except (ValueError, IndexError, KeyError, AttributeError) as exc:
            raise ValueError(f"{self.template!r} is no shard name template: {exc}") from None
        if set(fields) - {"index"}:
            raise ValueError(f"a shard name template has no field but {{index}}, got {self.template!r}")
        if re.search(r"[/\\\0]", example) or example.startswith(("_", ".")):
            raise ValueError(f"a shard name must name a file in the directory itself, got {self.template!r}")
        if fields and self.next_index([example]) != 8:
            raise ValueError(f"{self.template!r} must write its index in decimal digits")

    @property
    def literal(self) -> bool:
        """Whether it names one file only."""
        return all(field is None for _, field, _, _ in string.Formatter().parse(self.template))

    def name(self, index: int) -> str:
        """Return the file name of number `index`."""
        return self.template.format(index=index)

    def next_index(self, names: Sequence[str]) -> int:
        """Return 1 + the largest number that `names` use, 0 if none does. Gaps are never reused."""
        pattern = "".join(
            re.escape(text) + ("" if field is None else "([0-9]+)")
            for text, field, _, _ in string.Formatter().parse(self.template)
        )
        matches = (re.fullmatch(pattern, name, re.ASCII) for name in names)
        return max((int(match.group(1)) for match in matches if match is not None), default=-1) + 1


class ShardDirectory:
    """A directory under its lock: what is in it, and how one more shard gets in. Owned by one append or appender."""

    def __init__(self, directory: Any, name: str, storage_options: Any, filesystem: Any) -> None:
        self.name = ShardName(name)
        self.target = resolve_target(directory, storage_options=storage_options, filesystem=filesystem)
        self.place = manifest.directory_location(
            directory, storage_options=storage_options, filesystem=filesystem
        )
        self._lock: DirectoryLock | None = None
        if self.target.local_path is not None:
            os.makedirs(self.target.local_path, exist_ok=True)
            self._lock = DirectoryLock(self.target.local_path)
        try:
            self.first = self._first_shard()
        except BaseException:
            self.release()
            raise

    def _first_shard(self) -> ShardMeta | None:
        generation = manifest.newest_generation(self.place)
        if generation is not None:
            members = manifest.member_locations(generation, self.place)
        else:
            try:
                members = list(self._members())
            except FileNotFoundError:  # an object store has no empty directories
                members = []
        if not members:
            return None
        file, head = storage.open_file(members[0])
        try:
            return read_sources([file], heads=[head])[0].meta
        finally:
            file.close()

    def _members(self) -> Sequence[Location]:
        if self.target.local_path is not None:
            return storage.resolve(Path(self.target.local_path)).locations
        return storage.resolve(self.place.url, filesystem=self.place.filesystem()).locations

    def _names(self) -> list[str]:
        if self.target.local_path is not None:
            return os.listdir(self.target.local_path)
        try:
            return [entry.name for entry in storage.list_names(self.place)]
        except FileNotFoundError:
            return []

    def _next_location(self) -> Location:
        names = self._names()
        name = self.name.name(self.name.next_index(names))
        if name in names:
            raise FileExistsError(17, "the directory has a shard of this name", name)
        return self.place.child(name)

    def new_shard(self) -> Destination:
        """Return where the next shard is written to."""
        location = self._next_location()
        if location.local_path is not None:
            return Replacement(location.local_path, exclusive=True)
        again = None if self.name.literal else self._next_location
        return Upload(location, exclusive=True, next_location=again)

    def published(self, destination: Destination) -> Path | str:
        """Account for a shard that has just been published, and return its path.

        Raises
        ------
        CommitConflictError
            Another writer published the next generation first; the shard is removed again.
        """
        if isinstance(destination, Upload):
            location = destination.location
        else:
            assert isinstance(destination, Replacement)
            location = self.place.child(os.path.basename(destination.target))
        name = os.path.basename(location.path)
        generation = manifest.newest_generation(self.place)
        if generation is not None:
            file, head = storage.open_file(location)
            try:
                meta = read_sources([file], heads=[head])[0].meta
            finally:
                file.close()
            entry = file_entry(meta, name, schema=generation.schema)
            following = generation.successor([entry], generation=manifest.next_number(self.place))
            try:
                manifest.publish(self.place, following)
            except CommitConflictError:
                with contextlib.suppress(OSError):
                    _remove(location)
                raise
        if self.target.local_path is not None:
            return Path(self.target.spelling) / name
        return location.spelling

    def check(self, columns: Sequence[tuple[str, np.dtype[Any]]], what: str) -> None:
        """Raise `SchemaMismatchError` unless `columns` are those of the first shard."""
        if self.first is None:
            return
        expected = [(column.name, column.dtype.str) for column in self.first.columns]
        found = [(name, dtype.str) for name, dtype in columns]
        if found != expected:
            raise SchemaMismatchError(
                f"schema mismatch: {what} has the columns {_shown(found)}, the first shard ({self.first.path}) has "
                f"{_shown(expected)}. Names, order and dtypes must agree."
            )

    def check_batch(self, batch: Batch) -> None:
        if self.first is not None:
            check_columns(self.first.columns, batch, f"the first shard ({self.first.path})")

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _shown(columns: Sequence[tuple[str, str]]) -> str:
    text = ", ".join(f"{name}: {dtype}" for name, dtype in columns[:20])
    return f"[{text}{', ...' if len(columns) > 20 else ''}]"


def _remove(location: Location) -> None:
    if location.local_path is not None:
        os.unlink(location.local_path)
    else:
        location.filesystem().rm_file(location.path)


# ----------------------------------------------------------------------------------------------------------
# One shard


def append(
    directory: str | os.PathLike[str],
    data: Any,
    *,
    name: str = DEFAULT_NAME,
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
) -> Path | str:
    """Write `data` as one new shard of a directory.

    Parameters
    ----------
    directory : path or URL
        Made if it does not exist. Its lock is held for the duration (object stores have none).
    data : table, stream, path, or open reader or dataset
        Anything that `store` takes. What is backed by one file is copied byte for byte, several files become one
        record.
    name : str
        File name, or a template with an ``{index}`` field: the next number is used.
    statistics : bool
        Add smallest and largest value per record and column. Files are rewritten as one record then.
    strings, string_width, nullable
        How values become columns; see `ingest.ingest`. An existing first shard decides over all of it.
    batch_size, show_progress, compact, attrs, column_attrs
        As in `store`.

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
        If `name` is no shard name, or the directory would be appended to itself.
    WriterLockedError
        If another writer holds the directory.
    CommitConflictError
        If another writer published the next generation of a directory with manifests; nothing was added.
    """
    batch_size = check_batch_size(batch_size)
    place = ShardDirectory(directory, name, storage_options, filesystem)
    destinations: list[Destination] = []

    def make() -> Destination:
        destinations.append(place.new_shard())
        return destinations[-1]

    try:
        with contextlib.ExitStack() as stack:
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


def ingest_options(
    first: ShardMeta | None, strings: str, string_width: Mapping[str, int] | None, nullable: Any
) -> dict[str, Any]:
    options: dict[str, Any] = {"strings": strings, "string_width": string_width, "nullable": nullable}
    if first is not None:
        options["like"] = first.schema
    return options


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
        files: Sequence[ByteFile] = data.readable_source().files
        if not files:
            raise ValueError("nothing to append: the dataset has no files")
        return read_sources(files)
    return None


def _append_files(
    place: ShardDirectory,
    sources: list[SourceFile],
    make: Any,
    statistics: bool,
    show_progress: bool | None,
) -> None:
    for source in sources:
        location = source.file.location
        if location is None:
            continue
        parent = location.parent()
        if same_target(Target("", parent.local_path, parent), place.target):
            raise ValueError(
                f"cannot append {place.target.spelling} to itself: {location.spelling} is one of its files"
            )
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


def concat_table(table: Any, out: str | os.PathLike[str], *, memory_budget: int | None = None) -> Path | str:
    """Write an open reader or dataset as one single-record file; see `compaction.concat_files`.

    `memory_budget` is accepted for symmetry: bytes are copied in pieces of 8 MiB whatever it says.
    """
    from .compaction import concat_files

    source = table.readable_source()
    if not source.files:
        raise ValueError("nothing to write: no sources")
    return concat_files(read_sources(source.files), out, schema=source.schema)
