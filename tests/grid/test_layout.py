"""Chunk arithmetic: axes, spans, default chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colstore_io.grid.layout import Axis, Box, chunk_shape_for

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@given(lengths)
def test_axis_knows_its_chunks(own):
    axis = Axis.of_lengths(own)
    edges = np.concatenate(([0], np.cumsum(own)))
    assert axis.length == sum(own)
    assert axis.count == len(own)
    assert axis.lengths() == tuple(own)
    assert axis.edges().tolist() == edges.tolist()
    assert [axis.chunk_of(i) for i in range(axis.length)] == np.repeat(np.arange(len(own)), own).tolist()
    assert axis.chunk_of(np.arange(axis.length)).tolist() == np.repeat(np.arange(len(own)), own).tolist()
    for index in range(axis.length):
        number, first, length = axis.chunk_at(index)
        assert (number, first, length) == (axis.chunk_of(index), edges[number], own[number])
    with pytest.raises(IndexError):
        Axis(((1, 1), (2, 2))).chunk_at(5)
    uniform = len(set(own[:-1])) <= 1 and own[-1] <= own[0]
    assert axis.uniform == (own[0] if uniform else 0)


@given(lengths, st.data())
def test_part_and_span_agree(own, data):
    axis = Axis.of_lengths(own)
    first = data.draw(st.integers(0, len(own)))
    stop = data.draw(st.integers(first, len(own)))
    assert axis.part(first, stop).lengths() == tuple(own[first:stop])
    edges = axis.edges().tolist()
    if first < stop:
        assert axis.span(edges[first], edges[stop]) == (first, stop)
    assert axis.edges(first, stop).tolist() == edges[first : stop + 1]


@given(lengths, lengths)
def test_followed_by_joins(a, b):
    assert Axis.of_lengths(a).followed_by(Axis.of_lengths(b)).lengths() == (*a, *b)


def test_span_refuses_to_cut():
    axis = Axis.regular(10, 4)
    assert axis.span(0, 10) == (0, 3)
    assert axis.span(8, 10) == (2, 3)
    assert axis.span(1, 4) is None
    assert axis.span(0, 5) is None


def test_empty_axis_has_no_chunks():
    axis = Axis.regular(0, 5)
    assert (axis.length, axis.count, axis.uniform, axis.lengths()) == (0, 0, 0, ())
    assert axis.edges().tolist() == [0]


@pytest.mark.parametrize(
    ("shape", "itemsize", "expected"),
    [
        ((), 8, ()),
        ((10, 10), 8, (10, 10)),
        ((1000, 1000, 1000), 8, (2, 1000, 1000)),
        ((10, 1 << 22), 8, (1, 1 << 21)),
        ((0, 5), 8, (1, 5)),
        ((1 << 30,), 1, (1 << 24,)),
    ],
)
def test_default_chunks_are_slabs(shape, itemsize, expected):
    assert chunk_shape_for(shape, itemsize) == expected


def test_boxes_meet_when_they_share_a_chunk():
    assert Box((0, 0), (2, 2)).meets(Box((1, 1), (3, 3)))
    assert not Box((0, 0), (2, 2)).meets(Box((2, 0), (3, 2)))
    assert Box((), ()).meets(Box((), ()))
