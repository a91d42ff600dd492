"""The grid kernels and their twins do the same, and refuse what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.grid import twins
from colstore_io.kernels import grid as kernels

BOTH = pytest.mark.parametrize("module", [kernels, twins], ids=["kernel", "twin"])
I64 = np.int64


class Stored:
    """An array cut into chunks, with the addresses that the kernels take."""

    def __init__(self, values, lengths):
        self.values = values
        self.lengths = lengths
        self.edges = [np.concatenate(([0], np.cumsum(own))).astype(I64) for own in lengths]
        self.counts = np.array([len(own) for own in lengths], I64)
        self.chunks = []
        for where in np.ndindex(*self.counts.tolist()):
            box = tuple(slice(e[i], e[i + 1]) for e, i in zip(self.edges, where, strict=True))
            self.chunks.append(np.ascontiguousarray(values[(*box, ...)]))
        self.bases = np.array([chunk.ctypes.data for chunk in self.chunks], np.uint64)

    def uniform(self):
        return np.array(
            [own[0] if len(set(own[:-1])) <= 1 and own[-1] <= own[0] else 0 for own in self.lengths], I64
        )

    def take(self, module, indices, threads=1, uniform=None):
        n = max((len(index) for index in indices), default=1)
        out = np.zeros(n, self.values.dtype)
        edges = np.concatenate(self.edges) if self.edges else np.zeros(0, I64)
        addresses = np.array([index.ctypes.data for index in indices], np.uint64)
        steps = np.array([8 if len(index) > 1 or n == 1 else 0 for index in indices], I64)
        bad = module.take_points(
            self.bases, self.counts, edges, self.uniform() if uniform is None else uniform, addresses, steps, n,
            self.values.itemsize, out.view(np.uint8), threads=threads,
        )  # fmt: skip
        return bad, out


@st.composite
def stored(draw):
    lengths = draw(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), max_size=4))
    shape = [sum(own) for own in lengths]
    dtype = draw(st.sampled_from(["u1", "u2", "f4", "i8", "c16", "S3", "S20"]))
    values = np.arange(int(np.prod(shape, dtype=int))).astype(dtype).reshape(shape)
    return Stored(values, lengths)


@BOTH
@given(grid=stored(), data=st.data())
@settings(deadline=None, max_examples=60)
def test_points_are_those_of_numpy(module, grid, data):
    n = data.draw(st.integers(1, 40))
    indices = [
        np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=n, max_size=n)), I64)
        for size in grid.values.shape
    ]
    if indices and n > 1 and data.draw(st.booleans()):
        indices[0] = indices[0][:1]
    bad, out = grid.take(module, indices, threads=data.draw(st.integers(1, 3)))
    assert bad == -1
    expected = grid.values[tuple(indices)] if indices else grid.values.reshape(-1)
    np.testing.assert_array_equal(out, np.broadcast_to(expected, out.shape))


@BOTH
@pytest.mark.parametrize("threads", [1, 4])
def test_many_points_by_several_threads(module, threads):
    grid = Stored(np.arange(60_000).reshape(40, 50, 30), [[16, 16, 8], [7, 43], [30]])
    rng = np.random.default_rng(0)
    indices = [rng.integers(0, n, 100_000) for n in grid.values.shape]
    bad, out = grid.take(module, indices, threads=threads)
    assert bad == -1
    np.testing.assert_array_equal(out, grid.values[tuple(indices)])
    indices[1][77_777] = 50
    assert grid.take(module, indices, threads=threads)[0] == 77_777


@BOTH
@pytest.mark.parametrize("index", [-1, 12, 2**62, -(2**63)])
def test_index_outside_is_reported_and_not_read(module, index):
    for lengths in ([[12]], [[5, 5, 2]], [[3, 9]]):
        grid = Stored(np.arange(12), lengths)
        assert grid.take(module, [np.array([0, 3, index, 4], I64)])[0] == 2


def slab(module, grid, runs, shape, threads=1):
    out = np.zeros(shape, grid.values.dtype)
    lengths = (
        np.concatenate([np.array(own, I64) for own in grid.lengths]) if grid.lengths else np.zeros(0, I64)
    )
    table = (
        np.concatenate([np.array(own, I64).reshape(-1, 5) for own in runs]) if runs else np.zeros((0, 5), I64)
    )
    module.copy_slab(
        grid.bases, grid.counts, lengths, table, np.array([len(own) for own in runs], I64), np.array(shape, I64),
        grid.values.itemsize, out.reshape(-1).view(np.uint8), threads=threads,
    )  # fmt: skip
    return out


@BOTH
@given(grid=stored(), data=st.data())
@settings(deadline=None, max_examples=60)
def test_boxes_are_those_of_numpy(module, grid, data):
    runs, picked = [], []
    for own, edges in zip(grid.lengths, grid.edges, strict=True):
        some, indices = [], []
        for _ in range(data.draw(st.integers(1, 3))):
            chunk = data.draw(st.integers(0, len(own) - 1))
            start = data.draw(st.integers(0, own[chunk] - 1))
            step = data.draw(st.integers(1, 3))
            count = data.draw(st.integers(1, (own[chunk] - 1 - start) // step + 1))
            some.append([len(indices), count, chunk, start, step])
            indices += [int(edges[chunk]) + start + k * step for k in range(count)]
        runs.append(some)
        picked.append(np.array(indices, I64))
    shape = [len(indices) for indices in picked]
    found = slab(module, grid, runs, shape, threads=data.draw(st.integers(1, 3)))
    expected = grid.values[np.ix_(*picked)] if picked else grid.values
    np.testing.assert_array_equal(found, expected)


@BOTH
@pytest.mark.parametrize(
    "run",
    [[0, 3, 2, 0, 1], [0, 3, -1, 0, 1], [0, 5, 0, 0, 1], [-1, 3, 0, 0, 1], [2, 3, 0, 0, 1], [0, 3, 0, 2, 1],
     [0, 3, 0, -1, 1], [0, 3, 0, 0, 2], [0, 3, 0, 0, 0], [0, 3, 0, 0, 2**62], [2**62, 3, 0, 0, 1], [0, 0, 0, 0, 1]],
)  # fmt: skip
def test_run_that_leaves_its_chunk_or_the_output_is_refused(module, run):
    grid = Stored(np.arange(8), [[4, 4]])
    with pytest.raises(ValueError, match="run"):
        slab(module, grid, [[run]], [4])


@BOTH
def test_lengths_that_do_not_fit_are_refused(module):
    grid = Stored(np.arange(8), [[4, 4]])
    index = np.array([0, 1], I64)
    good = {
        "bases": grid.bases, "counts": grid.counts, "edges": grid.edges[0], "uniform": np.array([4], I64),
        "index": np.array([index.ctypes.data], np.uint64), "index_step": np.array([8], I64), "n_points": 2,
        "itemsize": 8, "out": np.zeros(16, np.uint8),
    }  # fmt: skip
    assert module.take_points(**good) == -1
    for name, value in {
        "bases": grid.bases[:1],
        "counts": np.array([3], I64),
        "edges": np.array([0, 4], I64),
        "uniform": np.array([3], I64),
        "index": np.zeros(2, np.uint64),
        "n_points": 3,
        "itemsize": 0,
        "out": np.zeros(15, np.uint8),
    }.items():
        with pytest.raises(ValueError):
            module.take_points(**{**good, name: value})
    for bases in (np.array([0, 1], np.uint64),):
        with pytest.raises(ValueError, match="no address"):
            module.take_points(**{**good, "bases": bases})
    for edges in ([0, 4, 4], [4, 0, 8], [-1, 3, 7]):
        with pytest.raises(ValueError, match="edges"):
            module.take_points(**{**good, "edges": np.array(edges, I64)})
    with pytest.raises(ValueError, match="threads"):
        module.take_points(**good, threads=0)
