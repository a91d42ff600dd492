"""Python types to definitions: dataclasses, TypedDict, NamedTuple, attrs and msgspec classes (colbin.md 3, 4).

`definitions` turns a type into a `Section` and, beside each record type of it, the Python class and how its fields are
read and made. Everything that the wire cannot say is a `TypeError` that names class and field, before any message is
written.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from ...arguments import check_mapping
from .markers import FieldOptions, ScalarType, parse_tag
from .schema import FieldDef, FieldType, Section, SectionBuilder, StructDef, TypeCode, assign_keys, kind_of

__all__ = ["Definitions", "FieldSource", "RecordSource", "TypeTable", "definitions", "record", "record_kind"]

RecordKind = Literal["dataclass", "typeddict", "namedtuple", "attrs", "msgspec"]
T = TypeVar("T")

_PLAIN = {
    bool: TypeCode.BOOL,
    int: TypeCode.I64,
    float: TypeCode.F64,
    str: TypeCode.STRING,
    bytes: TypeCode.BYTES,
}
_LISTS = (list, collections.abc.Sequence)
_MAPS = (dict, collections.abc.Mapping)
_LIST_OF = {
    TypeCode.I8: TypeCode.LIST_I8,
    TypeCode.I16: TypeCode.LIST_I16,
    TypeCode.I32: TypeCode.LIST_I32,
    TypeCode.I64: TypeCode.LIST_I64,
    TypeCode.U16: TypeCode.LIST_U16,
    TypeCode.U32: TypeCode.LIST_U32,
    TypeCode.U64: TypeCode.LIST_U64,
    TypeCode.STRING: TypeCode.STRINGS,
    TypeCode.RECORD: TypeCode.RECORDS,
    TypeCode.DYNAMIC: TypeCode.DYNAMICS,
}
_UNLISTABLE = {
    TypeCode.U8: "use bytes",
    TypeCode.BOOL: "use a list of integers",
    TypeCode.F32: "put each value into a record",
    TypeCode.F64: "put each value into a record",
    TypeCode.BYTES: "put each value into a record",
    TypeCode.MAP: "put each value into a record",
    TypeCode.OPTIONAL: "put each value into a record",
}


@dataclass(frozen=True, slots=True)
class FieldSource:
    """The Python side of one field.

    Attributes
    ----------
    attribute : str
        Attribute or, of a TypedDict, key.
    argument : str
        Name of the constructor's argument; differs from `attribute` in attrs classes only.
    nullable : bool
        Whether None is a value: what an absent list, map, byte string or optional reads as. Lists and maps that are not
        nullable read as empty, byte strings as ``b""``.
    required : bool
        Whether the key must be there; False for `NotRequired` keys of a TypedDict, which are left out when absent.
    """

    attribute: str
    argument: str
    nullable: bool
    required: bool


@dataclass(frozen=True, slots=True)
class RecordSource:
    """The Python side of one record type: class, what kind of class it is, and one `FieldSource` per wire field.

    `complete` is whether the constructor can be called with the wire fields in order, positionally.
    """

    cls: type
    kind: RecordKind
    fields: tuple[FieldSource, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Definitions:
    """A section and the Python classes of its record types.

    Attributes
    ----------
    section : Section
        With exact types of map entries (`FieldType.key_code`, `value_code`).
    records : tuple of RecordSource or None
        One per definition; None for an envelope.
    root_nullable : bool
        Of an envelope: whether the value may be None.
    """

    section: Section
    records: tuple[RecordSource | None, ...]
    root_nullable: bool = False

    def record_of(self, cls: type) -> int:
        """Return the number of the record type of `cls`; `KeyError` when it is not among them."""
        for index, source in enumerate(self.records):
            if source is not None and source.cls is cls:
                return index
        raise KeyError(cls)


def definitions(tp: Any, *, namespace: Mapping[str, Any] | None = None) -> Definitions:
    """Return the definitions of a type that can be the root of a message.

    Parameters
    ----------
    tp : type
        A record class (dataclass, TypedDict, NamedTuple, attrs class, msgspec.Struct), or a list, map or ``bytes``,
        which travels in an envelope (colbin.md 2).
    namespace : mapping, optional
        Where names in string annotations are looked up besides the class's module, for classes defined in functions.

    Returns
    -------
    Definitions
        Remembered per type when no namespace is given.

    Raises
    ------
    TypeError
        Naming class and field, for what the wire cannot say.
    """
    if namespace is None:
        try:
            return _remembered(tp)
        except TypeError as exc:
            if "unhashable" not in str(exc):
                raise
    if record_kind(type(tp)) is not None:
        name = type(tp).__name__
        raise TypeError(f"a class is expected, not an instance of one: pass {name}")
    return _define(tp, namespace)


@lru_cache(maxsize=512)
def _remembered(tp: Any) -> Definitions:
    return _define(tp, None)


def _define(tp: Any, namespace: Mapping[str, Any] | None) -> Definitions:
    work = TypeTable(namespace)
    if isinstance(tp, type) and record_kind(tp) is not None:
        work.record(tp)
        return Definitions(work.section(), work.sources())
    nullable = False

    def envelope() -> StructDef:
        nonlocal nullable
        found = work.field_type(tp, "root of a message", FieldOptions())
        if found.type.code < TypeCode.BYTES or found.type.code == TypeCode.OPTIONAL:
            raise TypeError(f"the root of a message is a record, list, map or bytes, not {_spelled(tp)}")
        nullable = found.nullable
        return StructDef("", (FieldDef("rows", 0, found.type),), found.type.is_dynamic, envelope=True)

    work.builder.add(None, envelope)
    return Definitions(work.section(), work.sources(), nullable)


def record_kind(cls: Any) -> RecordKind | None:
    """Return what kind of record class `cls` is, None for all other types."""
    if not isinstance(cls, type):
        return None
    if typing.is_typeddict(cls):
        return "typeddict"
    if hasattr(cls, "__struct_fields__"):
        return "msgspec"
    if hasattr(cls, "__attrs_attrs__"):
        return "attrs"
    if dataclasses.is_dataclass(cls):
        return "dataclass"
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "namedtuple"
    return None


@dataclass(frozen=True, slots=True)
class _Member:
    """A field as its class declares it."""

    name: str
    argument: str
    wire_name: str | None
    tag: str | None
    in_constructor: bool
    positional: bool


@dataclass(frozen=True, slots=True)
class _Found:
    type: FieldType
    nullable: bool


class TypeTable:
    """Record types by number, and the classes they come from. Grows: pre-order, first use first (colbin.md 10, 11)."""

    def __init__(self, namespace: Mapping[str, Any] | None = None) -> None:
        self.builder = SectionBuilder()
        self._namespace = dict(check_mapping("namespace", namespace or {}))
        self._sources: dict[int, RecordSource] = {}

    @classmethod
    def of(cls, section: Section, records: Sequence[RecordSource | None] = ()) -> TypeTable:
        """Return a table that begins with the types of `section`; `records` as in `Definitions`."""
        table = cls()
        table.builder.extend(section.structs)
        for index, source in enumerate(records):
            if source is not None:
                table.builder.know(source.cls, index)
                table._sources[index] = source
        return table

    def source(self, index: int) -> RecordSource | None:
        """Return the Python side of record type `index`, None where only its definition is known."""
        return self._sources.get(index)

    def section(self) -> Section:
        try:
            return self.builder.section()
        except ValueError as exc:
            raise TypeError(str(exc)) from None

    def sources(self) -> tuple[RecordSource | None, ...]:
        return tuple(self._sources.get(index) for index in range(len(self.builder)))

    def record(self, cls: type) -> int:
        known = self.builder.number(cls)
        if known is not None:
            return known
        return self.builder.add(cls, lambda: self._struct(cls))

    def _struct(self, cls: type) -> StructDef:
        index = self.builder.number(cls)
        assert index is not None
        kind = record_kind(cls)
        assert kind is not None
        hints = self._hints(cls)
        names: list[str] = []
        ids: list[int | None] = []
        found_types: list[FieldType] = []
        sources: list[FieldSource] = []
        complete = kind != "typeddict"
        for member in _members(cls, kind):
            place = f"{cls.__name__}.{member.name}"
            hint, required = _presence(hints[member.name], cls, member.name, kind)
            options = _options(hint, place)
            if member.tag is not None:
                options = _merge(options, parse_tag(member.tag), place)
            if options.dropped:
                complete = complete and not member.positional
                continue
            found = self.field_type(hint, place, options)
            if not required:
                found = _not_required(found, place)
            names.append(options.name or member.wire_name or member.name)
            ids.append(options.id)
            found_types.append(found.type)
            sources.append(FieldSource(member.name, member.argument, found.nullable, required))
            complete = complete and member.in_constructor and member.positional
        try:
            keys = assign_keys(names, ids)
        except ValueError as exc:
            raise TypeError(f"{cls.__name__}: {exc}") from None
        k8 = any(number is None or number > 16 for number in ids) or any(t.is_dynamic for t in found_types)
        self._sources[index] = RecordSource(cls, kind, tuple(sources), complete)
        fields = tuple(FieldDef(*each) for each in zip(names, keys, found_types, strict=True))
        return StructDef(cls.__name__, fields, k8)

    def _hints(self, cls: type) -> dict[str, Any]:
        module = sys.modules.get(cls.__module__)
        names = {**(vars(module) if module else {}), **self._namespace}
        try:
            return typing.get_type_hints(cls, localns={cls.__name__: cls, **names}, include_extras=True)
        except NameError as exc:
            raise TypeError(
                f"{cls.__name__}: an annotation names {exc.name!r}, which its module does not have; "
                "pass namespace={...} for classes defined in a function"
            ) from exc

    def field_type(self, hint: Any, place: str, options: FieldOptions) -> _Found:
        """Return the wire type of an annotation, without what it says about the field itself."""
        base, code = _unannotated(hint, place)
        if code is not None:
            return _Found(FieldType.scalar(code), False)
        origin = get_origin(base)
        if origin in (typing.Union, types.UnionType):
            return self._union(base, place, options)
        if type(base).__hash__ is None:  # a list, a dict: no type, and not to be looked up as one
            raise TypeError(f"{place}: {base!r} is no type")
        if base in (Any, object):
            return _Found(FieldType.scalar(TypeCode.DYNAMIC), True)
        if base in _PLAIN:
            return _Found(FieldType.scalar(_PLAIN[base]), False)
        if base in _LISTS or origin in _LISTS:
            return _Found(self._list(base, place), False)
        if base in _MAPS or origin in _MAPS:
            return _Found(self._map(base, place), False)
        if record_kind(base) is not None:
            if options.optional_record:
                raise TypeError(f"{place}: an optional record is annotated {base.__name__} | None")
            return _Found(FieldType.record(self.record(base)), False)
        if isinstance(base, TypeVar):
            raise TypeError(f"{place}: type variables have no wire type")
        raise TypeError(f"{place}: {_spelled(base)} has no wire type")

    def _union(self, base: Any, place: str, options: FieldOptions) -> _Found:
        arms = [arm for arm in get_args(base) if arm is not types.NoneType]
        if len(arms) != 1:
            raise TypeError(
                f"{place}: of unions the wire has only X | None; use Any for values of several types"
            )
        if len(arms) == len(get_args(base)):
            return self.field_type(arms[0], place, options)
        inner = self.field_type(arms[0], place, dataclasses.replace(options, optional_record=False)).type
        if inner.code <= TypeCode.STRING:
            return _Found(FieldType.optional(inner.code), True)
        if inner.code == TypeCode.RECORD:
            if not options.optional_record:
                raise TypeError(
                    f"{place}: not every reader of the format knows optional records; ask for one with "
                    "Annotated[..., field(optional_record=True)], or use a list of records"
                )
            return _Found(FieldType.optional_record(inner.index), True)
        return _Found(inner, True)

    def _list(self, base: Any, place: str) -> FieldType:
        (element,) = get_args(base) or (Any,)
        if _options(element, place) != FieldOptions():
            raise TypeError(f"{place}: ids and names belong to the field, not to the elements of its list")
        if get_origin(element) in _LISTS or element in _LISTS:
            raise TypeError(f"{place}: the wire has no list of lists; put each list into a record")
        inner = self.field_type(element, place, FieldOptions()).type
        code = _LIST_OF.get(inner.code)
        if code is None:
            advice = _UNLISTABLE.get(inner.code, "put each value into a record")
            raise TypeError(
                f"{place}: the wire has no list of {_spelled(element)}; {advice}, or use list[Any]"
            )
        return FieldType(code, index=inner.index)

    def _map(self, base: Any, place: str) -> FieldType:
        key, value = get_args(base) or (str, Any)
        key_type = self.field_type(key, place, FieldOptions()).type
        # looked at before it is followed: a record that no map can hold takes no number
        if record_kind(_unannotated(value, place)[0]) is not None:
            raise TypeError(f"{place}: the wire has no map of records; use a list of records")
        value_type = self.field_type(value, place, FieldOptions()).type
        try:
            kind_of(value_type.code)
        except ValueError:
            raise TypeError(
                f"{place}: the values of a map are strings, numbers, bools or Any, not {_spelled(value)}"
            ) from None
        try:
            return FieldType.map(key_type.code, value_type.code)
        except ValueError:
            raise TypeError(
                f"{place}: the keys of a map are strings or integers, not {_spelled(key)}"
            ) from None


def _members(cls: type, kind: RecordKind) -> list[_Member]:
    """Return the fields of a record class in declaration order."""
    if kind == "dataclass":
        for f in dataclasses.fields(cls):
            if isinstance(f.default, FieldOptions):
                raise TypeError(
                    f"{cls.__name__}.{f.name}: field() belongs into the annotation, Annotated[..., field(...)]; "
                    "behind the equals sign it would be the default value"
                )
        return [
            _Member(f.name, f.name, None, f.metadata.get("cb"), f.init, f.init and not f.kw_only)
            for f in dataclasses.fields(cls)
        ]
    if kind == "attrs":
        return [
            _Member(a.name, a.alias or a.name, None, a.metadata.get("cb"), a.init, a.init and not a.kw_only)
            for a in cls.__attrs_attrs__  # type: ignore[attr-defined]
        ]
    if kind == "msgspec":
        config = cls.__struct_config__  # type: ignore[attr-defined]
        return [
            _Member(
                name, name, None if wire == name else wire, None, True, not getattr(config, "kw_only", False)
            )
            for name, wire in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)  # type: ignore[attr-defined]
        ]
    names = cls._fields if kind == "namedtuple" else typing.get_type_hints(cls)  # type: ignore[attr-defined]
    return [_Member(name, name, None, None, True, kind == "namedtuple") for name in names]


def _presence(hint: Any, cls: type, name: str, kind: RecordKind) -> tuple[Any, bool]:
    """Strip what a TypedDict says about a key's presence; return the rest and whether the key is required."""
    # `__required_keys__` does not know the qualifiers of annotations that were strings
    required = kind != "typeddict" or name in cls.__required_keys__  # type: ignore[attr-defined]
    extras: tuple[Any, ...] = ()
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            extras = (*hint.__metadata__, *extras)
            hint = hint.__origin__
        elif origin in (typing.Required, typing.NotRequired, *_READ_ONLY):
            if origin in (typing.Required, typing.NotRequired):
                required = origin is typing.Required
            (hint,) = get_args(hint)
        else:
            break
    return (Annotated[(hint, *extras)] if extras else hint), required


_READ_ONLY = tuple(filter(None, [getattr(typing, "ReadOnly", None)]))


def _not_required(found: _Found, place: str) -> _Found:
    """Turn the type of a key that may be missing into one that may be absent."""
    if found.type.code <= TypeCode.STRING:
        return _Found(FieldType.optional(found.type.code), found.nullable)
    if found.type.code == TypeCode.RECORD:
        raise TypeError(
            f"{place}: a record is always written, so its key is required; or annotate it "
            "NotRequired[Annotated[... | None, field(optional_record=True)]]"
        )
    return found


def _unannotated(hint: Any, place: str) -> tuple[Any, TypeCode | None]:
    """Return an annotation without its metadata, and the scalar type that the metadata names."""
    code = None
    while True:
        if get_origin(hint) is Annotated:
            for extra in hint.__metadata__:
                if isinstance(extra, ScalarType):
                    code = extra.code
            hint = hint.__origin__
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif (value := getattr(hint, "__value__", None)) is not None and type(
            hint
        ).__name__ == "TypeAliasType":
            hint = value
        else:
            break
    if code is not None and hint not in (int, float):
        raise TypeError(f"{place}: {code.name.lower()} is a number, its annotation is {_spelled(hint)}")
    return hint, code


def _options(hint: Any, place: str) -> FieldOptions:
    """Return what an annotation says about the field: at its top, or on the X of X | None."""
    options = FieldOptions()
    if get_origin(hint) is Annotated:
        for extra in hint.__metadata__:
            if isinstance(extra, FieldOptions):
                options = _merge(options, extra, place)
            elif isinstance(extra, str):
                options = _merge(options, parse_tag(extra), place)
            elif isinstance(extra, int) and not isinstance(extra, bool):
                options = _merge(options, FieldOptions(id=extra), place)
            elif isinstance(tags := getattr(extra, "extra", None), dict) and isinstance(tags.get("cb"), str):
                options = _merge(options, parse_tag(tags["cb"]), place)  # msgspec.Meta(extra={"cb": ...})
        hint = hint.__origin__
    if get_origin(hint) in (typing.Union, types.UnionType):
        for arm in get_args(hint):
            if get_origin(arm) is Annotated:
                options = _merge(options, _options(arm, place), place)
    return options


def _merge(one: FieldOptions, other: FieldOptions, place: str) -> FieldOptions:
    try:
        return one.merged(other)
    except ValueError as exc:
        raise TypeError(f"{place}: {exc}") from None


def _spelled(tp: Any) -> str:
    return tp.__name__ if isinstance(tp, type) and not get_args(tp) else str(tp)


@typing.overload
def record(cls: type[T], /) -> type[T]: ...
@typing.overload
def record(*, frozen: bool = False, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
@typing.dataclass_transform()
def record(
    cls: type[T] | None = None, /, *, frozen: bool = False, kw_only: bool = False
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a record class of an annotated one: a dataclass with slots, whose types are checked at once.

    Parameters
    ----------
    cls : type
        With annotations; a dataclass is only checked.
    frozen, kw_only : bool, optional
        As in `dataclasses.dataclass`.

    Raises
    ------
    TypeError
        For fields that the wire cannot say. Annotations that name a class which is not defined yet are checked when the
        class is first used.
    """

    def decorate(plain: type[T]) -> type[T]:
        done = plain
        if "__dataclass_fields__" not in vars(plain):
            done = dataclass(slots=True, frozen=frozen, kw_only=kw_only)(plain)
        try:
            _define(done, None)
        except TypeError as exc:
            if not isinstance(exc.__cause__, NameError):
                raise
        return done

    return decorate if cls is None else decorate(cls)
