"""Kernels by themselves, with the numbers that their callers would have checked."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from colstore_io.kernels import decode, message_log, records, tokens

from .target import (
    Target,
)


def _kernel_calls(data: bytes) -> None:
    """Kernels of streams by themselves, as their callers call them: the first byte chooses one, the next four say how
    many values there are, and how wide they are."""
    if len(data) < 5:
        return
    which, width, (n, limit) = data[0] % 12, data[0] >> 4, struct.unpack_from("<HH", data, 1)
    n %= 4096
    stream = np.frombuffer(data, np.uint8)[5:]
    numbers, ids = np.empty(n, np.uint32), np.empty(n, np.uint16)
    places, text = np.empty(n + 1, np.int64), np.empty(limit, np.uint8)
    calls: tuple[Callable[[], object], ...] = (
        lambda: decode.PackedReader(2 * width + 1, limit, numbers.view(np.uint8)).feed(stream),
        lambda: decode.delta(stream, np.empty(n * 4, np.uint8), 4),
        lambda: decode.expand(np.empty(n * 8, np.uint8), 8, stream),
        lambda: decode.PlainReader(places, text, b"p" * width, b"s").feed(stream),
        lambda: decode.PlainReader(places.astype(np.int32), text).feed(stream),
        lambda: decode.offset_table(stream[: 4 * n], limit, places),
        lambda: decode.first_not_utf8(stream, np.array([0, len(stream)])),
        lambda: tokens.bits_decode(stream, width % 16 + 1, ids, 1),
        lambda: tokens.remap_decode(stream, stream[: 2 * width], ids),
        lambda: tokens.boundaries_decode(stream, width % 3, limit, np.empty(len(stream) // 4 + 1, np.int64)),
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
