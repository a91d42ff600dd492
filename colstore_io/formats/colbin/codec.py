"""What may a caller do with records? Encode and decode values of a type, or of a bare schema.

A `Codec` is made once per type and used many times, by several threads if need be. Without a Python type, the
functions `encode` and `decode` take a schema section: records are dicts then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...kernels import colbin as kernel
from .annotations import Definitions, definitions
from .arguments import check_message, no_schema, schema_bytes
from .dynamic import OpenSection, PlanTable
from .encode import RecordRun
from .generate import generate_source
from .messages import Messages, decode_columns, encode_rows
from .plan import schema_plans, typed_plans
from .schema import MAX_ROWS, Section
from .tables import MAX_CELLS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Codec", "SchemaCodec", "decode", "encode"]

T = TypeVar("T")
Buffer: TypeAlias = "bytes | bytearray | memoryview"
Errors: TypeAlias = Literal["strict", "surrogateescape"]


class _Codec(kernel.RecordCodec):
    """What codecs of types and of schemas share."""

    schema: Section
    """The record types as they travel; ``schema.to_bytes()`` is the section that a reader needs once."""
    _definitions: Definitions | None
    _table: PlanTable
    _bytes: bytes | None = None

    def encode_self_describing(
        self, value: Any, *, packed5: bool = False, errors: Errors = "strict"
    ) -> bytes:
        """Encode a value behind its section, so that it can be read without knowing the type (colbin.md 2, 10).

        Parameters and errors are those of `encode`. When the root type has a dynamic field, records inside dynamic
        values travel as records and their types are appended to the section (colbin.md 11); else as maps.
        """
        value = self._outgoing(value)
        session = (
            OpenSection(self._definitions, self.schema, self._table) if self.schema.root.has_dynamic else None
        )
        body = self._encode_described(value, packed5, errors, session or False)
        section = session.section() if session else self.schema
        return bytes((body[0] | 4,)) + section.to_bytes() + body[1:]

    def decode_columns(
        self,
        messages: Messages,
        *,
        columns: Sequence[str] | None = None,
        errors: Errors = "strict",
        max_cells: int = MAX_CELLS,
    ) -> dict[str, NDArray[Any] | pa.Array]:
        """Decode many messages, one row each, straight into columns; see `messages.decode_columns`."""
        return decode_columns(
            self._schema_bytes, messages, columns=columns, errors=errors, max_cells=max_cells
        )

    def encode_rows(self, data: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Encode each row of columns as a message of its own; see `messages.encode_rows`."""
        return encode_rows(self._schema_bytes, data)

    def generate_source(self) -> str:
        """Return a Python module with the record classes and their codec; see `generate.generate_source`."""
        return generate_source(self.schema)

    @property
    def _schema_bytes(self) -> bytes:
        known = self._bytes
        if known is None:
            known = self._bytes = self.schema.to_bytes()
        return known

    def _outgoing(self, value: Any) -> Any:
        return value

    def _read_section(self, data: Buffer) -> tuple[int, tuple[kernel.Plan, ...] | None]:
        """Read the section of a self-describing message: where its body begins, and what its tags number.

        The caller's definitions decide, unless the message's begin with them: then tags may name types that only the
        message knows (colbin.md 15).
        """
        section, start = Section.read(data, 1)
        if self.schema.is_prefix_of(section):
            return start, _schema_plans(section)
        return start, None


class Codec(_Codec, Generic[T]):
    """Encodes and decodes values of one Python type.

    Parameters
    ----------
    tp : type
        A record class: dataclass, TypedDict, NamedTuple, attrs class or msgspec.Struct, its fields annotated (see
        `record`); or a list, map or ``bytes``, which travels in an envelope (colbin.md 2).
    namespace : mapping, optional
        Where names in string annotations are looked up besides the class's module, for classes defined in functions.

    Raises
    ------
    TypeError
        Naming class and field, for what the wire cannot say.

    Notes
    -----
    Decoded objects are made without calling ``__init__``; fields get what the message says, ``__post_init__`` is
    called where there is one. Fields of dataclasses and attrs classes that stay out of messages get their defaults.

    Examples
    --------
    >>> from typing import Annotated
    >>> from colstore_io.formats.colbin.annotations import record
    >>> from colstore_io.formats.colbin.markers import i32
    >>> @record
    ... class Charge:
    ...     company_id: Annotated[i32, 1]
    ...     name: Annotated[str, 4]
    >>> codec = Codec(Charge)
    >>> codec.encode(Charge(7, "ana")).hex(" ")
    'd0 09 07 30 03 61 6e 61'
    >>> codec.decode(bytes.fromhex("d009073003616e61"))
    Charge(company_id=7, name='ana')
    """

    type: Any

    def __new__(cls, tp: Any, *, namespace: Mapping[str, Any] | None = None) -> Codec[T]:
        return super().__new__(cls)

    def __init__(self, tp: Any, *, namespace: Mapping[str, Any] | None = None) -> None:
        defs = definitions(tp, namespace=namespace)
        plans = typed_plans(defs)
        self.type = tp
        self.schema = defs.section
        self._definitions = defs
        self._table = PlanTable(defs, plans)
        super().__init__(plans[0], self._table, RecordRun, _schema_plans(defs.section))

    def __repr__(self) -> str:
        return f"Codec({getattr(self.type, '__name__', self.type)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.type,))


class SchemaCodec(_Codec):
    """Encodes and decodes dicts of one schema section; see `encode` and `decode`."""

    def __new__(cls, schema: Section) -> SchemaCodec:
        return super().__new__(cls)

    def __init__(self, schema: Section) -> None:
        plans = _schema_plans(schema)
        self.schema = schema
        self._definitions = None
        self._table = PlanTable(None, ())
        super().__init__(plans[0], self._table, RecordRun, plans)

    def _outgoing(self, value: Any) -> Any:
        if isinstance(value, Mapping) and not isinstance(value, dict) and not self.schema.root.envelope:
            return dict(value)
        return value

    def __repr__(self) -> str:
        return f"SchemaCodec({len(self.schema.structs)} record types)"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.schema,))


_REMEMBERED_TYPES = 4096
"""Records and fields up to which codecs of a section are remembered."""
_REMEMBERED_BYTES = 1 << 16
"""The same of sections that come as bytes."""


def _schema_plans(section: Section) -> tuple[kernel.Plan, ...]:
    size = len(section.structs) + sum(len(struct.fields) for struct in section.structs)
    return _remembered_plans(section) if size <= _REMEMBERED_TYPES else schema_plans(section)


@lru_cache(maxsize=256)
def _remembered_plans(section: Section) -> tuple[kernel.Plan, ...]:
    return schema_plans(section)


@lru_cache(maxsize=256)
def _schema_codec(section: Section) -> SchemaCodec:
    return SchemaCodec(section)


@lru_cache(maxsize=256)
def _codec_of_bytes(section: bytes) -> SchemaCodec:
    return _schema_codec(Section.from_bytes(section))


def _codec(schema: Section | Buffer) -> SchemaCodec:
    """Return the codec of a section; only those of ordinary size are remembered, or strangers could fill memory."""
    if isinstance(schema, Section):
        size = len(schema.structs) + sum(len(struct.fields) for struct in schema.structs)
        return _schema_codec(schema) if size <= _REMEMBERED_TYPES else SchemaCodec(schema)
    data = schema_bytes(schema)
    return _codec_of_bytes(data) if len(data) <= _REMEMBERED_BYTES else SchemaCodec(Section.from_bytes(data))


def encode(
    schema: Section | Buffer, value: Any, *, packed5: bool = False, errors: Errors = "strict"
) -> bytes:
    """Encode a mapping without a Python type of its own.

    Parameters
    ----------
    schema : Section or bytes
        The record types; the root of `value` is the first.
    value : mapping
        Field values by wire name; records in it are dicts. A missing or None field is zero. For the schema of an
        envelope: the value inside it.
    packed5 : bool, optional
        Store strings as five-bit units where that is shorter (colbin.md 9).
    errors : {"strict", "surrogateescape"}, optional
        What lone surrogates in strings are: an error, or the bytes they were decoded from.

    Returns
    -------
    bytes
        The message, without the section.

    Raises
    ------
    TypeError, ValueError, OverflowError
        For values that the schema does not allow; the message names the field.
    FormatError
        For a damaged section.
    """
    codec = _codec(schema)
    return codec.encode(codec._outgoing(value), packed5=packed5, errors=errors)


def decode(
    schema: Section | Buffer | None,
    data: Buffer,
    *,
    max_rows: int = MAX_ROWS,
    errors: Errors = "strict",
    max_cells: int | None = None,
) -> Any:
    """Decode a message without a Python type of its own.

    Parameters
    ----------
    schema : Section or bytes or None
        The record types; None for a message that carries its section.
    data : bytes-like
        The message.
    max_rows : int, optional
        Rows that one table may have.
    errors : {"strict", "surrogateescape"}, optional
        What bytes that are not UTF-8 become: an error, or lone surrogates.
    max_cells : int, optional
        Bound of the values that appear without bytes of their own: cells of tables, absent fields. By default 2^24 and
        eight for each byte of the message.

    Returns
    -------
    dict, or the value inside an envelope
        Fields by wire name: those present in the order of the message, then absent ones as zeros, where lists, maps,
        bytes, optionals and dynamic values are None.

    Raises
    ------
    FormatError
        With offset and field path, for anything that colbin.md 15 refuses.
    """
    check_message(data)
    if schema is None:
        if not len(data):
            raise FormatError("the message is empty", offset=0)
        if data[0] not in (0xD4, 0xDC):
            raise no_schema(data)
        schema, _ = Section.read(data, 1)
    return _codec(schema).decode(data, max_rows=max_rows, errors=errors, max_cells=max_cells)
