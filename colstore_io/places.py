"""Are the records still where a plan says they are?

A plan is made from what files said when they were opened. A file of this machine may have been appended to since then;
of a remote one some places may follow from others, without anybody having looked (`storage.Guard`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from . import formats
from .errors import FormatError
from .formats import ReadOptions
from .plan import DatasetPlan
from .segments import Segments
from .storage import HEAD_BYTES, ByteFile, Guard, LocalFile, PlacesMovedError, RemoteFile, read_ranges

__all__ = ["look_at", "looked_up", "only_appended"]


def only_appended(plan: DatasetPlan, number: int, file: LocalFile) -> bool:
    """Tell whether a changed file still holds all that was planned, so that reading may go on (integrations.md 4.4)."""
    entry = plan.files[number]
    try:
        if plan.decoders:
            return plan.decoders[number].unchanged(file)
        planned = np.flatnonzero(plan.segments.file == number)
        return formats.addressable_format(plan.format).only_appended(
            file,
            fingerprint=entry.fingerprint,
            n_records=entry.records,
            n_rows=entry.rows,
            committed_end=entry.committed_end,
            places=[
                (int(plan.segments.body_start[s]), int(plan.segments.rows[s]))
                for s in sorted({*planned[:1].tolist(), *planned[-1:].tolist()})
            ],
        )
    except FormatError:
        return False


def _guard_of(file: ByteFile) -> Guard | None:
    return file.guard if isinstance(file, RemoteFile) else None


def look_at(table: Segments, files: Sequence[ByteFile], chosen: NDArray[np.bool_]) -> None:
    """Look at the places of the chosen segments where they were assumed: one round of small reads at most.

    Parameters
    ----------
    table : Segments
        Of whole files.
    files : sequence of ByteFile
    chosen : ndarray of bool, shape (S,)

    Raises
    ------
    PlacesMovedError
        If one is not where it was assumed to be.
    """
    guards = [_guard_of(file) for file in files]
    if all(guard is None for guard in guards):
        return
    # The last one of each file: it wants what all before it want.
    last = dict(
        zip(*(a[chosen & (table.rows > 0)].tolist() for a in (table.file, table.body_start)), strict=True)
    )
    asked = []
    for number, start in last.items():
        guard = guards[number]
        if guard is not None:
            asked += [(files[number], guard, *place) for place in guard.wanted(start, start + 1)]
    found = read_ranges([(file, offset, length) for file, _, offset, length in asked])
    for (file, guard, offset, _), data in zip(asked, found, strict=True):
        if not guard.look(offset, data):
            raise PlacesMovedError(file.spelling)


def looked_up(plan: DatasetPlan, files: Sequence[ByteFile]) -> tuple[DatasetPlan, list[ByteFile], int]:
    """Look at all records of the whole files.

    Parameters
    ----------
    plan : DatasetPlan
        Of these files, or of some segments of them in a row.
    files : sequence of ByteFile

    Returns
    -------
    plan : DatasetPlan
        Of the whole files.
    files : list of ByteFile
        Without guards.
    first_row : int
        The row of the new plan that is row 0 of `plan`.

    Raises
    ------
    FormatError
        If a file is damaged.
    """
    unguarded = [file.again() if isinstance(file, RemoteFile) else file for file in files]
    heads = read_ranges([(file, 0, min(HEAD_BYTES, file.size)) for file in unguarded])
    metas = formats.format_named(plan.format).read_metadata(unguarded, heads, ReadOptions(statistics=False))
    table = Segments.of_files([meta.record_rows for meta in metas], [meta.body_start for meta in metas])
    start = int(plan.segments.body_start[0])
    guard = _guard_of(files[0])
    first_row = None if guard is None else guard.rows_before(start)
    if first_row is None:
        first_row = int(metas[0].record_rows[: int(np.searchsorted(metas[0].body_start, start))].sum())
    return replace(plan, segments=table), unguarded, first_row
