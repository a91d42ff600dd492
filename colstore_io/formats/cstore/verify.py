"""Every check that the format allows (cstore.md): for ``colstore-io verify``.

The format has no checksum over values, so a sound file is one that is consistent: headers and records, zero padding,
booleans that are 0 or 1, characters that exist, nulls over zero bytes, and statistics that are what the values give.
Memory stays at a few blocks, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...fields import PhysicalColumn
from ...storage import ByteFile
from .. import Problem, ShardMeta
from .footer import FooterLayout
from .header import COUNTERS_OFFSET, COUNTERS_SIZE, Header
from .reader import inspect_file
from .records import RECORD_HEADER_SIZE, body_bytes

__all__ = ["verify_file"]

BLOCK_BYTES = 4 << 20
MAX_PROBLEMS = 100
_MAX_CODE_POINT = 0x10FFFF


class _Findings:
    """Problems so far; stops taking more after `MAX_PROBLEMS`, since a damaged file may have one per value."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    @property
    def full(self) -> bool:
        return len(self.problems) >= MAX_PROBLEMS

    def error(self, message: str, section: str, offset: int | None = None) -> None:
        self._add(Problem("error", message, section, offset))

    def notice(self, message: str, section: str, offset: int | None = None) -> None:
        self._add(Problem("notice", message, section, offset))

    def _add(self, problem: Problem) -> None:
        if not self.full:
            self.problems.append(problem)
            if self.full:
                self.problems.append(Problem("notice", "there are more; the check was stopped here", "file"))


class _Blocks:
    """Reads a file mostly front to back, in blocks, so that small records do not cost a request each."""

    def __init__(self, file: ByteFile) -> None:
        self.file = file
        self.start = 0
        self.block = memoryview(b"")

    def get(self, offset: int, length: int) -> memoryview:
        """Return `length` <= BLOCK_BYTES bytes at `offset`."""
        begin = offset - self.start
        if begin < 0 or begin + length > len(self.block):
            self.block = self.file.read(offset, min(max(length, BLOCK_BYTES), self.file.size - offset))
            self.start, begin = offset, 0
        return self.block[begin : begin + length]

    def pieces(self, offset: int, length: int, unit: int) -> Iterator[tuple[int, memoryview]]:
        """Yield (offset, bytes) of [offset, offset + length), cut at multiples of `unit` bytes."""
        step = max(1, BLOCK_BYTES // unit) * unit
        for position in range(offset, offset + length, step):
            yield position, self.get(position, min(step, offset + length - position))


def verify_file(file: ByteFile) -> list[Problem]:
    """Check a file thoroughly.

    Parameters
    ----------
    file : ByteFile

    Returns
    -------
    list of Problem
        In file order. Empty: nothing to complain about. A header or record index that is damaged ends the
        check, since nothing behind it can be found.
    """
    findings = _Findings()
    head = file.read(0, min(file.size, 64 << 10))
    try:
        header, reading, meta = inspect_file(file, head)
    except FormatError as exc:
        findings.error(exc.message, exc.section or "file", exc.offset)
        return findings.problems
    for warning in reading.warnings:
        findings.error(warning, "manifest", header.manifest_offset)
    blocks = _Blocks(file)
    _check_header_padding(blocks, header, findings)
    checker = _Values(blocks, meta, findings)
    checker.check_records(framed=header.layout != "A")
    _check_tail(file, blocks, header, meta, findings)
    return findings.problems


def _check_header_padding(blocks: _Blocks, header: Header, findings: _Findings) -> None:
    if header.layout == "C":
        reserved = COUNTERS_OFFSET + 28
        if any(blocks.get(reserved, COUNTERS_OFFSET + COUNTERS_SIZE - reserved)):
            findings.notice("reserved bytes are not zero", "counters", reserved)
    text_end = header.manifest_offset + len(header.manifest.text)
    if any(blocks.get(text_end, min(header.data_offset, blocks.file.size) - text_end)):
        findings.notice("padding bytes are not zero", "header", text_end)


def _check_tail(
    file: ByteFile, blocks: _Blocks, header: Header, meta: ShardMeta, findings: _Findings
) -> None:
    if header.stats_offset == 0:
        if file.size > meta.committed_end:
            findings.notice(
                f"{file.size - meta.committed_end} bytes behind the last committed record are ignored",
                "file",
                meta.committed_end,
            )
        return
    if header.stats_offset != meta.committed_end:
        findings.error(
            f"stats_offset is {header.stats_offset}, the last record ends at {meta.committed_end}",
            "counters",
            COUNTERS_OFFSET + 16,
        )
    _check_statistics(file, blocks, header, meta, findings)


class _Values:
    """The checks of the values, record by record."""

    def __init__(self, blocks: _Blocks, meta: ShardMeta, findings: _Findings) -> None:
        self.blocks = blocks
        self.meta = meta
        self.findings = findings
        companions = {f.validity: f.name for f in meta.schema if f.validity is not None}
        self.companion_of = {name: companion for companion, name in companions.items()}
        self.companions = set(companions)

    def check_records(self, *, framed: bool) -> None:
        """Check padding and values of every record; `framed` is False for layout A, which has no record headers."""
        for r, (rows, start) in enumerate(
            zip(self.meta.record_rows.tolist(), self.meta.body_start.tolist(), strict=True)
        ):
            if self.findings.full:
                return
            if framed and any(self.blocks.get(start - RECORD_HEADER_SIZE + 20, 8)):
                self.findings.notice(
                    "reserved bytes are not zero", f"record {r}", start - RECORD_HEADER_SIZE + 20
                )
            offset = start
            for column in self.meta.columns:
                self._check_column(r, rows, offset, column)
                offset += rows * column.itemsize
            padding = start + body_bytes(rows, self.meta.row_bytes) - offset
            if framed and any(self.blocks.get(offset, padding)):
                self.findings.notice("padding bytes are not zero", f"record {r}", offset)

    def _check_column(self, r: int, rows: int, offset: int, column: PhysicalColumn) -> None:
        section = f"record {r}, column {column.name!a}"
        if column.dtype.kind == "b":
            what = "validity byte" if column.name in self.companions else "boolean"
            for position, piece in self.blocks.pieces(offset, rows, 1):
                bad = np.flatnonzero(np.frombuffer(piece, np.uint8) > 1)
                if bad.size:
                    self.findings.error(
                        f"{what} of {bad.size} rows is neither 0 nor 1", section, position + int(bad[0])
                    )
                    break
        elif column.dtype.kind == "U":
            code = np.dtype(f"{column.dtype.str[0]}u4")
            for position, piece in self.blocks.pieces(offset, rows * column.itemsize, 4):
                bad = np.flatnonzero(np.frombuffer(piece, code) > _MAX_CODE_POINT)
                if bad.size:
                    self.findings.error(
                        f"{bad.size} characters are beyond U+10FFFF", section, position + 4 * int(bad[0])
                    )
                    break
        companion = self.companion_of.get(column.name)
        if companion is not None:
            self._check_nulls(rows, offset, column, section)

    def _check_nulls(self, rows: int, offset: int, column: PhysicalColumn, section: str) -> None:
        """Under a null the column holds zero bytes (cstore.md 4.2); the companion stands right behind it."""
        size = column.itemsize
        validity = offset + rows * size
        step = max(1, BLOCK_BYTES // (size + 1))
        for first in range(0, rows, step):
            count = min(step, rows - first)
            null = np.frombuffer(self.blocks.file.read(validity + first, count), np.uint8) == 0
            if not null.any():
                continue
            values = np.frombuffer(self.blocks.get(offset + first * size, count * size), np.uint8)
            bad = np.flatnonzero(values.reshape(count, size).any(axis=1) & null)
            if bad.size:
                self.findings.error(
                    f"{bad.size} rows are null, but their bytes are not zero",
                    section,
                    offset + (first + int(bad[0])) * size,
                )
                return


# ----------------------------------------------------------------------------------------------------------
# Statistics


def _check_statistics(
    file: ByteFile, blocks: _Blocks, header: Header, meta: ShardMeta, findings: _Findings
) -> None:
    """Recompute every entry of the footer."""
    offset = header.stats_offset
    layout = FooterLayout.of(meta.columns, meta.n_records)
    if layout is None or offset < 0 or offset + layout.size != file.size:
        findings.error(
            "is not of the size that these columns and records need; it is ignored", "statistics", offset
        )
        return
    data = bytes(file.read(offset, layout.size))
    if not layout.accepts(data):
        findings.error("is damaged (checksum or names do not fit); it is ignored", "statistics", offset)
        return
    for column in meta.columns:
        entries = layout.entries[column.name]
        low_at, high_at, flags_at = entries.minimum, entries.maximum, entries.flags
        prefix = meta.column_prefix(column.name)
        width = column.itemsize
        for r, (rows, start) in enumerate(
            zip(meta.record_rows.tolist(), meta.body_start.tolist(), strict=True)
        ):
            if findings.full:
                return
            low = data[low_at + r * width :][:width]
            high = data[high_at + r * width :][:width]
            where = offset + low_at + r * width
            section = f"statistics of record {r}, column {column.name!a}"
            if not data[flags_at + r]:
                if any(low) or any(high):
                    findings.error("the bounds are not flagged as usable, but are not zero", section, where)
                continue
            bounds = _recomputed(blocks, column, rows, start + rows * prefix)
            if bounds is None:
                findings.error("is flagged as usable, but these values have no bounds", section, where)
            elif not (_same(low, bounds[0], column.dtype) and _same(high, bounds[1], column.dtype)):
                stored = [np.frombuffer(raw, column.dtype)[0] for raw in (low, high)]
                findings.error(
                    f"says {stored[0]!s} to {stored[1]!s}, the values give {bounds[0]!s} to {bounds[1]!s}",
                    section,
                    where,
                )


def _recomputed(blocks: _Blocks, column: PhysicalColumn, rows: int, offset: int) -> tuple[Any, Any] | None:
    """Return (minimum, maximum) of one chunk, None where the format allows no bounds."""
    kind = column.dtype.kind
    if kind in "SU" or rows == 0:
        return None
    lows: list[Any] = []
    highs: list[Any] = []
    for _, piece in blocks.pieces(offset, rows * column.itemsize, column.itemsize):
        values: NDArray[Any]
        if kind == "b":
            values = np.frombuffer(piece, np.uint8) != 0
        else:
            values = np.frombuffer(piece, column.dtype)
        with np.errstate(invalid="ignore"):
            low, high = values.min(), values.max()
        if kind == "f" and not (np.isfinite(low) and np.isfinite(high)):
            return None
        if kind in "Mm" and (np.isnat(low) or np.isnat(high)):
            return None
        lows.append(low)
        highs.append(high)
    return min(lows), max(highs)


def _same(raw: bytes, value: Any, dtype: np.dtype[Any]) -> bool:
    """Compare by value: both zeros are one bound, and long doubles have filler bytes."""
    if dtype.kind == "b":
        return (raw[0] != 0) == bool(value) and raw[0] <= 1
    return bool(np.frombuffer(raw, dtype)[0] == value)
