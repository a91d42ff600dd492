"""The thorough check finds what a reader cannot notice, and says where."""

from __future__ import annotations

import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.cstore_builder import Table, build, read

from colstore_io import storage
from colstore_io.fields import Field, Schema
from colstore_io.formats import Problem, verify_location
from colstore_io.formats.cstore import verify as verify_module
from colstore_io.formats.cstore.extras import file_columns
from colstore_io.formats.cstore.footer import encode_statistics, record_statistics
from colstore_io.formats.cstore.verify import verify_file
from colstore_io.storage import MemoryFile

SCHEMA = Schema(
    (
        Field("n", np.dtype("<i4"), validity="n.valid"),
        Field("u", np.dtype("<U2")),
        Field("f", np.dtype("<f8")),
        Field("b", np.dtype("|b1")),
    ),
    {"title": "t"},
)


def record(**changes: Any) -> Table:
    table: Table = {
        "n": np.array([5, 0, 7], "<i4"),
        "n.valid": np.array([True, False, True]),
        "u": np.array(["a", "", "é"], "<U2"),
        "f": np.array([0.5, -0.0, 3.0]),
        "b": np.array([True, False, True]),
    }
    return table | changes


def check(data: bytes) -> list[str]:
    return [str(problem) for problem in verify_file(MemoryFile(data))]


def patched(data: bytes, offset: int, patch: bytes) -> bytes:
    return data[:offset] + patch + data[offset + len(patch) :]


def place(data: bytes, name: str, row: int = 0, r: int = 1) -> int:
    meta = read(data)
    rows = int(meta.record_rows[r])
    return int(meta.body_start[r]) + rows * meta.column_prefix(name) + row * meta.physical(name).itemsize


@pytest.fixture(params=[False, True], ids=["plain", "statistics"])
def data(request: pytest.FixtureRequest) -> bytes:
    return build([record(), record()], schema=SCHEMA, statistics=request.param)


def test_sound_files_have_no_problems(data: bytes) -> None:
    assert check(data) == []


@pytest.mark.parametrize("block", [1, 5, 64, 100])
def test_blocks_of_any_size_give_the_same_answer(
    block: int, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_module, "BLOCK_BYTES", max(block, 64))
    assert check(data) == []
    broken = patched(data, place(data, "b", 2), b"\5")
    assert any("boolean of 1 rows" in text for text in check(broken))


@pytest.mark.parametrize(
    ("name", "row", "patch", "message"),
    [
        ("b", 1, b"\2", r"record 1, column 'b' \(offset {}\): boolean of 1 rows is neither 0 nor 1"),
        ("n.valid", 0, b"\7", r"record 1, column 'n\.valid' \(offset {}\): validity byte of 1 rows"),
        ("n", 1, b"\1", r"record 1, column 'n' \(offset {}\): 1 rows are null, but their bytes are not zero"),
        ("u", 0, b"\0\0\x11\0", r"record 1, column 'u' \(offset {}\): 1 characters are beyond"),
    ],
)
def test_values_that_may_not_be(name: str, row: int, patch: bytes, message: str) -> None:
    import re

    data = build([record(), record()], schema=SCHEMA)
    where = place(data, name, row)
    (problem,) = check(patched(data, where, patch))
    assert re.match(message.format(where), problem)


def test_odd_but_allowed_bytes_are_notices() -> None:
    data = build([record(), record()], schema=SCHEMA)
    meta = read(data)
    rows = int(meta.record_rows[1])
    padding = int(meta.body_start[1]) + rows * meta.row_bytes
    assert padding % 8
    header = bytearray(data[int(meta.body_start[0]) - 32 : int(meta.body_start[0])])
    header[20] = 1
    header[28:] = zlib.crc32(header[:28]).to_bytes(4, "little")
    for offset, patch, section in (
        (40, b"\1", "counters"),
        (int(meta.body_start[0]) - 33, b"\1", "header"),
        (int(meta.body_start[0]) - 32, bytes(header), "record 0"),
        (padding, b"\1", "record 1"),
        (len(data), b"tail", "file"),
    ):
        (problem,) = verify_file(MemoryFile(patched(data, offset, patch)))
        assert (problem.severity, problem.section) == ("notice", section)
        assert str(problem).startswith("notice: ")


def test_statistics_are_recomputed() -> None:
    """Wrong bounds under a right checksum hide rows, so each one counts."""
    good = [record(), record(f=np.array([1.0, np.nan, 2.0]))]
    data = build(good, schema=SCHEMA, statistics=True)
    assert check(data) == []
    columns = file_columns(SCHEMA)
    entries = [record_statistics(list(r.values())) for r in good]
    start = read(data).stats_offset

    def with_entry(r: int, c: int, **changes: Any) -> list[str]:
        changed = [list(own) for own in entries]
        changed[r][c] = changed[r][c]._replace(**changes)
        return check(data[:start] + encode_statistics(columns, changed))

    assert "says 1 to 7, the values give 0 to 7" in with_entry(0, 0, minimum=b"\1\0\0\0")[0]
    assert "statistics of record 1, column 'n'" in with_entry(1, 0, maximum=b"\1\0\0\0")[0]
    assert "these values have no bounds" in with_entry(1, 3, prunable=True)[0]
    assert "these values have no bounds" in with_entry(0, 2, prunable=True)[0]
    assert "not flagged as usable, but are not zero" in with_entry(0, 0, prunable=False)[0]
    assert with_entry(0, 0, prunable=False, minimum=bytes(4), maximum=bytes(4)) == []
    assert with_entry(0, 3, minimum=np.float64(0.0).tobytes()) == []  # both zeros are one bound
    assert with_entry(0, 4, maximum=b"\2") != []


def test_statistics_that_cannot_be_read() -> None:
    data = build([record()], schema=SCHEMA, statistics=True)
    assert "not of the size" in check(data + b"x")[0]
    assert "damaged" in check(patched(data, len(data) - 1, b"\xee"))[0]
    fields = data[8:24] + (5).to_bytes(8, "little")
    moved = data[:8] + fields + zlib.crc32(fields).to_bytes(4, "little") + data[36:]
    assert "stats_offset is 5" in check(moved)[0]


def test_statistics_over_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "BLOCK_BYTES", 64)
    rng = np.random.default_rng(1)
    table = {
        "i": rng.integers(-99, 99, 500),
        "t": rng.integers(0, 99, 500).astype("<M8[s]"),
        "f": rng.normal(size=500),
        "s": np.array(["wide text " * 9] * 500),
        "b": np.arange(500) == 3,
    }
    assert check(build([table, table], statistics=True)) == []


def test_a_damaged_extra_key_is_an_error() -> None:
    data = build([record()], schema=SCHEMA)
    broken = data.replace(b'"title": "t"', b'"title": "u"')
    (problem,) = check(broken)
    assert problem.startswith("manifest")
    assert "top-level extra key" in problem


def test_a_damaged_header_ends_the_check(data: bytes) -> None:
    (problem,) = verify_file(MemoryFile(patched(data, 10, b"\1")))
    assert problem.severity == "error"
    assert problem.section == "counters"


def test_the_list_of_problems_is_bounded() -> None:
    data = build([{"b": np.ones(1, bool)}] * 500)
    start = read(data).body_start.tolist()
    broken = bytearray(data)
    for offset in start:
        broken[offset] = 9
    problems = verify_file(MemoryFile(bytes(broken)))
    assert len(problems) == verify_module.MAX_PROBLEMS + 1
    assert problems[-1].severity == "notice"


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "BLOCK_BYTES", 1 << 18)
    rows = 1 << 20
    schema = Schema((Field("n", np.dtype("<i8"), validity="n.valid"), Field("b", np.dtype("|b1"))))
    table = {"n": np.arange(rows), "n.valid": np.ones(rows, bool), "b": np.ones(rows, bool)}
    path = tmp_path / "big.cstore"
    path.write_bytes(build([table], schema=schema, statistics=True))
    location = storage.resolve(str(path)).locations[0]
    tracemalloc.start()
    try:
        assert verify_location(location) == []
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_locations(tmp_path: Path) -> None:
    path = tmp_path / "a.cstore"
    path.write_bytes(build([record()], schema=SCHEMA) + b"tail")
    location = storage.resolve(str(path)).locations[0]
    assert verify_location(location) == []
    assert verify_location(location, notices=True)[0].startswith("notice: file (offset")
    path.write_bytes(b"something else")
    (text,) = verify_location(storage.resolve(str(path)).locations[0])
    assert "not a colstore file" in text
    path.write_bytes(b"")
    (text,) = verify_location(storage.resolve(str(path)).locations[0])
    assert "0 bytes" in text


def test_problems_name_their_place() -> None:
    assert str(Problem("error", "is wrong", "record 3", 17)) == "record 3 (offset 17): is wrong"
    assert str(Problem("notice", "is odd", "file")) == "notice: file: is odd"
