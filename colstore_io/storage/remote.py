"""Files of a store that is asked by requests: one concurrent round at a time, every answer checked.

A file that was planned elsewhere (it came out of a pickle or of ``reopen``) is compared with its version token
before its first bytes are handed out: `_verify_planned`. One that was opened here costs no such question.

``cat_ranges`` may give exceptions as list elements, short answers, or the whole object instead of the range
(integrations.md 4.2). Nothing of that leaves this module as data: an answer is the bytes that were asked for,
or an error that names the file.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import StaleDatasetError, StorageError, TruncatedFileError
from .files import ByteFile, IOStats
from .filesystems import (
    BATCH_SIZE,
    ObjectState,
    infos,
    is_async,
    is_http,
    live,
    state_of,
    storage_error,
)
from .guards import Guard
from .http import WHOLE_BODY_LIMIT, HttpAnswer, can_ask, http_ranges
from .names import redact_url
from .planned import verified

if TYPE_CHECKING:
    from .resolve import Location

__all__ = ["RemoteFile", "Wanted", "accept", "compare_versions", "current_state", "fetch", "second_attempt"]


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

    __slots__ = ("_closed", "_token", "body", "guard", "planned")

    location: Location

    def __init__(
        self,
        location: Location,
        size: int,
        token: str | None,
        io: IOStats | None,
        *,
        planned: bool = False,
    ) -> None:
        super().__init__(location, location.spelling, size, io)
        self._token = token
        self.planned = (
            planned  # true until a file that was planned elsewhere has been compared with its token
        )
        self._closed = False
        self.body: memoryview | None = None  # the whole file, when the server gave it instead of a range
        self.guard: Guard | None = (
            None  # what has to be looked at before bytes are believed; see `read_ranges`
        )

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
        different = state.differs_from(self.size, self._token)
        if different:
            verified.forget(self.fs, self.location.path)
        return different

    def stale(self) -> StaleDatasetError:
        """Return the error that says that the object was replaced."""
        return StaleDatasetError(f"{self.spelling} was changed since it was opened. Open the dataset again.")

    def removed(self) -> StaleDatasetError:
        """Return the error that says that the object is gone."""
        return StaleDatasetError(f"{self.spelling} was removed since it was opened. Open the dataset again.")

    def close(self) -> None:
        self._closed = True
        self.body = None

    def again(self) -> RemoteFile:
        """Return this file without its guard, for whoever looks up what the guard assumed."""
        return RemoteFile(self.location, self.size, self._token, self.io, planned=self.planned)

    def __reduce__(self) -> tuple[object, ...]:
        guard = () if self.guard is None else (self.guard,)
        return (_rebuild_remote_file, (self.location, self.size, self._token, *guard))


def _rebuild_remote_file(
    location: Location, size: int, token: str | None, guard: Guard | None = None
) -> RemoteFile:
    file = RemoteFile(location, size, token, None, planned=token is not None)
    file.guard = guard
    return file


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
    """Send one round of range requests. An element may be anything: see `accept`."""
    paths = [item.file.location.path for item in wanted]
    starts = [item.start for item in wanted]
    stops = [item.stop for item in wanted]
    if is_http(fs) and can_ask(fs):
        return http_ranges(fs, paths, starts, stops)
    # Only asynchronous implementations know batch_size; the others hand it on to open().
    options = {"batch_size": BATCH_SIZE} if is_async(fs) else {}
    answers = fs.cat_ranges(paths, starts, stops, on_error=on_error, **options)
    return list(answers)


def _is_other_version(file: RemoteFile, answer: HttpAnswer) -> bool:
    if answer.tells_version:
        return file.differs(state_of(file.fs, file.location.path, answer.info))
    return bool(answer.info["size"] != file.size)


def accept(item: Wanted, answer: Any) -> None:
    """Check one answer of the store and put it, or the reason against it, into `item`."""
    item.answer = item.failure = None
    if isinstance(answer, BaseException):
        item.failure = answer
        return
    file = item.file
    if isinstance(answer, HttpAnswer):
        # The headers of every answer tell the version: a file replaced between two reads is noticed at once.
        if answer.info["size"] is not None and _is_other_version(file, answer):
            item.failure = file.stale()
            return
        if not answer.data and not answer.whole:
            item.failure = StorageError("the server answered 416: it has nothing of this range")
            return
        if answer.tells_version and answer.info["size"] is not None:
            file.planned = False
        if answer.whole and len(answer.data) <= WHOLE_BODY_LIMIT:
            file.body = memoryview(answer.data)
        answer = answer.data[item.start : item.stop] if answer.whole else answer.data
    try:
        view = memoryview(answer).cast("B").toreadonly() if len(answer) else memoryview(b"")
    except TypeError:
        item.failure = StorageError(f"the store answered with {type(answer).__name__} instead of bytes")
        return
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
        judged_by_answers = is_http(fs) and can_ask(fs)
        if not judged_by_answers:
            _verify_planned(fs, items)
        _round(fs, items)
        if judged_by_answers:  # where the headers told no version, a question has to
            _verify_planned(fs, [item for item in items if not item.file.token.startswith("size:")])


def _verify_planned(fs: Any, items: Sequence[Wanted]) -> None:
    """Compare files that were planned elsewhere with their tokens, once per process, all in one round.

    Raises
    ------
    StaleDatasetError
        For the first file that was replaced or removed.
    StorageError, PermissionError
        If the store does not tell.
    """
    files = list({id(item.file): item.file for item in items if item.file.planned}.values())
    if not files:
        return

    def ask(numbers: Sequence[int]) -> list[Any]:
        chosen = [files[number] for number in numbers]
        for file in chosen:
            _forget_listing(fs, file.location.path)
        begin = time.perf_counter()
        answers = infos(fs, [file.location.path for file in chosen])
        seconds = (time.perf_counter() - begin) / len(chosen)
        for file in chosen:
            file.io.add(metadata_requests=1, seconds=seconds)
        return answers

    def judge(number: int, answer: Any) -> Exception | None:
        file = files[number]
        if isinstance(answer, FileNotFoundError):
            return file.removed()
        if isinstance(answer, BaseException):
            return storage_error(answer, "look up", file.spelling)
        try:
            return file.stale() if file.differs(state_of(fs, file.location.path, answer)) else None
        except FileNotFoundError:
            return file.removed()

    verified.check(fs, [(file.location.path, file.size, file.token) for file in files], ask, judge)
    for file in files:
        file.planned = False


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
        accept(item, answer)
    failed = [item for item in items if item.failure is not None]
    if failed:
        for item in failed:
            if isinstance(item.failure, StaleDatasetError):
                raise item.failure
        compare_versions(fs, failed)
        try:
            second_attempt(fs, failed)
        except FileNotFoundError:
            gone = next(item for item in failed if isinstance(item.failure, FileNotFoundError))
            raise gone.file.removed() from None


def compare_versions(fs: Any, failed: Sequence[Wanted]) -> None:
    """Raise `StaleDatasetError` if a file of a failed read is no longer the planned one."""
    files = list({id(item.file): item.file for item in failed}.values())
    for file in files:
        _forget_listing(fs, file.location.path)
    begin = time.perf_counter()
    answers = infos(fs, [file.location.path for file in files])
    files[0].io.add(metadata_requests=len(files), seconds=time.perf_counter() - begin)
    for file, answer in zip(files, answers, strict=True):
        if isinstance(answer, FileNotFoundError):
            raise file.removed() from None
        if not isinstance(answer, BaseException) and file.differs(state_of(fs, file.location.path, answer)):
            raise file.stale()


def second_attempt(fs: Any, failed: list[Wanted]) -> None:
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
        accept(item, answer)
        if item.failure is not None:
            raise _read_error(item) from None


def _read_error(item: Wanted) -> Exception:
    if isinstance(item.failure, TruncatedFileError | StaleDatasetError):
        return item.failure
    assert item.failure is not None
    return storage_error(item.failure, f"read bytes {item.start} to {item.stop} of", item.file.spelling)
