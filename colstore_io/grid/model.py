"""What a grid container holds: groups of dimensions, variables and members, as its manifest says (docs/format-grid.md).

The dataclasses here are values. `parsing` makes them of a manifest and believes nothing; `manifest_of` turns them back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ..formats.cstore.attributes import encode_attributes
from ..writing.manifest_json import FileEntry, GenerationManifest, new_commit_id
from .layout import Axis, Box, product

__all__ = [
    "Column",
    "Dimension",
    "Group",
    "Kind",
    "Member",
    "Model",
    "Role",
    "VariableSpec",
    "check_attributes",
    "manifest_of",
    "roles_of",
]

Kind = Literal["plain", "complex", "text", "bytes"]
"""How values are stored: as they are; as a pair of columns; as place and length of bytes in a text member."""

Role = Literal["", "real", "imag", "start", "size"]
"""Which part of a variable a column is."""

NAN_SIZE = -1
NONE_SIZE = -2
"""Sizes that stand for missing values in a column of text or bytes: NaN and None."""


def roles_of(kind: Kind) -> tuple[Role, ...]:
    """Return the columns of a variable of this kind, in their order."""
    if kind == "plain":
        return ("",)
    return ("real", "imag") if kind == "complex" else ("start", "size")


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a group."""

    length: int
    unlimited: bool = False


@dataclass(frozen=True)
class VariableSpec:
    """One variable.

    Attributes
    ----------
    name : str
    kind : {"plain", "complex", "text", "bytes"}
    dtype : numpy.dtype
        Of the values that reading returns, in the byte order of this machine; ``object`` for text and bytes.
    dims : tuple of str
    axes : tuple of Axis
        How each dimension is cut.
    attrs : mapping
        Attributes as the user gave them.
    """

    name: str
    kind: Kind
    dtype: np.dtype[Any]
    dims: tuple[str, ...]
    axes: tuple[Axis, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple([axis.length for axis in self.axes])

    @property
    def counts(self) -> tuple[int, ...]:
        """Chunks along each dimension."""
        return tuple([axis.count for axis in self.axes])

    @property
    def n_chunks(self) -> int:
        return product(self.counts)

    @property
    def n_cells(self) -> int:
        """Number of values."""
        return product(self.shape)

    @property
    def grid(self) -> Box:
        """All chunks."""
        return Box((0,) * len(self.axes), self.counts)

    @property
    def stored_dtypes(self) -> tuple[np.dtype[Any], ...]:
        """Dtype of each column (`roles_of`)."""
        if self.kind == "plain":
            return (self.dtype,)
        if self.kind == "complex":
            return (np.dtype(f"f{self.dtype.itemsize // 2}"),) * 2
        return (np.dtype(np.int64),) * 2


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a member: part `role` of `variable`, values of `itemsize` bytes.

    `variable` is empty when no variable of the container has this column any more.
    """

    variable: str
    role: Role
    itemsize: int


@dataclass(frozen=True)
class Member:
    """One data file: chunks `box` of the variables in `columns`.

    Attributes
    ----------
    path : str
        Relative to the directory.
    size : int
        Bytes of the file.
    group : str
    dims : tuple of str
    box : Box
    axes : tuple of Axis
        How the box is cut: the lengths of its chunks along each dimension.
    begin : int
        Offset of the body of the first record.
    columns : tuple of Column
        In the order of the file.
    texts : mapping of str to str
        For each variable of text or bytes: path of the file with its bytes.
    """

    path: str
    size: int
    group: str
    dims: tuple[str, ...]
    box: Box
    axes: tuple[Axis, ...]
    begin: int
    columns: tuple[Column, ...]
    texts: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def variables(self) -> frozenset[str]:
        return frozenset(column.variable for column in self.columns if column.variable)

    @cached_property
    def row_bytes(self) -> int:
        return sum(column.itemsize for column in self.columns)

    def without(self, names: Collection[str]) -> Member:
        """Return this member with the columns of `names` given up; it may be left without variables."""
        if not self.variables.intersection(names):
            return self
        columns = tuple(
            Column("", "", column.itemsize) if column.variable in names else column for column in self.columns
        )
        texts = {name: path for name, path in self.texts.items() if name not in names}
        return replace(self, columns=columns, texts=texts)

    @cached_property
    def n_records(self) -> int:
        return product([axis.count for axis in self.axes])

    @property
    def n_rows(self) -> int:
        return product([axis.length for axis in self.axes])

    @cached_property
    def entry(self) -> FileEntry:
        """What a manifest says of this file."""
        return _member_entry(self)

    @cached_property
    def prefixes(self) -> Mapping[tuple[str, Role], int]:
        """Bytes of one row in front of each column: a column begins at rows times this behind the body's begin."""
        found: dict[tuple[str, Role], int] = {}
        at = 0
        for column in self.columns:
            found[column.variable, column.role] = at
            at += column.itemsize
        return found


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file with the bytes of a variable of text: one column ``|u1``, one record, its body at `begin`."""

    path: str
    size: int
    group: str
    begin: int
    n_bytes: int


@dataclass(frozen=True)
class Group:
    """One Dataset of a container.

    Attributes
    ----------
    attrs : mapping
    dims : mapping of str to Dimension
    variables : mapping of str to VariableSpec
        In the order of the manifest.
    members : tuple of Member
        In the order of the manifest: a later one wins for the chunks that it holds.
    texts : mapping of str to TextFile
    """

    attrs: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, Dimension] = field(default_factory=dict)
    variables: Mapping[str, VariableSpec] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    texts: Mapping[str, TextFile] = field(default_factory=dict)

    @cached_property
    def members_of(self) -> Mapping[str, tuple[Member, ...]]:
        """Members by variable."""
        found: dict[str, list[Member]] = {}
        for member in self.members:
            for name in member.variables:
                found.setdefault(name, []).append(member)
        return {name: tuple(members) for name, members in found.items()}


@dataclass(frozen=True, slots=True)
class Model:
    """A whole container: its groups by path, ``"/"`` first."""

    generation: int
    groups: Mapping[str, Group]


# ----------------------------------------------------------------------------------------------------------
# The manifest


def manifest_of(groups: Mapping[str, Group], generation: int) -> GenerationManifest:
    """Return the manifest of a generation, under a fresh commit id.

    Raises
    ------
    TypeError
        If an attribute has no form in a manifest, naming it and its variable.
    """
    files: list[FileEntry] = []
    dims: dict[str, Any] = {}
    variables: dict[str, Any] = {}
    for path, group in groups.items():
        where = _owner(path)
        dims[path] = {
            name: {"length": dim.length, "unlimited": dim.unlimited} for name, dim in group.dims.items()
        }
        variables[path] = {
            "attrs": encode_attributes(group.attrs, where),
            "variables": {name: _variable_object(spec) for name, spec in group.variables.items()},
        }
        files += [_text_entry(text) for text in group.texts.values()]
        files += [member.entry for member in group.members]
    return GenerationManifest(
        generation=generation,
        commit_id=new_commit_id(),
        files=tuple(files),
        n_rows=0,
        kind="grid",
        dims=dims,
        variables=variables,
    )


def check_attributes(path: str, attrs: Mapping[str, Any], specs: Iterable[VariableSpec]) -> None:
    """Raise `TypeError` if an attribute of a group or of a variable has no form in a manifest, naming it."""
    encode_attributes(attrs, _owner(path))
    for spec in specs:
        encode_attributes(spec.attrs, f"variable {spec.name!r}")


def _owner(path: str) -> str:
    return "the dataset" if path == "/" else f"group {path!r}"


def runs_object(axes: Sequence[Axis]) -> list[list[list[int]]]:
    return [[list(run) for run in axis.runs] for axis in axes]


def _variable_object(spec: VariableSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": spec.kind, "dims": list(spec.dims), "chunks": runs_object(spec.axes)}
    if spec.kind in ("plain", "complex"):
        found["dtype"] = spec.dtype.newbyteorder("<").str
    found["attrs"] = encode_attributes(spec.attrs, f"variable {spec.name!r}")
    return found


def _member_entry(member: Member) -> FileEntry:
    layout = {
        "version": "C",
        "begin": member.begin,
        "columns": [[column.variable, column.role, column.itemsize] for column in member.columns],
        "chunks": runs_object(member.axes),
    }
    partition: dict[str, Any] = {
        "group": member.group,
        "dims": list(member.dims),
        "first": list(member.box.first),
        "counts": list(member.box.counts),
    }
    if member.texts:
        partition["texts"] = dict(member.texts)
    return FileEntry(member.path, member.size, member.n_records, member.n_rows, layout, partition)


def _text_entry(text: TextFile) -> FileEntry:
    layout = {"version": "C", "begin": text.begin}
    return FileEntry(text.path, text.size, 1, text.n_bytes, layout, {"group": text.group, "text": True})
