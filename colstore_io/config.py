"""Process-wide settings (cstore-behaviour.md 12).

Explicit settings made here win over measured and compiled defaults. Bad values raise `ValueError`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Literal

from . import threads
from .arguments import check_integer
from .kernels import outputs

__all__ = [
    "get_decoded_cache_bytes",
    "get_default_backend",
    "get_default_madvise",
    "get_default_memory_budget",
    "get_durability",
    "get_gather_thread_cap",
    "get_max_workers",
    "get_numa_policy",
    "get_output_pool_bytes",
    "get_populate_policy",
    "get_prefetch_distance",
    "get_preview_memory_limit",
    "get_preview_precision",
    "get_preview_rows",
    "get_write_method",
    "set_decoded_cache_bytes",
    "set_default_backend",
    "set_default_madvise",
    "set_default_memory_budget",
    "set_durability",
    "set_gather_thread_cap",
    "set_max_workers",
    "set_numa_policy",
    "set_output_pool_bytes",
    "set_populate_policy",
    "set_prefetch_distance",
    "set_preview_memory_limit",
    "set_preview_precision",
    "set_preview_rows",
    "set_write_method",
]

MADVISE_VALUES = ("normal", "sequential", "random", "willneed", "dontneed")
BACKENDS = ("cpp", "numpy")
WRITE_METHODS = ("auto", "pwrite", "mmap")
DURABILITIES = ("full", "process")
NUMA_POLICIES = ("auto", "interleave", "local")
POPULATE_POLICIES = ("auto", "read", "populate", "willneed", "none")
MAX_PREFETCH_DISTANCE = 16384
DEFAULT_PREFETCH_DISTANCE = 96
"""Elements of look-ahead into L2; 64 to 256 measured alike (performance.md section 1)."""


def _default_output_pool_bytes() -> int:
    """256 MiB, or a sixteenth of the machine's memory where that is less; 0 where there is no such allocator."""
    if not outputs.available():
        return 0
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0
    return max(0, min(256 << 20, memory // 16))


@dataclass(slots=True)
class _Settings:
    max_workers: int = field(default_factory=threads.usable_cores)
    gather_thread_cap: int | None = None  # not set: see `tuning`
    default_madvise: str | None = None
    default_backend: str = "cpp"
    default_memory_budget: int = 32 << 20
    output_pool_bytes: int = field(default_factory=_default_output_pool_bytes)
    decoded_cache_bytes: int = 32 << 20
    prefetch_distance: int | Literal["auto"] = "auto"
    preview_rows: int = 10
    preview_precision: int = 6
    preview_memory_limit: int = 256 << 20
    write_method: Literal["auto", "pwrite", "mmap"] = "auto"
    durability: Literal["full", "process"] = "full"
    numa_policy: Literal["auto", "interleave", "local"] = "auto"
    populate_policy: Literal["auto", "read", "populate", "willneed", "none"] = "auto"


_settings = _Settings()
outputs.set_limit(_settings.output_pool_bytes)


def _at_least(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
    return value


def get_max_workers() -> int:
    """Return the number of threads that one multi-column read may use."""
    return _settings.max_workers


def set_max_workers(value: int) -> None:
    """Set the number of threads that one multi-column read may use (>= 1)."""
    _settings.max_workers = _at_least("max_workers", value, 1)


def explicit_gather_thread_cap() -> int | None:
    """Return the bound of threads per kernel call that was set, ``None`` when none was."""
    return _settings.gather_thread_cap


def get_gather_thread_cap() -> int:
    """Return the bound of threads per kernel call: the one set, else the calibrated one, else the usable cores."""
    from . import tuning  # above this module: it weighs settings against calibrations

    return tuning.gather_thread_cap()


def set_gather_thread_cap(value: int | Literal["auto"]) -> None:
    """Set the upper bound of threads per kernel call (>= 1). A call gets what the process budget has free.

    ``"auto"``, the default, is the calibrated bound, or the usable cores where nothing was calibrated.
    """
    _settings.gather_thread_cap = None if value == "auto" else _at_least("gather_thread_cap", value, 1)


def get_default_madvise() -> str | None:
    """Return the ``madvise`` advice of new opens; ``None`` means no call."""
    return _settings.default_madvise


def check_madvise(value: str | None) -> str | None:
    """Return `value` if it is an advice this library knows, else raise `ValueError`."""
    if value is not None and value not in MADVISE_VALUES:
        raise ValueError(f"madvise must be one of {', '.join(MADVISE_VALUES)} or None, got {value!r}")
    return value


def set_default_madvise(value: str | None) -> None:
    """Set the ``madvise`` advice of new opens."""
    _settings.default_madvise = check_madvise(value)


def get_default_backend() -> str:
    """Return the kernel family of new opens: ``"cpp"`` (compiled) or ``"numpy"`` (the twins)."""
    return _settings.default_backend


def check_backend(value: str) -> str:
    """Return `value` if it names a kernel family, else raise `ValueError`."""
    if value not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {value!r}")
    return value


def set_default_backend(value: str) -> None:
    """Set the kernel family of new opens."""
    _settings.default_backend = check_backend(value)


def get_default_memory_budget() -> int:
    """Return the bytes that one streaming step (concat, compact, batches) may hold."""
    return _settings.default_memory_budget


def set_default_memory_budget(value: int) -> None:
    """Set the bytes that one streaming step may hold (>= 1)."""
    _settings.default_memory_budget = _at_least("default_memory_budget", value, 1)


def get_decoded_cache_bytes() -> int:
    """Return how many bytes of decoded chunks an open table keeps, of encoded files that are read in small parts."""
    return _settings.decoded_cache_bytes


def set_decoded_cache_bytes(value: int) -> None:
    """Set how many bytes of decoded chunks an open table keeps (>= 0; 0 keeps none). The default is 32 MiB."""
    _settings.decoded_cache_bytes = _at_least("decoded_cache_bytes", value, 0)


def get_output_pool_bytes() -> int:
    """Return how many bytes of outputs that are no longer used are kept for the next ones."""
    return _settings.output_pool_bytes


def set_output_pool_bytes(value: int) -> None:
    """Set how many bytes of outputs that are no longer used are kept for the next ones.

    Parameters
    ----------
    value : int
        At least 0. 0 keeps nothing, gives back what is kept now, and takes outputs from `numpy.empty`. The default is
        256 MiB, or a sixteenth of the machine's memory where that is less; 0 on Windows, where nothing is kept.

    Raises
    ------
    ValueError
        If `value` is not an integer of at least 0.

    Notes
    -----
    Concerns arrays of 1 MiB and more. Memory is kept only when no array or view sees it any more, for the whole
    process, and not for the children that it forks.
    """
    checked = min(_at_least("output_pool_bytes", value, 0), sys.maxsize)
    _settings.output_pool_bytes = checked if outputs.available() else 0
    outputs.set_limit(_settings.output_pool_bytes)


def get_prefetch_distance() -> int | Literal["auto"]:
    """Return the look-ahead of gathers in elements, or ``"auto"``; 0 is off."""
    return _settings.prefetch_distance


def set_prefetch_distance(value: int | Literal["auto"]) -> None:
    """Set the look-ahead of gathers: 0 to 16384 elements, or ``"auto"``."""
    if value != "auto" and _at_least("prefetch_distance", value, 0) > MAX_PREFETCH_DISTANCE:
        raise ValueError(f"prefetch_distance must be at most {MAX_PREFETCH_DISTANCE}, got {value}")
    _settings.prefetch_distance = value


def get_preview_rows() -> int:
    """Return the default number of rows of ``head``, ``tail`` and previews."""
    return _settings.preview_rows


def set_preview_rows(value: int) -> None:
    """Set the default number of rows of ``head``, ``tail`` and previews (>= 0)."""
    _settings.preview_rows = _at_least("preview_rows", value, 0)


def get_preview_precision() -> int:
    """Return the number of decimals of floats in previews; zeros that all values of a column end in are dropped."""
    return _settings.preview_precision


def set_preview_precision(value: int) -> None:
    """Set the number of decimals of floats in previews (>= 0)."""
    _settings.preview_precision = _at_least("preview_precision", value, 0)


def get_preview_memory_limit() -> int:
    """Return the estimated bytes beyond which a preview warns before it reads; 0 never warns."""
    return _settings.preview_memory_limit


def set_preview_memory_limit(value: int) -> None:
    """Set the estimated bytes beyond which a preview warns before it reads (>= 0; 0 never warns)."""
    _settings.preview_memory_limit = _at_least("preview_memory_limit", value, 0)


def get_write_method() -> Literal["auto", "pwrite", "mmap"]:
    """Return how writers bring the bytes of new rows into a local file."""
    return _settings.write_method


def set_write_method(value: Literal["auto", "pwrite", "mmap"]) -> None:
    """Set how writers bring the bytes of new rows into a local file.

    Parameters
    ----------
    value : {"auto", "pwrite", "mmap"}
        ``"pwrite"`` writes at positions. ``"mmap"`` reserves space and fills it through a mapping where the system can
        reserve it (not on Windows and macOS), and is ``"pwrite"`` elsewhere. ``"auto"`` is ``"pwrite"``. Applies to
        files that are opened for writing from now on; the bytes of a file do not depend on it.

    Raises
    ------
    ValueError
        For any other value.
    """
    if value not in WRITE_METHODS:
        raise ValueError(f"write_method must be one of {', '.join(WRITE_METHODS)}, got {value!r}")
    _settings.write_method = value


def get_durability() -> Literal["full", "process"]:
    """Return what a commit on this machine survives; see `set_durability`."""
    return _settings.durability


def set_durability(value: Literal["full", "process"]) -> None:
    """Set what a commit on this machine survives, from the next one on.

    Parameters
    ----------
    value : {"full", "process"}
        ``"full"``, the default: a loss of power. Writers wait until data are on the disk before anything says that
        they are there, and a commit is on the disk when it returns (``fsync`` of files and of directories).

        ``"process"``: the end of the process, not that of the machine. Bytes, their order, locks, temporary names and
        renames are the same, and so is what readers see and what a killed process leaves behind; but nothing waits for
        the disk: there is no ``fsync`` at all. The system writes everything back by itself, within half a minute or so.

    Raises
    ------
    ValueError
        For any other value.

    Notes
    -----
    After a loss of power, a crash of the kernel or a disk pulled out, files that were written with ``"process"``
    shortly before may be in any state in which some of the writes reached the disk and others did not, in any order. A
    commit, or several, may be missing as a whole. Worse, it may be there in part: counters, a footer or a manifest that
    count rows whose bytes are zeros or what stood there before, or a name that leads to a file that is empty or too
    short. What is too short or fails a checksum is a `FormatError` when it is opened; wrong values in the bodies of
    `.cstore` files and grids are not noticed, for they have no checksum. A file that replaced another may be lost
    together with the one that it replaced. Files that were written with ``"full"`` are not concerned, unless they are
    appended to with ``"process"``. So this is for data that can be made again: scratch files, tests, downloads.

    The setting is one of this process. Workers of Dask have their own, and so have other machines. Object stores are
    not concerned: an upload is durable when the store answers.
    """
    if value not in DURABILITIES:
        raise ValueError(f"durability must be one of {', '.join(DURABILITIES)}, got {value!r}")
    _settings.durability = value


def get_numa_policy() -> Literal["auto", "interleave", "local"]:
    """Return where pages are placed on machines with several memory nodes."""
    return _settings.numa_policy


def set_numa_policy(value: Literal["auto", "interleave", "local"]) -> None:
    """Set where pages are placed on machines with several memory nodes; no effect elsewhere.

    Parameters
    ----------
    value : {"auto", "interleave", "local"}
        ``"interleave"`` spreads the pages of files that are written or mapped from now on over all allowed nodes, so
        that all memory channels work for a gather; ``"auto"`` does too. ``"local"`` leaves placement to the system.
    """
    if value not in NUMA_POLICIES:
        raise ValueError(f"numa policy must be one of {', '.join(NUMA_POLICIES)}, got {value!r}")
    _settings.numa_policy = value


def get_populate_policy() -> Literal["auto", "read", "populate", "willneed", "none"]:
    """Return how reads over mappings bring in data that is not in memory."""
    return _settings.populate_policy


def set_populate_policy(value: Literal["auto", "read", "populate", "willneed", "none"]) -> None:
    """Set how reads over mappings bring in data that is not in memory. Results do not depend on it.

    Parameters
    ----------
    value : {"auto", "read", "populate", "willneed", "none"}
        For long ranges: ``"read"`` reads them from the file into the result, past the mapping (where each column of a
        segment has 256 KiB or more, else as ``"none"``), ``"populate"`` has the pages read and mapped piece by piece
        before they are copied (Linux 5.14 and later, else as ``"willneed"``), ``"willneed"`` asks for them ahead of
        the copy, ``"none"`` leaves them to the read-ahead of the system, and ``"auto"`` is what calibration found
        best, or where nothing was calibrated ``"read"`` for tables larger than a quarter of the free memory and
        ``"none"`` for others. Scattered rows are asked for page by page unless this is explicitly ``"none"``.
    """
    if value not in POPULATE_POLICIES:
        raise ValueError(f"populate_policy must be one of {', '.join(POPULATE_POLICIES)}, got {value!r}")
    _settings.populate_policy = value


def preview_row_count(n: int | None) -> int:
    """Return `n`, by default the setting; `ValueError` for a negative number."""
    rows = _settings.preview_rows if n is None else check_integer("n", n)
    if rows < 0:
        raise ValueError(f"the number of rows must not be negative, got {rows}")
    return rows
