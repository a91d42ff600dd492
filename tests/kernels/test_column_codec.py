"""The column codec: golden columns, every version of the loops, a plain twin, damaged bytes."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from colstore_io.kernels import column_codec

VERSIONS = range(column_codec.best_isa() + 1)
ELEMENTS = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
BLOCK = 128


def zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63) if value >= 0 else ((-value) << 1) - 1


def as_integers(values: np.ndarray) -> list[int]:
    """The values as the codec sees them (colbin.md 7)."""
    if values.dtype.kind == "f":
        values = values.view(f"u{values.dtype.itemsize}")
    if values.dtype == np.uint64:
        values = values.view(np.int64)
    return values.astype(np.int64).tolist()


def twin(values: list[int]) -> bytes:
    """Section 8 word by word, on Python integers."""
    if not values:
        return b"\0"
    low = min(values)
    steps = [b - a for a, b in itertools.pairwise(values)]
    raw = [zigzag(v) for v in values] if low < 0 else values
    choices = [(0, 4 if low < 0 else 0, None, raw), (2, 0, low, [v - low for v in values])]
    if steps and all(-(1 << 63) <= step < 1 << 63 for step in steps):
        choices.append((1, 4, values[0], [zigzag(step) for step in steps]))
    if all(v == low for v in values):
        choices.append((3, 0, low, []))
    best = None
    for transform, flag, base, residuals in choices:
        data = bytearray()
        for at in range(0, len(residuals), BLOCK):
            block = residuals[at : at + BLOCK]
            width = max(block).bit_length()
            bits = sum(v << (i * width) for i, v in enumerate(block))
            data.append(width)
            data += bits.to_bytes((len(block) * width + 7) // 8, "little")
        cost = len(data) + (0 if base is None else 8)
        if best is None or cost < best[0]:
            head = bytes((transform | flag,)) + (b"" if base is None else zigzag(base).to_bytes(8, "little"))
            best = cost, head + bytes(data)
    assert best is not None
    return best[1]


def test_golden_columns(shared):
    cases = json.loads((shared / "vectors/colbin/columns.json").read_text())["cases"]
    assert len(cases) == 284
    for case in cases:
        values = np.array(case["values"], ELEMENTS[case["elem"]])
        data = bytes.fromhex(case["hex"])
        for isa in VERSIONS:
            assert column_codec.encode(values, isa=isa) == data, case["name"]
            out = np.empty_like(values)
            assert column_codec.decode(data, out, isa=isa) == 0, case["name"]
            np.testing.assert_array_equal(out, values)


@st.composite
def columns(draw):
    """Columns of every dtype: extremes, runs, slopes, few bits."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    n = draw(st.one_of(st.integers(0, 20), st.sampled_from([127, 128, 129, 255, 256, 257, 300])))
    if dtype.kind == "f":
        return draw(hnp.arrays(dtype, n, elements=hnp.from_dtype(dtype, allow_nan=True)))
    if dtype.kind == "b":
        return draw(hnp.arrays(dtype, n))
    info = np.iinfo(dtype)
    bits = draw(st.integers(0, 8 * dtype.itemsize))
    low = draw(st.integers(int(info.min), int(info.max)))
    high = min(int(info.max), low + (1 << bits) - 1)
    kind = draw(st.sampled_from(["any", "run", "slope"]))
    if kind == "run":
        return np.full(n, low, dtype)
    if kind == "slope":
        step = draw(st.integers(-3, 3))
        return np.array([min(max(low + i * step, info.min), info.max) for i in range(n)], dtype)
    return draw(hnp.arrays(dtype, n, elements=st.one_of(st.integers(low, high), st.just(low))))


@given(columns())
@example(np.array([-(2**63), 2**63 - 1], np.int64))
@example(np.array([2**63 - 1, -(2**63)] * 100, np.int64))
@example(np.zeros(257, np.int64))
@settings(max_examples=150, deadline=None)
def test_every_version_writes_what_the_twin_writes_and_reads_it_back(values):
    data = twin(as_integers(values))
    for isa in VERSIONS:
        assert column_codec.encode(values, isa=isa) == data
        out = np.empty_like(values)
        assert column_codec.decode(data, out, isa=isa) == 0
        assert out.tobytes() == values.tobytes()


@pytest.mark.parametrize("width", range(65))
@pytest.mark.parametrize("n", [1, 7, 8, 9, 127, 128, 129, 260])
def test_every_width_in_whole_and_partial_blocks(width, n):
    generator = np.random.default_rng(width * 1000 + n)
    bits = generator.integers(0, 2**64 - 1, n, np.uint64, endpoint=True)
    values = (bits >> np.uint64(64 - width) if width else np.zeros(n, np.uint64)).view(np.int64)
    data = twin(values.tolist())
    for isa in VERSIONS:
        assert column_codec.encode(values, isa=isa) == data
        out = np.empty(n, np.int64)
        assert column_codec.decode(data, out, isa=isa) == 0
        np.testing.assert_array_equal(out, values)


@given(columns(), st.data())
@settings(max_examples=100, deadline=None)
def test_cut_and_extended_columns_are_refused(values, data):
    encoded = column_codec.encode(values)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for isa in VERSIONS:
        out = np.empty_like(values)
        assert column_codec.decode(encoded[:cut], out, isa=isa) == 1
        assert column_codec.decode(encoded + b"\0", out, isa=isa) == 3


@given(st.binary(max_size=400), st.integers(0, 300), st.sampled_from(DTYPES))
@settings(max_examples=300, deadline=None)
def test_all_versions_agree_on_any_bytes(data, n, dtype):
    results = []
    for isa in VERSIONS:
        out = np.zeros(n, dtype)
        code = column_codec.decode(data, out, isa=isa)
        results.append((code, out.tobytes() if code == 0 else b""))
    assert len(set(results)) == 1


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([256], "u1"),
        ([-1], "u1"),
        ([128], "i1"),
        ([-129], "i1"),
        ([1 << 16], "u2"),
        ([1 << 32], "u4"),
        ([2], "?"),
        ([-1], "?"),
        ([1 << 31], "i4"),
        ([1 << 32], "f4"),
        ([7] * 200 + [300], "u1"),
    ],
)
def test_values_outside_the_type_are_refused(values, dtype):
    data = column_codec.encode(np.array(values, np.int64))
    for isa in VERSIONS:
        assert column_codec.decode(data, np.empty(len(values), dtype), isa=isa) == 4


def test_a_width_above_64_is_refused():
    assert column_codec.decode(b"\x00\x41" + bytes(600), np.empty(4, np.int64)) == 2


def test_many_columns_at_once_with_their_bounds():
    generator = np.random.default_rng(5)
    arrays = [generator.integers(-9, 9, 30_000).astype(dtype) for dtype in ("i1", "i8", "i4", "i2")]
    bounds = np.empty((4, 2), np.int64)
    encoded = column_codec.encode_columns(arrays, bounds, threads=3)
    assert encoded == [column_codec.encode(array) for array in arrays]
    assert bounds.tolist() == [[-9, 8]] * 4
    start = np.cumsum([0, *map(len, encoded[:-1])])
    length = np.array([len(data) for data in encoded])
    outs = [np.empty_like(array) for array in arrays]
    assert column_codec.decode_columns(b"".join(encoded), start, length, outs, threads=3) == (-1, 0)
    for out, array in zip(outs, arrays, strict=True):
        np.testing.assert_array_equal(out, array)
    assert column_codec.decode_columns(b"".join(encoded), start, length - 1, outs) == (0, 1)


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="outside the data"):
        column_codec.decode_columns(b"\0", np.array([0]), np.array([2]), [np.empty(1, np.int64)])
    with pytest.raises(ValueError, match="isa must be"):
        column_codec.encode(np.zeros(1), isa=99)
    with pytest.raises(ValueError, match="dimensions"):
        column_codec.encode(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="not buffers of format"):
        column_codec.encode(np.zeros(2, complex))
    assert column_codec.encode(np.zeros(5, np.int64)[1:]) == b"\0\0"  # four zeros, eight bytes off


def test_unaligned_columns():
    room = np.zeros(8 * 300 + 1, np.uint8)
    values = room[1:].view(np.int64)
    values[:] = np.arange(300) * 17
    data = column_codec.encode(values)
    assert data == twin(values.tolist())
    out = np.zeros(8 * 300 + 3, np.uint8)[3:].view(np.int64)
    assert column_codec.decode(data, out) == 0
    np.testing.assert_array_equal(out, values)
