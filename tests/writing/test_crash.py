"""What a crash, a full disk or a killed process leaves behind (cstore.md 8.2)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disks import Crash, Disk, full, read_back
from kills import kill_appends

from colstore_io.errors import FormatError
from colstore_io.writing.compaction import compact_file
from colstore_io.writing.merging import open_sources
from colstore_io.writing.writer import Writer, store_file

MiB = 1 << 20


def rows(start: int, n: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(start, start + n), "y": np.arange(n).astype("i1")}


def abandon(writer: Writer) -> None:
    """Let go of a writer as the end of its process would."""
    writer.abandon_in_child()


def crash_points(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> int:
    """Return how many calls `run` makes that change the disk."""
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        run()
        return len(disk.log)


class TestEveryCrashPoint:
    """Whichever call a process dies in, the last committed state can be read, and the next writer can go on."""

    def test_append(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "a.cstore"
        writers: list[Writer] = []
        committed: list[int] = []

        def append() -> None:
            writers.append(Writer(path, "update", statistics=True))
            for start in (10, 20):
                writers[-1].write(rows(start, 300_000))
                writers[-1].commit()
                committed.append(1)
            writers[-1].write(rows(30, 5))
            writers[-1].close()

        store_file(rows(0, 4), path, statistics=True)
        original = path.read_bytes()
        points = crash_points(monkeypatch, append)
        assert points > 10
        records = [4, 300_000, 300_000, 5]
        for point in range(points):
            path.write_bytes(original + b"left over" * 9)
            writers.clear()
            committed.clear()
            with monkeypatch.context() as patch:
                disk = Disk(patch, crash_at=point)
                with pytest.raises(Crash):
                    append()
                torn = disk.log[-1] == "pwritev" and disk.log[-2] == "fsync"  # half a counters block
            for writer in writers:
                abandon(writer)
            try:
                found = open_sources([path])[0].meta.record_rows.tolist()
            except FormatError:
                assert torn
                continue
            assert found == records[: len(found)]
            assert len(found) >= 1 + len(committed)
            with Writer(path, "update") as again:
                again.write(rows(0, 2))
            assert open_sources([path])[0].meta.record_rows.tolist() == [*found, 2]

    @pytest.mark.parametrize("exists", [True, False])
    def test_recreate(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
        path = tmp_path / "a.cstore"
        writers: list[Writer] = []

        def recreate() -> None:
            writers.append(Writer(path, "recreate"))
            writers[-1].write(rows(0, 5))
            writers[-1].commit()
            writers[-1].write(rows(5, 6))
            writers[-1].close()

        self.check_replacement(tmp_path, path, exists, monkeypatch, recreate, writers, ([5], [5, 6]))

    @pytest.mark.parametrize("exists", [True, False])
    def test_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
        path = tmp_path / "a.cstore"

        def store() -> None:
            store_file(rows(0, 5), path, mode="recreate" if exists else "create", statistics=True)

        self.check_replacement(tmp_path, path, exists, monkeypatch, store, [], ([5],))

    def test_compacted_stream(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "a.cstore"

        def store() -> None:
            store_file(iter([rows(0, 5), rows(5, 6)]), path, mode="recreate", compact=True)

        self.check_replacement(tmp_path, path, True, monkeypatch, store, [], ([11],))

    def check_replacement(
        self,
        folder: Path,
        path: Path,
        exists: bool,
        monkeypatch: pytest.MonkeyPatch,
        run: Callable[[], Any],
        writers: list[Writer],
        allowed: tuple[list[int], ...],
    ) -> None:
        def start() -> None:
            for name in os.listdir(folder):
                os.unlink(folder / name)
            if exists:
                path.write_bytes(original)

        original = b""
        if exists:
            store_file(rows(100, 3), path)
            original = path.read_bytes()
        start()
        points = crash_points(monkeypatch, run)
        outcomes = set()
        for point in range(points):
            start()
            writers.clear()
            with monkeypatch.context() as patch:
                disk = Disk(patch, crash_at=point)
                with pytest.raises(Crash):
                    run()
                torn = disk.log[-2:] == ["fsync", "pwritev"]
            for writer in writers:
                abandon(writer)
            left = set(os.listdir(folder)) - {path.name}
            assert all(name.startswith(f".{path.name}.") and name.endswith(".tmp") for name in left)
            if not path.exists():
                assert not exists
                outcomes.add("nothing")
            elif exists and path.read_bytes() == original:
                outcomes.add("old")
            else:
                try:
                    found = open_sources([path])[0].meta.record_rows.tolist()
                except FormatError:
                    assert torn  # the second commit of a stream, in place
                    continue
                assert found in allowed
                outcomes.add("new")
        assert outcomes >= {"old" if exists else "nothing", "new"}

    def test_compact_in_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path) as writer:
            writer.write(rows(0, 5))
            writer.write(rows(5, 6))
        original = path.read_bytes()
        points = crash_points(monkeypatch, lambda: compact_file(path))
        for point in range(points):
            path.write_bytes(original)
            with monkeypatch.context() as patch:
                Disk(patch, crash_at=point)
                with pytest.raises(Crash):
                    compact_file(path)
            assert read_back(path)["x"] == list(range(11))
            assert set(os.listdir(tmp_path)) <= {"a.cstore", "a.cstore.compacting"}
            compact_file(path)  # a left-over does not disturb
            assert open_sources([path])[0].meta.record_rows.tolist() == [11]
            assert os.listdir(tmp_path) == ["a.cstore"]


class TestOrderOfCalls:
    def test_data_are_synced_before_the_counters_and_the_counters_after(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = Disk(monkeypatch)
        with Writer(tmp_path / "a.cstore") as writer:
            writer.write(rows(0, 3))
            writer.commit()
            # data, barrier, counters, barrier, then the directory that got a new name
            assert disk.log == ["pwritev", "fsync", "pwritev", "fsync", "fsync"]
            disk.log.clear()
            writer.write(rows(3, 3))
        assert disk.log == ["pwritev", "fsync", "pwritev", "fsync"]

    def test_a_new_file_is_complete_and_synced_before_it_gets_its_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store_file(rows(0, 3), tmp_path / "a.cstore")
        disk = Disk(monkeypatch)
        store_file(rows(0, 4), tmp_path / "a.cstore", mode="recreate")
        assert disk.log == ["pwritev", "fsync", "pwritev", "fsync", "fchmod", "replace", "fsync"]
        disk.log.clear()
        store_file(rows(0, 4), tmp_path / "b.cstore")
        assert disk.log == ["pwritev", "fsync", "pwritev", "fsync", "link", "unlink", "fsync"]

    def test_nothing_new_costs_no_sync(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "a.cstore"
        store_file(rows(0, 3), path)
        disk = Disk(monkeypatch)
        with Writer(path, "update") as writer:
            writer.commit()
        assert disk.log == []


class TestFullDisk:
    @pytest.mark.parametrize("size", [10, 200_000, 900_000])
    def test_failed_write_is_cut_off_and_the_writer_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        """The record that did not fit is gone, those before and after it are there."""
        path = tmp_path / "a.cstore"
        with Writer(path, statistics=True) as writer:
            writer.write(rows(0, size))
            writer.write(rows(size, 5))
            with monkeypatch.context() as patch:
                disk = Disk(patch)
                disk.fail = full(5 * MiB + 12345)
                with pytest.raises(OSError, match="No space"):
                    writer.write(rows(7, 5_000_000))
            assert (writer.n_records, len(writer)) == (2, size + 5)
            writer.write(rows(size + 5, 3))
        assert read_back(path)["x"] == list(range(size + 8))
        assert path.stat().st_size < 20 * MiB

    def test_failed_first_write_leaves_the_schema_open(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path) as writer:
            with monkeypatch.context() as patch:
                Disk(patch).fail = full(0)
                with pytest.raises(OSError, match="No space"):
                    writer.write(rows(0, 1_000_000))
            writer.write({"z": np.arange(3)})
        assert read_back(path) == {"z": [0, 1, 2]}

    def test_failed_commit_can_be_repeated(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path) as writer:
            writer.write(rows(0, 5))
            with monkeypatch.context() as patch:
                Disk(patch).fail = full(0)
                with pytest.raises(OSError, match="No space"):
                    writer.commit()
            writer.commit()
            assert read_back(path)["x"] == [0, 1, 2, 3, 4]

    def test_close_on_a_full_disk_commits_the_records_that_fit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "a.cstore"
        writer = Writer(path)
        for start in range(0, 1000, 100):
            writer.write({"x": np.arange(start, start + 100)})
        with monkeypatch.context() as patch:
            Disk(patch).fail = full(4000)
            with pytest.raises(OSError, match="No space") as info:
                writer.close()
        assert "4 records (400 rows) are committed" in info.value.__notes__[0]
        assert writer.closed
        assert read_back(path)["x"] == list(range(400))

    def test_footer_that_does_not_fit_costs_the_footer_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "a.cstore"
        writer = Writer(path, statistics=True)
        writer.write({"x": np.arange(100)})
        end = writer._log.output.end
        with monkeypatch.context() as patch:
            Disk(patch).fail = full(end)
            with pytest.warns(
                RuntimeWarning, match=r"a\.cstore: the rows are committed, but without statistics"
            ):
                writer.close()
        assert path.stat().st_size == end
        assert read_back(path)["x"] == list(range(100))

    @pytest.mark.parametrize("mode", ["recreate", "update"])
    def test_footer_that_does_not_fit_loses_no_rows_in_any_mode(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
    ) -> None:
        path = tmp_path / "a.cstore"
        store_file({"x": np.arange(3)}, path, statistics=True)
        writer = Writer(path, mode, statistics=True)
        writer.write({"x": np.arange(3, 100)})
        end = writer._log.output.end
        with monkeypatch.context() as patch:
            Disk(patch).fail = full(end)
            with pytest.warns(RuntimeWarning, match=r"a\.cstore"):
                writer.close()
        assert read_back(path)["x"] == list(range(3 if mode == "recreate" else 0, 100))
        assert open_sources([path])[0].meta.statistics is None
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.cstore"]
        with Writer(path, "update", statistics=True) as writer:
            writer.write({"x": np.arange(2)})
        assert open_sources([path])[0].meta.statistics is not None

    def test_one_shot_write_whose_footer_does_not_fit_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store_file({"x": np.arange(100)}, tmp_path / "plain.cstore")
        size = (tmp_path / "plain.cstore").stat().st_size
        with monkeypatch.context() as patch:
            Disk(patch).fail = full(size)
            with pytest.raises(OSError, match="No space"):
                store_file({"x": np.arange(100)}, tmp_path / "a.cstore", statistics=True)
        assert [entry.name for entry in tmp_path.iterdir()] == ["plain.cstore"]

    @pytest.mark.parametrize("run", ["store", "recreate", "compact"])
    def test_replacement_that_does_not_fit_leaves_the_old_file_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str
    ) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path) as writer:
            for start in (0, 100):
                writer.write(rows(start, 100))
        before = path.read_bytes()

        def replace() -> None:
            if run == "store":
                store_file(rows(0, 100), path, mode="recreate")
            elif run == "compact":
                compact_file(path)
            else:
                with Writer(path, "recreate") as writer:
                    writer.write(rows(0, 100))

        Disk(monkeypatch).fail = full(300)
        with pytest.raises(OSError, match="No space"):
            replace()
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["a.cstore"]

    def test_real_limit_on_the_file_size(self, tmp_path: Path) -> None:
        """RLIMIT_FSIZE stops writes as a full disk does, without help of this test suite."""
        script = """
import resource, signal, sys
import numpy as np
from colstore_io.writing.writer import Writer
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Writer(sys.argv[1]) as writer:
    writer.write({"x": np.arange(1000)})
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, resource.RLIM_INFINITY))
    try:
        writer.write({"x": np.arange(2_000_000)})
    except OSError:
        pass
    else:
        raise SystemExit("no error")
    writer.write({"x": np.arange(1000, 2000)})
"""
        path = tmp_path / "a.cstore"
        subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=120)
        assert read_back(path)["x"] == list(range(2000))


def test_writers_left_open_at_exit_are_committed(tmp_path: Path) -> None:
    """Even those that only a reference cycle or a frozen frame keeps alive."""
    script = """
import sys
import numpy as np
from colstore_io.writing.appender import Appender
from colstore_io.writing.writer import Writer
class Holder: pass
holder = Holder()
holder.self = holder
holder.writer = Writer(sys.argv[1] + "/a.cstore")
holder.writer.write({"x": np.arange(3)})
holder.appender = Appender(sys.argv[1] + "/d")
holder.appender.write({"x": np.arange(4)})
"""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", script, str(tmp_path)],
        check=True,
        timeout=60,
        capture_output=True,
    )
    assert done.stderr.count(b"ResourceWarning: unclosed") == 2
    assert read_back(tmp_path / "a.cstore")["x"] == [0, 1, 2]
    assert read_back(tmp_path / "d" / "shard_00000.cstore")["x"] == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.timeout(300)
def test_no_committed_record_is_lost_over_many_kills(tmp_path: Path) -> None:
    """A process that appends is killed at a random moment, over and over: the file always opens with all it had."""
    path = tmp_path / "a.cstore"
    with Writer(path) as writer:
        writer.write({"x": np.arange(0)})
    for told in kill_appends(path, rounds=24, seed=20240611, largest=3000):
        found = read_back(path)["x"]
        assert len(found) >= told
        assert found == list(range(len(found)))
