"""What reads of remote encoded files cost: requests and bytes, counted."""

from __future__ import annotations

import fsspec
import numpy as np
import pytest
from encoded import ENCODED
from servers import CountingFileSystem, new_store

import colstore_io as cs

ROWS, COLUMNS, GROUP = 20_000, 50, 4000
TAIL = 64 << 10


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One file of each format with 50 columns, text every other one."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("remote")
    table = {
        f"c{k:02}": [f"{v:x}" for v in rng.integers(0, 1 << 40, ROWS)]
        if k % 2
        else rng.integers(0, 1 << 40, ROWS)
        for k in range(COLUMNS)
    }
    for suffix in ENCODED:
        cs.store(table, folder / f"w{suffix}", row_group_size=GROUP).close()
    return {suffix: (folder / f"w{suffix}").read_bytes() for suffix in ENCODED}, table


@pytest.fixture
def opened(files, request):
    """An open remote columns file, its store, and what was written."""
    blobs, table = files
    name, store = new_store()
    store.put("b/w.abcd", blobs[".abcd"])
    fsspec.register_implementation("counting", CountingFileSystem, clobber=True)
    with cs.open("counting://b/w.abcd", storage_options={"store": name}) as ds:
        store.log.clear()
        yield ds, store, table


def chunk_bytes(ds, names, segments):
    decoder = ds.source.plan.decoders[0]
    numbers = [ds.columns.index(name) for name in names]
    return sum(length for s in segments for _, length in decoder.ranges(s, numbers))


@pytest.mark.parametrize("suffix", ENCODED)
def test_opening_asks_for_the_size_and_both_ends(files, suffix):
    name, store = new_store()
    store.put(f"b/w{suffix}", files[0][suffix])
    fsspec.register_implementation("counting", CountingFileSystem, clobber=True)
    cs.open(f"counting://b/w{suffix}", storage_options={"store": name}).close()
    assert store.count("info") == 1
    assert store.count("range") == 2
    assert store.bytes_asked() <= 2 * TAIL


@pytest.mark.parametrize("suffix", ENCODED)
def test_after_a_listing_no_sizes_are_asked_for(files, suffix):
    name, store = new_store()
    for k in range(5):
        store.put(f"b/w{k}{suffix}", files[0][suffix])
    fsspec.register_implementation("counting", CountingFileSystem, clobber=True)
    with cs.open(f"counting://b/*{suffix}", storage_options={"store": name}) as ds:
        assert ds.n_rows == 5 * ROWS
    assert store.count("list") == 1
    assert store.count("info") == 0
    assert store.count("range") == 10


def test_a_projection_fetches_its_own_chunks_in_one_round(opened):
    ds, store, table = opened
    found = ds[["c20", "c33"]].dict()
    np.testing.assert_array_equal(found["c20"], table["c20"])
    assert found["c33"].to_pylist() == table["c33"]
    assert store.count("info") == 0
    groups = ROWS // GROUP
    assert store.count("range") <= 2 * groups
    assert store.most_in_flight == store.count("range")  # one round
    assert store.bytes_asked() == chunk_bytes(ds, ["c20", "c33"], range(groups))


def test_neighbouring_columns_are_one_request_per_row_group(opened):
    ds, store, _ = opened
    ds[["c20", "c21"]].dict()
    assert store.count("range") == ROWS // GROUP


def test_rows_touch_their_own_row_groups(opened):
    ds, store, table = opened
    assert ds[4100:4110, "c33"].array().to_pylist() == table["c33"][4100:4110]
    assert store.count("range") == 1
    assert store.bytes_asked() == chunk_bytes(ds, ["c33"], [1])
    store.log.clear()
    assert ds[[ROWS - 1, 3], "c33"].array().to_pylist() == [table["c33"][-1], table["c33"][3]]
    assert store.bytes_asked() == chunk_bytes(ds, ["c33"], [0, ROWS // GROUP - 1])


def test_a_condition_that_statistics_refute_fetches_nothing(opened):
    ds, store, _ = opened
    assert len(ds.where(cs.col("c20") < 0)) == 0
    assert len(ds.where(cs.col("c33") > "zzz")) == 0
    assert store.log == []


def test_previews_of_remote_text_are_shown(opened):
    ds, store, _ = opened
    for shown in (ds[["c33", "c20"]], ds["c33"], ds.select("c33")):
        assert "cannot be shown" not in repr(shown)
    assert store.bytes_asked() <= 3 * chunk_bytes(ds, ["c20", "c33"], [0])


def test_a_loop_over_rows_fetches_each_chunk_at_most_twice(opened):
    ds, store, table = opened
    assert [ds["c33"][k : k + 1].array().to_pylist()[0] for k in range(30)] == table["c33"][:30]
    assert store.count("range") == 2
    assert store.bytes_asked() == 2 * chunk_bytes(ds, ["c33"], [0])


def test_a_log_fetches_the_messages_of_its_rows(files):
    blobs, table = files
    name, store = new_store()
    store.put("b/w.colbin", blobs[".colbin"])
    fsspec.register_implementation("counting", CountingFileSystem, clobber=True)
    with cs.open("counting://b/w.colbin", storage_options={"store": name}) as ds:
        store.log.clear()
        np.testing.assert_array_equal(ds[10:20, "c20"].array(), table["c20"][10:20])
        assert store.count("range") == 1
        assert store.bytes_asked() <= len(blobs[".colbin"]) // 4  # the first of five messages
