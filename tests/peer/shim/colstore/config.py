"""The reference's ``colstore.config``: the same names and meanings in ours."""

from __future__ import annotations

from typing import Any

from colstore_io import config

from ._missing import missing


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in config.__all__:
        return getattr(config, name)
    return missing(__name__, name)
