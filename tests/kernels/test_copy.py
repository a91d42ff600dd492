"""Byte runs and record interleaving against their NumPy twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io import kernels_numpy
from colstore_io.kernels import copy as compiled


@pytest.mark.parametrize("family", [compiled, kernels_numpy])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "lengths", [[], [0], [5_000_000], [1, 0, 2, 0, 3], [100] * 5000 + [3_000_000] + [7] * 100]
)
def test_runs_arrive_in_place_and_nothing_else_is_touched(family, threads: int, lengths: list[int]) -> None:
    total = sum(lengths)
    source = np.random.default_rng(0).integers(1, 255, total + 8, dtype=np.uint8)
    target = np.zeros(total + 3 * len(lengths) + 8, np.uint8)  # three bytes between runs stay zero
    nbytes = np.array(lengths, np.int64)
    begins = np.concatenate([[0], np.cumsum(nbytes)[:-1]]).astype(np.int64)[: len(lengths)]
    places = begins + 3 * np.arange(len(lengths)) + 3
    family.copy_runs(
        (source.ctypes.data + begins).astype(np.uint64),
        (target.ctypes.data + places).astype(np.uint64),
        nbytes,
        threads=threads,
    )
    expected = np.zeros_like(target)
    for begin, place, length in zip(begins, places, lengths, strict=True):
        expected[place : place + length] = source[begin : begin + length]
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("family", [compiled, kernels_numpy])
def test_impossible_runs_are_refused(family) -> None:
    address = np.zeros(2, np.uint64)
    for nbytes in ([-1, 1], [2**62, 2**62]):
        with pytest.raises(ValueError):
            family.copy_runs(address, address, np.array(nbytes, np.int64))
    with pytest.raises(ValueError, match="length"):
        family.copy_runs(address, address, np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="threads"):
        family.copy_runs(address, address, np.zeros(2, np.int64), threads=0)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 33)), max_size=6),
    st.integers(0, 5000),
    st.sampled_from([1, 2, 3, 8]),
    st.integers(0, 7),
)
def test_records_equal_a_structured_array(sizes: list[int], n_rows: int, threads: int, shift: int) -> None:
    generator = np.random.default_rng(n_rows)
    columns = [generator.integers(0, 256, n_rows * size + shift, dtype=np.uint8)[shift:] for size in sizes]
    address = np.array([column.ctypes.data for column in columns], np.uint64)
    itemsize = np.array(sizes, np.int64)
    expected = np.concatenate(
        [
            np.empty((n_rows, 0), np.uint8),
            *(c.reshape(n_rows, s) for c, s in zip(columns, sizes, strict=True)),
        ],
        axis=1,
    ).ravel()
    for family in (compiled, kernels_numpy):
        out = np.zeros(n_rows * sum(sizes), np.uint8)
        family.interleave(address, itemsize, out, n_rows, threads=threads)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("family", [compiled, kernels_numpy])
def test_impossible_records_are_refused(family) -> None:
    address, out = np.zeros(1, np.uint64), np.zeros(8, np.uint8)
    for sizes, n_rows in [([0], 1), ([8], 2), ([8], -1), ([2**62], 4), ([8, 8], 1)]:
        with pytest.raises(ValueError):
            family.interleave(address, np.array(sizes, np.int64), out, n_rows)
