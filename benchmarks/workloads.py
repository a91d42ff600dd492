"""What is measured: one function per workload, over data made once per run."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from systems import Columns, System

__all__ = ["WORKLOADS", "Bench", "Workload"]


def make_columns(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return eight columns, 50 bytes a row, in an order that leaves some of them unaligned."""
    rng = np.random.default_rng(seed)
    return {
        "a": rng.random(n),
        "id": np.arange(n, dtype="i8"),
        "q": rng.integers(0, 100, n).astype("i2"),
        "w": rng.standard_normal(n, dtype="f4"),
        "b": np.cumsum(rng.standard_normal(n)),
        "cat": rng.integers(0, 1000, n).astype("i4"),
        "p": np.round(rng.gamma(2.0, 50.0, n), 2),
        "t": 1_700_000_000_000 + np.cumsum(rng.integers(1, 20, n)),
    }


class Bench:
    """The data, the selectors and the files of one run."""

    def __init__(self, rows: int, root: Path, *, records: int, shards: int, irregular: bool) -> None:
        self.n, self.root, self.records, self.shards, self.irregular = rows, root, records, shards, irregular
        self.columns = make_columns(rows)
        rng = np.random.default_rng(1)
        count = max(1, rows // 5)
        self.index = rng.integers(0, rows, count)
        self.sorted_index = np.sort(rng.choice(rows, count, replace=False))
        self.small_index = rng.integers(0, rows, 1000)
        self.masks = {percent: rng.random(rows) < percent / 100 for percent in (1, 10, 50, 90)}
        self.low, self.high = rows // 3, rows // 3 + max(1, rows // 10)
        self.threshold = float(np.quantile(self.columns["p"], 0.9))
        self.t_low, self.t_high = (int(self.columns["t"][k]) for k in (self.low, self.high))

    @cached_property
    def names(self) -> list[str]:
        return list(self.columns)

    def scratch(self, name: str) -> str:
        return str(self.root / name)

    def _made(self, path: str, write: Callable[[str], Any]) -> str:
        done = Path(path + ".done")
        if not done.exists():
            write(path)
            done.touch()
        return path

    def file(self, system: System, writer: System) -> str:
        path = self.root / f"{system.files_of or system.name}_{self.n}{system.suffix}"
        return self._made(str(path), lambda p: writer.write(self.columns, p))

    def _bounds(self, parts: int) -> np.ndarray:
        bounds = np.linspace(0, self.n, parts + 1).astype(int)
        if self.irregular and parts > 1:  # sizes between about a half and one and a half of the mean
            jitter = np.random.default_rng(2).random(parts - 1) - 0.5
            bounds[1:-1] += (jitter * (self.n / parts)).astype(int)
        return bounds

    def pieces(self, parts: int) -> Iterator[Columns]:
        bounds = self._bounds(parts)
        for first, stop in itertools.pairwise(bounds):
            yield {name: values[first:stop] for name, values in self.columns.items()}

    def record_file(self, system: System, writer: System) -> str:
        kind = "irregular" if self.irregular else "uniform"
        name = f"{system.files_of or system.name}_{self.n}_{self.records}_{kind}{system.suffix}"
        return self._made(self.scratch(name), lambda p: writer.write_records(self.pieces(self.records), p))

    def shard_files(self, system: System, writer: System) -> list[str]:
        kind = "irregular" if self.irregular else "uniform"
        folder = self.root / f"{system.files_of or system.name}_{self.n}_{self.shards}_{kind}"
        folder.mkdir(exist_ok=True)
        return [
            self._made(
                str(folder / f"part_{number:05d}{system.suffix}"), lambda p, c=piece: writer.write(c, p)
            )
            for number, piece in enumerate(self.pieces(self.shards))
        ]


@dataclass(frozen=True)
class Workload:
    """One thing to measure.

    Attributes
    ----------
    needs : tuple of str
        Methods that a system must have.
    source : {"file", "records", "shards", "path", "record_path", "shard_paths", "none"}
        What `call` gets: an open handle, paths, or nothing.
    call : callable (system, source, bench) -> result
    want : callable (bench) -> expected result, or None
    limit : callable (bench) -> anything, the same work by NumPy on arrays in memory; None where there is no such
    prepare : callable (system, bench), untimed, before each call
    """

    name: str
    group: str
    needs: tuple[str, ...]
    source: str
    call: Callable[[System, Any, Bench], Any]
    want: Callable[[Bench], Any] | None = None
    limit: Callable[[Bench], Any] | None = None
    prepare: Callable[[System, Bench], Any] | None = None


WORKLOADS: dict[str, Workload] = {}


def add(
    name: str,
    group: str,
    needs: str,
    source: str,
    call: Any,
    want: Any = None,
    limit: Any = None,
    prepare: Any = None,
) -> None:
    WORKLOADS[name] = Workload(name, group, tuple(needs.split()), source, call, want, limit, prepare)


def _add_reads(prefix: str, group: str, source: str) -> None:
    def rows(name: str, key: Callable[[Bench], Any], column: str = "a") -> None:
        add(
            prefix + name,
            group,
            "rows",
            source,
            lambda s, h, b: s.rows(h, key(b), column),
            lambda b: b.columns[column][key(b)],
            lambda b: np.array(b.columns[column][key(b)]),
        )

    def many(name: str, key: Callable[[Bench], Any], columns: Callable[[Bench], list[str]]) -> None:
        add(
            prefix + name,
            group,
            "rows_many",
            source,
            lambda s, h, b: s.rows_many(h, key(b), columns(b)),
            lambda b: {c: b.columns[c][key(b)] for c in columns(b)},
            lambda b: [np.array(b.columns[c][key(b)]) for c in columns(b)],
        )

    add(
        prefix + "read_all",
        group,
        "read_all",
        source,
        lambda s, h, b: s.read_all(h),
        lambda b: b.columns,
        lambda b: [v.copy() for v in b.columns.values()],
    )
    add(
        prefix + "read_one",
        group,
        "read_one",
        source,
        lambda s, h, b: s.read_one(h, "a"),
        lambda b: b.columns["a"],
        lambda b: b.columns["a"].copy(),
    )
    rows("gather", lambda b: b.index)
    many("gather_many", lambda b: b.index, lambda b: b.names)
    rows("gather_sorted", lambda b: b.sorted_index)
    many("gather_sorted_many", lambda b: b.sorted_index, lambda b: b.names)
    for percent in (1, 10, 50, 90):
        rows(f"mask_{percent}", lambda b, p=percent: b.masks[p])
    many("mask_50_many", lambda b: b.masks[50], lambda b: b.names)
    rows("reverse", lambda b: slice(None, None, -1))
    rows("every_third", lambda b: slice(None, None, 3))
    rows("range_1000", lambda b: slice(b.low, b.low + 1000))
    rows("gather_1000", lambda b: b.small_index)
    many("gather_1000_many", lambda b: b.small_index, lambda b: b.names)
    add(
        prefix + "filter",
        group,
        "filter",
        source,
        lambda s, h, b: s.filter(h, "p", b.threshold, "a"),
        lambda b: b.columns["a"][b.columns["p"] > b.threshold],
        lambda b: b.columns["a"][b.columns["p"] > b.threshold],
    )
    add(
        prefix + "between",
        group,
        "between",
        source,
        lambda s, h, b: s.between(h, "t", b.t_low, b.t_high, "a"),
        lambda b: b.columns["a"][b.low : b.high],
        lambda b: b.columns["a"][(b.columns["t"] >= b.t_low) & (b.columns["t"] < b.t_high)],
    )


_add_reads("", "core", "file")
_add_reads("records_", "records", "records")
_add_reads("shards_", "shards", "shards")


def _opened(system: System, paths: Any, bench: Bench) -> None:
    system.close(system.open_many(paths) if isinstance(paths, list) else system.open(paths))


add("open", "open", "open", "path", _opened)
add("open_records", "open", "open write_records", "record_path", _opened)
add("open_shards", "open", "open_many", "shard_paths", _opened)


def _clear(system: System, bench: Bench) -> None:
    for name in ("written", "compacted"):
        path = bench.scratch(name + system.suffix)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.unlink(path)


def _limit_write(bench: Bench) -> None:
    with open(bench.scratch("limit.raw"), "wb") as file:
        for values in bench.columns.values():
            file.write(memoryview(values).cast("B"))


add(
    "write",
    "write",
    "write",
    "none",
    lambda s, _, b: s.write(b.columns, b.scratch("written" + s.suffix)),
    None,
    _limit_write,
    _clear,
)
add(
    "append_records",
    "write",
    "write_records",
    "none",
    lambda s, _, b: s.write_records(b.pieces(b.records), b.scratch("written" + s.suffix)),
    None,
    _limit_write,
    _clear,
)
add(
    "compact",
    "write",
    "compact",
    "record_path",
    lambda s, path, b: s.compact(path, b.scratch("compacted" + s.suffix)),
    None,
    None,
    _clear,
)


def _threads(call: Callable[[], Any]) -> Any:
    import dask

    with dask.config.set(scheduler="threads", num_workers=len(os.sched_getaffinity(0))):
        return call()


def _add_dask(name: str, call: Callable[[Any, Bench], Any], want: Any, limit: Any) -> None:
    add(
        "dask_" + name,
        "dask",
        "dask_frame",
        "path",
        lambda s, path, b: _threads(lambda: call(s.dask_frame(path), b)),
        want,
        limit,
    )


_add_dask(
    "mean",
    lambda df, b: float(df["a"].mean().compute()),
    lambda b: float(b.columns["a"].mean()),
    lambda b: b.columns["a"].mean(),
)
_add_dask(
    "filter_mean",
    lambda df, b: float(df[df["p"] > b.threshold]["a"].mean().compute()),
    lambda b: float(b.columns["a"][b.columns["p"] > b.threshold].mean()),
    lambda b: b.columns["a"][b.columns["p"] > b.threshold].mean(),
)
_add_dask(
    "groupby",
    lambda df, b: df.groupby("cat")["q"].sum().compute().sort_index().to_numpy().astype("i8"),
    lambda b: np.bincount(b.columns["cat"], b.columns["q"]).astype("i8"),
    lambda b: np.bincount(b.columns["cat"], b.columns["q"]),
)
_add_dask(
    "compute",
    lambda df, b: {c: v.to_numpy() for c, v in df.compute().items()},
    lambda b: b.columns,
    lambda b: [v.copy() for v in b.columns.values()],
)


def _add_xarray(
    name: str, call: Callable[[Any, Bench], Any], want: Any, limit: Any = None, chunks: Any = None
) -> None:
    def run(system: System, path: str, bench: Bench) -> Any:
        with system.xarray_dataset(path, chunks) as dataset:
            return _threads(lambda: call(dataset, bench))

    add("xarray_" + name, "xarray", "xarray_dataset", "path", run, want, limit)


_add_xarray("open", lambda ds, b: None, None)
_add_xarray("open_chunks", lambda ds, b: None, None, None, {})
_add_xarray(
    "slice",
    lambda ds, b: ds["a"].isel(row=slice(b.low, b.high)).values,
    lambda b: b.columns["a"][b.low : b.high],
    lambda b: b.columns["a"][b.low : b.high].copy(),
)
_add_xarray(
    "point", lambda ds, b: float(ds["a"].isel(row=b.low).values), lambda b: float(b.columns["a"][b.low])
)
_add_xarray(
    "points",
    lambda ds, b: ds["a"].isel(row=b.index).values,
    lambda b: b.columns["a"][b.index],
    lambda b: b.columns["a"][b.index],
)
_add_xarray(
    "mean",
    lambda ds, b: float(ds["a"].mean().compute()),
    lambda b: float(b.columns["a"].mean()),
    lambda b: b.columns["a"].mean(),
    {},
)
