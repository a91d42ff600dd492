"""Many files that say the same: the headers of shards differ in row counts alone.

Whatever does not look exactly like the first file is left to the general reader, which also finds the words for it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

from ...kernels import heads as kernel
from ...storage import ByteFile, HeadBlock, LocalFiles
from .. import ShardMeta
from ..siblings import Siblings
from .header import COUNTERS_OFFSET, COUNTERS_SIZE, MAGIC, MANIFEST_LENGTH_OFFSET, MANIFEST_OFFSET
from .records import BODY_ALIGNMENT, RECORD_HEADER_SIZE, body_bytes, record_says

__all__ = ["read_alike", "read_block"]

_COUNTERS = struct.Struct("<qqqI")
_INT64_MAX = (1 << 63) - 1


def read_alike(
    model: ShardMeta, files: Sequence[ByteFile], heads: Sequence[memoryview]
) -> list[ShardMeta | None]:
    """Return what those files hold that have the columns of `model` and one record.

    Parameters
    ----------
    model : ShardMeta
        Of the first file.
    files : sequence of ByteFile
    heads : sequence of buffer
        First bytes of each file.

    Returns
    -------
    list of ShardMeta or None
        None for the first file, and for each one that passes not all checks of cstore.md section 11 or has other
        columns, another number of records, or a header longer than its first bytes.

    Notes
    -----
    A file costs one comparison of its header with the first file's, two look-ups and one object: 3 us, where the
    general reader takes 30. Counters and record headers are checked once for each distinct content, of which shards
    of equal row counts have one.
    """
    result: list[ShardMeta | None] = [None] * len(files)
    if model.layout != "C" or model.n_records != 1:
        return result
    record = int(model.body_start[0]) - RECORD_HEADER_SIZE
    width = record + RECORD_HEADER_SIZE
    first = bytes(heads[0][:width])
    if len(first) < width:
        return result
    # The manifest is compared with its length; the padding behind it is free (cstore.md 1).
    text_end = MANIFEST_OFFSET + int.from_bytes(first[MANIFEST_LENGTH_OFFSET:MANIFEST_OFFSET], "little")
    text = first[MANIFEST_LENGTH_OFFSET:text_end]
    counters_end = COUNTERS_OFFSET + COUNTERS_SIZE
    known: dict[bytes, ShardMeta | None] = {}
    for i in range(1, len(files)):
        head = bytes(heads[i][:width])
        if len(head) < width or head[MANIFEST_LENGTH_OFFSET:text_end] != text or not head.startswith(MAGIC):
            continue
        key = head[COUNTERS_OFFSET:counters_end] + head[record:]
        if key in known:
            twin = known[key]
        else:
            twin = known[key] = _sized(model, key[:COUNTERS_SIZE], key[COUNTERS_SIZE:], width)
        file = files[i]
        if twin is not None and twin.committed_end <= file.size:
            result[i] = twin.sibling(path=file.spelling, file_size=file.size)
    return result


def _sized(model: ShardMeta, counters: bytes, record: bytes, body_start: int) -> ShardMeta | None:
    """Return `model` with these counters and this header of its one record; None if they are not sound."""
    n_records, n_rows, stats_offset, crc = _COUNTERS.unpack_from(counters)
    if zlib.crc32(counters[:24]) != crc or n_records != 1 or not record_says(record, 0, n_rows):
        return None
    if n_rows < 0 or n_rows * model.row_bytes > _INT64_MAX - 7:
        return None
    return model.sibling(
        record_rows=np.array([n_rows], np.int64),
        n_rows=n_rows,
        committed_end=body_start + body_bytes(n_rows, model.row_bytes),
        statistics=None,
        stats_offset=stats_offset,
        counters=counters,
    )


def read_block(model: ShardMeta, files: LocalFiles, heads: HeadBlock) -> Siblings | None:
    """Return what files hold that all have the columns of `model` and one record; None if one of them does not.

    Parameters
    ----------
    model : ShardMeta
        Of the first file, whose header lies in its head.
    files : LocalFiles
    heads : HeadBlock

    Notes
    -----
    The checks of `read_alike`, 0.15 us a file, and no objects.
    """
    record = int(model.body_start[0]) - RECORD_HEADER_SIZE if model.n_records == 1 else -1
    room = heads.block.shape[1]
    if model.layout != "C" or model.row_bytes == 0 or not 0 <= record <= room - RECORD_HEADER_SIZE:
        return None
    block = heads.block
    text_end = MANIFEST_OFFSET + int.from_bytes(
        block[0, MANIFEST_LENGTH_OFFSET:MANIFEST_OFFSET].tobytes(), "little"
    )
    if text_end > record:
        return None
    rows = np.empty(len(files), np.int64)
    if kernel.alike(block, heads.states, text_end, record, model.row_bytes, rows) != len(files):
        return None
    counters = block[:, COUNTERS_OFFSET : COUNTERS_OFFSET + COUNTERS_SIZE].copy()
    body_start = record + RECORD_HEADER_SIZE
    return Siblings(
        model,
        files.spellings,
        rows,
        body_start + -(-(rows * model.row_bytes) // BODY_ALIGNMENT) * BODY_ALIGNMENT,
        counters[:, 16:24].copy().view("<i8")[:, 0].astype(np.int64),
        files.sizes,
        counters,
    )
