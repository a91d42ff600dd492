"""Fewer files: merge the members of each set of variables that are cut alike into one (docs/format-grid.md 5)."""

from __future__ import annotations

from typing import Any

from .commit import GridWriter, conflict, whole_part
from .container import Container, open_container
from .model import VariableSpec
from .reading import GridVariable

__all__ = ["compact_grid"]


class _Lazy:
    """A variable that reads a chunk when it is sliced, so that one chunk at a time is in memory."""

    def __init__(self, variable: GridVariable) -> None:
        self._variable = variable

    def __getitem__(self, key: tuple[slice, ...]) -> Any:
        return self._variable.read_outer(key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        values = self[tuple(slice(None) for _ in self._variable.spec.dims)]
        return values if dtype is None else values.astype(dtype)


def compact_grid(path: Any, *, storage_options: Any = None, filesystem: Any = None) -> int:
    """Merge the files of a container: one for each set of variables with the same dimensions and chunks.

    Values, chunks and attributes stay as they are. The old files stay for readers that have them open; `vacuum`
    removes them when they are old enough.

    Parameters
    ----------
    path : path or URL
        The directory.

    Returns
    -------
    int
        How many data files the new generation has.

    Raises
    ------
    CommitConflictError
        If another writer changed the same variables meanwhile; nothing was published then.
    """
    container = open_container(path, storage_options=storage_options, filesystem=filesystem)
    try:
        for name in container.model.groups:
            _compact_group(container, name)
    finally:
        container.close()
    after = open_container(path, storage_options=storage_options, filesystem=filesystem)
    return sum(len(group.members) + len(group.texts) for group in after.model.groups.values())


def _compact_group(container: Container, name: str) -> None:
    group = container.group(name)
    alike: dict[tuple[Any, ...], list[VariableSpec]] = {}
    for spec in group.variables.values():
        alike.setdefault((spec.dims, spec.axes), []).append(spec)
    writer = GridWriter(container.place, "a", name)
    if [member.path for member in writer.existing.members] != [member.path for member in group.members]:
        raise conflict(container.place, f"group {name!r}")
    for specs in alike.values():
        members = {member.path for spec in specs for member in group.members_of.get(spec.name, ())}
        if len(members) < 2:
            continue
        for spec in specs:
            writer.put(whole_part(spec), _Lazy(container.variable(spec.name, name)))
    if not writer.parts:
        return
    writer.attrs = dict(group.attrs)
    writer.commit()
