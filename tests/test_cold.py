"""Which pages a read needs, and that bringing them in changes no result. What is timed is in `benchmarks`."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io import cold, config, tuning
from colstore_io.segments import Segments
from colstore_io.selection import Index, Mask, Range
from colstore_io.storage import paging

linux = pytest.mark.skipif(not paging.AVAILABLE, reason="residency can be steered on Linux only")
PAGE = 4096


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tuning.forget()
    yield
    config.set_populate_policy("auto")
    tuning.forget()


def covered(runs):
    return {
        row for start, stop in zip(*map(np.ndarray.tolist, runs), strict=True) for row in range(start, stop)
    }


def is_canonical(runs, gap):
    start, stop = runs
    return bool((start < stop).all() and (start[1:] - stop[:-1] > gap).all())


# -- rows


@st.composite
def selections(draw):
    n = draw(st.integers(1, 3000))
    kind = draw(st.sampled_from(["range", "index", "mask"]))
    if kind == "range":
        step = draw(st.sampled_from([1, 2, 7, 100, -1, -3]))
        start = draw(st.integers(0, n - 1))
        room = (n - 1 - start) // step if step > 0 else start // -step
        return n, Range(start, step, draw(st.integers(0, room + 1)))
    if kind == "index":
        return n, Index(np.array(draw(st.lists(st.integers(-n, n - 1), max_size=30)), np.int64))
    mask = np.zeros(n, bool)
    mask[draw(st.lists(st.integers(0, n - 1), max_size=20))] = True
    return n, Mask(mask)


@given(selections(), st.integers(0, 600))
def test_row_runs_hold_every_row_and_little_else(case, gap):
    n, rows = case
    runs = cold.row_runs(rows, n, gap)
    needed = set(rows.positions(n).tolist())
    held = covered(runs)
    assert needed <= held <= set(range(n))
    group = cold.GROUP_ROWS if isinstance(rows, Mask) else 1
    limit = (gap + group) * len(needed) + group
    assert len(held) <= max(limit, len(needed))
    if not isinstance(rows, Range):
        assert is_canonical(runs, gap)


def test_rows_out_of_range_are_left_to_the_kernel():
    runs = cold.row_runs(Index(np.array([5, 10_000, -10_000])), 10)
    assert covered(runs) == {0, 5, 9}
    assert covered(cold.row_runs(Index(np.empty(0, np.int64)), 10)) == set()
    assert covered(cold.row_runs(Mask(np.zeros(0, bool)), 0)) == set()


# -- bytes and pages


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=12),
    st.lists(st.sampled_from([1, 2, 8, 5000]), min_size=1, max_size=3),
    st.data(),
)
def test_byte_runs_are_the_bytes_of_the_rows(lengths, sizes, data):
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    n = int(starts[-1])
    segments = Segments(np.zeros(len(lengths), np.int32), starts, np.zeros(len(lengths), np.int64))
    base = np.array([[10**9 * (c + 1) + 10**6 * s for s in range(len(lengths))] for c in range(len(sizes))])
    picked = sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=10))) if n else []
    runs = cold.row_runs(Index(np.array(picked, np.int64)), n)
    start, stop = cold.byte_runs(runs, segments, base, np.array(sizes))
    got = sorted(zip(start.tolist(), stop.tolist(), strict=True))
    assert sum(b - a for a, b in got) == len(picked) * sum(sizes)
    for row in picked:
        s = int(segments.locate(np.array([row]))[0])
        for c, size in enumerate(sizes):
            at = int(base[c, s]) + row * size
            assert any(a <= at and at + size <= b for a, b in got)


ranges = st.lists(st.tuples(st.integers(0, 200 * PAGE), st.integers(1, 3 * PAGE)), max_size=20)


@given(ranges, st.integers(0, 8))
def test_page_runs_hold_every_byte_in_whole_pages(pairs, gap):
    start = np.array([a for a, _ in pairs], np.int64)
    stop = start + np.array([b for _, b in pairs], np.int64)
    runs = cold.page_runs(start, stop, PAGE, gap)
    pages = {
        page
        for a, b in zip(start.tolist(), stop.tolist(), strict=True)
        for page in range(a // PAGE, -(-b // PAGE))
    }
    assert not np.concatenate(runs).astype(np.int64).__mod__(PAGE).any()
    assert is_canonical(runs, gap * PAGE)
    held = covered(cold.Runs(runs.start // PAGE, runs.stop // PAGE))
    assert pages <= held
    # What is read in passing lies in gaps that are short enough to be worth it.
    assert len(held) <= len(pages) + gap * max(0, len(pages) - 1)
    again = cold.page_runs(runs.start, runs.stop, PAGE, gap)
    np.testing.assert_array_equal(np.stack(again), np.stack(runs))


# -- reading


N = 300_000


@pytest.fixture(scope="module")
def columns():
    rng = np.random.default_rng(3)
    return {
        "a": rng.random(N),
        "b": rng.integers(0, 100, N).astype("i2"),
        "s": rng.integers(0, 10, N).astype("S12"),
    }


@pytest.fixture(params=["one", "records", "shards"])
def table(request, tmp_path, columns):
    if request.param == "one":
        cs.store(columns, tmp_path / "t.cstore").close()
        source = tmp_path / "t.cstore"
    elif request.param == "records":
        source = tmp_path / "t.cstore"
        with cs.create(source) as writer:
            for low in range(0, N, 70_001):
                writer.write({k: v[low : low + 70_001] for k, v in columns.items()})
    else:
        for number, low in enumerate(range(0, N, 100_000)):
            part = {k: v[low : low + 100_000] for k, v in columns.items()}
            cs.store(part, tmp_path / f"t_{number}.cstore").close()
        source = str(tmp_path / "t_*.cstore")
    with cs.open(source) as opened:
        yield opened


KEYS = {
    "all": slice(None),
    "range": slice(1000, 280_000),
    "strided": slice(5, None, 5000),
    "backwards": slice(None, None, -9000),
    "few": np.array([7, 299_999, -5, 7, 123_456]),
    "many": np.random.default_rng(0).integers(0, N, 200_000),
    "mask": np.random.default_rng(1).random(N) < 0.0005,
    "half": np.arange(N) % 2 == 0,
}


@linux
@pytest.mark.parametrize("policy", ["auto", "populate", "willneed", "none"])
@pytest.mark.parametrize("key", KEYS)
def test_cold_reads_give_the_same_rows(table, columns, key, policy, monkeypatch):
    config.set_populate_policy(policy)
    monkeypatch.setattr(cold, "LONG_BYTES", 1 << 16)
    monkeypatch.setattr(cold, "PIECE_BYTES", 1 << 18)
    monkeypatch.setattr(cold, "BATCH_ROWS", 1 << 14)
    monkeypatch.setattr(cold, "SCATTERED_BYTES", 1 << 12)
    monkeypatch.setattr(paging, "is_resident", lambda address: False)
    for name, values in columns.items():
        np.testing.assert_array_equal(table[KEYS[key], name].array(), values[KEYS[key]])
    everything = table[KEYS[key]].dict()
    for name, values in columns.items():
        np.testing.assert_array_equal(everything[name], values[KEYS[key]])


@linux
def test_a_bad_index_is_named_however_cold(table, monkeypatch):
    monkeypatch.setattr(paging, "is_resident", lambda address: False)
    for bad in (N, -N - 1):
        with pytest.raises(IndexError, match=str(bad)):
            table[np.array([3, bad, 5]), "a"].array()


class Recorder:
    def __init__(self, monkeypatch, resident):
        self.runs, self.populated, self.looks = [], [], 0
        self.resident = resident
        monkeypatch.setattr(paging, "is_resident", self.look)
        monkeypatch.setattr(
            paging, "willneed_runs", lambda a, n: self.runs.extend(zip(a.tolist(), n.tolist(), strict=True))
        )
        monkeypatch.setattr(paging, "populate", lambda a, n: self.populated.append((a, n)) or True)

    def look(self, address):
        self.looks += 1
        return self.resident


@pytest.fixture
def big(tmp_path):
    with cs.store({"a": np.arange(1 << 20), "b": np.arange(1 << 20)}, tmp_path / "big.cstore") as opened:
        yield opened


@linux
def test_scattered_rows_ask_for_their_pages_and_no_more(big, monkeypatch):
    recorder = Recorder(monkeypatch, resident=False)
    rows = np.array([900_000, 10, 500_000])
    np.testing.assert_array_equal(big[rows, "a"].array(), rows)
    assert sorted(n for _, n in recorder.runs) == [paging.PAGE_BYTES] * 3
    base = int(big.source.addresses((big.source.parts_by_name["a"],))[0, 0])
    for row in rows.tolist():
        assert any(a <= base + 8 * row < a + n for a, n in recorder.runs)
    assert not recorder.populated


@linux
def test_data_in_memory_is_looked_at_and_left_alone(big, monkeypatch):
    recorder = Recorder(monkeypatch, resident=True)
    config.set_populate_policy("populate")
    rows = np.array([900_000, 10, 500_000])
    for _ in range(100):
        big[rows, "a"].array()
    assert recorder.looks <= 8  # not once a read
    looks = recorder.looks
    big["b"].array()
    assert 0 < recorder.looks - looks <= 4
    big[5:50, "a"].array()  # too short to be worth a look
    big[np.array([4]), "a"].array()
    assert recorder.looks - looks <= 4
    assert not recorder.runs
    assert not recorder.populated


@linux
def test_long_ranges_are_brought_in_piece_by_piece(big, monkeypatch):
    recorder = Recorder(monkeypatch, resident=False)
    monkeypatch.setattr(cold, "PIECE_BYTES", 1 << 20)
    config.set_populate_policy("populate")
    got = big["a"].array()
    np.testing.assert_array_equal(got, np.arange(1 << 20))
    assert len(recorder.populated) == 8
    assert max(n for _, n in recorder.populated) <= (1 << 20) + 2 * paging.PAGE_BYTES
    assert sum(n for _, n in recorder.populated) <= (8 << 20) + 16 * paging.PAGE_BYTES
    assert not recorder.runs


@linux
def test_at_most_two_pieces_are_asked_for_ahead(big, monkeypatch):
    recorder = Recorder(monkeypatch, resident=False)
    monkeypatch.setattr(cold, "PIECE_BYTES", 1 << 20)
    config.set_populate_policy("willneed")
    part = (big.source.parts_by_name["a"],)
    asked = []
    for piece, place in cold.steps(big.source, Range(0, 1, 1 << 20), part):
        asked.append(sum(n for _, n in recorder.runs))
        assert asked[-1] <= piece.stop * 8 + (1 << 20) + 32 * paging.PAGE_BYTES
        assert place == slice(piece.start, piece.stop)
    assert asked == sorted(asked)
    assert asked[-1] >= 8 << 20


@linux
@pytest.mark.parametrize("resident_from", [0, 1, 3, 99])
def test_batches_end_where_the_rest_is_in_memory(big, monkeypatch, resident_from):
    recorder = Recorder(monkeypatch, resident=False)
    monkeypatch.setattr(cold, "BATCH_ROWS", 100)
    rows = np.random.default_rng(0).integers(0, 1 << 20, 1000)
    part = (big.source.parts_by_name["a"],)
    got, places = [], []
    for number, (piece, place) in enumerate(cold.steps(big.source, Index(rows), part)):
        recorder.resident = number + 1 >= resident_from
        got.append(piece.rows)
        places.append(place)
    np.testing.assert_array_equal(np.concatenate(got), rows)
    assert np.array_equal(np.concatenate([np.arange(1000)[place] for place in places]), np.arange(1000))
    assert len(got) == min(10, max(resident_from, 1) + 2)


@linux
def test_nothing_larger_than_the_memory_left_is_asked_for(big, monkeypatch):
    recorder = Recorder(monkeypatch, resident=False)
    monkeypatch.setattr(paging, "memory_limit", lambda: 3 * paging.PAGE_BYTES)
    monkeypatch.setattr(cold, "_limit", (0.0, 0))
    rows = np.arange(0, 1 << 20, 1 << 14)
    np.testing.assert_array_equal(big[rows, "a"].array(), rows)
    assert not recorder.runs


@linux
def test_advice_of_the_user_stands(tmp_path, big, monkeypatch):
    recorder = Recorder(monkeypatch, resident=False)
    with cs.open(tmp_path / "big.cstore", madvise="random") as table:
        table[np.array([1, 900_000]), "a"].array()
    config.set_populate_policy("none")
    big[np.array([1, 900_000]), "a"].array()
    assert (recorder.looks, recorder.runs) == (0, [])


def test_memory_that_is_no_file_is_left_alone(tmp_path, big, monkeypatch):
    recorder = Recorder(monkeypatch, resident=False)
    with cs.open((tmp_path / "big.cstore").read_bytes()) as table:
        np.testing.assert_array_equal(table[np.array([1, 900_000]), "a"].array(), [1, 900_000])
    assert not recorder.runs


# -- the real thing


@linux
def test_real_advice_brings_real_pages(tmp_path):
    path = tmp_path / "pages"
    path.write_bytes(bytes(64 * paging.PAGE_BYTES))
    with open(path, "r+b") as handle:
        os.fsync(handle.fileno())
        mapping = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_WRITE)
        start = np.frombuffer(mapping, np.uint8).ctypes.data
        os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        address = start + np.array([3, 40, 41]) * paging.PAGE_BYTES
        paging.willneed_runs(address, np.full(3, paging.PAGE_BYTES))
        if paging.populate(start, 64 * paging.PAGE_BYTES):
            assert all(paging.is_resident(start + page * paging.PAGE_BYTES) for page in range(64))
        paging.willneed(start, paging.PAGE_BYTES)
        del address


@linux
def test_advice_about_addresses_that_are_not_mapped_is_harmless():
    page = 1 << 20
    paging.willneed_runs(np.array([page, 2 * page]), np.array([4096, 4096]))
    assert not paging.populate(page, 4096)
    assert paging.is_resident(page)  # unknown: nothing to do


@linux
@pytest.mark.parametrize("refused", [0, 1])
def test_without_vectored_advice_ranges_are_asked_for_one_by_one(monkeypatch, refused):
    asked = []

    class Libc:
        def syscall(self, *arguments):
            return -1

        def madvise(self, address, length, advice):
            asked.append((address, length, advice))

    monkeypatch.setattr(paging, "_LIBC", Libc())
    if refused:
        monkeypatch.setattr(os, "pidfd_open", lambda pid: (_ for _ in ()).throw(OSError("no")))
    paging.willneed_runs(np.array([0, 8192]), np.array([4096, 4096]))
    assert asked == [(0, 4096, 3), (8192, 4096, 3)]


@linux
def test_the_memory_limit_is_a_part_of_what_is_there():
    assert 0 < paging.memory_limit() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4


def test_the_memory_to_spare_is_asked_for_once_in_some_milliseconds(monkeypatch):
    answers = [3 << 20, 5 << 20]
    now = [1000.0]
    monkeypatch.setattr(paging, "memory_limit", lambda: answers.pop(0))
    monkeypatch.setattr(cold.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(cold, "_limit", (0.0, 0))
    assert [cold._memory_limit() for _ in range(3)] == [3 << 20] * 3
    now[0] += cold.LIMIT_SECONDS
    assert [cold._memory_limit() for _ in range(3)] == [5 << 20] * 3
    assert not answers


@linux
@pytest.mark.slow
def test_a_read_in_pieces_fits_into_a_small_address_space(tmp_path):
    """The outputs, the mapping, and nothing of the size of the data beside them."""
    cs.store({"a": np.arange(4 << 20)}, tmp_path / "t.cstore").close()
    code = (
        "import resource, sys, numpy as np, colstore_io as cs\n"
        "from colstore_io import config\n"
        "config.set_populate_policy(sys.argv[2])\n"
        "table = cs.open(sys.argv[1])\n"
        "out = np.zeros(4 << 20, 'i8')\n"
        "rows = np.arange(0, 4 << 20, 64)[::-1].copy()\n"
        "few = np.zeros(rows.size, 'i8')\n"
        "table[:10, 'a'].array(); table.source.mappings()\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20),) * 2)\n"
        "table['a'].array(out=out)\n"
        "table[rows, 'a'].array(out=few)\n"
        "print(int(out[-1]), int(few[0]))\n"
    )
    for policy in ("populate", "willneed"):
        with open(tmp_path / "t.cstore", "rb") as handle:
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "t.cstore"), policy],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.stdout.split() == [str((4 << 20) - 1), str((4 << 20) - 64)], done.stderr
