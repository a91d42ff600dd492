"""Rows that are picked while a chunk is decoded are those of the whole chunk, and little else is looked at or held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io.errors import FormatError
from colstore_io.fields import Schema
from colstore_io.formats import TakingDecoder
from colstore_io.formats.columns import FORMAT, pick_tokens, picking
from colstore_io.formats.columns import stream as stream_module
from colstore_io.formats.columns.encoder import ENCODINGS
from colstore_io.formats.columns.tags import Encoding, Type
from colstore_io.storage import MemoryFile
from colstore_io.taking import Run, Take

from .columns_builder import chunk, file_of
from .test_memory import BLOCK, COLUMNS, ROWS, TEXT, peak_bytes, store_tokenized, with_nulls
from .test_memory import CODECS as ALL_CODECS
from .test_memory import ENCODINGS as MEASURED
from .test_write_read import CODECS, PAIRS, array, encode, field, values_of


@pytest.fixture(autouse=True)
def small_windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few rows make many windows, in tests that do not measure."""
    if "measured" not in request.fixturenames:
        monkeypatch.setattr(picking, "WINDOW_ROWS", 16)
        monkeypatch.setattr(pick_tokens, "STEP_IDS", 7)


@pytest.fixture
def measured() -> None:
    """Windows of their real size."""


def opened(data: bytes) -> tuple[Any, list[memoryview]]:
    file = MemoryFile(data)
    (meta,) = FORMAT.read_metadata([file], [memoryview(data)])
    decoder = meta.decoder
    assert isinstance(decoder, TakingDecoder)
    return decoder, [file.read(*place) for place in decoder.ranges(0, [0])]


def as_list(column: Any) -> list[Any]:
    if column.array is not None:
        column.array.validate(full=True)
        found: list[Any] = column.array.to_pylist()
        return found
    values = column.values.tolist()
    if column.validity is None:
        return values
    return [value if there else None for value, there in zip(values, column.validity.tolist(), strict=True)]


@st.composite
def takes(draw: Any, n_rows: int) -> tuple[Take, list[int]]:
    """Return rows of a segment, and which they are."""
    start = draw(st.integers(0, n_rows))
    kind = draw(st.sampled_from(["rows", "mask", "run"]))
    if kind == "run":
        stop = draw(st.integers(start, n_rows))
        return Run(start, stop), list(range(start, stop))
    rows = sorted(draw(st.lists(st.integers(start, n_rows - 1), max_size=20))) if start < n_rows else []
    if kind == "rows":
        return Take(start, rows=np.array(rows, np.int64) - start), rows
    mask = np.zeros(n_rows - start, np.bool_)
    mask[np.array(rows, np.int64) - start] = True
    return Take(start, mask=mask), sorted(set(rows))


@pytest.mark.parametrize(("kind", "encoding"), PAIRS, ids=lambda v: v.name)
@given(
    data=st.data(),
    nullable=st.booleans(),
    codec=st.sampled_from(CODECS),
    block=st.sampled_from([1, 7, 64, 0]),
    threads=st.sampled_from([1, 3]),
    dictionary=st.booleans(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_picked_rows_are_those_of_the_whole(
    kind: Type,
    encoding: Encoding,
    data: Any,
    nullable: bool,
    codec: str,
    block: int,
    threads: int,
    dictionary: bool,
) -> None:
    n_rows = data.draw(st.sampled_from([1, 15, 16, 17, 50, 120]))
    some = data.draw(st.lists(values_of(kind) | st.none() if nullable else values_of(kind), min_size=1))
    values = [some[i * 7 % len(some)] for i in range(n_rows)]
    name = next(name for name, tag in ENCODINGS.items() if tag is encoding)
    _, written = encode(
        Schema((field(kind, nullable=nullable),)),
        [[array(kind, values)]],
        encoding=name,
        compression=codec,
        block_size=block,
    )
    decoder, pieces = opened(written)
    take, rows = data.draw(takes(n_rows))
    expected = [values[row] for row in rows]
    dictionaries = [0] if dictionary else []
    with pytest.MonkeyPatch.context() as patch:  # else so few bytes stay in one thread
        patch.setattr("colstore_io.formats.columns.decoder.WORTHWHILE_BYTES", 0)
        (column,) = decoder.take(0, [0], pieces, take, threads=threads, dictionaries=dictionaries)
    assert as_list(column) == expected
    if isinstance(take, Run):
        bounds = (take.start, take.stop)
        (column,) = decoder.decode(0, [0], pieces, rows=bounds, dictionaries=dictionaries)
        assert as_list(column) == expected
    elif kind.fixed:
        order = np.random.default_rng(0).permutation(take.count)
        take._places = order
        out = np.zeros(take.count, column.values.dtype)
        (column,) = decoder.take(0, [0], pieces, take, out=[out], threads=threads)
        assert column.values is out
        column.values = out[order]
        assert as_list(column) == expected


@pytest.mark.parametrize("escapes", [False, True])
@pytest.mark.parametrize("boundary", ["counts", "offsets", "deltas"])
@pytest.mark.parametrize("representation", ["raw", "remap", "bits"])
@given(data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_picked_tokens_are_those_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, representation: str, boundary: str, escapes: bool, data: Any
) -> None:
    words = ["", "ab", "abcdxyzü" * 3, "0101", "z" * 40, "cdab" * 5]
    chosen = data.draw(st.lists(st.sampled_from(words) | st.none(), min_size=1, max_size=12))
    n_rows = data.draw(st.sampled_from([1, 16, 33, 70]))
    values = [chosen[i * 5 % len(chosen)] for i in range(n_rows)]
    path = tmp_path_factory.mktemp("tokens") / "t.abcd"
    store_tokenized(
        path,
        pa.array(values, pa.string()),
        1,
        escapes=escapes,
        compression=data.draw(st.sampled_from(["none", "flate"])),
        tokenized_layout=(representation, boundary),
    )
    decoder, pieces = opened(path.read_bytes())
    take, rows = data.draw(takes(n_rows))
    (column,) = decoder.take(0, [0], pieces, take)
    assert as_list(column) == [values[row] for row in rows]


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("codec", ALL_CODECS)
@pytest.mark.parametrize(
    ("kind", "encoding"), [(kind, encoding) for kind, found in MEASURED.items() for encoding in found]
)
@pytest.mark.usefixtures("measured")
def test_a_scattered_read_holds_its_result_and_a_block(
    tmp_path: Path, kind: str, encoding: str, codec: str, nulls: bool
) -> None:
    column = with_nulls(COLUMNS[kind]) if nulls else COLUMNS[kind]
    path = tmp_path / "t.abcd"
    cs.store({"c": column}, path, encoding=encoding, compression=codec, block_size=BLOCK)
    decoder, pieces = opened(path.read_bytes())
    assert_holds_little(decoder, pieces, column, tables=256 * (2 * 40 * ROWS // BLOCK))


@pytest.mark.parametrize("escapes", [False, True])
@pytest.mark.parametrize("representation", ["raw", "remap", "bits"])
@pytest.mark.usefixtures("measured")
def test_a_scattered_read_of_tokens_holds_its_result_and_three_blocks(
    tmp_path: Path, representation: str, escapes: bool
) -> None:
    column = with_nulls(TEXT) if escapes else TEXT
    path = tmp_path / "t.abcd"
    store_tokenized(
        path, column, 1, escapes=escapes, compression="flate", tokenized_layout=(representation, "deltas")
    )
    decoder, pieces = opened(path.read_bytes())
    assert_holds_little(decoder, pieces, column, tables=256 * (2 * 40 * ROWS // BLOCK))


def assert_holds_little(decoder: Any, pieces: Any, column: Any, tables: int) -> None:
    values = column if isinstance(column, pa.Array) else pa.array(column)
    for share in (100, 2):
        wanted = np.flatnonzero(np.random.default_rng(share).integers(0, share, ROWS) == 0)
        take = Take(0, rows=wanted)
        expected = values.take(pa.array(wanted))
        (found,) = decoder.take(0, [0], pieces, take)
        assert as_list(found) == expected.to_pylist()
        own = found.array.nbytes if found.array is not None else found.values.nbytes
        if found.validity is not None:
            own += found.validity.nbytes
        peak = peak_bytes(lambda take=take: decoder.take(0, [0], pieces, take))
        # What a window of 2^14 rows takes, whatever their number: positions, counts, starts and lengths; and memory
        # that grows is at most a quarter too large for a while.
        window = 12 * 8 * picking.WINDOW_ROWS
        assert peak - own < 3 * BLOCK + window + tables + own / 4, (share, peak, own)


def test_blocks_without_a_wanted_row_are_not_decompressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[int] = set()
    plain = stream_module.decompress

    def counted(*args: Any) -> Any:
        seen.add(args[4])
        return plain(*args)

    monkeypatch.setattr(stream_module, "decompress", counted)
    wanted = np.array([5, 6, 70_000, 70_000, 199_999])
    # Of a dictionary also the blocks of its entries.
    most = {"plain": 3, "rle_bitpack": 3, "dict": 3 + 20, "offset_bytes": 3 * 2 + 1}
    for kind, encodings in MEASURED.items():
        for encoding in encodings:
            if encoding not in most or (encoding == "plain" and kind in ("string", "bytes")):
                continue
            for nulls in (False, True):
                column = with_nulls(COLUMNS[kind]) if nulls else COLUMNS[kind]
                path = tmp_path / f"{kind}_{encoding}_{nulls}.abcd"
                cs.store({"c": column}, path, encoding=encoding, compression="flate", block_size=1024)
                decoder, pieces = opened(path.read_bytes())
                seen.clear()
                decoder.take(0, [0], pieces, Take(0, rows=wanted))
                assert len(seen) <= most[encoding] + 3, (kind, encoding, nulls, len(seen))


def test_a_damaged_block_is_named_when_a_row_of_it_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "t.abcd"
    cs.store({"c": COLUMNS["float64"]}, path, encoding="plain", compression="zlib", block_size=BLOCK)
    decoder, pieces = opened(path.read_bytes())
    damaged = bytearray(pieces[0])
    damaged[len(damaged) // 2 : len(damaged) // 2 + 40] = bytes(40)
    (early,) = decoder.take(0, [0], [memoryview(damaged)], Take(0, rows=np.array([3, 9])))
    assert early.values.tolist() == COLUMNS["float64"][[3, 9]].tolist()
    with pytest.raises(FormatError, match=r"row group 0, column 'c'.*|block \d+"):
        decoder.take(0, [0], [memoryview(damaged)], Take(0, rows=np.arange(0, ROWS, 50)))


def test_values_of_nulls_alone_are_refused_as_in_a_whole_read() -> None:
    body = chunk(int(Encoding.OFFSET_BYTES), b"\0\0\0\0left", bitmap=b"\x07")
    decoder, pieces = opened(file_of([(b"c", int(Type.BYTES), True)], [(3, [(body, {"nulls": 3})])]))
    with pytest.raises(FormatError, match="4 bytes of values, but no value"):
        decoder.decode(0, [0], pieces)
    with pytest.raises(FormatError, match="4 bytes of values, but no value"):
        decoder.take(0, [0], pieces, Take(0, rows=np.array([1])))
