"""A directory of an object store that a manifest describes is opened without opening its files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from servers import CountingFileSystem, ObjectStore, new_store

import colstore_io as cs
from colstore_io.writing.generations import commit, plan_generation, write_shard

FILES, ROWS = 5, 10


def rows(number: int) -> dict[str, Any]:
    return {"x": np.arange(ROWS) + ROWS * number, "s": np.array([f"t{number}"] * ROWS)}


@pytest.fixture
def bucket() -> tuple[CountingFileSystem, ObjectStore]:
    name, store = new_store()
    fs = CountingFileSystem(store=name)
    plan = plan_generation("bucket/d", mode="create", filesystem=fs)
    commit(plan, [write_shard(plan, rows(number), number) for number in range(FILES)])
    store.log.clear()
    return CountingFileSystem(store=name, skip_instance_cache=True), store


def asked(store: ObjectStore) -> dict[str, int]:
    found = {kind: store.count(kind) for kind in ("list", "info", "range")}
    store.log.clear()
    return {kind: count for kind, count in found.items() if count}


def shards(store: ObjectStore) -> list[str]:
    return sorted(path for path in store.objects if path.endswith(".cstore"))


def test_opening_asks_for_a_listing_and_the_manifest(bucket: Any) -> None:
    fs, store = bucket
    with cs.open("bucket/d", filesystem=fs) as table:
        assert asked(store) == {"list": 1, "range": 1}
        assert (table.n_rows, table.columns) == (FILES * ROWS, ["x", "s"])
        np.testing.assert_array_equal(table["x"].array(), np.arange(FILES * ROWS))
        assert asked(store) == {"range": FILES}


def test_statistics_come_with_the_manifest(bucket: Any) -> None:
    fs, store = bucket
    with cs.open("bucket/d", filesystem=fs) as table:
        asked(store)
        assert table[cs.col("x") >= FILES * ROWS - 3]["x"].array().tolist() == [47, 48, 49]
        assert asked(store) == {"range": 2}  # of the condition, and of the column
        assert len(table[cs.col("x") > 1000]["x"].array()) == 0
        assert asked(store) == {}


def test_it_is_the_table_that_the_headers_describe(bucket: Any) -> None:
    fs, _ = bucket
    with (
        cs.open("bucket/d", filesystem=fs) as table,
        cs.open("bucket/d", filesystem=fs, ignore_manifest=True) as other,
    ):
        assert table.schema == other.schema
        assert table.source.plan.digest == other.source.plan.digest
        assert table.arrow() == other.arrow()


@pytest.mark.parametrize("change", ["another size", "a foreign name"])
def test_files_that_may_be_others_are_looked_at(bucket: Any, change: str) -> None:
    fs, store = bucket
    if change == "another size":
        path = shards(store)[1]
        store.put(path, store.objects[path] + bytes(32))
    else:
        cs.append("bucket/d", rows(FILES), filesystem=fs, name="mine.cstore")
    fs.invalidate_cache()
    store.log.clear()
    with cs.open("bucket/d", filesystem=fs) as table:
        assert asked(store)["range"] >= FILES + 1
        assert table["x"].array()[:ROWS].tolist() == list(range(ROWS))


def test_an_object_that_is_replaced_after_the_listing_is_noticed(bucket: Any) -> None:
    fs, store = bucket
    with cs.open("bucket/d", filesystem=fs) as table:
        path = shards(store)[2]
        store.put(path, store.objects[path][:100])
        with pytest.raises(OSError):
            table["x"].array()


# ----------------------------------------------------------------------------------------------------------
# Columns files


@pytest.fixture
def columns_bucket() -> tuple[CountingFileSystem, ObjectStore]:
    name, store = new_store()
    fs = CountingFileSystem(store=name)
    plan = plan_generation("bucket/c", mode="create", filesystem=fs, format="columns")
    commit(plan, [write_shard(plan, rows(number), number) for number in range(FILES)])
    store.log.clear()
    return CountingFileSystem(store=name, skip_instance_cache=True), store


def test_footers_of_columns_files_come_with_the_manifest(columns_bucket: Any) -> None:
    fs, store = columns_bucket
    with cs.open("bucket/c", filesystem=fs) as table, cs.open("bucket/c/*.abcd", filesystem=fs) as looked_at:
        asked(store)
        assert table.schema == looked_at.schema
        assert table.source.token == looked_at.source.token
        assert table[cs.col("x") >= FILES * ROWS - 3]["x"].array().tolist() == [
            FILES * ROWS - 3,
            FILES * ROWS - 2,
            FILES * ROWS - 1,
        ]
        assert asked(store)["range"] <= 2  # statistics have come along too
    with cs.open("bucket/c", filesystem=fs) as table:
        assert asked(store) == {"list": 1, "range": 1}
        np.testing.assert_array_equal(table["x"].array(), np.arange(FILES * ROWS))
        assert asked(store) == {"range": FILES}


def test_a_replaced_columns_file_is_looked_at(columns_bucket: Any) -> None:
    fs, store = columns_bucket
    first, *_ = sorted(path for path in store.objects if path.endswith(".abcd"))
    name, other = new_store()
    there = CountingFileSystem(store=name)
    plan = plan_generation("bucket/c", mode="create", filesystem=there, format="columns")
    more = {"x": np.arange(ROWS + 1), "s": np.array(["other"] * (ROWS + 1))}
    commit(plan, [write_shard(plan, more, 0)])
    (replacement,) = (data for path, data in other.objects.items() if path.endswith(".abcd"))
    store.put(first, replacement)
    with cs.open("bucket/c", filesystem=fs) as table:
        assert asked(store)["range"] > 2
        assert table["s"].array().to_pylist()[: ROWS + 1] == ["other"] * (ROWS + 1)


def test_an_append_to_columns_files_remembers_its_footer_too(columns_bucket: Any) -> None:
    fs, store = columns_bucket
    plan = plan_generation("bucket/c", mode="append", filesystem=fs)
    commit(plan, [write_shard(plan, rows(FILES), 0)])
    fs.invalidate_cache()
    store.log.clear()
    with cs.open("bucket/c", filesystem=fs) as table:
        assert asked(store) == {"list": 1, "range": 1}
        assert table.n_rows == (FILES + 1) * ROWS
