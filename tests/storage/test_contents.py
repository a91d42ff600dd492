"""Contents in memory and file objects are files too; counters of what is read."""

from __future__ import annotations

import io
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from local_files import DATA, write

from colstore_io.errors import FormatError, TruncatedFileError
from colstore_io.storage import (
    IOStats,
    open_file,
)


@pytest.mark.parametrize(
    "data", [DATA, bytearray(DATA), memoryview(DATA), np.frombuffer(DATA, "<u4"), io.BytesIO(DATA)]
)
def test_contents_in_memory_are_a_file(data: object) -> None:
    file, head = open_file(data)
    assert file.size == len(DATA)
    assert bytes(head) == DATA[: len(head)]
    assert bytes(file.read(10, 5)) == DATA[10:15]
    array = file.map(100)
    assert array is not None
    assert array.tobytes() == DATA[:100]
    assert not array.flags.writeable
    with pytest.raises(TruncatedFileError):
        file.read(len(DATA), 1)
    with pytest.raises(FormatError):
        file.check_size(len(DATA) + 1)
    copy = pickle.loads(pickle.dumps(file))
    assert copy.token == file.token
    assert bytes(copy.read(0, 10)) == DATA[:10]
    assert file.token != open_file(DATA + b"x")[0].token


def test_empty_contents_are_an_empty_file() -> None:
    file, head = open_file(b"")
    assert (file.size, bytes(head)) == (0, b"")


def test_what_is_no_contents_is_refused() -> None:
    for value in (3, "text", None, np.zeros((4, 4))[:, ::2]):
        with pytest.raises((TypeError, ValueError)):
            open_file(value)


def test_a_file_object_is_read_in_turns_by_many_threads(tmp_path: Path) -> None:
    with open(write(tmp_path / "a.cstore"), "rb") as handle:
        handle.seek(17)
        file, head = open_file(handle)
        assert bytes(head) == DATA[: len(head)]
        assert file.map(10) is None
        results: list[bool] = []

        def work(seed: int) -> None:
            for step in range(100):
                offset = (seed * 7919 + step * 104729) % (len(DATA) - 64)
                results.append(bytes(file.read(offset, 64)) == DATA[offset : offset + 64])

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [True] * 400
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(file)
        file.close()
        assert not handle.closed
        with pytest.raises(ValueError, match="closed"):
            file.read(0, 1)


def test_a_file_object_that_is_cut_short_is_truncated(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cstore")
    with open(path, "rb", buffering=0) as handle:
        file, _ = open_file(handle)
        os.truncate(path, 100)
        with pytest.raises(TruncatedFileError):
            file.read(90, 20)


def test_text_and_unseekable_file_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="binary"):
        open_file(io.StringIO("text"))
    read_end, write_end = os.pipe()
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe, pytest.raises(TypeError, match="seekable"):
        open_file(pipe)


# -- counters


def test_counters_add_up_over_threads_and_survive_pickling() -> None:
    stats = IOStats()

    def work() -> None:
        for _ in range(1000):
            stats.add(requests=1, bytes=2, metadata_requests=3)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (stats.requests, stats.bytes, stats.metadata_requests) == (4000, 8000, 12000)
    copy = pickle.loads(pickle.dumps(stats))
    assert copy.as_dict() == stats.as_dict()
    assert "requests=4000" in repr(copy)
    stats.reset()
    assert stats.as_dict() == {"requests": 0, "bytes": 0, "metadata_requests": 0, "seconds": 0.0}
