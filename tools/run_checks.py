"""Run lint, types, counts, a short fuzzing run and every test suite: ``run_checks.py [--only NAME ...]``.

All checks run, also after one has failed. The last line is ``N passed, N failed``: tests as pytest counts
them, each of lint and types that has anything to say as one failure, the instruction
counts as one test, each target of the fuzzer as one.
The exit status is 1 when anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check counted."""

    passed: int
    failed: int
    skipped: bool = False
    """The check could not run here, and said why."""


@dataclass(frozen=True, slots=True)
class Check:
    """One command, and how its result is counted.

    Attributes
    ----------
    group : str
        What ``--only`` selects by.
    command : list of str
        Run from the root of the repository.
    report : Path or None
        File that the command writes: JUnit XML or JSON. ``None``: only the exit status counts.
    """

    group: str
    command: list[str]
    report: Path | None = None


def checks(build: Path, extra: list[str]) -> list[Check]:
    """Return all checks in the order in which they run; cheap ones first."""

    def report(name: str) -> Path:
        return build / "reports" / name

    pytest = str(BIN / "pytest")  # not `python -m pytest`: that would put the source folder first on the path
    reference = "tests/peer/run_reference_suite.py"
    found = [
        Check("lint", [str(BIN / "ruff"), "check", "--quiet", "."]),
        Check("lint", [str(BIN / "ruff"), "format", "--quiet", "--check", "."]),
        Check(
            "counts",
            [sys.executable, "tools/count_instructions.py", f"--report={report('counts.json')}"],
            report("counts.json"),
        ),
        Check(
            "fuzz",
            [
                sys.executable,
                "tools/fuzz.py",
                "--engine=random",
                "--runs=1000",
                f"--crashes={build / 'fuzz'}",
                f"--report={report('fuzz.json')}",
            ],
            report("fuzz.json"),
        ),
        Check("types", [sys.executable, "tools/typecheck.py", f"--build={build}"]),
        Check("main", [pytest, "-q", f"--junitxml={report('main.xml')}", *extra], report("main.xml")),
        Check(
            "peer",
            [sys.executable, reference, f"--build={build}", f"--report={report('reference.json')}"],
            report("reference.json"),
        ),
    ]
    # Suites of other projects that come as test modules: a process and an ini file of their own, because
    # their plugins do not get along with warnings as errors.
    if any((ROOT / "tests" / "peer").glob("test_*.py")):
        options = ["-q", "-c", "tests/peer/pytest.ini", f"--junitxml={report('peer.xml')}", "tests/peer"]
        found.append(Check("peer", [pytest, *options], report("peer.xml")))
    return found


def read_junit(report: Path) -> Outcome:
    """Count a JUnit XML file; skipped tests and expected failures count as neither."""
    passed = failed = 0
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        failed += bad
        passed += int(suite.get("tests", 0)) - bad - int(suite.get("skipped", 0))
    return Outcome(passed, failed)


def read_json(report: Path) -> Outcome:
    """Count a report of the form ``{"passed": N, "failed": N}``, with ``"skipped": N`` where nothing could run."""
    counts = json.loads(report.read_text(encoding="utf-8"))
    return Outcome(int(counts["passed"]), int(counts["failed"]), bool(counts.get("skipped", 0)))


READERS: dict[str, Callable[[Path], Outcome]] = {".xml": read_junit, ".json": read_json}


def run(check: Check) -> Outcome:
    """Run one check and count it. A command that fails without a counted failure is one failure."""
    if check.report is not None:
        check.report.unlink(missing_ok=True)
    print(f"\n=== {' '.join(check.command)}", flush=True)
    # A child Python started in the repository must not find the source folder, which has no kernels.
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    status = subprocess.run(check.command, cwd=ROOT, env=environment, check=False).returncode
    outcome = Outcome(0, 0)
    if check.report is not None and check.report.exists():
        outcome = READERS[check.report.suffix](check.report)
    if status != 0 and outcome.failed == 0:
        outcome = Outcome(outcome.passed, 1)
    if check.report is not None and status == 0 and outcome.passed == 0 and not outcome.skipped:
        outcome = Outcome(0, 1)  # a suite that ran nothing has shown nothing
    return outcome


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="folder for reports and caches")
    parser.add_argument(
        "--only",
        action="append",
        choices=("lint", "counts", "fuzz", "types", "main", "peer"),
        help="run these only",
    )
    parser.add_argument("extra", nargs="*", help="passed on to the main pytest run, after --")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    (build / "reports").mkdir(parents=True, exist_ok=True)
    passed = failed = 0
    lines = []
    for check in checks(build, arguments.extra):
        if arguments.only and check.group not in arguments.only:
            continue
        begin = time.perf_counter()
        outcome = run(check)
        passed += outcome.passed
        failed += outcome.failed
        verdict = "failed" if outcome.failed else "skipped" if outcome.skipped else "ok"
        name = " ".join([Path(check.command[0]).name, *check.command[1:3]])
        seconds = time.perf_counter() - begin
        lines.append(
            f"  {verdict:7} {outcome.passed:6} {outcome.failed:6}  {seconds:6.1f} s  {check.group:6} {name}"
        )
    print("\n=== summary (verdict, passed, failed, time)")
    print("\n".join(lines))
    summary = f"{passed} passed, {failed} failed"
    (build / "reports" / "summary.txt").write_text(summary + "\n", encoding="utf-8")
    print(summary, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
