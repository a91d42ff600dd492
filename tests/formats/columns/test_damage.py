"""Damaged columns files raise errors of this library, and nothing else."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from formats.columns.reading import everything
from hypothesis import given, settings
from hypothesis import strategies as st

from colstore_io.errors import ColstoreError
from colstore_io.formats.columns import FORMAT
from colstore_io.storage import open_file

VECTORS = Path(__file__).resolve().parents[4] / "shared/vectors/columns"
HAVE_TOKENIZERS = importlib.util.find_spec("colstore_io.formats.columns.tokenizer") is not None
FILES = (
    [
        (VECTORS / entry["file"]).read_bytes()
        for entry in json.loads((VECTORS / "manifest.json").read_text())["files"]
        if entry["bytes"] < 6000 and (HAVE_TOKENIZERS or not entry["tokenizer_digests"])
    ]
    if VECTORS.is_dir()
    else []
)

pytestmark = pytest.mark.skipif(not FILES, reason="the shared folder with golden vectors is not here")

LIMITS = {"max_rows": 1 << 22, "max_decoded_bytes": 1 << 24}


@st.composite
def damaged(draw):
    """Bytes of a golden file, some changed, perhaps cut."""
    data = bytearray(draw(st.sampled_from(FILES)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at] = draw(st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 0x7F, 0x80, 0xF8, 0xFF])))
    if draw(st.integers(0, 9)) == 0:
        cut = draw(st.integers(0, len(data)))
        del data[cut : cut + draw(st.integers(0, len(data)))]
    return bytes(data)


@given(damaged())
@settings(max_examples=400, deadline=None)
def test_reading_raises_our_errors_alone(data):
    try:
        everything(data, **LIMITS)
    except ColstoreError:
        pass


@given(damaged())
@settings(max_examples=60, deadline=None)
def test_verifying_raises_our_errors_alone(data):
    try:
        FORMAT.verify_file(open_file(data)[0])
    except ColstoreError:
        pass
