"""What do these bytes say? One package per format, all with the same protocol.

A format turns the bytes of opened files into `ShardMeta`: columns, segments and where their bytes are.
Formats ask `colstore_io.storage` for bytes and know nothing of file systems, frames or selections.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..errors import ColumnNotFoundError, FormatError
from ..fields import PhysicalColumn, Schema

if TYPE_CHECKING:
    import pyarrow as pa

    from ..kernels.tokens import GrownBytes
    from ..storage import ByteFile, Location
    from ..taking import Take
    from .inspection import Inspection

_OLDER_MAGICS = {
    b"COLS": "a columns file of v0.3.0 or v0.3.1 of its library (magic b'COLS'), which is not supported",
    b"KEIN": "a columns file of v0.1.0 of its library (magic b'KEIN'), which is not supported",
}
"""Files that are told by name although no format here reads them (columns.md section 2)."""

BLOCK_ROWS = 1 << 16
"""Rows of a file that share one minimum and one maximum in its index."""

__all__ = [
    "BLOCK_ROWS",
    "READ_DEFAULTS",
    "AddressableFormat",
    "Allocate",
    "DecodedColumn",
    "Decoder",
    "FileEncoder",
    "FileHeader",
    "Format",
    "JoiningDecoder",
    "Problem",
    "ReadOptions",
    "ReadyChunk",
    "ReadyDecoder",
    "ShardMeta",
    "Statistics",
    "TakingDecoder",
    "ValueRoom",
    "addressable_format",
    "detect",
    "format_named",
    "known_formats",
    "verify_location",
]


@dataclass(frozen=True)
class Statistics:
    """Smallest and largest value per segment, by physical column name.

    Attributes
    ----------
    minimum, maximum : mapping of str to ndarray, shape (R,)
        In native byte order. Meaningless where not usable.
    usable : mapping of str to ndarray of bool, shape (R,)
        Whether the bounds of this segment may be trusted. Columns that never have bounds (strings) are left out.
    nulls : mapping of str to ndarray of int64, shape (R,)
        Number of nulls of each segment, of columns whose format counts them; -1 where the file does not say.
    """

    minimum: Mapping[str, NDArray[Any]]
    maximum: Mapping[str, NDArray[Any]]
    usable: Mapping[str, NDArray[np.bool_]]
    nulls: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a caller may ask of formats whose columns are decoded. Picklable.

    Attributes
    ----------
    strict : bool
        Refuse at open what would only matter once a column is read (unknown tokenizers).
    table : str or None
        Which list of records of a message is the table (logs of messages).
    errors : str
        What to do with text that is not UTF-8: ``"strict"`` raises, ``"surrogateescape"`` hands it out as binary.
    max_rows : int
        Rows that one segment may claim.
    max_decoded_bytes : int
        Bytes that one column of one segment may decode to: what a small hostile file can make a reader allocate.
    statistics : bool
        Read statistics with the headers. Else they are fetched when somebody asks for them; formats that have them in
        their headers do not look at this.
    assume : bool
        For readers of remote files: take places that follow from others for granted until bytes there are read.
        Such a file has a `storage.Guard`.
    """

    strict: bool = False
    table: str | None = None
    errors: str = "strict"
    max_rows: int = 1 << 32
    max_decoded_bytes: int = 1 << 36
    statistics: bool = True
    assume: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Every task of a file with decoded columns carries these, mostly the defaults.
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return _read_options, tuple((n, v) for n, v in given.items() if v != getattr(READ_DEFAULTS, n))


def _read_options(*given: tuple[str, Any]) -> ReadOptions:
    return ReadOptions(**dict(given)) if given else READ_DEFAULTS


READ_DEFAULTS = ReadOptions()


@dataclass(slots=True)
class DecodedColumn:
    """One column of one segment (or of some of its rows), decoded.

    Attributes
    ----------
    values : ndarray, shape (n,), or None
        Of a fixed-width column: native byte order; the caller's `out` if one was given. What lies under nulls is 0.
    validity : ndarray of bool, shape (n,), or None
        Of a fixed-width column: True where there is a value; None when every row has one.
    array : pyarrow.Array or None
        Of a column of variable length, nulls included.
    """

    values: NDArray[Any] | None = None
    validity: NDArray[np.bool_] | None = None
    array: pa.Array | None = None


Allocate: TypeAlias = "Callable[[int], NDArray[np.uint8]]"
"""Gives memory for results: ``allocate(nbytes)`` returns a writable uint8 array of that many bytes."""


class ValueRoom(Protocol):
    """Where the values of one segment of a column of variable length go, when several become one array."""

    @property
    def grown(self) -> tuple[GrownBytes, float] | None:
        """Memory that the bytes go behind, and how many times all bytes will be those up to here; None: use `bytes`."""
        ...

    def offsets(self, size: int) -> NDArray[Any]:
        """Return places for the offsets of all rows and one more: int32, or int64 where `size` takes that."""
        ...

    def bytes(self, size: int) -> NDArray[np.uint8]:
        """Return the place of `size` bytes. Nobody may look at it any more when the segment is decoded."""
        ...

    def put(self, size: int, bitmap: NDArray[np.uint8] | None, null_count: int, text: bool) -> None:
        """Tell that offsets and bytes are there, with Arrow's validity bitmap."""
        ...


class Decoder(Protocol):
    """How the segments of one file are decoded: addresses and encodings, no handle. Immutable, picklable, small.

    Columns are numbered as in ``ShardMeta.schema``, segments as in ``ShardMeta.record_rows``.

    """

    @property
    def independent(self) -> bool:
        """Whether columns are stored apart, so that they can be decoded by different threads without doing work twice.

        `ranges` then gives one range per column.
        """
        ...

    def ranges(
        self, segment: int, columns: Sequence[int], rows: tuple[int, int] | None = None
    ) -> list[tuple[int, int]]:
        """Return the byte ranges (offset, length) of the file that `decode` of these `columns` needs, in order.

        `rows` as in `decode`. Their number and order depend on the arguments alone.
        """
        ...

    def decode(
        self,
        segment: int,
        columns: Sequence[int],
        data: Sequence[memoryview],
        *,
        rows: tuple[int, int] | None = None,
        out: Sequence[Any] | None = None,
        threads: int = 1,
        dictionaries: Collection[int] = (),
        allocate: Allocate | None = None,
    ) -> list[DecodedColumn]:
        """Decode columns of one segment.

        Parameters
        ----------
        segment : int
        columns : sequence of int
        data : sequence of memoryview
            The bytes of `ranges`, in its order; views of a mapping or fetched buffers.
        rows : (start, stop), optional
            Rows within the segment that are wanted. Default: all.
        out : sequence of ndarray, ValueRoom or None, optional
            One per column: where the values of a fixed-width column go (native dtype, shape (n,)). Rooms only for a
            `JoiningDecoder`.
        threads : int
            Threads this call may use, itself included; already leased by the caller.
        dictionaries : collection of int
            Columns to return as Arrow dictionary arrays where their chunk is a dictionary.
        allocate : callable, optional
            Memory of results that do not go to `out`. Default: `colstore_io.buffers`.

        Raises
        ------
        FormatError
            Naming file, segment, column and offset.
        """
        ...

    def select(self, low: int, high: int, columns: Sequence[int]) -> Decoder:
        """Return the decoder of segments [low, high) and `columns` alone, renumbered from 0: what a task needs."""
        ...

    def unchanged(self, file: ByteFile) -> bool:
        """Tell whether a file that was modified still holds all of this: it was merely appended to."""
        ...

    def decoded_row_bytes(self, columns: Sequence[int]) -> float:
        """Return about how many bytes a row of these columns takes when decoded, from what the header says."""
        ...


@dataclass(frozen=True, slots=True)
class ReadyChunk:
    """A chunk of fixed width without nulls, checked and ready to be read any number of times. Holds the file's mapping.

    Attributes
    ----------
    n_rows : int
    raw_bytes : int
        Bytes that a read goes through.
    shared : bool
        Whether several threads are of use.
    read : callable (out, threads) -> bool
        Fills `out`, uint8 of all values in native byte order; False when the chunk is damaged.
    view : ndarray or None
        The values where they are in the file, read-only, if they are stored there as they are in memory.
    """

    n_rows: int
    raw_bytes: int
    shared: bool
    read: Callable[[NDArray[np.uint8], int], bool]
    view: NDArray[Any] | None


@runtime_checkable
class JoiningDecoder(Protocol):
    """A `Decoder` whose ``decode`` takes a `ValueRoom` as ``out`` of a column of variable length, for all its rows.

    Such a column has neither values nor an array afterwards: they are in the room.
    """

    def value_bytes(self, segment: int, column: int, data: memoryview) -> int | None:
        """Return how many bytes the values of a column have, None if that takes decoding it (or it is damaged).

        Parameters
        ----------
        segment, column : int
        data : memoryview
            The bytes of `ranges`.
        """
        ...


@runtime_checkable
class TakingDecoder(Protocol):
    """A `Decoder` that picks rows while it decodes: it holds their values and the blocks in work, never a chunk."""

    def take(
        self,
        segment: int,
        columns: Sequence[int],
        data: Sequence[memoryview],
        take: Take,
        *,
        out: Sequence[NDArray[Any] | None] | None = None,
        threads: int = 1,
        dictionaries: Collection[int] = (),
        allocate: Allocate | None = None,
    ) -> list[DecodedColumn]:
        """Decode some rows of columns of one segment.

        Parameters
        ----------
        segment, columns, data, threads, dictionaries, allocate
            As for `Decoder.decode`.
        take : Take
            Which rows, and where those of a column of fixed width go in `out`.
        out : sequence of ndarray or None, optional
            One per column: the target of a column of fixed width, of native dtype; as long as the places of `take` ask
            for. Without it, shape (take.count,) is made, and the places of `take` must not be given.

        Returns
        -------
        list of DecodedColumn
            ``values`` is what was given as `out`. A ``validity`` has shape (take.count,), in the order of the wanted
            rows, whatever their places are. An ``array`` too: it has the wanted rows in ascending order.

        Raises
        ------
        FormatError
            As `Decoder.decode`. Blocks without a wanted row need not be looked at.
        """
        ...


@runtime_checkable
class ReadyDecoder(Protocol):
    """A `Decoder` that can make `ReadyChunk`."""

    def ready(self, segment: int, column: int, data: memoryview) -> ReadyChunk | None:
        """Return the chunk of a column for repeated reads; None where there is no short way, or it breaks a rule.

        Parameters
        ----------
        segment, column : int
        data : memoryview
            Of the whole mapped file.
        """
        ...


class FileEncoder(Protocol):
    """Turns segments of columns into the bytes of one file, front to back, and remembers what its end must say."""

    def begin(self) -> bytes:
        """Return the bytes before the first segment."""
        ...

    def segment(self, columns: Sequence[NDArray[Any] | pa.Array]) -> Sequence[bytes | memoryview]:
        """Return the bytes of one segment: columns in schema order, of equal length; all checked before it returns."""
        ...

    def finish(self) -> bytes:
        """Return the bytes after the last segment."""
        ...


@dataclass(eq=False)
class ShardMeta:
    """What a file's header says. Picklable, holds no handle; treat everything in it as read-only.

    (Not frozen: that would double the time to make one, and every open makes one for each file.)

    Attributes
    ----------
    format : str
        ``"cstore"``, ...
    layout : str
        Version of the header: ``"A"``, ``"B"`` or ``"C"`` (cstore.md section 12).
    path : str
        The file as the user spelled it, for messages.
    columns : tuple of PhysicalColumn
        Every column in the file, companions included, in file order.
    schema : Schema
        What the user sees.
    record_rows : ndarray of int64, shape (R,)
        Rows of each record.
    body_start : ndarray of int64, shape (R,)
        File offset of each record's body.
    committed_end : int
        Readers use bytes [0, committed_end) and no others.
    statistics : Statistics or None
    fingerprint : bytes
        Equal for two states of one file of which one was merely appended to; differs when the manifest does.
    stats_offset : int
        Where the statistics footer begins; 0 when there is none.
    file_size : int
        Size of the file when it was opened.
    extra : object
        Value of the top-level extra key as stored, for rewrites that carry it along.
    counters : bytes
        The counters block as stored; empty where the layout has none that an index could name.
    manifest_crc32 : int
        Checksum of the columns array.
    decoder : Decoder or None
        Of formats whose chunks are decoded whole; ``None`` where rows have addresses. `columns` is empty then.
    """

    format: str
    layout: str
    path: str
    columns: tuple[PhysicalColumn, ...]
    schema: Schema
    record_rows: NDArray[np.int64]
    body_start: NDArray[np.int64]
    committed_end: int
    statistics: Statistics | None
    fingerprint: bytes
    stats_offset: int = 0
    file_size: int = 0
    extra: Any = None
    counters: bytes = b""
    manifest_crc32: int = 0
    decoder: Decoder | None = None

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes of the whole table."""
        return self.schema.attrs

    @property
    def n_records(self) -> int:
        return len(self.record_rows)

    @cached_property
    def n_rows(self) -> int:
        return int(self.record_rows.sum())

    @cached_property
    def row_bytes(self) -> int:
        """Stored bytes per row: the sum of all item sizes."""
        return sum(column.itemsize for column in self.columns)

    def sibling(self, **changes: Any) -> ShardMeta:
        """Return what a file of the same columns says: a copy with `changes`.

        Row counts change only together with ``n_rows``, which is remembered.

        `dataclasses.replace` takes five times as long, and a dataset has thousands of these.
        """
        other = object.__new__(ShardMeta)
        object.__setattr__(other, "__dict__", {**self.__dict__, **changes})
        return other

    @cached_property
    def _places(self) -> dict[str, tuple[int, PhysicalColumn]]:
        places: dict[str, tuple[int, PhysicalColumn]] = {}
        prefix = 0
        for column in self.columns:
            places[column.name] = (prefix, column)
            prefix += column.itemsize
        return places

    def physical(self, name: str) -> PhysicalColumn:
        """Return the physical column `name`; `ColumnNotFoundError` if the file has none."""
        return self._place(name)[1]

    def column_prefix(self, name: str) -> int:
        """Return the sum of the item sizes of the columns before `name`.

        The chunk of column c in record r begins at ``body_start[r] + record_rows[r] * column_prefix(c)``.
        """
        return self._place(name)[0]

    def __getstate__(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in self.__dataclass_fields__}
        state["columns"] = [(c.name, c.dtype.str, dict(c.manifest)) for c in self.columns]
        state["record_rows"] = _packed(self.record_rows)
        state["body_start"] = _packed(self.body_start)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state["columns"] = tuple(
            PhysicalColumn(name, np.dtype(text), raw) for name, text, raw in state["columns"]
        )
        state["record_rows"] = _unpacked(state["record_rows"])
        state["body_start"] = _unpacked(state["body_start"])
        self.__dict__.update(state)

    def _place(self, name: str) -> tuple[int, PhysicalColumn]:
        try:
            return self._places[name]
        except KeyError:
            raise ColumnNotFoundError.for_name(name, self._places) from None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a thorough check found.

    Attributes
    ----------
    severity : str
        ``"error"``: the file breaks its format, or says something wrong about its data. ``"notice"``: odd, but
        every reader must live with it.
    message : str
    section : str
        The part of the format, as in `FormatError`.
    offset : int or None
        Byte offset in the file.
    """

    severity: Literal["error", "notice"]
    message: str
    section: str
    offset: int | None = None

    def __str__(self) -> str:
        place = self.section if self.offset is None else f"{self.section} (offset {self.offset})"
        text = f"{place}: {self.message}"
        return text if self.severity == "error" else f"notice: {text}"


def _packed(values: NDArray[np.int64]) -> tuple[Any, ...]:
    """Return a small form of `values` for pickles: a progression but for the last one, or differences, compressed."""
    if len(values) < 8:
        return ("list", values.tolist())
    steps = np.diff(values)
    if (steps[:-1] == steps[0]).all():
        return ("run", int(values[0]), int(steps[0]), len(values), int(values[-1]))
    return ("steps", int(values[0]), zlib.compress(steps.astype("<i8").tobytes(), 1))


def _unpacked(packed: tuple[Any, ...]) -> NDArray[np.int64]:
    if packed[0] == "list":
        return np.array(packed[1], dtype=np.int64)
    if packed[0] == "run":
        _, first, step, count, last = packed
        values: NDArray[np.int64] = first + step * np.arange(count, dtype=np.int64)
        values[-1] = last
        return values
    _, first, compressed = packed
    steps = np.frombuffer(zlib.decompress(compressed), "<i8").astype(np.int64)
    return np.concatenate([np.array([first], np.int64), first + np.cumsum(steps)])


class FileHeader(Protocol):
    """What a file says about itself, before its records are looked at; formats add to it.

    Attributes
    ----------
    path, layout : str
    format_version, n_records, committed_rows, file_size : int
    columns : sequence
        With ``name`` and ``manifest``.
    schema : Schema
    fingerprint : bytes
        As `ShardMeta.fingerprint`.
    names : list of str
        Of the columns that users see.
    needs_compaction : bool
    """

    @property
    def path(self) -> str: ...
    @property
    def layout(self) -> str: ...
    @property
    def format_version(self) -> int: ...
    @property
    def n_records(self) -> int: ...
    @property
    def committed_rows(self) -> int: ...
    @property
    def file_size(self) -> int: ...
    @property
    def columns(self) -> Sequence[Any]: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def fingerprint(self) -> bytes: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def needs_compaction(self) -> bool: ...


class Format(Protocol):
    """What every format package offers."""

    name: str
    magic: bytes
    suffix: str

    def read_metadata(
        self, files: Sequence[ByteFile], heads: Sequence[memoryview], options: ReadOptions | None = None
    ) -> Sequence[ShardMeta]:
        """Return what the headers of `files` say; a few rounds of reads for all of them together."""
        ...

    def read_statistics(self, files: Sequence[ByteFile], metas: Sequence[ShardMeta]) -> list[ShardMeta]:
        """Return `metas` with the statistics that the files have and that are not there yet; one round at most."""
        ...

    def read_blocks(self, files: Sequence[ByteFile], metas: Sequence[ShardMeta]) -> list[Statistics | None]:
        """Return bounds per `BLOCK_ROWS` rows of each file, from its index; None where it has none that fits."""
        ...

    def read_header(self, file: ByteFile, head: memoryview) -> FileHeader:
        """Return what the header of one file says, without looking at its records."""
        ...

    def inspect(self, file: ByteFile, head: memoryview) -> Inspection:
        """Describe the parts of a file: one row for each record, chunk or message."""
        ...

    def verify_file(self, file: ByteFile) -> list[Problem]:
        """Check everything the format allows, in bounded memory."""
        ...


@runtime_checkable
class AddressableFormat(Protocol):
    """A `Format` whose files have no `Decoder`: values have addresses. Such files are asked what a decoder would be."""

    def only_appended(
        self,
        file: ByteFile,
        *,
        fingerprint: bytes,
        n_records: int,
        n_rows: int,
        committed_end: int,
        places: Sequence[tuple[int, int]],
    ) -> bool:
        """Tell whether a file that was modified still holds all that was planned: it was merely appended to.

        Parameters
        ----------
        file : ByteFile
        fingerprint, n_records, n_rows, committed_end
            As in the file's `ShardMeta`.
        places : sequence of (int, int)
            Body start and rows of the records to look at.

        Raises
        ------
        FormatError
            If the file is damaged, or of another format by now.
        """
        ...


_MAGICS = {"cstore": b"CSTORE\x00\x01", "columns": b"ABCD", "colbin": b"\x89COLBIN\n"}
"""How the files of each format begin, so that a format is imported when there is a file of it. A test compares."""


def known_formats() -> tuple[Format, ...]:
    """Return every format there is."""
    return tuple(format_named(name) for name in _MAGICS)


@cache
def format_named(name: str) -> Format:
    """Return the format of `ShardMeta.format`, imported when first asked for; `KeyError` if there is none."""
    if name not in _MAGICS:
        raise KeyError(name)
    found: Format = importlib.import_module(f".{name}", __name__).FORMAT
    return found


def addressable_format(name: str) -> AddressableFormat:
    """Return a format of files without decoders; `KeyError` if `name` is none."""
    found = format_named(name)
    if not isinstance(found, AddressableFormat):
        raise KeyError(name)
    return found


def read_statistics(files: Sequence[ByteFile], metas: Sequence[ShardMeta]) -> list[ShardMeta]:
    """Return `metas`, all of one format, with the statistics that the files have."""
    return format_named(metas[0].format).read_statistics(files, metas) if metas else []


def read_blocks(files: Sequence[ByteFile], metas: Sequence[ShardMeta]) -> list[Statistics | None]:
    """Return for each file its bounds per `BLOCK_ROWS` rows, None where there is no index that fits."""
    return format_named(metas[0].format).read_blocks(files, metas) if metas else []


def detect(head: bytes | memoryview, path: str) -> Format:
    """Return the format of a file by its first bytes.

    A file that begins with D4 or DC is one colbin message that carries its types; D0 and D8 begin messages that
    need a schema from elsewhere.

    Raises
    ------
    FormatError
        If no format begins like this.
    """
    start = bytes(head[:8])
    if not start:
        raise FormatError("the file is empty (0 bytes), not a colstore file", path=path, offset=0)
    for name, magic in _MAGICS.items():
        if start.startswith(magic):
            return format_named(name)
    if start[0] in (0xD4, 0xDC):
        return format_named("colbin")
    if start[0] in (0xD0, 0xD8):
        raise FormatError(
            f"a colbin message without its types (root byte {start[0]:02X}) is no file that can be opened; decode it "
            "with the section or the types it was written from, or put messages into a log (LogWriter)",
            path=path,
            offset=0,
            section="magic",
        )
    older = _OLDER_MAGICS.get(start[:4])
    if older is not None:
        raise FormatError(older, path=path, offset=0, section="magic")
    expected = " or ".join(map(repr, _MAGICS.values()))
    raise FormatError(
        f"not a colstore file: it begins with {start!r}, expected {expected}",
        path=path,
        offset=0,
        section="magic",
    )


def verify_location(location: Location, *, notices: bool = False) -> list[str]:
    """Return the problems of one file, one line each; an empty list means a sound file.

    Parameters
    ----------
    location : Location
    notices : bool, optional
        Also list what is odd, but allowed (``notice: ...``).
    """
    from ..storage import IOStats, open_files

    ((file, head),) = open_files([location], io=IOStats())
    with file:
        try:
            problems = detect(head, file.spelling).verify_file(file)
        except FormatError as exc:
            return [str(exc)]
    return [str(problem) for problem in problems if notices or problem.severity == "error"]
