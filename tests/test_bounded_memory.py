"""Reads of more than there is memory for: what is held beside the result is bounded, however long the column is."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

import colstore_io as cs
from colstore_io import cold, config, gather

N = 2_000_000
STEP = 1 << 20
COLUMN_BYTES = 8 * N


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("long") / "t.cstore"
    with cs.create(path) as writer:
        for part in np.array_split(np.arange(N), 300):
            writer.write({"a": part, "b": part.astype("f4")})
    return path


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the most memory that NumPy and Python took during `call`, beyond what they had before."""
    call()  # what is made once and kept is not held by the read
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_long_range_of_an_unmapped_file_is_fetched_in_windows(path, monkeypatch):
    monkeypatch.setattr(gather, "FETCH_BYTES", STEP)
    out = np.empty(N, np.int64)
    with cs.open(path, mmap=False) as table:
        assert peak_bytes(lambda: table["a"].array(out=out)) < 4 * STEP < COLUMN_BYTES / 3
    np.testing.assert_array_equal(out, np.arange(N))


@pytest.mark.parametrize("name", ["sum", "mean", "min", "max"])
def test_a_reduction_of_many_records_holds_a_block(path, name):
    with cs.open(path) as table:
        assert peak_bytes(lambda: getattr(table["a"], name)()) < STEP


def test_a_mask_into_an_output_makes_no_array_of_rows(path):
    mask = np.arange(N) % 2 == 0
    out = np.empty(N // 2, np.int64)
    with cs.open(path) as table:
        assert peak_bytes(lambda: table[mask, "a"].array(out=out)) < STEP


@pytest.mark.parametrize("policy", ["willneed", "populate"])
def test_a_cold_range_is_asked_for_in_windows(path, monkeypatch, policy):
    """Never more than two pieces ahead of the copy, so that a file need not fit into memory."""
    monkeypatch.setattr(cold, "PIECE_BYTES", STEP)
    monkeypatch.setattr(cold, "_looks_resident", lambda *args: False)
    asked: list[int] = []
    monkeypatch.setattr(
        cold.paging, "willneed_runs", lambda start, length: asked.append(int(np.sum(length))), raising=True
    )
    monkeypatch.setattr(cold.paging, "populate", lambda start, length: asked.append(int(length)) or True)
    before = config.get_populate_policy()
    config.set_populate_policy(policy)
    try:
        with cs.open(path) as table:
            np.testing.assert_array_equal(table["a"].array(), np.arange(N))
    finally:
        config.set_populate_policy(before)
    assert sum(asked) >= COLUMN_BYTES
    assert max(asked) <= 3 * STEP
