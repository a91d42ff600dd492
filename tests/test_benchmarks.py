"""The guard of performance: what is compared, what is recorded, what is drawn. Nothing is timed here."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import xml.dom.minidom
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


def load(folder: str, name: str) -> ModuleType:
    """Import a program of the repository under a name of its own; its neighbours are found as when it runs."""
    spec = importlib.util.spec_from_file_location(f"repository_{name}", ROOT / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    path = sys.path.copy()
    sys.path.insert(0, str(ROOT / folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = path
    return module


report = load("benchmarks", "report")
plot = load("benchmarks", "plot")
quoted = load("benchmarks", "quoted")
measure = load("benchmarks", "measure")
counts = load("tools", "count_instructions")


def rows_of(workload: str = "gather", **medians: float) -> list[dict[str, Any]]:
    samples = {name: [median, median * 1.5] for name, median in medians.items()}
    rows: list[dict[str, Any]] = report.summarise(workload, "core", "s", samples, medians)
    return rows


def run_of(rows: list[dict[str, Any]], **changed: Any) -> dict[str, Any]:
    return {
        "date": "2026-01-02",
        "machine": {"processor": "P", "cores": 2, "system": "Linux x86_64"},
        "compiler": "gcc",
        "versions": {"python": "3.11"},
        "settings": {"rows": 100, "records": 10, "shards": 2, "rounds": 3},
        "gate": 0.6,
        "left_out": [],
        "results": rows,
        **changed,
    }


class TestRatios:
    def test_rows_are_compared_with_the_best_peer_the_limits_and_colstore(self) -> None:
        rows = rows_of(ours=2.0, colstore=6.0, parquet=4.0, limit=1.0, limit_c=0.5)
        assert [row["system"] for row in rows] == ["limit_c", "limit", "ours", "parquet", "colstore"]
        ours = rows[2]
        assert ours["to_best_peer"] == 0.5
        assert ours["to_limit"] == 2.0
        assert ours["to_limit_c"] == 4.0
        assert ours["colstore_to_this"] == 3.0
        assert ours["minimum"] == 2.0
        assert ours["rounds"] == 2

    def test_what_is_missing_is_no_ratio(self) -> None:
        (ours,) = rows_of(ours=2.0)
        assert [ours[key] for key in ("to_best_peer", "to_limit", "to_limit_c", "colstore_to_this")] == [
            None
        ] * 4

    def test_columns_are_compared_with_parquet_zstd_and_with_their_targets(self) -> None:
        rows = rows_of(ours=2.0, parquet_zstd1=4.0, parquet_none=1.0)
        assert {row["system"]: row["to_zstd"] for row in rows} == {
            "ours": 0.5,
            "parquet_zstd1": 1.0,
            "parquet_none": 0.25,
        }
        assert report.missed(rows, {"gather": 0.6}) == []
        assert report.missed(rows, {"other": 0.1}) == []
        assert report.missed(rows, {"gather": 0.4}) == ["gather: 0.5 x parquet_zstd1, the target is 0.4"]

    def test_goals_that_are_missed_are_named(self) -> None:
        rows = [*rows_of("open", ours=2.0, zarr=5.0, h5netcdf=30.0), *rows_of("slice", zarr=1.0)]
        goals = {"open": {"zarr": 2.5, "h5netcdf": 20.0, "netcdf4": 9.0}, "slice": {"zarr": 3.0}}
        assert report.behind(rows, goals) == ["open: 15 x h5netcdf, the goal is 20"]
        assert report.behind(rows, {"open": {"zarr": 2.6}}) == ["open: 2.5 x zarr, the goal is 2.6"]
        assert report.behind(rows, {}) == []

    def test_where_nobody_waits_for_the_disk_ours_unsynced_is_compared(self) -> None:
        rows = rows_of("write", ours=4.0, ours_unsynced=1.0, netcdf4=2.0, colstore_unsynced=3.0)
        assert report.speeds(rows) == {("write", "colstore"): 3.0}
        assert report.behind(rows, {"write": {"netcdf4": 1.9}}) == []
        assert report.behind(rows, {"write": {"netcdf4": 2.5}}) == ["write: 2 x netcdf4, the goal is 2.5"]
        assert {row["system"]: row["to_best_peer"] for row in rows}["ours_unsynced"] == 0.5
        assert plot.relative(rows)["write"]["ours"] == 4.0
        text = plot.table([*rows, *rows_of("open", ours=1.0, netcdf4=5.0)])
        assert "ours (durable) / ours" in text
        assert "| write | 1e+03 ms, unsynced | 4.00 | 3.00 | 2.00 |" in text
        assert "| open | 1e+03 ms |  |  | 5.00 |" in text

    def test_a_fall_of_more_than_ten_percent_is_named(self) -> None:
        recorded = rows_of(ours=1.0, colstore=2.0, limit_c=0.5)
        (line,) = report.fallen(rows_of(ours=1.0, colstore=1.7, limit_c=0.5), recorded)
        assert line == "gather: 1.70 x colstore, recorded 2.00 x (-15%)"

    def test_the_worst_fall_comes_first_and_both_yardsticks_count(self) -> None:
        recorded = rows_of(ours=1.0, colstore=2.0, limit_c=0.5)
        lines = report.fallen(rows_of(ours=1.0, colstore=1.7, limit_c=0.2), recorded)
        assert ["limit_c" in line for line in lines] == [True, False]

    @pytest.mark.parametrize("colstore", [1.81, 2.0, 40.0])
    def test_small_falls_and_gains_are_not_named(self, colstore: float) -> None:
        assert report.fallen(rows_of(ours=1.0, colstore=colstore), rows_of(ours=1.0, colstore=2.0)) == []

    def test_a_machine_of_another_speed_is_not_a_fall(self) -> None:
        slow = rows_of(ours=10.0, colstore=20.0, limit_c=5.0)
        assert report.fallen(slow, rows_of(ours=1.0, colstore=2.0, limit_c=0.5)) == []

    def test_workloads_that_only_one_side_has_are_not_compared(self) -> None:
        recorded = [*rows_of("mask", ours=1.0, colstore=9.0), *rows_of(ours=1.0, limit_c=0.5)]
        assert report.fallen(rows_of(ours=1.0, colstore=2.0), recorded) == []

    @pytest.mark.parametrize(("gate", "usable"), [(0.55, True), (0.7, True), (0.71, False), (None, False)])
    def test_the_gate_says_whether_a_run_can_be_trusted(self, gate: float | None, usable: bool) -> None:
        assert report.usable_gate(gate) is usable


class TestRecord:
    def test_what_is_saved_is_loaded(self, tmp_path: Path) -> None:
        run = run_of([*rows_of(ours=1.0, colstore=2.0), *rows_of("mask", ours=1.0)])
        report.save(run, tmp_path / "results.json")
        assert report.load(tmp_path / "results.json") == run

    def test_a_setting_that_came_later_is_no_difference(self) -> None:
        recorded = run_of([*rows_of(ours=1.0), *rows_of("mask", ours=1.0)])
        settings = {**recorded["settings"], "grid": "10x9x8"}
        merged = report.merge(recorded, run_of(rows_of(ours=3.0), settings=settings))
        assert merged["settings"] == settings
        assert len(merged["results"]) == 2

    def test_a_run_without_results_is_saved_too(self, tmp_path: Path) -> None:
        report.save(run_of([]), tmp_path / "results.json")
        assert report.load(tmp_path / "results.json") == run_of([])

    def test_nothing_recorded_is_none(self, tmp_path: Path) -> None:
        assert report.load(tmp_path / "results.json") is None

    def test_workloads_that_were_not_measured_stay(self) -> None:
        recorded = run_of([*rows_of(ours=1.0), *rows_of("mask", ours=1.0)])
        merged = report.merge(recorded, run_of(rows_of(ours=3.0), date="2026-02-03"))
        assert {row["workload"]: row["median"] for row in merged["results"]} == {"gather": 3.0, "mask": 1.0}
        assert merged["date"] == "2026-02-03"

    @pytest.mark.parametrize("other", [{"machine": {"cores": 64}}, {"settings": {"rows": 7}}])
    def test_results_of_two_machines_or_sizes_are_never_mixed(self, other: dict[str, Any]) -> None:
        recorded = run_of([*rows_of(ours=1.0), *rows_of("mask", ours=1.0)])
        with pytest.raises(ValueError, match="1 recorded workloads were not measured now"):
            report.merge(recorded, run_of(rows_of(ours=3.0), **other))
        whole = run_of([*rows_of(ours=3.0), *rows_of("mask", ours=3.0)], **other)
        assert report.merge(recorded, whole) == whole


class TestMeasuring:
    def test_a_wrong_result_is_left_out_loudly(self, capsys: pytest.CaptureFixture[str]) -> None:
        jobs = [
            measure.Job("right", lambda: 1.0),
            measure.Job("wrong", lambda: 2.0),
            measure.Job("broken", dict.popitem),
        ]
        done = measure.run_jobs(jobs, want=1.0, rounds=2, budget_seconds=1.0)
        assert [job.system for job in done] == ["right"]
        assert len(done[0].samples) == 2
        assert jobs[1].problem.startswith("wrong result: ")
        assert "LEFT OUT: wrong: wrong result" in capsys.readouterr().err

    def test_a_job_may_measure_itself(self) -> None:
        values = iter([9.0, 3.0, 1.0, 2.0])
        (job,) = measure.run_jobs(
            [measure.Job("peak", lambda: next(values), measures_itself=True)],
            want=None,
            rounds=3,
            budget_seconds=1.0,
        )
        assert job.samples == [3.0, 1.0, 2.0]
        assert job.median == 2.0


class TestGridFamily:
    SYSTEMS = ("ours", "zarr", "netcdf4", "h5netcdf")
    WORKLOADS = (
        "grid_time_open",
        "grid_time_append",
        "grid_tile_points",
        "grid_tile_mean",
        "grid_tile_write",
    )

    def test_goals_name_systems_that_there_are(self) -> None:
        workloads, systems = load("benchmarks", "workloads"), load("benchmarks", "systems")
        for workload in workloads.WORKLOADS.values():
            assert set(workload.goals) <= set(systems.SYSTEMS)

    @pytest.mark.slow
    def test_a_small_run_measures_every_system_and_checks_what_it_read(self, tmp_path: Path) -> None:
        for package in ("xarray", "dask", "zarr", "netCDF4", "h5netcdf", "h5py"):
            pytest.importorskip(package)
        command = [
            sys.executable,
            "-W",
            "ignore",
            "benchmarks/run.py",
            "--only=" + ",".join(self.WORKLOADS),
            "--grid=20x9x12",
            "--rows=1000",
        ]
        command += [
            f"--systems={','.join((*self.SYSTEMS, 'ours_unsynced'))}",
            "--rounds=1",
            f"--json={tmp_path / 'run.json'}",
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=150)
        run = report.load(tmp_path / "run.json")
        assert run["left_out"] == [], done.stderr
        measured: dict[str, set[str]] = {}
        for row in run["results"]:
            measured.setdefault(row["workload"], set()).add(row["system"])
        assert len(measured) == 8
        for name, systems in measured.items():
            assert set(self.SYSTEMS) <= systems
            nobody_waits = name.endswith(("_write", "_append"))
            assert ("ours_unsynced" in systems) is nobody_waits

    def test_each_writing_workload_has_peers_that_do_the_same(self) -> None:
        workloads, systems = load("benchmarks", "workloads").WORKLOADS, load("benchmarks", "systems").SYSTEMS
        unsynced = {"ours_unsynced", "colstore_unsynced"}

        def part(workload: str) -> set[str]:
            needs = workloads[workload].needs
            return {
                n
                for n, s in systems.items()
                if all(getattr(s, need, None) not in (None, "") for need in needs)
            }

        assert part("append_records_unsynced") == part("compact_unsynced") == unsynced
        for name in (
            "append_records",
            "compact",
            "write_durable",
            "grid_time_write_durable",
            "grid_time_append_durable",
        ):
            assert not part(name) & unsynced
            assert "ours" in part(name)
        for name in ("write", "grid_time_write", "grid_tile_write", "grid_time_append"):
            assert part(name) >= {"ours", "ours_unsynced"}
        reading = [
            name
            for name, w in workloads.items()
            if w.group in ("core", "open", "cold", "xarray", "dask", "columns")
        ]
        assert not any(part(name) & unsynced for name in [*reading, "grid_tile_points", "grid_time_open"])


class TestPage:
    ROWS = (*rows_of(ours=1.0, colstore=2.0, limit_c=0.5), *rows_of("mask", colstore=2.0, ours=0.001))

    def test_a_plot_has_a_line_for_each_workload_and_a_mark_for_each_system(self) -> None:
        text = plot.svg("A <family>", plot.relative(self.ROWS))
        root = xml.dom.minidom.parseString(text).documentElement
        assert root is not None
        words = [node.firstChild.data for node in root.getElementsByTagName("text")]  # type: ignore[union-attr]
        assert {"A <family>", "gather", "mask", "colstore_io", "limit_c"} <= set(words)
        marks = root.getElementsByTagName("title")
        assert len(marks) == 3 + 3 + 2  # the legend, two lines

    def test_marks_lie_on_the_axis(self) -> None:
        assert plot.decades([0.001, 1.0, 2000.0]) == (-3, 4)
        assert plot.decades([1.0]) == (-1, 1)

    def test_the_page_links_plots_and_says_how_to_reproduce_them(self) -> None:
        text = plot.page(run_of(list(self.ROWS), left_out=["gather: zarr: wrong result"]), "performance")
        assert "![core](performance/core.svg)" in text
        assert "| gather | 1e+03 ms | 2.00 | 0.50 |" in text
        assert "make bench" in text
        assert "zarr: wrong result" in text

    def test_a_run_with_a_bad_gate_is_marked(self) -> None:
        assert "with care" in plot.page(run_of(list(self.ROWS), gate=0.9), "p")
        assert "with care" not in plot.page(run_of(list(self.ROWS)), "p")

    def test_the_page_in_the_repository_is_what_the_script_makes(self, tmp_path: Path) -> None:
        made = plot.page(report.load(ROOT / "benchmarks" / "results.json"), "performance")
        assert (ROOT / "docs" / "performance.md").read_text() == made

    @pytest.mark.parametrize("name", quoted.PAGES)
    def test_numbers_that_a_page_quotes_are_the_recorded_ones(self, name: str) -> None:
        run = report.load(ROOT / "benchmarks" / "results.json")
        text = (ROOT / name).read_text()
        assert "<!-- recorded:" in text
        assert quoted.filled(text, run) == text, "run python benchmarks/plot.py"

    def test_blocks_are_filled_on_lines_of_their_own_or_within_one(self) -> None:
        run = run_of(
            [
                *rows_of("open_records", ours=0.008, ours_indexed=0.0007),
                *rows_of("read_one", ours=1.0, colstore=2.56),
            ]
        )
        made = quoted.filled("* <!-- recorded: open-records -->old<!-- end of recorded -->", run)
        assert "10 records open in 700 us instead of 8 ms." in made
        made = quoted.filled("<!-- recorded: speed -->\nold\n<!-- end of recorded -->", run)
        assert "| one column of one file | `colstore` 0.5.1, all its threads | 2.6 |" in made
        assert "old" not in made
        assert quoted.filled(made, run) == made

    @pytest.mark.parametrize(
        "text", ["<!-- recorded: speed -->", "<!-- recorded: nothing -->x<!-- end of recorded -->"]
    )
    def test_a_block_without_an_end_or_of_another_name_is_an_error(self, text: str) -> None:
        with pytest.raises(ValueError, match="block"):
            quoted.filled(text, run_of(list(self.ROWS)))


class TestInstructionCounts:
    RECORDED = {"portable": {"gather": 1000}, "avx2": {"gather": 1000}}  # noqa: RUF012

    def test_equal_and_slightly_larger_counts_pass(self) -> None:
        verdict = counts.compare({"portable": {"gather": 1150}, "avx2": {"gather": 900}}, self.RECORDED)
        assert verdict == counts.Verdict([], [])

    def test_a_kernel_that_grew_by_more_than_15_percent_fails(self) -> None:
        verdict = counts.compare({"portable": {"gather": 1151}, "avx2": {"gather": 1000}}, self.RECORDED)
        assert verdict.failures == ["gather (portable) grew from 1000 to 1151 instructions: +15%"]

    def test_a_kernel_without_a_recorded_number_fails(self) -> None:
        verdict = counts.compare({"portable": {"gather": 1, "new": 1}}, {"portable": {"gather": 1}})
        assert verdict.failures == ["new (portable) has no recorded number"]

    def test_a_gain_and_a_missing_path_are_noted(self) -> None:
        verdict = counts.compare({"portable": {"gather": 500}}, self.RECORDED)
        assert verdict.failures == []
        assert len(verdict.notes) == 2

    def test_recording_keeps_the_numbers_of_other_compilers(self, tmp_path: Path) -> None:
        file = tmp_path / "instructions.json"
        counts.record({"portable": {"gather": 1}}, "gcc 1", file)
        counts.record({"portable": {"gather": 2}}, "gcc 2", file)
        counts.record({"portable": {"gather": 3}}, "gcc 2", file)
        assert json.loads(file.read_text()) == {
            "gcc 1": {"portable": {"gather": 1}},
            "gcc 2": {"portable": {"gather": 3}},
        }

    def test_the_total_is_read_from_what_callgrind_writes(self) -> None:
        assert counts.parse_count("events: Ir\nfn=(1)\n1 2\ntotals: 123\n") == 123
        for nothing in ("", "totals: 0\n"):
            with pytest.raises(ValueError, match="counted nothing"):
                counts.parse_count(nothing)

    def test_every_kernel_has_a_recorded_number(self) -> None:
        recorded = json.loads((ROOT / "benchmarks" / "instructions.json").read_text())
        for paths in recorded.values():
            assert set(paths["portable"]) == set(counts.KERNELS)

    @pytest.mark.timeout(600)
    def test_the_driver_checks_its_results(self, tmp_path: Path) -> None:
        cc = counts.compiler()
        flags = ["-O1" if flag == "-O3" else flag for flag in counts.FLAGS]  # compiled in a third of the time
        try:
            counts.compile_driver(cc, tmp_path / "driver", flags)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no C compiler")
        for threads in ("1", "3"):
            done = subprocess.run(
                [tmp_path / "driver", "all", "all", threads], capture_output=True, check=True
            )
            assert b"right" in done.stdout
        assert (
            subprocess.run([tmp_path / "driver", "gather_nothing", "all", "1"], check=False).returncode == 3
        )


def test_engine_that_does_nothing_shows_what_ours_stored(tmp_path):
    xr = pytest.importorskip("xarray")
    pytest.importorskip("dask")
    importlib.import_module("colstore_io.integrations.xarray")  # registers ds.colstore

    stored = xr.Dataset({"t": (("x", "y"), np.arange(12.0).reshape(4, 3))}, {"x": np.arange(4)})
    stored.colstore.to_colstore(tmp_path / "a", chunks={"x": 2})
    engine = load("benchmarks", "xarray_limit").InMemory
    for chunks in (None, {}):
        found = xr.open_dataset(str(tmp_path / "a"), engine=engine, chunks=chunks)
        xr.testing.assert_identical(found.load(), stored)
    assert xr.open_dataset(str(tmp_path / "a"), engine=engine, chunks={}).chunks["x"] == (2, 2)
