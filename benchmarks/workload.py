"""What a workload is, and how a family collects its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bench import Bench
from measure import Job
from system import System

__all__ = ["Family", "Workload"]


@dataclass(frozen=True)
class Workload:
    """One thing to measure.

    Attributes
    ----------
    needs : tuple of str
        Methods that a system must have.
    source : str
        What `call` gets: an open handle ("file", "records", "shards"), paths ("path", "record_path", "shard_paths",
        "thousand_paths", "alone_path"), or nothing ("none"). "records", "shards" and their paths may end in
        "_irregular": unequal sizes. Of a table of the columns family: the Arrow data ("table:NAME"), an open handle of
        its encoded bytes ("encoded:NAME"), a path ("encoded_path:NAME"). Of N-D data: see `GridWorkload`, with the
        layout behind the colon ("grid_open:tile").
    call : callable (system, source, bench) -> result
    want : callable (bench) -> expected result, or None
    limit : callable (bench) -> anything, the same work by NumPy on arrays in memory; None where there is no such
    limit_c : callable (bench) -> anything or None, the same compiled; None where there is no such
    known : (key, columns) or None
        Of a gather: its row numbers and columns, each a callable (bench). `limit_map` then reads the same items of our
        mapped files by addresses that are known beforehand: what the layout of the file costs, apart from any code.
    prepare : callable (system, bench), untimed, before each call
    target : float or None
        What our ratio to Parquet with zstd must not pass.
    goals : mapping of str to float
        How many times faster than these systems we should be.
    unit : {"s", "x result", "B/row", "bytes"}
        Of the samples. "B/row" and "bytes": of one row. "x result": bytes for each byte of the result; `call` checks
        its result itself.
    measures_itself : bool
        `call` checks its result and returns the sample.
    jobs : callable () -> jobs, results checked, or None
        For families whose systems are of another kind: everything above but `unit` is left out.
    """

    name: str
    group: str
    needs: tuple[str, ...]
    source: str
    call: Callable[[System, Any, Bench], Any]
    want: Callable[[Bench], Any] | None = None
    limit: Callable[[Bench], Any] | None = None
    limit_c: Callable[[Bench], Any] | None = None
    can_limit_c: Callable[[Bench], bool] | None = None
    known: tuple[Callable[[Bench], np.ndarray], Callable[[Bench], list[str]]] | None = None
    prepare: Callable[[System, Bench], Any] | None = None
    goals: Mapping[str, float] = field(default_factory=dict)
    unit: str = "s"
    measures_itself: bool = False
    target: float | None = None
    jobs: Callable[[], Iterable[Job]] | None = None


class Family(dict[str, Workload]):
    """Workloads by their names, in the order in which they are measured."""

    def add(
        self,
        name: str,
        group: str,
        needs: str,
        source: str,
        call: Any,
        want: Any = None,
        limit: Any = None,
        **more: Any,
    ) -> None:
        """Add a workload; `needs` are words."""
        self[name] = Workload(name, group, tuple(needs.split()), source, call, want, limit, **more)
