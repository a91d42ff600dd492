"""Measure colstore_io against its peers, side by side in one run.

    python benchmarks/run.py                          # everything, 2 million rows
    python benchmarks/run.py --only gather,mask_50    # workloads, or groups: core records shards open write dask ...
    python benchmarks/run.py --systems ours,colstore --rows 10e6 --rounds 11

Prints one table per workload and writes results.json: workload, system, median seconds, ratio to the best peer (over 1:
slower than it), ratio to the limit (the same work by NumPy on arrays in memory). Ratios carry over between machines,
seconds do not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from measure import Job, run_jobs
from systems import SYSTEMS, System
from workloads import WORKLOADS, Bench, Workload

OWN = ("ours", "ours_indexed", "ours_samefile", "limit")


def _jobs(
    workload: Workload, systems: dict[str, System], bench: Bench
) -> tuple[list[Job], list[tuple[System, Any]]]:
    jobs, handles = [], []
    for system in systems.values():
        if any(getattr(system, need, None) is None for need in workload.needs):
            continue
        writer = systems.get(system.files_of, system)
        if system.files_of and writer is system:
            continue  # its files' writer is not part of this run
        source: Any = None
        try:
            if workload.source == "file":
                source = system.open(bench.file(system, writer))
            elif workload.source == "path":
                source = bench.file(system, writer)
            elif workload.source in ("records", "record_path"):
                if writer.write_records is None:
                    continue
                source = bench.record_file(system, writer)
                source = system.open(source) if workload.source == "records" else source
            elif workload.source in ("shards", "shard_paths"):
                if system.open_many is None:
                    continue
                source = bench.shard_files(system, writer)
                source = system.open_many(source) if workload.source == "shards" else source
        except Exception as error:  # a peer that fails must not end the run
            print(f"  ! {system.name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            continue
        if workload.source in ("file", "records", "shards"):
            handles.append((system, source))
        prepare = None if workload.prepare is None else lambda s=system: workload.prepare(s, bench)  # type: ignore[misc]
        jobs.append(Job(system.name, lambda s=system, x=source: workload.call(s, x, bench), prepare))
    if workload.limit is not None:
        jobs.append(Job("limit", lambda: workload.limit(bench)))  # type: ignore[misc]
    return jobs, handles


def _measure(
    workload: Workload, systems: dict[str, System], bench: Bench, args: argparse.Namespace
) -> list[dict[str, Any]]:
    jobs, handles = _jobs(workload, systems, bench)
    limits = [job for job in jobs if job.system == "limit"]
    want = None if workload.want is None else workload.want(bench)
    for job in limits:  # what NumPy does in memory is the yardstick, not a result to check
        call = job.call
        job.call = lambda call=call: (call(), want)[1]
    done = run_jobs(jobs, want=want, rounds=args.rounds, budget_seconds=args.budget)
    for system, handle in handles:
        system.close(handle)
    medians = {job.system: job.median for job in done}
    peers = [seconds for name, seconds in medians.items() if name not in OWN]
    best = min(peers) if peers else None
    limit = medians.get("limit")
    return [
        {
            "workload": workload.name,
            "system": name,
            "median_seconds": seconds,
            "ratio_to_best_peer": seconds / best if best else None,
            "ratio_to_limit": seconds / limit if limit else None,
            "ratio_colstore_to_this": medians["colstore"] / seconds if "colstore" in medians else None,
            "rounds": next(len(job.seconds) for job in done if job.system == name),
        }
        for name, seconds in sorted(medians.items(), key=lambda pair: pair[1])
    ]


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return

    def ratio(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    print(f"\n{rows[0]['workload']}")
    print(f"  {'system':<15}{'median ms':>12}{'/best peer':>12}{'/limit':>9}{'colstore/this':>15}")
    for row in rows:
        print(
            f"  {row['system']:<15}{row['median_seconds'] * 1e3:>12.4f}{ratio(row['ratio_to_best_peer']):>12}"
            f"{ratio(row['ratio_to_limit']):>9}{ratio(row['ratio_colstore_to_this']):>15}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=2e6)
    parser.add_argument("--only", default="", help="workloads or groups, comma separated; a prefix is enough")
    parser.add_argument("--systems", default="", help="systems, comma separated; default all that import")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--budget", type=float, default=8.0, help="seconds per system and workload")
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--irregular", action="store_true", help="records and shards of unequal sizes")
    parser.add_argument(
        "--dir", default="", help="where the files go, kept for later runs; default a temporary folder"
    )
    parser.add_argument("--json", default=str(Path(__file__).parent / "results.json"))
    args = parser.parse_args()
    wanted = [word for word in args.only.split(",") if word]
    chosen = [
        w
        for w in WORKLOADS.values()
        if not wanted or any(w.group == x or w.name.startswith(x) for x in wanted)
    ]
    systems: dict[str, System] = {}
    for name in args.systems.split(",") if args.systems else SYSTEMS:
        try:
            systems[name] = SYSTEMS[name]()
        except ImportError as error:
            print(f"(without {name}: {error})", file=sys.stderr)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(args.dir or temporary)
        root.mkdir(parents=True, exist_ok=True)
        bench = Bench(
            int(args.rows), root, records=args.records, shards=args.shards, irregular=args.irregular
        )
        print(
            f"{bench.n:,} rows, {len(bench.names)} columns, {len(os.sched_getaffinity(0))} cores, {args.rounds} rounds"
        )
        results = []
        for workload in chosen:
            rows = _measure(workload, systems, bench, args)
            _show(rows)
            results.extend(rows)
    Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
