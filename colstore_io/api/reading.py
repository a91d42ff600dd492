"""What may a user call to read: `open`, and what a file says about itself.

Thin functions: they check arguments, choose the piece that does the work, and open the result. Nothing that only
writers, other formats or frames need is imported here before it is called for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .. import formats, storage
from ..opening import OpenOptions, check_not_foreign, is_buffer, open_source
from ..storage import IOStats
from ..tables import Dataset, Reader, Table

if TYPE_CHECKING:
    from ..formats.inspection import Inspection

__all__ = ["Info", "info", "inspect", "open", "schema", "verify"]


def open(
    path: Any,
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    mmap: bool = True,
    madvise: str | None = "default",
    mlock: bool = False,
    backend: str | None = None,
    max_workers: int | None = None,
    on_mismatch: Literal["strict", "drop"] = "strict",
    on_empty_file: Literal["error", "skip"] = "error",
    ignore_manifest: bool = False,
    strict: bool = False,
    table: str | None = None,
    errors: Literal["strict", "surrogateescape"] = "strict",
    max_rows: int | None = None,
    max_decoded_bytes: int | None = None,
) -> Reader | Dataset:
    """Open a file, or several as one table.

    Parameters
    ----------
    path : str, PathLike, bytes, file object, or a list of them
        A file, directory, glob pattern, generation manifest (``_colstore-00000003.json``), any fsspec URL of these
        (chained ones too), the contents of a file, or a seekable binary file object. A string is taken literally if
        such a file exists, else as a pattern; a ``PathLike`` is never a pattern. Lists may hold open readers and
        datasets, which are borrowed.
    storage_options : mapping, optional
        Passed to fsspec for URLs.
    filesystem : fsspec file system, optional
        Instead of `storage_options`.
    mmap : bool, default True
        False reads local files with ``pread``: slower, but safe when another program may cut the file short.
    madvise : {"normal", "sequential", "random", "willneed", "dontneed"}, optional
        Advice to the kernel about mapped pages. Default: the setting in `config`, which is no advice.
    mlock : bool, default False
        Lock the mapped pages into memory; failure only warns.
    backend : {"cpp", "numpy"}, optional
        Compiled kernels, or their NumPy twins.
    max_workers : int, optional
        Upper bound of threads of one read.
    on_mismatch : {"strict", "drop"}, default "strict"
        What to do with columns that not every file has alike: raise, or keep the common ones.
    on_empty_file : {"error", "skip"}, default "error"
        What to do with a file of 0 bytes.
    ignore_manifest : bool, default False
        Read all members of a directory in natural order, as if it had no generation manifest.
    strict : bool, default False
        Of columns files: refuse at once a file that names a tokenizer which is not registered, instead of when a
        tokenized column is read.
    table : str, optional
        Of logs of messages: the field whose list of records is the table. Default: the only one there is.
    errors : {"strict", "surrogateescape"}, default "strict"
        Text that is not UTF-8 raises `FormatError`; with "surrogateescape" text columns are handed out as binary.
    max_rows, max_decoded_bytes : int, optional
        Of encoded formats: rows that one segment may claim, and bytes that one of its columns may decode to. A small
        hostile file can claim a lot; a reader of files from strangers sets limits.

    Returns
    -------
    Reader or Dataset
        A `Reader` for one file, a `Dataset` for a list, pattern or directory.

    Raises
    ------
    FileNotFoundError
        If there is no such file, or the pattern matches nothing.
    FormatError
        If a file is damaged, or not of a format that is known here.
    SchemaMismatchError
        If the files do not fit together.
    """
    options: dict[str, Any] = {
        "storage_options": storage_options,
        "filesystem": filesystem,
        "mmap": mmap,
        "mlock": mlock,
        "backend": backend,
        "max_workers": max_workers,
        "on_mismatch": on_mismatch,
        "on_empty_file": on_empty_file,
        "ignore_manifest": ignore_manifest,
        "strict": strict,
        "table": table,
        "errors": errors,
        "max_rows": max_rows,
        "max_decoded_bytes": max_decoded_bytes,
    }
    if madvise != "default":
        options["madvise"] = madvise
    checked = OpenOptions.checked(**options)
    if isinstance(path, (list, tuple, Table)):
        return Dataset(path, **options)
    opened = open_source(path, checked)
    return Reader(opened) if opened.kind == "file" else Dataset(opened, **options)


@dataclass(frozen=True, slots=True)
class Info:
    """What the header of a file says, without reading records.

    Attributes
    ----------
    path : object
        As it was given.
    format_version : int
    n_rows, n_records : int
    columns : list of dict
        Manifest objects (``name``, ``dtype``, ...) of the logical columns; companions are not among them.
    file_size : int
        Bytes.
    needs_compaction : bool
        True when there is more than one record.
    """

    path: Any
    format_version: int
    n_rows: int
    n_records: int
    columns: list[dict[str, Any]]
    file_size: int
    needs_compaction: bool

    def __repr__(self) -> str:
        state = ", needs_compaction=True" if self.needs_compaction else ""
        head = (
            f"Info({os.fspath(self.path) if not is_buffer(self.path) else '<bytes>'}: n_rows={self.n_rows}, "
        )
        head += f"n_records={self.n_records}, file_size={self.file_size}{state})"
        return "\n".join([head, *(f"  {column['name']}: {column['dtype']}" for column in self.columns)])


def _first_read(path: Any, storage_options: Mapping[str, Any] | None) -> Any:
    if is_buffer(path):
        return storage.open_file(path, io=IOStats())
    found = storage.resolve(path, storage_options=storage_options)
    if found.kind != "file":
        raise ValueError(f"{os.fspath(path)} is a {found.kind}; name one file")
    return storage.open_files(found.locations, io=IOStats())[0]


def info(path: Any, *, storage_options: Mapping[str, Any] | None = None) -> Info:
    """Return what the header of a file says. No record is read.

    Raises
    ------
    FormatError
        If the header is damaged.
    """
    file, head = _first_read(path, storage_options)
    with file:
        header = formats.detect(head, file.spelling).read_header(file, head)
        names = set(header.names)
        return Info(
            path,
            header.format_version,
            header.committed_rows,
            header.n_records,
            [dict(column.manifest) for column in header.columns if column.name in names],
            file.size,
            header.n_records > 1,
        )


def schema(path: Any, *, storage_options: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the column objects of a file's manifest as they stand there, companions and extra keys included."""
    file, head = _first_read(path, storage_options)
    with file:
        header = formats.detect(head, file.spelling).read_header(file, head)
        return [dict(column.manifest) for column in header.columns]


def inspect(
    path: Any, *, candidates: bool = False, storage_options: Mapping[str, Any] | None = None
) -> Inspection:
    """Describe the parts of a file as a small table: records, chunks with encodings and sizes, or messages.

    Of a directory, a pattern or a generation manifest the parts are its files, with their rows and sizes;
    names begin below the folder that all are in.

    Parameters
    ----------
    path : path, URL or bytes
    candidates : bool, default False
        Of a columns file: what every layout of every chunk would cost, and which one Optimize would take. Reads and
        encodes the whole file.
    storage_options : mapping, optional

    Returns
    -------
    Inspection
        Prints as a table, in a notebook too; iterates over dictionaries; ``to_arrow()``.

    Raises
    ------
    FormatError
        If the header is damaged. `verify` checks the rest.
    """
    if not is_buffer(path):
        found = storage.resolve(path, storage_options=storage_options)
        if found.kind != "file" or _GENERATION.fullmatch(found.locations[0].spelling):
            if candidates:
                raise ValueError(
                    f"candidates= is about one file; {os.fspath(path)} is a {found.kind}: name one of it"
                )
            return _inspect_files(path, storage_options)
    file, head = _first_read(path, storage_options)
    with file:
        kind = formats.detect(head, file.spelling)
        if not candidates:
            return kind.inspect(file, head)
        if kind.name != "columns":
            raise ValueError(f"candidates= is about columns files; {file.spelling} is a {kind.name} file")
    from ..layouts import candidate_layouts

    with Reader(path, storage_options=storage_options) as reader:
        return candidate_layouts(reader.source, reader.path)


_GENERATION = re.compile(r"(?:.*[/\\\\])?_colstore-\d{8}\.json", re.ASCII | re.DOTALL)


def _inspect_files(path: Any, storage_options: Mapping[str, Any] | None) -> Inspection:
    """Return a table of the files that make up a dataset, in the order of their rows."""
    from ..formats.inspection import Inspection

    with Dataset(path, storage_options=storage_options) as dataset:
        plan, files = dataset.source.plan, dataset.source.files
        count = len(files)
        rows, parts = [0] * count, [0] * count
        for number, own in zip(plan.segments.file.tolist(), plan.segments.rows.tolist(), strict=True):
            rows[number] += own
            parts[number] += 1
        names = [file.spelling for file in files]
        folders = [name[: name.rfind("/") + 1] for name in names]
        shared = os.path.commonprefix(folders).rfind("/") + 1  # noqa: RUF071  # of URLs too, cut at a slash
        columns: dict[str, list[Any]] = {
            "file": [name[shared:] for name in names],
            "rows": rows,
            "records" if plan.format == "cstore" else "segments": parts,
            "bytes": [file.size for file in files],
        }
        title = (
            f"{os.fspath(path)}: {count} {plan.format} {'file' if count == 1 else 'files'}, {plan.n_rows:,} rows, "
            f"{len(dataset.columns)} {'column' if len(dataset.columns) == 1 else 'columns'}"
        )
        return Inspection(title, columns)


def verify(path: Any, *, storage_options: Mapping[str, Any] | None = None) -> dict[str, list[str]]:
    """Check files thoroughly, and return for each the list of its problems.

    Every check that the format allows: header, records, padding, statistics recomputed, companions. Empty lists mean
    sound files.
    """
    found = storage.resolve(path, storage_options=storage_options)
    check_not_foreign(found)
    problems = {}
    for location in found.locations:
        problems[location.spelling] = formats.verify_location(location)
    return problems
