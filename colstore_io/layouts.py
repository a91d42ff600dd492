"""What would every layout of a columns file have cost?"""

from __future__ import annotations

from typing import Any

from .dataset import Source
from .decoding import read_segments
from .formats.columns.encoder import ColumnsEncoder
from .formats.columns.tags import Encoding
from .formats.columns.tokenized import BOUNDARIES, REPRESENTATIONS
from .formats.inspection import Inspection
from .materialise import as_given

__all__ = ["candidate_layouts"]


def candidate_layouts(source: Source, title: str) -> Inspection:
    """Measure every layout of every chunk as Optimize does (columns.md 10.3): whole streams at level 9.

    Returns
    -------
    Inspection
        One row per chunk and candidate with ``row_group``, ``column``, ``encoding``, ``codec``, ``encoded`` and
        ``compressed`` bytes, and ``chosen``.
    """
    table: dict[str, list[Any]] = {
        name: [] for name in ("row_group", "column", "encoding", "codec", "encoded", "compressed", "chosen")
    }
    positions = range(len(source.schema))
    fields = source.schema.fields
    for group, columns in enumerate(read_segments(source, list(positions))):
        encoder = ColumnsEncoder(source.schema, optimize="exact")
        given = [as_given(field, column) for field, column in zip(fields, columns, strict=True)]
        for report in encoder.optimize(given):
            for row in report.rows:
                name = row.encoding.name.lower()
                if row.encoding is Encoding.TOKENIZED:
                    name += f" {REPRESENTATIONS[row.representation]} {BOUNDARIES[row.boundary]}"
                table["row_group"].append(group)
                table["column"].append(report.column)
                table["encoding"].append(name)
                table["codec"].append(row.codec.name.lower())
                table["encoded"].append(row.encoded_bytes)
                table["compressed"].append(row.compressed_bytes)
                table["chosen"].append(row is report.chosen)
    return Inspection(f"{title}: what each layout of each chunk costs", table)
