"""The family ``colbin``: records as messages, tables, single columns; encode, decode, and the bytes of one row.

Every call handles all rows of its data, so that calls of half a microsecond are timed in runs of hundreds. Decoding a
table or a column means NumPy columns. Systems are peers of the format, not of the library: see colbin_peers.py for
records; Arrow IPC streams, plain and compressed, and Parquet for the others.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from colbin_peers import RECORD_PEERS, as_lists
from measure import Job, assert_equal, first_line

__all__ = ["colbin_workloads"]

ROWS = 200
TABLES = ("users", "products", "sales", "metrics")
COLUMN_VALUES = 1_000_000
Columns = dict[str, np.ndarray]


@cache
def _corpus() -> dict[str, list[Any]]:
    from colbin_corpus import corpus

    return corpus()


def _over(function: Callable[[Any], object], items: list[Any]) -> Callable[[], None]:
    """All items through `function`, by loops in C."""
    return lambda: deque(map(function, items), maxlen=0) and None


def _jobs(makers: dict[str, Callable[[], Job]]) -> Iterator[Job]:
    for name, make in makers.items():
        try:
            yield make()
        except Exception as error:  # a peer that fails or is not there must not end the run
            yield Job(name, lambda: None, problem=f"{type(error).__name__}: {first_line(error)}")


def _record_job(system: str, table: str, what: str) -> Job:
    rows = _corpus()[table][:ROWS]
    peer = RECORD_PEERS[system](rows)
    messages = [peer.encode(item) for item in peer.objects]
    for message, row in zip(messages, rows, strict=True):
        got = peer.as_lists(peer.decode(message))
        assert got == as_lists(row), f"{got} != {row}"
    if what == "bytes":
        size = sum(map(len, messages)) / len(messages)
        return Job(system, lambda: size, measures_itself=True)
    if what == "encode":
        return Job(system, _over(peer.encode, peer.objects))
    return Job(system, _over(peer.decode, messages))


# ---- tables and columns


def _arrow(compression: str | None) -> tuple[Callable[[Columns], Any], Callable[[Any], Columns]]:
    import pyarrow as pa

    options = pa.ipc.IpcWriteOptions(compression=compression)

    def encode(columns: Columns) -> Any:
        batch = pa.record_batch([pa.array(values) for values in columns.values()], names=list(columns))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        return sink.getvalue()

    def decode(data: Any) -> Columns:
        table = pa.ipc.open_stream(data).read_all()
        return {name: table[name].to_numpy() for name in table.column_names}

    return encode, decode


def _parquet() -> tuple[Callable[[Columns], Any], Callable[[Any], Columns]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def encode(columns: Columns) -> bytes:
        sink = io.BytesIO()
        pq.write_table(
            pa.table(columns), sink, use_dictionary=False, compression="none",
            column_encoding=dict.fromkeys(columns, "DELTA_BINARY_PACKED"),
        )  # fmt: skip
        return sink.getvalue()

    def decode(data: bytes) -> Columns:
        table = pq.read_table(pa.BufferReader(data))
        return {name: table[name].to_numpy() for name in table.column_names}

    return encode, decode


def _ours_table() -> tuple[Callable[[Columns], Any], Callable[[Any], Columns]]:
    from colstore_io import colbin

    return colbin.encode_table, colbin.decode_table


_FORMS: dict[str, Callable[[], tuple[Callable[[Columns], Any], Callable[[Any], Columns]]]] = {
    "ours": _ours_table,
    "arrow": lambda: _arrow(None),
    "arrow_lz4": lambda: _arrow("lz4"),
    "arrow_zstd": lambda: _arrow("zstd"),
    "parquet_delta": _parquet,
}


@cache
def _metrics() -> Columns:
    rows = _corpus()["metrics"]
    kinds = {"SeriesID": np.uint32, "At": np.int64, "Value": np.int64}
    return {name: np.array([getattr(row, name) for row in rows], kind) for name, kind in kinds.items()}


@cache
def _column(kind: str) -> Columns:
    rng, n = np.random.default_rng(5), COLUMN_VALUES
    values = {
        "small": lambda: rng.integers(0, 100, n),
        "ids": lambda: np.cumsum(rng.integers(1, 4, n)),
        "timestamps": lambda: 1_700_000_000_000 + np.cumsum(rng.integers(900, 1101, n)),
        "random": lambda: rng.integers(0, 1 << 63, n),
        "constant": lambda: np.full(n, 7),
    }[kind]()
    return {"values": values.astype(np.int64)}


def _table_job(system: str, columns: Columns, what: str, out: Columns | None = None) -> Job:
    """`out`: memory that results are put in, so that systems which return views of their input do copy."""
    encode, decode = _FORMS[system]()
    data = encode(columns)
    assert_equal(decode(data), columns)
    if what == "bytes":
        size = len(data) / len(next(iter(columns.values())))
        return Job(system, lambda: size, measures_itself=True)
    if what == "encode":
        return Job(system, lambda: (encode(columns), None)[1])
    if out is None:
        return Job(system, lambda: (decode(data), None)[1])

    def copied() -> None:
        for name, values in decode(data).items():
            np.copyto(out[name], values)

    return Job(system, copied)


def _column_job(system: str, kind: str, what: str) -> Job:
    columns = _column(kind)
    out = {name: np.empty_like(values) for name, values in columns.items()}
    if system != "ours":
        return _table_job(system, columns, what, out if system == "arrow" else None)
    from colstore_io.kernels import column_codec

    values, result = columns["values"], out["values"]
    data = column_codec.encode(values)
    assert column_codec.decode(data, result) == 0
    assert_equal(result, values)
    if what == "bytes":
        return Job(system, lambda: len(data) / len(values), measures_itself=True)
    if what == "encode":
        return Job(system, lambda: (column_codec.encode(values), None)[1])
    return Job(system, lambda: (column_codec.decode(data, result), None)[1])


def colbin_workloads() -> dict[str, tuple[str, Callable[[], Iterator[Job]]]]:
    """Return, by name, the unit of a workload and what makes its jobs: results are checked while they are made."""
    found: dict[str, tuple[str, Callable[[], Iterator[Job]]]] = {}

    def add(name: str, systems: Any, make: Callable[[str, str], Job]) -> None:
        for what in ("encode", "decode", "bytes"):
            makers = {system: (lambda s=system, w=what: make(s, w)) for system in systems}
            unit = "bytes" if what == "bytes" else "s"
            found[f"colbin_{name}_{what}"] = (unit, lambda makers=makers: _jobs(makers))  # type: ignore[misc]

    for table in TABLES:
        add(table, RECORD_PEERS, lambda s, w, table=table: _record_job(s, table, w))  # type: ignore[misc]
    add("metrics_table", _FORMS, lambda s, w: _table_job(s, _metrics(), w))
    for kind in ("small", "ids", "timestamps", "random", "constant"):
        add(f"column_{kind}", _FORMS, lambda s, w, kind=kind: _column_job(s, kind, w))  # type: ignore[misc]
    return found
