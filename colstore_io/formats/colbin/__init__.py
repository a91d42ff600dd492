"""colbin: records, lists of records and self-describing documents as compact messages (colbin.md).

Files of messages (docs/format-colbin-log.md): ``log`` is header, frames and index, ``logtable`` the choice of rows and
columns, ``reader`` many files at once, ``decoder`` segments to columns, ``encoder`` columns to a log, ``verify`` every
check. Lists of records: ``layout`` a record type as columns, ``tables`` and ``buffers`` messages to columns,
``table_encoding`` and ``sources`` columns to messages. ``schema`` is the types of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...storage import ByteFile
from .log import MAGIC

if TYPE_CHECKING:
    from .. import Problem, ReadOptions, ShardMeta, Statistics
    from ..inspection import Inspection
    from .reader import LogInfo

__all__ = ["FORMAT", "ColbinFormat"]


class ColbinFormat:
    """The format as `colstore_io.formats.detect` hands it out."""

    name = "colbin"
    magic = MAGIC
    suffix = ".colbin"

    def read_metadata(
        self, files: Sequence[ByteFile], heads: Sequence[memoryview], options: ReadOptions | None = None
    ) -> list[ShardMeta]:
        """Return what the files hold; see `reader.read_metadata`."""
        from .reader import read_metadata

        return read_metadata(files, heads, options)

    def read_statistics(self, files: Sequence[ByteFile], metas: Sequence[ShardMeta]) -> list[ShardMeta]:
        """Return `metas`: opening has read the indexes already."""
        return list(metas)

    def read_blocks(self, files: Sequence[ByteFile], metas: Sequence[ShardMeta]) -> list[Statistics | None]:
        """Return None for each file: there are no bounds finer than segments."""
        return [None] * len(files)

    def read_header(self, file: ByteFile, head: memoryview) -> LogInfo:
        """Return what one file says about itself; see `reader.inspect_file`."""
        from .reader import inspect_file

        return inspect_file(file, head)

    def inspect(self, file: ByteFile, head: memoryview) -> Inspection:
        """Describe the messages; see `inspect.inspect`."""
        from .inspect import inspect

        return inspect(file, head)

    def verify_file(self, file: ByteFile) -> list[Problem]:
        """Return the problems of one file; see `verify.verify_file`."""
        from .verify import verify_file

        return verify_file(file)


FORMAT = ColbinFormat()
