"""Run the kernels under sanitizers: ``sanitize.py [--only threads|driver|python|fuzz] [--seconds N] [--target NAME]``.

* ``threads``: ThreadSanitizer on tests/kernels/driver.c, which runs the same inline kernels on plain threads (under
  libgomp, whose barriers it does not see, it reports races that are none).
* ``driver``: AddressSanitizer and UndefinedBehaviorSanitizer, alignment included, on the same driver.
* ``python``: the package, built with these two, passes the tests of every kernel (`KERNEL_TESTS`).
* ``fuzz``, only when asked for: tools/fuzz.py on that build, ``--seconds`` for each target, or for each ``--target``.

The build is kept in ``--build``, and used again while nothing that it was made of has changed. Needs GCC or Clang with
its sanitizer libraries, and, for ``python`` and ``fuzz``, what building the package needs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from count_instructions import ROOT, compile_driver, compiler, compiler_version

ADDRESS = "address,undefined"
THREADS = "4"
STAMP = "sources.sha256"

KERNELS = "tests/kernels"
COLBIN = "tests/formats/colbin"
COLUMNS = "tests/formats/columns"
KERNEL_TESTS: dict[str, tuple[str, ...]] = {
    "colbin": tuple(
        f"{COLBIN}/test_{name}.py" for name in ("codec", "codec_fences", "codec_laws", "codec_vectors")
    ),
    "column_codec": (f"{KERNELS}/test_column_codec.py", f"{KERNELS}/test_colbin_guard_pages.py"),
    "compare": (f"{KERNELS}/test_compare.py",),
    "copy": (f"{KERNELS}/test_copy.py",),
    "decode": (
        f"{KERNELS}/test_decode.py",
        *(f"{COLUMNS}/test_{name}.py" for name in ("chunks", "damage")),
    ),
    "encode": (f"{KERNELS}/test_encode.py", f"{COLUMNS}/test_encoder.py", f"{COLUMNS}/test_write_read.py"),
    "fixed_text": (f"{KERNELS}/test_fixed_text.py",),
    "footers": (f"{COLUMNS}/test_gob.py", f"{COLUMNS}/test_opened.py", f"{COLUMNS}/test_damage.py"),
    "grid": (f"{KERNELS}/test_grid.py", "tests/grid/test_reading.py"),
    "heads": (f"{KERNELS}/test_heads.py",),
    "json_walk": (f"{COLBIN}/test_walk.py",),
    "message_log": (f"{COLBIN}/test_log.py",),
    "outputs": ("tests/test_buffers.py",),
    "packed5": (f"{KERNELS}/test_packed5.py",),
    "record_columns": (f"{COLBIN}/test_tables.py", f"{COLBIN}/test_messages.py", f"{COLBIN}/test_encode.py"),
    "records": (f"{KERNELS}/test_records.py", "tests/formats/cstore/test_records.py"),
    "segments": (
        f"{KERNELS}/test_segments.py",
        f"{KERNELS}/test_guard_pages.py",
        f"{KERNELS}/test_misuse.py",
    ),
    "shortcuts": ("tests/test_small_reads.py",),
    "tokens": (f"{KERNELS}/test_tokens.py", f"{COLUMNS}/test_tokenized.py", f"{COLUMNS}/test_tokenizer.py"),
}
"""What each kernel must pass under the sanitizers: its own tests, and those that hand damaged bytes to it."""

# Every finding ends the process. Leaks are not looked for: CPython keeps what it allocated until the end.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=66",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1:exitcode=66",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
}
# One allocation above what a fuzzed input may take fails, as it does where the address space is limited.
FUZZ_OPTIONS = {
    "ASAN_OPTIONS": OPTIONS["ASAN_OPTIONS"] + ":allocator_may_return_null=1:max_allocation_size_mb=1024",
    "FUZZ_SANITIZED": "1",
}


def run(command: list[str], environment: dict[str, str]) -> bool:
    """Run a command, say which and how long it took, and return whether it succeeded."""
    print(f"=== {' '.join(command)}", flush=True)
    begin = time.perf_counter()
    status = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode
    print(f"=== exit status {status} after {time.perf_counter() - begin:.0f} s", flush=True)
    return status == 0


def run_driver(cc: list[str], sanitizer: str, threads: str) -> bool:
    """Compile the driver with `sanitizer` and run all kernels by all paths."""
    with tempfile.TemporaryDirectory(prefix="colstore-io-sanitize-") as folder:
        program = Path(folder) / f"driver_{sanitizer.split(',')[0]}"
        flags = ["-std=gnu11", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
        compile_driver(cc, program, [*flags, "-Wno-unused-function"])
        return run([str(program), "all", "all", threads], OPTIONS)


def library(cc: list[str], name: str) -> str:
    """Return the full path of a shared library of the compiler."""
    asked = subprocess.run([*cc, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    found = Path(asked.stdout.strip())
    if not found.is_absolute():
        raise SystemExit(f"{name} is not installed (Debian: apt-get install libgcc-12-dev)")
    return str(found.resolve())


def digest_of_sources(version: str) -> str:
    """Return a digest of all that the package is built of, and of the compiler's version."""
    digest = hashlib.sha256(version.encode())
    files = [ROOT / name for name in ("pyproject.toml", "meson.build", "meson.options", "tools/sanitize.py")]
    for folder in ("colstore_io", "cython_kernels", "integrations"):
        found = (ROOT / folder).rglob("*")
        files += sorted(path for path in found if path.suffix in (".py", ".pyi", ".pyx", ".h", ".build"))
    for path in files:
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def build_package(cc: list[str], package: Path) -> bool:
    """Install the package, built with sanitizers, into the folder `package`, unless it is there."""
    digest = digest_of_sources(compiler_version(cc))
    stamp = package / STAMP
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        print(f"=== {package} is up to date")
        return True
    shutil.rmtree(package, ignore_errors=True)
    setup = [f"-Db_sanitize={ADDRESS}", "-Doptimization=1", "-Ddebug=true", "-Db_lundef=false"]
    setup.append("-Dc_args=-fno-sanitize-recover=all -g1")
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps"]
    if not run([*pip, f"--target={package}", *(f"-Csetup-args={word}" for word in setup), "."], {}):
        return False
    stamp.write_text(digest, encoding="utf-8")
    return True


def sanitized(cc: list[str], package: Path) -> dict[str, str] | None:
    """Build the package, and return the environment that runs Python with it; None when that failed."""
    if not build_package(cc, package):
        return None
    environment = {
        **OPTIONS,
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
        return None
    return environment


def run_python(cc: list[str], package: Path) -> bool:
    """Run the tests of the kernels on the sanitized package."""
    environment = sanitized(cc, package)
    if environment is None:
        return False
    files = list(dict.fromkeys(file for files in KERNEL_TESTS.values() for file in files))
    # Slow tests are of sizes and times, which teach a sanitizer nothing.
    # Hypothesis' profile "ci" sets no time for an example: all is slower here.
    options = ["-q", "-p", "no:cacheprovider", "--timeout=600", "--hypothesis-profile=ci"]
    options += ["-m", "not slow and not service"]
    return run([sys.executable, "-m", "pytest", *options, *files], environment)


def run_fuzz(cc: list[str], package: Path, seconds: float, targets: list[str], engine: str) -> bool:
    """Run the fuzzer on the sanitized package.

    By default half of the time goes to each engine: the coverage that atheris sees is that of the Python code, so it
    has no more to go by than the other one in a target which is all kernel.
    """
    environment = sanitized(cc, package)
    if environment is None:
        return False
    engines = [engine]
    if engine == "auto":
        engines = ["atheris", "random"] if importlib.util.find_spec("atheris") else ["random"]
    sound = True
    for name in engines:
        command = [
            sys.executable,
            "tools/fuzz.py",
            f"--seconds={seconds / len(engines):g}",
            f"--engine={name}",
        ]
        sound &= run([*command, *(f"--target={name}" for name in targets)], {**environment, **FUZZ_OPTIONS})
    return sound


def main() -> None:
    """Run the command line; the exit status is 1 when anything was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("threads", "driver", "python", "fuzz"))
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build", help="folder that keeps the sanitized package"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of fuzzing, for each target")
    parser.add_argument(
        "--target", action="append", default=[], help="fuzz only this; may be given several times"
    )
    parser.add_argument(
        "--engine", choices=("auto", "atheris", "random"), default="auto", help="of the fuzzer"
    )
    arguments = parser.parse_args()
    cc = compiler()
    package = arguments.build.resolve() / "sanitized"
    runs: dict[str, Callable[[], bool]] = {
        "threads": lambda: run_driver(cc, "thread", THREADS),
        "driver": lambda: run_driver(cc, ADDRESS, "1"),
        "python": lambda: run_python(cc, package),
        "fuzz": lambda: run_fuzz(cc, package, arguments.seconds, arguments.target, arguments.engine),
    }
    wanted = [arguments.only] if arguments.only else ["threads", "driver", "python"]
    failed = [part for part in wanted if not runs[part]()]
    print(f"sanitizers: {'failed: ' + ', '.join(failed) if failed else 'nothing found'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
