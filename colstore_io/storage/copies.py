"""Files that a caching file system (``simplecache``, ``filecache``) downloads whole: the local copies are read.

The version token stays the one of the store, so that another machine, with a copy of its own, agrees.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import StorageError
from .files import ByteFile, IOStats
from .filesystems import ObjectState, cached_info, infos, state_of, storage_error
from .local import LocalFile, LocalOptions
from .mapping import Descriptor
from .names import redact_url
from .remote import current_state

if TYPE_CHECKING:
    from .resolve import Location

__all__ = ["CopiedFile", "open_copies"]

_BATCH = 64  # files downloaded, and descriptors held, at once


class CopiedFile(LocalFile):
    """A file of a store, read from the local copy that a caching file system keeps. Downloaded at first use."""

    __slots__ = ()

    location: Location

    def __init__(
        self,
        location: Location,
        size: int,
        token: str,
        io: IOStats,
        options: LocalOptions,
        *,
        copy: str | None = None,
    ) -> None:
        super().__init__(
            location, copy or "", size, io, known=None, options=options, token=token, planned=True
        )
        self.spelling = redact_url(location.spelling)

    def stat_changed(self) -> bool:
        """Whether the object in the store differs from `token` now (one metadata request)."""
        return current_state(self.location, io=self.io).token != self.token

    def inode_changed(self) -> bool:
        """Return False: a copy has no identity of its own."""
        return False

    def _open(self) -> Descriptor:
        if not self._path and not self._closed:
            (self._path,) = _copies(self.location.filesystem(), [self.location], self.io)
        return super()._open()

    def _verify(self, stat: os.stat_result) -> None:
        if stat.st_size != self.size:
            raise self._stale("was changed, or its cached copy is of another time,")
        super()._verify(stat)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.location, self.size, self.token, tuple(self._options)))


def _rebuild(location: Location, size: int, token: str, options: tuple[bool, str | None, bool]) -> CopiedFile:
    return CopiedFile(location, size, token, IOStats(), LocalOptions(*options))


def open_copies(
    fs: Any, locations: Sequence[Location], head_bytes: int, io: IOStats, options: LocalOptions
) -> list[tuple[ByteFile, memoryview]]:
    """Download what is not cached yet, and read the heads of the copies.

    Raises
    ------
    FileNotFoundError, PermissionError, StorageError
        If a file cannot be downloaded.
    """
    paths = _copies(fs, locations, io)
    states = _states(fs, locations, io)
    result: list[tuple[ByteFile, memoryview]] = []
    for location, path, state in zip(locations, paths, states, strict=True):
        size = os.stat(path).st_size
        known = replace(location, size=size, token=state.token)
        file = CopiedFile(known, size, state.token, io, options, copy=path)
        result.append((file, file.read(0, min(head_bytes, size))))
    return result


def _states(fs: Any, locations: Sequence[Location], io: IOStats) -> list[ObjectState]:
    """Return the versions in the store: as listed, or asked for."""
    found: list[ObjectState | None] = []
    for location in locations:
        info = cached_info(fs, location.path)
        if location.token is not None:
            found.append(ObjectState(location.size, location.token))
        else:
            found.append(None if info is None else state_of(fs, location.path, info))
    unknown = [number for number, state in enumerate(found) if state is None]
    begin = time.perf_counter()
    answers = infos(fs, [locations[number].path for number in unknown])
    io.add(metadata_requests=len(unknown), seconds=time.perf_counter() - begin)
    for number, answer in zip(unknown, answers, strict=True):
        if isinstance(answer, BaseException):
            raise storage_error(answer, "look up", redact_url(locations[number].spelling)) from None
        found[number] = state_of(fs, locations[number].path, answer)
    return [state for state in found if state is not None]


def _copies(fs: Any, locations: Sequence[Location], io: IOStats) -> list[str]:
    """Return the paths of the local copies, downloading in batches what is missing."""
    from fsspec.core import OpenFile, OpenFiles

    begin = time.perf_counter()
    names: list[str] = []
    for first in range(0, len(locations), _BATCH):
        batch = locations[first : first + _BATCH]
        try:
            waiting = OpenFiles([OpenFile(fs, location.path) for location in batch], mode="rb", fs=fs)
            handles = fs.open_many(waiting)
        except Exception as exc:
            raise storage_error(exc, "download", redact_url(batch[0].spelling)) from None
        for handle, location in zip(handles, batch, strict=True):
            name = getattr(handle, "name", None)
            handle.close()
            if not isinstance(name, str):
                raise StorageError(f"{redact_url(location.spelling)}: the cache does not name its local copy")
            names.append(name)
    io.add(requests=len(locations), seconds=time.perf_counter() - begin)
    return names
