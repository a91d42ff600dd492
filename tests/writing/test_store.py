"""Tables and streams that are written whole or not at all."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disks import read_back

from colstore_io.errors import SchemaMismatchError
from colstore_io.writing.merging import open_sources
from colstore_io.writing.writer import Writer, store_file


class TestStore:
    def test_create_does_not_replace(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        store_file({"x": [1]}, path)
        before = path.read_bytes()
        with pytest.raises(FileExistsError):
            store_file({"x": [2]}, path)
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["a.cstore"]

    def test_create_does_not_replace_what_appears_while_it_writes(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"

        def batches() -> Iterator[dict[str, Any]]:
            yield {"x": [1]}
            path.write_bytes(b"first")

        with pytest.raises(FileExistsError):
            store_file(batches(), path)
        assert path.read_bytes() == b"first"
        assert os.listdir(tmp_path) == ["a.cstore"]

    @pytest.mark.parametrize("fallback", ["link", "link and renameat2"])
    def test_create_publishes_without_hard_links_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fallback: str
    ) -> None:
        from colstore_io.writing import publish

        def no_links(*args: Any, **kwargs: Any) -> None:
            raise PermissionError(1, "no hard links here")

        monkeypatch.setattr(os, "link", no_links)
        if "renameat2" in fallback:
            monkeypatch.setattr(publish, "_rename_noreplace", lambda a, b: False)
        path = tmp_path / "a.cstore"
        store_file({"x": [1]}, path)
        with pytest.raises(FileExistsError):
            publish.publish_new(str(path), str(path))
        assert read_back(path) == {"x": [1]}
        assert os.listdir(tmp_path) == ["a.cstore"]

    @pytest.mark.parametrize("data", [{}, {"x": [1, 2], "y": [1]}, {"x": np.arange(3) * 1j}, 5])
    def test_bad_data_leave_nothing_behind(self, tmp_path: Path, data: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            store_file(data, tmp_path / "a.cstore")
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
    def test_new_file_honours_the_umask_and_a_replaced_one_its_mode(self, tmp_path: Path, umask: int) -> None:
        old = os.umask(umask)
        try:
            store_file({"x": [1]}, tmp_path / "a.cstore")
            with Writer(tmp_path / "b.cstore", "recreate") as writer:
                writer.write({"x": [1]})
            with Writer(tmp_path / "c.cstore") as writer:
                writer.write({"x": [1]})
            for name in "abc":
                assert stat.S_IMODE((tmp_path / f"{name}.cstore").stat().st_mode) == 0o666 & ~umask
            os.chmod(tmp_path / "a.cstore", 0o604)
            store_file({"x": [2]}, tmp_path / "a.cstore", mode="recreate")
            assert stat.S_IMODE((tmp_path / "a.cstore").stat().st_mode) == 0o604
        finally:
            os.umask(old)

    @pytest.mark.parametrize("size", [None, 1, 0, -5, 1000, "1 KiB", "auto", "2.5MB"])
    def test_batch_size_changes_no_byte(
        self, tmp_path: Path, size: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("tqdm")
        monkeypatch.setattr("sys.stderr", io.StringIO())
        data = {"x": np.arange(700_000), "y": np.arange(700_000) * 0.5}
        store_file(data, tmp_path / "a.cstore", batch_size=size, show_progress=True)
        store_file(data, tmp_path / "b.cstore", show_progress=False)
        assert (tmp_path / "a.cstore").read_bytes() == (tmp_path / "b.cstore").read_bytes()

    @pytest.mark.parametrize("size", [True, 1.5, [1]])
    def test_batch_size_of_another_type_is_refused(self, tmp_path: Path, size: Any) -> None:
        with pytest.raises(TypeError):
            store_file({"x": [1]}, tmp_path / "a.cstore", batch_size=size)

    @pytest.mark.parametrize("size", ["", "x", "-1", "1e3", "0.2B", "12 XB", "0"])
    def test_batch_size_that_is_no_size_is_refused(self, tmp_path: Path, size: str) -> None:
        with pytest.raises(ValueError):
            store_file({"x": [1]}, tmp_path / "a.cstore", batch_size=size)
        assert os.listdir(tmp_path) == []

    def test_object_stores_take_whole_objects_and_refuse_appends(self) -> None:
        import fsspec

        fs = fsspec.filesystem("memory")
        url = "memory://writing/a.cstore"
        try:
            assert store_file({"x": np.arange(3)}, url, statistics=True) == url
            with pytest.raises(FileExistsError):
                store_file({"x": np.arange(3)}, url)
            for mode in ("create", "update"):
                with pytest.raises(io.UnsupportedOperation, match="append a shard"):
                    Writer(url, mode)  # type: ignore[arg-type]
            with Writer(url, "recreate") as writer:
                writer.write({"x": np.arange(4)})
                assert read_back(url) == {"x": [0, 1, 2]}
                writer.commit()
                assert read_back(url) == {"x": [0, 1, 2, 3]}
                writer.write({"x": np.arange(1)})
            assert read_back(url) == {"x": [0, 1, 2, 3, 0]}
            store_file(iter([{"x": np.arange(2)}, {"x": np.arange(1)}]), url, mode="recreate", compact=True)
            assert read_back(url) == {"x": [0, 1, 0]}
        finally:
            fs.rm("/writing", recursive=True)


class TestStreams:
    def test_one_record_per_batch_without_the_empty_ones(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        store_file(iter([{"x": np.arange(n)} for n in (3, 0, 2)]), path, statistics=True)
        meta = open_sources([path])[0].meta
        assert meta.record_rows.tolist() == [3, 2]
        assert meta.statistics is not None
        assert meta.statistics.maximum["x"].tolist() == [2, 1]

    def test_stream_of_empty_batches_makes_a_record_of_no_rows(self, tmp_path: Path) -> None:
        store_file(iter([{"x": np.arange(0)}] * 2), tmp_path / "a.cstore")
        assert open_sources([tmp_path / "a.cstore"])[0].meta.record_rows.tolist() == [0]

    def test_stream_of_nothing_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError):
            store_file(iter([]), tmp_path / "a.cstore")
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("mode", ["create", "recreate"])
    def test_error_of_the_iterator_leaves_the_target_as_it_was_and_releases_the_stream(
        self, tmp_path: Path, mode: Any
    ) -> None:
        path = tmp_path / "a.cstore"
        if mode == "recreate":
            store_file({"x": np.arange(3)}, path)
        before = path.read_bytes() if path.exists() else None
        released = []

        def batches() -> Iterator[dict[str, Any]]:
            try:
                yield {"x": np.arange(1_000_000)}
                raise RuntimeError("the source broke")
            finally:
                released.append(True)

        with pytest.raises(RuntimeError, match="the source broke"):
            store_file(batches(), path, mode=mode)
        assert released == [True]
        assert (path.read_bytes() if path.exists() else None) == before
        assert os.listdir(tmp_path) == ([] if before is None else ["a.cstore"])

    def test_batch_that_does_not_fit_leaves_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(SchemaMismatchError):
            store_file(iter([{"x": np.arange(3)}, {"x": np.arange(3.0)}]), tmp_path / "a.cstore")
        assert os.listdir(tmp_path) == []

    def test_next_batch_is_asked_for_after_the_last_one_is_written(self, tmp_path: Path) -> None:
        """One batch is in memory at a time."""
        import weakref

        alive: list[Any] = []

        def batches() -> Iterator[dict[str, Any]]:
            for _ in range(5):
                assert sum(ref() is not None for ref in alive) == 0
                values = np.arange(300_000.0)
                alive.append(weakref.ref(values))
                yield {"x": values}
                del values

        store_file(batches(), tmp_path / "a.cstore")
        assert len(alive) == 5
