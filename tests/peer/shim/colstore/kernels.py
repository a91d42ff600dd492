"""The reference's ``colstore.kernels``: thin functions over our kernels."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colstore_io import config

from . import _gather
from ._gather import interleave_records, max_threads, parallel_copy_runs
from ._missing import missing

__all__ = [
    "cpp_available",
    "gather",
    "interleave_records",
    "max_threads",
    "parallel_copy_runs",
    "read_record_index",
]

Array = NDArray[Any]
_CPP_AVAILABLE = True  # tests set it to False


def cpp_available() -> bool:
    """Return whether there are compiled kernels; without them our package does not import."""
    return _CPP_AVAILABLE


def gather(
    source: Array,
    indices: Array,
    dtype: np.dtype[Any],
    *,
    backend: str = "cpp",
    thread_cap: int | None = None,
) -> Array:
    """Return ``source[indices]`` in native byte order."""
    if backend == "numpy" or not source.dtype.isnative:
        return source[indices].astype(dtype)
    output: Array = np.empty(len(indices), dtype=dtype)
    cap = config.get_gather_thread_cap() if thread_cap is None else thread_cap
    _gather.gather_into(source, indices, output, cap)
    return output


def read_record_index(
    path: str | PathLike[str], data_offset: int, n_records: int, itemsizes: list[int]
) -> tuple[Array, Array, Array]:
    """Walk the record headers of a file: cumulated rows, starts of the bodies, rows."""
    from .format import read_record_index as read

    return read(path, data_offset, n_records, itemsizes)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(__name__, name)
