"""What stands in front of the first record, and everything that may be wrong with it."""

from __future__ import annotations

import json
import tracemalloc
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.cstore_builder import build, header_of, read, values_of
from hypothesis import given, settings
from hypothesis import strategies as st

import colstore_io
from colstore_io.errors import FormatError, TruncatedFileError, UnsupportedFeatureError
from colstore_io.fields import Field, Schema
from colstore_io.formats import ShardMeta, detect
from colstore_io.formats.cstore.header import (
    Header,
    MoreBytes,
    encode_counters,
    encode_header,
    encode_manifest,
    parse_header,
)
from colstore_io.formats.cstore.manifest import columns_crc, parse_dtype, sorted_json
from colstore_io.formats.cstore.reader import read_header
from colstore_io.storage import MemoryFile

ID = {"name": "id", "dtype": "<i2", "encoding": "raw", "nullable": False}
X = {"name": "x", "dtype": "<f8", "encoding": "raw", "nullable": False}


def parse(data: bytes) -> Header:
    header = parse_header(data, size=len(data), path="t.cstore")
    assert isinstance(header, Header)
    return header


def test_manifest_checksum_covers_the_sorted_columns() -> None:
    text = (
        '{"columns": [{"dtype": "<i2", "encoding": "raw", "name": "id", "nullable": false}, '
        '{"dtype": "<f8", "encoding": "raw", "name": "x", "nullable": false}]}'
    )
    assert sorted_json({"columns": [ID, X]}) == text.encode()
    assert columns_crc([ID, X]) == 191679038
    assert json.loads(encode_manifest([ID, X]))["manifest_crc32"] == 191679038


def test_header_round_trip() -> None:
    header = parse(encode_header(encode_manifest([ID, X]), 2, 4, 432))
    assert (header.layout, header.n_records, header.committed_rows, header.stats_offset) == ("C", 2, 4, 432)
    assert header.manifest.columns == (ID, X)
    assert header.data_offset == 320


# ----------------------------------------------------------------------------------------------------------
# More bytes


@pytest.mark.parametrize("known", [8, 71, 79, 80, 100, 281])
def test_short_head_asks_for_the_header_and_one_record_header(known: int) -> None:
    data = build([{"id": np.arange(3, dtype="<i2"), "x": np.zeros(3)}])
    answer = parse_header(data[:known], size=len(data), path="t")
    assert isinstance(answer, MoreBytes)
    assert answer.length == (80 if known < 80 else 320 + 32)


def test_no_bytes_past_the_end_are_asked_for() -> None:
    data = header_of([ID, X])
    assert parse_header(data[:100], size=len(data), path="t") == MoreBytes(len(data))


def test_what_is_no_manifest_is_not_fetched() -> None:
    """A damaged length is not worth a gigabyte."""
    data = bytearray(header_of([ID]))
    data[72:80] = (1 << 30).to_bytes(8, "little")
    data[80] = 0
    with pytest.raises(FormatError, match="not JSON"):
        parse_header(bytes(data), size=2 << 30, path="t")


def test_long_manifest_is_read_in_one_more_request() -> None:
    table = {f"column number {i}": np.zeros(2) for i in range(2000)}
    data = build([table])
    file = MemoryFile(data)
    assert len(data) > 128 << 10
    meta = read(data)
    assert meta.schema.names == list(table)
    assert meta.n_rows == 2
    assert read_header(file, file.read(0, 10)).names == list(table)


# ----------------------------------------------------------------------------------------------------------
# Layouts (section 12)


def layout_b(manifest: bytes, n_records: int, rows: int) -> bytes:
    fields = n_records.to_bytes(8, "little") + rows.to_bytes(8, "little")
    head = b"CSTORE\0\1" + fields + zlib.crc32(fields).to_bytes(4, "little") + bytes(12)
    head += len(manifest).to_bytes(8, "little") + manifest
    return head + bytes(-len(head) % 64)


def layout_a(columns: list[dict[str, Any]], rows: Any, **changes: Any) -> bytes:
    manifest = {
        "format_version": 1,
        "n_rows": rows,
        "columns": columns,
        "manifest_crc32": columns_crc(columns, rows),
    }
    text = json.dumps(manifest | changes).encode()
    head = b"CSTORE\0\1" + len(text).to_bytes(8, "little") + text
    return head + bytes(-len(head) % 64)


def test_layout_b() -> None:
    new = build([{"id": np.array([7, 8], "<i2")}])
    old = layout_b(encode_manifest([ID]), 1, 2) + new[len(header_of([ID])) :]
    meta = read(old)
    assert (meta.layout, meta.n_rows) == ("B", 2)
    assert values_of(old, meta, "id").tolist() == [7, 8]


def test_layout_a_has_no_records_and_no_padding() -> None:
    body = np.array([7, 8, 9], "<i2").tobytes() + np.array([0.5, 1, 2]).tobytes()
    data = layout_a([ID, X], 3) + body
    meta = read(data)
    assert (meta.layout, meta.n_rows, meta.n_records) == ("A", 3, 1)
    assert meta.committed_end == len(data)
    assert values_of(data, meta, "x").tolist() == [0.5, 1, 2]
    assert read(data + b"more").committed_end == len(data)
    with pytest.raises(TruncatedFileError):
        read(data[:-1])


@pytest.mark.parametrize("rows", [-1, 1 << 62, 1 << 63, 10**30])
def test_layout_a_row_counts_are_checked(rows: int) -> None:
    with pytest.raises(FormatError):
        read(layout_a([ID], rows))


def test_layout_a_checksum_covers_the_row_count() -> None:
    with pytest.raises(FormatError, match="checksum"):
        read(layout_a([ID], 0, n_rows=1) + bytes(64))


@pytest.mark.parametrize("rows", [None, True, 1.0, "1"])
def test_without_an_integer_row_count_it_is_no_layout_a(rows: Any) -> None:
    with pytest.raises(FormatError) as caught:
        read(layout_a([ID], rows))
    assert caught.value.section == "counters"


# ----------------------------------------------------------------------------------------------------------
# Manifests


def manifest_text(**changes: Any) -> bytes:
    manifest = {"format_version": 1, "columns": [ID], "manifest_crc32": columns_crc([ID])} | changes
    return json.dumps({key: value for key, value in manifest.items() if value is not ...}).encode()


@pytest.mark.parametrize("version", [1, 1.0])
def test_any_number_equal_to_one_is_the_version(version: Any) -> None:
    assert read(header_of(manifest=manifest_text(format_version=version))).n_rows == 0


@pytest.mark.parametrize("version", [..., True, "1", 2, 1.5, None, [1], float("nan"), 10**400])
def test_other_versions_are_refused(version: Any) -> None:
    with pytest.raises(UnsupportedFeatureError, match="format_version"):
        read(header_of(manifest=manifest_text(format_version=version)))


@pytest.mark.parametrize("crc", [..., None])
def test_manifest_without_checksum_is_accepted(crc: Any) -> None:
    assert read(header_of(manifest=manifest_text(manifest_crc32=crc))).schema.names == ["id"]


@pytest.mark.parametrize("crc", [0, True, "x", [], 2**40, -1, 1e400])
def test_wrong_checksums_are_refused(crc: Any) -> None:
    with pytest.raises(FormatError, match="checksum"):
        read(header_of(manifest=manifest_text(manifest_crc32=crc)))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe{",
        b"[]",
        b"null",
        b"1",
        b'"text"',
        b"{",
        b"{}",
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"format_version": 1, "columns": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"format_version": ' + b"1" * 10_000 + b"}",
        '{"format_version": 1}'.encode("utf-16"),
        b'\xef\xbb\xbf{"format_version": 1, "columns": []}',
        b'{"format_version": 1, "columns": {}}',
        b'{"format_version": 1, "columns": [1]}',
        b'{"format_version": 1, "columns": [{"name": "a"}]}',
        b'{"format_version": 1, "columns": [{"dtype": "<i4"}]}',
        b'{"format_version": 1, "columns": [{"name": 1, "dtype": "<i4"}]}',
        b'{"format_version": 1, "columns": [{"name": null, "dtype": "<i4"}]}',
        b'{"format_version": 1, "columns": [{"name": "a", "dtype": ["<i4"]}]}',
        b'{"format_version": 1, "columns": [{"name": "a", "dtype": null}]}',
        b'{"format_version": 1, "columns": [{"name": "a", "dtype": "<i4", "encoding": null}]}',
        b'{"format_version": 1, "columns": [{"name": "a", "dtype": "<i4", "encoding": ["raw"]}]}',
        b'{"format_version": 1, "columns": [{"name": "a", "dtype": "<i4", "nullable": 1}]}',
    ],
    ids=range(25),
)
def test_what_is_no_manifest_is_a_format_error(text: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        read(header_of(manifest=text))
    assert caught.value.section == "manifest"
    assert caught.value.offset is not None
    assert "t.cstore" in str(caught.value)


def test_deeply_nested_foreign_keys_are_a_format_error() -> None:
    """Parsing them may still work where writing them for the checksum does not."""
    for depth in (500, 900, 2000, 5000):
        nested = "[" * depth + "]" * depth
        text = '{"format_version": 1, "columns": [{"name": "a", "dtype": "<i4", "deep": %s}], "manifest_crc32": 1}'
        with pytest.raises(FormatError):
            read(header_of(manifest=(text % nested).encode()))


def test_white_space_key_order_and_raw_characters_are_free() -> None:
    columns = [{"name": "é😀", "dtype": "<i2", "encoding": "raw", "nullable": False}]
    text = json.dumps(
        {"manifest_crc32": columns_crc(columns), "columns": columns, "format_version": 1},
        ensure_ascii=False,
        indent=1,
        sort_keys=True,
    )
    assert read(header_of(manifest=text.encode())).schema.names == ["é😀"]


def test_the_last_of_two_equal_keys_counts() -> None:
    text = manifest_text().replace(b'"dtype": "<i2"', b'"dtype": "<f8", "dtype": "<i2"')
    assert read(header_of(manifest=text)).columns[0].dtype == np.dtype("<i2")
    text = manifest_text().replace(b'"dtype": "<i2"', b'"dtype": "<i2", "dtype": "<f8"')
    with pytest.raises(FormatError, match="checksum"):
        read(header_of(manifest=text))


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(FormatError, match="two columns are named 'id'"):
        read(header_of([ID, ID]))


@pytest.mark.parametrize("missing", ["encoding", "nullable"])
def test_early_column_objects_lack_keys(missing: str) -> None:
    column = {key: value for key, value in ID.items() if key != missing}
    assert read(header_of([column])).columns[0].manifest == column


# ----------------------------------------------------------------------------------------------------------
# Dtypes


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("<i4", "<i4"),
        ("int32", "<i4"),
        (">i4", ">i4"),
        ("f", "<f4"),
        ("?", "|b1"),
        ("a5", "|S5"),
        ("S5", "|S5"),
        ("<U3", "<U3"),
        ("<M8[25s]", "<M8[25s]"),
        ("<m8", "<m8"),
        ("datetime64[ns]", "<M8[ns]"),
        ("S2147483647", "|S2147483647"),
    ],
)
def test_dtype_spellings(text: str, stored: str) -> None:
    assert parse_dtype(text).str == stored


@pytest.mark.parametrize(
    "text",
    [
        "object", "|O", "O8", "V8", "V", "c8", "c16", "complex128", "T", "S", "U", "S0", "<U0", "", " <i4", "<i4 ",
        "i4,f8", "f8, f8", "i4,", "3i4", "(2,3)f8", "(" * 5000 + "2" + ")" * 5000 + "f8", "<U999999999",
        "<U9999999999999", "S2147483648", "<q9", "<M8[0s]", "<M8[999999999999999999999s]", "\ud800", "f\0", "ünicode",
        "{'a': 1}", "[('a', 'i4')]", "i4" * 40, "datetime64[xs]", "<i3", "<f3", "|i4|", "__import__", "rec", "void",
    ],
)  # fmt: skip
def test_other_dtypes_are_refused_without_allocation(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError):
            parse_dtype(text)
        with pytest.raises(FormatError, match="dtype of column 'x'"):
            read(header_of([{"name": "x", "dtype": text}]))


@pytest.mark.parametrize("divisor", ["0", "00", "1", "4", "4294967296", "-1", ""])
@pytest.mark.parametrize(
    "unit", ["<M8[D", "<m8[D", "M8[25s", ">m8[25s", "datetime64[h", "timedelta64[generic"]
)
def test_units_with_a_divisor_never_reach_numpy(unit: str, divisor: str) -> None:
    """NumPy divides by it: some of them would end the process."""
    text = f"{unit}/{divisor}]"
    with pytest.raises(ValueError, match="no dtype of a plain column"):
        parse_dtype(text)
    with pytest.raises(FormatError, match="dtype of column 'x'"):
        read(header_of([{"name": "x", "dtype": text}]))


@given(
    st.text(max_size=12)
    | st.from_regex(r"[<>|=]?[a-zA-Z?][0-9]{0,10}(\[[a-z0-9]*\])?", fullmatch=True)
    | st.from_regex(r"[<>]?[mM]8\[[0-9]{0,10}[DhmsYMW]{1,2}(/[0-9]{1,11})?\]", fullmatch=True)
)
@settings(max_examples=400, deadline=None)
def test_any_text_is_a_storable_dtype_or_refused(text: str) -> None:
    try:
        dtype = parse_dtype(text)
    except ValueError:
        return
    assert dtype.kind in "fiubMmSU"
    assert dtype.itemsize > 0


@pytest.mark.parametrize("value", [None, 4, True, [], {}, ["<i4"]])
def test_dtypes_are_text(value: Any) -> None:
    with pytest.raises(ValueError, match="expected a string"):
        parse_dtype(value)


# ----------------------------------------------------------------------------------------------------------
# Damage


def _sample() -> bytes:
    schema = Schema(
        (Field("n", np.dtype("<i4"), validity="n.valid", attrs={"unit": "m"}), Field("x", np.dtype("<f8"))),
        {"title": "sample"},
    )
    record = {
        "n": np.array([5, 0, 7], "<i4"),
        "n.valid": np.array([True, False, True]),
        "x": np.array([0.5, -1.0, np.nan]),
    }
    return build([record, record], schema=schema)


def _read_or_error(data: bytes) -> ShardMeta | FormatError:
    try:
        return read(data)
    except FormatError as exc:
        return exc


@pytest.mark.parametrize("statistics", [False, True])
def test_every_flipped_header_bit_gives_the_right_data_or_an_error(statistics: bool) -> None:
    data = _sample()
    if statistics:
        data = build([{"a": np.arange(3, dtype="<i4"), "x": np.arange(3.0)}] * 2, statistics=True)
    good = read(data)
    names = [column.name for column in good.columns]
    want = [values_of(data, good, name).tobytes() for name in names]
    refused = 0
    tracemalloc.start()
    try:
        for bit in range(8 * (int(good.body_start[0]))):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # an extra key that does not fit any more
                meta = _read_or_error(bytes(flipped))
            if isinstance(meta, FormatError):
                refused += 1
                assert meta.path == "t.cstore"
                assert meta.section is not None
                assert meta.offset is not None
                continue
            assert [column.name for column in meta.columns] == names
            assert [column.dtype for column in meta.columns] == [column.dtype for column in good.columns]
            assert [values_of(data, meta, name).tobytes() for name in names] == want
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert refused > 1000


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_other_error_escapes_from_damaged_files(data: st.DataObject) -> None:
    content = bytearray(_sample())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        patch = data.draw(st.binary(min_size=1, max_size=9))
        content[place : place + len(patch)] = patch
    content = content[: data.draw(st.integers(0, len(content)))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            meta = read(bytes(content))
        except FormatError:
            return
    assert meta.committed_end <= len(content)


@settings(max_examples=200, deadline=None)
@given(
    n_records=st.integers(-(2**63), 2**63 - 1),
    rows=st.integers(-(2**63), 2**63 - 1),
    m=st.integers(0, 2**64 - 1),
)
def test_absurd_counts_are_refused_without_allocation(n_records: int, rows: int, m: int) -> None:
    data = bytearray(_sample())
    data[8:72] = encode_counters(n_records, rows, 0)
    tracemalloc.start()
    try:
        if (n_records, rows) not in ((0, 0), (2, 6)):
            with pytest.raises(FormatError):
                read(bytes(data))
        data[72:80] = m.to_bytes(8, "little")
        with pytest.raises(FormatError):
            read(bytes(data[:72] + m.to_bytes(8, "little") + data[80:200]))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_detect_names_the_file() -> None:
    assert detect(_sample(), "a").name == "cstore"
    with pytest.raises(FormatError, match=r"a\.cstore.*0 bytes"):
        detect(b"", "a.cstore")
    with pytest.raises(FormatError, match="not a colstore file"):
        detect(b"PAR1....", "a.cstore")


# ----------------------------------------------------------------------------------------------------------
# info() and schema()


def test_header_information_needs_no_sound_records() -> None:
    data = _sample()
    header = read_header(MemoryFile(data), memoryview(data[: len(data) // 2]))
    cut = data[: int(read(data).body_start[0])]
    assert read_header(MemoryFile(cut), memoryview(cut)).committed_rows == 6
    assert (header.n_records, header.committed_rows, header.format_version, header.file_size) == (
        2,
        6,
        1,
        len(data),
    )
    assert header.needs_compaction
    assert header.names == ["n", "x"]
    assert [column.name for column in header.columns] == ["n", "n.valid", "x"]
    assert header.columns[0].manifest["colstore_io"]["validity"] == "n.valid"
    assert header.fingerprint == read(data).fingerprint


def test_header_information_does_not_look_at_dtypes() -> None:
    data = header_of([{"name": "x", "dtype": "|O"}, {"name": "x", "dtype": "?!"}])
    header = read_header(MemoryFile(data), memoryview(data))
    assert header.names == ["x", "x"]
    with pytest.raises(FormatError):
        _ = header.schema


@pytest.mark.parametrize("name", [[1], [[]], {"a": 1}, {}, None, True, 1, 1.5])
def test_header_information_lives_with_names_that_are_no_text(name: Any) -> None:
    data = header_of([{"name": name, "dtype": "<i4"}, {"name": "x", "dtype": "<i4"}])
    header = read_header(MemoryFile(data), memoryview(data))
    assert header.names == [column.name for column in header.columns] == [json.dumps(name), "x"]
    assert header.columns[0].manifest["name"] == name
    assert [column["name"] for column in colstore_io.schema(data)] == [name, "x"]
    assert [column["name"] for column in colstore_io.info(data).columns] == [name, "x"]
    with pytest.raises(FormatError, match="name of column 0"):
        _ = header.schema
    with pytest.raises(FormatError, match="name of column 0"):
        read(data)


def test_shared_malformed_headers_agree_with_information(shared: Path) -> None:
    """Like the reference, `info` and `schema` stop before dtypes and records; unlike it, they raise one error."""
    manifest = json.loads((shared / "vectors/cstore/manifest.json").read_text())
    for entry in manifest["malformed"]:
        data = (shared / "vectors/cstore" / entry["file"]).read_bytes()
        file = MemoryFile(data, spelling=entry["file"])
        refused = "error" in entry["reference"].get("info", {})
        try:
            read_header(file, memoryview(data))
        except FormatError:
            assert refused or entry["file"] == "malformed/column_without_dtype.cstore"
        else:
            assert not refused, entry["file"]
