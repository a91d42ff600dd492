"""How rows and grids are cut into chunks of one shape: arithmetic, without files."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.grid.layout import Axis
from colstore_io.integrations._zarr_grids import Cut, cut_of
from colstore_io.integrations._zarr_model import Options
from colstore_io.integrations._zarr_tables import Records, choose_rows
from colstore_io.integrations._zarr_values import bad_name, fill_value_of, json_attributes, values_of

MIB = 1 << 20


def one_file(*rows: int, row_bytes: int = 8, behind: int = 0) -> Records:
    """Return the records of a file with columns of `row_bytes` together, and `behind` bytes at its end."""
    starts = np.concatenate(([0], np.cumsum(rows)[:-1])).astype(np.int64)
    body = 1000 + int(starts[-1]) * row_bytes
    end = body + rows[-1] * row_bytes + behind
    return Records(sum(rows), starts, (int(starts[-1]), body, end))


# ----------------------------------------------------------------------------------------------------------
# Rows


def test_rows_near_the_wanted_bytes_without_a_copy():
    for n in (3_000_000, 10_000_000, 12_345_678, 99_999_990):
        rows = choose_rows(one_file(n), [(0, 8)], Options())
        assert 4 * MIB <= rows * 8 <= 16 * MIB
        assert n % rows == 0


def test_rows_of_a_small_table_are_one_chunk():
    assert choose_rows(one_file(1000), [(0, 8)], Options()) == 1000
    assert choose_rows(one_file(1), [(0, 8)], Options()) == 1


def test_bytes_behind_a_column_make_room_for_any_length():
    prime = 15_485_863
    rows = choose_rows(one_file(prime, row_bytes=16), [(0, 8)], Options())
    assert 4 * MIB <= rows * 8 <= 16 * MIB


def test_few_bytes_are_copied_where_nothing_comes_out_even():
    prime = 15_485_863
    records = one_file(prime)
    rows = choose_rows(records, [(0, 8)], Options())
    assert records.overruns(rows, 0, 8)
    assert rows * 8 <= MIB
    many = choose_rows(
        one_file(1_000_000, 1_000_000, 7, row_bytes=160), [(8 * k, 8) for k in range(20)], Options()
    )
    assert many * 160 <= 32 * MIB


def test_rows_that_come_out_even_where_nothing_may_be_copied():
    records = one_file(*[1_000_000] * 5, 10_000)
    assert choose_rows(records, [(0, 8)], Options(inline_bytes=0)) == 10_000


def test_records_of_one_length_are_not_joined():
    assert choose_rows(one_file(*[5000] * 9, 5000), [(0, 8)], Options()) == 5000
    assert choose_rows(one_file(*[100] * 9, 100), [(0, 8)], Options()) == 100
    assert choose_rows(one_file(10**7, 10**7, row_bytes=16), [(0, 8)], Options()) in (
        10**6,
        2 * 10**6,
        1_250_000,
    )


def test_records_of_other_lengths_share_a_divisor():
    assert choose_rows(one_file(8192, 4096, 12288, 5, row_bytes=80), [(0, 8)], Options()) == 4096
    with pytest.raises(ValueError, match="only 4 in common"):
        choose_rows(one_file(8, 12, 20), [(0, 8)], Options())
    assert choose_rows(one_file(8, 12, 20), [(0, 8)], Options(smallest_chunk=4)) == 4


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    sizes=st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=4),
    chunk_bytes=st.integers(1, 10**7),
    inline_bytes=st.sampled_from([0, 1 << 25]),
)
def test_every_record_begins_with_a_chunk(rows, sizes, chunk_bytes, inline_bytes):
    row_bytes = sum(sizes)
    records = one_file(*rows, row_bytes=row_bytes)
    columns = [(sum(sizes[:k]), size) for k, size in enumerate(sizes)]
    options = Options(chunk_bytes=chunk_bytes, smallest_chunk=1, inline_bytes=inline_bytes)
    found = choose_rows(records, columns, options)
    assert 1 <= found <= sum(rows)
    assert not (records.starts % found).any()


@pytest.mark.parametrize(
    "wrong", [{"chunk_rows": 0}, {"chunk_bytes": 0}, {"smallest_chunk": -1}, {"inline_bytes": -1}]
)
def test_options_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Options(**wrong)


# ----------------------------------------------------------------------------------------------------------
# How chunks are cut


def axis(*lengths: int) -> Axis:
    return Axis.of_lengths(lengths)


def test_regular_chunks_are_not_cut():
    cut = cut_of([axis(4, 4, 2), axis(5)], "xy", exact=False, smallest=1 << 30)
    assert isinstance(cut, Cut)
    assert (cut.chunks, cut.along) == ((4, 5), 0)
    assert (cut.owner.tolist(), cut.start.tolist()) == ([0, 1, 2], [0, 0, 0])


def test_exact_cuts_leave_no_shorter_chunk():
    cut = cut_of([axis(4, 4, 2), axis(5)], "xy", exact=True, smallest=1)
    assert isinstance(cut, Cut)
    assert cut.chunks == (2, 5)
    assert (cut.owner.tolist(), cut.start.tolist()) == ([0, 0, 1, 1, 2], [0, 2, 0, 2, 0])


def test_leading_dimension_is_the_first_with_longer_chunks():
    cut = cut_of([axis(1, 1, 1), axis(6, 9), axis(2)], "xyz", exact=False, smallest=1)
    assert isinstance(cut, Cut)
    assert (cut.chunks, cut.along) == ((1, 3, 2), 1) or cut.chunks == (1, 6, 2)


def test_other_dimensions_cannot_be_cut():
    reason = cut_of([axis(2, 2), axis(6, 9, 6)], "xy", exact=False, smallest=1)
    assert isinstance(reason, str)
    assert "'y'" in reason
    assert "engine='colstore'" in reason


def test_many_small_pieces_are_refused():
    many = axis(*([1000, 1001] * 20))
    assert isinstance(cut_of([many], "x", exact=False, smallest=4096), str)
    assert isinstance(cut_of([many, axis(5000)], "xy", exact=False, smallest=4096), Cut)


@settings(max_examples=300, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=5), min_size=1, max_size=3),
    exact=st.booleans(),
)
def test_pieces_cover_the_leading_dimension_once(lengths, exact):
    axes = [axis(*own) for own in lengths]
    cut = cut_of(axes, "xyz", exact=exact, smallest=1)
    if isinstance(cut, str):
        assert any(not own.uniform for own in axes[1:]) or not axes[0].uniform
        return
    own, n = axes[cut.along], cut.chunks[cut.along]
    first = own.edges()[cut.owner] + cut.start
    np.testing.assert_array_equal(first, np.arange(0, own.length, n))
    last = np.minimum(first + n, own.length)
    assert (last <= own.edges()[cut.owner + 1]).all()  # no piece leaves its chunk
    assert not exact or own.length % n == 0
    assert math.prod(cut.chunks[: cut.along]) == 1


# ----------------------------------------------------------------------------------------------------------
# Values


@pytest.mark.parametrize("dtype", ["f2", ">f4", "f8", "?", "i1", ">u8"])
def test_numbers_are_what_they_are(dtype):
    found = values_of(np.dtype(dtype), {"units": "m"}, text=False)
    assert not isinstance(found, str)
    assert (found.dtype, found.attrs) == (np.dtype(dtype), {})


def test_big_endian_times_stay_big_endian():
    found = values_of(np.dtype(">M8[us]"), {}, text=False)
    assert not isinstance(found, str)
    assert found.dtype.str == ">i8"


@pytest.mark.parametrize("key", ["units", "calendar", "dtype", "_FillValue", "scale_factor"])
def test_times_with_attributes_of_cf_are_refused(key):
    assert key in str(values_of(np.dtype("M8[s]"), {key: 1}, text=False))


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize <= 8, reason="no longer floats here")
def test_long_floats_are_refused():
    assert "no floats of 16 bytes" in str(values_of(np.dtype(np.longdouble), {}, text=False))


def test_names():
    assert bad_name("x") is None
    assert bad_name("é.%20#?") is None
    for name in ("", ".", "..", "a/b", "a\\b", "__x", "zarr.json", ".zattrs"):
        assert bad_name(name)


def test_attributes_become_json():
    given = {
        "a": np.float32(0.5),
        "b": np.array([[1, 2]], "i2"),
        "c": (1, None, True, "x"),
        "d": {"e": np.int8(1)},
        "f": b"x",
        "g": 1j,
        "_ARRAY_DIMENSIONS": ["x"],
    }
    kept, skipped = json_attributes(given, "v")
    assert kept == {"a": 0.5, "b": [[1, 2]], "c": [1, None, True, "x"], "d": {"e": 1}}
    assert [item.path for item in skipped] == ["v@f", "v@g", "v@_ARRAY_DIMENSIONS"]


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (-1, "i2", -1),
        (-1.0, "i2", -1),
        (1e20, "f4", None),  # not exactly: stays an attribute
        (float(np.float32(1e20)), "f4", float(np.float32(1e20))),
        (70000, "i2", None),
        (math.nan, "i4", None),
        (math.inf, "i4", None),
        ("x", "f8", None),
        (True, "f8", None),
        (1, "?", None),
    ],
)
def test_fill_values_of_cf(value, dtype, expected):
    attrs = {"_FillValue": value, "units": "m"}
    assert fill_value_of(attrs, np.dtype(dtype)) == expected
    assert ("_FillValue" in attrs) == (expected is None)
    attrs = {"_FillValue": math.nan}
    assert math.isnan(fill_value_of(attrs, np.dtype("f4")))
