"""Files that a caching file system (``simplecache``, ``filecache``) downloads whole: map the local copies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .errors import StorageError
from .storage_files import IOStats
from .storage_filesystems import storage_error
from .storage_names import redact_url
from .storage_resolve import Location

__all__ = ["copies_of"]


def copies_of(fs: Any, locations: Sequence[Location], io: IOStats) -> list[Location]:
    """Download what is not cached yet and return the locations with `local_path` set.

    Raises
    ------
    FileNotFoundError, PermissionError, StorageError
        If a file cannot be downloaded.
    """
    begin = time.perf_counter()
    copies = []
    for location in locations:
        try:
            with fs.open(location.path, "rb") as handle:
                name = getattr(handle, "name", None)
        except Exception as exc:
            raise storage_error(exc, "download", redact_url(location.spelling)) from None
        if not isinstance(name, str):
            raise StorageError(f"{redact_url(location.spelling)}: the cache does not name its local copy")
        copies.append(replace(location, local_path=name))
    io.add(requests=len(locations), seconds=time.perf_counter() - begin)
    return copies
