"""Which value of a knob holds: an explicit setting, else a matching calibration, else the compiled default."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io import config, tuning

DISTANCES = {"resident_unsorted": 4, "resident_sorted": 0, "dram_unsorted": 32, "dram_sorted": 64}
ROWS = np.arange(100_000)


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    """An empty cache folder, and everything as it was afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = config._settings.gather_thread_cap
    config.set_gather_thread_cap("auto")
    config.set_prefetch_distance("auto")
    tuning.forget()
    yield
    config._settings.gather_thread_cap = before
    config.set_prefetch_distance("auto")
    config.set_populate_policy("auto")
    tuning.forget()


def damage(target, **changes):
    path = tuning.cache_path(target)
    payload = json.loads(path.read_text())
    payload.update(changes)
    path.write_text(json.dumps(payload))


# -- precedence


def test_without_anything_the_defaults_hold():
    assert config.get_gather_thread_cap() == tuning._default_thread_cap()
    assert tuning.prefetch_distance(1000, ROWS, ROWS) == config.DEFAULT_PREFETCH_DISTANCE


def test_a_calibration_beats_the_default_and_a_setting_beats_both():
    tuning.save("threads", 3, {})
    tuning.save("prefetch", DISTANCES, {})
    assert config.get_gather_thread_cap() == 3
    assert tuning.prefetch_distance(1000, ROWS, ROWS) == 0
    config.set_gather_thread_cap(5)
    config.set_prefetch_distance(7)
    assert config.get_gather_thread_cap() == 5
    assert tuning.prefetch_distance(1000, ROWS, ROWS) == 7
    config.set_gather_thread_cap("auto")
    config.set_prefetch_distance("auto")
    assert config.get_gather_thread_cap() == 3
    assert tuning.prefetch_distance(1000, ROWS, ROWS) == 0


def test_the_distance_follows_size_and_order(monkeypatch):
    tuning.save("prefetch", DISTANCES, {})
    monkeypatch.setattr(tuning, "last_level_cache", lambda: 1_000_000)
    descending = ROWS[::-1].copy()
    one = np.empty(0, "f8")
    assert (
        tuning.prefetch_distance(125_000, descending, one) == 4
    )  # as large as the cache still counts as within
    assert tuning.prefetch_distance(125_000, ROWS, one) == 0
    assert tuning.prefetch_distance(125_001, descending, one) == 32
    assert tuning.prefetch_distance(125_001, ROWS, one) == 64
    assert tuning.prefetch_distance(125_000, descending, [one, np.empty(0, "i1")]) == 32
    assert tuning.prefetch_distance(125_001, ROWS[:10], one) == 32  # few rows are not looked at


def test_the_file_is_read_on_first_use_and_once():
    tuning.save("threads", 3, {})
    assert config.get_gather_thread_cap() == 3
    tuning.cache_path("threads").unlink()
    assert config.get_gather_thread_cap() == 3
    tuning.forget()
    assert config.get_gather_thread_cap() == tuning._default_thread_cap()


def test_import_and_open_read_no_calibration(tmp_path):
    cs.store({"a": np.arange(3)}, tmp_path / "t.cstore").close()
    code = (
        "import sys, colstore_io as cs\n"
        "from colstore_io import tuning\n"
        f"cs.open({str(tmp_path / 't.cstore')!r}).close()\n"
        "print(tuning._known)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{}"


def test_clear_removes_the_file_and_goes_back_to_the_default():
    tuning.save("threads", 3, {})
    assert config.get_gather_thread_cap() == 3
    assert tuning.clear() == {"threads": True, "prefetch": False, "populate": False}
    assert config.get_gather_thread_cap() == tuning._default_thread_cap()
    assert tuning.clear() == dict.fromkeys(tuning.TARGETS, False)


def test_clear_can_leave_this_process_alone():
    tuning.apply("prefetch", DISTANCES)
    tuning.save("prefetch", DISTANCES, {})
    assert tuning.clear(["prefetch"], in_process=False) == {"prefetch": True}
    assert tuning.prefetch_distance(10, ROWS, ROWS) == 0


# -- the file


def test_a_saved_calibration_says_when_and_on_what():
    assert tuning.save("prefetch", DISTANCES, {"dram_sorted": {"0": 1.5}}) == tuning.cache_path("prefetch")
    payload = json.loads(tuning.cache_path("prefetch").read_text())
    assert payload["fingerprint"] == tuning.fingerprint()
    assert payload["prefetch_distances"] == DISTANCES
    assert payload["measurements"] == {"dram_sorted": {"0": 1.5}}
    assert payload["calibration_version"] == tuning.CALIBRATION_VERSION
    known = tuning.inspect("prefetch")
    assert (known.status, known.result, known.timestamp) == ("match", DISTANCES, payload["timestamp"])
    assert os.listdir(tuning.cache_directory()) == ["prefetch.json"]


def test_the_fingerprint_names_processor_cores_and_system():
    version, processor, physical, logical, system = tuning.fingerprint().split("|")
    assert version == "v1"
    assert processor
    assert physical.startswith("phys=")
    assert logical == f"log={os.cpu_count()}"
    assert system


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"fingerprint": "v1|another|phys=1|log=1|Linux"}, "foreign"),
        ({"calibration_version": 99}, "foreign"),
        ({"usable_cores": -1}, "foreign"),
        ({"fingerprint": 7}, "broken"),
        ({"thread_cap": 0}, "broken"),
        ({"thread_cap": True}, "broken"),
        ({"thread_cap": 2.0}, "broken"),
        ({"thread_cap": None}, "broken"),
        ({"thread_cap": 1 << 60}, "broken"),
    ],
)
def test_what_does_not_fit_is_ignored(changes, status):
    tuning.save("threads", 3, {})
    damage("threads", **changes)
    assert tuning.inspect("threads").status == status
    assert config.get_gather_thread_cap() == tuning._default_thread_cap()


@pytest.mark.parametrize(
    "table", [None, [], {}, {**DISTANCES, "more": 1}, {**DISTANCES, "dram_sorted": -1}, {"dram_sorted": 1}]
)
def test_a_table_of_distances_is_whole_or_ignored(table):
    tuning.save("prefetch", table, {})
    assert tuning.inspect("prefetch").status == "broken"
    assert tuning.prefetch_distance(10, ROWS, ROWS) == config.DEFAULT_PREFETCH_DISTANCE


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"[" * 200_000,
        b" " * (tuning.MAX_CACHE_BYTES + 1),
        b"1" * 5000,
    ],
    ids=["empty", "cut", "encoding", "list", "null", "nested", "oversized", "digits"],
)
def test_broken_files_are_ignored(data):
    path = tuning.cache_path("threads")
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    assert tuning.inspect("threads").status == "broken"
    assert config.get_gather_thread_cap() == tuning._default_thread_cap()


@given(data=st.binary(max_size=200))
def test_no_bytes_in_the_file_raise(data):
    path = tuning.cache_path("prefetch")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    assert tuning.inspect("prefetch").status == "broken"


def test_a_large_valid_file_is_not_read():
    tuning.save("threads", 3, {"padding": "x" * tuning.MAX_CACHE_BYTES})
    assert tuning.inspect("threads").status == "broken"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_folder_or_a_pipe_in_its_place_is_ignored():
    path = tuning.cache_path("threads")
    path.mkdir(parents=True)
    assert tuning.inspect("threads").status == "broken"
    path.rmdir()
    os.mkfifo(path)
    assert tuning.inspect("threads").status == "broken"


def test_a_folder_that_cannot_be_written_fails_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert tuning.save("threads", 3, {}) is None


def test_a_relative_cache_home_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tuning.cache_directory() == tmp_path / ".cache" / "colstore_io"


def test_unknown_targets_are_refused():
    with pytest.raises(ValueError, match="target"):
        tuning.cache_path("../threads")


# -- hints


def test_the_sampler_only_rejects():
    assert tuning.looks_sorted(ROWS)
    assert tuning.looks_sorted(ROWS[:1])
    assert not tuning.looks_sorted(ROWS[::-1].copy())
    assert not tuning.looks_sorted(np.array([2, 1]))
    assert not tuning.looks_sorted(np.random.default_rng(0).permutation(1 << 16))


def test_the_populate_policy_is_set_or_calibrated_or_auto():
    assert tuning.populate_policy() == "auto"
    tuning.forget()
    tuning.save("populate", "populate", {})
    assert tuning.populate_policy() == "populate"
    config.set_populate_policy("willneed")
    assert tuning.populate_policy() == "willneed"


@pytest.mark.parametrize("value", ["auto", "", None, ["none"], 1])
def test_a_calibrated_policy_that_is_none_of_ours_is_ignored(value):
    tuning.save("populate", value, {})
    assert tuning.inspect("populate").status == "broken"
    assert tuning.populate_policy() == "auto"


def test_bad_policies_are_refused():
    with pytest.raises(ValueError, match="populate_policy"):
        config.set_populate_policy("sequential")
    with pytest.raises(ValueError, match="numa policy"):
        config.set_numa_policy("magic")


@pytest.mark.parametrize("distance", [0, 1, 96, 16384])
def test_no_distance_changes_a_result(tmp_path, distance):
    values = np.random.default_rng(1).random(50_000)
    rows = np.random.default_rng(2).integers(0, 50_000, 20_000)
    config.set_prefetch_distance(distance)
    with cs.store({"a": values}, tmp_path / "t.cstore") as table:
        np.testing.assert_array_equal(table[rows, "a"].array(), values[rows])
