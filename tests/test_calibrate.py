"""Calibration: what is picked from which times. Nothing here depends on how fast a machine is."""

from __future__ import annotations

import itertools
import json
import statistics
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colstore_io import calibrate, config, threads, tuning
from colstore_io.cli import main


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tuning.forget()
    yield
    tuning.forget()


times = st.floats(1e-6, 1e3, allow_nan=False)
tables = st.dictionaries(st.integers(0, 512), times, min_size=1, max_size=12)


# -- picking


@given(tables)
def test_the_pick_is_nearly_as_fast_as_the_best_and_nothing_smaller_is(seconds):
    chosen = calibrate.pick(seconds)
    limit = min(seconds.values()) / calibrate.NEARLY
    assert seconds[chosen] <= limit
    assert all(taken > limit for candidate, taken in seconds.items() if candidate < chosen)


@given(tables, st.floats(0.1, 10))
def test_the_pick_does_not_depend_on_the_unit(seconds, unit):
    near = [
        taken
        for taken in seconds.values()
        if abs(taken * calibrate.NEARLY / min(seconds.values()) - 1) < 1e-9
    ]
    if not near:
        assert calibrate.pick({c: taken * unit for c, taken in seconds.items()}) == calibrate.pick(seconds)


@given(tables, times)
def test_a_slower_candidate_changes_nothing(seconds, extra):
    chosen = calibrate.pick(seconds)
    assert calibrate.pick({**seconds, 1000: max(extra, min(seconds.values()))}) == chosen


def test_a_flat_curve_picks_the_smallest_and_a_steep_one_the_best():
    assert calibrate.pick({1: 1.04, 2: 1.0, 4: 1.0}) == 1
    assert calibrate.pick({1: 1.06, 2: 1.0, 4: 1.0}) == 2
    assert calibrate.pick({1: 4.0, 2: 2.0, 4: 1.0}) == 4


# -- sweeps


class Script:
    """A clock and a workload: a run of candidate c takes as long as `cost` says."""

    def __init__(self, cost):
        self.cost, self.now, self.calls = cost, 0.0, []

    def clock(self):
        return self.now

    def run(self, candidate):
        self.now += self.cost(candidate, len(self.calls))
        self.calls.append(candidate)


@given(st.integers(1, 6), st.integers(0, 3), st.integers(1, 5))
def test_every_round_runs_every_candidate_once(rounds, warmup, n):
    script = Script(lambda candidate, call: candidate + 1)
    candidates = range(n)
    seconds = calibrate.sweep(candidates, script.run, rounds=rounds, warmup=warmup, clock=script.clock)
    assert seconds == {c: [c + 1] * rounds for c in candidates}
    assert len(script.calls) == (rounds + warmup) * n
    for begin in range(0, len(script.calls), n):
        assert sorted(script.calls[begin : begin + n]) == list(candidates)


def test_warm_up_rounds_do_not_count():
    script = Script(lambda candidate, call: 100 if call < 4 else candidate)
    seconds = calibrate.sweep((1, 2), script.run, rounds=3, warmup=2, clock=script.clock)
    assert seconds == {1: [1, 1, 1], 2: [2, 2, 2]}


def test_rounds_do_not_always_begin_with_the_same_candidate():
    script = Script(lambda candidate, call: 1)
    calibrate.sweep((1, 2, 3), script.run, rounds=3, warmup=0, clock=script.clock)
    assert {script.calls[0], script.calls[3], script.calls[6]} == {1, 2, 3}


@pytest.mark.parametrize(
    "arguments", [{"rounds": 0}, {"warmup": -1}, {"candidates": ()}], ids=["rounds", "warmup", "nothing"]
)
def test_impossible_sweeps_are_refused(arguments):
    with pytest.raises(ValueError):
        calibrate.sweep(**{"candidates": (1,), "run": lambda c: None, **arguments})


# -- stability


@given(
    st.dictionaries(st.integers(0, 9), st.lists(times, min_size=6, max_size=6), min_size=1), st.integers(0, 3)
)
def test_unstable_means_that_the_halves_pick_further_apart_than_tolerated(seconds, tolerance):
    order = sorted(seconds)
    first = calibrate.pick({c: statistics.median(t[:3]) for c, t in seconds.items()})
    second = calibrate.pick({c: statistics.median(t[3:]) for c, t in seconds.items()})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chosen = calibrate.decide("threads", "", seconds, tolerance)
    assert chosen == calibrate.pick({c: statistics.median(t) for c, t in seconds.items()})
    assert bool(caught) == (abs(order.index(first) - order.index(second)) > tolerance)
    assert all("unstable" in str(w.message) and w.category is UserWarning for w in caught)


def test_a_single_round_has_no_halves():
    assert calibrate.half_picks({1: [1.0], 2: [5.0]}) is None
    assert calibrate.decide("threads", "", {1: [1.0], 2: [5.0]}, 0) == 1


# -- targets


@pytest.mark.parametrize(
    ("most", "want"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (48, (1, 2, 4, 8, 16, 32, 48))]
)
def test_thread_candidates_reach_the_last_core(most, want):
    assert calibrate.thread_candidates(most) == want


def ticking():
    """A clock on which everything takes equally long."""
    return itertools.count().__next__


@pytest.fixture
def _tiny(monkeypatch):
    monkeypatch.setattr(
        calibrate, "_sizes", lambda quick: calibrate._Sizes(1000, 500, 8000, 16000, 300, 1000)
    )


@pytest.mark.usefixtures("_tiny")
def test_results_are_used_at_once_and_kept():
    results = calibrate.calibrate(["populate", "prefetch", "threads"], rounds=2, clock=ticking())
    assert list(results) == ["threads", "prefetch", "populate"]  # whatever the order given
    assert results["threads"].value == 1
    assert results["prefetch"].value == dict.fromkeys(tuning.REGIMES, 0)
    assert config.get_gather_thread_cap() == 1
    assert results["populate"].value == "read"
    assert config.get_populate_policy() == "auto"
    for target, result in results.items():
        known = tuning.inspect(target)
        assert (known.status, known.result, str(known.path)) == ("match", result.value, result.path)
    measured = json.loads(tuning.cache_path("prefetch").read_text())["measurements"]
    assert set(measured) == set(tuning.REGIMES)
    assert set(measured["dram_sorted"]) == set(map(str, calibrate.PREFETCH_CANDIDATES))


@pytest.mark.usefixtures("_tiny")
def test_results_that_are_not_kept_hold_in_this_process():
    results = calibrate.calibrate(["threads"], rounds=1, persist=False, clock=ticking())
    assert results["threads"].path is None
    assert config.get_gather_thread_cap() == 1
    assert not tuning.cache_directory().exists()


@pytest.mark.usefixtures("_tiny")
def test_ensure_calibrated_measures_once(monkeypatch):
    first = calibrate.ensure_calibrated(["threads"])
    monkeypatch.setattr(calibrate, "calibrate", None)
    tuning.forget()
    assert calibrate.ensure_calibrated(["threads"]) == first
    assert tuning._known == first


@pytest.mark.usefixtures("_tiny")
def test_no_more_threads_are_tried_than_this_process_may_use(monkeypatch):
    monkeypatch.setattr(threads, "budget", lambda: 1)
    result = calibrate.calibrate(["threads"], rounds=1, persist=False, clock=ticking())["threads"]
    assert list(result.measurements) == ["1"]


def test_wrong_arguments_are_refused_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr(calibrate, "_MEASURE", {})
    with pytest.raises(ValueError, match="target"):
        calibrate.calibrate(["threads", "disk"])
    with pytest.raises(ValueError, match="rounds"):
        calibrate.calibrate(rounds={"prefetch": 0})


def test_gathers_that_are_timed_are_real():
    source = np.random.default_rng(0).random(1000)
    run = calibrate._take(source, np.arange(999, -1, -1), 1)
    run(prefetch=16)
    outputs = [cell.cell_contents for cell in run.__closure__ or ()]
    assert any(isinstance(out, np.ndarray) and np.array_equal(out, source[::-1]) for out in outputs)


# -- command line


def test_calibrate_run_show_clear(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a busy machine
        assert main(["calibrate", "run", "--quick", "--rounds", "1", "--prefetch-rounds", "2"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == ["threads", "prefetch", "populate"]
    assert main(["calibrate", "show"]) == 0
    out = capsys.readouterr().out
    assert tuning.fingerprint() in out
    assert out.count("  match  ") == 3
    assert str(tuning.cache_path("threads")) in out
    assert main(["calibrate", "clear", "threads"]) == 0
    assert capsys.readouterr().out == "threads: removed\n"
    assert main(["calibrate", "show", "threads"]) == 0
    assert "missing" in capsys.readouterr().out
    assert main(["calibrate", "clear"]) == 0
    assert capsys.readouterr().out == "threads: there was nothing\nprefetch: removed\npopulate: removed\n"


@pytest.mark.usefixtures("_tiny")
def test_calibrate_run_without_keeping(capsys):
    assert main(["calibrate", "run", "threads", "--rounds", "1", "--no-persist"]) == 0
    assert "not kept" in capsys.readouterr().out
    assert tuning.inspect("threads").status == "missing"


def test_calibrate_errors(capsys):
    assert main(["calibrate", "run", "threads", "--rounds", "0"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("colstore-io calibrate: ")
    assert error.count("\n") == 1
    for arguments in (["calibrate"], ["calibrate", "run", "disk"], ["calibrate", "fly"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
