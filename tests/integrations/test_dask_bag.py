"""A log of messages is a bag of records: one item per message, decoded where it is computed."""

from __future__ import annotations

import pickle
from typing import Annotated

import dask
import fsspec
import pytest
from servers import CountingFileSystem, new_store

import colstore_io as cs
from colstore_io import colbin
from colstore_io.errors import FormatError, StaleDatasetError
from colstore_io.integrations.dask import read_colbin_bag
from colstore_io.writing.messagelog import LogWriter


@colbin.record
class Event:
    number: Annotated[colbin.i64, 1]
    user: Annotated[str, 2]
    tags: Annotated[dict[str, str], 3]


CODEC = colbin.Codec(Event)


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def write(path, numbers, *, compress=False):
    with LogWriter(path, CODEC.schema, encode=CODEC.encode, compress=compress) as log:
        for n in numbers:
            log.write(Event(n, f"user {n % 5}" + "!" * 300, {"k": str(n)}))
    return path


def record(n):
    return {"number": n, "user": f"user {n % 5}" + "!" * 300, "tags": {"k": str(n)}}


@pytest.mark.parametrize("compress", [False, True])
def test_a_bag_holds_the_messages_of_a_log_in_order(tmp_path, compress):
    path = write(tmp_path / "a.colbin", range(9000), compress=compress)
    bag = read_colbin_bag(path, blocksize="1MiB")
    assert bag.npartitions == (1 if compress else 3)
    assert bag.compute() == [record(n) for n in range(9000)]
    assert read_colbin_bag(path).npartitions == 1
    assert bag.pluck("user").frequencies().compute() == [(record(n)["user"], 1800) for n in range(5)]


def test_a_codec_gives_its_own_class(tmp_path):
    path = write(tmp_path / "a.colbin", range(5))
    wanted = [Event(n, record(n)["user"], {"k": str(n)}) for n in range(5)]
    assert read_colbin_bag(path, codec=CODEC).compute() == wanted
    assert read_colbin_bag(path, codec=Event).compute() == wanted
    with pytest.raises(TypeError, match="codec"):
        read_colbin_bag(path, codec="Event")


def test_raw_messages_are_bytes(tmp_path):
    path = write(tmp_path / "a.colbin", range(50), compress=True)
    messages = read_colbin_bag(path, raw=True).compute()
    assert [CODEC.decode(message).number for message in messages] == list(range(50))
    with pytest.raises(ValueError, match="raw"):
        read_colbin_bag(path, raw=True, codec=CODEC)


def test_many_files_are_one_bag_in_natural_order(tmp_path):
    for k in range(12):
        write(tmp_path / f"log_{k}.colbin", range(10 * k, 10 * k + 10))
    for path in (str(tmp_path / "log_*.colbin"), tmp_path, [tmp_path / f"log_{k}.colbin" for k in range(12)]):
        bag = read_colbin_bag(path)
        assert bag.npartitions == 12
        assert bag.pluck("number").compute() == list(range(120))


def test_a_log_without_messages_is_an_empty_bag(tmp_path):
    bag = read_colbin_bag(write(tmp_path / "a.colbin", []))
    assert bag.npartitions == 1
    assert bag.compute() == []


def test_a_file_of_one_message_is_a_bag_of_one(tmp_path):
    (tmp_path / "one.colbin").write_bytes(CODEC.encode_self_describing(Event(3, "x", {})))
    (found,) = read_colbin_bag(tmp_path / "one.colbin").compute()
    assert (found["number"], found["user"]) == (3, "x")
    (found,) = read_colbin_bag(tmp_path / "one.colbin", codec=Event).compute()
    assert found.number == 3


def test_a_log_of_tables_gives_each_message_whole(tmp_path):
    cs.store({"a": [1, 2, 3, 4, 5], "s": list("vwxyz")}, tmp_path / "t.colbin", row_group_size=2).close()
    items = read_colbin_bag(tmp_path / "t.colbin").compute()
    assert len(items) == 3
    assert [row["s"] for item in items for row in item] == list("vwxyz")


def test_partitions_are_read_lazily_and_carry_no_description_of_each_message(tmp_path):
    path = write(tmp_path / "a.colbin", range(9000))
    bag = read_colbin_bag(path, blocksize=None)
    assert bag.npartitions >= 3
    graph = dict(bag.dask)
    assert max(len(pickle.dumps(task)) for task in graph.values()) < 1500
    again = pickle.loads(pickle.dumps(bag))
    assert again.pluck("number").compute() == list(range(9000))
    assert read_colbin_bag(path, blocksize=None).name == bag.name


def test_threads_give_the_same(tmp_path):
    path = write(tmp_path / "a.colbin", range(9000))
    with dask.config.set(scheduler="threads", num_workers=3):
        assert read_colbin_bag(path, blocksize=None).pluck("number").sum().compute() == sum(range(9000))


def test_a_remote_log_is_read_by_ranges(tmp_path):
    path = write(tmp_path / "a.colbin", range(9000))
    name, store = new_store()
    store.put("b/a.colbin", path.read_bytes())
    fsspec.register_implementation("counting", CountingFileSystem, clobber=True)
    bag = read_colbin_bag("counting://b/a.colbin", storage_options={"store": name}, blocksize="1MiB")
    store.log.clear()
    assert len(bag.to_delayed()[1].compute()) > 100
    assert store.count("range") == 1
    assert store.count("info") == 0
    assert store.bytes_asked() <= 1 << 20


def test_a_replaced_log_is_refused_and_an_appended_one_is_not(tmp_path):
    path = write(tmp_path / "a.colbin", range(5))
    bag = read_colbin_bag(path)
    with LogWriter(path, encode=CODEC.encode) as log:
        log.write(Event(5, "later", {}))
    assert bag.pluck("number").compute() == list(range(5))
    kept = pickle.dumps(read_colbin_bag(path))
    write(tmp_path / "b.colbin", range(70, 90)).replace(path)
    with pytest.raises(StaleDatasetError):
        pickle.loads(kept).compute()


def test_damage_is_told_with_message_and_file(tmp_path):
    path = write(tmp_path / "a.colbin", range(5))
    data = bytearray(path.read_bytes())
    at = data.index(b"user 3") + 2
    data[at] ^= 1
    path.write_bytes(data)
    bag = read_colbin_bag(path)
    with pytest.raises(FormatError, match=r"a\.colbin"):
        bag.compute()


def test_other_files_and_options_are_refused(tmp_path):
    cs.store({"a": [1]}, tmp_path / "a.abcd").close()
    with pytest.raises(FormatError, match="not a log of messages"):
        read_colbin_bag(tmp_path / "a.abcd")
    path = write(tmp_path / "a.colbin", range(5))
    with pytest.raises(TypeError, match="max_rwos"):
        read_colbin_bag(path, max_rwos=3)
    with pytest.raises(FileNotFoundError):
        read_colbin_bag(tmp_path / "none.colbin")
