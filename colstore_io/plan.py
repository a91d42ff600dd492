"""Many shards as one table: what there is, and where.

A `DatasetPlan` holds the schema, the segment table, and how each file lays out its columns. It is immutable, has no
open file and no statistics in it, and with the files' URLs and version tokens is all that another process needs to
read.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import FormatError, SchemaMismatchError
from .fields import Field, Schema
from .formats import Decoder, ShardMeta
from .formats.siblings import Siblings
from .segments import Segments, distinct, partition_rows

__all__ = [
    "NO_VALIDITY",
    "DatasetPlan",
    "FileEntry",
    "FileLayout",
    "OnMismatch",
    "Part",
    "build_plan",
    "merge_plans",
]

OnMismatch = Literal["strict", "drop"]

Part = tuple[int, bool]
"""What a kernel reads: (position of a field in the schema, False for its values or True for its validity)."""

_MAX_ROWS = (1 << 63) - 1

NO_VALIDITY = -1


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How one file lays out the fields of the dataset inside a segment.

    A chunk starts at ``body_start + rows * prefix`` (cstore.md section 6). Where chunks are decoded, `value_prefix` is
    the column's number in the file's decoder.

    Attributes
    ----------
    value_prefix : tuple of int, one per field
        Sum of the item sizes of the columns before the field's values.
    validity_prefix : tuple of int, one per field
        The same for its validity companion; -1 where this file has none (every row is valid).
    """

    value_prefix: tuple[int, ...]
    validity_prefix: tuple[int, ...]

    def prefix(self, part: Part) -> int:
        position, validity = part
        return self.validity_prefix[position] if validity else self.value_prefix[position]

    def columns(self, positions: Sequence[int]) -> list[int]:
        """Return the numbers of the fields at `positions` in the file's decoder."""
        return [self.value_prefix[p] for p in positions]

    def select(self, positions: Sequence[int]) -> FileLayout:
        return FileLayout(
            tuple(self.value_prefix[p] for p in positions), tuple(self.validity_prefix[p] for p in positions)
        )


class FileEntry(NamedTuple):
    """What a plan remembers of one file.

    Attributes
    ----------
    layout : int
        Number of its `FileLayout` in the plan.
    committed_end : int
        Bytes [0, committed_end) belong to the dataset; nothing past them is read.
    fingerprint : bytes
        Digest of the header parts that an append never changes.
    records, rows : int
        The file's counters when it was planned; an append never lowers them.
    """

    layout: int
    committed_end: int
    fingerprint: bytes
    records: int
    rows: int


def _pack_field(f: Field) -> tuple[Any, ...]:
    """Return what a field is, without what it is not: most are a name and a dtype."""
    packed = [
        f.name,
        f.dtype.str,
        f.validity,
        f.logical,
        f.tz,
        f.ordered,
        f.categories,
        dict(f.attrs) or None,
        f.optional or None,
    ]
    while packed[-1] is None:
        packed.pop()
    return tuple(packed)


def _unpack_field(packed: tuple[Any, ...]) -> Field:
    filled = packed + (None,) * (9 - len(packed))
    name, dtype, validity, logical, tz, ordered, categories, attrs, optional = filled
    return Field(
        name, np.dtype(dtype), validity, logical, tz, categories, ordered, attrs or {}, bool(optional)
    )


def _pack_layout(layout: FileLayout) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    companions = any(prefix != NO_VALIDITY for prefix in layout.validity_prefix)
    return layout.value_prefix, layout.validity_prefix if companions else None


def _unpack_layout(packed: tuple[tuple[int, ...], tuple[int, ...] | None]) -> FileLayout:
    values, validity = packed
    return FileLayout(values, (NO_VALIDITY,) * len(values) if validity is None else validity)


def _for_task(f: Field, categories: Collection[str]) -> Field:
    kept = f.categories if f.name in categories else None
    return replace(f, attrs={}, categories=kept) if f.attrs or f.categories != kept else f


@dataclass(frozen=True)
class DatasetPlan:
    """Everything needed to read a dataset, without an open file. Immutable and picklable.

    Attributes
    ----------
    format : str
    schema : Schema
    files : tuple of FileEntry
    layouts : tuple of FileLayout
    segments : Segments
    decoders : tuple of Decoder
        One for each file of a format whose chunks are decoded whole; empty where rows have addresses.
    """

    format: str
    schema: Schema
    files: tuple[FileEntry, ...]
    layouts: tuple[FileLayout, ...]
    segments: Segments
    decoders: tuple[Decoder, ...] = ()

    @property
    def n_rows(self) -> int:
        return self.segments.n_rows

    def __getstate__(self) -> tuple[Any, ...]:
        # Every task of a distributed computation carries one of these: names, addresses, and nothing twice.
        table = self.segments
        return (
            self.format,
            dict(self.schema.attrs),
            tuple(_pack_field(f) for f in self.schema),
            tuple((e.layout, e.committed_end, e.fingerprint, e.records, e.rows) for e in self.files),
            tuple(_pack_layout(layout) for layout in self.layouts),
            (
                table.file.astype("<i4").tobytes(),
                table.row_start.astype("<i8").tobytes(),
                table.body_start.astype("<i8").tobytes(),
            ),
            self.decoders,
        )

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        file_format, attrs, fields, files, layouts, segments, decoders = state
        file, row_start, body_start = segments
        table = Segments(
            np.frombuffer(file, "<i4").astype(np.int32),
            np.frombuffer(row_start, "<i8").astype(np.int64),
            np.frombuffer(body_start, "<i8").astype(np.int64),
        )
        restored: dict[str, Any] = {
            "format": file_format,
            "schema": Schema(tuple(_unpack_field(packed) for packed in fields), attrs),
            "files": tuple(FileEntry(*entry) for entry in files),
            "layouts": tuple(_unpack_layout(packed) for packed in layouts),
            "segments": table,
            "decoders": decoders,
        }
        for name, value in restored.items():
            object.__setattr__(self, name, value)

    @cached_property
    def digest(self) -> str:
        """Hash of schema, layouts and segments: what names this plan beside the tokens of its files."""
        # What a decoder says follows from the file's fingerprint, the fields and the segments.
        file_format, _, fields, files, layouts, segments, _ = self.__getstate__()
        described = repr((file_format, fields, files, layouts)).encode("utf-8", "surrogatepass")
        hasher = hashlib.blake2b(described, digest_size=16)
        for data in segments:
            hasher.update(data)
        return hasher.hexdigest()

    def row_bytes(self, names: Sequence[str] | None = None) -> int:
        """Return the bytes per row of the columns `names` (default: all), stored or, of encoded files, decoded."""
        names = self.schema.names if names is None else names
        if not self.decoders:
            return sum(self.schema[name].row_bytes for name in names)
        positions = [self.schema.index(name) for name in names]
        heaviest = 0.0
        for entry, decoder in zip(self.files, self.decoders, strict=True):
            columns = self.layouts[entry.layout].columns(positions)
            heaviest = max(heaviest, decoder.decoded_row_bytes(columns))
        return math.ceil(heaviest)

    def partitions(
        self,
        names: Sequence[str] | None = None,
        *,
        blocksize: int,
        merge_below: int | None = None,
        split: bool = True,
        across_files: bool = True,
    ) -> NDArray[np.int64]:
        """Return the row boundaries of partitions of about `blocksize` bytes of the columns `names`.

        The one rule that Dask partitions and xarray chunks share; see `segments.partition_rows`. Large segments stay
        whole without `split`; no partition spans two files without `across_files`.
        """
        segments = self.segments
        edges = [0, segments.n_segments]
        row_bytes = self.row_bytes(names)
        if not across_files:
            edges[1:1] = (np.flatnonzero(np.diff(segments.file)) + 1).tolist()
        bounds = [np.zeros(1, np.int64)]
        for low, high in pairwise(edges):
            first = segments.row_start[low]
            pieces = partition_rows(
                segments.row_start[low : high + 1] - first,
                row_bytes,
                blocksize=blocksize,
                merge_below=merge_below,
                addressable=split and not self.decoders,
            )
            bounds.append(first + pieces[1:])
        rows = np.concatenate(bounds)
        # A file without rows has no partition, unless nothing has any: then there is one, and it is empty.
        return distinct(rows) if rows[-1] else np.zeros(2, np.int64)

    def restrict(
        self, low: int, high: int, names: Sequence[str], *, categories: Collection[str] = ()
    ) -> DatasetPlan:
        """Return the plan of segments [low, high) and columns `names` alone: what one task needs.

        Attributes stay behind, and so do stored categories, unless `categories` names their column.
        """
        positions = [self.schema.index(name) for name in names]
        first, last = (
            (int(self.segments.file[low]), int(self.segments.file[high - 1])) if high > low else (0, -1)
        )
        entries = self.files[first : last + 1]
        fields = Schema(tuple(_for_task(self.schema.fields[p], categories) for p in positions))
        if self.decoders:
            return self._restrict_decoded(low, high, first, positions, fields)
        used = sorted({entry.layout for entry in entries})
        return DatasetPlan(
            self.format,
            fields,
            entries
            if used == [0]
            else tuple(entry._replace(layout=used.index(entry.layout)) for entry in entries),
            tuple(self.layouts[i].select(positions) for i in used),
            self.segments.take(low, high),
        )

    def _restrict_decoded(
        self, low: int, high: int, first_file: int, positions: Sequence[int], fields: Schema
    ) -> DatasetPlan:
        table = self.segments.take(low, high)
        decoders = []
        for number, entry in enumerate(
            self.files[first_file : first_file + int(table.file.max(initial=-1)) + 1]
        ):
            own = np.flatnonzero(self.segments.file == first_file + number)
            start = int(own[0]) if own.size else 0
            decoders.append(
                self.decoders[first_file + number].select(
                    max(low, start) - start,
                    min(high, start + own.size) - start,
                    self.layouts[entry.layout].columns(positions),
                )
            )
        entries = tuple(
            entry._replace(layout=0) for entry in self.files[first_file : first_file + len(decoders)]
        )
        layout = _decoded_layout(len(positions))
        return DatasetPlan(self.format, fields, entries, (layout,), table, tuple(decoders))


# ----------------------------------------------------------------------------------------------------------
# Building plans


def build_plan(metas: Sequence[ShardMeta], *, on_mismatch: OnMismatch = "strict") -> DatasetPlan:
    """Make the plan of files whose headers were read.

    Raises
    ------
    SchemaMismatchError
        If the files do not have the same columns (names as a set, dtypes as strings), naming the file.
    ValueError
        If `on_mismatch` is unknown, or ``"drop"`` leaves no column.
    """
    if not metas:
        return _empty_plan()
    if type(metas) is Siblings:
        return _plan_of_siblings(metas, on_mismatch)
    if len(metas) == 1:
        return _plan_of_one(metas[0], on_mismatch)
    schema = _reconcile([meta.schema for meta in metas], [meta.path for meta in metas], on_mismatch)
    layouts: dict[FileLayout, int] = {}
    by_schema: dict[
        tuple[int, int], int
    ] = {}  # equal manifests were parsed once: look the layout up once too
    entries: list[FileEntry] = []
    for meta in metas:
        key = (id(meta.columns), id(meta.schema))
        number = by_schema.get(key)
        if number is None:
            number = by_schema[key] = layouts.setdefault(_file_layout(schema, meta), len(layouts))
        entries.append(
            FileEntry(number, meta.committed_end, meta.fingerprint, len(meta.record_rows), meta.n_rows)
        )
    # Only files without columns can claim so many.
    if sum([entry.rows for entry in entries]) > _MAX_ROWS:
        raise FormatError("the files have more than 2**63 - 1 rows together", path=metas[0].path)
    segments = Segments.of_files([meta.record_rows for meta in metas], [meta.body_start for meta in metas])
    decoders = tuple(meta.decoder for meta in metas if meta.decoder is not None)
    return DatasetPlan(metas[0].format, schema, tuple(entries), tuple(layouts), segments, decoders)


def _plan_of_one(meta: ShardMeta, on_mismatch: OnMismatch) -> DatasetPlan:
    """Make the plan of a single file, of a record mostly: what costs here is the number of NumPy calls."""
    _check_mismatch(on_mismatch)
    schema = meta.schema
    count = len(meta.record_rows)
    row_start = np.zeros(count + 1, np.int64)
    if count == 1:
        row_start[1] = n_rows = int(meta.record_rows[0])
    else:
        np.cumsum(meta.record_rows, out=row_start[1:])
        n_rows = meta.n_rows
    entry = FileEntry(0, meta.committed_end, meta.fingerprint, count, n_rows)
    segments = Segments(np.zeros(count, np.int32), row_start, meta.body_start)
    decoders = () if meta.decoder is None else (meta.decoder,)
    return DatasetPlan(meta.format, schema, (entry,), (_file_layout(schema, meta),), segments, decoders)


def _plan_of_siblings(metas: Siblings, on_mismatch: OnMismatch) -> DatasetPlan:
    model = metas.model
    schema = _reconcile([model.schema], [model.path], on_mismatch)
    rows, ends = metas.rows.tolist(), metas.committed_end.tolist()
    entries: dict[tuple[int, int], FileEntry] = {}  # shards of equal row counts share one
    for key in zip(rows, ends, strict=True):
        if key not in entries:
            entries[key] = FileEntry(0, key[1], model.fingerprint, 1, key[0])
    segments = Segments(
        np.arange(len(rows), dtype=np.int32),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(metas.rows, dtype=np.int64)]),
        np.full(len(rows), int(model.body_start[0]), np.int64),
    )
    listed = tuple(map(entries.__getitem__, zip(rows, ends, strict=True)))
    return DatasetPlan(model.format, schema, listed, (_file_layout(schema, model),), segments)


def merge_plans(
    plans: Sequence[DatasetPlan], paths: Sequence[str], *, on_mismatch: OnMismatch
) -> DatasetPlan:
    """Stack the tables of several plans; `paths` names each one in error messages."""
    kept = [(plan, path) for plan, path in zip(plans, paths, strict=True) if plan.files]
    if not kept:
        return _empty_plan()
    if len(kept) == 1:
        return kept[0][0]
    schema = _reconcile([plan.schema for plan, _ in kept], [path for _, path in kept], on_mismatch)
    layouts: dict[FileLayout, int] = {}
    entries: list[FileEntry] = []
    for plan, _ in kept:
        positions = [plan.schema.index(name) for name in schema.names]
        numbers = [layouts.setdefault(layout.select(positions), len(layouts)) for layout in plan.layouts]
        entries.extend(entry._replace(layout=numbers[entry.layout]) for entry in plan.files)
    formats = {plan.format for plan, _ in kept}
    if len(formats) > 1:
        raise SchemaMismatchError(f"one dataset has one file format, got {', '.join(sorted(formats))}")
    return DatasetPlan(
        kept[0][0].format,
        schema,
        tuple(entries),
        tuple(layouts),
        Segments.concatenate([plan.segments for plan, _ in kept], [len(plan.files) for plan, _ in kept]),
        tuple(decoder for plan, _ in kept for decoder in plan.decoders),
    )


def _empty_plan() -> DatasetPlan:
    nothing = np.zeros(0, np.int64)
    table = Segments(nothing.astype(np.int32), np.zeros(1, np.int64), nothing)
    return DatasetPlan("cstore", Schema(()), (), (), table)


@lru_cache(maxsize=64)
def _decoded_layout(count: int) -> FileLayout:
    """Return the layout of a file whose decoder numbers its `count` columns as the dataset does."""
    return FileLayout(tuple(range(count)), (NO_VALIDITY,) * count)


def _file_layout(schema: Schema, meta: ShardMeta) -> FileLayout:
    if meta.decoder is not None:
        if schema is meta.schema:
            return _decoded_layout(len(schema))
        numbers = tuple(meta.schema.index(name) for name in schema.names)
        return FileLayout(numbers, (NO_VALIDITY,) * len(numbers))
    values, validity = [], []
    for name in schema.names:
        values.append(meta.column_prefix(name))
        companion = meta.schema[name].validity
        validity.append(NO_VALIDITY if companion is None else meta.column_prefix(companion))
    return FileLayout(tuple(values), tuple(validity))


def _check_mismatch(on_mismatch: OnMismatch) -> None:
    if on_mismatch not in ("strict", "drop"):
        raise ValueError(f"on_mismatch must be 'strict' or 'drop', got {on_mismatch!r}")


def _reconcile(schemas: Sequence[Schema], paths: Sequence[str], on_mismatch: OnMismatch) -> Schema:
    """Return the common schema, in the order of the first file (cstore-behaviour.md 5)."""
    _check_mismatch(on_mismatch)
    first = schemas[0]
    distinct: list[tuple[Schema, str]] = []
    seen: set[int] = set()
    for schema, path in zip(schemas, paths, strict=True):
        if id(schema) not in seen:
            seen.add(id(schema))
            distinct.append((schema, path))
    if len(distinct) == 1:
        return first
    kept = list(first.names)
    for schema, path in distinct[1:]:
        problem = _mismatch(first, schema, path)
        if problem is None:
            continue
        if on_mismatch == "strict":
            raise SchemaMismatchError(problem)
        kept = [name for name in kept if name in schema and _same_type(first[name], schema[name])]
    dropped = sorted({name for schema, _ in distinct for name in schema.names} - set(kept))
    if dropped:
        if not kept:
            raise ValueError("on_mismatch='drop' leaves no columns: the files have none in common")
        warnings.warn(
            f"dropped columns that are not the same in every file: {', '.join(dropped)}",
            RuntimeWarning,
            stacklevel=4,
        )
    return Schema(
        tuple(_common_field(name, [schema for schema, _ in distinct]) for name in kept), first.attrs
    )


def _same_type(a: Field, b: Field) -> bool:
    return a.dtype.str == b.dtype.str and a.tz == b.tz and (not a.variable or a.logical == b.logical)


def _mismatch(first: Schema, other: Schema, path: str) -> str | None:
    missing = [name for name in first.names if name not in other]
    unexpected = [name for name in other.names if name not in first]
    if missing or unexpected:
        parts = [f"missing columns {missing}"] if missing else []
        parts += [f"unexpected columns {unexpected}"] if unexpected else []
        return f"Schema mismatch in {path}: {'; '.join(parts)}. on_mismatch='drop' keeps the common columns."
    for name in first.names:
        a, b = first[name], other[name]
        if not _same_type(a, b):
            a_type, b_type = (
                f.logical if f.variable else f"{f.dtype.str}{f' ({f.tz})' if f.tz else ''}" for f in (a, b)
            )
            hint = ""
            if a.dtype.kind == b.dtype.kind and a.dtype.kind in "US" and not (a.variable or b.variable):
                hint = (
                    "; text has one width in all files of a table: write them with string_width="
                    f"{{{name!r}: n}}, n at least the longest value, or by append()"
                )
            return f"Schema mismatch in {path}: dtype of column {name!r} is {b_type}, expected {a_type}{hint}"
    return None


def _common_field(name: str, schemas: Sequence[Schema]) -> Field:
    """Merge what the files say beyond the dtype: a companion in any file makes the column nullable."""
    fields = [schema[name] for schema in schemas]
    first = fields[0]
    validity = next((f.validity for f in fields if f.validity is not None), None)
    same_categories = all(f.categories == first.categories for f in fields)
    return replace(
        first,
        validity=validity,
        categories=first.categories if same_categories else None,
        optional=any(f.optional for f in fields),
    )
