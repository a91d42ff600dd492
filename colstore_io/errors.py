"""Every exception and warning class of colstore_io.

Each class inherits from the built-in that a caller would catch anyway, so ``except ValueError``
around a damaged file and ``except KeyError`` around a misspelt column both work.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "ColstoreDeprecationWarning",
    "ColstoreError",
    "ColumnNotFoundError",
    "CommitConflictError",
    "FormatError",
    "PerformanceWarning",
    "QueryError",
    "SchemaMismatchError",
    "StaleDatasetError",
    "StorageError",
    "TruncatedFileError",
    "UnsupportedFeatureError",
    "WriterLockedError",
]


class ColstoreError(Exception):
    """Base class of all errors raised on purpose by colstore_io."""


class FormatError(ColstoreError, ValueError):
    """The bytes are not what the format allows.

    Parameters
    ----------
    message : str
        What is wrong, without the place.
    path : str, optional
        The file, as the user spelled it.
    offset : int, optional
        Byte offset in the file of the field that is wrong.
    section : str, optional
        The part of the format: ``"magic"``, ``"counters"``, ``"manifest"``, ``"record 3"`` ...
    """

    def __init__(
        self, message: str, *, path: str | None = None, offset: int | None = None, section: str | None = None
    ) -> None:
        super().__init__(message, path, offset, section)
        self.message = message
        self.path = path
        self.offset = offset
        self.section = section

    def __str__(self) -> str:
        place = []
        if self.section is not None:
            place.append(self.section)
        if self.path is not None:
            place.append(f"of {self.path}" if place else self.path)
        if self.offset is not None:
            place.append(f"(offset {self.offset})")
        return f"{' '.join(place)}: {self.message}" if place else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_format_error, (type(self), self.message, self.path, self.offset, self.section))


def _rebuild_format_error(
    cls: type[FormatError], message: str, path: str | None, offset: int | None, section: str | None
) -> FormatError:
    return cls(message, path=path, offset=offset, section=section)


class UnsupportedFeatureError(FormatError):
    """The file is valid, but uses a feature that this library does not implement."""


class TruncatedFileError(FormatError, EOFError):
    """The file has fewer bytes than its header promises."""


class SchemaMismatchError(ColstoreError, ValueError):
    """Files, batches or an append do not fit together. Nothing was written."""


class ColumnNotFoundError(ColstoreError, KeyError):
    """A column name is not in the table."""

    def __str__(self) -> str:  # KeyError would show the repr of the text
        return str(self.args[0]) if self.args else ""

    @classmethod
    def for_name(cls, name: object, available: Iterable[str]) -> ColumnNotFoundError:
        """Build the error for `name`, listing close matches among `available`."""
        names = list(available)
        import difflib  # names are misspelt rarely, and every import counts

        close = difflib.get_close_matches(str(name), names, n=3)
        if close:
            hint = f"did you mean {' or '.join(map(repr, close))}? ({len(names)} columns)"
        elif len(names) <= 20:
            hint = f"available: {', '.join(map(repr, names))}"
        else:
            hint = f"available: {', '.join(map(repr, names[:20]))}, ... ({len(names)} columns)"
        return cls(f"Unknown column {name!r}; {hint}")


class QueryError(ColstoreError, ValueError):
    """A predicate cannot be parsed, or does not fit the columns it names."""


class StaleDatasetError(ColstoreError, OSError):
    """A file changed since the dataset was planned, and was not merely appended to."""


class CommitConflictError(ColstoreError, FileExistsError):
    """Another writer published this generation first."""


class WriterLockedError(ColstoreError, BlockingIOError):
    """Another writer holds the lock of this file or directory."""


class StorageError(ColstoreError, OSError):
    """The store did not answer, answered with an error, or with something that is no answer. Holds no credentials."""


class PerformanceWarning(UserWarning):
    """The result is right, but a faster way exists."""


class ColstoreDeprecationWarning(FutureWarning):
    """The call will change or go in a later release."""
