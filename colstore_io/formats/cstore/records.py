"""Record headers: where every record begins and how many rows it holds (cstore.md section 6).

Each header tells where the next one is, so a file is walked. A local file is walked by the compiled kernel with one
small read per header. Elsewhere a read costs a round trip: places are *guessed* (`guesses`), fetched together for all
files, and every header that the walk arrives at is checked. A header that passes (magic, its own index, checksum) and
whose predecessor ends where it begins is the record; a guess that fails costs a small read, never a wrong answer.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError, TruncatedFileError
from ...kernels.records import walk_records, walk_records_fd
from ...storage import ByteFile, read_ranges
from .guesses import Guesses

__all__ = [
    "BODY_ALIGNMENT",
    "RECORD_HEADER_SIZE",
    "RECORD_MAGIC",
    "RecordIndex",
    "RecordWalk",
    "body_bytes",
    "encode_record_header",
    "index_of_rows",
    "record_says",
    "walk_all",
]

RECORD_MAGIC = b"REC\x01"
RECORD_HEADER_SIZE = 32
BODY_ALIGNMENT = 8

NEAR_BYTES = 64 << 10
"""Records closer together than this are fetched as one run of bytes: a request costs more than the bytes between."""

IRREGULAR_NEAR_BYTES = 1 << 20
"""The same after records have been unlike those before them twice: a run of bytes shows several headers at once."""

PROBE_BYTES = 64 << 10
"""What is read behind a header where small records are among larger ones: a request costs more than that."""

WINDOW_BYTES = 8 << 20
"""Largest run of bytes that the first round fetches from one file while walking; each further one twice as much."""

ROUND_BYTES = 64 << 20
"""Bytes that one round fetches from all files together, and the largest run of one file."""

_RECORD = struct.Struct("<4sqqqI")
_FIELDS = struct.Struct("<4sqqq")
_U32 = struct.Struct("<I")
_INT64_MAX = (1 << 63) - 1
_FIRST_SLICE = 1 << 16
"""Records that a walk makes room for at first (1 MiB); a promise of many is believed in steps."""


def encode_record_header(index: int, n_rows: int) -> bytes:
    """Return the 32 bytes in front of the body of record `index`."""
    fields = _FIELDS.pack(RECORD_MAGIC, index, n_rows, 0)
    return fields + _U32.pack(zlib.crc32(fields))


def body_bytes(n_rows: int, row_bytes: int) -> int:
    """Return the stored size of a record body: values without gaps, then zero bytes up to a multiple of 8."""
    return -(-(n_rows * row_bytes) // BODY_ALIGNMENT) * BODY_ALIGNMENT


@dataclass(frozen=True, slots=True)
class RecordIndex:
    """Where the records of a file are.

    Attributes
    ----------
    rows : ndarray of int64, shape (R,)
    body_start : ndarray of int64, shape (R,)
        File offset of each body (header offset + 32).
    end : int
        End of the last padded body, or of the header when there is no record.
    """

    rows: NDArray[np.int64]
    body_start: NDArray[np.int64]
    end: int


def index_of_rows(
    rows: NDArray[np.int64], *, committed_rows: int, data_offset: int, row_bytes: int, size: int
) -> RecordIndex | None:
    """Return the index of records of these row counts, None when such records cannot be in such a file.

    Parameters
    ----------
    rows : ndarray of int64, shape (R,)
        None may be negative. Owned by the result from now on.
    """
    # The exact sum comes first: with it no product below can leave int64, for 0 <= rows <= committed_rows.
    least = data_offset + committed_rows * row_bytes + len(rows) * RECORD_HEADER_SIZE
    if _exact_sum(rows) != committed_rows or least > size:
        return None
    stored = ((rows * row_bytes + BODY_ALIGNMENT - 1) & -BODY_ALIGNMENT) + RECORD_HEADER_SIZE
    ends = np.cumsum(stored) + data_offset
    starts = ends - stored + RECORD_HEADER_SIZE
    end = int(ends[-1]) if len(rows) else data_offset
    return RecordIndex(rows, starts, end) if end <= size else None


def record_says(header: bytes | memoryview, index: int, n_rows: int) -> bool:
    """Whether these 32 bytes are the sound header of record `index` with `n_rows` rows."""
    magic, stored_index, stored_rows, _, crc = _RECORD.unpack(header)
    return (magic, stored_index, stored_rows, crc) == (RECORD_MAGIC, index, n_rows, zlib.crc32(header[:28]))


@dataclass(slots=True)
class RecordWalk:
    """The walk through one file: what is verified so far, and what to fetch next.

    Attributes
    ----------
    path : str
        For messages.
    size : int
        Size of the file; no body may end behind it.
    data_offset, n_records, committed_rows, row_bytes : int
        From header and manifest; `n_records` is checked by `begin`.
    """

    path: str
    size: int
    data_offset: int
    n_records: int
    committed_rows: int
    row_bytes: int
    _rows: list[int] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _index: RecordIndex | None = None
    _position: int = 0
    _seen_rows: int = 0
    _failures: int = 0
    _window: int = WINDOW_BYTES
    _smallest: int = _INT64_MAX
    _prune_from: int = 256  # headers that were passed by are dropped when there are more
    _guessed: int = 0  # records whose headers the last round found by guessing alone
    _guesses: Guesses | None = None
    _headers: dict[int, bytes] = field(default_factory=dict)  # fetched, not arrived at yet, by offset

    # ------------------------------------------------------------------------------------------------------
    # What one header says

    def begin(self, head: bytes | memoryview) -> None:
        """Check the counters against the file size, then walk as far as the first bytes of the file go.

        Raises
        ------
        FormatError
            Checks 16 to 20 of cstore.md section 11.
        """
        if self.n_records < 0:
            raise self._counters_error(f"n_records is {self.n_records}", 8)
        if self.data_offset > self.size:
            raise TruncatedFileError(
                f"the file ends after {self.size} bytes, inside the header (to {self.data_offset})",
                path=self.path,
                offset=self.size,
                section="record 0" if self.n_records else "header",
            )
        room = (self.size - self.data_offset) // RECORD_HEADER_SIZE
        if self.n_records > room and self.n_records > 1:
            raise TruncatedFileError(
                f"n_records is {self.n_records}, but behind the header there is room for {room} at most. The file "
                "is cut short or damaged",
                path=self.path,
                offset=8,
                section="counters",
            )
        self._position = self.data_offset
        self._walk_block(head, 0)

    def _walk_block(self, block: bytes | memoryview, offset: int) -> None:
        """Walk on through the bytes of the file that begin at `offset`, as far as they hold whole headers."""
        end = offset + len(block)
        while len(self._rows) < self.n_records and self._position + RECORD_HEADER_SIZE <= end:
            start = self._position - offset
            self._accept(block[start : start + RECORD_HEADER_SIZE])

    def _accept(self, header: bytes | memoryview) -> None:
        """Check the header at the current position and step to the next."""
        index = len(self._rows)
        if len(header) < RECORD_HEADER_SIZE:
            raise TruncatedFileError(
                f"the file ends after {self.size} bytes, inside the header of this record; "
                f"{self.n_records} records are promised",
                path=self.path,
                offset=self._position,
                section=f"record {index}",
            )
        magic, stored_index, n_rows, _, stored_crc = _RECORD.unpack(header)
        if magic != RECORD_MAGIC:
            raise self._error(f"wrong record magic {magic!r}, expected {RECORD_MAGIC!r}", 0)
        if stored_index != index:
            raise self._error(f"index field is {stored_index}, expected {index}", 4)
        actual = zlib.crc32(header[:28])
        if stored_crc != actual:
            raise self._error(f"CRC is {stored_crc:#010x}, the header gives {actual:#010x}", 28)
        if n_rows < 0 or n_rows * self.row_bytes > _INT64_MAX - 7:
            raise self._error(f"n_rows is {n_rows} of {self.row_bytes} bytes each", 12)
        start = self._position + RECORD_HEADER_SIZE
        end = start + body_bytes(n_rows, self.row_bytes)
        if end > self.size:
            raise TruncatedFileError(
                f"its {n_rows} rows end at byte {end}, the file ends at {self.size}. The file is cut short",
                path=self.path,
                offset=start,
                section=f"record {index}",
            )
        self._rows.append(n_rows)
        self._starts.append(start)
        self._seen_rows += n_rows
        self._smallest = min(self._smallest, end - self._position)
        self._position = end

    def _error(self, message: str, offset: int) -> FormatError:
        return FormatError(
            f"{message}. The file is damaged; run 'colstore-io verify'",
            path=self.path,
            offset=self._position + offset,
            section=f"record {len(self._rows)}",
        )

    def _counters_error(self, message: str, offset: int) -> FormatError:
        return FormatError(
            f"{message}. The file is damaged; run 'colstore-io verify'",
            path=self.path,
            offset=offset,
            section="counters",
        )

    # ------------------------------------------------------------------------------------------------------
    # The whole walk

    @property
    def complete(self) -> bool:
        return self._index is not None or len(self._rows) == self.n_records

    def so_far(self) -> RecordIndex:
        """Return the records whose headers were seen, before a kernel walks."""
        return RecordIndex(
            np.array(self._rows, dtype=np.int64), np.array(self._starts, dtype=np.int64), self._position
        )

    def result(self) -> RecordIndex:
        """Return the finished index.

        Raises
        ------
        FormatError
            If the rows of the records do not add up to the committed rows (check 21).
        """
        index = self.so_far() if self._index is None else self._index
        total = _exact_sum(index.rows)
        if total != self.committed_rows:
            raise self._counters_error(
                f"committed_rows is {self.committed_rows}, but the {self.n_records} records hold {total} rows",
                16,
            )
        return index

    def walk_descriptor(self, descriptor: int) -> None:
        """Walk the whole file with small reads from an open file descriptor.

        Raises
        ------
        FormatError
            Checks 17 to 20 of cstore.md section 11.
        """
        self._walk_kernel(
            lambda rows, starts: walk_records_fd(
                descriptor, self.data_offset, self.row_bytes, self.size, rows, starts
            ),
            lambda offset, length: os.pread(descriptor, length, offset),
        )

    def walk_memory(self, memory: NDArray[np.uint8]) -> None:
        """Walk the whole file in memory; errors as `walk_descriptor`."""
        self._walk_kernel(
            lambda rows, starts: walk_records(
                memory, self.data_offset, self.row_bytes, self.size, rows, starts
            ),
            lambda offset, length: memory[offset : offset + length].tobytes(),
        )

    def _walk_kernel(self, kernel: Any, read: Any) -> None:
        n_slice = min(self.n_records, _FIRST_SLICE)
        while True:
            rows = np.empty(n_slice, np.int64)
            starts = np.empty(n_slice, np.int64)
            good, code = kernel(rows, starts)
            if code:
                self._explain(rows[:good], starts[:good], read)
            if n_slice == self.n_records:
                break
            # Begins at record 0 again: with steps of 16 that costs a sixteenth, and spares the kernel a resume.
            n_slice = min(self.n_records, n_slice * 16)
        end = int(starts[-1]) + body_bytes(int(rows[-1]), self.row_bytes) if n_slice else self.data_offset
        self._index = RecordIndex(rows, starts, end)

    def _explain(self, rows: NDArray[np.int64], starts: NDArray[np.int64], read: Any) -> NoReturn:
        """Raise the error for the header that stopped the kernel."""
        self._rows, self._starts = rows.tolist(), starts.tolist()
        if len(rows):
            self._position = self._starts[-1] + body_bytes(self._rows[-1], self.row_bytes)
        else:
            self._position = self.data_offset
        self._accept(read(self._position, max(0, min(RECORD_HEADER_SIZE, self.size - self._position))))
        raise self._error("changed while it was read", 0)

    # ------------------------------------------------------------------------------------------------------
    # Rounds of reads

    def wanted(self) -> list[tuple[int, int]]:
        """Return the (offset, length) of what the next round should fetch, in ascending order.

        The first range begins at the next header, so every round gets on by one record at least.

        Raises
        ------
        TruncatedFileError
            If the next header is not in the file any more.
        """
        here = self._position
        if here + RECORD_HEADER_SIZE > self.size:
            self._accept(b"")
        first = min(self._run_bytes(), self.size - here)
        wanted = [(here, first)]
        if self._dense():
            return wanted
        if self._guesses is None:
            self._guesses = Guesses(self.n_records, self._stored)
        left_rows = self.committed_rows - self._seen_rows
        between = WINDOW_BYTES
        for place in self._guesses.places(self._rows, here, self.size - RECORD_HEADER_SIZE, left_rows):
            if place < here + first or place in self._headers:
                continue
            wanted.append((place, RECORD_HEADER_SIZE))
            between -= _between(*wanted[-2:])
            if between < 0:
                break
        return wanted

    def _dense(self) -> bool:
        """Whether one run of bytes shows as much as guesses would: they would be fetched as one too."""
        mean = max(0, self.committed_rows - self._seen_rows) // (self.n_records - len(self._rows))
        return max(self._stored(self._likely_rows()), self._stored(mean)) <= NEAR_BYTES

    def _run_bytes(self) -> int:
        """Return how many bytes to read from the next header on: of small records many, else the header."""
        left = self.n_records - len(self._rows)
        last = self._stored(self._likely_rows())
        mean = self._stored(max(0, self.committed_rows - self._seen_rows) // left)
        least = PROBE_BYTES if self._failures and self._smallest <= PROBE_BYTES // 2 else RECORD_HEADER_SIZE
        runs = [left * stored for stored in (last, mean) if stored <= NEAR_BYTES]
        if runs:
            length = max(runs)
            # A quarter more than that: records of a stream are seldom all of one size.
            return max(least, min(length + length // 4, self._window, max(ROUND_BYTES, WINDOW_BYTES)))
        if self._failures >= 2 and last <= IRREGULAR_NEAR_BYTES and self._guessed * last < 8 * WINDOW_BYTES:
            return min(left * last + left * last // 4, WINDOW_BYTES)
        return least

    def feed(self, ranges: Sequence[tuple[int, int]], blocks: Sequence[bytes | memoryview]) -> None:
        """Take what a round fetched for `wanted`. Errors as `begin`."""
        before = len(self._rows)
        (offset, length), run = ranges[0], blocks[0]
        for (place, _), block in zip(ranges[1:], blocks[1:], strict=True):
            self._headers[place] = bytes(block)  # not the run of bytes that it was fetched in
        self._walk_block(run, offset)
        in_run = len(self._rows)
        while not self.complete and (header := self._headers.pop(self._position, None)) is not None:
            self._accept(header)
        if len(self._headers) > self._prune_from:
            self._headers = {place: block for place, block in self._headers.items() if place > self._position}
            self._prune_from = 2 * len(self._headers) + 256
        found = self._rows[before:]
        self._guessed = len(self._rows) - in_run
        if length == self._window:
            self._window *= 2
        if any(rows != found[0] for rows in found) or (before and self._rows[before - 1] != found[0]):
            self._failures += 1
        if self._guesses is not None:
            self._guesses.learn(found, [start - RECORD_HEADER_SIZE for start in self._starts[before:]])

    def _stored(self, rows: int) -> int:
        return RECORD_HEADER_SIZE + body_bytes(rows, self.row_bytes)

    def _likely_rows(self) -> int:
        if self._rows:
            return self._rows[-1]
        return max(0, self.committed_rows // self.n_records)


def _exact_sum(rows: NDArray[np.int64]) -> int:
    """Sum that does not wrap: 0-byte rows make any row count possible."""
    if len(rows) == 0:
        return 0
    if int(rows.max()) <= _INT64_MAX // len(rows):
        return int(rows.sum())
    return sum(rows.tolist())


def _between(before: tuple[int, int], after: tuple[int, int]) -> int:
    """Return the bytes between two ranges that are fetched with them."""
    gap = after[0] - sum(before)
    return gap if gap <= NEAR_BYTES else 0


def _descriptor(file: ByteFile) -> AbstractContextManager[int] | None:
    """Return a context that lends a descriptor of a local file, or None."""
    lend = getattr(file, "descriptor", None)
    context: AbstractContextManager[int] | None = lend() if lend is not None else None
    return context


def walk_all(walks: Sequence[RecordWalk], files: Sequence[ByteFile]) -> None:
    """Finish walks that `begin` did not: by descriptor or mapping where there is one, else in common rounds.

    Raises
    ------
    FormatError
        Checks 17 to 20 of cstore.md section 11, naming the file.
    """
    pending: list[tuple[RecordWalk, ByteFile]] = []
    for walk, file in zip(walks, files, strict=True):
        if walk.complete:
            continue
        context = _descriptor(file)
        if context is not None:
            with context as descriptor:
                walk.walk_descriptor(descriptor)
            continue
        memory = file.map(file.size) if file.location is None else None
        if memory is not None:
            walk.walk_memory(memory)
            continue
        pending.append((walk, file))
    while pending:
        requests: list[tuple[ByteFile, int, int]] = []
        asked: list[tuple[RecordWalk, list[tuple[int, int]]]] = []
        budget = ROUND_BYTES
        for walk, file in pending:
            ranges = walk.wanted()
            cost = sum(length for _, length in ranges) + sum(_between(*pair) for pair in pairwise(ranges))
            if asked and cost > budget:
                break
            budget -= cost
            asked.append((walk, ranges))
            requests += [(file, offset, length) for offset, length in ranges]
        blocks = read_ranges(requests)
        position = 0
        for walk, ranges in asked:
            walk.feed(ranges, blocks[position : position + len(ranges)])
            position += len(ranges)
        pending = [(walk, file) for walk, file in pending if not walk.complete]
