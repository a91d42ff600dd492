"""From a store of encoded variables to the Dataset that a user sees: xarray's CF decoding, where somebody asks for it.

Decoding a variable takes xarray longer than everything else in opening it, and most variables come out as they went
in. So only those are decoded whose attributes or dtype ask for it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

if TYPE_CHECKING:
    from ._xarray_grid import ColstoreDataStore

__all__ = ["DECODED_ATTRS", "open_store"]

DECODED_ATTRS = frozenset(
    {
        "_FillValue",
        "missing_value",
        "scale_factor",
        "add_offset",
        "_Unsigned",
        "units",
        "dtype",
        "coordinates",
    }
)
"""Attributes by which xarray's CF decoding changes a variable."""

_ASKING = DECODED_ATTRS - {"units"} | {"_Encoding", "calendar", "bounds", "climatology"}
"""Attributes of a variable that xarray's CF decoding may do something for, beside units of time."""

_TIME_UNITS = re.compile(
    r".*since.*|(day|hour|minute|min|(milli|micro|nano)?sec(ond)?|week|month|year|[dh]|[mun]?s?)s?",
    re.I | re.S,
)
"""Units that may make times or durations of numbers; more than xarray knows."""


def open_store(store: ColstoreDataStore, *, drop_variables: Any = None, **decoders: Any) -> xr.Dataset:
    """Return the Dataset of a store; reads no data but what xarray puts into indexes later."""
    try:
        variables, attrs = store.named_variables(), store.get_attrs()
        dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        kept = {name: variable for name, variable in variables.items() if name not in dropped}
        coord_names: set[Hashable] = set()
        decoded = {name: _as_stored(v) for name, v in kept.items() if _is_as_stored(v)}
        if len(decoded) < len(kept) or "coordinates" in attrs:
            # Those that name others, and characters that may become text, are decoded with all others in sight.
            alone = not _name_others(variables, attrs, decoders)
            asking = {name: v for name, v in kept.items() if name not in decoded} if alone else variables
            found, attrs, coord_names = _decoded(asking, attrs, dropped, decoders)
            decoded = {name: found[name] if name in found else decoded[name] for name in kept}
    except BaseException:
        store.close()
        raise
    is_coord = {name: name in coord_names or v.dims == (name,) for name, v in decoded.items()}
    coords = xr.Coordinates({name: v for name, v in decoded.items() if is_coord[name]}, indexes={})
    dataset = xr.Dataset({name: v for name, v in decoded.items() if not is_coord[name]}, coords, attrs)
    dataset.set_close(store.close)
    dataset.encoding = store.get_encoding()
    return dataset


def _is_as_stored(variable: xr.Variable) -> bool:
    """Whether xarray's CF decoding would give a variable back as it is: it takes longer than all else here."""
    attrs = variable.attrs
    if variable.dtype.kind in "ST" or not _ASKING.isdisjoint(attrs):
        return False
    units = attrs.get("units", "K")
    return isinstance(units, str) and _TIME_UNITS.fullmatch(units.strip()) is None


def _as_stored(variable: xr.Variable) -> xr.Variable:
    if variable.dtype.kind not in "MmO":
        variable.encoding.setdefault("dtype", variable.dtype)  # as CF decoding would
    return variable


def _name_others(variables: Mapping[Any, xr.Variable], attrs: Mapping[str, Any], decoders: Any) -> bool:
    if "coordinates" in attrs or decoders.get("decode_coords") == "all":
        return True
    return any(
        v.dtype.kind == "S" or not {"coordinates", "bounds", "climatology"}.isdisjoint(v.attrs)
        for v in variables.values()
    )


def _decoded(
    variables: Mapping[Any, xr.Variable], attrs: dict[str, Any], dropped: set[Any], decoders: Any
) -> tuple[dict[Any, xr.Variable], dict[str, Any], set[Hashable]]:
    # xarray looks at the first value of every object array, in case it is a date. Text shows it empty strings.
    texts = {
        name: variable
        for name, variable in variables.items()
        if variable.dtype.kind == "O" and not {"_FillValue", "missing_value"} & set(variable.attrs)
    }
    nothing = np.array("", "U1")
    shown = {
        name: xr.Variable(v.dims, np.broadcast_to(nothing, v.shape), v.attrs, v.encoding, fastpath=True)
        for name, v in texts.items()
    }
    found, decoded_attrs, coord_names = xr.conventions.decode_cf_variables(
        {**variables, **shown}, attrs, drop_variables=dropped, **decoders
    )
    decoded: dict[Any, xr.Variable] = dict(found)
    for name in texts.keys() & decoded.keys():
        v = decoded[name]
        encoding = {key: value for key, value in v.encoding.items() if key != "dtype"}
        decoded[name] = xr.Variable(v.dims, texts[name]._data, v.attrs, encoding, fastpath=True)
    return decoded, dict(decoded_attrs), coord_names
