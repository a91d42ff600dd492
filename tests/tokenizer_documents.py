"""Small ``tokenizer.json`` documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from colstore_io.formats.columns.tokenizer import BYTE_CHARACTERS, Tokenizer

BYTE_LEVEL = {"type": "ByteLevel"}


def document(
    tokens: Sequence[str] | dict[str, Any],
    merges: Sequence[Any] = (),
    *,
    specials: Sequence[tuple[int, str]] = (),
    **changes: Any,
) -> bytes:
    """Return a document; `tokens` have their positions as ids, unless they are a vocabulary already."""
    vocab = tokens if isinstance(tokens, dict) else {token: i for i, token in enumerate(tokens)}
    whole = {
        "added_tokens": [{"id": i, "content": text, "special": True} for i, text in specials],
        "pre_tokenizer": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": vocab, "merges": list(merges)},
        **changes,
    }
    return json.dumps({key: value for key, value in whole.items() if value is not ...}).encode()


def make(tokens: Sequence[str] | dict[str, Any], merges: Sequence[Any] = (), **options: Any) -> Tokenizer:
    return Tokenizer.from_bytes(document(tokens, merges, **options))


def all_bytes(extra: Sequence[str] = (), merges: Sequence[str] = (), **options: Any) -> Tokenizer:
    """Return a tokenizer with a token for each byte (id = byte), then `extra`."""
    return make([*BYTE_CHARACTERS, *extra], merges, **options)
