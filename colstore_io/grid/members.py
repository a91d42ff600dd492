"""Writing members: chunks of variables become `.cstore` files that appear whole or not at all.

A member is complete before any manifest names it, and never changed afterwards.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats.cstore.encode import stored_array
from ..storage import Location
from .files import Scratch, Unsynced, write_file
from .layout import Box
from .model import NAN_SIZE, NONE_SIZE, Column, Member, TextFile, VariableSpec, roles_of
from .places import outer_product

__all__ = ["member_name", "text_sizes", "write_member"]


def member_name(number: int = 0) -> str:
    """Return a fresh file name ``part-<digits>-<random>.cstore``, which `vacuum` may delete once nothing names it."""
    return f"part-{number:05d}-{secrets.token_hex(8)}.cstore"


def write_member(
    place: Location,
    group: str,
    specs: Sequence[VariableSpec],
    arrays: Mapping[str, Any],
    first: Sequence[int],
    *,
    number: int = 0,
    unsynced: Unsynced | None = None,
) -> tuple[Member, list[TextFile]]:
    """Write chunks of variables that are cut alike into one file, and their text into one more for each.

    Parameters
    ----------
    place : Location
        The directory.
    group : str
    specs : sequence of VariableSpec
        With the same dimensions; `axes` say how `arrays` are cut.
    arrays : mapping of str to array
        Values by variable: whole chunks. Anything that slices to NumPy arrays.
    first : sequence of int
        Number of the first chunk along each dimension, in the grid of the whole variable.
    number : int
        Goes into the name of the file.
    unsynced : Unsynced, optional
        Takes the files, to make them durable later; without it their bytes are durable on return.

    Returns
    -------
    member : Member
    texts : list of TextFile
    """
    axes = specs[0].axes
    texts: dict[str, TextFile] = {}
    sizes: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
    for spec in specs:
        if spec.kind in ("text", "bytes"):
            texts[spec.name], sizes[spec.name] = _write_text(
                place, group, spec, arrays[spec.name], number, unsynced
            )
    columns = [
        Column(spec.name, role, dtype.itemsize)
        for spec in specs
        for role, dtype in zip(roles_of(spec.kind), spec.stored_dtypes, strict=True)
    ]
    dtypes = [dtype for spec in specs for dtype in spec.stored_dtypes]
    names = _column_names(columns)

    edges = [axis.edges().tolist() for axis in axes]
    counts = tuple(axis.count for axis in axes)

    def record(chunk: int, scratch: Scratch) -> list[NDArray[Any]]:
        place = _slices(edges, chunk)
        parts: list[NDArray[Any]] = []
        for spec in specs:
            if spec.name in sizes:
                parts += [column[place] for column in sizes[spec.name]]
                continue
            values = np.asarray(arrays[spec.name][place], spec.dtype)
            parts += [values.real, values.imag] if spec.kind == "complex" else [values]
        return [stored_array(scratch.contiguous(part)) for part in parts]

    path = member_name(number)
    fields = [(name, dtype.newbyteorder("<")) for name, dtype in zip(names, dtypes, strict=True)]
    rows = outer_product([np.diff(axis.edges()) for axis in axes])
    lazy = not all(isinstance(arrays[spec.name], np.ndarray) for spec in specs)
    begin, size = write_file(
        place.child(path), fields, rows, record, unsynced, parallel=lazy, ahead=any(n > 1 for n in counts[1:])
    )
    box = Box(tuple(first), tuple(a + n for a, n in zip(first, counts, strict=True)))
    where = {name: text.path for name, text in texts.items()}
    member = Member(path, size, group, specs[0].dims, box, tuple(axes), begin, tuple(columns), where)
    return member, list(texts.values())


def _column_names(columns: Sequence[Column]) -> list[str]:
    """Return distinct names for the columns of a file: the variable's, with the role behind a dot."""
    names: list[str] = []
    plain = {column.variable for column in columns if not column.role}
    for column in columns:
        name = column.variable if not column.role else f"{column.variable}.{column.role}"
        while name in names or (column.role and name in plain):
            name += "_"
        names.append(name)
    return names


def _slices(edges: Sequence[Sequence[int]], chunk: int) -> tuple[slice, ...]:
    """Return where chunk number `chunk`, in C order, lies; `edges` are those of each axis."""
    found = []
    for own in reversed(edges):
        chunk, at = divmod(chunk, len(own) - 1)
        found.append(slice(own[at], own[at + 1]))
    return tuple(reversed(found))


# ----------------------------------------------------------------------------------------------------------
# Text


def text_sizes(values: NDArray[Any], kind: str, name: str) -> tuple[list[bytes], NDArray[np.int64]]:
    """Return the bytes of each value, and their lengths with -1 for NaN and -2 for None.

    Raises
    ------
    TypeError
        If a value is neither missing nor of the kind; names the variable.
    """
    pieces: list[bytes] = []
    sizes = np.empty(values.size, np.int64)
    wanted: Any = str if kind == "text" else bytes
    for position, value in enumerate(values.reshape(-1).tolist()):
        if isinstance(value, wanted):
            pieces.append(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
            sizes[position] = len(pieces[-1])
        elif value is None:
            sizes[position] = NONE_SIZE
        elif _is_missing(value):
            sizes[position] = NAN_SIZE
        else:
            raise TypeError(
                f"variable {name!r} holds {type(value).__name__} beside {wanted.__name__}; use one type for all values"
            )
    return pieces, sizes.reshape(values.shape)


def _is_missing(value: Any) -> bool:
    """Whether a value is NaN, NaT or pandas' NA: what is not equal to itself, or does not say."""
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def _write_text(
    place: Location, group: str, spec: VariableSpec, array: Any, number: int, unsynced: Unsynced | None
) -> tuple[TextFile, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    pieces, sizes = text_sizes(np.asarray(array, object), spec.kind, spec.name)
    text = np.frombuffer(b"".join(pieces), np.uint8)
    lengths = np.maximum(sizes.reshape(-1), 0)
    starts = (np.cumsum(lengths) - lengths).reshape(sizes.shape)
    path = member_name(number)
    fields = [(f"{spec.name}.text", np.dtype(np.uint8))]
    rows = np.array([len(text)], np.int64)
    begin, size = write_file(place.child(path), fields, rows, lambda *_: [text], unsynced)
    return TextFile(path, size, group, begin, len(text)), (starts, sizes)
