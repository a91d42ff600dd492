"""Records of a remote file whose headers are read together with their first values, not when the file is opened.

A writer of records of one size leaves a file of which counters and record 0 tell everything. Each further header is 32
bytes that cost a request. `assumed_records` says where they are if all records but the last are like the first one, and
when that may be assumed; `AssumedRecords` has each header looked at in the round that reads the first bytes behind it.

Headers are a chain: each says where the next one is. So a record is believed when all headers before it were found
where they were assumed, in the same round of requests; a header alone is not enough, for values may look like one. A
header elsewhere, or one that says something else, means that the file has to be walked; values that were read with it
are thrown away.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from .header import Header
from .records import RECORD_HEADER_SIZE, RecordIndex, body_bytes, record_says

__all__ = ["AssumedRecords", "assumed_records"]

_MAX_RUNS = 16
"""Runs of records already looked at that travel with a task; of more it looks again."""


@dataclass(eq=False)
class AssumedRecords:
    """A `storage.Guard`: records of `rows` rows each, of which the last has `last_rows`.

    Attributes
    ----------
    data_offset : int
        Of the header of record 0.
    n_records, rows, last_rows, row_bytes : int
    """

    data_offset: int
    n_records: int
    rows: int
    last_rows: int
    row_bytes: int
    _seen: set[int] = field(default_factory=set)
    _prefix: int = 0  # so many records from the first one on have been looked at, at least
    _failed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)  # guards `_seen`; taken last

    @property
    def stride(self) -> int:
        """Bytes from one record to the next."""
        return RECORD_HEADER_SIZE + body_bytes(self.rows, self.row_bytes)

    def record_at(self, offset: int) -> int:
        """Return the number of the record that holds the byte at `offset`."""
        return max(0, min((offset - self.data_offset) // self.stride, self.n_records - 1))

    @property
    def end(self) -> int:
        """End of the last record."""
        last = RECORD_HEADER_SIZE + body_bytes(self.last_rows, self.row_bytes)
        return self.data_offset + (self.n_records - 1) * self.stride + last

    def wanted(self, start: int, stop: int) -> list[tuple[int, int]]:
        if stop <= self.data_offset or start >= self.end:
            return []
        last = self.record_at(stop - 1)
        with self._lock:
            while self._prefix in self._seen:
                self._prefix += 1
            numbers = [number for number in range(self._prefix, last + 1) if number not in self._seen]
        return [(self.data_offset + number * self.stride, RECORD_HEADER_SIZE) for number in numbers]

    def look(self, offset: int, data: memoryview) -> bool:
        number = self.record_at(offset)
        rows = self.rows if number < self.n_records - 1 else self.last_rows
        if len(data) != RECORD_HEADER_SIZE or not record_says(data, number, rows):
            self._failed = True
            return False
        with self._lock:
            self._seen.add(number)
        return True

    def failed(self) -> bool:
        return self._failed

    def rows_before(self, offset: int) -> int | None:
        number, rest = divmod(offset - RECORD_HEADER_SIZE - self.data_offset, self.stride)
        return number * self.rows if rest == 0 and 0 <= number < self.n_records else None

    def index(self) -> RecordIndex:
        """Return where the records are."""
        rows = np.full(self.n_records, self.rows, np.int64)
        rows[-1] = self.last_rows
        starts = np.arange(self.n_records, dtype=np.int64) * self.stride + (
            self.data_offset + RECORD_HEADER_SIZE
        )
        return RecordIndex(rows, starts, self.end)

    def __reduce__(self) -> tuple[object, ...]:
        with self._lock:
            seen = sorted(self._seen)
        breaks = [0, *(n + 1 for n, (a, b) in enumerate(pairwise(seen)) if b != a + 1), len(seen)]
        runs = [(seen[a], seen[b - 1] + 1) for a, b in pairwise(breaks) if b > a]
        shape = (self.data_offset, self.n_records, self.rows, self.last_rows, self.row_bytes)
        return _rebuild, (shape, tuple(runs[:_MAX_RUNS]), self._failed)


def _rebuild(
    shape: tuple[int, int, int, int, int], runs: tuple[tuple[int, int], ...], failed: bool
) -> AssumedRecords:
    seen = {number for first, stop in runs for number in range(first, stop)}
    return AssumedRecords(*shape, _seen=seen, _failed=failed)


def assumed_records(
    header: Header, known: RecordIndex, *, row_bytes: int, size: int
) -> AssumedRecords | None:
    """Return what counters and first records say about all records; None when these may be of other sizes.

    Parameters
    ----------
    header : Header
    known : RecordIndex
        The records whose headers were read, from record 0 on; not all.
    row_bytes : int
    size : int
        Of the file.
    """
    count, total = header.n_records, header.committed_rows
    if not 1 <= len(known.rows) < count or row_bytes < 1:
        return None
    rows = int(known.rows[0])
    last_rows = total - rows * (count - 1)
    if not 0 < last_rows <= rows or total * row_bytes > size or not bool((known.rows == rows).all()):
        return None
    found = AssumedRecords(header.data_offset, count, rows, last_rows, row_bytes)
    if found.end != (header.stats_offset or size) or found.end > size:
        return None
    lost = (count - 1) * (body_bytes(rows, row_bytes) - rows * row_bytes)
    lost += body_bytes(last_rows, row_bytes) - last_rows * row_bytes
    if lost >= row_bytes:
        return None
    found._seen.update(range(len(known.rows)))
    return found
