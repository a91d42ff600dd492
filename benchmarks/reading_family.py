"""Reads of tables: one file, many records, many shards, into memory that is there already; and opening them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from bench import Bench, Key
from limits import compiled_rows, has_compiled_rows, known_rows, numpy_rows
from system import System
from workload import Family, Workload

__all__ = ["WORKLOADS", "known_gather"]

WORKLOADS = Family()


def known_gather(workload: Workload, handle: Any, bench: Bench) -> Callable[[], list[np.ndarray]]:
    """Return the call that is `limit_map`: `handle` is a reader of our own."""
    assert workload.known is not None
    key, names = (of(bench) for of in workload.known)
    source, table = handle.source, handle.source.plan.segments
    segment = table.locate(key)
    places = []
    for name in names:
        (base,) = source.addresses((source.parts_by_name[name],))
        places.append(base[segment] + key * bench.columns[name].itemsize)
    outs = [np.ones(len(key), bench.columns[name].dtype) for name in names]
    return lambda: [known_rows(place, out) for place, out in zip(places, outs, strict=True)]


def _limits(key: Key, names: Callable[[Bench], list[str]]) -> dict[str, Any]:
    """Return both limits of picking the rows of `key` from some columns."""

    def columns(b: Bench) -> list[np.ndarray]:
        return [b.columns[name] for name in names(b)]

    return {
        "limit": lambda b: numpy_rows(key(b), columns(b), b.outputs),
        "limit_c": lambda b: compiled_rows(key(b), columns(b), b.outputs),
        "can_limit_c": lambda b: has_compiled_rows(key(b), columns(b)),
    }


def _small_limit(key: Key, names: Callable[[Bench], list[str]]) -> dict[str, Any]:
    """Return the limit of a few microseconds' work: a fresh result, because looking up a kept one takes longer."""
    return {
        "limit": lambda b: [
            np.array(b.columns[name][key(b)], copy=isinstance(key(b), slice)) for name in names(b)
        ]
    }


def _add_reads(prefix: str, group: str, source: str) -> None:
    def rows(name: str, key: Key, column: str = "a", limits: Any = _limits, known: bool = False) -> None:
        WORKLOADS.add(
            prefix + name,
            group,
            "rows",
            source,
            lambda s, h, b: s.rows(h, key(b), column),
            lambda b: b.columns[column][key(b)],
            known=(key, lambda b: [column]) if known else None,
            **limits(key, lambda b: [column]),
        )

    def many(name: str, key: Key, limits: Any = _limits, known: bool = False) -> None:
        WORKLOADS.add(
            prefix + name,
            group,
            "rows_many",
            source,
            lambda s, h, b: s.rows_many(h, key(b), b.names),
            lambda b: {c: b.columns[c][key(b)] for c in b.names},
            known=(key, lambda b: b.names) if known else None,
            **limits(key, lambda b: b.names),
        )

    WORKLOADS.add(
        prefix + "read_all",
        group,
        "read_all",
        source,
        lambda s, h, b: s.read_all(h),
        lambda b: b.columns,
        **_limits(lambda b: None, lambda b: b.names),
    )
    WORKLOADS.add(
        prefix + "read_one",
        group,
        "read_one",
        source,
        lambda s, h, b: s.read_one(h, "a"),
        lambda b: b.columns["a"],
        **_limits(lambda b: None, lambda b: ["a"]),
    )
    rows("gather", lambda b: b.index, known=True)
    many("gather_many", lambda b: b.index, known=True)
    rows("gather_sorted", lambda b: b.sorted_index)
    many("gather_sorted_many", lambda b: b.sorted_index)
    for percent in (1, 10, 50, 90):
        rows(f"mask_{percent}", lambda b, p=percent: b.masks[p])
    many("mask_50_many", lambda b: b.masks[50])
    rows("reverse", lambda b: slice(None, None, -1))
    rows("every_third", lambda b: slice(None, None, 3))
    rows("range_1000", lambda b: slice(b.low, b.low + 1000), limits=_small_limit)
    rows("gather_1000", lambda b: b.small_index, limits=_small_limit)
    many("gather_1000_many", lambda b: b.small_index, limits=_small_limit)
    WORKLOADS.add(
        prefix + "filter",
        group,
        "filter",
        source,
        lambda s, h, b: s.filter(h, "p", b.threshold, "a"),
        lambda b: b.columns["a"][b.columns["p"] > b.threshold],
        lambda b: b.columns["a"][b.columns["p"] > b.threshold],
    )
    WORKLOADS.add(
        prefix + "between",
        group,
        "between",
        source,
        lambda s, h, b: s.between(h, "t", b.t_low, b.t_high, "a"),
        lambda b: b.columns["a"][b.low : b.high],
        lambda b: b.columns["a"][(b.columns["t"] >= b.t_low) & (b.columns["t"] < b.t_high)],
    )


def _add_outs() -> None:
    """Reads into arrays that exist already (goals 4 and 6): what limit and limit_c do too."""

    def rows(name: str, key: Key) -> None:
        def call(system: System, handle: Any, b: Bench) -> Any:
            rows = key(b)
            n = b.n if rows is None else b.mask_counts[id(rows)] if rows.dtype == np.bool_ else len(rows)
            (out,) = b.own_outputs(n, [b.columns["a"].dtype])
            return system.rows_out(handle, slice(None) if rows is None else rows, "a", out)

        WORKLOADS.add(
            name + "_out",
            "out",
            "rows_out",
            "file",
            call,
            lambda b: b.columns["a"] if key(b) is None else b.columns["a"][key(b)],
            **_limits(key, lambda b: ["a"]),
        )

    rows("read_one", lambda b: None)
    rows("gather", lambda b: b.index)
    for percent in (1, 10, 50, 90):
        rows(f"mask_{percent}", lambda b, p=percent: b.masks[p])
    WORKLOADS.add(
        "read_all_out",
        "out",
        "read_all_out",
        "file",
        lambda s, h, b: s.read_all_out(
            h, dict(zip(b.names, b.own_outputs(b.n, [v.dtype for v in b.columns.values()]), strict=True))
        ),
        lambda b: b.columns,
        **_limits(lambda b: None, lambda b: b.names),
    )


def _add_mean(prefix: str, group: str, source: str) -> None:
    WORKLOADS.add(
        prefix + "mean",
        group,
        "mean",
        source,
        lambda s, h, b: s.mean(h, "a"),
        lambda b: float(b.columns["a"].mean()),
        lambda b: b.columns["a"].mean(),
    )


_add_reads("", "core", "file")
_add_outs()
for _many in ("records", "records_irregular", "shards", "shards_irregular"):
    _add_reads(_many + "_", _many, _many)
    _add_mean(_many + "_", _many, _many)


def _opened(system: System, paths: Any, bench: Bench) -> None:
    system.close(system.open_many(paths) if isinstance(paths, list) else system.open(paths))


WORKLOADS.add("open", "open", "open", "path", _opened)
WORKLOADS.add("open_records", "open", "open write_records", "record_path", _opened)
WORKLOADS.add("open_shards", "open", "open_many", "shard_paths", _opened)
WORKLOADS.add("open_1000_shards", "open", "open_many", "thousand_paths", _opened)
