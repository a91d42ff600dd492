"""Guesses of a walk over remote records: which places, how many of them, and how few rounds they leave."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.formats.cstore.guesses import Guesses, period_of
from colstore_io.formats.cstore.records import RecordWalk, body_bytes, encode_record_header

DATA_OFFSET = 320
HEAD_BYTES = 65536


class Records:
    """The record headers of a file of 8-byte rows; all its other bytes are zero."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = list(sizes)
        self.places: list[int] = []
        place = DATA_OFFSET
        for rows in sizes:
            self.places.append(place)
            place += 32 + body_bytes(rows, 8)
        self.size = place

    def read(self, offset: int, length: int) -> bytes:
        data = bytearray(length)
        index = bisect_left(self.places, offset - 31)
        while index < len(self.places) and (place := self.places[index]) < offset + length:
            header = encode_record_header(index, self.sizes[index])
            begin, end = max(place, offset), min(place + 32, offset + length)
            data[begin - offset : end - offset] = header[begin - place : end - place]
            index += 1
        return bytes(data)


def walked(sizes: Sequence[int]) -> tuple[int, int, int]:
    """Walk, and return rounds, requests and bytes."""
    file = Records(sizes)
    walk = RecordWalk("f.cstore", file.size, DATA_OFFSET, len(sizes), sum(sizes), 8)
    walk.begin(file.read(0, min(HEAD_BYTES, file.size)))
    rounds = requests = nbytes = 0
    while not walk.complete:
        ranges = walk.wanted()
        assert ranges == sorted(set(ranges))
        assert all(offset + length <= file.size for offset, length in ranges)
        walk.feed(ranges, [file.read(*place) for place in ranges])
        rounds += 1
        requests += len(ranges)
        nbytes += sum(length for _, length in ranges)
    assert walk.result().rows.tolist() == file.sizes
    return rounds, requests, nbytes


def rounds_without_patterns(sizes: Sequence[int]) -> int:
    """Return the rounds of a walk that takes the next records to be like the last one, and nothing else."""
    file = Records(sizes)
    place, known, rounds, ahead, failures = DATA_OFFSET, 0, 0, 0, 0
    n, left_rows = len(sizes), sum(sizes)

    def run(end: int) -> None:
        nonlocal place, known, left_rows
        while known < n and place + 32 <= end:
            left_rows -= sizes[known]
            place += 32 + body_bytes(sizes[known], 8)
            known += 1

    run(min(HEAD_BYTES, file.size))
    while known < n:
        rounds += 1
        last = sizes[known - 1] if known else left_rows // n
        stride, left = 32 + body_bytes(last, 8), n - known
        if stride <= (64 << 10 if failures < 2 else 1 << 20):
            length = max(32, left * stride)
            run(place + min(length + length // 4, 8 << 20, file.size - place))
            ahead = 8
            continue
        alike = last * (left - 1) <= left_rows <= last * left
        count = min(left, ahead or (left if alike else 1), (file.size - 32 - place) // stride + 1)
        for asked in range(place, place + count * stride, stride):
            if place != asked:
                ahead, failures = 1, failures + 1
                break
            run(place + 32)
        else:
            ahead = count * 8
    return rounds


PATTERNS = {
    "all alike but one": [100_000] * 500 + [7] + [100_000] * 499,
    "all alike but one and the last": [100_000] * 500 + [33_333] + [100_000] * 498 + [9],
    "a first one, then others": [5_000] + [100_000] * 999,
    "two by turns": [100_000, 200_000] * 500,
    "a period of seven": [100_000, 200_000, 50_000, 70_000, 90_000, 300_000, 10_000] * 140,
    "sessions": ([100_000] * 50 + [7]) * 20,
    "sessions with small ones": ([10] * 20 + [300_000]) * 50,
    "growing": [300_000 + 1000 * i for i in range(1000)],
    "shrinking": [2_000_000 - 1000 * i for i in range(1000)],
    "halves": [1 << k for k in range(29, 8, -1)],
    "halves, rounded down": [400_000_000 >> k for k in range(14)],
    "doubled": [16 << k for k in range(22)],
    "three sizes after one another": [100_000] * 200 + [170_000] * 300 + [250_000] * 400 + [3],
}


@pytest.mark.parametrize("name", PATTERNS)
def test_sizes_that_repeat_take_few_rounds(name: str) -> None:
    sizes = PATTERNS[name]
    rounds, requests, nbytes = walked(sizes)
    assert rounds <= 7
    assert rounds <= rounds_without_patterns(sizes)
    assert requests <= 3 * len(sizes) + 64
    assert nbytes <= 32 << 20  # of files of 500 MB and more


def test_two_sizes_in_any_order_take_a_fraction_of_the_rounds() -> None:
    draw = random.Random(5)
    sizes = [draw.choice([1_000_000, 1_500_000]) for _ in range(400)]
    assert walked(sizes)[0] <= 60
    assert rounds_without_patterns(sizes) >= 200


def test_small_records_are_read_as_growing_runs_of_bytes() -> None:
    draw = random.Random(5)
    sizes = [draw.randint(6000, 8000) for _ in range(2000)]
    rounds, requests, nbytes = walked(sizes)
    assert (rounds, requests) == (4, 4)
    assert nbytes <= Records(sizes).size * 5 // 4


sizes_of_files = st.one_of(
    st.lists(st.integers(0, 3_000_000), min_size=1, max_size=60),
    st.lists(st.sampled_from([7, 3000, 120_000, 120_000, 5_000_000]), min_size=1, max_size=120),
    st.builds(
        lambda runs: [rows for rows, count in runs for _ in range(count)],
        st.lists(
            st.tuples(st.sampled_from([9, 9000, 150_000, 2_000_000]), st.integers(1, 30)),
            min_size=1,
            max_size=9,
        ),
    ),
    st.builds(
        lambda part, times: part * times,
        st.lists(st.integers(0, 400_000), min_size=1, max_size=9),
        st.integers(1, 20),
    ),
)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(sizes_of_files)
def test_no_file_takes_more_rounds_than_without_patterns(sizes: list[int]) -> None:
    """But one: which record is the last one of a round decides how long a run of bytes the next one reads."""
    rounds, requests, nbytes = walked(sizes)
    assert rounds <= rounds_without_patterns(sizes) + 1
    n = len(sizes)
    assert requests <= n + 64 + 2 * n + 8 * n + 9 * rounds
    assert nbytes <= requests * 32 + rounds * (64 << 10) + (8 << 20) + Records(sizes).size * 5 // 4


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 50), max_size=30),
    st.integers(0, 1 << 40),
    st.integers(-5, 1 << 40),
    st.integers(1, 1 << 50),
)
def test_whatever_the_counters_promise_places_are_few_and_in_the_file(
    rows: list[int], n_records: int, left_rows: int, size: int
) -> None:
    guesses = Guesses(n_records, lambda r: 32 + 8 * r)
    places = guesses.places(rows, 1000, size, left_rows)
    assert places == sorted(set(places))
    assert len(places) <= 1 << 17
    assert all(1000 < place <= size for place in places)


def test_wrong_guesses_are_bounded() -> None:
    draw = random.Random(5)
    sizes = [draw.randint(140_000, 1_000_000) for _ in range(300)]
    rounds, requests, _ = walked(sizes)
    assert rounds == 299
    assert requests <= rounds + 64 + 2 * 300 + 8 * rounds


def test_a_header_is_believed_only_where_the_walk_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sound headers of records 2 to 39 stand where they would be if all were like record 1: they are values."""
    file = Records([100_000, 100_000, 90_000] + [100_000] * 37)
    honest = file.read
    traps = {DATA_OFFSET + i * (32 + 800_000): encode_record_header(i, 100_000) for i in range(3, 40)}

    def read(offset: int, length: int) -> bytes:
        return traps[offset] if length == 32 and offset in traps else honest(offset, length)

    monkeypatch.setattr(file, "read", read)
    walk = RecordWalk("f.cstore", file.size, DATA_OFFSET, 40, sum(file.sizes), 8)
    walk.begin(honest(0, 1000))
    rounds = 0
    while not walk.complete:
        ranges = walk.wanted()
        walk.feed(ranges, [file.read(*place) for place in ranges])
        rounds += 1
    assert walk.result().rows.tolist() == file.sizes
    assert rounds <= 3


@pytest.mark.parametrize(
    ("rows", "period", "length"),
    [
        ([], 0, 0),
        ([1], 0, 0),
        ([1, 2], 0, 0),
        ([1, 1], 1, 1),
        ([1, 2, 1, 2, 1], 2, 3),
        ([9, 1, 1, 2, 1, 1, 2, 1, 1], 3, 5),
        ([1, 2, 3, 1], 3, 1),
    ],
)
def test_the_period_of_the_longest_end(rows: list[int], period: int, length: int) -> None:
    assert period_of(rows) == (period, length)
