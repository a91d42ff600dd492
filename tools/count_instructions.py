"""Count the instructions of the kernels and compare with the recorded numbers: ``count_instructions.py [--record]``.

The driver tests/kernels/driver.c runs each kernel in one thread under valgrind's callgrind, by its portable path and,
where there is one, by its AVX2 path. The kernels that make Python objects (records, documents) are not among them:
what they cost is the interpreter's allocator, not their loops. Times differ from run to run and from machine to
machine; these counts differ only with the source and the compiler, so they can fail a run. A kernel that grows by
more than 15 % fails it unless its number in benchmarks/instructions.json grows in the same change. Numbers belong to
one compiler version: another one is reported, without a verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DRIVER = ROOT / "tests" / "kernels" / "driver.c"
RECORD = ROOT / "benchmarks" / "instructions.json"
VERSIONED = (
    "mask_offsets",
    "mask_compress",
    "compare_floats",
    "compare_integers",
    "column_encode",
    "column_decode",
)
"""Kernels with more than one path."""
KERNELS = (
    *("gather_affine", "gather_uniform", "gather_bucket", "gather_cursor", "gather_abreast"),
    *("mask_offsets", "mask_compress", "compare_floats", "compare_integers"),
    *("copy_strided", "copy_reversed", "copy_runs", "interleave", "grid_points", "grid_boxes"),
    *("record_walk", "heads", "log_frames", "footer"),
    *("delta_decode", "delta_encode", "bit_unpack", "bit_pack", "nulls"),
    *("dictionary", "dictionary_fixed", "dictionary_decode"),
    *("prefixed_decode", "prefixed_encode", "affix_decode", "text_bounds", "utf8"),
    *("lzw_decode", "lzw_encode", "packed5", "token_decode", "token_encode", "token_ids"),
    *("column_decode", "column_encode"),
    *("rows_read", "rows_write", "messages_read", "messages_write", "table_text"),
    "fixed_text",
)
PATHS = ("portable", "avx2")
NO_SUCH_PATH = 3
GROWTH = 0.15
# As `meson setup --buildtype=release` compiles the kernels; -g only names the function that is counted.
FLAGS = ["-std=gnu11", "-O3", "-DNDEBUG", "-fPIC", "-g", "-Wno-unused-function"]

Counts = dict[str, dict[str, int]]
"""Instructions by path and kernel."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison found: lines to print, those of `failures` fail the run."""

    failures: list[str]
    notes: list[str]


def compiler() -> list[str]:
    """Return the command of the C compiler, which ``CC`` overrides."""
    return shlex.split(os.environ.get("CC", "cc"))


def compiler_version(cc: list[str]) -> str:
    """Return for example ``"gcc 12.2.0 x86_64"``: what the recorded numbers are kept by."""
    out = subprocess.run(
        [*cc, "-dM", "-E", "-x", "c", os.devnull], capture_output=True, text=True, check=True
    ).stdout
    macros = dict(re.findall(r"^#define (\w+) (.*)$", out, re.MULTILINE))
    family = "clang" if "__clang__" in macros else "gcc"
    names = (
        ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
        if family == "clang"
        else ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    )
    return f"{family} {'.'.join(macros[name] for name in names)} {platform.machine()}"


def compile_driver(cc: list[str], target: Path, flags: list[str]) -> None:
    """Compile the driver to the program `target`."""
    include = f"-I{ROOT / 'cython_kernels'}"
    subprocess.run([*cc, *flags, include, str(DRIVER), "-o", str(target), "-pthread"], check=True)


def parse_count(text: str) -> int:
    """Return the instruction count in callgrind's output file.

    Raises
    ------
    ValueError
        If nothing was counted.
    """
    found = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
    if found is None or int(found[1]) == 0:
        raise ValueError("callgrind counted nothing: is the function `measured` still in the driver?")
    return int(found[1])


def count(driver: Path, path: str, kernel: str) -> int | None:
    """Return the instructions of one kernel, None where this machine does not have the path."""
    out = driver.with_name(f"{kernel}.{path}.callgrind")
    valgrind = [
        "valgrind",
        "--quiet",
        "--tool=callgrind",
        "--collect-atstart=no",
        "--toggle-collect=measured",
    ]
    done = subprocess.run(
        [*valgrind, f"--callgrind-out-file={out}", str(driver), kernel, path, "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == NO_SUCH_PATH and path != "portable":
        return None
    if done.returncode != 0:
        raise SystemExit(f"{kernel} ({path}) failed under callgrind:\n{done.stdout}{done.stderr}")
    return parse_count(out.read_text(encoding="utf-8"))


def count_all(cc: list[str]) -> Counts:
    """Compile the driver and count every kernel by every path."""
    with tempfile.TemporaryDirectory(prefix="colstore-io-counts-") as folder:
        driver = Path(folder) / "driver"
        compile_driver(cc, driver, FLAGS)
        jobs = [(path, kernel) for path in PATHS for kernel in (KERNELS if path == PATHS[0] else VERSIONED)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(lambda job: count(driver, *job), jobs))
    counts: Counts = {}
    for (path, kernel), instructions in zip(jobs, found, strict=True):
        if instructions is not None:
            counts.setdefault(path, {})[kernel] = instructions
    return counts


def compare(counts: Counts, recorded: Mapping[str, Mapping[str, int]]) -> Verdict:
    """Compare with the numbers recorded for the same compiler version.

    A kernel fails when it has grown by more than 15 %, or has no number yet. One that shrank as much, or was recorded
    by a path that this machine does not have, is noted.
    """
    failures, notes = [], []
    for path, kernels in counts.items():
        for kernel, now in kernels.items():
            before = recorded.get(path, {}).get(kernel)
            if before is None:
                failures.append(f"{kernel} ({path}) has no recorded number")
            elif now > before * (1 + GROWTH):
                failures.append(
                    f"{kernel} ({path}) grew from {before} to {now} instructions: +{now / before - 1:.0%}"
                )
            elif now < before * (1 - GROWTH):
                notes.append(f"{kernel} ({path}) shrank from {before} to {now}: record it, to keep the gain")
    missing = [path for path in recorded if path not in counts]
    notes += [f"this machine has no {path} instructions" for path in missing]
    return Verdict(failures, notes)


def record(counts: Counts, version: str, file: Path = RECORD) -> None:
    """Write `counts` as the numbers of this compiler version; those of others stay."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known[version] = counts
    file.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="write the numbers instead of comparing")
    parser.add_argument("--report", type=Path, help="JSON file with the counts of passed, failed and skipped")
    arguments = parser.parse_args()

    def finish(outcome: str) -> None:
        if arguments.report:
            counts = {name: int(name == outcome) for name in ("passed", "failed", "skipped")}
            arguments.report.write_text(json.dumps(counts) + "\n", encoding="utf-8")
        sys.exit(1 if outcome == "failed" else 0)

    cc = compiler()
    for program in ("valgrind", cc[0]):
        if shutil.which(program) is None:
            print(f"skipped: no instruction counts without {program} (Debian: apt-get install valgrind gcc)")
            finish("skipped")
    version = compiler_version(cc)
    counts = count_all(cc)
    print(f"instructions, {version}\n  {'':17}" + "".join(f"{path:>12}" for path in counts))
    for kernel in KERNELS:
        print(f"  {kernel:17}" + "".join(f"{kernels.get(kernel, ''):12}" for kernels in counts.values()))
    if arguments.record:
        record(counts, version)
        print(f"recorded in {RECORD.relative_to(ROOT)}")
        finish("passed")
    known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if version not in known:
        print(
            f"no verdict: numbers are recorded for {', '.join(known) or 'no compiler'} only (--record adds yours)"
        )
        finish("skipped")
    verdict = compare(counts, known[version])
    for line in verdict.notes:
        print(f"note: {line}")
    for line in verdict.failures:
        print(f"FAILED: {line}")
    if verdict.failures:
        print("Meant? Then run tools/count_instructions.py --record, and say why in the change.")
    finish("failed" if verdict.failures else "passed")


if __name__ == "__main__":
    main()
