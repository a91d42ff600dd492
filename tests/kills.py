"""Writers that are killed at a moment of nobody's choice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from colstore_io.writing.merging import open_sources

_APPEND_FOREVER = """
import sys
import numpy as np
from colstore_io import config
from colstore_io.writing.writer import Writer
path, seed, largest, durability = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
config.set_durability(durability)
rng = np.random.default_rng(seed)
writer = Writer(path, "update", statistics=bool(seed % 2))
n = len(writer)
print("open", n, flush=True)
while True:
    for _ in range(int(rng.integers(1, 4))):
        size = int(rng.choice([1, 50, largest]))
        writer.write({"x": np.arange(n, n + size)})
        n += size
    writer.commit()
    print("committed", n, flush=True)
"""


def kill_appends(
    path: Path, *, rounds: int, seed: int, largest: int, durability: str = "full"
) -> Iterator[int]:
    """Kill one process after the other that appends the rows 0, 1, 2, ... of column "x" to a file.

    Parameters
    ----------
    path : Path
        Of a file with that column, which may be empty.
    rounds : int
    seed : int
        Of the moments.
    largest : int
        Rows of the largest record.
    durability : {"full", "process"}

    Yields
    ------
    int
        After each kill, how many rows had been committed at least: before the process, or as it had told.
    """
    moments = random.Random(seed)
    for number in range(rounds):
        source = open_sources([path])[0]
        with source.file:
            before = source.meta.n_rows
        with subprocess.Popen(
            [sys.executable, "-c", _APPEND_FOREVER, str(path), str(number), str(largest), durability],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f"open {before}\n"
            time.sleep(moments.uniform(0.0, 0.15))
            process.send_signal(signal.SIGKILL)
            lines = process.stdout.read().splitlines(keepends=True)
        told = [int(line.split()[1]) for line in lines if line.endswith("\n")]
        yield max([before, *told])
