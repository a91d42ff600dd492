"""Twins of ``kernels.encode`` in plain Python and NumPy: the same names, arguments and results, written to be read.

They say what the kernels must do (columns.md 6, 7.1 and 9), and tests compare the two. Nothing else uses them: they
make an object per value.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "affixes",
    "bounds",
    "delta",
    "find",
    "fixed_codes",
    "lzw",
    "pack_bits",
    "prefixed",
    "put_entries",
    "quirky_bounds",
    "renumber",
    "variable_codes",
]


def values_of(offsets: NDArray[Any], data: Any) -> list[bytes]:
    """Return the values as objects."""
    raw = bytes(data)
    starts = offsets.tolist()
    return [raw[a:b] for a, b in pairwise(starts)]


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _put(out: NDArray[np.uint8], data: bytes) -> None:
    out[:] = np.frombuffer(data, np.uint8)


def delta(values: Any, width: int, is_signed: bool, out: NDArray[np.uint64]) -> None:
    raw = bytes(values)
    order = "little" if np.little_endian else "big"
    numbers = [
        int.from_bytes(raw[i : i + width], order, signed=is_signed)  # type: ignore[arg-type]
        for i in range(0, len(raw), width)
    ]
    out[:] = [(b - a) % 2**64 for a, b in pairwise([0, *numbers])]


def pack_bits(codes: NDArray[np.uint32], width: int, out: NDArray[np.uint8]) -> None:
    text = "".join(format(code, f"0{width}b") for code in codes.tolist()) if width else ""
    text += "0" * (-len(text) % 8)
    _put(out, bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8)))


def _codes(keys: list[bytes], limit: int, codes: NDArray[np.uint32], firsts: NDArray[np.uint32]) -> int:
    number: dict[bytes, int] = {}
    for row, key in enumerate(keys):
        if key not in number:
            if len(number) == limit:
                return -1
            firsts[len(number)] = row
            number[key] = len(number)
        codes[row] = number[key]
    return len(number)


def fixed_codes(
    values: Any, width: int, limit: int, seed: int, codes: NDArray[np.uint32], firsts: NDArray[np.uint32]
) -> int:
    raw = bytes(values)
    return _codes([raw[i : i + width] for i in range(0, len(raw), width)], limit, codes, firsts)


def variable_codes(
    offsets: NDArray[Any],
    data: Any,
    limit: int,
    seed: int,
    codes: NDArray[np.uint32],
    firsts: NDArray[np.uint32],
) -> int:
    return _codes(values_of(offsets, data), limit, codes, firsts)


def renumber(
    old: NDArray[np.int64], number: NDArray[np.uint32], codes: NDArray[np.uint32], order: NDArray[np.uint32]
) -> int:
    seen = list(dict.fromkeys(old.tolist()))
    for new, code in enumerate(seen):
        if not 0 <= code < len(number):
            raise ValueError(f"a code lies outside the {len(number)} entries of its dictionary")
        number[code] = new + 1
        order[new] = code
    codes[:] = number[old] - 1
    return len(seen)


def put_entries(offsets: NDArray[Any], data: Any, rows: NDArray[np.uint32], out: NDArray[np.uint8]) -> None:
    values = values_of(offsets, data)
    chosen = [values[row] for row in rows.tolist()]
    starts = np.cumsum([0, *map(len, chosen)])[:-1].tolist()
    _put(out, b"".join(map(_u32, starts)) + b"".join(chosen))


def prefixed(offsets: NDArray[Any], data: Any, prefix: int, suffix: int, out: NDArray[np.uint8]) -> None:
    middles = [value[prefix : len(value) - suffix] for value in values_of(offsets, data)]
    _put(out, b"".join(_u32(len(middle)) + middle for middle in middles))


def affixes(offsets: NDArray[Any], data: Any) -> tuple[int, int]:
    values = values_of(offsets, data)
    if not values:
        return 0, 0
    shortest = min(map(len, values))
    prefix = suffix = 0
    while prefix < shortest and len({value[prefix] for value in values}) == 1:
        prefix += 1
    while suffix < shortest and len({value[-1 - suffix] for value in values}) == 1:
        suffix += 1
    return prefix, min(suffix, shortest - prefix)


def bounds(offsets: NDArray[Any], data: Any, skip: int = 0) -> tuple[int, int, int, int]:
    values = values_of(offsets, data)
    lengths = list(map(len, values))
    return values.index(min(values)), values.index(max(values)), min(lengths), max(lengths)


def quirky_bounds(offsets: NDArray[Any], data: Any) -> tuple[int, bytes, int, int]:
    least, row, greatest, shortest, longest = b"", -1, b"", 0, 0
    for number, value in enumerate(values_of(offsets, data)):
        if least == b"":
            least, row, greatest = value, number, greatest + value
            shortest = longest = len(value)
            continue
        if value < least:
            least, row = value, number
        greatest = max(greatest, value)
        shortest, longest = min(shortest, len(value)), max(longest, len(value))
    return row, greatest, shortest, longest


def find(data: Any, needle: bytes, begin: int = 0) -> int:
    return bytes(data).find(needle, begin)


def lzw(data: Any, out: NDArray[np.uint8]) -> int:
    bits = 0
    n_bits = 0

    def emit(code: int) -> None:
        nonlocal bits, n_bits
        bits |= code << n_bits
        n_bits += width

    hi, width, limit = 257, 9, 512
    table: dict[tuple[int, int], int] = {}

    def advance() -> bool:
        nonlocal hi, width, limit
        hi += 1
        if hi == limit:
            width += 1
            limit *= 2
        if hi == 4095:
            emit(256)
            hi, width, limit = 257, 9, 512
            table.clear()
            return True
        return False

    emit(256)
    raw = bytes(data)
    if raw:
        code = raw[0]
        for x in raw[1:]:
            if (code, x) in table:
                code = table[code, x]
                continue
            emit(code)
            if not advance():
                table[code, x] = hi
            code = x
        emit(code)
        advance()
    emit(257)
    stream = bits.to_bytes(-(-n_bits // 8), "little")
    out[: len(stream)] = np.frombuffer(stream, np.uint8)
    return len(stream)
