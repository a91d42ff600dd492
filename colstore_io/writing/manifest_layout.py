"""A data file as its generation manifest describes it, so that a plan is made without opening the file.

`file_entry` turns what a header says into a `FileEntry`, `shard_meta` turns it back.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError
from ..fields import PhysicalColumn, Schema
from ..formats import READ_DEFAULTS, ReadOptions, ShardMeta, Statistics
from ..formats.cstore.extras import schema_from_columns
from ..formats.cstore.footer import decode_statistics, encode_statistics, statistics_entries
from ..formats.cstore.manifest import physical_columns
from ..formats.cstore.records import BODY_ALIGNMENT, RECORD_HEADER_SIZE
from .manifest_json import FileEntry, GenerationManifest

__all__ = ["file_entry", "schema_objects", "shard_meta", "shard_metas"]


def schema_objects(meta: ShardMeta) -> tuple[Mapping[str, Any], ...]:
    """Return the column objects of a file, for `GenerationManifest.schema`."""
    return tuple(column.manifest for column in meta.columns)


def file_entry(
    meta: ShardMeta,
    path: str,
    *,
    schema: Sequence[Mapping[str, Any]],
    partition: Mapping[str, Any] | None = None,
) -> FileEntry:
    """Describe a data file. The entry of a `.cstore` or columns file tells all that its header does.

    Parameters
    ----------
    meta : ShardMeta
    path : str
        Relative to the directory of the manifest.
    schema : sequence of mapping
        Column objects of the manifest; a file that has others carries its own.
    partition : mapping, optional
    """
    if meta.format != "cstore":
        remembered = None
        if meta.format == "columns":  # the module of a format is loaded by its files alone
            from ..formats.columns.remembered import remember

            remembered = remember(meta)
        return FileEntry(path, meta.file_size, 1, meta.n_rows, remembered, partition)
    layout: dict[str, Any] = {
        "version": meta.layout,
        "rows": _run_lengths(meta.record_rows),
        "begin": int(meta.body_start[0]) if meta.n_records else meta.committed_end,
        "end": meta.committed_end,
        "fingerprint": meta.fingerprint.hex(),
    }
    own = schema_objects(meta)
    if list(own) != list(schema):
        layout["columns"] = [dict(column) for column in own]
    stats = None
    if meta.statistics is not None and meta.n_records:
        entries = statistics_entries(meta.statistics, meta.columns, meta.n_records)
        stats = base64.b64encode(encode_statistics(meta.columns, entries)).decode("ascii")
    return FileEntry(path, meta.file_size, meta.n_records, meta.n_rows, layout, partition, stats)


def _run_lengths(rows: NDArray[np.int64]) -> list[list[int]]:
    """Return ``[[rows, how many records in a row], ...]``."""
    if not len(rows):
        return []
    starts = np.concatenate(([0], np.flatnonzero(np.diff(rows)) + 1, [len(rows)]))
    return [
        [int(rows[a]), int(b - a)] for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    ]


def shard_metas(
    manifest: GenerationManifest, paths: Sequence[str], options: ReadOptions = READ_DEFAULTS
) -> Sequence[ShardMeta] | None:
    """Return what the headers of all data files say, from the manifest alone; None when it does not tell.

    Parameters
    ----------
    manifest : GenerationManifest
    paths : sequence of str
        The data files as the user spells them, for messages.
    options : ReadOptions, optional
        For formats whose columns are decoded.

    Raises
    ------
    FormatError
        If an entry contradicts itself.
    """
    if manifest.format == "columns":
        return _columns_metas(manifest, paths, options)
    if manifest.format != "cstore" or any(entry.layout is None for entry in manifest.files):
        return None
    common: tuple[tuple[PhysicalColumn, ...], Schema] | None = None
    metas = []
    for entry, path in zip(manifest.files, paths, strict=True):
        shared = entry.layout is not None and "columns" not in entry.layout
        meta = shard_meta(entry, manifest, path=path, known=common if shared else None)
        if meta is None:
            return None
        if shared:
            common = meta.columns, meta.schema
        metas.append(meta)
    return metas


def _columns_metas(
    manifest: GenerationManifest, paths: Sequence[str], options: ReadOptions
) -> list[ShardMeta] | None:
    if options.strict:
        return None  # looks at what only the files tell in time
    from ..formats.columns.remembered import recall

    schemas: dict[Any, Schema] = {}
    metas = []
    for entry, path in zip(manifest.files, paths, strict=True):
        meta = None
        if entry.layout is not None:
            meta = recall(entry.layout, path=path, size=entry.size, options=options, schemas=schemas)
        if meta is None or meta.n_rows != entry.rows:
            return None
        metas.append(meta)
    return metas


def shard_meta(
    entry: FileEntry,
    manifest: GenerationManifest,
    *,
    path: str,
    known: tuple[tuple[PhysicalColumn, ...], Schema] | None = None,
) -> ShardMeta | None:
    """Return what the header of a data file says, from its entry alone; None when the entry does not tell.

    Parameters
    ----------
    path : str
        The data file as the user spells it, for messages.
    known : tuple of columns and schema, optional
        What another file with the columns of the manifest has, to be shared.

    Raises
    ------
    FormatError
        If the entry contradicts itself.

    Notes
    -----
    Nothing here is proof of what the file holds: a reader compares size and fingerprint when it opens it.
    """
    layout = entry.layout
    if layout is None or manifest.format != "cstore":
        return None

    def refuse(message: str) -> FormatError:
        return FormatError(f"its entry in {manifest.name} {message}", path=path, section="layout")

    version = layout.get("version")
    if version not in ("A", "B", "C"):
        raise refuse("names no known layout")
    objects = layout.get("columns", list(manifest.schema))
    if not isinstance(objects, list) or not all(
        isinstance(o, dict) and {"name", "dtype"} <= o.keys() for o in objects
    ):
        raise refuse("has no array of column objects")
    columns = physical_columns(objects, path=path) if known is None else known[0]
    row_bytes = sum(column.itemsize for column in columns)
    begin, end = layout.get("begin"), layout.get("end")
    if not _is_offset(begin, entry.size) or not _is_offset(end, entry.size):
        raise refuse("has offsets beyond the size of the file")
    rows = _expanded(layout.get("rows"), entry)
    if rows is None:
        raise refuse("has record lengths that do not fit its counts")
    body = -(-(rows * row_bytes) // BODY_ALIGNMENT) * BODY_ALIGNMENT
    start = int(begin) + np.concatenate(([0], np.cumsum(body + RECORD_HEADER_SIZE)))
    expected = int(start[-1]) - (RECORD_HEADER_SIZE if len(rows) else 0)
    if version != "A" and expected != end:
        raise refuse(f"ends at {end}, its records end at {expected}")
    try:
        fingerprint = bytes.fromhex(layout.get("fingerprint", ""))
    except (TypeError, ValueError):
        raise refuse("has no fingerprint") from None
    return ShardMeta(
        format="cstore",
        layout=version,
        path=path,
        columns=columns,
        schema=schema_from_columns(columns, path=path).schema if known is None else known[1],
        record_rows=rows,
        body_start=start[:-1].astype(np.int64),
        committed_end=int(end),
        statistics=_statistics(entry, columns),
        fingerprint=fingerprint,
        file_size=entry.size,
    )


def _is_offset(value: Any, size: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= size


def _expanded(runs: Any, entry: FileEntry) -> NDArray[np.int64] | None:
    """Return rows per record, or None when `runs` is not what the entry's counts say."""
    # Every record takes a header: this bounds the array before it is made.
    if not isinstance(runs, list) or entry.records * RECORD_HEADER_SIZE > entry.size + RECORD_HEADER_SIZE:
        return None
    counts: list[tuple[int, int]] = []
    for run in runs:
        if not isinstance(run, list) or len(run) != 2 or not all(_is_offset(value, 2**62) for value in run):
            return None
        counts.append((run[0], run[1]))
    if sum(n for _, n in counts) != entry.records or sum(rows * n for rows, n in counts) != entry.rows:
        return None
    if any(rows > entry.size for rows, _ in counts):  # a row has at least one byte, or there are no columns
        return None
    lengths = np.array([rows for rows, _ in counts], np.int64)
    return np.repeat(lengths, [n for _, n in counts]).astype(np.int64)


def _statistics(entry: FileEntry, columns: Sequence[PhysicalColumn]) -> Statistics | None:
    if not isinstance(entry.stats, str):
        return None
    try:
        footer = base64.b64decode(entry.stats, validate=True)
    except (ValueError, binascii.Error):
        return None
    return decode_statistics(footer, columns, entry.records)
