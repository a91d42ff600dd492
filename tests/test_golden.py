"""The golden vectors of the format: every file, dataset, selection and malformed file."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import colstore_io as cs
from colstore_io import FormatError


def test_every_golden_vector(shared):
    script = shared / "vectors/cstore/verify.py"
    result = subprocess.run(
        [sys.executable, script, "colstore_io"], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.strip().endswith(" 0 problems")


@pytest.mark.parametrize("options", [{"mmap": False}, {"backend": "numpy"}], ids=str)
def test_golden_values_by_every_way_of_reading(shared, options):
    folder = shared / "vectors/cstore"
    for entry in json.loads((folder / "manifest.json").read_text())["files"]:
        with np.load(folder / entry["values"]) as values, cs.open(folder / entry["file"], **options) as table:
            for number, name in enumerate(table.columns):
                want = values[f"c{number}"]
                for key in (
                    slice(None),
                    slice(None, None, -2),
                    np.arange(len(want))[::-1],
                    np.arange(len(want)) % 3 == 0,
                ):
                    np.testing.assert_array_equal(table[key, name].array(), want[key])


def test_malformed_files_name_file_and_place(shared):
    folder = shared / "vectors/cstore"
    for entry in json.loads((folder / "manifest.json").read_text())["malformed"]:
        if not entry["required"].startswith("FormatError"):
            continue
        path = folder / entry["file"]
        before = path.read_bytes()
        with pytest.raises(FormatError) as caught:
            cs.open(path)
        assert path.name in str(caught.value)
        assert path.read_bytes() == before


def test_every_bit_flip_of_a_header_is_refused_or_harmless(tmp_path):
    path = tmp_path / "small.cstore"
    data = {
        "id": np.arange(5, dtype="i2"),
        "x": np.linspace(0, 1, 5),
        "t": np.array(["a", "bc", "", "d", "e"]),
    }
    cs.store(data, path).close()
    good = path.read_bytes()
    header = len(good) - 5 * (2 + 8 + 8) - 6  # the body's 90 bytes are padded to 96
    for position in range(header):
        for bit in range(8):
            bad = bytearray(good)
            bad[position] ^= 1 << bit
            try:
                table = cs.open(bytes(bad))
            except FormatError:
                continue
            got = table.dict()
            assert list(got) == list(data)
            for name, values in data.items():
                np.testing.assert_array_equal(got[name], values)
