"""Sums, means and bounds of columns in many records: what NumPy says of the whole array."""

from __future__ import annotations

import numpy as np
import pytest

import colstore_io as cs
from colstore_io import reductions

N = 3000
DATA = {
    "f8": np.random.default_rng(0).standard_normal(N),
    "f4": np.random.default_rng(1).random(N, "f4"),
    "f2": np.linspace(0, 1, N).astype("f2"),
    "i8": np.arange(N) * (1 << 53),  # the sum wraps
    "i2": np.arange(N).astype("i2"),
    "u1": np.arange(N).astype("u1"),
    "flag": np.arange(N) % 3 == 0,
    "holes": np.where(np.arange(N) == 2777, np.nan, 1.0),
    "span": np.arange(N).astype("m8[s]"),
}
NAMES = ("sum", "mean", "min", "max", "std")


@pytest.fixture(params=["short", "long"])
def small_blocks(request, monkeypatch):
    monkeypatch.setattr(reductions, "BLOCK_ROWS", 128)
    monkeypatch.setattr(reductions, "LONG_ROWS", 1 if request.param == "long" else 1 << 20)


@pytest.fixture(params=["records", "files", "unmapped"])
def table(request, tmp_path):
    paths = (
        [tmp_path / "a.cstore", tmp_path / "b.cstore"]
        if request.param == "files"
        else [tmp_path / "a.cstore"]
    )
    for path, rows in zip(paths, np.array_split(np.arange(N), len(paths)), strict=True):
        with cs.create(path) as writer:
            for part in np.array_split(rows, 37 // len(paths)):
                writer.write({name: values[part] for name, values in DATA.items()})
            writer.write({name: values[:0] for name, values in DATA.items()})
    with cs.open([str(p) for p in paths], mmap=request.param != "unmapped") as table:
        yield table


@pytest.mark.parametrize(
    "rows", [slice(None), slice(5, 2990), slice(700, 701), slice(0, 0), slice(None, None, -1)]
)
@pytest.mark.parametrize("column", DATA)
def test_reductions_are_those_of_numpy(table, small_blocks, column, rows):
    values = DATA[column][rows]
    for name in NAMES:
        if len(values) == 0 or (values.dtype.kind == "m" and name == "std"):
            continue
        want, got = getattr(values, name)(), getattr(table[rows, column], name)()
        assert np.asarray(got).dtype == np.asarray(want).dtype, name
        if values.dtype.kind == "f" and name in ("sum", "mean", "std"):
            bound = max(
                1e-300,
                len(values) * np.finfo(values.dtype).eps * float(np.nansum(np.abs(values.astype("f8")))),
            )
            np.testing.assert_allclose(got, want, rtol=0, atol=bound, err_msg=name)
        else:
            np.testing.assert_array_equal(got, want, err_msg=name)


def test_the_array_is_not_brought_together(table, small_blocks, monkeypatch):
    if not table.source.mapped:
        pytest.skip("what is not mapped is read as a whole")
    monkeypatch.setattr(
        "colstore_io.column.read_part", lambda *args: pytest.fail("the whole column was read")
    )
    assert table["i2"].sum() == DATA["i2"].sum()


def test_a_file_cut_short_is_an_error(tmp_path, small_blocks):
    path = tmp_path / "cut.cstore"
    with cs.create(path) as writer:
        for _ in range(10):
            writer.write({"a": np.arange(500)})
    with cs.open(path) as table:
        table["a"].sum()
        with open(path, "r+b") as file:
            file.truncate(path.stat().st_size - 8)
        with pytest.raises(cs.FormatError):
            table["a"].sum()
