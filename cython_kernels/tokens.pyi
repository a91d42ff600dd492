"""Token ids to bytes and back (columns.md 6.7, 13.3, 13.4).

Arrays are C-contiguous; nothing is kept but where stated.
"""

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
    def lengths(
        self,
        ids: NDArray[np.uint16],
        starts: NDArray[np.int64],
        blocks: NDArray[np.int64],
        max_bytes: int,
        lengths: NDArray[np.int64],
        escapes: NDArray[np.int64],
        threads: int,
    ) -> int:
        """Measure values.

        Parameters
        ----------
        ids : ndarray of uint16
        starts : ndarray of int64, shape (n + 1,)
            Value v has the ids ``[starts[v], starts[v + 1])``.
        blocks : ndarray of int64, shape (b + 1,)
            From 0 to n, not decreasing: the values that one thread takes at a time.
        max_bytes : int
            Bytes that a block may have; at most 2**48.
        lengths : ndarray of int64, shape (n,)
            Filled with the bytes of each value.
        escapes : ndarray of int64, shape (b,)
            Filled with the number of escape ids of each block.
        threads : int

        Returns
        -------
        int
            -1 when all is well, the position of an id that means nothing, -2 for a block with more than
            `max_bytes` bytes, -3 for starts that are no positions of ids. Outputs are unspecified then.
        """

    def copy(
        self,
        ids: NDArray[np.uint16],
        starts: NDArray[np.int64],
        blocks: NDArray[np.int64],
        offsets: NDArray[np.int64],
        escapes: NDArray[np.uint8],
        escape_starts: NDArray[np.int64],
        out: NDArray[np.uint8],
        threads: int,
    ) -> bool:
        """Write the bytes of all values.

        Parameters
        ----------
        ids, starts, blocks
            As in `lengths`.
        offsets : ndarray of int64, shape (n + 1,)
            Places of the values in `out`: the running sum of their lengths.
        escapes : ndarray of uint8
        escape_starts : ndarray of int64, shape (b + 1,)
            Places of the blocks' escape bytes: the running sum of their numbers.
        out : ndarray of uint8

        Returns
        -------
        bool
            False when ids do not fill exactly their places, or do not use exactly the escape bytes. Nothing is written
            outside `out` even then.
        """

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

def boundaries_decode(stream: NDArray[np.uint8], kind: int, n_ids: int, starts: NDArray[np.int64]) -> int:
    """Read boundaries: counts (kind 0), offsets (1) or zigzag deltas of counts (2), four bytes each.

    `starts`, shape (n + 1,), is filled with the place of each value's first id, and `n_ids`.

    Returns
    -------
    int
        0; 1 when they do not add up to `n_ids`, 2 when they decrease or a count is negative, 3 when the first
        offset is not 0.
    """

def remap_decode(stream: NDArray[np.uint8], table: NDArray[np.uint8], ids: NDArray[np.uint16]) -> int:
    """Read LEB128 positions into `table` (two bytes an entry), as many as `ids` has places.

    Returns
    -------
    int
        0; 1 when the stream ends too early, 2 at a position outside the table, 3 when bytes are left over.
    """

def remap_encode(ids: NDArray[np.uint16], positions: NDArray[np.uint16], out: NDArray[np.uint8]) -> int:
    """Write ``positions[ids]`` as LEB128 varints; `positions` has 65536 entries.

    Returns
    -------
    int
        Bytes written, or -1 when `out` is too short.
    """

def bits_decode(stream: NDArray[np.uint8], width: int, ids: NDArray[np.uint16], threads: int) -> None:
    """Read ids of `width` (1 to 16) bits, most significant first.

    Raises
    ------
    ValueError
        If the stream has not exactly the bytes that this takes.
    """

def bits_encode(ids: NDArray[np.uint16], width: int, out: NDArray[np.uint8]) -> bool:
    """Pack ids into `width` (1 to 16) bits each, most significant first; False when one does not fit.

    Raises
    ------
    ValueError
        If `out` has not exactly the bytes that this takes.
    """
