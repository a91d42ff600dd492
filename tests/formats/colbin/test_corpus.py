"""The generated corpus is the same everywhere, and so are its messages."""

from __future__ import annotations

import hashlib

from colbin_corpus import corpus, digest

from colstore_io.formats.colbin.codec import Codec, decode

ROWS = "8c3b185a7292c9bc15e9712e25ef4fbd61a453fcb1eab6d69b63e92d75332d69"
MESSAGES = "4dc704ba948bcdd1af007c965ade78d9c0ff9434c2ff5b4631958c4a6b95188c"


def messages() -> dict[str, list[bytes]]:
    return {name: [Codec(type(row)).encode(row) for row in rows] for name, rows in corpus().items()}


def test_rows_and_messages_have_the_pinned_digests():
    assert digest(corpus()) == ROWS
    assert hashlib.sha256(b"".join(b"".join(rows) for rows in messages().values())).hexdigest() == MESSAGES


def test_rows_come_back_one_by_one_and_as_one_list():
    for rows in corpus().values():
        codec, lists = Codec(type(rows[0])), Codec(list[type(rows[0])])
        assert [codec.decode(codec.encode(row)) for row in rows] == rows
        assert lists.decode(lists.encode(rows)) == rows
        assert decode(codec.schema, codec.encode(rows[0]))["ID" if hasattr(rows[0], "ID") else "At"]


def test_a_table_of_metrics_is_a_fifth_of_its_rows():
    rows = corpus()["metrics"]
    row_bytes = sum(len(Codec(type(row)).encode(row)) for row in rows)
    assert len(Codec(list[type(rows[0])]).encode(rows)) * 5 < row_bytes
