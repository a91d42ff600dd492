"""Messages as JSON text: a walk over the wire with a section at hand (colbin.md 12, 13, 15).

`to_json` needs no Python types and makes no values: each part of the message becomes its text, in wire order. A kernel
walks; its twin here does the same in Python, and says what is wrong with a message that the kernel gave up on. What a
message can make this walk do is bounded: nesting by `MAX_NESTING`, table rows by `max_rows`, cells of tables by
`max_cells`, text by `max_text`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ...arguments import check_integer
from ...errors import FormatError
from ...kernels import json_walk
from .arguments import check_message, schema_bytes
from .cursor import open_message
from .schema import MAX_ROWS, Section
from .walk_twin import Limits, Walk, spell_float
from .walk_types import TypeTexts

if TYPE_CHECKING:
    pass

__all__ = ["MAX_CELLS", "MAX_TEXT", "to_json"]

MAX_CELLS = 1 << 24
"""Cells of tables, rows times columns, that one message may have unless the caller allows more."""
MAX_TEXT = 1 << 28
"""Characters of names and zeros, which cost a message no bytes, unless the caller allows more; and 64 per byte."""


def to_json(
    schema: bytes | bytearray | memoryview | Section | None,
    message: bytes | bytearray | memoryview,
    *,
    max_rows: int = MAX_ROWS,
    max_cells: int = MAX_CELLS,
    max_text: int = MAX_TEXT,
) -> str:
    """Return a message as JSON text without white space (colbin.md 12).

    Parameters
    ----------
    schema : bytes, Section or None
        Section of the message. None: the message describes itself. Where both have definitions yours decide, unless
        they are the beginning of the message's own (colbin.md 15).
    message : bytes
    max_rows, max_cells : int, optional
        Rows of one table, cells of all tables of the message.
    max_text : int, optional
        Characters of field names and of zeros of absent fields, on top of 64 for each byte of the message.

    Returns
    -------
    str
        Fields in wire order, then the absent ones with their zeros; maps in wire order, a key that is there twice shown
        twice; an envelope unwrapped.

    Raises
    ------
    FormatError
        For everything that colbin.md 15 lists, naming the offset; for NaN and infinities, which JSON cannot spell.
    ValueError
        If the message does not describe itself and `schema` is None.

    Examples
    --------
    >>> to_json(bytes.fromhex("0f010002000269640401046e616d650b"), bytes.fromhex("d00901100161"))
    '{"id":1,"name":"a"}'
    """
    check_message(message)
    for name, limit in (("max_rows", max_rows), ("max_cells", max_cells), ("max_text", max_text)):
        check_integer(name, limit)
    data = bytes(message)
    k8, described = open_message(data)
    table = None if schema is None else _types_of(schema)
    tags, start = table, 1
    if described:
        own, start = Section.read(data, 1)
        tags = TypeTexts(own)
        if table is None or table.section.is_prefix_of(own):
            table = tags
    if table is None or tags is None:
        raise ValueError(
            f"the message does not carry its schema (root byte {data[0]:02X}): pass it, as in "
            "colbin.to_json(codec.schema, message)"
        )
    limits = Limits(max_rows, max_cells, max_text + 64 * len(data))
    text = _by_kernel(data, start, k8, table, limits) if tags is table else None
    if isinstance(text, int):  # the twin would take very long to get there
        raise FormatError("the text is larger than allowed (max_text)", offset=text, section="message")
    # the twin says what is wrong, if anything is
    return _by_twin(data, start, k8, table, tags, limits) if text is None else text


def _by_kernel(data: bytes, start: int, k8: bool, table: TypeTexts, limits: Limits) -> str | int | None:
    """Return the text of a message, None when something is wrong with it, or where it became larger than allowed."""
    flat = table.flat()
    if flat is None:
        return None
    bare = table.structs[0].definition.envelope
    return json_walk.render(
        data,
        start,
        k8,
        bare,
        flat.structs,
        flat.fields,
        flat.names,
        spell_float,
        limits.rows,
        limits.cells,
        limits.text,
    )


def _by_twin(data: bytes, start: int, k8: bool, table: TypeTexts, tags: TypeTexts, limits: Limits) -> str:
    """Return the text of a message; `FormatError` naming what is wrong with it and where."""
    try:
        return Walk(data, start, tags, limits).message(table.structs[0], k8)
    except RecursionError:
        raise FormatError(
            "the message is nested deeper than the Python stack has room for here", section="message"
        ) from None


def _types_of(schema: bytes | bytearray | memoryview | Section) -> TypeTexts:
    if isinstance(schema, Section):
        return _remembered(schema)
    data = schema_bytes(schema)
    return _remembered(data) if len(data) <= _REMEMBERED else TypeTexts(Section.from_bytes(data))


_REMEMBERED = 1 << 16
"""Sections up to this size are remembered: readers of many messages pass the same bytes each time."""


@lru_cache(maxsize=64)
def _remembered(schema: bytes | Section) -> TypeTexts:
    return TypeTexts(schema if isinstance(schema, Section) else Section.from_bytes(schema))
