"""What data files does a directory hold, in which format, and what do their headers say?

The questions that every writer asks of a directory before it adds to it, whatever the format of its files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import formats, storage
from ..formats import ShardMeta
from ..storage import Location
from .encoding import SUFFIXES as ENCODED_SUFFIXES
from .manifest import FileEntry, GenerationManifest
from .manifest_layout import file_entry
from .merging import read_sources

__all__ = ["SUFFIX_OF", "format_of_name", "format_of_table", "member_entries", "member_meta", "plain_members"]

SUFFIX_OF = {"cstore": ".cstore", **{kind: suffix for suffix, kind in ENCODED_SUFFIXES.items()}}
"""How the names of data files end, by format."""


def format_of_name(name: str) -> str | None:
    """Return the format that the name of a data file tells, None for the name of another file."""
    return next((kind for kind, suffix in SUFFIX_OF.items() if name.endswith(suffix)), None)


def plain_members(place: Location) -> list[Location]:
    """Return the data files of a directory as its listing has them, in natural order; none where there is no directory.

    Raises
    ------
    ValueError
        If there are data files of several formats.
    """
    try:
        if place.local_path is not None:
            return list(storage.resolve(Path(place.local_path)).locations)
        # With a slash behind it: else a name such as "out.cstore" is taken for that of a file, unseen.
        url = place.url if place.url.endswith("/") else place.url + "/"
        return list(storage.resolve(url, filesystem=place.filesystem()).locations)
    except FileNotFoundError:  # an object store has no empty directories
        return []


def format_of_table(generation: GenerationManifest | None, members: Sequence[Location]) -> str | None:
    """Return the format of the files of a directory, None if it has none yet."""
    if generation is not None and (generation.files or not members):
        return generation.format
    return format_of_name(members[0].path) if members else None


def member_meta(location: Location) -> ShardMeta:
    """Return what the header of a data file says, statistics included.

    Raises
    ------
    FormatError
        If the file is damaged.
    """
    file, head = storage.open_file(location)
    try:
        kind = formats.detect(head, file.spelling)
        if kind.name == "cstore":
            return read_sources([file], heads=[head])[0].meta
        return kind.read_metadata([file], [head])[0]
    finally:
        file.close()


def member_entries(
    place: Location, members: Sequence[Location], schema: Sequence[Mapping[str, Any]]
) -> list[FileEntry]:
    """Describe data files of a directory for a manifest whose columns are `schema`."""
    prefix = place.path.rstrip("/") + "/"
    return [file_entry(member_meta(m), m.path.removeprefix(prefix), schema=schema) for m in members]
