"""Our classes under the reference's names, with a few attributes that its tests look at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import colstore_io

__all__ = ["Appender", "ColStoreDataset", "ColStoreInfo", "ColStoreReader", "ColStoreWriter"]

Appender = colstore_io.Appender
ColStoreDataset = colstore_io.Dataset
ColStoreInfo = colstore_io.Info
ColStoreReader = colstore_io.Reader
ColStoreWriter = colstore_io.Writer


def _mappings(reader: colstore_io.Reader) -> dict[str, NDArray[np.uint8]]:
    """Return the mapping that the columns lie in, for ``shares_memory``; the reference has one per column."""
    (mapping,) = reader.source.mappings()
    assert mapping is not None
    return dict.fromkeys(reader.columns, mapping)


_READER: Any = colstore_io.Reader
_READER._is_multi_record = colstore_io.Reader.needs_compaction
_READER._memmaps = property(_mappings)
