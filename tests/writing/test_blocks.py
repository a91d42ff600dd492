"""One rule for all writers and formats: what a ``with`` block that raises leaves behind."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colstore_io as cs
from colstore_io.writing.blocks import BlockWriter
from colstore_io.writing.messagelog import LogWriter

SUFFIXES = (".cstore", ".abcd", ".colbin")
REASONS = (ZeroDivisionError, KeyboardInterrupt, GeneratorExit)


def rows(start: int, n: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(start, start + n)}


def appender(folder: Path, suffix: str) -> Any:
    return cs.appender(folder / "d", format={".abcd": "columns"}.get(suffix, suffix[1:]))


def updated(folder: Path, suffix: str) -> Any:
    cs.store(rows(0, 2), folder / f"t{suffix}").close()
    return cs.update(folder / f"t{suffix}")


class TableLog:
    """A `LogWriter` whose messages are tables, which is what the others are given."""

    def __init__(self, path: Path) -> None:
        cs.store(rows(0, 2), path).close()
        self.writer = LogWriter(path)

    def __enter__(self) -> TableLog:
        self.writer.__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.writer.__exit__(*exc_info)

    def write(self, data: Any) -> None:
        self.writer.write_table(data)


WRITERS: dict[str, tuple[Callable[[Path, str], Any], int]] = {
    "create": (lambda folder, suffix: cs.create(folder / f"t{suffix}"), 0),
    "recreate": (lambda folder, suffix: cs.recreate(folder / f"t{suffix}"), 0),
    "update": (updated, 2),
    "appender": (appender, 0),
}
CASES = [
    *((start, before, suffix) for start, before in WRITERS.values() for suffix in SUFFIXES),
    (lambda folder, suffix: TableLog(folder / f"t{suffix}"), 2, ".colbin"),
]
NAMES = [*(f"{name}{suffix}" for name in WRITERS for suffix in SUFFIXES), "log"]


def count(folder: Path, suffix: str) -> int:
    path = folder / "d" if (folder / "d").exists() else folder / f"t{suffix}"
    with cs.open(path) as table:
        assert table["x"].array().tolist()[-3:] == [2, 3, 4]
        return len(table)


@pytest.mark.parametrize(("start", "before", "suffix"), CASES, ids=NAMES)
@pytest.mark.parametrize("reason", REASONS)
def test_rows_that_were_taken_count_and_the_reason_passes_through(
    tmp_path: Path, start: Callable[..., Any], before: int, suffix: str, reason: type[BaseException]
) -> None:
    with pytest.raises(reason), start(tmp_path, suffix) as writer:  # noqa: PT012 - it comes inside
        writer.write(rows(0, 2))
        writer.write(rows(2, 3))
        raise reason
    assert count(tmp_path, suffix) == before + 5


@pytest.mark.parametrize(("start", "before", "suffix"), CASES, ids=NAMES)
def test_a_generator_that_is_closed_leaves_the_block_too(
    tmp_path: Path, start: Callable[..., Any], before: int, suffix: str
) -> None:
    def sink() -> Iterator[None]:
        with start(tmp_path, suffix) as writer:
            writer.write(rows(0, 5))
            yield

    running = sink()
    next(running)
    running.close()  # type: ignore[attr-defined]
    assert count(tmp_path, suffix) == before + 5


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("mode", ["create", "recreate"])
@pytest.mark.parametrize("reason", REASONS)
def test_without_rows_a_new_file_does_not_appear(
    tmp_path: Path, suffix: str, mode: str, reason: type[BaseException]
) -> None:
    with pytest.raises(reason), getattr(cs, mode)(tmp_path / f"t{suffix}"):
        raise reason
    assert list(tmp_path.iterdir()) == []


def test_every_writer_ends_its_block_in_the_same_place(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        with cs.create(tmp_path / f"t{suffix}") as new:
            new.write(rows(0, 2))
        with cs.update(tmp_path / f"t{suffix}") as update, appender(tmp_path / suffix[1:], suffix) as shards:
            for writer in (new, update, shards):
                assert isinstance(writer, BlockWriter)
                assert type(writer).__exit__ is BlockWriter.__exit__
    assert LogWriter.__exit__ is BlockWriter.__exit__


class TestNameOfAnUpdate:
    """The name of a file that is written to is never a pattern."""

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_a_pattern_finds_no_file(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"t1{suffix}"
        cs.store(rows(0, 3), path).close()
        before = path.read_bytes()
        for pattern in ("t*", "t?", "t[1]"):
            with pytest.raises(FileNotFoundError, match=re.escape(pattern)):
                cs.update(str(tmp_path / f"{pattern}{suffix}"))
        assert path.read_bytes() == before

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_a_file_whose_name_looks_like_one_is_found(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"t[1]{suffix}"
        for name in (path, tmp_path / f"t1{suffix}"):
            cs.store(rows(0, 3), name).close()
        with cs.update(str(path)) as writer:
            writer.write(rows(3, 2))
        with cs.open(path) as table:
            assert len(table) == 5
        with cs.open(tmp_path / f"t1{suffix}") as table:
            assert len(table) == 3

    @pytest.mark.parametrize("suffix", [".abcd", ".colbin"])
    def test_append_takes_it_in_the_same_way(self, tmp_path: Path, suffix: str) -> None:
        cs.store(rows(0, 3), tmp_path / f"t1{suffix}").close()
        with pytest.raises(FileNotFoundError):
            cs.append(str(tmp_path / f"t*{suffix}"), rows(3, 2))
        with cs.open(tmp_path / f"t1{suffix}") as table:
            assert len(table) == 3

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_an_object_of_a_store_is_refused_without_a_look_at_it(self, suffix: str) -> None:
        with pytest.raises(io.UnsupportedOperation):
            cs.update(f"memory://blocks/none*{suffix}")
