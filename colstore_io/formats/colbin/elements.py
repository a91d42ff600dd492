"""Writing the elements of the wire: integers, floats, blobs and lists under both key widths (colbin.md 5, 6).

Plain functions that append to a `bytearray`. They write the one form that the format allows for a value and leave out
what it omits; values are in range, `colstore_io.formats.colbin.encode` has checked them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import packed5
from .schema import write_len

__all__ = [
    "blob4",
    "blob8",
    "body4",
    "body8",
    "descriptor_integer",
    "element_integer4",
    "element_integer8",
    "element_string4",
    "element_string8",
    "integers4",
    "integers8",
    "reversed_f32",
    "reversed_f64",
    "signed4",
    "signed8",
    "strings4",
    "strings8",
    "unsigned4",
    "unsigned8",
]


def reversed_f64(value: float) -> int:
    """Return rev of an f64 (colbin.md 1): its bytes, most significant first, read as a little-endian integer."""
    return int.from_bytes(struct.pack(">d", value), "little")


def reversed_f32(value: float | np.floating[Any]) -> int:
    """Return rev of an f32; `value` is rounded to one."""
    return int.from_bytes(np.array(value, "<f4").tobytes(), "big")


def _width(value: int) -> int:
    return (value.bit_length() + 7) >> 3


def _wide(value: int) -> int:
    """Bytes of a magnitude where seven are written as eight; n of eight is 7."""
    size = _width(value)
    return 8 if size == 7 else size


def _code(size: int) -> int:
    return min(size, 7)


def _size_class(size: int) -> int:
    """The LW of a length: the smallest of 1, 2, 4, 8 bytes that holds it."""
    return 0 if size < 1 << 8 else 1 if size < 1 << 16 else 2 if size < 1 << 32 else 3


def unsigned4(out: bytearray, key: int, value: int) -> None:
    """Append a field of the unsigned family (colbin.md 5.1); zero is omitted."""
    if 0 < value < 8:
        out.append(key << 4 | value)
    elif value:
        size = _width(value)
        out.append(key << 4 | size + 7)
        out += value.to_bytes(size, "little")


def signed4(out: bytearray, key: int, value: int) -> None:
    """Append a field of the signed family (colbin.md 5.2); zero is omitted, 1 takes two bytes."""
    if value == -1:
        out.append(key << 4)
    elif value:
        size = _wide(abs(value))
        out.append(key << 4 | (value > 0) << 3 | _code(size))
        out += abs(value).to_bytes(size, "little")


def _sized4(out: bytearray, key: int, size: int) -> None:
    if size < 2048:
        out += bytes((key << 4 | size >> 8, size & 255))
        return
    x = 0 if size < 1 << 16 else 1 if size < 1 << 32 else 2
    out.append(key << 4 | 8 | x)
    out += size.to_bytes(2 << x, "little")


def blob4(out: bytearray, key: int, data: bytes, *, pack: bool = False) -> None:
    """Append a string or byte string (colbin.md 5.3), packed when asked for and shorter; empty is written as well."""
    packed = packed5.encode(data) if pack else None
    if packed is None:
        _sized4(out, key, len(data))
        out += data
        return
    payload, upper = packed
    wide = len(payload) > 255
    out.append(key << 4 | 8 | 3 + upper + 2 * wide)
    out += len(payload).to_bytes(4 if wide else 1, "little")
    out += payload


def strings4(out: bytearray, key: int, texts: Sequence[bytes]) -> None:
    """Append a list of strings (colbin.md 5.5), an empty one as well."""
    _sized4(out, key, len(texts))
    for text in texts:
        write_len(out, len(text))
        out += text


def _list_form(values: NDArray[np.generic]) -> tuple[bool, int, bytes]:
    """Return (no negative element, width class, elements); u64 are judged as i64 (colbin.md 5.4)."""
    signed = values.view(np.int64) if values.dtype == np.uint64 else values
    low, high = int(signed.min()), int(signed.max())
    if low >= 0:
        w = _size_class(high)
        return True, w, signed.astype(f"<u{1 << w}").tobytes()
    most = max(-low, high)
    w = 3 if most > 1 << 62 else _size_class(2 * most)
    return False, w, signed.astype(f"<i{1 << w}").tobytes()


def integers4(out: bytearray, key: int, values: NDArray[np.generic]) -> None:
    """Append a list of integers, not empty (colbin.md 5.4)."""
    positive, w, data = _list_form(values)
    more = len(values) > 255
    out.append(key << 4 | positive << 3 | w << 1 | more)
    out += len(values).to_bytes(4 if more else 1, "little")
    out += data


def body4(out: bytearray, key: int, flag: bool, body: bytes | bytearray) -> None:
    """Append a composite (colbin.md 5.6)."""
    _composite(out, key << 4 | flag << 3, body)


def body8(out: bytearray, descriptor: int, body: bytes | bytearray) -> None:
    """Append a composite without its key (colbin.md 6.6): `descriptor` with the width still 0."""
    _composite(out, descriptor, body)


def _composite(out: bytearray, head: int, body: bytes | bytearray) -> None:
    if len(body) < 255:
        out += bytes((head, len(body)))
    else:
        out.append(head | 2)
        out += len(body).to_bytes(4, "little")
    out += body


def element_integer4(out: bytearray, value: int, *, signed: bool) -> None:
    """Append a number as key or value of a map (colbin.md 5.7)."""
    if not signed:
        if value < 8:
            out.append(value)
        else:
            unsigned4(out, 0, value)
        return
    size = _wide(abs(value)) or 1
    out.append((value >= 0) << 3 | _code(size))
    out += abs(value).to_bytes(size, "little")


def element_string4(out: bytearray, data: bytes) -> None:
    """Append a string as key or value of a map (colbin.md 5.7)."""
    lw = _size_class(len(data))
    out.append(lw)
    out += len(data).to_bytes(1 << lw, "little")
    out += data


def _varint(out: bytearray, value: int) -> None:
    out.append(0xF8 | value & 7)
    value >>= 3
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _varint_size(value: int) -> int:
    return max(1, (value.bit_length() - 3 + 6) // 7)


def unsigned8(out: bytearray, key: int, value: int) -> None:
    """Append a field of the unsigned family (colbin.md 6.1); zero is omitted."""
    if not value:
        return
    out.append(key)
    if value > 127 and _varint_size(value) < _wide(value):
        _varint(out, value)
    else:
        element_integer8(out, value)


def signed8(out: bytearray, key: int, value: int) -> None:
    """Append a field of the signed family (colbin.md 6.2); zero is omitted."""
    if not value:
        return
    out.append(key)
    folded = (value << 1 ^ value >> 63) & (1 << 64) - 1
    if not 0 < value < 128 and _varint_size(folded) < _wide(abs(value)):
        _varint(out, folded)
    else:
        element_integer8(out, value)


def element_integer8(out: bytearray, value: int) -> None:
    """Append a number without key (colbin.md 6.7): never a varint."""
    if 0 <= value < 128:
        out.append(value)
    else:
        descriptor_integer(out, value)


def descriptor_integer(out: bytearray, value: int) -> None:
    """Append class, sign, size and magnitude of a number that is not 0."""
    size = _wide(abs(value))
    out.append(0x80 | (value > 0) << 3 | _code(size))
    out += abs(value).to_bytes(size, "little")


def _sized8(out: bytearray, head: int, data: bytes | bytearray) -> None:
    lw = _size_class(len(data))
    out.append(head | lw)
    out += len(data).to_bytes(1 << lw, "little")
    out += data


def blob8(out: bytearray, data: bytes, *, pack: bool = False) -> None:
    """Append a string or byte string without its key (colbin.md 6.4), packed when asked for and shorter."""
    packed = packed5.encode(data) if pack else None
    if packed is None:
        _sized8(out, 0x90, data)
    else:
        _sized8(out, 0x9C if packed[1] else 0x94, packed[0])


def element_string8(out: bytearray, data: bytes) -> None:
    """Append a string as element (colbin.md 6.7)."""
    _sized8(out, 0x90, data)


def integers8(out: bytearray, values: NDArray[np.generic]) -> None:
    """Append a list of integers, not empty, without its key (colbin.md 6.5)."""
    positive, w, data = _list_form(values)
    long = len(data) > 255
    out.append(0xA0 | w << 2 | positive << 1 | long)
    out += len(data).to_bytes(4 if long else 1, "little")
    out += data


def strings8(out: bytearray, texts: Sequence[bytes]) -> None:
    """Append a list of strings without its key (colbin.md 6.5)."""
    body = bytearray()
    write_len(body, len(texts))
    for text in texts:
        write_len(body, len(text))
        body += text
    _sized8(out, 0xC8, body)
