"""Magic, counters, manifest, padding: everything in front of record 0 (cstore.md sections 1 to 4 and 12)."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Literal

from ...errors import FormatError, TruncatedFileError
from .manifest import FORMAT_VERSION, Manifest, encode_manifest, parse_manifest

__all__ = [
    "COUNTERS_OFFSET",
    "COUNTERS_SIZE",
    "DATA_ALIGNMENT",
    "FORMAT_VERSION",
    "MAGIC",
    "MANIFEST_LENGTH_OFFSET",
    "MANIFEST_OFFSET",
    "Header",
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

_COUNTERS = struct.Struct("<qqq")
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
