"""Files that are replaced, and files that grow."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from disks import read_back

from colstore_io.errors import FormatError, SchemaMismatchError, UnsupportedFeatureError, WriterLockedError
from colstore_io.writing.locks import open_locked
from colstore_io.writing.merging import open_sources
from colstore_io.writing.writer import Writer, store_file


class TestRecreate:
    def test_target_keeps_the_old_contents_until_the_first_commit(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        store_file({"x": np.arange(3)}, path)
        old = path.read_bytes()
        with Writer(path, "recreate") as writer:
            writer.write({"y": np.arange(5)})
            assert path.read_bytes() == old
            writer.commit()
            assert read_back(path) == {"y": [0, 1, 2, 3, 4]}
            with pytest.raises(WriterLockedError):
                open_locked(str(path))
            writer.write({"y": np.arange(1)})
        assert read_back(path) == {"y": [0, 1, 2, 3, 4, 0]}
        assert os.listdir(tmp_path) == ["a.cstore"]

    def test_without_a_write_the_old_file_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        store_file({"x": np.arange(3)}, path)
        before = (path.read_bytes(), path.stat().st_ino)
        with Writer(path, "recreate"):
            pass
        assert (path.read_bytes(), path.stat().st_ino) == before
        assert os.listdir(tmp_path) == ["a.cstore"]

    def test_refused_recreate_leaves_file_untouched(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        store_file({"x": np.arange(3)}, path)
        before = path.read_bytes()
        with Writer(path, "update"):
            for refused in (
                lambda: Writer(path, "recreate"),
                lambda: store_file({"y": [1]}, path, mode="recreate"),
            ):
                with pytest.raises(WriterLockedError):
                    refused()
                assert path.read_bytes() == before
                assert os.listdir(tmp_path) == ["a.cstore"]

    def test_file_that_appears_meanwhile_is_locked_and_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path, "recreate") as writer:
            writer.write({"x": np.arange(3)})
            path.write_bytes(b"somebody else's")
        assert read_back(path) == {"x": [0, 1, 2]}

    def test_file_that_appears_meanwhile_and_is_held_is_not_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        writer = Writer(path, "recreate")
        writer.write({"x": np.arange(3)})
        with Writer(path) as other:
            other.write({"y": np.arange(2)})
            with pytest.raises(WriterLockedError):
                writer.close()
        assert read_back(path) == {"y": [0, 1]}
        assert os.listdir(tmp_path) == ["a.cstore"]

    def test_symbolic_link_survives(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        target = tmp_path / "real" / "a.cstore"
        store_file({"x": np.arange(3)}, target)
        link = tmp_path / "link.cstore"
        link.symlink_to(target)
        store_file({"x": np.arange(2)}, link, mode="recreate")
        assert link.is_symlink()
        assert read_back(target) == {"x": [0, 1]}

    def test_what_is_no_regular_file_is_not_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "dir").mkdir()
        with pytest.raises(OSError, match="regular file"):
            Writer(tmp_path / "dir", "recreate")
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="regular file"):
            store_file({"x": [1]}, tmp_path / "pipe", mode="recreate")

    @pytest.mark.parametrize("mode", ["recreate", "compact", "update"])
    def test_mapping_of_the_old_file_survives(self, tmp_path: Path, mode: str) -> None:
        from colstore_io.writing.compaction import compact_file

        path = tmp_path / "a.cstore"
        with Writer(path, statistics=True) as writer:
            for _ in range(3):
                writer.write({"x": np.arange(100_000)})
        source = open_sources([path])[0]
        mapping = source.file.map(source.meta.committed_end)
        assert mapping is not None
        before = mapping.tobytes()
        if mode == "recreate":
            store_file({"x": np.arange(3)}, path, mode="recreate")
        elif mode == "compact":
            compact_file(path)
        else:
            with Writer(path, "update") as writer:
                writer.write({"x": np.arange(3)})
        assert mapping.tobytes()[72:] == before[72:]  # an update rewrites the counters in place
        source.file.close()


class TestUpdate:
    def test_left_overs_of_a_crash_are_cut_off(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        store_file({"x": np.arange(3)}, path)
        clean = path.read_bytes()
        path.write_bytes(clean + b"\x99" * 256)
        Writer(path, "update").close()
        assert path.read_bytes() == clean

    def test_file_that_was_never_committed_starts_at_record_zero(self, tmp_path: Path, shared: Path) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path) as writer:
            writer.write({"x": np.arange(3)})
        expected = path.read_bytes()
        from colstore_io.formats.cstore.header import encode_counters

        path.write_bytes(expected[:8] + encode_counters(0, 0) + expected[72:])
        with Writer(path, "update") as writer:
            assert (writer.n_records, len(writer)) == (0, 0)
            writer.write({"x": np.arange(3)})
        assert path.read_bytes() == expected

    @pytest.mark.parametrize("name", ["a\ud800", "x" * 65536])
    def test_names_that_no_footer_can_hold_are_refused_before_anything_changes(
        self, tmp_path: Path, name: str
    ) -> None:
        path = tmp_path / "a.cstore"
        store_file({name: np.arange(3)}, path)
        with path.open("ab") as file:
            file.write(b"torn")  # what an update would cut off
        before = path.read_bytes()
        with pytest.raises(ValueError, match="cannot have statistics"):
            Writer(path, "update", statistics=True)
        assert path.read_bytes() == before
        with Writer(path, "update") as writer:  # the lock is free again
            writer.write({name: np.arange(2)})
        assert read_back(path)[name] == [0, 1, 2, 0, 1]

    def test_footer_goes_without_statistics_and_is_continued_with_them(self, tmp_path: Path) -> None:
        with_footer, without = tmp_path / "a.cstore", tmp_path / "b.cstore"
        store_file({"x": np.arange(3)}, with_footer, statistics=True)
        store_file({"x": np.arange(3)}, without)
        plain = without.read_bytes()
        Writer(with_footer, "update").close()
        assert with_footer.read_bytes() == plain
        with Writer(without, "update", statistics=True) as writer:  # nothing is known of the first record
            writer.write({"x": np.arange(5)})
        statistics = open_sources([without])[0].meta.statistics
        assert statistics is not None
        assert statistics.usable["x"].tolist() == [False, True]
        assert statistics.maximum["x"][1] == 4

    def test_every_malformed_file_is_refused_and_left_untouched(self, tmp_path: Path, shared: Path) -> None:
        """A failed open changes no byte; neither does what becomes of the half-made writer (cstore.md 11)."""
        import json

        folder = shared / "vectors" / "cstore"
        cases = json.loads((folder / "manifest.json").read_text())["malformed"]
        refused = 0
        for case in cases:
            name = Path(case.get("path") or case.get("file")).name
            raw = (folder / "malformed" / name).read_bytes()
            path = tmp_path / name
            path.write_bytes(raw)
            stamp = path.stat().st_mtime_ns
            if case["required"] != "FormatError" and not str(case["required"]).startswith("FormatError"):
                continue
            with pytest.raises(FormatError):
                Writer(path, "update")
            gc.collect()
            assert path.read_bytes() == raw, name
            assert path.stat().st_mtime_ns == stamp, name
            open_locked(str(path)).release()  # and the lock is free again
            refused += 1
        assert refused > 30

    def test_file_of_another_kind_is_left_untouched(self, tmp_path: Path) -> None:
        for raw in (b"", b"hello", bytes(200), os.urandom(500)):
            path = tmp_path / "x.cstore"
            path.write_bytes(raw)
            with pytest.raises(FormatError):
                Writer(path, "update")
            gc.collect()
            assert path.read_bytes() == raw

    @pytest.mark.parametrize("name", ["layout_a", "layout_b_020", "layout_b_031", "layout_b_031_single"])
    def test_older_layouts_are_refused_by_name(self, tmp_path: Path, shared: Path, name: str) -> None:
        golden = shared / "vectors" / "cstore" / "legacy" / f"{name}.cstore"
        path = tmp_path / "old.cstore"
        path.write_bytes(golden.read_bytes())
        with pytest.raises(UnsupportedFeatureError, match=f"layout {name[7].upper()}.*compact"):
            Writer(path, "update")
        assert path.read_bytes() == golden.read_bytes()

    def test_big_endian_columns_cannot_be_appended_to(self, tmp_path: Path, shared: Path) -> None:
        path = tmp_path / "a.cstore"
        path.write_bytes((shared / "vectors" / "cstore" / "foreign_bigendian.cstore").read_bytes())
        with Writer(path, "update") as writer:
            schema = writer.schema
            assert schema is not None
            data = {field.name: np.zeros(2, field.native_dtype) for field in schema}
            with pytest.raises(SchemaMismatchError):
                writer.write(data)
