"""The footer as bytes: one gob stream, identical to what the format's own library writes (columns.md 8.1-8.3, 8.5).

Nothing of gob is here but what a footer needs; its seven type definitions never change and stand here as a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["PREFIX", "ColumnEntry", "ChunkEntry", "GroupEntry", "footer_bytes"]  # noqa: RUF022

PREFIX = bytes.fromhex(
    "2e7f03010106466f6f74657201ff800001020106536368656d6101ff8400010952"
    "6f7747726f75707301ff8c00000025ff83020101165b5d636f6c756d6e732e436f"
    "6c756d6e536368656d6101ff840001ff82000039ff810301010c436f6c756d6e53"
    "6368656d6101ff8200010301044e616d65010c0001045479706501060001084e75"
    "6c6c61626c65010200000025ff8b020101165b5d636f6c756d6e732e526f774772"
    "6f75704d65746101ff8c0001ff86000042ff850301010c526f7747726f75704d65"
    "746101ff8600010301074e756d526f7773010600010a427974654f666673657401"
    "04000107436f6c756d6e7301ff8a00000020ff89020101115b5d636f6c756d6e73"
    "2e436f6c4d65746101ff8a0001ff880000ff86ff8703010107436f6c4d65746101"
    "ff88000109010a427974654c656e67746801040001094e756c6c436f756e740106"
    "0001064d696e56616c010a0001064d617856616c010a0001064d696e4c656e0106"
    "0001064d61784c656e0106000108456e636f64696e67010600010"
    "8436f6d70726573730106000109546f6b656e697a65720104000000"
)
"""Definitions of the types 64 to 70 (section 8.5)."""


@dataclass(frozen=True, slots=True)
class ColumnEntry:
    """A column of the footer's schema.

    Attributes
    ----------
    name : bytes
    type : int
        Type tag.
    nullable : bool
    """

    name: bytes
    type: int
    nullable: bool


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """What the footer says about one chunk (section 8.6)."""

    byte_length: int
    null_count: int
    minimum: bytes
    maximum: bytes
    min_length: int
    max_length: int
    encoding: int
    codec: int
    tokenizer: int = 0


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A row group: its rows, where it begins, and its chunks in schema order."""

    n_rows: int
    offset: int
    chunks: tuple[ChunkEntry, ...]


def _wide_uint(value: int) -> bytes:
    body = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([256 - len(body)]) + body


_SMALL = [bytes([value]) for value in range(128)]


def _uint(value: int) -> bytes:
    return _SMALL[value] if value < 128 else _wide_uint(value)


def _struct(out: bytearray, fields: Sequence[int | bytes]) -> None:
    """Append a struct of unsigned numbers and byte strings: zero fields are left out, the others announced by the
    difference of their numbers."""
    last = -1
    for number, value in enumerate(fields):
        if not value:
            continue
        out.append(number - last)
        last = number
        if isinstance(value, int):
            out += _uint(value)
        else:
            out += _uint(len(value))
            out += value
    out.append(0)


def footer_bytes(columns: Sequence[ColumnEntry], groups: Sequence[GroupEntry]) -> bytes:
    """Return the footer: the constant definitions and one value message.

    Raises
    ------
    ValueError
        If it would not fit the 32 bits of its length (section 15).
    """
    body = bytearray()
    field = 0  # the last field sent, counted from 1
    if columns:
        body.append(1)
        field = 1
        body += _uint(len(columns))
        for column in columns:
            _struct(body, (column.name, column.type, int(column.nullable)))
    if groups:
        body.append(2 - field)
        body += _uint(len(groups))
        for group in groups:
            _group(body, group)
    body.append(0)
    value = b"\xff\x80" + body
    footer = PREFIX + _uint(len(value)) + value
    if len(footer) > 0xFFFFFFFF:
        raise ValueError(
            f"the footer would have {len(footer)} bytes, its length has 32 bits; write fewer, larger row groups"
        )
    return footer


def _group(body: bytearray, group: GroupEntry) -> None:
    last = -1
    for number, value in enumerate((group.n_rows, 2 * group.offset)):  # the offset is signed: twice its value
        if value:
            body.append(number - last)
            last = number
            body += _uint(value)
    if group.chunks:
        body.append(2 - last)
        body += _uint(len(group.chunks))
        for chunk in group.chunks:
            _struct(
                body,
                (
                    2 * chunk.byte_length,
                    chunk.null_count,
                    chunk.minimum,
                    chunk.maximum,
                    chunk.min_length,
                    chunk.max_length,
                    chunk.encoding,
                    chunk.codec,
                    2 * chunk.tokenizer,
                ),
            )
    body.append(0)
