"""Is everything in a log as it should be? Every check there is, one message in memory at a time."""

from __future__ import annotations

import numpy as np

from ...errors import FormatError
from ...storage import ByteFile
from .. import DecodedColumn, Problem, ReadOptions, Statistics
from .decoder import LogDecoder
from .log import MAGIC, check_frames, scan
from .logtable import log_table
from .reader import frames_of, read_metadata
from .tail import look_behind

__all__ = ["verify_file"]


def verify_file(file: ByteFile) -> list[Problem]:
    """Check header, frames, checksums and index of a log, decode every message, and compare with what the index says.

    Returns
    -------
    list of Problem
        Bytes behind the last whole message are an error: readers pass over them in silence, be they the rest of a
        crash, of an index, or messages that are damaged. That a log was not closed and has no index is a notice. A
        damaged header or message ends the check.
    """
    problems: list[Problem] = []
    head = file.read(0, min(file.size, 64 << 10))
    try:
        if bytes(head[:8]) == MAGIC:
            ((header, frames),) = frames_of([file], [head])
            behind: Problem | None = None
            if not frames.indexed:
                counted = log_table(header, None, file.spelling).field is not None
                tail = look_behind(file, frames, counted=counted)
                if tail is not None:
                    section = "index" if tail.kind == "index" else "frames"
                    behind = Problem("error", tail.text, section, tail.offset)
                    problems.append(behind)
                else:
                    problems.append(
                        Problem("notice", "there is no index: the log was not closed", "index", frames.end)
                    )
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
            if any(problem.severity == "error" and problem is not behind for problem in problems):
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
            decoded = decoder.decode(segment, columns, data)
        except FormatError as exc:
            problems.append(Problem("error", exc.message, exc.section or f"segment {segment}", exc.offset))
            continue
        if meta.statistics is not None:
            for field, column in zip(meta.schema, decoded, strict=True):
                said = _contradiction(meta.statistics, field.name, segment, column)
                if said:
                    place = int(meta.body_start[segment])
                    problems.append(
                        Problem("error", f"column {field.name!r}: the index says {said}", "index", place)
                    )
    return problems


def _contradiction(known: Statistics, name: str, segment: int, column: DecodedColumn) -> str:
    """Return what the index says of a column of one segment that its values do not bear out; empty when none is."""
    nulls = int(known.nulls[name][segment]) if name in known.nulls else -1
    if column.array is not None:
        found = column.array.null_count
    elif column.validity is not None:
        found = len(column.validity) - int(np.count_nonzero(column.validity))
    else:
        found = 0
    if nulls >= 0 and nulls != found:
        return f"{nulls} nulls, it has {found}"
    values = column.values
    if values is None or name not in known.minimum or not known.usable[name][segment]:
        return ""
    present = values if column.validity is None else values[column.validity]
    low, high = known.minimum[name][segment], known.maximum[name][segment]
    if len(present) and not ((present >= low) & (present <= high)).all():
        return f"its values lie from {low} to {high}, they lie from {present.min()} to {present.max()}"
    return ""
