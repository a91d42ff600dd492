"""Prologues and footers of many files at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...errors import FormatError
from ...fields import Schema
from ...storage import ByteFile, read_ranges
from .. import ReadOptions, ShardMeta
from .append import find_last_footer
from .decoder import decoder_of
from .footer import Footer, parse_footer, schema_of
from .frame import Prologue, footer_start, parse_prologue, prologue_bytes
from .statistics import statistics_of
from .tags import MAGIC, TRAILER_BYTES, Type

__all__ = [
    "HEAD_BYTES",
    "ColumnsHeader",
    "HeaderColumn",
    "OpenedFooter",
    "meta_of",
    "read_footers",
    "read_header",
    "read_metadata",
]

HEAD_BYTES = 64 << 10
"""First bytes that are read where an open has not done so: prologue, and small files as a whole."""

TAIL_BYTES = 48 << 10
"""Last bytes that an open fetches of each file: the footers of most, which take some 25 bytes a chunk."""

_LOCAL_TAIL_BYTES = 4 << 10
"""The same of a file on this machine, where a second read costs a microsecond and long ones the pages they fill."""

_MANY_FILES = 64
_MANY_TAIL_BYTES = 4 << 10
"""The same for many files at once, where long tails cost more memory than a second round."""


class OpenedFooter(NamedTuple):
    """What stands around the chunks of one file."""

    prologue: Prologue
    footer: Footer


@dataclass(frozen=True, slots=True)
class HeaderColumn:
    """A column as the footer has it; `manifest` has its ``name``, ``dtype`` and ``nullable``."""

    name: str
    manifest: dict[str, Any]


@dataclass(frozen=True)
class ColumnsHeader:
    """What a file says about itself, without its row groups.

    Attributes
    ----------
    path : str
    layout : str
        ``"1"`` or ``"2"``, the version.
    format_version, n_records, committed_rows, file_size : int
        Version, row groups, rows, bytes.
    columns : tuple of HeaderColumn
    schema : Schema
    fingerprint : bytes
        As `ShardMeta.fingerprint`.
    needs_compaction : bool
        False.
    """

    path: str
    layout: str
    format_version: int
    n_records: int
    committed_rows: int
    file_size: int
    columns: tuple[HeaderColumn, ...]
    schema: Schema
    fingerprint: bytes
    needs_compaction: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the columns, as in the schema."""
        return self.schema.names


def read_metadata(
    files: Sequence[ByteFile], heads: Sequence[memoryview], options: ReadOptions | None = None
) -> list[ShardMeta]:
    """Return what the files hold.

    One round of reads for the ends of all files that their first bytes do not hold, one more for those whose footer is
    longer than that.

    Parameters
    ----------
    files : sequence of ByteFile
    heads : sequence of memoryview
        First bytes of each; all of it, if it is short.
    options : ReadOptions, optional

    Returns
    -------
    list of ShardMeta
        In the order of `files`. ``layout`` is the version. Files of equal columns share their schema.

    Raises
    ------
    FormatError
        See `footer.parse_footer`.
    UnsupportedFeatureError
        With ``options.strict``, if a tokenizer is not registered (12.1); else only a read of its columns asks for it.
    """
    # Decoders, which tasks carry, are the same however statistics were asked for.
    chosen = ReadOptions() if options is None else replace(options, statistics=True, assume=False)
    schemas: dict[Any, Schema] = {}
    metas = []
    for file, opened in zip(files, read_footers(files, heads, max_rows=chosen.max_rows), strict=True):
        if chosen.strict:
            _require_tokenizers(opened.prologue, file.spelling)
        metas.append(meta_of(file.spelling, file.size, opened, chosen, schemas))
    return metas


def read_header(file: ByteFile, head: memoryview) -> ColumnsHeader:
    """Return what one file says about itself."""
    (opened,) = read_footers([file], [head], max_rows=ReadOptions().max_rows)
    footer = opened.footer
    schema = schema_of(footer, text=True)
    kinds = [Type(number).name.lower() for number in footer.types.tolist()]
    return ColumnsHeader(
        file.spelling,
        str(opened.prologue.version),
        opened.prologue.version,
        footer.n_groups,
        int(footer.n_rows.sum()),
        file.size,
        tuple(
            HeaderColumn(name, {"name": name, "dtype": kind, "nullable": nullable})
            for name, kind, nullable in zip(schema.names, kinds, footer.nullable.tolist(), strict=True)
        ),
        schema,
        footer.fingerprint,
    )


def meta_of(
    path: str, size: int, opened: OpenedFooter, options: ReadOptions, schemas: dict[Any, Schema]
) -> ShardMeta:
    """Return what one file holds.

    Parameters
    ----------
    path : str
        As the caller spelled it.
    size : int
        Of the file.
    opened : OpenedFooter
    options : ReadOptions
    schemas : dict
        Schemas that were made before, by their columns; added to.
    """
    footer, prologue = opened.footer, opened.prologue
    text = options.errors == "strict"
    key = (footer.names, footer.types.tobytes(), footer.nullable.tobytes())
    schema = schemas.get(key)
    if schema is None:
        schema = schemas[key] = schema_of(footer, text=text)
    names = tuple([field.name for field in schema.fields])
    decoder = decoder_of(footer, names, prologue.digests, path=path, options=options)
    return ShardMeta(
        format="columns",
        layout=str(prologue.version),
        path=path,
        columns=(),
        schema=schema,
        record_rows=footer.n_rows,
        body_start=footer.group_start,
        committed_end=footer.stop,
        statistics=statistics_of(footer, names, text=text),
        fingerprint=decoder.fingerprint,
        file_size=size,
        decoder=decoder,
    )


def read_footers(
    files: Sequence[ByteFile], heads: Sequence[memoryview], *, max_rows: int
) -> list[OpenedFooter]:
    """Return prologue and footer of each file; two rounds of reads at most."""
    if len(files) == 1 and _is_local(files[0]):
        opened = _read_local(files[0], heads[0], max_rows)
        if opened is not None:
            return [opened]
    tail_bytes = TAIL_BYTES if len(files) < _MANY_FILES else _MANY_TAIL_BYTES
    ends = [prologue_bytes(h, size=f.size, path=f.spelling) for f, h in zip(files, heads, strict=True)]
    pieces = [_Pieces(file, head) for file, head in zip(files, heads, strict=True)]
    for piece, end in zip(pieces, ends, strict=True):
        piece.want(0, end)
        size = piece.file.size
        piece.want(max(0, size - (_LOCAL_TAIL_BYTES if piece.local else tail_bytes)), size)
    _fetch(pieces)
    prologues, places = [], []
    for piece, end in zip(pieces, ends, strict=True):
        prologue = parse_prologue(piece.get(0, end), end)
        start, stop = _footer_place(piece, prologue)
        piece.want(start, stop)
        prologues.append(prologue)
        places.append((start, stop))
    _fetch(pieces)
    return [
        OpenedFooter(
            prologue,
            parse_footer(
                # Not a view of a longer block: what is kept of a file is its footer.
                memoryview(bytes(piece.get(start, stop))),
                start=start,
                prologue=prologue,
                path=piece.file.spelling,
                max_rows=max_rows,
            ),
        )
        for piece, prologue, (start, stop) in zip(pieces, prologues, places, strict=True)
    ]


def _is_local(file: ByteFile) -> bool:
    return file.location is not None and file.location.local_path is not None


def _read_local(file: ByteFile, head: memoryview, max_rows: int) -> OpenedFooter | None:
    """Do all of it for one file on this machine that ends as a file should; None if it does not."""
    size, path = file.size, file.spelling
    end = prologue_bytes(head, size=size, path=path)
    at = max(0, size - _LOCAL_TAIL_BYTES)
    tail = head if len(head) == size else file.read(at, size - at)
    if end > len(head) or tail[-len(MAGIC) :] != MAGIC:
        return None
    prologue = parse_prologue(head, end)
    start = footer_start(tail[-TRAILER_BYTES:], size=size, prologue_end=end, path=path)
    length = size - TRAILER_BYTES - start
    if length + TRAILER_BYTES > len(tail):
        data = file.read(start, length)
    else:
        data = memoryview(bytes(tail[-TRAILER_BYTES - length : -TRAILER_BYTES]))
    return OpenedFooter(
        prologue, parse_footer(data, start=start, prologue=prologue, path=path, max_rows=max_rows)
    )


def _footer_place(piece: _Pieces, prologue: Prologue) -> tuple[int, int]:
    """Return where the footer of a file begins and ends.

    A file on this machine that does not end with a trailer may be in the middle of an append, or have been left so:
    then the state before it is read (`append`).
    """
    file = piece.file
    size, path = file.size, file.spelling
    trailer = piece.get(size - TRAILER_BYTES, size)
    if trailer[4:] != MAGIC and (file.location is None or piece.local):
        size = find_last_footer(file, prologue_end=prologue.end, path=path)
        trailer = file.read(size - TRAILER_BYTES, TRAILER_BYTES)
    return footer_start(trailer, size=size, prologue_end=prologue.end, path=path), size - TRAILER_BYTES


class _Pieces:
    """Bytes of one file that are there, and those that are still to come."""

    __slots__ = ("_known", "file", "local", "missing")

    def __init__(self, file: ByteFile, head: memoryview) -> None:
        self.file = file
        self.local = _is_local(file)
        self._known = [(0, memoryview(head))]
        self.missing: list[tuple[int, int]] = []

    def want(self, start: int, stop: int) -> None:
        """Note bytes to be fetched, unless they are there."""
        if start < stop and self._find(start, stop) is None:
            self.missing.append((start, stop))

    def add(self, start: int, block: memoryview) -> None:
        self._known.append((start, block))

    def get(self, start: int, stop: int) -> memoryview:
        found = self._find(start, stop)
        if found is None:
            raise FormatError(
                "the file was cut short while it was opened", path=self.file.spelling, offset=start
            )
        return found

    def _find(self, start: int, stop: int) -> memoryview | None:
        if start >= stop:
            return memoryview(b"")
        for at, block in self._known:
            if at <= start and stop <= at + len(block):
                return block[start - at : stop - at]
        return None


def _fetch(pieces: Sequence[_Pieces]) -> None:
    """Read everything that is missing: remote files all together, local ones each at once."""
    wanted = []
    for piece in pieces:
        if piece.local:  # nothing to be gained by a plan of the reads
            for start, stop in piece.missing:
                piece.add(start, piece.file.read(start, stop - start))
        else:
            wanted += [(piece, start, stop) for start, stop in piece.missing]
        piece.missing = []
    if not wanted:
        return
    blocks = read_ranges([(piece.file, start, stop - start) for piece, start, stop in wanted])
    for (piece, start, _), block in zip(wanted, blocks, strict=True):
        piece.add(start, block)


def _require_tokenizers(prologue: Prologue, path: str) -> None:
    if not prologue.digests:
        return
    from .tokenizer import default_registry

    for digest in prologue.digests:
        try:
            default_registry.get(digest)
        except FormatError as exc:
            raise type(exc)(exc.message, path=path, offset=9, section="prologue") from None
