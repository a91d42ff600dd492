"""What a footer says: columns, row groups and chunks as arrays (columns.md 8.6 and 12.2).

A footer of 1000 row groups and 100 columns describes 100,000 chunks. None of them becomes a Python object: the kernel
writes flat records, and everything here works on whole arrays of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...fields import Field, Schema
from ...kernels import decode as kernel
from .frame import Prologue
from .gob import read_stream
from .tags import CHUNK_HEADER_BYTES, NUMPY_TYPES, Type

__all__ = ["Footer", "parse_footer", "schema_of"]

_COLUMN = np.dtype(
    [("name_start", "=u4"), ("name_bytes", "=u4"), ("type", "u1"), ("nullable", "u1"), ("", "V2")]
)
_GROUP = np.dtype([("byte_offset", "=i8"), ("n_columns", "=i8"), ("n_rows", "=u4"), ("", "V4")])
_CHUNK = np.dtype(
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


@dataclass(frozen=True, slots=True)
class Footer:
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
        ``byte_length``, ``null_count``, ``min_start``, ``min_bytes``, ``max_start``, ``max_bytes``, ``min_len``, ``max_len``,
        ``encoding``, ``codec``, ``tokenizer``.
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

    @property
    def n_columns(self) -> int:
        return len(self.names)

    @property
    def n_groups(self) -> int:
        return len(self.n_rows)

    @property
    def fingerprint(self) -> bytes:
        """Hash of the footer: no two states of a file share one, for a columns file is never appended to."""
        return hashlib.blake2b(self.data, digest_size=16).digest()


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
        For a stream that is no footer (8.4), and for what 12.2 advises to refuse: row groups whose chunks are not as many
        as the columns, overlap, or leave the space between prologue and footer; unknown types; more nulls than rows, or
        nulls where none may be; references to tokenizers that the file does not list.
    """
    stream = read_stream(data, path=path, base=start)
    code, pos, columns_raw, groups_raw, chunks_raw = kernel.parse_footer(
        data, stream.start, stream.stop, *stream.tables.arguments()
    )
    if code:
        if code not in _FAULTS:
            raise MemoryError
        raise FormatError(_FAULTS[code], path=path, offset=start + pos, section="footer")
    columns: NDArray[Any] = np.frombuffer(columns_raw, _COLUMN)
    groups: NDArray[Any] = np.frombuffer(groups_raw, _GROUP)
    chunks: NDArray[Any] = np.frombuffer(chunks_raw, _CHUNK)

    n_columns, n_groups = len(columns), len(groups)
    wrong = np.flatnonzero(groups["n_columns"] != n_columns)
    if len(wrong):
        at = int(wrong[0])
        raise FormatError(
            f"{int(groups['n_columns'][at])} chunks, the schema has {n_columns} columns",
            path=path,
            section=f"row group {at}",
        )
    chunks = chunks.reshape(n_groups, n_columns)
    names = tuple(
        bytes(data[c : c + n])
        for c, n in zip(columns["name_start"].tolist(), columns["name_bytes"].tolist(), strict=True)
    )
    unknown = np.flatnonzero((columns["type"] < Type.BOOL) | (columns["type"] > Type.STRING))
    if len(unknown):
        at = int(unknown[0])
        raise FormatError(
            f"column {_shown(names[at])} has type {int(columns['type'][at])}; types are 1 to 13",
            path=path,
            offset=start,
            section="footer",
        )
    footer = Footer(
        data,
        names,
        np.ascontiguousarray(columns["type"]),
        columns["nullable"] != 0,
        groups["n_rows"].astype(np.int64),
        groups["byte_offset"].copy(),
        chunks,
        _places(groups["byte_offset"], chunks["byte_length"], path, prologue.end, start),
        start,
        start + len(data),
    )
    _check_rows(footer, path, max_rows)
    _check_chunks(footer, path, len(prologue.digests))
    return footer


def schema_of(footer: Footer, *, text: bool = True) -> Schema:
    """Return the schema that a user sees.

    Names are bytes in the file: they are decoded as UTF-8, and what is not UTF-8 becomes lone surrogates
    (``surrogateescape``). The format allows several columns of one name; the second is called ``name#2``, the third
    ``name#3``, and so on, skipping names that are taken. Without `text`, columns of type string are binary.
    """
    texts = [name.decode("utf-8", "surrogateescape") for name in footer.names]
    taken = set(texts)
    seen: dict[str, int] = {}
    fields = []
    for text, number, nullable in zip(texts, footer.types.tolist(), footer.nullable.tolist(), strict=True):
        name = text
        if text in seen:
            count = seen[text] + 1
            while f"{text}#{count}" in taken:
                count += 1
            seen[text] = count
            name = f"{text}#{count}"
            taken.add(name)
        else:
            seen[text] = 1
        kind = Type(number)
        if kind.fixed:
            fields.append(Field(name, NUMPY_TYPES[kind], optional=nullable))
        else:
            logical = "string" if kind is Type.STRING and text else "binary"
            fields.append(Field(name, np.dtype(object), logical=logical, optional=nullable))
    return Schema(tuple(fields))


def _shown(name: bytes) -> str:
    text = repr(name.decode("utf-8", "backslashreplace"))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _places(
    group_start: NDArray[np.int64], lengths: NDArray[np.int64], path: str, low: int, high: int
) -> NDArray[np.int64]:
    """Return the file offset of each chunk; all lie in [low, high) and none overlaps another."""
    small = np.argwhere(lengths < CHUNK_HEADER_BYTES)
    if len(small):
        group, column = small[0].tolist()
        raise FormatError(
            f"a chunk of {int(lengths[group, column])} bytes; its header alone has {CHUNK_HEADER_BYTES}",
            path=path,
            section=f"row group {group}, column {column}",
        )
    n_groups, n_columns = lengths.shape
    # Compared before they are summed: no sum below overflows.
    bad = (group_start < low) | (group_start > high) if n_columns else np.zeros(n_groups, np.bool_)
    bad = bad | (lengths > high).any(axis=1)
    ends = np.zeros((n_groups, n_columns), np.int64)
    if not bad.any():
        # high is a file offset and the number of columns is below its square root or the file lies: use floats to see.
        if n_columns and float(high) * n_columns > 2.0**62:
            bad = lengths.astype(np.float64).sum(axis=1) > high
        if not bad.any():
            ends = np.cumsum(lengths, axis=1, dtype=np.int64) + group_start[:, None]
            bad = (ends[:, -1:] > high).any(axis=1)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise FormatError(
            f"the row group at offset {int(group_start[at])} does not lie between the prologue (to {low}) "
            f"and the footer (from {high})",
            path=path,
            section=f"row group {at}",
        )
    if n_columns and n_groups > 1:
        order = np.argsort(group_start, kind="stable")
        clash = np.flatnonzero(ends[order[:-1], -1] > group_start[order[1:]])
        if len(clash):
            at = int(order[1:][clash[0]])
            raise FormatError(
                "the row group begins inside another one",
                path=path,
                offset=int(group_start[at]),
                section=f"row group {at}",
            )
    return ends - lengths


def _check_rows(footer: Footer, path: str, max_rows: int) -> None:
    too_many = np.flatnonzero(footer.n_rows > (max_rows if footer.n_columns else 0))
    if len(too_many):
        at = int(too_many[0])
        what = f"at most {max_rows} are allowed (max_rows)" if footer.n_columns else "but no columns"
        raise FormatError(f"{int(footer.n_rows[at])} rows, {what}", path=path, section=f"row group {at}")


def _check_chunks(footer: Footer, path: str, n_tokenizers: int) -> None:
    chunks = footer.chunks
    if chunks.size == 0:
        return
    allowed = np.where(footer.nullable, footer.n_rows[:, None], 0)
    wrong = np.argwhere(chunks["null_count"] > allowed)
    if len(wrong):
        group, column = wrong[0].tolist()
        raise FormatError(
            f"{int(chunks['null_count'][group, column])} nulls, at most {int(allowed[group, column])} are possible",
            path=path,
            section=f"row group {group}, column {_shown(footer.names[column])}",
        )
    wrong = np.argwhere((chunks["tokenizer"] < 0) | (chunks["tokenizer"] > n_tokenizers))
    if len(wrong):
        group, column = wrong[0].tolist()
        raise FormatError(
            f"tokenizer {int(chunks['tokenizer'][group, column])} of {n_tokenizers}",
            path=path,
            section=f"row group {group}, column {_shown(footer.names[column])}",
        )
