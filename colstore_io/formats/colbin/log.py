"""Files of messages: header, frames, index, and what is left after a crash (docs/format-colbin-log.md).

A log is a header that says what the messages are, then frames, each a message with its length and checksum, then, when
it was closed, an index and a trailer that leads to it. The index says nothing that a walk from frame to frame would
not find, but for bounds of columns; so a log without one is as good, only slower to open.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError, TruncatedFileError, UnsupportedFeatureError
from ...storage import ByteFile
from .schema import Section

__all__ = [
    "HEAD_BYTES",
    "MAGIC",
    "MAX_ENTRIES",
    "MAX_PAYLOAD",
    "TRAILER_BYTES",
    "Bounds",
    "Frames",
    "LogHeader",
    "announces_index",
    "encode_frame",
    "encode_index",
    "last_whole",
    "parse_header",
    "read_index",
    "scan",
    "walk",
]

MAGIC = b"\x89COLBIN\n"
"""First eight bytes. The first one is no root byte of a message, the last one is mangled by transfers as text."""

VERSION = 1
HEAD_BYTES = 24
MAX_PAYLOAD = (1 << 28) - 1
"""Bytes of the largest payload, compressed or not."""
TRAILER_BYTES = 24

_TRAILER_MAGIC = b"\x89COLIDX\n"
_HEAD = struct.Struct("<8sHHIII")
_TRAILER = struct.Struct("<QII8s")
_ZSTD, _ROWS = 1 << 28, 1 << 29
_MAX_BOUNDS = 1 << 24
"""Frames times columns whose bounds are kept: constant columns could claim very many of them in a few bytes."""
MAX_ENTRIES = 256
"""Entries for columns in an index: readers refuse more."""
_NULLS = 1 << 31
"""In the column number of an entry: it counts nulls. No column has such a number, so that readers which do not know
of it pass the entry over."""
_BLOCK = 8 << 20
"""Bytes read at a time when walking a file that cannot be mapped."""

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class LogHeader:
    """What the header of a log says.

    Attributes
    ----------
    section : bytes
        Schema section of all messages, which are D0 or D8.
    columns : mapping of str to dict
        What the section cannot say about columns: ``dtype``, ``tz``, ``logical``, ``ordered``, ``categories``,
        ``attrs``.
    attrs : mapping
        Encoded attributes of the table.
    end : int
        Where the first frame begins.
    stored : bytes
        The header as it was read.
    """

    section: bytes
    columns: Mapping[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    end: int = 0
    stored: bytes = b""

    def to_bytes(self) -> bytes:
        extra: dict[str, Any] = {}
        if self.columns:
            extra["columns"] = self.columns
        if self.attrs:
            extra["attrs"] = self.attrs
        text = json.dumps(extra, separators=(",", ":"), ensure_ascii=False).encode() if extra else b""
        end = HEAD_BYTES + len(self.section) + len(text)
        head = _HEAD.pack(MAGIC, VERSION, 0, end, len(self.section), 0)[:20]
        return b"".join((head, _crc(head, self.section, text), self.section, text))


def _crc(*parts: Buffer) -> bytes:
    from ...kernels.message_log import crc32

    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    return crc.to_bytes(4, "little")


def header_size(head: Buffer, path: str) -> int:
    """Return how many bytes the header has, from its first `HEAD_BYTES`."""
    if len(head) < HEAD_BYTES:
        raise TruncatedFileError(
            f"the file has {len(head)} bytes, a log's header has {HEAD_BYTES} at least",
            path=path,
            section="header",
        )
    magic, version, flags, end, section, _ = _HEAD.unpack_from(head)
    if magic != MAGIC:
        raise FormatError(
            f"not a log of messages: it begins with {magic!r}", path=path, offset=0, section="magic"
        )
    if version != VERSION or flags:
        raise UnsupportedFeatureError(
            f"version {version} with flags {flags:#x} of the log format is not known here; use a newer colstore_io",
            path=path,
            offset=8,
            section="header",
        )
    if end < HEAD_BYTES + section or end > MAX_PAYLOAD:
        raise FormatError(
            f"a header of {end} bytes cannot hold a section of {section}",
            path=path,
            offset=12,
            section="header",
        )
    return int(end)


def parse_header(head: Buffer, path: str) -> LogHeader:
    """Parse the header; `head` holds all of it, and may hold more.

    Raises
    ------
    FormatError
        For everything that is not as docs/format-colbin-log.md says.
    """
    end = header_size(head, path)
    if len(head) < end:
        raise TruncatedFileError(
            f"the header has {end} bytes, the file {len(head)}", path=path, section="header"
        )
    view = memoryview(head)
    size = int.from_bytes(view[16:20], "little")
    if _crc(view[:20], view[HEAD_BYTES:end]) != view[20:24]:
        raise FormatError("the header's checksum does not fit", path=path, offset=20, section="header")
    section = bytes(view[HEAD_BYTES : HEAD_BYTES + size])
    try:
        Section.from_bytes(section)
    except FormatError as exc:
        raise FormatError(exc.message, path=path, offset=HEAD_BYTES, section="section") from exc
    text = bytes(view[HEAD_BYTES + size : end])
    try:
        extra = json.loads(text) if text else {}
        columns, attrs = extra.get("columns", {}), extra.get("attrs", {})
        if not isinstance(columns, dict) or not all(isinstance(c, dict) for c in columns.values()):
            raise ValueError("'columns' is no object of objects")
        if not isinstance(attrs, dict):
            raise ValueError("'attrs' is no object")
    except (ValueError, RecursionError, AttributeError) as exc:
        raise FormatError(
            f"the description of the columns is damaged: {exc}",
            path=path,
            offset=HEAD_BYTES + size,
            section="header",
        ) from exc
    return LogHeader(section, columns, attrs, end, bytes(view[:end]))


def encode_frame(
    message: bytes | memoryview, rows: int | None, *, compress: bool = False
) -> list[bytes | memoryview]:
    """Return one message framed, in parts. `rows`: of its list; None for logs whose rows are messages.

    Raises
    ------
    ValueError
        If the message is empty or too large.
    """
    word = 0
    if compress:
        import pyarrow as pa

        packed = pa.Codec("zstd").compress(message, asbytes=True)
        if len(packed) + 4 < len(message):
            message = len(message).to_bytes(4, "little") + packed
            word = _ZSTD
    if not 0 < len(message) <= MAX_PAYLOAD:
        raise ValueError(f"a message of a log has 1 to {MAX_PAYLOAD} bytes, not {len(message)}")
    word |= len(message)
    count = b""
    if rows is not None:
        word |= _ROWS
        count = rows.to_bytes(4, "little")
    head = word.to_bytes(4, "little")
    return [head, _crc(head, count, message), count, message]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Smallest and largest value of one column per frame; arrays of length F, floats as themselves."""

    minimum: NDArray[Any]
    maximum: NDArray[Any]
    usable: NDArray[np.bool_]


@dataclass(frozen=True)
class Frames:
    """The frames of a log.

    Attributes
    ----------
    offset, size, rows : ndarray of int64, shape (F,)
        File offset of each frame's header, its bytes, the rows of its message.
    end : int
        Where the last whole frame ends: readers use bytes before it only.
    bounds : mapping of int to Bounds
        By column number; from the index.
    nulls : mapping of int to ndarray of int64, shape (F,)
        Rows of each frame that have no value, by column number; -1 where that is not known. From the index.
    indexed : bool
        Whether this came from an index.
    """

    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    rows: NDArray[np.int64]
    end: int
    bounds: Mapping[int, Bounds] = field(default_factory=dict)
    indexed: bool = False
    nulls: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)


# ---- the index -------------------------------------------------------------------------------------------------


def encode_index(frames: Frames) -> bytes:
    """Return index and trailer of `frames`, to stand at ``frames.end``."""
    from ...kernels import column_codec

    def column(values: NDArray[Any]) -> bytes:
        data = column_codec.encode(np.ascontiguousarray(values))
        return len(data).to_bytes(4, "little") + data

    entries = list(frames.bounds.items())
    for number, nulls in frames.nulls.items():
        known = nulls >= 0
        entries.append((number | _NULLS, Bounds(np.where(known, nulls, 0), np.zeros_like(nulls), known)))
    entries = entries[: min(MAX_ENTRIES, _MAX_BOUNDS // max(len(frames.size), 1))]
    parts = [
        struct.pack("<II", len(frames.size), len(entries)),
        column(frames.size),
        column(frames.rows),
    ]
    for number, bounds in entries:
        parts += [
            number.to_bytes(4, "little"),
            bounds.minimum.dtype.str[1:].encode(),
            column(bounds.minimum),
            column(bounds.maximum),
            column(bounds.usable),
        ]
    index = b"".join(parts)
    return index + _TRAILER.pack(
        frames.end, len(index), int.from_bytes(_crc(index), "little"), _TRAILER_MAGIC
    )


def index_place(trailer: Buffer, file_size: int) -> tuple[int, int] | None:
    """Return offset and size of the index that the last `TRAILER_BYTES` of a file lead to; None if they do not."""
    if len(trailer) < TRAILER_BYTES:
        return None
    offset, size, _, magic = _TRAILER.unpack_from(trailer)
    if magic != _TRAILER_MAGIC or offset + size + TRAILER_BYTES != file_size:
        return None
    return offset, size


def announces_index(trailer: Buffer) -> bool:
    """Return whether the last bytes of a file are a trailer, wherever it leads to."""
    return bytes(trailer[-8:]) == _TRAILER_MAGIC


def read_index(index: Buffer, trailer: Buffer, begin: int) -> Frames | None:
    """Parse an index; None when it is damaged, or does not cover ``[begin, its own offset)``.

    `begin`: where the first frame begins. Memory is bounded by what a column of the index may claim: a frame has nine
    bytes at least, so there cannot be more of them than the file has room for.
    """
    from ...kernels import column_codec

    end, size, crc, _ = _TRAILER.unpack_from(trailer)
    if len(index) != size or size < 8 or _crc(index) != crc.to_bytes(4, "little"):
        return None
    count, n_bounds = struct.unpack_from("<II", index)
    if count * 9 > end - begin:
        return None
    view, at = memoryview(index), 8

    def column(dtype: Any) -> NDArray[Any]:
        nonlocal at
        length = int.from_bytes(view[at : at + 4], "little")
        values = np.empty(count, dtype)
        if column_codec.decode(view[at + 4 : at + 4 + length], values):
            raise ValueError
        at += 4 + length
        return values

    try:
        sizes, rows = column(np.int64), column(np.int64)
        bounds: dict[int, Bounds] = {}
        nulls: dict[int, NDArray[np.int64]] = {}
        if n_bounds > MAX_ENTRIES:
            return None
        if count * n_bounds > _MAX_BOUNDS:
            n_bounds, at = 0, len(index)
        for _ in range(n_bounds):
            number = int.from_bytes(view[at : at + 4], "little")
            dtype = np.dtype(bytes(view[at + 4 : at + 6]).decode("ascii"))
            if dtype.kind not in "iufb":
                return None
            at += 6
            entry = Bounds(column(dtype), column(dtype), column(np.bool_))
            if not number & _NULLS:
                bounds[number] = entry
            elif dtype == np.int64 and not (entry.usable & (entry.minimum < 0)).any():
                nulls[number ^ _NULLS] = np.where(entry.usable, entry.minimum, -1)
    except (ValueError, TypeError):
        return None
    if at != len(index) or (count and (sizes.min() < 9 or rows.min() < 0 or sizes.max() > MAX_PAYLOAD + 12)):
        return None
    if int(sizes.sum()) != end - begin or (count and rows.max() >> 32):
        return None
    offsets = begin + np.cumsum(sizes) - sizes
    return Frames(offsets, sizes, rows, end, bounds, indexed=True, nulls=nulls)


# ---- the walk --------------------------------------------------------------------------------------------------


def scan(file: ByteFile, begin: int) -> Frames:
    """Find the frames of a log by walking from one to the next, and cut off what is not whole.

    Payloads are not read, except that the checksum of the last frame must fit: frames from the end backwards are
    dropped until one does. What stands in the file behind `begin` may be anything; `tail.look_behind` tells what was
    cut off.
    """
    offset, size, rows = walk(file, begin)
    if len(size) and offset[-1] + size[-1] > file.size:
        offset, size, rows = offset[:-1], size[:-1], rows[:-1]
    end = int(offset[-1] + size[-1]) if len(size) else begin
    return last_whole(file, Frames(offset, size, rows, end))


def walk(file: ByteFile, begin: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return offset, size and rows of the frames from `begin` on, by their headers; the last one may be cut short."""
    from ...kernels import message_log as kernel

    size = file.size
    mapped = file.map(size) if size else None
    parts: list[NDArray[np.int64]] = []
    room = np.empty((3, 4096), np.int64)
    at, code = begin, 0
    while at < size:
        if mapped is not None:
            window, base = mapped.data, 0
        else:
            base = at
            window = file.read(at, min(_BLOCK, size - at))
        found, where, code = kernel.walk(window, at - base, base, *room)
        parts.append(room[:, :found].copy())
        at = base + where
        if code == kernel.INVALID or (code == kernel.MORE and base + len(window) >= size):
            break
    offset, sizes, rows = np.concatenate(parts, axis=1) if parts else np.empty((3, 0), np.int64)
    return offset, sizes, rows


def last_whole(file: ByteFile, frames: Frames) -> Frames:
    """Drop frames from the end until the checksum of the last one fits."""
    from ...kernels import message_log as kernel

    keep, many = len(frames.size), 1
    while keep:
        # One frame at first, which fits nearly always; what is damaged may look like very many.
        stop = int(frames.offset[keep - 1] + frames.size[keep - 1])
        reach = int(np.searchsorted(frames.offset, stop - _BLOCK))
        low = min(max(keep - many, reach, 0), keep - 1)
        base = int(frames.offset[low])
        last = kernel.last_sound(
            file.read(base, stop - base),
            base,
            frames.offset[low:keep],
            frames.size[low:keep],
            frames.rows[low:keep],
        )
        if last >= 0:
            keep = low + last + 1
            break
        keep, many = low, min(many * 8, 1 << 20)
    if keep == len(frames.size):
        return frames
    return Frames(frames.offset[:keep], frames.size[:keep], frames.rows[:keep], end=int(frames.offset[keep]))


def check_frames(file: ByteFile, frames: Frames, low: int, high: int) -> tuple[int, str] | None:
    """Check headers and checksums of frames [low, high); return the first bad one and what is wrong."""
    from ...kernels import message_log as kernel

    if low == high:
        return None
    base = int(frames.offset[low])
    window = file.read(base, int(frames.offset[high - 1] + frames.size[high - 1]) - base)
    places = np.empty((2, high - low), np.int64)
    code, bad = kernel.open_all(
        window,
        base,
        frames.offset[low:high],
        frames.size[low:high],
        frames.rows[low:high],
        places[0],
        places[1],
        np.empty(high - low, np.uint8),
    )
    if not code:
        return None
    return (
        low + bad,
        "its checksum does not fit" if code == kernel.CRC else "its header is not what the index says",
    )
