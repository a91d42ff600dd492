"""The streaming writer and one-shot writes: bytes, errors, and what they leave behind."""

from __future__ import annotations

import gc
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disks import read_back
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from colstore_io.errors import FormatError, SchemaMismatchError, UnsupportedFeatureError, WriterLockedError
from colstore_io.writing.locks import open_locked
from colstore_io.writing.merging import open_sources
from colstore_io.writing.writer import Writer, store_file

colstore = pytest.importorskip("colstore", reason="the other implementation of the format, to compare bytes")

DTYPES = (
    *("<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1"),
    *("<M8[s]", "<M8[25us]", "<m8[ns]", "<m8[D]", "|S1", "|S7", "<U1", "<U5"),
)


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, np.ndarray]]:
    """One to five records of random columns; strings do not end in NUL, NaN has one bit pattern."""
    # A footer cannot name lone surrogates, so they have a test of their own.
    text = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
    names = draw(st.lists(text, min_size=1, max_size=5, unique=True))
    dtypes = [np.dtype(draw(st.sampled_from(DTYPES))) for _ in names]
    result = []
    for n_rows in draw(st.lists(st.integers(0, 40), min_size=1, max_size=5)):
        columns = {}
        for name, dtype in zip(names, dtypes, strict=True):
            seed = draw(st.integers(0, 2**32 - 1))
            columns[name] = random_column(np.random.default_rng(seed), dtype, n_rows)
        result.append(columns)
    return result


def random_column(rng: np.random.Generator, dtype: np.dtype[Any], n_rows: int) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(0, 2, n_rows).astype(dtype)
    if dtype.kind == "f":
        values = rng.standard_normal(n_rows).astype(dtype)
        values[rng.random(n_rows) < 0.1] = rng.choice([np.nan, np.inf, -np.inf, 0.0])
        return values
    if dtype.kind in "SU":
        width = dtype.itemsize if dtype.kind == "S" else dtype.itemsize // 4
        return np.array(["".join(rng.choice(list("abcxyz"), width)) for _ in range(n_rows)], dtype)
    return rng.integers(0, 256, n_rows * dtype.itemsize, np.uint8).view(dtype)


quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class TestBytes:
    """Equal data give the bytes of every other writer of the format (cstore.md 8.6)."""

    @quick
    @given(data=records(), statistics=st.booleans())
    def test_stream_and_appended_stream_are_those_of_the_reference(
        self, tmp_path: Path, data: list[dict[str, Any]], statistics: bool
    ) -> None:
        ours, theirs = tmp_path / "ours.cstore", tmp_path / "theirs.cstore"
        with (
            Writer(ours, "recreate", statistics=statistics) as writer,
            colstore.recreate(theirs, statistics=statistics) as reference,
        ):
            for record in data:
                writer.write(record)
                reference.write(record)
        assert ours.read_bytes() == theirs.read_bytes()
        with (
            Writer(ours, "update", statistics=statistics) as writer,
            colstore.update(theirs, statistics=statistics) as reference,
        ):
            writer.write(data[0])
            reference.write(data[0])
        assert ours.read_bytes() == theirs.read_bytes()

    @quick
    @given(data=records(), statistics=st.booleans())
    def test_one_shot_store_is_that_of_the_reference_and_of_a_one_record_stream(
        self, tmp_path: Path, data: list[dict[str, Any]], statistics: bool
    ) -> None:
        ours, theirs, stream = tmp_path / "o.cstore", tmp_path / "t.cstore", tmp_path / "s.cstore"
        store_file(data[0], ours, mode="recreate", statistics=statistics)
        colstore.store(data[0], theirs, mode="recreate", statistics=statistics, show_progress=False).close()
        with Writer(stream, "recreate", statistics=statistics) as writer:
            writer.write(data[0])
        assert ours.read_bytes() == theirs.read_bytes() == stream.read_bytes()

    @quick
    @given(data=records(), statistics=st.booleans())
    def test_compacted_stream_is_the_one_shot_store(
        self, tmp_path: Path, data: list[dict[str, Any]], statistics: bool
    ) -> None:
        merged, whole = tmp_path / "m.cstore", tmp_path / "w.cstore"
        store_file(iter(data), merged, mode="recreate", statistics=statistics, compact=True)
        together = {name: np.concatenate([record[name] for record in data]) for name in data[0]}
        store_file(together, whole, mode="recreate", statistics=statistics)
        assert merged.read_bytes() == whole.read_bytes()

    @pytest.mark.parametrize("n_rows", [1, 40_000, 90_000, 700_000])
    def test_large_and_small_records_in_any_mixture(self, tmp_path: Path, n_rows: int) -> None:
        """Records around the sizes at which appends change from buffered to direct."""
        ours, theirs = tmp_path / "ours.cstore", tmp_path / "theirs.cstore"
        rng = np.random.default_rng(n_rows)
        data = [
            {"x": rng.random(n), "y": rng.integers(0, 9, n).astype("i1")}
            for n in (3, n_rows, 0, 5, n_rows, 7)
        ]
        with Writer(ours) as writer, colstore.create(theirs) as reference:
            for record in data:
                writer.write(record)
                reference.write(record)
        assert ours.read_bytes() == theirs.read_bytes()

    def test_big_endian_and_strided_input_is_stored_like_its_plain_twin(self, tmp_path: Path) -> None:
        base = np.arange(20.0)
        with Writer(tmp_path / "a.cstore") as writer:
            writer.write({"x": base[::2].copy()})
            writer.write({"x": base[::2].astype(">f8")})
            writer.write({"x": base[::2]})
        assert read_back(tmp_path / "a.cstore") == {"x": base[::2].tolist() * 3}

    def test_small_appends_reach_the_file_in_aligned_pieces(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Pieces of at least 2 MiB that end at multiples of 2 MiB keep the page cache in huge pages."""
        calls: list[tuple[int, int]] = []
        real = os.pwritev

        def pwritev(fd: int, views: Any, offset: int) -> int:
            calls.append((offset, sum(map(len, views))))
            return real(fd, views, offset)

        monkeypatch.setattr(os, "pwritev", pwritev)
        with Writer(tmp_path / "a.cstore") as writer:
            for _ in range(400):
                writer.write({"x": np.arange(5000.0)})
            body = list(calls)
        assert body
        for offset, size in body:
            assert offset % (2 << 20) == 0
            assert size % (2 << 20) == 0

    def test_partial_writes_are_resumed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def pwritev(fd: int, views: Any, offset: int) -> int:
            return os.pwrite(fd, b"".join(views)[:7777], offset)

        data = [{"x": np.arange(n, dtype="i4"), "y": np.arange(n) * 0.5} for n in (50_000, 3, 200_000)]
        monkeypatch.setattr(os, "pwritev", pwritev)
        with Writer(tmp_path / "a.cstore") as writer:
            for record in data:
                writer.write(record)
        monkeypatch.undo()
        with Writer(tmp_path / "b.cstore") as writer:
            for record in data:
                writer.write(record)
        assert (tmp_path / "a.cstore").read_bytes() == (tmp_path / "b.cstore").read_bytes()

    def test_more_columns_than_one_gathered_write_takes(self, tmp_path: Path) -> None:
        data = {f"c{i}": np.full(200, i, "i8") for i in range(3000)}
        store_file(data, tmp_path / "a.cstore")
        colstore.store(data, tmp_path / "b.cstore", show_progress=False).close()
        assert (tmp_path / "a.cstore").read_bytes() == (tmp_path / "b.cstore").read_bytes()


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


@quick
@given(array=hnp.arrays(np.dtype("<f8"), st.integers(0, 30)), n=st.integers(1, 4))
def test_what_was_written_is_what_is_there(tmp_path: Path, array: np.ndarray, n: int) -> None:
    path = tmp_path / "a.cstore"
    with Writer(path, "recreate") as writer:
        for _ in range(n):
            writer.write({"x": array})
    np.testing.assert_array_equal(read_back(path)["x"], np.tile(array, n))
