"""Outputs use memory again that nobody sees any more, and no other memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import tracemalloc

import numpy as np
import pytest

import colstore_io as cs
from colstore_io import buffers, config
from colstore_io.kernels import outputs

MIB = 1 << 20

pytestmark = pytest.mark.skipif(not outputs.available(), reason="no allocator of outputs on this platform")


@pytest.fixture
def pool():
    """A pool of 64 MiB, empty before and after."""
    before = config.get_output_pool_bytes()
    config.set_output_pool_bytes(0)
    config.set_output_pool_bytes(64 * MIB)
    yield
    config.set_output_pool_bytes(0)
    config.set_output_pool_bytes(before)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def bytes_array(nbytes: int) -> np.ndarray:
    return buffers.empty(nbytes, np.dtype("u1"))


@pytest.mark.parametrize("dtype", ["f8", "?", "M8[us]", "U3", [("a", "i4"), ("b", "f8")]])
def test_array_is_like_one_of_numpy(pool, dtype):
    dtype = np.dtype(dtype)
    array = buffers.empty(3 * MIB // dtype.itemsize, dtype)
    assert type(array) is np.ndarray
    assert array.dtype == dtype
    assert array.flags.owndata
    assert array.flags.writeable
    assert array.flags.c_contiguous
    assert array.base is None
    assert address(array) % 64 == 0


def test_memory_is_used_again_when_the_last_view_is_gone(pool):
    array = bytes_array(8 * MIB)
    array[:] = 7
    where, view = address(array), array[5:10]
    held = memoryview(array)
    del array
    assert address(bytes_array(8 * MIB)) != where
    del view
    other = bytes_array(8 * MIB)
    assert address(other) != where
    del other
    held.release()
    del held
    assert address(bytes_array(8 * MIB)) == where


def test_memory_in_a_cycle_comes_back_with_the_collector(pool):
    array = bytes_array(8 * MIB)
    where = address(array)
    loop = [array]
    loop.append(loop)
    del array, loop
    gc.collect()
    assert address(bytes_array(8 * MIB)) == where


def test_much_larger_memory_is_not_spent_on_a_small_output(pool):
    where = address(bytes_array(16 * MIB))
    small = bytes_array(12 * MIB)
    assert address(small) != where
    assert address(bytes_array(15 * MIB)) == where


def test_bound_is_kept_and_the_longest_unused_goes_first(pool):
    arrays = [bytes_array(k * MIB) for k in (20, 21, 22, 23)]
    places = [address(array) for array in arrays]
    for _ in range(4):
        del arrays[0]  # 20 first
    assert outputs.state()["bytes"] <= 64 * MIB
    assert outputs.state()["bytes"] == (22 + 23) * MIB
    assert address(bytes_array(23 * MIB)) == places[3]
    del places
    config.set_output_pool_bytes(10 * MIB)
    assert outputs.state()["bytes"] == 0
    bytes_array(11 * MIB)
    assert outputs.state()["bytes"] == 0


def test_zero_turns_it_off(pool):
    config.set_output_pool_bytes(0)
    made = outputs.state()["made"]
    bytes_array(8 * MIB)
    assert outputs.state()["bytes"] == 0
    assert outputs.state()["made"] == made


@pytest.mark.parametrize("value", [-1, 1.5, True, "1"])
def test_bad_bounds_are_refused(value):
    before = config.get_output_pool_bytes()
    with pytest.raises(ValueError, match="output_pool_bytes"):
        config.set_output_pool_bytes(value)
    assert config.get_output_pool_bytes() == before


def test_small_arrays_come_from_numpy(pool):
    made = outputs.state()["made"]
    buffers.empty(100, np.dtype("f8"))
    assert outputs.state()["made"] == made


def test_only_our_own_arrays_use_the_handler(pool):
    before = outputs.state()
    np.empty(8 * MIB, "u1")
    np.zeros(8 * MIB, "u1")
    array = bytes_array(8 * MIB)
    array.copy()
    assert outputs.state()["made"] == before["made"] + 1
    assert outputs.state()["bytes"] == before["bytes"]


@pytest.mark.parametrize("length", [100, 2 * MIB, 20 * MIB, 0])
def test_array_can_be_resized(pool, length):
    array = bytes_array(8 * MIB)
    array[:] = 3
    array.resize(length, refcheck=False)
    assert array.shape == (length,)
    assert (array[: 8 * MIB] == 3).all()
    del array
    assert outputs.state()["bytes"] <= 64 * MIB


def test_tracemalloc_sees_outputs(pool):
    tracemalloc.start()
    try:
        array = bytes_array(8 * MIB)
        assert tracemalloc.get_traced_memory()[0] >= array.nbytes
        del array
        assert tracemalloc.get_traced_memory()[0] < MIB
    finally:
        tracemalloc.stop()


def test_threads_never_share_memory(pool):
    wrong = []

    def work(mark: int) -> None:
        rng = np.random.default_rng(mark)
        held: list[np.ndarray] = []
        for turn in range(60):
            array = bytes_array(int(rng.integers(1, 4)) * MIB)
            array[::4096] = mark
            held.append(array)
            if len(held) > 3:
                held.pop(int(rng.integers(0, len(held))))
            wrong.extend((mark, turn) for array in held if not (array[::4096] == mark).all())

    team = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 5)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    assert not wrong


def _in_child(queue) -> None:
    kept = outputs.state()["bytes"]
    array = bytes_array(8 * MIB)
    array[:] = 5
    queue.put((kept, int(array[::4096].min())))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_starts_with_nothing_kept(pool):
    live = bytes_array(8 * MIB)
    live[:] = 9
    bytes_array(4 * MIB)
    assert outputs.state()["bytes"] == 4 * MIB
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get() == (0, 5)
    child.join()
    assert child.exitcode == 0
    assert outputs.state()["bytes"] == 4 * MIB
    assert (live == 9).all()


def test_results_of_reads_are_not_changed_by_later_reads(pool, tmp_path):
    data = {"x": np.arange(400_000), "y": np.arange(400_000) * 0.5}
    cs.store(data, tmp_path / "t.cstore").close()
    mask = data["x"] % 3 == 0
    with cs.open(tmp_path / "t.cstore") as table:
        first = table["x"].array()
        where = address(first)
        others = [table["x"].array(), table[mask, "y"].array(), table["y"].array(), table[::-1, "x"].array()]
        np.testing.assert_array_equal(first, data["x"])
        del first
        again = table["y"].array()
        assert address(again) == where
        np.testing.assert_array_equal(again, data["y"])
        for got, want in zip(others, [data["x"], data["y"][mask], data["y"], data["x"][::-1]], strict=True):
            np.testing.assert_array_equal(got, want)
        got = table.query("x >= 1000 and y < 150000")["x"].array()
        np.testing.assert_array_equal(got, np.arange(1000, 300_000))
