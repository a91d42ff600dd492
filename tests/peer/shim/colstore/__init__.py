"""A stand-in for the reference library, for its test suite only: our objects under its names."""

from __future__ import annotations

from typing import Any

import colstore_io
from colstore_io import (
    ColumnView,
    FormatError,
    QueryError,
    TableView,
    append,
    appender,
    col,
    compact,
    concat,
    create,
    info,
    open,
    recreate,
    schema,
    store,
    update,
)

from ._missing import add_missing_modules, missing

# Modules that only the reference has. Those with a stand-in of their own are imported below.
add_missing_modules(
    __name__,
    [
        "_footer",
        "_numa",
        "_pandas",
        "_query",
        "_render",
        "autotune",
        "cli",
        "cli._common",
        "cli.calibration",
        "compaction",
        "frame",
        "interop",
        "interop._convert",
        "interop.arrow",
        "interop.base",
        "interop.root",
        "profiling",
        "progress",
        "reader",
        "shards",
        "view",
        "writer",
    ],
)

from . import _gather, _lock, _sizes, config, format, kernels, testing  # noqa: E402
from ._classes import Appender, ColStoreDataset, ColStoreInfo, ColStoreReader, ColStoreWriter  # noqa: E402
from .kernels import cpp_available, max_threads  # noqa: E402

__version__ = colstore_io.__version__
__all__ = [
    "Appender",
    "ColStoreDataset",
    "ColStoreInfo",
    "ColStoreReader",
    "ColStoreWriter",
    "ColumnView",
    "FormatError",
    "QueryError",
    "TableView",
    "_gather",
    "_lock",
    "_sizes",
    "append",
    "appender",
    "col",
    "compact",
    "concat",
    "config",
    "cpp_available",
    "create",
    "format",
    "info",
    "kernels",
    "max_threads",
    "open",
    "recreate",
    "schema",
    "store",
    "testing",
    "update",
]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name.startswith(("get_", "set_")):
        return getattr(config, name)
    return missing(__name__, name)
