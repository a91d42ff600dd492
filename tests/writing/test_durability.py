"""What waits for the disk, and what does not: `config.set_durability`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disks import Disk
from kills import kill_appends

import colstore_io as cs
from colstore_io import config
from colstore_io.writing import output
from colstore_io.writing.writer import Writer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="calls are those of POSIX")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = config.get_durability()
    yield
    config.set_durability(before)


def rows(start: int = 0, n: int = 5) -> dict[str, np.ndarray]:
    return {"x": np.arange(start, start + n), "y": np.arange(n) * 0.5}


def table(folder: Path, suffix: str = ".cstore") -> Path:
    path = folder / f"t{suffix}"
    cs.store(rows(), path).close()
    return path


def stream(path: Path, mode: str) -> None:
    with Writer(path, mode) as writer:  # type: ignore[arg-type]
        writer.write(rows())
        writer.commit()
        writer.write(rows())


def update(path: Path) -> None:
    with cs.update(path) as writer:
        writer.write(rows())
        writer.commit()
        writer.write(rows())


def many_records(folder: Path) -> Path:
    path = folder / "many.cstore"
    stream(path, "create")
    return path


def directory(folder: Path, **options: Any) -> Path:
    place = folder / "d"
    for _ in range(2):
        cs.append(place, rows(), **options)
    return place


def grid(folder: Path) -> None:
    xr = pytest.importorskip("xarray")
    import colstore_io.integrations.xarray  # noqa: F401  # registers ds.colstore

    data = xr.Dataset({"z": (("t", "x"), np.arange(12.0).reshape(3, 4))}, {"t": np.arange(3)})
    data.colstore.to_colstore(folder / "g")
    data.colstore.to_colstore(folder / "g", append_dim="t")
    data.drop_vars("t").colstore.to_colstore(folder / "g", region={"t": slice(0, 3)})


def log(folder: Path) -> None:
    path = folder / "l.colbin"
    cs.store(rows(), path).close()
    update(path)


def index(folder: Path) -> None:
    path = table(folder)
    cs.index(path)
    update(path)


def dask_frame(folder: Path) -> None:
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    from colstore_io.integrations.dask import to_colstore

    frame = dd.from_pandas(pd.DataFrame(rows()), npartitions=2)
    to_colstore(frame, folder / "f")


WRITES: dict[str, Callable[[Path], Any]] = {
    "store": table,
    "store over": lambda p: cs.store(rows(), table(p), mode="recreate").close(),
    "store a stream": lambda p: cs.store(iter([rows(), rows()]), p / "s.cstore", compact=True).close(),
    "create": lambda p: stream(p / "a.cstore", "create"),
    "recreate": lambda p: stream(p / "a.cstore", "recreate"),
    "update": lambda p: update(table(p)),
    "compact": lambda p: cs.compact(many_records(p)),
    "compact elsewhere": lambda p: cs.compact(table(p), out=p / "c.cstore"),
    "concat": lambda p: cs.concat([table(p), many_records(p)], out=p / "c.cstore"),
    "shards": directory,
    "compact a directory": lambda p: cs.compact(directory(p)),
    "columns": lambda p: table(p, ".abcd"),
    "update columns": lambda p: update(table(p, ".abcd")),
    "columns in a directory": lambda p: cs.append(directory(p, format="columns"), rows()),
    "log": log,
    "index": index,
    "grid": grid,
    "dask": dask_frame,
}


@pytest.mark.parametrize("name", WRITES)
def test_nothing_waits_for_the_disk_when_only_the_end_of_the_process_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    waits: list[str] = []
    for call in ("fsync", "fdatasync", "sync"):
        if hasattr(os, call):
            monkeypatch.setattr(os, call, lambda *args, call=call: waits.append(call))
    config.set_durability("process")
    WRITES[name](tmp_path)
    assert waits == []
    assert any(tmp_path.iterdir())


@pytest.mark.parametrize("name", WRITES)
def test_everything_waits_for_the_disk_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    waits: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (waits.append(fd), real(fd))[1])
    WRITES[name](tmp_path)
    assert len(waits) >= 2


def calls_of(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> list[str]:
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        run()
        return disk.log


def test_the_order_of_everything_else_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of the bytes: a killed process leaves the same behind."""
    found = {}
    for value in ("full", "process"):
        config.set_durability(value)  # type: ignore[arg-type]
        folder = tmp_path / value
        folder.mkdir()
        path = folder / "a.cstore"

        def run(path: Path = path) -> None:
            stream(path, "create")
            update(path)
            stream(path, "recreate")
            cs.compact(path)
            table(path.parent)

        found[value] = calls_of(monkeypatch, run)
        found[value + " bytes"] = [path.read_bytes(), (folder / "t.cstore").read_bytes()]  # type: ignore[list-item]
    assert found["process"] == [call for call in found["full"] if call != "fsync"]
    assert "fsync" in found["full"]
    assert found["process bytes"] == found["full bytes"]


def test_what_is_written_is_announced_before_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(output, "start_writing_back", lambda fd, offset, n: calls.append((offset, n)))
    big = {"x": np.arange(4_000_000)}
    for write in (
        lambda: cs.store(big, tmp_path / "a.cstore").close(),
        lambda: cs.store(iter([rows(0, 400_000)] * 6), tmp_path / "b.cstore").close(),
        lambda: cs.compact(tmp_path / "b.cstore", out=tmp_path / "c.cstore"),
    ):
        calls.clear()
        write()
        ends = [offset + n for offset, n in calls]
        assert [offset for offset, _ in calls] == [0, *ends[:-1]], "every byte once, in order"
        assert ends[-1] > 24 << 20
        assert len(calls) >= 3
    config.set_durability("process")
    calls.clear()
    cs.store(big, tmp_path / "d.cstore").close()
    assert calls == []


def test_a_spool_is_neither_announced_nor_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    monkeypatch.setattr(output, "start_writing_back", lambda *args: waits.append(0))
    monkeypatch.setattr(os, "fsync", waits.append)
    cs.store({"x": np.arange(2_000_000)}, "memory://durability/a.cstore").close()
    with cs.open("memory://durability/a.cstore") as found:
        assert len(found) == 2_000_000
    assert waits == []


def test_other_values_are_refused() -> None:
    with pytest.raises(ValueError, match="durability must be one of full, process, got 'none'"):
        config.set_durability("none")  # type: ignore[arg-type]
    assert config.get_durability() == "full"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_processes_lose_nothing_that_was_committed_without_a_sync(tmp_path: Path) -> None:
    path = tmp_path / "a.cstore"
    with Writer(path) as writer:
        writer.write({"x": np.arange(0)})
    for told in kill_appends(path, rounds=12, seed=7, largest=300_000, durability="process"):
        with cs.open(path) as found:
            assert len(found) >= told
            assert np.array_equal(found["x"].array(), np.arange(len(found)))


def test_one_module_waits_for_the_disk() -> None:
    package = Path(cs.__file__).parent
    waiting = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(
            call in path.read_text(encoding="utf-8") for call in ("os.fsync(", "os.fdatasync(", "os.sync(")
        )
    ]
    assert sorted(waiting) == [
        "calibrate.py",
        "writing/output.py",
    ]  # the first empties the page cache of a scratch file
