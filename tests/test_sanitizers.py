"""Every kernel is among those that the sanitizers run over, and those whose instructions are counted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from test_benchmarks import counts, load

ROOT = Path(__file__).resolve().parents[1]
sanitize = load("tools", "sanitize")


def test_every_kernel_has_tests_under_the_sanitizers() -> None:
    kernels = {path.stem for path in (ROOT / "cython_kernels").glob("*.pyx")}
    assert set(sanitize.KERNEL_TESTS) == kernels
    for files in sanitize.KERNEL_TESTS.values():
        assert files
        for file in files:
            assert (ROOT / file).is_file(), file


def test_every_test_of_kernels_runs_under_the_sanitizers() -> None:
    listed = {file for files in sanitize.KERNEL_TESTS.values() for file in files}
    assert {f"tests/kernels/{path.name}" for path in (ROOT / "tests/kernels").glob("test_*.py")} <= listed


def test_every_kernel_of_the_driver_is_counted() -> None:
    table = (ROOT / "tests" / "kernels" / "driver.c").read_text().split("KERNELS[] = {")[1].split("};")[0]
    known = set(re.findall(r'\{"(\w+)"', table))
    # A search is a gather whose buckets found no memory; damage has no size of its own.
    assert known - set(counts.KERNELS) == {"gather_search", "damaged", "damaged_records"}
    assert set(counts.KERNELS) <= known
    assert set(counts.VERSIONED) <= set(counts.KERNELS)


def test_each_recorded_number_guards_its_kernel() -> None:
    for recorded in json.loads(counts.RECORD.read_text()).values():
        for path, kernels in recorded.items():
            for kernel, before in kernels.items():
                grown = {path: {**kernels, kernel: int(before * 1.16) + 1}}
                (failure,) = counts.compare(grown, recorded).failures
                assert failure.startswith(f"{kernel} ({path}) grew from {before}")
        assert set(recorded.get("avx2", counts.VERSIONED)) == set(counts.VERSIONED)


def test_a_kernel_that_grew_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "RECORD", tmp_path / "instructions.json")
    monkeypatch.setattr(counts.shutil, "which", lambda program: program)
    monkeypatch.setattr(counts, "compiler_version", lambda cc: "gcc 1")
    now = dict.fromkeys(counts.KERNELS, 1000)
    monkeypatch.setattr(counts, "count_all", lambda cc: {"portable": now})
    report = tmp_path / "report.json"
    for outcome, before in (("passed", 1000), ("failed", 860)):
        counts.record({"portable": {**now, "footer": before}}, "gcc 1", counts.RECORD)
        monkeypatch.setattr("sys.argv", ["count_instructions.py", f"--report={report}"])
        with pytest.raises(SystemExit) as stopped:
            counts.main()
        assert stopped.value.code == (outcome == "failed")
        assert json.loads(report.read_text())[outcome] == 1


def test_a_changed_source_builds_the_sanitized_package_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyproject.toml", "meson.build", "meson.options", "tools/sanitize.py", "cython_kernels/a.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    for name in ("colstore_io", "integrations"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sanitize, "ROOT", tmp_path)
    commands = []

    def run(command: list[str], environment: dict[str, str]) -> bool:
        commands.append(command)
        (tmp_path / "package").mkdir(exist_ok=True)
        return True

    monkeypatch.setattr(sanitize, "run", run)
    monkeypatch.setattr(sanitize, "compiler_version", lambda cc: "gcc 1")
    for change, builds in (("", 1), ("", 1), ("cython_kernels/a.h", 2), ("cython_kernels/b.pyx", 3), ("", 3)):
        if change:
            (tmp_path / change).write_text("changed")
        assert sanitize.build_package(["cc"], tmp_path / "package")
        assert len(commands) == builds
    assert "-Csetup-args=-Db_sanitize=address,undefined" in commands[0]
