"""Numbers of the recorded results that stand in hand-written pages, between two comments:

    <!-- recorded: NAME -->
    ...
    <!-- end of recorded -->

`plot.py` rewrites what stands between them; a test fails where a page is behind benchmarks/results.json.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import report

__all__ = ["BLOCKS", "COLUMN_TARGETS", "PAGES", "Results", "filled", "small_time"]

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/columns.md", "docs/colbin-records.md", "docs/cstore-index.md")
"""Pages of the repository that quote results."""

COLUMN_TARGETS = {"bytes": 0.79, "write": 0.51, "read_all": 0.62, "integer": 0.14, "float": 1.0, "text": 0.6}
"""What ratios to `report.ZSTD` columns files are to have."""

_BLOCK = re.compile(
    r"(?P<begin><!-- recorded: (?P<name>[a-z-]+) -->)(?P<body>.*?)(?P<end><!-- end of recorded -->)",
    re.DOTALL,
)


class Results:
    """Medians of a recorded run, by workload and system."""

    def __init__(self, run: dict[str, Any]) -> None:
        self.run = run
        self.medians: dict[str, dict[str, float]] = {}
        for row in run["results"]:
            self.medians.setdefault(row["workload"], {})[row["system"]] = row["median"]

    def to_ours(self, system: str, *workloads: str) -> list[float]:
        """Return the medians of `system` divided by ours, the workloads that both ran.

        Where nobody waits for the disk, ours is what does not wait either.
        """
        rows = [self.medians.get(workload, {}) for workload in workloads]
        pairs = [(row.get(system), row.get("ours_unsynced", row.get("ours"))) for row in rows]
        return [peer / own for peer, own in pairs if peer and own]

    def ours_to(self, system: str, workload: str) -> float | None:
        """Return our median divided by that of `system`; None where one of them is missing."""
        ratios = self.to_ours(system, workload)
        return 1 / ratios[0] if ratios and ratios[0] else None


def _two_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.2g}"


def _spread(ratios: Iterable[float]) -> str:
    """Return one ratio, or the least and the greatest of several, with two digits."""
    texts = [_two_digits(value) for value in sorted(ratios)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def small_time(seconds: float) -> str:
    """Return a time in the unit that suits it, with two digits or more."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{_two_digits(seconds / size)} {unit}"
    return f"{_two_digits(seconds / 1e-9)} ns"


def _table(head: list[str], rows: Iterable[list[str]], *, texts: int = 1) -> str:
    """Return a Markdown table; the first `texts` columns are not numbers."""
    lines = [head, [*["---"] * texts, *["---:"] * (len(head) - texts)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


# ---- README --------------------------------------------------------------------------------------

_MASKS = ("mask_1", "mask_10", "mask_50", "mask_90")
_TYPES = ("users", "products", "sales", "metrics")
_SPEED = (
    ("one column of one file", "colstore", ("read_one",)),
    ("all columns of one file", "colstore", ("read_all",)),
    ("a fifth of the rows, scattered", "colstore", ("gather",)),
    ("the rows of a mask, 1 to 90 %", "colstore", _MASKS),
    ("filters", "colstore", ("filter", "between")),
    ("opening 64 files as one table", "colstore", ("open_shards",)),
    ("writing a file", "colstore", ("write",)),
    ("writing a file, all waiting for the disk", "colstore", ("write_durable",)),
    ("one column of one file", "parquet", ("read_one",)),
    ("Dask: a mean, a filter and a mean", "parquet", ("dask_mean", "dask_filter_mean")),
    ("Dask: a group-by", "parquet", ("dask_groupby",)),
    ("Dask: a whole frame", "parquet", ("dask_compute",)),
    ("xarray: opening", "zarr", ("xarray_open", "grid_time_open", "grid_tile_open")),
    ("xarray: scattered points of a table", "zarr", ("xarray_points",)),
    ("xarray: scattered points of a grid", "zarr", ("grid_time_points", "grid_tile_points")),
    ("xarray: all times of one point", "zarr", ("grid_time_series", "grid_tile_series")),
    ("columns file: writing", "parquet_zstd1", ("columns_write",)),
    ("columns file: reading", "parquet_zstd1", ("columns_read_all",)),
    ("colbin: decoding records to dataclasses", "msgspec_slots", tuple(f"colbin_{t}_decode" for t in _TYPES)),
)
_PEERS = {
    "colstore": "`colstore` 0.5.1, all its threads",
    "parquet": "Parquet, uncompressed",
    "zarr": "Zarr, uncompressed",
    "parquet_zstd1": "Parquet, zstd",
    "msgspec_slots": "msgspec",
}


def _speed(results: Results) -> str:
    run = results.run
    versus = _table(
        ["work", "beside", "times as fast"],
        [
            [work, _PEERS[peer], _spread(ratios)]
            for work, peer, names in _SPEED
            if (ratios := results.to_ours(peer, *names))
        ],
        texts=2,
    )
    size = results.ours_to(report.ZSTD, "columns_bytes")
    share = "" if size is None else f" The columns file has {size:.2f} of the bytes of Parquet's."
    return (
        f"{run['settings']['rows']:,} rows of eight columns on {run['machine']['cores']} cores, recorded on "
        f"{run['date']}: medians of\ninterleaved rounds, every result compared with the data first.\n\n{versus}\n\n"
        f"Below 1, the other one is faster.{share}"
    )


# ---- docs/columns.md -----------------------------------------------------------------------------

_COLUMNS = (
    ("bytes", "bytes", "columns_bytes"),
    ("write", "write", "columns_write"),
    ("read all", "read_all", "columns_read_all"),
    ("`run` as an array", "integer", "columns_values_run"),
    ("`rnd` as an array", "integer", "columns_values_rnd"),
    ("`f`", "float", "columns_read_f"),
    ("`low`", "text", "columns_read_low"),
    ("`high`", "text", "columns_read_high"),
    ("open, as `pyarrow.dataset`", None, "columns_open_dataset"),
    ("open, as `ParquetFile`", None, "columns_open_schema"),
)


def _zstd_ratio(results: Results, workload: str, system: str) -> str:
    row = results.medians.get(workload, {})
    return f"{row[system] / row[report.ZSTD]:.2f}" if row.get(report.ZSTD) and system in row else ""


def _beside_parquet(results: Results) -> str:
    rows = []
    for name, kind, workload in _COLUMNS:
        target = 1.0 if kind is None else COLUMN_TARGETS[kind]
        ours = results.ours_to(report.ZSTD, workload)
        shown = "" if ours is None else f"**{ours:.2f}**" if ours > target else f"{ours:.2f}"
        others = [_zstd_ratio(results, workload, system) for system in ("parquet_none", "parquet_zstd9")]
        rows.append([name, f"{target:g}", shown, *others])
    return _table(["", "target", "ours", "Parquet none", "Parquet zstd 9"], rows)


def _real_tables(results: Results) -> str:
    tables = {
        "glosses": "39,000 glosses of WordNet",
        "verses": "31,102 verses",
        "quakes": "1707 earthquakes, 30 columns",
    }
    works = ("bytes", "write", "read_all", "open_dataset")
    return _table(
        ["table", "bytes", "write", "read all", "open, as `pyarrow.dataset`"],
        [
            [title, *(_zstd_ratio(results, f"{name}_{work}", "ours") for work in works)]
            for name, title in tables.items()
        ],
    )


# ---- docs/colbin-records.md, docs/cstore-index.md ------------------------------------------------

_CODECS = {
    "ours": "**colbin, `dataclass(slots)`**",
    "msgspec_slots": "msgspec msgpack, `dataclass(slots)`",
    "msgspec_struct": "msgspec msgpack, Struct",
    "msgspec_array": "msgspec msgpack, array_like Struct",
    "msgspec_json": "msgspec JSON, Struct",
    "orjson": "orjson, dict",
    "protobuf_upb": "protobuf upb",
    "pickle": "pickle, `dataclass(slots)`",
}


def _records(results: Results) -> str:
    tables = []
    for work, title in (
        ("encode", "time to encode"),
        ("decode", "time to decode"),
        ("bytes", "bytes a record"),
    ):
        rows = []
        for system, name in _CODECS.items():
            own = [results.medians.get(f"colbin_{kind}_{work}", {}).get(system) for kind in _TYPES]
            base = [results.medians.get(f"colbin_{kind}_{work}", {}).get("ours") for kind in _TYPES]
            if work == "bytes":
                cells = ["" if value is None else f"{value:.1f}" for value in own]
            else:
                cells = [f"{a / b:.2f}" if a and b else "" for a, b in zip(own, base, strict=True)]
            rows.append([name, *cells])
        tables.append(_table([title, *_TYPES], rows))
    return "\n\n".join(tables)


def _metrics_table(results: Results) -> str:
    rows = [
        [
            name,
            *(
                small_time(results.medians[f"colbin_metrics_table_{work}"][system])
                for work in ("encode", "decode")
            ),
            f"{results.medians['colbin_metrics_table_bytes'][system]:.3g}",
        ]
        for system, name in {
            "ours": "**colbin**",
            "arrow": "Arrow IPC",
            "arrow_lz4": "Arrow IPC, lz4",
            "arrow_zstd": "Arrow IPC, zstd",
            "parquet_delta": "Parquet, delta",
        }.items()
        if system in results.medians.get("colbin_metrics_table_bytes", {})
    ]
    return _table(["2000 metrics as one table", "write", "read", "bytes a row"], rows)


def _open_records(results: Results) -> str:
    row = results.medians.get("open_records", {})
    if not {"ours", "ours_indexed"} <= set(row):
        return "A file of many records that is opened often."
    records = f"{results.run['settings']['records']:,}"
    return (
        f"A file of many records that is opened often: {records} records open in {small_time(row['ours_indexed'])} "
        f"instead of {small_time(row['ours'])}."
    )


BLOCKS: dict[str, Callable[[Results], str]] = {
    "speed": _speed,
    "beside-parquet": _beside_parquet,
    "real-tables": _real_tables,
    "records": _records,
    "metrics-table": _metrics_table,
    "open-records": _open_records,
}
"""What stands between the comments of a name. A text in the middle of a line has no line breaks."""


def filled(text: str, run: dict[str, Any]) -> str:
    """Return a page with its blocks made anew.

    Raises
    ------
    ValueError
        If a block has a name that is not in `BLOCKS`, or does not end.
    """
    results = Results(run)

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in BLOCKS:
            raise ValueError(f"no block is called {name!r}; there are {', '.join(BLOCKS)}")
        made = BLOCKS[name](results)
        own_lines = match["body"].startswith("\n")
        return (
            f"{match['begin']}\n{made}\n{match['end']}"
            if own_lines
            else f"{match['begin']}{made}{match['end']}"
        )

    if text.count("<!-- recorded:") != len(_BLOCK.findall(text)):
        raise ValueError("a block of recorded numbers has no end, or a name of other letters")
    return _BLOCK.sub(block, text)
