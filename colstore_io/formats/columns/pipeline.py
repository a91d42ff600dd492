"""Blocks of several columns through two stages, on a few threads: decompress, then decode in order.

Blocks can be decompressed in any order; a column takes them one after the other. Any thread does what is there to do:
it decodes the next block of a column if that is ready and nobody else is at this column, else it decompresses the next
block of the first column that has one and is not too far ahead. So one column of many blocks uses all threads, and so
do many columns of one block.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from ...threads import run_with_helpers

__all__ = ["WORTHWHILE_BYTES", "Work", "run"]

WORTHWHILE_BYTES = 1 << 18
"""Raw bytes below which a call stays in its thread: handing a block to another thread and back takes up to 0.1 ms.

On a quiet machine two threads read a column of 1.6 MB in 0.6 (floats, long text) to 0.85 (repetitive integers) of one
thread's time; with both cores taken by others, in up to 1.2 of it."""

_AHEAD = 1
"""Decompressed blocks per thread that a column may hold, with those in work: what a read takes beside its result."""


class Work(Protocol):
    """One column's blocks."""

    n_blocks: int

    def prepare(self, block: int) -> Any:
        """Decompress a block; called from any thread, once for each, in no order."""
        ...

    def consume(self, block: int, raw: Any) -> None:
        """Decode a block; called once for each, in order, by one thread at a time."""
        ...

    def finish(self) -> None:
        """Called after the last block."""
        ...


def run(works: Sequence[Work], threads: int) -> None:
    """Take all works through all stages; the first error, in the order of `works`, is raised.

    Parameters
    ----------
    works : sequence of Work
    threads : int
        Threads to use, the caller's included. 1 stays in it.
    """
    if threads <= 1:
        for work in works:
            for block in range(work.n_blocks):
                work.consume(block, work.prepare(block))
            work.finish()
        return
    team = _Team(works, _AHEAD * threads)

    def take_part() -> None:
        try:
            team.work()
        except BaseException:  # an interrupt between two blocks: nobody may wait for what was begun here
            team.stop()
            raise

    run_with_helpers(take_part, threads - 1)
    team.raise_first()


class _State:
    """How far one work is; guarded by the team's lock."""

    __slots__ = ("busy", "consumed", "done", "prepared", "ready", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.prepared = 0  # blocks that somebody has begun to decompress
        self.consumed = 0
        self.ready: dict[int, Any] = {}
        self.busy = False
        self.done = False


class _Team:
    """What threads share."""

    def __init__(self, works: Sequence[Work], window: int) -> None:
        self._states = [_State(work) for work in works]
        self._window = window
        self._condition = threading.Condition()
        self._errors: dict[int, BaseException] = {}
        self._stopped = False

    def stop(self) -> None:
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def raise_first(self) -> None:
        if self._errors:
            raise self._errors[min(self._errors)]

    def work(self) -> None:
        """Do what there is until all is done or something failed."""
        while True:
            with self._condition:
                while True:
                    if self._stopped or self._errors or all(state.done for state in self._states):
                        self._condition.notify_all()
                        return
                    found = self._next()
                    if found is not None:
                        break
                    self._condition.wait()
            number, state, block = found
            try:
                if block is None:
                    self._consume(state)
                else:
                    raw = state.work.prepare(block)
                    with self._condition:
                        state.ready[block] = raw
                        del raw  # not to be held while the next one is made
                        self._condition.notify_all()
            except BaseException as exc:  # raised again by the calling thread
                with self._condition:
                    self._errors[number] = exc
                    self._condition.notify_all()
                return

    def _next(self) -> tuple[int, _State, int | None] | None:
        """Choose work: (number, state, block to decompress, or None to decode what is ready)."""
        for number, state in enumerate(self._states):
            if state.busy or state.done:
                continue
            if state.consumed in state.ready or state.consumed == state.work.n_blocks:
                state.busy = True
                return number, state, None
        for number, state in enumerate(self._states):
            if state.prepared < min(state.work.n_blocks, state.consumed + self._window):
                state.prepared += 1
                return number, state, state.prepared - 1
        return None

    def _consume(self, state: _State) -> None:
        """Decode the blocks of one work that are ready, and finish it after the last one."""
        while True:
            with self._condition:
                block = state.consumed
                if self._errors or self._stopped:
                    return
                if block < state.work.n_blocks and block not in state.ready:
                    state.busy = False
                    return
                raw = state.ready.pop(block, None)
            if block == state.work.n_blocks:
                state.work.finish()
                with self._condition:
                    state.done = True
                    self._condition.notify_all()
                return
            state.work.consume(block, raw)
            del raw
            with self._condition:
                state.consumed += 1
                self._condition.notify_all()
