"""What becomes of writers that nobody closed: at the end of the interpreter, and in a forked child."""

from __future__ import annotations

import atexit
import os
import sys
import traceback
import weakref
from typing import Protocol

__all__ = ["Unclosed", "forget", "watch"]


class Unclosed(Protocol):
    """Something that commits, with a warning, when it is dropped unclosed."""

    def __del__(self) -> None: ...

    def abandon_in_child(self) -> None: ...


_open: weakref.WeakSet[Unclosed] = weakref.WeakSet()


def watch(writer: Unclosed) -> None:
    """Commit `writer` at exit at the latest, and abandon it in forked children, until it is forgotten."""
    _open.add(writer)


def forget(writer: Unclosed) -> None:
    """Stop watching `writer`: it was closed."""
    _open.discard(writer)


@atexit.register
def _close_at_exit() -> None:
    # The interpreter may never run their finalisers, or run them when half of it is gone.
    for writer in list(_open):
        try:
            writer.__del__()
        except Exception:
            traceback.print_exc(file=sys.stderr)


def _after_fork_in_child() -> None:
    # Files, locks and commits are the parent's: a child that runs finalisers must not touch them.
    for writer in list(_open):
        writer.abandon_in_child()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
