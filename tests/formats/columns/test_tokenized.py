from __future__ import annotations

import itertools
import json
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizer_documents import all_bytes, make

import colstore_io as cs
from colstore_io import threads
from colstore_io.errors import FormatError, UnsupportedFeatureError
from colstore_io.formats.columns import tokenized
from colstore_io.formats.columns.detokenize import HEADER_BYTES, TokenizedReader
from colstore_io.formats.columns.plain_tokens import encode_value
from colstore_io.formats.columns.tokenized import (
    BOUNDARIES,
    REPRESENTATIONS,
    TokenStreams,
    decode_tokenized,
    encode_tokenized,
)
from colstore_io.formats.columns.tokenizer import Tokenizer

LAYOUTS = list(itertools.product(REPRESENTATIONS, BOUNDARIES))
SPARSE = make(["a", "b", "ab", "Ġ", "x" * 20, "xx", "x"], ["a b", "x x"])  # most bytes are escaped
FULL = all_bytes(["ab", "aba", "<s>"], ["a b", "ab a"], specials=[(258, "<s>")])
LIMIT = 1 << 30


def joined(values: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int64)
    return offsets, np.frombuffer(b"".join(values), np.uint8)


def split(offsets: np.ndarray, data: np.ndarray) -> list[bytes]:
    whole = data.tobytes()
    return [whole[a:b] for a, b in itertools.pairwise(offsets.tolist())]


def stream(
    rep: int,
    boundary: int,
    boundaries: list[int],
    ids: bytes,
    *,
    n_ids: int,
    escapes: bytes = b"",
    table: list[int] | None = None,
    v: int | None = None,
    e: int | None = None,
    t: int | None = None,
) -> bytes:
    table = table or []
    return (
        struct.pack(
            "<BBIIII",
            rep,
            boundary,
            len(boundaries) if v is None else v,
            n_ids,
            len(escapes) if e is None else e,
            len(table) if t is None else t,
        )
        + struct.pack(f"<{len(table)}H", *table)
        + struct.pack(f"<{len(boundaries)}I", *boundaries)
        + ids
        + escapes
    )


def decode(data: bytes, n: int, tokenizer: Tokenizer = SPARSE, max_bytes: int = LIMIT) -> list[bytes]:
    return split(*decode_tokenized(memoryview(data), tokenizer, n, max_bytes=max_bytes))


def test_golden_streams_are_read_and_reproduced(shared):
    root = shared / "vectors" / "columns"
    n = 0
    for file in json.loads((root / "manifest.json").read_text())["files"]:
        for group in file["row_groups"]:
            for number, column in enumerate(group["columns"]):
                if column["encoding"] != 7 or column["chunk"]["compress"]:
                    continue
                raw = (root / file["file"]).read_bytes()[column["byte_offset"] :][: column["byte_length"]]
                _, _, bitmap, _, size, blocks = struct.unpack_from("<BBIIII", raw)
                start = 18 + 8 * blocks + bitmap
                golden = raw[start : start + size]
                tokenizer = Tokenizer.from_file(root / file["writer"]["tokenizers"][str(number)])
                values = [
                    value.encode() if isinstance(value, str) else bytes.fromhex(value["hex"])
                    for value in column["values"]
                    if value is not None
                ]
                offsets, data = decode_tokenized(golden, tokenizer, len(values), max_bytes=LIMIT)
                assert split(offsets, data) == values
                layout = REPRESENTATIONS[golden[0]], BOUNDARIES[golden[1]]
                assert encode_tokenized(offsets, data, tokenizer, *layout) == golden
                n += 1
    assert n == 24


values = st.lists(
    st.binary(max_size=20)
    | st.text(max_size=10).map(str.encode)
    | st.sampled_from([b"", b"ab", b"abaaba ab", b"<s>", b"<s", b"x" * 40, b"x" * 20, b"1234567"]),
    max_size=12,
)


@given(values)
@example([])
@example([b""])
@example([b"", b"", b""])
@example([b"a", b"a"])
def test_any_bytes_come_back_in_every_layout(rows):
    offsets, data = joined(rows)
    for tokenizer in (SPARSE, FULL):
        streams = TokenStreams.tokenize(offsets, data, tokenizer)
        sizes = set()
        for layout in LAYOUTS:
            encoded = streams.encode(*layout)
            assert len(encoded) == streams.size(*layout)
            assert encoded == encode_tokenized(offsets, data, tokenizer, *layout)
            assert decode(encoded, len(rows), tokenizer, len(data)) == rows
            sizes.add(len(encoded))
        assert streams.counts.sum() == len(streams.ids)


@given(values, st.integers(1, 40), st.sampled_from(LAYOUTS))
@example([b"\xff\xfe ab", b"\xff"], 1, ("raw", "counts"))
@example([b"ab\xff"], 2, ("remap", "offsets"))
def test_blocks_cut_anywhere_make_what_one_block_makes(rows, size, layout):
    for tokenizer in (SPARSE, FULL):
        stream = memoryview(encode_tokenized(*joined(rows), tokenizer, *layout))
        reader = TokenizedReader(
            bytes(stream[:HEADER_BYTES]), len(stream), tokenizer, len(rows), max_bytes=LIMIT,
            offsets=lambda wide: np.empty(len(rows) + 1, np.int64 if wide else np.int32),
        )  # fmt: skip
        starts = range(0, len(stream), size)
        for number in reader.order(starts):
            block = stream[starts[number] : starts[number] + size]
            target = reader.target(starts[number], len(block))
            if target is not None:
                target[:] = np.frombuffer(block, np.uint8)
            reader.feed(block if target is None else target, starts[number])
        data = reader.finish()
        assert split(reader.offsets, data) == rows


@given(values)
def test_values_are_tokenized_one_by_one(rows):
    """A token is never split between values: "a" and "b" in a row stay two tokens."""
    streams = TokenStreams.tokenize(*joined(rows), FULL)
    expected = [encode_value(row, FULL) for row in rows]
    assert streams.ids.tolist() == [i for ids, _ in expected for i in ids]
    assert streams.counts.tolist() == [len(ids) for ids, _ in expected]
    assert streams.escapes.tobytes() == b"".join(escapes for _, escapes in expected)
    assert TokenStreams.tokenize(*joined([b"a", b"b"]), FULL).ids.tolist() == [97, 98]


def test_blocks_of_threads_make_what_one_block_makes(monkeypatch):
    rng = np.random.default_rng(1)
    pool = [b"ab", b" aba", b"\xff\xfe", b"", b"x" * 300, b"word 123456", b"<s>"]
    rows = [pool[k] for k in rng.integers(0, len(pool), 3000)]
    offsets, data = joined(rows)
    for tokenizer in (SPARSE, FULL):
        whole = TokenStreams.tokenize(offsets, data, tokenizer)
        with monkeypatch.context() as patch:
            patch.setattr(tokenized, "_ENCODE_BLOCK", 1000)
            patch.setattr(tokenized, "_ENCODE_WINDOW", 20_000)
            patch.setattr(threads, "PARALLEL_THRESHOLD", 1)
            parts = TokenStreams.tokenize(offsets, data, tokenizer)
            for name in ("ids", "counts", "escapes"):
                assert np.array_equal(getattr(whole, name), getattr(parts, name))
            for layout in LAYOUTS:
                assert decode(whole.encode(*layout), len(rows), tokenizer) == rows


def test_offsets_need_not_begin_at_zero():
    _, data = joined([b"zz", b"ab", b"a", b"zz"])
    streams = TokenStreams.tokenize(np.array([2, 4, 5]), data, FULL)
    assert decode(streams.encode("bits", "deltas"), 2, FULL) == [b"ab", b"a"]


@pytest.mark.parametrize("offsets", [[], [0, 3], [-1, 1], [2, 1]])
def test_offsets_outside_the_data_are_refused(offsets):
    with pytest.raises(ValueError, match="offsets"):
        TokenStreams.tokenize(np.array(offsets, np.int64), np.zeros(2, np.uint8), FULL)


def test_unknown_layout_is_refused():
    with pytest.raises(ValueError, match="no layout"):
        encode_tokenized(*joined([b"a"]), FULL, "raw", "lengths")  # type: ignore[arg-type]


def test_remap_orders_ids_by_frequency_then_id():
    encoded = encode_tokenized(*joined([b"cbbaa\xff"]), all_bytes(), "remap", "counts")
    assert encoded == stream(1, 0, [6], bytes([3 - 1, 1, 1, 0, 0, 3]), n_ids=6, table=[97, 98, 99, 255])


def test_bits_of_empty_column_name_id_zero():
    assert encode_tokenized(*joined([b""]), FULL, "bits", "counts") == stream(
        2, 0, [0], b"", n_ids=0, table=[0]
    )
    assert encode_tokenized(*joined([]), FULL, "remap", "offsets") == stream(1, 1, [], b"", n_ids=0)


def test_ids_of_no_bits_are_never_made():
    """A few bytes may stand for any number of ids 0; the limit on bytes is checked before anything is built."""
    data = stream(2, 0, [1 << 31, (1 << 32) - 1 - (1 << 31)], b"", n_ids=(1 << 32) - 1, table=[0])
    tracemalloc.start()
    with pytest.raises(FormatError, match="more than 1000 bytes"):
        decode(data, 2, max_bytes=1000)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert decode(stream(2, 0, [2, 0, 1], b"", n_ids=3, table=[0]), 3) == [b"aa", b"", b"a"]
    assert decode(stream(2, 0, [3], b"", n_ids=3, table=[]), 1) == [b"aaa"]
    with pytest.raises(FormatError, match="left over"):
        decode(stream(2, 0, [1], b"", n_ids=1, table=[0], escapes=b"z"), 1)


def test_long_tokens_do_not_pass_the_limit():
    data = stream(0, 0, [3], struct.pack("<3H", 4, 4, 4), n_ids=3)
    assert decode(data, 1) == [b"x" * 60]
    assert decode(data, 1, max_bytes=60) == [b"x" * 60]
    for limit in (59, 19, 0, -1):
        with pytest.raises(FormatError, match="limit of this read"):
            decode(data, 1, max_bytes=limit)


def test_bits_take_the_largest_entry_of_a_longer_table():
    assert decode(stream(2, 0, [4], b"\x1b", n_ids=4, table=[0, 3, 1]), 1) == [b"abab "]


def test_long_varints_are_read():
    assert decode(stream(1, 0, [2], b"\x80\x00\x81\x80\x00", n_ids=2, table=[0, 1]), 1) == [b"ab"]


OK = struct.pack("<2H", 0, 1)
ESCAPE = SPARSE.escape_id
DAMAGED = {
    "empty": (b"", 0, "header"),
    "short header": (b"\0" * 17, 0, "header"),
    "representation": (stream(3, 0, [2], OK, n_ids=2), 1, "representation 3"),
    "boundary": (stream(0, 9, [2], OK, n_ids=2), 1, "boundary 9"),
    "fewer values": (stream(0, 0, [2], OK, n_ids=2), 2, "has 1 values, expected 2"),
    "values beyond the stream": (stream(0, 0, [2], OK, n_ids=2, v=0xFFFFFFF0), 0xFFFFFFF0, "cannot hold"),
    "table beyond the stream": (stream(1, 0, [2], OK, n_ids=2, t=0xFFFFFFFF), 1, "cannot hold"),
    "escapes beyond the stream": (stream(0, 0, [2], OK, n_ids=2, e=0xFFFFFFFF), 1, "cannot hold"),
    "raw ids missing": (stream(0, 0, [3], OK, n_ids=3), 1, "3 ids of 16 bits need 6"),
    "raw ids absurd": (stream(0, 0, [2], OK, n_ids=0x7FFFFFFF), 1, "need"),
    "raw ids left over": (stream(0, 0, [1], OK, n_ids=1), 1, "need 2"),
    "remap too many": (stream(1, 0, [9], b"\0\0", n_ids=9, table=[0]), 1, "cannot hold 9 ids"),
    "remap cut": (stream(1, 0, [2], b"\0\x80", n_ids=2, table=[0]), 1, "too early"),
    "remap outside": (stream(1, 0, [2], b"\0\1", n_ids=2, table=[0]), 1, "outside its table"),
    "remap without table": (stream(1, 0, [1], b"\0", n_ids=1), 1, "outside its table"),
    "remap endless": (stream(1, 0, [1], b"\xff" * 12 + b"\0", n_ids=1, table=[0]), 1, "outside its table"),
    "remap left over": (stream(1, 0, [2], b"\0\0\0", n_ids=2, table=[0]), 1, "after its last id"),
    "bits missing": (stream(2, 0, [5], b"\0", n_ids=5, table=[3]), 1, "need 2"),
    "bits left over": (stream(2, 0, [4], b"\0\0", n_ids=4, table=[3]), 1, "need 1"),
    "bits absurd": (stream(2, 0, [4], b"\0", n_ids=0xFFFFFFFF, table=[3]), 1, "need"),
    "zero bits left over": (stream(2, 0, [4], b"\0", n_ids=4, table=[0]), 1, "need 0"),
    "counts too small": (stream(0, 0, [1, 0], OK, n_ids=2), 2, "add up"),
    "counts too large": (stream(0, 0, [1, 2], OK, n_ids=2), 2, "add up"),
    "counts wrap": (stream(0, 0, [0xFFFFFFFF, 3], OK, n_ids=2), 2, "add up"),
    "ids of no value": (stream(0, 0, [], OK, n_ids=2), 0, "add up"),
    "ids of no value, offsets": (stream(0, 1, [], OK, n_ids=2), 0, "add up"),
    "ids of no value, deltas": (stream(0, 2, [], OK, n_ids=2), 0, "add up"),
    "offsets decrease": (stream(0, 1, [0, 2, 1], OK, n_ids=2), 3, "decrease"),
    "offsets beyond": (stream(0, 1, [0, 3], OK, n_ids=2), 2, "add up"),
    "first offset": (stream(0, 1, [1, 2], OK, n_ids=2), 2, "before the first"),
    "deltas negative": (stream(0, 2, [2, 3], OK, n_ids=2), 2, "negative"),
    "deltas too large": (stream(0, 2, [0xFFFFFFFE, 0], OK, n_ids=2), 2, "add up"),
    "deltas too small": (stream(0, 2, [2, 1], OK, n_ids=2), 2, "add up"),
    "id outside": (
        stream(0, 0, [2], struct.pack("<2H", 0, ESCAPE + 1), n_ids=2),
        1,
        f"id {ESCAPE + 1} is neither",
    ),
    "id 65535": (stream(0, 0, [2], struct.pack("<2H", 0, 65535), n_ids=2), 1, "id 65535"),
    "escape without byte": (stream(0, 0, [2], struct.pack("<2H", 0, ESCAPE), n_ids=2), 1, "more ids take"),
    "escapes left over": (stream(0, 0, [2], OK, n_ids=2, escapes=b"z"), 1, "there are 1"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_stream_is_refused(name):
    data, n, message = DAMAGED[name]
    with pytest.raises(FormatError, match=message):
        decode(data, n)


@given(st.sampled_from(LAYOUTS), st.data())
def test_flipped_bytes_never_do_more_than_raise(layout, data):
    rows = [b"ab", b"", b"\xff x", b"x" * 20]
    encoded = bytearray(encode_tokenized(*joined(rows), SPARSE, *layout))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 2))
    try:
        offsets, found = decode_tokenized(
            bytes(encoded[: len(encoded) - cut]), SPARSE, data.draw(st.integers(3, 5)), max_bytes=10_000
        )
    except FormatError:
        return
    assert offsets[0] == 0
    assert offsets[-1] == len(found) <= 10_000
    assert (np.diff(offsets) >= 0).all()


@given(st.binary(max_size=80), st.integers(0, 5))
def test_random_streams_never_do_more_than_raise(data, n):
    try:
        decode(data, n, max_bytes=1000)
    except FormatError:
        pass


# ------------------------------------------------------------------------------- a model that nobody registered


def test_a_model_that_is_not_registered_is_asked_for_when_its_column_is(tmp_path: Path) -> None:
    stranger = all_bytes(["nobody registers this"])
    path = tmp_path / "t.abcd"
    given = pa.table({"n": [1, 2, 3], "t": ["a", "bb", "c"]})
    cs.store(given, path, tokenizers={"t": stranger}).close()
    digest = stranger.digest.hex()
    with cs.open(path) as table:
        assert table["n"].array().tolist() == [1, 2, 3]
        with pytest.raises(UnsupportedFeatureError, match=f"column 't'.*{digest}"):
            table["t"].arrow()
    assert cs.inspect(path).to_arrow()["tokenizer"].to_pylist() == [None, digest]
    with pytest.raises(UnsupportedFeatureError, match=digest):
        cs.open(path, strict=True).close()
    cs.register_tokenizer(stranger)
    with cs.open(path, strict=True) as table:
        assert table["t"].arrow().to_pylist() == ["a", "bb", "c"]
