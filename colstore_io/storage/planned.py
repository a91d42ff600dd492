"""Which versions of remote objects has this process seen to be current, a moment ago?

A file that was planned in another process must be compared with its version token before it is read
(cstore-behaviour.md 9). Many tasks over one file would all ask the same question; an answer is good for
`TRUST_SECONDS`, and threads that ask at the same time share one.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import StaleDatasetError

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["TRUST_SECONDS", "Verified", "verified"]

TRUST_SECONDS = 10.0
"""So long a version counts as current without a further question."""

_CAPACITY = 10_000

Key = tuple[str, str, int, str]


def _store_key(fs: Any) -> str:
    """Name the store behind `fs`: equal for the instances that fsspec makes in each thread."""
    from fsspec.utils import tokenize

    kind = type(fs)
    arguments = getattr(fs, "storage_args", ()), dict(getattr(fs, "storage_options", {}))
    return str(tokenize(kind.__module__, kind.__qualname__, *arguments))


class Verified:
    """A bounded memory of (store, path, size, token) and when they were compared; safe in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both dictionaries; taken last, never held during I/O
        self._seen: dict[Key, float] = {}  # oldest first
        self._asked: dict[Key, Future[Exception | None]] = {}  # questions that are on their way

    def check(
        self,
        fs: Any,
        versions: Sequence[tuple[str, int, str]],
        ask: Callable[[Sequence[int]], list[Any]],
        judge: Callable[[int, Any], Exception | None],
    ) -> None:
        """Compare versions that were not compared a moment ago.

        Parameters
        ----------
        fs : file system
        versions : sequence of (path, size, token)
        ask : callable
            Looks up the versions with these numbers, all at once; an exception is an element of its answer.
        judge : callable
            Returns the error to raise for one answer, or ``None`` if the version is current.

        Raises
        ------
        Exception
            The first error of `judge`, in order of `versions`. A question that failed is asked once more before.
        """
        store = _store_key(fs)
        keys: list[Key] = [(store, *version) for version in versions]
        mine: dict[Key, int] = {}
        from concurrent.futures import Future

        waiting: dict[Key, Future[Exception | None]] = {}
        now = time.monotonic()
        with self._lock:
            for number, key in enumerate(keys):
                if key in mine or key in waiting or now - self._seen.get(key, -TRUST_SECONDS) < TRUST_SECONDS:
                    continue
                if key in self._asked:
                    waiting[key] = self._asked[key]
                else:
                    mine[key] = number
                    waiting[key] = self._asked[key] = Future()
        if mine:
            self._answer(mine, waiting, now, ask, judge)
        for future in waiting.values():
            error = future.result()
            if error is not None:
                raise copy.copy(error) from None  # threads must not share one traceback

    def _answer(
        self,
        mine: dict[Key, int],
        futures: dict[Key, Future[Exception | None]],
        now: float,
        ask: Callable[[Sequence[int]], list[Any]],
        judge: Callable[[int, Any], Exception | None],
    ) -> None:
        errors: dict[Key, Exception | None] = {}
        try:
            todo = list(mine)
            for _ in range(2):  # connections break; ask once more
                answers = ask([mine[key] for key in todo])
                for key, answer in zip(todo, answers, strict=True):
                    errors[key] = judge(mine[key], answer)
                todo = [
                    key
                    for key in todo
                    if errors[key] is not None
                    and not isinstance(errors[key], StaleDatasetError | PermissionError)
                ]
                if not todo:
                    break
        except BaseException as exc:
            failure = exc if isinstance(exc, Exception) else RuntimeError("the look-up was interrupted")
            errors = {key: errors.get(key) or failure for key in mine}
            raise
        finally:
            with self._lock:
                for key in mine:
                    self._asked.pop(key, None)
                    if key in errors and errors[key] is None:
                        self._seen.pop(key, None)
                        self._seen[key] = now  # of the question, not of the answer
                while len(self._seen) > _CAPACITY:
                    del self._seen[next(iter(self._seen))]
            for key in mine:
                futures[key].set_result(errors.get(key))

    def forget(self, fs: Any, path: str) -> None:
        """Trust no version of this object: it was seen to be another one, or was written."""
        if not self._seen:
            return
        store = _store_key(fs)
        with self._lock:
            for key in [key for key in self._seen if key[0] == store and key[1] == path]:
                del self._seen[key]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._seen.clear()


verified = Verified()
"""The memory of this process."""


def _after_fork_in_child() -> None:
    verified.__init__()  # type: ignore[misc]  # other threads' questions are not answered here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
