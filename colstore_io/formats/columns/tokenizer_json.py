"""What a ``tokenizer.json`` says, as far as the columns format reads it (columns.md 13.2).

The document may come from anywhere, so it is checked like a file: whatever is wrong with it is a `FormatError`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

from ...errors import FormatError, UnsupportedFeatureError

__all__ = ["LARGEST_ID", "Special", "TokenizerModel", "parse_tokenizer"]

LARGEST_ID = 65533
"""Largest id of a vocabulary: the one above it is the escape id, and 65535 is reserved."""

_STAGES = ("Punctuation", "ByteLevel", "Digits", "Split")


@dataclass(frozen=True, slots=True)
class Special:
    """An added token that is special: found in the text before anything else."""

    id: int
    content: str


@dataclass(frozen=True, slots=True)
class TokenizerModel:
    """What counts of a ``tokenizer.json``.

    Attributes
    ----------
    tokens : tuple of str
        The vocabulary, by ascending id.
    ids : tuple of int
        Ids of `tokens`, each once; ``range(len(tokens))`` unless there are gaps.
    merges : tuple of (str, str)
        In the order of the document.
    specials : tuple of Special
        In the order of the document.
    """

    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    merges: tuple[tuple[str, str], ...]
    specials: tuple[Special, ...]

    @property
    def has_gaps(self) -> bool:
        """Whether some token's id is not its position."""
        return self.ids[-1] != len(self.ids) - 1


class _Object(list[tuple[str, Any]]):
    """A JSON object as its pairs, in order, repeated keys included."""

    def get(self, name: str) -> Any:
        """Return the value of the last key that is `name` but for case, None without one.

        Objects under repeated keys are joined: a decoder that fills a structure in place, as the defining
        library's does, sees the fields of all of them.
        """
        found: Any = None
        for key, value in self:
            if key.casefold() != name:
                continue
            if isinstance(found, _Object) and isinstance(value, _Object):
                found = _Object([*found, *value])
            else:
                found = value
        return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _integer(text: str) -> int | float:
    # Conversion of endless digits is quadratic, and no field that is read takes more than five.
    return int(text) if len(text) <= 20 else float("inf")


def _load(data: bytes) -> Any:
    # Bytes that are not UTF-8 become U+FFFD, one each, as in the defining library.
    text = _clean(data.decode("utf-8", "surrogateescape"))
    try:
        return json.loads(
            text, object_pairs_hook=_Object, parse_int=_integer, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise FormatError("the tokenizer is not usable: its JSON is nested too deeply") from None
    except ValueError as exc:
        raise FormatError(f"the tokenizer is not JSON: {exc}") from None


def _clean(text: str) -> str:
    """Return `text` with lone surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def parse_tokenizer(data: bytes, *, strict: bool = True) -> TokenizerModel:
    """Read a ``tokenizer.json``.

    Parameters
    ----------
    data : bytes
        The whole document.
    strict : bool, optional
        Refuse also what the defining library loads but cannot decode or encode faithfully: gaps in the ids, special
        tokens outside the vocabulary, merges without a token for their result.

    Returns
    -------
    TokenizerModel

    Raises
    ------
    FormatError
        If it is not JSON, or not a tokenizer.
    UnsupportedFeatureError
        If it is one of a kind that the format does not allow.
    """
    document = _load(data)
    if not isinstance(document, _Object):
        raise FormatError("the tokenizer is not a JSON object")
    model = document.get("model")
    if not isinstance(model, _Object):
        raise FormatError("the tokenizer has no model")
    kind = model.get("type")
    if kind != "BPE":
        raise UnsupportedFeatureError(f"the tokenizer's model is {_short(kind)}; the format allows BPE only")
    tokens, ids = _vocabulary(model.get("vocab"))
    known = frozenset(tokens)
    merges = _merges(model.get("merges"), known, strict=strict)
    _check_pre_tokenizer(document.get("pre_tokenizer"))
    parsed = TokenizerModel(
        tokens, ids, merges, _specials(document.get("added_tokens"), frozenset(ids), strict=strict)
    )
    if strict and parsed.has_gaps:
        missing = next(i for i, number in enumerate(ids) if i != number)
        raise UnsupportedFeatureError(
            f"the tokenizer's vocabulary has no token {missing}: with gaps in its ids, text cannot be decoded as it "
            f"was encoded. Load it with strict=False to read what another program wrote"
        )
    return parsed


def _short(value: object) -> str:
    text = "absent" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _vocabulary(vocab: Any) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if not isinstance(vocab, _Object) or not vocab:
        raise FormatError("the tokenizer's vocabulary is empty or no object")
    by_token: dict[str, int] = {}
    for token, number in vocab:  # a later duplicate counts
        if not _is_id(number) or not 0 <= number <= LARGEST_ID:
            raise FormatError(
                f"token {_short(token)} has the id {_short(number)}; ids are integers from 0 to {LARGEST_ID}"
            )
        by_token[_clean(token)] = number
    ordered = sorted(by_token.items(), key=lambda pair: pair[1])
    ids = tuple(number for _, number in ordered)
    for (token, number), (other, again) in pairwise(ordered):
        if number == again:
            raise FormatError(f"tokens {_short(token)} and {_short(other)} have the same id, {number}")
    return tuple(token for token, _ in ordered), ids


def _merges(merges: Any, known: frozenset[str], *, strict: bool) -> tuple[tuple[str, str], ...]:
    if merges is None:
        return ()
    if not isinstance(merges, list) or isinstance(merges, _Object):
        raise FormatError("the tokenizer's merges are no list")
    out = []
    for position, merge in enumerate(merges):
        if not isinstance(merge, str):
            raise UnsupportedFeatureError(
                f"merge {position} of the tokenizer is {_short(merge)}, not a string 'left right'; newer programs "
                f"save pairs, which the format does not allow (rewriting them makes another tokenizer)"
            )
        left, space, right = _clean(merge).rpartition(" ")
        if not space:
            raise FormatError(f"merge {position} of the tokenizer, {_short(merge)}, has no space")
        for part in (left, right):
            if part not in known:
                raise FormatError(
                    f"merge {position} of the tokenizer names {_short(part)}, which is no token"
                )
        if strict and left + right not in known:
            raise UnsupportedFeatureError(
                f"merge {position} of the tokenizer makes {_short(left + right)}, which is no token"
            )
        out.append((left, right))
    return tuple(out)


def _specials(added: Any, ids: frozenset[int], *, strict: bool) -> tuple[Special, ...]:
    if added is None:
        return ()
    if not isinstance(added, list) or isinstance(added, _Object):
        raise FormatError("the tokenizer's added tokens are no list")
    out = []
    for position, token in enumerate(added):
        if not isinstance(token, _Object):
            raise FormatError(f"added token {position} of the tokenizer is no object")
        number, content, special = (token.get(name) for name in ("id", "content", "special"))
        if special not in (None, True, False) or isinstance(special, (int, float)) != isinstance(
            special, bool
        ):
            raise FormatError(f"added token {position} of the tokenizer: special is {_short(special)}")
        if not special:
            continue
        if not _is_id(number) or not isinstance(content, str):
            raise FormatError(f"special token {position} of the tokenizer has no id or content")
        if number not in ids and strict:
            raise UnsupportedFeatureError(
                f"special token {_short(content)} has the id {number}, which is not in the vocabulary"
            )
        if content:
            out.append(Special(number & 0xFFFF, _clean(content)))
        elif strict:
            raise FormatError(f"special token {position} of the tokenizer is empty")
    return tuple(out)


def _check_pre_tokenizer(stage: Any) -> None:
    """Refuse what the format does not allow; the settings of what it allows are never obeyed."""
    kind = stage.get("type") if isinstance(stage, _Object) else None
    if kind == "ByteLevel":
        return
    if kind != "Sequence":
        raise UnsupportedFeatureError(
            f"the tokenizer's pre-tokenizer is {_short(kind)}; the format allows ByteLevel and Sequence"
        )
    assert isinstance(stage, _Object)
    stages = stage.get("pretokenizers")
    if not isinstance(stages, list) or isinstance(stages, _Object) or not stages:
        raise UnsupportedFeatureError("the tokenizer's pre-tokenizer is a Sequence without stages")
    for position, inner in enumerate(stages):
        kind = inner.get("type") if isinstance(inner, _Object) else None
        if kind not in _STAGES:
            raise UnsupportedFeatureError(
                f"stage {position} of the tokenizer's pre-tokenizer is {_short(kind)}; the format allows "
                f"{', '.join(_STAGES)}"
            )
