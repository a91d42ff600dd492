"""Was a file merely appended to since it was planned?"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from ...storage import HEAD_BYTES, ByteFile
from .. import FileHeader
from .reader import read_header
from .records import RECORD_HEADER_SIZE, encode_record_header

__all__ = ["holds_record", "only_appended"]


def only_appended(
    file: ByteFile,
    *,
    fingerprint: bytes,
    n_records: int,
    n_rows: int,
    committed_end: int,
    places: Sequence[tuple[int, int]],
) -> bool:
    """Tell whether a file still holds what was planned of it; see `colstore_io.formats.AddressableFormat`."""
    # Not more than was committed: an append may have cut a footer off behind it.
    header = read_header(file, file.read(0, min(HEAD_BYTES, committed_end)))
    if header.fingerprint != fingerprint or header.n_records < n_records or header.committed_rows < n_rows:
        return False
    return all(holds_record(file, header, start, rows) for start, rows in places)


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
