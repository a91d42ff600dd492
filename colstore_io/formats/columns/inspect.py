"""What each chunk of a file is: for people who wonder where the bytes are."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...storage import ByteFile, read_ranges
from .. import ReadOptions
from ..inspection import Inspection
from .footer import Footer, schema_of
from .reader import HEAD_BYTES, read_footers
from .tags import CHUNK_HEADER_BYTES, NUMPY_TYPES, Codec, Encoding, Type

__all__ = ["bound", "inspect"]

_LENGTHS = struct.Struct("<6xIII")
_CHUNKS_AT_ONCE = 4096


def inspect(file: ByteFile) -> Inspection:
    """Describe the chunks of a file, in file order, from its footer and the chunks' headers (18 bytes each).

    Returns
    -------
    Inspection
        One row per chunk with ``row_group``, ``column``, ``type``, ``nullable``, ``encoding``, ``codec``, ``rows``,
        ``nulls``, ``raw`` (bytes of the encoded stream), ``stored`` (after compression), ``blocks``, ``minimum``,
        ``maximum``, ``min_len``, ``max_len``, ``tokenizer`` (digest), ``offset`` and ``bytes`` of the chunk in the
        file. Bounds are shown as stored, also where they cannot be trusted (section 9).

    Raises
    ------
    FormatError
        If prologue or footer are damaged. Chunks are not checked: ``verify`` does that.
    """
    head = file.read(0, min(HEAD_BYTES, file.size))
    (opened,) = read_footers([file], [head], max_rows=ReadOptions().max_rows)
    footer, prologue = opened.footer, opened.prologue
    names = schema_of(footer).names
    n_groups, n_columns = footer.n_groups, footer.n_columns
    chunks = footer.chunks.ravel()
    offsets = footer.chunk_start.ravel()
    lengths = _chunk_lengths(file, offsets)
    types = [Type(number) for number in footer.types.tolist()]
    which = [column for _ in range(n_groups) for column in range(n_columns)]
    rows = np.repeat(footer.n_rows, n_columns).tolist()
    digests = [None, *(digest.hex() for digest in prologue.digests)]
    title = (
        f"{file.spelling}: columns format, version {prologue.version}, {n_groups} row groups, {n_columns} columns, "
        f"{int(footer.n_rows.sum())} rows, {file.size} bytes, footer {len(footer.data)} bytes"
    )
    return Inspection(
        title,
        {
            "row_group": [group for group in range(n_groups) for _ in range(n_columns)],
            "column": [names[c] for c in which],
            "type": [types[c].name.lower() for c in which],
            "nullable": [bool(footer.nullable[c]) for c in which],
            "encoding": [_name(Encoding, tag) for tag in chunks["encoding"].tolist()],
            "codec": [_name(Codec, tag) for tag in chunks["codec"].tolist()],
            "rows": rows,
            "nulls": chunks["null_count"].tolist(),
            "raw": lengths[:, 0].tolist(),
            "stored": lengths[:, 1].tolist(),
            "blocks": lengths[:, 2].tolist(),
            "minimum": [
                bound(footer, chunk, types[c], "min") for chunk, c in zip(chunks, which, strict=True)
            ],
            "maximum": [
                bound(footer, chunk, types[c], "max") for chunk, c in zip(chunks, which, strict=True)
            ],
            "min_len": chunks["min_len"].tolist(),
            "max_len": chunks["max_len"].tolist(),
            "tokenizer": [digests[number] for number in chunks["tokenizer"].tolist()],
            "offset": offsets.tolist(),
            "bytes": chunks["byte_length"].tolist(),
        },
    )


def bound(footer: Footer, chunk: Any, kind: Type, which: str) -> Any:
    """Return a stored bound as a Python value; None where there is none, bytes where it makes no value."""
    start, size = int(chunk[f"{which}_start"]), int(chunk[f"{which}_bytes"])
    raw = bytes(footer.data[start : start + size])
    if kind.fixed:
        if not raw:
            return None
        return np.frombuffer(raw, NUMPY_TYPES[kind])[0].item() if size == NUMPY_TYPES[kind].itemsize else raw
    if kind is Type.STRING:
        return raw.decode("utf-8", "backslashreplace")
    return raw


def _name(tags: type[Encoding] | type[Codec], tag: int) -> str:
    try:
        return tags(tag).name.lower()
    except ValueError:
        return f"unknown ({tag})"


def _chunk_lengths(file: ByteFile, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return raw length, stored length and number of blocks of each chunk, shape (n, 3)."""
    lengths = np.zeros((len(offsets), 3), np.int64)
    for first in range(0, len(offsets), _CHUNKS_AT_ONCE):
        part = offsets[first : first + _CHUNKS_AT_ONCE].tolist()
        headers = read_ranges([(file, offset, CHUNK_HEADER_BYTES) for offset in part])
        for row, header in enumerate(headers, first):
            lengths[row] = _LENGTHS.unpack(header)
    return lengths
