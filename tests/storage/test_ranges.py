"""Joining blocks that a request costs more to keep apart than to read across."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from colstore_io.storage.ranges import join_blocks, plan_blocks


@example([(0, 2), (1, 2)], 0, 0, 0, 1)
@given(
    st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 60)), min_size=1, max_size=30),
    st.integers(0, 50),
    st.integers(0, 200),
    st.integers(0, 400),
    st.integers(1, 1000),
)
def test_joined_blocks_hold_every_range_and_cost_no_more_than_is_spared(
    ranges: list[tuple[int, int]], near: int, gap: int, spare: int, longest: int
) -> None:
    data = np.arange(2100) % 251
    blocks, slices = plan_blocks(ranges, gap_bytes=near, max_block=longest)
    joined, places = join_blocks(blocks, slices, gap_bytes=gap, spare_bytes=spare, max_block=longest)
    # Blocks that overlap, as long ranges do, give bytes back where they are joined.
    assert sum(b.stop - b.start for b in joined) - sum(b.stop - b.start for b in blocks) <= spare
    assert len(joined) <= len(blocks)
    assert [b.start for b in joined] == sorted(b.start for b in joined)
    for block in joined:
        assert block.stop - block.start <= longest or block in blocks
    for (offset, length), place in zip(ranges, places, strict=True):
        block = joined[place.block]
        assert block.start + place.begin == offset
        assert place.begin + length <= block.stop - block.start
        found = data[block.start : block.stop][place.begin : place.begin + place.length]
        assert found.tolist() == data[offset : offset + length].tolist()


def test_the_nearest_blocks_are_joined_first() -> None:
    blocks, slices = plan_blocks([(0, 10), (60, 10), (90, 10), (200, 10)], gap_bytes=0, max_block=1000)
    assert len(blocks) == 4
    joined, places = join_blocks(blocks, slices, gap_bytes=100, spare_bytes=75, max_block=1000)
    assert joined == [(0, 100), (200, 210)]
    assert [tuple(p) for p in places] == [(0, 0, 10), (0, 60, 10), (0, 90, 10), (1, 0, 10)]
    few, _ = join_blocks(blocks, slices, gap_bytes=100, spare_bytes=30, max_block=1000)
    assert few == [(0, 10), (60, 100), (200, 210)]
    assert join_blocks(blocks, slices, gap_bytes=19, spare_bytes=1000, max_block=1000)[0] == blocks
    short, _ = join_blocks(blocks, slices, gap_bytes=100, spare_bytes=1000, max_block=45)
    assert short == [(0, 10), (60, 100), (200, 210)]
