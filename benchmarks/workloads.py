"""What is measured: the workloads of all families, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import columns_family
import lazy_family
import process_family
import reading_family
import writing_family
from bench import Bench
from colbin_family import colbin_workloads
from grid_family import GOALS, PEERS, GridData, GridWorkload, grid_workloads
from reading_family import known_gather
from workload import Family, Workload

__all__ = ["WORKLOADS", "Bench", "Workload", "known_gather"]


WORKLOADS = Family()
for _family in (reading_family, process_family, writing_family, lazy_family):
    WORKLOADS |= _family.WORKLOADS


def _add_grid(name: str, layout: str, work: GridWorkload) -> None:
    def with_data(call: Callable[[GridData], Any] | None) -> Callable[[Bench], Any] | None:
        return None if call is None else lambda b: call(b.grid)

    prepare = work.prepare
    WORKLOADS.add(
        f"grid_{layout}_{name}",
        "grid",
        work.needs,
        work.source if work.source == "none" else f"{work.source}:{layout}",
        lambda s, source, b: work.call(s, source, b.grid),
        with_data(work.want),
        with_data(work.limit),
        prepare=None if prepare is None else lambda s, b: prepare(s, b.grid),
        goals=dict.fromkeys(PEERS, GOALS.get(name, 1.0)),
    )


for _name, _layout, _work in grid_workloads():
    _add_grid(_name, _layout, _work)

WORKLOADS |= columns_family.WORKLOADS
for _name, (_unit, _make_jobs) in colbin_workloads().items():
    WORKLOADS.add(_name, "colbin", "", "none", None, unit=_unit, jobs=_make_jobs)
