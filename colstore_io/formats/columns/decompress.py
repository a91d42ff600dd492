"""Blocks to raw bytes, each bounded by the length that its table announces (columns.md section 7).

Raw DEFLATE and zlib go through libdeflate (the package ``deflate``), which decodes a whole block into memory of its
announced size and stops there. Milliseconds to inflate the blocks of 256 KiB of the comparison workload, medians of 11
interleaved rounds on a shared machine (columns: `run` and `rnd` are Delta, the others Plain; deflated by zlib level 1):

=========  ====  =======  ====  ==========
stream     zlib  zlib-ng  isal  libdeflate
=========  ====  =======  ====  ==========
run        0.21     0.12  0.18        0.10
rnd        0.14     0.10  0.13        0.07
f          7.48     5.60  4.13        3.82
low        2.44     1.51  1.45        0.87
high       7.27     3.83  3.31        2.53
=========  ====  =======  ====  ==========

Of streams of ISA-L level 2 and of libdeflate's levels 1, 4 and 6 libdeflate is the fastest too, or within a tenth, with
exceptions that the default does not write: `run` by libdeflate level 4 takes it 0.69 (zlib-ng 0.13, ISA-L 0.38), by
level 1 0.31 (zlib-ng 0.22); `high` by level 6 takes it 3.3, as Affix 6.3 (ISA-L 2.3 both). All four release the GIL:
while one call inflated 48 MiB another thread woke up 174 to 528 times, in a regular expression that holds the lock 4
times.

Gzip is left to the standard library: members may follow each other and nothing else may, which libdeflate's one-shot
call does not tell. Blocks of Zstandard (codec 1) are an extension of this library: the format reserves the tag and its
own library refuses it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import decode as kernel
from .tags import Codec

if TYPE_CHECKING:
    from .chunk import Place

__all__ = ["decompress", "expansion", "inflated", "prefix"]

_EXPANSION = {
    Codec.FLATE: 1032,
    Codec.GZIP: 1032,
    Codec.ZLIB: 1032,
    Codec.LZW: 2560,
    Codec.ZSTD: 1 << 16,  # a block of 128 KiB of one byte takes 4 bytes
}


def expansion(codec: Codec) -> int:
    """Return how many raw bytes one stored byte can become at most."""
    return _EXPANSION[codec]


def decompress(
    codec: Codec,
    stored: memoryview,
    n_raw: int,
    place: Place,
    block: int,
    out: NDArray[np.uint8] | None = None,
) -> Any:
    """Return the raw bytes of one block: a buffer of exactly `n_raw` bytes. Releases the GIL.

    Parameters
    ----------
    codec : Codec
        Any but none.
    stored : memoryview
    n_raw : int
        Announced length; the caller has compared it with `expansion`.
    place : Place
    block : int
        Number of the block, for messages.
    out : ndarray of uint8, shape (n_raw,), optional
        Where they go; it is returned then.

    Raises
    ------
    FormatError
        If the data is damaged, or has another length.
    """
    if codec in _INTO:
        if out is None:
            out = np.empty(n_raw, np.uint8)
        call, faults = _INTO[codec]
        written = call(stored, out)
        if written < 0:
            place.fail(f"block {block} is no {codec.name} stream of {n_raw} raw bytes: {faults[written]}")
        if written != n_raw:
            place.fail(f"block {block} has {written} raw bytes, its table says {n_raw}")
        return out
    raw = _WHOLE[codec](stored, n_raw)
    if isinstance(raw, str):
        place.fail(f"block {block} is no {codec.name} stream of {n_raw} raw bytes: {raw}")
    if len(raw) != n_raw:
        place.fail(f"block {block} has {len(raw)} raw bytes, its table says {n_raw}")
    if out is None:
        return raw
    out[:] = np.frombuffer(raw, np.uint8)
    return out


def prefix(codec: Codec, stored: memoryview, n_raw: int, n: int, place: Place, block: int) -> bytes:
    """Return the first `n` raw bytes of a block of `n_raw`, or all that it has; as `decompress` otherwise.

    For the codecs that can stop there, the rest is not decompressed, and not checked.
    """
    n = min(n, n_raw)
    if codec in _INTO:
        out = np.empty(n, np.uint8)
        call, faults = _INTO[codec]
        written = call(stored, out)
        if written < 0 and written != _LONGER:
            place.fail(f"block {block} is no {codec.name} stream of {n_raw} raw bytes: {faults[written]}")
        return out[: n if written == _LONGER else written].tobytes()
    if codec in _WINDOWS:
        try:
            found = zlib.decompressobj(_WINDOWS[codec]).decompress(stored, n) if n else b""
        except zlib.error as exc:
            place.fail(f"block {block} is no {codec.name} stream of {n_raw} raw bytes: {exc}")
        if len(found) == n:
            return found  # else an empty member comes first
    return bytes(decompress(codec, stored, n_raw, place, block)[:n])


def inflated(stored: memoryview, n_raw: int) -> Any:
    """Return the raw bytes of a DEFLATE stream of up to `n_raw`, or what is wrong with it as text. Releases the GIL."""
    if n_raw == 0:  # libdeflate takes 0 for "unknown"
        return _with_zlib(stored, 0, -15)
    import deflate

    try:
        return deflate.deflate_decompress(stored, n_raw)
    except deflate.DeflateError:
        return "the data is damaged or longer"


def _zlib(stored: memoryview, n_raw: int) -> Any:
    if n_raw == 0:
        return _with_zlib(stored, 0, 15)
    import deflate

    try:
        return deflate.zlib_decompress(stored, n_raw)
    except deflate.DeflateError:
        return "the data is damaged or longer"


def _with_zlib(stored: memoryview, n_raw: int, window: int) -> Any:
    stream = zlib.decompressobj(window)
    try:
        raw = stream.decompress(stored, n_raw + 1)
        if len(raw) <= n_raw and not stream.eof:  # what is left may be the checksum alone
            raw += stream.decompress(stream.unconsumed_tail, 1)
    except zlib.error as exc:
        return str(exc)
    if not stream.eof and len(raw) <= n_raw:
        return "it is cut short"
    return raw


def _gzip(stored: memoryview, n_raw: int) -> Any:
    """Members one after the other; anything else behind a member is refused."""
    parts: list[bytes] = []
    left = n_raw
    rest: bytes | memoryview = stored
    while len(rest):
        stream = zlib.decompressobj(31)
        try:
            while not stream.eof:
                if not len(rest):
                    return "it is cut short"
                part = stream.decompress(rest, left + 1)
                left -= len(part)
                if left < 0:
                    return "it is longer"
                parts.append(part)
                rest = stream.unconsumed_tail
        except zlib.error as exc:
            return str(exc)
        rest = stream.unused_data
    return b"".join(parts) if len(parts) != 1 else parts[0]


def _zstd(stored: memoryview, n_raw: int) -> Any:
    import pyarrow as pa

    if not pa.Codec.is_available("zstd"):
        return "this build of pyarrow has no Zstandard"
    if n_raw == 0:
        return "an empty block is never compressed"
    try:
        # Arrow's buffers are of signed bytes, which no kernel takes.
        return memoryview(pa.Codec("zstd").decompress(pa.py_buffer(stored), decompressed_size=n_raw)).cast(
            "B"
        )
    except (OSError, pa.ArrowException) as exc:
        return str(exc)


_WINDOWS = {Codec.FLATE: -15, Codec.GZIP: 31, Codec.ZLIB: 15}
"""What the standard library calls each; it can stop after a few bytes, which libdeflate cannot."""

_LONGER = -3
_LZW_FAULTS = {
    -1: "it ends without an end code",
    -2: "a code that is not in the table yet",
    _LONGER: "it is longer than announced",
}
_INTO: dict[Codec, tuple[Callable[[Any, NDArray[np.uint8]], int], dict[int, str]]] = {
    Codec.LZW: (kernel.lzw, _LZW_FAULTS),
}
_WHOLE: dict[Codec, Callable[[memoryview, int], Any]] = {
    Codec.FLATE: inflated,
    Codec.ZLIB: _zlib,
    Codec.GZIP: _gzip,
    Codec.ZSTD: _zstd,
}
