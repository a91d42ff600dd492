"""The elements of the wire: lengths, integers, blobs and lists under both key widths (colbin.md 5, 6).

A `Cursor` reads one message front to back. Whoever calls it says where the enclosing run, list or body ends, and no
byte behind that is looked at. What is malformed is a `FormatError` with its place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...kernels import packed5
from .schema import TypeCode

__all__ = ["INTEGER_RANGE", "LIST_RANGE", "ROOTS", "Cursor", "open_message"]

ROOTS = frozenset({0xD0, 0xD4, 0xD8, 0xDC})
"""First bytes of messages (colbin.md 2): bit 3 eight-bit keys, bit 2 a schema section."""

_U64 = (1 << 64) - 1
_SIGNED = {TypeCode.I8: 8, TypeCode.I16: 16, TypeCode.I32: 32, TypeCode.I64: 64}
_UNSIGNED = {
    TypeCode.U8: 8,
    TypeCode.U16: 16,
    TypeCode.U32: 32,
    TypeCode.U64: 64,
    TypeCode.F32: 32,
    TypeCode.F64: 64,
}
INTEGER_RANGE: dict[int, tuple[int, int]] = {
    TypeCode.BOOL: (0, 1),
    **{code: (-(1 << bits - 1), (1 << bits - 1) - 1) for code, bits in _SIGNED.items()},
    **{code: (0, (1 << bits) - 1) for code, bits in _UNSIGNED.items()},
}
"""Smallest and largest integer on the wire by type code; of floats the reversed pattern."""
LIST_RANGE: dict[int, tuple[int, int]] = {
    TypeCode.LIST_I8: INTEGER_RANGE[TypeCode.I8],
    TypeCode.LIST_I16: INTEGER_RANGE[TypeCode.I16],
    TypeCode.LIST_I32: INTEGER_RANGE[TypeCode.I32],
    TypeCode.LIST_I64: INTEGER_RANGE[TypeCode.I64],
    TypeCode.LIST_U16: INTEGER_RANGE[TypeCode.U16],
    TypeCode.LIST_U32: INTEGER_RANGE[TypeCode.U32],
}
"""The same for the elements of lists; lists of u64 hold any 64 bits (colbin.md 5.4)."""


def open_message(data: bytes) -> tuple[bool, bool]:
    """Return (eight-bit keys, section follows) of a message by its first byte; `FormatError` for all others."""
    if not data:
        raise FormatError("the message is empty", offset=0, section="root byte")
    if data[0] not in ROOTS:
        raise FormatError(f"{data[0]:02X} begins no message", offset=0, section="root byte")
    return bool(data[0] & 8), bool(data[0] & 4)


class Cursor:
    """A place in a message.

    Attributes
    ----------
    data : bytes
    at : int
        Offset of the next byte.
    """

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def bad(self, message: str) -> FormatError:
        """Return the error that says `message` of this place."""
        return FormatError(message, offset=self.at, section="message")

    def byte(self, end: int) -> int:
        if self.at >= end:
            raise self.bad("it ends where a byte is expected")
        value = self.data[self.at]
        self.at += 1
        return value

    def number(self, size: int, end: int) -> int:
        """Return the next `size` bytes as an unsigned integer."""
        at = self.at
        if size > end - at:
            raise self.bad(f"{size} bytes are expected, {end - at} are there")
        self.at = at + size
        return int.from_bytes(self.data[at : at + size], "little")

    def length(self, end: int) -> int:
        """Return LEN: one byte, or FF and four (colbin.md 1)."""
        value = self.byte(end)
        return value if value < 255 else self.number(4, end)

    def span(self, size: int, end: int) -> int:
        """Return where a part of `size` bytes stops that begins here."""
        if size > end - self.at:
            raise self.bad(f"a part of {size} bytes does not fit into the {end - self.at} that are there")
        return self.at + size

    def sized(self, lw: int, end: int) -> int:
        """Read a length of the width that `lw` names; return where the part behind it stops."""
        return self.span(self.number(1 << lw, end), end)

    def done(self, stop: int, what: str) -> None:
        if self.at != stop:
            raise self.bad(f"{stop - self.at} bytes are left over in a {what}")

    # four-bit keys: `code` is the low nibble of the field's byte

    def unsigned4(self, code: int, end: int) -> int:
        return code if code < 8 else self.number(code - 7, end)

    def signed4(self, code: int, end: int) -> int:
        return self._signed(code, end)

    def _signed(self, code: int, end: int) -> int:
        size = code & 7
        magnitude = self.number(8 if size == 7 else size, end) if size else 1
        if code & 8:
            if magnitude >> 63:
                raise self.bad("a positive integer is above 2^63-1")
            return magnitude
        if magnitude > 1 << 63:
            raise self.bad("a negative integer is below -2^63")
        return -magnitude

    def blob4(self, code: int, end: int, *, packable: bool) -> bytes:
        """Return the bytes of a string or byte string, unpacked (colbin.md 5.3)."""
        if code < 8:
            stop = self.span(code << 8 | self.byte(end), end)
        elif code < 11:
            stop = self.sized(code - 7, end)
        elif code == 15 or not packable:
            raise self.bad(f"code {code} is no size of this field")
        else:
            wide = code >= 13
            size = self.number(4 if wide else 1, end)
            if wide and size < 256:
                raise self.bad("a packed size below 256 takes one byte")
            return self._unpacked(self.span(size, end), upper=code in (12, 14))
        return self.take(stop)

    def take(self, stop: int) -> bytes:
        """Return the bytes up to `stop`, which the caller has checked."""
        data = self.data[self.at : stop]
        self.at = stop
        return data

    def _unpacked(self, stop: int, *, upper: bool) -> bytes:
        start = self.at
        try:
            return packed5.decode(self.take(stop), upper)
        except ValueError as exc:
            self.at = start
            raise self.bad(str(exc)) from None

    def integers4(self, code: int, kind: int, end: int) -> NDArray[np.generic]:
        """Return a list of integers of type code `kind`, range checked (colbin.md 5.4)."""
        count = self.number(4 if code & 1 else 1, end)
        width = code >> 1 & 3
        return self._integers(self.span(count << width, end), width, bool(code & 8), kind)

    def _integers(self, stop: int, width: int, positive: bool, kind: int) -> NDArray[np.generic]:
        place = self.at
        values: NDArray[np.generic] = np.frombuffer(
            self.take(stop), f"<{'u' if positive else 'i'}{1 << width}"
        )
        if kind == TypeCode.LIST_U64:
            return values if positive else values.astype(np.int64).view(np.uint64)
        low, high = LIST_RANGE[kind]
        if len(values) and (int(values.min()) < low or int(values.max()) > high):
            self.at = place
            raise self.bad("an element of a list is outside of its type")
        return values

    def strings4(self, code: int, end: int) -> list[bytes]:
        """Return a list of strings (colbin.md 5.5)."""
        if code < 8:
            count = code << 8 | self.byte(end)
        elif code < 11:
            count = self.number(1 << code - 7, end)
        else:
            raise self.bad(f"code {code} is no count of strings")
        return self._strings(count, end)

    def _strings(self, count: int, end: int) -> list[bytes]:
        self.countable(count, end, 1, "strings")
        found = []
        data, at = self.data, self.at
        for _ in range(count):
            self.at = at
            size = self.length(end)
            at = self.span(size, end)
            found.append(data[self.at : at])
        self.at = at
        return found

    def countable(self, count: int, end: int, least: int, what: str) -> None:
        """Refuse a count whose elements, of `least` bytes each, cannot be there."""
        if count * least > end - self.at:
            raise self.bad(f"{count} {what} are claimed in {end - self.at} bytes")

    def composite4(self, code: int, end: int) -> int:
        """Return where the body of a record, list, table, map or column stops (colbin.md 5.6)."""
        return self.sized(code & 3, end)

    # eight-bit keys: `desc` is the descriptor

    def unsigned8(self, desc: int, end: int) -> int:
        if desc < 0x80:
            return desc
        if desc < 0x90:
            if not desc & 8:
                raise self.bad("a negative integer where an unsigned one belongs")
            size = desc & 7
            return self.number(8 if size == 7 else size, end) if size else 1
        if desc < 0xF8:
            raise self.mismatch(desc)
        return self._varint(desc, end)

    def signed8(self, desc: int, end: int) -> int:
        if desc < 0x80:
            return desc
        if desc < 0x90:
            return self._signed(desc & 15, end)
        if desc < 0xF8:
            raise self.mismatch(desc)
        value = self._varint(desc, end)
        return value >> 1 ^ -(value & 1)

    def mismatch(self, desc: int) -> FormatError:
        self.at -= 1
        return self.bad(f"descriptor {desc:02X} does not fit the type of the field")

    def _varint(self, desc: int, end: int) -> int:
        value, shift = desc & 7, 3
        for _ in range(10):
            byte = self.byte(end)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                if value > _U64:
                    raise self.bad("a varint does not fit 64 bits")
                return value
        raise self.bad("a varint is longer than ten bytes")

    def blob8(self, desc: int, end: int, *, packable: bool) -> bytes:
        """Return the bytes of a string or byte string, unpacked (colbin.md 6.4)."""
        if desc >> 4 != 9:
            raise self.mismatch(desc)
        encoding = desc >> 2 & 3
        if encoding and (not packable or encoding == 2):
            raise self.bad(f"encoding {encoding} is not allowed here")
        stop = self.sized(desc & 3, end)
        return self._unpacked(stop, upper=encoding == 3) if encoding else self.take(stop)

    def integers8(self, desc: int, kind: int, end: int) -> NDArray[np.generic]:
        """Return a list of integers of type code `kind`, range checked (colbin.md 6.5)."""
        if desc >> 4 != 10:
            raise self.mismatch(desc)
        width = desc >> 2 & 3
        size = self.number(4 if desc & 1 else 1, end)
        if size & (1 << width) - 1:
            raise self.bad(f"a list of {size} bytes has no whole number of elements")
        return self._integers(self.span(size, end), width, bool(desc & 2), kind)

    def strings8(self, desc: int, end: int) -> list[bytes]:
        """Return a list of strings (colbin.md 6.5)."""
        if desc >> 4 != 12 or not desc & 8:
            raise self.mismatch(desc)
        stop = self.sized(desc & 3, end)
        found = self._strings(self.length(stop), stop)
        self.done(stop, "list of strings")
        return found

    def skip8(self, end: int) -> None:
        """Step over a value of a key that is not known, by its descriptors alone (colbin.md 13); no recursion."""
        while True:
            desc = self.byte(end)
            if desc < 0x80:
                return
            kind = desc >> 4
            if kind == 8:
                size = desc & 7
                self.at = self.span(8 if size == 7 else size, end)
                return
            if kind == 10:
                self.at = self.span(self.number(4 if desc & 1 else 1, end), end)
                return
            if kind < 15:
                self.at = self.sized(desc & 3, end)
                return
            if desc >= 0xF8:
                self._varint(desc, end)
                return
            if desc == 0xF6:
                raise self.mismatch(desc)
            if desc == 0xF7:
                self.length(end)
            elif desc < 0xF3:
                return
            # the value behind is next
