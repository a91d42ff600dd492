"""Workloads in fresh processes: data that is not in memory, little memory, and imports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bench import PIECE_ROWS, SMALL_ROWS, Bench, Key
from confined import available
from probe import checksum, run_probe
from system import System
from workload import Family

__all__ = ["WORKLOADS"]

WORKLOADS = Family()


def _probed(
    key_name: str, key: Key, what: str, limit: Any = None, **flags: Any
) -> Callable[[System, str, Bench], float]:
    """Return the call of a workload that is measured in a fresh process (see probe.py)."""

    def call(system: System, path: str, b: Bench) -> float:
        rows = key(b)
        probe = {"system": system.name, "path": path, "column": "a", "cold": False, "memory": False, **flags}
        probe |= {"small": b.small_file(system, system), "small_rows": min(SMALL_ROWS, b.n)}
        probe |= {"confined": None, "pieces": 0} | ({} if limit is None else limit(b))
        probe["key"] = None if rows is None else b.key_file(key_name, rows)
        want = b.piece_checksum if probe["pieces"] else b.checksum if rows is None else None
        return run_probe(probe, checksum(b.columns["a"][rows]) if want is None else want)[what]

    return call


def _add_probed(name: str, group: str, needs: str, call: Any, **more: Any) -> None:
    WORKLOADS.add(name, group, needs, "alone_path", call, measures_itself=True, **more)


_add_probed("cold_read_all", "cold", "read_all", _probed("", lambda b: None, "seconds", cold=True))
_add_probed("cold_raw", "cold", "raw_read", _probed("", lambda b: None, "seconds", cold=True))
_add_probed("cold_gather_1000", "cold", "rows", _probed("few", lambda b: b.small_index, "seconds", cold=True))


def _small_memory(b: Bench) -> dict[str, Any]:
    """Return how a probe is held to a quarter of the bytes of the table."""
    if not available():
        raise RuntimeError("no control group of memory can be made here")
    return {"confined": max(24 << 20, b.n * 50 // 4), "rows": b.n, "columns": b.names}


_add_probed(
    "small_memory_read_all",
    "small_memory",
    "rows_many",
    _probed("", lambda b: None, "seconds", lambda b: _small_memory(b) | {"pieces": PIECE_ROWS}, cold=True),
)
_add_probed(
    "small_memory_raw",
    "small_memory",
    "raw_rows",
    _probed("", lambda b: None, "seconds", lambda b: _small_memory(b) | {"pieces": PIECE_ROWS}, cold=True),
)
_add_probed(
    "small_memory_gather_1000",
    "small_memory",
    "rows",
    _probed("few", lambda b: b.small_index, "seconds", _small_memory, cold=True),
)
_add_probed(
    "memory_mask_50",
    "memory",
    "rows",
    _probed("mask", lambda b: b.masks[50], "peak", memory=True),
    unit="x result",
)


# ---- what a program pays before it has opened anything


def _import_seconds(statements: str, processes: int = 1) -> float:
    """Return how long `statements` take in the fastest of some fresh interpreters, whose own start is not counted."""
    timed = f"import time; begin = time.perf_counter()\n{statements}\nprint(time.perf_counter() - begin)"
    # An installed package comes with its bytecode.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-W", "ignore", "-c", timed]
    return min(
        float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
        for _ in range(processes)
    )


# The engines without ours: the entry point is taken away before xarray looks for it. Of five processes the fastest
# counts: ours is to cost less than 2 %, and one process differs from the next by more than 10 % on an idle machine.
_ENGINES = """
import importlib.metadata as m
found = m.entry_points
def entry_points(**selected):
    points = found(**selected)
    if selected.get("group") != "xarray.backends":
        return points
    return m.EntryPoints(p for p in points if p.name != "colstore")
m.entry_points = entry_points
import xarray
xarray.backends.list_engines()
"""

WORKLOADS.add(
    "import",
    "import",
    "imported",
    "none",
    lambda s, _, b: _import_seconds(f"import {s.imported}"),
    None,
    lambda b: _import_seconds("import numpy, fsspec"),
    measures_itself=True,
)
# Ours puts off most of what it imports until one of its names is used.
WORKLOADS.add(
    "import_first_use",
    "import",
    "imported",
    "none",
    lambda s, _, b: _import_seconds(f"import {s.imported}\n{s.imported}.open"),
    None,
    lambda b: _import_seconds("import numpy, fsspec"),
    measures_itself=True,
)
WORKLOADS.add(
    "import_xarray_engines",
    "import",
    "xarray_engine",
    "none",
    lambda s, _, b: _import_seconds(_ENGINES.replace('!= "colstore"', '!= ""'), processes=5),
    None,
    lambda b: _import_seconds(_ENGINES, processes=5),
    measures_itself=True,
)
