"""What is measured: one function per workload, over data made once per run."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import columns_tables
import numpy as np
from colbin_family import colbin_workloads
from confined import available
from grid_family import GOALS, PEERS, GridData, GridWorkload, durable, grid_workloads
from limits import Outputs, compiled_rows, has_compiled_rows, known_rows, numpy_rows
from measure import Job
from probe import checksum, piece_sum, pieces, run_probe
from quoted import COLUMN_TARGETS
from systems import Columns, System

__all__ = ["WORKLOADS", "Bench", "Workload"]


SMALL_ROWS = 1000
MANY_POINTS = 2_000_000
PIECE_ROWS = 1 << 18


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

    def __init__(
        self,
        rows: int,
        root: Path,
        *,
        records: int,
        shards: int,
        grid: tuple[int, int, int] = (1000, 180, 360),
        data: Path | None = None,
    ) -> None:
        self.n, self.root, self.records, self.shards = rows, root, records, shards
        self.grid = GridData(grid, root)
        self.data = data
        self._tables: dict[str, Any] = {}
        self._encoded: dict[tuple[str, str], Any] = {}
        self.outputs, self.own_outputs = Outputs(), Outputs()
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

    @cached_property
    def many_points(self) -> np.ndarray:
        """Two million rows in no order, whatever the size of the table."""
        return np.random.default_rng(3).integers(0, self.n, MANY_POINTS)

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

    def _bounds(self, parts: int, irregular: bool) -> np.ndarray:
        bounds = np.linspace(0, self.n, parts + 1).astype(int)
        if irregular and parts > 1:  # sizes between about a half and one and a half of the mean
            jitter = np.random.default_rng(2).random(parts - 1) - 0.5
            bounds[1:-1] += (jitter * (self.n / parts)).astype(int)
        return bounds

    def pieces(self, parts: int, irregular: bool = False) -> Iterator[Columns]:
        for first, stop in itertools.pairwise(self._bounds(parts, irregular)):
            yield {name: values[first:stop] for name, values in self.columns.items()}

    def record_file(self, system: System, writer: System, irregular: bool) -> str:
        kind = "irregular" if irregular else "uniform"
        name = f"{system.files_of or system.name}_{self.n}_{self.records}_{kind}{system.suffix}"
        return self._made(
            self.scratch(name), lambda p: writer.write_records(self.pieces(self.records, irregular), p)
        )

    @cached_property
    def mask_counts(self) -> dict[int, int]:
        """Selected rows of each mask, by its identity: counting is part of the read, not of the caller's work."""
        return {id(mask): int(np.count_nonzero(mask)) for mask in self.masks.values()}

    def shard_files(
        self, system: System, writer: System, irregular: bool, shards: int | None = None
    ) -> list[str]:
        kind = "irregular" if irregular else "uniform"
        count = self.shards if shards is None else shards
        folder = self.root / f"{system.files_of or system.name}_{self.n}_{count}_{kind}"
        folder.mkdir(exist_ok=True)
        return [
            self._made(
                str(folder / f"part_{number:05d}{system.suffix}"), lambda p, c=piece: writer.write(c, p)
            )
            for number, piece in enumerate(self.pieces(count, irregular))
        ]

    def alone_file(self, system: System, writer: System) -> str:
        """Return a copy that this process never opens: what it has mapped cannot leave the page cache."""
        self.small_file(system, writer)
        path = self.root / f"alone_{system.files_of or system.name}_{self.n}{system.suffix}"
        return self._made(str(path), lambda p: writer.write(self.columns, p))

    def small_file(self, system: System, writer: System) -> str:
        path = self.root / f"small_{system.files_of or system.name}{system.suffix}"
        small = {name: values[:SMALL_ROWS] for name, values in self.columns.items()}
        return self._made(str(path), lambda p: writer.write(small, p))

    def key_file(self, name: str, key: np.ndarray) -> str:
        return self._made(self.scratch(f"{name}_{self.n}.npy"), lambda p: np.save(p, key))

    def table(self, name: str) -> Any:
        """Return a table of the columns family as Arrow data; None where there is no folder of real data."""
        if name not in self._tables:
            if name == "comparison":
                self._tables[name] = columns_tables.comparison()
            else:
                self._tables[name] = None if self.data is None else columns_tables.real(self.data, name)
        return self._tables[name]

    def encoded(self, system: System, name: str) -> Any:
        """Return the bytes of a table as `system` writes it; None without the table."""
        key = (system.name, name)
        if key not in self._encoded:
            table = self.table(name)
            self._encoded[key] = None if table is None else system.encode(table)
        return self._encoded[key]

    def encoded_file(self, system: System, name: str) -> str:
        path = self.scratch(f"{name}_{system.name}{system.encoded_suffix}")
        return self._made(path, lambda p: Path(p).write_bytes(self.encoded(system, name)))

    @cached_property
    def piece_checksum(self) -> int:
        return checksum(
            [
                piece_sum({name: values[piece] for name, values in self.columns.items()})
                for piece in pieces(self.n, PIECE_ROWS)
            ]
        )

    @cached_property
    def checksum(self) -> int:
        return checksum(self.columns)


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


WORKLOADS: dict[str, Workload] = {}


def add(
    name: str,
    group: str,
    needs: str,
    source: str,
    call: Any,
    want: Any = None,
    limit: Any = None,
    **more: Any,
) -> None:
    WORKLOADS[name] = Workload(name, group, tuple(needs.split()), source, call, want, limit, **more)


Key = Callable[[Bench], Any]


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
        add(
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
        add(
            prefix + name,
            group,
            "rows_many",
            source,
            lambda s, h, b: s.rows_many(h, key(b), b.names),
            lambda b: {c: b.columns[c][key(b)] for c in b.names},
            known=(key, lambda b: b.names) if known else None,
            **limits(key, lambda b: b.names),
        )

    add(
        prefix + "read_all",
        group,
        "read_all",
        source,
        lambda s, h, b: s.read_all(h),
        lambda b: b.columns,
        **_limits(lambda b: None, lambda b: b.names),
    )
    add(
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


def _add_outs() -> None:
    """Reads into arrays that exist already (goals 4 and 6): what limit and limit_c do too."""

    def rows(name: str, key: Key) -> None:
        def call(system: System, handle: Any, b: Bench) -> Any:
            rows = key(b)
            n = b.n if rows is None else b.mask_counts[id(rows)] if rows.dtype == np.bool_ else len(rows)
            (out,) = b.own_outputs(n, [b.columns["a"].dtype])
            return system.rows_out(handle, slice(None) if rows is None else rows, "a", out)

        add(
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
    add(
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
    add(
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


add("open", "open", "open", "path", _opened)
add("open_records", "open", "open write_records", "record_path", _opened)
add("open_shards", "open", "open_many", "shard_paths", _opened)
add("open_1000_shards", "open", "open_many", "thousand_paths", _opened)


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
    add(name, group, needs, "alone_path", call, measures_itself=True, **more)


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

add(
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
add(
    "import_first_use",
    "import",
    "imported",
    "none",
    lambda s, _, b: _import_seconds(f"import {s.imported}\n{s.imported}.open"),
    None,
    lambda b: _import_seconds("import numpy, fsspec"),
    measures_itself=True,
)
add(
    "import_xarray_engines",
    "import",
    "xarray_engine",
    "none",
    lambda s, _, b: _import_seconds(_ENGINES.replace('!= "colstore"', '!= ""'), processes=5),
    None,
    lambda b: _import_seconds(_ENGINES, processes=5),
    measures_itself=True,
)


# ---- writing: workloads whose peers leave the rest to the system, and those in which everybody waits for the disk


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
    add(_name, "write", _needs, _source, _call, None, _limit, prepare=_clear)


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
    name: str,
    call: Callable[[Any, Bench], Any],
    want: Any,
    limit: Any = None,
    chunks: Any = None,
    **goals: float,
) -> None:
    def run(system: System, path: str, bench: Bench) -> Any:
        with system.xarray_dataset(path, chunks) as dataset:
            return _threads(lambda: call(dataset, bench))

    add("xarray_" + name, "xarray", "xarray_dataset", "path", run, want, limit, goals=goals)


_add_xarray("open", lambda ds, b: None, None, zarr=2.5)
_add_xarray("open_chunks", lambda ds, b: None, None, None, {}, zarr=3.0)
_add_xarray(
    "slice",
    lambda ds, b: ds["a"].isel(row=slice(b.low, b.high)).values,
    lambda b: b.columns["a"][b.low : b.high],
    lambda b: b.columns["a"][b.low : b.high].copy(),
    zarr=3.0,
)
_add_xarray(
    "point",
    lambda ds, b: float(ds["a"].isel(row=b.low).values),
    lambda b: float(b.columns["a"][b.low]),
    zarr=4.0,
)
_add_xarray(
    "points",
    lambda ds, b: ds["a"].isel(row=b.many_points).values,
    lambda b: b.columns["a"][b.many_points],
    lambda b: b.columns["a"][b.many_points],
    zarr=7.0,
    h5netcdf=100.0,
)
_add_xarray(
    "mean",
    lambda ds, b: float(ds["a"].mean().compute()),
    lambda b: float(b.columns["a"].mean()),
    lambda b: b.columns["a"].mean(),
    {},
    zarr=1.8,
)


def _add_grid(name: str, layout: str, work: GridWorkload) -> None:
    def with_data(call: Callable[[GridData], Any] | None) -> Callable[[Bench], Any] | None:
        return None if call is None else lambda b: call(b.grid)

    prepare = work.prepare
    add(
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


# The columns format beside Parquet: everything in memory, results are Arrow tables, handles are open before a read.


def _add_columns(prefix: str, group: str, table: str, targets: dict[str, float]) -> None:
    def read(name: str, columns: list[str] | None, target: str) -> None:
        def want(b: Bench) -> Any:
            data = b.table(table)
            return data if data is None or columns is None else data.select(columns)

        add(
            prefix + name,
            group,
            "encode read_encoded",
            f"encoded:{table}",
            lambda s, h, b: s.read_encoded(h, columns),
            want,
            target=targets.get(target),
        )

    add(
        prefix + "bytes",
        group,
        "encode",
        f"table:{table}",
        lambda s, data, b: len(b.encoded(s, table)) / data.num_rows,
        unit="B/row",
        measures_itself=True,
        target=targets.get("bytes"),
    )
    add(
        prefix + "write",
        group,
        "encode",
        f"table:{table}",
        lambda s, data, b: s.encode(data),
        target=targets.get("write"),
    )
    read("read_all", None, "read_all")
    if table == "comparison":
        for name, target in (
            ("run", "integer"),
            ("rnd", "integer"),
            ("f", "float"),
            ("low", "text"),
            ("high", "text"),
        ):
            read(f"read_{name}", [name], target)
        for name in ("run", "rnd"):  # as an array of its own, of an open file, and with opening it
            for prefix_of, needs, source, call in (
                (
                    "values_",
                    "values_encoded",
                    f"encoded:{table}",
                    lambda s, h, b, n=name: s.values_encoded(h, n),
                ),
                (
                    "file_",
                    "open_and_read",
                    f"encoded_path:{table}",
                    lambda s, p, b, n=name: s.open_and_read(p, n),
                ),
            ):
                add(
                    prefix + prefix_of + name,
                    group,
                    f"encode {needs}",
                    source,
                    call,
                    lambda b, n=name: np.asarray(b.table(table).column(n)),
                    target=targets["integer"],
                )
    for name in ("open_schema", "open_dataset"):
        add(
            prefix + name,
            group,
            f"encode {name}",
            f"encoded_path:{table}",
            lambda s, path, b, name=name: getattr(s, name)(path),
            target=1.0,
        )


_add_columns(
    "columns_",
    "columns",
    "comparison",
    COLUMN_TARGETS,
)
add(
    "columns_optimize",
    "columns",
    "optimize",
    "table:comparison",
    lambda s, data, b: s.optimize(data),
    target=111.0,
)
add(
    "columns_optimize_bytes",
    "columns",
    "optimized",
    "table:comparison",
    lambda s, data, b: len(s.optimized(data)) / data.num_rows,
    unit="B/row",
    measures_itself=True,
)
for _name in columns_tables.REAL:
    _add_columns(f"{_name}_", "columns_real", _name, {})
for _name, (_unit, _make_jobs) in colbin_workloads().items():
    add(_name, "colbin", "", "none", None, unit=_unit, jobs=_make_jobs)
