from typing import Any

import numpy as np
from numpy.typing import NDArray

Buffer = Any
"""Contiguous bytes: bytes, memoryview, or an array of uint8."""

def inflate(source: Buffer, out: NDArray[np.uint8]) -> int:
    """Inflate one raw DEFLATE stream (RFC 1951). Releases the GIL.

    Parameters
    ----------
    source : buffer
        The stream; what follows its last block is not looked at. Another program may change the memory meanwhile.
    out : ndarray of uint8

    Returns
    -------
    int
        Bytes written; -1: the stream is cut short, -2: it is damaged, -3: it has more bytes than `out`, which holds the
        first of them then.
    """

class FixedBlocks:
    """The blocks of a chunk of fixed width without nulls, as often as its values are wanted.

    Parameters
    ----------
    data : buffer
        Stored bytes of the blocks, back to back; held and never copied.
    stored, raw : ndarray of int64, shape (N,)
        Lengths of the blocks after and before compression.
    width : {1, 2, 4, 8}
        Bytes of a value.
    deflated : bool
        Raw DEFLATE, else not compressed.
    differences : bool
        Delta (columns.md 6.3) in blocks of whole differences, else Plain.

    Attributes
    ----------
    n_values : int
    raw_bytes : int
        Of all blocks.
    n_blocks : int
    deflated_bytes : int
        Stored bytes that are to be inflated.

    Raises
    ------
    ValueError
        For lengths that do not fit each other or the data.
    """

    n_values: int
    raw_bytes: int
    n_blocks: int
    deflated_bytes: int

    def __init__(
        self,
        data: Buffer,
        stored: NDArray[np.int64],
        raw: NDArray[np.int64],
        width: int,
        deflated: bool,
        differences: bool,
    ) -> None: ...
    def read(self, out: NDArray[np.uint8], threads: int) -> int:
        """Fill `out`, of ``n_values * width`` bytes. Releases the GIL.

        `threads` share what is merely copied; what is inflated stays in this thread, see `take_part`.

        Returns
        -------
        int
            -1, or the number of a block that is damaged or has another length; `out` is unspecified then.

        Notes
        -----
        Takes one block beside the result, for differences; nothing for Plain.
        """

    def take_part(self, out: NDArray[np.uint8], cells: NDArray[np.int64]) -> None:
        """Inflate blocks until none is left, beside other threads that do the same. Releases the GIL.

        Takes one block beside the result, for differences.

        Parameters
        ----------
        out : ndarray of uint8
            As in `read`.
        cells : ndarray of int64, shape (2 + n_blocks,)
            ``[0, -1, 0, ...]`` at first, shared by all.
        """

    def end(self, out: NDArray[np.uint8], cells: NDArray[np.int64]) -> int:
        """Finish what threads took part in, all of which have returned; returns as `read` does."""
