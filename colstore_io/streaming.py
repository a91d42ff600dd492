"""A long range of a mapped file that is not in memory: read past the mapping, straight into the outputs.

A page that was read through a mapping counts as used twice, by the mapping and by the read-ahead that brought it in,
and the read-ahead of each column runs 8 MiB ahead of it. A file larger than memory then pushes out pages that are
wanted next, and those that stay are the ones the mapping holds. ``preadv`` brings a page in once, copies it, and
leaves it to be the first that goes: no slower where memory is plenty, and as fast as the device where it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import threads
from .dataset import Source
from .plan import NO_VALIDITY, Part
from .selection import Range
from .storage import LocalFile

__all__ = ["LEAST_RUN_BYTES", "read_range"]

LEAST_RUN_BYTES = 256 << 10
"""Where the column of a segment is shorter on average, a call for each costs more than it saves."""

CALL_BYTES = 4 << 20
"""What one call reads: enough for the device, little enough to share among threads."""


CALLS_AHEAD = 3
"""The device is asked for so many calls more than are being copied, so that it does not wait for the copies."""


class _Call(NamedTuple):
    file: LocalFile
    offset: int
    target: memoryview


def read_range(
    source: Source, rows: Range, parts: tuple[Part, ...], targets: Sequence[NDArray[np.generic]]
) -> bool:
    """Read contiguous rows of some parts from their files into `targets`.

    Parameters
    ----------
    source : Source
        Mapped, of local files.
    rows : Range
        Step 1, not empty, within the table.
    parts : tuple of Part
    targets : sequence of ndarray, shape (rows.count,)
        C-contiguous, of the parts' item sizes; bytes arrive as they are stored.

    Returns
    -------
    bool
        False, and nothing is written, where segments are too short for that, or a file is not a local one.

    Raises
    ------
    TruncatedFileError
        If a file is shorter than its committed size by now.
    StaleDatasetError
        If a file was replaced, and none of this process has it open.
    """
    segments = source.plan.segments
    low, high = segments.span(rows.start, rows.stop)
    row_bytes = sum(source.part_dtype(part).itemsize for part in parts)
    if rows.count * row_bytes < LEAST_RUN_BYTES * (high - low) * len(parts):
        return False
    files = [source.files[number] for number in segments.file[low:high].tolist()]
    if not all(isinstance(file, LocalFile) for file in files):
        return False
    calls: list[_Call] = []
    begins = segments.row_start[low:high]
    starts = np.maximum(begins, rows.start)
    stops = np.minimum(segments.row_start[low + 1 : high + 1], rows.stop)
    for part, target in zip(parts, targets, strict=True):
        itemsize = source.part_dtype(part).itemsize
        view = target.view(np.uint8).data
        chunks = source.chunk_offsets(part, low, high)
        for file, chunk, begin, start, stop in zip(
            files, chunks.tolist(), begins.tolist(), starts.tolist(), stops.tolist(), strict=True
        ):
            piece = view[(start - rows.start) * itemsize : (stop - rows.start) * itemsize]
            if chunk == NO_VALIDITY:
                piece[:] = b"\1" * len(piece)  # a segment without nulls keeps no flags (cstore.md 4.3)
                continue
            offset = chunk + (start - begin) * itemsize
            calls.extend(
                _Call(file, offset + at, piece[at : at + CALL_BYTES])
                for at in range(0, len(piece), CALL_BYTES)
            )
    calls.sort(key=lambda call: (id(call.file), call.offset))

    def read(number: int) -> None:
        if number + CALLS_AHEAD < len(calls):
            coming = calls[number + CALLS_AHEAD]
            coming.file.will_read(coming.offset, len(coming.target))
        call = calls[number]
        call.file.read_into(call.offset, call.target)

    with threads.lease(threads.wanted_threads(rows.count * row_bytes, source.thread_cap())) as granted:
        threads.map_with_helpers(read, range(len(calls)), min(granted, len(calls)) - 1)
    return True
