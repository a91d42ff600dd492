"""Row groups behind a footer: what an append leaves in a file, and how its last footer is found.

The whole story is in docs/columns-append.md.

An append writes, from the end S of a finished file on: a *marker* of 64 bytes, the new row groups, a new footer and
its trailer. The old footer becomes dead bytes between row groups, which the format allows: row groups are found by
their offsets. Until the new trailer is there the file has no valid end, and `find_last_footer` finds S by the marker:

====== ==== ===================================================
offset size content
====== ==== ===================================================
0      16   ``MARKER_MAGIC``
16     8    S, the marker's own place in the file, little-endian
24     32   BLAKE2b-256 of the footer that ends at S - 8
56     4    CRC-32 of the bytes before it
60     4    zeros
====== ==== ===================================================
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable
from typing import Any, Protocol

from ...errors import FormatError
from ...kernels import encode as kernels
from .tags import MAGIC, TRAILER_BYTES

__all__ = [
    "MARKER_BYTES",
    "MARKER_MAGIC",
    "SECTOR_BYTES",
    "Guard",
    "find_last_footer",
    "marker_bytes",
    "padding",
]

MARKER_MAGIC = bytes.fromhex("f1a70b9c5ee3d24481c6960d2bbf37ea")
MARKER_BYTES = 64

SECTOR_BYTES = 512
"""What a disk writes whole or not at all. A trailer never stands in two of them."""

_WINDOW_BYTES = 1 << 20


class _File(Protocol):
    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> Any: ...


def marker_bytes(end: int, footer: bytes | memoryview) -> bytes:
    """Return the marker of an append to a file that ends at `end` with `footer` and its trailer."""
    head = MARKER_MAGIC + struct.pack("<Q", end) + hashlib.blake2b(footer, digest_size=32).digest()
    return head + struct.pack("<II", zlib.crc32(head), 0)


def padding(trailer_at: int) -> int:
    """Return how many bytes must be put before a footer so that its trailer, at `trailer_at`, is in one sector."""
    inside = trailer_at % SECTOR_BYTES
    return 0 if inside <= SECTOR_BYTES - TRAILER_BYTES else SECTOR_BYTES - inside


class Guard:
    """Looks at all that an append writes for bytes that could be taken for the end of a file.

    A file that breaks off inside an append must not seem complete, nor show a marker that is none: both could only
    happen where a column holds the bytes of another columns file, uncompressed. `feed` finds that before it is written.

    Parameters
    ----------
    offset : int
        Where the first byte will stand.
    prologue_end : int
        No footer begins before it.
    """

    _KEPT = MARKER_BYTES

    def __init__(self, offset: int, prologue_end: int) -> None:
        self._offset = offset
        self._low = prologue_end
        self._tail = b""

    def feed(self, parts: Iterable[bytes | memoryview]) -> bool:
        """Return whether `parts`, behind all that came before, hold such bytes."""
        for part in parts:
            view = memoryview(part).cast("B")
            seam = self._tail + bytes(view[: self._KEPT])
            start = self._offset - len(self._tail)
            if self._dangerous(seam, start, len(self._tail)) or self._dangerous(view, self._offset, 0):
                return True
            self._offset += len(view)
            self._tail = (self._tail + bytes(view[-self._KEPT :]))[-self._KEPT :]
        return False

    def _dangerous(self, data: bytes | memoryview, start: int, seam: int) -> bool:
        """Look through bytes that begin at file offset `start`; up to `seam` they were looked at before."""
        if kernels.find(data, MARKER_MAGIC, max(0, seam - len(MARKER_MAGIC) + 1)) >= 0:
            return True
        at = kernels.find(data, MAGIC, max(0, seam - len(MAGIC) + 1))
        while at >= 0:
            length = bytes(data[max(0, at - 4) : at])
            # With less before it, it begins the part, and was seen whole at the seam.
            if len(length) == 4 and start + at - 4 - int.from_bytes(length, "little") >= self._low:
                return True
            at = kernels.find(data, MAGIC, at + 1)
        return False


def find_last_footer(file: _File, *, prologue_end: int = 5, path: str = "") -> int:
    """Return where the last committed state of a file ends: behind a trailer, perhaps before the end of the file.

    Parameters
    ----------
    file : object with ``size`` and ``read(offset, length)``
    prologue_end : int
        End of the prologue.
    path : str
        For messages.

    Returns
    -------
    int
        The length of the finished file. Bytes behind it belong to an append that did not end.

    Raises
    ------
    FormatError
        If the file does not end with a trailer, and no append that broke off explains it.

    Notes
    -----
    A file that ends with a trailer costs one read of 8 bytes. Otherwise the bytes of the append that broke off are
    searched backwards for its marker, a window at a time. Whether the footer parses is for the reader to say.
    """
    size = file.size
    if (
        size >= TRAILER_BYTES
        and _footer_at(file.read(size - TRAILER_BYTES, TRAILER_BYTES), size) >= prologue_end
    ):
        return size
    for find in (_by_torn_marker, _by_marker):
        end = find(file, prologue_end)
        if end is not None:
            return end
    raise FormatError(
        "the file does not end with a footer, and no append that broke off is in it: it is cut short or was never "
        "closed",
        path=path or None,
        offset=max(0, size - 4),
        section="trailer",
    )


def _footer_at(trailer: Any, end: int) -> int:
    """Return where the footer of a trailer that ends at `end` begins; -1 when it is no trailer."""
    view = bytes(trailer)
    if view[4:] != MAGIC:
        return -1
    return end - TRAILER_BYTES - int.from_bytes(view[:4], "little")


def _expected_marker(file: _File, end: int, prologue_end: int) -> bytes | None:
    """Return the marker that an append at `end` would begin with; None when no footer ends there."""
    if end < prologue_end + TRAILER_BYTES:
        return None
    start = _footer_at(file.read(end - TRAILER_BYTES, TRAILER_BYTES), end)
    if start < prologue_end:
        return None
    return marker_bytes(end, bytes(file.read(start, end - TRAILER_BYTES - start)))


def _by_torn_marker(file: _File, prologue_end: int) -> int | None:
    """Find the end of a file of which an append wrote less than its marker, or whose marker is partly zeros."""
    size = file.size
    low = max(prologue_end, size - MARKER_BYTES - TRAILER_BYTES)
    if low >= size:
        return None
    tail = bytes(file.read(low, size - low))
    at = tail.rfind(MAGIC)
    while at >= 0:
        end = low + at + len(MAGIC)
        rest = tail[at + len(MAGIC) :]
        if len(rest) <= MARKER_BYTES:
            expected = _expected_marker(file, end, prologue_end)
            if expected is not None and all(a in (b, 0) for a, b in zip(rest, expected, strict=False)):
                return end
        at = tail.rfind(MAGIC, 0, at)
    return None


def _by_marker(file: _File, prologue_end: int) -> int | None:
    """Search backwards for the marker of the last append.

    Footers of one file do not overlap, so together they are not longer than it. Candidates that lead to more bytes
    than that are forged, and are not followed any further: each costs a checksum of what it leads to.
    """
    stop = file.size
    left = file.size
    while stop > prologue_end:
        start = max(prologue_end, stop - _WINDOW_BYTES)
        window = bytes(file.read(start, stop - start))
        at = window.rfind(MARKER_MAGIC)
        while at >= 0:
            end = start + at
            if prologue_end + TRAILER_BYTES <= end <= file.size - MARKER_BYTES:
                start_of_footer = _footer_at(file.read(end - TRAILER_BYTES, TRAILER_BYTES), end)
                if prologue_end <= start_of_footer:
                    left -= end - start_of_footer
                    if left < 0:
                        return None
                    expected = _expected_marker(file, end, prologue_end)
                    if expected is not None and bytes(file.read(end, MARKER_BYTES)) == expected:
                        # An append that broke off holds nothing that looks finished (`Guard`). What does is the end
                        # of one that did not: bytes of somebody else follow it, and the state before is not the last.
                        return None if _finished_behind(file, end + MARKER_BYTES) else end
            at = window.rfind(MARKER_MAGIC, 0, at)
        if start == prologue_end:
            return None
        stop = start + len(MARKER_MAGIC) - 1
    return None


def _finished_behind(file: _File, low: int) -> bool:
    """Tell whether a trailer of a footer that begins at `low` or behind it ends anywhere in the file."""
    start = low
    while start < file.size:
        window = bytes(file.read(start, min(_WINDOW_BYTES, file.size - start)))
        at = window.find(MAGIC, 4)
        while at >= 0:
            end = start + at + len(MAGIC)
            if _footer_at(window[at - 4 : at + 4], end) >= low:
                return True
            at = window.find(MAGIC, at + 1)
        if start + len(window) == file.size:
            return False
        start += len(window) - TRAILER_BYTES + 1
    return False
