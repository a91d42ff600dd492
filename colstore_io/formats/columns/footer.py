"""What a footer says: columns, row groups and chunks as arrays (columns.md 8.6 and 12.2).

A footer of 1000 row groups and 100 columns describes 100,000 chunks. None of them becomes a Python object: the kernel
writes flat records, and everything here works on whole arrays of them.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...fields import Field, Schema
from ...kernels import footers as kernel
from .frame import Prologue
from .gob import read_stream
from .tags import CHUNK_HEADER_BYTES, NUMPY_TYPES, Type

__all__ = ["CHUNK_RECORD", "Footer", "fingerprint_of", "parse_footer", "schema_of"]

_GROUP = np.dtype([("byte_offset", "=i8"), ("n_columns", "=i8"), ("n_rows", "=u4"), ("", "V4")])
CHUNK_RECORD = np.dtype(
    [
        ("byte_length", "=i8"),
        ("tokenizer", "=i8"),
        ("null_count", "=u4"),
        ("min_start", "=u4"),
        ("min_bytes", "=u4"),
        ("max_start", "=u4"),
        ("max_bytes", "=u4"),
        ("min_len", "=u4"),
        ("max_len", "=u4"),
        ("encoding", "u1"),
        ("codec", "u1"),
        ("", "V2"),
    ]
)
"""Records of ``gob.h``."""

_GROUP_BYTES, _CHUNK_BYTES = _GROUP.itemsize, CHUNK_RECORD.itemsize
_KNOWN_TYPES = bytes(Type)

_UNORDERED = 7  # not a fault: row groups that must be sorted before they can be compared

_FAULTS = {
    1: "the footer ends inside a value",
    2: "an integer of more than 8 bytes",
    3: "a field number past the field list",
    4: "a number that its field cannot hold",
    5: "a length or count above what is left",
    6: "values are nested too deep",
    7: "an unknown field of interface type, which is not supported",
    8: "an array whose count is not its length",
}


class Footer(NamedTuple):
    """Everything a footer says, checked as far as a footer alone can be.

    Attributes
    ----------
    data : memoryview
        The footer's bytes; bounds of statistics are positions in it.
    names : tuple of bytes
        Column names as stored: any bytes, not necessarily distinct.
    types : ndarray of uint8, shape (C,)
    nullable : ndarray of bool, shape (C,)
    n_rows : ndarray of int64, shape (R,)
        Rows of each row group.
    group_start : ndarray of int64, shape (R,)
        File offset of each row group.
    chunks : structured ndarray, shape (R, C)
        ``byte_length``, ``null_count``, ``min_start``, ``min_bytes``, ``max_start``, ``max_bytes``, ``min_len``,
        ``max_len``, ``encoding``, ``codec``, ``tokenizer``.
    chunk_start : ndarray of int64, shape (R, C)
        File offset of each chunk.
    start, stop : int
        File offsets of the footer itself.
    """

    data: memoryview
    names: tuple[bytes, ...]
    types: NDArray[np.uint8]
    nullable: NDArray[np.bool_]
    n_rows: NDArray[np.int64]
    group_start: NDArray[np.int64]
    chunks: NDArray[Any]
    chunk_start: NDArray[np.int64]
    start: int
    stop: int

    @classmethod
    def of_parts(
        cls,
        data: memoryview,
        start: int,
        columns: tuple[tuple[bytes, ...], bytes, bytes],
        chunks: bytearray,
        places: NDArray[np.int64],
    ) -> Footer:
        """Return the footer that the kernel has read.

        Parameters
        ----------
        data : memoryview
        start : int
        columns : (tuple of bytes, bytes, bytes)
            Names, types and whether they may have nulls.
        chunks : bytearray
            `CHUNK_RECORD` of all chunks, row group by row group.
        places : ndarray of int64, shape (3 * R + R * C,)
            As ``kernels.footers.place_chunks`` gives them: rows, beginning and end of each row group, beginning of each
            chunk.
        """
        names, kinds, flags = columns
        n_groups = (len(places) - len(chunks) // _CHUNK_BYTES) // 3
        shape = (n_groups, len(names))
        return cls(
            data,
            names,
            np.frombuffer(kinds, np.uint8),
            np.frombuffer(flags, np.bool_),
            places[:n_groups],
            places[n_groups : 2 * n_groups],
            np.ndarray(shape, CHUNK_RECORD, chunks),
            places[3 * n_groups :].reshape(shape),
            start,
            start + len(data),
        )

    @property
    def n_columns(self) -> int:
        return len(self.names)

    @property
    def n_groups(self) -> int:
        return len(self.n_rows)

    @property
    def fingerprint(self) -> bytes:
        """See `fingerprint_of`."""
        return fingerprint_of(self.data)


def fingerprint_of(footer: memoryview) -> bytes:
    """Return a hash of a footer: each state of a file has another one. (SHA-256 has instructions of its own.)"""
    return hashlib.sha256(footer).digest()[:16]


def parse_footer(data: memoryview, *, start: int, prologue: Prologue, path: str, max_rows: int) -> Footer:
    """Read and check a footer.

    Parameters
    ----------
    data : memoryview
        Its bytes.
    start : int
        File offset of the first of them.
    prologue : Prologue
    path : str
        For messages.
    max_rows : int
        Rows that a row group may claim.

    Raises
    ------
    FormatError
        For a stream that is no footer (8.4), and for what 12.2 advises to refuse: row groups whose chunks are not as
        many as the columns, overlap, or leave the space between prologue and footer; unknown types; more nulls than
        rows, or nulls where none may be; references to tokenizers that the file does not list.
    """
    stream = read_stream(data, path=path, base=start)
    code, pos, names, kinds, flags, groups, chunks = kernel.parse_footer(
        data, stream.start, stream.stop, stream.tables.compiled
    )
    if code:
        if code not in _FAULTS:
            raise MemoryError
        raise FormatError(_FAULTS[code], path=path, offset=start + pos, section="footer")
    if kinds.translate(None, _KNOWN_TYPES):
        name, kind = next(x for x in zip(names, kinds, strict=True) if x[1] not in _KNOWN_TYPES)
        raise FormatError(
            f"column {_shown(name)} has type {kind}; types are 1 to 13",
            path=path,
            offset=start,
            section="footer",
        )
    n_groups = len(groups) // _GROUP_BYTES
    places = np.empty(3 * n_groups + len(chunks) // _CHUNK_BYTES, np.int64)
    code, group, column = kernel.place_chunks(
        groups, chunks, flags, prologue.end, start, len(prologue.digests), max_rows, places
    )
    if code not in (0, _UNORDERED):
        _refuse(code, group, column, groups, chunks, names, (prologue.end, start), max_rows, path)
    footer = Footer.of_parts(data, start, (names, kinds, flags), chunks, places)
    if code == _UNORDERED:
        _check_overlaps(footer.group_start, places[2 * n_groups : 3 * n_groups], path)
    return footer


def _refuse(
    code: int,
    group: int,
    column: int,
    groups_raw: bytearray,
    chunks_raw: bytearray,
    names: tuple[bytes, ...],
    space: tuple[int, int],
    max_rows: int,
    path: str,
) -> NoReturn:
    """Say what `place_chunks` found."""
    groups, chunks = np.frombuffer(groups_raw, _GROUP), np.frombuffer(chunks_raw, CHUNK_RECORD)
    where = f"row group {group}"
    if code == 1:
        message = f"{int(groups['n_columns'][group])} chunks, the schema has {len(names)} columns"
    elif code == 3:
        low, high = space
        message = (
            f"the row group at offset {int(groups['byte_offset'][group])} does not lie between the prologue (to {low}) "
            f"and the footer (from {high})"
        )
    elif code == 6:
        limit = f"at most {max_rows} are allowed (max_rows)" if names else "but no columns"
        message = f"{int(groups['n_rows'][group])} rows, {limit}"
    else:
        where = f"{where}, column {_shown(names[column])}"
        chunk = chunks[group * len(names) + column]
        if code == 2:
            message = (
                f"a chunk of {int(chunk['byte_length'])} bytes; its header alone has {CHUNK_HEADER_BYTES}"
            )
        elif code == 4:
            message = f"{int(chunk['null_count'])} nulls in {int(groups['n_rows'][group])} rows, or in a column without"
        else:
            message = f"tokenizer {int(chunk['tokenizer'])}, which the file does not list"
    raise FormatError(message, path=path, section=where)


def _check_overlaps(starts: NDArray[np.int64], ends: NDArray[np.int64], path: str) -> None:
    """Compare row groups that are not in file order."""
    order = np.argsort(starts, kind="stable")
    clash = np.flatnonzero(ends[order[:-1]] > starts[order[1:]])
    if len(clash):
        at = int(order[1:][clash[0]])
        raise FormatError(
            "the row group begins inside another one",
            path=path,
            offset=int(starts[at]),
            section=f"row group {at}",
        )


def schema_of(footer: Footer, *, text: bool = True) -> Schema:
    """Return the schema that a user sees; files of equal columns that are opened one after the other share it.

    Names are bytes in the file: they are decoded as UTF-8, and what is not UTF-8 becomes lone surrogates
    (``surrogateescape``). The format allows several columns of one name; the second is called ``name#2``, the third
    ``name#3``, and so on, skipping names that are taken. Without `text`, columns of type string are binary.
    """
    make = _schema if len(footer.names) <= _KEPT_COLUMNS else _schema.__wrapped__
    return make(footer.names, footer.types.tobytes(), footer.nullable.tobytes(), text)


_KEPT_COLUMNS = 256
"""Columns up to which a schema is kept."""


@lru_cache(maxsize=32)
def _schema(stored: tuple[bytes, ...], types: bytes, nullable: bytes, text: bool) -> Schema:
    texts = [name.decode("utf-8", "surrogateescape") for name in stored]
    names = texts if len(set(texts)) == len(texts) else _distinct(texts)
    kinds = _FIELD_KINDS if text else _FIELD_KINDS_BINARY
    nothing: dict[str, Any] = {}  # one for all of them, as of files with equal manifests
    fields = [
        Field(name, *kinds[number], None, None, None, nothing, flag != 0)
        for name, number, flag in zip(names, types, nullable, strict=True)
    ]
    return Schema(tuple(fields))


def _distinct(texts: list[str]) -> list[str]:
    """Number names that are there more than once."""
    taken = set(texts)
    seen: dict[str, int] = {}
    names = []
    for stored in texts:
        name = stored
        if stored in seen:
            count = seen[stored] + 1
            while f"{stored}#{count}" in taken:
                count += 1
            seen[stored] = count
            name = f"{stored}#{count}"
            taken.add(name)
        else:
            seen[stored] = 1
        names.append(name)
    return names


def _field_kinds(string: str) -> list[tuple[Any, None, str | None]]:
    """Return dtype, validity and logical type of fields by the number of their type; of type string as `string`."""
    kinds: list[tuple[Any, None, str | None]] = [(None, None, None)]  # there is no type 0
    for kind in Type:
        if kind.fixed:
            kinds.append((NUMPY_TYPES[kind], None, None))
        else:
            kinds.append((np.dtype(object), None, string if kind is Type.STRING else "binary"))
    return kinds


_FIELD_KINDS, _FIELD_KINDS_BINARY = _field_kinds("string"), _field_kinds("binary")


def _shown(name: bytes) -> str:
    text = repr(name.decode("utf-8", "backslashreplace"))
    return text if len(text) <= 60 else f"{text[:57]}..."
