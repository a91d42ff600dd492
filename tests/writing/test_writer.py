"""Streaming writers of `.cstore` files: records, commits, what is refused."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disks import read_back
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from colstore_io.errors import SchemaMismatchError, WriterLockedError
from colstore_io.writing.merging import open_sources
from colstore_io.writing.writer import Writer

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class TestWriter:
    def test_properties_tell_what_was_written(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        writer = Writer(path)
        assert (writer.path, writer.mode, writer.closed, writer.n_records, len(writer)) == (
            path,
            "create",
            False,
            0,
            0,
        )
        writer.write({"x": [1, 2, 3]})
        writer.write({"x": np.array([], "i8")})
        assert (writer.n_records, writer.committed_rows, len(writer)) == (2, 3, 3)
        writer.close()
        writer.close()
        assert writer.closed
        for use in (lambda: writer.write({"x": [1]}), writer.commit):
            with pytest.raises(ValueError, match="closed"):
                use()

    def test_empty_mapping_does_nothing(self, tmp_path: Path) -> None:
        with Writer(tmp_path / "a.cstore") as writer:
            writer.write({})
            writer.write({"x": np.arange(2)})
            writer.write({})
            assert writer.n_records == 1

    @pytest.mark.parametrize("mode", ["create", "recreate"])
    def test_new_file_that_nothing_was_written_to_is_removed(self, tmp_path: Path, mode: Any) -> None:
        with Writer(tmp_path / "a.cstore", mode) as writer:
            writer.write({})
            writer.commit()
        assert os.listdir(tmp_path) == []

    def test_create_refuses_an_existing_file(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        path.write_bytes(b"precious")
        with pytest.raises(FileExistsError):
            Writer(path)
        assert path.read_bytes() == b"precious"
        assert os.listdir(tmp_path) == ["a.cstore"]

    def test_create_that_loses_the_lock_of_its_own_file_leaves_it_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fcntl = pytest.importorskip("fcntl")

        def held(fd: int, operation: int) -> None:
            raise BlockingIOError(11, "held")

        monkeypatch.setattr(fcntl, "flock", held)
        with pytest.raises(WriterLockedError):
            Writer(tmp_path / "a.cstore")
        assert (tmp_path / "a.cstore").exists()

    def test_update_of_a_missing_file_and_unknown_modes_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            Writer(tmp_path / "a.cstore", "update")
        with pytest.raises(ValueError, match="mode"):
            Writer(tmp_path / "a.cstore", "append")  # type: ignore[arg-type]
        with pytest.raises(FileNotFoundError):
            Writer(tmp_path / "no" / "a.cstore", "recreate")
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize(
        "bad",
        [
            {"y": np.arange(3)},
            {"x": np.arange(3.0)},
            {"x": np.arange(3), "y": np.arange(3)},
            {"x": np.arange(3, dtype="i4")},
            {"x": np.arange(6).reshape(2, 3)},
        ],
    )
    def test_data_that_do_not_fit_are_refused_and_the_writer_goes_on(self, tmp_path: Path, bad: Any) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path) as writer:
            writer.write({"x": np.arange(3)})
            with pytest.raises(ValueError):
                writer.write(bad)
            writer.write({"x": np.arange(2)})
        assert read_back(path) == {"x": [0, 1, 2, 0, 1]}

    def test_first_data_that_cannot_be_stored_leave_the_schema_open(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path) as writer:
            with pytest.raises(TypeError):
                writer.write({"x": np.arange(3) * 1j})
            with pytest.raises(ValueError):
                writer.write({"x": np.arange(3), "y": np.arange(4)})
            writer.write({"z": np.arange(3)})
        assert read_back(path) == {"z": [0, 1, 2]}

    def test_text_pads_to_the_width_of_the_first_data_or_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path) as writer:
            writer.write({"s": ["abc", "de"]})
            writer.write({"s": ["f"]})
            with pytest.raises(SchemaMismatchError):
                writer.write({"s": ["longer"]})
            assert writer.n_records == 2
        assert read_back(path)["s"] == ["abc", "de", "f"]

    def test_exception_inside_a_with_block_commits_what_was_written(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        with pytest.raises(RuntimeError), Writer(path) as writer:  # noqa: PT012 - the block is what is tested
            writer.write({"x": np.arange(3)})
            raise RuntimeError
        assert read_back(path) == {"x": [0, 1, 2]}

    def test_dropped_writer_commits_with_a_warning(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        writer = Writer(path)
        writer.write({"x": np.arange(3)})
        with pytest.warns(ResourceWarning, match=r"a\.cstore"):  # noqa: PT031
            del writer
            gc.collect()
        assert read_back(path) == {"x": [0, 1, 2]}

    def test_caller_may_reuse_its_arrays_between_writes(self, tmp_path: Path) -> None:
        buffer = np.zeros(4)
        with Writer(tmp_path / "a.cstore") as writer:
            for i in range(3):
                buffer[:] = i
                writer.write({"x": buffer})
        assert read_back(tmp_path / "a.cstore") == {"x": [0.0] * 4 + [1.0] * 4 + [2.0] * 4}

    def test_commit_is_visible_while_the_writer_goes_on(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path, statistics=True) as writer:
            writer.write({"x": np.arange(3)})
            writer.commit()
            assert read_back(path) == {"x": [0, 1, 2]}
            writer.write({"x": np.arange(2)})
            assert read_back(path) == {"x": [0, 1, 2]}
            writer.commit()
            writer.commit()
            assert read_back(path) == {"x": [0, 1, 2, 0, 1]}
        meta = open_sources([path])[0].meta
        assert meta.statistics is not None
        assert meta.statistics.maximum["x"].tolist() == [2, 1]

    def test_attributes_are_stored_and_refused_where_the_header_stands(self, tmp_path: Path) -> None:
        path = tmp_path / "a.cstore"
        with Writer(path, attrs={"title": "t"}, column_attrs={"x": {"unit": "m"}}) as writer:
            writer.write({"x": np.arange(3)})
        schema = open_sources([path])[0].meta.schema
        assert schema.attrs == {"title": "t"}
        assert schema["x"].attrs == {"unit": "m"}
        with pytest.raises(ValueError, match="attributes"):
            Writer(path, "update", attrs={"title": "u"})
        with pytest.raises(KeyError), Writer(tmp_path / "b.cstore", column_attrs={"y": {}}) as writer:
            writer.write({"x": np.arange(3)})


@quick
@given(array=hnp.arrays(np.dtype("<f8"), st.integers(0, 30)), n=st.integers(1, 4))
def test_what_was_written_is_what_is_there(tmp_path: Path, array: np.ndarray, n: int) -> None:
    path = tmp_path / "a.cstore"
    with Writer(path, "recreate") as writer:
        for _ in range(n):
            writer.write({"x": array})
    np.testing.assert_array_equal(read_back(path)["x"], np.tile(array, n))
