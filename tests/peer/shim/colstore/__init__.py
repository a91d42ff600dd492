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
from colstore_io.predicate import Expr
from colstore_io.preview import Preview
from colstore_io.writing.locks import lock_exclusive_nonblocking, unlock
from colstore_io.writing.progress import parse_byte_size

from . import _gather, config, format, kernels, testing
from ._classes import Appender, ColStoreDataset, ColStoreInfo, ColStoreReader, ColStoreWriter
from ._missing import add_modules, missing
from .kernels import cpp_available, max_threads

# Private modules of the reference. Test files import from them next to public names.
add_modules(
    __name__,
    {
        "_footer": {},
        "_lock": {"lock_exclusive_nonblocking": lock_exclusive_nonblocking, "unlock": unlock},
        "_numa": {},
        "_pandas": {},
        "_query": {"_Expr": Expr},
        "_render": {"Preview": Preview},
        "_sizes": {"parse_byte_size": parse_byte_size},
        "autotune": {},
        "cli": {},
        "cli._common": {},
        "cli.calibration": {},
        "compaction": {},
        "frame": {},
        "interop": {},
        "interop._convert": {},
        "interop.arrow": {},
        "interop.base": {},
        "interop.root": {},
        "profiling": {},
        "progress": {},
        "reader": {"_SORTEDNESS_SAMPLE_MIN_SIZE": 32768},  # needed to import a test file
        "shards": {},
        "view": {"ColumnView": ColumnView, "TableView": TableView},
        "writer": {},
    },
)

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
