"""One call, one file: data in memory or a stream become a `.cstore` file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ..ingest import Batch, ingest, ingest_stream, is_stream
from ..storage import MemoryFile
from .batch_schema import Attributes, check_columns
from .compaction import finishing, merge_records
from .merging import read_sources
from .progress import check_batch_size, report_writes
from .publish import EXISTS, Destination, Replacement, Target, Upload, resolve_target
from .recordlog import RecordLog

__all__ = ["StoreMode", "store_file", "write_table"]

StoreMode = Literal["create", "recreate"]


def store_file(
    data: Any,
    path: str | os.PathLike[str],
    *,
    mode: StoreMode = "create",
    statistics: bool = False,
    strings: Literal["unicode", "bytes"] = "unicode",
    string_width: Mapping[str, int] | None = None,
    nullable: bool | Sequence[str] | None = None,
    batch_size: int | str | None = "auto",
    show_progress: bool | None = None,
    compact: bool = False,
    attrs: Mapping[str, Any] | None = None,
    column_attrs: Mapping[str, Mapping[str, Any]] | None = None,
    storage_options: Any = None,
    filesystem: Any = None,
) -> Path | str:
    """Write a `.cstore` file that appears whole or not at all (cstore.md 8.3, cstore-behaviour.md 6.2).

    Parameters
    ----------
    data : table, Batch, or a stream of them
        Data in memory make one record; a stream (`ingest.is_stream`) makes one record per non-empty batch, of
        which one at a time is in memory.
    path : path or URL
    mode : {"create", "recreate"}
        Whether an existing file is an error or replaced, under its lock. Readers of a replaced file keep it.
    statistics : bool
        Add smallest and largest value per record and column in a footer.
    strings, string_width, nullable
        How values become columns; see `ingest.ingest`.
    batch_size : int, str or None
        Progress steps (rows, a size such as ``"16 MiB"``, one per column, or ``"auto"``); never changes a byte.
    show_progress : bool, optional
        None shows a bar on a terminal, if tqdm is installed.
    compact : bool
        Merge the records of a stream into one at the end.
    attrs, column_attrs : mapping, optional
        Attributes of the table, and of columns by name, besides those of `data`.

    Returns
    -------
    Path or str
        `path`.

    Raises
    ------
    FileExistsError
        With ``"create"``, if the path exists.
    WriterLockedError
        With ``"recreate"``, if a writer is at work on the target.
    TypeError, ValueError
        If `data` cannot be stored, or a stream has neither rows nor a schema; before a byte is written for data in
        memory. Whatever a stream raises passes through, and the target stays as it was.
    """
    if mode not in ("create", "recreate"):
        raise ValueError(f"mode must be 'create' or 'recreate', got {mode!r}")
    batch_size = check_batch_size(batch_size)
    target = resolve_target(path, storage_options=storage_options, filesystem=filesystem)
    options: dict[str, Any] = {"strings": strings, "string_width": string_width, "nullable": nullable}
    exclusive = mode == "create"
    if exclusive and target.local_path is not None and os.path.lexists(target.local_path):
        raise FileExistsError(errno.EEXIST, EXISTS, target.spelling)
    write_table(
        data,
        lambda: _new_destination(target, exclusive=exclusive),
        name=os.path.basename(target.spelling),
        statistics=statistics,
        options=options,
        attributes=Attributes(attrs, column_attrs),
        batch_size=batch_size,
        show_progress=show_progress,
        compact=compact,
    )
    return target.result


def write_table(
    data: Any,
    make_destination: Callable[[], Destination],
    *,
    name: str,
    statistics: bool,
    options: Mapping[str, Any],
    attributes: Attributes,
    batch_size: int | str | None = "auto",
    show_progress: bool | None = None,
    compact: bool = False,
    check: Callable[[Batch], None] | None = None,
) -> None:
    """Write data in memory, or a stream, to a destination, and publish it when it is complete.

    Parameters
    ----------
    make_destination : callable
        Called when data in memory have passed every check, and before a stream is read.
    name : str
        For the progress bar.
    options : mapping
        Keyword arguments of `ingest.ingest`.
    check : callable, optional
        Sees each batch before it is written, and raises if it does not fit.
    """
    with contextlib.ExitStack() as stack:
        batches: Iterator[Batch]
        total = None
        if not is_stream(data):
            batch = ingest(data, **options)
            if check is not None:
                check(batch)
            total = sum(array.nbytes for array in batch.arrays)
            batches = iter((batch,))
        else:
            batches = ingest_stream(data, **options)
            stack.enter_context(_released(batches))
        destination = make_destination()
        log = RecordLog(destination, statistics=statistics)
        try:
            _write_batches(log, batches, attributes, show_progress, batch_size, total, name, check)
            if compact and log.n_records > 1:
                _publish_merged(log)
                destination.give_up()
                return
        except BaseException:
            destination.give_up()
            raise
        log.finish(whole=True)


def _new_destination(target: Target, *, exclusive: bool) -> Destination:
    if target.location is not None:
        return Upload(target.location, exclusive=exclusive)
    assert target.local_path is not None
    return Replacement(target.local_path, exclusive=exclusive)


@contextlib.contextmanager
def _released(batches: Iterator[Batch]) -> Iterator[None]:
    """Close a generator when the block ends, so that what feeds it is released also after an error."""
    try:
        yield
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def _write_batches(
    log: RecordLog,
    batches: Iterator[Batch],
    attributes: Attributes,
    show_progress: bool | None,
    batch_size: int | str | None,
    total: int | None,
    name: str,
    check: Callable[[Batch], None] | None,
) -> None:
    empty: Batch | None = None
    with contextlib.ExitStack() as stack:
        for batch in batches:
            if check is not None:
                check(batch)
            if not log.columns:
                log.begin(attributes.added_to(batch.schema))
                stack.enter_context(
                    report_writes(
                        log.output,
                        show_progress,
                        total=total,
                        row_bytes=sum(column.itemsize for column in log.columns),
                        n_columns=len(log.columns),
                        batch_size=batch_size,
                        description=name,
                    )
                )
            else:
                check_columns(log.columns, batch, "the first batch")
            if batch.n_rows:
                log.append(batch.arrays, batch.n_rows)
            else:
                empty = batch
            del batch  # before the next one is asked for
        if not log.n_records:
            if empty is None:
                raise ValueError("the stream has neither rows nor a schema, there is nothing to write")
            log.append(empty.arrays, 0)  # a record of zero rows says what the columns are


def _publish_merged(log: RecordLog) -> None:
    """Merge the records of a log that was never published, and publish the result in its place."""
    destination = log.destination
    assert isinstance(destination, (Replacement, Upload))
    footer = log.seal()
    with mmap.mmap(destination.fd, 0, access=mmap.ACCESS_READ) as mapping:
        merged = destination.successor()
        with finishing(merged):
            source = read_sources([MemoryFile(mapping)])[0]
            merge_records(source, merged, footer=footer)
            del source  # it borrows the mapping
