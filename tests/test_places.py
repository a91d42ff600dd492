"""Is a file still what was planned, and where are its records if they are not where they were assumed?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import colstore_io as cs
from colstore_io import formats, places
from colstore_io.formats.cstore.assumed import AssumedRecords


def table(first: int, rows: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(first, first + rows), "y": np.arange(rows, dtype="f4")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t.cstore"
    with cs.create(path) as writer:
        writer.write(table(0, 1000))
        writer.write(table(1000, 10))
    return path


def append(path: Path) -> None:
    with cs.update(path) as writer:
        writer.write(table(1010, 5))


def in_place(path: Path, content: bytes) -> None:
    with open(path, "r+b") as handle:
        handle.write(content)
        handle.truncate()


def other_records(path: Path) -> None:
    with cs.create(path.parent / "o.cstore") as writer:
        writer.write(table(0, 900))
        writer.write(table(900, 200))
    in_place(path, (path.parent / "o.cstore").read_bytes())


def another_format(path: Path) -> None:
    cs.store(table(0, 1010), path.parent / "o.abcd").close()
    in_place(path, (path.parent / "o.abcd").read_bytes())


CHANGES = {
    "nothing": (lambda path: None, True),
    "an append": (append, True),
    "other records": (other_records, False),
    "another format": (another_format, False),
    "cut in its header": (lambda path: in_place(path, path.read_bytes()[:100]), False),
    "cut in a record": (lambda path: in_place(path, path.read_bytes()[:-200]), False),
    "no magic": (lambda path: in_place(path, b"x" + path.read_bytes()[1:]), False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_only_an_append_leaves_what_was_planned(path: Path, change: str) -> None:
    apply, kept = CHANGES[change]
    with cs.open(path) as opened:
        source = opened.source
        apply(path)
        assert places.only_appended(source.plan, 0, source.files[0]) is kept


def test_formats_whose_values_have_no_addresses_are_asked_by_their_decoders() -> None:
    assert formats.addressable_format("cstore") is formats.format_named("cstore")
    for name in ("columns", "colbin"):
        with pytest.raises(KeyError):
            formats.addressable_format(name)


def test_a_guard_tells_the_rows_before_a_record_that_it_assumes() -> None:
    guard = AssumedRecords(320, n_records=4, rows=10, last_rows=3, row_bytes=8)
    starts = guard.index().body_start.tolist()
    assert [guard.rows_before(start) for start in starts] == [0, 10, 20, 30]
    assert [guard.rows_before(start) for start in (0, starts[1] + 8, starts[3] + guard.stride)] == [None] * 3
