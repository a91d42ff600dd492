"""Picked rows of a short stream that repeats long values are refused before there is memory for them."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from formats.columns.columns_builder import chunk, file_of
from formats.columns.reading import opened

from colstore_io.errors import FormatError
from colstore_io.taking import Take

N = 8192
LONG = b"x" * 65536
STREAMS = {
    4: struct.pack("<III", N, 1, 0) + struct.pack("<II", 1, 0) + LONG,  # Dict of one entry
    6: struct.pack("<I", len(LONG)) + LONG + bytes(4) + bytes(4) * N,  # Affix: all prefix
}


@pytest.mark.parametrize("encoding", list(STREAMS))
@pytest.mark.parametrize("part", [False, True])
def test_the_limit_holds_before_values_are_copied(encoding: int, part: bool) -> None:
    raw = file_of([(b"c", 13, False)], [(N, [(chunk(encoding, STREAMS[encoding]), {})])])
    decoder = opened(raw, max_decoded_bytes=1 << 20).decoder
    ((offset, length),) = decoder.ranges(0, [0])
    data = [memoryview(raw)[offset : offset + length]]
    rows = np.ones(N, np.bool_)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="max_decoded_bytes"):
            decoder.decode(0, [0], data, rows=(0, N - 1)) if part else decoder.take(
                0, [0], data, Take(0, mask=rows)
            )
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
