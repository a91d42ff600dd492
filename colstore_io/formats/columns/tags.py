"""Numbers that stand in a columns file, and what they mean (columns.md sections 2, 5 and 7)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

__all__ = [
    "ALIGNMENT",
    "BLOCK_BYTES",
    "CHUNK_HEADER_BYTES",
    "DIGEST_BYTES",
    "MAGIC",
    "NUMPY_TYPES",
    "OLD_MAGICS",
    "PLAIN_WIDTH",
    "READABLE",
    "SUFFIX",
    "TRAILER_BYTES",
    "WRITABLE",
    "Codec",
    "Encoding",
    "Type",
]

ALIGNMENT = 8
"""Of the file offset of values that can be used where they are: what the widest type asks for."""

MAGIC = b"ABCD"
"""First and last four bytes of a file."""

OLD_MAGICS = {b"COLS": "v0.3.0 and v0.3.1", b"KEIN": "v0.1.0"}
"""Magics of older releases of the format, which are refused (section 2)."""

SUFFIX = ".abcd"

DIGEST_BYTES = 32
"""Bytes of a tokenizer's digest (SHA-256)."""

TRAILER_BYTES = 8
"""Footer length and trailing magic."""

CHUNK_HEADER_BYTES = 18
"""Bytes of a chunk before its block table (section 3.1)."""

BLOCK_BYTES = 262144
"""Default cut of an encoded stream into blocks (section 3.2)."""


class Type(IntEnum):
    """Type of a column (section 5)."""

    BOOL = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT8 = 6
    UINT16 = 7
    UINT32 = 8
    UINT64 = 9
    FLOAT32 = 10
    FLOAT64 = 11
    BYTES = 12
    STRING = 13

    @property
    def fixed(self) -> bool:
        """True when every value has the same width."""
        return self <= Type.FLOAT64


class Encoding(IntEnum):
    """How the values of a chunk became a stream of bytes (section 6)."""

    PLAIN = 1
    RLE_BITPACK = 2
    DELTA = 3
    DICT = 4
    OFFSET_BYTES = 5
    AFFIX = 6
    TOKENIZED = 7


class Codec(IntEnum):
    """How the blocks of a chunk are compressed (section 7)."""

    NONE = 0
    ZSTD = 1
    FLATE = 2
    GZIP = 3
    ZLIB = 4
    LZW = 5


NUMPY_TYPES: dict[Type, np.dtype[Any]] = {
    Type.BOOL: np.dtype("?"),
    Type.INT8: np.dtype("<i1"),
    Type.INT16: np.dtype("<i2"),
    Type.INT32: np.dtype("<i4"),
    Type.INT64: np.dtype("<i8"),
    Type.UINT8: np.dtype("<u1"),
    Type.UINT16: np.dtype("<u2"),
    Type.UINT32: np.dtype("<u4"),
    Type.UINT64: np.dtype("<u8"),
    Type.FLOAT32: np.dtype("<f4"),
    Type.FLOAT64: np.dtype("<f8"),
}
"""Stored dtype of the types of fixed width; also the Plain encoding's layout (section 6.1)."""

PLAIN_WIDTH: dict[Type, int] = {kind: dtype.itemsize for kind, dtype in NUMPY_TYPES.items()}
"""Bytes of a value of the types of fixed width."""

_INTEGERS = (
    Type.INT8,
    Type.INT16,
    Type.INT32,
    Type.INT64,
    Type.UINT8,
    Type.UINT16,
    Type.UINT32,
    Type.UINT64,
)

WRITABLE: dict[Type, frozenset[Encoding]] = {
    Type.BOOL: frozenset({Encoding.PLAIN, Encoding.RLE_BITPACK, Encoding.DICT}),
    **dict.fromkeys(_INTEGERS, frozenset({Encoding.PLAIN, Encoding.DELTA, Encoding.DICT})),
    Type.FLOAT32: frozenset({Encoding.PLAIN, Encoding.DICT}),
    Type.FLOAT64: frozenset({Encoding.PLAIN, Encoding.DICT}),
    Type.BYTES: frozenset(
        {Encoding.PLAIN, Encoding.DICT, Encoding.OFFSET_BYTES, Encoding.AFFIX, Encoding.TOKENIZED}
    ),
    Type.STRING: frozenset({Encoding.PLAIN, Encoding.DICT, Encoding.AFFIX, Encoding.TOKENIZED}),
}
"""Encodings that a writer may apply to a type (table in section 5)."""

READABLE: dict[Type, frozenset[Encoding]] = {
    **WRITABLE,
    Type.STRING: WRITABLE[Type.STRING] | {Encoding.OFFSET_BYTES},
}
"""Encodings that a reader serves: OffsetBytes on text too, which no writer makes (section 5)."""
