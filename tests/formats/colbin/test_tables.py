"""Lists of records to columns and back: golden messages, hostile ones, laws."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from formats.colbin.columns_of import expected, found, lists_of, read_everything, read_root, vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.errors import ColumnNotFoundError, FormatError
from colstore_io.formats.colbin.layout import list_columns, list_fields, parsed_section
from colstore_io.formats.colbin.table_encoding import encode_table
from colstore_io.formats.colbin.tables import decode_list, decode_table, find_list, split_message

TABLES = ["users", "products", "categories", "stores", "sales", "events", "metrics"]
ARROW = {"bool": pa.bool_(), "str": pa.string(), "strs": pa.list_(pa.string()), "bytes": pa.binary()}
ARROW |= {"f32": pa.float32(), "f64": pa.float64()}
ARROW |= {f"i{bits}": getattr(pa, f"int{bits}")() for bits in (8, 16, 32, 64)}
ARROW |= {f"u{bits}": getattr(pa, f"uint{bits}")() for bits in (8, 16, 32, 64)}


def plain(column):
    return column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()


def corpus(shared, name):
    return json.loads((shared / f"vectors/colbin/corpus/{name}.json").read_text())


@pytest.mark.parametrize("name", TABLES)
def test_corpus_is_read_as_columns(shared, name):
    case = corpus(shared, name)
    columns = decode_table(bytes.fromhex(case["table_message"]), section=bytes.fromhex(case["table_section"]))
    assert columns
    for column, values in columns.items():
        assert plain(values) == [row[column] for row in case["rows_json"]]


@pytest.mark.parametrize("name", ["users", "products", "categories", "stores", "metrics"])
def test_corpus_is_written_byte_for_byte(shared, name):
    case = corpus(shared, name)
    fields = case["types"][case["root"]["struct"]]["fields"]
    table = pa.table(
        {f["name"]: pa.array([row[f["name"]] for row in case["rows_json"]], ARROW[f["t"]]) for f in fields}
    )
    assert encode_table(table, self_describing=False).hex() == case["table_message"]
    message = encode_table(table)
    assert message.hex() == "d4" + case["table_section"] + case["table_message"][2:]
    back = decode_table(message)
    assert {n: plain(v) for n, v in back.items()} == table.to_pydict()


def same(column, want, got):
    if column.optional and column.code in (9, 10):  # a present -0.0 loses its sign
        sign = 1 << (31 if column.code == 9 else 63)
        want = [0 if v == sign else v for v in want]
        got = [0 if v == sign else v for v in got]
    return want == got


@pytest.mark.parametrize("name", ["messages.json", "random.json", "dynamic.json"])
def test_records_and_lists_of_the_vectors_are_read_as_columns(shared, name):
    compared = 0
    for case in vectors(shared, name):
        section, message = bytes.fromhex(case["section"]), bytes.fromhex(case["message"])
        described = bytes.fromhex(case["self_describing"])
        value = {"rows": case["value"]} if parsed_section(section).root.envelope else case["value"]
        for column, part in read_root(message, section):
            assert same(column, expected(column, [value]), found(column, part)), (case["name"], column)
            compared += 1
        for list_name in lists_of(section):
            for data, given_section in ((message, section), (described, None)):
                own, body, k8 = split_message(data, given_section)
                field = next(f for f in list_fields(parsed_section(own)) if f.name == list_name)
                columns = list_columns(own, field.type.index)
                span = find_list(data, body, len(data), k8, own, field)
                parts = decode_list(data, span, columns, errors="surrogateescape")
                for column, part in zip(columns.columns, parts, strict=True):
                    want = expected(column, value.get(list_name) or [])
                    assert same(column, want, found(column, part)), (case["name"], list_name, column)
                    compared += 1
    assert compared >= 10


@pytest.mark.parametrize("name", ["hostile.json", "mutated.json"])
def test_damaged_messages_are_refused(shared, name):
    for case in vectors(shared, name):
        section = bytes.fromhex(case["section"]) if case.get("section") else None
        message = bytes.fromhex(case["message"])
        try:
            read_everything(message, section)
            result = "accept"
        except (FormatError, ValueError):
            result = "refuse"
        if result == case["must"]:
            continue
        # What is damaged may be a field that no column shows: it is stepped over unseen.
        assert result == "accept", case
        types = parsed_section(section or split_message(message, None)[0])
        assert any(f.type.code >= 22 for s in types.structs for f in s.fields), case


def test_a_few_bytes_do_not_make_a_large_table():
    columns = {"a": np.full(2000, 7), "b": np.zeros(2000)}
    message = encode_table(columns)
    at = message.index((2000).to_bytes(4, "little"))

    def claiming(rows: int) -> bytes:
        return message[:at] + rows.to_bytes(4, "little") + message[at + 4 :]

    assert len(message) < 50
    assert len(decode_table(claiming(4_000_000))["a"]) == 4_000_000
    with pytest.raises(FormatError, match="max_rows"):
        decode_table(claiming(2**32 - 1))
    with pytest.raises(FormatError, match="max_cells"):
        decode_table(claiming(3000), max_cells=5000)
    with pytest.raises(FormatError, match="max_rows"):
        decode_table(message, max_rows=1999)


def test_rows_that_cannot_be_there_are_refused():
    message = encode_table({"a": pa.array([1, None])})
    body = bytes((0x00, 5, 255)) + (2**31).to_bytes(4, "little")
    with pytest.raises(FormatError, match="claims 2147483648 rows"):
        decode_table(split_head(message) + body)


def split_head(message: bytes) -> bytes:
    _, body, _ = split_message(message, None)
    return message[:body]


def test_a_table_of_a_type_with_optionals_is_refused():
    head = split_head(encode_table({"a": pa.array([1, None])}))
    with pytest.raises(FormatError, match="cannot be one"):
        decode_table(head + bytes((0x08, 1, 9)))


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


@st.composite
def arrays(draw, rows, nulls):
    kind = draw(st.sampled_from([*INTEGERS, "bool", "f4", "f8", "text", "bytes", "ints", "texts"]))
    if kind in ("bytes", "ints", "texts") and not nulls:
        kind = "text"
    if isinstance(kind, pa.DataType):
        bits = kind.bit_width
        signed = pa.types.is_signed_integer(kind)
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        small = st.integers(max(low, -3), 3)
        values = st.one_of(small, st.integers(low, high), st.sampled_from([low, high]))
        arrow = kind
    elif kind == "ints":
        arrow = pa.list_(draw(st.sampled_from([k for k in INTEGERS if k != pa.uint8()])))
        bits = arrow.value_type.bit_width
        signed = pa.types.is_signed_integer(arrow.value_type)
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        return pa.array(
            draw(st.lists(st.lists(st.integers(low, high), max_size=5), min_size=rows, max_size=rows)), arrow
        )
    elif kind == "texts":
        lists = st.lists(st.lists(st.text(max_size=6), max_size=4), min_size=rows, max_size=rows)
        return pa.array(draw(lists), pa.list_(pa.string()))
    elif kind == "bytes":
        return pa.array(draw(st.lists(st.binary(max_size=9), min_size=rows, max_size=rows)), pa.binary())
    elif kind == "text":
        values, arrow = st.text(max_size=8), pa.string()
    elif kind == "bool":
        values, arrow = st.booleans(), pa.bool_()
    else:
        width = 32 if kind == "f4" else 64
        values = st.floats(width=width, allow_nan=False).map(lambda x: x + 0.0)
        arrow = pa.float32() if kind == "f4" else pa.float64()
    if nulls and draw(st.booleans()):
        values = st.none() | values
    return pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), arrow)


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 20))
    nulls = draw(st.booleans())
    count = draw(st.one_of(st.integers(1, 5), st.integers(16, 18)))
    return pa.table({f"c{i}": draw(arrays(rows, nulls)) for i in range(count)})


@given(tables(), st.data())
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read(table, data):
    message = encode_table(table)
    back = decode_table(message)
    assert list(back) == table.column_names
    for name in table.column_names:
        assert plain(back[name]) == table[name].to_pylist()
        if isinstance(back[name], np.ndarray):
            assert back[name].dtype == np.dtype(table[name].type.to_pandas_dtype())
        else:
            back[name].validate(full=True)
    chosen = data.draw(st.lists(st.sampled_from(table.column_names), min_size=1, unique=True))
    part = decode_table(message, columns=chosen)
    assert list(part) == chosen
    for name in chosen:
        assert plain(part[name]) == plain(back[name])
    # Any single damage is found or changes values, and does nothing else.
    damaged = bytearray(message)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for broken in (bytes(damaged), message[: data.draw(st.integers(0, len(message) - 1))]):
        try:
            decode_table(broken, errors="surrogateescape", max_cells=1 << 20)
        except (FormatError, ValueError):
            pass


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_body_behind_a_section_is_read_or_refused(body):
    for columns in (
        {"a": [1, 2], "s": ["x", "y"], "f": [0.5, 1.5]},
        {"a": pa.array([1, None]), "l": [[1], [2]]},
    ):
        head = split_head(encode_table(columns))
        for data in (
            head + body,
            head + bytes((0x00, len(body))) + body,
            head + bytes((0x08, len(body))) + body,
        ):
            try:
                decode_table(data, max_cells=1 << 16, errors="surrogateescape")
            except FormatError:
                pass


def test_slices_chunks_dictionaries_and_structured_arrays_are_written():
    structured = np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", ">f8")])
    back = decode_table(encode_table(structured))
    assert back["a"].dtype == np.int32
    assert back["b"].tolist() == [2.5, 4.5]
    chunks = pa.table(
        {"a": pa.chunked_array([[1, 2], [], [3]]), "d": pa.array(["x", "y", "x"]).dictionary_encode()}
    )
    back = decode_table(encode_table(chunks.slice(1)))
    assert (plain(back["a"]), plain(back["d"])) == ([2, 3], ["y", "x"])
    assert decode_table(encode_table({"a": np.array([], np.int16)}))["a"].dtype == np.int16
    sliced = pa.array([[1], [2, 3], [4]]).slice(1)
    assert plain(decode_table(encode_table({"l": sliced}))["l"]) == [[2, 3], [4]]
    flags = pa.array([True, False, None, True] * 5).slice(3)
    assert plain(decode_table(encode_table({"b": flags}))["b"]) == flags.to_pylist()


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        ({"t": np.array(["2020"], "M8[s]")}, TypeError, "no type for timestamp"),
        ({"h": np.zeros(2, np.float16)}, TypeError, "no type for float16"),
        ({"a": [1, 2], "b": [1]}, ValueError, "differ in length"),
        ({"b": pa.array([b"x", None])}, ValueError, "bytes cannot be null"),
        ({"l": pa.array([[1], None])}, ValueError, "cannot be null"),
        ({"l": pa.array([[1.5]])}, TypeError, "lists of integers and of strings"),
        ({"n": pa.nulls(3)}, TypeError, "has no type"),
        ({}, ValueError, "1 to 256 fields"),
        (3, TypeError, "cannot take columns"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_by_name(data, error, match):
    with pytest.raises(error, match=match):
        encode_table(data)


def test_text_that_is_not_utf8():
    message = encode_table({"s": ["ab", "cd"] * 10}).replace(b"cd", b"c\xff")
    with pytest.raises(FormatError, match="not UTF-8"):
        decode_table(message)
    assert plain(decode_table(message, errors="surrogateescape")["s"])[1] == b"c\xff"


def test_columns_are_chosen_by_name():
    message = encode_table({"a": [1], "b": [2]})
    with pytest.raises(ColumnNotFoundError):
        decode_table(message, columns=["c"])
    with pytest.raises(FormatError, match="no list of records 'x'"):
        decode_table(message, table="x")
    with pytest.raises(ValueError, match="pass section="):
        decode_table(b"\xd0")


def test_sections_of_many_nested_records_do_not_unfold_without_end():
    structs = [
        bytes((0, 2, 0, 1)) + b"a" + bytes((21, n + 1, 1, 1)) + b"b" + bytes((21, n + 1)) for n in range(60)
    ]
    body = bytes((61,)) + b"".join(structs) + bytes((0, 1, 0, 1)) + b"x" + bytes((4,))
    section = b"\xff" + len(body).to_bytes(4, "little") + body
    with pytest.raises(FormatError, match="unfold"):
        list_columns(section, 0)
