"""What becomes of a writer when its ``with`` block ends, and when nobody closed it."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import ClassVar, Self

from . import finalisers
from .uncopyable import Uncopyable

__all__ = ["BlockWriter", "FinishedWhenDropped"]


class BlockWriter(Uncopyable):
    """Base of the writers that people use in a ``with`` block; here alone it is decided how one ends.

    Notes
    -----
    Rows that ``write`` has taken count however the block ends: by itself, by an exception, by `KeyboardInterrupt`, or
    by `GeneratorExit` when the block stands in a generator that is closed. A block that raises before the first row
    leaves what was there. What the body raised passes through.
    """

    __slots__ = ()

    @property
    def closed(self) -> bool:
        """True after `close`."""
        raise NotImplementedError

    def close(self) -> None:
        """Make what was written count, and end. Does nothing the second time."""
        raise NotImplementedError

    def _is_untouched(self) -> bool:
        """Return True when closing would make something of no rows; never where closing then changes nothing."""
        return False

    def _give_up(self) -> None:
        """End without making anything count; for writers that can be open after a `close` that failed, too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._is_untouched():
            self._give_up()
            return
        try:
            self.close()
        finally:
            if not self.closed:  # a commit failed, and nobody is left to try again
                self._give_up()


class FinishedWhenDropped(BlockWriter):
    """A writer whose rows count even when nobody closes it; `finalisers.watch` it from the end of its ``__init__``."""

    _closed: bool
    _finishing: ClassVar[str] = "committing"

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def __del__(self) -> None:
        if getattr(self, "_closed", True):
            return
        try:
            warnings.warn(
                f"unclosed {self!r}: {self._finishing} it now", ResourceWarning, stacklevel=2, source=self
            )
        finally:  # also where warnings are errors
            self.close()

    def _end(self) -> bool:
        """Return False when it was closed before; else it is from now on."""
        if self._closed:
            return False
        self._closed = True
        finalisers.forget(self)
        return True

    def abandon_in_child(self) -> None:
        """Let go of files and locks in a forked child, where they are the parent's; nothing is written."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        """Drop files and locks without a commit."""
        raise NotImplementedError
