"""What the machine can do from memory to memory: ``limit`` by NumPy in one thread, ``limit_c`` compiled, all cores.

Both write into outputs that exist already, so neither pays for fresh memory. Without a C compiler there is no
``limit_c``.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Outputs", "compiled", "compiled_rows", "gate", "numpy_rows"]

SOURCE = Path(__file__).with_name("limits.c")
THREADS = len(os.sched_getaffinity(0))
MASK_CHUNK_ROWS = 65536
Arrays = Sequence[np.ndarray]


class Outputs:
    """Arrays that are made once and reused, their pages touched."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int, np.dtype[Any]], np.ndarray] = {}

    def __call__(self, n: int, dtypes: Sequence[Any]) -> list[np.ndarray]:
        """Return one array of `n` items for each dtype."""
        keys = [(number, n, np.dtype(dtype)) for number, dtype in enumerate(dtypes)]
        for key in keys:
            if key not in self._kept:
                self._kept[key] = np.ones(n, key[2])
        return [self._kept[key] for key in keys]


@cache
def compiled() -> ctypes.CDLL | None:
    """Compile and load limits.c; None without a compiler that can."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/limits.so"
        command = [os.environ.get("CC", "gcc"), "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-w"]
        try:
            subprocess.run([*command, str(SOURCE), "-o", library], check=True, capture_output=True)
            return ctypes.CDLL(library)
        except (OSError, subprocess.CalledProcessError):
            return None


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def numpy_rows(key: Any, columns: Arrays, outputs: Outputs) -> None:
    """Do ``column[key]`` for each column, in one thread; `key` is None (all rows), a slice, row numbers or a mask."""
    mask = isinstance(key, np.ndarray) and key.dtype == np.bool_
    if key is None or isinstance(key, slice):
        picked = columns if key is None else [column[key] for column in columns]
        for column, out in zip(picked, outputs(len(picked[0]), [c.dtype for c in columns]), strict=True):
            np.copyto(out, column)
        return
    n = int(np.count_nonzero(key)) if mask else len(key)
    for column, out in zip(columns, outputs(n, [c.dtype for c in columns]), strict=True):
        if mask:
            np.compress(key, column, out=out)
        else:
            np.take(column, key, out=out, mode="clip")  # "raise" would go through a copy of `out`


def has_compiled_rows(key: Any, columns: Arrays) -> bool:
    """Return whether `compiled_rows` can do this."""
    if compiled() is None or isinstance(key, slice):
        return False
    return key is None or key.dtype == np.int64 or all(column.itemsize == 8 for column in columns)


def compiled_rows(key: Any, columns: Arrays, outputs: Outputs) -> list[np.ndarray]:
    """Do the same as `numpy_rows` by limits.c, with all cores, and return the outputs (cut to the rows of a mask)."""
    library = compiled()
    assert library is not None
    threads = ctypes.c_int(THREADS)
    dtypes = [column.dtype for column in columns]
    if key is None:
        outs = outputs(len(columns[0]), dtypes)
        for column, out in zip(columns, outs, strict=True):
            library.limit_copy(_address(out), _address(column), ctypes.c_int64(column.nbytes), threads)
        return outs
    if key.dtype == np.int64:
        outs = outputs(len(key), dtypes)
        pointers = ctypes.c_void_p * len(columns)
        library.limit_gather(
            pointers(*(out.ctypes.data for out in outs)),
            pointers(*(column.ctypes.data for column in columns)),
            (ctypes.c_int * len(columns))(*(column.itemsize for column in columns)),
            ctypes.c_int(len(columns)),
            _address(key),
            ctypes.c_int64(len(key)),
            threads,
        )
        return outs
    n = len(key)
    (counts,) = outputs(n // MASK_CHUNK_ROWS + 2, [np.int64])
    outs = outputs(n, dtypes)
    for column, out in zip(columns, outs, strict=True):
        size = ctypes.c_int64(n)
        library.limit_mask(_address(out), _address(column), _address(key), size, _address(counts), threads)
    return [out[: counts[-(-n // MASK_CHUNK_ROWS)]] for out in outs]


def known_rows(addresses: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Gather the items at `addresses` (int64, of mapped files) into `out` by limits.c, with all cores."""
    library = compiled()
    assert library is not None
    library.limit_gather_known(
        _address(out),
        ctypes.c_int(out.itemsize),
        _address(addresses),
        ctypes.c_int64(len(addresses)),
        ctypes.c_int(THREADS),
    )
    return out


def gate(columns: Arrays, outputs: Outputs, rounds: int = 7) -> float | None:
    """Return median limit_c / limit of copying all columns: above 0.7, somebody else had a core (or there is one)."""
    if compiled() is None:
        return None
    seconds: dict[Any, list[float]] = {numpy_rows: [], compiled_rows: []}
    for number in range(rounds + 1):
        for copy, taken in seconds.items():
            begin = time.perf_counter()
            copy(None, columns, outputs)
            if number:  # the first round touches the outputs
                taken.append(time.perf_counter() - begin)
    return statistics.median(seconds[compiled_rows]) / statistics.median(seconds[numpy_rows])
