"""The record types of a section as the walk to JSON needs them: texts of names and zeros, and flat for the kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .json_text import quote_text
from .schema import Section, StructDef, TypeCode

__all__ = ["FlatTypes", "StructTexts", "TypeTexts"]

_ZERO = {TypeCode.BOOL: "false", TypeCode.STRING: '""'}


class StructTexts:
    """A record type as the walk needs it: texts of names and zeros, and its table."""

    __slots__ = ("by_key", "definition", "k8", "name_chars", "names", "table", "types", "zeros")

    def __init__(self, definition: StructDef, table: TypeTexts) -> None:
        self.definition = definition
        self.table = table
        self.k8 = definition.k8
        self.by_key = definition.by_key
        self.types = [f.type for f in definition.fields]
        self.names = [quote_text(f.name) + ":" for f in definition.fields]
        self.name_chars = sum(map(len, self.names)) + 2
        # records of zeros on demand: they can be large
        self.zeros: list[str | None] = [
            None if t.code == TypeCode.RECORD else _zero_of(t.code) for t in self.types
        ]


@dataclass(frozen=True, slots=True)
class FlatTypes:
    """The record types of one section as the kernel takes them; see `json_walk.render`."""

    structs: NDArray[np.int32]
    fields: NDArray[np.int32]
    names: bytes


class TypeTexts:
    """The record types of one section."""

    __slots__ = ("_flat", "section", "structs")

    def __init__(self, section: Section) -> None:
        self.section = section
        self.structs = [StructTexts(s, self) for s in section.structs]
        self._flat: FlatTypes | None = None

    def flat(self) -> FlatTypes | None:
        """Return the types for the kernel, None when their names are too long for it."""
        if self._flat is None:
            names = bytearray()
            structs: list[tuple[int, ...]] = []
            fields: list[tuple[int, ...]] = []
            for struct in self.structs:
                structs.append((len(fields), len(struct.types), struct.k8, struct.name_chars))
                for item, name in zip(struct.definition.fields, struct.names, strict=True):
                    kind, start = item.type, len(names)
                    names += name.encode()
                    first = max(kind.index, kind.key_kind, kind.pointee)
                    fields.append((item.key, kind.code, first, kind.value_kind, start, len(names)))
            if len(names) >= 1 << 30:
                return None
            self._flat = FlatTypes(
                np.array(structs, np.int32).reshape(-1, 4),
                np.array(fields, np.int32).reshape(-1, 6),
                bytes(names),
            )
        return self._flat


def _zero_of(code: int) -> str:
    return "0" if 0 < code < TypeCode.STRING else _ZERO.get(TypeCode(code), "null")
