"""Is a record still where a plan says it is?"""

from __future__ import annotations

import zlib

from ...storage import ByteFile
from .. import FileHeader
from .records import RECORD_HEADER_SIZE, encode_record_header

__all__ = ["holds_record"]


def holds_record(file: ByteFile, header: FileHeader, body_start: int, n_rows: int) -> bool:
    """Return whether a record of `n_rows` rows begins its body at `body_start`.

    Layout A has no record headers (cstore.md 12): there the answer is always True.

    Raises
    ------
    TruncatedFileError
        If the file ends before that.
    """
    if header.layout == "A":
        return True
    found = bytes(file.read(body_start - RECORD_HEADER_SIZE, RECORD_HEADER_SIZE))
    index = int.from_bytes(found[4:12], "little", signed=True)
    # Reserved bytes and checksum are as the writer made them; the rest must be what a writer would put here.
    good_sum = zlib.crc32(found[:28]) == int.from_bytes(found[28:], "little")
    return good_sum and index >= 0 and found[:20] == encode_record_header(index, n_rows)[:20]
