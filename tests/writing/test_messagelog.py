"""Appending messages to logs: locks, crashes of an append, other types, records and tables."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pyarrow as pa
import pytest

import colstore_io as cs
from colstore_io.errors import FormatError, SchemaMismatchError, WriterLockedError
from colstore_io.fields import Field, Schema
from colstore_io.formats.colbin.log import TRAILER_BYTES
from colstore_io.formats.colbin.schema import FieldDef, FieldType, Section, StructDef, TypeCode
from colstore_io.formats.colbin.table_encoding import encode_table
from colstore_io.writing.messagelog import LogWriter

SCHEMA = Schema((Field("n", np.dtype("i8")), Field("s", np.dtype(object), logical="string", optional=True)))
POINT = Section(
    (
        StructDef(
            "Point",
            (
                FieldDef("X", 0, FieldType.scalar(TypeCode.I32)),
                FieldDef("Name", 1, FieldType.scalar(TypeCode.STRING)),
                FieldDef("Tags", 2, FieldType.scalar(TypeCode.STRINGS)),
                FieldDef("At", 3, FieldType.record(1)),
                FieldDef("Props", 4, FieldType.map(TypeCode.STRING, TypeCode.I64)),
            ),
            k8=False,
        ),
        StructDef("Place", (FieldDef("Lat", 0, FieldType.scalar(TypeCode.U8)),), k8=False),
    )
)


def point(x: int, name: str) -> bytes:
    """A message of POINT by hand; x in 1 to 255."""
    text = name.encode()
    body = bytes((0xD0, 0x09, x)) + (bytes((0x10, len(text))) + text if text else b"")
    return (
        body
        + bytes((0x20, 1, 2))
        + b"hi"
        + bytes((0x30, 1, x % 7 + 1))
        + bytes((0x40, 6, 1, 0, 1))
        + b"k"
        + bytes((9, x))
    )


def rows(path) -> list[dict]:
    return cs.open(path)[:].arrow().to_pylist()


def test_messages_become_rows(tmp_path):
    path = tmp_path / "p.colbin"
    with LogWriter(path, POINT) as log:
        for x in range(1, 200):
            log.write(point(x, "n" * (x % 3)))
        assert (log.n_messages, log.n_rows) == (199, 199)
    found = rows(path)
    assert found == [
        {"X": x, "Name": "n" * (x % 3), "Tags": ["hi"], "At.Lat": x % 7 + 1} for x in range(1, 200)
    ]
    assert cs.verify(path) == {str(path): []}
    with pytest.raises(FormatError, match="'Props'"):
        cs.open(path, strict=True)


def test_appending_goes_on_behind_the_last_message(tmp_path):
    path = tmp_path / "t.colbin"
    want = []
    for turn in range(4):
        batch = {"n": np.arange(turn * 10, turn * 10 + 10), "s": [None, f"t{turn}"] * 5}
        with LogWriter(path, SCHEMA if turn == 0 else None, compress=turn % 2 == 1) as log:
            log.write_table(batch)
            log.commit()
        want += [{"n": n, "s": s} for n, s in zip(batch["n"].tolist(), batch["s"], strict=True)]
        assert rows(path) == want
        assert cs.verify(path) == {str(path): []}
    assert cs.open(path).query("n >= 35")["n"].array().tolist() == [35, 36, 37, 38, 39]


def test_a_crash_at_any_byte_of_an_append_keeps_committed_messages(tmp_path):
    path, copy = tmp_path / "t.colbin", tmp_path / "c.colbin"
    with LogWriter(path, SCHEMA) as log:
        log.write_table({"n": [1, 2], "s": ["a", None]})
    closed = path.read_bytes()
    log = LogWriter(path)
    cut = path.stat().st_size
    assert closed[:cut] == path.read_bytes()
    log.write_table({"n": [3], "s": ["c"]})
    log.commit()
    committed = path.stat().st_size
    log.write_table({"n": [4], "s": ["d"]})
    written = path.stat().st_size
    log.close()
    data = path.read_bytes()
    for size in range(cut, len(data) + 1):
        copy.write_bytes(data[:size])
        count = 2 if size < committed else 3 if size < written else 4
        assert [row["n"] for row in rows(copy)] == [1, 2, 3, 4][:count], size
        with LogWriter(copy) as again:  # cuts the torn tail off, and goes on
            assert again.n_rows == count
            again.write_table({"n": [9], "s": ["z"]})
        assert [row["n"] for row in rows(copy)] == [*[1, 2, 3, 4][:count], 9], size
        assert cs.verify(copy) == {str(copy): []}


def without_index(path, count: int) -> list[int]:
    """Make a log of tables that was not closed; return where messages begin and the last one ends."""
    with LogWriter(path, SCHEMA) as log:
        places = [log._end]
        for n in range(count):
            log.write_table({"n": [n], "s": [f"row {n}"]})
            places.append(log._end)
    os.truncate(path, places[-1])
    return places


def appending_ways(path):
    row = {"n": np.array([7]), "s": ["x"]}
    yield lambda: LogWriter(path)
    yield lambda: cs.append(path, row)
    yield lambda: cs.update(path)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    ("at", "bits", "text"),
    [
        (14, 1, "message 1 is damaged: its checksum does not fit, and whole messages stand behind it"),
        (0, 1, "message 1 is damaged: a whole message begins behind it, at offset"),
        (2, 0x40, "message 1 is damaged: a whole message begins behind it, at offset"),
        (3, 0x80, "message 1 is damaged: a whole message begins behind it, at offset"),
    ],
)
def test_a_damaged_message_with_others_behind_it_is_never_cut_off(tmp_path, indexed, at, bits, text):
    path = tmp_path / "t.colbin"
    places = without_index(path, 1000)
    if indexed:  # an index that is there, but not valid
        LogWriter(path).close()
    data = bytearray(path.read_bytes())
    data[places[1] + at] ^= bits
    if indexed:
        data[places[-1] + 20] ^= 1
    path.write_bytes(data)
    for way in appending_ways(path):
        with pytest.raises(FormatError, match=text) as caught:
            way()
        assert (caught.value.offset, caught.value.path) == (places[1], str(path))
        assert "nothing was changed" in str(caught.value)
        assert "Restore the file" in str(caught.value)
        assert path.read_bytes() == data
    assert len(cs.verify(path)[str(path)]) == 1 + (indexed and at == 14)


def test_no_flipped_bit_of_a_message_loses_those_behind_it(tmp_path):
    path = tmp_path / "t.colbin"
    places = without_index(path, 3)
    data = path.read_bytes()
    for at in range(places[0], places[2]):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            path.write_bytes(broken)
            with pytest.raises(FormatError, match="nothing was changed"):
                LogWriter(path)
            assert path.read_bytes() == broken


def test_what_the_refusal_says_saves_the_other_messages(tmp_path):
    path, other = tmp_path / "t.colbin", tmp_path / "o.colbin"
    places = without_index(path, 100)
    data = bytearray(path.read_bytes())
    data[places[50] + 14] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"open\(path\)\[:50\] and open\(path\)\[51:\]"):
        LogWriter(path)
    cs.store(cs.open(path)[:50], other)
    cs.append(other, cs.open(path)[51:])
    assert [row["n"] for row in rows(other)] == [*range(50), *range(51, 100)]
    data[places[50] + 2] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(FormatError, match=rf"open\(path\)\[:50\].*Truncating the file to {places[50]} bytes"):
        LogWriter(path)
    os.truncate(path, places[50])
    with LogWriter(path) as log:
        assert log.n_messages == 50


@pytest.mark.parametrize("rest", [b"", bytes(100), b"garbage" * 20, b"\5\0\0\0" * 50, b"\x40\0\0\x20crc!"])
def test_only_torn_tails_are_cut_off(tmp_path, rest):
    path = tmp_path / "t.colbin"
    places = without_index(path, 20)
    data = bytearray(path.read_bytes())
    for tail, kept in (
        (data + rest, 20),
        (data[: places[-1] - 4], 19),
        (data[: places[-1] - 4] + bytes(4), 19),
    ):
        path.write_bytes(tail)
        with LogWriter(path) as log:
            assert log.n_messages == kept
            log.write_table({"n": [99], "s": ["z"]})
        assert [row["n"] for row in rows(path)] == [*range(kept), 99]
        assert cs.verify(path) == {str(path): []}


def test_an_index_that_is_not_valid_is_cut_off(tmp_path):
    path = tmp_path / "t.colbin"
    places = without_index(path, 20)
    LogWriter(path).close()
    closed = path.read_bytes()
    for place in (places[-1], places[-1] + 4, places[-1] + 20, len(closed) - 24, len(closed) - 3):
        data = bytearray(closed)
        data[place] ^= 1
        path.write_bytes(data)
        assert len(cs.verify(path)[str(path)]) == 1
        with LogWriter(path) as log:
            assert log.n_messages == 20
        assert path.read_bytes() == closed


def test_types_that_have_no_bytes_are_refused(tmp_path):
    path = tmp_path / "t.colbin"
    for types in (5, 10**12, "x", 1.5):
        with pytest.raises(TypeError, match="a schema is a Section or its bytes, not"):
            LogWriter(path, types)
    assert not path.exists()


def test_a_header_that_was_never_finished_is_begun_anew(tmp_path):
    path = tmp_path / "t.colbin"
    LogWriter(path, SCHEMA).close()
    header = path.read_bytes()
    for size in (0, 1, 30):
        path.write_bytes(header[:size])
        with LogWriter(path, SCHEMA) as log:
            log.write_table({"n": [1], "s": ["x"]})
        assert rows(path) == [{"n": 1, "s": "x"}]
    path.write_bytes(header[:30])
    with pytest.raises(FormatError):
        LogWriter(path)
    path.write_bytes(b"something else")
    with pytest.raises(FormatError):
        LogWriter(path, SCHEMA)
    assert path.read_bytes() == b"something else"


def test_one_writer_at_a_time(tmp_path):
    path = tmp_path / "t.colbin"
    log = LogWriter(path, SCHEMA)
    with pytest.raises(WriterLockedError):
        LogWriter(path)
    log.close()
    log.close()
    LogWriter(path).close()
    with pytest.raises(ValueError, match="closed"):
        log.write_table({"n": [1], "s": ["x"]})
    with pytest.raises(FileExistsError):
        LogWriter(path, SCHEMA, exclusive=True)
    with pytest.raises(FileNotFoundError):
        LogWriter(tmp_path / "none.colbin")


def test_messages_of_other_types_are_refused_and_nothing_is_written(tmp_path):
    path = tmp_path / "t.colbin"
    with LogWriter(path, SCHEMA) as log:
        log.write(
            encode_table(
                {"n": pa.array([1], pa.int64()), "s": pa.array(["x"]).cast(pa.string())},
                self_describing=False,
            )
        )
        before = path.read_bytes()
        with pytest.raises(SchemaMismatchError, match="another section"):
            log.write(encode_table({"other": [1]}))
        with pytest.raises(SchemaMismatchError, match="type code"):
            log.write_table({"n": [1.5], "s": ["x"]})
        with pytest.raises(SchemaMismatchError, match="were given"):
            log.write_table({"n": [1]})
        with pytest.raises(SchemaMismatchError, match="has nulls"):
            log.write_table({"n": pa.array([None], pa.int64()), "s": ["x"]})
        with pytest.raises(FormatError, match="not a colbin message"):
            log.write(b"\x01")
        with pytest.raises(TypeError, match="encode="):
            log.write({"n": 1})
        assert path.read_bytes() == before
    assert rows(path) == [{"n": 1, "s": "x"}]
    with pytest.raises(SchemaMismatchError):
        LogWriter(path, POINT)
    with (
        LogWriter(tmp_path / "p.colbin", POINT) as log,
        pytest.raises(SchemaMismatchError, match="no tables"),
    ):
        log.write_table({"X": [1]})


def test_self_describing_messages_lose_their_section(tmp_path):
    path = tmp_path / "t.colbin"
    table = {"a": np.arange(20), "b": ["x", "y"] * 10}
    message = encode_table(table)
    section = message[1 : message.index(b"b\x0b") + 2]
    with LogWriter(path, section) as log:
        log.write(message)
        log.write(encode_table(table, self_describing=False))
        log.write_table(table)
    assert cs.open(path)[:]["a"].array().tolist() == [*range(20)] * 3


def test_records_are_encoded_on_the_way(tmp_path):
    path = tmp_path / "p.colbin"
    with LogWriter(path, POINT, encode=lambda record: point(*record)) as log:
        log.write((5, "five"))
    assert rows(path)[0]["Name"] == "five"


def test_a_dropped_writer_leaves_messages_without_an_index(tmp_path):
    path = tmp_path / "t.colbin"
    log = LogWriter(path, SCHEMA)
    log.write_table({"n": [1], "s": ["x"]})
    del log
    data = path.read_bytes()
    assert rows(path) == [{"n": 1, "s": "x"}]
    with LogWriter(path) as log:
        assert log.n_messages == 1
    assert path.read_bytes()[:-TRAILER_BYTES].startswith(data)


def test_readers_go_on_while_a_log_grows(tmp_path):
    path = tmp_path / "t.colbin"
    with LogWriter(path, SCHEMA) as log:
        log.write_table({"n": np.arange(100), "s": ["x"] * 100})
    before = cs.open(path)
    with LogWriter(path) as log:
        log.write_table({"n": np.arange(50), "s": ["y"] * 50})
        assert len(cs.open(path)) == 150  # an index does not have to be there
    assert before[:]["n"].array().tolist() == list(range(100))
    assert len(cs.open(path)) == 150


def test_lists_are_chosen_by_name(tmp_path, shared):
    import json

    case = json.loads((shared / "vectors/colbin/corpus/sales.json").read_text())
    path = tmp_path / "s.colbin"
    with LogWriter(path, bytes.fromhex(case["section"])) as log:
        for message in case["rows"]:
            log.write(bytes.fromhex(message))
    details = [line for row in case["rows_json"] for line in row["Detail"] or []]
    assert rows(path) == details
    assert cs.open(path, table="Detail")[:].arrow().to_pylist() == details
    sales = cs.open(path, table="")[:].arrow().to_pylist()
    assert sales == [{k: v for k, v in row.items() if k != "Detail"} for row in case["rows_json"]]
    assert cs.verify(path) == {str(path): []}
    with pytest.raises(FormatError, match="no list of records 'Nope'"):
        cs.open(path, table="Nope")


def test_half_written_messages_are_taken_back(tmp_path, monkeypatch):
    path = tmp_path / "t.colbin"
    log = LogWriter(path, SCHEMA)
    log.write_table({"n": [1], "s": ["x"]})
    size = path.stat().st_size
    real = os.pwrite

    def full(fd, data, offset):
        real(fd, bytes(data)[:5], offset)
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="no space"):
        log.write_table({"n": [2], "s": ["x"]})
    monkeypatch.undo()
    assert path.stat().st_size == size
    log.write_table({"n": [3], "s": ["x"]})
    log.close()
    assert [row["n"] for row in rows(path)] == [1, 3]
    shutil.copy(path, tmp_path / "copy.colbin")
    assert rows(tmp_path / "copy.colbin") == rows(path)
