"""The JSON text between counters and records: what columns a file has (cstore.md sections 4 and 5).

Writing is byte-exact: the text is what `json.dumps` gives with default arguments. Reading believes nothing: every
failure of the parser, of the nesting depth or of NumPy's dtype parser comes out as `FormatError`.
"""

from __future__ import annotations

import functools
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import FormatError, UnsupportedFeatureError
from ...fields import EXTRA_KEY, STORABLE_KINDS, PhysicalColumn

__all__ = [
    "FORMAT_VERSION",
    "Manifest",
    "column_object",
    "encode_manifest",
    "parse_dtype",
    "parse_manifest",
    "physical_columns",
    "sorted_json",
    "stored_dtype",
]

FORMAT_VERSION = 1

_DTYPE_TEXT = re.compile(r"[<>|=]?[A-Za-z_?][A-Za-z_0-9]*(\[[A-Za-z0-9]+\])?", re.ASCII)
# Everything a plain column can be called. Keeps structured, sub-array and comma forms, whose parser inside NumPy
# evaluates literals, away from it; and time units with a divisor ("M8[D/4]"): NumPy divides by it unchecked, so that
# a zero ends the process, and no `dtype.str` holds one (cstore.md 5).
_MAX_DTYPE_TEXT = 64


def sorted_json(value: Any) -> bytes:
    """Return the JSON text of `value` that checksums are taken of: default separators, keys sorted by code point.

    Raises
    ------
    RecursionError, ValueError, TypeError
        As `json.dumps`; callers that handle file contents translate them.
    """
    return json.dumps(value, sort_keys=True).encode("ascii")


def columns_crc(columns: Sequence[Mapping[str, Any]], n_rows: int | None = None) -> int:
    """Return the checksum over the columns array (cstore.md 4.3); with `n_rows` that of layout A (section 12)."""
    covered: dict[str, Any] = {"columns": list(columns)}
    if n_rows is not None:
        covered["n_rows"] = n_rows
    return zlib.crc32(sorted_json(covered))


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype under which values of `dtype` stand in a file (cstore.md section 5).

    Little-endian; zero-width strings widened to one character.

    Raises
    ------
    TypeError
        If values of this dtype cannot be stored.
    """
    if dtype.kind not in STORABLE_KINDS or dtype.subdtype is not None:
        raise TypeError(
            f"values of dtype {dtype} cannot be stored; use a boolean, integer, float, datetime, timedelta, "
            "bytes or unicode dtype"
        )
    if dtype.itemsize == 0:
        return np.dtype(f"{'|' if dtype.kind == 'S' else '<'}{dtype.kind}1")
    # Not newbyteorder: NumPy 2 leaves big-endian timedelta64 without a unit as it is.
    return np.dtype(f"<{dtype.str[1:]}") if dtype.str[0] == ">" else dtype


def column_object(name: str, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the plain column object of the manifest, keys in their fixed order (cstore.md 4.2).

    Raises
    ------
    TypeError
        If `name` is no string, or values of `dtype` cannot be stored.
    """
    if not isinstance(name, str):
        raise TypeError(f"column names must be strings, got {name!r}")
    try:
        text = stored_dtype(dtype).str
    except TypeError as exc:
        raise TypeError(f"column {name!r}: {exc}") from None
    return {"name": str(name), "dtype": text, "encoding": "raw", "nullable": False}


def encode_manifest(columns: Sequence[Mapping[str, Any]], extra: Any = None) -> bytes:
    """Return the manifest text of a new file.

    Parameters
    ----------
    columns : sequence of dict
        Column objects in file order, written as they are (keys in their order).
    extra : object, optional
        Value of the top-level key ``colstore_io``, its ``crc32`` included; the key is left out for ``None``.

    Returns
    -------
    bytes
        ASCII, byte-identical to what other writers of the format make of the same columns.
    """
    manifest: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "columns": list(columns),
        "manifest_crc32": columns_crc(columns),
    }
    if extra is not None:
        manifest[EXTRA_KEY] = extra
    return json.dumps(manifest).encode("ascii")


@dataclass(frozen=True, slots=True)
class Manifest:
    """A parsed manifest that passed checks 6 to 10 of cstore.md section 11.

    Attributes
    ----------
    text : bytes
        As stored.
    columns : tuple of dict
        The column objects as parsed; every one has ``name`` and ``dtype``, of which nothing more is known yet.
    n_rows : int or None
        Layout A only.
    extra : object
        Value of the top-level key ``colstore_io``, unchecked; ``None`` when there is none.
    crc32 : int
        The checksum that the columns have, also where the manifest does not state it (cstore.md 4.3).
    """

    text: bytes
    columns: tuple[dict[str, Any], ...]
    n_rows: int | None
    extra: Any
    crc32: int


def parse_manifest(text: bytes, *, offset: int, path: str, layout: str = "C") -> Manifest:
    """Parse and check a manifest (cstore.md section 11, checks 6 to 10).

    A key that stands twice in one object counts with its last value, as in every common JSON reader; the
    checksum covers what was parsed, so it notices where this differs from what was meant.

    Raises
    ------
    FormatError
        If it is not UTF-8 JSON of the expected form, or its checksum does not fit.
    """

    def refuse(message: str) -> FormatError:
        return FormatError(message, path=path, offset=offset, section="manifest")

    try:
        parsed = json.loads(text.decode("utf-8"))
    except UnicodeDecodeError as exc:
        raise refuse(f"not UTF-8 text (byte {exc.start} of it); the file is damaged") from None
    except RecursionError:
        raise refuse("JSON is nested too deeply") from None
    except ValueError as exc:  # JSONDecodeError, and integers beyond the interpreter's digit limit
        raise refuse(f"not JSON ({exc}); the file is damaged") from None
    if not isinstance(parsed, dict):
        raise refuse(f"JSON is {_json_type(parsed)}, expected an object")

    version = parsed.get("format_version")
    if isinstance(version, bool) or not isinstance(version, (int, float)) or version != FORMAT_VERSION:
        raise UnsupportedFeatureError(
            f"format_version is {_shown(version)}, this library reads {FORMAT_VERSION}",
            path=path,
            offset=offset,
            section="manifest",
        )
    columns = parsed.get("columns")
    if not isinstance(columns, list):
        raise refuse("'columns' is missing or no array")
    for position, column in enumerate(columns):
        if not isinstance(column, dict) or "name" not in column or "dtype" not in column:
            raise refuse(f"column {position} is no object with a name and a dtype")

    n_rows = parsed.get("n_rows") if layout == "A" else None
    if layout == "A" and (isinstance(n_rows, bool) or not isinstance(n_rows, int)):
        raise refuse("'n_rows' is missing or no integer")
    stored_crc = parsed.get("manifest_crc32")
    try:
        actual = columns_crc(columns, n_rows)
    except RecursionError:
        raise refuse("JSON is nested too deeply") from None
    if stored_crc is not None and (
        isinstance(stored_crc, bool) or not isinstance(stored_crc, (int, float)) or stored_crc != actual
    ):
        raise refuse(
            f"checksum is {_shown(stored_crc)}, the columns give {actual}. The file is damaged; "
            "run 'colstore-io verify'"
        )
    return Manifest(text, tuple(columns), n_rows, parsed.get(EXTRA_KEY), actual)


def parse_dtype(text: object) -> np.dtype[Any]:
    """Return the dtype that a manifest names, in the byte order that it names.

    Raises
    ------
    ValueError
        If it is not text, not understood, of a kind that may not stand in a file, or has no width. Says why.
    """
    if not isinstance(text, str):
        raise ValueError(f"is {_json_type(text)}, expected a string")
    if len(text) > _MAX_DTYPE_TEXT or not _DTYPE_TEXT.fullmatch(text):
        raise ValueError(f"{_shown(text)} is no dtype of a plain column")
    return _dtype_named(text)


@functools.lru_cache(256)
def _dtype_named(text: str) -> np.dtype[Any]:
    # 'a' is NumPy's old name of 'S'; spelled out here because NumPy warns about it.
    plain = re.sub(r"^([<>|=]?)a(?=\d*$)", r"\1S", text)
    try:
        dtype: np.dtype[Any] = np.dtype(plain)
        step = np.datetime_data(dtype)[1] if dtype.kind in "mM" else 1
    except (TypeError, ValueError, OverflowError, SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is not understood by NumPy {np.__version__}") from None
    if dtype.kind not in STORABLE_KINDS:
        raise ValueError(f"{text!r} is of kind {dtype.kind!r}, which may not stand in a file")
    if dtype.itemsize == 0 or step == 0:
        raise ValueError(f"{text!r} has no width")
    return dtype


def physical_columns(
    objects: Sequence[Mapping[str, Any]], *, path: str | None = None, offset: int | None = None
) -> tuple[PhysicalColumn, ...]:
    """Turn column objects into columns (cstore.md section 11, checks 11 to 15).

    Raises
    ------
    FormatError
        If a dtype, a name or a reserved member is not what the format allows.
    """
    columns: list[PhysicalColumn] = []
    seen: set[str] = set()

    def refuse(message: str, kind: type[FormatError] = FormatError) -> FormatError:
        return kind(message, path=path, offset=offset, section="manifest")

    for position, column in enumerate(objects):
        name = column["name"]
        if not isinstance(name, str):
            raise refuse(f"name of column {position} is {_json_type(name)}, expected a string")
        try:
            dtype = parse_dtype(column["dtype"])
        except ValueError as exc:
            raise refuse(f"dtype of column {_shown(name)} {exc}") from None
        if name in seen:
            raise refuse(f"two columns are named {_shown(name)}")
        seen.add(name)
        encoding = column.get("encoding", "raw")
        if encoding != "raw":
            raise refuse(
                f"encoding of column {_shown(name)} is {_shown(encoding)}, only 'raw' is known",
                UnsupportedFeatureError,
            )
        if column.get("nullable", False):
            raise refuse(
                f"column {_shown(name)} is marked nullable, a reserved feature", UnsupportedFeatureError
            )
        columns.append(PhysicalColumn(name, dtype, column))
    return tuple(columns)


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return names.get(type(value), "an object")


def _shown(value: object) -> str:
    """`repr` for messages: bounded, and safe for integers beyond the interpreter's digit limit and deep nesting."""
    if isinstance(value, (list, dict)):
        return _json_type(value)
    if isinstance(value, int) and abs(value) >> 128:
        return "a huge number"
    text = ascii(value[:200] if isinstance(value, str) else value)
    return text if len(text) <= 120 else f"{text[:117]}..."
