"""Dask and pandas frames as directories of shards.

Each partition becomes a shard, or one in each folder of `partition_on`; the last task publishes the generation
manifest, so that readers see all of it or nothing (integrations.md 2.3 and 2.4).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.base import compute as compute_all
from dask.delayed import delayed

from colstore_io.errors import SchemaMismatchError
from colstore_io.fields import Field, Schema
from colstore_io.ingest import ingest
from colstore_io.ingest.variable import ingest_columns
from colstore_io.writing.encoded_shards import check_encoded_options
from colstore_io.writing.generations import (
    GenerationPlan,
    Shard,
    WriteMode,
    commit,
    discard,
    forget_listings,
    plan_generation,
    write_shard,
)
from colstore_io.writing.members import SUFFIX_OF

__all__ = ["ColstoreAccessor", "to_colstore"]

RETRIES = 5

_LABEL = re.compile(r"[A-Za-z0-9_+=-]{1,100}", re.ASCII)


def to_colstore(
    df: Any,
    path: Any,
    *,
    format: str | None = None,
    mode: WriteMode = "create",
    partition_on: str | Sequence[str] | None = None,
    write_index: bool | None = None,
    name_function: Callable[[int], str] | None = None,
    rows_per_record: int | None = None,
    string_width: Mapping[str, int] | None = None,
    statistics: bool = True,
    attrs: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    append: bool = False,
    overwrite: bool = False,
    compute: bool = True,
    compute_kwargs: Mapping[str, Any] | None = None,
    **encoder_options: Any,
) -> Any:
    """Write a frame as a directory of files, in one commit.

    Parameters
    ----------
    df : dask or pandas DataFrame or Series
    path : path or URL
        The directory; made if it does not exist.
    format : {"cstore", "columns", "colbin"}, optional
        Default: that of the table appended to, else "cstore".
    mode : {"create", "overwrite", "append"}
        "create" raises `FileExistsError` if there is a table; "overwrite" publishes a generation without the old files,
        which stay until `vacuum`, so that whoever reads them is not disturbed; "append" adds to the table.
    partition_on : str or list of str, optional
        Columns whose values name folders, ``key=value``. The files hold these columns as well.
    write_index : bool, optional
        Store the index as a column, ``index`` if it has no name. Default: unless it is an unnamed range, which numbers
        the rows and comes back by itself. Appends do as the table has it.
    name_function : callable, optional
        Says something of partition i that its file's name is to have, like ``lambda i: f"day{i}"`` for
        ``part-00003-day3-<random>.cstore``. The rest of the name stays: it keeps the order, and lets a task run twice.
    rows_per_record : int, optional
        Cut records of `.cstore` files at this many rows. Default: one record per file.
    string_width : mapping of str to int, optional
        Widths of text columns of `.cstore` files. Default: the longest value of all partitions, for which the text
        columns are computed once before anything is written.
    statistics : bool, default True
        Smallest and largest values per record and column, which let filters skip records.
    attrs : mapping, optional
        Attributes of the table.
    storage_options, filesystem
        As in `read_colstore`.
    append, overwrite : bool
        Other spellings of `mode`.
    compute : bool, default True
        False: return a Delayed whose result is the manifest.
    compute_kwargs : mapping, optional
        Passed to ``compute``.
    **encoder_options
        Of the encoded formats: ``compression=`` and others of "columns"; see `colstore_io.store`.

    Returns
    -------
    GenerationManifest, or Delayed of it

    Raises
    ------
    FileExistsError
        With "create", if there is a table already.
    CommitConflictError
        If another job has committed since this one began; it is a `FileExistsError`.
    SchemaMismatchError
        If data do not fit the table appended to, or a text is longer than its column is wide.
    TypeError
        For options that other writers have; the message says what is used here.
    ValueError
        For names that are no strings or repeat, contradicting arguments, or "overwrite" of what `df` is read from.
    """
    mode = _checked_mode(mode, append, overwrite)
    _refuse_foreign_options(encoder_options)
    if isinstance(df, pd.Series | dd.Series):
        df = df.to_frame()
    if not isinstance(df, pd.DataFrame | dd.DataFrame):
        raise TypeError(f"expected a dask or pandas DataFrame, got {type(df).__name__}")
    if rows_per_record is not None and rows_per_record < 1:
        raise ValueError(f"rows_per_record must be at least 1, got {rows_per_record}")
    with_index = _has_index(df, write_index)
    meta = _with_index(df._meta if isinstance(df, dd.DataFrame) else df.iloc[:0], with_index)
    _check_names(meta)
    folders = [partition_on] if isinstance(partition_on, str) else list(partition_on or ())
    for name in folders:
        if name not in meta.columns:
            raise ValueError(f"partition_on names {name!r}, which is no column of the frame")
    plan = plan_generation(
        path, mode=mode, format=format, storage_options=storage_options, filesystem=filesystem
    )
    _check_options(plan.format, encoder_options, string_width, attrs)
    if mode == "overwrite":
        _refuse_own_source(df, plan)
    if plan.like is not None and write_index is None and meta.index.name is None:
        # A table without such a column takes the rows of any frame; one with it wants it from each.
        named = {*plan.like.names} - {*df.columns}
        if (with_index and not named) or (not with_index and named == {"index"}):
            with_index = not with_index
            meta = _with_index(df._meta if isinstance(df, dd.DataFrame) else df.iloc[:0], with_index)
    if partition_on is None and plan.partition_on:
        folders = list(plan.partition_on)
    elif plan.like is not None and tuple(folders) != tuple(plan.partition_on):
        raise ValueError(
            f"the table is partitioned on {list(plan.partition_on)}, got partition_on={folders}; leave it out, or "
            "write the table again with mode='overwrite'"
        )
    plan = replace(
        plan,
        partition_on=tuple(folders),
        statistics=statistics,
        rows_per_record=rows_per_record,
        attrs=attrs,
        options=encoder_options,
        labels=_labels(name_function, df.npartitions if isinstance(df, dd.DataFrame) else 1, plan.format),
    )
    kwargs = dict(compute_kwargs or {})
    if plan.format != "cstore":
        nullable = [name for name in meta.columns if _may_be_null(meta[name].dtype)]
        plan = replace(plan, nullable=tuple(nullable))
        _check_encoded(plan, meta)
    else:
        plan = _with_columns(plan, df, meta, with_index, dict(string_width or {}), kwargs)
    if isinstance(df, pd.DataFrame):
        if not compute:
            return delayed(_write_pandas)(plan, df, with_index)
        return _write_pandas(plan, df, with_index)
    parts = df.to_delayed(optimize_graph=True)
    with dask.annotate(retries=RETRIES):  # type: ignore[attr-defined]
        # Of shards only: a commit that failed once will fail again.
        written = [
            delayed(write_partition)(plan, part, number, with_index) for number, part in enumerate(parts)
        ]
    result = delayed(_commit)(plan, written)
    if not compute:
        return result
    try:
        return result.compute(**kwargs)
    finally:
        forget_listings(plan)


def _checked_mode(mode: Any, append: bool, overwrite: bool) -> Any:
    if append and overwrite:
        raise ValueError("append and overwrite exclude each other")
    alias = "append" if append else "overwrite" if overwrite else None
    if alias is not None and mode not in ("create", alias):
        raise ValueError(f"mode={mode!r} contradicts {alias}=True")
    return alias or mode


_FOREIGN = {
    "engine": "files are written by this library alone; leave it out",
    "write_metadata_file": "the manifest of each commit is always written; leave it out",
    "custom_metadata": "use attrs={...}",
    "schema": "columns have the types of the frame; use df.astype first",
    "object_encoding": "columns have the types of the frame; use df.astype first",
    "ignore_divisions": "appends do not look at divisions; leave it out",
    "row_group_size": "use rows_per_record",
    "times": "times are stored in the unit that they have; leave it out",
    "has_nulls": "columns of nullable types and of text take nulls; use df.astype first",
    "index": "use write_index",
    "partition_cols": "use partition_on",
    "schema_mode": "an append takes the columns of the table; use mode='overwrite' to change them",
    "file_scheme": "each partition becomes a file",
    "storage_option": "did you mean storage_options?",
}
"""What users of other writers ask for, and what it is called here."""


def _refuse_foreign_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name in _FOREIGN:
            raise TypeError(f"to_colstore has no option {name}=: {_FOREIGN[name]}")


def _check_options(
    kind: str,
    options: Mapping[str, Any],
    string_width: Mapping[str, int] | None,
    attrs: Mapping[str, Any] | None,
) -> None:
    """Refuse options that files of this format do not have."""
    if kind == "cstore" and options:
        name = next(iter(options))
        what = (
            "the files are not compressed"
            if name == "compression"
            else "files of .cstore have no such option"
        )
        raise TypeError(
            f"to_colstore has no option {name}= here: {what}; format='columns' has options of its own"
        )
    check_encoded_options(kind, {"string_width": string_width, "attrs": attrs}, options)


def _labels(name_function: Callable[[int], str] | None, count: int, kind: str) -> tuple[str, ...] | None:
    """Return what the names of files say of their partitions."""
    if name_function is None:
        return None
    labels = []
    for number in range(count):
        label = name_function(number)
        if not isinstance(label, str):
            raise TypeError(f"name_function must give text, got {label!r} for partition {number}")
        label = label.removesuffix(SUFFIX_OF[kind])
        if _LABEL.fullmatch(label) is None:
            raise ValueError(
                f"name_function gave {label!r} for partition {number}; use letters, digits, '-', '_', '+' and '='"
            )
        labels.append(label)
    if len(set(labels)) != count:
        raise ValueError("name_function gave the same name to several partitions")
    return tuple(labels)


def _check_encoded(plan: GenerationPlan, meta: pd.DataFrame) -> None:
    """Raise `SchemaMismatchError` if the columns are not those of the encoded table that is appended to."""
    if plan.like is None:
        return
    _check_columns(plan.like, meta)
    for field in ingest_columns(meta[plan.like.names]).schema:
        old, dtype = plan.like[field.name], meta[field.name].dtype
        if _must_be_measured(dtype) and not isinstance(dtype, pd.StringDtype):
            continue  # only values tell
        if (old.native_dtype, old.tz, old.variable) != (field.native_dtype, field.tz, field.variable):
            raise SchemaMismatchError(
                f"column {field.name!r} holds {field.logical or field.dtype}, the table has "
                f"{old.logical or old.dtype}; nothing was written"
            )


def _check_columns(like: Schema, meta: pd.DataFrame) -> None:
    missing, unexpected = set(like.names) - set(meta.columns), set(meta.columns) - set(like.names)
    if missing or unexpected:
        raise SchemaMismatchError(
            f"the frame does not have the columns of the table: missing {sorted(missing)}, "
            f"unexpected {sorted(unexpected)}"
        )


def _has_index(df: Any, write_index: bool | None) -> bool:
    if write_index is not None:
        return bool(write_index)
    index = df._meta.index if isinstance(df, dd.DataFrame) else df.index
    return index.name is not None or not isinstance(index, pd.RangeIndex)


def _with_index(frame: pd.DataFrame, with_index: bool) -> pd.DataFrame:
    return frame.reset_index() if with_index else frame


def _check_names(meta: pd.DataFrame) -> None:
    names = list(meta.columns)
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"column names must be strings, got {name!r}; rename the columns")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"column names are repeated: {', '.join(repeated)}")
    if not names:
        raise ValueError("there are no columns to write")


def _refuse_own_source(df: Any, plan: GenerationPlan) -> None:
    if not isinstance(df, dd.DataFrame):
        return
    base = plan.place.path.rstrip("/") + "/"
    for node in df.expr.walk():
        source = getattr(dict(zip(node._parameters, node.operands, strict=False)).get("plan"), "source", None)
        for file in getattr(source, "files", ()):
            if file.location is not None and file.location.path.startswith(base):
                raise ValueError(
                    f"{plan.place.spelling} is read by this frame and cannot be overwritten by it; "
                    "write to another place"
                )


# ----------------------------------------------------------------------------------------------------------
# Columns of all shards


def _with_columns(
    plan: GenerationPlan,
    df: Any,
    meta: pd.DataFrame,
    with_index: bool,
    widths: dict[str, int],
    kwargs: dict[str, Any],
) -> GenerationPlan:
    """Decide the columns of the shards before one is written: those of the table, or what all partitions need."""
    for name in widths:
        if name not in meta.columns:
            raise ValueError(f"string_width names {name!r}, which is no column of the frame")
    if plan.like is not None:
        _check_columns(plan.like, meta)
    measured = [name for name in meta.columns if _must_be_measured(meta[name].dtype) and name not in widths]
    found: dict[str, Field] = {}
    if measured:
        if isinstance(df, pd.DataFrame):
            results = [measure(df, measured, with_index)]
        else:
            # Only these columns, and in a computation of their own: the partitions need not wait in memory.
            here = [name for name in measured if name in df.columns]
            narrow = df if with_index and len(here) < len(measured) else df[here]
            parts = narrow.to_delayed(optimize_graph=True)
            results = compute_all(*(delayed(measure)(part, measured, with_index) for part in parts), **kwargs)
        found = _widest(results)
    fields = []
    for name in meta.columns:
        column = meta[[name]]
        if name in found:
            fields.append(found[name])
            continue
        dtype = column[name].dtype
        if isinstance(dtype, np.dtype) and dtype.kind == "O":
            column = column.astype("str")  # no value in any partition: text, as likely as anything
        options: dict[str, Any] = {}
        if name in widths:
            options["string_width"] = {name: widths[name]}
        elif name in measured:
            options["string_width"] = {name: 1}
        if _is_nullable(column[name].dtype):
            options["nullable"] = [name]
        fields.append(ingest(column, **options).schema[name])
    schema = Schema(tuple(fields))
    if plan.like is None:
        return replace(plan, like=schema)
    for field in schema:  # what was measured would fail in a task; say so before anything is written
        old = plan.like[field.name]
        fits = old.dtype.kind == field.dtype.kind and (
            field.dtype.itemsize <= old.dtype.itemsize if old.dtype.kind in "US" else True
        )
        if not fits:
            raise SchemaMismatchError(
                f"column {field.name!r} needs {field.dtype.str}, the table has {old.dtype.str}; nothing was written"
            )
    return plan


def _must_be_measured(dtype: Any) -> bool:
    if isinstance(dtype, np.dtype):
        return dtype.kind == "O"
    if isinstance(dtype, pd.StringDtype | pd.CategoricalDtype):
        return True
    return isinstance(dtype, pd.ArrowDtype) and dtype.kind in "OSU"


def _is_nullable(dtype: Any) -> bool:
    return not isinstance(dtype, np.dtype | pd.DatetimeTZDtype | pd.CategoricalDtype)


def _may_be_null(dtype: Any) -> bool:
    return _is_nullable(dtype) or _must_be_measured(dtype)


def measure(part: pd.DataFrame, names: Sequence[str], with_index: bool) -> dict[str, Field]:
    """Return what columns of one partition would become, of those in which there is a value."""
    frame = _with_index(part, with_index)
    found = {}
    for name in names:
        column = frame[[name]]
        if not len(column) or bool(column[name].isna().all()):
            continue
        nullable = [name] if _is_nullable(column[name].dtype) else None
        found[name] = replace(ingest(column, nullable=nullable).schema[name], attrs={})
    return found


def _widest(results: Iterable[Mapping[str, Field]]) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for result in results:
        for name, field in result.items():
            known = fields.get(name)
            if known is None:
                fields[name] = field
                continue
            if known.dtype.kind != field.dtype.kind or (
                field.dtype.kind not in "US" and known.dtype != field.dtype
            ):
                raise SchemaMismatchError(
                    f"column {name!r} is {known.dtype.str} in one partition and {field.dtype.str} in another"
                )
            fields[name] = replace(
                max(known, field, key=lambda f: f.dtype.itemsize),
                validity=known.validity or field.validity,
                categories=known.categories if known.categories == field.categories else None,
            )
    return fields


# ----------------------------------------------------------------------------------------------------------
# Tasks


def write_partition(plan: GenerationPlan, part: pd.DataFrame, number: int, with_index: bool) -> list[Shard]:
    """Write one partition; what a task calls. May run any number of times, at the same time too."""
    frame = _with_index(part, with_index)
    if plan.like is not None:
        frame = frame[plan.like.names]
    shards: list[Shard] = []
    try:
        if not plan.partition_on:
            if len(frame) or number == 0:  # a table without rows has columns all the same
                shards.append(write_shard(plan, frame.reset_index(drop=True), number))
            return shards
        for values, group in _groups(frame, plan.partition_on):
            shards.append(write_shard(plan, group.reset_index(drop=True), number, values))
    except BaseException:
        discard(plan, shards)
        raise
    return shards


def _groups(frame: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the values of `names` and the rows that have them, rows in their order."""
    for key, group in frame.groupby(list(names), dropna=False, observed=True, sort=True):
        yield {name: _json_value(value) for name, value in zip(names, key, strict=True)}, group


def _json_value(value: Any) -> Any:
    if pd.isna(value):
        return None
    if isinstance(value, np.generic):
        value = value.item() if value.dtype.kind in "biuf" else str(value)
    return value if isinstance(value, bool | int | float | str) else str(value)


def _commit(plan: GenerationPlan, written: Sequence[Sequence[Shard]]) -> Any:
    return commit(plan, [shard for shards in written for shard in shards])


def _write_pandas(plan: GenerationPlan, frame: pd.DataFrame, with_index: bool) -> Any:
    return _commit(plan, [write_partition(plan, frame, 0, with_index)])


class ColstoreAccessor:
    """``df.colstore`` of Dask DataFrames."""

    def __init__(self, df: Any) -> None:
        self._df = df

    def to_colstore(self, path: Any, **options: Any) -> Any:
        """Write the frame as a directory of files; see `to_colstore`."""
        return to_colstore(self._df, path, **options)


def register() -> None:
    """Make ``df.colstore`` available, unless somebody else has taken the name."""
    if not hasattr(dd.DataFrame, "colstore"):
        with contextlib.suppress(ImportError):
            from dask.dataframe.extensions import register_dataframe_accessor

            register_dataframe_accessor("colstore")(ColstoreAccessor)
