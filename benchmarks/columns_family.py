"""The columns format beside Parquet: all in memory, results are Arrow tables, handles are open before a read."""

from __future__ import annotations

from typing import Any

import columns_tables
import numpy as np
from bench import Bench
from quoted import COLUMN_TARGETS
from workload import Family

__all__ = ["WORKLOADS"]

WORKLOADS = Family()


def _add_columns(prefix: str, group: str, table: str, targets: dict[str, float]) -> None:
    def read(name: str, columns: list[str] | None, target: str) -> None:
        def want(b: Bench) -> Any:
            data = b.table(table)
            return data if data is None or columns is None else data.select(columns)

        WORKLOADS.add(
            prefix + name,
            group,
            "encode read_encoded",
            f"encoded:{table}",
            lambda s, h, b: s.read_encoded(h, columns),
            want,
            target=targets.get(target),
        )

    WORKLOADS.add(
        prefix + "bytes",
        group,
        "encode",
        f"table:{table}",
        lambda s, data, b: len(b.encoded(s, table)) / data.num_rows,
        unit="B/row",
        measures_itself=True,
        target=targets.get("bytes"),
    )
    WORKLOADS.add(
        prefix + "write",
        group,
        "encode",
        f"table:{table}",
        lambda s, data, b: s.encode(data),
        target=targets.get("write"),
    )
    read("read_all", None, "read_all")
    if table == "comparison":
        for name, target in (
            ("run", "integer"),
            ("rnd", "integer"),
            ("f", "float"),
            ("low", "text"),
            ("high", "text"),
        ):
            read(f"read_{name}", [name], target)
        for name in ("run", "rnd"):  # as an array of its own, of an open file, and with opening it
            for prefix_of, needs, source, call in (
                (
                    "values_",
                    "values_encoded",
                    f"encoded:{table}",
                    lambda s, h, b, n=name: s.values_encoded(h, n),
                ),
                (
                    "file_",
                    "open_and_read",
                    f"encoded_path:{table}",
                    lambda s, p, b, n=name: s.open_and_read(p, n),
                ),
            ):
                WORKLOADS.add(
                    prefix + prefix_of + name,
                    group,
                    f"encode {needs}",
                    source,
                    call,
                    lambda b, n=name: np.asarray(b.table(table).column(n)),
                    target=targets["integer"],
                )
    for name in ("open_schema", "open_dataset"):
        WORKLOADS.add(
            prefix + name,
            group,
            f"encode {name}",
            f"encoded_path:{table}",
            lambda s, path, b, name=name: getattr(s, name)(path),
            target=1.0,
        )


_add_columns(
    "columns_",
    "columns",
    "comparison",
    COLUMN_TARGETS,
)
WORKLOADS.add(
    "columns_optimize",
    "columns",
    "optimize",
    "table:comparison",
    lambda s, data, b: s.optimize(data),
    target=111.0,
)
WORKLOADS.add(
    "columns_optimize_bytes",
    "columns",
    "optimized",
    "table:comparison",
    lambda s, data, b: len(s.optimized(data)) / data.num_rows,
    unit="B/row",
    measures_itself=True,
)
for _name in columns_tables.REAL:
    _add_columns(f"{_name}_", "columns_real", _name, {})
