"""Golden files of the columns format: written byte for byte where no DEFLATE stands between."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from formats.columns.golden_columns import groups_of, manifest, options_of, schema_of

from colstore_io.formats.columns import FORMAT
from colstore_io.formats.columns.boxed import boxed
from colstore_io.formats.columns.encoder import ColumnsEncoder
from colstore_io.formats.columns.tokenizer import default_registry, register_tokenizer
from colstore_io.storage import MemoryFile

SHARED = Path(__file__).resolve().parents[4] / "shared"
LISTED = SHARED / "vectors/columns/manifest.json"
ENTRIES = json.loads(LISTED.read_text())["files"] if LISTED.exists() else []
EXACT = [entry["file"] for entry in ENTRIES if entry["reproduce_exactly"]]
OTHERS = [
    entry["file"]
    for entry in ENTRIES
    if not entry["reproduce_exactly"]
    and not entry["file"].startswith("files/gob_")
    and not entry["writer"]["optimize"]
]


def written(shared, name):
    entry = next(entry for entry in manifest(shared)["files"] if entry["file"] == name)
    encoder = ColumnsEncoder(schema_of(entry), **options_of(entry, shared))
    parts = [encoder.begin()]
    for columns in groups_of(entry):
        parts += encoder.segment(columns)
    parts.append(encoder.finish())
    return entry, encoder, b"".join(parts)


@pytest.mark.parametrize("name", EXACT)
def test_golden_file_is_reproduced_byte_for_byte(shared, name):
    _, _, data = written(shared, name)
    assert data == (shared / "vectors/columns" / name).read_bytes()


@pytest.mark.parametrize("name", OTHERS)
def test_footer_of_a_deflated_golden_file_says_the_same(shared, name):
    entry, encoder, _ = written(shared, name)
    for group, listed in zip(encoder.groups, entry["row_groups"], strict=True):
        assert group.n_rows == listed["num_rows"]
        for chunk, expected in zip(group.chunks, listed["columns"], strict=True):
            assert chunk.null_count == expected["null_count"]
            assert chunk.encoding == expected["encoding"]
            assert (chunk.min_length, chunk.max_length) == (expected["min_len"], expected["max_len"])
            assert chunk.tokenizer == expected["tokenizer"]
            for found, hexed in ((chunk.minimum, expected["min"]), (chunk.maximum, expected["max"])):
                if isinstance(hexed, str):
                    assert found == bytes.fromhex(hexed)
                else:
                    assert len(found) == hexed["bytes"]


CLEAR = ["default_level", "level_3", "tokenized", "tokenizer_loses"]


@pytest.mark.parametrize("name", CLEAR)
def test_optimize_picks_what_the_formats_library_picks_where_the_winner_leads(shared, name):
    entry, encoder, data = written(shared, f"files/optimize_{name}.abcd")
    for group, listed in zip(encoder.groups, entry["row_groups"], strict=True):
        found = [(chunk.encoding, chunk.codec, chunk.tokenizer) for chunk in group.chunks]
        assert found == [(c["encoding"], c["compress"], c["tokenizer"]) for c in listed["columns"]]
    assert len(data) <= entry["bytes"]


def test_fast_optimize_takes_tokens_where_they_win(shared):
    for name in ("tokenized", "tokenizer_loses"):
        entry = next(e for e in manifest(shared)["files"] if e["file"] == f"files/optimize_{name}.abcd")
        encoder = ColumnsEncoder(schema_of(entry), **{**options_of(entry, shared), "optimize": "fast"})
        encoder.begin()
        for columns in groups_of(entry):
            encoder.segment(columns)
        assert encoder.groups[0].chunks[0].encoding == entry["row_groups"][0]["columns"][0]["encoding"]


def test_long_columns_of_tokens_are_sampled(shared):
    entry = next(e for e in manifest(shared)["files"] if e["file"] == "files/optimize_tokenized.abcd")
    (columns,) = groups_of(entry)
    text = pa.chunked_array([columns[0]] * 60)
    reports = []
    for mode in ("exact", "fast"):
        encoder = ColumnsEncoder(
            schema_of(entry), **{**options_of(entry, shared), "optimize": mode, "optimize_level": 3}
        )
        reports += encoder.optimize([text])
    exact, fast = reports
    assert any(row.estimated for row in fast.rows)
    cost = {(r.encoding, r.codec, r.representation, r.boundary): r.compressed_bytes for r in exact.rows}
    won = fast.chosen
    found = cost[won.encoding, won.codec, won.representation, won.boundary]
    assert found <= 1.25 * exact.chosen.compressed_bytes


@pytest.mark.parametrize("compression", ["auto", "lzw", "none"])
def test_tokenized_columns_read_back(shared, compression):
    entry = next(
        e for e in manifest(shared)["files"] if e["file"] == "files/tokenized_two_models_nullable.abcd"
    )
    options = {**options_of(entry, shared), "compression": compression}
    del options["level"]
    for tokenizer in options["tokenizers"].values():
        if tokenizer.digest not in default_registry:
            register_tokenizer(tokenizer)
    groups = groups_of(entry)
    encoder = ColumnsEncoder(schema_of(entry), **options)
    parts = [encoder.begin()]
    for columns in groups:
        parts += encoder.segment(columns)
    data = b"".join([*parts, encoder.finish()])
    file = MemoryFile(data)
    (meta,) = FORMAT.read_metadata([file], [memoryview(data)])
    for segment, columns in enumerate(groups):
        numbers = list(range(len(columns)))
        pieces = [file.read(*place) for place in meta.decoder.ranges(segment, numbers)]
        for found, expected in zip(meta.decoder.decode(segment, numbers, pieces), columns, strict=True):
            assert boxed(found) == expected.to_pylist()
