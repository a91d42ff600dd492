"""The default of this library: encoding and level per column, chosen by trying them on a sample (docs/columns.md).

The format's own default treats all columns of a type alike: integers as differences, everything at one level. Here
each row group's columns are looked at: a dictionary for a column of few values, no compression where it would save
next to nothing, the dearer DEFLATE level only where it saves much. Samples are small (two windows of 32 KiB for
each candidate), so that looking costs a few percent of a write. Of short streams all is
looked at, and stored as it is then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...kernels import encode as kernels
from .compress import FAST, Level, compressor
from .encode import Dense, encode_stream, encoded_bytes
from .tags import Codec, Encoding, Type

__all__ = ["Choice", "Layout", "choose_codec", "choose_layout", "window_stream"]

WINDOW_BYTES = 32 << 10
"""Bytes of one window of a sample, as DEFLATE sees about as many at once. There are two windows."""

WHOLE_BYTES = 3 * WINDOW_BYTES
"""A stream of at most so many bytes is compressed as a whole instead, and that is what is stored then."""

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
"""An encoding is preferred to a simpler one only if it needs at most this part of its bytes."""

ENOUGH = 1 / 12
"""Nothing else is tried where an encoding needs at most this part of the bytes of Plain: what there may be left to save
is hardly worth the time."""

AFFIX_SAVES = 1 / 8
"""Affix stands for Plain where it leaves out at least this part of its bytes; compression finds smaller parts, too."""


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


@dataclass(frozen=True, slots=True)
class Choice:
    """A layout, and what was made on the way to it.

    Attributes
    ----------
    layout : Layout
    stream : ndarray of uint8 or None
        The encoded stream, if all of it was made.
    stored : bytes-like or None
        The stream compressed in one piece, if all of it was; not with ``Codec.NONE``.
    """

    layout: Layout
    stream: NDArray[np.uint8] | None = None
    stored: bytes | bytearray | memoryview | None = None


_fast = compressor(Codec.FLATE, FAST)
_dear = compressor(Codec.FLATE, DEAR_LEVEL)


@dataclass(frozen=True, slots=True)
class _Trial:
    """One encoding, and what the cheap level makes of its stream or of a sample of it.

    Attributes
    ----------
    encoding : Encoding
    parts : list of (float, ndarray)
        Windows of the stream, and how many bytes each of their bytes stands for; or all of it as one.
    stored : list
        What the cheap level makes of each.
    raw, fast : float
        Projected length of the stream, and of what the cheap level makes of it.
    """

    encoding: Encoding
    parts: list[tuple[float, NDArray[np.uint8]]]
    stored: list[bytes | bytearray | memoryview]
    raw: float
    fast: float

    @classmethod
    def of(cls, encoding: Encoding, parts: list[tuple[float, NDArray[np.uint8]]]) -> _Trial:
        stored = [_fast(part) for _, part in parts]
        raw = fast = 0.0
        for (factor, part), packed in zip(parts, stored, strict=True):
            raw += factor * len(part)
            fast += factor * len(packed)
        return cls(encoding, parts, stored, raw, fast)

    @property
    def nbytes(self) -> float:
        """What the column would take."""
        return self.raw if self.fast > STORED_RAW * self.raw else self.fast

    def choice(self) -> Choice:
        """Return encoding, codec and level, and the stream where the sample was all of it.

        Only here the dear level is tried, and only where the sample is a small part of the stream: on all of a short
        one it would take longer than everything else, and save some hundred bytes.
        """
        factor, stream = self.parts[0]
        whole = stream if factor == 1.0 and len(self.parts) == 1 else None
        if self.fast > STORED_RAW * self.raw:
            return Choice(Layout(self.encoding, Codec.NONE, FAST), whole)
        if whole is not None:
            return Choice(Layout(self.encoding, Codec.FLATE, FAST), whole, self.stored[0])
        if self.fast > DEAR_MATTERS * self.raw:
            dear = sum(factor * len(_dear(part)) for factor, part in self.parts)
            if dear <= min(DEAR_SAVES * self.fast, self.fast - DEAR_MATTERS * self.raw):
                return Choice(Layout(self.encoding, Codec.FLATE, DEAR_LEVEL))
        return Choice(Layout(self.encoding, Codec.FLATE, FAST))


def choose_codec(encoding: Encoding, stream: NDArray[np.uint8]) -> Choice:
    """Return codec and level for a finished stream, by two windows of it; by all of a short one."""
    return replace(_Trial.of(encoding, _windows(stream)).choice(), stream=stream)


def choose_layout(dense: Dense) -> Choice:
    """Return encoding, codec and level for the values of one column of one row group.

    Notes
    -----
    Numbers: Plain, Delta and Dict are tried; text and bytes: Dict beside Plain, or beside Affix where values begin and
    end alike, which saves what Plain takes for that. Dict comes first, and nothing else is tried where it or Delta
    needs a small part of the bytes; Plain is preferred where they save next to nothing. Bytes that do not compress
    become OffsetBytes, which is read without a look at each value. Booleans are always packed.
    """
    kind = dense.kind
    if kind is Type.BOOL:
        return choose_codec(Encoding.RLE_BITPACK, encode_stream("", dense, Encoding.RLE_BITPACK))
    if dense.n == 0:
        return Choice(Layout(Encoding.PLAIN, Codec.NONE, FAST))
    plain_bytes = encoded_bytes(dense, Encoding.PLAIN)
    enough = ENOUGH * plain_bytes
    trials = []
    dictionary = _tried_dictionary(dense)
    if dictionary is not None:
        if dictionary.nbytes <= enough:
            return dictionary.choice()
        trials.append(dictionary)
    if Type.INT8 <= kind <= Type.UINT64:
        delta = _tried(Encoding.DELTA, dense)
        if delta.nbytes <= enough:
            return delta.choice()
        trials.insert(0, delta)
    best = _tried(_simplest(dense, plain_bytes) if dictionary is None else Encoding.PLAIN, dense)
    for trial in trials:
        if trial.nbytes <= SIMPLER * best.nbytes:
            best = trial
    choice = best.choice()
    if kind is Type.BYTES and choice.layout.codec is Codec.NONE and choice.layout.encoding is Encoding.PLAIN:
        return Choice(replace(choice.layout, encoding=Encoding.OFFSET_BYTES))
    return choice


def _simplest(dense: Dense, plain_bytes: int) -> Encoding:
    """Return Plain, or Affix where that leaves out a good part of the bytes: it is shorter when compressed, too."""
    if dense.kind.fixed or not any(dense.rows(0, min(dense.n, 2)).affixes):
        return Encoding.PLAIN
    saved = plain_bytes - encoded_bytes(dense, Encoding.AFFIX)
    return Encoding.AFFIX if saved >= AFFIX_SAVES * plain_bytes else Encoding.PLAIN


def _tried(encoding: Encoding, dense: Dense) -> _Trial:
    """Try an encoding on two runs of rows; on all of them if their stream is short, on parts of a few long values."""
    per_row = max(encoded_bytes(dense, Encoding.PLAIN) / dense.n, 1 / 64)
    if encoded_bytes(dense, encoding) <= WHOLE_BYTES or per_row > WINDOW_BYTES:
        return _Trial.of(encoding, _windows(encode_stream("", dense, encoding)))
    rows = max(1, min(int(WINDOW_BYTES / per_row), dense.n // 2))
    middle = dense.n // 2
    windows = (dense.rows(0, rows), dense.rows(middle, middle + rows))
    scale = dense.n / (2 * rows)
    return _Trial.of(encoding, [(scale, window_stream(dense, window, encoding)) for window in windows])


def window_stream(dense: Dense, window: Dense, encoding: Encoding) -> NDArray[np.uint8]:
    """Return the part of a stream that is made of the rows of `window`, which are some of `dense`."""
    if encoding is not Encoding.AFFIX:
        return encode_stream("", window, encoding)
    # The affix of the whole column: that of a window alone may be longer.
    prefix, suffix = dense.affixes
    part = np.empty(window.value_bytes + window.n * (4 - prefix - suffix), np.uint8)
    kernels.prefixed(*window.variable, prefix, suffix, part)
    return part


def _windows(stream: NDArray[np.uint8]) -> list[tuple[float, NDArray[np.uint8]]]:
    if len(stream) <= WHOLE_BYTES:
        return [(1.0, stream)]
    middle = len(stream) // 2
    factor = len(stream) / (2 * WINDOW_BYTES)
    return [(factor, stream[:WINDOW_BYTES]), (factor, stream[middle : middle + WINDOW_BYTES])]


def _tried_dictionary(dense: Dense) -> _Trial | None:
    """Try Dict where the first rows repeat themselves and the whole column has few distinct values."""
    limit = max(256, dense.n // 4)
    repeating = max(1, min(dense.n, DISTINCT_ROWS) * 2 // 3)
    if dense.n <= DISTINCT_ROWS:
        limit = min(limit, repeating)
    elif dense.ready is None and dense.rows(0, DISTINCT_ROWS).dictionary(repeating) is None:
        return None
    if dense.dictionary(limit) is None:
        return None
    stream = encode_stream("", dense, Encoding.DICT)
    if len(stream) <= WHOLE_BYTES:
        return _Trial.of(Encoding.DICT, [(1.0, stream)])
    assert dense.ready is not None
    split = 12 + dense.ready.packed_bytes
    return _Trial.of(Encoding.DICT, _windows(stream[:split]) + _windows(stream[split:]))
