"""Kernels by themselves, with the numbers that their callers would have checked."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from colstore_io.kernels import decode, message_log, records, tokens

from .columns import small_tokenizer
from .target import (
    Target,
)


def _read_ids(representation: int, width: int, stream: Any, table: Any, places: Any) -> None:
    """One value, or one for each place, of all the ids that there can be."""
    tokenizer, n = small_tokenizer(), len(places) - 1
    n_ids = len(stream) * 8 // max(1, width)
    reader = tokens.TokenReader(tokenizer.table, representation, table, n, n_ids, 0, 1 << 22)
    places[:] = n_ids // max(1, n)
    reader.begin(places, width)
    for at in range(0, len(stream), 7):
        if reader.feed(stream[at : at + 7], places):
            return
    reader.take()


def _kernel_calls(data: bytes) -> None:
    """Kernels of streams by themselves, as their callers call them: the first byte chooses one, the next four say how
    many values there are, and how wide they are."""
    if len(data) < 5:
        return
    which, width, (n, limit) = data[0] % 12, data[0] >> 4, struct.unpack_from("<HH", data, 1)
    n %= 4096
    stream = np.frombuffer(data, np.uint8)[5:]
    numbers = np.empty(n, np.uint32)
    places, text = np.empty(n + 1, np.int64), np.empty(limit, np.uint8)
    calls: tuple[Callable[[], object], ...] = (
        lambda: decode.PackedReader(2 * width + 1, limit, numbers.view(np.uint8)).feed(stream),
        lambda: decode.delta(stream, np.empty(n * 4, np.uint8), 4),
        lambda: decode.expand(np.empty(n * 8, np.uint8), 8, stream),
        lambda: decode.PlainReader(places, text, b"p" * width, b"s").feed(stream),
        lambda: decode.PlainReader(places.astype(np.int32), text).feed(stream),
        lambda: decode.offset_table(stream[: 4 * n], limit, places),
        lambda: decode.first_not_utf8(stream, np.array([0, len(stream)])),
        lambda: _read_ids(2, width + 1, stream, stream[:0], places),
        lambda: _read_ids(1, 0, stream, stream[: 2 * width], places),
        lambda: tokens.token_counts(stream[: len(stream) // 4 * 4].copy().view(np.uint32), width % 3, limit),
        lambda: records.walk_records(stream, 0, width, len(stream), places, places.copy()),
        lambda: message_log.walk(stream, 0, 0, places, places.copy(), places.copy()),
    )
    try:
        calls[which]()
    except ValueError:  # lengths that do not fit together, said before anything is read
        pass


def _kernel_seeds() -> list[bytes]:
    return [
        bytes([which | 16 * width, 9, 0, 200, 0]) + b"\1\0\0\0x" * 9
        for which in range(12)
        for width in (1, 8)
    ]


TARGETS: dict[str, Target] = {
    "kernels": Target(_kernel_calls, _kernel_seeds, allowed=()),
}
