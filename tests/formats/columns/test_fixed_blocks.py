"""Whole chunks of fixed width on the short road."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from colstore_io.formats.columns.fixed_blocks import FixedBlocks


def deflated(data: bytes) -> bytes:
    pack = zlib.compressobj(6, zlib.DEFLATED, -15)
    return pack.compress(data) + pack.flush()


def blocks_of(raw: bytes, size: int, packed: bool, width: int, delta: bool) -> FixedBlocks:
    parts = [raw[at : at + size] for at in range(0, max(1, len(raw)), size)]
    stored = [deflated(part) for part in parts] if packed else parts
    data = b"".join(stored) + bytes(5)  # chunks may end in zeros
    return FixedBlocks(
        memoryview(data), [*map(len, stored)], [*map(len, parts)], width, deflated=packed, differences=delta
    )


def differences_of(values):
    return np.diff(values.astype(np.uint64), prepend=np.uint64(0)).tobytes()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_plain_and_delta_are_read_again_and_again(width, packed, threads):
    # Random bytes, so that there is enough to inflate for threads to share it.
    values = np.random.default_rng(0).integers(0, 256, width * 150_011, np.uint8).view(f"u{width}")
    for raw, size, delta in ((values.tobytes(), 99_999, False), (differences_of(values), 80_000, True)):
        blocks = blocks_of(raw, size, packed, width, delta)
        assert blocks.raw_bytes == len(raw)
        for _ in range(2):
            out = np.zeros(len(values), values.dtype)
            assert blocks.read(out.view(np.uint8), threads)
            np.testing.assert_array_equal(out, values)


def test_a_long_copy_is_shared_by_threads():
    values = np.random.default_rng(0).integers(0, 1 << 40, 700_001)
    out = np.zeros_like(values)
    assert blocks_of(values.tobytes(), 1 << 18, False, 8, False).read(out.view(np.uint8), 3)
    np.testing.assert_array_equal(out, values)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("harm", ["flipped", "short", "long"])
def test_a_damaged_block_is_noticed(delta, threads, harm):
    raw = np.random.default_rng(0).integers(0, 1 << 62, 40_000).tobytes()
    parts = [raw[at : at + 80_000] for at in range(0, len(raw), 80_000)]
    stored = [deflated(part) for part in parts]
    stored[2] = {
        "flipped": bytes([stored[2][0] | 6]) + stored[2][1:],  # a reserved kind of block
        "short": deflated(parts[2][:-8]),
        "long": deflated(parts[2] + bytes(8)),
    }[harm]
    blocks = FixedBlocks(
        memoryview(b"".join(stored)),
        [*map(len, stored)],
        [*map(len, parts)],
        8,
        deflated=True,
        differences=delta,
    )
    assert not blocks.read(np.zeros(len(raw), np.uint8), threads)


def test_no_rows_are_read_too():
    assert blocks_of(b"", 8, False, 8, False).read(np.empty(0, np.uint8), 2)
    assert blocks_of(b"", 8, True, 4, True).read(np.empty(0, np.uint8), 2)
