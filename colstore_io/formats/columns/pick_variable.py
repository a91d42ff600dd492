"""Some rows of columns of text and bytes: Plain, OffsetBytes, Affix, Dict (columns.md 6.1 and 6.4 to 6.6).

Bytes of wanted values are copied out of the block in work into memory that grows by a quarter at most. Of OffsetBytes
and Dict blocks without a wanted value are not decompressed; of Plain and Affix those that a long value passes over, and
those after the last wanted one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import decode as kernel
from ...kernels.tokens import GrownBytes
from ...taking import Take
from .. import DecodedColumn
from .chunk import Chunk, ChunkFacts, Place
from .dictionary import Dictionary
from .picking import Windows
from .sinks import Request
from .stream import Stream
from .tags import Encoding, Type
from .variable import INT32_MAX, arrow_dictionary, arrow_type, as_buffer, refuse_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Picked", "pick_variable"]

_WORD = 4
_LIMIT = 1 << 62


def pick_variable(
    chunk: Chunk, facts: ChunkFacts, request: Request, take: Take, place: Place, threads: int
) -> DecodedColumn:
    """Decode the wanted rows of a chunk of variable length.

    Parameters
    ----------
    request : Request
        Whether text must be UTF-8, and a dictionary stays one.
    threads : int
        With more than one the next block is decompressed beside the one in work.

    Raises
    ------
    FormatError
        If what is looked at is damaged, or a wanted value is text that is not UTF-8.
    """
    windows = Windows(chunk, facts, take)
    picked = Picked(facts, request, windows, place)
    if windows.wanted and chunk.encoding is Encoding.TOKENIZED:
        from .pick_tokens import pick_tokens

        if request.tokenizer is None:
            place.fail("the chunk is tokenized, but its column names no tokenizer")
        pick_tokens(chunk, request.tokenizer, windows, picked, place, threads - 1)
    elif windows.wanted:
        stream = Stream(chunk, place, threads - 1)
        try:
            if chunk.encoding is Encoding.DICT:
                dictionary = Dictionary(chunk, facts, place)
                dictionary.fill(stream)
                if request.dictionary and dictionary.n_entries < 1 << 31:
                    return _keys(dictionary, stream, windows, facts, request, place)
                _pick_dict(dictionary, stream, windows, picked)
            elif chunk.encoding is Encoding.OFFSET_BYTES:
                _pick_offsets(Stream(chunk, place), stream, windows, picked)
            else:
                _pick_plain(stream, chunk.encoding is Encoding.AFFIX, windows, picked)
        finally:
            stream.close()
    return DecodedColumn(array=picked.finish())


class _Validity:
    """An Arrow bitmap that is made some rows at a time."""

    def __init__(self, n_rows: int) -> None:
        self._bits = np.full((n_rows + 7) // 8, 255, np.uint8)
        self.nulls = 0

    def put(self, begin: int, there: NDArray[np.bool_]) -> None:
        """Note which of the rows from `begin` on have a value; rows come in order."""
        if there.all():
            return
        self.nulls += len(there) - int(np.count_nonzero(there))
        before = begin % 8
        bits = np.packbits(np.concatenate([np.ones(before, np.bool_), there]), bitorder="little")
        after = (before + len(there)) % 8
        if after:
            bits[-1] |= (255 << after) & 255
        self._bits[begin // 8 : begin // 8 + len(bits)] &= bits

    def buffer(self) -> pa.Buffer | None:
        return as_buffer(self._bits) if self.nulls else None


class Picked:
    """The wanted values: bytes as they come, offsets by window."""

    def __init__(self, facts: ChunkFacts, request: Request, windows: Windows, place: Place) -> None:
        self.facts, self.request, self.windows, self.place = facts, request, windows, place
        self.take = windows.take
        self.offsets: NDArray[Any] = np.empty(self.take.count + 1, np.int32)
        self.offsets[0] = 0
        self.grown = GrownBytes()
        self.validity = None if windows.bitmap is None else _Validity(self.take.count)
        # A row that is wanted many times may take more than all rows do.
        self._most_bytes = facts.max_decoded_bytes * max(1, -(-self.take.count // max(1, facts.n_rows)))
        self.filled = 0  # rows
        self._chosen: NDArray[np.int64] = np.empty(0, np.int64)  # of the window in work
        self._valid: NDArray[np.bool_] | None = None
        self._ends: NDArray[np.int64] = (
            self._chosen
        )  # of what is there of them, from the beginning of the bytes
        self._there = 0

    def begin(self, window: int) -> None:
        """Go to the next window."""
        self._chosen, self._valid = self.windows.chosen(window)
        self._ends = np.empty(len(self._chosen), np.int64)
        self._there = 0

    def next_of(self, low: int, high: int) -> NDArray[np.int64]:
        """Return which ones of the values [low, high) of the window are wanted, counted from `low`.

        All before `low` are there already.
        """
        stop = int(np.searchsorted(self._chosen, high))
        return self._chosen[self._there : stop] - low

    def append(
        self,
        raw: NDArray[np.uint8],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        chosen: NDArray[np.int64],
        affixes: tuple[bytes, bytes] = (b"", b""),
    ) -> None:
        """Copy the chosen ones of values that lie in `raw`."""
        size = kernel.measure_chosen(
            len(raw), starts, lengths, chosen, len(affixes[0]) + len(affixes[1]), _LIMIT
        )
        if size < 0:
            self.place.fail("a value lies outside its block")
        before = len(self.grown)
        ends = self._ends[self._there : self._there + len(chosen)]
        kernel.copy_values(raw, starts, lengths, chosen, ends, self.room(size), *affixes)
        ends += before
        self._there += len(chosen)

    def append_long(
        self, stream: Stream, start: int, length: int, times: int, affixes: tuple[bytes, bytes] = (b"", b"")
    ) -> None:
        """Copy a value that begins at byte `start` of a stream, wherever its blocks end."""
        prefix, suffix = affixes
        size = len(prefix) + length + len(suffix)
        value = self.room(size)
        value[: len(prefix)] = np.frombuffer(prefix, np.uint8)
        stream.read_into(start, value[len(prefix) : len(prefix) + length])
        value[len(prefix) + length :] = np.frombuffer(suffix, np.uint8)
        del value  # memory grows in place while nobody looks at it
        self.repeat(size, times)

    def repeat(self, size: int, times: int) -> None:
        """Make a value of the last `size` bytes, which is there `times` times in all."""
        before = len(self.grown) - size
        if size and times > 1:
            out = self.room(size * (times - 1))
            value = np.frombuffer(memoryview(self.grown), np.uint8)[before : before + size]
            out.reshape(times - 1, size)[:] = value
        self._ends[self._there : self._there + times] = before + size * np.arange(1, times + 1)
        self._there += times

    def fill(self, token: NDArray[np.uint8], lengths: NDArray[np.int64]) -> None:
        """Make the wanted values of a window, which have these lengths, of one token again and again."""
        before, ends = len(self.grown), np.cumsum(lengths)
        if len(ends) and ends[-1]:
            self.room(int(ends[-1])).reshape(-1, len(token))[:] = token
        self._ends[:] = before + ends
        self._there = len(ends)

    def room(self, size: int) -> NDArray[np.uint8]:
        """Return memory for the next `size` bytes, valid until the next call."""
        before = len(self.grown)
        if before + size > self._most_bytes:
            limit = self.facts.max_decoded_bytes
            self.place.fail(f"the values have more than {limit} bytes together (max_decoded_bytes)")
        self.grown.extend(size, self.take.count / self.filled if self.filled else 1.0)
        return np.frombuffer(memoryview(self.grown), np.uint8)[before:]

    def spans(self, stream: Stream, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Copy the wanted values of a window, which lie in order anywhere in a stream."""
        chosen = self._chosen
        ends = starts[chosen] + lengths[chosen]
        while self._there < len(chosen):
            value = int(chosen[self._there])
            raw, at = stream.block(int(starts[value]))
            stop = int(np.searchsorted(ends, at + len(raw), "right"))
            if stop > self._there:
                self.append(raw, starts - at, lengths, chosen[self._there : stop])
            else:
                times = int(np.searchsorted(chosen, value, "right")) - self._there
                self.append_long(stream, int(starts[value]), int(lengths[value]), times)

    def end(self) -> None:
        """Note where the values of the window end, all of which are there."""
        ends = self._ends
        before = int(self.offsets[self.filled])
        if self.validity is not None and self._valid is not None:
            self.validity.put(self.filled, self._valid)
            ends = np.concatenate([[before], ends])[np.cumsum(self._valid)]
        n = len(ends)
        if len(self.grown) > INT32_MAX and self.offsets.dtype.itemsize == 4:
            self.offsets = self.offsets.astype(np.int64)
        self.offsets[self.filled + 1 : self.filled + 1 + n] = ends
        self.filled += n

    def finish(self) -> pa.Array:
        """Return the wanted rows as an Arrow array."""
        import pyarrow as pa

        self.grown.fit()
        data = np.frombuffer(memoryview(self.grown), np.uint8)
        text = self.facts.type is Type.STRING and self.request.text
        if text:
            bad = kernel.first_not_utf8(data, self.offsets)
            if bad >= 0:
                value = data[self.offsets[bad] : self.offsets[bad + 1]].tobytes()
                refuse_text(self.take.row(bad), value, self.place)
        bits = None if self.validity is None else self.validity.buffer()
        nulls = 0 if self.validity is None else self.validity.nulls
        kind = arrow_type(text, wide=self.offsets.dtype.itemsize == 8)
        buffers = [bits, as_buffer(self.offsets), as_buffer(data)]
        return pa.Array.from_buffers(kind, self.take.count, buffers, null_count=nulls)


def _pick_plain(stream: Stream, affixed: bool, windows: Windows, picked: Picked) -> None:
    """Length-prefixed values (6.1), or what is between their prefix and suffix (6.6)."""
    place, n_values = picked.place, picked.facts.n_values
    at = 0
    affixes = (b"", b"")
    if affixed:
        prefix, at = _affix(stream, at, "prefix", place)
        suffix, at = _affix(stream, at, "suffix", place)
        affixes = prefix, suffix
    wanted = set(windows.wanted)
    for window in range(windows.wanted[-1] + 1):
        low, high = windows.values(window)
        n = high - low
        starts, lengths = np.empty(n, np.int64), np.empty(n, np.int64)
        if window in wanted:
            picked.begin(window)
        done = 0
        while done < n:
            if at + _WORD > stream.size:
                place.fail(f"{low + done} of {n_values} values, or the last one is cut short")
            raw, begin = stream.block(at)
            raw = raw[at - begin :]
            found, used = kernel.plain_spans(raw, starts[done:], lengths[done:])
            if found == 0:  # the end of a block cuts it
                length = int.from_bytes(stream.read(at, at + _WORD).tobytes(), "little")
                if length > stream.size - at - _WORD:
                    place.fail(f"value {low + done} is longer than what is left of the stream")
                found, used = 1, _WORD + length
                if window in wanted and len(chosen := picked.next_of(done, done + 1)):
                    picked.append_long(stream, at + _WORD, length, len(chosen), affixes)
            elif window in wanted:
                own = slice(done, done + found)
                picked.append(raw, starts[own], lengths[own], picked.next_of(done, done + found), affixes)
            done += found
            at += used
        if window in wanted:
            picked.end()
    if windows.values(windows.wanted[-1])[1] == n_values and at != stream.size:
        place.fail(f"more than {n_values} values")


def _affix(stream: Stream, at: int, what: str, place: Place) -> tuple[bytes, int]:
    """Return a prefix or suffix and where it ends."""
    if at + _WORD > stream.size:
        place.fail(f"the stream ends before its {what}")
    length = int.from_bytes(stream.read(at, at + _WORD).tobytes(), "little")
    at += _WORD
    if length > stream.size - at:
        place.fail(f"the {what} of {length} bytes reaches past the end of the stream")
    return stream.read(at, at + length).tobytes(), at + length


def _pick_offsets(table: Stream, stream: Stream, windows: Windows, picked: Picked) -> None:
    """A table of offsets, then all values (6.5); each is read by a cursor of its own."""
    place, n_values = picked.place, picked.facts.n_values
    first = _WORD * (1 + n_values)
    if stream.size < first:
        place.fail(f"{n_values} offsets do not fit into {stream.size} bytes")
    count = int.from_bytes(table.read(0, _WORD).tobytes(), "little")
    if count != n_values:
        place.fail(f"an offset table of {count} values, the row group has {n_values}")
    area = stream.size - first
    if n_values == 0 and area:
        place.fail(f"{area} bytes of values, but no value")
    for window in windows.wanted:
        low, high = windows.values(window)
        bounds = np.empty(high - low + 1, np.int64)
        stop = min(high + 1, n_values)
        bounds[: stop - low] = table.read(_WORD * (1 + low), _WORD * (1 + stop)).view("<u4")
        bounds[stop - low :] = area
        lengths = np.diff(bounds)
        if len(lengths) and (bounds[-1] > area or (lengths < 0).any()):
            bad = low + (int(np.argmax(lengths < 0)) + 1 if (lengths < 0).any() else high - low)
            place.fail(f"the offset of value {bad} decreases or lies outside the {area} bytes of values")
        picked.begin(window)
        picked.spans(stream, first + bounds[:-1], lengths)
        picked.end()


def _codes(dictionary: Dictionary, stream: Stream, windows: Windows, window: int) -> NDArray[np.uint32]:
    low, high = windows.values(window)
    codes = np.empty(high - low, np.uint32)
    dictionary.indices(stream, low, codes.view(np.uint8))
    return codes


def _pick_dict(dictionary: Dictionary, stream: Stream, windows: Windows, picked: Picked) -> None:
    """A dictionary of texts or bytes (6.4)."""
    bounds = dictionary.bounds.astype(np.int64)
    starts, lengths = bounds[:-1], np.diff(bounds)
    for window in windows.wanted:
        picked.begin(window)
        codes = _codes(dictionary, stream, windows, window)
        chosen = codes[picked.next_of(0, len(codes))].astype(np.int64)
        picked.append(dictionary.area, starts, lengths, chosen)
        picked.end()


def _keys(
    dictionary: Dictionary,
    stream: Stream,
    windows: Windows,
    facts: ChunkFacts,
    request: Request,
    place: Place,
) -> DecodedColumn:
    """Return the wanted rows as an Arrow dictionary array."""
    import pyarrow as pa

    take = windows.take
    keys = np.empty(take.count, np.int32)
    validity = None if windows.bitmap is None else _Validity(take.count)
    for window in windows.wanted:
        codes = _codes(dictionary, stream, windows, window)
        begin, end = take.span(*windows.rows(window))
        selector = windows.selector(window)
        if validity is not None:
            there = windows.there(window)
            of_rows = np.zeros(len(there), np.uint32)
            of_rows[there] = codes
            codes = of_rows
            validity.put(begin, there[selector])
        keys[begin:end] = codes[selector].view(np.int32)
    bits = None if validity is None else validity.buffer()
    nulls = 0 if validity is None else validity.nulls
    indices = pa.Array.from_buffers(pa.int32(), take.count, [bits, as_buffer(keys)], null_count=nulls)
    entries = arrow_dictionary(dictionary, text=facts.type is Type.STRING and request.text, place=place)
    return DecodedColumn(array=pa.DictionaryArray.from_arrays(indices, entries, safe=False))
