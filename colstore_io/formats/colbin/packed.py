"""What a task carries of a log: where its segments are, not where each of their messages is.

A log may hold millions of short messages, and a description of each would be as long as the message. Frames stand
behind each other and tell their own lengths, so a segment's frames are found again in its bytes by whoever decodes it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from .. import Allocate, DecodedColumn

if TYPE_CHECKING:
    from ...storage import ByteFile
    from .decoder import LogDecoder

__all__ = ["PackedLogDecoder"]


@dataclass(frozen=True)
class PackedLogDecoder:
    """The segments of one log; see `colstore_io.formats.Decoder`. A `LogDecoder` unpickles as this.

    Attributes
    ----------
    model : LogDecoder
        Of the same columns, without frames.
    start, size, frames, rows : ndarray of int64, shape (S,)
        Of the segments: where they begin, their bytes, messages and rows. They lie behind each other.
    """

    model: LogDecoder
    start: NDArray[np.int64]
    size: NDArray[np.int64]
    frames: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, decoder: LogDecoder) -> PackedLogDecoder:
        """Return the packed form of a decoder whose rows follow from its frames."""
        cuts = decoder.cuts
        ends = np.concatenate([[0], np.cumsum(decoder.size)])[cuts]
        start = decoder.offset[0] + ends[:-1] if len(decoder.offset) else ends[:-1]
        counted = np.concatenate([[0], np.cumsum(decoder.rows)])[cuts]
        empty = np.empty(0, np.int64)
        model = replace(
            decoder, offset=empty, size=empty, stored=empty, rows=empty, cuts=np.zeros(1, np.int64)
        )
        return cls(model, start, np.diff(ends), np.diff(cuts), np.diff(counted))

    @property
    def independent(self) -> bool:
        """False: messages hold all columns."""
        return False

    def ranges(
        self, segment: int, columns: Sequence[int], rows: tuple[int, int] | None = None
    ) -> list[tuple[int, int]]:
        """Return the one byte range of a segment; none when no row is wanted."""
        if rows is not None and rows[0] >= rows[1]:
            return []
        return [(int(self.start[segment]), int(self.size[segment]))] if self.size[segment] else []

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
        window = data[0] if data else memoryview(b"")
        found = self._found(segment, window) if data else self.model
        if data:
            # Of these messages only those that hold the rows are checked and decoded, as where frames are known.
            parts = [
                window[begin - int(self.start[segment]) :][:length]
                for begin, length in found.ranges(0, columns, rows)
            ]
            return found.decode(0, columns, parts, rows=rows, out=out, threads=threads, allocate=allocate)
        empty = replace(found, cuts=np.zeros(2, np.int64))
        return empty.decode(0, columns, [], rows=(0, 0), out=out, threads=threads, allocate=allocate)

    def messages(self, segment: int, data: Sequence[memoryview]) -> list[bytes]:
        """Return the messages of one segment; see `LogDecoder.messages`."""
        return self._found(segment, data[0]).messages(0, data) if data else []

    def select(self, low: int, high: int, columns: Sequence[int]) -> PackedLogDecoder:
        """Return the decoder of some segments and columns, renumbered from 0."""
        return PackedLogDecoder(
            self.model.select(0, 0, columns),
            self.start[low:high],
            self.size[low:high],
            self.frames[low:high],
            self.rows[low:high],
        )

    def unchanged(self, file: ByteFile) -> bool:
        """Tell whether a log that was modified begins with the same header and still holds the last message."""
        end = int(self.start[-1] + self.size[-1]) if len(self.size) else 0
        if file.size < end:
            return False
        if not end:
            return self.model.unchanged(file)
        try:
            last = len(self.size) - 1
            found = self._found(last, file.read(int(self.start[-1]), int(self.size[-1])))
        except FormatError:
            return False
        return found.unchanged(file)

    def decoded_row_bytes(self, columns: Sequence[int]) -> float:
        """As `LogDecoder.decoded_row_bytes`."""
        return replace(self.model, size=self.size, rows=self.rows).decoded_row_bytes(columns)

    def _found(self, segment: int, window: memoryview) -> LogDecoder:
        """Return the decoder of the one segment that `window` holds; `FormatError` if it is not what was planned."""
        from ...kernels import message_log as kernel

        base, count = int(self.start[segment]), int(self.frames[segment])
        offset, size, stored = np.empty((3, count), np.int64)
        found, end, _ = kernel.walk(window, 0, base, offset, size, stored)
        if found != count or end != len(window):
            raise FormatError(
                "its messages are not what was found when opening",
                path=self.model.path,
                offset=base,
                section="frames",
            )
        rows = stored if self.model.field is not None else np.ones(count, np.int64)
        if int(rows.sum()) != int(self.rows[segment]):
            raise FormatError(
                f"{int(rows.sum())} rows where {int(self.rows[segment])} were found when opening",
                path=self.model.path,
                offset=base,
                section="frames",
            )
        return replace(
            self.model,
            offset=offset,
            size=size,
            stored=stored,
            rows=rows,
            cuts=np.array([0, count], np.int64),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        packed = tuple(_packed(column) for column in (self.size, self.frames, self.rows))
        first = int(self.start[0]) if len(self.start) else 0
        return _unpacked, (self.model.state(), first, *packed)


def _packed(values: NDArray[np.int64]) -> bytes | NDArray[np.int64]:
    return values.astype("<u4").tobytes() if not len(values) or int(values.max()) < 1 << 32 else values


def _numbers(packed: bytes | NDArray[np.int64]) -> NDArray[np.int64]:
    return np.frombuffer(packed, "<u4").astype(np.int64) if isinstance(packed, bytes) else packed


def _unpacked(
    state: tuple[Any, ...],
    first: int,
    size: bytes | NDArray[np.int64],
    frames: bytes | NDArray[np.int64],
    rows: bytes | NDArray[np.int64],
) -> PackedLogDecoder:
    from .decoder import LogDecoder

    sizes = _numbers(size)
    start = first + np.cumsum(sizes) - sizes
    return PackedLogDecoder(LogDecoder.without_frames(*state), start, sizes, _numbers(frames), _numbers(rows))
