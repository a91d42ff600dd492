"""Coercion of Python values: every cell of the table of columns.md 11."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colstore_io.formats.columns.coerce import coerce_column, coerce_value, float_text, parse_float
from colstore_io.formats.columns.tags import NUMPY_TYPES, Type

REFUSED = "refused"
INTEGERS = [kind for kind in Type if Type.INT8 <= kind <= Type.UINT64]
SIGNED = [kind for kind in INTEGERS if kind <= Type.INT64]
FLOATS = [Type.FLOAT32, Type.FLOAT64]


def outcome(value, kind, compatible):
    try:
        return coerce_value(value, kind, compatible=compatible)
    except (TypeError, ValueError):
        return REFUSED


# value, target types, result as the format's library, result in strict mode
CELLS = [
    (True, [Type.BOOL], True, True),
    (False, INTEGERS, 0, 0),
    (True, INTEGERS, 1, 1),
    (np.True_, FLOATS, 1.0, 1.0),
    (True, [Type.STRING], b"true", b"true"),
    (np.False_, [Type.STRING], b"false", b"false"),
    (True, [Type.BYTES], REFUSED, REFUSED),
    (7, [Type.BOOL], True, True),
    (np.int64(0), [Type.BOOL], False, False),
    (np.int32(7), [Type.BOOL], REFUSED, REFUSED),
    (2**63, [Type.BOOL], REFUSED, REFUSED),
    (300, [Type.INT8], 44, REFUSED),
    (-1, [Type.UINT8], 255, REFUSED),
    (-1, [Type.UINT64], 2**64 - 1, REFUSED),
    (2**63, [Type.INT64], -(2**63), REFUSED),
    (2**64 - 1, [Type.INT32], -1, REFUSED),
    (np.uint8(200), [Type.INT8], -56, REFUSED),
    (np.int16(-3), SIGNED, -3, -3),
    (200, [Type.UINT8], 200, 200),
    (-128, [Type.INT8], -128, -128),
    (2**64, INTEGERS, REFUSED, REFUSED),
    (-(2**63) - 1, INTEGERS, REFUSED, REFUSED),
    (5, FLOATS, 5.0, 5.0),
    (2**63, [Type.FLOAT64], 2.0**63, 2.0**63),
    (np.uint16(5), FLOATS, 5.0, 5.0),
    (-12, [Type.STRING], b"-12", b"-12"),
    (2**64 - 1, [Type.STRING], b"18446744073709551615", b"18446744073709551615"),
    (np.uint64(3), [Type.STRING], b"3", b"3"),
    (np.int32(3), [Type.STRING], REFUSED, REFUSED),
    (3, [Type.BYTES], REFUSED, REFUSED),
    (1.0, [Type.BOOL], REFUSED, REFUSED),
    (1.9, INTEGERS, 1, REFUSED),
    (-1.9, SIGNED, -1, REFUSED),
    (2.0, INTEGERS, 2, 2),
    (-1.0, [Type.UINT8], 255, REFUSED),
    (-1.0, [Type.UINT64], 2**64 - 1, REFUSED),
    (3e9, [Type.INT32], 3 * 10**9 - 2**32, REFUSED),
    (1e19, [Type.UINT64], 10**19, 10**19),
    (1e30, [Type.INT64], -(2**63), REFUSED),
    (1e30, [Type.UINT64], 2**63, REFUSED),
    (-1e30, [Type.UINT64], 2**63, REFUSED),
    (math.nan, [Type.INT64], -(2**63), REFUSED),
    (math.nan, [Type.UINT64], 2**63, REFUSED),
    (math.inf, [Type.INT8, Type.INT16, Type.INT32, Type.UINT8, Type.UINT16, Type.UINT32], 0, REFUSED),
    (np.float32(2.0), INTEGERS, 2, 2),
    (0.1, [Type.FLOAT64], 0.1, 0.1),
    (np.float32(0.1), FLOATS, float(np.float32(0.1)), float(np.float32(0.1))),
    (np.float16(1), FLOATS, REFUSED, REFUSED),
    (1e-05, [Type.STRING], b"1e-05", b"1e-05"),
    (np.float32(1), [Type.STRING], REFUSED, REFUSED),
    (1.0, [Type.BYTES], REFUSED, REFUSED),
    *[(word, [Type.BOOL], True, True) for word in ("1", "t", "T", "TRUE", "true", "True", b"True")],
    *[(word, [Type.BOOL], False, False) for word in ("0", "f", "F", "FALSE", "false", "False", b"0")],
    *[(word, [Type.BOOL], REFUSED, REFUSED) for word in ("yes", "tRUE", "", " true", "01")],
    ("12", INTEGERS, 12, 12),
    ("-12", SIGNED, -12, -12),
    ("+12", SIGNED, 12, 12),
    ("+12", [Type.UINT8], REFUSED, REFUSED),
    ("-0", [Type.UINT64], REFUSED, REFUSED),
    (b"0012", INTEGERS, 12, 12),
    *[
        (text, INTEGERS, REFUSED, REFUSED)
        for text in ("", " 1", "1 ", "1_0", "0x1", "1.0", "١", "-", "9" * 5000)
    ],
    ("128", [Type.INT8], REFUSED, REFUSED),
    ("-128", [Type.INT8], -128, -128),
    ("0" * 5000 + "7", INTEGERS, 7, 7),
    ("2.5", FLOATS, 2.5, 2.5),
    (b"1e3", FLOATS, 1000.0, 1000.0),
    ("abc", FLOATS, REFUSED, REFUSED),
    ("héllo", [Type.STRING], "héllo".encode(), "héllo".encode()),
    (b"\xff\x00", [Type.STRING, Type.BYTES], b"\xff\x00", b"\xff\x00"),
    (bytearray(b"ab"), [Type.BYTES], b"ab", b"ab"),
    ("[1 2 255]", [Type.BYTES], b"\x01\x02\xff", REFUSED),
    ("[]", [Type.BYTES], b"", REFUSED),
    ("[ 007  1 ]", [Type.BYTES], b"\x07\x01", REFUSED),
    *[
        (text, [Type.BYTES], REFUSED, REFUSED)
        for text in ("abc", "[256]", "[1,2]", "[-1]", "[1", "1]", "[1 2x]")
    ],
    (None, list(Type), REFUSED, REFUSED),
    (object(), list(Type), REFUSED, REFUSED),
    ([1], list(Type), REFUSED, REFUSED),
    (1j, list(Type), REFUSED, REFUSED),
]


@pytest.mark.parametrize(("value", "kinds", "compatible", "strict"), CELLS, ids=lambda v: repr(v)[:24])
def test_every_cell_of_the_table(value, kinds, compatible, strict):
    for kind in kinds:
        for mode, expected in ((True, compatible), (False, strict)):
            found = outcome(value, kind, mode)
            assert found == expected, (kind, mode)
            if expected is not REFUSED:
                assert type(found) is type(expected)


FLOAT_TEXTS = [
    (0.0, "0"),
    (-0.0, "-0"),
    (1.0, "1"),
    (100000.0, "100000"),
    (1000000.0, "1e+06"),
    (1234567.0, "1.234567e+06"),
    (123456.75, "123456.75"),
    (0.0001, "0.0001"),
    (0.00001, "1e-05"),
    (-0.000012, "-1.2e-05"),
    (1e100, "1e+100"),
    (5e-324, "5e-324"),
    (0.1, "0.1"),
    (1e22, "1e+22"),
    (math.nan, "NaN"),
    (math.inf, "+Inf"),
    (-math.inf, "-Inf"),
]


@pytest.mark.parametrize(("value", "text"), FLOAT_TEXTS)
def test_floats_print_as_the_format_prints_them(value, text):
    assert float_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_printed_floats_read_back(value):
    assert struct.pack("<d", parse_float(float_text(value).encode())) == struct.pack("<d", value)


GOOD = {
    ".5": 0.5, "5.": 5.0, "1_000.2_5": 1000.25, "1e1_0": 1e10, "-1E-2": -0.01, "0x1p-2": 0.25, "0X.8P0": 0.5,
    "0x1.8p1": 3.0, "0x_1p4": 16.0, "-0x0p0": -0.0, "inf": math.inf, "+INFINITY": math.inf, "-Inf": -math.inf,
    "1e-400": 0.0, "0x1p-2000": 0.0, "00": 0.0,
}  # fmt: skip
BAD = ["", ".", "+", "1__0", "_1", "1_", "1_.5", "1._5", "0x1", "0x.p1", "1e", "e5", " 1", "1 ", "1e400", "0x1p1024",
       "+nan", "-nan", "infin", "1,5", "1f", "0x1p", "٣", "0x1e5", "0x1p99999999999999999999"]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_float_texts_that_are_accepted(text):
    for single in (False, True):
        found = parse_float(text.encode(), single=single)
        expected = float(np.float32(GOOD[text])) if single else GOOD[text]
        assert struct.pack("<d", found) == struct.pack("<d", expected)


@pytest.mark.parametrize("text", BAD)
def test_float_texts_that_are_refused(text):
    for single in (False, True):
        with pytest.raises(ValueError, match=r"float text|out of range"):
            parse_float(text.encode(), single=single)


def test_text_becomes_a_float32_in_one_rounding():
    # Half way between two binary32 plus a little: by way of binary64 it would round to even, down.
    half_way = 1 + 2**-24
    text = f"{half_way:.30f}".rstrip("0") + "0000000000000001"
    assert float(text) == half_way
    assert np.float32(parse_float(text.encode(), single=True)) == np.float32(1 + 2**-23)
    assert np.float32(parse_float(f"{half_way:.30f}".encode(), single=True)) == np.float32(1)
    with pytest.raises(ValueError, match="range"):
        parse_float(b"3.4028236e38", single=True)
    assert parse_float(b"3.4028235e38", single=True) == float(np.finfo(np.float32).max)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_text_of_a_float32_reads_back(value):
    assert parse_float(repr(value).encode(), single=True) == value


def test_columns_become_arrays_of_their_type():
    for kind, dtype in NUMPY_TYPES.items():
        array = coerce_column("c", [1, 0, True], kind, nullable=False)
        assert array.dtype == dtype
        nullable = coerce_column("c", [1, None], kind, nullable=True)
        assert nullable.to_pylist() == [1, None]
    assert coerce_column("c", ["a", None], Type.STRING, nullable=True).type == pa.large_string()
    assert coerce_column("c", [b"a"], Type.BYTES, nullable=False).to_pylist() == [b"a"]


def test_errors_name_column_and_row():
    with pytest.raises(ValueError, match="column 'c', row 1: 300 does not fit int8"):
        coerce_column("c", [1, 300], Type.INT8, nullable=False)
    with pytest.raises(TypeError, match="column 'c', row 0: None"):
        coerce_column("c", [None], Type.INT8, nullable=False)


def test_a_float64_too_large_for_float32_becomes_infinity():
    assert coerce_column("c", [1e300, -1e300], Type.FLOAT32, nullable=False).tolist() == [math.inf, -math.inf]


def test_signalling_nans_are_quieted_in_float32_only():
    snan32 = np.array([0x7F800001], np.uint32).view(np.float32)[0]
    array = coerce_column("c", [snan32], Type.FLOAT32, nullable=False)
    assert array.view(np.uint32).tolist() == [0x7FC00001]
    nan_text = coerce_column("c", ["nan"], Type.FLOAT64, nullable=False)
    assert nan_text.view(np.uint64).tolist() == [0x7FF8000000000001]
