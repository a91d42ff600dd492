from __future__ import annotations

from itertools import pairwise

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


def read(
    representation: int,
    width: int,
    stream: bytes,
    rows: list[int],
    *,
    escapes: bytes = b"",
    cuts: list[int],
    **given,
) -> tuple[int, list[bytes]]:
    """Feed a stream in pieces that end at `cuts`; return the code, and the values."""
    n_ids = sum(rows)
    reader = kernels.TokenReader(
        table(), representation, given.get("table", np.empty(0, np.uint8)), len(rows), n_ids, len(escapes),
        given.get("max_bytes", 1 << 20),
    )  # fmt: skip
    half = len(escapes) // 2
    text = np.frombuffer(escapes, np.uint8)
    reader.put_escapes(text[half:], half)
    reader.put_escapes(text[:half], 0)
    offsets = np.array([0, *rows], given.get("offset_type", np.int32))
    reader.begin(offsets, width)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, stop in pairwise(edges):
        code = reader.feed(np.frombuffer(stream[start:stop], np.uint8), offsets)
        if code:
            return code, []
        assert reader.position == stop - start
    if reader.ids != n_ids or reader.escapes != len(escapes):
        return -9, []
    assert reader.values == len(rows)
    data = bytes(reader.take())
    assert len(data) == offsets[-1]
    return 0, [data[i:j] for i, j in pairwise(offsets.tolist())]


def packed(ids: np.ndarray, width: int) -> bytes:
    out = np.empty(-(-len(ids) * width // 8), np.uint8)
    assert kernels.bits_encode(ids, width, out)
    return out.tobytes()


def varints(ids: np.ndarray) -> bytes:
    out = np.empty(3 * len(ids), np.uint8)
    return out[: kernels.remap_encode(ids, np.arange(65536).astype(np.uint16), out)].tobytes()


SAME = np.arange(65536, dtype="<u2").view(np.uint8)


@given(
    st.lists(st.lists(st.integers(0, 6), max_size=20), max_size=10),
    st.lists(st.integers(0, 200), max_size=6),
    st.integers(3, 16),
    st.sampled_from([np.int32, np.int64]),
)
def test_values_come_from_blocks_cut_anywhere(rows, cuts, width, offset_type):
    ids = np.array([i for row in rows for i in row], np.uint16)
    escapes = bytes(range(int((ids == 6).sum())))
    rest = iter(escapes)
    expected = [b"".join(TEXTS[i] if i < 6 else bytes([next(rest)]) for i in row) for row in rows]
    counts = [len(row) for row in rows]
    given = {"escapes": escapes, "cuts": cuts, "offset_type": offset_type}
    assert read(0, 0, ids.tobytes(), counts, **given) == (0, expected)
    assert read(1, 0, varints(ids), counts, table=SAME, **given) == (0, expected)
    assert read(2, width, packed(ids, width), counts, **given) == (0, expected)
    total = sum(map(len, expected))
    if total:
        assert read(0, 0, ids.tobytes(), counts, max_bytes=total, **given) == (0, expected)
        if total > len(escapes):
            assert read(0, 0, ids.tobytes(), counts, max_bytes=total - 1, **given)[0] == 4
    if escapes:
        short = {**given, "escapes": escapes[:-1]}
        assert read(0, 0, ids.tobytes(), counts, **short)[0] == 5
    more = {**given, "escapes": escapes + b"z"}
    assert read(0, 0, ids.tobytes(), counts, **more)[0] == -9


def test_ids_that_mean_nothing_are_found():
    ids = np.array([0, 7, 0], np.uint16)
    assert read(0, 0, ids.tobytes(), [3], cuts=[1])[0] == 3
    assert read(1, 0, b"\x00\x07", [2], cuts=[], table=SAME[:14])[0] == 1
    assert read(1, 0, b"\x00\x07\x00", [2], cuts=[], table=SAME)[0] in (2, 3)
    assert read(1, 0, b"\x00\x05\x00", [2], cuts=[], table=SAME)[0] == 2
    assert read(1, 0, b"\xff" * 9 + b"\x02", [1], cuts=[3], table=SAME)[0] == 1


def test_many_long_values_grow_their_memory_and_no_more():
    ids = np.tile(np.array([5, 0, 6], np.uint16), 5000)
    rows = [3] * 5000
    cuts = list(range(0, 30_000, 777))
    code, values = read(0, 0, ids.tobytes(), rows, escapes=b"e" * 5000, cuts=cuts, max_bytes=1 << 22)
    assert code == 0
    assert values == [TEXTS[5] + b"ae"] * 5000


def test_a_reader_refuses_calls_out_of_turn():
    offsets = np.array([0, 1], np.int32)
    one = np.zeros(2, np.uint8)
    reader = kernels.TokenReader(table(), 0, one[:0], 1, 1, 1, 10)
    for call in (
        lambda: reader.feed(one, offsets),
        lambda: reader.put_escapes(one, 0),
        lambda: reader.put_escapes(one[:1], -1),
        lambda: reader.begin(offsets, 3),
        lambda: reader.begin(np.zeros(3, np.int32), 0),
        lambda: reader.zeros(offsets),
        lambda: reader.__init__(table(), 0, one, 1, 1, 1, 10),
        lambda: kernels.TokenReader(table(), 3, one, 1, 1, 1, 10),
        lambda: kernels.TokenReader(table(), 0, one, 1, 1, 11, 10),
        lambda: kernels.TokenReader(table(), 0, one, -1, 1, 0, 10),
        lambda: kernels.TokenReader(table(), 0, one, 1, 1, 0, 1 << 49),
    ):
        with pytest.raises(ValueError):
            call()
    reader.put_escapes(one[:1], 0)
    reader.begin(offsets, 0)
    with pytest.raises(ValueError):
        reader.begin(offsets, 0)
    assert reader.feed(np.array([6, 0], np.uint8), offsets) == 0
    assert bytes(reader.take()) == b"\0"
    for call in (reader.take, lambda: reader.feed(one, offsets), lambda: reader.put_escapes(one[:1], 0)):
        with pytest.raises(ValueError):
            call()


def test_offsets_must_be_wide_before_they_overflow():
    """Told before anything is written: no memory is taken for it."""
    texts = [b"x" * (1 << 20)]
    ids = np.zeros(2100, np.uint16)
    reader = kernels.TokenReader(table(texts, 1), 0, np.empty(0, np.uint8), 2, 2100, 0, 1 << 40)
    offsets = np.array([0, 1, 2099], np.int32)
    reader.begin(offsets, 0)
    code = reader.feed(ids[:1000].view(np.uint8), offsets)
    assert (code, reader.position) == (0, 2000)
    assert reader.feed(ids[1000:].view(np.uint8), offsets) == -2
    assert offsets.tolist() == [0, 1 << 20, 2099]


def test_memory_grows_behind_what_is_there():
    grown = kernels.GrownBytes()
    assert (len(grown), bytes(grown)) == (0, b"")
    grown.extend(3, 10.0)
    memoryview(grown)[:] = b"abc"
    offsets = np.array([0, 1], np.int32)
    reader = kernels.TokenReader(table(), 0, np.empty(0, np.uint8), 1, 1, 0, 9, grown, 2.0)
    assert len(grown) == 0
    reader.begin(offsets, 0)
    assert reader.feed(np.array([2, 0], np.uint8), offsets) == 0
    assert reader.take() is grown
    assert bytes(grown) == b"abcbcd"
    seen = memoryview(grown)
    grown.extend(1 << 20)
    assert bytes(seen) == b"abcbcd"  # as it was
    memoryview(grown)[6:9] = b"xyz"
    assert bytes(grown)[:9] == b"abcbcdxyz"
    del seen
    grown.fit()
    assert len(grown) == 6 + (1 << 20)
    with pytest.raises(ValueError):
        grown.extend(-1)


@pytest.mark.parametrize("text", [b"", b"q", b"long token, longer than a word"])
def test_ids_of_no_bits_are_all_the_first_token(text):
    offsets = np.array([0, 3, 0, 2], np.int64)
    reader = kernels.TokenReader(table([text, b"other"], 2), 2, np.empty(0, np.uint8), 3, 5, 0, 1000)
    reader.zeros(offsets)
    assert offsets.tolist() == [0, 3 * len(text), 3 * len(text), 5 * len(text)]
    assert bytes(reader.take()) == 5 * text
    with pytest.raises(ValueError):
        kernels.TokenReader(table([b"ab"], 2), 2, np.empty(0, np.uint8), 1, 5, 0, 9).zeros(offsets[:2])


def test_arguments_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError):
        kernels.TokenTable(ints(0, 5), np.zeros(4, np.uint8), 1)
    with pytest.raises(ValueError):
        kernels.TokenTable(ints(0, 3, 2, 4), np.zeros(4, np.uint8), 1)
    with pytest.raises(ValueError):
        table(escape=65536)
    with pytest.raises(ValueError):
        kernels.token_counts(np.zeros(5, np.uint32), 3, 1)


@given(st.integers(1, 16), st.lists(st.integers(0, 65535), max_size=50))
def test_bits_are_packed_most_significant_first(width, values):
    values = [value >> (16 - width) for value in values]
    ids = np.array(values, np.uint16)
    text = "".join(f"{value:0{width}b}" for value in values)
    expected = bytes(int(text[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(text), 8))
    out = np.empty(len(expected), np.uint8)
    assert kernels.bits_encode(ids, width, out)
    assert out.tobytes() == expected
    if width < 16:
        assert not kernels.bits_encode(
            np.array([1 << width], np.uint16), width, np.empty(-(-width // 8), np.uint8)
        )


@given(st.lists(st.integers(0, 40_000), max_size=50))
def test_varints_end_within_their_memory(values):
    ids = np.array(values, np.uint16)
    out = np.empty(3 * len(ids), np.uint8)
    n = kernels.remap_encode(ids, np.arange(65536).astype(np.uint16), out)
    assert n == sum(1 + (value >= 1 << 7) + (value >= 1 << 14) for value in values)
    if n:
        assert kernels.remap_encode(ids, np.arange(65536).astype(np.uint16), out[: n - 1]) == -1


@given(st.lists(st.integers(0, 9), max_size=10))
def test_boundaries_of_all_kinds_become_counts(counts):
    starts = np.cumsum([0, *counts])
    steps = np.diff(counts, prepend=0) if counts else np.empty(0, np.int64)
    words = (counts, starts[:-1], np.where(steps >= 0, 2 * steps, -2 * steps - 1))
    for kind, stream in enumerate(words):
        found = np.asarray(stream).astype(np.uint32)
        assert kernels.token_counts(found, kind, int(starts[-1])) == 0
        assert found.tolist() == counts
        assert kernels.token_counts(np.asarray(stream).astype(np.uint32), kind, int(starts[-1]) + 1) == (
            1 if kind != 1 or not counts else 0
        )
