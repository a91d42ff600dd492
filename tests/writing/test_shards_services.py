"""Writing to real object stores: whole objects, shards, and exclusive commits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colstore_io.errors import CommitConflictError
from colstore_io.storage import locate
from colstore_io.writing import manifest
from colstore_io.writing.appender import Appender
from colstore_io.writing.compaction import compact_file, concat_files
from colstore_io.writing.manifest import newest_generation, publish, vacuum
from colstore_io.writing.manifest_json import FileEntry, GenerationManifest, new_commit_id
from colstore_io.writing.manifest_layout import file_entry, schema_objects
from colstore_io.writing.merging import open_sources
from colstore_io.writing.shards import append
from colstore_io.writing.writer import Writer, store_file

pytestmark = pytest.mark.service


def rows(start: int, stop: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(start, stop), "y": np.arange(start, stop) * 0.5}


@pytest.fixture(params=["moto_s3", "seaweed_s3"])
def store(request: pytest.FixtureRequest) -> Any:
    server = request.getfixturevalue(request.param)
    return server.prefix(), server.options


def lengths(url: str, options: Any) -> list[list[int]]:
    return [source.meta.record_rows.tolist() for source in open_sources([url], storage_options=options)]


def test_objects_are_created_replaced_and_compacted(store: Any) -> None:
    bucket, options = store
    url = f"s3://{bucket}/d/a.cstore"
    store_file(rows(0, 3), url, storage_options=options)
    with pytest.raises(FileExistsError):
        store_file(rows(0, 3), url, storage_options=options)
    store_file(iter([rows(0, 3), rows(3, 5)]), url, mode="recreate", statistics=True, storage_options=options)
    assert lengths(url, options) == [[3, 2]]
    with Writer(url, "recreate", storage_options=options) as writer:
        writer.write(rows(0, 4))
        writer.commit()
        assert lengths(url, options) == [[4]]
        writer.write(rows(4, 5))
    assert lengths(url, options) == [[4, 1]]
    compact_file(url, storage_options=options)
    assert lengths(url, options) == [[5]]
    concat_files([url, url], f"s3://{bucket}/d/b.cstore", storage_options=options)
    assert lengths(f"s3://{bucket}/d/b.cstore", options) == [[10]]


def test_large_object_is_uploaded_in_parts(store: Any, tmp_path: Any) -> None:
    bucket, options = store
    url = f"s3://{bucket}/large.cstore"
    data = {"x": np.arange(9_000_000)}  # 72 MB: more than one request takes
    store_file(data, url, storage_options=options)
    source = open_sources([url], storage_options=options)[0]
    store_file(data, tmp_path / "a.cstore")
    assert bytes(source.file.read(0, source.file.size)) == (tmp_path / "a.cstore").read_bytes()


def test_shards_and_generations(store: Any) -> None:
    bucket, options = store
    url = f"s3://{bucket}/d"
    for i in range(2):
        append(url, rows(i, i + 1), storage_options=options)
    place = locate(url, storage_options=options)
    sources = open_sources([url], storage_options=options)
    schema = schema_objects(sources[0].meta)
    entries = tuple(file_entry(s.meta, s.meta.path.rpartition("/")[2], schema=schema) for s in sources)
    publish(place, GenerationManifest(1, new_commit_id(), entries, 2, schema))
    append(url, rows(2, 5), storage_options=options)
    with Appender(url, shard_size=2, storage_options=options) as appender:
        appender.write(rows(5, 8))
    newest = newest_generation(place)
    assert newest is not None
    assert (newest.generation, newest.n_rows) == (3, 8)
    assert [entry.path for entry in newest.files] == [f"shard_{i:05d}.cstore" for i in range(4)]
    members = manifest.member_locations(newest, place)
    assert [member.path for member in members] == [f"{bucket}/d/shard_{i:05d}.cstore" for i in range(4)]


def test_second_publisher_gets_a_conflict_whatever_the_store_says(store: Any) -> None:
    bucket, options = store
    place = locate(f"s3://{bucket}/d", storage_options=options)
    first = GenerationManifest(1, new_commit_id(), (FileEntry("a.cstore", 1, 1, 1),), 1)
    publish(place, first)
    publish(place, first)  # a retry of the same commit
    with pytest.raises(CommitConflictError):
        publish(place, GenerationManifest(1, new_commit_id(), (), 0))
    assert newest_generation(place) == first


def test_vacuum(store: Any) -> None:
    bucket, options = store
    url = f"s3://{bucket}/d"
    for name in ("part-0-a.cstore", "part-1-b.cstore"):
        store_file(rows(0, 1), f"{url}/{name}", storage_options=options)
    place = locate(url, storage_options=options)
    publish(place, GenerationManifest(1, new_commit_id(), (FileEntry("part-0-a.cstore", 1, 1, 1),), 1))
    assert vacuum(url, storage_options=options) == []
    assert vacuum(url, older_than_seconds=0, storage_options=options) in (
        [],
        ["part-1-b.cstore"],
    )  # whole seconds
