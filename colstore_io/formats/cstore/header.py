"""Magic, counters, manifest, padding: everything in front of record 0 (cstore.md sections 1 to 4 and 12)."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import FormatError, TruncatedFileError
from .manifest import FORMAT_VERSION, Manifest, encode_manifest, parse_manifest
from .records import RECORD_HEADER_SIZE

__all__ = [
    "COUNTERS_OFFSET",
    "COUNTERS_SIZE",
    "DATA_ALIGNMENT",
    "FORMAT_VERSION",
    "MAGIC",
    "MANIFEST_LENGTH_OFFSET",
    "MANIFEST_OFFSET",
    "Header",
    "ManifestCache",
    "MoreBytes",
    "align_up",
    "data_offset_of",
    "encode_counters",
    "encode_header",
    "encode_manifest",
    "parse_header",
]

MAGIC = b"CSTORE\x00\x01"
COUNTERS_OFFSET = 8
COUNTERS_SIZE = 64
MANIFEST_LENGTH_OFFSET = 72
MANIFEST_OFFSET = 80
DATA_ALIGNMENT = 64

Layout = Literal["A", "B", "C"]

ManifestCache = MutableMapping[tuple[str, bytes], Manifest]
"""Manifests by layout and text: files opened together mostly share one, which is then parsed once."""

_COUNTERS = struct.Struct("<qqq")
_COUNTERS_B = struct.Struct("<qq")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_LAYOUT_A_MANIFEST_OFFSET = 16
_LAYOUT_B_MANIFEST_OFFSET = 48
_JSON_START = b"{ \t\r\n"


def align_up(value: int, alignment: int) -> int:
    """Return the smallest multiple of `alignment` that is >= `value`."""
    return -(-value // alignment) * alignment


def data_offset_of(manifest_length: int) -> int:
    """Return where record 0 begins behind a manifest of that many bytes (layout C)."""
    return align_up(MANIFEST_OFFSET + manifest_length, DATA_ALIGNMENT)


def encode_counters(n_records: int, committed_rows: int, stats_offset: int = 0) -> bytes:
    """Return the 64 bytes of the counters block, the commit point of the format (cstore.md section 3)."""
    fields = _COUNTERS.pack(n_records, committed_rows, stats_offset)
    return (fields + _U32.pack(zlib.crc32(fields))).ljust(COUNTERS_SIZE, b"\0")


def encode_header(manifest: bytes, n_records: int, committed_rows: int, stats_offset: int = 0) -> bytes:
    """Return everything in front of record 0: magic, counters, manifest length, manifest, zero padding.

    Its length is the `data_offset` of the file, a multiple of 64.
    """
    header = b"".join(
        (
            MAGIC,
            encode_counters(n_records, committed_rows, stats_offset),
            _U64.pack(len(manifest)),
            manifest,
        )
    )
    return header.ljust(data_offset_of(len(manifest)), b"\0")


@dataclass(frozen=True, slots=True)
class Header:
    """Everything in front of record 0, checked as far as cstore.md section 11 check 10.

    Attributes
    ----------
    layout : str
        ``"A"``, ``"B"`` or ``"C"`` (cstore.md section 12).
    n_records, committed_rows, stats_offset : int
        The counters as stored; nothing in them is checked beyond their checksum. Layout A counts as one record.
    manifest : Manifest
    manifest_offset : int
    data_offset : int
        Where record 0 (layout A: the first column) begins.
    counters : bytes
        The whole block as stored, reserved bytes included; empty in layouts A and B.
    """

    layout: Layout
    n_records: int
    committed_rows: int
    stats_offset: int
    manifest: Manifest
    manifest_offset: int
    data_offset: int
    counters: bytes = b""


@dataclass(frozen=True, slots=True)
class MoreBytes:
    """The header is longer than the bytes at hand: come again with the first `length` bytes of the file."""

    length: int


def parse_header(
    head: bytes | memoryview, *, size: int, path: str, manifests: ManifestCache | None = None
) -> Header | MoreBytes:
    """Parse the header of a file in any layout.

    Parameters
    ----------
    head : buffer
        First bytes of the file; all of it, if it is short.
    size : int
        Size of the file. No length in the file is believed before it is compared with it.
    path : str
        For messages.
    manifests : dict, optional
        Manifests parsed before; looked up and added to.

    Returns
    -------
    Header or MoreBytes
        `MoreBytes` asks for the header and the first record header together, and never past `size`.

    Raises
    ------
    FormatError
        Checks 1 to 10 of cstore.md section 11; `TruncatedFileError` where the file ends too early.
    """
    head = memoryview(head)[:size]
    if bytes(head[:8]) != MAGIC:
        raise FormatError(
            f"begins with {bytes(head[:8])!r}, expected {MAGIC!r}; not a colstore file",
            path=path,
            offset=0,
            section="magic",
        )
    counters_end = COUNTERS_OFFSET + COUNTERS_SIZE
    if size < counters_end:
        raise TruncatedFileError(
            f"the file ends after {size} bytes, inside the counters (to {counters_end})",
            path=path,
            offset=COUNTERS_OFFSET,
            section="counters",
        )
    if len(head) < min(size, MANIFEST_OFFSET):
        return MoreBytes(min(size, MANIFEST_OFFSET))

    fields = head[COUNTERS_OFFSET : COUNTERS_OFFSET + _COUNTERS.size]
    stored, actual = _U32.unpack_from(head, 32)[0], zlib.crc32(fields)
    if stored == actual:
        n_records, committed_rows, stats_offset = _COUNTERS.unpack(fields)
        place = _Place("C", MANIFEST_LENGTH_OFFSET)
    elif _U32.unpack_from(head, 24)[0] == zlib.crc32(fields[: _COUNTERS_B.size]):
        n_records, committed_rows = _COUNTERS_B.unpack_from(fields)
        stats_offset = 0
        place = _Place("B", 40)
    else:
        place = _Place("A", 8)
        length = place.length(head)
        if length <= size - place.offset and head[place.offset] == ord("{"):
            if len(head) < place.offset + length:
                return MoreBytes(place.needed(length, size))
            if _is_layout_a(bytes(head[place.offset : place.offset + length])):
                manifest = _manifest(head, place, length, path, manifests)
                return Header(
                    "A", 1, manifest.n_rows or 0, 0, manifest, place.offset, place.data_offset(length)
                )
        raise FormatError(
            f"checksum is {stored:#010x}, the fields give {actual:#010x}. The file is damaged, or a writer was "
            "stopped in the middle of a commit; run 'colstore-io verify'",
            path=path,
            offset=32,
            section="counters",
        )

    if size < place.offset:
        raise TruncatedFileError(
            f"the file ends after {size} bytes, inside the manifest length",
            path=path,
            offset=place.length_offset,
            section="manifest",
        )
    length = place.length(head)
    if length > size - place.offset:
        raise TruncatedFileError(
            f"length is {length}, but only {size - place.offset} bytes follow. The file is cut short or damaged",
            path=path,
            offset=place.length_offset,
            section="manifest",
        )
    if len(head) < place.offset + length:
        # Look before fetching what may be the whole file: a manifest is a JSON object.
        if len(head) > place.offset and head[place.offset] not in _JSON_START:
            raise FormatError(
                "not JSON; the file is damaged", path=path, offset=place.offset, section="manifest"
            )
        return MoreBytes(place.needed(length, size))
    return Header(
        place.layout,
        n_records,
        committed_rows,
        stats_offset,
        _manifest(head, place, length, path, manifests),
        place.offset,
        place.data_offset(length),
        bytes(head[COUNTERS_OFFSET:counters_end]) if place.layout == "C" else b"",
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a layout keeps its manifest: a u64 length, and right behind it the text."""

    layout: Layout
    length_offset: int

    @property
    def offset(self) -> int:
        return self.length_offset + _U64.size

    def length(self, head: memoryview) -> int:
        return int(_U64.unpack_from(head, self.length_offset)[0])

    def data_offset(self, length: int) -> int:
        return align_up(self.offset + length, DATA_ALIGNMENT)

    def needed(self, length: int, size: int) -> int:
        return min(size, self.data_offset(length) + RECORD_HEADER_SIZE)


def _manifest(
    head: memoryview, place: _Place, length: int, path: str, manifests: ManifestCache | None
) -> Manifest:
    text = bytes(head[place.offset : place.offset + length])
    known = None if manifests is None else manifests.get((place.layout, text))
    if known is not None:
        return known
    manifest = parse_manifest(text, offset=place.offset, path=path, layout=place.layout)
    if manifests is not None:
        manifests[place.layout, text] = manifest
    return manifest


def _is_layout_a(text: bytes) -> bool:
    """Whether a manifest candidate makes the file one of layout A: it parses and has an integer ``n_rows``."""
    try:
        parsed: Any = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return isinstance(parsed, dict) and type(parsed.get("n_rows")) is int
