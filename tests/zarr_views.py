"""Opening references as anybody would, and by hand: what tests of Zarr views share."""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Mapping
from typing import Any

import fsspec
import numpy as np
import xarray as xr

FILES = "colstore_io_references"
"""The one attribute that a view has and the data have not."""


def open_references(
    references: Any,
    group: str | None = None,
    consolidated: bool = True,
    decode_times: Any = True,
    **remote: Any,
) -> xr.Dataset:
    """Open references with xarray's engine for Zarr; `remote` goes to fsspec's reference file system."""
    options = {
        "storage_options": {"fo": references, **remote},
        "group": group,
        "consolidated": consolidated,
    }
    return xr.open_dataset("reference://", engine="zarr", decode_times=decode_times, backend_kwargs=options)


def assert_same(view: xr.Dataset, ours: xr.Dataset) -> None:
    """Check that a view has the names, dims, coordinates, attributes and values of our own engine."""
    view.attrs.pop(FILES, None)
    xr.testing.assert_identical(view.load(), ours.load())


def about(references: Mapping[str, Any]) -> Any:
    """Return what references say of their files, and of what was left out."""
    return json.loads(json.loads(references["refs"][".zattrs"])[FILES])


def read_by_hand(references: Mapping[str, Any], name: str) -> np.ndarray:
    """Put an array together from its references as the specification of Zarr 2 says, and check each on the way.

    Every chunk is there, is as long as a whole chunk, and lies inside its file.
    """
    refs = references["refs"]
    meta = json.loads(refs[f"{name}/.zarray"])
    assert (meta["compressor"], meta["filters"], meta["order"]) == (None, None, "C")
    dtype, shape, chunks = np.dtype(meta["dtype"]), meta["shape"], meta["chunks"]
    result = np.zeros(shape, dtype)
    grid = [-(-n // c) for n, c in zip(shape, chunks, strict=True)]
    keys = set()
    for index in itertools.product(*map(range, grid)):
        key = f"{name}/{'.'.join(map(str, index)) if index else '0'}"
        keys.add(key)
        entry = refs[key]
        if isinstance(entry, str):
            data = base64.b64decode(entry.removeprefix("base64:"))
        else:
            url, offset, length = entry
            with fsspec.open(url, "rb") as file:
                file.seek(offset)
                data = file.read(length)
        assert len(data) == math.prod(chunks) * dtype.itemsize
        chunk = np.frombuffer(data, dtype).reshape(chunks)
        place = tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(index, chunks, shape, strict=True))
        result[place] = chunk[tuple(slice(0, s.stop - s.start) for s in place)]
    extra = {
        key for key in refs if key.startswith(f"{name}/") and not key.rpartition("/")[2].startswith(".z")
    }
    assert extra == keys
    return result
