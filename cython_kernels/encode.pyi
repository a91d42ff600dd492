"""Encoded streams of the columns format (columns.md 6, 7.1 and 9), computed without the GIL.

`offsets` has one entry more than there are values: value i is ``data[offsets[i]:offsets[i+1]]``, as in Arrow's buffers.
All entries raise ValueError for offsets that decrease or leave the data, and for outputs of a wrong size.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_Offsets = NDArray[np.int32] | NDArray[np.int64]
_Bytes = NDArray[np.uint8] | bytes | memoryview[Any]

def delta(values: _Bytes, width: int, is_signed: bool, out: NDArray[np.uint64]) -> None:
    """Write the first value and the differences of the others, as 64 bit words (6.3).

    Parameters
    ----------
    values : uint8, shape (n * width,)
        Integers of `width` bytes (1, 2, 4, 8) in native order.
    out : ndarray of uint64, shape (n,)
    """

def pack_bits(codes: NDArray[np.uint32], width: int, out: NDArray[np.uint8]) -> None:
    """Pack the low `width` (0..32) bits of each code, first code in the highest bits (6.4, 6.7).

    Does not look at higher bits of the codes; callers guarantee that they are zero.
    `out` has shape (ceil(n * width / 8),).
    """

def fixed_codes(
    values: _Bytes,
    width: int,
    limit: int,
    seed: int,
    codes: NDArray[np.uint32],
    firsts: NDArray[np.uint32],
) -> int:
    """Number the distinct values of `width` bytes in order of first appearance (6.4).

    Parameters
    ----------
    limit : int
        Entries at which to give up.
    seed : int
        Of the hash; it does not change the result.
    codes : ndarray of uint32, shape (n,)
        The number of each value.
    firsts : ndarray of uint32, shape (min(n, limit),)
        The row where each entry appeared first.

    Returns
    -------
    int
        The number of entries; -1 when it would pass `limit` (`codes` is then incomplete).
    """

def variable_codes(
    offsets: _Offsets,
    data: _Bytes,
    limit: int,
    seed: int,
    codes: NDArray[np.uint32],
    firsts: NDArray[np.uint32],
) -> int:
    """Number the distinct values of variable length; see `fixed_codes`."""

def renumber(
    old: NDArray[np.int64], number: NDArray[np.uint32], codes: NDArray[np.uint32], order: NDArray[np.uint32]
) -> int:
    """Renumber the codes of a ready dictionary in order of first appearance.

    Parameters
    ----------
    old : ndarray of int64, shape (n,)
    number : ndarray of uint32, shape (k,)
        Zeros at the call.
    codes : ndarray of uint32, shape (n,)
        The new codes.
    order : ndarray of uint32, shape (k,)
        The old codes in new order; as many as are returned.

    Returns
    -------
    int
        Entries in use.
    """

def entry_bytes(offsets: _Offsets, data: _Bytes, rows: NDArray[np.uint32]) -> int:
    """Return how many bytes the values of `rows` have together."""

def put_entries(offsets: _Offsets, data: _Bytes, rows: NDArray[np.uint32], out: NDArray[np.uint8]) -> None:
    """Write start offsets and bytes of the values of `rows`: an OffsetBytes stream without its count (6.5)."""

def longest(offsets: _Offsets, data: _Bytes) -> int:
    """Return the length of the longest value; 0 without values."""

def prefixed(offsets: _Offsets, data: _Bytes, prefix: int, suffix: int, out: NDArray[np.uint8]) -> None:
    """Write each value without its first `prefix` and last `suffix` bytes, its length before it (6.1, 6.6)."""

def affixes(offsets: _Offsets, data: _Bytes) -> tuple[int, int]:
    """Return the lengths of the common prefix and suffix as Affix defines them (6.6)."""

def bounds(offsets: _Offsets, data: _Bytes, skip: int = 0) -> tuple[int, int, int, int]:
    """Return the rows of the bytewise least and greatest value, shortest and longest length; of one value at least.

    `skip` is the number of bytes that all values are known to begin with: less is compared.
    """

def quirky_bounds(offsets: _Offsets, data: _Bytes) -> tuple[int, bytes, int, int]:
    """Return the row of the least, the greatest, shortest and longest by the rule for bytes columns (9)."""

def find(data: _Bytes, needle: bytes, begin: int = 0) -> int:
    """Return where `needle` (not empty) stands in `data` next, at `begin` or later; -1 where it does not."""

def lzw(data: _Bytes, out: NDArray[np.uint8]) -> int:
    """Compress `data` (7.1) into `out`, which has at least ``2 * len(data) + 16`` bytes; return the length."""
