"""Byte ranges over HTTP, with the status line in view.

fsspec's ``cat_file`` gives the body and hides the status, so a server that ignores ranges (200 with the whole file)
looks like one that obeys, and a file of a gigabyte would be downloaded once per range. Here the same client and
session are used, but the answer is judged before its body is read:

* 206 is checked against what was asked for; its ``Content-Range`` has the size of the file, and its ``ETag``
  the version, so that opening needs no ``HEAD`` and a file that is replaced between two reads is noticed;
* 200 means that the server has no ranges: a small file is kept whole, of a larger one no more than a wanted
  beginning is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import StorageError
from .filesystems import BATCH_SIZE, sync

__all__ = ["WHOLE_BODY_LIMIT", "HttpAnswer", "can_ask", "http_ranges"]

WHOLE_BODY_LIMIT = 64 << 20
"""A file up to this size is kept in memory when its server ignores byte ranges; a longer one is refused."""

_CONTENT_RANGE = re.compile(r"bytes\s+(?:(\d+)-(\d+)|\*)/(\d+|\*)\s*$", re.IGNORECASE)


class HttpAnswer(NamedTuple):
    """What a server answered to one range request.

    Attributes
    ----------
    data : bytes
        The bytes asked for, fewer where the file ends; the whole file if `whole`.
    whole : bool
        The server sent the file instead of the range.
    info : mapping
        ``size`` (or ``None``) and the headers that make a version token, named as ``info`` of fsspec names them.
    """

    data: bytes
    whole: bool
    info: Mapping[str, Any]

    @property
    def tells_version(self) -> bool:
        """Whether the headers held something that changes with the contents; error answers often lack it."""
        return len(self.info) > 1


def can_ask(fs: Any) -> bool:
    """Whether `fs` is an HTTP client whose session can be used directly."""
    return all(hasattr(fs, name) for name in ("set_session", "encode_url", "kwargs"))


def http_ranges(fs: Any, paths: Sequence[str], starts: Sequence[int], stops: Sequence[int]) -> list[Any]:
    """Ask for many ranges at once. An element is an `HttpAnswer` or the exception that came instead."""
    answers: list[Any] = sync(fs, _ask_all, fs, list(paths), list(starts), list(stops))
    return answers


async def _ask_all(fs: Any, paths: list[str], starts: list[int], stops: list[int]) -> list[Any]:
    import asyncio  # takes as long as all of this package

    session = await fs.set_session()
    gate = asyncio.Semaphore(BATCH_SIZE)

    async def one(path: str, start: int, stop: int) -> Any:
        async with gate:
            try:
                return await _ask(fs, session, path, start, stop)
            except Exception as exc:
                return exc

    return list(await asyncio.gather(*map(one, paths, starts, stops)))


async def _ask(fs: Any, session: Any, url: str, start: int, stop: int) -> HttpAnswer:
    options = dict(fs.kwargs)
    headers = dict(options.pop("headers", None) or {})
    headers["Range"] = f"bytes={start}-{stop - 1}"
    headers["Accept-Encoding"] = "identity"  # ranges of a compressed body are not ranges of the file
    async with session.get(fs.encode_url(url), headers=headers, **options) as response:
        status = response.status
        if status in (404, 410):
            raise FileNotFoundError(url)
        if status in (401, 403):
            raise PermissionError(f"the server answered {status} {response.reason}")
        found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
        total = int(found[3]) if found is not None and found[3] != "*" else None
        if status == 416:  # nothing of the range exists: an empty file, or one that is shorter now
            return HttpAnswer(b"", False, _info(response.headers, total))
        if status not in (200, 206):
            raise StorageError(f"the server answered {status} {response.reason}")
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        if encoding not in ("", "identity"):
            raise StorageError(f"the server compresses its answer ({encoding}) although it was asked not to")
        if status == 206:
            if found is None or found[1] is None or int(found[1]) != start or int(found[2]) >= stop:
                raise StorageError(
                    f"the server answered with the range {response.headers.get('Content-Range')!r}"
                )
            data = await response.read()
            if len(data) != int(found[2]) - start + 1:
                raise StorageError("the answer is shorter than the range it announces")
            return HttpAnswer(data, False, _info(response.headers, total))
        return await _whole(response, start, stop)


async def _whole(response: Any, start: int, stop: int) -> HttpAnswer:
    """Take a 200: all of a small file, the beginning of a large one, and no more bytes than that."""
    announced = response.headers.get("Content-Length")
    size = int(announced) if announced is not None and announced.isdecimal() else None
    if size is None or size <= WHOLE_BODY_LIMIT:
        parts: list[bytes] = []
        have = 0
        async for part in response.content.iter_any():
            parts.append(part)
            have += len(part)
            if have > WHOLE_BODY_LIMIT:
                break
        else:
            data = b"".join(parts)
            if size is not None and size != len(data):
                raise StorageError(f"the server sent {len(data)} of {size} bytes")
            return HttpAnswer(data, True, _info(response.headers, len(data)))
        response.close()
    elif start == 0:
        data = await response.content.readexactly(min(stop, size))
        response.close()  # the rest is not wanted
        return HttpAnswer(data, False, _info(response.headers, size))
    response.close()
    raise StorageError(
        "the server ignores byte ranges and the file is too long to be read whole. Download it, or read it through "
        "'simplecache::'"
    )


def _info(headers: Mapping[str, str], size: int | None) -> dict[str, Any]:
    info: dict[str, Any] = {"size": size}
    for name in ("ETag", "Last-Modified"):
        if headers.get(name):
            info[name] = headers[name]
    return info
