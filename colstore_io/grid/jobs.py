"""One read under way: the byte ranges that it needs, and what it makes of them.

So several variables are read with one round of requests (`read_jobs`). Mapped files are never fetched from: the kernels
read them in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from .. import storage
from ..errors import FormatError, StaleDatasetError, TruncatedFileError
from ..storage import ByteFile

__all__ = ["Job", "Request", "joined", "read_jobs"]

Request = tuple[ByteFile, int, int]


@dataclass
class Job:
    """One read under way.

    Attributes
    ----------
    requests : list of (ByteFile, offset, length)
        Byte ranges that must be fetched.
    finish : callable
        Takes the answers in the order of `requests`; returns the array, or the next `Job` of a read in two steps.
    variable : str
        For messages.
    """

    requests: list[Request]
    finish: Callable[[Sequence[memoryview]], NDArray[Any] | Job]
    variable: str = ""


def read_jobs(jobs: Sequence[Job]) -> list[NDArray[Any]]:
    """Perform several reads: the ranges of all of them in one concurrent round, and one more for text."""
    results: list[NDArray[Any] | Job] = list(jobs)
    while waiting := [number for number, item in enumerate(results) if isinstance(item, Job)]:
        asked: list[Request] = []
        for number in waiting:
            job = results[number]
            assert isinstance(job, Job)
            asked += job.requests
        answers = _fetched(asked, [results[number] for number in waiting]) if asked else []
        at = 0
        for number in waiting:
            job = results[number]
            assert isinstance(job, Job)
            results[number] = job.finish(answers[at : at + len(job.requests)])
            at += len(job.requests)
    return [item for item in results if not isinstance(item, Job)]


def _fetched(asked: list[Request], jobs: Sequence[Any]) -> list[memoryview]:
    try:
        return storage.read_ranges(asked)
    except (FileNotFoundError, StaleDatasetError, TruncatedFileError) as exc:
        names = ", ".join(sorted({repr(job.variable) for job in jobs if job.variable}))
        raise FormatError(
            f"a file that variable {names} needs is missing or was cut short: {exc}. Restore the file, or open an "
            "older generation of the directory by the path of its manifest"
        ) from None


def joined(parts: Sequence[Job], finish: Callable[[list[Any]], NDArray[Any] | Job]) -> Job:
    """Return the job that performs `parts` together and finishes with their results."""
    counts = [len(part.requests) for part in parts]

    def run(answers: Sequence[memoryview]) -> NDArray[Any] | Job:
        results = []
        at = 0
        for part, count in zip(parts, counts, strict=True):
            results.append(part.finish(answers[at : at + count]))
            at += count
        return finish(results)

    return Job([request for part in parts for request in part.requests], run)
