"""Files of the `.cstore` format."""

from __future__ import annotations

import json
import struct
import zlib
from functools import cache

import numpy as np

from colstore_io.formats.cstore.manifest import columns_crc

from .target import (
    Target,
    read_file,
    sample,
    verify_file,
    written,
)


@cache
def _cstore_files() -> tuple[bytes, ...]:
    small = {name: values for name, values in sample(5).items() if name != "r"}
    return (
        written("a.cstore", small),
        written("a.cstore", {"a": np.arange(9), "c": np.arange(9, dtype=">f8")}, statistics=True),
        written("a.cstore", small, small, statistics=True, string_width={"t": 9, "s": 3}),
        written(
            "a.cstore",
            {"d": np.arange(6).astype("M8[ms]"), "s": np.array(list("abcdef"), "S2")},
            attrs={"k": [1]},
        ),
    )


def _repair_cstore(data: bytes) -> bytes:
    """Make the counters, the manifest and the headers of records fit again (cstore.md 3, 4, 6)."""
    out = bytearray(data)
    if len(out) < 84 or out[:8] != b"CSTORE\0\x01":
        return data
    struct.pack_into("<I", out, 32, zlib.crc32(out[8:32]))
    length = int.from_bytes(out[72:80], "little")
    text = bytes(out[80 : 80 + length])
    try:
        manifest = json.loads(text)
        before = str(manifest["manifest_crc32"]).encode()
        after = str(columns_crc(manifest["columns"])).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    else:
        if len(before) == len(after):
            out[80 : 80 + length] = text.replace(before, after)
    at = out.find(b"REC\x01")
    while 0 <= at <= len(out) - 32:
        struct.pack_into("<I", out, at + 28, zlib.crc32(out[at : at + 28]))
        at = out.find(b"REC\x01", at + 32)
    return bytes(out)


TARGETS: dict[str, Target] = {
    "cstore": Target(read_file, lambda: list(_cstore_files()), _repair_cstore, cost=20),
    "cstore_verify": Target(verify_file, lambda: list(_cstore_files()), _repair_cstore, cost=20),
}
