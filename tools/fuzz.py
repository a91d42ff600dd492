"""Feed damaged bytes to every decoder: ``fuzz.py [--target NAME] [--seconds N | --runs N] [--seed N] [--engine NAME]``.

Each target of `fuzz_targets` must raise nothing but the errors of this library, use at most `CPU_SECONDS` for one
input, and stay within `MEMORY_BYTES` more than it began with. Two engines make the inputs:

* ``atheris``: coverage-guided, of the Python code (``pip install atheris``). One process per target.
* ``random``: mutations of the seeds, and of inputs whose outcome was a new one. Needs nothing; deterministic, for one
  ``--seed``, when bounded by ``--runs``. Kernels built with sanitizers find most by it.

Inputs that break a promise are written to the folder ``--crashes`` and printed. A process that dies or hangs is
one more finding: the input at hand stands in memory that the parent shares.
``--input FILE --target NAME`` runs one input again.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import importlib.util
import json
import mmap
import os
import random
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from fuzz_targets import Target

sys.path.insert(
    0, str(Path(__file__).parent)
)  # for its neighbour, also where Python does not look there by itself

CPU_SECONDS = 2.0
"""Processor time that one input may take, by all threads."""
MEMORY_BYTES = 1 << 30
"""Address space that a process may take besides what it had before the first input."""
MAX_INPUT = 1 << 14
HANG_SECONDS = 60
"""Without a new input for so long, the process is ended; before the first one, and in sanitized runs, it has ten times
as long."""
CRASHES = Path("build") / "fuzz"
SANITIZED = "FUZZ_SANITIZED"
"""Environment variable of sanitized runs (tools/sanitize.py): inputs may take ten times as long, and the address space
is not limited, of which the address sanitizer reserves terabytes; it refuses large allocations by itself."""

_SLOT = struct.Struct("<QI")  # a number that changes with each input, and its length


# ---- the input at hand, in memory shared with the parent -----------------------------------------


class Slot:
    """A file that holds the input which a process is working on; both sides map it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(_SLOT.size + 32 + MAX_INPUT))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._count = 0

    def begin(self, target: str, data: bytes) -> None:
        self._count += 1
        self._memory[_SLOT.size : _SLOT.size + 32] = target.encode().ljust(32)
        self._memory[_SLOT.size + 32 : _SLOT.size + 32 + len(data)] = data
        self._memory[: _SLOT.size] = _SLOT.pack(self._count, len(data))

    def note(self, target: str) -> None:
        """Remember that `target` broke a promise."""
        with self.path.with_suffix(".bad").open("a", encoding="utf-8") as file:
            file.write(target + "\n")

    def noted(self) -> set[str]:
        path = self.path.with_suffix(".bad")
        return set(path.read_text(encoding="utf-8").split()) if path.exists() else set()

    def read(self) -> tuple[int, str, bytes]:
        count, length = _SLOT.unpack(self._memory[: _SLOT.size])
        start = _SLOT.size + 32
        target = self._memory[_SLOT.size : start].decode().strip()
        return count, target, bytes(self._memory[start : start + length])


# ---- one input -----------------------------------------------------------------------------------


class Runner:
    """Runs inputs of one target and keeps its promises.

    Parameters
    ----------
    name : str
    target : Target
    crashes : Path
        Folder for inputs that broke a promise; made when the first one does.
    slot : Slot, optional
    """

    def __init__(self, name: str, target: Target, crashes: Path, slot: Slot | None = None) -> None:
        self.name, self.target, self.crashes, self.slot = name, target, crashes, slot
        self.executions = self.findings = 0
        self._reported: set[str] = set()

    def __call__(self, data: bytes) -> str:
        """Run one input, and once more with its checksums mended; return what came of it."""
        outcome = self._one(data)
        if self.target.repair is not None:
            repaired = self.target.repair(data)
            if repaired != data:
                outcome += " / " + self._one(repaired)
        return outcome

    def _one(self, data: bytes) -> str:
        if self.slot is not None:
            self.slot.begin(self.name, data)
        self.executions += 1
        start = time.process_time()
        try:
            self.target.run(data)
            outcome = "fine"
        except self.target.allowed as exc:
            outcome = f"{type(exc).__name__}: {exc}"
        except Exception as exc:
            self._report(data, _where(exc), traceback.format_exc())
            outcome = type(exc).__name__
        used = time.process_time() - start
        if used > CPU_SECONDS * (10 if os.environ.get(SANITIZED) else 1):
            self._report(data, "slow", f"one input of {len(data)} bytes took {used:.1f} s of processor time")
        return outcome

    def _report(self, data: bytes, kind: str, text: str) -> None:
        self.findings += 1
        if self.slot is not None:
            self.slot.note(self.name)
        if kind not in self._reported:
            self._reported.add(kind)
            save(self.crashes, self.name, data, text)


def _where(exc: BaseException) -> str:
    """Return type and innermost place of an exception: what makes two findings the same."""
    frames = traceback.extract_tb(exc.__traceback__)
    return f"{type(exc).__name__} {frames[-1].filename}:{frames[-1].lineno}"


def save(crashes: Path, target: str, data: bytes, text: str) -> None:
    """Write one finding to its own file, and print it."""
    crashes.mkdir(parents=True, exist_ok=True)
    path = crashes / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    path.with_suffix(".txt").write_text(text, encoding="utf-8")
    shown = data.hex() if len(data) <= 200 else data[:200].hex() + "..."
    print(f"FOUND {target}: {path} ({len(data)} bytes)\n  {shown}\n{text}", flush=True)


def limit_memory() -> None:
    """Let allocations fail above the bound: then a `MemoryError` is the finding."""
    if os.environ.get(SANITIZED) or not Path("/proc/self/statm").exists():
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


# ---- the random engine ---------------------------------------------------------------------------

_BYTES = (0, 1, 2, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 191, 192, 208, 216, 223, 240, 247, 248, 254, 255)
_NUMBERS = (
    *(0, 1, 2, 255, 256, 65535, 65536, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1),
    *(1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
)
_DIGITS = re.compile(r"0x[0-9a-f]+|\d+")


def mutations(seeds: list[bytes], generator: random.Random, corpus: list[bytes]) -> Iterator[bytes]:
    """Yield the seeds, then damaged copies of what is in `corpus`, without end."""
    yield from seeds
    while True:
        data = bytearray(generator.choice(corpus if generator.random() < 0.5 and corpus else seeds))
        for _ in range(generator.choice((1, 1, 1, 2, 2, 3, 5, 8))):
            mutate(data, generator, seeds)
        yield bytes(data[:MAX_INPUT])


def mutate(data: bytearray, generator: random.Random, seeds: list[bytes]) -> None:
    """Damage `data` in one place."""
    kind = generator.randrange(10)
    at = generator.randrange(len(data)) if data else 0
    if not data or kind == 0:
        data[at:at] = generator.randbytes(generator.choice((1, 1, 2, 4, 8, 32)))
    elif kind == 1:
        data[at] ^= 1 << generator.randrange(8)
    elif kind <= 3:
        data[at] = generator.choice(_BYTES)
    elif kind == 4:
        data[at] = generator.randrange(256)
    elif kind == 5:
        width = generator.choice((2, 4, 8))
        number = generator.choice((*_NUMBERS, len(data), len(data) - at)) & ((1 << 8 * width) - 1)
        data[at : at + width] = number.to_bytes(width, generator.choice(("little", "big")))
    elif kind == 6:
        del data[at : at + generator.choice((1, 1, 2, 4, 8, 64))]
    elif kind == 7:
        piece = data[at : at + generator.choice((1, 4, 16, 64))]
        data[at:at] = piece * generator.choice((1, 1, 2, 16))
    elif kind == 8:
        other = generator.choice(seeds)
        start = generator.randrange(len(other)) if other else 0
        piece = bytearray(other[start : start + generator.choice((1, 4, 16, 64, 256))])
        data[at : at + (len(piece) if generator.random() < 0.5 else 0)] = piece
    elif generator.random() < 0.3:
        del data[at:]


def run_random(runner: Runner, seed: int, *, runs: int | None, seconds: float | None) -> None:
    """Run mutated inputs until one bound is reached."""
    generator = random.Random(f"{runner.name} {seed}")
    seeds = runner.target.seeds()
    corpus: list[bytes] = []
    known: set[str] = set()
    stop = None if seconds is None else time.monotonic() + seconds
    for number, data in enumerate(mutations(seeds, generator, corpus)):
        if (runs is not None and number >= runs) or (stop is not None and time.monotonic() > stop):
            return
        outcome = _DIGITS.sub("0", runner(data))
        if (
            outcome not in known and len(known) < 4096
        ):  # something that no input did before is worth a second look
            known.add(outcome)
            corpus.append(data)


# ---- the process of a target ---------------------------------------------------------------------


def work(arguments: argparse.Namespace) -> NoReturn:
    """Run targets in this process; the exit status is 1 when there were findings."""
    faulthandler.enable()
    slot = Slot(arguments.slot)
    if arguments.engine == "atheris":
        _work_with_atheris(arguments, slot)
    from fuzz_targets import TARGETS

    found = False
    limited = False
    for name in arguments.target:
        runner = Runner(name, TARGETS[name], arguments.crashes, slot)
        for data in runner.target.seeds()[:1]:
            runner(data)  # imports what it needs before memory is limited
        if not limited:
            limit_memory()
            limited = True
        runs = arguments.runs and max(1, arguments.runs // runner.target.cost)
        run_random(runner, arguments.seed, runs=runs, seconds=arguments.seconds)
        print(f"{name}: {runner.executions} executions, {runner.findings} findings", flush=True)
        found |= runner.findings > 0
    sys.exit(1 if found else 0)


def _work_with_atheris(arguments: argparse.Namespace, slot: Slot) -> NoReturn:
    import atheris

    with atheris.instrument_imports(include=["colstore_io"]):
        import fuzz_targets
    (name,) = arguments.target
    runner = Runner(name, fuzz_targets.TARGETS[name], arguments.crashes, slot)
    with tempfile.TemporaryDirectory(prefix="colstore-io-fuzz-") as folder:
        seeds = runner.target.seeds()
        with atheris.instrument_imports(include=["colstore_io"]):
            for number, data in enumerate(seeds):
                Path(folder, f"{number:04}").write_bytes(data)
                runner(data)
        limit_memory()
        bound = [f"-max_total_time={arguments.seconds:.0f}"] if arguments.seconds else []
        bound += [f"-runs={arguments.runs}"] if arguments.runs else []
        fixed = [
            f"-seed={arguments.seed + 1}",
            f"-max_len={MAX_INPUT}",
            "-rss_limit_mb=0",
            "-timeout=60",
            "-verbosity=0",
        ]

        def one(data: bytes) -> None:
            runner(data)

        atheris.Setup([sys.argv[0], *fixed, *bound, f"-artifact_prefix={folder}/", folder], one)
        atheris.Fuzz()  # ends the process
    sys.exit(1 if runner.findings else 0)


# ---- the parent ----------------------------------------------------------------------------------


def supervise(arguments: argparse.Namespace, targets: list[str], folder: Path) -> set[str]:
    """Run `targets` in a process of their own; return those with findings. A target that kills it is left out then."""
    bad: set[str] = set()
    left = list(targets)
    while left:
        path = folder / f"slot-{len(left)}"
        slot = Slot(path)
        command = [
            sys.executable,
            __file__,
            "--worker",
            "--slot",
            str(path),
            "--crashes",
            str(arguments.crashes),
        ]
        command += ["--engine", arguments.engine, "--seed", str(arguments.seed)]
        command += ["--seconds", str(arguments.seconds)] if arguments.seconds else []
        command += ["--runs", str(arguments.runs)] if arguments.runs else []
        for name in left:
            command += ["--target", name]
        status = _watch(command, slot, folder)
        bad |= slot.noted()
        executions, name, data = slot.read()
        if arguments.engine == "atheris":
            print(f"{left[0]}: {executions} executions", flush=True)
        if status in (0, 1) and executions:
            break
        name = name if name in left else left[0]
        save(arguments.crashes, name, data, f"the process ended with status {status} at this input")
        bad.add(name)
        left = left[left.index(name) + 1 :]
    return bad


def _watch(command: list[str], slot: Slot, folder: Path) -> int:
    """Run a worker; one that makes no progress is killed. Its temporary files lie in `folder`: it may end uncleanly."""
    process = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(folder)})
    patience = HANG_SECONDS * (10 if os.environ.get(SANITIZED) else 1)
    last, since = -1, time.monotonic()
    try:
        while True:
            try:
                return process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                count = slot.read()[0]
                if count != last:
                    last, since = count, time.monotonic()
                elif time.monotonic() - since > (patience if count else 10 * HANG_SECONDS):
                    process.kill()
                    return process.wait()
    except BaseException:
        process.kill()
        raise


def parse_arguments() -> argparse.Namespace:
    """Return the command line; ``targets`` are the chosen ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", action="append", help="only this one; may be given several times")
    parser.add_argument("--seconds", type=float, help="for each target; 60 unless --runs is given")
    parser.add_argument(
        "--runs", type=int, help="inputs for each target, fewer of those that read whole files"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("auto", "atheris", "random"), default="auto")
    parser.add_argument(
        "--crashes", type=Path, default=CRASHES, help="folder for inputs that broke a promise"
    )
    parser.add_argument("--input", type=Path, help="run this one input of the one --target again")
    parser.add_argument("--report", type=Path, help="JSON file with the counts of passed and failed targets")
    parser.add_argument("--list", action="store_true", help="print the names of the targets")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--slot", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine == "auto":
        arguments.engine = "atheris" if importlib.util.find_spec("atheris") else "random"
    if arguments.seconds is None and arguments.runs is None:
        arguments.seconds = 60.0
    return arguments


def main() -> None:
    """Run the command line; the exit status is 1 when anything was found."""
    arguments = parse_arguments()
    if arguments.worker:
        work(arguments)
    from fuzz_targets import TARGETS

    if arguments.list:
        print("\n".join(TARGETS))
        return
    targets = arguments.target or list(TARGETS)
    for name in targets:
        if name not in TARGETS:
            sys.exit(f"no target {name!r}; targets are {', '.join(TARGETS)}")
    if arguments.input is not None:
        runner = Runner(targets[0], TARGETS[targets[0]], arguments.crashes)
        print(runner._one(arguments.input.read_bytes()))
        sys.exit(1 if runner.findings else 0)
    bad: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="colstore-io-fuzz-") as folder:
        # libFuzzer knows one target per process.
        groups = [[name] for name in targets] if arguments.engine == "atheris" else [targets]
        for number, group in enumerate(groups):
            place = Path(folder, str(number))
            place.mkdir()
            bad |= supervise(arguments, group, place)
    if arguments.report:
        counts: dict[str, Any] = {"passed": len(targets) - len(bad), "failed": len(bad)}
        arguments.report.write_text(json.dumps(counts) + "\n", encoding="utf-8")
    print(
        f"fuzzing ({arguments.engine}): {'findings in ' + ', '.join(sorted(bad)) if bad else 'nothing found'}"
    )
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
