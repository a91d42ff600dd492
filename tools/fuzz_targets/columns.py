"""Files of the columns format, the streams in them, and tokenizers."""

from __future__ import annotations

import json
import struct
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from colstore_io.errors import ColstoreError
from colstore_io.formats import ReadOptions
from colstore_io.kernels import decode

from .target import (
    MAX_DECODED_BYTES,
    MAX_ROWS,
    Target,
    memory_folder,
    read_file,
    sample,
    verify_file,
    written,
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
        table = sample(21)
        part = {name: table[name] for name in _FITTING[encoding]}
        files.append(written("a.abcd", part, encoding=encoding, compression="none"))
        files.append(
            written(
                "a.abcd",
                part,
                encoding=encoding,
                compression=COMPRESSIONS[number],
                block_size=64,
                row_group_size=8,
            )
        )
    files.append(
        written(
            "a.abcd",
            {"t": sample(9)["t"], "s": sample(9)["s"]},
            tokenizers={"t": small_tokenizer(), "s": small_tokenizer()},
        )
    )
    return tuple(files)


@cache
def small_tokenizer() -> Any:
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


def _gob_footer(data: bytes) -> None:
    from colstore_io.formats.columns.footer import parse_footer, schema_of
    from colstore_io.formats.columns.frame import parse_prologue

    head = b"ABCD\x01"
    prologue = parse_prologue(memoryview(head), len(head))
    footer = parse_footer(memoryview(data), start=1 << 19, prologue=prologue, path="x", max_rows=MAX_ROWS)
    schema_of(footer)


def _footers() -> list[bytes]:
    return [file[-8 - int.from_bytes(file[-8:-4], "little") : -8] for file in _columns_files()]


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


def _opened_by_path(data: bytes) -> None:
    """A file opened by one call is what the long road sees; what that refuses is not opened."""
    from colstore_io.formats import READ_DEFAULTS
    from colstore_io.formats.columns import FORMAT
    from colstore_io.formats.columns.opened import open_local
    from colstore_io.storage import LocalOptions, open_file

    with tempfile.NamedTemporaryFile(dir=memory_folder(), suffix=".abcd") as file:
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


def _tokenized_stream(data: bytes) -> None:
    """As one block, and in blocks of a few bytes: the verdict and the values must be the same."""
    from colstore_io.formats.columns.detokenize import HEADER_BYTES, TokenizedReader, decode_tokenized

    if len(data) < 2:
        return
    stream, n = memoryview(data)[2:], int.from_bytes(data[:2], "little")

    def in_blocks(size: int) -> tuple[Any, Any]:
        reader = TokenizedReader(
            bytes(stream[:HEADER_BYTES]), len(stream), small_tokenizer(), n, max_bytes=1 << 22,
            offsets=lambda wide: np.empty(n + 1, np.int64 if wide else np.int32),
        )  # fmt: skip
        starts = range(0, len(stream), size)
        for number in reader.order(starts):
            reader.feed(stream[starts[number] : starts[number] + size], starts[number])
        found = reader.finish()
        return reader.offsets.tolist(), bytes(found)

    try:
        offsets, found = decode_tokenized(stream, small_tokenizer(), n, max_bytes=1 << 22)
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
        + encode_tokenized(offsets, text, small_tokenizer(), representation, boundary)
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
    _round_trip(small_tokenizer(), data.split(b"\0"))


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
    return [json.dumps(small).encode() + b"\0abba c", small_tokenizer().data + b"\0row xx <s>"]


def _lzw(data: bytes) -> None:
    if len(data) >= 2:
        decode.lzw(np.frombuffer(data, np.uint8)[2:], np.empty(int.from_bytes(data[:2], "little"), np.uint8))


def _lzw_streams() -> list[bytes]:
    from colstore_io.formats.columns.compress import compressor
    from colstore_io.formats.columns.tags import Codec

    pack = compressor(Codec.LZW)
    texts = [b"", b"a" * 3000, bytes(range(256)) * 30, b"to be or not to be " * 40]
    return [len(text).to_bytes(2, "little") + bytes(pack(np.frombuffer(text, np.uint8))) for text in texts]


TARGETS: dict[str, Target] = {
    "columns": Target(read_file, lambda: list(_columns_files()), cost=20),
    "columns_path": Target(_opened_by_path, lambda: list(_columns_files())),
    "columns_verify": Target(verify_file, lambda: list(_columns_files()), cost=20),
    "gob_footer": Target(_gob_footer, _footers),
    "stream": Target(_stream, _streams),
    "tokenized": Target(_tokenized_stream, _tokenized_streams),
    "tokenize": Target(_tokenize, _texts_to_tokenize),
    "tokenizer": Target(_tokenizer_document, _tokenizer_documents, cost=10),
    "lzw": Target(_lzw, _lzw_streams),
}
