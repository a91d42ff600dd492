"""Streams of tokenized columns: values as token ids and escape bytes, in nine layouts (columns.md 6.7).

Values come and go as `offsets`, int64 of shape (n + 1,), into `data`, uint8: value i is the bytes from ``offsets[i]``
to ``offsets[i + 1]``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ... import threads
from ...kernels import tokens as kernels
from .detokenize import decode_tokenized
from .tokenizer import Tokenizer

__all__ = [
    "BOUNDARIES",
    "REPRESENTATIONS",
    "Boundary",
    "Representation",
    "TokenStreams",
    "decode_tokenized",
    "encode_tokenized",
]

Representation: TypeAlias = Literal["raw", "remap", "bits"]
Boundary: TypeAlias = Literal["counts", "offsets", "deltas"]

REPRESENTATIONS: tuple[Representation, ...] = ("raw", "remap", "bits")
"""Representations, by their tag."""

BOUNDARIES: tuple[Boundary, ...] = ("counts", "offsets", "deltas")
"""Boundaries, by their tag."""

_HEADER = struct.Struct("<BBIIII")
_LIMIT = (1 << 32) - 1
_ENCODE_BLOCK = 1 << 20  # bytes of values for one thread at a time; a block warms a word cache of its own
_ENCODE_WINDOW = 32 << 20  # bytes of values whose scratch memory (3 bytes each) exists at a time


def _blocks(ends: NDArray[np.int64], target: int) -> NDArray[np.int64]:
    """Cut values at multiples of `target`; `ends` are their starts, and the end of the last, rising from 0.

    Returns
    -------
    ndarray of int64
        Numbers of the first value of each block, then the number of values.
    """
    total = int(ends[-1])
    cuts = np.searchsorted(ends[:-1], np.arange(target, total, target, dtype=np.int64), side="left")
    return np.unique(np.concatenate([[0], cuts, [len(ends) - 1]])).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Histogram:
    """How often each id occurs, most frequent first, ties by ascending id."""

    ids: NDArray[np.uint16]
    counts: NDArray[np.int64]

    @property
    def varint_bytes(self) -> int:
        """Bytes of all ids as varints of their positions."""
        positions = np.arange(len(self.ids))
        return int((self.counts * (1 + (positions >= 1 << 7) + (positions >= 1 << 14))).sum())


@dataclass(frozen=True, eq=False)
class TokenStreams:
    """Values that were tokenized once, to be laid out in any of the nine ways.

    Attributes
    ----------
    ids : ndarray of uint16, shape (I,)
        Ids of all values; an escape id for each byte without a token.
    counts : ndarray of int64, shape (V,)
        Number of ids of each value.
    escapes : ndarray of uint8, shape (E,)
        Bytes of the escape ids.
    """

    ids: NDArray[np.uint16]
    counts: NDArray[np.int64]
    escapes: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))

    @classmethod
    def tokenize(
        cls, offsets: NDArray[np.int64], data: NDArray[np.uint8], tokenizer: Tokenizer, *, verify: bool = True
    ) -> TokenStreams:
        """Tokenize values (columns.md 13.4).

        Parameters
        ----------
        offsets : ndarray of int64, shape (V + 1,)
            Rising; they need not begin at 0.
        data : ndarray of uint8
            Any bytes.
        tokenizer : Tokenizer
        verify : bool, optional
            Compare what each value's ids stand for with the value, while both are in the cache.

        Raises
        ------
        ValueError
            If offsets do not fit the data, a value has 2 GiB or more, or there are more ids than 32 bits count.
        UnsupportedFeatureError
            If the tokenizer cannot encode.

        Notes
        -----
        Threads take blocks of whole values, so a token is never split between two.
        """
        encoder = tokenizer.encoder
        offsets = np.ascontiguousarray(offsets, np.int64)
        data = np.ascontiguousarray(data, np.uint8)
        if len(offsets) == 0 or offsets[0] < 0 or offsets[-1] > len(data) or (np.diff(offsets) < 0).any():
            raise ValueError(f"offsets must rise within the {len(data)} bytes of the data")
        n = len(offsets) - 1
        counts = np.empty(n, np.int64)
        id_parts: list[NDArray[np.uint16]] = []
        escape_parts: list[NDArray[np.uint8]] = []
        windows = _blocks(offsets - offsets[0], _ENCODE_WINDOW)
        for begin, end in zip(windows[:-1].tolist(), windows[1:].tolist(), strict=True):
            base = int(offsets[begin])
            local = offsets[begin : end + 1] - base
            total = int(local[-1])
            blocks = _blocks(local, _ENCODE_BLOCK)
            ids = np.empty(total, np.uint16)
            escapes = np.empty(total, np.uint8)
            block_ids = np.zeros(len(blocks) - 1, np.int64)
            block_escapes = np.zeros(len(blocks) - 1, np.int64)
            with threads.lease(threads.wanted_threads(16 * total, 0)) as granted:
                bad = encoder.encode(
                    local,
                    data[base : base + total],
                    blocks,
                    ids,
                    escapes,
                    counts[begin:end],
                    block_ids,
                    block_escapes,
                    verify,
                    min(granted, max(1, len(blocks) - 1)),
                )
            if bad >= 0:
                raise AssertionError(f"value {begin + bad} was tokenized wrongly; nothing was written")
            places = local[blocks[:-1]].tolist()
            for at, k, e in zip(places, block_ids.tolist(), block_escapes.tolist(), strict=True):
                id_parts.append(ids[at : at + k].copy())
                if e:
                    escape_parts.append(escapes[at : at + e].copy())
        streams = cls(
            np.concatenate(id_parts) if id_parts else np.empty(0, np.uint16),
            counts,
            np.concatenate(escape_parts) if escape_parts else np.empty(0, np.uint8),
        )
        if len(streams.ids) > _LIMIT or n > _LIMIT:
            raise ValueError(
                f"{n} values of {len(streams.ids)} ids do not fit one chunk; write smaller row groups"
            )
        return streams

    @cached_property
    def _histogram(self) -> _Histogram:
        counts = np.bincount(self.ids, minlength=1).astype(np.int64)
        used = np.flatnonzero(counts)
        order = used[np.argsort(-counts[used], kind="stable")]
        return _Histogram(order.astype(np.uint16), counts[order])

    @cached_property
    def _width(self) -> int:
        return int(self.ids.max()).bit_length() if len(self.ids) else 0

    def size(self, representation: Representation, boundary: Boundary) -> int:
        """Return the bytes that `encode` would return, without encoding."""
        _tags(representation, boundary)
        n_table, n_id_bytes = self._id_sizes(representation)
        return _HEADER.size + 2 * n_table + 4 * len(self.counts) + n_id_bytes + len(self.escapes)

    def _id_sizes(self, representation: Representation) -> tuple[int, int]:
        """Entries of the table, bytes of the id stream."""
        n = len(self.ids)
        if representation == "raw":
            return 0, 2 * n
        if representation == "bits":
            return 1, -(-n * self._width // 8)
        return len(self._histogram.ids), self._histogram.varint_bytes

    def encode(self, representation: Representation = "raw", boundary: Boundary = "counts") -> bytes:
        """Return the stream in one layout.

        Raises
        ------
        ValueError
            If there is no such layout, or counts are too large for ``"deltas"``.
        """
        tags = _tags(representation, boundary)
        n_table, n_id_bytes = self._id_sizes(representation)
        n = len(self.counts)
        out = np.empty(self.size(representation, boundary), np.uint8)
        header = _HEADER.pack(*tags, n, len(self.ids), len(self.escapes), n_table)
        out[: _HEADER.size] = np.frombuffer(header, np.uint8)
        table_end = _HEADER.size + 2 * n_table
        ids_start = table_end + 4 * n
        ids_stop = ids_start + n_id_bytes
        out[table_end:ids_start] = self._boundary_words(boundary).astype("<u4").view(np.uint8)
        out[ids_stop:] = self.escapes
        target = out[ids_start:ids_stop]
        if representation == "raw":
            target[:] = self.ids.astype("<u2", copy=False).view(np.uint8)
        elif representation == "bits":
            largest = np.array([self.ids.max() if len(self.ids) else 0], "<u2")
            out[_HEADER.size : table_end] = largest.view(np.uint8)
            if self._width:
                kernels.bits_encode(self.ids, self._width, target)
        else:
            table = self._histogram.ids
            out[_HEADER.size : table_end] = table.astype("<u2").view(np.uint8)
            positions = np.zeros(1 << 16, np.uint16)
            positions[table] = np.arange(len(table), dtype=np.uint16)
            kernels.remap_encode(self.ids, positions, target)
        return out.tobytes()

    def _boundary_words(self, boundary: Boundary) -> NDArray[np.int64]:
        counts = self.counts
        if boundary == "counts":
            return counts
        if boundary == "offsets":
            return np.cumsum(counts) - counts
        if len(counts) and counts.max() >= 1 << 31:
            raise ValueError("a value has 2**31 ids or more, too many for boundaries as deltas")
        steps = np.diff(counts, prepend=0)
        return np.where(steps >= 0, 2 * steps, -2 * steps - 1)


def _tags(representation: str, boundary: str) -> tuple[int, int]:
    if representation not in REPRESENTATIONS or boundary not in BOUNDARIES:
        raise ValueError(
            f"no layout {representation!r}, {boundary!r}; representations are {', '.join(REPRESENTATIONS)}, "
            f"boundaries {', '.join(BOUNDARIES)}"
        )
    return REPRESENTATIONS.index(representation), BOUNDARIES.index(boundary)


def encode_tokenized(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tokenizer: Tokenizer,
    representation: Representation = "raw",
    boundary: Boundary = "counts",
) -> bytes:
    """Tokenize values and return their stream in one layout: `TokenStreams.tokenize`, then `TokenStreams.encode`."""
    _tags(representation, boundary)
    return TokenStreams.tokenize(offsets, data, tokenizer).encode(representation, boundary)
