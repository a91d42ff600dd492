"""Selections cut at the borders of segments: the pieces together are the selection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io import kernels_numpy, pieces
from colstore_io.segments import Segments
from colstore_io.selection import Index, Mask, Range, normalise


def source(rows: list[int]) -> Any:
    row_start = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
    n = len(rows)
    table = Segments(np.zeros(n, np.int32), row_start, np.zeros(n, np.int64))
    return SimpleNamespace(
        plan=SimpleNamespace(segments=table),
        n_rows=int(row_start[-1]),
        kernel_module=lambda: kernels_numpy,
    )


def rows_of(cut: pieces.Cut, table: Segments) -> list[int]:
    """Put the numbers of the wanted rows where they belong in the result."""
    out = np.full(cut.count, -1)
    done = 0
    for number, piece in enumerate(cut.pieces):
        assert piece.number == number
        assert piece.place.start == done
        done = piece.place.stop
        first, stop = piece.rows
        origin = int(table.row_start[piece.segment])
        values = np.arange(origin + first, origin + stop)
        assert 0 <= first < stop <= table.rows[piece.segment]
        target = out[piece.place] if cut.in_order else out
        take = cut.take(piece)
        assert (take is not None) == cut.picks(piece)
        if take is None:
            target[:] = values
        else:
            assert (take.start, take.stop, take.count) == (first, stop, piece.count)
            take.put(first, values, target)
    assert done == cut.count
    return out.tolist()


layouts = st.lists(st.integers(0, 30), min_size=1, max_size=8)


@st.composite
def selections(draw: st.DrawFn) -> tuple[list[int], Any]:
    rows = draw(layouts)
    n = sum(rows)
    index = st.lists(st.integers(-n, n - 1), max_size=60) if n else st.just([])
    key = draw(
        st.one_of(
            st.slices(n),
            index.map(lambda v: np.array(v, np.int64)),
            index.map(lambda v: np.sort(np.array(v, np.int64) % max(1, n))),
            st.lists(st.booleans(), min_size=n, max_size=n).map(lambda v: np.array(v, np.bool_)),
        )
    )
    return rows, key


@given(selections(), st.sampled_from([1, 7, 1 << 17]))
@settings(deadline=None, max_examples=300)
def test_pieces_are_the_selection(case: tuple[list[int], Any], block: int) -> None:
    rows, key = case
    table = source(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_BLOCK", block)
        cut = pieces.cut(table, normalise(key, table.n_rows))
        assert rows_of(cut, table.plan.segments) == np.arange(table.n_rows)[key].tolist()


@pytest.mark.parametrize("n_rows", [1 << 40, 1 << 50, (1 << 62) - 1])
@pytest.mark.parametrize("block", [4, 1 << 17])
def test_rows_of_enormous_tables_are_put_in_order(
    n_rows: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that takes no bytes may claim any number of rows."""
    monkeypatch.setattr(pieces, "_BLOCK", block)
    table = source([n_rows // 2, n_rows - n_rows // 2])
    index = np.random.default_rng(0).integers(0, n_rows, 100)
    cut = pieces.cut(table, Index(index))
    out = np.zeros(100, np.int64)
    for piece in cut.pieces:
        take = cut.take(piece)
        assert take is not None
        found = take.positions() + np.int64(piece.rows[0] + int(table.plan.segments.row_start[piece.segment]))
        out[take.places(0, take.count)] = found
    np.testing.assert_array_equal(out, index)


def test_few_rows_of_many_segments_make_few_pieces() -> None:
    table = source([3] * 10_000)
    for rows in (Range(5, 9000, 3), Index(np.array([9, 29_000, 4])), Mask(np.arange(30_000) == 7)):
        cut = pieces.cut(table, rows)
        assert len(cut.pieces) == rows.count


def test_rows_that_change_under_a_read_are_noticed() -> None:
    table = source([10, 10])
    index, mask = np.array([1, 5, 12]), np.arange(20) % 3 == 0
    ascending, masked = pieces.cut(table, Index(index)), pieces.cut(table, Mask(mask))
    index[:], mask[:] = 19, True
    mask[1] = False
    for cut in (ascending, masked):
        with pytest.raises(RuntimeError, match="changed"):
            cut.take(cut.pieces[0])


def test_an_index_in_no_order_holds_four_bytes_a_row() -> None:
    import tracemalloc

    n = 1_000_000
    table = source([n // 10] * 10)
    index = np.random.default_rng(0).permutation(n)
    tracemalloc.start()
    try:
        cut = pieces.cut(table, Index(index, checked=True))
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cut.pieces) == 10
    assert held < 4 * n + 100_000
    assert peak < 4 * n + 6_000_000  # a block of the index while it is sorted


def test_an_index_in_order_is_checked_and_then_copied() -> None:
    origin = source([10, 10])
    positions = np.array([1, 4, 8, 12, 15])
    cut = pieces.cut(origin, Index(positions))
    take = cut.take(cut.pieces[0])
    assert take is not None
    positions[1] = 19  # what is checked is what is used
    assert take.positions().tolist() == [0, 3, 7]
    with pytest.raises(RuntimeError, match="changed"):
        cut.take(cut.pieces[0])
