"""Optimize: which encoding and codec makes a column smallest? (columns.md 10.3)

``"exact"`` measures what the format's own library measures, candidate by candidate in its order, and breaks ties as it
does. ``"fast"`` looks at samples and leaves out what cannot win: it costs a small part and finds nearly the same. Both
say afterwards what each candidate would have cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...kernels import encode as kernels
from .choose import Choice, Layout, window_stream
from .compress import FAST, Level, compressor
from .encode import Dense, encode_stream, encoded_bytes
from .tags import Codec, Encoding, Type

__all__ = ["Candidate", "Candidates", "candidate_encodings", "optimize_column", "pick"]

CODECS = (Codec.NONE, Codec.FLATE, Codec.LZW)
"""What is measured, in this order; Gzip and Zlib never are."""

SAMPLE_BYTES = 64 << 10
"""Bytes of one window of a sample (``"fast"``). There are three: less is too little for a dictionary coder."""

DISTINCT_PART = 4
"""``"fast"`` tries Dict where there is at most one entry per so many values."""

HOPELESS = 1.1
"""``"fast"`` drops a candidate whose cheapest DEFLATE needs so many times the bytes of the best one's."""

HOPELESS_BYTES = 16
"""... and so many bytes on top: short streams differ by their headers."""

KEPT_BYTES = 256 << 10
"""A winner's stream of at most so many bytes is kept as it was measured: it need not be made again."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One layout and what it costs.

    Attributes
    ----------
    encoding : Encoding
    codec : Codec
    encoded_bytes : int
        Length of the encoded stream.
    compressed_bytes : int or None
        Its length under the codec, in one piece; None where it was not measured because it could not win.
    representation, boundary : int
        Of Tokenized.
    estimated : bool
        Whether `compressed_bytes` was projected from a sample.
    """

    encoding: Encoding
    codec: Codec
    encoded_bytes: int
    compressed_bytes: int | None
    representation: int = 0
    boundary: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Candidates:
    """All layouts of one column, in the order in which they are compared, and the one that won.

    Attributes
    ----------
    column : str
    rows : tuple of Candidate
    chosen : Candidate
    level : Level
    choice : Choice
        The winner's layout for whoever stores these values next, with its stream if that is short and was measured as
        a whole.
    """

    column: str
    rows: tuple[Candidate, ...]
    chosen: Candidate
    level: Level
    choice: Choice = field(repr=False, compare=False)

    @classmethod
    def of(cls, column: str, measured: Iterable[_Measured], level: Level) -> Candidates:
        """Pick the winner of all layouts of one column."""
        made = {id(row): (row, stream, stored) for row, stream, stored in measured}
        rows = tuple(row for row, *_ in made.values())
        chosen = pick(rows)
        _, stream, stored = made[id(chosen)]
        layout = Layout(chosen.encoding, chosen.codec, level, chosen.representation, chosen.boundary)
        if stream is None or len(stream) > KEPT_BYTES:
            stream = stored = None
        return cls(column, rows, chosen, level, Choice(layout, stream, stored))

    def __str__(self) -> str:
        lines = [f"{self.column}:"]
        for row in self.rows:
            name = row.encoding.name.lower()
            if row.encoding is Encoding.TOKENIZED:
                name += f"[{row.representation},{row.boundary}]"
            size = "not measured" if row.compressed_bytes is None else str(row.compressed_bytes)
            marks = (" (estimated)" if row.estimated else "") + (" <- chosen" if row is self.chosen else "")
            lines.append(f"  {name:16} {row.codec.name.lower():6} {row.encoded_bytes:>12} {size:>12}{marks}")
        return "\n".join(lines)


def candidate_encodings(kind: Type, *, tokenizer: bool = False) -> tuple[Encoding, ...]:
    """Return the encodings that Optimize compares for a type, in order."""
    if kind is Type.BOOL:
        return (Encoding.RLE_BITPACK, Encoding.PLAIN)
    if kind <= Type.UINT64:
        return (Encoding.PLAIN, Encoding.DELTA, Encoding.DICT)
    if kind.fixed:
        return (Encoding.PLAIN, Encoding.DICT)
    first = Encoding.OFFSET_BYTES if kind is Type.BYTES else Encoding.PLAIN
    return (first, Encoding.DICT, Encoding.AFFIX, *((Encoding.TOKENIZED,) if tokenizer else ()))


def pick(rows: Sequence[Candidate]) -> Candidate:
    """Return the winner: fewest compressed bytes, then fewest encoded bytes, then the earliest."""
    measured = [row for row in rows if row.compressed_bytes is not None]
    return min(
        measured, key=lambda row: (row.compressed_bytes, row.encoded_bytes)
    )  # min keeps the first of equals


def optimize_column(
    name: str,
    dense: Dense,
    level: Level,
    *,
    mode: Literal["exact", "fast"] = "exact",
    tokenizer: Any = None,
    deflated: Callable[[Any], int] | None = None,
    run: Callable[..., Iterable[Any]] = map,
) -> Candidates:
    """Compare all layouts of one column.

    Parameters
    ----------
    name : str
    dense : Dense
        All its values that are not null.
    level : Level
        Of the DEFLATE that is measured.
    mode : {"exact", "fast"}
    tokenizer : Tokenizer, optional
        Adds the nine layouts of Tokenized.
    deflated : callable, optional
        Gives the DEFLATE size of a stream. Default: the library's compressor at `level`.
    run : callable, optional
        Does the measurements of ``"exact"``; a pool's ``map``. In any order, their results in that of the arguments.

    Returns
    -------
    Candidates
    """
    measure = _deflated(level) if deflated is None else lambda stream: (deflated(stream), None)
    if mode == "fast":
        return Candidates.of(name, _sampled(list(_samples(name, dense, tokenizer)), measure), level)
    streams = list(_streams(name, dense, tokenizer))
    work = [(call, stream) for *_, stream in streams for call in (_unchanged, measure, _lzw)]
    sizes = iter(list(run(lambda item: item[0](item[1]), work)))
    measured = []
    for encoding, representation, boundary, stream in streams:
        for codec in CODECS:
            size, stored = next(sizes)
            row = Candidate(encoding, codec, len(stream), size, representation, boundary)
            measured.append((row, stream, stored))
    return Candidates.of(name, measured, level)


_Stored: TypeAlias = "bytes | bytearray | memoryview | None"
_Measure: TypeAlias = Callable[[NDArray[np.uint8]], tuple[int, _Stored]]
"""Gives the size of a stream under a codec, and its bytes if they were made and may be kept."""
_Measured: TypeAlias = tuple[Candidate, "NDArray[np.uint8] | None", _Stored]


def _unchanged(stream: NDArray[np.uint8]) -> tuple[int, _Stored]:
    return len(stream), None


def _deflated(level: Level) -> _Measure:
    compress = compressor(Codec.FLATE, level)

    def measure(stream: NDArray[np.uint8]) -> tuple[int, _Stored]:
        stored = compress(stream)
        return len(stored), stored if len(stream) <= KEPT_BYTES else None

    return measure


def _lzw(stream: NDArray[np.uint8]) -> tuple[int, _Stored]:
    return kernels.lzw(stream, np.empty(2 * len(stream) + 16, np.uint8)), None


def _streams(
    name: str, dense: Dense, tokenizer: Any
) -> Iterator[tuple[Encoding, int, int, NDArray[np.uint8]]]:
    """Yield each candidate's encoding, representation, boundary and whole stream."""
    for encoding in candidate_encodings(dense.kind, tokenizer=tokenizer is not None):
        if encoding is Encoding.TOKENIZED:
            for representation, boundary, stream in token_streams(dense, tokenizer):
                yield encoding, representation, boundary, stream
        else:
            yield encoding, 0, 0, encode_stream(name, dense, encoding)


def token_streams(dense: Dense, tokenizer: Any) -> Iterator[tuple[int, int, NDArray[np.uint8]]]:
    """Yield representation, boundary and stream of the nine layouts of Tokenized, in order."""
    from .tokenized import BOUNDARIES, REPRESENTATIONS, TokenStreams

    tokens = TokenStreams.tokenize(*dense.variable, tokenizer)
    for representation, name in enumerate(REPRESENTATIONS):
        for boundary, other in enumerate(BOUNDARIES):
            yield representation, boundary, np.frombuffer(tokens.encode(name, other), np.uint8)


# -------------------------------------------------------------------------------------------------------- fast


@dataclass(frozen=True, slots=True)
class _Sample:
    """One candidate's stream, or windows that stand for it."""

    encoding: Encoding
    representation: int
    boundary: int
    encoded_bytes: int
    parts: tuple[
        tuple[float, NDArray[np.uint8]], ...
    ]  # windows, and how many bytes each byte of them stands for
    whole: bool

    def projected(self, measure: _Measure) -> tuple[int, _Stored]:
        """Return what the whole stream would measure; its bytes only if it was measured as a whole."""
        if self.whole:
            return measure(self.parts[0][1])
        return round(sum(factor * measure(part)[0] for factor, part in self.parts)), None


def _sampled(samples: list[_Sample], measure: _Measure) -> Iterator[_Measured]:
    cheap = _deflated(FAST)
    first = [min(sample.encoded_bytes, sample.projected(cheap)[0]) for sample in samples]
    best = min(first)
    for sample, low in zip(samples, first, strict=True):
        flate: tuple[int | None, _Stored] = (None, None)
        lzw: tuple[int | None, _Stored] = (None, None)
        if low <= HOPELESS * best + HOPELESS_BYTES:
            flate = sample.projected(measure)
            # Lzw needs no look where even the cheapest DEFLATE finds more: its matches are DEFLATE's too.
            if low >= sample.encoded_bytes:
                lzw = sample.projected(_lzw)
        stream = sample.parts[0][1] if sample.whole else None
        for codec, (size, stored) in zip(CODECS, ((sample.encoded_bytes, None), flate, lzw), strict=True):
            row = Candidate(
                sample.encoding,
                codec,
                sample.encoded_bytes,
                size,
                sample.representation,
                sample.boundary,
                estimated=not sample.whole and codec is not Codec.NONE,
            )
            yield row, stream, stored


def _samples(name: str, dense: Dense, tokenizer: Any) -> Iterator[_Sample]:
    plain_bytes = dense.value_bytes + (0 if dense.kind.fixed else 4 * dense.n)
    if plain_bytes <= 4 * SAMPLE_BYTES:
        for encoding, representation, boundary, stream in _streams(name, dense, tokenizer):
            yield _Sample(encoding, representation, boundary, len(stream), ((1.0, stream),), True)
        return
    rows = max(1, dense.n * SAMPLE_BYTES // plain_bytes)
    starts = (0, (dense.n - rows) // 2, dense.n - rows)
    windows = [dense.rows(start, start + rows) for start in starts]
    scale = dense.n / (rows * len(windows))
    for encoding in candidate_encodings(dense.kind, tokenizer=tokenizer is not None):
        if encoding is Encoding.DICT:
            yield from _dictionary_sample(name, dense)
        elif encoding is Encoding.TOKENIZED:
            token_windows = [list(token_streams(window, tokenizer)) for window in windows]
            for number, (representation, boundary, _) in enumerate(token_windows[0]):
                streams = [window[number][2] for window in token_windows]
                nbytes = round(scale * sum(map(len, streams)))
                parts = tuple((scale, stream) for stream in streams)
                yield _Sample(encoding, representation, boundary, nbytes, parts, False)
        else:
            streams = [window_stream(dense, window, encoding) for window in windows]
            parts = tuple((scale, stream) for stream in streams)
            yield _Sample(encoding, 0, 0, encoded_bytes(dense, encoding), parts, False)


def _dictionary_sample(name: str, dense: Dense) -> Iterator[_Sample]:
    if dense.dictionary(max(256, dense.n // DISTINCT_PART)) is None:
        return
    stream = encode_stream(name, dense, Encoding.DICT)
    assert dense.ready is not None
    split = 12 + dense.ready.packed_bytes
    parts: list[tuple[float, NDArray[np.uint8]]] = []
    for part in (stream[:split], stream[split:]):
        if len(part) <= 4 * SAMPLE_BYTES:
            parts.append((1.0, part))
            continue
        starts = (0, (len(part) - SAMPLE_BYTES) // 2, len(part) - SAMPLE_BYTES)
        parts += [(len(part) / (3 * SAMPLE_BYTES), part[at : at + SAMPLE_BYTES]) for at in starts]
    yield _Sample(Encoding.DICT, 0, 0, len(stream), tuple(parts), False)
