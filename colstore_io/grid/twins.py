"""The kernels of `colstore_io.kernels.grid` in NumPy: same signatures, same results."""

from __future__ import annotations

import ctypes
import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["copy_slab", "take_points"]

_MAX_DIMS = 64


def _memory(address: int, nbytes: int) -> NDArray[np.uint8]:
    memory: Any = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.frombuffer(memory, np.uint8)


def _check(
    bases: NDArray[np.uint64], counts: NDArray[np.int64], out: NDArray[np.uint8], nbytes: int, threads: int
) -> None:
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if len(counts) > _MAX_DIMS:
        raise ValueError(f"at most {_MAX_DIMS} dimensions, got {len(counts)}")
    n_chunks = math.prod(counts.tolist())
    if len(bases) != n_chunks or (len(counts) and counts.min() < 0):
        raise ValueError(f"the box has {n_chunks} chunks, got {len(bases)} addresses")
    if not bases.all():
        raise ValueError(f"chunk {int(np.argmin(bases != 0))} of the box has no address")
    if len(out) != nbytes:
        raise ValueError(f"out must have {nbytes} bytes, got {len(out)}")


def take_points(
    bases: NDArray[np.uint64],
    counts: NDArray[np.int64],
    edges: NDArray[np.int64],
    uniform: NDArray[np.int64],
    index: NDArray[np.uint64],
    index_step: NDArray[np.int64],
    n_points: int,
    itemsize: int,
    out: NDArray[np.uint8],
    *,
    threads: int = 1,
) -> int:
    """Copy scattered values out of a box of chunks; see the kernel of this name."""
    if not len(counts) == len(uniform) == len(index) == len(index_step):
        raise ValueError("counts, uniform, index and index_step must have one entry for each dimension")
    if itemsize < 1 or n_points < 0:
        raise ValueError(f"out must have {n_points} times {itemsize} bytes")
    _check(bases, counts, out, n_points * itemsize, threads)
    if len(edges) != int(counts.sum()) + len(counts) or (len(counts) and counts.min() < 1):
        raise ValueError("edges must have counts + 1 entries for each dimension")
    parts = np.split(edges, np.cumsum(counts + 1)[:-1]) if len(counts) else []
    for own, length in zip(parts, uniform.tolist(), strict=True):
        if own[0] < 0 or (np.diff(own) <= 0).any():
            raise ValueError("edges must not be negative, and increase")
        if length > 0 and len(own) > 2:
            steps = np.diff(own)
            if (steps[:-1] != length).any() or steps[-1] > length:
                raise ValueError("a uniform dimension has chunks of one length, but for the last")
    if n_points == 0:
        return -1
    chunk = np.zeros(n_points, np.int64)
    offset = np.zeros(n_points, np.int64)
    for own, address, step in zip(parts, index.tolist(), index_step.tolist(), strict=True):
        if step:
            raw: Any = (ctypes.c_uint8 * ((n_points - 1) * step + 8)).from_address(address)
            i = np.ndarray((n_points,), np.int64, raw, strides=(step,))
        else:
            i = np.full(n_points, _memory(address, 8).view(np.int64)[0])
        bad = (i < own[0]) | (i >= own[-1])
        if bad.any():
            return int(np.argmax(bad))
        c = np.searchsorted(own, i, side="right") - 1
        offset = offset * (own[c + 1] - own[c]) + (i - own[c])
        chunk = chunk * (len(own) - 1) + c
    values = out.reshape(n_points, itemsize)
    for number in np.unique(chunk):
        where = np.flatnonzero(chunk == number)
        own_offset = offset[where]
        memory = _memory(int(bases[number]) + 0, (int(own_offset.max()) + 1) * itemsize)
        values[where] = memory.reshape(-1, itemsize)[own_offset]
    return -1


def copy_slab(
    bases: NDArray[np.uint64],
    counts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    runs: NDArray[np.int64],
    run_counts: NDArray[np.int64],
    out_shape: NDArray[np.int64],
    itemsize: int,
    out: NDArray[np.uint8],
    *,
    threads: int = 1,
) -> None:
    """Copy the outer product of one selection per dimension out of a box of chunks; see the kernel of this name."""
    if not len(counts) == len(run_counts) == len(out_shape):
        raise ValueError("counts, run_counts and out_shape must have one entry for each dimension")
    if runs.ndim != 2 or runs.shape[1] != 5:
        raise ValueError("runs must have five columns")
    shape = out_shape.tolist()
    if itemsize < 1 or any(n < 0 for n in shape):
        raise ValueError(f"impossible lengths: {shape}")
    _check(bases, counts, out, math.prod(shape) * itemsize, threads)
    if len(lengths) != int(counts.sum()) or len(runs) != int(run_counts.sum()) or (run_counts < 0).any():
        raise ValueError("lengths and runs must have the entries that counts and run_counts promise")
    own_lengths = np.split(lengths, np.cumsum(counts)[:-1]) if len(counts) else []
    own_runs = np.split(runs, np.cumsum(run_counts)[:-1]) if len(counts) else []
    for n, chunks, some in zip(shape, own_lengths, own_runs, strict=True):
        for out_start, count, chunk, start, step in some.tolist():
            if not 0 <= chunk < len(chunks):
                raise ValueError("a run lies in no chunk of the box")
            if out_start < 0 or count < 1 or out_start + count > n:
                raise ValueError("a run leaves the output")
            if start < 0 or step < 1 or start + (count - 1) * step >= chunks[chunk]:
                raise ValueError("a run leaves its chunk")
    if not len(out):
        return
    target = out.reshape(*shape, itemsize)
    table = bases.reshape(counts.tolist())
    for combination in itertools.product(*(some.tolist() for some in own_runs)):
        where = tuple(run[2] for run in combination)
        box = [int(chunks[c]) for chunks, c in zip(own_lengths, where, strict=True)]
        # A base may lie in front of what was fetched of its chunk: nothing outside the selection is touched.
        strides = [itemsize * math.prod(box[d + 1 :]) for d in range(len(box))]
        at = sum(run[3] * s for run, s in zip(combination, strides, strict=True))
        steps = [run[4] * s for run, s in zip(combination, strides, strict=True)]
        last = sum((run[1] - 1) * s for run, s in zip(combination, steps, strict=True))
        address = (int(table[where]) + at) % 2**64
        memory: Any = (ctypes.c_uint8 * (last + itemsize)).from_address(address)
        block = np.ndarray([*(run[1] for run in combination), itemsize], np.uint8, memory, 0, (*steps, 1))
        place = tuple(slice(run[0], run[0] + run[1]) for run in combination)
        target[place] = block
