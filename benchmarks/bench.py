"""The data, the selectors and the files of one run: made once, and shared by all workloads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import columns_tables
import numpy as np
from grid_family import GridData
from limits import Outputs
from probe import checksum, piece_sum, pieces
from system import Columns, System

__all__ = ["PIECE_ROWS", "SMALL_ROWS", "Bench", "Key", "make_columns"]

SMALL_ROWS = 1000
MANY_POINTS = 2_000_000
PIECE_ROWS = 1 << 18


def make_columns(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return eight columns, 50 bytes a row, in an order that leaves some of them unaligned."""
    rng = np.random.default_rng(seed)
    return {
        "a": rng.random(n),
        "id": np.arange(n, dtype="i8"),
        "q": rng.integers(0, 100, n).astype("i2"),
        "w": rng.standard_normal(n, dtype="f4"),
        "b": np.cumsum(rng.standard_normal(n)),
        "cat": rng.integers(0, 1000, n).astype("i4"),
        "p": np.round(rng.gamma(2.0, 50.0, n), 2),
        "t": 1_700_000_000_000 + np.cumsum(rng.integers(1, 20, n)),
    }


class Bench:
    """The data, the selectors and the files of one run."""

    def __init__(
        self,
        rows: int,
        root: Path,
        *,
        records: int,
        shards: int,
        grid: tuple[int, int, int] = (1000, 180, 360),
        data: Path | None = None,
    ) -> None:
        self.n, self.root, self.records, self.shards = rows, root, records, shards
        self.grid = GridData(grid, root)
        self.data = data
        self._tables: dict[str, Any] = {}
        self._encoded: dict[tuple[str, str], Any] = {}
        self.outputs, self.own_outputs = Outputs(), Outputs()
        self.columns = make_columns(rows)
        rng = np.random.default_rng(1)
        count = max(1, rows // 5)
        self.index = rng.integers(0, rows, count)
        self.sorted_index = np.sort(rng.choice(rows, count, replace=False))
        self.small_index = rng.integers(0, rows, 1000)
        self.masks = {percent: rng.random(rows) < percent / 100 for percent in (1, 10, 50, 90)}
        self.low, self.high = rows // 3, rows // 3 + max(1, rows // 10)
        self.threshold = float(np.quantile(self.columns["p"], 0.9))
        self.t_low, self.t_high = (int(self.columns["t"][k]) for k in (self.low, self.high))

    @cached_property
    def names(self) -> list[str]:
        return list(self.columns)

    @cached_property
    def many_points(self) -> np.ndarray:
        """Two million rows in no order, whatever the size of the table."""
        return np.random.default_rng(3).integers(0, self.n, MANY_POINTS)

    def scratch(self, name: str) -> str:
        return str(self.root / name)

    def _made(self, path: str, write: Callable[[str], Any]) -> str:
        done = Path(path + ".done")
        if not done.exists():
            write(path)
            done.touch()
        return path

    def file(self, system: System, writer: System) -> str:
        path = self.root / f"{system.files_of or system.name}_{self.n}{system.suffix}"
        return self._made(str(path), lambda p: writer.write(self.columns, p))

    def _bounds(self, parts: int, irregular: bool) -> np.ndarray:
        bounds = np.linspace(0, self.n, parts + 1).astype(int)
        if irregular and parts > 1:  # sizes between about a half and one and a half of the mean
            jitter = np.random.default_rng(2).random(parts - 1) - 0.5
            bounds[1:-1] += (jitter * (self.n / parts)).astype(int)
        return bounds

    def pieces(self, parts: int, irregular: bool = False) -> Iterator[Columns]:
        for first, stop in itertools.pairwise(self._bounds(parts, irregular)):
            yield {name: values[first:stop] for name, values in self.columns.items()}

    def record_file(self, system: System, writer: System, irregular: bool) -> str:
        kind = "irregular" if irregular else "uniform"
        name = f"{system.files_of or system.name}_{self.n}_{self.records}_{kind}{system.suffix}"
        return self._made(
            self.scratch(name), lambda p: writer.write_records(self.pieces(self.records, irregular), p)
        )

    @cached_property
    def mask_counts(self) -> dict[int, int]:
        """Selected rows of each mask, by its identity: counting is part of the read, not of the caller's work."""
        return {id(mask): int(np.count_nonzero(mask)) for mask in self.masks.values()}

    def shard_files(
        self, system: System, writer: System, irregular: bool, shards: int | None = None
    ) -> list[str]:
        kind = "irregular" if irregular else "uniform"
        count = self.shards if shards is None else shards
        folder = self.root / f"{system.files_of or system.name}_{self.n}_{count}_{kind}"
        folder.mkdir(exist_ok=True)
        return [
            self._made(
                str(folder / f"part_{number:05d}{system.suffix}"), lambda p, c=piece: writer.write(c, p)
            )
            for number, piece in enumerate(self.pieces(count, irregular))
        ]

    def alone_file(self, system: System, writer: System) -> str:
        """Return a copy that this process never opens: what it has mapped cannot leave the page cache."""
        self.small_file(system, writer)
        path = self.root / f"alone_{system.files_of or system.name}_{self.n}{system.suffix}"
        return self._made(str(path), lambda p: writer.write(self.columns, p))

    def small_file(self, system: System, writer: System) -> str:
        path = self.root / f"small_{system.files_of or system.name}{system.suffix}"
        small = {name: values[:SMALL_ROWS] for name, values in self.columns.items()}
        return self._made(str(path), lambda p: writer.write(small, p))

    def key_file(self, name: str, key: np.ndarray) -> str:
        return self._made(self.scratch(f"{name}_{self.n}.npy"), lambda p: np.save(p, key))

    def table(self, name: str) -> Any:
        """Return a table of the columns family as Arrow data; None where there is no folder of real data."""
        if name not in self._tables:
            if name == "comparison":
                self._tables[name] = columns_tables.comparison()
            else:
                self._tables[name] = None if self.data is None else columns_tables.real(self.data, name)
        return self._tables[name]

    def encoded(self, system: System, name: str) -> Any:
        """Return the bytes of a table as `system` writes it; None without the table."""
        key = (system.name, name)
        if key not in self._encoded:
            table = self.table(name)
            self._encoded[key] = None if table is None else system.encode(table)
        return self._encoded[key]

    def encoded_file(self, system: System, name: str) -> str:
        path = self.scratch(f"{name}_{system.name}{system.encoded_suffix}")
        return self._made(path, lambda p: Path(p).write_bytes(self.encoded(system, name)))

    @cached_property
    def piece_checksum(self) -> int:
        return checksum(
            [
                piece_sum({name: values[piece] for name, values in self.columns.items()})
                for piece in pieces(self.n, PIECE_ROWS)
            ]
        )

    @cached_property
    def checksum(self) -> int:
        return checksum(self.columns)


Key = Callable[[Bench], Any]
"""Returns the rows that a workload reads."""
