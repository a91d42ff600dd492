"""Opening a container: its newest generation, or the one that the caller names, as a `Model`. One listing, one read."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import storage
from ..errors import FormatError
from ..storage import Location
from ..storage.names import data_suffix
from ..writing import manifest
from ..writing.manifest_json import generation_of_name
from .model import Group, Model
from .parsing import group_path, parse_grid
from .reading import GridVariable
from .source import GridSource

__all__ = [
    "Container",
    "Newest",
    "check_free",
    "container_at",
    "generation_at",
    "keep_newest",
    "may_be_grid",
    "newest_of",
    "open_container",
    "place_of",
]

_GENERATION = re.compile(r"_colstore-\d{8}\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class Container:
    """An open container.

    Attributes
    ----------
    place : Location
        The directory.
    model : Model
        What the generation says that was read. Later ones are not seen.
    source : GridSource
        Its data files.
    """

    place: Location
    model: Model
    source: GridSource

    def group(self, path: str | None = None) -> Group:
        """Return a group.

        Raises
        ------
        KeyError
            If there is no such group, naming those that there are.
        """
        name = group_path(path)
        if name not in self.model.groups:
            known = ", ".join(map(repr, list(self.model.groups)[:20]))
            raise KeyError(f"no group {name!r} in {self.place.spelling}; groups are {known}")
        return self.model.groups[name]

    def variable(self, name: str, group: str | None = None) -> GridVariable:
        """Return a variable, ready to be read; `KeyError` if there is none."""
        return self._variable(self.group(group), name)

    def variables(self, group: str | None = None) -> Iterator[tuple[str, GridVariable]]:
        """Return all variables of a group, by name."""
        found = self.group(group)
        return ((name, self._variable(found, name)) for name in found.variables)

    def _variable(self, group: Group, name: str) -> GridVariable:
        members = group.members_of.get(name, ())
        texts = {member.texts[name] for member in members if member.texts and name in member.texts}
        return GridVariable(
            self.source, group.variables[name], members, {path: group.texts[path] for path in texts}
        )

    def close(self) -> None:
        self.source.close()


def place_of(path: Any, *, storage_options: Any = None, filesystem: Any = None) -> Location:
    """Return the directory that `path` names; a trailing slash is nothing."""
    if isinstance(path, (str, os.PathLike)):
        text = os.fspath(path)
        if isinstance(text, str) and len(text) > 1:
            stripped = text.rstrip("/")
            path = stripped if stripped and not stripped.endswith(":") else text
    return manifest.directory_location(path, storage_options=storage_options, filesystem=filesystem)


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest generation of a directory when it was looked at.

    Attributes
    ----------
    model : Model
    stamp : tuple of int, or None
        Tells the file of the manifest from any other, where that is cheap: on this machine.
    """

    model: Model
    stamp: tuple[int, ...] | None

    def is_before(self, place: Location, number: int) -> bool:
        """Whether this surely still is the newest generation, if `number` is the next free one."""
        return (
            self.stamp is not None
            and number == self.model.generation + 1
            and self.stamp == _stamp(place, self.model.generation)
        )


def _stamp(place: Location, generation: int) -> tuple[int, ...] | None:
    if place.local_path is None:
        return None
    try:
        found = os.stat(os.path.join(place.local_path, manifest.manifest_name(generation)))
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


_MOST_KEPT = 4

_MOST_MEMBERS = 1 << 16
"""Of larger generations, what is remembered would take more than some ten megabytes."""

_kept: dict[str, Newest] = {}
"""The newest generations that this process has read or published last, by path: who appends step by step would read the
same ones again and again, which takes as long as there are files. Not for readers, who look at what is there."""


def keep_newest(place: Location, model: Model) -> Newest:
    """Remember a generation that was read, or published, just now."""
    newest = Newest(model, _stamp(place, model.generation))
    if place.local_path is not None:
        # No lock: each step is atomic, and whatever is found is compared with what is there before it is used.
        _kept.pop(place.local_path, None)
        if newest.stamp is not None and sum(len(g.members) for g in model.groups.values()) <= _MOST_MEMBERS:
            _kept[place.local_path] = newest
        for path in list(_kept)[:-_MOST_KEPT]:
            _kept.pop(path, None)
    return newest


def _kept_newest(place: Location) -> Newest | None:
    newest = None if place.local_path is None else _kept.get(place.local_path)
    if newest is None or not newest.is_before(place, manifest.next_number(place)):
        return None
    return newest


def newest_of(place: Location) -> Newest | None:
    """Return the newest generation of a directory; None when it has no manifest.

    Raises
    ------
    FormatError
        If it is damaged, or the manifest of a table.
    """
    kept = _kept_newest(place)
    if kept is not None:
        return kept
    found = manifest.newest_generation(place)
    if found is None:
        return None
    # A manifest is never changed, so one read is as good as another.
    return keep_newest(place, parse_grid(found, path=place.child(found.name).spelling))


def open_container(
    path: Any,
    *,
    storage_options: Any = None,
    filesystem: Any = None,
    mmap: bool = True,
    backend: str | None = None,
    max_workers: int | None = None,
) -> Container:
    """Open a container: a directory, or the manifest of one of its generations.

    Parameters
    ----------
    path : path, URL or Location
    storage_options, filesystem
        For URLs.
    mmap, backend, max_workers
        As in `GridSource`.

    Raises
    ------
    FileNotFoundError
        If there is no manifest.
    FormatError
        If the manifest is damaged, contradicts itself, or is that of a table.
    """
    place, found = generation_at(path, storage_options=storage_options, filesystem=filesystem)
    if found is None:
        raise FileNotFoundError(
            2, "no such grid container: the directory has no complete manifest", place.spelling
        )
    return Container(
        place, found.model(place), GridSource(place, mmap=mmap, backend=backend, max_workers=max_workers)
    )


class Generation:
    """A manifest that was read, and what it says of a grid, once somebody asked."""

    __slots__ = ("_model", "manifest")

    def __init__(self, found: manifest.GenerationManifest) -> None:
        self.manifest = found
        self._model: Model | None = None

    def model(self, place: Location) -> Model:
        """Return the model, checked when it is first asked for.

        Raises
        ------
        FormatError
            If it contradicts itself, or is that of a table.
        """
        if self._model is None:
            self._model = parse_grid(self.manifest, path=place.child(self.manifest.name).spelling)
        return self._model


_REMEMBERED_BYTES = 1 << 20
"""Manifests up to this size are understood once, the last few of them: groups of one container are opened one after
the other, loops open the same one again. They are read each time; the same bytes under the same name are the same."""


def _understood(data: bytes, spelling: str) -> Generation:
    return Generation(manifest.GenerationManifest.from_bytes(data, path=spelling))


_remembered = functools.lru_cache(4)(_understood)


def _read(location: Location) -> Generation:
    data = manifest.read_bytes(location)
    return (_remembered if len(data) <= _REMEMBERED_BYTES else _understood)(data, location.spelling)


def generation_at(
    path: Any, *, storage_options: Any = None, filesystem: Any = None
) -> tuple[Location, Generation | None]:
    """Return the directory that `path` names, itself or by a manifest in it, and the generation; None without one.

    A generation may be shared with other callers: nobody changes it, nor what its model holds.
    """
    place = place_of(path, storage_options=storage_options, filesystem=filesystem)
    if generation_of_name(place.path.rstrip("/").rpartition("/")[2]) is not None:
        return place.parent(), _read(place)
    return place, manifest.newest_read(place, _read)


def may_be_grid(path: Any, filesystem: Any = None) -> bool:
    """Whether `path` may be the directory, or a manifest, of a grid container. Asks at most whether it is a folder."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    text = os.fspath(path)
    if isinstance(text, bytes):
        return False
    if _GENERATION.fullmatch(text.rpartition("/")[2]):
        return True
    if filesystem is not None or "://" in text or "::" in text:
        return data_suffix(text) is None and not any(magic in text for magic in "*?[")
    # Whether a manifest is in it is seen by who reads the newest.
    return os.path.isdir(os.path.expanduser(text))


def container_at(
    path: Any,
    group: str | None = None,
    *,
    storage_options: Any = None,
    filesystem: Any = None,
    **options: Any,
) -> Container | None:
    """Open `path` if it is a grid container; None if it is something else, such as a table.

    Parameters
    ----------
    path
        Anything: what cannot be a container is not looked at.
    group : str, optional
        Must be in the container.
    storage_options, filesystem
        For URLs.
    **options
        Of `GridSource`.

    Raises
    ------
    FormatError
        If the manifest contradicts itself.
    KeyError
        If there is no such group.
    OSError
        If `group` is given and the store does not answer; without one, what opens tables says what is wrong.
    """
    if not may_be_grid(path, filesystem):
        return None
    try:
        place, found = generation_at(path, storage_options=storage_options, filesystem=filesystem)
    except (OSError, NotImplementedError):
        if group is not None:
            raise
        return None  # a server that lists nothing
    if found is None or found.manifest.kind != "grid":
        return None
    container = Container(place, found.model(place), GridSource(place, **options))
    container.group(group)
    return container


def check_free(place: Location) -> None:
    """Check that a new container may be made here, where no complete manifest is: in an empty directory, or in none.

    Raises
    ------
    NotADirectoryError
        If a file has this name.
    FormatError
        If the directory is a table: it has data files, and no manifest.
    """
    if place.local_path is not None:
        if not os.path.lexists(place.local_path):
            return
        if not os.path.isdir(place.local_path):
            raise NotADirectoryError(
                20, "a file is in the way; a grid container is a directory", place.spelling
            )
    try:
        names = [entry.name for entry in storage.list_names(place)]
    except FileNotFoundError:
        return
    if any(generation_of_name(name) is not None for name in names):
        return
    others = [name for name in names if data_suffix(name) is not None and not name.startswith("part-")]
    if others:
        raise FormatError(
            f"the directory is a table: it holds {others[0]} and no grid manifest. Choose another directory",
            path=place.spelling,
        )
