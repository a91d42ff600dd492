"""Picking rows out of windows gives what picking them out of the whole gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colstore_io.taking import Run, Take


@given(
    n_rows=st.integers(0, 300),
    wanted=st.lists(st.integers(0, 299), max_size=40),
    start=st.integers(0, 50),
    window=st.integers(1, 70),
    scattered=st.booleans(),
    as_mask=st.booleans(),
    narrow=st.booleans(),
)
def test_windows_in_any_order_give_what_the_whole_gives(
    n_rows: int, wanted: list[int], start: int, window: int, scattered: bool, as_mask: bool, narrow: bool
) -> None:
    values = np.arange(n_rows) * 10
    rows = np.array(sorted(row for row in wanted if start <= row < n_rows), np.int64)
    if as_mask:
        rows = np.unique(rows)
    places = np.random.default_rng(0).permutation(len(rows)).astype(np.int64) if scattered else None
    if as_mask:
        mask = np.zeros(max(0, n_rows - start), np.bool_)
        mask[rows - start] = True
        take = Take(start, mask=mask, places=places)
    else:
        kind = np.int32 if narrow else np.int64
        given_places = None if places is None else places.astype(kind)
        take = Take(start, rows=(rows - start).astype(kind), places=given_places)
    out = np.full(len(rows), -1)
    firsts = list(range(0, n_rows, window))
    for first in firsts[::-1]:
        part = values[first : first + window]
        inside = bool(((rows >= first) & (rows < first + window)).any())
        assert take.wants(first, first + len(part)) == inside
        take.put(first, part, out)
    expected = np.empty(len(rows), values.dtype)
    expected[slice(None) if places is None else places] = values[rows]
    np.testing.assert_array_equal(out, expected)
    inside = values[start : take.stop]
    again, spread = np.full(len(rows), -1), np.full(len(rows), -1)
    take.put(start, inside, again)
    np.testing.assert_array_equal(again, expected)
    picked = take.pick(start, inside)
    np.testing.assert_array_equal(picked, values[rows])
    take.spread(picked, spread)
    np.testing.assert_array_equal(spread, expected)
    np.testing.assert_array_equal(take.positions() + start, rows)
    assert take.windows(window) == sorted({int(row) // window for row in rows})
    assert take.count == len(rows)
    assert all(start <= row < take.stop for row in rows.tolist())


def test_a_long_mask_knows_the_place_of_each_window() -> None:
    mask = np.random.default_rng(1).random(300_000) < 0.3
    values = np.arange(300_010)
    take = Take(10, mask=mask)
    out = np.zeros(take.count, np.int64)
    for first in range(0, 300_010, 9_999):
        take.put(first, values[first : first + 9_999], out)
    np.testing.assert_array_equal(out, values[10:][mask])


def test_long_windows_are_picked_in_steps() -> None:
    values = np.random.default_rng(2).integers(0, 1 << 40, 300_000)
    mask = values % 3 == 0
    rows = np.flatnonzero(mask)
    for take in (Take(0, mask=mask), Take(0, rows=rows)):
        out = np.zeros(len(rows), np.int64)
        take.put(0, values, out)
        np.testing.assert_array_equal(out, values[mask])
        np.testing.assert_array_equal(take.pick(0, values), values[mask])


def test_steps_of_a_long_window_may_lie_before_and_behind_what_is_wanted() -> None:
    values = np.random.default_rng(3).integers(0, 1 << 40, 400_000)
    for start, stop in [(0, 1), (65_536, 65_537), (100_000, 150_000), (140_000, 140_001), (399_999, 400_000)]:
        mask = np.zeros(stop - start, np.bool_)
        mask[[0, -1]] = True
        rows = np.flatnonzero(mask)
        for take in (Take(start, mask=mask), Take(start, rows=rows), Run(start, stop)):
            picked = np.arange(start, stop) if isinstance(take, Run) else rows + start
            out = np.zeros(take.count, np.int64)
            take.put(0, values, out)
            np.testing.assert_array_equal(out, values[picked])
            np.testing.assert_array_equal(take.pick(0, values), values[picked])


def test_rows_or_a_mask_must_be_given() -> None:
    with pytest.raises(TypeError, match="rows or a mask"):
        Take(0)
