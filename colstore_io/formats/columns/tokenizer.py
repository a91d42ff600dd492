"""Tokenizers: their identity, what their ids mean, and where a reader finds them (columns.md 13).

A file names its tokenizers by digest and does not contain them. Whoever reads it registers the same ``tokenizer.json``
first; any other bytes, reformatted ones too, are another tokenizer.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...arguments import check_path
from ...errors import FormatError, UnsupportedFeatureError
from ...kernels.tokens import BpeModel, TokenTable
from .tokenizer_json import TokenizerModel, parse_tokenizer

__all__ = [
    "BYTE_CHARACTERS",
    "Tokenizer",
    "TokenizerRegistry",
    "default_registry",
    "register_tokenizer",
]


def _byte_characters() -> str:
    """Return the byte-level alphabet: the character of each byte (columns.md 13.3)."""
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x144))
    return "".join(chr(byte if byte in printed else next(others)) for byte in range(256))


BYTE_CHARACTERS = _byte_characters()
"""Character of each byte in the texts of tokens."""

_BYTE_OF = {ord(char): byte for byte, char in enumerate(BYTE_CHARACTERS)}
# The defining library's inverse covers U+0144..U+01FF too, though no byte has these characters.
_INVERSE = {code: chr(_BYTE_OF.get(code, 0xAD)) for code in (*_BYTE_OF, *range(0x144, 0x200))}


def _token_bytes(token: str) -> bytes:
    """Return what a token stands for: the bytes of its byte-level characters, the UTF-8 of any other."""
    if all(ord(char) in _INVERSE for char in token):
        return token.translate(_INVERSE).encode("latin-1")
    return b"".join(
        _INVERSE[ord(char)].encode("latin-1") if ord(char) in _INVERSE else char.encode() for char in token
    )


def _is_byte_level(token: str) -> bool:
    return all(ord(char) in _BYTE_OF for char in token)


def _concatenated(parts: Iterable[bytes]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return offsets, shape (n + 1,), and the bytes of all parts back to back."""
    kept = list(parts)
    offsets = np.zeros(len(kept) + 1, np.int64)
    np.cumsum([len(part) for part in kept], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(kept), np.uint8)


class Tokenizer:
    """One ``tokenizer.json``, immutable; use `from_bytes` or `from_file`.

    Pickles as the bytes of its document. Two tokenizers are equal when their digests are.

    Attributes
    ----------
    data : bytes
        The exact document.
    digest : bytes
        Its SHA-256, 32 bytes: the identity in files.
    model : TokenizerModel
        What was read from it.
    strict : bool
        Whether it passed the strict checks.
    """

    def __init__(self, data: bytes, model: TokenizerModel, *, strict: bool) -> None:
        self.data = data
        self.digest = hashlib.sha256(data).digest()
        self.model = model
        self.strict = strict

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, *, strict: bool = True) -> Tokenizer:
        """Read a tokenizer from its document (columns.md 13.2).

        Parameters
        ----------
        data : bytes-like
            The exact contents of a ``tokenizer.json``.
        strict : bool, optional
            With False, load also models that the defining library loads though it cannot decode or encode faithfully
            with them: gaps in the ids, special tokens outside the vocabulary, merges without a token for their
            result. Good for reading what it wrote.

        Raises
        ------
        FormatError
            If it is not JSON or no tokenizer.
        UnsupportedFeatureError
            If it is of a kind that the format does not allow.
        """
        exact = bytes(data)
        return cls(exact, parse_tokenizer(exact, strict=strict), strict=strict)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], digest: bytes | str | None = None, *, strict: bool = True
    ) -> Tokenizer:
        """Read a tokenizer from a local file.

        Parameters
        ----------
        path : path-like
        digest : bytes or str, optional
            The SHA-256 that the file must have: 32 bytes, or 64 hexadecimal digits.
        strict : bool, optional
            As in `from_bytes`.

        Raises
        ------
        FormatError
            If the file has another digest, or `from_bytes` refuses it.
        ValueError
            If `digest` is no SHA-256.
        """
        data = Path(path).read_bytes()
        spelled = os.fspath(path)
        if digest is not None:
            wanted = _digest(digest)
            found = hashlib.sha256(data).digest()
            if found != wanted:
                raise FormatError(
                    f"the tokenizer has the digest {found.hex()}, expected {wanted.hex()}; the bytes of the file "
                    f"must be exactly those that were written with",
                    path=spelled,
                )
        try:
            return cls.from_bytes(data, strict=strict)
        except FormatError as exc:
            raise type(exc)(exc.message, path=spelled) from None

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens."""
        return len(self.model.tokens)

    @property
    def escape_id(self) -> int:
        """The id that takes the next byte of the escapes: the largest id plus one."""
        return self.model.ids[-1] + 1

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        """What each id stands for: that of id i is the i-th token by ascending id (columns.md 13.2, 13.3)."""
        return tuple(_token_bytes(token) for token in self.model.tokens)

    @cached_property
    def table(self) -> TokenTable:
        """The table that decodes, built when it is first used."""
        offsets, data = _concatenated(self.token_bytes)
        return TokenTable(offsets, data, self.escape_id)

    @cached_property
    def encoder(self) -> BpeModel:
        """The tables that encode, built when they are first used.

        Left out is what would not decode to the bytes that it was made from: special tokens with characters of the
        byte-level alphabet beyond ASCII, and in models that are not strict, merges without a result and specials
        outside the vocabulary. The defining library corrupts values there. All else decodes to its own bytes by
        construction: pieces and merges are concatenations in the byte-level alphabet.

        Raises
        ------
        UnsupportedFeatureError
            If the vocabulary has gaps: ids could not be decoded.
        """
        model = self.model
        if model.has_gaps:
            raise UnsupportedFeatureError(
                f"tokenizer {self.digest.hex()} has gaps in its ids: it can decode, but not encode"
            )
        id_of = {token: number for number, token in enumerate(model.tokens)}
        byte_ids = np.array([id_of.get(char, -1) for char in BYTE_CHARACTERS], np.int32)
        pieces = {
            self.token_bytes[number]: number
            for token, number in id_of.items()
            if token and _is_byte_level(token)
        }
        merges = np.array(
            [
                (id_of[left], id_of[right], rank & 0xFFFF, id_of[left + right])
                for rank, (left, right) in enumerate(model.merges)
                if left + right in id_of
            ],
            np.uint16,
        ).reshape(-1, 4)
        specials = {}
        for special in model.specials:
            content = special.content.encode()
            if special.id < len(model.tokens) and self.token_bytes[special.id] == content:
                specials[content] = special.id
        ordered = sorted(specials)
        parents: list[int] = []
        chain: list[int] = []  # the specials that are prefixes of the last one
        for number, content in enumerate(ordered):
            while chain and not content.startswith(ordered[chain[-1]]):
                chain.pop()
            parents.append(chain[-1] if chain else -1)
            chain.append(number)
        return BpeModel(
            self.table,
            byte_ids,
            *_concatenated(pieces),
            np.array(list(pieces.values()), np.uint16),
            merges,
            *_concatenated(ordered),
            np.array([specials[content] for content in ordered], np.uint16),
            np.array(parents, np.int32),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Tokenizer {self.digest.hex()[:12]}: {self.vocabulary_size} tokens>"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.data, self.strict))

    def __dask_tokenize__(self) -> tuple[str, str]:
        return ("colstore_io.Tokenizer", self.digest.hex())


def _rebuild(data: bytes, strict: bool) -> Tokenizer:
    return Tokenizer.from_bytes(data, strict=strict)


def _digest(digest: bytes | str) -> bytes:
    if not isinstance(digest, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"a digest is 32 bytes or their hexadecimal form, got {digest!r}")
    try:
        raw = bytes.fromhex(digest) if isinstance(digest, str) else bytes(digest)
    except ValueError:
        raise ValueError(f"a digest in text form has 64 hexadecimal digits, got {digest!r}") from None
    if len(raw) != 32:
        raise ValueError(f"a digest has 32 bytes, got {len(raw)}")
    return raw


class TokenizerRegistry:
    """Tokenizers by digest (columns.md 13.1). Safe in threads.

    Pickles with the tokenizers in it, so that another process finds them as well.
    """

    def __init__(self, tokenizers: Iterable[Tokenizer] = ()) -> None:
        self._lock = threading.Lock()  # guards _known; no other lock is taken under it
        self._known: dict[bytes, Tokenizer] = {}
        if not isinstance(tokenizers, Iterable):
            raise TypeError(f"tokenizers must be a list of Tokenizer objects, got {tokenizers!r}")
        for tokenizer in tokenizers:
            self.register(tokenizer)

    def register(self, tokenizer: Tokenizer) -> Tokenizer:
        """Add `tokenizer` and return it. The same object again is fine.

        Raises
        ------
        ValueError
            If another object with the same digest is registered.
        """
        if not isinstance(tokenizer, Tokenizer):
            raise TypeError(f"a registry holds Tokenizer objects, got {type(tokenizer).__name__}")
        with self._lock:
            known = self._known.setdefault(tokenizer.digest, tokenizer)
        if known is not tokenizer:
            raise ValueError(
                f"tokenizer {tokenizer.digest.hex()} is registered already, as another object; "
                f"use the one that registry.get(digest) returns"
            )
        return tokenizer

    def get(self, digest: bytes | str) -> Tokenizer:
        """Return the tokenizer of a digest (32 bytes or 64 hexadecimal digits).

        Raises
        ------
        UnsupportedFeatureError
            If it is not registered; the message has the digest in hexadecimal digits (columns.md 12.1).
        ValueError
            If `digest` is no SHA-256.
        """
        raw = _digest(digest)
        found = self._known.get(raw)
        if found is None:
            raise UnsupportedFeatureError(
                f"tokenizer {raw.hex()} is not registered; register the tokenizer.json with this SHA-256 first: "
                f"register_tokenizer('tokenizer.json')"
            )
        return found

    def __contains__(self, digest: object) -> bool:
        return digest in self._known

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"<TokenizerRegistry: {len(self)} tokenizers>"

    def __getstate__(self) -> list[Tokenizer]:
        with self._lock:
            return list(self._known.values())

    def __setstate__(self, tokenizers: list[Tokenizer]) -> None:
        self._lock = threading.Lock()
        self._known = {tokenizer.digest: tokenizer for tokenizer in tokenizers}


default_registry = TokenizerRegistry()
"""Where readers look that are given no registry. Of this process; another one registers its own."""


def register_tokenizer(
    source: Tokenizer | str | os.PathLike[str] | bytes,
    *,
    digest: bytes | str | None = None,
    registry: TokenizerRegistry | None = None,
    strict: bool = True,
) -> Tokenizer:
    """Make a tokenizer known to readers.

    Parameters
    ----------
    source : Tokenizer, path-like or bytes
        A tokenizer, the path of a ``tokenizer.json``, or its contents. A document that is registered already is
        not read again: its tokenizer is returned.
    digest : bytes or str, optional
        The SHA-256 that it must have.
    registry : TokenizerRegistry, optional
        `default_registry` when omitted.
    strict : bool, optional
        As in `Tokenizer.from_bytes`.

    Returns
    -------
    Tokenizer
        The one in the registry.

    Raises
    ------
    FormatError
        If the document is not a usable tokenizer, or has another digest.
    ValueError
        If `source` is a tokenizer object and another one has its digest.
    """
    target = default_registry if registry is None else registry
    if not isinstance(target, TokenizerRegistry):
        raise TypeError(f"registry must be a TokenizerRegistry, got {type(target).__name__}")
    if isinstance(source, Tokenizer):
        _check_digest(source.digest, digest)
        return target.register(source)
    data = source if isinstance(source, bytes) else Path(check_path("source", source)).read_bytes()
    found = hashlib.sha256(data).digest()
    _check_digest(found, digest)
    if found in target:
        return target.get(found)
    made = Tokenizer.from_bytes(data, strict=strict)
    try:
        return target.register(made)
    except ValueError:  # another thread was faster
        return target.get(found)


def _check_digest(found: bytes, expected: bytes | str | None) -> None:
    if expected is not None and _digest(expected) != found:
        raise FormatError(
            f"the tokenizer has the digest {found.hex()}, expected {_digest(expected).hex()}; the bytes must be "
            f"exactly those that were written with"
        )
