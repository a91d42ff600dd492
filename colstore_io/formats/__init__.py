"""What do these bytes say? One package per format, all with the same protocol.

A format turns the bytes of opened files into `ShardMeta`: columns, segments and where their bytes are.
Formats ask `colstore_io.storage` for bytes and know nothing of file systems, frames or selections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ColumnNotFoundError, FormatError
from ..schema import PhysicalColumn, Schema

if TYPE_CHECKING:
    from ..storage import ByteFile

__all__ = ["Format", "ShardMeta", "Statistics", "detect"]


@dataclass(frozen=True)
class Statistics:
    """Smallest and largest value per segment, by physical column name.

    Attributes
    ----------
    minimum, maximum : dict of str to ndarray, shape (R,)
        In native byte order. Meaningless where not usable.
    usable : dict of str to ndarray of bool, shape (R,)
        Whether the bounds of this segment may be trusted. Columns that never have bounds (strings) are left out.
    """

    minimum: Mapping[str, NDArray[Any]]
    maximum: Mapping[str, NDArray[Any]]
    usable: Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class ShardMeta:
    """What a file's header says. Picklable, holds no handle; treat everything in it as read-only.

    Attributes
    ----------
    format : str
        ``"cstore"``, ...
    layout : str
        Version of the header: ``"A"``, ``"B"`` or ``"C"`` (cstore.md section 12).
    path : str
        The file as the user spelled it, for messages.
    columns : tuple of PhysicalColumn
        Every column in the file, companions included, in file order.
    schema : Schema
        What the user sees.
    record_rows : ndarray of int64, shape (R,)
        Rows of each record.
    body_start : ndarray of int64, shape (R,)
        File offset of each record's body.
    committed_end : int
        Readers use bytes [0, committed_end) and no others.
    statistics : Statistics or None
    fingerprint : bytes
        Equal for two states of one file of which one was merely appended to; differs when the manifest does.
    stats_offset : int
        Where the statistics footer begins; 0 when there is none.
    file_size : int
        Size of the file when it was opened.
    extra : object
        Value of the top-level extra key as stored, for rewrites that carry it along.
    """

    format: str
    layout: str
    path: str
    columns: tuple[PhysicalColumn, ...]
    schema: Schema
    record_rows: NDArray[np.int64]
    body_start: NDArray[np.int64]
    committed_end: int
    statistics: Statistics | None
    fingerprint: bytes
    stats_offset: int = 0
    file_size: int = 0
    extra: Any = None

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes of the whole table."""
        return self.schema.attrs

    @property
    def n_records(self) -> int:
        return len(self.record_rows)

    @cached_property
    def n_rows(self) -> int:
        return int(self.record_rows.sum())

    @cached_property
    def row_bytes(self) -> int:
        """Stored bytes per row: the sum of all item sizes."""
        return sum(column.itemsize for column in self.columns)

    @cached_property
    def _places(self) -> dict[str, tuple[int, PhysicalColumn]]:
        places: dict[str, tuple[int, PhysicalColumn]] = {}
        prefix = 0
        for column in self.columns:
            places[column.name] = (prefix, column)
            prefix += column.itemsize
        return places

    def physical(self, name: str) -> PhysicalColumn:
        """Return the physical column `name`; `ColumnNotFoundError` if the file has none."""
        return self._place(name)[1]

    def column_prefix(self, name: str) -> int:
        """Return the sum of the item sizes of the columns before `name`.

        The chunk of column c in record r begins at ``body_start[r] + record_rows[r] * column_prefix(c)``.
        """
        return self._place(name)[0]

    def _place(self, name: str) -> tuple[int, PhysicalColumn]:
        try:
            return self._places[name]
        except KeyError:
            raise ColumnNotFoundError.for_name(name, self._places) from None


class Format(Protocol):
    """What every format package offers."""

    name: str
    magic: bytes
    suffix: str

    def read_metadata(self, files: Sequence[ByteFile], heads: Sequence[memoryview]) -> list[ShardMeta]:
        """Return what the headers of `files` say; a few rounds of reads for all of them together."""
        ...


def detect(head: bytes | memoryview, path: str) -> Format:
    """Return the format of a file by its first bytes.

    Raises
    ------
    FormatError
        If no format begins like this.
    """
    from .cstore import FORMAT as CSTORE

    start = bytes(head[:8])
    if start == CSTORE.magic:
        return CSTORE
    if not start:
        raise FormatError("the file is empty (0 bytes), not a colstore file", path=path, offset=0)
    raise FormatError(
        f"not a colstore file: it begins with {start!r}, expected {CSTORE.magic!r}",
        path=path,
        offset=0,
        section="magic",
    )
