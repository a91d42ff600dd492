from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colstore_io.kernels import tokens as kernels

TEXTS = [b"a", b"", b"bcd", b"x" * 15, b"y" * 16, b"z" * 300]


def table(texts: list[bytes] = TEXTS, escape: int = 6) -> kernels.TokenTable:
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return kernels.TokenTable(offsets, np.frombuffer(b"".join(texts), np.uint8), escape)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@given(st.lists(st.lists(st.integers(0, 6), max_size=20), max_size=10), st.integers(1, 3), st.integers(1, 2))
def test_values_are_measured_and_copied(rows, per_block, threads):
    ids = np.array([i for row in rows for i in row], np.uint16)
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    blocks = np.unique([*range(0, len(rows), per_block), len(rows)]).astype(np.int64)
    escapes = np.arange(int((ids == 6).sum())).astype(np.uint8)
    rest = iter(escapes.tolist())
    expected = [b"".join(TEXTS[i] if i < 6 else bytes([next(rest)]) for i in row) for row in rows]
    lengths, per_block_escapes = np.empty(len(rows), np.int64), np.empty(len(blocks) - 1, np.int64)
    what = table()
    assert what.lengths(ids, starts, blocks, 1 << 20, lengths, per_block_escapes, threads) == -1
    assert lengths.tolist() == [len(value) for value in expected]
    assert per_block_escapes.sum() == len(escapes)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    escape_starts = np.concatenate([[0], np.cumsum(per_block_escapes)]).astype(np.int64)
    guarded = np.full(int(offsets[-1]) + 32, 0xEE, np.uint8)
    out = guarded[: offsets[-1]]
    assert what.copy(ids, starts, blocks, offsets, escapes, escape_starts, out, threads)
    assert out.tobytes() == b"".join(expected)
    assert (guarded[offsets[-1] :] == 0xEE).all()


def test_bad_ids_are_found_before_anything_is_copied():
    ids = np.array([0, 7, 0, 9], np.uint16)
    args = (ids, ints(0, 2, 4), ints(0, 1, 2), 100, np.empty(2, np.int64), np.empty(2, np.int64), 1)
    assert table().lengths(*args) == 1


def test_places_that_do_not_fit_are_refused_without_writing_outside():
    ids = np.array([5, 0], np.uint16)
    out = np.zeros(10, np.uint8)
    assert not table().copy(
        ids, ints(0, 2), ints(0, 1), ints(0, 10), np.empty(0, np.uint8), ints(0, 0), out, 1
    )
    assert not table().copy(
        ids, ints(0, 99), ints(0, 1), ints(0, 10), np.empty(0, np.uint8), ints(0, 0), out, 1
    )
    ids = np.array([6], np.uint16)
    assert not table().copy(
        ids, ints(0, 1), ints(0, 1), ints(0, 10), np.empty(0, np.uint8), ints(0, 0), out, 1
    )
    lengths = np.empty(1, np.int64)
    assert table().lengths(ids, ints(0, 99), ints(0, 1), 100, lengths, np.empty(1, np.int64), 1) == -3
    assert table().lengths(ids, ints(-1, 1), ints(0, 1), 100, lengths, np.empty(1, np.int64), 1) == -3


def test_arguments_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError):
        kernels.TokenTable(ints(0, 5), np.zeros(4, np.uint8), 1)
    with pytest.raises(ValueError):
        kernels.TokenTable(ints(0, 3, 2, 4), np.zeros(4, np.uint8), 1)
    with pytest.raises(ValueError):
        table(escape=65536)
    with pytest.raises(ValueError):
        table().lengths(
            np.zeros(1, np.uint16), ints(0, 1), ints(0, 2), 9, np.empty(1, np.int64), np.empty(1, np.int64), 1
        )
    with pytest.raises(ValueError):
        kernels.boundaries_decode(np.zeros(5, np.uint8), 0, 1, np.empty(2, np.int64))
    with pytest.raises(ValueError):
        kernels.bits_decode(np.zeros(2, np.uint8), 17, np.empty(1, np.uint16), 1)


@given(st.integers(1, 16), st.lists(st.integers(0, 65535), max_size=50), st.integers(1, 2))
def test_bits_are_packed_most_significant_first(width, values, threads):
    values = [value >> (16 - width) for value in values]
    ids = np.array(values, np.uint16)
    text = "".join(f"{value:0{width}b}" for value in values)
    expected = bytes(int(text[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(text), 8))
    out = np.empty(len(expected), np.uint8)
    assert kernels.bits_encode(ids, width, out)
    assert out.tobytes() == expected
    back = np.empty_like(ids)
    kernels.bits_decode(out, width, back, threads)
    assert np.array_equal(back, ids)
    if width < 16:
        assert not kernels.bits_encode(
            np.array([1 << width], np.uint16), width, np.empty(-(-width // 8), np.uint8)
        )


@given(st.lists(st.integers(0, 40_000), max_size=50))
def test_varints_come_back(values):
    table = np.arange(40_001, dtype="<u2").view(np.uint8)
    ids = np.array(values, np.uint16)
    out = np.empty(3 * len(ids), np.uint8)
    n = kernels.remap_encode(ids, np.arange(65536).astype(np.uint16), out)
    back = np.empty_like(ids)
    assert kernels.remap_decode(out[:n], table, back) == 0
    assert np.array_equal(back, ids)
    if n:
        assert kernels.remap_encode(ids, np.arange(65536).astype(np.uint16), out[: n - 1]) == -1
        assert kernels.remap_decode(out[: n - 1], table, back) in (1, 2)


@given(st.lists(st.integers(0, 9), max_size=10))
def test_boundaries_come_back_from_all_kinds(counts):
    expected = np.cumsum([0, *counts])
    steps = np.diff(counts, prepend=0) if counts else np.empty(0, np.int64)
    words = (counts, expected[:-1], np.where(steps >= 0, 2 * steps, -2 * steps - 1))
    for kind, stream in enumerate(words):
        starts = np.empty(len(counts) + 1, np.int64)
        raw = np.asarray(stream).astype("<u4").view(np.uint8)
        assert kernels.boundaries_decode(raw, kind, int(expected[-1]), starts) == 0
        assert starts.tolist() == expected.tolist()
