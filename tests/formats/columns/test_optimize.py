"""Optimize: candidates, order and ties are those of columns.md 10.3; the fast mode finds nearly the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from formats.columns.test_write_read import LARGE, decode, encode, field, large_schema
from hypothesis import given
from hypothesis import strategies as st

from colstore_io.fields import Schema
from colstore_io.formats.columns.encode import prepare
from colstore_io.formats.columns.encoder import ColumnsEncoder, column_type
from colstore_io.formats.columns.optimize import Candidate, candidate_encodings, optimize_column, pick
from colstore_io.formats.columns.tags import Codec, Encoding, Type

E = Encoding


def dense(kind, values):
    column = np.array(values, "?" if kind is Type.BOOL else None) if kind.fixed else pa.array(values)
    return prepare("c", kind, False, column).dense


def test_candidates_stand_in_the_order_of_the_format():
    assert candidate_encodings(Type.BOOL) == (E.RLE_BITPACK, E.PLAIN)
    assert candidate_encodings(Type.UINT16) == (E.PLAIN, E.DELTA, E.DICT)
    assert candidate_encodings(Type.FLOAT32) == (E.PLAIN, E.DICT)
    assert candidate_encodings(Type.BYTES) == (E.OFFSET_BYTES, E.DICT, E.AFFIX)
    assert candidate_encodings(Type.STRING, tokenizer=True) == (E.PLAIN, E.DICT, E.AFFIX, E.TOKENIZED)


def test_every_candidate_is_measured_under_three_codecs():
    report = optimize_column("c", dense(Type.INT64, [5, 10, 15]), 9)
    assert [(row.encoding, row.codec) for row in report.rows] == [
        (encoding, codec)
        for encoding in (E.PLAIN, E.DELTA, E.DICT)
        for codec in (Codec.NONE, Codec.FLATE, Codec.LZW)
    ]
    assert [row.encoded_bytes for row in report.rows[::3]] == [24, 24, 12 + 1 + 4 + 12 + 24]


def row(encoding, codec, encoded, compressed):
    return Candidate(encoding, codec, encoded, compressed)


def test_ties_go_to_fewer_encoded_bytes_and_then_to_the_earlier():
    rows = [
        row(E.PLAIN, Codec.NONE, 10, 10),
        row(E.PLAIN, Codec.FLATE, 10, 7),
        row(E.PLAIN, Codec.LZW, 10, 7),
        row(E.DELTA, Codec.FLATE, 9, 7),
        row(E.DELTA, Codec.LZW, 9, 7),
        row(E.DICT, Codec.NONE, 9, 7),
        row(E.DICT, Codec.LZW, 8, None),
    ]
    assert pick(rows) is rows[3]
    assert pick(rows[:3]) is rows[1]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=12))
def test_the_chooser_is_the_stable_minimum(sizes):
    rows = [row(E.PLAIN, Codec.NONE, encoded, compressed) for encoded, compressed in sizes]
    best = min(range(len(rows)), key=lambda i: (sizes[i][1], sizes[i][0], i))
    assert pick(rows) is rows[best]


def test_given_sizes_decide_the_pick():
    # DEFLATE sizes as another compressor would have them: longer than those of Lzw in short streams.
    report = optimize_column("c", dense(Type.INT64, [7] * 4), 9, deflated=lambda stream: 100)
    assert report.chosen.codec is Codec.LZW
    report = optimize_column("c", dense(Type.INT64, [7] * 4), 9, deflated=lambda stream: 1)
    assert (report.chosen.encoding, report.chosen.codec) == (E.DICT, Codec.FLATE)  # 28 bytes encoded


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [(Type.BOOL, E.RLE_BITPACK), (Type.INT16, E.PLAIN), (Type.FLOAT64, E.PLAIN), (Type.STRING, E.PLAIN),
     (Type.BYTES, E.OFFSET_BYTES)],
)  # fmt: skip
def test_without_rows_the_encoded_size_decides(mode, kind, expected):
    empty = prepare("c", kind, False, pa.nulls(0)).dense
    chosen = optimize_column("c", empty, 9, mode=mode).chosen
    assert (chosen.encoding, chosen.codec) == (expected, Codec.NONE)
    assert chosen.encoded_bytes == (4 if kind is Type.BYTES else 0)


@pytest.mark.parametrize("name", LARGE)
def test_the_fast_mode_costs_at_most_one_percent(name):
    schema = large_schema()
    given = prepare(name, column_type(schema[name]), schema[name].optional, LARGE[name]).dense
    exact, fast = (optimize_column(name, given, 6, mode=mode) for mode in ("exact", "fast"))
    costs = {(r.encoding, r.codec): r.compressed_bytes for r in exact.rows}
    assert costs[fast.chosen.encoding, fast.chosen.codec] <= 1.01 * exact.chosen.compressed_bytes + 64


def test_the_first_row_group_decides_for_all():
    schema = Schema((field(Type.INT64, "a"),))
    groups = [[np.arange(1000)], [np.random.default_rng(0).integers(0, 2**62, 1000)]]
    encoder, written = encode(schema, groups, optimize=True, compression="none", encoding="dict")
    first, second = (group.chunks[0] for group in encoder.groups)
    assert (first.encoding, first.codec) == (E.DELTA, Codec.FLATE)
    assert (second.encoding, second.codec) == (E.DELTA, Codec.NONE)
    assert decode(written) == [[column.tolist() for column in columns] for columns in groups]


def test_optimize_may_be_called_again_and_reports():
    encoder = ColumnsEncoder(Schema((field(Type.INT64, "a"),)), compression="none")
    encoder.begin()
    encoder.segment([np.arange(100)])
    assert encoder.candidates == ()
    (report,) = encoder.optimize([np.arange(100)])
    assert report.chosen.encoding is E.DELTA
    assert "<- chosen" in str(report)
    encoder.segment([np.arange(100)])
    (report,) = encoder.optimize([np.zeros(100, np.int64)])
    encoder.segment([np.arange(100)])
    assert [group.chunks[0].codec for group in encoder.groups][:2] == [Codec.NONE, Codec.FLATE]


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("rows", [0, 1, 900, 60_000])
def test_what_was_measured_is_what_is_written(mode, rows):
    """Streams that are kept from the measurement are those that would be made again; so are the layouts after them."""
    names = [name for name in LARGE if rows <= 900 or name in ("few", "nulls", "bool")]
    schema = Schema(tuple(f for f in large_schema() if f.name in names))
    columns = [LARGE[name][:rows] for name in names]
    at_once = ColumnsEncoder(schema, optimize=mode, optimize_level=1)
    parts = [at_once.begin(), *at_once.segment(columns), *at_once.segment(columns), at_once.finish()]
    before = ColumnsEncoder(schema, optimize=mode, optimize_level=1)
    head = before.begin()
    reports = before.optimize(columns)
    again = [head, *before.segment(columns), *before.segment(columns), before.finish()]
    assert b"".join(parts) == b"".join(again)
    assert at_once.candidates == reports
    assert all(report.choice.stream is None for report in (*at_once.candidates, *reports))


def test_lzw_is_measured_only_where_deflate_finds_nothing():
    fast = optimize_column(
        "c", dense(Type.STRING, [f"row {i % 70} of them" for i in range(2000)]), 9, mode="fast"
    )
    assert all(r.compressed_bytes is None for r in fast.rows if r.codec is Codec.LZW)
    noise = optimize_column(
        "c", dense(Type.INT64, np.random.default_rng(0).integers(0, 1 << 62, 3)), 9, mode="fast"
    )
    assert any(r.compressed_bytes is not None for r in noise.rows if r.codec is Codec.LZW)
