"""One open file of which nobody has asked for more than its schema and its row count yet."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Protocol

from .dataset import Source
from .fields import Schema
from .formats import ShardMeta
from .plan import build_plan
from .storage import ByteFile

__all__ = ["Deferred", "DeferredSource"]

# Held while a source is settled or closed. Re-entrant, since both may run finalisers.
_lock = threading.RLock()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # a thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Deferred(Protocol):
    """What a format has opened."""

    @property
    def schema(self) -> Schema: ...
    @property
    def n_rows(self) -> int: ...
    def settle(self) -> tuple[ByteFile, ShardMeta]:
        """Return the file, closed if `close` was called, and what its header says; called once."""
        ...

    def close(self) -> None: ...


class DeferredSource(Source):
    """The source of one such file. It becomes a plain `Source` when anything else is asked for.

    A plan, counters and memos take longer to make than the file takes to open.

    Parameters
    ----------
    file : Deferred
    backend : str
    max_workers : int or None
    """

    _file: Deferred | None

    def __init__(self, file: Deferred, *, backend: str, max_workers: int | None) -> None:
        self.backend = backend
        self.max_workers = max_workers
        self._file = file

    @property
    def schema(self) -> Schema:
        file = self._file
        return self.plan.schema if file is None else file.schema

    def settle(self) -> None:
        """Make plan, files and memos, and be a `Source` from then on."""
        with _lock:
            if self._file is None:  # another thread was here
                return
            file, meta = self._file.settle()
            Source.__init__(
                self,
                build_plan([meta]),
                (file,),
                metas=(meta,),
                backend=self.backend,
                max_workers=self.max_workers,
            )
            self.__class__ = Source  # type: ignore[assignment]
            self._file = None

    if not TYPE_CHECKING:  # nothing that `Source` does not declare

        def __getattr__(self, name: str) -> Any:
            # Called for what is not there yet.
            file = self._file
            if file is not None and name == "n_rows":
                return file.n_rows
            if not name.startswith("__"):
                self.settle()
            return object.__getattribute__(self, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        self.settle()
        return self.__reduce_ex__(protocol)

    def close(self) -> None:
        """As `Source.close`; the file may still be settled, to be described."""
        with _lock:
            if self._file is not None:
                self._file.close()
                return
        self.close()  # another thread has just settled it
