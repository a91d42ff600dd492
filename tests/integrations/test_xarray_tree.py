"""Trees of groups are written as one generation of one container."""

from __future__ import annotations

import numpy as np
import pytest

xr = pytest.importorskip("xarray")
pytest.importorskip("dask.array")

import colstore_io as cs  # noqa: E402
import colstore_io.integrations.xarray  # noqa: E402  # registers tree.colstore


def a_tree(scale=1, lazy=False):
    x = np.arange(4.0)
    groups = {
        "/": xr.Dataset({"a": ("x", x * scale)}, {"x": x}, {"title": "root"}),
        "/model": xr.Dataset({"b": (("x", "y"), np.ones((4, 3)) * scale)}),
        "/model/ocean": xr.Dataset({"t": ("time", np.arange(2).astype("M8[s]")), "s": ("time", ["u", "v"])}),
        "/empty": xr.Dataset(),
    }
    if lazy:
        groups = {name: ds.chunk() if ds else ds for name, ds in groups.items()}
    return xr.DataTree.from_dict(groups)


def opened(path, **options):
    with xr.open_datatree(path, engine="colstore", **options) as tree:
        return tree.load()


@pytest.mark.parametrize("lazy", [False, True])
def test_tree_comes_back_from_one_generation(tmp_path, lazy):
    a_tree(lazy=lazy).colstore.to_colstore(tmp_path / "a")
    xr.testing.assert_identical(opened(tmp_path / "a"), a_tree())
    assert [path.name for path in (tmp_path / "a").glob("_colstore-*.json")] == ["_colstore-00000001.json"]


def test_computed_later_nothing_is_there_before(tmp_path):
    later = a_tree(lazy=True).colstore.to_colstore(tmp_path / "a", compute=False)
    assert not (tmp_path / "a").exists()
    later.compute()
    xr.testing.assert_identical(opened(tmp_path / "a"), a_tree())


@pytest.mark.parametrize("lazy", [False, True])
def test_reader_sees_the_old_tree_until_the_new_one_is_whole(tmp_path, lazy, monkeypatch):
    from colstore_io.writing import manifest

    a_tree().colstore.to_colstore(tmp_path / "a")
    seen = []
    publish = manifest.publish

    def observed(*args, **options):
        seen.append(opened(tmp_path / "a"))
        return publish(*args, **options)

    monkeypatch.setattr(manifest, "publish", observed)
    a_tree(2, lazy).colstore.to_colstore(tmp_path / "a")
    assert len(seen) == 1
    xr.testing.assert_identical(seen[0], a_tree())
    xr.testing.assert_identical(opened(tmp_path / "a"), a_tree(2))


def test_refused_group_leaves_the_tree_that_was_there_and_is_named(tmp_path):
    a_tree().colstore.to_colstore(tmp_path / "a")
    encoding = {"/model": {"b": {"dtype": "int8", "_FillValue": -1}}}
    with pytest.raises(cs.SchemaMismatchError, match="'b'") as caught:
        a_tree(1000).colstore.to_colstore(tmp_path / "a", encoding=encoding)
    assert caught.value.__notes__ == ["in group '/model' of the tree"]
    xr.testing.assert_identical(opened(tmp_path / "a"), a_tree())


def test_modes_replace_refuse_and_add(tmp_path):
    path = tmp_path / "a"
    a_tree().colstore.to_colstore(path, mode="w-")
    with pytest.raises(FileExistsError):
        a_tree().colstore.to_colstore(path, mode="w-")
    more = xr.DataTree.from_dict({"/model": xr.Dataset({"c": 1}), "/new": xr.Dataset({"d": 2})})
    more.colstore.to_colstore(path, mode="a")
    tree = opened(path)
    assert set(tree["model"].data_vars) == {"b", "c"}
    assert tree["new/d"] == 2
    assert tree.attrs["title"] == "root"
    more.colstore.to_colstore(path)
    assert set(opened(path).groups) == {"/", "/model", "/new"}
    with pytest.raises(ValueError, match=r"'w', 'w-' or 'a', got 'r\+'"):
        more.colstore.to_colstore(path, mode="r+")


def test_part_of_a_tree_goes_into_a_group_and_the_others_stay(tmp_path):
    path = tmp_path / "a"
    a_tree().colstore.to_colstore(path)
    a_tree(3)["model"].colstore.to_colstore(path, group="copies/model")
    tree = opened(path)
    xr.testing.assert_identical(tree["a"], a_tree()["a"])
    np.testing.assert_array_equal(tree["copies/model/b"].values, np.full((4, 3), 3.0))
    assert "x" in tree["copies/model"].coords  # what the root of the part inherited is written
    assert "ocean" in tree["copies/model"].children


def test_chunks_encoding_and_inherited_coordinates(tmp_path):
    path = tmp_path / "a"
    a_tree().colstore.to_colstore(
        path,
        chunks={"x": 2},
        encoding={"model": {"b": {"dtype": "f4"}}},
        unlimited_dims={"model/ocean": "time"},
        write_inherited_coords=True,
    )
    with xr.open_datatree(path, engine="colstore") as tree:
        assert tree["model/b"].encoding["chunks"] == (2, 3)
        assert tree["model/b"].dtype == "f4"
        assert tree["model/ocean"].encoding["unlimited_dims"] == {"time"}
    with xr.open_dataset(path, engine="colstore", group="model") as model:
        assert "x" in model.coords


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"encoding": {"nope": {}}}, ValueError, r"encoding names group 'nope', the tree has \['/', '/"),
        ({"unlimited_dims": "time"}, TypeError, r"unlimited_dims of a tree must be a mapping of groups"),
        ({"chunks": {"nope": 1}}, ValueError, r"chunks names 'nope'"),
    ],
)
def test_arguments_that_name_nothing_are_refused(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        a_tree().colstore.to_colstore(tmp_path / "a", **options)
    assert not (tmp_path / "a").exists()
