"""What `ColumnsEncoder` accepts and refuses, and what a refusal leaves behind."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from formats.columns.test_write_read import decode, encode, field

from colstore_io.errors import ColumnNotFoundError
from colstore_io.fields import Field, Schema
from colstore_io.formats.columns import encode as encoding_module
from colstore_io.formats.columns.encoder import ColumnsEncoder, column_type
from colstore_io.formats.columns.tags import Codec, Encoding, Type

INTS = Schema((field(Type.INT32, "a"),))
TWO = Schema((field(Type.INT32, "a"), field(Type.STRING, "s", True)))


class Model:
    """Stands for a tokenizer where none is used."""

    def __init__(self, digest):
        self.digest = digest


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"encoding": "zip"}, ValueError, "'auto', 'plain', 'rle_bitpack'"),
        ({"encoding": "tokenized"}, ValueError, "encoding must be one of"),
        ({"encoding": "rle_bitpack"}, ValueError, "int32, which cannot be encoded as 'rle_bitpack'"),
        ({"encoding": {"b": "plain"}}, ColumnNotFoundError, "'b'"),
        ({"compression": "snappy"}, ValueError, "'none', 'flate'"),
        ({"compression": {"b": "none"}}, ColumnNotFoundError, "'b'"),
        ({"level": 3}, ValueError, "level needs a compression"),
        ({"compression": "flate", "level": "best"}, ValueError, "-2 to 9"),
        ({"compression": "flate", "level": 1.5}, TypeError, "-2 to 9"),
        ({"optimize": "slow"}, ValueError, "'exact' or 'fast'"),
        ({"tokenized_layout": ("raw", "sums")}, ValueError, "boundary"),
        ({"tokenized_layout": (3, 0)}, ValueError, "representation"),
        ({"tokenizers": {"b": Model(b"1" * 32)}}, ColumnNotFoundError, "'b'"),
        ({"tokenizers": {4: Model(b"1" * 32)}}, ColumnNotFoundError, "column 4 of 1"),
        ({"tokenizers": {"a": None}}, TypeError, "expected a Tokenizer"),
        ({"tokenizers": {"a": Model(b"1" * 32)}}, TypeError, "takes text or bytes"),
    ],
)
def test_options_that_do_not_fit_are_refused_at_once(options, error, match):
    with pytest.raises(error, match=match):
        ColumnsEncoder(INTS, **options)


def test_an_encoding_that_fits_no_string_says_what_does():
    with pytest.raises(ValueError, match="possible are 'plain', 'dict', 'affix'"):
        ColumnsEncoder(Schema((field(Type.STRING, "s"),)), encoding="offset_bytes")


@pytest.mark.parametrize(
    ("dtype", "logical", "advice"),
    [("<f2", None, "float32"), ("<M8[us]", None, "cstore"), ("<m8[s]", None, "int64"), ("<U3", None, "text"),
     ("O", "list<int32>", "can be stored")],
)  # fmt: skip
def test_types_that_the_format_lacks_are_refused_with_advice(dtype, logical, advice):
    with pytest.raises(TypeError, match=advice):
        column_type(Field("t", np.dtype(dtype), logical=logical))


GOOD = [np.array([1, 2], "<i4"), pa.array(["x", None])]


@pytest.mark.parametrize(
    ("columns", "error", "match"),
    [
        ([GOOD[0]], ValueError, "2 columns, got 1"),
        ([GOOD[0], pa.array(["x"])], ValueError, "'a' has 2 rows, 's' has 1"),
        ([np.array([1, 2], "<i8"), GOOD[1]], TypeError, "int64, the schema asks for dtype int32"),
        ([np.zeros((2, 1), "<i4"), GOOD[1]], ValueError, "2 dimensions"),
        ([[1, 2], GOOD[1]], TypeError, "neither a NumPy nor an Arrow array"),
        ([pa.array([1, None], pa.int32()), GOOD[1]], ValueError, "'a' has 1 nulls"),
        ([GOOD[0], pa.array([b"x", None])], TypeError, "binary, the schema asks for string"),
        ([GOOD[0], np.array(["x", "y"])], TypeError, "an Arrow array of text"),
        ([pa.array([1.0, 2.0]), GOOD[1]], TypeError, "double, the schema asks for int32"),
    ],
)
def test_columns_that_do_not_fit_leave_the_encoder_as_it_was(columns, error, match):
    encoder = ColumnsEncoder(TWO)
    parts = [encoder.begin()]
    parts += encoder.segment(GOOD)
    with pytest.raises(error, match=match):
        encoder.segment(columns)
    parts += encoder.segment(GOOD)
    parts.append(encoder.finish())
    assert decode(b"".join(parts)) == [[[1, 2], ["x", None]]] * 2


def test_a_column_of_4_gib_is_refused_with_advice(monkeypatch):
    monkeypatch.setattr(encoding_module, "LONGEST", 100)
    encoder = ColumnsEncoder(INTS, compression="flate")
    encoder.begin()
    encoder.segment([np.zeros(12, "<i4")])
    with pytest.raises(ValueError, match=r"104 encoded bytes.*smaller row groups"):
        encoder.segment([np.zeros(13, "<i4")])
    assert len(encoder.groups) == 1


def test_calls_out_of_order_are_refused():
    encoder = ColumnsEncoder(INTS)
    with pytest.raises(ValueError, match="begin"):
        encoder.segment([np.zeros(1, "<i4")])
    encoder.begin()
    with pytest.raises(ValueError, match="already"):
        encoder.begin()
    encoder.finish()
    for call in (encoder.finish, lambda: encoder.segment([np.zeros(1, "<i4")])):
        with pytest.raises(ValueError, match="finished"):
            call()


def test_foreign_byte_order_and_strides_are_stored_as_their_values():
    for column in (np.array([1, 2, 3], ">i4"), np.arange(6, dtype="<i4")[1::2]):
        assert decode(encode(INTS, [[column]])[1]) == [[column.tolist()]]


def test_options_by_column():
    encoder, written = encode(TWO, [GOOD], encoding={"a": "plain"}, compression={"a": "none", "s": "lzw"})
    assert [Encoding(c.encoding) for c in encoder.groups[0].chunks] == [Encoding.PLAIN, Encoding.PLAIN]
    assert decode(written) == [[[1, 2], ["x", None]]]


def test_a_codec_that_saves_nothing_is_dropped_for_the_chunk():
    noise = np.random.default_rng(0).integers(0, 2**31, 5000).astype("<i4")
    for codec in ("flate", "gzip", "zlib", "lzw", "zstd"):
        encoder, written = encode(INTS, [[noise]], compression=codec, encoding="plain")
        assert encoder.groups[0].chunks[0].codec == Codec.NONE
        same = encode(INTS, [[noise]], compression="none", encoding="plain")[1]
        assert written == same


def test_nulls_and_rows_are_counted():
    encoder, _ = encode(TWO, [GOOD, [np.zeros(0, "<i4"), pa.array([], pa.string())]])
    assert [group.n_rows for group in encoder.groups] == [2, 0]
    assert [chunk.null_count for chunk in encoder.groups[0].chunks] == [0, 1]


def test_unnamed_and_equal_columns_are_possible():
    schema = Schema((field(Type.INT8, ""), field(Type.INT8, "")))
    _, written = encode(schema, [[np.array([1], "i1"), np.array([2], "i1")]])
    assert written[:5] == b"ABCD\x01"


def test_no_columns_and_no_rows_make_a_file():
    _, written = encode(Schema(()), [[]])
    assert written[-4:] == b"ABCD"
    length = struct.unpack("<I", written[-8:-4])[0]
    assert len(written) == 5 + length + 8
