"""Ranges over columns: every instruction set selects the rows that NumPy selects, and counts them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.layouts import build

from colstore_io import kernels_numpy
from colstore_io.kernels import compare, segments
from colstore_io.kernels_numpy import MASK_CHUNK_ROWS

CODES = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
ROUTES = [None, *segments.instruction_sets()]


def special_values(code: str) -> np.ndarray:
    """Return values of the dtype at which comparisons go wrong, repeats of small ones among them."""
    if code == "b1":
        return np.array([0, 1, 2, 255], "u1").view("b1")
    if code[0] == "f":
        info = np.finfo(code)
        tiny = info.smallest_subnormal
        found = [
            0.0,
            -0.0,
            1,
            1,
            -1,
            2,
            np.nan,
            -np.nan,
            np.inf,
            -np.inf,
            tiny,
            -tiny,
            info.max,
            info.min,
            info.tiny,
        ]
        return np.array(found, code)
    limits = np.iinfo(code)
    found = [0, 1, 1, 2, 3, limits.max // 2, limits.max - 1, limits.max, limits.min, limits.min + 1]
    return np.array(found, code)


@st.composite
def range_tests(draw: st.DrawFn, code: str) -> tuple[str, Any, bool, Any, bool]:
    values = special_values(code)
    bounds = st.one_of(
        st.none(),
        st.sampled_from(range(len(values))).map(lambda k: (values[k] != 0) if code == "b1" else values[k]),
    )
    return code, draw(bounds), draw(st.booleans()), draw(bounds), draw(st.booleans())


def fill(layout: Any, codes: list[str], generator: np.random.Generator) -> None:
    """Overwrite the memory of a layout with special values of each column's dtype."""
    blocks = iter(layout.memory)
    for c, code in enumerate(codes):
        width = int(layout.itemsize[c])
        for s in range(len(layout.row_start)):
            block = next(blocks)
            count = int(layout.row_stop[s] - layout.row_start[s])
            values = generator.choice(special_values(code).view(f"V{width}"), count)
            block[block.size - count * width :] = values.view(np.uint8)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_every_instruction_set_selects_and_counts_the_rows_of_the_twin(data: st.DataObject) -> None:
    codes = data.draw(st.lists(st.sampled_from(CODES), min_size=1, max_size=3))
    lengths = data.draw(st.lists(st.sampled_from([0, 1, 7, 63, 64, 65, 200, 4096, 5000, 17000]), max_size=4))
    gaps = data.draw(st.lists(st.sampled_from([0, 0, 3, 100]), min_size=len(lengths), max_size=len(lengths)))
    layout = build(
        lengths, [int(code[1:]) for code in codes], gaps=gaps, tail_gap=data.draw(st.sampled_from([0, 9]))
    )
    fill(layout, codes, np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))))
    tests = [data.draw(range_tests(code)) for code in codes]
    wanted = None
    if data.draw(st.booleans()):
        wanted = np.array(
            data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths))), bool
        )
    expected = np.ones(layout.n_rows, bool)
    expected_offsets = kernels_numpy.mask_of_ranges(layout.twin, tests, expected, segments=wanted)
    np.testing.assert_array_equal(expected_offsets, kernels_numpy.mask_offsets(expected))
    for route in ROUTES:
        for threads in (1, 3):
            mask = np.full(layout.n_rows, 7, np.uint8).view(bool)
            offsets = compare.mask_of_ranges(
                layout.table, tests, mask, segments=wanted, threads=threads, route=route
            )
            assert mask.tobytes() == expected.tobytes()
            np.testing.assert_array_equal(offsets, expected_offsets)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("route", ROUTES)
def test_one_range_is_two_comparisons(code: str, route: str | None) -> None:
    values = np.tile(special_values(code), 31)  # word borders fall everywhere
    layout = build([len(values)], [values.itemsize])
    layout.memory[0][layout.memory[0].size - values.nbytes :] = values.view(np.uint8)
    plain = values.view(np.uint8) != 0 if code == "b1" else values
    for lo in [None, *special_values(code)]:
        for hi in [None, *special_values(code)[::-1]]:
            for lo_inclusive, hi_inclusive in [(False, False), (False, True), (True, False), (True, True)]:
                ends = [b if b is None or code != "b1" else np.bool_(b.view(np.uint8) != 0) for b in (lo, hi)]
                expected = plain == plain  # without NaN
                if ends[0] is not None:
                    expected &= plain >= ends[0] if lo_inclusive else plain > ends[0]
                if ends[1] is not None:
                    expected &= plain <= ends[1] if hi_inclusive else plain < ends[1]
                mask = np.empty(len(values), bool)
                test = (code, ends[0], lo_inclusive, ends[1], hi_inclusive)
                compare.mask_of_ranges(layout.table, [test], mask, route=route)
                np.testing.assert_array_equal(mask, expected, err_msg=repr(test))


@pytest.mark.parametrize("family", [compare, kernels_numpy])
def test_what_does_not_fit_is_refused_before_anything_is_written(family: Any) -> None:
    layout = build([10, 5], [8, 1])
    table = layout.twin if family is kernels_numpy else layout.table
    good = [("f8", 0.0, True, None, False), ("b1", None, False, None, False)]
    mask = np.full(15, 7, np.uint8)
    cases: list[tuple[list[Any], Any, dict[str, Any]]] = [
        (good[:1], mask, {}),
        ([good[0], ("i2", 0, True, 1, True)], mask, {}),
        ([("S8", 0, True, 1, True), good[1]], mask, {}),
        (good, mask[:14], {}),
        (good, mask, {"threads": 0}),
        (good, mask, {"route": "best"}),
        (good, mask, {"segments": np.ones(3, bool)}),
    ]
    for tests, target, options in cases:
        with pytest.raises(ValueError, match=r"."):
            family.mask_of_ranges(table, tests, target, **options)
    assert (mask == 7).all()


@pytest.mark.parametrize("family", [compare, kernels_numpy])
def test_table_without_rows_or_segments(family: Any) -> None:
    test = [("i8", 0, True, None, False)]
    for layout in (build([], [8]), build([0, 0], [8]), build([], [8], tail_gap=MASK_CHUNK_ROWS + 3)):
        table = layout.twin if family is kernels_numpy else layout.table
        mask = np.ones(layout.n_rows, bool)
        assert family.mask_of_ranges(table, test, mask)[-1] == 0
        assert not mask.any()


def test_table_of_another_kind_is_no_segment_table() -> None:
    with pytest.raises(AttributeError):
        compare.mask_of_ranges(build([1], [8]).twin, [("i8", None, False, None, False)], np.empty(1, bool))
