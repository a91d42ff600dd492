"""Gathers over segment tables: compiled kernels against their NumPy twins and against plain indexing."""

from __future__ import annotations

import itertools
import os
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.layouts import Layout, build, layouts
from numpy.typing import NDArray

from colstore_io import kernels_numpy
from colstore_io.kernels import segments as compiled

THREADS = [1, 2, 3, 8]
GATHER_ROUTES = [None, "bucket", "search", "cursor"]
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

GATHER_VERSIONS = compiled.gather_instruction_sets()

several_routes = pytest.mark.parametrize("route", GATHER_ROUTES)
several_threads = pytest.mark.parametrize("threads", THREADS)


def routes_of(layout: Layout) -> list[str | None]:
    routes = list(GATHER_ROUTES)
    if layout.uniform_rows:
        routes.append("uniform")
    if len(layout.row_start) == 1:
        routes.append("affine")
    return routes


def mask_routes() -> list[str | None]:
    return [None, *compiled.instruction_sets()]


def assert_taken(layout: Layout, indices: NDArray[np.int64], outputs: list[NDArray[np.void]]) -> None:
    for column, output in zip(layout.columns, outputs, strict=True):
        np.testing.assert_array_equal(output, column[indices])


class TestTake:
    @settings(max_examples=150, deadline=None)
    @given(layouts(), st.data())
    def test_every_route_returns_the_rows_its_twin_returns(self, layout: Layout, data: st.DataObject) -> None:
        stored = layout.stored_rows
        picks = data.draw(
            st.lists(st.integers(0, max(len(stored) - 1, 0)), max_size=600 if len(stored) else 0)
        )
        indices = stored[np.array(picks, np.int64)] if picks else np.empty(0, np.int64)
        if data.draw(st.booleans()):
            indices = np.sort(indices)
        if len(indices):
            flip = data.draw(st.integers(0, len(indices)))
            indices[:flip] -= layout.n_rows
        expected = layout.outputs(len(indices))
        assert layout.twin.take(indices, expected) == -1
        assert_taken(layout, indices, expected)
        table = layout.table
        for route, isa in itertools.product(routes_of(layout), GATHER_VERSIONS):
            for prefetch in (-1, 0, 1, 96, 5000):
                outputs = layout.outputs(len(indices))
                assert table.take(indices, outputs, route=route, prefetch=prefetch, isa=isa) == -1
                assert_taken(layout, indices, outputs)

    @settings(max_examples=100, deadline=None)
    @given(layouts(), st.data())
    def test_any_bad_index_is_found_by_both_families(self, layout: Layout, data: st.DataObject) -> None:
        stored = layout.stored_rows
        n = layout.n_rows
        good = data.draw(st.lists(st.sampled_from(stored.tolist()), max_size=400)) if len(stored) else []
        bad = data.draw(
            st.sampled_from([n, n + 1, -n - 1, INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - n])
        )
        position = data.draw(st.integers(0, len(good)))
        indices = np.array([*good[:position], bad, *good[position:]], np.int64)
        assert compiled.first_out_of_range(indices, n) == position
        assert kernels_numpy.first_out_of_range(indices, n) == position
        assert layout.twin.take(indices, layout.outputs(len(indices))) == position
        for route, isa in itertools.product(routes_of(layout), GATHER_VERSIONS):
            found = layout.table.take(indices, layout.outputs(len(indices)), route=route, isa=isa)
            assert found == (position if len(layout.row_start) else 0)

    @several_threads
    @pytest.mark.parametrize("itemsize", [[8], [1, 2, 4, 8, 16, 20, 3]])
    def test_thread_counts_and_long_inputs_give_equal_results(
        self, threads: int, itemsize: list[int]
    ) -> None:
        layout = build([700] * 300 + [1], itemsize, uniform_rows=700)
        generator = np.random.default_rng(threads)
        indices = generator.integers(-layout.n_rows, layout.n_rows, 300_001)
        for case in (indices, np.sort(indices % layout.n_rows)):
            for route, isa in itertools.product(routes_of(layout), GATHER_VERSIONS):
                outputs = layout.outputs(len(case))
                assert layout.table.take(case, outputs, threads=threads, route=route, isa=isa) == -1
                assert_taken(layout, case, outputs)

    @several_threads
    @pytest.mark.parametrize("position", [0, 65535, 65536, 199_999])
    def test_bad_index_in_any_chunk_is_reported(self, threads: int, position: int) -> None:
        layout = build([1000, 0, 5000], [8])
        indices = np.zeros(200_000, np.int64)
        indices[position] = layout.n_rows
        assert layout.table.take(indices, layout.outputs(len(indices)), threads=threads) == position
        assert compiled.first_out_of_range(indices, layout.n_rows, threads=threads) == position

    def test_one_of_several_bad_indices_is_reported(self) -> None:
        layout = build([1000], [8])
        indices = np.zeros(300_000, np.int64)
        indices[[70_000, 140_000, 299_999]] = [INT64_MIN, 1000, -1001]
        found = layout.table.take(indices, layout.outputs(len(indices)), threads=2)
        assert found in (70_000, 140_000, 299_999)

    @several_routes
    def test_row_in_a_gap_is_reported_and_not_read(self, route: str | None) -> None:
        layout = build([10, 10], [8], gaps=[3, 5], tail_gap=2)
        for row, isa in itertools.product((0, 2, 13, 17, 28, 29), GATHER_VERSIONS):
            indices = np.array([3, 12, 18, 27, row, 4], np.int64)
            assert layout.table.take(indices, layout.outputs(6), route=route, isa=isa) == 4
            assert layout.twin.take(indices, layout.outputs(6), route=route) == 4

    def test_cursor_route_survives_any_order(self) -> None:
        layout = build([3, 0, 0, 200, 1, 1, 0, 50, 0], [4, 8])
        indices = np.random.default_rng(0).permutation(np.repeat(np.arange(layout.n_rows), 5))
        outputs = layout.outputs(len(indices))
        assert layout.table.take(indices, outputs, route="cursor") == -1
        assert_taken(layout, indices, outputs)

    def test_sorted_runs_with_repeats_and_one_late_step_back(self) -> None:
        layout = build([5000] * 20, [8])
        indices = np.sort(np.random.default_rng(1).integers(0, layout.n_rows, 100_000))
        indices[77_777] = 0
        outputs = layout.outputs(len(indices))
        assert layout.table.take(indices, outputs, threads=2) == -1
        assert_taken(layout, indices, outputs)

    def test_skewed_segments_keep_the_bucket_route_exact(self) -> None:
        layout = build([1] * 3000 + [100_000] + [0] * 50 + [2] * 1000, [8])
        indices = np.random.default_rng(2).integers(0, layout.n_rows, 50_000)
        indices[::5] %= 3001  # where the buckets hold many boundaries
        for isa in GATHER_VERSIONS:
            outputs = layout.outputs(len(indices))
            assert layout.table.take(indices, outputs, route="bucket", isa=isa) == -1
            assert_taken(layout, indices, outputs)

    @pytest.mark.parametrize("rows", [[1], [2, 1], [64] * 9, [0, 64, 0, 0, 64, 1, 63, 0], [3, 200, 1]])
    def test_every_row_of_small_tables_is_found_by_buckets(self, rows: list[int]) -> None:
        layout = build(rows, [8, 2])
        indices = np.arange(-layout.n_rows, layout.n_rows)
        for isa in GATHER_VERSIONS:
            outputs = layout.outputs(len(indices))
            assert layout.table.take(indices, outputs, route="bucket", isa=isa) == -1
            assert_taken(layout, indices, outputs)

    @pytest.mark.parametrize("uniform", [True, False])
    @pytest.mark.parametrize("isa", GATHER_VERSIONS)
    def test_rows_past_two_to_the_31_are_found(self, uniform: bool, isa: str) -> None:
        # Addresses need no memory behind rows that nobody asks for.
        values = np.arange(100, dtype=np.int64)
        long = 3 << 31
        start = np.array([0, long, 2 * long], np.int64)
        first = start.copy() if uniform else start - np.array([0, 7, 9])
        stop = np.append(first[1:], first[-1] + 100)
        base = values.ctypes.data - first * 8
        table = compiled.SegmentTable(
            first, stop, base[None, :], np.array([8]), int(stop[-1]), long if uniform else 0
        )
        indices = np.concatenate([f + np.arange(100) for f in first.tolist()])
        indices[::3] -= int(stop[-1])
        output = np.empty(300, np.int64)
        assert table.take(indices, output, isa=isa) == -1
        np.testing.assert_array_equal(output, np.tile(values, 3))

    @pytest.mark.parametrize("isa", GATHER_VERSIONS)
    @pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65, 1023, 1025, 16_385])
    @pytest.mark.parametrize("itemsize", [[8, 2], [8, 1, 4, 2, 16, 3, 8, 8], list(range(1, 18))])
    def test_columns_of_short_and_of_long_segments(self, isa: str, count: int, itemsize: list[int]) -> None:
        for rows in ([20] * 30, [30_000, 20_000]):  # all columns of a row together, and one after the other
            layout = build(rows, itemsize)
            indices = np.random.default_rng(count).integers(-layout.n_rows, layout.n_rows, count)
            for prefetch in (-1, 0, 8, 256):
                outputs = layout.outputs(count)
                assert layout.table.take(indices, outputs, isa=isa, prefetch=prefetch) == -1
                assert_taken(layout, indices, outputs)

    def test_unknown_instruction_sets_are_refused(self) -> None:
        layout = build([10], [8])
        for twin in (layout.table, layout.twin):
            with pytest.raises(ValueError, match="isa"):
                twin.take(np.arange(4), layout.outputs(4), isa="sse9")

    def test_bucket_table_built_by_many_threads_at_once(self) -> None:
        layout = build([7] * 4000, [8])
        indices = np.random.default_rng(3).integers(0, layout.n_rows, 20_000)
        table = layout.table
        results = [layout.outputs(len(indices)) for _ in range(8)]
        workers = [threading.Thread(target=table.take, args=(indices, result)) for result in results]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for result in results:
            assert_taken(layout, indices, result)

    @pytest.mark.parametrize("dtype", ["M8[ns]", "m8[s]", "U2", "S8", "V8", "f8", "<i8", ">i8", "c8"])
    def test_any_dtype_of_the_right_size_is_an_output(self, dtype: str) -> None:
        values = np.arange(40, dtype=np.int64)
        one = np.array([0], np.int64)
        table = compiled.SegmentTable(one, one + 40, np.array([[values.ctypes.data]], np.int64), one + 8, 40)
        output = np.empty(3, dtype)
        assert table.take(np.array([5, -1, 0]), output) == -1
        assert output.view(np.int64).tolist() == [5, 39, 0]

    def test_many_columns(self) -> None:
        layout = build([10, 20], list(range(1, 34)))
        indices = np.array([29, 0, -3, 10, 9])
        outputs = layout.outputs(5)
        assert layout.table.take(indices, tuple(outputs)) == -1
        assert_taken(layout, indices, outputs)

    def test_outputs_and_inputs_of_the_wrong_shape_are_refused(self) -> None:
        layout = build([10], [8])
        indices = np.arange(4)
        for twin in (layout.table, layout.twin):
            for out in (np.zeros(3), np.zeros(5), np.zeros(4, "f4"), np.zeros((4, 1)), [], [np.zeros(4)] * 2):
                with pytest.raises(ValueError, match="out"):
                    twin.take(indices, out)
            with pytest.raises(TypeError, match="indices"):
                twin.take(indices.astype(np.int32), np.zeros(4))
            with pytest.raises(TypeError, match="indices"):
                twin.take(indices.astype(">i8"), np.zeros(4))
            with pytest.raises(ValueError, match="threads"):
                twin.take(indices, np.zeros(4), threads=0)
            with pytest.raises(ValueError, match="route"):
                twin.take(indices, np.zeros(4), route="magic")
            with pytest.raises(ValueError, match="uniform"):
                twin.take(indices, np.zeros(4), route="uniform")
        with pytest.raises((ValueError, BufferError)):
            layout.table.take(indices, np.zeros(8)[::2])
        locked = np.zeros(4)
        locked.flags.writeable = False
        with pytest.raises((ValueError, BufferError)):
            layout.table.take(indices, locked)


class TestCopyStrided:
    @settings(max_examples=200, deadline=None)
    @given(layouts(gaps=False), st.data())
    def test_steps_in_both_directions_match_slicing(self, layout: Layout, data: st.DataObject) -> None:
        rows = range(layout.n_rows)
        bound = st.one_of(st.none(), st.integers(-layout.n_rows - 2, layout.n_rows + 2))
        step = data.draw(st.sampled_from([1, 1, -1, 2, -2, 3, -5, 100, -1000]))
        wanted = rows[slice(data.draw(bound), data.draw(bound), step)]
        expected, outputs = layout.outputs(len(wanted)), layout.outputs(len(wanted))
        layout.twin.copy_strided(wanted.start, wanted.step, len(wanted), expected)
        threads = data.draw(st.sampled_from(THREADS))
        layout.table.copy_strided(wanted.start, wanted.step, len(wanted), outputs, threads=threads)
        for column, output, twin in zip(layout.columns, outputs, expected, strict=True):
            np.testing.assert_array_equal(output, column[np.array(wanted, np.int64)])
            np.testing.assert_array_equal(twin, output)

    @several_threads
    @pytest.mark.parametrize("step", [1, -1, 3, -4])
    def test_large_copies_split_among_threads(self, threads: int, step: int) -> None:
        layout = build([30_000, 1, 0, 300_000, 1, 1, 99_999], [8, 1, 12])
        wanted = range(layout.n_rows)[::step]
        outputs = layout.outputs(len(wanted))
        layout.table.copy_strided(wanted.start, step, len(wanted), outputs, threads=threads)
        for column, output in zip(layout.columns, outputs, strict=True):
            np.testing.assert_array_equal(output, column[::step])

    @pytest.mark.parametrize("itemsize", [1, 2, 3, 4, 8, 16])
    @pytest.mark.parametrize("shift", [0, 1, 24])
    def test_long_reversed_runs_into_any_place(self, itemsize: int, shift: int) -> None:
        n = (3 << 19) // itemsize + 13
        layout = build([n], [itemsize])
        room = np.full(n * itemsize + 64, 7, np.uint8)
        output = room[shift : shift + n * itemsize].view(f"V{itemsize}")
        layout.table.copy_strided(n - 1, -1, n, output)
        np.testing.assert_array_equal(output, layout.columns[0][::-1])
        assert (room[:shift] == 7).all()
        assert (room[shift + n * itemsize :] == 7).all()

    def test_progression_outside_the_rows_or_into_a_gap_is_refused(self) -> None:
        layout = build([10, 10], [8], gaps=[0, 5])
        for table in (layout.table, layout.twin):
            for start, step, count in [
                (-1, 1, 3),
                (25, 1, 1),
                (0, 1, 26),
                (3, -1, 5),
                (0, 2**62, 3),
                (0, 0, 1),
                (0, 1, -1),
            ]:
                with pytest.raises(ValueError):
                    table.copy_strided(start, step, count, np.zeros(max(count, 0)))
            for start, step, count in [(8, 1, 4), (12, 1, 1), (16, -1, 4), (0, 3, 6)]:
                with pytest.raises(ValueError, match="segment"):
                    table.copy_strided(start, step, count, np.zeros(count))
            table.copy_strided(15, 1, 10, np.zeros(10))
            table.copy_strided(9, 7, 2, np.zeros(2))

    def test_a_step_wider_than_int64_over_one_row(self) -> None:
        layout = build([10], [8])
        output = layout.outputs(1)
        layout.table.copy_strided(4, 2**70, 1, output)
        layout.twin.copy_strided(4, -(2**70), 1, output)
        assert output[0][0] == layout.columns[0][4]


class TestCompress:
    @settings(max_examples=250, deadline=None)
    @given(layouts(), st.data())
    def test_every_route_selects_what_boolean_indexing_selects(
        self, layout: Layout, data: st.DataObject
    ) -> None:
        density = data.draw(st.sampled_from([0.0, 0.01, 0.1, 0.3, 0.5, 0.9, 0.99, 1.0]))
        generator = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
        mask = np.zeros(layout.n_rows, np.uint8)
        stored = layout.stored_rows
        mask[stored] = (generator.random(len(stored)) < density) * generator.integers(1, 256, len(stored))
        if data.draw(st.booleans()) and len(
            stored
        ):  # long runs of ones and zeros, to meet the word-wise paths
            a, b = sorted(generator.integers(0, len(stored) + 1, 2))
            mask[stored[a:b]] = data.draw(st.sampled_from([0, 1, 255]))
        flags = mask.view(np.bool_)
        offsets = compiled.mask_offsets(flags)
        np.testing.assert_array_equal(offsets, kernels_numpy.mask_offsets(flags))
        expected = layout.outputs(int(offsets[-1]))
        layout.twin.compress(flags, offsets, expected)
        for column, output in zip(layout.columns, expected, strict=True):
            np.testing.assert_array_equal(output, column[mask != 0])
        for route in mask_routes():
            outputs = layout.outputs(int(offsets[-1]))
            layout.table.compress(flags, offsets, outputs, route=route)
            for output, twin in zip(outputs, expected, strict=True):
                np.testing.assert_array_equal(output, twin)

    @several_threads
    @pytest.mark.parametrize("density", [0.001, 0.05, 0.5, 0.95])
    @pytest.mark.parametrize("lengths", [[200_000], [3, 0, 150_001, 1, 48_000], [501] * 300])
    def test_neighbouring_threads_do_not_overwrite_each_other(
        self, threads: int, density: float, lengths: list[int]
    ) -> None:
        layout = build(lengths, [8, 1, 2, 4, 16, 5])
        mask = np.random.default_rng(4).random(layout.n_rows) < density
        offsets = compiled.mask_offsets(mask, threads=threads)
        for route in mask_routes():
            outputs = layout.outputs(int(offsets[-1]))
            layout.table.compress(mask, offsets, outputs, threads=threads, route=route)
            for column, output in zip(layout.columns, outputs, strict=True):
                np.testing.assert_array_equal(output, column[mask])

    def test_wrong_output_size_is_refused_before_anything_is_written(self) -> None:
        layout = build([1000], [8])
        mask = np.arange(1000) % 2 == 0
        offsets = compiled.mask_offsets(mask)
        for table in (layout.table, layout.twin):
            for length in (499, 501):
                output = np.full(length, 7.0)
                with pytest.raises(ValueError, match="out"):
                    table.compress(mask, offsets, output)
                assert (output == 7.0).all()

    def test_row_in_a_gap_is_refused_before_anything_is_written(self) -> None:
        layout = build([10, 10], [8], gaps=[3, 5], tail_gap=2)
        for row in (0, 13, 17, 28, 29):
            mask = np.zeros(layout.n_rows, np.bool_)
            mask[[4, row]] = True
            for table in (layout.table, layout.twin):
                output = np.full(2, 7.0)
                with pytest.raises(ValueError, match="segment"):
                    table.compress(mask, compiled.mask_offsets(mask), output)
            layout.table.compress(np.zeros(30, np.bool_), np.zeros(2, np.int64), np.empty(0))

    @pytest.mark.parametrize("change", ["set", "clear"])
    def test_mask_changed_after_counting_never_writes_outside_the_output(self, change: str) -> None:
        layout = build([40_000], [8])
        mask = np.random.default_rng(5).random(40_000) < 0.5
        offsets = compiled.mask_offsets(mask)
        mask[100:300] = change == "set"
        for route in mask_routes():
            room = np.full(int(offsets[-1]) + 128, 7.0)
            output = room[64:-64]
            with pytest.raises(ValueError, match="offsets"):
                layout.table.compress(mask, offsets, output, route=route)
            assert (room[:64] == 7.0).all()
            assert (room[-64:] == 7.0).all()

    def test_damaged_offsets_are_refused(self) -> None:
        layout = build([40_000], [8])
        mask = np.ones(40_000, np.bool_)
        good = compiled.mask_offsets(mask)
        for offsets in (good[:-1], good + 1, good * 2, good[::-1].copy(), np.append(good, good[-1])):
            for table in (layout.table, layout.twin):
                with pytest.raises(ValueError):
                    table.compress(mask, offsets, np.empty(max(int(offsets[-1]), 0)))
        with pytest.raises(ValueError, match="mask"):
            layout.table.compress(mask[:-1], good, np.empty(40_000))
        with pytest.raises(TypeError, match="mask"):
            layout.table.compress(mask.astype(np.int16), good, np.empty(40_000))
        with pytest.raises(ValueError, match="route"):
            layout.table.compress(mask, good, np.empty(40_000), route="sse9")


@pytest.mark.parametrize("n_segments", [1, 50])
@pytest.mark.parametrize("n_columns", [1, 3])
def test_indices_changed_by_another_thread_are_used_as_they_were_checked(
    n_segments: int, n_columns: int
) -> None:
    """Every column gets the same rows, and nothing outside the table is touched."""
    n = 10_000
    columns = [np.arange(n) for _ in range(n_columns)]
    starts = np.linspace(0, n, n_segments + 1).astype(np.int64)
    table = compiled.SegmentTable(
        starts[:-1].copy(),
        starts[1:].copy(),
        np.array([[column.ctypes.data] * n_segments for column in columns]),
        np.full(n_columns, 8, np.int64),
        n,
        0,
    )
    indices = np.zeros(70_000, np.int64)
    outputs = [np.empty(len(indices), np.int64) for _ in columns]
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            indices[1::2] = 1 << 45  # an address that no process has
            indices[1::2] = 7

    other = threading.Thread(target=change)
    other.start()
    try:
        for _ in range(60):
            if table.take(indices, outputs if n_columns > 1 else outputs[0], threads=2) < 0:
                assert set(outputs[0].tolist()) <= {0, 7}
                for output in outputs[1:]:
                    np.testing.assert_array_equal(output, outputs[0])
    finally:
        done.set()
        other.join()


class TestMaskOffsets:
    @several_threads
    @pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 16383, 16384, 16385, 100_003])
    def test_counts_are_prefix_sums_per_chunk(self, threads: int, n: int) -> None:
        mask = np.random.default_rng(n).integers(0, 3, n).astype(np.uint8)
        offsets = compiled.mask_offsets(mask.view(np.bool_), threads=threads)
        np.testing.assert_array_equal(offsets, kernels_numpy.mask_offsets(mask.view(np.bool_)))
        assert offsets[-1] == np.count_nonzero(mask)

    def test_chunk_size_is_the_same_in_both_families(self) -> None:
        assert compiled.MASK_CHUNK_ROWS == kernels_numpy.MASK_CHUNK_ROWS

    def test_unaligned_masks(self) -> None:
        memory = np.random.default_rng(0).integers(0, 2, 50_000).astype(np.uint8)
        for shift in range(9):
            assert compiled.mask_offsets(memory[shift:])[-1] == memory[shift:].sum()


class TestFirstOutOfRange:
    @settings(max_examples=200, deadline=None)
    @given(
        st.lists(
            st.one_of(st.integers(-5, 5), st.sampled_from([INT64_MIN, INT64_MAX, -(2**62), 2**62])),
            max_size=50,
        ),
        st.sampled_from([0, 1, 3, 2**62, 2**62 + 1, INT64_MAX]),
    )
    def test_matches_the_twin(self, values: list[int], n_rows: int) -> None:
        indices = np.array(values, np.int64)
        assert compiled.first_out_of_range(indices, n_rows) == kernels_numpy.first_out_of_range(
            indices, n_rows
        )


class TestTable:
    def test_impossible_tables_are_refused_by_both_families(self) -> None:
        good = {
            "row_start": np.array([0, 5]),
            "row_stop": np.array([5, 8]),
            "base": np.zeros((1, 2), np.int64),
            "itemsize": np.array([8]),
            "n_rows": 8,
        }
        for changes in (
            {"row_start": np.array([0, 4])},
            {"row_start": np.array([-1, 5])},
            {"row_stop": np.array([5, 4])},
            {"row_stop": np.array([5])},
            {"base": np.zeros((2, 2), np.int64)},
            {"itemsize": np.array([0])},
            {"itemsize": np.array([2**60])},
            {"n_rows": 7},
            {"n_rows": -1},
            {"n_rows": 2**62 + 1},
            {"uniform_rows": 4},
            {"uniform_rows": -1},
            {"row_stop": np.array([5, 11]), "n_rows": 11, "uniform_rows": 5},
        ):
            for family in (compiled.SegmentTable, kernels_numpy.SegmentTable):
                family(**good)  # type: ignore[arg-type]
                with pytest.raises(ValueError):
                    family(**(good | changes))  # type: ignore[arg-type]

    def test_attributes_and_empty_table(self) -> None:
        layout = build([], [8, 4])
        for table in (layout.table, layout.twin):
            assert (table.n_columns, table.n_segments, table.n_rows, table.uniform_rows) == (2, 0, 0, 0)
            assert table.take(np.empty(0, np.int64), layout.outputs(0)) == -1
            assert table.take(np.array([0]), layout.outputs(1)) == 0
            table.copy_strided(0, 1, 0, layout.outputs(0))
            table.compress(np.empty(0, np.bool_), np.zeros(1, np.int64), layout.outputs(0))

    def test_inputs_may_be_freed_after_construction(self) -> None:
        layout = build([4, 4], [8])
        arguments = [array.copy() for array in layout.arguments[:4]]
        table = compiled.SegmentTable(*arguments, 8)
        for array in arguments:
            array[:] = -1
        outputs = layout.outputs(8)
        assert table.take(np.arange(8), outputs) == -1
        assert_taken(layout, np.arange(8), outputs)


class TestDivision:
    EDGE = sorted(
        {
            1,
            2,
            3,
            5,
            7,
            10,
            641,
            2**32 - 1,
            2**32,
            2**32 + 1,
            2**62 - 1,
            2**62,
            2**62 + 1,
            INT64_MAX - 1,
            INT64_MAX,
        }
        | {2**k for k in range(63)}
        | {2**k + 1 for k in range(63)}
        | {2**k - 1 for k in range(1, 63)}
    )

    @pytest.mark.parametrize("portable", [False, True])
    def test_reciprocal_is_exact_at_the_edges(self, portable: bool) -> None:
        for divisor in self.EDGE:
            multiples = {m * divisor for m in (0, 1, 2, 3, INT64_MAX // divisor, INT64_MAX // divisor // 2)}
            for value in {v + d for v in multiples for d in (-1, 0, 1)} | {INT64_MAX, INT64_MAX - 1, 2**62}:
                if 0 <= value <= INT64_MAX:
                    assert compiled._divide(value, divisor, portable=portable) == value // divisor

    @settings(max_examples=500, deadline=None)
    @given(st.integers(0, INT64_MAX), st.integers(1, INT64_MAX), st.booleans())
    def test_reciprocal_is_exact(self, value: int, divisor: int, portable: bool) -> None:
        assert compiled._divide(value, divisor, portable=portable) == value // divisor


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="forking a threaded process warns, which is an error here"
)
def test_forked_child_gathers_after_a_threaded_parent() -> None:
    layout = build([100_000], [8])
    indices = np.random.default_rng(0).integers(0, 100_000, 300_000)
    mask = np.ones(100_000, np.bool_)
    table = layout.table
    outputs = layout.outputs(len(indices))
    assert table.take(indices, outputs, threads=4) == -1
    child = os.fork()
    if child == 0:
        status = 1
        try:
            again = layout.outputs(len(indices))
            whole = layout.outputs(100_000)
            assert table.take(indices, again, threads=1) == -1
            table.copy_strided(0, 1, 100_000, whole, threads=1)
            table.compress(mask, compiled.mask_offsets(mask, threads=1), whole, threads=1)
            assert compiled.first_out_of_range(indices, 100_000, threads=1) == -1
            status = 0 if (again[0] == outputs[0]).all() else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
