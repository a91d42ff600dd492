"""The command line, as a person would use it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import colstore_io as cs
from colstore_io.cli import main


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "t.cstore"
    data = pd.DataFrame(
        {
            "k": np.arange(30),
            "x": np.linspace(0, 1, 30),
            "n": pd.array([None, 5] * 15, "Int16"),
            "s": ["a", "bc"] * 15,
        }
    )
    cs.store(iter([data[:20], data[20:]]), target, statistics=True, attrs={"run": 7}).close()
    return target


def test_info_in_words_and_json(path, capsys):
    assert main(["info", str(path)]) == 0
    assert "rows          30" in capsys.readouterr().out
    assert main(["info", "--json", str(path)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["rows"], facts["records"], facts["statistics"], facts["columns"]) == (30, 2, True, 4)
    assert facts["format"] == "cstore"


def test_the_package_runs_as_a_module(path):
    run = subprocess.run(
        [sys.executable, "-m", "colstore_io", "info", str(path)], capture_output=True, text=True, check=True
    )
    assert "rows          30" in run.stdout


def test_schema_tells_what_plain_dtypes_do_not(path, capsys):
    assert main(["schema", str(path)]) == 0
    out = capsys.readouterr().out
    assert "n     <i2         nullable" in out
    assert "'run': 7" in out
    assert main(["schema", "--json", str(path)]) == 0
    assert [column["name"] for column in json.loads(capsys.readouterr().out)] == [
        "k",
        "x",
        "n",
        "n.valid",
        "s",
        "s.valid",
    ]


def test_head_selects_columns_and_rows(path, capsys):
    assert main(["head", "-n", "2", "-c", "k,s", "-q", "k >= 10", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["k", "s"]
    assert lines[1].split() == ["0", "10", "a"]


def test_verify_names_bad_files_and_fails(path, tmp_path, capsys):
    bad = tmp_path / "bad.cstore"
    damaged = bytearray(path.read_bytes())
    damaged[-8] ^= 1  # in the statistics footer
    bad.write_bytes(damaged)
    broken = tmp_path / "broken.cstore"
    broken.write_bytes(path.read_bytes()[:300])
    assert main(["verify", str(path)]) == 0
    assert main(["verify", str(path), str(bad), str(broken)]) == 1
    out = capsys.readouterr().out
    assert f"{path}: ok" in out
    assert "statistics" in out
    assert f"{broken}: 1 problems" in out or f"{broken}: " in out


def test_verify_finds_a_wrong_bound_behind_a_right_checksum(path, capsys):
    import zlib

    data = bytearray(path.read_bytes())
    offset = int.from_bytes(data[24:32], "little")
    footer = data[offset:-4]
    at = footer.index((19).to_bytes(8, "little"))  # the maximum of k in the first record
    footer[at] = 18
    data[offset:] = footer + zlib.crc32(bytes(footer)).to_bytes(4, "little")
    path.write_bytes(data)
    assert main(["verify", str(path)]) == 1
    assert "'k'" in capsys.readouterr().out


def test_compact_in_place_and_aside(path, tmp_path, capsys):
    out = tmp_path / "out.cstore"
    assert main(["compact", str(path), "-o", str(out)]) == 0
    copy = tmp_path / "copy.cstore"
    shutil.copy(path, copy)
    assert main(["compact", str(copy)]) == 0
    assert out.read_bytes() == copy.read_bytes()
    assert cs.info(out).n_records == 1
    assert capsys.readouterr().out.split() == [str(out), str(copy)]


def test_errors_of_the_user_are_one_line(tmp_path, capsys):
    (tmp_path / "x.cstore").write_bytes(b"no")
    for arguments in (["info", str(tmp_path / "missing.cstore")], ["head", str(tmp_path / "x.cstore")]):
        assert main(arguments) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"colstore-io {arguments[0]}: ")
        assert error.count("\n") == 1
    with pytest.raises(SystemExit) as caught:
        main(["fly"])
    assert caught.value.code == 2
