"""Measure one call in a process of its own: reads of a file that is not cached, and the memory that a call takes.

A process keeps what it has mapped, and mapped pages stay in the page cache whatever they are advised. So a cold
read is measured in a fresh process, on a file that nobody else has open. The peak of memory is sampled from outside,
because some libraries hold the interpreter's lock while they work.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from confined import Group, confined

__all__ = ["Probe", "checksum", "drop_cache", "run_probe"]

Probe = dict[str, Any]
"""What a child does: ``system``, ``path``, ``column``, ``small`` and ``small_rows`` (another file of that system),
``cold`` (drop the file from the page cache first), ``memory`` (sample the peak), ``confined`` (how many bytes of
memory the read may take, pages of the file among them; None for all there is), ``pieces`` (read everything in pieces
of so many rows, each forgotten for the next; 0 in one) and ``key``: a .npy file of row numbers or of a mask, None to
read everything."""


def checksum(result: Any) -> int:
    """Return the CRC of an array, or of a dict of arrays by name; of pieces, the CRC of theirs."""
    if isinstance(result, list):
        return zlib.crc32(np.array(result, "u8").tobytes())
    arrays = [result[name] for name in sorted(result)] if isinstance(result, dict) else [result]
    crc = 0
    for array in arrays:
        crc = zlib.crc32(memoryview(np.ascontiguousarray(array)).cast("B"), crc)
    return crc


def nbytes(result: Any) -> int:
    """Return the bytes of what `checksum` takes; pieces are gone by then."""
    if isinstance(result, list):
        return 0
    return int(sum(v.nbytes for v in result.values()) if isinstance(result, dict) else result.nbytes)


def pieces(n: int, rows: int) -> Iterator[slice]:
    """Return `n` rows in pieces of `rows`."""
    return (slice(begin, min(begin + rows, n)) for begin in range(0, n, rows))


def piece_sum(columns: Any) -> int:
    """Return a cheap sum of a piece, to compare: reading is what is timed."""
    return int(
        sum(int(values.view(f"u{values.itemsize}").sum(dtype="u8")) for values in columns.values()) % 2**64
    )


def files_of(path: str) -> list[Path]:
    """Return the files of a path that may be a directory."""
    root = Path(path)
    return [root] if root.is_file() else [file for file in sorted(root.rglob("*")) if file.is_file()]


def cached_share(file: Path) -> float:
    """Return how much of a file is in the page cache, from 0 to 1."""
    size = file.stat().st_size
    if size == 0:
        return 0.0
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), size, prot=mmap.PROT_READ) as area:
        view = np.frombuffer(area, np.uint8)
        pages = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        status = libc.mincore(
            ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(pages.ctypes.data)
        )
        del view
        if status != 0:
            raise OSError(ctypes.get_errno(), "mincore")
    return float((pages & 1).mean())


def drop_cache(path: str) -> None:
    """Take the files of `path` out of the page cache.

    Raises
    ------
    RuntimeError
        If the system kept them, for example because somebody has them mapped.
    """
    for file in files_of(path):
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())  # only clean pages can go
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        share = cached_share(file)
        if share > 0.02:
            raise RuntimeError(f"{share:.0%} of {file} stayed in the page cache")


def _child(probe: Probe) -> None:
    from systems import SYSTEMS

    system = SYSTEMS[probe["system"]]()
    key = None if probe["key"] is None else np.load(probe["key"])

    def read(path: str, key: Any) -> Any:
        handle = system.open(path)
        if key is not None:
            return system.rows(handle, key, probe["column"])
        if probe["pieces"]:
            rows = probe["small_rows"] if path == probe["small"] else probe["rows"]
            return [
                piece_sum((system.rows_many or system.raw_rows)(handle, piece, probe["columns"]))
                for piece in pieces(rows, probe["pieces"])
            ]
        return (system.read_all or system.raw_read)(handle)

    # Once on a small file: what a library imports or starts on first use is not the read.
    rows = probe["small_rows"]
    read(probe["small"], key if key is None else key[:rows] if key.dtype == np.bool_ else key[:rows] % rows)
    if probe["cold"]:
        drop_cache(probe["path"])
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    result = read(probe["path"], key)
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "bytes": nbytes(result)}), flush=True)
    sys.stdin.readline()
    print(checksum(result), flush=True)


def _anonymous_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
    return 0


def run_probe(probe: Probe, want: int) -> dict[str, float]:
    """Run `probe` in a fresh process.

    Returns
    -------
    dict
        ``"seconds"`` from opening the file to the result, ``"peak"``: the memory that was taken at most meanwhile,
        as a multiple of the bytes of the result.

    Raises
    ------
    AssertionError
        If the result does not have the checksum `want`.
    RuntimeError
        If the child failed.
    """
    if probe["confined"] is None:
        return _watch(probe, want, None)
    with confined(probe["confined"]) as group:
        return _watch(probe, want, group)


def _watch(probe: Probe, want: int, group: Group | None) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", __file__, json.dumps(probe)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, bufsize=1, **pipes) as child:  # type: ignore[call-overload]
        if child.stdout.readline() != "ready\n":
            raise RuntimeError(child.stderr.read().strip().splitlines()[-1])
        if group is not None:
            group.add(child.pid)
        before = peak = _anonymous_bytes(child.pid)
        child.stdin.write("go\n")
        child.stdin.flush()
        while not select.select([child.stdout], [], [], 0 if probe["memory"] else None)[0]:
            peak = max(peak, _anonymous_bytes(child.pid))
        line = child.stdout.readline()
        if not line:
            raise RuntimeError(child.stderr.read().strip().splitlines()[-1])
        peak = max(peak, _anonymous_bytes(child.pid))
        child.stdin.write("done\n")
        child.stdin.flush()
        crc = int(child.stdout.readline())
    assert crc == want, "values differ"
    told = json.loads(line)
    return {"seconds": told["seconds"], "peak": (peak - before) / max(1, told["bytes"])}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    _child(json.loads(sys.argv[1]))
