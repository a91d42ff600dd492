"""The decoder of a file: where its chunks are and how they are encoded, without any handle."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from .. import Allocate, DecodedColumn, ReadOptions
from .chunk import Chunk, ChunkFacts, Place, parse_chunk
from .decode import ColumnWork, Request
from .footer import Footer
from .pipeline import WORTHWHILE_BYTES, run
from .tags import PLAIN_WIDTH, Encoding, Type

if TYPE_CHECKING:
    from ...storage import ByteFile
    from .tokenizer import Tokenizer

__all__ = ["ColumnsDecoder", "decoder_of"]

_OFFSET_BYTES = 4


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
    row_bytes : ndarray of float64, shape (C,)
        About how many bytes a decoded row takes.
    first_group : int
        Number of the first segment in the file, for messages.
    n_rows : ndarray of int64, shape (R,)
    start, length, null_count : ndarray of int64, shape (R, C)
        File offset, bytes and nulls of each chunk.
    encoding, codec : ndarray of uint8, shape (R, C)
        As the footer says.
    tokenizer : ndarray of int64, shape (R, C)
        Place of a chunk's tokenizer in `digests`, from 1; 0 for none.
    independent : bool
        True: see `Decoder`.

    Notes
    -----
    A column of fixed width comes as NumPy values, with a validity where there are nulls. A column of variable length comes
    as an Arrow array of ``string`` or ``binary``; of ``large_string`` or ``large_binary`` where the values of one segment
    have more than 2^31 - 1 bytes. `dictionaries` matters to these alone.

    Only chunks as wholes are fetched: where the blocks of a chunk are says the chunk. Of a part of the rows, only blocks
    that hold some are decompressed if the column is Plain, of fixed width and has no nulls.
    """

    path: str
    options: ReadOptions
    digests: tuple[bytes, ...]
    names: tuple[str, ...]
    types: NDArray[np.uint8]
    nullable: NDArray[np.bool_]
    row_bytes: NDArray[np.float64]
    first_group: int
    n_rows: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    null_count: NDArray[np.int64]
    encoding: NDArray[np.uint8]
    codec: NDArray[np.uint8]
    tokenizer: NDArray[np.int64]
    independent: bool = True

    def ranges(
        self, segment: int, columns: Sequence[int], rows: tuple[int, int] | None = None
    ) -> list[tuple[int, int]]:
        """Return (offset, length) of each chunk; see `Decoder.ranges`."""
        start, length = self.start[segment], self.length[segment]
        return [(int(start[column]), int(length[column])) for column in columns]

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
        """Decode columns of one segment; see `Decoder.decode`.

        Raises
        ------
        FormatError
            If a chunk breaks a rule of columns.md, would decode to more than ``options.max_decoded_bytes``, or is text that
            is not UTF-8 (unless ``options.errors`` is ``"surrogateescape"``).
        UnsupportedFeatureError
            If a tokenizer is not registered.
        """
        try:
            return self._decode(
                segment,
                columns,
                data,
                rows=rows,
                out=out,
                threads=threads,
                dictionaries=dictionaries,
                allocate=allocate,
            )
        except MemoryError:
            raise FormatError(
                "there is not enough memory to decode it; max_decoded_bytes bounds what a file may ask for",
                path=self.path,
                section=f"row group {self.first_group + segment}",
            ) from None

    def _decode(
        self,
        segment: int,
        columns: Sequence[int],
        data: Sequence[memoryview],
        *,
        rows: tuple[int, int] | None,
        out: Sequence[NDArray[Any] | None] | None,
        threads: int,
        dictionaries: Collection[int],
        allocate: Allocate | None,
    ) -> list[DecodedColumn]:
        n_rows = int(self.n_rows[segment])
        start, stop = (0, n_rows) if rows is None else rows
        if not 0 <= start <= stop <= n_rows:
            raise ValueError(f"rows {start} to {stop} of a segment of {n_rows}")
        works = []
        for number, column in enumerate(columns):
            place = self.place(segment, column)
            facts = self.facts(segment, column)
            chunk = parse_chunk(memoryview(data[number]), facts, place)
            request = Request(
                start,
                stop,
                out=None if out is None else out[number],
                dictionary=column in dictionaries,
                text=self.options.errors == "strict",
                allocate=allocate,
                tokenizer=self._tokenizer(segment, column, chunk, place),
            )
            works.append(ColumnWork(chunk, facts, request, place))
        if threads > 1 and sum(work.raw_bytes for work in works) < WORTHWHILE_BYTES:
            threads = 1
        run(works, min(threads, sum(max(1, work.n_blocks) for work in works)))
        return [work.result for work in works]

    def select(self, low: int, high: int, columns: Sequence[int]) -> ColumnsDecoder:
        """Return the decoder of segments [low, high) and `columns`; see `Decoder.select`."""
        chosen = np.asarray(columns, np.intp)

        def part(array: NDArray[Any]) -> NDArray[Any]:
            return array[low:high, chosen]

        return replace(
            self,
            names=tuple(self.names[c] for c in columns),
            types=self.types[chosen],
            nullable=self.nullable[chosen],
            row_bytes=self.row_bytes[chosen],
            first_group=self.first_group + low,
            n_rows=self.n_rows[low:high],
            start=part(self.start),
            length=part(self.length),
            null_count=part(self.null_count),
            encoding=part(self.encoding),
            codec=part(self.codec),
            tokenizer=part(self.tokenizer),
        )

    def unchanged(self, file: ByteFile) -> bool:
        """Return False: files of this format are not appended to, so a modified one is another one."""
        return False

    def decoded_row_bytes(self, columns: Sequence[int]) -> float:
        """Return about how many bytes a decoded row takes: widths, or the mean of shortest and longest value."""
        return float(self.row_bytes[np.asarray(columns, np.intp)].sum())

    def place(self, segment: int, column: int) -> Place:
        """Where a chunk is, for messages."""
        return Place(
            self.path, self.first_group + segment, self.names[column], int(self.start[segment, column])
        )

    def facts(self, segment: int, column: int) -> ChunkFacts:
        """What the footer says about a chunk."""
        return ChunkFacts(
            Type(int(self.types[column])),
            bool(self.nullable[column]),
            int(self.n_rows[segment]),
            int(self.null_count[segment, column]),
            int(self.encoding[segment, column]),
            int(self.codec[segment, column]),
            self.options.max_decoded_bytes,
        )

    def _tokenizer(self, segment: int, column: int, chunk: Chunk, place: Place) -> Tokenizer | None:
        number = int(self.tokenizer[segment, column])
        if chunk.encoding is not Encoding.TOKENIZED or number == 0:
            return None
        from .tokenizer import default_registry

        try:
            return default_registry.get(self.digests[number - 1])
        except FormatError as exc:
            place.refuse(exc.message)

    def __getstate__(self) -> dict[str, Any]:
        # A task carries thousands of chunks. One row group follows the other nearly always, so offsets are told by how they
        # differ from the end of the chunk before.
        begin = self.start.ravel()
        expected = begin[:1].tolist() + (begin + self.length.ravel())[:-1].tolist()
        numbers = [
            self.n_rows,
            np.diff(self.n_rows, prepend=0),
            begin - np.array(expected, np.int64),
            self.length.ravel(),
            self.null_count.ravel(),
            self.tokenizer.ravel(),
        ]
        tags = np.concatenate([self.encoding.ravel(), self.codec.ravel()]).tobytes()
        return {
            "path": self.path,
            "options": self.options,
            "digests": self.digests,
            "names": self.names,
            "columns": (self.types.tobytes(), self.nullable.tobytes(), self.row_bytes.tolist()),
            "first_group": self.first_group,
            "first": int(begin[0]) if len(begin) else 0,
            "shape": self.start.shape,
            "numbers": zlib.compress(b"".join(_planes(array) for array in numbers[1:]), 6),
            "tags": zlib.compress(tags, 6),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        n_groups, n_columns = shape = state["shape"]
        count = n_groups * n_columns
        raw = zlib.decompress(state["numbers"])
        parts = []
        at = 0
        for size in (n_groups, count, count, count, count):
            parts.append(_numbers(raw[at : at + 8 * size], size))
            at += 8 * size
        steps, gaps, length, null_count, tokenizer = parts
        begin = state["first"] + np.cumsum(gaps) + np.cumsum(length) - length
        tags = np.frombuffer(zlib.decompress(state["tags"]), np.uint8)
        types, nullable, row_bytes = state["columns"]
        values = {
            "path": state["path"],
            "options": state["options"],
            "digests": state["digests"],
            "names": state["names"],
            "types": np.frombuffer(types, np.uint8),
            "nullable": np.frombuffer(nullable, np.bool_),
            "row_bytes": np.array(row_bytes, np.float64),
            "first_group": state["first_group"],
            "n_rows": np.cumsum(steps),
            "start": begin.reshape(shape),
            "length": length.reshape(shape),
            "null_count": null_count.reshape(shape),
            "encoding": tags[:count].reshape(shape),
            "codec": tags[count:].reshape(shape),
            "tokenizer": tokenizer.reshape(shape),
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
    chunks = footer.chunks
    return ColumnsDecoder(
        path,
        options,
        digests,
        names,
        footer.types,
        footer.nullable,
        _row_bytes(footer),
        0,
        footer.n_rows,
        footer.chunk_start,
        chunks["byte_length"].copy(),
        chunks["null_count"].astype(np.int64),
        chunks["encoding"].copy(),
        chunks["codec"].copy(),
        chunks["tokenizer"].copy(),
    )


def _row_bytes(footer: Footer) -> NDArray[np.float64]:
    sizes = np.zeros(footer.n_columns, np.float64)
    weights = footer.n_rows / max(1, int(footer.n_rows.sum()))
    for column, (number, nullable) in enumerate(
        zip(footer.types.tolist(), footer.nullable.tolist(), strict=True)
    ):
        kind = Type(number)
        if kind.fixed:
            sizes[column] = PLAIN_WIDTH[kind] + nullable
        else:
            lengths = footer.chunks[["min_len", "max_len"]][:, column]
            mean = (lengths["min_len"].astype(np.float64) + lengths["max_len"]) / 2
            sizes[column] = float((mean * weights).sum()) + _OFFSET_BYTES
    return sizes
