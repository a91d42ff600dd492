"""Columns that stand in the names of folders alone: ``year=2024/tag=a/data.cstore``.

Whoever partitions a data set in this way often leaves the columns out of the files. As in ``read_parquet`` they come
back as categorical columns behind those of the files, 32-bit integers where all values are such, else text. Nothing of
Dask is imported here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from colstore_io.dataset import Source
from colstore_io.errors import QueryError
from colstore_io.fields import Field, Schema
from colstore_io.predicate import ColumnValues, Expr, bind
from colstore_io.predicate.expression import Call
from colstore_io.storage import LocalFiles
from colstore_io.writing.generations import NULL_FOLDER

__all__ = ["FolderColumns", "Folders", "conjunction", "terms"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, eq=False)
class FolderColumns:
    """What the columns are; small, and part of what tasks receive.

    Attributes
    ----------
    fields : tuple of Field
        Of dtype int32 or text; ``optional`` where a file has no value.
    values : tuple of ndarray
        The categories of each, sorted.
    """

    fields: tuple[Field, ...]
    values: tuple[NDArray[Any], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def column(self, name: str, codes: NDArray[np.int32]) -> pd.Categorical:
        """Return a column of the given categories, -1 for a missing value."""
        values = self.values[self.names.index(name)]
        entries = pd.Index(values) if values.dtype.kind == "i" else pd.Index(values.tolist(), dtype="str")
        return pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(entries))

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("colstore_io.FolderColumns", self.names, tuple(tuple(v.tolist()) for v in self.values))


@dataclass(frozen=True, eq=False)
class Folders:
    """The columns, and which value each file has.

    Attributes
    ----------
    columns : FolderColumns
    codes : ndarray of int32, shape (columns, files)
        Into the values of each column; -1 where a file has none.
    """

    columns: FolderColumns
    codes: NDArray[np.int32]

    @classmethod
    def of(cls, path: Any, source: Source) -> Folders | None:
        """Look at the paths of files below the directory `path`; None if they say nothing that files do not hold."""
        root = os.fspath(path) if isinstance(path, str | os.PathLike) else None
        if not isinstance(root, str):
            return None
        root = root.rstrip("/") + "/"
        files = source.files
        spellings = files.spellings if isinstance(files, LocalFiles) else [file.spelling for file in files]
        if not any("=" in spelling[len(root) :] for spelling in spellings):
            return None
        found: dict[str, list[str | None]] = {}
        for number, spelling in enumerate(spellings):
            if not spelling.startswith(root):
                return None  # a pattern, or a manifest that names files elsewhere
            for part in spelling[len(root) :].split("/")[:-1]:
                key, _, value = part.partition("=")
                key = unquote(key)
                if key not in source.schema:
                    of_files = found.setdefault(key, [None] * len(spellings))
                    of_files[number] = None if value == NULL_FOLDER else unquote(value)
        if not found:
            return None
        fields, values, codes = [], [], []
        for name, of_files in found.items():
            entries, coded = _coded(of_files)
            fields.append(Field(name, entries.dtype, optional=bool((coded < 0).any())))
            values.append(entries)
            codes.append(coded)
        return cls(FolderColumns(tuple(fields), tuple(values)), np.stack(codes))

    def matching(self, expression: Expr) -> NDArray[np.bool_]:
        """Return the files whose values satisfy a condition on these columns alone."""
        predicate = bind(expression, Schema(self.columns.fields))
        given = {}
        for field, values, codes in zip(self.columns.fields, self.columns.values, self.codes, strict=True):
            known = values if len(values) else np.zeros(1, values.dtype)
            given[field.name] = ColumnValues(known[codes], codes >= 0 if field.optional else None, "na")
        return predicate.mask(given)


def _coded(texts: Sequence[str | None]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    present = {text for text in texts if text is not None}
    whole = {text: int(text) for text in present if _INTEGER.fullmatch(text)}
    entries: NDArray[Any]
    if present and len(whole) == len(present) and all(_INT32.min <= n <= _INT32.max for n in whole.values()):
        entries = np.unique(np.array(list(whole.values()), np.int32))
        position = {text: int(np.searchsorted(entries, number)) for text, number in whole.items()}
    else:
        ordered = sorted(present)
        entries = np.array(ordered, np.str_)
        position = {text: number for number, text in enumerate(ordered)}
    return entries, np.array([-1 if text is None else position[text] for text in texts], np.int32)


def terms(expression: Expr, folders: FolderColumns | None) -> tuple[list[Expr], list[Expr]]:
    """Split a conjunction into conditions on columns of the files, and those on columns of folders alone.

    Raises
    ------
    QueryError
        If a condition has both in it.
    """
    if folders is None:
        return [expression], []
    names = set(folders.names)
    of_files: list[Expr] = []
    of_folders: list[Expr] = []
    stack = [expression]
    while stack:
        node = stack.pop()
        named = names.intersection(node.columns)
        if not named:
            of_files.append(node)
        elif named.issuperset(node.columns):
            of_folders.append(node)
        elif isinstance(node, Call) and node.function == "bitwise_and":
            stack.extend(reversed(node.args))
        else:
            raise QueryError(
                f"a condition on columns of folders ({', '.join(sorted(named))}) can be joined with others by 'and' "
                f"only: {node}; filter the frame instead"
            )
    return of_files, of_folders


def conjunction(expressions: Sequence[Expr]) -> Expr | None:
    """Join conditions by "and"; None if there are none."""
    joined: Expr | None = None
    for expression in expressions:
        joined = expression if joined is None else joined & expression
    return joined
