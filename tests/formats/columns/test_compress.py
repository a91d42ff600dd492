"""Codecs: every stream is what its standard says, wrapped as the format's library wraps it."""

from __future__ import annotations

import gzip
import sys
import zlib

import numpy as np
import pytest

from colstore_io.formats.columns.compress import FAST, compressor, normal_level
from colstore_io.formats.columns.tags import Codec

BLOCK = b"the same words again and again " * 100 + bytes(range(256))
LEVELS = [-2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9, FAST]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("block", [BLOCK, b"", b"a"], ids=len)
def test_streams_inflate_with_the_standard_library(level, block):
    view = np.frombuffer(block, np.uint8)
    assert zlib.decompress(compressor(Codec.FLATE, level)(view), -15) == block
    assert gzip.decompress(compressor(Codec.GZIP, level)(view)) == block
    assert zlib.decompress(compressor(Codec.ZLIB, level)(view)) == block


@pytest.mark.parametrize("level", LEVELS)
def test_headers_are_those_of_the_formats_library(level):
    member = bytes(compressor(Codec.GZIP, level)(BLOCK))
    assert member[:8] == b"\x1f\x8b\x08\0\0\0\0\0"
    assert member[8] == {9: 2, 1: 4, FAST: 4}.get(level, 0)
    assert member[9] == 255
    head = bytes(compressor(Codec.ZLIB, level)(BLOCK))[:2].hex()
    number = 1 if level == FAST else level
    assert head == (
        "789c" if number in (-1, 6) else "7801" if number < 2 else "785e" if number < 6 else "78da"
    )


def test_huffman_only_finds_no_matches():
    block = b"abcdefgh" * 4000
    assert len(compressor(Codec.FLATE, -2)(block)) > 0.3 * len(block)
    assert len(compressor(Codec.FLATE, 1)(block)) < 0.02 * len(block)


@pytest.mark.parametrize(
    ("given", "taken"), [(None, 3), (0, 3), (-1, -1), (-2, -2), (-9, -2), (9, 9), (15, 9), (FAST, FAST)]
)
def test_levels_are_clamped_as_the_format_does(given, taken):
    assert normal_level(given) == taken


@pytest.mark.parametrize("missing", ["isal", "deflate"])
def test_a_platform_without_a_compressor_uses_another(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    for level in LEVELS:
        assert zlib.decompress(compressor(Codec.FLATE, level)(BLOCK), -15) == BLOCK


@pytest.mark.parametrize(("block", "stream"), [(b"", "000302"), (b"a", "00c30404")])
def test_short_lzw_streams_are_those_of_the_format(block, stream):
    assert bytes(compressor(Codec.LZW)(block)).hex() == stream
