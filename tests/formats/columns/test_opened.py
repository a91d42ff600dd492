"""Local files opened by one call: what is ordinary is seen as by the long road, everything else is left to it."""

from __future__ import annotations

import copy
import json
import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from formats.columns.columns_builder import chunk, file_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io import opening
from colstore_io.dataset import Source
from colstore_io.deferred import DeferredSource
from colstore_io.errors import ColstoreError
from colstore_io.formats import READ_DEFAULTS
from colstore_io.formats.columns import opened
from colstore_io.formats.columns.gob import PREFIX, usual_types
from colstore_io.kernels import footers
from colstore_io.storage import LocalOptions, open_file
from colstore_io.storage.mapping import DESCRIPTOR_CAPACITY

TABLE = {"n": np.arange(9), "t": [f"row {i}" for i in range(9)], "f": np.arange(9) / 8}


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "t.abcd"
    cs.store(TABLE, path, row_group_size=4)
    return str(path)


def quick(path: Any) -> opened.OpenedFile | None:
    return opened.open_local(str(path), str(path), READ_DEFAULTS, LocalOptions())


def long_meta(path: Any) -> Any:
    from colstore_io.formats.columns import FORMAT

    data = Path(path).read_bytes()
    return FORMAT.read_metadata([open_file(data)[0]], [memoryview(data)])[0]


def facts(meta: Any) -> Any:
    decoder = meta.decoder
    return repr((
        meta.layout, meta.schema, meta.record_rows.tolist(), meta.body_start.tolist(), meta.committed_end,
        meta.fingerprint, meta.file_size, decoder.__getstate__()[1:],
        {name: [x.tolist() for x in (meta.statistics.minimum[name], meta.statistics.maximum[name])]
         for name in meta.statistics.minimum},
    ))  # fmt: skip


def verdict(source: Any, name: str) -> str:
    try:
        with cs.open(source) as table:
            return repr((table.schema, table.n_rows))
    except ColstoreError as exc:
        return f"{type(exc).__name__}: {exc}".replace(name, "FILE").replace("<bytes>", "FILE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts descriptors in /proc")


def test_golden_files_are_seen_as_by_the_long_road(shared):
    root = shared / "vectors" / "columns"
    taken = 0
    for entry in json.loads((root / "manifest.json").read_text())["files"]:
        found = quick(root / entry["file"])
        meta = long_meta(root / entry["file"])
        if found is not None:
            assert meta.layout == "1"
            assert (found.schema, found.n_rows) == (meta.schema, meta.n_rows)
            file, own = found.settle()
            assert facts(own) == facts(meta)
            file.close()
            taken += 1
    assert taken > 40


def test_malformed_files_have_the_verdicts_of_the_long_road(shared, tmp_path):
    root = shared / "vectors" / "columns"
    for entry in json.loads((root / "manifest.json").read_text())["malformed"]:
        data = (root / entry["file"]).read_bytes()
        path = tmp_path / "x.abcd"
        path.write_bytes(data)
        assert verdict(str(path), str(path)) == verdict(data, str(path)), entry["file"]


GROUPS = [(3, [(chunk(1, np.arange(3).tobytes()), {"minimum": bytes(8)})])] * 2
SOUND = file_of([(b"c", 5, False)], GROUPS)


@st.composite
def damaged(draw: Any) -> bytes:
    data = bytearray(SOUND)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data) - 1))
        data[at] = draw(st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 0x7F, 0x80, 0xF8, 0xFF])))
    if draw(st.integers(0, 5)) == 0:
        cut = draw(st.integers(0, len(data)))
        del data[cut : cut + draw(st.integers(1, 40))]
    return bytes(data)


@given(damaged())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_has_the_verdict_of_the_long_road(tmp_path, data):
    path = tmp_path / "x.abcd"
    path.write_bytes(data)
    found = quick(path)
    try:
        meta = long_meta(path)
    except ColstoreError:
        assert found is None
        return
    if found is not None:
        file, own = found.settle()
        assert facts(own) == facts(meta)
        file.close()


@pytest.mark.parametrize("max_rows", [3, 4])
def test_the_limit_on_rows_is_the_callers(path, max_rows):
    if max_rows == 4:
        with cs.open(path, max_rows=max_rows) as table:
            assert table.n_rows == 9
    else:
        with pytest.raises(cs.FormatError, match="max_rows"):
            cs.open(path, max_rows=max_rows)


def test_nothing_but_the_schema_is_made_by_an_open(path, monkeypatch):
    def refuse(*args: Any) -> Any:
        raise AssertionError("a plan was made")

    with monkeypatch.context() as patch:
        patch.setattr("colstore_io.deferred.build_plan", refuse)
        patch.setattr(opening, "build_plan", refuse)
        with cs.open(path) as table:
            assert table.schema.names == ["n", "t", "f"]
            assert (len(table), table.columns, table.shape) == (9, ["n", "t", "f"], (9, 3))
        with cs.open(path) as other:
            assert other.schema is table.schema
    assert table.n_records == 3  # of the closed file, too
    with pytest.raises(ValueError, match="is closed"):
        table["n"].array()


def test_what_is_read_is_what_was_opened(path):
    with cs.open(path) as table:
        cs.store({"other": np.arange(3)}, path, mode="recreate")
        assert table["n"].array().tolist() == list(range(9))
        assert table["t"].array().to_pylist() == TABLE["t"]


def test_a_relative_name_is_of_the_folder_at_the_open(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with cs.open("t.abcd") as table:
        monkeypatch.chdir("/")
        again = pickle.loads(pickle.dumps(table))
        assert table.path == "t.abcd"
        assert again["n"].array().tolist() == table["n"].array().tolist() == list(range(9))


@needs_proc
def test_descriptors_are_closed_and_bounded(path):
    cs.open(path).close()
    before = descriptors()
    for _ in range(3):
        with cs.open(path) as table:
            pass
        with cs.open(path) as table:
            table["n"].array()
        cs.open(path)  # never closed, and gone at once
    del table
    assert descriptors() == before
    many = [cs.open(path) for _ in range(200)]
    assert descriptors() <= before + 64 + DESCRIPTOR_CAPACITY
    assert all(table["n"].array().sum() == 36 for table in many)
    for table in many:
        table.close()
    del many, table
    assert descriptors() == before


def test_threads_settle_a_table_once(path):
    for _ in range(20):
        table = cs.open(path)
        barrier = threading.Barrier(4)
        seen: list[Any] = []

        def look(table: Any = table, barrier: Any = barrier, seen: Any = seen) -> None:
            barrier.wait()
            seen.append((table.source.plan, table["f"].array().tolist()))

        workers = [threading.Thread(target=look) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len({id(plan) for plan, _ in seen}) == 1
        assert all(values == TABLE["f"].tolist() for _, values in seen)
        table.close()


def test_a_settled_table_is_as_any_other(path):
    with cs.open(path) as table:
        source = table.source
        assert type(source) is DeferredSource
        assert source.plan.n_rows == source.n_rows == table.n_rows
        assert type(source) is Source
    for act in (copy.copy, lambda source: pickle.loads(pickle.dumps(source))):
        with cs.open(path) as table:
            source = table.source
            other = act(source)
            assert type(other) is type(source) is Source
            assert other.n_rows == table.n_rows


def test_requests_are_counted(path):
    with cs.open(path) as table:
        assert table.io.requests == 1  # the file is shorter than what is read of its end
        assert table.io.bytes == os.path.getsize(path)


def test_options_and_settings_reach_a_deferred_table(path):
    with cs.open(path, mmap=False, backend="numpy", max_workers=1, errors="surrogateescape") as table:
        assert (table.backend, table.max_workers) == ("numpy", 1)
        assert table.schema["t"].logical == "binary"
        assert table["t"].array().type == pa.binary()
        assert table.io.requests > 1
    with cs.open(path) as table:
        assert table.schema["t"].logical == "string"
        with pytest.raises(AttributeError):
            table.source.no_such_thing  # noqa: B018
        assert not hasattr(table.source, "nothing")


@pytest.mark.parametrize("name", ["missing.abcd", "folder.abcd", "a\0b.abcd", "empty.abcd", "text.abcd"])
def test_what_is_no_columns_file_is_left_to_the_long_road(tmp_path, name):
    (tmp_path / "folder.abcd").mkdir()
    (tmp_path / "empty.abcd").write_bytes(b"")
    (tmp_path / "text.abcd").write_bytes(b"ABCD" * 300)
    place = f"{tmp_path}/{name}"
    assert footers.open_footer(place, usual_types(), PREFIX, 1 << 32) is None
    if name == "folder.abcd":
        with cs.open(place) as table:
            assert table.shape == (0, 0)
    else:
        with pytest.raises((OSError, ValueError)):
            cs.open(place)


def test_defaults_are_checked_once(path, monkeypatch):
    cs.open(path).close()
    monkeypatch.setattr(opening.OpenOptions, "_checked", lambda *a: pytest.fail("checked again"))
    cs.open(path).close()


def test_a_footer_file_cannot_be_made_or_pickled(path):
    found = footers.open_footer(path, usual_types(), PREFIX, 1 << 32)
    assert found is not None
    with pytest.raises(TypeError):
        pickle.dumps(found)
    os.close(found.take_descriptor())
    assert found.take_descriptor() == -1
    empty = footers.FooterFile()
    assert (empty.n_rows, empty.take_descriptor()) == (0, -1)
    empty.close()
