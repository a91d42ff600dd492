"""A directory under its lock: what shards are in it, and how one more gets in (cstore.md 10 and 10.1)."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import storage
from ..errors import CommitConflictError, FormatError, SchemaMismatchError
from ..ingest import Batch
from ..storage import Location
from . import manifest
from .batch_schema import check_columns
from .locks import DirectoryLock
from .manifest_layout import file_entry
from .members import SUFFIX_OF, format_of_name, format_of_table, member_meta, plain_members
from .publish import Destination, Replacement, Upload, resolve_target
from .uncopyable import Uncopyable

__all__ = ["DEFAULT_STEM", "ShardDirectory", "ShardName", "part_name", "remove_file"]

DEFAULT_STEM = "shard_{index:05d}"

_PART = re.compile(r"part-([0-9]+)-", re.ASCII)


def part_name(index: int, suffix: str, label: str = "") -> str:
    """Return a name that nobody else draws, of the pattern that `manifest.vacuum` knows as ours."""
    return f"part-{index:05d}-{label}{secrets.token_hex(8)}{suffix}"


@dataclass(frozen=True, slots=True)
class ShardName:
    """A literal shard name, or a template with an ``{index}`` field.

    Raises
    ------
    ValueError
        If the name does not end like a data file (``.cstore``, ``.abcd``, ``.colbin``), begins with ``_`` or ``.``
        (such files are no members, cstore.md 10.1), holds a path separator, or has a field other than ``index``.
    """

    template: str

    def __post_init__(self) -> None:
        if not isinstance(self.template, str):
            raise TypeError(f"a shard name must be a string, got {self.template!r}")
        if format_of_name(self.template) is None:
            raise ValueError(
                f"a shard name must end in {', '.join(SUFFIX_OF.values())}, got {self.template!r}"
            )
        if self.template.startswith(("_", ".")):
            raise ValueError(
                f"names that begin with '_' or '.' are no members of a dataset, got {self.template!r}"
            )
        try:
            fields = [
                field for _, field, _, _ in string.Formatter().parse(self.template) if field is not None
            ]
            examples = {index: self.name(index) for index in (7, 1234567890)}
        except (ValueError, IndexError, KeyError, AttributeError) as exc:
            raise ValueError(f"{self.template!r} is no shard name template: {exc}") from None
        if set(fields) - {"index"}:
            raise ValueError(f"a shard name template has no field but {{index}}, got {self.template!r}")
        for index, example in examples.items():
            if re.search(r"[/\\\0]", example) or example.startswith(("_", ".")):
                raise ValueError(
                    f"a shard name must name a file in the directory itself, got {self.template!r}"
                )
            if fields and self.next_index([example]) != index + 1:
                raise ValueError(f"{self.template!r} must write its index in decimal digits")

    @property
    def format(self) -> str:
        """The format that the suffix tells."""
        found = format_of_name(self.template)
        assert found is not None
        return found

    @property
    def literal(self) -> bool:
        """Whether it names one file only."""
        return all(field is None for _, field, _, _ in string.Formatter().parse(self.template))

    def name(self, index: int) -> str:
        """Return the file name of number `index`."""
        return self.template.format(index=index)

    def next_index(self, names: Sequence[str]) -> int:
        """Return 1 + the largest number that `names` use, 0 if none does. Gaps are never reused."""
        if self.literal:
            return 0
        pattern = "".join(
            re.escape(text) + ("" if field is None else "([0-9]+)")
            for text, field, _, _ in string.Formatter().parse(self.template)
        )
        matches = (re.fullmatch(pattern, name, re.ASCII) for name in names)
        return max((int(match.group(1)) for match in matches if match is not None), default=-1) + 1


class ShardDirectory(Uncopyable):
    """A directory under its lock: what is in it, and how one more shard gets in. Owned by one append or appender.

    Parameters
    ----------
    directory : path or URL
        Made if it does not exist.
    name : str or None
        See `ShardName`. None: ``shard_00000`` and so on. Files of encoded formats in a directory with a manifest are
        then called ``part-<number>-<random>`` as those of other commits are, so that `vacuum` knows them as ours
        once a compaction has replaced them.
    format : str, optional
        Must be the format of the files that there are. Default: that one, else what `name` tells, else "cstore".

    Raises
    ------
    ValueError
        If names, or files of another format, contradict `format`.
    WriterLockedError
        If another writer holds the directory.
    """

    def __init__(
        self,
        directory: Any,
        name: str | None,
        storage_options: Any,
        filesystem: Any,
        format: str | None = None,
    ) -> None:
        if format is not None and (not isinstance(format, str) or format not in SUFFIX_OF):
            raise ValueError(f"format must be one of {', '.join(map(repr, SUFFIX_OF))}, got {format!r}")
        given = None if name is None else ShardName(name)
        if given is not None and format is not None and given.format != format:
            raise ValueError(f"the name {name!r} is that of a {given.format} file, and format={format!r}")
        self.target = resolve_target(directory, storage_options=storage_options, filesystem=filesystem)
        self.place = manifest.directory_location(
            directory, storage_options=storage_options, filesystem=filesystem
        )
        self._lock: DirectoryLock | None = None
        if self.target.local_path is not None:
            try:
                os.makedirs(self.target.local_path, exist_ok=True)
            except FileExistsError:
                raise FileExistsError(
                    17,
                    "this is a file; use update() to add rows to it, append() adds files to a directory",
                    self.target.spelling,
                ) from None
            self._lock = DirectoryLock(self.target.local_path)
        try:
            generation = manifest.newest_table(self.place)
            if generation is not None:
                members = manifest.member_locations(generation, self.place)
            else:
                members = plain_members(self.place)
            asked = format if given is None else given.format
            self.format = format_of_table(generation, members) or asked or "cstore"
            if asked not in (None, self.format):
                raise ValueError(
                    f"{self.target.spelling} holds {self.format} files, and {asked} files do not go among them; "
                    f"leave {'format' if given is None else 'name'} out"
                )
            self.first = member_meta(members[0]) if members else None
        except BaseException:
            self.release()
            raise
        self._unique = given is None and generation is not None and self.format != "cstore"
        self.name = given or ShardName(DEFAULT_STEM + SUFFIX_OF[self.format])

    def _names(self) -> list[str]:
        if self.target.local_path is not None:
            return os.listdir(self.target.local_path)
        try:
            return [entry.name for entry in storage.list_names(self.place)]
        except FileNotFoundError:
            return []

    def _next_location(self) -> Location:
        names = self._names()
        if self._unique:
            taken = [int(found.group(1)) for found in map(_PART.match, names) if found is not None]
            return self.place.child(part_name(max(taken, default=-1) + 1, SUFFIX_OF[self.format]))
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
        FormatError
            Another writer published a generation that this library does not understand; likewise.
        """
        if isinstance(destination, Upload):
            location = destination.location
        else:
            assert isinstance(destination, Replacement)
            location = self.place.child(os.path.basename(destination.target))
        name = os.path.basename(location.path)
        number = manifest.next_number(self.place)  # taken first: who publishes from now on takes this one too
        try:
            generation = manifest.newest_table(self.place)
        except FormatError:
            with contextlib.suppress(OSError):
                remove_file(location)
            raise
        if generation is not None:
            entry = file_entry(member_meta(location), name, schema=generation.schema)
            following = generation.successor([entry], generation=number)
            try:
                manifest.publish(self.place, following)
            except (CommitConflictError, FormatError):
                with contextlib.suppress(OSError):
                    remove_file(location)
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


def remove_file(location: Location) -> None:
    """Remove a data file."""
    if location.local_path is not None:
        os.unlink(location.local_path)
    else:
        location.filesystem().rm_file(location.path)
