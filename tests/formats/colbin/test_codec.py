"""Codecs of Python types: what they accept, what they refuse and how they say it."""

from __future__ import annotations

import dataclasses
import gc
import pickle
import struct
import sys
import threading
import weakref
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import attrs
import msgspec
import numpy as np
import pytest

from colstore_io.errors import FormatError
from colstore_io.formats.colbin.annotations import record
from colstore_io.formats.colbin.codec import Codec, decode, encode
from colstore_io.formats.colbin.encode import encode_value
from colstore_io.formats.colbin.markers import f32, field, i8, i32, i64, u8, u32, u64
from colstore_io.formats.colbin.schema import FieldDef, FieldType, Section, StructDef, TypeCode


@record
class Line:
    sku: Annotated[str, 1] = ""
    quantity: Annotated[i32, 2] = 0
    price: Annotated[float, 3] = 0.0


@record
class Order:
    number: Annotated[u32, 1] = 0
    customer: Annotated[Line, 2] = dataclasses.field(default_factory=Line)
    lines: Annotated[list[Line], 3] = dataclasses.field(default_factory=list)
    note: Annotated[str, 4] = ""
    codes: Annotated[list[i8], 5] = dataclasses.field(default_factory=list)
    names: Annotated[list[str], 6] = dataclasses.field(default_factory=list)
    counts: Annotated[dict[str, u8], 7] = dataclasses.field(default_factory=dict)
    ratio: Annotated[f32, 8] = 0.0
    maybe: Annotated[i64 | None, 9] = None
    raw: Annotated[bytes, 10] = b""
    big: Annotated[u64, 11] = 0


@record
class Holder:
    label: Annotated[str, 1]
    anything: Annotated[Any, 2] = None
    many: Annotated[list[Any], 3] = dataclasses.field(default_factory=list)


ORDER = Codec(Order)


@dataclasses.dataclass
class Plain:
    """Without slots."""

    a: Annotated[i32, 1]
    b: Annotated[str, 2]


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Annotated[i32, 1]
    b: Annotated[str, 2]


@attrs.frozen
class Attrs:
    a: Annotated[i32, 1]
    b: Annotated[str, 2]


class Struct(msgspec.Struct, frozen=True):
    a: Annotated[i32, 1]
    b: Annotated[str, 2]


class Tuple(NamedTuple):
    a: Annotated[i32, 1]
    b: Annotated[str, 2]


class Dict(TypedDict):
    a: Annotated[i32, 1]
    b: Annotated[str, 2]


@pytest.mark.parametrize("cls", [Plain, Frozen, Attrs, Struct, Tuple, Dict], ids=lambda cls: cls.__name__)
def test_every_kind_of_class_gives_the_same_bytes_and_comes_back(cls):
    value = cls(a=-5, b="ñ")
    codec = Codec(cls)
    data = codec.encode(value)
    assert data == bytes.fromhex("d001051002c3b1")
    again = codec.decode(data)
    assert again == value
    assert type(again) is type(value)
    assert decode(codec.schema, data) == {"a": -5, "b": "ñ"}


def test_subclasses_of_a_record_are_encoded_as_the_record():
    class Special(Line):
        __slots__ = ()

    assert Codec(Line).encode(Special("x", 1, 2.0)) == Codec(Line).encode(Line("x", 1, 2.0))


def test_post_init_runs_on_decoded_objects_and_unsent_fields_get_their_defaults():
    @dataclasses.dataclass
    class Derived:
        a: Annotated[i32, 1]
        cache: Annotated[list[i32], field(drop=True)] = dataclasses.field(default_factory=list)
        double: Annotated[int, field(drop=True)] = 0

        def __post_init__(self):
            self.double = 2 * self.a

    codec = Codec(Derived)
    one, other = codec.decode(codec.encode(Derived(4))), codec.decode(codec.encode(Derived(4)))
    assert one == Derived(4)
    assert one.double == 8
    one.cache.append(1)
    assert other.cache == []


def test_keys_that_are_not_required_stay_out():
    class Sparse(TypedDict):
        a: Annotated[i32, 1]
        b: NotRequired[Annotated[str, 2]]

    codec = Codec(Sparse)
    assert codec.decode(codec.encode({"a": 1})) == {"a": 1}
    assert codec.decode(codec.encode({"a": 1, "b": ""})) == {"a": 1, "b": ""}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"number": -1}, OverflowError, "number: -1 is outside the range of u32"),
        ({"number": 2**32}, OverflowError, "number: 4294967296 is outside the range of u32"),
        ({"number": "7"}, TypeError, "number: expected int, got str"),
        ({"number": 1.0}, TypeError, "number: expected int, got float"),
        ({"big": 2**64}, OverflowError, "big: 18446744073709551616 is outside the range of u64"),
        ({"big": -1}, OverflowError, "big: -1 is outside"),
        ({"customer": None}, TypeError, "customer: expected Line, got NoneType"),
        ({"customer": Line(sku=3)}, TypeError, "customer.sku: expected str, got int"),
        (
            {"lines": [Line()] * 3 + [Line(price="x")]},
            TypeError,
            r"lines\[3\].price: expected float, got str",
        ),
        ({"lines": [Line()] * 9 + [Line(quantity=2**31)]}, OverflowError, r"lines\[9\].quantity: 2147483648"),
        ({"lines": [Line()] * 9 + [7]}, TypeError, r"lines\[9\]: expected Line, got int"),
        ({"lines": {"a": 1}}, TypeError, "lines: expected a list of records, got dict"),
        ({"codes": [1, 2, 128]}, OverflowError, r"codes\[2\]: 128 is outside the range of i8"),
        ({"names": ["a", None]}, TypeError, r"names\[1\]: expected str, got NoneType"),
        ({"names": "abc"}, TypeError, "names: expected a list of str, got str"),
        ({"counts": {"a": 256}}, OverflowError, r"counts\['a'\]: 256 is outside the range of u8"),
        ({"counts": {1: 1}}, TypeError, "counts: expected str, got int"),
        ({"counts": 5}, TypeError, "counts: expected a mapping, got int"),
        ({"ratio": 1e39}, OverflowError, "ratio: 1e.39 is outside the range of f32"),
        ({"note": "\ud800"}, ValueError, "note: the string has a lone surrogate"),
        ({"raw": "text"}, TypeError, "raw: expected bytes, got str"),
        ({"maybe": "x"}, TypeError, "maybe: expected int, got str"),
    ],
)
def test_values_that_do_not_fit_are_named_by_their_path(change, error, text):
    order = dataclasses.replace(Order(note="as it was"), **change)
    with pytest.raises(error, match=f"^{text}"):
        ORDER.encode(order)
    buffer = bytearray(b"untouched")
    with pytest.raises(error):
        ORDER.encode_into(buffer, order)
    assert buffer == b"untouched"


def test_fields_that_are_not_set_are_named():
    line = Line.__new__(Line)
    with pytest.raises(ValueError, match="sku: the field is not set"):
        Codec(Line).encode(line)


def test_encode_into_grows_a_buffer_and_never_shrinks_it():
    buffer = bytearray()
    size = ORDER.encode_into(buffer, Order(note="a" * 3000))
    assert bytes(buffer) == ORDER.encode(Order(note="a" * 3000))
    assert size == len(buffer)
    short = ORDER.encode(Order(number=7))
    assert ORDER.encode_into(buffer, Order(number=7), offset=2) == len(short)
    assert buffer[2 : 2 + len(short)] == short
    assert len(buffer) == size
    with pytest.raises(ValueError, match="offset"):
        ORDER.encode_into(buffer, Order(), offset=size + 1)
    with memoryview(bytearray(b"abc")) as locked, pytest.raises(BufferError):
        ORDER.encode_into(locked.obj, Order(note="a longer one"))


def test_numpy_scalars_are_numbers():
    line = Line("x", np.int64(3), np.float32(0.5))
    assert Codec(Line).decode(Codec(Line).encode(line)) == Line("x", 3, 0.5)

    @record
    class Flag:
        on: Annotated[bool, 1]

    assert Codec(Flag).encode(Flag(np.True_)) == Codec(Flag).encode(Flag(True))
    with pytest.raises(TypeError, match="on: expected bool, got int"):
        Codec(Flag).encode(Flag(1))


def test_sequences_and_mappings_of_other_kinds_are_taken():
    import collections

    order = Order(codes=(1, 2), names=collections.deque(["a"]), raw=memoryview(b"xy"))
    order.counts = collections.OrderedDict(b=1, a=2)
    plain = Order(codes=[1, 2], names=["a"], raw=b"xy", counts={"a": 2, "b": 1})
    assert ORDER.encode(order) == ORDER.encode(plain)
    assert ORDER.decode(ORDER.encode(order)) == plain
    vector = dataclasses.replace(plain, codes=np.array([1, 2], np.int8))
    assert ORDER.encode(vector) == ORDER.encode(plain)


def test_decoding_errors_have_the_offset_and_the_path():
    data = bytearray(ORDER.encode(Order(number=5, lines=[Line("a"), Line("b", 7)])))
    at = data.index(b"b")
    data[at] = 0xFF
    with pytest.raises(FormatError) as caught:
        ORDER.decode(bytes(data))
    assert caught.value.offset == at
    assert caught.value.section == "lines[1].sku"
    assert "UTF-8" in str(caught.value)
    again = ORDER.decode(bytes(data), errors="surrogateescape")
    assert again.lines[1].sku == "\udcff"
    assert ORDER.encode(again, errors="surrogateescape") == data
    with pytest.raises(ValueError, match="errors must be"):
        ORDER.decode(bytes(data), errors="ignore")


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_any_buffer_is_decoded(make):
    order = Order(number=1, note="x")
    assert ORDER.decode(make(ORDER.encode(order))) == order
    with pytest.raises(FormatError, match="empty"):
        ORDER.decode(make(b""))


def test_a_table_may_not_have_more_rows_or_cells_than_allowed():
    orders = Codec(list[Line])
    data = orders.encode([Line()] * 1000)
    assert len(data) < 2100
    assert orders.decode(data) == [Line()] * 1000
    with pytest.raises(FormatError, match="max_rows"):
        orders.decode(data, max_rows=999)
    with pytest.raises(FormatError, match="max_cells"):
        orders.decode(data, max_cells=3999)
    five_bytes = bytes.fromhex("d00805ffffffff7f")
    with pytest.raises(FormatError, match="max_rows"):
        orders.decode(five_bytes)


def test_zeros_of_records_inside_records_are_paid_for():
    """Four levels of 256 records each: a kilobyte of section must not ask for 2^32 objects."""
    from colstore_io.formats.colbin.schema import FieldDef, FieldType, Section, StructDef

    def wide(index: int) -> StructDef:
        return StructDef("", tuple(FieldDef(f"f{k}", k, FieldType.record(index)) for k in range(256)), True)

    last = StructDef("", (FieldDef("x", 0, FieldType.scalar(1)),), True)
    section = Section((wide(1), wide(2), wide(3), wide(4), last))
    with pytest.raises(FormatError, match="max_cells"):
        decode(section, b"\xd8")


def test_a_value_that_contains_itself_is_refused():
    @dataclasses.dataclass
    class Node:
        value: Annotated[i32, 1]
        kids: Annotated[list[Node], 2]

    codec = Codec(Node, namespace={"Node": Node})
    node = Node(1, [])
    node.kids.append(node)
    with pytest.raises(ValueError, match="nested deeper than 128"):
        codec.encode(node)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested deeper than 128"):
        Codec(Holder).encode(Holder("x", loop))


def test_records_in_dynamic_values_are_maps_or_typed_records():
    codec = Codec(Holder)
    holder = Holder("h", Line("a", 1, 2.0), [Line("b"), Line("c")])
    plain = codec.decode(codec.encode(holder))
    described = codec.decode(codec.encode_self_describing(holder))
    assert plain == described
    assert plain.anything == {"sku": "a", "quantity": 1, "price": 2.0}
    assert decode(None, codec.encode_self_describing(holder))["many"][1]["sku"] == "c"
    with pytest.raises(TypeError, match=r"anything\[0\]: values of type set have no form in dynamic values"):
        codec.encode(Holder("h", [set()]))
    with pytest.raises(TypeError, match=r"anything\['a'\]\[1\]\['b c'\]: values of type complex"):
        codec.encode(Holder("h", {"a": [None, {"b c": 1j}]}))
    with pytest.raises(OverflowError, match=r"many\[0\]\['x{59}\.\.\.\]: "):
        codec.encode(Holder("h", None, [{"x" * 1000: 1 << 64}]))


def test_dynamic_values_come_back():
    codec = Codec(Holder)
    value = {
        "none": None, "yes": True, "no": False, "int": -5, "big": 2**64 - 1, "least": -(2**63), "float": 1.5,
        "text": "ñ", "raw": b"\x00", "list": [1, [2.5, {}]], "map": {3: "x", -1: "y"}, "": "",
    }  # fmt: skip
    assert codec.decode(codec.encode(Holder("", value))).anything == value
    for bad in (2**64, -(2**63) - 1):
        with pytest.raises(OverflowError):
            codec.encode(Holder("", bad))
    with pytest.raises(TypeError, match="key of a map"):
        codec.encode(Holder("", {1.5: 2}))


def test_unknown_names_of_a_mapping_are_refused():
    schema = Codec(Line).schema
    assert encode(schema, {"sku": "a"}) == Codec(Line).encode(Line("a"))
    with pytest.raises(ValueError, match="no field 'skew'"):
        encode(schema, {"skew": "a"})
    lists = Codec(list[Line]).schema
    assert encode(lists, [{"sku": "a"}] * 9) == Codec(list[Line]).encode([Line("a")] * 9)
    with pytest.raises(ValueError, match=r"\[8\]: the record has no field 'skew'"):
        encode(lists, [{"sku": "a"}] * 8 + [{"skew": "a"}])


def test_nan_keeps_its_payload():
    for bits in (0x7FF8000000000001, 0xFFF0000000000001, 0x7FF0000000000001):
        (value,) = struct.unpack("<d", bits.to_bytes(8, "little"))
        again = Codec(Line).decode(Codec(Line).encode(Line("", 0, value))).price
        assert struct.pack("<d", again) == struct.pack("<d", value)


def test_codecs_are_remade_from_pickles():
    codec = pickle.loads(pickle.dumps(Codec(Line)))
    assert codec.encode(Line("a")) == Codec(Line).encode(Line("a"))


def test_messages_leave_no_references_behind():
    order = Order(
        7, Line("a"), [Line(str(n), n) for n in range(20)], "note", [1], ["x"], {"k": 1}, 0.5, 3, b"z"
    )
    data = ORDER.encode(order)
    broken = data[:-1]
    holder = Codec(Holder)

    def work() -> None:
        for _ in range(50):
            ORDER.decode(ORDER.encode(order))
            holder.decode(holder.encode_self_describing(Holder("x", order, [order, 1])))
            with pytest.raises(FormatError):
                ORDER.decode(broken)
            with pytest.raises(TypeError):
                ORDER.encode(Order(lines=[Line(sku=1)] * 9))

    work()
    gc.collect()
    before = (
        sys.getrefcount(order),
        sys.getrefcount(order.lines),
        sys.getrefcount(order.note),
        len(gc.get_objects()),
    )
    work()
    gc.collect()
    after = (
        sys.getrefcount(order),
        sys.getrefcount(order.lines),
        sys.getrefcount(order.note),
        len(gc.get_objects()),
    )
    assert after[:3] == before[:3]
    assert after[3] - before[3] < 50


def test_one_codec_serves_several_threads():
    order = Order(7, Line("a"), [Line(str(n), n) for n in range(20)])
    data = ORDER.encode(order)
    failures = []

    def work() -> None:
        for _ in range(200):
            if ORDER.encode(order) != data or ORDER.decode(data) != order:
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_codec_agrees_with_the_encoder_that_reads_definitions():
    from colstore_io.formats.colbin.annotations import definitions

    order = Order(
        7, Line("a"), [Line(str(n), n) for n in range(20)], "note", [1], ["x"], {"k": 1}, 0.5, 0, b"z"
    )
    assert encode_value(definitions(Order), order) == ORDER.encode(order)


@pytest.mark.parametrize("size", range(40))
def test_text_of_every_short_length_comes_back(size):
    codec = Codec(Line)
    for place in range(size):
        for character in "qé漢":
            text = "a" * place + character + "z" * (size - place - 1)
            assert codec.decode(codec.encode(Line(text))) == Line(text)
    plain = codec.encode(Line("a" * size))
    for place in range(3, len(plain)):
        with pytest.raises(FormatError, match="UTF-8"):
            codec.decode(plain[:place] + b"\xff" + plain[place + 1 :])


def test_integers_around_every_power_of_two_come_back():
    class Numbers(NamedTuple):
        a: Annotated[i64, 1]
        b: Annotated[u64, 2]
        c: Annotated[list[int], 3]

    codec = Codec(Numbers)
    for power in range(65):
        for near in (-9, -8, -2, -1, 0, 1, 2):
            number = (1 << power) + near
            signed = max(-(2**63), min(number, 2**63 - 1))
            row = Numbers(signed, max(0, min(number, 2**64 - 1)), [signed, -signed, 0])
            got = codec.decode(codec.encode(row))
            assert got == row
            assert [str(v) for v in (got.a, got.b, *got.c)] == [str(v) for v in (row.a, row.b, *row.c)]
            assert got.a + 1 - 1 == row.a
            assert hash(got.b) == hash(row.b)


def test_decoded_objects_are_known_to_the_garbage_collector():
    class Node:
        __slots__ = ("__weakref__", "next")
        __annotations__ = {"next": Annotated[str, 1]}

    codec = Codec(dataclasses.dataclass(Node))
    node = codec.decode(codec.encode(Node("x")))
    assert gc.is_tracked(node)
    gone = weakref.ref(node)
    node.next = node
    del node
    gc.collect()
    assert gone() is None


def test_failed_decodes_leave_no_object_behind():
    codec = Codec(Line)
    damaged = codec.encode(Line("abc", 5))[:-1]
    before = len([o for o in gc.get_objects() if type(o) is Line])
    for _ in range(10):
        with pytest.raises(FormatError):
            codec.decode(damaged)
    assert len([o for o in gc.get_objects() if type(o) is Line]) == before


@pytest.mark.parametrize("key", [4, 15, 16, 63, 64, 77, 200, 255])
@pytest.mark.parametrize("k8", [False, True])
@pytest.mark.parametrize("envelope", [False, True])
def test_absent_fields_read_as_zeros_whatever_their_keys(key, k8, envelope):
    # a section may give a type of four-bit keys any keys, and a message may have runs of another width than its type
    fields = (FieldDef("rows", key, FieldType.records(1)),)
    inner = StructDef("", (FieldDef("a", key, FieldType.scalar(TypeCode.I32)),), k8=k8)
    section = Section((StructDef("", fields, k8=k8, envelope=envelope), inner))
    for root in (b"\xd0", b"\xd8"):
        assert decode(section, root) == (None if envelope else {"rows": None})


def test_absent_slots_are_set_whatever_run_the_root_announces():
    @record
    class Far:
        a: Annotated[i32, 100]
        b: Annotated[str, 200]
        c: Annotated[i64, 1]

    codec = Codec(Far)
    assert codec.decode(b"\xd0") == codec.decode(b"\xd8") == Far(0, "", 0)
    assert codec.decode(b"\xd0\x09\x05") == Far(0, "", 5)
