from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]

MORE: int
"""`walk`: the window ends inside a frame's header."""
INVALID: int
"""`walk`: no frame begins where it stopped."""
CRC: int
"""`open_all`: a frame's checksum does not fit."""
CHANGED: int
"""`open_all`: a frame is not the one that was found before."""

def crc32(data: Buffer, crc: int = 0) -> int:
    """Return the CRC-32 of `data` (as zlib's), behind bytes whose CRC-32 is `crc`."""

def walk(
    data: Buffer,
    at: int,
    base: int,
    offset: NDArray[np.int64],
    size: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Walk from frame to frame, ``data[0]`` being byte `base` of the file, without looking at payloads.

    Fills file offset, bytes (header included) and row count of each frame. Returns how many, the position in `data`
    behind the last (possibly behind `data`), and 0 (arrays full, or end of `data`), `MORE` or `INVALID`.
    """

def open_all(
    data: Buffer,
    base: int,
    offset: NDArray[np.int64],
    size: NDArray[np.int64],
    rows: NDArray[np.int64],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    zstd: NDArray[np.uint8],
) -> tuple[int, int]:
    """Check frames, header and checksum, and fill where in `data` their payloads are and which are compressed.

    Returns (0, -1), or `CRC` or `CHANGED` and the first bad frame's number.
    """

def last_sound(
    data: Buffer, base: int, offset: NDArray[np.int64], size: NDArray[np.int64], rows: NDArray[np.int64]
) -> int:
    """Return the number of the last frame that `open_all` would accept, -1 if there is none; from the end backwards."""
