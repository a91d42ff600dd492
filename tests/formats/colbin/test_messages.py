"""Many messages as columns, and columns as messages."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytest
from colbin_values import VectorTypes

from colstore_io.errors import ColumnNotFoundError, FormatError, SchemaMismatchError
from colstore_io.formats.colbin import messages
from colstore_io.formats.colbin.annotations import record
from colstore_io.formats.colbin.codec import Codec
from colstore_io.formats.colbin.markers import f32, i8, i16, i64, u32


@record
class Point:
    x: Annotated[f32, 1] = 0.0
    y: Annotated[i64 | None, 20] = None


@record
class Row:
    id: Annotated[u32, 1] = 0
    name: Annotated[str, 2] = ""
    at: Annotated[Point, 3] = dataclasses.field(default_factory=Point)
    codes: Annotated[list[i16], 4] = dataclasses.field(default_factory=list)
    small: Annotated[i8, 5] = 0
    flag: Annotated[bool, 6] = False
    tags: Annotated[list[str], 7] = dataclasses.field(default_factory=list)


@record
class Nested:
    rows: Annotated[list[Row], 1]
    id: Annotated[u32, 2]


ROWS = [
    Row(
        n * 70000,
        f"row {n}" * (n % 3),
        Point(n / 2, n if n % 2 else None),
        [n, -n],
        n % 100 - 50,
        n % 4 == 0,
        ["a"] * (n % 5),
    )
    for n in range(100)
]


@pytest.mark.parametrize("table", ["users", "products", "categories", "stores", "metrics"])
def test_the_corpus_goes_through_columns_and_back(shared, table):
    data = json.loads((shared / "vectors" / "colbin" / "corpus" / f"{table}.json").read_text())
    codec = VectorTypes(data["types"]).codec(data["root"])
    rows = [bytes.fromhex(row) for row in data["rows"]]
    columns = codec.decode_columns(rows)
    for name, column in columns.items():
        assert column.tolist() == [row[name] for row in data["rows_json"]]
    buffer, offsets = codec.encode_rows(columns)
    assert [buffer[a:b].tobytes() for a, b in itertools.pairwise(offsets)] == rows


def test_columns_agree_with_objects():
    codec = Codec(Row)
    messages = [codec.encode(row) for row in ROWS]
    columns = codec.decode_columns(messages)
    assert list(columns) == ["id", "name", "at.x", "at.y", "codes", "small", "flag", "tags"]
    assert columns["id"].dtype == np.uint32
    assert columns["at.x"].dtype == np.float32
    assert columns["name"].to_pylist() == [row.name for row in ROWS]
    assert columns["at.y"].to_pylist() == [row.at.y for row in ROWS]
    assert columns["codes"].to_pylist() == [row.codes for row in ROWS]
    buffer, offsets = codec.encode_rows(columns)
    assert buffer.tobytes() == b"".join(messages)
    assert offsets.tolist() == np.cumsum([0, *map(len, messages)]).tolist()
    again = codec.decode_columns((buffer, offsets), columns=["small", "id"])
    assert list(again) == ["small", "id"]
    assert again["small"].tolist() == [row.small for row in ROWS]
    assert codec.decode_columns([bytearray(m) for m in messages])["id"].tolist() == columns["id"].tolist()


def points(count: int = 3) -> tuple[Codec, list[bytes], bytes, np.ndarray]:
    codec = Codec(Point)
    messages = [codec.encode(Point(n + 0.5, n)) for n in range(count)]
    return codec, messages, b"".join(messages), np.cumsum([0, *map(len, messages)])


@pytest.mark.parametrize(
    "spelled",
    [
        list,
        tuple,
        np.ndarray.tolist,
        lambda a: tuple(a.tolist()),
        pa.array,
        lambda a: pa.array(a, pa.uint16()),
        lambda a: pa.chunked_array([a[:2], a[2:]]),
        lambda a: a.astype("u8"),
        lambda a: a.astype(">i2"),
        lambda a: np.repeat(a, 2)[::2],
    ],
)
def test_offsets_of_every_kind_are_taken(spelled):
    codec, _, buffer, offsets = points()
    for data in (
        buffer,
        bytearray(buffer),
        memoryview(buffer),
        np.frombuffer(buffer, np.uint8),
        pa.py_buffer(buffer),
    ):
        columns = codec.decode_columns((data, spelled(offsets)))
        assert columns["x"].tolist() == [0.5, 1.5, 2.5]
        assert columns["y"].to_pylist() == [0, 1, 2]


def test_pairs_of_messages_are_messages():
    codec, messages, _, _ = points(2)
    for pair in (
        tuple(messages),
        (messages[0], memoryview(messages[1])),
        (messages[0], pa.py_buffer(messages[1])),
    ):
        assert codec.decode_columns(pair)["x"].tolist() == [0.5, 1.5]
    assert codec.decode_columns([np.frombuffer(messages[1], np.uint8)])["x"].tolist() == [1.5]
    assert codec.decode_columns((b"", [0]))["x"].tolist() == []


@pytest.mark.parametrize(
    "offsets",
    [None, 5, "x", 1.5, [0.0, 3.0], [True, False], [0, True], np.array([0.0, 3.0]), np.array([False, True]),
     pa.array([0, None]), pa.array([0.0]), [[0], [1, 2]], ["a"], [None], np.array(3)],
)  # fmt: skip
def test_offsets_that_are_no_integers_are_refused(offsets):
    codec, _, buffer, _ = points()
    with pytest.raises(
        TypeError, match="messages is a tuple of a buffer and offsets, and the offsets are integers"
    ):
        codec.decode_columns((buffer, offsets))


@pytest.mark.parametrize(
    "offsets", [[], [0, 1000], [3, 1], [-1, 3], [2**63], [[0, 1]], np.zeros((2, 2), int)]
)
def test_offsets_outside_the_buffer_are_refused(offsets):
    codec, _, buffer, _ = points()
    with pytest.raises(ValueError, match="offsets"):
        codec.decode_columns((buffer, offsets))


def test_messages_that_have_no_bytes_are_named():
    codec, messages, buffer, offsets = points()
    for odd in (5, None, "text", 1.5, True, buffer, (message for message in messages)):
        with pytest.raises(TypeError, match="messages is a sequence of messages, or a tuple"):
            codec.decode_columns(odd)
    for item in (5, 10**12, None, "text", 1.5, True, np.uint8(4), np.int64(4), []):
        with pytest.raises(TypeError, match=r"messages\[1\]: a message is bytes, not"):
            codec.decode_columns([messages[0], item])
    for item in (5, 10**12, None, "text", 1.5):
        with pytest.raises(TypeError, match="and the buffer is bytes, not"):
            codec.decode_columns((item, offsets))
    with pytest.raises(TypeError, match=r"messages\[1\].*a buffer and its offsets go into a tuple"):
        codec.decode_columns([buffer, offsets])


def test_no_messages_are_empty_columns():
    codec = Codec(Row)
    columns = codec.decode_columns([])
    assert {name: len(column) for name, column in columns.items()} == dict.fromkeys(columns, 0)
    buffer, offsets = codec.encode_rows(columns)
    assert len(buffer) == 0
    assert offsets.tolist() == [0]


def test_integers_of_another_width_are_converted_when_they_fit():
    columns: dict[str, Any] = Codec(Point).decode_columns([])
    columns = {"x": np.array([1, 2]), "y": [None, 5]}
    buffer, _ = Codec(Point).encode_rows(columns)
    codec = Codec(Point)
    assert buffer.tobytes() == codec.encode(Point(1.0)) + codec.encode(Point(2.0, 5))

    @record
    class Small:
        a: Annotated[i8, 1]

    with pytest.raises(OverflowError, match="'a'"):
        Codec(Small).encode_rows({"a": np.array([128])})
    with pytest.raises(OverflowError, match="'a'"):
        Codec(Small).encode_rows({"a": pa.array([128])})
    with pytest.raises(SchemaMismatchError, match="'a'"):
        Codec(Small).encode_rows({"a": np.array([1.5])})


def test_what_is_wrong_is_named():
    codec = Codec(Row)
    with pytest.raises(TypeError, match="'rows'"):
        Codec(Nested).decode_columns([])
    assert Codec(Nested).decode_columns([Codec(Nested).encode(Nested(ROWS[:3], 9))], columns=["id"])[
        "id"
    ].tolist() == [9]
    with pytest.raises(ColumnNotFoundError, match="'nam'"):
        codec.decode_columns([], columns=["nam"])
    columns = codec.decode_columns([])
    del columns["flag"]
    with pytest.raises(ColumnNotFoundError, match="'flag'"):
        codec.encode_rows(columns)
    good, bad = codec.encode(ROWS[1]), b"\xd0\x07\x07"
    with pytest.raises(FormatError) as caught:
        codec.decode_columns([good, bad, good])
    assert caught.value.section == "message 1"
    with pytest.raises(FormatError):
        codec.decode_columns([good, b""])
    with pytest.raises(FormatError, match="max_cells"):
        codec.decode_columns([b"\xd0"] * 100, max_cells=100)
    for offsets in ([0, 5, 3], [-1, 3], [0, 1000]):
        with pytest.raises(ValueError, match="offsets"):
            codec.decode_columns((good, np.array(offsets)))
    with pytest.raises(ValueError, match="differ in length"):
        Codec(Point).encode_rows({"x": np.zeros(2), "y": [1]})


def test_dotted_names_cannot_fill_memory():
    """A hundred records inside each other, each with a long name, repeat all names for every column."""
    long = b"n" * 20_000
    size = b"\xff" + len(long).to_bytes(4, "little")
    records = [b"\1\1\0" + size + long + bytes([21, n + 1]) for n in range(90)]
    leaf = b"\1\x5a" + b"".join(bytes([key, 1, key, 3]) for key in range(33, 123))
    body = bytes([91]) + b"".join(records) + leaf
    section = b"\xff" + len(body).to_bytes(4, "little") + body
    with pytest.raises(FormatError, match="characters"):
        messages.decode_columns(section, [b"\xd8"])
