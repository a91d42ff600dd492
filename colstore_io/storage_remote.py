"""Files of a store that is asked by requests: one concurrent round at a time, every answer checked.

``cat_ranges`` may give exceptions as list elements, short answers, or the whole object instead of the range
(integrations.md 4.2). Nothing of that leaves this module as data: an answer is the bytes that were asked for,
or an error that names the file.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .errors import StaleDatasetError, StorageError, TruncatedFileError
from .storage_files import ByteFile, IOStats
from .storage_filesystems import (
    BATCH_SIZE,
    ObjectState,
    cached_info,
    gather_infos,
    infos,
    is_async,
    live,
    state_of,
    storage_error,
    sync,
)
from .storage_names import redact_url

if TYPE_CHECKING:
    from .storage_resolve import Location

__all__ = ["RemoteFile", "Wanted", "current_state", "fetch", "open_remote"]

WHOLE_BODY_LIMIT = 64 << 20
"""A file up to this size is kept in memory when its server ignores byte ranges; a longer one is refused."""


@dataclass(slots=True, eq=False)
class Wanted:
    """Bytes ``[start, stop)`` of one file, and the answer once it is there."""

    file: RemoteFile
    start: int
    stop: int
    answer: memoryview | None = None
    failure: BaseException | None = None

    @property
    def length(self) -> int:
        return self.stop - self.start


class RemoteFile(ByteFile):
    """A file read by range requests. Nothing is held open, and `close` has nothing to close."""

    __slots__ = ("_closed", "_token", "body")

    location: Location

    def __init__(self, location: Location, size: int, token: str | None, io: IOStats | None) -> None:
        super().__init__(location, location.spelling, size, io)
        self._token = token
        self._closed = False
        self.body: memoryview | None = None  # the whole file, when the server gave it instead of a range

    @property
    def token(self) -> str:
        return self._token if self._token is not None else f"size:{self.size}"

    @property
    def fs(self) -> Any:
        """The file system, alive in this process."""
        return live(self.location.fs)

    def read(self, offset: int, length: int) -> memoryview:
        self._check_range(offset, length)
        if self._closed:
            raise ValueError(f"{self.spelling} is closed.")
        if length == 0:
            return memoryview(b"")
        wanted = Wanted(self, offset, offset + length)
        fetch([wanted])
        assert wanted.answer is not None
        return wanted.answer

    def stat_changed(self) -> bool:
        """Whether size or version differ from the planned ones now: one fresh metadata request."""
        state = current_state(self.location, io=self.io)
        return self.differs(state)

    def refresh(self) -> None:
        """Ask for the version now (one metadata request).

        Raises
        ------
        StaleDatasetError
            If it is not the planned one.
        """
        if self.stat_changed():
            raise self.stale()

    def differs(self, state: ObjectState) -> bool:
        """Whether `state` is another version than the one this file was opened with."""
        if state.size is not None and state.size != self.size:
            return True
        return self._token is not None and state.token != self._token

    def stale(self) -> StaleDatasetError:
        """Return the error that says that the object was replaced."""
        return StaleDatasetError(f"{self.spelling} was changed since it was opened. Open the dataset again.")

    def close(self) -> None:
        self._closed = True
        self.body = None

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_remote_file, (self.location, self.size, self._token))


def _rebuild_remote_file(location: Location, size: int, token: str | None) -> RemoteFile:
    return RemoteFile(location, size, token, None)


# ---------------------------------------------------------------------------------------------------
# Metadata


def current_state(location: Location, *, io: IOStats | None = None) -> ObjectState:
    """Return size and token of a remote object now: one metadata request, no cached listing is believed."""
    fs = location.filesystem()
    _forget_listing(fs, location.path)
    begin = time.perf_counter()
    (answer,) = infos(fs, [location.path])
    if io is not None:
        io.add(metadata_requests=1, seconds=time.perf_counter() - begin)
    if isinstance(answer, BaseException):
        raise storage_error(answer, "look up", redact_url(location.spelling)) from None
    return state_of(fs, location.path, answer)


def _forget_listing(fs: Any, path: str) -> None:
    try:
        fs.invalidate_cache(path)
    except Exception:  # an implementation that takes no path
        try:
            fs.invalidate_cache()
        except Exception:
            pass


# ---------------------------------------------------------------------------------------------------
# Reading


def _ask(fs: Any, wanted: Sequence[Wanted], on_error: str) -> list[Any]:
    """Send one round of range requests. An element may be anything: see `_accept`."""
    paths = [item.file.location.path for item in wanted]
    starts = [item.start for item in wanted]
    stops = [item.stop for item in wanted]
    # Only asynchronous implementations know batch_size; the others hand it on to open().
    options = {"batch_size": BATCH_SIZE} if is_async(fs) else {}
    answers = fs.cat_ranges(paths, starts, stops, on_error=on_error, **options)
    return list(answers)


def _accept(item: Wanted, answer: Any) -> None:
    """Check one answer of the store and put it, or the reason against it, into `item`."""
    item.answer = item.failure = None
    if isinstance(answer, BaseException):
        item.failure = answer
        return
    try:
        view = memoryview(answer).cast("B").toreadonly() if len(answer) else memoryview(b"")
    except TypeError:
        item.failure = StorageError(f"the store answered with {type(answer).__name__} instead of bytes")
        return
    file = item.file
    if len(view) == item.length:
        item.answer = view
    elif len(view) > item.length and len(view) == file.size:
        # A server without byte ranges (python -m http.server) sends the whole file, whatever was asked for.
        if len(view) <= WHOLE_BODY_LIMIT:
            file.body = view
        item.answer = view[item.start : item.stop]
    else:
        item.failure = TruncatedFileError(
            f"the store answered with {len(view)} of {item.length} bytes",
            path=file.spelling,
            offset=item.start,
        )


def fetch(wanted: Iterable[Wanted]) -> None:
    """Fetch all ranges, those of one file system in one concurrent round, and fill in their answers.

    Ranges must lie inside the files and not be empty.

    Raises
    ------
    StaleDatasetError, TruncatedFileError, StorageError, FileNotFoundError, PermissionError
        For the first range that could not be had. A round that fails is asked for once more, after the version
        of the files in question was compared with the one they were opened with.
    """
    groups: dict[int, tuple[Any, list[Wanted]]] = {}
    for item in wanted:
        if item.file.body is not None:
            item.answer = item.file.body[item.start : item.stop]
            continue
        fs = item.file.fs
        groups.setdefault(id(fs), (fs, []))[1].append(item)
    for fs, items in groups.values():
        _round(fs, items)


def _count(items: Sequence[Wanted], seconds: float) -> None:
    sums: dict[int, tuple[IOStats, list[int]]] = {}
    for item in items:
        entry = sums.setdefault(id(item.file.io), (item.file.io, [0, 0]))[1]
        entry[0] += 1
        entry[1] += item.length
    for stats, (requests, size) in sums.values():
        stats.add(requests=requests, bytes=size, seconds=seconds)


def _round(fs: Any, items: list[Wanted]) -> None:
    begin = time.perf_counter()
    try:
        answers = _ask(fs, items, "raise")
        if len(answers) != len(items):
            raise StorageError(f"the store gave {len(answers)} answers to {len(items)} range requests")
    except Exception as exc:
        answers = [exc] * len(items)
    _count(items, time.perf_counter() - begin)
    for item, answer in zip(items, answers, strict=True):
        _accept(item, answer)
    failed = [item for item in items if item.failure is not None]
    if failed:
        _compare_versions(fs, failed)
        _second_attempt(fs, failed)


def _compare_versions(fs: Any, failed: Sequence[Wanted]) -> None:
    """Raise `StaleDatasetError` if a file of a failed read is no longer the planned one."""
    files = list({id(item.file): item.file for item in failed}.values())
    for file in files:
        _forget_listing(fs, file.location.path)
    begin = time.perf_counter()
    answers = infos(fs, [file.location.path for file in files])
    files[0].io.add(metadata_requests=len(files), seconds=time.perf_counter() - begin)
    for file, answer in zip(files, answers, strict=True):
        if isinstance(answer, FileNotFoundError):
            raise StaleDatasetError(
                f"{file.spelling} was removed since it was opened. Open the dataset again."
            ) from None
        if not isinstance(answer, BaseException) and file.differs(state_of(fs, file.location.path, answer)):
            raise file.stale()


def _second_attempt(fs: Any, failed: list[Wanted]) -> None:
    """Ask once more for what failed, so that one lost connection does not end a long computation."""
    begin = time.perf_counter()
    try:
        answers = _ask(fs, failed, "return")
    except Exception as exc:
        answers = [exc] * len(failed)
    _count(failed, time.perf_counter() - begin)
    if len(answers) != len(failed):
        raise StorageError(f"the store gave {len(answers)} answers to {len(failed)} range requests")
    for item, answer in zip(failed, answers, strict=True):
        _accept(item, answer)
        if item.failure is not None:
            raise _read_error(item) from None


def _read_error(item: Wanted) -> Exception:
    if isinstance(item.failure, TruncatedFileError):
        return item.failure
    assert item.failure is not None
    return storage_error(item.failure, f"read bytes {item.start} to {item.stop} of", item.file.spelling)


# ---------------------------------------------------------------------------------------------------
# Opening


def open_remote(
    fs: Any, locations: Sequence[Location], head_bytes: int, io: IOStats
) -> list[tuple[ByteFile, memoryview]]:
    """Open files of one file system: all heads, and the sizes nobody told yet, in one concurrent round."""
    states: list[ObjectState | None] = [_known_state(fs, location) for location in locations]
    unknown = [number for number, state in enumerate(states) if state is None]
    wanted: list[tuple[int, int]] = []  # (number, stop) of the heads to read
    for number, state in enumerate(states):
        stop = head_bytes if state is None or state.size is None else min(head_bytes, state.size)
        if stop:
            wanted.append((number, stop))
    begin = time.perf_counter()
    if is_async(fs):
        answers, told = _heads_async(fs, locations, wanted, unknown)
        requests, asked = len(wanted), sum(stop for _, stop in wanted)
    else:
        told = infos(fs, [locations[number].path for number in unknown])
        _learn(fs, locations, states, unknown, told)
        wanted = [
            (number, min(stop, _size(states[number], locations[number])))
            for number, stop in wanted
            if _size(states[number], locations[number])
        ]
        answers = _heads_sync(fs, locations, wanted)
        requests, asked = len(wanted), sum(stop for _, stop in wanted)
    io.add(
        requests=requests,
        bytes=asked,
        metadata_requests=len(unknown),
        seconds=time.perf_counter() - begin,
    )
    _learn(fs, locations, states, unknown, told)
    files = []
    for location, state in zip(locations, states, strict=True):
        assert state is not None
        size = _size(state, location)
        known = replace(location, size=size, token=state.token)
        files.append(RemoteFile(known, size, state.token, io))
    heads = [memoryview(b"")] * len(files)
    again: list[Wanted] = []
    for (number, stop), answer in zip(wanted, answers, strict=True):
        file = files[number]
        if file.size == 0:
            continue  # every range of an empty object fails, on each store in another way
        item = Wanted(file, 0, min(stop, file.size))
        _accept(item, answer)
        if item.failure is not None:
            again.append(item)
            _second_look(fs, item)
        assert item.answer is not None
        heads[number] = item.answer
    return list(zip(files, heads, strict=True))


def _second_look(fs: Any, item: Wanted) -> None:
    """Read one head again whose first answer was none, with a fresh look at the object."""
    if isinstance(item.failure, FileNotFoundError | PermissionError | IsADirectoryError):
        raise storage_error(item.failure, "open", item.file.spelling) from None
    _compare_versions(fs, [item])
    _second_attempt(fs, [item])


def _known_state(fs: Any, location: Location) -> ObjectState | None:
    if location.size is not None and location.token is not None:
        return ObjectState(location.size, location.token)
    info = cached_info(fs, location.path)
    return None if info is None else state_of(fs, location.path, info)


def _size(state: ObjectState | None, location: Location) -> int:
    if state is None or state.size is None:
        raise StorageError(
            f"{redact_url(location.spelling)}: the store does not tell the size of the file, so ranges of it cannot "
            f"be read. Download it first, for example with 'simplecache::{redact_url(location.url)}'."
        )
    return state.size


def _learn(
    fs: Any,
    locations: Sequence[Location],
    states: list[ObjectState | None],
    unknown: Sequence[int],
    told: Sequence[Any],
) -> None:
    for number, info in zip(unknown, told, strict=True):
        if states[number] is not None:
            continue
        location = locations[number]
        if isinstance(info, BaseException):
            raise storage_error(info, "open", redact_url(location.spelling)) from None
        if info.get("type") == "directory":
            raise IsADirectoryError(
                21, "Is a directory, not a file; end its name with '/'", redact_url(location.spelling)
            )
        states[number] = state_of(fs, location.path, info)


def _heads_async(
    fs: Any, locations: Sequence[Location], wanted: Sequence[tuple[int, int]], unknown: Sequence[int]
) -> tuple[list[Any], list[Any]]:
    import asyncio

    paths = [locations[number].path for number, _ in wanted]
    stops = [stop for _, stop in wanted]

    async def both() -> list[Any]:
        # "return": an empty object fails for every range, and that must not fail the others.
        heads = fs._cat_ranges(paths, [0] * len(paths), stops, on_error="return", batch_size=BATCH_SIZE)
        sizes = gather_infos(fs, [locations[number].path for number in unknown])
        return list(await asyncio.gather(heads, sizes, return_exceptions=True))

    answers, told = sync(fs, both)
    if isinstance(answers, BaseException):
        answers = [answers] * len(wanted)
    if isinstance(told, BaseException):
        raise told
    return list(answers), list(told)


def _heads_sync(fs: Any, locations: Sequence[Location], wanted: Sequence[tuple[int, int]]) -> list[Any]:
    if not wanted:
        return []
    paths = [locations[number].path for number, _ in wanted]
    try:
        return list(fs.cat_ranges(paths, [0] * len(paths), [stop for _, stop in wanted], on_error="raise"))
    except Exception as exc:
        return [exc] * len(wanted)
