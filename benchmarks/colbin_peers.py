"""The record codecs that colbin is measured beside, all for the record classes of the corpus of the tests.

Each takes the rows as record objects, and has a form of its own for them, `objects`. What comes back from `encode` and
`decode` is compared with the rows, field by field, before anything is timed.
"""

from __future__ import annotations

import dataclasses
import pickle
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

__all__ = ["RECORD_PEERS", "RecordPeer", "as_lists"]


@dataclasses.dataclass(frozen=True, slots=True)
class RecordPeer:
    """One codec for one record class.

    Attributes
    ----------
    objects : list
        The rows as this codec takes them.
    encode : callable (object) -> bytes
    decode : callable (bytes) -> object
        Protobuf: parsed and every field read, as a list; a parsed message alone has no values yet.
    as_lists : callable (decoded) -> list
        Field values in order, nested records as lists: to compare.
    """

    objects: list[Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    as_lists: Callable[[Any], Any]


def as_lists(value: Any) -> Any:
    """Return the fields of a dataclass, records inside it too, as lists."""
    if dataclasses.is_dataclass(value):
        return [as_lists(getattr(value, f.name)) for f in dataclasses.fields(value)]
    return [as_lists(item) for item in value] if isinstance(value, list) else value


def _of_attributes(value: Any) -> Any:
    names = getattr(value, "__struct_fields__", None)
    if names is not None:
        return [_of_attributes(getattr(value, name)) for name in names]
    if isinstance(value, list):
        return [_of_attributes(item) for item in value]
    return as_lists(value)


def _of_dicts(value: Any) -> Any:
    if isinstance(value, dict):
        return [_of_dicts(item) for item in value.values()]
    return [_of_dicts(item) for item in value] if isinstance(value, list) else value


def _nested(annotation: Any) -> type | None:
    """The record class of a list of records."""
    if typing.get_origin(annotation) is list:
        (item,) = typing.get_args(annotation)
        return item if dataclasses.is_dataclass(item) else None  # type: ignore[return-value]
    return None


def _rebuild(cls: type, make: Callable[[str, list[tuple[str, Any]]], Any]) -> Any:
    """Return the class of another library with the fields of a record class."""
    fields: list[tuple[str, Any]] = []
    for name, hint in typing.get_type_hints(cls).items():
        inner = _nested(hint)
        fields.append((name, hint if inner is None else list[_rebuild(inner, make)]))  # type: ignore[misc]
    return make(cls.__name__, fields)


def _colbin(rows: list[Any]) -> RecordPeer:
    from colstore_io import colbin

    codec = colbin.Codec(type(rows[0]))
    return RecordPeer(rows, codec.encode, codec.decode, as_lists)


def _msgspec(rows: list[Any], form: str, make: Callable[[str, list[tuple[str, Any]]], Any]) -> RecordPeer:
    import msgspec

    cls = _rebuild(type(rows[0]), make)
    array = getattr(getattr(cls, "__struct_config__", None), "array_like", False)
    plain = [as_lists(row) if array else dataclasses.asdict(row) for row in rows]
    module = getattr(msgspec, form)
    return RecordPeer(
        [msgspec.convert(row, cls) for row in plain],
        module.Encoder().encode,
        module.Decoder(cls).decode,
        _of_attributes,
    )


def _struct(name: str, fields: list[tuple[str, Any]]) -> Any:
    import msgspec

    return msgspec.defstruct(name, fields)


def _array_struct(name: str, fields: list[tuple[str, Any]]) -> Any:
    import msgspec

    return msgspec.defstruct(name, fields, array_like=True)


def _slots(name: str, fields: list[tuple[str, Any]]) -> Any:
    return dataclasses.make_dataclass(name, fields, slots=True)


def _orjson(rows: list[Any]) -> RecordPeer:
    import orjson

    return RecordPeer([dataclasses.asdict(row) for row in rows], orjson.dumps, orjson.loads, _of_dicts)


def _pickle(rows: list[Any]) -> RecordPeer:
    return RecordPeer(rows, lambda row: pickle.dumps(row, 5), pickle.loads, as_lists)


def _protobuf_classes(cls: type) -> dict[type, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    from colstore_io.formats.colbin.markers import ScalarType
    from colstore_io.formats.colbin.schema import TypeCode

    file = descriptor_pb2.FileDescriptorProto(
        name=f"{cls.__name__}.proto", package="colstore_bench", syntax="proto3"
    )
    found: list[type] = []

    def declare(record: type) -> None:
        found.append(record)
        message = file.message_type.add(name=record.__name__)
        for number, (name, hint) in enumerate(typing.get_type_hints(record, include_extras=True).items(), 1):
            base = typing.get_args(hint)[0]  # of Annotated; what marks it are the wire type and the id
            field = message.field.add(name=name, number=number, label=1)
            inner = _nested(base)
            if inner is not None:
                field.label, field.type, field.type_name = 3, 11, f".colstore_bench.{inner.__name__}"
                declare(inner)
            elif typing.get_origin(base) is list:
                field.label, field.type = 3, 9  # repeated string
            elif base is int:
                unsigned = any(
                    isinstance(mark, ScalarType) and mark.code >= TypeCode.U8 for mark in hint.__metadata__
                )
                field.type = 4 if unsigned else 3  # uint64, int64: their varints are those of narrower types
            else:
                field.type = {bool: 8, float: 1, str: 9}[base]

    declare(cls)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        record: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"colstore_bench.{record.__name__}")
        )
        for record in found
    }


def _protobuf(rows: list[Any]) -> RecordPeer:
    from google.protobuf.internal import api_implementation

    if api_implementation.Type() != "upb":
        raise ImportError("protobuf without upb")
    classes = _protobuf_classes(type(rows[0]))

    def program(record: type) -> tuple[str, str]:
        """Straight code, as a program that uses protobuf would have it: building from a record, reading all fields."""
        build, read = [], []
        for name, hint in typing.get_type_hints(record).items():
            inner = _nested(hint)
            if inner is not None:
                parts = program(inner)
                build.append(f"{name}=[{parts[0].replace('row.', 'item.')} for item in row.{name}]")
                read.append(f"[{parts[1].replace('m.', 'item.')} for item in m.{name}]")
            else:
                build.append(f"{name}=row.{name}")
                read.append(f"list(m.{name})" if typing.get_origin(hint) is list else f"m.{name}")
        return f"{record.__name__}({', '.join(build)})", f"[{', '.join(read)}]"

    build, read = program(type(rows[0]))
    names = {record.__name__: made for record, made in classes.items()}
    encode = eval(f"lambda row: {build}.SerializeToString()", names)
    read_all = eval(f"lambda m: {read}")
    parse = classes[type(rows[0])].FromString
    return RecordPeer(rows, encode, lambda data: read_all(parse(data)), lambda lists: lists)


RECORD_PEERS: dict[str, Callable[[list[Any]], RecordPeer]] = {
    "ours": _colbin,
    "msgspec_array": lambda rows: _msgspec(rows, "msgpack", _array_struct),
    "msgspec_struct": lambda rows: _msgspec(rows, "msgpack", _struct),
    "msgspec_slots": lambda rows: _msgspec(rows, "msgpack", _slots),
    "msgspec_json": lambda rows: _msgspec(rows, "json", _struct),
    "protobuf_upb": _protobuf,
    "orjson": _orjson,
    "pickle": _pickle,
}
"""ours and msgspec_slots are dataclasses with slots, the same records; orjson has dicts."""
