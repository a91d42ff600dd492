from __future__ import annotations

import hashlib
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_documents import BYTE_LEVEL, all_bytes, document, make

from colstore_io.errors import FormatError, UnsupportedFeatureError
from colstore_io.formats.columns.plain_tokens import decode_ids, encode_value
from colstore_io.formats.columns.tokenized import TokenStreams
from colstore_io.formats.columns.tokenizer import (
    BYTE_CHARACTERS,
    Tokenizer,
    TokenizerRegistry,
    register_tokenizer,
)


def tokenize(value: bytes, tokenizer: Tokenizer) -> tuple[list[int], bytes]:
    streams = TokenStreams.tokenize(
        np.array([0, len(value)]), np.frombuffer(value, np.uint8), tokenizer, verify=False
    )
    return streams.ids.tolist(), streams.escapes.tobytes()


def both(value: bytes, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a value without escapes; kernel and twin must agree."""
    ids, escapes = tokenize(value, tokenizer)
    assert (ids, escapes) == encode_value(value, tokenizer)
    assert decode_ids(ids, escapes, tokenizer) == value
    assert not escapes
    return ids


def test_vectors_are_tokenized_as_recorded(shared):
    root = shared / "vectors" / "columns"
    n = 0
    for model in json.loads((root / "manifest.json").read_text())["tokenizations"]:
        tokenizer = Tokenizer.from_file(root / model["tokenizer"], model["sha256"])
        assert (tokenizer.escape_id, tokenizer.vocabulary_size) == (model["escape_id"], model["vocabulary"])
        for case in model["cases"]:
            value = bytes.fromhex(case["input_hex"])
            expected = (case["ids"], bytes.fromhex(case["escapes_hex"]))
            assert tokenize(value, tokenizer) == expected
            assert encode_value(value, tokenizer) == expected
            assert decode_ids(*expected, tokenizer) == value
            n += 1
    assert n == 440


def test_documents_load_as_recorded_when_not_strict(shared):
    root = shared / "vectors" / "columns"
    cases = json.loads((root / "manifest.json").read_text())["tokenizer_loading"]
    assert len(cases) == 18
    for case in cases:
        if case["go_library"] == "loads":
            tokenizer = Tokenizer.from_file(root / case["file"], case["sha256"], strict=False)
            assert tokenizer.digest.hex() == case["sha256"]
        else:
            with pytest.raises(FormatError, match=case["file"]):
                Tokenizer.from_file(root / case["file"], strict=False)


def test_strict_loading_differs_only_where_text_would_not_come_back(shared):
    root = shared / "vectors" / "columns" / "tokenizers" / "odd"
    for path in root.iterdir():
        if path.name == "id_65533.json":
            with pytest.raises(UnsupportedFeatureError, match="has no token 3"):
                Tokenizer.from_file(path)
        else:
            Tokenizer.from_file(path)


REFUSED = {
    "empty": b"",
    "not JSON": b"{",
    "list": b"[]",
    "nan": b'{"model": NaN}',
    "trailing": document(["a"]) + b"x",
    "byte order mark": b"\xef\xbb\xbf" + document(["a"]),
    "no model": document(["a"], model=...),
    "model null": document(["a"], model=None),
    "model of type bpe": document(["a"], model={"type": "bpe", "vocab": {"a": 0}}),
    "no type": document(["a"], model={"vocab": {"a": 0}}),
    "vocab empty": document({}),
    "vocab list": document(["a"], model={"type": "BPE", "vocab": ["a"]}),
    "id negative": document({"a": -1}),
    "id float": document({"a": 0.0}),
    "id bool": document({"a": False}),
    "id string": document({"a": "0"}),
    "id null": document({"a": None}),
    "id huge": document(["a"]).replace(b'"a": 0', b'"a": ' + b"9" * 100_000),
    "id exponent": document(["a"]).replace(b'"a": 0', b'"a": 1e999'),
    "merge of pair": document(["a", "b", "ab"], [["a", "b"]]),
    "merge without space": document(["a", "b", "ab"], ["ab"]),
    "merge of unknown": document(["a", "b", "ab"], ["a c"]),
    "merges object": document(["a"], model={"type": "BPE", "vocab": {"a": 0}, "merges": {}}),
    "pre-tokenizer null": document(["a"], pre_tokenizer=None),
    "pre-tokenizer absent": document(["a"], pre_tokenizer=...),
    "pre-tokenizer string": document(["a"], pre_tokenizer="ByteLevel"),
    "pre-tokenizer other": document(["a"], pre_tokenizer={"type": "Whitespace"}),
    "sequence absent": document(["a"], pre_tokenizer={"type": "Sequence"}),
    "sequence nested": document(
        ["a"],
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [{"type": "Sequence", "pretokenizers": [BYTE_LEVEL]}],
        },
    ),
    "added tokens object": document(["a"], added_tokens={}),
    "added token string": document(["a"], added_tokens=["a"]),
    "special number": document(["a"], added_tokens=[{"id": 0, "content": "a", "special": 1}]),
    "special without content": document(["a"], added_tokens=[{"id": 0, "special": True}]),
    "deep": b"[" * 200_000 + b"]" * 200_000,
    "deep in an ignored key": b'{"x":' + b'{"y":' * 100_000 + b"1" + b"}" * 100_001,
    "two tokens of one id": document({"a": 0, "b": 0}),
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", REFUSED)
def test_unusable_document_is_refused(name, strict):
    with pytest.raises(FormatError):
        Tokenizer.from_bytes(REFUSED[name], strict=strict)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("has no token 1", document({"a": 0, "b": 2})),
        ("which is no token", document(["a", "b"], ["a b"])),
        ("not in the vocabulary", document(["a"], specials=[(1, "<s>")])),
        ("is empty", document(["a"], specials=[(0, "")])),
    ],
)
def test_model_that_loses_text_loads_only_when_not_strict(name, data):
    with pytest.raises(FormatError, match=name):
        Tokenizer.from_bytes(data)
    Tokenizer.from_bytes(data, strict=False)


def test_model_that_is_not_strict_still_encodes_without_loss():
    data = document(["a", "b", "<s>"], ["a b"], specials=[(3, "<s>"), (2, "b")])
    tokenizer = Tokenizer.from_bytes(data, strict=False)
    assert both(b"ab", tokenizer) == [0, 1]
    ids, escapes = tokenize(b"<s>a", tokenizer)
    assert decode_ids(ids, escapes, tokenizer) == b"<s>a"


def test_vocabulary_with_gaps_decodes_by_position_and_does_not_encode():
    tokenizer = Tokenizer.from_bytes(document({"c": 7, "a": 1, "b": 4}), strict=False)
    assert tokenizer.token_bytes == (b"a", b"b", b"c")
    assert tokenizer.escape_id == 8
    assert decode_ids([2, 8, 0], b"\xff", tokenizer) == b"c\xffa"
    with pytest.raises(UnsupportedFeatureError, match="gaps"):
        tokenizer.encoder  # noqa: B018


def test_keys_are_found_whatever_their_case():
    data = document(["a", "b", "ab"], ["a b"], specials=[(0, "a")])
    for name in (
        b"model",
        b"vocab",
        b"merges",
        b"added_tokens",
        b"content",
        b"special",
        b"pre_tokenizer",
        b"type",
    ):
        data = data.replace(b'"%s"' % name, b'"%s"' % name.title())
    assert both(b"ab", Tokenizer.from_bytes(data)) == [0, 1]
    assert Tokenizer.from_bytes(data).model.specials[0].content == "a"


def test_tokens_keep_their_case():
    assert make(["a", "A"]).token_bytes == (b"a", b"A")


def test_later_duplicate_of_a_key_counts():
    data = b'{"pre_tokenizer":{"type":"X"},"PRE_TOKENIZER":{"type":"ByteLevel"},'
    data += b'"model":{"type":"BPE","vocab":{"a":1,"b":1,"a":0}}}'
    assert Tokenizer.from_bytes(data).model.tokens == ("a", "b")


def test_merge_is_split_at_its_last_space():
    tokenizer = make(["a", "b", "a ", "a b"], ["a  b"])  # "a " and "b"
    assert tokenizer.model.merges == (("a ", "b"),)


def test_later_rank_of_a_repeated_merge_counts():
    tokens = ["a", "b", "c", "ab", "bc"]
    assert both(b"abcabc", make(tokens, ["a b", "b c"])) == [3, 2, 3, 2]
    assert both(b"abcabc", make(tokens, ["a b", "b c", "a b"])) == [0, 4, 0, 4]


def test_ranks_are_taken_modulo_65536():
    tokens = ["a", "b", "c", "ab", "bc", "ac"]
    filler = ["a c"] * 65_535
    # "b c" has position 65536, rank 0; "a b" has rank 1.
    assert both(b"abca", make(tokens, ["a c", "a b", *filler[:-1], "b c"])) == [0, 4, 0]
    # Both have rank 0: the leftmost pair wins.
    assert both(b"abca", make(tokens, ["a b", *filler, "b c"])) == [3, 2, 0]


def test_whitespace_before_punctuation_stays_together():
    tokenizer = all_bytes(["ĠĠ"], ["Ġ Ġ"])
    assert both(b"a  !", tokenizer) == [97, 256, 33]
    assert both(b"a  b", tokenizer) == [97, 32, 32, 98]
    assert both(b"a   b", tokenizer) == [97, 256, 32, 98]
    assert both(b"a  ", tokenizer) == [97, 256]


def test_characters_beyond_the_alphabet_decode_as_the_defining_library_does():
    tokenizer = make(["a", "\u0144", "\u01ff", "\u0200", "x\u20ac\u0100"])
    assert tokenizer.token_bytes == (b"a", b"\xad", b"\xad", "\u0200".encode(), b"x" + "€".encode() + b"\x00")


def test_special_that_does_not_decode_to_itself_is_not_used():
    tokenizer = make(["a", "é", "Ã", "©"], specials=[(1, "é")])  # id 1 stands for the byte e9
    assert tokenizer.token_bytes[1] == b"\xe9"
    assert both("aé".encode(), tokenizer) == [0, 2, 3]


def test_longest_special_wins_at_each_place():
    tokenizer = all_bytes(["<a", "<a><b", "<b"], specials=[(256, "<a"), (257, "<a><b"), (258, "<b")])
    assert both(b"<a><b<a>x<b", tokenizer) == [257, 256, 62, 120, 258]


def test_unicode_16_and_17_letters_are_letters():
    tokenizer = all_bytes([], [])
    letter = "\U00010d4a".encode()  # Garay, Unicode 16
    from colstore_io.kernels.tokens import UNICODE_VERSION, char_class

    assert UNICODE_VERSION == "17.0.0"
    assert char_class(0x10D4A) == 1
    assert char_class(0x1C) == 0
    assert char_class(0x3000) == 3
    assert char_class(0x110000) == -1
    assert both(b"a" + letter, tokenizer) == [97, *letter]


def test_long_pieces_are_merged_as_short_ones():
    tokens = [*BYTE_CHARACTERS, "aa", "aaaa", "ab", "ba", "aba"]
    tokenizer = make(tokens, ["b a", "a a", "a b", "aa aa", "a ba"])
    for n in (10, 63, 64, 65, 66, 200):
        both(b"a" * n, tokenizer)
        both((b"aab" * n)[:n], tokenizer)
        both((b"abba" * n)[:n], tokenizer)


def test_endless_piece_takes_no_quadratic_time():
    tokenizer = all_bytes(["aa", "aaaa"], ["a a", "aa aa"])
    ids, _ = tokenize(b"a" * 1_000_001, tokenizer)
    assert len(ids) == 250_001


@given(
    st.lists(
        st.sampled_from(
            [
                *(b"a", b"b", b" ", b"  ", b"\n", b"'s", b"!", b"12345", b"<s>", b"<s", b"\x1c", b"\xff"),
                *(b"\xc3", b"\xd7", b"\xe2\x80", b"\xe2\x80\x9c", b"\xf0\x9f", b"\xed\xa0\x80", b"\xe0\x80"),
                *(b"\xc3\xa9", b"\xc2\xb2", b"\xc2\x85"),
            ]
        )
    ).map(b"".join)
    | st.binary(max_size=60)
    | st.text(max_size=40).map(str.encode)
)
def test_kernel_and_twin_agree(value):
    tokens = [
        "<s>",
        "a",
        "b",
        "ab",
        "aba",
        "Ġ",
        "Ġa",
        "Ã",
        "©",
        "Ã©",
        "1",
        "2",
        "12",
        "123",
        "â",
        "Ģ",
        "âĢ",
        "!",
        "ÿÿ",
    ]
    merges = ["a b", "ab a", "Ġ a", "Ã ©", "1 2", "â Ģ"]
    tokenizer = make(tokens, merges, specials=[(0, "<s>")])
    ids, escapes = tokenize(value, tokenizer)
    assert (ids, escapes) == encode_value(value, tokenizer)
    assert decode_ids(ids, escapes, tokenizer) == value


@given(st.binary(max_size=200))
def test_any_bytes_as_a_document_are_read_or_refused(data):
    try:
        Tokenizer.from_bytes(data)
    except FormatError:
        pass


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["model", "added_tokens", "pre_tokenizer"]), json_values)
def test_any_json_in_a_field_is_read_or_refused(name, value):
    try:
        Tokenizer.from_bytes(document(["a"], **{name: value}), strict=False)
    except FormatError:
        pass


@given(st.sampled_from(["type", "vocab", "merges"]), json_values)
def test_any_json_in_the_model_is_read_or_refused(name, value):
    model = {"type": "BPE", "vocab": {"a": 0}, name: value}
    try:
        Tokenizer.from_bytes(document(["a"], model=model), strict=False)
    except FormatError:
        pass


def test_digest_is_of_the_exact_bytes(tmp_path):
    data = document(["a"])
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    digest = hashlib.sha256(data).digest()
    assert Tokenizer.from_file(path).digest == digest
    assert Tokenizer.from_file(path, digest) == Tokenizer.from_file(path, digest.hex())
    path.write_bytes(data + b"\n")
    assert Tokenizer.from_file(path).digest != digest
    with pytest.raises(FormatError, match=digest.hex()):
        Tokenizer.from_file(path, digest)
    with pytest.raises(ValueError, match="32 bytes"):
        Tokenizer.from_file(path, b"short")


def test_registry_holds_one_object_per_digest():
    data = document(["a"])
    first, second = Tokenizer.from_bytes(data), Tokenizer.from_bytes(data)
    registry = TokenizerRegistry()
    assert registry.register(first) is first
    assert registry.register(first) is first
    with pytest.raises(ValueError, match=first.digest.hex()):
        registry.register(second)
    assert registry.get(first.digest) is first
    assert registry.get(first.digest.hex()) is first
    assert first.digest in registry
    assert len(registry) == 1


def test_unknown_digest_is_named_in_hex():
    with pytest.raises(UnsupportedFeatureError, match="ab" * 32):
        TokenizerRegistry().get(b"\xab" * 32)


def test_register_takes_paths_contents_and_tokenizers(tmp_path):
    data = document(["a", "registered"])
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    registry = TokenizerRegistry()
    made = register_tokenizer(path, registry=registry)
    assert register_tokenizer(str(path), registry=registry) is made
    assert register_tokenizer(data, registry=registry, digest=made.digest) is made
    assert register_tokenizer(made, registry=registry) is made
    with pytest.raises(FormatError, match="expected"):
        register_tokenizer(data, registry=registry, digest="00" * 32)
    with pytest.raises(ValueError, match="another object"):
        register_tokenizer(Tokenizer.from_bytes(data), registry=registry)


def test_tokenizers_and_registries_travel_to_other_processes():
    tokenizer = all_bytes(["aa"], ["a a"])
    tokenizer.encoder  # noqa: B018
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again == tokenizer
    assert hash(again) == hash(tokenizer)
    assert both(b"aa", again) == [256]
    registry = pickle.loads(pickle.dumps(TokenizerRegistry([tokenizer])))
    assert registry.get(tokenizer.digest) == tokenizer
