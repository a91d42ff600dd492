"""Which value of a knob holds here?

One rule for every knob that steers speed alone: **explicit setting > matching calibration > compiled default**
(cstore-behaviour.md 12 and 14). Explicit settings live in `config`. A calibration is a small JSON file that
`colstore_io.calibrate` wrote on this machine; it is read on first use, never at import, and ignored when it is missing,
broken, too large, or from another machine.

Nothing here changes a result.
"""

from __future__ import annotations

import functools
import json
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from . import config, threads

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "CALIBRATION_VERSION",
    "POPULATE_CANDIDATES",
    "REGIMES",
    "TARGETS",
    "Calibration",
    "apply",
    "cache_directory",
    "cache_path",
    "clear",
    "fingerprint",
    "forget",
    "gather_thread_cap",
    "inspect",
    "last_level_cache",
    "looks_sorted",
    "populate_policy",
    "prefetch_distance",
    "regime",
    "save",
]

CALIBRATION_VERSION = 1

MAX_CACHE_BYTES = 1 << 20
"""A calibration has a few KiB; a larger file is not one of ours and is not read."""

REGIMES = ("resident_unsorted", "resident_sorted", "dram_unsorted", "dram_sorted")
"""Prefetching pays differently for data within the last-level cache and for ascending rows."""

DEFAULT_LLC_BYTES = 32 << 20
"""Taken for the last-level cache where the system does not tell."""

Populate = Literal["read", "none", "willneed", "populate"]

POPULATE_CANDIDATES: tuple[Populate, ...] = ("read", "none", "willneed", "populate")
"""Ways to bring in a long cold range, the least intrusive first."""

SORT_SAMPLES = 16
_SAMPLE_FRACTIONS = np.arange(SORT_SAMPLES) / (SORT_SAMPLES - 1)

SORT_SAMPLE_ROWS = 4096
"""Below this many rows the sampler (about 5 us) costs more than the right distance saves."""


# ----------------------------------------------------------------------------------------------------------
# This machine


@functools.cache
def last_level_cache() -> int:
    """Return the bytes of the largest cache of cpu0; 32 MiB where the system does not tell."""
    from pathlib import Path

    sizes = [0]
    try:
        for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
            text = entry.read_text(encoding="ascii").strip()
            unit = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
            sizes.append(int(text.rstrip("KMG")) << unit)
    except (OSError, ValueError):
        pass
    return max(sizes) or DEFAULT_LLC_BYTES


def _processor() -> tuple[str, int]:
    """Return the processor's name and the number of physical cores."""
    logical = os.cpu_count() or 1
    name, cores, package = "", set(), ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as handle:
            for line in handle:
                key, _, value = line.partition(":")
                key, value = key.strip(), value.strip()
                if key == "model name" and not name:
                    name = value
                elif key == "physical id":
                    package = value
                elif key == "core id":
                    cores.add((package, value))
    except OSError:
        pass
    if not name:
        import platform

        name = platform.processor() or platform.machine()
    return name, len(cores) or logical


@functools.cache
def fingerprint() -> str:
    """Return the text that says which hardware a calibration holds for."""
    import platform

    name, physical = _processor()
    return f"v1|{name}|phys={physical}|log={os.cpu_count() or 1}|{platform.system()}"


@functools.cache
def _default_thread_cap() -> int:
    return threads.usable_cores()


# ----------------------------------------------------------------------------------------------------------
# Calibration files


def _is_count(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _check_threads(payload: Mapping[str, Any]) -> int | None:
    cap = payload.get("thread_cap")
    # A cap measured on two of eight cores says nothing about eight.
    fits = payload.get("usable_cores") == _default_thread_cap()
    return cap if fits and _is_count(cap, 1, 1 << 16) else None


def _check_prefetch(payload: Mapping[str, Any]) -> dict[str, int] | None:
    table = payload.get("prefetch_distances")
    if not isinstance(table, dict) or set(table) != set(REGIMES):
        return None
    return (
        table if all(_is_count(value, 0, config.MAX_PREFETCH_DISTANCE) for value in table.values()) else None
    )


def _check_populate(payload: Mapping[str, Any]) -> str | None:
    policy = payload.get("populate_policy")
    return policy if isinstance(policy, str) and policy in POPULATE_CANDIDATES else None


_CHECKS: dict[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
    "threads": ("thread_cap", _check_threads),
    "prefetch": ("prefetch_distances", _check_prefetch),
    "populate": ("populate_policy", _check_populate),
}
TARGETS = tuple(_CHECKS)
"""What can be calibrated, in the order in which it is: the look-ahead is measured at the calibrated thread cap."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a calibration file says.

    Attributes
    ----------
    path : Path
    status : {"match", "missing", "broken", "foreign"}
        Only the result of a ``"match"`` is used.
    result : int, dict, str, or None
        The thread cap, the distance of each regime, or the populate policy.
    timestamp : str
        When it was measured; empty unless it matches.
    """

    path: Path
    status: Literal["match", "missing", "broken", "foreign"]
    result: Any = None
    timestamp: str = ""


def cache_directory() -> Path:
    """Return the folder of calibration files: ``$XDG_CACHE_HOME/colstore_io`` or ``~/.cache/colstore_io``."""
    from pathlib import Path

    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: relative paths are to be ignored
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base, "colstore_io")


def cache_path(target: str) -> Path:
    """Return the calibration file of `target`.

    Raises
    ------
    ValueError
        If there is no such target.
    """
    if target not in _CHECKS:
        raise ValueError(f"calibration target must be one of {', '.join(TARGETS)}, got {target!r}")
    return cache_directory() / f"{target}.json"


def _load_json(path: Path) -> Any:
    """Return the parsed file; `OSError` or `ValueError` when it is not a small regular JSON file."""
    # O_NONBLOCK: the open of a named pipe would wait for a writer.
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(fd, "rb") as handle:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("not a regular file")
        data = handle.read(MAX_CACHE_BYTES + 1)
    if len(data) > MAX_CACHE_BYTES:
        raise ValueError("too large")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def inspect(target: str) -> Calibration:
    """Read the calibration file of `target` as it is now. Never raises for what is in it."""
    path = cache_path(target)
    try:
        payload = _load_json(path)
    except FileNotFoundError:
        return Calibration(path, "missing")
    except (OSError, ValueError):
        return Calibration(path, "broken")
    if not isinstance(payload, dict) or not isinstance(payload.get("fingerprint"), str):
        return Calibration(path, "broken")
    if payload["fingerprint"] != fingerprint() or payload.get("calibration_version") != CALIBRATION_VERSION:
        return Calibration(path, "foreign")
    if target == "threads" and payload.get("usable_cores") != _default_thread_cap():
        return Calibration(path, "foreign")
    result = _CHECKS[target][1](payload)
    if result is None:
        return Calibration(path, "broken")
    return Calibration(path, "match", result, str(payload.get("timestamp", "")))


def save(target: str, result: Any, measurements: Mapping[str, Any]) -> Path | None:
    """Write the calibration file of `target` whole or not at all.

    Returns
    -------
    Path or None
        ``None`` when it could not be written: a read-only home must not fail a calibration.
    """
    path = cache_path(target)
    if not path.is_absolute():  # no home directory
        return None
    import secrets

    payload = {
        "calibration_version": CALIBRATION_VERSION,
        "fingerprint": fingerprint(),
        "usable_cores": _default_thread_cap(),
        _CHECKS[target][0]: result,
        "measurements": measurements,
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    aside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            aside.write_text(json.dumps(payload, indent=1) + "\n", encoding="utf-8")
            os.replace(aside, path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
    except OSError:
        return None
    return path


def clear(targets: Sequence[str] = TARGETS, *, in_process: bool = True) -> dict[str, bool]:
    """Remove calibration files.

    Parameters
    ----------
    targets : sequence of str
    in_process : bool
        Also go back to the compiled defaults in this process now; otherwise it keeps what it has read.

    Returns
    -------
    dict of str to bool
        Whether there was a file.
    """
    removed = {}
    for target in targets:
        try:
            cache_path(target).unlink()
            removed[target] = True
        except FileNotFoundError:
            removed[target] = False
        if in_process:
            _known[target] = None
    return removed


# ----------------------------------------------------------------------------------------------------------
# Resolution

_known: dict[str, Any] = {}
"""Results in use, ``None`` for a target without one; a target that is not here has not been looked for yet."""


def _calibrated(target: str) -> Any:
    try:
        return _known[target]
    except KeyError:
        result = inspect(target).result
        return _known.setdefault(target, result)


def apply(target: str, result: Any) -> None:
    """Use `result` in this process from now on, as if it had been read from the calibration file."""
    cache_path(target)
    _known[target] = result


def forget() -> None:
    """Read the calibration files again on next use."""
    _known.clear()


def gather_thread_cap() -> int:
    """Return the upper bound of threads per kernel call that holds now."""
    explicit = config.explicit_gather_thread_cap()
    if explicit is not None:
        return explicit
    cap: int | None = _calibrated("threads")
    return _default_thread_cap() if cap is None else cap


def looks_sorted(indices: NDArray[np.int64]) -> bool:
    """Return False if one of 16 neighbouring pairs spread over `indices` descends (cstore-behaviour.md 13.1).

    A hint: True proves nothing.
    """
    if indices.shape[0] < 2:
        return True
    at = (_SAMPLE_FRACTIONS * (indices.shape[0] - 2)).astype(np.int64)
    return bool((indices[at] <= indices[at + 1]).all())


def regime(source_bytes: int, ascending: bool) -> str:
    """Return which of `REGIMES` a gather from `source_bytes` bytes is in."""
    where = "resident" if source_bytes <= last_level_cache() else "dram"
    return f"{where}_{'sorted' if ascending else 'unsorted'}"


def prefetch_distance(n_rows: int, indices: NDArray[np.int64], out: Any) -> int:
    """Return the look-ahead of one gather, in rows.

    Parameters
    ----------
    n_rows : int
        Rows of the table that is gathered from.
    indices : ndarray of int64
    out : ndarray, or sequence of ndarray
        The targets, whose item sizes tell the bytes of the source.
    """
    explicit = config.get_prefetch_distance()
    if explicit != "auto":
        return explicit
    table: dict[str, int] | None = _calibrated("prefetch")
    if table is None:
        return config.DEFAULT_PREFETCH_DISTANCE
    row_bytes = out.itemsize if isinstance(out, np.ndarray) else sum(target.itemsize for target in out)
    ascending = indices.shape[0] >= SORT_SAMPLE_ROWS and looks_sorted(indices)
    return table[regime(n_rows * row_bytes, ascending)]


def populate_policy() -> Populate | Literal["auto"]:
    """Return how a long read over a cold mapping brings its pages in.

    Notes
    -----
    ``"auto"``, where nothing is set or calibrated, leaves it to the system's read-ahead while memory is plenty, and
    reads past the mapping (`streaming`) what is larger than that: half the time for a file of four times the memory,
    and up to a fifth more for one that fits. Which way is best depends on kernel and device: 160 MB took 62
    ms with ``MADV_POPULATE_READ`` against 156 by read-ahead on one machine, 200 MB took 233 against 147 on another
    (Linux 6.18, 8 MiB of read-ahead). So it is a matter of calibration.
    """
    policy = config.get_populate_policy()
    if policy != "auto":
        return policy
    calibrated: Populate | None = _calibrated("populate")
    return "auto" if calibrated is None else calibrated
