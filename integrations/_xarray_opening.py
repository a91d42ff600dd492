"""From a store of encoded variables to the Dataset that a user sees: xarray's CF decoding, where somebody asks for it.

Decoding a variable takes xarray longer than everything else in opening it, and most variables come out as they went
in. So only those are decoded whose attributes or dtype ask for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ._xarray_values import PACKING, may_stand_for_values

if TYPE_CHECKING:
    from ._xarray_grid import ColstoreDataStore

__all__ = ["DECODED_ATTRS", "check_attributes", "dataset_of", "decode", "open_store"]

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

_NAMING = frozenset({"coordinates", "bounds", "climatology"})

_ASKING = DECODED_ATTRS - {"units"} | {"_Encoding", "calendar"} | _NAMING
"""Attributes of a variable that xarray's CF decoding may do something for, beside units of time."""

_TIME_UNITS = re.compile(
    r".*since.*|(day|hour|minute|min|(milli|micro|nano)?sec(ond)?|week|month|year|[dh]|[mun]?s?)s?",
    re.I | re.S,
)
"""Units that may make times or durations of numbers; more than xarray knows."""


def open_store(store: ColstoreDataStore, *, drop_variables: Any = None, **decoders: Any) -> xr.Dataset:
    """Return the Dataset of a store; reads no data but what xarray puts into indexes later."""
    dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
    masks = decoders.get("mask_and_scale", True)
    try:
        variables, where = store.named_variables(), store.container.place.spelling
        for name, variable in variables.items():
            if name not in dropped and (masks.get(name, True) if isinstance(masks, Mapping) else masks):
                check_attributes(name, variable.attrs, where)
        decoded, attrs, coord_names = decode(variables, store.get_attrs(), dropped, decoders)
    except BaseException:
        store.close()
        raise
    dataset = dataset_of(decoded, coord_names, attrs)
    dataset.set_close(store.close)
    dataset.encoding = store.get_encoding()
    return dataset


def check_attributes(name: Any, attrs: Mapping[str, Any], path: Any) -> None:
    """Raise `FormatError` if an attribute that stands for values cannot: xarray would fail on it in its own words."""
    for key in PACKING.intersection(attrs) if attrs else ():
        value = attrs[key]
        text = key in ("scale_factor", "add_offset") and isinstance(value, (str, bytes))
        if text or not may_stand_for_values(value):
            from colstore_io.errors import FormatError

            kind = "number" if text else "number or text"
            raise FormatError(
                f"variable {name!r} has an attribute {key!r} that is no {kind}: {value!r:.60}. "
                "mask_and_scale=False opens it undecoded",
                path=str(path),
            )


def dataset_of(
    variables: Mapping[Any, xr.Variable], named: Collection[Any], attrs: Mapping[str, Any]
) -> xr.Dataset:
    """Return the Dataset of variables that fit together, without indexes; coordinates are those named, and of dims."""
    dims = set().union(*(v.dims for v in variables.values()))
    coords = {name: v for name, v in variables.items() if name in named or name in dims}
    data = {name: v for name, v in variables.items() if name not in coords}
    try:
        # What `Dataset` would do first, aligning and merging, takes longer than reading and checking the manifest.
        return _construct({**data, **coords}, set(coords), dict(attrs))
    except (AttributeError, TypeError):  # not in this release of xarray
        return xr.Dataset(data, xr.Coordinates(coords, indexes={}), attrs)


def _construct(variables: dict[Any, xr.Variable], coords: set[Any], attrs: dict[str, Any]) -> xr.Dataset:
    return xr.Dataset._construct_direct(variables, coords, attrs=attrs)


def decode(
    variables: Mapping[Any, xr.Variable],
    attrs: dict[str, Any],
    dropped: Collection[Any],
    decoders: Mapping[str, Any],
) -> tuple[dict[Any, xr.Variable], dict[str, Any], set[Hashable]]:
    """Return what `xarray.conventions.decode_cf_variables` does: variables, attributes, names of coordinates.

    The variables that are given are used up.
    """
    kept = {name: variable for name, variable in variables.items() if name not in dropped}
    if _name_others(variables, attrs, decoders):  # then each is decoded with all others in sight
        return _decoded(variables, attrs, dropped, decoders)
    masks = decoders.get("mask_and_scale", True) is True
    asking = {name: variable for name, variable in kept.items() if not _as_stored(variable, masks)}
    if asking:
        found, attrs, _ = _decoded(asking, attrs, (), decoders)
        kept.update(found)
    return kept, attrs, set()


def _as_stored(variable: xr.Variable, masks: bool) -> bool:
    """Bring a variable in the form that CF decoding would give it, if that is easy; else return False.

    Parameters
    ----------
    masks : bool
        Fill values are taken out of the values.
    """
    attrs, encoding = variable.attrs, variable.encoding
    kind = variable.dtype.kind
    asking = _ASKING.intersection(attrs) if attrs else frozenset()
    fill = None
    if asking == {"_FillValue"} and kind == "f" and masks:
        # What xarray gives floats that nobody gave one: NaN stands for NaN.
        fill = attrs["_FillValue"]
        if not isinstance(fill, (float, np.floating)) or fill == fill:
            return False
    elif asking:
        return False
    if kind in "ST":
        return False
    units = attrs.get("units")
    if "units" in attrs and (not isinstance(units, str) or _TIME_UNITS.fullmatch(units.strip()) is not None):
        return False
    if fill is not None:
        encoding["_FillValue"] = attrs.pop("_FillValue")
    if kind not in "MmO":
        encoding.setdefault("dtype", variable.dtype)
    return True


def _name_others(
    variables: Mapping[Any, xr.Variable], attrs: Mapping[str, Any], decoders: Mapping[str, Any]
) -> bool:
    """Whether one variable may change what becomes of another: it names it, or has characters along a dimension."""
    if "coordinates" in attrs or decoders.get("decode_coords") == "all":
        return True
    return any(v.dtype.kind == "S" or not _NAMING.isdisjoint(v.attrs) for v in variables.values())


def _decoded(
    variables: Mapping[Any, xr.Variable],
    attrs: dict[str, Any],
    dropped: Collection[Any],
    decoders: Mapping[str, Any],
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
        {**variables, **shown}, attrs, drop_variables=set(dropped), **decoders
    )
    decoded: dict[Any, xr.Variable] = dict(found)
    for name in texts.keys() & decoded.keys():
        v = decoded[name]
        encoding = {key: value for key, value in v.encoding.items() if key != "dtype"}
        decoded[name] = xr.Variable(v.dims, texts[name]._data, v.attrs, encoding, fastpath=True)
    return decoded, dict(decoded_attrs), coord_names
