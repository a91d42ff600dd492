"""The kernels, what their ``.pyi`` files say, and their twins in NumPy are called alike."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import colstore_io.kernels
from colstore_io import kernels_numpy, kernels_numpy_columns, kernels_numpy_text
from colstore_io.grid import twins

FOLDER = Path(next(iter(colstore_io.kernels.__path__)))
STUBS = sorted(path.stem for path in FOLDER.glob("*.pyi"))
TWINS = {
    "segments": kernels_numpy,
    "compare": kernels_numpy,
    "copy": kernels_numpy,
    "records": kernels_numpy,
    "heads": kernels_numpy,
    "decode": kernels_numpy_columns,
    "fixed_text": kernels_numpy_text,
    "grid": twins,
}
"""The module with the twins of a kernel module; others have theirs in tests, or in the code that calls them."""


def described(arguments: ast.arguments) -> list[str]:
    """Return the parameters as text: names, kinds and defaults, but no types."""
    bare = ast.parse(f"def f({ast.unparse(arguments)}): ...").body[0]
    assert isinstance(bare, ast.FunctionDef)
    for node in ast.walk(bare):
        if isinstance(node, ast.arg):
            node.annotation = None
    return [
        part.strip() for part in ast.unparse(bare.args).split(",") if part.strip() not in ("self", "/", "")
    ]


def functions(tree: ast.Module) -> dict[str, list[str]]:
    """Return the public functions and methods of a module, and ``__init__`` of its classes."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found[node.name] = described(node.args)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and (
                    member.name == "__init__" or not member.name.startswith("_")
                ):
                    found[f"{node.name}.{member.name}"] = described(member.args)
    return found


def stub(name: str) -> dict[str, list[str]]:
    return functions(ast.parse((FOLDER / f"{name}.pyi").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", STUBS)
def test_kernels_have_what_their_stub_says(name: str) -> None:
    module = importlib.import_module(f"colstore_io.kernels.{name}")
    for function in stub(name):
        thing: object = module
        for part in function.removesuffix(".__init__").split("."):
            thing = getattr(thing, part)
        assert callable(thing) or inspect.isgetsetdescriptor(thing) or isinstance(thing, property), function


@pytest.mark.parametrize("name", TWINS)
def test_twins_are_called_like_the_kernels(name: str) -> None:
    twin = functions(ast.parse(inspect.getsource(TWINS[name])))
    both = {function: said for function, said in stub(name).items() if function in twin}
    assert both, "no function of this kernel module has a twin there"
    assert {function: twin[function] for function in both} == both
