"""From what the user wrote to a source.

`open_source` accepts a path, URL, pattern, directory, generation manifest, bytes or file object and returns a
`Source` with its files' headers read: one listing at most and one concurrent round of header reads.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import config, formats, storage
from .arguments import check_integer, check_name
from .dataset import Source
from .errors import FormatError
from .fields import Schema
from .formats import ReadOptions, ShardMeta
from .plan import OnMismatch, build_plan
from .storage import ByteFile, HeadBlock, IOStats, LocalFiles, LocalOptions, Location, RemoteFile

if TYPE_CHECKING:
    from .deferred import DeferredSource
    from .formats.columns.opened import OpenedFile
    from .writing import manifest

__all__ = ["OpenOptions", "Opened", "is_buffer", "open_locations", "open_paths", "open_raw", "open_source"]

_READ_DEFAULTS = ("strict", False, None, None, None, True)
_DATA_SUFFIXES = storage.DATA_SUFFIXES
_GENERATION = re.compile(r"_colstore-\d{8}\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """The options of `open`, checked. Picklable; ``storage_options`` are kept out of representations.

    Two that `open` does not offer, for whoever plans reads that others will do: ``statistics=False`` leaves these in
    the files until somebody asks for them, ``keep_open=False`` opens files again when they are read.
    """

    storage_options: Mapping[str, Any] | None = None
    filesystem: Any = None
    madvise: str | None = None
    mlock: bool = False
    mmap: bool = True
    backend: str = "cpp"
    max_workers: int | None = None
    on_mismatch: OnMismatch = "strict"
    on_empty_file: str = "error"
    ignore_manifest: bool = False
    strict: bool = False
    table: str | None = None
    errors: str = "strict"
    max_rows: int | None = None
    max_decoded_bytes: int | None = None
    statistics: bool = True
    keep_open: bool = True

    @property
    def reading(self) -> ReadOptions:
        """The options that formats with encoded columns look at."""
        limits = (self.max_rows, self.max_decoded_bytes)
        if (self.errors, self.strict, self.table, *limits, self.statistics) == _READ_DEFAULTS:
            return formats.READ_DEFAULTS
        given: dict[str, Any] = {"strict": self.strict, "table": self.table, "errors": self.errors}
        given["statistics"] = self.statistics
        if self.max_rows is not None:
            given["max_rows"] = self.max_rows
        if self.max_decoded_bytes is not None:
            given["max_decoded_bytes"] = self.max_decoded_bytes
        return ReadOptions(**given)

    @classmethod
    def checked(cls, **options: Any) -> OpenOptions:
        """Fill in the defaults and check every value.

        Raises
        ------
        TypeError
            For an option that does not exist.
        ValueError
            For a value that is not allowed.
        """
        if options == _DEFAULTS:
            return _defaults(config.get_default_madvise(), config.get_default_backend())
        known = cls.__dataclass_fields__
        for name in options:
            if name not in known:
                import difflib

                close = difflib.get_close_matches(name, known, n=1)
                hint = (
                    f"did you mean {close[0]!r}?"
                    if close
                    else f"the options of open() are {', '.join(known)}"
                )
                raise TypeError(f"unexpected option {name!r}; {hint}")
        return cls._checked(options)

    @classmethod
    def _checked(cls, options: dict[str, Any]) -> OpenOptions:
        options.setdefault("madvise", config.get_default_madvise())
        if options.get("backend") is None:
            options["backend"] = config.get_default_backend()
        result = cls(**options)
        config.check_madvise(result.madvise)
        config.check_backend(result.backend)
        for name in ("max_workers", "max_rows", "max_decoded_bytes"):
            if (limit := getattr(result, name)) is not None:
                check_integer(name, limit, 1)
        if result.table is not None:
            check_name("table", result.table)
        if result.on_mismatch not in ("strict", "drop"):
            raise ValueError(f"on_mismatch must be 'strict' or 'drop', got {result.on_mismatch!r}")
        if result.on_empty_file not in ("error", "skip"):
            raise ValueError(f"on_empty_file must be 'error' or 'skip', got {result.on_empty_file!r}")
        if result.errors not in ("strict", "surrogateescape"):
            raise ValueError(f"errors must be 'strict' or 'surrogateescape', got {result.errors!r}")
        if result.storage_options is not None and result.filesystem is not None:
            raise ValueError("give storage_options or filesystem, not both")
        return result

    def __repr__(self) -> str:
        return f"OpenOptions(backend={self.backend!r}, on_mismatch={self.on_mismatch!r})"


_DEFAULTS = {name: field.default for name, field in OpenOptions.__dataclass_fields__.items()}
_DEFAULTS["backend"] = None
del _DEFAULTS["madvise"], _DEFAULTS["statistics"], _DEFAULTS["keep_open"]
"""What `open` passes on when its caller gave it nothing: most calls, which need no look at each option."""


@functools.cache
def _defaults(madvise: str | None, backend: str) -> OpenOptions:
    return OpenOptions._checked({"madvise": madvise, "backend": backend})


@dataclass(frozen=True, slots=True)
class Opened:
    """A source and how the user named its files.

    Attributes
    ----------
    kind : str
        ``"file"`` for one file, else ``"dataset"``.
    paths : tuple of str
        One spelling for each file.
    """

    source: Source
    kind: str
    paths: tuple[str, ...]


def is_buffer(data: object) -> bool:
    """Return True for the contents of a file in memory."""
    return isinstance(data, (bytes, bytearray, memoryview))


def open_source(path: Any, options: OpenOptions) -> Opened:
    """Open one path, URL, pattern, directory, manifest, buffer or file object.

    Raises
    ------
    FileNotFoundError
        If there is no such file, or a pattern matches nothing.
    FormatError
        If a file is damaged or not a file of ours, naming it.
    SchemaMismatchError
        If the files of a dataset do not fit together.
    """
    if type(path) is str:
        deferred = _open_deferred(path, options)
        if deferred is not None:
            return Opened(deferred, "file", (path,))
    elif is_buffer(path) or is_stream_object(path):
        file, head = storage.open_file(path, io=IOStats())
        return Opened(_source([file], [head], options), "file", (file.spelling,))
    plain = _plain_location(path, options)
    if plain is not None:
        with contextlib.suppress(OSError):  # a folder, a pattern, or nothing: asked about below
            return Opened(open_locations((plain,), options), "file", (path,))
    kind, locations, generation = _locate(path, options)
    source = None if generation is None else _source_of_generation(generation, locations, options)
    if source is None:
        source = open_locations(locations, options)
    partitions = () if generation is None else _partitions(generation)
    if len(partitions) == len(source.files):  # else an empty file was skipped
        source.partitions = partitions
    return Opened(source, kind, tuple(x.spelling for x in locations))


def open_raw(path: Any, options: OpenOptions) -> tuple[Sequence[ByteFile], Sequence[memoryview]]:
    """Open what `path` names, or a list of paths, without looking at the files: they and their first bytes.

    Empty files are refused, or left out, as the options say.
    """
    if is_buffer(path) or is_stream_object(path):
        file, head = storage.open_file(path, io=IOStats())
        return [file], [head]
    paths = path if isinstance(path, (list, tuple)) else [path]
    locations = [location for one in paths for location in _locate(one, options)[1]]
    files, heads = storage.open_many(
        locations, mmap=options.mmap, madvise=options.madvise, mlock=options.mlock, io=IOStats()
    )
    kept = [n for n, file in enumerate(files) if not _skipped(file, options)]
    return [files[n] for n in kept], [heads[n] for n in kept]


def open_paths(paths: Sequence[Any], options: OpenOptions) -> Opened:
    """Open several paths, URLs, patterns or directories as one source: all headers in one concurrent round."""
    plain = _plain_locations(paths, options)
    if plain is not None:
        # A question per path costs as much as its open: open at once, and ask only when something is not a file.
        with contextlib.suppress(OSError):
            return Opened(open_locations(plain, options), "dataset", tuple(paths))
    locations = [location for path in paths for location in _locate(path, options)[1]]
    return Opened(open_locations(locations, options), "dataset", tuple(x.spelling for x in locations))


def _open_deferred(path: str, options: OpenOptions) -> Source | None:
    """Open what looks like the name of one local columns file, and is a sound one, else None."""
    if options.filesystem is not None or not path.endswith(".abcd"):
        return None
    absolute = _plain_path(path)
    if absolute is None:
        return None
    local = LocalOptions(options.mmap, options.madvise, options.mlock)
    open_local, deferred = _columns_opener()
    file = open_local(path, absolute, options.reading, local)
    return None if file is None else deferred(file, backend=options.backend, max_workers=options.max_workers)


@functools.cache
def _columns_opener() -> tuple[
    Callable[[str, str, ReadOptions, LocalOptions], OpenedFile | None], type[DeferredSource]
]:
    from .deferred import DeferredSource
    from .formats.columns.opened import open_local

    return open_local, DeferredSource


def _plain_path(path: str) -> str | None:
    """Return the absolute form of what looks like the name of one local data file, else None."""
    if ":" in path or path[0] == "~":
        return None
    plain = path[0] == "/" and "/." not in path and "//" not in path
    return path if plain else os.path.abspath(path)


def _plain_location(path: Any, options: OpenOptions) -> Location | None:
    """Return the location of what looks like the name of one local data file, else None."""
    if type(path) is not str or options.filesystem is not None or not path.endswith(_DATA_SUFFIXES):
        return None
    absolute = _plain_path(path)
    if absolute is None:
        return None
    return Location(path, absolute, absolute, None, absolute)


def _plain_locations(paths: Sequence[Any], options: OpenOptions) -> storage.LocalPaths | None:
    """Return the locations of paths that all look like names of local data files, else None."""
    if options.filesystem is not None or set(map(type, paths)) != {str}:
        return None
    text = "\0" + "\0".join(paths) + "\0"  # one look at all of them, not a thousand looks
    named = sum(text.count(suffix + "\0") for suffix in _DATA_SUFFIXES)
    if named != len(paths) or text.count("\0") != len(paths) + 1 or ":" in text or "\0~" in text:
        return None
    plain = text.count("\0/") == len(paths) and "/." not in text and "//" not in text
    absolute = paths if plain else [os.path.abspath(path) for path in paths]
    return storage.LocalPaths(paths, absolute)


def is_stream_object(source: object) -> bool:
    """Return True for a file object that is not an fsspec file (those are reopened by their path)."""
    return hasattr(source, "read") and hasattr(source, "seek") and not hasattr(source, "fs")


def _locate(
    path: Any, options: OpenOptions
) -> tuple[str, Sequence[Location], manifest.GenerationManifest | None]:
    if not isinstance(path, (str, os.PathLike)) and not hasattr(path, "fs"):
        raise TypeError(
            f"open() accepts a path, URL, bytes, a binary file object or a list, got {type(path).__name__}"
        )
    found = storage.resolve(path, storage_options=options.storage_options, filesystem=options.filesystem)
    if found.kind == "file":
        location = found.locations[0]
        if _GENERATION.fullmatch(location.path.rpartition("/")[2]):
            from .writing import manifest

            generation = manifest.read_generation(location)
            manifest.check_table(generation, location.spelling)
            return "dataset", manifest.member_locations(generation, location), generation
        return "file", found.locations, None
    if found.kind == "directory" and found.root is not None and not options.ignore_manifest:
        # The listing that found the members has told whether there is a manifest at all.
        names = (location.path.rpartition("/")[2] for location in found.hidden)
        if any(_GENERATION.fullmatch(name) for name in names):
            from .writing import manifest

            newest = manifest.newest_table(found.root, found.hidden)
        else:
            newest = None
        if newest is not None:
            listed = {location.path: location for location in found.locations}
            members = manifest.member_locations(newest, found.root)
            return "dataset", [listed.get(member.path, member) for member in members], newest
    return "dataset", found.locations, None


def _partitions(generation: manifest.GenerationManifest) -> tuple[Mapping[str, Any] | None, ...]:
    """Return for each file what its folders stand for; nothing where there are no folders."""
    return tuple(entry.partition for entry in generation.files) if generation.partition_on else ()


def _source_of_generation(
    generation: manifest.GenerationManifest, locations: Sequence[Location], options: OpenOptions
) -> Source | None:
    """Return the source of objects that their manifest describes, without a request; None where it has to be looked at.

    Only of files under names that no writer draws twice, and whose sizes in the listing are those of the manifest: what
    it says of them is then what their headers say. Files on this machine are looked at: that costs nothing.
    """
    from .writing import manifest
    from .writing.manifest_layout import shard_metas

    if not locations or not all(
        location.size == entry.size and manifest.has_own_name(entry.path)
        for location, entry in zip(locations, generation.files, strict=True)
    ):
        return None
    files = storage.listed_files(locations, IOStats())
    if files is None:
        return None
    metas = shard_metas(generation, [location.spelling for location in locations], options.reading)
    if metas is None:
        return None
    plan = build_plan(metas, on_mismatch=options.on_mismatch)
    return Source(plan, files, metas=metas, backend=options.backend, max_workers=options.max_workers)


def open_locations(locations: Sequence[Location], options: OpenOptions) -> Source:
    """Open files and read their headers in one concurrent round."""
    if type(locations) is storage.LocalPaths and locations.paths[0].endswith(".abcd"):
        source = _open_columns(locations, options)
        if source is not None:
            return source
    files, heads = storage.open_many(
        locations,
        mmap=options.mmap,
        madvise=options.madvise,
        mlock=options.mlock,
        keep_open=options.keep_open,
        io=IOStats(),
    )
    return _source(files, heads, options)


def _open_columns(locations: storage.LocalPaths, options: OpenOptions) -> Source | None:
    """Open columns files of this machine by one compiled call each; None where one is not sound and ordinary."""
    reading, local = options.reading, LocalOptions(options.mmap, options.madvise, options.mlock)
    opener, _ = _columns_opener()
    files: list[ByteFile] = []
    metas: list[ShardMeta] = []
    schemas: dict[Any, Schema] = {}
    try:
        for spelling, path in zip(locations.spellings, locations.paths, strict=True):
            opened = opener(spelling, path, reading, local)
            if opened is None:
                _close_all(files)
                return None
            file, meta = opened.settle(schemas)
            files.append(file)
            metas.append(meta)
        plan = build_plan(metas, on_mismatch=options.on_mismatch)
        return Source(plan, files, metas=metas, backend=options.backend, max_workers=options.max_workers)
    except BaseException:
        _close_all(files)
        raise


def _source(files: Sequence[ByteFile], heads: Sequence[memoryview], options: OpenOptions) -> Source:
    try:
        kept, kept_heads = files, heads
        if _has_empty(files):
            kept = [file for file in files if not _skipped(file, options)]
            kept_heads = [head for file, head in zip(files, heads, strict=True) if file.size > 0]
        metas = read_metas(kept, kept_heads, options.reading, assume=True)
        plan = build_plan(metas, on_mismatch=options.on_mismatch)
        return Source(plan, kept, metas=metas, backend=options.backend, max_workers=options.max_workers)
    except BaseException:
        _close_all(files)
        raise


def _has_empty(files: Sequence[ByteFile]) -> bool:
    if type(files) is LocalFiles:
        return not files.sizes.all()
    return 0 in [file.size for file in files]


def _close_all(files: Sequence[ByteFile]) -> None:
    if type(files) is LocalFiles:
        files.close()
        return
    for file in files:
        file.close()


def _skipped(file: ByteFile, options: OpenOptions) -> bool:
    if file.size > 0:
        return False
    if options.on_empty_file == "error":
        raise FormatError("the file is empty (0 bytes)", path=file.spelling, offset=0, section="magic")
    warnings.warn(f"{file.spelling} is empty (0 bytes) and was skipped", RuntimeWarning, stacklevel=6)
    return True


def read_metas(
    files: Sequence[ByteFile],
    heads: Sequence[memoryview],
    options: ReadOptions = formats.READ_DEFAULTS,
    *,
    assume: bool = False,
) -> Sequence[ShardMeta]:
    """Read the metadata of files that are all of one format; `assume` as in `ReadOptions`."""
    if not files:
        return []
    if assume and isinstance(files[0], RemoteFile):  # its bytes are read through `read_ranges` alone
        options = replace(options, assume=True)
    if len(heads) == 1 or (
        heads.begin_alike(8) if type(heads) is HeadBlock else len({bytes(head[:8]) for head in heads}) == 1
    ):
        return formats.detect(heads[0], files[0].spelling).read_metadata(files, heads, options)
    kinds = [formats.detect(head, file.spelling) for file, head in zip(files, heads, strict=True)]
    for file, kind in zip(files, kinds, strict=True):
        if kind is not kinds[0]:
            raise ValueError(
                f"one dataset has one file format: {files[0].spelling} is {kinds[0].name}, "
                f"{file.spelling} is {kind.name}"
            )
    return kinds[0].read_metadata(files, heads, options)
