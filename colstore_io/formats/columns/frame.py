"""What stands around the chunks: prologue and trailer (columns.md sections 2 and 12.1)."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import FormatError, TruncatedFileError
from .tags import DIGEST_BYTES, MAGIC, OLD_MAGICS, TRAILER_BYTES

__all__ = ["Prologue", "footer_start", "parse_prologue", "prologue_bytes"]

_FIXED_BYTES = 5
_COUNTED_BYTES = 9


class Prologue(NamedTuple):
    """The first bytes of a file.

    Attributes
    ----------
    version : int
        1, or 2 for files with a table of tokenizers.
    digests : tuple of bytes
        SHA-256 of each tokenizer; a chunk names one by its place, counted from 1.
    end : int
        File offset of the first byte after it.
    """

    version: int
    digests: tuple[bytes, ...]
    end: int


def prologue_bytes(head: memoryview, *, size: int, path: str) -> int:
    """Return how long the prologue of a file is, from its first bytes (9 of them, or all there are).

    Raises
    ------
    FormatError
        For another magic or version, or a table of digests that does not fit into the file.
    """
    if size < _FIXED_BYTES + TRAILER_BYTES and (size < TRAILER_BYTES or bytes(head[:4]) == MAGIC):
        raise TruncatedFileError(
            f"the file has {size} bytes; a columns file has at least {_FIXED_BYTES + TRAILER_BYTES}",
            path=path,
            offset=size,
            section="prologue",
        )
    if head[:4] != MAGIC:
        magic = bytes(head[:4])
        age = OLD_MAGICS.get(magic)
        known = f" (written by {age} of the format's library; write it again with a newer one)" if age else ""
        raise FormatError(
            f"the file begins with {magic!r}, expected {MAGIC!r}{known}", path=path, offset=0, section="magic"
        )
    version = head[4]
    if version == 1:
        return _FIXED_BYTES
    if version != 2:
        raise FormatError(
            f"version {version} is unknown, expected 1 or 2", path=path, offset=4, section="prologue"
        )
    count = int.from_bytes(head[5:9], "little")
    if len(head) < _COUNTED_BYTES or count * DIGEST_BYTES > size - _COUNTED_BYTES - TRAILER_BYTES:
        raise TruncatedFileError(
            f"{count} digests of tokenizers are announced, the file has {size} bytes",
            path=path,
            offset=5,
            section="prologue",
        )
    return _COUNTED_BYTES + count * DIGEST_BYTES


def parse_prologue(head: memoryview, end: int) -> Prologue:
    """Return the prologue; `head` holds at least its `end` bytes, as many as `prologue_bytes` has told."""
    if end == _FIXED_BYTES:
        return Prologue(head[4], (), end)
    digests = tuple(bytes(head[at : at + DIGEST_BYTES]) for at in range(_COUNTED_BYTES, end, DIGEST_BYTES))
    return Prologue(head[4], digests, end)


def footer_start(trailer: memoryview, *, size: int, prologue_end: int, path: str) -> int:
    """Return where the footer begins, from the last 8 bytes of a file.

    Raises
    ------
    FormatError
        If the trailing magic is missing, or the footer would not fit behind the prologue.
    """
    if trailer[4:8] != MAGIC:
        raise FormatError(
            f"the file ends with {bytes(trailer[4:8])!r}, expected {MAGIC!r}: it is cut short or was never closed",
            path=path,
            offset=size - 4,
            section="trailer",
        )
    length = int.from_bytes(trailer[:4], "little")
    start = size - TRAILER_BYTES - length
    if start < prologue_end:
        raise FormatError(
            f"a footer of {length} bytes does not fit into a file of {size} bytes whose prologue has {prologue_end}",
            path=path,
            offset=size - TRAILER_BYTES,
            section="trailer",
        )
    return start
