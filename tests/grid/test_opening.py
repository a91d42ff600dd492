"""What opening costs: requests, and memory in proportion to the variables, never to the chunks."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from servers import CountingFileSystem, new_store

from colstore_io.grid import GridWriter, container, open_container
from colstore_io.grid.commit import whole_part
from colstore_io.grid.container import place_of
from colstore_io.grid.layout import MAX_CHUNKS, Axis
from colstore_io.grid.model import Dimension, VariableSpec


def spec_of(name, values, *axes):
    return VariableSpec(name, "plain", values.dtype, ("x", "y")[: values.ndim], axes, {"units": "K"})


def write(path, variables, filesystem=None):
    writer = GridWriter(place_of(path, filesystem=filesystem), "w")
    for spec, values in variables:
        writer.put(whole_part(spec), values)
        writer.dims.update({d: Dimension(n) for d, n in zip(spec.dims, spec.shape, strict=True)})
    writer.commit()


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the most memory that `call` took, what it returned included."""
    kept = [call()]
    tracemalloc.start()
    try:
        kept[0] = call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def opened_afresh(path):
    """Open a container whose manifest nobody has read yet."""
    container._remembered.cache_clear()
    return open_container(path)


CASES = {
    "thousand variables": lambda: [
        (spec_of(f"v{k:04}", np.full(10, k, "i4"), Axis.regular(10, 5)), np.full(10, k, "i4")) for k in range(1000)
    ],
    "hundred thousand chunks": lambda: [
        (
            spec_of("v", np.zeros((1000, 200), "i2"), Axis.regular(1000, 1), Axis.regular(200, 2)),
            np.arange(200_000, dtype="i2").reshape(1000, 200),
        )
    ],
    "hundred thousand unequal chunks": lambda: [
        (spec_of("v", np.arange(150_001), Axis(((1, 50_000), (2, 50_000), (1, 1)))), np.arange(150_001))
    ],
}  # fmt: skip
LIMITS = {
    "thousand variables": 6_000_000,
    "hundred thousand chunks": 100_000,
    "hundred thousand unequal chunks": 100_000,
}


@pytest.mark.parametrize("case", CASES)
def test_opening_is_one_round_and_takes_memory_by_the_variable(case, tmp_path):
    name, store = new_store()
    fs = CountingFileSystem(name, skip_instance_cache=True)
    variables = CASES[case]()
    write("counting://b/g", variables, fs)
    fs.invalidate_cache()
    store.log.clear()
    found = open_container("counting://b/g", filesystem=fs)
    assert [request.kind for request in store.log].count("list") == 1
    assert len(store.log) <= 3, "a listing, and the manifest in one round: its size is known"
    write(tmp_path / "g", variables)
    assert peak_bytes(lambda: opened_afresh(tmp_path / "g")) < LIMITS[case]
    spec, values = variables[-1]
    there = found.variable(spec.name)
    np.testing.assert_array_equal(there.read_outer([n - 1 for n in spec.shape]), values.reshape(-1)[-1])
    here = open_container(tmp_path / "g").variable(spec.name)
    np.testing.assert_array_equal(here.read_outer([slice(None)] * values.ndim), values)


def test_axis_of_very_many_unequal_chunks_takes_no_memory_for_them():
    axis = Axis(((3, MAX_CHUNKS - 2), (5, 1), (2, 1)))
    length = 3 * (MAX_CHUNKS - 2) + 7

    def use() -> list[object]:
        middle = np.array([0, 3, length - 3, length - 1])
        return [
            axis.chunk_of(length - 1),
            axis.chunk_of(middle).tolist(),
            axis.edges(MAX_CHUNKS - 2).tolist(),
        ]

    assert peak_bytes(use) < 10_000
    last = MAX_CHUNKS - 1
    assert use() == [last, [0, 1, last - 1, last], [length - 7, length - 2, length]]


def test_same_manifest_is_understood_once_and_a_new_one_is_seen(tmp_path, monkeypatch):
    understood = []
    parse = container.parse_grid

    def counted(*args, **options):
        understood.append(args)
        return parse(*args, **options)

    monkeypatch.setattr(container, "parse_grid", counted)
    values = np.arange(10)
    path = tmp_path / "g"
    write(path, [(spec_of("v", values, Axis.regular(10, 5)), values)])
    before = len(understood)
    first, second = open_container(path), open_container(path)
    assert len(understood) == before + 1
    assert first.model is second.model
    assert first.source is not second.source
    write(path, [(spec_of("w", values, Axis.regular(10, 5)), values)])
    assert list(open_container(path).group().variables) == ["w"]
    assert list(first.group().variables) == ["v"]


def test_container_that_was_replaced_under_its_name_is_another(tmp_path):
    path = tmp_path / "g"
    for name in "vw":
        values = np.arange(10)
        write(tmp_path / name, [(spec_of(name, values, Axis.regular(10, 5)), values)])
        (tmp_path / name).rename(path)
        assert list(open_container(path).group().variables) == [name]
        path.rename(tmp_path / f"old {name}")


def test_large_manifests_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "_REMEMBERED_BYTES", 10)
    values = np.arange(10)
    write(tmp_path / "g", [(spec_of("v", values, Axis.regular(10, 5)), values)])
    assert open_container(tmp_path / "g").model is not open_container(tmp_path / "g").model
