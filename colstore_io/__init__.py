"""Columnar data larger than memory: some rows, some columns, now.

``open`` reads local files and any fsspec URL; ``store``, ``create``, ``update``, ``append`` write. The Dask and xarray
integrations are in ``colstore_io.integrations``. Importing this package imports NumPy and fsspec, nothing heavier.
"""

from importlib.metadata import PackageNotFoundError as _PackageNotFoundError
from importlib.metadata import version as _version

from . import config
from .api import (
    Info,
    append,
    appender,
    compact,
    concat,
    create,
    info,
    open,
    recreate,
    schema,
    store,
    update,
    vacuum,
    verify,
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
    TruncatedFileError,
    UnsupportedFeatureError,
    WriterLockedError,
)
from .predicate import col
from .tables import Dataset, Reader
from .views import ColumnView, TableView
from .writing.shards import Appender
from .writing.writer import Writer

try:
    __version__ = _version("colstore_io")
except _PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0+unknown"

__all__ = [
    "Appender",
    "ColstoreDeprecationWarning",
    "ColstoreError",
    "ColumnNotFoundError",
    "ColumnView",
    "CommitConflictError",
    "Dataset",
    "FormatError",
    "Info",
    "PerformanceWarning",
    "QueryError",
    "Reader",
    "SchemaMismatchError",
    "StaleDatasetError",
    "TableView",
    "TruncatedFileError",
    "UnsupportedFeatureError",
    "Writer",
    "WriterLockedError",
    "__version__",
    "append",
    "appender",
    "col",
    "compact",
    "concat",
    "config",
    "create",
    "info",
    "open",
    "recreate",
    "schema",
    "store",
    "update",
    "vacuum",
    "verify",
]
