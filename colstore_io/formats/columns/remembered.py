"""What a file says of itself, kept elsewhere: in the manifest of the generation that it belongs to.

Then it can be planned without a request for its end. `remember` packs prologue and footer, `recall` unpacks them; what
`recall` gives is what `reader.read_metadata` would, for the footer is parsed and checked again. A text that fits no
such file gives None: then the file itself has to be asked.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import FormatError
from ...fields import Schema
from .. import ReadOptions, ShardMeta
from .decoder import ColumnsDecoder
from .footer import parse_footer
from .frame import Prologue, parse_prologue, prologue_bytes
from .reader import OpenedFooter, meta_of
from .statistics import footer_of
from .tags import DIGEST_BYTES, MAGIC, TRAILER_BYTES

__all__ = ["MAX_PACKED_BYTES", "recall", "remember"]

MAX_PACKED_BYTES = 16 << 10
"""Longer footers stay in their files: a manifest is written again with each generation."""


def remember(meta: ShardMeta) -> dict[str, Any] | None:
    """Return prologue and footer of a file as JSON can hold them; None if it is too long, or not at hand.

    Parameters
    ----------
    meta : ShardMeta
        As it was read from the file.
    """
    footer, decoder = footer_of(meta.statistics), meta.decoder
    if footer is None or not isinstance(decoder, ColumnsDecoder):
        return None
    if footer.stop + TRAILER_BYTES != meta.file_size:
        return None
    packed = base64.b64encode(zlib.compress(bytes(footer.data), 9))
    digests = [digest.hex() for digest in decoder.digests]
    if len(packed) + 2 * DIGEST_BYTES * len(digests) > MAX_PACKED_BYTES:
        return None
    layout: dict[str, Any] = {"version": int(meta.layout), "footer": packed.decode("ascii")}
    return {**layout, "digests": digests} if digests else layout


def recall(
    layout: Mapping[str, Any],
    *,
    path: str,
    size: int,
    options: ReadOptions,
    schemas: dict[Any, Schema],
) -> ShardMeta | None:
    """Return what a file holds, from what `remember` packed; None if that is damaged.

    Parameters
    ----------
    layout : mapping
    path : str
        Of the file, for messages.
    size : int
        Of the file.
    options : ReadOptions
    schemas : dict
        Schemas of files recalled before, by their columns; added to.
    """
    try:
        prologue = _prologue(layout, size, path)
        data = _unpacked(layout["footer"], size)
        start = size - TRAILER_BYTES - len(data)
        footer = parse_footer(
            memoryview(data), start=start, prologue=prologue, path=path, max_rows=options.max_rows
        )
        # As `reader.read_metadata` has it: decoders, which tasks carry, are the same however statistics were asked for.
        chosen = replace(options, statistics=True, assume=False)
        return meta_of(path, size, OpenedFooter(prologue, footer), chosen, schemas)
    except (FormatError, KeyError, TypeError, ValueError, binascii.Error, zlib.error):
        return None


def _prologue(layout: Mapping[str, Any], size: int, path: str) -> Prologue:
    digests = [bytes.fromhex(digest) for digest in layout.get("digests", [])]
    version = layout["version"]
    if version not in (1, 2) or isinstance(version, bool) or (version == 1 and digests):
        raise ValueError("no such version")
    if any(len(digest) != DIGEST_BYTES for digest in digests):
        raise ValueError("a digest of another length")
    head = MAGIC + bytes([version])
    if version == 2:
        head += len(digests).to_bytes(4, "little") + b"".join(digests)
    view = memoryview(head)
    return parse_prologue(view, prologue_bytes(view, size=size, path=path))


def _unpacked(text: Any, size: int) -> bytes:
    """Return the footer: no longer than a file of `size` bytes can have, whatever the text says."""
    if not isinstance(text, str) or len(text) > 2 * MAX_PACKED_BYTES:
        raise ValueError("no footer")
    packed = base64.b64decode(text, validate=True)
    stream = zlib.decompressobj()
    data = stream.decompress(packed, max(1, size))
    if not stream.eof or stream.unused_data or len(data) > size - TRAILER_BYTES:
        raise ValueError("the footer does not fit into its file")
    return data
