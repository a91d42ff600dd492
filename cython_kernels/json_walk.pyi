from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

def render(
    message: bytes,
    start: int,
    k8: bool,
    bare: bool,
    structs: NDArray[np.int32],
    fields: NDArray[np.int32],
    names: bytes,
    spell_float: Callable[[int, bool], str],
    max_rows: int,
    max_cells: int,
    max_text: int,
) -> str | int | None:
    """Return a message as JSON text (colbin.md 12), None when it is malformed or a bound is reached.

    Above `max_text` the result is the offset where that happened.

    Parameters
    ----------
    message : bytes
    start : int
        Where the body begins.
    k8 : bool
        Whether the body is a run of eight-bit keys.
    bare : bool
        Whether the root is an envelope: its value alone is the text.
    structs : ndarray of int32, shape (S, 4)
        Per record type: first field, number of fields, whether it is K8, characters of its names. Callers guarantee
        that fields and the numbers of records in them are in range, and that no record contains itself by value.
    fields : ndarray of int32, shape (F, 6)
        Per field: key, type code, record number or key kind or pointee, value kind, and the range of its quoted name,
        colon included, in `names`.
    names : bytes
    spell_float : callable
        ``(reversed bits, is f32) -> text``; raises for what JSON cannot spell.
    max_rows, max_cells : int
        Rows of one table, cells of all tables.
    max_text : int
        Characters of names and zeros.
    """
