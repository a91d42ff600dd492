"""The default: what is tried is what is stored, and what cannot matter is not tried."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from formats.columns.test_write_read import LARGE, decode, encode, field, large_schema
from hypothesis import given
from hypothesis import strategies as st

from colstore_io.fields import Schema
from colstore_io.formats.columns import choose
from colstore_io.formats.columns.choose import WHOLE_BYTES, choose_layout
from colstore_io.formats.columns.compress import FAST, compressor
from colstore_io.formats.columns.encode import encode_stream, prepare
from colstore_io.formats.columns.tags import Codec, Encoding, Type

WORDS = [f"event-{i * i}-of-many" for i in range(9)]


def dense(kind, values):
    column = np.asarray(values) if kind.fixed else pa.array(values)
    return prepare("c", kind, False, column).dense


@given(
    st.sampled_from([Type.INT16, Type.INT64, Type.FLOAT64, Type.STRING, Type.BYTES, Type.BOOL]),
    st.integers(0, 700),
    st.integers(1, 900),
    st.integers(0, 5),
)
def test_a_short_stream_is_stored_as_it_was_tried(kind, n, distinct, seed):
    numbers = np.random.default_rng(seed).integers(0, distinct, n)
    if kind.fixed:
        names = {Type.INT16: "<i2", Type.INT64: "<i8", Type.FLOAT64: "<f8", Type.BOOL: "?"}
        values = dense(kind, numbers.astype(names[kind]))
    else:
        texts = [f"{WORDS[k % 9]} {k}" for k in numbers.tolist()]
        values = dense(kind, texts if kind is Type.STRING else [text.encode() for text in texts])
    choice = choose_layout(values)
    stream = encode_stream("c", values, choice.layout.encoding)
    assert len(stream) <= WHOLE_BYTES
    if choice.stream is not None:
        assert choice.stream.tobytes() == stream.tobytes()
    if choice.layout.codec is Codec.NONE:
        assert choice.stored is None
    else:
        assert bytes(choice.stored) == compressor(Codec.FLATE, FAST)(stream)


def test_the_block_size_does_not_change_the_values():
    rows = 3000
    names = [name for name in LARGE if name != "hashes"]
    schema = Schema(tuple(f for f in large_schema() if f.name in names))
    groups = [[LARGE[name][:rows] for name in names]]
    assert all(len(column) == rows for column in groups[0])
    whole, cut = (encode(schema, groups, block_size=size)[1] for size in (0, 1000))
    assert whole != cut
    assert decode(whole) == decode(cut)


def test_bytes_that_do_not_compress_are_offset_bytes_however_few_they_are():
    random = np.random.default_rng(0)
    values = [random.bytes(40) for _ in range(300)]
    layout = choose_layout(dense(Type.BYTES, values)).layout
    assert (layout.encoding, layout.codec) == (Encoding.OFFSET_BYTES, Codec.NONE)
    schema = Schema((field(Type.BYTES),))
    assert decode(encode(schema, [[pa.array(values)]])[1]) == [[values]]


def tried(monkeypatch, values):
    """Return the choice, and the encodings of which something was compressed on the way to it."""
    seen = []
    of = choose._Trial.of

    def noted(encoding, parts):
        seen.append(encoding)
        return of(encoding, parts)

    monkeypatch.setattr(choose._Trial, "of", noted)
    return choose_layout(values).layout.encoding, seen


@pytest.mark.parametrize(
    ("kind", "values", "encoding"),
    [
        (Type.STRING, [WORDS[i * i % 9] for i in range(4000)], Encoding.DICT),
        (Type.INT64, np.arange(4000) * 3, Encoding.DELTA),
        (Type.STRING, [f"https://example.com/{i * 7919 % 10007}/events" for i in range(4000)], Encoding.AFFIX),
    ],
)  # fmt: skip
def test_nothing_else_is_tried_where_an_encoding_leaves_next_to_nothing(monkeypatch, kind, values, encoding):
    assert tried(monkeypatch, dense(kind, values)) == (encoding, [encoding])


def test_an_affix_of_a_small_part_is_left_to_the_compression(monkeypatch):
    random = np.random.default_rng(0)
    values = [f"M {random.bytes(20).hex()}" for _ in range(1000)]
    assert tried(monkeypatch, dense(Type.STRING, values)) == (Encoding.PLAIN, [Encoding.PLAIN])


def test_a_dear_level_is_for_long_streams_only(monkeypatch):
    asked = []
    monkeypatch.setattr(choose, "_dear", lambda part: asked.append(len(part)) or bytes(1))
    few = np.repeat(np.random.default_rng(0).integers(0, 2**60, 6000), 2)
    layout = choose_layout(dense(Type.INT64, few)).layout
    assert (layout.codec, layout.level, asked) == (Codec.FLATE, FAST, [])
    many = np.repeat(np.random.default_rng(0).integers(0, 2**60, 60_000), 2)
    layout = choose_layout(dense(Type.INT64, many)).layout
    assert (layout.codec, layout.level) == (Codec.FLATE, choose.DEAR_LEVEL)
    assert asked


@pytest.mark.parametrize("kind", [Type.STRING, Type.BYTES])
@pytest.mark.parametrize(
    "lengths", [(200_000,), (2_000_000,), (300_000, 1), (90_000, 90_000, 90_000), (1, 99_000)]
)
def test_a_few_long_values_are_looked_at_in_parts(monkeypatch, kind, lengths):
    looked_at = []
    fast = choose._fast
    monkeypatch.setattr(choose, "_fast", lambda part: looked_at.append(len(part)) or fast(part))
    words = " ".join(str(i * i) for i in range(400_000))
    texts = [words[:length] for length in lengths]
    values = texts if kind is Type.STRING else [text.encode() for text in texts]
    assert decode(encode(Schema((field(kind),)), [[pa.array(values)]])[1]) == [[values]]
    assert sum(looked_at) <= 2 * WHOLE_BYTES
