"""Make docs/performance.md and its plots from the recorded results, and the numbers that other pages quote (quoted.py).

    python benchmarks/plot.py                              # benchmarks/results.json -> docs/
    python benchmarks/plot.py --results r.json --docs DIR

One plot for each family of workloads: a line for each workload, a mark for each system at its time relative to
colstore_io's. Written by hand as SVG, so nothing has to be installed.
"""

from __future__ import annotations

import argparse
import math
import sys
from html import escape
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import quoted
import report

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = {
    "core": "One file, one record",
    "out": "One file, into arrays that exist already",
    "records": "One file of many equal records",
    "records_irregular": "One file of many unequal records",
    "shards": "Many equal files as one table",
    "shards_irregular": "Many unequal files as one table",
    "cold": "Files that are not in the page cache",
    "small_memory": "A file four times the memory that there is",
    "memory": "Peak of memory",
    "open": "Opening",
    "import": "Importing, in fresh processes",
    "write": "Writing",
    "dask": "Dask",
    "xarray": "xarray, tables",
    "grid": "xarray, N-D data",
    "columns": "The columns format, comparison workload",
    "columns_real": "The columns format, real tables",
    "colbin": "colbin: records, tables, columns",
}
COLOURS = {  # Okabe-Ito, told apart by colour-blind readers too; limits are hollow
    "ours": "#0072b2",
    "ours_unsynced": "#56b4e9",
    "ours_fast": "#56b4e9",
    "ours_indexed": "#f0e442",
    "ours_samefile": "#56b4e9",
    "colstore": "#d55e00",
    "colstore_unsynced": "#e69f00",
    "numpy_mmap": "#009e73",
    "parquet": "#cc79a7",
    "parquet_none": "#999999",
    "parquet_snappy": "#009e73",
    "parquet_zstd1": "#cc79a7",
    "parquet_zstd3": "#d55e00",
    "parquet_zstd9": "#e69f00",
    "h5py": "#999999",
    "raw": "#b15928",
    "vortex": "#e69f00",
    "zarr": "#e69f00",
    "zarr_default": "#f0e442",
    "netcdf4": "#d55e00",
    "h5netcdf": "#cc79a7",
    # codecs of the family colbin, which meet none of the above
    "msgspec_array": "#d55e00",
    "msgspec_struct": "#e69f00",
    "msgspec_slots": "#f0e442",
    "msgspec_json": "#999999",
    "protobuf_upb": "#cc79a7",
    "orjson": "#009e73",
    "pickle": "#b15928",
    "arrow": "#009e73",
    "arrow_lz4": "#56b4e9",
    "arrow_zstd": "#d55e00",
    "parquet_delta": "#cc79a7",
    "limit": "#000000",
    "limit_c": "#000000",
    "limit_map": "#000000",
    "limit_xarray": "#000000",
}
LABELS = {
    "ours": "colstore_io",
    "ours_unsynced": "colstore_io, unsynced",
    "ours_fast": "colstore_io, fast Optimize",
    "ours_indexed": "colstore_io with an index",
    "ours_samefile": "colstore_io on colstore's file",
    "colstore": "colstore 0.5.1",
    "colstore_unsynced": "colstore, unsynced",
    "limit_map": "limit_map: addresses known",
    "limit_xarray": "limit_xarray: an engine that does nothing",
}
LEFT, WIDTH, LINE, TOP, BOTTOM, RIGHT = 250, 520, 24, 56, 40, 30

INTRODUCTION = """\
# Performance

<!-- Made by benchmarks/plot.py from benchmarks/results.json: edit those. -->

Every system does the same work on the same data in the same run, in interleaved rounds; each result is compared with
the data in memory before anything is timed, and a system whose result is wrong is left out. The data: eight columns, 50
bytes a row; gathers take a fifth of the rows. Ratios carry over between machines, times do not.

* `limit`: the same work by NumPy on arrays in memory, one thread, into an output that exists already.
* `limit_c`: the same, compiled, with all cores and prefetches ([limits.c](../benchmarks/limits.c)).
* `limit_map`: of gathers, a compiled loop over addresses in our own mapped file that were worked out beforehand: what
  is left when finding a row costs nothing, so what the layout and the pages of the file themselves cost.
* `limit_xarray`: what xarray and Dask themselves take, with an engine that has all values in memory and hands out
  views of them ([xarray_limit.py](../benchmarks/xarray_limit.py)). No engine opens faster, or reads one point faster.
* `ours_samefile`: this library on the files that colstore wrote: reading apart from the writer's page layout.
* `colstore`: version 0.5.1 with its cap on threads raised to all cores.
* `zarr`: Zarr 3 without compression; `zarr_default`: with its own choice of a codec. `netcdf4` and `h5netcdf`:
  uncompressed, through these libraries. N-D data are cut alike in all of them.
* `ours_unsynced`: this library with `config.set_durability("process")`, which does not wait for the disk;
  `colstore_unsynced`: colstore with its `fsync` taken away.

**Writing is compared like with like.** By default this library returns from a write when the bytes are on the disk.
Most others return when the system has them. So there are two kinds of workloads. In `write`,
`append_records_unsynced`, `compact_unsynced`, `grid_…_write` and `grid_time_append` nobody waits: times are relative to
`ours_unsynced` there, and the default stands beside it, as `ours (durable)`. In `append_records` and `compact`, where
colstore syncs by itself, and in all that end in `_durable`, where what others wrote is synced behind them, everybody
waits, ours with its default.

In the plots each mark is a time relative to ours, on a logarithmic axis: marks to the right of the line are slower.
"""
REPRODUCE = """\
## Reproduce

```sh
make bench                               # everything, 2 million rows; compares with the recorded ratios
make bench ARGS="--list"                 # workloads, families, systems
make bench ARGS="--only core --rows 10e6"
make bench ARGS="--rows 10e6 --record"   # on a quiet machine: new numbers in benchmarks/results.json
.venv/bin/python benchmarks/plot.py      # this page and its plots
make counts                              # instructions of the kernels: valgrind, no clock
```

A run prints its *machine gate*: limit_c / limit of reading all. Above 0.7 another process had a core, and the run
should not be trusted or recorded. `make bench` names every ratio of ours, to colstore or to limit_c, that fell by more
than 10 %.
"""


def label(system: str) -> str:
    """Return how a system is called in plots and tables."""
    return LABELS.get(system, system)


def relative(rows: list[report.Row]) -> dict[str, dict[str, float]]:
    """Return each system's median divided by ours, by workload; workloads that we did not run are left out.

    Ours is what does the same as the peers: `report.like_for_like`.
    """
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row["workload"], {})[row["system"]] = row["median"]
    return {
        workload: {system: median / own for system, median in medians.items()}
        for workload, medians in found.items()
        if (own := medians.get(report.like_for_like(medians)))
    }


def decades(values: list[float]) -> tuple[int, int]:
    """Return the powers of ten between which all values lie, at least one to each side of 1."""
    return min(-1, math.floor(math.log10(min(values)))), max(1, math.ceil(math.log10(max(values))))


def svg(title: str, ratios: dict[str, dict[str, float]]) -> str:
    """Return a plot: a line for each workload, a mark for each system."""
    systems = [name for name in COLOURS if any(name in row for row in ratios.values())]
    low, high = decades([value for row in ratios.values() for value in row.values()])
    height = TOP + LINE * len(ratios) + BOTTOM

    def x(value: float) -> float:
        return LEFT + WIDTH * (math.log10(value) - low) / (high - low)

    def mark(system: str, at: float, y: float) -> str:
        tip = f"<title>{escape(label(system))}</title>"
        if system.startswith("limit"):
            dash = {"limit": ' stroke-dasharray="2 2"', "limit_map": ' stroke-dasharray="4 2"'}.get(
                system, ""
            )
            return f'<circle cx="{at:.1f}" cy="{y}" r="5" fill="none" stroke="#000"{dash}>{tip}</circle>'
        if system.startswith("ours"):
            return f'<rect x="{at - 5:.1f}" y="{y - 5}" width="10" height="10" fill="{COLOURS[system]}">{tip}</rect>'
        return f'<circle cx="{at:.1f}" cy="{y}" r="5" fill="{COLOURS[system]}" fill-opacity="0.85">{tip}</circle>'

    total = LEFT + WIDTH + RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height}" width="{total}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{total}" height="{height}" fill="#fff"/>',
        f'<text x="10" y="18" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    at = 10
    for system in systems:
        parts += [mark(system, at + 5, 36), f'<text x="{at + 14}" y="40">{escape(label(system))}</text>']
        at += 30 + 7 * len(label(system))
    for power in range(low, high + 1):
        place = x(10.0**power)
        line = '#888" stroke-width="1.5' if power == 0 else "#ddd"
        parts += [
            f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{height - BOTTOM}" stroke="{line}"/>',
            f'<text x="{place:.1f}" y="{height - BOTTOM + 16}" text-anchor="middle">{10**power:g}</text>',
        ]
    for number, (workload, row) in enumerate(ratios.items()):
        y = TOP + LINE * number + LINE // 2
        parts.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(workload)}</text>')
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y}" y2="{y}" stroke="#eee"/>')
        parts += [mark(system, x(row[system]), y) for system in reversed(systems) if system in row]
    parts.append(
        f'<text x="{LEFT + WIDTH / 2}" y="{height - 6}" text-anchor="middle">'
        "relative to colstore_io (right: more)</text>"
    )
    return "\n".join([*parts, "</svg>", ""])


def table(rows: list[report.Row]) -> str:
    """Return a Markdown table: our median, and the ratio of every other system to it."""
    ratios = relative(rows)
    own_names = {workload: report.like_for_like(row) for workload, row in ratios.items()}
    systems = [
        name
        for name in COLOURS
        if any(name in row and name != own_names[workload] for workload, row in ratios.items())
    ]
    ours = {row["workload"]: row for row in rows if row["system"] == own_names.get(row["workload"])}
    names = ("ours (durable)" if name == "ours" else name for name in systems)
    lines = [
        "| workload | ours | " + " | ".join(f"{name} / ours" for name in names) + " |",
        "|---|---:|" + "---:|" * len(systems),
    ]
    for workload, row in ratios.items():
        median, unit = ours[workload]["median"], ours[workload]["unit"]
        own = f"{median * 1e3:.3g} ms" if unit == "s" else f"{median:.2f} {unit}"
        if own_names[workload] != "ours":
            own += ", unsynced"
        cells = [
            f"{row[name]:.2f}" if name in row and name != own_names[workload] else "" for name in systems
        ]
        lines.append(f"| {workload} | {own} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def page(run: dict[str, Any] | None, plots: str) -> str:
    """Return the page; `plots` is the folder of the plots as the page links to it."""
    parts = [INTRODUCTION]
    if run is None:
        parts.append("No results are recorded yet.\n")
    else:
        machine, settings = run["machine"], run["settings"]
        versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
        gate = "not measured" if run["gate"] is None else f"{run['gate']:.2f}"
        verdict = (
            "" if report.usable_gate(run["gate"]) else ": above 0.7 or unknown, so take the ratios with care"
        )
        parts.append(
            f"Measured on {run['date']}: {machine['processor']}, {machine['cores']} cores, {machine['system']}; "
            f"{settings['rows']:,} rows, {settings['records']:,} records, {settings['shards']} files, "
            + (f"grid {settings['grid']}, " if "grid" in settings else "")
            + f"{settings['rounds']} rounds; {run['compiler']}; {versions}. Machine gate {gate}{verdict}.\n"
        )
        parts.append(bounded(run["results"]))
        for group, rows in by_family(run["results"]).items():
            parts.append(
                f"## {FAMILIES.get(group, group)}\n\n![{group}]({plots}/{group}.svg)\n\n{table(rows)}"
            )
        if run["left_out"]:
            parts.append("## Left out\n\n" + "".join(f"* {line}\n" for line in run["left_out"]))
    return "\n".join([*filter(None, parts), REPRODUCE])


BOUNDS = {
    **dict.fromkeys(
        (
            *(
                "records_gather",
                "records_gather_many",
                "records_irregular_gather",
                "records_irregular_gather_many",
            ),
            *(
                "shards_gather",
                "shards_gather_many",
                "shards_irregular_gather",
                "shards_irregular_gather_many",
            ),
        ),
        "limit_map",
    ),
    **dict.fromkeys(("append_records", "compact", "range_1000"), "limit"),
}
"""What nobody can do faster on that machine, and with that layout of the file."""
BOUNDED = """\
## How much there is to be had

How many times faster than colstore we are, and how many times faster what bounds us would be: of gathers over many
segments `limit_map`, the same loop over addresses that are known beforehand, which the pages of the file hold up; of an
append and a compaction the same bytes written and synced, once; of a short range a NumPy array in memory, which nobody
can cut short: we ask for the size of the file before each read.

| workload | colstore / ours | colstore / bound | bound |
|---|---:|---:|---|
"""


def bounded(rows: list[report.Row]) -> str:
    """Return a table of the workloads whose bound is known, "" without any."""
    lines = []
    for workload, row in relative(rows).items():
        bound = BOUNDS.get(workload)
        if bound in row and "colstore" in row:
            lines.append(
                f"| {workload} | {row['colstore']:.2f} | {row['colstore'] / row[bound]:.2f} | `{bound}` |\n"
            )
    return BOUNDED + "".join(lines) if lines else ""


def by_family(rows: list[report.Row]) -> dict[str, list[report.Row]]:
    """Return the rows of each family that we took part in, in the order of `FAMILIES`."""
    groups = [*FAMILIES, *(row["group"] for row in rows if row["group"] not in FAMILIES)]
    found = {group: [row for row in rows if row["group"] == group] for group in dict.fromkeys(groups)}
    return {group: rows for group, rows in found.items() if relative(rows)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results.json")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    args = parser.parse_args()
    run = report.load(args.results)
    folder = args.docs / "performance"
    if run is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.svg"):
            old.unlink()
        for group, rows in by_family(run["results"]).items():
            (folder / f"{group}.svg").write_text(
                svg(FAMILIES.get(group, group), relative(rows)), encoding="utf-8"
            )
    (args.docs / "performance.md").write_text(page(run, "performance"), encoding="utf-8")
    if run is not None and args.docs == ROOT / "docs":
        for name in quoted.PAGES:
            other = ROOT / name
            other.write_text(quoted.filled(other.read_text(encoding="utf-8"), run), encoding="utf-8")
    print(
        f"wrote {args.docs / 'performance.md'}"
        + ("" if run else f" without numbers: there is no {args.results}")
    )


if __name__ == "__main__":
    main()
