"""The kernels of colbin read nothing outside their bytes and write nothing outside their outputs.

Memory is fenced by pages that may not be touched, as in `test_guard_pages`.
"""

from __future__ import annotations

import itertools
import random
import sys
from typing import Annotated

import numpy as np
import pyarrow as pa
import pytest
from kernels.test_guard_pages import Fence

from colstore_io.errors import FormatError
from colstore_io.formats.colbin.annotations import record
from colstore_io.formats.colbin.codec import Codec
from colstore_io.formats.colbin.layout import list_columns
from colstore_io.formats.colbin.markers import i64
from colstore_io.formats.colbin.table_encoding import encode_table
from colstore_io.formats.colbin.tables import choose_list, decode_list, find_list, split_message
from colstore_io.kernels import column_codec, message_log, record_columns

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses mprotect")


@pytest.fixture
def fence() -> Fence:
    made = Fence()
    yield made
    made.close()


def fenced(fence: Fence, data: bytes, side: str) -> np.ndarray:
    memory = fence.array(len(data), side)
    memory[:] = np.frombuffer(data, np.uint8)
    return memory


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("width", [1, 2, 7, 8, 15, 16, 28, 29, 31, 56, 57, 58, 63, 64])
@pytest.mark.parametrize("n", [1, 5, 128, 133, 256])
def test_columns_are_decoded_within_their_bytes(fence, side, width, n):
    generator = np.random.default_rng(width)
    values = (generator.integers(0, 2**64 - 1, n, np.uint64) >> np.uint64(64 - width)).view(np.int64)
    data = fenced(fence, column_codec.encode(values), side)
    for isa in range(column_codec.best_isa() + 1):
        out = fence.array(8 * n, side).view(np.int64)
        assert column_codec.decode(data, out, isa=isa) == 0
        np.testing.assert_array_equal(out, values)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "f4", "f8"])
@pytest.mark.parametrize("n", [1, 7, 127, 128, 300])
def test_columns_are_read_and_written_within_their_values(fence, dtype, n):
    values = np.random.default_rng(n).integers(0, 2, n).astype(dtype)
    memory = fenced(fence, values.tobytes(), "after").view(dtype)
    for isa in range(column_codec.best_isa() + 1):
        data = column_codec.encode(memory, isa=isa)
        out = fence.array(values.nbytes, "after").view(dtype)
        assert column_codec.decode(data, out, isa=isa) == 0
        np.testing.assert_array_equal(out, values)


TABLES = [
    {"a": np.arange(40), "s": ["", "x" * 15, "y" * 40, "z" * 300] * 10},
    {"s": pa.array([None, "abc", "d" * 70] * 3), "l": [[1, -2], [], [300]] * 3, "b": [b"x", b"", b"yy"] * 3},
    {"t": [["a", ""], [], ["b" * 20]] * 3, "f": [0.5, None, -1.0] * 3, "u": np.arange(9, dtype=np.uint8)},
]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("number", range(len(TABLES)))
def test_damaged_lists_are_read_within_their_bytes(fence, side, number):
    message = encode_table(TABLES[number])
    section, body, k8 = split_message(message, None)
    field = choose_list(section, None)
    columns = list_columns(section, field.type.index)
    chance = random.Random(number)
    accepted = 0
    for turn in range(60):
        run = bytearray(message[body:])
        if turn:
            run[chance.randrange(len(run))] = chance.randrange(256)
            del run[chance.choice([len(run), chance.randrange(len(run) + 1)]) :]
        data = fenced(fence, bytes(run), side)
        try:
            span = find_list(data, 0, len(data), k8, section, field)
            if span.rows <= 1000:
                decode_list(data, span, columns, errors="surrogateescape")
                accepted += 1
        except FormatError:
            pass
    assert accepted


def test_frames_are_walked_and_opened_within_their_bytes(fence):
    chance = random.Random(1)
    for _ in range(200):
        data = fenced(fence, chance.randbytes(chance.randrange(1, 60)), "after")
        room = np.zeros((5, 8), np.int64)
        found, _, _ = message_log.walk(data, 0, 0, *room[:3])
        places = room[:, :found].copy()
        code, _ = message_log.open_all(data, 0, *places, np.zeros(found, np.uint8))
        assert found == 0 or code in (message_log.CRC, message_log.CHANGED)


LENGTHS = [*range(40), 63, 64, 65, 127, 128, 129, 191, 192, 193, 254, 255, 256, 257, 300, 320]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("order", [1, -1])
def test_text_columns_are_read_and_written_within_their_memory(fence, side, order):
    lengths = LENGTHS[::order]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    text = np.random.default_rng(1).integers(97, 123, offsets[-1]).astype(np.uint8)
    rows = len(lengths)
    room = fence.array(len(text) + 5 * rows + 16, side)
    used = record_columns.write_string_column(0, 0, offsets, fenced(fence, text.tobytes(), side), room)
    written = room[:used].tobytes()
    message = encode_table({"t": [text[a:b].tobytes().decode() for a, b in itertools.pairwise(offsets)]})
    assert message.endswith(written)
    section, body, k8 = split_message(message, None)
    layout = list_columns(section, choose_list(section, None).type.index).layout
    del body, k8
    found, out = fence.array(4 * (rows + 1), side).view(np.int32), fence.array(used, side)
    start, length = np.empty((2, 1), np.int64)
    data = fenced(fence, written, side)
    wrong, _ = record_columns.table_columns(layout, data, 0, used, rows, 0, [found], out, start, length)
    assert wrong == 0
    np.testing.assert_array_equal(found, offsets)
    assert (start[0], length[0]) == (0, len(text))
    np.testing.assert_array_equal(out[: len(text)], text)


@record
class Mixed:
    text: Annotated[str, 1]
    number: Annotated[i64, 2]
    names: Annotated[list[str], 3]


@pytest.mark.parametrize("side", ["before", "after"])
def test_records_are_decoded_within_their_bytes(fence, side):
    codec = Codec(Mixed)
    for n in range(36):
        for number in (0, 1 << n, -(1 << n) - 1, (1 << n) * 177):
            row = Mixed("q" * n, number, ["r" * n, "é" * n])
            message = codec.encode(row)
            assert codec.decode(fence.bytes(message, side)) == row
            assert codec.decode(fenced(fence, message, side)) == row
            # the text last, so that its bytes are the last that there are
            last = codec.encode(Mixed("q" * n, 0, []))
            assert codec.decode(fence.bytes(last, side)).text == row.text
