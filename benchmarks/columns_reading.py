"""Reading columns of fixed width: beside Parquet zstd, and beside what their blocks alone cost.

    python benchmarks/columns_reading.py [rounds]

For each column of the comparison workload: `floor` inflates its blocks into memory that is used again (or copies them,
where they are not compressed) and sums up differences, on one thread, with nothing around it. Rounds are interleaved;
minima and lower quartiles are shown in milliseconds, ratios are of minima. Files and results are in memory.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from columns_tables import comparison

import colstore_io as cs
from colstore_io.formats.columns.chunk import parse_chunk
from colstore_io.formats.columns.encoder import ColumnsEncoder
from colstore_io.formats.columns.fixed_blocks import fixed_blocks
from colstore_io.formats.columns.tags import Type
from colstore_io.ingest.variable import ingest_columns


def encoded(table: Any) -> bytes:
    batch = ingest_columns(table)
    encoder = ColumnsEncoder(batch.schema)
    return b"".join([encoder.begin(), *encoder.segment(batch.columns), encoder.finish()])


def floor_of(data: bytes, column: int, rows: int) -> tuple[str, Callable[[], Any]]:
    """Return how a column is stored, and a call that reads its blocks and no more."""
    with cs.open(data) as table:
        decoder: Any = table.readable_source().plan.decoders[0]
    ((offset, length),) = decoder.ranges(0, [column])
    chunk = parse_chunk(
        memoryview(data)[offset : offset + length], decoder.facts(0, column), decoder.place(0, column)
    )
    blocks = fixed_blocks(chunk, Type(int(decoder.types[column])))
    assert blocks is not None
    out = np.empty(8 * rows, np.uint8)
    return f"{chunk.encoding.name} {chunk.codec.name}", lambda: blocks.read(out, 1)


def compare(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float]]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: (min(found), sorted(found)[len(found) // 4]) for name, found in times.items()}


def main(rounds: int) -> None:
    table = comparison()
    data = encoded(table)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    stored = pa.py_buffer(sink.getvalue())
    ours, parquet = cs.open(data), pq.ParquetFile(pa.BufferReader(stored))
    for column, name in enumerate(("run", "rnd", "f")):
        layout, floor = floor_of(data, column, table.num_rows)
        calls: dict[str, Callable[[], Any]] = {
            "parquet, open file": lambda n=name: parquet.read(columns=[n]),
            "parquet, opening": lambda n=name: pq.read_table(pa.BufferReader(stored), columns=[n]),
            "floor": floor,
            "array": lambda n=name: ours[n].array(),
            "arrow": lambda n=name: ours[[n]].arrow(),
            "opening, array": lambda n=name: cs.open(data)[n].array(),
        }
        found = compare(calls, rounds)
        base, opening, least = (found[key][0] for key in ("parquet, open file", "parquet, opening", "floor"))
        print(f"{name}: {layout}")
        for key, (best, quarter) in found.items():
            other = opening if key.endswith("opening") or key.startswith("opening") else base
            ratios = f"x {best / other:5.3f} parquet   x {best / least:5.2f} floor"
            print(f"  {key:20} {best:8.3f} {quarter:8.3f} ms   {ratios}")
    print("load", *(f"{value:.1f}" for value in os.getloadavg()))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
