"""Writing: workloads whose peers leave the rest to the system, and those in which everybody waits for the disk."""

from __future__ import annotations

import os
import shutil
from typing import Any

from bench import Bench
from grid_family import durable
from system import System
from workload import Family

__all__ = ["WORKLOADS"]

WORKLOADS = Family()


def _clear(system: System, bench: Bench) -> None:
    for name in ("written", "compacted"):
        path = bench.scratch(name + system.suffix)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.unlink(path)
    os.sync()  # who waits for the disk waits for his own bytes, not for those of whoever came before


def _limit_write(bench: Bench, *, waits: bool = False) -> None:
    with open(bench.scratch("limit.raw"), "wb") as file:
        for values in bench.columns.values():
            file.write(memoryview(values).cast("B"))
        if waits:
            file.flush()
            os.fsync(file.fileno())


def _limit_durable(bench: Bench) -> None:
    _limit_write(bench, waits=True)


def _write(system: System, _: Any, bench: Bench) -> None:
    system.write(bench.columns, bench.scratch("written" + system.suffix))


def _write_durable(system: System, _: Any, bench: Bench) -> None:
    durable(system, bench.scratch("written" + system.suffix), lambda: _write(system, _, bench))


def _append(system: System, _: Any, bench: Bench) -> None:
    system.write_records(bench.pieces(bench.records), bench.scratch("written" + system.suffix))


def _compact(system: System, path: str, bench: Bench) -> None:
    system.compact(path, bench.scratch("compacted" + system.suffix))


for _name, _needs, _source, _call, _limit in (
    ("write", "write", "none", _write, _limit_write),
    ("write_durable", "write as_shipped", "none", _write_durable, _limit_durable),
    ("append_records", "write_records as_shipped", "none", _append, _limit_durable),
    ("append_records_unsynced", "write_records unsynced", "none", _append, _limit_write),
    ("compact", "compact as_shipped", "record_path", _compact, _limit_durable),
    ("compact_unsynced", "compact unsynced", "record_path", _compact, _limit_write),
):
    WORKLOADS.add(_name, "write", _needs, _source, _call, None, _limit, prepare=_clear)
