"""Our classes under the reference's names, callable as the reference's are."""

from __future__ import annotations

from typing import Any

import colstore_io


class _Alias(type):
    """A class that is another one to ``isinstance``, and makes its instances by a public call."""

    alias_of: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.alias_of)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.make(*args, **kwargs)  # type: ignore[attr-defined]


class ColStoreReader(metaclass=_Alias):
    """``Reader``."""

    alias_of = colstore_io.Reader
    make = staticmethod(colstore_io.open)


def _dataset(sources: Any = (), **options: Any) -> Any:
    return colstore_io.open(list(sources) if isinstance(sources, (list, tuple)) else [sources], **options)


class ColStoreDataset(metaclass=_Alias):
    """``Dataset``."""

    alias_of = colstore_io.Dataset
    make = staticmethod(_dataset)


def _writer(path: Any, mode: str = "create", **options: Any) -> Any:
    return {"create": colstore_io.create, "recreate": colstore_io.recreate, "update": colstore_io.update}[
        mode
    ](path, **options)


class ColStoreWriter(metaclass=_Alias):
    """``Writer``."""

    alias_of = colstore_io.Writer
    make = staticmethod(_writer)


ColStoreInfo = colstore_io.Info
Appender = colstore_io.Appender
