"""Measure colstore_io against its peers, side by side in one run.

    python benchmarks/run.py                          # everything, 2 million rows
    python benchmarks/run.py --list                   # which workloads and systems there are
    python benchmarks/run.py --only gather,mask_50    # workloads, or groups: core records cold dask columns ...
    python benchmarks/run.py --systems ours,colstore --rows 10e6 --rounds 11
    python benchmarks/run.py --only colbin --rows 1e5 # records, tables and columns as colbin; rows play no part
    python benchmarks/run.py --only grid --grid 100x90x180        # N-D data through xarray; rows play no part
    python benchmarks/run.py --record                 # on a quiet machine: the numbers that later runs compare with

Prints one table per workload: median, ratio to the best peer (over 1: slower than it), to the limit (the same work by
NumPy on arrays in memory, outputs reused), to limit_c (compiled, all cores). Ratios carry over between machines,
seconds do not. Of the columns format: to Parquet with zstd (/zstd), and which targets were missed; of xarray, how many
times faster than its peers it should be, and which of these goals were missed. Then names every
ratio of ours, to colstore, to limit_c or to Parquet with zstd, that fell by more than 10 % below
benchmarks/results.json.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import limits
import report
from measure import Job, first_line, run_jobs
from systems import SYSTEMS, System
from workloads import WORKLOADS, Bench, Workload, known_gather

RECORD = Path(__file__).with_name("results.json")
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PACKAGES = (
    *("colstore_io", "colstore", "numpy", "pyarrow", "dask", "xarray", "zarr", "h5netcdf", "netCDF4"),
    *("msgspec", "protobuf", "orjson"),
)


def _source(kind: str, system: System, writer: System, bench: Bench) -> Any:
    """Return what a workload's call gets; None when the system or its writer cannot make it."""
    irregular = kind.endswith("_irregular")
    kind = kind.removesuffix("_irregular")
    if kind == "none":
        return ""
    form, _, table = kind.partition(":")
    if form == "grid_growing":
        return bench.grid.growing_file(system, table)
    if form.startswith("grid"):
        path = bench.grid.file(writer, table)
        return path if form == "grid" else system.open_grid(path, {} if form == "grid_dask" else None)
    if table and bench.table(table) is None:
        return None
    if form == "table":
        return bench.table(table)
    if form == "encoded":
        return system.open_encoded(bench.encoded(system, table))
    if form == "encoded_path":
        return bench.encoded_file(system, table)
    if writer.write is None:
        return None
    if kind == "alone_path":
        return bench.alone_file(system, writer)
    if kind in ("file", "path"):
        path = bench.file(system, writer)
        return system.open(path) if kind == "file" else path
    if kind in ("records", "record_path"):
        if writer.write_records is None:
            return None
        path = bench.record_file(system, writer, irregular)
        return system.open(path) if kind == "records" else path
    if system.open_many is None:
        return None
    paths = bench.shard_files(system, writer, irregular, 1000 if kind == "thousand_paths" else None)
    return system.open_many(paths) if kind == "shards" else paths


def _limit_jobs(workload: Workload, bench: Bench, want: Any) -> Iterator[Job]:
    def yardstick(call: Any) -> Any:  # its result is not checked by run_jobs
        return lambda: (call(bench), want)[1]

    if workload.limit is not None and workload.measures_itself:
        yield Job("limit", lambda: workload.limit(bench), measures_itself=True)  # type: ignore[misc]
    elif workload.limit is not None:
        yield Job("limit", yardstick(workload.limit))
    if workload.limit_c is not None and (workload.can_limit_c is None or workload.can_limit_c(bench)):
        yield Job("limit_c", yardstick(workload.limit_c))


def _measure(
    workload: Workload, systems: dict[str, System], bench: Bench, args: argparse.Namespace
) -> tuple[list[report.Row], list[str]]:
    """Return the rows of one workload, and why systems were left out."""
    jobs, handles = [], []
    if workload.jobs is not None:
        jobs = list(workload.jobs())
        for job in jobs:
            if job.problem:
                print(f"  ! LEFT OUT: {job.system}: {job.problem}", file=sys.stderr)
    for system in systems.values() if workload.jobs is None else ():
        if any(getattr(system, need, None) in (None, "") for need in workload.needs):
            continue
        writer = systems.get(system.files_of, system)
        if system.files_of and writer is system:
            continue  # its files' writer is not part of this run
        job = Job(system.name, lambda: None, measures_itself=workload.measures_itself)
        try:
            source = _source(workload.source, system, writer, bench)
        except Exception as error:  # a peer that fails must not end the run
            job.problem = f"{type(error).__name__}: {first_line(error)}"
            print(f"  ! LEFT OUT: {job.system}: {job.problem}", file=sys.stderr)
            jobs.append(job)
            continue
        if source is None:
            continue
        if workload.source.removesuffix("_irregular") in ("file", "records", "shards") or (
            workload.source.startswith(("encoded:", "grid_open:", "grid_dask:"))
        ):
            handles.append((system, source))
        if workload.prepare is not None:
            job.prepare = lambda s=system: workload.prepare(s, bench)  # type: ignore[misc]
        job.call = lambda s=system, x=source: workload.call(s, x, bench)
        jobs.append(job)
    want = None if workload.want is None else workload.want(bench)
    jobs += _limit_jobs(workload, bench, want)
    mapped = next((handle for system, handle in handles if system.name == "ours"), None)
    if workload.known is not None and mapped is not None and limits.compiled() is not None:
        call = known_gather(workload, mapped, bench)
        jobs.append(Job("limit_map", lambda: (call(), want)[1]))
    good = [job for job in jobs if not job.problem]
    done = run_jobs(good, want=want, rounds=args.rounds, budget_seconds=args.budget)
    for system, handle in handles:
        system.close(handle)
    rows = report.summarise(
        workload.name,
        workload.group,
        workload.unit,
        {job.system: job.samples for job in done},
        {job.system: job.median for job in done},
    )
    return rows, [f"{workload.name}: {job.system}: {job.problem}" for job in jobs if job.problem]


def _show(rows: list[report.Row]) -> None:
    if not rows:
        return

    def ratio(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    unit, factor = ("ms", 1e3) if rows[0]["unit"] == "s" else (rows[0]["unit"], 1)
    print(f"\n{rows[0]['workload']}")
    print(
        f"  {'system':<18}{'median ' + unit:>16}{'/best peer':>12}{'/limit':>9}{'/limit_c':>10}{'/zstd':>8}"
        f"{'colstore/this':>15}"
    )
    for row in rows:
        print(
            f"  {row['system']:<18}{row['median'] * factor:>16.4f}{ratio(row['to_best_peer']):>12}"
            f"{ratio(row['to_limit']):>9}{ratio(row['to_limit_c']):>10}{ratio(row['to_zstd']):>8}"
            f"{ratio(row['colstore_to_this']):>15}",
            flush=True,
        )


def _settle_memory() -> None:
    """Give files that are about to be written a fair page cache, where one may: memory in large pieces.

    What pages a file gets decides as much about reading it as who reads (a gather takes 1.5 times as long on small
    ones), and a cache that is full of other files leaves small ones.
    """
    for setting, value in (("drop_caches", "3"), ("compact_memory", "1")):
        try:
            os.sync()
            Path("/proc/sys/vm", setting).write_text(value, encoding="ascii")
        except OSError:  # not Linux, or not root
            return


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _compiler() -> str:
    try:
        out = subprocess.run(
            [os.environ.get("CC", "gcc"), "--version"], capture_output=True, text=True, check=True
        )
        return out.stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError):
        return "none"


def _describe(bench: Bench, args: argparse.Namespace) -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": {
            "processor": _processor(),
            "cores": limits.THREADS,
            "system": f"{platform.system()} {platform.machine()}",
        },
        "compiler": _compiler(),
        "versions": versions,
        "settings": {
            "rows": bench.n,
            "records": args.records,
            "shards": args.shards,
            "rounds": args.rounds,
            "grid": args.grid,
        },
    }


def _print_gate(gate: float | None) -> None:
    if gate is None:
        print("machine gate: none, for there is no C compiler (gcc, or CC) that can compile limits.c")
    elif report.usable_gate(gate):
        print(f"machine gate: limit_c / limit of read_all is {gate:.2f} (<= {report.GATE}): fine")
    else:
        print(
            f"machine gate: limit_c / limit of read_all is {gate:.2f} (> {report.GATE}): other processes had a "
            "core, or there is only one. Do not trust the ratios of this run."
        )


def _compare(run: dict[str, Any], recorded: dict[str, Any] | None) -> None:
    if recorded is None:
        print("\nnothing is recorded to compare with (--record)")
        return
    names = report.fallen(run["results"], recorded["results"])
    print(
        f"\ncompared with {recorded['date']}, {recorded['machine']['processor']}, {recorded['machine']['cores']} cores:"
    )
    for key in ("machine", "settings"):
        if report.different(recorded[key], run[key]):
            print(f"  (another {key}: recorded {recorded[key]}, now {run[key]})")
    for name in names:
        print(f"  FELL by more than {report.FELL:.0%}: {name}")
    if not names:
        print(f"  no ratio fell by more than {report.FELL:.0%}")


def _systems(names: str) -> dict[str, System]:
    found = {}
    for name in names.split(",") if names else SYSTEMS:
        if name not in SYSTEMS:
            raise SystemExit(f"no system {name!r}; there are {', '.join(SYSTEMS)}")
        try:
            found[name] = SYSTEMS[name]()
        except ImportError as error:
            print(f"(without {name}: {error})", file=sys.stderr)
    return found


def _workloads(only: str) -> list[Workload]:
    words = [word for word in only.split(",") if word]
    for word in words:
        if not any(w.group == word or w.name.startswith(word) for w in WORKLOADS.values()):
            raise SystemExit(f"no workload or group {word!r} (--list)")
    groups = {w.group for w in WORKLOADS.values()}
    return [
        w
        for w in WORKLOADS.values()
        if not words or any(w.group == word if word in groups else w.name.startswith(word) for word in words)
    ]


def _grid_shape(text: str) -> tuple[int, int, int]:
    try:
        times, lats, lons = map(int, text.split("x"))
    except ValueError:
        raise SystemExit(f"--grid takes three numbers such as 1000x180x360, got {text!r}") from None
    return times, lats, lons


def _list() -> None:
    for group in dict.fromkeys(w.group for w in WORKLOADS.values()):
        print(f"{group}\n    " + " ".join(w.name for w in WORKLOADS.values() if w.group == group))
    print("systems\n    " + " ".join(SYSTEMS))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="show workloads and systems, and stop")
    parser.add_argument("--rows", type=float, default=2e6)
    parser.add_argument(
        "--only", default="", help="groups, workloads, or beginnings of their names; comma separated"
    )
    parser.add_argument("--systems", default="", help="systems, comma separated; default all that import")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--budget", type=float, default=8.0, help="seconds per system and workload")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument(
        "--grid", default="1000x180x360", help="steps, latitudes and longitudes of the N-D data"
    )
    parser.add_argument(
        "--dir", default="", help="where the files go, kept for later runs; default a temporary folder"
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help="the folder of real tables (glosses, verses, quakes)"
    )
    parser.add_argument(
        "--record", action="store_true", help="write the results where later runs compare with them"
    )
    parser.add_argument("--results", type=Path, default=RECORD, help="the file of recorded results")
    parser.add_argument("--json", type=Path, help="write the results of this run here")
    args = parser.parse_args()
    if args.list:
        _list()
        return
    chosen, systems = _workloads(args.only), _systems(args.systems)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(args.dir or temporary)
        root.mkdir(parents=True, exist_ok=True)
        _settle_memory()
        bench = Bench(
            int(args.rows),
            root,
            records=args.records,
            shards=args.shards,
            grid=_grid_shape(args.grid),
            data=args.data,
        )
        run = _describe(bench, args)
        print(f"{bench.n:,} rows, {len(bench.names)} columns, {limits.THREADS} cores, {args.rounds} rounds")
        columns = list(bench.columns.values())
        gates = [limits.gate(columns, bench.outputs)]
        _print_gate(gates[0])
        results: list[report.Row] = []
        left_out: list[str] = []
        for workload in chosen:
            rows, problems = _measure(workload, systems, bench, args)
            _show(rows)
            if workload.goals and rows:
                print("  goals: " + ", ".join(f"{goal:g} x {peer}" for peer, goal in workload.goals.items()))
            results += rows
            left_out += problems
        gates.append(limits.gate(columns, bench.outputs))
    run["gate"] = None if gates[0] is None else max(gate for gate in gates if gate is not None)
    run["left_out"], run["results"] = left_out, results
    print()
    _print_gate(run["gate"])
    for line in left_out:
        print(f"LEFT OUT: {line}")
    for line in report.missed(results, {w.name: w.target for w in chosen if w.target is not None}):
        print(f"ABOVE ITS TARGET: {line}")
    for line in report.behind(results, {w.name: w.goals for w in chosen}):
        print(f"BEHIND ITS GOAL: {line}")
    if args.json:
        report.save(run, args.json)
    recorded = report.load(args.results)
    _compare(run, recorded)
    if args.record:
        try:
            report.save(report.merge(recorded, run), args.results)
        except ValueError as error:
            raise SystemExit(f"not recorded: {error}") from None
        print(f"recorded in {args.results}")


if __name__ == "__main__":
    main()
