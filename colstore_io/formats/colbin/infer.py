"""JSON documents to messages: types are inferred from all of a document (colbin.md 16).

First everything is looked at: each position in the shape of the document collects what it saw over all records
(`_Shape`). Then the types are decided, a position at a time. Then the body is written from these types.
"""

from __future__ import annotations

import copy
import json
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any

from .codec import SchemaCodec
from .schema import MAX_FIELDS, FieldDef, FieldType, Section, SectionBuilder, StructDef, TypeCode

__all__ = ["MAX_DOCUMENT_NESTING", "InferenceWarning", "from_json", "infer"]

MAX_DOCUMENT_NESTING = 64
"""Levels of objects and arrays in a document (colbin.md 14)."""
_I64_MAX = (1 << 63) - 1
_U64_MAX = (1 << 64) - 1
_EXACT_F64 = 1 << 53
_LONE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class InferenceWarning(UserWarning):
    """A document was taken in, and something in it does not come back as it was."""


def from_json(text: str | bytes | bytearray | memoryview, *, packed5: bool = False) -> bytes:
    """Return a JSON document as a self-describing message (colbin.md 16).

    Parameters
    ----------
    text : str or bytes
        JSON; bytes are UTF-8. Numbers without point and exponent are integers and stay exact.
    packed5 : bool, optional
        Store strings in five-bit units where that is shorter.

    Returns
    -------
    bytes
        `colstore_io.formats.colbin.walk.to_json` of it is the document again, but for the order of fields, missing
        keys (null), nulls that were records (zeros), empty arrays (null), and the spelling of numbers.

    Raises
    ------
    ValueError
        For text that is no JSON, and for documents whose types the wire does not have, naming the place.

    Warns
    -----
    InferenceWarning
        Where values do not come back as they were, lone surrogates among them.

    Examples
    --------
    >>> from_json('{"id":1,"name":"a"}').hex()
    'd40f010002000269640401046e616d650b0901100161'
    """
    section, value = _typed(_parsed(text), own=True)
    return SchemaCodec(section).encode_self_describing(value, packed5=packed5)


def infer(document: Any, *, packed5: bool = False) -> tuple[Section, bytes]:
    """Return the types of a document and, apart from them, the message.

    Parameters
    ----------
    document : str, bytes, or parsed
        JSON text, or what ``json.loads`` makes of it.
    packed5 : bool, optional
        As in `from_json`; some strings are packed here and not there (colbin.md 9).

    Returns
    -------
    section : Section
        Equal for documents of equal shape.
    message : bytes
        Without its section.

    Raises, Warns
    -------------
    As `from_json`.
    """
    text = isinstance(document, (str, bytes, bytearray, memoryview))
    section, value = _typed(_parsed(document) if text else document, own=text)
    return section, SchemaCodec(section).encode(value, packed5=packed5)


def _typed(value: Any, *, own: bool) -> tuple[Section, Any]:
    """Return the section of a document and the value to encode with it: `value`, unless parts of it need a type.

    `own` is whether `value` may be changed.
    """
    record = isinstance(value, Mapping)
    if value is None or (isinstance(value, list) and not value):
        raise ValueError("there is nothing to infer types from")
    scan, shape = _Scan(), _Shape()
    scan.path = [] if record else ["rows"]
    scan.value(value, shape, 0)
    if scan.null_lists and not own:
        return _typed(copy.deepcopy(value), own=True)
    return _Decision(scan).section(shape, envelope=not record), value


def _parsed(text: str | bytes | bytearray | memoryview) -> Any:
    if not isinstance(text, str):
        if not isinstance(text, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"a JSON document is text or bytes, not {type(text).__name__}; json.dumps makes text"
            )
        try:
            text = str(text, "utf-8")
        except UnicodeDecodeError as exc:
            raise ValueError(f"the document is not UTF-8: {exc.reason} at byte {exc.start}") from None
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError(f"the document nests more than {MAX_DOCUMENT_NESTING} levels") from None
    if _ESCAPED_SURROGATE.search(text) or _LONE.search(text):
        surrogates = _Surrogates()
        if not isinstance(value, dict):
            surrogates.path.append("rows")
        value = surrogates.replaced(value)
        surrogates.warn()
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


class _Surrogates:
    """Puts U+FFFD for lone surrogates, as the rules say (colbin.md 16, 8), and tells where."""

    def __init__(self) -> None:
        self.path: list[str | int] = []
        self.first = ""
        self.found = 0

    def text(self, text: str, kind: str) -> str:
        clean = _LONE.sub("\ufffd", text)
        if clean != text:
            self.first = self.first or f"{_place(self.path)}: {kind}"
            self.found += 1
        return clean

    def replaced(self, value: Any, depth: int = 0) -> Any:
        """Return `value` without lone surrogates, in keys as well."""
        if isinstance(value, str):
            return self.text(value, "the string")
        if depth > MAX_DOCUMENT_NESTING:
            return value  # refused by the scan
        if isinstance(value, list):
            changed: Any = []
            for number, item in enumerate(value):
                self.path.append(number)
                changed.append(self.replaced(item, depth + 1))
                self.path.pop()
            return changed
        if isinstance(value, dict):
            changed = {}
            for key, item in value.items():
                self.path.append(_LONE.sub("\ufffd", key))
                clean = self.text(key, "the key")
                changed[clean] = self.replaced(item, depth + 1)
                self.path.pop()
            return changed
        return value

    def warn(self) -> None:
        if self.found:
            more = f", as in {self.found - 1} more strings and keys" if self.found > 1 else ""
            warnings.warn(
                f"{self.first} has a lone surrogate, which no UTF-8 spells: U+FFFD stands for it{more}",
                InferenceWarning,
                stacklevel=4,
            )


def _place(path: list[str | int]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text.encode("utf-8", "backslashreplace").decode() or "the document"  # fit to be printed


class _Shape:
    """What one position saw over all records.

    Attributes
    ----------
    category : str or None
        ``"bool"``, ``"number"``, ``"string"``, ``"array"``, ``"object"``; None while only nulls were seen.
    seen : int
        How often the position was there, nulls included.
    nulls : bool
    fractional, negative, above, inexact : bool
        Numbers: some are no integers, below zero, above i64; some integers are not exact as f64.
    element : _Shape or None
        Arrays: what the elements were.
    fields : dict of str to _Shape
        Objects: in first-seen order.
    objects : int
        How many objects were seen.
    null_lists : list of list
        Arrays of nothing but nulls.
    """

    __slots__ = (
        "above",
        "category",
        "element",
        "fields",
        "fractional",
        "inexact",
        "negative",
        "null_lists",
        "nulls",
        "objects",
        "seen",
    )

    def __init__(self) -> None:
        self.category: str | None = None
        self.seen = self.objects = 0
        self.nulls = self.fractional = self.negative = self.above = self.inexact = False
        self.element: _Shape | None = None
        self.fields: dict[str, _Shape] = {}
        self.null_lists: list[list[Any]] = []


class _Scan:
    """The look at all values of a document."""

    def __init__(self) -> None:
        self.path: list[str | int] = []
        self.null_lists = 0

    def place(self) -> str:
        return _place(self.path)

    def bad(self, message: str) -> ValueError:
        return ValueError(f"{self.place()}: {message}")

    def value(self, value: Any, shape: _Shape, depth: int) -> None:
        shape.seen += 1
        if value is None:
            shape.nulls = True
        elif isinstance(value, str):
            self.category(shape, "string")
        elif isinstance(value, bool):
            self.category(shape, "bool")
        elif isinstance(value, int):
            self.category(shape, "number")
            if not -_I64_MAX - 1 <= value <= _U64_MAX:
                raise self.bad(f"the integer {value} does not fit 64 bits")
            shape.negative |= value < 0
            shape.above |= value > _I64_MAX
            shape.inexact |= abs(value) > _EXACT_F64 and int(float(value)) != value
        elif isinstance(value, float):
            self.category(shape, "number")
            if not math.isfinite(value):
                raise self.bad("a number is out of range")
            shape.fractional = True
        elif isinstance(value, list):
            self.category(shape, "array")
            self.array(value, shape, self.deeper(depth))
        elif isinstance(value, Mapping):
            self.category(shape, "object")
            self.object(value, shape, self.deeper(depth))
        else:
            raise TypeError(f"{self.place()}: {type(value).__name__} is no JSON value")

    def category(self, shape: _Shape, category: str) -> None:
        if shape.category is None:
            shape.category = category
        elif shape.category != category:
            raise self.bad(f"{category} here, {shape.category} elsewhere; a position has one type")

    def deeper(self, depth: int) -> int:
        if depth >= MAX_DOCUMENT_NESTING:
            raise ValueError(f"the document nests more than {MAX_DOCUMENT_NESTING} levels")
        return depth + 1

    def array(self, values: list[Any], shape: _Shape, depth: int) -> None:
        if shape.element is None:
            shape.element = _Shape()
        element = shape.element
        self.path.append(0)
        for number, item in enumerate(values):
            self.path[-1] = number
            self.value(item, element, depth)
            if element.category in ("array", "bool"):
                raise self.bad(f"the wire has no list of {element.category}s")
            if element.fractional:
                raise self.bad("the wire has no list of floats; put each into an object")
        self.path.pop()
        if values and not any(item is not None for item in values):
            shape.null_lists.append(values)
            self.null_lists += 1

    def object(self, value: Mapping[str, Any], shape: _Shape, depth: int) -> None:
        shape.objects += 1
        fields = shape.fields
        self.path.append("")
        for name, item in value.items():
            self.path[-1] = name
            known = fields.get(name)
            if known is None:
                if not isinstance(name, str):
                    raise TypeError(f"{self.place()}: the keys of an object are strings")
                if _LONE.search(name):  # of a parsed document; text has none any more
                    raise self.bad("the key has a lone surrogate, which UTF-8 cannot carry")
                known = fields[name] = _Shape()
            self.value(item, known, depth)
        self.path.pop()


class _Decision:
    """The types of all positions, numbered in pre-order."""

    def __init__(self, scan: _Scan) -> None:
        self._builder = SectionBuilder()
        self._scan = scan

    def section(self, shape: _Shape, *, envelope: bool) -> Section:
        self._scan.path = []
        if envelope:
            self._scan.path = ["rows"]
            self._builder.add(
                "envelope",
                lambda: StructDef(
                    "", (FieldDef("rows", 0, self.type(shape, missing=False)),), False, envelope=True
                ),
            )
        else:
            self.record(shape)
        return self._builder.section()

    def record(self, shape: _Shape) -> int:
        if not shape.fields:
            raise self._scan.bad("an object without fields has no type")
        if len(shape.fields) > MAX_FIELDS:
            raise self._scan.bad(f"{len(shape.fields)} different fields, a record has at most {MAX_FIELDS}")
        return self._builder.add(id(shape), lambda: self.struct(shape))

    def struct(self, shape: _Shape) -> StructDef:
        fields = []
        self._scan.path.append("")
        for key, (name, inner) in enumerate(shape.fields.items()):
            self._scan.path[-1] = name
            fields.append(FieldDef(name, key, self.type(inner, missing=inner.seen < shape.objects)))
        self._scan.path.pop()
        return StructDef("", tuple(fields), len(fields) > 16)

    def type(self, shape: _Shape, *, missing: bool) -> FieldType:
        absent = missing or shape.nulls
        if shape.category is None:
            self.warn("only nulls were seen; taken for an optional string")
            return FieldType.optional(TypeCode.STRING)
        if shape.category == "object":
            if absent:
                self.warn("some records are null or missing; they read back as records of zeros")
            return FieldType.record(self.record(shape))
        if shape.category == "array":
            return self.list(shape)
        code = TypeCode.STRING if shape.category == "string" else TypeCode.BOOL
        if shape.category == "number":
            code = TypeCode.F64 if shape.fractional else self.integer(shape)
            if shape.fractional and shape.inexact:
                self.warn("some integers lose digits: other values here have fractions")
        return FieldType.optional(code) if absent else FieldType.scalar(code)

    def list(self, shape: _Shape) -> FieldType:
        element = shape.element
        if element is None or element.category is None:
            self.warn("no element was seen; taken for a list of strings")
            for values in shape.null_lists:
                values[:] = [""] * len(values)
            return FieldType.scalar(TypeCode.STRINGS)
        if element.category == "object":
            return FieldType.records(self.record(element))
        if element.nulls:
            raise self._scan.bad(f"null in a list of {element.category}s")
        if element.category == "string":
            return FieldType.scalar(TypeCode.STRINGS)
        return FieldType.scalar(
            TypeCode.LIST_U64 if self.integer(element) == TypeCode.U64 else TypeCode.LIST_I64
        )

    def integer(self, shape: _Shape) -> TypeCode:
        if not shape.above:
            return TypeCode.I64
        if shape.negative:
            raise self._scan.bad("the integers here span below zero and above 2^63-1")
        return TypeCode.U64

    def warn(self, message: str) -> None:
        warnings.warn(f"{self._scan.place()}: {message}", InferenceWarning, stacklevel=2)
