"""Golden and malformed files of the columns format: what reading them gives, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from formats.columns.golden_columns import field_of, values_of
from formats.columns.reading import decoded, everything, opened, raw_values

from colstore_io.errors import ColstoreError, FormatError
from colstore_io.formats.columns import FORMAT
from colstore_io.formats.columns.inspect import inspect
from colstore_io.formats.columns.tags import Codec, Encoding, Type
from colstore_io.storage import open_file

VECTORS = Path(__file__).resolve().parents[4] / "shared/vectors/columns"
MANIFEST = json.loads((VECTORS / "manifest.json").read_text()) if VECTORS.is_dir() else {}
GOLDEN = MANIFEST.get("files", [])
MALFORMED = MANIFEST.get("malformed", [])
HAVE_TOKENIZERS = importlib.util.find_spec("colstore_io.formats.columns.tokenizer") is not None

pytestmark = pytest.mark.skipif(not GOLDEN, reason="the shared folder with golden vectors is not here")


def named(entries):
    return pytest.mark.parametrize("entry", entries, ids=[entry["file"].split("/")[1] for entry in entries])


@pytest.fixture(scope="module", autouse=True)
def tokenizers():
    """Register the tokenizers of the golden files."""
    if HAVE_TOKENIZERS:
        from colstore_io.formats.columns.tokenizer import register_tokenizer

        for path in {path for entry in GOLDEN for path in entry["writer"]["tokenizers"].values()}:
            register_tokenizer(VECTORS / path, strict=False)


def contents(entry):
    if entry.get("tokenizer_digests") and not HAVE_TOKENIZERS:
        pytest.skip("no tokenizers here")
    return (VECTORS / entry["file"]).read_bytes()


@named(GOLDEN)
def test_golden_file_has_the_values_of_the_manifest(entry, monkeypatch):
    monkeypatch.setattr("colstore_io.formats.columns.decoder.WORTHWHILE_BYTES", 0)
    data = contents(entry)
    meta = opened(data, errors="surrogateescape")
    kinds = [Type(column["type"]) for column in entry["schema"]]
    fields = [field_of(column) for column in entry["schema"]]
    assert [f.dtype for f in meta.schema] == [f.dtype for f in fields]
    assert [f.optional for f in meta.schema] == [f.optional for f in fields]
    assert meta.layout == str(entry["version"])
    assert meta.committed_end == entry["bytes"] - 8
    columns = list(range(len(kinds)))
    for group, expected in enumerate(entry["row_groups"]):
        n_rows = expected["num_rows"]
        for threads in (1, 2):
            result = decoded(data, meta, group, columns, threads=threads)
            for number, column in enumerate(result):
                wanted = values_of(expected["columns"][number], kinds[number], n_rows)
                assert raw_values(column, fields[number]) == wanted, (group, number)


@named(GOLDEN)
def test_golden_file_is_inspected_as_the_manifest_says(entry):
    file, _ = open_file((VECTORS / entry["file"]).read_bytes())
    rows = iter(inspect(file))
    for group, expected in enumerate(entry["row_groups"]):
        for chunk in expected["columns"]:
            row = next(rows)
            assert row["row_group"] == group
            assert (row["offset"], row["bytes"]) == (chunk["byte_offset"], chunk["byte_length"])
            assert row["encoding"] == Encoding(chunk["encoding"]).name.lower()
            assert row["codec"] == Codec(chunk["compress"]).name.lower()
            assert (row["nulls"], row["min_len"], row["max_len"]) == (
                chunk["null_count"],
                chunk["min_len"],
                chunk["max_len"],
            )
            blocks = chunk["chunk"]["blocks"]
            assert (row["raw"], row["blocks"]) == (chunk["chunk"]["raw_length"], len(blocks))
            assert row["stored"] == sum(stored for _, stored in blocks)
    assert next(rows, None) is None


@named(GOLDEN)
def test_golden_file_is_sound(entry):
    file, _ = open_file(contents(entry))
    assert [str(problem) for problem in FORMAT.verify_file(file) if problem.severity == "error"] == []


@named(GOLDEN)
def test_any_part_of_the_rows_is_what_it_is_in_the_whole(entry):
    data = contents(entry)
    meta = opened(data, errors="surrogateescape")
    columns = list(range(len(meta.schema)))
    for group, n_rows in enumerate(meta.record_rows.tolist()[:4]):
        whole = decoded(data, meta, group, columns)
        for rows in {(0, n_rows), (0, n_rows // 2), (n_rows // 3, n_rows), (n_rows // 2, n_rows // 2)}:
            part = decoded(data, meta, group, columns, rows=rows, dictionaries=columns)
            for column, one, other in zip(meta.schema, part, whole, strict=True):
                assert raw_values(one, column) == raw_values(other, column)[slice(*rows)]


@named(GOLDEN)
def test_values_go_where_the_caller_wants_them(entry):
    data = contents(entry)
    meta = opened(data, errors="surrogateescape")
    columns = list(range(len(meta.schema)))
    for group, n_rows in enumerate(meta.record_rows.tolist()[:4]):
        whole = decoded(data, meta, group, columns)
        for rows in ((0, n_rows), (n_rows // 3, n_rows)):
            out = [
                None if field.variable else np.full(rows[1] - rows[0], 1).astype(field.native_dtype)
                for field in meta.schema
            ]
            part = decoded(data, meta, group, columns, rows=rows, out=out)
            for field, target, one, other in zip(meta.schema, out, part, whole, strict=True):
                if target is not None:
                    assert one.values is target
                    assert raw_values(one, field) == raw_values(other, field)[slice(*rows)]
                    if one.validity is not None:
                        assert not target[~one.validity].any()


@named(GOLDEN)
def test_decoders_travel_in_pickles(entry):
    data = contents(entry)
    meta = opened(data, errors="surrogateescape")
    columns = list(range(len(meta.schema)))
    if meta.n_records and columns:
        low = meta.n_records // 2
        part = meta.decoder.select(low, meta.n_records, columns[::-1])
        other = pickle.loads(pickle.dumps(part))
        for group in range(meta.n_records - low):
            ranges = other.ranges(group, columns)
            assert ranges == meta.decoder.ranges(low + group, columns[::-1])
            views = [memoryview(data)[at : at + length] for at, length in ranges]
            one = other.decode(group, columns, views)
            two = meta.decoder.decode(low + group, columns[::-1], views)
            for a, b, field in zip(one, two, list(meta.schema)[::-1], strict=True):
                assert raw_values(a, field) == raw_values(b, field)
        assert other.decoded_row_bytes(columns) == part.decoded_row_bytes(columns)


@named(MALFORMED)
def test_malformed_file_gets_its_verdict_in_little_memory(entry):
    if (
        entry["file"].split("/")[1].startswith(("tok_", "v2_unknown", "encoding_tokenized"))
        and not HAVE_TOKENIZERS
    ):
        pytest.skip("no tokenizers here")
    data = contents(entry)
    expected = entry["expected_of_colstore_io"]
    tracemalloc.start()
    try:
        everything(data)
        outcome = "accept"
    except FormatError as exc:
        outcome = "error" if exc.section is not None and "<bytes>" in str(exc) else "error without a place"
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert expected in (outcome, "either")
    assert peak < 4 << 20


@named(MALFORMED)
def test_verify_and_inspect_raise_nothing_else_on_malformed_files(entry):
    if not HAVE_TOKENIZERS and ("tok" in entry["file"] or "v2_unknown" in entry["file"]):
        pytest.skip("no tokenizers here")
    file, _ = open_file((VECTORS / entry["file"]).read_bytes())
    problems = None
    try:
        problems = [p for p in FORMAT.verify_file(file) if p.severity == "error"]
    except ColstoreError:
        pass
    if entry["expected_of_colstore_io"] == "accept":
        assert problems == []
    elif entry["expected_of_colstore_io"] == "error" and "v2_unknown" not in entry["file"]:
        assert problems is None or problems
    try:
        repr(inspect(file))
    except ColstoreError:
        pass
