"""Measure Dask DataFrames over our files against ``dask.dataframe.read_parquet``, side by side in one run.

    python benchmarks/dask_frames.py                        # all workloads, 2 million rows, 16 partitions
    python benchmarks/dask_frames.py --only mean,filter --rows 10e6 --rounds 11
    python benchmarks/dask_frames.py --remote               # over HTTP with 20 ms a request; counts requests and bytes

``inmem`` is a Dask frame whose partitions are in memory already: what Dask itself costs. Parquet is read from one file
of a row group per partition with Dask's defaults (``none``, ``zstd``: the codec), and in the way that reads fastest
(``best``: one file per partition, the pyarrow file system, which has filter pushdown). ``ours plain`` has no
statistics, ``ours columns`` is a columns file. ``text`` and ``many_files`` have tables of their own. Results are
compared before anything is timed. Ratios carry over between machines, milliseconds do not.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
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
import pyarrow as pa
import pyarrow.parquet as pq

import colstore_io as cs
from colstore_io.integrations.dask import read_colstore

LATENCY_SECONDS = 0.02
SMALL_FILES = 1000


def make(n: int, parts: int, root: Path) -> pd.DataFrame:
    """Write the data as one file of each kind, `parts` records or row groups, and as many small ones."""
    rng = np.random.default_rng(0)
    data = {
        "a": rng.standard_normal(n),
        "b": rng.standard_normal(n),
        "c": rng.standard_normal(n),
        "i": np.arange(n),
        "k": rng.integers(0, 100, n),
        "f": rng.standard_normal(n, np.float32),
        "j": rng.integers(0, 1000, n).astype("i4"),
        "h": rng.integers(0, 50, n).astype("i2"),
    }
    rows = -(-n // parts)
    for name, statistics_ in (("stats", True), ("plain", False)):
        with cs.recreate(root / f"{name}.cstore", statistics=statistics_) as writer:
            for first in range(0, n, rows):
                writer.write({key: values[first : first + rows] for key, values in data.items()})
    with cs.recreate(root / "columns.columns", statistics=True) as writer:
        for first in range(0, n, rows):
            writer.write({key: values[first : first + rows] for key, values in data.items()})
    table = pa.table(data)
    for codec in ("none", "zstd"):
        pq.write_table(table, root / f"{codec}.parquet", compression=codec, row_group_size=rows)
    words = pa.table({"x": data["a"], "s": [f"word {k}" for k in data["k"].tolist()]})
    with cs.recreate(root / "text.cstore", string_width={"s": 7}) as writer:
        for first in range(0, n, rows):
            writer.write(words.slice(first, rows))
    pq.write_table(words, root / "text.parquet", compression="none", row_group_size=rows)
    for folder in ("many_cstore", "many_parquet", "none_files", "zstd_files"):
        (root / folder).mkdir(exist_ok=True)
    for number, first in enumerate(range(0, n, rows)):
        for codec in ("none", "zstd"):
            path = root / f"{codec}_files" / f"part.{number:04d}.parquet"
            pq.write_table(table.slice(first, rows), path, compression=codec)
    few = min(n, 200_000) // SMALL_FILES
    for number in range(SMALL_FILES):
        piece = {key: data[key][number * few : (number + 1) * few] for key in ("a", "i")}
        cs.store(piece, root / "many_cstore" / f"p{number}.cstore", mode="recreate").close()
        pq.write_table(pa.table(piece), root / "many_parquet" / f"p{number}.parquet", compression="none")
    return pd.DataFrame(data)


def systems(base: str, frame: pd.DataFrame, parts: int, *, remote: bool) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {
        "ours": lambda: read_colstore(f"{base}/stats.cstore", blocksize=None),
        "ours plain": lambda: read_colstore(f"{base}/plain.cstore", blocksize=None),
        "ours columns": lambda: read_colstore(f"{base}/columns.columns", blocksize=None),
        "none": lambda: dd.read_parquet(f"{base}/none.parquet", split_row_groups=True),
        "zstd": lambda: dd.read_parquet(f"{base}/zstd.parquet", split_row_groups=True),
    }
    if not remote:
        for codec in ("none", "zstd"):
            found[f"{codec} best"] = lambda codec=codec: dd.read_parquet(  # type: ignore[misc]
                f"{base}/{codec}_files", filesystem="arrow", index=False
            )
        in_memory = dd.from_pandas(frame, npartitions=parts)
        found["inmem"] = lambda: in_memory
    return found


def workloads(n: int) -> dict[str, Callable[[Any], Any]]:
    low, high = n // 3, n // 3 + n // 100
    rows = np.sort(np.random.default_rng(1).choice(n, 1000, replace=False)).tolist()
    return {
        "open": lambda df: float(df.npartitions > 0),
        "len": len,
        "mean": lambda df: df.a.mean().compute(),
        "sum_all": lambda df: float(df.sum().compute().sum()),
        "filter_mean": lambda df: df[df.b > 0.5].a.mean().compute(),
        "filter_len": lambda df: float(len(df[(df.i >= low) & (df.i < high)])),
        "filter_1_percent": lambda df: df[(df.i >= low) & (df.i < high)].a.sum().compute(),
        "filter_scattered": lambda df: df[df.b > 2.3].a.compute().sum(),
        "groupby_mean": lambda df: df.groupby("k").a.mean().compute().sum(),
        "compute": lambda df: float(df.compute().c.sum()),
        "head": lambda df: float(df.head().a.sum()),
        "loc_1000": lambda df: float(df.a.loc[rows].compute().sum()) if df.known_divisions else None,
    }


def text(root: Path, parts: int) -> dict[str, Callable[[], Any]]:
    ours, parquet = str(root / "text.cstore"), str(root / "text.parquet")
    in_memory = dd.from_pandas(read_colstore(ours).compute(), npartitions=parts)
    return {
        "ours": lambda: float(read_colstore(ours, blocksize=None).compute().x.sum()),
        "none": lambda: float(dd.read_parquet(parquet, split_row_groups=True).compute().x.sum()),
        "inmem": lambda: float(in_memory.compute().x.sum()),
    }


def many(root: Path) -> dict[str, Callable[[], Any]]:
    return {
        "ours": lambda: read_colstore(str(root / "many_cstore")).a.mean().compute(),
        "none": lambda: dd.read_parquet(str(root / "many_parquet")).a.mean().compute(),
    }


def timed(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
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


def show(name: str, medians: dict[str, float], extra: str = "") -> None:
    ours = medians["ours"]
    print(f"{name:<18}" + "  ".join(f"{key} {value:.1f}" for key, value in medians.items()) + extra)
    print(
        " " * 18
        + "  ".join(f"{key}/ours {value / ours:.2f}" for key, value in medians.items() if key != "ours")
    )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=2e6)
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="workloads, comma separated")
    parser.add_argument("--remote", action="store_true")
    args = parser.parse_args()
    n = int(args.rows)
    print(f"{n:,} rows, {args.parts} partitions, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as temporary, dask.config.set(scheduler="threads"):
        root = Path(temporary)
        frame = make(n, args.parts, root)
        chosen = {k: f for k, f in workloads(n).items() if not args.only or k in args.only.split(",")}
        if args.remote:
            run_remote(root, frame, chosen, args)
            return
        places = systems(str(root), frame, args.parts, remote=False)
        for name, work in chosen.items():
            medians = timed({k: (lambda o=o, work=work: work(o())) for k, o in places.items()}, args.rounds)
            show(name, medians)
        if not args.only or "text" in args.only:
            show("text", timed(text(root, args.parts), args.rounds))
        if not args.only or "many_files" in args.only:
            show("many_files", timed(many(root), args.rounds))
    print(f"load {os.getloadavg()[0]:.1f}")


# ----------------------------------------------------------------------------------------------------------
# Remote


def run_remote(root: Path, frame: pd.DataFrame, chosen: dict[str, Any], args: argparse.Namespace) -> None:
    """Measure over a server that waits before each answer, every call from a fresh client."""
    import fsspec

    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("slow_server.py")), str(root), str(LATENCY_SECONDS)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        places = systems(f"http://127.0.0.1:{port}", frame, args.parts, remote=True)
        for name, work in chosen.items():
            counts: dict[str, dict[str, int]] = {}

            def fresh(key: str, opened: Callable[[], Any], work: Any = work, counts: Any = counts) -> Any:
                fsspec.get_filesystem_class("http").clear_instance_cache()
                _counts(port)
                result = work(opened())
                counts[key] = _counts(port)
                return result

            medians = timed(
                {k: (lambda k=k, o=o, fresh=fresh: fresh(k, o)) for k, o in places.items()}, args.rounds
            )
            show(name, medians)
            for key, count in counts.items():
                print(" " * 18 + f"{key}: {count['requests']} requests, {count['bytes'] / 1e6:.2f} MB")
    finally:
        server.terminate()
        server.wait()


def _counts(port: int) -> dict[str, int]:
    """Return the requests and bytes since the last question."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/-counts")
    counts: dict[str, int] = json.loads(connection.getresponse().read())
    connection.close()
    return counts


if __name__ == "__main__":
    main()
