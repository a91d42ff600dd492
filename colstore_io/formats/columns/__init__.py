"""The columns format (magic ``ABCD``): row groups of encoded, compressed column chunks (columns.md).

``tags`` are the numbers in a file, ``frame`` what stands around the chunks, ``gob`` and ``footer`` the footer,
``statistics`` its bounds, ``chunk`` the header of a chunk, ``decompress`` blocks, ``decode`` and ``variable`` streams
to columns, ``pipeline`` both on several threads, ``decoder`` a whole file, ``reader`` many files at once, ``inspect``
and ``verify`` what people ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...storage import ByteFile
from .reader import ColumnsHeader, read_header, read_metadata
from .tags import MAGIC, SUFFIX

if TYPE_CHECKING:
    from .. import Problem, ReadOptions, ShardMeta, Statistics
    from ..inspection import Inspection

__all__ = ["FORMAT", "ColumnsFormat"]


class ColumnsFormat:
    """The format as `colstore_io.formats.detect` hands it out."""

    name = "columns"
    magic = MAGIC
    suffix = SUFFIX

    def read_metadata(
        self, files: Sequence[ByteFile], heads: Sequence[memoryview], options: ReadOptions | None = None
    ) -> list[ShardMeta]:
        """Return what the files hold; see `reader.read_metadata`."""
        return read_metadata(files, heads, options=options)

    def read_statistics(self, files: Sequence[ByteFile], metas: Sequence[ShardMeta]) -> list[ShardMeta]:
        """Return `metas`: opening has read the footers already."""
        return list(metas)

    def read_blocks(self, files: Sequence[ByteFile], metas: Sequence[ShardMeta]) -> list[Statistics | None]:
        """Return None for each file: the format has no bounds finer than row groups."""
        return [None] * len(files)

    def read_header(self, file: ByteFile, head: memoryview) -> ColumnsHeader:
        """Return what one file says about itself; see `reader.read_header`."""
        return read_header(file, head)

    def inspect(self, file: ByteFile, head: memoryview) -> Inspection:
        """Describe the chunks; see `inspect.inspect`."""
        from .inspect import inspect

        del head
        return inspect(file)

    def verify_file(self, file: ByteFile) -> list[Problem]:
        """Return the problems of one file; see `verify.verify_file`."""
        from .verify import verify_file

        return verify_file(file)


FORMAT = ColumnsFormat()
