"""JSON documents to messages (colbin.md 16)."""

from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colstore_io.formats.colbin.infer import InferenceWarning, from_json, infer
from colstore_io.formats.colbin.walk import to_json


def test_golden_documents(shared):
    cases = json.loads((shared / "vectors/colbin/infer.json").read_text())["cases"]
    assert len(cases) == 42
    for case in cases:
        if case.get("must") == "refuse":
            with pytest.raises(ValueError):
                infer(case["document"])
            continue
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            section, message = infer(case["document"])
            assert section.to_bytes().hex() == case["section"], case
            assert message.hex() == case["message"], case
            assert len(seen) == case["warnings"]
            assert to_json(section, message) == case["json_back"]
            assert to_json(None, from_json(case["document"].encode())) == case["json_back"]
            value = json.loads(case["document"])
            assert isinstance(value, str) or infer(value) == (section, message)


def quietly(document):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)
        return from_json(document)


NAMES = st.text(max_size=4)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
STRINGS = st.text(max_size=8)
SHAPES = st.recursive(
    st.sampled_from([INTEGERS, st.integers(2**63, 2**64 - 1), FLOATS, STRINGS, st.booleans()])
    | st.sampled_from([st.lists(INTEGERS, max_size=12), st.lists(STRINGS, max_size=12)]),
    lambda inner: (
        st.dictionaries(NAMES, inner, min_size=1, max_size=5).map(st.fixed_dictionaries)
        | st.dictionaries(NAMES, inner, min_size=1, max_size=5).map(
            lambda fields: st.lists(st.fixed_dictionaries({}, optional=fields), max_size=12)
        )
    ),
    max_leaves=12,
)


def same(document, back):
    """Whether `back` is what a reader may see of `document`: see the list in `from_json`."""
    if isinstance(document, dict):
        return (
            isinstance(back, dict)
            and set(document) <= set(back)
            and all(same(document.get(name), item) for name, item in back.items())
        )
    if isinstance(document, list):
        if not document:
            return back in (None, [])
        return len(document) == len(back) and all(map(same, document, back))
    if document is None:
        return back in (None, [], "") or isinstance(back, dict)
    if isinstance(document, float) or isinstance(back, float):
        return float(document) == float(back)
    return document == back and isinstance(document, bool) == isinstance(back, bool)


@given(SHAPES.flatmap(lambda shape: shape))
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_documents_come_back(document):
    text = json.dumps(document)
    try:
        message = quietly(text)
    except ValueError as exc:
        assert "without fields" in str(exc) or "nothing to infer" in str(exc)  # noqa: PT017
        return
    assert same(document, json.loads(to_json(None, message)))


@given(st.recursive(st.none() | INTEGERS | FLOATS | STRINGS | st.booleans(),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4)))  # fmt: skip
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_any_document_is_taken_or_refused(document):
    try:
        message = quietly(json.dumps(document))
    except ValueError:
        return
    assert same(document, json.loads(to_json(None, message)))


@given(st.text(max_size=30) | st.binary(max_size=30))
def test_what_is_no_json_is_a_value_error(text):
    try:
        quietly(text)
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('{"a":NaN}', "JSON has no NaN"),
        ('{"a":[1,null]}', r"a: null in a list of numbers"),
        ('{"rows":[{"v":1},{"v":{"x":2}}]}', r"rows\[1\]\.v: object here, number elsewhere"),
        ("[" * 65 + "]" * 65, "no list of arrays|levels"),
        ("[" * 100_000, "levels"),
        ('{"a":' * 65 + "1" + "}" * 65, "64 levels"),
        (b"\xff", "not UTF-8"),
        ("{" + ",".join(f'"k{n}":1' for n in range(257)) + "}", "at most 256"),
        ('{"a":1e400}', "out of range"),
        ('{"a":' + "9" * 5000 + "}", "limit|64 bits"),
    ],
)
def test_documents_that_the_wire_cannot_carry(document, message):
    with pytest.raises(ValueError, match=message):
        quietly(document)


def test_64_levels_are_taken():
    document = '{"a":' * 64 + "1" + "}" * 64
    assert to_json(None, from_json(document)) == document


def test_lone_surrogates_become_replacement_characters_and_are_named():
    for document, back, place in (
        ('{"a":"\\ud800"}', '{"a":"\ufffd"}', "^a: the string has a lone surrogate"),
        ('[{"b":["x","\\udc00"]}]', '[{"b":["x","\ufffd"]}]', r"^rows\[0\]\.b\[1\]: the string"),
        ('{"o":{"a\\ud800":1}}', '{"o":{"a\ufffd":1}}', "^o.a\ufffd: the key has"),
        (
            '{"a\\ud800":"x\\udc00","b":"\\ud83d\\ude00"}',
            '{"a\ufffd":"x\ufffd","b":"😀"}',
            "^a\ufffd: the key .*, as in 1 more",
        ),
    ):
        with pytest.warns(InferenceWarning, match=place) as seen:
            message = from_json(document)
        assert len(seen) == 1
        assert seen[0].filename == __file__
        assert to_json(None, message) == back
    assert to_json(None, from_json('{"b":"\\ud83d\\ude00"}')) == '{"b":"😀"}'


@pytest.mark.parametrize(
    ("document", "place"),
    [({"a": ["x", "\ud800"]}, r"^a\[1\]: the string"), ({"a": {"\udc00": 1}}, "^a.*: the key")],
)
def test_lone_surrogates_of_parsed_documents_are_refused(document, place):
    with pytest.raises(ValueError, match=f"{place} has a lone surrogate"):
        infer(document)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('{"a":null}', "a: only nulls were seen"),
        ('{"a":[]}', "a: no element was seen"),
        ('[{"o":{"x":1}},{}]', r"rows\.o: some records are null or missing"),
        ('[{"a":18446744073709551615},{"a":0.5}]', "lose digits"),
    ],
)
def test_losses_are_warned_of(document, message):
    with pytest.warns(InferenceWarning, match=message):
        from_json(document)


def test_the_callers_values_are_not_changed():
    document = {"a": [None, None]}
    with pytest.warns(InferenceWarning):
        section, message = infer(document)
    assert document == {"a": [None, None]}
    assert to_json(section, message) == '{"a":["",""]}'


def test_packed_strings_come_back():
    text = '{"title":"the quick brown fox jumps over the lazy dog"}'
    section, message = infer(text, packed5=True)
    assert len(message) < len(infer(text)[1])
    assert to_json(section, message) == text
    assert from_json(text, packed5=True) == from_json(text)  # behind a section four-bit keys are never packed
