"""Which files does a path name? Paths, URLs, chains, patterns and directories become `Location` objects.

A listing is asked at most once per call, and what it says about size and version travels with the
locations, so that opening them needs no further question (integrations.md 4.1, 4.3).
"""

from __future__ import annotations

import contextlib
import io as _io
import os
import stat as _stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from .filesystems import (
    checked_filesystem,
    is_filesystem,
    is_http,
    is_plain_local,
    live,
    local_token,
    state_of,
    storage_error,
)
from .names import (
    DATA_SUFFIXES,
    data_suffix,
    has_magic,
    is_ignored,
    is_partition_folder,
    join_spelling,
    match_component,
    natural_order,
    path_key,
    pattern_root,
    redact_url,
    split_pattern,
    with_path,
)

__all__ = ["Entry", "Location", "Resolution", "list_names", "resolve"]

ResolutionKind = Literal["file", "pattern", "directory", "list"]


@dataclass(frozen=True, slots=True, repr=False)
class Location:
    """One file (or directory), not opened. Picklable: the file system goes along as its arguments.

    Attributes
    ----------
    spelling : str
        As the caller wrote it; members of a directory or pattern are joined to it.
    url : str
        Absolute address. May hold credentials if the caller put them there; the repr does not show them.
    path : str
        Path inside `fs`.
    fs : fsspec.AbstractFileSystem or None
        None for files of this machine. `filesystem()` gives the object in either case, after a fork too.
    local_path : str or None
        Real path when the bytes are on this machine. ``None`` for file systems that keep local copies
        (``simplecache``): theirs is known when the file is opened.
    size : int or None
        Bytes, when a listing or an earlier question told.
    token : str or None
        Version token, likewise.
    """

    spelling: str
    url: str
    path: str
    fs: Any = field(compare=False)
    local_path: str | None
    size: int | None = None
    token: str | None = None

    def filesystem(self) -> Any:
        """Return the file system of this location, alive in this process."""
        return live(self.fs)

    def child(self, relative: str, **known: Any) -> Location:
        """Return the location of the file `relative` (folders separated by ``/``) below this directory."""
        local = self.local_path
        if local is not None:
            path = local = os.path.join(local, *relative.split("/"))
            return Location(join_spelling(self.spelling, relative), path, path, self.fs, local, **known)
        path = f"{self.path.rstrip('/')}/{relative}"
        return Location(
            join_spelling(self.spelling, relative), with_path(self.url, path), path, self.fs, None, **known
        )

    def parent(self) -> Location:
        """Return the location of the directory that holds this file."""
        if self.local_path is not None:
            path = os.path.dirname(self.local_path)
            return Location(os.path.dirname(self.spelling) or ".", path, path, self.fs, path)
        path = self.path.rstrip("/").rpartition("/")[0]
        spelling = self.spelling.rstrip("/").rpartition("/")[0]
        return Location(spelling, with_path(self.url, path), path, self.fs, None)

    def __reduce__(self) -> tuple[object, ...]:
        if (
            self.local_path is not None
            and self.url == self.path == self.local_path
            and is_plain_local(self.fs)
        ):
            return (_local_location, (self.spelling, self.path, self.size, self.token))
        parts = (self.spelling, self.url, self.path, self.fs, self.local_path, self.size, self.token)
        return (Location, parts)

    def __repr__(self) -> str:
        known = "" if self.size is None else f", size={self.size}"
        return f"Location({redact_url(self.spelling)!r}{known})"


def _local_location(spelling: str, path: str, size: int | None, token: str | None) -> Location:
    """Rebuild a pickled local location without a file system in the pickle: tasks carry one of these each."""
    return Location(spelling, path, path, None, path, size, token)


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a path names.

    Attributes
    ----------
    kind : {"file", "pattern", "directory", "list"}
        How the path was understood.
    locations : sequence of Location
        The data files, in natural order.
    root : Location or None
        The directory, when `kind` is ``"directory"``.
    hidden : tuple of Location
        Files of the directory itself whose names start with ``_``: no members, but a commit record may be
        among them, and they came with the same listing.
    """

    kind: ResolutionKind
    locations: Sequence[Location]
    root: Location | None = None
    hidden: tuple[Location, ...] = ()


class Entry(NamedTuple):
    """One file of a listing: base name, size, version token, and modification time in seconds if known."""

    name: str
    size: int | None
    token: str | None
    modified: float | None


class _Listed(NamedTuple):
    """One entry of a listing, before it is decided what it is for."""

    name: str
    path: str
    is_directory: bool
    info: Mapping[str, Any] | None


def copy_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Copy storage options, nested dictionaries too: fsspec calls change what they are given."""
    return {
        key: copy_options(value) if isinstance(value, dict) else value
        for key, value in dict(options or {}).items()
    }


# ---------------------------------------------------------------------------------------------------
# Listings


def _list_local(path: str) -> list[_Listed]:
    with os.scandir(path) as entries:
        return [_Listed(entry.name, entry.path, _is_folder(entry), None) for entry in entries]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _list_remote(fs: Any, path: str, spelling: str) -> list[_Listed]:
    """List one directory without a pattern: a name may hold ``[``, ``*`` or ``?``."""
    fs = live(fs)
    try:
        fs.invalidate_cache(path)  # another process may have written since
    except Exception:  # not every implementation takes a path, or has a cache
        fs.invalidate_cache()
    try:
        found = fs.ls(path, detail=True)
    except Exception as exc:
        raise storage_error(exc, "list", redact_url(spelling)) from None
    bare = path.strip("/")
    result = []
    for info in found:
        full = str(info["name"])
        trimmed = full.rstrip("/")
        if trimmed.strip("/") == bare:
            if info.get("type") == "file" and not path.endswith("/"):
                raise NotADirectoryError(20, "Not a directory", redact_url(spelling))
            continue  # the marker object of the directory itself
        if is_http(fs) and not trimmed.startswith(path.rstrip("/") + "/"):
            continue  # an index page links elsewhere too
        result.append(_Listed(trimmed.rpartition("/")[2], trimmed, info.get("type") == "directory", info))
    return result


def _list_directory(root: Location) -> list[_Listed]:
    if root.local_path is not None:
        return _list_local(root.local_path)
    return _list_remote(root.fs, root.path, root.spelling)


def _location(root: Location, relative: str, entry: _Listed) -> Location:
    """Make the location of a listed file from the directory it was found in."""
    spelling = join_spelling(root.spelling, relative)
    if root.local_path is not None:
        return Location(spelling, entry.path, entry.path, root.fs, entry.path)
    size = token = None
    if entry.info is not None and entry.info.get("size") is not None:
        state = state_of(root.fs, entry.path, entry.info)
        size, token = state.size, state.token
    return Location(spelling, with_path(root.url, entry.path), entry.path, root.fs, None, size, token)


def list_names(directory: Location) -> list[Entry]:
    """List the files (not the folders) directly in a directory, hidden ones included, in natural order.

    One fresh listing; with size, token and modification time as far as the store tells.

    Raises
    ------
    FileNotFoundError
        If there is no such directory.
    """
    result = []
    for entry in _list_directory(directory):
        if entry.is_directory:
            continue
        if directory.local_path is not None:
            try:
                stat = os.stat(entry.path)
            except FileNotFoundError:  # removed since the listing, or a dangling link
                continue
            result.append(Entry(entry.name, stat.st_size, local_token(stat), stat.st_mtime))
        else:
            info = entry.info or {}
            if info.get("size") is None:
                result.append(Entry(entry.name, None, None, None))
                continue
            state = state_of(directory.filesystem(), entry.path, info)
            result.append(Entry(entry.name, state.size, state.token, _seconds(info)))
    return sorted(result, key=lambda entry: path_key(entry.name))


def _seconds(info: Mapping[str, Any]) -> float | None:
    for key in ("LastModified", "last_modified", "mtime", "modified", "updated", "created"):
        value = info.get(key)
        timestamp = getattr(value, "timestamp", None)
        if timestamp is not None:
            return float(timestamp())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


# ---------------------------------------------------------------------------------------------------
# Directories


def _members(root: Location) -> Resolution:
    """Resolve a directory: its data files in natural order, and those of its ``key=value`` folders."""
    if root.local_path is not None and is_plain_local(root.fs):
        flat = _flat_members(root, root.local_path)
        if flat is not None:
            return flat
    found: list[tuple[str, _Listed]] = []
    hidden: list[Location] = []
    seen: set[str] = set()
    folders = [("", root)]
    while folders:
        prefix, folder = folders.pop()
        for entry in _list_directory(folder):
            relative = f"{prefix}{entry.name}"
            if entry.is_directory:
                if is_partition_folder(entry.name):
                    folders.append((f"{relative}/", _subfolder(folder, entry)))
            elif is_ignored(entry.name):
                if not prefix and entry.name.startswith("_"):
                    hidden.append(_location(root, relative, entry))
            elif (suffix := data_suffix(entry.name)) is not None:
                seen.add(suffix)
                found.append((relative, entry))
    _check_suffixes(root, sorted(seen), hidden)
    found.sort(key=lambda item: path_key(item[0]))
    members = tuple(_location(root, relative, entry) for relative, entry in found)
    return Resolution("directory", members, root, _in_order(hidden))


def _flat_members(root: Location, path: str) -> Resolution | None:
    """Resolve a directory of this machine that has no ``key=value`` folders: no object for each of its files."""
    from .block import LocalPaths

    names: list[str] = []
    hidden: list[Location] = []
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if _is_folder(entry):
                if is_partition_folder(name):
                    return None
            elif is_ignored(name):
                if name.startswith("_"):
                    hidden.append(_location(root, name, _Listed(name, entry.path, False, None)))
            elif name.endswith(DATA_SUFFIXES):
                names.append(name)
    _check_suffixes(root, sorted({f".{name.rpartition('.')[2]}" for name in names}), hidden)
    names = natural_order(names)
    spelled, placed = join_spelling(root.spelling, ""), os.path.join(path, "")
    # LocalPaths gives locations as they are asked for.
    members = (
        LocalPaths([spelled + name for name in names], [placed + name for name in names]) if names else ()
    )
    return Resolution("directory", members, root, _in_order(hidden))


def _in_order(locations: Sequence[Location]) -> tuple[Location, ...]:
    return tuple(sorted(locations, key=lambda item: path_key(item.path)))


def _check_suffixes(root: Location, suffixes: Sequence[str], hidden: Sequence[Location]) -> None:
    # A manifest says which of them are the dataset; what it does not name is no part of it.
    if len(suffixes) > 1 and not any(
        location.path.rpartition("/")[2].startswith("_colstore-") for location in hidden
    ):
        raise ValueError(
            f"{redact_url(root.spelling)} holds files of several formats ({', '.join(suffixes)}); a directory is one "
            "dataset of one format. Name the files with a pattern, for example '*" + suffixes[0] + "'."
        )


def _subfolder(folder: Location, entry: _Listed) -> Location:
    if folder.local_path is not None:
        return replace(folder, url=entry.path, path=entry.path, local_path=entry.path)
    return replace(folder, path=entry.path, url=with_path(folder.url, entry.path))


# ---------------------------------------------------------------------------------------------------
# Patterns

Lister = Callable[[str], list[_Listed]]


def _expand(folder: str, components: list[str], lister: Lister, matched: str) -> list[tuple[str, _Listed]]:
    """Return (path relative to the literal folder, entry) of all files that fit; directories are walked once each."""
    component, rest = components[0], components[1:]
    result: list[tuple[str, _Listed]] = []
    try:
        entries = lister(folder)
    except (FileNotFoundError, NotADirectoryError):
        return result
    if component == "**":
        if rest:
            result.extend(_expand(folder, rest, lister, matched))
        else:
            result.extend((f"{matched}{entry.name}", entry) for entry in entries if not entry.is_directory)
        for entry in entries:
            if entry.is_directory and not entry.name.startswith("."):
                result.extend(_expand(entry.path, components, lister, f"{matched}{entry.name}/"))
        return result
    for entry in entries:
        if entry.name != component and not match_component(entry.name, component):
            continue
        relative = f"{matched}{entry.name}"
        if not rest:
            if not entry.is_directory:
                result.append((relative, entry))
        elif entry.is_directory:
            result.extend(_expand(entry.path, rest, lister, f"{relative}/"))
    return result


def _pattern(base: Location, components: list[str], spelling: str) -> Resolution:
    """Resolve a pattern below the literal folder `base`. A file spelled exactly like the pattern wins."""
    listed: dict[str, list[_Listed]] = {}

    def lister(path: str) -> list[_Listed]:
        if path not in listed:
            listed[path] = (
                _list_local(path or ".")
                if base.local_path is not None
                else _list_remote(base.fs, path, spelling)
            )
        return listed[path]

    start = base.local_path if base.local_path is not None else base.path
    try:
        found = dict(_expand(start, components, lister, ""))
    except PermissionError as exc:
        raise PermissionError(exc.errno, exc.strerror, redact_url(spelling)) from None
    literal = "/".join(components)
    if literal in found:
        return Resolution("file", (_location(base, literal, found[literal]),))
    if literal.rstrip("/") != literal or literal not in found:
        folder, _, last = literal.rstrip("/").rpartition("/")
        for entry in listed.get(f"{start.rstrip('/')}/{folder}".rstrip("/") if folder else start, ()):
            if entry.is_directory and entry.name == last:  # a directory spelled exactly like the pattern
                return _members(replace(_subfolder(base, entry), spelling=spelling))
    last = components[-1]
    wanted = [
        (relative, entry)
        for relative, entry in found.items()
        if not (is_ignored(entry.name) and not last.startswith(("_", ".")) and not last.endswith(".crc"))
    ]
    if not wanted:
        raise FileNotFoundError(2, "no files matched the pattern", redact_url(spelling))
    wanted.sort(key=lambda item: path_key(item[0]))
    return Resolution("pattern", tuple(_location(base, relative, entry) for relative, entry in wanted))


# ---------------------------------------------------------------------------------------------------
# The entry


def _resolve_local(spelling: str, path: str, fs: Any, *, literal_only: bool) -> Resolution:
    path = os.path.abspath(path)
    try:
        stat = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if literal_only or not has_magic(spelling):
            raise FileNotFoundError(2, "No such file or directory", spelling) from None
        folder, components = split_pattern(path)
        folder = folder or "/"
        root = pattern_root(spelling)
        return _pattern(Location(root, folder, folder, fs, folder), components, spelling)
    except ValueError as exc:  # a NUL in the name
        raise FileNotFoundError(2, f"No such file or directory ({exc})", spelling) from None
    location = Location(spelling, path, path, fs, path)
    if _stat.S_ISDIR(stat.st_mode):
        return _members(location)
    if not _stat.S_ISREG(stat.st_mode):
        raise OSError(22, "Not a regular file", spelling)
    return Resolution("file", (location,))


def _resolve_remote(spelling: str, url: str, path: str, fs: Any, *, literal_only: bool) -> Resolution:
    http = is_http(fs)
    if not literal_only and has_magic(path, http=http):
        folder, components = split_pattern(path, http=http)
        root = pattern_root(spelling, http=http)
        base = Location(root, with_path(url, folder), folder, fs, None)
        return _pattern(base, components, spelling)
    location = Location(spelling, url, path, fs, None)
    if spelling.partition("::")[0].endswith("/") or url.rstrip().endswith("/"):
        return _members(location)
    name = path.partition("?")[0].rpartition("/")[2] if http else path.rpartition("/")[2]
    # A name that ends like a data file is taken for one: opening it will tell, and costs no question now.
    if data_suffix(name) is not None or name.endswith(".json") or http:
        return Resolution("file", (location,))
    # Any other name is most often that of a directory, whose listing tells all at once.
    with contextlib.suppress(OSError):
        listed = _members(location)
        if listed.locations or listed.hidden:
            return listed
    try:
        info = fs.info(path)
    except Exception as exc:
        raise storage_error(exc, "open", redact_url(spelling)) from None
    if info.get("type") == "directory":
        return _members(location)
    if info.get("size") is not None:
        state = state_of(fs, path, info)
        location = replace(location, size=state.size, token=state.token)
    return Resolution("file", (location,))


def resolve(
    path: Any, *, storage_options: Mapping[str, Any] | None = None, filesystem: Any = None
) -> Resolution:
    """Find the files that `path` names. Nothing is opened; a file that is not there may be noticed only then.

    Parameters
    ----------
    path : str, PathLike, OpenFile or fsspec file
        A local path, a URL, a chain of URLs (``simplecache::s3://...``), a pattern (``*``, ``?``, ``[``, ``**``
        for any depth), or a directory. What is there literally wins over a pattern; a PathLike is never a
        pattern; in web addresses ``?`` is none.
    storage_options : mapping, optional
        For the file system of a URL. Copied; never shown.
    filesystem : fsspec.AbstractFileSystem, optional
        `path` is a path inside this one.

    Returns
    -------
    Resolution

    Raises
    ------
    FileNotFoundError
        If nothing is there or nothing matches.
    ValueError
        If a directory holds data files of several formats.
    TypeError
        If `path` is none of the above (lists, buffers and plain file objects are not taken here).
    """
    fs_of_object = getattr(path, "fs", None)
    inner = getattr(path, "path", None)
    if is_filesystem(fs_of_object) and isinstance(inner, str):
        if getattr(path, "compression", None) is not None:
            raise ValueError(
                "a compressed file has no byte ranges to read; decompress it first, or pass its contents as bytes"
            )
        return _resolve_on(live(fs_of_object), inner, spelling=None, literal_only=True)
    literal_only = not isinstance(path, str)
    if literal_only:
        if isinstance(path, bytes | bytearray | memoryview | _io.IOBase) or not isinstance(path, os.PathLike):
            raise TypeError(f"expected a path, a URL or an fsspec file, got {type(path).__name__}")
        path = os.fspath(path)
        if isinstance(path, bytes):
            path = os.fsdecode(path)
    if not path:
        raise ValueError("the path is empty; '.' is the working directory")
    if filesystem is not None:
        return _resolve_on(checked_filesystem(filesystem), path, spelling=path, literal_only=literal_only)
    if literal_only or not ("://" in path or ("::" in path and not os.path.lexists(path))):
        expanded = path if literal_only else os.path.expanduser(path)
        return _resolve_local(path, expanded, None, literal_only=literal_only)
    import fsspec

    try:
        fs, inside = fsspec.url_to_fs(path, **copy_options(storage_options))
    except (ImportError, ValueError) as exc:  # library of the protocol missing; protocol unknown
        raise type(exc)(f"cannot open {redact_url(path)}: {exc}") from None
    fs = live(fs)
    if is_plain_local(fs):
        return _resolve_local(path, inside, fs, literal_only=False)
    return _resolve_remote(path, path, inside, fs, literal_only=False)


def _resolve_on(fs: Any, path: str, *, spelling: str | None, literal_only: bool) -> Resolution:
    inside = fs._strip_protocol(path)
    if is_plain_local(fs):
        return _resolve_local(spelling or inside, inside, fs, literal_only=literal_only)
    url = fs.unstrip_protocol(inside)
    if path.endswith("/") and not url.endswith("/"):
        url += "/"
    return _resolve_remote(spelling or url, url, inside, fs, literal_only=literal_only)
