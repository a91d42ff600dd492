"""Text of variable length inside a predicate: compared where it lies, in Arrow's buffers.

A column of texts of any length has no NumPy array that grows with its bytes: one long value would widen all rows.
The comparisons that filters are made of (with a constant, with a list) run on the Arrow array; anything else gets a
block of rows as NumPy text, or as objects where padding would cost too much or hide a NUL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..ingest.arrow import values_from_arrow
from .literals import Operator

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowText"]

PADDED_BYTES = 64 << 20
"""A block of rows wider than this is not padded."""

_FUNCTIONS: dict[Operator, str] = {
    "less": "less",
    "less_equal": "less_equal",
    "greater": "greater",
    "greater_equal": "greater_equal",
    "equal": "equal",
    "not_equal": "not_equal",
}


class ArrowText:
    """An Arrow array of text or bytes with as much of an array's manners as predicates need.

    Parameters
    ----------
    array : pyarrow.Array
        string, large_string, binary, large_binary, or a dictionary of these. Nulls are told by the column's validity.
    """

    __slots__ = ("array", "dtype")

    ndim = 1

    def __init__(self, array: pa.Array) -> None:
        import pyarrow as pa

        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        self.array = array
        text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
        self.dtype = np.dtype("U1" if text else "S1")

    @property
    def shape(self) -> tuple[int]:
        return (len(self.array),)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, rows: slice) -> ArrowText:
        start, stop, _ = rows.indices(len(self.array))
        return ArrowText(self.array.slice(start, stop - start))

    def compare(self, op: Operator, value: Any) -> NDArray[np.bool_] | None:
        """Return ``values OP value``, False for nulls; None when Arrow cannot hold `value`.

        UTF-8 bytes are ordered as the characters are, so Arrow's order is NumPy's.
        """
        import pyarrow.compute as pc

        constant = self._scalar(value)
        if constant is None:
            return None
        return _flags(pc.call_function(_FUNCTIONS[op], [self.array, constant]))

    def isin(self, members: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Return which values are among `members`, False for nulls; None when Arrow cannot hold one of them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        constants = [self._scalar(member) for member in members]
        if any(constant is None for constant in constants):
            return None
        listed = pa.array([c.as_py() for c in constants if c is not None], self.array.type)
        return _flags(pc.is_in(self.array, value_set=listed))

    def padded(self) -> NDArray[Any]:
        """Return the values as fixed-width text or bytes, or as objects; nulls are empty."""
        import pyarrow.compute as pc

        count = len(self.array)
        widest = int(pc.max(pc.binary_length(self.array)).as_py() or 0)
        unit = 4 if self.dtype.kind == "U" else 1
        if widest * unit * count <= PADDED_BYTES and not self._hides_nul():
            return values_from_arrow(self.array, "text").values
        values: NDArray[Any] = self.array.fill_null("" if self.dtype.kind == "U" else b"").to_numpy(
            zero_copy_only=False
        )
        return values

    def _hides_nul(self) -> bool:
        import pyarrow.compute as pc

        pattern = "\0" if self.dtype.kind == "U" else b"\0"
        return bool(pc.any(pc.ends_with(self.array, pattern)).as_py())

    def _scalar(self, value: Any) -> pa.Scalar | None:
        import pyarrow as pa

        try:
            return pa.scalar(value.item() if isinstance(value, np.generic) else value, self.array.type)
        except (
            UnicodeEncodeError,
            pa.ArrowInvalid,
            pa.ArrowTypeError,
        ):  # a lone surrogate is no text of Arrow's
            return None


def _flags(found: Any) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = found.fill_null(False).to_numpy(zero_copy_only=False)
    return flags if flags.flags.writeable else flags.copy()
