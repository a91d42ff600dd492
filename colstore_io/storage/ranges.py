"""Which requests fetch a set of byte ranges? Pure planning: coalesce, split, and map back.

Neighbouring ranges are merged when the gap costs less than another round trip, merged blocks are capped
to keep requests parallel, and single ranges that are very long are split (integrations.md 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Block", "Slice", "join_blocks", "plan_blocks", "split_block"]

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


def join_blocks(
    blocks: Sequence[Block], slices: Sequence[Slice], *, gap_bytes: int, spare_bytes: int, max_block: int
) -> tuple[list[Block], list[Slice]]:
    """Join neighbouring blocks that a few bytes keep apart, the nearest ones first.

    A request costs about as much as some hundred KiB. That is what a gap may have, but a column of many records would
    then be fetched with all columns between: what is read in vain is bounded for all gaps together.

    Parameters
    ----------
    blocks, slices
        As `plan_blocks` gives them.
    gap_bytes : int
        Gaps that may be closed.
    spare_bytes : int
        Bytes of all closed gaps together.
    max_block : int
        A joined block is not longer than this.

    Returns
    -------
    blocks, slices
        As `plan_blocks`.
    """
    gaps = sorted((b.start - a.stop, number) for number, (a, b) in enumerate(pairwise(blocks)))
    length = [block.stop - block.start for block in blocks]  # of the joined block that begins or ends here
    head = list(range(len(blocks)))  # first block of the joined one, at its last; and the reverse below
    tail = list(range(len(blocks)))
    joined: set[int] = set()
    for gap, number in gaps:
        if gap > gap_bytes or gap > spare_bytes:
            break
        first, last = head[number], tail[number + 1]
        total = length[first] + gap + length[last]
        if total > max_block:
            continue
        spare_bytes -= gap
        joined.add(number)
        head[last], tail[first] = first, last
        length[first] = length[last] = total
    if not joined:
        return list(blocks), list(slices)
    result: list[Block] = []
    place: list[tuple[int, int]] = []  # of each block: the joined one, and where in it
    for number, block in enumerate(blocks):
        if number - 1 in joined:
            result[-1] = Block(result[-1].start, block.stop)
        else:
            result.append(block)
        place.append((len(result) - 1, block.start - result[-1].start))
    return result, [Slice(place[s.block][0], place[s.block][1] + s.begin, s.length) for s in slices]


def split_block(block: Block, *, part_bytes: int) -> list[Block]:
    """Cut a block longer than `SPLIT_BYTES` into parts of `part_bytes`; a shorter one comes back alone."""
    if block.stop - block.start <= SPLIT_BYTES:
        return [block]
    return [
        Block(start, min(start + part_bytes, block.stop))
        for start in range(block.start, block.stop, part_bytes)
    ]
