"""One thread budget for the whole process.

Every parallel call (kernels, codecs, pools) leases threads here and gives them back, so a threaded
scheduler with N tasks does not start N times M threads. The number of threads that a call *wants*
follows from its work; what it *gets* is what is free, at least one.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = [
    "ELEMENTS_PER_THREAD",
    "PARALLEL_THRESHOLD",
    "budget",
    "lease",
    "made_ahead",
    "map_with_helpers",
    "run_with_helpers",
    "usable_cores",
    "wanted_threads",
]

T = TypeVar("T")
R = TypeVar("R")

PARALLEL_THRESHOLD = 1 << 18
"""Elements (bytes, for byte kernels) below which a call stays serial (cstore-behaviour.md 13.1)."""

ELEMENTS_PER_THREAD = 1 << 20
"""Elements (bytes, for byte kernels) of work that justify one more thread (cstore-behaviour.md 13.1)."""


def _cgroup_quota() -> float:
    """CPU quota of this process's control group in cores; infinity when there is none."""
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as handle:  # cgroup v2
            quota, period = handle.read().split()[:2]
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        with open("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", encoding="ascii") as handle:  # cgroup v1
            micros = int(handle.read())
        with open("/sys/fs/cgroup/cpu/cpu.cfs_period_us", encoding="ascii") as handle:
            period_micros = int(handle.read())
        return math.inf if micros <= 0 or period_micros <= 0 else micros / period_micros
    except (OSError, ValueError):
        return math.inf


def _omp_num_threads() -> float:
    """First entry of ``OMP_NUM_THREADS`` (a list means nesting levels); infinity when unset or not a number."""
    try:
        value = int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0])
    except ValueError:
        return math.inf
    return value if value >= 1 else math.inf


def usable_cores() -> int:
    """Return the least of affinity mask, cgroup CPU quota and ``OMP_NUM_THREADS``, at least 1."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        cores = os.cpu_count() or 1
    # A fractional quota is rounded up: 1.5 cores feed two threads better than one.
    limit = min(cores, -(-_cgroup_quota() // 1), _omp_num_threads())
    return max(1, int(limit))


class _Budget:
    """Threads beyond the caller's own that are free, guarded by one lock (taken last, never while waiting)."""

    def __init__(self) -> None:
        self.reset(usable_cores())

    def reset(self, total: int) -> None:
        self.lock = threading.Lock()
        self.total = total
        self.used = 0
        self.generation = getattr(self, "generation", 0) + 1


_budget = _Budget()


def budget() -> int:
    """Return the number of threads that this process may use in all."""
    return _budget.total


def set_budget(total: int) -> None:
    """Set the process-wide number of threads.

    Raises
    ------
    ValueError
        If `total` is less than 1.
    """
    if total < 1:
        raise ValueError(f"the thread budget must be at least 1, got {total}")
    _budget.reset(total)


def wanted_threads(work: int, cap: int) -> int:
    """Return how many threads `work` elements justify, at most `cap` (``cap <= 0``: the budget).

    Work-proportional rule of cstore-behaviour.md 13.1: serial below `PARALLEL_THRESHOLD`, then
    ``min(cap, max(2, ceil(work / ELEMENTS_PER_THREAD)))``.
    """
    if cap <= 0:
        cap = _budget.total
    if cap == 1 or work < PARALLEL_THRESHOLD:
        return 1
    return min(cap, max(2, -(-work // ELEMENTS_PER_THREAD)))


@contextlib.contextmanager
def lease(wanted: int) -> Iterator[int]:
    """Lease up to `wanted` threads for the length of a ``with`` block; yields the number granted, at least 1.

    Never waits: when nothing is free the call runs in its own thread.
    """
    state = _budget
    if wanted <= 1:
        yield 1
        return
    with state.lock:
        granted = max(1, min(wanted, state.total - state.used))
        state.used += granted
        generation = state.generation
    try:
        yield granted
    finally:
        with state.lock:
            if generation == state.generation:  # not when a fork or set_budget reset the account meanwhile
                state.used -= granted


_MOST_HELPERS = 256

_helpers: ThreadPoolExecutor | None = None
_helpers_lock = threading.Lock()  # guards _helpers; nothing else is locked under it


def _pool() -> ThreadPoolExecutor:
    global _helpers
    with _helpers_lock:
        if _helpers is None:
            from concurrent.futures import ThreadPoolExecutor

            _helpers = ThreadPoolExecutor(_MOST_HELPERS, "colstore-io")
        return _helpers


def run_with_helpers(task: Callable[[], object], helpers: int) -> None:
    """Run `task` in this thread, and beside it in up to `helpers` others, until all that began have ended.

    `task` takes its work from somewhere that they share, and returns when there is none left. A helper that has not
    begun when this thread is through is called off: nobody waits for a thread that a busy machine has no core for.
    Helpers stay for the next call, as a thread takes 0.1 ms to start and its starter waits for it.

    Raises
    ------
    BaseException
        What `task` raised in this thread, else what it raised in a helper.
    """
    pool = _pool() if helpers > 0 else None
    waiting = []
    for _ in range(helpers):
        try:
            waiting.append(pool.submit(task))  # type: ignore[union-attr]
        except RuntimeError:  # no more threads, or the interpreter is going down: fewer do the same
            break
    try:
        task()
    finally:
        begun = [helper for helper in waiting if not helper.cancel()]
        errors = [error for error in (helper.exception() for helper in begun) if error is not None]
    if errors:
        raise errors[0]


def map_with_helpers(call: Callable[[T], R], items: Sequence[T], helpers: int) -> list[R]:
    """Return ``[call(item) for item in items]``, made by this thread and up to `helpers` others, in order of begin.

    After an error nothing more is begun; it is raised when all that began have ended.
    """
    results: list[R | None] = [None] * len(items)
    waiting = deque(range(len(items)))  # popleft is atomic

    def work() -> None:
        while waiting:
            try:
                number = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                results[number] = call(items[number])
            except BaseException:
                waiting.clear()
                raise

    run_with_helpers(work, min(helpers, len(items) - 1))
    return results  # type: ignore[return-value]


def made_ahead(call: Callable[[T], R], items: Sequence[T], helpers: int) -> Generator[R, None, None]:
    """Yield ``call(item)`` for each item, in their order; the next one is made while the caller uses this one.

    Parameters
    ----------
    helpers : int
        0: everything is made in the thread of the caller, when it is asked for. Else by one other thread, unless that
        has not begun when its result is needed.

    Notes
    -----
    What `call` returned last and what it is making are all that exists: two pieces of memory in turn are enough. When
    the generator is closed, nothing is being made any more.
    """
    following: Future[R] | None = None
    try:
        for number, item in enumerate(items):
            result = call(item) if following is None or following.cancel() else following.result()
            following = None
            if helpers > 0 and number + 1 < len(items):
                with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter is going down
                    following = _pool().submit(call, items[number + 1])
            yield result
    finally:
        if following is not None and not following.cancel():
            following.exception()


def _after_fork_in_child() -> None:
    global _helpers, _helpers_lock
    _helpers, _helpers_lock = None, threading.Lock()  # its threads do not exist here
    # libgomp's pool does not survive a fork: a child that enters a parallel region waits for threads that do
    # not exist. With a budget of 1 the kernels never open a region there (cstore-behaviour.md 9).
    _budget.reset(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
