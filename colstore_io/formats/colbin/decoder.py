"""Segments of a log to columns.

A segment is a run of whole messages, at most 64 Ki rows and 1 MiB unless a single one is larger. Decoding one checks
the checksum of every message in it, then fills outputs column by column: a kernel reads all messages that are rows
at once; of messages that are lists each is decoded into its slice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from .. import Allocate, DecodedColumn
from .buffers import Buffer, ColumnBuffers
from .layout import ListColumns, list_columns, list_fields, parsed_section
from .log import Frames, check_frames
from .packed import PackedLogDecoder
from .tables import MAX_CELLS, check_size, decode_list, find_list

if TYPE_CHECKING:
    import pyarrow as pa

    from ...storage import ByteFile

__all__ = ["SEGMENT_BYTES", "SEGMENT_ROWS", "LogDecoder", "cut_segments"]

SEGMENT_ROWS = 1 << 16
SEGMENT_BYTES = 1 << 20


def cut_segments(size: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the first frame of each segment, and that of all frames at the end: shape (S + 1,).

    Depends on the frames of a segment alone, so that appending changes only the last segment.
    """
    bytes_to = np.concatenate([[0], np.cumsum(size)])
    rows_to = np.concatenate([[0], np.cumsum(rows)])
    cuts, at = [0], 0
    while at < len(size):
        by_bytes = int(np.searchsorted(bytes_to, bytes_to[at] + SEGMENT_BYTES, "right")) - 1
        by_rows = int(np.searchsorted(rows_to, rows_to[at] + SEGMENT_ROWS, "right")) - 1
        at = max(at + 1, min(by_bytes, by_rows))
        cuts.append(at)
    return np.array(cuts, np.int64)


@dataclass(frozen=True)
class LogDecoder:
    """How the segments of one log are decoded; see `colstore_io.formats.Decoder`.

    Attributes
    ----------
    path : str
    section : bytes
    number : int
        Record type of the rows.
    field : str or None
        The list of records that holds them; None: each message is one.
    columns : tuple of int
        Number of each column of the schema among the columns of the record type.
    dtypes : tuple of str
        In memory, ``""`` for variable length.
    offset, size, stored, rows : ndarray of int64
        Of the frames: place, bytes, row count as stored, rows of the chosen table.
    cuts : ndarray of int64, shape (S + 1,)
        First frame of each segment.
    body : int
        Of a bare message: where its body begins. 0: a log.
    header : bytes
        The file's header, to tell whether a changed file was merely appended to.
    errors, max_rows, max_cells
        As `ReadOptions` says; `max_cells` bounds rows times columns of one message.
    """

    path: str
    section: bytes
    number: int
    field: str | None
    columns: tuple[int, ...]
    dtypes: tuple[str, ...]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    stored: NDArray[np.int64]
    rows: NDArray[np.int64]
    cuts: NDArray[np.int64]
    body: int = 0
    header: bytes = b""
    errors: str = "strict"
    max_rows: int = 1 << 22
    max_cells: int = MAX_CELLS

    def __reduce__(self) -> tuple[Any, ...]:
        # A message may be shorter than what is known of its frame: tasks carry segments, see `packed`.
        derived = self.stored if self.field is not None else np.ones_like(self.stored)
        if self.body or not np.array_equal(self.rows, derived) or not self._contiguous():
            frames = tuple(
                a.astype("<i8").tobytes() for a in (self.offset, self.size, self.stored, self.rows)
            )
            return _with_frames, (self.state(), frames, self.cuts.tolist(), self.body)
        return PackedLogDecoder.of(self).__reduce__()

    def _contiguous(self) -> bool:
        return bool((self.offset[:-1] + self.size[:-1] == self.offset[1:]).all())

    def state(self) -> tuple[Any, ...]:
        """Return the arguments of `without_frames` that make the same decoder."""
        header = self.header  # holds the section, which need not be told twice
        cut = header.find(self.section) if self.section else -1
        stored = (header[:cut], header[cut + len(self.section) :]) if cut >= 0 else (header, None)
        limits = (self.errors, self.max_rows, self.max_cells)
        return (self.path, self.section, self.number, self.field, self.columns, self.dtypes, stored, limits)

    @classmethod
    def without_frames(
        cls,
        path: str,
        section: bytes,
        number: int,
        field: str | None,
        columns: tuple[int, ...],
        dtypes: tuple[str, ...],
        stored: tuple[bytes, bytes | None],
        limits: tuple[str, int, int],
    ) -> LogDecoder:
        """Return a decoder of no segment; the arguments are those that `state` gives."""
        before, after = stored
        header = before if after is None else before + section + after
        none = np.empty(0, np.int64)
        cuts = np.zeros(1, np.int64)
        return cls(
            path, section, number, field, columns, dtypes, none, none, none, none, cuts, 0, header, *limits
        )

    def _frames(self, segment: int, rows: tuple[int, int] | None) -> tuple[int, int, int, int]:
        """Frames [low, high) that hold the wanted rows of a segment, and which of their rows those are."""
        low, high = int(self.cuts[segment]), int(self.cuts[segment + 1])
        if rows is None:
            return low, high, 0, int(self.rows[low:high].sum())
        ends = np.cumsum(self.rows[low:high])
        first = int(np.searchsorted(ends, rows[0], "right"))
        last = int(np.searchsorted(ends, rows[1], "left")) + 1
        if rows[0] >= rows[1]:
            return low, low, 0, 0
        before = int(ends[first - 1]) if first else 0
        return low + first, min(low + last, high), rows[0] - before, rows[1] - before

    @property
    def independent(self) -> bool:
        """False: messages hold all columns."""
        return False

    def unchanged(self, file: ByteFile) -> bool:
        """Tell whether a log that was modified begins with the same header and still holds the last message."""
        if self.body:
            return False
        end = int(self.offset[-1] + self.size[-1]) if len(self.size) else len(self.header)
        if file.size < max(end, len(self.header)) or file.read(0, len(self.header)) != self.header:
            return False
        if not len(self.size):
            return True
        last = slice(len(self.size) - 1, len(self.size))
        frames = Frames(self.offset[last], self.size[last], self.stored[last], end)
        return check_frames(file, frames, 0, 1) is None

    def ranges(
        self, segment: int, columns: Sequence[int], rows: tuple[int, int] | None = None
    ) -> list[tuple[int, int]]:
        """Return the one byte range of the messages that hold the rows; none when there are none."""
        low, high, _, _ = self._frames(segment, rows)
        if low == high:
            return []
        begin = int(self.offset[low])
        return [(begin, int(self.offset[high - 1] + self.size[high - 1]) - begin)]

    def messages(self, segment: int, data: Sequence[memoryview]) -> list[bytes]:
        """Return the messages of one segment, decompressed, checksums checked.

        Parameters
        ----------
        segment : int
        data : sequence of memoryview
            As for `decode` of all rows.

        Returns
        -------
        list of bytes
            Each begins with D0 or D8: its types are those of `section`. Of a file that is one message, that message.

        Raises
        ------
        FormatError
            If a message is damaged.
        """
        low, high, _, _ = self._frames(segment, None)
        if low == high:
            return []
        if self.body:
            return [bytes(data[0])]
        base = int(self.offset[low])
        try:
            window, start, length = self._payloads(low, high, data[0], base)
        except FormatError as exc:
            raise type(exc)(
                exc.message, path=self.path, offset=base + (exc.offset or 0), section="frames"
            ) from exc
        view = memoryview(window)
        return [bytes(view[a : a + n]) for a, n in zip(start.tolist(), length.tolist(), strict=True)]

    def select(self, low: int, high: int, columns: Sequence[int]) -> LogDecoder:
        """Return the decoder of some segments and columns, renumbered from 0."""
        first, last = int(self.cuts[low]), int(self.cuts[high])
        return replace(
            self,
            columns=tuple(self.columns[c] for c in columns),
            dtypes=tuple(self.dtypes[c] for c in columns),
            offset=self.offset[first:last].copy(),
            size=self.size[first:last].copy(),
            stored=self.stored[first:last].copy(),
            rows=self.rows[first:last].copy(),
            cuts=self.cuts[low : high + 1] - first,
        )

    def decoded_row_bytes(self, columns: Sequence[int]) -> float:
        """Return about how many bytes a row takes when decoded: stored bytes are shared out over variable columns."""
        fixed = sum(np.dtype(self.dtypes[c]).itemsize for c in columns if self.dtypes[c])
        variable = sum(1 for c in columns if not self.dtypes[c])
        rows = max(1, int(self.rows.sum()))
        share = sum(1 for text in self.dtypes if not text) or 1
        return fixed + variable * (4 + float(self.size.sum()) / rows / share)

    def decode(
        self,
        segment: int,
        columns: Sequence[int],
        data: Sequence[memoryview],
        *,
        rows: tuple[int, int] | None = None,
        out: Sequence[NDArray[Any] | None] | None = None,
        threads: int = 1,
        dictionaries: Collection[int] = (),
        allocate: Allocate | None = None,
    ) -> list[DecodedColumn]:
        """Decode columns of one segment; see `colstore_io.formats.Decoder`."""
        low, high, first, stop = self._frames(segment, rows)
        wanted = tuple(sorted({self.columns[c] for c in columns}))
        chosen = list_columns(self.section, self.number, wanted)
        total = int(self.rows[low:high].sum())
        whole = first == 0 and stop == total
        targets: list[NDArray[Any] | None] = []
        slots: dict[int, int] = {}
        for number, column in enumerate(wanted):
            slots[column] = number
            dtype = chosen.columns[number].dtype
            if dtype is None:
                targets.append(None)
                continue
            given = None
            if out is not None and whole:
                given = next(
                    (o for c, o in zip(columns, out, strict=True) if self.columns[c] == column), None
                )
            if given is not None and given.flags.c_contiguous:
                targets.append(given.view(dtype))
            elif allocate is not None:
                targets.append(allocate(total * dtype.itemsize).view(dtype))
            else:
                targets.append(np.empty(total, dtype))
        window: Buffer = data[0] if data else b""
        parts = self._decode(low, high, window, chosen, targets, threads)
        return [
            self._shown(parts[slots[self.columns[c]]], c, first, stop, None if out is None else out[place])
            for place, c in enumerate(columns)
        ]

    def _shown(
        self, part: DecodedColumn, c: int, first: int, stop: int, out: NDArray[Any] | None
    ) -> DecodedColumn:
        if part.array is not None:
            return DecodedColumn(array=part.array.slice(first, stop - first))
        assert part.values is not None
        values = part.values[first:stop].view(np.dtype(self.dtypes[c]))
        if out is not None and (
            len(values) and out.__array_interface__["data"] != values.__array_interface__["data"]
        ):
            out[:] = values
        return DecodedColumn(
            values if out is None else out, None if part.validity is None else part.validity[first:stop]
        )

    def _decode(
        self,
        low: int,
        high: int,
        window: Buffer,
        chosen: ListColumns,
        targets: list[NDArray[Any] | None],
        threads: int,
    ) -> list[DecodedColumn]:
        """Decode frames [low, high) into `targets`, which hold all their rows."""
        base = int(self.offset[low]) if low < high else 0
        try:
            if self.body:
                return self._bare(window, chosen, targets, threads)
            window, start, length = self._payloads(low, high, window, base)
            if self.field is None:
                return self._records(window, start, length, chosen, targets)
            return self._lists(low, high, window, start, length, chosen, targets, threads)
        except FormatError as exc:
            if exc.path is not None:
                raise
            raise type(exc)(
                exc.message,
                path=self.path,
                offset=base + (exc.offset or 0),
                section=exc.section or f"messages {low} to {high - 1}",
            ) from exc

    def _payloads(
        self, low: int, high: int, window: Buffer, base: int
    ) -> tuple[Buffer, NDArray[np.int64], NDArray[np.int64]]:
        """Where the messages of frames [low, high) are in the returned buffer, checksums checked, decompressed."""
        from ...kernels import message_log as kernel

        start, length = np.empty((2, high - low), np.int64)
        zstd = np.empty(high - low, np.uint8)
        code, bad = kernel.open_all(
            window,
            base,
            self.offset[low:high],
            self.size[low:high],
            self.stored[low:high],
            start,
            length,
            zstd,
        )
        if code:
            what = (
                "its checksum does not fit" if code == kernel.CRC else "it is not what was found when opening"
            )
            raise FormatError(
                f"message {low + bad} is damaged: {what}", offset=int(self.offset[low + bad]) - base
            )
        if not zstd.any():
            return window, start, length
        pieces = []
        for number in range(high - low):
            piece = memoryview(window)[int(start[number]) : int(start[number] + length[number])]
            pieces.append(_decompressed(piece, low + number) if zstd[number] else piece)
        length = np.array([len(piece) for piece in pieces], np.int64)
        return b"".join(pieces), np.cumsum(length) - length, length

    def _records(
        self,
        window: Buffer,
        start: NDArray[np.int64],
        length: NDArray[np.int64],
        chosen: ListColumns,
        targets: list[NDArray[Any] | None],
    ) -> list[DecodedColumn]:
        from ...kernels import record_columns as kernel

        check_size(len(start), len(chosen.columns), max_rows=1 << 62, max_cells=self.max_cells)
        buffers = ColumnBuffers(chosen, len(start), targets)
        wrong, at = kernel.read_records(chosen.layout, window, start, length, buffers.targets)
        if wrong:
            raise FormatError(kernel.WRONG[wrong], offset=at)
        return buffers.finish(window, errors=self.errors)

    def _lists(
        self,
        low: int,
        high: int,
        window: Buffer,
        start: NDArray[np.int64],
        length: NDArray[np.int64],
        chosen: ListColumns,
        targets: list[NDArray[Any] | None],
        threads: int,
    ) -> list[DecodedColumn]:
        field = next(f for f in list_fields(parsed_section(self.section)) if f.name == self.field)
        parts: list[list[DecodedColumn]] = []
        at = 0
        for number in range(high - low):
            begin, end = int(start[number]), int(start[number] + length[number])
            k8 = root_is_k8(window, begin, end)
            span = find_list(window, begin + 1, end, k8, self.section, field)
            stop = at + int(self.rows[low + number])
            if span.rows != stop - at:
                raise FormatError(
                    f"message {low + number} holds {span.rows} rows, its frame says {stop - at}", offset=begin
                )
            check_size(span.rows, len(chosen.struct.fields), max_rows=self.max_rows, max_cells=self.max_cells)
            outs = [None if target is None else target[at:stop] for target in targets]
            parts.append(decode_list(window, span, chosen, outs, errors=self.errors, threads=threads))
            at = stop
        if len(parts) == 1:
            return parts[0]
        return [
            _joined(chosen, number, [p[number] for p in parts], targets[number])
            for number in range(len(targets))
        ]

    def _bare(
        self, window: Buffer, chosen: ListColumns, targets: list[NDArray[Any] | None], threads: int
    ) -> list[DecodedColumn]:
        k8 = window[0] == 0xDC
        if self.field is None:
            # The record as a message without its section.
            message = bytes((0xD8 if k8 else 0xD0,)) + bytes(window[self.body :])
            return self._records(
                message, np.zeros(1, np.int64), np.array([len(message)], np.int64), chosen, targets
            )
        field = next(f for f in list_fields(parsed_section(self.section)) if f.name == self.field)
        span = find_list(window, self.body, len(window), k8, self.section, field)
        if span.rows != int(self.rows[0]):
            raise FormatError(f"the message holds {span.rows} rows, {int(self.rows[0])} when it was opened")
        check_size(span.rows, len(chosen.struct.fields), max_rows=self.max_rows, max_cells=self.max_cells)
        return decode_list(window, span, chosen, targets, errors=self.errors, threads=threads)


def _with_frames(state: tuple[Any, ...], frames: tuple[bytes, ...], cuts: list[int], body: int) -> LogDecoder:
    offset, size, stored, rows = (np.frombuffer(a, "<i8").astype(np.int64) for a in frames)
    return replace(
        LogDecoder.without_frames(*state),
        offset=offset,
        size=size,
        stored=stored,
        rows=rows,
        cuts=np.array(cuts, np.int64),
        body=body,
    )


def root_is_k8(data: Buffer, begin: int, end: int) -> bool:
    """Return whether the message of a log at `begin` has eight-bit keys; it must be D0 or D8."""
    root = data[begin] if begin < end else 0
    if root not in (0xD0, 0xD8):
        raise FormatError(f"a message of a log begins with D0 or D8, not {root:02X}", offset=begin)
    return root == 0xD8


def _decompressed(payload: memoryview, number: int) -> bytes:
    import pyarrow as pa

    from .log import MAX_PAYLOAD

    size = int.from_bytes(payload[:4], "little")
    if len(payload) < 4 or size > MAX_PAYLOAD:
        raise FormatError(f"message {number} claims to decompress to {size} bytes")
    try:
        data: bytes = pa.Codec("zstd").decompress(payload[4:], size, asbytes=True)
    except (OSError, ValueError) as exc:
        raise FormatError(f"message {number} does not decompress: {exc}") from exc
    if len(data) != size:
        raise FormatError(f"message {number} decompresses to {len(data)} bytes, not {size}")
    return data


def _joined(
    chosen: ListColumns, number: int, parts: list[DecodedColumn], target: NDArray[Any] | None
) -> DecodedColumn:
    """Put the columns of several messages behind each other; fixed-width values are in `target` already."""
    column = chosen.columns[number]
    if target is not None:
        if not column.optional:
            return DecodedColumn(target)
        # A list in table form has no optionals: every row has a value there.
        flags = [
            np.ones(len(p.values), np.bool_) if p.validity is None else p.validity
            for p in parts
            if p.values is not None
        ]
        return DecodedColumn(target, np.concatenate(flags) if flags else np.empty(0, np.bool_))
    import pyarrow as pa

    arrays: list[pa.Array] = [part.array for part in parts]
    if not arrays:
        return DecodedColumn(array=pa.array([], column.arrow_type()))
    widest = next((a.type for a in arrays if str(a.type).startswith("large")), arrays[0].type)
    return DecodedColumn(array=pa.concat_arrays([a if a.type == widest else a.cast(widest) for a in arrays]))
