"""Long ranges that are not in memory: read past the mapping, with the results of a read over it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import colstore_io as cs
from colstore_io import cold, config, gather, streaming
from colstore_io.selection import Range

ROOT = Path(__file__).resolve().parents[1]
N = 50_000


@pytest.fixture
def _everything_is_cold_and_long(monkeypatch):
    monkeypatch.setattr(cold, "LONG_BYTES", 0)
    monkeypatch.setattr(cold, "_looks_resident", lambda *arguments: False)
    monkeypatch.setattr(streaming, "LEAST_RUN_BYTES", 0)
    monkeypatch.setattr(streaming, "CALL_BYTES", 10_000)
    config.set_populate_policy("read")
    yield
    config.set_populate_policy("auto")


@pytest.fixture
def used(monkeypatch):
    """How often a range was read past the mapping."""
    calls = []
    real = streaming.read_range

    def counted(*arguments):
        done = real(*arguments)
        calls.append(done)
        return done

    monkeypatch.setattr(streaming, "read_range", counted)
    return calls


def frame(first=0, n=N):
    rows = np.arange(first, first + n)
    return pd.DataFrame(
        {
            "a": rows.astype("f8"),
            "b": rows.astype("i2"),
            "text": rows.astype("U7"),
            "some": pd.array(np.where(rows % 3, rows, -1), dtype="Int32").copy(),
            "when": rows.astype("datetime64[s]"),
        }
    )


@pytest.mark.usefixtures("_everything_is_cold_and_long")
@pytest.mark.parametrize("records", [1, 5])
@pytest.mark.parametrize("rows", [slice(None), slice(3, N - 3), slice(9_990, 10_010), slice(N - 1, N)])
def test_ranges_are_those_of_the_mapping(tmp_path, used, records, rows):
    data = frame()
    data.loc[::5, "some"] = pd.NA
    each = N // records
    with cs.create(tmp_path / "t.cstore", nullable=["some"], string_width={"text": 7}) as writer:
        for first in range(0, N, each):
            writer.write(data[first : first + each])
    with cs.open(tmp_path / "t.cstore") as table:
        found = table[rows].frame()
    assert used
    assert all(used)
    with cs.open(tmp_path / "t.cstore", mmap=False) as table:
        pd.testing.assert_frame_equal(table[rows].frame(), found)
    config.set_populate_policy("none")
    with cs.open(tmp_path / "t.cstore") as table:
        pd.testing.assert_frame_equal(table[rows].frame(), found)
    np.testing.assert_array_equal(found["a"], data["a"][rows])


@pytest.mark.usefixtures("_everything_is_cold_and_long")
def test_several_files_and_foreign_byte_order(tmp_path, used):
    paths = []
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.cstore"))
        cs.store({"x": np.arange(number * 1000, number * 1000 + 1000, dtype=">i4")}, paths[-1]).close()
    with cs.open(paths) as table:
        found = table["x"].array()
    assert used == [True]
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, np.arange(3000))


@pytest.mark.usefixtures("_everything_is_cold_and_long")
def test_what_exists_already_is_filled(tmp_path, used):
    cs.store({"x": np.arange(N)}, tmp_path / "t.cstore").close()
    out = np.zeros(N, "i8")
    with cs.open(tmp_path / "t.cstore") as table:
        assert table["x"].array(out=out) is out
    assert used == [True]
    np.testing.assert_array_equal(out, np.arange(N))


@pytest.mark.usefixtures("_everything_is_cold_and_long")
def test_a_file_that_was_cut_is_named(tmp_path):
    path = tmp_path / "t.cstore"
    cs.store({"x": np.arange(N)}, path).close()
    with cs.open(path) as table:
        source = table.source
        source.mappings()
        os.truncate(path, 4096)
        out = np.zeros(N, "i8")
        with pytest.raises(cs.FormatError, match=r"t\.cstore"):
            gather.read(source, Range(0, 1, N), ((0, False),), [out])
        with pytest.raises(
            cs.FormatError, match=r"t\.cstore.*cut short"
        ):  # cut between that look and the read
            streaming.read_range(source, Range(0, 1, N), ((0, False),), [out])


@pytest.mark.parametrize("spare", [1 << 10, 1 << 40])
def test_only_tables_larger_than_the_memory_to_spare_are_read_so(tmp_path, monkeypatch, used, spare):
    monkeypatch.setattr(cold, "LONG_BYTES", 0)
    monkeypatch.setattr(cold, "_looks_resident", lambda *arguments: False)
    monkeypatch.setattr(cold.paging, "memory_limit", lambda: spare)
    monkeypatch.setattr(cold, "_limit", (0.0, 0))
    cs.store({"x": np.arange(N)}, tmp_path / "t.cstore").close()
    with cs.open(tmp_path / "t.cstore") as table:
        np.testing.assert_array_equal(table["x"].array(), np.arange(N))
    assert used == ([True] if spare < N else [])


def test_short_segments_are_left_to_the_mapping(tmp_path):
    with cs.create(tmp_path / "t.cstore") as writer:
        for first in range(0, N, 1000):
            writer.write({"x": np.arange(first, first + 1000)})
    out = np.zeros(N, "i8")
    with cs.open(tmp_path / "t.cstore") as table:
        assert not streaming.read_range(table.source, Range(0, 1, N), ((0, False),), [out])
    assert not out.any()


@pytest.mark.slow
def test_a_file_of_four_times_the_memory_is_read_once(tmp_path):
    """In a control group that holds a quarter of the file; nothing is read twice."""
    spec = importlib.util.spec_from_file_location("repository_confined", ROOT / "benchmarks" / "confined.py")
    assert spec is not None
    assert spec.loader is not None
    confined = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = confined
    spec.loader.exec_module(confined)
    if not confined.available():
        pytest.skip("no control group of memory can be made here")
    rows, names, size = 1 << 20, [f"c{i}" for i in range(16)], 16 * (8 << 20)
    cs.store({name: np.arange(rows) + i for i, name in enumerate(names)}, tmp_path / "t.cstore").close()
    code = (
        "import os, sys, colstore_io as cs\n"
        "def read_bytes():\n"
        "    return int(next(l for l in open('/proc/self/io') if l.startswith('read_bytes')).split()[1])\n"
        "table = cs.open(sys.argv[1])\n"
        "table[:10].dict()\n"
        "with open(sys.argv[1], 'rb') as file:\n"
        "    os.fsync(file.fileno())\n"
        "del table\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "with open(sys.argv[1], 'rb') as file:\n"
        "    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)\n"
        "table, before, total = cs.open(sys.argv[1]), read_bytes(), 0\n"
        "for begin in range(0, len(table), 1 << 16):\n"
        "    piece = table[begin : begin + (1 << 16)].dict()\n"
        "    total += sum(int(values.sum()) for values in piece.values())\n"
        "print(total, read_bytes() - before)\n"
    )
    with confined.confined(size // 4) as group:
        with subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "t.cstore")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            group.add(child.pid)
            child.stdin.write("\n")
            child.stdin.flush()
            total, read = map(int, child.stdout.readline().split())
        peak = group.peak()
    assert total == sum(rows * (rows - 1) // 2 + i * rows for i in range(16))
    assert read < 1.3 * size
    assert peak is None or peak <= size // 4 + (1 << 20)
