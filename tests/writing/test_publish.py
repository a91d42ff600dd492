"""Getting bytes into a file and a file under its name: the pieces below the writers."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colstore_io.writing import output
from colstore_io.writing.locks import open_locked
from colstore_io.writing.output import AlignedOutput, write_at
from colstore_io.writing.progress import check_batch_size, parse_byte_size, progress_bar
from colstore_io.writing.publish import (
    InPlace,
    Replacement,
    publish_new,
    resolve_target,
    temporary_path,
    write_small_file,
)


@pytest.fixture
def fd(tmp_path: Path) -> Any:
    handle = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield handle
    os.close(handle)


class TestWriteAt:
    def test_zero_progress_is_an_error_instead_of_a_loop(
        self, fd: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "pwritev", lambda fd, views, offset: 0)
        with pytest.raises(OSError, match="no progress"):
            write_at(fd, [memoryview(b"abc")], 0)

    @pytest.mark.parametrize("limit", [1, 3, 100])
    def test_partial_writes_long_lists_and_empty_views(
        self, fd: int, monkeypatch: pytest.MonkeyPatch, limit: int
    ) -> None:
        monkeypatch.setattr(output, "_IOV_MAX", 2)
        moved: list[int] = []
        write_at(
            fd,
            [memoryview(part) for part in (b"", b"ab", b"", b"cdefg", b"h", b"", b"ij")],
            5,
            progress=moved.append,
            limit=limit,
        )
        assert os.pread(fd, 100, 0) == b"\0" * 5 + b"abcdefghij"
        assert sum(moved) == 10
        assert max(moved) <= limit

    @pytest.mark.parametrize("missing", [["pwritev"], ["pwritev", "pwrite"]])
    def test_platforms_without_gathered_or_positional_writes(
        self, fd: int, monkeypatch: pytest.MonkeyPatch, missing: list[str]
    ) -> None:
        monkeypatch.setattr(output, "_HAS_PWRITEV", False)
        if "pwrite" in missing:
            monkeypatch.delattr(os, "pwrite")
        write_at(fd, [memoryview(b"ab"), memoryview(b"cd")], 1)
        assert os.pread(fd, 100, 0) == b"\0abcd"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), start=st.integers(0, 40))
def test_output_is_what_was_appended_whatever_fails_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, start: int
) -> None:
    """Appends, flushes, cuts and failed writes in any order: the file holds exactly the good appends."""
    rng = random.Random(seed)
    with monkeypatch.context() as patch:
        patch.setattr(output, "PIECE_BYTES", 16)
        patch.setattr(output, "_FLUSH_BYTES", 32)
        patch.setattr(output, "_DIRECT_BYTES", 8)
        patch.setattr(output, "_MAX_WAITING", 3)
        real = os.pwritev
        failing = False

        def pwritev(fd: int, views: Any, offset: int) -> int:
            if failing:
                os.pwrite(fd, b"".join(views)[:5], offset)
                raise OSError(28, "full")
            return real(fd, views, offset)

        patch.setattr(os, "pwritev", pwritev)
        path = tmp_path / f"f{seed}-{start}"
        path.write_bytes(b"s" * start)
        fd = os.open(path, os.O_RDWR)
        try:
            target = AlignedOutput(fd, start)
            expected = b"s" * start
            for _ in range(rng.randint(1, 40)):
                failing = rng.random() < 0.3
                action = rng.random()
                try:
                    if action < 0.75:
                        parts = [
                            rng.randbytes(rng.choice([0, 1, 3, 9, 40])) for _ in range(rng.randint(1, 3))
                        ]
                        arrays = [np.frombuffer(part, np.uint8) for part in parts]
                        target.append_arrays(arrays, sum(map(len, parts)))
                        expected += b"".join(parts)
                    elif action < 0.9:
                        target.flush()
                    elif action < 0.95:
                        target.flush(rng.randint(start, len(expected)))
                    else:
                        end = rng.randint(start, len(expected))
                        target.truncate(end)
                        expected = expected[:end]
                except OSError:
                    assert failing
                assert target.end == len(expected)
            failing = False
            target.flush()
            assert path.read_bytes() == expected
        finally:
            os.close(fd)


class TestNames:
    def test_temporary_names_are_hidden_fresh_and_never_too_long(self, tmp_path: Path) -> None:
        for name in ("a.cstore", "x" * 255, "ä" * 127):
            paths = {temporary_path(str(tmp_path / name)) for _ in range(3)}
            assert len(paths) == 3
            for path in paths:
                base = os.path.basename(path)
                assert base.startswith(".")
                assert base.endswith(".tmp")
                assert len(os.fsencode(base)) <= 255
                assert os.path.dirname(path) == str(tmp_path)

    def test_targets_are_paths_or_urls(self, tmp_path: Path) -> None:
        assert resolve_target(tmp_path / "a").local_path == str(tmp_path / "a")
        assert resolve_target(f"file://{tmp_path}/a").local_path == str(tmp_path / "a")
        remote = resolve_target("memory://x/a.cstore")
        assert remote.local_path is None
        assert remote.result == "memory://x/a.cstore"
        for bad in (5, None, b"x", ["a"]):
            with pytest.raises(TypeError):
                resolve_target(bad)


class TestPublish:
    def test_new_name_is_never_taken_from_another_file(self, tmp_path: Path) -> None:
        (tmp_path / "new").write_bytes(b"new")
        (tmp_path / "old").write_bytes(b"old")
        with pytest.raises(FileExistsError):
            publish_new(str(tmp_path / "new"), str(tmp_path / "old"))
        assert (tmp_path / "old").read_bytes() == b"old"
        publish_new(str(tmp_path / "new"), str(tmp_path / "third"))
        assert sorted(os.listdir(tmp_path)) == ["old", "third"]

    def test_small_file_is_replaced_or_not(self, tmp_path: Path) -> None:
        path = str(tmp_path / "a")
        write_small_file(path, b"one", exclusive=True)
        with pytest.raises(FileExistsError):
            write_small_file(path, b"two", exclusive=True)
        write_small_file(path, b"three", exclusive=False)
        assert os.listdir(tmp_path) == ["a"]
        assert (tmp_path / "a").read_bytes() == b"three"

    def test_work_file_is_locked_before_and_after_it_gets_its_name(self, tmp_path: Path) -> None:
        destination = Replacement(str(tmp_path / "a"))
        (work,) = os.listdir(tmp_path)
        with pytest.raises(BlockingIOError):
            open_locked(str(tmp_path / work))
        destination.publish()
        destination.publish()
        with pytest.raises(BlockingIOError):
            open_locked(str(tmp_path / "a"))
        destination.close()
        open_locked(str(tmp_path / "a")).release()

    def test_target_replaced_by_somebody_without_locks_is_locked_again(self, tmp_path: Path) -> None:
        target = tmp_path / "a"
        target.write_bytes(b"first")
        destination = Replacement(str(target))
        (tmp_path / "b").write_bytes(b"second")
        os.replace(tmp_path / "b", target)
        with open_locked(str(target)):
            with pytest.raises(BlockingIOError):
                destination.publish()
            assert target.read_bytes() == b"second"
        destination.publish()
        assert target.read_bytes() == b""
        destination.close()

    def test_discarded_file_takes_nobody_elses_name_along(self, tmp_path: Path) -> None:
        path = str(tmp_path / "a")
        destination = InPlace(open_locked(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), created=True)
        (tmp_path / "b").write_bytes(b"other")
        os.replace(tmp_path / "b", path)
        destination.discard()
        assert (tmp_path / "a").read_bytes() == b"other"


class TestProgress:
    @pytest.mark.parametrize(
        ("text", "size"),
        [
            *(
                ("1", 1),
                ("12 B", 12),
                ("1kB", 1000),
                ("1 K", 1000),
                ("1KiB", 1024),
                ("2 ki", 2048),
                (" 1.5 mb ", 1_500_000),
            ),
            *(
                ("256 MiB", 256 << 20),
                (".5GiB", 1 << 29),
                ("1T", 10**12),
                ("1 PiB", 1 << 50),
                ("3.b", 3),
                ("0.001kB", 1),
            ),
        ],
    )
    def test_sizes(self, text: str, size: int) -> None:
        assert parse_byte_size(text) == size

    @pytest.mark.parametrize(
        "text",
        ["", " ", "B", "-1", "+1", "1e3", "1 XB", "1 k i B", "0", "0.5", "0.0009 kB", "٣", "1,5 MB", "nan"],
    )
    def test_what_is_no_size(self, text: str) -> None:
        with pytest.raises(ValueError):
            parse_byte_size(text)

    def test_batch_sizes(self) -> None:
        assert [check_batch_size(value) for value in (None, "auto", 5, -5, "1 KiB")] == [
            None,
            "auto",
            5,
            -5,
            "1024B",
        ]
        for bad in (True, 1.5, []):
            with pytest.raises(TypeError):
                check_batch_size(bad)  # type: ignore[arg-type]

    def test_bar_that_is_asked_for_without_tqdm_warns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "tqdm", None)
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
        with pytest.warns(RuntimeWarning, match="tqdm"), progress_bar(True, total=1, description="x") as bar:
            assert bar is None
        with progress_bar(None, total=1, description="x") as bar:
            assert bar is None
