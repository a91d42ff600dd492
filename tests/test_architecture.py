"""Imports go down only: ARCHITECTURE.md, "The floors"."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import colstore_io

FLOORS = [
    (
        *("arguments", "errors", "threads", "config", "buffers", "tuning", "taking"),
        *("kernels", "kernels_numpy", "kernels_numpy_columns", "kernels_numpy_text"),
    ),
    ("storage", "fields", "arrays"),
    ("formats",),
    ("segments", "selection"),
    ("predicate", "ingest", "writing"),
    ("bounds", "chunk_cache", "dataset", "deferred", "messageruns", "opening", "places", "plan"),
    (
        "assembly",
        "cold",
        "decoding",
        "gather",
        "grid",
        "jobs",
        "joining",
        "loading",
        "materialise",
        "pieces",
        "ranges",
        "ready",
        "reductions",
        "results",
        "scattering",
        "streaming",
    ),
    ("rows", "convert", "convert_pandas", "feeding", "layouts", "plain", "preview"),
    ("column", "views", "tables"),
    ("api", "colbin"),
    ("cli", "calibrate", "integrations"),
    ("__main__",),
]
FLOOR_OF = {module: floor for floor, modules in enumerate(FLOORS) for module in modules}
PACKAGE = Path(colstore_io.__file__).parent
MODULES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py" and "kernels" not in path.relative_to(PACKAGE).parts[:1]
)


def imports_of(path: Path) -> set[str]:
    """Return the top-level modules of the package that `path` imports when it is loaded."""
    package = path.relative_to(PACKAGE).parts[:-1]
    found: set[str] = set()
    skipped: set[ast.AST] = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ):
            skipped.update(ast.walk(node))
    for node in ast.walk(tree):
        if node in skipped or not isinstance(node, (ast.ImportFrom, ast.Import)):
            continue
        if isinstance(node, ast.Import):
            found.update(a.name.split(".")[1] for a in node.names if a.name.startswith("colstore_io."))
            continue
        module = node.module or ""
        if node.level == 0:
            if module.split(".")[0] != "colstore_io":
                continue
            parts = module.split(".")[1:]
        else:
            parts = [*package[: len(package) + 1 - node.level], *filter(None, module.split("."))]
        found.update([parts[0]] if parts else [alias.name for alias in node.names])
    return {name for name in found if name in FLOOR_OF}


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def test_every_module_has_a_floor():
    assert {room_of(path) for path in MODULES} <= set(FLOOR_OF)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    floor = FLOOR_OF[room_of(path)]
    above = {name for name in imports_of(path) if FLOOR_OF[name] > floor}
    assert not above


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_optional_libraries_are_imported_where_they_are_needed_only(path):
    if room_of(path) == "integrations":
        return
    tree = ast.parse(path.read_text())
    top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name.split(".")[0] for node in top if isinstance(node, ast.Import) for alias in node.names}
    names |= {
        (node.module or "").split(".")[0]
        for node in top
        if isinstance(node, ast.ImportFrom) and not node.level
    }
    assert not names & {"pyarrow", "pandas", "dask", "xarray", "tqdm"}
    if room_of(path) == "formats":
        assert "fsspec" not in names


def test_what_is_above_the_formats_knows_none_of_them_by_name():
    """Whoever reads a dataset asks `colstore_io.formats`; writers and what is about one format do know it."""
    above = {
        "bounds",
        "cold",
        "dataset",
        "deferred",
        "gather",
        "places",
        "plan",
        "ready",
        "rows",
        "segments",
        "streaming",
    }
    for name in above:
        tree = ast.parse((PACKAGE / f"{name}.py").read_text())
        modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        known = {m for m in modules if m.startswith(("formats.cstore", "formats.columns", "formats.colbin"))}
        assert not known, name
