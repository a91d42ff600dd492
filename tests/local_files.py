"""Files on this machine, for the tests of storage."""

from __future__ import annotations

import os
from pathlib import Path

from colstore_io.storage import (
    LocalFile,
    open_file,
    resolve,
)

DATA = bytes(range(256)) * 1000


def write(path: Path, data: bytes = DATA) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def opened(path: Path, **options: object) -> LocalFile:
    file, _ = open_file(resolve(path).locations[0], **options)
    assert isinstance(file, LocalFile)
    return file


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
