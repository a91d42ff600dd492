"""Shards of encoded formats: one file of a columns or log directory, written whole.

`write_encoded_shard` is to directories of ``.abcd`` and ``.colbin`` files what `storing.write_table` is to those of
``.cstore`` files. Where the shard stands, and what becomes of it when a commit fails, is `shard_directory`'s concern.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import SchemaMismatchError
from ..fields import Schema
from ..ingest import is_stream
from ..ingest.variable import ColumnBatch, ingest_columns
from .encoding import EncodedWriter, encoder_for, encoder_options, whole
from .publish import Destination

__all__ = ["check_encoded_options", "ingest_like", "write_encoded_shard"]

_CSTORE_DEFAULTS: dict[str, Any] = {
    "statistics": False,
    "strings": "unicode",
    "string_width": None,
    "attrs": None,
    "column_attrs": None,
    "compact": False,
}


def check_encoded_options(kind: str, cstore: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse options that files of another format have, before anything is written.

    Parameters
    ----------
    kind : str
        The format of the directory.
    cstore : mapping
        Options of `.cstore` files as they were given.
    options : mapping
        Options of encoders as they were given.

    Raises
    ------
    TypeError
        Naming the option.
    """
    if kind == "cstore":
        for name in options:
            raise TypeError(
                f"{name}= is no option of .cstore files, and the directory takes these; "
                "a new directory takes others with format='columns' or format='colbin'"
            )
        return
    for name, value in cstore.items():
        default = _CSTORE_DEFAULTS.get(name)
        if value is not default and value != default:
            raise TypeError(f"{name}= is an option of .cstore files; the {kind} format has nothing like it")
    known = encoder_options(kind)
    for name in options:
        if name not in known:
            raise TypeError(f"the {kind} format has no option {name!r}; options are {', '.join(known)}")
    plain = {n: v for n, v in options.items() if n != "row_group_size" and not isinstance(v, Mapping)}
    encoder_for(kind, Schema(()), **plain)  # raises for values


def ingest_like(data: Any, first: Schema | None, nullable: Any, where: str) -> ColumnBatch:
    """Return data in memory as columns that fit the first shard.

    Raises
    ------
    SchemaMismatchError
        If they do not have its columns.
    """
    try:
        return ingest_columns(data, nullable=nullable if first is None else None, like=first)
    except SchemaMismatchError as error:
        error.add_note(f"the columns of the table are those of its first shard, {where}")
        raise


def write_encoded_shard(
    data: Any,
    make_destination: Callable[[], Destination],
    *,
    path: str,
    kind: str,
    first: Schema | None,
    where: str,
    nullable: bool | str | Sequence[str] | None = None,
    options: Mapping[str, Any],
) -> None:
    """Write data in memory, or a stream, to a destination, and publish it when it is complete.

    Parameters
    ----------
    make_destination : callable
        Called when data in memory have passed every check, and before a stream is read.
    path : str
        For messages.
    kind : str
        The format.
    first : Schema or None
        What the columns must be.
    where : str
        The file that says so.
    options : mapping
        ``row_group_size`` and those of the encoder.

    Raises
    ------
    SchemaMismatchError, TypeError, ValueError
        If the data do not fit; no file appears.
    """
    schema = first
    if not is_stream(data):
        data = ingest_like(data, first, nullable, where)
        schema = data.schema
    new = EncodedWriter(
        path,
        kind,
        schema,
        nullable=nullable if schema is None else None,
        destination=make_destination,
        **options,
    )
    with whole(new) as writer:
        if isinstance(data, ColumnBatch):
            writer.take(data)  # it is the caller's until the file is closed, and need not be copied
        else:
            writer.write(data)
