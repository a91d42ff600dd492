"""What a target is, how large what it decodes may get, and how whole files are made and read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import colstore_io as cs
from colstore_io.errors import ColstoreError

MAX_ROWS = 1 << 16
MAX_DECODED_BYTES = 1 << 24
MAX_CELLS = 1 << 18
MAX_TEXT = 1 << 20

Seeds = Callable[[], list[bytes]]


@dataclass(frozen=True)
class Target:
    """One decoder.

    Attributes
    ----------
    run : callable
        Decodes bytes; what it raises, unless `allowed`, is a finding.
    seeds : callable
        Returns sound inputs.
    repair : callable, optional
        Returns the input with its checksums recomputed as far as that goes.
    allowed : tuple of exception types
    """

    run: Callable[[bytes], object]
    seeds: Seeds
    repair: Callable[[bytes], bytes] | None = None
    allowed: tuple[type[Exception], ...] = field(default=(ColstoreError,))
    cost: int = 1
    """About how many inputs of the fastest targets take as long as one of this: ``--runs`` is divided by it."""


def sample(rows: int) -> dict[str, Any]:
    numbers = np.arange(rows)
    return {
        "i": numbers.astype("i8") * 3,
        "b": numbers % 3 == 0,
        "f": (numbers / 7).astype("f4"),
        "u": (numbers * 37 % 256).astype("u1"),
        "t": pa.array([f"row-{n % 5}-Ä" for n in numbers.tolist()]),
        "n": pa.array([None if n % 4 == 0 else n for n in numbers.tolist()], pa.int32()),
        "r": pa.array([b"\0" * (n % 3) for n in numbers.tolist()], pa.binary()),
        "s": pa.array([None if n % 3 == 0 else "x" * (n % 4) for n in numbers.tolist()]),
    }


def written(name: str, *parts: Any, **options: Any) -> bytes:
    """Return the bytes of a file of one or more batches; `close=False` cuts its end off, as a crash does."""
    with tempfile.TemporaryDirectory(prefix="colstore-io-fuzz-") as folder:
        path = Path(folder) / name
        with cs.store(iter(parts) if len(parts) > 1 else parts[0], str(path), **options):
            pass
        return path.read_bytes()


def read_file(data: bytes) -> None:
    """Open a file and read every column, by the front door."""
    with cs.open(data, max_rows=MAX_ROWS, max_decoded_bytes=MAX_DECODED_BYTES) as table:
        cs.info(data)
        repr(table)
        for name in table.schema.names:
            column = table[name]
            if column.shape[0] <= MAX_ROWS:
                column.array()
                column.arrow()
            column.head(3)
        if 0 < table.n_rows <= MAX_ROWS and len(table.schema) <= 64:
            table[:: max(1, table.n_rows // 3)].dict()


def verify_file(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=memory_folder(), suffix=".data") as file:
        file.write(data)
        file.flush()
        cs.verify(file.name)


@cache
def memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
