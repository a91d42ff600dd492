"""Run the test suite of the reference library (colstore) against colstore_io.

``run_reference_suite.py [--build DIR] [--report FILE] [-- PYTEST OPTIONS]``

The suite comes with the sdist of colstore on PyPI. It is fetched once with pip, kept under the build folder,
checked against its hash, and never committed. `shim/colstore` gives our objects the reference's names and
goes first on the path. Each test then

* passes;
* fails, and is listed in ``reference_exceptions.toml``: *not applicable*, with a reason;
* is skipped by the suite itself: *not applicable*, with the suite's reason;
* fails without being listed: *failed*.

The list must be true: an entry that names no test, or whose test passes, is a failure as well.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VERSION = "0.5.1"
SDIST = f"colstore-{VERSION}.tar.gz"
SHA256 = "e806d5d87922d2b5647bb5c73ddefa9d5296515dd6b498dac2b4a49db3155768"
EXCEPTIONS = HERE / "reference_exceptions.toml"
CATEGORIES = ("private module", "private attribute", "[FIX]", "later")

# pip asks the build backend of an sdist for its metadata before it hands the file over, and the real backend
# would first install CMake and then look for a compiler. Only the name and the version are wanted.
STAND_IN_BACKEND = f"""
import os

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name = "colstore-{VERSION}.dist-info"
    os.mkdir(os.path.join(metadata_directory, name))
    with open(os.path.join(metadata_directory, name, "METADATA"), "w") as metadata:
        metadata.write("Metadata-Version: 2.1\\nName: colstore\\nVersion: {VERSION}\\n")
    return name
"""


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fetch_sdist(cache: Path) -> Path:
    """Return the sdist, from `cache` when it is there; only otherwise is the network used.

    Raises
    ------
    SystemExit
        If pip cannot fetch it, or its hash is not the expected one.
    """
    sdist = cache / SDIST
    if sdist.exists() and sha256(sdist) == SHA256:
        return sdist
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        backend = Path(folder, "scikit_build_core")
        backend.mkdir()
        (backend / "__init__.py").touch()
        (backend / "build.py").write_text(STAND_IN_BACKEND, encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--no-binary=colstore", "--no-build-isolation", f"--dest={cache}"]
        environment = {**os.environ, "PYTHONPATH": folder}
        environment.pop("PYTHONSAFEPATH", None)
        subprocess.run([*command, f"colstore=={VERSION}"], env=environment, check=True)
    if sha256(sdist) != SHA256:
        raise SystemExit(f"{sdist}: the SHA-256 is {sha256(sdist)}, expected {SHA256}")
    return sdist


def unpack_tests(sdist: Path, target: Path) -> Path:
    """Unpack the ``tests`` folder of the sdist into `target` and return its path."""
    prefix = f"colstore-{VERSION}/tests/"
    with tarfile.open(sdist) as archive:
        members = [member for member in archive.getmembers() if member.name.startswith(prefix)]
        archive.extractall(target, members=members, filter="data")
    return target / prefix


@dataclass(slots=True)
class Result:
    """The outcome of one test: ``passed``, ``failed`` or ``skipped``, and why."""

    outcome: str
    reason: str = ""


@dataclass(slots=True)
class ExceptionEntry:
    """One ``[[exception]]`` of the list.

    Attributes
    ----------
    patterns : list of str
        Node ids such as ``test_writer.py::test_close``; ``*`` stands for any text. Without a bracket the
        pattern covers all parameters of a test.
    category : str
        One of `CATEGORIES`; after ``[FIX]`` follows the section that wants another behaviour.
    reason : str
        One sentence.
    """

    patterns: list[str]
    category: str
    reason: str


def read_exceptions(path: Path) -> list[ExceptionEntry]:
    """Read the list of exceptions, and refuse entries without a known category or a reason."""
    entries = []
    for table in tomllib.loads(path.read_text(encoding="utf-8")).get("exception", []):
        entry = ExceptionEntry(list(table["tests"]), str(table["category"]), str(table["reason"]).strip())
        if not entry.category.startswith(CATEGORIES) or not entry.reason or not entry.patterns:
            raise SystemExit(f"{path}: bad entry {table}")
        entries.append(entry)
    return entries


def matches(pattern: str, node_id: str) -> bool:
    """Tell whether `pattern` covers the test `node_id`."""
    expression = re.escape(pattern).replace(r"\*", ".*")
    if "[" not in pattern:
        expression += r"(\[.*\])?"
    return re.fullmatch(expression, node_id, flags=re.DOTALL) is not None


def run_suite(tests: Path, results: Path, options: list[str]) -> int:
    """Run pytest over `tests` in a process of its own; it leaves one JSON line per test in `results`."""
    path = os.pathsep.join(filter(None, [str(HERE / "shim"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "REFERENCE_RESULTS": str(results)}
    pytest = str(Path(sys.executable).parent / "pytest")
    command = [pytest, "-c", str(HERE / "pytest.ini"), f"--rootdir={tests}", "-p", "reference_results"]
    # The suite imports its helpers by bare names, which needs the default import mode.
    command += ["-o", "addopts=", "-o", "python_classes=Test*", "-p", "no:cacheprovider"]
    command += [
        "-q",
        "--tb=native",
        "--no-header",
        "-r",
        "N",
        "--continue-on-collection-errors",
        *options,
        str(tests),
    ]
    with results.with_suffix(".log").open("wb") as log:
        done = subprocess.run(command, cwd=tests, env=environment, stdout=log, stderr=log, check=False)
    return done.returncode


def read_results(path: Path) -> dict[str, Result]:
    """Fold the lines that the suite left into one result per test; a test that died half-way has failed."""
    results: dict[str, Result] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            results[record["id"]] = Result(record["outcome"], record["reason"])
    for result in results.values():
        if result.outcome == "started":
            result.outcome, result.reason = "failed", "the process ended during this test"
    return results


@dataclass(frozen=True, slots=True)
class Verdict:
    """All tests of the suite, sorted into piles; each value maps a node id to a reason."""

    passed: set[str]
    not_applicable: dict[str, str]
    failed: dict[str, str]
    untrue: list[str]


def judge(results: dict[str, Result], entries: list[ExceptionEntry]) -> Verdict:
    """Sort results into passed, not applicable and failed, and find entries that are not true."""
    verdict = Verdict(set(), {}, {}, [])
    listed: dict[str, ExceptionEntry] = {}
    for entry in entries:
        for pattern in entry.patterns:
            covered = [node_id for node_id in results if matches(pattern, node_id)]
            listed.update(dict.fromkeys(covered, entry))
            if not covered:
                verdict.untrue.append(f"{pattern}: listed, but there is no such test")
            for node_id in covered:
                if results[node_id].outcome == "passed":
                    verdict.untrue.append(f"{node_id}: listed as {entry.category!r}, but it passes")
    for node_id, result in results.items():
        if result.outcome == "passed":
            verdict.passed.add(node_id)
        elif result.outcome == "skipped":
            verdict.not_applicable[node_id] = f"skipped by the suite: {result.reason}"
        elif node_id in listed:
            verdict.not_applicable[node_id] = f"{listed[node_id].category}: {listed[node_id].reason}"
        else:
            verdict.failed[node_id] = result.reason
    return verdict


def print_verdict(verdict: Verdict, *, verbose: bool) -> None:
    """Print one line per file of the suite, then every failure."""
    counts: dict[str, Counter[str]] = {}
    piles = {"passed": verdict.passed, "failed": verdict.failed, "not applicable": verdict.not_applicable}
    for pile, node_ids in piles.items():
        for node_id in node_ids:
            counts.setdefault(node_id.partition("::")[0], Counter())[pile] += 1
    print(f"{'tests of colstore ' + VERSION:34} {'passed':>7} {'failed':>7} {'not applicable':>15}")
    for name, count in sorted(counts.items()):
        print(f"{name:34} {count['passed']:7} {count['failed']:7} {count['not applicable']:15}")
    total = [len(verdict.passed), len(verdict.failed), len(verdict.not_applicable)]
    print(f"{'all':34} {total[0]:7} {total[1]:7} {total[2]:15}")
    for reason, count in Counter(verdict.not_applicable.values()).most_common():
        print(f"  not applicable {count:5}  {reason}")
    if verbose:
        for node_id, reason in sorted(verdict.not_applicable.items()):
            print(f"NOT APPLICABLE {node_id}: {reason}")
    for node_id, reason in sorted(verdict.failed.items()):
        print(f"FAILED {node_id}: {reason}")
    for line in sorted(verdict.untrue):
        print(f"UNTRUE {line}")


def main() -> None:
    """Run the command line; the exit status is 1 on a failure or an exception that is not true."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the sdist is kept in here")
    parser.add_argument("--report", type=Path, help='file for {"passed": N, "failed": N, ...}')
    parser.add_argument("--verbose", action="store_true", help="print the reason of each test not applicable")
    parser.add_argument(
        "--partial", action="store_true", help="some tests only: unmatched exceptions are no error"
    )
    parser.add_argument("options", nargs="*", help="passed on to pytest, after --")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    sdist = fetch_sdist(build / "peer")
    entries = read_exceptions(EXCEPTIONS)
    results_path = build / "peer" / "results.jsonl"
    results_path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="colstore-suite-") as folder:
        status = run_suite(unpack_tests(sdist, Path(folder)), results_path, arguments.options)
    verdict = judge(read_results(results_path), entries)
    untrue = [line for line in verdict.untrue if not (arguments.partial and "no such test" in line)]
    verdict.untrue[:] = untrue
    if status not in (0, 1):  # 0 and 1: all tests ran
        verdict.failed["pytest"] = f"ended with status {status}, see {results_path.with_suffix('.log')}"
    print_verdict(verdict, verbose=arguments.verbose)
    failed = len(verdict.failed) + len(untrue)
    if arguments.report is not None:
        report = {
            "passed": len(verdict.passed),
            "failed": failed,
            "not_applicable": dict(sorted(verdict.not_applicable.items())),
            "failures": dict(sorted(verdict.failed.items())),
        }
        arguments.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
