"""The walk from record to record: the same index by every route, in few rounds where a read is a round trip."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.cstore_builder import build, header_of, read
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.errors import FormatError, TruncatedFileError
from colstore_io.formats.cstore import records as records_module
from colstore_io.formats.cstore.header import encode_header, encode_manifest
from colstore_io.formats.cstore.reader import read_metadata
from colstore_io.formats.cstore.records import RecordWalk, body_bytes, encode_record_header
from colstore_io.storage import ByteFile, MemoryFile

COLUMN = {"name": "a", "dtype": "<i8", "encoding": "raw", "nullable": False}


class FarFile(MemoryFile):
    """Contents in memory that pretend to be far away: no mapping, no descriptor, every range is recorded."""

    __slots__ = ("requests",)

    def __init__(self, data: bytes, spelling: str = "far.cstore") -> None:
        super().__init__(data, spelling=spelling)
        self.requests: list[tuple[int, int]] = []

    def map(self, end: int) -> None:  # type: ignore[override]
        return None


class Rounds:
    """Stands in for `read_ranges` and counts its calls."""

    def __init__(self) -> None:
        self.rounds = 0
        self.bytes = 0

    def __call__(self, requests: Sequence[tuple[ByteFile, int, int]]) -> list[memoryview]:
        self.rounds += 1
        for _, _, length in requests:
            assert length > 0
            self.bytes += length
        return [file.read(offset, length) for file, offset, length in requests]


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    counter = Rounds()
    monkeypatch.setattr(records_module, "read_ranges", counter)
    return counter


class SparseFile(FarFile):
    """A file of many large records of which only header and record headers exist."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.places: dict[int, bytes] = {}
        head = header_of([COLUMN], records=len(sizes), rows=sum(sizes))
        super().__init__(head)
        position = len(head)
        for index, rows in enumerate(sizes):
            self.places[position] = encode_record_header(index, rows)
            position += 32 + body_bytes(rows, 8)
        self.head = memoryview(head + self.places[len(head)] if sizes else head)
        self.size = position

    __slots__ = ("head", "places")

    def read(self, offset: int, length: int) -> memoryview:
        assert offset + length <= self.size
        data = bytearray(length)
        for place, header in (self.places | {0: self.head}).items():
            begin, end = max(place, offset), min(place + len(header), offset + length)
            if begin < end:
                data[begin - offset : end - offset] = header[begin - place : end - place]
        return memoryview(data)


def index_of(file: ByteFile, head: memoryview) -> tuple[list[int], list[int]]:
    meta = read_metadata([file], [head], statistics="none")[0]
    return meta.record_rows.tolist(), meta.body_start.tolist()


def expected(sizes: Sequence[int]) -> tuple[list[int], list[int]]:
    starts = []
    position = len(header_of([COLUMN]))
    for rows in sizes:
        starts.append(position + 32)
        position += 32 + body_bytes(rows, 8)
    return list(sizes), starts


# ----------------------------------------------------------------------------------------------------------
# Rounds


def test_uniform_records_take_one_round(rounds: Rounds) -> None:
    sizes = [100_000] * 999 + [17]
    file = SparseFile(sizes)
    assert index_of(file, file.head) == expected(sizes)
    assert rounds.rounds == 1
    assert rounds.bytes == 999 * 32


def test_records_inside_the_first_bytes_take_no_round(rounds: Rounds) -> None:
    sizes = [5] * 300
    file = SparseFile(sizes)
    assert index_of(file, file.read(0, file.size)) == expected(sizes)
    assert rounds.rounds == 0


def test_one_record_takes_no_round(rounds: Rounds) -> None:
    file = SparseFile([10_000_000])
    assert index_of(file, file.head) == expected([10_000_000])
    assert rounds.rounds == 0


def test_append_sessions_of_two_sizes_take_few_rounds(rounds: Rounds) -> None:
    sizes = ([100_000] * 50 + [7]) * 4 + [250_000] * 100 + [3]
    file = SparseFile(sizes)
    assert index_of(file, file.head) == expected(sizes)
    assert rounds.rounds <= 30


def test_small_irregular_records_are_read_as_runs_of_bytes(rounds: Rounds) -> None:
    sizes = [(37 * i) % 900 for i in range(3000)]
    file = SparseFile(sizes)
    assert index_of(file, file.head) == expected(sizes)
    assert rounds.rounds <= 6


def test_large_irregular_records_still_get_on(rounds: Rounds) -> None:
    sizes = [300_000 + 1000 * i for i in range(40)]
    file = SparseFile(sizes)
    assert index_of(file, file.head) == expected(sizes)
    assert rounds.rounds <= 40


def test_many_files_share_their_rounds(rounds: Rounds) -> None:
    files = [SparseFile([100_000] * (2 + i) + [i]) for i in range(20)]
    metas = read_metadata(files, [file.head for file in files], statistics="none")
    assert [meta.n_records for meta in metas] == [3 + i for i in range(20)]
    assert rounds.rounds == 1


def test_rounds_are_bounded_in_bytes(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "ROUND_BYTES", 100_000)
    sizes = [1000] * 12
    files = [SparseFile(sizes) for _ in range(6)]
    metas = read_metadata(files, [file.head for file in files], statistics="none")
    assert all(meta.record_rows.tolist() == sizes for meta in metas)
    assert rounds.rounds >= 6


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(0, 40), st.sampled_from([9_000, 9_000, 9_000, 20_000, 150_000])),
        min_size=1,
        max_size=40,
    )
)
def test_prediction_never_changes_the_index(sizes: list[int]) -> None:
    file = SparseFile(sizes)
    assert index_of(file, file.head) == expected(sizes)


def test_damage_behind_a_prediction_is_found(rounds: Rounds) -> None:
    file = SparseFile([100_000] * 100)
    place = sorted(file.places)[70]
    file.places[place] = encode_record_header(71, 100_000)
    with pytest.raises(FormatError, match=r"record 70 of far\.cstore.*index field is 71, expected 70"):
        index_of(file, file.head)


def test_headers_that_are_not_in_the_file_are_not_asked_for(rounds: Rounds) -> None:
    file = SparseFile([100_000] * 10)
    file.size = sorted(file.places)[5] + 31
    with pytest.raises(TruncatedFileError) as caught:
        index_of(file, file.head)
    assert caught.value.section == "record 5"
    assert rounds.rounds == 1


# ----------------------------------------------------------------------------------------------------------
# All routes agree


def damaged(data: bytes, place: int, patch: bytes) -> bytes:
    return data[:place] + patch + data[place + len(patch) :]


def variants() -> dict[str, bytes]:
    data = build([{"a": np.arange(n, dtype="<i8")} for n in (3, 0, 5, 3)])
    head = len(header_of([COLUMN]))
    second = head + 32 + 24
    third = second + 32
    return {
        "sound": data,
        "longer": data + b"tail",
        "cut body": data[:-1],
        "cut header": data[:third] + bytes(7),
        "magic": damaged(data, third, b"REC\2"),
        "index": damaged(data, second, encode_record_header(2, 0)),
        "crc": damaged(data, second + 28, b"\0\0\0\0"),
        "negative": damaged(data, third, encode_record_header(2, -5)),
        "overflow": damaged(data, third, encode_record_header(2, 1 << 60)),
        "wrap": damaged(data, third, encode_record_header(2, 1 << 61)),
        "too long": damaged(data, third, encode_record_header(2, 100)),
        "rows": damaged(data, 0, encode_header(encode_manifest([COLUMN]), 4, 12)),
        "promise": damaged(data, 0, encode_header(encode_manifest([COLUMN]), 5, 11)),
    }


def walk(data: bytes) -> RecordWalk:
    header = read_header_of(data)
    return RecordWalk("f.cstore", len(data), header.data_offset, header.n_records, header.committed_rows, 8)


def read_header_of(data: bytes) -> Any:
    from colstore_io.formats.cstore.header import parse_header

    return parse_header(data, size=len(data), path="f.cstore")


def outcome(run: Any) -> Any:
    try:
        index = run()
    except FormatError as exc:
        return type(exc), str(exc)
    return index.rows.tolist(), index.body_start.tolist(), index.end


@pytest.mark.parametrize("name", variants())
def test_every_route_gives_the_same_index_or_the_same_error(name: str, tmp_path: Path) -> None:
    data = variants()[name]
    path = tmp_path / "f.cstore"
    path.write_bytes(data)
    nothing = memoryview(b"")

    def by_head() -> Any:
        one = walk(data)
        one.begin(data)
        if not one.complete:
            one.wanted()
        return one.result()

    def by_memory() -> Any:
        one = walk(data)
        one.begin(nothing)
        one.walk_memory(np.frombuffer(data, np.uint8))
        return one.result()

    def by_descriptor() -> Any:
        one = walk(data)
        one.begin(nothing)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            one.walk_descriptor(descriptor)
        finally:
            os.close(descriptor)
        return one.result()

    def by_rounds() -> Any:
        one = walk(data)
        one.begin(nothing)
        while not one.complete:
            ranges = one.wanted()
            one.feed(ranges, [data[offset : offset + length] for offset, length in ranges])
        return one.result()

    results = [outcome(run) for run in (by_head, by_memory, by_descriptor, by_rounds)]
    assert all(result == results[0] for result in results)
    if name in ("sound", "longer"):
        assert results[0][0] == [3, 0, 5, 3]
    else:
        kind, text = results[0]
        assert issubclass(kind, FormatError)
        assert "f.cstore" in text


def test_many_records_are_walked_in_slices(tmp_path: Path) -> None:
    """More records than a walk makes room for at first."""
    count = 10_000
    parts = [encode_record_header(i, i % 2) + bytes(8 * (i % 2)) for i in range(count)]
    data = header_of([COLUMN], records=count, rows=count // 2) + b"".join(parts)
    meta = read(data)
    assert meta.n_records == count
    assert meta.n_rows == count // 2
    broken = data[:-8]
    with pytest.raises(TruncatedFileError, match=f"record {count - 1}"):
        read(broken)


def test_rows_without_columns_may_be_many() -> None:
    """Nothing bounds the row count of a table without columns, and sums must not wrap."""
    huge = (1 << 63) - 1
    data = header_of([], records=1, rows=huge) + encode_record_header(0, huge)
    assert read(data).n_rows == huge
    two = header_of([], records=2, rows=-2) + encode_record_header(0, huge) + encode_record_header(1, huge)
    with pytest.raises(FormatError, match="committed_rows"):
        read(two)


def test_never_committed_file_is_an_empty_table() -> None:
    data = header_of([COLUMN]) + encode_record_header(0, 1) + bytes(8)
    meta = read(data)
    assert (meta.n_rows, meta.n_records, meta.schema.names) == (0, 0, ["a"])
    assert meta.committed_end == len(header_of([COLUMN]))
    with pytest.raises(TruncatedFileError):
        read(header_of([COLUMN])[:-1])
    with pytest.raises(FormatError, match="committed_rows"):
        read(header_of([COLUMN], rows=3))
