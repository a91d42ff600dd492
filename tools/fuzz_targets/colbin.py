"""Messages, lists of records, and logs of messages."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, NamedTuple

import numpy as np

import colstore_io as cs
from colstore_io.errors import ColstoreError
from colstore_io.kernels import column_codec, message_log, packed5

from .target import (
    MAX_CELLS,
    MAX_ROWS,
    MAX_TEXT,
    Target,
    read_file,
    sample,
    verify_file,
    written,
)


@cs.colbin.record
class Leaf:
    """Scalars of the small keys."""

    a: Annotated[cs.i32, 1]
    b: Annotated[str, 2]
    c: Annotated[float, 3]
    d: Annotated[bool, 4]


@cs.colbin.record
class Wide:
    """Every type that a field can have, with eight-bit keys."""

    name: Annotated[str, 20]
    leaf: Annotated[Leaf, 21]
    leaves: Annotated[list[Leaf], 22]
    raw: Annotated[bytes, 23]
    numbers: Annotated[list[cs.i64], 24]
    small: Annotated[list[cs.u16], 25]
    words: Annotated[list[str], 26]
    maybe: Annotated[cs.u64 | None, 27]
    table: Annotated[dict[str, cs.i32], 28]
    anything: Annotated[Any, 29]
    things: Annotated[list[Any], 30]
    more: Annotated[dict[cs.i64, Any], 31]


class Row(NamedTuple):
    """Four-bit keys and nesting."""

    n: Annotated[cs.u8, 1]
    inner: Annotated[Leaf, 2]
    rows: Annotated[list[Leaf], 3]
    words: Annotated[list[str], 4]


@cache
def _codecs() -> tuple[Any, ...]:
    return tuple(cs.colbin.Codec(tp) for tp in (Leaf, Wide, Row, list[Leaf], dict[str, cs.f64]))


def _values() -> list[Any]:
    leaves = [Leaf(n - 3, "abc"[: n % 4], n / 3, n % 2 == 0) for n in range(12)]
    wide = Wide(
        "name", leaves[1], leaves, b"\0\1", [1, -2, 1 << 40], [7, 9], ["a", "bc"], 5, {"x": 1, "y": -1},
        {"k": [1, 2.5, None, "s", b"b"]}, [1, leaves[2], "t"], {3: True, -4: []},
    )  # fmt: skip
    return [leaves[5], wide, Row(3, leaves[2], leaves[:3], ["q", "r"]), leaves, {"a": 1.5, "b": 0.0}]


@cache
def _messages() -> tuple[tuple[bytes, bytes], ...]:
    """Return (bare message, self-describing message) of each codec."""
    return tuple(
        (codec.encode(value, packed5=packed), codec.encode_self_describing(value, packed5=packed))
        for packed in (False, True)
        for codec, value in zip(_codecs(), _values(), strict=True)
    )


@cache
def _logs() -> tuple[bytes, ...]:
    table = sample(12)
    flat = {name: table[name] for name in ("i", "b", "f", "t", "n")}
    closed = written("a.colbin", flat)
    return (
        closed,
        written("a.colbin", flat, row_group_size=4, compress=True),
        written("a.colbin", {"i": table["i"]}, row_group_size=3),
        closed[:-1],
    )


def _typed(data: bytes) -> None:
    """Messages as objects: the first byte chooses the type."""
    if data:
        codecs = _codecs()
        codecs[data[0] % len(codecs)].decode(
            data[1:],
            max_rows=MAX_ROWS,
            max_cells=MAX_CELLS,
            errors="surrogateescape" if data[0] & 64 else "strict",
        )


def _typed_seeds() -> list[bytes]:
    return [
        bytes([number % len(_codecs())]) + message
        for number, pair in enumerate(_messages())
        for message in pair
    ]


def _described(data: bytes) -> None:
    cs.colbin.decode(None, data, max_rows=MAX_ROWS, max_cells=MAX_CELLS)


def _described_seeds() -> list[bytes]:
    return [message for _, message in _messages()]


def _section_and_message(data: bytes) -> None:
    """A schema section and a message of it, apart: lengths of two bytes, section, message."""
    size = int.from_bytes(data[:2], "little")
    cs.colbin.decode(data[2 : 2 + size], data[2 + size :], max_rows=MAX_ROWS, max_cells=MAX_CELLS)


def _section_seeds() -> list[bytes]:
    sections = [codec.schema.to_bytes() for codec in _codecs()] * 2
    return [
        len(section).to_bytes(2, "little") + section + message
        for section, (message, _) in zip(sections, _messages(), strict=True)
    ]


def _json_of(data: bytes) -> None:
    try:
        cs.colbin.to_json(None, data, max_rows=MAX_ROWS, max_cells=MAX_CELLS, max_text=MAX_TEXT)
    except ValueError as exc:
        # A message without its section is the caller's mistake, not damage.
        if isinstance(exc, ColstoreError) or "does not carry its schema" not in str(exc):
            raise


def _message_of_json(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cs.colbin.from_json(data)


def _documents() -> list[bytes]:
    return [
        b'{"id":1,"name":"a","x":[1,2,3],"in":{"f":1.5,"n":null},"rows":[{"a":1},{"a":2,"b":"\\ud800"}]}',
        b'[{"a":true,"b":-1},{"b":18446744073709551615}]',
        b'{"deep":' + b'{"a":' * 20 + b"[[]]" + b"}" * 20 + b"}",
        b'{"t":["x",""],"e":1e300,"u":"\\u00e9\\n"}',
    ]


def _table_of(data: bytes) -> None:
    limits: Any = {"max_rows": MAX_ROWS, "max_cells": MAX_CELLS}
    try:
        cs.colbin.decode_table(data, errors="surrogateescape", **limits)
        cs.colbin.decode_table(data, **limits)
    except ValueError as exc:
        if isinstance(exc, ColstoreError) or "does not carry its schema" not in str(exc):
            raise


_FLAT_FIELDS = (
    ["a", "b", "c", "d"],
    ["name", "leaf.a", "leaf.b", "raw", "numbers", "small", "words", "maybe"],
    ["n", "inner.b", "inner.c", "words"],
)


def _columns_of(data: bytes) -> None:
    """Many messages as columns: the first byte chooses the type, then messages, each behind its length."""
    codecs = _codecs()[:3]
    codec, messages, at = codecs[data[0] % 3 if data else 0], [], 1
    while at < len(data):
        messages.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    names = _FLAT_FIELDS[codecs.index(codec)]
    codec.decode_columns(messages, columns=names, errors="surrogateescape", max_cells=MAX_CELLS)


def _columns_seeds() -> list[bytes]:
    return [
        bytes([number]) + b"".join(bytes([len(message)]) + message for message in (bare[:255],) * 3)
        for number, (bare, _) in enumerate(_messages()[:3])
    ]


_COLUMN_DTYPES = ("?", "i1", "u2", "i4", "i8", "u8", "f4", "f8")


def _codec_column(data: bytes) -> None:
    if len(data) < 3:
        return
    dtype, rows = _COLUMN_DTYPES[data[0] % 8], int.from_bytes(data[1:3], "little")
    for isa in range(column_codec.best_isa() + 1):
        column_codec.decode(data[3:], np.empty(rows, dtype), isa=isa)


def _codec_columns() -> list[bytes]:
    generator = np.random.default_rng(1)
    seeds = []
    for number, dtype in enumerate(_COLUMN_DTYPES):
        for high, rows in ((1, 130), (2, 300), (120, 257)):
            values = generator.integers(0, 2 if dtype == "?" else high, rows).astype(dtype)
            seeds.append(bytes([number]) + rows.to_bytes(2, "little") + column_codec.encode(values))
    return seeds


def _packed_text(data: bytes) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: packed5.decode(data[1:], bool(data[:1] > b"\x7f")),
        lambda: packed5.decode_frame(data),
    )
    for call in calls:
        try:
            call()
        except ValueError:  # what the kernel raises; its callers make a FormatError of it
            pass


def _packed_texts() -> list[bytes]:
    texts = [b"hello world, this is text", b"ABC def 123", "größe".encode(), b"x" * 300]
    return [packed5.encode_frame(text) for text in texts] + [
        b"\0" + (packed5.encode(text) or (b"", 0))[0] for text in texts
    ]


_INDEX_MAGIC = b"\x89COLIDX\n"


def _repair_log(data: bytes) -> bytes:
    """Make the header, the frames and the index fit again (format-colbin-log.md)."""
    out = bytearray(data)
    if len(out) < 24:
        return data
    end = int.from_bytes(out[12:16], "little")
    if 24 <= end <= len(out):
        struct.pack_into("<I", out, 20, message_log.crc32(out[24:end], message_log.crc32(out[:20])))
    at, stop = end, len(out)
    if out[-8:] == _INDEX_MAGIC:
        begin, size = struct.unpack_from("<QI", out, len(out) - 24)
        if begin + size + 24 == len(out):
            struct.pack_into("<I", out, len(out) - 12, message_log.crc32(out[begin : begin + size]))
            stop = begin
    while at + 8 < stop:
        size = 8 + (int.from_bytes(out[at : at + 4], "little") & 0xFFFFFFF)
        size += 4 if out[at + 3] & 0x20 else 0
        if size <= 8 or at + size > stop:
            break
        crc = message_log.crc32(out[at + 8 : at + size], message_log.crc32(out[at : at + 4]))
        struct.pack_into("<I", out, at + 4, crc)
        at += size
    return bytes(out)


TARGETS: dict[str, Target] = {
    "colbin_typed": Target(_typed, _typed_seeds),
    "colbin_described": Target(_described, _described_seeds),
    "colbin_section": Target(_section_and_message, _section_seeds),
    "to_json": Target(_json_of, _described_seeds),
    "from_json": Target(_message_of_json, _documents, allowed=(ValueError, TypeError)),
    "decode_table": Target(_table_of, _described_seeds),
    "decode_columns": Target(_columns_of, _columns_seeds),
    "column_codec": Target(_codec_column, _codec_columns, allowed=()),
    "packed5": Target(_packed_text, _packed_texts, allowed=()),
    "log": Target(read_file, lambda: list(_logs()), _repair_log, cost=20),
    "log_verify": Target(verify_file, lambda: list(_logs()), _repair_log, cost=20),
}
