"""Opening columns files: requests, limits, names, bounds."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest
from formats.columns.columns_builder import chunk, file_of
from formats.columns.reading import decoded, opened, raw_values
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.errors import FormatError, TruncatedFileError
from colstore_io.formats import detect, read_blocks, read_statistics
from colstore_io.formats.columns import FORMAT
from colstore_io.formats.columns.boxed import boxed
from colstore_io.formats.columns.reader import TAIL_BYTES
from colstore_io.storage import open_file

INT64, FLOAT64, BYTES, STRING = 5, 11, 12, 13


def numbers(*values, dtype="<i8"):
    return chunk(1, np.array(values, dtype).tobytes())


def texts(*values):
    return chunk(1, b"".join(struct.pack("<I", len(v)) + v for v in values))


def one_column(body, kind, n_rows, *, nullable=False, **values):
    return file_of([(b"c", kind, nullable)], [(n_rows, [(body, values)])])


class Recording:
    """A file that tells what was read of it."""

    def __init__(self, data):
        self.file, _ = open_file(data)
        self.reads = []

    def __getattr__(self, name):
        return getattr(self.file, name)

    def read(self, offset, length):
        self.reads.append((offset, length))
        return self.file.read(offset, length)


def test_a_small_file_is_opened_without_a_request():
    data = one_column(numbers(1, 2), INT64, 2)
    file = Recording(data)
    (meta,) = FORMAT.read_metadata([file], [memoryview(data)])
    assert file.reads == []
    assert (meta.format, meta.layout, meta.n_rows, meta.columns) == ("columns", "1", 2, ())


def test_the_ends_of_all_files_are_read_in_one_round():
    data = one_column(numbers(*range(20_000)), INT64, 20_000)
    files = [Recording(data) for _ in range(3)]
    FORMAT.read_metadata(files, [memoryview(data)[:4096]] * 3)
    assert [file.reads for file in files] == [[(len(data) - TAIL_BYTES, TAIL_BYTES)]] * 3


def test_a_longer_footer_takes_one_more_request():
    groups = [(1, [(numbers(1), {"maximum": bytes(200)})]) for _ in range(1000)]
    data = file_of([(b"c", INT64, False)], groups)
    file = Recording(data)
    (meta,) = FORMAT.read_metadata([file], [memoryview(data)[:4096]])
    assert meta.n_records == 1000
    assert len(file.reads) == 2


def test_the_format_is_told_by_its_first_four_bytes():
    assert detect(b"ABCD\x01", "f") is FORMAT
    for old in (b"COLS\x01", b"KEIN\x01"):
        with pytest.raises(FormatError, match=f"{old[:4].decode()}.*not supported"):
            detect(old, "f")


def test_short_files_are_told_to_be_truncated():
    data = one_column(numbers(1), INT64, 1)
    for size in (5, 8, 12):
        with pytest.raises(TruncatedFileError):
            opened(data[:size])


def test_equal_names_get_numbers():
    schema = [(name, INT64, False) for name in (b"a", b"a", b"a#2", b"a", b"", b"", b"\xff")]
    meta = opened(file_of(schema, []))
    assert meta.schema.names == ["a", "a#3", "a#2", "a#4", "", "#2", "\udcff"]


def test_text_columns_are_text_whatever_their_names():
    meta = opened(file_of([(b"", STRING, False), (b"x", STRING, True), (b"y", BYTES, False)], []))
    assert [f.logical for f in meta.schema] == ["string", "string", "binary"]
    assert [f.optional for f in meta.schema] == [False, True, False]
    meta = opened(file_of([(b"x", STRING, True)], []), errors="surrogateescape")
    assert meta.schema["x"].logical == "binary"


def test_files_of_equal_columns_share_their_schema():
    data = one_column(numbers(1), INT64, 1)
    pairs = [open_file(data) for _ in range(2)]
    one, other = FORMAT.read_metadata([f for f, _ in pairs], [h for _, h in pairs])
    assert one.schema is other.schema
    assert one.fingerprint == other.fingerprint
    assert one.decoder.unchanged(pairs[0][0])


def test_a_file_with_more_behind_its_end_is_unchanged_and_another_one_is_not():
    data = one_column(numbers(1), INT64, 1)
    decoder = opened(data).decoder
    assert decoder.unchanged(open_file(data + bytes(100))[0])
    assert not decoder.unchanged(open_file(one_column(numbers(1), INT64, 1, maximum=b"12345678"))[0])
    assert not decoder.unchanged(open_file(data[:-20])[0])


def test_row_limit_holds_at_open():
    data = one_column(numbers(1, 2, 3), INT64, 3)
    assert opened(data, max_rows=3).n_rows == 3
    with pytest.raises(FormatError, match="max_rows"):
        opened(data, max_rows=2)


@pytest.mark.parametrize(
    ("body", "kind", "n_rows"),
    [
        (numbers(1, 2, 3), INT64, 3),
        (chunk(4, struct.pack("<III", 1000, 1, 0) + struct.pack("<II", 1, 0) + bytes(8)), INT64, 1000),
        (chunk(4, struct.pack("<III", 9, 1, 0) + struct.pack("<II", 1, 0) + b"long text"), STRING, 9),
        (chunk(6, struct.pack("<I", 30) + bytes(30) + bytes(4) + bytes(4 * 9)), STRING, 9),
        (texts(b"x" * 60), STRING, 1),
    ],
)
def test_decoded_bytes_are_limited_before_they_are_made(body, kind, n_rows):
    data = one_column(body, kind, n_rows)
    meta = opened(data)
    (column,) = decoded(data, meta, 0, [0])
    size = column.values.nbytes if column.values is not None else len(column.array.buffers()[2])
    meta = opened(data, max_decoded_bytes=size - 1 if column.values is not None else max(size // 5 - 3, 1))
    with pytest.raises(FormatError, match="max_decoded_bytes"):
        decoded(data, meta, 0, [0])


def test_groups_may_be_in_any_order_but_not_overlap():
    body = numbers(1)
    groups = [(1, [(body, {})]), (1, [(body, {})])]
    size = len(body)
    meta = opened(file_of([(b"c", INT64, False)], groups, offsets=[5 + size, 5]))
    assert meta.body_start.tolist() == [5 + size, 5]
    with pytest.raises(FormatError, match="inside another"):
        opened(file_of([(b"c", INT64, False)], groups, offsets=[5 + size - 1, 5]))
    with pytest.raises(FormatError, match="inside another"):
        opened(file_of([(b"c", INT64, False)], groups, offsets=[5, 5]))


def test_columns_none_but_rows_are_refused():
    assert opened(file_of([], [(0, [])])).n_rows == 0
    with pytest.raises(FormatError, match="no columns"):
        opened(file_of([], [(3, [])]))


def test_header_tells_columns_and_rows():
    file, head = open_file(one_column(texts(b"a"), STRING, 1))
    header = FORMAT.read_header(file, head)
    assert [column.manifest for column in header.columns] == [
        {"name": "c", "dtype": "string", "nullable": False}
    ]
    assert (header.n_records, header.committed_rows, header.layout) == (1, 1, "1")


def bounds(data, **options):
    meta = opened(data, **options)
    statistics = meta.statistics
    if "c" not in statistics.minimum:
        return None
    return statistics.minimum["c"].tolist(), statistics.maximum["c"].tolist(), statistics.usable["c"].tolist()


def q(value):
    return struct.pack("<q", value)


def d(value):
    return struct.pack("<d", value)


def test_bounds_of_integers_are_trusted():
    assert bounds(one_column(numbers(-5, 7), INT64, 2, minimum=q(-5), maximum=q(7))) == ([-5], [7], [True])
    # absent, of another width, or the wrong way round
    for low, high in ((b"", b""), (q(1), b"1"), (q(7), q(-5))):
        assert bounds(one_column(numbers(-5, 7), INT64, 2, minimum=low, maximum=high))[2] == [False]


def test_bounds_of_floats_that_are_nan_are_not_trusted():
    nan = float("nan")
    for low, high, usable in ((1.0, 2.0, True), (nan, nan, False), (1.0, nan, False), (0.0, -0.0, True)):
        data = one_column(numbers(1, 2, dtype="<f8"), FLOAT64, 2, minimum=d(low), maximum=d(high))
        assert bounds(data)[2] == [usable]


def test_bounds_of_text_are_trusted_where_they_are_text():
    def of(low, high, **options):
        return bounds(one_column(texts(b"a", b"b"), STRING, 2, minimum=low, maximum=high), **options)

    assert of(b"a", "é".encode()) == (["a"], ["é"], [True])
    assert of(b"", b"b") == ([""], ["b"], [True])
    assert of(b"", b"")[2] == [False]  # a footer without bounds looks like this
    assert of(b"a", b"\xff")[2] == [False]
    assert of(b"a", b"b", errors="surrogateescape") is None


def test_bytes_have_no_bounds_and_all_null_groups_none_that_are_usable():
    assert bounds(one_column(texts(b"a"), BYTES, 1, minimum=b"a", maximum=b"a")) is None
    empty = chunk(1, b"", bitmap=b"\x03")
    data = one_column(empty, INT64, 2, nullable=True, nulls=2, minimum=q(1), maximum=q(1))
    assert bounds(data)[2] == [False]
    assert opened(data).statistics.nulls["c"].tolist() == [2]


def test_statistics_survive_pickling_and_cost_no_request():
    data = one_column(numbers(1), INT64, 1, minimum=q(1), maximum=q(1))
    meta = opened(data)
    other = pickle.loads(pickle.dumps(meta))
    assert other.statistics.minimum["c"].tolist() == [1]
    file, _ = open_file(data)
    assert read_statistics([file], [meta]) == [meta]
    assert read_blocks([file], [meta]) == [None]


def test_boxed_values_are_those_of_the_schema():
    data = one_column(chunk(1, q(7), bitmap=b"\x01"), INT64, 2, nullable=True, nulls=1)
    assert boxed(decoded(data, opened(data), 0, [0])[0]) == [None, 7]
    data = one_column(texts(b"a", b"\xff"), STRING, 2)
    (column,) = decoded(data, opened(data, errors="surrogateescape"), 0, [0])
    assert boxed(column) == [b"a", b"\xff"]
    assert boxed(column, text=True) == ["a", "\udcff"]


def test_text_that_is_not_utf8_names_its_row():
    bodies = [
        texts(b"a", b"b", b"\xff"),
        chunk(5, struct.pack("<IIII", 3, 0, 1, 2) + b"ab\xff"),
        chunk(4, struct.pack("<III", 3, 3, 2) + b"\x18" + struct.pack("<IIII", 3, 0, 1, 2) + b"ab\xff"),
        chunk(6, bytes(8) + b"".join(struct.pack("<I", 1) + v for v in (b"a", b"b", b"\xff"))),
    ]
    for body in bodies:
        data = one_column(body, STRING, 3)
        with pytest.raises(FormatError, match=r"row group 0, column 'c'.*row 2 is no UTF-8"):
            decoded(data, opened(data), 0, [0])
    data = one_column(bodies[2], STRING, 3)
    with pytest.raises(FormatError, match="dictionary entry is no UTF-8"):
        decoded(data, opened(data), 0, [0], dictionaries=[0])


@given(st.lists(st.integers(1, 12), min_size=1, max_size=10), st.integers(1, 60), st.data())
@settings(max_examples=60, deadline=None)
def test_a_part_of_a_plain_column_decompresses_its_own_blocks_only(sizes, n_rows, data):
    import zlib

    values = np.arange(n_rows, dtype="<i8")
    raw = values.tobytes()
    blocks, at, number = [], 0, 0
    while at < len(raw) or not blocks:
        piece = raw[at : at + sizes[number % len(sizes)]]
        deflater = zlib.compressobj(1, 8, -15)
        blocks.append((len(piece), deflater.compress(piece) + deflater.flush()))
        at, number = at + max(1, len(piece)), number + 1
    start = data.draw(st.integers(0, n_rows))
    stop = data.draw(st.integers(start, n_rows))
    first = sum(1 for k in range(len(blocks)) if sum(b[0] for b in blocks[: k + 1]) <= 8 * start)
    broken = [(length, b"\xff" * len(stored)) for length, stored in blocks]
    spoilt = [block if k >= first else broken[k] for k, block in enumerate(blocks)]
    if stop > start:
        last = next(k for k in range(len(blocks)) if sum(b[0] for b in blocks[: k + 1]) >= 8 * stop)
        spoilt[last + 1 :] = broken[last + 1 :]
    else:
        spoilt = broken
    file = one_column(chunk(1, b"", codec=2, blocks=spoilt), INT64, n_rows)
    (column,) = decoded(file, opened(file), 0, [0], rows=(start, stop))
    assert raw_values(column, opened(file).schema["c"]) == list(range(start, stop))
