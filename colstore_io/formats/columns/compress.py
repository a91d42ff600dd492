"""How blocks are compressed: the codecs of columns.md section 7 on the libraries that are best at them.

The choice was measured on blocks of 256 KiB of the comparison workload (docs/columns.md has the table). ISA-L at its
level 2 is the cheapest DEFLATE by a factor of two to ten; libdeflate gives fewer bytes in less time than zlib and
zlib-ng at every level from 1 on, except that its levels 2 and 3 lose to its level 4 in both. All of them, and the
standard library, release the GIL.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from ...kernels import encode as kernels
from .tags import Codec

__all__ = ["DEFAULT_LEVEL", "FAST", "Compress", "Level", "compressor", "normal_level"]

Level: TypeAlias = "int | Literal['fast']"
"""-2 (Huffman codes only), -1 (the codec's default), 1..9, or ``"fast"``."""

FAST: Literal["fast"] = "fast"
"""The cheapest level that still looks for matches; only this library's default uses it."""

DEFAULT_LEVEL = 3
"""The level of an option that is not set (columns.md 10.1)."""

Compress = Callable[[Any], "bytes | bytearray | memoryview"]
"""Takes the raw bytes of a block (any contiguous buffer), returns the stored ones. Safe in threads."""

_LIBDEFLATE_LEVEL = {-1: 6, 1: 1, 2: 4, 3: 4, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9}
_ZLIB_HEADER = {**dict.fromkeys((-2, 1), b"\x78\x01"), **dict.fromkeys((2, 3, 4, 5), b"\x78\x5e"),
                **dict.fromkeys((-1, 6), b"\x78\x9c"), **dict.fromkeys((7, 8, 9), b"\x78\xda")}  # fmt: skip
_GZIP_XFL = {9: 2, 1: 4}


def normal_level(level: int | str | None) -> Level:
    """Return a level of the options as codecs take it: unset is 3, and what is out of range is clamped (section 7).

    Raises
    ------
    TypeError, ValueError
        If it is no integer; if it is text other than ``"fast"``.
    """
    if level == FAST:
        return FAST
    if isinstance(level, str):
        raise ValueError(f"level must be an integer from -2 to 9, or {FAST!r}, got {level!r}")
    if level is None or level == 0:
        return DEFAULT_LEVEL
    if isinstance(level, bool) or not isinstance(level, (int, np.integer)):
        raise TypeError(f"level must be an integer from -2 to 9, or {FAST!r}, got {level!r}")
    return max(-2, min(9, int(level)))


def compressor(codec: Codec, level: Level = DEFAULT_LEVEL) -> Compress:
    """Return the function that compresses one block.

    Parameters
    ----------
    codec : Codec
        ``Codec.ZSTD`` is an extension that other libraries refuse to read.
    level : Level
        As `normal_level` gives it. Lzw has none.
    """
    if codec is Codec.NONE:
        return memoryview
    if codec is Codec.LZW:
        return _lzw
    if codec is Codec.ZSTD:
        return _zstd(3 if level == FAST or int(level) < 1 else int(level))
    deflate = _deflate(level)
    if codec is Codec.FLATE:
        return deflate
    number = 1 if level == FAST else int(level)
    if codec is Codec.GZIP:
        head = b"\x1f\x8b\x08\0\0\0\0\0" + bytes([_GZIP_XFL.get(number, 0), 255])

        def gzip_member(block: Any) -> bytes:
            raw = memoryview(block)
            end = struct.pack("<II", zlib.crc32(raw), raw.nbytes & 0xFFFFFFFF)
            return b"".join((head, deflate(raw), end))

        return gzip_member

    def zlib_stream(block: Any) -> bytes:
        raw = memoryview(block)
        return b"".join((_ZLIB_HEADER[number], deflate(raw), struct.pack(">I", zlib.adler32(raw))))

    return zlib_stream


def _deflate(level: Level) -> Compress:
    """Return a compressor to raw DEFLATE; the standard library's where a wheel is missing on a platform."""
    if level == FAST:
        try:
            from isal import igzip_lib
        except ImportError:
            return _deflate(1)
        return lambda block: bytes(igzip_lib.compress(block, 2, igzip_lib.COMP_DEFLATE))
    if level == -2:  # libdeflate has no such strategy
        return _zlib_deflate(6, zlib.Z_HUFFMAN_ONLY)
    try:
        from deflate import deflate_compress
    except ImportError:
        return _zlib_deflate(int(level), zlib.Z_DEFAULT_STRATEGY)
    number = _LIBDEFLATE_LEVEL[int(level)]
    return lambda block: bytes(deflate_compress(block, number))


def _zlib_deflate(level: int, strategy: int) -> Compress:
    def compress(block: Any) -> bytes:
        stream = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, 8, strategy)
        return stream.compress(block) + stream.flush()

    return compress


def _lzw(block: Any) -> bytes:
    raw = np.frombuffer(block, np.uint8)
    out = np.empty(2 * len(raw) + 16, np.uint8)
    return out[: kernels.lzw(raw, out)].tobytes()  # a view would keep all of it


def _zstd(level: int) -> Compress:
    import pyarrow as pa

    codec = pa.Codec("zstd", compression_level=level)
    return lambda block: bytes(codec.compress(block, asbytes=True))
