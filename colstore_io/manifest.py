"""Which files make up generation g of a directory? The commit record of everything made of several files.

A generation manifest ``_colstore-<8 digits>.json`` is created exclusively and never changed; the newest complete
one is the dataset (architecture.md 7, cstore.md 10.1). Reading believes nothing: a manifest that does not parse, or
whose checksum does not fit, is not complete, and one that is complete is still checked member by member.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import uuid
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeGuard

from . import storage
from .errors import CommitConflictError, FormatError
from .formats.cstore.attributes import decode_attributes, encode_attributes
from .publish import resolve_target, write_small_file
from .storage import Location
from .storage_names import data_suffix, is_ignored, is_partition_folder
from .storage_names import path_key as natural_path_key

__all__ = [
    "FileEntry",
    "GenerationManifest",
    "directory_location",
    "generation_of_name",
    "manifest_name",
    "member_locations",
    "new_commit_id",
    "newest_generation",
    "next_number",
    "publish",
    "read_generation",
    "vacuum",
]

MANIFEST_VERSION = 1
MAX_GENERATION = 99_999_999
_NAME = re.compile(r"_colstore-([0-9]{8})\.json", re.ASCII)
_MAX_INT = 2**63 - 1

Kind = Literal["table", "grid"]


def manifest_name(generation: int) -> str:
    """Return the file name of a generation.

    Raises
    ------
    ValueError
        If the number does not have at most eight digits.
    """
    if not 0 <= generation <= MAX_GENERATION:
        raise ValueError(f"generation must lie in [0, {MAX_GENERATION}], got {generation}")
    return f"_colstore-{generation:08d}.json"


def generation_of_name(name: str) -> int | None:
    """Return the generation that a file name stands for, or None when it is no manifest's name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match.group(1))


def new_commit_id() -> str:
    """Return a fresh commit id."""
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One data file of a generation.

    Attributes
    ----------
    path : str
        Relative to the directory of the manifest, with ``/``; never leads out of it.
    size : int
        Bytes.
    records, rows : int
    layout : mapping or None
        What a plan needs so that the file need not be opened (`layouts.file_entry`).
    partition : mapping or None
        Values of the columns that its folder names stand for; for a grid, the chunks that it holds.
    stats : object
        Bounds per record (`layouts.file_entry`), or None.
    """

    path: str
    size: int
    records: int
    rows: int
    layout: Mapping[str, Any] | None = None
    partition: Mapping[str, Any] | None = None
    stats: Any = None


@dataclass(frozen=True, slots=True)
class GenerationManifest:
    """The commit record of one generation; treat everything in it as read-only.

    Attributes
    ----------
    generation : int
    commit_id : str
        Drawn by the committer; tells its own manifest from another's.
    kind : {"table", "grid"}
    format : str
        Of the data files: ``"cstore"``, ...
    n_rows : int
    schema : tuple of mapping
        Column objects, as in the header of a `.cstore` file.
    partition_on : tuple of str
        Columns that stand in folder names.
    files : tuple of FileEntry
        In row order.
    attrs : mapping
        Attributes of the dataset.
    dims, variables : object
        Of a grid; JSON values.
    """

    generation: int
    commit_id: str
    files: tuple[FileEntry, ...]
    n_rows: int
    schema: tuple[Mapping[str, Any], ...] = ()
    kind: Kind = "table"
    format: str = "cstore"
    partition_on: tuple[str, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dims: Any = None
    variables: Any = None

    @property
    def name(self) -> str:
        """File name of this generation."""
        return manifest_name(self.generation)

    def to_bytes(self) -> bytes:
        """Return the JSON text, its checksum included.

        Raises
        ------
        TypeError, ValueError
            If a member has no JSON form.
        """
        members: dict[str, Any] = {
            "colstore_manifest": MANIFEST_VERSION,
            "generation": self.generation,
            "commit_id": self.commit_id,
            "kind": self.kind,
            "format": self.format,
            "n_rows": self.n_rows,
            "schema": [dict(column) for column in self.schema],
            "partition_on": list(self.partition_on),
            "files": [
                {
                    "path": entry.path,
                    "size": entry.size,
                    "records": entry.records,
                    "rows": entry.rows,
                    "layout": entry.layout,
                    "partition": entry.partition,
                    "stats": entry.stats,
                }
                for entry in self.files
            ],
            "attrs": encode_attributes(self.attrs, "the dataset"),
            "dims": self.dims,
            "variables": self.variables,
        }
        members["crc32"] = _checksum(members)
        return json.dumps(members, allow_nan=False).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> GenerationManifest:
        """Parse and check a manifest.

        Raises
        ------
        FormatError
            If it is not complete, or complete but not what a manifest may say.
        """
        return _parse(data, path)

    def successor(self, added: Sequence[FileEntry], *, generation: int | None = None) -> GenerationManifest:
        """Return a later generation: this one with `added` behind its files, under a fresh commit id.

        `generation` is its number, by default the next one; see `next_number`.
        """
        return replace(
            self,
            generation=self.generation + 1 if generation is None else generation,
            commit_id=new_commit_id(),
            files=(*self.files, *added),
            n_rows=self.n_rows + sum(entry.rows for entry in added),
        )


def _checksum(members: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(members, sort_keys=True, allow_nan=False).encode("ascii"))


# ----------------------------------------------------------------------------------------------------------
# Parsing


def _parse(data: bytes, path: str) -> GenerationManifest:
    def refuse(message: str) -> FormatError:
        return FormatError(message, path=path, section="generation manifest")

    try:
        members = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise refuse("not complete: it is no JSON text; an interrupted commit leaves such a file") from None
    if not isinstance(members, dict):
        raise refuse("not complete: it is no JSON object")
    stored = members.pop("crc32", None)
    try:
        actual = _checksum(members)
    except (ValueError, RecursionError):
        raise refuse("holds values that JSON has no form for") from None
    if not _is_int(stored) or stored != actual:
        raise refuse(f"not complete: its checksum does not fit, the contents give {actual}")
    if members.get("colstore_manifest") != MANIFEST_VERSION or not _is_int(members["colstore_manifest"]):
        raise refuse(f"its version is not {MANIFEST_VERSION}, the only one that this library reads")
    generation = members.get("generation")
    if not _is_int(generation) or not 0 <= generation <= MAX_GENERATION:
        raise refuse("'generation' is no number of at most eight digits")
    named = generation_of_name(re.split(r"[/\\]", path)[-1])
    if named is not None and named != generation:
        raise refuse(f"says generation {generation}, its name says {named}")
    if members.get("kind") not in ("table", "grid"):
        raise refuse("'kind' is neither 'table' nor 'grid'")
    for key in ("commit_id", "format"):
        if not isinstance(members.get(key), str):
            raise refuse(f"{key!r} is no string")
    files = members.get("files")
    if not isinstance(files, list):
        raise refuse("'files' is no array")
    entries = tuple(_entry(value, position, refuse) for position, value in enumerate(files))
    if len({entry.path for entry in entries}) != len(entries):
        raise refuse("'files' names a file twice")
    n_rows = members.get("n_rows")
    if not _is_count(n_rows):
        raise refuse("'n_rows' is no count")
    if members["kind"] == "table" and n_rows != sum(entry.rows for entry in entries):
        raise refuse(f"'n_rows' is {n_rows}, the files have {sum(entry.rows for entry in entries)}")
    schema = members.get("schema")
    if not isinstance(schema, list) or not all(
        isinstance(c, dict) and isinstance(c.get("name"), str) and isinstance(c.get("dtype"), str)
        for c in schema
    ):
        raise refuse("'schema' is no array of column objects")
    partition_on = members.get("partition_on")
    if not isinstance(partition_on, list) or not all(isinstance(name, str) for name in partition_on):
        raise refuse("'partition_on' is no array of names")
    try:
        attrs = decode_attributes(members.get("attrs", {}))
    except ValueError as exc:
        raise refuse(f"'attrs': {exc}") from None
    return GenerationManifest(
        generation=generation,
        commit_id=members["commit_id"],
        files=entries,
        n_rows=n_rows,
        schema=tuple(schema),
        kind=members["kind"],
        format=members["format"],
        partition_on=tuple(partition_on),
        attrs=attrs,
        dims=members.get("dims"),
        variables=members.get("variables"),
    )


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> TypeGuard[int]:
    return _is_int(value) and 0 <= value <= _MAX_INT


def _entry(value: Any, position: int, refuse: Any) -> FileEntry:
    if not isinstance(value, dict):
        raise refuse(f"file {position} is no object")
    path = value.get("path")
    if not isinstance(path, str) or not _is_inside(path):
        raise refuse(f"path of file {position} does not lead to a file below the manifest's directory")
    for key in ("size", "records", "rows"):
        if not _is_count(value.get(key)):
            raise refuse(f"{key!r} of file {position} is no count")
    for key in ("layout", "partition"):
        if not isinstance(value.get(key), (dict, type(None))):
            raise refuse(f"{key!r} of file {position} is no object")
    return FileEntry(
        path,
        value["size"],
        value["records"],
        value["rows"],
        value.get("layout"),
        value.get("partition"),
        value.get("stats"),
    )


def _is_inside(path: str) -> bool:
    """Whether a relative path stays below its directory, on any platform."""
    parts = path.split("/")
    return "\\" not in path and ":" not in parts[0] and "\0" not in path and not {"", ".", ".."} & set(parts)


# ----------------------------------------------------------------------------------------------------------
# Reading


def directory_location(directory: Any, *, storage_options: Any = None, filesystem: Any = None) -> Location:
    """Return the location of a directory, which need not exist. Nothing is looked up."""
    if isinstance(directory, Location):
        return directory
    target = resolve_target(directory, storage_options=storage_options, filesystem=filesystem)
    if target.location is not None:
        return target.location
    assert target.local_path is not None
    located = storage.locate(target.local_path)
    return replace(located, spelling=target.spelling)


def _read(location: Location) -> bytes:
    file, head = storage.open_file(location)
    try:
        return bytes(head) if len(head) == file.size else bytes(file.read(0, file.size))
    finally:
        file.close()


def read_generation(location: Location) -> GenerationManifest:
    """Read one manifest by its location.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FormatError
        If it is not complete, or says what no manifest may say.
    """
    return GenerationManifest.from_bytes(_read(location), path=location.spelling)


def newest_generation(directory: Location) -> GenerationManifest | None:
    """Return the newest complete generation of a directory, or None when there is none.

    A manifest that is not complete is what an interrupted commit leaves behind, and is passed over.
    """
    for generation in _generations(directory):
        try:
            return read_generation(directory.child(manifest_name(generation)))
        except (FormatError, FileNotFoundError):
            continue
    return None


def _generations(directory: Location) -> list[int]:
    """Return the numbers of all manifests in a directory, complete or not, newest first."""
    try:
        entries = storage.list_names(directory)
    except FileNotFoundError:
        return []
    found = (generation_of_name(entry.name) for entry in entries)
    return sorted((generation for generation in found if generation is not None), reverse=True)


def next_number(directory: Location) -> int:
    """Return the number of the next generation: 1 for the first, never one that a manifest has, complete or not."""
    return max(_generations(directory), default=0) + 1


def member_locations(generation: GenerationManifest, place: Location) -> list[Location]:
    """Return the data files of a generation, in its order.

    Parameters
    ----------
    place : Location
        The directory, or the manifest in it.
    """
    if generation_of_name(os.path.basename(place.path.rstrip("/"))) is not None:
        place = place.parent()
    return [place.child(entry.path) for entry in generation.files]


# ----------------------------------------------------------------------------------------------------------
# Publishing


def publish(directory: Location, generation: GenerationManifest) -> Location:
    """Create the manifest of a generation, exclusively.

    The target is read back after any error: our own commit id means that an earlier try had arrived
    (integrations.md 2.4 step 4).

    Returns
    -------
    Location
        Of the manifest.

    Raises
    ------
    CommitConflictError
        Another writer published this generation. It is a `FileExistsError`.
    OSError
        The manifest could not be written; nothing of it is visible.
    """
    data = generation.to_bytes()
    location = directory.child(generation.name)
    try:
        if location.local_path is not None:
            write_small_file(location.local_path, data, exclusive=True)
        else:
            storage.write_object(location, [data], exclusive=True)
    except Exception as exc:
        try:
            found = read_generation(location)
        except FileNotFoundError:
            raise exc from None
        except FormatError:
            # Somebody's interrupted commit holds the name. Its number is used up; a later commit takes the next.
            raise _conflict(location, "an incomplete manifest") from exc
        if found.commit_id != generation.commit_id:
            raise _conflict(location, f"another writer (commit {found.commit_id})") from exc
    return location


def _conflict(location: Location, by: str) -> CommitConflictError:
    return CommitConflictError(
        17,
        f"this generation was published by {by}; read the directory again and repeat the commit",
        location.spelling,
    )


# ----------------------------------------------------------------------------------------------------------
# Vacuum

_OWN_DATA_FILE = re.compile(r"part-[0-9]+-[^.]+\..+", re.ASCII)


def vacuum(
    directory: Any,
    *,
    older_than_seconds: float = 7 * 24 * 3600,
    keep: int = 1,
    storage_options: Any = None,
    filesystem: Any = None,
) -> list[str]:
    """Delete data files that interrupted or superseded commits left behind.

    Parameters
    ----------
    directory : path, URL or Location
    older_than_seconds : float
        Younger files stay: they may belong to a commit under way, or to a reader that planned on an older generation.
    keep : int
        How many complete generations are kept, the newest ones.

    Returns
    -------
    list of str
        Paths of the deleted files, relative to `directory`, in natural order.

    Raises
    ------
    ValueError
        If `keep` is less than 1, or `older_than_seconds` negative.

    Warns
    -----
    RuntimeWarning
        Naming data files that no kept generation names and that this function never deletes.

    Notes
    -----
    Only files of this library's own pattern ``part-<digits>-<random>.*`` are deleted, and never a manifest. A
    directory without a complete manifest consists of all its members: nothing is deleted there.
    """
    if isinstance(keep, bool) or keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    if older_than_seconds < 0:
        raise ValueError(f"older_than_seconds must not be negative, got {older_than_seconds}")
    place = directory_location(directory, storage_options=storage_options, filesystem=filesystem)
    named = _kept_files(place, keep)
    if named is None:
        return []
    deleted: list[str] = []
    foreign: list[str] = []
    oldest = time.time() - older_than_seconds
    for relative, modified in _data_files(place):
        if relative in named:
            continue
        name = relative.rpartition("/")[2]
        if not _OWN_DATA_FILE.fullmatch(name):
            if data_suffix(name) is not None:
                foreign.append(relative)
        elif modified is not None and modified <= oldest:
            _delete(place.child(relative))
            deleted.append(relative)
    if foreign:
        warnings.warn(
            f"{place.spelling} holds data files that no kept generation names; they were left alone: "
            f"{', '.join(foreign)}. Append them, or remove them yourself.",
            RuntimeWarning,
            stacklevel=2,
        )
    return deleted


def _kept_files(place: Location, keep: int) -> set[str] | None:
    """Return what the newest `keep` complete generations name; None when there is no complete generation."""
    named: set[str] = set()
    kept = 0
    for generation in _generations(place):
        if kept == keep:
            break
        try:
            manifest = read_generation(place.child(manifest_name(generation)))
        except (FormatError, FileNotFoundError):
            continue
        named.update(entry.path for entry in manifest.files)
        kept += 1
    return named if kept else None


def _data_files(place: Location) -> list[tuple[str, float | None]]:
    """Return relative path and modification time of the files of a directory and of its ``key=value`` folders."""
    found: list[tuple[str, float | None]] = []
    for folder in sorted(_folders(place)):
        location = place.child(folder) if folder else place
        prefix = f"{folder}/" if folder else ""
        entries = storage.list_names(location)
        found.extend((prefix + entry.name, entry.modified) for entry in entries if not is_ignored(entry.name))
    return sorted(found, key=lambda item: natural_path_key(item[0]))


def _folders(place: Location) -> set[str]:
    folders = {""}
    if place.local_path is not None:
        for root, names, _ in os.walk(place.local_path):
            names[:] = [name for name in names if is_partition_folder(name)]
            relative = os.path.relpath(root, place.local_path).replace(os.sep, "/")
            folders.update(f"{relative}/{name}" if relative != "." else name for name in names)
        return folders
    base = place.path.strip("/") + "/"
    for path in place.filesystem().find(place.path):
        parents = str(path).strip("/").removeprefix(base).split("/")[:-1]
        if all(map(is_partition_folder, parents)):
            folders.update("/".join(parents[: depth + 1]) for depth in range(len(parents)))
    return folders


def _delete(location: Location) -> None:
    if location.local_path is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(location.local_path)
    else:
        location.filesystem().rm_file(location.path)
