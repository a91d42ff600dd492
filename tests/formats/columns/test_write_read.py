"""What is written is read: all types, encodings, codecs, nulls and block sizes."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.fields import Field, Schema
from colstore_io.formats.columns import FORMAT
from colstore_io.formats.columns import encode as encode_module
from colstore_io.formats.columns.boxed import boxed
from colstore_io.formats.columns.encoder import ENCODINGS, ColumnsEncoder
from colstore_io.formats.columns.tags import NUMPY_TYPES, WRITABLE, Codec, Encoding, Type
from colstore_io.storage import MemoryFile

VARIABLE = {Type.STRING: "string", Type.BYTES: "binary"}


def field(kind, name="c", nullable=False):
    if kind.fixed:
        return Field(name, NUMPY_TYPES[kind], optional=nullable)
    return Field(name, np.dtype(object), logical=VARIABLE[kind], optional=nullable)


def encode(schema, groups, **options):
    encoder = ColumnsEncoder(schema, **options)
    parts = [encoder.begin()]
    for columns in groups:
        parts += encoder.segment(columns)
    parts.append(encoder.finish())
    return encoder, b"".join(parts)


def decode(data):
    """Return the values of each column of each row group."""
    file = MemoryFile(data)
    (meta,) = FORMAT.read_metadata([file], [memoryview(data)])
    columns = list(range(len(meta.schema)))
    groups = []
    for segment in range(meta.n_records):
        pieces = [file.read(*place) for place in meta.decoder.ranges(segment, columns)]
        groups.append([boxed(column) for column in meta.decoder.decode(segment, columns, pieces)])
    assert [str(p) for p in FORMAT.verify_file(file) if p.severity == "error"] == []
    return groups


def values_of(kind):
    if kind is Type.BOOL:
        return st.booleans()
    if kind <= Type.UINT64:
        info = np.iinfo(NUMPY_TYPES[kind])
        return st.integers(int(info.min), int(info.max)) | st.integers(0, 3)
    if kind.fixed:
        return st.floats(width=8 * NUMPY_TYPES[kind].itemsize, allow_nan=False)
    if kind is Type.STRING:
        return st.text(max_size=12) | st.sampled_from(["", "id-1-x", "id-22-x"])
    return st.binary(max_size=12) | st.sampled_from([b"", b"id-1-x", b"id-22-x"])


def array(kind, values):
    if not kind.fixed:
        return pa.array(values, pa.string() if kind is Type.STRING else pa.binary())
    if None in values:
        return pa.array(values, pa.from_numpy_dtype(NUMPY_TYPES[kind]))
    return np.array(values, NUMPY_TYPES[kind])


PAIRS = [(kind, encoding) for kind in Type for encoding in sorted(WRITABLE[kind] - {Encoding.TOKENIZED})]
CODECS = ["none", "flate", "gzip", "zlib", "lzw", "zstd", "auto"]


@pytest.mark.parametrize(("kind", "encoding"), PAIRS, ids=lambda v: v.name)
@given(
    data=st.data(),
    nullable=st.booleans(),
    codec=st.sampled_from(CODECS),
    block=st.sampled_from([1, 7, 64, 0]),
)
@settings(max_examples=25)
def test_every_encoding_reads_back(kind, encoding, data, nullable, codec, block):
    values = values_of(kind) | st.none() if nullable else values_of(kind)
    groups = data.draw(st.lists(st.lists(values, max_size=12), max_size=3))
    options = {} if codec == "auto" else {"level": data.draw(st.integers(-3, 10))}
    name = next(name for name, tag in ENCODINGS.items() if tag is encoding)
    encoder, written = encode(
        Schema((field(kind, nullable=nullable),)),
        [[array(kind, group)] for group in groups],
        encoding=name,
        compression=codec,
        block_size=block,
        **options,
    )
    assert decode(written) == [[group] for group in groups]
    for entry in encoder.groups:
        assert entry.chunks[0].encoding == encoding


@given(
    st.data(), st.sampled_from(["auto", "flate", "lzw", "none"]), st.sampled_from([False, "exact", "fast"])
)
@settings(max_examples=40, deadline=None)
def test_tables_of_any_columns_read_back(data, codec, optimize):
    kinds = data.draw(st.lists(st.sampled_from(list(Type)), min_size=1, max_size=4))
    nullable = data.draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))
    fields = [field(kind, f"c{i}", null) for i, (kind, null) in enumerate(zip(kinds, nullable, strict=True))]
    groups = []
    for n in data.draw(st.lists(st.integers(0, 20), max_size=3)):
        columns = []
        for kind, null in zip(kinds, nullable, strict=True):
            values = values_of(kind) | st.none() if null else values_of(kind)
            columns.append(data.draw(st.lists(values, min_size=n, max_size=n)))
        groups.append(columns)
    arrays = [[array(k, c) for k, c in zip(kinds, columns, strict=True)] for columns in groups]
    _, written = encode(Schema(tuple(fields)), arrays, compression=codec, optimize=optimize)
    assert decode(written) == groups


def scrambled(n):
    """Numbers without structure that are the same everywhere (splitmix64)."""
    z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).view(np.int64)


LARGE = {
    "counter": np.arange(60_000) * 7,
    "random": scrambled(60_000),
    "float": np.arange(60_000) * 1.0001,
    "few": pa.array([f"customer-{i % 200}@example.com" for i in range(60_000)]),
    "many": pa.array([f"id-{i}-suffix" for i in range(60_000)]),
    "hashes": pa.array(
        [hashlib.sha256(b"%d" % i).digest() * 1 + hashlib.sha512(b"%d" % i).digest() for i in range(60_000)]
    ),
    "nulls": pa.array([None if i % 3 else i for i in range(60_000)], pa.int32()),
    "bool": np.arange(60_000) % 5 == 0,
    "category": pa.array(["a", "b", None, "a"] * 15_000).dictionary_encode(),
}


def large_schema():
    fields = []
    for name, column in LARGE.items():
        if isinstance(column, np.ndarray):
            fields.append(Field(name, column.dtype))
        elif name == "nulls":
            fields.append(Field(name, np.dtype("<i4"), optional=True))
        else:
            logical = "binary" if name == "hashes" else "string"
            fields.append(Field(name, np.dtype(object), logical=logical, optional=name == "category"))
    return Schema(tuple(fields))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_default_chooses_for_each_column(threads):
    encoder, written = encode(large_schema(), [list(LARGE.values())], threads=threads)
    chosen = {
        name: (Encoding(c.encoding), Codec(c.codec))
        for name, c in zip(LARGE, encoder.groups[0].chunks, strict=True)
    }
    assert chosen == {
        "counter": (Encoding.DELTA, Codec.FLATE),
        "random": (Encoding.PLAIN, Codec.NONE),
        "float": (Encoding.PLAIN, Codec.FLATE),
        "few": (Encoding.DICT, Codec.FLATE),
        "many": (Encoding.AFFIX, Codec.FLATE),
        "hashes": (Encoding.OFFSET_BYTES, Codec.NONE),
        "nulls": (Encoding.DELTA, Codec.FLATE),
        "bool": (Encoding.RLE_BITPACK, Codec.FLATE),
        "category": (Encoding.DICT, Codec.FLATE),
    }
    (columns,) = decode(written)
    for (name, expected), column in zip(LARGE.items(), columns, strict=True):
        assert column == (expected.tolist() if isinstance(expected, np.ndarray) else expected.to_pylist()), (
            name
        )


def test_threads_do_not_show_in_the_bytes():
    written = [encode(large_schema(), [list(LARGE.values())], threads=threads)[1] for threads in (1, 2)]
    assert written[0] == written[1]


def test_slices_and_chunks_are_written_as_their_values():
    strings = pa.array(["zero", None, "two", "three", None, "five"])
    ints = pa.array([0, None, 2, 3, None, 5], pa.int16())
    flags = pa.array([True, None, False, True, None, True])
    schema = Schema(
        (field(Type.STRING, "s", True), field(Type.INT16, "i", True), field(Type.BOOL, "b", True))
    )
    groups = [
        [strings[1:5], ints[1:5], flags[1:5]],
        [pa.chunked_array([c[3:], c[:2]]) for c in (strings, ints, flags)],
        [pa.chunked_array([], c.type) for c in (strings, ints, flags)],
        [strings.cast(pa.large_string())[2:4], ints[2:4], flags[2:4]],
        [strings[2:].dictionary_encode()[1:], ints[3:], flags[3:]],
    ]
    _, written = encode(schema, groups)
    assert decode(written) == [[c.to_pylist() for c in group] for group in groups]


@pytest.mark.parametrize("start", [0, 3, 8, 21])
@given(
    flags=st.lists(st.booleans(), min_size=21, max_size=60),
    kind=st.sampled_from(["int", "text", "category", "view"]),
)
def test_null_bitmaps_are_those_of_the_rows_at_hand(start, flags, kind):
    if kind == "int":
        column = pa.array(np.arange(len(flags)), mask=np.array(flags))
    else:
        column = pa.array([None if null else "xy"[i % 2] for i, null in enumerate(flags)], pa.string())
        column = column.cast(pa.string_view()) if kind == "view" else column
        column = column.dictionary_encode() if kind == "category" else column
    expected = np.packbits(np.array(flags[start:], bool), bitorder="little").tobytes()
    assert encode_module.null_bitmap(column[start:]) == expected


def test_text_that_is_not_utf8_is_kept():
    raw = pa.array([b"\xff", b"ok"])
    text = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    _, written = encode(Schema((field(Type.STRING),)), [[text]], compression="none")
    assert b"\xff" in written


def test_dictionaries_are_used_as_they_are_where_that_is_legal():
    indices = pa.array([3, 1, 3, 0], pa.int8())
    ready = pa.DictionaryArray.from_arrays(indices, pa.array(["d", "b", "unused", "a"]))
    plain = ready.dictionary_decode()
    schema = Schema((field(Type.STRING),))
    twice = pa.DictionaryArray.from_arrays(pa.array([3, 1, 3, 0]), pa.array(["d", "b", "b", "a"]))
    with_null = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    expected = encode(schema, [[plain]], encoding="dict", compression="none")[1]
    assert encode(schema, [[ready]], encoding="dict", compression="none")[1] == expected
    assert encode(schema, [[twice]], encoding="dict", compression="none")[1] == expected
    with pytest.raises(ValueError, match="1 nulls"):
        encode(schema, [[with_null]])
    assert decode(encode(Schema((field(Type.STRING, nullable=True),)), [[with_null]])[1]) == [[["a", None]]]
    # Statistics are those of the values, not of what the dictionary lists.
    assert encode(schema, [[ready]])[0].groups[0].chunks[0].maximum == b"d"
    unused = pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(["m", "z"]))
    assert encode(schema, [[unused]])[0].groups[0].chunks[0].maximum == b"m"


def test_chunks_beyond_32_bit_offsets_are_joined_with_wider_ones(monkeypatch):
    schema = Schema((field(Type.STRING), field(Type.BYTES, "b")))
    group = [pa.chunked_array([["x", "yy"], ["z"]]), pa.chunked_array([[b"x", b"yy"], [b"z"]])]
    expected = encode(schema, [group], compression="none")[1]
    monkeypatch.setattr(encode_module, "NARROW_BYTES", 10)
    assert encode(schema, [group], compression="none")[1] == expected


PINNED = {
    "none": "ca6fb74420c50b28db8890ce055ffcfde92fabea253786a4c9c9115bda48c461",
    "lzw": "cc0b85910eaf043f3a2a87ac2022b982745689b5b8a77d71fbdbc60c97fda854",
}


@pytest.mark.parametrize("compression", PINNED)
def test_bytes_without_deflate_do_not_change(compression):
    """What two releases write of the same rows is the same file."""
    _, written = encode(large_schema(), [list(LARGE.values())], compression=compression)
    assert hashlib.sha256(written).hexdigest() == PINNED[compression]
