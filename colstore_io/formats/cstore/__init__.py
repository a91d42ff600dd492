"""The `.cstore` format: raw little-endian columns in appendable records (cstore.md).

``manifest`` and ``header`` are the JSON and what surrounds it, ``attributes`` and ``extras`` the key that holds what
plain columns cannot say, ``records`` the walk from record to record, ``footer`` the statistics, ``encode`` arrays to
bytes, ``sidecar`` the index beside a file, ``reader`` many files at once, ``verify`` every check there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...storage import ByteFile, listed_beside
from .header import MAGIC
from .reader import HeaderInfo, read_header, read_metadata, read_statistics
from .sidecar import read_block_statistics

if TYPE_CHECKING:
    from .. import Problem, ReadOptions, ShardMeta, Statistics
    from ..inspection import Inspection

__all__ = ["FORMAT", "CstoreFormat"]


class CstoreFormat:
    """The format as `colstore_io.formats.detect` hands it out."""

    name = "cstore"
    magic = MAGIC
    suffix = ".cstore"

    def read_metadata(
        self, files: Sequence[ByteFile], heads: Sequence[memoryview], options: ReadOptions | None = None
    ) -> Sequence[ShardMeta]:
        """Return what the files hold; see `reader.read_metadata`. `statistics` and `assume` are the options for it."""
        later = options is not None and not options.statistics
        assume = options is not None and options.assume
        return read_metadata(files, heads, statistics="none" if later else "near", index=True, assume=assume)

    def read_statistics(self, files: Sequence[ByteFile], metas: Sequence[ShardMeta]) -> list[ShardMeta]:
        """Fetch statistics that are not there yet; see `reader.read_statistics`."""
        return read_statistics(files, metas)

    def read_blocks(self, files: Sequence[ByteFile], metas: Sequence[ShardMeta]) -> list[Statistics | None]:
        """Return bounds per 64 Ki rows from the files' indexes; see `sidecar.read_block_statistics`."""
        exists = listed_beside(files)
        return [read_block_statistics(f, m, exists=exists) for f, m in zip(files, metas, strict=True)]

    def read_header(self, file: ByteFile, head: memoryview) -> HeaderInfo:
        """Return what the header of one file says; see `reader.read_header`."""
        return read_header(file, head)

    def only_appended(self, file: ByteFile, **planned: Any) -> bool:
        """Tell whether a file still holds what was planned of it; see `probe.only_appended`."""
        from .probe import only_appended

        return only_appended(file, **planned)

    def inspect(self, file: ByteFile, head: memoryview) -> Inspection:
        """Describe the records: their rows, where they are, and their bytes."""
        from ..inspection import Inspection

        (meta,) = read_metadata([file], [head])
        rows = meta.record_rows.tolist()
        title = (
            f"{file.spelling}: cstore format, layout {meta.layout}, {meta.n_records} records, "
            f"{len(meta.schema)} columns, {meta.n_rows} rows, {file.size} bytes"
        )
        return Inspection(
            title,
            {
                "record": list(range(meta.n_records)),
                "first_row": [0, *np.cumsum(meta.record_rows)[:-1].tolist()][: meta.n_records],
                "rows": rows,
                "offset": meta.body_start.tolist(),
                "bytes": [count * meta.row_bytes for count in rows],
            },
        )

    def verify_file(self, file: ByteFile) -> list[Problem]:
        """Return the problems of one file; see `verify.verify_file`."""
        from .verify import verify_file

        return verify_file(file)


FORMAT = CstoreFormat()
