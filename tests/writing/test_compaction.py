"""Many records or files become one: bytes, extra keys, locks and left-overs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disks import read_back
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colstore_io.errors import FormatError, SchemaMismatchError, WriterLockedError
from colstore_io.writing import compaction, merging
from colstore_io.writing.compaction import compact_file, concat_files
from colstore_io.writing.merging import open_sources
from colstore_io.writing.writer import Writer, store_file

colstore = pytest.importorskip("colstore", reason="the other implementation of the format, to compare bytes")

quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def table(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "tiny": rng.integers(-99, 99, n, np.int8),
        "big": rng.standard_normal(n),
        "text": np.array(["ab", "c", "defg"] * n, "<U5")[:n],
        "when": rng.integers(0, 10**9, n).astype("<M8[s]"),
        "mid": rng.integers(0, 10**6, n, np.int32),
    }


def write(path: Path, lengths: list[int], **options: Any) -> Path:
    with Writer(path, "recreate", **options) as writer:
        for seed, n in enumerate(lengths):
            writer.write(table(n, seed))
    return path


class TestCompact:
    @quick
    @given(lengths=st.lists(st.integers(0, 300), min_size=2, max_size=12), statistics=st.booleans())
    def test_bytes_are_those_of_the_reference_and_of_a_one_shot_store(
        self, tmp_path: Path, lengths: list[int], statistics: bool
    ) -> None:
        source = write(tmp_path / "s.cstore", lengths, statistics=statistics)
        colstore.compact(source, out=tmp_path / "theirs.cstore", show_progress=False)
        assert compact_file(source, tmp_path / "ours.cstore") == tmp_path / "ours.cstore"
        records = [table(n, seed) for seed, n in enumerate(lengths)]
        together = {name: np.concatenate([record[name] for record in records]) for name in records[0]}
        store_file(together, tmp_path / "whole.cstore", mode="recreate")
        expected = (tmp_path / "whole.cstore").read_bytes()
        assert (
            (tmp_path / "ours.cstore").read_bytes() == expected == (tmp_path / "theirs.cstore").read_bytes()
        )
        assert compact_file(source) == source
        assert source.read_bytes() == expected

    @pytest.mark.parametrize("long_run", [0, 100, 1 << 20])
    @pytest.mark.parametrize("chunk", [64, 1000])
    def test_bytes_do_not_depend_on_the_size_of_the_pieces(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, long_run: int
    ) -> None:
        monkeypatch.setattr(merging, "_LONG_RUN_BYTES", 1)
        source = write(tmp_path / "s.cstore", [5, 0, 700, 3, 90])
        compact_file(source, tmp_path / "a.cstore")
        monkeypatch.setattr(merging, "_LONG_RUN_BYTES", long_run)
        monkeypatch.setattr(merging, "_CHUNK_BYTES", chunk)
        monkeypatch.setattr(merging, "_BATCH_RUNS", 2)
        compact_file(source, tmp_path / "b.cstore")
        assert (tmp_path / "a.cstore").read_bytes() == (tmp_path / "b.cstore").read_bytes()

    def test_large_records(self, tmp_path: Path) -> None:
        source = write(tmp_path / "s.cstore", [600_000, 10, 300_000])
        compact_file(source, tmp_path / "ours.cstore")
        colstore.compact(source, out=tmp_path / "theirs.cstore", show_progress=False)
        assert (tmp_path / "ours.cstore").read_bytes() == (tmp_path / "theirs.cstore").read_bytes()

    def test_one_record_is_left_alone_in_place_and_copied_elsewhere(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        store_file(table(9), path, statistics=True)
        before = (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns)
        assert compact_file(path) == path
        assert compact_file(path, path) == path
        assert (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) == before
        compact_file(path, tmp_path / "b.cstore")
        assert (tmp_path / "b.cstore").read_bytes() == before[0]
        assert sorted(os.listdir(tmp_path)) == ["a.cstore", "b.cstore"]

    def test_copy_works_without_the_kernels_help(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*args: Any) -> int:
            raise OSError(18, "cross-device")

        monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
        path = tmp_path / "a.cstore"
        store_file(table(9), path, statistics=True)
        compact_file(path, tmp_path / "b.cstore")
        assert (tmp_path / "b.cstore").read_bytes() == path.read_bytes()

    def test_same_file_by_another_name_is_in_place(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.cstore", [3, 4])
        (tmp_path / "link.cstore").symlink_to(path)
        compact_file(path, tmp_path / "link.cstore")
        assert (tmp_path / "link.cstore").is_symlink()
        assert open_sources([path])[0].meta.record_rows.tolist() == [7]

    def test_extra_keys_stay(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path, attrs={"title": "t"}, column_attrs={"n": {"unit": "m"}}, nullable=["n"]) as writer:
            writer.write({"n": np.arange(3), "s": ["a", None, "ccc"]})
            writer.write({"n": np.arange(2), "s": ["b", "d"]})
        before = open_sources([path])[0].meta
        compact_file(path)
        after = open_sources([path])[0].meta
        assert after.schema == before.schema
        assert (after.extra, after.columns, after.n_records) == (before.extra, before.columns, 1)
        assert after.schema.attrs == {"title": "t"}

    def test_mode_bits_stay_in_place(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.cstore", [3, 4])
        os.chmod(path, 0o640)
        compact_file(path)
        assert path.stat().st_mode & 0o777 == 0o640

    def test_writer_at_work_is_not_disturbed(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.cstore", [3, 4])
        other = write(tmp_path / "b.cstore", [3, 4])
        with Writer(path, "update"):
            for refused in (lambda: compact_file(path), lambda: compact_file(other, path)):
                with pytest.raises(WriterLockedError):
                    refused()
        compact_file(path)

    def test_missing_and_damaged_files_are_refused_and_leave_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            compact_file(tmp_path / "no.cstore")
        path = write(tmp_path / "a.cstore", [3, 4])
        raw = bytearray(path.read_bytes())
        raw[100] ^= 0xFF
        path.write_bytes(raw)
        with pytest.raises(FormatError):
            compact_file(path)
        assert path.read_bytes() == raw
        assert os.listdir(tmp_path) == ["a.cstore"]

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    def test_failure_removes_the_work_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
    ) -> None:
        path = write(tmp_path / "a.cstore", [3, 4])
        before = path.read_bytes()

        def fail(*args: Any, **kwargs: Any) -> None:
            raise error

        monkeypatch.setattr(merging, "copy_runs", fail)
        with pytest.raises(error):
            compact_file(path)
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["a.cstore"]

    @pytest.mark.parametrize("name", ["layout_a", "layout_b_020", "layout_b_031", "layout_b_031_single"])
    def test_older_layouts_are_converted_in_place(self, tmp_path: Path, shared: Path, name: str) -> None:
        path = tmp_path / "old.cstore"
        path.write_bytes((shared / "vectors" / "cstore" / "legacy" / f"{name}.cstore").read_bytes())
        values = read_back(path)
        compact_file(path)
        meta = open_sources([path])[0].meta
        assert (meta.layout, meta.n_records) == ("C", 1)
        assert read_back(path) == values
        with colstore.open(path) as reader:
            assert reader.n_rows == meta.n_rows

    def test_object_store(self) -> None:
        import fsspec

        fs = fsspec.filesystem("memory")
        try:
            url = "memory://compaction/a.cstore"
            store_file(iter([table(3), table(4)]), url)
            assert compact_file(url, "memory://compaction/b.cstore") == "memory://compaction/b.cstore"
            compact_file(url)
            assert fs.cat("/compaction/a.cstore") == fs.cat("/compaction/b.cstore")
            assert open_sources([url])[0].meta.record_rows.tolist() == [7]
        finally:
            fs.rm("/compaction", recursive=True)


class TestConcat:
    @quick
    @given(parts=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=5))
    def test_bytes_are_those_of_the_reference(self, tmp_path: Path, parts: list[list[int]]) -> None:
        paths = [write(tmp_path / f"p{i}.cstore", lengths) for i, lengths in enumerate(parts)]
        paths.append(paths[0])  # a file may come twice
        concat_files(paths, tmp_path / "ours.cstore")
        colstore.concat(paths, out=tmp_path / "theirs.cstore").close()
        assert (tmp_path / "ours.cstore").read_bytes() == (tmp_path / "theirs.cstore").read_bytes()

    def test_columns_are_matched_by_name(self, tmp_path: Path) -> None:
        store_file({"a": [1, 2], "b": [1.5, 2.5]}, tmp_path / "x.cstore")
        store_file({"b": [3.5], "a": [3]}, tmp_path / "y.cstore")
        concat_files([tmp_path / "x.cstore", tmp_path / "y.cstore"], tmp_path / "z.cstore")
        assert read_back(tmp_path / "z.cstore") == {"a": [1, 2, 3], "b": [1.5, 2.5, 3.5]}

    def test_companion_that_some_files_lack_is_all_valid_there(self, tmp_path: Path) -> None:
        store_file({"a": np.arange(2), "b": [1, 2]}, tmp_path / "x.cstore")
        store_file({"a": np.array([3, None], object), "b": [3, 4]}, tmp_path / "y.cstore")
        first, second = tmp_path / "x.cstore", tmp_path / "y.cstore"
        concat_files([first, second], tmp_path / "z.cstore")
        assert read_back(tmp_path / "z.cstore") == {
            "a": [0, 1, 3, 0],
            "a.valid": [True, True, True, False],
            "b": [1, 2, 3, 4],
        }
        concat_files([second, first], tmp_path / "z.cstore")
        assert read_back(tmp_path / "z.cstore")["a.valid"] == [True, False, True, True]

    def test_big_endian_source_is_brought_to_the_common_order(self, tmp_path: Path, shared: Path) -> None:
        golden = shared / "vectors" / "cstore" / "foreign_bigendian.cstore"
        concat_files([golden, golden], tmp_path / "ours.cstore")
        values = read_back(golden)
        assert read_back(tmp_path / "ours.cstore") == {name: column * 2 for name, column in values.items()}
        assert all(c.dtype.str[0] != ">" for c in open_sources([tmp_path / "ours.cstore"])[0].meta.columns)

    def test_attributes_of_the_first_source_are_carried_along(self, tmp_path: Path) -> None:
        store_file({"a": [1]}, tmp_path / "x.cstore", attrs={"title": "x"}, column_attrs={"a": {"unit": "m"}})
        store_file({"a": [2]}, tmp_path / "y.cstore", attrs={"title": "y"})
        concat_files([tmp_path / "x.cstore", tmp_path / "y.cstore"], tmp_path / "z.cstore")
        schema = open_sources([tmp_path / "z.cstore"])[0].meta.schema
        assert (schema.attrs, schema["a"].attrs) == ({"title": "x"}, {"unit": "m"})

    @pytest.mark.parametrize("other", [{"a": [1.5]}, {"b": [1]}, {"a": [1], "b": [1]}])
    def test_files_that_do_not_fit_are_named(self, tmp_path: Path, other: Any) -> None:
        store_file({"a": [1]}, tmp_path / "x.cstore")
        store_file(other, tmp_path / "y.cstore")
        with pytest.raises(SchemaMismatchError, match=r"y\.cstore"):
            concat_files([tmp_path / "x.cstore", tmp_path / "y.cstore"], tmp_path / "z.cstore")
        assert sorted(os.listdir(tmp_path)) == ["x.cstore", "y.cstore"]

    def test_out_that_is_a_source_is_refused(self, tmp_path: Path) -> None:
        store_file({"a": [1]}, tmp_path / "x.cstore")
        (tmp_path / "link.cstore").symlink_to(tmp_path / "x.cstore")
        before = (tmp_path / "x.cstore").read_bytes()
        for out in ("x.cstore", "link.cstore"):
            with pytest.raises(ValueError, match="one of the sources"):
                concat_files([tmp_path / "x.cstore"], tmp_path / out)
        assert (tmp_path / "x.cstore").read_bytes() == before

    def test_nothing_to_write_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="nothing to write"):
            concat_files([], tmp_path / "x.cstore")

    def test_existing_out_is_replaced_under_its_lock(self, tmp_path: Path) -> None:
        store_file({"a": [1]}, tmp_path / "x.cstore")
        store_file({"b": [1]}, tmp_path / "z.cstore")
        with Writer(tmp_path / "z.cstore", "update"), pytest.raises(WriterLockedError):
            concat_files([tmp_path / "x.cstore"], tmp_path / "z.cstore")
        concat_files([tmp_path / "x.cstore"], tmp_path / "z.cstore")
        assert read_back(tmp_path / "z.cstore") == {"a": [1]}

    def test_statistics_of_the_result_are_those_of_a_store(self, tmp_path: Path) -> None:
        paths = [write(tmp_path / f"{i}.cstore", [5, i]) for i in range(3)]
        sources = open_sources(paths)
        schema = compaction.merged_schema([source.meta for source in sources])
        destination = compaction._destination(compaction.resolve_target(tmp_path / "out.cstore"))
        with compaction.finishing(destination):
            compaction.write_concatenation(sources, destination, schema, statistics=True)
        values = {name: [] for name in schema.names}
        for path in paths:
            for name, column in read_back(path).items():
                values[name] += column
        arrays = {f.name: np.array(values[f.name], f.dtype) for f in schema}
        store_file(arrays, tmp_path / "whole.cstore", statistics=True)
        assert (tmp_path / "out.cstore").read_bytes() == (tmp_path / "whole.cstore").read_bytes()
