"""Which requests fetch a set of byte ranges? Pure planning: coalesce, split, and map back.

Neighbouring ranges are merged when the gap costs less than another round trip, merged blocks are capped
to keep requests parallel, and single ranges that are very long are split (integrations.md 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Block", "Slice", "plan_blocks", "split_block"]

SPLIT_BYTES = 64 << 20
"""A single range longer than this is fetched in parallel parts."""


class Slice(NamedTuple):
    """Where one wanted range lies: bytes ``[begin, begin + length)`` of block `block`."""

    block: int
    begin: int
    length: int


class Block(NamedTuple):
    """Bytes ``[start, stop)`` of a file, fetched together."""

    start: int
    stop: int


def plan_blocks(
    ranges: Sequence[tuple[int, int]], *, gap_bytes: int, max_block: int
) -> tuple[list[Block], list[Slice]]:
    """Merge the ranges (offset, length) of one file into blocks.

    Parameters
    ----------
    ranges : sequence of (int, int)
        Any order, overlaps and repeats allowed; lengths of at least 1.
    gap_bytes : int
        Ranges at most this far apart are fetched together.
    max_block : int
        A merged block is not longer than this; a single longer range stays whole.

    Returns
    -------
    blocks : list of Block
        Sorted by start. Each begins and ends with wanted bytes.
    slices : list of Slice
        One per range, in input order.
    """
    order = sorted(range(len(ranges)), key=lambda number: (ranges[number][0], -ranges[number][1]))
    blocks: list[Block] = []
    slices: list[Slice | None] = [None] * len(ranges)
    start = stop = -1
    for number in order:
        offset, length = ranges[number]
        end = offset + length
        if start >= 0 and (end <= stop or (offset <= stop + gap_bytes and end - start <= max_block)):
            stop = max(stop, end)
        else:
            if start >= 0:
                blocks.append(Block(start, stop))
            start, stop = offset, end
        slices[number] = Slice(len(blocks), offset - start, length)
    if start >= 0:
        blocks.append(Block(start, stop))
    return blocks, [piece for piece in slices if piece is not None]


def split_block(block: Block, *, part_bytes: int) -> list[Block]:
    """Cut a block longer than `SPLIT_BYTES` into parts of `part_bytes`; a shorter one comes back alone."""
    if block.stop - block.start <= SPLIT_BYTES:
        return [block]
    return [
        Block(start, min(start + part_bytes, block.stop))
        for start in range(block.start, block.stop, part_bytes)
    ]
