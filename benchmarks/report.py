"""What a run is compared with and how it is recorded: functions of plain data, without any measuring."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "FELL",
    "GATE",
    "UNSYNCED",
    "ZSTD",
    "Row",
    "behind",
    "different",
    "fallen",
    "like_for_like",
    "load",
    "merge",
    "missed",
    "save",
    "speeds",
    "summarise",
    "usable_gate",
]

Row = dict[str, Any]
"""One system's result in one workload; see `summarise`."""

UNSYNCED = "ours_unsynced"
"""Ours where peers do not wait for the disk: what is compared with them there."""
OWN = (
    *("ours", UNSYNCED, "ours_fast", "ours_indexed", "ours_samefile"),
    *("limit", "limit_c", "limit_map", "limit_xarray"),
)
ZSTD = "parquet_zstd1"
"""What the columns format is compared with: pyarrow's Parquet with its default level of zstd."""
FELL = 0.10
"""A ratio that is lower than the recorded one by more than this share is named."""
GATE = 0.7
"""limit_c / limit of read_all above this: somebody else had a core."""


def usable_gate(gate: float | None) -> bool:
    """Return whether ratios of this run can be trusted."""
    return gate is not None and gate <= GATE


def like_for_like(systems: Container[str]) -> str:
    """Return which of our systems does what the peers of a workload do: `UNSYNCED` where it takes part, else "ours"."""
    return UNSYNCED if UNSYNCED in systems else "ours"


def _like_for_like_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the row of each workload that is compared with the peers."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row["workload"], {})[row["system"]] = row
    names = ((own, like_for_like(own)) for own in found.values())
    return [own[name] for own, name in names if name in own]


def summarise(
    workload: str, group: str, unit: str, samples: dict[str, list[float]], medians: dict[str, float]
) -> list[Row]:
    """Turn the samples of one workload into rows, the fastest system first.

    Returns
    -------
    list of dict
        ``workload``, ``group``, ``system``, ``unit``, ``median``, ``minimum``, ``rounds``; and ratios of medians,
        None where there is nothing to compare with: ``to_best_peer``, ``to_limit``, ``to_limit_c`` (this / that: over 1
        is slower), ``to_zstd`` (likewise, of `ZSTD`), ``colstore_to_this`` (over 1: faster than colstore; than
        colstore without its syncs, where nobody waits for the disk).
    """
    best = min((median for name, median in medians.items() if name not in OWN), default=None)

    reference = medians.get("colstore", medians.get("colstore_unsynced"))

    def ratio(above: float | None, below: float | None) -> float | None:
        return above / below if above is not None and below else None

    return [
        {
            "workload": workload,
            "group": group,
            "system": name,
            "unit": unit,
            "median": median,
            "minimum": min(samples[name]),
            "rounds": len(samples[name]),
            "to_best_peer": ratio(median, best),
            "to_limit": ratio(median, medians.get("limit")),
            "to_limit_c": ratio(median, medians.get("limit_c")),
            "to_zstd": ratio(median, medians.get(ZSTD)),
            "colstore_to_this": ratio(reference, median),
        }
        for name, median in sorted(medians.items(), key=lambda pair: pair[1])
    ]


def speeds(rows: Iterable[Row]) -> dict[tuple[str, str], float]:
    """Return how fast or small we are, by workload and yardstick ("colstore", "limit_c", `ZSTD`): higher is better."""
    found = {}
    for row in _like_for_like_rows(rows):
        if row["colstore_to_this"]:
            found[row["workload"], "colstore"] = row["colstore_to_this"]
        if row["to_limit_c"]:
            found[row["workload"], "limit_c"] = 1 / row["to_limit_c"]
        if row.get("to_zstd"):
            found[row["workload"], ZSTD] = 1 / row["to_zstd"]
    return found


def fallen(rows: Iterable[Row], recorded: Iterable[Row], share: float = FELL) -> list[str]:
    """Return one line for each ratio that is lower than the recorded one by more than `share`, the worst first.

    Workloads or yardsticks that only one side has are not compared.
    """
    now, before = speeds(rows), speeds(recorded)
    both = sorted((key for key in now if key in before), key=lambda key: now[key] / before[key])
    return [
        f"{workload}: {now[workload, against]:.2f} x {against}, recorded {before[workload, against]:.2f} x "
        f"({now[workload, against] / before[workload, against] - 1:+.0%})"
        for workload, against in both
        if now[workload, against] < before[workload, against] * (1 - share)
    ]


def missed(rows: Iterable[Row], targets: dict[str, float]) -> list[str]:
    """Return one line for each workload in which our ratio to `ZSTD` is above its target."""
    ratios = {row["workload"]: row.get("to_zstd") for row in rows if row["system"] == "ours"}
    return [
        f"{workload}: {ratio:.3g} x {ZSTD}, the target is {targets[workload]:.3g}"
        for workload, ratio in ratios.items()
        if ratio and ratio > targets.get(workload, ratio)
    ]


def behind(rows: Iterable[Row], goals: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return one line for each system that we are not as many times faster than as the goal of a workload says.

    Parameters
    ----------
    goals : mapping
        By workload: times by system. Systems that were not measured are passed over.
    """
    medians: dict[str, dict[str, float]] = {}
    for row in rows:
        medians.setdefault(row["workload"], {})[row["system"]] = row["median"]
    ours = {workload: own.get(like_for_like(own)) for workload, own in medians.items()}
    return [
        f"{workload}: {own[peer] / mine:.3g} x {peer}, the goal is {goal:.3g}"
        for workload, own in medians.items()
        if (mine := ours[workload])
        for peer, goal in goals.get(workload, {}).items()
        if peer in own and own[peer] < goal * mine
    ]


def load(file: Path) -> dict[str, Any] | None:
    """Return what was recorded, None when nothing was."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def save(run: dict[str, Any], file: Path) -> None:
    """Write a run, one row a line, so that a change of the numbers can be read."""
    head = {key: value for key, value in run.items() if key != "results"}
    text = json.dumps(head, indent=1)[:-2] + ',\n "results": [\n'
    text += ",\n".join("  " + json.dumps(row) for row in run["results"]) + "\n ]\n}\n"
    file.write_text(text, encoding="utf-8")


def different(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether two descriptions differ. What only one knows does not count: a setting that came later."""
    return any(recorded[key] != now[key] for key in recorded.keys() & now.keys())


def merge(recorded: dict[str, Any] | None, run: dict[str, Any]) -> dict[str, Any]:
    """Put the workloads of `run` in the place of those recorded; others stay.

    Raises
    ------
    ValueError
        If others would stay that were measured on another machine or with other sizes.
    """
    measured = {row["workload"] for row in run["results"]}
    kept = [row for row in (recorded or {}).get("results", []) if row["workload"] not in measured]
    if kept and recorded is not None:
        for key in ("machine", "settings"):
            if different(recorded[key], run[key]):
                raise ValueError(
                    f"{len({row['workload'] for row in kept})} recorded workloads were not measured now, and belong to "
                    f"another {key}: {recorded[key]}, not {run[key]}; record all of them (no --only)"
                )
    return {**run, "results": kept + run["results"]}
