"""Names of files: natural order, patterns, members of a directory, and what of a URL may be shown.

Everything here is a pure function of strings; no file system is asked.
"""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import Any

__all__ = [
    "DATA_SUFFIXES",
    "data_suffix",
    "has_magic",
    "is_ignored",
    "is_partition_folder",
    "join_spelling",
    "match_component",
    "natural_key",
    "natural_order",
    "path_key",
    "redact",
    "split_pattern",
    "with_path",
]

DATA_SUFFIXES = (".cstore", ".abcd", ".colbin")
"""Endings of data files; one of them per directory (cstore.md 10.1)."""

_DIGITS = re.compile("([0-9]+)")  # ASCII only: int("²") fails, and other scripts' digits are letters here
_DIGIT = re.compile("[0-9]")
_MAGIC = re.compile(r"[*?\[]")
_MAGIC_HTTP = re.compile(r"[*\[]")  # "?" starts the query of a web address

_USERINFO = re.compile(r"(?<=://)[^\s/]*@")
_QUERY = re.compile(r"(://[^\s?#'\"<>]*)\?[^\s'\"<>)\]]*")
_SECRET = re.compile(
    r"(?i)\b((?:aws_)?(?:account|access|shared|secret|session|api)?[_-]?(?:key|secret|token|password|passwd|signature|credential)s?"
    r"['\"]?\s*[=:]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s,;&)'\"]+)"
)


def redact(text: str) -> str:
    """Return `text` without user names, passwords, query strings and ``key=value`` secrets of the URLs in it."""
    if "://" not in text and "=" not in text and ":" not in text:
        return text
    if "://" in text:
        text = _QUERY.sub(r"\1?...", _USERINFO.sub("", text))
    return _SECRET.sub(r"\1...", text)


def redact_url(url: str) -> str:
    """Return `url` without user name, password and query. A local path comes back unchanged."""
    if "://" not in url:
        return url
    return _QUERY.sub(r"\1?...", _USERINFO.sub("", url))


def natural_key(name: str) -> tuple[tuple[str | tuple[int, str], ...], str]:
    """Return the key that sorts names as people count: ``run_2`` before ``run_10`` (cstore.md 10.1).

    Runs of ASCII digits compare as integers, the rest as strings, and ties (``x01``, ``x1``) by the plain string.

    Parameters
    ----------
    name : str
        A base name; any string, digit runs of any length.

    Returns
    -------
    tuple
        Comparable with the key of every other name.
    """
    parts: list[Any] = _DIGITS.split(name)
    for position in range(1, len(parts), 2):
        # (length without leading zeros, digits) orders like the integer, without int()'s limit on long runs.
        digits = parts[position].lstrip("0")
        parts[position] = (len(digits), digits)
    return tuple(parts), name


def natural_order(names: list[str]) -> list[str]:
    """Return base names in the order of `natural_key`."""
    # Names that differ in digits of the same places alone, as numbered shards do, are in that order as plain strings.
    shapes = set(_DIGIT.sub("0", "/".join(names)).split("/"))
    return sorted(names) if len(shapes) == 1 else sorted(names, key=natural_key)


def path_key(path: str) -> tuple[object, ...]:
    """Return the sort key of a relative path: `natural_key` folder by folder."""
    if "/" not in path:
        return (natural_key(path),)
    return tuple(natural_key(part) for part in path.split("/"))


def has_magic(text: str, *, http: bool = False) -> bool:
    """Whether `text` holds a pattern character. In a web address ``?`` is none, and the query is not looked at."""
    if http:
        return _MAGIC_HTTP.search(text.partition("?")[0]) is not None
    return _MAGIC.search(text) is not None


@lru_cache(maxsize=256)
def _component_pattern(component: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(component))


def match_component(name: str, component: str) -> bool:
    """Whether a base name fits one component of a pattern. Wildcards do not match a leading dot."""
    if name.startswith(".") and not component.startswith("."):
        return False
    return _component_pattern(component).match(name) is not None


def split_pattern(path: str, *, http: bool = False) -> tuple[str, list[str]]:
    """Split a path into its literal folder (may be ``""``) and the components from the first pattern on."""
    parts = path.split("/")
    for position, part in enumerate(parts):
        if has_magic(part, http=http):
            return "/".join(parts[:position]), parts[position:]
    return path, []


def is_ignored(name: str) -> bool:
    """Whether a listing skips this base name: ``_``, ``.`` in front, or ``.crc`` behind (cstore.md 10.1)."""
    return name.startswith(("_", ".")) or name.endswith(".crc")


def is_partition_folder(name: str) -> bool:
    """Whether a sub-folder belongs to the dataset: ``key=value`` with a key."""
    return name.find("=") > 0 and not is_ignored(name)


def data_suffix(name: str) -> str | None:
    """Return the data suffix that `name` ends in, or ``None``."""
    for suffix in DATA_SUFFIXES:
        if name.endswith(suffix):
            return suffix
    return None


def _path_segment(url: str) -> tuple[list[str], int]:
    """Split a chained URL and say which segment holds the path of the outermost file system."""
    segments = url.split("::")
    for position, segment in enumerate(segments):
        if "://" in segment:
            return segments, position
    return segments, len(segments) - 1


def with_path(url: str, path: str) -> str:
    """Return the (chained) URL `url` with the path of its outermost file system replaced by `path`.

    ``simplecache::s3://b/x`` and ``b/y`` give ``simplecache::s3://b/y``.
    """
    if "://" not in url:
        return path
    segments, position = _path_segment(url)
    if "://" in path:  # file systems whose paths are URLs (http)
        segments[position] = path
    else:
        protocol = segments[position].partition("://")[0]
        segments[position] = f"{protocol}://{path}"
    return "::".join(segments)


def join_spelling(spelling: str, relative: str) -> str:
    """Return the name of a member as its caller would have written it: `relative` joined to the directory."""
    if "::" not in spelling or "://" not in spelling:
        if not spelling:
            return relative
        return f"{spelling}{relative}" if spelling.endswith("/") else f"{spelling}/{relative}"
    segments, position = _path_segment(spelling)
    head = segments[position]
    segments[position] = f"{head}{relative}" if head.endswith("/") else f"{head}/{relative}"
    return "::".join(segments)


def pattern_root(spelling: str, *, http: bool = False) -> str:
    """Return the literal folder of a pattern, as the caller wrote it (``""`` for a bare name)."""
    if "://" not in spelling:
        return split_pattern(spelling, http=http)[0] or ("/" if spelling.startswith("/") else "")
    segments, position = _path_segment(spelling)
    protocol, _, rest = segments[position].partition("://")
    segments[position] = f"{protocol}://{split_pattern(rest, http=http)[0]}"
    return "::".join(segments)
