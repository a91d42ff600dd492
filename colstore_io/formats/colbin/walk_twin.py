"""The walk from a message to JSON text in plain Python: the kernel's twin, which names what is wrong (colbin.md 12-15).

Methods return the text of what they stand on and go behind it; nothing that a length claims is believed before it is
compared with what encloses it.
"""

from __future__ import annotations

import struct as _struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...kernels import column_codec
from .cursor import INTEGER_RANGE, Cursor
from .json_text import quote_bytes, spell_base64, spell_f32, spell_f64
from .schema import MAX_NESTING, FieldType, MapKind, TypeCode
from .walk_types import StructTexts, TypeTexts

__all__ = ["Limits", "Walk", "spell_float"]

_KIND_CODE = {
    MapKind.SIGNED: TypeCode.I64,
    MapKind.UNSIGNED: TypeCode.U64,
    MapKind.F64: TypeCode.F64,
    MapKind.BOOL: TypeCode.BOOL,
    MapKind.F32: TypeCode.F32,
}
_COLUMN_DTYPE = {
    TypeCode.BOOL: np.bool_,
    TypeCode.I8: np.int8,
    TypeCode.I16: np.int16,
    TypeCode.I32: np.int32,
    TypeCode.I64: np.int64,
    TypeCode.U8: np.uint8,
    TypeCode.U16: np.uint16,
    TypeCode.U32: np.uint32,
    TypeCode.U64: np.uint64,
    TypeCode.F32: np.float32,
    TypeCode.F64: np.float64,
}
_BOOLS = ("false", "true")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one message may cost: rows of a table, cells of all tables, characters of names and zeros."""

    rows: int
    cells: int
    text: int


def spell_float(reversed_bits: int, single: bool) -> str:
    """Return the float whose reversed pattern is `reversed_bits` as text; `ValueError` for what JSON cannot spell."""
    if single:
        return spell_f32(np.frombuffer(reversed_bits.to_bytes(4, "little"), ">f4")[0])
    return spell_f64(_F64.unpack(reversed_bits.to_bytes(8, "little"))[0])


_F64 = _struct.Struct(">d")


class Walk(Cursor):
    """One walk over one message."""

    __slots__ = ("cells", "max_rows", "tags", "text", "zero_records")

    def __init__(self, data: bytes, at: int, tags: TypeTexts, limits: Limits) -> None:
        super().__init__(data, at)
        self.tags = tags
        self.max_rows = limits.rows
        self.cells = limits.cells
        self.text = limits.text
        self.zero_records: dict[StructTexts, tuple[str, int]] = {}

    def message(self, root: StructTexts, k8: bool) -> str:
        if not root.definition.envelope:
            return self.record(root, k8, len(self.data), 1)
        found = self.run(root, k8, len(self.data), 1)
        return next(iter(found.values())) if found else self.zero(root, 0, 1)

    def spend(self, chars: int) -> None:
        self.text -= chars
        if self.text < 0:
            raise self.bad("the text is larger than allowed (max_text)")

    def deeper(self, depth: int) -> int:
        if depth >= MAX_NESTING:
            raise self.bad(f"it nests more than {MAX_NESTING} levels")
        return depth + 1

    def zero(self, struct: StructTexts, place: int, depth: int) -> str:
        zero = struct.zeros[place]
        if zero is None:
            zero, levels = self.zero_record(struct.table.structs[struct.types[place].index], 1)
            if depth + levels > MAX_NESTING:
                raise self.bad("a record of zeros is nested too deeply")
        self.spend(len(zero))
        return zero

    def zero_record(self, struct: StructTexts, depth: int) -> tuple[str, int]:
        """Return a record of zeros as text and its levels; no record contains itself by value."""
        known = self.zero_records.get(struct)
        if known is not None:
            return known
        if depth > MAX_NESTING:
            raise self.bad("a record of zeros is nested too deeply")
        parts = []
        levels, chars = 1, struct.name_chars
        for name, kind, zero in zip(struct.names, struct.types, struct.zeros, strict=True):
            if zero is None:
                zero, inner = self.zero_record(struct.table.structs[kind.index], depth + 1)
                levels = max(levels, inner + 1)
            chars += len(zero)
            if chars > self.text:
                raise self.bad("a record of zeros is larger than allowed (max_text)")
            parts.append(name + zero)
        found = self.zero_records[struct] = "{" + ",".join(parts) + "}", levels
        return found

    def record(self, struct: StructTexts, k8: bool, end: int, depth: int) -> str:
        """Return a run up to `end` as an object; `depth` is its own level."""
        found = self.run(struct, k8, end, depth)
        names = struct.names
        parts = [names[place] + text for place, text in found.items()]
        if len(found) < len(names):
            parts += [
                name + self.zero(struct, place, depth)
                for place, name in enumerate(names)
                if place not in found
            ]
        self.spend(struct.name_chars)
        return "{" + ",".join(parts) + "}"

    def run(self, struct: StructTexts, k8: bool, end: int, depth: int) -> dict[int, str]:
        """Return the text of each field that is present, by its place in the definition, in wire order."""
        found: dict[int, str] = {}
        by_key, types = struct.by_key, struct.types
        unknown: set[int] = set()
        data = self.data
        while self.at < end:
            head = data[self.at]
            self.at += 1
            if k8:
                if self.at >= end:
                    raise self.bad("a key without a value ends the run")
                place = by_key.get(head)
                if place is None:
                    if head in unknown:
                        raise self.twice(head)
                    unknown.add(head)
                    self.skip8(end)
                    continue
                if place in found:
                    raise self.twice(head)
                found[place] = self.field8(types[place], struct.table, end, depth)
            else:
                place = by_key.get(head >> 4)
                if place is None:
                    self.at -= 1
                    raise self.bad(
                        f"key {head >> 4} is not declared, and four-bit keys cannot be stepped over"
                    )
                if place in found:
                    raise self.twice(head >> 4)
                found[place] = self.field4(types[place], struct.table, head & 15, end, depth)
        return found

    def twice(self, key: int) -> FormatError:
        return self.bad(f"key {key} is there twice")

    # fields

    def field4(self, kind: FieldType, table: TypeTexts, code: int, end: int, depth: int) -> str:
        what = kind.pointee if kind.code == TypeCode.OPTIONAL else kind.code
        if what < TypeCode.STRING:
            signed = TypeCode.I8 <= what <= TypeCode.I64
            return self.scalar(what, self.signed4(code, end) if signed else self.unsigned4(code, end))
        if what == TypeCode.STRING:
            return quote_bytes(self.blob4(code, end, packable=True))
        if what == TypeCode.BYTES:
            return self.base64(self.blob4(code, end, packable=False))
        if what < TypeCode.STRINGS:
            return _array(self.integers4(code, what, end))
        if what == TypeCode.STRINGS:
            return "[" + ",".join(map(quote_bytes, self.strings4(code, end))) + "]"
        if kind.is_dynamic:
            raise self.bad("a dynamic value needs eight-bit keys")
        stop = self.composite4(code, end)
        if what == TypeCode.MAP:
            if code & 8:
                raise self.bad("a table where a map belongs")
            return self.map(kind, self.element4, stop, depth)
        struct = table.structs[kind.index]
        if what != TypeCode.RECORDS:
            return self.record(struct, bool(code & 8), stop, self.deeper(depth))
        if code & 8:
            return self.table(struct, struct.k8, stop, depth)
        return self.rows4(struct, stop, depth)

    def field8(self, kind: FieldType, table: TypeTexts, end: int, depth: int) -> str:
        desc = self.data[self.at]
        self.at += 1
        what = kind.pointee if kind.code == TypeCode.OPTIONAL else kind.code
        if what < TypeCode.STRING:
            signed = TypeCode.I8 <= what <= TypeCode.I64
            return self.scalar(what, self.signed8(desc, end) if signed else self.unsigned8(desc, end))
        if what == TypeCode.STRING:
            return quote_bytes(self.blob8(desc, end, packable=True))
        if what == TypeCode.BYTES:
            return self.base64(self.blob8(desc, end, packable=False))
        if what < TypeCode.STRINGS:
            return _array(self.integers8(desc, what, end))
        if what == TypeCode.STRINGS:
            return "[" + ",".join(map(quote_bytes, self.strings8(desc, end))) + "]"
        if what == TypeCode.DYNAMIC:
            return self.dynamic(desc, end, depth)
        if what == TypeCode.DYNAMICS:
            return self.dynamics(desc, end, depth)
        if what == TypeCode.MAP:
            if desc >> 4 != 14 or desc & 8:
                raise self.mismatch(desc)
            return self.map(kind, self.element8, self.sized(desc & 3, end), depth)
        struct = table.structs[kind.index]
        if what == TypeCode.RECORDS:
            return self.rows_or_table8(struct, desc, end, depth)
        if desc >> 4 != 13:
            raise self.mismatch(desc)
        return self.record(struct, bool(desc & 8), self.sized(desc & 3, end), self.deeper(depth))

    # scalars

    def scalar(self, code: int, value: int) -> str:
        low, high = INTEGER_RANGE[code]
        if not low <= value <= high:
            raise self.bad(f"{value} is outside of its type")
        if code == TypeCode.BOOL:
            return _BOOLS[value]
        if code < TypeCode.F32:
            return str(value)
        return self.f32(value) if code == TypeCode.F32 else self.f64(value)

    def f64(self, reversed_bits: int) -> str:
        return self.spelled(spell_float, reversed_bits, False)

    def f32(self, reversed_bits: int) -> str:
        if reversed_bits >> 32:
            raise self.bad("the bits of an f32 do not fit 32 bits")
        return self.spelled(spell_float, reversed_bits, True)

    def spelled(self, spell: Callable[..., str], *value: object) -> str:
        try:
            return spell(*value)
        except ValueError as exc:
            raise self.bad(str(exc)) from None

    def base64(self, data: bytes) -> str:
        return spell_base64(data)

    # lists, tables and maps

    def rows4(self, struct: StructTexts, stop: int, depth: int) -> str:
        depth = self.deeper(depth)
        inner = self.deeper(depth) if self.at < stop and self.data[self.at] else depth
        count = self.length(stop)
        self.countable(count, stop, 1, "records")
        rows = [
            self.record(struct, struct.k8, self.span(self.length(stop), stop), inner) for _ in range(count)
        ]
        self.done(stop, "list")
        return "[" + ",".join(rows) + "]"

    def rows_or_table8(self, struct: StructTexts, desc: int, end: int, depth: int) -> str:
        if desc & 0xF8 == 0xC0:
            return self.rows8(struct, self.sized(desc & 3, end), depth)
        if desc & 0xF8 == 0xE8:
            return self.table(struct, True, self.sized(desc & 3, end), depth)
        raise self.mismatch(desc)

    def rows8(self, struct: StructTexts, stop: int, depth: int) -> str:
        depth = self.deeper(depth)
        inner = self.deeper(depth) if self.at < stop and self.data[self.at] else depth
        count = self.length(stop)
        self.countable(count, stop, 2, "records")
        rows = []
        for _ in range(count):
            desc = self.byte(stop)
            if desc >> 4 != 13:
                raise self.mismatch(desc)
            rows.append(self.record(struct, bool(desc & 8), self.sized(desc & 3, stop), inner))
        self.done(stop, "list")
        return "[" + ",".join(rows) + "]"

    def table(self, struct: StructTexts, k8: bool, stop: int, depth: int) -> str:
        """Return a table as an array of objects, all columns in definition order (colbin.md 7)."""
        self.deeper(depth)
        rows = self.length(stop)
        if rows > self.max_rows:
            raise self.bad(f"a table of {rows} rows is larger than allowed (max_rows {self.max_rows})")
        if not struct.definition.tabular:
            raise self.bad("a table of a record type with fields that cannot be columns")
        self.cells -= rows * max(1, len(struct.types))
        if self.cells < 0:
            raise self.bad(
                f"a table of {rows} rows and {len(struct.types)} columns is larger than allowed (max_cells)"
            )
        columns: dict[int, Sequence[str]] = {}
        unknown: set[int] = set()
        while self.at < stop:
            head = self.byte(stop)
            key, code = (head, self.byte(stop)) if k8 else (head >> 4, head & 15)
            place = struct.by_key.get(key)
            if place is None:
                if not k8:
                    raise self.bad(f"column {key} is not declared, and four-bit keys cannot be stepped over")
                if key in unknown:
                    raise self.twice(key)
                unknown.add(key)
                self.at -= 1
                self.skip8(stop)
                continue
            if place in columns:
                raise self.twice(key)
            columns[place] = self.column(struct.types[place].code, code, k8, rows, stop)
        self.spend(rows * (struct.name_chars + 5 * (len(struct.types) - len(columns))))
        cells: list[list[str]] = []
        for place, name in enumerate(struct.names):
            if place in columns:
                cells.append([name + text for text in columns[place]])
            else:
                cells.append([f"{name}{struct.zeros[place]}"] * rows)
        if not cells:
            return "[" + ",".join(["{}"] * rows) + "]"
        return "[" + ",".join(["{" + ",".join(row) + "}" for row in zip(*cells, strict=True)]) + "]"

    def column(self, kind: int, code: int, k8: bool, rows: int, end: int) -> Sequence[str]:
        if kind == TypeCode.STRING:
            texts = self.strings8(code, end) if k8 else self.strings4(code, end)
            if len(texts) != rows:
                raise self.bad(f"a string column has {len(texts)} elements in a table of {rows} rows")
            return [quote_bytes(text) for text in texts]
        if k8:
            if code >> 4 != 11:
                raise self.mismatch(code)
        elif code & 8:
            raise self.bad("the flag of a column is set")
        stop = self.sized(code & 3, end)
        values: NDArray[Any] = np.empty(rows, _COLUMN_DTYPE[TypeCode(kind)])
        wrong = column_codec.decode(self.data[self.at : stop], values)
        if wrong:
            raise self.bad(f"a column is damaged: {column_codec.WRONG[wrong]}")
        self.at = stop
        if kind == TypeCode.BOOL:
            return [_BOOLS[value] for value in values.view(np.uint8).tolist()]
        if kind == TypeCode.F32:
            return [self.spelled(spell_f32, value) for value in values]
        if kind == TypeCode.F64:
            return [self.spelled(spell_f64, value) for value in values.tolist()]
        return list(map(str, values.tolist()))

    def map(self, kind: FieldType, element: Callable[[int, int, int], str], stop: int, depth: int) -> str:
        depth = self.deeper(depth)
        count = self.length(stop)
        self.countable(count, stop, 2, "entries of a map")
        parts = []
        for _ in range(count):
            key = element(kind.key_kind, stop, depth)
            if kind.key_kind != MapKind.STRING:
                key = f'"{key}"'
            parts.append(key + ":" + element(kind.value_kind, stop, depth))
        self.done(stop, "map")
        return "{" + ",".join(parts) + "}"

    def element4(self, kind: int, stop: int, depth: int) -> str:
        """Return a key or value of a map under four-bit keys (colbin.md 5.7)."""
        code = self.byte(stop) & 15
        if kind == MapKind.STRING:
            return quote_bytes(self.take(self.sized(code & 3, stop)))
        value = self.signed4(code, stop) if kind == MapKind.SIGNED else self.unsigned4(code, stop)
        return self.scalar(_KIND_CODE[MapKind(kind)], value)

    def element8(self, kind: int, stop: int, depth: int) -> str:
        """Return a key or value of a map under eight-bit keys (colbin.md 6.7)."""
        desc = self.byte(stop)
        if kind == MapKind.STRING:
            return quote_bytes(self.blob8(desc, stop, packable=False))
        if kind == MapKind.DYNAMIC:
            return self.dynamic(desc, stop, depth)
        value = self.signed8(desc, stop) if kind == MapKind.SIGNED else self.unsigned8(desc, stop)
        return self.scalar(_KIND_CODE[MapKind(kind)], value)

    # dynamic values (colbin.md 11)

    def dynamic(self, desc: int, end: int, depth: int) -> str:
        if desc < 0x90 or desc >= 0xF8:
            return str(self.dynamic_integer(desc, end))
        if desc < 0xA0:
            return quote_bytes(self.blob8(desc, end, packable=False))
        if desc & 0xF8 == 0xC0:
            return self.dynamic_list(self.sized(desc & 3, end), depth)
        if desc & 0xF8 == 0xE0:
            return self.dynamic_map(self.sized(desc & 3, end), depth)
        if desc == 0xF0:
            return "null"
        if desc in (0xF1, 0xF2):
            return _BOOLS[desc == 0xF1]
        if desc in (0xF3, 0xF4):
            bits = self.unsigned8(self.byte(end), end)
            return self.f64(bits) if desc == 0xF3 else self.f32(bits)
        if desc == 0xF5:
            return self.base64(self.blob8(self.byte(end), end, packable=False))
        if desc == 0xF7:
            return self.typed(end, depth)
        self.at -= 1
        raise self.bad(f"descriptor {desc:02X} begins no dynamic value")

    def dynamic_integer(self, desc: int, end: int) -> int:
        if 0x80 <= desc < 0x88:
            return self.signed8(desc, end)
        return self.unsigned8(desc, end)

    def dynamic_list(self, stop: int, depth: int) -> str:
        depth = self.deeper(depth)
        count = self.length(stop)
        self.countable(count, stop, 1, "elements")
        parts = [self.dynamic(self.byte(stop), stop, depth) for _ in range(count)]
        self.done(stop, "list")
        return "[" + ",".join(parts) + "]"

    def dynamic_map(self, stop: int, depth: int) -> str:
        depth = self.deeper(depth)
        count = self.length(stop)
        self.countable(count, stop, 2, "entries of a map")
        parts = []
        for _ in range(count):
            desc = self.byte(stop)
            if desc < 0x90 or desc >= 0xF8:
                key = f'"{self.dynamic_integer(desc, stop)}"'
            elif desc < 0xA0:
                key = quote_bytes(self.blob8(desc, stop, packable=False))
            else:
                self.at -= 1
                raise self.bad("the key of a map is neither string nor integer")
            parts.append(key + ":" + self.dynamic(self.byte(stop), stop, depth))
        self.done(stop, "map")
        return "{" + ",".join(parts) + "}"

    def typed(self, end: int, depth: int) -> str:
        index = self.length(end)
        if index >= len(self.tags.structs):
            raise self.bad(f"a tag names record {index} of {len(self.tags.structs)}")
        struct = self.tags.structs[index]
        desc = self.byte(end)
        if desc >> 4 == 13:
            return self.record(struct, bool(desc & 8), self.sized(desc & 3, end), self.deeper(depth))
        return self.rows_or_table8(struct, desc, end, depth)

    def dynamics(self, desc: int, end: int, depth: int) -> str:
        """Return a field of code 26: null, a list, or a typed list or table."""
        if desc == 0xF7 and (self.at >= end or self.data[self._behind_length(end)] >> 4 == 13):
            raise self.bad("a single record where a list belongs")
        if desc != 0xF0 and desc != 0xF7 and desc & 0xF8 != 0xC0:
            raise self.mismatch(desc)
        return self.dynamic(desc, end, depth)

    def _behind_length(self, end: int) -> int:
        start = self.at
        self.length(end)
        place, self.at = self.at, start
        if place >= end:
            raise self.bad("it ends where a byte is expected")
        return place


def _array(values: NDArray[np.generic]) -> str:
    return "[" + ",".join(map(str, values.tolist())) + "]"
