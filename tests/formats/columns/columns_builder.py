"""Columns files made by hand for tests: any footer, any chunk, also such as no writer makes."""

from __future__ import annotations

import struct
from typing import Any

from colstore_io.formats.columns.gob import PREFIX

BLOCK_BYTES = 262144


def uint(value: int) -> bytes:
    if value < 128:
        return bytes([value])
    raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([256 - len(raw)]) + raw


def sint(value: int) -> bytes:
    return uint(value << 1 if value >= 0 else (~value << 1) | 1)


def text(value: bytes) -> bytes:
    return uint(len(value)) + value


def struct_of(fields: dict[int, bytes | None]) -> bytes:
    """Encode the fields that are not None; fields of value zero must be None."""
    out, last = b"", -1
    for number, value in fields.items():
        if value is not None:
            out += uint(number - last) + value
            last = number
    return out + b"\0"


def message(body: bytes) -> bytes:
    return uint(len(body)) + body


def _unless_zero(value: Any, encode: Any = uint) -> bytes | None:
    return encode(value) if value else None


def chunk(
    encoding: int,
    stream: bytes,
    *,
    codec: int = 0,
    blocks: list[tuple[int, bytes]] | None = None,
    bitmap: bytes = b"",
) -> bytes:
    """Return a chunk. `blocks` are (raw length, stored bytes); by default the stream as one, not compressed."""
    blocks = [(len(stream), stream)] if blocks is None else blocks
    raw = sum(length for length, _ in blocks)
    data = b"".join(stored for _, stored in blocks)
    head = struct.pack("<BBIIII", encoding, codec, len(bitmap), raw, len(data), len(blocks))
    table = b"".join(struct.pack("<II", length, len(stored)) for length, stored in blocks)
    return head + table + bitmap + data


def column_meta(body: bytes, **values: Any) -> bytes:
    """Return the footer's entry of a chunk; tags are those of the chunk."""
    return struct_of(
        {
            0: sint(values.get("length", len(body))),
            1: _unless_zero(values.get("nulls", 0)),
            2: _unless_zero(values.get("minimum", b""), text),
            3: _unless_zero(values.get("maximum", b""), text),
            4: _unless_zero(values.get("min_len", 0)),
            5: _unless_zero(values.get("max_len", 0)),
            6: _unless_zero(values.get("encoding", body[0])),
            7: _unless_zero(values.get("codec", body[1])),
            8: _unless_zero(values.get("tokenizer", 0), sint),
        }
    )


def file_of(
    schema: list[tuple[bytes, int, bool]],
    groups: list[tuple[int, list[tuple[bytes, dict[str, Any]]]]],
    *,
    offsets: list[int] | None = None,
    prologue: bytes = b"ABCD\x01",
) -> bytes:
    """Return a file of columns (name, type, nullable) and row groups (rows, [(chunk, what the footer says)])."""
    out = bytearray(prologue)
    metas = []
    for number, (n_rows, chunks) in enumerate(groups):
        start = len(out) if offsets is None else offsets[number]
        columns = b"".join(column_meta(body, **values) for body, values in chunks)
        for body, _ in chunks:
            out += body
        metas.append(
            struct_of(
                {
                    0: _unless_zero(n_rows),
                    1: _unless_zero(start, sint),
                    2: uint(len(chunks)) + columns if chunks else None,
                }
            )
        )
    fields = b"".join(
        struct_of({0: _unless_zero(name, text), 1: uint(kind), 2: b"\x01" if nullable else None})
        for name, kind, nullable in schema
    )
    value = struct_of(
        {
            0: uint(len(schema)) + fields if schema else None,
            1: uint(len(groups)) + b"".join(metas) if groups else None,
        }
    )
    return with_footer(bytes(out), PREFIX + message(b"\xff\x80" + value))


def with_footer(body: bytes, footer: bytes) -> bytes:
    return body + footer + struct.pack("<I", len(footer)) + b"ABCD"
