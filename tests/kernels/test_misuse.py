"""Arguments that do not fit, for every family of kernels: refused before anything is written.

An output that is too short, too long, read-only, strided or of another dtype; thread counts of zero, and of more than
there are cores or rows; nothing at all to do; hints that are wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from kernels.layouts import Layout, build
from kernels.test_grid import Stored
from kernels.test_tokens import ints

from colstore_io.kernels import (
    column_codec,
    compare,
    copy,
    decode,
    encode,
    grid,
    heads,
    message_log,
    record_columns,
    records,
    segments,
    tokens,
)

FILL = 7
ROWS = 150


@dataclass
class Case:
    """One call of a kernel: `call` gets the outputs by name, and thread counts if it is `threaded`."""

    name: str
    call: Callable[..., Any]
    outs: dict[str, np.ndarray]
    threaded: bool = False
    any_length: set[str] = field(default_factory=set)
    """Outputs whose length is a matter of the bytes, which are found to be too short or too long."""
    longer: set[str] = field(default_factory=set)
    """Outputs that may be longer than needed."""
    any_memory: bool = False

    def fresh(self) -> dict[str, np.ndarray]:
        """New outputs, full of `FILL`."""
        return {name: filled(len(out), out.dtype) for name, out in self.outs.items()}


def filled(n: int, dtype: Any) -> np.ndarray:
    dtype = np.dtype(dtype)
    return np.full(n * dtype.itemsize, FILL, np.uint8).view(dtype)


def u8(n: int) -> np.ndarray:
    return np.zeros(n, np.uint8)


def addresses(*arrays: np.ndarray) -> np.ndarray:
    return np.array([array.ctypes.data for array in arrays], np.uint64)


def table_of_three() -> Layout:
    return build([100, 0, 50], [8])


def segment_cases() -> list[Case]:
    layout = table_of_three()
    table, mask = layout.table, np.arange(ROWS) % 3 == 0
    rows = np.arange(ROWS)[::-1].copy()
    offsets = segments.mask_offsets(mask)
    test = [("i8", 0, True, None, False)]
    column = np.arange(ROWS)
    column_address = addresses(column)
    many, narrow, size = addresses(*[column] * 3), ints(8, 4, 2), ints(8 * ROWS)
    return [
        Case("take", lambda out, **k: (table.take(rows, out, **k), layout), {"out": column}, True),
        Case("copy_strided", lambda out, **k: table.copy_strided(0, 1, ROWS, out, **k), {"out": column}, True),
        Case("compress", lambda out, **k: table.compress(mask, offsets, out, **k), {"out": column[:50]}, True),
        Case("ranges", lambda out, **k: compare.mask_of_ranges(table, test, out, **k), {"out": mask}, True),
        Case(
            "interleave",
            lambda out, **k: (copy.interleave(many, narrow, out, ROWS, **k), column),
            {"out": u8(ROWS * 14)},
            True,
        ),
        Case(
            "copy_runs",  # takes addresses: its callers have looked at what they are of
            lambda out, **k: (copy.copy_runs(column_address, addresses(out), size, **k), column),
            {"out": column},
            True,
            any_memory=True,
        ),
    ]  # fmt: skip


def grid_cases() -> list[Case]:
    stored = Stored(np.arange(60).reshape(6, 10), [[4, 2], [3, 7]])
    index = [np.array([0, 5, 3, 1]), np.array([9, 0, 2, 4])]
    edges = np.concatenate(stored.edges)
    point_arguments = (
        stored.bases, stored.counts, edges, stored.uniform(), addresses(*index), ints(8, 8), 4, 8,
    )  # fmt: skip
    lengths = np.array([4, 2, 3, 7])
    runs = np.array([[0, 4, 0, 0, 1], [4, 2, 1, 0, 1], [0, 2, 0, 0, 2], [2, 1, 1, 6, 2**62]])
    slab_arguments = (stored.bases, stored.counts, lengths, runs, ints(2, 2), ints(6, 3), 8)
    return [
        Case(
            "points",
            lambda out, **k: (grid.take_points(*point_arguments, out, **k), index),
            {"out": u8(32)},
            True,
        ),
        Case(
            "slab",
            lambda out, **k: (grid.copy_slab(*slab_arguments, out, **k), stored),
            {"out": u8(144)},
            True,
        ),
    ]


def column_cases() -> list[Case]:
    values = np.arange(30)
    data = column_codec.encode(values)
    places = ints(0), ints(len(data))
    bitmap = np.array([0b10010], np.uint8)
    numbers = np.array([1, 0, 1], np.uint32)
    offsets, text = ints(0, 2, 2, 5), np.frombuffer(b"abcde", np.uint8)
    codes = np.zeros(3, np.uint32)
    big = np.arange(70_000)
    packed = column_codec.encode(big)
    many = np.array([0, len(packed)]), np.array([len(packed)] * 2)
    return [
        Case("codec", lambda out: column_codec.decode(data, out), {"out": values}, any_length={"out"}),
        Case(
            "codecs",
            lambda out, **k: column_codec.decode_columns(data, *places, [out], **k),
            {"out": values},
            True,
            any_length={"out"},
        ),
        Case(
            "parallel codecs",
            lambda out, other, **k: column_codec.decode_columns(packed * 2, *many, [out, other], **k),
            {"out": big, "other": big},
            True,
            any_length={"out", "other"},
        ),
        Case("delta", lambda out: decode.delta(bytes(80), out, 4), {"out": u8(40)}),
        Case("bools", lambda out: decode.bools(bytes(2), out), {"out": u8(9)}, longer={"out"}),
        Case("validity", lambda out: decode.validity(bytes(2), out), {"out": u8(9)}, longer={"out"}),
        Case("expand", lambda out: decode.expand(out, 8, bitmap), {"out": u8(64)}),
        Case(
            "unpack",
            lambda out: decode.PackedReader(8, 256, out).feed(bytes(5)),
            {"out": u8(12)},
        ),
        Case(
            "entries",
            lambda out: decode.PackedReader(8, 256, out, 0, bytes(1024), 4).feed(bytes(5)),
            {"out": u8(12)},
        ),
        Case("table", lambda out: decode.offset_table(bytes(12), 5, out), {"out": np.zeros(4, np.int64)}),
        Case(
            "variable",
            lambda out, to: decode.take_variable(numbers, offsets.astype(np.uint32), text, to, out),
            {"out": u8(2), "to": np.zeros(4, np.int64)},
        ),
        Case(
            "chosen values",
            lambda out, to: decode.copy_values(text, ints(0, 1), ints(1, 1), ints(0, 1), to, out),
            {"out": u8(2), "to": np.zeros(2, np.int64)},
        ),
        Case(
            "lzw", lambda out: decode.lzw(bytes.fromhex("00c30404"), out), {"out": u8(1)}, any_length={"out"}
        ),
        Case("delta encode", lambda out: encode.delta(u8(24), 8, True, out), {"out": np.zeros(3, np.uint64)}),
        Case("pack", lambda out: encode.pack_bits(numbers, 8, out), {"out": u8(3)}),
        Case(
            "fixed codes",
            lambda codes, firsts: encode.fixed_codes(u8(24), 8, 9, 0, codes, firsts),
            {"codes": codes, "firsts": codes},
            longer={"firsts"},
        ),
        Case(
            "variable codes",
            lambda codes, firsts: encode.variable_codes(offsets, text, 9, 0, codes, firsts),
            {"codes": codes, "firsts": codes},
            longer={"firsts"},
        ),
        Case(
            "renumber",
            lambda codes, order: encode.renumber(ints(0, 1, 0), np.zeros(2, np.uint32), codes, order),
            {"codes": codes, "order": codes[:2]},
        ),
        Case("put entries", lambda out: encode.put_entries(offsets, text, numbers, out), {"out": u8(14)}),
        Case("prefixed", lambda out: encode.prefixed(offsets, text, 0, 0, out), {"out": u8(17)}),
        Case("lzw encode", lambda out: encode.lzw(text, out), {"out": u8(26)}, longer={"out"}),
    ]


def token_cases() -> list[Case]:
    offsets = np.arange(257)
    table = tokens.TokenTable(offsets, np.arange(256).astype(np.uint8), 65535)
    none = np.zeros((0, 4), np.uint16)
    model = tokens.BpeModel(
        table, np.arange(256).astype(np.int32), offsets, np.arange(256).astype(np.uint8),
        np.arange(256).astype(np.uint16), none, ints(0), u8(0), np.zeros(0, np.uint16), np.zeros(0, np.int32),
    )  # fmt: skip
    ids = np.array([97, 98, 99, 100], np.uint16)
    starts, blocks, lengths = ints(0, 1, 4), ints(0, 1, 2), ints(1, 3)
    text = np.frombuffer(b"abcd", np.uint8)
    everything = np.arange(65536).astype(np.uint16)
    return [
        Case(
            "encode",
            lambda ids, escapes, counts, a, b, threads=1: model.encode(
                starts, text, blocks, ids, escapes, counts, a, b, True, threads
            ),
            {"ids": ids, "escapes": u8(4), "counts": lengths, "a": lengths, "b": lengths},
            True,
            longer={"ids", "escapes"},
        ),
        Case("bits encode", lambda out: tokens.bits_encode(ids, 12, out), {"out": u8(6)}),
        Case(
            "remap encode",
            lambda out: tokens.remap_encode(ids, everything, out),
            {"out": u8(4)},
            any_length={"out"},
        ),
    ]


LAYOUT_FIELDS = [(1, 4, False, 0), (2, 11, False, 1), (3, 15, False, 2), (4, 20, False, 3), (5, 0, True, 4)]


def sources(rows: int) -> list[tuple[Any, ...]]:
    """Columns of i64, text, lists of i32, lists of text, and optional booleans."""
    text = np.frombuffer(b"abcdefgh" * 8, np.uint8)
    ends = np.arange(rows + 1)
    return [
        (np.arange(rows).view(np.uint8), None, None, None, None),
        (None, None, ends * 2, None, text),
        (np.arange(2 * rows).astype(np.int32).view(np.uint8), None, ends * 2, None, None),
        (None, None, ends, np.arange(rows + 1) * 3, text),
        (np.ones(rows, np.uint8), np.arange(rows).astype(np.uint8) % 2, None, None, None),
    ]


def record_cases() -> list[Case]:
    rows = 6
    layout = record_columns.Layout([(False, LAYOUT_FIELDS)])
    room = u8(1000)
    written = room[: record_columns.write_list(layout, sources(rows), 0, rows, room)].copy()
    least = rows * (5 + 10 + 10 + 10 + 15 + 10) + 2 * rows + 8 * 2 * rows + 5 * rows + 3 * rows
    eights = np.zeros(rows, np.int64)

    def targets(o: dict[str, np.ndarray]) -> list[tuple[Any, ...]]:
        return [
            (o["i"], None, None, None),
            *((None, None, o[f"p{k}"], o[f"s{k}"]) for k in (1, 2, 3)),
            (o["b"], o["v"], None, None),
        ]

    def read(**o: np.ndarray) -> Any:
        return record_columns.read_list(layout, written, 0, len(written), 0, rows, False, targets(o))

    places = {name: np.zeros(rows, np.int64) for name in ("p1", "s1", "p2", "s2", "p3", "s3")}
    outs = {"i": u8(8 * rows), "b": u8(rows), "v": u8(rows), **places}
    found = {name: np.zeros_like(out) for name, out in outs.items()}
    assert read(**found) == (0, len(written))
    args = {k: (found[f"p{k}"], found[f"s{k}"]) for k in (1, 2, 3)}
    frames = u8(0)
    for size in (3, 5):
        head = np.array([size, 0], "<u4").view(np.uint8)
        crc = message_log.crc32(bytes(size), message_log.crc32(head[:4]))
        head[4:] = np.array([crc], "<u4").view(np.uint8)
        frames = np.concatenate([frames, head, u8(size)])
    record = records.encode_record([eights], [eights.dtype], 0, 1000)
    assert record is not None
    known = ints(0, 11), ints(11, 13), ints(1, 1)
    all_longer = set(outs)
    return [
        Case("read", read, outs, longer=all_longer),
        Case(
            "write",
            lambda out: record_columns.write_list(layout, sources(rows), 0, rows, out),
            {"out": u8(least)},
            longer={"out"},
        ),
        Case(
            "write messages",
            lambda out, stop: record_columns.write_records(layout, sources(rows), 0, rows, stop, out),
            {"out": u8(least), "stop": eights},
            longer={"out"},
        ),
        Case("texts", lambda out: record_columns.texts(written, args[1][0], args[1][1].copy(), 11, out),
             {"out": u8(2 * rows)}, longer={"out"}),
        Case("lists", lambda out: record_columns.integer_lists(written, *args[2], 15, out), {"out": u8(8 * rows)},
             longer={"out"}),
        Case("text lists", lambda out, ends: record_columns.string_lists(written, *args[3], ends, out),
             {"out": u8(3 * rows), "ends": np.zeros(rows + 1, np.int64)}, longer={"out"}, any_length={"out"}),
        Case("text column", lambda out: record_columns.write_string_column(0, 1, ints(0, 1, 3), b"abc", out),
             {"out": u8(29)}, longer={"out"}),
        Case("walk", lambda a, b: records.walk_records(record, 0, 8, len(record), a, b), {"a": ints(0), "b": ints(0)}),
        Case("heads", lambda rows: heads.alike(np.zeros((3, 512), np.uint8), np.zeros((3, heads.HEAD_FIELDS), np.int64),
             200, 200, 8, rows), {"rows": ints(0, 0, 0)}),
        Case("frames", lambda a, b, c: message_log.walk(frames, 0, 0, a, b, c),
             {"a": eights, "b": eights, "c": eights}),
        Case("open frames", lambda a, b, c: message_log.open_all(frames, 0, *known, a, b, c),
             {"a": ints(0, 0), "b": ints(0, 0), "c": u8(2)}),
    ]  # fmt: skip


CASES = [*segment_cases(), *grid_cases(), *column_cases(), *token_cases(), *record_cases()]
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def unfit(out: np.ndarray, case: Case, name: str) -> dict[str, np.ndarray]:
    """Outputs that do not do in place of `out`, each full of `FILL`."""
    n = len(out)
    other = np.dtype("S3" if out.dtype.itemsize == 8 else "c16")
    if case.any_memory:
        return {}
    found = {"strided": filled(2 * n + 2, out.dtype)[: 2 * n : 2], "another dtype": filled(n, other)}
    if n == 1:
        del found["strided"]  # is contiguous
    found["two dimensions"] = filled(n, out.dtype).reshape(1, n)
    found["read-only"] = filled(n, out.dtype)
    found["read-only"].flags.writeable = False
    if name not in case.any_length:
        found["too short"] = filled(n, out.dtype)[:-1]
        if name not in case.longer:
            found["too long"] = filled(n + 1, out.dtype)
    return found


def untouched(array: np.ndarray) -> bool:
    return bool((np.frombuffer(array.tobytes(), np.uint8) == FILL).all())


@EACH
def test_fitting_outputs_are_filled(case):
    outs = case.fresh()
    case.call(**outs)
    assert not all(untouched(out) for out in outs.values())


@EACH
def test_unfit_outputs_are_refused_before_anything_is_written(case):
    for name, good in case.outs.items():
        for what, out in unfit(good, case, name).items():
            outs = {**case.fresh(), name: out}
            try:
                case.call(**outs)
            except (ValueError, TypeError, BufferError):
                assert all(untouched(array) for array in outs.values()), f"{name}: {what}"
            else:
                pytest.fail(f"{name}: {what} was taken")


THREADED = pytest.mark.parametrize(
    "case", [case for case in CASES if case.threaded], ids=lambda case: case.name
)


@THREADED
def test_every_number_of_threads_gives_the_same(case):
    expected = case.fresh()
    case.call(**expected)
    for threads in (1, 2, 3, os.cpu_count() or 1, ROWS + 1):
        outs = case.fresh()
        case.call(**outs, threads=threads)
        for name, out in outs.items():
            assert out.tobytes() == expected[name].tobytes(), (name, threads)


@THREADED
@pytest.mark.parametrize("threads", [0, -1, -(2**31)])
def test_no_threads_are_refused_before_anything_is_written(case, threads):
    outs = case.fresh()
    with pytest.raises(ValueError, match="threads"):
        case.call(**outs, threads=threads)
    assert all(untouched(out) for out in outs.values())


def test_counting_and_checking_need_a_thread():
    for call in (
        segments.mask_offsets,
        lambda rows, **k: segments.first_out_of_range(rows.view(np.int64), 9, **k),
    ):
        with pytest.raises(ValueError, match="threads"):
            call(np.zeros(16, bool), threads=0)
    with pytest.raises(ValueError, match="threads"):
        column_codec.encode_columns([np.arange(3)], threads=0)


def test_nothing_to_do_is_done():
    """No rows, no columns, no segments, no bytes: no error, and nothing is touched."""
    none, empty = ints(), u8(0)
    n0 = np.empty(0, np.uint32)
    for threads in (1, 2, 100):
        for layout in (build([], [8]), build([0, 0], [8]), build([3], [8])):
            table, out = layout.table, np.empty(0)
            mask = np.zeros(layout.n_rows, bool)
            assert table.take(none, out, threads=threads) == -1
            table.copy_strided(0, 1, 0, out, threads=threads)
            table.compress(mask, segments.mask_offsets(mask, threads=threads), out, threads=threads)
            assert segments.first_out_of_range(none, layout.n_rows, threads=threads) == -1
        copy.copy_runs(*[np.empty(0, np.uint64)] * 2, none, threads=threads)
        copy.interleave(np.empty(0, np.uint64), none, empty, 5, threads=threads)
        stored = Stored(np.arange(4), [[2, 2]])
        assert stored.take(grid, [none], threads=threads)[0] == -1
        grid.copy_slab(stored.bases, stored.counts, ints(2, 2), np.zeros((0, 5), np.int64), ints(0), ints(0), 8, empty,
                       threads=threads)  # fmt: skip
        assert column_codec.encode_columns([], threads=threads) == []
        assert column_codec.decode_columns(b"", none, none, [], threads=threads) == (-1, 0)
    reader = tokens.TokenReader(tokens.TokenTable(ints(0), empty, 0), 0, empty, 0, 0, 0, 0)
    reader.put_escapes(empty, 0)
    reader.begin(ints(0), 0)
    assert reader.feed(empty, ints(0)) == 0
    assert bytes(reader.take()) == b""
    assert column_codec.decode(column_codec.encode(none), none) == 0
    assert decode.delta(b"", empty, 8) == 0
    assert decode.PackedReader(8, 1, empty).feed(b"") == -1
    assert decode.PackedReader(0, 1, empty).zeros() == -1
    assert decode.first_not_utf8(b"", ints(0)) == -1
    for call in (decode.bools, decode.validity):
        call(b"", empty)
    decode.expand(empty, 8, b"")
    decode.spread_offsets(ints(0), b"")
    assert decode.plain_spans(b"", ints(), ints()) == (0, 0)
    decode.copy_values(b"", ints(), ints(), ints(), ints(), empty)
    decode.take_variable(n0, np.zeros(1, np.uint32), b"", ints(0), empty)
    decode.offset_table(b"", 0, ints(0))
    assert decode.PlainReader(ints(0), empty).complete
    encode.delta(empty, 8, True, np.empty(0, np.uint64))
    encode.pack_bits(n0, 7, empty)
    assert encode.fixed_codes(empty, 8, 0, 0, n0, n0) == 0
    assert encode.variable_codes(ints(0), empty, 0, 0, n0, n0) == 0
    assert encode.renumber(none, n0, n0, n0) == 0
    encode.prefixed(ints(0), empty, 0, 0, empty)
    encode.put_entries(ints(0), empty, n0, empty)
    assert encode.affixes(ints(0), empty) == (0, 0)
    assert encode.lzw(empty, u8(16)) == 3
    assert tokens.token_counts(np.empty(0, np.uint32), 0, 0) == 0
    assert tokens.remap_encode(np.empty(0, np.uint16), np.zeros(65536, np.uint16), empty) == 0
    assert records.walk_records(empty, 0, 8, 0, none, none) == (0, 0)
    assert message_log.walk(empty, 0, 0, none, none, none) == (0, 0, 0)
    assert message_log.open_all(empty, 0, none, none, none, none, none, empty) == (0, -1)
    assert message_log.last_sound(empty, 0, none, none, none) == -1
    heads.read_heads(empty, np.zeros((0, 512), np.uint8), np.zeros((0, heads.HEAD_FIELDS), np.int64))
    layout = record_columns.Layout([(False, LAYOUT_FIELDS)])
    assert record_columns.write_list(layout, sources(0), 0, 0, empty) == 0
    nothing = [(None, None, None, None)] * 5
    assert record_columns.read_list(layout, empty, 0, 0, 0, 0, False, nothing) == (0, 0)
    assert record_columns.read_records(layout, empty, none, none, nothing) == (0, 0)
    assert record_columns.texts(empty, none, none, 11, empty) == (0, -1)
    assert record_columns.integer_lists(empty, none, none, 15, empty) == -1
    assert record_columns.string_lists(empty, none, none, ints(0), empty) == -1


@pytest.mark.parametrize("distance", [-(2**63), -5, 0, 1, 96, 255, 256, 10**6, 2**63 - 1])
@pytest.mark.parametrize("route", [None, "cursor", "search", "bucket"])
def test_any_look_ahead_and_any_route_give_the_rows(distance, route):
    layout = build([40, 0, 100, 7], [8])
    rows = np.random.default_rng(1).integers(-147, 147, 500)  # not in order, whatever the route believes
    out = np.zeros(500, "V8")
    assert layout.table.take(rows, out, prefetch=distance, route=route) == -1
    np.testing.assert_array_equal(out, layout.columns[0][rows])


def test_promise_of_equal_segments_is_checked():
    for lengths, rows in (([5, 4, 5], 5), ([5, 5, 6], 5), ([5, 5], 4)):
        layout = build(lengths, [8], uniform_rows=rows)
        with pytest.raises(ValueError, match=r"start|longer"):
            segments.SegmentTable(*layout.arguments)
    stored = Stored(np.arange(12), [[5, 5, 2]])
    for uniform in (4, 6, 2**62):
        with pytest.raises(ValueError, match="uniform"):
            stored.take(grid, [np.array([1])], uniform=np.array([uniform]))


@pytest.mark.slow
@pytest.mark.parametrize("position", [0, 1, 4_999_999, 9_999_998, 9_999_999])
def test_one_bad_index_among_ten_million_is_found(position):
    n = 10_000_000
    layout = build([n // 2, n // 2], [1], misalign=False)
    rows, out = np.arange(n)[::-1].copy(), np.empty(n, np.uint8)
    rows[position] = n
    for threads in (1, 2):
        assert segments.first_out_of_range(rows, n, threads=threads) == position
        assert layout.table.take(rows, out, threads=threads) == position


def test_columns_that_do_not_fit_their_records_are_refused_before_anything_is_written():
    layout = record_columns.Layout([(False, LAYOUT_FIELDS)])
    good, out = sources(6), filled(2000, np.uint8)
    for column, (place, value) in {
        0: (0, u8(47)),
        1: (2, ints(0, 2, 4, 6, 8, 10, 65)),
        2: (2, ints(0, 1, 2, 3, 4, 5, 13)),
        3: (3, ints(0, 1, 2, 3, 4, 5, 65)),
        4: (1, u8(5)),
    }.items():
        bad = [*good]
        bad[column] = (*good[column][:place], value, *good[column][place + 1 :])
        with pytest.raises(ValueError, match=r"column|offsets"):
            record_columns.write_list(layout, bad, 0, 6, out)
    for offsets in (ints(0, 2, 1, 3, 4, 5, 6), ints(-1, 2, 3, 4, 5, 6, 7), ints(0, 1, 2)):
        bad = [good[0], (None, None, offsets, None, good[1][4]), *good[2:]]
        with pytest.raises(ValueError, match="offsets"):
            record_columns.write_list(layout, bad, 0, 6, out)
    with pytest.raises(ValueError, match="rows are counted"):
        record_columns.write_list(layout, good, -1, 6, out)
    with pytest.raises(ValueError, match="columns are written"):
        record_columns.write_list(layout, good[:4], 0, 6, out)
    assert untouched(out)
    for fields in ([(1, 4, False, 1)], [(1, 4, False, 0), (2, 4, False, 0)], [(1, 22, False, 0)]):
        with pytest.raises(ValueError, match="columns are counted"):
            record_columns.Layout([(False, fields)])


def test_bytes_that_changed_between_the_passes_are_noticed():
    layout, rows = record_columns.Layout([(False, LAYOUT_FIELDS)]), 6
    room = u8(1000)
    data = room[: record_columns.write_list(layout, sources(rows), 0, rows, room)].copy()
    place, size = np.zeros((3, rows), np.int64), np.zeros((3, rows), np.int64)
    variable = [(None, None, place[k], size[k]) for k in range(3)]
    targets = [(u8(8 * rows), None, None, None), *variable, (u8(rows), u8(rows), None, None)]
    assert record_columns.read_list(layout, data, 0, len(data), 0, rows, False, targets) == (0, len(data))
    out, ends = u8(1000), np.zeros(rows + 1, np.int64)
    text_bytes = record_columns.string_lists_bytes(data, place[2])
    for value in range(256):
        changed = data.copy()
        for row in range(rows):
            at = place[:, row] >> 1
            changed[at + 1] = value  # how long it is
            record_columns.texts(changed, place[0], size[0].copy(), 11, out[: size[0].sum()])
            record_columns.integer_lists(changed, place[1], size[1], 15, out[: 4 * size[1].sum()])
            record_columns.string_lists(changed, place[2], size[2], ends, out[:text_bytes])
    assert record_columns.texts(data[:20], place[0], size[0].copy(), 11, out)[1] >= 0
    assert record_columns.integer_lists(data[:20], place[1], size[1], 15, out) >= 0
    assert record_columns.string_lists(data[:20], place[2], size[2], ends, out) >= 0
    with pytest.raises(ValueError, match="impossible size"):
        record_columns.texts(data, place[0], size[0] - 9, 11, out)
    for code, call in ((12 + 1, record_columns.texts), (20, record_columns.integer_lists)):
        with pytest.raises(ValueError, match="no "):
            call(data, place[0], size[0].copy(), code, out)


def test_columns_of_a_writer_need_not_be_aligned():
    room = u8(8 * 50 + 1)
    values = room[1:].view(np.int64)
    values[:] = np.arange(50) % 7
    out, codes, firsts = np.empty(50, np.uint64), np.empty(50, np.uint32), np.empty(50, np.uint32)
    encode.delta(room[1:], 8, True, out)
    assert np.cumsum(out.view(np.int64)).tolist() == values.tolist()
    for width in (2, 4, 8):
        narrow = u8(width * 50 + 1)
        narrow[1:] = values.astype(f"u{width}").view(np.uint8)
        assert encode.fixed_codes(narrow[1:], width, 50, 3, codes, firsts) == 7
        assert codes.tolist() == values.tolist()
