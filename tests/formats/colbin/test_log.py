"""Logs: what is written is read, by index and without; crashes at every byte; damage; hostile files."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io.errors import FormatError, UnsupportedFeatureError
from colstore_io.fields import Field, Schema
from colstore_io.formats import ReadOptions, detect
from colstore_io.formats.colbin import FORMAT
from colstore_io.formats.colbin import log as log_module
from colstore_io.formats.colbin.decoder import SEGMENT_BYTES, SEGMENT_ROWS, cut_segments
from colstore_io.formats.colbin.encoder import LogEncoder
from colstore_io.formats.colbin.log import TRAILER_BYTES, parse_header
from colstore_io.formats.colbin.reader import frames_of
from colstore_io.formats.colbin.table_encoding import encode_table
from colstore_io.storage import MemoryFile

SCHEMA = Schema(
    (
        Field("n", np.dtype("i4")),
        Field("s", np.dtype(object), logical="string"),
        Field("t", np.dtype("M8[ms]"), tz="UTC"),
        Field("o", np.dtype("f8"), optional=True),
    ),
    {"title": "test"},
)


def columns(rows: int, start: int = 0) -> list:
    numbers = np.arange(start, start + rows)
    return [
        numbers.astype("i4"),
        pa.array([f"text {i}" for i in numbers]),
        numbers.astype("M8[ms]"),
        pa.array([None if i % 3 == 0 else i / 2 for i in numbers], pa.float64()),
    ]


def pieces(*sizes: int, **options) -> tuple[list[bytes], bytes]:
    """Header and frames of a log of batches of these sizes, and its end."""
    encoder = LogEncoder(SCHEMA, **options)
    parts, start = [encoder.begin()], 0
    for rows in sizes:
        parts.append(b"".join(encoder.segment(columns(rows, start))))
        start += rows
    return parts, encoder.finish()


def opened(data: bytes, **options):
    file = MemoryFile(data, spelling="x.colbin")
    (meta,) = FORMAT.read_metadata([file], [memoryview(data)[:100]], ReadOptions(**options))
    return file, meta


def read(data: bytes, **options) -> pa.Table:
    """All rows, through a pickled decoder."""
    file, meta = opened(data, **options)
    decoder = pickle.loads(pickle.dumps(meta.decoder))
    names = meta.schema.names
    numbers = list(range(len(names)))
    found: dict[str, list] = {name: [] for name in names}
    for segment in range(meta.n_records):
        parts = decoder.decode(
            segment, numbers, [file.read(*place) for place in decoder.ranges(segment, numbers)]
        )
        for name, part in zip(names, parts, strict=True):
            if part.array is not None:
                values = part.array.to_pylist()
            else:
                values = part.values.tolist()
                if part.validity is not None:
                    values = [v if ok else None for v, ok in zip(values, part.validity, strict=True)]
            assert len(values) == meta.record_rows[segment]
            found[name] += values
    return found


def wanted(rows: int) -> dict[str, list]:
    n, s, t, o = columns(rows)
    return {"n": n.tolist(), "s": s.to_pylist(), "t": t.tolist(), "o": o.to_pylist()}


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("sizes", [(), (1,), (3, 1, 20), (9, 0, 700)])
def test_a_log_is_read_with_and_without_its_index(sizes, compress):
    parts, end = pieces(*sizes, compress=compress)
    body = b"".join(parts)
    for data in (body + end, body):
        assert read(data) == wanted(sum(sizes)) if sum(sizes) else opened(data)[1].n_rows == 0
        _, meta = opened(data)
        assert meta.schema == SCHEMA
        assert meta.committed_end == len(body)
        notices = [p for p in FORMAT.verify_file(MemoryFile(data)) if p.severity == "error"]
        assert not notices
    assert FORMAT.read_header(MemoryFile(body + end), memoryview(body + end)).indexed
    assert not FORMAT.read_header(MemoryFile(body), memoryview(body)).indexed


def test_a_crash_at_any_byte_leaves_whole_messages():
    parts, end = pieces(3, 9, 1)
    data = b"".join(parts) + end
    ends = np.cumsum([len(part) for part in parts])
    rows = [0, 3, 12, 13]
    for size in range(len(data)):
        if size < ends[0]:
            with pytest.raises(FormatError):
                opened(data[:size])
            continue
        whole = int(np.searchsorted(ends, size, "right")) - 1
        _, meta = opened(data[:size])
        assert meta.committed_end == ends[whole], size
        assert meta.n_rows == rows[whole]
        assert (
            FORMAT.read_header(MemoryFile(data[:size]), memoryview(data[:size])).torn or size == ends[whole]
        )
    assert read(data[: ends[2] + 5]) == wanted(12)


@pytest.mark.parametrize("rest", [b"\0" * 4096, b"\xff" * 100, bytes(range(256)) * 3, b"\x05\0\0\0" * 50])
def test_anything_behind_the_last_message_is_passed_over(rest):
    parts, _ = pieces(3, 9)
    data = b"".join(parts) + rest
    assert read(data) == wanted(12)
    assert any("checksum" in p.message or "no message" in p.message or "cut short" in p.message
               for p in FORMAT.verify_file(MemoryFile(data)))  # fmt: skip


def test_a_message_that_never_reached_the_disk_is_found_by_reading_and_verify():
    parts, _ = pieces(3, 9, 4)
    broken = bytearray(b"".join(parts))
    broken[len(parts[0]) + 20] ^= 1
    file, meta = opened(bytes(broken))
    numbers = [0, 1]
    with pytest.raises(FormatError, match="message 0 is damaged: its checksum"):
        meta.decoder.decode(0, numbers, [file.read(*p) for p in meta.decoder.ranges(0, numbers)])
    assert [p.message for p in FORMAT.verify_file(file) if p.severity == "error"] == [
        "message 0: its checksum does not fit"
    ]


def test_every_flipped_bit_is_noticed_or_harmless():
    parts, end = pieces(2, 9)
    data = b"".join(parts) + end
    right = wanted(11)
    body = sum(map(len, parts))
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1 << (at % 8)
        try:
            found = read(bytes(broken))
        except FormatError:
            assert at < body  # header, frame
            continue
        assert found in (right, wanted(2), wanted(0)) or at >= body, at
        if at >= body:
            assert found == right  # a damaged index is as good as none
        problems = FORMAT.verify_file(MemoryFile(bytes(broken)))
        assert problems, at


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_read_or_refused(data, with_header):
    head = pieces()[0][0]
    if with_header:
        data = head + data
    elif not data.startswith((b"\xd4", b"\xdc")):
        data = b"\xd4" + data
    try:
        assert detect(data, "x") is FORMAT
        read(data, max_rows=1000)
    except FormatError:
        pass
    FORMAT.verify_file(MemoryFile(data))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_logs_are_read_or_refused(data):
    parts, end = pieces(9, 2, 4, compress=data.draw(st.booleans()))
    broken = bytearray(b"".join(parts) + end)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(broken) - 1))
        broken[at] = data.draw(st.integers(0, 255))
    try:
        read(bytes(broken))
    except FormatError:
        pass


def fix_crc(frame: bytearray) -> bytes:
    import zlib

    frame[4:8] = zlib.crc32(frame[8:], zlib.crc32(frame[:4])).to_bytes(4, "little")
    return bytes(frame)


def test_a_frame_that_claims_other_rows_than_its_message_is_refused():
    parts, _ = pieces(3)
    frame = bytearray(parts[1])
    frame[8:12] = (4).to_bytes(4, "little")
    with pytest.raises(FormatError, match="holds 3 rows, its frame says 4"):
        read(parts[0] + fix_crc(frame))
    frame[8:12] = (2**32 - 1).to_bytes(4, "little")
    with pytest.raises(FormatError, match="max_rows"):
        opened(parts[0] + fix_crc(frame))


def test_a_compressed_message_that_lies_about_its_size_is_refused():
    parts, _ = pieces(400, compress=True)
    for size in (1, 2**28, 2**32 - 1):
        frame = bytearray(parts[1])
        assert frame[3] >> 4 & 1
        frame[12:16] = size.to_bytes(4, "little")
        with pytest.raises(FormatError, match="decompress"):
            read(parts[0] + fix_crc(frame))


def test_rows_of_a_segment_are_decoded_into_the_callers_memory():
    parts, end = pieces(50, 7, 100)
    file, meta = opened(b"".join(parts) + end)
    assert meta.record_rows.tolist() == [157]
    want = columns(157)
    for first, stop in [(0, 157), (0, 50), (50, 57), (49, 58), (3, 4), (57, 157), (60, 60), (156, 157)]:
        out = [np.empty(stop - first, "M8[ms]"), None, np.empty(stop - first, "i4")]
        ranges = meta.decoder.ranges(0, [2, 1, 0], (first, stop))
        parts_ = meta.decoder.decode(
            0, [2, 1, 0], [file.read(*place) for place in ranges], rows=(first, stop), out=out
        )
        np.testing.assert_array_equal(out[0], want[2][first:stop])
        np.testing.assert_array_equal(out[2], want[0][first:stop])
        assert parts_[1].array.equals(want[1].slice(first, stop - first))
        assert sum(length for _, length in ranges) <= len(b"".join(parts))
    chosen = meta.decoder.select(0, 1, [3, 0])
    o, n = chosen.decode(0, [0, 1], [file.read(*place) for place in chosen.ranges(0, [0, 1])])
    np.testing.assert_array_equal(n.values, want[0])
    assert o.validity.tolist() == want[3].is_valid().to_pylist()
    assert chosen.decoded_row_bytes([0, 1]) == 12


@given(st.lists(st.tuples(st.integers(9, 2_000_000), st.integers(0, 100_000)), max_size=30))
def test_segments_are_runs_of_whole_messages_within_bounds(frames):
    size = np.array([s for s, _ in frames], np.int64)
    rows = np.array([r for _, r in frames], np.int64)
    cuts = cut_segments(size, rows)
    assert cuts[0] == 0
    assert cuts[-1] == len(frames)
    assert (np.diff(cuts) > 0).all()
    for low, high in itertools.pairwise(cuts):
        if high - low > 1:
            assert size[low:high].sum() <= SEGMENT_BYTES
            assert rows[low:high].sum() <= SEGMENT_ROWS
    for keep in range(len(frames)):  # appending changes the last segment only
        before = cut_segments(size[:keep], rows[:keep])
        assert before[:-1].tolist() == cuts[: len(before) - 1].tolist()


def test_bounds_of_messages_become_bounds_of_segments():
    encoder = LogEncoder(
        Schema((Field("a", np.dtype("i8")), Field("f", np.dtype("f8")), Field("t", np.dtype("M8[s]"))))
    )
    data = encoder.begin()
    for start in (0, 70_000):
        numbers = np.arange(start, start + 65_536)
        values = numbers / 2
        times = numbers.astype("M8[s]")
        if start:
            values[5], times[5] = np.nan, np.datetime64("NaT")
        data += b"".join(encoder.segment([numbers, values, times]))
    _, meta = opened(data + encoder.finish())
    bounds = meta.statistics
    assert bounds.minimum["a"].tolist() == [0, 70_000]
    assert bounds.maximum["f"][0] == 32767.5
    assert bounds.usable["f"].tolist() == [True, False]
    assert bounds.usable["t"].tolist() == [True, False]
    assert bounds.maximum["t"][0] == np.datetime64(65_535, "s")
    assert opened(data)[1].statistics is None


NULLS = Schema(
    (
        Field("i", np.dtype("i8"), optional=True),
        Field("s", np.dtype(object), logical="string", optional=True),
        Field("n", np.dtype("i4")),
    )
)


def null_columns(*values: int | None) -> list:
    texts = [None if value is None else str(value) for value in values]
    return [
        pa.array(values, pa.int64()),
        pa.array(texts, pa.string()),
        np.arange(len(values), dtype="i4"),
    ]


def null_log(*batches: tuple[int | None, ...]) -> bytes:
    encoder = LogEncoder(NULLS)
    parts = [encoder.begin(), *(b"".join(encoder.segment(null_columns(*batch))) for batch in batches)]
    return b"".join((*parts, encoder.finish()))


def test_nulls_are_counted_for_every_message_and_segment(monkeypatch):
    monkeypatch.setattr("colstore_io.formats.colbin.decoder.SEGMENT_BYTES", 1)
    data = null_log((1, None, 3), (None, None), (5,))
    ((_, frames),) = frames_of([MemoryFile(data, spelling="x")], [memoryview(data)])
    assert {number: counts.tolist() for number, counts in frames.nulls.items()} == {
        0: [1, 2, 0],
        1: [1, 2, 0],
    }
    statistics = opened(data)[1].statistics
    assert sorted(statistics.nulls) == ["i", "s"]
    assert statistics.nulls["s"].sum() == 3


def test_conditions_about_nulls_pass_over_messages(tmp_path, monkeypatch):
    monkeypatch.setattr("colstore_io.formats.colbin.decoder.SEGMENT_ROWS", 1)
    path = tmp_path / "n.colbin"
    path.write_bytes(null_log((1, 2), (None, 3), (None, None)))
    table = cs.open(path)
    segments = table.source.plan.segments.n_segments
    assert segments == 3
    from colstore_io.rows import matching_segments

    def looked_at(condition):
        from colstore_io.predicate import bind

        return matching_segments(table.source, bind(condition, table.schema)).tolist()

    for name in ("i", "s"):
        assert looked_at(cs.col(name).isna()) == [False, True, True]
        assert looked_at(cs.col(name).notna()) == [True, True, False]
        assert len(table.where(cs.col(name).isna())) == 3
        assert len(table.where(cs.col(name).notna())) == 3
    assert looked_at(cs.col("i") > 2) == [False, True, False]


def test_logs_without_counts_are_read_as_before(tmp_path):
    data = null_log((1, None), (None, None))
    ((_, frames),) = frames_of([MemoryFile(data, spelling="x")], [memoryview(data)])
    old = data[: frames.end] + log_module.encode_index(
        log_module.Frames(frames.offset, frames.size, frames.rows, frames.end, frames.bounds)
    )
    statistics = opened(old)[1].statistics
    assert statistics.nulls == {}
    assert "i" in statistics.minimum


def test_readers_of_before_null_counts_pass_over_them():
    # what such a reader did: every entry parsed alike, those of columns that it does not know passed over
    data = null_log((1, None), (4, 5))
    size = int.from_bytes(data[-16:-12], "little")
    index = data[-TRAILER_BYTES - size : -TRAILER_BYTES]
    count, entries = np.frombuffer(index[:8], "<u4").tolist()
    at, numbers = 8, []

    def column():
        nonlocal at
        length = int.from_bytes(index[at : at + 4], "little")
        at += 4 + length

    column(), column()
    for _ in range(entries):
        numbers.append(int.from_bytes(index[at : at + 4], "little"))
        assert np.dtype(index[at + 4 : at + 6].decode()).kind in "iufb"
        at += 6
        column(), column(), column()
    assert (count, at) == (2, len(index))
    assert [number for number in numbers if number < len(NULLS)] == [0, 2]
    assert [number - (1 << 31) for number in numbers if number >= len(NULLS)] == [0, 1]


def test_counts_that_contradict_their_messages_are_not_believed():
    data = null_log((1, None), (None, None))
    ((_, frames),) = frames_of([MemoryFile(data, spelling="x")], [memoryview(data)])

    def with_counts(**changes):
        changed = {**frames.nulls, 0: np.array(changes["counts"], np.int64)}
        return data[: frames.end] + log_module.encode_index(
            log_module.Frames(
                frames.offset, frames.size, frames.rows, frames.end, frames.bounds, nulls=changed
            )
        )

    assert "i" not in opened(with_counts(counts=[1, 3]))[1].statistics.nulls
    assert opened(with_counts(counts=[1, -1]))[1].statistics.nulls["i"].tolist() == [-1]
    wrong = MemoryFile(with_counts(counts=[0, 2]), spelling="x.colbin")
    (problem,) = FORMAT.verify_file(wrong)
    assert "column 'i': the index says 2 nulls, it has 3" in str(problem)


def test_an_index_larger_than_what_is_read_at_first_is_fetched(monkeypatch):
    from colstore_io.formats.colbin import reader

    parts, end = pieces(*[1] * 50)
    data = b"".join(parts) + end
    monkeypatch.setattr(reader, "_TAIL_BYTES", TRAILER_BYTES + 3)
    file = MemoryFile(data)
    ((_, frames),) = frames_of([file], [memoryview(data)[:64]])
    assert frames.indexed
    assert len(frames.size) == 50


def test_walks_in_blocks_when_files_cannot_be_mapped(monkeypatch):
    parts, _ = pieces(*[2] * 30)
    data = b"".join(parts)
    monkeypatch.setattr(MemoryFile, "map", lambda self, end: None)
    for block in (13, 64, 1000):
        monkeypatch.setattr(log_module, "_BLOCK", block)
        _, meta = opened(data)
        assert meta.n_rows == 60
        _, meta = opened(data[:-1])
        assert meta.n_rows == 58


def test_headers_of_other_versions_and_damaged_ones_are_refused():
    head = bytearray(pieces()[0][0])
    assert parse_header(bytes(head), "x").end == len(head)
    with pytest.raises(UnsupportedFeatureError, match="version 2"):
        parse_header(bytes(head[:8] + b"\2" + head[9:]), "x")
    for at in range(12, len(head)):
        broken = bytearray(head)
        broken[at] ^= 0x40
        with pytest.raises(FormatError):
            parse_header(bytes(broken), "x")


def test_first_bytes_tell_logs_and_messages_apart():
    assert detect(pieces()[0][0], "x") is FORMAT
    assert detect(b"\xd4\x00", "x") is FORMAT
    assert detect(b"\xdc\x00", "x") is FORMAT
    for root in (b"\xd0", b"\xd8"):
        with pytest.raises(FormatError, match="without its types"):
            detect(root + b"\1", "x")


def test_open_and_store(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "a": pa.array(rng.integers(0, 100, 70_000), pa.int16()),
            "t": pa.array(np.arange(70_000).astype("M8[us]")),
            "d": pa.array(np.arange(70_000) % 1000, pa.int32()).cast(pa.date32()),
            "s": [f"x{i % 5}" for i in range(70_000)],
            "o": pa.array([None if i % 3 else i for i in range(70_000)]),
            "l": pa.array([[i % 3] * (i % 4) for i in range(70_000)]),
        }
    )
    path = tmp_path / "x.colbin"
    cs.store(table, path)
    back = cs.open(path)
    got = back[:].arrow()
    for name in table.column_names:
        assert got[name].combine_chunks().cast(table[name].type).equals(table[name].combine_chunks()), name
    assert len(back.query("a >= 50")) == int((table["a"].to_numpy() >= 50).sum())
    assert back[65_530:65_540]["s"].arrow().to_pylist() == table["s"][65_530:65_540].to_pylist()
    assert cs.verify(path) == {str(path): []}


def test_a_file_that_is_one_message_opens(tmp_path, shared):
    import json

    path = tmp_path / "m.colbin"
    path.write_bytes(encode_table({"x": np.arange(20), "s": ["é"] * 20}))
    assert cs.open(path)[:]["x"].array().tolist() == list(range(20))
    assert cs.verify(path) == {str(path): []}
    case = json.loads((shared / "vectors/colbin/corpus/users.json").read_text())
    path.write_bytes(bytes.fromhex("d4" + case["section"] + case["rows"][0][2:]))
    row = cs.open(path)[:].arrow().to_pylist()[0]
    assert row == case["rows_json"][0]


def test_very_many_false_frames_are_dropped_quickly():
    parts, _ = pieces(9, 2)
    false = b"\x01\0\0\0" + b"crc!" + b"\xd0"
    data = b"".join(parts) + false * 200_000
    _, meta = opened(data)
    assert meta.n_rows == 11
    assert meta.committed_end == sum(map(len, parts))


def test_an_index_of_very_many_bounds_is_kept_without_them(monkeypatch):
    parts, end = pieces(9, 2)
    data = b"".join(parts) + end
    assert opened(data)[1].statistics is not None
    monkeypatch.setattr(log_module, "_MAX_BOUNDS", 1)
    _, meta = opened(data)
    assert (meta.n_rows, meta.statistics) == (11, None)
    assert FORMAT.read_header(MemoryFile(data), memoryview(data)).indexed
    parts, end = pieces(9, 2)
    monkeypatch.undo()
    assert opened(b"".join(parts) + end)[1].statistics is None
