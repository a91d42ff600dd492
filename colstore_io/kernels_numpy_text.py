"""The kernels of `kernels.fixed_text` in NumPy: what they mean, and what runs without compiled code.

Same names, arguments and results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["text_offsets", "write_text"]

_BLOCK_ITEMS = 1 << 20


def _matrix(rows: NDArray[np.uint8], width: int, itemsize: int, n: int) -> NDArray[Any]:
    if itemsize not in (1, 4):
        raise ValueError(f"itemsize must be 1 or 4, got {itemsize}")
    if width < 1 or n < 0 or len(rows) != n * width * itemsize:
        raise ValueError(f"{len(rows)} bytes are not {n} rows of {width} items of {itemsize} bytes")
    return rows.view(np.uint32 if itemsize == 4 else np.uint8).reshape(n, width)


def _blocks(n_rows: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK_ITEMS // width)
    for start in range(0, n_rows, step):
        yield slice(start, min(n_rows, start + step))


def _items(block: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which items of each row are none of its padding."""
    used: NDArray[np.bool_] = np.logical_or.accumulate(block[:, ::-1] != 0, axis=1)[:, ::-1]
    return used


def _sizes(codes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the UTF-8 size of each code, -1 where it has none."""
    sizes = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000).astype(np.int64)
    return np.where((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000)), -1, sizes)


def text_offsets(
    rows: NDArray[np.uint8],
    width: int,
    itemsize: int,
    offsets: NDArray[np.int64],
    present: NDArray[np.uint8] | None = None,
    *,
    threads: int = 1,
) -> int:
    """Fill `offsets`; see `kernels.fixed_text.text_offsets`."""
    del threads
    n = len(offsets) - 1
    matrix = _matrix(rows, width, itemsize, n)
    if present is not None and len(present) != n:
        raise ValueError(f"there are {len(present)} flags for {n} rows")
    offsets[0] = 0
    for part in _blocks(n, width):
        used = _items(matrix[part])
        if present is not None:
            used &= present[part, None] != 0
        each = np.where(used, _sizes(matrix[part]) if itemsize == 4 else 1, 0)
        bad = np.flatnonzero((each < 0).any(axis=1))
        if bad.size:
            return int(part.start) + int(bad[0])
        offsets[part.start + 1 : part.stop + 1] = each.sum(axis=1)
    np.cumsum(offsets, out=offsets)
    return -1


def write_text(
    rows: NDArray[np.uint8],
    width: int,
    itemsize: int,
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    *,
    threads: int = 1,
) -> None:
    """Write the bytes of rows; see `kernels.fixed_text.write_text`."""
    del threads
    n = len(offsets) - 1
    matrix = _matrix(rows, width, itemsize, n)
    if n and (offsets[0] < 0 or offsets[-1] > len(data) or (np.diff(offsets) < 0).any()):
        raise ValueError(f"offsets do not ascend within {len(data)} bytes")
    for part in _blocks(n, width):
        used = _items(matrix[part]) & (np.diff(offsets[part.start : part.stop + 1]) > 0)[:, None]
        found = matrix[part][used]
        text = (
            found.astype("<u4").tobytes().decode("utf-32-le").encode() if itemsize == 4 else found.tobytes()
        )
        data[offsets[part.start] : offsets[part.stop]] = np.frombuffer(text, np.uint8)
