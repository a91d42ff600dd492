"""Arrays and files of callers that are not what they might be: unaligned, shared with the source, cut meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colstore_io as cs

ROWS = 3000
SUFFIXES = (".cstore", ".abcd", ".colbin")
EACH = pytest.mark.parametrize("suffix", SUFFIXES)


def unaligned(values: np.ndarray) -> np.ndarray:
    """Return a copy that begins one byte off."""
    room = np.zeros(values.nbytes + 1, np.uint8)
    array = room[1:].view(values.dtype)
    array[:] = values
    assert not array.flags.aligned
    return array


def table() -> dict[str, np.ndarray]:
    return {
        "i": np.arange(ROWS) % 97,
        "f": np.arange(ROWS) / 7,
        "u": (np.arange(ROWS) % 300).astype("u2"),
        "s": (np.arange(ROWS) % 11).astype("f4"),
    }


@EACH
def test_unaligned_columns_are_stored(tmp_path: Path, suffix: str) -> None:
    data = table()
    path = tmp_path / f"a{suffix}"
    cs.store({name: unaligned(values) for name, values in data.items()}, path).close()
    with cs.open(path) as opened:
        for name, values in data.items():
            np.testing.assert_array_equal(opened[name].array(), values)


@pytest.mark.parametrize("encoding", ["plain", "delta", "dict"])
def test_unaligned_columns_are_encoded(tmp_path: Path, encoding: str) -> None:
    data = {"i": table()["i"], "u": table()["u"].astype("i4")}
    path = tmp_path / "a.abcd"
    cs.store({name: unaligned(values) for name, values in data.items()}, path, encoding=encoding).close()
    with cs.open(path) as opened:
        for name, values in data.items():
            np.testing.assert_array_equal(opened[name].array(), values)


@EACH
def test_unaligned_outputs_are_filled(tmp_path: Path, suffix: str) -> None:
    data = table()
    path = tmp_path / f"a{suffix}"
    cs.store(data, path).close()
    rows = np.arange(ROWS)[::-3].copy()
    with cs.open(path) as opened:
        for name, values in data.items():
            for key in (slice(None), slice(5, 2000, 3), rows, values % 2 == 0):
                out = unaligned(np.zeros_like(values[key]))
                assert opened[key, name].array(out=out) is out
                np.testing.assert_array_equal(out, values[key])


@EACH
def test_output_in_the_memory_that_is_read_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    cs.store({"i": np.arange(ROWS)}, path).close()
    memory = bytearray(path.read_bytes())
    before = bytes(memory)
    with cs.open(memory) as opened:
        for key, n in ((slice(10), 10), (np.arange(10), 10), (np.arange(ROWS) < 10, 10)):
            out = np.frombuffer(memory, np.int64, n, offset=len(memory) - 8 * n)
            with pytest.raises(ValueError, match="overlaps"):
                opened[key, "i"].array(out=out)
            with pytest.raises(ValueError, match="overlaps"):
                opened[key, ["i"]].dict(out={"i": out})
        assert memory == before
        apart = np.empty(10, np.int64)
        assert opened[:10, "i"].array(out=apart).tolist() == list(range(10))


READS: tuple[Callable[[Any], Any], ...] = (
    lambda opened: opened["f"].array(),
    lambda opened: opened[10:2900, "f"].array(),
    lambda opened: opened[np.arange(0, ROWS, 2), "f"].array(),
    lambda opened: opened[np.arange(ROWS) % 3 == 0, "f"].array(),
    lambda opened: opened[[1, ROWS - 1], "f"].array(),
    lambda opened: opened.query("f > 3")["f"].array(),
    lambda opened: opened[::-1].dict(),
)


@EACH
@pytest.mark.parametrize("read", READS)
def test_file_that_is_cut_between_two_reads_is_refused(tmp_path: Path, suffix: str, read: Any) -> None:
    path = tmp_path / f"a{suffix}"
    cs.store(table(), path).close()
    whole = path.read_bytes()
    for left in (len(whole) - 1, 100, 0):
        with cs.open(path) as opened:
            opened["i"].array()  # of encoded files these values are kept: what comes next is not
            os.truncate(path, left)
            out = np.full(ROWS, 7.0)
            for call in (
                lambda opened=opened: read(opened),
                lambda opened=opened, out=out: opened["f"].array(out=out),
            ):
                try:
                    call()
                except cs.FormatError:
                    assert left or (out == 7).all()
                else:
                    assert left == len(whole) - 1  # nothing was asked for that is not there
                    assert suffix != ".cstore"
        path.write_bytes(whole)
