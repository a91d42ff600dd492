from typing import Any

import numpy as np
from numpy.typing import NDArray

Buffer = Any
"""A contiguous buffer of bytes; read-only will do."""

class FooterTypes:
    """Tables of the types of a footer (`formats.columns.gob.TypeTables`), kept for `parse_footer`.

    Only their lengths are checked.
    """

    def __init__(
        self,
        kind: NDArray[np.int32],
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        field_type: NDArray[np.int32],
        actions: NDArray[np.int32],
        action_start: NDArray[np.int64],
        role_type: NDArray[np.int64],
    ) -> None: ...

def parse_footer(
    data: Buffer, start: int, end: int, types: FooterTypes
) -> tuple[int, int, tuple[bytes, ...], bytes, bytes, bytearray, bytearray]:
    """Read the value of a gob stream (columns.md 8.4) in ``data[start:end]``.

    Returns
    -------
    (code, position, names, kinds, nullable, groups, chunks)
        Of each column its name, and a byte for its type and whether it is nullable; records of ``gob.h`` of groups and
        chunks. A code other than 0 says what is wrong at `position`, and the rest is of no use.
    """

def place_chunks(
    groups: Buffer,
    chunks: Buffer,
    nullable: Buffer,
    low: int,
    high: int,
    n_tokenizers: int,
    max_rows: int,
    out: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Check the records of a footer against each other (columns.md 12.2), and place their chunks.

    Parameters
    ----------
    groups, chunks : buffer
        Records as from `parse_footer`.
    nullable : buffer of C bytes
    low, high : int
        Chunks lie between these file offsets.
    out : ndarray of int64, shape (3 * R + R * C,)
        Filled with the rows of each group, their file offsets, their ends, and the file offset of each chunk.

    Returns
    -------
    (code, group, column)
        Code 0, or what ``gob.h`` calls ``PLACE_...``; 7 is no fault: groups are not in file order.
    """

class FooterFile:
    """An open local file of version 1 whose footer was read and passed every check. Made by `open_footer`.

    Any method may be called from several threads.
    """

    columns: bytes
    """What the footer says of the columns, as it stands there: equal bytes mean equal names, types and flags."""

    @property
    def n_rows(self) -> int:
        """Rows of all groups."""

    @property
    def state(self) -> tuple[int, int, int]:
        """Size, modification time in nanoseconds and inode of the file when it was opened."""

    @property
    def read(self) -> tuple[int, int, float]:
        """Number of reads, their bytes, seconds."""

    @property
    def span(self) -> tuple[int, int]:
        """Where the footer begins in the file, and its bytes."""

    def take_descriptor(self) -> int:
        """Hand over the descriptor, to be closed by the caller; -1 when it was taken or closed before."""

    def close(self) -> None:
        """Close the descriptor, unless it was handed over. The rest stays."""

    def parts(self) -> tuple[bytes, tuple[bytes, ...], bytes, bytes, int, bytearray, bytearray]:
        """Return copies: the footer, names, types and flags as `parse_footer` has them, R, chunks, places.

        ``places`` are int64 as in `place_chunks`, shape (3 * R + R * C,).
        """

def open_footer(path: str, types: FooterTypes, prefix: bytes, max_rows: int) -> FooterFile | None:
    """Open an ordinary file: version 1, the usual definitions, row groups in file order, nothing wrong.

    Parameters
    ----------
    path : str
        Absolute.
    types, prefix : FooterTypes, bytes
        Definitions that the footer must begin with, and their tables; type 64 is the value's.
    max_rows : int
        Rows that a row group may claim.

    Returns
    -------
    FooterFile or None
        None for everything else: no such file, a folder, too many files open by this already (64), any damage. The
        ways that read part by part have words for it.
    """
