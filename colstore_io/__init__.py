"""Columnar data larger than memory: some rows, some columns, now.

``open`` reads local files and any fsspec URL; ``store``, ``create``, ``update``, ``append`` write. The Dask and xarray
integrations are in ``colstore_io.integrations``.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import colbin, config
    from .api.reading import Info, info, inspect, open, schema, verify
    from .api.writing import (
        append,
        appender,
        compact,
        concat,
        create,
        index,
        recreate,
        store,
        update,
        vacuum,
    )
    from .errors import (
        ColstoreDeprecationWarning,
        ColstoreError,
        ColumnNotFoundError,
        CommitConflictError,
        FormatError,
        PerformanceWarning,
        QueryError,
        SchemaMismatchError,
        StaleDatasetError,
        StorageError,
        TruncatedFileError,
        UnsupportedFeatureError,
        WriterLockedError,
    )
    from .formats.colbin.markers import f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
    from .formats.columns.tokenizer import Tokenizer, TokenizerRegistry, register_tokenizer
    from .predicate import col
    from .tables import Dataset, Reader
    from .views import ColumnView, TableView
    from .writing.appender import Appender
    from .writing.encoded_append import recover_columns_file
    from .writing.encoding import EncodedWriter
    from .writing.messagelog import LogWriter
    from .writing.writer import Writer

    __version__: str

__all__ = [
    "Appender",
    "ColstoreDeprecationWarning",
    "ColstoreError",
    "ColumnNotFoundError",
    "ColumnView",
    "CommitConflictError",
    "Dataset",
    "EncodedWriter",
    "FormatError",
    "Info",
    "LogWriter",
    "PerformanceWarning",
    "QueryError",
    "Reader",
    "SchemaMismatchError",
    "StaleDatasetError",
    "StorageError",
    "TableView",
    "Tokenizer",
    "TokenizerRegistry",
    "TruncatedFileError",
    "UnsupportedFeatureError",
    "Writer",
    "WriterLockedError",
    "__version__",
    "append",
    "appender",
    "col",
    "colbin",
    "compact",
    "concat",
    "config",
    "create",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "index",
    "info",
    "inspect",
    "open",
    "recover_columns_file",
    "recreate",
    "register_tokenizer",
    "schema",
    "store",
    "u8",
    "u16",
    "u32",
    "u64",
    "update",
    "vacuum",
    "verify",
]

# Loaded on first use (PEP 562): xarray and fsspec import every plug-in's package just to list what there is.
_HOMES = {
    "api.reading": ("Info", "info", "inspect", "open", "schema", "verify"),
    "api.writing": (
        *(
            "append",
            "appender",
            "compact",
            "concat",
            "create",
            "index",
            "recreate",
            "store",
            "update",
            "vacuum",
        ),
    ),
    "formats.colbin.markers": ("f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    "predicate": ("col",),
    "tables": ("Dataset", "Reader"),
    "views": ("ColumnView", "TableView"),
    "formats.columns.tokenizer": ("Tokenizer", "TokenizerRegistry", "register_tokenizer"),
    "writing.appender": ("Appender",),
    "writing.encoded_append": ("recover_columns_file",),
    "writing.encoding": ("EncodedWriter",),
    "writing.messagelog": ("LogWriter",),
    "writing.writer": ("Writer",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value: Any = version("colstore_io")
        except PackageNotFoundError:  # a source tree that was not installed
            value = "0+unknown"
    elif name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    elif name in ("colbin", "config"):
        value = importlib.import_module(f".{name}", __name__)
    else:
        home = _HOME_OF.get(name, "errors")
        value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if "dask.dataframe" in sys.modules:  # then `dask.dataframe.read_colstore` is expected to be there
    importlib.import_module(".integrations.dask", __name__)
