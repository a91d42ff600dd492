"""Values of variable length of several segments in one pair of buffers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io import joining
from colstore_io.errors import FormatError
from colstore_io.joining import Joiner

segments = st.lists(
    st.lists(st.none() | st.binary(max_size=6) | st.text(max_size=4).map(str.encode), max_size=20),
    min_size=1,
    max_size=6,
)


def fill(room, values):
    """Put values where a decoder would."""
    dense = [value or b"" for value in values]
    size = sum(map(len, dense))
    offsets = room.offsets(size)
    offsets[:] = np.cumsum([0, *map(len, dense)])
    room.bytes(size)[:] = np.frombuffer(b"".join(dense), np.uint8)
    nulls = np.array([value is None for value in values], np.uint8)
    bitmap = np.packbits(1 - nulls, bitorder="little") if nulls.any() else None
    room.put(size, bitmap, int(nulls.sum()), False)


@given(segments, st.booleans(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_segments_become_one_array(parts, ordered, random):
    sizes = [sum(len(value or b"") for value in values) for values in parts]
    joiner = Joiner([len(values) for values in parts], None if ordered else sizes)
    assert joiner.ordered == ordered
    numbers = list(range(len(parts)))
    if not ordered:
        random.shuffle(numbers)
    for number in numbers:
        fill(joiner.room(number), parts[number])
    found = joiner.finish()
    found.validate(full=True)
    assert found.type == pa.binary()
    assert found.to_pylist() == [value for values in parts for value in values]


def test_long_segments_are_moved_in_steps(monkeypatch):
    monkeypatch.setattr(joining, "_STEP", 7)
    parts = [[b"%d" % i for i in range(n)] for n in (30, 0, 7, 1, 22)]
    joiner = Joiner([len(values) for values in parts], None)
    for number, values in enumerate(parts):
        fill(joiner.room(number), values)
    assert joiner.finish().to_pylist() == [value for values in parts for value in values]


def test_results_beyond_32_bits_get_wide_offsets(monkeypatch):
    monkeypatch.setattr(joining, "_INT32_MAX", 100)
    parts = [[b"x" * 60], [b"y" * 60, b""], [b"z" * 101]]
    for sizes in (None, [60, 60, 101]):
        joiner = Joiner([1, 2, 1], sizes)
        for number, values in enumerate(parts):
            fill(joiner.room(number), values)
        found = joiner.finish()
        assert found.type == pa.large_binary()
        assert found.to_pylist() == [value for values in parts for value in values]


def test_a_chunk_that_changes_its_size_is_refused():
    with pytest.raises(FormatError, match="changed"):
        Joiner([1], [3]).room(0).bytes(4)


@pytest.mark.parametrize("encoding", ["plain", "affix", "dict"])
@pytest.mark.parametrize("options", [{}, {"max_workers": 1}, {"mmap": False}, {"backend": "numpy"}])
def test_text_of_row_groups_is_read_as_it_was_written(tmp_path, encoding, options):
    words = ["", "a", "ü" * 9, "some longer word", None]
    column = pa.array([words[i] for i in np.random.default_rng(0).integers(0, 5, 5000)])
    table = pa.table({"t": column, "b": column.cast(pa.binary()), "n": np.arange(5000)})
    path = tmp_path / "t.abcd"
    cs.store(table, path, encoding={"t": encoding, "b": encoding}, row_group_size=700)
    with cs.open(path, **options) as reader:
        assert reader.n_records > 2
        for name in ("t", "b"):
            assert reader[name].array().equals(table[name].combine_chunks())
            assert reader[5:, name].array().equals(table[name].combine_chunks()[5:])
            for cut in (
                slice(5, 4900),
                slice(699, 4999),
                slice(700, 4901),
                slice(1, 701),
                slice(690, 710),
                slice(699, 2101),
            ):
                chosen = reader[cut, name].array()
                chosen.validate(full=True)
                assert chosen.offset == 0
                assert chosen.equals(table[name].combine_chunks()[cut])
                assert reader[cut].arrow()["n"].to_pylist() == list(range(5000)[cut])
            for mask in (np.ones(5000, bool), np.arange(5000) < 1400, np.arange(5000) >= 700):
                chosen = reader[mask, name].array()
                chosen.validate(full=True)
                assert chosen.to_pylist() == table[name].filter(pa.array(mask)).to_pylist()
    with cs.open([path, path], **options) as both:
        assert both["t"].array().to_pylist() == 2 * column.to_pylist()


def test_a_damaged_row_group_is_named(tmp_path):
    path = tmp_path / "t.abcd"
    cs.store({"t": ["ab", "cd", "ef", "gh"]}, path, encoding="plain", compression="none", row_group_size=2)
    data = path.read_bytes()
    at = data.index(b"gh") - 4
    path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    with cs.open(path) as table, pytest.raises(FormatError, match="row group 1"):
        table["t"].array()
