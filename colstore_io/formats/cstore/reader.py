"""Headers, record indexes and statistics of many files at once.

`read_metadata` takes opened files with their first bytes and gives back what they hold. Everything that more than
the first bytes are needed for is fetched for all files together: one round for headers longer than that, one (or a
few, when records are irregular) for record headers, one for statistics.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ...errors import FormatError, TruncatedFileError
from ...fields import PhysicalColumn, Schema
from ...storage import ByteFile, HeadBlock, LocalFiles, RemoteFile, listed_beside, read_ranges
from .. import ShardMeta
from .alike import read_alike, read_block
from .assumed import assumed_records
from .extras import SchemaReading, schema_from_columns
from .footer import FooterLayout
from .header import FORMAT_VERSION, Header, ManifestCache, MoreBytes, parse_header
from .manifest import Manifest, physical_columns
from .records import RECORD_HEADER_SIZE, RecordIndex, RecordWalk, walk_all
from .sidecar import INDEX_SUFFIX, MIN_RECORDS, read_record_index

__all__ = ["HeaderColumn", "HeaderInfo", "inspect_file", "read_header", "read_metadata", "read_statistics"]

_ALIKE_FROM = 4
"""Files from which on comparing them with the first one pays."""

StatisticsPolicy = Literal["near", "all", "none"]


@dataclass(frozen=True, slots=True)
class _Table:
    """What a manifest makes of a file, shared by all files that have the same one."""

    columns: tuple[PhysicalColumn, ...]
    reading: SchemaReading
    row_bytes: int
    fingerprint: bytes


class _Tables:
    """Manifests already understood, for the length of one call."""

    def __init__(self) -> None:
        self.manifests: ManifestCache = {}
        self._tables: dict[tuple[str, bytes], _Table] = {}

    def table(self, header: Header, path: str) -> _Table:
        key = (header.layout, header.manifest.text)
        table = self._tables.get(key)
        if table is None:
            table = _kept_tables.get(key)
            if table is None:
                table = _understand(header, path)
                _keep(key, table)
            self._tables[key] = table
            for warning in table.reading.warnings:
                warnings.warn(f"{path}: {warning}", RuntimeWarning, stacklevel=4)
        return table


_KEPT_TABLES = 32
_KEPT_TEXT = 16 << 10
_kept_tables: dict[tuple[str, bytes], _Table] = {}
"""Short manifests that were understood by earlier calls: a table is opened again and again. Emptied when it is full."""


def _keep(key: tuple[str, bytes], table: _Table) -> None:
    schema = table.reading.schema
    if len(key[1]) > _KEPT_TEXT or schema.attrs or any(field.attrs for field in schema):
        return  # attributes are mappings, which somebody might change
    if len(_kept_tables) >= _KEPT_TABLES:
        _kept_tables.clear()
    _kept_tables[key] = table


def _understand(header: Header, path: str) -> _Table:
    """Checks 11 to 15 of cstore.md section 11, and the extra key."""
    manifest, offset = header.manifest, header.manifest_offset
    columns = physical_columns(manifest.columns, path=path, offset=offset)
    reading = schema_from_columns(columns, manifest.extra, path=path, offset=offset)
    return _Table(columns, reading, sum(c.itemsize for c in columns), _fingerprint(header.layout, manifest))


def _fingerprint(layout: str, manifest: Manifest) -> bytes:
    return hashlib.blake2b(layout.encode() + manifest.text, digest_size=16).digest()


def read_metadata(
    files: Sequence[ByteFile],
    heads: Sequence[memoryview],
    *,
    statistics: StatisticsPolicy = "near",
    index: bool = False,
    assume: bool = False,
) -> Sequence[ShardMeta]:
    """Return what the files hold: columns, records, and statistics if they are asked for.

    Parameters
    ----------
    files : sequence of ByteFile
    heads : sequence of buffer
        First bytes of each file; all of it, if it is short.
    statistics : {"near", "all", "none"}, optional
        Which footers to read: those of files on this machine or inside the first bytes (the default), all of
        them (one more round for files elsewhere), or none.
    index : bool, optional
        Take the places of many records from the index beside a file, where there is one that fits. For readers:
        whoever writes or verifies looks at the records themselves.
    assume : bool, optional
        Leave the headers of records of one size in a remote file until values behind them are read: see `assumed`. For
        those who read through `storage.read_ranges`, which looks at them.

    Returns
    -------
    sequence of ShardMeta
        In the order of `files`. Files with equal manifests share columns and schema (the same objects).

    Raises
    ------
    FormatError
        Whatever cstore.md section 11 requires, naming file, section and byte offset.

    Warns
    -----
    RuntimeWarning
        If an extra key has no matching checksum (cstore.md 4.2); once for each distinct manifest.
    """
    tables = _Tables()
    metas: Sequence[ShardMeta]
    if len(files) < _ALIKE_FROM or not _is_model(files[0], heads[0], tables):
        metas, heads = _read_each(files, heads, tables, index=index, assume=assume)
    else:
        # The first file says what most of the others will say again.
        (model,), (head,) = _read_each(files[:1], heads[:1], tables, index=index, assume=assume)
        if isinstance(heads, HeadBlock) and isinstance(files, LocalFiles):
            together = read_block(model, files, heads)
            if together is not None and (statistics == "none" or not together.may_have_statistics):
                return together
        siblings = read_alike(model, files, [head, *heads[1:]])
        others = [i for i in range(1, len(files)) if siblings[i] is None]
        read, longer = _read_each(
            [files[i] for i in others], [heads[i] for i in others], tables, index=index, assume=assume
        )
        known, heads = dict(zip(others, read, strict=True)), [head, *heads[1:]]
        for i, block in zip(others, longer, strict=True):
            heads[i] = block
        metas = [model, *(sibling or known[i] for i, sibling in enumerate(siblings[1:], 1))]
    if statistics == "none":
        return metas
    return _with_statistics(files, metas, heads, everything=statistics == "all")


def _is_model(file: ByteFile, head: memoryview, tables: _Tables) -> bool:
    """Whether the first bytes of a file hold all there is to know: then other files can be compared with them."""
    try:
        header = parse_header(head, size=file.size, path=file.spelling, manifests=tables.manifests)
    except FormatError:
        return False
    return (
        isinstance(header, Header)
        and (header.layout, header.n_records) == ("C", 1)
        and len(head) >= header.data_offset + RECORD_HEADER_SIZE
    )


def _read_each(
    files: Sequence[ByteFile], heads: Sequence[memoryview], tables: _Tables, *, index: bool, assume: bool
) -> tuple[list[ShardMeta], list[memoryview]]:
    """Return what each file holds, without statistics, and its first bytes as far as they had to be fetched."""
    if not files:
        return [], []
    headers, known = _read_headers(files, heads, tables)
    understood = [tables.table(h, f.spelling) for h, f in zip(headers, files, strict=True)]
    indexes = _read_records(files, known, headers, understood, index=index, assume=assume)
    return [_meta(*parts) for parts in zip(files, headers, understood, indexes, strict=True)], known


def _meta(file: ByteFile, header: Header, table: _Table, index: RecordIndex) -> ShardMeta:
    return ShardMeta(
        format="cstore",
        layout=header.layout,
        path=file.spelling,
        columns=table.columns,
        schema=table.reading.schema,
        record_rows=index.rows,
        body_start=index.body_start,
        committed_end=index.end,
        statistics=None,
        fingerprint=table.fingerprint,
        stats_offset=header.stats_offset,
        file_size=file.size,
        extra=header.manifest.extra,
        counters=header.counters,
        manifest_crc32=header.manifest.crc32,
    )


def inspect_file(file: ByteFile, head: memoryview) -> tuple[Header, SchemaReading, ShardMeta]:
    """Return header, schema and index of one file for a thorough check: without statistics and warnings.

    Raises
    ------
    FormatError
        As `read_metadata`.
    """
    (header,), heads = _read_headers([file], [head], _Tables())
    table = _understand(header, file.spelling)
    (index,) = _read_records([file], heads, [header], [table])
    return header, table.reading, _meta(file, header, table, index)


# ----------------------------------------------------------------------------------------------------------
# Headers


def _read_headers(
    files: Sequence[ByteFile], heads: Sequence[memoryview], tables: _Tables
) -> tuple[list[Header], list[memoryview]]:
    """Parse all headers, fetching in common rounds what the first bytes do not hold."""
    known = list(heads)
    headers: list[Header | None] = [None] * len(files)
    asked = dict.fromkeys(range(len(files)), 0)
    retried: set[int] = set()
    while asked:
        again: dict[int, int] = {}
        for i in asked:
            file = files[i]
            try:
                parsed = parse_header(
                    known[i], size=file.size, path=file.spelling, manifests=tables.manifests
                )
            except FormatError as exc:
                # A torn counters block may be a commit in this very moment: look once more (cstore.md 8.2).
                if exc.section != "counters" or isinstance(exc, TruncatedFileError) or i in retried:
                    raise
                retried.add(i)
                again[i] = -len(known[i])
                continue
            if isinstance(parsed, MoreBytes):
                if parsed.length <= len(
                    known[i]
                ):  # the parser asks for what it was given: never, but not for ever
                    raise FormatError(
                        "the header cannot be read", path=file.spelling, offset=0, section="header"
                    )
                again[i] = parsed.length
            else:
                headers[i] = parsed
        if again:
            places = {i: (0, -n) if n < 0 else (len(known[i]), n - len(known[i])) for i, n in again.items()}
            blocks = read_ranges([(files[i], start, length) for i, (start, length) in places.items()])
            for (i, (start, _)), block in zip(places.items(), blocks, strict=True):
                known[i] = memoryview(bytes(known[i]) + bytes(block)) if start else block
        asked = again
    return [header for header in headers if header is not None], known


# ----------------------------------------------------------------------------------------------------------
# Records


def _read_records(
    files: Sequence[ByteFile],
    heads: Sequence[memoryview],
    headers: Sequence[Header],
    tables: Sequence[_Table],
    *,
    index: bool = False,
    assume: bool = False,
) -> list[RecordIndex]:
    indexes: dict[int, RecordIndex] = {}
    asked = [i for i, header in enumerate(headers) if header.n_records >= MIN_RECORDS] if index else []
    may_have = listed_beside([files[i] for i in asked]) if asked else None
    walks: dict[int, RecordWalk] = {}
    for i, (file, header, table) in enumerate(zip(files, headers, tables, strict=True)):
        if header.layout == "A":
            indexes[i] = _only_block(file, header, table.row_bytes)
            continue
        walks[i] = RecordWalk(
            file.spelling,
            file.size,
            header.data_offset,
            header.n_records,
            header.committed_rows,
            table.row_bytes,
        )
        walks[i].begin(heads[i])
        if assume and isinstance(file, RemoteFile) and not walks[i].complete:
            known = walks[i].so_far()
            file.guard = guard = assumed_records(header, known, row_bytes=table.row_bytes, size=file.size)
            if guard is not None:
                indexes[i] = guard.index()
                del walks[i]
                continue
        if (
            may_have is not None
            and header.n_records >= MIN_RECORDS
            and not walks[i].complete
            and may_have(file, INDEX_SUFFIX)
        ):
            indexed = read_record_index(file, header, heads[i], walks[i].so_far(), row_bytes=table.row_bytes)
            if indexed is not None:
                indexes[i] = indexed
                del walks[i]
    walk_all(list(walks.values()), [files[i] for i in walks])
    for i, walk in walks.items():
        indexes[i] = walk.result()
    return [indexes[i] for i in range(len(files))]


def _only_block(file: ByteFile, header: Header, row_bytes: int) -> RecordIndex:
    """The one run of columns of a layout-A file, without record header and padding (cstore.md section 12)."""
    rows, start = header.committed_rows, header.data_offset
    if not 0 <= rows < 1 << 63:
        raise FormatError(
            f"n_rows is {rows}" if abs(rows) < 1 << 64 else "n_rows is huge",
            path=file.spelling,
            offset=header.manifest_offset,
            section="manifest",
        )
    end = start + rows * row_bytes
    if end > file.size:
        raise TruncatedFileError(
            f"{rows} rows of {row_bytes} bytes do not fit into a file of {file.size} bytes; it is cut short",
            path=file.spelling,
            offset=start,
            section="data",
        )
    return RecordIndex(np.array([rows], np.int64), np.array([start], np.int64), end)


# ----------------------------------------------------------------------------------------------------------
# Statistics


def read_statistics(files: Sequence[ByteFile], metas: Sequence[ShardMeta]) -> list[ShardMeta]:
    """Return `metas` with the statistics that the files have, fetched in one round for all of them.

    Advisory: a footer that is not exactly what this file's must be gives no statistics (cstore.md section 7).
    """
    return _with_statistics(files, metas, [memoryview(b"")] * len(files), everything=True)


def _with_statistics(
    files: Sequence[ByteFile], metas: Sequence[ShardMeta], heads: Sequence[memoryview], *, everything: bool
) -> list[ShardMeta]:
    footers: dict[int, memoryview] = {}
    wanted: list[int] = []
    layouts: dict[tuple[int, int], FooterLayout | None] = {}  # equal for files of equal manifests
    chosen: dict[int, FooterLayout] = {}
    for i, (file, meta, head) in enumerate(zip(files, metas, heads, strict=True)):
        if meta.statistics is not None or meta.stats_offset < meta.committed_end or meta.n_records == 0:
            continue
        key = (id(meta.columns), meta.n_records)
        if key not in layouts:
            layouts[key] = FooterLayout.of(meta.columns, meta.n_records)
        layout = layouts[key]
        if layout is None or meta.stats_offset + layout.size != meta.file_size:
            continue
        chosen[i] = layout
        if len(head) >= meta.file_size:
            footers[i] = head[meta.stats_offset : meta.file_size]
        elif everything or not _is_remote(file):
            wanted.append(i)
    if wanted:
        requests = [
            (files[i], metas[i].stats_offset, metas[i].file_size - metas[i].stats_offset) for i in wanted
        ]
        try:
            footers.update(zip(wanted, read_ranges(requests), strict=True))
        except (
            FormatError
        ):  # a writer may just be cutting a footer off: that costs its statistics, not the open
            for i, request in zip(wanted, requests, strict=True):
                with contextlib.suppress(FormatError):
                    footers[i] = read_ranges([request])[0]
    result = list(metas)
    for i, footer in footers.items():
        decoded = chosen[i].decode(footer)
        if decoded is not None:
            result[i] = replace(metas[i], statistics=decoded)
    return result


def _is_remote(file: ByteFile) -> bool:
    return file.location is not None and file.location.local_path is None


# ----------------------------------------------------------------------------------------------------------
# info() and schema()


@dataclass(frozen=True, slots=True)
class HeaderColumn:
    """A column object of the manifest, not checked beyond having a name and a dtype.

    Attributes
    ----------
    name : str
        Of a name that is no string, its JSON text: check 14 of cstore.md section 11 is not made here.
    manifest : dict
        As parsed.
    """

    name: str
    manifest: dict[str, Any]


@dataclass(frozen=True)
class HeaderInfo:
    """What the header alone says (cstore.md section 11, checks 1 to 10): nothing about dtypes or records is checked.

    Attributes
    ----------
    path : str
    layout : str
    format_version : int
    n_records, committed_rows : int
        As stored.
    file_size : int
    columns : tuple of HeaderColumn
        Every column of the file, companions included.
    """

    path: str
    layout: str
    format_version: int
    n_records: int
    committed_rows: int
    file_size: int
    columns: tuple[HeaderColumn, ...]
    manifest: Manifest

    @property
    def needs_compaction(self) -> bool:
        return self.n_records > 1

    @cached_property
    def schema(self) -> Schema:
        """The logical columns.

        Raises
        ------
        FormatError
            Checks 11 to 15, and the extra key.
        """
        columns = physical_columns(self.manifest.columns, path=self.path)
        reading = schema_from_columns(columns, self.manifest.extra, path=self.path)
        for warning in reading.warnings:
            warnings.warn(f"{self.path}: {warning}", RuntimeWarning, stacklevel=3)
        return reading.schema

    @property
    def fingerprint(self) -> bytes:
        """As `ShardMeta.fingerprint`: an append leaves it as it is."""
        return _fingerprint(self.layout, self.manifest)

    @property
    def names(self) -> list[str]:
        """Names of the logical columns, also where a dtype or an extra key is beyond repair: then all names."""
        try:
            return list(self.schema.names)
        except FormatError:
            return [column.name for column in self.columns]


def read_header(file: ByteFile, head: memoryview) -> HeaderInfo:
    """Return what the header of one file says, without looking at records.

    Raises
    ------
    FormatError
        Checks 1 to 10 of cstore.md section 11.
    """
    (header,), _ = _read_headers([file], [head], _Tables())
    return HeaderInfo(
        path=file.spelling,
        layout=header.layout,
        format_version=FORMAT_VERSION,
        n_records=header.n_records,
        committed_rows=header.committed_rows,
        file_size=file.size,
        columns=tuple(HeaderColumn(_name_text(c["name"]), c) for c in header.manifest.columns),
        manifest=header.manifest,
    )


def _name_text(name: object) -> str:
    # The checksum over the columns was taken of JSON text that holds this one: it has such a form.
    return name if isinstance(name, str) else json.dumps(name)
