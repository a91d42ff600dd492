"""Which thread cap, which look-ahead, which way to read cold files is best on this machine? Measured, on request only.

A sweep times every candidate once per round, so that a machine which slows down for a while slows all of them down;
medians over the rounds decide; the smallest candidate that is nearly as fast as the best one wins, since threads and
prefetches that gain nothing are taken from somebody else (cstore-behaviour.md 14).

``colstore-io calibrate`` is this module on the command line. What it finds is kept by `colstore_io.tuning`.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import config, threads, tuning
from .api import reading, writing
from .kernels import segments as kernels
from .storage import paging

__all__ = [
    "PREFETCH_CANDIDATES",
    "WARMUP_ROUNDS",
    "Result",
    "calibrate",
    "ensure_calibrated",
    "pick",
    "sweep",
    "thread_candidates",
]

WARMUP_ROUNDS = 2
"""Rounds that are run and thrown away first: they bring memory in and clocks up."""

NEARLY = 0.95
"""A candidate with this share of the best speed is as good."""

THREAD_TOLERANCE = 1
PREFETCH_TOLERANCE = 2
POPULATE_TOLERANCE = 0
"""Steps of the candidate list by which the picks of the two halves of the rounds may differ. Neighbouring distances
measure alike over a wide range (performance.md section 1), so they get one more."""

PREFETCH_CANDIDATES = (0, 2, 4, 8, 16, 32, 64, 96, 128, 192, 255)
"""The kernels keep at most 255 rows in flight, so nothing beyond is worth measuring."""

Clock = Callable[[], float]
"""Seconds from some fixed moment on."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How much work one candidate does."""

    thread_source_rows: int
    thread_indices: int
    resident_bytes: int
    dram_bytes: int
    prefetch_indices: int
    file_rows: int


def _sizes(quick: bool) -> _Sizes:
    llc = tuning.last_level_cache()
    if quick:  # 16 MiB and less: the picks are rough, every step is the real one
        return _Sizes(1 << 20, 1 << 19, 1 << 20, 16 << 20, 1 << 16, 1 << 20)
    resident, dram = max(llc // 2, 8 << 20), min(1 << 30, max(4 * llc, 16 << 20))
    return _Sizes(50_000_000, 32_000_000, resident, dram, 1_000_000, 1 << 25)


# ----------------------------------------------------------------------------------------------------------
# Sweeps


def sweep(
    candidates: Sequence[int],
    run: Callable[[int], object],
    *,
    rounds: int = 10,
    warmup: int = WARMUP_ROUNDS,
    clock: Clock = time.perf_counter,
    prepare: Callable[[], object] | None = None,
) -> dict[int, list[float]]:
    """Time ``run(candidate)`` for every candidate, once a round.

    Parameters
    ----------
    candidates : sequence of int
    run : callable
    rounds : int
        Rounds that count, at least 1.
    warmup : int
        Rounds before them that do not.
    clock : callable
        Read before and after each run.
    prepare : callable, optional
        Called before each run, untimed.

    Returns
    -------
    dict of int to list of float
        Seconds of each candidate, one entry a round.

    Raises
    ------
    ValueError
        If `rounds` is less than 1, `warmup` is negative, or there are no candidates.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    if warmup < 0:
        raise ValueError(f"warmup must not be negative, got {warmup}")
    if not candidates:
        raise ValueError("no candidates to measure")
    seconds: dict[int, list[float]] = {candidate: [] for candidate in candidates}
    for number in range(-warmup, rounds):
        # Each round begins with another candidate, so that none always follows the same neighbour.
        turn = number % len(candidates)
        for candidate in (*candidates[turn:], *candidates[:turn]):
            if prepare is not None:
                prepare()
            begin = clock()
            run(candidate)
            taken = clock() - begin
            if number >= 0:
                seconds[candidate].append(taken)
    return seconds


def medians(seconds: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """Return the median of each candidate."""
    return {candidate: statistics.median(taken) for candidate, taken in seconds.items()}


def pick(seconds: Mapping[int, float], nearly: float = NEARLY) -> int:
    """Return the smallest candidate whose speed is at least `nearly` of the best one's.

    Parameters
    ----------
    seconds : mapping of int to float
        Time of each candidate.
    """
    limit = min(seconds.values()) / nearly
    return min(candidate for candidate, taken in seconds.items() if taken <= limit)


def half_picks(seconds: Mapping[int, Sequence[float]]) -> tuple[int, int] | None:
    """Return what the first and the second half of the rounds would pick; ``None`` for a single round."""
    rounds = min(map(len, seconds.values()))
    half = rounds // 2
    if half == 0:
        return None
    first = pick(medians({candidate: taken[:half] for candidate, taken in seconds.items()}))
    second = pick(medians({candidate: taken[half:] for candidate, taken in seconds.items()}))
    return first, second


def decide(target: str, what: str, seconds: Mapping[int, Sequence[float]], tolerance: int) -> int:
    """Pick a candidate, and warn when the two halves of the rounds disagree by more than `tolerance` steps.

    Warns
    -----
    UserWarning
        "unstable": something else kept the machine busy.
    """
    order = sorted(seconds)
    halves = half_picks(seconds)
    if halves is not None and abs(order.index(halves[0]) - order.index(halves[1])) > tolerance:
        warnings.warn(
            f"calibration for {target!r} is unstable{what}: the first half of the rounds picks {halves[0]}, the second "
            f"{halves[1]}. Run it again on an idle machine, or with more rounds.",
            UserWarning,
            stacklevel=4,
        )
    return pick(medians(seconds))


# ----------------------------------------------------------------------------------------------------------
# What is measured


def thread_candidates(most: int) -> tuple[int, ...]:
    """Return the caps to try: 1, 2, 4, 8, 16, 32 as far as `most` allows, and `most` itself."""
    return tuple(sorted({cap for cap in (1, 2, 4, 8, 16, 32) if cap <= most} | {most}))


def _one_segment(source: NDArray[Any]) -> kernels.SegmentTable:
    rows = source.shape[0]
    return kernels.SegmentTable(
        np.array([0], np.int64),
        np.array([rows], np.int64),
        np.array([[source.ctypes.data]], np.int64),
        np.array([source.itemsize], np.int64),
        rows,
    )


def _take(source: NDArray[Any], indices: NDArray[np.int64], cap: int) -> Callable[..., object]:
    """Return a gather of `indices` from `source` that reuses its output, so that nothing but the gather is timed."""
    table, out = _one_segment(source), np.zeros(indices.shape[0], source.dtype)
    wanted = threads.wanted_threads(indices.shape[0], cap)

    def run(*, count: int = wanted, prefetch: int = -1) -> None:
        assert source.size  # keeps the memory behind the table alive
        table.take(indices, out, threads=count, prefetch=prefetch)

    return run


@dataclass(frozen=True, slots=True)
class Result:
    """What one target came to.

    Attributes
    ----------
    target : str
    value : int, dict or str
        The thread cap, the distance of each regime, or the populate policy.
    measurements : dict
        Median seconds of each candidate (of each regime).
    path : str or None
        Where it was kept; ``None`` when it was not, or could not be.
    """

    target: str
    value: Any
    measurements: dict[str, Any]
    path: str | None = None


def _measure_threads(sizes: _Sizes, rounds: int, clock: Clock) -> Result:
    rng = np.random.default_rng(0)
    source = rng.random(sizes.thread_source_rows, np.float32)
    indices = rng.permutation(sizes.thread_source_rows)[: sizes.thread_indices].astype(np.int64)
    # The budget, not the cores: a forked child has a budget of 1 and must not start an OpenMP team.
    most = threads.budget() if kernels.openmp_enabled() else 1
    run = _take(source, indices, most)
    distance = config.get_prefetch_distance()
    prefetch = config.DEFAULT_PREFETCH_DISTANCE if distance == "auto" else distance
    seconds = sweep(
        thread_candidates(most), lambda cap: run(count=cap, prefetch=prefetch), rounds=rounds, clock=clock
    )
    return Result("threads", decide("threads", "", seconds, THREAD_TOLERANCE), _text_keys(medians(seconds)))


def _measure_prefetch(sizes: _Sizes, rounds: int, clock: Clock) -> Result:
    cap = min(tuning.gather_thread_cap(), threads.budget())
    value: dict[str, int] = {}
    measurements: dict[str, Any] = {}
    for where, nbytes in (("resident", sizes.resident_bytes), ("dram", sizes.dram_bytes)):
        rng = np.random.default_rng(0)
        source = rng.random(nbytes // 8)
        indices = rng.integers(0, source.shape[0], sizes.prefetch_indices)
        for order, rows in (("unsorted", indices), ("sorted", np.sort(indices))):
            name = f"{where}_{order}"
            run = _take(source, rows, cap)
            seconds = sweep(
                PREFETCH_CANDIDATES,
                lambda distance, run=run: run(prefetch=distance),  # type: ignore[misc]
                rounds=rounds,
                clock=clock,
            )
            value[name] = decide("prefetch", f" ({name})", seconds, PREFETCH_TOLERANCE)
            measurements[name] = _text_keys(medians(seconds))
    return Result("prefetch", value, measurements)


def _measure_populate(sizes: _Sizes, rounds: int, clock: Clock) -> Result:
    """Read a cold file of one column in each way; the file lies where calibrations do, and is removed afterwards."""
    names = tuning.POPULATE_CANDIDATES
    if not paging.AVAILABLE:
        return Result("populate", "none", {})
    setting = config.get_populate_policy()
    folder = tuning.cache_directory()
    folder = folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(dir=folder, prefix=".populate-") as where:
        path = os.path.join(where, "column.cstore")
        writing.store({"x": np.arange(sizes.file_rows)}, path, show_progress=False).close()
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)  # pages that still have to be written cannot be dropped

            def run(candidate: int) -> None:
                config.set_populate_policy(names[candidate])
                with reading.open(path) as table:
                    table["x"].array()

            def drop() -> None:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

            seconds = sweep(range(len(names)), run, rounds=rounds, clock=clock, prepare=drop)
        finally:
            config.set_populate_policy(setting)
            os.close(fd)
    chosen = decide("populate", "", seconds, POPULATE_TOLERANCE)
    return Result("populate", names[chosen], {names[c]: taken for c, taken in medians(seconds).items()})


def _text_keys(seconds: Mapping[int, float]) -> dict[str, float]:
    return {str(candidate): taken for candidate, taken in seconds.items()}


_MEASURE: dict[str, Callable[[_Sizes, int, Clock], Result]] = {
    "threads": _measure_threads,
    "prefetch": _measure_prefetch,
    "populate": _measure_populate,
}


# ----------------------------------------------------------------------------------------------------------
# What a user calls


def _in_order(targets: Iterable[str]) -> list[str]:
    wanted = set(targets)
    for target in wanted:
        tuning.cache_path(target)  # raises for an unknown one
    return [target for target in tuning.TARGETS if target in wanted]


def calibrate(
    targets: Iterable[str] = tuning.TARGETS,
    *,
    rounds: int | Mapping[str, int] = 10,
    persist: bool = True,
    quick: bool = False,
    clock: Clock = time.perf_counter,
) -> dict[str, Result]:
    """Measure this machine, use the results in this process from now on, and keep them for others.

    Parameters
    ----------
    targets : iterable of str
        ``"threads"``, ``"prefetch"`` and ``"populate"``; always measured in this order.
    rounds : int or mapping of str to int
        Rounds that count, for all targets or by target; two more come before them.
    persist : bool
        Write the calibration files, which later processes of this user on this hardware read.
    quick : bool
        A hundredth of the work: seconds instead of a minute, and rougher.
    clock : callable
        For tests.

    Returns
    -------
    dict of str to Result

    Raises
    ------
    ValueError
        If a target is unknown or `rounds` is less than 1. Nothing has been measured then.

    Warns
    -----
    UserWarning
        If the two halves of the rounds disagree.

    Notes
    -----
    Takes up to 1.5 GB of memory and 256 MiB on disk unless `quick`. An explicit setting in
    `colstore_io.config` still wins.
    """
    chosen = _in_order(targets)
    counts = {target: rounds if isinstance(rounds, int) else rounds.get(target, 10) for target in chosen}
    for target, count in counts.items():
        if count < 1:
            raise ValueError(f"rounds of {target} must be at least 1, got {count}")
    sizes = _sizes(quick)
    results = {}
    for target in chosen:
        result = _MEASURE[target](sizes, counts[target], clock)
        tuning.apply(target, result.value)
        path = tuning.save(target, result.value, result.measurements) if persist else None
        kept = None if path is None else str(path)
        results[target] = Result(target, result.value, result.measurements, kept)
    return results


def ensure_calibrated(targets: Iterable[str] = tuning.TARGETS) -> dict[str, Any]:
    """Return the calibrated values, measuring once those that this machine has none of."""
    values = {}
    for target in _in_order(targets):
        known = tuning.inspect(target)
        if known.status == "match":
            tuning.apply(target, known.result)
            values[target] = known.result
        else:
            values[target] = calibrate([target])[target].value
    return values
