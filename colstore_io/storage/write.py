"""Write a whole object to a store that does not append: in one request, or streamed in parts.

An object appears complete or not at all: small ones go in one request, large ones as an upload that is
committed at its end and discarded on any error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .filesystems import live, storage_error
from .names import redact_url
from .planned import verified
from .resolve import Location, copy_options

__all__ = ["write_object"]

ONE_REQUEST_LIMIT = 64 << 20
"""Objects up to this size are collected and sent in one request."""


def write_object(
    target: Location | str,
    chunks: Iterable[Any] | str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    exclusive: bool = False,
) -> None:
    """Write a whole object.

    Parameters
    ----------
    target : Location or str
        Where to; a URL is taken literally.
    chunks : iterable of buffers, or path of a local file
        The contents. Memory is bounded: past 64 MiB the object is streamed in parts.
    storage_options : mapping, optional
        For a URL.
    exclusive : bool
        Fail if the object exists. Stores without conditional writes are asked first, which leaves a window:
        a caller that needs certainty reads the object back.

    Raises
    ------
    FileExistsError
        If `exclusive` and the object exists.
    PermissionError, StorageError
        If the store refuses or does not answer; nothing new is visible then.
    """
    if isinstance(target, Location):
        fs, path, shown = target.filesystem(), target.path, redact_url(target.spelling)
    else:
        import fsspec

        fs, path = fsspec.url_to_fs(target, **copy_options(storage_options))
        fs, shown = live(fs), redact_url(target)
    try:
        if exclusive and _exists(fs, path):
            raise FileExistsError(17, "the object exists; mode='recreate' replaces it", shown)
        if isinstance(chunks, str | os.PathLike):
            _put(fs, os.fspath(chunks), path, exclusive=exclusive)
        else:
            _stream(fs, chunks, path, exclusive=exclusive)
    except _SourceError as failure:
        raise failure.cause from failure.cause.__cause__
    except FileExistsError:
        raise FileExistsError(17, "the object exists; mode='recreate' replaces it", shown) from None
    except Exception as exc:
        # Stores word a failed precondition in many ways. What counts is whether the object is there; whose it is,
        # a caller that lost an answer learns by reading it back.
        if exclusive and not isinstance(exc, PermissionError) and _is_there(fs, path):
            raise FileExistsError(17, "the object exists; mode='recreate' replaces it", shown) from None
        raise storage_error(exc, "write", shown) from None
    finally:
        forget(fs, path)


def forget(fs: Any, path: str) -> None:
    """Drop what listings of `fs` say about `path` and its folder, and what its version was."""
    verified.forget(fs, path)
    parent = path.rstrip("/").rpartition("/")[0]
    for place in (path, parent):
        try:
            fs.invalidate_cache(place)
        except Exception:
            pass


def _exists(fs: Any, path: str) -> bool:
    forget(fs, path)
    return bool(fs.exists(path))


def _is_there(fs: Any, path: str) -> bool:
    try:
        return _exists(fs, path)
    except Exception:
        return False


def _put(fs: Any, local: str, path: str, *, exclusive: bool) -> None:
    if exclusive:
        try:
            fs.put_file(local, path, mode="create")
            return
        except TypeError:
            pass
    fs.put_file(local, path)


def _pipe(fs: Any, path: str, data: bytes, *, exclusive: bool) -> None:
    if exclusive:
        try:
            fs.pipe_file(path, data, mode="create")
            return
        except TypeError:  # an implementation without the option; existence was looked up before
            pass
    fs.pipe_file(path, data)


class _SourceError(Exception):
    """The caller's own iterable failed: its exception goes back unchanged."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


def _pull(chunks: Iterable[Any]) -> Iterator[bytes]:
    try:
        for chunk in chunks:
            yield bytes(chunk)
    except Exception as exc:
        raise _SourceError(exc) from None


def _stream(fs: Any, chunks: Iterable[Any], path: str, *, exclusive: bool) -> None:
    collected: list[bytes] = []
    size = 0
    source = _pull(chunks)
    for chunk in source:
        collected.append(chunk)
        size += len(collected[-1])
        if size > ONE_REQUEST_LIMIT:
            break
    else:
        _pipe(fs, path, b"".join(collected), exclusive=exclusive)
        return
    handle = fs.open(path, "wb", autocommit=False)
    try:
        for piece in collected:
            handle.write(piece)
        collected.clear()
        for chunk in source:
            handle.write(chunk)
        handle.close()
    except BaseException:
        handle.discard()
        raise
    handle.commit()
