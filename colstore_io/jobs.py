"""Jobs of pieces on a few threads: all at once, or in order and not far ahead of the slowest.

What a piece holds until it is done, and what of it waits for its turn in a result that grows, is memory beside the
result. So a piece begins only when few before it are not done, whatever the number of pieces.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import threads

__all__ = ["AHEAD", "Job", "run_all", "run_in_order", "run_queue"]

AHEAD = 2
"""Pieces a thread that may be begun and not done."""

_LARGE_BYTES = 1 << 20


class Job(NamedTuple):
    """One thing to do.

    Attributes
    ----------
    weight : int
        Bytes that it reads.
    run : callable (threads) -> None
    chain : int or None
        Jobs of one chain are done in order, one at a time.
    """

    weight: int
    run: Callable[[int], None]
    chain: int | None = None


def run_all(jobs: Sequence[Job], granted: int) -> None:
    """Run jobs in any order on `granted` threads; those that outweigh a thread's share get several."""
    links: dict[int, list[Job]] = {}
    rest = []
    for job in jobs:
        if job.chain is None:
            rest.append(job)
        else:
            links.setdefault(job.chain, []).append(job)
    rest += [Job(sum(job.weight for job in chain), _one_after_the_other(chain)) for chain in links.values()]
    # The heaviest first: a long column that begins last would run alone.
    rest.sort(key=lambda job: -job.weight)
    if granted == 1:
        for job in rest:
            job.run(1)
        return
    if len(rest) == 1:
        rest[0].run(granted)
        return
    total = max(1, sum(job.weight for job in rest))
    large = [job for job in rest if job.weight * granted > total and job.weight > _LARGE_BYTES]
    if large and len(rest) - len(large) < granted:
        # A few long columns: one after the other on all threads, then the rest side by side.
        for job in large:
            job.run(granted)
        rest = rest[len(large) :]
    if rest:
        threads.map_with_helpers(lambda job: job.run(1), rest, granted - 1)


def _one_after_the_other(jobs: Sequence[Job]) -> Callable[[int], None]:
    def run(granted: int) -> None:
        for job in jobs:
            job.run(granted)

    return run


def run_queue(jobs: Sequence[Job], granted: int) -> None:
    """Run jobs on `granted` threads, one a thread, begun in the order given: for those that nothing waits for."""
    threads.map_with_helpers(lambda job: job.run(1), jobs, granted - 1)


def run_in_order(
    make: Callable[[int], Sequence[Job]],
    count: int,
    granted: int,
    settled: Callable[[], int] | None = None,
) -> None:
    """Run the jobs of pieces 0, 1, ... on `granted` threads.

    Parameters
    ----------
    make : callable (number) -> sequence of Job
        Gives the jobs of a piece; called once for each, in order, by one thread at a time.
    count : int
        Of the pieces.
    granted : int
        Threads. Each job gets one.
    settled : callable () -> int, optional
        Up to which piece all have their place in the result. A job may end before its piece has, if another job will
        do that.

    Raises
    ------
    BaseException
        What `make` or a job raised, of several errors any one. Nothing is running any more then.

    Notes
    -----
    No piece begins that is `AHEAD` times `granted` pieces or more after the first that is not done.
    """
    if granted == 1:
        for number in range(count):
            for job in sorted(make(number), key=lambda job: -job.weight):
                job.run(1)
        return
    threads.run_with_helpers(_Window(make, count, AHEAD * granted, settled).work, granted - 1)


class _Window:
    """What threads share; everything is guarded by the condition's lock."""

    def __init__(
        self,
        make: Callable[[int], Sequence[Job]],
        count: int,
        ahead: int,
        settled: Callable[[], int] | None,
    ) -> None:
        self._make, self._count, self._ahead, self._settled = make, count, ahead, settled
        self._begun = 0
        self._left: dict[int, int] = {}  # pieces in work: jobs that have not ended
        self._waiting: deque[tuple[int, Job]] = deque()  # jobs of begun pieces that nobody has taken
        self._idle = 0  # threads that wait
        self._stopped = False
        self._condition = threading.Condition()

    def work(self) -> None:
        """Do what there is until nothing is left to begin, or something failed."""
        try:
            while (found := self._next()) is not None:
                number, job = found
                del found
                job.run(1)
                del job  # with what it holds
                self._ended(number)
        except BaseException:
            with self._condition:
                self._stopped = True
                self._condition.notify_all()
            raise

    def _next(self) -> tuple[int, Job] | None:
        with self._condition:
            while not self._stopped:
                if self._waiting:
                    return self._waiting.popleft()
                if self._begun == self._count:
                    return None
                first = min(self._left, default=self._begun)
                if self._settled is not None:
                    first = min(first, self._settled())
                if self._begun >= first + self._ahead:
                    self._idle += 1
                    self._condition.wait()
                    self._idle -= 1
                    continue
                jobs = sorted(self._make(self._begun), key=lambda job: -job.weight)
                if jobs:
                    self._left[self._begun] = len(jobs)
                    self._waiting.extend((self._begun, job) for job in jobs)
                    if self._idle:
                        self._condition.notify_all()
                self._begun += 1
            return None

    def _ended(self, number: int) -> None:
        with self._condition:
            self._left[number] -= 1
            if self._left[number] == 0:
                del self._left[number]
            if self._idle:
                self._condition.notify_all()
