"""Golden files of the columns format: written byte for byte where no DEFLATE stands between."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from formats.columns.golden_columns import groups_of, manifest, options_of, schema_of

from colstore_io.formats.columns.encoder import ColumnsEncoder

SHARED = Path(__file__).resolve().parents[4] / "shared"
LISTED = SHARED / "vectors/columns/manifest.json"
ENTRIES = json.loads(LISTED.read_text())["files"] if LISTED.exists() else []
HAS_TOKENIZERS = importlib.util.find_spec("colstore_io.formats.columns.tokenized") is not None
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
    if entry["writer"]["tokenizers"] and not HAS_TOKENIZERS:
        pytest.skip("tokenizers are not built")
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
