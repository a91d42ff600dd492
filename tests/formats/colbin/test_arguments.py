"""What is no message, and what is no schema, is refused by name, with the way to what was meant."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import pytest

import colstore_io as cs
from colstore_io.errors import FormatError
from colstore_io.formats.colbin.log import MAGIC


@cs.colbin.record
class Point:
    x: Annotated[cs.i32, 1]


CODEC = cs.colbin.Codec(Point)
MESSAGE = CODEC.encode(Point(3))
TABLE = cs.colbin.encode_table({"ab": np.arange(3)})


@pytest.mark.parametrize("call", [cs.colbin.decode, cs.colbin.to_json])
@pytest.mark.parametrize(
    ("schema", "message", "text"),
    [
        (CODEC.schema, "text", "a message is bytes, not str"),
        (None, None, "a message is bytes, not NoneType"),
        (MESSAGE, CODEC.schema, "a message is bytes, not Section; the schema comes first"),
        (Point, MESSAGE, r"not Point: pass Codec\(Point\).schema"),
        (CODEC, MESSAGE, "not Codec: pass its attribute `schema`"),
        ("x", MESSAGE, "a schema is a Section or its bytes, not str"),
    ],
)
def test_arguments_of_other_types_are_named(call, schema, message, text):
    with pytest.raises(TypeError, match=text):
        call(schema, message)


def test_a_message_without_a_schema_says_how_to_pass_one():
    with pytest.raises(FormatError, match=r"root byte D0.*decode\(codec.schema, message\)"):
        cs.colbin.decode(None, MESSAGE)
    with pytest.raises(ValueError, match=r"root byte D0.*to_json\(codec.schema, message\)"):
        cs.colbin.to_json(None, MESSAGE)
    with pytest.raises(ValueError, match=r"root byte D0.*pass section="):
        cs.colbin.decode_table(MESSAGE)
    with pytest.raises(FormatError, match=r"a log of messages: colstore_io.open"):
        cs.colbin.decode(None, MAGIC + bytes(20))
    with pytest.raises(FormatError, match="not 7B"):
        cs.colbin.decode(None, b"{}")


def test_messages_that_are_no_tables_name_the_function_that_reads_them():
    for document, what in (
        (cs.colbin.encode_self_describing({"rows": {"a": [1]}}), "a document of dynamic values"),
        (CODEC.encode_self_describing(Point(1)), "one record"),
    ):
        with pytest.raises(FormatError, match=rf"it is {what}: colbin.decode\(schema, message\)"):
            cs.colbin.decode_table(document)


def test_decode_table_takes_one_column_and_sections_of_both_kinds():
    assert list(cs.colbin.decode_table(TABLE, columns="ab")) == ["ab"]
    bare = cs.colbin.encode_table({"ab": np.arange(3)}, self_describing=False)
    section = TABLE[1 : 2 + TABLE[1]]
    for schema in (section, cs.colbin.Section.from_bytes(section)):
        assert cs.colbin.decode_table(bare, section=schema)["ab"].tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="a message is bytes, not list"):
        cs.colbin.decode_table([b"x"])


@pytest.mark.parametrize("odd", [None, {"a": 1}, 5])
def test_documents_that_are_no_text_are_named(odd):
    with pytest.raises(TypeError, match=r"a JSON document is text or bytes, not .*json.dumps"):
        cs.colbin.from_json(odd)


def test_an_instance_is_no_class():
    with pytest.raises(TypeError, match="a class is expected, not an instance of one: pass Point"):
        cs.colbin.Codec(Point(1))


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (5, "column 'a': int is no sequence"),
        ("text", "column 'a': str is no sequence"),
        ([1, "x"], "column 'a' has values of no one type"),
        ([object()], "column 'a' has values of no one type"),
        (np.zeros(9, complex), "column 'a' has values of no one type"),
    ],
)
def test_columns_that_are_none_are_named(column, text):
    with pytest.raises(TypeError, match=text):
        cs.colbin.encode_table({"a": column})
