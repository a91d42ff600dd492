"""Conjunctions of comparisons are evaluated by a kernel, with exactly the rows of ``Predicate.mask``."""

from __future__ import annotations

import operator
import os
import pickle
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io import col, kernels_numpy
from colstore_io import rows as rows_module
from colstore_io.predicate import bind
from colstore_io.ranges import mask_in_place, ranges_in_place
from colstore_io.writing.writer import Writer

OPERATORS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq]
N = 400


def data_with_corners() -> dict[str, Any]:
    """Return columns of every comparable dtype, most values at corners; nullable ones at the end."""
    rng = np.random.default_rng(0)
    data: dict[str, Any] = {"flag": rng.random(N) < 0.5}
    for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
        limits = np.iinfo(code)
        corners = np.array([limits.min, limits.min + 1, 0, 1, 2, limits.max - 1, limits.max], code)
        data[code] = rng.choice(corners, N)
    for code in ("f4", "f8"):
        corners = np.array(
            [-np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan, np.finfo(code).smallest_subnormal], code
        )
        data[code] = rng.choice(corners, N)
    times = np.array([-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 1])
    data["when"] = rng.choice(times, N).view("M8[us]")
    data["took"] = rng.choice(times, N).view("m8[ms]")
    missing = rng.random(N) < 0.3
    data["n_i4"] = pa.array(rng.integers(-2, 3, N).astype("i4"), mask=missing)
    data["n_u8"] = pa.array(rng.integers(0, 3, N).astype("u8"), mask=missing[::-1])
    data["n_flag"] = pa.array(rng.random(N) < 0.5, mask=missing)
    return data


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The same rows as one record and as several files of several records, by both kernel families."""
    folder = tmp_path_factory.mktemp("ranges")
    data = data_with_corners()
    with Writer(folder / "one.cstore", mode="create") as writer:
        writer.write(data)
    paths, first = [], 0
    for number, records in enumerate([[130, 1], [0, 69], [200]]):
        paths.append(folder / f"part_{number}.cstore")
        with Writer(paths[-1], mode="create") as writer:
            for count in records:
                writer.write({name: values[first : first + count] for name, values in data.items()})
                first += count
    opened = [
        cs.open(source, backend=backend)
        for source in (folder / "one.cstore", [str(path) for path in paths])
        for backend in ("cpp", "numpy")
    ]
    yield opened
    for table in opened:
        table.close()


def bounds_of(table: Any, name: str) -> list[Any]:
    values = table[name].array()
    if isinstance(values, pa.Array):
        values = values.drop_null().to_numpy(zero_copy_only=False)
    found = list(np.unique(values[values == values]))
    return [*found, 0.5, -1] if values.dtype.kind in "iuf" else found


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_kernel_selects_the_rows_of_the_mask(tables: list[Any], data: st.DataObject) -> None:
    names = tables[0].columns
    parts = []
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(names))
        compare = data.draw(st.sampled_from(OPERATORS))
        parts.append(compare(col(name), data.draw(st.sampled_from(bounds_of(tables[0], name)))))
    expr = reduce(operator.and_, parts)
    for table in tables:
        source = table.source
        predicate = bind(expr, source.schema)
        expected = predicate.mask(rows_module._gathered(source, predicate, rows_module.Range(0, 1, N)))
        got = rows_module._select_of_all(source, predicate)
        np.testing.assert_array_equal(got.mask, expected)
        tests = ranges_in_place(source, predicate)
        if predicate.simple_ranges() is None:
            assert tests is None
            continue
        assert tests is not None
        assert got.offsets is not None
        np.testing.assert_array_equal(got.offsets, kernels_numpy.mask_offsets(expected))
        everywhere = mask_in_place(source, tests, np.ones(source.plan.segments.n_segments, bool))
        np.testing.assert_array_equal(everywhere.mask, expected)
        view = table.where(expr)
        assert len(view) == int(expected.sum())
        np.testing.assert_array_equal(view["i8"].array(), table["i8"].array()[expected])


def test_segments_that_cannot_match_are_not_read(tmp_path, monkeypatch):
    with Writer(tmp_path / "t.cstore", mode="create", statistics=True) as writer:
        for k in range(4):
            writer.write({"x": np.arange(100) + 100 * k, "y": np.ones(100)})
    asked = []
    monkeypatch.setattr(
        rows_module,
        "mask_in_place",
        lambda source, tests, segments: (
            asked.append(segments.tolist()),
            mask_in_place(source, tests, segments),
        )[1],
    )
    with cs.open(tmp_path / "t.cstore") as table:
        got = table.query("x >= 150 and x < 250 and y == 1")["x"].array()
    np.testing.assert_array_equal(got, np.arange(150, 250))
    assert asked == [[False, True, True, False]]


def test_companion_bytes_other_than_zero_mean_present(tmp_path):
    path = tmp_path / "t.cstore"
    cs.store({"x": pa.array([1, None, 3, 4], pa.int64())}, path).close()
    data = path.read_bytes()
    start = data.index(bytes([1, 0, 1, 1]))
    path.write_bytes(data[:start] + bytes([2, 0, 255, 1]) + data[start + 4 :])
    with cs.open(path) as table:
        assert ranges_in_place(table.source, bind(col("x") > 0, table.source.schema)) is not None
        assert table.query("x > 0")["x"].array().to_pylist() == [1, 3, 4]


def test_other_predicates_and_unmapped_files_take_the_general_road(tmp_path):
    path = tmp_path / "t.cstore"
    cs.store(
        {"x": np.arange(10), "h": np.arange(10).astype("f2"), "t": np.array(["a", "b"] * 5)}, path
    ).close()
    with cs.open(path) as table, cs.open(path, mmap=False) as unmapped:
        for expr in (col("x") != 3, (col("x") > 3) | (col("x") < 2), col("t") == "a", col("h") > 3):
            assert ranges_in_place(table.source, bind(expr, table.source.schema)) is None
        assert ranges_in_place(unmapped.source, bind(col("x") > 3, table.source.schema)) is None
        assert table.query("h > 3")["x"].array().tolist() == [4, 5, 6, 7, 8, 9]
        assert unmapped.query("x > 3")["x"].array().tolist() == [4, 5, 6, 7, 8, 9]


def test_counted_mask_composes_and_pickles_like_any_mask(tmp_path):
    path = tmp_path / "t.cstore"
    cs.store({"x": np.arange(1000)}, path).close()
    with cs.open(path) as table:
        view = table.query("x >= 10 and x < 500")
        assert len(view) == 490
        assert pickle.loads(pickle.dumps(view))["x"].array().tolist() == list(range(10, 500))
        assert view.query("x > 400")[::-1]["x"].array().tolist() == list(range(499, 400, -1))
        assert view[view["x"].array() % 2 == 0]["x"].array().tolist() == list(range(10, 500, 2))


@pytest.mark.skipif(os.name == "nt", reason="a mapped file cannot be cut on Windows")
def test_file_that_was_cut_is_an_error_and_not_a_crash(tmp_path):
    path = tmp_path / "t.cstore"
    cs.store({"x": np.arange(100_000)}, path).close()
    with cs.open(path) as table:
        assert table.source.mapped
        os.truncate(path, 4096)
        with pytest.raises(cs.FormatError):
            len(table.query("x > 3"))
