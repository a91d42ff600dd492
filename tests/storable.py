"""What every ingested batch must be, for the tests of all kinds of input."""

from __future__ import annotations

import numpy as np

from colstore_io.ingest import Batch, ingest


def one(data, name="x", **options):
    """Ingest one column; return its field, values and companion."""
    batch = ingest({name: data}, **options)
    assert_storable(batch)
    field = batch.schema.fields[0]
    return field, batch.arrays[0], batch.arrays[1] if field.nullable else None


def assert_storable(batch: Batch) -> None:
    expected = sum(2 if f.nullable else 1 for f in batch.schema)
    assert len(batch.arrays) == expected
    for array in batch.arrays:
        assert type(array) is np.ndarray
        assert array.shape == (batch.n_rows,)
        assert array.flags.c_contiguous
        assert array.dtype.kind in "fiubMmSU"
        assert array.dtype.itemsize > 0
        assert array.dtype.str[0] in "<|"
    arrays = iter(batch.arrays)
    for field in batch.schema:
        values = next(arrays)
        assert values.dtype == field.dtype
        if field.nullable:
            validity = next(arrays)
            assert validity.dtype == np.bool_
            assert not values[~validity].tobytes().strip(b"\0"), "null slots hold zero bytes"
