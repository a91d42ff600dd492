"""Manifests of grid containers."""

from __future__ import annotations

import json
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from colstore_io.errors import ColstoreError

from .target import (
    MAX_CELLS,
    Target,
)


@cache
def _grid_place() -> tuple[tempfile.TemporaryDirectory[str], tuple[bytes, ...]]:
    """Return a folder that holds the data files of several containers, and the manifests of these."""
    from colstore_io.grid import GridWriter
    from colstore_io.grid.commit import appended_part, whole_part
    from colstore_io.grid.container import place_of
    from colstore_io.grid.layout import Axis
    from colstore_io.grid.model import Dimension, Kind, VariableSpec

    folder = tempfile.TemporaryDirectory(prefix="colstore-io-fuzz-")
    manifests = []

    def spec(name: str, values: Any, cut: dict[str, int], kind: Kind = "plain") -> VariableSpec:
        axes = tuple(Axis.regular(n, chunk) for n, chunk in zip(values.shape, cut.values(), strict=True))
        return VariableSpec(name, kind, values.dtype, tuple(cut), axes, {"units": "K", "n": np.float32(1)})

    def commit(mode: Any, *variables: tuple[VariableSpec, Any], group: str = "/") -> None:
        writer = GridWriter(place_of(folder.name), mode, group)
        for one, values in variables:
            writer.put(whole_part(one), values)
            writer.dims.update({d: Dimension(n) for d, n in zip(one.dims, one.shape, strict=True)})
        writer.attrs = {"title": "seed"}
        keep(writer.commit())

    def keep(generation: int) -> None:
        manifests.append((Path(folder.name) / f"_colstore-{generation:08d}.json").read_bytes())

    cube = np.arange(5 * 4 * 6, dtype="f4").reshape(5, 4, 6)
    times = spec("time", np.arange(5).astype("M8[s]"), {"time": 2})
    t = spec("t", cube, {"time": 2, "lat": 3, "lon": 6})
    commit("w", (t, cube), (times, np.arange(5).astype("M8[s]")))
    writer = GridWriter(place_of(folder.name), "a")
    for old, values in ((t, cube), (times, np.arange(5).astype("M8[s]"))):
        writer.put(appended_part(old, Axis.regular(5, 4), "time"), values)
    writer.dims["time"] = Dimension(10, True)
    keep(writer.commit())
    words = np.array(["a", "", "Ä", None], object)
    commit(
        "w",
        (spec("w", words, {"x": 3}, "text"), words),
        (spec("b", np.array([b"1", b"22"], object), {"y": 2}, "bytes"), np.array([b"1", b"22"], object)),
        (spec("c", np.arange(4) * 1j, {"x": 4}, "complex"), np.arange(4) * 1j),
        (spec("scalar", np.array(3.5), {}), np.array(3.5)),
    )
    commit("w", (spec("u", np.array([["ab"]]), {"x": 1, "y": 1}), np.array([["ab"]])), group="/a/b")
    return folder, tuple(manifests)


def _grid(data: bytes) -> None:
    """A manifest, beside data files that are sound."""
    from colstore_io.grid.container import Container, place_of
    from colstore_io.grid.parsing import parse_grid
    from colstore_io.grid.source import GridSource
    from colstore_io.writing.manifest_json import GenerationManifest

    place = place_of(_grid_place()[0].name)
    model = parse_grid(GenerationManifest.from_bytes(data, path="manifest"), path="manifest")
    container = Container(place, model, GridSource(place))
    try:
        for path, group in model.groups.items():
            for name, spec in group.variables.items():
                variable = container.variable(name, path)
                try:
                    if spec.n_cells <= MAX_CELLS:
                        variable.read_outer([slice(None)] * len(spec.dims))
                    if spec.n_cells:
                        variable.read_outer([n - 1 for n in spec.shape])
                        variable.read_points([np.array([0, n // 2]) for n in spec.shape])
                except ColstoreError:
                    continue  # a file is not what the manifest says; the other variables may be
    finally:
        container.close()


def _repair_grid(data: bytes) -> bytes:
    """Make the checksum of the manifest fit again (directories.md)."""
    try:
        members = json.loads(data)
        members.pop("crc32", None)
        members["crc32"] = zlib.crc32(json.dumps(members, sort_keys=True, allow_nan=False).encode("ascii"))
        return json.dumps(members).encode("ascii")
    except (ValueError, AttributeError, TypeError, RecursionError):
        return data


TARGETS: dict[str, Target] = {
    "grid": Target(_grid, lambda: list(_grid_place()[1]), _repair_grid, cost=20),
}
