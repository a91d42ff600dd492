"""Token ids to bytes and back (columns.md 6.7, 13.3, 13.4).

Arrays are C-contiguous; nothing is kept but where stated.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

UNICODE_VERSION: str
"""Version of the table of character classes."""

def char_class(code: int) -> int:
    """Return the class of a code point: 0 other, 1 letter, 2 number, 3 whitespace, 4 punctuation; -1 beyond Unicode."""

class TokenTable:
    """What ids stand for.

    Parameters
    ----------
    offsets : ndarray of int64, shape (n + 1,)
        From 0 to ``len(data)``, not decreasing; n is at most 65536. Kept, like `data`; neither may change.
    data : ndarray of uint8
        Bytes of all tokens; id i stands for ``data[offsets[i]:offsets[i + 1]]``.
    escape : int
        The id that stands for one byte from elsewhere, even where a token has it too.

    Raises
    ------
    ValueError
        If the parts do not fit together.
    """

    n_tokens: int
    escape: int
    def __init__(self, offsets: NDArray[np.int64], data: NDArray[np.uint8], escape: int) -> None: ...

def token_counts(counts: NDArray[np.uint32], kind: int, n_ids: int) -> int:
    """Turn boundaries into numbers of ids, in place: counts (kind 0), offsets (1) or zigzag deltas of counts (2).

    Returns
    -------
    int
        0; 1 when they do not add up to `n_ids`, 2 when they decrease or a count is negative, 3 when the first
        offset is not 0. `counts` is unspecified then.
    """

class TokenReader:
    """The bytes of values from a stream of ids that comes in blocks (columns.md 6.7).

    First all escape bytes, then `begin` or `zeros`, then the blocks of ids in order, then `take`. Used by one thread at
    a time. Memory: the bytes so far, a quarter more of it at most and no more than is expected, and 2 KiB.

    Parameters
    ----------
    tokens : TokenTable
    representation : int
        0 raw, 1 remap, 2 bits.
    table : buffer
        Of remap: two bytes an entry. May be filled until `begin`.
    n_values, n_ids, n_escapes : int
    max_bytes : int
        Bytes that the values may have together, ``n_escapes <= max_bytes <= 2**48``.
    grown : GrownBytes, optional
        Memory whose bytes are kept, and go on behind; empty until `take` gives it back.
    ahead : float
        How many times the bytes with this stream all bytes will be, about.

    Raises
    ------
    ValueError
        Here and in the methods: for arguments that do not fit together, and calls out of turn.
    MemoryError
        Likewise.
    """

    position: int
    """Bytes of the last block that were used."""

    def __init__(
        self,
        tokens: TokenTable,
        representation: int,
        table: NDArray[np.uint8],
        n_values: int,
        n_ids: int,
        n_escapes: int,
        max_bytes: int,
        grown: GrownBytes | None = None,
        ahead: float = 1.0,
    ) -> None: ...
    @property
    def ids(self) -> int:
        """Ids read so far."""

    @property
    def escapes(self) -> int:
        """Escape bytes used so far."""

    @property
    def bad_id(self) -> int:
        """The id that means nothing, after code 3."""

    @property
    def values(self) -> int:
        """Values that are whole."""

    def put_escapes(self, part: NDArray[np.uint8], at: int) -> None:
        """Take the escape bytes from number `at` on."""

    def begin(self, offsets: NDArray[Any], width: int) -> None:
        """Begin; `width` is that of packed ids in bits, else 0.

        `offsets`, int32 or int64 of shape (n_values + 1,), has the number of ids of value i at place ``i + 1`` (of
        int32 as uint32). Each is replaced by the end of its value once that is known.
        """

    def feed(self, block: NDArray[np.uint8], offsets: NDArray[Any]) -> int:
        """Read ids.

        Returns
        -------
        int
            0; 1 for a position outside the table, 2 for bytes after the last id, 3 for an id that means nothing, 4 for
            more than `max_bytes`, 5 for more escape ids than escape bytes; -2 when offsets must be int64 from here on:
            the caller copies them, and goes on at `position`.
        """

    def zeros(self, offsets: NDArray[Any]) -> None:
        """Make all values, whose ids are all 0; `offsets` as for `begin`, int64 where 32 bits do not reach."""

    def take(self) -> GrownBytes:
        """Return the memory with the bytes of all values, which is the caller's; the reader is done."""

class GrownBytes:
    """Memory that grows at its end: a writable buffer.

    Whoever looks at it while it grows goes on with the memory as it was, which is kept until this object dies.
    """

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def extend(self, more: int, ahead: float = 1.0) -> None:
        """Add bytes, whose contents are undefined.

        Parameters
        ----------
        more : int
        ahead : float
            How many times the bytes with these all bytes will be, about: room for them is made, a quarter more at most.

        Raises
        ------
        MemoryError
        """

    def fit(self) -> None:
        """Give back what is not used."""

class BpeModel:
    """The way from bytes to ids (columns.md 13.4).

    Parameters
    ----------
    tokens : TokenTable
        What the ids stand for; its escape id is used.
    byte_ids : ndarray of int32, shape (256,)
        Id of the token that is one byte, -1 where there is none.
    piece_offsets, piece_bytes : ndarray of int64, shape (p + 1,); ndarray of uint8
        Tokens that a whole piece may be, distinct.
    piece_ids : ndarray of uint16, shape (p,)
    merges : ndarray of uint16, shape (m, 4)
        Left id, right id, rank, id of the result. A later row of the same pair counts.
    special_offsets, special_bytes : ndarray of int64, shape (s + 1,); ndarray of uint8
        Special tokens, ascending, distinct, none empty.
    special_ids : ndarray of uint16, shape (s,)
    special_parents : ndarray of int32, shape (s,)
        Number of the longest other special that begins this one, or -1.

    Raises
    ------
    ValueError
        If the parts do not fit together.
    """

    def __init__(
        self,
        tokens: TokenTable,
        byte_ids: NDArray[np.int32],
        piece_offsets: NDArray[np.int64],
        piece_bytes: NDArray[np.uint8],
        piece_ids: NDArray[np.uint16],
        merges: NDArray[np.uint16],
        special_offsets: NDArray[np.int64],
        special_bytes: NDArray[np.uint8],
        special_ids: NDArray[np.uint16],
        special_parents: NDArray[np.int32],
    ) -> None: ...
    def encode(
        self,
        offsets: NDArray[np.int64],
        data: NDArray[np.uint8],
        blocks: NDArray[np.int64],
        ids: NDArray[np.uint16],
        escapes: NDArray[np.uint8],
        counts: NDArray[np.int64],
        block_ids: NDArray[np.int64],
        block_escapes: NDArray[np.int64],
        verify: bool,
        threads: int,
    ) -> int:
        """Tokenize values.

        Parameters
        ----------
        offsets : ndarray of int64, shape (n + 1,)
            From 0 to ``len(data)``, not decreasing; no value may have 2 GiB or more.
        data : ndarray of uint8
        blocks : ndarray of int64, shape (b + 1,)
            From 0 to n, not decreasing: the values that one thread takes at a time.
        ids : ndarray of uint16, at least as long as `data`
            Ids of block i begin at ``ids[offsets[blocks[i]]]``, without gaps between its values.
        escapes : ndarray of uint8, at least as long as `data`
            Escape bytes, in the same way.
        counts : ndarray of int64, shape (n,)
            Filled with the number of ids of each value.
        block_ids, block_escapes : ndarray of int64, shape (b,)
            Filled with the number of ids and of escape bytes of each block.
        verify : bool
            Compare what the ids of each value stand for with the value.
        threads : int

        Returns
        -------
        int
            -1 when all is well, or a value whose ids do not stand for it.

        Raises
        ------
        MemoryError
            If there is no scratch memory: 40 bytes per byte of the longest piece.
        """

def remap_encode(ids: NDArray[np.uint16], positions: NDArray[np.uint16], out: NDArray[np.uint8]) -> int:
    """Write ``positions[ids]`` as LEB128 varints; `positions` has 65536 entries.

    Returns
    -------
    int
        Bytes written, or -1 when `out` is too short.
    """

def bits_encode(ids: NDArray[np.uint16], width: int, out: NDArray[np.uint8]) -> bool:
    """Pack ids into `width` (1 to 16) bits each, most significant first; False when one does not fit.

    Raises
    ------
    ValueError
        If `out` has not exactly the bytes that this takes.
    """
