"""Changing a container: collect what is new, then publish one generation (docs/format-grid.md 5).

Data files are written first, under names that no manifest knows yet. `GridWriter.commit` then joins the changes to the
newest generation and publishes the next one. When another writer was faster, it looks whether the two touch the same
chunks: if not, it joins its changes to the other's; if so, it raises `CommitConflictError`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..errors import CommitConflictError, SchemaMismatchError
from ..storage import Location
from ..writing import manifest
from .container import Newest, check_free, keep_newest, newest_of
from .files import Unsynced
from .layout import Axis, Box
from .members import write_member
from .model import Dimension, Group, Member, Model, TextFile, VariableSpec, check_attributes, manifest_of
from .parsing import group_path, model_of

__all__ = ["GridWriter", "Mode", "Part", "commit_together", "conflict"]

Mode = Literal["w", "w-", "a", "r+"]

_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Part:
    """Chunks of a variable that are being written.

    Attributes
    ----------
    spec : VariableSpec
        The variable as it will be.
    axes : tuple of Axis
        How the part is cut.
    first : tuple of int
        Number of its first chunk along each dimension.
    """

    spec: VariableSpec
    axes: tuple[Axis, ...]
    first: tuple[int, ...]

    @property
    def box(self) -> Box:
        return Box(self.first, tuple(a + axis.count for a, axis in zip(self.first, self.axes, strict=True)))

    @property
    def own_spec(self) -> VariableSpec:
        """The variable as if this part were all of it."""
        return replace(self.spec, axes=self.axes)

    @property
    def size(self) -> int:
        size = 1
        for axis in self.axes:
            size *= axis.length
        return size


def conflict(place: Location, what: str) -> CommitConflictError:
    return CommitConflictError(
        17,
        f"another writer changed {what} meanwhile; nothing was published. Read the dataset again",
        place.spelling,
    )


@dataclass
class GridWriter:
    """One change of one group of a container.

    Parameters
    ----------
    place : Location
        The directory.
    mode : {"w", "w-", "a", "r+"}
        ``"w"``: the group, and those below it, are replaced. ``"w-"``: it must not exist. ``"a"``: variables are added,
        or replaced as a whole. ``"r+"``: parts of variables that exist.
    group : str

    Raises
    ------
    FileExistsError
        ``"w-"`` and the group exists.
    FileNotFoundError
        ``"r+"`` and there is no such container.
    FormatError
        If the directory is a table, or its manifest is damaged.
    """

    place: Location
    mode: Mode = "w"
    group: str = "/"
    base: Model | None = field(init=False, default=None)
    attrs: dict[str, Any] = field(init=False, default_factory=dict)
    parts: dict[str, Part] = field(init=False, default_factory=dict)
    dims: dict[str, Dimension] = field(init=False, default_factory=dict)
    members: list[Member] = field(init=False, default_factory=list)
    texts: list[TextFile] = field(init=False, default_factory=list)
    waiting: dict[str, Any] = field(init=False, default_factory=dict)
    unsynced: list[str] = field(init=False, default_factory=list)
    _newest: Newest | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.mode not in ("w", "w-", "a", "r+"):
            raise ValueError(f"mode must be 'w', 'w-', 'a' or 'r+', got {self.mode!r}")
        self.group = group_path(self.group)
        self._newest = newest_of(self.place)
        if self._newest is None:
            check_free(self.place)
        else:
            self.base = self._newest.model
        if (
            self.mode == "w-"
            and self.base is not None
            and (self.group == "/" or self.group in self.base.groups)
        ):
            raise FileExistsError(17, "the dataset exists; mode='w' replaces it", self.place.spelling)
        if self.mode == "r+" and (self.base is None or self.group not in self.base.groups):
            raise FileNotFoundError(2, "no such dataset to change", self.place.spelling)

    @property
    def existing(self) -> Group:
        """The group as it was when this change began; empty when it is new or will be replaced."""
        if self.base is None or self.mode in ("w", "w-"):
            return Group()
        return self.base.groups.get(self.group, Group())

    # ------------------------------------------------------------------------------------------------------
    # What is new

    def put(self, part: Part, data: Any = None) -> None:
        """Take a part of a variable. `data` is written by `write_waiting`; None: somebody else writes it.

        Raises
        ------
        ValueError
            If one variable is put twice.
        """
        name = part.spec.name
        if name in self.parts:
            raise ValueError(f"variable {name!r} is given twice")
        self.parts[name] = part
        if data is not None and part.size:
            self.waiting[name] = data

    def write_waiting(self, unsynced: Unsynced | None = None) -> None:
        """Write all data in memory: one file for the variables that are cut alike, and one for each one's text.

        Parameters
        ----------
        unsynced : Unsynced, optional
            Takes the files, to make them durable later.
        """
        alike: dict[tuple[Any, ...], list[str]] = {}
        for name in self.waiting:
            part = self.parts[name]
            alike.setdefault((part.spec.dims, part.axes, part.first), []).append(name)
        for number, names in enumerate(alike.values()):
            specs = [self.parts[name].own_spec for name in names]
            data = {name: self.waiting.pop(name) for name in names}
            first = self.parts[names[0]].first
            member, texts = write_member(
                self.place, self.group, specs, data, first, number=number, unsynced=unsynced
            )
            self.add(member, texts)

    def add(self, member: Member, texts: Sequence[TextFile] = (), *, synced: bool = True) -> None:
        """Take a file that was written. Without `synced` it is on this machine, and `commit` makes it durable."""
        self.members.append(member)
        self.texts.extend(texts)
        if not synced:
            self.unsynced += [member.path, *(text.path for text in texts)]

    # ------------------------------------------------------------------------------------------------------
    # Publishing

    def commit(self) -> int:
        """Write what waits and publish the next generation.

        Returns
        -------
        int
            Its number.

        Raises
        ------
        CommitConflictError
            Another writer changed the same chunks, variables or dimensions; nothing was published.
        TypeError
            If an attribute has no form in a manifest, naming it and its variable.
        """
        return commit_together([self])

    def _write(self, unsynced: Unsynced) -> None:
        """Write what waits. `unsynced` takes the data files: they and their names are durable before a manifest is."""
        self.write_waiting(unsynced)
        directory = self.place.local_path
        if directory is None:
            return
        os.makedirs(directory, exist_ok=True)
        if self.members:
            unsynced.add_directory(directory)
        if self.base is None:
            unsynced.add_directory(os.path.dirname(directory))  # a new container has a name of its own
        for path in self.unsynced:
            unsynced.add_file(os.path.join(directory, path))
        self.unsynced.clear()

    def _read_newest(self, number: int) -> Model | None:
        """Return the newest generation before `number`, None if there is none; it is kept."""
        if self._newest is None or not self._newest.is_before(self.place, number):
            self._newest = newest_of(self.place)
        return None if self._newest is None else self._newest.model

    def _check_others(self, newest: Model | None) -> None:
        """Raise if what others published since this change began touches the same things."""
        if self.mode == "w-" and newest is not None and (self.group == "/" or self.group in newest.groups):
            raise conflict(self.place, f"group {self.group!r} (created it)")
        if self.mode in ("w", "w-") or newest is None:
            if self.mode in ("a", "r+") and self.base is not None:
                raise conflict(self.place, "the dataset (removed it)")
            return
        before = self.existing
        after = newest.groups.get(self.group, Group())
        known = {member.path for member in before.members}
        for name, dim in self.dims.items():
            now = after.dims.get(name)
            if now is not None and now.length not in (
                dim.length,
                getattr(before.dims.get(name), "length", -1),
            ):
                raise conflict(self.place, f"dimension {name!r}")
        for name, part in self.parts.items():
            old, new = before.variables.get(name), after.variables.get(name)
            if (old is None) != (new is None) or (
                old is not None and new is not None and not _same(old, new)
            ):
                raise conflict(self.place, f"variable {name!r}")
            for member in after.members:
                if member.path not in known and name in member.variables and member.box.meets(part.box):
                    raise conflict(self.place, f"chunks of variable {name!r}")

    def _changed_groups(self, groups: dict[str, Group]) -> dict[str, Group]:
        """Return all groups with this change in its own."""
        groups = dict(groups)
        if self.mode in ("w", "w-"):
            below = self.group.rstrip("/") + "/"
            groups = {
                path: group
                for path, group in groups.items()
                if path != self.group and not path.startswith(below)
            }
        parts = self.group.strip("/").split("/") if self.group != "/" else []
        for depth in range(len(parts) + 1):
            groups.setdefault("/" + "/".join(parts[:depth]), Group())
        groups[self.group] = self._changed(groups[self.group])
        return groups

    def _changed(self, group: Group) -> Group:
        """Return the group with this change in it."""
        whole = {name for name, part in self.parts.items() if part.box == part.spec.grid}
        variables = dict(group.variables)
        variables.update({name: part.spec for name, part in self.parts.items()})
        kept = [member.without(whole) for member in group.members]
        boxes = [(member.variables, member.dims, member.box) for member in self.members]
        members = [m for m in kept if m.variables and not _covered(m, boxes)] + self.members
        texts = {**group.texts, **{text.path: text for text in self.texts}}
        used = {path for member in members for path in member.texts.values()}
        dims = {**group.dims, **self.dims}
        return Group(
            {**group.attrs, **self.attrs} if self.mode in ("a", "r+") else dict(self.attrs),
            dims,
            variables,
            tuple(members),
            {path: text for path, text in texts.items() if path in used},
        )


def commit_together(writers: Sequence[GridWriter]) -> int:
    """Publish changes of several groups of one container as one generation: readers see all of them, or none.

    Parameters
    ----------
    writers : sequence of GridWriter
        Of one place. What replaces a group comes before what is below it.

    Returns, Raises
        As `GridWriter.commit`.
    """
    first, place = writers[0], writers[0].place
    for writer in writers:  # attributes that cannot be stored are refused before a byte is written
        check_attributes(writer.group, writer.attrs, [part.spec for part in writer.parts.values()])
    unsynced = Unsynced()
    for writer in writers:
        writer._write(unsynced)
    for _ in range(_ATTEMPTS):
        number = manifest.next_number(place)  # first: what is published after this takes the number
        newest = first._read_newest(number)
        if newest is not None and newest.generation >= number:
            continue
        groups = {} if newest is None else dict(newest.groups)
        for writer in writers:
            writer._check_others(newest)
            groups = writer._changed_groups(groups)
        groups = dict(sorted(groups.items()))
        generation = manifest_of(groups, number)
        try:
            # The bytes of the manifest become durable together with the data; its name comes behind theirs.
            manifest.publish(place, generation, checked=True, before_name=unsynced.sync)
        except CommitConflictError:
            continue
        for writer in writers:
            writer.base = newest
        keep_newest(place, model_of(generation, groups))
        return number
    raise conflict(place, "the dataset again and again")


def _same(a: VariableSpec, b: VariableSpec) -> bool:
    return (a.kind, a.dtype, a.dims, a.axes) == (b.kind, b.dtype, b.dims, b.axes)


def _covered(member: Member, boxes: Sequence[tuple[frozenset[str], tuple[str, ...], Box]]) -> bool:
    """Whether one new file holds all chunks and variables of an old one."""
    own = member.box
    for variables, dims, box in boxes:
        if dims != member.dims or (
            dims and box.first[0] > own.first[0]
        ):  # of an append, that is all old files
            continue
        if member.variables <= variables and all(
            a <= c and d <= b for a, b, c, d in zip(box.first, box.stop, own.first, own.stop, strict=True)
        ):
            return True
    return False


# ----------------------------------------------------------------------------------------------------------
# Parts


def whole_part(spec: VariableSpec) -> Part:
    """Return the part that is all of a variable."""
    return Part(spec, spec.axes, (0,) * len(spec.axes))


def appended_part(old: VariableSpec, axis: Axis, dim: str) -> Part:
    """Return the part that follows a variable along `dim`, cut as `axis` says there and as the variable elsewhere."""
    at = old.dims.index(dim)
    axes = (*old.axes[:at], old.axes[at].followed_by(axis), *old.axes[at + 1 :])
    own = (*old.axes[:at], axis, *old.axes[at + 1 :])
    first = tuple(old.axes[at].count if d == at else 0 for d in range(len(axes)))
    return Part(replace(old, axes=axes), own, first)


def region_part(old: VariableSpec, region: Mapping[str, slice], shape: Sequence[int]) -> Part:
    """Return the part of a variable that a region covers.

    Parameters
    ----------
    region : mapping of str to slice
        Start and stop along some dimensions; others are covered whole.
    shape : sequence of int
        Of the data that should go there.

    Raises
    ------
    SchemaMismatchError
        If the region has a step, lies outside, cuts a chunk, or the data have another shape; names the variable.
    """
    own, first = [], []
    for dim, axis, n in zip(old.dims, old.axes, shape, strict=True):
        where = region.get(dim, slice(0, axis.length))
        start, stop = int(where.start or 0), axis.length if where.stop is None else int(where.stop)
        if where.step not in (None, 1):
            raise SchemaMismatchError(
                f"region {start}:{stop}:{where.step} along {dim!r} of variable {old.name!r} has a step; a region is "
                "one run of whole chunks, so write one region for each run"
            )
        if not 0 <= start <= stop <= axis.length:
            raise SchemaMismatchError(
                f"region {start}:{stop} along {dim!r} lies outside variable {old.name!r}, which has {axis.length}"
            )
        if n != stop - start:
            raise SchemaMismatchError(
                f"variable {old.name!r} has {n} indices along {dim!r}, the region {start}:{stop} has {stop - start}"
            )
        span = axis.span(start, stop) if n else (0, 0)
        if span is None:
            a, b = int(axis.chunk_of(start)), int(axis.chunk_of(stop - 1))
            low, high = int(axis.edges(a, a + 1)[0]), int(axis.edges(b, b + 1)[-1])
            raise SchemaMismatchError(
                f"region {start}:{stop} along {dim!r} cuts chunks of variable {old.name!r}; the whole chunks around it "
                f"are {low}:{high}"
            )
        own.append(axis.part(*span))
        first.append(span[0])
    return Part(old, tuple(own), tuple(first))
