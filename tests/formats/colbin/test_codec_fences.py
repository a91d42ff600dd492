"""The record codec reads nothing behind a message and before it: fences end the process that tries."""

from __future__ import annotations

import json
import sys

import pytest
from kernels.test_guard_pages import FENCES, Fence

from colstore_io.errors import FormatError
from colstore_io.formats.colbin.codec import SchemaCodec, decode
from colstore_io.formats.colbin.schema import Section

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses mprotect")


@pytest.mark.parametrize("side", FENCES)
@pytest.mark.parametrize("name", ["messages", "dynamic", "hostile", "mutated"])
def test_messages_between_fences(shared, name, side):
    fence = Fence()
    cases = json.loads((shared / "vectors" / "colbin" / f"{name}.json").read_text())["cases"]
    try:
        for case in cases[::3]:
            message = bytes.fromhex(case["message"])
            section = bytes.fromhex(case["section"]) if case.get("section") else None
            if not message:
                continue
            for size in {len(message), len(message) // 2, 1}:
                part = fence.bytes(message[:size], side)
                try:
                    decode(section, part, errors="surrogateescape")
                except FormatError:
                    pass
                try:
                    # the way of the usual call, of messages without a section
                    SchemaCodec(Section.from_bytes(section or part[1:])).decode(part)
                except FormatError:
                    continue
    finally:
        fence.close()
