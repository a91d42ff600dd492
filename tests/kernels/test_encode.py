"""Kernels that encode columns, against their plain twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.formats.columns import plain_encode as twins
from colstore_io.kernels import encode as kernels

VALUES = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from([b"", b"a", b"ab", b"prefix-1-suffix", b"prefix-22-suffix", b"\0" * 8, b"\0" * 9]),
    ),
    max_size=30,
)


def column(values, dtype=np.int32, lead=0):
    """Return offsets and data of `values`, with bytes before and behind them that belong to nobody."""
    data = np.frombuffer(b"#" * lead + b"".join(values) + b"#" * lead, np.uint8)
    return (np.cumsum([lead, *map(len, values)])).astype(dtype), data


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
@given(st.data())
def test_delta_equals_its_twin(dtype, data):
    info = np.iinfo(dtype)
    values = np.array(data.draw(st.lists(st.integers(info.min, info.max), max_size=9)), dtype)
    got, expected = np.zeros((2, len(values)), np.uint64)
    kernels.delta(values.view(np.uint8), values.itemsize, info.min < 0, got)
    twins.delta(values.view(np.uint8), values.itemsize, info.min < 0, expected)
    assert got.tolist() == expected.tolist()


@given(st.integers(0, 32), st.integers(0, 70), st.randoms(use_true_random=False))
def test_packing_equals_its_twin(width, n, random):
    codes = np.array([random.getrandbits(width) if width else 0 for _ in range(n)], np.uint32)
    got, expected = np.zeros((2, (n * width + 7) // 8), np.uint8)
    kernels.pack_bits(codes, width, got)
    twins.pack_bits(codes, width, expected)
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@given(st.lists(st.integers(0, 255), max_size=60), st.integers(0, 70))
def test_codes_of_fixed_values_equal_their_twin(width, values, limit):
    raw = np.array(values, f"u{width}").view(np.uint8)
    results = []
    for module in (kernels, twins):
        codes = np.zeros(len(values), np.uint32)
        firsts = np.zeros(min(len(values), limit), np.uint32)
        found = module.fixed_codes(raw, width, limit, 99, codes, firsts)
        results.append((found, codes.tolist() if found >= 0 else None, firsts[: max(found, 0)].tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@given(values=VALUES, limit=st.integers(0, 31), lead=st.integers(0, 3))
def test_codes_of_variable_values_equal_their_twin(dtype, values, limit, lead):
    offsets, data = column(values, dtype, lead)
    results = []
    for module in (kernels, twins):
        codes = np.zeros(len(values), np.uint32)
        firsts = np.zeros(min(len(values), limit), np.uint32)
        found = module.variable_codes(offsets, data, limit, 5, codes, firsts)
        results.append((found, codes.tolist() if found >= 0 else None, firsts[: max(found, 0)].tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("n", [8191, 8192])  # with a hash table, and with a table of all values
@pytest.mark.parametrize("limit", [4000, 5000])
def test_codes_of_two_byte_values_equal_their_twin_however_many_they_are(n, limit):
    values = np.random.default_rng(n).integers(0, 1 << 16, 5000).astype(np.uint16)[np.arange(n) * 7 % 5000]
    distinct = len(np.unique(values))
    assert 4000 < distinct < 5000
    results = []
    for module in (kernels, twins):
        codes, firsts = np.zeros(n, np.uint32), np.zeros(limit, np.uint32)
        found = module.fixed_codes(values.view(np.uint8), 2, limit, 99, codes, firsts)
        results.append((found, codes.tolist() if found >= 0 else None, firsts[: max(found, 0)].tolist()))
    assert results[0] == results[1]
    assert results[0][0] == (distinct if limit == 5000 else -1)


def test_a_dictionary_grows_past_its_first_table():
    values = np.arange(50_000, dtype=np.uint64) % 30_000 * 0x9E3779B97F4A7C15
    codes, firsts = np.empty(50_000, np.uint32), np.empty(50_000, np.uint32)
    assert kernels.fixed_codes(values.view(np.uint8), 8, 50_000, 0, codes, firsts) == 30_000
    assert (codes == np.arange(50_000) % 30_000).all()
    assert (firsts[:30_000] == np.arange(30_000)).all()


@given(st.lists(st.integers(0, 9), max_size=40))
def test_renumbering_equals_its_twin(old):
    results = []
    for module in (kernels, twins):
        number, order, codes = np.zeros(10, np.uint32), np.zeros(10, np.uint32), np.zeros(len(old), np.uint32)
        used = module.renumber(np.array(old, np.int64), number, codes, order)
        results.append((used, codes.tolist(), order[:used].tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@given(values=VALUES, lead=st.integers(0, 3))
@settings(max_examples=200)
def test_variable_kernels_equal_their_twins(dtype, values, lead):
    offsets, data = column(values, dtype, lead)
    prefix, suffix = kernels.affixes(offsets, data)
    assert (prefix, suffix) == twins.affixes(offsets, data)
    total = sum(map(len, values))
    for cut in {(0, 0), (prefix, suffix)}:
        got, expected = np.zeros((2, total + len(values) * (4 - sum(cut))), np.uint8)
        kernels.prefixed(offsets, data, *cut, got)
        twins.prefixed(offsets, data, *cut, expected)
        assert got.tobytes() == expected.tobytes()
    rows = np.arange(0, len(values), 2, dtype=np.uint32)
    assert kernels.entry_bytes(offsets, data, rows) == sum(map(len, values[::2]))
    got, expected = np.zeros((2, 4 * len(rows) + sum(map(len, values[::2]))), np.uint8)
    kernels.put_entries(offsets, data, rows, got)
    twins.put_entries(offsets, data, rows, expected)
    assert got.tobytes() == expected.tobytes()
    assert kernels.longest(offsets, data) == max(map(len, values), default=0)
    if not values:
        return
    expected_bounds = twins.bounds(offsets, data)
    for skip in {0, prefix}:
        least, greatest, *lengths = kernels.bounds(offsets, data, skip)
        assert values[least] == values[expected_bounds[0]]
        assert values[greatest] == values[expected_bounds[1]]
        assert lengths == list(expected_bounds[2:])
    row, *rest = kernels.quirky_bounds(offsets, data)
    expected_row, *expected_rest = twins.quirky_bounds(offsets, data)
    assert values[row] == values[expected_row]
    assert rest == expected_rest


@given(st.one_of(st.binary(max_size=300), st.integers(0, 3000).map(lambda n: b"ab" * n)))
def test_lzw_equals_its_twin(data):
    got, expected = np.zeros((2, 2 * len(data) + 16), np.uint8)
    length = kernels.lzw(np.frombuffer(data, np.uint8), got)
    assert length == twins.lzw(data, expected)
    assert got[:length].tobytes() == expected[:length].tobytes()


def test_lzw_equals_its_twin_over_table_resets():
    data = np.random.default_rng(3).integers(0, 7, 60_000, dtype=np.uint8)
    for n in (0, 1, 5000, 59_999, 60_000):
        got, expected = np.zeros((2, 2 * n + 16), np.uint8)
        length = kernels.lzw(data[:n], got)
        assert length == twins.lzw(data[:n], expected)
        assert (got == expected).all()


def test_lzw_of_incompressible_bytes_stays_in_its_bound():
    data = np.random.default_rng(4).integers(0, 256, 100_000, dtype=np.uint8)
    out = np.empty(2 * len(data) + 16, np.uint8)
    assert kernels.lzw(data, out) < 1.51 * len(data)


@pytest.mark.parametrize("offsets", [[0, 2, 1], [-1, 2], [0, 4], [0, 2**31 - 1]])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_offsets_that_leave_the_data_are_refused(offsets, dtype):
    offsets, data = np.array(offsets, dtype), np.zeros(3, np.uint8)
    n = len(offsets) - 1
    room = np.zeros(n, np.uint32)
    for call in (
        lambda: kernels.affixes(offsets, data),
        lambda: kernels.bounds(offsets, data),
        lambda: kernels.quirky_bounds(offsets, data),
        lambda: kernels.longest(offsets, data),
        lambda: kernels.variable_codes(offsets, data, n, 0, room, room),
        lambda: kernels.entry_bytes(offsets, data, room),
        lambda: kernels.prefixed(offsets, data, 0, 0, np.zeros(10, np.uint8)),
    ):
        with pytest.raises(ValueError, match="offset"):
            call()


def test_outputs_of_a_wrong_size_are_refused():
    offsets, data = column([b"ab", b"c"])
    with pytest.raises(ValueError, match="11 bytes"):
        kernels.prefixed(offsets, data, 0, 0, np.zeros(12, np.uint8))
    with pytest.raises(ValueError, match="shorter"):
        kernels.prefixed(offsets, data, 2, 0, np.zeros(7, np.uint8))
    with pytest.raises(ValueError, match="shorter"):
        kernels.bounds(offsets, data, 2)
    with pytest.raises(ValueError):
        kernels.put_entries(offsets, data, np.array([0], np.uint32), np.zeros(5, np.uint8))
    with pytest.raises(ValueError, match="row 7"):
        kernels.put_entries(offsets, data, np.array([7], np.uint32), np.zeros(5, np.uint8))
    with pytest.raises(ValueError):
        kernels.lzw(data, np.zeros(10, np.uint8))
    with pytest.raises(ValueError):
        kernels.pack_bits(np.zeros(3, np.uint32), 33, np.zeros(13, np.uint8))
    with pytest.raises(ValueError):
        kernels.delta(data, 8, True, np.zeros(1, np.uint64))
    with pytest.raises(ValueError):
        kernels.renumber(
            np.array([3]), np.zeros(3, np.uint32), np.zeros(1, np.uint32), np.zeros(3, np.uint32)
        )


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=3), st.integers(0, 45))
def test_finding_equals_its_twin(data, needle, begin):
    for haystack in (data, needle + data, data + needle, data + needle[:-1]):
        assert kernels.find(haystack, needle, begin) == twins.find(haystack, needle, begin)


def test_a_search_for_nothing_is_refused():
    with pytest.raises(ValueError, match="needle"):
        kernels.find(b"abc", b"")
