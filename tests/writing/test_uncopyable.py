"""Writers, and what they own, exist once."""

from __future__ import annotations

import copy
import gc
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disks import read_back

from colstore_io.storage import locate
from colstore_io.writing.appender import Appender
from colstore_io.writing.locks import DirectoryLock, open_locked
from colstore_io.writing.publish import InPlace, Replacement, Upload
from colstore_io.writing.recordlog import RecordLog
from colstore_io.writing.writer import Writer


def refused(owner: Any) -> None:
    calls: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda value: value.__getstate__()]
    calls += [lambda value, p=p: pickle.dumps(value, p) for p in range(pickle.HIGHEST_PROTOCOL + 1)]  # type: ignore[misc]
    for call in calls:
        with pytest.raises(TypeError, match="a writer cannot be pickled or copied"):
            call(owner)
        with pytest.raises(TypeError, match="a writer cannot be pickled or copied"):
            call([owner]) if call is not copy.copy and call is not calls[2] else call(owner)


@pytest.mark.parametrize("mode", ["create", "recreate", "update"])
def test_writer(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "a.cstore"
    if mode == "update":
        with Writer(path) as writer:
            writer.write({"x": np.arange(2)})
    with Writer(path, mode) as writer:
        writer.write({"x": np.arange(3)})
        refused(writer)
        refused(writer._log)
        refused(writer._log.destination)
        refused(writer._log.output)
        gc.collect()
        writer.write({"x": np.arange(1)})  # it goes on as if nothing had been
    assert read_back(path)["x"] == ([0, 1] if mode == "update" else []) + [0, 1, 2, 0]
    refused(writer)


def test_appender(tmp_path: Path) -> None:
    with Appender(tmp_path) as appender:
        appender.write({"x": np.arange(3)})
        refused(appender)
        refused(appender._place)
    assert read_back(tmp_path / "shard_00000.cstore")["x"] == [0, 1, 2]


def test_what_they_own(tmp_path: Path) -> None:
    file = open_locked(str(tmp_path / "a"), os.O_RDWR | os.O_CREAT)
    destinations = [
        InPlace(file, created=True),
        Replacement(str(tmp_path / "b")),
        Upload(locate("memory://uncopyable/c")),
    ]
    refused(file)
    for destination in destinations:
        refused(destination)
        log = RecordLog(destination, statistics=False)
        refused(log)
        log.discard()
    with DirectoryLock(str(tmp_path)) as lock:
        refused(lock)
