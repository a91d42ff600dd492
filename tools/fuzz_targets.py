"""What `fuzz.py` feeds damaged bytes to: every decoder, the seeds for it, and how to make its checksums fit again.

A target is one function of bytes. Only errors of this library may leave it; those of `from_json` may be any
`ValueError`. Seeds are files and messages that the package itself writes, made anew in each run. `repair`
recomputes checksums in damaged bytes, as a hostile writer would: otherwise hardly any input gets past them.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa

import colstore_io as cs
from colstore_io.errors import ColstoreError
from colstore_io.formats import ReadOptions
from colstore_io.formats.cstore.manifest import columns_crc
from colstore_io.kernels import column_codec, decode, message_log, packed5, records, tokens

__all__ = ["TARGETS", "Target"]

MAX_ROWS = 1 << 16
MAX_DECODED_BYTES = 1 << 24
MAX_CELLS = 1 << 18
MAX_TEXT = 1 << 20

Seeds = Callable[[], list[bytes]]


@dataclass(frozen=True)
class Target:
    """One decoder.

    Attributes
    ----------
    run : callable
        Decodes bytes; what it raises, unless `allowed`, is a finding.
    seeds : callable
        Returns sound inputs.
    repair : callable, optional
        Returns the input with its checksums recomputed as far as that goes.
    allowed : tuple of exception types
    """

    run: Callable[[bytes], object]
    seeds: Seeds
    repair: Callable[[bytes], bytes] | None = None
    allowed: tuple[type[Exception], ...] = field(default=(ColstoreError,))
    cost: int = 1
    """About how many inputs of the fastest targets take as long as one of this: ``--runs`` is divided by it."""


# ---- sound data ----------------------------------------------------------------------------------


def _table(rows: int) -> dict[str, Any]:
    numbers = np.arange(rows)
    return {
        "i": numbers.astype("i8") * 3,
        "b": numbers % 3 == 0,
        "f": (numbers / 7).astype("f4"),
        "u": (numbers * 37 % 256).astype("u1"),
        "t": pa.array([f"row-{n % 5}-Ä" for n in numbers.tolist()]),
        "n": pa.array([None if n % 4 == 0 else n for n in numbers.tolist()], pa.int32()),
        "r": pa.array([b"\0" * (n % 3) for n in numbers.tolist()], pa.binary()),
        "s": pa.array([None if n % 3 == 0 else "x" * (n % 4) for n in numbers.tolist()]),
    }


def _written(name: str, *parts: Any, **options: Any) -> bytes:
    """Return the bytes of a file of one or more batches; `close=False` cuts its end off, as a crash does."""
    with tempfile.TemporaryDirectory(prefix="colstore-io-fuzz-") as folder:
        path = Path(folder) / name
        with cs.store(iter(parts) if len(parts) > 1 else parts[0], str(path), **options):
            pass
        return path.read_bytes()


@cache
def _cstore_files() -> tuple[bytes, ...]:
    small = {name: values for name, values in _table(5).items() if name != "r"}
    return (
        _written("a.cstore", small),
        _written("a.cstore", {"a": np.arange(9), "c": np.arange(9, dtype=">f8")}, statistics=True),
        _written("a.cstore", small, small, statistics=True, string_width={"t": 9, "s": 3}),
        _written(
            "a.cstore",
            {"d": np.arange(6).astype("M8[ms]"), "s": np.array(list("abcdef"), "S2")},
            attrs={"k": [1]},
        ),
    )


ENCODINGS = ("plain", "rle_bitpack", "delta", "dict", "offset_bytes", "affix")
_FITTING = {
    "plain": ("i", "b", "f", "u", "t", "n", "s"),
    "rle_bitpack": ("b",),
    "delta": ("i", "u", "n"),
    "dict": ("i", "t", "s", "f"),
    "offset_bytes": ("r",),
    "affix": ("t", "s"),
}
COMPRESSIONS = ("none", "flate", "gzip", "zlib", "lzw", "zstd")


@cache
def _columns_files() -> tuple[bytes, ...]:
    files = []
    for number, encoding in enumerate(ENCODINGS):
        table = _table(21)
        part = {name: table[name] for name in _FITTING[encoding]}
        files.append(_written("a.abcd", part, encoding=encoding, compression="none"))
        files.append(
            _written(
                "a.abcd",
                part,
                encoding=encoding,
                compression=COMPRESSIONS[number],
                block_size=64,
                row_group_size=8,
            )
        )
    files.append(
        _written(
            "a.abcd",
            {"t": _table(9)["t"], "s": _table(9)["s"]},
            tokenizers={"t": _tokenizer(), "s": _tokenizer()},
        )
    )
    return tuple(files)


@cache
def _tokenizer() -> Any:
    from colstore_io.formats.columns.tokenizer import BYTE_CHARACTERS, Tokenizer, default_registry

    vocabulary = [*BYTE_CHARACTERS, "ro", "row", "xx", "<s>"]
    document = {
        "added_tokens": [{"id": len(vocabulary) - 1, "content": "<s>", "special": True}],
        "pre_tokenizer": {"type": "ByteLevel"},
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(vocabulary)},
            "merges": ["r o", "ro w", "x x"],
        },
    }
    return default_registry.register(Tokenizer.from_bytes(json.dumps(document).encode()))


@cs.colbin.record
class Leaf:
    """Scalars of the small keys."""

    a: Annotated[cs.i32, 1]
    b: Annotated[str, 2]
    c: Annotated[float, 3]
    d: Annotated[bool, 4]


@cs.colbin.record
class Wide:
    """Every type that a field can have, with eight-bit keys."""

    name: Annotated[str, 20]
    leaf: Annotated[Leaf, 21]
    leaves: Annotated[list[Leaf], 22]
    raw: Annotated[bytes, 23]
    numbers: Annotated[list[cs.i64], 24]
    small: Annotated[list[cs.u16], 25]
    words: Annotated[list[str], 26]
    maybe: Annotated[cs.u64 | None, 27]
    table: Annotated[dict[str, cs.i32], 28]
    anything: Annotated[Any, 29]
    things: Annotated[list[Any], 30]
    more: Annotated[dict[cs.i64, Any], 31]


class Row(NamedTuple):
    """Four-bit keys and nesting."""

    n: Annotated[cs.u8, 1]
    inner: Annotated[Leaf, 2]
    rows: Annotated[list[Leaf], 3]
    words: Annotated[list[str], 4]


@cache
def _codecs() -> tuple[Any, ...]:
    return tuple(cs.colbin.Codec(tp) for tp in (Leaf, Wide, Row, list[Leaf], dict[str, cs.f64]))


def _values() -> list[Any]:
    leaves = [Leaf(n - 3, "abc"[: n % 4], n / 3, n % 2 == 0) for n in range(12)]
    wide = Wide(
        "name", leaves[1], leaves, b"\0\1", [1, -2, 1 << 40], [7, 9], ["a", "bc"], 5, {"x": 1, "y": -1},
        {"k": [1, 2.5, None, "s", b"b"]}, [1, leaves[2], "t"], {3: True, -4: []},
    )  # fmt: skip
    return [leaves[5], wide, Row(3, leaves[2], leaves[:3], ["q", "r"]), leaves, {"a": 1.5, "b": 0.0}]


@cache
def _messages() -> tuple[tuple[bytes, bytes], ...]:
    """Return (bare message, self-describing message) of each codec."""
    return tuple(
        (codec.encode(value, packed5=packed), codec.encode_self_describing(value, packed5=packed))
        for packed in (False, True)
        for codec, value in zip(_codecs(), _values(), strict=True)
    )


@cache
def _logs() -> tuple[bytes, ...]:
    table = _table(12)
    flat = {name: table[name] for name in ("i", "b", "f", "t", "n")}
    closed = _written("a.colbin", flat)
    return (
        closed,
        _written("a.colbin", flat, row_group_size=4, compress=True),
        _written("a.colbin", {"i": table["i"]}, row_group_size=3),
        closed[:-1],
    )


# ---- reading files -------------------------------------------------------------------------------


def _read_file(data: bytes) -> None:
    """Open a file and read every column, by the front door."""
    with cs.open(data, max_rows=MAX_ROWS, max_decoded_bytes=MAX_DECODED_BYTES) as table:
        cs.info(data)
        repr(table)
        for name in table.schema.names:
            column = table[name]
            if column.shape[0] <= MAX_ROWS:
                column.array()
                column.arrow()
            column.head(3)
        if 0 < table.n_rows <= MAX_ROWS and len(table.schema) <= 64:
            table[:: max(1, table.n_rows // 3)].dict()


def _verify_file(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=_folder(), suffix=".data") as file:
        file.write(data)
        file.flush()
        cs.verify(file.name)


@cache
def _folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _gob_footer(data: bytes) -> None:
    from colstore_io.formats.columns.footer import parse_footer, schema_of
    from colstore_io.formats.columns.frame import parse_prologue

    head = b"ABCD\x01"
    prologue = parse_prologue(memoryview(head), len(head))
    footer = parse_footer(memoryview(data), start=1 << 19, prologue=prologue, path="x", max_rows=MAX_ROWS)
    schema_of(footer)


def _footers() -> list[bytes]:
    return [file[-8 - int.from_bytes(file[-8:-4], "little") : -8] for file in _columns_files()]


# ---- streams of columns files --------------------------------------------------------------------

_PLACES = struct.Struct("<BBHH")


def _stream(data: bytes) -> None:
    """One encoded stream: what it is (type, encoding), rows and nulls stand before it."""
    from colstore_io.formats.columns import FORMAT
    from colstore_io.storage import open_file

    if len(data) < _PLACES.size:
        return
    kind, encoding, rows, nulls = _PLACES.unpack_from(data)
    n_nulls = min(nulls, rows)
    bitmap = bytearray(-(-rows // 8) if n_nulls else 0)
    for row in range(n_nulls):
        bitmap[row >> 3] |= 1 << (row & 7)
    file = _columns_file(
        1 + (kind - 1) % 13, encoding % 8, rows, n_nulls, bytes(bitmap), data[_PLACES.size :]
    )
    opened, head = open_file(file)
    (meta,) = FORMAT.read_metadata(
        [opened], [head], ReadOptions(max_rows=MAX_ROWS, max_decoded_bytes=MAX_DECODED_BYTES)
    )
    assert meta.decoder is not None
    for group in range(meta.n_records):
        views = [memoryview(file)[at : at + size] for at, size in meta.decoder.ranges(group, [0], None)]
        meta.decoder.decode(group, [0], views)


def _columns_file(kind: int, encoding: int, rows: int, nulls: int, bitmap: bytes, stream: bytes) -> bytes:
    """Return a file of one column and one row group whose chunk is `stream`, not compressed."""
    from colstore_io.formats.columns.gob import PREFIX

    def unsigned(value: int) -> bytes:
        raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
        return bytes([value]) if value < 128 else bytes([256 - len(raw)]) + raw

    def record(*fields: tuple[int, bytes] | None) -> bytes:
        out, last = b"", -1
        for item in fields:
            if item is not None:
                out += unsigned(item[0] - last) + item[1]
                last = item[0]
        return out + b"\0"

    head = struct.pack("<BBIIII", encoding, 0, len(bitmap), len(stream), len(stream), 1)
    chunk = head + struct.pack("<II", len(stream), len(stream)) + bitmap + stream
    meta = record(
        (0, unsigned(2 * len(chunk))),
        (1, unsigned(nulls)) if nulls else None,
        (6, unsigned(encoding)) if encoding else None,
    )
    group = record((0, unsigned(rows)) if rows else None, (1, unsigned(10)), (2, b"\x01" + meta))
    column = record((0, b"\x01c"), (1, unsigned(kind)) if kind else None, (2, b"\x01") if nulls else None)
    value = b"\xff\x80" + record((0, b"\x01" + column), (1, b"\x01" + group))
    footer = PREFIX + unsigned(len(value)) + value
    return b"ABCD\x01" + chunk + footer + struct.pack("<I", len(footer)) + b"ABCD"


def _streams() -> list[bytes]:
    seeds = []
    for file in _columns_files():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seeds += list(_chunk_streams(file))
    return seeds


def _chunk_streams(file: bytes) -> Iterator[bytes]:
    from colstore_io.formats.columns import FORMAT
    from colstore_io.storage import open_file

    opened, head = open_file(file)
    (meta,) = FORMAT.read_metadata([opened], [head], ReadOptions())
    decoder: Any = meta.decoder
    for column, kind in enumerate(decoder.types.tolist()):
        ((at, length),) = decoder.ranges(0, [column], None)
        encoding, codec, bitmap, _, _, blocks = struct.unpack_from("<BBIIII", file, at)
        if codec == 0:
            rows, nulls = int(decoder.n_rows[0]), int(decoder.chunks[0][column]["null_count"])
            stream = file[at + 18 + 8 * blocks + bitmap : at + length]
            yield _PLACES.pack(kind, encoding, rows, nulls) + stream


def _tokenized_stream(data: bytes) -> None:
    """As one block, and in blocks of a few bytes: the verdict and the values must be the same."""
    from colstore_io.formats.columns.detokenize import HEADER_BYTES, TokenizedReader, decode_tokenized

    if len(data) < 2:
        return
    stream, n = memoryview(data)[2:], int.from_bytes(data[:2], "little")

    def in_blocks(size: int) -> tuple[Any, Any]:
        reader = TokenizedReader(
            bytes(stream[:HEADER_BYTES]), len(stream), _tokenizer(), n, max_bytes=1 << 22,
            offsets=lambda wide: np.empty(n + 1, np.int64 if wide else np.int32),
        )  # fmt: skip
        starts = range(0, len(stream), size)
        for number in reader.order(starts):
            reader.feed(stream[starts[number] : starts[number] + size], starts[number])
        found = reader.finish()
        return reader.offsets.tolist(), bytes(found)

    try:
        offsets, found = decode_tokenized(stream, _tokenizer(), n, max_bytes=1 << 22)
    except ColstoreError:
        try:
            in_blocks(1 + len(data) % 13)
        except ColstoreError:
            raise
        raise AssertionError("blocks are read, the whole is refused") from None
    assert in_blocks(1 + len(data) % 13) == (offsets.tolist(), bytes(found))


def _tokenized_streams() -> list[bytes]:
    from colstore_io.formats.columns.tokenized import BOUNDARIES, REPRESENTATIONS, encode_tokenized

    values = [b"row-1", b"", b"xxxx", "Äö".encode(), b"row row"]
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int64)
    text = np.frombuffer(b"".join(values), np.uint8)
    return [
        len(values).to_bytes(2, "little")
        + encode_tokenized(offsets, text, _tokenizer(), representation, boundary)
        for representation in REPRESENTATIONS
        for boundary in BOUNDARIES
    ]


def _offsets_of(values: list[bytes]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int64)
    return offsets, np.frombuffer(b"".join(values), np.uint8)


def _round_trip(tokenizer: Any, values: list[bytes]) -> None:
    """What a tokenizer makes of values must be these values again, in every layout."""
    from colstore_io.formats.columns.tokenized import (
        BOUNDARIES,
        REPRESENTATIONS,
        decode_tokenized,
        encode_tokenized,
    )

    offsets, text = _offsets_of(values)
    for layout in zip(REPRESENTATIONS, BOUNDARIES, strict=False):
        stream = encode_tokenized(offsets, text, tokenizer, *layout)
        try:
            found, content = decode_tokenized(memoryview(stream), tokenizer, len(values), max_bytes=1 << 22)
        except ColstoreError as exc:
            raise AssertionError("what was encoded cannot be decoded") from exc
        assert content.tobytes() == text.tobytes(), layout
        assert found.tolist() == offsets.tolist(), layout


def _tokenize(data: bytes) -> None:
    """Any bytes are text of a sound tokenizer; zeros separate values."""
    _round_trip(_tokenizer(), data.split(b"\0"))


def _texts_to_tokenize() -> list[bytes]:
    return [
        b"row 123456 <s>row\0\0xx  xx\n \xc3\x84\xe2\x82\xac!?",
        "\u0301\U0001f600 \u00d7\u2028٣٤٥".encode() + b"\xd7\xe0\xa0\xf0\x9f",
        b"<s" * 40 + b"x" * 200,
    ]


def _tokenizer_document(data: bytes) -> None:
    """A document of a tokenizer, and behind a zero byte the text that it is asked to encode."""
    from colstore_io.formats.columns.tokenizer import Tokenizer

    document, _, text = data.partition(b"\0")
    for strict in (True, False):
        tokenizer = Tokenizer.from_bytes(document, strict=strict)
        _round_trip(tokenizer, [text, b"", text[:5]])


def _tokenizer_documents() -> list[bytes]:
    small = {
        "added_tokens": [{"id": 3, "content": "ab", "special": True}],
        "pre_tokenizer": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ba": 2, "ab": 3}, "merges": ["b a"]},
    }
    return [json.dumps(small).encode() + b"\0abba c", _tokenizer().data + b"\0row xx <s>"]


def _lzw(data: bytes) -> None:
    if len(data) >= 2:
        decode.lzw(np.frombuffer(data, np.uint8)[2:], np.empty(int.from_bytes(data[:2], "little"), np.uint8))


def _lzw_streams() -> list[bytes]:
    from colstore_io.formats.columns.compress import compressor
    from colstore_io.formats.columns.tags import Codec

    pack = compressor(Codec.LZW)
    texts = [b"", b"a" * 3000, bytes(range(256)) * 30, b"to be or not to be " * 40]
    return [len(text).to_bytes(2, "little") + bytes(pack(np.frombuffer(text, np.uint8))) for text in texts]


# ---- messages ------------------------------------------------------------------------------------


def _typed(data: bytes) -> None:
    """Messages as objects: the first byte chooses the type."""
    if data:
        codecs = _codecs()
        codecs[data[0] % len(codecs)].decode(
            data[1:],
            max_rows=MAX_ROWS,
            max_cells=MAX_CELLS,
            errors="surrogateescape" if data[0] & 64 else "strict",
        )


def _typed_seeds() -> list[bytes]:
    return [
        bytes([number % len(_codecs())]) + message
        for number, pair in enumerate(_messages())
        for message in pair
    ]


def _described(data: bytes) -> None:
    cs.colbin.decode(None, data, max_rows=MAX_ROWS, max_cells=MAX_CELLS)


def _described_seeds() -> list[bytes]:
    return [message for _, message in _messages()]


def _section_and_message(data: bytes) -> None:
    """A schema section and a message of it, apart: lengths of two bytes, section, message."""
    size = int.from_bytes(data[:2], "little")
    cs.colbin.decode(data[2 : 2 + size], data[2 + size :], max_rows=MAX_ROWS, max_cells=MAX_CELLS)


def _section_seeds() -> list[bytes]:
    sections = [codec.schema.to_bytes() for codec in _codecs()] * 2
    return [
        len(section).to_bytes(2, "little") + section + message
        for section, (message, _) in zip(sections, _messages(), strict=True)
    ]


def _json_of(data: bytes) -> None:
    try:
        cs.colbin.to_json(None, data, max_rows=MAX_ROWS, max_cells=MAX_CELLS, max_text=MAX_TEXT)
    except ValueError as exc:
        # A message without its section is the caller's mistake, not damage.
        if isinstance(exc, ColstoreError) or "does not carry its schema" not in str(exc):
            raise


def _message_of_json(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cs.colbin.from_json(data)


def _documents() -> list[bytes]:
    return [
        b'{"id":1,"name":"a","x":[1,2,3],"in":{"f":1.5,"n":null},"rows":[{"a":1},{"a":2,"b":"\\ud800"}]}',
        b'[{"a":true,"b":-1},{"b":18446744073709551615}]',
        b'{"deep":' + b'{"a":' * 20 + b"[[]]" + b"}" * 20 + b"}",
        b'{"t":["x",""],"e":1e300,"u":"\\u00e9\\n"}',
    ]


def _table_of(data: bytes) -> None:
    limits: Any = {"max_rows": MAX_ROWS, "max_cells": MAX_CELLS}
    try:
        cs.colbin.decode_table(data, errors="surrogateescape", **limits)
        cs.colbin.decode_table(data, **limits)
    except ValueError as exc:
        if isinstance(exc, ColstoreError) or "does not carry its schema" not in str(exc):
            raise


_FLAT_FIELDS = (
    ["a", "b", "c", "d"],
    ["name", "leaf.a", "leaf.b", "raw", "numbers", "small", "words", "maybe"],
    ["n", "inner.b", "inner.c", "words"],
)


def _columns_of(data: bytes) -> None:
    """Many messages as columns: the first byte chooses the type, then messages, each behind its length."""
    codecs = _codecs()[:3]
    codec, messages, at = codecs[data[0] % 3 if data else 0], [], 1
    while at < len(data):
        messages.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    names = _FLAT_FIELDS[codecs.index(codec)]
    codec.decode_columns(messages, columns=names, errors="surrogateescape", max_cells=MAX_CELLS)


def _columns_seeds() -> list[bytes]:
    return [
        bytes([number]) + b"".join(bytes([len(message)]) + message for message in (bare[:255],) * 3)
        for number, (bare, _) in enumerate(_messages()[:3])
    ]


_COLUMN_DTYPES = ("?", "i1", "u2", "i4", "i8", "u8", "f4", "f8")


def _codec_column(data: bytes) -> None:
    if len(data) < 3:
        return
    dtype, rows = _COLUMN_DTYPES[data[0] % 8], int.from_bytes(data[1:3], "little")
    for isa in range(column_codec.best_isa() + 1):
        column_codec.decode(data[3:], np.empty(rows, dtype), isa=isa)


def _codec_columns() -> list[bytes]:
    generator = np.random.default_rng(1)
    seeds = []
    for number, dtype in enumerate(_COLUMN_DTYPES):
        for high, rows in ((1, 130), (2, 300), (120, 257)):
            values = generator.integers(0, 2 if dtype == "?" else high, rows).astype(dtype)
            seeds.append(bytes([number]) + rows.to_bytes(2, "little") + column_codec.encode(values))
    return seeds


def _opened_by_path(data: bytes) -> None:
    """A file opened by one call is what the long road sees; what that refuses is not opened."""
    from colstore_io.formats import READ_DEFAULTS
    from colstore_io.formats.columns import FORMAT
    from colstore_io.formats.columns.opened import open_local
    from colstore_io.storage import LocalOptions, open_file

    with tempfile.NamedTemporaryFile(dir=_folder(), suffix=".abcd") as file:
        file.write(data)
        file.flush()
        found = open_local(file.name, file.name, READ_DEFAULTS, LocalOptions())
    if found is None:
        return
    try:
        (meta,) = FORMAT.read_metadata([open_file(data)[0]], [memoryview(data)])
    except ColstoreError as exc:
        raise AssertionError(f"opened, but {exc}") from None
    assert found.schema == meta.schema
    assert found.n_rows == meta.n_rows
    opened, own = found.settle()
    opened.close()
    assert own.decoder is not None
    assert meta.decoder is not None
    assert own.fingerprint == meta.fingerprint
    assert own.body_start.tolist() == meta.body_start.tolist()
    assert own.decoder.start.tolist() == meta.decoder.start.tolist()  # type: ignore[attr-defined]
    assert own.decoder.chunks.tobytes() == meta.decoder.chunks.tobytes()  # type: ignore[attr-defined]


def _read_ids(representation: int, width: int, stream: Any, table: Any, places: Any) -> None:
    """One value, or one for each place, of all the ids that there can be."""
    tokenizer, n = _tokenizer(), len(places) - 1
    n_ids = len(stream) * 8 // max(1, width)
    reader = tokens.TokenReader(tokenizer.table, representation, table, n, n_ids, 0, 1 << 22)
    places[:] = n_ids // max(1, n)
    reader.begin(places, width)
    for at in range(0, len(stream), 7):
        if reader.feed(stream[at : at + 7], places):
            return
    reader.take()


def _kernel_calls(data: bytes) -> None:
    """Kernels of streams by themselves, as their callers call them: the first byte chooses one, the next four say how
    many values there are, and how wide they are."""
    if len(data) < 5:
        return
    which, width, (n, limit) = data[0] % 12, data[0] >> 4, struct.unpack_from("<HH", data, 1)
    n %= 4096
    stream = np.frombuffer(data, np.uint8)[5:]
    numbers = np.empty(n, np.uint32)
    places, text = np.empty(n + 1, np.int64), np.empty(limit, np.uint8)
    calls: tuple[Callable[[], object], ...] = (
        lambda: decode.PackedReader(2 * width + 1, limit, numbers.view(np.uint8)).feed(stream),
        lambda: decode.delta(stream, np.empty(n * 4, np.uint8), 4),
        lambda: decode.expand(np.empty(n * 8, np.uint8), 8, stream),
        lambda: decode.PlainReader(places, text, b"p" * width, b"s").feed(stream),
        lambda: decode.PlainReader(places.astype(np.int32), text).feed(stream),
        lambda: decode.offset_table(stream[: 4 * n], limit, places),
        lambda: decode.first_not_utf8(stream, np.array([0, len(stream)])),
        lambda: _read_ids(2, width + 1, stream, stream[:0], places),
        lambda: _read_ids(1, 0, stream, stream[: 2 * width], places),
        lambda: tokens.token_counts(stream[: len(stream) // 4 * 4].copy().view(np.uint32), width % 3, limit),
        lambda: records.walk_records(stream, 0, width, len(stream), places, places.copy()),
        lambda: message_log.walk(stream, 0, 0, places, places.copy(), places.copy()),
    )
    try:
        calls[which]()
    except ValueError:  # lengths that do not fit together, said before anything is read
        pass


def _kernel_seeds() -> list[bytes]:
    return [
        bytes([which | 16 * width, 9, 0, 200, 0]) + b"\1\0\0\0x" * 9
        for which in range(12)
        for width in (1, 8)
    ]


def _packed_text(data: bytes) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: packed5.decode(data[1:], bool(data[:1] > b"\x7f")),
        lambda: packed5.decode_frame(data),
    )
    for call in calls:
        try:
            call()
        except ValueError:  # what the kernel raises; its callers make a FormatError of it
            pass


def _packed_texts() -> list[bytes]:
    texts = [b"hello world, this is text", b"ABC def 123", "größe".encode(), b"x" * 300]
    return [packed5.encode_frame(text) for text in texts] + [
        b"\0" + (packed5.encode(text) or (b"", 0))[0] for text in texts
    ]


# ---- grid containers


@cache
def _grid_place() -> tuple[tempfile.TemporaryDirectory[str], tuple[bytes, ...]]:
    """Return a folder that holds the data files of several containers, and the manifests of these."""
    from colstore_io.grid import GridWriter
    from colstore_io.grid.commit import appended_part, whole_part
    from colstore_io.grid.container import place_of
    from colstore_io.grid.layout import Axis
    from colstore_io.grid.model import Dimension, Kind, VariableSpec

    folder = tempfile.TemporaryDirectory(prefix="colstore-io-fuzz-")
    manifests = []

    def spec(name: str, values: Any, cut: dict[str, int], kind: Kind = "plain") -> VariableSpec:
        axes = tuple(Axis.regular(n, chunk) for n, chunk in zip(values.shape, cut.values(), strict=True))
        return VariableSpec(name, kind, values.dtype, tuple(cut), axes, {"units": "K", "n": np.float32(1)})

    def commit(mode: Any, *variables: tuple[VariableSpec, Any], group: str = "/") -> None:
        writer = GridWriter(place_of(folder.name), mode, group)
        for one, values in variables:
            writer.put(whole_part(one), values)
            writer.dims.update({d: Dimension(n) for d, n in zip(one.dims, one.shape, strict=True)})
        writer.attrs = {"title": "seed"}
        keep(writer.commit())

    def keep(generation: int) -> None:
        manifests.append((Path(folder.name) / f"_colstore-{generation:08d}.json").read_bytes())

    cube = np.arange(5 * 4 * 6, dtype="f4").reshape(5, 4, 6)
    times = spec("time", np.arange(5).astype("M8[s]"), {"time": 2})
    t = spec("t", cube, {"time": 2, "lat": 3, "lon": 6})
    commit("w", (t, cube), (times, np.arange(5).astype("M8[s]")))
    writer = GridWriter(place_of(folder.name), "a")
    for old, values in ((t, cube), (times, np.arange(5).astype("M8[s]"))):
        writer.put(appended_part(old, Axis.regular(5, 4), "time"), values)
    writer.dims["time"] = Dimension(10, True)
    keep(writer.commit())
    words = np.array(["a", "", "Ä", None], object)
    commit(
        "w",
        (spec("w", words, {"x": 3}, "text"), words),
        (spec("b", np.array([b"1", b"22"], object), {"y": 2}, "bytes"), np.array([b"1", b"22"], object)),
        (spec("c", np.arange(4) * 1j, {"x": 4}, "complex"), np.arange(4) * 1j),
        (spec("scalar", np.array(3.5), {}), np.array(3.5)),
    )
    commit("w", (spec("u", np.array([["ab"]]), {"x": 1, "y": 1}), np.array([["ab"]])), group="/a/b")
    return folder, tuple(manifests)


def _grid(data: bytes) -> None:
    """A manifest, beside data files that are sound."""
    from colstore_io.grid.container import Container, place_of
    from colstore_io.grid.parsing import parse_grid
    from colstore_io.grid.source import GridSource
    from colstore_io.writing.manifest_json import GenerationManifest

    place = place_of(_grid_place()[0].name)
    model = parse_grid(GenerationManifest.from_bytes(data, path="manifest"), path="manifest")
    container = Container(place, model, GridSource(place))
    try:
        for path, group in model.groups.items():
            for name, spec in group.variables.items():
                variable = container.variable(name, path)
                try:
                    if spec.n_cells <= MAX_CELLS:
                        variable.read_outer([slice(None)] * len(spec.dims))
                    if spec.n_cells:
                        variable.read_outer([n - 1 for n in spec.shape])
                        variable.read_points([np.array([0, n // 2]) for n in spec.shape])
                except ColstoreError:
                    continue  # a file is not what the manifest says; the other variables may be
    finally:
        container.close()


def _repair_grid(data: bytes) -> bytes:
    """Make the checksum of the manifest fit again (directories.md)."""
    try:
        members = json.loads(data)
        members.pop("crc32", None)
        members["crc32"] = zlib.crc32(json.dumps(members, sort_keys=True, allow_nan=False).encode("ascii"))
        return json.dumps(members).encode("ascii")
    except (ValueError, AttributeError, TypeError, RecursionError):
        return data


# ---- checksums -----------------------------------------------------------------------------------


def _repair_cstore(data: bytes) -> bytes:
    """Make the counters, the manifest and the headers of records fit again (cstore.md 3, 4, 6)."""
    out = bytearray(data)
    if len(out) < 84 or out[:8] != b"CSTORE\0\x01":
        return data
    struct.pack_into("<I", out, 32, zlib.crc32(out[8:32]))
    length = int.from_bytes(out[72:80], "little")
    text = bytes(out[80 : 80 + length])
    try:
        manifest = json.loads(text)
        before = str(manifest["manifest_crc32"]).encode()
        after = str(columns_crc(manifest["columns"])).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    else:
        if len(before) == len(after):
            out[80 : 80 + length] = text.replace(before, after)
    at = out.find(b"REC\x01")
    while 0 <= at <= len(out) - 32:
        struct.pack_into("<I", out, at + 28, zlib.crc32(out[at : at + 28]))
        at = out.find(b"REC\x01", at + 32)
    return bytes(out)


_INDEX_MAGIC = b"\x89COLIDX\n"


def _repair_log(data: bytes) -> bytes:
    """Make the header, the frames and the index fit again (format-colbin-log.md)."""
    out = bytearray(data)
    if len(out) < 24:
        return data
    end = int.from_bytes(out[12:16], "little")
    if 24 <= end <= len(out):
        struct.pack_into("<I", out, 20, message_log.crc32(out[24:end], message_log.crc32(out[:20])))
    at, stop = end, len(out)
    if out[-8:] == _INDEX_MAGIC:
        begin, size = struct.unpack_from("<QI", out, len(out) - 24)
        if begin + size + 24 == len(out):
            struct.pack_into("<I", out, len(out) - 12, message_log.crc32(out[begin : begin + size]))
            stop = begin
    while at + 8 < stop:
        size = 8 + (int.from_bytes(out[at : at + 4], "little") & 0xFFFFFFF)
        size += 4 if out[at + 3] & 0x20 else 0
        if size <= 8 or at + size > stop:
            break
        crc = message_log.crc32(out[at + 8 : at + size], message_log.crc32(out[at : at + 4]))
        struct.pack_into("<I", out, at + 4, crc)
        at += size
    return bytes(out)


TARGETS: dict[str, Target] = {
    "cstore": Target(_read_file, lambda: list(_cstore_files()), _repair_cstore, cost=20),
    "cstore_verify": Target(_verify_file, lambda: list(_cstore_files()), _repair_cstore, cost=20),
    "columns": Target(_read_file, lambda: list(_columns_files()), cost=20),
    "columns_path": Target(_opened_by_path, lambda: list(_columns_files())),
    "columns_verify": Target(_verify_file, lambda: list(_columns_files()), cost=20),
    "gob_footer": Target(_gob_footer, _footers),
    "stream": Target(_stream, _streams),
    "tokenized": Target(_tokenized_stream, _tokenized_streams),
    "tokenize": Target(_tokenize, _texts_to_tokenize),
    "tokenizer": Target(_tokenizer_document, _tokenizer_documents, cost=10),
    "lzw": Target(_lzw, _lzw_streams),
    "kernels": Target(_kernel_calls, _kernel_seeds, allowed=()),
    "colbin_typed": Target(_typed, _typed_seeds),
    "colbin_described": Target(_described, _described_seeds),
    "colbin_section": Target(_section_and_message, _section_seeds),
    "to_json": Target(_json_of, _described_seeds),
    "from_json": Target(_message_of_json, _documents, allowed=(ValueError, TypeError)),
    "decode_table": Target(_table_of, _described_seeds),
    "decode_columns": Target(_columns_of, _columns_seeds),
    "column_codec": Target(_codec_column, _codec_columns, allowed=()),
    "packed5": Target(_packed_text, _packed_texts, allowed=()),
    "grid": Target(_grid, lambda: list(_grid_place()[1]), _repair_grid, cost=20),
    "log": Target(_read_file, lambda: list(_logs()), _repair_log, cost=20),
    "log_verify": Target(_verify_file, lambda: list(_logs()), _repair_log, cost=20),
}
"""By name. Every decoder of bytes that may come from strangers is in one of them."""
