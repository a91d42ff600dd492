"""Statistics: true where they are used, silently absent where anything is wrong."""

from __future__ import annotations

import pickle
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from formats.cstore_builder import STRINGS, Table, build, read, schema_of, tables, values_of
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.formats.cstore.extras import file_columns
from colstore_io.formats.cstore.footer import (
    Bounds,
    decode_statistics,
    empty_statistics,
    encode_statistics,
    footer_size,
    record_statistics,
    statistics_entries,
)


def footers(tables: st.SearchStrategy[list[Table]]) -> st.SearchStrategy[list[Table]]:
    """Tables whose names a footer can hold."""
    return tables.filter(
        lambda records: not any("\ud800" <= c < "\ue000" for name in records[0] for c in name)
    )


@settings(max_examples=100, deadline=None)
@given(footers(tables()))
def test_usable_bounds_are_the_true_ones(records: list[Table]) -> None:
    data = build(records, statistics=True)
    meta = read(data)
    assert meta.statistics is not None
    for column in meta.columns:
        if column.dtype.kind in "SU":
            assert column.name not in meta.statistics.usable
            continue
        low, high = meta.statistics.minimum[column.name], meta.statistics.maximum[column.name]
        usable = meta.statistics.usable[column.name]
        assert len(low) == len(high) == len(usable) == len(records)
        assert low.dtype.isnative
        start = 0
        values = values_of(data, meta, column.name)
        for r, rows in enumerate(meta.record_rows.tolist()):
            part = values[start : start + rows]
            start += rows
            special = bool(rows) and (
                (column.dtype.kind == "f" and not np.isfinite(part).all())
                or (column.dtype.kind in "mM" and bool(np.isnat(part).any()))
            )
            assert usable[r] == (rows > 0 and not special)
            if usable[r]:
                assert low[r] == part.min()
                assert high[r] == part.max()


@settings(max_examples=60, deadline=None)
@given(footers(tables()))
def test_a_writer_can_go_on_with_a_footer(records: list[Table]) -> None:
    """Decoding and encoding again gives the same bytes."""
    data = build(records, statistics=True)
    meta = read(data)
    assert meta.statistics is not None
    entries = statistics_entries(meta.statistics, meta.columns, meta.n_records)
    assert encode_statistics(meta.columns, entries) == data[meta.stats_offset :]


def test_string_columns_alone_have_a_footer_without_bounds() -> None:
    records = [{name: np.array(["a", "b"], dtype=name) for name in STRINGS}] * 2
    meta = read(build(records, statistics=True))
    assert meta.statistics is not None
    assert not meta.statistics.usable
    assert statistics_entries(meta.statistics, meta.columns, 2) == [empty_statistics(meta.columns)] * 2


def test_long_double_filler_is_zero() -> None:
    if np.finfo(np.longdouble).nmant != 63:
        pytest.skip("no x87 long double here")
    (bounds,) = record_statistics([np.array([1.5, -2.25], "<f16")])
    assert bounds.prunable
    assert bounds.minimum[10:] == bytes(6)
    assert np.frombuffer(bounds.minimum, "<f16")[0] == -2.25


def sample() -> bytes:
    return build(
        [{"i": np.arange(3, dtype="<i4"), "f": np.array([0.5, 1, 2]), "b": np.ones(3, bool)}] * 2,
        statistics=True,
    )


def test_every_flipped_footer_bit_voids_the_footer_alone() -> None:
    data = sample()
    good = read(data)
    assert good.statistics is not None
    for bit in range(8 * good.stats_offset, 8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        meta = read(bytes(flipped))
        assert meta.statistics is None
        assert meta.n_rows == good.n_rows


def resealed(data: bytes, offset: int, change: Any) -> bytes:
    body = bytearray(data[offset:-4])
    change(body)
    return data[:offset] + bytes(body) + zlib.crc32(body).to_bytes(4, "little")


@pytest.mark.parametrize("records", [2, 200])
def test_flags_other_than_zero_and_one_void_the_footer(records: int) -> None:
    data = build([{"i": np.arange(3, dtype="<i4"), "f": np.array([0.5, 1, 2])}] * records, statistics=True)
    meta = read(data)
    assert meta.statistics is not None

    def change(body: bytearray) -> None:
        body[-1] = 2

    assert read(resealed(data, meta.stats_offset, change)).statistics is None


def test_statistics_pickle_as_the_bytes_of_the_footer() -> None:
    data = sample()
    meta = read(data)
    assert meta.statistics is not None
    before = len(pickle.dumps(meta))
    assert dict(meta.statistics.usable).keys() == {"i", "f", "b"}
    assert len(pickle.dumps(meta)) == before  # what was decoded meanwhile stays behind
    back = pickle.loads(pickle.dumps(meta)).statistics
    assert back.minimum["f"].tolist() == meta.statistics.minimum["f"].tolist() == [0.5, 0.5]
    assert "s" not in back.usable
    with pytest.raises(KeyError):
        back.usable["s"]
    with pytest.raises(ValueError, match="read-only"):
        back.minimum["f"][0] = 1


@pytest.mark.parametrize("low", [float("nan"), 9.0])
def test_bounds_that_bound_nothing_are_not_used(low: float) -> None:
    records = [{"f": np.array([0.5, 1.0])}]
    columns = file_columns(schema_of(records[0]))
    raw = np.float64(low).tobytes()
    footer = encode_statistics(columns, [[Bounds(raw, np.float64(1).tobytes(), True)]])
    decoded = decode_statistics(footer, columns, 1)
    assert decoded is not None
    assert decoded.usable["f"].tolist() == [False]


@pytest.mark.parametrize("length", [0, 1, 7, 20, 24])
def test_other_sizes_are_no_footer(length: int) -> None:
    columns = file_columns(schema_of({"f": np.zeros(1)}))
    assert decode_statistics(bytes(length), columns, 1) is None


def test_footer_of_another_file_is_not_taken() -> None:
    a = build([{"a": np.arange(3)}], statistics=True)
    meta = read(a)
    columns = file_columns(schema_of({"b": np.zeros(1, "<i8")}))
    assert decode_statistics(a[meta.stats_offset :], meta.columns, 1) is not None
    assert decode_statistics(a[meta.stats_offset :], columns, 1) is None
    assert decode_statistics(a[meta.stats_offset :], meta.columns, 2) is None


@settings(max_examples=100, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_any_statistics_offset_is_harmless(offset: int) -> None:
    data = bytearray(sample())
    good = read(bytes(data))
    fields = data[8:24] + offset.to_bytes(8, "little", signed=True)
    data[8:36] = fields + zlib.crc32(fields).to_bytes(4, "little")
    tracemalloc.start()
    try:
        meta = read(bytes(data))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert (meta.statistics is not None) == (offset == good.stats_offset)


def test_names_that_a_footer_cannot_hold_are_refused_before_writing() -> None:
    for name in ("\ud800", "x" * 65_536, "é" * 32_768):
        columns = file_columns(schema_of({name: np.zeros(1)}))
        assert footer_size(columns, 1) is None
        with pytest.raises(ValueError, match="cannot have statistics"):
            encode_statistics(columns, [])
        assert read(build([{name: np.zeros(1)}])).statistics is None
    long = {"x" * 65_535: np.zeros(1)}
    assert read(build([long], statistics=True)).statistics is not None


def test_entries_of_another_width_are_refused() -> None:
    columns = file_columns(schema_of({"a": np.zeros(1, "<i4")}))
    with pytest.raises(ValueError, match="4 bytes"):
        encode_statistics(columns, [record_statistics([np.zeros(1)])])
