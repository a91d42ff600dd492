"""What each message of a log is: for people who wonder where the bytes are."""

from __future__ import annotations

import numpy as np

from ...storage import ByteFile
from ..inspection import Inspection
from .reader import frames_of, inspect_file

__all__ = ["inspect"]


def inspect(file: ByteFile, head: memoryview) -> Inspection:
    """Describe the messages of a log, in file order: from its index, or from the frames' headers.

    Returns
    -------
    Inspection
        One row per message with ``message``, ``first_row``, ``rows``, ``offset`` and ``bytes`` of its frame. The title
        tells whether there is an index, and what else stands behind the last whole message.

    Raises
    ------
    FormatError
        If the header is damaged.
    """
    info = inspect_file(file, head)
    state = "indexed" if info.indexed else "without an index"
    title = (
        f"{file.spelling}: colbin {info.layout}, {info.n_records} messages, {len(info.columns)} columns, "
        f"{info.committed_rows} rows, {info.file_size} bytes, {state}"
    )
    if info.torn:
        title += f"; {info.torn}"
    if info.layout != "log":
        rows, offsets, sizes = [info.committed_rows], [0], [info.file_size]
    else:
        ((_, frames),) = frames_of([file], [head])
        rows, offsets, sizes = (a.tolist() for a in (frames.rows, frames.offset, frames.size))
    return Inspection(
        title,
        {
            "message": list(range(len(rows))),
            "first_row": [0, *np.cumsum(np.array(rows, np.int64))[:-1].tolist()][: len(rows)],
            "rows": rows,
            "offset": offsets,
            "bytes": sizes,
        },
    )
