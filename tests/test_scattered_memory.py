"""What scattered reads of encoded files hold beside their results: what is in work, whatever the number of row groups.

NumPy's arrays, those of the output pool and Arrow's buffers are counted, each at its own peak.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import colstore_io as cs
from colstore_io import assembly, config, jobs, loading, pieces, threads
from colstore_io.decoding import read_segments
from colstore_io.formats.columns.tags import BLOCK_BYTES

N = 600_000
GROUPS = 30
GROUP = N // GROUPS
SMALL = 300_000
"""Bytes of what does not grow with the data: plans, jobs, parts of an array that are moved at once."""

INDEX_BLOCK = 1 << 14

WINDOW = 1 << 14
"""Rows that a thread holds decoded: those of a window, never a row group."""

_rng = np.random.default_rng(0)
_words = np.array([f"{i:07d} " + "abcdefgh" * (i % 5) for i in range(5000)])
_null = _rng.random(N) < 0.1
_texts = _words[_rng.integers(0, 5000, N)]
TABLE = pa.table(
    {
        "fixed": pa.array(_rng.integers(0, 1 << 50, N)),
        "nullable": pa.array(_rng.integers(0, 1 << 20, N), mask=_null),
        "text": pa.array(_texts),
        "note": pa.array(_texts, mask=_null),
    }
)
VALUE_BYTES = {"fixed": 8, "nullable": 9, "text": 28, "note": 28}
KEYS = {
    "sorted": np.sort(_rng.integers(0, N, N // 2)),
    "unsorted": _rng.permutation(N)[: N // 2],
    "mask": _rng.random(N) < 0.5,
    "nearly all": _rng.random(N) < 0.999,
    "strided": slice(None, None, 2),
    "backwards": slice(None, None, -2),
}
_pools: list[pa.MemoryPool] = []  # for as long as anything may have memory of them


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the most memory that NumPy, Python and Arrow took during `call`."""
    call()  # what is made once and kept
    pool, default = pa.proxy_memory_pool(pa.system_memory_pool()), pa.default_memory_pool()
    _pools.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        call()
        return tracemalloc.get_traced_memory()[1] - before + pool.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(default)


@pytest.fixture(scope="module", autouse=True)
def budget() -> Iterator[None]:
    before = threads.budget()
    threads.set_budget(4)
    yield
    threads.set_budget(before)


@pytest.fixture(autouse=True)
def no_cache() -> Iterator[None]:
    before = config.get_decoded_cache_bytes()
    config.set_decoded_cache_bytes(0)
    yield
    config.set_decoded_cache_bytes(before)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scattered") / "t.abcd"
    options: dict[str, Any] = {"row_group_size": GROUP, "compression": "flate", "encoding": {}}
    options["encoding"] = {"text": "plain", "note": "plain"}
    cs.store(TABLE, path, **options).close()
    return path


def bound(name: str, key: Any, workers: int) -> float:
    """Return what a read may hold beside its result."""
    width = VALUE_BYTES[name]
    scattered = isinstance(key, np.ndarray) and key.dtype != np.bool_ and bool((np.diff(key) < 0).any())
    count = len(range(N)[key]) if isinstance(key, slice) else len(np.arange(N)[key])
    # A text that is longer than others makes the mean a poor guess of how far memory has to grow: a quarter at most.
    variable = name in ("text", "note")
    # The block of the stream and a window: its values, and where they begin and how long they are.
    work = workers * (BLOCK_BYTES + (width + 32) * WINDOW)
    if isinstance(key, (slice, np.ndarray)) and getattr(key, "dtype", None) != np.bool_:
        work += workers * 24 * min(GROUP, count)  # where the wanted rows of a row group are, and go
    if variable:  # rows that are picked and wait for their turn
        work += jobs.AHEAD * workers * width * GROUP + 0.05 * width * count
        if scattered or (isinstance(key, slice) and (key.step or 1) < 0):
            work += count  # nulls as bytes
    if scattered:
        work += 4 * count + 3 * 8 * INDEX_BLOCK  # the order, and a block of the index while it is sorted
    return work + SMALL


@pytest.mark.parametrize("name", list(VALUE_BYTES))
@pytest.mark.parametrize("kind", list(KEYS))
def test_a_scattered_read_holds_its_result_and_what_is_in_work(
    path: Path, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "KEPT_BYTES", 0)
    monkeypatch.setattr(pieces, "_BLOCK", INDEX_BLOCK)
    key, workers = KEYS[kind], 2 - (name == "note")
    with cs.open(path, max_workers=workers) as table:
        want = table[key, name].array()
        rows = np.arange(N)[key]
        assert pa.array(want).equals(TABLE[name].combine_chunks().take(pa.array(rows)))
        extra = peak_bytes(lambda: table[key, name].array()) - want.nbytes
        assert extra < bound(name, key, workers), (extra, bound(name, key, workers))
        assert bound(name, key, workers) < VALUE_BYTES[name] * N  # or it would say nothing


def test_several_columns_hold_what_one_does(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "KEPT_BYTES", 0)
    monkeypatch.setattr(pieces, "_BLOCK", INDEX_BLOCK)
    names = list(VALUE_BYTES)
    with cs.open(path, max_workers=2) as table:
        for key in KEYS.values():
            want = table[key][names].dict()
            size = sum(column.nbytes for column in want.values())
            del want
            extra = peak_bytes(lambda key=key: table[key][names].dict()) - size  # type: ignore[misc]
            # Of each column what waits for its turn, and one validity of bytes that becomes bits.
            assert extra < sum(bound(name, key, 2) for name in names)


def test_decoded_text_is_kept_up_to_a_bound(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    loads = loading.Loader.jobs
    monkeypatch.setattr(
        loading.Loader,
        "jobs",
        lambda self, cut, results, plan: (
            decoded.append(plan.piece.segment),
            loads(self, cut, results, plan),
        )[1],
    )
    key, want = KEYS["unsorted"], TABLE["text"].combine_chunks().take(pa.array(KEYS["unsorted"]))
    with cs.open(path, max_workers=2) as table:
        assert table[key, "text"].array().equals(want)
        assert len(decoded) == GROUPS  # all of it fits
        decoded.clear()
        monkeypatch.setattr(assembly, "KEPT_BYTES", 2_000_000)
        assert table[key, "text"].array().equals(want)
        assert GROUPS < len(decoded) < 2 * GROUPS


def test_iteration_holds_a_few_row_groups(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "GROUP_BYTES", 0)
    with cs.open(path, max_workers=2) as table:

        def read() -> None:
            for columns in read_segments(table.source, range(4)):
                assert len(columns) == 4
                del columns

        assert peak_bytes(read) < 2.5 * jobs.AHEAD * 2 * GROUP * sum(VALUE_BYTES.values()) + SMALL


def test_few_rows_of_many_row_groups_hold_a_row_group_a_thread(path: Path) -> None:
    key = np.arange(0, N, N // 1000)
    with cs.open(path, max_workers=2) as table:
        for name, width in VALUE_BYTES.items():
            peak = peak_bytes(lambda name=name: table[key, name].array())  # type: ignore[misc]
            assert peak < 2 * (width * WINDOW + BLOCK_BYTES) + SMALL
