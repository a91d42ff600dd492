"""N-D grid containers as xarray's backends want them: lazy arrays, and the store that xarray's CF encoder writes into.

What is CF stays xarray's: this store hands over encoded variables and takes encoded ones. Times, durations and booleans
that ask for no CF encoding are stored as they are, in their own unit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.backends.common import WritableCFDataStore, _decode_variable_name, ensure_dtype_not_object
from xarray.coding import strings
from xarray.conventions import cf_encoder
from xarray.core import indexing

from ._xarray_arguments import check_chunk, check_dtypes, check_packing
from ._xarray_packing import checked_packing
from ._xarray_values import FEW_CHUNKS, PACKING, is_null, may_stand_for_values, own_attributes

if TYPE_CHECKING:
    from colstore_io.grid import Container, GridWriter
    from colstore_io.grid.commit import Part
    from colstore_io.grid.jobs import Job
    from colstore_io.grid.layout import Axis
    from colstore_io.grid.model import VariableSpec
    from colstore_io.grid.reading import GridVariable

__all__ = ["ColstoreDataStore", "GridArray", "variable_of"]

_CF_TIME = ("units", "calendar", "_FillValue", "missing_value", "scale_factor", "add_offset")
_OWN_ENCODING = frozenset(
    {"_FillValue", "char_dim_name", "chunks", "chunksizes", "dtype", "preferred_chunks"}
)
_CF_ATTRS = ("units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")


class GridArray(BackendArray):
    """One variable of a grid container, read when it is indexed. Pickling carries addresses, no data.

    Integers, slices and index arrays, outer or pointwise, go to the kernels as they are; nothing is decomposed, and no
    lock is taken.

    Parameters
    ----------
    variable : GridVariable

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
        Of every array that indexing returns, exactly; text and bytes of any length are objects.
    """

    __slots__ = ("dtype", "shape", "variable")

    def __init__(self, variable: GridVariable) -> None:
        spec = variable.spec
        self.variable = variable
        self.shape = spec.shape
        kinds: dict[str, type] = {"text": str, "bytes": bytes}
        self.dtype = strings.create_vlen_dtype(kinds[spec.kind]) if spec.kind in kinds else spec.dtype

    def job(self, key: indexing.ExplicitIndexer) -> Job:
        """Plan the read of `key`."""
        if isinstance(key, indexing.VectorizedIndexer):
            return self.variable.points_job(key.tuple)
        return self.variable.outer_job(key.tuple)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> NDArray[Any]:
        from colstore_io.grid.jobs import read_jobs

        return self.finish(read_jobs([self.job(key)])[0])

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> NDArray[Any]:
        # In a thread: reads of fsspec wait for fsspec's own event loop (integrations.md 3.6), kernels for memory.
        return await asyncio.to_thread(self.__getitem__, key)

    def finish(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return `values` in the dtype of this array."""
        return values.astype(self.dtype, copy=False) if self.dtype.kind == "O" else values

    def __repr__(self) -> str:
        return f"GridArray({self.variable.spec.name!r}, dtype={self.dtype}, shape={self.shape})"


def variable_of(variable: GridVariable) -> xr.Variable:
    """Return the lazy xarray variable, as stored; its preferred chunks are the stored ones."""
    spec = variable.spec
    chunks = _chunk_lengths(spec.axes)
    encoding: dict[str, Any] = {}
    if chunks:
        encoding["preferred_chunks"] = {
            dim: chunk if axis.count > FEW_CHUNKS else axis.lengths()
            for dim, chunk, axis in zip(spec.dims, chunks, spec.axes, strict=True)
        }
        encoding["chunks"] = tuple(chunks)
    data = indexing.LazilyIndexedArray(GridArray(variable))
    return xr.Variable(spec.dims, data, own_attributes(spec.attrs), encoding, fastpath=True)


_MOST_LENGTHS = 1 << 20


def _chunk_lengths(axes: Sequence[Axis]) -> list[int | tuple[int, ...]]:
    """Return how each dimension is cut: one number, or all lengths. Nothing of an array without values.

    Nor of one whose lengths should not be written out: a few numbers in a manifest may stand for many million chunks.
    """
    found: list[int | tuple[int, ...]] = []
    for axis in axes:
        length = axis.uniform
        if not length and not 0 < axis.count <= _MOST_LENGTHS:
            return []
        found.append(length or axis.lengths())
    return found


class _Sink:
    """What `ArrayWriter` assigns to; the store has taken the data already."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class ColstoreDataStore(WritableCFDataStore):
    """A group of a grid container as a store of xarray: encoded variables come out and go in.

    Parameters
    ----------
    path : path or URL
    mode : {"r", "w", "w-", "a", "r+"}
    group : str, optional
    append_dim : str, optional
        Data follow what exists along this dimension.
    region : mapping of str to slice, optional
        Data go into this part of what exists.
    chunks : mapping of str to int or sequence of int, optional
        How to cut dimensions.
    storage_options, filesystem, mmap, backend, max_workers
        As in `colstore_io.open`.

    Notes
    -----
    What was written is published by `sync`, and by `close`. Variables backed by Dask are kept in `lazy`: they are
    written by somebody else (`_xarray_write`), who then calls `sync`.
    """

    __slots__ = (
        "_chunks",
        "_container",
        "_options",
        "append_dim",
        "group",
        "lazy",
        "mode",
        "path",
        "region",
        "writer",
    )

    def __init__(
        self,
        path: Any,
        mode: str = "r",
        *,
        group: str | None = None,
        append_dim: str | None = None,
        region: Mapping[str, slice] | None = None,
        chunks: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
        mmap: bool = True,
        backend: str | None = None,
        max_workers: int | None = None,
    ) -> None:
        from colstore_io.grid import GridWriter
        from colstore_io.grid.container import place_of

        self.path = path
        self.mode = mode
        self.group = group
        self.append_dim = append_dim
        self.region = region
        self._chunks = dict(chunks or {})
        self._options = {
            "storage_options": storage_options,
            "filesystem": filesystem,
            "mmap": mmap,
            "backend": backend,
            "max_workers": max_workers,
        }
        self._container: Container | None = None
        self.writer: GridWriter | None = None
        self.lazy: list[tuple[Part, Any]] = []
        if mode != "r":
            place = place_of(path, storage_options=storage_options, filesystem=filesystem)
            self.writer = GridWriter(place, mode, "/" if group is None else group)  # type: ignore[arg-type]  # checked there

    @classmethod
    def of_grid(
        cls,
        path: Any,
        group: str | None,
        *,
        storage_options: Mapping[str, Any] | None,
        filesystem: Any,
        **options: Any,
    ) -> ColstoreDataStore | None:
        """Return the store of a grid container, by one listing and one read; None without a manifest of a grid."""
        from colstore_io.grid.container import container_at

        container = container_at(
            path, group, storage_options=storage_options, filesystem=filesystem, **options
        )
        if container is None:
            return None
        return cls.of_container(container, group or "/")

    @classmethod
    def of_container(cls, container: Container, group: str) -> ColstoreDataStore:
        """Return the store of one group of a container that is open."""
        store = cls(container.place, group=group)
        store._container = container
        return store

    # ------------------------------------------------------------------------------------------------------
    # Reading

    @property
    def container(self) -> Container:
        """The container, opened when it is first asked for."""
        from colstore_io.grid import open_container

        self.sync()
        if self._container is None:
            self._container = open_container(self.path, **self._options)
            self._container.group(self.group)
        return self._container

    def get_variables(self) -> dict[str, xr.Variable]:
        return {name: variable_of(variable) for name, variable in self.container.variables(self.group)}

    def existing_variables(self, wanted: Collection[Hashable]) -> dict[Any, xr.Variable]:
        """Return those of `wanted` that exist in a store opened for changing, by the names that a Dataset has.

        Raises
        ------
        FileNotFoundError
            If there is no container.
        KeyError
            If it does not have the group.
        """
        container = self._changing()
        decoded = ((_decode_variable_name(name), found) for name, found in container.variables(self.group))
        return {own: variable_of(variable) for own, variable in decoded if own in wanted}

    def _changing(self) -> Container:
        """Return the container as it was when a store for changing it was opened."""
        from colstore_io.grid.container import Container
        from colstore_io.grid.source import GridSource

        writer = self._writing
        if self._container is None:
            if writer.base is None:
                raise FileNotFoundError(2, "no such grid container to change", writer.place.spelling)
            self._container = Container(writer.place, writer.base, GridSource(writer.place))
        return self._container

    def named_variables(self) -> dict[Any, xr.Variable]:
        """Return the variables by the names that they have in a Dataset: one of them may be None."""
        return {_decode_variable_name(name): variable for name, variable in self.get_variables().items()}

    def get_attrs(self) -> dict[str, Any]:
        return own_attributes(self.container.group(self.group).attrs)

    def get_dimensions(self) -> dict[str, int]:
        if self.writer is None:
            return {name: dim.length for name, dim in self.container.group(self.group).dims.items()}
        if self.append_dim is not None or self.region is not None:
            return {}  # compared variable by variable
        return {name: dim.length for name, dim in self.writer.existing.dims.items()}

    def get_encoding(self) -> dict[str, Any]:
        dims = self.container.group(self.group).dims
        unlimited = {name for name, dim in dims.items() if dim.unlimited}
        return {"unlimited_dims": unlimited} if unlimited else {}

    # ------------------------------------------------------------------------------------------------------
    # Encoding

    def encode(self, variables: Any, attributes: Any) -> Any:
        check_dtypes(variables.items())
        own = {name for name, variable in variables.items() if _is_native(variable)}
        asking = {name: v.copy(deep=False) for name, v in variables.items() if name not in own}
        for name, variable in asking.items():
            check_packing(variable, name)
        _count_bounds_alike(asking)
        encoded, attributes = cf_encoder(
            {name: checked_packing(variable, name) for name, variable in asking.items()}, attributes
        )
        result = {}
        for name, variable in variables.items():
            if name in own:
                result[name] = variable
            else:
                result[name] = self.encode_variable(_typed(encoded[name], name), name=name)
        return result, attributes

    def encode_variable(self, v: xr.Variable, name: Any = None) -> xr.Variable:
        if "dtype" in v.encoding and v.encoding["dtype"] in ("S1", np.dtype("S1")) and v.dtype.kind in "OUS":
            # Characters along a dimension of their own, because the user says so.
            for coder in (strings.EncodedStringCoder(allows_unicode=False), strings.CharacterArrayCoder()):
                v = coder.encode(v, name=name)
        return v

    # ------------------------------------------------------------------------------------------------------
    # Writing

    @property
    def _writing(self) -> GridWriter:
        if self.writer is None:
            raise ValueError("the store was opened for reading")
        return self.writer

    def set_dimension(self, dim: str, length: int | None, is_unlimited: bool = False) -> None:
        from colstore_io.grid.model import Dimension

        if self.append_dim is None and self.region is None and length is not None:
            self._writing.dims[dim] = Dimension(int(length), bool(is_unlimited))

    def set_attribute(self, k: str, v: Any) -> None:
        if self.append_dim is None and self.region is None:
            self._writing.attrs[k] = _attribute(v)

    def prepare_variable(
        self, name: str, variable: xr.Variable, check_encoding: bool = False, unlimited_dims: Any = None
    ) -> tuple[_Sink, None]:
        writer = self._writing
        if check_encoding:
            unknown = set(variable.encoding) - _OWN_ENCODING
            if unknown:
                raise ValueError(
                    f"unexpected encoding parameters for variable {name!r}: {sorted(unknown)}; valid ones are "
                    f"{sorted(_OWN_ENCODING)}, and those of CF: units, calendar, scale_factor, add_offset, "
                    "missing_value. Chunks are not compressed"
                )
        spec = self._spec(name, variable, check_encoding)
        old = writer.existing.variables.get(name)
        data = variable.data
        if self.append_dim is not None:
            part = self._appended(spec, old, data)
        elif self.region is not None or self.mode == "r+":
            part = self._regional(spec, old, data)
        else:
            from colstore_io.grid.commit import whole_part

            part = whole_part(spec)
        if part is None:
            return _Sink(), None
        if _is_dask(data) and part.size:
            writer.put(part)
            self.lazy.append((part, data))
        else:
            writer.put(part, _in_memory(data, part.spec))
        return _Sink(), None

    def _spec(self, name: str, variable: xr.Variable, checked: bool) -> VariableSpec:
        from colstore_io.grid.model import VariableSpec

        kind, dtype = _stored_kind(name, variable.dtype)
        axes = self._axes(name, variable, dtype.itemsize, checked)
        attrs = {key: _attribute(value) for key, value in variable.attrs.items()}
        for key in PACKING.intersection(attrs):
            if not may_stand_for_values(attrs[key]):
                raise TypeError(
                    f"attribute {key!r} of variable {name!r} must be a number or text, got {attrs[key]!r}"
                )
        return VariableSpec(name, kind, dtype, tuple(map(str, variable.dims)), axes, attrs)

    def _axes(self, name: str, variable: xr.Variable, itemsize: int, checked: bool) -> tuple[Axis, ...]:
        from colstore_io.grid.layout import Axis, chunk_shape_for

        given: Any = None
        if checked:
            given = variable.encoding.get("chunks", variable.encoding.get("chunksizes"))
        if given is None and _is_dask(variable.data):
            given = variable.data.chunks
        if given is None:
            given = variable.encoding.get("chunks", variable.encoding.get("chunksizes"))
            if given is not None and not _fits(given, variable.shape):
                given = None
        if given is None:
            given = chunk_shape_for(variable.shape, itemsize)
        if isinstance(given, Mapping):
            given = [given.get(dim, n) for dim, n in zip(variable.dims, variable.shape, strict=True)]
        if len(given) != variable.ndim:
            raise ValueError(f"chunks of variable {name!r} are {given!r}, it has {variable.ndim} dimensions")
        axes = []
        for dim, n, chunk in zip(variable.dims, variable.shape, given, strict=True):
            chunk = self._chunks.get(str(dim), chunk)
            check_chunk(chunk, f"chunks of variable {name!r} along {dim!r}")
            if isinstance(chunk, (int, np.integer)):
                axes.append(Axis.regular(n, n if chunk == -1 else int(chunk)))
                continue
            axis = Axis.of_lengths([int(length) for length in chunk])
            if axis.length != n:
                raise ValueError(
                    f"chunks of variable {name!r} along {dim!r} have {axis.length} indices in all, it has {n}"
                )
            axes.append(axis)
        return tuple(axes)

    def _appended(self, spec: VariableSpec, old: VariableSpec | None, data: Any) -> Part | None:
        from colstore_io.errors import SchemaMismatchError
        from colstore_io.grid.commit import appended_part
        from colstore_io.grid.layout import Axis
        from colstore_io.grid.model import Dimension

        dim = self.append_dim
        assert dim is not None
        if old is None:
            raise SchemaMismatchError(
                f"variable {spec.name!r} is not in the dataset; add it with mode='a' first"
            )
        if dim not in spec.dims:
            self._must_be_equal(spec, old, data)
            return None
        _check_like(spec, old, data)
        at = old.dims.index(dim)
        for d, (own, axis) in enumerate(zip(spec.shape, old.axes, strict=True)):
            if d != at and own != axis.length:
                raise SchemaMismatchError(
                    f"variable {spec.name!r} has {own} indices along {old.dims[d]!r}, the dataset has {axis.length}"
                )
        axis = spec.axes[at]
        if not _is_dask(data) and dim not in self._chunks:
            axis = Axis.regular(
                axis.length, max((length for length, _ in old.axes[at].runs), default=axis.length)
            )
        part = appended_part(old, axis, dim)
        self._writing.dims[dim] = Dimension(
            old.axes[at].length + axis.length, self._writing.existing.dims[dim].unlimited
        )
        return part

    def _regional(self, spec: VariableSpec, old: VariableSpec | None, data: Any) -> Part | None:
        from colstore_io.errors import SchemaMismatchError
        from colstore_io.grid.commit import region_part

        if old is None:
            raise SchemaMismatchError(
                f"variable {spec.name!r} is not in the dataset; add it with mode='a' first"
            )
        region = self.region or {}
        if region and not set(region) & set(spec.dims):
            self._must_be_equal(spec, old, data)
            return None
        _check_like(spec, old, data)
        return region_part(old, region, spec.shape)

    def _must_be_equal(self, spec: VariableSpec, old: VariableSpec, data: Any) -> None:
        """Compare a variable that is not extended with what is stored; it is not written again."""
        from colstore_io.errors import SchemaMismatchError

        variable = self._changing().variable(old.name, self._writing.group)
        stored = variable.read_outer((slice(None),) * len(old.dims))
        values = np.asarray(data)
        same = old.dims == spec.dims and stored.shape == values.shape
        if not same or not _equal(stored, values):
            along = self.append_dim if self.append_dim is not None else "/".join(self.region or {})
            raise SchemaMismatchError(
                f"variable {spec.name!r} does not have the dimension {along!r}, and other values than the dataset; "
                "leave it out, or write it with mode='a'"
            )

    def check_complete(self) -> None:
        """Raise if an append leaves out a variable that has the dimension: it would be too short then."""
        from colstore_io.errors import SchemaMismatchError

        if self.append_dim is None:
            return
        writer = self._writing
        for name, spec in writer.existing.variables.items():
            if self.append_dim in spec.dims and name not in writer.parts:
                raise SchemaMismatchError(
                    f"variable {name!r} has the dimension {self.append_dim!r}; append it too"
                )

    # ------------------------------------------------------------------------------------------------------
    # The end

    def sync(self) -> None:
        """Publish what was written. Does nothing the second time."""
        if self.writer is not None:
            if self.lazy:
                raise ValueError("variables backed by Dask are written by Dataset.colstore.to_colstore")
            self.let_go()
            self.writer.commit()
            self.writer = None

    def close(self) -> None:
        self.sync()
        self.let_go()

    def let_go(self) -> None:
        """Close the files that were read."""
        if self._container is not None:
            self._container.close()
            self._container = None


# ----------------------------------------------------------------------------------------------------------
# Kinds of values


def _attribute(value: Any) -> Any:
    """Return an attribute in a form that a manifest has: Python's bytes as NumPy's, which are equal to them."""
    return np.bytes_(value) if type(value) is bytes else value


def _count_bounds_alike(variables: Mapping[Any, xr.Variable]) -> None:
    """Give bounds of times the units of these, as xarray does while times are times; `checked_packing` counts them."""
    for variable in variables.values():
        name, units = variable.attrs.get("bounds"), variable.encoding.get("units")
        if isinstance(name, str) and name in variables and isinstance(units, str) and "since" in units:
            for key in ("units", "calendar"):
                if key in variable.encoding:
                    variables[name].encoding.setdefault(key, variable.encoding[key])


def _is_dask(data: Any) -> bool:
    return hasattr(data, "dask") and hasattr(data, "chunks")


def _is_native(variable: xr.Variable) -> bool:
    """Whether a variable is stored as it is: times, durations and booleans that ask for no CF encoding."""
    kind = variable.dtype.kind
    if kind not in "Mmb" or any(key in variable.encoding or key in variable.attrs for key in _CF_TIME):
        return False
    wanted = variable.encoding.get("dtype")
    return "dtype" not in variable.attrs and (wanted is None or np.dtype(wanted).kind == kind)


def _typed(variable: xr.Variable, name: Any) -> xr.Variable:
    """Return an object variable as text or bytes of any length, missing values kept; others as xarray would."""
    if variable.dtype.kind == "T":
        # Like xarray's other stores: what is missing in NumPy's own strings is written as an empty one.
        values = np.asarray(variable.data).astype(object)
        data = np.array(["" if is_null(v) else v for v in values.reshape(-1).tolist()], object)
        data = data.reshape(values.shape).astype(strings.create_vlen_dtype(str))
        variable = xr.Variable(variable.dims, data, variable.attrs, variable.encoding, fastpath=True)
    if variable.dtype.kind != "O" or strings.check_vlen_dtype(variable.dtype) is not None:
        return variable
    if _is_dask(variable.data):
        from xarray import SerializationWarning
        from xarray.core.utils import emit_user_level_warning

        emit_user_level_warning(
            f"variable {name} has data in the form of a dask array with dtype=object, which means it is being loaded "
            "into memory to determine a data type that can be safely stored on disk. To avoid this, coerce this "
            "variable to a fixed-size dtype with astype() before saving it.",
            category=SerializationWarning,
        )
        variable = variable.compute()
    values = np.asarray(variable.data)
    types = {type(value) for value in values.reshape(-1).tolist() if not is_null(value)}
    for wanted in (str, bytes):
        # Values that are all missing have no type of their own, so somebody has to say that they are text.
        if (types or variable.encoding.get("dtype") is wanted) and all(
            issubclass(own, wanted) for own in types
        ):
            data = values.astype(strings.create_vlen_dtype(wanted))
            return xr.Variable(variable.dims, data, variable.attrs, variable.encoding, fastpath=True)
    try:
        return ensure_dtype_not_object(variable, name=name)
    except ValueError:
        found = ", ".join(sorted(own.__name__ for own in types))
        zoned = "; bring times to UTC and drop their zone first" if "Timestamp" in found else ""
        raise TypeError(
            f"variable {name!r} holds Python objects ({found}), which cannot be stored; use text, bytes, numbers "
            f"or times, one type for all values{zoned}"
        ) from None


def _stored_kind(name: str, dtype: np.dtype[Any]) -> tuple[Any, np.dtype[Any]]:
    from colstore_io.fields import STORABLE_KINDS, native

    wanted = strings.check_vlen_dtype(dtype)
    if dtype.kind == "O":
        if wanted not in (str, bytes):
            raise TypeError(f"variable {name!r} holds Python objects, which cannot be stored")
        return ("text" if wanted is str else "bytes"), np.dtype(object)
    dtype = native(dtype)
    if dtype.kind == "c" and dtype.itemsize in (8, 16):
        return "complex", dtype
    if dtype.kind not in STORABLE_KINDS or (dtype.kind == "f" and dtype.itemsize > 8):
        advice = (
            "cast it to float64"
            if dtype.kind == "f"
            else "store each of its fields as a variable"
            if dtype.kind == "V"
            else "cast it to text, numbers or times"
        )
        raise TypeError(f"variable {name!r} has dtype {dtype}, which cannot be stored; {advice}")
    if dtype.itemsize == 0:
        dtype = np.dtype(f"{dtype.kind}1")
    return "plain", np.dtype(dtype.str)  # without metadata


def _fits(chunks: Any, shape: Sequence[int]) -> bool:
    """Whether chunks that a file brought along can cut an array of this shape."""
    if not isinstance(chunks, (tuple, list)) or len(chunks) != len(shape):
        return False
    return all(
        c > 0 if isinstance(c, (int, np.integer)) else isinstance(c, (tuple, list)) and sum(c) == n
        for c, n in zip(chunks, shape, strict=True)
    )


def _in_memory(data: Any, spec: VariableSpec) -> NDArray[Any]:
    from colstore_io.grid.fitting import fitted

    return fitted(np.asarray(data), spec)


def _check_like(spec: VariableSpec, old: VariableSpec, data: Any) -> None:
    """Raise `SchemaMismatchError` unless new values can join the old ones unchanged; names the variable.

    Text that is wider than the stored one, and times in another unit, are compared value by value, unless they are in
    blocks of Dask.
    """
    from colstore_io.errors import SchemaMismatchError
    from colstore_io.grid.fitting import advice, without_loss

    if spec.dims != old.dims:
        raise SchemaMismatchError(
            f"variable {spec.name!r} has dimensions {spec.dims}, the dataset has {old.dims}"
        )
    fits = spec.kind == old.kind and spec.dtype == old.dtype
    why = ""
    if not fits and spec.kind == old.kind == "plain" and spec.dtype.kind == old.dtype.kind in "USMm":
        unseen = _is_dask(data)
        if unseen:  # what blocks hold is looked at when they are written
            fits = bool(np.can_cast(spec.dtype, old.dtype, "safe"))
        else:
            fits = without_loss(np.asarray(data), old.dtype) is not None
        why = ": " + advice(old.dtype, unseen=unseen)
    if not fits:
        shown = [s.dtype if s.kind in ("plain", "complex") else s.kind for s in (spec, old)]
        raise SchemaMismatchError(f"variable {spec.name!r} is {shown[0]}, the dataset has {shown[1]}{why}")
    for key in _CF_ATTRS:
        a, b = spec.attrs.get(key), old.attrs.get(key)
        if (a is None) != (b is None) or (a is not None and not _equal(np.asarray(a), np.asarray(b))):
            raise SchemaMismatchError(
                f"variable {spec.name!r} is encoded with {key}={a!r}, the dataset with {b!r}"
            )


def _equal(a: NDArray[Any], b: NDArray[Any]) -> bool:
    if a.dtype.kind == "O" or b.dtype.kind == "O":
        pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
        return a.shape == b.shape and all(x == y or (is_null(x) and is_null(y)) for x, y in pairs)
    floating = a.dtype.kind in "fcMm" and b.dtype.kind in "fcMm"
    return bool(np.array_equal(a, b, equal_nan=floating))
