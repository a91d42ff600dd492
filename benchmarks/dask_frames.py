"""Measure Dask DataFrames over our files against ``dask.dataframe.read_parquet``, side by side in one run.

    python benchmarks/dask_frames.py                        # all workloads, 2 million rows, 16 partitions
    python benchmarks/dask_frames.py --only mean,filter_mean --rows 10e6 --rounds 11
    python benchmarks/dask_frames.py --remote s3            # an object store, 20 ms a request; counts requests, bytes
    python benchmarks/dask_frames.py --remote http          # a web server likewise

``inmem`` is a Dask frame whose partitions are in memory already: what Dask itself costs. Parquet is read from one file
of a row group per partition with Dask's defaults (``none``, ``zstd``: the codec), and in the way that reads fastest
(``best``: one file per partition, the pyarrow file system, which has filter pushdown). ``ours plain`` has no
statistics, ``ours columns`` is a columns file. ``open_files`` and ``mean_files`` read one file per partition,
``many_*`` a thousand small ones. Results are compared before anything is timed. Goals that a run misses are named
at its end. Ratios carry over between machines, milliseconds do not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask_data import CODECS, FORMATS, Frames, frames, make

from colstore_io.integrations.dask import read_colstore

Calls = dict[str, Callable[[], Any]]
Work = Callable[[Any], Any]

GOALS: dict[str, dict[str, float]] = {
    "mean": {"inmem": 0.8, "none": 4.0},
    "filter_mean": {"inmem": 0.8, "none": 4.0},
    "groupby_mean": {"inmem": 0.8, "none": 1.5},
    "compute": {"inmem": 0.8, "none": 3.0},
    "mean_by_partition": {"inmem": 0.8, "none": 2.0},
    "filter_by_partition": {"inmem": 0.8},
    "len": {"none": 1.0, "none best": 1.0},
    "open": {"none": 1.0, "none best": 1.0},
    "open_files": {"none best": 1.0},
    "many_mean": {"none": 15.0},
}
"""How many times as long as ours others are to take at least. What is in memory already may be 1.25 times as fast. What
`filter_by_partition` takes is pandas' own filter for all."""


def workloads(n: int) -> dict[str, Work]:
    low, high = n // 3, n // 3 + n // 100
    rows = np.sort(np.random.default_rng(1).choice(n, 1000, replace=False)).tolist()
    return {
        "open": lambda df: float(df.npartitions > 0),
        "len": len,
        "mean": lambda df: df.a.mean().compute(),
        "sum_all": lambda df: float(df.sum().compute().sum()),
        # Frames that a function of the user sees: nothing is pushed but columns.
        "mean_by_partition": lambda df: df[["a"]].map_partitions(_sums).sum().compute().a,
        "filter_by_partition": lambda df: df[["a", "b"]].map_partitions(_filtered_sums).sum().compute().a,
        "filter_mean": lambda df: df[df.b > 0.5].a.mean().compute(),
        "filter_len": lambda df: float(len(df[(df.i >= low) & (df.i < high)])),
        "filter_1_percent": lambda df: df[(df.i >= low) & (df.i < high)].a.sum().compute(),
        "column_1_percent": lambda df: df.a[(df.i >= low) & (df.i < high)].compute().sum(),
        "filter_scattered": lambda df: df[df.b > 2.3].a.compute().sum(),
        "groupby_mean": lambda df: df.groupby("k").a.mean().compute().sum(),
        "compute": lambda df: float(df.compute().c.sum()),
        "column": lambda df: float(df.a.compute().sum()),
        "filter_1000": lambda df: float(df.a[(df.i >= low) & (df.i < low + 1000)].compute().sum()),
        "head": lambda df: float(df.head().a.sum()),
        # Where rows have no numbers, by the column that has them.
        "loc_1000": lambda df: float(
            (df.a.loc[rows] if df.known_divisions else df[df.i.isin(rows)].a).compute().sum()
        ),
        "range_1000": lambda df: float(
            (df.a.loc[low : low + 999] if df.known_divisions else df[(df.i >= low) & (df.i < low + 1000)].a)
            .compute()
            .sum()
        ),
    }


def _sums(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sum().to_frame().T


def _filtered_sums(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.b > 0.5].sum().to_frame().T


def text(base: str, parts: int) -> Calls:
    read = frames(base, "text")
    in_memory = dd.from_pandas(read["ours"]().compute(), npartitions=parts)
    calls: Calls = {
        name: (lambda opened=opened: float(opened().compute().x.sum())) for name, opened in read.items()
    }
    return {**calls, "inmem": lambda: float(in_memory.compute().x.sum())}


def files(base: str) -> Frames:
    """Return ways to read one file per partition."""
    found: Frames = {
        "ours": lambda: read_colstore(f"{base}/data-cstore_files"),
        "ours columns": lambda: read_colstore(f"{base}/data-columns_files"),
    }
    for codec in CODECS:
        found[codec] = lambda codec=codec: dd.read_parquet(f"{base}/data-{codec}_files")  # type: ignore[misc]
        found[f"{codec} best"] = lambda codec=codec: dd.read_parquet(  # type: ignore[misc]
            f"{base}/data-{codec}_files", filesystem="arrow", index=False
        )
    return found


def many(base: str) -> Frames:
    """Return ways to read a thousand small files."""
    found: Frames = {}
    for kind in FORMATS:
        name = "ours" if kind == "cstore" else f"ours {kind}"
        found[name] = lambda kind=kind: read_colstore(f"{base}/many-{kind}")  # type: ignore[misc]
    for codec in CODECS:
        found[codec] = lambda codec=codec: dd.read_parquet(f"{base}/many-{codec}")  # type: ignore[misc]
        found[f"{codec} best"] = lambda codec=codec: dd.read_parquet(  # type: ignore[misc]
            f"{base}/many-{codec}", filesystem="arrow", index=False
        )
    return found


def applied(work: Work, opened: Frames) -> Calls:
    return {name: (lambda o=o: work(o())) for name, o in opened.items()}


def timed(calls: Calls, rounds: int) -> dict[str, float]:
    """Return medians of interleaved rounds in milliseconds.

    A system that fails, or whose result is not ours, is left out, and that is said.
    """
    results: dict[str, Any] = {}
    for name, call in calls.items():
        try:
            results[name] = call()
        except Exception as error:  # a peer that fails must not end the run
            print(f"  ! {name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:100]}")
            continue
        if results[name] is not None and not np.isclose(results[name], results["ours"], rtol=1e-6):
            print(f"  ! {name} gives {results[name]}, not {results['ours']}")
            del results[name]
    calls = {name: call for name, call in calls.items() if results.get(name) is not None}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            begin = time.perf_counter()
            calls[name]()
            samples[name].append((time.perf_counter() - begin) * 1e3)
    return {name: statistics.median(values) for name, values in samples.items()}


def show(name: str, medians: dict[str, float]) -> list[str]:
    """Print one workload, and return the goals that it misses."""
    ours = medians["ours"]
    print(f"{name:<20}" + "  ".join(f"{key} {value:.1f}" for key, value in medians.items()))
    others = {key: value / ours for key, value in medians.items() if key != "ours"}
    print(" " * 20 + "  ".join(f"{key}/ours {ratio:.2f}" for key, ratio in others.items()))
    sys.stdout.flush()
    return [
        f"{name}: {key}/ours {others[key]:.2f}, goal {goal}"
        for key, goal in GOALS.get(name, {}).items()
        if key in others and others[key] < goal
    ]


def run_local(n: int, args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as root:
        frame = make(n, args.parts, Path(root))
        in_memory = dd.from_pandas(frame, npartitions=args.parts)
        whole = {**frames(root, "data"), "inmem": lambda: in_memory}
        calls = {name: applied(work, whole) for name, work in workloads(n).items()}
        calls["open_files"] = applied(lambda df: float(df.npartitions > 0), files(root))
        calls["mean_files"] = applied(lambda df: df.a.mean().compute(), files(root))
        calls["text"] = text(root, args.parts)
        calls["many_open"] = applied(lambda df: float(df.npartitions > 0), many(root))
        calls["many_mean"] = applied(lambda df: df.a.mean().compute(), many(root))
        missed = [
            goal
            for name, of_systems in calls.items()
            if not args.only or name in args.only.split(",")
            for goal in show(name, timed(of_systems, args.rounds))
        ]
    print("goals missed: " + ("; ".join(missed) or "none"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=2e6)
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="workloads, comma separated")
    parser.add_argument("--remote", nargs="?", const="s3", choices=("s3", "http"))
    args = parser.parse_args()
    n = int(args.rows)
    print(f"{n:,} rows, {args.parts} partitions, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    with dask.config.set(scheduler="threads"):
        if args.remote:
            from dask_remote import run_remote

            run_remote(args.remote, n, args.parts, args.rounds, args.only.split(",") if args.only else None)
        else:
            run_local(n, args)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
