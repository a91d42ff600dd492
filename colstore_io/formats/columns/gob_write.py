"""The footer as bytes: one gob stream, identical to what the format's own library writes (columns.md 8.1-8.3, 8.5).

Nothing of gob is here but what a footer needs; its seven type definitions never change: `gob.PREFIX`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .gob import PREFIX

__all__ = ["PREFIX", "ColumnEntry", "ChunkEntry", "GroupEntry", "footer_bytes"]  # noqa: RUF022


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


_USUAL = [bytes([value]) for value in range(128)] + [_wide_uint(value) for value in range(128, 4096)]


def _uint(value: int) -> bytes:
    return _USUAL[value] if value < len(_USUAL) else _wide_uint(value)


def _struct(out: bytearray, fields: Sequence[int | bytes]) -> None:
    """Append a struct of unsigned numbers and byte strings: zero fields are left out, the others announced by the
    difference of their numbers."""
    step = 1
    for value in fields:
        if not value:
            step += 1
            continue
        out.append(step)
        step = 1
        if type(value) is bytes:
            out += _uint(len(value))
            out += value
        else:
            out += _uint(value)  # type: ignore[arg-type]
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
