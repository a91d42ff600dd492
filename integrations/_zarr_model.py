"""What a Zarr view of our files is: names, shapes, chunk grids, and where the bytes of every chunk lie.

One description, made by `_zarr_tables` and `_zarr_grids`, read by everything that writes it down in somebody's notation
(`zarr`, `_virtualizarr`): two notations of one description cannot disagree.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CHUNK_BYTES",
    "FILES_ATTRIBUTE",
    "INLINE",
    "INLINE_BYTES",
    "MAX_CHUNKS",
    "SMALLEST_CHUNK",
    "Description",
    "FileVersion",
    "OnSkipped",
    "Options",
    "Skipped",
    "VirtualArray",
    "VirtualGroup",
    "check_count",
]

INLINE = -1
"""Stands for the file of a chunk whose bytes were copied."""

FILES_ATTRIBUTE = "colstore_io_references"
"""Attribute of the root group that says which versions of which files are meant, and what was left out."""

CHUNK_BYTES = 8 << 20
SMALLEST_CHUNK = 4096
INLINE_BYTES = 32 << 20

MAX_CHUNKS = 1 << 22
"""Chunks of one array, and of one set of references: each takes some hundred bytes in memory and in a file."""

OnSkipped = Literal["warn", "raise", "ignore"]


@dataclass(frozen=True, slots=True)
class Options:
    """How files are to be described.

    Attributes
    ----------
    names : tuple of str or None
        Columns or variables, in this order; None for all that can be described.
    chunk_rows : int or None
        Rows of a chunk of a table; None chooses.
    chunk_bytes : int
        Bytes that a chunk of a table aims at, in its widest column.
    smallest_chunk : int
        Values of the smallest chunk that records of different lengths may be cut into.
    text : bool
        Also columns and variables of text and bytes of fixed width.
    row_dim : str
        Name of the dimension of a table.
    group : str or None
        Only this group of a container, and those below it.
    inline_bytes : int
        Bytes that may be copied for one array; 0 where the notation cannot hold copies.
    """

    names: tuple[str, ...] | None = None
    chunk_rows: int | None = None
    chunk_bytes: int = CHUNK_BYTES
    smallest_chunk: int = SMALLEST_CHUNK
    text: bool = False
    row_dim: str = "row"
    group: str | None = None
    inline_bytes: int = INLINE_BYTES

    def __post_init__(self) -> None:
        for name in ("chunk_rows", "chunk_bytes", "smallest_chunk"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer))):
                raise TypeError(f"{name} must be a whole number, got {value!r}")
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.inline_bytes < 0:
            raise ValueError(f"inline_bytes must not be negative, got {self.inline_bytes}")


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One file that chunks lie in.

    Attributes
    ----------
    url : str
        Absolute: a plain path for a file of this machine.
    size : int
    token : str or None
        Version of its contents, where the store told one.
    """

    url: str
    size: int
    token: str | None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that Zarr cannot say about our files, and why.

    Attributes
    ----------
    path : str
        ``"name"``, ``"group/name"``, or ``"name@attribute"``.
    reason : str
    """

    path: str
    reason: str


@dataclass(frozen=True)
class VirtualArray:
    """One array: metadata, and a place for every chunk. All chunks are stored in full, `chunk_bytes` long.

    Attributes
    ----------
    name : str
    dtype : numpy.dtype
        Of the bytes in the files, byte order included; times are int64.
    shape : tuple of int
    chunks : tuple of int
        At least 1 along each dimension.
    dims : tuple of str
    attrs : mapping
        JSON values only; without ``_FillValue``.
    fill_value : object
        CF's ``_FillValue``, or None.
    file : ndarray of int32, in the shape of the chunk grid
        Number of the file of each chunk in `Description.files`; `INLINE` where the bytes are in `inline`.
    offset : ndarray of int64, in the shape of the chunk grid
    inline : mapping of tuple of int to bytes
        Chunks that were copied, by their place in the grid.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dims: tuple[str, ...]
    attrs: Mapping[str, Any]
    fill_value: Any
    file: NDArray[np.int32]
    offset: NDArray[np.int64]
    inline: Mapping[tuple[int, ...], bytes] = field(default_factory=dict)

    @property
    def chunk_bytes(self) -> int:
        return math.prod(self.chunks) * self.dtype.itemsize

    def places(self) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """Give the place in the grid, the number of the file, and the offset of every chunk that lies in a file."""
        for index, number, offset in zip(
            np.ndindex(self.file.shape), self.file.ravel().tolist(), self.offset.ravel().tolist(), strict=True
        ):
            if number != INLINE:
                yield index, number, offset


@dataclass(frozen=True)
class VirtualGroup:
    """One group: attributes (JSON values only) and arrays by name."""

    attrs: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, VirtualArray] = field(default_factory=dict)


@dataclass(frozen=True)
class Description:
    """A whole Zarr hierarchy over our files.

    Attributes
    ----------
    groups : mapping of str to VirtualGroup
        By path, ``"/"`` first; parents before children.
    files : tuple of FileVersion
    skipped : tuple of Skipped
    """

    groups: Mapping[str, VirtualGroup]
    files: tuple[FileVersion, ...]
    skipped: tuple[Skipped, ...] = ()

    def root_attrs(self) -> dict[str, Any]:
        """Return the attributes of the root group, with the versions of the files among them."""
        about: dict[str, Any] = {"files": [[f.url, f.size, f.token] for f in self.files]}
        if self.skipped:
            about["skipped"] = {item.path: item.reason for item in self.skipped}
        # Text, not an object: netCDF and others take only flat attributes.
        return {**self.groups["/"].attrs, FILES_ATTRIBUTE: json.dumps(about)}


def check_count(chunks: int, what: str) -> None:
    """Raise `ValueError` if these are too many chunks."""
    if chunks > MAX_CHUNKS:
        raise ValueError(
            f"{what} would be {chunks} chunks, more than {MAX_CHUNKS}; choose fewer columns or longer chunks, or "
            "compact the files first"
        )
