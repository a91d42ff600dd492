"""What a generation manifest says: the dataclasses, and their JSON text (architecture.md 7).

Reading believes nothing: a text that does not parse, or whose checksum does not fit, is not complete, and one that is
complete is still checked member by member. The difference matters: what is not complete is no commit, and passed over;
what is complete is one, so not to understand it is an error (cstore.md 10.1).
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeGuard

from ..errors import FormatError, UnsupportedFeatureError
from ..formats.cstore.attributes import decode_attributes, encode_attributes

__all__ = [
    "FileEntry",
    "GenerationManifest",
    "IncompleteManifestError",
    "generation_of_name",
    "manifest_name",
    "new_commit_id",
]

MANIFEST_VERSION = 1
MAX_GENERATION = 99_999_999
_NAME = re.compile(r"_colstore-([0-9]{8})\.json", re.ASCII)
_MAX_INT = 2**63 - 1

Kind = Literal["table", "grid"]


class IncompleteManifestError(FormatError):
    """The file is what an interrupted commit leaves behind: it does not parse, or its checksum does not fit."""


def manifest_name(generation: int) -> str:
    """Return the file name of a generation.

    Raises
    ------
    ValueError
        If the number does not have at most eight digits.
    """
    if not 0 <= generation <= MAX_GENERATION:
        raise ValueError(f"generation must lie in [0, {MAX_GENERATION}], got {generation}")
    return f"_colstore-{generation:08d}.json"


def generation_of_name(name: str) -> int | None:
    """Return the generation that a file name stands for, or None when it is no manifest's name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match.group(1))


def new_commit_id() -> str:
    """Return a fresh commit id."""
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One data file of a generation.

    Attributes
    ----------
    path : str
        Relative to the directory of the manifest, with ``/``; never leads out of it.
    size : int
        Bytes.
    records, rows : int
    layout : mapping or None
        What a plan needs so that the file need not be opened (`layouts.file_entry`).
    partition : mapping or None
        Values of the columns that its folder names stand for; for a grid, the chunks that it holds.
    stats : object
        Bounds per record (`layouts.file_entry`), or None.
    """

    path: str
    size: int
    records: int
    rows: int
    layout: Mapping[str, Any] | None = None
    partition: Mapping[str, Any] | None = None
    stats: Any = None
    _text: str = field(default="", init=False, repr=False, compare=False)

    def text(self) -> str:
        """Return the JSON text of the entry, made once: most entries are written again in the next generation."""
        if not self._text:
            value = {
                "path": self.path,
                "size": self.size,
                "records": self.records,
                "rows": self.rows,
                "layout": self.layout,
                "partition": self.partition,
                "stats": self.stats,
            }
            object.__setattr__(self, "_text", _dump(value))
        return self._text


@dataclass(frozen=True, slots=True)
class GenerationManifest:
    """The commit record of one generation; treat everything in it as read-only.

    Attributes
    ----------
    generation : int
    commit_id : str
        Drawn by the committer; tells its own manifest from another's.
    kind : {"table", "grid"}
    format : str
        Of the data files: ``"cstore"``, ...
    n_rows : int
    schema : tuple of mapping
        Column objects, as in the header of a `.cstore` file.
    partition_on : tuple of str
        Columns that stand in folder names.
    files : tuple of FileEntry
        In row order.
    attrs : mapping
        Attributes of the dataset.
    dims, variables : object
        Of a grid; JSON values.
    """

    generation: int
    commit_id: str
    files: tuple[FileEntry, ...]
    n_rows: int
    schema: tuple[Mapping[str, Any], ...] = ()
    kind: Kind = "table"
    format: str = "cstore"
    partition_on: tuple[str, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dims: Any = None
    variables: Any = None

    @property
    def name(self) -> str:
        """File name of this generation."""
        return manifest_name(self.generation)

    def to_bytes(self) -> bytes:
        """Return the JSON text, its checksum included.

        Raises
        ------
        TypeError, ValueError
            If a member has no JSON form.
        """
        members: dict[str, Any] = {
            "colstore_manifest": MANIFEST_VERSION,
            "generation": self.generation,
            "commit_id": self.commit_id,
            "kind": self.kind,
            "format": self.format,
            "n_rows": self.n_rows,
            "schema": [dict(column) for column in self.schema],
            "partition_on": list(self.partition_on),
            "files": None,  # below
            "attrs": encode_attributes(self.attrs, "the dataset"),
            "dims": self.dims,
            "variables": self.variables,
        }
        # The checksum is that of the text with sorted keys, whose order tells nothing. That of variables does.
        files = f"[{', '.join([entry.text() for entry in self.files])}]"
        plain = {key: json.dumps(value, allow_nan=False) for key, value in members.items()} | {"files": files}
        sorted_ = {key: _dump(value) for key, value in members.items()} | {"files": files}
        crc32 = zlib.crc32(_object(sorted_, sorted(members)))
        return _object({**plain, "crc32": str(crc32)}, [*members, "crc32"])

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> GenerationManifest:
        """Parse and check a manifest.

        Raises
        ------
        IncompleteManifestError
            If it is not complete: it does not parse, or its checksum does not fit.
        UnsupportedFeatureError
            If it is complete, but of another version, or not what a manifest of this version may say.

        Notes
        -----
        Both are a `FormatError`.
        """
        return _parse(data, path)

    def successor(self, added: Sequence[FileEntry], *, generation: int | None = None) -> GenerationManifest:
        """Return a later generation: this one with `added` behind its files, under a fresh commit id.

        `generation` is its number, by default the next one; see `next_number`.
        """
        return replace(
            self,
            generation=self.generation + 1 if generation is None else generation,
            commit_id=new_commit_id(),
            files=(*self.files, *added),
            n_rows=self.n_rows + sum(entry.rows for entry in added),
        )


def _object(texts: Mapping[str, str], order: Iterable[str]) -> bytes:
    """Return a JSON object of members whose texts are given, as `json.dumps` writes it."""
    members = ", ".join([f'"{key}": {texts[key]}' for key in order])
    return f"{{{members}}}".encode("ascii")


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


def _checksum(members: Mapping[str, Any]) -> int:
    return zlib.crc32(_dump(members).encode("ascii"))


# ----------------------------------------------------------------------------------------------------------
# Parsing


def _parse(data: bytes, path: str) -> GenerationManifest:
    def incomplete(message: str) -> FormatError:
        return IncompleteManifestError(message, path=path, section="generation manifest")

    def refuse(message: str) -> FormatError:
        advice = (
            "The manifest is complete, but this library does not understand it. Open an older generation by the "
            "path of its manifest, or the directory with ignore_manifest=True"
        )
        return UnsupportedFeatureError(f"{message}. {advice}", path=path, section="generation manifest")

    try:
        members = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise incomplete(
            "not complete: it is no JSON text; an interrupted commit leaves such a file"
        ) from None
    if not isinstance(members, dict):
        raise incomplete("not complete: it is no JSON object")
    stored = members.pop("crc32", None)
    try:
        actual = _checksum(members)
    except (ValueError, RecursionError):
        raise incomplete("not complete: it holds values that JSON has no form for") from None
    if not _is_int(stored) or stored != actual:
        raise incomplete(f"not complete: its checksum does not fit, the contents give {actual}")
    if members.get("colstore_manifest") != MANIFEST_VERSION or not _is_int(members["colstore_manifest"]):
        raise refuse(f"its version is not {MANIFEST_VERSION}, the only one that this library reads")
    generation = members.get("generation")
    if not _is_int(generation) or not 0 <= generation <= MAX_GENERATION:
        raise refuse("'generation' is no number of at most eight digits")
    named = generation_of_name(re.split(r"[/\\]", path)[-1])
    if named is not None and named != generation:
        raise refuse(f"says generation {generation}, its name says {named}")
    if members.get("kind") not in ("table", "grid"):
        raise refuse("'kind' is neither 'table' nor 'grid'")
    for key in ("commit_id", "format"):
        if not isinstance(members.get(key), str):
            raise refuse(f"{key!r} is no string")
    files = members.get("files")
    if not isinstance(files, list):
        raise refuse("'files' is no array")
    entries = tuple(_entry(value, position, refuse) for position, value in enumerate(files))
    if len({entry.path for entry in entries}) != len(entries):
        raise refuse("'files' names a file twice")
    n_rows = members.get("n_rows")
    if not _is_count(n_rows):
        raise refuse("'n_rows' is no count")
    if members["kind"] == "table" and n_rows != sum(entry.rows for entry in entries):
        raise refuse(f"'n_rows' is {n_rows}, the files have {sum(entry.rows for entry in entries)}")
    schema = members.get("schema")
    if not isinstance(schema, list) or not all(
        isinstance(c, dict) and isinstance(c.get("name"), str) and isinstance(c.get("dtype"), str)
        for c in schema
    ):
        raise refuse("'schema' is no array of column objects")
    partition_on = members.get("partition_on")
    if not isinstance(partition_on, list) or not all(isinstance(name, str) for name in partition_on):
        raise refuse("'partition_on' is no array of names")
    try:
        attrs = decode_attributes(members.get("attrs", {}))
    except (ValueError, RecursionError) as exc:
        raise refuse(f"'attrs': {exc}") from None
    return GenerationManifest(
        generation=generation,
        commit_id=members["commit_id"],
        files=entries,
        n_rows=n_rows,
        schema=tuple(schema),
        kind=members["kind"],
        format=members["format"],
        partition_on=tuple(partition_on),
        attrs=attrs,
        dims=members.get("dims"),
        variables=members.get("variables"),
    )


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> TypeGuard[int]:
    return _is_int(value) and 0 <= value <= _MAX_INT


def _entry(value: Any, position: int, refuse: Any) -> FileEntry:
    if not isinstance(value, dict):
        raise refuse(f"file {position} is no object")
    path = value.get("path")
    if not isinstance(path, str) or not _is_inside(path):
        raise refuse(f"path of file {position} does not lead to a file below the manifest's directory")
    for key in ("size", "records", "rows"):
        if not _is_count(value.get(key)):
            raise refuse(f"{key!r} of file {position} is no count")
    for key in ("layout", "partition"):
        if not isinstance(value.get(key), (dict, type(None))):
            raise refuse(f"{key!r} of file {position} is no object")
    return FileEntry(
        path,
        value["size"],
        value["records"],
        value["rows"],
        value.get("layout"),
        value.get("partition"),
        value.get("stats"),
    )


def _is_inside(path: str) -> bool:
    """Whether a relative path stays below its directory, on any platform."""
    parts = path.split("/")
    return "\\" not in path and ":" not in parts[0] and "\0" not in path and not {"", ".", ".."} & set(parts)
