"""Arguments of the wrong kind are refused in words that name them; none gets as far as an error of Python's own."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest

import colstore_io as cs
from colstore_io import colbin
from colstore_io.arguments import (
    check_column_names,
    check_integer,
    check_mapping,
    check_number,
    check_path,
    loaded_module,
)

DATA = {"x": np.arange(10.0), "k": np.arange(10)}


@dataclass
class Point:
    a: cs.i32
    b: str


CODEC = colbin.Codec(Point)
TABLE = colbin.encode_table(DATA)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("t.cstore", "t.abcd", "t.colbin"):
        cs.store(DATA, name).close()
    cs.append("many", DATA)
    return tmp_path


def opened(name="t.cstore", **options):
    return cs.open(name, **options)


def created(name, **options):
    with cs.create(name, **options) as writer:
        writer.write(DATA)


WRONG = [
    (lambda: opened(max_workers="a"), TypeError, "max_workers must be an integer, got 'a'"),
    (lambda: opened(max_workers=True), TypeError, "max_workers must be an integer, got True"),
    (lambda: opened("t.abcd", max_rows="a"), TypeError, "max_rows must be an integer, got 'a'"),
    (lambda: opened("t.abcd", max_rows=float("inf")), TypeError, "max_rows must be an integer, got inf"),
    (lambda: opened("t.abcd", max_rows=0), ValueError, "max_rows must be at least 1, got 0"),
    (lambda: opened("t.abcd", max_rows=10**30), ValueError, "max_rows must fit into 64 bits"),
    (lambda: opened(max_decoded_bytes=1.5), TypeError, "max_decoded_bytes must be an integer, got 1.5"),
    (lambda: opened("t.colbin", table=[1]), TypeError, "table must be a string, got \\[1\\]"),
    (lambda: opened(filesystem=5), TypeError, "filesystem must be an fsspec file system, got int"),
    (lambda: cs.store(DATA, "n.cstore", attrs=5), TypeError, "attrs must be a mapping"),
    (lambda: cs.store(DATA, "n.cstore", column_attrs=5), TypeError, "column_attrs must be a mapping"),
    (lambda: cs.store(DATA, "n.cstore", column_attrs={"x": 5}), TypeError, r"column_attrs\['x'\] must be a"),
    (lambda: cs.store(DATA, "n.cstore", nullable=5), TypeError, "nullable must be a list of column names"),
    (lambda: cs.store(DATA, "n.abcd", nullable=5), TypeError, "nullable must be a list of column names"),
    (lambda: created("n.cstore", attrs=5), TypeError, "attrs must be a mapping"),
    (lambda: cs.append("many", DATA, attrs=5), TypeError, "attrs"),
    (lambda: cs.append("many", DATA, format=[]), ValueError, "format must be one of 'cstore', "),
    (lambda: cs.append("many", DATA, filesystem=5), TypeError, "filesystem must be an fsspec file system"),
    (lambda: created("n.abcd", row_group_size=1.5), TypeError, "row_group_size must be an integer, got 1.5"),
    (lambda: created("n.abcd", row_group_size="a"), TypeError, "row_group_size must be an integer, got 'a'"),
    (lambda: created("n.abcd", row_group_size=0), ValueError, "row_group_size must be at least 1, got 0"),
    (lambda: created("n.abcd", block_size=None), TypeError, "block_size must be an integer, got None"),
    (lambda: created("n.abcd", tokenizers=5), TypeError, "tokenizers must be a mapping"),
    (lambda: created("n.abcd", tokenized_layout=5), TypeError, "tokenized_layout must be a pair"),
    (lambda: created("n.abcd", tokenized_layout=[1]), TypeError, "tokenized_layout must be a pair"),
    (lambda: created("n.abcd", threads="a"), TypeError, "threads must be an integer, got 'a'"),
    (lambda: created("n.colbin", threads=None), TypeError, "threads must be an integer, got None"),
    (
        lambda: cs.update("t.colbin", threads=5),
        TypeError,
        r"update\(\) of a log of messages takes no threads=",
    ),
    (lambda: cs.recover_columns_file(5), TypeError, "path must be a path"),
    (lambda: cs.LogWriter(5), TypeError, "path must be a path"),
    (lambda: cs.LogWriter(""), ValueError, "path is empty"),
    (lambda: cs.vacuum("many", keep=None), TypeError, "keep must be an integer, got None"),
    (lambda: cs.vacuum("many", keep=0), ValueError, "keep must be at least 1, got 0"),
    (lambda: cs.vacuum("many", older_than_seconds="a"), TypeError, "older_than_seconds must be a number"),
    (
        lambda: cs.vacuum("many", older_than_seconds=-1),
        ValueError,
        "older_than_seconds must be a number >= 0",
    ),
    (lambda: cs.vacuum("many", filesystem=5), TypeError, "filesystem must be an fsspec file system"),
    (lambda: opened().head("a"), TypeError, "n must be an integer, got 'a'"),
    (lambda: opened()["x"].tail(1.5), TypeError, "n must be an integer, got 1.5"),
    (lambda: opened().array([]), TypeError, r"name must be a string, got \[\]"),
    (lambda: opened()[:5].array(None), TypeError, "name must be a string, got None"),
    (lambda: opened().query("x > 1", columns=5), TypeError, "columns must be a list of column names, got 5"),
    (lambda: opened().dict(out=5), TypeError, "out must be a mapping"),
    (lambda: opened().frame(categories=5), TypeError, "categories must be a list of column names"),
    (lambda: opened().arrow(categories=5), TypeError, "categories must be a list of column names"),
    (lambda: opened()["x"].std(ddof="a"), TypeError, "ddof must be an integer, got 'a'"),
    (lambda: opened()["k"].var(ddof=10**30), ValueError, "ddof must fit into 64 bits"),
    (lambda: colbin.Codec(Point).decode(5), TypeError, "a message is bytes, not int"),
    (lambda: colbin.Codec(Point).encode(5), TypeError, "expected Point, got int"),
    (
        lambda: CODEC.decode(CODEC.encode(Point(1, "")), max_rows="a"),
        TypeError,
        "max_rows must be an integer",
    ),
    (
        lambda: CODEC.decode(CODEC.encode(Point(1, "")), max_cells="a"),
        TypeError,
        "max_cells must be an integer",
    ),
    (
        lambda: CODEC.decode_columns([CODEC.encode(Point(1, ""))], columns=5),
        TypeError,
        "columns must be a list",
    ),
    (lambda: colbin.to_json(CODEC.schema, b"\xd0", max_rows=None), TypeError, "max_rows must be an integer"),
    (lambda: colbin.decode_table(TABLE, max_cells=None), TypeError, "max_cells must be an integer, got None"),
    (lambda: colbin.decode_table(TABLE, table=[]), TypeError, "table must be a string"),
    (lambda: colbin.decode_table(TABLE, columns=5), TypeError, "columns must be a list of column names"),
    (lambda: colbin.Section.from_bytes(5), TypeError, "a section is bytes, not int"),
    (lambda: CODEC.schema.is_prefix_of(5), TypeError, "expected a Section, got int"),
    (lambda: cs.LogWriter("n.colbin", CODEC.schema, encode=5), TypeError, "encode must be a function"),
    (lambda: opened().query("x > @p", params=5), TypeError, "params must be a mapping"),
    (lambda: opened().select("x", []), TypeError, "names must be a list of column names"),
    (lambda: opened().drop([]), TypeError, "names must be a list of column names"),
    (lambda: colbin.Codec(Point, namespace=5), TypeError, "namespace must be a mapping"),
    (lambda: colbin.Codec([]), TypeError, r"\[\] is no type"),
    (lambda: cs.register_tokenizer(5), TypeError, "source must be a path"),
    (lambda: cs.register_tokenizer(b"x", digest=1.5), TypeError, "a digest is 32 bytes"),
    (lambda: cs.register_tokenizer(b"x", digest="a"), ValueError, "a digest in text form has 64 hexadecimal"),
    (lambda: cs.register_tokenizer(b"x", registry=5), TypeError, "registry must be a TokenizerRegistry"),
    (lambda: cs.TokenizerRegistry(5), TypeError, "tokenizers must be a list of Tokenizer objects"),
    (lambda: cs.TokenizerRegistry("a"), TypeError, "a registry holds Tokenizer objects, got str"),
]


@pytest.mark.parametrize(("call", "error", "words"), WRONG, ids=[words for _, _, words in WRONG])
def test_argument_of_the_wrong_kind_is_refused_by_name(folder, call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("name", ["n.cstore", "n.abcd", "n.colbin"])
def test_refused_arguments_leave_no_file(folder, name):
    with pytest.raises(TypeError):
        cs.store(DATA, name, nullable=5)
    assert not (folder / name).exists()


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_library_that_another_thread_is_importing_is_not_asked(folder, monkeypatch, library):
    """The first store() of one thread may fall into the first import of pandas of another."""
    half = ModuleType(library)
    half.__spec__ = ModuleSpec(library, None)
    half.__spec__._initializing = True
    monkeypatch.setitem(sys.modules, library, half)
    cs.store(DATA, "n.cstore").close()
    assert loaded_module(library) is None


def test_right_arguments_come_back_as_they_are_used():
    assert check_integer("n", np.int8(3), 1) == 3
    assert check_number("n", np.float32(0.5)) == 0.5
    assert check_mapping("m", {"a": 1}) == {"a": 1}
    assert check_column_names("c", "x") == ("x",)
    assert check_column_names("c", iter(["x", "y"])) == ("x", "y")
    assert check_path("p", b"a/b") == "a/b"


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (check_number, "a"),
        (check_number, True),
        (check_column_names, b"ab"),
        (check_column_names, [1]),
        (check_mapping, None),
        (check_path, None),
    ],
)
def test_values_of_another_kind_are_type_errors(check, bad):
    with pytest.raises(TypeError, match="argument must be"):
        check("argument", bad)


@pytest.mark.parametrize("bad", [float("nan"), 10**400])
def test_numbers_without_a_place_are_value_errors(bad):
    with pytest.raises(ValueError, match="argument"):
        check_number("argument", bad)
