"""Blocks of one chunk to one column: which sink takes them, and the work of a pipeline (columns.md section 6)."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from ...taking import Take
from .. import DecodedColumn
from .chunk import Chunk, ChunkFacts, Place
from .decode_fixed import Bits, Delta, DictFixed, PlainFixed
from .decode_variable import Affix, DictVariable, OffsetBytes, PlainVariable, Tokenized
from .decompress import decompress
from .pick_fixed import pick_fixed
from .pick_variable import pick_variable
from .sinks import Request, Sink
from .tags import Codec, Encoding

__all__ = ["ColumnWork", "Request", "decodes_parts", "pick"]

_FIXED: dict[Encoding, type[Sink]] = {
    Encoding.PLAIN: PlainFixed,
    Encoding.DELTA: Delta,
    Encoding.RLE_BITPACK: Bits,
    Encoding.DICT: DictFixed,
}
_VARIABLE: dict[Encoding, type[Sink]] = {
    Encoding.PLAIN: PlainVariable,
    Encoding.OFFSET_BYTES: OffsetBytes,
    Encoding.AFFIX: Affix,
    Encoding.DICT: DictVariable,
    Encoding.TOKENIZED: Tokenized,
}


class ColumnWork:
    """One column of one row group, as work for `pipeline.run`.

    Attributes
    ----------
    n_blocks : int
        Blocks that must be looked at; a chunk that is not compressed is one block.
    raw_bytes : int
        Of these, before compression.
    result : DecodedColumn
        After `finish`, or `read_at_once`.
    """

    def __init__(self, chunk: Chunk, facts: ChunkFacts, request: Request, place: Place) -> None:
        self._chunk, self._place = chunk, place
        sinks = _FIXED if facts.type.fixed else _VARIABLE
        self._sink = sinks[chunk.encoding](chunk, facts, request, place)
        self.result = DecodedColumn()
        raw, stored = chunk.raw, chunk.stored
        if chunk.codec is Codec.NONE:
            raw = stored = [chunk.raw_length]
        self._raw = raw
        self._raw_start = list(accumulate(raw[:-1], initial=0))
        self._stored = stored
        self._stored_start = list(accumulate(stored[:-1], initial=0))
        self._order = self._sink.order(self._raw_start)
        self.n_blocks = len(self._order)
        self.raw_bytes = sum(raw[number] for number in self._order)

    def read_at_once(self, threads: int) -> bool:
        """Read the chunk on the short road of `FixedBlocks`, if it has one.

        Returns
        -------
        bool
            False when there is none, or the chunk is damaged: then the blocks are to be taken one by one, which tells
            what is wrong with which.
        """
        found = self._sink.blocks()
        if found is None:
            return False
        blocks, values = found
        if not blocks.read(values, threads):
            return False
        self.finish()
        return True

    def prepare(self, turn: int) -> Any:
        number = self._order[turn]
        start = self._stored_start[number]
        data = self._chunk.data[start : start + self._stored[number]]
        if self._chunk.codec is Codec.NONE:
            return data
        n = self._raw[number]
        target = self._sink.target(self._raw_start[number], n)
        return decompress(self._chunk.codec, data, n, self._place, number, target)

    def consume(self, turn: int, raw: Any) -> None:
        self._sink.feed(raw, self._raw_start[self._order[turn]])

    def finish(self) -> None:
        self.result = self._sink.finish()
        del self._sink


def decodes_parts(chunk: Chunk, facts: ChunkFacts) -> bool:
    """Tell whether `ColumnWork` decodes a range of the rows without the others."""
    skipping = chunk.encoding in (Encoding.PLAIN, Encoding.DICT)
    return facts.type.fixed and chunk.bitmap is None and skipping


def pick(
    chunk: Chunk, facts: ChunkFacts, request: Request, take: Take, place: Place, threads: int
) -> DecodedColumn:
    """Decode the wanted rows of one column of one row group."""
    if facts.type.fixed:
        return pick_fixed(chunk, facts, request, take, place, threads)
    return pick_variable(chunk, facts, request, take, place, threads)
