"""The open table: `Reader` for one file, `Dataset` for several."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Sequence
from typing import Any, Self

from . import config
from .column import ColumnView
from .dataset import Source
from .errors import ColumnNotFoundError
from .fields import Schema
from .kernels.shortcuts import PinnedShortcut, TableShortcut
from .opening import Opened, OpenOptions, is_buffer, is_stream_object, open_paths, open_source
from .plan import merge_plans
from .preview import summary_of
from .rows import Rows, SourceHolder
from .storage import IOStats
from .views import TableOps

__all__ = ["Dataset", "Reader", "Table"]


class _Pinned(PinnedShortcut):
    """What the views made from a table at one moment see of it: files that are added later are not among it."""

    __slots__ = ()

    def readable_source(self) -> Source:
        self.table.readable_source()  # raises when closed
        source: Source = self.source
        return source

    def __reduce__(self) -> tuple[Any, ...]:
        return _Pinned, (self.table, self.source)


class Table(TableShortcut, TableOps):
    """What `Reader` and `Dataset` have in common: a source, its paths, and being open or closed.

    Indexing gives lazy views; `dict`, `array`, `frame`, `arrow` and `recarray` read the whole table. Reads from
    several threads are safe. Pickling carries URLs, options and version tokens, no data.
    """

    _source: Source
    _rows: Rows | None = None

    def __init__(self, source: Source, paths: Sequence[str]) -> None:
        self._source = source
        self._paths = tuple(paths)
        self._closed = False

    @property
    def _holder(self) -> SourceHolder:  # type: ignore[override]
        return _Pinned(self, self._source)

    _column_type = ColumnView
    _pinned_type = _Pinned

    def _selected(self, key: Any) -> Any:
        """Return what `key` selects, other than a column with or without a slice or an array of rows."""
        return TableOps.__getitem__(self, key)

    @property
    def _positions(self) -> range:  # type: ignore[override]
        return range(len(self._source.schema.fields))

    def _column(self, name: str, rows: Rows | None) -> ColumnView:
        part = self._source.parts_by_name.get(name)
        if part is None:
            raise ColumnNotFoundError.for_name(name, self.columns)
        return ColumnView(self._holder, part, rows)

    @property
    def source(self) -> Source:
        """Plan and files of this table; valid after `close` for metadata."""
        return self._source

    def readable_source(self) -> Source:
        """Return the source, or raise `ValueError` when the table is closed."""
        if self._closed:
            name = self._paths[0] if len(self._paths) == 1 else f"the dataset of {len(self._paths)} files"
            raise ValueError(f"{name} is closed.")
        return self._source

    @property
    def schema(self) -> Schema:
        """Columns with everything known of them, and the attributes of the table."""
        return self._source.schema

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes stored with the table."""
        return copy.deepcopy({**self._source.schema.attrs})  # files with equal manifests share one object

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, as the caller spelled them."""
        return self._paths

    @property
    def n_rows(self) -> int:
        return self._source.n_rows

    @property
    def io(self) -> IOStats:
        """Requests made and bytes read so far."""
        return self._source.io

    @property
    def backend(self) -> str:
        """``"cpp"`` for the compiled kernels, ``"numpy"`` for their twins."""
        return self._source.backend

    @property
    def max_workers(self) -> int:
        """Upper bound of threads of one read, as given to `open` or set for the process."""
        own = self._source.max_workers
        return config.get_max_workers() if own is None else own

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Release the files. Views of the mapping stay valid; further reads raise `ValueError`. Idempotent."""
        if not self._closed:
            self._closed = True
            self._close_owned()

    def _close_owned(self) -> None:
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __dask_tokenize__(self) -> tuple[str, str]:
        """Return what names this table in Dask: files, their versions, the plan. Nothing is read."""
        return "colstore_io.Table", self._source.token

    def __or__(self, other: object) -> Dataset:
        if not isinstance(other, Table):
            raise TypeError(f"Unsupported operand for |: {type(other).__name__}; open it first")
        return Dataset([self, other])

    def __ror__(self, other: object) -> Dataset:
        raise TypeError(f"Unsupported operand for |: {type(other).__name__}; open it first")

    def __repr__(self) -> str:
        place = self._paths[0] if len(self._paths) == 1 else f"{len(self._paths)} files"
        state = " (closed)" if self._closed else ""
        return f"<{type(self).__name__} {place}{state}: {self.n_rows:,} rows, {summary_of(self)}>"


class Reader(Table):
    """One open file. Made by `colstore_io.open`."""

    def __init__(self, path: Any, **options: Any) -> None:
        if isinstance(path, Opened):
            opened = path
        else:
            opened = open_source(path, OpenOptions.checked(**options))
            if opened.kind != "file":
                opened.source.close()
                raise ValueError(f"a reader opens one file, {path!r} is a dataset; use colstore_io.open")
        super().__init__(opened.source, opened.paths)
        self._holds_itself = True

    @property
    def _holder(self) -> SourceHolder:  # type: ignore[override]
        return self  # its source is always the same one

    @property
    def path(self) -> str:
        """The file, as the caller spelled it."""
        return self._paths[0]

    @property
    def n_records(self) -> int:
        """Records of the file."""
        return self._source.plan.segments.n_segments

    @property
    def needs_compaction(self) -> bool:
        """True when the file has more than one record."""
        return self.n_records > 1

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_reader, (self._source, self._paths)


def _rebuild_reader(source: Source, paths: tuple[str, ...]) -> Reader:
    return Reader(Opened(source, "file", paths))


class Dataset(Table):
    """Several files as one table, rows numbered file after file. Made by `colstore_io.open`.

    Parameters
    ----------
    sources : path, reader, dataset, or a list of them, optional
        Paths are opened and owned (closed with the dataset); readers and datasets are borrowed. No sources make an
        empty dataset of shape (0, 0).
    **options
        As `colstore_io.open`.

    Raises
    ------
    SchemaMismatchError
        If the columns differ; everything opened by the call is closed again.
    """

    def __init__(self, sources: Any = None, **options: Any) -> None:
        self._options = OpenOptions.checked(**options)
        self._owned: list[Source] = []
        self._children: list[tuple[Source, tuple[str, ...]]] = []
        if sources is None:
            items: list[Any] = []
        elif isinstance(sources, Opened):
            self._owned = [sources.source]
            self._children = [(sources.source, sources.paths)]
            super().__init__(sources.source, sources.paths)
            return
        elif isinstance(sources, (list, tuple)):
            items = list(sources)
        else:
            items = [sources]
        children, owned = _open_children(items, self._options)
        try:
            source, paths = _merge(children, self._options)
        except BaseException:
            _close_all(owned)
            raise
        self._children, self._owned = children, owned
        super().__init__(source, paths)

    @property
    def needs_compaction(self) -> bool:
        """True when the rows come from more than one file."""
        return len(self._paths) > 1

    def append(self, source: Any) -> Self:
        """Add files after the last one, in place, and return the dataset.

        Raises
        ------
        SchemaMismatchError
            If the columns differ; the dataset is unchanged then.
        """
        items = source if isinstance(source, (list, tuple)) else [source]
        children, owned = _open_children(items, self._options)
        try:
            merged, paths = _merge([*self._children, *children], self._options)
        except BaseException:
            _close_all(owned)
            raise
        self._children.extend(children)
        self._owned.extend(owned)
        self._source, self._paths = merged, paths
        return self

    def __ior__(self, other: object) -> Self:
        if not isinstance(other, Table):
            raise TypeError(f"Unsupported operand for |=: {type(other).__name__}; use append() for paths")
        return self.append(other)

    def _close_owned(self) -> None:
        _close_all(self._owned)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_dataset, (self._source, self._paths, self._options)


def _rebuild_dataset(source: Source, paths: tuple[str, ...], options: OpenOptions) -> Dataset:
    dataset = Dataset(Opened(source, "dataset", paths))
    dataset._options = options
    return dataset


def _open_children(
    items: Sequence[Any], options: OpenOptions
) -> tuple[list[tuple[Source, tuple[str, ...]]], list[Source]]:
    """Open the paths among `items`; return all children in order, and the sources that were opened here."""
    children: list[tuple[Source, tuple[str, ...]]] = []
    owned: list[Source] = []

    def adopt(opened: Opened) -> None:
        owned.append(opened.source)
        children.append((opened.source, opened.paths))

    try:
        # A list of a thousand names is one group, seen at a glance.
        groups = [(True, items)] if set(map(type, items)) == {str} else itertools.groupby(items, key=_is_path)
        for is_path, group in groups:
            run = list(group)
            if is_path:
                adopt(open_source(run[0], options) if len(run) == 1 else open_paths(run, options))
                continue
            for item in run:
                if isinstance(item, Dataset):
                    item.readable_source()
                    children.extend(item._children)
                elif isinstance(item, Table):
                    children.append((item.readable_source(), item.paths))
                elif is_buffer(item) or is_stream_object(item):
                    adopt(open_source(item, options))
                else:
                    raise TypeError(
                        f"a dataset accepts a path, reader, dataset or a list of them, got {type(item).__name__}"
                    )
    except BaseException:
        _close_all(owned)
        raise
    return children, owned


def _is_path(item: object) -> bool:
    return isinstance(item, (str, os.PathLike)) or hasattr(item, "fs")


def _merge(
    children: Sequence[tuple[Source, tuple[str, ...]]], options: OpenOptions
) -> tuple[Source, tuple[str, ...]]:
    if len(children) == 1:
        return children[0]
    paths = tuple(path for _, names in children for path in names)
    plan = merge_plans(
        [source.plan for source, _ in children],
        [names[0] if names else "(no files)" for _, names in children],
        on_mismatch=options.on_mismatch,
    )
    files = [file for source, _ in children for file in source.files]
    metas = [meta for source, _ in children for meta in source.metas]
    if len(metas) != len(files):
        metas = []  # one came out of a pickle, which carries no statistics
    return Source(plan, files, metas=metas, backend=options.backend, max_workers=options.max_workers), paths


def _close_all(sources: Sequence[Source]) -> None:
    for source in sources:
        source.close()
