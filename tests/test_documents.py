"""The samples of README.md run as they stand, from top to bottom, in an empty folder; links lead somewhere."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from colstore_io import cli

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
FAR = "s3://"
"""Statements that mention this need a network and are not run."""


def blocks(language: str) -> list[str]:
    if not README.exists():
        pytest.skip("the repository is not there")
    text = README.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def statements(block: str) -> list[ast.stmt]:
    return [one for one in ast.parse(block).body if FAR not in (ast.get_source_segment(block, one) or "")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which all samples in Python have run."""
    for library in ("dask.dataframe", "xarray", "pandas"):
        pytest.importorskip(library)
    folder = tmp_path_factory.mktemp("readme")
    program = ModuleType("readme")  # classes look for their module
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(sys.modules, "readme", program)
        for block in blocks("python"):
            if block.startswith(">>>"):
                continue  # a session with real data, which `make demo` has
            module = ast.Module(statements(block), type_ignores=[])
            exec(compile(module, "README.md", "exec"), program.__dict__)
    return folder


def test_samples_in_python_run(made: Path) -> None:
    assert {"t.cstore", "t.abcd", "t.colbin", "shards", "climate", "log.colbin"} <= {
        entry.name for entry in made.iterdir()
    }


def test_samples_of_the_command_line_run(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made)
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("colstore-io ")]
    assert len(lines) >= 5
    for line in lines:
        assert cli.main(shlex.split(line, comments=True)[1:]) == 0, line
    assert "ok" in capsys.readouterr().out


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_other_pages_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_every_page_is_linked_from_the_readme() -> None:
    if not README.exists():
        pytest.skip("the repository is not there")
    text = README.read_text(encoding="utf-8")
    assert [
        page.name for page in PAGES if page.parent.name == "docs" and f"docs/{page.name}" not in text
    ] == []
