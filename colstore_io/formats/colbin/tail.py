"""What stands behind the last whole message of a log that has no valid index: rest of a crash, of an index, or damage?

Readers stop at the last whole message and need no answer. Who appends cuts off what is behind it, and may do so only if
no message is lost by it: a crash tears the end of a file, it does not leave whole messages behind a broken one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...storage import ByteFile
from .log import MAX_ENTRIES, MAX_PAYLOAD, TRAILER_BYTES, Frames, announces_index, index_place, walk

__all__ = ["Tail", "find_whole", "look_behind"]

_BLOCK = 4 << 20
"""Bytes searched at a time."""
_CHECKED = 64 << 20
"""Bytes whose checksums a search computes at least before it gives up: those of false frames, of hostile files. It
computes more for large tails, so that no true frame is missed for want of them."""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class Tail:
    """What stands behind the last whole message.

    Attributes
    ----------
    kind : str
        ``"index"``: one that is not valid. ``"torn"``: no whole message, nothing is lost with it. ``"damage"``: a
        damaged message with others behind it.
    text : str
        The same for people.
    offset : int
        Where it begins: the end of the last whole message.
    """

    kind: Literal["index", "torn", "damage"]
    text: str
    offset: int


def look_behind(file: ByteFile, frames: Frames, *, counted: bool, search: bool = True) -> Tail | None:
    """Tell what is behind the last whole message; None when nothing is, or a valid index.

    Parameters
    ----------
    file : ByteFile
    frames : Frames
        Of the file, as `scan` found them.
    counted : bool
        Whether frames of this log have row counts.
    search : bool, optional
        Look at all bytes for whole messages. Else ``"damage"`` is told only where headers show it.
    """
    left = file.size - frames.end
    if frames.indexed or left <= 0:
        return None
    count, at = len(frames.size), frames.end
    head = file.read(at, min(left, 12))
    trailer = file.read(file.size - min(left, TRAILER_BYTES), min(left, TRAILER_BYTES))
    place = index_place(trailer, file.size)
    if place is not None and place[0] == at:
        return Tail("index", "the index behind the last message is damaged", at)
    if search:
        found = find_whole(file, at, counted=counted)
        if found >= 0:
            text = f"message {count} is damaged: a whole message begins behind it, at offset {found}"
            return Tail("damage", text, at)
    if _begins_index(head, count):
        text = "the index behind the last message is not valid: its end is missing, or other bytes follow it"
        return Tail("index", text, at)
    if place is not None and place[0] > at:
        text = f"message {count} is damaged: the file's trailer says that messages go on to offset {place[0]}"
        return Tail("damage", text, at)
    return _by_headers(file, count, at, counted=counted, announced=announces_index(trailer))


def _begins_index(head: memoryview | bytes, count: int) -> bool:
    """Whether an index of `count` frames begins with these bytes; a frame has its checksum where `entries` are."""
    frames, entries, column = (int.from_bytes(head[n : n + 4], "little") for n in (0, 4, 8))
    return len(head) >= 8 and frames == count and entries <= MAX_ENTRIES and (len(head) < 12 or column > 0)


def _by_headers(file: ByteFile, count: int, at: int, *, counted: bool, announced: bool) -> Tail:
    """What the headers of the frames that seem to follow say; the checksum of none of them fits."""
    left = file.size - at
    offset, size, _ = walk(file, at)
    if not len(size) or not _plausible(file, at, counted=counted):
        text = f"{left} bytes behind the last whole message are no message"
        if announced:
            text += ", and the trailer at their end leads to no index"
        return Tail("torn", text, at)
    if size[0] > left:
        return Tail("torn", f"the last message is cut short: {left} of {size[0]} bytes are there", at)
    if size[0] == left:
        return Tail("torn", "the checksum of the last message does not fit", at)
    if len(size) > 1 and _plausible(file, int(offset[1]), counted=counted):
        text = (
            f"message {count} is damaged: its checksum does not fit, and it is not the last, "
            f"another begins at offset {offset[1]}"
        )
        return Tail("damage", text, at)
    text = (
        f"the checksum of the last message does not fit, and {left - size[0]} bytes behind it are no message"
    )
    return Tail("torn", text, at)


def _plausible(file: ByteFile, at: int, *, counted: bool) -> bool:
    """Whether the frame that seems to begin at `at` begins as a message does, as far as it is there."""
    head = bytes(file.read(at, min(file.size - at, 20))).ljust(20, b"\xd0")
    return bool(len(_candidates(np.frombuffer(head, np.uint8), counted=counted, limit=1)))


def _candidates(data: NDArray[np.uint8], *, counted: bool, limit: int) -> NDArray[np.int64]:
    """Where in ``data[:limit]`` frames of this log might begin; `data` goes on for 19 bytes at least behind `limit`.

    Bits 29 to 31 of the word are as in all frames of the log, and the payload begins with D0 or D8, or as zstd does.
    """
    head = 12 if counted else 8
    top, first = data[3 : 3 + limit], data[head : head + limit]
    bits = 0x20 if counted else 0
    plain = ((top & 0xF0) == bits) & ((first == 0xD0) | (first == 0xD8))
    packed = (top & 0xF0) == bits | 0x10
    for number, byte in enumerate(_ZSTD_MAGIC):
        packed &= data[head + 4 + number : head + 4 + number + limit] == byte
    return np.flatnonzero(plain | packed)


def _u32(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the little-endian words at these places."""
    found = np.zeros(len(at), np.int64)
    for number in range(4):
        found |= data[at + number].astype(np.int64) << 8 * number
    return found


def find_whole(file: ByteFile, begin: int, *, counted: bool) -> int:
    """Return the offset of a frame behind `begin` whose checksum fits, -1 if none was found.

    Every byte may be the first of one: the lengths that led from frame to frame are damaged, perhaps. Time is bounded
    by the bytes behind `begin`: few of them look like a frame, and only so many checksums are computed.
    """
    budget = max(_CHECKED, 4 * (file.size - begin))
    for base in range(begin + 1, file.size, _BLOCK):
        limit = min(_BLOCK, file.size - base)
        # Twice a block: the frames of most messages that begin in one end in it.
        window = file.read(base, min(2 * _BLOCK, file.size - base))
        data = np.frombuffer(bytes(window) + bytes(20), np.uint8)
        at = _candidates(data, counted=counted, limit=limit)
        word = _u32(data, at) & MAX_PAYLOAD
        rows = _u32(data, at + 8) if counted else np.ones(len(at), np.int64)
        size = word + (12 if counted else 8)
        fits = (word > 0) & (base + at + size <= file.size)
        at, size, rows = at[fits], size[fits], rows[fits]
        order = np.argsort(size, kind="stable")  # short ones first: they cost least
        order = order[np.cumsum(size[order]) <= budget]
        budget -= int(size[order].sum())
        found = _first_sound(file, window, base, base + at[order], size[order], rows[order])
        if found >= 0:
            return found
    return -1


def _first_sound(
    file: ByteFile,
    window: memoryview,
    base: int,
    offset: NDArray[np.int64],
    size: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> int:
    """Return the offset of the first frame of those given that is sound, -1 if none is; `window` holds most of them."""
    from ...kernels import message_log as kernel

    near = offset + size <= base + len(window)
    # The kernel looks from the end backwards.
    which = np.flatnonzero(near)[np.argsort(-offset[near], kind="stable")]
    last = kernel.last_sound(window, base, offset[which], size[which], rows[which])
    if last >= 0:
        return int(offset[which[last]])
    for number in np.flatnonzero(~near).tolist():
        one = slice(number, number + 1)
        alone = file.read(int(offset[number]), int(size[number]))
        if kernel.last_sound(alone, int(offset[number]), offset[one], size[one], rows[one]) >= 0:
            return int(offset[number])
    return -1
