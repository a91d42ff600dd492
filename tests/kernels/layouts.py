"""Random segment tables over real memory, for the kernel tests."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from colstore_io import kernels_numpy
from colstore_io.kernels import segments as compiled


@dataclass
class Layout:
    """Segments in memory, and the tables of both kernel families over them."""

    row_start: NDArray[np.int64]
    row_stop: NDArray[np.int64]
    base: NDArray[np.int64]
    itemsize: NDArray[np.int64]
    n_rows: int
    uniform_rows: int
    columns: list[NDArray[np.void]]  # expected values of every row; zeros in gaps
    memory: list[NDArray[np.uint8]] = field(repr=False)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.row_start, self.row_stop, self.base, self.itemsize, self.n_rows, self.uniform_rows

    @property
    def table(self) -> compiled.SegmentTable:
        return compiled.SegmentTable(*self.arguments)

    @property
    def twin(self) -> kernels_numpy.SegmentTable:
        return kernels_numpy.SegmentTable(*self.arguments)

    @property
    def stored_rows(self) -> NDArray[np.int64]:
        """Rows that some segment holds, ascending."""
        ranges = [np.arange(a, b) for a, b in zip(self.row_start, self.row_stop, strict=True)]
        return np.concatenate([np.empty(0, np.int64), *ranges]).astype(np.int64)

    def outputs(self, length: int) -> list[NDArray[np.void]]:
        return [np.zeros(length, f"V{width}") for width in self.itemsize]


def build(
    lengths: list[int],
    itemsize: list[int],
    *,
    gaps: list[int] | None = None,
    tail_gap: int = 0,
    uniform_rows: int = 0,
    seed: int = 0,
    misalign: bool = True,
) -> Layout:
    """Lay out segments of `lengths` rows, `gaps[s]` absent rows before segment s, each at an odd address."""
    generator = np.random.default_rng(seed)
    starts, stops, row = [], [], 0
    for length, gap in itertools.zip_longest(lengths, gaps or [], fillvalue=0):
        starts.append(row + gap)
        row += gap + length
        stops.append(row)
    n_rows = row + tail_gap
    base = np.zeros((len(itemsize), len(lengths)), np.int64)
    columns, memory = [], []
    for c, width in enumerate(itemsize):
        column = np.zeros((n_rows, width), np.uint8)
        for s, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            shift = int(generator.integers(0, 8)) if misalign else 0
            block = np.empty((stop - start) * width + shift, np.uint8)
            block[shift:] = generator.integers(0, 256, (stop - start) * width, dtype=np.uint8)
            column[start:stop] = block[shift:].reshape(-1, width)
            memory.append(block)
            base[c, s] = block.ctypes.data + shift - start * width
        columns.append(column.reshape(-1).view(f"V{width}") if n_rows else np.empty(0, f"V{width}"))
    return Layout(
        np.array(starts, np.int64),
        np.array(stops, np.int64),
        base,
        np.array(itemsize, np.int64),
        n_rows,
        uniform_rows,
        columns,
        memory,
    )


@st.composite
def layouts(draw: st.DrawFn, *, gaps: bool = True, max_rows: int = 400, min_segments: int = 0) -> Layout:
    """Tables with zero-row segments, gaps, uniform grids, odd addresses, 1 to 3 columns of 1 to 33 bytes."""
    itemsize = draw(
        st.lists(st.one_of(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 33)), min_size=1, max_size=3)
    )
    seed = draw(st.integers(0, 2**32 - 1))
    n_segments = draw(st.integers(min_segments, 12))
    if n_segments and draw(st.booleans()):
        rows = draw(st.integers(1, max_rows))
        lengths = [rows] * (n_segments - 1) + [draw(st.integers(0, rows))]
        return build(lengths, itemsize, uniform_rows=rows, seed=seed)
    sizes = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, max_rows))
    lengths = draw(st.lists(sizes, min_size=n_segments, max_size=n_segments))
    if not gaps or draw(st.booleans()):
        return build(lengths, itemsize, seed=seed)
    holes = draw(st.lists(st.sampled_from([0, 0, 1, 7, 300]), min_size=n_segments, max_size=n_segments))
    return build(lengths, itemsize, gaps=holes, tail_gap=draw(st.sampled_from([0, 5])), seed=seed)
