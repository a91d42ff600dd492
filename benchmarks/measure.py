"""Time callables side by side: interleaved rounds, medians, results checked before anything is timed."""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Job", "assert_equal", "first_line", "run_jobs"]

MIN_SAMPLE_SECONDS = 2e-3
"""Short calls are repeated within one sample until it lasts this long."""


@dataclass
class Job:
    """One system's way of doing a workload.

    Attributes
    ----------
    system : str
    call : callable
        Does the work and returns its result.
    prepare : callable, optional
        Runs before each call, untimed.
    measures_itself : bool
        `call` checks its result and returns the sample: seconds of a fresh process, say.
    samples : list of float
        Seconds of each round, or what `call` returned.
    problem : str
        Why the system was left out.
    """

    system: str
    call: Callable[[], Any]
    prepare: Callable[[], Any] | None = None
    measures_itself: bool = False
    samples: list[float] = field(default_factory=list)
    problem: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


def assert_equal(got: Any, want: Any, where: str = "result") -> None:
    """Raise `AssertionError` unless results agree: dicts of arrays, arrays, Arrow tables and schemas, or numbers."""
    if hasattr(want, "equals"):
        assert got.equals(want), f"{where}: Arrow data differ"
    elif isinstance(want, dict):
        assert set(got) == set(want), f"{where}: columns {sorted(got)} != {sorted(want)}"
        for name, values in want.items():
            assert_equal(got[name], values, name)
    elif isinstance(want, np.ndarray):
        got = np.asarray(got)
        assert got.dtype == want.dtype, f"{where}: dtype {got.dtype} != {want.dtype}"
        assert got.shape == want.shape, f"{where}: shape {got.shape} != {want.shape}"
        assert np.array_equal(got, want), f"{where}: values differ"
    else:
        assert np.isclose(got, want, rtol=1e-6), f"{where}: {got} != {want}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, cut."""
    return (str(error).strip().splitlines() or [""])[0][:200]


def _try(job: Job, want: Any) -> int:
    """Check the result of `job`; return how often it is repeated in one sample."""
    if job.measures_itself:
        job.call()
        return 1
    if job.prepare:
        job.prepare()
    result = job.call()
    if want is not None:
        assert_equal(result, want)
    del result
    if job.prepare:
        return 1
    once = MIN_SAMPLE_SECONDS
    for _ in range(3):  # the first ones may fill caches that later ones find
        begin = time.perf_counter()
        job.call()
        once = min(once, time.perf_counter() - begin)
    return max(1, min(5000, int(MIN_SAMPLE_SECONDS / max(once, 1e-7))))


def _sample(job: Job, repeats: int) -> float:
    if job.measures_itself:
        return float(job.call())
    if job.prepare:
        job.prepare()
    elif repeats > 1:
        job.call()  # a short call is measured with the caches it leaves itself, not with what the last system left
    begin = time.perf_counter()
    for _ in range(repeats):
        job.call()
    return (time.perf_counter() - begin) / repeats


def run_jobs(jobs: list[Job], *, want: Any, rounds: int, budget_seconds: float) -> list[Job]:
    """Check every job's result against `want`, then time them in interleaved rounds.

    A job with an error or a wrong result is reported on stderr, gets a `problem`, and is left out of what is returned.
    A job that used up `budget_seconds` stops after at least three rounds. Each round has an order of its own: who runs
    after whom matters (what is left in the caches, which pages were freed), and a rotation would keep most neighbours.
    """
    good = []
    repeats: dict[str, int] = {}
    spent: dict[str, float] = {}
    for job in jobs:
        try:
            repeats[job.system] = _try(job, want)
        except AssertionError as error:
            job.problem = f"wrong result: {first_line(error)}"
        except Exception as error:  # a peer that fails must not end the run
            job.problem = f"{type(error).__name__}: {first_line(error)}"
        if job.problem:
            print(f"  ! LEFT OUT: {job.system}: {job.problem}", file=sys.stderr)
        else:
            spent[job.system] = 0.0
            good.append(job)
    gc.collect()
    gc.disable()
    try:
        order = random.Random(0)
        for _ in range(rounds):
            for job in order.sample(good, len(good)):
                if len(job.samples) >= 3 and spent[job.system] > budget_seconds:
                    continue
                begin = time.perf_counter()
                job.samples.append(_sample(job, repeats[job.system]))
                spent[job.system] += time.perf_counter() - begin
    finally:
        gc.enable()
    return good
