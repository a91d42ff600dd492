"""Names, patterns, redaction and the planning of ranges: pure functions and their laws."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colstore_io.storage import names, natural_key
from colstore_io.storage.ranges import SPLIT_BYTES, Block, plan_blocks, split_block

any_name = st.text(max_size=20)
numbered = st.tuples(
    st.sampled_from(["run_", "x", "", "é"]), st.integers(0, 10**30), st.sampled_from(["", ".cstore"])
)


def test_numbers_in_names_count_as_numbers() -> None:
    shuffled = ["run_10", "run_2", "run_1", "run_02b", "run_"]
    assert sorted(shuffled, key=natural_key) == ["run_", "run_1", "run_2", "run_02b", "run_10"]


def test_names_that_compare_equal_are_ordered_by_the_plain_string() -> None:
    assert sorted(["x1", "x01", "x001"], key=natural_key) == ["x001", "x01", "x1"]


def test_only_ascii_digits_are_numbers() -> None:
    assert sorted(["a²", "a10", "a٣", "a9"], key=natural_key) == ["a9", "a10", "a²", "a٣"]


def test_a_run_of_ten_thousand_digits_is_a_number() -> None:
    long = "1" * 10_000
    assert natural_key(f"x{long}") < natural_key(f"x{long}0")


@given(st.lists(any_name, max_size=8))
def test_natural_order_is_total(values: list[str]) -> None:
    keys = {natural_key(value) for value in values}
    assert len(keys) == len(set(values))
    ordered = sorted(values, key=natural_key)
    ordered.reverse()
    assert sorted(ordered, key=natural_key) == sorted(values, key=natural_key)


@given(numbered, numbered)
def test_natural_order_follows_the_number(first: tuple[str, int, str], second: tuple[str, int, str]) -> None:
    if first[0] == second[0] and first[1] != second[1]:
        one, two = ("".join(map(str, parts)) for parts in (first, second))
        assert (natural_key(one) < natural_key(two)) == (first[1] < second[1])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://user:secret@host/key", "s3://host/key"),
        ("https://h/f.cstore?X-Amz-Signature=abc&b=1", "https://h/f.cstore?..."),
        ("cannot read 'https://u:p@h/f?sig=1': 403", "cannot read 'https://h/f?...': 403"),
        ("simplecache::https://u:p@h/f?sig=1", "simplecache::https://h/f?..."),
        ("AccountKey=abc==;AccountName=x", "AccountKey=...;AccountName=x"),
        ("bad option secret='top' here", "bad option secret=... here"),
        ("plain text", "plain text"),
    ],
)
def test_credentials_are_not_shown(text: str, shown: str) -> None:
    assert names.redact(text) == shown


@given(st.from_regex(r"[a-z0-9]{6,12}", fullmatch=True))
def test_no_user_information_or_query_survives(secret: str) -> None:
    shown = names.redact(
        f"error at s3://name{secret}:pw{secret}@host/path and https://h/p?token={secret}&x={secret}"
    )
    assert secret not in shown
    assert "host/path" in shown


def test_a_partition_folder_is_not_taken_for_a_secret() -> None:
    assert names.redact_url("data/key=value/token=3.cstore") == "data/key=value/token=3.cstore"


@pytest.mark.parametrize(
    ("url", "path", "expected"),
    [
        ("s3://b/x", "b/y", "s3://b/y"),
        ("simplecache::s3://b/x", "b/y", "simplecache::s3://b/y"),
        ("zip://x::s3://b/a.zip", "y", "zip://y::s3://b/a.zip"),
        ("https://h/d/", "https://h/d/x", "https://h/d/x"),
        ("/tmp/a", "/tmp/b", "/tmp/b"),
    ],
)
def test_the_path_of_a_chain_is_replaced_in_its_place(url: str, path: str, expected: str) -> None:
    assert names.with_path(url, path) == expected


def test_a_question_mark_in_a_web_address_is_no_pattern() -> None:
    assert not names.has_magic("https://h/f.cstore?sig=[*]", http=True)
    assert names.has_magic("https://h/f*.cstore", http=True)
    assert names.has_magic("f?.cstore")


# -- ranges

ranges = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 80)), max_size=30)


@given(ranges, st.integers(0, 60), st.integers(1, 200))
def test_blocks_cover_every_range_and_few_other_bytes(
    wanted: list[tuple[int, int]], gap_bytes: int, max_block: int
) -> None:
    blocks, slices = plan_blocks(wanted, gap_bytes=gap_bytes, max_block=max_block)
    assert len(slices) == len(wanted)
    for (offset, length), piece in zip(wanted, slices, strict=True):
        block = blocks[piece.block]
        assert block.start + piece.begin == offset
        assert piece.length == length
        assert piece.begin >= 0
        assert offset + length <= block.stop
    assert len(blocks) <= len(set(wanted))
    starts = {offset for offset, _ in wanted}
    stops = {offset + length for offset, length in wanted}
    longest = max((length for _, length in wanted), default=0)
    needed = {byte for offset, length in wanted for byte in range(offset, offset + length)}
    for block in blocks:
        assert block.start in starts
        assert block.stop in stops
        assert block.stop - block.start <= max(max_block, longest)
        idle = 0
        for byte in range(block.start, block.stop):
            idle = 0 if byte in needed else idle + 1
            assert idle <= gap_bytes


def test_neighbours_are_merged_only_across_a_small_gap() -> None:
    blocks, _ = plan_blocks([(0, 10), (20, 10), (100, 10)], gap_bytes=10, max_block=1000)
    assert blocks == [Block(0, 30), Block(100, 110)]


def test_a_long_range_is_split_into_parts_that_join_without_a_gap() -> None:
    block = Block(5, 5 + SPLIT_BYTES + 1)
    parts = split_block(block, part_bytes=16 << 20)
    assert parts[0].start == block.start
    assert parts[-1].stop == block.stop
    assert all(first.stop == second.start for first, second in itertools.pairwise(parts))
    assert max(part.stop - part.start for part in parts) == 16 << 20
    assert split_block(Block(0, SPLIT_BYTES), part_bytes=16 << 20) == [Block(0, SPLIT_BYTES)]


@given(
    st.lists(st.one_of(any_name, numbered.map(lambda parts: f"{parts[0]}{parts[1]}{parts[2]}")), unique=True)
)
def test_names_in_order_are_in_the_order_of_their_keys(values: list[str]) -> None:
    bare = [value.replace("/", "-") for value in values]
    assert names.natural_order(bare) == sorted(bare, key=natural_key)


@given(st.sets(st.integers(0, 9999)))
def test_numbers_of_one_length_are_in_order_as_text(numbers: set[int]) -> None:
    shards = [f"part-{number:04d}.cstore" for number in numbers]
    assert names.natural_order(shards) == sorted(shards, key=natural_key)
