"""What are the types of a message? Definitions of records, and the section that carries them (colbin.md 3, 4, 10).

A `Section` is a numbered table of record types: its first one is the root of the message. It comes from the bytes of
a section (`Section.from_bytes`), from Python types (`colstore_io.formats.colbin.annotations`) or from the shape of a
document (`colstore_io.formats.colbin.infer`), and is all that a reader needs to know about a message.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from ...errors import FormatError

__all__ = [
    "COLUMN_CODES",
    "MAX_FIELDS",
    "MAX_NESTING",
    "MAX_ROWS",
    "FieldDef",
    "FieldType",
    "MapKind",
    "Section",
    "SectionBuilder",
    "StructDef",
    "TypeCode",
    "assign_keys",
    "fnv8",
    "kind_of",
    "write_len",
]

MAX_FIELDS = 256
"""Fields that one record may have (colbin.md 14)."""
MAX_ROWS = 1 << 22
"""Rows that a reader accepts in one table unless the caller allows more (colbin.md 14)."""
MAX_NESTING = 128
"""Levels of records, lists, tables and maps in one message, the root included (colbin.md 14)."""


class TypeCode(IntEnum):
    """Type codes of a schema section (colbin.md 3)."""

    BOOL = 0
    I8 = 1
    I16 = 2
    I32 = 3
    I64 = 4
    U8 = 5
    U16 = 6
    U32 = 7
    U64 = 8
    F32 = 9
    F64 = 10
    STRING = 11
    BYTES = 12
    LIST_I8 = 13
    LIST_I16 = 14
    LIST_I32 = 15
    LIST_I64 = 16
    LIST_U16 = 17
    LIST_U32 = 18
    LIST_U64 = 19
    STRINGS = 20
    RECORD = 21
    RECORDS = 22
    MAP = 23
    OPTIONAL = 24
    DYNAMIC = 25
    DYNAMICS = 26
    OPTIONAL_RECORD = 27


class MapKind(IntEnum):
    """What a map's keys or values are; integer widths are not recorded (colbin.md 10)."""

    STRING = 0
    SIGNED = 1
    UNSIGNED = 2
    F64 = 3
    BOOL = 4
    F32 = 5
    DYNAMIC = 6


COLUMN_CODES = frozenset(range(TypeCode.STRING + 1))
"""Types that can be a column of a table, and the only ones that an optional can hold (colbin.md 3)."""

_WITH_INDEX = frozenset({TypeCode.RECORD, TypeCode.RECORDS, TypeCode.OPTIONAL_RECORD})
_MAP_KINDS = {
    TypeCode.BOOL: MapKind.BOOL,
    TypeCode.I8: MapKind.SIGNED,
    TypeCode.I16: MapKind.SIGNED,
    TypeCode.I32: MapKind.SIGNED,
    TypeCode.I64: MapKind.SIGNED,
    TypeCode.U8: MapKind.UNSIGNED,
    TypeCode.U16: MapKind.UNSIGNED,
    TypeCode.U32: MapKind.UNSIGNED,
    TypeCode.U64: MapKind.UNSIGNED,
    TypeCode.F32: MapKind.F32,
    TypeCode.F64: MapKind.F64,
    TypeCode.STRING: MapKind.STRING,
    TypeCode.DYNAMIC: MapKind.DYNAMIC,
}


def kind_of(code: int) -> MapKind:
    """Return the kind under which a map holds values of type `code`; `ValueError` for what maps cannot hold."""
    try:
        return _MAP_KINDS[TypeCode(code)]
    except (KeyError, ValueError):
        raise ValueError(f"a map cannot hold values of type code {code}") from None


def fnv8(name: str) -> int:
    """Return the eight-bit hash at which the search for a field's key begins (colbin.md 4.2).

    32-bit FNV-1a over the UTF-8 bytes of the name, its four bytes XORed.

    >>> fnv8("CompanyID"), fnv8("User")
    (202, 106)
    """
    value = 2166136261
    for byte in name.encode("utf-8", "surrogatepass"):
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    value ^= value >> 16
    return (value ^ (value >> 8)) & 0xFF


def assign_keys(names: Sequence[str], ids: Sequence[int | None]) -> list[int]:
    """Return the key of each field, in declaration order (colbin.md 4.1, 4.2).

    Parameters
    ----------
    names : sequence of str
        Wire names.
    ids : sequence of int or None
        Explicit ids, from 1; None where a field has none and takes the first free key from its hash upward.

    Raises
    ------
    ValueError
        For ids outside 1..256, equal ids, no field, or more than 256 fields.
    """
    if not names:
        raise ValueError("a record needs at least one field")
    if len(names) > MAX_FIELDS:
        raise ValueError(f"a record has at most {MAX_FIELDS} fields, this one has {len(names)}")
    owner: dict[int, str] = {}
    for name, number in zip(names, ids, strict=True):
        if number is None:
            continue
        if not 1 <= number <= MAX_FIELDS:
            raise ValueError(f"field {name!r}: id {number} is not in 1..{MAX_FIELDS}")
        if number - 1 in owner:
            raise ValueError(f"fields {owner[number - 1]!r} and {name!r} have the same id {number}")
        owner[number - 1] = name
    keys = []
    for name, number in zip(names, ids, strict=True):
        if number is None:
            key = fnv8(name)
            while key in owner:
                key = (key + 1) & 0xFF
            owner[key] = name
        else:
            key = number - 1
        keys.append(key)
    return keys


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a field. Which attributes matter depends on `code`; the others keep their defaults.

    Attributes
    ----------
    code : TypeCode
    index : int
        RECORD, RECORDS, OPTIONAL_RECORD: number of the record type in the section; else -1.
    key_kind, value_kind : int
        MAP: `MapKind` of keys and values; else -1.
    pointee : int
        OPTIONAL: type code of the scalar; else -1.
    key_code, value_code : int
        MAP: exact type codes, where an annotation told them; -1 when only the section is known, which does not
        carry them.
    """

    code: TypeCode
    index: int = -1
    key_kind: int = -1
    value_kind: int = -1
    pointee: int = -1
    key_code: int = -1
    value_code: int = -1

    @classmethod
    def scalar(cls, code: int) -> FieldType:
        """Type without parameters: scalars, bytes, lists of integers and strings, dynamic values."""
        return cls(TypeCode(code))

    @classmethod
    def record(cls, index: int) -> FieldType:
        return cls(TypeCode.RECORD, index=index)

    @classmethod
    def records(cls, index: int) -> FieldType:
        return cls(TypeCode.RECORDS, index=index)

    @classmethod
    def optional_record(cls, index: int) -> FieldType:
        return cls(TypeCode.OPTIONAL_RECORD, index=index)

    @classmethod
    def optional(cls, pointee: int) -> FieldType:
        if pointee not in COLUMN_CODES:
            raise ValueError(f"an optional holds a scalar, not type code {pointee}")
        return cls(TypeCode.OPTIONAL, pointee=pointee)

    @classmethod
    def map(cls, key_code: int, value_code: int) -> FieldType:
        """Map of exact types, as annotations tell them."""
        key_kind = kind_of(key_code)
        if key_kind > MapKind.UNSIGNED:
            raise ValueError("the keys of a map are strings or integers")
        return cls(
            TypeCode.MAP,
            key_kind=key_kind,
            value_kind=kind_of(value_code),
            key_code=key_code,
            value_code=value_code,
        )

    @property
    def is_dynamic(self) -> bool:
        """Whether values of this type carry types of their own, so that the record needs K8 (colbin.md 4.3)."""
        return self.code in (TypeCode.DYNAMIC, TypeCode.DYNAMICS) or self.value_kind == MapKind.DYNAMIC

    @property
    def on_wire(self) -> FieldType:
        """This type as a section carries it: without exact types of map entries."""
        if self.key_code < 0 and self.value_code < 0:
            return self
        return FieldType(self.code, key_kind=self.key_kind, value_kind=self.value_kind)


@dataclass(frozen=True, slots=True)
class FieldDef:
    """One field of a record type: wire name, key (0..255) and type."""

    name: str
    key: int
    type: FieldType


@dataclass(frozen=True, slots=True)
class StructDef:
    """One record type.

    Attributes
    ----------
    name : str
        For messages; not on the wire, and not compared.
    fields : tuple of FieldDef
        In declaration order, which is the order they are written in.
    k8 : bool
        Whether runs of this type have eight-bit keys.
    envelope : bool
        Whether this is the envelope of a root that is no record.
    by_key : dict of int to int
        Position in `fields` of each key.
    """

    name: str = field(compare=False)
    fields: tuple[FieldDef, ...]
    k8: bool
    envelope: bool = False
    by_key: dict[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_key", {f.key: place for place, f in enumerate(self.fields)})

    @property
    def has_dynamic(self) -> bool:
        """Whether a field is dynamic: a root like this opens the section (colbin.md 11)."""
        return any(f.type.is_dynamic for f in self.fields)

    @property
    def tabular(self) -> bool:
        """Whether lists of this type of eight rows and more are tables (colbin.md 7)."""
        return all(f.type.code in COLUMN_CODES for f in self.fields)

    @property
    def flat(self) -> bool:
        """Whether strings of a `D0` root of this type may be packed (colbin.md 9)."""
        return not any(
            f.type.is_dynamic
            or f.type.code in _WITH_INDEX
            or f.type.code in (TypeCode.MAP, TypeCode.OPTIONAL)
            for f in self.fields
        )


@dataclass(frozen=True, slots=True)
class Section:
    """Record types by number; number 0 is the root. Immutable and hashable.

    Attributes
    ----------
    structs : tuple of StructDef
        In pre-order of the fields that reach them (colbin.md 10).
    """

    structs: tuple[StructDef, ...]
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        # remembered: `decode(schema, message)` looks its codec up by it, and types are many small objects
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(self.structs))
        return self._hash  # type: ignore[return-value]

    def __reduce__(self) -> tuple[type[Section], tuple[tuple[StructDef, ...]]]:
        return Section, (self.structs,)  # hashes of names are those of this process

    @property
    def root(self) -> StructDef:
        return self.structs[0]

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Section:
        """Read a section sent by itself (colbin.md 10).

        Raises
        ------
        FormatError
            For all that colbin.md 15 lists for sections, and for bytes behind the section.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"a section is bytes, not {type(data).__name__}")
        section, end = cls.read(data, 0)
        if end != len(data):
            raise _damaged(f"{len(data) - end} bytes follow the section", end)
        return section

    @classmethod
    def read(cls, data: bytes | bytearray | memoryview, start: int) -> tuple[Section, int]:
        """Read the section at `start` of `data`; return it and where it ends (in a message: where the body begins).

        Bytes behind the last definition, inside the section's own size, are ignored (colbin.md 10).
        """
        outer = _Reader(data, start, len(data))
        size = outer.length("section size")
        if size > outer.end - outer.at:
            raise _damaged(f"the section claims {size} bytes, {outer.end - outer.at} are there", start)
        end = outer.at + size
        reader = _Reader(data, outer.at, end)
        count = reader.length("number of definitions")
        if count == 0:
            raise _damaged("a section defines at least one record", reader.at)
        # a definition takes two bytes at least: nothing is allocated for claims that cannot be true
        if count * 2 > end - reader.at:
            raise _damaged(f"the section claims {count} definitions in {end - reader.at} bytes", reader.at)
        structs = tuple(reader.struct(number, count) for number in range(count))
        _refuse_value_cycles(structs, start)
        return cls(structs), end

    def to_bytes(self) -> bytes:
        """Return the section as bytes: deterministic, `from_bytes` of it gives the same types."""
        body = bytearray()
        write_len(body, len(self.structs))
        for struct in self.structs:
            body.append(int(struct.k8) | int(struct.envelope) << 1)
            write_len(body, len(struct.fields))
            for item in struct.fields:
                name = item.name.encode()
                body.append(item.key)
                write_len(body, len(name))
                body += name
                kind = item.type
                body.append(kind.code)
                if kind.code in _WITH_INDEX:
                    write_len(body, kind.index)
                elif kind.code == TypeCode.MAP:
                    body += bytes((kind.key_kind, kind.value_kind))
                elif kind.code == TypeCode.OPTIONAL:
                    body.append(kind.pointee)
        out = bytearray()
        write_len(out, len(body))
        return bytes(out + body)

    @property
    def on_wire(self) -> Section:
        """This section as `from_bytes(to_bytes())` gives it: without what bytes do not carry."""
        return Section(
            tuple(
                StructDef(
                    s.name, tuple(FieldDef(f.name, f.key, f.type.on_wire) for f in s.fields), s.k8, s.envelope
                )
                for s in self.structs
            )
        )

    def is_prefix_of(self, other: Section) -> bool:
        """Whether `other` begins with these definitions: then it reads messages of its own better (colbin.md 15)."""
        if not isinstance(other, Section):
            raise TypeError(f"expected a Section, got {type(other).__name__}")
        return self.on_wire.structs == other.on_wire.structs[: len(self.structs)]


class SectionBuilder:
    """Hands out numbers in pre-order: a type takes its number before its fields are looked at (colbin.md 10)."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._structs: list[StructDef | None] = []

    def number(self, identity: Hashable) -> int | None:
        """Return the number that the type known as `identity` has, None when it was not reached yet."""
        return self._numbers.get(identity)

    def add(self, identity: Hashable, define: Callable[[], StructDef]) -> int:
        """Return the number of the type known as `identity`; at first `define` is called, which may add others.

        A type that refers to itself finds its number while it is being defined.
        """
        known = self._numbers.get(identity)
        if known is not None:
            return known
        index = self._numbers[identity] = len(self._structs)
        self._structs.append(None)
        self._structs[index] = define()
        return index

    def extend(self, structs: Iterable[StructDef]) -> None:
        """Add definitions that have their numbers already."""
        for struct in structs:
            self._structs.append(struct)

    def know(self, identity: Hashable, index: int) -> None:
        """Give the definition `index` its identity."""
        self._numbers[identity] = index

    def __len__(self) -> int:
        return len(self._structs)

    def __getitem__(self, index: int) -> StructDef:
        struct = self._structs[index]
        if struct is None:
            raise LookupError(f"definition {index} is not finished")
        return struct

    def section(self) -> Section:
        """Return the section of all types added; `ValueError` for a record that contains itself by value."""
        structs = tuple(s for s in self._structs if s is not None)
        if len(structs) != len(self._structs):
            raise LookupError("a definition is not finished")
        cycle = _value_cycle(structs)
        if cycle is not None:
            raise ValueError(
                f"record {structs[cycle].name or cycle!r} contains itself by value; use a list or an optional record"
            )
        return Section(structs)


def write_len(out: bytearray, value: int) -> None:
    """Append LEN(value): one byte up to 254, else FF and a u32 (colbin.md 1)."""
    if value < 255:
        out.append(value)
    else:
        out.append(255)
        out += value.to_bytes(4, "little")


class _Reader:
    """A place in a section, and where the section ends."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes | bytearray | memoryview, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    def byte(self, what: str) -> int:
        if self.at >= self.end:
            raise _damaged(f"it ends before the {what}", self.at)
        value = self.data[self.at]
        self.at += 1
        return value

    def length(self, what: str) -> int:
        value = self.byte(what)
        if value < 255:
            return value
        if self.end - self.at < 4:
            raise _damaged(f"it ends inside the {what}", self.at)
        value = int.from_bytes(self.data[self.at : self.at + 4], "little")
        self.at += 4
        return value

    def struct(self, number: int, count: int) -> StructDef:
        start = self.at
        flags = self.byte("flags of a definition")
        n_fields = self.length("number of fields")
        if n_fields > MAX_FIELDS:
            raise _damaged(f"definition {number} has {n_fields} fields, more than {MAX_FIELDS}", start)
        fields: list[FieldDef] = []
        seen: set[int] = set()
        for _ in range(n_fields):
            place = self.at
            item = self.field(count)
            if item.key in seen:
                raise _damaged(f"definition {number} has two fields with the key {item.key}", place)
            seen.add(item.key)
            fields.append(item)
        envelope = bool(flags & 2)
        if envelope and (number != 0 or n_fields != 1):
            raise _damaged(f"definition {number} is marked as envelope, but is no root of one field", start)
        return StructDef("", tuple(fields), bool(flags & 1), envelope)

    def field(self, count: int) -> FieldDef:
        key = self.byte("key of a field")
        size = self.length("size of a name")
        if size > self.end - self.at:
            raise _damaged(f"a field name of {size} bytes runs past the section", self.at)
        try:
            name = str(self.data[self.at : self.at + size], "utf-8")
        except UnicodeDecodeError:
            raise _damaged("a field name is not UTF-8", self.at) from None
        self.at += size
        return FieldDef(name, key, self.type(count))

    def type(self, count: int) -> FieldType:
        place = self.at
        value = self.byte("type of a field")
        try:
            code = TypeCode(value)
        except ValueError:
            raise _damaged(f"type code {value} is not assigned", place) from None
        if code in _WITH_INDEX:
            index = self.length("number of a record")
            if index >= count:
                raise _damaged(f"record number {index} is not one of the {count} definitions", place)
            return FieldType(code, index=index)
        if code == TypeCode.MAP:
            key_kind, value_kind = self.byte("key kind of a map"), self.byte("value kind of a map")
            if key_kind > MapKind.UNSIGNED:
                raise _damaged(f"map kind {key_kind} cannot be a key", place)
            if value_kind > MapKind.DYNAMIC:
                raise _damaged(f"map kind {value_kind} is not assigned", place)
            return FieldType(code, key_kind=key_kind, value_kind=value_kind)
        if code == TypeCode.OPTIONAL:
            pointee = self.byte("type of an optional")
            if pointee not in COLUMN_CODES:
                raise _damaged(f"an optional holds a scalar, not type code {pointee}", place)
            return FieldType(code, pointee=pointee)
        return FieldType(code)


def _value_cycle(structs: Sequence[StructDef]) -> int | None:
    """Return a record type that contains itself by value (code 21 only), None when there is none; no recursion."""
    inner = [[f.type.index for f in s.fields if f.type.code == TypeCode.RECORD] for s in structs]
    state = [0] * len(structs)  # 0 not seen, 1 on the path, 2 done
    for first in range(len(structs)):
        if state[first]:
            continue
        state[first] = 1
        path = [(first, iter(inner[first]))]
        while path:
            index, rest = path[-1]
            for other in rest:
                if state[other] == 1:
                    return other
                if state[other] == 0:
                    state[other] = 1
                    path.append((other, iter(inner[other])))
                    break
            else:
                state[index] = 2
                path.pop()
    return None


def _refuse_value_cycles(structs: Sequence[StructDef], offset: int) -> None:
    cycle = _value_cycle(structs)
    if cycle is not None:
        raise _damaged(f"record {cycle} contains itself by value", offset)


def _damaged(message: str, offset: int) -> FormatError:
    return FormatError(message, offset=offset, section="schema section")
