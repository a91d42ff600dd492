"""The notation of kerchunk: references that fsspec's ``reference`` file system opens."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

from ._zarr_model import Description, VirtualArray

__all__ = ["reference_dict"]


def reference_dict(described: Description) -> dict[str, Any]:
    """Return a description as kerchunk's references, version 1: keys of a Zarr 2 store, metadata as JSON text."""
    metadata: dict[str, Any] = {}
    refs: dict[str, Any] = {}
    urls = [file.url for file in described.files]
    for path, group in described.groups.items():
        prefix = "" if path == "/" else path.strip("/") + "/"
        metadata[f"{prefix}.zgroup"] = {"zarr_format": 2}
        metadata[f"{prefix}.zattrs"] = described.root_attrs() if path == "/" else dict(group.attrs)
        for array in group.arrays.values():
            own = f"{prefix}{array.name}/"
            metadata[f"{own}.zarray"] = _zarr_metadata(array)
            metadata[f"{own}.zattrs"] = {**array.attrs, "_ARRAY_DIMENSIONS": list(array.dims)}
            nbytes = array.chunk_bytes
            for index, number, offset in array.places():
                refs[own + _key(index)] = [urls[number], offset, nbytes]
            for index, data in array.inline.items():
                refs[own + _key(index)] = "base64:" + base64.b64encode(data).decode()
    documents = {key: json.dumps(value) for key, value in metadata.items()}
    # All metadata in one place: found without listing, which zarr 3.1 gets wrong for groups in groups.
    documents[".zmetadata"] = json.dumps({"zarr_consolidated_format": 1, "metadata": metadata})
    return {"version": 1, "refs": {**documents, **refs}}


def _key(index: tuple[int, ...]) -> str:
    return ".".join(map(str, index)) if index else "0"


def _zarr_metadata(array: VirtualArray) -> dict[str, Any]:
    fill_value = array.fill_value
    if isinstance(fill_value, float) and not math.isfinite(fill_value):
        fill_value = "NaN" if fill_value != fill_value else "Infinity" if fill_value > 0 else "-Infinity"
    return {
        "zarr_format": 2,
        "shape": list(array.shape),
        "chunks": list(array.chunks),
        "dtype": array.dtype.str,
        "compressor": None,
        "filters": None,
        "fill_value": fill_value,
        "order": "C",
        "dimension_separator": ".",
    }
