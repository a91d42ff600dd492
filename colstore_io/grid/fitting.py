"""Whether new values fit into the type that a stored variable has: of one width, or of one unit of time.

NumPy casts text to a narrower type by cutting it, and times to a finer unit by overflowing, both without a word.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import SchemaMismatchError
from .model import VariableSpec

__all__ = ["advice", "fitted", "without_loss"]

_UNITS_OR_WIDTHS = "USMm"
"""Kinds of dtypes that hold values of one kind in several sizes or units."""


def without_loss(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return `values` in `dtype`, which is of the same kind; None if one of them would be another value then.

    Parameters
    ----------
    values : ndarray
        Text, bytes, times or durations; for all other kinds nothing is compared.
    dtype : numpy.dtype

    Returns
    -------
    ndarray or None
        `values` themselves where nothing changes.
    """
    found = values.astype(dtype, copy=False)
    kind = dtype.kind
    if values.dtype == dtype or kind != values.dtype.kind or kind not in _UNITS_OR_WIDTHS:
        return found
    if kind in "US":
        if values.dtype.itemsize > dtype.itemsize and not np.array_equal(found, values):
            return None
    elif not np.array_equal(found.astype(values.dtype), values, equal_nan=True):
        return None
    return found


def fitted(values: NDArray[Any], spec: VariableSpec) -> NDArray[Any]:
    """Return values of a variable as they are stored.

    Raises
    ------
    SchemaMismatchError
        If text or bytes are longer than the variable is wide, or times do not fit its unit; names the variable.
    """
    if spec.kind != "plain":
        return values
    found = without_loss(values, spec.dtype)
    if found is None:
        raise SchemaMismatchError(
            f"variable {spec.name!r} is {values.dtype}, the dataset has {spec.dtype}: {advice(spec.dtype)}"
        )
    return found


def advice(dtype: np.dtype[Any], *, unseen: bool = False) -> str:
    """Return why values do not fit into a stored dtype of text, bytes or times, and what to do.

    Parameters
    ----------
    unseen : bool
        The values are not computed yet, so that only their type says what they may be.
    """
    text = dtype.kind in "US"
    what = "longer text would be cut" if text else "some times would be changed"
    if unseen:
        return (
            f"{what}, and blocks of Dask are not computed to see whether it is so. If all values fit, convert them "
            f"first, by astype({dtype.str!r}); else write the whole variable anew with mode='a'"
        )
    instead = "shorten the values" if text else "convert the values"
    return f"{what}. Nothing was published; {instead}, or write the whole variable anew with mode='a'"
