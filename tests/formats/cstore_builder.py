"""Whole `.cstore` files in memory, put together from the encode side; and strategies for their contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from colstore_io.fields import Field, Schema
from colstore_io.formats import ShardMeta
from colstore_io.formats.cstore.encode import record_buffers, stored_array
from colstore_io.formats.cstore.extras import column_objects, top_level_extra
from colstore_io.formats.cstore.footer import encode_statistics, record_statistics
from colstore_io.formats.cstore.header import encode_header, encode_manifest
from colstore_io.formats.cstore.manifest import physical_columns
from colstore_io.formats.cstore.reader import read_metadata
from colstore_io.storage import MemoryFile

Table = dict[str, NDArray[Any]]


def schema_of(table: Table) -> Schema:
    return Schema(tuple(Field(name, values.dtype) for name, values in table.items()))


def build(
    records: Sequence[Table],
    *,
    schema: Schema | None = None,
    statistics: bool = False,
    n_rows: int | None = None,
) -> bytes:
    """Bytes of a file with these records (physical columns each)."""
    schema = schema if schema is not None else schema_of(records[0])
    columns = column_objects(schema)
    manifest = encode_manifest(columns, top_level_extra(schema.attrs))
    body: list[bytes] = []
    entries = []
    rows = 0
    for index, record in enumerate(records):
        arrays = [stored_array(values) for values in record.values()]
        count = len(arrays[0]) if arrays else (n_rows or 0)
        rows += count
        body += [bytes(part) for part in record_buffers(index, arrays, count)]
        entries.append(record_statistics(arrays))
    data_offset = len(encode_header(manifest, 0, 0))
    stats_offset = data_offset + sum(map(len, body)) if statistics and records else 0
    if stats_offset:
        body.append(encode_statistics(physical_columns(columns), entries))
    return encode_header(manifest, len(records), rows, stats_offset) + b"".join(body)


def read(data: bytes, spelling: str = "t.cstore") -> ShardMeta:
    """What a file in memory says."""
    file = MemoryFile(data, spelling=spelling)
    return read_metadata([file], [file.read(0, min(file.size, 64 << 10))])[0]


def values_of(data: bytes, meta: ShardMeta, name: str) -> NDArray[Any]:
    """One column, put together from the places that the metadata names."""
    column = meta.physical(name)
    parts = []
    for rows, start in zip(meta.record_rows.tolist(), meta.body_start.tolist(), strict=True):
        offset = start + rows * meta.column_prefix(name)
        end = offset + rows * column.itemsize
        assert end <= meta.committed_end <= len(data)
        parts.append(np.frombuffer(data[offset:end], column.dtype))
    return np.concatenate(parts) if parts else np.empty(0, column.dtype)


def header_of(
    columns: Sequence[Mapping[str, Any]] = (),
    *,
    manifest: bytes | None = None,
    records: int = 0,
    rows: int = 0,
) -> bytes:
    """A header alone, of column objects or of any text in place of the manifest."""
    text = encode_manifest(columns) if manifest is None else manifest
    return encode_header(text, records, rows)


NUMERIC = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")
TIMES = ("M8[s]", "M8[ns]", "M8[25s]", "M8[D]", "m8[us]", "m8")
STRINGS = ("S1", "S7", "U1", "U5")

names = st.one_of(
    st.text(max_size=8),
    st.text(alphabet=st.characters(), max_size=4),  # lone surrogates too
    st.sampled_from(
        ["", 'q"uote', "back\\slash", "tab\t\n\r\b\f", "nul\0z", "\x7f", "emoji 😀", "\ud800", "/", "é"]
    ),
)


@st.composite
def arrays(draw: st.DrawFn, n_rows: int, dtype: str) -> NDArray[Any]:
    """A column of any bits that the kind allows, now and then big-endian."""
    order = draw(st.sampled_from("<<<>"))
    if dtype == "m8":
        order = "<"  # NumPy 2 cannot swap this one, and the reference therefore stores it as it comes
    plain = np.dtype(f"{order if dtype not in ('i1', 'u1', 'b1') and dtype[0] != 'S' else '|'}{dtype}")
    if plain.kind == "b":
        return np.array(draw(st.lists(st.booleans(), min_size=n_rows, max_size=n_rows)), dtype=bool)
    if plain.kind == "U":
        texts = draw(st.lists(st.text(max_size=plain.itemsize // 4), min_size=n_rows, max_size=n_rows))
        return np.array(texts, dtype=plain)
    if plain.kind == "f":
        numbers = st.floats(width=plain.itemsize * 8) | st.sampled_from([0.0, -0.0, 1.5, float("nan")])
        return np.array(draw(st.lists(numbers, min_size=n_rows, max_size=n_rows)), dtype=plain)
    raw = draw(st.binary(min_size=n_rows * plain.itemsize, max_size=n_rows * plain.itemsize))
    return np.frombuffer(raw, plain).copy()


@st.composite
def tables(draw: st.DrawFn, *, max_records: int = 3) -> list[Table]:
    """One to `max_records` records of one schema."""
    columns = draw(
        st.lists(
            st.tuples(names, st.sampled_from(NUMERIC + TIMES + STRINGS)),
            min_size=1,
            max_size=6,
            unique_by=lambda column: column[0],
        )
    )
    sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=max_records))
    return [{name: draw(arrays(n, dtype)) for name, dtype in columns} for n in sizes]
