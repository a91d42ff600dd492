"""Whole columns of decoded files on the shortest road: the same values, views where they stand, damage told as ever."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import colstore_io as cs
from colstore_io import ready, threads
from colstore_io.errors import FormatError

N = 50_000
RNG = np.random.default_rng(0)
COLUMNS: dict[str, Any] = {
    "steps": np.cumsum(RNG.integers(0, 50, N)),
    "noise": RNG.integers(-(1 << 62), 1 << 62, N),
    "ramp": np.arange(N) * 1.0001,
    "small": RNG.integers(0, 100, N).astype(np.int8),
    "flags": RNG.integers(0, 2, N).astype(bool),
    "text": pa.array([f"id-{i}" for i in range(N)]),
    "holes": pa.array(np.arange(N), mask=np.arange(N) % 3 == 0),
    "single": RNG.random(N).astype(np.float32),
}
PLAIN = [name for name, column in COLUMNS.items() if isinstance(column, np.ndarray)]
SHORT = [name for name in PLAIN if name != "flags"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ready") / "t.abcd"
    cs.store(COLUMNS, path, row_group_size=20_000)
    return path


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One row group."""
    path = tmp_path_factory.mktemp("ready") / "one.abcd"
    cs.store(COLUMNS, path)
    return path


def road(table: Any, name: str) -> ready.ReadyColumn | None:
    source = table.readable_source()
    return ready.ready_column(source, source.parts_by_name[name])


@pytest.mark.parametrize("workers", [1, 2])
def test_values_are_those_that_were_stored_at_every_read(path: Path, one: Path, workers: int) -> None:
    for file in (path, one):
        with cs.open(file, max_workers=workers) as table:
            for name in PLAIN:
                for _ in range(2):
                    np.testing.assert_array_equal(table[name].array(), COLUMNS[name])
                    np.testing.assert_array_equal(
                        table[name].arrow().to_numpy(zero_copy_only=False), COLUMNS[name]
                    )
                out = np.zeros(N, COLUMNS[name].dtype)
                assert table[name].array(out=out) is out
                np.testing.assert_array_equal(out, COLUMNS[name])
            whole = table.dict()
            arrow = table.arrow()
            with table.scoped() as lent:
                for name, column in COLUMNS.items():
                    for found in (whole[name], arrow[name], lent[name]):
                        assert (
                            pa.array(found).equals(pa.array(column))
                            if isinstance(found, np.ndarray)
                            else (found.to_pylist() == pa.array(column).to_pylist())
                        )
            assert {name for name in COLUMNS if road(table, name)} == set(SHORT)


def test_long_columns_are_shared_by_threads(tmp_path: Path) -> None:
    n = 600_000
    columns = {
        "noise": np.random.default_rng(3).integers(-(1 << 62), 1 << 62, n),
        "same": np.full(n, 7.5),
        "steps": np.arange(n) * 3,
        "walk": np.cumsum(np.random.default_rng(4).integers(0, 1000, n)),
    }
    path = tmp_path / "t.abcd"
    cs.store(columns, path)
    before = threads.budget()
    threads.set_budget(4)
    try:
        with cs.open(path, max_workers=4) as table:
            for name, column in columns.items():
                np.testing.assert_array_equal(table[name].array(), column)
                np.testing.assert_array_equal(table[name].arrow().to_numpy(), column)
    finally:
        threads.set_budget(before)


def test_arrays_are_the_callers_own(one: Path) -> None:
    with cs.open(one) as table:
        for name in PLAIN:
            first = table[name].array()
            first[:] = 0
            np.testing.assert_array_equal(table[name].array(), COLUMNS[name])


def test_values_stored_as_they_are_in_memory_are_looked_at_where_they_are(one: Path, path: Path) -> None:
    with cs.open(one) as table:
        for name in ("noise",):
            view = table[name].array(copy=False)
            assert not view.flags.writeable
            assert view.flags.aligned
            np.testing.assert_array_equal(view, COLUMNS[name])
            np.testing.assert_array_equal(table[10:30:3, name].array(copy=False), COLUMNS[name][10:30:3])
            shared = np.asarray(table[name].arrow().buffers()[1])
            assert shared.ctypes.data == view.ctypes.data
        for name in ("steps", "ramp", "flags", "single"):
            with pytest.raises(ValueError, match="are decoded"):
                table[name].array(copy=False)
        kept = table["noise"].array(copy=False)
    np.testing.assert_array_equal(kept, COLUMNS["noise"])  # closing takes nothing away
    with cs.open(path) as table:
        with pytest.raises(ValueError, match="multiple"):
            table["noise"].array(copy=False)
        np.testing.assert_array_equal(
            table[20_000:30_000, "noise"].array(copy=False), COLUMNS["noise"][20_000:30_000]
        )
        assert table["noise"].arrow().num_chunks == 3


def test_files_that_are_not_mapped_have_no_short_road(one: Path) -> None:
    with cs.open(one, mmap=False) as table:
        assert road(table, "noise") is None
        np.testing.assert_array_equal(table["noise"].array(), COLUMNS["noise"])
    with cs.open(io.BytesIO(one.read_bytes())) as table:
        np.testing.assert_array_equal(table["noise"].array(), COLUMNS["noise"])
    with cs.open(one.read_bytes()) as table:  # bytes are memory
        assert road(table, "noise") is not None


def test_the_numpy_backend_goes_the_ordinary_way(one: Path) -> None:
    with cs.open(one, backend="numpy") as table:
        assert road(table, "noise") is None
        np.testing.assert_array_equal(table["steps"].array(), COLUMNS["steps"])


@pytest.mark.parametrize("name", ["ramp", "steps"])
def test_damage_is_told_as_by_the_ordinary_way(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.abcd"
    cs.store({name: COLUMNS[name]}, path, compression="flate", block_size=8192)
    with cs.open(path) as table:
        source = table.readable_source()
        ((offset, length),) = source.plan.decoders[0].ranges(0, [0])
    data = bytearray(path.read_bytes())
    at = offset + length - 3000
    data[at : at + 40] = bytes(40)
    path.write_bytes(data)
    with cs.open(path) as table:
        for _ in range(2):
            with pytest.raises(FormatError, match="block"):
                table[name].array()
            with pytest.raises(FormatError, match="block"):
                table[name].arrow()
            with pytest.raises(FormatError, match="block"):
                table.dict()


def test_a_header_that_breaks_a_rule_is_told_as_by_the_ordinary_way(tmp_path: Path) -> None:
    path = tmp_path / "t.abcd"
    cs.store({"c": COLUMNS["noise"]}, path)
    with cs.open(path) as table:
        ((offset, _),) = table.readable_source().plan.decoders[0].ranges(0, [0])
    data = bytearray(path.read_bytes())
    data[offset + 6] ^= 8  # its raw length
    path.write_bytes(data)
    with cs.open(path) as table:
        with pytest.raises(FormatError, match="raw bytes"):
            table["c"].array()


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.abcd"
    cs.store({"c": COLUMNS["noise"]}, path)
    with cs.open(path) as table:
        table["c"].array()
        with open(path, "r+b") as file:
            file.truncate(1000)
        with pytest.raises(FormatError):
            table["c"].array()


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])
def test_the_default_aligns_what_can_be_looked_at(tmp_path: Path, kind: str) -> None:
    noise = RNG.integers(0, 256, 8 * 6000, np.uint8)
    values = noise[: 6000 * np.dtype(kind).itemsize].view(kind)
    path = tmp_path / "t.abcd"
    names = {f"{number}-{'x' * number}": values for number in range(3)}
    cs.store({**names, "t": pa.array(["a", "bc", None] * 2000)}, path, row_group_size=2500)
    with cs.open(path) as table:
        ready_columns = [road(table, name) for name in names]
        assert all(
            chunk.view is not None
            for column in ready_columns
            for _, chunk in column.chunks
            if chunk.n_rows == 2500
        )  # type: ignore[union-attr]
        for name in names:
            np.testing.assert_array_equal(table[name].array(), values)
    assert cs.verify(path) == {str(path): []}


def test_files_as_the_original_writes_them_have_no_slack(tmp_path: Path) -> None:
    path = tmp_path / "t.abcd"
    for options in ({"compression": "none", "encoding": "plain"}, {"optimize": "fast"}):
        cs.store({"a": COLUMNS["small"], "noise": COLUMNS["noise"]}, path, mode="recreate", **options)
        with cs.open(path) as table:
            decoder = table.readable_source().plan.decoders[0]
            ((first, length), (second, _)) = decoder.ranges(0, [0, 1])
            assert first == 5
            data = path.read_bytes()[first : first + length]
            n_bitmap, _, n_data, n_blocks = (
                int.from_bytes(data[at : at + 4], "little") for at in (2, 6, 10, 14)
            )
            assert second == first + 18 + 8 * n_blocks + n_bitmap + n_data
