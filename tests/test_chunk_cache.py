"""Decoded chunks that are read in part again are kept, within bounds, and never show in what is read."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from encoded import ENCODED, random_table, write

import colstore_io as cs
from colstore_io import config
from colstore_io.chunk_cache import ChunkCache
from colstore_io.formats import DecodedColumn

N = 400


@pytest.fixture(params=ENCODED)
def data(request, tmp_path):
    table = random_table(3, N, nulls=0.3)
    with cs.open(write(table, tmp_path / f"t{request.param}", 100)) as ds:
        yield ds, table


@pytest.fixture
def limit():
    before = config.get_decoded_cache_bytes()
    yield config.set_decoded_cache_bytes
    config.set_decoded_cache_bytes(before)


def whole(rows=100):
    return DecodedColumn(np.zeros(rows, "i8"))


def test_the_second_read_of_a_part_keeps_the_chunk(data):
    ds, table = data
    cache = ds.source.decoded
    assert ds[5:6, "note"].array().to_pylist() == table["note"].to_pylist()[5:6]
    assert cache.nbytes == 0
    ds[6:7, "note"].array()
    assert 0 < cache.nbytes < 1 << 20
    assert ds[7:9, "note"].array().to_pylist() == table["note"].to_pylist()[7:9]


def test_whole_reads_pass_by(data):
    ds, _ = data
    for _ in range(3):
        ds.dict()
        ds.arrow()
    assert ds.source.decoded.nbytes == 0


def test_every_read_is_as_without_a_cache(data, limit):
    ds, table = data
    rng = np.random.default_rng(0)
    for _ in range(60):
        first = int(rng.integers(0, N))
        key = [
            slice(first, first + int(rng.integers(1, 9))),
            slice(first, None, 7),
            rng.integers(0, N, 5),
            rng.random(N) < 0.02,
        ][rng.integers(0, 4)]
        wanted = table.take(np.arange(N)[key])
        found = ds[key].dict()
        for name in table.column_names:
            values = found[name]
            assert (
                (values.to_pylist() if hasattr(values, "to_pylist") else values.tolist())
                == pytest.approx(wanted[name].to_pylist(), nan_ok=True)
                if name in ("x", "f")
                else wanted[name].to_pylist()
                == (values.to_pylist() if hasattr(values, "to_pylist") else values.tolist())
            )
    assert ds.source.decoded.nbytes > 0


def test_results_are_the_callers_own(data):
    ds, table = data
    for _ in range(3):
        values = ds[10:20, "n"].array()
        assert values.tolist() == list(range(10, 20))
        values[:] = -1
        frame = ds[10:20].frame()
        frame.loc[:, "n"] = -2
        target = np.empty(10, "i8")
        assert ds[10:20, "n"].array(out=target).tolist() == list(range(10, 20))
        text = ds[10:20, "text"].array()
        assert text.to_pylist() == table["text"].to_pylist()[10:20]
        assert text.get_total_buffer_size() < 2000  # no view of the whole chunk
        with ds[10:20].scoped() as columns:
            assert columns["n"].tolist() == list(range(10, 20))


def test_nothing_is_kept_where_the_bound_is_zero(data, limit):
    ds, _ = data
    limit(0)
    for _ in range(4):
        ds[5:6].dict()
    assert ds.source.decoded.nbytes == 0
    with pytest.raises(ValueError, match="decoded_cache_bytes"):
        limit(-1)


def test_pickles_restricted_sources_and_closed_tables_have_no_part_in_it(data):
    ds, _ = data
    for _ in range(3):
        ds[5:6].dict()
    assert ds.source.decoded.nbytes > 0
    assert pickle.loads(pickle.dumps(ds)).source.decoded.nbytes == 0
    assert ds.source.restrict(0, 1, ["n"]).decoded.nbytes == 0
    source = ds.source
    ds.close()
    assert source.decoded.nbytes == 0


def test_the_least_recently_used_goes_first(limit):
    limit(2000)
    cache = ChunkCache()
    for k in (0, 1):
        cache.put((k, 0, False), whole())
    assert cache.get((0, 0, False)) is not None
    cache.put((2, 0, False), whole())
    assert cache.get((1, 0, False)) is None
    assert cache.get((0, 0, False)) is not None
    assert cache.nbytes == 1600


def test_chunks_that_take_turns_are_decoded_whole_less_and_less_often(limit):
    limit(1000)
    cache = ChunkCache()
    decoded = 0
    for turn in range(400):
        key = (turn % 2, 0, False)
        if cache.get(key) is None and cache.wants(key):
            cache.put(key, whole())
            decoded += 1
    assert decoded < 100  # and not 200


def test_what_does_not_fit_is_not_tried_again(limit):
    limit(500)
    cache = ChunkCache()
    key = (0, 0, False)
    cache.put(key, whole())
    assert cache.nbytes == 0
    assert not any(cache.wants(key) for _ in range(100))


def test_threads_share_it(data):
    ds, table = data
    wanted = table["note"].to_pylist()
    wrong = []

    def read(seed):
        rng = np.random.default_rng(seed)
        for _ in range(40):
            k = int(rng.integers(0, N))
            if ds[k : k + 1, "note"].array().to_pylist() != wanted[k : k + 1]:
                wrong.append(k)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
