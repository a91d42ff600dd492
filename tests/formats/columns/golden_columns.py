"""Columns and options of the golden files of the columns format, as their manifest describes them."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from colstore_io.fields import Field, Schema
from colstore_io.formats.columns.tags import NUMPY_TYPES, Codec, Encoding, Type


def manifest(shared: Path) -> dict[str, Any]:
    return json.loads((shared / "vectors/columns/manifest.json").read_text())


def field_of(column: dict[str, Any]) -> Field:
    kind = Type(column["type"])
    name = (
        column["name"] if isinstance(column["name"], str) else bytes.fromhex(column["name"]["hex"]).decode()
    )
    if kind.fixed:
        return Field(name, NUMPY_TYPES[kind], optional=column["nullable"])
    return Field(
        name,
        np.dtype(object),
        logical="string" if kind is Type.STRING else "binary",
        optional=column["nullable"],
    )


def schema_of(entry: dict[str, Any]) -> Schema:
    return Schema(tuple(field_of(column) for column in entry["schema"]))


def f32(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def f64(value: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def values_of(chunk: dict[str, Any], kind: Type, n: int) -> list[Any]:
    """Return the values of a chunk: ints, bools, bytes; floats as integers of their bits; None for nulls."""
    if "values" in chunk:
        return [_plain(value, kind) for value in chunk["values"]]
    names = {
        "hashlib": hashlib,
        "int": int,
        "float": float,
        "f32": f32,
        "f64": f64,
        "bytes": bytes,
        "len": len,
        "n": n,
    }
    code = compile(chunk["values_python"], "manifest", "eval")
    return [eval(code, {"__builtins__": {}, **names, "i": i}) for i in range(n)]


def _plain(value: Any, kind: Type) -> Any:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return value.encode()
    return int(value["bits"], 16) if "bits" in value else bytes.fromhex(value["hex"])


def array_of(values: list[Any], kind: Type, nullable: bool) -> Any:
    """Return values as the encoder takes them; text goes in by its bytes, which need not be UTF-8."""
    if not kind.fixed:
        binary = pa.array(values, pa.binary())
        if kind is Type.BYTES:
            return binary
        return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())
    dtype = NUMPY_TYPES[kind]
    if kind in (Type.FLOAT32, Type.FLOAT64):
        raw = np.array([value or 0 for value in values], f"<u{dtype.itemsize}").view(dtype)
    else:
        raw = np.array([value or 0 for value in values], dtype)
    if not nullable:
        return raw
    return pa.array(raw, mask=np.array([value is None for value in values], bool))


def groups_of(entry: dict[str, Any]) -> list[list[Any]]:
    """Return the columns of each row group."""
    kinds = [Type(column["type"]) for column in entry["schema"]]
    return [
        [
            array_of(values_of(chunk, kind, group["num_rows"]), kind, column["nullable"])
            for chunk, kind, column in zip(group["columns"] or [], kinds, entry["schema"], strict=True)
        ]
        for group in entry["row_groups"] or []
    ]


def options_of(entry: dict[str, Any], shared: Path) -> dict[str, Any]:
    """Return the options of `ColumnsEncoder` that a golden file was written with."""
    writer = entry["writer"]
    names = {encoding: encoding.name.lower() for encoding in Encoding}
    tokenized = {int(column) for column in writer["tokenizers"]}
    options: dict[str, Any] = {
        "compression": Codec(writer["compress"]).name.lower(),
        "level": writer["compress_level"],
        "block_size": writer["block_size"],
        "tokenized_layout": tuple(writer["tokenized_layout"]),
    }
    if writer["encoding"]:
        options["encoding"] = names[Encoding(writer["encoding"])]
    if writer["optimize"]:
        options["optimize"] = "exact"
        options["optimize_level"] = writer["optimize_level"]
    if tokenized:
        from colstore_io.formats.columns.tokenizer import Tokenizer

        folder = shared / "vectors/columns"
        options["tokenizers"] = {
            int(column): Tokenizer.from_file(folder / path) for column, path in writer["tokenizers"].items()
        }
    return options
