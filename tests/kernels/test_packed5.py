"""Five-bit strings: the bytes, the bounds, and damage (colbin.md 9)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colstore_io.kernels import packed5

ALPHABET = "abcXYZ  0123456789.,-ñáÉ€¿$~`\\[]^{}|\n\té—漢\x00\x7f"


@pytest.fixture(scope="module")
def cases(shared):
    return json.loads((shared / "vectors/colbin/packed5.json").read_text())["cases"]


def test_golden_payloads_and_frames(cases):
    for case in cases:
        text = bytes.fromhex(case["input"])
        packed = packed5.encode(text)
        assert (packed is not None) == case["packs"], case
        if packed is not None:
            assert (packed[0].hex(), packed[1]) == (case["payload"], case["upper"]), case
            assert packed5.decode(*packed) == text
        if "frame" in case:
            assert packed5.encode_frame(text).hex() == case["frame"], case
            assert packed5.decode_frame(bytes.fromhex(case["frame"])) == text


@given(st.text(ALPHABET).map(str.encode) | st.binary())
def test_what_packs_is_shorter_and_comes_back(text):
    packed = packed5.encode(text)
    if packed is not None:
        assert len(packed[0]) < len(text)
        assert packed5.decode(*packed) == text
    assert packed5.decode_frame(packed5.encode_frame(text)) == text


@given(st.binary(max_size=64), st.booleans())
def test_any_payload_decodes_within_its_bound_or_is_refused(payload, upper):
    try:
        text = packed5.decode(payload, upper)
    except ValueError:
        return
    assert len(text) <= 2.4 * len(payload)
    if text:
        with pytest.raises(ValueError, match="longer than allowed"):
            packed5.decode(payload, upper, len(text) - 1)
    assert packed5.decode(payload, upper, len(text)) == text


def units(*values):
    bits = sum(value << 5 * place for place, value in enumerate(values))
    return bits.to_bytes((5 * len(values) + 7) // 8, "little")


@pytest.mark.parametrize(
    "payload",
    [
        units(0, 0, 29),  # a symbol without its operand: 15 bits are two bytes, three units
        units(0, 0, 30),
        units(0, 31, 1),
        units(30, 28, 0),
        units(30, 30, 0),
        units(30, 31, 4, 0, 0),
        units(30, 31, 0, 1, 8, 0, 0, 0),
        units(30, 31, 3, 1, 1, 1, 1, 1),
    ],
)
def test_malformed_payloads_are_refused(payload):
    with pytest.raises(ValueError, match="malformed"):
        packed5.decode(payload, False)


def test_a_pending_invert_at_the_end_is_padding():
    assert packed5.decode(units(0, 1, 27), False) == b"ab"
    assert packed5.decode(units(0, 27, 27, 1, 2, 28, 3, 27), True) == b"AbCd"


@pytest.mark.parametrize(
    "frame", [b"", b"\x08", b"\x00a", b"\xf8\x80", b"\xf8" + b"\xff" * 12, b"\x02", b"\x0ca"]
)
def test_malformed_frames_are_refused(frame):
    with pytest.raises(ValueError):
        packed5.decode_frame(frame)
