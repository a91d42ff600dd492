"""Columns put together of pieces that come in any order: what concatenation, and taking, would give."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io import kernels_numpy, results, scattering
from colstore_io.errors import FormatError
from colstore_io.fields import Field
from colstore_io.formats import DecodedColumn
from colstore_io.kernels.copy import copy_runs
from colstore_io.pieces import Piece
from colstore_io.results import ArrowResult, CodesResult, FixedResult, MixedPartsError, TextResult
from colstore_io.scattering import Room, ScatteredText
from colstore_io.taking import Take

FIELD = Field("t", np.dtype(object), logical="string", optional=True)
KINDS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]

texts = st.lists(st.none() | st.text(max_size=5), max_size=20)
parts_of_text = st.lists(texts.filter(len), min_size=1, max_size=6)


def cut_of(lengths: list[int], *, in_order: bool = True) -> Any:
    starts = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    pieces = [
        Piece(number, number, (0, n), slice(starts[number], starts[number + 1]))
        for number, n in enumerate(lengths)
    ]
    return SimpleNamespace(pieces=pieces, in_order=in_order, count=starts[-1])


def array_of(values: list[Any], kind: pa.DataType, front: int) -> pa.Array:
    """Return an array that begins somewhere inside its buffers."""
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    whole = [v if text or v is None else v.encode() for v in ["x" * 3] * front + values + ["end"]]
    return pa.array(whole, kind)[front : front + len(values)]


def bring(result: Any, cut: Any, arrays: list[pa.Array], takes: list[Any], order: list[int]) -> Any:
    for number in order:
        result.put(cut.pieces[number], takes[number], DecodedColumn(array=arrays[number]))
    return result


def expected(arrays: list[pa.Array]) -> list[Any]:
    kinds = {str(a.type).removeprefix("large_") for a in arrays}
    values = [v for a in arrays for v in a.to_pylist()]
    return [v.encode() if isinstance(v, str) and "binary" in kinds else v for v in values]


@given(parts_of_text, st.lists(st.sampled_from(KINDS), min_size=6, max_size=6), st.data())
@settings(deadline=None)
def test_texts_in_order_become_one_array(parts: list[list[Any]], kinds: list[pa.DataType], data: Any) -> None:
    arrays = [array_of(v, kind, k) for k, (v, kind) in enumerate(zip(parts, kinds, strict=False))]
    cut = cut_of([len(v) for v in parts])
    order = data.draw(st.permutations(range(len(parts))))
    result = bring(TextResult(cut, FIELD), cut, arrays, [None] * len(parts), order)
    assert result.settled() == len(parts)
    found = result.finish()
    found.validate(full=True)
    assert found.to_pylist() == expected(arrays)


@given(
    parts_of_text,
    st.lists(st.sampled_from(KINDS), min_size=6, max_size=6),
    st.integers(0, 2000),
    st.booleans(),
    st.data(),
)
@settings(deadline=None)
def test_texts_in_no_order_go_to_their_places(
    parts: list[list[Any]], kinds: list[pa.DataType], kept: int, twin: bool, data: Any
) -> None:
    arrays = [array_of(v, kind, k) for k, (v, kind) in enumerate(zip(parts, kinds, strict=False))]
    cut = cut_of([len(v) for v in parts], in_order=False)
    places = np.array(data.draw(st.permutations(range(cut.count))), np.int32)
    takes = [Take(0, rows=np.arange(p.count), places=places[p.place]) for p in cut.pieces]
    order = data.draw(st.permutations(range(len(parts))))
    kernel = kernels_numpy.copy_runs if twin else copy_runs
    result = bring(ScatteredText(cut, FIELD, Room(kept), kernel), cut, arrays, takes, order)
    calls, again = result.begin()
    assert len(calls) + len(again) == len(parts)
    for call in calls:
        call()
    bring(result, cut, arrays, takes, [piece.number for piece in again])
    found = result.finish()
    found.validate(full=True)
    want = np.empty(cut.count, object)
    want[places] = np.array([*expected(arrays), None], object)[:-1]
    assert found.to_pylist() == want.tolist()


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_more_than_32_bits_reach_over_gets_wide_offsets(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    monkeypatch.setattr(results, "INT32_MAX", 100)
    monkeypatch.setattr(scattering, "INT32_MAX", 100)
    arrays = [pa.array(["a" * 60, None]), pa.array(["b" * 60]), pa.array(["c" * 120], pa.large_string())]
    cut = cut_of([2, 1, 1])
    found = bring(TextResult(cut, FIELD), cut, arrays, [None] * 3, [2, 0, 1]).finish()
    assert found.type == pa.large_string()
    assert found.to_pylist() == ["a" * 60, None, "b" * 60, "c" * 120]
    cut.in_order = False
    places = np.array([3, 1, 0, 2])
    takes = [Take(0, rows=np.arange(p.count), places=places[p.place]) for p in cut.pieces]
    result = ScatteredText(cut, FIELD, Room(kept), copy_runs)
    bring(result, cut, arrays, takes, [1, 2, 0])
    calls, again = result.begin()
    for call in calls:
        call()
    bring(result, cut, arrays, takes, [piece.number for piece in again])
    found = result.finish()
    assert found.type == pa.large_string()
    assert found.to_pylist() == ["b" * 60, None, "c" * 120, "a" * 60]


def test_text_that_changes_between_two_passes_is_refused() -> None:
    cut = cut_of([2], in_order=False)
    take = Take(0, rows=np.arange(2), places=np.array([1, 0]))
    result = ScatteredText(cut, FIELD, Room(0), copy_runs)
    result.put(cut.pieces[0], take, DecodedColumn(array=pa.array(["ab", "c"])))
    result.begin()
    with pytest.raises(FormatError, match="changed"):
        result.put(cut.pieces[0], take, DecodedColumn(array=pa.array(["a", "bc"])))


@given(parts_of_text, st.booleans(), st.data())
@settings(deadline=None)
def test_dictionaries_become_one(parts: list[list[Any]], in_order: bool, data: Any) -> None:
    arrays = [pa.array(v, pa.string()).dictionary_encode() for v in parts]
    plain = data.draw(st.sets(st.integers(0, len(parts) - 1), max_size=1)) if in_order else set()
    arrays = [a.dictionary_decode() if k in plain else a for k, a in enumerate(arrays)]
    cut = cut_of([len(v) for v in parts], in_order=in_order)
    places = np.arange(cut.count) if in_order else np.array(data.draw(st.permutations(range(cut.count))))
    takes = [Take(0, rows=np.arange(p.count), places=places[p.place]) for p in cut.pieces]
    if in_order:
        takes = [None] * len(parts)  # type: ignore[list-item]
    order = data.draw(st.permutations(range(len(parts))))
    found = bring(CodesResult(cut, FIELD), cut, arrays, takes, order).finish()
    found.validate(full=True)
    want = np.empty(cut.count, object)
    want[places] = np.array([*(v for part in parts for v in part), None], object)[:-1]
    assert found.to_pylist() == want.tolist()
    if not plain:
        entries = found.dictionary.to_pylist()
        assert len(set(entries)) == len(entries)


def test_dictionaries_in_no_order_with_plain_text_among_them_are_to_be_read_as_text() -> None:
    cut = cut_of([1, 1], in_order=False)
    takes = [Take(0, rows=np.arange(1), places=np.array([k])) for k in (1, 0)]
    result = CodesResult(cut, FIELD)
    result.put(cut.pieces[0], takes[0], DecodedColumn(array=pa.array(["a"]).dictionary_encode()))
    with pytest.raises(MixedPartsError):
        result.put(cut.pieces[1], takes[1], DecodedColumn(array=pa.array(["a"])))


def test_lists_are_put_in_their_order() -> None:
    cut = cut_of([2, 1], in_order=False)
    places = np.array([2, 0, 1])
    takes = [Take(0, rows=np.arange(p.count), places=places[p.place]) for p in cut.pieces]
    arrays = [pa.array([[1, 2], None]), pa.array([[3]])]
    assert bring(ArrowResult(cut, FIELD), cut, arrays, takes, [1, 0]).finish().to_pylist() == [
        None,
        [3],
        [1, 2],
    ]


def test_nulls_of_fixed_width_are_placed_like_their_values() -> None:
    cut = cut_of([2, 2], in_order=False)
    places = np.array([3, 0, 2, 1])
    values = np.arange(4)
    result = FixedResult(cut, values, True)
    take = Take(0, rows=np.arange(2), places=places[2:])
    result.put(cut.pieces[1], take, DecodedColumn(values, np.array([False, True])))
    result.put(cut.pieces[0], take, DecodedColumn(values, None))
    assert result.finish()[1].tolist() == [True, True, False, True]
