"""`ColstoreParser`: what VirtualiZarr makes of our files equals what our own engine opens."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import LAYOUTS, columns, write_files
from zarr_views import FILES, assert_same, open_references

import colstore_io as cs
import colstore_io.integrations.xarray
from colstore_io.errors import FormatError, UnsupportedFeatureError
from colstore_io.integrations.zarr import ColstoreParser, kerchunk_references, write_references

virtualizarr = pytest.importorskip("virtualizarr")
registries = pytest.importorskip("obspec_utils.registry")
stores = pytest.importorskip("obstore.store")

pytestmark = pytest.mark.filterwarnings(
    "ignore:The data type .* does not have a Zarr V3 specification"
)  # text of fixed width, of which zarr says so at every use


def registry() -> Any:
    return registries.ObjectStoreRegistry({"file://": stores.LocalStore()})


def view(path: object, known: Any = None, **options: Any) -> xr.Dataset:
    store = ColstoreParser(**options)(f"file://{path}", known or registry())
    return xr.open_zarr(store, consolidated=False, zarr_format=3)


def ours(path: object, **options: object) -> xr.Dataset:
    return xr.open_dataset(path, engine="colstore", **options)


# ----------------------------------------------------------------------------------------------------------
# Tables


def test_parser_is_what_virtualizarr_takes_for_one():
    from virtualizarr.parsers.typing import Parser

    parser = ColstoreParser(columns=["x"], chunk_rows=10)
    assert isinstance(parser, Parser)
    assert pickle.loads(pickle.dumps(parser)) == parser
    assert "password" not in repr(ColstoreParser(storage_options={"secret": "password"}))
    assert ColstoreParser(columns=iter("ab")).columns == ("a", "b")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_opens_equal(tmp_path, layout):
    paths = write_files(tmp_path, columns(), LAYOUTS[layout])
    for path, records in zip(paths, LAYOUTS[layout], strict=True):
        if sum(records):
            assert_same(view(path, text=True, smallest_chunk=1), ours(path))
    if "irregular" not in layout:
        assert_same(view(tmp_path, text=True, smallest_chunk=1), ours(tmp_path))


def test_virtual_datasets_are_concatenated(tmp_path):
    whole = columns(60)
    paths = write_files(tmp_path, whole, [[20], [40]])
    parts = [
        virtualizarr.open_virtual_dataset(
            f"file://{path}", registry=registry(), parser=ColstoreParser(chunk_rows=20, text=True)
        )
        for path in paths
    ]
    joined = xr.concat(parts, dim="row", coords="minimal", compat="override", combine_attrs="drop_conflicts")
    refs = joined.vz.to_kerchunk(format="dict")
    back = xr.open_dataset(
        "reference://",
        engine="zarr",
        mask_and_scale=False,  # VirtualiZarr writes 0 as the fill value of integers, which then counts as missing
        backend_kwargs={"consolidated": False, "storage_options": {"fo": refs}},
    )
    for name in ours(tmp_path).variables:
        np.testing.assert_array_equal(back[name], ours(tmp_path)[name])


def test_times_survive_the_translation_of_virtualizarr(tmp_path):
    cs.store(
        {"t": np.array(["1970-01-01", "NaT", "2001-01-01"], "M8[us]"), "x": [0.0, 1, 2], "e": [1, 2, 3]},
        tmp_path / "t.cstore",
    )
    opened = virtualizarr.open_virtual_dataset(
        f"file://{tmp_path / 't.cstore'}", registry=registry(), parser=ColstoreParser(columns=["t", "x"])
    )
    back = open_references(opened.vz.to_kerchunk(format="dict"), consolidated=False)
    assert_same(back, ours(tmp_path / "t.cstore", columns=["t", "x"]))


def test_store_that_reads_no_ranges_is_named(tmp_path):
    class Bare:
        def get(self, path: str) -> bytes:
            return b""

    known = registries.ObjectStoreRegistry({"bare://here": Bare()})
    with pytest.raises(OSError, match=r"Bare tells no sizes.*storage_options"):
        ColstoreParser()("bare://here/t.cstore", known)


def test_many_files_open_as_one_virtual_dataset(tmp_path):
    write_files(tmp_path, {"x": np.arange(60.0), "y": np.arange(60)}, [[20], [20], [20]])
    joined = virtualizarr.open_virtual_mfdataset(
        [str(tmp_path / f"part_{k}.cstore") for k in range(3)],
        registry=registry(),
        parser=ColstoreParser(chunk_rows=10),
        combine="nested",
        concat_dim="row",
        coords="minimal",
        compat="override",
        combine_attrs="drop_conflicts",
    )
    assert joined.x.data.manifest.shape_chunk_grid == (6,)


def test_virtualizarr_reads_our_references(tmp_path):
    from virtualizarr.parsers import KerchunkJSONParser

    (path,) = write_files(tmp_path, columns(96), [[96]])
    write_references(path, tmp_path / "refs.json", columns=["x", "i2", "when"], chunk_rows=24)
    parser = KerchunkJSONParser()
    opened = virtualizarr.open_virtual_dataset(
        str(tmp_path / "refs.json"),
        registry=registry(),
        parser=parser,
        loadable_variables=["x", "i2", "when"],
    )
    for name in ("x", "when"):
        np.testing.assert_array_equal(opened[name], ours(path)[name])


def test_tables_that_are_no_multiple_of_the_chunk_do_not_join(tmp_path):
    paths = write_files(tmp_path, {"x": np.arange(50.0), "y": np.arange(50.0)}, [[25], [25]])
    parser = ColstoreParser(chunk_rows=10, columns=["x"])
    parts = [
        virtualizarr.open_virtual_dataset(f"file://{p}", registry=registry(), parser=parser) for p in paths
    ]
    with pytest.raises(ValueError, match="partial chunks"):
        xr.concat(parts, dim="row")
    joined = kerchunk_references([str(path) for path in paths], chunk_rows=5)
    assert open_references(joined).x.values.tolist() == list(range(50))


def test_description_is_that_of_the_references(tmp_path):
    """Both notations name the same bytes of the same files."""
    (path,) = write_files(tmp_path, columns(96), [[24, 24, 24, 24]])
    refs = kerchunk_references(path, chunk_rows=8, text=True)["refs"]
    store = ColstoreParser(chunk_rows=8, text=True)(f"file://{path}", registry())
    for name, array in store._group.arrays.items():
        for key, entry in array.manifest.dict().items():
            assert refs[f"{name}/{key}"] == [
                entry["path"].removeprefix("file://"),
                entry["offset"],
                entry["length"],
            ]


def test_a_column_without_room_behind_it_is_one_chunk(tmp_path):
    path = tmp_path / "t.cstore"
    cs.store({"x": np.arange(997.0), "y": np.arange(997.0)}, path)
    opened = view(path, chunk_bytes=1000)
    assert opened.x.encoding["chunks"][0] < 300
    assert opened.y.encoding["chunks"] == (997,)
    assert_same(opened.chunk(), ours(path))
    with pytest.warns(UserWarning, match="y: its last chunk of 10 rows would end behind the end of the file"):
        assert list(view(path, chunk_rows=10)) == ["x"]


def test_golden_files_open_equal(shared):
    for path in sorted((shared / "vectors" / "cstore").glob("*.cstore")):
        opened = view(path, text=True, smallest_chunk=1, chunk_bytes=4096, on_skipped="ignore")
        assert_same(opened, ours(path)[list(opened)])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(st.integers(1, 30), min_size=1, max_size=3), chunk_bytes=st.integers(1, 300))
def test_what_a_store_shows_is_what_we_read(tmp_path_factory, records, chunk_bytes):
    (path,) = write_files(tmp_path_factory.mktemp("t"), columns(sum(records)), [records])
    opened = view(path, chunk_bytes=chunk_bytes, smallest_chunk=1, text=True, on_skipped="ignore")
    assert_same(opened, ours(path)[list(opened)])


def test_empty_tables(tmp_path):
    cs.store({"x": np.zeros(0), "n": np.zeros(0, "i2")}, tmp_path / "none.cstore")
    assert_same(view(tmp_path / "none.cstore"), ours(tmp_path / "none.cstore"))
    assert not view(tmp_path / "none.cstore", columns=[]).sizes


# ----------------------------------------------------------------------------------------------------------
# Grid containers


def climate(n_times: int = 6) -> xr.Dataset:
    rng = np.random.default_rng(1)
    return xr.Dataset(
        {
            "t": (("time", "lat", "lon"), rng.normal(size=(n_times, 5, 8)).astype("f4"), {"units": "K"}),
            "p": (("time", "lat"), rng.integers(0, 9, (n_times, 5)).astype("i2")),
            "one": ((), 4.5),
            "none": (("lat", "empty"), np.zeros((5, 0))),
        },
        {
            "time": pd.date_range("2001-01-01", periods=n_times, freq="6h", unit="s"),
            "lat": np.linspace(-60, 60, 5),
        },
        {"title": "made up"},
    )


@pytest.mark.parametrize("chunks", [{}, {"time": 2}, {"time": 4}, {"time": 1, "lat": 1, "lon": 1}])
@pytest.mark.parametrize("by_manifest", [False, True])
def test_container_opens_equal(tmp_path, chunks, by_manifest):
    climate().colstore.to_colstore(tmp_path / "g", chunks=chunks)
    path = tmp_path / "g" / "_colstore-00000001.json" if by_manifest else tmp_path / "g"
    assert_same(view(path), climate())


def test_groups_and_packed_values(tmp_path):
    ds = climate().drop_vars("none")
    ds["t"][0, 0, 0] = np.nan
    encoding = {"t": {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -99}, "p": {"_FillValue": 3}}
    ds.colstore.to_colstore(tmp_path / "g", encoding=encoding)
    (climate() + 1).colstore.to_colstore(tmp_path / "g", group="model/ocean", mode="a")
    assert_same(view(tmp_path / "g"), ours(tmp_path / "g"))
    store = ColstoreParser()(f"file://{tmp_path / 'g'}", registry())
    tree = xr.open_datatree(store, engine="zarr", consolidated=False)
    assert_same(tree["model/ocean"].to_dataset(), climate() + 1)


def test_edges_inside_a_chunk_are_skipped_with_a_reason(tmp_path):
    ds = xr.Dataset({"v": (("x", "y"), np.arange(40.0).reshape(4, 10)), "w": ("x", np.arange(4))})
    ds.colstore.to_colstore(tmp_path / "g", chunks={"x": 2, "y": 4})
    with pytest.warns(UserWarning, match="v: some of its chunks at the edges.*engine='colstore'"):
        opened = view(tmp_path / "g")
    assert list(opened) == ["w"]
    assert '"skipped": {"v": ' in opened.attrs[FILES]


# ----------------------------------------------------------------------------------------------------------
# Stores, and bad input


def test_headers_are_read_through_the_registry(tmp_path):
    memory = stores.MemoryStore()
    known = registries.ObjectStoreRegistry({"memory://here": memory})
    paths = write_files(tmp_path, columns(), LAYOUTS["uniform files"])
    for number, path in enumerate(paths):
        memory.put(f"folder/t_{number}.cstore", path.read_bytes())
    climate().colstore.to_colstore(tmp_path / "g")
    for path in Path(tmp_path / "g").iterdir():
        memory.put(f"grid/{path.name}", path.read_bytes())
    for url in ("memory://here/folder/t_*.cstore", "memory://here/folder", "memory://here/folder/"):
        store = ColstoreParser(text=True, smallest_chunk=1)(url, known)
        opened = xr.open_zarr(store, consolidated=False, zarr_format=3)
        assert_same(opened, ours([str(path) for path in paths]))
    for url in ("memory://here/grid", "memory://here/grid/_colstore-00000001.json"):
        assert_same(xr.open_zarr(ColstoreParser()(url, known), consolidated=False, zarr_format=3), climate())
    with pytest.raises(FileNotFoundError):
        ColstoreParser()("memory://here/folder/none.cstore", known)
    with pytest.raises(ValueError, match="Could not find an ObjectStore"):
        ColstoreParser()("memory://there/t.cstore", known)


@pytest.mark.parametrize("name", ["a b", "a%20b", "a[1]*", "ä", "a;b"])
def test_odd_characters_in_paths(tmp_path, name):
    path = tmp_path / f"{name}.cstore"
    cs.store({"x": np.arange(5.0)}, path)
    assert_same(view(path), ours(path))
    opened = virtualizarr.open_virtual_dataset(str(path), registry=registry(), parser=ColstoreParser())
    assert opened.x.shape == (5,)


@pytest.mark.parametrize("name", ["a#b", "a?b"])
def test_names_that_virtualizarr_cannot_address_are_refused(tmp_path, name):
    cs.store({"x": np.arange(5.0)}, tmp_path / f"{name}.cstore")
    with pytest.raises(ValueError, match="for the end of a path"):
        view(tmp_path / f"{name}.cstore")


def test_bad_input_is_refused_as_for_references(tmp_path):
    with pytest.raises(ValueError, match="chunk_rows must be at least 1"):
        ColstoreParser(chunk_rows=0)
    cs.store({"x": [1, 2, 3]}, tmp_path / "t.abcd")
    with pytest.raises(UnsupportedFeatureError, match="encoded columns"):
        view(tmp_path / "t.abcd")
    (tmp_path / "no.cstore").write_bytes(b"not a table at all")
    with pytest.raises(FormatError):
        view(tmp_path / "no.cstore")
    climate().colstore.to_colstore(tmp_path / "g")
    with pytest.raises(KeyError, match="no variable"):
        view(tmp_path / "g", columns="nothing")


def test_missing_library_is_named(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "virtualizarr.manifests", None)
    monkeypatch.delitem(sys.modules, "colstore_io.integrations._virtualizarr", raising=False)
    with pytest.raises(ImportError, match=r"pip install colstore_io\[zarr\]"):
        ColstoreParser()(f"file://{tmp_path}/t.cstore", None)
