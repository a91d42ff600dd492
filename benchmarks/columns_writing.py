"""Writing the columns format: time and bytes of its defaults beside Parquet, and of DEFLATE compressors.

    python benchmarks/columns_writing.py             # defaults and explicit options beside Parquet zstd
    python benchmarks/columns_writing.py optimize    # the two modes of Optimize
    python benchmarks/columns_writing.py deflate     # compressors and levels on blocks of 256 KiB

Rounds are interleaved, medians are shown, and ratios to Parquet zstd of the same run: the numbers of docs/columns.md.
The last table needs isal, deflate and zlib-ng. Targets are measured by `run.py --only columns`.
"""

from __future__ import annotations

import io
import os
import statistics
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from columns_tables import ROWS, comparison

from colstore_io.formats.columns.encode import encode_stream, prepare
from colstore_io.formats.columns.encoder import ColumnsEncoder, column_type
from colstore_io.formats.columns.tags import Encoding
from colstore_io.ingest.variable import ColumnBatch, ingest_columns

BLOCK = 262_144


def workload() -> ColumnBatch:
    return ingest_columns(comparison())


def write(batch: ColumnBatch, **options: Any) -> int:
    encoder = ColumnsEncoder(batch.schema, **options)
    parts = [encoder.begin(), *encoder.segment(batch.columns), encoder.finish()]
    return sum(map(len, parts))


def write_parquet(table: pa.Table) -> int:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getbuffer().nbytes


def compare(calls: dict[str, Callable[[], int]], rounds: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in calls}
    sizes = {}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            sizes[name] = call()
            times[name].append(time.perf_counter() - start)
    base, base_bytes = statistics.median(times["parquet zstd"]), sizes["parquet zstd"]
    print("load", *(f"{x:.1f}" for x in os.getloadavg()))
    for name, found in times.items():
        middle = statistics.median(found)
        print(
            f"{name:16} {1e3 * middle:9.1f} ms  x {middle / base:6.3f}   "
            f"{sizes[name] / ROWS:7.3f} B/row  x {sizes[name] / base_bytes:6.4f}"
        )


def deflate_table(batch: ColumnBatch) -> None:
    from deflate import deflate_compress
    from isal import igzip_lib
    from zlib_ng import zlib_ng

    def stream(module: Any, level: int) -> Callable[[Any], bytes]:
        def compress(block: Any) -> bytes:
            packer = module.compressobj(level, 8, -15)
            return bytes(packer.compress(block) + packer.flush())

        return compress

    def isal(level: int) -> Callable[[Any], bytes]:
        return lambda block: bytes(igzip_lib.compress(block, level, igzip_lib.COMP_DEFLATE))

    def libdeflate(level: int) -> Callable[[Any], bytes]:
        return lambda block: bytes(deflate_compress(block, level))

    calls: dict[str, Callable[[Any], bytes]] = {f"isal {level}": isal(level) for level in range(4)}
    calls |= {f"libdeflate {level}": libdeflate(level) for level in (1, 2, 3, 4, 5, 6, 8, 9)}
    calls |= {f"zlib-ng {level}": stream(zlib_ng, level) for level in (1, 3, 6, 9)}
    calls |= {f"zlib {level}": stream(zlib, level) for level in (1, 3, 6, 9)}
    layouts = {
        "run": Encoding.DELTA,
        "rnd": Encoding.PLAIN,
        "f": Encoding.PLAIN,
        "low": Encoding.DICT,
        "high": Encoding.AFFIX,
    }
    for field, column in zip(batch.schema, batch.columns, strict=True):
        dense = prepare(field.name, column_type(field), False, column).dense
        raw = encode_stream(field.name, dense, layouts[field.name])
        blocks = [raw[at : at + BLOCK] for at in range(0, len(raw), BLOCK)]
        print(f"{field.name} {layouts[field.name].name} {len(raw) / ROWS:.2f} B/row")
        for name, call in calls.items():
            best, size = 1e9, 0
            for _ in range(3):
                start = time.perf_counter()
                size = sum(len(call(block)) for block in blocks)
                best = min(best, time.perf_counter() - start)
            print(f"  {name:14} {1e3 * best:8.2f} ms {size / ROWS:8.4f} B/row")


def main(mode: str) -> None:
    batch = workload()
    table = pa.table(dict(zip(batch.schema.names, map(pa.array, batch.columns), strict=True)))
    calls: dict[str, Callable[[], int]] = {"parquet zstd": lambda: write_parquet(table)}
    if mode == "deflate":
        deflate_table(batch)
    elif mode == "optimize":
        for name in ("exact", "fast"):
            start = time.perf_counter()
            ColumnsEncoder(batch.schema, optimize=name).optimize(batch.columns)  # type: ignore[arg-type]
            print(f"the pass alone, {name}: {time.perf_counter() - start:.2f} s")
            calls[name] = lambda name=name: write(batch, optimize=name)  # type: ignore[misc]
        compare(calls, 3)
    else:
        calls["auto"] = lambda: write(batch)
        calls["auto, 1 thread"] = lambda: write(batch, threads=1)
        calls["none"] = lambda: write(batch, compression="none")
        for level in (1, 3, 6):
            calls[f"flate {level}"] = lambda level=level: write(batch, compression="flate", level=level)  # type: ignore[misc]
        compare(calls, 11)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "write")
