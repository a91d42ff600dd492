"""The short ways to values give what the planner gives, and leave to it what they are not made for."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colstore_io.errors import FormatError
from colstore_io.grid import GridWriter, direct, open_container
from colstore_io.grid.commit import Part, whole_part
from colstore_io.grid.container import place_of
from colstore_io.grid.layout import Axis
from colstore_io.grid.model import Dimension, VariableSpec


def spec_of(name, values, *axes):
    return VariableSpec(name, "plain", values.dtype, ("x", "y", "z")[: values.ndim], axes)


def write(path, *variables):
    writer = GridWriter(place_of(path), "w")
    for spec, values in variables:
        writer.put(whole_part(spec), values)
        writer.dims.update({d: Dimension(n) for d, n in zip(spec.dims, spec.shape, strict=True)})
    writer.commit()


def opened(path, name, **options):
    return open_container(path, **options).variable(name)


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    """Two variables in one file, cut in chunks of unequal lengths."""
    path = tmp_path_factory.mktemp("cube") / "g"
    values = np.arange(7 * 6 * 5).reshape(7, 6, 5)
    axes = (Axis.of_lengths([2, 3, 2]), Axis.regular(6, 4), Axis.regular(5, 5))
    odd = values.astype("i2")
    write(path, (spec_of("odd", odd, *axes), odd), (spec_of("v", values, *axes), values))
    return path, values, axes


keys = st.tuples(*[st.one_of(st.integers(-n, n), st.slices(n)) for n in (7, 6, 5)])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=keys)
def test_box_in_one_chunk_is_read_and_others_are_not(cube, key):
    path, values, axes = cube
    inside = True
    for k, n, axis in zip(key, values.shape, axes, strict=True):
        if isinstance(k, int):
            inside &= 0 <= k < n
            continue
        own = range(*k.indices(n))
        inside &= len(own) > 0 and own.step > 0 and axis.chunk_of(own[0]) == axis.chunk_of(own[-1])
    for variable, expected in ((opened(path, "v"), values), (opened(path, "odd"), values.astype("i2"))):
        found = direct.read_box(variable, key)
        assert (found is not None) == inside
        if found is not None:
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected[key])
            assert found.flags.writeable


def test_wrong_number_of_keys_and_index_arrays_are_not_for_here(cube):
    path, _, _ = cube
    variable = opened(path, "v")
    assert direct.read_box(variable, [0, 0]) is None
    assert direct.read_box(variable, [0, 0, np.array([1, 2])]) is None
    assert direct.read_small(variable, [slice(None)]) is None


def test_files_that_are_not_mapped_and_large_boxes_are_not_for_here(cube, monkeypatch):
    path, values, _ = cube
    key = [0, slice(0, 4), slice(None)]
    assert direct.read_box(opened(path, "v", mmap=False), key) is None
    monkeypatch.setattr(direct, "_POOLED_BYTES", 8)
    np.testing.assert_array_equal(direct.read_box(opened(path, "v"), key), values[0, 0:4])
    monkeypatch.setattr(direct, "MOST_BYTES", 8)
    assert direct.read_box(opened(path, "v"), key) is None
    np.testing.assert_array_equal(opened(path, "v").read_outer(key), values[0, 0:4])


@pytest.mark.parametrize("n_members", [2, 30])
def test_last_member_that_holds_a_chunk_wins(tmp_path, n_members):
    values = np.zeros((40, 3))
    write(tmp_path / "g", (spec_of("v", values, Axis.regular(40, 1), Axis.regular(3, 3)), values))
    for number in range(1, n_members):
        writer = GridWriter(place_of(tmp_path / "g"), "r+")
        spec = writer.existing.variables["v"]
        writer.put(Part(spec, (Axis.regular(2, 1), Axis.regular(3, 3)), (number, 0)), np.full((2, 3), number))
        writer.commit()
        values[number : number + 2] = number
    variable = opened(tmp_path / "g", "v")
    for row in range(40):
        assert direct.read_box(variable, [row, slice(None)]).tolist() == values[row].tolist()
    np.testing.assert_array_equal(variable.read_outer([slice(None), slice(None)]), values)


SMALL = {
    "scalar": np.array(4.5),
    "text": np.array(["a", "bcd", ""]),
    "times": np.arange(4).astype("M8[s]"),
    "two": np.arange(6, dtype="i2").reshape(2, 3),
}


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("mmap", [True, False])
def test_small_variable_is_read_by_one_call(tmp_path, kind, mmap):
    values = SMALL[kind]
    axes = [Axis.regular(n, n) for n in values.shape]
    other = np.ones(values.shape, "i8")
    write(tmp_path / "g", (spec_of("other", other, *axes), other), (spec_of("v", values, *axes), values))
    variable = opened(tmp_path / "g", "v", mmap=mmap)
    found = direct.read_small(variable, [slice(None)] * values.ndim)
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)
    assert found.flags.owndata
    assert found.flags.writeable
    assert variable.source.io.as_dict()["requests"] == 1
    assert not variable.source._files, "nothing was mapped"


@pytest.mark.parametrize("damage", ["missing", "short", "other", "folder"])
def test_damaged_file_of_a_small_variable_names_it(tmp_path, damage):
    values = np.arange(5.0)
    write(tmp_path / "g", (spec_of("v", values, Axis.regular(5, 5)), values))
    (name,) = [name for name in os.listdir(tmp_path / "g") if name.startswith("part-")]
    file = tmp_path / "g" / name
    data = file.read_bytes()
    file.unlink()
    if damage == "short":
        file.write_bytes(data[:-9])
    elif damage == "other":
        file.write_bytes(bytes(len(data)))
    elif damage == "folder":
        file.mkdir()
    with pytest.raises(FormatError, match="variable 'v' needs part-"):
        opened(tmp_path / "g", "v").read_outer([slice(None)])
    with pytest.raises(FormatError, match="variable 'v' needs part-"):
        opened(tmp_path / "g", "v").read_outer([slice(0, 2)])
