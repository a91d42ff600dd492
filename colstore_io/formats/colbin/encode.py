"""Python values to messages, by definitions alone (colbin.md 5 to 7, 9, 11).

The twin of the record codec (`colstore_io.formats.colbin.codec`), in plain Python: it writes the same bytes. And the
road of documents that hold tables, whose columns become typed runs without an object per row.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels import column_codec
from . import elements
from .annotations import Definitions, RecordSource, TypeTable, definitions, record_kind
from .schema import MAX_NESTING, FieldDef, FieldType, MapKind, Section, StructDef, TypeCode, write_len
from .values import (
    Place,
    bytes_of,
    column_of,
    encoded,
    integers_of,
    is_integer,
    located,
    no_dynamic_form,
    step_from,
    text_of,
    wire_integer,
)

if TYPE_CHECKING:
    from .codec import Codec

__all__ = ["TABLE_ROWS", "Encoder", "RecordRun", "encode_self_describing", "encode_value"]

TABLE_ROWS = 8
"""From this many rows on a list of flat records is a table (colbin.md 7)."""

_ELEMENT = {
    TypeCode.LIST_I8: TypeCode.I8,
    TypeCode.LIST_I16: TypeCode.I16,
    TypeCode.LIST_I32: TypeCode.I32,
    TypeCode.LIST_I64: TypeCode.I64,
    TypeCode.LIST_U16: TypeCode.U16,
    TypeCode.LIST_U32: TypeCode.U32,
    TypeCode.LIST_U64: TypeCode.U64,
}
_WIDEST = {
    MapKind.STRING: TypeCode.STRING,
    MapKind.SIGNED: TypeCode.I64,
    MapKind.UNSIGNED: TypeCode.U64,
    MapKind.F64: TypeCode.F64,
    MapKind.BOOL: TypeCode.BOOL,
    MapKind.F32: TypeCode.F32,
    MapKind.DYNAMIC: TypeCode.DYNAMIC,
}


@dataclass(frozen=True, slots=True)
class RecordRun:
    """A list of records of one class inside a dynamic value: one typed run, even when it is empty (colbin.md 11)."""

    cls: type
    rows: Sequence[Any]


def encode_value(
    schema: Section | Definitions, value: Any, *, packed5: bool = False, self_describing: bool = False
) -> bytes:
    """Return the message of a value whose type is `schema`.

    Parameters
    ----------
    schema : Section or Definitions
        With an envelope, `value` is what the envelope holds.
    value : object
        Records as mappings by wire name (or, with `Definitions`, as instances of their classes), lists as sequences
        or integer arrays, maps as mappings, None for what is absent. A missing key is absent. An absent record field
        is left out, although encoders of typed records always write one.
    packed5 : bool, optional
        Store strings in five-bit units where colbin.md 9 offers it.
    self_describing : bool, optional
        Put the section before the body.

    Raises
    ------
    TypeError, ValueError
        For values that do not fit their types, naming record and field.
    """
    if isinstance(schema, Definitions):
        table = TypeTable.of(schema.section, schema.records)
    else:
        table = TypeTable.of(schema)
    try:
        return Encoder(table, packed5=packed5, self_describing=self_describing).message(value)
    except (TypeError, ValueError, OverflowError) as exc:
        found = located(exc)
        if found is exc:
            raise
        raise found from None


def encode_self_describing(value: Any, *, packed5: bool = False) -> bytes:
    """Return a self-describing message of a document (colbin.md 11).

    Parameters
    ----------
    value : mapping, list or record
        A mapping becomes a map of dynamic values: None, bools, integers, floats, strings, bytes, lists, maps, records,
        and tables (DataFrame, Arrow table, and what else has columns), which are typed runs. A list becomes a list of
        dynamic values. An instance of a record class becomes a message of its own type.
    packed5 : bool, optional
        Store strings of records in five-bit units where that is shorter.

    Examples
    --------
    >>> from colstore_io.formats.colbin.walk import to_json
    >>> to_json(None, encode_self_describing({"total": 3, "rows": [{"a": 1}, {"a": None}]}))
    '{"rows":[{"a":1},{"a":null}],"total":3}'
    """
    kind = record_kind(type(value))
    if kind is not None:
        tp: Any = type(value)
    elif isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        if odd and not all(is_integer(key) for key in value):
            raise TypeError(
                f"the keys of a document are all strings or all integers; {odd[0]!r} is of type {type(odd[0]).__name__}"
            )
        tp = dict[int, Any] if odd else dict[str, Any]
    elif isinstance(value, (list, tuple)):
        tp = list[Any]
    elif _is_table(value):
        return encode_self_describing({"rows": value}, packed5=packed5)
    else:
        raise TypeError(
            f"the root of a document is a mapping, list, table or record, not {type(value).__name__}"
        )
    try:
        return _document_codec(tp).encode_self_describing(value, packed5=packed5)
    except (
        TypeError
    ):  # holds a table, or a value that has no form: the encoder here knows the one and names the other
        return encode_value(definitions(tp), value, packed5=packed5, self_describing=True)


@lru_cache(maxsize=256)
def _document_codec(tp: Any) -> Codec[Any]:
    from .codec import Codec  # which imports this module

    return Codec(tp)


class Encoder:
    """One message being written.

    Parameters
    ----------
    table : TypeTable
        Its first type is the root; grows by the records that dynamic values hold.
    packed5, self_describing : bool
        As in `encode_value`.
    """

    def __init__(self, table: TypeTable, *, packed5: bool, self_describing: bool) -> None:
        self._types = table
        self._structs = table.builder
        self._pack = packed5
        self._described = self_describing
        # whether records in dynamic values go out behind tags (colbin.md 11, "section open")
        self._open = self_describing and self._structs[0].has_dynamic
        # otherwise they are maps, and their types stay out of the section
        self._unlisted = TypeTable()

    def message(self, value: Any) -> bytes:
        root = self._structs[0]
        # strings of a flat K4 root are packed in plain messages only (colbin.md 9)
        pack = self._pack and (root.k8 or (root.flat and not self._described))
        if root.envelope:
            body = bytearray()
            field = root.fields[0]
            if value is not None:
                (self._field8 if root.k8 else self._field4)(body, root, field, value, 1, pack)
        else:
            body = self._run(0, value, 1, pack)
        head = bytes((0xD0 | root.k8 << 3 | self._described << 2,))
        section = self._types.section().to_bytes() if self._described else b""
        return head + section + bytes(body)

    def _run(self, index: int, value: Any, depth: int, pack: bool) -> bytearray:
        """Return the run of one record; None is a record of zeros."""
        out = bytearray()
        if value is None:
            return out
        struct = self._structs[index]
        write = self._field8 if struct.k8 else self._field4
        for place, field in enumerate(struct.fields):
            item = self._item(index, struct, value, place)
            if item is not None:
                write(out, struct, field, item, depth, pack)
        return out

    def _inner(self, index: int, value: Any, depth: int) -> bytearray:
        """Return the run of a record that is not the root: packed when it has eight-bit keys."""
        return self._run(index, value, depth, self._pack and self._structs[index].k8)

    def _item(self, index: int, struct: StructDef, value: Any, place: int) -> Any:
        """Return the value of one field, None when it is absent."""
        return _item(self._types.source(index), struct, value, place)

    # fields

    def _field4(
        self, out: bytearray, struct: StructDef, field: FieldDef, value: Any, depth: int, pack: bool
    ) -> None:
        kind, key = field.type, field.key
        code = kind.code
        optional = code == TypeCode.OPTIONAL
        if optional:
            code, pack = TypeCode(kind.pointee), False
        place = Place(struct, field)
        if code < TypeCode.STRING:
            number = wire_integer(code, value, place)
            if optional and (number == 0 or (code >= TypeCode.F32 and value == 0)):
                out += bytes((key << 4 | 9, 0)) if TypeCode.I8 <= code <= TypeCode.I64 else bytes((key << 4,))
            else:
                (elements.signed4 if TypeCode.I8 <= code <= TypeCode.I64 else elements.unsigned4)(
                    out, key, number
                )
        elif code <= TypeCode.BYTES:
            data = text_of(value, place) if code == TypeCode.STRING else bytes_of(value, place)
            if data or optional:
                elements.blob4(out, key, data, pack=pack and code == TypeCode.STRING)
        elif code < TypeCode.STRINGS:
            values = integers_of(_ELEMENT[code], value, place)
            if len(values):
                elements.integers4(out, key, values)
        elif code == TypeCode.STRINGS:
            if len(texts := [text_of(text, place) for text in value]):
                elements.strings4(out, key, texts)
        elif code == TypeCode.MAP:
            if len(value):
                elements.body4(out, key, False, self._map(kind, value, place, depth, k8=False))
        elif code == TypeCode.RECORDS:
            if len(value):
                self._records4(out, key, kind.index, value, depth)
        else:
            inner = self._inner(kind.index, value, _deeper(depth))
            elements.body4(out, key, self._structs[kind.index].k8, inner)

    def _field8(
        self, out: bytearray, struct: StructDef, field: FieldDef, value: Any, depth: int, pack: bool
    ) -> None:
        kind, key = field.type, field.key
        code = kind.code
        optional = code == TypeCode.OPTIONAL
        if optional:
            code = TypeCode(kind.pointee)
        place = Place(struct, field)
        if code < TypeCode.STRING:
            number = wire_integer(code, value, place)
            if optional and number == 0:  # -0.0 keeps its sign, as in the compiled codec: 6.8 leaves it open
                out += bytes((key, 0))
            else:
                (elements.signed8 if TypeCode.I8 <= code <= TypeCode.I64 else elements.unsigned8)(
                    out, key, number
                )
            return
        if code <= TypeCode.BYTES:
            data = text_of(value, place) if code == TypeCode.STRING else bytes_of(value, place)
            if data or optional:
                out.append(key)
                elements.blob8(out, data, pack=pack and code == TypeCode.STRING)
            return
        if code == TypeCode.DYNAMIC:
            out.append(key)
            self._dynamic(out, value, depth)
            return
        if code not in (TypeCode.RECORD, TypeCode.OPTIONAL_RECORD) and not len(value):
            return
        out.append(key)
        if code < TypeCode.STRINGS:
            elements.integers8(out, integers_of(_ELEMENT[code], value, place))
        elif code == TypeCode.STRINGS:
            elements.strings8(out, [text_of(text, place) for text in value])
        elif code == TypeCode.MAP:
            elements.body8(out, 0xE0, self._map(kind, value, place, depth, k8=True))
        elif code == TypeCode.RECORDS:
            self._records8(out, kind.index, value, depth)
        elif code == TypeCode.DYNAMICS:
            self._dynamic_list(out, value, depth)
        else:
            self._record8(out, kind.index, value, depth)

    def _record8(self, out: bytearray, index: int, value: Any, depth: int) -> None:
        k8 = self._structs[index].k8
        elements.body8(out, 0xD0 | k8 << 3, self._inner(index, value, _deeper(depth)))

    # lists of records (colbin.md 7)

    def _records4(self, out: bytearray, key: int, index: int, rows: Any, depth: int) -> None:
        struct = self._structs[index]
        depth = _deeper(depth)
        if len(rows) >= TABLE_ROWS and struct.tabular:
            elements.body4(out, key, True, self._table(index, rows, k8=struct.k8))
            return
        body = bytearray()
        write_len(body, len(rows))
        for row in rows:
            run = self._inner(index, row, _deeper(depth))
            write_len(body, len(run))
            body += run
        elements.body4(out, key, False, body)

    def _records8(self, out: bytearray, index: int, rows: Any, depth: int) -> None:
        depth = _deeper(depth)
        if len(rows) >= TABLE_ROWS and self._structs[index].tabular:
            elements.body8(out, 0xE8, self._table(index, rows, k8=True))
            return
        body = bytearray()
        write_len(body, len(rows))
        for row in rows:
            self._record8(body, index, row, depth)
        elements.body8(out, 0xC0, body)

    def _table(self, index: int, rows: Any, *, k8: bool) -> bytearray:
        struct = self._structs[index]
        out = bytearray()
        write_len(out, len(rows))
        for number, field in enumerate(struct.fields):
            values = [None if row is None else self._item(index, struct, row, number) for row in rows]
            place = Place(struct, field)
            code = field.type.code
            if code == TypeCode.STRING:
                texts = [b"" if text is None else text_of(text, place) for text in values]
                if not k8:
                    elements.strings4(out, field.key, texts)
                elif any(texts):
                    out.append(field.key)
                    elements.strings8(out, texts)
                continue
            column = column_of(code, values, place)
            if not column.any():
                continue
            body = column_codec.encode(column)
            if k8:
                out.append(field.key)
                elements.body8(out, 0xB0, body)
            else:
                elements.body4(out, field.key, False, body)
        return out

    # maps

    def _map(
        self, kind: FieldType, value: Mapping[Any, Any], place: Place, depth: int, *, k8: bool
    ) -> bytearray:
        depth = _deeper(depth)
        key_code = kind.key_code if kind.key_code >= 0 else _WIDEST[MapKind(kind.key_kind)]
        value_code = kind.value_code if kind.value_code >= 0 else _WIDEST[MapKind(kind.value_kind)]
        entries: list[tuple[Any, Any]] = [
            (text_of(k, place) if kind.key_kind == MapKind.STRING else wire_integer(key_code, k, place), v)
            for k, v in value.items()
        ]
        entries.sort(key=operator.itemgetter(0))
        out = bytearray()
        write_len(out, len(entries))
        for key, item in entries:
            if key_code == TypeCode.STRING:
                (elements.element_string8 if k8 else elements.element_string4)(out, key)
            else:
                _element(out, key_code, key, k8=k8)
            if value_code == TypeCode.DYNAMIC:
                self._dynamic_at(
                    out,
                    key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key,
                    item,
                    depth,
                )
            elif value_code == TypeCode.STRING:
                (elements.element_string8 if k8 else elements.element_string4)(out, text_of(item, place))
            else:
                _element(out, value_code, wire_integer(value_code, item, place), k8=k8)
        return out

    # dynamic values (colbin.md 11)

    def _dynamic(self, out: bytearray, value: Any, depth: int) -> None:
        if value is None:
            out.append(0xF0)
        elif isinstance(value, (bool, np.bool_)):
            out.append(0xF1 if value else 0xF2)
        elif isinstance(value, str):
            elements.element_string8(out, encoded(value, "a string"))
        elif is_integer(value):
            number = operator.index(value)
            if not -(1 << 63) <= number < 1 << 64:
                raise ValueError(f"{number} does not fit 64 bits")
            elements.element_integer8(out, number)
        elif isinstance(value, np.float32):
            out.append(0xF4)
            elements.element_integer8(out, elements.reversed_f32(value))
        elif isinstance(value, (float, np.floating)):
            out.append(0xF3)
            elements.element_integer8(out, elements.reversed_f64(float(value)))
        elif isinstance(value, (bytes, bytearray, memoryview)):
            out.append(0xF5)
            elements.element_string8(out, bytes(value))
        elif isinstance(value, RecordRun):
            self._typed_run(out, value.cls, value.rows, depth)
        elif record_kind(type(value)) is not None:
            self._dynamic_record(out, value, depth)
        elif isinstance(value, Mapping):
            self._dynamic_map(out, value, depth)
        elif isinstance(value, (list, tuple)):
            self._dynamic_list(out, value, depth)
        elif isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.names is None:
            self._dynamic_list(out, value.tolist(), depth)
        elif _is_table(value):
            self._dynamic_table(out, value, depth)
        else:
            raise no_dynamic_form(value)

    def _dynamic_list(self, out: bytearray, values: Any, depth: int) -> None:
        cls = type(values[0]) if len(values) else None
        if self._open and record_kind(cls) is not None and all(type(value) is cls for value in values):
            self._typed_run(out, cls, values, depth)
            return
        depth = _deeper(depth)
        body = bytearray()
        write_len(body, len(values))
        for position, value in enumerate(values):
            self._dynamic_at(body, position, value, depth)
        elements.body8(out, 0xC0, body)

    def _dynamic_at(self, out: bytearray, step: object, value: Any, depth: int) -> None:
        """Write what a list or a map holds at `step`, which errors name."""
        try:
            self._dynamic(out, value, depth)
        except (TypeError, ValueError, OverflowError) as exc:
            step_from(exc, step)
            raise

    def _dynamic_map(self, out: bytearray, value: Mapping[Any, Any], depth: int) -> None:
        depth = _deeper(depth)
        texts: list[tuple[bytes, Any]] = []
        numbers: list[tuple[int, Any]] = []
        for key, item in value.items():
            if isinstance(key, str):
                texts.append((encoded(key, "the key of a map"), item))
            elif is_integer(key):
                numbers.append((operator.index(key), item))
            else:
                raise TypeError(f"the keys of a map are strings or integers, not {type(key).__name__}")
        body = bytearray()
        write_len(body, len(value))
        for number, item in sorted(numbers, key=operator.itemgetter(0)):
            self._dynamic(body, number, depth)
            self._dynamic_at(body, number, item, depth)
        for text, item in sorted(texts, key=operator.itemgetter(0)):
            elements.element_string8(body, text)
            self._dynamic_at(body, text.decode(), item, depth)
        elements.body8(out, 0xE0, body)

    def _typed_run(self, out: bytearray, cls: Any, rows: Sequence[Any], depth: int) -> None:
        if self._open:
            index = self._types.record(cls)
            out.append(0xF7)
            write_len(out, index)
            self._records8(out, index, rows, depth)
            return
        depth = _deeper(depth)
        body = bytearray()
        write_len(body, len(rows))
        for row in rows:
            self._dynamic_record(body, row, depth)
        elements.body8(out, 0xC0, body)

    def _dynamic_record(self, out: bytearray, value: Any, depth: int) -> None:
        if self._open:
            index = self._types.record(type(value))
            out.append(0xF7)
            write_len(out, index)
            self._record8(out, index, value, depth)
        else:
            self._record_map(out, self._unlisted.record(type(value)), value, depth)

    def _record_map(self, out: bytearray, index: int, value: Any, depth: int) -> None:
        """Write a record as a map of its fields, in declaration order, zeros included."""
        depth = _deeper(depth)
        struct, source = self._unlisted.builder[index], self._unlisted.source(index)
        body = bytearray()
        write_len(body, len(struct.fields))
        for number, field in enumerate(struct.fields):
            elements.element_string8(body, field.name.encode())
            item = None if value is None else _item(source, struct, value, number)
            self._plain(body, field.type, item, Place(struct, field), depth)
        elements.body8(out, 0xE0, body)

    def _plain(self, out: bytearray, kind: FieldType, value: Any, place: Place, depth: int) -> None:
        """Write a value of a known type as a dynamic one."""
        code = kind.code
        if code == TypeCode.RECORD:
            self._record_map(out, kind.index, value, depth)
            return
        if code == TypeCode.OPTIONAL and value is not None:
            code = TypeCode(kind.pointee)
        if value is None and code < TypeCode.BYTES:
            value = "" if code == TypeCode.STRING else 0
        if value is None:
            out.append(0xF0)
        elif code == TypeCode.STRING:
            elements.element_string8(out, text_of(value, place))
        elif code == TypeCode.BYTES:
            self._dynamic(out, bytes_of(value, place), depth)
        elif code < TypeCode.STRING:
            number = wire_integer(code, value, place)
            if code == TypeCode.BOOL:
                out.append(0xF1 if number else 0xF2)
            else:
                if code >= TypeCode.F32:
                    out.append(0xF4 if code == TypeCode.F32 else 0xF3)
                elements.element_integer8(out, number)
        elif code == TypeCode.OPTIONAL_RECORD:
            self._record_map(out, kind.index, value, depth)
        elif code == TypeCode.RECORDS:
            self._record_maps(out, kind.index, value, depth)
        elif code == TypeCode.MAP:
            self._plain_map(out, kind, value, place, depth)
        elif TypeCode.LIST_I8 <= code <= TypeCode.LIST_U64:
            self._dynamic_list(out, integers_of(_ELEMENT[code], value, place).tolist(), depth)
        else:
            self._dynamic(out, value, depth)

    def _record_maps(self, out: bytearray, index: int, rows: Any, depth: int) -> None:
        depth = _deeper(depth)
        body = bytearray()
        write_len(body, len(rows))
        for row in rows:
            self._record_map(body, index, row, depth)
        elements.body8(out, 0xC0, body)

    def _plain_map(self, out: bytearray, kind: FieldType, value: Any, place: Place, depth: int) -> None:
        """Write a typed map as a dynamic one: the entries of a map of f32 stay f32."""
        code = TypeCode(kind.value_code) if kind.value_code >= 0 else _WIDEST[MapKind(kind.value_kind)]
        inner = _deeper(depth)
        body = bytearray()
        write_len(body, len(value))
        keyed = [
            (encoded(k, "a key") if isinstance(k, str) else operator.index(k), v) for k, v in value.items()
        ]
        for key, item in sorted(keyed, key=operator.itemgetter(0)):
            if isinstance(key, bytes):
                elements.element_string8(body, key)
            else:
                elements.element_integer8(body, key)
            self._plain(body, FieldType(code), item, place, inner)
        elements.body8(out, 0xE0, body)

    def _dynamic_table(self, out: bytearray, data: Any, depth: int) -> None:
        """Write columns as a typed run; row by row when they are few rows or no column types (colbin.md 7)."""
        from .sources import column_source, named_columns, rows_section
        from .table_encoding import column_parts

        named = named_columns(data)
        sources = [column_source(name, column) for name, column in named]
        struct = Section.from_bytes(rows_section([source.column for source in sources])).structs[1]
        count = sources[0].rows
        if self._open and struct.tabular and count >= TABLE_ROWS:
            _deeper(depth)
            out.append(0xF7)
            write_len(out, self._structs.add(struct, lambda: struct))
            head = bytearray()
            write_len(head, count)
            elements.body8(out, 0xE8, b"".join((head, *column_parts(sources, k8=True))))
            return
        columns = [c.to_pylist() if hasattr(c, "to_pylist") else c.tolist() for _, c in named]
        names = [name for name, _ in named]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        if self._open:
            out.append(0xF7)
            index = self._structs.add(struct, lambda: struct)
            write_len(out, index)
            self._records8(out, index, rows, depth)
        else:
            self._dynamic_list(out, rows, depth)


def _item(source: RecordSource | None, struct: StructDef, value: Any, place: int) -> Any:
    """Return the value of a record's field number `place`, None when it is absent."""
    if isinstance(value, Mapping):
        named = source is not None and source.kind == "typeddict"
        return value.get(source.fields[place].attribute if source and named else struct.fields[place].name)
    if source is None or not isinstance(value, source.cls):
        raise TypeError(
            f"{type(value).__name__} is not a record of type {struct.name or '?'}; "
            "pass mappings or instances of its class"
        )
    return getattr(value, source.fields[place].attribute)


def _element(out: bytearray, code: int, number: int, *, k8: bool) -> None:
    if k8:
        elements.element_integer8(out, number)
    else:
        elements.element_integer4(out, number, signed=TypeCode.I8 <= code <= TypeCode.I64)


def _deeper(depth: int) -> int:
    if depth >= MAX_NESTING:
        raise ValueError(f"the value nests more than {MAX_NESTING} levels")
    return depth + 1


def _is_table(value: Any) -> bool:
    """Whether `value` has named columns: Arrow and pandas tables, structured arrays."""
    if isinstance(value, np.ndarray):
        return value.dtype.names is not None
    # a Series can be exported to Arrow as well, but is one column
    one_column = hasattr(value, "dtype") or type(value).__name__ == "ChunkedArray"
    exported = hasattr(value, "__arrow_c_stream__") and not one_column
    return exported or (hasattr(value, "iloc") and hasattr(value, "columns"))
