"""References over HTTP and S3: made from URLs, read from URLs, by fsspec and by VirtualiZarr."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from servers import CountingFileSystem, new_store
from tables import columns, write_files
from zarr_views import about, assert_same, open_references

import colstore_io as cs
import colstore_io.integrations.xarray
from colstore_io.errors import FormatError, StaleDatasetError
from colstore_io.integrations.zarr import (
    ColstoreParser,
    check_references,
    kerchunk_references,
    write_references,
)

service = pytest.mark.service


def table(folder: Path) -> Path:
    return write_files(folder, columns(), [[24, 24, 24, 24, 1]])[0]


def climate() -> xr.Dataset:
    return xr.Dataset(
        {"t": (("time", "lat"), np.arange(60.0).reshape(12, 5)), "one": ((), 1.5)},
        {"time": pd.date_range("2001-01-01", periods=12, freq="6h", unit="s")},
    )


def ours(path: object, **options: object) -> xr.Dataset:
    return xr.open_dataset(path, engine="colstore", **options)


# ----------------------------------------------------------------------------------------------------------
# Requests


def test_making_references_reads_headers_only(tmp_path):
    name, store = new_store()
    path = tmp_path / "t.cstore"
    cs.store({"x": np.zeros(100_000), "y": np.zeros(100_000)}, path)
    store.put("b/t.cstore", path.read_bytes())
    store.log.clear()
    fs = CountingFileSystem(name, skip_instance_cache=True)
    refs = kerchunk_references("b/t.cstore", filesystem=fs)
    assert refs["refs"]["x/0"][0] == "counting://b/t.cstore"
    assert store.count("range") <= 1
    assert store.bytes_asked() <= 64 << 10
    assert store.not_found() == 0


def test_container_costs_two_listings_and_its_manifest(tmp_path):
    name, store = new_store()
    climate().colstore.to_colstore(tmp_path / "g", chunks={"time": 1})
    for path in (tmp_path / "g").iterdir():
        store.put(f"b/g/{path.name}", path.read_bytes())
    store.log.clear()
    refs = kerchunk_references("b/g", filesystem=CountingFileSystem(name, skip_instance_cache=True))
    assert len([key for key in refs["refs"] if key.startswith("t/") and key[2:3].isdigit()]) == 12
    assert all(token for _, _, token in about(refs)["files"])
    assert store.count("list") <= 2
    assert store.bytes_asked() == os.path.getsize(tmp_path / "g" / "_colstore-00000001.json")


# ----------------------------------------------------------------------------------------------------------
# HTTP


@service
def test_http(nginx_server, tmp_path):
    path = table(tmp_path)
    url = nginx_server.put("zarr/t.cstore", path.read_bytes())
    refs = json.loads(json.dumps(kerchunk_references(url, text=True, chunk_rows=8)))
    assert refs["refs"]["x/0"][0] == url
    check_references(refs)
    options = {"remote_protocol": "http", "remote_options": {"asynchronous": True}}
    assert_same(open_references(refs, **options), ours(path))
    nginx_server.put("zarr/t.cstore", path.read_bytes() + b"\0")
    with pytest.raises(StaleDatasetError):
        check_references(refs)


@service
def test_container_by_its_manifest_over_http(nginx_server, tmp_path):
    climate().colstore.to_colstore(tmp_path / "g", chunks={"time": 5})
    for path in (tmp_path / "g").iterdir():
        url = nginx_server.put(f"zarr/g/{path.name}", path.read_bytes())
        manifest = url if path.suffix == ".json" else None
        if manifest:
            refs_url = manifest
    options = {"remote_protocol": "http", "remote_options": {"asynchronous": True}}
    for address in (refs_url, refs_url.rpartition("/")[0] + "/"):
        assert_same(open_references(kerchunk_references(address), **options), climate())


@service
def test_server_without_ranges_is_an_error_and_no_wrong_values(plain_http_server, tmp_path):
    url = plain_http_server.put("zarr.cstore", table(tmp_path).read_bytes())
    refs = kerchunk_references(url, columns=["x"], chunk_rows=8)
    view = open_references(refs, remote_protocol="http", remote_options={"asynchronous": True})
    with pytest.raises(ValueError, match=r"reshape|buffer"):
        view.x.load()


@service
def test_http_through_virtualizarr(nginx_server, tmp_path):
    stores = pytest.importorskip("obstore.store")
    registries = pytest.importorskip("obspec_utils.registry")
    path = table(tmp_path)
    url = nginx_server.put("zarr/v/t.cstore", path.read_bytes())
    store = stores.HTTPStore.from_url(nginx_server.url, client_options={"allow_http": True})
    known = registries.ObjectStoreRegistry({nginx_server.url: store})
    for parser in (ColstoreParser(chunk_rows=8), ColstoreParser(chunk_rows=8, storage_options={})):
        with pytest.warns(UserWarning, match="left out"):
            view = xr.open_zarr(parser(url, known), consolidated=False, zarr_format=3)
        assert_same(view, ours(path)[list(view)])


# ----------------------------------------------------------------------------------------------------------
# S3


def s3(server: Any) -> dict[str, Any]:
    return {"remote_protocol": "s3", "remote_options": {**server.options, "asynchronous": True}}


def check_s3(server: Any, folder: Path) -> None:
    prefix = server.prefix()
    path = table(folder)
    client = server.client()
    client.pipe_file(f"{prefix}/odd name/t=1#.cstore", path.read_bytes())
    url = f"s3://{prefix}/odd name/t=1#.cstore"
    refs = kerchunk_references(url, text=True, chunk_rows=8, storage_options=server.options)
    assert refs["refs"]["x/0"][0] == url
    assert_same(open_references(refs, **s3(server)), ours(path))
    grid = f"s3://{prefix}/grid"
    climate().colstore.to_colstore(grid, chunks={"time": 5}, storage_options=server.options)
    write_references(
        grid,
        f"s3://{prefix}/grid.json",
        storage_options=server.options,
        target_options=server.options,
    )
    view = open_references(
        f"s3://{prefix}/grid.json", **s3(server), target_protocol="s3", target_options=server.options
    )
    assert_same(view, climate())
    check_references(
        f"s3://{prefix}/grid.json", storage_options=server.options, target_options=server.options
    )
    members = [url for url, _, _ in about(kerchunk_references(grid, storage_options=server.options))["files"]]
    client.pipe_file(members[0], b"short")
    with pytest.raises(FormatError, match="was cut short"):
        kerchunk_references(grid, storage_options=server.options)
    with pytest.raises(StaleDatasetError):
        check_references(
            f"s3://{prefix}/grid.json", storage_options=server.options, target_options=server.options
        )
    client.rm_file(members[0])
    with pytest.raises(FormatError, match="is not there"):
        kerchunk_references(grid, storage_options=server.options)


@service
def test_moto(moto_s3, tmp_path):
    check_s3(moto_s3, tmp_path)


@service
@pytest.mark.slow
def test_seaweedfs(seaweed_s3, tmp_path):
    check_s3(seaweed_s3, tmp_path)


@service
def test_s3_through_virtualizarr(moto_s3, tmp_path):
    stores = pytest.importorskip("obstore.store")
    registries = pytest.importorskip("obspec_utils.registry")
    path = table(tmp_path)
    prefix = moto_s3.prefix()
    moto_s3.client().pipe_file(f"{prefix}/t.cstore", path.read_bytes())
    climate().colstore.to_colstore(f"s3://{prefix}/grid", storage_options=moto_s3.options)
    store = stores.S3Store(
        moto_s3.bucket,
        endpoint=moto_s3.url,
        access_key_id=moto_s3.options["key"],
        secret_access_key=moto_s3.options["secret"],
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    known = registries.ObjectStoreRegistry({f"s3://{moto_s3.bucket}": store})
    parser = ColstoreParser(on_skipped="ignore")
    view = xr.open_zarr(parser(f"s3://{prefix}/t.cstore", known), consolidated=False, zarr_format=3)
    assert_same(view, ours(path)[list(view)])
    view = xr.open_zarr(parser(f"s3://{prefix}/grid", known), consolidated=False, zarr_format=3)
    assert_same(view, climate())
