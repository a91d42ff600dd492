from typing import Any

import numpy as np
from numpy.typing import NDArray

Buffer = Any
"""A contiguous buffer of bytes; read-only will do unless the function writes to it."""

class PlainReader:
    """Length-prefixed values (columns.md 6.1), or what is between their prefix and suffix (6.6), a block at a time.

    Parameters
    ----------
    offsets : ndarray of int32 or int64, shape (n + 1,)
        Filled with where each value begins in `data`. Unspecified where values are missing.
    data : ndarray of uint8
        Filled with the bytes of the values; as long as all of them together.
    prefix, suffix : buffer, optional
        Put before and behind each value.

    Raises
    ------
    ValueError
        If 32-bit offsets do not reach over `data`.
    """

    def __init__(
        self, offsets: NDArray[Any], data: NDArray[np.uint8], prefix: Buffer = b"", suffix: Buffer = b""
    ) -> None: ...
    def feed(self, block: Buffer) -> int:
        """Take the next bytes of the stream. 0, or 1: more than n values, or 2: a value longer than what is left.

        Nothing may be fed after a code other than 0.
        """

    @property
    def values(self) -> int:
        """Values begun so far."""

    @property
    def ascii(self) -> bool:
        """True when all that was fed is ASCII, lengths too, and prefix and suffix are: then every value is.

        Looked at while a block is in the cache; False says nothing.
        """

    @property
    def complete(self) -> bool:
        """Whether exactly n values are there and none is cut short."""

def delta(stream: Buffer, out: NDArray[np.uint8], width: int, carry: int = 0) -> int:
    """Running sum of 8-byte differences, modulo 2^64 (6.3), cut to `width` bytes each.

    Parameters
    ----------
    stream : buffer of 8 k bytes
    out : ndarray of uint8, shape (k * width,)
    width : {1, 2, 4, 8}
    carry : int
        Sum so far.

    Returns
    -------
    int
        The last sum.
    """

def bools(stream: Buffer, out: NDArray[np.uint8]) -> None:
    """Fill `out` with 0 and 1 from bits, most significant first (6.2); `stream` has ceil(n / 8) bytes."""

def validity(bitmap: Buffer, out: NDArray[np.uint8]) -> None:
    """Fill `out` with 1 where a null bitmap (section 4) has 0, least significant bit first, and the other way round."""

def count_nulls(bitmap: Buffer, n: int) -> int:
    """Return the ones among the first `n` bits; -1 if there are any behind them."""

def expand(values: NDArray[np.uint8], width: int, bitmap: Buffer) -> None:
    """Put values to their rows in place, zeros under nulls.

    Parameters
    ----------
    values : ndarray of uint8, shape (n * width,)
        The values that are not null stand at its end.
    width : {1, 2, 4, 8}
    bitmap : buffer of ceil(n / 8) bytes
    """

class PackedReader:
    """Numbers of some bits, most significant bit first (6.4), from a stream that comes in blocks.

    Parameters
    ----------
    width : int
        Bits of a number, 0 to 32.
    limit : int
        All numbers are below it.
    out : ndarray of uint8
        Where they go, as uint32 (aligned then), or where the `entries` go that they choose. Its length says how many
        numbers are wanted; what follows in the stream is not looked at.
    skip : int
        Bits before the first wanted number.
    entries : buffer, optional
        `limit` items of `item` bytes, or more.
    item : {1, 2, 4, 8}
        4 without entries.

    Attributes
    ----------
    numbers : int
        So far.
    """

    def __init__(
        self,
        width: int,
        limit: int,
        out: NDArray[np.uint8],
        skip: int = 0,
        entries: Buffer | None = None,
        item: int = 4,
    ) -> None: ...
    @property
    def numbers(self) -> int: ...
    def feed(self, block: Buffer) -> int:
        """Take the next block, cut anywhere.

        Returns
        -------
        int
            -1, or the position (among those wanted) of a number not below `limit`; the reader is of no use then.
        """

    def zeros(self) -> int:
        """Fill what is left with number 0, for a `width` of 0; returns as `feed` does."""

def spread_offsets(offsets: NDArray[Any], bitmap: Buffer) -> None:
    """Make offsets of n rows, in place, from those of the values that are not null, which stand at its end.

    A null is empty.

    Parameters
    ----------
    offsets : ndarray of int32 or int64, shape (n + 1,)
    bitmap : buffer of ceil(n / 8) bytes
        1 = null.
    """

def offset_table(table: Buffer, area: int, out: NDArray[Any]) -> int:
    """Fill `out`, int32 or int64 of shape (n + 1,), from n 4-byte offsets (6.5) and the length of their area.

    `table` may be memory of `out`: its first bytes for int32, its last ones for int64.

    Returns
    -------
    int
        -1, or the position of an offset that decreases or lies outside the area.
    """

def measure_entries(indices: NDArray[np.uint32], bounds: NDArray[np.uint32], limit: int) -> int:
    """Return how many bytes the chosen entries have together; -1 when more than `limit`."""

def take_variable(
    indices: NDArray[np.uint32],
    bounds: NDArray[np.uint32],
    area: Buffer,
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
) -> None:
    """Copy the chosen entries one after the other; `data` has exactly the length that `measure_entries` tells.

    `indices` may be the last ``4 * n`` bytes of `offsets`. Bytes of `area` behind the last entry let short entries be
    copied as whole words.
    """

def first_not_utf8(data: Buffer, offsets: NDArray[Any]) -> int:
    """Return the number of the first value that is not UTF-8; -1 when all are. Offsets are int32 or int64."""

def lzw(source: Buffer, out: NDArray[np.uint8]) -> int:
    """Decode an Lzw stream (7.1).

    Returns
    -------
    int
        Bytes written; -1: the stream ends without an end code, -2: a code that is not in the table, -3: more bytes than
        `out` has, which holds the first of them then.
    """

def plain_spans(block: Buffer, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[int, int]:
    """Find the length-prefixed values (6.1) that lie whole in a part of a stream.

    Parameters
    ----------
    block : buffer
        Begins with a value.
    starts, lengths : ndarray of int64, shape (n,)
        Filled, up to the number found, with where the bytes of each value begin in `block` and how many there are.

    Returns
    -------
    (found, used)
        How many values, at most n, and where the first one begins that is not among them.
    """

def measure_chosen(
    n_bytes: int,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    chosen: NDArray[np.int64],
    n_affix: int,
    limit: int,
) -> int:
    """Return how many bytes `copy_values` would write, with `n_affix` bytes around each value.

    -1 if a chosen value is not there or does not lie in a block of `n_bytes`, or all of it is more than `limit`.
    """

def copy_values(
    block: Buffer,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    chosen: NDArray[np.int64],
    ends: NDArray[np.int64],
    out: NDArray[np.uint8],
    prefix: Buffer = b"",
    suffix: Buffer = b"",
) -> None:
    """Copy values of a block, one after the other, each between `prefix` and `suffix`.

    Parameters
    ----------
    starts, lengths : ndarray of int64
        Of the values, in the block.
    chosen : ndarray of int64, shape (k,)
        Which of them, in any order; repeats allowed.
    ends : ndarray of int64, shape (k,)
        Filled with where each copy ends in `out`.

    Raises
    ------
    ValueError
        If a chosen value does not lie in the block, or `out` has not exactly the bytes of all.
    """
