"""Helpers of a call: shared work, errors, and threads that never come."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from colstore_io import threads


@pytest.mark.parametrize("helpers", [0, 1, 3])
@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_results_come_in_the_order_of_the_items(n: int, helpers: int) -> None:
    assert threads.map_with_helpers(lambda x: x * x, range(n), helpers) == [x * x for x in range(n)]


def test_helpers_take_part() -> None:
    meeting = threading.Barrier(3, timeout=20)
    threads.map_with_helpers(lambda _: meeting.wait(), range(3), 2)


@pytest.mark.parametrize("helpers", [0, 2])
def test_an_error_ends_the_work_and_is_raised(helpers: int) -> None:
    begun = []

    def call(number: int) -> None:
        begun.append(number)
        time.sleep(0.001)
        if number == 3:
            raise LookupError("three")

    with pytest.raises(LookupError, match="three"):
        threads.map_with_helpers(call, range(1000), helpers)
    assert len(begun) < 1000


def test_nobody_waits_for_helpers_that_have_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ThreadPoolExecutor(1)
    stop = threading.Event()
    try:
        pool.submit(stop.wait, 30)  # the only thread is busy
        monkeypatch.setattr(threads, "_helpers", pool)
        assert threads.map_with_helpers(str, [1, 2], 1) == ["1", "2"]
        assert not stop.is_set()
    finally:
        stop.set()
        pool.shutdown()


def test_calls_within_calls_end() -> None:
    def outer(x: int) -> int:
        return sum(threads.map_with_helpers(lambda y: x * y, range(10), 4))

    assert threads.map_with_helpers(outer, range(10), 4) == [45 * x for x in range(10)]


class TestMadeAhead:
    @pytest.mark.parametrize("helpers", [0, 1])
    def test_results_come_in_order(self, helpers: int) -> None:
        assert list(threads.made_ahead(lambda n: n * n, range(50), helpers)) == [n * n for n in range(50)]
        assert list(threads.made_ahead(lambda n: n, [], helpers)) == []

    @pytest.mark.parametrize("helpers", [0, 1])
    def test_errors_are_raised_when_their_item_is_due(self, helpers: int) -> None:
        def call(n: int) -> int:
            if n == 3:
                raise OSError("the third")
            return n

        found: list[int] = []
        with pytest.raises(OSError, match="the third"):
            found.extend(threads.made_ahead(call, range(9), helpers))
        assert found == [0, 1, 2]

    def test_at_most_the_next_one_is_being_made(self) -> None:
        begun: list[int] = []
        for result in threads.made_ahead(lambda n: (begun.append(n), n)[1], range(20), 1):
            assert len(begun) <= result + 2

    def test_nothing_is_being_made_when_it_is_closed(self) -> None:
        running = threading.Event()
        ended: list[int] = []

        def call(n: int) -> int:
            if n:
                running.set()
                time.sleep(0.05)
            ended.append(n)
            return n

        made = threads.made_ahead(call, range(3), 1)
        next(made)
        running.wait(5)
        made.close()
        assert ended == [0, 1]
