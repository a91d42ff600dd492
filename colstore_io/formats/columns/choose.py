"""The default of this library: encoding and level per column, chosen by trying them on a sample (docs/columns.md).

The format's own default treats all columns of a type alike: integers as differences, everything at one level. Here
each row group's columns are looked at: a dictionary for a column of few values, no compression where it would save
next to nothing, the dearer DEFLATE level only where it saves much. Samples are small (two windows of 32 KiB for
each candidate), so that looking costs a few percent of a write.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class _Trial:
    """One encoding, and what the cheap level makes of a sample of its stream.

    Attributes
    ----------
    encoding : Encoding
    parts : list of (float, ndarray)
        Windows of the stream, and how many bytes each of their bytes stands for.
    raw, fast : float
        Projected length of the stream, and of what the cheap level makes of it.
    """

    encoding: Encoding
    parts: list[tuple[float, NDArray[np.uint8]]]
    raw: float
    fast: float

    @classmethod
    def of(cls, encoding: Encoding, parts: list[tuple[float, NDArray[np.uint8]]]) -> _Trial:
        raw = sum(factor * part.nbytes for factor, part in parts)
        return cls(encoding, parts, raw, sum(factor * len(_fast(part)) for factor, part in parts))

    @property
    def nbytes(self) -> float:
        """What the column would take."""
        return self.raw if self.fast > STORED_RAW * self.raw else self.fast

    def codec(self) -> tuple[Codec, Level]:
        """Return codec and level; only here the dear level is tried."""
        raw, fast = self.raw, self.fast
        if fast > STORED_RAW * raw:
            return Codec.NONE, FAST
        if fast > DEAR_MATTERS * raw:
            dear = sum(factor * len(_dear(part)) for factor, part in self.parts)
            if dear <= min(DEAR_SAVES * fast, fast - DEAR_MATTERS * raw):
                return Codec.FLATE, DEAR_LEVEL
        return Codec.FLATE, FAST


def choose_codec(stream: NDArray[np.uint8]) -> tuple[Codec, Level]:
    """Return codec and level for a finished stream, by two windows of it."""
    return _Trial.of(Encoding.PLAIN, _windows(stream)).codec()


def choose_layout(dense: Dense) -> Layout:
    """Return encoding, codec and level for the values of one column of one row group.

    Notes
    -----
    Candidates in their order: numbers Plain, Delta, Dict; text and bytes Plain, Affix, Dict. Bytes that do not compress
    become OffsetBytes, which is read without a look at each value. Booleans are always packed.
    """
    kind = dense.kind
    if kind is Type.BOOL:
        return Layout(Encoding.RLE_BITPACK, *choose_codec(encode_stream("", dense, Encoding.RLE_BITPACK)))
    if dense.n == 0:
        return Layout(Encoding.PLAIN, Codec.NONE, FAST)
    windows = _row_windows(dense)
    scale = dense.n / sum(window.n for window in windows)
    best = _tried(Encoding.PLAIN, windows, scale)
    if Type.INT8 <= kind <= Type.UINT64:
        best = _better(best, _tried(Encoding.DELTA, windows, scale))
    dictionary = _tried_dictionary(dense)
    if dictionary is not None:
        best = _better(best, dictionary)
    elif kind in (Type.STRING, Type.BYTES):
        affix = _tried_affix(dense, windows, scale)
        if affix is not None:
            best = _better(best, affix)
    encoding = best.encoding
    codec, level = best.codec()
    if kind is Type.BYTES and codec is Codec.NONE and encoding is Encoding.PLAIN:
        encoding = Encoding.OFFSET_BYTES
    return Layout(encoding, codec, level)


def _better(first: _Trial, second: _Trial) -> _Trial:
    return second if second.nbytes <= SIMPLER * first.nbytes else first


def _tried(encoding: Encoding, windows: list[Dense], scale: float) -> _Trial:
    return _Trial.of(encoding, [(scale, encode_stream("", window, encoding)) for window in windows])


def _windows(stream: NDArray[np.uint8]) -> list[tuple[float, NDArray[np.uint8]]]:
    if len(stream) <= 3 * WINDOW_BYTES:
        return [(1.0, stream)]
    middle = len(stream) // 2
    factor = len(stream) / (2 * WINDOW_BYTES)
    return [(factor, stream[:WINDOW_BYTES]), (factor, stream[middle : middle + WINDOW_BYTES])]


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
    return _Trial.of(Encoding.DICT, _windows(stream[:split]) + _windows(stream[split:]))


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
        parts.append((scale, part))
    return _Trial.of(Encoding.AFFIX, parts)
