"""What a thorough check of columns files finds, and what inspecting them shows."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from formats.columns.columns_builder import chunk, file_of

from colstore_io.formats import verify_location
from colstore_io.formats.columns import FORMAT
from colstore_io.formats.columns.inspect import inspect
from colstore_io.formats.inspection import Inspection
from colstore_io.storage import locate, open_file

INT64, FLOAT32, FLOAT64, BYTES, STRING = 5, 10, 11, 12, 13


def problems(data):
    return [str(problem) for problem in FORMAT.verify_file(open_file(data)[0])]


def column(body, kind, n_rows, *, nullable=False, **values):
    return file_of([(b"c", kind, nullable)], [(n_rows, [(body, values)])])


def numbers(*values, dtype="<i8"):
    return chunk(1, np.array(values, dtype).tobytes())


def texts(*values):
    return chunk(1, b"".join(struct.pack("<I", len(v)) + v for v in values))


def q(value):
    return struct.pack("<q", value)


def test_statistics_are_computed_again():
    good = {"minimum": q(-1), "maximum": q(3), "min_len": 8, "max_len": 8}
    assert problems(column(numbers(3, -1), INT64, 2, **good)) == []
    for name, wrong in (("minimum", q(0)), ("maximum", q(4)), ("min_len", 4), ("max_len", 9)):
        (found,) = problems(column(numbers(3, -1), INT64, 2, **{**good, name: wrong}))
        assert found.startswith("row group 0, column 'c'")
        assert f"{name} is" in found
    assert problems(column(numbers(3, -1), INT64, 2))[0].startswith("notice:")


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([1.0, float("nan"), -2.0], -2.0, 1.0),
        ([float("nan"), 1.0], float("nan"), float("nan")),
        ([0.0, -0.0], 0.0, 0.0),
        ([-0.0, 0.0], -0.0, -0.0),
    ],
)
def test_bounds_of_floats_follow_the_first_value(dtype, values, low, high):
    width = int(dtype[-1])
    low, high = (np.array(value, dtype).tobytes() for value in (low, high))
    lengths = {"min_len": width, "max_len": width}
    body = numbers(*values, dtype=dtype)
    kind = FLOAT32 if width == 4 else FLOAT64
    assert problems(column(body, kind, len(values), minimum=low, maximum=high, **lengths)) == []


def test_bytes_with_empty_values_may_have_the_statistics_of_either_kind():
    body = texts(b"b", b"", b"c")
    odd = {"minimum": b"c", "maximum": b"bc", "min_len": 1, "max_len": 1}
    true = {"maximum": b"c", "max_len": 1}
    for values in (odd, true):
        assert problems(column(body, BYTES, 3, **values)) == []
    assert any(
        "maximum is" in found for found in problems(column(body, BYTES, 3, **{**odd, "maximum": b"c"}))
    )
    assert problems(column(body, STRING, 3, **true)) == []


def test_all_null_has_no_statistics():
    assert problems(column(chunk(1, b"", bitmap=b"\x03"), INT64, 2, nullable=True, nulls=2)) == []


def test_text_that_is_not_utf8_and_bytes_of_nobody_are_odd_but_allowed():
    body = texts(b"\xff") + b"slack"
    found = problems(column(body, STRING, 1, minimum=b"\xff", maximum=b"\xff", min_len=1, max_len=1))
    assert len(found) == 2
    assert all(text.startswith("notice:") for text in found)
    good = {"minimum": q(1), "maximum": q(1), "min_len": 8, "max_len": 8}
    one = numbers(1)
    data = file_of([(b"c", INT64, False)], [(1, [(one, good)])], offsets=[5])
    shifted = file_of([(b"c", INT64, False)], [(1, [(one, good)])], prologue=b"ABCD\x01.....", offsets=[10])
    assert problems(data) == []
    assert "5 bytes that belong to nothing" in problems(shifted)[0]


def test_a_damaged_chunk_does_not_hide_the_next_one(tmp_path):
    groups = [(1, [(numbers(1, 2), {})]), (1, [(numbers(1), {"minimum": q(9), "maximum": q(9)})])]
    data = file_of([(b"c", INT64, False)], groups)
    found = problems(data)
    assert "row group 0" in found[0]
    assert any("row group 1" in text for text in found[1:])
    path = tmp_path / "x.abcd"
    path.write_bytes(data)
    listed = verify_location(locate(str(path)))
    assert listed == [text for text in found if not text.startswith("notice")]


def test_a_file_with_many_problems_ends_the_check():
    groups = [(1, [(numbers(1, 2), {})]) for _ in range(300)]
    found = problems(file_of([(b"c", INT64, False)], groups))
    assert len(found) == 101
    assert "more" in found[-1]


def test_inspection_is_a_table_for_people_and_programs():
    data = column(numbers(3, -1), INT64, 2, minimum=q(-1), maximum=q(3))
    found = inspect(open_file(data)[0])
    assert len(found) == 1
    (row,) = found
    assert (row["type"], row["minimum"], row["maximum"], row["raw"], row["blocks"]) == ("int64", -1, 3, 16, 1)
    assert "row_group" in repr(found)
    assert "<td>int64</td>" in found._repr_html_()
    assert found.to_arrow().column("rows").to_pylist() == [2]
    assert found.column("encoding") == ["plain"]
    with pytest.raises(IndexError):
        found[1]


def test_inspection_shows_strange_values_safely():
    found = Inspection("<t>", {"name": ["a\n<b>", None], "bound": [2**64 - 1, "x"], "n": [1, None]})
    assert "<b>" not in found._repr_html_()
    assert "a\\n" in repr(found)
    table = found.to_arrow()
    assert table.column("bound").to_pylist() == ["18446744073709551615", "x"]
    assert table.column("n").to_pylist() == [1, None]
    with pytest.raises(ValueError, match="one length"):
        Inspection("", {"a": [1], "b": []})
    assert "more rows" in repr(Inspection("", {"a": list(range(100))}))
