"""Decoded columns as lists of Python objects (columns.md 12.3)."""

from __future__ import annotations

from typing import Any

from .. import DecodedColumn

__all__ = ["boxed"]


def boxed(column: DecodedColumn, *, text: bool = False) -> list[Any]:
    """Return one Python value per row: bool, int, float, str or bytes; None for nulls.

    Parameters
    ----------
    column : DecodedColumn
    text : bool, optional
        Make str of bytes, what is not UTF-8 becoming lone surrogates: for columns of type string that were read with
        ``errors="surrogateescape"``.
    """
    if column.array is not None:
        values: list[Any] = column.array.to_pylist()
        if text:
            return [v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else v for v in values]
        return values
    assert column.values is not None
    values = column.values.tolist()
    if column.validity is None:
        return values
    return [v if there else None for v, there in zip(values, column.validity.tolist(), strict=True)]
