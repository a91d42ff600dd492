"""Laws of the record codec: random types and values come back, random bytes never do harm."""

from __future__ import annotations

import random
from typing import Any

import pytest
from colbin_values import VectorTypes, has_dynamic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colstore_io.errors import FormatError
from colstore_io.formats.colbin.codec import decode, encode
from colstore_io.formats.colbin.encode import encode_value

LIMITS = {
    f"{sign}{bits}": (0, 2**bits - 1) if sign == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for sign in "iu"
    for bits in (8, 16, 32, 64)
}
SCALARS = (*LIMITS, "bool", "f32", "f64", "str")
VECTORS = ("i8", "i16", "i32", "i64", "u16", "u32", "u64")
SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


def expressions(depth: int, names: list[str]) -> st.SearchStrategy[Any]:
    options = [
        st.sampled_from((*SCALARS, "bytes", "strs", "any", "anys")),
        st.sampled_from(VECTORS).map(lambda of: {"vec": of}),
        st.sampled_from(SCALARS).map(lambda of: {"ptr": of}),
        st.tuples(st.sampled_from(("str", *LIMITS)), st.sampled_from((*SCALARS, "any"))).map(
            lambda of: {"map": list(of)}
        ),
    ]
    if depth and names:
        options.append(
            st.tuples(st.sampled_from(("struct", "structs", "ptrstruct")), st.sampled_from(names)).map(
                lambda of: {of[0]: of[1]}
            )
        )
    return st.one_of(options)


@st.composite
def type_tables(draw: Any) -> dict[str, Any]:
    """Record types T0..Tn; each refers to later ones only, so none contains itself."""
    count = draw(st.integers(1, 3))
    types: dict[str, Any] = {}
    for index in range(count):
        later = [f"T{n}" for n in range(index + 1, count)]
        size = draw(st.integers(1, 5))
        ids = draw(
            st.lists(
                st.one_of(st.none(), st.integers(1, draw(st.sampled_from((16, 256))))),
                min_size=size,
                max_size=size,
                unique_by=lambda i: i if i is not None else object(),
            )
        )
        types[f"T{index}"] = {
            "fields": [
                {"name": f"f{place}", "id": number, "t": draw(expressions(1, later))}
                for place, number in enumerate(ids)
            ]
        }
    return types


def dynamic_values() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
        | st.binary(),
        lambda inner: st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.integers(-5, 300), inner, max_size=4),
        max_leaves=8,
    )  # fmt: skip


def values(expression: Any, owner: VectorTypes) -> st.SearchStrategy[Any]:
    if isinstance(expression, str):
        if expression in LIMITS:
            low, high = LIMITS[expression]
            edges = [v for v in (0, 1, -1, 7, 8, 127, 128, 255, 256, -128, low, high) if low <= v <= high]
            return st.sampled_from(edges) | st.integers(low, high)
        return {
            "bool": st.booleans(),
            "f32": st.floats(width=32, allow_nan=False),
            "f64": st.floats(allow_nan=False),
            "str": st.text(max_size=12) | st.sampled_from(("", "el niño comió", "A" * 300)),
            "bytes": st.binary(max_size=12),
            "strs": st.lists(st.text(max_size=5), max_size=5),
            "any": dynamic_values(),
            "anys": st.lists(dynamic_values(), max_size=4),
        }[expression]
    ((kind, of),) = expression.items()
    if kind == "vec":
        return st.lists(values(of, owner), max_size=6)
    if kind == "ptr":
        return st.none() | values(of, owner)
    if kind == "map":
        return st.dictionaries(values(of[0], owner), values(of[1], owner), max_size=4)
    inner = records(of, owner)
    if kind == "struct":
        return inner
    return st.lists(inner, max_size=11) if kind == "structs" else st.none() | inner


def records(name: str, owner: VectorTypes) -> st.SearchStrategy[Any]:
    fields = owner.types[name]["fields"]
    return st.fixed_dictionaries(
        {owner.attributes[name][item["name"]]: values(item["t"], owner) for item in fields}
    ).map(lambda arguments: owner.cls(name)(**arguments))


@SETTINGS
@given(
    st.data(), type_tables(), st.sampled_from(("slots", "namedtuple", "msgspec", "attrs-dict")), st.booleans()
)
def test_values_of_random_types_come_back(data, types, kind, packed5):
    owner = VectorTypes(types, kind)
    codec = owner.codec({"struct": "T0"})
    value = data.draw(records("T0", owner))
    message = codec.encode(value, packed5=packed5)
    assert codec.decode(message) == value
    assert codec.decode(codec.encode_self_describing(value, packed5=packed5)) == value
    assert encode_value(codec._definitions, value, packed5=packed5) == message
    buffer = bytearray(3)
    assert buffer[: codec.encode_into(buffer, value, packed5=packed5)] == message
    assert len(message) <= len(buffer)
    shown = decode(codec.schema, message)
    if not has_dynamic(types, {"struct": "T0"}):
        assert encode(codec.schema, shown, packed5=packed5) == message
    assert repr(decode(None, codec.encode_self_describing(value, packed5=packed5))) == repr(shown)


@SETTINGS
@given(st.data(), type_tables(), st.randoms(use_true_random=False))
def test_damaged_messages_are_refused_or_read_but_do_no_harm(data, types, chance):
    owner = VectorTypes(types)
    codec = owner.codec({"struct": "T0"})
    message = codec.encode(data.draw(records("T0", owner)))
    for _ in range(20):
        damaged, offsets = bytearray(message), [0]
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(damaged) + 1)
            action = chance.randrange(3)
            if action == 0 and place < len(damaged):
                damaged[place] = chance.choice(
                    (0, 1, 0x7F, 0x80, 0xFF, 0xF7, 0xE8, 0xC0, chance.randrange(256))
                )
            elif action == 1:
                damaged.insert(place, chance.randrange(256))
            else:
                del damaged[place:]
        for read in (codec.decode, lambda m: decode(codec.schema, m, max_cells=1 << 16)):
            try:
                read(bytes(damaged), **({"max_cells": 1 << 16} if read == codec.decode else {}))
            except FormatError as error:
                offsets.append(error.offset or 0)
        assert 0 <= min(offsets) <= max(offsets) <= len(damaged)


@pytest.mark.parametrize("table", [False, True])
def test_random_bytes_do_no_harm(table):
    types = {
        "T0": {
            "fields": [
                {"name": f"f{n}", "id": n + 1, "t": t}
                for n, t in enumerate(
                    (
                        "i8",
                        "u64",
                        "f32",
                        "str",
                        "bytes",
                        {"vec": "i16"},
                        "strs",
                        {"structs": "T1"},
                        {"struct": "T1"},
                        {"map": ["str", "u8"]},
                        {"ptr": "str"},
                        "bool",
                    )
                )
            ]
        },
        "T1": {
            "fields": [
                {"name": "a", "id": 17 if table else 1, "t": "i32"},
                {"name": "b", "id": 2, "t": "str"},
            ]
        },
        "T2": {"fields": [{"name": "a", "id": None, "t": "any"}, {"name": "b", "id": 2, "t": "anys"}]},
    }
    chance = random.Random(20261130)
    owner = VectorTypes(types)
    codecs = [owner.codec({"struct": "T0"}), owner.codec({"struct": "T2"})]
    read = 0
    for _ in range(20000):
        size = chance.randrange(1, 40)
        data = bytes((chance.choice((0xD0, 0xD8)),)) + chance.randbytes(size)
        for codec in codecs:
            try:
                codec.decode(data, max_cells=1 << 12)
                read += 1
            except FormatError:
                pass
    assert read


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_an_optional_negative_zero_is_written_alike_by_both_encoders(kind):
    for field in ({"name": "x", "id": 1, "t": {"ptr": kind}}, {"name": "x", "id": None, "t": {"ptr": kind}}):
        owner = VectorTypes({"T0": {"fields": [field]}}, "slots")
        codec = owner.codec({"struct": "T0"})
        value = owner.cls("T0")(-0.0)
        message = codec.encode(value)
        assert encode_value(codec._definitions, value) == message
        # Under four-bit keys the sign is lost (5.8); under eight-bit keys nothing says so, and it stays.
        (found,) = (getattr(codec.decode(message), name) for name in owner.attributes["T0"].values())
        assert str(found) == ("-0.0" if message[0] == 0xD8 else "0.0")
