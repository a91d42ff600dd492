"""The decoder of a file: where its chunks are and how they are encoded, without any handle."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...taking import Run, Take
from .. import Allocate, DecodedColumn, ReadOptions, ReadyChunk, ValueRoom
from .chunk import Chunk, ChunkFacts, Place, parse_chunk
from .decode import ColumnWork, Request, decodes_parts, pick
from .decode_fixed import plain_view
from .decode_variable import encoded_bytes
from .fixed_blocks import fixed_blocks
from .footer import CHUNK_RECORD, Footer, fingerprint_of
from .pipeline import WORTHWHILE_BYTES, run
from .tags import PLAIN_WIDTH, TRAILER_BYTES, Encoding, Type

if TYPE_CHECKING:
    from ...storage import ByteFile
    from .tokenizer import Tokenizer

__all__ = ["ColumnsDecoder", "decoder_of"]

_OFFSET_BYTES = 4
_TYPES = {int(kind): kind for kind in Type}
_NULL_COUNT, _ENCODING, _CODEC = (
    list(CHUNK_RECORD.names or ()).index(n) for n in ("null_count", "encoding", "codec")
)


@dataclass(frozen=True, slots=True)
class ColumnsDecoder:
    """See `colstore_io.formats.Decoder`. Immutable; may be used by several threads at once.

    Attributes
    ----------
    path : str
        For messages.
    options : ReadOptions
    digests : tuple of bytes
        Tokenizers of the file.
    names : tuple of str, length C
        As in the schema.
    types : ndarray of uint8, shape (C,)
    nullable : ndarray of bool, shape (C,)
    row_bytes : tuple of float, length C
        About how many bytes a decoded row takes; empty while `chunks` can tell.
    first_group : int
        Number of the first segment in the file, for messages.
    n_rows : ndarray of int64, shape (R,)
    start : ndarray of int64, shape (R, C)
        File offset of each chunk.
    chunks : structured ndarray, shape (R, C)
        As `Footer.chunks`: ``byte_length``, ``null_count``, ``encoding``, ``codec``, ``tokenizer``.
    footer_place : tuple of int
        Where the footer begins and ends.
    fingerprint : bytes
        `Footer.fingerprint`.
    independent : bool
        True: see `Decoder`.

    Notes
    -----
    A column of fixed width comes as NumPy values, with a validity where there are nulls. A column of variable length
    comes as an Arrow array of ``string`` or ``binary``; of ``large_string`` or ``large_binary`` where the values of
    one segment have more than 2^31 - 1 bytes. `dictionaries` matters to these alone.

    Only chunks as wholes are fetched: where the blocks of a chunk are says the chunk. Of a part of the rows, only
    blocks that hold some are decompressed if the column is Plain, of fixed width and has no nulls.
    """

    path: str
    options: ReadOptions
    digests: tuple[bytes, ...]
    names: tuple[str, ...]
    types: NDArray[np.uint8]
    nullable: NDArray[np.bool_]
    row_bytes: tuple[float, ...]
    first_group: int
    n_rows: NDArray[np.int64]
    start: NDArray[np.int64]
    chunks: NDArray[Any]
    footer_place: tuple[int, int]
    fingerprint: bytes
    independent: bool = True

    def ranges(
        self, segment: int, columns: Sequence[int], rows: tuple[int, int] | None = None
    ) -> list[tuple[int, int]]:
        """Return (offset, length) of each chunk; see `Decoder.ranges`."""
        start, chunks = self.start[segment], self.chunks[segment]
        return [(int(start[column]), int(chunks[column]["byte_length"])) for column in columns]

    def decode(
        self,
        segment: int,
        columns: Sequence[int],
        data: Sequence[memoryview],
        *,
        rows: tuple[int, int] | None = None,
        out: Sequence[NDArray[Any] | ValueRoom | None] | None = None,
        threads: int = 1,
        dictionaries: Collection[int] = (),
        allocate: Allocate | None = None,
    ) -> list[DecodedColumn]:
        """Decode columns of one segment; see `Decoder.decode`.

        Raises
        ------
        FormatError
            If a chunk breaks a rule of columns.md, would decode to more than ``options.max_decoded_bytes``, or is
            text that is not UTF-8 (unless ``options.errors`` is ``"surrogateescape"``).
        UnsupportedFeatureError
            If a tokenizer is not registered.
        """
        n_rows = int(self.n_rows[segment])
        start, stop = (0, n_rows) if rows is None else rows
        if not 0 <= start <= stop <= n_rows:
            raise ValueError(f"rows {start} to {stop} of a segment of {n_rows}")
        whole = (start, stop) == (0, n_rows)
        take = None if whole else Run(start, stop)
        return self._decoded(segment, columns, data, take, out, threads, dictionaries, allocate)

    def take(
        self,
        segment: int,
        columns: Sequence[int],
        data: Sequence[memoryview],
        take: Take,
        *,
        out: Sequence[NDArray[Any] | None] | None = None,
        threads: int = 1,
        dictionaries: Collection[int] = (),
        allocate: Allocate | None = None,
    ) -> list[DecodedColumn]:
        """Decode some rows of columns of one segment; see `TakingDecoder.take`, and `decode` for errors."""
        n_rows = int(self.n_rows[segment])
        if not 0 <= take.start <= take.stop <= n_rows:
            raise ValueError(f"rows {take.start} to {take.stop} of a segment of {n_rows}")
        return self._decoded(segment, columns, data, take, out, threads, dictionaries, allocate)

    def _decoded(
        self,
        segment: int,
        columns: Sequence[int],
        data: Sequence[memoryview],
        take: Take | None,
        out: Sequence[NDArray[Any] | ValueRoom | None] | None,
        threads: int,
        dictionaries: Collection[int],
        allocate: Allocate | None,
    ) -> list[DecodedColumn]:
        """Decode all rows, or those of `take`."""
        works: list[ColumnWork | DecodedColumn] = []
        try:
            for number, column in enumerate(columns):
                place = self.place(segment, column)
                facts = self.facts(segment, column)
                chunk = parse_chunk(memoryview(data[number]), facts, place)
                given = None if out is None else out[number]
                request = Request(
                    0 if take is None else take.start,
                    facts.n_rows if take is None else take.stop,
                    out=given if isinstance(given, np.ndarray) else None,
                    room=None if isinstance(given, np.ndarray) else given,
                    dictionary=column in dictionaries,
                    text=self.options.errors == "strict",
                    allocate=allocate,
                    tokenizer=self._tokenizer(segment, column, chunk, place),
                )
                if take is None or (isinstance(take, Run) and decodes_parts(chunk, facts)):
                    works.append(ColumnWork(chunk, facts, request, place))
                else:
                    worth = threads if chunk.raw_length >= WORTHWHILE_BYTES else 1
                    works.append(pick(chunk, facts, request, take, place, worth))
            waiting = [work for work in works if isinstance(work, ColumnWork)]
            if threads > 1 and sum(work.raw_bytes for work in waiting) < WORTHWHILE_BYTES:
                threads = 1
            left = [work for work in waiting if not work.read_at_once(threads)]
            if left:
                run(left, min(threads, sum(max(1, work.n_blocks) for work in left)))
        except MemoryError:
            raise FormatError(
                "there is not enough memory to decode it; max_decoded_bytes bounds what a file may ask for",
                path=self.path,
                section=f"row group {self.first_group + segment}",
            ) from None
        return [work.result if isinstance(work, ColumnWork) else work for work in works]

    def ready(self, segment: int, column: int, data: memoryview) -> ReadyChunk | None:
        """Return a chunk for repeated reads; see `ReadyDecoder`."""
        facts = self.facts(segment, column)
        ((offset, length),) = self.ranges(segment, [column])
        try:
            chunk = parse_chunk(data[offset : offset + length], facts, self.place(segment, column))
        except FormatError:
            return None
        blocks = None if chunk.bitmap is not None else fixed_blocks(chunk, facts.type)
        if blocks is None:
            return None
        return ReadyChunk(
            facts.n_rows,
            blocks.raw_bytes,
            blocks.shared,
            blocks.read,
            plain_view(chunk, facts.type),
        )

    def value_bytes(self, segment: int, column: int, data: memoryview) -> int | None:
        """Return how many bytes the values of a column have; see `JoiningDecoder`."""
        facts, place = self.facts(segment, column), self.place(segment, column)
        try:
            chunk = parse_chunk(data, facts, place)
            size = encoded_bytes(chunk, facts.n_values, place)
        except FormatError:
            return None
        return size if size is not None and 0 <= size <= facts.max_decoded_bytes else None

    def select(self, low: int, high: int, columns: Sequence[int]) -> ColumnsDecoder:
        """Return the decoder of segments [low, high) and `columns`; see `Decoder.select`."""
        chosen = np.asarray(columns, np.intp)
        return replace(
            self,
            names=tuple(self.names[c] for c in columns),
            types=self.types[chosen],
            nullable=self.nullable[chosen],
            row_bytes=tuple(self._row_bytes()[chosen].tolist()),
            first_group=self.first_group + low,
            n_rows=self.n_rows[low:high],
            start=self.start[low:high, chosen],
            chunks=self.chunks[low:high, chosen],
        )

    def unchanged(self, file: ByteFile) -> bool:
        """Tell whether a modified file still has this footer where it was: an append leaves it there, as dead bytes."""
        start, stop = self.footer_place
        if file.size < stop + TRAILER_BYTES:
            return False
        return fingerprint_of(file.read(start, stop - start)) == self.fingerprint

    def decoded_row_bytes(self, columns: Sequence[int]) -> float:
        """Return about how many bytes a decoded row takes: widths, or the mean of shortest and longest value."""
        return float(self._row_bytes()[np.asarray(columns, np.intp)].sum())

    def place(self, segment: int, column: int) -> Place:
        """Where a chunk is, for messages."""
        return Place(
            self.path, self.first_group + segment, self.names[column], self.start.item(segment, column)
        )

    def facts(self, segment: int, column: int) -> ChunkFacts:
        """What the footer says about a chunk."""
        chunk = self.chunks.item(
            segment, column
        )  # a tuple at once: each field of a record would cost as much
        return ChunkFacts(
            _TYPES[self.types.item(column)],
            self.nullable.item(column),
            self.n_rows.item(segment),
            chunk[_NULL_COUNT],
            chunk[_ENCODING],
            chunk[_CODEC],
            self.options.max_decoded_bytes,
        )

    def _row_bytes(self) -> NDArray[np.float64]:
        """Widths; of values of variable length the mean of the shortest and the longest, weighted by rows."""
        if self.row_bytes:
            return np.array(self.row_bytes, np.float64)
        sizes: NDArray[np.float64] = _FIXED_WIDTHS[self.types]
        fixed = sizes > 0
        if not fixed.all():
            weights = self.n_rows / max(1, int(self.n_rows.sum()))
            means = (weights / 2) @ self.chunks["min_len"] + (weights / 2) @ self.chunks["max_len"]
            sizes[~fixed] = means[~fixed] + _OFFSET_BYTES
        return sizes + (self.nullable & fixed)

    def _tokenizer(self, segment: int, column: int, chunk: Chunk, place: Place) -> Tokenizer | None:
        if chunk.encoding is not Encoding.TOKENIZED:
            return None
        number = int(self.chunks[segment, column]["tokenizer"])
        if number == 0:
            return None
        from .tokenizer import default_registry

        try:
            return default_registry.get(self.digests[number - 1])
        except FormatError as exc:
            place.refuse(exc.message)

    def __getstate__(self) -> tuple[Any, ...]:
        # A task carries thousands of chunks. One row group follows the other nearly always, so offsets are told by
        # how they differ from the end of the chunk before.
        begin, chunks = self.start.ravel(), self.chunks.ravel()
        length = chunks["byte_length"]
        expected = np.concatenate([begin[:1], (begin + length)[:-1]])
        numbers = [
            np.diff(self.n_rows, prepend=0),
            begin - expected,
            length,
            chunks["null_count"].astype(np.int64),
            chunks["tokenizer"],
        ]
        tags = np.concatenate([chunks["encoding"], chunks["codec"]]).tobytes()
        # No names here: they would take a tenth of a task of one row group.
        return (
            self.path,
            self.options,
            self.digests,
            self.names,
            (self.types.tobytes(), self.nullable.tobytes(), tuple(self._row_bytes().tolist())),
            self.first_group,
            int(begin[0]) if len(begin) else 0,
            self.footer_place,
            self.fingerprint,
            self.start.shape,
            zlib.compress(b"".join(_planes(array) for array in numbers), 6),
            zlib.compress(tags, 6),
        )

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        path, options, digests, names, columns, first_group, first, footer_place, fingerprint, shape = state[
            :10
        ]
        n_groups, n_columns = shape
        count = n_groups * n_columns
        raw = zlib.decompress(state[10])
        parts = []
        at = 0
        for size in (n_groups, count, count, count, count):
            parts.append(_numbers(raw[at : at + 8 * size], size))
            at += 8 * size
        steps, gaps, length, null_count, tokenizer = parts
        begin = first + np.cumsum(gaps) + np.cumsum(length) - length
        tags = np.frombuffer(zlib.decompress(state[11]), np.uint8)
        chunks = np.zeros(count, CHUNK_RECORD)
        chunks["byte_length"], chunks["null_count"], chunks["tokenizer"] = length, null_count, tokenizer
        chunks["encoding"], chunks["codec"] = tags[:count], tags[count:]
        types, nullable, row_bytes = columns
        values = {
            "path": path,
            "options": options,
            "digests": digests,
            "names": names,
            "types": np.frombuffer(types, np.uint8),
            "nullable": np.frombuffer(nullable, np.bool_),
            "row_bytes": row_bytes,
            "first_group": first_group,
            "n_rows": np.cumsum(steps),
            "start": begin.reshape(shape),
            "chunks": chunks.reshape(shape),
            "footer_place": footer_place,
            "fingerprint": fingerprint,
            "independent": True,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _planes(values: NDArray[np.int64]) -> bytes:
    """Return the bytes of `values`, all lowest ones first, then all second ones...: high bytes are mostly equal."""
    return values.astype("<i8").view(np.uint8).reshape(-1, 8).T.tobytes()


def _numbers(planes: bytes, count: int) -> NDArray[np.int64]:
    matrix = np.frombuffer(planes, np.uint8).reshape(8, count)
    return np.ascontiguousarray(matrix.T).view("<i8").reshape(count).astype(np.int64)


def decoder_of(
    footer: Footer, names: tuple[str, ...], digests: tuple[bytes, ...], *, path: str, options: ReadOptions
) -> ColumnsDecoder:
    """Return the decoder of a whole file."""
    return ColumnsDecoder(
        path,
        options,
        digests,
        names,
        footer.types,
        footer.nullable,
        (),
        0,
        footer.n_rows,
        footer.chunk_start,
        footer.chunks,
        (footer.start, footer.stop),
        footer.fingerprint,
    )


_FIXED_WIDTHS = np.array([0, *(PLAIN_WIDTH.get(kind, 0) for kind in Type)], np.float64)
