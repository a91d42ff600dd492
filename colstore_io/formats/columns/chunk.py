"""One column of one row group as it stands in the file: header, block table, null bitmap (columns.md 3, 4 and 12.2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError, UnsupportedFeatureError
from ...kernels import decode as kernel
from .decompress import expansion
from .tags import CHUNK_HEADER_BYTES, PLAIN_WIDTH, READABLE, Codec, Encoding, Type

__all__ = ["Chunk", "ChunkFacts", "Place", "parse_chunk"]

_HEADER = struct.Struct("<BBIIII")
_FEW_BLOCKS = 8
_ENCODINGS = {int(tag): tag for tag in Encoding}
_CODECS = {int(tag): tag for tag in Codec}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a chunk is, for messages."""

    path: str
    group: int
    column: str
    offset: int

    @property
    def section(self) -> str:
        return f"row group {self.group}, column {self.column!r}"

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        """Raise `FormatError`; `at` counts bytes from the beginning of the chunk."""
        offset = self.offset if at is None else self.offset + at
        raise FormatError(message, path=self.path, offset=offset, section=self.section)

    def refuse(self, message: str) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise UnsupportedFeatureError(message, path=self.path, offset=self.offset, section=self.section)


@dataclass(frozen=True, slots=True)
class ChunkFacts:
    """What the footer says about a chunk, and what a caller allows it to become."""

    type: Type
    nullable: bool
    n_rows: int
    null_count: int
    encoding: int
    codec: int
    max_decoded_bytes: int

    @property
    def n_values(self) -> int:
        """Values that are not null."""
        return self.n_rows - self.null_count


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk whose header was checked.

    Attributes
    ----------
    encoding : Encoding
    codec : Codec
    bitmap : memoryview or None
        Null bitmap, 1 = null; None when there are no nulls.
    raw_length : int
        Bytes of the encoded stream.
    data : memoryview
        Stored bytes of the blocks, back to back.
    raw, stored : list of int
        Length of each block before and after compression.
    data_offset : int
        Bytes of the chunk before `data`.
    """

    encoding: Encoding
    codec: Codec
    bitmap: memoryview | None
    raw_length: int
    data: memoryview
    raw: list[int]
    stored: list[int]
    data_offset: int


def parse_chunk(data: memoryview, facts: ChunkFacts, place: Place) -> Chunk:
    """Read a chunk's header and check it against the footer, without decompressing anything.

    Nothing is allocated in proportion to a length that was not compared with the bytes present.

    Raises
    ------
    FormatError
        For each rule of 12.2 that a header alone can break.
    """
    size = len(data)
    if size < CHUNK_HEADER_BYTES:
        place.fail(f"a chunk of {size} bytes; its header alone has {CHUNK_HEADER_BYTES}")
    encoding_tag, codec_tag, n_bitmap, n_raw, n_data, n_blocks = _HEADER.unpack_from(data)
    if n_blocks < 1:
        place.fail("a chunk without blocks", 14)
    start = CHUNK_HEADER_BYTES + 8 * n_blocks
    if start + n_bitmap + n_data > size:
        place.fail(
            f"{n_blocks} blocks, {n_bitmap} bytes of null bitmap and {n_data} bytes of data do not fit into a chunk of "
            f"{size} bytes",
            2,
        )
    encoding, codec = _tags(encoding_tag, codec_tag, facts, place)
    raw, stored = _blocks(data, n_blocks, codec, place)
    if sum(raw) != n_raw:
        place.fail(f"the blocks hold {sum(raw)} raw bytes, the header says {n_raw}", 6)
    if sum(stored) > n_data:
        place.fail(f"the blocks take {sum(stored)} bytes, the header says {n_data}", 10)
    _check_raw_length(n_raw, encoding, facts, place)
    bitmap = _bitmap(data[start : start + n_bitmap], facts, place, start)
    begin = start + n_bitmap
    return Chunk(encoding, codec, bitmap, n_raw, data[begin : begin + n_data], raw, stored, begin)


def _blocks(data: memoryview, n: int, codec: Codec, place: Place) -> tuple[list[int], list[int]]:
    """Read and check the table of `n` blocks, which is there: their lengths before and after compression."""
    if n <= _FEW_BLOCKS:  # most chunks of small tables: no array is worth its making
        pairs = struct.unpack_from(f"<{2 * n}I", data, CHUNK_HEADER_BYTES)
        raw, stored = list(pairs[::2]), list(pairs[1::2])
        most = expansion(codec) if codec is not Codec.NONE else 0
        for at in range(n):
            sound = stored[at] > 0 and raw[at] <= most * stored[at] if most else raw[at] == stored[at]
            if not sound:
                _check_blocks(np.array(raw), np.array(stored), codec, place)
        return raw, stored
    table: NDArray[np.int64] = (
        np.frombuffer(data, "<u4", 2 * n, CHUNK_HEADER_BYTES).reshape(-1, 2).astype(np.int64)
    )
    _check_blocks(table[:, 0], table[:, 1], codec, place)
    return table[:, 0].tolist(), table[:, 1].tolist()


def _tags(encoding: int, codec: int, facts: ChunkFacts, place: Place) -> tuple[Encoding, Codec]:
    if (encoding, codec) != (facts.encoding, facts.codec):
        place.fail(
            f"encoding {encoding} and codec {codec}, but the footer says {facts.encoding} and {facts.codec}",
            0,
        )
    known = _ENCODINGS.get(encoding)
    if known is None:
        place.fail(f"encoding {encoding} is unknown; encodings are 1 to 7", 0)
    if known not in READABLE[facts.type]:
        place.fail(f"encoding {known.name} does not suit a column of type {facts.type.name}", 0)
    used = _CODECS.get(codec)
    if used is None:
        place.fail(f"codec {codec} is unknown; codecs are 0 to 5", 1)
    return known, used


def _check_blocks(raw: NDArray[np.int64], stored: NDArray[np.int64], codec: Codec, place: Place) -> None:
    if codec is Codec.NONE:
        wrong = np.flatnonzero(raw != stored)
        reason = "a block that is not compressed has as many raw as stored bytes"
    else:
        # An empty stream of any codec takes bytes, so a block without any is none.
        wrong = np.flatnonzero((stored == 0) | (raw > expansion(codec) * stored))
        reason = f"{codec.name} cannot expand so far"
    if len(wrong):
        at = int(wrong[0])
        place.fail(
            f"block {at} turns {int(stored[at])} bytes into {int(raw[at])}: {reason}",
            CHUNK_HEADER_BYTES + 8 * at,
        )


def _check_raw_length(n_raw: int, encoding: Encoding, facts: ChunkFacts, place: Place) -> None:
    n, kind, limit = facts.n_values, facts.type, facts.max_decoded_bytes
    if kind.fixed:
        needed = PLAIN_WIDTH[kind] * facts.n_rows
    else:
        needed = 4 * (facts.n_rows + 1)  # offsets alone
    if needed > limit:
        place.fail(f"{facts.n_rows} rows decode to more than {limit} bytes (max_decoded_bytes)")
    if encoding is Encoding.DELTA:
        exact = 8 * n
    elif encoding is Encoding.RLE_BITPACK:
        exact = (n + 7) // 8
    elif encoding is Encoding.PLAIN and kind.fixed:
        exact = PLAIN_WIDTH[kind] * n
    else:
        least, most = (
            0,
            4 * limit + 64,
        )  # a dictionary with its indices and offsets may take more than its values
        if encoding in (Encoding.PLAIN, Encoding.OFFSET_BYTES):
            least = 4 * n if encoding is Encoding.PLAIN else 4 + 4 * n
            most = least + limit
        if n_raw < least:
            place.fail(f"{n_raw} bytes of {encoding.name} cannot hold {n} values", 6)
        if n_raw > most:
            place.fail(f"{n_raw} encoded bytes decode to more than {limit} (max_decoded_bytes)", 6)
        return
    if n_raw != exact:
        place.fail(f"{n} values of {encoding.name} take {exact} bytes, the header says {n_raw}", 6)


def _bitmap(bitmap: memoryview, facts: ChunkFacts, place: Place, at: int) -> memoryview | None:
    """Check the null bitmap (section 4); None when it says nothing."""
    if len(bitmap) == 0:
        if facts.null_count:
            place.fail(f"the footer counts {facts.null_count} nulls, but there is no null bitmap", 2)
        return None
    if not facts.nullable:
        place.fail("a null bitmap in a column that is not nullable", 2)
    if len(bitmap) != (facts.n_rows + 7) // 8:
        place.fail(
            f"a null bitmap of {len(bitmap)} bytes; {facts.n_rows} rows need {(facts.n_rows + 7) // 8}", 2
        )
    nulls = kernel.count_nulls(bitmap, facts.n_rows)
    if nulls < 0:
        place.fail("the null bitmap has bits past the last row", at + len(bitmap) - 1)
    if nulls != facts.null_count:
        place.fail(f"the null bitmap has {nulls} nulls, the footer counts {facts.null_count}", at)
    return bitmap if nulls else None
