"""What reads and writes hold beside their results: a block a thread, a row group and its encoded form."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import colstore_io as cs
from colstore_io import threads
from colstore_io.formats.columns.tags import BLOCK_BYTES

N = 1_000_000
SMALL = 200_000  # bytes of everything that does not grow with the data: tables of blocks, a decompressor, objects
VALUES = {
    "steps": np.cumsum(np.random.default_rng(0).integers(0, 50, N)),  # Delta
    "ramp": np.arange(N) * 1.0001,  # Plain, compressed
    "noise": np.random.default_rng(1).integers(-(1 << 62), 1 << 62, N),  # not compressed
}


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the most memory that NumPy and Python took during `call`, beyond what they had before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("memory") / "t.abcd"
    cs.store(VALUES, path)
    return path


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("name", list(VALUES))
def test_a_read_holds_one_block_a_thread(path: Path, name: str, workers: int) -> None:
    out = np.empty(N, VALUES[name].dtype)
    before = threads.budget()
    threads.set_budget(4)
    try:
        with cs.open(path, max_workers=workers) as table:
            table[name].array(out=out)  # threads that stay start here
            out[:] = 0
            peak = peak_bytes(lambda: table[name].array(out=out))
    finally:
        threads.set_budget(before)
    assert peak < workers * BLOCK_BYTES + SMALL < 8 * N / 4
    np.testing.assert_array_equal(out, VALUES[name])


def test_a_write_holds_one_row_group_and_its_encoded_form(tmp_path: Path) -> None:
    rows = 1 << 17
    group_bytes = 8 * rows

    def write(groups: int) -> int:
        with cs.create(tmp_path / f"{groups}.abcd", row_group_size=rows) as writer:
            for number in range(groups):
                part = np.random.default_rng(number).integers(-(1 << 62), 1 << 62, rows)
                writer.write({"noise": part})
        return groups

    write(1)
    few, many = peak_bytes(lambda: write(2)), peak_bytes(lambda: write(12))
    assert many < few + SMALL
    # The values that the caller hands over, the row group that is collected of them, and its encoded form.
    assert many < 3 * group_bytes + SMALL
