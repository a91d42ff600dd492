"""The bytes we write are the bytes that other writers of the format make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from formats.cstore_builder import Table, build, tables
from hypothesis import HealthCheck, given, settings

from colstore_io.fields import Field, Schema
from colstore_io.formats.cstore.encode import record_buffers, stored_array
from colstore_io.formats.cstore.extras import column_objects
from colstore_io.formats.cstore.header import encode_counters, encode_header, encode_manifest
from colstore_io.formats.cstore.records import body_bytes, encode_record_header

colstore = pytest.importorskip("colstore")

TINY: list[Table] = [
    {"id": np.array([1, 2, 3], "<i2"), "x": np.array([0.5, -2.0, 1000.0])},
    {"id": np.array([4], "<i2"), "x": np.array([np.nan])},
]

TINY_HEAD = bytes.fromhex(
    "4353544f52450001"
    "0200000000000000 0400000000000000 0000000000000000 a84acbae" + "00" * 36 + "ca00000000000000"
)
TINY_RECORDS = bytes.fromhex(
    "52454301 0000000000000000 0300000000000000 0000000000000000 756e9be2"
    "010002000300 000000000000e03f 00000000000000c0 0000000000408f40 0000"
    "52454301 0100000000000000 0100000000000000 0000000000000000 312e1ee4"
    "0400 000000000000f87f 000000000000"
)
TINY_FOOTER = bytes.fromhex(
    "4353544154000100 01000000 02000000 02000000"
    "02006964 03003c6932 010078 03003c6638"
    "01000400 03000400 0101"
    "00000000000000c0 0000000000000000 0000000000408f40 0000000000000000 0100"
    "4d7aa460"
)
TINY_MANIFEST = (
    b'{"format_version": 1, "columns": [{"name": "id", "dtype": "<i2", "encoding": "raw", "nullable": false}, '
    b'{"name": "x", "dtype": "<f8", "encoding": "raw", "nullable": false}], "manifest_crc32": 191679038}'
)


def reference_file(path: Path, records: list[Table], *, statistics: bool) -> bytes:
    path.unlink(missing_ok=True)
    with colstore.create(path, statistics=statistics) as writer:
        for record in records:
            writer.write(record)
    return path.read_bytes()


def test_annotated_dump() -> None:
    data = build(TINY)
    assert data == TINY_HEAD + TINY_MANIFEST + bytes(38) + TINY_RECORDS
    assert len(data) == 432


def test_annotated_dump_with_statistics() -> None:
    data = build(TINY, statistics=True)
    assert data[0x1B0:] == TINY_FOOTER
    assert data[8:36] == bytes.fromhex("0200000000000000 0400000000000000 b001000000000000 bb974ade")
    assert data[36:0x1B0] == build(TINY)[36:]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_files_equal_the_reference(tmp_path: Path, records: list[Table]) -> None:
    assert build(records) == reference_file(tmp_path / "r.cstore", records, statistics=False)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_footers_equal_the_reference(tmp_path: Path, records: list[Table]) -> None:
    if any(0xD800 <= ord(char) < 0xE000 for name in records[0] for char in name):
        with pytest.raises(ValueError, match="lone surrogate"):
            build(records, statistics=True)
        return
    assert build(records, statistics=True) == reference_file(tmp_path / "r.cstore", records, statistics=True)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_the_reference_reads_our_files(tmp_path: Path, records: list[Table]) -> None:
    path = tmp_path / "ours.cstore"
    path.write_bytes(build(records))
    reader = colstore.open(path)
    for name in records[0]:
        want = np.concatenate([stored_array(record[name]) for record in records])
        got = reader[name].array()
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes()
    reader.close()


def test_companions_and_attributes_leave_the_columns_readable(tmp_path: Path) -> None:
    """A library that does not know the extra key sees plain columns."""
    schema = Schema((Field("n", np.dtype("<i4"), validity="n.valid"),), {"title": "t"})
    path = tmp_path / "ours.cstore"
    path.write_bytes(
        build([{"n": np.array([1, 0], "<i4"), "n.valid": np.array([True, False])}], schema=schema)
    )
    reader = colstore.open(path)
    assert list(reader.columns) == ["n", "n.valid"]
    assert reader["n"].array().tolist() == [1, 0]
    reader.close()


def test_long_double_columns(tmp_path: Path) -> None:
    if np.dtype("g").itemsize != 16:
        pytest.skip("no 16-byte long double here")
    records: list[Table] = [{"g": np.array([1.25, -3], "<f16")}]
    assert build(records) == reference_file(tmp_path / "r.cstore", records, statistics=False)


def test_zero_width_strings_are_widened() -> None:
    for dtype, want in (("S0", "|S1"), ("U0", "<U1")):
        assert column_objects(Schema((Field("s", np.dtype(dtype)),)))[0]["dtype"] == want
        stored = stored_array(np.zeros(3, dtype))
        assert stored.dtype.str == want
        assert stored.tobytes() == bytes(3 * stored.itemsize)


@pytest.mark.parametrize("dtype", ["O", "c16", "V4", "i4,f8", "T"])
def test_dtypes_that_may_not_stand_in_a_file_are_refused(dtype: str) -> None:
    with pytest.raises(TypeError, match=r"'x'.*cannot be stored"):
        column_objects(Schema((Field("x", np.dtype(dtype)),)))
    with pytest.raises(TypeError, match="cannot be stored"):
        stored_array(np.empty(2, np.dtype(dtype)))


def test_columns_are_one_dimensional() -> None:
    with pytest.raises(ValueError, match="one-dimensional"):
        stored_array(np.zeros((2, 2)))


def test_stored_arrays_are_not_copied_again() -> None:
    values = np.arange(4, dtype="<i8")
    assert stored_array(values) is values
    assert stored_array(values[::2]).flags.c_contiguous


def test_big_endian_durations_without_unit_are_swapped() -> None:
    """NumPy's own casts leave them alone."""
    values = np.frombuffer(bytes(7) + b"\x05", ">m8")
    assert stored_array(values).dtype.str == "<m8"
    assert stored_array(values).tobytes() == b"\x05" + bytes(7)
    assert column_objects(Schema((Field("t", np.dtype(">m8")),)))[0]["dtype"] == "<m8"


def test_record_buffers_check_lengths() -> None:
    with pytest.raises(ValueError, match="3 rows"):
        record_buffers(0, [np.zeros(2)], 3)


def test_record_of_no_rows_is_a_header_alone() -> None:
    assert b"".join(bytes(part) for part in record_buffers(2, [np.zeros(0)], 0)) == encode_record_header(2, 0)


def test_bodies_are_padded_to_eight_bytes() -> None:
    assert [body_bytes(n, 3) for n in (0, 1, 2, 3, 8)] == [0, 8, 8, 16, 24]


def test_header_is_padded_to_sixty_four_bytes() -> None:
    manifest = encode_manifest(column_objects(Schema((Field("a", np.dtype("<i4")),))))
    header = encode_header(manifest, 1, 2, 3)
    assert len(header) % 64 == 0
    assert header[8:72] == encode_counters(1, 2, 3)
    assert header[80 : 80 + len(manifest)] == manifest
    assert not any(header[80 + len(manifest) :])
