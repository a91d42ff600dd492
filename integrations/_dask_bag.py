"""Logs of messages as Dask bags: one partition per run of messages, decoded where it is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dask.bag as db
from dask.base import tokenize
from dask.utils import parse_bytes

from colstore_io.errors import FormatError
from colstore_io.formats.colbin.codec import Codec, decode
from colstore_io.messageruns import MessageRun, message_runs
from colstore_io.opening import OpenOptions

from ._dask_frame import shared_file

__all__ = ["read_colbin_bag"]

DEFAULT_BLOCKSIZE = 8 << 20
"""Stored bytes of the messages of one partition: as Python objects they take many times as much."""


@dataclass(frozen=True, slots=True)
class _RunReader:
    """Decodes a run; what tasks call.

    Attributes
    ----------
    codec : Codec or None
        None decodes to dicts.
    options : tuple of (str, object)
        Of the decoding function.
    raw : bool
        Give the messages as bytes.
    """

    codec: Any
    options: tuple[tuple[str, Any], ...] = field(default=())
    raw: bool = False

    def __call__(self, run: MessageRun) -> list[Any]:
        if self.raw:
            return list(run.messages())
        options = dict(self.options)
        section, decoded = run.section, []
        number = run.first
        try:
            for message in run.messages():
                if self.codec is not None:
                    decoded.append(self.codec.decode(message, **options))
                else:
                    decoded.append(decode(section, message, **options))
                number += 1
        except FormatError as exc:
            exc.add_note(f"while decoding message {number} of {run.file.spelling}")
            raise
        return decoded


@dataclass(frozen=True, slots=True)
class _Part:
    """A run for one task; unpickled parts of one local file share it, so that a worker opens it once."""

    run: MessageRun

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.run,)

    def __dask_tokenize__(self) -> Any:
        return self.run.__dask_tokenize__()


def _rebuild(run: MessageRun) -> _Part:
    return _Part(MessageRun(shared_file(run.file), run.decoder, run.first, run.count))


def _read(part: _Part, reader: _RunReader) -> list[Any]:
    return reader(part.run)


def read_colbin_bag(
    path: Any,
    *,
    codec: Any = None,
    raw: bool = False,
    blocksize: int | str | None = DEFAULT_BLOCKSIZE,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    errors: str = "strict",
    **decode_options: Any,
) -> db.Bag:
    """Read the messages of logs into a Dask bag. Only headers and indexes are read now.

    Parameters
    ----------
    path : str, PathLike, list of them, directory, pattern or URL
        Of ``.colbin`` logs, or of files that are one message; as in `colstore_io.open`. The messages need not be
        of a kind that makes a table.
    codec : Codec or record class, optional
        What to decode to; its types must fit those of the logs. Default: dicts, by the types in the log itself.
    raw : bool, default False
        Give messages as bytes, decompressed, not decoded.
    blocksize : int or str, optional
        Stored bytes of messages per partition, 8 MiB by default. None: one partition per segment (about 1 MiB).
    storage_options, filesystem
        As in `colstore_io.open`.
    errors : {"strict", "surrogateescape"}
        What text that is not UTF-8 becomes.
    **decode_options
        ``max_rows``, ``max_cells``: bounds of what one message may decode to, as in `colstore_io.colbin.decode`.

    Returns
    -------
    dask.bag.Bag
        One item per message, in the order of files and messages; a partition holds messages of one file.

    Raises
    ------
    FormatError
        If a file is no log of messages; when computed, for a damaged message.

    Examples
    --------
    >>> bag = read_colbin_bag("events_*.colbin")  # doctest: +SKIP
    >>> bag.filter(lambda event: event["level"] > 3).pluck("user").frequencies().compute()  # doctest: +SKIP
    """
    unknown = sorted(set(decode_options) - {"max_rows", "max_cells"})
    if unknown:
        raise TypeError(f"unexpected option {unknown[0]!r}; decoding takes max_rows and max_cells")
    if raw and (codec is not None or decode_options):
        raise ValueError("raw messages are not decoded: give raw=True or what decoding needs, not both")
    if isinstance(codec, type):
        codec = Codec(codec)
    elif codec is not None and not hasattr(codec, "decode"):
        raise TypeError(f"codec must be a Codec or a record class, got {type(codec).__name__}")
    size = None if blocksize is None else int(parse_bytes(blocksize))
    if size is not None and size < 1:
        raise ValueError(f"blocksize must be at least one byte, got {blocksize!r}")
    options = OpenOptions.checked(storage_options=storage_options, filesystem=filesystem, errors=errors)
    reader = _RunReader(codec, tuple(sorted({"errors": errors, **decode_options}.items())), raw)
    runs = message_runs(path, options, blocksize=size)
    name = "read_colbin_bag-" + tokenize([run.token for run in runs], reader.options, raw, codec)
    tasks: dict[Any, Any] = {(name, n): (_read, _Part(run), reader) for n, run in enumerate(runs)}
    if not tasks:
        tasks[name, 0] = (list, [])
    return db.Bag(tasks, name, len(tasks))
