"""Equal data give the bytes of every other writer of the format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disks import read_back
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
