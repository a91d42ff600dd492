"""Jobs on a few threads: all of them are run, none far ahead of the slowest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from colstore_io.jobs import AHEAD, Job, run_all, run_in_order


@pytest.mark.parametrize("granted", [1, 2, 3])
def test_every_job_is_run_once(granted: int) -> None:
    done: list[tuple[int, int]] = []

    def make(number: int) -> list[Job]:
        return [Job(k, lambda threads, k=k: done.append((number, k))) for k in range(number % 4)]

    run_in_order(make, 50, granted)
    assert sorted(done) == [(number, k) for number in range(50) for k in range(number % 4)]


def test_nothing_begins_far_ahead_of_the_slowest() -> None:
    begun: list[int] = []
    release = threading.Event()
    waited: list[int] = []

    def run(number: int) -> Callable[[int], None]:
        def call(threads: int) -> None:
            begun.append(number)
            if number == 0:
                release.wait(10)
                waited.append(len(begun))

        return call

    def let_go() -> None:
        deadline = time.monotonic() + 10
        while len(begun) < 2 * AHEAD and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.05)
        release.set()

    thread = threading.Thread(target=let_go)
    thread.start()
    run_in_order(lambda number: [Job(1, run(number))], 100, 2)
    thread.join()
    assert sorted(begun) == list(range(100))
    assert waited[0] <= 2 * AHEAD


def test_pieces_without_a_place_hold_up_those_behind_them() -> None:
    settled = 0
    most = 0

    def run(number: int) -> Callable[[int], None]:
        def call(threads: int) -> None:
            nonlocal settled, most
            most = max(most, number - settled)
            if number % 3 == 2:  # three pieces get their place at once
                settled = number + 1

        return call

    run_in_order(lambda number: [Job(1, run(number))], 60, 2, lambda: settled)
    assert settled == 60
    assert most < 2 * AHEAD + 3


@pytest.mark.parametrize("granted", [1, 2])
@pytest.mark.parametrize("where", ["make", "job"])
def test_an_error_ends_everything(granted: int, where: str) -> None:
    done: list[int] = []

    def make(number: int) -> list[Job]:
        if where == "make" and number == 5:
            raise KeyError("here")

        def call(threads: int) -> None:
            if where == "job" and number == 5:
                raise KeyError("here")
            done.append(number)

        return [Job(1, call)]

    with pytest.raises(KeyError, match="here"):
        run_in_order(make, 1000, granted)
    assert len(done) < 1000


@pytest.mark.parametrize("granted", [1, 2])
def test_jobs_of_a_chain_are_done_in_order(granted: int) -> None:
    done: list[int] = []
    jobs = [Job(1, lambda threads, k=k: done.append(k), chain=7) for k in range(20)]
    others = [Job(5, lambda threads: None) for _ in range(3)]
    run_all(jobs + others, granted)
    assert done == list(range(20))


def test_one_heavy_job_gets_all_threads() -> None:
    granted: list[int] = []
    heavy = Job(10 << 20, granted.append)
    run_all([Job(1, lambda threads: None), heavy], 2)
    assert granted == [2]
