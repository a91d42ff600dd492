"""Type definitions of a gob stream, made into tables by which a kernel reads the value (columns.md section 8).

Nearly every footer begins with the same 417 bytes of definitions (8.5), whose tables are kept. Any other legal stream
of Go's encoder is understood too: definitions are read here, checked, and compiled to the same tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...kernels import footers as kernel

__all__ = ["PREFIX", "Footprint", "TypeTables", "read_stream", "usual_types"]

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
    "0001064d61784c656e0106000108456e636f64696e670106000108436f6d707265"
    "73730106000109546f6b656e697a65720104000000"
)
"""The definitions that the format's library writes unless its process used gob before (8.5)."""

MAX_DEFINITION_BYTES = 1 << 20
"""Bytes that the definitions of a footer may take together; a Go program has a few kilobytes of them."""

_MAX_MESSAGE = 1 << 33
_FIRST_USER_ID = 64

_BOOL, _INT, _UINT, _BYTES, _STRING = 1, 2, 3, 5, 6
_BASIC = range(1, 9)
_SLICE, _ARRAY, _STRUCT, _MAP, _OPAQUE = 9, 10, 11, 12, 13

# Known fields of each role: what the kernel calls them, and the type that they must have. A role's name stands for a
# slice of structs in that role. Names and order as in `gob.h`.
_FIELDS: tuple[dict[bytes, tuple[int, int | str]], ...] = (
    {b"Schema": (1, "column"), b"RowGroups": (2, "group")},
    {b"Name": (1, _STRING), b"Type": (2, _UINT), b"Nullable": (3, _BOOL)},
    {b"NumRows": (1, _UINT), b"ByteOffset": (2, _INT), b"Columns": (3, "chunk")},
    {
        b"ByteLength": (1, _INT),
        b"NullCount": (2, _UINT),
        b"MinVal": (3, _BYTES),
        b"MaxVal": (4, _BYTES),
        b"MinLen": (5, _UINT),
        b"MaxLen": (6, _UINT),
        b"Encoding": (7, _UINT),
        b"Compress": (8, _UINT),
        b"Tokenizer": (9, _INT),
    },
)
_ROLES = {"footer": 0, "column": 1, "group": 2, "chunk": 3}


class Footprint(NamedTuple):
    """Where the value of a stream stands, and the tables to read it by."""

    start: int
    stop: int
    tables: TypeTables


@dataclass(frozen=True)
class TypeTables:
    """Types as the kernel wants them: see ``gob.h``. Types are renumbered; 1 to 8 stay gob's own."""

    kind: NDArray[np.int32]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    field_type: NDArray[np.int32]
    actions: NDArray[np.int32]
    action_start: NDArray[np.int64]
    role_type: NDArray[np.int64]

    @cached_property
    def compiled(self) -> kernel.FooterTypes:
        """What the kernel takes."""
        return kernel.FooterTypes(*self.arguments())

    def arguments(self) -> tuple[NDArray[Any], ...]:
        return (
            self.kind,
            self.first,
            self.second,
            self.field_type,
            self.actions,
            self.action_start,
            self.role_type,
        )


@dataclass(slots=True)
class _Definition:
    """One type that a stream defines. `fields` of a struct; `parts` are the ids of element, or key and element."""

    kind: int
    parts: tuple[int, ...] = ()
    length: int = 0
    fields: list[tuple[bytes, int]] = field(default_factory=list)


class _Reader:
    """Primitives of gob (8.1) over a piece of a footer."""

    def __init__(self, data: memoryview, start: int, stop: int, place: tuple[str, int]) -> None:
        self.data, self.pos, self.stop = data, start, stop
        self.place = place

    def fail(self, message: str) -> NoReturn:
        path, base = self.place
        raise FormatError(message, path=path, offset=base + self.pos, section="footer")

    def unsigned(self) -> int:
        if self.pos >= self.stop:
            self.fail("the footer ends inside an integer")
        head = self.data[self.pos]
        if head < 128:
            self.pos += 1
            return head
        count = 256 - head
        if count > 8:
            self.fail(f"an integer of {count} bytes; at most 8 are possible")
        if self.stop - self.pos - 1 < count:
            self.fail("the footer ends inside an integer")
        value = int.from_bytes(self.data[self.pos + 1 : self.pos + 1 + count], "big")
        self.pos += 1 + count
        return value

    def signed(self) -> int:
        value = self.unsigned()
        return ~(value >> 1) if value & 1 else value >> 1

    def count(self) -> int:
        value = self.unsigned()
        if value > self.stop - self.pos:
            self.fail(f"a length of {value} where {self.stop - self.pos} bytes are left")
        return value

    def text(self) -> bytes:
        length = self.count()
        self.pos += length
        return bytes(self.data[self.pos - length : self.pos])

    def fields(self, count: int) -> Iterator[int]:
        """Yield the numbers of the fields of a struct that are there."""
        number = -1
        while self.pos < self.stop:
            step = self.unsigned()
            if step == 0:
                return
            number += step
            if number >= count:
                self.fail(f"field {number} of a struct of {count} fields")
            yield number


def read_stream(footer: memoryview, *, path: str, base: int) -> Footprint:
    """Find the value of a footer and how to read it.

    Parameters
    ----------
    footer : memoryview of bytes
        The whole footer.
    path, base : str, int
        For messages: the file, and the offset of the footer in it.

    Raises
    ------
    FormatError
        Whatever section 8.4 calls an error outside the value itself; also definitions of more than a megabyte.
    """
    place = (path, base)
    if bytes(footer[: len(PREFIX)]) == PREFIX:
        plain = _plain_message(footer)
        if plain is not None:
            return Footprint(*plain, _usual_tables())
        reader = _Reader(footer, len(PREFIX), len(footer), place)
        start, stop, type_id = _message(reader)
        if type_id == _FIRST_USER_ID:  # the usual one
            return Footprint(start, stop, _usual_tables())
    reader = _Reader(footer, 0, len(footer), place)
    types: dict[int, _Definition] = {}
    while True:
        start, stop, type_id = _message(reader)
        if type_id >= 0:
            break
        if stop > MAX_DEFINITION_BYTES:
            reader.fail(f"more than {MAX_DEFINITION_BYTES} bytes of type definitions")
        if -type_id < _FIRST_USER_ID or -type_id in types:
            reader.fail(f"type {-type_id} must not be defined here")
        types[-type_id] = _definition(_Reader(footer, start, stop, place))
        reader.pos = stop
    return Footprint(start, stop, _compile(types, type_id, reader))


_FIRST_ID = bytes.fromhex("ff80")
"""Type id 64 as it is written."""


def _plain_message(footer: memoryview) -> tuple[int, int] | None:
    """Return what `_message` says of the usual value behind `PREFIX`; None for anything out of the ordinary."""
    head = bytes(footer[len(PREFIX) : len(PREFIX) + 11])
    count = 0 if head[:1] < b"\x80" else 256 - head[0]  # of the bytes of a length of more than one
    if not head or count > 4 or head[1 + count : 3 + count] != _FIRST_ID:
        return None
    length = int.from_bytes(head[1 : 1 + count], "big") if count else head[0]
    start = len(PREFIX) + 1 + count
    return (start + 2, start + length) if 2 <= length <= len(footer) - start else None


def _message(reader: _Reader) -> tuple[int, int, int]:
    """Return where the body of the message at hand begins and ends, and its type id."""
    if reader.pos >= reader.stop:
        reader.fail("the footer has no value")
    length = reader.unsigned()
    if length >= _MAX_MESSAGE or length > reader.stop - reader.pos:
        reader.fail(f"a message of {length} bytes where {reader.stop - reader.pos} are left")
    whole, reader.stop = reader.stop, reader.pos + length
    type_id = reader.signed()
    start, stop, reader.stop = reader.pos, reader.stop, whole
    return start, stop, type_id


def _definition(reader: _Reader) -> _Definition:
    """Read the body of a definition (8.2)."""
    found: list[_Definition] = []
    for number in reader.fields(7):
        if number == 0:
            found.append(_Definition(_ARRAY, (0,)))
            for part in reader.fields(3):
                if part == 0:
                    _common(reader)
                elif part == 1:
                    found[-1].parts = (reader.signed(),)
                else:
                    found[-1].length = reader.signed()
        elif number == 1:
            found.append(_Definition(_SLICE, (0,)))
            for part in reader.fields(2):
                if part == 0:
                    _common(reader)
                else:
                    found[-1].parts = (reader.signed(),)
        elif number == 2:
            found.append(_Definition(_STRUCT))
            for part in reader.fields(2):
                if part == 0:
                    _common(reader)
                else:
                    found[-1].fields = [_common(reader) for _ in range(reader.count())]
        elif number == 3:
            found.append(_Definition(_MAP))
            parts = [0, 0]
            for part in reader.fields(3):
                if part == 0:
                    _common(reader)
                else:
                    parts[part - 1] = reader.signed()
            found[-1].parts = tuple(parts)
        else:
            found.append(_Definition(_OPAQUE))
            for _ in reader.fields(1):
                _common(reader)
    if len(found) != 1:
        reader.fail("a definition must describe exactly one type")
    if reader.pos != reader.stop:
        reader.fail("a definition does not fill its message")
    return found[0]


def _common(reader: _Reader) -> tuple[bytes, int]:
    """Read a struct of a name and an id: what all descriptors begin with, and what a field is."""
    name, type_id = b"", 0
    for number in reader.fields(2):
        if number == 0:
            name = reader.text()
        else:
            type_id = reader.signed()
    return name, type_id


def _compile(types: dict[int, _Definition], top: int, reader: _Reader) -> TypeTables:
    """Check the types that the value is made of, and write them as tables."""
    if top not in types or types[top].kind != _STRUCT:
        reader.fail(f"the value is of type {top}, which is not a struct defined before it")
    numbers = _reachable(types, top, reader)
    size = _OPAQUE if not numbers else max(max(numbers.values()) + 1, _OPAQUE)
    kind = np.zeros(size, np.int32)
    kind[1:9] = range(1, 9)
    first, second = np.zeros(size, np.int64), np.zeros(size, np.int64)
    field_types: list[int] = []
    for type_id, number in numbers.items():
        definition = types[type_id]
        kind[number] = definition.kind
        parts = [numbers.get(part, part) for part in definition.parts]
        if definition.kind == _STRUCT:
            first[number], second[number] = len(field_types), len(definition.fields)
            field_types.extend(numbers.get(t, t) for _, t in definition.fields)
        elif definition.kind == _MAP:
            first[number], second[number] = parts
        elif definition.kind in (_SLICE, _ARRAY):
            first[number] = parts[0]
            second[number] = min(max(definition.length, -1), 1 << 62)

    role_type = np.zeros(4, np.int64)
    actions: list[list[int]] = [[], [], [], []]
    role_type[0] = numbers[top]
    wanted = [(0, top)]
    while wanted:
        role, type_id = wanted.pop()
        for name, declared in types[type_id].fields:
            action, expected = _FIELDS[role].get(name, (0, 0))
            actions[role].append(action)
            if action and isinstance(expected, str):
                slice_ = types.get(declared)
                element = slice_.parts[0] if slice_ is not None and slice_.kind == _SLICE else 0
                if element not in types or types[element].kind != _STRUCT:
                    reader.fail(f"field {name.decode()} must be a slice of structs")
                if role_type[_ROLES[expected]]:
                    reader.fail(f"field {name.decode()} is there twice")
                role_type[_ROLES[expected]] = numbers[element]
                wanted.append((_ROLES[expected], element))
            elif action and declared != expected:
                reader.fail(f"field {name.decode()} has type {declared}, expected {expected}")
        if role == 0 and actions[0] and not any(actions[0]):
            reader.fail("no field of the footer is known")
    starts = np.cumsum([0, *(len(a) for a in actions[:3])])
    return TypeTables(
        kind,
        first,
        second,
        np.array([*field_types, 0], np.int32),
        np.array([*(a for role in actions for a in role), 0], np.int32),
        starts.astype(np.int64),
        role_type,
    )


def _reachable(types: dict[int, _Definition], top: int, reader: _Reader) -> dict[int, int]:
    """Number the types that a value of type `top` can contain; all must be defined."""
    numbers: dict[int, int] = {}
    waiting = [top]
    while waiting:
        type_id = waiting.pop()
        if type_id in _BASIC or type_id in numbers:
            continue
        if type_id not in types:
            reader.fail(f"type {type_id} is not defined")
        numbers[type_id] = _OPAQUE + 1 + len(numbers)
        definition = types[type_id]
        waiting.extend(definition.parts)
        for name, declared in definition.fields:
            if not name:
                reader.fail("a field without a name")
            waiting.append(declared)
    return numbers


@cache
def _usual_tables() -> TypeTables:
    """Return the tables of `PREFIX`."""
    value = PREFIX + bytes.fromhex("03ff8000")  # a message that holds an empty value of type 64
    reader = _Reader(memoryview(value), 0, len(value), ("", 0))
    types: dict[int, _Definition] = {}
    while True:
        start, stop, type_id = _message(reader)
        if type_id >= 0:
            return _compile(types, type_id, reader)
        types[-type_id] = _definition(_Reader(reader.data, start, stop, ("", 0)))
        reader.pos = stop


@cache
def usual_types() -> kernel.FooterTypes:
    """Return what the kernel takes of the definitions in `PREFIX`."""
    return _usual_tables().compiled
