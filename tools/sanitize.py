"""Run the kernels under sanitizers: ``sanitize.py [--only threads|driver|python]``.

* ``threads``: ThreadSanitizer on tests/kernels/driver.c, which runs the same inline kernels on plain threads (under
  libgomp, whose barriers it does not see, it reports races that are none).
* ``driver``: AddressSanitizer and UndefinedBehaviorSanitizer, alignment included, on the same driver.
* ``python``: the package, built with these two in a throw-away folder, passes tests/kernels, and reads
  damaged columns files, messages and logs.

Needs GCC or Clang with its sanitizer libraries, and, for ``python``, what building the package needs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from count_instructions import ROOT, compile_driver, compiler

ADDRESS = "address,undefined"
THREADS = "4"
HOSTILE = [
    *(f"tests/formats/columns/test_{name}.py" for name in ("chunks", "damage", "gob", "tokenized")),
    *(
        f"tests/formats/colbin/test_{name}.py"
        for name in ("codec_fences", "codec_laws", "log", "messages", "walk")
    ),
]
"""Tests that hand damaged bytes to the kernels, besides those of tests/kernels."""


def run(command: list[str], environment: dict[str, str], where: Path = ROOT) -> bool:
    """Run a command, say which, and return whether it succeeded."""
    print(f"=== {' '.join(command)}", flush=True)
    status = subprocess.run(command, cwd=where, env={**os.environ, **environment}, check=False).returncode
    return status == 0


def options() -> dict[str, str]:
    """Return environment variables: every finding ends the process, leaks are not looked for.

    CPython keeps what it allocated until the end, which would count as leaked.
    """
    return {
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=66",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1:exitcode=66",
        "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
    }


def run_driver(cc: list[str], folder: Path, sanitizer: str, threads: str) -> bool:
    """Compile the driver with `sanitizer` and run all kernels by all paths."""
    program = folder / f"driver_{sanitizer.split(',')[0]}"
    flags = [
        "-std=gnu11",
        "-O1",
        "-g",
        f"-fsanitize={sanitizer}",
        "-fno-sanitize-recover=all",
        "-Wno-unused-function",
    ]
    compile_driver(cc, program, flags)
    return run([str(program), "all", "all", threads], options())


def library(cc: list[str], name: str) -> str:
    """Return the full path of a shared library of the compiler."""
    asked = subprocess.run([*cc, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    found = Path(asked.stdout.strip())
    if not found.is_absolute():
        raise SystemExit(f"{name} is not installed (Debian: apt-get install libgcc-12-dev)")
    return str(found.resolve())


def run_python(cc: list[str], folder: Path) -> bool:
    """Build the package with sanitizers into `folder`, and run the tests of the kernels on it."""
    package = folder / "package"
    setup = [f"-Db_sanitize={ADDRESS}", "-Doptimization=1", "-Ddebug=true", "-Db_lundef=false"]
    setup.append("-Dc_args=-fno-sanitize-recover=all")
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps"]
    install = [*pip, f"--target={package}", *(f"-Csetup-args={word}" for word in setup), "."]
    if not run(install, {}):
        return False
    environment = {
        **options(),
        "LD_PRELOAD": library(cc, "libasan.so"),  # the interpreter itself is not built with it
        "PYTHONMALLOC": "malloc",  # else an overrun stays inside one of Python's own blocks, unseen
        "PYTHONPATH": str(package),
        "PYTHONSAFEPATH": "1",
    }
    check = f"import colstore_io.kernels.segments as s; assert s.__file__.startswith({str(package)!r}), s.__file__"
    if not run([sys.executable, "-c", check], environment):
        print(
            "the sanitized package is not the one that is imported; an editable install hides it (make clean)"
        )
        return False
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=900", "tests/kernels", *HOSTILE]
    return run([sys.executable, *pytest], environment)


def main() -> None:
    """Run the command line; the exit status is 1 when anything was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("threads", "driver", "python"))
    only = parser.parse_args().only
    cc = compiler()
    failed = []
    with tempfile.TemporaryDirectory(prefix="colstore-io-sanitize-") as name:
        folder = Path(name)
        runs: dict[str, Callable[[], bool]] = {
            "threads": lambda: run_driver(cc, folder, "thread", THREADS),
            "driver": lambda: run_driver(cc, folder, ADDRESS, "1"),
            "python": lambda: run_python(cc, folder),
        }
        for part, call in runs.items():
            if only in (None, part) and not call():
                failed.append(part)
    print(f"sanitizers: {'failed: ' + ', '.join(failed) if failed else 'nothing found'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
