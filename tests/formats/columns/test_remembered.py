"""Footers that a manifest remembers say what the files say, and damage to them costs a look at the file."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import colstore_io as cs
from colstore_io import formats, storage
from colstore_io.formats import READ_DEFAULTS
from colstore_io.formats.columns import remembered
from colstore_io.formats.columns.remembered import recall, remember


@pytest.fixture
def meta(tmp_path: Path) -> Any:
    path = tmp_path / "t.abcd"
    frame = pd.DataFrame({"x": np.arange(1000.0), "s": [f"v{n % 7}" for n in range(1000)]})
    cs.store(frame, path, row_group_size=300).close()
    file, head = storage.open_file(storage.resolve(path).locations[0])
    (found,) = formats.detect(head, str(path)).read_metadata([file], [head])
    file.close()
    return found


def test_what_is_recalled_is_what_was_read(meta: Any) -> None:
    layout = remember(meta)
    assert layout is not None
    found = recall(layout, path=meta.path, size=meta.file_size, options=READ_DEFAULTS, schemas={})
    assert found is not None
    assert (found.schema, found.fingerprint, found.file_size) == (
        meta.schema,
        meta.fingerprint,
        meta.file_size,
    )
    assert found.record_rows.tolist() == meta.record_rows.tolist()
    assert found.body_start.tolist() == meta.body_start.tolist()
    assert found.decoder.ranges(2, [0, 1]) == meta.decoder.ranges(2, [0, 1])
    for side in ("minimum", "maximum", "usable", "nulls"):
        for name in ("x", "s"):
            assert (
                getattr(found.statistics, side)[name].tolist()
                == getattr(meta.statistics, side)[name].tolist()
            )


def test_a_long_footer_stays_in_its_file(meta: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MAX_PACKED_BYTES", 50)
    assert remember(meta) is None


def test_damage_is_no_error_and_no_memory(meta: Any) -> None:
    layout = remember(meta)
    assert layout is not None
    packed = layout["footer"]
    bomb = base64.b64encode(zlib.compress(bytes(1 << 22))).decode()
    broken: list[dict[str, Any]] = [
        {},
        {**layout, "version": 3},
        {**layout, "version": True},
        {**layout, "version": "1"},
        {**layout, "digests": ["00" * 32]},
        {**layout, "digests": 7},
        {**layout, "version": 2, "digests": ["00"]},
        {**layout, "footer": None},
        {**layout, "footer": "é"},
        {**layout, "footer": packed[:-8]},
        {**layout, "footer": base64.b64encode(b"x").decode()},
        {**layout, "footer": bomb},
        {**layout, "footer": base64.b64encode(zlib.compress(b"")).decode()},
    ]
    for one in broken:
        assert recall(one, path="t", size=meta.file_size, options=READ_DEFAULTS, schemas={}) is None, one
    assert recall(layout, path="t", size=100, options=READ_DEFAULTS, schemas={}) is None
    raw = bytearray(zlib.decompress(base64.b64decode(packed)))
    for at in range(0, len(raw), 3):
        raw[at] ^= 0x41
        one = {**layout, "footer": base64.b64encode(zlib.compress(bytes(raw))).decode()}
        recall(one, path="t", size=meta.file_size, options=READ_DEFAULTS, schemas={})  # whatever it says
        raw[at] ^= 0x41
