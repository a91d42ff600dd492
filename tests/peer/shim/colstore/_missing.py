"""What stands where the reference has a module or a name of its own that we have no counterpart for.

A test file imports such names at its top, next to public ones. So the import succeeds, and the use fails.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar


class NotApplicable(Exception):
    """A test used something that only the reference has."""


class _MissingType(type):
    """Type of the stand-ins: they may be imported, subclassed, given to ``isinstance``, and no more."""

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        raise NotApplicable(f"{cls.__module__}.{cls.__qualname__} exists only in the reference")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return missing(cls.__module__, f"{cls.__qualname__}.{name}")


def missing(module: str, name: str) -> Any:
    """Return a stand-in for `name` of `module`."""
    return _MissingType(name, (), {"__module__": module, "__qualname__": name})


class StandInModule(ModuleType):
    """A private module of the reference: a few names have a counterpart in ours, all others are stand-ins."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return missing(self.__name__, name)


def add_modules(package: str, modules: Mapping[str, Mapping[str, Any]]) -> None:
    """Make ``import package.name`` work for each key of `modules`; its value maps names to our objects."""
    for name, known in modules.items():
        full_name = f"{package}.{name}"
        module = sys.modules[full_name] = StandInModule(full_name)
        vars(module).update(known)
        parent, _, leaf = full_name.rpartition(".")
        setattr(sys.modules[parent], leaf, module)
