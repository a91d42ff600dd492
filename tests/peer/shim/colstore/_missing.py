"""What stands where the reference has a module or a name of its own that we have no counterpart for.

A test file imports such names at its top, next to public ones. So the import succeeds, and the use fails.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class NotApplicable(Exception):
    """A test used something that only the reference has."""


class _MissingType(type):
    """Type of the stand-ins: they may be imported, subclassed and given to ``isinstance``, and nothing else."""

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        raise NotApplicable(f"{cls.__module__}.{cls.__qualname__} exists only in the reference")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return missing(cls.__module__, f"{cls.__qualname__}.{name}")


def missing(module: str, name: str) -> Any:
    """Return a stand-in for `name` of `module`."""
    return _MissingType(name, (), {"__module__": module, "__qualname__": name})


class MissingModule(ModuleType):
    """A module of the reference all of whose names are stand-ins."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return missing(self.__name__, name)


def add_missing_modules(package: str, names: list[str]) -> None:
    """Make ``import package.name`` work for modules that only the reference has."""
    for name in names:
        full_name = f"{package}.{name}"
        module = sys.modules[full_name] = MissingModule(full_name)
        parent, _, leaf = full_name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], leaf, module)
