"""What a chunk may look like (columns.md 3, 4 and 12.2), encoding by encoding."""

from __future__ import annotations

import gzip
import struct
import zlib

import numpy as np
import pytest
from formats.columns.columns_builder import chunk, file_of
from formats.columns.reading import decoded, opened, raw_values

from colstore_io.errors import FormatError
from colstore_io.formats.columns.pipeline import run

BOOL, INT8, INT64, FLOAT64, BYTES, STRING = 1, 2, 5, 11, 12, 13
PLAIN, RLE, DELTA, DICT, OFFSET, AFFIX, TOKENIZED = range(1, 8)
ZSTD, FLATE, GZIP, ZLIB, LZW = range(1, 6)


def i64(*values):
    return np.array(values, "<i8").tobytes()


def u32(*values):
    return struct.pack(f"<{len(values)}I", *values)


def read(body, kind, n_rows, *, nullable=False, **values):
    """Return the values of a file of one chunk."""
    data = file_of([(b"c", kind, nullable)], [(n_rows, [(body, values)])])
    meta = opened(data, errors="surrogateescape")
    (column,) = decoded(data, meta, 0, [0])
    return raw_values(column, meta.schema["c"])


def refused(match, *arguments, **values):
    with pytest.raises(FormatError, match=match) as caught:
        read(*arguments, **values)
    assert caught.value.section == "row group 0, column 'c'"
    assert caught.value.offset >= 5


def raw_deflate(data):
    stream = zlib.compressobj(6, 8, -15)
    return stream.compress(data) + stream.flush()


def test_slack_is_tolerated_behind_and_inside_the_data():
    body = chunk(PLAIN, i64(1, 2))
    assert read(body + b"slack", INT64, 2) == [1, 2]
    inside = bytearray(body + b"slack")
    inside[10:14] = u32(16 + 5)
    assert read(bytes(inside), INT64, 2) == [1, 2]


def test_tags_must_be_those_of_the_footer_and_suit_the_type():
    body = chunk(PLAIN, i64(1))
    refused("footer says 3", body, INT64, 1, encoding=DELTA)
    refused("codec", body, INT64, 1, codec=FLATE)
    refused("does not suit", chunk(DELTA, i64(1)), FLOAT64, 1)
    refused("does not suit", chunk(RLE, b"\0"), INT64, 1)
    refused("unknown", chunk(8, i64(1)), INT64, 1)
    refused("unknown", chunk(PLAIN, i64(1), codec=9), INT64, 1)


def test_null_bitmaps_must_be_right_to_the_last_bit():
    def of(bitmap, nulls, n_values=2, n_rows=3):
        return chunk(PLAIN, i64(*range(n_values)), bitmap=bitmap), INT64, n_rows

    assert read(*of(b"\x02", 1), nullable=True, nulls=1) == [0, None, 1]
    assert read(*of(b"\x00", 0, 3), nullable=True) == [0, 1, 2]
    assert read(*of(b"", 0, 3), nullable=True) == [0, 1, 2]
    refused("past the last row", *of(b"\x0a", 1), nullable=True, nulls=1)
    refused("has 2 nulls", *of(b"\x03", 1), nullable=True, nulls=1)
    refused("2 bytes", *of(b"\x02\x00", 1), nullable=True, nulls=1)
    refused("no null bitmap", *of(b"", 1), nullable=True, nulls=1)
    refused("not nullable", *of(b"\x00", 0, 3))


@pytest.mark.parametrize(
    ("encoding", "kind", "stream"),
    [
        (PLAIN, INT64, i64(1, 2)),
        (PLAIN, BYTES, u32(1) + b"a" + u32(0)),
        (RLE, BOOL, b"\x80"),
        (DELTA, INT8, i64(1, 2)),
        (DICT, INT64, u32(2, 1, 0, 1, 0) + i64(5)),
        (DICT, BYTES, u32(2, 1, 0, 1, 0) + b"x"),
        (OFFSET, BYTES, u32(2, 0, 1) + b"ab"),
        (OFFSET, STRING, u32(2, 0, 1) + b"ab"),
        (AFFIX, STRING, u32(0, 0) + u32(1) + b"a" + u32(1) + b"b"),
    ],
)
def test_every_encoding_holds_exactly_as_many_values_as_there_are_rows(encoding, kind, stream):
    assert len(read(chunk(encoding, stream), kind, 2)) == 2
    for n_rows in (0, 1, 3, 10, 1 << 31):
        if encoding == RLE and n_rows in (1, 3):
            continue  # bits are counted in bytes
        refused("column 'c'", chunk(encoding, stream), kind, n_rows)


def test_bytes_that_no_value_owns_are_refused():
    refused("OFFSET_BYTES|no value", chunk(OFFSET, u32(0) + b"x"), BYTES, 0)
    refused("no entry", chunk(DICT, u32(0, 0, 0, 0) + b"x"), BYTES, 0)
    refused("exactly", chunk(AFFIX, u32(0, 0) + u32(0) * 2), BYTES, 1)
    assert read(chunk(OFFSET, u32(1, 2) + b"xxab"), BYTES, 1) == [b"ab"]  # tolerated: a first offset above 0


def test_dictionary_of_no_entries_has_no_values():
    assert read(chunk(DICT, u32(0, 0, 0, 0)), STRING, 0) == []
    refused("value 0 has a dictionary index", chunk(DICT, u32(1, 0, 0, 0)), STRING, 1)
    refused("33 bits", chunk(DICT, u32(1, 1, 33) + bytes(5) + u32(1, 0) + b"a"), STRING, 1)
    assert read(chunk(DICT, u32(1, 1, 32) + bytes(4) + u32(1, 0) + b"a"), STRING, 1) == [b"a"]


def test_booleans_other_than_0_and_1_count_as_true():
    assert read(chunk(PLAIN, b"\x00\x01\x02\xff"), BOOL, 4) == [False, True, True, True]
    entries = u32(2, 2, 1) + b"\x40" + u32(2, 0, 1) + b"\x00\x07"
    assert read(chunk(DICT, entries), BOOL, 2) == [False, True]


def test_codec_zstd_is_read_as_an_extension():
    import pyarrow as pa

    stored = pa.compress(i64(*range(100)), codec="zstd", asbytes=True)
    assert read(chunk(PLAIN, b"", codec=ZSTD, blocks=[(800, stored)]), INT64, 100) == list(range(100))
    refused("ZSTD", chunk(PLAIN, b"", codec=ZSTD, blocks=[(792, stored)]), INT64, 99)
    refused("ZSTD", chunk(PLAIN, b"", codec=ZSTD, blocks=[(800, stored[:-3])]), INT64, 100)


@pytest.mark.parametrize("codec", [FLATE, GZIP, ZLIB])
def test_blocks_must_have_their_announced_length(codec):
    compress = {FLATE: raw_deflate, GZIP: gzip.compress, ZLIB: zlib.compress}[codec]
    raw = i64(*range(50))
    pieces = [raw[:7], raw[7:207], b"", raw[207:]]
    blocks = [(len(piece), compress(piece)) for piece in pieces]
    assert read(chunk(DELTA, b"", codec=codec, blocks=blocks), INT64, 50) == np.cumsum(range(50)).tolist()
    for wrong in (-1, 1):
        spoilt = [*blocks[:2], (0, blocks[2][1]), (len(pieces[3]) + wrong * 8, blocks[3][1])]
        refused("block 3", chunk(DELTA, b"", codec=codec, blocks=spoilt), INT64, 50 + wrong)
    refused(
        "block 2",
        chunk(DELTA, b"", codec=codec, blocks=[*blocks[:2], (0, compress(b"x")), blocks[3]]),
        INT64,
        50,
    )
    refused("expand", chunk(DELTA, b"", codec=codec, blocks=[(8 * 50, b"")]), INT64, 50)


def test_gzip_members_may_follow_each_other_and_nothing_else_may():
    raw = i64(*range(9))
    both = gzip.compress(raw[:20]) + gzip.compress(b"") + gzip.compress(raw[20:])
    assert read(chunk(PLAIN, b"", codec=GZIP, blocks=[(72, both)]), INT64, 9) == list(range(9))
    for behind in (b"\0", b"garbage", gzip.compress(b"x")):
        refused("GZIP", chunk(PLAIN, b"", codec=GZIP, blocks=[(72, both + behind)]), INT64, 9)
    refused("cut short", chunk(PLAIN, b"", codec=GZIP, blocks=[(72, both[:-1])]), INT64, 9)


def test_a_block_is_never_decompressed_beyond_its_length():
    import tracemalloc

    for codec, compress in ((FLATE, raw_deflate), (GZIP, gzip.compress), (ZLIB, zlib.compress)):
        bomb = compress(bytes(50 << 20))
        body = chunk(PLAIN, b"", codec=codec, blocks=[(8, bomb)])
        tracemalloc.start()
        refused("block 0", body, INT64, 1)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
        tracemalloc.stop()


@pytest.mark.parametrize(
    "stream",
    [
        (PLAIN, u32(2) + b"ab" + u32(3) + b"cde"),
        (OFFSET, u32(2, 0, 2) + b"abcde"),
        (DICT, u32(2, 2, 1) + b"\x40" + u32(2, 0, 2) + b"abcde"),
        (AFFIX, u32(0, 0) + u32(2) + b"ab" + u32(3) + b"cde"),
    ],
)
def test_values_beyond_32_bit_offsets_come_as_large_arrays(stream, monkeypatch):
    from colstore_io.formats.columns import variable

    body = chunk(*stream, bitmap=b"\x02")
    for limit, wide in ((5, False), (4, True)):
        monkeypatch.setattr(variable, "INT32_MAX", limit)
        data = file_of([(b"c", STRING, True)], [(3, [(body, {"nulls": 1})])])
        for dictionaries in ((), (0,)):
            (column,) = decoded(data, opened(data), 0, [0], dictionaries=dictionaries)
            column.array.validate(full=True)
            assert column.array.to_pylist() == ["ab", None, "cde"]
            assert ("large" in str(column.array.type)) == wide


class Work:
    """Counts what happens to its blocks."""

    def __init__(self, n_blocks, fails_at=None):
        self.n_blocks = n_blocks
        self.fails_at = fails_at
        self.taken = []
        self.finished = False

    def prepare(self, block):
        return block

    def consume(self, block, raw):
        assert block == raw
        if block == self.fails_at:
            raise ValueError(f"{self.n_blocks}")
        self.taken.append(block)

    def finish(self):
        self.finished = True


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_blocks_are_taken_in_order_and_once(threads):
    works = [Work(n) for n in (0, 1, 40, 3)]
    run(works, threads)
    assert [work.taken for work in works] == [list(range(work.n_blocks)) for work in works]
    assert all(work.finished for work in works)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_in_a_thread_is_raised_in_the_caller(threads):
    works = [Work(9), Work(7, fails_at=3), Work(100)]
    with pytest.raises(ValueError, match="7"):
        run(works, threads)
