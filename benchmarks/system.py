"""What a system that is measured may have: the same few methods, ``None`` where it has no such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["Columns", "System"]

Columns = Mapping[str, np.ndarray]


class System:
    """Base: nothing is supported."""

    name = ""
    suffix = ""
    files_of = ""  # whose files it reads, if not its own

    write: Any = None
    write_records: Any = None
    open: Any = None
    open_many: Any = None
    read_all: Any = None
    read_one: Any = None
    rows: Any = None
    rows_many: Any = None
    filter: Any = None
    between: Any = None
    compact: Any = None
    dask_frame: Any = None
    xarray_dataset: Any = None
    rows_out: Any = None
    read_all_out: Any = None
    mean: Any = None
    raw_read: Any = None
    raw_rows: Any = None
    encode: Any = None
    open_encoded: Any = None
    read_encoded: Any = None
    open_schema: Any = None
    open_dataset: Any = None
    optimize: Any = None
    optimized: Any = None
    write_grid: Any = None
    open_grid: Any = None
    append_grid: Any = None
    reads: Any = True  # None: takes part where something is written, and nowhere else
    is_durable = False  # what `write`, `write_grid` and `append_grid` did survives a loss of power
    as_shipped: Any = True  # None: made not to wait for the disk, so it has no part where everybody does
    unsynced: Any = None  # True: the same, and has a part where nobody waits
    grid_suffix = ""  # of the files or folders that `write_grid` makes
    encoded_suffix = ""  # of the files that `encode` makes the bytes of
    imported = ""  # the package that a program imports to use it
    xarray_engine = ""  # the engine that its plug-in adds

    def close(self, handle: Any) -> None:
        if hasattr(handle, "close"):
            handle.close()
