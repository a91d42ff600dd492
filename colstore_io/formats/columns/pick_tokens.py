"""Some rows of tokenized columns (columns.md 6.7).

Boundaries, ids and escape bytes are three parts of a stream; each is read by a cursor of its own, in step with the
others. Windows without a wanted row are passed over where ids can be found by arithmetic: not in the remap
representation, nor where escape bytes have to be counted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...kernels import decode as kernel
from ...kernels import tokens as kernels
from .chunk import Chunk, Place
from .detokenize import HEADER_BYTES, TokenLayout, token_layout, too_large, wrong_boundaries, wrong_ids
from .pick_variable import Picked
from .picking import Windows
from .stream import Stream
from .tokenizer import Tokenizer

__all__ = ["pick_tokens"]

_RAW, _REMAP, _BITS = 0, 1, 2
_COUNTS, _OFFSETS = 0, 1

STEP_IDS = 1 << 15
"""Ids that are decoded at once: 64 KiB, and some 128 KiB of text."""


def pick_tokens(
    chunk: Chunk, tokenizer: Tokenizer, windows: Windows, picked: Picked, place: Place, helpers: int
) -> None:
    """Put the wanted rows of a chunk into `picked`."""
    streams = [Stream(chunk, place), Stream(chunk, place, helpers), Stream(chunk, place)]
    try:
        _Tokens(streams, tokenizer, picked).pick(windows)
    except FormatError as exc:
        if exc.path is not None:
            raise
        place.fail(exc.message)
    finally:
        for stream in streams:
            stream.close()


class _Tokens:
    """A tokenized stream that is read from its beginning to the last wanted value."""

    def __init__(self, streams: list[Stream], tokenizer: Tokenizer, picked: Picked) -> None:
        self.counts, self.ids, self.escapes = streams
        self.table, self.tokens = tokenizer.table, tokenizer.token_bytes
        self.picked = picked
        facts = picked.facts
        size = self.counts.size
        head = self.counts.read(0, min(HEADER_BYTES, size)).tobytes()
        self.layout: TokenLayout = token_layout(head, size, facts.n_values, facts.max_decoded_bytes)
        n_table = self.layout.n_table if self.layout.representation != _RAW else 0
        self.remap = self.counts.read(HEADER_BYTES, HEADER_BYTES + 2 * n_table).copy()
        self.width = self.layout.id_width(self.remap)
        if self.width == 0 and self.layout.representation == _BITS and self.layout.n_escapes:
            raise FormatError(f"{self.layout.n_escapes} escape bytes of the tokenized stream are left over")
        self.at = self.layout.ids_start  # of the next id of remap
        self.next_id = self.used = 0  # ids and escape bytes before the next value
        self.count = 0  # of the value before, where differences are stored

    def pick(self, windows: Windows) -> None:
        wanted = set(windows.wanted)
        layout = self.layout
        random = layout.representation != _REMAP and layout.n_escapes == 0
        for window in range(windows.wanted[-1] + 1):
            low, high = windows.values(window)
            numbers = self._numbers(low, high)
            if window in wanted:
                self.picked.begin(window)
                self._values(numbers)
                self.picked.end()
            elif random:
                self.next_id += int(numbers.sum())
            else:
                self._pass_over(int(numbers.sum()))
        if windows.values(windows.wanted[-1])[1] < layout.n_values:
            return
        if self.next_id != layout.n_ids:
            raise wrong_boundaries(1, layout.n_ids)
        if self.used != layout.n_escapes:
            raise FormatError(f"{self.used} ids take an escape byte, but there are {layout.n_escapes}")
        if layout.representation == _REMAP and self.at != layout.ids_stop:
            raise FormatError("id stream goes on after its last id")

    def _numbers(self, low: int, high: int) -> NDArray[np.int64]:
        """Return how many ids each of the values [low, high) has, which come next."""
        layout = self.layout
        begin = layout.counts_start
        stored = self.counts.read(begin + 4 * low, begin + 4 * high).view("<u4").astype(np.int64)
        if layout.boundary == _COUNTS:
            numbers = stored
        elif layout.boundary == _OFFSETS:
            if low == 0 and high and stored[0]:
                raise wrong_boundaries(3, layout.n_ids)
            after = layout.n_ids
            if high < layout.n_values:
                after = int(self.counts.read(begin + 4 * high, begin + 4 * high + 4).view("<u4")[0])
            numbers = np.diff(stored, append=after)
        else:
            numbers = np.cumsum(np.where(stored & 1, -(stored >> 1) - 1, stored >> 1)) + self.count
            self.count = int(numbers[-1]) if len(numbers) else self.count
        if (numbers < 0).any():
            raise wrong_boundaries(2, layout.n_ids)
        # A number has at most 33 bits and a window 2^14 values: no overflow.
        if int(numbers.sum()) > layout.n_ids - self.next_id:
            raise wrong_boundaries(1, layout.n_ids)
        return numbers

    def _read(self, n: int) -> NDArray[np.uint16]:
        """Return the next `n` ids, at most `STEP_IDS`."""
        layout, begin = self.layout, self.layout.ids_start
        first = self.next_id
        self.next_id += n
        if layout.representation == _RAW:
            return self.ids.read(begin + 2 * first, begin + 2 * (first + n)).view("<u2")
        if layout.representation == _BITS:
            width = self.width
            numbers = np.empty(n, np.uint32)
            if width == 0:
                numbers[:] = 0
            else:
                low, high = first * width // 8, ((first + n) * width + 7) // 8
                reader = kernel.PackedReader(width, 1 << 16, numbers.view(np.uint8), first * width % 8)
                reader.feed(self.ids.read(begin + low, begin + high))
            return numbers.astype(np.uint16)
        return self._varints(n)

    def _varints(self, n: int) -> NDArray[np.uint16]:
        """Return the next `n` ids of remap: positions in its table, 7 bits a byte."""
        layout = self.layout
        found = [np.empty(0, np.uint16)]
        missing = n
        while missing:
            if self.at >= layout.ids_stop:
                raise FormatError("id stream ends too early")
            raw, begin = self.ids.block(self.at)
            raw = raw[self.at - begin : layout.ids_stop - begin][: 4 * STEP_IDS]
            ends = np.flatnonzero(raw < 128)[:missing]
            if len(ends) == 0:  # the end of a block cuts a varint
                raw = self.ids.read(self.at, min(self.at + 10, layout.ids_stop))
                ends = np.flatnonzero(raw < 128)[:1]
                if len(ends) == 0:
                    raise FormatError(
                        "id stream has a position outside its table"
                        if len(raw) == 10
                        else "id stream ends too early"
                    )
            found.append(self._positions(raw, ends))
            missing -= len(ends)
            self.at += int(ends[-1]) + 1
        return np.concatenate(found)

    def _positions(self, raw: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.uint16]:
        starts = np.concatenate([[0], ends[:-1] + 1])
        positions = (raw[starts] & 127).astype(np.int64)
        longest = int((ends - starts).max())
        for more in range(1, longest + 1):
            there = ends - starts >= more
            bits = (raw[starts[there] + more] & 127).astype(np.int64)
            if more > 8:  # they may be longer than they need to be, with zeros
                if bits.any():
                    raise FormatError("id stream has a position outside its table")
                continue
            positions[there] |= bits << (7 * more)
        if (positions >= self.layout.n_table).any():
            raise FormatError("id stream has a position outside its table")
        found: NDArray[np.uint16] = self.remap.view("<u2")[positions]
        return found

    def _pass_over(self, n: int) -> None:
        while n:
            ids = self._read(min(n, STEP_IDS))
            n -= len(ids)
            self.used += int(np.count_nonzero(ids == self.table.escape)) if self.layout.n_escapes else 0

    def _values(self, numbers: NDArray[np.int64]) -> None:
        """Copy the wanted ones of the values of a window, which have so many ids."""
        if self.layout.representation == _BITS and self.width == 0:
            self._zeros(numbers)
            return
        picked = self.picked
        ends = np.cumsum(numbers)
        first = 0
        while first < len(numbers):
            before = int(ends[first - 1]) if first else 0
            stop = max(first + 1, int(np.searchsorted(ends, before + STEP_IDS, "right")))
            chosen = picked.next_of(first, stop)
            if int(ends[stop - 1]) - before > STEP_IDS:
                self._long(int(numbers[first]), len(chosen))
            elif len(chosen):
                data, offsets = self._decoded(self._read(int(ends[stop - 1]) - before), numbers[first:stop])
                places = offsets.astype(np.int64)
                picked.append(data, places[:-1], np.diff(places), chosen)
            else:
                self._pass_over(int(ends[stop - 1]) - before)
            first = stop

    def _decoded(
        self, ids: NDArray[np.uint16], numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """Return the bytes of values and where each begins."""
        layout = self.layout
        n_escapes = int(np.count_nonzero(ids == self.table.escape))
        if n_escapes > layout.n_escapes - self.used:
            raise FormatError(
                f"more ids take an escape byte than there are escape bytes ({layout.n_escapes})"
            )
        reader = kernels.TokenReader(
            self.table, _RAW, np.empty(0, np.uint8), len(numbers), len(ids), n_escapes, layout.max_bytes
        )
        if n_escapes:
            begin = layout.ids_stop + self.used
            reader.put_escapes(self.escapes.read(begin, begin + n_escapes), 0)
            self.used += n_escapes
        offsets = np.empty(len(numbers) + 1, np.int32)
        offsets[1:] = numbers
        reader.begin(offsets, 0)
        code = reader.feed(np.ascontiguousarray(ids).astype("<u2", copy=False).view(np.uint8), offsets)
        if code:
            raise wrong_ids(code, reader, self.table.n_tokens, layout.n_escapes, layout.max_bytes)
        return np.frombuffer(memoryview(reader.take()), np.uint8), offsets

    def _long(self, n: int, times: int) -> None:
        """Copy a value of many ids piece by piece."""
        if times == 0:
            self._pass_over(n)
            return
        size = 0
        while n:
            ids = self._read(min(n, STEP_IDS))
            n -= len(ids)
            data, _ = self._decoded(ids, np.array([len(ids)]))
            size += len(data)
            if size > self.layout.max_bytes:
                raise too_large(self.layout.max_bytes)
            self.picked.room(len(data))[:] = data
        self.picked.repeat(size, times)

    def _zeros(self, numbers: NDArray[np.int64]) -> None:
        """Values of ids of no bits: all of them are token 0."""
        self.next_id += int(numbers.sum())
        token = np.frombuffer(self.tokens[0], np.uint8) if self.tokens else np.empty(0, np.uint8)
        chosen = self.picked.next_of(0, len(numbers))
        lengths = numbers * len(token)
        size = int(lengths[chosen].sum())
        if size > self.layout.max_bytes * max(1, len(chosen) // max(1, len(numbers))):
            raise too_large(self.layout.max_bytes)
        self.picked.fill(token, lengths[chosen])
