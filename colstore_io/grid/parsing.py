"""From a generation manifest to a `Model`. What it says is hostile until it is checked (docs/format-grid.md 6).

Everything here costs time and memory in proportion to the manifest, whatever numbers stand in it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from ..errors import FormatError
from ..fields import native
from ..formats.cstore.attributes import decode_attributes
from ..formats.cstore.manifest import parse_dtype
from ..formats.cstore.records import RECORD_HEADER_SIZE
from ..writing.manifest_json import FileEntry, GenerationManifest
from .layout import MAX_CHUNKS, Axis, Box, product
from .model import Column, Dimension, Group, Kind, Member, Model, TextFile, VariableSpec, roles_of

__all__ = ["group_path", "model_of", "parse_grid"]

_MAX_INT = 2**63 - 1
_MAX_LENGTH = 2**62  # so that chunk numbers times chunk lengths do not overflow either
_MAX_DIMS = 64
_KINDS: dict[str, Kind] = {"plain": "plain", "complex": "complex", "text": "text", "bytes": "bytes"}
_COMPLEX: dict[str, Any] = {"<c8": np.dtype(np.complex64), "<c16": np.dtype(np.complex128)}

Refuse = Callable[[str], FormatError]


def group_path(group: str | None) -> str:
    """Return the one spelling of a group's path: ``"/"``, ``"/a"``, ``"/a/b"``.

    Raises
    ------
    TypeError
        If it is no text.
    ValueError
        If a part of it is ``.`` or ``..``.
    """
    if group is not None and not isinstance(group, str):
        raise TypeError(f"group must be a path such as 'model/ocean', got {group!r}")
    parts = [part for part in (group or "").split("/") if part]
    if {".", ".."} & set(parts):
        raise ValueError(f"a group is named by its full path, got {group!r}")
    return "/" + "/".join(parts)


def parse_grid(manifest: GenerationManifest, *, path: str) -> Model:
    """Check a manifest of kind ``"grid"``.

    Parameters
    ----------
    path : str
        Of the manifest, for messages.

    Raises
    ------
    FormatError
        If it is of another kind, or contradicts itself; names the variable, or the file.
    """

    def refuse(message: str) -> FormatError:
        return FormatError(message, path=path, section="grid manifest")

    if manifest.kind != "grid":
        raise refuse("this directory holds a table, not N-D variables; open it with colstore_io.open")
    if manifest.format != "cstore":
        raise refuse(f"members are of format {manifest.format!r}, only 'cstore' is known")
    dims, variables = manifest.dims, manifest.variables
    if not isinstance(dims, dict) or not isinstance(variables, dict) or dims.keys() != variables.keys():
        raise refuse("'dims' and 'variables' do not hold the same groups")
    if "/" not in dims:
        raise refuse("has no root group")
    texts: dict[str, dict[str, TextFile]] = {name: {} for name in dims}
    members: dict[str, list[Member]] = {name: [] for name in dims}
    for entry in manifest.files:
        group = (entry.partition or {}).get("group")
        if not isinstance(group, str) or group not in members:
            raise refuse(f"file {entry.path} belongs to no group")
        if (entry.partition or {}).get("text") is True:
            texts[group][entry.path] = _text(entry, group, refuse)
        else:
            members[group].append(_member(entry, group, refuse))
    groups = {}
    for name in dims:
        try:
            normal = group_path(name)
        except ValueError:
            normal = ""
        if normal != name:
            raise refuse(f"{name!r} is no path of a group")
        groups[name] = _group(dims[name], variables[name], tuple(members[name]), texts[name], refuse)
    return Model(manifest.generation, groups)


def model_of(manifest: GenerationManifest, groups: Mapping[str, Group]) -> Model:
    """Return what `parse_grid` makes of a manifest that this process has just made of `groups`.

    Nothing in it is shared with who asked for the change, except members and texts, which nobody changes.
    """

    def refuse(message: str) -> FormatError:  # pragma: no cover
        return FormatError(message, section="grid manifest")

    dims, variables = json.loads(json.dumps([manifest.dims, manifest.variables]))
    found = {
        name: _group(dims[name], variables[name], group.members, group.texts, refuse, check=False)
        for name, group in groups.items()
    }
    return Model(manifest.generation, found)


def _is_int(value: Any) -> TypeGuard[int]:
    return type(value) is int


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _MAX_INT


def _names(value: Any, owner: str, refuse: Refuse) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise refuse(f"dimensions of {owner} are no array of names")
    if len(value) > _MAX_DIMS or len(set(value)) != len(value):
        raise refuse(f"{owner} has a dimension twice, or more than {_MAX_DIMS}")
    return tuple(value)


def _axes(value: Any, dims: Sequence[str], owner: str, refuse: Refuse) -> tuple[Axis, ...]:
    if not isinstance(value, list) or len(value) != len(dims):
        raise refuse(f"chunk lengths of {owner} are not given for each of its {len(dims)} dimensions")
    axes = []
    for dim, runs in zip(dims, value, strict=True):
        if not isinstance(runs, list):
            raise refuse(f"chunk lengths of {owner} along {dim!r} are no array")
        key = _key_of(runs)
        known = _KNOWN_AXES.get(key)  # what has no key is not kept
        if known is not None:
            axes.append(known)
            continue
        for run in runs:
            if not isinstance(run, list) or len(run) != 2 or not all(_is_count(n) and n > 0 for n in run):
                raise refuse(
                    f"chunk lengths of {owner} along {dim!r} hold {run!r:.60}, expected [length, count], "
                    "both positive"
                )
        axis = Axis.of_runs((length, count) for length, count in runs)
        if axis.length > _MAX_LENGTH or (axis.count > MAX_CHUNKS and not axis.uniform):
            raise refuse(f"{owner} has more indices or chunks along {dim!r} than can be")
        axes.append(axis)
        if len(_KNOWN_AXES) >= _MOST_AXES:
            _KNOWN_AXES.clear()
        if key is not None:
            _KNOWN_AXES[key] = axis
    return tuple(axes)


_KNOWN_AXES: dict[Any, Axis] = {}
"""Axes that were found to be good: variables and members of one dataset are cut alike, and there may be thousands."""

_MOST_AXES = 256


def _key_of(runs: list[Any]) -> Any:
    """Return a key for short lists of two ints; None for all else."""
    if len(runs) > 2:
        return None
    key: tuple[int, ...] = ()
    for run in runs:
        if type(run) is not list or len(run) != 2 or type(run[0]) is not int or type(run[1]) is not int:
            return None
        key = (*key, run[0], run[1])
    return key


def _text(entry: FileEntry, group: str, refuse: Refuse) -> TextFile:
    begin = (entry.layout or {}).get("begin")
    if not _is_count(begin) or begin < RECORD_HEADER_SIZE or begin + entry.rows > entry.size:
        raise refuse(f"{entry.path} has fewer bytes than the text that it should hold")
    return TextFile(entry.path, entry.size, group, begin, entry.rows)


def _member(entry: FileEntry, group: str, refuse: Refuse) -> Member:
    owner = f"file {entry.path}"
    partition, layout = entry.partition or {}, entry.layout or {}
    dims = _names(partition.get("dims"), owner, refuse)
    first, counts = partition.get("first"), partition.get("counts")
    for numbers in (first, counts):
        if type(numbers) is not list or len(numbers) != len(dims) or not all(map(_is_count, numbers)):
            raise refuse(f"{owner} does not say which chunks it holds")
    assert isinstance(first, list)
    assert isinstance(counts, list)
    axes = _axes(layout.get("chunks"), dims, owner, refuse)
    if [axis.count for axis in axes] != counts:
        raise refuse(f"{owner} does not have the chunks {counts} that it should hold")
    columns = _columns(layout.get("columns"), owner, refuse)
    texts = partition.get("texts", {})
    if not isinstance(texts, dict) or not all(isinstance(value, str) for value in texts.values()):
        raise refuse(f"{owner} does not say where its text is")
    stop = tuple([a + n for a, n in zip(first, counts, strict=True)])
    begin = layout.get("begin")
    if not _is_count(begin):
        raise refuse(f"{owner} does not say where its records begin")
    n_records, n_rows = product(counts), product([axis.length for axis in axes])
    if n_records != entry.records or n_rows != entry.rows:
        raise refuse(
            f"{owner} has {entry.records} records of {entry.rows} rows in all, its chunks make {n_records} of {n_rows}"
        )
    if n_records > MAX_CHUNKS:
        raise refuse(f"{owner} has {n_records} records, more than {MAX_CHUNKS}")
    values = n_rows * sum([column.itemsize for column in columns])
    least = begin - RECORD_HEADER_SIZE + n_records * RECORD_HEADER_SIZE + values
    member = Member(entry.path, entry.size, group, dims, Box(tuple(first), stop), axes, begin, columns, texts)
    if begin < RECORD_HEADER_SIZE or least > entry.size:
        names = ", ".join(sorted(member.variables))
        raise refuse(f"{owner} has {entry.size} bytes, its chunks of {names} need {least}: it was cut short")
    return member


def _columns(value: Any, owner: str, refuse: Refuse) -> tuple[Column, ...]:
    if not isinstance(value, list) or not value:
        raise refuse(f"{owner} has no columns")
    columns = []
    for item in value:
        if (
            not isinstance(item, list)
            or len(item) != 3
            or not isinstance(item[0], str)
            or item[1] not in ("", "real", "imag", "start", "size")
            or not _is_int(item[2])
            or not 0 < item[2] < 2**31
        ):
            raise refuse(f"{owner} has a column {item!r:.60}, expected [variable, role, bytes per value]")
        columns.append(Column(item[0], item[1], item[2]))
    alive = [(column.variable, column.role) for column in columns if column.variable]
    if len(alive) > 1 and len(set(alive)) != len(alive):
        raise refuse(f"{owner} has a column twice")
    return tuple(columns)


def _group(
    dims: Any,
    content: Any,
    members: tuple[Member, ...],
    texts: Mapping[str, TextFile],
    refuse: Refuse,
    *,
    check: bool = True,
) -> Group:
    if not isinstance(dims, dict) or not isinstance(content, dict):
        raise refuse("a group is no object")
    dimensions = {}
    for name, value in dims.items():
        length = value.get("length") if isinstance(value, dict) else None
        unlimited = value.get("unlimited") if isinstance(value, dict) else None
        if not _is_count(length) or not isinstance(unlimited, bool):
            raise refuse(f"dimension {name!r} has no length that can be")
        dimensions[name] = Dimension(length, unlimited)
    objects = content.get("variables")
    if not isinstance(objects, dict):
        raise refuse("a group has no variables")
    specs = {name: _variable(name, value, dimensions, refuse) for name, value in objects.items()}
    group = Group(_attrs(content.get("attrs", {}), "the dataset", refuse), dimensions, specs, members, texts)
    if not check:
        return group
    for member in members:
        _check_member(member, group, refuse)
    for spec in specs.values():
        n_chunks, held = spec.n_chunks, 0
        for member in group.members_of.get(spec.name, ()):
            held += member.n_records
        if n_chunks > held:
            raise refuse(
                f"variable {spec.name!r} has {n_chunks} chunks, its files hold {held}: it names more than exists"
            )
    return group


def _attrs(value: Any, owner: str, refuse: Refuse) -> Mapping[str, Any]:
    try:
        return decode_attributes(value)
    except (ValueError, RecursionError) as exc:
        raise refuse(f"attributes of {owner}: {exc}") from None


def _variable(name: str, value: Any, dimensions: Mapping[str, Dimension], refuse: Refuse) -> VariableSpec:
    owner = f"variable {name!r}"
    if not isinstance(value, dict):
        raise refuse(f"{owner} is no object")
    kind = _KINDS.get(value.get("kind", "")) if isinstance(value.get("kind"), str) else None
    if kind is None:
        raise refuse(f"{owner} is of kind {value.get('kind')!r:.40}, which this library does not know")
    dtype: np.dtype[Any] = np.dtype(object)
    if kind == "complex":
        if value.get("dtype") not in ("<c8", "<c16"):
            raise refuse(f"{owner} has a dtype that is not complex")
        dtype = _COMPLEX[value["dtype"]]
    elif kind == "plain":
        try:
            dtype = _dtype_of(value.get("dtype"))
        except ValueError as exc:
            raise refuse(f"dtype of {owner} {exc}") from None
    dims = _names(value.get("dims"), owner, refuse)
    axes = _axes(value.get("chunks"), dims, owner, refuse)
    for dim, axis in zip(dims, axes, strict=True):
        if dim not in dimensions:
            raise refuse(f"{owner} has a dimension {dim!r} that its group has not")
        if axis.length != dimensions[dim].length:
            raise refuse(
                f"chunks of {owner} have {axis.length} indices along {dim!r}, the dimension has "
                f"{dimensions[dim].length}"
            )
    if product([axis.length for axis in axes]) * dtype.itemsize > _MAX_INT:
        raise refuse(f"{owner} has a shape {tuple(axis.length for axis in axes)} that overflows")
    if product([axis.count for axis in axes]) > MAX_CHUNKS:
        raise refuse(f"{owner} has more than {MAX_CHUNKS} chunks")
    return VariableSpec(name, kind, dtype, dims, axes, _attrs(value.get("attrs", {}), owner, refuse))


def _dtype_of(text: Any) -> np.dtype[Any]:
    return _known_dtype(text) if isinstance(text, str) else parse_dtype(text)


@functools.lru_cache(256)
def _known_dtype(text: str) -> np.dtype[Any]:
    return native(parse_dtype(text))


def _check_member(member: Member, group: Group, refuse: Refuse) -> None:
    sizes = {(column.variable, column.role): column.itemsize for column in member.columns}
    for name in member.variables:
        spec = group.variables.get(name)
        if spec is None:
            continue  # of a variable that was dropped since
        if spec.dims != member.dims:
            raise refuse(
                f"file {member.path} has dimensions {member.dims}, variable {name!r} has {spec.dims}"
            )
        for dim, axis, own, first, stop in zip(
            spec.dims, spec.axes, member.axes, member.box.first, member.box.stop, strict=True
        ):
            if own is axis and first == 0:
                continue
            if stop > axis.count or axis.part(first, stop) != own:
                raise refuse(
                    f"file {member.path} holds chunks {first} to {stop} of variable {name!r} along {dim!r}, which do "
                    "not divide it as the variable is divided"
                )
        for role, dtype in zip(roles_of(spec.kind), spec.stored_dtypes, strict=True):
            if sizes.get((name, role)) != dtype.itemsize:
                raise refuse(
                    f"file {member.path} has no column of {dtype.itemsize} bytes for variable {name!r}"
                )
        if spec.kind in ("text", "bytes") and member.texts.get(name) not in group.texts:
            raise refuse(f"file {member.path} names no file with the text of variable {name!r}")
