"""Appends to columns files: at every byte at which one may break off, the state before it is found and read."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import colstore_io
from colstore_io.errors import FormatError, SchemaMismatchError, WriterLockedError
from colstore_io.formats.columns import FORMAT
from colstore_io.formats.columns.append import (
    MARKER_BYTES,
    MARKER_MAGIC,
    SECTOR_BYTES,
    Guard,
    find_last_footer,
    padding,
)
from colstore_io.storage import MemoryFile
from colstore_io.writing.encoded_append import append_row_groups, recover_columns_file
from colstore_io.writing.encoding import store_encoded
from colstore_io.writing.locks import open_locked

OLD = {"a": [1, 2, 3], "s": ["x", None, "z"]}
NEW = {"a": [4, 5], "s": [None, "q"]}


@pytest.fixture
def states(tmp_path):
    """A path, and the bytes of its file before and after an append."""
    path = tmp_path / "t.abcd"
    store_encoded(OLD, path)
    before = path.read_bytes()
    assert append_row_groups(NEW, path) == 2
    return path, before, path.read_bytes()


def rows(path):
    with colstore_io.open(path) as table:
        return pa.table(table).to_pydict()


def test_an_append_adds_rows_and_keeps_the_bytes_before_it(states):
    path, before, after = states
    assert after.startswith(before)
    inode = path.stat().st_ino
    append_row_groups(NEW, path)  # in place
    assert path.stat().st_ino == inode
    path.write_bytes(after)
    assert rows(path) == {"a": [1, 2, 3, 4, 5], "s": ["x", None, "z", None, "q"]}
    assert colstore_io.verify(path) == {str(path): []}


def test_an_append_that_breaks_off_at_any_byte_is_recovered(states):
    path, before, after = states
    for size in range(len(before), len(after)):
        assert find_last_footer(MemoryFile(after[:size])) == len(before)
    assert find_last_footer(MemoryFile(after)) == len(after)
    for size in (*range(len(before), len(after), 37), len(after) - 1):
        path.write_bytes(after[:size])
        assert rows(path) == OLD  # read without recovery
        assert recover_columns_file(path) == size - len(before)
        assert path.read_bytes() == before


def test_verify_tells_of_a_broken_append(states):
    path, before, after = states
    path.write_bytes(after[:-1])
    assert colstore_io.verify(path) == {str(path): []}
    (notice,) = FORMAT.verify_file(MemoryFile(after[:-1]))
    assert notice.severity == "notice"
    assert f"{len(after) - 1 - len(before)} bytes of an append that did not end" in notice.message


def test_the_next_append_cuts_off_what_the_last_one_left(states):
    path, _, after = states
    path.write_bytes(after[:-1])
    append_row_groups(NEW, path)
    assert path.read_bytes() == after


def test_a_crash_that_left_zeros_is_recovered(states):
    _, before, after = states
    added = len(after) - len(before)
    for size in range(1, MARKER_BYTES + 1):
        for good in (0, size // 2):
            torn = before + after[len(before) : len(before) + good] + bytes(size - good)
            assert find_last_footer(MemoryFile(torn)) == len(before)
    # The marker is durable before anything follows it; what follows may be there in any part.
    for hole in range(0, added - MARKER_BYTES - 8, 50):
        torn = bytearray(after)
        torn[len(before) + MARKER_BYTES + hole :] = bytes(added - MARKER_BYTES - hole)
        assert find_last_footer(MemoryFile(bytes(torn))) == len(before)


@pytest.mark.parametrize("rounds", [3])
def test_repeated_appends_break_off_anywhere(tmp_path, rounds):
    path = tmp_path / "t.abcd"
    store_encoded({"a": np.arange(5)}, path)
    ends = [len(path.read_bytes())]
    for number in range(rounds):
        append_row_groups({"a": np.arange(number + 1)}, path)
        ends.append(len(path.read_bytes()))
    data = path.read_bytes()
    for size in range(ends[0], ends[-1] + 1):
        assert find_last_footer(MemoryFile(data[:size])) == max(end for end in ends if end <= size)


def test_a_file_that_was_cut_short_is_not_taken_for_an_append(states):
    _, before, _ = states
    for size in (0, 4, 20, len(before) - 1):
        with pytest.raises(FormatError, match="does not end with a footer"):
            find_last_footer(MemoryFile(before[:size]))
    with pytest.raises(FormatError):
        find_last_footer(MemoryFile(before + bytes(MARKER_BYTES + 1)))


@pytest.mark.parametrize("n", [1, 63, 3000])
def test_bytes_of_others_behind_a_finished_append_do_not_take_its_rows_back(states, n):
    path, _, after = states
    path.write_bytes(after + b"garbage"[:n] * n)
    with pytest.raises(FormatError, match="does not end with a footer"):
        rows(path)
    with pytest.raises(FormatError, match="does not end with a footer"):
        append_row_groups(NEW, path)
    assert path.read_bytes().startswith(after)


def test_a_marker_in_another_place_is_no_marker(states):
    _, before, after = states
    moved = before + b"x" + after[len(before) : -1]
    with pytest.raises(FormatError):
        find_last_footer(MemoryFile(moved))


def test_a_column_that_holds_a_columns_file_does_not_fool_recovery(tmp_path, states):
    _, _, inner = states
    path = tmp_path / "outer.abcd"
    store_encoded({"b": [b"1"]}, path, compression="none")
    before, inode = path.read_bytes(), path.stat().st_ino
    values = [b"\0", inner, b"\xff"]  # not one of its bounds, which stand in the footer
    append_row_groups({"b": values}, path, compression="none")
    # It went through a copy: there was never a moment at which this file ended inside the value.
    assert path.stat().st_ino != inode
    assert path.read_bytes().startswith(before)
    assert rows(path) == {"b": [b"1", *values]}
    end, inode = len(path.read_bytes()), path.stat().st_ino
    append_row_groups({"b": [b"2"]}, path, compression="none")
    assert path.stat().st_ino == inode
    data = path.read_bytes()
    for size in range(end, len(data)):
        assert find_last_footer(MemoryFile(data[:size])) == end
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".tmp"] == []


def test_a_footer_that_holds_a_columns_file_does_not_fool_recovery(tmp_path, states):
    _, _, inner = states
    path = tmp_path / "outer.abcd"
    store_encoded({"b": [inner]}, path)  # as minimum and maximum in every footer from now on
    inode = path.stat().st_ino
    append_row_groups({"b": [b"2"]}, path)
    assert path.stat().st_ino != inode
    assert rows(path) == {"b": [inner, b"2"]}


def test_a_failed_append_leaves_the_file_as_it_was(states):
    path, _, after = states

    def broken():
        yield {"a": [7], "s": ["r"]}
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="gone"):
        append_row_groups(broken(), path, row_group_size=1)
    assert path.read_bytes() == after
    with pytest.raises(SchemaMismatchError, match="holds"):
        append_row_groups({"a": [1.5], "s": ["r"]}, path)
    assert path.read_bytes() == after
    assert append_row_groups({"a": np.empty(0, np.int64), "s": []}, path) == 0
    assert path.read_bytes() == after


def test_an_append_waits_for_nobody(states):
    path, _, after = states
    with open_locked(str(path)):
        with pytest.raises(WriterLockedError):
            append_row_groups(NEW, path)
        with pytest.raises(WriterLockedError):
            recover_columns_file(path)
    assert path.read_bytes() == after


@given(st.integers(0, 10**6))
def test_trailers_never_stand_in_two_sectors(at):
    moved = at + padding(at)
    assert moved // SECTOR_BYTES == (moved + 7) // SECTOR_BYTES
    assert 0 <= padding(at) < 8


@given(
    st.binary(max_size=40), st.binary(max_size=40), st.lists(st.integers(0, 150), max_size=5), st.booleans()
)
@settings(max_examples=200)
def test_the_guard_sees_patterns_across_parts(head, tail, cuts, magic):
    # A trailer of a footer of 20 bytes, or the magic of a marker, cut in any way.
    pattern = MARKER_MAGIC if magic else (20).to_bytes(4, "little") + b"ABCD"
    data = head + pattern + tail
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parts = [data[a:b] for a, b in pairwise(edges)]
    assert Guard(1000, 5).feed(parts)


def test_the_guard_sees_a_trailer_at_the_start_of_a_long_part():
    pattern = (20).to_bytes(4, "little") + b"ABCD"
    for cut in range(len(pattern) + 1):
        assert Guard(1000, 5).feed([b"x" * 300 + pattern[:cut], pattern[cut:] + b"y" * 300])


@given(st.lists(st.binary(max_size=30).filter(lambda b: b"A" not in b and b"\xf1" not in b), max_size=6))
def test_the_guard_lets_other_bytes_pass(parts):
    assert not Guard(1000, 5).feed(parts)
    assert not Guard(1000, 5).feed([b"\xff\xff\xff\xffABCD", *parts])


def test_forged_markers_cost_no_more_than_the_file_is_long():
    """Each one leads to a footer of half the file, of which a reader would take the checksum."""
    data = bytearray(b"ABCD\1")
    while len(data) < 60_000:
        data += (len(data) - 5).to_bytes(4, "little") + b"ABCD" + MARKER_MAGIC
    data += bytes(64)
    read = 0

    class Counting:
        size = len(data)

        def read(self, offset: int, length: int) -> memoryview:
            nonlocal read
            read += length
            return memoryview(data)[offset : offset + length]

    with pytest.raises(FormatError, match="cut short"):
        find_last_footer(Counting())
    assert read < 30 * len(data)
