"""The reference's ``colstore.format``: what its tests build and take apart files with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

import colstore_io
from colstore_io import FormatError, kernels_numpy
from colstore_io.formats.cstore import header, manifest, records
from colstore_io.kernels import records as record_kernels

from ._missing import missing

__all__ = ["FILE_EXTENSION", "FormatError", "align_up", "build_column_layout", "read_header", "write_dataset"]

FILE_EXTENSION = ".cstore"
_MAGIC = header.MAGIC
_COUNTERS_OFFSET = header.COUNTERS_OFFSET
_COUNTERS_SIZE = header.COUNTERS_SIZE
_MANIFEST_LEN_FMT = "<Q"
_MANIFEST_LEN_SIZE = header.MANIFEST_OFFSET - header.MANIFEST_LENGTH_OFFSET
_RECORD_MAGIC = records.RECORD_MAGIC
_RECORD_HEADER_SIZE = records.RECORD_HEADER_SIZE
_RECORD_BODY_ALIGNMENT = records.BODY_ALIGNMENT
_pack_counters = header.encode_counters
record_header_bytes = records.encode_record_header


def align_up(value: int, alignment: int = header.DATA_ALIGNMENT) -> int:
    """Return the smallest multiple of `alignment` that is >= `value`."""
    return header.align_up(value, alignment)


def _manifest_checksum(columns: Sequence[Mapping[str, Any]]) -> int:
    return manifest.columns_crc(columns)


def record_body_size(n_rows: int, itemsizes: Sequence[int]) -> int:
    """Return the stored size of a record's body."""
    return records.body_bytes(n_rows, sum(itemsizes))


def write_record_header(file: IO[bytes], record_index: int, n_rows: int) -> None:
    """Write the header of a record."""
    file.write(records.encode_record_header(record_index, n_rows))


def read_header(path: str | PathLike[str]) -> tuple[dict[str, Any], int]:
    """Return what the header says as a dict, and where record 0 begins."""
    with open(path, "rb") as file:
        head = file.read()
    parsed = header.parse_header(head, size=len(head), path=os.fspath(path))
    if not isinstance(parsed, header.Header):
        raise FormatError("the file ends inside its header", path=os.fspath(path))
    columns = [dict(column) for column in parsed.manifest.columns]
    contents = {
        "format_version": header.FORMAT_VERSION,
        "columns": columns,
        "manifest_crc32": manifest.columns_crc(columns),
        "n_records": parsed.n_records,
        "committed_rows": parsed.committed_rows,
        "stats_offset": parsed.stats_offset,
    }
    return contents, parsed.data_offset


def build_column_layout(
    contents: Mapping[str, Any], body_offset: int, n_rows: int
) -> dict[str, tuple[int, np.dtype[Any]]]:
    """Return offset and dtype of each column of a file with one record."""
    layout = {}
    for column in contents["columns"]:
        dtype = manifest.parse_dtype(column["dtype"])
        layout[column["name"]] = (body_offset, dtype)
        body_offset += n_rows * dtype.itemsize
    return layout


def read_record_index(
    path: str | PathLike[str], data_offset: int, n_records: int, itemsizes: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Walk the record headers: cumulated rows, starts of the bodies, rows."""
    from . import kernels

    walk = record_kernels.walk_records_fd if kernels.cpp_available() else kernels_numpy.walk_records_fd
    return _record_index(walk, path, data_offset, n_records, itemsizes)


def _read_record_index_walk(
    path: str | PathLike[str], data_offset: int, n_records: int, itemsizes: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    return _record_index(kernels_numpy.walk_records_fd, path, data_offset, n_records, itemsizes)


def _record_index(
    walk: Callable[..., tuple[int, int]],
    path: str | PathLike[str],
    data_offset: int,
    n_records: int,
    itemsizes: Sequence[int],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    rows = np.empty(n_records, dtype=np.int64)
    body_start = np.empty(n_records, dtype=np.int64)
    with open(path, "rb") as file:
        end = os.fstat(file.fileno()).st_size
        good, code = walk(file.fileno(), data_offset, sum(itemsizes), end, rows, body_start)
    if code:
        reasons = ["", "truncated", "magic", "index", "CRC", "row count", "truncated"]
        raise FormatError(reasons[code], path=os.fspath(path), section=f"record {good}")
    return np.concatenate([[0], np.cumsum(rows)]), body_start, rows


def write_dataset(
    columns: Mapping[str, Any],
    path: str | PathLike[str],
    *,
    batch_size: Any = "auto",
    show_progress: bool = False,
    statistics: bool = False,
) -> None:
    """Write a file of one record."""
    colstore_io.store(
        columns,
        path,
        mode="recreate",
        batch_size=batch_size,
        show_progress=show_progress,
        statistics=statistics,
    ).close()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(__name__, name)
