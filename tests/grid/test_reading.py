"""Any selection of any variable, however it is cut, stored and reached, is what NumPy selects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import CountingFileSystem, new_store

from colstore_io.errors import FormatError
from colstore_io.grid import GridWriter, compact_grid, open_container
from colstore_io.grid.commit import Part, whole_part
from colstore_io.grid.container import place_of
from colstore_io.grid.layout import Axis
from colstore_io.grid.model import Dimension, VariableSpec

DIMS = ("x", "y", "z", "w")
WAYS = {"mapped": {}, "read": {"mmap": False}, "numpy": {"backend": "numpy"}}


def spec_of(name, values, axes, kind="plain"):
    dtype = np.dtype(object) if kind in ("text", "bytes") else values.dtype
    return VariableSpec(name, kind, dtype, DIMS[: values.ndim], tuple(axes))


def write(path, variables, filesystem=None):
    """Write (spec, values) pairs as one generation."""
    writer = GridWriter(place_of(path, filesystem=filesystem), "w")
    for spec, values in variables:
        writer.put(whole_part(spec), values)
        writer.dims.update({d: Dimension(n) for d, n in zip(spec.dims, spec.shape, strict=True)})
    writer.commit()


def cut(draw, n):
    """Return chunk lengths that add up to n."""
    if draw(st.booleans()):
        return Axis.regular(n, draw(st.integers(1, n + 1)))
    lengths = []
    while sum(lengths) < n:
        lengths.append(draw(st.integers(1, n - sum(lengths))))
    return Axis.of_lengths(lengths)


@st.composite
def grids(draw):
    shape = draw(st.lists(st.integers(1, 7), max_size=4))
    dtype = draw(st.sampled_from(["u1", "i2", "f4", "i8", "c16", "U3", "M8[s]"]))
    count = int(np.prod(shape, dtype=int))
    values = np.arange(1, count + 1).astype("i8").astype(dtype).reshape(shape)
    return values, [cut(draw, n) for n in shape]


@st.composite
def keys(draw, shape):
    key = []
    for n in shape:
        key.append(
            draw(
                st.one_of(
                    st.integers(-n, n - 1),
                    st.slices(n),
                    st.lists(st.integers(-n, n - 1), max_size=8).map(lambda found: np.array(found, np.int64)),
                )
            )
        )
    return key


def selected(values, key):
    for axis in reversed(range(values.ndim)):
        values = values[(slice(None),) * axis + (key[axis],)]
    return values


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_outer_selection_is_that_of_numpy(tmp_path_factory, way, data):
    values, axes = data.draw(grids())
    path = tmp_path_factory.mktemp("g")
    write(path, [(spec_of("v", values, axes, "complex" if values.dtype.kind == "c" else "plain"), values)])
    container = open_container(path, **WAYS[way])
    variable = container.variable("v")
    for _ in range(3):
        key = data.draw(keys(values.shape))
        found = variable.read_outer(key)
        expected = selected(values, key)
        assert found.dtype == values.dtype
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
    container.close()


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_points_are_those_of_numpy(tmp_path_factory, way, data):
    values, axes = data.draw(grids().filter(lambda g: g[0].ndim > 0))
    path = tmp_path_factory.mktemp("g")
    write(path, [(spec_of("v", values, axes, "complex" if values.dtype.kind == "c" else "plain"), values)])
    container = open_container(path, **WAYS[way])
    shape = data.draw(st.sampled_from([(5,), (0,), (2, 3), ()]))
    key = [
        np.array(data.draw(st.lists(st.integers(-n, n - 1), min_size=6, max_size=6)), np.int64)[
            : int(np.prod(shape))
        ].reshape(shape)
        for n in values.shape
    ]
    np.testing.assert_array_equal(container.variable("v").read_points(key), values[tuple(key)])
    key[0] = slice(0, None, 2)
    expected = values[::2]
    if values.ndim > 1:
        expected = np.moveaxis(expected[(slice(None), *key[1:])], 0, -1)
    np.testing.assert_array_equal(container.variable("v").read_points(key), expected)
    container.close()


@pytest.mark.parametrize("way", WAYS)
def test_index_out_of_range_names_the_dimension(tmp_path, way):
    values = np.arange(20.0).reshape(4, 5)
    write(tmp_path / "a", [(spec_of("v", values, [Axis.regular(4, 3), Axis.regular(5, 2)]), values)])
    variable = open_container(tmp_path / "a", **WAYS[way]).variable("v")
    for key in ([4, 0], [slice(None), np.array([0, -6])]):
        with pytest.raises(IndexError, match=r"dimension '[xy]'"):
            variable.read_outer(key)
    for n in (3, 70_000):
        with pytest.raises(IndexError, match="index 5 is out of range for dimension 'y' of length 5"):
            variable.read_points([np.zeros(n, int), np.full(n, 5)])
    with pytest.raises(IndexError):
        variable.read_outer([0])


@pytest.mark.parametrize("way", WAYS)
def test_many_points_with_negative_indices_fold(tmp_path, way):
    values = np.arange(20.0).reshape(4, 5)
    write(tmp_path / "a", [(spec_of("v", values, [Axis.regular(4, 3), Axis.regular(5, 2)]), values)])
    variable = open_container(tmp_path / "a", **WAYS[way]).variable("v")
    rng = np.random.default_rng(0)
    key = [rng.integers(-4, 4, 100_000), rng.integers(-5, 5, 100_000)]
    np.testing.assert_array_equal(variable.read_points(key), values[tuple(key)])


@pytest.mark.parametrize("way", WAYS)
def test_text_of_any_kind_comes_back(tmp_path, way):
    text = np.array([["a", "\0b\0", "\ud800"], ["", np.nan, None]], object)
    raw = np.array([[b"\0", b"", b"\xff" * 300], [None, np.nan, b"x"]], object)
    axes = [Axis.regular(2, 1), Axis.regular(3, 2)]
    write(tmp_path / "a", [(spec_of("t", text, axes, "text"), text), (spec_of("b", raw, axes, "bytes"), raw)])
    container = open_container(tmp_path / "a", **WAYS[way])
    for name, values in (("t", text), ("b", raw)):
        for key in (
            [slice(None), slice(None)],
            [1, slice(None)],
            [np.array([1, 0, 1]), np.array([2, 0])],
            [0, 1],
        ):
            found, expected = (
                container.variable(name).read_outer(key),
                np.asarray(selected(values, key), object),
            )
            assert found.shape == expected.shape
            assert list(map(repr, found.flat)) == list(map(repr, expected.flat))
        points = [np.array([0, 1, 0]), np.array([2, 1, 1])]
        found = container.variable(name).read_points(points)
        assert list(map(repr, found)) == list(map(repr, values[tuple(points)]))


def test_later_member_wins_and_text_follows_its_member(tmp_path):
    axes = [Axis.regular(6, 2)]
    values, text = np.arange(6), np.array(list("abcdef"), object)
    write(tmp_path / "a", [(spec_of("v", values, axes), values), (spec_of("t", text, axes, "text"), text)])
    writer = GridWriter(place_of(tmp_path / "a"), "r+")
    for name, new in (("v", np.array([20, 30])), ("t", np.array(["long text", None], object))):
        spec = writer.existing.variables[name]
        writer.put(Part(spec, (Axis.regular(2, 2),), (1,)), new)
    writer.commit()
    expected = {"v": [0, 1, 20, 30, 4, 5], "t": ["a", "b", "long text", None, "e", "f"]}
    for _ in range(2):
        container = open_container(tmp_path / "a")
        for name, wanted in expected.items():
            assert container.variable(name).read_outer([slice(None)]).tolist() == wanted
            assert container.variable(name).read_points([np.arange(6)]).tolist() == wanted
        assert compact_grid(tmp_path / "a") == 2


def test_large_box_is_copied_by_several_threads(tmp_path):
    values = np.random.default_rng(0).integers(0, 1 << 40, (40, 300, 200))
    write(
        tmp_path / "a",
        [
            (
                spec_of("v", values, [Axis.regular(40, 25), Axis.regular(300, 300), Axis.regular(200, 90)]),
                values,
            )
        ],
    )
    variable = open_container(tmp_path / "a").variable("v")
    assert (variable.read_outer([slice(None)] * 3) == values).all()
    assert (
        variable.read_outer([slice(1, 39), slice(None, None, 2), slice(5, None)]) == values[1:39, ::2, 5:]
    ).all()


# ----------------------------------------------------------------------------------------------------------
# Remote


@pytest.fixture
def remote():
    name, store = new_store()
    return CountingFileSystem(name, skip_instance_cache=True), store


def test_opening_a_remote_container_is_one_listing_and_one_read(remote):
    fs, store = remote
    values = np.arange(1000.0).reshape(10, 100)
    write(
        "counting://b/g", [(spec_of("v", values, [Axis.regular(10, 1), Axis.regular(100, 10)]), values)], fs
    )
    fs.invalidate_cache()
    store.log.clear()
    open_container("counting://b/g", filesystem=fs)
    assert len(store.log) <= 3, store.log


def test_remote_point_reads_a_few_bytes_in_one_request(remote):
    fs, _ = remote
    values = np.random.default_rng(0).normal(size=(100, 100, 100))
    axes = [Axis.regular(100, 50), Axis.regular(100, 100), Axis.regular(100, 100)]
    write("counting://b/g", [(spec_of("v", values, axes), values)], fs)
    variable = open_container("counting://b/g", filesystem=fs).variable("v")
    before = variable.source.io.as_dict()
    assert variable.read_outer([70, 3, 4]) == values[70, 3, 4]
    after = variable.source.io.as_dict()
    assert after["requests"] - before["requests"] == 1
    assert after["bytes"] - before["bytes"] == 8


def test_remote_text_is_checked_by_the_request_that_fetches_it(remote):
    fs, _ = remote
    text = np.array(["first", "second", "third"], object)
    write("counting://b/g", [(spec_of("v", text, [Axis.regular(3, 3)], "text"), text)], fs)
    variable = open_container("counting://b/g", filesystem=fs).variable("v")
    counts = []
    for position in (1, 2):
        before = variable.source.io.as_dict()["requests"]
        assert variable.read_outer([position]) == text[position]
        counts.append(variable.source.io.as_dict()["requests"] - before)
    assert counts[0] == counts[1]
    ((path, file),) = variable.texts.items()
    variable.texts[path] = replace(file, begin=file.begin - 8)
    with pytest.raises(FormatError, match=r"variable 'v' needs .*has no text of 16 bytes at"):
        variable.read_outer([1])


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_remote_selection_is_that_of_numpy_and_reads_little_more(remote, data):
    fs, _ = remote
    shape = (data.draw(st.integers(1, 30)), 40, 300)
    values = np.random.default_rng(0).normal(size=shape)
    axes = [cut(data.draw, shape[0]), Axis.regular(40, data.draw(st.integers(5, 40))), Axis.regular(300, 300)]
    write("counting://b/g", [(spec_of("v", values, axes), values)], fs)
    variable = open_container("counting://b/g", filesystem=fs).variable("v")
    key = data.draw(keys(shape))
    found = variable.read_outer(key)
    np.testing.assert_array_equal(found, selected(values, key))
    assert variable.source.io.as_dict()["bytes"] <= values.nbytes + 10_000
    points = [data.draw(st.lists(st.integers(0, n - 1), min_size=9, max_size=9).map(np.array)) for n in shape]
    np.testing.assert_array_equal(variable.read_points(points), values[tuple(points)])


def test_rows_far_apart_are_fetched_without_what_lies_between(remote):
    fs, _ = remote
    values = np.random.default_rng(0).normal(size=(40, 50, 500))
    write(
        "counting://b/g",
        [
            (
                spec_of("v", values, [Axis.regular(40, 40), Axis.regular(50, 50), Axis.regular(500, 500)]),
                values,
            )
        ],
        fs,
    )
    variable = open_container("counting://b/g", filesystem=fs).variable("v")
    found = variable.read_outer([np.array([0, 39]), slice(None), slice(None)])
    np.testing.assert_array_equal(found, values[[0, 39]])
    assert variable.source.io.as_dict()["bytes"] == found.nbytes


def test_missing_remote_member_names_the_variable(remote):
    fs, _ = remote
    values = np.arange(10.0)
    write("counting://b/g", [(spec_of("v", values, [Axis.regular(10, 5)]), values)], fs)
    container = open_container("counting://b/g", filesystem=fs)
    fs.objects.objects.pop("b/g/" + container.group().members[0].path)
    with pytest.raises(FormatError, match="'v'"):
        container.variable("v").read_outer([slice(None)])


# ----------------------------------------------------------------------------------------------------------
# Real object stores


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.parametrize("server", ["moto_s3", "seaweed_s3"])
def test_dataset_lives_in_an_object_store(server, request):
    xr = pytest.importorskip("xarray")
    from colstore_io.integrations.xarray import ColstoreAccessor

    assert ColstoreAccessor
    store = request.getfixturevalue(server)
    url, options = f"s3://{store.bucket}/grid-{server}", {"storage_options": store.options}
    rng = np.random.default_rng(0)
    ds = xr.Dataset(
        {"v": (("x", "y"), rng.normal(size=(60, 80))), "t": ("x", np.array(list("abc") * 20, object))},
        {"x": np.arange(60)},
    )
    ds.isel(x=slice(0, 40)).chunk({"x": 20, "y": 30}).drop_vars("t").colstore.to_colstore(url, **options)
    ds[["v"]].isel(x=slice(40, 60)).colstore.to_colstore(url, append_dim="x", **options)
    ds[["t"]].drop_vars("x").colstore.to_colstore(url, mode="a", **options)
    back = xr.open_dataset(url, engine="colstore", storage_options=store.options)
    xr.testing.assert_identical(back.load(), ds)
    lazy = xr.open_dataset(url, engine="colstore", storage_options=store.options, chunks={})
    xr.testing.assert_identical(
        lazy.isel(x=slice(5, 50), y=[1, 70]).load(), ds.isel(x=slice(5, 50), y=[1, 70])
    )
    with pytest.raises(FileExistsError):
        ds.drop_vars("t").colstore.to_colstore(url, mode="w-", **options)
    (ds[["v"]].isel(x=slice(0, 20)).drop_vars("x") * 0).colstore.to_colstore(
        url, region={"x": slice(0, 20)}, **options
    )
    again = xr.open_dataset(url, engine="colstore", storage_options=store.options)
    assert (again["v"][:20] == 0).all()
    assert (again["v"][20:] == ds["v"][20:]).all()
    compact_grid(url, **options)
    again = xr.open_dataset(url, engine="colstore", storage_options=store.options)
    assert (again["v"][20:] == ds["v"][20:]).all()
