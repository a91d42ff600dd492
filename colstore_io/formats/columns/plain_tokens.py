"""The tokenizer's rules as plainly as Python can say them: the twin of ``kernels.tokens`` (columns.md 13.4 and 6.7).

Each step is its own function, in the words of the specification and without its speed-ups; tests compare the kernels
with it. Quadratic in the length of a piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, pairwise

from ...kernels.tokens import char_class
from .tokenizer import BYTE_CHARACTERS, Tokenizer

__all__ = ["decode_ids", "encode_value", "pieces_of"]

_OTHER, _SPACE, _PUNCTUATION = 0, 3, 4
_CONTRACTIONS = (b"'s", b"'t", b"'m", b"'d", b"'re", b"'ve", b"'ll")


def _is_prefix(data: bytes) -> bool:
    """Whether `data` could go on to become one valid sequence of UTF-8."""
    for tail in (b"", b"\x80", b"\x90", b"\xa0"):  # one of these fits where a second byte is due
        for fill in range(4):
            candidate = data + tail + b"\x80" * fill
            if len(candidate) > len(data):
                try:
                    if len(candidate.decode()) == 1:
                        return True
                except UnicodeDecodeError:
                    pass
    return False


def characters(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the bytes and the class of each character (step 2)."""
    at = 0
    while at < len(data):
        for size in (1, 2, 3, 4):
            try:
                char = data[at : at + size].decode()
            except UnicodeDecodeError:
                continue
            if char:
                break
        else:
            size, char = 1, "\ufffd"
            rest = data[at:]
            if len(rest) < 4 and _is_prefix(rest):
                char = BYTE_CHARACTERS[data[at]]
        yield data[at : at + size], char_class(ord(char))
        at += size


def _runs(chars: list[tuple[bytes, int]], key: Callable[[int], object]) -> list[bytes]:
    return [b"".join(part for part, _ in group) for _, group in groupby(chars, key=lambda char: key(char[1]))]


def _words(run: bytes) -> Iterator[bytes]:
    """Split one run of step 3 into words (step 4)."""
    chars = list(characters(run))
    at = 0
    while at < len(chars):
        rest = b"".join(part for part, _ in chars[at:])
        contraction = next((text for text in _CONTRACTIONS if rest.startswith(text)), None)
        if contraction is not None:
            stop = at + len(contraction)
        elif chars[at][0] == b" " and at + 1 < len(chars) and chars[at + 1][1] != _SPACE:
            stop = _same(chars, at + 1)
        elif chars[at][1] == _SPACE:
            stop = _same(chars, at)
            if stop < len(chars) and stop - at > 1:
                stop -= 1
        else:
            stop = _same(chars, at)
        yield b"".join(part for part, _ in chars[at:stop])
        at = stop


def _same(chars: list[tuple[bytes, int]], at: int) -> int:
    """Return where the run of the class of character `at` ends."""
    stop = at
    while stop < len(chars) and chars[stop][1] == chars[at][1]:
        stop += 1
    return stop


def pieces_of(stretch: bytes) -> list[bytes]:
    """Return the pieces of a stretch between specials (steps 2 to 5)."""
    out: list[bytes] = []
    for run in _runs(list(characters(stretch)), lambda kind: kind == _PUNCTUATION):
        for word in _words(run):
            for digits, group in groupby(word, key=lambda byte: 0x30 <= byte <= 0x39):
                part = bytes(group)
                step = 3 if digits else len(part)
                out.extend(part[start : start + step] for start in range(0, len(part), step))
    return out


def _encode_piece(
    piece: bytes, id_of: dict[str, int], ranks: dict[tuple[str, str], int]
) -> list[int | bytes]:
    """Return ids, and bare bytes where there is no token (step 6)."""
    text = "".join(BYTE_CHARACTERS[byte] for byte in piece)
    if text in id_of:
        return [id_of[text]]
    symbols = list(text)
    while True:
        found = [
            (ranks[pair], at)
            for at, pair in enumerate(pairwise(symbols))
            if pair in ranks and pair[0] in id_of and pair[1] in id_of
        ]
        if not found:
            break
        _, at = min(found)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return [
        id_of[symbol] if symbol in id_of else bytes([BYTE_CHARACTERS.index(symbol)]) for symbol in symbols
    ]


def encode_value(value: bytes, tokenizer: Tokenizer) -> tuple[list[int], bytes]:
    """Return the ids and the escape bytes of one value (steps 1 to 6)."""
    model = tokenizer.model
    id_of = {token: number for number, token in enumerate(model.tokens)}
    ranks = {
        pair: rank & 0xFFFF for rank, pair in enumerate(model.merges) if pair[0] + pair[1] in id_of
    }  # later ranks replace
    specials = {
        special.content.encode(): special.id
        for special in model.specials
        if special.id < len(model.tokens) and tokenizer.token_bytes[special.id] == special.content.encode()
    }
    symbols: list[int | bytes] = []
    start = at = 0
    while at <= len(value):
        special = max((text for text in specials if value.startswith(text, at)), key=len, default=None)
        if special is None and at < len(value):
            at += 1
            continue
        for piece in pieces_of(value[start:at]):
            symbols.extend(_encode_piece(piece, id_of, ranks))
        if special is None:
            break
        symbols.append(specials[special])
        at += len(special)
        start = at
    ids = [symbol if isinstance(symbol, int) else tokenizer.escape_id for symbol in symbols]
    return ids, b"".join(symbol for symbol in symbols if isinstance(symbol, bytes))


def decode_ids(ids: list[int], escapes: bytes, tokenizer: Tokenizer) -> bytes:
    """Return the bytes that ids and escapes stand for (6.7, 13.3); KeyError where they stand for nothing."""
    rest = iter(escapes)
    out = []
    for number in ids:
        if number == tokenizer.escape_id:
            byte = next(rest, None)
            if byte is None:
                raise KeyError("an escape id without a byte")
            out.append(bytes([byte]))
        elif number < len(tokenizer.token_bytes):
            out.append(tokenizer.token_bytes[number])
        else:
            raise KeyError(number)
    if next(rest, None) is not None:
        raise KeyError("escape bytes left over")
    return b"".join(out)
