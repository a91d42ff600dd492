"""A local file opened by one compiled call; what is more than its schema is made when somebody asks for it.

An open is often followed by a look at the schema, or by nothing. So it costs three system calls, the checks of the
footer (columns.md 8.4 and 12.2, all of them), and one object: no location, no counters, no arrays, no plan. Only files
that are sound and ordinary are opened here; for all others, damaged ones first of all, `reader.read_metadata` goes step
by step and says what is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...fields import Schema
from ...kernels import footers as kernel
from ...storage import IOStats, LocalFile, LocalOptions, Location
from .. import ReadOptions, ShardMeta
from .footer import Footer, schema_of
from .frame import Prologue
from .gob import PREFIX, usual_types
from .reader import OpenedFooter, meta_of

__all__ = ["OpenedFile", "open_local"]

_PROLOGUE = Prologue(1, (), 5)

_KEPT_SCHEMAS = 64
_schemas: dict[tuple[bytes, bool], Schema] = {}
"""Schemas by what footers say of columns: files of equal columns share one. Emptied when it is full."""


class OpenedFile:
    """A sound columns file of this machine, open.

    Parameters
    ----------
    file : FooterFile
    spelling, path : str
        As the caller wrote it, and absolute.
    reading : ReadOptions
    local : LocalOptions
    """

    __slots__ = ("_file", "_local", "_path", "_reading", "_spelling", "closed")

    def __init__(
        self, file: kernel.FooterFile, spelling: str, path: str, reading: ReadOptions, local: LocalOptions
    ) -> None:
        self._file = file
        self._spelling = spelling
        self._path = path
        self._reading = reading
        self._local = local
        self.closed = False

    @property
    def schema(self) -> Schema:
        """As `ShardMeta.schema`."""
        text = self._reading.errors == "strict"
        key = (self._file.columns, text)
        found = _schemas.get(key)
        if found is None:
            found = schema_of(self._footer(), text=text)
            if len(_schemas) >= _KEPT_SCHEMAS:
                _schemas.clear()
            _schemas[key] = found
        return found

    @property
    def n_rows(self) -> int:
        return self._file.n_rows

    def close(self) -> None:
        """Release the file. `settle` may still be asked."""
        self.closed = True
        self._file.close()

    def settle(self, schemas: dict[Any, Schema] | None = None) -> tuple[LocalFile, ShardMeta]:
        """Return the file and what its header says; the file has the descriptor now. To be called once.

        `schemas` is as in `reader.meta_of`.
        """
        location = Location(self._spelling, self._path, self._path, None, self._path)
        requests, n_bytes, seconds = self._file.read
        size, mtime_ns, inode = self._file.state
        file = LocalFile(
            location,
            self._path,
            size,
            IOStats(requests, n_bytes, 0, seconds),
            known=(size, mtime_ns, inode),
            options=self._local,
        )
        file.adopt(self._file.take_descriptor())
        if self.closed:
            file.close()
        opened = OpenedFooter(_PROLOGUE, self._footer())
        return file, meta_of(self._spelling, size, opened, self._reading, {} if schemas is None else schemas)

    def _footer(self) -> Footer:
        data, names, kinds, flags, _, chunks, places = self._file.parts()
        start, _ = self._file.span
        return Footer.of_parts(
            memoryview(data), start, (names, kinds, flags), chunks, np.frombuffer(places, np.int64)
        )


def open_local(spelling: str, path: str, reading: ReadOptions, local: LocalOptions) -> OpenedFile | None:
    """Open a local file; None for whatever is not sound and ordinary (``kernels/footers.pyi``).

    Parameters
    ----------
    spelling, path : str
        As the caller wrote it, and absolute.
    reading : ReadOptions
    local : LocalOptions
    """
    file = kernel.open_footer(path, usual_types(), PREFIX, reading.max_rows)
    return None if file is None else OpenedFile(file, spelling, path, reading, local)
