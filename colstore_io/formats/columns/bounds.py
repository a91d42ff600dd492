"""Smallest and largest value of a chunk as the footer has them (columns.md section 9), quirks included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import encode as kernels
from .encode import Dense
from .tags import NUMPY_TYPES, Type

__all__ = ["Bounds", "chunk_bounds"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Statistics of the non-null values of one chunk.

    Attributes
    ----------
    minimum, maximum : bytes
        Plain bytes of a number, the value itself of text and bytes; empty without values.
    min_length, max_length : int
        Bytes of the shortest and longest value.
    """

    minimum: bytes = b""
    maximum: bytes = b""
    min_length: int = 0
    max_length: int = 0


def chunk_bounds(dense: Dense) -> Bounds:
    """Return the statistics of a chunk.

    Notes
    -----
    Where a dictionary is known already, its entries are looked at instead of all values: each rule but the one of
    bytes with empty values gives the same result for values and for distinct values in order of first appearance.
    """
    known = dense.ready
    if dense.n == 0:
        return Bounds()
    if dense.fixed is not None:
        return _fixed_bounds(dense.kind, dense.fixed if known is None else _values(known.entries))
    looked_at = dense if known is None else known.entries
    prefix = 0 if looked_at.known_affixes is None else looked_at.known_affixes[0]
    least, greatest, shortest, longest = kernels.bounds(*looked_at.variable, prefix)
    if dense.kind is Type.BYTES and shortest == 0:
        # The rule of bytes columns restarts after each empty value, so that all values count, in their order.
        row, maximum, shortest, longest = kernels.quirky_bounds(*dense.variable)
        return Bounds(_value(dense, row), maximum, shortest, longest)
    return Bounds(_value(looked_at, least), _value(looked_at, greatest), shortest, longest)


def _values(dense: Dense) -> NDArray[Any]:
    assert dense.fixed is not None
    return dense.fixed


def _value(dense: Dense, row: int) -> bytes:
    offsets, data = dense.variable
    return data[int(offsets[row]) : int(offsets[row + 1])].tobytes()


def _fixed_bounds(kind: Type, values: NDArray[Any]) -> Bounds:
    width = values.itemsize
    if kind in (Type.FLOAT32, Type.FLOAT64):
        if np.isnan(values[0]):  # nothing is less than a NaN: the one that comes first stays
            return Bounds(values[:1].tobytes(), values[:1].tobytes(), width, width)
        with np.errstate(invalid="ignore"):  # a signalling NaN among the values
            low, high = np.fmin.reduce(values), np.fmax.reduce(values)
        return Bounds(_first_equal(values, low), _first_equal(values, high), width, width)
    dtype = NUMPY_TYPES[kind]
    low, high = values.min(), values.max()
    return Bounds(np.array(low, dtype).tobytes(), np.array(high, dtype).tobytes(), width, width)


def _first_equal(values: NDArray[Any], bound: Any) -> bytes:
    """Return the bytes of a bound; of the two zeros, those of the one that was seen first."""
    if bound == 0:
        row = int(np.argmax(values == 0))
        return values[row : row + 1].tobytes()
    return np.array(bound, values.dtype).tobytes()
