"""Raw DEFLATE and whole chunks of fixed width: the kernels against the standard library's zlib and NumPy."""

from __future__ import annotations

import pickle
import threading
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io import kernels_numpy_columns as twins
from colstore_io.kernels.inflate import FixedBlocks, inflate

STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED)


def deflated(data, level=6, strategy=zlib.Z_DEFAULT_STRATEGY):
    stream = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy)
    return stream.compress(data) + stream.flush()


def inflated(stream, size):
    """Return what the kernel says, and what it wrote; nothing is written behind `size`."""
    memory = np.full(size + 64, 0xA5, np.uint8)
    code = inflate(stream, memory[:size])
    assert (memory[size:] == 0xA5).all()
    return code, memory[:size].tobytes()


def expected(stream, size):
    """Return the bytes of a stream of at most `size` bytes by zlib; None for any other."""
    memory = np.zeros(size, np.uint8)
    code = twins.inflate(stream, memory)
    return memory[:code].tobytes() if code >= 0 else None


@st.composite
def contents(draw):
    """Bytes as they occur: noise, few values, a pattern of any period, numbers, text."""
    n = draw(st.sampled_from([0, 1, 2, 7, 100, 700, 5000, 70_000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return rng.integers(0, 256, n, np.uint8).tobytes()
    if kind == 1:
        return rng.geometric(draw(st.sampled_from([0.02, 0.3, 0.9])), n).astype(np.uint8).tobytes()
    if kind == 2:
        pattern = rng.integers(0, 256, draw(st.integers(1, 40)), np.uint8).tobytes()
        return (pattern * (n // len(pattern) + 1))[:n]
    if kind == 3:
        return (np.arange(n // 8 + 1) * 1.0001).tobytes()[:n]
    if kind == 4:
        return b"".join(b"id-%d-suffix" % i for i in range(n // 11 + 1))[:n]
    if kind == 5:
        return bytes(n)
    noise = rng.integers(0, 256, n, np.uint8)
    noise[n // 3 : n // 2] = 7
    return noise.tobytes()


@given(contents(), st.integers(0, 9), st.sampled_from(STRATEGIES), st.binary(max_size=40))
@settings(max_examples=150, deadline=None)
def test_what_zlib_deflates_is_inflated_and_what_follows_ignored(data, level, strategy, tail):
    stream = deflated(data, level, strategy)
    assert inflated(stream + tail, len(data)) == (len(data), data)
    assert inflated(stream, len(data) + 500)[0] == len(data)
    if data:
        code, written = inflated(stream, len(data) - 1)
        assert (code, written) == (-3, data[:-1])


@given(contents(), st.integers(1, 9), st.data())
@settings(max_examples=150, deadline=None)
def test_damage_is_refused_where_zlib_refuses_it(data, level, draw):
    stream = deflated(data, level)
    cut = draw.draw(st.integers(0, len(stream) - 1))
    assert inflated(stream[:cut], len(data))[0] in (-1, -2)
    damaged = bytearray(stream)
    at = draw.draw(st.integers(0, len(stream) - 1))
    damaged[at] ^= 1 << draw.draw(st.integers(0, 7))
    code, written = inflated(bytes(damaged), len(data))
    want = expected(bytes(damaged), len(data))
    assert (code >= 0) == (want is not None)
    if want is not None:
        assert written[:code] == want


@given(st.binary(max_size=300), st.integers(0, 2000))
@settings(max_examples=500)
def test_any_bytes_are_read_or_refused_like_zlib_does(stream, size):
    code, written = inflated(stream, size)
    want = expected(stream, size)
    assert (code >= 0) == (want is not None)
    if want is not None:
        assert written[:code] == want


def test_one_distance_of_one_bit_is_a_code():
    data = b"a" * 1000  # one distance
    assert inflated(deflated(data, 9), 1000) == (1000, data)


def blocks_of(raw, size, packed):
    parts = [raw[at : at + size] for at in range(0, max(1, len(raw)), size)]
    stored = [deflated(part) for part in parts] if packed else parts
    lengths = [np.array([len(part) for part in column], np.int64) for column in (stored, parts)]
    return b"".join(stored), *lengths


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_plain_and_delta_are_read_at_once(width, packed, threads):
    values = np.random.default_rng(0).integers(0, 100, 30_011).astype(f"u{width}")
    differences = np.diff(values.astype(np.uint64), prepend=np.uint64(0)).tobytes()
    for raw, size, delta, kernel in (
        (values.tobytes(), 1000, False, FixedBlocks),
        (differences, 8000, True, FixedBlocks),
        (values.tobytes(), 1000, False, twins.FixedBlocks),
        (differences, 8000, True, twins.FixedBlocks),
    ):
        blocks = kernel(*blocks_of(raw, size, packed), width, packed, delta)
        assert (blocks.n_values, blocks.raw_bytes) == (len(values), len(raw))
        for _ in range(2):
            out = np.zeros(len(values), values.dtype)
            assert blocks.read(out.view(np.uint8), threads) == -1
            np.testing.assert_array_equal(out, values)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_threads_share_blocks_and_sums_are_added_in_the_end(width):
    values = np.random.default_rng(0).integers(0, 100, 10_000).astype(f"u{width}")
    differences = np.diff(values.astype(np.uint64), prepend=np.uint64(0)).tobytes()
    for raw, size, delta in ((values.tobytes(), 999, False), (differences, 8000, True)):
        blocks = FixedBlocks(*blocks_of(raw, size, True), width, True, delta)
        out, cells = np.zeros_like(values), np.zeros(2 + blocks.n_blocks, np.int64)
        cells[1] = -1
        threads = [
            threading.Thread(target=blocks.take_part, args=(out.view(np.uint8), cells)) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert blocks.end(out.view(np.uint8), cells) == -1
        np.testing.assert_array_equal(out, values)
        with pytest.raises(ValueError, match="taking part"):
            blocks.take_part(out.view(np.uint8), cells[1:].copy())
    plain = FixedBlocks(*blocks_of(bytes(80), 40, False), 8, False, False)
    with pytest.raises(ValueError, match="taking part"):
        plain.take_part(np.zeros(80, np.uint8), np.zeros(4, np.int64))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("delta", [False, True])
def test_a_damaged_block_is_told_by_its_number(delta, threads):
    raw = np.random.default_rng(0).integers(0, 9, 4000).tobytes()
    data, stored, lengths = blocks_of(raw, 8000, True)
    damaged = bytearray(data)
    damaged[int(stored[:2].sum()) + 20] ^= 0xFF
    blocks = FixedBlocks(bytes(damaged), stored, lengths, 8, True, delta)
    out = np.zeros(4000, np.int64)
    if threads == 1:
        found = blocks.read(out.view(np.uint8), 1)
    else:
        cells = np.zeros(2 + blocks.n_blocks, np.int64)
        cells[1] = -1
        blocks.take_part(out.view(np.uint8), cells)
        found = blocks.end(out.view(np.uint8), cells)
    if found < 0:  # the flip gave another sound stream of the same length
        assert out.tobytes() != raw
    else:
        assert found == 2


def test_blocks_that_do_not_fit_are_refused():
    good = blocks_of(bytes(80), 40, False)
    for data, stored, raw, width, packed, delta in (
        (good[0][:-1], good[1], good[2], 8, False, False),
        (good[0], good[1], good[2][:1], 8, False, False),
        (good[0], good[1], good[2] + 1, 8, False, False),
        (good[0], good[1], good[2] + 1, 8, True, True),
        (good[0], good[1], good[2], 3, False, False),
        (good[0], good[1] * 0 - 1, good[2], 8, True, False),
        (good[0][:77], np.array([77]), np.array([77]), 8, False, False),
        (b"", np.empty(0, np.int64), np.empty(0, np.int64), 8, False, False),
    ):
        with pytest.raises(ValueError, match=r"block|width"):
            FixedBlocks(data, stored, raw, width, packed, delta)
    blocks = FixedBlocks(*good, 8, False, False)
    with pytest.raises(ValueError, match="80 bytes"):
        blocks.read(np.zeros(72, np.uint8), 1)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(blocks)
    empty = FixedBlocks(b"", np.zeros(1, np.int64), np.zeros(1, np.int64), 8, False, False)
    assert empty.read(np.empty(0, np.uint8), 2) == -1
