"""The default of this library: encoding and level per column, chosen by trying them on a sample (docs/columns.md).

The format's own default treats all columns of a type alike: integers as differences, everything at one level. Here
each row group's columns are looked at: a dictionary for a column of few values, no compression where it would save
next to nothing, the dearer DEFLATE level only where it saves much. Samples are small (two windows of 32 KiB for
each candidate), so that looking costs a few percent of a write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...kernels import encode as kernels
from .compress import FAST, Level, compressor
from .encode import Dense, encode_stream
from .tags import Codec, Encoding, Type

__all__ = ["Layout", "choose_codec", "choose_layout"]

WINDOW_BYTES = 32 << 10
"""Bytes of one window of a sample, as DEFLATE sees about as many at once. There are two windows."""

DISTINCT_ROWS = 4096
"""Values at the start of a column that tell whether its dictionary is worth looking for."""

STORED_RAW = 0.95
"""A stream that compression would not bring below this part of its length is stored as it is: it is read back without
inflating anything."""

DEAR_LEVEL = 4
"""The level that is tried beside ``FAST``."""

DEAR_SAVES = 0.75
"""The dear level is taken where its bytes are at most this part of the fast one's: it takes three times as long ..."""

DEAR_MATTERS = 0.05
"""... and where it saves at least this part of the raw bytes."""

SIMPLER = 0.98
"""An encoding is preferred to one before it in the list only if it needs at most this part of its bytes."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How one column is stored.

    Attributes
    ----------
    encoding : Encoding
    codec : Codec
    level : Level
    representation, boundary : int
        Of Tokenized (columns.md 6.7).
    """

    encoding: Encoding
    codec: Codec
    level: Level
    representation: int = 0
    boundary: int = 0


_fast = compressor(Codec.FLATE, FAST)
_dear = compressor(Codec.FLATE, DEAR_LEVEL)


def choose_codec(stream: NDArray[np.uint8]) -> tuple[Codec, Level]:
    """Return codec and level for a finished stream, by two windows of it."""
    raw, fast, dear = _sizes(_windows(stream))
    return _codec(raw, fast, dear)


def choose_layout(dense: Dense) -> Layout:
    """Return encoding, codec and level for the values of one column of one row group.

    Notes
    -----
    Candidates in their order: numbers Plain, Delta, Dict; text and bytes Plain, Affix, Dict. Bytes that do not compress
    become OffsetBytes, which is read without a look at each value. Booleans are always packed.
    """
    kind = dense.kind
    if kind is Type.BOOL:
        codec, level = choose_codec(encode_stream("", dense, Encoding.RLE_BITPACK))
        return Layout(Encoding.RLE_BITPACK, codec, level)
    if dense.n == 0:
        return Layout(Encoding.PLAIN, Codec.NONE, FAST)
    windows = _row_windows(dense)
    rows = sum(window.n for window in windows)
    scale = dense.n / rows
    best = _tried(Encoding.PLAIN, [encode_stream("", w, Encoding.PLAIN) for w in windows], scale)
    if Type.INT8 <= kind <= Type.UINT64:
        best = _better(
            best, _tried(Encoding.DELTA, [encode_stream("", w, Encoding.DELTA) for w in windows], scale)
        )
    dictionary = _tried_dictionary(dense)
    if dictionary is not None:
        best = _better(best, dictionary)
    elif kind in (Type.STRING, Type.BYTES):
        affix = _tried_affix(dense, windows, scale)
        if affix is not None:
            best = _better(best, affix)
    encoding = best.encoding
    if kind is Type.BYTES and best.codec is Codec.NONE and encoding is Encoding.PLAIN:
        encoding = Encoding.OFFSET_BYTES
    return Layout(encoding, best.codec, best.level)


@dataclass(frozen=True, slots=True)
class _Trial:
    encoding: Encoding
    nbytes: float
    codec: Codec
    level: Level


def _better(first: _Trial, second: _Trial) -> _Trial:
    return second if second.nbytes <= SIMPLER * first.nbytes else first


def _codec(raw: float, fast: float, dear: Callable[[], float]) -> tuple[Codec, Level]:
    if fast > STORED_RAW * raw:
        return Codec.NONE, FAST
    if fast > DEAR_MATTERS * raw and dear() <= min(DEAR_SAVES * fast, fast - DEAR_MATTERS * raw):
        return Codec.FLATE, DEAR_LEVEL
    return Codec.FLATE, FAST


def _sizes(parts: list[NDArray[np.uint8]]) -> tuple[int, int, Callable[[], float]]:
    """Return raw bytes, bytes at the fast level, and a call that gives those at the dear one."""
    raw = sum(part.nbytes for part in parts)
    fast = sum(len(_fast(part)) for part in parts)
    return raw, fast, lambda: sum(len(_dear(part)) for part in parts)


def _tried(encoding: Encoding, parts: list[NDArray[np.uint8]], scale: float) -> _Trial:
    raw, fast, dear = _sizes(parts)
    codec, level = _codec(raw, fast, dear)
    nbytes = raw if codec is Codec.NONE else dear() if level == DEAR_LEVEL else fast
    return _Trial(encoding, scale * nbytes, codec, level)


def _windows(stream: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    if len(stream) <= 3 * WINDOW_BYTES:
        return [stream]
    middle = len(stream) // 2
    return [stream[:WINDOW_BYTES], stream[middle : middle + WINDOW_BYTES]]


def _row_windows(dense: Dense) -> list[Dense]:
    """Return two runs of rows of about `WINDOW_BYTES` each; all rows when there are few."""
    per_row = dense.value_bytes / dense.n + (0 if dense.kind.fixed else 4)
    rows = max(1, int(WINDOW_BYTES / max(per_row, 1 / 64)))
    if dense.n <= 3 * rows:
        return [dense]
    middle = dense.n // 2
    return [dense.rows(0, rows), dense.rows(middle, middle + rows)]


def _tried_dictionary(dense: Dense) -> _Trial | None:
    """Try Dict where the first rows repeat themselves and the whole column has few distinct values."""
    head = dense.rows(0, min(dense.n, DISTINCT_ROWS))
    if dense.ready is None and head.dictionary(max(1, head.n * 2 // 3)) is None:
        return None
    if dense.dictionary(max(256, dense.n // 4)) is None:
        return None
    stream = encode_stream("", dense, Encoding.DICT)
    assert dense.ready is not None
    split = 12 + (dense.n * dense.ready.width + 7) // 8
    codes, entries = stream[:split], stream[split:]
    raw, fast, dear = 0.0, 0.0, 0.0
    for part in (codes, entries):
        windows = _windows(part)
        measured = sum(w.nbytes for w in windows)
        factor = part.nbytes / max(1, measured)
        _, small, smaller = _sizes(windows)
        raw, fast, dear = raw + part.nbytes, fast + factor * small, dear + factor * smaller()
    codec, level = _codec(raw, fast, lambda: dear)
    return _Trial(
        Encoding.DICT, raw if codec is Codec.NONE else dear if level == DEAR_LEVEL else fast, codec, level
    )


def _tried_affix(dense: Dense, windows: list[Dense], scale: float) -> _Trial | None:
    if not any(windows[0].affixes):
        return None
    prefix, suffix = dense.affixes
    if prefix + suffix == 0:
        return None
    parts = []
    for window in windows:
        part = np.empty(window.value_bytes + window.n * (4 - prefix - suffix), np.uint8)
        kernels.prefixed(*window.variable, prefix, suffix, part)
        parts.append(part)
    return _tried(Encoding.AFFIX, parts, scale)
