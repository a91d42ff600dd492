"""pytest plugin: leave one JSON line per event of a test in the file ``$REFERENCE_RESULTS``.

Lines are written as the events happen, so that a crash of the process loses nothing. The last line of a test
counts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

_worst: dict[str, str] = {}


def _leave(node_id: str, outcome: str, reason: str = "") -> None:
    with Path(os.environ["REFERENCE_RESULTS"]).open("a", encoding="utf-8") as results:
        results.write(json.dumps({"id": node_id, "outcome": outcome, "reason": reason}) + "\n")


def pytest_sessionstart() -> None:
    """Refuse to run against anything but the stand-in."""
    import colstore

    if Path(__file__).parent not in Path(colstore.__file__).parents:
        raise pytest.UsageError(f"{colstore.__file__} is not the stand-in")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be collected is one failed test; one that skips itself is one skipped test."""
    if report.failed:
        _leave(report.nodeid, "failed", _error(report))
    elif report.skipped:
        _leave(report.nodeid, "skipped", _skip_reason(report.longrepr))


def pytest_runtest_logstart(nodeid: str) -> None:
    """Remember which test was running, should the process die in it."""
    _leave(nodeid, "started")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the worst of the three phases of a test."""
    if report.failed:
        _worst[report.nodeid] = "failed"
        _leave(report.nodeid, "failed", _error(report))
    elif report.skipped:
        _worst[report.nodeid] = "skipped"
        _leave(report.nodeid, "skipped", _skip_reason(report.longrepr))
    elif report.when == "call" and report.nodeid not in _worst:
        _leave(report.nodeid, "passed")


def _error(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Return what the exception says: the first lines of it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext.strip().rpartition("\n")[2]
    return " | ".join(line.strip() for line in text.splitlines()[:3])[:400]


def _skip_reason(longrepr: object) -> str:
    if isinstance(longrepr, tuple) and len(longrepr) == 3:
        return str(longrepr[2]).removeprefix("Skipped: ")
    return str(longrepr)[:300]
