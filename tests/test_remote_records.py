"""Files of many records in a store: what opening them asks for, and that nothing follows from a wrong assumption."""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import CountingFileSystem, new_store

import colstore_io as cs
from colstore_io.integrations.dask import read_colstore, read_colstore_array

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")  # of Dask's reader of Parquet

ROWS = 20_000
PARTS = 16
UNIFORM = [ROWS] * (PARTS - 1) + [ROWS - 7]


def table_of(records: Sequence[int], names: Sequence[str] = "abcdefgh") -> dict[str, np.ndarray[Any, Any]]:
    n = sum(records)
    return {name: np.arange(n, dtype=np.float64) * (k + 1) for k, name in enumerate(names)}


def written(path: Path, data: dict[str, Any], records: Sequence[int], *, statistics: bool = True) -> bytes:
    with cs.recreate(path, statistics=statistics) as writer:
        first = 0
        for rows in records:
            writer.write({name: values[first : first + rows] for name, values in data.items()})
            first += rows
    return path.read_bytes()


class Served:
    """One object in a store that counts, and the same file here."""

    def __init__(self, path: Path, content: bytes) -> None:
        name, self.store = new_store()
        self.store.put("b/t.cstore", content)
        self.path = path
        self.fs = CountingFileSystem(store=name, skip_instance_cache=True)

    def open(self) -> Any:
        return cs.open("b/t.cstore", filesystem=self.fs)

    def frame(self, **options: Any) -> Any:
        return read_colstore("b/t.cstore", filesystem=self.fs, blocksize=None, **options)

    def requests(self) -> int:
        found = len(self.store.log)
        self.store.log.clear()
        return found


@pytest.fixture
def served(tmp_path: Path) -> Served:
    path = tmp_path / "t.cstore"
    return Served(path, written(path, table_of(UNIFORM), UNIFORM))


def test_a_file_of_many_records_is_opened_by_its_size_and_its_first_bytes(served: Served) -> None:
    with served.open() as table:
        assert table.n_rows == sum(UNIFORM)
        assert served.requests() == 2
        assert table["c"][ROWS * 5 + 3 : ROWS * 5 + 6].array().tolist() == [
            3.0 * (ROWS * 5 + k) for k in (3, 4, 5)
        ]
        assert served.requests() <= 6  # headers up to that of the record, and the values
        table["d"][ROWS * 5 : ROWS * 5 + 10].array()
        assert served.requests() == 1  # which has been looked at
        assert np.array_equal(table["h"].array(), table_of(UNIFORM)["h"])
        # What is nearer than a request costs is fetched along.
        assert served.requests() <= 2 * PARTS - 2


def test_the_first_rows_ask_for_the_columns_alone(served: Served) -> None:
    with dask.config.set(scheduler="synchronous"):
        head = served.frame().head()
    assert head.h.tolist() == [8.0 * k for k in range(5)]
    assert served.requests() <= 2 + 8


def test_a_filter_looks_at_the_records_that_can_match(served: Served) -> None:
    low = ROWS * 7 + 11
    with dask.config.set(scheduler="synchronous"):
        df = served.frame()
        found = df[(df.a >= low) & (df.a < low + 1000)].h.compute()
    assert found.tolist() == [8.0 * k for k in range(low, low + 1000)]
    assert served.requests() <= 2 + 1 + (PARTS - 1) + 2  # opening, statistics, headers, two columns


@pytest.mark.parametrize("statistics", [True, False])
def test_parquet_takes_more_requests_for_the_same(served: Served, statistics: bool, tmp_path: Path) -> None:
    data = table_of(UNIFORM)
    served.store.put("b/t.cstore", written(tmp_path / "p.cstore", data, UNIFORM, statistics=statistics))
    peer = tmp_path / "t.parquet"
    pq.write_table(pa.table(data), peer, compression="none", row_group_size=ROWS, write_statistics=statistics)
    served.store.put("b/t.parquet", peer.read_bytes())
    low = ROWS * 7 + 11
    work = {
        "open": lambda df: df.npartitions,
        "head": lambda df: df.head().h.sum(),
        "column": lambda df: df.c.sum().compute(),
        "filter": lambda df: df[(df.a >= low) & (df.a < low + 1000)].h.sum().compute(),
    }
    with dask.config.set(scheduler="synchronous"):
        for name, run in work.items():
            served.requests()
            found = run(served.frame())
            ours = served.requests()
            want = run(dd.read_parquet("b/t.parquet", filesystem=served.fs, split_row_groups=True))
            assert found == pytest.approx(want), name
            assert ours <= served.requests(), name


def test_tasks_need_not_look_at_records_again(served: Served) -> None:
    df = served.frame(columns=["c"])
    served.requests()
    part = df.expr.part(9)
    assert served.store.count("range") == PARTS - 1  # headers, in one round for all tasks
    df.expr.part(5)
    assert served.requests() == PARTS - 1
    travelled = pickle.loads(pickle.dumps(part))
    assert df.expr.reader(travelled)["c"].tolist() == table_of(UNIFORM)["c"][ROWS * 9 : ROWS * 10].tolist()
    assert (served.store.count("info"), served.store.count("range")) == (1, 1)
    assert len(pickle.dumps(part)) < 2000


# ----------------------------------------------------------------------------------------------------------
# Files that look as if their records were of one size, and are not

MISLEADING = {
    "two swapped": [10, 5, 15, 10],
    "the last shorter": [10, 4, 16, 10, 3],
    "far apart": [10, 10, 10, 19, 1, 10, 10, 2],
    "some without rows": [10, 0, 20, 10],
}
FEW = ("a", "b")


@pytest.fixture(params=list(MISLEADING))
def misleading(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    # Record headers must not be in the first bytes, which would tell the truth.
    records = MISLEADING[request.param]
    path = tmp_path / "t.cstore"
    content = written(path, table_of(records, FEW), records)
    (data_offset,) = [content.index(b"REC\x01")]
    import colstore_io.storage as storage

    monkeypatch.setattr(storage, "HEAD_BYTES", data_offset + 40)
    return Served(path, content)


def test_a_value_that_looks_like_a_header_shifts_no_rows(tmp_path: Path) -> None:
    """It stands where the header of record 2 would be if records were equal, and says what that would say."""
    records = [3000, 6000, 1500, 1500]
    head = struct.pack("<4sqqq", b"REC\x01", 2, 3000, 0)
    values = np.array([b"row%05d" % row for row in range(sum(records))], "S32")
    values[6000] = head + struct.pack("<I", zlib.crc32(head))
    served = Served(tmp_path / "t.cstore", written(tmp_path / "t.cstore", {"v": values}, records))
    with served.open() as table:
        assert table["v"][6001:6003].array().tolist() == [b"row06001", b"row06002"]
    with served.open() as table:
        np.testing.assert_array_equal(table["v"].array(), values)
    with dask.config.set(scheduler="synchronous"):
        assert served.frame().v.partitions[2].compute().tolist()[1] == values[6001]


def test_columns_of_misleading_files_are_right(misleading: Served) -> None:
    with misleading.open() as table, cs.open(misleading.path) as here:
        n = here.n_rows
        assert table.readable_source().files[0].guard is not None  # else there is nothing to be misled by
        assert table.n_rows == n
        for first in range(n):
            for stop in (first + 1, min(first + 7, n), n):
                assert table["b"][first:stop].array().tolist() == here["b"][first:stop].array().tolist()
        assert table["b"][::-1].array().tolist() == here["b"][::-1].array().tolist()
        picked = np.array([n - 1, 0, -1, 11, 4])
        assert table["b"][picked].array().tolist() == here["b"][picked].array().tolist()
        mask = np.arange(n) % 3 == 1
        assert table["a"][mask].array().tolist() == here["a"][mask].array().tolist()


def test_filters_of_misleading_files_are_right(misleading: Served) -> None:
    with cs.open(misleading.path) as here:
        n = here.n_rows
        for low in range(n):
            with misleading.open() as table:
                want = here.query(f"a >= {low} and a < {low + 4}")["b"].array().tolist()
                assert table.query(f"a >= {low} and a < {low + 4}")["b"].array().tolist() == want
                assert table["b"].array().tolist() == here["b"].array().tolist()


def test_dask_over_misleading_files_is_right(misleading: Served) -> None:
    with cs.open(misleading.path) as here:
        frame = here.frame()
    with dask.config.set(scheduler="synchronous"):
        df = misleading.frame()
        assert df.b.compute().tolist() == frame.b.tolist()
        assert df.b.sum().compute() == frame.b.sum()
        assert df.partitions[2].b.compute().tolist() == frame.b[20:30].tolist()
        for low in range(0, len(frame), 3):
            df = misleading.frame()
            found = df[(df.a >= low) & (df.a < low + 4)].compute()
            assert found.b.tolist() == frame.b[(frame.a >= low) & (frame.a < low + 4)].tolist()
            assert found.index.tolist() == list(range(low, min(low + 4, len(frame))))
        early = misleading.frame(filters=[("a", ">=", 12), ("a", "<", 17)])
        assert early.b.compute().tolist() == [2.0 * k for k in range(12, 17)]
        assert early.b.compute(scheduler="threads").tolist() == [2.0 * k for k in range(12, 17)]
        indexed = misleading.frame(index="a")
        assert indexed.loc[13:16].b.compute().tolist() == [26.0, 28.0, 30.0, 32.0]
        array = read_colstore_array("b/t.cstore", "b", filesystem=misleading.fs, blocksize=80)
        assert array.compute().tolist() == frame.b.tolist()
        for number in range(df.npartitions):
            part = pickle.loads(pickle.dumps(misleading.frame().expr.part(number)))
            begin = 10 * number
            assert misleading.frame().expr.reader(part).b.tolist() == frame.b[begin : begin + 10].tolist()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    first=st.integers(1, 9),
    others=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    kinds=st.lists(st.sampled_from(["i1", "<i2", "<i4", "<f8", "S3"]), min_size=1, max_size=3),
    statistics=st.booleans(),
    low=st.integers(0, 40),
)
def test_files_of_any_records_read_alike_here_and_there(
    tmp_path: Path, first: int, others: list[int], kinds: list[str], statistics: bool, low: int
) -> None:
    import colstore_io.storage as storage

    records = [first, *others]
    n = sum(records)
    data = {f"c{k}": np.arange(n).astype(kind) for k, kind in enumerate(kinds)}
    data["x"] = np.arange(n, dtype=np.int16)
    path = tmp_path / "any.cstore"
    content = written(path, data, records, statistics=statistics)
    served = Served(path, content)
    before = storage.HEAD_BYTES
    storage.HEAD_BYTES = content.index(b"REC\x01") + 40
    try:
        with served.open() as table:
            names = table.query(f"x >= {low} and x <= {low + 5}")["x"].array().tolist()
            assert names == [k for k in range(n) if low <= k <= low + 5]
            for name, values in data.items():
                assert np.array_equal(table[name].array(), values)
    finally:
        storage.HEAD_BYTES = before


def test_a_damaged_record_is_an_error_that_names_it(served: Served) -> None:
    content = bytearray(served.path.read_bytes())
    at = content.index(b"REC\x01", content.index(b"REC\x01") + 1)
    content[at + 12] ^= 1
    served.store.put("b/t.cstore", bytes(content))
    with served.open() as table:
        assert table["a"][:10].array().tolist() == list(range(10))
        with pytest.raises(cs.FormatError, match="record 1"):
            table["a"][ROWS : ROWS + 1].array()
        with pytest.raises(cs.FormatError, match="record 1"):
            table["a"].array()


def test_a_file_that_does_not_end_with_its_last_record_is_walked(served: Served, tmp_path: Path) -> None:
    content = written(tmp_path / "p.cstore", table_of(UNIFORM), UNIFORM, statistics=False)
    served.store.put("b/t.cstore", content + b"more")
    with served.open() as table:
        assert served.requests() == 2 + PARTS - 1
        assert table["b"][-1:].array().tolist() == [2.0 * (sum(UNIFORM) - 1)]


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        ([10_000, 20_000] * 20, 4),
        ([10_000] * 20 + [7] + [10_000] * 20, 3),
        ([12_000 + 500 * k for k in range(40)], 4),
        (([10_000] * 6 + [3]) * 6, 6),
    ],
)
def test_records_of_unequal_sizes_are_found_in_few_rounds(
    tmp_path: Path, pattern: list[int], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from colstore_io.formats.cstore import records

    rounds = []
    read = records.read_ranges
    monkeypatch.setattr(records, "read_ranges", lambda asked: (rounds.append(len(asked)), read(asked))[1])
    data = {"x": np.arange(sum(pattern), dtype=np.float64)}
    served = Served(tmp_path / "t.cstore", written(tmp_path / "t.cstore", data, pattern, statistics=False))
    with served.open() as table:
        io = table.io.as_dict()
        assert table.n_records == len(pattern)
        assert len(rounds) <= most
        assert io["requests"] == served.store.count("range")
        assert io["requests"] <= 1 + sum(rounds) <= 2 + 4 * len(pattern) + 64
        assert served.requests()
        assert np.array_equal(table["x"].array(), data["x"])
        assert len(rounds) <= most  # and never again


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    records=st.lists(st.sampled_from([0, 5, 4000, 4000, 9000, 40_000]), min_size=1, max_size=8),
    low=st.integers(0, 100_000),
    count=st.integers(1, 30_000),
    names=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True),
)
def test_a_range_of_some_columns_asks_for_its_chunks_and_for_few_bytes_between(
    tmp_path: Path, records: list[int], low: int, count: int, names: list[str]
) -> None:
    data = table_of(records)
    n = sum(records)
    low = min(low, n)
    high = min(low + count, n)
    served = Served(tmp_path / "t.cstore", written(tmp_path / "t.cstore", data, records))
    with served.open() as table:
        table.readable_source().look_at(table.readable_source().plan.segments.rows > 0)
        served.requests()
        found = table[low:high, names].dict()
    for name in names:
        assert np.array_equal(found[name], data[name][low:high])
    starts = np.cumsum([0, *records])
    touched = sum(max(low, a) < min(high, b) for a, b in pairwise(starts.tolist()))
    assert served.store.count("range") <= touched * len(names)
    # Gaps of 64 KiB between chunks at most, and 768 KiB for all that are longer.
    gaps = max(0, touched * len(names) - 1) * (64 << 10)
    assert served.store.bytes_asked() <= 8 * (high - low) * len(names) + gaps + (768 << 10)


def test_references_are_made_of_places_that_were_looked_at(misleading: Served, tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    from colstore_io.integrations._zarr_tables import _records

    with misleading.open() as table, cs.open(misleading.path) as here:
        found, want = _records(table.readable_source())[0], _records(here.readable_source())[0]
    assert found.n_rows == want.n_rows
    assert (found.starts.tolist(), found.last) == (want.starts.tolist(), want.last)
