"""The notation of VirtualiZarr: its manifests, and its registry of object stores as a file system to read from."""

from __future__ import annotations

from typing import Any

import numpy as np
from fsspec import AbstractFileSystem
from numpy.typing import NDArray
from virtualizarr.manifests import ChunkManifest, ManifestArray, ManifestGroup, ManifestStore
from virtualizarr.manifests.utils import create_v3_array_metadata

from ._zarr_model import Description, VirtualArray

__all__ = ["RegistryFileSystem", "manifest_store"]


def manifest_store(described: Description, registry: Any) -> Any:
    """Return the `virtualizarr.manifests.ManifestStore` of a description without copied chunks."""
    paths = np.array([_uri(file.url) for file in described.files], np.dtypes.StringDType())

    def group_at(path: str) -> Any:
        found = described.groups[path]
        prefix = path.rstrip("/") + "/"
        children = {
            name.removeprefix(prefix): group_at(name)
            for name in described.groups
            if name != path and name.startswith(prefix) and "/" not in name.removeprefix(prefix)
        }
        arrays = {name: _array(array, paths) for name, array in found.arrays.items()}
        attrs = described.root_attrs() if path == "/" else dict(found.attrs)
        return ManifestGroup(arrays=arrays, groups=children, attributes=attrs)

    return ManifestStore(group_at("/"), registry=registry)


def _uri(url: str) -> str:
    if "#" in url or "?" in url:
        raise ValueError(
            f"VirtualiZarr takes '#' and '?' for the end of a path, so it cannot read {url}; rename the file, or use "
            "kerchunk_references"
        )
    return url if "://" in url else f"file://{url}"


def _array(array: VirtualArray, paths: NDArray[Any]) -> Any:
    codec: dict[str, Any] = {"name": "bytes"}
    if array.dtype.itemsize > 1 and array.dtype.kind != "S":
        codec["configuration"] = {"endian": "big" if array.dtype.byteorder == ">" else "little"}
    attrs = dict(array.attrs)
    if array.fill_value is not None:
        attrs["_FillValue"] = _encoded_fill_value(array.fill_value, array.dtype)
    metadata = create_v3_array_metadata(
        shape=array.shape,
        data_type=array.dtype,
        chunk_shape=array.chunks,
        # Listing a ManifestStore needs this separator.
        chunk_key_encoding={"name": "default", "separator": "."},
        fill_value=_fill_value(array),
        codecs=[codec],
        attributes=attrs,
        dimension_names=array.dims,
    )
    if not paths.size:
        paths = np.array([""], np.dtypes.StringDType())
    located: Any = np.asarray(paths[array.file], paths.dtype)  # of a scalar, indexing makes a str
    manifest = ChunkManifest.from_arrays(
        paths=located,
        offsets=array.offset.astype(np.uint64),
        lengths=np.full(array.offset.shape, array.chunk_bytes, np.uint64),
        validate_paths=False,
    )
    return ManifestArray(metadata, manifest)


def _fill_value(array: VirtualArray) -> Any:
    """Return Zarr's fill value, which version 3 wants of every array, and which no chunk here needs."""
    if array.fill_value is not None:
        return array.dtype.type(array.fill_value)
    if "calendar" in array.attrs or str(array.attrs.get("dtype", "")).startswith("timedelta64"):
        return np.iinfo(np.int64).min  # NaT; and see below
    if array.dtype.kind == "f":
        # 0 would come back as "missing" through version 2, into which VirtualiZarr translates for kerchunk.
        return array.dtype.type(np.nan)
    return np.zeros((), array.dtype)[()]


def _encoded_fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    from xarray.backends.zarr import FillValueCoder

    return FillValueCoder.encode(value, dtype)


class RegistryFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no type marker
    """The object stores of a registry as one read-only file system, whose paths are whole URLs.

    So headers are read with the stores, and the credentials, with which chunks will be.
    """

    protocol = "registry"
    cachable = False

    def __init__(self, registry: Any, **options: Any) -> None:
        super().__init__(**options)
        self._registry = registry

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.rstrip("/") if not path.endswith("://") else path

    def unstrip_protocol(self, name: str) -> str:
        return name

    def _store(self, path: str) -> tuple[Any, str]:
        store, key = self._registry.resolve(path)
        if not hasattr(store, "head") or not hasattr(store, "get_range"):
            raise NotImplementedError(
                f"{type(store).__name__} tells no sizes, or reads no ranges without an event loop; give the parser "
                "storage_options, then fsspec reads the headers"
            )
        return store, key

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        store, key = self._store(path)
        if start is None and end is None:
            return bytes(store.get(key).buffer())
        first = start or 0
        if first < 0 or end is None or end < 0:
            size = self.info(path)["size"]
            first = first if first >= 0 else max(0, size + first)
            end = size if end is None else end if end >= 0 else size + end
        return bytes(store.get_range(key, start=first, end=end))

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        store, key = self._store(path)
        try:
            return _described(store.head(key), path)
        except FileNotFoundError:
            if hasattr(store, "list_with_delimiter") and self._entries(path):
                return {"name": path, "size": 0, "type": "directory"}
            raise FileNotFoundError(2, "No such file", path) from None

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        store, _ = self._registry.resolve(path)
        if not hasattr(store, "list_with_delimiter"):
            raise NotImplementedError(f"the store of {path} lists nothing")
        entries = self._entries(path)
        if not entries:
            entries = [self.info(path)]
        return entries if detail else [entry["name"] for entry in entries]

    def _entries(self, path: str) -> list[dict[str, Any]]:
        store, key = self._registry.resolve(path)
        found = store.list_with_delimiter(key)
        base = path.rstrip("/")
        entries = [
            {"name": f"{base}/{name.rstrip('/').rpartition('/')[2]}", "size": 0, "type": "directory"}
            for name in found["common_prefixes"]
        ]
        entries += [
            _described(item, f"{base}/{item['path'].rpartition('/')[2]}") for item in found["objects"]
        ]
        return entries


def _described(meta: Any, path: str) -> dict[str, Any]:
    return {
        "name": path,
        "size": int(meta["size"]),
        "type": "file",
        "ETag": meta.get("e_tag"),
        "VersionId": meta.get("version"),
        "LastModified": meta.get("last_modified"),
    }
