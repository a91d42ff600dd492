"""`ColumnsEncoder`: row groups of columns become the bytes of a columns file (columns.md sections 2, 3 and 10)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ... import threads as thread_budget
from ...arguments import check_integer, check_mapping
from ...errors import ColumnNotFoundError
from ...fields import Field, Schema
from .bounds import Bounds, chunk_bounds
from .choose import Choice, Layout, choose_codec, choose_layout
from .compress import Level, compressor, normal_level
from .encode import Prepared, check_encoded_bytes, encode_stream, prepare
from .gob_write import ChunkEntry, ColumnEntry, GroupEntry, footer_bytes
from .optimize import Candidates, optimize_column
from .tags import ALIGNMENT, BLOCK_BYTES, MAGIC, NUMPY_TYPES, WRITABLE, Codec, Encoding, Type

__all__ = ["ColumnsEncoder", "column_type"]

T = TypeVar("T")
R = TypeVar("R")

Part = bytes | memoryview

_HEADER = struct.Struct("<BBIIII")
"""The chunk header: encoding, codec, bytes of bitmap, raw and stored bytes, blocks (section 3.1)."""

ALIGNED_BYTES = 4096
"""Chunks from this size on are worth it."""

SHARED_BYTES = 32 << 10
"""Columns of a row group are shared among threads if they have so many bytes each: of smaller ones most of the work is
the interpreter's, which is one thread's at a time."""

ENCODINGS = {
    "plain": Encoding.PLAIN,
    "rle_bitpack": Encoding.RLE_BITPACK,
    "delta": Encoding.DELTA,
    "dict": Encoding.DICT,
    "offset_bytes": Encoding.OFFSET_BYTES,
    "affix": Encoding.AFFIX,
}
CODECS = {
    "none": Codec.NONE,
    "flate": Codec.FLATE,
    "gzip": Codec.GZIP,
    "zlib": Codec.ZLIB,
    "lzw": Codec.LZW,
    "zstd": Codec.ZSTD,
}
REPRESENTATIONS: tuple[Literal["raw", "remap", "bits"], ...] = ("raw", "remap", "bits")
BOUNDARIES: tuple[Literal["counts", "offsets", "deltas"], ...] = ("counts", "offsets", "deltas")

_TYPE_OF_DTYPE = {dtype.newbyteorder("="): kind for kind, dtype in NUMPY_TYPES.items()}
_TYPE_OF_LOGICAL = {
    "string": Type.STRING,
    "large_string": Type.STRING,
    "binary": Type.BYTES,
    "large_binary": Type.BYTES,
}


def column_type(field: Field) -> Type:
    """Return the type of a field in the format (section 5).

    Raises
    ------
    TypeError
        If the format has none for it; says what to do.
    """
    kind = _TYPE_OF_LOGICAL.get(field.logical or "") if field.variable else None
    if kind is None and not field.variable and field.validity is None:
        kind = _TYPE_OF_DTYPE.get(field.native_dtype)
    if kind is None:
        advice = {
            "f": "cast it to float32 or float64",
            "M": "cast it to int64 and keep its unit elsewhere, or store the table as .cstore",
            "m": "cast it to int64 and keep its unit elsewhere, or store the table as .cstore",
        }.get(field.dtype.kind, "bool, integers, float32, float64, bytes and text can be stored")
        raise TypeError(
            f"column {field.name!r} has the type {field.logical or field.dtype}, which the columns format does not "
            f"have; {advice}"
        )
    return kind


def default_encoding(kind: Type) -> Encoding:
    """Return the encoding that the format's own library uses when none is asked for (section 10.1)."""
    if kind is Type.BOOL:
        return Encoding.RLE_BITPACK
    return Encoding.DELTA if Type.INT8 <= kind <= Type.UINT64 else Encoding.PLAIN


@dataclass(frozen=True, slots=True)
class _Column:
    """What is known of one column before any data. `encoding` and `codec` are None where the data decide."""

    name: str
    kind: Type
    nullable: bool
    encoding: Encoding | None
    codec: Codec | None
    tokenizer: Any = None
    reference: int = 0


@dataclass(slots=True)
class _Chunk:
    """One column of one row group on its way: encoded, then compressed where that pays.

    `blocks` are the raw ones until compressed ones take their place; then nothing holds the stream any more.
    """

    column: _Column
    layout: Layout
    null_count: int
    bitmap: bytes
    bounds: Bounds
    lengths: list[int]
    blocks: list[memoryview]
    codec: Codec = Codec.NONE

    @property
    def raw_bytes(self) -> int:
        return sum(self.lengths)

    @property
    def waits(self) -> bool:
        """Whether compression is still to be tried: an empty column has none."""
        return self.codec is not self.layout.codec and self.lengths[0] > 0

    def keep(self, stored: Sequence[bytes | bytearray | memoryview]) -> None:
        """Take compressed blocks, unless they are no shorter (section 3.3)."""
        if sum(map(len, stored)) < self.raw_bytes:
            self.blocks = [memoryview(block) for block in stored]
            self.codec = self.layout.codec


class ColumnsEncoder:
    """Encodes a columns file front to back: a `FileEncoder`.

    Parameters
    ----------
    schema : Schema
        Fields of fixed width (bool, integers, float32, float64), or of text and bytes; `Field.optional` is
        "nullable".
    encoding : str, or mapping of column name to str, optional
        ``"plain"``, ``"rle_bitpack"``, ``"delta"``, ``"dict"``, ``"offset_bytes"`` or ``"affix"`` for every column
        without a tokenizer. Default: with ``compression="auto"`` chosen by the data; else by type as the format's
        own library does (bool RLEBitpack, integers Delta, others Plain).
    compression : str, or mapping of column name to str
        ``"auto"`` chooses per column and row group. ``"none"``, ``"flate"``, ``"gzip"``, ``"zlib"`` and ``"lzw"`` give
        the original's behaviour. ``"zstd"`` is an extension: **only this library reads it**.
    level : int, optional
        -2 (Huffman codes only), -1, 1..9; 0 or None is 3, as in the original. Not with ``"auto"``.
    block_size : int
        Raw bytes of a block; 0 or less is 262144.
    tokenizers : mapping of column name (or position) to Tokenizer, optional
        Columns of text or bytes to store as token ids.
    tokenized_layout : (representation, boundary)
        ``"raw"``, ``"remap"``, ``"bits"`` and ``"counts"``, ``"offsets"``, ``"deltas"``.
    optimize : bool or {"exact", "fast"}
        Let the first row group decide encoding and codec of all (section 10.3). True is ``"exact"``. `encoding`,
        `compression` and `level` do not matter then.
    optimize_level : int, optional
        Level of that measurement, and of all compression after it; default 9.
    threads : int, optional
        Threads to use at most, of what `colstore_io.threads` has free.

    Raises
    ------
    TypeError, ValueError, ColumnNotFoundError
        For options that do not fit the schema.

    Notes
    -----
    `segment` checks everything before it returns, and a failed call leaves the encoder as it was: the next row group
    can be written. Buffers that it returns may share memory with the columns given to it. Not thread-safe.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        encoding: str | Mapping[str, str] | None = None,
        compression: str | Mapping[str, str] = "auto",
        level: int | None = None,
        block_size: int = BLOCK_BYTES,
        tokenizers: Mapping[str | int, Any] | None = None,
        tokenized_layout: tuple[str | int, str | int] = ("raw", "counts"),
        optimize: bool | Literal["exact", "fast"] = False,
        optimize_level: int | None = None,
        threads: int | None = None,
    ) -> None:
        self._schema = schema
        self._level: Level = normal_level(level)
        if level is not None and compression == "auto":
            raise ValueError("level needs a compression that takes one, such as compression='flate'")
        block_size = check_integer("block_size", block_size)
        self._block_size = block_size if block_size > 0 else BLOCK_BYTES
        if optimize not in (False, True, "exact", "fast"):
            raise ValueError(f"optimize must be a bool, 'exact' or 'fast', got {optimize!r}")
        self._optimize: Literal["exact", "fast"] | None = "exact" if optimize is True else optimize or None
        self._optimize_level = normal_level(9 if optimize_level in (None, 0) else optimize_level)
        if not isinstance(tokenized_layout, (tuple, list)) or len(tokenized_layout) != 2:
            raise TypeError(
                f"tokenized_layout must be a pair of representation and boundary, got {tokenized_layout!r}"
            )
        self._representation = _position(tokenized_layout[0], REPRESENTATIONS, "representation")
        self._boundary = _position(tokenized_layout[1], BOUNDARIES, "boundary")
        self._digests: list[bytes] = []
        self._columns = self._planned(
            encoding, compression, dict(check_mapping("tokenizers", tokenizers or {}))
        )
        self._threads = 0 if threads is None else check_integer("threads", threads)
        self._layouts: list[Choice] | None = None
        self._reports: tuple[Candidates, ...] = ()
        self._groups: list[GroupEntry] = []
        self._names: list[bytes] | None = None
        self._end = 0
        self._state: Literal["new", "open", "finished"] = "new"

    # ------------------------------------------------------------------------------------------------- planning

    def _planned(
        self,
        encoding: str | Mapping[str, str] | None,
        compression: str | Mapping[str, str],
        tokenizers: dict[str | int, Any],
    ) -> list[_Column]:
        models = self._models(tokenizers)
        for option in (encoding, compression):
            if isinstance(option, Mapping):
                for name in option:
                    self._schema.index(name)
        columns = []
        for position, field in enumerate(self._schema):
            kind = column_type(field)
            model = models.get(position)
            codec = _option(compression, field.name, "auto")
            asked = _option(encoding, field.name, None)
            chosen_codec = None if codec == "auto" else _named(codec, CODECS, "compression")
            if asked is None or asked == "auto":
                chosen = None if chosen_codec is None else default_encoding(kind)
            else:
                chosen = _named(asked, ENCODINGS, "encoding")
            if model is not None:
                if kind not in (Type.STRING, Type.BYTES) and self._optimize is None:
                    raise TypeError(
                        f"column {field.name!r} is {kind.name.lower()}; a tokenizer takes text or bytes"
                    )
                chosen = Encoding.TOKENIZED
            elif chosen is not None and chosen not in WRITABLE[kind]:
                allowed = ", ".join(repr(n) for n, e in ENCODINGS.items() if e in WRITABLE[kind])
                raise ValueError(
                    f"column {field.name!r} is {kind.name.lower()}, which cannot be encoded as {asked!r}; "
                    f"possible are {allowed}"
                )
            reference = 0
            if model is not None:
                digest = bytes(model.digest)
                if digest not in self._digests:
                    self._digests.append(digest)
                reference = self._digests.index(digest) + 1
            columns.append(_Column(field.name, kind, field.nullable, chosen, chosen_codec, model, reference))
        return columns

    def _models(self, tokenizers: dict[str | int, Any]) -> dict[int, Any]:
        models = {}
        for key, model in tokenizers.items():
            position = key if isinstance(key, int) else self._schema.index(key)
            if not 0 <= position < len(self._schema):
                raise ColumnNotFoundError(f"a tokenizer for column {position} of {len(self._schema)}")
            if not isinstance(getattr(model, "digest", None), bytes):
                raise TypeError(
                    f"column {key!r}: expected a Tokenizer, as register_tokenizer('tokenizer.json') returns it, "
                    f"got {type(model).__name__}"
                )
            models[position] = model
        return models

    # ------------------------------------------------------------------------------------------------ the file

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def groups(self) -> tuple[GroupEntry, ...]:
        """What the footer will say of the row groups so far."""
        return tuple(self._groups)

    @property
    def end(self) -> int:
        """File offset behind what was returned so far."""
        return self._end

    @property
    def candidates(self) -> tuple[Candidates, ...]:
        """What each layout would have cost, per column; empty before Optimize has run."""
        return self._reports

    def begin(self) -> bytes:
        """Return magic, version and digest table (section 2)."""
        if self._state != "new":
            raise ValueError("begin() was called already")
        self._state = "open"
        head = MAGIC + b"\x01"
        if self._digests:
            head = MAGIC + b"\x02" + struct.pack("<I", len(self._digests)) + b"".join(self._digests)
        self._end = len(head)
        return head

    def resume(
        self,
        groups: Sequence[GroupEntry],
        digests: Sequence[bytes],
        end: int,
        names: Sequence[bytes] | None = None,
    ) -> None:
        """Go on behind the row groups of an existing file instead of beginning one.

        Parameters
        ----------
        groups : sequence of GroupEntry
            As its footer has them.
        digests : sequence of bytes
            Its digest table, which cannot grow: it stands at the start of the file.
        end : int
            File offset where the next row group will stand.
        names : sequence of bytes, optional
            Names of the columns as they stand in the file.

        Raises
        ------
        ValueError
            If a column's tokenizer is not in the table.
        """
        if self._state != "new":
            raise ValueError("begin() was called already")
        missing = [digest for digest in self._digests if digest not in digests]
        if missing:
            raise ValueError(
                f"the file does not name the tokenizer {missing[0].hex()}, and its table cannot grow; "
                "write a new file"
            )
        own, self._digests = self._digests, list(digests)
        self._columns = [
            replace(column, reference=self._digests.index(own[column.reference - 1]) + 1)
            if column.reference
            else column
            for column in self._columns
        ]
        self._groups = list(groups)
        self._names = None if names is None else list(names)
        self._end = end
        self._state = "open"

    def skip(self, nbytes: int) -> None:
        """Leave `nbytes` bytes that belong to no row group before the next one."""
        self._end += nbytes

    def finish(self) -> bytes:
        """Return footer, its length, and the closing magic."""
        self._check_open()
        columns = [
            ColumnEntry(c.name.encode("utf-8", "surrogateescape"), int(c.kind), c.nullable)
            for c in self._columns
        ]
        footer = footer_bytes(columns, self._groups)
        self._state = "finished"
        return footer + struct.pack("<I", len(footer)) + MAGIC

    def _check_open(self) -> None:
        if self._state != "open":
            raise ValueError("begin() comes first" if self._state == "new" else "the file is finished")

    # ----------------------------------------------------------------------------------------------- row groups

    def optimize(self, columns: Sequence[Any]) -> tuple[Candidates, ...]:
        """Let `columns` decide encoding and codec of all row groups from now on; writes nothing (section 10.3).

        Parameters
        ----------
        columns : sequence of ndarray or Arrow array
            As in `segment`.

        Returns
        -------
        tuple of Candidates
            What each layout of each column costs, and which was taken.
        """
        self._optimize = self._optimize or "exact"
        prepared = self._prepare(columns)
        with ExitStack() as stack:
            run = self._runner(stack, 64 * sum(p.dense.value_bytes for p in prepared))
            self._decide(prepared, run)
        return self._reports

    def _decide(self, prepared: list[Prepared], run: _Run[Any, Any]) -> list[Choice]:
        mode = self._optimize or "exact"

        def one(pair: tuple[_Column, Prepared], measure: _Run[Any, Any] = map) -> Candidates:
            column, data = pair
            return optimize_column(
                column.name,
                data.dense,
                self._optimize_level,
                mode=mode,
                tokenizer=column.tokenizer,
                run=measure,
            )

        pairs = list(zip(self._columns, prepared, strict=True))
        if (
            mode == "exact"
        ):  # one column after the other, its candidates side by side: their streams take memory
            reports = tuple(one(pair, run) for pair in pairs)
        else:
            reports = tuple(run(one, pairs))
        choices = [report.choice for report in reports]
        # The streams are of these values, the layouts are for those of all row groups to come.
        self._layouts = [Choice(choice.layout) for choice in choices]
        self._reports = tuple(
            replace(report, choice=choice) for report, choice in zip(reports, self._layouts, strict=True)
        )
        return choices

    def segment(self, columns: Sequence[Any]) -> Sequence[Part]:
        """Return the bytes of one row group.

        Parameters
        ----------
        columns : sequence of ndarray, pyarrow.Array or pyarrow.ChunkedArray
            In schema order and of equal length: NumPy arrays of fixed-width columns without nulls, Arrow for
            all others. Arrow dictionaries are taken as ready dictionaries.

        Raises
        ------
        TypeError, ValueError
            For columns that do not fit; nothing has changed then.
        """
        self._check_open()
        prepared = self._prepare(columns)
        n_rows = prepared[0].n_rows if prepared else 0
        work = sum(p.dense.value_bytes + 4 * p.n_rows for p in prepared)
        if self._optimize is None and work < SHARED_BYTES * len(prepared):
            work = 0
        with ExitStack() as stack:
            run = self._runner(stack, work)
            choices: Sequence[Choice | None] = self._layouts or [None] * len(prepared)
            if self._optimize is not None and self._layouts is None:
                choices = self._decide(prepared, run)
            chunks = list(run(self._encoded, list(zip(self._columns, prepared, choices, strict=True))))
            self._compress(chunks, run)
        parts: list[Part] = []
        entries: list[ChunkEntry] = []
        begin = end = self._end
        for chunk in chunks:
            pieces, entry = _finished(chunk)
            # Values that are not compressed can be looked at where they are, if that is where their type may be. The
            # format has no rule against bytes before a row group, and readers pass over those behind a chunk.
            align = self._optimize is None and _looks_like_memory(chunk)
            slack = -(end + len(pieces[0])) % ALIGNMENT if align else 0
            if slack:
                parts.append(bytes(slack))
                if entries:
                    entries[-1] = replace(entries[-1], byte_length=entries[-1].byte_length + slack)
                else:
                    begin += slack
            parts += pieces
            entries.append(entry)
            end += slack + entry.byte_length
        self._groups.append(GroupEntry(n_rows, begin, tuple(entries)))
        self._end = end
        return parts

    def _prepare(self, columns: Sequence[Any]) -> list[Prepared]:
        if len(columns) != len(self._columns):
            raise ValueError(f"the schema has {len(self._columns)} columns, got {len(columns)}")
        prepared = [
            prepare(column.name, column.kind, column.nullable, data)
            for column, data in zip(self._columns, columns, strict=True)
        ]
        for column, data in zip(self._columns, prepared, strict=True):
            if data.n_rows != prepared[0].n_rows:
                raise ValueError(
                    f"columns differ in length: {self._columns[0].name!r} has {prepared[0].n_rows} rows, "
                    f"{column.name!r} has {data.n_rows}"
                )
        if prepared and prepared[0].n_rows > 0xFFFFFFFF:
            raise ValueError("a row group has less than 2**32 rows; write smaller ones (row_group_size=...)")
        return prepared

    def _runner(self, stack: ExitStack, work: int) -> _Run[Any, Any]:
        granted = stack.enter_context(thread_budget.lease(thread_budget.wanted_threads(work, self._threads)))
        if granted == 1:
            return lambda call, items: map(call, items)
        return lambda call, items: thread_budget.map_with_helpers(call, items, granted - 1)

    def _encoded(self, item: tuple[_Column, Prepared, Choice | None]) -> _Chunk:
        """Encode a column, and compress it if it is one block: the blocks of long ones are compressed side by side."""
        column, prepared, known = item
        choice = self._choice(column, prepared) if known is None else known
        stream = choice.stream
        if stream is None:
            stream = self._stream(column, prepared, choice.layout)
        view, size = stream.data, self._block_size
        bounds = chunk_bounds(prepared.dense)
        chunk = _Chunk(
            column, choice.layout, prepared.null_count, prepared.bitmap, bounds, [len(stream)], [view]
        )
        if len(stream) > size:
            chunk.blocks = [view[at : at + size] for at in range(0, len(stream), size)]
            chunk.lengths = [len(block) for block in chunk.blocks]
        elif choice.stored is not None:
            chunk.keep([choice.stored])
        elif chunk.waits:
            chunk.keep([compressor(choice.layout.codec, choice.layout.level)(view)])
        prepared.dense.ready = None  # four bytes a value
        return chunk

    def _choice(self, column: _Column, prepared: Prepared) -> Choice:
        """Return the layout by the options and, where these leave it open, the data."""
        if column.encoding is None:
            return choose_layout(prepared.dense)
        layout = Layout(
            column.encoding, column.codec or Codec.NONE, self._level, self._representation, self._boundary
        )
        if column.codec is not None:
            return Choice(layout)
        choice = choose_codec(column.encoding, self._stream(column, prepared, layout))
        chosen = replace(layout, codec=choice.layout.codec, level=choice.layout.level)
        return replace(choice, layout=chosen)

    def _stream(self, column: _Column, prepared: Prepared, layout: Layout) -> NDArray[np.uint8]:
        if layout.encoding is not Encoding.TOKENIZED:
            return encode_stream(column.name, prepared.dense, layout.encoding)
        from .tokenized import encode_tokenized

        offsets, data = prepared.dense.variable
        encoded = encode_tokenized(
            offsets,
            data,
            column.tokenizer,
            REPRESENTATIONS[layout.representation],
            BOUNDARIES[layout.boundary],
        )
        check_encoded_bytes(column.name, len(encoded))
        return np.frombuffer(encoded, np.uint8)

    def _compress(self, chunks: list[_Chunk], run: _Run[Any, Any]) -> None:
        """Compress the blocks of the chunks that have several."""
        waiting = [chunk for chunk in chunks if len(chunk.blocks) > 1 and chunk.waits]
        calls = [
            (compressor(chunk.layout.codec, chunk.layout.level), block)
            for chunk in waiting
            for block in chunk.blocks
        ]
        done = iter(list(run(lambda call: call[0](call[1]), calls)) if calls else [])
        for chunk in waiting:
            chunk.keep(list(islice(done, len(chunk.blocks))))


def _looks_like_memory(chunk: _Chunk) -> bool:
    """Whether a chunk that the data's own look chose (`compression="auto"`) stores its values as they are in memory."""
    return (
        chunk.column.codec is None
        and chunk.codec is Codec.NONE
        and chunk.layout.encoding is Encoding.PLAIN
        and chunk.column.kind.fixed
        and chunk.raw_bytes >= ALIGNED_BYTES
        and chunk.null_count == 0
        and chunk.column.kind is not Type.BOOL
    )


_Run = Callable[[Callable[[T], R], Sequence[T]], Iterable[R]]


def _finished(chunk: _Chunk) -> tuple[list[Part], ChunkEntry]:
    """Return the pieces of a chunk (section 3.1) and what the footer says of it."""
    bounds, encoding = chunk.bounds, chunk.layout.encoding
    table = [
        nbytes for pair in zip(chunk.lengths, map(len, chunk.blocks), strict=True) for nbytes in pair
    ]  # fmt: skip
    stored = sum(table[1::2])
    head = b"".join(
        (
            _HEADER.pack(
                encoding, chunk.codec, len(chunk.bitmap), chunk.raw_bytes, stored, len(chunk.blocks)
            ),
            struct.pack(f"<{len(table)}I", *table),
            chunk.bitmap,
        )
    )
    entry = ChunkEntry(
        len(head) + stored,
        chunk.null_count,
        bounds.minimum,
        bounds.maximum,
        bounds.min_length,
        bounds.max_length,
        int(encoding),
        int(chunk.codec),
        chunk.column.reference,
    )
    return [head, *chunk.blocks] if stored else [head], entry


def _option(option: Any, name: str, missing: Any) -> Any:
    return option.get(name, missing) if isinstance(option, Mapping) else option


def _named(value: Any, names: Mapping[str, Any], what: str) -> Any:
    if isinstance(value, str) and value in names:
        return names[value]
    raise ValueError(f"{what} must be one of {', '.join(map(repr, ['auto', *names]))}, got {value!r}")


def _position(value: str | int, names: tuple[str, ...], what: str) -> int:
    if value in names:
        return names.index(str(value))
    if isinstance(value, int) and 0 <= value < len(names):
        return value
    raise ValueError(
        f"the {what} of tokenized_layout must be one of {', '.join(map(repr, names))}, got {value!r}"
    )
