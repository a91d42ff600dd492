"""Records as colbin messages: ``colstore_io.colbin``.

>>> from typing import Annotated
>>> import colstore_io as cs
>>> @cs.colbin.record
... class Charge:
...     company_id: Annotated[cs.i32, 1]
...     name: Annotated[str, 4]
>>> codec = cs.colbin.Codec(Charge)
>>> data = codec.encode(Charge(7, "ana"))
>>> codec.decode(data)
Charge(company_id=7, name='ana')
>>> cs.colbin.decode(codec.schema, data)
{'company_id': 7, 'name': 'ana'}
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .formats.colbin.annotations import definitions, record
    from .formats.colbin.codec import Codec, decode, encode
    from .formats.colbin.encode import RecordRun, encode_self_describing
    from .formats.colbin.infer import from_json, infer
    from .formats.colbin.markers import f32, f64, field, i8, i16, i32, i64, u8, u16, u32, u64
    from .formats.colbin.schema import Section
    from .formats.colbin.table_encoding import encode_table
    from .formats.colbin.tables import decode_table
    from .formats.colbin.walk import to_json

# Loaded on first use, as in the package itself.
_HOMES = {
    "annotations": ("definitions", "record"),
    "codec": ("Codec", "decode", "encode"),
    "encode": ("RecordRun", "encode_self_describing"),
    "infer": ("from_json", "infer"),
    "markers": ("f32", "f64", "field", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    "schema": ("Section",),
    "table_encoding": ("encode_table",),
    "tables": ("decode_table",),
    "walk": ("to_json",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Codec",
    "RecordRun",
    "Section",
    "decode",
    "decode_table",
    "definitions",
    "encode",
    "encode_self_describing",
    "encode_table",
    "f32",
    "f64",
    "field",
    "from_json",
    "i8",
    "i16",
    "i32",
    "i64",
    "infer",
    "record",
    "to_json",
    "u8",
    "u16",
    "u32",
    "u64",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".formats.colbin.{home}", __package__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
