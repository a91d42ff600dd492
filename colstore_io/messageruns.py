"""The messages of logs, a run at a time: for those who want messages rather than columns.

Opening reads headers and indexes as for a table, but the records need not have columns: any log can be read so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .errors import FormatError
from .formats import detect
from .formats.colbin.decoder import LogDecoder, cut_segments
from .formats.colbin.log import MAGIC
from .formats.colbin.packed import PackedLogDecoder
from .formats.colbin.reader import frames_of
from .formats.colbin.tables import split_message
from .opening import OpenOptions, open_raw
from .storage import ByteFile, LocalFile, read_ranges

__all__ = ["MessageRun", "message_runs"]


@dataclass(frozen=True)
class MessageRun:
    """Some messages of one log that stand behind each other. Pickling carries addresses, no messages.

    Attributes
    ----------
    file : ByteFile
    decoder : LogDecoder or PackedLogDecoder
        Of these messages alone.
    first : int
        Number of the first one in its log.
    count : int
    """

    file: ByteFile
    decoder: LogDecoder | PackedLogDecoder
    first: int
    count: int

    @property
    def section(self) -> bytes | None:
        """Schema section of the messages; None for a message that carries its own."""
        model = self.decoder.model if isinstance(self.decoder, PackedLogDecoder) else self.decoder
        return None if model.body else model.section

    @cached_property
    def token(self) -> str:
        """Hash of the file, its version and the place in it."""
        address = self.file.spelling if self.file.location is None else self.file.location.url
        described = repr((address, self.file.token, self.first, self.count))
        return hashlib.blake2b(described.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "colstore_io.MessageRun", self.token

    def __reduce__(self) -> tuple[Any, ...]:
        return MessageRun, (self.file, self.decoder, self.first, self.count)

    def messages(self) -> Iterator[bytes]:
        """Yield the messages, decompressed, their checksums checked; about 1 MiB of them is fetched at a time.

        Raises
        ------
        FormatError
            If one is damaged.
        StaleDatasetError
            If the file was replaced since it was opened.
        """
        file, decoder = self.file, self.decoder
        if isinstance(file, LocalFile) and file.on_change is None:
            file.on_change = decoder.unchanged
        n_segments = len(decoder.size if isinstance(decoder, PackedLogDecoder) else decoder.cuts[1:])
        for segment in range(n_segments):
            ranges = decoder.ranges(segment, [])
            data = read_ranges([(file, offset, length) for offset, length in ranges])
            yield from decoder.messages(segment, data)


def message_runs(path: Any, options: OpenOptions, *, blocksize: int | None) -> list[MessageRun]:
    """Open logs and cut them into runs.

    Parameters
    ----------
    path : str, PathLike, bytes, file object, or a list of them
        As in `open`.
    options : OpenOptions
    blocksize : int or None
        Stored bytes that a run aims at; None: one run per segment.

    Returns
    -------
    list of MessageRun
        In the order of files and messages; no run is empty.

    Raises
    ------
    FormatError
        If a file is no log of messages.
    """
    files, heads = open_raw(path, options)
    for file, head in zip(files, heads, strict=True):
        if detect(head, file.spelling).name != "colbin":
            raise FormatError("not a log of messages", path=file.spelling, offset=0, section="magic")
    logs = [n for n, head in enumerate(heads) if bytes(head[: len(MAGIC)]) == MAGIC]
    found = dict(zip(logs, frames_of([files[n] for n in logs], [heads[n] for n in logs]), strict=True))
    runs = []
    for number, file in enumerate(files):
        if number not in found:
            runs.append(_single(file, heads[number], options))
            continue
        header, frames = found[number]
        ones = np.ones(len(frames.size), np.int64)
        cuts = cut_segments(frames.size, ones)
        decoder = LogDecoder(
            file.spelling,
            header.section,
            0,
            None,
            (),
            (),
            frames.offset,
            frames.size,
            frames.rows,
            ones,
            cuts,
            header=header.stored,
            errors=options.errors,
        )
        packed = PackedLogDecoder.of(decoder)
        low, n_segments = 0, len(cuts) - 1
        while low < n_segments:
            high = low + 1
            if blocksize is not None:
                ends = np.cumsum(packed.size[low:])
                high = max(high, low + int(np.searchsorted(ends, blocksize, "right")))
            runs.append(
                MessageRun(file, packed.select(low, high, ()), int(cuts[low]), int(cuts[high] - cuts[low]))
            )
            low = high
    return runs


def _single(file: ByteFile, head: memoryview, options: OpenOptions) -> MessageRun:
    """Return the run of a file that is one message with its own section."""
    data = head if len(head) == file.size else file.read(0, file.size)
    section, body, _ = split_message(data, None)
    one = np.ones(1, np.int64)
    decoder = LogDecoder(
        file.spelling,
        section,
        0,
        None,
        (),
        (),
        np.zeros(1, np.int64),
        np.array([file.size], np.int64),
        one,
        one,
        np.array([0, 1], np.int64),
        body=body,
        errors=options.errors,
    )
    return MessageRun(file, decoder, 0, 1)
