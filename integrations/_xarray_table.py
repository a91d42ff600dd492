"""Tables as Datasets: one dimension, one lazy variable per column (`ColumnArray`).

Chunks are decided in `DatasetPlan.partitions`, the form of nullable columns in `plain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from xarray.core import indexing

from ._xarray_column import ColumnArray, Form
from ._xarray_opening import DECODED_ATTRS, dataset_of
from ._xarray_values import FEW_CHUNKS

if TYPE_CHECKING:
    from colstore_io.dataset import Source
    from colstore_io.fields import Field

__all__ = ["CHUNK_BYTES", "MERGE_BELOW_BYTES", "asks_for_decoding", "table_dataset"]

CHUNK_BYTES = 128 << 20
"""Bytes of all variables per preferred chunk; larger segments are cut, which costs nothing."""

MERGE_BELOW_BYTES = 1 << 20
"""Segments smaller than this share a chunk with their neighbours."""


def _names(source: Source, columns: Any, drop_variables: Any, index: str | None) -> list[str]:
    from colstore_io.errors import ColumnNotFoundError

    dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
    wanted = (
        source.schema.names if columns is None else [columns] if isinstance(columns, str) else list(columns)
    )
    if index is not None and index not in wanted:
        wanted = [*wanted, index]
    for name in wanted:
        if name not in source.schema:
            raise ColumnNotFoundError.for_name(name, source.schema.names)
    return [name for name in wanted if name not in dropped or name == index]


def table_dataset(
    source: Source, columns: Any, drop_variables: Any, row_dim: str, index: str | None, mask: str | None
) -> xr.Dataset:
    """Return the Dataset of a table, not decoded; arguments as those of the engine.

    Raises
    ------
    ColumnNotFoundError
        If a column is unknown.
    ValueError
        If the variable of a mask would have the name of another.
    """
    names = _names(source, columns, drop_variables, index)
    dim = index if index is not None and row_dim == "row" else row_dim
    chunks = _preferred_chunks(source, names)
    variables: dict[str, xr.Variable] = {}
    everything = indexing.BasicIndexer((slice(None),))
    for name in names:
        position = source.schema.index(name)
        field = source.schema.fields[position]
        separate = mask == "variable" and field.nullable
        forms: list[tuple[str, Form]] = [(name, "stored" if separate else "plain")]
        if separate:
            forms.append((f"{name}_mask", "missing"))
        for variable, form in forms:
            if variable in variables or (form == "missing" and variable in source.schema):
                raise ValueError(f"two variables would be named {variable!r}; choose columns= or mask=None")
            attrs = dict(field.attrs) if form != "missing" else {}
            array = indexing.LazilyIndexedArray(ColumnArray(source, position, form), everything)
            variables[variable] = xr.Variable(
                (dim,), array, attrs, _encoding(field, form, dim, chunks), fastpath=True
            )
    # Whether a variable named like its dimension is read into an index now is for `xarray.open_dataset` to say.
    return dataset_of(variables, (), dict(source.schema.attrs))


def _encoding(field: Field, form: Form, dim: str, chunks: int | tuple[int, ...] | None) -> dict[str, Any]:
    encoding: dict[str, Any] = {} if chunks is None else {"preferred_chunks": {dim: chunks}}
    if field.tz is not None and form != "missing":
        encoding["timezone"] = field.tz  # values are UTC
    return encoding


def _preferred_chunks(source: Source, names: Sequence[str]) -> int | tuple[int, ...] | None:
    """Return the chunk lengths that all variables share; one number for a uniform grid of many."""
    bounds = source.plan.partitions(names, blocksize=CHUNK_BYTES, merge_below=MERGE_BELOW_BYTES)
    lengths = np.diff(bounds)
    if lengths[0] == 0:
        return None
    if len(lengths) > FEW_CHUNKS and (lengths[:-1] == lengths[0]).all() and lengths[-1] <= lengths[0]:
        return int(lengths[0])
    return tuple(lengths.tolist())


def asks_for_decoding(dataset: xr.Dataset) -> bool:
    """Whether attributes ask for CF decoding."""
    return "coordinates" in dataset.attrs or any(
        not DECODED_ATTRS.isdisjoint(variable.attrs) for variable in dataset.variables.values()
    )
