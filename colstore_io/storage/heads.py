"""Open remote files: first bytes, sizes and versions of all of them in one concurrent round.

Nothing is asked that a listing has told. Where the sizes of many files of one folder are unknown, the folder is
listed once instead (integrations.md 4.3). Over HTTP the answer to the head read tells the size as well.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import StorageError
from .files import ByteFile, IOStats
from .filesystems import (
    BATCH_SIZE,
    ObjectState,
    cached_info,
    gather_infos,
    gather_lists,
    infos,
    is_async,
    is_http,
    list_infos,
    state_of,
    storage_error,
    sync,
)
from .http import can_ask, http_ranges
from .names import redact_url
from .remote import RemoteFile, Wanted, accept, compare_versions, second_attempt

if TYPE_CHECKING:
    from .resolve import Location

__all__ = ["open_remote"]

LIST_INSTEAD_OF_ASKING = 32
"""From so many files of one folder on, one listing of it replaces a question for each."""

FOOTED_HEAD_BYTES = 16 << 10
"""First bytes of a file whose header stands at its end: all of a small one, which spares the request for the end."""


def open_remote(
    fs: Any, locations: Sequence[Location], head_bytes: int, io: IOStats
) -> list[tuple[ByteFile, memoryview]]:
    """Open files of one file system: all heads, and the sizes nobody told yet, in one concurrent round."""
    states: list[ObjectState | None] = [_known_state(fs, location) for location in locations]
    unknown = [number for number, state in enumerate(states) if state is None]
    wanted: list[tuple[int, int]] = []  # (number, stop) of the heads to read
    for number, (location, state) in enumerate(zip(locations, states, strict=True)):
        stop = _head_bytes(location, None if state is None else state.size, head_bytes)
        if stop:
            wanted.append((number, stop))
    begin = time.perf_counter()
    if is_http(fs) and can_ask(fs):
        answers, told, questions = _heads_http(fs, locations, wanted, unknown)
    elif is_async(fs):
        answers, told, questions = _heads_async(fs, locations, wanted, unknown)
    else:
        told, questions = _ask_sizes(fs, locations, unknown)
        _learn(fs, locations, states, unknown, told)
        sizes = [_size(state, location) for state, location in zip(states, locations, strict=True)]
        wanted = [(number, min(stop, sizes[number])) for number, stop in wanted if sizes[number]]
        answers = _heads_serial(fs, locations, wanted)
    io.add(
        requests=len(wanted),
        bytes=sum(stop for _, stop in wanted),
        metadata_requests=questions,
        seconds=time.perf_counter() - begin,
    )
    _learn(fs, locations, states, unknown, told)
    files = []
    for location, state in zip(locations, states, strict=True):
        assert state is not None
        size = _size(state, location)
        known = replace(location, size=size, token=state.token)
        files.append(RemoteFile(known, size, state.token, io))
    items: dict[int, Wanted] = {}
    for (number, stop), answer in zip(wanted, answers, strict=True):
        file = files[number]
        if file.size:  # every range of an empty object fails, on each store in another way
            items[number] = Wanted(file, 0, min(stop, file.size))
            accept(items[number], answer)
    _look_again(fs, [item for item in items.values() if item.failure is not None])
    heads = [items[number].answer if number in items else None for number in range(len(files))]
    return [
        (file, head if head is not None else memoryview(b"")) for file, head in zip(files, heads, strict=True)
    ]


def _head_bytes(location: Location, size: int | None, head_bytes: int) -> int:
    """Return how many first bytes to ask for."""
    if size is not None and size <= head_bytes:
        return size
    # What these files say of themselves stands at their ends.
    return min(head_bytes, FOOTED_HEAD_BYTES) if location.path.endswith(".abcd") else head_bytes


def _look_again(fs: Any, failed: list[Wanted]) -> None:
    """Read the heads again whose first answer was none, after a fresh look at the objects."""
    for item in failed:
        if isinstance(item.failure, FileNotFoundError | PermissionError | IsADirectoryError):
            raise storage_error(item.failure, "open", item.file.spelling) from None
    if failed:
        compare_versions(fs, failed)
        second_attempt(fs, failed)


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


def _is_lost(answer: Any) -> bool:
    """Whether asking again may help: an error that says nothing about the object itself."""
    final = (FileNotFoundError, PermissionError, IsADirectoryError, NotImplementedError)
    return isinstance(answer, Exception) and not isinstance(answer, final)


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


def _folders_to_list(locations: Sequence[Location], unknown: Sequence[int]) -> dict[str, list[int]]:
    """Return the folders that hold so many files of unknown size that listing them costs less than asking."""
    folders: dict[str, list[int]] = {}
    if len(unknown) >= LIST_INSTEAD_OF_ASKING:
        for number in unknown:
            folders.setdefault(locations[number].path.rpartition("/")[0], []).append(number)
    return {folder: numbers for folder, numbers in folders.items() if len(numbers) >= LIST_INSTEAD_OF_ASKING}


def _from_listings(
    locations: Sequence[Location], folders: dict[str, list[int]], listings: Sequence[Any]
) -> dict[int, Any]:
    """Return what the listings say, by file. A listing that failed (it may not be allowed) says nothing."""
    told: dict[int, Any] = {}
    for numbers, listing in zip(folders.values(), listings, strict=True):
        if isinstance(listing, BaseException):
            continue
        entries = {entry["name"]: entry for entry in listing}
        for number in numbers:
            entry = entries.get(locations[number].path)
            if entry is not None and entry.get("size") is not None:
                told[number] = entry
    return told


def _ask_sizes(fs: Any, locations: Sequence[Location], unknown: Sequence[int]) -> tuple[list[Any], int]:
    """Ask a serial file system for what no listing told; returns the answers and the number of questions."""
    folders = _folders_to_list(locations, unknown)
    told = _from_listings(locations, folders, list_infos(fs, list(folders)))
    rest = [number for number in unknown if number not in told]
    told.update(zip(rest, infos(fs, [locations[number].path for number in rest]), strict=True))
    return [told[number] for number in unknown], len(folders) + len(rest)


def _heads_async(
    fs: Any, locations: Sequence[Location], wanted: Sequence[tuple[int, int]], unknown: Sequence[int]
) -> tuple[list[Any], list[Any], int]:
    """Ask for heads and sizes at the same time; returns both, and the number of questions for sizes."""
    import asyncio

    paths = [locations[number].path for number, _ in wanted]
    stops = [stop for _, stop in wanted]
    folders = _folders_to_list(locations, unknown)
    listed = {number for numbers in folders.values() for number in numbers}
    asked = [number for number in unknown if number not in listed]

    async def all_at_once() -> list[Any]:
        # "return": an empty object fails for every range, and that must not fail the others.
        heads = fs._cat_ranges(paths, [0] * len(paths), stops, on_error="return", batch_size=BATCH_SIZE)
        sizes = gather_infos(fs, [locations[number].path for number in asked])
        listings = gather_lists(fs, list(folders))
        return list(await asyncio.gather(heads, sizes, listings, return_exceptions=True))

    answers, sizes, listings = sync(fs, all_at_once)
    if isinstance(answers, BaseException):
        answers = [answers] * len(wanted)
    if isinstance(sizes, BaseException):
        sizes = [sizes] * len(asked)
    told: dict[int, Any] = dict(zip(asked, sizes, strict=True))
    if not isinstance(listings, BaseException):
        told.update(_from_listings(locations, folders, listings))
    # Ask (again) where a listing did not tell, and where a connection broke.
    again = [number for number in unknown if number not in told or _is_lost(told[number])]
    if again:
        told.update(zip(again, infos(fs, [locations[number].path for number in again]), strict=True))
    return list(answers), [told[number] for number in unknown], len(folders) + len(asked) + len(again)


def _heads_http(
    fs: Any, locations: Sequence[Location], wanted: Sequence[tuple[int, int]], unknown: Sequence[int]
) -> tuple[list[Any], list[Any], int]:
    """Ask for the heads alone: their answers tell size and version. The rest is asked for where they do not."""
    paths = [locations[number].path for number, _ in wanted]
    answers = http_ranges(fs, paths, [0] * len(paths), [stop for _, stop in wanted])
    lost = [number for number, answer in enumerate(answers) if _is_lost(answer)]
    if lost:  # connections break; ask once more
        retried = http_ranges(fs, [paths[n] for n in lost], [0] * len(lost), [wanted[n][1] for n in lost])
        for number, answer in zip(lost, retried, strict=True):
            answers[number] = answer
    told: dict[int, Any] = {}
    for (number, _), answer in zip(wanted, answers, strict=True):
        if isinstance(answer, BaseException):
            told[number] = answer
        elif answer.info["size"] is not None and (answer.tells_version or answer.data):
            told[number] = answer.info
    silent = [number for number in unknown if number not in told]
    told.update(zip(silent, infos(fs, [locations[number].path for number in silent]), strict=True))
    return answers, [told[number] for number in unknown], len(silent)


def _heads_serial(fs: Any, locations: Sequence[Location], wanted: Sequence[tuple[int, int]]) -> list[Any]:
    if not wanted:
        return []
    paths = [locations[number].path for number, _ in wanted]
    starts, stops = [0] * len(paths), [stop for _, stop in wanted]
    try:
        return list(fs.cat_ranges(paths, starts, stops, on_error="raise"))
    except Exception:
        # Which file was it? An error must not be put down to another one.
        try:
            return list(fs.cat_ranges(paths, starts, stops, on_error="return"))
        except Exception as exc:
            return [exc] * len(wanted)
