"""Kernels of columns files against their twins in NumPy, and against what they must refuse."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io import kernels_numpy_columns as twins
from colstore_io.kernels import decode

WIDTHS = st.sampled_from([1, 2, 4, 8])


def both(name, arguments, outputs):
    """Call a kernel and its twin, each with copies of `outputs`; return (result, outputs) of both."""
    results = []
    for module in (decode, twins):
        copies = [output.copy() for output in outputs]
        results.append((getattr(module, name)(*arguments(*copies)), copies))
    return results


def agree(name, arguments, *outputs):
    """Assert that kernel and twin return and write the same; return what the kernel did."""
    (one, first), (other, second) = both(name, arguments, outputs=outputs)
    assert one == other
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    return one, first


def prefixed(values):
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def bitmap_of(nulls):
    return np.packbits(np.array(nulls, bool), bitorder="little").tobytes()


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40), WIDTHS, st.integers(0, 2**64 - 1))
def test_delta_is_a_running_sum_modulo_two_to_the_64(steps, width, carry):
    stream = np.array(steps, "<u8").tobytes()
    agree("delta", lambda out: (stream, out, width, carry), np.empty(len(steps) * width, np.uint8))


@given(st.lists(st.booleans(), max_size=70))
def test_bits_become_booleans(flags):
    stream = np.packbits(np.array(flags, bool)).tobytes()
    _, (out,) = agree("bools", lambda out: (stream, out), np.empty(len(flags), np.uint8))
    assert out.tolist() == flags
    bitmap = bitmap_of(flags)
    _, (out,) = agree("validity", lambda out: (bitmap, out), np.empty(len(flags), np.uint8))
    assert out.tolist() == [not flag for flag in flags]
    assert agree("count_nulls", lambda: (bitmap, len(flags)))[0] == sum(flags)


@given(st.binary(min_size=1, max_size=4), st.integers(1, 7))
def test_bits_past_the_last_row_are_noticed(bitmap, spare):
    n = 8 * len(bitmap) - spare
    agree("count_nulls", lambda: (bitmap, n))


@given(st.lists(st.booleans(), max_size=70), WIDTHS, st.randoms(use_true_random=False))
def test_values_move_between_nulls_in_place(nulls, width, random):
    values = np.frombuffer(random.randbytes(len(nulls) * width), np.uint8) if nulls else np.empty(0, np.uint8)
    agree("expand", lambda out: (out, width, bitmap_of(nulls)), values)


@given(
    st.integers(1, 32),
    st.integers(0, 60),
    st.integers(0, 40),
    st.integers(1, 9),
    st.randoms(use_true_random=False),
)
def test_packed_numbers_come_whatever_the_cuts(width, skip, n, size, random):
    stream = random.randbytes((skip + width * n + 7) // 8 + 2)
    for limit in ((1 << 32) - 1, max(1, 1 << max(0, width - 1))):
        found = []
        for module in (decode, twins):
            out = np.zeros(n, np.uint32)
            reader = module.PackedReader(width, limit, out.view(np.uint8), skip)
            codes = [reader.feed(stream[at : at + size]) for at in range(0, len(stream), size)]
            bad = next((code for code in codes if code >= 0), -1)
            found.append((bad, reader.numbers if bad < 0 else None, out.tolist() if bad < 0 else None))
        assert found[0] == found[1]
        if found[0][0] < 0:
            assert found[0][1] == n


@given(st.integers(1, 32), st.integers(1, 3), st.randoms(use_true_random=False))
def test_packed_numbers_come_in_windows(width, blocks, random):
    n = 5000
    stream = random.randbytes((width * n + 7) // 8)
    out = np.zeros(n, np.uint32)
    reader = decode.PackedReader(width, (1 << 32) - 1, out.view(np.uint8))
    size = -(-len(stream) // blocks)
    for at in range(0, len(stream), size):
        reader.feed(stream[at : at + size])
    bits = np.unpackbits(np.frombuffer(stream, np.uint8))[: n * width].reshape(n, width).astype(np.uint64)
    want = (bits << np.arange(width, dtype=np.uint64)[::-1]).sum(axis=1)
    stop = reader.numbers  # a number of 32 ones is no number below the limit
    assert stop == n or want[stop:].max() == (1 << 32) - 1
    np.testing.assert_array_equal(out[:stop], want[:stop])


@given(st.data(), WIDTHS)
def test_packed_numbers_choose_entries(data, item):
    entries = np.frombuffer(data.draw(st.binary(min_size=item, max_size=20 * item)), np.uint8)
    entries = entries[: len(entries) // item * item]
    count = len(entries) // item
    chosen = data.draw(st.lists(st.integers(0, count - 1), max_size=30))
    width = (count - 1).bit_length()
    text = "".join(format(i, f"0{width}b") for i in chosen) if width else ""
    stream = np.packbits(np.array([int(bit) for bit in text], np.uint8)).tobytes()
    for module in (decode, twins):
        out = np.zeros(len(chosen) * item, np.uint8)
        reader = module.PackedReader(width, count, out, 0, entries, item)
        assert (reader.feed(stream) if width else reader.zeros()) == -1
        assert out.tobytes() == b"".join(entries[i * item : (i + 1) * item].tobytes() for i in chosen)


def test_a_number_that_is_too_large_is_told_by_its_position():
    for module in (decode, twins):
        reader = module.PackedReader(8, 3, np.zeros(20, np.uint8))
        assert reader.feed(b"\x01\x02") == -1
        assert reader.feed(b"\x00\x03\x01") == 3
        assert module.PackedReader(0, 0, np.zeros(8, np.uint8)).zeros() == 0


VALUES = st.lists(st.binary(max_size=70), max_size=12)
OFFSETS = st.sampled_from([np.int32, np.int64])


@given(VALUES, OFFSETS, st.data())
def test_prefixed_values_are_read_whatever_the_cuts(values, dtype, data):
    stream = prefixed(values)
    size = data.draw(st.integers(1, max(1, len(stream))))
    for module in (decode, twins):
        offsets = np.empty(len(values) + 1, dtype)
        area = np.empty(sum(map(len, values)), np.uint8)
        reader = module.PlainReader(offsets, area)
        for at in range(0, len(stream), size):
            assert reader.feed(stream[at : at + size]) == 0
        assert reader.complete
        assert reader.ascii == stream.isascii()
        assert reader.values == len(values)
        assert [area[a:b].tobytes() for a, b in itertools.pairwise(offsets)] == values


@given(st.binary(max_size=60), st.integers(0, 5), st.integers(1, 60))
def test_any_bytes_are_read_or_refused_alike(stream, n, size):
    outcomes = []
    for module in (decode, twins):
        offsets = np.zeros(n + 1, np.int64)
        area = np.zeros(max(0, len(stream) - 4 * n), np.uint8)
        reader = module.PlainReader(offsets, area)
        code = 0
        for at in range(0, len(stream), size):
            code = reader.feed(stream[at : at + size])
            if code:
                break
        outcomes.append((code, not code and reader.complete))
    assert outcomes[0] == outcomes[1]


@given(VALUES, st.integers(0, 40), st.integers(0, 12))
def test_values_that_lie_whole_in_a_block_are_found(values, cut, most):
    block = prefixed(values)[: len(prefixed(values)) - cut] if cut else prefixed(values)
    most = min(most, len(values))
    (found, used), (starts, lengths) = agree(
        "plain_spans", lambda *places: (block, *places), np.full(most, -7), np.full(most, -7)
    )
    whole = list(
        itertools.takewhile(lambda end: end <= len(block), itertools.accumulate(4 + len(v) for v in values))
    )
    assert found == min(most, len(whole))
    assert used == (whole[found - 1] if found else 0)
    assert [block[a : a + n] for a, n in zip(starts[:found], lengths[:found], strict=True)] == values[:found]


@given(VALUES.filter(bool), st.binary(max_size=40), st.binary(max_size=3), st.data())
def test_chosen_values_are_copied_between_their_affixes(values, prefix, suffix, data):
    block = b"".join(values)
    lengths = np.array([len(value) for value in values])
    starts = np.cumsum(lengths) - lengths
    chosen = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=9)), np.int64)
    affix = len(prefix) + len(suffix)
    size, _ = agree("measure_chosen", lambda: (len(block), starts, lengths, chosen, affix, 1 << 40))
    expected = [prefix + values[number] + suffix for number in chosen]
    assert size == sum(map(len, expected))
    if size:
        assert (
            agree("measure_chosen", lambda: (len(block), starts, lengths, chosen, affix, size - 1))[0] == -1
        )
    _, (ends, out) = agree(
        "copy_values",
        lambda ends, out: (block, starts, lengths, chosen, ends, out, prefix, suffix),
        np.zeros(len(chosen), np.int64),
        np.zeros(size, np.uint8),
    )
    assert out.tobytes() == b"".join(expected)
    assert ends.tolist() == list(itertools.accumulate(map(len, expected)))


@pytest.mark.parametrize(
    ("start", "length", "number"),
    [(-1, 1, 0), (0, -1, 0), (3, 2, 0), (5, 0, 0), (0, 1, 1), (0, 1, -1), (1 << 62, 1 << 62, 0)],
)
def test_values_outside_their_block_are_not_copied(start, length, number):
    places = np.array([start]), np.array([length]), np.array([number])
    assert agree("measure_chosen", lambda: (4, *places, 0, 1 << 40))[0] == -1
    for module in (decode, twins):
        with pytest.raises(ValueError, match="exactly the bytes"):
            module.copy_values(b"abcd", *places, np.zeros(1, np.int64), np.zeros(1, np.uint8))


@given(VALUES, OFFSETS, st.data())
def test_offsets_are_spread_over_nulls(values, dtype, data):
    dense = np.cumsum([0, *map(len, values)]).astype(dtype)
    nulls = data.draw(st.permutations([False] * len(values) + [True] * data.draw(st.integers(0, 9))))
    offsets = np.zeros(len(nulls) + 1, dtype)
    offsets[len(nulls) - len(values) :] = dense
    _, (spread,) = agree("spread_offsets", lambda out: (out, bitmap_of(nulls)), offsets)
    assert np.diff(spread).tolist() == [0 if null else len(values.pop(0)) for null in nulls]


@given(st.lists(st.integers(0, 50), max_size=12), OFFSETS)
def test_offset_tables_are_read_where_they_stand(starts, dtype):
    starts.sort()
    n = len(starts)
    out = np.zeros(n + 1, dtype)
    memory = out.view(np.uint8)
    first = 0 if out.itemsize == 4 else len(memory) - 4 * n
    memory[first : first + 4 * n] = np.frombuffer(np.array(starts, "<u4").tobytes(), np.uint8)
    assert decode.offset_table(memory[first : first + 4 * n], 60, out) == -1
    assert out.tolist() == [*starts, 60]


@given(st.lists(st.integers(0, 50), max_size=12), st.booleans(), st.integers(0, 50), OFFSETS)
def test_offset_tables_must_not_decrease_or_leave_the_area(starts, ordered, area, dtype):
    table = np.array(sorted(starts) if ordered else starts, "<u4").tobytes()
    (one, first), (other, second) = both(
        "offset_table", lambda out: (table, area, out), [np.zeros(len(starts) + 1, dtype)]
    )
    assert one == other
    if one < 0:
        np.testing.assert_array_equal(first[0], second[0])


@given(VALUES.filter(bool), OFFSETS, st.data())
def test_variable_entries_are_taken_by_index(values, dtype, data):
    area = b"".join(values)
    bounds = np.cumsum([0, *map(len, values)]).astype(np.uint32)
    indices = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=20)), np.uint32)
    size, _ = agree("measure_entries", lambda: (indices, bounds, 1 << 40))
    if size:
        assert agree("measure_entries", lambda: (indices, bounds, size - 1))[0] == -1
    _, (offsets, out) = agree(
        "take_variable",
        lambda offsets, out: (indices, bounds, area, offsets, out),
        np.empty(len(indices) + 1, dtype),
        np.empty(size, np.uint8),
    )
    found = [out[a:b].tobytes() for a, b in itertools.pairwise(offsets)]
    assert found == [values[i] for i in indices]
    in_place = np.zeros(len(indices) + 1, dtype)
    codes = in_place.view(np.uint32)[in_place.nbytes // 4 - len(indices) :]
    codes[:] = indices
    again = np.empty(size, np.uint8)
    decode.take_variable(codes, bounds, area + bytes(32), in_place, again)
    np.testing.assert_array_equal(in_place, offsets)
    np.testing.assert_array_equal(again, out)
    with pytest.raises(ValueError, match="outside"):
        decode.measure_entries(np.array([len(values)], np.uint32), bounds, 1 << 40)


@given(VALUES, st.binary(max_size=40), st.binary(max_size=9), OFFSETS, st.integers(1, 30))
def test_affixes_are_put_around_middles(values, prefix, suffix, dtype, size):
    stream = prefixed(values)
    whole = [prefix + value + suffix for value in values]
    for module in (decode, twins):
        offsets, data = np.empty(len(values) + 1, dtype), np.empty(sum(map(len, whole)), np.uint8)
        reader = module.PlainReader(offsets, data, prefix, suffix)
        for at in range(0, len(stream), size):
            assert reader.feed(stream[at : at + size]) == 0
        assert reader.complete
        assert [data[a:b].tobytes() for a, b in itertools.pairwise(offsets)] == whole


@given(st.binary(max_size=60), st.integers(0, 5), st.integers(0, 40), st.integers(1, 30))
def test_any_middles_are_refused_alike(stream, n, capacity, size):
    outcomes = []
    for module in (decode, twins):
        reader = module.PlainReader(np.zeros(n + 1, np.int32), np.zeros(capacity, np.uint8), b"ab", b"c")
        code = 0
        for at in range(0, len(stream), size):
            code = reader.feed(stream[at : at + size])
            if code:
                break
        outcomes.append((code, not code and reader.complete))
    assert outcomes[0] == outcomes[1]


TEXTS = st.lists(
    st.one_of(
        st.text(max_size=12).map(str.encode),
        st.binary(max_size=6),
        st.sampled_from(
            [b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98\x80"]
        ),
    ),
    max_size=8,
)


@given(TEXTS, OFFSETS)
@settings(max_examples=300)
def test_utf8_is_told_like_python_does(values, dtype):
    data = b"".join(values)
    offsets = np.cumsum([0, *map(len, values)]).astype(dtype)
    agree("first_not_utf8", lambda: (data, offsets))


def test_a_character_cut_between_two_values_is_no_text():
    assert decode.first_not_utf8("é".encode(), np.array([0, 1, 2], np.int32)) == 0


@pytest.mark.parametrize("at", [0, 4095, 4096, 9000, 9999])
def test_one_bad_byte_is_found_in_long_text(at):
    data = np.full(10_000, ord("a"), np.uint8)
    data[at] = 0xFF
    assert decode.first_not_utf8(data, np.arange(0, 10_001, 100, np.int32)) == at // 100


def packed_codes(codes):
    """Return an Lzw stream of these codes, at the widths that a decoder expects."""
    bits = n_bits = 0
    width, limit, free, previous = 9, 512, 258, False
    for code in codes:
        bits |= (code & ((1 << width) - 1)) << n_bits
        n_bits += width
        if code == 256:
            width, limit, free, previous = 9, 512, 258, False
            continue
        if previous and free < 4096:
            free += 1
            if free == limit and width < 12:
                width, limit = width + 1, limit * 2
        previous = True
    return bits.to_bytes((n_bits + 7) // 8, "little")


@given(st.lists(st.one_of(st.integers(0, 300), st.integers(255, 260)), max_size=60), st.integers(0, 400))
@settings(max_examples=300)
def test_lzw_decodes_or_refuses_any_codes_alike(codes, capacity):
    stream = packed_codes([*codes, 257])
    (one, first), (other, second) = both("lzw", lambda out: (stream, out), [np.zeros(capacity, np.uint8)])
    assert one == other
    if one >= 0:
        assert first[0][:one].tobytes() == second[0][:one].tobytes()


@given(st.binary(max_size=40))
def test_lzw_decodes_or_refuses_any_bytes_alike(stream):
    (one, _), (other, _) = both("lzw", lambda out: (stream, out), [np.zeros(5000, np.uint8)])
    assert one == other


def test_lzw_adds_nothing_to_a_full_table():
    # Literals alone: each adds an entry, until 4096 codes are taken.
    codes = [256, *(i % 251 for i in range(5000)), 4095, 258, 257]
    agree("lzw", lambda out: (packed_codes(codes), out), np.zeros(6000, np.uint8))


def test_lzw_of_nothing_and_of_one_byte_are_those_of_the_format():
    assert decode.lzw(bytes.fromhex("000302"), np.empty(0, np.uint8)) == 0
    out = np.empty(1, np.uint8)
    assert decode.lzw(bytes.fromhex("00c30404"), out) == 1
    assert out.tobytes() == b"a"


def test_wrong_sizes_are_refused_before_anything_is_touched():
    out = np.zeros(8, np.uint8)
    with pytest.raises(ValueError, match="8 bytes"):
        decode.delta(bytes(9), out, 8)
    with pytest.raises(ValueError, match="width"):
        decode.delta(bytes(8), out, 3)
    with pytest.raises(ValueError, match="bitmap"):
        decode.validity(bytes(2), out)
    for arguments in (
        (33, 1, out),
        (-1, 1, out),
        (1, 1, out[:7]),
        (1, 9, out, 0, bytes(8), 1),
        (1, 1, out, -1),
    ):
        with pytest.raises(ValueError, match="must be"):
            decode.PackedReader(*arguments)
    with pytest.raises(ValueError, match="offsets"):
        decode.first_not_utf8(b"abc", np.array([0, 4], np.int64))
    with pytest.raises(ValueError, match="offsets"):
        decode.first_not_utf8(b"abc", np.array([2, 1], np.int64))
    with pytest.raises(ValueError, match="exactly"):
        decode.take_variable(
            np.zeros(1, np.uint32),
            np.array([0, 1], np.uint32),
            b"a",
            np.empty(2, np.int32),
            np.empty(2, np.uint8),
        )
    with pytest.raises(ValueError, match="bits past"):
        decode.spread_offsets(np.zeros(3, np.int32), b"\4")
