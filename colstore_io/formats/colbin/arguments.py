"""What did the caller hand us for a message, for a schema? Refused by name when it is something else."""

from __future__ import annotations

from typing import Any

from ...errors import FormatError
from .log import MAGIC
from .schema import Section

__all__ = ["check_message", "no_schema", "schema_bytes"]


def check_message(data: Any) -> None:
    """Raise `TypeError` for what has no bytes."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return
    try:
        memoryview(data)
    except TypeError:
        swapped = "; the schema comes first, then the message" if isinstance(data, Section) else ""
        raise TypeError(f"a message is bytes, not {type(data).__name__}{swapped}") from None


def schema_bytes(schema: Any) -> bytes:
    """Return a section as bytes, of a `Section` or of bytes.

    Raises
    ------
    TypeError
        For everything else, saying where the schema of a class or of a codec is.
    """
    if isinstance(schema, Section):
        return schema.to_bytes()
    try:
        return bytes(memoryview(schema))
    except TypeError:
        pass
    if isinstance(schema, type):
        hint = f": pass Codec({schema.__name__}).schema"
    elif isinstance(getattr(schema, "schema", None), Section):
        hint = ": pass its attribute `schema`"
    else:
        hint = ""
    what = schema.__name__ if isinstance(schema, type) else type(schema).__name__
    raise TypeError(f"a schema is a Section or its bytes, not {what}{hint}")


def no_schema(data: Any) -> FormatError:
    """Return the error for bytes that carry no schema, none having been given."""
    root = data[0]
    if bytes(data[:8]) == MAGIC:
        return FormatError(
            "these are the bytes of a log of messages: colstore_io.open reads its file", offset=0
        )
    if root in (0xD0, 0xD8):
        return FormatError(
            f"the message does not carry its schema (root byte {root:02X}): pass it, as in "
            "colbin.decode(codec.schema, message)",
            offset=0,
        )
    return FormatError(f"a message begins with D0, D4, D8 or DC, not {root:02X}", offset=0)
