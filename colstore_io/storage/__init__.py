"""Give me bytes a..b of this URL: resolving, opening, reading and writing files of any kind.

The formats, the dataset and the integrations use only what is listed here.

=====================  ==============================================================
``resolve``            path, URL, pattern, directory -> `Location` objects
``open_files``         locations -> opened files with their first bytes, in one round
``open_many``          the same for thousands of local files, without an object for each
``read_ranges``        many byte ranges of many files, coalesced and concurrent
``reopen``             a file from its address, version and size; no request
``open_beside``        a small file beside a local one, if there is one
``write_object``       a whole object, for stores that do not append
=====================  ==============================================================
"""

from __future__ import annotations

import io as _io
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..config import check_madvise
from ..errors import StorageError
from .beside import Beside, LocalState, beside_path, listed_beside, local_state, open_beside
from .block import HeadBlock, LocalFiles, LocalPaths, open_block
from .copies import CopiedFile, open_copies
from .files import ByteFile, IOStats, MemoryFile, StreamFile
from .filesystems import is_plain_local, keeps_local_copies, local_filesystem, local_token
from .guards import Guard, PlacesMovedError
from .heads import open_remote
from .local import LocalFile, LocalOptions, open_local
from .mapping import descriptors
from .names import DATA_SUFFIXES, natural_key, redact_url
from .ranges import join_blocks, plan_blocks, split_block
from .remote import RemoteFile, Wanted, current_state, fetch
from .resolve import Entry, Location, Resolution, list_names, resolve
from .write import write_object

__all__ = [
    "DATA_SUFFIXES",
    "HEAD_BYTES",
    "Beside",
    "ByteFile",
    "Entry",
    "Guard",
    "HeadBlock",
    "IOStats",
    "LocalFile",
    "LocalFiles",
    "LocalOptions",
    "LocalPaths",
    "LocalState",
    "Location",
    "MemoryFile",
    "PlacesMovedError",
    "RemoteFile",
    "Resolution",
    "StreamFile",
    "beside_path",
    "current_token",
    "is_local",
    "list_names",
    "listed_beside",
    "listed_files",
    "local_filesystem",
    "local_state",
    "local_token",
    "locate",
    "natural_key",
    "open_beside",
    "open_file",
    "open_files",
    "open_many",
    "read_ranges",
    "reopen",
    "resolve",
    "write_object",
]

HEAD_BYTES = 64 << 10
"""First bytes that an open fetches of each remote file: enough for most headers (integrations.md 4.3)."""

LOCAL_HEAD_BYTES = 4 << 10
"""The same for local files, where a second read costs microseconds and a thousand long heads cost memory."""

MANY_HEAD_BYTES = 2 << 10
"""The same for a thousand local files: enough for 25 columns, and half the page faults."""

_MANY_FILES = 64
_BLOCK_FROM = 8

_LOCAL_GAP = 4096  # a further pread costs about as much as copying this many bytes

_SPARE_GAP = 256 << 10  # what a request of 20 ms costs at 13 MB/s


def open_files(
    locations: Sequence[Location],
    *,
    head_bytes: int | None = None,
    mmap: bool = True,
    madvise: str | None = None,
    mlock: bool = False,
    io: IOStats | None = None,
) -> list[tuple[ByteFile, memoryview]]:
    """Open files and read the first bytes of each.

    All remote heads, and the sizes that no listing told, are asked for in one concurrent round per file system.

    Parameters
    ----------
    locations : sequence of Location
    head_bytes : int, optional
        Length of the heads; by default 64 KiB of remote files and 4 KiB of local ones (2 KiB of many). A head is
        shorter only if the file is; an empty file has the head ``b""``.
    mmap : bool
        Map local files on demand; False reads them by ``pread``, which survives a file that is cut short.
    madvise : str or None
        Advice for mappings (`colstore_io.config`); a failure is ignored.
    mlock : bool
        Lock the pages of mappings into memory; a failure warns.
    io : IOStats, optional
        Where the files count their requests; a new one is shared by them otherwise.

    Returns
    -------
    list of (ByteFile, memoryview)
        In input order.

    Raises
    ------
    FileNotFoundError, PermissionError, IsADirectoryError, StorageError, StaleDatasetError
        For the first file that cannot be opened.
    """
    options = LocalOptions(mmap, check_madvise(madvise), mlock)
    stats = io if io is not None else IOStats()
    few = len(locations) < _MANY_FILES
    local_head = (LOCAL_HEAD_BYTES if few else MANY_HEAD_BYTES) if head_bytes is None else head_bytes
    local = [number for number, location in enumerate(locations) if location.local_path is not None]
    if len(local) == len(locations):
        return open_local(locations, local_head, stats, options)
    result: list[tuple[ByteFile, memoryview] | None] = [None] * len(locations)
    opened = open_local([locations[number] for number in local], local_head, stats, options)
    for number, pair in zip(local, opened, strict=True):
        result[number] = pair
    groups: dict[int, tuple[Any, list[int]]] = {}
    for number, location in enumerate(locations):
        if location.local_path is None:
            fs = location.filesystem()
            groups.setdefault(id(fs), (fs, []))[1].append(number)
    for fs, numbers in groups.values():
        chosen = [locations[number] for number in numbers]
        if keeps_local_copies(fs):
            opened = open_copies(fs, chosen, local_head, stats, options)
        else:
            opened = open_remote(fs, chosen, HEAD_BYTES if head_bytes is None else head_bytes, stats)
        for number, pair in zip(numbers, opened, strict=True):
            result[number] = pair
    return [pair for pair in result if pair is not None]


def open_many(
    locations: Sequence[Location],
    *,
    mmap: bool = True,
    madvise: str | None = None,
    mlock: bool = False,
    keep_open: bool = True,
    io: IOStats | None = None,
) -> tuple[Sequence[ByteFile], Sequence[memoryview]]:
    """Open files as `open_files` does, and return them and their heads as two sequences.

    Of many local files these are a `LocalFiles` and a `HeadBlock`, which make no object for a file before it is asked
    for. ``keep_open=False`` says that few of the files will be read by this process, so that some are many already.
    """
    options = LocalOptions(mmap, check_madvise(madvise), mlock)
    stats = io if io is not None else IOStats()
    if keep_open:  # up to the capacity, descriptors stay open
        block_from = max(_MANY_FILES, descriptors.capacity) + 1
    else:
        block_from = _BLOCK_FROM
    if len(locations) >= block_from:
        block = open_block(locations, MANY_HEAD_BYTES, stats, options)
        if block is not None:
            return block
    opened = open_files(locations, mmap=mmap, madvise=madvise, mlock=mlock, io=stats)
    return [file for file, _ in opened], [head for _, head in opened]


def open_file(
    source: Any,
    *,
    head_bytes: int | None = None,
    mmap: bool = True,
    madvise: str | None = None,
    mlock: bool = False,
    io: IOStats | None = None,
) -> tuple[ByteFile, memoryview]:
    """Open one file: a `Location`, file contents (any buffer), or a seekable binary file object.

    Returns
    -------
    (ByteFile, memoryview)
        The file and its first `head_bytes` bytes (fewer: that is all of it).

    Raises
    ------
    TypeError
        If `source` is none of these.
    FileNotFoundError, PermissionError, IsADirectoryError, StorageError, StaleDatasetError
        As `open_files`.
    """
    if isinstance(source, Location):
        return open_files([source], head_bytes=head_bytes, mmap=mmap, madvise=madvise, mlock=mlock, io=io)[0]
    file: ByteFile
    if isinstance(source, _io.BytesIO):
        file = MemoryFile(source.getvalue(), spelling="<BytesIO>", io=io)
    elif hasattr(source, "read") and hasattr(source, "seek"):
        file = StreamFile(source, io=io)
    else:
        try:
            view = memoryview(source)
        except TypeError:
            raise TypeError(
                f"expected a location, file contents or a binary file object, got {type(source).__name__}"
            ) from None
        file = MemoryFile(view, io=io)
    return file, file.read(0, min(LOCAL_HEAD_BYTES if head_bytes is None else head_bytes, file.size))


def read_ranges(
    requests: Sequence[tuple[ByteFile, int, int]],
    *,
    gap_bytes: int = 64 << 10,
    spare_bytes: int = 768 << 10,
    max_block: int = 16 << 20,
) -> list[memoryview]:
    """Read many byte ranges, those of all remote files of one store in one concurrent round.

    Parameters
    ----------
    requests : sequence of (ByteFile, offset, length)
        Any order; ranges may overlap and repeat. A length of 0 gives an empty view without a request.
    gap_bytes : int
        Ranges of one file at most this far apart are fetched together.
    spare_bytes : int
        What may be fetched in vain, of all files together, to spare requests for ranges that are further apart, up to
        256 KiB.
    max_block : int
        Bytes of a merged block. A single range may be longer; above 64 MiB it is fetched in parts of this size.

    Returns
    -------
    list of memoryview
        Read-only, in input order, each exactly as long as asked for. Neighbours may share memory.

    Raises
    ------
    TruncatedFileError
        If a range reaches past the end of its file.
    StaleDatasetError, StorageError
        As `ByteFile.read`.
    PlacesMovedError
        If the `Guard` of a file says so: its ranges have to be planned again.
    """
    result: list[memoryview] = [memoryview(b"")] * len(requests)
    by_file: dict[int, tuple[ByteFile, list[int]]] = {}
    for number, (file, offset, length) in enumerate(requests):
        file._check_range(offset, length)
        if length:
            by_file.setdefault(id(file), (file, []))[1].append(number)
    rounds: list[Wanted] = []
    pending: list[tuple[Any, list[list[Wanted]], list[int], list[Any], list[tuple[int, int]]]] = []
    for file, numbers in by_file.values():
        ranges = [(requests[number][1], requests[number][2]) for number in numbers]
        looks: list[tuple[int, int]] = []
        if isinstance(file, RemoteFile) and file.guard is not None:
            looks = _looks(file, file.guard, ranges)
            ranges += looks
        if not isinstance(file, RemoteFile):
            blocks, slices = plan_blocks(ranges, gap_bytes=min(gap_bytes, _LOCAL_GAP), max_block=max_block)
            data = [file.read(block.start, block.stop - block.start) for block in blocks]
            for number, piece in zip(numbers, slices, strict=True):
                result[number] = data[piece.block][piece.begin : piece.begin + piece.length]
            continue
        blocks, slices = plan_blocks(ranges, gap_bytes=gap_bytes, max_block=max_block)
        if len(blocks) > 1:
            blocks, slices = join_blocks(
                blocks,
                slices,
                gap_bytes=_SPARE_GAP,
                spare_bytes=spare_bytes // len(by_file),
                max_block=max_block,
            )
        parts = [
            [Wanted(file, part.start, part.stop) for part in split_block(block, part_bytes=max_block)]
            for block in blocks
        ]
        for group in parts:
            rounds.extend(group)
        pending.append((file, parts, numbers, slices, looks))
    fetch(rounds)
    for file, parts, numbers, slices, looks in pending:
        data = [_joined(group) for group in parts]
        for (offset, _), piece in zip(looks, slices[len(numbers) :], strict=True):
            if not file.guard.look(offset, data[piece.block][piece.begin : piece.begin + piece.length]):
                raise PlacesMovedError(f"{file.spelling}: a record is not where it was assumed to be")
        slices = slices[: len(numbers)]
        for number, piece in zip(numbers, slices, strict=True):
            result[number] = data[piece.block][piece.begin : piece.begin + piece.length]
    return result


def _looks(file: RemoteFile, guard: Guard, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what has to be looked at before `ranges` are believed, nothing twice."""
    found: dict[tuple[int, int], None] = {}
    # From the last one on: what it wants is a chain that holds what those before it want.
    for offset, length in sorted(ranges, key=sum, reverse=True):
        wanted = guard.wanted(offset, offset + length)
        if wanted:
            found.update(dict.fromkeys(wanted))
            break
    if found and guard.failed():  # no need to look
        raise PlacesMovedError(f"{file.spelling}: its records are not where they were assumed to be")
    return list(found)


def _joined(parts: list[Wanted]) -> memoryview:
    """Return the bytes of a block that was fetched in parts; each part is let go as soon as it is copied."""
    if len(parts) == 1:
        assert parts[0].answer is not None
        return parts[0].answer
    start = parts[0].start
    whole = np.empty(parts[-1].stop - start, np.uint8)  # not zeroed first, as a bytearray would be
    for part in parts:
        assert part.answer is not None
        whole[part.start - start : part.stop - start] = np.frombuffer(part.answer, np.uint8)
        part.answer = None
    return whole.data.toreadonly()


def current_token(location: Location, *, io: IOStats | None = None) -> tuple[int, str]:
    """Return size and version token as they are now: one ``stat``, or one metadata request (never cached).

    Raises
    ------
    FileNotFoundError
        If the file is gone.
    StorageError, PermissionError
        If the store does not tell.
    """
    if location.local_path is not None and is_plain_local(location.fs):
        begin = time.perf_counter()
        try:
            stat = os.stat(location.local_path)
        except FileNotFoundError:
            raise FileNotFoundError(2, "No such file", location.spelling) from None
        if io is not None:
            io.add(metadata_requests=1, seconds=time.perf_counter() - begin)
        return stat.st_size, local_token(stat)
    state = current_state(location, io=io)
    if state.size is None:
        raise StorageError(f"{redact_url(location.spelling)}: the store does not tell the size of the file")
    return state.size, state.token


def listed_files(locations: Sequence[Location], io: IOStats) -> list[ByteFile] | None:
    """Return remote files without a request, where a listing has just told size and version of each; else None."""
    if not all(
        location.local_path is None
        and location.size is not None
        and location.token is not None
        and not keeps_local_copies(location.filesystem())
        for location in locations
    ):
        return None
    return [RemoteFile(location, location.size or 0, location.token, io) for location in locations]


def reopen(
    location: Location | str,
    *,
    size: int,
    token: str | None,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    mmap: bool = True,
    madvise: str | None = None,
    mlock: bool = False,
    io: IOStats | None = None,
) -> ByteFile:
    """Return a file that was planned earlier, perhaps in another process. Nothing is asked before the first read.

    Parameters
    ----------
    location : Location or str
        The place, or its absolute URL (then `storage_options` or `filesystem` as for `resolve`; never a pattern).
    size, token : int, str or None
        As planned. The file is compared with `token` before its first byte is handed out (a remote one by one
        metadata request, over HTTP by the headers of the first answer). ``None`` compares nothing.

    Returns
    -------
    LocalFile or RemoteFile
    """
    if isinstance(location, str):
        location = locate(location, storage_options=storage_options, filesystem=filesystem)
    location = replace(location, size=size, token=token)
    stats = io if io is not None else IOStats()
    options = LocalOptions(mmap, check_madvise(madvise), mlock)
    if location.local_path is None and keeps_local_copies(location.filesystem()):
        return CopiedFile(location, size, token or "", stats, options)
    if location.local_path is not None:
        planned = token is not None
        return LocalFile(
            location,
            location.local_path,
            size,
            stats,
            known=None,
            options=options,
            token=token or "",
            planned=planned,
        )
    return RemoteFile(location, size, token, stats, planned=token is not None)


def is_local(location: Location) -> bool:
    """Whether this is an ordinary file of this machine: not a copy of another, nor inside one."""
    return location.local_path is not None and is_plain_local(location.fs)


def locate(url: str, *, storage_options: Mapping[str, Any] | None = None, filesystem: Any = None) -> Location:
    """Return the location of an absolute URL or path, taken literally; nothing is looked up."""
    from .filesystems import checked_filesystem
    from .resolve import copy_options

    if filesystem is not None:
        fs, path = checked_filesystem(filesystem), filesystem._strip_protocol(url)
    elif "://" in url:
        import fsspec

        fs, path = fsspec.url_to_fs(url, **copy_options(storage_options))
    else:
        fs, path = None, os.path.abspath(url)
    return Location(url, url, path, fs, path if is_plain_local(fs) else None)
