"""Every check that the format allows (columns.md 9 and 12.2): for ``colstore-io verify``.

Chunks are decoded one at a time, and their statistics computed again. Memory stays at one chunk's values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError, UnsupportedFeatureError
from ...kernels import decode as kernel
from ...storage import ByteFile
from .. import DecodedColumn, Problem, ReadOptions
from .boxed import boxed
from .decoder import ColumnsDecoder, decoder_of
from .footer import Footer, schema_of
from .reader import HEAD_BYTES, OpenedFooter, read_footers
from .tags import ALIGNMENT, CHUNK_HEADER_BYTES, NUMPY_TYPES, TRAILER_BYTES, Type

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Expected", "expected_statistics", "verify_file"]

MAX_PROBLEMS = 100
_MAX_DECODED_BYTES = 1 << 32
"""What one column of one row group may take; an encoded one cannot have more (section 15)."""

Expected = tuple[bytes, bytes, int, int]
"""MinVal, MaxVal, MinLen and MaxLen."""


class _Findings:
    """Problems so far; takes no more after `MAX_PROBLEMS`."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    @property
    def full(self) -> bool:
        return len(self.problems) >= MAX_PROBLEMS

    def add(self, severity: Any, message: str, section: str, offset: int | None = None) -> None:
        if not self.full:
            self.problems.append(Problem(severity, message, section, offset))
            if self.full:
                self.problems.append(Problem("notice", "there are more; the check was stopped here", "file"))


def verify_file(file: ByteFile) -> list[Problem]:
    """Return the problems of one file.

    Errors: whatever a read would refuse, and statistics that are not those of the values. Notices: bytes that no chunk
    owns, text that is not UTF-8, missing statistics, tokenizers that are not registered, compressed blocks that only
    this library reads.

    Raises
    ------
    FormatError
        If prologue or footer are damaged, so that there is nothing to check.
    """
    head = file.read(0, min(HEAD_BYTES, file.size))
    (opened,) = read_footers([file], [head], max_rows=ReadOptions().max_rows)
    footer = opened.footer
    names = tuple(schema_of(footer).names)
    options = ReadOptions(errors="surrogateescape", max_decoded_bytes=_MAX_DECODED_BYTES)
    decoder = decoder_of(footer, names, opened.prologue.digests, path=file.spelling, options=options)
    findings = _Findings()
    _check_gaps(file, opened, findings)
    end = footer.stop + TRAILER_BYTES
    if file.size > end:
        findings.add(
            "notice",
            f"{file.size - end} bytes of an append that did not end; the next append cuts them off",
            "file",
            end,
        )
    for group in range(footer.n_groups):
        for column in range(footer.n_columns):
            if findings.full:
                return findings.problems
            _check_chunk(file, footer, decoder, group, column, findings)
    return findings.problems


def _check_gaps(file: ByteFile, opened: OpenedFooter, findings: _Findings) -> None:
    """Look for bytes between prologue, row groups and footer that nobody owns."""
    footer = opened.footer
    if footer.n_columns and footer.n_groups:
        order = np.argsort(footer.group_start, kind="stable")
        starts = footer.group_start[order]
        ends = starts + footer.chunks["byte_length"].sum(axis=1)[order]
        edges = [*zip([opened.prologue.end, *ends.tolist()], [*starts.tolist(), footer.start], strict=True)]
    else:
        edges = [(opened.prologue.end, footer.start)]
    for end, start in edges:
        if start > end and not _aligns(file.read(end, min(start - end, ALIGNMENT))):
            findings.add("notice", f"{start - end} bytes that belong to nothing", "file", end)


def _aligns(gap: memoryview) -> bool:
    """Whether bytes are what this library leaves before values that are to be aligned."""
    return len(gap) < ALIGNMENT and not any(gap)


def _check_chunk(
    file: ByteFile, footer: Footer, decoder: ColumnsDecoder, group: int, column: int, findings: _Findings
) -> None:
    place = decoder.place(group, column)
    ((offset, length),) = decoder.ranges(group, [column])
    data = file.read(offset, length)
    try:
        (decoded,) = decoder.decode(group, [column], [data])
    except UnsupportedFeatureError as exc:
        findings.add("notice", f"not checked: {exc.message}", place.section, exc.offset)
        return
    except FormatError as exc:
        findings.add("error", exc.message, exc.section or place.section, exc.offset)
        return
    lengths = [int.from_bytes(data[at : at + 4], "little") for at in (2, 10, 14)]
    slack = length - CHUNK_HEADER_BYTES - 8 * lengths[2] - lengths[0] - lengths[1]
    if slack and not _aligns(data[length - slack :]):
        findings.add(
            "notice", f"{slack} bytes after the chunk's data", place.section, offset + length - slack
        )
    kind = Type(int(footer.types[column]))
    if kind is Type.STRING and decoded.array is not None:
        row = _first_bad_text(decoded.array)
        if row >= 0:
            findings.add("notice", f"row {row} is no UTF-8 text", place.section, offset)
    _check_statistics(footer, group, column, kind, decoded, place.section, findings)


def _first_bad_text(array: pa.Array) -> int:
    wide = str(array.type).startswith("large")
    offsets = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32)[: len(array) + 1]
    return int(kernel.first_not_utf8(np.frombuffer(array.buffers()[2] or b"", np.uint8), offsets))


def _check_statistics(
    footer: Footer,
    group: int,
    column: int,
    kind: Type,
    decoded: DecodedColumn,
    section: str,
    findings: _Findings,
) -> None:
    chunk = footer.chunks[group, column]
    stored = (
        _stored(footer, chunk, "min"),
        _stored(footer, chunk, "max"),
        int(chunk["min_len"]),
        int(chunk["max_len"]),
    )
    expected = expected_statistics(kind, decoded)
    if stored in expected:
        return
    if stored == (b"", b"", 0, 0):
        findings.add("notice", "no statistics", section, footer.start)
        return
    for name, one, other in zip(
        ("minimum", "maximum", "min_len", "max_len"), stored, expected[0], strict=True
    ):
        if one != other and not one:  # older writers have fewer fields
            findings.add("notice", f"no {name}, the values give {_shown(other)}", section, footer.start)
        elif one != other:
            findings.add(
                "error", f"{name} is {_shown(one)}, the values give {_shown(other)}", section, footer.start
            )


def _stored(footer: Footer, chunk: Any, which: str) -> bytes:
    start, size = int(chunk[f"{which}_start"]), int(chunk[f"{which}_bytes"])
    return bytes(footer.data[start : start + size])


def _shown(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    text = value.hex() if len(value) <= 20 else f"{value[:20].hex()}... ({len(value)} bytes)"
    return text or "absent"


def expected_statistics(kind: Type, column: DecodedColumn) -> list[Expected]:
    """Return what a footer may say about the values of a chunk (section 9).

    One answer, but two for bytes columns with empty values: what the format's library says there, and the truth.

    Parameters
    ----------
    kind : Type
    column : DecodedColumn
        Text as bytes.
    """
    if kind.fixed:
        assert column.values is not None
        values = column.values if column.validity is None else column.values[column.validity]
        return [_fixed(values, NUMPY_TYPES[kind])]
    assert column.array is not None
    array = column.array.drop_null() if column.array.null_count else column.array
    plain = [_variable(array)]
    if kind is Type.BYTES and len(array) and plain[0][2] == 0:
        plain.insert(0, _restarting(array))
    return plain


def _fixed(values: NDArray[Any], dtype: np.dtype[Any]) -> Expected:
    if len(values) == 0:
        return b"", b"", 0, 0
    if dtype.kind == "f":
        # The first value stands for both until one compares as smaller or larger: a NaN there stays, a later one is
        # never taken, and of equal values (the two zeros) the first one is.
        if np.isnan(values[0]):
            low = high = values[:1]
        else:
            there = values[~np.isnan(values)]
            low, high = (there[there == edge][:1] for edge in (there.min(), there.max()))
    else:
        low, high = values.min(keepdims=True), values.max(keepdims=True)
    width = dtype.itemsize
    return low.astype(dtype).tobytes(), high.astype(dtype).tobytes(), width, width


def _variable(array: pa.Array) -> Expected:
    import pyarrow.compute as pc

    if len(array) == 0:
        return b"", b"", 0, 0
    bounds = pc.min_max(array).as_py()
    lengths = pc.min_max(pc.binary_length(array)).as_py()
    return bounds["min"], bounds["max"], lengths["min"], lengths["max"]


def _restarting(array: pa.Array) -> Expected:
    """Return the statistics of bytes columns as the format's library makes them: an empty minimum starts over."""
    low, high = b"", bytearray()
    shortest = longest = 0
    for value in boxed(DecodedColumn(array=array)):
        if not low:
            low, shortest, longest = value, len(value), len(value)
            high += value
            continue
        low = min(low, value)
        if high < value:
            high = bytearray(value)
        shortest, longest = min(shortest, len(value)), max(longest, len(value))
    return low, bytes(high), shortest, longest
