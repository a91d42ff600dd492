"""The tables on which the columns format is measured: the comparison workload, and real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["REAL", "ROWS", "comparison", "random_column", "real"]

ROWS = 200_000

REAL = {
    "glosses": "wordnet30_glosses_third.parquet",  # prose, synonyms, categories: WordNet
    "verses": "kjv_verses.parquet",  # prose of 31,102 verses: King James Bible
    "quakes": "usgs_earthquakes.parquet",  # 1707 rows of 30 columns, half of them text, many nulls: USGS
}
"""Files of real data, by the names of their workloads."""


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >> 63 else value


def random_column(n: int) -> np.ndarray[Any, Any]:
    """Return numbers without structure: x = (((x*x) % x) << 13) ^ (x >> 7), truncating, wrapping int64."""
    x, out = 0x2545F4914F6CDD1D, []
    for _ in range(n):
        square = _signed(x * x)
        rest = abs(square) % abs(x)
        x = _signed(_signed((-rest if square < 0 else rest) << 13) ^ (x >> 7))
        out.append(x)
    return np.array(out, np.int64)


def comparison(n: int = ROWS) -> Any:
    """Return the comparison workload: a counter, random integers, a ramp of floats, text of 200 values, distinct text."""
    import pyarrow as pa

    return pa.table(
        {
            "run": np.arange(n) * 7,
            "rnd": random_column(n),
            "f": np.arange(n) * 1.0001,
            "low": [f"customer-{i % 200}@example.com" for i in range(n)],
            "high": [f"id-{i}-suffix" for i in range(n)],
        }
    )


def real(folder: Path, name: str) -> Any:
    """Return a real table in types that the format has: times as integers, categories as their values; None without it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = folder / REAL[name]
    if not file.exists():
        return None
    table = pq.read_table(file).combine_chunks().replace_schema_metadata(None)
    convert: dict[Callable[[Any], bool], Any] = {
        pa.types.is_dictionary: pa.string(),
        pa.types.is_large_string: pa.string(),
        pa.types.is_timestamp: pa.int64(),
    }
    for place, field in enumerate(table.schema):
        for fits, target in convert.items():
            if fits(field.type):
                column = table.column(place).cast(target)
                table = table.set_column(place, pa.field(field.name, target, nullable=field.nullable), column)
                break
    return table
