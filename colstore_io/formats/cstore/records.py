"""Record headers: where every record begins and how many rows it holds (cstore.md section 6)."""

from __future__ import annotations

import struct
import zlib

__all__ = ["BODY_ALIGNMENT", "RECORD_HEADER_SIZE", "RECORD_MAGIC", "body_bytes", "encode_record_header"]

RECORD_MAGIC = b"REC\x01"
RECORD_HEADER_SIZE = 32
BODY_ALIGNMENT = 8

_RECORD = struct.Struct("<4sqqq")
_U32 = struct.Struct("<I")


def encode_record_header(index: int, n_rows: int) -> bytes:
    """Return the 32 bytes in front of the body of record `index`."""
    fields = _RECORD.pack(RECORD_MAGIC, index, n_rows, 0)
    return fields + _U32.pack(zlib.crc32(fields))


def body_bytes(n_rows: int, row_bytes: int) -> int:
    """Return the stored size of a record body: values without gaps, then zero bytes up to a multiple of 8."""
    return -(-(n_rows * row_bytes) // BODY_ALIGNMENT) * BODY_ALIGNMENT
