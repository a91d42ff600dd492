"""The record codec reads nothing behind a message and before it: fences end the process that tries."""

from __future__ import annotations

import json
import sys

import pytest
from kernels.test_guard_pages import FENCES, Fence

from colstore_io.errors import FormatError
from colstore_io.formats.colbin.codec import decode

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
            area = fence.array(len(message), side)
            area[:] = list(message)
            for size in {len(message), len(message) // 2, 1}:
                part = area[:size] if side == "before" else area[len(message) - size :]
                try:
                    decode(section, memoryview(part), errors="surrogateescape")
                except FormatError:
                    continue
    finally:
        fence.close()
