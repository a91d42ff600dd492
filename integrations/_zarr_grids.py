"""Grid containers as virtual Zarr arrays: a chunk of theirs is a chunk of Zarr's, where it lies.

A chunk of a container is one run of values (docs/format-grid.md 3), shorter at the edges of the grid, where Zarr wants
all chunks in full. At the edge of the leading dimension the shorter one is the beginning of the full one, and what lies
behind it in the file may be anything. At other edges it is not, and must be copied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ._zarr_model import (
    INLINE,
    MAX_CHUNKS,
    Description,
    FileVersion,
    Options,
    Skipped,
    VirtualArray,
    VirtualGroup,
)
from ._zarr_tables import url_of
from ._zarr_values import INSTEAD, Values, bad_name, fill_value_of, json_attributes, values_of

if TYPE_CHECKING:
    from colstore_io.grid import Container, GridVariable
    from colstore_io.grid.layout import Axis
    from colstore_io.grid.model import Member, VariableSpec

__all__ = ["Cut", "cut_of", "describe_grid"]

_FEW_CHUNKS = 1 << 10
"""Up to so many chunks of an array may be of any size: coordinates are short."""

_SMALL_COPY_BYTES = 1 << 20
"""Copies up to this size are made rather than chunks cut smaller so that none is needed."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How the chunks of a variable become those of Zarr: the same, or pieces of them along one dimension.

    Attributes
    ----------
    chunks : tuple of int
        Shape of Zarr's chunks, at least 1 along each dimension.
    along : int
        The leading dimension: all before it have chunks of length 1. 0 for a scalar.
    owner, start : ndarray of int64, one entry per piece along that dimension
        Number of the stored chunk that holds it, and the index inside that chunk where it begins.
    """

    chunks: tuple[int, ...]
    along: int
    owner: NDArray[np.int64]
    start: NDArray[np.int64]


def cut_of(axes: Sequence[Axis], dims: Sequence[str], *, exact: bool, smallest: int) -> Cut | str:
    """Return how a grid with these axes is cut into chunks of one shape; text if it cannot be: the reason.

    Parameters
    ----------
    axes : sequence of Axis
        None of length 0.
    dims : sequence of str
    exact : bool
        No chunk may be shorter than the others, not even the last along the leading dimension.
    smallest : int
        Values of the smallest piece into which stored chunks may be cut, unless there are only few.
    """
    longest = [max(length for length, _ in axis.runs) for axis in axes]
    along = next((d for d, length in enumerate(longest) if length > 1), max(len(axes) - 1, 0))
    chunks = list(longest)
    for d, axis in enumerate(axes):
        if d != along and not axis.uniform:
            return (
                f"its chunks along {dims[d]!r} are of different lengths; {INSTEAD}, or compact the container"
            )
    if not axes:
        return Cut((), 0, np.zeros(1, np.int64), np.zeros(1, np.int64))
    axis = axes[along]
    edges = axis.edges()
    bounds = edges[1:] if exact else edges[1:-1]
    if bounds.size:
        chunks[along] = int(np.gcd.reduce(bounds))
    pieces = math.prod(-(-axis.length // n) for axis, n in zip(axes, chunks, strict=True))
    if chunks[along] < longest[along] and math.prod(chunks) < smallest and pieces > _FEW_CHUNKS:
        return (
            f"its chunks along {dims[along]!r} are of different lengths, which have only {chunks[along]} in common; "
            f"{INSTEAD}, or compact the container"
        )
    if pieces > MAX_CHUNKS:
        return _too_many(pieces)
    begin = np.arange(0, axis.length, chunks[along], dtype=np.int64)
    owner = np.searchsorted(edges, begin, side="right") - 1
    return Cut(tuple(chunks), along, owner, begin - edges[owner])


def _too_many(chunks: int) -> str:
    return f"it would have {chunks} chunks, more than {MAX_CHUNKS}; {INSTEAD}"


def describe_grid(container: Container, options: Options) -> Description:
    """Describe an open container.

    Raises
    ------
    KeyError
        If a variable or group is unknown.
    FormatError
        If a file is missing or was cut short; names the variable.
    ValueError
        If a variable that was asked for cannot be described.
    """
    from colstore_io.grid.parsing import group_path

    root = group_path(options.group)
    container.group(root)
    files = _Files(container)
    groups: dict[str, VirtualGroup] = {}
    skipped: list[Skipped] = []
    unknown = set(options.names or ())
    for path in container.model.groups:
        if path != root and not path.startswith(root.rstrip("/") + "/"):
            continue
        relative = group_path(path.removeprefix(root) if root != "/" else path)
        for parent in _parents(relative):
            groups.setdefault(parent, VirtualGroup())
        group, lost = _group(container, path, relative, files, options)
        groups[relative] = group
        skipped += lost
        unknown -= set(container.model.groups[path].variables)
    if unknown:
        known = ", ".join(map(repr, container.group(root).variables))
        raise KeyError(f"no variable {sorted(unknown)[0]!r} in {container.place.spelling}; there are {known}")
    ordered = {
        path: groups[path] for path in sorted(groups, key=lambda path: path.count("/") if path != "/" else 0)
    }
    return Description(ordered, files.versions(), tuple(skipped))


def _parents(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    return ["/", *("/" + "/".join(parts[:n]) for n in range(1, len(parts)))]


class _Files:
    """The data files that chunks lie in, numbered as they come; each is looked at once."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self._numbers: dict[str, int] = {}
        self._versions: list[FileVersion] = []
        self._listed: Mapping[str, tuple[int | None, str | None]] | None = None

    def number(self, member: Member, variable: str) -> int:
        """Return the number of a member's file, which is there and whole.

        Raises
        ------
        FormatError
            If it is not; names the variable.
        """
        found = self._numbers.get(member.path)
        if found is None:
            size, token = self._look(member, variable)
            found = self._numbers[member.path] = len(self._versions)
            url = url_of(self.container.place.child(member.path))
            self._versions.append(FileVersion(url, size, token))
        return found

    def _look(self, member: Member, variable: str) -> tuple[int, str | None]:
        from colstore_io import storage

        source = self.container.source
        if self._listed is None:
            try:
                entries = storage.list_names(self.container.place)
            except (OSError, NotImplementedError):
                entries = []
            # A web server lists nothing, or a page with links, which may be all files or not.
            if any(entry.size is None for entry in entries):
                entries = []
            self._listed = {entry.name: (entry.size, entry.token) for entry in entries}
        if "/" in member.path or not self._listed:
            source.file(member.path, member.size, variable)
            return member.size, None
        size, token = self._listed.get(member.path, (None, None))
        if size is None:
            raise source.damaged(variable, member.path, "is not there")
        if size < member.size:
            raise source.damaged(
                variable, member.path, f"was cut short: {size} of {member.size} bytes are left"
            )
        return size, token

    def versions(self) -> tuple[FileVersion, ...]:
        return tuple(self._versions)


def _group(
    container: Container, path: str, relative: str, files: _Files, options: Options
) -> tuple[VirtualGroup, list[Skipped]]:
    group = container.model.groups[path]
    prefix = "" if relative == "/" else relative.strip("/") + "/"
    attrs, skipped = json_attributes(group.attrs, prefix.rstrip("/"))
    children = {
        name.removeprefix(path.rstrip("/") + "/").partition("/")[0]
        for name in container.model.groups
        if name != path and name.startswith(path.rstrip("/") + "/")
    }
    arrays = {}
    for name, spec in group.variables.items():
        if options.names is not None and name not in options.names:
            continue
        found: VirtualArray | str
        if name in children:
            found = "a group has the same name"
        else:
            found = _variable(container.variable(name, path), spec, files, options)
        if isinstance(found, str):
            if options.names is not None:
                raise ValueError(f"variable {prefix + name!r} cannot be shown as a Zarr array: {found}")
            skipped.append(Skipped(prefix + name, found))
            continue
        arrays[name] = found
        skipped += json_attributes(spec.attrs, prefix + name)[1]
    return VirtualGroup(attrs, arrays), skipped


def _variable(
    variable: GridVariable, spec: VariableSpec, files: _Files, options: Options
) -> VirtualArray | str:
    bad = bad_name(spec.name)
    if bad is not None:
        return bad
    if spec.kind == "complex":
        return f"its real and imaginary parts lie apart, in Zarr they alternate; {INSTEAD}"
    if spec.kind != "plain":
        return f"it is {spec.kind} of any length, for which Zarr has no layout in place; {INSTEAD}"
    values = values_of(spec.dtype, spec.attrs, text=options.text or options.names is not None)
    if isinstance(values, str):
        return values
    stored = Values(values.dtype.newbyteorder("<"), values.attrs)
    if not all(spec.shape):
        return _without_values(spec, stored)
    if spec.n_chunks > MAX_CHUNKS:
        return _too_many(spec.n_chunks)
    best: tuple[int, Cut, Any] | None = None
    for exact in (False, True):
        cut = cut_of(spec.axes, spec.dims, exact=exact, smallest=options.smallest_chunk)
        if isinstance(cut, str):
            if best is None:
                return cut
            break
        places = _places(variable, spec, files, cut, stored.dtype.itemsize)
        nbytes = int(places[2].sum()) * math.prod(cut.chunks) * stored.dtype.itemsize
        if best is None or nbytes < best[0]:
            best = nbytes, cut, places
        if nbytes <= min(options.inline_bytes, _SMALL_COPY_BYTES):
            break
    assert best is not None
    nbytes, cut, places = best
    if nbytes > options.inline_bytes:
        return (
            f"some of its chunks at the edges are shorter than the others, and Zarr wants all in full, which would "
            f"take copies of {nbytes} bytes; {INSTEAD}, or choose chunks that divide the dimensions when it is written"
        )
    return _array(variable, spec, stored, cut, places)


def _array(
    variable: GridVariable,
    spec: VariableSpec,
    values: Values,
    cut: Cut,
    places: tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]],
) -> VirtualArray:
    file, offset, copied = places
    inline = {}
    for index in map(tuple, np.argwhere(copied).tolist()):
        key = tuple(
            slice(i * n, min((i + 1) * n, length))
            for i, n, length in zip(index, cut.chunks, spec.shape, strict=True)
        )
        part = variable.read_outer(key).astype(spec.dtype.newbyteorder("<"), copy=False)
        full = np.zeros(cut.chunks, part.dtype)
        full[tuple(slice(0, n) for n in part.shape)] = part
        inline[index] = full.tobytes()
    attrs = {**json_attributes(spec.attrs, spec.name)[0], **values.attrs}
    return VirtualArray(
        name=spec.name,
        dtype=values.dtype,
        shape=spec.shape,
        chunks=cut.chunks,
        dims=spec.dims,
        fill_value=fill_value_of(attrs, values.dtype),
        attrs=attrs,
        file=np.where(copied, np.int32(INLINE), file),
        offset=np.where(copied, 0, offset),
        inline=inline,
    )


def _without_values(spec: VariableSpec, values: Values) -> VirtualArray:
    """Describe a variable with a dimension of length 0. How it was cut does not matter, and may be into anything."""
    attrs = {**json_attributes(spec.attrs, spec.name)[0], **values.attrs}
    grid = tuple(min(n, 1) for n in spec.shape)
    return VirtualArray(
        name=spec.name,
        dtype=values.dtype,
        shape=spec.shape,
        chunks=tuple(max(n, 1) for n in spec.shape),
        dims=spec.dims,
        fill_value=fill_value_of(attrs, values.dtype),
        attrs=attrs,
        file=np.zeros(grid, np.int32),
        offset=np.zeros(grid, np.int64),
    )


def _places(
    variable: GridVariable, spec: VariableSpec, files: _Files, cut: Cut, itemsize: int
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the file and the offset of every piece of a variable, and whether it must be copied."""
    counts = spec.counts
    file = np.zeros(counts, np.int32)
    offset = np.zeros(counts, np.int64)
    ends = np.zeros(counts, np.int64)
    _locate(variable, spec, files, file, offset, ends)
    if spec.dims:
        file = file.take(cut.owner, axis=cut.along)
        offset, ends = (table.take(cut.owner, axis=cut.along) for table in (offset, ends))
        behind = math.prod(cut.chunks[cut.along + 1 :]) * itemsize
        shape = [-1 if d == cut.along else 1 for d in range(len(counts))]
        offset = offset + (cut.start * behind).reshape(shape)
    copied = offset + math.prod(cut.chunks) * itemsize > ends
    for d, (n, length) in enumerate(zip(cut.chunks, spec.shape, strict=True)):
        if d > cut.along and length % n:
            copied[tuple(-1 if d == other else slice(None) for other in range(copied.ndim))] = True
    return file, offset, copied


def _locate(
    variable: GridVariable,
    spec: VariableSpec,
    files: _Files,
    file: NDArray[np.int32],
    offset: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    """Fill in, for each stored chunk, the number of its file, its offset there, and where the file ends."""
    from colstore_io.grid.places import MemberBoxes, MemberLayout, missing_chunk, owners_of

    source = variable.source
    members = variable.members
    chunks = [np.arange(n, dtype=np.int64) for n in spec.counts]
    owners, parts = owners_of(members, chunks, MemberBoxes(members, len(spec.counts)))
    if (owners < 0).any():
        raise missing_chunk(spec.name, np.argwhere(owners < 0)[0].tolist(), source.place.spelling)
    for number, part in parts:
        member = members[number]
        layout = MemberLayout(member)
        if layout.end > member.size:
            raise source.damaged(
                spec.name, member.path, f"has {member.size} bytes, its chunks end at {layout.end}"
            )
        begin, rows = layout.records([own[where] for own, where in zip(chunks, part, strict=True)])
        own = owners[part] == number
        shape = own.shape
        found = (begin + rows * member.prefixes[spec.name, ""]).reshape(shape)
        file[part] = np.where(own, files.number(member, spec.name), file[part])
        offset[part] = np.where(own, found, offset[part])
        ends[part] = np.where(own, member.size, ends[part])
