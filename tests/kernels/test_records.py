"""The walk over record headers, sound and damaged, through memory and through a descriptor."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io import kernels_numpy
from colstore_io.formats.cstore.encode import record_buffers
from colstore_io.kernels import records as compiled

FIRST = 64


def header(index: int, n_rows: int, *, reserved: int = 0, magic: bytes = b"REC\x01") -> bytes:
    head = magic + struct.pack("<qqq", index, n_rows, reserved)
    return head + struct.pack("<I", zlib.crc32(head))


def file_bytes(row_counts: list[int], row_bytes: int) -> bytearray:
    data = bytearray(FIRST)
    for index, n_rows in enumerate(row_counts):
        data += header(index, n_rows, reserved=index) + bytes(-(-n_rows * row_bytes // 8) * 8)
    return data


def walk_all(
    tmp: Path, data: bytes, row_bytes: int, end: int, n: int, first: int = FIRST
) -> tuple[int, int, list[int], list[int]]:
    """Walk by all four implementations, which must agree."""
    path = tmp / "records"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    results = []
    try:
        buffer = np.frombuffer(bytes(data), np.uint8)
        for family in (compiled, kernels_numpy):
            for walk, source in ((family.walk_records, buffer), (family.walk_records_fd, fd)):
                rows, starts = np.zeros(n, np.int64), np.zeros(n, np.int64)
                good, code = walk(source, first, row_bytes, end, rows, starts)
                results.append((good, code, rows[:good].tolist(), starts[:good].tolist()))
    finally:
        os.close(fd)
    assert all(result == results[0] for result in results)
    return results[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 3, 50, 700, 40_000]), max_size=40), st.sampled_from([0, 1, 8, 13, 50]))
def test_sound_files_are_walked_to_the_end(folder: Path, row_counts: list[int], row_bytes: int) -> None:
    data = file_bytes(row_counts, row_bytes)
    good, code, rows, starts = walk_all(folder, data, row_bytes, len(data), len(row_counts))
    assert (good, code, rows) == (len(row_counts), 0, row_counts)
    offset = FIRST
    for n_rows, start in zip(row_counts, starts, strict=True):
        assert start == offset + 32
        offset = start + -(-n_rows * row_bytes // 8) * 8


def test_many_small_records_cross_the_read_buffer(folder: Path) -> None:
    row_counts = [(k * 37) % 300 for k in range(5000)]
    data = file_bytes(row_counts, 8)
    assert len(data) > 3 << 20
    assert walk_all(folder, data, 8, len(data), 5000)[:3] == (5000, 0, row_counts)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 3), st.integers(0, 31), st.integers(1, 255))
def test_each_damaged_header_byte_stops_the_walk_there(
    folder: Path, record: int, byte: int, flip: int
) -> None:
    row_counts = [3, 0, 100, 5]
    data = file_bytes(row_counts, 13)
    offset = FIRST + sum(32 + -(-n * 13 // 8) * 8 for n in row_counts[:record])
    data[offset + byte] ^= flip
    good, code, _, _ = walk_all(folder, data, 13, len(data), 4)
    assert good == record
    assert code == (2 if byte < 4 else 3 if byte < 12 else 4)


@pytest.mark.parametrize(
    ("n_rows", "row_bytes", "code"),
    [
        (-1, 8, 5),
        (-(2**63), 8, 5),
        (2**62, 8, 5),
        (2**60, 8, 5),
        (2**59, 8, 6),
        (2**63 - 1, 1, 5),
        (2**63 - 8, 1, 6),
        (4, 8, 6),
    ],
)
def test_impossible_row_counts(folder: Path, n_rows: int, row_bytes: int, code: int) -> None:
    data = bytes(FIRST) + header(0, 1) + bytes(8) + header(1, n_rows) + bytes(24)
    row_bytes_of_first = -(-row_bytes // 8) * 8
    assert row_bytes_of_first == 8
    assert walk_all(folder, data, row_bytes, len(data), 2)[:2] == (1, code)


def test_magic_is_judged_before_index_and_index_before_crc(folder: Path) -> None:
    for damaged, code in (
        (b"XEC\x01" + bytes(28), 2),
        (b"REC\x01" + b"\x07" + bytes(27), 3),
        (b"REC\x01" + bytes(28), 4),
    ):
        assert walk_all(folder, bytes(FIRST) + damaged, 8, FIRST + 32, 1)[:2] == (0, code)


def test_truncation_and_committed_end(folder: Path) -> None:
    data = bytes(file_bytes([10, 10], 8))
    second = FIRST + 32 + 80
    for cut in range(second, second + 32):
        assert walk_all(folder, data[:cut], 8, len(data), 2)[:2] == (1, 1)
        assert walk_all(folder, data, 8, cut, 2)[:2] == (1, 1)
    for end in (second + 32, len(data) - 1):
        assert walk_all(folder, data, 8, end, 2)[:2] == (1, 6)
    assert walk_all(folder, b"", 8, 0, 1)[:2] == (0, 1)
    assert walk_all(folder, data, 8, len(data), 0)[:2] == (0, 0)
    assert walk_all(folder, data, 8, len(data), 1, first=2**63 - 1)[:2] == (0, 1)


def test_bad_arguments_and_descriptors() -> None:
    rows = np.zeros(1, np.int64)
    for family in (compiled, kernels_numpy):
        with pytest.raises(ValueError):
            family.walk_records(np.zeros(64, np.uint8), -1, 8, 64, rows, rows.copy())
        with pytest.raises(ValueError):
            family.walk_records(np.zeros(64, np.uint8), 0, -8, 64, rows, rows.copy())
        with pytest.raises(ValueError):
            family.walk_records(np.zeros(64, np.uint8), 0, 8, 64, rows, np.zeros(2, np.int64))
        with pytest.raises(OSError, match="descriptor"):
            family.walk_records_fd(-1, 0, 8, 64, rows, rows.copy())


class TestEncodeRecord:
    """Small records as bytes: the compiled encoder against its twin and the general one."""

    @pytest.mark.parametrize("n_rows", [0, 1, 7, 100])
    @pytest.mark.parametrize("names", [["f8"], ["i2", "?", "S3"], ["M8[ns]", "f4", "U2", "u1"]])
    def test_bytes_are_those_of_the_general_encoder(self, names, n_rows):
        arrays = [
            np.zeros(n_rows, name) if name[0] in "SU" else np.arange(n_rows).astype(name) for name in names
        ]
        dtypes = [array.dtype for array in arrays]
        general = b"".join(bytes(memoryview(part)) for part in record_buffers(12, arrays, n_rows))
        for family in (compiled, kernels_numpy):
            assert family.encode_record(arrays, dtypes, 12, 1 << 20) == general

    @pytest.mark.parametrize(
        "arrays",
        [
            [],
            [np.zeros(3), np.zeros(4)],
            [np.zeros(3), np.zeros(3, "f4")],
            [np.zeros((3, 1)), np.zeros((3, 1))],
            [np.zeros(3), [0.0, 0.0, 0.0]],
            [np.zeros(6)[::2], np.zeros(3)],
            [np.zeros(3, ">f8"), np.zeros(3)],
            [np.zeros(3).view(np.recarray), np.zeros(3)],
            [np.zeros(1000), np.zeros(1000)],
            [np.array(1.0), np.array(1.0)],
        ],
        ids=str,
    )
    def test_everything_else_is_left_to_others(self, arrays):
        for family in (compiled, kernels_numpy):
            assert family.encode_record(arrays, [np.dtype("f8")] * 2, 0, 4096) is None

    def test_too_many_columns_are_left_to_others(self):
        arrays = [np.zeros(1)] * 65
        for family in (compiled, kernels_numpy):
            assert family.encode_record(arrays, [np.dtype("f8")] * 65, 0, 1 << 20) is None
