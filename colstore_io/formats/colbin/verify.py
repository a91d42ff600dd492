"""Is everything in a log as it should be? Every check there is, one message in memory at a time."""

from __future__ import annotations

import numpy as np

from ...errors import FormatError
from ...storage import ByteFile
from .. import Problem, ReadOptions
from .decoder import LogDecoder
from .log import MAGIC, check_frames, scan
from .reader import frames_of, read_metadata

__all__ = ["verify_file"]


def verify_file(file: ByteFile) -> list[Problem]:
    """Check header, frames, checksums and index of a log, and decode every message.

    Returns
    -------
    list of Problem
        Bytes behind the last whole message, and a missing index, are notices: a crash leaves them, and every reader
        lives with them. A damaged header ends the check.
    """
    problems: list[Problem] = []
    head = file.read(0, min(file.size, 64 << 10))
    try:
        if bytes(head[:8]) == MAGIC:
            ((header, frames),) = frames_of([file], [head])
            if not frames.indexed:
                problems.append(
                    Problem("notice", "there is no sound index: it was not closed", "index", frames.end)
                )
                if frames.torn:
                    problems.append(Problem("notice", frames.torn, "frames", frames.end))
            else:
                walked = scan(file, header.end)
                count = len(frames.size)
                if len(walked.size) < count or not (
                    np.array_equal(walked.size[:count], frames.size)
                    and np.array_equal(walked.rows[:count], frames.rows)
                ):
                    problems.append(
                        Problem("error", "the index and the messages differ", "index", frames.end)
                    )
            for number in range(len(frames.size)):
                wrong = check_frames(file, frames, number, number + 1)
                if wrong is not None:
                    place = int(frames.offset[number])
                    problems.append(Problem("error", f"message {number}: {wrong[1]}", "frames", place))
            if any(problem.severity == "error" for problem in problems):
                return problems
        (meta,) = read_metadata([file], [head], ReadOptions())
    except FormatError as exc:
        return [*problems, Problem("error", exc.message, exc.section or "header", exc.offset)]
    decoder = meta.decoder
    assert isinstance(decoder, LogDecoder)
    columns = range(len(meta.schema))
    for segment in range(meta.n_records):
        data = [file.read(offset, length) for offset, length in decoder.ranges(segment, columns)]
        try:
            decoder.decode(segment, columns, data)
        except FormatError as exc:
            problems.append(Problem("error", exc.message, exc.section or f"segment {segment}", exc.offset))
    return problems
