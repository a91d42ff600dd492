"""Which files make up generation g of a directory? The commit record of everything made of several files.

A generation manifest ``_colstore-<8 digits>.json`` is created exclusively and never changed; the newest complete
one is the dataset (architecture.md 7, cstore.md 10.1).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from .. import storage
from ..arguments import check_integer, check_number
from ..errors import CommitConflictError, UnsupportedFeatureError
from ..storage import Location
from ..storage.names import data_suffix, is_ignored, is_partition_folder
from ..storage.names import path_key as natural_path_key
from .manifest_json import (
    FileEntry,
    GenerationManifest,
    IncompleteManifestError,
    generation_of_name,
    manifest_name,
    new_commit_id,
)
from .output import sync
from .publish import resolve_target, write_small_file

__all__ = [
    "FileEntry",
    "GenerationManifest",
    "IncompleteManifestError",
    "check_table",
    "directory_location",
    "generation_of_name",
    "has_own_name",
    "manifest_name",
    "member_locations",
    "new_commit_id",
    "newest_generation",
    "newest_read",
    "newest_table",
    "next_number",
    "publish",
    "read_bytes",
    "read_generation",
    "vacuum",
]

T = TypeVar("T")


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


def read_bytes(location: Location) -> bytes:
    """Return all bytes of a manifest."""
    if location.local_path is not None:
        with open(location.local_path, "rb", buffering=0) as local:
            return local.readall()
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
    IncompleteManifestError, UnsupportedFeatureError
        If it is not complete, or complete but not understood; see `GenerationManifest.from_bytes`.
    """
    return GenerationManifest.from_bytes(read_bytes(location), path=location.spelling)


def newest_generation(directory: Location) -> GenerationManifest | None:
    """Return the newest complete generation of a directory, or None when there is none.

    A manifest that is not complete is what an interrupted commit leaves behind, and is passed over.

    Raises
    ------
    UnsupportedFeatureError
        If the newest complete manifest is not understood: it is the dataset all the same, and an older one is not.
    """
    return newest_read(directory, read_generation)


def newest_read(directory: Location, read: Callable[[Location], T]) -> T | None:
    """Return what `read` makes of the newest complete manifest; it raises what `read_generation` does."""
    for generation in _generations(directory):
        try:
            return read(directory.child(manifest_name(generation)))
        except (IncompleteManifestError, FileNotFoundError):
            continue
    return None


def _generations(directory: Location) -> list[int]:
    """Return the numbers of all manifests in a directory, complete or not, newest first."""
    names: Iterable[str]
    try:
        if directory.local_path is not None:
            # Only names count: no question about each of many members.
            names = [name for name in os.listdir(directory.local_path) if name.startswith("_colstore-")]
        else:
            names = [entry.name for entry in storage.list_names(directory)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = map(generation_of_name, names)
    return sorted((generation for generation in found if generation is not None), reverse=True)


def newest_table(directory: Location, listed: Sequence[Location] | None = None) -> GenerationManifest | None:
    """Return the newest complete generation of a directory of shards; None when there is none.

    Parameters
    ----------
    listed : sequence of Location, optional
        Files of the directory as a listing has just found them, manifests among them. Default: list now.

    Raises
    ------
    UnsupportedFeatureError
        If it is not understood, or holds N-D variables instead of a table.
    """
    found = newest_generation(directory) if listed is None else _newest_listed(listed)
    if found is not None:
        check_table(found, directory.child(found.name).spelling)
    return found


def _newest_listed(listed: Sequence[Location]) -> GenerationManifest | None:
    numbers = {generation_of_name(location.path.rpartition("/")[2]): location for location in listed}
    for number in sorted((n for n in numbers if n is not None), reverse=True):
        try:
            return read_generation(numbers[number])
        except (IncompleteManifestError, FileNotFoundError):
            continue
    return None


def check_table(generation: GenerationManifest, path: str) -> None:
    """Raise `UnsupportedFeatureError` for a grid container, whose files are no shards of one table."""
    if generation.kind != "table":
        raise UnsupportedFeatureError(
            "the directory holds N-D variables, not a table; open it with xarray: "
            "xr.open_dataset(path, engine='colstore')",
            path=path,
        )


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


def publish(
    directory: Location,
    generation: GenerationManifest,
    *,
    checked: bool = False,
    before_name: Callable[[int], None] = sync,
) -> Location:
    """Create the manifest of a generation, exclusively.

    The target is read back after any error: our own commit id means that an earlier try had arrived
    (integrations.md 2.4 step 4).

    Parameters
    ----------
    checked : bool
        The caller has read the newest generation, and understood it.
    before_name : callable
        On this machine: makes the descriptor that it is given durable, and all that the manifest names. Called before
        the manifest has its name.

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
    UnsupportedFeatureError
        The newest generation is not understood, so none can follow it; nothing was written.
    """
    if not checked:
        newest_generation(directory)
    data = generation.to_bytes()
    location = directory.child(generation.name)
    try:
        if location.local_path is not None:
            write_small_file(location.local_path, data, exclusive=True, before_name=before_name)
        else:
            storage.write_object(location, [data], exclusive=True)
    except Exception as exc:
        try:
            found = read_generation(location)
        except FileNotFoundError:
            raise exc from None
        except IncompleteManifestError:
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


def has_own_name(path: str) -> bool:
    """Tell whether a data file has a name that its writer drew, and that nobody writes a second time."""
    return _OWN_DATA_FILE.fullmatch(path.rpartition("/")[2]) is not None


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
    FileNotFoundError, NotADirectoryError
        If there is no such directory.
    ValueError
        If `keep` is less than 1, or `older_than_seconds` negative.
    UnsupportedFeatureError
        If one of the newest `keep` complete manifests is not understood: what it needs is unknown, and nothing is
        deleted.

    Warns
    -----
    RuntimeWarning
        Naming data files that no kept generation names and that this function never deletes.

    Notes
    -----
    Only files of this library's own pattern ``part-<digits>-<random>.*`` are deleted, and never a manifest. A
    directory without a complete manifest consists of all its members: nothing is deleted there.
    """
    check_integer("keep", keep, 1)
    check_number("older_than_seconds", older_than_seconds, 0)
    place = directory_location(directory, storage_options=storage_options, filesystem=filesystem)
    named = _kept_files(place, keep)
    if named is None:
        _check_directory(place)
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


def _check_directory(place: Location) -> None:
    """Raise `FileNotFoundError` if there is no such directory, `NotADirectoryError` if it is something else."""
    if place.local_path is None:
        storage.list_names(place)
    elif not os.path.isdir(place.local_path):
        code = errno.ENOTDIR if os.path.lexists(place.local_path) else errno.ENOENT
        raise OSError(code, f"{os.strerror(code)}: vacuum takes the directory of a dataset", place.spelling)


def _kept_files(place: Location, keep: int) -> set[str] | None:
    """Return what the newest `keep` complete generations name; None when there is no complete generation."""
    named: set[str] = set()
    kept = 0
    for generation in _generations(place):
        if kept == keep:
            break
        try:
            manifest = read_generation(place.child(manifest_name(generation)))
        except (IncompleteManifestError, FileNotFoundError):
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
