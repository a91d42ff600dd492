"""The kernels of `kernels.decode` in NumPy and plain Python: what they mean, for tests and for reading.

Same names, arguments and results. Not for use on large data: values of variable length are handled one by one.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "PackedReader",
    "PlainReader",
    "bools",
    "count_nulls",
    "delta",
    "expand",
    "first_not_utf8",
    "lzw",
    "measure_entries",
    "offset_table",
    "parse_footer",
    "place_chunks",
    "spread_offsets",
    "take_variable",
    "validity",
]

_COLUMN = struct.Struct("=IIBBxx")
_GROUP = np.dtype([("byte_offset", "=i8"), ("n_columns", "=i8"), ("n_rows", "=u4"), ("", "V4")])
_COLUMN_FIELDS = ("name", "type", "nullable")
_MAX_DEPTH = 64


def _bytes(data: Any) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)


def delta(stream: Any, out: NDArray[np.uint8], width: int, carry: int = 0) -> int:
    steps = _bytes(stream).view("<u8")
    with np.errstate(over="ignore"):
        sums = np.cumsum(steps, dtype=np.uint64) + np.uint64(carry)
    out[:] = sums.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].ravel()
    return int(sums[-1]) if len(sums) else carry


def bools(stream: Any, out: NDArray[np.uint8]) -> None:
    out[:] = np.unpackbits(_bytes(stream), count=len(out))


def validity(bitmap: Any, out: NDArray[np.uint8]) -> None:
    out[:] = 1 - np.unpackbits(_bytes(bitmap), count=len(out), bitorder="little")


def count_nulls(bitmap: Any, n: int) -> int:
    bits = np.unpackbits(_bytes(bitmap), bitorder="little")
    return -1 if bits[n:].any() else int(bits[:n].sum())


def expand(values: NDArray[np.uint8], width: int, bitmap: Any) -> None:
    items = values.reshape(-1, width)
    there = np.unpackbits(_bytes(bitmap), count=len(items), bitorder="little") == 0
    dense = items[len(items) - int(there.sum()) :].copy()
    items[:] = 0
    items[there] = dense


class PackedReader:
    def __init__(
        self,
        width: int,
        limit: int,
        out: NDArray[np.uint8],
        skip: int = 0,
        entries: NDArray[np.uint8] | None = None,
        item: int = 4,
    ) -> None:
        if not 0 <= width <= 32 or out.size % item:
            raise ValueError("width must be 0 to 32, and out whole items")
        self._width, self._limit, self._out, self._skip = width, limit, out, skip
        self._table = None if entries is None else entries[: limit * item].reshape(limit, item)
        self._item, self._bits = item, np.empty(0, np.uint8)
        self.numbers = 0

    def feed(self, block: Any) -> int:
        """Take all bits so far and make numbers of those that are whole."""
        if self._width == 0:
            return -1
        self._bits = np.concatenate([self._bits, np.unpackbits(_bytes(block))])
        step = min(self._skip, len(self._bits))
        self._skip, self._bits = self._skip - step, self._bits[step:]
        n = len(self._out) // self._item - self.numbers
        whole = min(n, len(self._bits) // self._width)
        wanted = self._bits[: whole * self._width].reshape(whole, self._width).astype(np.uint64)
        self._bits = self._bits[whole * self._width :]
        weights = np.uint64(1) << np.arange(self._width, dtype=np.uint64)[::-1]
        return self._put((wanted * weights).sum(axis=1))

    def zeros(self) -> int:
        return self._put(np.zeros(len(self._out) // self._item - self.numbers, np.uint64))

    def _put(self, numbers: NDArray[np.uint64]) -> int:
        bad = np.flatnonzero(numbers >= self._limit)
        if len(bad):
            return self.numbers + int(bad[0])
        items = numbers.astype("<u4").view(np.uint8) if self._table is None else self._table[numbers].ravel()
        first = self.numbers * self._item
        self._out[first : first + len(items)] = items
        self.numbers += len(numbers)
        return -1


class PlainReader:
    def __init__(
        self, offsets: NDArray[Any], data: NDArray[np.uint8], prefix: Any = b"", suffix: Any = b""
    ) -> None:
        self._offsets, self._data, self._stream = offsets, data, b""
        self._prefix, self._suffix = bytes(prefix), bytes(suffix)
        self.ascii = (self._prefix + self._suffix).isascii()
        offsets[0] = 0
        self.values = 0
        self.complete = len(offsets) == 1 and len(data) == 0

    def feed(self, block: Any) -> int:
        """Read everything again from the front: the simplest thing that is right."""
        self._stream += bytes(block)
        self.ascii = self.ascii and bytes(block).isascii()
        at = value = filled = 0
        self.complete = False
        while len(self._stream) - at >= 4:
            length = int.from_bytes(self._stream[at : at + 4], "little")
            at += 4
            if value == len(self._offsets) - 1:
                return 1
            if len(self._prefix) + length + len(self._suffix) > len(self._data) - filled:
                return 2
            value += 1
            piece = self._stream[at : at + length]
            at += len(piece)
            whole = self._prefix + piece + (self._suffix if len(piece) == length else b"")
            self._data[filled : filled + len(whole)] = _bytes(whole)
            filled += len(whole)
            if len(piece) < length:
                self.values = value
                return 0
            self._offsets[value] = filled
        self.values = value
        self.complete = (
            at == len(self._stream) and value == len(self._offsets) - 1 and filled == len(self._data)
        )
        return 0


def plain_spans(block: Any, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[int, int]:
    at = found = 0
    while found < len(starts) and len(block) - at >= 4:
        length = int.from_bytes(block[at : at + 4], "little")
        if length > len(block) - at - 4:
            break
        starts[found], lengths[found] = at + 4, length
        found += 1
        at += 4 + length
    return found, at


def measure_chosen(
    n_bytes: int,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    chosen: NDArray[np.int64],
    n_affix: int,
    limit: int,
) -> int:
    total = 0
    for number in chosen.tolist():
        if not 0 <= number < len(starts):
            return -1
        start, length = int(starts[number]), int(lengths[number])
        if not 0 <= start <= start + length <= n_bytes or length < 0:
            return -1
        total += n_affix + length
    return total if total <= limit else -1


def copy_values(
    block: Any,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    chosen: NDArray[np.int64],
    ends: NDArray[np.int64],
    out: NDArray[np.uint8],
    prefix: Any = b"",
    suffix: Any = b"",
) -> None:
    data = bytes(block)
    size = measure_chosen(len(data), starts, lengths, chosen, len(prefix) + len(suffix), len(out))
    if size != len(out) or len(ends) != len(chosen):
        raise ValueError("out must have exactly the bytes of the chosen values, and ends a place for each")
    values = [
        bytes(prefix) + data[starts[number] : starts[number] + lengths[number]] + bytes(suffix)
        for number in chosen.tolist()
    ]
    ends[:] = np.cumsum([len(value) for value in values])
    out[:] = _bytes(b"".join(values))


def spread_offsets(offsets: NDArray[Any], bitmap: Any) -> None:
    there = np.unpackbits(_bytes(bitmap), count=len(offsets) - 1, bitorder="little") == 0
    dense = offsets[len(there) - int(there.sum()) :].copy()
    offsets[0] = dense[0]
    offsets[1:] = dense[np.cumsum(there)]


def offset_table(table: Any, area: int, out: NDArray[Any]) -> int:
    starts = _bytes(table).view("<u4").astype(np.int64)
    bad = np.flatnonzero((np.diff(starts, prepend=0) < 0) | (starts > area))
    if len(bad):
        return int(bad[0])
    out[:-1], out[-1] = starts, area
    return -1


def measure_entries(indices: NDArray[np.uint32], bounds: NDArray[np.uint32], limit: int) -> int:
    total = int(np.diff(bounds.astype(np.int64))[indices].sum()) if len(indices) else 0
    return total if total <= limit else -1


def take_variable(
    indices: NDArray[np.uint32],
    bounds: NDArray[np.uint32],
    area: Any,
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
) -> None:
    values = [bytes(area[bounds[i] : bounds[i + 1]]) for i in indices.tolist()]
    _fill(values, offsets, data)


def _fill(values: list[bytes], offsets: NDArray[Any], data: NDArray[np.uint8]) -> None:
    offsets[:] = np.cumsum([0, *(len(value) for value in values)])
    data[:] = _bytes(b"".join(values))


def first_not_utf8(data: Any, offsets: NDArray[Any]) -> int:
    for number in range(len(offsets) - 1):
        try:
            bytes(data[offsets[number] : offsets[number + 1]]).decode()
        except UnicodeDecodeError:
            return number
    return -1


def lzw(source: Any, out: NDArray[np.uint8]) -> int:
    raw = bytes(source)
    bits = int.from_bytes(raw, "little")
    left, width, limit = 8 * len(raw), 9, 512
    table: list[bytes] = []
    previous: bytes | None = None
    result = bytearray()
    while True:
        if left < width:
            return -1
        code = bits & ((1 << width) - 1)
        bits >>= width
        left -= width
        if code == 256:
            width, limit, table, previous = 9, 512, [], None
            continue
        if code == 257:
            out[: len(result)] = _bytes(bytes(result))
            return len(result)
        if code < 256:
            value = bytes([code])
        elif code - 258 < len(table):
            value = table[code - 258]
        elif code - 258 == len(table) and previous is not None:
            value = previous + previous[:1]
        else:
            return -2
        result += value
        if len(result) > len(out):
            return -3
        if previous is not None and len(table) < 4096 - 258:
            table.append(previous + value[:1])
            if len(table) + 258 == limit and width < 12:
                width, limit = width + 1, limit * 2
        previous = value


# ----------------------------------------------------------------------------------------------------------
# Footers


class _Fault(Exception):
    pass


class _Gob:
    """Reads one value of a gob stream by the tables of `formats.columns.gob`."""

    def __init__(self, data: bytes, start: int, end: int, tables: tuple[NDArray[Any], ...]) -> None:
        self.data, self.pos, self.end = data, start, end
        self.kind, self.first, self.second, self.field_type, self.actions, self.action_start, self.roles = (
            tables
        )
        self.columns: list[bytes] = []
        self.groups: list[bytes] = []
        self.chunks: list[bytes] = []

    def uint(self) -> int:
        if self.pos >= self.end:
            raise _Fault(1)
        head = self.data[self.pos]
        self.pos += 1
        if head < 128:
            return head
        count = 256 - head
        if count > 8:
            raise _Fault(2)
        if self.end - self.pos < count:
            raise _Fault(1)
        self.pos += count
        return int.from_bytes(self.data[self.pos - count : self.pos], "big")

    def sint(self) -> int:
        value = self.uint()
        return ~(value >> 1) if value & 1 else value >> 1

    def bounded(self, limit: int) -> int:
        value = self.uint()
        if value > limit:
            raise _Fault(4)
        return value

    def count(self) -> int:
        value = self.uint()
        if value > self.end - self.pos:
            raise _Fault(5)
        return value

    def text(self) -> tuple[int, int]:
        length = self.count()
        self.pos += length
        return self.pos - length, length

    def fields(self, type_: int) -> Any:
        number = -1
        while self.pos < self.end:
            step = self.uint()
            if step == 0:
                return
            number += step
            if number >= self.second[type_]:
                raise _Fault(3)
            yield number

    def skip(self, type_: int, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise _Fault(6)
        kind = int(self.kind[type_])
        if kind in (5, 6, 13):
            self.text()
        elif kind == 7:
            self.uint()
            self.uint()
        elif kind == 8:
            raise _Fault(7)
        elif kind in (9, 10, 12):
            count = self.count()
            if kind == 10 and count != self.second[type_]:
                raise _Fault(8)
            for _ in range(count):
                self.skip(int(self.first[type_]), depth + 1)
                if kind == 12:
                    self.skip(int(self.second[type_]), depth + 1)
        elif kind == 11:
            for number in self.fields(type_):
                self.skip(int(self.field_type[self.first[type_] + number]), depth + 1)
        else:
            self.uint()

    def struct(self, role: int, readers: dict[int, Any]) -> dict[int, Any]:
        """Return what `readers` make of the known fields."""
        type_ = int(self.roles[role])
        found = {}
        for number in self.fields(type_):
            action = int(self.actions[self.action_start[role] + number])
            if action in readers:
                found[action] = readers[action]()
            else:
                self.skip(int(self.field_type[self.first[type_] + number]), 1)
        return found

    def footer(self) -> None:
        self.struct(0, {1: lambda: self.each(self.column), 2: lambda: self.each(self.group)})

    def each(self, read: Any) -> int:
        count = self.count()
        for _ in range(count):
            read()
        return count

    def column(self) -> None:
        found = self.struct(1, {1: self.text, 2: lambda: self.bounded(255), 3: self.uint})
        start, length = found.get(1, (0, 0))
        self.columns.append(
            np.array([start, length], np.uint32).tobytes()
            + bytes([found.get(2, 0), found.get(3, 0) != 0, 0, 0])
        )

    def group(self) -> None:
        limit = (1 << 32) - 1
        found = self.struct(
            2, {1: lambda: self.bounded(limit), 2: self.sint, 3: lambda: self.each(self.chunk)}
        )
        self.groups.append(
            np.array([found.get(2, 0), found.get(3, 0)], np.int64).tobytes()
            + np.array([found.get(1, 0), 0], np.uint32).tobytes()
        )

    def chunk(self) -> None:
        def word() -> int:
            return self.bounded((1 << 32) - 1)

        def byte() -> int:
            return self.bounded(255)

        readers = {1: self.sint, 2: word, 3: self.text, 4: self.text, 5: word, 6: word, 7: byte, 8: byte}
        found = self.struct(3, {**readers, 9: self.sint})
        low, high = found.get(3, (0, 0)), found.get(4, (0, 0))
        self.chunks.append(
            np.array([found.get(1, 0), found.get(9, 0)], np.int64).tobytes()
            + np.array([found.get(2, 0), *low, *high, found.get(5, 0), found.get(6, 0)], np.uint32).tobytes()
            + bytes([found.get(7, 0), found.get(8, 0), 0, 0])
        )


class FooterTypes:
    def __init__(
        self,
        kind: NDArray[np.int32],
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        field_type: NDArray[np.int32],
        actions: NDArray[np.int32],
        action_start: NDArray[np.int64],
        role_type: NDArray[np.int64],
    ) -> None:
        self.tables = (kind, first, second, field_type, actions, action_start, role_type)


def parse_footer(
    data: Any, start: int, end: int, types: FooterTypes
) -> tuple[int, int, tuple[bytes, ...], bytes, bytes, bytearray, bytearray]:
    stored = bytes(data)
    reader = _Gob(stored, start, end, types.tables)
    code = 0
    try:
        reader.footer()
    except _Fault as exc:
        code = exc.args[0]
    groups, chunks = (bytearray(b"".join(records)) for records in (reader.groups, reader.chunks))
    columns = [_COLUMN.unpack(record) for record in reader.columns]
    return (
        code,
        reader.pos,
        tuple(stored[at : at + size] for at, size, _, _ in columns),
        bytes(kind for _, _, kind, _ in columns),
        bytes(flag for _, _, _, flag in columns),
        groups,
        chunks,
    )


def place_chunks(
    groups: Any,
    chunks: Any,
    nullable: Any,
    low: int,
    high: int,
    n_tokenizers: int,
    max_rows: int,
    out: NDArray[np.int64],
) -> tuple[int, int, int]:
    flags = _bytes(nullable)
    table = np.frombuffer(groups, _GROUP)
    rows, offsets, end, start = np.split(out, len(table) * np.arange(1, 4))
    n_columns = len(flags)
    wrong = np.flatnonzero(table["n_columns"] != n_columns)
    if len(wrong):
        return 1, int(wrong[0]), -1
    rows[:], offsets[:] = table["n_rows"], table["byte_offset"]
    words = _bytes(chunks).reshape(-1, 48)
    lengths, tokenizers = words[:, :8].copy().view("<i8"), words[:, 8:16].copy().view("<i8")
    nulls = words[:, 16:20].copy().view("<u4")
    order, last, group = 0, low, -1
    for group, (offset, _, n_rows) in enumerate(table[["byte_offset", "n_columns", "n_rows"]].tolist()):
        if n_rows > (max_rows if n_columns else 0):
            return 6, group, -1
        at = end[group] = offset
        if n_columns == 0:
            continue
        if not low <= at <= high:
            return 3, group, -1
        for column in range(n_columns):
            number = group * n_columns + column
            length = int(lengths[number, 0])
            if length < 18:
                return 2, group, column
            if length > high - at:
                return 3, group, column
            if nulls[number, 0] > (n_rows if flags[column] else 0):
                return 4, group, column
            if not 0 <= tokenizers[number, 0] <= n_tokenizers:
                return 5, group, column
            start[number] = at
            at += length
        order = 7 if offset < last else order
        last = end[group] = at
    return order, group, -1
